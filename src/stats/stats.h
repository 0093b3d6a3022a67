/* SPDX-License-Identifier: MIT
 *
 * stats.h: what statistics (pleat/stats.h) are made of, and the collector as a cache sees it.
 *
 *     stats.c      held, as bytes, from bytes
 *     load.c       from a file
 *     moments.c    the collector's first pass: sums over tokens
 *     counts.c     its second: codes by class, and the codebooks that follow
 *     collector.c  both, one behind the other
 */
#ifndef PLEAT_STATS_STATS_H
#define PLEAT_STATS_STATS_H

#include "codec/rd.h"
#include "core/memory.h"
#include "pleat/stats.h"

/* By channel, for each lane: mean, energy, spread, v_rms (codec/rd.h). */
#define PLEAT__STATS_FIELDS 4u

struct pleat_stats {
    pleat_allocator al;
    char model[PLEAT_FINGERPRINT_CAP], fingerprint[PLEAT_FINGERPRINT_CAP];
    uint32_t n_layers, n_kv_heads, head_dim;
    bool has_bases;
    uint32_t n_positions;     /* positions that bases serve; 0: not known, as in files before version 4 */
    uint32_t n_known;         /* layers that something is known of */
    uint8_t *has_layer;       /* [n_layers] 0: nothing is known of it */
    uint32_t *place;          /* [n_layers] of what is known, its place below */
    pleat_stats_scale *scale; /* [n_layers] */
    float *fields;            /* [n_known][n_kv_heads][PLEAT__STATS_FIELDS][head_dim] */
    /* [n_known][n_kv_heads] bases of keys and of values, [2][d][d], and the deviations of what they make, [2][d]; then
     * what undoes them, [2][d][d], and turns queries, [d][d].  NULL: there are none. */
    float *bases;
    pleat__rd_books books;
    void *block;
    uint64_t block_bytes;
};

/* What statistics have room for. */
typedef struct pleat__stats_shape {
    uint32_t n_layers, n_kv_heads, head_dim;
    bool has_bases;
    uint32_t n_positions;
    const uint8_t *has_layer; /* [n_layers] 0: none for this layer */
} pleat__stats_shape;

/* Empty ones: zeros, and scales of 1.  PLEAT_E_MEMORY. */
pleat_status pleat__stats_create(const pleat__stats_shape *shape, const pleat_allocator *allocator, pleat_stats **out);

/* Once all is there: what undoes bases, sums of books, where their codes stand, and the fingerprint.  PLEAT_E_MEMORY;
 * PLEAT_E_FORMAT: a basis is none. */
pleat_status pleat__stats_seal(pleat_stats *stats);

/* Numbers of a lane's bases that a file has, and of all. */
static inline uint64_t pleat__stats_basis_numbers(uint32_t d) { return 2 * ((uint64_t)d * d + d); }
static inline uint64_t pleat__stats_bases_stride(uint32_t d) { return 5 * (uint64_t)d * d + 2 * (uint64_t)d; }

/* What is known of a lane of a layer that something is known of, to be filled in. */
typedef struct pleat__stats_lane {
    float *mean, *energy, *spread, *v_rms;                                /* [d] */
    float *k_to, *v_to, *k_spread, *v_spread, *k_from, *v_from, *k_query; /* NULL: no bases */
} pleat__stats_lane;

static inline pleat__stats_lane pleat__stats_lane_of(const pleat_stats *s, uint32_t layer, uint32_t head) {
    const size_t lane = (size_t)s->place[layer] * s->n_kv_heads + head, d = s->head_dim, n = d * d;
    float *f = s->fields + lane * PLEAT__STATS_FIELDS * d;
    pleat__stats_lane out = {.mean = f, .energy = f + d, .spread = f + 2 * d, .v_rms = f + 3 * d};
    if (!s->has_bases) return out;
    out.k_to = s->bases + lane * pleat__stats_bases_stride(s->head_dim);
    out.v_to = out.k_to + n;
    out.k_spread = out.v_to + n;
    out.v_spread = out.k_spread + d;
    out.k_from = out.v_spread + d;
    out.v_from = out.k_from + n;
    out.k_query = out.v_from + n;
    return out;
}

static inline float *pleat__stats_field(const pleat_stats *s, uint32_t layer, uint32_t head, uint32_t field) {
    return pleat__stats_lane_of(s, layer, head).mean + (size_t)field * s->head_dim;
}

