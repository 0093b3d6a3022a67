/* SPDX-License-Identifier: MIT
 *
 * rd_classes.c: classes of a block's own, where its text is unlike the statistics.
 *
 * The lane's classes are those of the text that the statistics were made of.  Of another text codes may spread wider, and
 * then cost escapes and long words, or less, and then words longer than they need.  So a block's codes are counted, group
 * by group, and each group's cost is worked out in all codebooks of the model.  Where the best of these save a sixteenth
 * of the matrix, the block says which they are: a byte a group before its stream.
 *
 * That depends on the block's codes alone, so equal tokens have equal bytes still.
 */
#include "codec/rd_internal.h"

#define EDGE ((int32_t)PLEAT__RD_REACH + 1) /* codes beyond it count there */
#define ESCAPE_BITS (8u * PLEAT__RD_ESCAPE_BYTES)
#define LEAST_GAIN 16u /* own classes save at least this part */

typedef struct histogram {
    uint32_t n[2 * PLEAT__RD_REACH + 3]; /* of codes -EDGE..EDGE */
} histogram;

static histogram count(const int8_t *codes, uint32_t d, uint32_t first, uint32_t n_dims) {
    histogram h = {{0}};
    for (uint32_t t = 0; t < PLEAT__RD_TOKENS; t++)
        for (uint32_t i = first; i < first + n_dims; i++) {
            const int32_t code = codes[(size_t)t * d + i];
            h.n[(code > EDGE ? EDGE : code < -EDGE ? -EDGE : code) + EDGE]++;
        }
    return h;
}

/* Bits of a pair, beside those of the codes that escape anyway. */
static uint32_t pair_bits(const pleat__codebook *book, uint32_t a, uint32_t b) {
    const uint32_t bits = book->bits[a | b << 4], escape = book->n_levels - 1u;
    if (bits > 0) return bits;
    return book->bits[pleat__rd_two_escapes(book)] + ESCAPE_BITS * ((a != escape) + (b != escape));
}

/* Bits of n codes with these counts, escapes included.  Codes of a pair are taken to be independent. */
static uint64_t cost_of(const pleat__codebook *book, const histogram *h, uint32_t n) {
    uint32_t m[PLEAT__CODEBOOK_NARROW_LEVELS];
    const int32_t reach = pleat__rd_reach(book);
    if (reach < 0) return (uint64_t)(n - h->n[EDGE]) * ESCAPE_BITS;
    const uint32_t n_levels = book->n_levels;
    uint32_t n_escapes = n;
    for (int32_t code = -reach; code <= reach; code++) n_escapes -= m[code + reach] = h->n[code + EDGE];
    m[n_levels - 1] = n_escapes;
    uint64_t sum = 0;
    if (book->kind != PLEAT__CODEBOOK_PAIRS) {
        for (uint32_t a = 0; a < n_levels; a++) sum += m[a] * book->bits[a];
        return sum + (uint64_t)n_escapes * ESCAPE_BITS;
    }
    for (uint32_t b = 0; b < n_levels; b++) {
        uint32_t row = 0;
        for (uint32_t a = 0; a < n_levels; a++) row += m[a] * pair_bits(book, a, b);
        sum += (uint64_t)m[b] * row;
    }
    return sum / (2 * n) + (uint64_t)n_escapes * ESCAPE_BITS;
}

bool pleat__rd_choose_classes(const pleat__codebook *books, const int8_t *codes, uint32_t d, uint32_t n_dims,
                              const uint8_t *of_lane, uint8_t *classes) {
    const uint32_t n = PLEAT__RD_TOKENS * n_dims, n_groups = d / n_dims;
    uint64_t given = 0, own = 8 * n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        const histogram h = count(codes, d, g * n_dims, n_dims);
        uint64_t least = cost_of(&books[of_lane[g]], &h, n);
        given += least;
        classes[g] = of_lane[g];
        for (uint8_t class = 0; class < PLEAT__RD_CLASSES; class ++) {
            const uint64_t cost = cost_of(&books[class], &h, n);
            if (cost >= least) continue;
            least = cost;
            classes[g] = class;
        }
        own += least;
    }
    if (own + given / LEAST_GAIN < given) return true;
    for (uint32_t g = 0; g < n_groups; g++) classes[g] = of_lane[g];
    return false;
}
