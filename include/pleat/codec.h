/* SPDX-License-Identifier: MIT
 *
 * codec.h: blocks of keys and values to bytes and back, outside a cache.  This is what `kvcomp` and `kivi` caches do to
 * their cold tokens, for programs that store or send them.
 *
 *     create ── train (once) ──> encode (any number) ──> payload ──> decode
 *
 * A block is pleat_codec_block_tokens() tokens of one KV head: keys and values, rows of head_dim floats.  A payload can
 * be decoded by a codec of the same spec and head_dim that was trained with the same tokens.  docs/FORMAT.md says what
 * each byte is.  Quantisation is error-bounded: values are clamped to +-65504, the largest f16, and every one comes
 * back within half its unit's step of that (KVComp, section 3.1.1).
 *
 * Codebooks are not handed out: who decodes elsewhere trains a codec with the same blocks.
 *
 * A codec is used by one thread at a time.
 */
#ifndef PLEAT_CODEC_H
#define PLEAT_CODEC_H

#include "pleat/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_codec pleat_codec;

/* spec: kvcomp or kivi; head_dim a multiple of 16, 16..512; allocator may be NULL.  PLEAT_E_ARG, PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_codec_create(const pleat_spec *spec, uint32_t head_dim, const pleat_allocator *allocator,
                                          pleat_codec **out, pleat_error *err);
PLEAT_API void pleat_codec_destroy(pleat_codec **codec);

/* Tokens of a block.  These three are 0 without a codec. */
PLEAT_API uint32_t pleat_codec_block_tokens(const pleat_codec *codec);

/* Most bytes of a payload. */
PLEAT_API uint64_t pleat_codec_payload_cap(const pleat_codec *codec);

/* Bytes of both codebooks as they are held for decoding; 0 where the coder has none. */
PLEAT_API uint64_t pleat_codec_codebook_bytes(const pleat_codec *codec);

/* Make the codebooks from these blocks: k and v [n_blocks][block tokens][head_dim].  n_blocks may be 0: all codes are
 * as likely.  Values that are not finite, or of 2^48 or more, are PLEAT_E_RANGE, here and in encode.  Payloads made
 * before cannot be decoded after. */
PLEAT_API pleat_status pleat_codec_train(pleat_codec *codec, const float *k, const float *v, uint32_t n_blocks);

/* Compress one block to `payload`.  cap >= pleat_codec_payload_cap(), else PLEAT_E_ARG.  PLEAT_E_STATE before train. */
PLEAT_API pleat_status pleat_codec_encode(pleat_codec *codec, const float *k, const float *v, void *payload,
                                          uint64_t cap, uint64_t *n_bytes);

/* Decode a payload from anywhere: what is not one, or is damaged, is PLEAT_E_FORMAT.  PLEAT_E_STATE before train.  k
 * and v [block tokens][head_dim]; either may be NULL. */
PLEAT_API pleat_status pleat_codec_decode(pleat_codec *codec, const void *payload, uint64_t n_bytes, float *k,
                                          float *v);

/* What kind of bytes a payload is made of. */
typedef struct pleat_codec_parts {
    uint64_t header_bytes;
    uint64_t k_unit_bytes, v_unit_bytes; /* minimums and steps */
    uint64_t order_bytes;
    uint64_t k_code_bytes, v_code_bytes;
} pleat_codec_parts;

/* Of a payload that this codec made; the sum is not checked. */
PLEAT_API pleat_status pleat_codec_get_parts(const pleat_codec *codec, const void *payload, uint64_t n_bytes,
                                             pleat_codec_parts *out);

/* The two halves of encoding and decoding by themselves, for measuring.  Codes are keys', then values', each
 * block_tokens * head_dim bytes in the order in which they are coded (docs/FORMAT.md, vectors).  encode_codes makes a
 * payload of codes below the levels, with the minimums, steps and order of the block that was quantised last.  Decoding
 * takes up to PLEAT_CODEC_AT_ONCE payloads, whose streams are decoded side by side; they must have PLEAT_CODEC_PAD
 * readable bytes behind them, and codes[i] is aligned to 64 bytes.  Sums are not checked. */
#define PLEAT_CODEC_AT_ONCE 4
#define PLEAT_CODEC_PAD 64
PLEAT_API pleat_status pleat_codec_quantise(pleat_codec *codec, const float *k, const float *v, uint8_t *codes);
PLEAT_API pleat_status pleat_codec_encode_codes(pleat_codec *codec, const uint8_t *codes, void *bytes, uint64_t cap,
                                                uint64_t *n_bytes);
PLEAT_API pleat_status pleat_codec_decode_codes(pleat_codec *codec, const void *const *payloads,
                                                const uint64_t *n_bytes, uint32_t n, uint8_t *const *codes);

/* Shannon's bound for the codes that train() counted, in bits a code; 0 without a codec. */
PLEAT_API void pleat_codec_entropy(const pleat_codec *codec, double *k_bits, double *v_bits);

#ifdef __cplusplus
}
#endif
#endif
