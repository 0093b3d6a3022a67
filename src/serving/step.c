/* SPDX-License-Identifier: MIT
 *
 * step.c: one step.
 *
 *     come, go    take in what other threads have posted; those whose time is over are finished
 *     make room   plan the running requests' next items; while pages are short, evict, compress or preempt, and plan
 *                 again.  It ends, since each turn there are fewer prefixes, stages or running requests.  Before anybody
 *                 is preempted, prefixes go that only their maker stands on
 *     admit       candidates, as long as there is room; those that a prefix under way will serve are deferred (admit.c)
 *     run         one step of the backend.  PLEAT_AGAIN: one is preempted, and the rest run.  An error: whose is it?
 *     complete    each item: pages, prefix, token; who has finished goes
 *
 * An error in the middle (no memory) leaves requests waiting or running as they were.
 */
#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "serving/internal.h"

#define IDLE_MAX 4u /* steps in which nobody runs though somebody waits */

/* ---- making room ----------------------------------------------------------------------------------------------------- */

/* Free pages of prefixes that one running request alone stands on and nobody else has used. */
static bool leave_some_base(pleat_serving *s) {
    for (uint32_t i = 0; i < s->n_running; i++) {
        pleat__request *r = s->running[i];
        if (!pleat__serving_leave_base(s, r, false)) continue;
        pleat__serving_demand(s, r);
        return true;
    }
    return false;
}

static void compress(pleat_serving *s, pleat__request *r) {
    pleat__serving_compress(s, r);
    pleat__serving_demand(s, r);
}

/* Plan until the running requests' items fit. */
static void make_room(pleat_serving *s, pleat__sched_plan *plan) {
    bool can_evict = true;
    for (;;) {
        const uint64_t n_evictable = s->prefixes.evictable_pages;
        const pleat__sched_pages pages = {.n_free = pleat__serving_free_pages(s),
                                          .n_evictable = can_evict ? n_evictable : 0};
        s->step.occupied_pages = s->backend.shape.n_pages - pages.n_free - n_evictable;
        pleat__sched_plan_step(s->sched, pages, plan);
        if (plan->room == PLEAT__ROOM_ENOUGH) return;
        pleat__request *victim = s->requests[plan->victim.v];
        if (plan->room == PLEAT__ROOM_EVICT)
            can_evict = pleat__serving_evict_until(s, pages.n_free + plan->shortfall_pages);
        else if (plan->room == PLEAT__ROOM_COMPRESS)
            compress(s, victim);
        else if (!leave_some_base(s))
            pleat__serving_preempt(s, victim, true);
    }
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

/* Is the likeliest token the one to choose, and nothing else asked of the logits? */
static bool wants_likeliest(const pleat_serving *s, const pleat__request *r) {
    return s->backend.shape.finds_likeliest && r->sampling.temperature <= 0 &&
           (!r->answer || !pleat__answer_wants_logits(r->answer));
}

/* Which logits items[i] is to bring: those of all its tokens, if the prompt's are asked for; of its last one, if a token
 * is chosen from them; none. */
static void want_logits(pleat_serving *s, const pleat__request *r, uint32_t i) {
    const uint32_t n_vocab = s->backend.shape.n_vocab, n_stored = PLEAT__RUNNING(r)->n_stored;
    pleat_engine_item *item = &s->step.items[i];
    if (!s->backend.shape.model) return;
    if (r->answer && r->answer->wants_prompt && n_stored < r->n_prompt && s->step.prompt_logits) {
        item->n_logits = item->n_tokens;
        item->logits = s->step.prompt_logits + (size_t)s->step.n_prompt_rows * n_vocab;
        s->step.n_prompt_rows += item->n_tokens;
    } else if (n_stored + item->n_tokens == pleat__request_known(r) && !wants_likeliest(s, r)) {
        item->n_logits = 1;
        item->logits = s->step.logits + (size_t)i * n_vocab;
    }
}

/* Make items[i] the request's next. */
static void add_item(pleat_serving *s, pleat__request *r, uint32_t i) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    const pleat__portion p = pleat__serving_portion(s, r, run->n_stored);
    s->step.items[i] = (pleat_engine_item){
        .seq = run->seq, .tokens = r->tokens + run->n_stored, .n_tokens = p.n_tokens, .flags = p.flags};
    want_logits(s, r, i);
    s->step.requests[i] = r;
    run->in_step = true;
}

