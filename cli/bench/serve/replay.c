/* SPDX-License-Identifier: MIT
 *
 * replay.c: a trace against a serving: requests go in at their times, tokens come out, and what users see of
 * it is measured, by the serving's own clock, so that a simulated one is measured alike.
 *
 *     arrival ──────── first token ── .. ── last token       TTFT   first token - arrival
 *        wait, prompt        ITL, between any two            E2EL   last token - arrival
 *                                                            TPOT   (last - first) / (tokens - 1)
 *
 * These are the terms of vLLM's `bench serve`; a request arrives when the trace says so, even if the step that runs just
 * then keeps it waiting.  Percentiles are those between neighbours in rank; intervals between tokens are too many to
 * keep and are counted in classes of a thousandth's width.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "serve.h"

/* Intervals by the upper bits of their double: 2^10 classes for each power of two up to 2^62 ns. */
enum { CLASS_BITS = 10, N_CLASSES = 63 << CLASS_BITS };

typedef struct intervals {
    uint64_t *n_of; /* [N_CLASSES] */
    uint64_t n;
    double sum_ns;
} intervals;

typedef struct replay {
    const serve_setup *setup;
    const trace *t;
    const token_source *tokens;
    serve_target *target;
    serve_result *out;
    trace_request *requests; /* [n] the trace's, some of them aged */
    uint32_t n_begun;        /* requests that have had a token, or never will */
    uint64_t start_ns;
    double from_s;              /* when measuring begins; infinity: not known yet, as the pool is being filled */
    int measures;               /* it has begun */
    pleat_serving_stats before; /* what was counted until then */
    uint64_t n_done;            /* tokens of trace_tokens() */
    double *first_s, *last_s;   /* [n] times of a request's tokens */
    double *ttft, *tpot, *e2el; /* ms, of completed requests */
    uint32_t n_tpot;
    intervals itl;
    pleat_request_id *ids;           /* [n] of those that were taken */
    pleat_token *prompt;             /* [longest] */
    double before_s;                 /* the last time that was accounted for */
    double last_token_s;             /* of all requests */
    double running_s;                /* requests times seconds */
    double used_s, live_s, shared_s; /* pages times seconds */
    double slack;                    /* fragmentation, summed over n_slack samples */
    uint32_t n_slack;
    uint64_t n_accounts, n_steps; /* of the latter, those since the last account */
} replay;

/* ---- figures ----------------------------------------------------------------------------------- */

static uint32_t class_of(double ns) {
    uint64_t bits;
    if (!(ns >= 1)) return 0;
    memcpy(&bits, &ns, sizeof bits);
    const uint64_t bucket = (bits >> (52 - CLASS_BITS)) - (1023ull << CLASS_BITS);
    return bucket < N_CLASSES ? (uint32_t)bucket : N_CLASSES - 1;
}

/* The middle of a bucket, ns. */
static double class_middle(uint32_t bucket) {
    const uint64_t bits = ((uint64_t)bucket + (1023ull << CLASS_BITS)) << (52 - CLASS_BITS);
    double low;
    memcpy(&low, &bits, sizeof low);
    return low * (1 + ldexp(1, -CLASS_BITS - 1));
}

static void add_interval(intervals *v, double ns) {
    v->n_of[class_of(ns)]++;
    v->n++;
    v->sum_ns += ns;
}

static double interval_at(const intervals *v, double share) {
    const double rank = share * (double)(v->n - 1);
    uint64_t below = 0;
    uint32_t bucket = 0;
    while (bucket + 1 < N_CLASSES && (double)(below + v->n_of[bucket]) <= rank) below += v->n_of[bucket++];
    return class_middle(bucket);
}

static serve_latency latency_of_intervals(const intervals *v) {
    if (!v->n) return (serve_latency){NAN, NAN, NAN};
    return (serve_latency){1e-6 * v->sum_ns / (double)v->n, 1e-6 * interval_at(v, 0.5), 1e-6 * interval_at(v, 0.99)};
}

/* As numpy.percentile() has it; of sorted values. */
static double value_at(const double *v, uint32_t n, double share) {
    const double rank = share * (n - 1);
    const uint32_t i = (uint32_t)rank;
    return i + 1 < n ? v[i] + (rank - i) * (v[i + 1] - v[i]) : v[n - 1];
}

