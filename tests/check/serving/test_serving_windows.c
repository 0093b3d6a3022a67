/* SPDX-License-Identifier: MIT
 *
 * test_serving_windows.c: serving over caches some of whose layers have a sliding window, without a model: the backend
 * here is a bare cache, whose queries, keys and values are made of token ids.
 *
 * A sequence's tokens are hashed from the first on.  What attention returned for the last item is noted under that hash
 * when requests run alone, and has to be the same, bit for bit, when they run together, are swapped, computed again or go
 * on from prefixes.  On the clock of a simulation's prices the same traffic is compared with the simulation of the cache's
 * forecast.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"
#include "pleat/pleat.h"
#include "serving/internal.h"

enum { LAYERS = 3, HEADS = 2, GROUP = 2, D = 32, ROW = HEADS * GROUP * D, KV_ROW = HEADS * D };
enum { CHUNK = 32, PREFIX = 64, MAX_TOKENS = 512, MAX_ITEMS = 8, MAX_SEQS = 60, STEP_TOKENS = 2 * CHUNK + MAX_ITEMS };
enum { N_REQUESTS = 16, NOTES_CAP = 1 << 14 };

static const uint32_t windows[LAYERS] = {40, 0, 40};
static const pleat__serving_cost prices = {.fixed_ns = 1e6, .prompt_ns = 2e5, .token_ns = 1e6, .byte_ns = 0.05};
#define SWAP_BYTES_PER_S 1e9

/* ---- a cache as a backend ------------------------------------------------------------------------------------------ */

/* What attention returned for an item that ended a sequence's tokens. */
typedef struct note {
    uint64_t tokens, bits; /* tokens 0: free */
} note;

typedef struct bare {
    pleat_cache *cache;
    double now_ns;
    pleat_seq seqs[MAX_SEQS];
    uint64_t tokens[MAX_SEQS]; /* hash of each sequence's */
    note *notes;               /* [NOTES_CAP] of runs alone */
    uint64_t n_same;           /* items that came out as noted */
} bare;

static uint64_t mix(uint64_t hash, uint64_t x) {
    pleat__rng rng = {hash ^ (x * 0x9e3779b97f4a7c15u)};
    return pleat__rng_u64(&rng) | 1;
}

static uint32_t idx_of(const bare *b, pleat_seq seq) {
    uint32_t i = 0;
    while (i < MAX_SEQS && b->seqs[i].v != seq.v) i++;
    CHECK(i < MAX_SEQS);
    return i % MAX_SEQS;
}

static void enter(bare *b, pleat_seq seq, uint64_t tokens) {
    const uint32_t i = idx_of(b, (pleat_seq){0});
    b->seqs[i] = seq;
    b->tokens[i] = tokens;
}

static pleat_status b_open(void *ctx, uint32_t max_tokens, pleat_seq *out) {
    const pleat_status status = pleat_cache_open(((bare *)ctx)->cache, max_tokens, out);
    if (status == PLEAT_OK) enter(ctx, *out, 1);
    return status;
}

static pleat_status b_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    bare *b = ctx;
    const pleat_status status = pleat_cache_fork(b->cache, seq, max_tokens, out);
    if (status == PLEAT_OK) enter(b, *out, b->tokens[idx_of(b, seq)]);
    return status;
}

static uint64_t b_fork_pages(void *ctx, pleat_seq seq) {
    (void)ctx, (void)seq;
    return 0;
}

static void b_close(void *ctx, pleat_seq seq) {
    bare *b = ctx;
    b->seqs[idx_of(b, seq)].v = 0;
    CHECK_STATUS(pleat_cache_close(b->cache, seq), PLEAT_OK);
}

static void look_up(bare *b, uint64_t tokens, uint64_t bits) {
    uint32_t at = (uint32_t)(tokens % NOTES_CAP);
    while (b->notes[at].tokens != 0 && b->notes[at].tokens != tokens) at = (at + 1) % NOTES_CAP;
    if (b->notes[at].tokens == tokens) b->n_same += CHECK_EQ_U64(bits, b->notes[at].bits);
    b->notes[at] = (note){tokens, bits};
}

