/* SPDX-License-Identifier: MIT
 *
 * test_serving_traffic.c: serving without a model: traffic far beyond what the pool holds, on the simulated backend.
 *
 * Random requests come and are cancelled, of several tenants, priorities and shared prefixes, under every kind of
 * preemption.  A table of what was submitted is the oracle: every request gives exactly its tokens and ends once, sums
 * of the statistics are those of the events, nobody waits for ever, and at the end every page is back.  By themselves: the
 * stops that options and engine leave, and prefixes that a request stands on alone.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "serving/internal.h"

enum { N_LANES = 4, PAGE_TOKENS = 16, CHUNK = 32, PREFIX = 64, MAX_TOKENS = 512, MAX_ITEMS = 16 };

static pleat_simulation simulation_of(uint32_t n_columns) {
    return (pleat_simulation){.size_bytes = sizeof(pleat_simulation),
                              .n_lanes = N_LANES,
                              .page_tokens = PAGE_TOKENS,
                              .page_bytes = 4096,
                              .n_pages = (uint64_t)n_columns * N_LANES,
                              .fraction = 1,
                              .max_items = MAX_ITEMS,
                              .max_seqs = 3 * MAX_ITEMS,
                              .max_tokens = MAX_TOKENS,
                              .chunk_tokens = CHUNK,
                              .step_tokens = 2 * CHUNK + MAX_ITEMS,
                              .fixed_ns = 1e6,
                              .prompt_ns = 1e5,
                              .token_ns = 1e5,
                              .byte_ns = 0.1,
                              .swap_bytes_per_s = 5e9};
}

static const pleat_tenant three[] = {
    {.name = "gold", .quota = 0.4, .weight = 3}, {.name = "silver", .quota = 0.2, .weight = 1}, {"none", 0, 1}};

static pleat_serving_options options_of(pleat_preemption preemption) {
    pleat_serving_options opt;
    pleat_serving_options_default(&opt);
    opt.max_requests = 4096;
    opt.prefix_tokens = PREFIX;
    opt.preemption = preemption;
    opt.swap_bytes = 64 * 4096 * N_LANES;
    return opt;
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

typedef struct known {
    pleat_request_id id;
    uint32_t n_prompt, n_predict, n_tokens;
    bool ended, cancelled;
} known;

typedef struct traffic {
    pleat_serving *serving;
    known *all; /* [cap]; a request's user pointer is its place */
    uint64_t n, cap;
    uint64_t n_open, n_tokens, n_prompt_ended, n_failed;
    pleat_request_stats sum; /* of the requests that ended */
} traffic;

static pleat_token prompt[MAX_TOKENS];

/* Prompts of a few families share their beginnings: token i of family f is f at first, then the family's own. */
static void make_request(pleat_request *q, uint32_t n_tenants) {
    pleat_request_default(q);
    const uint32_t family = (uint32_t)check_below(6), n_shared = 20 + 45 * family;
    q->n_prompt = (uint32_t)check_between(1, check_below(3) ? 120 : 380);
    q->n_predict = (uint32_t)check_between(1, check_below(3) ? 20 : MAX_TOKENS - q->n_prompt < 100 ? 20 : 100);
    for (uint32_t i = 0; i < q->n_prompt; i++)
        prompt[i] = (pleat_token)(i < n_shared ? family : 10 + check_below(1000));
    q->prompt = prompt;
    if (check_below(2)) q->breakpoint = n_shared < q->n_prompt ? n_shared : q->n_prompt;
    static uint32_t more[3];
    if (q->n_prompt > 40 && check_below(2)) q->n_breakpoints = (uint32_t)check_between(1, 3);
    q->breakpoints = more;
    for (uint32_t i = 0; i < 3; i++) more[i] = 10 + 15 * i;
    if (check_below(10) == 0) q->salt = "other";
    q->priority = (int32_t)check_below(3) - 1;
    if (n_tenants > 1) q->tenant = three[check_below(n_tenants)].name;
}

