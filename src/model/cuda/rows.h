/* SPDX-License-Identifier: MIT
 *
 * rows.h: what stands between the products of a step, on a GPU: embeddings, RMSNorm, heads made ready for the cache.
 * model/ops.h's arithmetic, in f32.  A row's result depends on that row alone.
 *
 * Launchers neither allocate nor wait; they can be recorded in a graph.  Pointers are device memory, aligned to 16.
 */
#ifndef PLEAT_MODEL_CUDA_ROWS_H
#define PLEAT_MODEL_CUDA_ROWS_H

#include "model/cuda/mul.h"
#include "pleat/device_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [n][n_embd] = scale * rows tokens[n] of the embedding, whose columns are n_embd.  tokens may be pinned memory of the
 * host. */
pleat_status pleat__device_embed(const pleat__device_matrix *embedding, const int32_t *tokens, uint32_t n, float scale,
                                 float *x, pleat__device_stream stream, pleat_error *err);

/* Parts of a product that x is still to get, times `scale`: [PLEAT__DEVICE_PARTS][rows of x][width]. */
typedef struct pleat__device_parts {
    const float *at;
    uint32_t n; /* 0: none; or PLEAT__DEVICE_PARTS */
    float scale;
} pleat__device_parts;

/* Of 1, 2, 4 and 8 parts two are fastest for Llama-3-8B's o and down: 12.0 and 34.1 us, where cuBLASLt splits them itself in
 * 14.0 and 38.3; four take 13.2 and 40.4 (128 rows, H200, 2026-11-29). */
#define PLEAT__DEVICE_PARTS 2u

/* What is normed. */
typedef struct pleat__device_norm_of {
    float *x; /* [n][width]; changed where there are parts */
    pleat__device_parts parts;
    const float *weight; /* [width] */
    uint32_t n, width;   /* width is a multiple of 32 */
    float eps;
    bool is_packed;
    uint16_t *out;
} pleat__device_norm_of;

/* x += parts; out [n][width] f16, or packed as mul.h has it, = weight * x / sqrt(mean(x^2) + eps). */
pleat_status pleat__device_norm(const pleat__device_norm_of *norm, pleat__device_stream stream, pleat_error *err);

/* x [n][width] += scale * norm(y [n][width]), the norm as above. */
pleat_status pleat__device_add_normed(const float *y, const float *weight, uint32_t n, uint32_t width, float eps,
                                      float scale, float *x, pleat__device_stream stream, pleat_error *err);

/* out [n] f16 = x [n]; n is a multiple of 8. */
pleat_status pleat__device_halve(const float *x, uint64_t n, uint16_t *out, pleat__device_stream stream,
                                 pleat_error *err);

/* Heads of n rows of a prompt, or of a step at `positions`, made ready. */
typedef struct pleat__device_heads {
    pleat_device_cache_heads of;
    uint32_t n;
    uint32_t n_q_heads, n_kv_heads, head_dim; /* head_dim even, up to 256 */
    const uint32_t *positions;                /* [n]; NULL: first_position + row */
    uint32_t first_position;
    uint16_t *q, *k, *v; /* [n][heads][head_dim] f16 */
} pleat__device_heads;

pleat_status pleat__device_heads_run(const pleat__device_heads *heads, pleat__device_stream stream, pleat_error *err);

/* Parts of a row, among which the likeliest token is looked for at once. */
#define PLEAT__CHOOSE_PARTS 8u

/* out [n]: the likeliest token of each row of logits [n][n_vocab], the lowest id among equals; UINT32_MAX where one is
 * no finite number.  out may be pinned memory of the host; work: [n][PLEAT__CHOOSE_PARTS]. */
pleat_status pleat__device_choose(const float *logits, uint32_t n, uint32_t n_vocab, uint64_t *work, uint32_t *out,
                                  pleat__device_stream stream, pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
