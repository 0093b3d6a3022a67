/* SPDX-License-Identifier: MIT
 *
 * stream_shapes.h: shapes of tables in registers, and a file's decoders: its decode(), with the shape and the number of
 * streams constant.
 *
 *     pairs     the longest word has up to 6 bits, 7 or 8
 *     narrow    up to 6, 7 or 8
 */
#ifndef PLEAT_ENTROPY_X86_STREAM_SHAPES_H
#define PLEAT_ENTROPY_X86_STREAM_SHAPES_H

#include "core/compiler.h"
#include "entropy/stream.h"

typedef enum table_shape { PAIRS_6, PAIRS_7, PAIRS_8, NARROW_6, NARROW_7, NARROW_8 } table_shape;

INLINE bool is_pairs(table_shape shape) { return shape <= PAIRS_8; }

/* Three streams are two and one. */
#define DECODER(name, shape)                                                                                    \
    static void name(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,        \
                     uint32_t n_vectors, uint8_t *const *out) {                                                 \
        if (n_streams == 4) {                                                                                   \
            decode(shape, 4, codebook, streams, n_vectors, out);                                                \
            return;                                                                                             \
        }                                                                                                       \
        if (n_streams >= 2) decode(shape, 2, codebook, streams, n_vectors, out);                                \
        if (n_streams % 2) decode(shape, 1, codebook, streams + n_streams - 1, n_vectors, out + n_streams - 1); \
    }

/* decoders[], by shape; stands behind decode(). */
#define DECODERS                \
    DECODER(pairs_6, PAIRS_6)   \
    DECODER(pairs_7, PAIRS_7)   \
    DECODER(pairs_8, PAIRS_8)   \
    DECODER(narrow_6, NARROW_6) \
    DECODER(narrow_7, NARROW_7) \
    DECODER(narrow_8, NARROW_8) \
    static const pleat__stream_decode_fn decoders[] = {pairs_6, pairs_7, pairs_8, narrow_6, narrow_7, narrow_8};

/* Of codebooks that are not wide. */
static inline table_shape shape_of(const pleat__codebook *codebook) {
    const uint32_t bits = codebook->max_bits;
    if (codebook->kind == PLEAT__CODEBOOK_PAIRS) return bits <= 6 ? PAIRS_6 : bits == 7 ? PAIRS_7 : PAIRS_8;
    return bits <= 6 ? NARROW_6 : bits == 7 ? NARROW_7 : NARROW_8;
}

static inline pleat__stream_decode_fn decoder_of(const pleat__stream_decode_fn *decoders,
                                                 const pleat__codebook *codebook) {
    return codebook->kind == PLEAT__CODEBOOK_WIDE ? pleat__stream_decode_ref : decoders[shape_of(codebook)];
}

#endif
