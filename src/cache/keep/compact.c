/* SPDX-License-Identifier: MIT
 *
 * compact.c: what the policy decides about one lane at the end of a step, done to its tokens.
 *
 * One token left the window (generation): at most one token goes from the high side to the low one or is dropped, and
 * at most one low token is dropped.  A high slot that is left becomes the lane's hole, which the next token takes.  A
 * low slot that is left is taken by the token that comes from the high side, or else by the last of the low side.  Where
 * several leave at once (every > 1), slots that are left are taken by the last of their sides.
 *
 * Several did (the end of a prompt): one pass over the high side from its first slot.  What stays high moves to the
 * next slot of the dense front; what becomes low is dequantised from its codes and appended to the low side.  Pages
 * whose tokens have all been read, and that the front does not need, are free for either side:
 *
 *     high pages    | front: w slots | free: f pages | (taken as low pages) | not read yet |
 *                   0                first_free      first_free + f         read page      n
 *
 *   (1) the front never needs a page beyond the one being read: it holds no more tokens than were read
 *   (2) if it needs another page before that one, there is a free one.  With no free page taken (g = 0) the front has
 *       filled k pages, k below the number of those read.  With g > 0 taken as low pages, more than g + 1 low pages' worth of
 *       tokens have become low, the two spare low pages of the step being taken first; so
 *       front + (g + 1) * (tokens of a page) < tokens read: fewer pages are used than were read
 *   (3) there is a free page if the low side needs one, too, since a low page holds no fewer tokens than a high one
 *
 * A lane's sealed pages, the first of each side, are out of all this: the runs here begin behind them, and so do slots
 * and page indices but where they are written to the table.
 *
 * Ids of pages that became low wait in scratch until the high cells are free to hold them (the row is one).
 */
#include <assert.h>

#include "cache/keep/compact.h"

/* A lane's compaction under way. */
typedef struct work {
    const pleat_cache *c;
    const pleat__sequence *seq;
    pleat__table *table;
    uint32_t lane_idx;
    const pleat__compact_scratch *s;
    uint32_t n_sealed[2];    /* [pleat__side] pages before the runs' first */
    pleat__kv_run high, low; /* n_slots as the pass began; low.n_slots grows */

    /* end of a prompt only: see the picture */
    uint32_t front;   /* slots of the dense front */
    uint32_t n_free;  /* free pages behind it */
    uint32_t n_taken; /* free pages that became low, in s->pages */
} work;

static pleat__page_id *high_cell(const work *w, uint32_t idx) {
    return pleat__table_cell(w->table, w->lane_idx, PLEAT__HIGH, w->n_sealed[PLEAT__HIGH] + idx);
}

/* Slots of a side's sealed pages. */
static uint32_t sealed_slots(const work *w, pleat__side side) { return w->n_sealed[side] * w->c->page_tokens[side]; }

static pleat__kv_view view_of(const work *w) {
    return (pleat__kv_view){.high = w->high, .low = w->low, .n_sealed = sealed_slots(w, PLEAT__HIGH)};
}

/* The side has so many open slots from now on. */
static void set_slots(work *w, pleat__side side, uint32_t n_slots) {
    (side == PLEAT__LOW ? &w->low : &w->high)->n_slots = n_slots;
    w->table->n_slots[side][w->lane_idx] = sealed_slots(w, side) + n_slots;
}

static uint8_t *page_at(const work *w, pleat__page_id id) { return w->c->pages + (uint64_t)id.v * w->c->page_bytes; }

/* A slot's page and its place there. */
typedef struct slot_at {
    uint8_t *page;
    uint32_t slot;
} slot_at;

static slot_at slot_of(const pleat__kv_run *run, uint32_t slot) {
    return (slot_at){pleat__kv_page(run, slot / run->layout->tokens), slot % run->layout->tokens};
}

/* ---- one token from high to low ------------------------------------------------------------------ */

/* Write a dequantised high token to a place of the low side: behind its tokens, or over one of them. */
static void put_low(const work *w, slot_at from, const float *k, const float *v, slot_at to, bool is_append) {
    const pleat__page_layout *high = w->high.layout, *low = w->low.layout;
    if (is_append)
        w->c->quant.store(low, to.page, to.slot, 1, k, v, w->c->opt.head_dim);
    else
        w->c->quant.replace(low, to.page, to.slot, k, v);
    if (!low->tracked) return;
    pleat__scores(low, to.page)[to.slot] = pleat__scores(high, from.page)[from.slot];
    pleat__positions(low, to.page)[to.slot] = pleat__positions(high, from.page)[from.slot];
}

