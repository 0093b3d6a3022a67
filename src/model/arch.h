/* SPDX-License-Identifier: MIT
 *
 * arch.h: architectures as a table: what a file of each calls its numbers, which tensors its layers have, and which
 * steps of the one forward pass (pass.h) they ask for.
 *
 *     general.architecture ── pleat__arch_find() ── row ─┬─ name: prefix of the file's keys      hparams.c, rope.c
 *                                                        ├─ has, may_have: tensors of a layer    load.c
 *                                                        └─ all else: constants of the pass      hparams.c
 *
 * A row stands in a file of its own, arch/NAME.c, with the source of its constants.  A new architecture is such a file,
 * a line in arch.c, and a tiny model with transformers' logits in tests/golden.  What a row does not name is refused by
 * the loader: tensors that nobody read, and keys that change a result and are not obeyed.
 */
#ifndef PLEAT_MODEL_ARCH_H
#define PLEAT_MODEL_ARCH_H

#include "core/types.h"
#include "gguf/gguf.h"

/* What a layer, a file or the pass has; bits.  The loader's table (load.c) names the tensors of each. */
enum {
    PLEAT__CORE = 1u << 0,           /* a norm before attention, and Wo: every layer */
    PLEAT__SPLIT_QKV = 1u << 1,      /* Wq, Wk, Wv; unless the file has them fused */
    PLEAT__FUSED_QKV = 1u << 2,      /* their rows in one matrix, in this order */
    PLEAT__SPLIT_FFN = 1u << 3,      /* gate, up, down; unless the layer has experts */
    PLEAT__FUSED_FFN = 1u << 4,      /* rows of gate and up in one matrix, in this order */
    PLEAT__QKV_BIAS = 1u << 5,       /* added to q, k, v */
    PLEAT__O_BIAS = 1u << 6,         /* added to what attention adds */
    PLEAT__QK_NORM = 1u << 7,        /* RMSNorm of each head of q and k, before it is turned */
    PLEAT__POST_NORM = 1u << 8,      /* RMSNorm of what attention and the feed-forward add */
    PLEAT__EXPERTS = 1u << 9,        /* a router and experts in place of the feed-forward */
    PLEAT__SHARED_EXPERT = 1u << 10, /* one more, which every token takes, times a sigmoid */
    PLEAT__ROPE_FREQS = 1u << 11,    /* divisors of RoPE's frequencies (llama3) */
    PLEAT__ROPE_LONG = 1u << 12,     /* such for short and for long contexts (longrope) */
    PLEAT__SCALES = 1u << 13,        /* keys embedding_scale, residual_scale, attention.scale, logit_scale */
    PLEAT__LOGIT_CAP = 1u << 14,     /* key final_logit_softcapping */
    PLEAT__ATTN_CAP = 1u << 15,      /* key attn_logit_softcapping */
    PLEAT__FFN_NORM = 1u << 16,      /* a norm before the feed-forward, by its own name ... */
    PLEAT__FFN_NORM_POST = 1u << 17, /* ... or by post_attention_norm's */
    PLEAT__SINKS = 1u << 18,         /* a logit of each query head without a token */
    PLEAT__EXPERT_BIAS = 1u << 19,   /* of the router and of each expert's gate, up and down */

    PLEAT__PLAIN = PLEAT__CORE | PLEAT__FFN_NORM,
};

#define PLEAT__ALL_WINDOWED UINT32_MAX /* a window_period: no layer sees everything */

typedef struct pleat__arch {
    const char *name;
    uint32_t has;           /* features of every file; their tensors have to be there */
    uint32_t may_have;      /* features of a file that has the tensors */
    bool rope_halves;       /* RoPE turns pairs (i, i + n/2); false: (2i, 2i+1), to which converters permute Wq, Wk */
    bool is_gelu;           /* gelu(gate) * up, by tanh; false: silu */
    bool is_clipped;        /* gate and up are bounded, as ops.h's swiglu_clipped has it; with EXPERT_BIAS alone */
    bool is_smooth_yarn;    /* yarn's first and last pairs are fractions, not whole */
    bool embeds_by_sqrt;    /* embeddings times sqrt(n_embd) */
    bool sums_experts_to_1; /* weights of the chosen experts are divided by their sum */
    uint32_t rope_skip;     /* layers rope_skip-1, 2*rope_skip-1, ... have no RoPE; 0: all have */
    uint32_t window_period; /* of every so many layers the last sees everything, others a window; 0: no key of a window
                               * is obeyed */
    uint32_t window;        /* where the file has no key of one; 0: none */
    float logit_cap;        /* of the output, where the file names none; 0: none */
    float attn_logit_cap;   /* of attention, where the file names none; 0: none */
    float window_rope_base; /* RoPE's base, unscaled, in layers with a window where the file names none; 0: as others */
    uint32_t
        by_width_layers; /* models of so many layers scale q.k by 1/sqrt(n_embd/n_q_heads), not head_dim; 0: none */
} pleat__arch;

/* NULL if there is none. */
const pleat__arch *pleat__arch_find(pleat__str name);

/* The names of those that run, for a message: "gemma3, granite, ...".  Cut to cap - 1 bytes. */
const char *pleat__arch_names(char *text, size_t cap);

extern const pleat__arch pleat__arch_llama, pleat__arch_qwen2, pleat__arch_qwen2moe, pleat__arch_qwen3,
    pleat__arch_qwen3moe, pleat__arch_gemma2, pleat__arch_gemma3, pleat__arch_phi3, pleat__arch_smollm3,
    pleat__arch_granite, pleat__arch_gpt_oss;

#endif
