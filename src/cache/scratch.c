/* SPDX-License-Identifier: MIT
 *
 * scratch.c: see scratch.h.
 */
#include "cache/scratch.h"

/* ---- a cache and a sequence ---------------------------------------------------------------------- */

/* Each of up to max_items items of two or more tokens ends in a tile that may be part empty. */
uint64_t pleat__cache_stage_tiles(const pleat_cache *c) {
    const pleat_cache_options *opt = &c->opt;
    return opt->step_tokens / PLEAT__TILE + pleat__min_u32(opt->max_items, opt->step_tokens / 2 + 1) + 1;
}

bool pleat__cache_keeps_weights(const pleat_cache *c) {
    return c->counting.of_prompts && c->counting.n_queries == 0 && !c->counting.is_by_head && !c->counting.is_peak &&
           pleat__counted_every_of_prompts(&c->opt.spec) == 1;
}

uint32_t pleat__cache_strand_slots(const pleat_cache *c) {
    if (!pleat__cache_keeps_weights(c)) return 0;
    const uint32_t n_tokens = pleat__min_u32(c->opt.max_tokens, PLEAT__SCORED_TOKENS);
    return pleat__attn_received_slots(n_tokens + 1) + 2 * pleat__attn_received_slots(1); /* a hole; three runs */
}

/* Strands that a step has at most; 0 where no weights are kept. */
static uint64_t most_strands(const pleat_cache *c) {
    if (!pleat__cache_keeps_weights(c)) return 0;
    /* an item has n_new / PLEAT__STRAND_QUERIES, rounded up, and n_new is no less */
    const uint64_t by_tokens = 2 * (uint64_t)c->opt.step_tokens / PLEAT__STRAND_QUERIES;
    const uint64_t by_items = (uint64_t)PLEAT__ITEM_STRANDS * c->opt.max_items;
    return by_tokens < by_items ? by_tokens : by_items;
}

static uint32_t row_len_of(const pleat_cache *c, uint32_t max_tokens) {
    return pleat__table_row_len(max_tokens, c->page_tokens[PLEAT__HIGH]) + pleat__cache_fresh_pages(c, max_tokens);
}

void pleat__cache_carve_table(const pleat_cache *c, uint32_t max_tokens, pleat__table *table, pleat__arena *arena) {
    pleat__table_carve(table, c->n_lanes, row_len_of(c, max_tokens), arena);
}

void pleat__cache_carve_step(const pleat_cache *c, pleat__step *step, pleat__arena *arena) {
    const pleat_cache_options *opt = &c->opt;
    const uint32_t n_items_cap = pleat__min_u32(opt->max_items, opt->step_tokens);
    step->items = pleat__arena_take(arena, opt->max_items, sizeof *step->items);
    step->prompt_items = pleat__arena_take(arena, opt->max_items, sizeof *step->prompt_items);
    step->stored = pleat__arena_take(arena, opt->n_layers, sizeof *step->stored);
    pleat__plan_carve(&step->plan, n_items_cap, n_items_cap * c->n_lanes, arena);
}

void pleat__cache_carve_work(const pleat_cache *c, pleat__workspace *w, pleat__arena *arena) {
    const pleat_cache_options *opt = &c->opt;
    const uint64_t n_tiles = pleat__cache_stage_tiles(c), n_lanes_step = (uint64_t)opt->max_items * opt->n_kv_heads;
    const uint64_t n_rows_counted = c->counting.of_prompts ? (uint64_t)opt->step_tokens * opt->n_q_heads : 0;
    w->stage = pleat__arena_take(arena, n_tiles * opt->n_kv_heads, w->stage_layout.used_bytes);
    w->stage_ids = pleat__arena_take(arena, n_tiles, sizeof *w->stage_ids);
    w->lse2 = pleat__arena_take(arena, n_rows_counted, sizeof *w->lse2);
    w->q_kept = pleat__arena_take(arena, n_rows_counted, opt->head_dim * sizeof *w->q_kept);
    const uint64_t n_rotated = pleat__cache_is_rotated(c) ? pleat__max_u32(opt->step_tokens, opt->max_items) : 0;
    w->rotated_q = pleat__arena_take(arena, n_rotated * opt->n_q_heads, opt->head_dim * sizeof *w->rotated_q);
    w->rotated_k = pleat__arena_take(arena, n_rotated * opt->n_kv_heads, opt->head_dim * sizeof *w->rotated_k);
    w->rotated_v = pleat__arena_take(arena, n_rotated * opt->n_kv_heads, opt->head_dim * sizeof *w->rotated_v);
    w->strands = pleat__arena_take(arena, most_strands(c) * opt->n_kv_heads,
                                   (uint64_t)pleat__cache_strand_slots(c) * sizeof *w->strands);
    w->worker = pleat__arena_take(arena, pleat_workers_count(opt->workers), w->worker_bytes);
    w->partials = pleat__arena_take(arena, w->max_splits > 1 ? n_lanes_step * w->max_splits : 0, w->acc_bytes);
    w->pending = pleat__arena_take(arena, n_lanes_step, sizeof *w->pending);
}

