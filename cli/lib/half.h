/* SPDX-License-Identifier: MIT
 *
 * half.h: half of the samples of each task and of the windows of a text, so that what was chosen on some can be shown on
 * others.  A place is even where its number has an even number of ones in binary:
 *
 *     place    0   1   2   3   4   5   6   7   8  ...    of a sample in its task, of a window in the text
 *     even     x           x       x   x
 *     odd          x   x       x           x   x
 *
 * Of each two neighbours one is even.  Where lengths take turns, two or four or eight of them, both halves have as many
 * samples of each; where they stand in blocks, too.  With every second sample they would not.
 */
#ifndef PLEAT_CLI_HALF_H
#define PLEAT_CLI_HALF_H

#include <stdint.h>

typedef enum sample_half { HALF_ALL, HALF_EVEN, HALF_ODD } sample_half;
_Static_assert(sizeof(sample_half) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");

/* In the order of the enum; NULL behind the last. */
extern const char *const half_names[];

static inline uint32_t half_is_odd(uint32_t place) {
    uint32_t ones = 0;
    for (; place; place >>= 1) ones ^= place & 1u;
    return ones;
}

static inline int half_has(sample_half half, uint32_t place) {
    return half == HALF_ALL || half_is_odd(place) == (half == HALF_ODD ? 1u : 0u);
}

/* How many of n places are in the half: one of each two, and the last of an odd number or not. */
static inline uint32_t half_count(sample_half half, uint32_t n) {
    return half == HALF_ALL ? n : n / 2 + (n % 2 && half_has(half, n - 1) ? 1 : 0);
}

/* Where the half's number i stands: one of the places 2*i and 2*i + 1. */
static inline uint32_t half_place(sample_half half, uint32_t i) {
    return half == HALF_ALL ? i : 2 * i + (half_has(half, 2 * i) ? 0 : 1);
}

/* What a half leaves; of all, nothing is left, and it is all. */
static inline sample_half half_other(sample_half half) {
    return half == HALF_EVEN ? HALF_ODD : half == HALF_ODD ? HALF_EVEN : HALF_ALL;
}

#endif
