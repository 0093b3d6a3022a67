/* SPDX-License-Identifier: MIT
 *
 * ring.c: lanes of layers whose queries see the newest W tokens alone; the cache's full layers have another row.
 *
 *     slots of a lane   | 8 | 9 | 10 | 3 | 4 | 5 | 6 | 7 |     W = 8, 11 tokens: token p stands in slot p mod W
 *                                      ^ hole: token 11 takes the place of token 3, which it does not see
 *
 * The order of slots does not matter to attention, so a lane is read as any other.  Between steps a full ring's oldest
 * token is out of sight of whoever comes next: its slot is the lane's hole, which a single token fills as everywhere.
 * A chunk's queries see what their windows hold of the ring as it was before the step, and of the chunk itself, as it is.
 * Only then its newest tokens, W at most, go into the ring:
 *
 *     before   | 8 | 9 | 10 | 3 | 4 | 5 | 6 | 7 |     a chunk of 11, 12, 13: 11 sees 4..10 and itself, 12 sees 5..12,
 *     after    | 8 | 9 | 10 | 11 | 12 | 13 | 6 | 7 |  13 sees 6..13
 *
 * Pages are the pool's, and a page has as many slots as one of the spec's high side.  Where that has scores, a ring's
 * leaves their bytes unused: nothing is scored here.
 */
#include "cache/keep/ring.h"

#include <string.h>

#include "cache/keep/plain.h"
#include "core/error.h"

/* Slots of a lane's ring. */
static uint32_t ring_of(const pleat_cache *c, uint32_t lane) {
    return pleat__cache_window(c, lane / c->opt.n_kv_heads);
}

/* ---- create -------------------------------------------------------------------------------------- */

static uint32_t lane_slots(const pleat_cache *c, uint32_t layer, uint32_t n_tokens, bool is_read) {
    (void)is_read;
    return pleat__min_u32(n_tokens, pleat__cache_window(c, layer));
}

/* No page is taken for what is copied at the end of a step. */
static uint64_t lane_pages(const pleat_cache *c, uint32_t n_slots, bool in_step) {
    (void)in_step;
    return pleat__div_up_u32(n_slots, c->page_tokens[PLEAT__HIGH]);
}

uint64_t pleat__ring_pages(const pleat_cache *c) {
    uint64_t n_pages = 0;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++)
        n_pages += lane_pages(c, pleat__cache_window(c, layer), false) * c->opt.n_kv_heads;
    return n_pages;
}

static pleat_status derive(pleat_cache *c, pleat_error *err) {
    const uint32_t d = c->opt.head_dim, tokens = c->page_tokens[PLEAT__HIGH];
    PLEAT_FAIL_IF(pleat__page_layout_init(&c->ring_layout, c->opt.spec.high, d, tokens, false) != PLEAT_OK, err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no page layout for rings of head_dim %u and %u tokens a page", d,
                  tokens);
    return PLEAT_OK;
}

static void carve(pleat_cache *c, pleat__arena *arena) {
    c->kept.ring.windows = pleat__arena_take(arena, c->opt.n_layers, sizeof *c->kept.ring.windows);
    c->kept.ring.max_slots = pleat__arena_take(arena, c->n_lanes, sizeof *c->kept.ring.max_slots);
    c->kept.ring.full_idx = pleat__arena_take(arena, c->opt.n_layers, sizeof *c->kept.ring.full_idx);
}

static void init(pleat_cache *c, const pleat_cache_options *opt) {
    uint32_t n_full = 0;
    memcpy(c->kept.ring.windows, opt->windows, c->opt.n_layers * sizeof *opt->windows);
    c->opt.windows = c->kept.ring.windows;
    c->max_slots = c->kept.ring.max_slots;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        c->kept.ring.full_idx[layer] = n_full;
        n_full += pleat__cache_window(c, layer) == 0;
    }
    for (uint32_t lane = 0; lane < c->n_lanes; lane++)
        c->kept.ring.max_slots[lane] = pleat__cache_is_ring(c, lane) ? ring_of(c, lane) : UINT32_MAX;
}

/* Any page of a ring may be written again. */
static void forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q) {
    (void)n, (void)end;
    const uint32_t tokens = f->traits.high_page_tokens, n_slots = pleat__min_u32(q->n_tokens, f->traits.ring_slots);
    const uint64_t n_pages = (uint64_t)f->traits.n_ring_lanes * pleat__div_up_u32(n_slots, tokens);
    q->n_pages += n_pages;
    q->high_pages += n_pages;
    q->step_pages += n_pages;
    q->full_pages += (double)f->traits.n_ring_lanes * n_slots / tokens;
}

/* ---- a step -------------------------------------------------------------------------------------- */

/* A full ring's oldest token's slot is its hole. */
static uint32_t hole_at(uint32_t ring, uint32_t n_tokens) { return n_tokens < ring ? 0 : n_tokens % ring + 1; }