/* Sorts them. */
static serve_latency latency_of(double *v, uint32_t n) {
    double sum = 0;
    if (!n) return (serve_latency){NAN, NAN, NAN};
    const double median = measure_median(v, n);
    for (uint32_t i = 0; i < n; i++) sum += v[i];
    return (serve_latency){sum / n, median, value_at(v, n, 0.99)};
}

/* ---- samples ----------------------------------------------------------------------------------- */

/* Every second goes.  The first stays. */
static void thin(serve_series *s) {
    for (uint32_t i = 0; 2 * i < s->n; i++) s->v[i] = s->v[2 * i];
    s->n = (s->n + 1) / 2;
    s->interval_s *= 2;
}

/* Slots without a token; the cache counts what is shared for each who has it. */
static void sample_slack(replay *r) {
    pleat_cache_usage usage;
    const pleat_engine *engine = r->target->engine;
    if (!engine || pleat_engine_get_usage(engine, (pleat_seq){0}, &usage) != PLEAT_OK || !usage.slots) return;
    r->slack += cli_fragmentation(&usage);
    r->n_slack++;
}

static void sample(replay *r, const pleat_serving_stats *stats, double now_s) {
    serve_series *s = &r->out->series;
    if (now_s < s->next_s) return;
    if (s->n == SERVE_SAMPLES_CAP) thin(s);
    s->next_s = now_s + s->interval_s;
    s->v[s->n++] = (serve_sample){now_s,
                                  stats->n_waiting,
                                  stats->n_running,
                                  stats->n_swapped,
                                  stats->pages_used,
                                  stats->pages_evictable,
                                  stats->pages_total - stats->pages_used,
                                  stats->pages_high,
                                  stats->pages_low};
    sample_slack(r);
}

/* What has been so since the last time ends now; n_ended requests more than run now took part in the last step. */
static void account(replay *r, uint32_t n_ended, double now_s) {
    pleat_serving_stats *stats = &r->out->stats;
    pleat_serving_get_stats(r->target->serving, stats);
    const double dt = now_s - r->before_s, used = (double)stats->pages_used;
    r->running_s += dt * (stats->n_running + n_ended);
    r->used_s += dt * used;
    r->live_s += dt * (used - (double)stats->pages_evictable);
    r->shared_s += dt * (double)stats->pages_shared;
    r->before_s = now_s;
    r->n_accounts++;
    r->n_steps = 0;
    if (used > r->out->used_max) r->out->used_max = used;
    sample(r, stats, now_s);
}

/* A look costs as much as there are sequences: long replays get one in 64 steps. */
static int is_account_due(replay *r) {
    const uint64_t doublings = r->n_accounts / 256;
    return ++r->n_steps >= 1ull << (doublings < 6 ? doublings : 6);
}

/* ---- requests ---------------------------------------------------------------------------------- */

static double now_of(const replay *r) {
    return 1e-9 * (double)(pleat_serving_clock_ns(r->target->serving) - r->start_ns);
}

static uint32_t tokens_of(const trace_request *from) { return from->n_prompt + from->n_output; }

static uint64_t trace_tokens(const trace *t) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) n += tokens_of(&t->requests[i]);
    return n;
}

/* Counts what is refused; CLI_FAILED where that is no fault of the request. */
static int submit(replay *r, uint32_t i) {
    const trace_request *from = &r->requests[i];
    const tenant_list *tenants = &r->setup->tenants;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_request request;
    pleat_request_default(&request);
    trace_prompt(from, i, r->tokens, r->prompt);
    request.prompt = r->prompt;
    request.n_prompt = from->n_prompt;
    request.n_predict = from->n_output;
    request.breakpoint = from->n_prefix;
    request.tenant = tenants->n ? tenants->v[from->tenant].name : NULL;
    request.salt = from->salt;
    request.priority = from->priority;
    request.ignores_end = 1;
    request.max_ah = r->setup->o->ah_most;
    request.max_al = r->setup->o->al_most;
    request.user = &r->first_s[i];
    const pleat_status status = pleat_serving_submit(r->target->serving, &request, &r->ids[i], &err);
    if (status == PLEAT_OK) return CLI_OK;
    if (status == PLEAT_E_MEMORY) return cli_fail("cannot take a request", status, &err);
    trace_reject(r->t, from->line, &r->out->n_rejected, "%s", err.text[0] ? err.text : pleat_status_str(status));
    r->out->n_ended++;
    r->n_begun++;
    r->n_done += tokens_of(from);
    return CLI_OK;
}

