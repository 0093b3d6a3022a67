/* SPDX-License-Identifier: MIT
 *
 * counts.c: codebooks of classes from counts of pairs of codes.
 *
 * A class may be coded with few codes and many escapes, or with many codes whose words make those of the frequent ones
 * longer.  All ways are tried: nothing stored at all; pairs of codes of reach 1 to 3; single codes of reach 3 to 15.
 */
#include <math.h>
#include <string.h>

#include "stats/stats.h"

#define ZERO 16 /* where code 0 stands in the counts */
#define ESCAPE_BITS 32u

/* The symbol of a code at this reach. */
static uint32_t symbol_of(int code, int reach) {
    return code >= -reach && code <= reach ? (uint32_t)(code + reach) : (uint32_t)(2 * reach + 1);
}

/* Weights of symbols, or of pairs of them ([b * n_levels + a]), and how many escapes there are. */
static uint64_t weigh(const pleat__pair_counts *counts, uint32_t class, int reach, bool pairs, uint64_t *weights) {
    const uint32_t n_levels = (uint32_t)(2 * reach + 2);
    uint64_t n_escapes = 0;
    for (uint32_t i = 0; i < (pairs ? n_levels * n_levels : n_levels); i++) weights[i] = 1; /* each symbol has a word */
    for (int a = -ZERO; a <= ZERO; a++)
        for (int b = -ZERO; b <= ZERO; b++) {
            const uint64_t n = counts->n[class][a + ZERO][b + ZERO];
            const uint32_t x = symbol_of(a, reach), y = symbol_of(b, reach);
            n_escapes += n * ((x == n_levels - 1) + (y == n_levels - 1));
            if (pairs) {
                weights[y * n_levels + x] += n;
            } else {
                weights[x] += n;
                weights[y] += n;
            }
        }
    return n_escapes;
}

static uint64_t cost_of(const uint64_t *weights, const uint8_t *bits, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (weights[i] - 1) * bits[i];
    return sum;
}

/* The codebook of this reach and of words up to max_bits; returns the bits that the counts take, escapes included. */
static uint64_t build(const pleat__pair_counts *counts, uint32_t class, int reach, bool pairs, uint32_t max_bits,
                      pleat__codebook *book) {
    const uint32_t n_levels = (uint32_t)(2 * reach + 2), n = pairs ? n_levels * n_levels : n_levels;
    uint64_t weights[PLEAT__CODEBOOK_PAIR_LEVELS * PLEAT__CODEBOOK_PAIR_LEVELS];
    uint8_t lengths[PLEAT__CODEBOOK_PAIR_LEVELS * PLEAT__CODEBOOK_PAIR_LEVELS], bits[PLEAT__CODEBOOK_SYMBOLS] = {0};
    const uint64_t n_escapes = weigh(counts, class, reach, pairs, weights);
    pleat__codebook_lengths(weights, n, max_bits, lengths);
    for (uint32_t i = 0; i < n; i++) bits[pairs ? i % n_levels | i / n_levels << 4 : i] = lengths[i];
    (void)pleat__codebook_from_bits(book, pairs ? PLEAT__CODEBOOK_PAIRS : PLEAT__CODEBOOK_NARROW, n_levels, bits);
    return cost_of(weights, lengths, n) + n_escapes * ESCAPE_BITS;
}

/* Bits where nothing is stored but what is not 0. */
static uint64_t cost_of_nothing(const pleat__pair_counts *counts, uint32_t class) {
    uint64_t n = 0;
    for (int a = -ZERO; a <= ZERO; a++)
        for (int b = -ZERO; b <= ZERO; b++) n += counts->n[class][a + ZERO][b + ZERO] * (uint64_t)((a != 0) + (b != 0));
    return n * ESCAPE_BITS;
}

/* Ways to code a class.  Shorter words are decoded from smaller tables, and pairs two at a time: so what is slower has to
 * be so much shorter, in thousandths. */
static const struct {
    int reach;
    bool pairs;
    uint32_t max_bits;
    uint32_t price;
} ways[] = {
    {1, true, 7, 1000},   {2, true, 7, 1000},   {3, true, 7, 1000},   {3, false, 6, 1015},  {4, false, 6, 1015},
    {5, false, 6, 1015},  {6, false, 6, 1015},  {8, false, 6, 1015},  {10, false, 6, 1015}, {4, false, 7, 1025},
    {6, false, 7, 1025},  {8, false, 7, 1025},  {12, false, 7, 1025}, {15, false, 7, 1025}, {8, false, 8, 1040},
    {10, false, 8, 1040}, {12, false, 8, 1040}, {15, false, 8, 1040},
};

void pleat__rd_book_choose(const pleat__pair_counts *counts, uint32_t class, pleat__codebook *book) {
    uint64_t least = cost_of_nothing(counts, class) * 1000;
    pleat__codebook tried;
    memset(book, 0, sizeof *book);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const uint64_t cost =
            build(counts, class, ways[i].reach, ways[i].pairs, ways[i].max_bits, &tried) * ways[i].price;
        if (cost >= least) continue;
        least = cost;
        *book = tried;
    }
}

/* ---- what was not met ------------------------------------------------------------------------------------ */

/* Weight of a normal variable's codes beside those that were counted: enough for a class that was never met. */
#define NORMAL_WEIGHT 4096.0

static double share_of(int code, double s) {
    return 0.5 * (erf((code + 0.5) / (s * M_SQRT2)) - erf((code - 0.5) / (s * M_SQRT2)));
}

void pleat__pair_counts_add_normal(pleat__pair_counts *counts, uint32_t class) {
    const double s = pleat__rd_spread_of(class);
    for (int a = -ZERO; a <= ZERO; a++)
        for (int b = -ZERO; b <= ZERO; b++)
            counts->n[class][a + ZERO][b + ZERO] += (uint64_t)(NORMAL_WEIGHT * share_of(a, s) * share_of(b, s));
}
