/* SPDX-License-Identifier: MIT
 *
 * lane.c: see lane.h.
 */
#include "cache/lane.h"

pleat__kv_run pleat__cache_run(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side,
                               uint32_t n_slots) {
    return (pleat__kv_run){.layout = pleat__cache_layout(c, lane, side),
                           .base = c->pages,
                           .page_bytes = c->page_bytes,
                           .ids = pleat__table_cell(table, lane, side, 0),
                           .step = pleat__table_step(table, lane, side),
                           .n_slots = n_slots};
}

pleat__kv_run pleat__cache_open_run(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    const uint32_t n_sealed = table->n_sealed[side][lane];
    pleat__kv_run run = pleat__cache_side(c, table, lane, side);
    run.ids += (int64_t)n_sealed * run.step;
    run.n_slots -= n_sealed * c->page_tokens[side];
    return run;
}

void pleat__cache_store_run(const pleat_cache *c, const pleat__kv_run *run, uint32_t slot, uint32_t n, const float *k,
                            const float *v) {
    const size_t stride = (size_t)c->opt.n_kv_heads * c->opt.head_dim;
    const uint32_t page_tokens = run->layout->tokens;
    while (n > 0) {
        const uint32_t at = slot % page_tokens;
        const uint32_t n_here = pleat__min_u32(n, page_tokens - at);
        c->quant.store(run->layout, pleat__kv_page(run, slot / page_tokens), at, n_here, k, v, stride);
        slot += n_here;
        n -= n_here;
        k += n_here * stride;
        v += n_here * stride;
    }
}

/* Slots [slot, slot + n) hold the tokens from `position` on, which have received no attention and taken in none yet. */
static void track(const pleat__kv_run *run, uint32_t slot, uint32_t n, uint32_t position) {
    const uint32_t page_tokens = run->layout->tokens;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *page = pleat__kv_page(run, (slot + i) / page_tokens);
        for (uint32_t h = 0; h < run->layout->n_scores; h++)
            pleat__head_scores(run->layout, page, h)[(slot + i) % page_tokens] = 0;
        pleat__positions(run->layout, page)[(slot + i) % page_tokens] = (int32_t)(position + i);
        if (run->layout->mass_off) pleat__masses(run->layout, page)[(slot + i) % page_tokens] = 0;
    }
}

void pleat__cache_store_item(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const uint32_t lane_idx = pleat__cache_lane_of(c, job->layer, head);
    const pleat__lane lane = pleat__table_lane(&item->seq->table, lane_idx);
    const bool fills_hole = item->n_new == 1 && lane.hole;
    const uint32_t slot = fills_hole ? lane.hole - 1 : lane.n_slots[PLEAT__HIGH];
    const pleat__kv_run run = pleat__cache_run(c, &item->seq->table, lane_idx, PLEAT__HIGH, slot + item->n_new);
    const size_t at = ((size_t)item->row * c->opt.n_kv_heads + head) * c->opt.head_dim;
    if (fills_hole)
        c->quant.replace(run.layout, pleat__kv_page(&run, slot / run.layout->tokens), slot % run.layout->tokens,
                         job->k + at, job->v + at);
    else
        pleat__cache_store_run(c, &run, slot, item->n_new, job->k + at, job->v + at);
    if (run.layout->tracked) track(&run, slot, item->n_new, item->n_before);
}
