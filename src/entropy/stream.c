/* SPDX-License-Identifier: MIT
 *
 * stream.c: the encoder, the scalar decoder that others are held against, and which decoder runs on which CPU.  See
 * stream.h.
 */
#include <string.h>

#include "core/compiler.h"
#include "entropy/stream.h"
#include "hw/cpu.h"

#define LANES PLEAT__STREAM_LANES

/* Step s codes bytes 2j + s%2 of the vector (of the two vectors, if pairs) that starts here. */
static size_t step_at(bool pairs, uint32_t step) { return (size_t)(step / 2) * (pairs ? 128 : 64) + step % 2; }

static uint32_t n_steps(bool pairs, uint32_t n_vectors) { return pairs ? n_vectors : 2 * n_vectors; }

/* ---- encode ----------------------------------------------------------------------------------------- */

/* Words of a lane that are put together at once fit 64 bits; a byte that is taken may hold words of up to 16 steps
 * ahead. So bits are made in runs of 8 steps (4 if words are of 9 bits), AHEAD steps before they are taken, and wait in
 * rings. */
#define AHEAD 16u
#define RING_STEPS 32u
#define RING_WORDS 8u

typedef struct encoder {
    uint64_t ring[LANES][RING_WORDS]; /* a lane's bits; byte i of them in word i/8 modulo RING_WORDS */
    uint8_t lengths[RING_STEPS][LANES];
    uint32_t n_bits[LANES];  /* made */
    uint32_t n_taken[LANES]; /* bytes */
    uint32_t last_at[LANES]; /* where the last of these is */
    uint8_t valid[LANES];    /* bits that the reader has */
} encoder;

/* n_bits <= 64 more bits for a lane.  The word behind them is written too, if only with zeros. */
INLINE void append(encoder *e, uint32_t lane, uint64_t bits, uint32_t n_bits) {
    const uint32_t fill = e->n_bits[lane] % 64, word = e->n_bits[lane] / 64;
    const uint64_t first = e->ring[lane][word % RING_WORDS] | bits << fill;
    const uint64_t rest = bits >> 1 >> (63 - fill); /* 0 if all fitted */
    e->ring[lane][word % RING_WORDS] = first;
    e->ring[lane][(word + 1) % RING_WORDS] = rest;
    e->n_bits[lane] += n_bits;
}

/* The words of steps first..first + n - 1. */
INLINE void make_words(encoder *e, const pleat__codebook *codebook, const uint8_t *codes, bool pairs, uint32_t first,
                       uint32_t n) {
    for (uint32_t j = 0; j < LANES; j++) {
        uint64_t bits = 0;
        uint32_t n_bits = 0;
        UNROLL for (uint32_t k = 0; k < n; k++) {
            const uint8_t *at = codes + step_at(pairs, first + k) + 2 * j;
            const uint32_t symbol = pairs ? at[0] | at[64] << 4 : at[0], length = codebook->bits[symbol];
            bits |= (uint64_t)codebook->words[symbol] << n_bits;
            n_bits += length;
            e->lengths[(first + k) % RING_STEPS][j] = (uint8_t)length;
        }
        append(e, j, bits, n_bits);
    }
}

/* Bit j: byte j, which is 0 or 1, is 1. */
static uint32_t to_mask(const uint8_t bytes[LANES]) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < LANES; i += 8) {
        uint64_t eight = 0;
        for (uint32_t k = 0; k < 8; k++) eight |= (uint64_t)bytes[i + k] << 8 * k;
        mask |= (uint32_t)(eight * 0x0102040810204080u >> 56) << i;
    }
    return mask;
}

/* Lanes take their bytes before step s: those with fewer bits than its word has if it is the last, else than max_bits.
 * */
INLINE uint32_t take_bytes(encoder *e, uint32_t s, uint32_t max_bits, bool is_last, uint32_t next, uint8_t *out) {
    const uint8_t *lengths = e->lengths[s % RING_STEPS];
    uint8_t takes[LANES], twice[LANES];
    for (uint32_t j = 0; j < LANES; j++) {
        const uint8_t need = is_last ? lengths[j] : (uint8_t)max_bits;
        takes[j] = e->valid[j] < need;
        twice[j] = max_bits > 8 && e->valid[j] + 8 < need;
        e->valid[j] = (uint8_t)(e->valid[j] + 8 * (takes[j] + twice[j]) - lengths[j]);
    }
    for (uint32_t mask = to_mask(takes); mask != 0; mask &= mask - 1) {
        const uint32_t j = (uint32_t)__builtin_ctz(mask), n = max_bits > 8 ? 1u + twice[j] : 1;
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t i = e->n_taken[j]++;
            out[next] = (uint8_t)(e->ring[j][i / 8 % RING_WORDS] >> 8 * (i % 8));
            e->last_at[j] = next++;
        }
    }
    return next;
}

/* Drop the bytes at the end that hold no bits: a lane has at most one, the last that it took. */
static uint32_t trimmed(const encoder *e, uint32_t n) {
    for (uint32_t j = 0; j < LANES;) {
        const bool is_empty = e->n_taken[j] > (e->n_bits[j] + 7) / 8;
        if (is_empty && e->last_at[j] + 1 == n) {
            n--;
            j = 0; /* the byte before may be any lane's */
        } else {
            j++;
        }
    }
    return n;
}

