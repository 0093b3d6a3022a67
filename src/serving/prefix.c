/* SPDX-License-Identifier: MIT
 *
 * prefix.c: prefixes that requests share: found, promised, kept, evicted.
 *
 *     nobody's ──promise──> being computed ──keep──> kept ──evict, leave_base──> gone
 *                             └──forget──> nobody's
 *
 * Which prefixes there may be, and what the tree knows them by, is said in chunks.c.  A kept one is a fork of the
 * sequence that computed it; its maker stands on it from then on, as do all who start from it.  They do as long as they
 * share a page with it: under eviction each has copied all of them after its first step, and leaves.  So does who goes on
 * from one whose fork copied all of it at once.
 *
 * At least one token of a prompt is left to compute, since its logits are wanted.
 */
#include <assert.h>

#include "core/error.h"
#include "serving/internal.h"

/* ---- pages of those who run ------------------------------------------------------------------------ */

void pleat__serving_count_own(pleat_serving *s, pleat__request *r) {
    void *ctx = s->backend.ctx;
    pleat__running_part *run = PLEAT__RUNNING(r);
    run->n_pages = s->backend.pages_of(ctx, run->seq);
    s->own_pages -= run->own_pages;
    run->own_pages = run->n_pages;
    if (run->base.v) run->own_pages -= s->backend.pages_shared(ctx, run->seq, s->prefixes.kept[run->base.v].seq);
    s->own_pages += run->own_pages;
}

void pleat__serving_leave_unshared(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    if (!run->base.v || run->own_pages < run->n_pages) return;
    pleat__serving_unuse(s, run->base);
    run->base.v = 0;
}

/* ---- use ------------------------------------------------------------------------------------------- */

pleat__kept_id pleat__serving_find(pleat_serving *s, const pleat__request *r, bool *waits) {
    const pleat__prefixes *p = &s->prefixes;
    *waits = false;
    if (!p->tree || r->root == PLEAT__NO_ROOT || r->shares_nothing || r->n_prompt == 1) return (pleat__kept_id){0};
    const uint32_t n = pleat__serving_path(s, r, r->n_prompt - 1);
    const pleat__prefix any = pleat__radix_find(p->tree, r->root, p->path, n);
    if (!any.v) return (pleat__kept_id){0};
    const pleat__prefix_info info = pleat__radix_info(p->tree, any);
    *waits = !info.is_kept;
    if (info.is_kept) return (pleat__kept_id){info.value};
    const pleat__prefix entry = pleat__radix_find_kept(p->tree, r->root, p->path, n);
    return (pleat__kept_id){entry.v ? pleat__radix_info(p->tree, entry).value : 0};
}

uint64_t pleat__serving_lock_pages(const pleat_serving *s, pleat__kept_id id) {
    const pleat__kept *kept = s->prefixes.kept;
    uint64_t n = 0;
    for (; id.v && kept[id.v].n_users == 0; id = kept[id.v].parent) n += kept[id.v].added_pages;
    return n;
}

void pleat__serving_use(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    if (id.v) pleat__radix_lock(p->tree, p->kept[id.v].entry);
    for (; id.v; id = p->kept[id.v].parent)
        if (p->kept[id.v].n_users++ == 0) p->evictable_pages -= p->kept[id.v].added_pages;
}

void pleat__serving_unuse(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    if (id.v) pleat__radix_unlock(p->tree, p->kept[id.v].entry);
    for (; id.v; id = p->kept[id.v].parent)
        if (--p->kept[id.v].n_users == 0) p->evictable_pages += p->kept[id.v].added_pages;
}

/* ---- promises -------------------------------------------------------------------------------------- */

void pleat__serving_promise(pleat_serving *s, pleat__request *r) {
    pleat__prefixes *p = &s->prefixes;
    pleat__running_part *run = PLEAT__RUNNING(r);
    assert(!run->promise.v);
    const uint32_t at = run->promises ? pleat__serving_next_breakpoint(s, r, run->n_stored) : UINT32_MAX;
    if (at > r->n_prompt) return;
    const uint32_t n = pleat__serving_path(s, r, at);
    pleat__prefix entry;
    run->promises = pleat__radix_promise(p->tree, r->root, p->path, n, &entry) == PLEAT_OK;
    if (!run->promises) return;
    run->promise = entry;
    run->promised_breakpoint = at;
}

void pleat__serving_forget(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    if (!run->promise.v) return;
    (void)pleat__radix_remove(s->prefixes.tree, run->promise);
    run->promise.v = 0;
    s->prefixes.version++;
}

/* ---- keep and evict -------------------------------------------------------------------------------- */

/* A cell for one more, evicting for it if need be. */
static pleat__kept_id take_cell(pleat_serving *s) {
    pleat__prefixes *p = &s->prefixes;
    if (!p->free_head && !pleat__serving_evict(s)) return (pleat__kept_id){0};
    const pleat__kept_id id = {p->free_head};
    p->free_head = p->kept[id.v].n_users;
    p->kept[id.v] = (pleat__kept){.id = ++p->n_kept_ever * ((uint64_t)s->opt.max_prefixes + 1) + id.v};
    p->n_kept++;
    return id;
}

