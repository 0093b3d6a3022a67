/* SPDX-License-Identifier: MIT
 *
 * inspect.c: what can be asked of a cache between steps: bytes and tokens held, how each token is kept, its vectors,
 * where time went, and whether every invariant holds.  Nothing here changes anything.
 */
#include <string.h>

#include "cache/internal.h"
#include "cache/spec.h"
#include "core/error.h"

/* ---- usage ----------------------------------------------------------------------------------- */

static uint64_t bytes_of_pages(const pleat_cache *c, uint64_t n_pages) {
    return n_pages * (c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE);
}

static uint64_t count_own(const pleat_cache *c, const pleat__table *table) {
    uint64_t n_others = 0;
    for (uint32_t lane = 0; c->pool.n_shares > 0 && lane < c->n_lanes; lane++)
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++)
            for (uint32_t i = 0; i < table->n_pages[side][lane]; i++)
                n_others += pleat__pool_is_shared(&c->pool, *pleat__table_cell(table, lane, (pleat__side)side, i));
    return table->n_pages_all - n_others;
}

/* Tokens of a lane that are not high. */
static uint32_t tokens_low(const pleat_cache *c, const pleat__sequence *seq, const pleat__lane *lane) {
    return c->has_blocks ? seq->n_classed : lane->n_slots[PLEAT__LOW];
}

static void add_seq_usage(const pleat_cache *c, const pleat__sequence *seq, pleat_cache_usage *u) {
    const uint64_t n_pages = seq->table.n_pages_all;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const pleat__lane l = pleat__table_lane(&seq->table, lane);
        const uint32_t n_low = tokens_low(c, seq, &l);
        u->tokens_high += pleat__lane_live_high(&l);
        u->tokens_low += n_low;
        u->tokens_dropped += seq->n_tokens - pleat__lane_live_high(&l) - n_low;
        u->slots += (uint64_t)l.n_pages[PLEAT__HIGH] * c->page_tokens[PLEAT__HIGH];
        u->slots += c->has_blocks ? n_low : (uint64_t)l.n_pages[PLEAT__LOW] * c->page_tokens[PLEAT__LOW];
    }
    u->pages_used += n_pages;
    u->pages_own += count_own(c, &seq->table);
    u->pages_peak += seq->n_pages_peak;
    u->pages_returned += seq->n_returned;
    u->tokens_moved += seq->n_moved;
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
        const uint64_t n_used = pleat__pool_used(&c->pool); /* shared pages count once */
        u.bytes -= bytes_of_pages(c, u.pages_used - n_used);
        u.bytes_pages = n_used * c->page_bytes;
        u.pages_used = n_used;
        u.pages_peak = c->pool.n_peak;
        u.pages_returned = c->n_returned;
        u.tokens_moved = c->n_moved;
    }
    *out = u;
    return PLEAT_OK;
}

/* Most pages that a lane of n_tokens can hold between steps.  With two sides: high and low slots together are at most
 * n_tokens and a hole, both sides end in a part-filled page, and no low page holds fewer tokens than a high one. */
static uint64_t lane_pages_most(const pleat_cache *c, uint32_t n_tokens) {
    if (n_tokens == 0) return 0;
    const uint32_t extra = c->two_sided ? 1 : 0;
    return (uint64_t)pleat__div_up_u32(n_tokens + extra, c->page_tokens[PLEAT__HIGH]) + extra;
}

/* Slots of a lane, of all of n_tokens, when the prompt has been read. */
static uint32_t slots_kept(const pleat_cache *c, uint32_t n_tokens) {
    const pleat_reclaim how = c->opt.spec.reclaim;
    const bool packs = how == PLEAT_RECLAIM_REUSE || how == PLEAT_RECLAIM_COPY;
    if (!c->evictor || !c->evictor->in_generation || !packs) return n_tokens;
    const uint32_t budget = pleat__evict_budget(&c->opt.spec, n_tokens, c->byte_tokens);
    return pleat__min_u32(n_tokens, budget + 1); /* and a hole */
}