/* Rows of a layer, by token and position alone. */
static void make_rows(const bare *b, const pleat_engine_item *items, uint32_t n_items, uint32_t layer, float *q,
                      float *k, float *v) {
    for (uint32_t i = 0; i < n_items; i++) {
        const uint32_t first = pleat_cache_length(b->cache, items[i].seq);
        for (uint32_t t = 0; t < items[i].n_tokens; t++, q += ROW, k += KV_ROW, v += KV_ROW) {
            pleat__rng rng = rng_of_token((uint32_t)items[i].tokens[t], layer, first + t);
            fill_within(&rng, q, ROW, 2);
            fill_within(&rng, k, KV_ROW, 2);
            fill_within(&rng, v, KV_ROW, 1);
        }
    }
}

static void note_items(bare *b, const pleat_engine_item *items, uint32_t n_items, const uint64_t *bits) {
    for (uint32_t i = 0; i < n_items; i++) {
        uint64_t *tokens = &b->tokens[idx_of(b, items[i].seq)];
        for (uint32_t t = 0; t < items[i].n_tokens; t++) *tokens = mix(*tokens, (uint64_t)items[i].tokens[t] + 2);
        look_up(b, mix(*tokens, items[i].n_tokens), bits[i]);
    }
}

static pleat_status b_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                          pleat_error *err) {
    static float q[STEP_TOKENS * ROW], k[STEP_TOKENS * KV_ROW], v[STEP_TOKENS * KV_ROW], out[STEP_TOKENS * ROW];
    bare *b = ctx;
    (void)likeliest;
    pleat_cache_item in[MAX_ITEMS];
    uint64_t bits[MAX_ITEMS] = {0}, n_pages = 0;
    pleat__step_load load = {0};
    (void)err;
    for (uint32_t i = 0; i < n_items; i++) {
        in[i] = (pleat_cache_item){items[i].seq, items[i].n_tokens, items[i].flags};
        load.n_chunks += items[i].n_tokens > 1;
        load.n_prompt += items[i].n_tokens > 1 ? items[i].n_tokens : 0;
        load.n_generated += items[i].n_tokens == 1;
        n_pages += items[i].n_tokens == 1 ? pleat_cache_pages_held(b->cache, items[i].seq) : 0;
    }
    const pleat_status status = pleat_cache_begin(b->cache, in, n_items);
    if (status != PLEAT_OK) return status;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        make_rows(b, items, n_items, layer, q, k, v);
        CHECK_STATUS(pleat_cache_attend(b->cache, layer, q, k, v, out), PLEAT_OK);
        const uint32_t *row = (const uint32_t *)(const void *)out;
        for (uint32_t i = 0; i < n_items; i++)
            for (uint32_t j = 0; j < items[i].n_tokens * ROW; j++) bits[i] = mix(bits[i], *row++);
    }
    CHECK_STATUS(pleat_cache_end(b->cache), PLEAT_OK);
    note_items(b, items, n_items, bits);
    pleat_cache_traits t = {.size_bytes = sizeof t};
    CHECK_STATUS(pleat_cache_get_traits(b->cache, &t), PLEAT_OK);
    load.kv_bytes = n_pages * t.page_bytes;
    b->now_ns += pleat__cost_step_ns(&prices, &load);
    return PLEAT_OK;
}

static uint32_t b_budget(void *ctx, uint32_t n_prompt) { return pleat_cache_max_kept(((bare *)ctx)->cache, n_prompt); }
static uint64_t b_needed(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    return pleat_cache_pages_needed(((bare *)ctx)->cache, &(pleat_cache_item){seq, n_tokens, flags});
}
static uint64_t b_pages_of(void *ctx, pleat_seq seq) {
    return seq.v ? pleat_cache_pages_held(((bare *)ctx)->cache, seq) : 0;
}
static uint64_t b_shared(void *ctx, pleat_seq x, pleat_seq y) {
    return pleat_cache_pages_shared(((bare *)ctx)->cache, x, y);
}
static uint64_t b_used(void *ctx) { return pleat_cache_pages_held(((bare *)ctx)->cache, (pleat_seq){0}); }

static pleat_cache_sides sides_of(void *ctx, pleat_seq seq) {
    pleat_cache_sides s = {0};
    CHECK_STATUS(pleat_cache_get_sides(((bare *)ctx)->cache, seq, &s), PLEAT_OK);
    return s;
}
static void b_sides(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low) {
    const pleat_cache_sides s = sides_of(ctx, seq);
    *high = s.high_pages;
    *low = s.low_pages;
}
static void b_slots(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held) {
    const pleat_cache_sides s = sides_of(ctx, seq);
    *live = s.live_slots;
    *held = s.held_slots;
}

