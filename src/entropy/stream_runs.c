/* SPDX-License-Identifier: MIT
 *
 * stream_runs.c: the encoder of streams whose vectors have several codebooks, pleat__stream_encode_runs().
 *
 * All words of a lane are put behind each other first; then the steps are gone through as a reader does, and each lane
 * hands out its next byte when the reader's would take one.
 */
#include <string.h>

#include "core/compiler.h"
#include "entropy/stream.h"

#define LANES PLEAT__STREAM_LANES

typedef struct lane {
    uint8_t *bytes;
    uint32_t n_bits, n_taken, last_at;
    uint32_t valid; /* bits that the reader has */
} lane;

/* Where step s of a run codes, in its vectors: bytes 2j + s%2. */
static size_t step_at(bool pairs, uint32_t s) { return (size_t)(s / 2) * (pairs ? 128 : 64) + s % 2; }

static uint32_t steps_of(const pleat__stream_run *run) {
    return run->codebook->kind == PLEAT__CODEBOOK_PAIRS ? run->n_vectors : 2 * run->n_vectors;
}

INLINE uint32_t symbol_at(const pleat__codebook *codebook, const uint8_t *codes, uint32_t s, uint32_t j) {
    const bool pairs = codebook->kind == PLEAT__CODEBOOK_PAIRS;
    const uint8_t *at = codes + step_at(pairs, s) + 2 * j;
    return pairs ? at[0] | (uint32_t)at[64] << 4 : at[0];
}

static void append(lane *l, uint32_t word, uint32_t n_bits) {
    const uint32_t at = l->n_bits / 8, fill = l->n_bits % 8;
    const uint32_t bits = word << fill;
    l->bytes[at] |= (uint8_t)bits;
    l->bytes[at + 1] |= (uint8_t)(bits >> 8);
    l->n_bits += n_bits;
}

static void make_words(const pleat__stream_run *run, const uint8_t *codes, lane *lanes) {
    const uint32_t n = steps_of(run);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t j = 0; j < LANES; j++) {
            const uint32_t symbol = symbol_at(run->codebook, codes, s, j);
            append(&lanes[j], run->codebook->words[symbol], run->codebook->bits[symbol]);
        }
}

/* As the reader's step: each lane takes a byte if it has fewer bits than it needs. */
static uint32_t take_bytes(const pleat__stream_run *run, const uint8_t *codes, uint32_t s, bool is_last, lane *lanes,
                           uint32_t next, uint8_t *out) {
    for (uint32_t j = 0; j < LANES; j++) {
        lane *l = &lanes[j];
        const uint32_t length = run->codebook->bits[symbol_at(run->codebook, codes, s, j)];
        if (l->valid < (is_last ? length : run->codebook->max_bits)) {
            out[next] = l->bytes[l->n_taken++];
            l->last_at = next++;
            l->valid += 8;
        }
        l->valid -= length;
    }
    return next;
}

/* Without the bytes at the end that hold no bits: a lane has at most one, the last that it took. */
static uint32_t trimmed(const lane *lanes, uint32_t n) {
    for (uint32_t j = 0; j < LANES;) {
        const bool is_empty = lanes[j].n_taken > (lanes[j].n_bits + 7) / 8;
        if (is_empty && lanes[j].last_at + 1 == n) {
            n--;
            j = 0; /* the byte before may be any lane's */
        } else {
            j++;
        }
    }
    return n;
}

size_t pleat__stream_encode_runs(const pleat__stream_run *runs, uint32_t n_runs, const uint8_t *codes, uint8_t *scratch,
                                 uint8_t *out) {
    lane lanes[LANES] = {{0}};
    uint32_t n_vectors = 0, next = 0;
    for (uint32_t i = 0; i < n_runs; i++) n_vectors += runs[i].n_vectors;
    const size_t lane_bytes = pleat__stream_runs_scratch(n_vectors) / LANES;
    memset(scratch, 0, pleat__stream_runs_scratch(n_vectors));
    for (uint32_t j = 0; j < LANES; j++) lanes[j].bytes = scratch + j * lane_bytes;
    const uint8_t *at = codes;
    for (uint32_t i = 0; i < n_runs; at += (size_t)64 * runs[i++].n_vectors) make_words(&runs[i], at, lanes);
    at = codes;
    for (uint32_t i = 0; i < n_runs; at += (size_t)64 * runs[i++].n_vectors)
        for (uint32_t s = 0, n = steps_of(&runs[i]); s < n; s++)
            next = take_bytes(&runs[i], at, s, i + 1 == n_runs && s + 1 == n, lanes, next, out);
    return trimmed(lanes, next);
}