/* The plan's first request whose next item is to be a step by itself; NULL if there is none. */
static pleat__request *find_solo(const pleat_serving *s, const pleat__sched_plan *plan) {
    for (uint32_t i = 0; i < plan->n_run; i++) {
        pleat__request *r = s->requests[plan->run[i].v];
        if (!r || !pleat__request_runs(r) || r->solo_end == 0) continue;
        const uint32_t n_stored = PLEAT__RUNNING(r)->n_stored;
        if (n_stored + pleat__serving_portion(s, r, n_stored).n_tokens == r->solo_end) return r;
    }
    return NULL;
}

/* The plan's items, less those of requests that run no longer; or the one that is to go solo, and the others wait for a
 * step. */
static uint32_t make_items(pleat_serving *s, const pleat__sched_plan *plan) {
    pleat__request *solo = find_solo(s, plan);
    s->step.n_prompt_rows = 0;
    if (solo) add_item(s, solo, 0);
    if (solo) return 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_run; i++) {
        pleat__request *r = s->requests[plan->run[i].v];
        if (r && pleat__request_runs(r)) add_item(s, r, n++);
    }
    return n;
}

/* The running request whose turn comes last: lower priority, then later arrival. */
static pleat__request *lowest_rank(const pleat_serving *s) {
    pleat__request *low = s->running[0];
    for (uint32_t i = 1; i < s->n_running; i++) {
        pleat__request *r = s->running[i];
        if (r->priority != low->priority ? r->priority < low->priority : r->arrival > low->arrival) low = r;
    }
    return low;
}

/* Preempt the lowest in rank and make the others' items anew.  Returns how many there are. */
static uint32_t preempt_lowest(pleat_serving *s, uint32_t n) {
    pleat__request *victim = lowest_rank(s);
    for (uint32_t i = 0; i < n; i++)
        if (s->step.requests[i] == victim) s->step.requests[i] = NULL;
    pleat__serving_preempt(s, victim, true);
    uint32_t n_left = 0;
    s->step.n_prompt_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        pleat__request *r = s->step.requests[i];
        if (r && pleat__request_runs(r)) add_item(s, r, n_left++);
    }
    return n_left;
}

/* One call of the backend. */
static pleat_status run_items(pleat_serving *s, uint32_t first, uint32_t n, pleat_error *err) {
    const pleat_engine_item *items = s->step.items;
    pleat__step_load load = {0};
    uint64_t n_pages = 0;
    for (uint32_t i = first; i < first + n; i++) {
        const bool is_single = items[i].n_tokens == 1;
        load.n_generated += is_single;
        load.n_chunks += !is_single;
        load.n_prompt += is_single ? 0 : items[i].n_tokens;
        n_pages += is_single ? PLEAT__RUNNING(s->step.requests[i])->n_pages : 0;
    }
    load.kv_bytes = n_pages * s->backend.shape.page_bytes;
    const uint64_t paused = pleat__serving_pause();
    pleat_token *likeliest = s->backend.shape.finds_likeliest ? s->step.likeliest + first : NULL;
    const pleat_status status = s->backend.run(s->backend.ctx, items + first, n, likeliest, err);
    pleat__serving_resume(s, paused, false);
    s->step.load = load;
    s->step.n_runs += status != PLEAT_AGAIN;
    return status;
}

