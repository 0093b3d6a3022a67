/* SPDX-License-Identifier: MIT
 *
 * nearest.c: edits over three rows of the usual table ("optimal string alignment").  See pleat/common.h.
 */
#include <string.h>

#include "core/types.h"
#include "pleat/common.h"

#define WORD_CAP 63u
#define FAR UINT32_MAX

/* One locale's letters do: words are ASCII. */
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

static bool is_same(char a, char b) { return lower(a) == lower(b); }

static uint32_t count_edits(const char *a, size_t n_a, const char *b, size_t n_b) {
    uint32_t rows[3][WORD_CAP + 1];
    uint32_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++) row[j] = (uint32_t)j;
    for (size_t i = 1; i <= n_a; i++) {
        uint32_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= n_b; j++) {
            const uint32_t replaced = above[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = pleat__min_u32(replaced, pleat__min_u32(above[j], row[j - 1]) + 1);
            const bool is_swap = i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]);
            if (is_swap) row[j] = pleat__min_u32(row[j], before[j - 2] + 1);
        }
    }
    return row[n_b];
}

static bool begins(const char *word, size_t n, const char *meant, size_t n_meant) {
    size_t i = 0;
    while (i < n && i < n_meant && is_same(word[i], meant[i])) i++;
    return n >= 3 && i == n;
}

/* Edits between a word and one that it may be a slip for, or FAR. */
static uint32_t distance(const char *word, size_t n_word, const char *meant) {
    const size_t n = n_word < WORD_CAP ? n_word : WORD_CAP;
    const size_t n_meant = strnlen(meant, WORD_CAP), longer = n > n_meant ? n : n_meant;
    const uint32_t edits = count_edits(word, n, meant, n_meant);
    const bool begins_alike = longer > 4 || (n > 0 && is_same(word[0], meant[0]));
    if (edits <= longer / 3 && begins_alike) return edits;
    return begins(word, n, meant, n_meant) ? 1 : FAR;
}

const char *pleat_nearest_word(const char *word, size_t n, const char *const *words, size_t n_words) {
    const char *best = NULL;
    uint32_t least = FAR;
    for (size_t i = 0; word && words && i < n_words; i++) {
        const uint32_t d = words[i] ? distance(word, n, words[i]) : FAR;
        if (d >= least) continue;
        least = d;
        best = words[i];
    }
    return best;
}

int pleat_word_is_near(const char *word, size_t n, const char *meant) {
    return pleat_nearest_word(word, n, &meant, 1) != NULL;
}
