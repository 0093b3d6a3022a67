/* SPDX-License-Identifier: MIT
 *
 * keys.h: the keys of --api-key-file, one a line, and what holds for who has them; blank lines and those that begin with #
 * are none.
 *
 *     KEY [tenant=NAME] [quota=SHARE] [weight=N] [priority=N] [time-limit-ms=N] [admin=on]
 *
 * Keys of one tenant share its quota of the pool and its weight among those who wait (serving.h), which one of their lines
 * says.  Keys without a tenant are of the tenant "".  Of two lines with one key the last counts.
 */
#ifndef PLEAT_CLI_SERVE_KEYS_H
#define PLEAT_CLI_SERVE_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum { KEY_MAX = 256, KEYS_MAX = 1024, TENANT_CAP = 64, TENANTS_MAX = 256 };

typedef struct key_terms {
    uint32_t tenant; /* index */
    int has_priority;
    int32_t priority;       /* of requests that ask for none, and the highest */
    uint64_t time_limit_ms; /* of each request at most; 0: none */
    int is_admin;           /* kept prefixes are shown, pinned, compressed and dropped for it (admin.h) */
} key_terms;

typedef struct key_tenant {
    char name[TENANT_CAP];
    double quota;    /* share of the pool, 0..1; 0: what others leave */
    uint32_t weight; /* 0: not said, which is 1 */
} key_tenant;

typedef struct api_keys {
    char (*keys)[KEY_MAX]; /* [n] each filled up with zeros; NULL: no key is asked for */
    key_terms *terms;      /* [n] */
    uint32_t n;
    key_tenant *tenants; /* [n_tenants] the first is "" */
    uint32_t n_tenants;
} api_keys;

/* Read the keys of a text.  0, or the number of the line that is refused, or SIZE_MAX where there is no key at all; then
 * with words in why [cap]. */
size_t keys_read(const char *text, size_t n_bytes, api_keys *out, char *why, size_t cap);
void keys_release(api_keys *keys);

/* The terms of a key; NULL: it is none of them.  The time does not depend on how much of a key is right, nor on which. */
const key_terms *keys_find(const api_keys *keys, const char *key);

#endif
