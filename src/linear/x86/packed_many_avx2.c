/* SPDX-License-Identifier: MIT
 *
 * packed_many_avx2.c: linear.h's kernels for packed matrices and many step rows, with AVX2.
 *
 * Weights become 16 bits wide once for all step rows, whose codes are whole: VPMADDWD multiplies 8 rows by 2 columns, a
 * multiplication and an addition for each 16 products.  Byte products of two limbs (packed_avx2.c) take as many, and
 * widening besides.
 *
 * For one limb weights of up to 6 bits become bytes, and VPMADDUBSW takes 32 products, added up in runs (packed_256.h).
 * Weights of 8 bits stay 16 bits wide, and codes become so for a group of step rows: what two limbs take, and no less.
 *
 *     for each strip, and 8 slices of it:   factors, 9 KB, which stay in L1 while the step rows pass by
 *     for each 4 step rows, and slice:      sums, exact;   acc += (weights' scales * row's scale) * sums, and minima
 *
 * Sums are exact and acc adds what packed_avx2.c's adds, in its order: the bits are the same.
 */
#include "linear/x86/packed_256.h"

#define GROUP 4 /* step rows at a time: 8 registers of sums */

/* A slice as factors.  Columns of pairs are 0 2 and 1 3 of each four, as words take them out of a register of bytes. */
typedef struct factors {
    union {
        _Alignas(32) int16_t pairs[SLICE / 2][ROWS][2];
        _Alignas(32) uint8_t bytes[SLICE / 4][ROWS][4]; /* unsigned, where they are added up in runs */
    } values;
    float scale[2][ROWS], min[2][ROWS]; /* of each half; of the slice: [0] */
} factors;

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Groups in a run of byte products; 0: weights become 16 bits wide. */
INLINE uint32_t many_run_of(pleat__weight_type type, const uint32_t n_limbs) { return n_limbs == 1 ? run_of(type) : 0; }

/* Slice b of a strip. */
INLINE void expand_slice(pleat__weight_type type, const uint32_t n_limbs, const uint8_t *strip, uint32_t n_slices,
                         uint32_t b, factors *out) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint8_t *p = strip + pleat__codes_at(type, b), *record = strip + pleat__record_at(type, n_slices, b);
    const uint32_t n_scales = f->has_halves ? 2 : 1, s = b % pleat__slices_of(type);
    const __m256i zero = _mm256_set1_epi16((int16_t)(f->has_min ? 0 : 1 << f->zero_shift));
    UNROLL
    for (uint32_t rows = 0; rows < 2; rows++) {
        UNROLL
        for (uint32_t k = 0; k < SLICE / 4; k++) {
            const __m256i codes = codes4(type, p, k, rows);
            if (many_run_of(type, n_limbs)) {
                _mm256_store_si256((__m256i *)(void *)out->values.bytes[k][8 * rows], codes);
                continue;
            }
            const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(codes, 8);
            _mm256_store_si256((__m256i *)(void *)out->values.pairs[2 * k][8 * rows], _mm256_sub_epi16(even, zero));
            _mm256_store_si256((__m256i *)(void *)out->values.pairs[2 * k + 1][8 * rows], _mm256_sub_epi16(odd, zero));
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

/* The kinds of types, and what their kernels need to know: constants. */
typedef struct kind {
    bool has_halves, has_min;
    uint32_t n_limbs, run;
    uint32_t zero_shift;
} kind;

/* Sums of half h, or of the slice, of 16 rows with C step rows' codes of 16 bits. */
INLINE void pair_sums(const int C, const kind of, const uint32_t h, const factors *w, const int16_t *const *codes,
                      __m256i sums[GROUP][2]) {
    const uint32_t from = h * SLICE / 4, to = of.has_halves ? from + SLICE / 4 : SLICE / 2;
    UNROLL
    for (int c = 0; c < C; c++) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
    UNROLL
    for (uint32_t pair = from; pair < to; pair++) {
        const __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w->values.pairs[pair][0]);
        const __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)w->values.pairs[pair][8]);
        UNROLL
        for (int c = 0; c < C; c++) {
            const __m256i two = broadcast_pair(codes[c] + 2 * pair);
            sums[c][0] = _mm256_add_epi32(sums[c][0], _mm256_madd_epi16(w0, two));
            sums[c][1] = _mm256_add_epi32(sums[c][1], _mm256_madd_epi16(w1, two));
            IN_ORDER(sums[c][0]);
            IN_ORDER(sums[c][1]);
        }
    }
}