/* What a step of ns teaches about prices: what is decided and chosen is part of it, and images are not. */
static void learn(pleat_serving *s, uint64_t ns) {
    if (s->step.n_runs == 1 && ns > s->step.swap_ns)
        pleat__cost_observe_step(&s->cost, &s->step.load, ns - s->step.swap_ns);
}

/* ---- what became of an item ------------------------------------------------------------------------------------------ */

static void add_token(pleat_serving *s, pleat__request *r, pleat_token token) {
    r->tokens[pleat__request_known(r)] = token;
    r->stats.n_generated++;
    s->stats.generated_tokens++;
    const bool is_stopped = r->answer && pleat__answer_take(r->answer, token);
    const bool is_whole = r->answer && pleat__answer_is_whole(r->answer);
    const bool is_last = is_whole || r->stats.n_generated == r->n_predict;
    const pleat_finish finish = is_stopped ? PLEAT_FINISH_STOP : is_whole ? PLEAT_FINISH_END : PLEAT_FINISH_LENGTH;
    if (is_last && !is_stopped && r->answer) pleat__answer_close(r->answer);
    if (is_stopped || is_last)
        pleat__serving_finish(s, r, token, finish, PLEAT_OK);
    else
        pleat__serving_add_event(s, r, PLEAT_FINISH_NOT)->token = token;
}

/* Its text ends here, without a token. */
static void end_text(pleat_serving *s, pleat__request *r, pleat_finish finish) {
    if (r->answer) pleat__answer_close(r->answer);
    pleat__serving_finish(s, r, -1, finish, PLEAT_OK);
}

/* Choose a token from logits.  PLEAT_E_RANGE: they are no numbers, or no token of the vocabulary may follow. */
static pleat_status choose(pleat_serving *s, pleat__request *r, const float *logits, pleat_token *token) {
    const uint32_t n_vocab = s->backend.shape.n_vocab;
    const bool moves = r->answer && pleat__answer_moves(r->answer);
    if (moves) pleat__answer_move(r->answer, logits, s->step.moved, n_vocab);
    const float *from = moves ? s->step.moved : logits;
    pleat_sampler *sampler = r->sampler ? r->sampler : s->greedy;
    if (pleat_sampler_sample(sampler, from, token) != PLEAT_OK) return PLEAT_E_RANGE;
    if (r->answer && !pleat__answer_fits(r->answer, *token)) {
        if (!moves) memcpy(s->step.moved, logits, n_vocab * sizeof *logits);
        pleat__answer_mask(r->answer, s->step.moved);
        if (pleat_sampler_sample(sampler, s->step.moved, token) != PLEAT_OK) return PLEAT_E_RANGE;
    }
    if (r->answer) pleat__answer_see(r->answer, *token, logits, n_vocab);
    return PLEAT_OK;
}

/* logits NULL: likeliest is chosen. */
static void sample(pleat_serving *s, pleat__request *r, const float *logits, pleat_token likeliest) {
    const pleat_model *model = s->backend.shape.model;
    pleat_token token = likeliest;
    if (!r->answer_ns) r->answer_ns = s->backend.clock_ns(s->backend.ctx);
    if (model) {
        const uint64_t paused = pleat__serving_pause();
        const pleat_status status = logits ? choose(s, r, logits, &token) : PLEAT_OK;
        if (status == PLEAT_OK) r->chosen = token;
        const bool is_end = status == PLEAT_OK && !r->ignores_end && pleat_model_token_is_end(model, token);
        const bool is_stop = status == PLEAT_OK && r->answer && pleat__answer_has_stop_id(r->answer, token);
        pleat__serving_resume(s, paused, false);
        if (status != PLEAT_OK) {
            pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, PLEAT_E_RANGE);
            return;
        }
        if (is_end || is_stop) {
            end_text(s, r, is_end ? PLEAT_FINISH_END : PLEAT_FINISH_STOP);
            return;
        }
    }
    add_token(s, r, token);
}

