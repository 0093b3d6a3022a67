/* SPDX-License-Identifier: MIT
 *
 * codec.h: blocks of keys and values to bytes and back, outside a cache.  This is what `kvcomp` and `kivi` caches do to
 * their cold tokens, for programs that store or send them.
 *
 *     create ── train, or set_codebooks ──> encode (any number) ──> payload ──> decode
 *
 * A block is pleat_codec_block_tokens() tokens of one KV head: keys and values, rows of head_dim floats.  docs/FORMAT.md
 * says what each byte is.  Quantisation is error-bounded: values are clamped to +-65504, the largest f16, and every one
 * comes back within half its unit's step of that (KVComp, section 3.1.1).
 *
 * A payload is decoded by any codec of the same spec and head_dim with the same codebooks; to others it is no payload.
 * Codebooks are below 600 bytes, for all payloads.  Here, with k and v the first blocks:
 *
 *     pleat_codec_train(codec, k, v, n_blocks);
 *     pleat_codec_get_codebooks(codec, bytes, pleat_codec_codebooks_cap(codec), &n_bytes);
 *     ... store the spec's text, head_dim and the n_bytes of codebooks; then payloads from pleat_codec_encode()
 *
 * In another process, on another machine, or in a decoder of your own (tests/teach/decode.c is a short one):
 *
 *     pleat_codec_create(&spec, head_dim, NULL, &codec, &err);
 *     pleat_codec_set_codebooks(codec, bytes, n_bytes, &err);
 *     pleat_codec_decode(codec, payload, n_payload_bytes, k, v);
 *
 * A codec is used by one thread at a time; different codecs by any threads.  Only create allocates.
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

/* Tokens of a block.  These four are 0 without a codec. */
PLEAT_API uint32_t pleat_codec_block_tokens(const pleat_codec *codec);

/* Most bytes of a payload. */
PLEAT_API uint64_t pleat_codec_payload_cap(const pleat_codec *codec);

/* Bytes of both codebooks as they are held for decoding; 0 where the coder has none. */
PLEAT_API uint64_t pleat_codec_codebook_bytes(const pleat_codec *codec);

/* Most bytes of both codebooks as get_codebooks hands them out: 20 where the coder has none, else below 600. */
PLEAT_API uint64_t pleat_codec_codebooks_cap(const pleat_codec *codec);

/* Make the codebooks from these blocks: k and v [n_blocks][block tokens][head_dim].  n_blocks may be 0: all codes are
 * as likely.  Values that are not finite, or of 2^48 or more, are PLEAT_E_RANGE, here and in encode.  Payloads made
 * before cannot be decoded after, unless the codebooks come out the same. */
PLEAT_API pleat_status pleat_codec_train(pleat_codec *codec, const float *k, const float *v, uint32_t n_blocks);

/* Hand out the codebooks, as bytes (docs/FORMAT.md, section 9).  They name the format that they are for, in 20 bytes,
 * which is all there is with +pack and kivi.  The same codebooks are the same bytes always.  cap is
 * pleat_codec_codebooks_cap() at least, else PLEAT_E_ARG.  PLEAT_E_STATE before train or set_codebooks. */
PLEAT_API pleat_status pleat_codec_get_codebooks(const pleat_codec *codec, void *bytes, uint64_t cap,
                                                 uint64_t *n_bytes);

/* Take codebooks from anywhere, in place of train or of those that are there: payloads that were made with them can be
 * decoded, and encode makes such payloads.  What is damaged, cut or no codebooks at all is PLEAT_E_FORMAT, and so are
 * those of another spec or head_dim: err says what differs, and err->where is its offset in `bytes`.  What a reader
 * need not know may differ: `buffer`, and steps k and v that come to the same number of levels.  On an error the codec
 * keeps what it had.  err may be NULL; `bytes` is not needed afterwards. */
PLEAT_API pleat_status pleat_codec_set_codebooks(pleat_codec *codec, const void *bytes, uint64_t n_bytes,
                                                 pleat_error *err);

/* Compress one block to `payload`.  cap >= pleat_codec_payload_cap(), else PLEAT_E_ARG.  PLEAT_E_STATE before train or
 * set_codebooks, here and below. */
PLEAT_API pleat_status pleat_codec_encode(pleat_codec *codec, const float *k, const float *v, void *payload,
                                          uint64_t cap, uint64_t *n_bytes);

/* Decode a payload from anywhere: what is not one, is damaged, or belongs to other codebooks or another format is
 * PLEAT_E_FORMAT, and nothing is written.  k and v [block tokens][head_dim]; either may be NULL. */
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

/* Shannon's bound for the codes that train() counted, in bits a code; 0 without a codec or after set_codebooks(). */
PLEAT_API void pleat_codec_entropy(const pleat_codec *codec, double *k_bits, double *v_bits);

#ifdef __cplusplus
}
#endif
#endif