static void b_bytes(void *ctx, pleat_seq seq, uint64_t *bytes, uint64_t *bytes_f16) {
    (void)ctx, (void)seq;
    *bytes = *bytes_f16 = 0;
}

static uint64_t b_image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    return pleat_cache_image_bytes(((bare *)ctx)->cache, seq, base);
}

static void wind_on_swap(bare *b, uint64_t n_pages) {
    pleat_cache_traits t = {.size_bytes = sizeof t};
    CHECK_STATUS(pleat_cache_get_traits(b->cache, &t), PLEAT_OK);
    b->now_ns += (double)(n_pages * t.page_bytes) / SWAP_BYTES_PER_S * 1e9;
}

/* The hash of its tokens stands in front of an image. */
static pleat_status b_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    bare *b = ctx;
    const uint64_t n_bytes = pleat_cache_image_bytes(b->cache, seq, base);
    uint8_t *data = malloc(sizeof(uint64_t) + n_bytes);
    memcpy(data, &b->tokens[idx_of(b, seq)], sizeof(uint64_t));
    const pleat_status status = pleat_cache_save(b->cache, seq, base, data + sizeof(uint64_t), n_bytes);
    *out = (pleat__image){.data = data, .data_bytes = sizeof(uint64_t) + n_bytes, .n_bytes = n_bytes};
    out->n_pages = pleat_cache_image_pages(b->cache, data + sizeof(uint64_t), n_bytes);
    wind_on_swap(b, out->n_pages);
    return status;
}

static pleat_status b_restore(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out) {
    bare *b = ctx;
    const uint8_t *data = image->data;
    uint64_t tokens;
    memcpy(&tokens, data, sizeof tokens);
    const pleat_status status = pleat_cache_restore(b->cache, data + sizeof tokens, image->n_bytes, base, out);
    if (status == PLEAT_OK) enter(b, *out, tokens);
    if (status == PLEAT_OK) wind_on_swap(b, image->n_pages);
    return status;
}

static void b_drop(void *ctx, pleat__image *image) {
    (void)ctx;
    free(image->data);
    *image = (pleat__image){0};
}

static pleat_status b_compress(void *ctx, pleat_seq seq, float ah, float al) {
    return pleat_cache_compress(((bare *)ctx)->cache, seq, ah, al);
}
static uint64_t b_clock(void *ctx) { return (uint64_t)((bare *)ctx)->now_ns; }
static void b_advance(void *ctx, uint64_t ns) { ((bare *)ctx)->now_ns += (double)ns; }
static void b_work(void *ctx, pleat__backend_work *out) { (void)ctx, *out = (pleat__backend_work){0}; }
static bool b_is_valid(void *ctx) { return pleat_cache_is_valid(((bare *)ctx)->cache) != 0; }
static void b_destroy(void *ctx) { pleat_cache_destroy(&((bare *)ctx)->cache); }

static pleat__backend_shape shape_of(const bare *b, const pleat_cache_options *opt) {
    pleat_cache_traits t = {.size_bytes = sizeof t};
    CHECK_STATUS(pleat_cache_get_traits(b->cache, &t), PLEAT_OK);
    pleat__backend_shape shape = {.n_pages = t.n_pages,
                                  .page_bytes = t.page_bytes,
                                  .n_lanes = t.n_lanes,
                                  .n_ring_lanes = t.n_ring_lanes,
                                  .ring_slots = t.ring_slots,
                                  .page_tokens = t.high_page_tokens,
                                  .spare_pages = t.spare_pages,
                                  .window = t.window,
                                  .is_packed = t.is_packed,
                                  .is_bounded = t.is_bounded,
                                  .takes_fresh = t.takes_fresh,
                                  .has_policy = t.has_policy,
                                  .shares_late = t.shares_late,
                                  .has_bases = true,
                                  .fraction = 1,
                                  .max_items = MAX_ITEMS,
                                  .max_seqs = MAX_SEQS,
                                  .max_tokens = MAX_TOKENS,
                                  .chunk_tokens = CHUNK,
                                  .step_tokens = STEP_TOKENS};
    CHECK_STATUS(pleat_spec_print(&opt->spec, shape.key, sizeof shape.key), PLEAT_OK);
    return shape;
}