/* n tokens behind n_stored have been computed: for the first time, or again. */
static void count_tokens(pleat_serving *s, pleat__request *r, uint32_t n_stored, uint32_t n) {
    const uint32_t end = n_stored + n, old = r->n_seen > n_stored ? r->n_seen - n_stored : 0;
    const uint32_t n_replayed = pleat__min_u32(old, n);
    s->stats.replayed_tokens += n_replayed;
    if (end <= r->n_prompt) s->stats.prompt_tokens += n - n_replayed;
    if (end > r->n_seen) r->n_seen = end;
}

static void count_pages(pleat_serving *s, pleat__request *r) {
    pleat__running_part *run = PLEAT__RUNNING(r);
    if (run->own_changes || (s->backend.shape.shares_late && run->base.v)) {
        pleat__serving_count_own(s, r);
        pleat__serving_leave_unshared(s, r);
        run->own_changes = false;
        return;
    }
    const uint64_t n_pages = s->backend.pages_of(s->backend.ctx, run->seq);
    run->own_pages += n_pages - run->n_pages; /* may wrap on the way */
    s->own_pages += n_pages - run->n_pages;
    run->n_pages = n_pages;
}

/* The logits of item i, which has brought n_stored tokens to where they are. */
static void use_logits(pleat_serving *s, pleat__request *r, uint32_t i, uint32_t n_before) {
    const pleat_engine_item *item = &s->step.items[i];
    const uint32_t n_vocab = s->backend.shape.n_vocab;
    if (r->answer && r->answer->wants_prompt && n_before < r->n_prompt) {
        const uint64_t paused = pleat__serving_pause();
        pleat__answer_see_prompt(r->answer, r->tokens, r->n_prompt, n_before, item->n_logits, item->logits, n_vocab);
        pleat__serving_resume(s, paused, false);
    }
    if (n_before + item->n_tokens < pleat__request_known(r)) return;
    const float *logits = item->n_logits > 0 ? item->logits + (size_t)(item->n_logits - 1) * n_vocab : NULL;
    sample(s, r, logits, s->step.likeliest[i]);
}

/* Item i has run: its tokens are stored. */
static void complete_item(pleat_serving *s, uint32_t i) {
    pleat__request *r = s->step.requests[i];
    pleat__running_part *run = PLEAT__RUNNING(r);
    const uint32_t n = s->step.items[i].n_tokens, n_before = run->n_stored, n_seen = r->n_seen;
    count_tokens(s, r, n_before, n);
    run->n_stored += n;
    if (run->n_stored >= r->solo_end) r->solo_end = 0;
    run->was_compressed = false;
    pleat__sched_ran(s->sched, r->sched, n);
    count_pages(s, r);
    if (run->promise.v && run->promised_breakpoint == run->n_stored) pleat__serving_keep(s, r);
    if (r->wants_progress && r->n_seen > n_seen && r->n_seen <= r->n_prompt) pleat__serving_tell_progress(s, r);
    use_logits(s, r, i, n_before);
}

/* A step of n items failed for a reason that is one request's.  Run one by one, they tell whose.  The failed step may have
 * left traces in the others, with a policy in their scores, in full rings more than that: those sequences are lost
 * (PLEAT_E_STATE, cache.h).  They are computed again, to come out as they would have alone.  If whose fault it was cannot
 * be told since its sequence is lost too, the lost ones go solo when they come to this item again, so that it shows. */
