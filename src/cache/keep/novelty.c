/* SPDX-License-Identifier: MIT
 *
 * novelty.c: see novelty.h.
 */
#include "cache/keep/novelty.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "quant/rotate.h"
#include "stats/stats.h"

#define TILE PLEAT__TILE

/* Whether keys are compared with the model's mean. */
static bool has_means(const pleat_cache *c) { return c->opt.spec.mean == PLEAT_KEY_MEAN_MODEL; }

pleat_status pleat__novelty_check(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_FAIL_IF(pleat__turns_back(&c->opt.spec) && !opt->ropes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: %s as they were before RoPE, and options.ropes does not say how to undo it",
                  pleat__scores_keys(c)       ? "novel looks at keys"
                  : pleat__scores_leverage(c) ? "leverage looks at keys"
                                              : "expected looks at queries");
    return has_means(c)
               ? pleat__keep_check_stats(opt, "novel:mean=model takes the mean key from statistics of the model", err)
               : PLEAT_OK;
}

/* ---- the cache's tables ---------------------------------------------------------------------------------- */

/* The first full layer with this one's rope. */
static uint32_t owner_of(const pleat_cache *c, const pleat_rope *const *ropes, uint32_t layer) {
    uint32_t first = 0;
    while (first < layer && (pleat__cache_window(c, first) || ropes[first] != ropes[layer])) first++;
    return first;
}

void pleat__novelty_carve(pleat_cache *c, pleat__arena *arena) {
    if (!pleat__turns_back(&c->opt.spec)) return;
    if (has_means(c))
        c->kept.novelty.means =
            pleat__arena_take(arena, (uint64_t)pleat__n_full_lanes(c) * c->opt.head_dim, sizeof(float));
    const pleat_rope *const *ropes = c->opt.ropes;
    pleat__turns *turns = c->kept.novelty.turns = pleat__arena_take(arena, c->opt.n_layers, sizeof *turns);
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        pleat__turns own;
        if (pleat__cache_window(c, layer) || owner_of(c, ropes, layer) != layer) continue;
        pleat__turns_carve(ropes[layer], c->opt.max_tokens, &own, arena);
        if (turns) turns[layer] = own;
    }
}

static float *mean_of(const pleat_cache *c, uint32_t lane) {
    return c->kept.novelty.means + (size_t)pleat__full_lane_idx(c, lane) * c->opt.head_dim;
}

static void take_means(const pleat_cache *c, const pleat_stats *stats, uint32_t layer) {
    for (uint32_t head = 0; head < c->opt.n_kv_heads; head++) {
        const pleat__rd_source source = pleat__stats_source(stats, layer, head);
        pleat__key_mean(source.mean, c->opt.head_dim, mean_of(c, pleat__cache_lane_of(c, layer, head)));
    }
}

void pleat__novelty_init(pleat_cache *c, const pleat_cache_options *opt) {
    pleat__turns *turns = c->kept.novelty.turns;
    if (!pleat__turns_back(&c->opt.spec)) return;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        if (pleat__cache_window(c, layer)) continue;
        const uint32_t owner = owner_of(c, opt->ropes, layer);
        if (owner == layer) pleat__turns_init(opt->ropes[layer], c->opt.max_tokens, &turns[layer]);
        turns[layer] = turns[owner];
        if (has_means(c)) take_means(c, opt->stats, layer);
    }
}

/* ---- a sequence's sums ------------------------------------------------------------------------------------ */

static bool has_sums(const pleat_cache *c) { return pleat__scores_keys(c) && !has_means(c); }

static size_t sums_bytes(const pleat_cache *c) {
    return (size_t)pleat__n_full_lanes(c) * c->opt.head_dim * sizeof(float);
}

static float *sum_of(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    return seq->key_sums + (size_t)pleat__full_lane_idx(c, lane) * c->opt.head_dim;
}

void pleat__novelty_carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena) {
    (void)max_tokens;
    if (has_sums(c)) seq->key_sums = pleat__arena_take(arena, 1, sums_bytes(c));
}

void pleat__novelty_fork(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to) {
    if (has_sums(c) && from->n_classed > 0) memcpy(to->key_sums, from->key_sums, sums_bytes(c));
}

/* Scores against one model's mean are none against another's. */
const char *pleat__novelty_image_key(const pleat_cache *c) {
    return has_means(c) ? pleat_stats_fingerprint(c->opt.stats) : "";
}

uint64_t pleat__novelty_image_bytes(const pleat_cache *c, uint32_t n_classed) {
    return has_sums(c) && n_classed > 0 ? sums_bytes(c) : 0;
}

void pleat__novelty_write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out) {
    if (pleat__novelty_image_bytes(c, seq->n_classed) > 0) memcpy(out, seq->key_sums, sums_bytes(c));
}

bool pleat__novelty_read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                               pleat__sequence *seq) {
    const uint64_t n_bytes = pleat__novelty_image_bytes(c, counts->n_classed);
    if (n_bytes == 0) return true;
    memcpy(seq->key_sums, in, n_bytes);
    return pleat__values_in_range(seq->key_sums, n_bytes / sizeof(float));
}