/* Are there statistics, and of a model of this shape?  PLEAT_E_ARG; why: what a cache asks them for. */
pleat_status pleat__stats_check(const pleat_stats *s, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim,
                                const char *why, pleat_error *err);

static inline pleat__rd_source pleat__stats_source(const pleat_stats *s, uint32_t layer, uint32_t head) {
    const pleat__stats_lane l = pleat__stats_lane_of(s, layer, head);
    return (pleat__rd_source){.mean = l.mean,
                              .energy = l.energy,
                              .spread = l.spread,
                              .v_rms = l.v_rms,
                              .k = {l.k_to, l.k_from, l.k_query, l.k_spread},
                              .v = {l.v_to, l.v_from, NULL, l.v_spread}};
}

/* ---- the collector ------------------------------------------------------------------------------------- */

/* Tokens of a sequence that are left out. */
#define PLEAT__STATS_SKIPPED 4u

/* Learn the shape of a cache, or check that it is the one that is known: PLEAT_E_ARG.  PLEAT_E_MEMORY. */
pleat_status pleat__collector_bind(pleat_collector *collector, const pleat_cache_options *opt, pleat_error *err);

/* n tokens of one sequence from position `first` on, in one layer: q [n][n_q_heads][d], k and v [n][n_kv_heads][d]. */
void pleat__collector_see(pleat_collector *collector, uint32_t layer, uint32_t first, uint32_t n, const float *q,
                          const float *k, const float *v);

/* ---- moments.c ------------------------------------------------------------------------------------------- */

/* Sums over a lane's tokens, [d][d] each; of what is multiplied by itself up to the diagonal alone, before they are finished. */
typedef struct pleat__moments {
    double n;   /* tokens */
    double n_q; /* tokens times query heads */
    double *qq; /* queries by queries */
    double *kk; /* keys by keys */
    double *ku; /* keys by turn */
    double *uu; /* turn by turn */
    double *vv; /* values by values, over their token's mean square */
} pleat__moments;

void pleat__moments_carve(uint32_t head_dim, pleat__moments *m, pleat__arena *arena);

/* n tokens of a lane, 8 at most: strides are from a token to the next, and a token's query heads stand side by side.
 * turn: [n][d], by pair the cosine of the position where its first number stands, the sine at the other; else 1. */
#define PLEAT__MOMENTS_BATCH 8u
typedef struct pleat__moments_tokens {
    uint32_t n, n_heads;
    const double *turn;
    const float *q, *k, *v;
    size_t q_stride, kv_stride;
} pleat__moments_tokens;
void pleat__moments_add(pleat__moments *m, uint32_t head_dim, const pleat__moments_tokens *of);

/* What is known of the lane, as if n windows of n_tokens stood one behind the other; rope: NULL where nothing turns;
 * scratch: pleat__moments_scratch() numbers. */
typedef struct pleat__windows {
    uint32_t n_tokens, n;
} pleat__windows;
uint64_t pleat__moments_scratch(uint32_t head_dim);
void pleat__moments_finish(pleat__moments *m, const pleat__rd_turns *turns, const pleat_rope *rope,
                           pleat__windows windows, uint32_t head_dim, double *scratch, const pleat__stats_lane *out);

/* ---- counts.c -------------------------------------------------------------------------------------------- */

/* How often pairs of codes stand beside each other, by class; codes beyond +-15 count as +-16. */
#define PLEAT__STATS_CODES 33u
typedef struct pleat__pair_counts {
    uint64_t n[PLEAT__RD_CLASSES][PLEAT__STATS_CODES][PLEAT__STATS_CODES];
} pleat__pair_counts;

static inline void pleat__pair_counts_add(pleat__pair_counts *counts, uint32_t class, int8_t a, int8_t b) {
    const int x = a < -16 ? -16 : a > 16 ? 16 : a, y = b < -16 ? -16 : b > 16 ? 16 : b;
    counts->n[class][x + 16][y + 16]++;
}

/* Codes of a normal variable of the class's entropy, beside what was counted. */
void pleat__pair_counts_add_normal(pleat__pair_counts *counts, uint32_t class);

/* The codebook of a class: of those with fewer and more codes and escapes the one that takes the fewest bits; of class 0
 * the one that stores nothing. */
void pleat__rd_book_choose(const pleat__pair_counts *counts, uint32_t class, pleat__codebook *book);

#endif
