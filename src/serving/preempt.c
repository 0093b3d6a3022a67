/* SPDX-License-Identifier: MIT
 *
 * preempt.c: running requests that wait again, are compressed, or are done.
 *
 *     running ──compress──> running                      fewer pages, other tokens: only as far as the request allows
 *        │
 *        ├──swap───────> swapped ──restore──> running                      where it was
 *        │                  │ the prefix that the image stands on is evicted: it is lost
 *        │                  v
 *        └──recompute──> waiting ──open, fork──> running                   from its start or a prefix; then a replay
 *
 * A replay runs the prompt in the same chunks and the generated tokens one by one, so the sequence comes out with the
 * same bits.  No token is sampled before the replay has passed the last one that was.
 *
 * A request that is preempted while nobody else runs has no room beside the prefixes that it stands on.  (Kept ones are
 * copied where they end inside a page.)  It shares nothing from then on: then its own pages alone have to fit, which
 * submit made sure of.
 */
#include "core/error.h"
#include "serving/internal.h"

/* ---- preemption ------------------------------------------------------------------------------------ */

/* The nearest prefix under the request that others have started from too. */
static pleat__kept_id shared_base(const pleat_serving *s, const pleat__request *r) {
    const pleat__kept *kept = s->prefixes.kept;
    pleat__kept_id id = PLEAT__RUNNING(r)->base;
    while (id.v && kept[id.v].n_hits == 0) id = kept[id.v].parent;
    return id;
}

/* Return the pages of a running request and take it off the list of those: it is WAITING. */
static void stop_running(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    pleat__serving_forget(s, r);
    const uint64_t paused = pleat__serving_pause();
    s->backend.close(s->backend.ctx, run->seq);
    pleat__serving_resume(s, paused, true);
    s->own_pages -= run->own_pages;
    pleat__serving_unuse(s, run->base);
    pleat__request *last = s->running[--s->n_running];
    s->running[run->running_idx] = last;
    PLEAT__RUNNING(last)->running_idx = run->running_idx;
    pleat__request_enter(r, PLEAT__REQUEST_WAITING);
}

/* Stop a request, with its image if that can be had. */
static bool swap_out(pleat_serving *s, pleat__request *r) {
    const bool is_whole = r->shares_nothing || !s->backend.shape.has_bases;
    const pleat__kept_id base = is_whole ? (pleat__kept_id){0} : shared_base(s, r);
    const pleat__running_part *run = PLEAT__RUNNING(r);
    pleat__swapped_part part = {.base = base, .keeps_base = base.v == run->base.v, .n_stored = run->n_stored};
    if (!pleat__serving_save_image(s, r, base, &part.image)) return false;
    stop_running(s, r);
    pleat__serving_hold_image(s, r, &part);
    return true;
}

void pleat__serving_preempt(pleat_serving *s, pleat__request *r, bool for_pages) {
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
        stop_running(s, r);
        r->stats.n_recomputed++;
        s->stats.preempted_recompute++;
        r->compress_stage = 0;
    }
    pleat__sched_preempt(s->sched, r->sched);
}

/* ---- the end --------------------------------------------------------------------------------------- */

/* Return all that it holds but its own memory. */
static void detach(pleat_serving *s, pleat__request *r) {
    if (pleat__request_runs(r)) stop_running(s, r);
    if (pleat__request_is_swapped(r)) pleat__serving_drop_image(s, r);
    if (pleat__request_waits(r)) pleat__serving_end_fetch(s, r);
    pleat__sched_finish(s->sched, r->sched);
    s->requests[r->sched.v] = NULL;
    pleat__place_free(s, r);
}

void pleat__serving_release(pleat_serving *s, pleat__request *r) {
    detach(s, r);
    pleat__request_free(s, r);
}

void pleat__serving_free_finished(pleat_serving *s) {
    while (s->step.finished) {
        pleat__request *r = s->step.finished;
        s->step.finished = r->next;
        pleat__request_free(s, r);
    }
}

