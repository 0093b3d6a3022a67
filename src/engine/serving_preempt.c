/* SPDX-License-Identifier: MIT
 *
 * serving_preempt.c: requests that give way, and how they come back.
 *
 *     running ──compress──> running                      fewer pages, other tokens: only as far as the request allows
 *        │
 *        ├──swap───────> waiting with an image ──restore──> running      where it was
 *        │                     │ the prefix that the image stands on is evicted: it is lost
 *        │                     v
 *        └──recompute──> waiting ──open, fork──> running                 from its start or a prefix; then a replay
 *
 * A replay runs the prompt by the same cuts and the generated tokens one by one, so the sequence comes out with the same
 * bits; no token is sampled before it has passed the last one that was.
 *
 * An image leaves out the pages of a prefix that others use too, since that one is likely to stay; what the request
 * alone stands on goes into the image.
 *
 * A request that is preempted while nobody else runs has no room beside the prefixes that it stands on (kept ones are
 * copies where they end inside a page).  It shares nothing from then on: then its own pages alone have to fit, which
 * submit made sure of.
 */
#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "engine/serving_internal.h"

/* ---- images ---------------------------------------------------------------------------------------- */

static void link_swapped(pleat_serving *s, pleat__served *r) {
    r->prev_swapped = NULL;
    r->next_swapped = s->swapped;
    if (s->swapped) s->swapped->prev_swapped = r;
    s->swapped = r;
}

static void unlink_swapped(pleat_serving *s, pleat__served *r) {
    if (r->next_swapped) r->next_swapped->prev_swapped = r->prev_swapped;
    *(r->prev_swapped ? &r->prev_swapped->next_swapped : &s->swapped) = r->next_swapped;
}

void pleat__serving_drop_image(pleat_serving *s, pleat__served *r) {
    if (!r->image.data) return;
    unlink_swapped(s, r);
    s->stats.n_swapped--;
    s->stats.swapped_bytes -= r->image.n_bytes;
    s->backend.drop(s->backend.ctx, &r->image);
    r->image_base.v = 0;
}

void pleat__serving_lose_images(pleat_serving *s, pleat__kept_id kept) {
    for (pleat__served *r = s->swapped, *next; r; r = next) {
        next = r->next_swapped;
        if (r->image_base.v != kept.v) continue;
        pleat__serving_drop_image(s, r);
        s->stats.images_lost++;
    }
}

/* The nearest prefix under the request that others have started from too. */
static pleat__kept_id shared_base(const pleat_serving *s, const pleat__served *r) {
    pleat__kept_id id = r->base;
    while (id.v && s->kept[id.v].n_hits == 0) id = s->kept[id.v].parent;
    return id;
}

static bool swap_pays(const pleat_serving *s, const pleat__served *r, pleat__kept_id base, uint64_t n_bytes) {
    if (s->opt.preemption != PLEAT_PREEMPT_CHEAPER) return true;
    const uint32_t n_prompt = pleat__min_u32(r->n_stored, r->n_prompt), n_kept = base.v ? s->kept[base.v].n_tokens : 0;
    const uint64_t kv_bytes = r->n_pages * s->backend.shape.page_bytes;
    return pleat__cost_swap_ns(&s->cost, n_bytes) <
           pleat__cost_recompute_ns(&s->cost, n_prompt - n_kept, r->n_stored - n_prompt, s->n_running - 1, kv_bytes);
}

/* Save the request's sequence if that is the way to go.  False: it is not, or it cannot be done. */
static bool swap_out(pleat_serving *s, pleat__served *r) {
    if (s->opt.preemption == PLEAT_PREEMPT_RECOMPUTE || r->n_stored == 0) return false;
    const pleat__kept_id base = r->shares_nothing ? (pleat__kept_id){0} : shared_base(s, r);
    const pleat_seq base_seq = s->kept[base.v].seq;
    const uint64_t n_bytes = s->backend.image_bytes(s->backend.ctx, r->seq, base_seq);
    if (n_bytes == 0 || n_bytes > s->opt.swap_bytes - s->stats.swapped_bytes) return false;
    if (!swap_pays(s, r, base, n_bytes)) return false;
    const uint64_t left = pleat__serving_leave(), start_ns = s->backend.clock_ns(s->backend.ctx);
    const pleat_status status = s->backend.save(s->backend.ctx, r->seq, base_seq, &r->image);
    const uint64_t end_ns = s->backend.clock_ns(s->backend.ctx);
    pleat__serving_back(s, left, true);
    if (status != PLEAT_OK) return false;
    pleat__cost_observe_swap(&s->cost, r->image.n_bytes, end_ns - start_ns);
    r->image_base = base;
    r->image_base_is_base = base.v == r->base.v;
    r->image_stored = r->n_stored;
    link_swapped(s, r);
    s->stats.n_swapped++;
    s->stats.swapped_bytes += r->image.n_bytes;
    if (s->stats.swapped_bytes > s->stats.swapped_bytes_most) s->stats.swapped_bytes_most = s->stats.swapped_bytes;
    return true;
}

/* ---- preemption ------------------------------------------------------------------------------------ */

