/* SPDX-License-Identifier: MIT
 *
 * create.c: from options to a cache: what they may be, the sizes that follow, the memory that these take.
 *
 * A cache makes two allocations when it is created, its pages and one block for everything else; with a policy and
 * long lanes a third, for logits.  What pages look like, layouts.h says.
 */
#include "cache/create.h"

#include <math.h>

#include "cache/decode.h"
#include "cache/keep/keep.h"
#include "cache/layouts.h"
#include "cache/prompt.h"
#include "core/checked.h"
#include "core/error.h"
#include "hw/os_memory.h"
#include "policy/novelty.h"
#include "spec/spec.h"
#include "stats/stats.h"

#define DEFAULT_STEP_TOKENS 512u
#define MAX_SEQS 65535u /* counted in 16 bits: fork.c */
#define MAX_LAYERS 1024u
#define MAX_KV_HEADS 1024u
#define MAX_TOKENS (1u << 24)
#define MAX_SCALE 65536.0f

void pleat_cache_options_default(pleat_cache_options *opt) {
    if (!opt) return;
    *opt = (pleat_cache_options){
        .size_bytes = sizeof *opt,
        .spec = {.high = {16, 16}},
        .max_seqs = 1,
        .step_tokens = DEFAULT_STEP_TOKENS,
    };
}

/* First and newest tokens that a policy leaves alone: the longest sequence has room for them.  Blocks have no such
 * need. */
static uint32_t least_kept(const pleat_spec *spec) {
    return spec->policy == PLEAT_POLICY_NONE ? 0 : spec->sinks + spec->window;
}

uint32_t pleat_cache_least_tokens(const pleat_spec *spec) {
    if (!spec || pleat__spec_check(spec, NULL) != PLEAT_OK) return 0;
    const uint32_t kept = least_kept(spec);
    const bool in_tokens = spec->budget.unit == PLEAT_BUDGET_TOKENS && spec->budget.value > kept;
    return in_tokens ? (uint32_t)spec->budget.value : kept;
}

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

static pleat_status check_spec_fits(const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_TRY(pleat__keep_check(opt, err));
    const uint32_t kept = least_kept(&opt->spec);
    REQUIRE(kept <= opt->max_tokens,
            "cache: the spec's window of %u tokens%s is longer than the longest sequence, %u tokens", opt->spec.window,
            opt->spec.sinks ? " and its sinks" : "", opt->max_tokens);
    REQUIRE(opt->spec.budget.unit != PLEAT_BUDGET_TOKENS || opt->spec.budget.value <= opt->max_tokens,
            "cache: budget=%.0f is above the longest sequence: allowed are %u to %u tokens", opt->spec.budget.value,
            kept, opt->max_tokens);
    return PLEAT_OK;
}

static pleat_status check_sinks(const pleat_cache_options *opt, pleat_error *err) {
    for (size_t i = 0; opt->sink_logits && i < (size_t)opt->n_layers * opt->n_q_heads; i++)
        REQUIRE(fabsf(opt->sink_logits[i]) < MAX_SCALE, "cache: sink_logits[%llu] is not below 65536 in magnitude",
                (unsigned long long)i);
    return PLEAT_OK;
}

static pleat_status check_ropes(const pleat_cache_options *opt, pleat_error *err) {
    const bool looks = pleat__turns_back(&opt->spec) || opt->collector || opt->stats;
    if (!looks) return PLEAT_OK;
    for (uint32_t layer = 0; opt->ropes && layer < opt->n_layers; layer++)
        PLEAT_TRY(pleat__turns_check(opt->ropes[layer], opt->head_dim, layer, err));
    return PLEAT_OK;
}

