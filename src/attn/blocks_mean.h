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

/* Cosines and sines of the block's first position, in the order of the means: all heads turn by them. */
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
enum { PLEAT__MEAN_FLOATS = PLEAT__MEAN_BYTES / sizeof(float), PLEAT__MEAN_PART = 4 };

INLINE pleat__mean_vector pleat__mean_load(const float *p) {
    pleat__mean_vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* logits[0..63] += flat + the mean's, four registers at a time.  Cosines and sines have sums of their own: half as long a
 * chain of additions. */
INLINE void pleat__mean_add(const pleat__rd_lane *lane, const float *xy, float flat, float *logits) {
    const uint32_t n = lane->n_means;
    for (uint32_t from = 0; from < PLEAT__RD_TOKENS; from += PLEAT__MEAN_PART * PLEAT__MEAN_FLOATS) {
        pleat__mean_vector sum[PLEAT__MEAN_PART], of_sines[PLEAT__MEAN_PART] = {{0}};
        UNROLL
        for (uint32_t p = 0; p < PLEAT__MEAN_PART; p++)
            sum[p] = pleat__mean_load(logits + from + p * PLEAT__MEAN_FLOATS) + flat;
        for (uint32_t i = 0; i < n; i++) {
            const float *near = lane->turns->near + (size_t)(2 * lane->mean_pair[i]) * PLEAT__RD_TOKENS + from;
            UNROLL
            for (uint32_t p = 0; p < PLEAT__MEAN_PART; p++) {
                sum[p] += pleat__mean_load(near + p * PLEAT__MEAN_FLOATS) * xy[i];
                of_sines[p] += pleat__mean_load(near + PLEAT__RD_TOKENS + p * PLEAT__MEAN_FLOATS) * xy[n + i];
            }
        }
        UNROLL
        for (uint32_t p = 0; p < PLEAT__MEAN_PART; p++) {
            sum[p] += of_sines[p];
            memcpy(logits + from + p * PLEAT__MEAN_FLOATS, &sum[p], sizeof sum[p]);
        }
    }
}

INLINE void pleat__add_means(const pleat__blocks_means *m) {
    for (uint32_t b = 0; b < m->n_blocks; b++) {
        pleat__mean_angles(m, m->blocks[b]);
        for (uint32_t h = 0; h < m->n_heads; h++) {
            pleat__mean_turn(m->lane->n_means, m->cosines, m->ab + (size_t)h * m->lane->head_dim, m->xy);
            pleat__mean_add(m->lane, m->xy, m->flat[h], m->logits + (size_t)h * m->row + b * PLEAT__RD_TOKENS);
        }
    }
}

#endif
