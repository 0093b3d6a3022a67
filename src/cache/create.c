/* SPDX-License-Identifier: MIT
 *
 * create.c: from options to a cache: what they may be, the sizes that follow, the memory that these take.
 *
 * A cache makes two allocations when it is created, its pages and one block for everything else; with a policy and
 * long lanes a third, for logits.  What pages look like, layouts.h says.
 */
#include <math.h>
#include <string.h>

#include "cache/internal.h"
#include "cache/layouts.h"
#include "cache/spec.h"
#include "core/checked.h"
#include "core/error.h"
#include "hw/os_memory.h"

#define DEFAULT_STEP_TOKENS 512u
#define MAX_SEQS 65535u /* counted in 16 bits: share.c */
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

uint32_t pleat_cache_least_tokens(const pleat_spec *spec) {
    if (!spec || pleat__spec_check(spec, NULL) != PLEAT_OK) return 0;
    const uint32_t kept = spec->sinks + spec->window;
    const bool in_tokens = spec->budget.unit == PLEAT_BUDGET_TOKENS && spec->budget.value > kept;
    return in_tokens ? (uint32_t)spec->budget.value : kept;
}

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

static pleat_status check_spec_fits(const pleat_cache_options *opt, pleat_error *err) {
    REQUIRE(!pleat__cache_wants_rings(opt) || opt->spec.policy == PLEAT_POLICY_NONE,
            "cache: a policy on layers with a sliding window is not supported: choose a spec without one");
    REQUIRE(!pleat__cache_wants_rings(opt) || opt->spec.compressor == PLEAT_COMPRESSOR_NONE,
            "cache: blocks (kvcomp, kivi) on layers with a sliding window are not supported: choose another spec");
    const uint32_t kept = opt->spec.sinks + opt->spec.window;
    REQUIRE(kept <= opt->max_tokens,
            "cache: the spec's window of %u tokens%s is longer than the longest sequence, %u tokens", opt->spec.window,
            opt->spec.sinks ? " and its sinks" : "", opt->max_tokens);
    REQUIRE(opt->spec.budget.unit != PLEAT_BUDGET_TOKENS || opt->spec.budget.value <= opt->max_tokens,
            "cache: budget=%.0f is above the longest sequence: allowed are %u to %u tokens", opt->spec.budget.value,
            kept, opt->max_tokens);
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
    return check_spec_fits(opt, err);
}

#undef REQUIRE

/* ---- pages ------------------------------------------------------------------------------------- */

/* Lay out both sides' pages of `tokens` high tokens. */
static pleat_status lay_out(pleat_cache *c, const pleat__layouts_of *of, uint32_t tokens) {
    pleat__layouts l;
    PLEAT_TRY(pleat__layouts_init(&l, of, tokens));
    c->page_bytes = l.page_bytes;
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        c->layouts[side] = l.side[side];
        c->page_tokens[side] = l.side[side].tokens;
    }
    return PLEAT_OK;
}

/* Blocks take whole pages.  These are small: half a page of f16 tokens and half a page of payloads are lost a lane,
 * which with 32 tokens a page is 3.9 % of f16's bytes at 800 tokens. */