static pleat_status check_options(const pleat_cache_options *opt, pleat_error *err) {
    REQUIRE(opt->size_bytes == sizeof *opt, "cache: options are not from pleat_cache_options_default()");
    PLEAT_TRY(pleat__spec_check(&opt->spec, err));
    REQUIRE(opt->spec.profile[0] == 0, "cache: the spec's profile '%s' has not been read", opt->spec.profile);
    REQUIRE(opt->n_layers >= 1 && opt->n_layers <= MAX_LAYERS, "cache: n_layers %u is outside 1..%u", opt->n_layers,
            MAX_LAYERS);
    REQUIRE(opt->n_kv_heads >= 1 && opt->n_kv_heads <= MAX_KV_HEADS, "cache: n_kv_heads %u is outside 1..%u",
            opt->n_kv_heads, MAX_KV_HEADS);
    REQUIRE(opt->n_q_heads >= 1 && opt->n_q_heads % opt->n_kv_heads == 0 &&
                opt->n_q_heads / opt->n_kv_heads <= PLEAT__MAX_GROUP,
            "cache: n_q_heads %u is not 1..%u times n_kv_heads %u", opt->n_q_heads, PLEAT__MAX_GROUP, opt->n_kv_heads);
    REQUIRE(opt->head_dim >= 16 && opt->head_dim <= PLEAT__MAX_HEAD_DIM && opt->head_dim % 16 == 0,
            "cache: head_dim %u is not a multiple of 16 in 16..%u", opt->head_dim, PLEAT__MAX_HEAD_DIM);
    REQUIRE(opt->softmax_scale >= 0 && opt->softmax_scale <= MAX_SCALE, "cache: softmax_scale is outside 0..65536");
    REQUIRE(opt->logit_cap == 0 || (opt->logit_cap >= 1 / MAX_SCALE && opt->logit_cap <= MAX_SCALE),
            "cache: logit_cap is neither 0 nor in 2^-16..65536");
    REQUIRE(opt->page_tokens <= 4096 && opt->page_tokens % PLEAT__TILE == 0,
            "cache: page_tokens %u is neither 0 nor a multiple of 16 up to 4096", opt->page_tokens);
    REQUIRE(opt->max_seqs >= 1 && opt->max_seqs <= MAX_SEQS, "cache: max_seqs %u is outside 1..%u", opt->max_seqs,
            MAX_SEQS);
    REQUIRE(opt->max_items <= opt->max_seqs, "cache: max_items %u is more than max_seqs %u", opt->max_items,
            opt->max_seqs);
    REQUIRE(opt->max_tokens >= 1 && opt->max_tokens <= MAX_TOKENS, "cache: max_tokens %u is outside 1..%u",
            opt->max_tokens, MAX_TOKENS);
    REQUIRE(opt->step_tokens >= 1 && opt->step_tokens <= MAX_TOKENS, "cache: step_tokens %u is outside 1..%u",
            opt->step_tokens, MAX_TOKENS);
    PLEAT_TRY(check_sinks(opt, err));
    PLEAT_TRY(check_ropes(opt, err));
    return check_spec_fits(opt, err);
}

#undef REQUIRE

/* ---- sizes ------------------------------------------------------------------------------------- */

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What a worker needs for the hungriest of its kinds of unit. */
static uint64_t worker_bytes(const pleat_cache *c) {
    const uint64_t units = max_u64(pleat__cache_prompt_bytes(c), pleat__cache_decode_bytes(c));
    const uint64_t end = c->keep->end_bytes ? c->keep->end_bytes(c) : 0;
    const uint64_t n = max_u64(max_u64(units, end), c->keep->is_intact ? pleat__keep_check_bytes(c) : 0);
    return (n + PLEAT__ALIGN - 1) & ~(uint64_t)(PLEAT__ALIGN - 1);
}

