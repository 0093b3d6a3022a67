/* SPDX-License-Identifier: MIT
 *
 * tier.c: kept prefixes in a store, beside those in memory.
 *
 *     written    the last prefix that a prompt leaves, and one that a second request begins from
 *     read       where the store has a longer prefix than memory, and reading it is cheaper than computing what memory
 *                lacks, by what both have taken so far; once for a request
 *
 * What is read becomes the request's image, as if it had been swapped out there.  So admission, pages and the host memory
 * that images may take (swap_bytes) are those of swapped requests.
 *
 * An image's head has the prompt's tokens and the chunks in which they are read, flags included.  So a file serves who would
 * read them in the same chunks, as with prefixes in memory.
 */
#include <string.h>

#include "serving/internal.h"

#define READ_NS 1e6 /* of a read, whatever its length */

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
    return pleat__cost_recompute_ns(&s->cost, n_tokens, 0, 0, 0);
}

/* Is reading n_bytes cheaper than computing n_tokens? */
static bool pays(const pleat_serving *s, uint32_t n_tokens, uint64_t n_bytes) {
    const double read_ns = (double)n_bytes * 1e9 / pleat_store_read_speed(s->tier.store);
    return READ_NS + read_ns + pleat__cost_swap_ns(&s->cost, n_bytes) / 2 < compute_ns(s, n_tokens);
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

typedef struct source {
    const pleat__backend *backend;
    pleat_seq seq;
} source;

static pleat_status fill(void *ctx, void *body, uint64_t body_bytes) {
    const source *from = ctx;
    return from->backend->save_into(from->backend->ctx, from->seq, body, body_bytes);
}

void pleat__serving_store(pleat_serving *s, const pleat__request *r, pleat__kept_id id) {
    const pleat__kept *k = &s->prefixes.kept[id.v];
    pleat_image_head head;
    if (!s->tier.store || !make_head(s, r, make_steps(s, r, k->n_tokens), &head) || head.n_tokens != k->n_tokens)
        return;
    source from = {&s->backend, k->seq};
    head.body_bytes = s->backend.image_bytes(s->backend.ctx, k->seq, (pleat_seq){0});
    if (head.body_bytes == 0 || !pays(s, k->n_tokens, head.body_bytes)) return;
    const uint64_t paused = pleat__serving_pause();
    (void)pleat_store_put(s->tier.store, &head, compute_ns(s, k->n_tokens), fill, &from);
    pleat__serving_resume(s, paused, true);
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

/* The body of this head, as an image that has no base. */
static bool read_image(pleat_serving *s, const pleat_image_head *head, uint64_t n_bytes, pleat__image *out) {
    pleat__image image = {.data_bytes = n_bytes, .n_bytes = n_bytes};
    image.data = pleat__alloc(&s->al, 1, n_bytes);
    if (!image.data) return false;
    if (pleat_store_read(s->tier.store, head, image.data, n_bytes) == PLEAT_OK)
        image.n_pages = s->backend.image_pages(s->backend.ctx, image.data, n_bytes);
    if (image.n_pages == 0)
        pleat__free(&s->al, image.data, 1, n_bytes);
    else
        *out = image;
    return image.n_pages > 0;
}

/* Make what is found the request's image, if that pays. */
static bool take(pleat_serving *s, pleat__request *r, const pleat_image_head *head, uint64_t n_bytes, uint32_t n_have) {
    pleat__swapped_part part = {.keeps_base = true, .is_stored = true, .n_stored = head->n_tokens};
    if (n_bytes > pleat__less(s->opt.swap_bytes, s->stats.swapped_bytes) ||
        !pays(s, head->n_tokens - n_have, n_bytes)) {
        s->stats.store_costly++;
        return false;
    }
    const uint64_t paused = pleat__serving_pause();
    const bool is_read = read_image(s, head, n_bytes, &part.image);
    pleat__serving_resume(s, paused, true);
    part.image.max_tokens = r->n_prompt + r->n_predict;
    if (is_read) pleat__serving_hold_image(s, r, &part);
    return is_read;
}

bool pleat__serving_fetch(pleat_serving *s, pleat__request *r, pleat__kept_id from) {
    const uint32_t n_have = s->prefixes.kept[from.v].n_tokens;
    if (!s->tier.store || r->asked_store || r->root == PLEAT__NO_ROOT || r->shares_nothing) return false;
    r->asked_store = true;
    bool may_find = false;
    for (uint32_t n = make_steps(s, r, r->n_prompt - 1); n > 0; n--) {
        const pleat_image_step *last = &s->tier.steps[n - 1];
        pleat_image_head head;
        uint64_t n_bytes;
        if (last->first + last->n_tokens <= n_have) break;
        if (!(last->flags & (PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL)) || !make_head(s, r, n, &head)) continue;
        may_find = true;
        if (pleat_store_find(s->tier.store, &head, &n_bytes) == PLEAT_OK) return take(s, r, &head, n_bytes, n_have);
    }
    if (may_find) pleat_store_count_miss(s->tier.store);
    return false;
}
