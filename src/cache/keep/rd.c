/* SPDX-License-Identifier: MIT
 *
 * rd.c: see rd.h.
 */
#include "cache/keep/rd.h"

#include "cache/keep/promise.h"
#include "core/error.h"
#include "stats/stats.h"

pleat_status pleat__keep_rd_check(const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_FAIL_IF(!opt->ropes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: rd looks at keys as they were before RoPE, and options.ropes does not say how to undo it");
    return pleat__keep_check_stats(opt, "rd chooses its steps by statistics of the model", err);
}

/* The first full layer with this one's rope: its table serves both. */
static uint32_t owner_of(const pleat_cache *c, const pleat_rope *const *ropes, uint32_t layer) {
    uint32_t first = 0;
    while (first < layer && (pleat__cache_window(c, first) || ropes[first] != ropes[layer])) first++;
    return first;
}

static uint32_t count_blocks(const pleat_cache *c) { return c->opt.max_tokens / PLEAT__RD_TOKENS; }

void pleat__keep_rd_carve(pleat_cache *c, pleat__arena *arena) {
    const uint32_t n_lanes = pleat__n_full_lanes(c);
    pleat__rd_lane *lanes = c->kept.blocks.rd = pleat__arena_take(arena, n_lanes, sizeof *lanes);
    pleat__rd_turns *turns = c->kept.blocks.turns = pleat__arena_take(arena, c->opt.n_layers, sizeof *turns);
    if (c->kept.blocks.has_promise) pleat__promise_carve(c, arena);
    for (uint32_t i = 0; i < n_lanes; i++) {
        pleat__rd_lane lane = {0};
        pleat__rd_lane_carve(c->opt.head_dim, &lane, arena);
        if (lanes) lanes[i] = lane;
    }
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        pleat__rd_turns own;
        if (pleat__cache_window(c, layer) || owner_of(c, c->opt.ropes, layer) != layer) continue;
        pleat__rd_turns_carve(c->opt.ropes[layer], count_blocks(c), &own, arena);
        if (turns) turns[layer] = own;
    }
}

/* The spec's steps, or those that its promise allows. */
static pleat_stats_scale steps_of(const pleat_cache *c) {
    const pleat__promise *p = &c->kept.blocks.promise;
    return c->kept.blocks.has_promise ? (pleat_stats_scale){p->k, p->v}
                                      : (pleat_stats_scale){c->opt.spec.k, c->opt.spec.v};
}

void pleat__keep_rd_init(pleat_cache *c, const pleat_cache_options *opt) {
    if (c->kept.blocks.has_promise) pleat__promise_init(c, opt);
    const pleat_stats_scale steps = steps_of(c);
    pleat__rd_turns *turns = c->kept.blocks.turns;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        if (pleat__cache_window(c, layer)) continue;
        const uint32_t owner = owner_of(c, opt->ropes, layer);
        if (owner == layer) pleat__rd_turns_init(opt->ropes[layer], c->opt.spec.sinks, count_blocks(c), &turns[layer]);
        for (uint32_t head = 0; head < c->opt.n_kv_heads; head++) {
            const pleat__rd_source source = pleat__stats_source(opt->stats, layer, head);
            const pleat_stats_scale scale = pleat_stats_get_scale(opt->stats, layer);
            const uint32_t lane = pleat__cache_lane_of(c, layer, head);
            pleat__rd_lane_init(&c->kept.blocks.rd[pleat__full_lane_idx(c, lane)], &source, &opt->stats->books,
                                &turns[owner], opt->ropes[layer], c->opt.head_dim, steps.k * scale.k,
                                steps.v * scale.v);
        }
    }
}
