/* SPDX-License-Identifier: MIT
 *
 * nearest.h: "did you mean": which of a list of words one that is not among them is likely a slip for.
 *
 *     edits     insert, delete, replace, swap two neighbours: 1 each; case makes no difference
 *     near      no more edits than a third of the longer word's length; up to 4 letters the first one is right
 *               or the word's first letters, three at least, and no more: "stream" for "streaming"
 *
 * cli/lib/common.c has the same rule for words of the command, which sees no header of the library's inside.
 */
#ifndef PLEAT_CORE_NEAREST_H
#define PLEAT_CORE_NEAREST_H

#include "core/types.h"

/* The near word with the fewest edits from word[0..n), the first among equals; one that is only begun counts as 1.
 * NULL: none is near.  Words are compared by their first 31 bytes. */
const char *pleat__nearest_word(const char *word, size_t n, const char *const *words, size_t n_words);

#endif
