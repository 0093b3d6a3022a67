/* SPDX-License-Identifier: MIT
 *
 * half.h: half of the samples of each task and of a text, so that what was chosen on some can be shown on others.
 *
 *     choose, show   the fixed split.  A sample shows if the hash of its id says so, whatever file it stands in and
 *                    wherever; a text chooses with its first half and shows with its second, cut behind a line, however
 *                    long the windows are.  All calibration takes the first, all figures that are published the second.
 *     even, odd      by places: a place is even where its number has an even number of ones in binary:
 *
 *         place    0   1   2   3   4   5   6   7   8  ...    of a sample in its task, of a window in the text
 *         even     x           x       x   x
 *         odd          x   x       x           x   x
 *
 *     Of each two neighbours one is even.  Where lengths take turns, two or four or eight of them, both halves have as many
 *     samples of each; where they stand in blocks, too.  With every second sample they would not.
 */
#ifndef PLEAT_CLI_HALF_H
#define PLEAT_CLI_HALF_H

#include <stddef.h>
#include <stdint.h>

typedef enum sample_half { HALF_ALL, HALF_EVEN, HALF_ODD, HALF_CHOOSE, HALF_SHOW } sample_half;
_Static_assert(sizeof(sample_half) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");

/* In the order of the enum; NULL behind the last. */
extern const char *const half_names[];

static inline int half_is_by_place(sample_half half) { return half == HALF_EVEN || half == HALF_ODD; }

static inline uint32_t half_is_odd(uint32_t place) {
    uint32_t ones = 0;
    for (; place; place >>= 1) ones ^= place & 1u;
    return ones;
}

/* Whether a sample of that id shows: the highest bit of the id's FNV-1a of 64 bits, mixed by splitmix64's last steps. */
int half_shows(const char *id);

/* Whether the half has the sample of that id, which stands at that place in its task. */
int half_has_sample(sample_half half, uint32_t place, const char *id);

/* Where the half of a text of n bytes begins; *n_half is its length.  Even and odd have all of it: their windows have
 * places. */
size_t half_of_text(sample_half half, const char *text, size_t n, size_t *n_half);

/* ---- windows of that half of a text -------------------------------------------------------------- */

static inline int half_has(sample_half half, uint32_t place) {
    return !half_is_by_place(half) || half_is_odd(place) == (half == HALF_ODD ? 1u : 0u);
}

/* How many of n places are in the half: one of each two, and the last of an odd number or not. */
static inline uint32_t half_count(sample_half half, uint32_t n) {
    return half_is_by_place(half) ? n / 2 + (n % 2 && half_has(half, n - 1) ? 1 : 0) : n;
}

/* Where the half's number i stands: one of the places 2*i and 2*i + 1. */
static inline uint32_t half_place(sample_half half, uint32_t i) {
    return half_is_by_place(half) ? 2 * i + (half_has(half, 2 * i) ? 0 : 1) : i;
}

/* What a half leaves; of all, nothing is left, and it is all. */
sample_half half_other(sample_half half);

#endif
