/* SPDX-License-Identifier: MIT
 *
 * cache.h: caches on a GPU full of made-up tokens, to time attention on.
 *
 *     init ── (plan | calls | step), any number, in any order ──> release
 *
 * Lanes hold as many tokens each, or lengths are spread evenly between the shortest and `spread` times that.  These are
 * dealt out to the lanes of every layer at random; a layer then holds as many tokens as if all were equally long.  Of a
 * leankv lane's tokens a share is in the low format.
 */
#ifndef PLEAT_CLI_BENCH_DEVICE_CACHE_H
#define PLEAT_CLI_BENCH_DEVICE_CACHE_H

#include "device.h"
#include "pleat/device_cache.h"

/* Shape of one layer. */
typedef struct device_shape {
    uint32_t ctx, batch, kv_heads, group, head_dim;
    uint32_t spread; /* 1: all lanes are as long */
    float low_share;
} device_shape;

/* How attention is called. */
typedef enum device_how {
    HOW_LAUNCHED, /* one call after another */
    HOW_GRAPH,    /* calls as HOW_LAUNCHED makes, in a graph */
    HOW_LANES,    /* one call after another, a thread block a lane */
    HOW_STEP,     /* a whole step in a graph: begin, append and attend in every layer, end */
    N_HOWS,
} device_how;

typedef struct device_cache {
    bench_device *device; /* not owned */
    device_shape shape;
    const char *name; /* for messages; not owned */
    pleat_spec spec;
    uint32_t n_layers, n_calls; /* calls of one pass go round the layers */
    pleat_device_cache *cache;
    void *q, *kv; /* f16: queries; new tokens of a step, keys then values */
    float *out;   /* device memory, [batch][kv_heads * group][head_dim] */
    gpu_graph calls_graph, step_graph, plan_graph;
    uint64_t layer_bytes; /* bytes that attention over one layer reads */
    uint64_t score_bytes; /* of one layer, that a step moves beside them */
    double max_rel_err;
} device_cache;

/* Layers that are needed for `bytes`: 4 to 256. */
uint32_t device_layers_for(const device_shape *shape, const pleat_spec *spec, uint64_t bytes);

/* Make the cache, fill it and compare its attention with float64: |out - ref| / |ref| (L2, one query head).  The error
 * is the worst of the first and last heads of the first and last KV head of the last sequence, in the first layer.  It
 * is NAN where tokens cannot be had back (leankv with al = 0).  PLEAT_E_MEMORY: it does not fit; PLEAT_E_UNSUPPORTED,
 * PLEAT_E_ARG, PLEAT_E_LIMIT: there is no such cache on a GPU, or none as large; PLEAT_E_STATE: attention is wrong.
 * Release it in any case. */
pleat_status device_cache_init(device_cache *c, bench_device *d, const device_shape *shape, const pleat_spec *spec,
                               const char *name, uint32_t n_layers, pleat_error *err);
void device_cache_release(device_cache *c);

/* Microseconds of one call (HOW_STEP: of one layer's share of a step), and of planning all layers' calls once. */
pleat_status device_cache_time(device_cache *c, device_how how, double *us, pleat_error *err);
pleat_status device_cache_time_plan(device_cache *c, double *us, pleat_error *err);

#endif
