/* SPDX-License-Identifier: MIT
 *
 * keys.c: see keys.h.
 */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

size_t keys_read(const char *text, size_t n_bytes, api_keys *out) {
    *out = (api_keys){.keys = cli_alloc(KEYS_MAX, KEY_MAX)};
    size_t line = 0;
    for (size_t at = 0; at < n_bytes;) {
        const char *end = memchr(text + at, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - text) - at : n_bytes - at;
        const size_t next = at + n + 1;
        line++;
        while (n > 0 && is_blank(text[at])) at++, n--;
        while (n > 0 && is_blank(text[at + n - 1])) n--;
        const int is_key = n > 0 && text[at] != '#';
        if (is_key && (n >= KEY_MAX || out->n == KEYS_MAX)) return line;
        if (is_key) memcpy(out->keys[out->n++], text + at, n);
        at = next;
    }
    return out->n > 0 ? 0 : SIZE_MAX;
}

void keys_release(api_keys *keys) {
    if (keys->keys) memset(keys->keys, 0, (size_t)KEYS_MAX * KEY_MAX);
    free(keys->keys);
    *keys = (api_keys){0};
}

int keys_have(const api_keys *keys, const char *key) {
    char padded[KEY_MAX] = {0};
    unsigned found = 0;
    const size_t n = strlen(key);
    if (n == 0 || n >= KEY_MAX) return 0;
    memcpy(padded, key, n);
    for (uint32_t i = 0; i < keys->n; i++) {
        volatile unsigned differs = 0;
        for (size_t j = 0; j < KEY_MAX; j++) differs |= (unsigned char)(padded[j] ^ keys->keys[i][j]);
        found |= differs == 0;
    }
    return (int)found;
}
