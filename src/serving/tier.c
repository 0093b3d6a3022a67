/* SPDX-License-Identifier: MIT
 *
 * tier.c: kept prefixes in a store, beside those in memory.
 *
 *     written    the last prefix that a prompt leaves, the last before its end where the two differ, as who asks the same again
 *                begins from that, and one that a second request begins from
 *     read       where the store has a longer prefix than memory, and reading it is cheaper than computing what memory
 *                lacks, by what both have taken so far; once for a request
 *
 * Both are the store's threads' to do.  A request whose beginning is being looked for is deferred, and steps go on.  So is
 * one that begins with the same tokens, since what comes will be kept in memory.
 *
 * What is read becomes the request's image, as if it had been swapped out there.  So admission, pages and the host memory
 * that images may take (swap_bytes) are those of swapped requests.
 *
 * An image's head has the prompt's tokens and the chunks in which they are read, flags included.  So a file serves who would
 * read them in the same chunks, as with prefixes in memory.
 */
#include <string.h>

#include "serving/internal.h"

pleat_status pleat__tier_init(pleat_serving *s) {
    pleat__tier *t = &s->tier;
    t->store = s->opt.store;
    return t->store ? s->backend.describe(s->backend.ctx, &t->like) : PLEAT_OK;
}

/* ---- heads --------------------------------------------------------------------------------------------------------- */

/* Write the chunks of the request's prompt that end at n_end or before; up to one of a single token, which is no step. */
static uint32_t make_steps(pleat_serving *s, const pleat__request *r, uint32_t n_end) {
    uint32_t n = 0;
    for (uint32_t at = 0; at < n_end;) {
        const pleat__portion p = pleat__serving_portion(s, r, at);
        if (p.n_tokens < 2 || p.n_tokens > n_end - at) break;
        s->tier.steps[n++] = (pleat_image_step){at, p.n_tokens, p.flags};
        at += p.n_tokens;
    }
    return n;
}

/* The head of an image of the first n_steps of these.  False: there can be none. */
static bool make_head(const pleat_serving *s, const pleat__request *r, uint32_t n_steps, pleat_image_head *out) {
    const pleat__tier *t = &s->tier;
    const size_t n_salt = r->salt ? strlen(r->salt) : 0;
    if (n_steps == 0 || n_salt > PLEAT_IMAGE_SALT_MAX) return false;
    *out = t->like;
    out->spec = s->backend.shape.key;
    out->n_spec = (uint32_t)strlen(s->backend.shape.key);
    out->salt = r->salt;
    out->n_salt = (uint32_t)n_salt;
    out->tokens = r->tokens;
    out->n_tokens = t->steps[n_steps - 1].first + t->steps[n_steps - 1].n_tokens;
    out->steps = t->steps;
    out->n_steps = n_steps;
    return true;
}

static double compute_ns(const pleat_serving *s, uint32_t n_tokens) {
    const uint32_t n_chunks = pleat__div_up_u32(n_tokens, s->backend.shape.chunk_tokens);
    return pleat__cost_recompute_ns(&s->cost, n_chunks, n_tokens, 0, 0, 0);
}

/* Of a byte that has been read, until its tokens can be gone on from. */
static double restore_byte_ns(const pleat_serving *s) { return pleat__cost_swap_ns(&s->cost, 1) / 2; }

/* ---- writing ------------------------------------------------------------------------------------------------------- */

typedef struct source {
    const pleat__backend *backend;
    pleat_seq seq;
} source;

static pleat_status fill(void *ctx, void *body, uint64_t body_bytes) {
    const source *from = ctx;
    return from->backend->save_into(from->backend->ctx, from->seq, body, body_bytes);
}

/* Would reading it be cheaper than computing it? */
static bool pays(const pleat_serving *s, uint32_t n_tokens, uint64_t n_bytes) {
    const double byte_ns = 1e9 / pleat_store_read_speed(s->tier.store) + restore_byte_ns(s);
    return (double)n_bytes * byte_ns < compute_ns(s, n_tokens);
}

