/* SPDX-License-Identifier: MIT
 *
 * service.c: see service.h.
 */
#include "service.h"

#include <math.h>
#include <string.h>

#include "common.h"

enum { PREFIX_TOKENS = 512 };

const char *const service_preemptions[] = {"cheaper", "swap", "recompute", NULL};
_Static_assert(sizeof(pleat_preemption) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");

void service_defaults(service_options *o) {
    pleat_serving_options serving;
    pleat_serving_options_default(&serving);
    o->swap_bytes = serving.swap_bytes;
    o->prefix_tokens = UINT32_MAX;
}

int service_check(const service_options *o) {
    const float *low_high = o->watermarks.v;
    if (!o->watermarks.n || (low_high[0] > 0 && low_high[0] <= low_high[1])) return CLI_OK;
    cli_error("--watermarks: LOW is above 0 and HIGH no less than LOW");
    return CLI_USAGE;
}

int service_prefix_tokens(const service_options *o, uint32_t chunk_tokens, uint32_t max_tokens, uint32_t *out) {
    const uint32_t chunk = chunk_tokens < max_tokens ? chunk_tokens : max_tokens;
    const int is_given = o->prefix_tokens != UINT32_MAX;
    *out = is_given ? o->prefix_tokens : (PREFIX_TOKENS + chunk - 1) / chunk * chunk;
    if (*out % chunk == 0) return CLI_OK;
    cli_error("--prefix-tokens %u is no multiple of %u, the prompt tokens of a step (-b, the context at most)", *out,
              chunk);
    return CLI_USAGE;
}

void service_set_engine(const service_options *o, uint32_t max_running, pleat_engine_options *opt) {
    opt->max_items = max_running;
    opt->max_seqs = max_running + SERVICE_PREFIXES;
    opt->step_tokens = opt->chunk_tokens + max_running; /* a chunk fits beside a token of everybody */
    opt->page_tokens = o->page_tokens;
    opt->pool_bytes = o->pool_bytes;
}

/* A decimal as it was written, not as a float has it: 0.6f is 0.600000024. */
static double decimal(float v) { return round((double)v * 1e6) / 1e6; }

void service_set_serving(const service_options *o, uint32_t prefix_tokens, pleat_serving_options *opt) {
    pleat_serving_options_default(opt);
    opt->prefix_tokens = prefix_tokens;
    opt->preemption = o->preempt;
    opt->swap_bytes = o->swap_bytes;
    if (!o->watermarks.n) return;
    opt->low_watermark = decimal(o->watermarks.v[0]);
    opt->high_watermark = decimal(o->watermarks.v[1]);
}

/* ---- the store ---------------------------------------------------------------------------------------- */

#define DEFAULT_STORE_BYTES ((uint64_t)8 << 30)

static int has_scheme(const char *place) { return strstr(place, "://") != NULL; }

/* A slip in an address would else be seen in /metrics alone. */
static void note_down(pleat_store *store) {
    pleat_store_stats s;
    pleat_store_get_stats(store, &s);
    if (s.servers_down == 0) return;
    cli_note("--store: %u of %u servers did not answer; until they do, nothing is kept there and nothing found",
             s.servers_down, s.n_servers);
}

int store_open(const store_options *o, int quiet, pleat_store **out) {
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
    opt.max_bytes = o->bytes ? o->bytes : DEFAULT_STORE_BYTES;
    if (o->ttl_s) opt.ttl_s = o->ttl_s;
    const pleat_status status = pleat_store_open(&opt, out, &err);
    if (status != PLEAT_OK) return cli_fail("--store", status, &err);
    if (!quiet) note_down(*out);
    return CLI_OK;
}
