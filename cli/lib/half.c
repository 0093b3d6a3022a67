/* SPDX-License-Identifier: MIT
 *
 * half.c: which samples and which part of a text are in a half; see half.h.
 */
#include "half.h"

#include <string.h>

const char *const half_names[] = {"all", "even", "odd", "choose", "show", NULL};

int half_shows(const char *id) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *id; id++) h = (h ^ (unsigned char)*id) * 0x100000001b3u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u; /* ids differ at their ends, which FNV mixes least */
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return (int)((h ^ (h >> 31)) >> 63);
}

int half_has_sample(sample_half half, uint32_t place, const char *id) {
    if (half == HALF_CHOOSE || half == HALF_SHOW) return half_shows(id) == (half == HALF_SHOW ? 1 : 0);
    return half_has(half, place);
}

size_t half_of_text(sample_half half, const char *text, size_t n, size_t *n_half) {
    const char *end = memchr(text + n / 2, '\n', n - n / 2);
    const size_t middle = end ? (size_t)(end - text) + 1 : n;
    const size_t first = half == HALF_SHOW ? middle : 0;
    *n_half = (half == HALF_CHOOSE ? middle : n) - first;
    return first;
}

sample_half half_other(sample_half half) {
    switch (half) {
        case HALF_EVEN: return HALF_ODD;
        case HALF_ODD: return HALF_EVEN;
        case HALF_CHOOSE: return HALF_SHOW;
        case HALF_SHOW: return HALF_CHOOSE;
        case HALF_ALL: break;
    }
    return HALF_ALL;
}
