/* SPDX-License-Identifier: MIT
 *
 * collector.c: the collector of statistics: moments in a first pass, codes in a second.
 *
 * Codes are counted at several steps, so that every class is met: those that the spec's defaults make, and finer and
 * coarser ones.
 */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "stats/stats.h"

/* Steps that codes are counted at. */
#define N_STEPS 5u
static const float k_steps[N_STEPS] = {0.05f, 0.1f, 0.15f, 0.25f, 0.5f};
static const float v_steps[N_STEPS] = {0.4f, 0.7f, 1.1f, 1.6f, 2.4f};

enum { LEAST_TOKENS = 64 };

typedef struct rope_copy {
    pleat_rope rope; /* n_dims 0: the layer's keys are not turned */
    double *frequencies;
} rope_copy;

struct pleat_collector {
    pleat_allocator al;
    bool is_bound, counts;
    uint32_t n_layers, n_kv_heads, n_group, head_dim, max_tokens;
    uint64_t n_tokens;
    uint8_t *has_layer;      /* [n_layers] */
    rope_copy *ropes;        /* [n_layers] */
    pleat__moments *moments; /* [n_layers][n_kv_heads] */
    pleat__rd_turns *turns;  /* [n_layers] */
    double *turn;            /* [PLEAT__MOMENTS_BATCH][head_dim] of tokens */
    void *block;
    uint64_t block_bytes;

    /* Of the second pass. */
    pleat__pair_counts *k_counts, *v_counts;
    pleat__rd_lane *lanes; /* [n_layers][n_kv_heads][N_STEPS] */
    pleat_stats *stats;    /* without codebooks */
    int8_t *codes;         /* [8][head_dim] */
    void *second;
    uint64_t second_bytes;
};

pleat_status pleat_collector_create(const pleat_allocator *allocator, pleat_collector **out) {
    if (!out) return PLEAT_E_ARG;
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_collector *c = pleat__alloc_zero(&al, 1, sizeof *c);
    if (!c) return PLEAT_E_MEMORY;
    c->al = al;
    *out = c;
    return PLEAT_OK;
}

void pleat_collector_destroy(pleat_collector **collector) {
    if (!collector || !*collector) return;
    pleat_collector *c = *collector;
    const pleat_allocator al = c->al;
    pleat_stats_destroy(&c->stats);
    pleat__free(&al, c->second, 1, c->second_bytes);
    pleat__free(&al, c->block, 1, c->block_bytes);
    pleat__free(&al, c, 1, sizeof *c);
    *collector = NULL;
}

uint64_t pleat_collector_n_tokens(const pleat_collector *c) { return c ? c->n_tokens : 0; }

/* ---- the shape ------------------------------------------------------------------------------------------- */

static void carve(pleat_collector *c, pleat__arena *arena) {
    const uint32_t n_lanes = c->n_layers * c->n_kv_heads;
    c->has_layer = pleat__arena_take(arena, c->n_layers, 1);
    c->ropes = pleat__arena_take(arena, c->n_layers, sizeof *c->ropes);
    c->turns = pleat__arena_take(arena, c->n_layers, sizeof *c->turns);
    c->moments = pleat__arena_take(arena, n_lanes, sizeof *c->moments);
    c->turn = pleat__arena_take(arena, (uint64_t)PLEAT__MOMENTS_BATCH * c->head_dim, sizeof *c->turn);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        double *frequencies = pleat__arena_take(arena, c->head_dim / 2, sizeof *frequencies);
        if (c->ropes) c->ropes[i].frequencies = frequencies;
    }
    for (uint32_t i = 0; i < n_lanes; i++) {
        pleat__moments m = {0};
        pleat__moments_carve(c->head_dim, &m, arena);
        if (c->moments) c->moments[i] = m;
    }
}

static const pleat_rope *rope_of(const pleat_collector *c, uint32_t layer) {
    return c->ropes[layer].rope.n_dims ? &c->ropes[layer].rope : NULL;
}

