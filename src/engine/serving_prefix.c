/* SPDX-License-Identifier: MIT
 *
 * serving_prefix.c: prefixes that requests share.
 *
 * A prompt is cut at every multiple of chunk_tokens, at its breakpoints and at its end.  Of these cuts the multiples of
 * prefix_tokens and the breakpoints are stops, where the cache seals what it holds and the prefix so far may be kept:
 *
 *     0 ---- 512 ---- 1024 -- breakpoint 1300 -- 1536 ---- 2048 - end 2100        chunks of 256, prefix_tokens 512
 *             S        S          S               S          S                    S: stop; chunks between are MORE
 *
 * Whoever continues a prefix has to have cut it in the same places, since the cuts are part of what the bits depend on.
 * Multiples are in place for everybody; a breakpoint elsewhere is not.  So the tree is given not the tokens alone but
 * the path, with a mark behind each breakpoint that is no multiple of prefix_tokens:
 *
 *     path of the above: 1300 tokens, -1, 800 tokens
 *
 * The end is a stop where the request says so by a breakpoint there: then the next turn of a conversation, which has
 * breakpoints at 1300 and 2100, begins from it.  Else nothing is kept there, since it would not be for nothing: with a
 * policy the pages of the window and both sides' last ones stand twice from then on, and what is sealed is not
 * compressed any further.
 *
 * At a breakpoint all full pages are sealed, those of the window too, since others are expected to begin there; at a
 * multiple those of classed tokens alone, since most are never used by anybody else.
 *
 * At least one token of a prompt is left to compute, since its logits are wanted.
 */
#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "engine/serving_internal.h"

#define MARK (-1)

/* ---- cuts, stops, paths ---------------------------------------------------------------------------- */

static uint32_t next_multiple(uint32_t n, uint32_t of) { return n - n % of + of; } /* beyond n; below 2^26 */

/* The request's first breakpoint beyond n; UINT32_MAX if there is none. */
static uint32_t next_break(const pleat__served *r, uint32_t n) {
    uint32_t low = 0, high = r->n_breaks;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (r->breaks[middle] > n)
            high = middle;
        else
            low = middle + 1;
    }
    return low < r->n_breaks ? r->breaks[low] : UINT32_MAX;
}

uint32_t pleat__serving_next_cut(const pleat_serving *s, const pleat__served *r, uint32_t n) {
    const uint32_t at = pleat__min_u32(next_multiple(n, s->backend.shape.chunk_tokens), next_break(r, n));
    return pleat__min_u32(at, r->n_prompt);
}

/* May be beyond the prompt. */
static uint32_t next_stop(const pleat_serving *s, const pleat__served *r, uint32_t n) {
    return pleat__min_u32(next_multiple(n, s->opt.prefix_tokens), next_break(r, n));
}

uint32_t pleat__serving_seal_at(const pleat_serving *s, const pleat__served *r, uint32_t n) {
    if (s->opt.prefix_tokens == 0 || next_stop(s, r, n - 1) != n) return 0;
    return n % s->opt.prefix_tokens == 0 ? PLEAT_ITEM_SEAL : PLEAT_ITEM_SEAL_ALL;
}

/* Write the path of the request's first n >= 1 tokens into s->path, the mark of a stop at n included; returns its
 * length. */
static uint32_t path_of(pleat_serving *s, const pleat__served *r, uint32_t n) {
    uint32_t at = 0;
    for (uint32_t from = 0; from < n;) {
        const uint32_t to = pleat__min_u32(next_break(r, from), n);
        memcpy(s->path + at, r->tokens + from, (to - from) * sizeof *s->path);
        at += to - from;
        if (next_break(r, to - 1) == to && to % s->opt.prefix_tokens != 0) s->path[at++] = MARK;
        from = to;
    }
    return at;
}

/* ---- use ------------------------------------------------------------------------------------------- */

