/* SPDX-License-Identifier: MIT
 *
 * spec.h: the KV spec: one short text names every way to keep a cache.
 *
 *     spec   = stage *( "+" stage )
 *     stage  = name [ ":" key "=" value *( "," key "=" value ) ]
 *
 *     f32  f16                               uncompressed pages
 *     k8v8 k8v4 k8v2 k4v8 k4v4 k4v2 k2v8 k2v4 k2v2
 *                                            every token's key at X and value at Y bits, per-token
 *                                            asymmetric: x' = scale*code + min, scale and min in f16
 *
 * Names are lower case.  The text is parsed here and nowhere else; every command's --kv is one.
 */
#ifndef PLEAT_SPEC_H
#define PLEAT_SPEC_H

#include "pleat/common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How one token's key and value are stored.  Either both 32, both 16, or each of 8, 4, 2. */
typedef struct pleat_format {
    uint8_t k_bits;
    uint8_t v_bits;
} pleat_format;

/* A parsed spec.  Plain data: copy it, compare pleat_spec_print()'s text. */
typedef struct pleat_spec {
    pleat_format high; /* format of the high side; with a uniform spec the only one */
} pleat_spec;

#define PLEAT_SPEC_TEXT_CAP 256 /* bytes that hold any canonical spec with its NUL */

/* Parse `text` (NUL-terminated).  On PLEAT_E_SYNTAX err->where is the position (bytes from the start)
 * of the word at fault and err->text names it, the allowed words and the nearest of them.
 * err may be NULL. */
PLEAT_API pleat_status pleat_spec_parse(const char *text, pleat_spec *out, pleat_error *err);

/* The spec that llama.cpp's -ctk and -ctv name: f32, f16, q8_0 and q4_0.  A pair that mixes an
 * uncompressed and a compressed type is PLEAT_E_UNSUPPORTED: Pleat's pages hold both or neither. */
PLEAT_API pleat_status pleat_spec_from_cache_types(const char *ctk, const char *ctv, pleat_spec *out, pleat_error *err);

/* Write the canonical text of `spec`: parsing it gives an equal spec, and equal specs give equal
 * texts.  cap >= PLEAT_SPEC_TEXT_CAP, else PLEAT_E_ARG; also for a spec that no text can name. */
PLEAT_API pleat_status pleat_spec_print(const pleat_spec *spec, char *buf, size_t cap);

/* Bytes that one token takes in one lane, without page slack and tables: codes and scale and
 * minimum of key and value.  head_dim > 0.  f16 is 4*head_dim.  0 for an invalid format. */
PLEAT_API uint64_t pleat_format_token_bytes(pleat_format format, uint32_t head_dim);

#ifdef __cplusplus
}
#endif
#endif