/* The same with C step rows of one limb, of weights that are added up in runs. */
INLINE void run_sums(const int C, const kind of, const uint32_t h, const factors *w, const pleat__coded *const *x,
                     uint32_t b, __m256i sums[GROUP][2]) {
    const uint32_t from = h * SLICE / 8, to = of.has_halves ? from + SLICE / 8 : SLICE / 4;
    __m256i runs[GROUP][2];
    UNROLL
    for (uint32_t k = from; k < to; k++) {
        const bool begins = (k - from) % of.run == 0, ends = (k - from + 1) % of.run == 0 || k + 1 == to;
        const __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w->values.bytes[k][0]);
        const __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)w->values.bytes[k][8]);
        UNROLL
        for (int c = 0; c < C; c++) {
            const __m256i four = broadcast4(x[c][b].codes.one_limb.high + 4 * k);
            const __m256i s0 = _mm256_maddubs_epi16(w0, four), s1 = _mm256_maddubs_epi16(w1, four);
            runs[c][0] = begins ? s0 : _mm256_add_epi16(runs[c][0], s0);
            runs[c][1] = begins ? s1 : _mm256_add_epi16(runs[c][1], s1);
            IN_ORDER(runs[c][0]);
            IN_ORDER(runs[c][1]);
            if (!ends) continue;
            const bool is_first = k - from < of.run;
            sums[c][0] = add_run(is_first ? _mm256_setzero_si256() : sums[c][0], runs[c][0]);
            sums[c][1] = add_run(is_first ? _mm256_setzero_si256() : sums[c][1], runs[c][1]);
        }
    }
    if (of.has_min) return;
    UNROLL
    for (int c = 0; c < C; c++) { /* less what unsigned codes stand too high */
        const int32_t sum = of.has_halves ? x[c][b].sum[h] : x[c][b].total;
        const __m256i zeros = _mm256_set1_epi32((int32_t)((uint32_t)sum << of.zero_shift));
        sums[c][0] = _mm256_sub_epi32(sums[c][0], zeros);
        sums[c][1] = _mm256_sub_epi32(sums[c][1], zeros);
    }
}

/* Add the products of half h of a slice, or of all of it, with block b of C step rows. */
INLINE void add_part(const int C, const kind of, const uint32_t h, const factors *w, const pleat__coded *const *x,
                     const int16_t *const *codes, uint32_t b, row_sums *acc) {
    __m256i sums[GROUP][2];
    if (of.run > 0)
        run_sums(C, of, h, w, x, b, sums);
    else
        pair_sums(C, of, h, w, codes, sums);
    UNROLL
    for (int c = 0; c < C; c++) {
        const __m256 scale = _mm256_set1_ps(x[c][b].scale);
        const __m256 sum = _mm256_set1_ps(scaled_sum_of(of.n_limbs, of.has_halves, h, &x[c][b]));
        UNROLL
        for (int rows = 0; rows < 2; rows++) {
            float *const to_rows = acc[c].rows + 8 * rows;
            const __m256 scales = _mm256_mul_ps(_mm256_load_ps(w->scale[h] + 8 * rows), scale);
            __m256 a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[c][rows]), scales, _mm256_load_ps(to_rows));
            if (of.has_min) a = _mm256_fmadd_ps(_mm256_load_ps(w->min[h] + 8 * rows), sum, a);
            _mm256_store_ps(to_rows, a);
        }
    }
}

/* Slices [from, from + n) for C step rows. */
INLINE void add_slices(const int C, const kind of, const factors *w, uint32_t n, const void *const *x, uint32_t from,
                       row_sums *acc) {
    const bool joins = of.n_limbs == 1 && of.run == 0;
    const pleat__coded *xs[GROUP];
    _Alignas(32) int16_t joined[GROUP][PLEAT__CLUSTER][SLICE];
    for (int c = 0; c < C; c++) {
        xs[c] = (const pleat__coded *)x[c] + from;
        for (uint32_t b = 0; joins && b < n; b++) join_limbs(1, &xs[c][b], joined[c][b]);
    }
    for (uint32_t b = 0; b < n; b++) {
        const int16_t *codes[GROUP];
        for (int c = 0; c < C; c++) codes[c] = joins ? joined[c][b] : xs[c][b].codes.whole;
        add_part(C, of, 0, w + b, xs, codes, b, acc);
        if (of.has_halves) add_part(C, of, 1, w + b, xs, codes, b, acc);
    }
}