static void grown(const pleat_cache *c, pleat__sequence *seq) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const uint32_t ring = ring_of(c, lane);
        if (ring == 0 || seq->n_tokens < ring) continue;
        seq->table.n_slots[PLEAT__HIGH][lane] = ring;
        seq->table.hole[lane] = hole_at(ring, seq->n_tokens);
    }
}

/* A chunk may have written over tokens that the sequence had in sight. */
static void cancel(const pleat_cache *c, const pleat__step_item *item) {
    for (uint32_t layer = 0; item->n_new > 1 && !item->is_replay && layer < c->opt.n_layers; layer++) {
        const uint32_t window = pleat__cache_window(c, layer);
        item->seq->lost |= c->step.stored[layer] && window && item->n_before + item->n_new > window;
    }
}

/* Any page of a ring may be written. */
static uint32_t first_written(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    (void)c, (void)table, (void)lane, (void)side;
    return 0;
}

/* Without new tokens none. */
static pleat__written written(const pleat_cache *c, const pleat__step_item *item, uint32_t lane) {
    (void)c, (void)lane;
    return item->n_new > 0 ? (pleat__written){0} : (pleat__written){.from = {UINT32_MAX, UINT32_MAX}};
}

/* ---- chunks -------------------------------------------------------------------------------------- */

/* What a token's slot holds is out of sight of all that comes.  `store` takes slots that were never used, in their order,
 * since it clears a tile at its first slot. */
static void put_chunk(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const uint32_t lane = pleat__cache_lane_of(c, job->layer, head), ring = ring_of(c, lane);
    const uint32_t end = item->n_before + item->n_new, n_used = pleat__min_u32(item->n_before, ring);
    const uint32_t n_slots = pleat__min_u32(end, ring);
    const pleat__kv_run run = pleat__cache_run(c, &item->seq->table, lane, PLEAT__HIGH, n_slots);
    const uint32_t tokens = run.layout->tokens;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const uint32_t position = slot + (end - 1 - slot) / ring * ring; /* the newest that belongs here */
        if (position < item->n_before) continue;
        const uint32_t row = item->row + position - item->n_before;
        const size_t at = ((size_t)row * c->opt.n_kv_heads + head) * c->opt.head_dim;
        uint8_t *page = pleat__kv_page(&run, slot / tokens);
        if (slot < n_used)
            c->quant.replace(run.layout, page, slot % tokens, job->k + at, job->v + at);
        else
            c->quant.store(run.layout, page, slot % tokens, 1, job->k + at, job->v + at, c->opt.head_dim);
    }
}

/* ---- tokens -------------------------------------------------------------------------------------- */

/* Has the token left the window of its layer? */
static bool has_left(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    return seq->n_tokens - position >= ring_of(c, lane);
}

static pleat__token_at find(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    if (has_left(c, seq, lane, position)) return (pleat__token_at){.level = PLEAT_LEVEL_DROPPED};
    return pleat__plain_token(c, seq, lane, position % ring_of(c, lane));
}

static void list(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first, uint32_t n_tokens,
                 pleat_cache_token *out) {
    for (uint32_t i = 0; i < n_tokens; i++)
        out[i] =
            (pleat_cache_token){.level = has_left(c, seq, lane, first + i) ? PLEAT_LEVEL_DROPPED : PLEAT_LEVEL_HIGH};
}

static bool lane_is_sound(const pleat_cache *c, uint32_t lane_idx, const pleat__lane *lane,
                          const pleat__image_counts *counts) {
    const uint32_t n_kept = lane_slots(c, lane_idx / c->opt.n_kv_heads, counts->n_tokens, false);
    return lane->n_slots[PLEAT__HIGH] == n_kept && lane->n_slots[PLEAT__LOW] == 0 && lane->n_dead == 0 &&
           lane->n_sealed[PLEAT__HIGH] == 0 && lane->hole == hole_at(ring_of(c, lane_idx), counts->n_tokens);
}

static bool is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch) {
    const uint32_t ring = ring_of(c, lane);
    if (seq->n_tokens < ring) return pleat__plain_is_valid(c, seq, lane, scratch);
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    return pleat__lane_live_high(&l) == ring - 1 && l.hole == hole_at(ring, seq->n_tokens);
}

const pleat__keep pleat__keep_ring = {
    .derive = derive,
    .carve = carve,
    .init = init,
    .lane_slots = lane_slots,
    .lane_pages = lane_pages,
    .forecast_step = forecast_step,
    .grown = grown,
    .cancel = cancel,
    .first_written = first_written,
    .written = written,
    .put_chunk = put_chunk,
    .low_run = pleat__plain_low_run,
    .lane_is_sound = lane_is_sound,
    .find = find,
    .list = list,
    .is_valid = is_valid,
};
