/* SPDX-License-Identifier: MIT
 *
 * expected.h: how much of the attention to come a token can expect.  What expected ranks tokens by: Expected Attention
 * (Devoto et al. 2025, arXiv 2510.00636), as NVIDIA's kvpress has it.
 *
 *     q0 = R(-p) q            the query of position p as it was before RoPE
 *     mean, square            of q0 by channel, over the sequence's queries so far but for the first four
 *     m = mean over the next 512 positions p of R(p) mean
 *     s                       of both channels of a pair: half of  its squares' sum - its m's squares' sum,  at least 0;
 *                             of a channel that does not turn  square - m^2
 *     z = scale k.m + scale^2/2 sum over channels of s k^2            log of what a normal query gives, on the mean
 *     score = |v| times the mean over the group's query heads of  exp(z) / sum of exp(z) over the lane's tokens
 *
 * Theirs has the covariance matrix of q0, turned by the mean turn on both sides.  Here pairs are independent, and what the
 * turns to come take from a pair's mean they give to its spread: d numbers a query head in place of d*d.
 * Their softmax leaves out the first four tokens.
 *
 * Pure functions of what they are handed.
 */
#ifndef PLEAT_POLICY_EXPECTED_H
#define PLEAT_POLICY_EXPECTED_H

#include "policy/novelty.h"

#define PLEAT__EXPECTED_SKIPPED 4u /* first queries of a sequence */

/* A query [head_dim] of a position joins the sums [head_dim] of q0 and of squares. */
void pleat__query_add(const pleat__turns *turns, uint32_t position, const float *q, uint32_t head_dim, float *sum,
                      float *squares);

/* m and s [head_dim] of what follows n_tokens >= 1 tokens, times scale and scale^2/2, by sums over n queries; zeros if n
 * is 0. */
void pleat__query_expect(const pleat__turns *turns, uint32_t n_tokens, uint32_t n, const float *sum,
                         const float *squares, uint32_t head_dim, float scale, float *m, float *s);

/* z [PLEAT__TILE] of a tile of keys [head_dim][PLEAT__TILE]. */
void pleat__expected_logits(const float *k, uint32_t head_dim, const float *m, const float *s, float *z);

/* |v| [PLEAT__TILE] of a tile of values [PLEAT__TILE][head_dim]. */
void pleat__value_lengths(const float *v, uint32_t head_dim, float *lengths);

#endif