static uint64_t bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens, bool is_read) {
    pleat_cache c = {0};
    if (!opt || n_tokens > max_tokens || max_tokens > opt->max_tokens) return 0;
    if (pleat__cache_derive(&c, opt, NULL) != PLEAT_OK) return 0;
    pleat__sequence seq = {0};
    pleat__arena arena = {0};
    const uint64_t table_bytes = pleat__cache_carve_seq(&c, max_tokens, &seq, &arena);
    const uint32_t n_slots = is_read ? slots_kept(&c, n_tokens) : n_tokens;
    uint64_t n_pages = 0;
    for (uint32_t layer = 0; layer < opt->n_layers; layer++)
        n_pages += lane_pages_most(&c, pleat__cache_kept_tokens(opt, layer, n_slots)) * opt->n_kv_heads;
    return bytes_of_pages(&c, n_pages) + table_bytes + sizeof(pleat__sequence);
}

uint64_t pleat_cache_bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens) {
    return bytes_for(opt, n_tokens, max_tokens, false);
}

uint64_t pleat_cache_bytes_kept(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens) {
    return bytes_for(opt, n_tokens, max_tokens, true);
}

uint64_t pleat_cache_token_bytes(const pleat_spec *spec, uint32_t head_dim, uint32_t n_group) {
    if (!spec || pleat__spec_check(spec, NULL) != PLEAT_OK) return 0;
    const uint64_t tracking = (pleat__n_scores_of(spec, n_group) + 1) * sizeof(float); /* and the position */
    return pleat_format_token_bytes(spec->high, head_dim) + (spec->policy == PLEAT_POLICY_NONE ? 0 : tracking);
}

pleat_status pleat_cache_check(const pleat_cache_options *opt, pleat_error *err) {
    pleat_cache c = {0};
    PLEAT_FAIL_IF(!opt, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: no options");
    return pleat__cache_derive(&c, opt, err);
}

void pleat_cache_get_times(const pleat_cache *c, pleat_cache_times *out) {
    if (c && out) *out = c->times;
}

/* ---- tokens ------------------------------------------------------------------------------------ */

/* Where the token at `position` of a lane stands.  page is NULL for a low token of a cache whose low pages have no
 * positions: it is one of them, since nothing is dropped there; and for one in a block. */
typedef struct token_at {
    pleat_level level;
    uint8_t *page;
    uint32_t slot; /* in the page, or in the block */
    uint32_t block;
} token_at;

/* Without a policy tokens stand in the order of their positions. */
static token_at token_in_order(const pleat_cache *c, const pleat__kv_run *high, uint32_t ring, uint32_t position) {
    const uint32_t page_tokens = c->page_tokens[PLEAT__HIGH], slot = ring ? position % ring : position;
    return (token_at){
        .level = PLEAT_LEVEL_HIGH, .page = pleat__kv_page(high, slot / page_tokens), .slot = slot % page_tokens};
}

static token_at token_in_block(const pleat_cache *c, uint32_t position) {
    return (token_at){
        .level = PLEAT_LEVEL_LOW, .slot = position % c->blocks.tokens, .block = position / c->blocks.tokens};
}

/* Has the token left the window of its layer? */
static bool has_left_ring(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    const uint32_t ring = pleat__cache_ring(c, lane);
    return ring && seq->n_tokens - position >= ring;
}

static bool find_in_run(const pleat__kv_run *run, uint32_t position, token_at *out) {
    const uint32_t page_tokens = run->layout->tokens;
    for (uint32_t first = 0; first < run->n_slots; first += page_tokens) {
        uint8_t *page = pleat__kv_page(run, first / page_tokens);
        const int32_t *positions = pleat__positions(run->layout, page);
        for (uint32_t i = 0; i < pleat__min_u32(page_tokens, run->n_slots - first); i++) {
            if (positions[i] != (int32_t)position) continue;
            out->page = page;
            out->slot = i;
            return true;
        }
    }
    return false;
}

static token_at find_token(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    const pleat__table *table = &seq->table;
    if (has_left_ring(c, seq, lane, position)) return (token_at){.level = PLEAT_LEVEL_DROPPED};
    const pleat__lane l = pleat__table_lane(table, lane);
    const pleat__kv_run high = pleat__cache_run(c, table, lane, PLEAT__HIGH, l.n_slots[PLEAT__HIGH]);
    if (c->has_blocks && position < seq->n_classed) return token_in_block(c, position);
    if (c->has_blocks) return token_in_order(c, &high, 0, position - seq->n_classed);
    if (!c->tracked) return token_in_order(c, &high, pleat__cache_ring(c, lane), position);
    token_at at = {.level = PLEAT_LEVEL_HIGH};
    if (find_in_run(&high, position, &at)) return at;
    const pleat__kv_run low = pleat__cache_run(c, table, lane, PLEAT__LOW, l.n_slots[PLEAT__LOW]);
    at.level = PLEAT_LEVEL_LOW;
    if (!low.layout->tracked || find_in_run(&low, position, &at)) return at;
    return (token_at){.level = PLEAT_LEVEL_DROPPED};
}

/* The sequence, if the arguments name tokens of one of its lanes; else NULL and why. */
static const pleat__sequence *checked_seq(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                          uint32_t first, uint32_t n_tokens, pleat_status *status) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    *status = PLEAT_E_ARG;
    if (!seq || layer >= c->opt.n_layers || kv_head >= c->opt.n_kv_heads || first > seq->n_tokens ||
        n_tokens > seq->n_tokens - first)
        return NULL;
    *status = c->in_step ? PLEAT_E_STATE : PLEAT_OK;
    return c->in_step ? NULL : seq;
}

