/* SPDX-License-Identifier: MIT
 *
 * target.c: who serves the requests: an engine on the model, or the scheduler alone, whose steps cost what
 * prices say.
 *
 *     -m                          an engine with a pool of --pool-bytes
 *     -m --simulate               a short run on the model gives prices and, by length, what the text decides: how many
 *                                 tokens a policy keeps high, what blocks take
 *     --arch --simulate           --prices and, where the text decides, --fractions must say it
 *
 * All else that a spec does over a request's life is a forecast's (pleat/forecast.h), made from the cache's options.
 */
#include <stdlib.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"
#include "cli/lib/sample.h"
#include "serve.h"

enum {
    TRIAL_RUNNING = 16,  /* requests of the run that gives the prices */
    TRIAL_TOKENS = 1024, /* of its sequences at most */
    TRIAL_OUTPUT = 8,    /* tokens of its first request; the others have a multiple */
    WARM_UP_TOKENS = 32,
};

static uint32_t least_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t most_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* ---- the cache ---------------------------------------------------------------------------------- */

/* The cache that would serve; windows: [n_layers].  Which layers have one does not matter to a simulation. */
static pleat_cache_options cache_of(const serve_setup *setup, pleat_spec spec, uint32_t *windows) {
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.spec = spec;
    opt.n_layers = setup->n_layers;
    opt.n_kv_heads = setup->n_kv_heads;
    opt.n_q_heads = setup->n_q_heads;
    opt.head_dim = setup->head_dim;
    opt.page_tokens = setup->o->service.page_tokens;
    opt.max_tokens = most_u32(setup->max_tokens, pleat_cache_least_tokens(&spec));
    for (uint32_t i = 0; i < setup->n_layers; i++) windows[i] = i < setup->n_windowed ? setup->window : 0;
    if (setup->n_windowed) opt.windows = windows;
    return opt;
}

/* What the spec does, before anything is measured. */
static int forecast_of(const serve_setup *setup, uint32_t spec, pleat_forecast *out) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    uint32_t windows[SHAPE_LAYERS_MAX];
    pleat_cache_options opt = cache_of(setup, setup->o->load.kv.spec[spec], windows);
    if (setup->o->fractions.n) opt.windows = NULL; /* the fraction says it */
    if (pleat_forecast_for(&opt, out, &err) == PLEAT_OK) return CLI_OK;
    cli_error("--simulate --kv '%s': %s", setup->o->load.kv.text[spec], err.text);
    return CLI_FAILED;
}

/* What the tokens are matters to nothing but a policy. */
static void fill_tokens(const serve_setup *setup, uint64_t seed, uint32_t n, pleat_token *out) {
    const token_source source = {&setup->l, NULL, 0, setup->l.info.n_vocab, seed};
    const trace_request request = {.n_prompt = n};
    trace_prompt(&request, 0, &source, out);
}

/* ---- an engine --------------------------------------------------------------------------------- */

static pleat_engine_options engine_options(const serve_setup *setup, pleat_spec spec, uint32_t max_running,
                                           uint32_t max_tokens) {
    pleat_engine_options opt = load_engine_options(&setup->o->load, &setup->l, spec, 0, max_tokens, 0);
    opt.max_tokens = max_tokens; /* a spec's window that is longer is refused */
    service_set_engine(&setup->o->service, max_running, &opt);
    return opt;
}

/* A step that wakes the threads and touches the weights. */
static int warm_up(const serve_setup *setup, pleat_engine *engine) {
    pleat_token tokens[WARM_UP_TOKENS];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_seq seq;
    const uint32_t n = least_u32(WARM_UP_TOKENS, least_u32(setup->max_tokens, setup->o->load.chunk_tokens));
    fill_tokens(setup, 1, n, tokens);
    pleat_status status = pleat_engine_open(engine, n, &seq);
    if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    status = sample_feed(engine, seq, tokens, n, n, &err);
    pleat_engine_close(engine, seq);
    if (status == PLEAT_AGAIN || status == PLEAT_E_LIMIT)
        return cli_fail("--pool-bytes is too small for any request", status, status == PLEAT_AGAIN ? NULL : &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &err);
}

static void serving_options(const serve_setup *setup, pleat_serving_options *opt) {
    *opt = setup->serving;
    opt->max_requests = setup->max_requests;
    opt->store = setup->store;
    opt->tenants = setup->tenants.n ? setup->tenants.v : NULL;
    opt->n_tenants = setup->tenants.n;
}

/* ---- prices ------------------------------------------------------------------------------------ */