static int submit_due(replay *r, double now_s) {
    int code = CLI_OK;
    for (uint32_t *i = &r->out->n_submitted; code == CLI_OK && *i < r->t->n; (*i)++) {
        if (r->requests[*i].arrival_s > now_s) break;
        code = submit(r, *i);
    }
    return code;
}

/* --steady: when the last one has a token the next one comes, midway.  One that has to wait finds no room: it has all of a
 * step for its prompt. */
static int fill_pool(replay *r, double now_s) {
    pleat_serving_stats stats;
    const uint32_t i = r->out->n_submitted;
    pleat_serving_get_stats(r->target->serving, &stats);
    const int is_full = stats.n_waiting > 0 || i == r->t->n;
    if (!is_full && r->n_begun < i) return CLI_OK;
    if (is_full) r->from_s = now_s + (double)r->setup->o->warmup;
    for (uint32_t k = i; is_full && k < r->t->n; k++) r->requests[k].arrival_s = now_s;
    if (is_full) return submit_due(r, now_s);
    trace_age(r->t, i, r->setup->o->seed, &r->requests[i]);
    r->requests[i].arrival_s = now_s;
    r->out->n_submitted++;
    return submit(r, i);
}

static void complete(replay *r, uint32_t i, const pleat_request_stats *stats) {
    serve_result *out = r->out;
    const double arrival_s = r->requests[i].arrival_s, first_s = r->first_s[i], last_s = r->last_s[i];
    if (stats->n_generated > 1) r->tpot[r->n_tpot++] = 1e3 * (last_s - first_s) / (stats->n_generated - 1);
    r->ttft[out->n_completed] = 1e3 * (first_s - arrival_s);
    r->e2el[out->n_completed] = 1e3 * (last_s - arrival_s);
    out->n_completed++;
    out->input_tokens += stats->n_prompt;
    out->hit_tokens += stats->n_hit;
    out->completed_tokens += stats->n_generated;
}

static void take_token(replay *r, uint32_t i, double now_s) {
    if (r->last_s[i] >= 0) {
        add_interval(&r->itl, 1e9 * (now_s - r->last_s[i]));
    } else {
        r->first_s[i] = now_s;
        r->n_begun++;
        r->n_done += r->requests[i].n_prompt;
    }
    r->last_s[i] = r->last_token_s = now_s;
    r->out->output_tokens++;
    r->n_done++;
}

static void take_event(replay *r, const pleat_serving_event *event, double now_s) {
    const uint32_t i = (uint32_t)((double *)event->user - r->first_s);
    if (event->token >= 0) take_token(r, i, now_s);
    if (event->finish == PLEAT_FINISH_NOT) return;
    r->out->n_ended++;
    r->n_begun += r->last_s[i] < 0;
    const uint32_t n_had = r->last_s[i] >= 0 ? r->requests[i].n_prompt + event->stats.n_generated : 0;
    r->n_done += tokens_of(&r->requests[i]) - n_had; /* those that never come */
    if (event->stats.n_stalled > r->out->stalled_max) r->out->stalled_max = event->stats.n_stalled;
    if (event->finish == PLEAT_FINISH_FAILED) {
        r->out->n_failed++;
        const uint64_t n = event->stats.n_generated; /* of which those before measuring began are not counted */
        r->out->output_tokens -= n < r->out->output_tokens ? n : r->out->output_tokens;
        cli_error("request %u failed: %s", r->requests[i].line, pleat_status_str(event->status));
    } else {
        complete(r, i, &event->stats);
    }
}

static void take_events(replay *r) {
    uint32_t n_events;
    const pleat_serving_event *events = pleat_serving_events(r->target->serving, &n_events);
    const double now_s = now_of(r);
    const uint32_t n_before = r->out->n_ended;
    for (uint32_t i = 0; i < n_events; i++) take_event(r, &events[i], now_s);
    if (is_account_due(r)) account(r, r->out->n_ended - n_before, now_s);
    progress_update(r->n_done);
}

/* When all is over, whatever is left; infinity: never. */
static double limit_of(const replay *r) {
    const float seconds = r->setup->o->seconds;
    return seconds > 0 ? r->from_s + (double)seconds : INFINITY;
}

