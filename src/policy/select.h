/* SPDX-License-Identifier: MIT
 *
 * select.h: the best of a lane's slots: those of the highest rank, the older among equals.
 */
#ifndef PLEAT_POLICY_SELECT_H
#define PLEAT_POLICY_SELECT_H

#include "core/half.h"
#include "core/kv_view.h"

/* A float's bits as an integer: of floats that are not negative they have the same order. */
static inline int32_t pleat__rank_bits(float x) { return (int32_t)pleat__f32_bits(x); }

/* The k-th largest of those of x[0..n) that are not negative, of which there are at least k >= 1. */
float pleat__kth_largest(const float *x, uint32_t n, uint32_t k);

/* How many of x[0..n) have bits that are, as an integer, at least `least`: those that are not negative have the order
 * of their bits, and with least >= 0 no others count. */
uint32_t pleat__count_reach(const float *x, uint32_t n, int32_t least);

/* Of the run's slots with ranks[slot] >= 0 (finite) mark the k of the highest rank, ties to the older token; all of
 * them if there are no more than k.  marks[slot] = mark for these, others are left alone.  ranks, scratch, marks:
 * [n_slots]; scratch may be ranks, which are lost then.  n_tokens: above every position. */
void pleat__select_top(const pleat__kv_run *run, const float *ranks, uint32_t k, uint32_t n_tokens, uint8_t mark,
                       uint8_t *marks, float *scratch);

#endif
