/* SPDX-License-Identifier: MIT
 *
 * merge.c: see merge.h.
 *
 * At the end of a prompt dropped tokens and takers are walked by their positions side by side.  Keys of the takers that
 * are near enough stand in a ring, unit vectors in f32, and those of the largest s beside it: each is loaded once.  Then
 * the dropped tokens of each taker are a chain through their slots, from the oldest on.
 */
#include "cache/keep/merge.h"

#include <math.h>
#include <string.h>

#include "attn/mass.h"
#include "core/dot.h"

#define NEAR 256            /* positions */
#define RING (2 * NEAR + 1) /* takers at so many positions, at most */
#define TOP 64u             /* takers of the largest s */
#define LEAST_COSINE 0.4f
#define LEAST_QUERIES 8 /* that have looked at a taker */
#define MERGE_LEAST 1e-9f
#define NONE UINT32_MAX

void pleat__merge_carve_unit(const pleat_cache *c, pleat__merge_scratch *s, pleat__arena *arena) {
    const uint64_t d = c->opt.head_dim, n_slots = (uint64_t)c->opt.max_tokens + 1;
    *s = (pleat__merge_scratch){0};
    if (!c->opt.spec.merge) return;
    s->s = pleat__arena_take(arena, n_slots, sizeof *s->s);
    s->by_position = pleat__arena_take(arena, n_slots, sizeof *s->by_position);
    s->takers = pleat__arena_take(arena, n_slots, sizeof *s->takers);
    s->gone = pleat__arena_take(arena, n_slots, sizeof *s->gone);
    s->first = pleat__arena_take(arena, n_slots, sizeof *s->first);
    s->next = pleat__arena_take(arena, n_slots, sizeof *s->next);
    s->gone_to = pleat__arena_take(arena, n_slots, sizeof *s->gone_to);
    s->top = pleat__arena_take(arena, TOP, sizeof *s->top);
    s->ring_keys = pleat__arena_take(arena, RING * d, sizeof *s->ring_keys);
    s->top_keys = pleat__arena_take(arena, TOP * d, sizeof *s->top_keys);
    s->key = pleat__arena_take(arena, d, sizeof *s->key);
    s->value = pleat__arena_take(arena, d, sizeof *s->value);
    s->sum = pleat__arena_take(arena, d, sizeof *s->sum);
    s->page = pleat__arena_take(arena, c->page_bytes, 1);
}

/* ---- a lane's tokens --------------------------------------------------------------------------------------- */

static uint8_t *page_of(const pleat__merge_lane *l, uint32_t slot, uint32_t *at) {
    *at = slot % l->run->layout->tokens;
    return pleat__kv_page(l->run, slot / l->run->layout->tokens);
}

static int32_t position_of(const pleat__merge_lane *l, uint32_t slot) {
    uint32_t at;
    uint8_t *page = page_of(l, slot, &at);
    return pleat__positions(l->run->layout, page)[at];
}

/* The attention that a token has received. */
static float *score_of(const pleat__merge_lane *l, uint8_t *page, uint32_t at) {
    return pleat__head_scores(l->run->layout, page, pleat__first_counted(&l->cache->opt.spec)) + at;
}

/* What a score is divided by to be a mean: the queries that it was counted from. */
static float queries_of(const pleat__merge_lane *l, int32_t position) {
    const pleat_spec *spec = &l->cache->opt.spec;
    const uint32_t n_later = l->n_tokens - 1 - (uint32_t)position;
    const bool of_window = pleat__counted_of(spec) == PLEAT__SCORING_WINDOW;
    const uint32_t n_counted = of_window ? pleat__min_u32(n_later, spec->window) : n_later;
    return n_counted > 0 ? (float)n_counted : 1;
}

/* s of a token.  A sum that is no number, of forged pages, counts as nothing. */
static float mean_of(const pleat__merge_lane *l, uint32_t slot, int32_t position) {
    uint32_t at;
    uint8_t *page = page_of(l, slot, &at);
    const float mean = *score_of(l, page, at) / queries_of(l, position);
    if (!(mean > MERGE_LEAST && mean < 0x1p48f)) return MERGE_LEAST;
    return pleat__bits_f32((pleat__f32_bits(mean) + 0x8000u) & 0xFFFF0000u);
}