/* Nobody is there: let time pass until the next request comes, or no more do. */
static void wait_for_next(replay *r, double now_s) {
    const double gap_s = fmin(r->requests[r->out->n_submitted].arrival_s, limit_of(r)) - now_s;
    if (!r->target->engine) {
        pleat_serving_clock_advance(r->target->serving, (uint64_t)ceil(1e9 * fmax(gap_s, 0)) + 1);
    } else if (gap_s > 0) {
        const double sleep_s = gap_s < 0.1 ? gap_s : 0.1;
        nanosleep(&(struct timespec){0, (long)(1e9 * sleep_s)}, NULL);
    }
    account(r, 0, now_of(r));
}

/* --seconds: those under way leave, and nobody comes any more. */
static int is_over(replay *r, double now_s) {
    if (now_s < limit_of(r)) return 0;
    account(r, 0, now_s);
    for (uint32_t i = 0; i < r->out->n_submitted; i++)
        if (r->ids[i].v && pleat_serving_cancel(r->target->serving, r->ids[i]) == PLEAT_OK) r->out->n_unfinished++;
    r->out->n_unfinished += r->t->n - r->out->n_submitted;
    return 1;
}

/* ---- measuring --------------------------------------------------------------------------------- */

/* All that is a sum begins anew. */
static void begin_measuring(replay *r, double now_s) {
    serve_result *out = r->out;
    account(r, 0, now_s);
    r->measures = 1;
    r->from_s = now_s;
    r->before = out->stats;
    r->running_s = r->used_s = r->live_s = r->shared_s = r->slack = 0;
    r->n_slack = r->n_tpot = 0;
    memset(r->itl.n_of, 0, N_CLASSES * sizeof *r->itl.n_of);
    r->itl.n = 0;
    r->itl.sum_ns = 0;
    out->n_completed = out->stalled_max = 0;
    out->input_tokens = out->output_tokens = out->hit_tokens = out->completed_tokens = 0;
    out->used_max = (double)out->stats.pages_used;
}

/* What was counted before measuring began is taken off. */
static void subtract(pleat_serving_stats *s, const pleat_serving_stats *before) {
    s->n_steps -= before->n_steps;
    s->n_idle_steps -= before->n_idle_steps;
    s->prompt_tokens -= before->prompt_tokens;
    s->hit_tokens -= before->hit_tokens;
    s->lookups -= before->lookups;
    s->hits -= before->hits;
    s->generated_tokens -= before->generated_tokens;
    s->replayed_tokens -= before->replayed_tokens;
    s->preempted_swap -= before->preempted_swap;
    s->preempted_recompute -= before->preempted_recompute;
    s->compressed -= before->compressed;
    s->evicted -= before->evicted;
    s->images_lost -= before->images_lost;
    s->schedule_ns -= before->schedule_ns;
    s->manage_ns -= before->manage_ns;
    s->compact_ns -= before->compact_ns;
    s->step_ns -= before->step_ns;
    s->tokens_moved -= before->tokens_moved;
    s->pages_returned -= before->pages_returned;
    for (int i = 0; i <= 100; i++) s->fragmentation[i] -= before->fragmentation[i];
}

#define STORE_WAIT_NS 1000000u /* at most, where all wait for the store: others may be due */

static int run(replay *r) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    for (;;) {
        const double now_s = now_of(r);
        if (interrupt_came()) return CLI_INTERRUPTED;
        if ((isinf(r->from_s) ? fill_pool : submit_due)(r, now_s) != CLI_OK) return CLI_FAILED;
        if (!r->measures && now_s >= r->from_s) begin_measuring(r, now_s);
        if (r->out->n_ended == r->t->n || is_over(r, now_s)) return CLI_OK;
        const pleat_status status = pleat_serving_step(r->target->serving, &err);
        if (status == PLEAT_OK) {
            take_events(r);
            if (r->setup->store) (void)pleat_serving_wait(r->target->serving, STORE_WAIT_NS);
        } else if (status != PLEAT_AGAIN) {
            return cli_fail("a step failed", status, &err);
        } else if (r->out->n_submitted < r->t->n) {
            wait_for_next(r, now_s);
        } else {
            cli_error("%u requests were lost", r->t->n - r->out->n_ended);
            return CLI_FAILED;
        }
    }
}