static void return_cell(pleat_serving *s, pleat__kept_id id) {
    s->prefixes.kept[id.v] = (pleat__kept){.n_users = s->prefixes.free_head};
    s->prefixes.free_head = id.v;
    s->prefixes.n_kept--;
}

/* Fork what the request holds; a token more than it has, so that it can be asked what going on would copy. */
static bool fork_into(pleat_serving *s, const pleat__request *r, pleat__kept *k) {
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const uint64_t paused = pleat__serving_pause();
    const bool done = s->backend.fork(s->backend.ctx, run->seq, run->n_stored + 1, &k->seq) == PLEAT_OK;
    pleat__serving_resume(s, paused, true);
    return done;
}

/* Pages that whoever goes on from a kept sequence copies, as it forks, now or later: (1) of cache/fork.c.  Where high ones
 * are copied later they all are: the one page that each lane needs for a token is one of them, or a new one. */
static uint64_t count_copied(const pleat_serving *s, pleat_seq seq) {
    void *ctx = s->backend.ctx;
    const uint64_t n_lanes = s->backend.shape.n_lanes;
    const uint64_t n_now = s->backend.fork_pages(ctx, seq) + s->backend.pages_needed(ctx, seq, 1, PLEAT_ITEM_MORE);
    if (!s->backend.shape.shares_late) return n_now;
    uint64_t n_high, n_low;
    s->backend.pages_by_side(ctx, seq, &n_high, &n_low);
    const uint64_t n_more = n_now > n_lanes ? n_now - n_lanes : 0; /* a part-filled low page a lane, or rings again */
    return n_high + (n_more < n_low ? n_more : n_low);
}

/* The kept prefix that a new one goes on from: its maker's, or where that stands on none the nearest in the tree. */
static pleat__kept_id parent_for(pleat_serving *s, const pleat__request *r) {
    const pleat__prefixes *p = &s->prefixes;
    const pleat__running_part *run = PLEAT__RUNNING(r);
    if (run->base.v) return run->base;
    const pleat__prefix entry =
        pleat__radix_find_kept(p->tree, r->root, p->path, pleat__serving_path(s, r, run->n_stored));
    return (pleat__kept_id){entry.v ? pleat__radix_info(p->tree, entry).value : 0};
}

/* What a request had of its own and its fork shares is the prefix's from here on. */
static void hand_over(pleat_serving *s, pleat__request *r, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    pleat__running_part *run = PLEAT__RUNNING(r);
    pleat__kept *k = &p->kept[id.v];
    void *ctx = s->backend.ctx;
    k->entry = run->promise;
    k->parent = parent_for(s, r);
    k->n_tokens = run->n_stored;
    k->ah = r->ah; /* its maker's, which may have left the prefix that it began from */
    k->al = r->al;
    k->is_compressed = r->is_compressed;
    p->kept[k->parent.v].n_children++;
    k->added_pages = s->backend.pages_of(ctx, k->seq);
    if (k->parent.v) k->added_pages -= s->backend.pages_shared(ctx, k->seq, p->kept[k->parent.v].seq);
    k->copied_pages = count_copied(s, k->seq);
    p->added_pages += k->added_pages;
    p->evictable_pages += k->added_pages;
    run->own_changes = true;
}

static void tell_kept(pleat_serving *s, const pleat__request *r, pleat__kept *k) {
    const pleat_events_prefix *from = s->prefixes.kept[k->parent.v].told;
    if (s->opt.events) (void)pleat_events_keep(s->opt.events, from, r->salt, r->tokens, k->n_tokens, &k->told);
}

void pleat__serving_keep(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    const pleat__kept_id id = take_cell(s);
    pleat__kept *k = &s->prefixes.kept[id.v];
    const bool has_room = pleat__serving_evict_until(s, s->backend.fork_pages(s->backend.ctx, run->seq));
    if (!id.v || !has_room || !run->promise.v /* room has cost it */ || !fork_into(s, r, k)) {
        if (id.v) return_cell(s, id);
        pleat__serving_forget(s, r);
        run->promises = false;
        return;
    }
    hand_over(s, r, id);
    pleat__radix_keep(s->prefixes.tree, k->entry, id.v);
    tell_kept(s, r, k);
    pleat__serving_use(s, id);
    pleat__serving_unuse(s, run->base);
    run->base = id;
    pleat__serving_count_own(s, r);
    run->promise.v = 0;
    s->prefixes.version++;
    if (pleat__serving_next_breakpoint(s, r, run->n_stored) >= r->n_prompt) pleat__serving_store(s, r, id);
    pleat__serving_promise(s, r);
}