/* The first position that has not been seen.  n_classed is as it was before the step. */
static uint32_t first_unseen(const pleat_cache *c, const pleat__step_item *item) {
    return item->seq->n_classed > 0 ? item->seq->n_classed + c->opt.spec.window : 0;
}

/* The lane's sum, which has what was seen. */
static float *open_sum(const pleat_cache *c, const pleat__step_item *item, uint32_t lane) {
    float *sum = sum_of(c, item->seq, lane);
    if (item->seq->n_classed == 0) memset(sum, 0, c->opt.head_dim * sizeof(float));
    return sum;
}

/* ---- tiles ------------------------------------------------------------------------------------------------ */

void pleat__novelty_carve_unit(const pleat_cache *c, pleat__novelty_scratch *s, pleat__arena *arena) {
    *s = (pleat__novelty_scratch){0};
    if (!pleat__looks_at_keys(&c->opt.spec)) return;
    s->k = pleat__arena_take(arena, (uint64_t)c->opt.head_dim * TILE, sizeof *s->k);
    s->turn = pleat__arena_take(arena, (uint64_t)c->opt.head_dim * TILE, sizeof *s->turn);
    s->mean = pleat__arena_take(arena, c->opt.head_dim, sizeof *s->mean);
    s->own = pleat__arena_take(arena, c->opt.max_tokens, sizeof *s->own);
    if (pleat__scores_leverage(c)) pleat__spread_carve(c->opt.head_dim, &s->spread, arena);
}

/* Load the tile of a run that slot `first` begins, with the tokens whose positions are given. */
static pleat__key_tile load_tile(const pleat_cache *c, const pleat__kv_run *run, uint32_t layer, uint32_t first,
                                 const int32_t *positions, const pleat__novelty_scratch *s) {
    const uint32_t tokens = run->layout->tokens;
    pleat__key_tile tile = {.k = s->k, .turn = s->turn, .head_dim = c->opt.head_dim, .positions = positions};
    c->quant.load_k(run->layout, pleat__kv_page(run, first / tokens), first % tokens / TILE, s->k);
    if (pleat__cache_is_rotated(c)) pleat__rotate_tile_back(s->k, c->opt.head_dim);
    pleat__key_tile_unturn(&c->kept.novelty.turns[layer], &tile);
    return tile;
}

/* Positions of the tile's slots; -1 for those that are not in use.  Gives the largest. */
static int32_t positions_of(const pleat__tracked *page, uint32_t first, int32_t *positions) {
    int32_t newest = -1;
    for (uint32_t i = 0; i < TILE; i++) {
        positions[i] = first + i < page->n ? page->positions[first + i] : -1;
        newest = positions[i] > newest ? positions[i] : newest;
    }
    return newest;
}

/* What is done with a tile's tokens. */
typedef struct visit {
    enum { ADD, SCORE, ADD_MEAN, ADD_PRODUCTS, SCORE_SPREAD } what;
    int32_t from;      /* positions below it are not added, and their scores stay as they are */
    int32_t sinks;     /* SCORE_SPREAD: positions below it score 0 */
    float *sum;        /* ADD */
    const float *mean; /* SCORE */
} visit;

/* Scores go to the token's position in own, from where sums over neighbours are taken. */
static void visit_tile(const visit *v, pleat__key_tile *tile, pleat__novelty_scratch *s) {
    float scores[TILE];
    switch (v->what) {
        case ADD: pleat__key_tile_add(tile, v->from, v->sum); return;
        case ADD_MEAN: pleat__spread_add_mean(tile, v->from, &s->spread); return;
        case ADD_PRODUCTS: pleat__spread_add_products(tile, v->from, &s->spread); return;
        case SCORE: pleat__key_tile_score(tile, v->mean, scores); break;
        case SCORE_SPREAD: pleat__spread_score(&s->spread, tile, scores); break;
    }
    for (uint32_t i = 0; i < TILE; i++)
        if (tile->positions[i] >= v->from) s->own[tile->positions[i]] = tile->positions[i] < v->sinks ? 0 : scores[i];
}

static void walk_tiles(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, visit v,
                       pleat__novelty_scratch *s) {
    const pleat__kv_run run = pleat__cache_open_run(c, &item->seq->table, lane, PLEAT__HIGH);
    int32_t positions[TILE];
    pleat__tracked page;
    for (pleat__page_walk walk = pleat__walk_pages(&run); pleat__next_page(&walk, &page);)
        for (uint32_t i = 0; i < page.n; i += TILE) {
            if (positions_of(&page, i, positions) < v.from) continue;
            pleat__key_tile tile = load_tile(c, &run, lane / c->opt.n_kv_heads, page.first + i, positions, s);
            visit_tile(&v, &tile, s);
        }
}

