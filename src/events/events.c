/* SPDX-License-Identifier: MIT
 *
 * events.c: which blocks are kept, and what is told of it.
 *
 * A kept prefix has the blocks of the one that it goes on from, and its own behind them.  So with a block that is kept all before it
 * are, and those that are new are a prefix's last ones.
 */
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "events/blocks.h"
#include "events/publisher.h"

struct pleat_events_prefix {
    uint32_t n_before; /* blocks of the one that it goes on from */
    uint32_t n_own;
    uint64_t last;     /* hash of the last block of all; where there is none, what stands before the first */
    uint64_t hashes[]; /* [n_own] */
};

struct pleat_events {
    pleat_allocator al;
    uint32_t block_tokens;
    pleat__blocks blocks;
    pleat__publisher *publisher;
};

void pleat_events_options_default(pleat_events_options *opt) {
    if (opt)
        *opt = (pleat_events_options){.size_bytes = sizeof *opt,
                                      .topic = "",
                                      .block_tokens = 16,
                                      .replay_batches = 10000,
                                      .replay_bytes = 64u << 20};
}

/* ---- open and close ----------------------------------------------------------------------------------------------- */

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "events: " __VA_ARGS__)

static pleat_status check_options(const pleat_events_options *o, pleat_error *err) {
    REQUIRE(o && o->size_bytes == sizeof *o, "options are not from pleat_events_options_default()");
    REQUIRE(o->endpoint && o->endpoint[0], "no endpoint");
    REQUIRE(o->topic && strlen(o->topic) < 256, "no topic, or one of more than 255 bytes");
    REQUIRE(o->block_tokens >= 1 && o->block_tokens <= 65536, "block_tokens is not 1 to 65536");
    REQUIRE(o->replay_bytes >= 1, "replay_bytes is 0");
    REQUIRE(o->replay_batches >= 1 && o->replay_batches <= 1u << 24, "replay_batches is not 1 to 2^24");
    PLEAT_FAIL_IF(!pleat__wire_exists(), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "events: this build has no msgpack (Debian package libmsgpack-dev), which they are written in");
    return PLEAT_OK;
}

static void tell_cleared(pleat_events *e) {
    pleat__publisher_post(e->publisher, pleat__pack_cleared(&e->al, pleat__wall_s()));
}

pleat_status pleat_events_open(const pleat_events_options *o, pleat_events **out, pleat_error *err) {
    REQUIRE(out, "no place for the result");
    PLEAT_TRY(check_options(o, err));
    const pleat_allocator al = pleat__allocator_or_default(o->allocator);
    pleat_events *e = pleat__alloc_zero(&al, 1, sizeof *e);
    PLEAT_FAIL_IF(!e, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "events: out of memory");
    e->al = al;
    e->block_tokens = o->block_tokens;
    const pleat_status status = pleat__publisher_open(o, &e->al, &e->publisher, err);
    if (status == PLEAT_OK)
        tell_cleared(e);
    else
        pleat__free(&al, e, 1, sizeof *e);
    if (status == PLEAT_OK) *out = e;
    return status;
}

void pleat_events_close(pleat_events **events) {
    if (!events || !*events) return;
    pleat_events *e = *events;
    tell_cleared(e);
    pleat__publisher_close(e->publisher);
    pleat__blocks_release(&e->blocks, &e->al);
    const pleat_allocator al = e->al;
    pleat__free(&al, e, 1, sizeof *e);
    *events = NULL;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------- */

static uint64_t prefix_bytes(uint32_t n_own) {
    return sizeof(pleat_events_prefix) + (uint64_t)n_own * sizeof(uint64_t);
}

/* Count its own blocks.  Returns how many of them others have. */
static uint32_t add_own(pleat_events *e, pleat_events_prefix *p, const pleat_token *tokens) {
    uint32_t n_known = 0;
    for (uint32_t i = 0; i < p->n_own; i++) {
        p->last = pleat__blocks_next(p->last, tokens + (size_t)(p->n_before + i) * e->block_tokens, e->block_tokens);
        p->hashes[i] = p->last;
        n_known += !pleat__blocks_add(&e->blocks, p->last);
    }
    return n_known;
}

static void tell_stored(pleat_events *e, const pleat_events_prefix *p, const pleat_events_prefix *from,
                        uint32_t n_known, const char *salt, const pleat_token *tokens) {
    const uint32_t n_before = p->n_before + n_known;
    const pleat__stored s = {.hashes = p->hashes + n_known,
                             .n = p->n_own - n_known,
                             .has_before = n_before > 0,
                             .before = n_known > 0 ? p->hashes[n_known - 1]
                                       : from      ? from->last
                                                   : 0,
                             .tokens = tokens + (size_t)n_before * e->block_tokens,
                             .block_tokens = e->block_tokens,
                             .salt = salt};
    if (s.n > 0) pleat__publisher_post(e->publisher, pleat__pack_stored(&e->al, &s, pleat__wall_s()));
}

pleat_status pleat_events_keep(pleat_events *e, const pleat_events_prefix *from, const char *salt,
                               const pleat_token *tokens, uint32_t n_tokens, pleat_events_prefix **out) {
    if (!e || !tokens || !out) return PLEAT_E_ARG;
    const uint32_t n_before = from ? from->n_before + from->n_own : 0, n = n_tokens / e->block_tokens;
    *out = NULL;
    if (n < n_before) return PLEAT_E_ARG;
    pleat_events_prefix *p = pleat__alloc(&e->al, 1, prefix_bytes(n - n_before));
    if (!p) return PLEAT_E_MEMORY;
    *p = (pleat_events_prefix){n_before, n - n_before, from ? from->last : pleat__blocks_start(salt)};
    if (pleat__blocks_reserve(&e->blocks, &e->al, p->n_own) != PLEAT_OK) {
        pleat__free(&e->al, p, 1, prefix_bytes(p->n_own));
        return PLEAT_E_MEMORY;
    }
    const uint32_t n_known = add_own(e, p, tokens);
    tell_stored(e, p, from, n_known, salt, tokens);
    *out = p;
    return PLEAT_OK;
}

void pleat_events_forget(pleat_events *e, pleat_events_prefix **prefix) {
    if (!e || !prefix || !*prefix) return;
    pleat_events_prefix *p = *prefix;
    uint32_t n_gone = 0;
    for (uint32_t i = 0; i < p->n_own; i++)
        if (pleat__blocks_drop(&e->blocks, p->hashes[i])) p->hashes[n_gone++] = p->hashes[i];
    if (n_gone > 0)
        pleat__publisher_post(e->publisher, pleat__pack_removed(&e->al, p->hashes, n_gone, pleat__wall_s()));
    pleat__free(&e->al, p, 1, prefix_bytes(p->n_own));
    *prefix = NULL;
}

void pleat_events_get_stats(pleat_events *e, pleat_events_stats *out) {
    if (!e || !out) return;
    pleat__publisher_get_stats(e->publisher, out);
}