/* ---- generation ---------------------------------------------------------------------------------- */

/* The high token in `slot` becomes low, in low_slot or, if that is PLEAT__NO_SLOT, behind the others. */
static void demote(work *w, uint32_t slot, uint32_t low_slot) {
    const slot_at from = slot_of(&w->high, slot);
    const bool is_append = low_slot == PLEAT__NO_SLOT;
    const slot_at to = slot_of(&w->low, is_append ? w->low.n_slots : low_slot);
    float *k = w->s->k, *v = w->s->v_tile;
    pleat__quant_load_token(w->high.layout, from.page, from.slot, k, v);
    put_low(w, from, k, v, to, is_append);
    if (is_append) set_slots(w, PLEAT__LOW, w->low.n_slots + 1);
}

/* The token in high slot `slot` is gone. */
static void free_high(work *w, uint32_t slot) {
    const slot_at at = slot_of(&w->high, slot);
    assert(!w->table->hole[w->lane_idx]);
    pleat__positions(w->high.layout, at.page)[at.slot] = -1;
    if (slot + 1 == w->high.n_slots)
        w->table->n_slots[PLEAT__HIGH][w->lane_idx]--;
    else
        w->table->hole[w->lane_idx] = sealed_slots(w, PLEAT__HIGH) + slot + 1;
}

/* The token in `slot` is gone, and the side's last one takes its place. */
static void close_slot(work *w, pleat__side side, uint32_t slot) {
    const pleat__kv_run *run = side == PLEAT__LOW ? &w->low : &w->high;
    const uint32_t last = run->n_slots - 1;
    const slot_at to = slot_of(run, slot), from = slot_of(run, last);
    if (slot != last) pleat__quant_copy(run->layout, to.page, to.slot, from.page, from.slot);
    set_slots(w, side, last);
}

/* The high slot that is left, or PLEAT__NO_SLOT, and what becomes of its token. */
static uint32_t leaver_of(const pleat__policy_step *step, pleat_level *level) {
    if (step->left_slot != PLEAT__NO_SLOT && step->left_level != PLEAT_LEVEL_HIGH) {
        *level = step->left_level;
        return step->left_slot;
    }
    *level = step->high_level;
    return step->high_victim;
}

static void compact_step(work *w, const pleat__policy_step *step) {
    pleat_level level;
    const uint32_t leaver = leaver_of(step, &level);
    const bool demotes = leaver != PLEAT__NO_SLOT && level == PLEAT_LEVEL_LOW;
    if (demotes) demote(w, leaver, step->low_victim);
    if (leaver != PLEAT__NO_SLOT) free_high(w, leaver);
    if (!demotes && step->low_victim != PLEAT__NO_SLOT) close_slot(w, PLEAT__LOW, step->low_victim);
}

/* From the last slot back: what takes a place has been judged. */
static void compact_counted(work *w, const pleat__leavers *leavers) {
    assert(!w->table->hole[w->lane_idx]);
    for (uint32_t i = leavers->n_low; i-- > 0;) close_slot(w, PLEAT__LOW, leavers->low[i]);
    for (uint32_t i = leavers->n_high; i-- > 0;) {
        if (!leavers->is_dropped[i]) demote(w, leavers->high[i], PLEAT__NO_SLOT);
        close_slot(w, PLEAT__HIGH, leavers->high[i]);
    }
}

/* Ask for the codes of the tile that a slot stands in. */
static void prefetch_tile(const pleat__kv_run *run, uint32_t slot, int for_writing) {
    const pleat__page_layout *l = run->layout;
    const slot_at at = slot_of(run, slot);
    const uint32_t tile = at.slot / PLEAT__TILE;
    const uint8_t *k = at.page + l->k_off + tile * l->k_tile_bytes, *v = at.page + l->v_off + tile * l->v_tile_bytes;
    for (uint32_t i = 0; i < l->k_tile_bytes; i += 64)
        for_writing ? __builtin_prefetch(k + i, 1) : __builtin_prefetch(k + i, 0);
    for (uint32_t i = 0; i < l->v_tile_bytes; i += 64)
        for_writing ? __builtin_prefetch(v + i, 1) : __builtin_prefetch(v + i, 0);
}

