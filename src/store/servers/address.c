/* SPDX-License-Identifier: MIT
 *
 * address.c: see address.h.
 */
#include "store/servers/address.h"

#include <string.h>

/* The port in the n digits at p; 0: there is none. */
static uint16_t port_of(const char *p, size_t n) {
    uint32_t port = 0;
    if (n == 0 || n > 5) return 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return 0;
        port = port * 10 + (uint32_t)(p[i] - '0');
    }
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* May this stand in a host's name, or in brackets? */
static bool is_host(const char *p, size_t n, bool in_brackets) {
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_word && c != '.' && (in_brackets ? c != ':' : c != '-' && c != '_')) return false;
    }
    return n > 0 && n < PLEAT__SERVER_HOST_CAP;
}

/* HOST:PORT, [n] */
static bool read_address(const char *p, size_t n, pleat__server_address *out) {
    size_t colon = n;
    while (colon > 0 && p[colon - 1] != ':') colon--;
    if (colon < 2) return false;
    const char *host = p;
    size_t n_host = colon - 1;
    const bool in_brackets = n_host >= 2 && p[0] == '[' && p[n_host - 1] == ']';
    if (in_brackets) host++, n_host -= 2;
    if (!is_host(host, n_host, in_brackets)) return false;
    *out = (pleat__server_address){.port = port_of(p + colon, n - colon)};
    memcpy(out->host, host, n_host);
    return out->port > 0;
}

static int digit_of(char c) {
    static const char digits[] = "0123456789abcdef";
    const char low = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
    const char *at = c ? strchr(digits, low) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The word in these n bytes, its %XX taken for bytes. */
static bool read_word(const char *p, size_t n, char out[PLEAT__SERVER_WORD_CAP]) {
    size_t n_out = 0;
    for (size_t i = 0; i < n && n_out < PLEAT__SERVER_WORD_CAP - 1; i++) {
        const bool is_coded = p[i] == '%';
        const int high = is_coded && i + 2 < n ? digit_of(p[i + 1]) : -1, low = high >= 0 ? digit_of(p[i + 2]) : -1;
        if (is_coded ? low < 0 || high + low == 0 : strchr("@,:/", p[i]) != NULL) return false;
        out[n_out++] = is_coded ? (char)(16 * high + low) : p[i];
        i += is_coded ? 2 : 0;
        if (i + 1 == n) out[n_out] = 0;
        if (i + 1 == n) return true;
    }
    out[0] = 0;
    return n == 0;
}

/* [USER]:PASSWORD, [n] */
static bool read_login(const char *p, size_t n, pleat__server_login *out) {
    const char *colon = memchr(p, ':', n);
    const size_t n_user = colon ? (size_t)(colon - p) : 0;
    return colon && read_word(p, n_user, out->user) && read_word(colon + 1, n - n_user - 1, out->password) &&
           out->password[0];
}

uint32_t pleat__server_addresses(const char *text, pleat__server_address out[PLEAT__SERVERS_MAX],
                                 pleat__server_login *login) {
    static const char scheme[] = "redis://";
    uint32_t n = 0;
    *login = (pleat__server_login){0};
    if (strncmp(text, scheme, sizeof scheme - 1) != 0) return 0;
    const char *p = text + sizeof scheme - 1, *at = strchr(p, '@');
    if (at && !read_login(p, (size_t)(at - p), login)) return 0;
    for (p = at ? at + 1 : p;; n++) {
        const size_t length = strcspn(p, ",");
        if (n == PLEAT__SERVERS_MAX || !read_address(p, length, &out[n])) return 0;
        p += length;
        if (*p++ == 0) return n + 1;
    }
}
