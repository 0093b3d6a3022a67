/* SPDX-License-Identifier: MIT
 *
 * blocks_mean_avx512.c: see blocks_mean.h.
 */
#define PLEAT__MEAN_BYTES 64
#include "attn/blocks_mean.h"

void pleat__blocks_mean_avx512(const pleat__blocks_means *means) { pleat__add_means(means); }