static pleat_status isolate(pleat_serving *s, uint32_t n, pleat_status status, pleat_error *err) {
    pleat_status *statuses = s->step.statuses;
    uint32_t n_failed = 0, n_lost = 0;
    bool has_memory = true; /* else this item and those behind it have not run, and wait */
    for (uint32_t i = 0; i < n; i++) {
        statuses[i] = n == 1 ? status : has_memory ? run_items(s, i, 1, err) : PLEAT_AGAIN;
        has_memory &= statuses[i] != PLEAT_E_MEMORY;
        if (!has_memory) statuses[i] = PLEAT_AGAIN;
        n_lost += n > 1 && statuses[i] == PLEAT_E_STATE;
        n_failed += statuses[i] < 0;
    }
    n_failed -= n_lost;
    const bool all_spoilt = s->backend.shape.has_policy && n > 1 && n_failed + n_lost > 0;
    for (uint32_t i = 0; i < n; i++) {
        pleat__request *r = s->step.requests[i];
        const bool is_lost = n > 1 && statuses[i] == PLEAT_E_STATE;
        if (is_lost && n_failed == 0) r->solo_end = PLEAT__RUNNING(r)->n_stored + s->step.items[i].n_tokens;
        if (statuses[i] < 0 && !is_lost)
            pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, statuses[i]);
        else if (is_lost || all_spoilt)
            pleat__serving_preempt(s, r, false);
        else if (statuses[i] == PLEAT_OK)
            complete_item(s, i);
        else
            pleat__serving_count_own(s, r); /* it has had its copies */
    }
    return has_memory ? PLEAT_OK : PLEAT_E_MEMORY;
}

static uint64_t pages_of_items(const pleat_serving *s, uint32_t n) {
    uint64_t n_pages = 0;
    for (uint32_t i = 0; i < n; i++) n_pages += PLEAT__RUNNING(s->step.requests[i])->step_pages;
    return n_pages;
}

/* Run what is planned.  *n_ran: items that were run. */
static pleat_status run_plan(pleat_serving *s, const pleat__sched_plan *plan, uint32_t *n_ran, pleat_error *err) {
    uint32_t n = make_items(s, plan);
    *n_ran = 0;
    while (n > 0) {
        (void)pleat__serving_evict_until(s, pages_of_items(s, n));
        const pleat_status status = run_items(s, 0, n, err);
        if (status == PLEAT_E_MEMORY) return status;
        if (status != PLEAT_AGAIN) {
            *n_ran = n;
            if (status != PLEAT_OK) return isolate(s, n, status, err);
            for (uint32_t i = 0; i < n; i++) complete_item(s, i);
            return PLEAT_OK;
        }
        if (!pleat__serving_evict(s)) n = preempt_lowest(s, n);
    }
    return PLEAT_OK;
}

/* ---- the step -------------------------------------------------------------------------------------------------------- */

/* How much of what a running request holds is no token. */
static void count_slots(pleat_serving *s, pleat_seq seq) {
    uint64_t n_live, n_held;
    s->backend.slots_of(s->backend.ctx, seq, &n_live, &n_held);
    assert(n_live <= n_held);
    if (n_held > 0) s->stats.fragmentation[100 * (n_held - n_live) / n_held]++;
}

/* Tell the scheduler what comes next, and count who stood still.  n_planned: items of the plan; where not all of them ran,
 * there may be some who were admitted and have no demand of their own yet. */
static void close_step(pleat_serving *s, uint32_t n_planned, uint32_t n_ran) {
    const bool tells_all = n_ran == 0 || n_ran < n_planned;
    for (uint32_t i = 0; i < s->n_running; i++) {
        pleat__request *r = s->running[i];
        pleat__running_part *run = PLEAT__RUNNING(r);
        run->n_idle = run->in_step ? 0 : run->n_idle + 1;
        if (run->n_idle > r->stats.n_stalled) r->stats.n_stalled = run->n_idle;
        count_slots(s, run->seq);
        if (run->in_step || tells_all) pleat__serving_demand(s, r);
        run->in_step = false;
    }
    s->tier.stands_still = n_ran == 0 && s->n_running == 0 && s->tier.fetching;
    const bool is_idle = n_ran == 0 && !s->tier.fetching; /* else they wait for the store */
    s->step.n_idle_in_row = is_idle ? s->step.n_idle_in_row + 1 : 0;
    s->stats.n_idle_steps += is_idle;
    if (s->step.n_idle_in_row > s->stats.max_idle_steps) s->stats.max_idle_steps = s->step.n_idle_in_row;
    s->stats.n_steps++;
}

