/* SPDX-License-Identifier: MIT
 *
 * expected.c: see expected.h.
 */
#include "cache/keep/expected.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "policy/expected.h"
#include "quant/rotate.h"

#define TILE PLEAT__TILE

/* Which of a layer's two sums: before the last step with queries, and with it. */
enum { BEFORE, WITH, SETS };

/* ---- a sequence's sums ------------------------------------------------------------------------------------ */

/* Floats of a set: [n_q_heads][2][head_dim], sums and squares. */
static size_t set_floats(const pleat_cache *c) { return (size_t)c->opt.n_q_heads * 2 * c->opt.head_dim; }

static float *set_of(const pleat_cache *c, const pleat__sequence *seq, uint32_t full_idx, uint32_t set) {
    return seq->queries.sums + ((size_t)full_idx * SETS + set) * set_floats(c);
}

static pleat__query_count *counts_of(const pleat__sequence *seq, uint32_t full_idx) {
    return seq->queries.counts + (size_t)full_idx * SETS;
}

/* The set that is true for a sequence of so many tokens. */
static uint32_t true_set(const pleat__sequence *seq, uint32_t full_idx, uint32_t n_tokens) {
    return counts_of(seq, full_idx)[WITH].end <= n_tokens ? WITH : BEFORE;
}

void pleat__expected_carve_seq(const pleat_cache *c, pleat__sequence *seq, pleat__arena *arena) {
    if (!pleat__expects(c)) return;
    seq->queries.sums = pleat__arena_take(arena, (uint64_t)c->n_full_layers * SETS * set_floats(c), sizeof(float));
    seq->queries.counts = pleat__arena_take(arena, (uint64_t)c->n_full_layers * SETS, sizeof(pleat__query_count));
}

void pleat__expected_open_seq(const pleat_cache *c, pleat__sequence *seq) {
    if (pleat__expects(c)) memset(seq->queries.counts, 0, c->n_full_layers * SETS * sizeof(pleat__query_count));
}

void pleat__expected_fork(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to) {
    if (!pleat__expects(c)) return;
    memcpy(to->queries.sums, from->queries.sums, c->n_full_layers * SETS * set_floats(c) * sizeof(float));
    memcpy(to->queries.counts, from->queries.counts, c->n_full_layers * SETS * sizeof(pleat__query_count));
}

/* An image has a layer's count and the set that is true. */
static size_t image_layer_bytes(const pleat_cache *c) { return sizeof(uint32_t) + set_floats(c) * sizeof(float); }

uint64_t pleat__expected_image_bytes(const pleat_cache *c) {
    return pleat__expects(c) ? (uint64_t)c->n_full_layers * image_layer_bytes(c) : 0;
}

void pleat__expected_write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out) {
    for (uint32_t i = 0; pleat__expects(c) && i < c->n_full_layers; i++, out += image_layer_bytes(c)) {
        const uint32_t set = true_set(seq, i, seq->n_tokens), n = counts_of(seq, i)[set].n;
        memcpy(out, &n, sizeof n);
        memset(out + sizeof n, 0, set_floats(c) * sizeof(float));
        if (n > 0) memcpy(out + sizeof n, set_of(c, seq, i, set), set_floats(c) * sizeof(float));
    }
}

bool pleat__expected_read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                                pleat__sequence *seq) {
    for (uint32_t i = 0; pleat__expects(c) && i < c->n_full_layers; i++, in += image_layer_bytes(c)) {
        float *sums = set_of(c, seq, i, WITH);
        pleat__query_count *count = counts_of(seq, i);
        memcpy(&count[WITH].n, in, sizeof count->n);
        count[WITH].end = counts->n_tokens;
        if (count[WITH].n > counts->n_tokens) return false;
        memcpy(sums, in + sizeof count->n, set_floats(c) * sizeof(float));
        for (size_t k = 0; k < set_floats(c); k++)
            if (!isfinite(sums[k])) return false;
    }
    return true;
}

/* ---- queries ---------------------------------------------------------------------------------------------- */

