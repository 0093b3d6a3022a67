/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_simulated.c: a simulation prices what a spec does: the same traffic on an engine and simulated.
 *
 * The engine's clock is replaced by the prices of the simulation, so both decide by the same times, and time does not
 * depend on the machine.  Of a spec whose shares depend on the text the forecast is measured first, as `pleat bench serve
 * --simulate` measures it.  Compared are the requests that run, over the time, and how often somebody was preempted.
 */
#include <math.h>

#include "serving_rig.h"

enum { N_REQUESTS = 28 };

static const pleat__serving_cost prices = {.fixed_ns = 1e6, .prompt_ns = 2e5, .token_ns = 1e6, .byte_ns = 0.05};
#define SWAP_BYTES_PER_S 1e9

/* ---- an engine on prices ------------------------------------------------------------------------------------------- */

typedef struct priced {
    pleat__backend on; /* the engine's */
    double now_ns;
} priced;

static pleat_status priced_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                               pleat_error *err) {
    priced *p = ctx;
    uint64_t n_pages = 0;
    pleat__step_load load = {0};
    for (uint32_t i = 0; i < n_items; i++) {
        load.n_chunks += items[i].n_tokens > 1;
        load.n_prompt += items[i].n_tokens > 1 ? items[i].n_tokens : 0;
        load.n_generated += items[i].n_tokens == 1;
        n_pages += items[i].n_tokens == 1 ? p->on.pages_of(p->on.ctx, items[i].seq) : 0;
    }
    const pleat_status status = p->on.run(p->on.ctx, items, n_items, likeliest, err);
    load.kv_bytes = n_pages * p->on.shape.page_bytes;
    if (status == PLEAT_OK) p->now_ns += pleat__cost_step_ns(&prices, &load);
    return status;
}

static void wind_on(priced *p, uint64_t n_pages) {
    p->now_ns += (double)(n_pages * p->on.shape.page_bytes) / SWAP_BYTES_PER_S * 1e9;
}

static pleat_status priced_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    priced *p = ctx;
    const pleat_status status = p->on.save(p->on.ctx, seq, base, out);
    if (status == PLEAT_OK) wind_on(p, out->n_pages);
    return status;
}

static pleat_status priced_restore(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out) {
    priced *p = ctx;
    const pleat_status status = p->on.restore(p->on.ctx, image, base, out);
    if (status == PLEAT_OK) wind_on(p, image->n_pages);
    return status;
}

#define ON(ctx) (&((priced *)(ctx))->on)
static pleat_status p_open(void *c, uint32_t n, pleat_seq *out) { return ON(c)->open(ON(c)->ctx, n, out); }
static pleat_status p_fork(void *c, pleat_seq q, uint32_t n, pleat_seq *out) {
    return ON(c)->fork(ON(c)->ctx, q, n, out);
}
static uint64_t p_fork_pages(void *ctx, pleat_seq seq) { return ON(ctx)->fork_pages(ON(ctx)->ctx, seq); }

static void p_close(void *c, pleat_seq q) { ON(c)->close(ON(c)->ctx, q); }
static uint32_t p_budget(void *c, uint32_t n) { return ON(c)->budget(ON(c)->ctx, n); }
static uint64_t p_needed(void *c, pleat_seq q, uint32_t n, uint32_t f) {
    return ON(c)->pages_needed(ON(c)->ctx, q, n, f);
}
static uint64_t p_pages_of(void *c, pleat_seq q) { return ON(c)->pages_of(ON(c)->ctx, q); }
static uint64_t p_shared(void *c, pleat_seq a, pleat_seq b) { return ON(c)->pages_shared(ON(c)->ctx, a, b); }
static uint64_t p_used(void *c) { return ON(c)->pages_used(ON(c)->ctx); }
static void p_sides(void *c, pleat_seq q, uint64_t *h, uint64_t *l) { ON(c)->pages_by_side(ON(c)->ctx, q, h, l); }
static void p_slots(void *c, pleat_seq q, uint64_t *l, uint64_t *h) { ON(c)->slots_of(ON(c)->ctx, q, l, h); }
static void p_bytes(void *c, pleat_seq q, uint64_t *b, uint64_t *f) { ON(c)->bytes_of(ON(c)->ctx, q, b, f); }
static uint64_t p_image_bytes(void *c, pleat_seq q, pleat_seq b) { return ON(c)->image_bytes(ON(c)->ctx, q, b); }
static void p_drop(void *c, pleat__image *image) { ON(c)->drop(ON(c)->ctx, image); }
static pleat_status p_compress(void *c, pleat_seq q, float ah, float al) {
    return ON(c)->compress(ON(c)->ctx, q, ah, al);
}
static uint64_t p_clock(void *c) { return (uint64_t)((priced *)c)->now_ns; }
static void p_advance(void *c, uint64_t ns) { ((priced *)c)->now_ns += (double)ns; }
static void p_work(void *c, pleat__backend_work *out) { ON(c)->work(ON(c)->ctx, out); }
static bool p_is_valid(void *c) { return ON(c)->is_valid(ON(c)->ctx); }
static void p_destroy(void *c) { ON(c)->destroy(ON(c)->ctx); }

