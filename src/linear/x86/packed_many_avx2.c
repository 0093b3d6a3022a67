/* SPDX-License-Identifier: MIT
 *
 * packed_many_avx2.c: linear.h's kernels for packed matrices and many step rows, with AVX2.
 *
 * Weights become 16 bits wide once for all step rows, whose codes are whole: VPMADDWD multiplies 8 rows by 2 columns, a
 * multiplication and an addition for each 16 products.  Byte products of two limbs (packed_avx2.c) take as many, and
 * widening besides.
 *
 *     for each strip, and 8 slices of it:   factors, 9 KB, which stay in L1 while the step rows pass by
 *     for each 4 step rows, and slice:      sums, exact;   acc += (weights' scales * row's scale) * sums, and minima
 *
 * Sums are exact and acc adds what packed_avx2.c's adds, in its order: the bits are the same.
 */
#include "linear/x86/packed_256.h"

#define GROUP 4 /* step rows at a time: 8 registers of sums */

/* A slice as factors.  Columns are in pairs 0 2 and 1 3 of each four, as words take them out of a register of bytes. */
typedef struct factors {
    _Alignas(32) int16_t values[SLICE / 2][ROWS][2];
    float scale[2][ROWS], min[2][ROWS]; /* of each half; of the slice: [0] */
} factors;

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Slice b of a strip. */
INLINE void expand_slice(pleat__weight_type type, const uint8_t *strip, uint32_t n_slices, uint32_t b, factors *out) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint8_t *p = strip + pleat__codes_at(type, b), *record = strip + pleat__record_at(type, n_slices, b);
    const uint32_t n_scales = f->has_halves ? 2 : 1, s = b % pleat__slices_of(type);
    const __m256i zero = _mm256_set1_epi16((int16_t)(f->has_min ? 0 : 1 << f->zero_shift));
    UNROLL
    for (uint32_t rows = 0; rows < 2; rows++) {
        UNROLL
        for (uint32_t k = 0; k < SLICE / 4; k++) {
            const __m256i codes = codes4(type, p, k, rows);
            const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(codes, 8);
            _mm256_store_si256((__m256i *)(void *)out->values[2 * k][8 * rows], _mm256_sub_epi16(even, zero));
            _mm256_store_si256((__m256i *)(void *)out->values[2 * k + 1][8 * rows], _mm256_sub_epi16(odd, zero));
        }
        UNROLL
        for (uint32_t h = 0; h < n_scales; h++) {
            const row_scales w = scales_at(type, record, n_scales * s + h, rows);
            _mm256_store_ps(out->scale[h] + 8 * rows, w.scale);
            if (f->has_min) _mm256_store_ps(out->min[h] + 8 * rows, w.min);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Sums of a step row for the rows of a strip. */
typedef struct row_sums {
    _Alignas(32) float rows[ROWS];
} row_sums;

/* Add the products of pairs [from, to) of a slice, scaled as half h is, with block b of C step rows. */
INLINE void add_part(const int C, const bool has_halves, const bool has_min, const uint32_t h, const factors *w,
                     const pleat__coded *const *x, uint32_t b, row_sums *acc) {
    const uint32_t from = h * SLICE / 4, to = has_halves ? from + SLICE / 4 : SLICE / 2;
    __m256i sums[GROUP][2];
    UNROLL
    for (int c = 0; c < C; c++) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
    UNROLL
    for (uint32_t pair = from; pair < to; pair++) {
        const __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w->values[pair][0]);
        const __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)w->values[pair][8]);
        UNROLL
        for (int c = 0; c < C; c++) {
            const __m256i two = broadcast_pair(x[c][b].codes.whole + 2 * pair);
            sums[c][0] = _mm256_add_epi32(sums[c][0], _mm256_madd_epi16(w0, two));
            sums[c][1] = _mm256_add_epi32(sums[c][1], _mm256_madd_epi16(w1, two));
            IN_ORDER(sums[c][0]);
            IN_ORDER(sums[c][1]);
        }
    }
    UNROLL
    for (int c = 0; c < C; c++) {
        const __m256 scale = _mm256_set1_ps(x[c][b].scale);
        const __m256 sum = _mm256_set1_ps((float)(has_halves ? x[c][b].sum[h] : x[c][b].total));
        UNROLL
        for (int rows = 0; rows < 2; rows++) {
            float *const to_rows = acc[c].rows + 8 * rows;
            const __m256 scales = _mm256_mul_ps(_mm256_load_ps(w->scale[h] + 8 * rows), scale);
            __m256 a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[c][rows]), scales, _mm256_load_ps(to_rows));
            if (has_min) a = _mm256_fmadd_ps(_mm256_load_ps(w->min[h] + 8 * rows), _mm256_mul_ps(scale, sum), a);
            _mm256_store_ps(to_rows, a);
        }
    }
}

