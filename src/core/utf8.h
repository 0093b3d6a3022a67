/* SPDX-License-Identifier: MIT
 *
 * utf8.h: UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF.
 */
#ifndef PLEAT_CORE_UTF8_H
#define PLEAT_CORE_UTF8_H

#include "core/types.h"

/* Decode the code point at p[0..n), n > 0, into *out.  Returns its length, 1..4, or 0 if the bytes are no UTF-8. */
static inline uint32_t pleat__utf8_decode(const char *p, uint64_t n, uint32_t *out) {
    const uint8_t *u = (const uint8_t *)p;
    if (u[0] < 0x80) {
        *out = u[0];
        return 1;
    }
    const uint32_t len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (u[0] < 0xC2 || u[0] > 0xF4 || n < len) return 0;
    uint32_t cp = u[0] & (0x7Fu >> len);
    for (uint32_t i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        cp = (cp << 6) | (u[i] & 0x3Fu);
    }
    if (cp < least[len] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return 0;
    *out = cp;
    return len;
}

/* Length of the longest prefix of p[0..n) that is UTF-8: n if all of it is. */
static inline uint64_t pleat__utf8_prefix(const char *p, uint64_t n) {
    uint64_t at = 0;
    while (at < n) {
        uint32_t cp;
        const uint32_t len = pleat__utf8_decode(p + at, n - at, &cp);
        if (len == 0) break;
        at += len;
    }
    return at;
}

/* Look at the character that starts at p[0..n), n > 0.  Returns its length if it is whole, 0 if these bytes are the head
 * of one that may still become valid, and -k if the first k bytes can be part of none. */
static inline int pleat__utf8_look(const char *p, uint64_t n) {
    const uint8_t *u = (const uint8_t *)p;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4) return -1;
    const int len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    /* The second byte's range is narrower where a shorter form, a surrogate or the end of Unicode lies. */
    uint8_t low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < len; i++, low = 0x80, high = 0xBF) {
        if ((uint64_t)i == n) return 0;
        if (u[i] < low || u[i] > high) return -i;
    }
    return len;
}

#endif
