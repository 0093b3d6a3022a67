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
    uint8_t *has_layer;       /* [n_layers] 0: nothing is known of it */
    pleat_stats_scale *scale; /* [n_layers] */
    float *fields;            /* [n_layers][n_kv_heads][PLEAT__STATS_FIELDS][head_dim] */
    pleat__rd_books books;
    void *block;
    uint64_t block_bytes;
};

/* Empty ones of this shape: zeros, and scales of 1.  PLEAT_E_MEMORY. */
pleat_status pleat__stats_create(uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim,
                                 const pleat_allocator *allocator, pleat_stats **out);

/* Once all is there: sums of books, where their codes stand, and the fingerprint. */
void pleat__stats_seal(pleat_stats *stats);

static inline float *pleat__stats_field(const pleat_stats *s, uint32_t layer, uint32_t head, uint32_t field) {
    const size_t lane = (size_t)layer * s->n_kv_heads + head;
    return s->fields + (lane * PLEAT__STATS_FIELDS + field) * s->head_dim;
}

static inline pleat__rd_source pleat__stats_source(const pleat_stats *s, uint32_t layer, uint32_t head) {
    return (pleat__rd_source){pleat__stats_field(s, layer, head, 0), pleat__stats_field(s, layer, head, 1),
                              pleat__stats_field(s, layer, head, 2), pleat__stats_field(s, layer, head, 3)};
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

/* Sums over a lane's tokens; of a pair's halves x and y, and the cosine c and sine s of its angle. */
typedef struct pleat__moments {
    double n;             /* tokens */
    double n_q;           /* tokens times query heads */
    double *qq;           /* [d] squares of queries */
    double *kk;           /* [d] squares of keys */
    double *k;            /* [d] keys, of what does not turn */
    double *kc;           /* [d] keys times cosines */
    double *ks;           /* [d] keys times sines */
    double *cc, *ss, *cs; /* [d/2] */
    double *vv;           /* [d] squares of values over their token's mean square */
} pleat__moments;

void pleat__moments_carve(uint32_t head_dim, pleat__moments *m, pleat__arena *arena);
/* cosines, sines: [n_pairs] of the token's position; turned keys have been scaled by 1/magnitude. */
void pleat__moments_add(pleat__moments *m, const pleat__rd_turns *turns, const double *cosines, const double *sines,
                        uint32_t head_dim, uint32_t n_heads, double unscale, const float *q, size_t q_stride,
                        const float *k, const float *v);
/* The lane's fields. */
void pleat__moments_finish(const pleat__moments *m, const pleat__rd_turns *turns, uint32_t head_dim, float magnitude,
                           float *const fields[PLEAT__STATS_FIELDS]);

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

/* The codebook of a class: of those with fewer and more codes and escapes the one that takes the fewest bits. */
void pleat__rd_book_choose(const pleat__pair_counts *counts, uint32_t class, pleat__codebook *book);

#endif
