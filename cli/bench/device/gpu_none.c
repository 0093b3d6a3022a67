/* SPDX-License-Identifier: MIT
 *
 * gpu_none.c: gpu.h in a build without CUDA: there is no device to open, and so nothing else to do.
 */
#include "gpu.h"

static pleat_status none(pleat_error *err) {
    uint32_t n;
    return pleat_device_count(&n, err); /* it says that this build has no CUDA */
}

pleat_status gpu_open(gpu *g, pleat_error *err) {
    (void)g;
    return none(err);
}
void gpu_close(gpu *g) { (void)g; }

pleat_status gpu_wait(const gpu *g, pleat_error *err) {
    (void)g;
    return none(err);
}

pleat_status gpu_alloc(void **p, uint64_t bytes, pleat_error *err) {
    (void)p, (void)bytes;
    return none(err);
}

pleat_status gpu_alloc_host(void **p, uint64_t bytes, pleat_error *err) {
    (void)p, (void)bytes;
    return none(err);
}

void gpu_free(void *p) { (void)p; }
void gpu_free_host(void *p) { (void)p; }
uint64_t gpu_free_bytes(void) { return 0; }

pleat_status gpu_copy(const gpu *g, void *to, const void *from, uint64_t bytes, pleat_error *err) {
    (void)g, (void)to, (void)from, (void)bytes;
    return none(err);
}

pleat_status gpu_normal_f16(const gpu *g, void *out, uint64_t n, float scale, uint64_t seed, pleat_error *err) {
    (void)g, (void)out, (void)n, (void)scale, (void)seed;
    return none(err);
}

pleat_status gpu_normal_f32(const gpu *g, float *out, uint64_t n, float scale, uint64_t seed, pleat_error *err) {
    (void)g, (void)out, (void)n, (void)scale, (void)seed;
    return none(err);
}

pleat_status gpu_clock_start(const gpu *g, pleat_error *err) {
    (void)g;
    return none(err);
}

pleat_status gpu_clock_stop(const gpu *g, double *us, pleat_error *err) {
    (void)g, (void)us;
    return none(err);
}

pleat_status gpu_graph_begin(const gpu *g, pleat_error *err) {
    (void)g;
    return none(err);
}

pleat_status gpu_graph_end(const gpu *g, gpu_graph *graph, pleat_error *err) {
    (void)g, (void)graph;
    return none(err);
}

pleat_status gpu_graph_launch(const gpu *g, gpu_graph graph, pleat_error *err) {
    (void)g, (void)graph;
    return none(err);
}

void gpu_graph_destroy(gpu_graph *graph) { (void)graph; }

pleat_status gpu_scan_create(const gpu *g, const uint32_t *counts, uint32_t n_lanes, gpu_scan **out, pleat_error *err) {
    (void)g, (void)counts, (void)n_lanes, (void)out;
    return none(err);
}

pleat_status gpu_scan_run(const gpu *g, gpu_scan *scan, pleat_error *err) {
    (void)g, (void)scan;
    return none(err);
}

void gpu_scan_destroy(gpu_scan **scan) { (void)scan; }

pleat_status gpu_blas_open(const gpu *g, gpu_blas **out, pleat_error *err) {
    (void)g, (void)out;
    return none(err);
}

void gpu_blas_close(gpu_blas **blas) { (void)blas; }

pleat_status gpu_blas_logits(gpu_blas *blas, const gpu_product *p, pleat_error *err) {
    (void)blas, (void)p;
    return none(err);
}

pleat_status gpu_blas_outputs(gpu_blas *blas, const gpu_product *p, pleat_error *err) {
    (void)blas, (void)p;
    return none(err);
}