static pleat_status derive_blocks(pleat_cache *c, pleat_error *err) {
    const uint32_t tokens = c->opt.page_tokens;
    PLEAT_TRY(pleat__block_format_of(&c->opt.spec, c->opt.head_dim, &c->blocks));
    PLEAT_FAIL_IF(tokens > 0 && c->blocks.tokens % tokens != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: page_tokens %u does not divide the spec's blocks of %u tokens", tokens, c->blocks.tokens);
    return PLEAT_OK;
}

static pleat_status derive_pages(pleat_cache *c, pleat_error *err) {
    const pleat_spec *spec = &c->opt.spec;
    c->tracked = spec->policy != PLEAT_POLICY_NONE;
    c->evictor = pleat__evictor_of(spec->policy);
    c->scoring = pleat__scoring_of(spec);
    c->two_sided = spec->policy == PLEAT_POLICY_LEANKV && spec->al < spec->ah;
    c->has_blocks = spec->compressor != PLEAT_COMPRESSOR_NONE;
    uint32_t tokens = c->opt.page_tokens;
    if (c->has_blocks) PLEAT_TRY(derive_blocks(c, err));
    c->has_books = c->has_blocks && c->blocks.coder == PLEAT__CODER_HUFFMAN;
    const pleat__layouts_of of = {spec, c->opt.head_dim, c->n_group, c->two_sided, UINT32_MAX};
    if (tokens == 0 && c->two_sided) tokens = pleat__layouts_choose(&of);
    const bool is_long = c->opt.max_tokens >= PLEAT__LONG_PAGE_FROM;
    if (tokens == 0 && c->has_blocks)
        tokens = pleat__min_u32(is_long ? PLEAT__LONG_PAGE_TOKENS : PLEAT__TILE, c->blocks.tokens);
    if (tokens == 0) tokens = is_long ? PLEAT__LONG_PAGE_TOKENS : PLEAT__DEFAULT_PAGE_TOKENS;
    PLEAT_FAIL_IF(lay_out(c, &of, tokens) != PLEAT_OK, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: no page layout for these formats, head_dim %u and %u tokens a page", c->opt.head_dim, tokens);
    if (c->has_blocks) c->page_tokens[PLEAT__LOW] = (uint32_t)(c->page_bytes / PLEAT__BLOCK_ALIGN);
    const pleat_format f32 = {32, 32};
    return pleat__page_layout_init(&c->stage_layout, f32, c->opt.head_dim, PLEAT__TILE, false);
}

/* A budget in bytes has room for what always stays. */
static pleat_status derive_budget(pleat_cache *c, pleat_error *err) {
    const pleat_spec *spec = &c->opt.spec;
    const uint32_t least = spec->sinks + spec->window;
    if (!c->evictor || spec->budget.unit != PLEAT_BUDGET_BYTES) return PLEAT_OK;
    c->byte_tokens = pleat__cache_byte_tokens(c, spec->budget.value);
    PLEAT_FAIL_IF(c->byte_tokens < least, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: a budget of %.0f bytes leaves a lane %u tokens, sinks=%u + window=%u need %u: allowed are "
                  "%.0f bytes and more",
                  spec->budget.value, c->byte_tokens, spec->sinks, spec->window, least,
                  pleat__cache_bytes_of_budget(c, least));
    return PLEAT_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* Tiles that prompt chunks of one step can fill in the staging buffer, for each head: each of up to max_items items of
 * two or more tokens ends in a tile that may be part empty. */
static uint64_t stage_tiles_cap(const pleat_cache_options *opt) {
    return opt->step_tokens / PLEAT__TILE + pleat__min_u32(opt->max_items, opt->step_tokens / 2 + 1) + 1;
}

/* Cells of a row; copying needs room for the fresh pages beside the old ones. */
static uint32_t row_len_of(const pleat_cache *c, uint32_t max_tokens) {
    const uint32_t tokens = c->page_tokens[PLEAT__HIGH];
    const uint32_t n_fresh = c->evictor ? pleat__reclaim_fresh(c->opt.spec.reclaim, max_tokens, tokens) : 0;
    return pleat__table_row_len(max_tokens, tokens) + n_fresh;
}

static void carve_evict(const pleat_cache *c, uint32_t n_slots, pleat__compact_scratch *s, pleat__arena *arena) {
    const uint32_t n_heads = c->opt.n_kv_heads;
    pleat__evict_carve(&c->opt.spec, n_heads, c->n_group, n_slots, c->opt.max_tokens, &s->evict, arena);
    s->views = pleat__arena_take(arena, n_heads, sizeof *s->views);
    s->verdicts = pleat__arena_take(arena, n_heads, sizeof *s->verdicts);
    for (uint32_t head = 0; head < n_heads; head++) {
        uint8_t *verdicts = pleat__arena_take(arena, n_slots, 1);
        if (s->verdicts) s->verdicts[head] = verdicts;
    }
    pleat__reclaim_carve(&s->reclaim, n_slots, row_len_of(c, c->opt.max_tokens), arena);
    s->floats = pleat__arena_take(arena, PLEAT__SCAN_BLOCK, sizeof *s->floats);
}

static void carve_levels(const pleat_cache *c, uint32_t n_slots, pleat__compact_scratch *s, pleat__arena *arena) {
    s->levels = pleat__arena_take(arena, n_slots, sizeof *s->levels);
    s->floats = pleat__arena_take(arena, n_slots, sizeof *s->floats);
    s->k_tile = pleat__arena_take(arena, PLEAT__TILE * c->opt.head_dim, sizeof *s->k_tile);
    s->v_tile = pleat__arena_take(arena, PLEAT__TILE * c->opt.head_dim, sizeof *s->v_tile);
    s->k = pleat__arena_take(arena, c->opt.head_dim, sizeof *s->k);
}

void pleat__cache_carve_compact(const pleat_cache *c, pleat__compact_scratch *s, pleat__arena *arena) {
    const uint32_t n_slots = c->opt.max_tokens + 1; /* and a hole */
    *s = (pleat__compact_scratch){0};
    s->pages = pleat__arena_take(arena, row_len_of(c, c->opt.max_tokens), sizeof *s->pages);
    if (c->evictor)
        carve_evict(c, n_slots, s, arena);
    else
        carve_levels(c, n_slots, s, arena);
}

/* What a worker needs for the hungriest of its kinds of unit. */
static uint64_t scratch_bytes(const pleat_cache *c) {
    pleat__compact_scratch compact;
    pleat__arena arena = {0};
    pleat__block_scratch blocks;
    if (c->tracked) pleat__cache_carve_compact(c, &compact, &arena);
    if (c->has_blocks) pleat__cache_carve_blocks(c, &blocks, &arena);
    uint64_t most = pleat__cache_prompt_scratch_bytes(c);
    if (pleat__cache_decode_scratch_bytes(c) > most) most = pleat__cache_decode_scratch_bytes(c);
    return arena.used_bytes > most ? arena.used_bytes : most;
}

/* Hand out every array of the cache (counting when the arena has no base). */
static void carve(pleat_cache *c, uint32_t n_pages, pleat__arena *arena) {
    const pleat_cache_options *opt = &c->opt;
    const uint64_t n_lanes_step = (uint64_t)opt->max_items * opt->n_kv_heads;
    pleat__pool_carve(&c->pool, n_pages, arena);
    c->seqs = pleat__arena_take(arena, opt->max_seqs, sizeof *c->seqs);
    c->items = pleat__arena_take(arena, opt->max_items, sizeof *c->items);
    c->prompt_items = pleat__arena_take(arena, opt->max_items, sizeof *c->prompt_items);
    const bool has_rings = pleat__cache_wants_rings(opt);
    c->windows = has_rings ? pleat__arena_take(arena, opt->n_layers, sizeof *c->windows) : NULL;
    c->most_slots = has_rings ? pleat__arena_take(arena, c->n_lanes, sizeof *c->most_slots) : NULL;
    c->stored = pleat__arena_take(arena, opt->n_layers, sizeof *c->stored);
    const uint32_t n_items_cap = pleat__min_u32(opt->max_items, opt->step_tokens);
    pleat__plan_carve(&c->plan, n_items_cap, n_items_cap * c->n_lanes, arena);
    c->stage = pleat__arena_take(arena, stage_tiles_cap(opt) * opt->n_kv_heads, c->stage_layout.used_bytes);
    c->stage_ids = pleat__arena_take(arena, stage_tiles_cap(opt), sizeof *c->stage_ids);
    const uint64_t n_rows_tracked = c->tracked ? (uint64_t)opt->step_tokens * opt->n_q_heads : 0;
    c->lse2 = pleat__arena_take(arena, n_rows_tracked, sizeof *c->lse2);
    c->q_kept = pleat__arena_take(arena, n_rows_tracked, opt->head_dim * sizeof *c->q_kept);
    c->worker_scratch = pleat__arena_take(arena, pleat_workers_count(opt->workers), c->worker_scratch_bytes);
    c->partials = pleat__arena_take(arena, c->splits_cap > 1 ? n_lanes_step * c->splits_cap : 0, c->acc_bytes);
    c->pending = pleat__arena_take(arena, n_lanes_step, sizeof *c->pending);
}

pleat_status pleat__cache_derive(pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_TRY(check_options(opt, err));
    c->opt = *opt;
    if (c->opt.max_items == 0) c->opt.max_items = c->opt.max_seqs;
    c->n_group = opt->n_q_heads / opt->n_kv_heads;
    c->scale = opt->softmax_scale > 0 ? opt->softmax_scale : 1.0f / sqrtf((float)opt->head_dim);
    c->n_lanes = opt->n_layers * opt->n_kv_heads;
    PLEAT_FAIL_IF((uint64_t)pleat__min_u32(c->opt.max_items, opt->step_tokens) * c->n_lanes > UINT32_MAX, err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "cache: %u sequences of %u lanes are too many for one step",
                  c->opt.max_items, c->n_lanes);
    PLEAT_TRY(derive_pages(c, err));
    PLEAT_TRY(derive_budget(c, err));
    c->splits_cap = pleat__cache_most_splits(c, opt->max_tokens);
    c->acc_bytes = pleat__attn_acc_bytes(c->n_group, opt->head_dim);
    c->logits_cap = ((uint64_t)opt->max_tokens + 1 + 2 * PLEAT__TILE) & ~(uint64_t)(PLEAT__TILE - 1);
    if (c->tracked && (c->splits_cap > 1 || c->logits_cap > PLEAT__SCRATCH_LINE_SLOTS))
        PLEAT_FAIL_IF(!pleat__mul_u64(c->logits_cap * sizeof *c->logits, (uint64_t)c->opt.max_items * opt->n_q_heads,
                                      &c->logits_bytes),
                      err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: the options ask for more memory than there can be");
    c->worker_scratch_bytes = (scratch_bytes(c) + PLEAT__ALIGN - 1) & ~(uint64_t)(PLEAT__ALIGN - 1);
    return PLEAT_OK;
}

uint64_t pleat__cache_carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena) {
    pleat__table_carve(&seq->table, c->n_lanes, row_len_of(c, max_tokens), arena);
    if (c->has_blocks) {
        seq->blocks_cap = max_tokens / c->blocks.tokens;
        if (c->has_books) seq->books = pleat__arena_take(arena, c->opt.n_layers, sizeof *seq->books);
        seq->block_ends = pleat__arena_take(arena, (uint64_t)c->n_lanes * seq->blocks_cap, sizeof *seq->block_ends);
    }
    return arena->used_bytes;
}

/* Pages that the options ask for. */
static pleat_status count_pages(const pleat_cache *c, uint32_t *n_pages, pleat_error *err) {
    /* Beside what the tokens fill: what the end of a step works with. */
    const uint32_t n_fresh =
        row_len_of(c, c->opt.max_tokens) - pleat__table_row_len(c->opt.max_tokens, c->page_tokens[0]);
    const uint32_t spare = c->two_sided ? PLEAT__ROW_SPARE : n_fresh;
    uint64_t n, per_seq = 0;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        const uint32_t n_kept = pleat__cache_kept_tokens(&c->opt, layer, c->opt.max_tokens);
        per_seq += ((uint64_t)pleat__div_up_u32(n_kept, c->page_tokens[PLEAT__HIGH]) + spare) * c->opt.n_kv_heads;
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
    if (c->pages && c->logits_bytes > 0) c->logits = pleat__alloc(&c->al, 1, c->logits_bytes);
    PLEAT_FAIL_IF(!c->pages || (c->logits_bytes > 0 && !c->logits), err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                  "cache: out of memory: %llu bytes of pages and %llu of tables and workspace",
                  (unsigned long long)c->pages_bytes, (unsigned long long)(c->block_bytes + c->logits_bytes));
    arena = (pleat__arena){.base = c->block, .cap_bytes = c->block_bytes};
    carve(c, n_pages, &arena);
    return PLEAT_OK;
}

pleat_status pleat_cache_create(const pleat_cache_options *opt, pleat_cache **out, pleat_error *err) {
    PLEAT_FAIL_IF(!opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no options or no place for the result");
    const pleat_allocator al = pleat__allocator_or_default(opt->allocator);
    pleat_cache *c = pleat__alloc_zero(&al, 1, sizeof *c);
    PLEAT_FAIL_IF(!c, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "cache: out of memory");
    c->al = al;
    uint32_t n_pages = 0;
    pleat_status status = pleat__cache_derive(c, opt, err);
    if (status == PLEAT_OK) status = count_pages(c, &n_pages, err);
    if (status == PLEAT_OK) status = take_memory(c, n_pages, err);
    if (status != PLEAT_OK) goto fail;
    for (uint32_t lane = 0; c->windows && lane < c->n_lanes; lane++) {
        const uint32_t layer = lane / c->opt.n_kv_heads, n_kept = pleat__cache_kept_tokens(opt, layer, opt->max_tokens);
        c->windows[layer] = n_kept < opt->max_tokens ? n_kept : 0;
        c->most_slots[lane] = n_kept;
    }
    c->opt.windows = c->windows;
    pleat__os_advise_huge(c->pages, c->pages_bytes);
    pleat__pool_init(&c->pool);
    for (uint64_t i = 0; i < stage_tiles_cap(&c->opt); i++) c->stage_ids[i].v = (uint32_t)i;
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
    pleat__free(&al, c->logits, 1, c->logits_bytes);
    pleat__free(&al, c->pages, 1, c->pages_bytes);
    pleat__free(&al, c->block, 1, c->block_bytes);
    pleat__free(&al, c, 1, sizeof *c);
    *cache = NULL;
}