static void copy_layers(pleat_collector *c, const pleat_cache_options *opt) {
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const pleat_rope *rope = opt->ropes ? opt->ropes[i] : NULL;
        c->has_layer[i] = !(opt->windows && opt->windows[i] > 0);
        if (!rope) continue;
        memcpy(c->ropes[i].frequencies, rope->frequencies, rope->n_dims / 2 * sizeof(double));
        c->ropes[i].rope = *rope;
        c->ropes[i].rope.frequencies = c->ropes[i].frequencies;
        c->turns[i].n_pairs = rope->n_dims / 2;
        c->turns[i].first = rope->is_halves ? 1 : 2;
        c->turns[i].other = rope->is_halves ? rope->n_dims / 2 : 1;
    }
}

pleat_status pleat__collector_bind(pleat_collector *c, const pleat_cache_options *opt, pleat_error *err) {
    PLEAT_FAIL_IF(
        !opt->ropes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "cache: statistics need keys as they were before RoPE, and options.ropes does not say how to undo it");
    if (c->is_bound) {
        PLEAT_FAIL_IF(c->n_layers != opt->n_layers || c->n_kv_heads != opt->n_kv_heads ||
                          c->n_group != opt->n_q_heads / opt->n_kv_heads || c->head_dim != opt->head_dim ||
                          (c->counts && c->max_tokens < opt->max_tokens),
                      err, PLEAT_E_ARG, PLEAT_NOWHERE,
                      "cache: the collector was begun with another model, or for shorter texts");
        c->max_tokens = pleat__max_u32(c->max_tokens, opt->max_tokens);
        return PLEAT_OK;
    }
    c->n_layers = opt->n_layers;
    c->n_kv_heads = opt->n_kv_heads;
    c->n_group = opt->n_q_heads / opt->n_kv_heads;
    c->head_dim = opt->head_dim;
    c->max_tokens = opt->max_tokens;
    pleat__arena arena = {0};
    carve(c, &arena);
    c->block_bytes = arena.used_bytes;
    c->block = arena.overflow ? NULL : pleat__alloc_zero(&c->al, 1, c->block_bytes);
    PLEAT_FAIL_IF(!c->block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "cache: out of memory for statistics");
    arena = (pleat__arena){.base = c->block, .cap_bytes = c->block_bytes};
    carve(c, &arena);
    copy_layers(c, opt);
    c->is_bound = true;
    return PLEAT_OK;
}

/* ---- the first pass -------------------------------------------------------------------------------------- */

static void turn_of(const pleat_collector *c, uint32_t layer, uint32_t position, double *turn) {
    const pleat_rope *rope = rope_of(c, layer);
    const pleat__rd_turns *t = &c->turns[layer];
    for (uint32_t i = 0; i < c->head_dim; i++) turn[i] = 1;
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        turn[t->first * i] = cos(rope->frequencies[i] * position);
        turn[t->first * i + t->other] = sin(rope->frequencies[i] * position);
    }
}

/* Up to PLEAT__MOMENTS_BATCH tokens. */
static void add_moments(pleat_collector *c, uint32_t layer, uint32_t first, uint32_t n, const float *q, const float *k,
                        const float *v) {
    const uint32_t d = c->head_dim;
    const size_t kv_row = (size_t)c->n_kv_heads * d;
    for (uint32_t t = 0; t < n; t++) turn_of(c, layer, first + t, c->turn + (size_t)t * d);
    for (uint32_t head = 0; head < c->n_kv_heads; head++) {
        const pleat__moments_tokens of = {.n = n,
                                          .n_heads = c->n_group,
                                          .turn = c->turn,
                                          .q = q + (size_t)head * c->n_group * d,
                                          .k = k + (size_t)head * d,
                                          .v = v + (size_t)head * d,
                                          .q_stride = kv_row * c->n_group,
                                          .kv_stride = kv_row};
        pleat__moments_add(&c->moments[layer * c->n_kv_heads + head], d, &of);
    }
}

/* ---- the second ------------------------------------------------------------------------------------------ */

static uint32_t count_blocks(const pleat_collector *c) { return c->max_tokens / PLEAT__RD_TOKENS + 1; }