/* Say of every token that stands on one side, and whose position is in [first, first + n_tokens), how it is kept. */
static void list_side(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__side side, uint32_t first,
                      uint32_t n_tokens, pleat_cache_token *out) {
    const pleat__kv_run run = pleat__cache_run(c, &seq->table, lane, side, seq->table.n_slots[side][lane]);
    const uint32_t page_tokens = run.layout->tokens, n_sealed = seq->table.n_sealed[side][lane];
    for (uint32_t slot = 0; slot < run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&run, slot / page_tokens);
        const int32_t pos = pleat__positions(run.layout, page)[slot % page_tokens];
        if (pos < (int32_t)first || (uint32_t)pos - first >= n_tokens) continue; /* the hole's is -1 */
        float sum = 0;
        for (uint32_t h = 0; h < run.layout->n_scores; h++)
            sum += pleat__head_scores(run.layout, page, h)[slot % page_tokens];
        out[(uint32_t)pos - first] = (pleat_cache_token){
            .level = side == PLEAT__HIGH ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_LOW,
            .significance = slot / page_tokens < n_sealed ? sum /* a mean already */
                                                          : pleat__significance(sum, (uint32_t)pos, seq->n_tokens)};
    }
}

pleat_status pleat_cache_tokens(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                uint32_t first, uint32_t n_tokens, pleat_cache_token *out) {
    pleat_status status;
    const pleat__sequence *seq = checked_seq(c, handle, layer, kv_head, first, n_tokens, &status);
    if (!seq || !out) return seq ? PLEAT_E_ARG : status;
    const uint32_t lane = pleat__cache_lane_of(c, layer, kv_head);
    const bool low_known = c->layouts[PLEAT__LOW].tracked;
    const pleat_level others = !c->tracked ? PLEAT_LEVEL_HIGH : low_known ? PLEAT_LEVEL_DROPPED : PLEAT_LEVEL_LOW;
    for (uint32_t i = 0; i < n_tokens; i++)
        out[i] = (pleat_cache_token){.level = has_left_ring(c, seq, lane, first + i) ? PLEAT_LEVEL_DROPPED : others};
    for (uint32_t i = 0; c->has_blocks && i < n_tokens && first + i < seq->n_classed; i++)
        out[i].level = PLEAT_LEVEL_LOW;
    if (c->tracked) list_side(c, seq, lane, PLEAT__HIGH, first, n_tokens, out);
    if (low_known) list_side(c, seq, lane, PLEAT__LOW, first, n_tokens, out);
    return PLEAT_OK;
}

/* The token of the loaded block that came to it in `slot`; either of k and v may be NULL. */
static void export_from_block(const pleat__block_loader *l, uint32_t slot, uint32_t d, float *k, float *v) {
    uint32_t place = 0;
    while (l->order[place] != slot) place++;
    const size_t tile = (size_t)place / PLEAT__TILE * PLEAT__TILE * d, t = place % PLEAT__TILE;
    for (uint32_t j = 0; k && j < d; j++) k[j] = l->k[tile + j * PLEAT__TILE + t];
    if (v) memcpy(v, l->v + tile + t * d, d * sizeof *v);
}

