/* SPDX-License-Identifier: MIT
 *
 * bench_serve_target.c: who serves the requests: an engine on the model, or the scheduler alone, whose steps cost what
 * prices say.
 *
 *     -m                          an engine with a pool of --pool-bytes
 *     -m --simulate               a short run on the model gives prices, page sizes and how far the spec compresses
 *     --arch --simulate           page sizes from the shape; --prices must say the rest
 */
#include <stdlib.h>
#include <string.h>

#include "bench_serve.h"
#include "common.h"

enum {
    PREFIXES_MOST = 512, /* kept at once */
    TRIAL_RUNNING = 16,  /* requests of the run that gives the prices */
    TRIAL_TOKENS = 1024, /* of its sequences at most */
    TRIAL_OUTPUT = 8,    /* tokens of its first request; the others have a multiple */
    LARGEST_PAGE = 128,  /* tokens, of those that a cache chooses itself */
    WARM_UP_TOKENS = 32,
};

static uint32_t least_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t most_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* What the tokens are matters to nothing but a policy. */
static void fill_tokens(const serve_setup *setup, uint64_t seed, uint32_t n, pleat_token *out) {
    const token_source source = {&setup->l, NULL, 0, setup->l.info.n_vocab, seed};
    trace_request request = {.n_prompt = n};
    const trace one = {.requests = &request, .n = 1};
    trace_prompt(&one, 0, &source, out);
}

/* ---- an engine --------------------------------------------------------------------------------- */

