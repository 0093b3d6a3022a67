/* SPDX-License-Identifier: MIT
 *
 * cache.c: life of a cache and its sequences, and what they hold.
 *
 * A cache makes two allocations when it is created: its pages, and one block for everything else.  Opening a sequence
 * makes one, for its table.
 */
#include <math.h>
#include <string.h>

#include "cache/internal.h"
#include "core/checked.h"
#include "core/error.h"
#include "hw/os_memory.h"

#define DEFAULT_PAGE_TOKENS 32u
#define DEFAULT_STEP_TOKENS 512u
#define MAX_SEQS 65536u
#define MAX_LAYERS 1024u
#define MAX_KV_HEADS 1024u
#define MAX_TOKENS (1u << 24)
#define MAX_SCALE 65536.0f
#define SEQ_IDX_BITS 17 /* holds 1..MAX_SEQS; the rest of the handle is the generation */

void pleat_cache_options_default(pleat_cache_options *opt) {
    if (!opt) return;
    *opt = (pleat_cache_options){
        .size_bytes = sizeof *opt,
        .spec = {.high = {16, 16}},
        .page_tokens = DEFAULT_PAGE_TOKENS,
        .max_seqs = 1,
        .step_tokens = DEFAULT_STEP_TOKENS,
    };
}

static pleat_status check_options(const pleat_cache_options *opt, pleat_error *err) {
#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)
    REQUIRE(opt->size_bytes == sizeof *opt, "cache: options are not from pleat_cache_options_default()");
    REQUIRE(pleat__format_is_valid(opt->spec.high), "cache: invalid format");
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
    REQUIRE(opt->page_tokens >= PLEAT__TILE && opt->page_tokens <= 4096 && opt->page_tokens % PLEAT__TILE == 0,
            "cache: page_tokens %u is not a multiple of 16 in 16..4096", opt->page_tokens);
    REQUIRE(opt->max_seqs >= 1 && opt->max_seqs <= MAX_SEQS, "cache: max_seqs %u is outside 1..%u", opt->max_seqs,
            MAX_SEQS);
    REQUIRE(opt->max_tokens >= 1 && opt->max_tokens <= MAX_TOKENS, "cache: max_tokens %u is outside 1..%u",
            opt->max_tokens, MAX_TOKENS);
    REQUIRE(opt->step_tokens >= 1 && opt->step_tokens <= MAX_TOKENS, "cache: step_tokens %u is outside 1..%u",
            opt->step_tokens, MAX_TOKENS);
#undef REQUIRE
    return PLEAT_OK;
}

uint32_t pleat__cache_n_splits(uint32_t n_slots) {
    const uint32_t n = pleat__div_up_u32(n_slots, PLEAT__SPLIT_TOKENS);
    return pleat__max_u32(1, pleat__min_u32(n, PLEAT__MAX_SPLITS));
}

uint32_t pleat__cache_split_slots(const pleat_cache *cache, uint32_t n_slots) {
    const uint32_t slots = pleat__div_up_u32(n_slots, pleat__cache_n_splits(n_slots));
    return pleat__div_up_u32(slots, cache->layout.tokens) * cache->layout.tokens;
}

uint32_t pleat__cache_block_queries(const pleat_cache *cache) { return PLEAT__PROMPT_ROWS / cache->n_group; }

/* Tiles that prompt chunks of one step can fill in the staging buffer, for each head: each of up to max_seqs items of
 * two or more tokens ends in a tile that may be part empty. */
static uint64_t stage_tiles_cap(const pleat_cache_options *opt) {
    return opt->step_tokens / PLEAT__TILE + pleat__min_u32(opt->max_seqs, opt->step_tokens / 2 + 1) + 1;
}

