/* SPDX-License-Identifier: MIT
 *
 * pack.h: a PACK section slice by slice, for what multiplies its fields where they stand.  pack.c has the format.
 */
#ifndef PLEAT_CODEC_PACK_H
#define PLEAT_CODEC_PACK_H

#include "codec/block.h"

/* Codes of a pack. */
#define PLEAT__PACK_CODES 16u
/* Most packs of a slice: dimensions of a key, places of a row of values. */
#define PLEAT__SLICE_PACKS 512u

/* The packs of one slice.  Pack p has PLEAT__PACK_CODES fields of widths[p] <= 8 bits, which follow those of the packs
 * before it; a code is its field plus mins[p].  PLEAT__STREAM_PAD bytes behind the fields can be read. */
typedef struct pleat__pack_slice {
    const uint8_t *fields;
    uint8_t widths[PLEAT__SLICE_PACKS], mins[PLEAT__SLICE_PACKS];
} pleat__pack_slice;

/* How a variant reads n numbers of n_bits = 0..8 at `at`; n is a multiple of 16. */
typedef void (*pleat__pack_numbers_fn)(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *out);
/* Needs PLEAT_CPU_AVX2. */
void pleat__pack_numbers_avx2(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *out);

/* The next slice of a section, which is moved behind it.  False: the section is damaged, and marked so; all codes of
 * the slice are zeros. */
bool pleat__pack_next(pleat__section *section, pleat__pack_numbers_fn numbers, pleat__pack_slice *slice);

#endif
