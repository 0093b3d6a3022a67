/* SPDX-License-Identifier: MIT
 *
 * utf8.c: see utf8.h.
 */
#include "utf8.h"

#include <stdio.h>
#include <string.h>

/* Look at the character that starts at s[0], n >= 1 bytes being there.  Returns its length if it is valid, 0 if the n
 * bytes are the head of one that may still become valid, and -k if the first k bytes can be part of none. */
static int character(const unsigned char *s, size_t n) {
    unsigned low = 0x80, high = 0xBF; /* range of the second byte: narrower where a shorter form or a surrogate lies */
    int length;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return -1;
    length = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (s[0] == 0xE0)
        low = 0xA0;
    else if (s[0] == 0xED)
        high = 0x9F;
    else if (s[0] == 0xF0)
        low = 0x90;
    else if (s[0] == 0xF4)
        high = 0x8F;
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) return 0;
        if (s[i] < low || s[i] > high) return -i;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

size_t utf8_first_invalid(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (i < n) {
        const int length = character(s + i, n - i);
        if (length <= 0) break;
        i += (size_t)length;
    }
    return i;
}

size_t utf8_decode(const char *text, size_t n, uint32_t *out) {
    static const unsigned char first_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07}; /* by length */
    const unsigned char *s = (const unsigned char *)text;
    const int length = character(s, n);
    *out = 0xFFFD;
    if (length <= 0) return 1;
    *out = s[0] & first_bits[length];
    for (int i = 1; i < length; i++) *out = *out << 6 | (s[i] & 0x3F);
    return (size_t)length;
}

static size_t put_replacement(char *out) {
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t utf8_stream_put(utf8_stream *s, const char *bytes, size_t n, char *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        s->held[s->n_held++] = bytes[i];
        for (;;) { /* a byte that cannot continue the held head ends it and is looked at again as a head of its own */
            const int length = s->n_held ? character((const unsigned char *)s->held, s->n_held) : 0;
            size_t used;
            if (length == 0) break;
            used = (size_t)(length > 0 ? length : -length);
            if (length > 0) {
                memcpy(out + n_out, s->held, used);
                n_out += used;
            } else {
                n_out += put_replacement(out + n_out);
            }
            s->n_held -= used;
            memmove(s->held, s->held + used, s->n_held);
        }
    }
    return n_out;
}

size_t utf8_stream_end(utf8_stream *s, char *out) {
    const size_t n_out = s->n_held ? put_replacement(out) : 0;
    s->n_held = 0;
    return n_out;
}

char *utf8_escape(const char *text, const char *keep, char *out) {
    return utf8_escape_bytes(text, strlen(text), keep, out);
}

char *utf8_escape_bytes(const char *text, size_t n, const char *keep, char *out) {
    char *end = out;
    while (n > 0) {
        const unsigned char *s = (const unsigned char *)text;
        const int length = character(s, n), n_used = length > 0 ? length : 1;
        if (length <= 0 || (s[0] < 0x20 && !(s[0] && strchr(keep, s[0]))) || s[0] == 0x7F)
            end += sprintf(end, "\\x%02x", s[0]);
        else if (s[0] == 0xC2 && s[1] < 0xA0)
            end += sprintf(end, "\\u%04x", s[1]);
        else
            end = (char *)memcpy(end, text, (size_t)n_used) + n_used;
        text += n_used;
        n -= (size_t)n_used;
    }
    *end = 0;
    return out;
}
