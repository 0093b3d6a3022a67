/* SPDX-License-Identifier: MIT
 *
 * blocks_mean.h: logits of the turned mean key (blocks_rd.h), as loops that compilers turn into the vector instructions
 * of the file that includes it.
 */
#ifndef PLEAT_ATTN_BLOCKS_MEAN_H
#define PLEAT_ATTN_BLOCKS_MEAN_H

#include <string.h>

#include "attn/blocks_rd.h"
#include "core/compiler.h"

/* Cosines and sines of the block's middle, in the order of the means: all heads turn by them. */
INLINE void pleat__mean_angles(const pleat__blocks_means *m, uint32_t block) {
    const pleat__rd_lane *lane = m->lane;
    const uint32_t n = lane->n_means, n_pairs = lane->turns->n_pairs;
    const float *cosines = lane->turns->far + (size_t)(2 * block) * n_pairs, *sines = cosines + n_pairs;
    for (uint32_t i = 0; i < n; i++) {
        m->cosines[i] = cosines[lane->mean_pair[i]];
        m->cosines[n + i] = sines[lane->mean_pair[i]];
    }
}

/* X and Y of n means of one head.  cosines, ab and xy: [2][n]. */
INLINE void pleat__mean_turn(size_t n, const float *restrict cosines, const float *restrict ab, float *restrict xy) {
    for (size_t i = 0; i < n; i++) {
        xy[i] = ab[i] * cosines[i] + ab[n + i] * cosines[n + i];
        xy[n + i] = ab[n + i] * cosines[i] - ab[i] * cosines[n + i];
    }
}

/* Floats of a register; the file that includes this may have said how many bytes. */
#ifndef PLEAT__MEAN_BYTES
#define PLEAT__MEAN_BYTES 16
#endif
typedef float pleat__mean_vector __attribute__((vector_size(PLEAT__MEAN_BYTES)));
enum {
    PLEAT__MEAN_FLOATS = PLEAT__MEAN_BYTES / sizeof(float),
    PLEAT__MEAN_PART = 2, /* registers of places, of cosines and of sines */
    PLEAT__MEAN_HEADS = 2 /* that take a table's entries together */
};

INLINE pleat__mean_vector pleat__mean_load(const float *p) {
    pleat__mean_vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Sums of cosines times X and of sines times Y, of some places from the block's middle.  xy: [n_heads][2][n]. */
INLINE void pleat__mean_sums(const pleat__rd_lane *lane, uint32_t n_heads, const float *xy, uint32_t from,
                             float cosines[][PLEAT__RD_HALF], float sines[][PLEAT__RD_HALF]) {
    const uint32_t n = lane->n_means;
    pleat__mean_vector c[PLEAT__MEAN_HEADS][PLEAT__MEAN_PART] = {{{0}}},
                       s[PLEAT__MEAN_HEADS][PLEAT__MEAN_PART] = {{{0}}};
    for (uint32_t i = 0; i < n; i++) {
        const float *near = lane->turns->near + (size_t)(2 * lane->mean_pair[i]) * PLEAT__RD_HALF + from;
        UNROLL
        for (uint32_t p = 0; p < PLEAT__MEAN_PART; p++) {
            const pleat__mean_vector cosine = pleat__mean_load(near + p * PLEAT__MEAN_FLOATS);
            const pleat__mean_vector sine = pleat__mean_load(near + PLEAT__RD_HALF + p * PLEAT__MEAN_FLOATS);
            UNROLL
            for (uint32_t h = 0; h < n_heads; h++) {
                c[h][p] += cosine * xy[2 * h * n + i];
                s[h][p] += sine * xy[(2 * h + 1) * n + i];
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_heads * PLEAT__MEAN_PART; i++) {
        const uint32_t h = i / PLEAT__MEAN_PART, p = i % PLEAT__MEAN_PART;
        memcpy(cosines[h] + from + p * PLEAT__MEAN_FLOATS, &c[h][p], sizeof c[h][p]);
        memcpy(sines[h] + from + p * PLEAT__MEAN_FLOATS, &s[h][p], sizeof s[h][p]);
    }
}

/* logits[0..63] += flat + the mean's. */
INLINE void pleat__mean_spread(const float *restrict cosines, const float *restrict sines, float flat,
                               float *restrict logits) {
    for (size_t i = 0; i < PLEAT__RD_HALF; i++) logits[PLEAT__RD_HALF + i] += flat + (cosines[i] + sines[i]);
    for (size_t i = 0; i < PLEAT__RD_HALF; i++) {
        const size_t j = PLEAT__RD_HALF - 1 - i;
        logits[i] += flat + (cosines[j] - sines[j]);
    }
}

/* n_heads heads, PLEAT__MEAN_HEADS at most, from `head` on. */
INLINE void pleat__mean_add(const pleat__blocks_means *m, uint32_t block_idx, uint32_t head, uint32_t n_heads) {
    const pleat__rd_lane *lane = m->lane;
    float cosines[PLEAT__MEAN_HEADS][PLEAT__RD_HALF], sines[PLEAT__MEAN_HEADS][PLEAT__RD_HALF];
    UNROLL
    for (uint32_t h = 0; h < n_heads; h++)
        pleat__mean_turn(lane->n_means, m->cosines, m->ab + (size_t)(head + h) * lane->head_dim,
                         m->xy + (size_t)h * 2 * lane->n_means);
    for (uint32_t from = 0; from < PLEAT__RD_HALF; from += PLEAT__MEAN_PART * PLEAT__MEAN_FLOATS)
        pleat__mean_sums(lane, n_heads, m->xy, from, cosines, sines);
    UNROLL
    for (uint32_t h = 0; h < n_heads; h++)
        pleat__mean_spread(cosines[h], sines[h], m->flat[head + h],
                           m->logits + (size_t)(head + h) * m->row + block_idx * PLEAT__RD_TOKENS);
}

INLINE void pleat__add_means(const pleat__blocks_means *m) {
    for (uint32_t b = 0; b < m->n_blocks; b++) {
        pleat__mean_angles(m, m->blocks[b]);
        uint32_t head = 0;
        for (; head + PLEAT__MEAN_HEADS <= m->n_heads; head += PLEAT__MEAN_HEADS)
            pleat__mean_add(m, b, head, PLEAT__MEAN_HEADS);
        if (head < m->n_heads) pleat__mean_add(m, b, head, 1);
    }
}

#endif
