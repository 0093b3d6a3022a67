/* SPDX-License-Identifier: MIT
 *
 * keys.h: the keys of --api-key-file, one a line; blank lines and those that begin with # are none.
 */
#ifndef PLEAT_CLI_SERVE_KEYS_H
#define PLEAT_CLI_SERVE_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum { KEY_MAX = 256, KEYS_MAX = 1024 };

typedef struct api_keys {
    char (*keys)[KEY_MAX]; /* [n] each filled up with zeros; NULL: no key is asked for */
    uint32_t n;
} api_keys;

/* Read the keys of a text.  0, or the number of the line that is too long or, with KEYS_MAX lines, one too many; SIZE_MAX
 * where there is no key at all. */
size_t keys_read(const char *text, size_t n_bytes, api_keys *out);
void keys_release(api_keys *keys);

/* Is it one of them?  The time does not depend on how much of a key is right, nor on which. */
int keys_have(const api_keys *keys, const char *key);

#endif