/* Slices [from, from + n) for C step rows. */
INLINE void add_slices(const int C, const bool has_halves, const bool has_min, const factors *w, uint32_t n,
                       const void *const *x, uint32_t from, row_sums *acc) {
    const pleat__coded *xs[GROUP];
    for (int c = 0; c < C; c++) xs[c] = (const pleat__coded *)x[c] + from;
    for (uint32_t b = 0; b < n; b++) {
        add_part(C, has_halves, has_min, 0, w + b, xs, b, acc);
        if (has_halves) add_part(C, has_halves, has_min, 1, w + b, xs, b, acc);
    }
}

/* The same for all step rows; the last group is smaller. */
INLINE void add_rows(const bool has_halves, const bool has_min, const factors *w, uint32_t n_slices,
                     const void *const *x, uint32_t n, uint32_t from, row_sums *acc) {
    for (; n >= GROUP; n -= GROUP, x += GROUP, acc += GROUP)
        add_slices(GROUP, has_halves, has_min, w, n_slices, x, from, acc);
    for (; n > 0; n--, x++, acc++) add_slices(1, has_halves, has_min, w, n_slices, x, from, acc);
}

typedef void (*add_rows_fn)(const factors *w, uint32_t n_slices, const void *const *x, uint32_t n, uint32_t from,
                            row_sums *acc);

#define ADD_ROWS(name, has_halves, has_min)                                                                \
    static void name(const factors *w, uint32_t n_slices, const void *const *x, uint32_t n, uint32_t from, \
                     row_sums *acc) {                                                                      \
        add_rows(has_halves, has_min, w, n_slices, x, n, from, acc);                                       \
    }
ADD_ROWS(add_rows_plain, false, false)
ADD_ROWS(add_rows_min, false, true)
ADD_ROWS(add_rows_halves, true, false)
ADD_ROWS(add_rows_halves_min, true, true)

INLINE add_rows_fn add_rows_of(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    if (f->has_halves) return f->has_min ? add_rows_halves_min : add_rows_halves;
    return f->has_min ? add_rows_min : add_rows_plain;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A strip for up to VECTOR_TILE step rows. */
INLINE void add_strip(pleat__weight_type type, const uint8_t *strip, uint32_t n_slices, const void *const *x,
                      uint32_t n, row_sums *acc) {
    factors cluster[PLEAT__CLUSTER];
    for (uint32_t from = 0; from < n_slices; from += PLEAT__CLUSTER) {
        const uint32_t n_here = pleat__min_u32(PLEAT__CLUSTER, n_slices - from);
        for (uint32_t b = 0; b < n_here; b++) expand_slice(type, strip, n_slices, from + b, &cluster[b]);
        add_rows_of(type)(cluster, n_here, x, n, from, acc);
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    row_sums acc[PLEAT__VECTOR_TILE];
    for (uint32_t at = 0; at < n; at += PLEAT__VECTOR_TILE) {
        const uint32_t n_here = pleat__min_u32(PLEAT__VECTOR_TILE, n - at);
        for (uint32_t r = row_from; r < row_to; r += ROWS) {
            memset(acc, 0, n_here * sizeof *acc);
            add_strip(type, w->data + r * w->row_bytes, w->cols / SLICE, x + at, n_here, acc);
            for (uint32_t c = 0; c < n_here; c++) {
                const __m256 rows[2] = {_mm256_load_ps(acc[c].rows), _mm256_load_ps(acc[c].rows + 8)};
                store_rows(rows, row_to - r, y[at + c] + r, add);
            }
        }
    }
}

PACKED_VARIANTS

static void code(const float *x, uint32_t cols, pleat__coded *out) { code_as(store_whole, x, cols, out); }

void pleat__linear_fill_many_avx2(pleat__linear_dsp *dsp) {
    fill_packed(dsp->mul_many, packed_muls);
    dsp->code_many = code;
    dsp->many_rows = 3;
}
