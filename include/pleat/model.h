/* SPDX-License-Identifier: MIT
 *
 * model.h: a GGUF file, the model in it, its tokenizer and chat form, and samplers.
 *
 * A pleat_gguf is a checked view of a file: any well-formed GGUF opens.  A pleat_model is a GGUF that Pleat can run: of
 * an architecture of pleat_model_info.  Its tensors are in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K,
 * Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4.  Its tokenizer is of one of these kinds:
 *
 *     llama    SentencePiece with scores, as of Llama 2, Mistral, Gemma 1 to 3, Phi-3
 *     gemma4   byte-pair merges of characters
 *     gpt2     byte-pair merges of bytes, with one of the pre-tokenizers in src/tokenizer/expressions.c, as of GPT-2,
 *              Llama 3, Qwen 2 to 3.5, SmolLM, StarCoder, DeepSeek, Falcon, Command R, GPT-4o, Tekken
 *
 * Anything else is refused by name, since a guess would change tokens silently.
 *
 * Files are mapped read-only, and stay mapped while the object lives.  A file that is shortened meanwhile ends the
 * process (SIGBUS), so replace a model by renaming a new file over it.  All objects here are immutable after creation
 * and may be read from any thread, samplers excepted.
 */
#ifndef PLEAT_MODEL_H
#define PLEAT_MODEL_H

#include "pleat/chat.h"
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

/* Item `i` of an array of unsigned integers or truth values (0 and 1) by key; PLEAT_E_ARG if there is none. */
PLEAT_API pleat_status pleat_gguf_get_item(const pleat_gguf *gguf, const char *key, uint64_t i, uint64_t *out);

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

/* Architectures: gemma2, gemma3, gpt-oss, granite, llama (Llama 2 and 3, Mistral, Mixtral, SmolLM2, TinyLlama), phi3,
 * qwen2, qwen2moe, qwen3, qwen3moe, smollm3. */
typedef struct pleat_model_info {
    const char *architecture;
    const char *name; /* general.name, or "" */
    uint32_t n_layers, n_embd, n_ff, n_vocab;
    uint32_t n_q_heads, n_kv_heads, head_dim;
    uint32_t n_ctx;  /* context the model was trained for, tokens */
    uint32_t window; /* newest tokens that attention sees in n_windowed layers; 0: all in every layer */
    uint32_t n_windowed;
    float softmax_scale;  /* factor on q.k */
    float attn_logit_cap; /* c, where attention's logits become c tanh(x/c) before the softmax; 0: they stay */
    uint64_t n_params;
    uint64_t weight_bytes;
    pleat_token bos, eos; /* -1 when the file names none */
    int add_bos;          /* 1: tokenize puts bos in front when asked to add special tokens */
    int add_eos;          /* 1: likewise eos behind */
} pleat_model_info;

PLEAT_API pleat_status pleat_model_load(const char *path, const pleat_allocator *allocator, pleat_model **out,
                                        pleat_error *err);

/* Like pleat_model_load(), but on a GGUF of `n_bytes` bytes in memory, at an address that is a multiple of 64, which the
 * caller keeps until pleat_model_destroy().  They are not copied. */
PLEAT_API pleat_status pleat_model_load_memory(const void *bytes, size_t n_bytes, const pleat_allocator *allocator,
                                               pleat_model **out, pleat_error *err);

PLEAT_API void pleat_model_get_info(const pleat_model *model, pleat_model_info *out);

/* Newest tokens that attention sees in layer 0..n_layers-1, the query's own included; 0: all. */
PLEAT_API uint32_t pleat_model_layer_window(const pleat_model *model, uint32_t layer);

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
#define PLEAT_TOKENIZE_ADD_EOS 0x4u /* put eos behind if the model asks for it (info.add_eos); not for prompts */