static pleat__backend backend_on(priced *p) {
    return (pleat__backend){.ctx = p,
                            .shape = p->on.shape,
                            .open = p_open,
                            .fork = p_fork,
                            .fork_pages = p_fork_pages,
                            .close = p_close,
                            .run = priced_run,
                            .budget = p_budget,
                            .pages_needed = p_needed,
                            .pages_of = p_pages_of,
                            .pages_shared = p_shared,
                            .pages_used = p_used,
                            .pages_by_side = p_sides,
                            .slots_of = p_slots,
                            .bytes_of = p_bytes,
                            .image_bytes = p_image_bytes,
                            .save = priced_save,
                            .restore = priced_restore,
                            .drop = p_drop,
                            .compress = p_compress,
                            .clock_ns = p_clock,
                            .advance = p_advance,
                            .work = p_work,
                            .is_valid = p_is_valid,
                            .destroy = p_destroy};
}

/* ---- the traffic --------------------------------------------------------------------------------------------------- */

typedef struct figures {
    double concurrency; /* requests that run, over the time */
    double preempted, seconds;
    uint32_t n_done;
} figures;

/* Prompts of 60 to 229 tokens and answers of 40 to 149; all prompts begin alike if they share prefixes. */
static void submit_all(pleat_serving *s, bool shares) {
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        const uint32_t n_prompt = 60 + 37 * i % 170, n_predict = 40 + 53 * i % 110;
        pleat_request q = request_of(text + (shares ? 0 : 61 * i), n_prompt, n_predict);
        pleat_request_id id;
        CHECK_STATUS(pleat_serving_submit(s, &q, &id, NULL), PLEAT_OK);
    }
}

static figures serve(pleat_serving *s, bool shares) {
    figures f = {0};
    pleat_error err = {0};
    pleat_serving_stats stats;
    double sum = 0, last = 0;
    submit_all(s, shares);
    while (check_failures() == 0) {
        const pleat_status status = pleat_serving_step(s, &err);
        const double now = (double)s->backend.clock_ns(s->backend.ctx);
        uint32_t n;
        const pleat_serving_event *e = pleat_serving_events(s, &n);
        for (uint32_t i = 0; i < n; i++) f.n_done += e[i].finish == PLEAT_FINISH_LENGTH;
        if (status == PLEAT_AGAIN) break;
        if (!CHECK_STATUS(status, PLEAT_OK)) printf("%s\n", err.text);
        sum += s->n_running * (now - last);
        last = now;
    }
    pleat_serving_get_stats(s, &stats);
    f.concurrency = sum / last;
    f.seconds = last / 1e9;
    f.preempted = (double)(stats.preempted_swap + stats.preempted_recompute);
    CHECK(pleat_serving_is_valid(s));
    return f;
}

/* ---- both ---------------------------------------------------------------------------------------------------------- */

typedef struct trial {
    const char *spec;
    uint32_t prefix_tokens;
    uint32_t n_pages;
} trial;

