/* SPDX-License-Identifier: MIT
 *
 * model.h: a GGUF file, the model in it, its tokenizer and chat form, and samplers.
 *
 * A pleat_gguf is a checked view of a file: any well-formed GGUF opens.  A pleat_model is a GGUF that Pleat can run:
 * architecture `llama`, tensors in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
 * IQ4_XS or MXFP4, tokenizer `gpt2` with the pre-tokenizer `qwen2` or `llama-bpe`.  Anything else is refused by name, since a guess would change tokens silently.
 *
 * Files are mapped read-only, and stay mapped while the object lives.  A file that is shortened meanwhile ends the
 * process (SIGBUS), so replace a model by renaming a new file over it.  All objects here are immutable after creation
 * and may be read from any thread, samplers excepted.
 */
#ifndef PLEAT_MODEL_H
#define PLEAT_MODEL_H

#include "pleat/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t pleat_token; /* a token id, 0..n_vocab-1 */

/* ---- GGUF ---------------------------------------------------------------------------------- */

typedef struct pleat_gguf pleat_gguf;

/* Open and check a GGUF file (version 2 or 3, little-endian).  Every count, size and offset is checked against the
 * file before it is used; on PLEAT_E_FORMAT err->where is the offset at fault. */
PLEAT_API pleat_status pleat_gguf_open(const char *path, const pleat_allocator *allocator, pleat_gguf **out,
                                       pleat_error *err);

/* Like pleat_gguf_open(), but on `n_bytes` bytes in memory, which the caller keeps until pleat_gguf_close(). */
PLEAT_API pleat_status pleat_gguf_open_memory(const void *bytes, size_t n_bytes, const pleat_allocator *allocator,
                                              pleat_gguf **out, pleat_error *err);

typedef struct pleat_gguf_info {
    uint32_t version;
    uint64_t file_bytes;
    uint64_t n_metadata;
    uint64_t n_tensors;
    uint64_t n_params; /* elements over all tensors */
} pleat_gguf_info;
PLEAT_API void pleat_gguf_get_info(const pleat_gguf *gguf, pleat_gguf_info *out);

/* Print metadata entry `i` (0..n_metadata-1) as key and value text.  Numbers are decimal, strings as they are, arrays
 * "[8192 strings]" or their elements when few.  Cut to the capacities, always NUL-terminated. PLEAT_E_ARG for i out of
 * range or a cap of 0. */
PLEAT_API pleat_status pleat_gguf_metadata(const pleat_gguf *gguf, uint64_t i, char *key, size_t key_cap, char *value,
                                           size_t value_cap);

/* An unsigned integer metadata value by key; PLEAT_E_ARG if absent or of another kind. */
PLEAT_API pleat_status pleat_gguf_get_u64(const pleat_gguf *gguf, const char *key, uint64_t *out);

typedef struct pleat_gguf_tensor {
    const char *name;      /* NUL-terminated; lives as long as the gguf */
    const char *type_name; /* "Q8_0", ...; "type 99" for one that Pleat cannot name */
    uint32_t n_dims;       /* 1..4 */
    uint64_t dims[4];      /* dims[0] is contiguous; unused ones are 1 */
    uint64_t n_bytes;      /* 0 for such a type */
} pleat_gguf_tensor;
PLEAT_API pleat_status pleat_gguf_get_tensor(const pleat_gguf *gguf, uint64_t i, pleat_gguf_tensor *out);

PLEAT_API void pleat_gguf_close(pleat_gguf **gguf);

/* ---- model --------------------------------------------------------------------------------- */

typedef struct pleat_model pleat_model;

typedef struct pleat_model_info {
    const char *architecture; /* "llama" */
    const char *name;         /* general.name, or "" */
    uint32_t n_layers, n_embd, n_ff, n_vocab;
    uint32_t n_q_heads, n_kv_heads, head_dim;
    uint32_t n_ctx;  /* context the model was trained for, tokens */
    uint32_t window; /* newest tokens that attention sees in every layer; 0: all */
    uint64_t n_params;
    uint64_t weight_bytes;
    pleat_token bos, eos; /* -1 when the file names none */
    int add_bos;          /* 1: tokenize puts bos in front when asked to add special tokens */
} pleat_model_info;

PLEAT_API pleat_status pleat_model_load(const char *path, const pleat_allocator *allocator, pleat_model **out,
                                        pleat_error *err);
PLEAT_API void pleat_model_get_info(const pleat_model *model, pleat_model_info *out);
PLEAT_API void pleat_model_destroy(pleat_model **model);

