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

#endif
