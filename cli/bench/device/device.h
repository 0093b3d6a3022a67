/* SPDX-License-Identifier: MIT
 *
 * device.h: `pleat bench attn|pages|codec --device cuda`: what the three share: the device, and how fast its
 * memory copies right now.
 *
 *     open ── for each repetition: what is compared, turn and turn about | measure_copy ──> peak ──> close
 *
 * A copy from device to device of a buffer that outgrows the level-2 cache counts what it reads and what it writes.
 * What only reads can be a little faster than that: a fraction of the peak may pass 1.
 */
#ifndef PLEAT_CLI_BENCH_DEVICE_H
#define PLEAT_CLI_BENCH_DEVICE_H

#include "cli/bench/lib/bench.h"
#include "cli/lib/common.h"
#include "cli/lib/output.h"
#include "gpu.h"

/* Go on with `expr` unless an earlier status was an error. */
#define DEVICE_THEN(status, expr)                    \
    do {                                             \
        if ((status) == PLEAT_OK) (status) = (expr); \
    } while (0)

typedef struct bench_device {
    gpu gpu;
    void *from, *to; /* [copy_bytes] each */
    uint64_t copy_bytes;
    double *gb_per_s; /* [reps] */
    uint32_t reps;
} bench_device;

/* CLI_OK, or CLI_FAILED after a message: there is no GPU, or none in this build.  Close it in either case. */
int bench_device_open(bench_device *d, uint32_t reps);
void bench_device_close(bench_device *d);

/* Copy the buffer once; repetition rep's figure, unless rep is negative. */
pleat_status bench_device_measure_copy(bench_device *d, int rep, pleat_error *err);

/* GB/s (1e9 bytes, read and written), the median of the repetitions. */
double bench_device_peak(const bench_device *d);

/* Median without disturbing the order of values[n]. */
double bench_median(const double *values, uint32_t n);

/* PLEAT_E_STATE, and err says so, unless a relative error is one that rounding makes: what is wrong is not timed. */
pleat_status bench_device_judge(double max_rel_err, pleat_error *err);

/* Put an error as a table has it, "-" where it is not known. */
void bench_device_put_error(table *t, double max_rel_err);

/* The three benchmarks behind `--device cuda`; options as the command line left them. */
int bench_device_attn(const attn_options *o);
int bench_device_pages(const pages_options *o);
int bench_device_codec(codec_options *o);

#endif