pleat__kept_id pleat__serving_find(pleat_serving *s, const pleat__served *r, bool *waits) {
    *waits = false;
    if (!s->tree || r->root == PLEAT__NO_ROOT || r->shares_nothing || r->n_prompt == 1) return (pleat__kept_id){0};
    const uint32_t n = path_of(s, r, r->n_prompt - 1);
    const pleat__prefix any = pleat__radix_find(s->tree, r->root, s->path, n);
    if (!any.v) return (pleat__kept_id){0};
    pleat__prefix_info info = pleat__radix_info(s->tree, any);
    *waits = !info.is_kept;
    if (info.is_kept) return (pleat__kept_id){info.value};
    const pleat__prefix entry = pleat__radix_find_kept(s->tree, r->root, s->path, n);
    return (pleat__kept_id){entry.v ? pleat__radix_info(s->tree, entry).value : 0};
}

uint64_t pleat__serving_lock_pages(const pleat_serving *s, pleat__kept_id kept) {
    uint64_t n = 0;
    for (; kept.v && s->kept[kept.v].n_users == 0; kept = s->kept[kept.v].parent) n += s->kept[kept.v].added_pages;
    return n;
}

void pleat__serving_use(pleat_serving *s, pleat__kept_id kept) {
    if (kept.v) pleat__radix_lock(s->tree, s->kept[kept.v].entry);
    for (; kept.v; kept = s->kept[kept.v].parent)
        if (s->kept[kept.v].n_users++ == 0) s->evictable_pages -= s->kept[kept.v].added_pages;
}

void pleat__serving_unuse(pleat_serving *s, pleat__kept_id kept) {
    if (kept.v) pleat__radix_unlock(s->tree, s->kept[kept.v].entry);
    for (; kept.v; kept = s->kept[kept.v].parent)
        if (--s->kept[kept.v].n_users == 0) s->evictable_pages += s->kept[kept.v].added_pages;
}

/* ---- promises -------------------------------------------------------------------------------------- */

void pleat__serving_promise(pleat_serving *s, pleat__served *r) {
    assert(!r->promise.v);
    const uint32_t stop = r->keeps ? next_stop(s, r, r->n_stored) : UINT32_MAX;
    if (stop > r->n_prompt) return;
    const uint32_t n = path_of(s, r, stop);
    pleat__prefix entry;
    r->keeps = pleat__radix_promise(s->tree, r->root, s->path, n, &entry) == PLEAT_OK;
    if (!r->keeps) return;
    r->promise = entry;
    r->promised_stop = stop;
}

void pleat__serving_forget(pleat_serving *s, pleat__served *r) {
    if (!r->promise.v) return;
    (void)pleat__radix_remove(s->tree, r->promise);
    r->promise.v = 0;
    s->promises_version++;
}

/* ---- keep and evict -------------------------------------------------------------------------------- */

/* A place for one more, evicting for it if need be. */
static pleat__kept_id take_place(pleat_serving *s) {
    if (!s->kept_free && !pleat__serving_evict(s)) return (pleat__kept_id){0};
    const pleat__kept_id id = {s->kept_free};
    s->kept_free = s->kept[id.v].n_users;
    s->kept[id.v] = (pleat__kept){0};
    s->n_kept++;
    return id;
}

static void give_place(pleat_serving *s, pleat__kept_id id) {
    s->kept[id.v] = (pleat__kept){.n_users = s->kept_free};
    s->kept_free = id.v;
    s->n_kept--;
}

/* Fork what the request holds; a token more than it has, so that it can be asked what going on would copy. */
static bool fork_into(pleat_serving *s, const pleat__served *r, pleat__kept *k) {
    const uint64_t left = pleat__serving_leave();
    const bool done = s->backend.fork(s->backend.ctx, r->seq, r->n_stored + 1, &k->seq) == PLEAT_OK;
    pleat__serving_back(s, left, true);
    return done;
}

/* Pages that whoever goes on from a kept sequence copies, now or later: (1) of cache/share.c.  Where high ones are
 * copied later they all are: the one page that each lane needs for a token is one of them, or a new one. */