static pleat_engine_options trial_engine(const trial *t) {
    pleat_engine_options o = engine_options(t->spec);
    o.max_items = 16;
    o.max_seqs = 80;
    o.page_tokens = 0;
    o.step_tokens = CHUNK + o.max_items;
    return o;
}

static pleat_serving_options trial_serving(const trial *t) {
    pleat_serving_options o = serving_options();
    o.prefix_tokens = t->prefix_tokens;
    o.low_watermark = o.high_watermark = 1; /* so that what grows is preempted */
    return o;
}

/* Sequences of several lengths, as the traffic's. */
static void measure(pleat_engine *engine, pleat_forecast *f) {
    static const uint32_t lengths[] = {100, 170, 240, 330};
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
        pleat_seq seq;
        CHECK_STATUS(pleat_engine_open(engine, MAX_TOKENS, &seq), PLEAT_OK);
        for (uint32_t at = 0; at < lengths[i]; at += CHUNK) {
            const uint32_t left = lengths[i] - at, n = left < CHUNK ? left : CHUNK;
            const pleat_engine_item item = {seq, text + 500 * i + at, n, 0, NULL, n < left ? PLEAT_ITEM_MORE : 0};
            CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
        }
        CHECK_STATUS(pleat_forecast_measure(f, pleat_engine_cache(engine), seq), PLEAT_OK);
        CHECK_STATUS(pleat_engine_close(engine, seq), PLEAT_OK);
    }
}

static pleat_forecast forecast_of(const trial *t, pleat_engine *engine) {
    const pleat_engine_options eo = trial_engine(t);
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    pleat_cache_options co;
    pleat_cache_options_default(&co);
    co.spec = eo.spec;
    co.n_layers = info.n_layers;
    co.n_kv_heads = info.n_kv_heads;
    co.n_q_heads = info.n_q_heads;
    co.head_dim = info.head_dim;
    co.max_tokens = MAX_TOKENS;
    pleat_forecast f = {0};
    CHECK_STATUS(pleat_forecast_for(&co, &f, NULL), PLEAT_OK);
    measure(engine, &f);
    return f;
}

static figures on_engine(const trial *t, pleat_forecast *forecast) {
    pleat_engine *engine = NULL;
    pleat_serving *s = NULL;
    pleat_engine_options eo = trial_engine(t);
    const pleat_serving_options so = trial_serving(t);
    static priced p;
    figures f = {0};
    if (!CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK)) return f;
    *forecast = forecast_of(t, engine);
    pleat_engine_destroy(&engine);
    eo.pool_bytes = t->n_pages * forecast->traits.page_bytes;
    p = (priced){.now_ns = 0};
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    if (CHECK_STATUS(pleat__backend_on_engine(engine, NULL, &p.on, NULL), PLEAT_OK)) {
        const pleat__backend b = backend_on(&p);
        if (CHECK_STATUS(pleat__serving_create_on(&b, &so, &s, NULL), PLEAT_OK)) f = serve(s, t->prefix_tokens > 0);
    }
    pleat_serving_destroy(&s);
    pleat_engine_destroy(&engine);
    return f;
}

static pleat_simulation simulation_of(const trial *t, const pleat_forecast *forecast) {
    const pleat_engine_options eo = trial_engine(t);
    return (pleat_simulation){.size_bytes = sizeof(pleat_simulation),
                              .n_lanes = forecast->traits.n_lanes,
                              .page_tokens = forecast->traits.high_page_tokens,
                              .page_bytes = forecast->traits.page_bytes,
                              .n_pages = t->n_pages,
                              .forecast = forecast,
                              .max_items = eo.max_items,
                              .max_seqs = eo.max_seqs,
                              .max_tokens = eo.max_tokens,
                              .chunk_tokens = eo.chunk_tokens,
                              .step_tokens = eo.step_tokens,
                              .fixed_ns = prices.fixed_ns,
                              .prompt_ns = prices.prompt_ns,
                              .token_ns = prices.token_ns,
                              .byte_ns = prices.byte_ns,
                              .swap_bytes_per_s = SWAP_BYTES_PER_S};
}

