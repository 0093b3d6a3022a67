/* SPDX-License-Identifier: MIT
 *
 * ring.c: layers whose queries see the newest W tokens alone.
 *
 *     slots of a lane   | 8 | 9 | 10 | 3 | 4 | 5 | 6 | 7 |     W = 8, 11 tokens: token p stands in slot p mod W
 *                                      ^ hole: token 11 takes the place of token 3, which it does not see
 *
 * The order of slots does not matter to attention, so a lane is read as any other.  Between steps a full ring's oldest
 * token is out of sight of whoever comes next: its slot is the lane's hole, which a single token fills as everywhere.
 * A chunk's tokens come one after another: each is stored, then looks at the ring as it stands.  So a chunk here costs
 * as many decode passes as it has tokens; the heads share the work.
 */
#include "cache/internal.h"

bool pleat__cache_wants_rings(const pleat_cache_options *opt) {
    bool any = false;
    for (uint32_t layer = 0; opt->windows && layer < opt->n_layers; layer++)
        any |= opt->windows[layer] > 0 && opt->windows[layer] < opt->max_tokens;
    return any;
}

uint32_t pleat__cache_kept_tokens(const pleat_cache_options *opt, uint32_t layer, uint32_t n_tokens) {
    const uint32_t window = opt->windows ? opt->windows[layer] : 0;
    return window > 0 && window < n_tokens ? window : n_tokens;
}

void pleat__cache_turn_rings(const pleat_cache *c, pleat__sequence *seq) {
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const uint32_t ring = pleat__cache_ring(c, lane);
        if (!ring || seq->n_tokens < ring) continue;
        seq->table.n_slots[PLEAT__HIGH][lane] = ring;
        seq->table.hole[lane] = seq->n_tokens % ring + 1;
    }
}

bool pleat__cache_ring_is_torn(const pleat_cache *c, const pleat__step_item *item) {
    bool torn = false;
    for (uint32_t layer = 0; c->windows && item->n_new > 1 && layer < c->opt.n_layers; layer++)
        torn |= c->stored[layer] && c->windows[layer] && item->n_before + item->n_new > c->windows[layer];
    return torn;
}

/* Put one token into its slot of the ring, which has never been used or holds one out of sight. */
static void put(const pleat_cache *c, const pleat__kv_run *run, uint32_t ring, uint32_t position, const float *k,
                const float *v) {
    const uint32_t slot = position % ring, tokens = run->layout->tokens;
    uint8_t *page = pleat__kv_page(run, slot / tokens);
    if (position < ring)
        c->quant.store(run->layout, page, slot % tokens, 1, k, v, c->opt.head_dim);
    else
        c->quant.replace(run->layout, page, slot % tokens, k, v);
}

static void look(const pleat__layer_job *job, uint32_t row, uint32_t head, const pleat__kv_run *run, uint8_t *scratch) {
    const pleat_cache *c = job->cache;
    const size_t at = pleat__cache_head_at(c, row, head) * c->opt.head_dim;
    pleat__arena arena = {.base = scratch, .cap_bytes = c->worker_scratch_bytes};
    void *query_memory = pleat__arena_take(&arena, pleat__attn_query_bytes(c->n_group, c->opt.head_dim), 1);
    void *acc_memory = pleat__arena_take(&arena, c->acc_bytes, 1);
    pleat__attn_query query;
    pleat__attn_acc acc;
    pleat__attn_query_init(&query, query_memory, job->q + at, c->n_group, c->opt.head_dim, c->scale);
    pleat__attn_acc_init(&acc, acc_memory, c->n_group, c->opt.head_dim);
    c->attn.decode(&query, run, 0, run->n_slots, &acc, NULL, 0);
    pleat__attn_finish(&acc, c->n_group, c->opt.head_dim, job->out + at, NULL);
}

void pleat__cache_ring_unit(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head, uint32_t worker) {
    const pleat_cache *c = job->cache;
    const uint32_t lane = pleat__cache_lane_of(c, job->layer, head), ring = pleat__cache_ring(c, lane);
    for (uint32_t t = 0; t < item->n_new; t++) {
        const uint32_t position = item->n_before + t;
        const size_t at = ((size_t)(item->row + t) * c->opt.n_kv_heads + head) * c->opt.head_dim;
        const pleat__kv_run run =
            pleat__cache_run(c, &item->seq->table, lane, PLEAT__HIGH, pleat__min_u32(position + 1, ring));
        put(c, &run, ring, position, job->k + at, job->v + at);
        if (job->q) look(job, item->row + t, head, &run, pleat__cache_scratch(c, worker));
    }
}