static pleat__backend backend_on(bare *b, const pleat_cache_options *opt) {
    return (pleat__backend){.ctx = b,
                            .shape = shape_of(b, opt),
                            .open = b_open,
                            .fork = b_fork,
                            .close = b_close,
                            .fork_pages = b_fork_pages,
                            .run = b_run,
                            .budget = b_budget,
                            .pages_needed = b_needed,
                            .pages_of = b_pages_of,
                            .pages_shared = b_shared,
                            .pages_used = b_used,
                            .pages_by_side = b_sides,
                            .slots_of = b_slots,
                            .bytes_of = b_bytes,
                            .image_bytes = b_image_bytes,
                            .save = b_save,
                            .restore = b_restore,
                            .drop = b_drop,
                            .compress = b_compress,
                            .clock_ns = b_clock,
                            .advance = b_advance,
                            .work = b_work,
                            .is_valid = b_is_valid,
                            .destroy = b_destroy};
}

/* ---- serving ------------------------------------------------------------------------------------------------------- */

static pleat_cache_options cache_for(const char *spec) {
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .max_seqs = MAX_SEQS,
                               .max_items = MAX_ITEMS,
                               .max_tokens = MAX_TOKENS,
                               .step_tokens = STEP_TOKENS};
    pleat_cache_options opt = cache_options_of(spec, &shape);
    opt.windows = windows;
    return opt;
}

static pleat_serving_options serving_for(uint32_t prefix_tokens, pleat_preemption preemption) {
    pleat_serving_options o;
    pleat_serving_options_default(&o);
    o.max_requests = N_REQUESTS;
    o.prefix_tokens = prefix_tokens;
    o.preemption = preemption;
    o.low_watermark = o.high_watermark = 1; /* so that what grows is preempted */
    return o;
}

/* A serving over a cache with n_pages pages; notes are the caller's. */
static pleat_serving *serving_on(bare *b, const char *spec, uint64_t n_pages, const pleat_serving_options *so) {
    pleat_cache_options opt = cache_for(spec);
    pleat_cache_traits t = {.size_bytes = sizeof t};
    pleat_serving *s = NULL;
    CHECK_STATUS(pleat_cache_traits_for(&opt, &t, NULL), PLEAT_OK);
    opt.pool_bytes = n_pages * t.page_bytes;
    b->cache = cache_made(&opt);
    if (!b->cache) return NULL;
    const pleat__backend on = backend_on(b, &opt);
    CHECK_STATUS(pleat__serving_create_on(&on, so, &s, NULL), PLEAT_OK);
    return s;
}

/* Prompts of 60 to 229 tokens and answers of 40 to 149; all prompts begin with the same 100 tokens if they share any. */
static void submit(pleat_serving *s, uint32_t i, bool shares) {
    static pleat_token text[N_REQUESTS][MAX_TOKENS];
    const uint32_t n_prompt = 60 + 37 * i % 170;
    for (uint32_t t = 0; t < n_prompt; t++) text[i][t] = (pleat_token)(shares && t < 100 ? t : 1000 + 300 * i + t);
    pleat_request q;
    pleat_request_id id;
    pleat_request_default(&q);
    q.prompt = text[i];
    q.n_prompt = n_prompt;
    q.n_predict = 40 + 53 * i % 110;
    q.ignores_end = 1;
    CHECK_STATUS(pleat_serving_submit(s, &q, &id, NULL), PLEAT_OK);
}

typedef struct figures {
    double concurrency; /* requests that run, over the time */
    double preempted, seconds;
    uint32_t n_done;
    uint64_t n_hits;
} figures;

/* Preempt somebody now and then; the serving's options say how. */
static void maybe_preempt(pleat_serving *s) {
    if (s->n_running < 2 || s->stats.preempted_swap + s->stats.preempted_recompute >= 20 || check_below(6)) return;
    pleat__serving_preempt(s, s->running[check_below(s->n_running)], true);
}

static figures run_to_end(pleat_serving *s, bool preempts) {
    figures f = {0};
    pleat_serving_stats stats;
    double sum = 0, last = (double)s->backend.clock_ns(s->backend.ctx), first = last;
    for (uint32_t step = 0; check_failures() == 0; step++) {
        const pleat_status status = pleat_serving_step(s, NULL);
        const double now = (double)s->backend.clock_ns(s->backend.ctx);
        uint32_t n;
        const pleat_serving_event *e = pleat_serving_events(s, &n);
        for (uint32_t i = 0; i < n; i++) f.n_done += e[i].finish == PLEAT_FINISH_LENGTH;
        if (status == PLEAT_AGAIN) break;
        CHECK_STATUS(status, PLEAT_OK);
        if (step % 32 == 0) CHECK(pleat_serving_is_valid(s));
        if (preempts) maybe_preempt(s);
        sum += s->n_running * (now - last);
        last = now;
    }
    pleat_serving_get_stats(s, &stats);
    f.n_hits = stats.hits;
    f.concurrency = sum / (last - first);
    f.seconds = (last - first) / 1e9;
    f.preempted = (double)(stats.preempted_swap + stats.preempted_recompute);
    CHECK(pleat_serving_is_valid(s));
    return f;
}