static figures simulated(const trial *t, const pleat_forecast *forecast) {
    const pleat_serving_options so = trial_serving(t);
    const pleat_simulation simulation = simulation_of(t, forecast);
    pleat_serving *s = NULL;
    pleat_error err = {0};
    figures f = {0};
    if (CHECK_STATUS(pleat_serving_create_simulated(&simulation, &so, &s, &err), PLEAT_OK))
        f = serve(s, t->prefix_tokens > 0);
    else
        printf("%s\n", err.text);
    pleat_serving_destroy(&s);
    return f;
}

static bool is_near(double a, double b, double slack) { return fabs(a - b) <= 0.1 * b + slack; }

static void test_as_the_engine(void) {
    static const trial trials[] = {
        {"f16", 0, 1000},
        {"k8v4", 0, 1000},
        {"h2o:budget=128,format=f16", 0, 1000},
        {"snapkv:budget=96", 0, 800},
        {"leankv", 0, 1000},
        {"leankv:ah=1,al=0.02,window=32", 0, 1000},
        {"kvcomp", 0, 1500},
        {"kvcomp:k=0.2,v=0.2,block=32,sinks=0,buffer=40", 0, 1200},
        {"kvcomp:k=0.2,v=0.2,block=32,sinks=70,buffer=40", PREFIX, 1500},
        {"f16", PREFIX, 1000},
        {"k8v4", PREFIX, 1000},
        {"leankv", PREFIX, 1800},
        {"kvcomp", PREFIX, 1500},
        {"h2o:budget=64,window=16,format=f16", PREFIX, 800},
        {"snapkv:budget=96", PREFIX, 800},
    };
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    for (size_t i = check_rounds(0, 2); i < CHECK_COUNT(trials) && check_failures() == 0; i += check_rounds(1, 3)) {
        const trial *t = &trials[i];
        pleat_forecast forecast;
        check_context("%s, prefixes of %u", t->spec, t->prefix_tokens);
        const figures real = on_engine(t, &forecast), sim = simulated(t, &forecast);
        printf("%s, %u: %.2f at once (simulated %.2f), %g preempted (%g), %.3f s (%.3f)\n", t->spec, t->prefix_tokens,
               real.concurrency, sim.concurrency, real.preempted, sim.preempted, real.seconds, sim.seconds);
        CHECK_EQ_U64(real.n_done, N_REQUESTS);
        CHECK_EQ_U64(sim.n_done, N_REQUESTS);
        CHECK(real.concurrency > 2 && real.concurrency < 15); /* the pool decides */
        CHECK(is_near(sim.concurrency, real.concurrency, 0));
        CHECK(is_near(sim.preempted, real.preempted, 1));
    }
}

/* A forecast is plain data: one that was filled by hand may hold anything. */
static void test_unsound_forecast(void) {
    static const trial t = {"k8v4", 0, 1000};
    const pleat_serving_options so = trial_serving(&t);
    const pleat_forecast sound = pleat_forecast_of_fraction(16, 16, 4096, 1);
    pleat_forecast bad[6];
    pleat_serving *s = NULL;
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) bad[i] = sound;
    bad[0].fraction = NAN;
    bad[1].fraction = 2;
    bad[2].most_low = INFINITY;
    bad[3].n_samples = bad[4].n_samples = 1;
    bad[3].samples[0].high[5] = NAN;
    bad[4].samples[0].low[5] = -1;
    bad[5].n_samples = 2;
    bad[5].samples[0].n_classed = 7;
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        const pleat_simulation simulation = simulation_of(&t, &bad[i]);
        pleat_error err = {0};
        check_context("%zu", i);
        CHECK_STATUS(pleat_serving_create_simulated(&simulation, &so, &s, &err), PLEAT_E_ARG);
        CHECK(strstr(err.text, "shares are no numbers, or in no order") != NULL);
    }
    const pleat_simulation simulation = simulation_of(&t, &sound);
    CHECK_STATUS(pleat_serving_create_simulated(&simulation, &so, &s, NULL), PLEAT_OK);
    pleat_serving_destroy(&s);
}

static const check_test tests[] = {{"as_the_engine", test_as_the_engine}, {"unsound_forecast", test_unsound_forecast}};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