static void carve_second(pleat_collector *c, pleat__arena *arena) {
    const uint32_t n_lanes = c->n_layers * c->n_kv_heads * N_STEPS;
    c->k_counts = pleat__arena_take(arena, 1, sizeof *c->k_counts);
    c->v_counts = pleat__arena_take(arena, 1, sizeof *c->v_counts);
    c->lanes = pleat__arena_take(arena, n_lanes, sizeof *c->lanes);
    c->codes = pleat__arena_take(arena, 8, c->head_dim);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        pleat__rd_turns turns;
        pleat__rd_turns_carve(rope_of(c, i), count_blocks(c), &turns, arena);
        if (c->lanes) c->turns[i] = turns;
    }
    for (uint32_t i = 0; i < n_lanes; i++) {
        pleat__rd_lane lane = {0};
        pleat__rd_lane_carve(c->head_dim, &lane, arena);
        if (c->lanes) c->lanes[i] = lane;
    }
}

static pleat_status finish_moments(pleat_collector *c, uint32_t n_positions) {
    const pleat__windows windows = {c->max_tokens, pleat__max_u32(n_positions / c->max_tokens, 1)};
    const uint64_t n = pleat__moments_scratch(c->head_dim);
    double *scratch = pleat__alloc_zero(&c->al, n, sizeof *scratch);
    if (!scratch) return PLEAT_E_MEMORY;
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        const pleat_rope *rope = rope_of(c, layer);
        for (uint32_t head = 0; c->has_layer[layer] && head < c->n_kv_heads; head++) {
            const pleat__stats_lane lane = pleat__stats_lane_of(c->stats, layer, head);
            pleat__moments_finish(&c->moments[layer * c->n_kv_heads + head], &c->turns[layer], rope, windows,
                                  c->head_dim, scratch, &lane);
        }
    }
    pleat__free(&c->al, scratch, n, sizeof *scratch);
    return pleat__stats_seal(c->stats); /* whose books are still empty */
}

static void init_lanes(pleat_collector *c) {
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        pleat__rd_turns_init(rope_of(c, layer), 0, count_blocks(c), &c->turns[layer]);
        for (uint32_t i = 0; c->has_layer[layer] && i < c->n_kv_heads * N_STEPS; i++) {
            const pleat__rd_source source = pleat__stats_source(c->stats, layer, i / N_STEPS);
            pleat__rd_lane_init(&c->lanes[layer * c->n_kv_heads * N_STEPS + i], &source, &c->stats->books,
                                &c->turns[layer], rope_of(c, layer), c->head_dim, k_steps[i % N_STEPS],
                                v_steps[i % N_STEPS]);
        }
    }
}

static pleat_status create_stats(const pleat_collector *c, uint32_t n_positions, pleat_stats **out) {
    const pleat__stats_shape shape = {c->n_layers, c->n_kv_heads, c->head_dim, true, n_positions, c->has_layer};
    return pleat__stats_create(&shape, &c->al, out);
}

pleat_status pleat_collector_count(pleat_collector *c, uint32_t n_positions) {
    if (!c) return PLEAT_E_ARG;
    if (!c->is_bound || c->counts || c->n_tokens < LEAST_TOKENS) return PLEAT_E_STATE;
    PLEAT_TRY(create_stats(c, pleat__max_u32(n_positions, c->max_tokens), &c->stats));
    const pleat_status status = finish_moments(c, n_positions);
    if (status != PLEAT_OK) {
        pleat_stats_destroy(&c->stats);
        return status;
    }
    pleat__arena arena = {0};
    pleat__rd_lane *none = c->lanes;
    carve_second(c, &arena);
    c->second_bytes = arena.used_bytes;
    c->second = arena.overflow ? NULL : pleat__alloc_zero(&c->al, 1, c->second_bytes);
    if (!c->second) {
        c->lanes = none;
        pleat_stats_destroy(&c->stats);
        return PLEAT_E_MEMORY;
    }
    arena = (pleat__arena){.base = c->second, .cap_bytes = c->second_bytes};
    carve_second(c, &arena);
    init_lanes(c);
    c->counts = true;
    return PLEAT_OK;
}