/* ---- units ----------------------------------------------------------------------------------------- */

void pleat__cache_carve_decode(const pleat_cache *c, pleat__decode_scratch *s, pleat__arena *arena) {
    const uint64_t n_logits = c->counting.of_steps ? (uint64_t)c->n_group * PLEAT__SCRATCH_SPAN_SLOTS : 0;
    s->query = pleat__arena_take(arena, pleat__attn_query_bytes(c->n_group, c->opt.head_dim), 1);
    s->acc = pleat__arena_take(arena, c->work.acc_bytes, 1);
    s->blocks = pleat__arena_take(arena, c->work.blocks_bytes, 1);
    s->logits = pleat__arena_take(arena, n_logits, sizeof *s->logits);
}

/* ---- ends of steps ----------------------------------------------------------------------------------- */

/* Slots of the longest high side: a token each, and a hole. */
static uint32_t high_slots_cap(const pleat_cache *c) { return c->opt.max_tokens + 1; }

void pleat__cache_carve_compact(const pleat_cache *c, pleat__compact_scratch *s, pleat__arena *arena) {
    const uint32_t n_slots = high_slots_cap(c);
    s->pages = pleat__arena_take(arena, row_len_of(c, c->opt.max_tokens), sizeof *s->pages);
    s->levels = pleat__arena_take(arena, n_slots, sizeof *s->levels);
    s->floats = pleat__arena_take(arena, n_slots, sizeof *s->floats);
    s->k_tile = pleat__arena_take(arena, PLEAT__TILE * c->opt.head_dim, sizeof *s->k_tile);
    s->v_tile = pleat__arena_take(arena, PLEAT__TILE * c->opt.head_dim, sizeof *s->v_tile);
    s->k = pleat__arena_take(arena, c->opt.head_dim, sizeof *s->k);
}

void pleat__cache_carve_drop(const pleat_cache *c, pleat__drop_scratch *s, pleat__arena *arena) {
    const uint32_t n_heads = c->opt.n_kv_heads, n_slots = high_slots_cap(c);
    const uint32_t row_len = row_len_of(c, c->opt.max_tokens);
    *s = (pleat__drop_scratch){.pages = pleat__arena_take(arena, row_len, sizeof *s->pages)};
    pleat__evict_carve(&c->opt.spec, n_heads, c->n_group, n_slots, c->opt.max_tokens, &s->evict, arena);
    s->views = pleat__arena_take(arena, n_heads, sizeof *s->views);
    s->verdicts = pleat__arena_take(arena, n_heads, sizeof *s->verdicts);
    for (uint32_t head = 0; head < n_heads; head++) {
        uint8_t *verdicts = pleat__arena_take(arena, n_slots, 1);
        if (s->verdicts) s->verdicts[head] = verdicts;
    }
    pleat__reclaim_carve(&s->reclaim, n_slots, row_len, arena);
    s->ranks = pleat__arena_take(arena, PLEAT__SCAN_BLOCK, sizeof *s->ranks);
}

void pleat__cache_carve_blocks(const pleat_cache *c, const pleat__block_format *format, pleat__block_scratch *s,
                               pleat__arena *arena) {
    const uint64_t d = c->opt.head_dim, n = format->tokens * d;
    const uint32_t row_len = row_len_of(c, c->opt.max_tokens);
    *s = (pleat__block_scratch){0};
    pleat__block_codes_carve(format, &s->codes, arena);
    s->counts = pleat__arena_take(arena, 2, sizeof *s->counts);
    s->k_tile = pleat__arena_take(arena, PLEAT__TILE * d, sizeof *s->k_tile);
    s->v_tile = pleat__arena_take(arena, PLEAT__TILE * d, sizeof *s->v_tile);
    s->k = pleat__arena_take(arena, n, sizeof *s->k);
    s->v = pleat__arena_take(arena, n, sizeof *s->v);
    s->payload = pleat__arena_take(arena, pleat__block_bound(format), 1);
    s->pages = pleat__arena_take(arena, row_len, sizeof *s->pages);
    s->left = pleat__arena_take(arena, row_len, sizeof *s->left);
    if (format->is_rd) s->rd = pleat__arena_take(arena, 1, pleat__rd_scratch_bytes(format->head_dim));
}
