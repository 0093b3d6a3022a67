/* SPDX-License-Identifier: MIT
 *
 * blocks_mean_avx2.c: see blocks_mean.h.
 */
#define PLEAT__MEAN_BYTES 32
#include "attn/blocks_mean.h"

void pleat__blocks_mean_avx2(const pleat__blocks_means *means) { pleat__add_means(means); }