void pleat__serving_store(pleat_serving *s, const pleat__request *r, pleat__kept_id id) {
    const pleat__kept *k = &s->prefixes.kept[id.v];
    pleat_image_head head;
    if (!s->tier.store || k->is_compressed || !make_head(s, r, make_steps(s, r, k->n_tokens), &head) ||
        head.n_tokens != k->n_tokens)
        return;
    source from = {&s->backend, k->seq};
    head.body_bytes = s->backend.image_bytes(s->backend.ctx, k->seq, (pleat_seq){0});
    if (head.body_bytes == 0 || !pays(s, k->n_tokens, head.body_bytes)) return;
    const uint64_t paused = pleat__serving_pause(), start_ns = s->backend.clock_ns(s->backend.ctx);
    (void)pleat_store_put(s->tier.store, &head, compute_ns(s, k->n_tokens), fill, &from);
    s->step.swap_ns += s->backend.clock_ns(s->backend.ctx) - start_ns;
    pleat__serving_resume(s, paused, true);
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

static void wake(void *ctx) { pleat_serving_wake(ctx); }

bool pleat__serving_is_fetching(const pleat__request *r) {
    pleat_store_found found;
    const pleat__waiting_part *part = PLEAT__WAITING(r);
    return part->fetch && pleat_store_fetch_poll(part->fetch, &found) == PLEAT_AGAIN;
}

/* It has no fetch any more; *fetch is the one that it had. */
static void leave_list(pleat_serving *s, pleat__request *r, pleat_store_fetch **fetch) {
    pleat__waiting_part *part = PLEAT__WAITING(r);
    pleat__request **at = &s->tier.fetching;
    while (*at != r) at = &PLEAT__WAITING(*at)->next_fetching;
    *at = part->next_fetching;
    *fetch = part->fetch;
    part->fetch = NULL;
}

void pleat__serving_end_fetch(pleat_serving *s, pleat__request *r) {
    pleat_store_fetch *fetch;
    if (!PLEAT__WAITING(r)->fetch) return;
    leave_list(s, r, &fetch);
    pleat_store_fetch_end(&fetch);
}

void pleat__serving_refuse(const pleat__swapped_part *part) {
    if (!pleat_cache_image_is_whole(part->image.data, part->image.data_bytes)) pleat_store_fetch_refuse(part->fetch);
}

/* Make what has been found the request's image, unless memory has as much, or there is no room. */
static void take(pleat_serving *s, pleat__request *r, uint32_t n_have) {
    pleat__swapped_part part = {.keeps_base = true};
    pleat_store_found found;
    leave_list(s, r, &part.fetch);
    (void)pleat_store_fetch_poll(part.fetch, &found);
    const bool has_room = found.body_bytes <= pleat__less(s->opt.swap_bytes, s->stats.swapped_bytes);
    s->stats.store_costly += found.is_costly || !has_room;
    part.n_stored = found.n_tokens;
    part.image = (pleat__image){.data = found.body,
                                .data_bytes = found.body_bytes,
                                .n_bytes = found.body_bytes,
                                .max_tokens = r->n_prompt + r->n_predict};
    const bool is_wanted = found.body && has_room && found.n_tokens > n_have;
    if (is_wanted) part.image.n_pages = s->backend.image_pages(s->backend.ctx, found.body, found.body_bytes);
    if (part.image.n_pages > 0) {
        pleat__serving_hold_image(s, r, &part);
        return;
    }
    if (is_wanted) pleat__serving_refuse(&part);
    pleat_store_fetch_end(&part.fetch);
}

/* Beginnings of the first n_steps chunks that the store may have, the longest first, of more than n_have tokens. */
static uint32_t make_parts(const pleat_serving *s, uint32_t n_steps, uint32_t n_have) {
    const pleat__tier *t = &s->tier;
    uint32_t n = 0;
    for (uint32_t i = n_steps; i > 0; i--) {
        const pleat_image_step *last = &t->steps[i - 1];
        const uint32_t n_tokens = last->first + last->n_tokens;
        if (n_tokens <= n_have) break;
        if (last->flags & (PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL))
            t->parts[n++] = (pleat_store_part){i, compute_ns(s, n_tokens - n_have)};
    }
    return n;
}

/* Does somebody whose fetch is under way begin with these n_tokens tokens? */
static bool is_fetched_for(const pleat_serving *s, const pleat__request *r, uint32_t n_tokens) {
    for (const pleat__request *f = s->tier.fetching; f; f = PLEAT__WAITING(f)->next_fetching)
        if (f->root == r->root && f->n_prompt > n_tokens && pleat__serving_is_fetching(f) &&
            memcmp(f->tokens, r->tokens, n_tokens * sizeof *r->tokens) == 0)
            return true;
    return false;
}

/* Begin to look for one of these parts.  False: nothing is looked for. */
static bool begin_fetch(pleat_serving *s, pleat__request *r, const pleat_image_head *head, uint32_t n_parts) {
    pleat__waiting_part *part = PLEAT__WAITING(r);
    pleat_store_wish wish;
    pleat_store_wish_default(&wish);
    wish.head = head;
    wish.parts = s->tier.parts;
    wish.n_parts = n_parts;
    wish.max_bytes = pleat__less(s->opt.swap_bytes, s->stats.swapped_bytes);
    wish.byte_ns = restore_byte_ns(s);
    wish.wake = wake;
    wish.ctx = s;
    r->asked_store = true;
    if (pleat_store_fetch_begin(s->tier.store, &wish, &part->fetch) != PLEAT_OK) return false;
    part->next_fetching = s->tier.fetching;
    s->tier.fetching = r;
    return true;
}

bool pleat__serving_fetch(pleat_serving *s, pleat__request *r, pleat__kept_id from) {
    const uint32_t n_have = s->prefixes.kept[from.v].n_tokens;
    pleat_image_head head;
    if (PLEAT__WAITING(r)->fetch) take(s, r, n_have);
    if (!s->tier.store || r->asked_store || r->root == PLEAT__NO_ROOT || r->shares_nothing) return true;
    const uint32_t n_steps = make_steps(s, r, r->n_prompt - 1), n_parts = make_parts(s, n_steps, n_have);
    if (n_parts == 0 || !make_head(s, r, n_steps, &head)) return true;
    const pleat_image_step *shortest = &s->tier.steps[s->tier.parts[n_parts - 1].n_steps - 1];
    if (is_fetched_for(s, r, shortest->first + shortest->n_tokens)) return false;
    return !begin_fetch(s, r, &head, n_parts);
}