/* Text (n_bytes of UTF-8) to tokens.  Writes at most `cap` ids and sets *n_tokens to the number that the whole text
 * has.  When that is more than cap, returns PLEAT_E_LIMIT with *n_tokens set and ids[0..cap) written, so cap = 0 with
 * ids = NULL asks for the count.  Invalid UTF-8 is PLEAT_E_SYNTAX, err->where its offset; after other errors what ids
 * holds is unspecified.  There is no normalisation: a detokenizer makes the text again, but for what the models' own
 * tokenizers lose too.  With `llama` and `gemma4` U+2581 becomes a space; with `gpt2` a byte that has no token, as
 * control characters in some vocabularies, is left out; Phi-3's special tokens swallow the whitespace behind them.
 * Special tokens are found from left to right, the longest at each place; user-defined ones even without
 * PLEAT_TOKENIZE_SPECIAL.  O(n log n).  From any thread; its scratch comes from the model's allocator, which has to be
 * thread-safe then. */
PLEAT_API pleat_status pleat_model_tokenize(const pleat_model *model, const char *text, size_t n_bytes, uint32_t flags,
                                            pleat_token *ids, uint32_t cap, uint32_t *n_tokens, pleat_error *err);

/* The bytes of one token, as they stand in the text; special tokens are their names.  The bytes of one
 * token need not be valid UTF-8.  Not NUL-terminated; lives as long as the model.  NULL for a bad id, or when n_bytes
 * is NULL. */
PLEAT_API const char *pleat_model_token_text(const pleat_model *model, pleat_token id, size_t *n_bytes);

/* 1 for control tokens, as bos, eos, <|im_end|>, and for the unknown token; else 0. */
PLEAT_API int pleat_model_token_is_special(const pleat_model *model, pleat_token id);

/* 1 if the token ends a turn or a document: those that the file names so (eos_token_id, eot_token_id, eom_token_id), and
 * special ones with a name that models use for it, as <|im_end|>, <|eot_id|>, <|endoftext|>, <end_of_turn>; else 0. */
PLEAT_API int pleat_model_token_is_end(const pleat_model *model, pleat_token id);

/* Tokens to text, one at a time.  A token may end in the middle of a character, and nothing forces what a model
 * generates to be UTF-8.  So a detokenizer holds back the head of an unfinished character until its rest arrives, and
 * puts U+FFFD in place of each run of bytes that can become none (Unicode 15, section 3.9, substitution of maximal
 * subparts).  Where tokenizing puts a space in front (`llama`), the one at the text's beginning and behind a special
 * token is taken away again.
 *
 *     pleat_detokenizer_init ──> pleat_detokenizer_put, for each token ──> pleat_detokenizer_end
 *
 * It is the caller's, holds no memory and may be copied, so a text can be forked; its fields are not to be used. */
typedef struct pleat_detokenizer {
    const pleat_model *model; /* outlives it */
    uint32_t flags;           /* PLEAT_DETOKENIZE_* */
    uint32_t n_held;
    char held[4];   /* [n_held] head of an unfinished character */
    int skip_space; /* the next token's leading space is none of the text's */
} pleat_detokenizer;

#define PLEAT_DETOKENIZE_SPECIAL 0x1u /* show special tokens as their names; else they are skipped */
#define PLEAT_DETOKENIZE_MIDDLE 0x2u  /* the first token goes on from others: its leading space stays */

/* Room for the text that a token of n bytes makes: each of them and of the held ones may become U+FFFD. */
#define PLEAT_DETOKENIZER_CAP(n) (3 * ((size_t)(n) + 4))

/* PLEAT_E_ARG for NULL or unknown flags. */
PLEAT_API pleat_status pleat_detokenizer_init(pleat_detokenizer *detokenizer, const pleat_model *model, uint32_t flags);

/* Take the next token.  Writes what is complete, valid UTF-8 without a NUL behind it, and sets *n_bytes to its length,
 * which may be 0.  PLEAT_E_ARG for a bad id; PLEAT_E_LIMIT when it is more than cap: *n_bytes is set and nothing else
 * has changed, so a longer text can be tried. */
PLEAT_API pleat_status pleat_detokenizer_put(pleat_detokenizer *detokenizer, pleat_token id, char *text, size_t cap,
                                             size_t *n_bytes);

