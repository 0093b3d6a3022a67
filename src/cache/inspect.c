/* SPDX-License-Identifier: MIT
 *
 * inspect.c: what a cache and its sequences hold: bytes and tokens, how each token is kept, its vectors, where time
 * went, and whether every invariant holds.  Nothing here changes anything.
 */
#include <string.h>

#include "cache/create.h"
#include "cache/keep/keep.h"
#include "core/error.h"
#include "quant/rotate.h"

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

/* Tokens of a lane that are not high, and the slots that are held for them. */
static void count_low(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane_idx, const pleat__lane *lane,
                      uint32_t *n_tokens, uint64_t *n_slots) {
    const pleat__keep *keep = pleat__keep_of_lane(c, lane_idx);
    if (keep->count_low) {
        keep->count_low(c, seq, lane, n_tokens, n_slots);
        return;
    }
    *n_tokens = lane->n_slots[PLEAT__LOW];
    *n_slots = (uint64_t)lane->n_pages[PLEAT__LOW] * c->page_tokens[PLEAT__LOW];
}

static void add_seq_usage(const pleat_cache *c, const pleat__sequence *seq, pleat_cache_usage *u) {
    const uint64_t n_pages = seq->table.n_pages_all;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const pleat__lane l = pleat__table_lane(&seq->table, lane);
        uint32_t n_low;
        uint64_t n_low_slots;
        count_low(c, seq, lane, &l, &n_low, &n_low_slots);
        u->tokens_high += pleat__lane_live_high(&l);
        u->tokens_low += n_low;
        u->tokens_dropped += seq->n_tokens - pleat__lane_live_high(&l) - n_low;
        u->slots += (uint64_t)l.n_pages[PLEAT__HIGH] * c->page_tokens[PLEAT__HIGH] + n_low_slots;
    }
    u->pages_used += n_pages;
    u->pages_own += count_own(c, &seq->table);
    u->pages_peak += seq->n_pages_peak;
    u->pages_returned += seq->n_returned;
    u->tokens_moved += seq->n_moved;
    u->bytes_pages += n_pages * c->page_bytes;
    u->bytes += bytes_of_pages(c, n_pages) + seq->memory_bytes + seq->blocks.codebooks_bytes + sizeof *seq;
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
        u.pages_returned = c->times.pages_returned;
        u.tokens_moved = c->times.tokens_moved;
    }
    *out = u;
    return PLEAT_OK;
}

static uint64_t bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens, bool is_read) {
    pleat_cache c = {0};
    if (!opt || n_tokens > max_tokens || max_tokens > opt->max_tokens) return 0;
    if (pleat__cache_derive(&c, opt, NULL) != PLEAT_OK) return 0;
    pleat__sequence seq = {0};
    pleat__arena arena = {0};
    const uint64_t table_bytes = pleat__cache_carve_seq(&c, max_tokens, &seq, &arena);
    uint64_t n_pages = 0;
    for (uint32_t layer = 0; layer < opt->n_layers; layer++) {
        const pleat__keep *keep = pleat__keep_at(&c, layer);
        const uint32_t n_slots = keep->lane_slots(&c, layer, n_tokens, is_read);
        if (n_slots > 0) n_pages += keep->lane_pages(&c, n_slots, false) * opt->n_kv_heads;
    }
    const uint64_t reserved_bytes = c.keep->reserved_bytes ? c.keep->reserved_bytes(&c, n_tokens) : 0;
    const uint64_t sum = bytes_of_pages(&c, n_pages) + table_bytes + reserved_bytes + sizeof(pleat__sequence);
    const uint64_t promised = is_read && c.keep->promised_bytes ? c.keep->promised_bytes(&c, n_tokens) : sum;
    return promised < sum ? promised : sum;
}

uint64_t pleat_cache_bytes_for(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens) {
    return bytes_for(opt, n_tokens, max_tokens, false);
}

uint64_t pleat_cache_bytes_kept(const pleat_cache_options *opt, uint32_t n_tokens, uint32_t max_tokens) {
    return bytes_for(opt, n_tokens, max_tokens, true);
}

void pleat_cache_get_times(const pleat_cache *c, pleat_cache_times *out) {
    if (c && out) *out = c->times;
}

/* ---- tokens ------------------------------------------------------------------------------------ */

/* The sequence, if the arguments name tokens of one of its lanes; else NULL and why. */
static const pleat__sequence *checked_seq(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                          uint32_t first, uint32_t n_tokens, pleat_status *status) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    *status = PLEAT_E_ARG;
    if (!seq || layer >= c->opt.n_layers || kv_head >= c->opt.n_kv_heads || first > seq->n_tokens ||
        n_tokens > seq->n_tokens - first)
        return NULL;
    *status = c->step.is_open ? PLEAT_E_STATE : PLEAT_OK;
    return c->step.is_open ? NULL : seq;
}