/* The queries of an item that belong to a KV head join its sums. */
static void look_at(const pleat__layer_job *job, const pleat__step_item *item, uint32_t head) {
    const pleat_cache *c = job->cache;
    const uint32_t full_idx = pleat__full_idx(c, job->layer), d = c->opt.head_dim;
    const pleat__query_count *count = counts_of(item->seq, full_idx);
    const bool has_ended = count[WITH].end <= item->n_before;
    const size_t first = (size_t)head * c->n_group * 2 * d, n_floats = (size_t)c->n_group * 2 * d;
    float *before = set_of(c, item->seq, full_idx, BEFORE) + first,
          *with = set_of(c, item->seq, full_idx, WITH) + first;
    if (count[has_ended ? WITH : BEFORE].n == 0) {
        memset(before, 0, n_floats * sizeof *before);
        memset(with, 0, n_floats * sizeof *with);
    } else {
        memcpy(has_ended ? before : with, has_ended ? with : before, n_floats * sizeof *with);
    }
    for (uint32_t t = 0; t < item->n_new; t++) {
        const float *q = job->q + pleat__cache_head_at(c, item->row + t, head) * d;
        if (item->n_before + t < PLEAT__EXPECTED_SKIPPED) continue;
        for (uint32_t g = 0; g < c->n_group; g++)
            pleat__query_add(&c->kept.novelty.turns[job->layer], item->n_before + t, q + (size_t)g * d, d,
                             with + (size_t)g * 2 * d, with + ((size_t)g * 2 + 1) * d);
    }
}

static void look_unit(void *ctx, uint32_t unit, uint32_t worker) {
    const pleat__layer_job *job = ctx;
    const uint32_t n_heads = job->cache->opt.n_kv_heads;
    (void)worker;
    look_at(job, &job->cache->step.items[unit / n_heads], unit % n_heads);
}

static void count_item(const pleat__layer_job *job, const pleat__step_item *item) {
    pleat__query_count *count = counts_of(item->seq, pleat__full_idx(job->cache, job->layer));
    const bool has_ended = count[WITH].end <= item->n_before;
    count[has_ended ? BEFORE : WITH] = count[has_ended ? WITH : BEFORE];
    for (uint32_t t = 0; t < item->n_new; t++) count[WITH].n += item->n_before + t >= PLEAT__EXPECTED_SKIPPED;
    count[WITH].end = item->n_before + item->n_new;
}

void pleat__expected_look(const pleat__layer_job *job) {
    pleat_cache *c = job->cache;
    pleat__layer_job mine = *job;
    if (!pleat__expects(c)) return;
    pleat_workers_run(c->opt.workers, c->step.n_items * c->opt.n_kv_heads, look_unit, &mine);
    for (uint32_t i = 0; i < c->step.n_items; i++) count_item(job, &c->step.items[i]);
}

/* ---- scores ----------------------------------------------------------------------------------------------- */

void pleat__expected_carve_unit(const pleat_cache *c, pleat__expected_scratch *s, pleat__arena *arena) {
    *s = (pleat__expected_scratch){0};
    if (!pleat__expects(c)) return;
    s->k = pleat__arena_take(arena, (uint64_t)c->opt.head_dim * TILE, sizeof *s->k);
    s->v = pleat__arena_take(arena, (uint64_t)c->opt.head_dim * TILE, sizeof *s->v);
    s->m = pleat__arena_take(arena, (uint64_t)c->n_group * c->opt.head_dim, sizeof *s->m);
    s->s = pleat__arena_take(arena, (uint64_t)c->n_group * c->opt.head_dim, sizeof *s->s);
    s->most = pleat__arena_take(arena, c->n_group, sizeof *s->most);
    s->total = pleat__arena_take(arena, c->n_group, sizeof *s->total);
}

/* What each of the group's query heads expects of the tile that slot `first` of a page begins: z [TILE], -infinity for
 * what is no token. */
static void tile_logits(const pleat_cache *c, const pleat__tracked *page, uint32_t first, uint32_t g,
                        const pleat__expected_scratch *s, float *z) {
    const uint32_t d = c->opt.head_dim;
    pleat__expected_logits(s->k, d, s->m + (size_t)g * d, s->s + (size_t)g * d, z);
    for (uint32_t i = 0; i < TILE; i++)
        if (first + i >= page->n || page->positions[first + i] < 0) z[i] = -INFINITY;
}

