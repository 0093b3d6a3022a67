/* SPDX-License-Identifier: MIT
 *
 * compress.c: less of a sequence, now: its thresholds are raised and its tokens classed again, lane by lane, so that
 * two free pages are enough to work with and each lane's pages are returned before the next one's turn.
 */
#include "cache/fork.h"
#include "cache/keep/keep.h"
#include "core/error.h"

#define MAX_AH 1e6f /* as in a spec */

/* Two low pages for what becomes low before the first high page is free: keep/compact.c's proof (2). */
static void lend_pages(pleat_cache *c, pleat__table *table, uint32_t lane) {
    pleat__pool_taker taker = pleat__pool_taker_at(&c->pool, 0);
    for (int i = 0; i < 2; i++)
        *pleat__table_cell(table, lane, PLEAT__LOW, table->n_pages[PLEAT__LOW][lane]++) = pleat__pool_take(&taker);
    pleat__pool_advance(&c->pool, 2);
    table->n_pages_all += 2;
}

static void compress_lane(pleat_cache *c, pleat__sequence *seq, uint32_t lane) {
    pleat__table *table = &seq->table;
    pleat__arena scratch = pleat__cache_scratch(c, 0);
    c->keep->unseal(c, seq, lane);
    lend_pages(c, table, lane);
    c->keep->reclass(c, seq, lane, &scratch);
    for (int s = PLEAT__HIGH; s <= PLEAT__LOW; s++) {
        const pleat__side side = (pleat__side)s;
        const uint32_t n_keep = pleat__div_up_u32(table->n_slots[side][lane], c->page_tokens[side]);
        pleat__lane_return_pages(table, lane, side, n_keep, &c->pool);
    }
}

pleat_status pleat_cache_compress(pleat_cache *c, pleat_seq handle, float ah, float al) {
    pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!seq) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    if (!c->traits.can_compress) return PLEAT_E_UNSUPPORTED;
    const pleat__step_item item = {.seq = seq};
    const bool drops = c->layouts[PLEAT__LOW].tracked;
    if (!(ah >= seq->spec.ah && ah <= MAX_AH && al >= seq->spec.al && al <= ah && (drops || al == seq->spec.al)))
        return PLEAT_E_ARG;
    if (c->pool.n_free < 2 + pleat__cache_count_copies(c, &item)) return PLEAT_AGAIN;
    pleat__cache_make_copies(c, &item);
    seq->n_opened++;
    seq->spec.ah = ah;
    seq->spec.al = al;
    if (seq->n_tokens <= seq->spec.window) return PLEAT_OK;
    for (uint32_t lane = 0; lane < c->n_lanes && c->pool.n_free >= 2; lane++)
        if (!pleat__cache_is_ring(c, lane)) compress_lane(c, seq, lane);
    seq->n_classed = seq->n_tokens - seq->spec.window;
    return PLEAT_OK;
}
