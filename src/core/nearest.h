/* SPDX-License-Identifier: MIT
 *
 * nearest.h: "did you mean": which of a list of words is closest to one that is not among them.
 */
#ifndef PLEAT_CORE_NEAREST_H
#define PLEAT_CORE_NEAREST_H

#include "core/types.h"

/* The word with the least edit distance (insert, delete, replace: 1 each) to word[0..n), the first among equals.
 * Words longer than 31 bytes are compared by their first 31.  n_words > 0. */
const char *pleat__nearest_word(const char *word, size_t n, const char *const *words, size_t n_words);

#endif