static void end(pleat_serving *s, bare *b) {
    pleat_serving_forget_prefixes(s);
    CHECK_EQ_U64(b_used(b), 0);
    pleat_serving_destroy(&s);
}

/* ---- as alone ------------------------------------------------------------------------------------------------------ */

static void note_alone(bare *b, const char *spec, uint32_t prefix_tokens) {
    const pleat_serving_options so = serving_for(prefix_tokens, PLEAT_PREEMPT_CHEAPER);
    pleat_serving *s = serving_on(b, spec, 2000, &so);
    for (uint32_t i = 0; s && i < N_REQUESTS && check_failures() == 0; i++) {
        submit(s, i, prefix_tokens > 0);
        CHECK_EQ_U64(run_to_end(s, false).n_done, 1);
        pleat_serving_forget_prefixes(s);
    }
    if (s) end(s, b);
}

static void test_as_alone(void) {
    static const struct {
        const char *spec;
        uint64_t n_pages;
    } trials[] = {
        {"k8v4", 80},
        {"leankv:ah=1,al=0.02,window=32", 70},
        {"topk:keep=50%,window=32", 70},
        {"h2o:budget=64,window=16,reclaim=copy", 70},
        {"snapkv:budget=64,window=16", 60},
        {"kvcomp:k=0.2,v=0.2,block=32,buffer=40", 100},
    };
    static note notes[NOTES_CAP];
    for (size_t i = 0; i < CHECK_COUNT(trials) && check_failures() == 0; i++)
        for (uint32_t way = 0; way < 4 && check_failures() == 0; way++) {
            const uint32_t prefix_tokens = way / 2 * PREFIX;
            const pleat_serving_options so =
                serving_for(prefix_tokens, way % 2 ? PLEAT_PREEMPT_SWAP : PLEAT_PREEMPT_RECOMPUTE);
            bare b = {.notes = notes};
            check_context("%s, way %u", trials[i].spec, way);
            memset(notes, 0, sizeof notes);
            note_alone(&b, trials[i].spec, prefix_tokens);
            b.n_same = 0;
            pleat_serving *s = serving_on(&b, trials[i].spec, trials[i].n_pages, &so);
            if (!s) return;
            for (uint32_t k = 0; k < N_REQUESTS; k++) submit(s, k, prefix_tokens > 0);
            const figures f = run_to_end(s, true);
            CHECK_EQ_U64(f.n_done, N_REQUESTS);
            CHECK(f.concurrency > 1.5);
            CHECK(b.n_same >= N_REQUESTS * 40);
            CHECK(f.preempted > 0 && (f.n_hits > 0) == (prefix_tokens > 0));
            end(s, &b);
        }
}

/* ---- as simulated -------------------------------------------------------------------------------------------------- */

/* With samples of several lengths, as the traffic's, where what is kept depends on the text. */
static pleat_forecast forecast_of(const char *spec) {
    static const uint32_t lengths[] = {100, 170, 240, 330};
    static note notes[NOTES_CAP];
    static pleat_token tokens[MAX_TOKENS];
    const pleat_cache_options opt = cache_for(spec);
    pleat_forecast f = {0};
    bare b = {.cache = cache_made(&opt), .notes = notes};
    memset(notes, 0, sizeof notes);
    for (uint32_t i = 0; i < MAX_TOKENS; i++) tokens[i] = (pleat_token)(i + 7);
    CHECK_STATUS(pleat_forecast_for(&opt, &f, NULL), PLEAT_OK);
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
        pleat_seq seq;
        CHECK_STATUS(b_open(&b, MAX_TOKENS, &seq), PLEAT_OK);
        for (uint32_t at = 0; at < lengths[i]; at += CHUNK) {
            const uint32_t left = lengths[i] - at, n = left < CHUNK ? left : CHUNK;
            const pleat_engine_item item = {seq, tokens + at, n, 0, NULL, n < left ? PLEAT_ITEM_MORE : 0};
            CHECK_STATUS(b_run(&b, &item, 1, NULL, NULL), PLEAT_OK);
        }
        CHECK_STATUS(pleat_forecast_measure(&f, b.cache, seq), PLEAT_OK);
        b_close(&b, seq);
    }
    b_destroy(&b);
    return f;
}