/* run: steps whose words are at most 64 bits together. */
INLINE size_t encode(const pleat__codebook *codebook, const uint8_t *codes, uint32_t n_vectors, bool pairs,
                     uint32_t run, uint8_t *out) {
    const uint32_t steps = n_steps(pairs, n_vectors), max_bits = codebook->max_bits;
    encoder e;
    memset(&e, 0, sizeof e);
    uint32_t made = 0, next = 0;
    for (uint32_t s = 0; s < steps; s++) {
        while (made < steps && made < s + AHEAD) {
            if (steps - made >= run) {
                make_words(&e, codebook, codes, pairs, made, run);
                made += run;
            } else {
                make_words(&e, codebook, codes, pairs, made, 2);
                made += 2;
            }
        }
        next = take_bytes(&e, s, max_bits, s + 1 == steps, next, out);
    }
    return trimmed(&e, next);
}

size_t pleat__stream_encode(const pleat__codebook *codebook, const uint8_t *codes, uint32_t n_vectors, uint8_t *out) {
    if (codebook->kind == PLEAT__CODEBOOK_PAIRS) return encode(codebook, codes, n_vectors, true, 8, out);
    if (codebook->max_bits <= 8) return encode(codebook, codes, n_vectors, false, 8, out);
    return encode(codebook, codes, n_vectors, false, 4, out);
}

/* ---- decode ----------------------------------------------------------------------------------------- */

void pleat__stream_init(pleat__stream *stream, const uint8_t *bytes, size_t n_bytes, uint32_t n_vectors) {
    memset(stream, 0, sizeof *stream);
    stream->bytes = bytes;
    stream->n_bytes = n_bytes;
    stream->n_left = n_vectors;
}

/* One step; a lane takes at most n_takes bytes.  What a lane does never depends on others but for the place of its
 * bytes, so it takes them and its symbol in one go, without a branch that nobody could predict. */
INLINE void decode_step(const pleat__codebook *codebook, pleat__stream *stream, bool pairs, uint32_t n_takes,
                        bool is_last, uint8_t *out) {
    const uint32_t max_bits = codebook->max_bits, mask = (1u << max_bits) - 1;
    const uint8_t *at = stream->bytes + (stream->n_taken < stream->n_bytes ? stream->n_taken : stream->n_bytes);
    uint32_t n = 0;
    for (uint32_t j = 0; j < LANES; j++) {
        uint32_t window = stream->window[j], valid = stream->valid[j];
        for (uint32_t k = 0; k < n_takes; k++) {
            const uint32_t take = valid < (is_last ? codebook->symbol_bits[window & mask] : max_bits);
            window |= (at[n] & (0 - take)) << valid;
            valid += 8 * take;
            n += take;
        }
        const uint32_t symbol = codebook->symbol[window & mask], bits = codebook->symbol_bits[window & mask];
        stream->window[j] = (uint16_t)(window >> bits);
        stream->valid[j] = (uint16_t)(valid - bits);
        out[2 * j] = (uint8_t)(pairs ? (symbol & 15) + codebook->base : symbol);
        if (pairs) out[64 + 2 * j] = (uint8_t)((symbol >> 4) + codebook->base);
    }
    stream->n_taken += n;
}

INLINE void decode_one(const pleat__codebook *codebook, pleat__stream *stream, bool pairs, uint32_t n_takes,
                       uint32_t n_vectors, uint8_t *out) {
    const uint32_t steps = n_steps(pairs, n_vectors), n_plain = n_vectors == stream->n_left ? steps - 1 : steps;
    for (uint32_t s = 0; s < n_plain; s++)
        decode_step(codebook, stream, pairs, n_takes, false, out + step_at(pairs, s));
    if (n_plain < steps) decode_step(codebook, stream, pairs, n_takes, true, out + step_at(pairs, steps - 1));
    stream->n_left -= n_vectors;
}

void pleat__stream_decode_ref(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                              uint32_t n_vectors, uint8_t *const *out) {
    if (n_vectors == 0) return;
    for (uint32_t i = 0; i < n_streams; i++) {
        if (codebook->kind == PLEAT__CODEBOOK_PAIRS) {
            decode_one(codebook, streams[i], true, 1, n_vectors, out[i]);
        } else {
            decode_one(codebook, streams[i], false, codebook->max_bits <= 8 ? 1 : 2, n_vectors, out[i]);
        }
    }
}

pleat__stream_decode_fn pleat__stream_decode_of(uint32_t cpu_flags) {
#if PLEAT_X86
    if (cpu_flags & PLEAT_CPU_VBMI2) return pleat__stream_decode_vbmi2;
    if (cpu_flags & PLEAT_CPU_AVX2) return pleat__stream_decode_avx2;
#elif PLEAT_ARM
    if (cpu_flags & PLEAT_CPU_NEON) return pleat__stream_decode_neon;
#else
    (void)cpu_flags;
#endif
    return pleat__stream_decode_ref;
}

pleat__stream_decode_runs_fn pleat__stream_decode_runs_of(uint32_t cpu_flags) {
#if PLEAT_X86
    if (cpu_flags & PLEAT_CPU_VBMI2) return pleat__stream_decode_runs_vbmi2;
    if (cpu_flags & PLEAT_CPU_AVX2) return pleat__stream_decode_runs_avx2;
#else
    (void)cpu_flags;
#endif
    return NULL;
}