static int make_engine(const serve_setup *setup, pleat_spec spec, uint32_t max_running, uint32_t max_seqs,
                       uint32_t max_tokens, uint64_t pool_bytes, pleat_engine **out) {
    pleat_engine_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_engine_options_default(&opt);
    opt.spec = spec;
    opt.max_items = max_running;
    opt.max_seqs = max_seqs;
    opt.max_tokens = max_tokens;
    opt.chunk_tokens = setup->o->chunk_tokens;
    opt.step_tokens = setup->o->chunk_tokens + max_running; /* a chunk fits beside a token of everybody */
    opt.page_tokens = setup->o->page_tokens;
    opt.pool_bytes = pool_bytes;
    opt.workers = setup->l.workers;
    const pleat_status status = pleat_engine_create(setup->l.model, &opt, out, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot make the engine", status, &err);
}

/* Feed `n` tokens to a sequence as a prompt. */
static pleat_status feed(pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n, uint32_t chunk,
                         pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (uint32_t done = 0, now; done < n && status == PLEAT_OK; done += now) {
        now = least_u32(n - done, chunk);
        const uint32_t flags = done + now < n ? PLEAT_ITEM_MORE : 0;
        status = pleat_engine_step(engine, &(pleat_engine_item){seq, tokens + done, now, 0, NULL, flags}, 1, err);
    }
    return status;
}

/* A step that wakes the threads and touches the weights. */
static int warm_up(const serve_setup *setup, pleat_engine *engine) {
    pleat_token tokens[WARM_UP_TOKENS];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_seq seq;
    const uint32_t n = least_u32(WARM_UP_TOKENS, least_u32(setup->max_tokens, setup->o->chunk_tokens));
    fill_tokens(setup, 1, n, tokens);
    pleat_status status = pleat_engine_open(engine, n, &seq);
    if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    status = feed(engine, seq, tokens, n, n, &err);
    pleat_engine_close(engine, seq);
    if (status == PLEAT_AGAIN || status == PLEAT_E_LIMIT)
        return cli_fail("--pool-bytes is too small for any request", status, status == PLEAT_AGAIN ? NULL : &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &err);
}

static void serving_options(const serve_setup *setup, pleat_serving_options *opt) {
    const options *o = setup->o;
    pleat_serving_options_default(opt);
    opt->max_requests = setup->max_requests;
    opt->prefix_tokens = setup->prefix_tokens;
    opt->low_watermark = setup->low_watermark;
    opt->high_watermark = setup->high_watermark;
    opt->preemption = o->preempt;
    opt->swap_bytes = o->swap_bytes;
    opt->tenants = setup->tenants.n ? setup->tenants.v : NULL;
    opt->n_tenants = setup->tenants.n;
}

/* ---- prices ------------------------------------------------------------------------------------ */

/* What one long sequence says: how many bytes a page has, how many of the pages it keeps, and what a byte's way to the
 * host's memory and back takes. */
static pleat_status measure_sequence(pleat_engine *engine, pleat_seq seq, uint32_t n_tokens, pleat_simulation *s) {
    const pleat_cache *cache = pleat_engine_cache(engine);
    pleat_cache_usage usage;
    pleat_seq copy;
    const uint64_t n_bytes = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    void *image = cli_alloc(n_bytes, 1);
    const double start_s = cli_seconds();
    pleat_status status = pleat_cache_save(cache, seq, (pleat_seq){0}, image, n_bytes);
    if (status == PLEAT_OK) status = pleat_engine_restore(engine, image, n_bytes, (pleat_seq){0}, &copy);
    if (status == PLEAT_OK) s->swap_bytes_per_s = 2 * (double)n_bytes / (cli_seconds() - start_s);
    if (status == PLEAT_OK) status = pleat_engine_close(engine, copy);
    free(image);
    if (status == PLEAT_OK) status = pleat_engine_get_usage(engine, seq, &usage);
    if (status != PLEAT_OK) return status;
    s->page_tokens = pleat_cache_page_tokens(cache);
    s->page_bytes = usage.bytes_pages / usage.pages_used;
    const double all = (double)s->n_lanes * ((n_tokens + s->page_tokens - 1) / s->page_tokens);
    s->fraction = (double)usage.pages_used / all;
    if (s->fraction > 1) s->fraction = 1;
    return PLEAT_OK;
}

static int measure_shape(const serve_setup *setup, pleat_engine *engine, uint32_t max_tokens, pleat_simulation *s) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_seq seq;
    pleat_token *tokens = cli_alloc(max_tokens, sizeof *tokens);
    fill_tokens(setup, 2, max_tokens, tokens);
    pleat_status status = pleat_engine_open(engine, max_tokens, &seq);
    if (status == PLEAT_OK) status = feed(engine, seq, tokens, max_tokens, setup->o->chunk_tokens, &err);
    if (status == PLEAT_OK) status = measure_sequence(engine, seq, max_tokens, s);
    if (status == PLEAT_OK) status = pleat_engine_close(engine, seq);
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
    }
    pleat_serving_destroy(&serving);
    return status == PLEAT_AGAIN ? CLI_OK : cli_fail("the trial run failed", status, &err);
}

static int trial(const serve_setup *setup, pleat_spec spec, pleat_simulation *s) {
    const uint32_t max_tokens = least_u32(setup->max_tokens, TRIAL_TOKENS);
    pleat_engine *engine = NULL;
    int code = make_engine(setup, spec, TRIAL_RUNNING, TRIAL_RUNNING + 2, max_tokens, 0, &engine);
    if (code == CLI_OK) code = warm_up(setup, engine);
    if (code == CLI_OK) code = measure_shape(setup, engine, max_tokens, s);
    if (code == CLI_OK && !setup->o->prices.n) code = measure_prices(setup, engine, max_tokens, s);
    pleat_engine_destroy(&engine);
    return code;
}

/* The first length from `n` on, up to `most`, that takes more pages than `n` tokens do; 0: none. */
static uint32_t next_page_at(const pleat_cache_options *opt, uint32_t n, uint32_t most) {
    const uint64_t here = pleat_cache_bytes_for(opt, n, opt->max_tokens);
    for (uint32_t i = n + 1; here && i <= most; i++)
        if (pleat_cache_bytes_for(opt, i, opt->max_tokens) > here) return i;
    return 0;
}