static void submit_one(traffic *t, uint32_t n_tenants) {
    pleat_request q;
    pleat_error err = {0};
    make_request(&q, n_tenants);
    known *k = &t->all[t->n];
    q.user = k;
    *k = (known){.n_prompt = q.n_prompt, .n_predict = q.n_predict};
    const pleat_status status = pleat_serving_submit(t->serving, &q, &k->id, &err);
    if (status == PLEAT_E_LIMIT && err.text[0]) return; /* "none" may have less than it takes */
    if (!CHECK_STATUS(status, PLEAT_OK)) printf("%s\n", err.text);
    t->n++;
    t->n_open++;
}

static void cancel_one(traffic *t) {
    if (t->n == 0) return;
    known *k = &t->all[t->n - 1 - check_below(t->n < 300 ? t->n : 300)];
    const bool is_open = !k->ended && !k->cancelled;
    CHECK_STATUS(pleat_serving_cancel(t->serving, k->id), is_open ? PLEAT_OK : PLEAT_E_ARG);
    k->cancelled |= is_open;
    t->n_open -= is_open;
}

static void take_event(traffic *t, const pleat_serving_event *e) {
    known *k = e->user;
    CHECK_EQ_U64(e->id.v, k->id.v);
    CHECK(!k->ended && !k->cancelled);
    k->n_tokens += e->token >= 0;
    t->n_tokens += e->token >= 0;
    if (e->finish == PLEAT_FINISH_NOT) return;
    k->ended = true;
    t->n_open--;
    t->n_failed += e->finish == PLEAT_FINISH_FAILED;
    t->n_prompt_ended += k->n_prompt;
    CHECK_EQ_U64(k->n_tokens, k->n_predict);
    CHECK(e->finish == PLEAT_FINISH_LENGTH && e->status == PLEAT_OK);
    CHECK(e->stats.n_prompt == k->n_prompt && e->stats.n_generated == k->n_predict && e->stats.n_hit < k->n_prompt);
    t->sum.n_swapped += e->stats.n_swapped;
    t->sum.n_recomputed += e->stats.n_recomputed;
    t->sum.n_hit += e->stats.n_hit;
    if (e->stats.n_stalled > t->sum.n_stalled) t->sum.n_stalled = e->stats.n_stalled;
}

static void step_one(traffic *t) {
    pleat_error err = {0};
    const pleat_status status = pleat_serving_step(t->serving, &err);
    CHECK_STATUS(status, t->n_open > 0 ? PLEAT_OK : PLEAT_AGAIN);
    uint32_t n;
    const pleat_serving_event *e = pleat_serving_events(t->serving, &n);
    for (uint32_t i = 0; i < n; i++) take_event(t, &e[i]);
}

static void check_end(traffic *t, bool cancels) {
    pleat_serving_stats s;
    CHECK(pleat_serving_is_valid(t->serving));
    pleat_serving_get_stats(t->serving, &s);
    CHECK_EQ_U64(s.n_waiting + s.n_running + s.n_swapped, 0);
    CHECK_EQ_U64(s.swapped_bytes, 0);
    CHECK_EQ_U64(s.generated_tokens, t->n_tokens);
    CHECK_EQ_U64(s.pages_used, s.pages_evictable); /* kept prefixes alone */
    CHECK(s.max_idle_steps <= 2 && t->sum.n_stalled <= 2);
    CHECK_EQ_U64(t->n_failed, 0);
    CHECK(t->sum.n_hit <= s.hit_tokens); /* that counts those who came back too */
    if (!cancels) {
        if (s.preempted_recompute == 0) CHECK_EQ_U64(s.hit_tokens, t->sum.n_hit);
        CHECK((t->sum.n_hit > 0) == (s.hits > 0));
        CHECK_EQ_U64(s.prompt_tokens + s.hit_tokens, t->n_prompt_ended);
        CHECK_EQ_U64(s.preempted_swap, t->sum.n_swapped);
        CHECK_EQ_U64(s.preempted_recompute, t->sum.n_recomputed);
    }
    pleat_serving_forget_prefixes(t->serving);
    pleat_serving_get_stats(t->serving, &s);
    CHECK_EQ_U64(s.pages_used, 0);
    CHECK_EQ_U64(s.n_prefixes, 0);
    CHECK(pleat_serving_is_valid(t->serving));
}