static uint64_t count_copied(const pleat_serving *s, pleat_seq seq) {
    void *ctx = s->backend.ctx;
    const uint64_t n_now = s->backend.pages_needed(ctx, seq, 1, PLEAT_ITEM_MORE), n_lanes = s->backend.shape.n_lanes;
    if (!s->backend.shape.shares_late) return n_now;
    uint64_t n_high, n_low;
    s->backend.pages_by_side(ctx, seq, &n_high, &n_low);
    return n_high + (n_now > n_lanes ? n_now - n_lanes : 0);
}

void pleat__serving_keep(pleat_serving *s, pleat__served *r) {
    const pleat__kept_id id = take_place(s);
    pleat__kept *k = &s->kept[id.v];
    if (!id.v || !fork_into(s, r, k)) {
        if (id.v) give_place(s, id);
        pleat__serving_forget(s, r);
        r->keeps = false;
        return;
    }
    k->entry = r->promise;
    k->parent = r->base;
    k->n_tokens = r->n_stored;
    s->kept[k->parent.v].n_children++;
    k->added_pages = r->own_pages;
    k->copied_pages = count_copied(s, k->seq);
    s->own_pages -= r->own_pages;
    s->added_pages += k->added_pages;
    s->evictable_pages += k->added_pages;
    r->own_pages = 0;
    r->own_changes = true;
    pleat__radix_keep(s->tree, k->entry, id.v);
    pleat__serving_use(s, id);
    pleat__serving_unuse(s, r->base);
    r->base = id;
    r->promise.v = 0;
    s->promises_version++;
    pleat__serving_promise(s, r);
}

/* Remove a prefix that nobody uses and nothing stands on. */
static void remove_kept(pleat_serving *s, pleat__kept_id id) {
    const pleat__kept *k = &s->kept[id.v];
    assert(k->seq.v && k->n_users == 0 && k->n_children == 0);
    (void)pleat__radix_remove(s->tree, k->entry);
    pleat__serving_lose_images(s, id);
    const uint64_t left = pleat__serving_leave();
    s->backend.close(s->backend.ctx, k->seq);
    pleat__serving_back(s, left, true);
    s->added_pages -= k->added_pages;
    s->evictable_pages -= k->added_pages;
    s->kept[k->parent.v].n_children--;
    give_place(s, id);
}

bool pleat__serving_evict(pleat_serving *s) {
    const pleat__prefix leaf = s->tree ? pleat__radix_oldest_leaf(s->tree) : (pleat__prefix){0};
    if (!leaf.v) return false;
    remove_kept(s, (pleat__kept_id){pleat__radix_info(s->tree, leaf).value});
    s->stats.evicted++;
    return true;
}

/* Pages that only the prefix holds which the request stands on; nobody else stands on it. */
static uint64_t pages_between(const pleat_serving *s, const pleat__served *r) {
    const pleat__kept *k = &s->kept[r->base.v];
    const uint64_t n_above =
        k->parent.v ? s->backend.pages_shared(s->backend.ctx, r->seq, s->kept[k->parent.v].seq) : 0;
    return k->added_pages + r->own_pages - (r->n_pages - n_above);
}

bool pleat__serving_leave_base(pleat_serving *s, pleat__served *r, bool all) {
    const uint64_t n_free = pleat__serving_free_pages(s);
    while (r->base.v) {
        const pleat__kept_id id = r->base, parent = s->kept[id.v].parent;
        const pleat__kept *k = &s->kept[id.v];
        if (k->n_users > 1 || k->n_hits > 0 || k->n_children > 0) break;
        if (!all && pages_between(s, r) == 0) break;
        pleat__serving_use(s, parent);
        pleat__serving_unuse(s, id);
        r->base = parent;
        remove_kept(s, id);
        s->stats.evicted++;
        pleat__serving_count_own(s, r);
    }
    return pleat__serving_free_pages(s) > n_free;
}

bool pleat__serving_make_room(pleat_serving *s, uint64_t n_pages) {
    while (pleat__serving_free_pages(s) < n_pages)
        if (!pleat__serving_evict(s)) return false;
    return true;
}
