/* SPDX-License-Identifier: MIT
 *
 * basis.h: bases in which a lane's keys and values are coded: the directions of their covariance (Karhunen and Loeve).
 *
 *     keys      y = K r     K = U^T G^T     G G^T = E[q q^T]/d + ridge, U: eigenvectors of G^T E[r r^T] G
 *     values    y = V v     V: eigenvectors of E[v v^T / rms(v)^2]
 *
 * An error of y costs a logit as much in any direction, and components of y are not correlated.
 */
#ifndef PLEAT_STATS_BASIS_H
#define PLEAT_STATS_BASIS_H

#include "core/types.h"

/* Numbers of scratch for a basis of d dimensions. */
static inline uint64_t pleat__basis_scratch(uint32_t d) { return 4 * (uint64_t)d * d + d; }

/* to: [d][d] of f16's precision, a component's row of the basis in each column; spread: [d] their deviations, the
 * largest first. */
void pleat__basis_of_keys(const double *queries, const double *residuals, uint32_t d, double *scratch, float *to,
                          float *spread);
void pleat__basis_of_values(const double *values, uint32_t d, double *scratch, float *to, float *spread);

/* What undoes one: x = sum of y_i from[i]; query: the same with rows and columns exchanged, unless it is NULL.  False:
 * there is none. */
bool pleat__basis_undo(const float *to, uint32_t d, double *scratch, float *from, float *query);

#endif
