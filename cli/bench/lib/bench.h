/* SPDX-License-Identifier: MIT
 *
 * bench.h: what the benchmarks of a CPU (bench/) and of a GPU (bench/device/) share: their options, and the shapes that
 * these span.  The commands are in bench/, and hand over to bench/device/ with --device cuda.
 */
#ifndef PLEAT_CLI_BENCH_H
#define PLEAT_CLI_BENCH_H

#include "cli/lib/options.h"

/* Where a benchmark runs. */
typedef enum bench_device_kind { DEVICE_CPU, DEVICE_CUDA } bench_device_kind;

/* Shapes to measure: one for each combination. */
typedef struct shape_options {
    number_list ctx, batch, gqa, head_dim;
    uint32_t kv_heads;
} shape_options;

/* Shape of one layer. */
typedef struct bench_shape {
    uint32_t ctx, batch, kv_heads, group, head_dim;
} bench_shape;

/* How many shapes there are, and the nth; the context changes fastest. */
uint32_t bench_shapes_count(const shape_options *o);
bench_shape bench_shapes_at(const shape_options *o, uint32_t n);

typedef struct attn_options {
    common_options common;
    uint32_t threads; /* 0: one for each core */
    bench_device_kind device;
    spec_list kv;
    shape_options shape;
    uint32_t heads;  /* 0: not given */
    uint32_t spread; /* longest lane over the shortest; 1: all are as long */
    float low_share; /* of a leankv lane's tokens, those in the low format */
    uint32_t layers; /* at least; on a GPU */
    uint32_t reps;
} attn_options;

typedef struct pages_options {
    common_options common;
    uint32_t threads; /* 0: one for each core */
    bench_device_kind device;
    uint32_t lanes;
    uint32_t reps;
} pages_options;

typedef struct codec_options {
    common_options common;
    bench_device_kind device;
    spec_list kv;
    number_list ctx, batch, gqa, head_dim;
    uint32_t reps;
} codec_options;

/* clang-format off */
#define DEVICE_ROW(type)                                                                                               \
    {GROUP_MACHINE, "device", NULL, "DEVICE", "where to run: cpu or cuda (default cpu)", KIND_WORD,                    \
     .offset = offsetof(type, device), .words = bench_devices}
#define REPS_ROW(type)                                                                                                 \
    {GROUP_SHAPE, "reps", "r", "N", "repetitions, at least 7 for a median (default 15)", KIND_U32,                     \
     .offset = offsetof(type, reps), 7, 10000}
/* clang-format on */
#define DEFAULT_REPS 15
#define MAX_GROUP 64                      /* query heads that can share a KV head */
extern const char *const bench_devices[]; /* of bench_device_kind */

#endif