/* Nothing follows: an unfinished character becomes U+FFFD.  Otherwise like pleat_detokenizer_put(); cap 3 suffices.
 * Another text may follow. */
PLEAT_API pleat_status pleat_detokenizer_end(pleat_detokenizer *detokenizer, char *text, size_t cap, size_t *n_bytes);

/* ---- conversations (pleat/chat.h) ------------------------------------------------------------- */

/* Whether conversations can be written: PLEAT_OK, or the status and reason that pleat_model_chat() would have.  A file
 * whose template is refused loads all the same.  *is_own (may be NULL) is 1 where the file brings a template along, and 0
 * where it has none, so that ChatML is used. */
PLEAT_API pleat_status pleat_model_chat_check(const pleat_model *model, int *is_own, pleat_error *err);

/* The text of the file's own chat template, [n_bytes] without a NUL behind it; lives as long as the model.  NULL where the
 * file has none. */
PLEAT_API const char *pleat_model_chat_template(const pleat_model *model, size_t *n_bytes);

/* Write the conversation by the model's own chat template, or in ChatML where the file has none but its vocabulary has
 * <|im_start|> and <|im_end|>, ready for the assistant's turn.  The text is to be tokenized with
 * PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_BOS: so where the model asks for a bos, one that the template puts in front
 * is left out of it.
 *
 * *n_bytes is set to the length without the NUL even when `cap` is too small (PLEAT_E_LIMIT, nothing written).  Some
 * templates make up a system turn or name the date.  Contents go in as they are, special tokens spelled out in them
 * included: pleat/chat.h says what that means.  Some templates cut off blanks around them.  PLEAT_E_ARG for another role,
 * and where the template refuses the conversation, as for two user turns in a row.  PLEAT_E_UNSUPPORTED when the model has
 * no chat form or a template that is not supported.  PLEAT_E_SYNTAX when its template is damaged or a content is not
 * UTF-8. Memory as for pleat_chat_template_render(). */
PLEAT_API pleat_status pleat_model_chat(const pleat_model *model, const pleat_chat_message *messages,
                                        uint32_t n_messages, char *text, size_t cap, size_t *n_bytes, pleat_error *err);

/* Like pleat_chat_template_render() with the model's template, for messages with tool calls, tools and other variables.
 * bos_token, eos_token, unk_token and pad_token are the model's, where it has them and the JSON does not.  The text is as
 * the template writes it, its bos included, and is to be tokenized with PLEAT_TOKENIZE_SPECIAL, and with
 * PLEAT_TOKENIZE_ADD_BOS where it does not begin with that bos. */
PLEAT_API pleat_status pleat_model_chat_json(const pleat_model *model, const char *json, size_t n_json,
                                             const pleat_chat_options *opt, char *text, size_t cap, size_t *n_bytes,
                                             pleat_error *err);

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

/* A token, and the natural logarithm of its probability. */
typedef struct pleat_logprob {
    pleat_token token;
    float logprob; /* <= 0; -inf for a logit of -inf */
} pleat_logprob;

#define PLEAT_LOGPROBS_MAX 20 /* most of the likeliest that can be asked for */

/* Logarithms of probabilities: those of the softmax over logits [n_vocab].  out[0] is `token`'s, out[1..n_top] are those of
 * the n_top likeliest, the likeliest first and the lower id among equals; 0 <= n_top <= PLEAT_LOGPROBS_MAX and n_vocab.
 * Equal logits give the same floats, whatever the token and n_top: so a token has the same one in out[0] and among the
 * likeliest.  Within 1e-6 of the exact value, or 1e-7 of its size where that is more.  PLEAT_E_ARG for what is outside its
 * range, and where a logit is NaN or +inf, or all are -inf.  O(n_vocab); from any thread. */
PLEAT_API pleat_status pleat_logprobs(const float *logits, uint32_t n_vocab, pleat_token token, uint32_t n_top,
                                      pleat_logprob *out);

#ifdef __cplusplus
}
#endif
#endif