/* The same for all step rows; the last group is smaller. */
INLINE void add_rows(const kind of, const factors *w, uint32_t n_slices, const void *const *x, uint32_t n,
                     uint32_t from, row_sums *acc) {
    for (; n >= GROUP; n -= GROUP, x += GROUP, acc += GROUP) add_slices(GROUP, of, w, n_slices, x, from, acc);
    for (; n > 0; n--, x++, acc++) add_slices(1, of, w, n_slices, x, from, acc);
}

typedef void (*add_rows_fn)(const factors *w, uint32_t n_slices, const void *const *x, uint32_t n, uint32_t from,
                            row_sums *acc);

#define ADD_ROWS(name, ...)                                                                                \
    static void name(const factors *w, uint32_t n_slices, const void *const *x, uint32_t n, uint32_t from, \
                     row_sums *acc) {                                                                      \
        add_rows((kind){__VA_ARGS__}, w, n_slices, x, n, from, acc);                                       \
    }
ADD_ROWS(add_rows_plain, false, false, 2, 0, 0)
ADD_ROWS(add_rows_min, false, true, 2, 0, 0)
ADD_ROWS(add_rows_halves, true, false, 2, 0, 0)
ADD_ROWS(add_rows_halves_min, true, true, 2, 0, 0)
ADD_ROWS(add_rows_8_bits, false, false, 1, 0, 0) /* of one limb, by the weights' bits */
ADD_ROWS(add_rows_5_bits, false, false, 1, 4, 4)
ADD_ROWS(add_rows_4_bits, false, false, 1, 8, 3)
ADD_ROWS(add_rows_5_bits_min, false, true, 1, 4, 0)
ADD_ROWS(add_rows_4_bits_min, false, true, 1, 8, 0)
ADD_ROWS(add_rows_6_bits_halves, true, false, 1, 2, 5)
ADD_ROWS(add_rows_3_bits_halves, true, false, 1, 8, 2)
ADD_ROWS(add_rows_2_bits_halves_min, true, true, 1, 8, 0)

INLINE add_rows_fn add_rows_of_one_limb(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint32_t run = run_of(type);
    if (f->has_halves && f->has_min) return add_rows_2_bits_halves_min;
    if (f->has_halves) return run == 2 ? add_rows_6_bits_halves : add_rows_3_bits_halves;
    if (f->has_min) return run == 4 ? add_rows_5_bits_min : add_rows_4_bits_min;
    return run == 0 ? add_rows_8_bits : run == 4 ? add_rows_5_bits : add_rows_4_bits;
}

INLINE add_rows_fn add_rows_of(pleat__weight_type type, const uint32_t n_limbs) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    if (n_limbs == 1) return add_rows_of_one_limb(type);
    if (f->has_halves) return f->has_min ? add_rows_halves_min : add_rows_halves;
    return f->has_min ? add_rows_min : add_rows_plain;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A strip for up to VECTOR_TILE step rows. */
INLINE void add_strip(pleat__weight_type type, const uint32_t n_limbs, const uint8_t *strip, uint32_t n_slices,
                      const void *const *x, uint32_t n, row_sums *acc) {
    factors cluster[PLEAT__CLUSTER];
    for (uint32_t from = 0; from < n_slices; from += PLEAT__CLUSTER) {
        const uint32_t n_here = pleat__min_u32(PLEAT__CLUSTER, n_slices - from);
        for (uint32_t b = 0; b < n_here; b++) expand_slice(type, n_limbs, strip, n_slices, from + b, &cluster[b]);
        add_rows_of(type, n_limbs)(cluster, n_here, x, n, from, acc);
    }
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    row_sums acc[PLEAT__VECTOR_TILE];
    for (uint32_t at = 0; at < n; at += PLEAT__VECTOR_TILE) {
        const uint32_t n_here = pleat__min_u32(PLEAT__VECTOR_TILE, n - at);
        for (uint32_t r = row_from; r < row_to; r += ROWS) {
            memset(acc, 0, n_here * sizeof *acc);
            add_strip(type, n_limbs, w->data + r * w->row_bytes, w->cols / SLICE, x + at, n_here, acc);
            for (uint32_t c = 0; c < n_here; c++) {
                const __m256 rows[2] = {_mm256_load_ps(acc[c].rows), _mm256_load_ps(acc[c].rows + 8)};
                store_rows(rows, row_to - r, y[at + c] + r, add);
            }
        }
    }
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_as(store_whole, true, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_many_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    fill_packed(dsp->mul_many, packed_muls[n_limbs - 1]);
    dsp->code_many = codes[n_limbs - 1];
    dsp->many_rows = 3;
}