static pleat_serving *simulation_of(const pleat_forecast *f, uint64_t n_pages, const pleat_serving_options *so) {
    const pleat_simulation simulation = {.size_bytes = sizeof simulation,
                                         .n_lanes = f->traits.n_lanes,
                                         .page_tokens = f->traits.high_page_tokens,
                                         .page_bytes = f->traits.page_bytes,
                                         .n_pages = n_pages,
                                         .forecast = f,
                                         .max_items = MAX_ITEMS,
                                         .max_seqs = MAX_SEQS,
                                         .max_tokens = MAX_TOKENS,
                                         .chunk_tokens = CHUNK,
                                         .step_tokens = STEP_TOKENS,
                                         .fixed_ns = prices.fixed_ns,
                                         .prompt_ns = prices.prompt_ns,
                                         .token_ns = prices.token_ns,
                                         .byte_ns = prices.byte_ns,
                                         .swap_bytes_per_s = SWAP_BYTES_PER_S};
    pleat_serving *s = NULL;
    CHECK_STATUS(pleat_serving_create_simulated(&simulation, so, &s, NULL), PLEAT_OK);
    return s;
}

static bool is_near(double a, double b, double slack) { return fabs(a - b) <= 0.1 * b + slack; }

static void test_as_simulated(void) {
    static const struct {
        const char *spec;
        uint32_t prefix_tokens;
        uint64_t n_pages;
    } trials[] = {
        {"k8v4", 0, 80},
        {"snapkv:budget=64,window=16", 0, 60},
        {"h2o:budget=64,window=16", 0, 60},
        {"leankv:ah=1,al=0.02,window=32", 0, 70},
        {"kvcomp:k=0.2,v=0.2,block=32,buffer=40", 0, 100},
        {"k8v4", PREFIX, 80},
        {"leankv:ah=1,al=0.02,window=32", PREFIX, 90},
        {"kvcomp:k=0.2,v=0.2,block=32,buffer=40", PREFIX, 120},
        {"snapkv:budget=64,window=16", PREFIX, 70},
    };
    static note notes[NOTES_CAP];
    for (size_t i = 0; i < CHECK_COUNT(trials) && check_failures() == 0; i++) {
        const uint32_t prefix_tokens = trials[i].prefix_tokens;
        const pleat_serving_options so = serving_for(prefix_tokens, PLEAT_PREEMPT_CHEAPER);
        const pleat_forecast f = forecast_of(trials[i].spec);
        bare b = {.notes = notes};
        check_context("%s, prefixes of %u", trials[i].spec, prefix_tokens);
        memset(notes, 0, sizeof notes);
        pleat_serving *on[2] = {serving_on(&b, trials[i].spec, trials[i].n_pages, &so),
                                simulation_of(&f, trials[i].n_pages, &so)};
        figures real[2];
        if (!on[0] || !on[1]) return;
        for (int k = 0; k < 2; k++) {
            for (uint32_t r = 0; r < N_REQUESTS; r++) submit(on[k], r, prefix_tokens > 0);
            real[k] = run_to_end(on[k], false);
            CHECK_EQ_U64(real[k].n_done, N_REQUESTS);
        }
        printf("%s, %u: %.2f at once (simulated %.2f), %g preempted (%g), %.3f s (%.3f)\n", trials[i].spec,
               prefix_tokens, real[0].concurrency, real[1].concurrency, real[0].preempted, real[1].preempted,
               real[0].seconds, real[1].seconds);
        CHECK(real[0].concurrency > 1.5 && real[0].concurrency < MAX_ITEMS - 0.5); /* the pool decides */
        CHECK(is_near(real[1].concurrency, real[0].concurrency, 0));
        CHECK(is_near(real[1].preempted, real[0].preempted, 1));
        end(on[0], &b);
        pleat_serving_destroy(&on[1]);
    }
}

static const check_test tests[] = {
    {"as_alone", test_as_alone},
    {"as_simulated", test_as_simulated},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
