/* SPDX-License-Identifier: MIT
 *
 * blocks_rd.h: what attention over blocks of the codec rd (codec/rd.h) does beside that over others: logits of the
 * turned mean key, escapes, and queries in the order of columns.
 *
 *     q.R(t) mean = sum over pairs of  cos(b) X + sin(b) Y        t = middle of the block + b, b = +-0.5, +-1.5, ...
 *         X = A cos(a) + B sin(a)      A = q_x mean_x + q_y mean_y      a: the pair's angle at the middle
 *         Y = B cos(a) - A sin(a)      B = q_y mean_x - q_x mean_y
 *
 * So a block takes its cosines and sines of each pair from a table that is the same for all of them.  Of two places as
 * far from the middle one has the sum of both terms, the other the difference.
 */
#ifndef PLEAT_ATTN_BLOCKS_RD_H
#define PLEAT_ATTN_BLOCKS_RD_H

#include "attn/blocks_walk.h"
#include "codec/rd.h"

/* Bytes of scratch for a call. */
static inline uint64_t pleat__blocks_rd_floats(uint32_t n_group, uint32_t head_dim) {
    return (2 * (uint64_t)n_group + 3) * head_dim + n_group;
}

/* Look at the queries once a call.  memory: pleat__blocks_rd_floats(), kept as w->rd.  Returns queries [G][d] by column. */
float *pleat__blocks_rd_begin(const pleat__rd_lane *lane, const pleat__attn_query *query, float *memory);

/* After the logits of a group's codes: add what the mean and the escapes bring. */
void pleat__blocks_rd_keys(pleat__blocks_walk *w, const pleat__rd_lane *lane, pleat__blocks_mean_fn add_means);

/* After the values of a group's codes: add what the escapes bring. */
void pleat__blocks_rd_values(pleat__blocks_walk *w, const pleat__rd_lane *lane);

/* After all groups, where values are coded in a basis: what their components make goes into acc. */
void pleat__blocks_rd_end(pleat__blocks_walk *w, const pleat__rd_lane *lane, pleat__attn_acc *acc);

#endif