/* Score the lane's tokens at positions >= from, and those before of which they are neighbours. */
static void score_from(const pleat_cache *c, const pleat__step_item *item, uint32_t lane, int32_t from, visit v,
                       pleat__novelty_scratch *s) {
    const int32_t near = (int32_t)c->opt.spec.near, n = (int32_t)item->seq->n_tokens;
    const int32_t first = from > near ? from - near : 0;
    const pleat__kv_run run = pleat__cache_open_run(c, &item->seq->table, lane, PLEAT__HIGH);
    pleat__tracked page;
    v.from = first > near ? first - near : 0;
    for (int32_t i = v.from; i < n; i++) s->own[i] = PLEAT__GONE;
    walk_tiles(c, item, lane, v, s);
    for (pleat__page_walk walk = pleat__walk_pages(&run); pleat__next_page(&walk, &page);) {
        float *scores = pleat__scores(run.layout, pleat__kv_page(&run, page.first / run.layout->tokens));
        for (uint32_t i = 0; i < page.n; i++)
            if (page.positions[i] >= first)
                scores[i] = pleat__near_score(s->own, (uint32_t)n, (uint32_t)page.positions[i], (uint32_t)near);
    }
}

void pleat__novelty_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                              pleat__novelty_scratch *s) {
    const int32_t unseen = (int32_t)first_unseen(c, item);
    if (has_means(c)) {
        score_from(c, item, lane, c->opt.spec.novel ? 0 : unseen, (visit){SCORE, .mean = mean_of(c, lane)}, s);
        return;
    }
    float *sum = open_sum(c, item, lane);
    walk_tiles(c, item, lane, (visit){ADD, unseen, .sum = sum}, s);
    pleat__key_mean(sum, c->opt.head_dim, s->mean);
    score_from(c, item, lane, 0, (visit){SCORE, .mean = s->mean}, s);
}

void pleat__leverage_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                               pleat__novelty_scratch *s) {
    const int32_t sinks = (int32_t)c->opt.spec.sinks; /* unlike all others */
    pleat__spread_open(&s->spread);
    walk_tiles(c, item, lane, (visit){ADD_MEAN, sinks}, s);
    pleat__spread_centre(&s->spread);
    walk_tiles(c, item, lane, (visit){ADD_PRODUCTS, sinks}, s);
    pleat__spread_close(&s->spread);
    score_from(c, item, lane, 0, (visit){SCORE_SPREAD, .sinks = sinks}, s);
}

/* What a token is compared with when it comes, and joins. */
static const float *mean_with(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                              const pleat__key_tile *tile, pleat__novelty_scratch *s) {
    if (has_means(c)) return mean_of(c, lane);
    pleat__key_tile_add(tile, 0, sum_of(c, item->seq, lane));
    pleat__key_mean(sum_of(c, item->seq, lane), c->opt.head_dim, s->mean);
    return s->mean;
}

/* A token of the lane that is looked at by itself. */
typedef struct single {
    float *score; /* in its page; NULL: it is not there */
    pleat__key_tile tile;
    uint32_t slot;
    int32_t positions[TILE];
} single;

static void look_at(const pleat_cache *c, const pleat__kv_run *run, uint32_t lane, uint32_t position,
                    const pleat__novelty_scratch *s, single *out) {
    const uint32_t tokens = run->layout->tokens, slot = pleat__scan_find(&c->scan, run, position);
    *out = (single){.slot = slot};
    if (slot == PLEAT__NO_SLOT) return;
    out->score = pleat__scores(run->layout, pleat__kv_page(run, slot / tokens)) + slot % tokens;
    for (uint32_t i = 0; i < TILE; i++) out->positions[i] = i == slot % TILE ? (int32_t)position : -1;
    out->tile = load_tile(c, run, lane / c->opt.n_kv_heads, slot - slot % TILE, out->positions, s);
}

static float own_part(const pleat_cache *c, const single *t, const float *mean) {
    float scores[TILE];
    pleat__key_tile_score(&t->tile, mean, scores);
    return scores[t->slot % TILE] * pleat__near_part(c->opt.spec.near, 0);
}

/* One more token has come: it is scored by itself and those before it, and joins their scores. */
static void score_next(const pleat_cache *c, const pleat__step_item *item, const pleat__kv_run *run, uint32_t lane,
                       uint32_t position, pleat__novelty_scratch *s) {
    const uint32_t near = position < c->opt.spec.near ? position : c->opt.spec.near;
    single t, before;
    look_at(c, run, lane, position, s, &t);
    if (!t.score) return;
    const float *mean = mean_with(c, item, lane, &t.tile, s);
    const float own = own_part(c, &t, mean);
    float score = 0;
    for (uint32_t i = position - near; i < position; i++) {
        look_at(c, run, lane, i, s, &before);
        if (!before.score) continue;
        score += own_part(c, &before, mean);
        *before.score += own;
    }
    *t.score = score + own;
}

void pleat__novelty_of_step(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                            pleat__novelty_scratch *s) {
    const pleat__kv_run run = pleat__cache_open_run(c, &item->seq->table, lane, PLEAT__HIGH);
    if (has_sums(c)) (void)open_sum(c, item, lane);
    for (uint32_t position = first_unseen(c, item); position < item->seq->n_tokens; position++)
        score_next(c, item, &run, lane, position, s);
}
