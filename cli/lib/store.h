/* SPDX-License-Identifier: MIT
 *
 * store.h: the options of a store, of `pleat serve` and `pleat bench serve`.
 */
#ifndef PLEAT_CLI_LIB_STORE_H
#define PLEAT_CLI_LIB_STORE_H

#include <stdint.h>

#include "cli/lib/options.h"
#include "pleat/store.h"

typedef struct store_options {
    const char *place; /* a folder or servers; NULL: no store */
    uint64_t bytes;    /* 0: not given */
    uint32_t ttl_s;    /* 0: not given */
} store_options;

/* clang-format off */
#define STORE_ROWS(type, member)                                                                                       \
    {GROUP_SERVICE, "store", NULL, "PLACE",                                                                            \
     "keep prefixes there too, so that they last: a folder, or redis://HOST:PORT[,HOST:PORT]..",                       \
     KIND_TEXT, .offset = offsetof(type, member.place)},                                                               \
    {GROUP_SERVICE, "store-bytes", NULL, "BYTES", "of a folder's files (default 8GiB)", KIND_BYTES,                    \
     .offset = offsetof(type, member.bytes), 4096, 0x1p62, .needs = "store"},                                          \
    {GROUP_SERVICE, "store-ttl", NULL, "S", "seconds that servers keep what nobody reads (default 86400)", KIND_U32,   \
     .offset = offsetof(type, member.ttl_s), 1, 0x7fffffff, .needs = "store"}
/* clang-format on */

/* Open it, if there is one.  CLI_OK, or another after a message. */
int store_open(const store_options *o, pleat_store **out);

#endif
