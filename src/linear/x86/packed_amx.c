/* SPDX-License-Identifier: MIT
 *
 * packed_amx.c: linear.h's kernels for packed matrices on AMX's tiles of bytes; few step rows, those that do not
 * stand at equal distances, and types whose slices have two scales go to packed_avx512.c.
 *
 * A slice of bytes lies in memory as a tile wants its second factor: [8][16 rows][4 columns]; planes of bits become
 * that first.  The first factors are the high or the low limbs of up to 16 step rows, where code() left them, one row
 * every `stride` bytes:
 *
 *     tiles     high [step rows][16 rows] and low, one product each, through memory into registers
 *     AVX-512   sums = high * 256 + low;   add_scaled() of packed_codes.h
 *
 * One limb is the high one alone, and its sums are the sums.
 *
 * Sums are exact and an acc adds what packed_avx512.c's adds, in its order: the bits are the same.
 *
 * Measured in L2, Q8_0, Granite Rapids, one core, 2026-11: a block of 16 step rows takes 39 ns (VNNI 70).  23 of these
 * are the tiles, of which the products are 10, and 15 adding up; they hardly overlap, in whatever order the
 * instructions stand.  A tile of few rows takes as long to store as a full one.  Two strips for 8 step rows, which read
 * fewer bytes, are slower.
 */
#define VECTOR_BYTES 64

#include "core/x86/amx.h"
#include "linear/linear_variants.h"
#include "linear/x86/packed_codes.h"

#define MAX_C 16

#define FEWEST 6u /* step rows for which tiles are faster; at least 4 */

/* How far before the bytes in use lines are asked for, the first time that weights are read. */
#define FAR_BYTES 8192

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Registers: sums of blocks in turn, the step rows' limbs and the weights. */
#define HIGH_0 0
#define LOW_0 1
#define HIGH_1 2
#define LOW_1 3
#define X_HIGH 4
#define X_LOW 5
#define WEIGHTS 6
#define N_TILES 7

/* A block's sums: [step row][row]. */
typedef struct block_sums {
    _Alignas(64) int32_t high[MAX_C][ROWS], low[MAX_C][ROWS];
} block_sums;

/* For n step rows. */
static void configure(uint32_t n) {
    pleat__amx_config config = {.palette = 1};
    for (int t = 0; t < N_TILES; t++) {
        config.rows[t] = (uint8_t)(t == WEIGHTS ? SLICE / 4 : n);
        config.row_bytes[t] = t == X_HIGH || t == X_LOW ? SLICE : 4 * ROWS;
    }
    PLEAT__AMX_READS(&config);
    _tile_loadconfig(&config);
}

/* The slice at p as bytes; planes of bits are joined in `buffer` [512]. */
INLINE const uint8_t *slice_codes(pleat__weight_type type, const uint8_t *p, uint8_t *buffer) {
    if (pleat__low_lines(type) == SLICE / 4) return p;
    UNROLL
    for (uint32_t k = 0; k < SLICE / 4; k++) _mm512_store_si512(buffer + LINE_BYTES * k, codes4(type, p, k, 0));
    PLEAT__AMX_READS(buffer);
    return buffer;
}

/* The products of a block, as sums of its turn, 0 or 1. */
INLINE void dot_block(const uint32_t n_limbs, const int turn, const uint8_t *w, const pleat__coded *x,
                      ptrdiff_t stride) {
    _tile_loadd(WEIGHTS, w, 4 * ROWS);
    _tile_loadd(X_HIGH, x->codes.limbs.high, stride);
    if (n_limbs == 2) _tile_loadd(X_LOW, x->codes.limbs.low, stride);
    PLEAT__AMX_READS(w);
    if (turn == 0) {
        _tile_zero(HIGH_0);
        _tile_dpbsud(HIGH_0, X_HIGH, WEIGHTS);
        if (n_limbs == 1) return;
        _tile_zero(LOW_0);
        _tile_dpbsud(LOW_0, X_LOW, WEIGHTS);
    } else {
        _tile_zero(HIGH_1);
        _tile_dpbsud(HIGH_1, X_HIGH, WEIGHTS);
        if (n_limbs == 1) return;
        _tile_zero(LOW_1);
        _tile_dpbsud(LOW_1, X_LOW, WEIGHTS);
    }
}