/* What a byte's way to the host's memory and back takes. */
static pleat_status measure_swap(pleat_engine *engine, pleat_seq seq, pleat_simulation *s) {
    const pleat_cache *cache = pleat_engine_cache(engine);
    pleat_seq copy;
    const uint64_t n_bytes = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    void *image = cli_alloc(n_bytes, 1);
    const double start_s = measure_now_s();
    pleat_status status = pleat_cache_save(cache, seq, (pleat_seq){0}, image, n_bytes);
    if (status == PLEAT_OK) status = pleat_engine_restore(engine, image, n_bytes, (pleat_seq){0}, &copy);
    if (status == PLEAT_OK) s->swap_bytes_per_s = 2 * (double)n_bytes / (measure_now_s() - start_s);
    if (status == PLEAT_OK) status = pleat_engine_close(engine, copy);
    free(image);
    return status;
}

/* One sequence of n_tokens. */
static pleat_status measure_sequence(const serve_setup *setup, pleat_engine *engine, const pleat_token *tokens,
                                     uint32_t n_tokens, pleat_simulation *s, pleat_forecast *f, pleat_error *err) {
    pleat_seq seq;
    pleat_status status = pleat_engine_open(engine, n_tokens, &seq);
    if (status == PLEAT_OK) status = sample_feed(engine, seq, tokens, n_tokens, setup->o->load.chunk_tokens, err);
    if (status == PLEAT_OK) status = measure_swap(engine, seq, s);
    if (status == PLEAT_OK && f->wants_samples) status = pleat_forecast_measure(f, pleat_engine_cache(engine), seq);
    return status == PLEAT_OK ? pleat_engine_close(engine, seq) : status;
}

/* Sequences of ever longer prompts, the last of max_tokens. */
static int measure_shape(const serve_setup *setup, pleat_engine *engine, uint32_t max_tokens, pleat_simulation *s,
                         pleat_forecast *f) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_OK;
    pleat_token *tokens = cli_alloc(max_tokens, sizeof *tokens);
    for (uint32_t i = 0; i < PLEAT_FORECAST_SAMPLES && status == PLEAT_OK; i++) {
        const uint32_t n = sample_length(max_tokens, i);
        fill_tokens(setup, 2 + i, n, tokens);
        status = measure_sequence(setup, engine, tokens, n, s, f, &err);
    }
    free(tokens);
    return status == PLEAT_OK ? CLI_OK : cli_fail("the trial run failed", status, &err);
}

/* Requests of many lengths, so that steps have from 1 to all of them. */
static pleat_status submit_trial(const serve_setup *setup, pleat_serving *serving, uint32_t max_tokens,
                                 pleat_error *err) {
    pleat_request request;
    pleat_request_id id;
    pleat_status status = PLEAT_OK;
    pleat_token *tokens = cli_alloc(max_tokens, sizeof *tokens);
    pleat_request_default(&request);
    request.ignores_end = 1;
    request.prompt = tokens;
    for (uint32_t i = 0; i < TRIAL_RUNNING && status == PLEAT_OK; i++) {
        request.n_predict = 1 + least_u32(TRIAL_OUTPUT * (i + 1), max_tokens / 4);
        request.n_prompt = 1 + max_tokens / 2 * i / TRIAL_RUNNING;
        fill_tokens(setup, 3 + i, request.n_prompt, tokens);
        status = pleat_serving_submit(serving, &request, &id, err);
    }
    free(tokens);
    return status;
}

static int measure_prices(const serve_setup *setup, pleat_engine *engine, uint32_t max_tokens, pleat_simulation *s) {
    pleat_serving_options opt;
    pleat_serving_stats stats;
    pleat_serving *serving = NULL;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_serving_options_default(&opt);
    opt.prefix_tokens = 0;
    pleat_status status = pleat_serving_create(engine, &opt, &serving, &err);
    if (status == PLEAT_OK) status = submit_trial(setup, serving, max_tokens, &err);
    while (status == PLEAT_OK) status = pleat_serving_step(serving, &err); /* AGAIN: all have finished */
    if (status == PLEAT_AGAIN) {
        pleat_serving_get_stats(serving, &stats);
        s->fixed_ns = stats.fixed_ns;
        s->prompt_ns = stats.prompt_ns;
        s->token_ns = stats.token_ns;
        s->byte_ns = stats.byte_ns;
        s->chunk_ns = stats.chunk_ns;
    }
    pleat_serving_destroy(&serving);
    return status == PLEAT_AGAIN ? CLI_OK : cli_fail("the trial run failed", status, &err);
}