void pleat__serving_keep_stored(pleat_serving *s, pleat__request *r) {
    pleat__prefixes *p = &s->prefixes;
    pleat__running_part *run = PLEAT__RUNNING(r);
    pleat__prefix entry;
    const bool has_room = pleat__serving_free_pages(s) > 2 * run->n_pages;
    const uint32_t n = pleat__serving_path(s, r, run->n_stored);
    if (!run->promises || !has_room || pleat__radix_promise(p->tree, r->root, p->path, n, &entry) != PLEAT_OK) {
        pleat__serving_promise(s, r);
        return;
    }
    run->promise = entry;
    run->promised_breakpoint = run->n_stored;
    pleat__serving_keep(s, r);
}

void pleat__serving_remove_kept(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    pleat__kept *k = &p->kept[id.v];
    assert(k->seq.v && k->n_users == 0 && k->n_children == 0);
    (void)pleat__radix_remove(p->tree, k->entry);
    pleat__serving_lose_images(s, id);
    pleat_events_forget(s->opt.events, &k->told);
    const uint64_t paused = pleat__serving_pause();
    s->backend.close(s->backend.ctx, k->seq);
    pleat__serving_resume(s, paused, true);
    p->added_pages -= k->added_pages;
    p->evictable_pages -= k->added_pages;
    p->kept[k->parent.v].n_children--;
    return_cell(s, id);
}

void pleat__serving_count_kept(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    pleat__kept *k = &p->kept[id.v];
    void *ctx = s->backend.ctx;
    const uint64_t n_old = k->added_pages;
    k->added_pages = s->backend.pages_of(ctx, k->seq);
    if (k->parent.v) k->added_pages -= s->backend.pages_shared(ctx, k->seq, p->kept[k->parent.v].seq);
    k->copied_pages = count_copied(s, k->seq);
    p->added_pages += k->added_pages - n_old; /* may wrap on the way */
    if (k->n_pins > 0) p->pinned_pages += k->added_pages - n_old;
    if (k->n_users == 0) p->evictable_pages += k->added_pages - n_old;
}

/* Forget the promises of a running request that has left its prefix: what nobody uses stands below it in the tree. */
static bool forget_one(pleat_serving *s) {
    for (uint32_t i = 0; s->prefixes.evictable_pages > 0 && i < s->n_running; i++) {
        pleat__running_part *run = PLEAT__RUNNING(s->running[i]);
        if (run->base.v || !run->promise.v) continue;
        pleat__serving_forget(s, s->running[i]);
        run->promises = false;
        return true;
    }
    return false;
}

static pleat__prefix find_leaf(pleat_serving *s) {
    const pleat__radix *tree = s->prefixes.tree;
    pleat__prefix leaf = {0};
    if (!tree) return leaf;
    do leaf = pleat__radix_oldest_leaf(tree);
    while (!leaf.v && forget_one(s));
    return leaf;
}

bool pleat__serving_evict(pleat_serving *s) {
    const pleat__radix *tree = s->prefixes.tree;
    const pleat__prefix leaf = find_leaf(s);
    if (!leaf.v) return false;
    pleat__serving_remove_kept(s, (pleat__kept_id){pleat__radix_info(tree, leaf).value});
    s->stats.evicted++;
    return true;
}

bool pleat__serving_evict_until(pleat_serving *s, uint64_t n_pages) {
    while (pleat__serving_free_pages(s) < n_pages)
        if (!pleat__serving_evict(s)) return false;
    return true;
}

/* ---- a prefix that only its maker uses -------------------------------------------------------------- */

/* Pages that only the prefix holds which the request stands on; nobody else stands on it. */
static uint64_t pages_between(const pleat_serving *s, const pleat__running_part *run) {
    const pleat__kept *kept = s->prefixes.kept, *k = &kept[run->base.v];
    const uint64_t n_above = k->parent.v ? s->backend.pages_shared(s->backend.ctx, run->seq, kept[k->parent.v].seq) : 0;
    return k->added_pages + run->own_pages - (run->n_pages - n_above);
}

/* Does the request's next step copy pages of the prefix that it stands on?  It does not if it is alone on them. */
static bool copies_are_due(const pleat_serving *s, const pleat__running_part *run) {
    const bool is_shared = run->own_pages < run->n_pages;
    return is_shared && run->own_changes && s->prefixes.kept[run->base.v].copied_pages > s->backend.shape.n_lanes;
}

bool pleat__serving_leave_base(pleat_serving *s, pleat__request *r, bool all) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    const uint64_t n_free = pleat__serving_free_pages(s);
    bool spares_copies = false;
    while (run->base.v) {
        const pleat__kept *k = &s->prefixes.kept[run->base.v];
        const pleat__kept_id id = run->base, parent = k->parent;
        const bool is_due = copies_are_due(s, run);
        if (k->n_users > 1 || k->n_hits > 0 || k->n_children > 0) break;
        if (!all && !is_due && pages_between(s, run) == 0) break;
        spares_copies |= is_due;
        pleat__serving_use(s, parent);
        pleat__serving_unuse(s, id);
        run->base = parent;
        pleat__serving_remove_kept(s, id);
        s->stats.evicted++;
        pleat__serving_count_own(s, r);
        pleat__serving_leave_unshared(s, r);
    }
    return spares_copies || pleat__serving_free_pages(s) > n_free;
}
