/* SPDX-License-Identifier: MIT
 *
 * nearest.c: Levenshtein distance over one row of the usual table.  See nearest.h.
 */
#include "core/nearest.h"

#include <string.h>

#define WORD_CAP 31u

static uint32_t edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    uint32_t row[WORD_CAP + 1];
    for (size_t j = 0; j <= n_b; j++) row[j] = (uint32_t)j;
    for (size_t i = 1; i <= n_a; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= n_b; j++) {
            const uint32_t replace = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = pleat__min_u32(replace, pleat__min_u32(row[j], row[j - 1]) + 1);
        }
    }
    return row[n_b];
}

const char *pleat__nearest_word(const char *word, size_t n, const char *const *words, size_t n_words) {
    const char *best = words[0];
    uint32_t best_distance = UINT32_MAX;
    for (size_t i = 0; i < n_words; i++) {
        const size_t n_word = strnlen(words[i], WORD_CAP);
        const uint32_t distance = edit_distance(word, n < WORD_CAP ? n : WORD_CAP, words[i], n_word);
        if (distance >= best_distance) continue;
        best_distance = distance;
        best = words[i];
    }
    return best;
}