/* Hand out every array of the cache (counting when the arena has no base). */
static void carve(pleat_cache *c, uint32_t n_pages, pleat__arena *arena) {
    const pleat_cache_options *opt = &c->opt;
    const uint64_t n_lanes_open = (uint64_t)opt->max_seqs * opt->n_kv_heads;
    pleat__pool_carve(&c->pool, n_pages, arena);
    c->seqs = pleat__arena_take(arena, opt->max_seqs, sizeof *c->seqs);
    c->items = pleat__arena_take(arena, opt->max_seqs, sizeof *c->items);
    c->prompt_items = pleat__arena_take(arena, opt->max_seqs, sizeof *c->prompt_items);
    c->stored = pleat__arena_take(arena, opt->n_layers, sizeof *c->stored);
    const uint32_t n_items_cap = pleat__min_u32(opt->max_seqs, opt->step_tokens);
    pleat__plan_carve(&c->plan, n_items_cap, n_items_cap * c->n_lanes, arena);
    c->stage = pleat__arena_take(arena, stage_tiles_cap(opt) * opt->n_kv_heads, c->stage_layout.used_bytes);
    c->stage_ids = pleat__arena_take(arena, stage_tiles_cap(opt), sizeof *c->stage_ids);
    c->worker_scratch = pleat__arena_take(arena, pleat_workers_count(opt->workers), c->worker_scratch_bytes);
    c->partials = pleat__arena_take(arena, c->splits_cap > 1 ? n_lanes_open * c->splits_cap : 0, c->acc_bytes);
    c->pending = pleat__arena_take(arena, n_lanes_open, sizeof *c->pending);
}

/* Everything that follows from the options without memory. */
static pleat_status derive(pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_TRY(check_options(opt, err));
    c->opt = *opt;
    c->n_group = opt->n_q_heads / opt->n_kv_heads;
    c->scale = opt->softmax_scale > 0 ? opt->softmax_scale : 1.0f / sqrtf((float)opt->head_dim);
    c->n_lanes = opt->n_layers * opt->n_kv_heads;
    PLEAT_FAIL_IF((uint64_t)pleat__min_u32(opt->max_seqs, opt->step_tokens) * c->n_lanes > UINT32_MAX, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "cache: %u sequences of %u lanes are too many for one step", opt->max_seqs,
                  c->n_lanes);
    const pleat_format f32 = {32, 32};
    if (pleat__page_layout_init(&c->layout, opt->spec.high, opt->head_dim, opt->page_tokens, false) != PLEAT_OK ||
        pleat__page_layout_init(&c->stage_layout, f32, opt->head_dim, PLEAT__TILE, false) != PLEAT_OK)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no page layout for these options");
    c->page_bytes = (c->layout.used_bytes + PLEAT__ALIGN - 1) & ~(uint64_t)(PLEAT__ALIGN - 1);
    c->splits_cap = pleat__cache_n_splits(opt->max_tokens);
    c->acc_bytes = pleat__attn_acc_bytes(c->n_group, opt->head_dim);
    const uint64_t decode_bytes = pleat__attn_query_bytes(c->n_group, opt->head_dim) + c->acc_bytes;
    const uint64_t prompt_bytes = pleat__attn_prompt_scratch_bytes(opt->head_dim);
    c->worker_scratch_bytes = decode_bytes > prompt_bytes ? decode_bytes : prompt_bytes;
    return PLEAT_OK;
}