/* ---- the end of a prompt --------------------------------------------------------------------------- */

static uint32_t first_free(const work *w) { return pleat__div_up_u32(w->front, w->high.layout->tokens); }

/* The page of the next token of the front; `reading` is the page that is being read. */
static void keep_high(work *w, slot_at from, uint32_t reading) {
    const uint32_t tokens = w->high.layout->tokens, idx = w->front / tokens;
    if (w->front % tokens == 0 && idx != reading) {
        assert(idx < reading && w->n_free > 0);
        w->n_free--; /* the first free page becomes the front's last */
    }
    const slot_at to = {page_at(w, *high_cell(w, idx)), w->front % tokens};
    if (to.page != from.page || to.slot != from.slot)
        pleat__quant_copy(w->high.layout, to.page, to.slot, from.page, from.slot);
    w->front++;
}

/* The page of low slot `slot`: one of the row's, or one that was a high page. */
static uint8_t *low_page(work *w, uint32_t slot) {
    const uint32_t idx = slot / w->low.layout->tokens, n_sealed = w->n_sealed[PLEAT__LOW];
    const uint32_t n_own = w->table->n_pages[PLEAT__LOW][w->lane_idx] - n_sealed;
    if (idx < n_own) return page_at(w, *pleat__table_cell(w->table, w->lane_idx, PLEAT__LOW, n_sealed + idx));
    if (idx - n_own == w->n_taken) {
        assert(w->n_free > 0);
        w->s->pages[w->n_taken++] = *high_cell(w, first_free(w) + --w->n_free);
    }
    return page_at(w, w->s->pages[idx - n_own]);
}

/* Dequantise the tile that a high token stands in: where several of its tokens become low, at once. */
static void load_tile(const work *w, slot_at at) {
    w->c->quant.load_k(w->high.layout, at.page, at.slot / PLEAT__TILE, w->s->k_tile);
    w->c->quant.load_v(w->high.layout, at.page, at.slot / PLEAT__TILE, w->s->v_tile);
}

/* The token's tile is loaded. */
static void keep_low(work *w, slot_at from) {
    const uint32_t d = w->c->opt.head_dim, t = from.slot % PLEAT__TILE;
    const uint32_t slot = w->low.n_slots++;
    const slot_at to = {low_page(w, slot), slot % w->low.layout->tokens};
    for (uint32_t i = 0; i < d; i++) w->s->k[i] = w->s->k_tile[i * PLEAT__TILE + t];
    put_low(w, from, w->s->k, w->s->v_tile + (size_t)t * d, to, true);
}

/* All tokens of high page `idx`, which has been read, stand elsewhere or are gone: it is free, unless the front is in
 * it. */
static void release_page(work *w, uint32_t idx) {
    if (first_free(w) > idx) return;
    *high_cell(w, first_free(w) + w->n_free) = *high_cell(w, idx);
    w->n_free++;
}

static bool has_low(const uint8_t *levels, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (levels[i] == PLEAT_LEVEL_LOW) return true;
    return false;
}

static void read_page(work *w, uint32_t idx) {
    const uint32_t first = idx * w->high.layout->tokens;
    const uint32_t n = pleat__min_u32(w->high.layout->tokens, w->high.n_slots - first);
    uint8_t *page = page_at(w, *high_cell(w, idx));
    for (uint32_t slot = 0; slot < n; slot++) {
        const uint8_t *level = w->s->levels + first + slot;
        const slot_at from = {page, slot};
        if (slot % PLEAT__TILE == 0 && has_low(level, pleat__min_u32(PLEAT__TILE, n - slot))) load_tile(w, from);
        if (*level == PLEAT_LEVEL_HIGH)
            keep_high(w, from, idx);
        else if (*level == PLEAT_LEVEL_LOW)
            keep_low(w, from);
    }
    release_page(w, idx);
}