/* Give back the pages of a running request and take it off the list of those. */
static void stop(pleat_serving *s, pleat__served *r) {
    pleat__serving_forget(s, r);
    const uint64_t left = pleat__serving_leave();
    s->backend.close(s->backend.ctx, r->seq);
    pleat__serving_back(s, left, true);
    s->own_pages -= r->own_pages;
    pleat__serving_unuse(s, r->base);
    r->base.v = 0;
    r->seq.v = 0;
    r->own_pages = r->n_pages = 0;
    r->runs = r->in_step = false;
    pleat__served *last = s->running[--s->n_running];
    s->running[r->running_idx] = last;
    last->running_idx = r->running_idx;
}

void pleat__serving_preempt(pleat_serving *s, pleat__served *r, bool for_pages) {
    const bool is_alone = for_pages && s->n_running == 1;
    if (is_alone && r->shares_nothing) { /* more than the pool: submit was wrong about it */
        pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, PLEAT_E_LIMIT);
        return;
    }
    if (is_alone) r->shares_nothing = true;
    if (for_pages && swap_out(s, r)) {
        r->stats.n_swapped++;
        s->stats.preempted_swap++;
    } else {
        r->stats.n_recomputed++;
        s->stats.preempted_recompute++;
        r->n_compressed = 0;
    }
    stop(s, r);
    pleat__sched_preempt(s->sched, r->sched);
}

void pleat__serving_release(pleat_serving *s, pleat__served *r) {
    if (r->runs) stop(s, r);
    pleat__serving_drop_image(s, r);
    pleat__sched_finish(s->sched, r->sched);
    s->requests[r->sched.v] = NULL;
    pleat_sampler_destroy(&r->sampler);
    pleat__free(&s->al, r, 1, r->block_bytes);
}

/* ---- coming back ----------------------------------------------------------------------------------- */

static pleat_status open_seq(pleat_serving *s, pleat__served *r, pleat__kept_id from) {
    const pleat__backend *b = &s->backend;
    const uint32_t max_tokens = r->n_prompt + r->n_predict;
    if (!r->image.data && from.v) return b->fork(b->ctx, s->kept[from.v].seq, max_tokens, &r->seq);
    if (!r->image.data) return b->open(b->ctx, max_tokens, &r->seq);
    const uint64_t start_ns = b->clock_ns(b->ctx);
    PLEAT_TRY(b->restore(b->ctx, &r->image, s->kept[from.v].seq, &r->seq));
    pleat__cost_observe_swap(&s->cost, r->image.n_bytes, b->clock_ns(b->ctx) - start_ns);
    return PLEAT_OK;
}

pleat_status pleat__serving_open(pleat_serving *s, pleat__served *r, pleat__kept_id from) {
    const uint64_t left = pleat__serving_leave();
    const pleat_status status = open_seq(s, r, from);
    pleat__serving_back(s, left, true);
    PLEAT_TRY(status);
    const bool is_restored = r->image.data != NULL;
    r->n_stored = is_restored ? r->image_stored : s->kept[from.v].n_tokens;
    r->keeps = s->tree && r->root != PLEAT__NO_ROOT && !r->shares_nothing && (!is_restored || r->image_base_is_base);
    pleat__serving_drop_image(s, r);
    r->base = from;
    r->runs = true;
    r->running_idx = s->n_running;
    s->running[s->n_running++] = r;
    r->n_idle = 0;
    r->was_compressed = false;
    r->promise.v = 0;
    pleat__serving_count_own(s, r);
    r->own_changes = true;
    return PLEAT_OK;
}

/* ---- compression ----------------------------------------------------------------------------------- */

bool pleat__serving_can_compress(const pleat_serving *s, const pleat__served *r) {
    const pleat__backend_shape *shape = &s->backend.shape;
    return shape->can_compress && (r->ah_most > shape->ah || (shape->al > 0 && r->al_most > shape->al)) &&
           r->n_compressed < PLEAT__COMPRESS_STAGES && !r->was_compressed && r->n_stored >= r->n_prompt;
}

/* From what is in force at first to the most that is allowed; the first where that is more. */
static float raised(float first, float most, uint32_t stage) {
    if (!(most > first)) return first;
    return stage == PLEAT__COMPRESS_STAGES ? most : first + (most - first) * (float)stage / PLEAT__COMPRESS_STAGES;
}

void pleat__serving_compress(pleat_serving *s, pleat__served *r) {
    const pleat__backend_shape *shape = &s->backend.shape;
    const uint32_t stage = ++r->n_compressed;
    const float ah = raised(shape->ah, r->ah_most, stage);
    float al = shape->al > 0 ? raised(shape->al, r->al_most, stage) : 0;
    if (al > ah) al = ah;
    r->was_compressed = true;
    (void)pleat__serving_leave_base(s, r, true); /* shared pages are not compressed, and would not be freed */
    const uint64_t left = pleat__serving_leave();
    pleat_status status = s->backend.compress(s->backend.ctx, r->seq, ah, al);
    if (status == PLEAT_AGAIN && pleat__serving_evict(s)) status = s->backend.compress(s->backend.ctx, r->seq, ah, al);
    pleat__serving_back(s, left, true);
    if (status == PLEAT_OK) {
        r->stats.n_compressed++;
        s->stats.compressed++;
        pleat__serving_count_own(s, r);
    } else if (status == PLEAT_AGAIN) {
        r->n_compressed--; /* another time */
    }
    pleat__serving_demand(s, r);
}