/* Pages that the options ask for. */
static pleat_status count_pages(const pleat_cache *c, uint32_t *n_pages, pleat_error *err) {
    const uint64_t per_seq = (uint64_t)pleat__div_up_u32(c->opt.max_tokens, c->layout.tokens) * c->n_lanes;
    uint64_t n;
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

/* Allocate the block and the pages, and lay the block out. */
static pleat_status take_memory(pleat_cache *c, uint32_t n_pages, pleat_error *err) {
    pleat__arena arena = {0};
    carve(c, n_pages, &arena);
    c->block_bytes = arena.used_bytes;
    c->pages_bytes = (uint64_t)n_pages * c->page_bytes;
    if (!arena.overflow) c->block = pleat__alloc_zero(&c->al, 1, c->block_bytes);
    if (c->block) c->pages = pleat__alloc(&c->al, 1, c->pages_bytes);
    PLEAT_FAIL_IF(!c->pages, err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                  "cache: out of memory: %llu bytes of pages and %llu of tables and workspace",
                  (unsigned long long)c->pages_bytes, (unsigned long long)c->block_bytes);
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
    pleat_status status = derive(c, opt, err);
    if (status == PLEAT_OK) status = count_pages(c, &n_pages, err);
    if (status == PLEAT_OK) status = take_memory(c, n_pages, err);
    if (status != PLEAT_OK) goto fail;
    pleat__os_advise_huge(c->pages, c->pages_bytes);
    pleat__pool_init(&c->pool);
    for (uint64_t i = 0; i < stage_tiles_cap(opt); i++) c->stage_ids[i].v = (uint32_t)i;
    pleat__quant_dsp_init(&c->quant, pleat_cpu_flags());
    pleat__attn_dsp_init(&c->attn, pleat_cpu_flags());
    *out = c;
    return PLEAT_OK;
fail:
    pleat_cache_destroy(&c);
    return status;
}

static void release_seq(pleat_cache *c, pleat__sequence *seq) {
    pleat__free(&c->al, seq->block, 1, seq->block_bytes);
    *seq = (pleat__sequence){.generation = seq->generation + 1};
}

void pleat_cache_destroy(pleat_cache **cache) {
    if (!cache || !*cache) return;
    pleat_cache *c = *cache;
    for (uint32_t i = 0; c->seqs && i < c->opt.max_seqs; i++)
        if (c->seqs[i].open) release_seq(c, &c->seqs[i]);
    const pleat_allocator al = c->al;
    pleat__free(&al, c->pages, 1, c->pages_bytes);
    pleat__free(&al, c->block, 1, c->block_bytes);
    pleat__free(&al, c, 1, sizeof *c);
    *cache = NULL;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static pleat_seq handle_of(const pleat_cache *c, const pleat__sequence *seq) {
    return (pleat_seq){(seq->generation << SEQ_IDX_BITS) | ((uint32_t)(seq - c->seqs) + 1)};
}

pleat__sequence *pleat__cache_seq(const pleat_cache *c, pleat_seq seq) {
    const uint32_t idx = (seq.v & ((1u << SEQ_IDX_BITS) - 1)) - 1;
    if (idx >= c->opt.max_seqs || !c->seqs[idx].open || handle_of(c, &c->seqs[idx]).v != seq.v) return NULL;
    return &c->seqs[idx];
}

/* Lay out the table of a sequence of max_tokens; returns its bytes. */
static uint64_t carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__table *table, pleat__arena *arena) {
    pleat__table_carve(table, c->n_lanes, pleat__table_row_len(max_tokens, c->layout.tokens), arena);
    return arena->used_bytes;
}

pleat_status pleat_cache_open(pleat_cache *c, uint32_t max_tokens, pleat_seq *out) {
    if (!c || !out || max_tokens < 1 || max_tokens > c->opt.max_tokens) return PLEAT_E_ARG;
    if (c->n_open == c->opt.max_seqs) return PLEAT_E_LIMIT;
    uint32_t idx = 0;
    while (c->seqs[idx].open) idx++;
    pleat__table table;
    pleat__arena arena = {0};
    const uint64_t bytes = carve_seq(c, max_tokens, &table, &arena);
    void *block = arena.overflow ? NULL : pleat__alloc(&c->al, 1, bytes);
    if (!block) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = block, .cap_bytes = bytes};
    (void)carve_seq(c, max_tokens, &table, &arena);
    pleat__table_init(&table);
    pleat__sequence *seq = &c->seqs[idx];
    *seq = (pleat__sequence){.open = true,
                             .generation = seq->generation,
                             .max_tokens = max_tokens,
                             .table = table,
                             .block = block,
                             .block_bytes = bytes};
    c->n_open++;
    *out = handle_of(c, seq);
    return PLEAT_OK;
}

pleat_status pleat_cache_close(pleat_cache *c, pleat_seq handle) {
    pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!seq) return PLEAT_E_ARG;
    if (c->in_step) return PLEAT_E_STATE;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        pleat__lane_give_back(&seq->table, lane, PLEAT__HIGH, 0, &c->pool);
        pleat__lane_give_back(&seq->table, lane, PLEAT__LOW, 0, &c->pool);
    }
    release_seq(c, seq);
    c->n_open--;
    return PLEAT_OK;
}

uint32_t pleat_cache_length(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    return seq ? seq->n_tokens : 0;
}

uint32_t pleat_cache_max_tokens(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    return seq ? seq->max_tokens : 0;
}

/* ---- usage ----------------------------------------------------------------------------------- */

