/* SPDX-License-Identifier: MIT
 *
 * device.c: see device.h.
 */
#include "device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/measure.h"

/* 1 GiB, or an eighth of what is free; and enough to leave no cache a part in it. */
static const uint64_t max_copy_bytes = (uint64_t)1 << 30;

int bench_device_open(bench_device *d, uint32_t reps) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    *d = (bench_device){.reps = reps, .gb_per_s = cli_alloc(reps, sizeof(double))};
    pleat_status status = gpu_open(&d->gpu, &err);
    if (status != PLEAT_OK) return cli_fail("--device cuda", status, &err);
    const uint64_t share = gpu_free_bytes() / 8;
    d->copy_bytes = share < max_copy_bytes ? share : max_copy_bytes;
    DEVICE_THEN(status, gpu_alloc(&d->from, d->copy_bytes, &err));
    DEVICE_THEN(status, gpu_alloc(&d->to, d->copy_bytes, &err));
    DEVICE_THEN(status, gpu_normal_f32(&d->gpu, d->from, d->copy_bytes / sizeof(float), 1, 1, &err));
    DEVICE_THEN(status, gpu_wait(&d->gpu, &err));
    return status == PLEAT_OK ? CLI_OK : cli_fail(d->gpu.info.name, status, &err);
}

void bench_device_close(bench_device *d) {
    gpu_free(d->from);
    gpu_free(d->to);
    gpu_close(&d->gpu);
    free(d->gb_per_s);
    memset(d, 0, sizeof *d);
}

pleat_status bench_device_measure_copy(bench_device *d, int rep, pleat_error *err) {
    double us = 0;
    pleat_status status = gpu_clock_start(&d->gpu, err);
    DEVICE_THEN(status, gpu_copy(&d->gpu, d->to, d->from, d->copy_bytes, err));
    DEVICE_THEN(status, gpu_clock_stop(&d->gpu, &us, err));
    if (status == PLEAT_OK && rep >= 0) d->gb_per_s[rep] = 2 * (double)d->copy_bytes / (us * 1e-6) / 1e9;
    return status;
}

double bench_median(const double *values, uint32_t n) {
    double *copy = cli_alloc(n, sizeof *copy);
    memcpy(copy, values, n * sizeof *copy);
    const double median = measure_median(copy, n);
    free(copy);
    return median;
}

double bench_device_peak(const bench_device *d) { return bench_median(d->gb_per_s, d->reps); }

pleat_status bench_device_judge(double max_rel_err, pleat_error *err) {
    const double most = 1e-2; /* ten times what kernels promise: kernels' tests are the judges, this sees nonsense */
    if (max_rel_err <= most) return PLEAT_OK;
    *err = (pleat_error){PLEAT_E_STATE, PLEAT_NOWHERE, ""};
    snprintf(err->text, sizeof err->text, "the GPU's result is wrong: relative error %g", max_rel_err);
    return PLEAT_E_STATE;
}

void bench_device_put_error(table *t, double max_rel_err) {
    if (isfinite(max_rel_err))
        table_put(t, "%.1e", max_rel_err);
    else
        table_put(t, "-");
}
