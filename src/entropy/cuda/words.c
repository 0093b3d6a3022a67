/* SPDX-License-Identifier: MIT
 *
 * words.c: streams as GPUs read them, and their tables.  See words.h.
 *
 * What a lane takes depends on its own bits alone; only where it stands depends on others.  So each lane's bits are made
 * first, group by group, and then dealt out.
 */
#include "entropy/cuda/words.h"

#include <string.h>

#define LANES PLEAT__WORDS_LANES

/* Pairs of all codes, as short as 8 bits allow. */
static void build_pairs(const uint64_t pairs[PLEAT__CODEBOOK_SYMBOLS], uint32_t n_levels, pleat__codebook *out) {
    uint64_t weights[PLEAT__CODEBOOK_SYMBOLS] = {0};
    uint8_t lengths[PLEAT__CODEBOOK_SYMBOLS], bits[PLEAT__CODEBOOK_SYMBOLS] = {0};
    const uint32_t n = n_levels * n_levels;
    for (uint32_t i = 0; i < n; i++) weights[i] = 1 + pairs[i % n_levels | i / n_levels << 4];
    pleat__codebook_lengths(weights, n, PLEAT__CODEBOOK_PAIR_BITS_MAX, lengths);
    for (uint32_t i = 0; i < n; i++) bits[i % n_levels | i / n_levels << 4] = lengths[i];
    (void)pleat__codebook_from_bits(out, PLEAT__CODEBOOK_PAIRS, n_levels, bits); /* package-merge's are complete */
}

void pleat__words_codebook(const pleat__codebook *payloads, const uint64_t pairs[PLEAT__CODEBOOK_SYMBOLS],
                           pleat__codebook *out) {
    uint64_t of_pairs = 0, of_singles = 0;
    if (payloads->kind != PLEAT__CODEBOOK_PAIRS && payloads->n_levels <= PLEAT__CODEBOOK_PAIR_LEVELS_MAX) {
        build_pairs(pairs, payloads->n_levels, out);
        for (uint32_t i = 0; i < PLEAT__CODEBOOK_SYMBOLS; i++) {
            of_pairs += pairs[i] * out->bits[i];
            of_singles += pairs[i] * (uint64_t)(payloads->bits[i & 15] + payloads->bits[i >> 4]);
        }
        if (32 * of_pairs <= 33 * of_singles) return;
    }
    *out = *payloads;
}

uint32_t pleat__words_table(const pleat__codebook *codebook, uint32_t table[PLEAT__TABLE_CAP]) {
    const uint32_t centre = PLEAT__TABLE_CENTRE(codebook->n_levels), n = 1u << codebook->max_bits;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t symbol = codebook->symbol[i], bits = codebook->symbol_bits[i];
        table[i] = codebook->kind == PLEAT__CODEBOOK_PAIRS
                       ? bits | (((symbol & 15) - centre) & 255) << 16 | ((symbol >> 4) - centre) << 24
                       : bits | ((symbol - centre) & 255) << 16;
    }
    return n;
}

/* A lane under way: bits that are not written yet, and those that its reader has used of the 64 that it has. */
typedef struct lane_state {
    uint64_t bits;
    uint32_t n_bits; /* below 32 between groups, but for what has to wait */
    uint32_t used;
} lane_state;

/* Codes of step s as a symbol (stream.h). */
static uint32_t symbol_of(const uint8_t *codes, bool pairs, uint32_t lane, uint32_t s) {
    const uint8_t *at = codes + (size_t)(s / 2) * (pairs ? 128 : 64) + s % 2 + 2 * lane;
    return pairs ? at[0] | (uint32_t)at[64] << 4 : at[0];
}

/* Reads a lane's bits ahead of its reader: the next 32, from symbol *next on. */
static uint32_t next_word(const pleat__codebook *codebook, const uint8_t *codes, uint32_t lane, uint32_t n_steps,
                          uint32_t *next, lane_state *state) {
    const bool pairs = codebook->kind == PLEAT__CODEBOOK_PAIRS;
    for (; state->n_bits < 32 && *next < n_steps; ++*next) {
        const uint32_t symbol = symbol_of(codes, pairs, lane, *next);
        state->bits |= (uint64_t)codebook->words[symbol] << state->n_bits;
        state->n_bits += codebook->bits[symbol];
    }
    const uint32_t word = (uint32_t)state->bits;
    state->bits >>= 32;
    state->n_bits = state->n_bits > 32 ? state->n_bits - 32 : 0;
    return word;
}

size_t pleat__words_encode(const pleat__codebook *codebook, const uint8_t *codes, uint32_t n_vectors, uint32_t *out) {
    const bool pairs = codebook->kind == PLEAT__CODEBOOK_PAIRS;
    const uint32_t n_steps = pairs ? n_vectors : 2 * n_vectors, n_group = PLEAT__WORDS_GROUP(codebook->kind);
    lane_state lanes[LANES];
    uint32_t next[LANES] = {0};
    size_t n = 0;
    memset(lanes, 0, sizeof lanes);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < LANES; j++) out[n++] = next_word(codebook, codes, j, n_steps, &next[j], &lanes[j]);
    for (uint32_t s = 0; s + n_group < n_steps; s += n_group) {
        for (uint32_t j = 0; j < LANES; j++) {
            for (uint32_t k = 0; k < n_group; k++) lanes[j].used += codebook->bits[symbol_of(codes, pairs, j, s + k)];
            if (lanes[j].used < 32) continue;
            lanes[j].used -= 32;
            out[n++] = next_word(codebook, codes, j, n_steps, &next[j], &lanes[j]);
        }
    }
    return n;
}