pleat_serving_event *pleat__serving_add_event(pleat_serving *s, pleat__request *r, pleat_finish finish) {
    pleat_serving_event *event = &s->step.events[s->step.n_events++];
    *event = (pleat_serving_event){
        .id = r->id, .user = r->user, .token = -1, .finish = finish, .index = r->index, .chosen = r->chosen};
    if (r->answer) pleat__answer_tell(r->answer, event);
    r->chosen = -1;
    return event;
}

/* Its times, tokens and bytes, as it ends. */
static void measure(pleat_serving *s, pleat__request *r) {
    const uint64_t now_ns = s->backend.clock_ns(s->backend.ctx), answer_ns = r->answer_ns ? r->answer_ns : now_ns;
    if (r->has_started) r->stats.prompt_ns = answer_ns - r->start_ns;
    r->stats.answer_ns = now_ns - answer_ns;
    const uint32_t n_seen = pleat__min_u32(r->n_seen, r->n_prompt);
    r->stats.n_computed = n_seen > r->stats.n_hit ? n_seen - r->stats.n_hit : 0;
    if (pleat__request_runs(r))
        s->backend.bytes_of(s->backend.ctx, PLEAT__RUNNING(r)->seq, &r->stats.kv_bytes, &r->stats.kv_bytes_f16);
}

void pleat__serving_tell_progress(pleat_serving *s, pleat__request *r) {
    pleat_serving_event *event = pleat__serving_add_event(s, r, PLEAT_FINISH_NOT);
    measure(s, r);
    event->is_progress = 1;
    event->n_read = r->n_seen;
    event->stats = r->stats;
}

void pleat__serving_finish(pleat_serving *s, pleat__request *r, pleat_token token, pleat_finish finish,
                           pleat_status status) {
    pleat_serving_event *event = pleat__serving_add_event(s, r, finish);
    measure(s, r);
    event->token = token;
    event->status = status;
    event->stats = r->stats;
    detach(s, r);
    r->next = s->step.finished; /* the event points into it */
    s->step.finished = r;
}

/* ---- compression ----------------------------------------------------------------------------------- */

bool pleat__serving_can_compress(const pleat_serving *s, const pleat__request *r) {
    const pleat__backend_shape *shape = &s->backend.shape;
    const pleat__running_part *run = PLEAT__RUNNING(r);
    return shape->can_compress && (r->max_ah > shape->ah || (shape->al > 0 && r->max_al > shape->al)) &&
           r->compress_stage < PLEAT__COMPRESS_STAGES && !run->was_compressed && run->n_stored >= r->n_prompt;
}

/* From what is in force at first to the most that is allowed; the first where that is more. */
static float raised(float first, float max, uint32_t stage) {
    if (!(max > first)) return first;
    return stage == PLEAT__COMPRESS_STAGES ? max : first + (max - first) * (float)stage / PLEAT__COMPRESS_STAGES;
}

void pleat__serving_compress(pleat_serving *s, pleat__request *r) {
    const pleat__backend *b = &s->backend;
    pleat__running_part *run = PLEAT__RUNNING(r);
    const uint32_t stage = ++r->compress_stage;
    const float ah = raised(b->shape.ah, r->max_ah, stage);
    float al = b->shape.al > 0 ? raised(b->shape.al, r->max_al, stage) : 0;
    if (al > ah) al = ah;
    run->was_compressed = true;
    (void)pleat__serving_leave_base(s, r, true); /* shared pages are not compressed, and would not be freed */
    const uint64_t paused = pleat__serving_pause();
    pleat_status status = b->compress(b->ctx, run->seq, ah, al);
    if (status == PLEAT_AGAIN && pleat__serving_evict(s)) status = b->compress(b->ctx, run->seq, ah, al);
    pleat__serving_resume(s, paused, true);
    if (status == PLEAT_OK) {
        r->stats.n_compressed++;
        s->stats.compressed++;
        pleat__serving_count_own(s, r);
    } else if (status == PLEAT_AGAIN) {
        r->compress_stage--; /* another time */
    }
}