/* The largest z of each head, and the sum of exp(z - largest). */
static void add_tile(const pleat_cache *c, const pleat__tracked *page, uint32_t first,
                     const pleat__expected_scratch *s) {
    float z[TILE];
    for (uint32_t g = 0; g < c->n_group; g++) {
        float most = s->most[g];
        tile_logits(c, page, first, g, s, z);
        for (uint32_t i = 0; i < TILE; i++) most = z[i] > most ? z[i] : most;
        if (most > s->most[g]) s->total[g] *= exp((double)s->most[g] - (double)most);
        s->most[g] = most;
        for (uint32_t i = 0; i < TILE; i++)
            if (z[i] > -INFINITY) s->total[g] += exp((double)z[i] - (double)most);
    }
}

static void score_tile(const pleat_cache *c, const pleat__tracked *page, uint32_t first,
                       const pleat__expected_scratch *s, float *scores) {
    float z[TILE], lengths[TILE];
    double sums[TILE] = {0};
    pleat__value_lengths(s->v, c->opt.head_dim, lengths);
    for (uint32_t g = 0; g < c->n_group; g++) {
        tile_logits(c, page, first, g, s, z);
        for (uint32_t i = 0; i < TILE; i++)
            if (z[i] > -INFINITY) sums[i] += exp((double)z[i] - (double)s->most[g]) / s->total[g];
    }
    for (uint32_t i = 0; i < TILE; i++) {
        const float score = (float)(sums[i] / c->n_group * (double)lengths[i]);
        scores[i] = score > FLT_MIN ? score : FLT_MIN; /* no number, too, where logits have left f32 */
    }
}

static void load_tile(const pleat_cache *c, const pleat__kv_run *run, uint32_t slot, bool has_values,
                      const pleat__expected_scratch *s) {
    const uint32_t tokens = run->layout->tokens;
    const uint8_t *page = pleat__kv_page(run, slot / tokens);
    c->quant.load_k(run->layout, page, slot % tokens / TILE, s->k);
    if (pleat__cache_is_rotated(c)) pleat__rotate_tile_back(s->k, c->opt.head_dim);
    if (has_values) c->quant.load_v(run->layout, page, slot % tokens / TILE, s->v);
}

void pleat__expected_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                               pleat__expected_scratch *s) {
    const pleat__sequence *seq = item->seq;
    const uint32_t layer = lane / c->opt.n_kv_heads, head = lane % c->opt.n_kv_heads, d = c->opt.head_dim;
    const uint32_t full_idx = pleat__full_idx(c, layer), set = true_set(seq, full_idx, seq->n_tokens);
    const pleat__kv_run run = pleat__cache_open_run(c, &seq->table, lane, PLEAT__HIGH);
    pleat__tracked page;
    for (uint32_t g = 0; g < c->n_group; g++) {
        const float *sum = set_of(c, seq, full_idx, set) + ((size_t)head * c->n_group + g) * 2 * d;
        pleat__query_expect(&c->kept.novelty.turns[layer], seq->n_tokens, counts_of(seq, full_idx)[set].n, sum, sum + d,
                            d, c->scale, s->m + (size_t)g * d, s->s + (size_t)g * d);
        s->most[g] = -INFINITY;
        s->total[g] = 0;
    }
    for (uint32_t pass = 0; pass < 2; pass++)
        for (pleat__page_walk walk = pleat__walk_pages(&run); pleat__next_page(&walk, &page);)
            for (uint32_t i = 0; i < page.n; i += TILE) {
                load_tile(c, &run, page.first + i, pass == 1, s);
                uint8_t *bytes = pleat__kv_page(&run, page.first / run.layout->tokens);
                if (pass == 0)
                    add_tile(c, &page, i, s);
                else
                    score_tile(c, &page, i, s, pleat__scores(run.layout, bytes) + i);
            }
}