/* Dequantise one token; either of k and v may be NULL. */
static void export_token(const pleat_cache *c, token_at at, float *tile, float *k, float *v) {
    const uint32_t d = c->opt.head_dim, t = at.slot % PLEAT__TILE;
    const pleat__page_layout *layout = &c->layouts[at.level == PLEAT_LEVEL_HIGH ? PLEAT__HIGH : PLEAT__LOW];
    if (k) c->quant.load_k(layout, at.page, at.slot / PLEAT__TILE, tile);
    for (uint32_t j = 0; k && j < d; j++) k[j] = tile[j * PLEAT__TILE + t];
    if (v) c->quant.load_v(layout, at.page, at.slot / PLEAT__TILE, tile);
    if (v) memcpy(v, tile + (size_t)t * d, d * sizeof *v);
}

/* Tokens of a lane to f32; the loader is there if the cache has blocks. */
static pleat_status export_tokens(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                                  uint32_t n_tokens, pleat__block_loader *loader, float *k, float *v) {
    const size_t d = c->opt.head_dim;
    const pleat__block_run blocks = c->has_blocks ? pleat__cache_block_run(c, seq, lane) : (pleat__block_run){0};
    for (uint32_t i = 0; i < n_tokens && !c->layouts[PLEAT__LOW].tracked && c->tracked; i++)
        if (find_token(c, seq, lane, first + i).level == PLEAT_LEVEL_LOW) return PLEAT_E_UNSUPPORTED;
    _Alignas(64) float tile[PLEAT__TILE * PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < n_tokens; i++) {
        float *k_row = k ? k + i * d : NULL, *v_row = v ? v + i * d : NULL;
        const token_at at = find_token(c, seq, lane, first + i);
        if (c->has_blocks && at.level == PLEAT_LEVEL_LOW) {
            if (!pleat__block_loader_load(loader, &blocks, at.block)) return PLEAT_E_FORMAT;
            export_from_block(loader, at.slot, c->opt.head_dim, k_row, v_row);
            continue;
        }
        if (at.level != PLEAT_LEVEL_DROPPED) {
            export_token(c, at, tile, k_row, v_row);
            continue;
        }
        if (k_row) memset(k_row, 0, d * sizeof *k_row);
        if (v_row) memset(v_row, 0, d * sizeof *v_row);
    }
    return PLEAT_OK;
}

pleat_status pleat_cache_export(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                uint32_t first, uint32_t n_tokens, float *k, float *v) {
    pleat_status status;
    const pleat__sequence *seq = checked_seq(c, handle, layer, kv_head, first, n_tokens, &status);
    if (!seq) return status;
    const uint32_t lane = pleat__cache_lane_of(c, layer, kv_head);
    if (!c->has_blocks) return export_tokens(c, seq, lane, first, n_tokens, NULL, k, v);
    pleat__block_loader loader;
    pleat__arena arena = {0};
    pleat__block_loader_carve(&c->blocks, &c->codec, &loader, &arena);
    const uint64_t n_bytes = arena.used_bytes;
    void *scratch = pleat__alloc(&c->al, 1, n_bytes);
    if (!scratch) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = scratch, .cap_bytes = n_bytes};
    pleat__block_loader_carve(&c->blocks, &c->codec, &loader, &arena);
    status = export_tokens(c, seq, lane, first, n_tokens, &loader, k, v);
    pleat__free(&c->al, scratch, 1, n_bytes);
    return status;
}

/* ---- validity ---------------------------------------------------------------------------------- */

/* The slots of one side hold each position at most once, below n_tokens; dead are the hole and as many as are counted. */
static bool positions_are_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__side side,
                                uint8_t *seen) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    const pleat__kv_run run = pleat__cache_run(c, &seq->table, lane, side, l.n_slots[side]);
    if (!run.layout->tracked) return true;
    uint32_t n_dead = 0;
    for (uint32_t slot = 0; slot < run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&run, slot / run.layout->tokens);
        const int32_t pos = pleat__positions(run.layout, page)[slot % run.layout->tokens];
        const bool is_hole = side == PLEAT__HIGH && l.hole == slot + 1;
        if (is_hole && !c->in_step && pos != -1) return false;
        n_dead += !is_hole && pos == -1;
        if (is_hole || pos == -1) continue;
        if (pos < 0 || (uint32_t)pos >= seq->n_tokens || seen[pos]) return false;
        seen[pos] = 1;
    }
    return n_dead == (side == PLEAT__HIGH ? l.n_dead : 0);
}