static uint64_t bytes_of_pages(const pleat_cache *c, uint64_t n_pages) {
    return n_pages * (c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
}

static void add_seq_usage(const pleat_cache *c, const pleat__sequence *seq, pleat_cache_usage *u) {
    const uint64_t n_pages = pleat__table_n_pages(&seq->table);
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const pleat__lane *l = &seq->table.lanes[lane];
        u->tokens_high += l->n_slots[PLEAT__HIGH];
        u->tokens_low += l->n_slots[PLEAT__LOW];
        u->tokens_dropped += seq->n_tokens - l->n_slots[PLEAT__HIGH] - l->n_slots[PLEAT__LOW];
    }
    u->pages_used += n_pages;
    u->pages_peak += seq->n_pages_peak;
    u->bytes_pages += n_pages * c->page_bytes;
    u->bytes += bytes_of_pages(c, n_pages) + seq->block_bytes + sizeof *seq;
    u->bytes_f16 += (uint64_t)seq->n_tokens * c->n_lanes * 4 * c->opt.head_dim;
}

pleat_status pleat_cache_get_usage(const pleat_cache *c, pleat_seq handle, pleat_cache_usage *out) {
    const pleat__sequence *seq = c && handle.v ? pleat__cache_seq(c, handle) : NULL;
    if (!c || !out || (handle.v && !seq)) return PLEAT_E_ARG;
    pleat_cache_usage u = {.pages_total = c->pool.n_pages};
    if (seq) {
        add_seq_usage(c, seq, &u);
    } else {
        for (uint32_t i = 0; i < c->opt.max_seqs; i++)
            if (c->seqs[i].open) add_seq_usage(c, &c->seqs[i], &u);
        u.pages_used = pleat__pool_used(&c->pool); /* shared pages count once */
        u.pages_peak = c->pool.n_peak;
    }
    *out = u;
    return PLEAT_OK;
}

uint64_t pleat_cache_bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens) {
    pleat_cache c = {0};
    if (!opt || derive(&c, opt, NULL) != PLEAT_OK || n_tokens > max_tokens || max_tokens > MAX_TOKENS) return 0;
    pleat__table table;
    pleat__arena arena = {0};
    const uint64_t table_bytes = carve_seq(&c, max_tokens, &table, &arena);
    const uint64_t n_pages = (uint64_t)pleat__div_up_u32(n_tokens, c.layout.tokens) * c.n_lanes;
    return bytes_of_pages(&c, n_pages) + table_bytes + sizeof(pleat__sequence);
}

/* ---- validity -------------------------------------------------------------------------------- */

static bool lanes_are_valid(const pleat_cache *c, const pleat__sequence *seq) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const pleat__lane *l = &seq->table.lanes[lane];
        const uint32_t n_needed = pleat__lane_high_pages(l, 0, c->layout.tokens);
        if (c->in_step ? l->n_pages[PLEAT__HIGH] < n_needed : l->n_pages[PLEAT__HIGH] != n_needed) return false;
        if (l->n_slots[PLEAT__HIGH] + l->n_slots[PLEAT__LOW] > seq->n_tokens) return false;
    }
    return seq->n_tokens <= seq->max_tokens;
}

static bool tables_match_pool(const pleat_cache *c, uint32_t *refs, uint8_t *marks) {
    for (uint32_t i = 0; i < c->opt.max_seqs; i++) {
        const pleat__sequence *seq = &c->seqs[i];
        if (!seq->open) continue;
        if (!lanes_are_valid(c, seq) || !pleat__table_count_refs(&seq->table, c->pool.n_pages, refs)) return false;
    }
    return memcmp(refs, c->pool.refs, (size_t)c->pool.n_pages * sizeof *refs) == 0 &&
           pleat__pool_is_valid(&c->pool, marks);
}

int pleat_cache_is_valid(const pleat_cache *c) {
    if (!c) return 0;
    uint32_t *refs = pleat__alloc_zero(&c->al, c->pool.n_pages, sizeof *refs);
    uint8_t *marks = pleat__alloc(&c->al, c->pool.n_pages, 1);
    const bool valid = refs && marks && tables_match_pool(c, refs, marks);
    pleat__free(&c->al, marks, c->pool.n_pages, 1);
    pleat__free(&c->al, refs, c->pool.n_pages, sizeof *refs);
    return valid;
}