/* Most pages in use at any time, also within steps, where the engine knows; else of those seen. */
static double pages_max(const replay *r) {
    pleat_cache_usage usage;
    const pleat_engine *engine = r->target->engine;
    if (engine && pleat_engine_get_usage(engine, (pleat_seq){0}, &usage) == PLEAT_OK) return (double)usage.pages_peak;
    return r->out->used_max;
}

static uint32_t page_tokens_of(const pleat_engine *engine) {
    pleat_engine_options opt;
    pleat_engine_get_options(engine, &opt);
    return opt.page_tokens;
}

static void sum_up(replay *r) {
    serve_result *out = r->out;
    account(r, 0, fmax(r->before_s, r->last_token_s));
    subtract(&out->stats, &r->before);
    out->duration_s = r->before_s - r->from_s;
    const double pool_s = (double)out->stats.pages_total * out->duration_s;
    out->ttft = latency_of(r->ttft, out->n_completed);
    out->tpot = latency_of(r->tpot, r->n_tpot);
    out->e2el = latency_of(r->e2el, out->n_completed);
    out->itl = latency_of_intervals(&r->itl);
    out->running_mean = out->duration_s > 0 ? r->running_s / out->duration_s : NAN;
    out->used_mean = pool_s > 0 ? r->used_s / pool_s : NAN;
    out->live_mean = pool_s > 0 ? r->live_s / pool_s : NAN;
    out->shared_mean = pool_s > 0 ? r->shared_s / pool_s : NAN;
    out->used_max = pages_max(r) / (double)out->stats.pages_total;
    out->fragmentation = r->n_slack ? r->slack / r->n_slack : NAN;
    out->n_requests = r->t->n + r->t->n_rejected;
    out->n_rejected += r->t->n_rejected;
    out->page_tokens = r->target->engine ? page_tokens_of(r->target->engine) : r->target->simulation.page_tokens;
}

static int count_pages_left(replay *r) {
    pleat_serving_stats stats;
    pleat_serving_forget_prefixes(r->target->serving);
    pleat_serving_get_stats(r->target->serving, &stats);
    r->out->pages_left = stats.pages_used;
    if (stats.pages_used == 0) return CLI_OK;
    cli_error("%llu pages were lost", (unsigned long long)stats.pages_used);
    return CLI_FAILED;
}

/* Of all prompts; of those that are aged, too. */
static uint32_t longest_prompt(const trace *t, int is_aged) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t n = is_aged ? tokens_of(&t->requests[i]) : t->requests[i].n_prompt;
        if (n > most) most = n;
    }
    return most;
}

static int fail_early(void) {
    cli_error("all requests had been served before measuring began: give more, or a shorter --warmup");
    return CLI_FAILED;
}

int serve_replay(const serve_setup *setup, const trace *t, const token_source *tokens, serve_target *target,
                 const char *kv, serve_result *out) {
    replay r = {.setup = setup, .t = t, .tokens = tokens, .target = target, .out = out};
    *out = (serve_result){.series = {.interval_s = 1e-3}};
    double *times = cli_alloc(5 * (size_t)t->n, sizeof *times);
    r.first_s = times;
    r.last_s = r.first_s + t->n;
    r.ttft = r.last_s + t->n;
    r.tpot = r.ttft + t->n;
    r.e2el = r.tpot + t->n;
    for (uint32_t i = 0; i < t->n; i++) r.last_s[i] = -1;
    r.from_s = setup->o->steady ? INFINITY : (double)setup->o->warmup;
    r.requests = cli_alloc(t->n, sizeof *r.requests);
    memcpy(r.requests, t->requests, t->n * sizeof *r.requests);
    r.ids = cli_alloc(t->n, sizeof *r.ids);
    r.itl.n_of = cli_alloc(N_CLASSES, sizeof *r.itl.n_of);
    r.prompt = cli_alloc(longest_prompt(t, setup->o->steady), sizeof *r.prompt);
    r.start_ns = pleat_serving_clock_ns(target->serving);
    progress_begin(kv, trace_tokens(t), !setup->o->common.quiet);
    int code = run(&r);
    progress_end();
    if (code == CLI_OK && !r.measures) code = fail_early();
    if (code == CLI_OK) sum_up(&r);
    if (code == CLI_OK) code = count_pages_left(&r);
    free(times);
    free(r.requests);
    free(r.itl.n_of);
    free(r.ids);
    free(r.prompt);
    return code;
}
