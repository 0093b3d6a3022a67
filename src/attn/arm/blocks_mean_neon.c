/* SPDX-License-Identifier: MIT
 *
 * blocks_mean_neon.c: see blocks_mean.h, whose registers of four are NEON's.
 */
#include "attn/blocks_mean.h"

void pleat__blocks_mean_neon(const pleat__blocks_means *means) { pleat__add_means(means); }
