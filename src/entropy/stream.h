/* SPDX-License-Identifier: MIT
 *
 * stream.h: codes as one stream of bytes that 32 lanes read in step.
 *
 * Codes come in vectors of 64 bytes.  Lane j = 0..31 codes bytes 2j and 2j+1 of each vector, in its own order:
 *
 *     single codes   symbol s of lane j is byte 2j + s%2 of vector s/2                        n_vectors * 2 symbols a lane
 *     pairs          symbol s of lane j is byte i = 2j + s%2 of vector 2*(s/2), and of the next: n_vectors symbols a lane
 *                    a = the first's, b = the second's: symbol a | b << 4
 *
 * A lane has a window of bits, empty at first.  For s = 0, 1, ...: each lane in turn, from 0 to 31, that has fewer than
 * book->max_bits bits takes the stream's next byte on top of its window (one is enough: max_bits <= 9); then each lane takes
 * its next symbol's word from the bottom of its window.  So one stream serves all lanes, a vector of 16-bit windows
 * holds them, and which lanes take bytes is known from the windows alone.
 *
 *     window   | 0 ........ 0 | bits not used yet |          16 bits; valid <= 16 of them
 *
 * Bytes that would hold no lane's bits are not stored where no byte with bits follows: a reader takes zeros for them.
 *
 * Decoding goes on where it stopped, so that a kernel decodes a slice, uses it, and comes back.  It never fails and
 * never reads outside [at, end + PLEAT__STREAM_PAD): whatever the bytes, a step reads at most 32 bytes from a place that is
 * kept at or below `end`.  Bytes from `end` on must be readable; their values matter only to damaged streams, whose
 * codes are some codes below the book's levels.  After all vectors of a sound stream, pleat__stream_is_done() is true.
 */
#ifndef PLEAT_ENTROPY_STREAM_H
#define PLEAT_ENTROPY_STREAM_H

#include "entropy/book.h"

#define PLEAT__STREAM_LANES 32u
#define PLEAT__STREAM_PAD 64u

/* Streams that are decoded together: enough to hide the latency of a step. */
#define PLEAT__STREAMS 4u

typedef struct pleat__stream {
    _Alignas(64) uint16_t window[PLEAT__STREAM_LANES];
    _Alignas(64) uint16_t valid[PLEAT__STREAM_LANES];
    const uint8_t *at, *end;
    uint64_t n_taken; /* bytes that lanes have taken, those past the end included */
    uint64_t n_bytes; /* of the stream */
} pleat__stream;

void pleat__stream_init(pleat__stream *stream, const uint8_t *bytes, size_t n_bytes);

/* Lanes have taken all bytes, and no more past the end than the last symbols can have asked for: 32. */
static inline bool pleat__stream_is_done(const pleat__stream *s) {
    return s->n_taken >= s->n_bytes && s->n_taken - s->n_bytes <= 2 * PLEAT__STREAM_LANES;
}

/* Encode n_vectors vectors (an even number) of codes below book->n_levels to `out`; returns the bytes written, at most
 * pleat__stream_bound(n_vectors).  The same bytes always. */
size_t pleat__stream_encode(const pleat__book *book, const uint8_t *codes, uint32_t n_vectors, uint8_t *out);

static inline size_t pleat__stream_bound(uint32_t n_vectors) {
    return (size_t)n_vectors * 64 * PLEAT__BOOK_WIDE_BITS / 8 + 2 * PLEAT__STREAM_LANES;
}

/* Decode the next n_vectors vectors (an even number) of each of n_streams streams, 1..PLEAT__STREAMS, all of one book, to
 * out[i], aligned to 64 bytes. */
typedef void (*pleat__stream_decode_fn)(const pleat__book *book, pleat__stream *const *streams, uint32_t n_streams,
                                        uint32_t n_vectors, uint8_t *const *out);

void pleat__stream_decode_ref(const pleat__book *book, pleat__stream *const *streams, uint32_t n_streams,
                              uint32_t n_vectors, uint8_t *const *out);
/* Needs PLEAT_CPU_VBMI2; wide books go to the scalar one. */
void pleat__stream_decode_vbmi2(const pleat__book *book, pleat__stream *const *streams, uint32_t n_streams,
                                uint32_t n_vectors, uint8_t *const *out);

pleat__stream_decode_fn pleat__stream_decode_of(uint32_t cpu_flags);

#endif
