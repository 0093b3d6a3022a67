/* SPDX-License-Identifier: MIT
 *
 * weights.h: a model's tensors in a GPU's memory: one allocation.
 *
 *     matrices   as tiles (linear/tiles.h), packed on the CPU by the team, sent piece by piece
 *                q, k and v are one where they have one format; gate and up always, in pairs of rows
 *     vectors    f32: norms and biases
 *     turns      cos and sin of each pair of a head at each position, for each of the model's ropes
 */
#ifndef PLEAT_MODEL_CUDA_WEIGHTS_H
#define PLEAT_MODEL_CUDA_WEIGHTS_H

#include "model/cuda/mul.h"
#include "model/internal.h"

typedef struct pleat__device_layer {
    pleat__device_matrix qkv[3]; /* [n_qkv] */
    uint32_t n_qkv;              /* 1: all in one; 3 */
    pleat__device_matrix o, gate_up, down;
    const float *attn_norm, *ffn_norm; /* [n_embd] */
    const float *post_norms[2];        /* [n_embd] of what attention and the feed-forward add, or NULL */
    const float *head_norms[2];        /* [head_dim] of q and k, or NULL */
    const float *biases[3];            /* of q, k, v, or NULL */
    const float *o_bias;               /* [n_embd] or NULL */
    const float *turns;                /* NULL: heads are not turned */
    uint32_t rope;                     /* which of the model's; PLEAT__NO_ROPE */
} pleat__device_layer;

typedef struct pleat__device_weights {
    pleat_allocator al;
    const pleat_model *model;
    pleat__device_layer *layers; /* [n_layers] on the host */
    pleat__device_matrix embedding, output;
    const float *output_norm;
    void *memory;
    uint64_t bytes; /* of `memory` */
} pleat__device_weights;

/* Bytes of device memory for the weights, with positions up to max_tokens. */
pleat_status pleat__device_weights_bytes(const pleat_model *model, uint32_t max_tokens, const pleat_allocator *al,
                                         uint64_t *bytes, pleat_error *err);

/* Pack and send all, to the calling thread's device.  Waits.  The model is not owned.  PLEAT_E_UNSUPPORTED
 * for a model that no GPU can run; err says why. */
pleat_status pleat__device_weights_create(const pleat_model *model, uint32_t max_tokens, pleat_workers *workers,
                                          const pleat_allocator *al, pleat__device_weights **out, pleat_error *err);

/* Set *weights to NULL.  NULL and *weights == NULL are fine. */
void pleat__device_weights_destroy(pleat__device_weights **weights);

#endif
