/* SPDX-License-Identifier: MIT
 *
 * plain.c: see plain.h.
 */
#include "cache/keep/plain.h"

#include "core/error.h"

/* ---- pages --------------------------------------------------------------------------------------- */

pleat__layouts_of pleat__plain_layouts(const pleat_cache *c, bool is_two_sided) {
    return (pleat__layouts_of){&c->opt.spec, c->opt.head_dim, c->n_group, is_two_sided, UINT32_MAX};
}

uint32_t pleat__plain_page_tokens(const pleat_cache_options *opt) {
    if (opt->page_tokens > 0) return opt->page_tokens;
    return opt->max_tokens >= PLEAT__LONG_PAGE_FROM ? PLEAT__LONG_PAGE_TOKENS : PLEAT__DEFAULT_PAGE_TOKENS;
}

pleat_status pleat__plain_lay_out(pleat_cache *c, const pleat__layouts_of *of, uint32_t tokens, pleat_error *err) {
    pleat__layouts l;
    PLEAT_FAIL_IF(pleat__layouts_init(&l, of, tokens) != PLEAT_OK, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: no page layout for these formats, head_dim %u and %u tokens a page", c->opt.head_dim, tokens);
    c->page_bytes = l.page_bytes;
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        c->layouts[side] = l.side[side];
        c->page_tokens[side] = l.side[side].tokens;
    }
    c->traits.low_page_tokens = c->page_tokens[PLEAT__LOW];
    return PLEAT_OK;
}

pleat_status pleat__plain_derive(pleat_cache *c, pleat_error *err) {
    const pleat__layouts_of of = pleat__plain_layouts(c, false);
    return pleat__plain_lay_out(c, &of, pleat__plain_page_tokens(&c->opt), err);
}

uint32_t pleat__plain_lane_slots(const pleat_cache *c, uint32_t layer, uint32_t n_tokens, bool is_read) {
    (void)c, (void)layer, (void)is_read;
    return n_tokens;
}

uint64_t pleat__plain_lane_pages(const pleat_cache *c, uint32_t n_slots, bool in_step) {
    return pleat__div_up_u32(n_slots, c->page_tokens[PLEAT__HIGH]) +
           (in_step ? pleat__cache_fresh_pages(c, n_slots) : 0);
}

uint32_t pleat__plain_first_written(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    return table->n_slots[side][lane] / c->page_tokens[side];
}

pleat__kv_run pleat__plain_low_run(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane,
                                   pleat__block_run *blocks) {
    (void)blocks;
    return pleat__cache_side(c, &seq->table, lane, PLEAT__LOW);
}

bool pleat__plain_lane_is_sound(const pleat_cache *c, uint32_t lane_idx, const pleat__lane *lane,
                                const pleat__image_counts *counts) {
    (void)c, (void)lane_idx;
    return lane->hole == 0 && lane->n_dead == 0 && lane->n_slots[PLEAT__HIGH] == counts->n_tokens &&
           lane->n_slots[PLEAT__LOW] == 0;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

pleat__token_at pleat__plain_token(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t slot) {
    const uint32_t page_tokens = c->page_tokens[PLEAT__HIGH];
    return (pleat__token_at){.level = PLEAT_LEVEL_HIGH,
                             .page = pleat__cache_page(c, &seq->table, lane, PLEAT__HIGH, slot / page_tokens),
                             .slot = slot % page_tokens};
}

pleat__token_at pleat__plain_find(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    return pleat__plain_token(c, seq, lane, position);
}

void pleat__plain_list(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                       uint32_t n_tokens, pleat_cache_token *out) {
    (void)c, (void)seq, (void)lane, (void)first;
    for (uint32_t i = 0; i < n_tokens; i++) out[i] = (pleat_cache_token){.level = PLEAT_LEVEL_HIGH};
}

bool pleat__plain_is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch) {
    (void)c, (void)scratch;
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    return pleat__lane_live_high(&l) + l.n_slots[PLEAT__LOW] == seq->n_tokens;
}