/* A key's codes: pairs are columns four apart, as a stream has them. */
static void count_key(pleat_collector *c, const pleat__rd_lane *lane, uint32_t position, const float *k) {
    uint32_t column = 0;
    pleat__rd_count_key(lane, position / PLEAT__RD_TOKENS, position % PLEAT__RD_TOKENS, k, c->codes);
    for (uint32_t run = 0; run < lane->n_columns; run++)
        for (uint32_t end = column + 4u * lane->columns[run].n_vectors; column < end; column++)
            if (column % 8 < 4)
                pleat__pair_counts_add(c->k_counts, lane->columns[run].class, c->codes[column], c->codes[column + 4]);
}

/* Eight tokens' values: pairs are tokens four apart. */
static void count_values(pleat_collector *c, const pleat__rd_lane *lane, const float *v, size_t stride) {
    const uint32_t d = c->head_dim;
    for (uint32_t t = 0; t < 8; t++) pleat__rd_count_value(lane, v + t * stride, c->codes + (size_t)t * d);
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t i = 0; i < d; i++)
            pleat__pair_counts_add(c->v_counts, lane->v_class[i / PLEAT__RD_V_DIMS], c->codes[t * d + i],
                                   c->codes[(t + 4) * d + i]);
}

static void count_codes(pleat_collector *c, uint32_t layer, uint32_t first, uint32_t n, const float *k,
                        const float *v) {
    const uint32_t d = c->head_dim;
    const size_t stride = (size_t)c->n_kv_heads * d;
    for (uint32_t i = 0; i < c->n_kv_heads * N_STEPS; i++) {
        const pleat__rd_lane *lane = &c->lanes[layer * c->n_kv_heads * N_STEPS + i];
        const size_t head = (size_t)(i / N_STEPS) * d;
        for (uint32_t t = 0; t < n; t++) count_key(c, lane, first + t, k + t * stride + head);
        for (uint32_t t = 0; t + 8 <= n; t += 8) count_values(c, lane, v + t * stride + head, stride);
    }
}

void pleat__collector_see(pleat_collector *c, uint32_t layer, uint32_t first, uint32_t n, const float *q,
                          const float *k, const float *v) {
    const uint32_t skip = first < PLEAT__STATS_SKIPPED ? PLEAT__STATS_SKIPPED - first : 0;
    const size_t kv_row = (size_t)c->n_kv_heads * c->head_dim, q_row = kv_row * c->n_group;
    if (n <= skip || !c->has_layer[layer]) return;
    for (uint32_t t = skip; !c->counts && t < n; t += PLEAT__MOMENTS_BATCH)
        add_moments(c, layer, first + t, pleat__min_u32(PLEAT__MOMENTS_BATCH, n - t), q + t * q_row, k + t * kv_row,
                    v + t * kv_row);
    if (c->counts) count_codes(c, layer, first + skip, n - skip, k + skip * kv_row, v + skip * kv_row);
    if (layer + 1 == c->n_layers || !memchr(c->has_layer + layer + 1, 1, c->n_layers - layer - 1))
        c->n_tokens += n - skip;
}

pleat_status pleat_collector_finish(pleat_collector *c, const char model[PLEAT_FINGERPRINT_CAP], pleat_stats **out) {
    if (!c || !model || !out || strlen(model) != PLEAT_FINGERPRINT_CAP - 1) return PLEAT_E_ARG;
    if (!c->counts) return PLEAT_E_STATE;
    pleat_stats *s;
    PLEAT_TRY(create_stats(c, c->stats->n_positions, &s));
    memcpy(s->model, model, sizeof s->model);
    memcpy(s->block, c->stats->block, s->block_bytes);
    for (uint32_t class = 0; class < PLEAT__RD_CLASSES; class ++) {
        pleat__pair_counts_add_normal(c->k_counts, class);
        pleat__pair_counts_add_normal(c->v_counts, class);
        pleat__rd_book_choose(c->k_counts, class, &s->books.k[class]);
        pleat__rd_book_choose(c->v_counts, class, &s->books.v[class]);
    }
    const pleat_status status = pleat__stats_seal(s);
    if (status != PLEAT_OK) pleat_stats_destroy(&s);
    *out = s;
    return status;
}