static pleat_status derive_work(pleat_cache *c, pleat_error *err) {
    pleat__workspace *w = &c->work;
    const pleat_format f32 = {32, 32};
    w->max_splits = pleat__cache_max_splits(c, c->opt.max_tokens);
    w->acc_bytes = pleat__attn_acc_bytes(c->n_group, c->opt.head_dim);
    w->logits_cap = ((uint64_t)c->opt.max_tokens + 1 + 2 * PLEAT__TILE) & ~(uint64_t)(PLEAT__TILE - 1);
    if (c->counting.of_steps && (w->max_splits > 1 || w->logits_cap > PLEAT__SCRATCH_SPAN_SLOTS))
        PLEAT_FAIL_IF(!pleat__mul_u64(w->logits_cap * sizeof *w->logits, (uint64_t)c->opt.max_items * c->opt.n_q_heads,
                                      &w->logits_bytes),
                      err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: the options ask for more memory than there can be");
    PLEAT_TRY(pleat__page_layout_init(&w->stage_layout, f32, c->opt.head_dim, PLEAT__TILE, false));
    w->worker_bytes = worker_bytes(c);
    return PLEAT_OK;
}

/* What the row has left open. */
static void derive_traits(pleat_cache *c) {
    const pleat_cache_options *opt = &c->opt;
    const pleat_spec *spec = &opt->spec;
    pleat_cache_traits *t = &c->traits;
    t->size_bytes = sizeof *t;
    t->n_lanes = c->n_lanes;
    t->n_ring_lanes = (opt->n_layers - c->n_full_layers) * opt->n_kv_heads;
    for (uint32_t layer = 0; layer < opt->n_layers; layer++)
        t->ring_slots = pleat__max_u32(t->ring_slots, pleat__cache_window(c, layer));
    t->page_bytes = c->page_bytes;
    t->high_page_tokens = c->page_tokens[PLEAT__HIGH];
    t->window = spec->window;
    const uint32_t page = pleat__max_u32(PLEAT__MAX_CHOSEN_PAGE_TOKENS, c->page_tokens[PLEAT__HIGH]);
    if (c->ring) t->unshared_tokens = UINT32_MAX;
    if (t->unshared_tokens == 0)
        t->unshared_tokens = spec->sinks + spec->window + spec->buffer + spec->block + 3 * page;
}

pleat_status pleat__cache_derive(pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_TRY(check_options(opt, err));
    c->opt = *opt;
    if (c->opt.max_items == 0) c->opt.max_items = c->opt.max_seqs;
    c->n_group = opt->n_q_heads / opt->n_kv_heads;
    c->scale = opt->softmax_scale > 0 ? opt->softmax_scale : 1.0f / sqrtf((float)opt->head_dim);
    c->cap2 = opt->logit_cap * (float)M_LOG2E;
    c->n_lanes = opt->n_layers * opt->n_kv_heads;
    PLEAT_FAIL_IF((uint64_t)pleat__min_u32(c->opt.max_items, opt->step_tokens) * c->n_lanes > UINT32_MAX, err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "cache: %u sequences of %u lanes are too many for one step",
                  c->opt.max_items, c->n_lanes);
    pleat__keep_choose(c);
    c->traits = c->keep->traits;
    c->high_weight = 1;
    PLEAT_TRY(c->keep->derive(c, err));
    if (c->ring) PLEAT_TRY(c->ring->derive(c, err));
    derive_traits(c);
    pleat__sequence seq = {0};
    pleat__arena arena = {0};
    c->seq_bytes = pleat__cache_carve_seq(c, c->opt.max_tokens, &seq, &arena) + sizeof seq;
    return derive_work(c, err);
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Hand out every array of the cache (counting when the arena has no base). */
static void carve(pleat_cache *c, uint32_t n_pages, pleat__arena *arena) {
    pleat__pool_carve(&c->pool, n_pages, arena);
    c->seqs = pleat__arena_take(arena, c->opt.max_seqs, sizeof *c->seqs);
    if (c->ring) c->ring->carve(c, arena);
    if (c->keep->carve) c->keep->carve(c, arena);
    if (c->opt.sink_logits)
        c->sinks2 = pleat__arena_take(arena, (uint64_t)c->opt.n_layers * c->opt.n_q_heads, sizeof *c->sinks2);
    pleat__cache_carve_step(c, &c->step, arena);
    pleat__cache_carve_work(c, &c->work, arena);
}

/* Pages that the options ask for. */
static pleat_status count_pages(const pleat_cache *c, uint32_t *n_pages, pleat_error *err) {
    uint64_t n, per_seq = 0;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        const pleat__keep *keep = pleat__keep_at(c, layer);
        const uint32_t n_slots = keep->lane_slots(c, layer, c->opt.max_tokens, false);
        per_seq += keep->lane_pages(c, n_slots, true) * c->opt.n_kv_heads;
    }
    if (c->opt.pool_bytes > 0)
        n = c->opt.pool_bytes / c->page_bytes;
    else if (!pleat__mul_u64(per_seq, c->opt.max_seqs, &n))
        n = UINT64_MAX;
    PLEAT_FAIL_IF(n == 0, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: a pool of %llu bytes holds no page of %llu bytes",
                  (unsigned long long)c->opt.pool_bytes, (unsigned long long)c->page_bytes);
    PLEAT_FAIL_IF(n > UINT32_MAX / 2, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: %llu pages are more than %u",
                  (unsigned long long)n, UINT32_MAX / 2);
    *n_pages = (uint32_t)n;
    return PLEAT_OK;
}

/* Allocate the block, the pages and the logits, and lay the block out. */
static pleat_status take_memory(pleat_cache *c, uint32_t n_pages, pleat_error *err) {
    pleat__arena arena = {0};
    carve(c, n_pages, &arena);
    c->block_bytes = arena.used_bytes;
    c->pages_bytes = (uint64_t)n_pages * c->page_bytes;
    if (!arena.overflow) c->block = pleat__alloc_zero(&c->al, 1, c->block_bytes);
    if (c->block) c->pages = pleat__alloc(&c->al, 1, c->pages_bytes);
    if (c->pages && c->work.logits_bytes > 0) c->work.logits = pleat__alloc(&c->al, 1, c->work.logits_bytes);
    PLEAT_FAIL_IF(!c->pages || (c->work.logits_bytes > 0 && !c->work.logits), err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                  "cache: out of memory: %llu bytes of pages and %llu of tables and workspace",
                  (unsigned long long)c->pages_bytes, (unsigned long long)(c->block_bytes + c->work.logits_bytes));
    arena = (pleat__arena){.base = c->block, .cap_bytes = c->block_bytes};
    carve(c, n_pages, &arena);
    return PLEAT_OK;
}

/* The sizes that the spec's kind chooses for, where it does. */
static pleat_status derive_plain(pleat_cache *c, const pleat_cache_options *opt, pleat_cache *plain, pleat_error *err) {
    pleat_cache_options of = *opt;
    of.max_tokens = c->keep->plain_tokens ? c->keep->plain_tokens(c) : 0;
    if (of.max_tokens == 0) return PLEAT_OK;
    of.page_tokens = 0;
    c->plain = plain;
    return pleat__cache_derive(plain, &of, err);
}

/* What a cache that is only planned need not know. */
static pleat_status check_knows(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    if (c->keep->check) PLEAT_TRY(c->keep->check(c, opt, err));
    return opt->collector ? pleat__collector_bind(opt->collector, opt, err) : PLEAT_OK;
}

pleat_status pleat_cache_create(const pleat_cache_options *opt, pleat_cache **out, pleat_error *err) {
    PLEAT_FAIL_IF(!opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no options or no place for the result");
    const pleat_allocator al = pleat__allocator_or_default(opt->allocator);
    pleat_cache *c = pleat__alloc_zero(&al, 1, sizeof *c);
    PLEAT_FAIL_IF(!c, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "cache: out of memory");
    c->al = al;
    pleat_cache plain = {0};
    uint32_t n_pages = 0;
    pleat_status status = pleat__cache_derive(c, opt, err);
    if (status == PLEAT_OK) status = derive_plain(c, opt, &plain, err);
    if (status == PLEAT_OK) status = check_knows(c, opt, err);
    if (status == PLEAT_OK) status = count_pages(c, &n_pages, err);
    if (status == PLEAT_OK) status = take_memory(c, n_pages, err);
    if (status != PLEAT_OK) goto fail;
    for (uint32_t i = 0; c->sinks2 && i < opt->n_layers * opt->n_q_heads; i++)
        c->sinks2[i] = opt->sink_logits[i] * (float)M_LOG2E;
    c->opt.sink_logits = NULL; /* the caller's, as windows; rings have their own */
    c->opt.windows = NULL;
    if (c->ring) c->ring->init(c, opt);
    if (c->keep->init) c->keep->init(c, opt);
    c->opt.ropes = NULL;
    c->plain = NULL;
    c->traits.n_pages = n_pages;
    pleat__os_advise_huge(c->pages, c->pages_bytes);
    pleat__pool_init(&c->pool);
    for (uint64_t i = 0; i < pleat__cache_stage_tiles(c); i++) c->work.stage_ids[i].v = (uint32_t)i;
    pleat__quant_dsp_init(&c->quant, pleat_cpu_flags());
    pleat__attn_dsp_init(&c->attn, pleat_cpu_flags());
    pleat__scan_dsp_init(&c->scan, pleat_cpu_flags());
    pleat__codec_dsp_init(&c->codec, pleat_cpu_flags());
    *out = c;
    return PLEAT_OK;
fail:
    pleat_cache_destroy(&c);
    return status;
}

void pleat_cache_destroy(pleat_cache **cache) {
    if (!cache || !*cache) return;
    pleat_cache *c = *cache;
    for (uint32_t i = 0; c->seqs && i < c->opt.max_seqs; i++)
        if (c->seqs[i].open) pleat__cache_release_seq(c, &c->seqs[i]);
    const pleat_allocator al = c->al;
    pleat__free(&al, c->work.logits, 1, c->work.logits_bytes);
    pleat__free(&al, c->pages, 1, c->pages_bytes);
    pleat__free(&al, c->block, 1, c->block_bytes);
    pleat__free(&al, c, 1, sizeof *c);
    *cache = NULL;
}