static bool is_taker(const pleat__merge_lane *l, int32_t position) {
    return position >= (int32_t)l->cache->opt.spec.sinks && position + (int64_t)LEAST_QUERIES < (int64_t)l->n_tokens;
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

/* A token's key, of length 1, or zeros. */
static void load_unit_key(const pleat__merge_lane *l, uint32_t slot, float *key, pleat__merge_scratch *s) {
    const uint32_t d = l->run->layout->head_dim;
    uint32_t at;
    const uint8_t *page = page_of(l, slot, &at);
    pleat__quant_load_token(l->run->layout, page, at, key, s->value);
    const float square = pleat__dot(key, key, d);
    const float inverse = square > 0 && square < INFINITY ? 1 / sqrtf(square) : 0;
    for (uint32_t i = 0; i < d; i++) key[i] *= inverse;
}

/* The taker that is nearest so far. */
typedef struct nearest {
    float cosine;
    int32_t position;
    uint32_t slot; /* NONE */
} nearest;

static void consider(const pleat__merge_lane *l, uint32_t slot, const float *key, const pleat__merge_scratch *s,
                     nearest *best) {
    const float cosine = pleat__dot(s->key, key, l->run->layout->head_dim);
    if (!(cosine >= best->cosine)) return;
    const int32_t position = position_of(l, slot);
    if (cosine == best->cosine && best->slot != NONE && position >= best->position) return;
    *best = (nearest){cosine, position, slot};
}

/* ---- takers of the largest s ----------------------------------------------------------------------------------- */

static bool is_before(const pleat__merge_lane *l, const pleat__merge_scratch *s, uint32_t a, uint32_t b) {
    return s->s[a] > s->s[b] || (s->s[a] == s->s[b] && position_of(l, a) < position_of(l, b));
}

/* Sort the first TOP of s->takers, by s and then by age, into s->top. */
static void find_top(const pleat__merge_lane *l, pleat__merge_scratch *s) {
    s->n_top = 0;
    for (uint32_t i = 0; i < s->n_takers; i++) {
        const uint32_t slot = s->takers[i];
        if (s->n_top == TOP && !is_before(l, s, slot, s->top[TOP - 1])) continue;
        uint32_t at = s->n_top < TOP ? s->n_top++ : TOP - 1;
        for (; at > 0 && is_before(l, s, slot, s->top[at - 1]); at--) s->top[at] = s->top[at - 1];
        s->top[at] = slot;
    }
    for (uint32_t i = 0; i < s->n_top; i++)
        load_unit_key(l, s->top[i], s->top_keys + (size_t)i * l->run->layout->head_dim, s);
}

/* ---- what goes into a taker ------------------------------------------------------------------------------------- */

static void chain(pleat__merge_scratch *s, uint32_t taker, uint32_t slot) {
    s->next[slot] = s->first[taker];
    s->first[taker] = slot;
}

/* Add a token's value by its s. */
static void add_value(const pleat__merge_lane *l, uint32_t slot, pleat__merge_scratch *s) {
    uint32_t at;
    const uint8_t *page = page_of(l, slot, &at);
    pleat__quant_load_token(l->run->layout, page, at, s->key, s->value);
    for (uint32_t i = 0; i < l->run->layout->head_dim; i++) s->sum[i] += s->s[slot] * s->value[i];
}

/* The value alone is written: a key that was rounded once more could change. */
static void put_value(const pleat__merge_lane *l, uint32_t slot, pleat__merge_scratch *s) {
    const pleat__page_layout *layout = l->run->layout;
    uint32_t at;
    uint8_t *page = page_of(l, slot, &at);
    pleat__quant_clear_tile(layout, s->page, 0);
    l->cache->quant.replace(layout, s->page, 0, s->key, s->sum);
    pleat__quant_copy_value(layout, page, at, s->page, 0);
}

/* Merge the chain of a taker, if it has one. */
static void take_in(const pleat__merge_lane *l, uint32_t taker, pleat__merge_scratch *s) {
    const pleat__page_layout *layout = l->run->layout;
    const float own = s->s[taker];
    float all = own;
    uint32_t at;
    uint8_t *page = page_of(l, taker, &at);
    if (s->first[taker] == NONE) return;
    memset(s->sum, 0, layout->head_dim * sizeof *s->sum);
    add_value(l, taker, s);
    for (uint32_t slot = s->first[taker]; slot != NONE; slot = s->next[slot]) {
        add_value(l, slot, s);
        all += s->s[slot];
    }
    for (uint32_t i = 0; i < layout->head_dim; i++) s->sum[i] /= all;
    put_value(l, taker, s);
    uint16_t *mass = pleat__masses(layout, page) + at;
    *mass = pleat__f32_to_f16(fminf(pleat__mass_f32(*mass) + log2f(all / own), PLEAT__MASS_TOP));
    *score_of(l, page, at) += (all - own) * queries_of(l, position_of(l, taker));
}

/* ---- the end of a prompt ------------------------------------------------------------------------------------------ */

/* Takers and dropped tokens by their positions. */
static void sort_out(const pleat__merge_lane *l, const uint8_t *verdicts, pleat__merge_scratch *s) {
    s->n_takers = s->n_gone = 0;
    memset(s->by_position, 0, l->n_tokens * sizeof *s->by_position);
    for (uint32_t slot = 0; slot < l->run->n_slots; slot++) {
        const int32_t position = position_of(l, slot);
        s->first[slot] = NONE;
        if (position < 0) continue;
        s->s[slot] = mean_of(l, slot, position);
        s->by_position[position] = slot + 1;
    }
    for (uint32_t position = 0; position < l->n_tokens; position++) {
        const uint32_t slot = s->by_position[position] - 1;
        if (slot == NONE) continue;
        if (verdicts[slot] == PLEAT__VERDICT_DROP)
            s->gone[s->n_gone++] = slot;
        else if (is_taker(l, (int32_t)position))
            s->takers[s->n_takers++] = slot;
    }
}

/* The takers in the ring: those of s->takers from `from` on, up to `to`. */
typedef struct window {
    uint32_t from, to;
} window;

static float *ring_key(const pleat__merge_lane *l, const pleat__merge_scratch *s, uint32_t taker_idx) {
    return s->ring_keys + (size_t)(taker_idx % RING) * l->run->layout->head_dim;
}

/* Move the ring to what is near a position, which is above the last one's. */
static void move_window(const pleat__merge_lane *l, int32_t position, window *w, pleat__merge_scratch *s) {
    while (w->from < s->n_takers && position_of(l, s->takers[w->from]) < position - NEAR) w->from++;
    if (w->to < w->from) w->to = w->from;
    for (; w->to < s->n_takers && position_of(l, s->takers[w->to]) <= position + NEAR; w->to++)
        load_unit_key(l, s->takers[w->to], ring_key(l, s, w->to), s);
}

static uint32_t nearest_of(const pleat__merge_lane *l, uint32_t slot, const window *w, pleat__merge_scratch *s) {
    nearest best = {LEAST_COSINE, 0, NONE};
    load_unit_key(l, slot, s->key, s);
    for (uint32_t i = w->from; i < w->to; i++) consider(l, s->takers[i], ring_key(l, s, i), s, &best);
    for (uint32_t i = 0; i < s->n_top; i++)
        consider(l, s->top[i], s->top_keys + (size_t)i * l->run->layout->head_dim, s, &best);
    return best.slot;
}

void pleat__merge_dropped(const pleat__merge_lane *l, const uint8_t *verdicts, pleat__merge_scratch *s) {
    window w = {0, 0};
    sort_out(l, verdicts, s);
    if (s->n_gone == 0 || s->n_takers == 0) return;
    find_top(l, s);
    for (uint32_t i = 0; i < s->n_gone; i++) {
        move_window(l, position_of(l, s->gone[i]), &w, s);
        s->gone_to[i] = nearest_of(l, s->gone[i], &w, s);
    }
    for (uint32_t i = s->n_gone; i-- > 0;) /* so that chains begin with the oldest */
        if (s->gone_to[i] != NONE) chain(s, s->gone_to[i], s->gone[i]);
    for (uint32_t i = 0; i < s->n_takers; i++) take_in(l, s->takers[i], s);
}

/* ---- generation ----------------------------------------------------------------------------------------------------- */

void pleat__merge_one(const pleat__merge_lane *l, uint32_t gone, pleat__merge_scratch *s) {
    const int32_t from = position_of(l, gone);
    nearest best = {LEAST_COSINE, 0, NONE};
    s->n_takers = 0;
    for (uint32_t slot = 0; slot < l->run->n_slots; slot++) {
        const int32_t position = position_of(l, slot);
        if (slot == gone || !is_taker(l, position)) continue;
        s->s[slot] = mean_of(l, slot, position);
        s->takers[s->n_takers++] = slot;
    }
    s->s[gone] = mean_of(l, gone, from);
    find_top(l, s);
    load_unit_key(l, gone, s->key, s);
    for (uint32_t i = 0; i < s->n_takers; i++) {
        const int32_t distance = position_of(l, s->takers[i]) - from;
        if (distance < -NEAR || distance > NEAR) continue;
        load_unit_key(l, s->takers[i], s->ring_keys, s);
        consider(l, s->takers[i], s->ring_keys, s, &best);
    }
    for (uint32_t i = 0; i < s->n_top; i++)
        consider(l, s->top[i], s->top_keys + (size_t)i * l->run->layout->head_dim, s, &best);
    if (best.slot == NONE) return;
    s->first[best.slot] = NONE;
    chain(s, best.slot, gone);
    take_in(l, best.slot, s);
}

/* ---- images --------------------------------------------------------------------------------------------------------- */

bool pleat__merge_masses_are_sound(const pleat__page_layout *layout, uint8_t *page) {
    for (uint32_t i = 0; layout->mass_off && i < layout->tokens; i++)
        if (pleat__masses(layout, page)[i] > PLEAT__MASS_TOP_BITS) return false;
    return true;
}
