/* SPDX-License-Identifier: MIT
 *
 * store.c: see store.h.
 */
#include "store.h"

#include <string.h>

#include "common.h"

#define DEFAULT_BYTES ((uint64_t)8 << 30)

static int has_scheme(const char *place) { return strstr(place, "://") != NULL; }

int store_open(const store_options *o, pleat_store **out) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_store_options opt;
    if (!o->place) return CLI_OK;
    const int is_servers = has_scheme(o->place);
    if (is_servers ? o->bytes > 0 : o->ttl_s > 0) {
        cli_error(is_servers ? "--store-bytes is of a folder: servers have a limit of their own (maxmemory)"
                             : "--store-ttl is of servers: what is in a folder goes when --store-bytes are full");
        return CLI_USAGE;
    }
    pleat_store_options_default(&opt);
    if (is_servers)
        opt.servers = o->place;
    else
        opt.dir = o->place;
    opt.max_bytes = o->bytes ? o->bytes : DEFAULT_BYTES;
    if (o->ttl_s) opt.ttl_s = o->ttl_s;
    const pleat_status status = pleat_store_open(&opt, out, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("--store", status, &err);
}