/* n requests, `max_open` at a time. */
static void run_traffic(uint32_t n_columns, uint64_t n, uint64_t max_open, const pleat_serving_options *opt,
                        bool cancels, pleat_serving_stats *stats) {
    const pleat_simulation simulation = simulation_of(n_columns);
    traffic t = {.cap = n + 1};
    pleat_error err = {0};
    t.all = malloc(t.cap * sizeof *t.all);
    if (!CHECK_STATUS(pleat_serving_create_simulated(&simulation, opt, &t.serving, &err), PLEAT_OK)) {
        printf("%s\n", err.text);
        return;
    }
    uint64_t n_steps = 0;
    while ((t.n < n || t.n_open > 0) && check_failures() == 0) {
        while (t.n < n && t.n_open < max_open && check_below(4)) submit_one(&t, opt->tenants ? opt->n_tenants : 1);
        if (cancels && check_below(20) == 0) cancel_one(&t);
        step_one(&t);
        if (++n_steps % 997 == 0) CHECK(pleat_serving_is_valid(t.serving));
    }
    pleat_serving_get_stats(t.serving, stats);
    check_end(&t, cancels);
    pleat_serving_destroy(&t.serving);
    CHECK(t.serving == NULL);
    free(t.all);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_oversubscribed(void) {
    static const pleat_preemption kinds[] = {PLEAT_PREEMPT_CHEAPER, PLEAT_PREEMPT_SWAP, PLEAT_PREEMPT_RECOMPUTE};
    for (uint32_t i = 0; i < 6; i++) {
        pleat_serving_options opt = options_of(kinds[i % 3]);
        pleat_serving_stats s;
        if (i >= 3) opt.tenants = three;
        if (i >= 3) opt.n_tenants = 3;
        check_context("run %u", i);
        /* The longest request takes 32 columns; 160 at a time want a pool of 40, or twice as many with tenants. */
        run_traffic(i >= 3 ? 80 : 40, check_rounds(15000, 1500), 160, &opt, i % 2 == 1, &s);
        CHECK(s.hits > 0 && s.evicted > 0 && s.peak_running > 2);
        CHECK(opt.preemption != PLEAT_PREEMPT_RECOMPUTE || s.preempted_swap == 0);
        if (i >= 3) continue; /* few are preempted in a larger pool */
        CHECK((opt.preemption == PLEAT_PREEMPT_RECOMPUTE ? s.preempted_recompute : s.preempted_swap) > 0);
    }
}

/* Any options: nothing is promised but that all comes out right. */
static void test_any_options(void) {
    uint64_t n_preempted = 0;
    for (uint64_t i = 0; i < check_rounds(150, 10); i++) {
        pleat_serving_options opt = options_of((pleat_preemption)check_below(3));
        pleat_serving_stats s;
        opt.prefix_tokens = (uint32_t)check_below(4) * CHUNK;
        opt.max_prefixes = (uint32_t)check_below(2 * MAX_ITEMS + 1);
        opt.high_watermark = check_uniform(0.5, 1);
        opt.low_watermark = opt.high_watermark * check_uniform(0.3, 1);
        opt.swap_bytes = check_below(100) * 4096 * N_LANES;
        opt.max_requests = (uint32_t)check_between(1, 400);
        if (check_below(2)) opt.tenants = three;
        opt.n_tenants = opt.tenants ? (uint32_t)check_between(1, 3) : 0;
        check_context("options %llu", (unsigned long long)i);
        run_traffic((uint32_t)check_between(33, 100), 500, opt.max_requests, &opt, check_below(2), &s);
        n_preempted += s.preempted_swap + s.preempted_recompute;
    }
    CHECK(n_preempted > 0);
}

/* What is known of it, as a request: one token all over. */
static pleat_request monotonous(known *k) {
    pleat_request q;
    pleat_request_default(&q);
    for (uint32_t i = 0; i < k->n_prompt; i++) prompt[i] = 5;
    q.prompt = prompt;
    q.n_prompt = k->n_prompt;
    q.n_predict = k->n_predict;
    q.user = k;
    return q;
}

static void submit_known(traffic *t, const pleat_request *q) {
    known *k = q->user;
    t->n_open += CHECK_STATUS(pleat_serving_submit(t->serving, q, &k->id, NULL), PLEAT_OK);
}

/* A request that needs the whole pool, but stands on prefixes whose last pages it had to copy: it preempts itself,
 * and comes back without them. */
static void test_whole_pool(void) {
    enum { N_PROMPT = 120, N_PREDICT = 392, COLUMNS = (N_PROMPT + N_PREDICT) / PAGE_TOKENS };
    static const uint32_t breaks[3] = {20, 50, 90};
    for (int i = 0; i < 2; i++) {
        const pleat_simulation simulation = simulation_of(COLUMNS);
        const pleat_serving_options opt = options_of(i == 0 ? PLEAT_PREEMPT_SWAP : PLEAT_PREEMPT_RECOMPUTE);
        known two[2] = {{.n_prompt = N_PROMPT, .n_predict = 1}, {.n_prompt = N_PROMPT, .n_predict = N_PREDICT}};
        traffic t = {0};
        pleat_serving_stats s;
        check_context("way %d", i);
        if (!CHECK_STATUS(pleat_serving_create_simulated(&simulation, &opt, &t.serving, NULL), PLEAT_OK)) return;
        for (uint32_t k = 0; k < 2; k++) {
            pleat_request q = monotonous(&two[k]);
            q.breakpoints = breaks;
            q.n_breakpoints = 3;
            submit_known(&t, &q);
            while (t.n_open > 0 && check_failures() == 0) step_one(&t);
        }
        pleat_serving_get_stats(t.serving, &s);
        CHECK_EQ_U64(s.hits, 1);
        CHECK_EQ_U64(i == 0 ? s.preempted_swap : s.preempted_recompute, 1);
        CHECK_EQ_U64(s.replayed_tokens > 0, i == 1);
        check_end(&t, true);
        pleat_serving_destroy(&t.serving);
    }
}

/* What is asked for, and what comes of it with this engine. */
static void test_prefix_tokens(void) {
    static const struct {
        uint32_t asked, chunk_tokens, max_seqs, given;
    } cases[] = {
        {0, CHUNK, 3 * MAX_ITEMS, 0},   {64, CHUNK, 3 * MAX_ITEMS, 64},
        {65, CHUNK, 3 * MAX_ITEMS, 96}, {1, CHUNK, 3 * MAX_ITEMS, CHUNK},
        {512, 300, 3 * MAX_ITEMS, 600}, {512, 512, 3 * MAX_ITEMS, 512},
        {512, CHUNK, MAX_ITEMS, 0},     {1 << 24, 7, 3 * MAX_ITEMS, (1 << 24) + 6},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_simulation simulation = simulation_of(40);
        pleat_serving_options opt = options_of(PLEAT_PREEMPT_CHEAPER);
        pleat_serving *s = NULL;
        opt.prefix_tokens = cases[i].asked;
        simulation.chunk_tokens = cases[i].chunk_tokens;
        simulation.max_seqs = cases[i].max_seqs;
        simulation.step_tokens = cases[i].chunk_tokens + MAX_ITEMS;
        check_context("case %zu", i);
        if (!CHECK_STATUS(pleat_serving_create_simulated(&simulation, &opt, &s, NULL), PLEAT_OK)) return;
        CHECK_EQ_U64(s->opt.prefix_tokens, cases[i].given);
        CHECK((s->prefixes.tree != NULL) == (cases[i].given > 0));
        pleat_serving_destroy(&s);
    }
    pleat_serving_options by_default;
    pleat_serving_options_default(&by_default);
    CHECK_EQ_U64(by_default.prefix_tokens, 512);
}

/* Nothing is sealed where nothing can be kept. */
static void test_no_breakpoints(void) {
    pleat_simulation simulation = simulation_of(100);
    const pleat_serving_options opt = options_of(PLEAT_PREEMPT_CHEAPER);
    for (uint32_t i = 0; i < 2; i++) {
        simulation.max_seqs = MAX_ITEMS + i;
        traffic t = {0};
        known one = {.n_prompt = 3 * PREFIX + 1, .n_predict = 2};
        pleat_request q = monotonous(&one);
        if (!CHECK_STATUS(pleat_serving_create_simulated(&simulation, &opt, &t.serving, NULL), PLEAT_OK)) return;
        q.breakpoint = 50;
        submit_known(&t, &q);
        const pleat__request *r = pleat__serving_request(t.serving, one.id);
        CHECK_EQ_U64(pleat__serving_seal_flag(t.serving, r, PREFIX), i == 0 ? 0 : PLEAT_ITEM_SEAL);
        CHECK_EQ_U64(pleat__serving_seal_flag(t.serving, r, 50), i == 0 ? 0 : PLEAT_ITEM_SEAL_ALL);
        CHECK_EQ_U64(pleat__serving_chunk_end(t.serving, r, CHUNK), 50); /* a chunk ends there all the same */
        while (t.n_open > 0 && check_failures() == 0) step_one(&t);
        check_end(&t, true);
        pleat_serving_destroy(&t.serving);
    }
}

/* A request stands on prefixes of 64 and 70 tokens.  The second one holds a page that the request had to copy: leaving it
 * frees that.  The first one's pages are the request's too: it stays, unless all shall go. */
static void test_leave_base(void) {
    const pleat_simulation simulation = simulation_of(40);
    const pleat_serving_options opt = options_of(PLEAT_PREEMPT_SWAP);
    traffic t = {0};
    known one = {.n_prompt = 120, .n_predict = 20};
    pleat_request q = monotonous(&one);
    if (!CHECK_STATUS(pleat_serving_create_simulated(&simulation, &opt, &t.serving, NULL), PLEAT_OK)) return;
    q.breakpoint = 70;
    submit_known(&t, &q);
    while (one.n_tokens == 0 && check_failures() == 0) step_one(&t);
    pleat__request *r = t.serving->running[0];
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const uint64_t n_free = pleat__serving_free_pages(t.serving), n_own = run->own_pages;
    CHECK_EQ_U64(t.serving->prefixes.n_kept, 2);
    CHECK(pleat__serving_leave_base(t.serving, r, false));
    CHECK_EQ_U64(t.serving->prefixes.n_kept, 1);
    CHECK_EQ_U64(pleat__serving_free_pages(t.serving), n_free + N_LANES);
    CHECK_EQ_U64(run->own_pages, n_own);
    CHECK(pleat_serving_is_valid(t.serving));
    CHECK(!pleat__serving_leave_base(t.serving, r, false));
    CHECK(t.serving->prefixes.n_kept == 1 && run->own_pages == n_own);
    CHECK(!pleat__serving_leave_base(t.serving, r, true));
    CHECK(t.serving->prefixes.n_kept == 0 && run->own_pages == run->n_pages && run->own_pages > n_own);
    CHECK(!pleat_serving_is_valid(t.serving)); /* the scheduler has not been told */
    pleat__serving_demand(t.serving, r);
    CHECK(pleat_serving_is_valid(t.serving));
    while (t.n_open > 0 && check_failures() == 0) step_one(&t);
    check_end(&t, true);
    pleat_serving_destroy(&t.serving);
}

static const check_test tests[] = {
    {"oversubscribed", test_oversubscribed}, {"any_options", test_any_options},       {"whole_pool", test_whole_pool},
    {"prefix_tokens", test_prefix_tokens},   {"no_breakpoints", test_no_breakpoints}, {"leave_base", test_leave_base},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