pleat_status pleat_cache_tokens(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                uint32_t first, uint32_t n_tokens, pleat_cache_token *out) {
    pleat_status status;
    const pleat__sequence *seq = checked_seq(c, handle, layer, kv_head, first, n_tokens, &status);
    if (!seq || !out) return seq ? PLEAT_E_ARG : status;
    pleat__keep_at(c, layer)->list(c, seq, pleat__cache_lane_of(c, layer, kv_head), first, n_tokens, out);
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
static void export_token(const pleat_cache *c, uint32_t lane, pleat__token_at at, float *tile, float *k, float *v) {
    const uint32_t d = c->opt.head_dim, t = at.slot % PLEAT__TILE;
    const pleat__side side = at.level == PLEAT_LEVEL_HIGH ? PLEAT__HIGH : PLEAT__LOW;
    const pleat__page_layout *layout = pleat__cache_layout(c, lane, side);
    if (k) c->quant.load_k(layout, at.page, at.slot / PLEAT__TILE, tile);
    for (uint32_t j = 0; k && j < d; j++) k[j] = tile[j * PLEAT__TILE + t];
    if (v) c->quant.load_v(layout, at.page, at.slot / PLEAT__TILE, tile);
    if (v) memcpy(v, tile + (size_t)t * d, d * sizeof *v);
    if (k && pleat__cache_is_rotated(c)) pleat__rotate_back(k, 1, d, k);
    if (v && pleat__cache_is_rotated(c)) pleat__rotate_back(v, 1, d, v);
}

/* Low pages may have no positions: which of their tokens is which, nobody knows then. */
static bool are_known(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                      uint32_t n_tokens) {
    if (!pleat__cache_layout(c, lane, PLEAT__HIGH)->tracked || c->layouts[PLEAT__LOW].tracked) return true;
    for (uint32_t i = 0; i < n_tokens; i++)
        if (c->keep->find(c, seq, lane, first + i).level == PLEAT_LEVEL_LOW) return false;
    return true;
}

/* Tokens of a lane to f32; the loader is empty where there are no blocks. */
static pleat_status export_tokens(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                                  uint32_t n_tokens, pleat__block_loader *loader, float *k, float *v) {
    const size_t d = c->opt.head_dim;
    const pleat__keep *keep = pleat__keep_of_lane(c, lane);
    _Alignas(64) float tile[PLEAT__TILE * PLEAT__MAX_HEAD_DIM];
    pleat__block_run blocks;
    (void)keep->low_run(c, seq, lane, &blocks);
    if (!are_known(c, seq, lane, first, n_tokens)) return PLEAT_E_UNSUPPORTED;
    for (uint32_t i = 0; i < n_tokens; i++) {
        float *k_row = k ? k + i * d : NULL, *v_row = v ? v + i * d : NULL;
        const pleat__token_at at = keep->find(c, seq, lane, first + i);
        if (at.is_in_block) {
            if (!pleat__block_loader_load(loader, &blocks, at.block)) return PLEAT_E_FORMAT;
            export_from_block(loader, at.slot, c->opt.head_dim, k_row, v_row);
            continue;
        }
        if (at.level != PLEAT_LEVEL_DROPPED) {
            export_token(c, lane, at, tile, k_row, v_row);
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
    pleat__block_loader loader = {0};
    pleat__arena arena = {0};
    const pleat__keep *keep = pleat__keep_at(c, layer);
    if (!keep->carve_loader) return export_tokens(c, seq, lane, first, n_tokens, &loader, k, v);
    keep->carve_loader(c, &loader, &arena);
    const uint64_t n_bytes = arena.used_bytes;
    void *scratch = pleat__alloc(&c->al, 1, n_bytes);
    if (!scratch) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = scratch, .cap_bytes = n_bytes};
    keep->carve_loader(c, &loader, &arena);
    status = export_tokens(c, seq, lane, first, n_tokens, &loader, k, v);
    pleat__free(&c->al, scratch, 1, n_bytes);
    return status;
}

/* ---- validity ---------------------------------------------------------------------------------- */

/* Sealed pages are full; pages that will be written have one holder, unless copies are due; and the step does not write
 * those of others. */
static bool sharing_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        if ((uint64_t)l.n_sealed[side] * c->page_tokens[side] > l.n_slots[side]) return false;
        uint32_t i = pleat__keep_of_lane(c, lane)->first_written(c, &seq->table, lane, (pleat__side)side);
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
        if (c->step.is_open ? l.n_pages[side] < n_needed : l.n_pages[side] != n_needed) return false;
    }
    if (l.hole > l.n_slots[PLEAT__HIGH] || l.n_dead > l.n_slots[PLEAT__HIGH]) return false;
    return true;
}

static bool seq_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint8_t *scratch) {
    if (seq->n_tokens > seq->max_tokens || seq->n_classed > seq->n_tokens) return false;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++)
        if (!lane_is_valid(c, seq, lane) || !sharing_is_valid(c, seq, lane) ||
            !pleat__keep_of_lane(c, lane)->is_valid(c, seq, lane, scratch))
            return false;
    return true;
}

static bool tables_match_pool(const pleat_cache *c, uint32_t *refs, uint8_t *marks, uint8_t *scratch) {
    for (uint32_t i = 0; i < c->opt.max_seqs; i++) {
        const pleat__sequence *seq = &c->seqs[i];
        if (!seq->open) continue;
        if (!pleat__table_count_refs(&seq->table, c->pool.n_pages, refs) || !seq_is_valid(c, seq, scratch))
            return false;
    }
    return pleat__pool_is_valid(&c->pool, refs, marks);
}

int pleat_cache_is_valid(const pleat_cache *c) {
    if (!c) return 0;
    uint32_t *refs = pleat__alloc_zero(&c->al, c->pool.n_pages, sizeof *refs);
    uint8_t *marks = pleat__alloc(&c->al, c->pool.n_pages, 1);
    const uint64_t n_scratch = pleat__keep_check_bytes(c);
    uint8_t *scratch = pleat__alloc(&c->al, n_scratch, 1);
    const bool valid = refs && marks && scratch && tables_match_pool(c, refs, marks, scratch);
    pleat__free(&c->al, scratch, n_scratch, 1);
    pleat__free(&c->al, marks, c->pool.n_pages, 1);
    pleat__free(&c->al, refs, c->pool.n_pages, sizeof *refs);
    return valid;
}