/* Tokens at positions below `classed` have been classed before. */
static void compact_prompt(work *w, uint32_t classed) {
    const pleat__kv_view view = view_of(w);
    pleat__policy_prompt(&w->seq->spec, &view, w->seq->n_tokens, classed, w->s->levels, w->s->floats);
    const uint32_t n_pages = pleat__div_up_u32(w->high.n_slots, w->high.layout->tokens);
    const uint32_t n_sealed = w->n_sealed[PLEAT__HIGH];
    assert(n_sealed + n_pages == w->table->n_pages[PLEAT__HIGH][w->lane_idx]);
    for (uint32_t idx = 0; idx < n_pages; idx++) read_page(w, idx);
    w->table->n_slots[PLEAT__HIGH][w->lane_idx] = sealed_slots(w, PLEAT__HIGH) + w->front;
    w->table->n_pages[PLEAT__HIGH][w->lane_idx] = n_sealed + first_free(w) + w->n_free;
    w->table->hole[w->lane_idx] = 0;
    for (uint32_t i = 0; i < w->n_taken; i++)
        *pleat__table_cell(w->table, w->lane_idx, PLEAT__LOW, w->table->n_pages[PLEAT__LOW][w->lane_idx]++) =
            w->s->pages[i];
    set_slots(w, PLEAT__LOW, w->low.n_slots);
}

/* ---- the calls ------------------------------------------------------------------------------------ */

static work work_on(const pleat_cache *c, pleat__sequence *seq, uint32_t lane, const pleat__compact_scratch *scratch) {
    return (work){.c = c,
                  .seq = seq,
                  .table = &seq->table,
                  .lane_idx = lane,
                  .s = scratch,
                  .n_sealed = {seq->table.n_sealed[PLEAT__HIGH][lane], seq->table.n_sealed[PLEAT__LOW][lane]},
                  .high = pleat__cache_open_run(c, &seq->table, lane, PLEAT__HIGH),
                  .low = pleat__cache_open_run(c, &seq->table, lane, PLEAT__LOW)};
}

pleat__policy_step pleat__compact_decide(const pleat_cache *c, const pleat__step_item *item, uint32_t lane) {
    const work w = work_on(c, item->seq, lane, NULL);
    const pleat__kv_view view = view_of(&w);
    const pleat__policy_step step = pleat__policy_step_of(&w.seq->spec, &c->scan, &view, w.seq->n_tokens);
    pleat_level level;
    const uint32_t leaver = leaver_of(&step, &level);
    if (leaver == PLEAT__NO_SLOT || level != PLEAT_LEVEL_LOW) return step;
    prefetch_tile(&w.high, leaver, 0);
    prefetch_tile(&w.low, step.low_victim != PLEAT__NO_SLOT ? step.low_victim : w.low.n_slots, 1);
    return step;
}

void pleat__compact_step(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                         const pleat__policy_step *step, const pleat__compact_scratch *scratch) {
    work w = work_on(c, item->seq, lane, scratch);
    compact_step(&w, step);
}

void pleat__compact_counted(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                            const pleat__compact_scratch *scratch) {
    work w = work_on(c, item->seq, lane, scratch);
    const pleat__kv_view view = view_of(&w);
    pleat__leavers leavers;
    pleat__leveler_of(w.seq->spec.policy)->leavers(&w.seq->spec, &c->scan, &view, w.seq->n_tokens, &leavers);
    compact_counted(&w, &leavers);
}

void pleat__compact_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                           const pleat__compact_scratch *scratch) {
    work w = work_on(c, item->seq, lane, scratch);
    compact_prompt(&w, item->seq->n_classed);
}

/* Drop the low tokens that miss the threshold, from the last to the first: what moves has been judged. */
static void drop_low_below(work *w) {
    const pleat_spec *spec = &w->seq->spec;
    const pleat__leveler *leveler = pleat__leveler_of(spec->policy);
    const uint32_t tokens = w->low.layout->tokens, n_tokens = w->seq->n_tokens;
    for (uint32_t slot = w->low.n_slots; slot-- > 0;) {
        const slot_at at = slot_of(&w->low, slot);
        const uint32_t position = (uint32_t)pleat__positions(w->low.layout, at.page)[slot % tokens];
        const float sum = pleat__scores(w->low.layout, at.page)[slot % tokens];
        const float significance = pleat__significance(sum, position, n_tokens);
        if (!leveler->stays_low(spec, significance, position, n_tokens)) close_slot(w, PLEAT__LOW, slot);
    }
}

void pleat__compact_again(const pleat_cache *c, pleat__sequence *seq, uint32_t lane,
                          const pleat__compact_scratch *scratch) {
    work w = work_on(c, seq, lane, scratch);
    compact_prompt(&w, 0);
    if (w.low.layout->tracked) {
        w.low = pleat__cache_open_run(c, w.table, lane, PLEAT__LOW); /* its pages stand in the row again */
        drop_low_below(&w);
    }
}
