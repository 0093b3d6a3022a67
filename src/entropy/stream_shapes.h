/* SPDX-License-Identifier: MIT
 *
 * stream_shapes.h: shapes of tables in registers, and the decoders of a file with vectors: its decode(), with the shape
 * and the number of streams constant.
 *
 *     pairs     the longest word has up to 6 bits, 7 or 8
 *     narrow    up to 6, 7 or 8
 *     wide      up to 9; decode() is never asked for a stream's last vector
 */
#ifndef PLEAT_ENTROPY_STREAM_SHAPES_H
#define PLEAT_ENTROPY_STREAM_SHAPES_H

#include "core/compiler.h"
#include "entropy/stream.h"

typedef enum table_shape {
    PAIRS_6,
    PAIRS_7,
    PAIRS_8,
    NARROW_6,
    NARROW_7,
    NARROW_8,
    WIDE,
    SPLIT_PAIRS_2, /* shape_of() says none of these: stream_avx2.c */
    SPLIT_PAIRS_4,
    SPLIT_NARROW_4,
    SPLIT_NARROW_5
} table_shape;

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

/* In its last step a lane of a wide codebook takes no byte, one or two, as its word turns out: scalar code does the last
 * vector. */
static void last_by_scalar(pleat__stream_decode_fn decode_wide, const pleat__codebook *codebook,
                           pleat__stream *const *streams, uint32_t n_streams, uint32_t n_vectors, uint8_t *const *out) {
    uint8_t *last[PLEAT__STREAMS] = {NULL};
    bool ends = false;
    for (uint32_t i = 0; i < n_streams; i++) ends = ends || streams[i]->n_left == n_vectors;
    const uint32_t n_plain = n_vectors - (ends && n_vectors > 0);
    decode_wide(codebook, streams, n_streams, n_plain, out);
    for (uint32_t i = 0; i < n_streams; i++) last[i] = out[i] + (size_t)64 * n_plain;
    pleat__stream_decode_ref(codebook, streams, n_streams, n_vectors - n_plain, last);
}

/* decoders[], by shape; stands behind decode(). */
#define DECODERS                                                                                         \
    DECODER(pairs_6, PAIRS_6)                                                                            \
    DECODER(pairs_7, PAIRS_7)                                                                            \
    DECODER(pairs_8, PAIRS_8)                                                                            \
    DECODER(narrow_6, NARROW_6)                                                                          \
    DECODER(narrow_7, NARROW_7)                                                                          \
    DECODER(narrow_8, NARROW_8)                                                                          \
    DECODER(wide_but_last, WIDE)                                                                         \
    static void wide(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams, \
                     uint32_t n_vectors, uint8_t *const *out) {                                          \
        last_by_scalar(wide_but_last, codebook, streams, n_streams, n_vectors, out);                     \
    }                                                                                                    \
    static const pleat__stream_decode_fn decoders[] = {pairs_6, pairs_7, pairs_8, narrow_6, narrow_7, narrow_8, wide};

static inline table_shape shape_of(const pleat__codebook *codebook) {
    const uint32_t bits = codebook->max_bits;
    if (codebook->kind == PLEAT__CODEBOOK_WIDE) return WIDE;
    if (codebook->kind == PLEAT__CODEBOOK_PAIRS) return bits <= 6 ? PAIRS_6 : bits == 7 ? PAIRS_7 : PAIRS_8;
    return bits <= 6 ? NARROW_6 : bits == 7 ? NARROW_7 : NARROW_8;
}

#endif