INLINE void store_sums(const uint32_t n_limbs, const int turn, block_sums *sums) {
    if (turn == 0) {
        _tile_stored(HIGH_0, sums->high, 4 * ROWS);
        if (n_limbs == 2) _tile_stored(LOW_0, sums->low, 4 * ROWS);
    } else {
        _tile_stored(HIGH_1, sums->high, 4 * ROWS);
        if (n_limbs == 2) _tile_stored(LOW_1, sums->low, 4 * ROWS);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Step rows at equal distances. */
typedef struct step_rows {
    const uint8_t *x; /* the first one's codes */
    ptrdiff_t stride; /* bytes */
    uint32_t n;       /* 4..MAX_C */
    bool are_first;   /* to meet these weights, which come from memory then */
} step_rows;

/* Step rows are added up in groups of 4; the last group is the last 4 rows, though the one before may have some. */
INLINE uint32_t first_of(uint32_t group, const uint32_t n_groups, uint32_t n) {
    return group + 1 < n_groups ? 4 * group : n - 4;
}

/* Add the products of slice b, whose record is there; x is the first step row's block. */
INLINE void add_block(pleat__weight_type type, const uint32_t n_limbs, const uint32_t n_groups, const block_sums *sums,
                      const uint8_t *record, uint32_t b, const uint8_t *x, const step_rows *rows, __m512 *acc) {
    const row_scales w = scales_at(type, record, b % pleat__slices_of(type), 0);
    UNROLL
    for (uint32_t c = 0; c < 4 * n_groups; c++) {
        const uint32_t first = first_of(c / 4, n_groups, rows->n), row = first + c % 4;
        const pleat__coded *coded = (const void *)(x + first * rows->stride + c % 4 * rows->stride);
        __m512i all = _mm512_load_si512(sums->high[row]);
        if (n_limbs == 2) all = _mm512_add_epi32(_mm512_slli_epi32(all, 8), _mm512_load_si512(sums->low[row]));
        acc[c] = add_scaled(type, all, &w, coded->scale, coded->total, acc[c]);
    }
}

/* Where the stages of a strip are. */
typedef struct walk {
    const uint8_t *strip;
    const uint8_t *x; /* the first step row's codes for the slice to multiply */
    uint32_t n_slices;
} walk;

/* Multiply slice b, where there is one; bring the sums of b - 1 to memory; add b - 2.  this = b % 2. */
INLINE void take_turn(pleat__weight_type type, const uint32_t n_limbs, const uint32_t n_groups, const int this,
                      uint32_t b, walk *at, const step_rows *rows, block_sums sums[2], __m512 *acc) {
    _Alignas(64) uint8_t buffer[512];
    if (b < at->n_slices) {
        if (rows->are_first) ask_for(type, at->strip + (size_t)b * pleat__slice_bytes(type) + FAR_BYTES);
        const uint8_t *codes = slice_codes(type, at->strip + pleat__codes_at(type, b), buffer);
        dot_block(n_limbs, this, codes, (const void *)at->x, rows->stride);
    }
    if (b - 1 < at->n_slices) store_sums(n_limbs, !this, &sums[!this]);
    if (b - 2 < at->n_slices)
        add_block(type, n_limbs, n_groups, &sums[this], at->strip + pleat__record_at(type, at->n_slices, b - 2), b - 2,
                  at->x - 2 * sizeof(pleat__coded), rows, acc);
    at->x += sizeof(pleat__coded);
}

/* All rows for step rows of n_groups groups. */
INLINE void band(pleat__weight_type type, const uint32_t n_limbs, const uint32_t n_groups, const pleat__matrix *w,
                 uint32_t row_from, uint32_t row_to, const step_rows *rows, float *const *y, bool add) {
    const uint32_t n_slices = w->cols / SLICE;
    block_sums sums[2];
    for (uint32_t r = row_from; r < row_to; r += ROWS) {
        walk at = {.strip = w->data + r * w->row_bytes, .x = rows->x, .n_slices = n_slices};
        __m512 acc[MAX_C];
        UNROLL
        for (uint32_t c = 0; c < 4 * n_groups; c++) acc[c] = _mm512_setzero_ps();
        for (uint32_t b = 0; b < n_slices + 2; b += 2) {
            take_turn(type, n_limbs, n_groups, 0, b, &at, rows, sums, acc);
            take_turn(type, n_limbs, n_groups, 1, b + 1, &at, rows, sums, acc);
        }
        const uint32_t left = row_to - r;
        const __mmask16 live = (__mmask16)(left >= ROWS ? 0xFFFF : (1u << left) - 1);
        UNROLL
        for (uint32_t c = 0; c < 4 * n_groups; c++) {
            const uint32_t row = first_of(c / 4, n_groups, rows->n) + c % 4;
            if (row < c / 4 * 4) continue; /* the group before has it */
            float *to = y[row] + r;
            if (add) acc[c] = _mm512_add_ps(_mm512_maskz_loadu_ps(live, to), acc[c]);
            _mm512_mask_storeu_ps(to, live, acc[c]);
        }
    }
}

static ptrdiff_t distance(const void *from, const void *to) { return (intptr_t)to - (intptr_t)from; }

/* How many of n >= 1 step rows, from the first on, stand at equal distances. */
static uint32_t count_even(const void *const *x, uint32_t n) {
    uint32_t i = 1;
    while (i < n && distance(x[i - 1], x[i]) == distance(x[0], x[1])) i++;
    return i;
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    uint32_t configured = 0, take; /* step rows */
    for (; n > 0; x += take, y += take, n -= take) {
        take = pleat__min_u32(count_even(x, n), MAX_C);
        if (take < FEWEST || pleat__weight_formats[type].has_halves) {
            pleat__linear_mul_packed_avx512(type, n_limbs, w, row_from, row_to, x, y, take, add);
            continue;
        }
        const step_rows rows = {.x = x[0], .stride = distance(x[0], x[1]), .n = take, .are_first = configured == 0};
        if (configured != take) configure(configured = take);
        if (take > 12)
            band(type, n_limbs, 4, w, row_from, row_to, &rows, y, add);
        else if (take > 8)
            band(type, n_limbs, 3, w, row_from, row_to, &rows, y, add);
        else
            band(type, n_limbs, 2, w, row_from, row_to, &rows, y, add);
    }
    if (configured) _tile_release();
}

PACKED_MULS

void pleat__linear_fill_packed_amx(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    pleat__linear_fill_packed_avx512(dsp, n_limbs); /* its code() */
    fill_packed(dsp->mul, packed_muls[n_limbs - 1]);
}
