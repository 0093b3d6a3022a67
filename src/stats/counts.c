/* SPDX-License-Identifier: MIT
 *
 * counts.c: codebooks of classes from counts of pairs of codes.
 *
 * A class may be coded with few codes and many escapes, or with many codes whose words make those of the frequent ones
 * longer.  Of the first class nothing is stored.  Of the others all ways are tried: that as well; pairs of codes of reach 1
 * to 5, of which the rare ones escape; single codes of reach 3 to 15.
 */
#include <math.h>
#include <string.h>

#include "stats/stats.h"

#define ZERO 16         /* where code 0 stands in the counts */
#define ESCAPE_BITS 40u /* it takes 32, and some time when it is read */

/* The symbol of a code at this reach. */
static uint32_t symbol_of(int code, int reach) {
    return code >= -reach && code <= reach ? (uint32_t)(code + reach) : (uint32_t)(2 * reach + 1);
}

/* A way under trial: symbols' weights (of pairs [b * n_levels + a]) and lengths, and what the counts take, in bits. */
typedef struct trial {
    uint64_t weights[PLEAT__CODEBOOK_SYMBOLS];
    uint8_t bits[PLEAT__CODEBOOK_SYMBOLS];
    uint64_t n_escapes, n_codes, cost;
    uint32_t n_levels, n;
} trial;

static void weigh(const pleat__pair_counts *counts, uint32_t class, int reach, bool pairs, trial *t) {
    memset(t, 0, sizeof *t);
    t->n_levels = (uint32_t)(2 * reach + 2);
    t->n = pairs ? t->n_levels * t->n_levels : t->n_levels;
    for (int a = -ZERO; a <= ZERO; a++)
        for (int b = -ZERO; b <= ZERO; b++) {
            const uint64_t n = counts->n[class][a + ZERO][b + ZERO];
            const uint32_t x = symbol_of(a, reach), y = symbol_of(b, reach), escape = t->n_levels - 1;
            t->n_escapes += n * ((x == escape) + (y == escape));
            t->n_codes += 2 * n;
            if (pairs) {
                t->weights[y * t->n_levels + x] += n;
            } else {
                t->weights[x] += n;
                t->weights[y] += n;
            }
        }
}

/* Pairs that are rarer than one in 2^rare have no word: both their codes escape.  Two zeros and two escapes always have
 * one. */
static void drop_rare(trial *t, uint32_t rare) {
    const uint64_t least = t->n_codes / 2 >> rare;
    const uint32_t zeros = (t->n_levels / 2 - 1) * (t->n_levels + 1), escapes = t->n - 1;
    for (uint32_t i = 0; i < escapes; i++) {
        const uint64_t n = t->weights[i];
        if (n > least || i == zeros) continue;
        const uint32_t a = i % t->n_levels, b = i / t->n_levels;
        t->n_escapes += n * (uint64_t)((a + 1 != t->n_levels) + (b + 1 != t->n_levels));
        t->weights[escapes] += n;
        t->weights[i] = 0;
    }
    t->weights[zeros]++;
    t->weights[escapes]++;
}

/* Lengths of the symbols that have weights, up to max_bits; false: there are too many. */
static bool measure(trial *t, uint32_t max_bits) {
    uint64_t weights[PLEAT__CODEBOOK_SYMBOLS] = {0};
    uint8_t lengths[PLEAT__CODEBOOK_SYMBOLS], place[PLEAT__CODEBOOK_SYMBOLS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->weights[i] > 0) {
            place[n] = (uint8_t)i;
            weights[n++] = t->weights[i];
        }
    if (n > 1u << max_bits) return false;
    pleat__codebook_lengths(weights, n, max_bits, lengths);
    memset(t->bits, 0, sizeof t->bits);
    t->cost = t->n_escapes * ESCAPE_BITS;
    for (uint32_t i = 0; i < n; i++) {
        t->bits[place[i]] = lengths[i];
        t->cost += t->weights[place[i]] * lengths[i];
    }
    return true;
}

/* The best codebook of a way: its trial. */
static void try_pairs(const pleat__pair_counts *counts, uint32_t class, int reach, uint32_t max_bits, trial *best) {
    trial all;
    weigh(counts, class, reach, true, &all);
    best->cost = UINT64_MAX;
    for (uint32_t rare = 5; rare <= 16; rare++) {
        trial t = all;
        drop_rare(&t, rare);
        if (measure(&t, max_bits) && t.cost < best->cost) *best = t;
    }
}

static void try_singles(const pleat__pair_counts *counts, uint32_t class, int reach, uint32_t max_bits, trial *t) {
    weigh(counts, class, reach, false, t);
    for (uint32_t i = 0; i < t->n; i++) t->weights[i]++; /* each symbol has a word */
    (void)measure(t, max_bits);
}

static void keep(const trial *t, bool pairs, pleat__codebook *book) {
    uint8_t bits[PLEAT__CODEBOOK_SYMBOLS] = {0};
    for (uint32_t i = 0; i < t->n; i++) bits[pairs ? i % t->n_levels | i / t->n_levels << 4 : i] = t->bits[i];
    (void)pleat__codebook_from_bits(book, pairs ? PLEAT__CODEBOOK_PAIRS : PLEAT__CODEBOOK_NARROW, t->n_levels, bits);
}

/* Bits where nothing is stored but what is not 0. */
static uint64_t cost_of_nothing(const pleat__pair_counts *counts, uint32_t class) {
    uint64_t n = 0;
    for (int a = -ZERO; a <= ZERO; a++)
        for (int b = -ZERO; b <= ZERO; b++) n += counts->n[class][a + ZERO][b + ZERO] * (uint64_t)((a != 0) + (b != 0));
    return n * ESCAPE_BITS;
}

/* Ways to code a class.  Shorter words are decoded from smaller tables, and pairs two at a time: so what is slower has to
 * be so much shorter, in thousandths.  On Zen 4 64 codes take 9 cycles in pairs of 7 bits, 12 in pairs of 8, 18 as
 * single codes of 6 or 7 bits and 23 of 8. */
static const struct {
    int reach;
    bool pairs;
    uint32_t max_bits;
    uint32_t price;
} ways[] = {
    {1, true, 7, 1000},   {2, true, 7, 1000},   {3, true, 7, 1000},   {2, true, 8, 1010},  {3, true, 8, 1010},
    {4, true, 8, 1010},   {5, true, 8, 1010},   {3, false, 6, 1025},  {4, false, 6, 1025}, {5, false, 6, 1025},
    {6, false, 6, 1025},  {8, false, 6, 1025},  {10, false, 6, 1025}, {4, false, 7, 1025}, {6, false, 7, 1025},
    {8, false, 7, 1025},  {12, false, 7, 1025}, {15, false, 7, 1025}, {8, false, 8, 1040}, {10, false, 8, 1040},
    {12, false, 8, 1040}, {15, false, 8, 1040},
};

void pleat__rd_book_choose(const pleat__pair_counts *counts, uint32_t class, pleat__codebook *book) {
    uint64_t least = cost_of_nothing(counts, class) * 1000;
    trial t;
    memset(book, 0, sizeof *book);
    if (class == 0) return; /* nothing, always: no budget could be promised without (pleat__rd_least_bytes()) */
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const int reach = ways[i].reach;
        if (ways[i].pairs)
            try_pairs(counts, class, reach, ways[i].max_bits, &t);
        else
            try_singles(counts, class, reach, ways[i].max_bits, &t);
        if (t.cost * ways[i].price >= least) continue;
        least = t.cost * ways[i].price;
        keep(&t, ways[i].pairs, book);
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
