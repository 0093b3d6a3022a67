/* SPDX-License-Identifier: MIT
 *
 * stream.h: codes as one stream of bytes that 32 stream lanes, here *lanes*, read in step.
 *
 * Codes come in vectors of 64 bytes.  Lane j = 0..31 codes bytes 2j and 2j+1 of each vector, in its own order:
 *
 *     single codes   symbol s of lane j is byte 2j + s%2 of vector s/2: 2 * n_vectors symbols a lane
 *     pairs          symbol s of lane j is a | b << 4: byte 2j + s%2 of vector 2*(s/2), and of the next:
 *                    n_vectors symbols a lane
 *
 * A lane has a window of bits, empty at first.  In step s = 0, 1, ..., each lane in turn, from 0 to 31, takes the
 * stream's next byte on top of its window while it has fewer than codebook->max_bits bits.  One byte is enough but for
 * words of 9 bits.  Then each lane takes its next symbol's word from the bottom of its window.  So one stream serves
 * all lanes, a vector of 16-bit windows holds them, and which lanes take bytes is known from the windows alone.
 *
 *     window   | 0 ........ 0 | bits not used yet |          16 bits; valid <= 16 of them
 *
 * In the last step a lane takes a byte only while its bits are no whole word.  That is while the length that the table
 * has for its window (zeros above its bits) is more than it has.  That saves most of what taking ahead would waste at
 * the end; a lane may still have taken one byte that none of its words needs: zero.  Such bytes are not stored where no
 * other byte follows: a lane takes what stands behind the stream, and no code depends on it.
 *
 * Decoding goes on where it stopped, so that a kernel decodes a slice, uses it, and comes back.  It never fails and
 * never reads outside [bytes, bytes + n_bytes + PLEAT__STREAM_PAD): whatever the bytes, a step takes and reads at most
 * 64 bytes from the place min(n_taken, n_bytes).  Bytes from the end on must be readable; their values matter only to
 * damaged streams, whose codes are some codes below the codebook's levels.  After all vectors of a sound stream,
 * pleat__stream_is_done() is true.
 */
#ifndef PLEAT_ENTROPY_STREAM_H
#define PLEAT_ENTROPY_STREAM_H

#include "entropy/codebook.h"

#define PLEAT__STREAM_LANES 32u
#define PLEAT__STREAM_PAD 64u

/* Streams that are decoded together: enough to hide the latency of a step. */
#define PLEAT__STREAMS 4u

typedef struct pleat__stream {
    _Alignas(64) uint16_t window[PLEAT__STREAM_LANES];
    _Alignas(64) uint16_t valid[PLEAT__STREAM_LANES];
    const uint8_t *bytes; /* [n_bytes + PLEAT__STREAM_PAD] */
    uint64_t n_bytes;
    uint64_t n_taken; /* bytes that lanes have taken, those past the end included */
    uint32_t n_left;  /* vectors not decoded yet */
} pleat__stream;

/* n_vectors: all that were encoded; the last step has to be known. */
void pleat__stream_init(pleat__stream *stream, const uint8_t *bytes, size_t n_bytes, uint32_t n_vectors);

/* All is decoded, and lanes have taken all bytes and no more past the end than one each. */
static inline bool pleat__stream_is_done(const pleat__stream *s) {
    return s->n_left == 0 && s->n_taken >= s->n_bytes && s->n_taken - s->n_bytes <= PLEAT__STREAM_LANES;
}

/* Encode n_vectors vectors (an even number) of codes below codebook->n_levels to `out`, which has room for
 * pleat__stream_bound(n_vectors) bytes; returns the stream's bytes.  The same bytes always. */
size_t pleat__stream_encode(const pleat__codebook *codebook, const uint8_t *codes, uint32_t n_vectors, uint8_t *out);

static inline size_t pleat__stream_bound(uint32_t n_vectors) {
    return (size_t)n_vectors * 64 * PLEAT__CODEBOOK_WIDE_BITS / 8 + 2 * PLEAT__STREAM_LANES;
}

/* Vectors with one codebook behind each other, in a stream that has several: words of at most 8 bits each. */
typedef struct pleat__stream_run {
    const pleat__codebook *codebook;
    uint32_t n_vectors; /* an even number */
} pleat__stream_run;

/* Like pleat__stream_encode(), with a codebook for each run.  A reader decodes the runs one by one.  At most 64 bytes a
 * vector, and PLEAT__STREAM_LANES. */
size_t pleat__stream_encode_runs(const pleat__stream_run *runs, uint32_t n_runs, const uint8_t *codes, uint8_t *scratch,
                                 uint8_t *out);
static inline size_t pleat__stream_runs_scratch(uint32_t n_vectors) {
    return PLEAT__STREAM_LANES * ((size_t)2 * n_vectors + 4);
}

/* Decode the next n_vectors vectors (an even number, at most n_left) of each of n_streams streams to out[i], aligned to
 * 64 bytes.  1..PLEAT__STREAMS streams, all of one codebook. */
typedef void (*pleat__stream_decode_fn)(const pleat__codebook *codebook, pleat__stream *const *streams,
                                        uint32_t n_streams, uint32_t n_vectors, uint8_t *const *out);

void pleat__stream_decode_ref(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                              uint32_t n_vectors, uint8_t *const *out);
/* Needs PLEAT_CPU_AVX2. */
void pleat__stream_decode_avx2(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                               uint32_t n_vectors, uint8_t *const *out);
/* Needs PLEAT_CPU_NEON. */
void pleat__stream_decode_neon(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                               uint32_t n_vectors, uint8_t *const *out);
/* Needs PLEAT_CPU_VBMI2. */
void pleat__stream_decode_vbmi2(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                                uint32_t n_vectors, uint8_t *const *out);

pleat__stream_decode_fn pleat__stream_decode_of(uint32_t cpu_flags);

/* The same for the vectors of n_runs runs, which stand behind each other in out[i].  Codebooks are pairs or narrow, and
 * runs are not empty.  What the lanes of a stream have is not put back from run to run. */
typedef void (*pleat__stream_decode_runs_fn)(const pleat__stream_run *runs, uint32_t n_runs,
                                             pleat__stream *const *streams, uint32_t n_streams, uint8_t *const *out);
/* Needs PLEAT_CPU_AVX2. */
void pleat__stream_decode_runs_avx2(const pleat__stream_run *runs, uint32_t n_runs, pleat__stream *const *streams,
                                    uint32_t n_streams, uint8_t *const *out);
/* Needs PLEAT_CPU_VBMI2. */
void pleat__stream_decode_runs_vbmi2(const pleat__stream_run *runs, uint32_t n_runs, pleat__stream *const *streams,
                                     uint32_t n_streams, uint8_t *const *out);

/* NULL: runs are decoded one by one as well. */
pleat__stream_decode_runs_fn pleat__stream_decode_runs_of(uint32_t cpu_flags);

#endif