/* Pages as those that the forecast is of. */
static int trial(const serve_setup *setup, pleat_spec spec, pleat_simulation *s, pleat_forecast *f) {
    const uint32_t max_tokens = least_u32(setup->max_tokens, TRIAL_TOKENS);
    pleat_engine *engine = NULL;
    pleat_engine_options opt = engine_options(setup, spec, TRIAL_RUNNING, max_tokens);
    opt.max_seqs = TRIAL_RUNNING + 2;
    opt.page_tokens = f->traits.high_page_tokens;
    opt.pool_bytes = 0;
    int code = load_engine_with(&setup->l, &opt, &engine);
    if (code == CLI_OK) code = warm_up(setup, engine);
    if (code == CLI_OK) code = measure_shape(setup, engine, max_tokens, s, f);
    if (code == CLI_OK && !setup->o->prices.n) code = measure_prices(setup, engine, max_tokens, s);
    pleat_engine_destroy(&engine);
    return code;
}

static void given_prices(const serve_options *o, pleat_simulation *s) {
    static const double swap_default_ns = 0.1; /* of a byte: 10 GB/s */
    const float *v = o->prices.v;
    if (!o->prices.n) return;
    s->fixed_ns = (double)v[0];
    s->prompt_ns = (double)v[1];
    s->token_ns = (double)v[2];
    s->byte_ns = (double)v[3];
    s->chunk_ns = o->prices.n > 5 ? (double)v[5] : 0;
    s->swap_bytes_per_s = 1e9 / (o->prices.n > 4 && v[4] > 0 ? (double)v[4] : swap_default_ns);
}

/* What a sequence holds: forecast, measured on the model; or by --fractions. */
static int price_spec(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const serve_options *o = setup->o;
    pleat_simulation *s = &target->simulation;
    pleat_forecast *f = &target->forecast;
    int code = forecast_of(setup, spec, f);
    if (code == CLI_OK && setup->l.model) code = trial(setup, o->load.kv.spec[spec], s, f);
    if (code != CLI_OK) return code;
    s->page_tokens = f->traits.high_page_tokens;
    s->page_bytes = f->traits.page_bytes;
    if (o->fractions.n)
        s->fraction = (double)o->fractions.v[spec];
    else
        s->forecast = f;
    if (o->fractions.n || f->is_measured) return CLI_OK;
    cli_error("--simulate --kv '%s': what it keeps depends on the text: give -m, a model to measure it on, or "
              "--fractions, of its pages that a sequence keeps",
              o->load.kv.text[spec]);
    return CLI_USAGE;
}

static int simulate(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const serve_options *o = setup->o;
    pleat_simulation *s = &target->simulation;
    s->size_bytes = sizeof *s;
    s->n_lanes = setup->n_layers * setup->n_kv_heads;
    const int code = price_spec(target, setup, spec);
    if (code != CLI_OK) return code;
    given_prices(o, s);
    s->n_pages = o->service.pool_bytes / s->page_bytes;
    if (s->n_pages < s->n_lanes || s->n_pages > UINT32_MAX) {
        cli_error("--pool-bytes %llu: the pool has from %llu bytes, a page of each lane under %s, to %llu",
                  (unsigned long long)o->service.pool_bytes, (unsigned long long)(s->n_lanes * s->page_bytes),
                  o->load.kv.text[spec], (unsigned long long)(UINT32_MAX * s->page_bytes));
        return CLI_FAILED;
    }
    s->max_items = o->max_running;
    s->max_seqs = o->max_running + SERVICE_PREFIXES;
    s->max_tokens = setup->max_tokens;
    s->chunk_tokens = o->load.chunk_tokens;
    s->step_tokens = o->load.chunk_tokens + o->max_running;
    return CLI_OK;
}

/* ---- both -------------------------------------------------------------------------------------- */

static int start_engine(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const serve_options *o = setup->o;
    const pleat_engine_options opt = engine_options(setup, o->load.kv.spec[spec], o->max_running, setup->max_tokens);
    const int code = load_engine_with(&setup->l, &opt, &target->engine);
    return code == CLI_OK ? warm_up(setup, target->engine) : code;
}

int serve_target_init(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const serve_options *o = setup->o;
    pleat_serving_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_OK;
    *target = (serve_target){0};
    serving_options(setup, &opt);
    const int code = o->simulate ? simulate(target, setup, spec) : start_engine(target, setup, spec);
    if (code != CLI_OK) return code;
    if (o->simulate)
        status = pleat_serving_create_simulated(&target->simulation, &opt, &target->serving, &err);
    else
        status = pleat_serving_create(target->engine, &opt, &target->serving, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot serve", status, &err);
}

void serve_target_release(serve_target *target) {
    pleat_serving_destroy(&target->serving);
    pleat_engine_destroy(&target->engine);
}
