/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a loaded model is made of, shared by the files of src/model/ and by the engine.
 *
 *     pleat_model ─┬─ gguf: the mapped file; weights point into it
 *                  ├─ tokenizer
 *                  ├─ arch: the row of its architecture (arch.h)
 *                  ├─ ropes[n_ropes]: by how much positions turn heads; layers name theirs
 *                  └─ layers[n_layers] ── matrices (stored type, as in the file), and vectors (f32 copies)
 *
 * What a layer does not have is NULL, or a matrix of 0 rows.
 */
#ifndef PLEAT_MODEL_INTERNAL_H
#define PLEAT_MODEL_INTERNAL_H

#include "core/types.h"
#include "linear/matrix.h"
#include "model/arch.h"
#include "model/rope.h"
#include "pleat/model.h"

/* One matrix of each expert, all of one shape and type: expert e's is `first` with its data e*stride bytes further. */
typedef struct pleat__stack {
    pleat__matrix first;
    uint64_t stride;
} pleat__stack;

static inline pleat__matrix pleat__stack_at(const pleat__stack *stack, uint32_t e) {
    pleat__matrix m = stack->first;
    m.data += e * stack->stride;
    return m;
}

#define PLEAT__NO_ROPE UINT32_MAX
#define PLEAT__MAX_EXPERTS 1024u

typedef struct pleat__layer {
    const float *attn_norm;      /* [n_embd] */
    const float *ffn_norm;       /* [n_embd] */
    const float *q_norm;         /* [head_dim] */
    const float *k_norm;         /* [head_dim] */
    const float *post_attn_norm; /* [n_embd] of what attention adds */
    const float *post_ffn_norm;  /* [n_embd] of what the feed-forward adds */
    const float *biases[3];      /* of q, k and v: [rows] */
    const float *o_bias;         /* [n_embd] */
    const float *sinks;          /* [n_q_heads] */
    const float *router_bias;    /* [n_experts] */
    const float *gate_biases;    /* [n_experts][n_ff_expert] */
    const float *up_biases;      /* [n_experts][n_ff_expert] */
    const float *down_biases;    /* [n_experts][n_embd] */
    const float *shared_gate;    /* [n_embd] the shared expert counts times the sigmoid of its product with the row */
    pleat__matrix q, k, v, o;
    pleat__matrix gate, up, down; /* the feed-forward or the shared expert */
    pleat__matrix router;         /* [n_experts][n_embd] */
    pleat__stack gates, ups, downs;
    uint32_t window; /* newest tokens that attention sees; 0: all */
    uint32_t rope;   /* index of model->ropes, or PLEAT__NO_ROPE */
} pleat__layer;

typedef struct pleat__tokenizer pleat__tokenizer; /* tokenizer/tokenizer.h */

struct pleat_model {
    pleat_allocator al;
    pleat_gguf *gguf;
    pleat__tokenizer *tokenizer;
    pleat_model_info info;
    const pleat__arch *arch;
    uint32_t features; /* the row's, as this file has them: of split and fused forms one */
    char *name;        /* [name_bytes] general.name with its NUL; info.name */
    uint64_t name_bytes;

    pleat_chat_template *chat; /* the file's, or ChatML; NULL: there is none, for the reason in no_chat */
    bool has_own_chat;         /* the file brings one along, be it supported or not */
    pleat_error no_chat;

    float rms_eps;
    float embedding_scale; /* factor on embeddings */
    float residual_scale;  /* factor on what attention and feed-forward add */
    float logit_scale;     /* factor on logits */
    float logit_cap;       /* c, where logits end as c tanh(logit/c); 0: none */

    pleat__rope ropes[2]; /* of layers that see everything, and of those with a window where they differ */
    uint32_t n_ropes;

    uint32_t n_experts;      /* 0: none */
    uint32_t n_experts_used; /* by each token */
    uint32_t n_ff_expert;    /* rows of an expert's gate */
    uint32_t n_ff_shared;
    bool sums_experts_to_1;

    pleat__matrix embedding; /* [n_vocab][n_embd] */
    pleat__matrix output;    /* [n_vocab][n_embd]; embedding where the file has no output.weight */
    const float *output_norm;
    pleat__layer *layers; /* [n_layers] */

    float *norms; /* the f32 copies behind the vectors and ropes' factors */
    uint64_t n_norms;
};

/* The name of the first tensor in the file that holds NaN or infinity, NULL if none does.  Reads the whole file, with the
 * team (NULL: the caller's thread alone). */
const char *pleat__model_damaged_tensor(const pleat_model *model, pleat_workers *workers);

/* What a mapped file has in memory goes; what is read of it again, embeddings and vectors, comes back by itself.  For when
 * matrices have been packed, so that weights are held once; all at once, since pages come with their neighbours. */
void pleat__model_release(const pleat_model *model);

/* Compile the file's chat template, or ChatML.  One that is refused is no failure; m->no_chat has the reason. */
pleat_status pleat__model_load_chat(pleat_model *model, pleat_error *err);

#endif
