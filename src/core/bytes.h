/* SPDX-License-Identifier: MIT
 *
 * bytes.h: bytes as digits; and memmem(), which every system has but Windows.
 */
#ifndef PLEAT_CORE_BYTES_H
#define PLEAT_CORE_BYTES_H

#include <stdint.h>
#include <string.h>

/* n bytes as 2*n lower-case hexadecimal digits, and a NUL. */
static inline void pleat__put_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = 0;
}

#ifdef _WIN32
/* The first place in hay[0..n_hay) where needle[0..n) stands, NULL if there is none. */
static inline void *pleat__find_bytes(const void *hay, size_t n_hay, const void *needle, size_t n) {
    const char *at = hay, *const end = at + n_hay;
    for (; (size_t)(end - at) >= n; at++)
        if (memcmp(at, needle, n) == 0) return (void *)(uintptr_t)at;
    return NULL;
}
#define memmem pleat__find_bytes
#endif

#endif
