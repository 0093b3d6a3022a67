/* SPDX-License-Identifier: MIT
 *
 * internal.h: what a loaded model is made of, shared by the files of src/model/ and by the engine.
 *
 *     pleat_model ─┬─ gguf: the mapped file; weights point into it
 *                  ├─ tokenizer
 *                  └─ layers[n_layers] ── matrices (stored type, as in the file) and norms (f32 copies)
 */
#ifndef PLEAT_MODEL_INTERNAL_H
#define PLEAT_MODEL_INTERNAL_H

#include "core/types.h"
#include "linear/matrix.h"
#include "pleat/model.h"

typedef struct pleat__layer {
    const float *attn_norm; /* [n_embd] */
    const float *ffn_norm;  /* [n_embd] */
    pleat__matrix q, k, v, o;
    pleat__matrix gate, up, down;
} pleat__layer;

typedef struct pleat__tokenizer pleat__tokenizer; /* tokenizer/tokenizer.h */

struct pleat_model {
    pleat_allocator al;
    pleat_gguf *gguf;
    pleat__tokenizer *tokenizer;
    pleat_model_info info;
    char *name; /* [name_bytes] general.name with its NUL; info.name */
    uint64_t name_bytes;

    pleat_chat_template *chat; /* the file's, or ChatML; NULL: there is none, for the reason in no_chat */
    bool has_own_chat;         /* the file brings one along, be it supported or not */
    pleat_error no_chat;

    float rms_eps;
    float rope_base;
    uint32_t rope_dims;        /* dimensions of a head that RoPE turns: the first ones, in pairs (2i, 2i+1) */
    const float *rope_factors; /* [rope_dims/2] divisors of the frequencies (rope_freqs.weight), or NULL */

    pleat__matrix embedding; /* [n_vocab][n_embd] */
    pleat__matrix output;    /* [n_vocab][n_embd]; embedding where the file has no output.weight */
    const float *output_norm;
    pleat__layer *layers; /* [n_layers] */

    float *norms; /* the f32 copies behind the norm pointers and rope_factors */
    uint64_t n_norms;
};

/* The name of the first tensor in the file that holds NaN or infinity, NULL if none does.  Reads the whole file, with the
 * team (NULL: the caller's thread alone). */
const char *pleat__model_damaged_tensor(const pleat_model *model, pleat_workers *workers);

/* Compile the file's chat template, or ChatML.  One that is refused is no failure; m->no_chat has the reason. */
pleat_status pleat__model_load_chat(pleat_model *model, pleat_error *err);

#endif
