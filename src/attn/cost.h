/* SPDX-License-Identifier: MIT
 *
 * cost.h: instructions of the decode kernels, counted from their code; what include/pleat/cost.h sums up.
 *
 * Counted are vector instructions on the units that do arithmetic, for 16 tokens (a tile).  Loads are left out: they
 * have units of their own and are counted as lines.  So are the ANDs and shifts that unpack codes: they run beside the
 * dot products, which wait for each other; k4v4 takes no longer than k8v8 in cache (Xeon with AMX, 2026-11).
 *
 *     integer codes    dots for 4 dimensions (keys) or 4 tokens (values), 16 elements and one head
 *     floats           fmas for 16 products of one head, converts for 16 halves, whatever the heads of their block
 *
 * With d dimensions, G heads in B blocks of 4, 2 and 1:
 *
 *     products of a tile, integer    dots * d/4 * G, for keys and for values each
 *     products of a tile, float      d * (fmas*G + converts*B), for keys and for values each
 *     softmax of a tile              weigh * G + reduce * B / (tiles of a group)
 */
#ifndef PLEAT_ATTN_COST_H
#define PLEAT_ATTN_COST_H

#include "attn/attn.h"

typedef struct pleat__attn_counts {
    uint32_t flags; /* PLEAT_CPU_ bits that the variant needs, all of them */
    double dots;    /* both limbs */
    double fmas;
    double converts;
    double fold;        /* a group's sums into o: for 16 dimensions of one head */
    double weigh_int;   /* logit to weight, for 16 tokens of one head: scale, mask, exp2, sums, two limbs */
    double weigh_float; /* logit to weight, for values that are floats: mask, exp2, sums */
    double reduce;      /* the group's largest and sums across a register, for one block of heads */
} pleat__attn_counts;

/* The variant that decode attention of this format uses on a CPU with these flags. */
const pleat__attn_counts *pleat__attn_counts_of(uint32_t cpu_flags, pleat_format format);

/* Blocks that n_group heads are cut into. */
uint32_t pleat__attn_head_blocks(uint32_t n_group);

#endif
