/* SPDX-License-Identifier: MIT
 *
 * shape.h: what `pleat plan` and `inspect` have to know of a model: the sizes that its KV cache and its weights follow from.
 *
 *     archs.c       from the table of known models
 *     hf_config.c   from a HuggingFace config.json
 *     gguf_shape.c  from a GGUF file
 *
 * Parameters are counted from the shapes, for decoders that are built as Llama is: per layer
 *
 *     attention   q, k, v, o: n_embd * head_dim * (2 n_q_heads + 2 n_kv_heads)
 *     MLP         gate, up, down: 3 n_embd n_ff; or for each of n_experts, and a router of n_embd n_experts
 *     norms       2 n_embd, or 4
 *
 * and n_embd * n_vocab once where the embedding is the output matrix too ("tied"), else twice, and a last norm.  What a
 * model has beyond that is said by TRAIT_ bits.
 */
#ifndef PLEAT_CLI_SHAPE_H
#define PLEAT_CLI_SHAPE_H

#include <stdint.h>

#include "pleat/common.h"

enum {
    TRAIT_TIED = 1,        /* the output matrix is the embedding */
    TRAIT_QKV_BIAS = 2,    /* biases of q, k and v */
    TRAIT_O_BIAS = 4,      /* a bias of o */
    TRAIT_QK_NORM = 8,     /* a norm of head_dim on queries and one on keys */
    TRAIT_FOUR_NORMS = 16, /* norms behind attention and MLP too */
    TRAIT_MLP_BIAS = 32,   /* biases of gate, up and down, and of the router */
    TRAIT_SINKS = 64,      /* a learned sink for each query head */
    TRAIT_MXFP4 = 128,     /* experts' matrices are published in MXFP4: 17 bytes for 32 numbers */
};

/* Most of each that is taken: far above any model's, and low enough that no product of them passes 64 bits. */
enum {
    SHAPE_LAYERS_MAX = 1024,
    SHAPE_KV_HEADS_MAX = 1024,
    SHAPE_Q_HEADS_MAX = 65536,
    SHAPE_HEAD_DIM_MAX = 512,
    SHAPE_EMBD_MAX = 1 << 18,
    SHAPE_FF_MAX = 1 << 20,
    SHAPE_VOCAB_MAX = 1 << 24,
    SHAPE_EXPERTS_MAX = 4096,
};

#define SHAPE_NAME_CAP 96
typedef struct model_shape {
    char name[SHAPE_NAME_CAP];
    uint32_t n_layers, n_q_heads, n_kv_heads, head_dim;
    uint32_t n_embd, n_ff, n_vocab;     /* n_ff: of one expert where there are experts; 0: not known */
    uint32_t n_ctx;                     /* tokens that it was trained for; 0: not known */
    uint32_t window, n_windowed;        /* n_windowed layers see the newest `window` tokens only; 0: none */
    uint32_t n_experts, n_experts_used; /* of a layer; 0: dense */
    uint32_t traits;                    /* TRAIT_ */

    uint64_t n_params;        /* 0: not known */
    uint64_t n_params_lookup; /* parameters of an embedding of which a step reads its tokens' rows only; 0 if tied */
    uint64_t n_params_expert; /* one expert's, in all layers; 0: dense */
} model_shape;

/* PLEAT_OK, or PLEAT_E_UNSUPPORTED if no page can hold such heads, or PLEAT_E_ARG for sizes that contradict each other;
 * err says which. */
pleat_status shape_check(const model_shape *shape, pleat_error *err);

/* Fill n_params, n_params_lookup and n_params_expert from the sizes, all of which must be known. */
void shape_count_params(model_shape *shape);

/* Layers that see a window only, where layers period, 2 period, ... (from 1) see everything; period >= 1. */
static inline uint32_t shape_windowed(uint32_t n_layers, uint32_t period) { return n_layers - n_layers / period; }

/* Tokens that all layers together store of n: those with a window at most its size. */
static inline uint64_t shape_layer_tokens(const model_shape *s, uint32_t n) {
    const uint32_t in_window = s->n_windowed && s->window < n ? s->window : n;
    return (uint64_t)(s->n_layers - s->n_windowed) * n + (uint64_t)s->n_windowed * in_window;
}

/* Set err and return its code. */
pleat_status shape_error(pleat_error *err, pleat_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define SHAPE_TRY(call)                                \
    do {                                               \
        const pleat_status try_status = (call);        \
        if (try_status != PLEAT_OK) return try_status; \
    } while (0)

#endif