static void give_up(pleat_serving *s, pleat__request *r) {
    if (r->has_no_memory)
        pleat__serving_finish(s, r, -1, PLEAT_FINISH_FAILED, PLEAT_E_MEMORY);
    else
        end_text(s, r, PLEAT_FINISH_DEADLINE);
}

/* Finish those that have run out of time, as many as there is room for events; the others in the next step. */
static void expire(pleat_serving *s) {
    const uint64_t now = s->backend.clock_ns(s->backend.ctx);
    if (now < s->next_deadline_ns) return;
    s->next_deadline_ns = UINT64_MAX;
    for (uint32_t i = 1; i <= s->opt.max_requests; i++) {
        pleat__request *r = s->requests[i];
        if (!r) continue;
        const uint64_t at = r->has_no_memory ? 0 : r->deadline_ns;
        if (at <= now && s->step.n_events < 2 * s->max_running)
            give_up(s, r);
        else if (at < s->next_deadline_ns)
            s->next_deadline_ns = at;
    }
}

/* Nobody runs, and whoever waits finds no room: what is pinned leaves none for the first of them, who came before.  That is
 * who was refused last: of another tenant's, an older one may fit.  It is tried once more without what it would stand on,
 * which may be what leaves it no room. */
static void fail_first(pleat_serving *s) {
    pleat__request *first = s->requests[s->step.tried.v];
    for (uint32_t i = 1; !s->step.tried.v && i <= s->opt.max_requests; i++) {
        pleat__request *r = s->requests[i];
        if (!r || (first && r->priority < first->priority)) continue;
        if (!first || r->priority > first->priority || r->arrival < first->arrival) first = r;
    }
    s->step.n_idle_in_row = 0;
    if (first && !first->shares_nothing) {
        if (pleat__request_is_swapped(first)) pleat__serving_drop_image(s, first);
        first->shares_nothing = true;
    } else if (first) {
        pleat__serving_finish(s, first, -1, PLEAT_FINISH_FAILED, PLEAT_E_LIMIT);
    }
}

pleat_status pleat_serving_step(pleat_serving *s, pleat_error *err) {
    if (!s) return PLEAT_E_ARG;
    s->step.n_events = 0;
    pleat__serving_free_finished(s);
    pleat__inbox_drain(s);
    expire(s);
    if (pleat__sched_n_waiting(s->sched) + pleat__sched_n_running(s->sched) == 0)
        return s->step.n_events > 0 ? PLEAT_OK : PLEAT_AGAIN;
    const uint64_t start_ns = pleat__clock_ns(), clock_ns = s->backend.clock_ns(s->backend.ctx);
    s->step.elsewhere_ns = s->step.swap_ns = s->step.n_runs = 0;
    s->step.tried.v = 0;
    uint32_t n_ran = 0;
    pleat__sched_plan plan;
    make_room(s, &plan);
    pleat_status status = pleat__serving_admit(s, &plan);
    if (status == PLEAT_OK) status = run_plan(s, &plan, &n_ran, err);
    close_step(s, plan.n_run, n_ran);
    if (s->step.n_idle_in_row >= IDLE_MAX && s->n_running == 0 && s->inbox.pinned_pages > 0) fail_first(s);
    const uint64_t step_ns = s->backend.clock_ns(s->backend.ctx) - clock_ns;
    if (status == PLEAT_OK) learn(s, step_ns);
    s->stats.step_ns += step_ns;
    s->stats.schedule_ns += pleat__clock_ns() - start_ns - s->step.elsewhere_ns;
    if (status == PLEAT_E_MEMORY) (void)pleat__error_set(err, status, PLEAT_NOWHERE, "serving: out of memory");
    return status;
}