/* Write 32 hexadecimal digits and a NUL that stand for what the model computes.  They are 128 bits of XXH3 over its
 * shape and constants and, for each tensor in the order of names, the name, type, dimensions, and its first and last 64
 * KiB. The same on every machine; copies of a file have the same, and so has one with another name, chat template or
 * order of tensors.  Models whose tensors differ only further inside have the same, and so may those that somebody made
 * to. Reads from the file; allocates nothing.  From any thread. */
#define PLEAT_FINGERPRINT_CAP 33
PLEAT_API pleat_status pleat_model_fingerprint(const pleat_model *model, char out[PLEAT_FINGERPRINT_CAP]);

/* ---- text and tokens ------------------------------------------------------------------------- */

#define PLEAT_TOKENIZE_ADD_BOS 0x1u /* put bos in front if the model asks for it (info.add_bos) */
#define PLEAT_TOKENIZE_SPECIAL 0x2u /* read special tokens spelled out in the text, as <|im_end|> */

/* Text (n_bytes of UTF-8) to tokens.  Writes at most `cap` ids and sets *n_tokens to the number that the whole text
 * has.  When that is more than cap, returns PLEAT_E_LIMIT with *n_tokens set and ids[0..cap) written, so cap = 0 with
 * ids = NULL asks for the count.  Invalid UTF-8 is PLEAT_E_SYNTAX, err->where its offset; after other errors what ids
 * holds is unspecified.  There is no normalisation: the tokens' bytes, joined, are the text again.  Special tokens are
 * found from left to right, the longest at each place; user-defined ones even without PLEAT_TOKENIZE_SPECIAL.
 * O(n log n).  From any thread; its scratch comes from the model's allocator, which has to be thread-safe then. */
PLEAT_API pleat_status pleat_model_tokenize(const pleat_model *model, const char *text, size_t n_bytes, uint32_t flags,
                                            pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err);

/* The bytes of one token, as they stand in the text; special tokens are their names.  The bytes of one
 * token need not be valid UTF-8.  Not NUL-terminated; lives as long as the model.  NULL for a bad id, or when n_bytes
 * is NULL. */
PLEAT_API const char *pleat_model_token_text(const pleat_model *model, pleat_token id, size_t *n_bytes);

/* 1 for control tokens, as bos, eos, <|im_end|>; else 0. */
PLEAT_API int pleat_model_token_is_special(const pleat_model *model, pleat_token id);

/* 1 if the token ends a turn or a document: eos, and the tokens named <|eos|>, <|im_end|>, <|eot_id|>,
 * <|endoftext|>, <|end_of_text|>; else 0. */
PLEAT_API int pleat_model_token_is_end(const pleat_model *model, pleat_token id);

/* One message of a conversation. */
typedef struct pleat_chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} pleat_chat_message;

/* Write the conversation in the model's chat form (ChatML), ready for the assistant's turn, to be tokenized with
 * PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_BOS.  *n_bytes is set to the length without the NUL even when `cap` is
 * too small (PLEAT_E_LIMIT, nothing written).  No system turn is made up.  Contents go in as they are, special tokens
 * spelled out in them included.  PLEAT_E_ARG for another role; PLEAT_E_UNSUPPORTED when the model has another chat form
 * or none. */
PLEAT_API pleat_status pleat_model_chat(const pleat_model *model, const pleat_chat_message *messages,
                                        uint32_t n_messages, char *text, size_t cap, size_t *n_bytes, pleat_error *err);

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct pleat_sampler pleat_sampler;

/* Applied in this order, as in llama.cpp: top_k, top_p, min_p, temperature, draw. */
typedef struct pleat_sampler_options {
    size_t size_bytes;
    float temperature; /* 0: greedy, the lowest id among equals; else > 0; default 0 */
    uint32_t top_k;    /* keep the k likeliest; 0: all; default 40 */
    float top_p;       /* keep the likeliest until their probability passes p, 0 < p <= 1; default 0.95 */
    float min_p;       /* keep those with at least min_p times the likeliest's probability, 0..1; default 0.05 */
    uint64_t seed;     /* same seed, same logits: same tokens, on every machine; default 1 */
} pleat_sampler_options;

PLEAT_API void pleat_sampler_options_default(pleat_sampler_options *opt);
PLEAT_API pleat_status pleat_sampler_create(const pleat_sampler_options *opt, uint32_t n_vocab,
                                            const pleat_allocator *allocator, pleat_sampler **out, pleat_error *err);
/* Draw a token from logits [n_vocab].  PLEAT_E_ARG if any is NaN or all are -inf. */
PLEAT_API pleat_status pleat_sampler_sample(pleat_sampler *sampler, const float *logits, pleat_token *out);
PLEAT_API void pleat_sampler_destroy(pleat_sampler **sampler);

#ifdef __cplusplus
}
#endif
#endif