/* Pages from the shape alone, as a cache for this context would choose them: the step by which bytes grow. */
static int pages_of_shape(const serve_setup *setup, pleat_spec spec, pleat_simulation *s) {
    const uint32_t n = setup->o->page_tokens, most = 3 * (n ? n : LARGEST_PAGE);
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.spec = spec;
    opt.n_layers = setup->n_layers;
    opt.n_kv_heads = setup->n_kv_heads;
    opt.n_q_heads = setup->n_q_heads;
    opt.head_dim = setup->head_dim;
    opt.page_tokens = n;
    opt.max_tokens = most_u32(setup->max_tokens, most_u32(spec.window, most));
    const uint32_t one = next_page_at(&opt, 1, most), two = one ? next_page_at(&opt, one, most) : 0;
    if (!two) {
        cli_error("--arch %s: its heads fit in no page of %u tokens", setup->o->arch, n ? n : LARGEST_PAGE);
        return CLI_FAILED;
    }
    const uint64_t n_bytes = pleat_cache_bytes_for(&opt, two, opt.max_tokens);
    s->page_tokens = two - one;
    s->page_bytes = (n_bytes - pleat_cache_bytes_for(&opt, one, opt.max_tokens)) / s->n_lanes;
    s->fraction = 1;
    return CLI_OK;
}

static void given_prices(const options *o, pleat_simulation *s) {
    static const double swap_default_ns = 0.1; /* of a byte: 10 GB/s */
    const float *v = o->prices.v;
    if (!o->prices.n) return;
    s->fixed_ns = (double)v[0];
    s->prompt_ns = (double)v[1];
    s->token_ns = (double)v[2];
    s->byte_ns = (double)v[3];
    s->swap_bytes_per_s = 1e9 / (o->prices.n > 4 && v[4] > 0 ? (double)v[4] : swap_default_ns);
}

static int simulate(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const options *o = setup->o;
    pleat_simulation *s = &target->simulation;
    s->size_bytes = sizeof *s;
    s->n_lanes = setup->n_layers * setup->n_kv_heads;
    const int code = setup->l.model ? trial(setup, o->kv.spec[spec], s) : pages_of_shape(setup, o->kv.spec[spec], s);
    if (code != CLI_OK) return code;
    given_prices(o, s);
    if (o->fractions.n) s->fraction = (double)o->fractions.v[spec < o->fractions.n ? spec : o->fractions.n - 1];
    s->n_pages = o->pool_bytes / s->page_bytes;
    if (s->n_pages < s->n_lanes || s->n_pages > UINT32_MAX) {
        cli_error("--pool-bytes %llu: the pool has from %llu bytes, a page of each lane under %s, to %llu",
                  (unsigned long long)o->pool_bytes, (unsigned long long)(s->n_lanes * s->page_bytes), o->kv.text[spec],
                  (unsigned long long)(UINT32_MAX * s->page_bytes));
        return CLI_FAILED;
    }
    s->max_items = o->max_running;
    s->max_seqs = o->max_running + PREFIXES_MOST;
    s->max_tokens = setup->max_tokens;
    s->chunk_tokens = o->chunk_tokens;
    s->step_tokens = o->chunk_tokens + o->max_running;
    return CLI_OK;
}

/* ---- both -------------------------------------------------------------------------------------- */

int serve_target_init(serve_target *target, const serve_setup *setup, uint32_t spec) {
    const options *o = setup->o;
    pleat_serving_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_OK;
    *target = (serve_target){0};
    serving_options(setup, &opt);
    int code = o->simulate ? simulate(target, setup, spec)
                           : make_engine(setup, o->kv.spec[spec], o->max_running, o->max_running + PREFIXES_MOST,
                                         setup->max_tokens, o->pool_bytes, &target->engine);
    if (code == CLI_OK && !o->simulate) code = warm_up(setup, target->engine);
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