/* Every token that has not left the window stands in some slot.  seen: n_tokens bytes of scratch. */
static bool lane_tokens_are_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *seen) {
    if (!c->tracked) return true;
    memset(seen, 0, seq->n_tokens);
    if (!positions_are_valid(c, seq, lane, PLEAT__HIGH, seen) || !positions_are_valid(c, seq, lane, PLEAT__LOW, seen))
        return false;
    return !memchr(seen + seq->n_classed, 0, seq->n_tokens - seq->n_classed);
}

/* Sealed pages are full; pages that will be written have one holder, unless copies are due; and the step does not write
 * those of others. */
static bool sharing_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        if ((uint64_t)l.n_sealed[side] * c->page_tokens[side] > l.n_slots[side]) return false;
        uint32_t i = pleat__cache_first_written(c, &seq->table, lane, (pleat__side)side);
        for (; !seq->copies_due && i < l.n_pages[side]; i++)
            if (pleat__pool_is_shared(&c->pool, *pleat__table_cell(&seq->table, lane, (pleat__side)side, i)))
                return false;
    }
    return true;
}

static bool lane_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        const uint32_t n_needed = pleat__div_up_u32(l.n_slots[side], c->page_tokens[side]);
        if (c->in_step ? l.n_pages[side] < n_needed : l.n_pages[side] != n_needed) return false;
    }
    if (l.hole > l.n_slots[PLEAT__HIGH] || l.n_dead > l.n_slots[PLEAT__HIGH]) return false;
    const uint32_t n_live = pleat__lane_live_high(&l) + tokens_low(c, seq, &l), ring = pleat__cache_ring(c, lane);
    if (ring && seq->n_tokens >= ring) return n_live == ring - 1 && l.hole == seq->n_tokens % ring + 1;
    const bool may_drop = c->tracked && c->layouts[PLEAT__LOW].tracked;
    return may_drop ? n_live <= seq->n_tokens : n_live == seq->n_tokens;
}

static bool seq_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint8_t *seen) {
    if (seq->n_tokens > seq->max_tokens || seq->n_classed > seq->n_tokens) return false;
    for (uint32_t lane = 0; c->has_blocks && lane < c->n_lanes; lane++)
        if (!pleat__cache_blocks_are_valid(c, seq, lane, seen)) return false;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++)
        if (!lane_is_valid(c, seq, lane) || !sharing_is_valid(c, seq, lane) ||
            !lane_tokens_are_valid(c, seq, lane, seen))
            return false;
    return true;
}

static bool tables_match_pool(const pleat_cache *c, uint32_t *refs, uint8_t *marks, uint8_t *seen) {
    for (uint32_t i = 0; i < c->opt.max_seqs; i++) {
        const pleat__sequence *seq = &c->seqs[i];
        if (!seq->open) continue;
        if (!pleat__table_count_refs(&seq->table, c->pool.n_pages, refs) || !seq_is_valid(c, seq, seen)) return false;
    }
    return pleat__pool_is_valid(&c->pool, refs, marks);
}

int pleat_cache_is_valid(const pleat_cache *c) {
    if (!c) return 0;
    uint32_t *refs = pleat__alloc_zero(&c->al, c->pool.n_pages, sizeof *refs);
    uint8_t *marks = pleat__alloc(&c->al, c->pool.n_pages, 1);
    /* of a lane's tokens, or a block that crosses pages */
    const uint64_t copy_bytes = c->has_blocks ? pleat__block_copy_bytes(&c->blocks) : 0;
    const uint64_t n_seen = c->opt.max_tokens > copy_bytes ? c->opt.max_tokens : copy_bytes;
    uint8_t *seen = pleat__alloc(&c->al, n_seen, 1);
    const bool valid = refs && marks && seen && tables_match_pool(c, refs, marks, seen);
    pleat__free(&c->al, seen, n_seen, 1);
    pleat__free(&c->al, marks, c->pool.n_pages, 1);
    pleat__free(&c->al, refs, c->pool.n_pages, sizeof *refs);
    return valid;
}
