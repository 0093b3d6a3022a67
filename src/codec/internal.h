/* SPDX-License-Identifier: MIT
 *
 * internal.h: what the files of codec/ share: the parts of a payload, and the coders.
 */
#ifndef PLEAT_CODEC_INTERNAL_H
#define PLEAT_CODEC_INTERNAL_H

#include <string.h>

#include "codec/block.h"
#include "codec/pack.h"
#include "core/compiler.h"

/* Bytes before the units: sum and the two sections' words. */
#define PLEAT__BLOCK_HEADER_BYTES 12u

/* Bits that the largest code takes; 1..8 for 2..256 levels. */
static inline uint32_t pleat__code_bits(uint32_t n_levels) { return 32u - (uint32_t)__builtin_clz(n_levels - 1); }

static inline uint32_t pleat__load_u32(const uint8_t *at) {
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}
static inline uint16_t pleat__load_u16(const uint8_t *at) {
    uint16_t x;
    memcpy(&x, at, sizeof x);
    return x;
}
static inline uint64_t pleat__load_u64(const uint8_t *at) {
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline uint32_t pleat__block_order_bytes(const pleat__block_format *f) {
    return f->coder == PLEAT__CODER_PACK ? f->tokens : 0;
}

/* The header's word of a matrix. */
#define PLEAT__MATRIX_WIDE 4u
static inline uint32_t pleat__matrix_word(size_t section_bytes, bool is_wide, pleat__block_coder coder) {
    return (uint32_t)section_bytes << 3 | (is_wide ? PLEAT__MATRIX_WIDE : 0) | coder;
}
static inline uint32_t pleat__matrix_section_bytes(uint32_t word) { return word >> 3; }
static inline uint32_t pleat__matrix_coder(uint32_t word) { return word & 3; }
static inline size_t pleat__matrix_unit_bytes(uint32_t word, uint32_t n_units) {
    return (size_t)n_units * (word & PLEAT__MATRIX_WIDE ? 4 : 2);
}

/* What stands before the sections. */
static inline size_t pleat__block_fixed_bytes(const pleat__block_format *f, uint32_t k_word, uint32_t v_word) {
    return PLEAT__BLOCK_HEADER_BYTES + pleat__matrix_unit_bytes(k_word, pleat__block_k_units(f)) +
           pleat__matrix_unit_bytes(v_word, pleat__block_v_units(f)) + pleat__block_order_bytes(f);
}

/* ---- sums (codebooks.c) ------------------------------------------------------------------------------ */

/* What a payload's sum begins with. */
uint32_t pleat__block_seed(const pleat__block_format *format, const pleat__block_codebooks *codebooks);

/* ---- COMPACT units (units.c) -------------------------------------------------------------------------- */

/* Units on grids as n words of 16 bits at out. */
void pleat__units_pack(const uint16_t *mins, const uint16_t *steps, uint32_t n, uint8_t *out);

/* And back, two at a time: for an odd n the arrays have room for one more, and so has what is read. */
void pleat__units_expand(const uint8_t *units, uint32_t n, uint8_t *mins, uint8_t *steps);

/* ---- RAW (raw.c) ------------------------------------------------------------------------------------ */

static inline size_t pleat__raw_bytes(uint32_t n_bits, uint32_t n_vectors) { return (size_t)8 * n_bits * n_vectors; }

void pleat__raw_encode(const uint8_t *codes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);
void pleat__raw_decode_ref(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);
void pleat__raw_decode_avx2(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);
void pleat__raw_decode_avx512(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);
void pleat__raw_decode_neon(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);

typedef void (*pleat__raw_decode_fn)(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out);

/* decode() with a constant for the usual numbers of bits, so that its loop over planes is unrolled. */
INLINE void pleat__raw_decode_by(pleat__raw_decode_fn decode, const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors,
                                 uint8_t *out) {
    switch (n_bits) {
        case 1: decode(bytes, 1, n_vectors, out); break;
        case 2: decode(bytes, 2, n_vectors, out); break;
        case 3: decode(bytes, 3, n_vectors, out); break;
        case 4: decode(bytes, 4, n_vectors, out); break;
        case 5: decode(bytes, 5, n_vectors, out); break;
        default: decode(bytes, n_bits, n_vectors, out); break;
    }
}

/* ---- PACK (pack.c, pack.h) -------------------------------------------------------------------------- */

/* Bits of a width, 0 .. code bits. */
static inline uint32_t pleat__pack_width_bits(uint32_t code_bits) { return pleat__code_bits(code_bits + 1); }

/* Packs of n_vectors. */
static inline uint32_t pleat__pack_count(uint32_t n_vectors) { return n_vectors * 64 / PLEAT__PACK_CODES; }

/* Encode codes in the order of vectors; returns the bytes, less than 2 for each code. */
size_t pleat__pack_encode(const uint8_t *codes, uint32_t n_levels, bool is_values, uint32_t n_columns,
                          uint32_t n_vectors, uint8_t *out);

/* Which token is to stand at which place, from rows of codes [T][d]. */
void pleat__pack_order(const pleat__block_format *format, const uint8_t *k_rows, const uint8_t *v_rows, uint8_t *order);

/* How a variant decodes a slice of n_packs; `constants` are its own. */
typedef void (*pleat__pack_slice_fn)(const void *constants, const pleat__pack_slice *slice, uint32_t n_packs,
                                     uint8_t *out);

typedef struct pleat__pack_ops {
    pleat__pack_numbers_fn numbers;
    pleat__pack_slice_fn keys, values;
} pleat__pack_ops;

/* Decode slice by slice with a variant's functions.  Zeros from where the section is damaged, which is marked. */
void pleat__pack_decode_by(const pleat__pack_ops *ops, const void *constants, pleat__section *section,
                           uint32_t n_vectors, uint8_t *out);

void pleat__pack_decode_ref(pleat__section *section, uint32_t n_vectors, uint8_t *out);
void pleat__pack_decode_avx2(pleat__section *section, uint32_t n_vectors, uint8_t *out);
void pleat__pack_decode_vbmi2(pleat__section *section, uint32_t n_vectors, uint8_t *out);
void pleat__pack_decode_neon(pleat__section *section, uint32_t n_vectors, uint8_t *out);

#endif
