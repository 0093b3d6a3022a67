/* SPDX-License-Identifier: MIT
 *
 * packed_many_avx512.c: linear.h's kernels for packed matrices and many step rows, with AVX-512 and its VNNI.
 *
 * Weights become 16 bits wide once for all step rows, whose codes are whole: VPDPWSSD multiplies 16 rows by 2 columns
 * and adds.  Byte products of two limbs (packed_avx512.c) take as many, and their sums have to be shifted and freed of
 * what unsigned codes stand too high.  What is left beside 16 products for a slice and step row are three to five
 * instructions.
 *
 * For one limb weights become bytes, and VPDPBUSD multiplies 16 rows by 4 columns: 8 products, and the same beside.
 * What unsigned codes stand too high is where the sums begin.
 *
 *     for each strip, and 8 slices of it:   factors, 10 KB, which stay in L1 while the step rows pass by
 *     for each 8 step rows, and slice:      sums, exact;   acc += (weights' scales * row's scale) * sums, and minima
 *
 * Sums are exact and acc adds what packed_avx512.c's adds, in its order: the bits are the same.
 */
#include "linear/x86/packed_512.h"

#define GROUP 8     /* step rows at a time: as many chains as hide a product's latency */
#define STRIPS 2u   /* strips that are wide at a time: 20 KB, of an L1 of 32 */
#define MANY_ROWS 8 /* step rows from which on weights are worth widening */

/* Lines of a slice for each limb: a code's 4 columns in one limb are as many bytes as its 2 in two. */
#define LIMB_LINES (SLICE / 4)

/* A slice as factors.  For two limbs columns are in pairs 0 2 and 1 3 of each four, as words take them out of a register
 * of bytes; for one limb the bytes are used, unsigned, and half the lines. */
typedef struct factors {
    union {
        _Alignas(64) int16_t pairs[2 * LIMB_LINES][ROWS][2];
        _Alignas(64) uint8_t bytes[2 * LIMB_LINES][ROWS][4];
    } values;
    float scale[2][ROWS], min[2][ROWS]; /* of each half; of the slice: [0] */
} factors;

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Slice b of a strip. */
INLINE void expand_slice(pleat__weight_type type, const uint32_t n_limbs, const uint8_t *strip, uint32_t n_slices,
                         uint32_t b, factors *out) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    const uint8_t *p = strip + pleat__codes_at(type, b), *record = strip + pleat__record_at(type, n_slices, b);
    const uint32_t n_scales = f->has_halves ? 2 : 1, s = b % pleat__slices_of(type);
    const __m512i zero = _mm512_set1_epi16((int16_t)(f->has_min ? 0 : 1 << f->zero_shift));
    UNROLL
    for (uint32_t k = 0; k < SLICE / 4; k++) {
        const __m512i codes = codes4(type, p, k, 0);
        if (n_limbs == 1) {
            _mm512_store_si512(out->values.bytes[k], codes);
            continue;
        }
        const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(0xFF)), odd = _mm512_srli_epi16(codes, 8);
        _mm512_store_si512(out->values.pairs[2 * k], _mm512_sub_epi16(even, zero));
        _mm512_store_si512(out->values.pairs[2 * k + 1], _mm512_sub_epi16(odd, zero));
    }
    UNROLL
    for (uint32_t h = 0; h < n_scales; h++) {
        const row_scales w = scales_at(type, record, n_scales * s + h, 0);
        _mm512_store_ps(out->scale[h], w.scale);
        if (f->has_min) _mm512_store_ps(out->min[h], w.min);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Sums of a step row for the rows of a strip. */
typedef struct row_sums {
    _Alignas(64) float rows[ROWS];
} row_sums;

/* sums + products with line `line` of the codes, which the instruction itself repeats: gcc 12 makes two of it. */
INLINE __m512i add_products(const uint32_t n_limbs, __m512i sums, __m512i weights, const pleat__coded *x,
                            uint32_t line) {
    if (n_limbs == 1) {
        const int8_t *four = x->codes.one_limb.high + 4 * line;
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(*(const int8_t(*)[4])four));
    } else {
        const int16_t *two = x->codes.whole + 2 * line;
        __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(*(const int16_t(*)[2])two));
    }
    return sums;
}

/* The kinds of types, and what their kernels need to know: constants but zero_shift. */
typedef struct kind {
    bool has_halves, has_min;
    uint32_t n_limbs;
} kind;

/* What a step row's sums begin with: less what unsigned codes will stand too high. */
INLINE __m512i start_of(const kind of, uint32_t zero_shift, int32_t sum) {
    if (of.n_limbs == 2 || of.has_min) return _mm512_setzero_si512();
    return _mm512_set1_epi32((int32_t)(0 - ((uint32_t)sum << zero_shift)));
}

/* Add the products of a slice, or of half h of it where that has a scale of its own, with block b of C step rows. */
INLINE void add_part(const int C, const kind of, const uint32_t h, uint32_t zero_shift, const factors *w,
                     const pleat__coded *const *x, uint32_t b, __m512 *acc) {
    const uint32_t n_lines = LIMB_LINES * of.n_limbs, from = h * n_lines / 2;
    const uint32_t to = of.has_halves ? from + n_lines / 2 : n_lines;
    __m512i sums[GROUP];
    UNROLL
    for (int c = 0; c < C; c++) sums[c] = start_of(of, zero_shift, of.has_halves ? x[c][b].sum[h] : x[c][b].total);
    UNROLL
    for (uint32_t line = from; line < to; line++) {
        const __m512i columns = _mm512_load_si512(w->values.bytes[line]);
        UNROLL
        for (int c = 0; c < C; c++) sums[c] = add_products(of.n_limbs, sums[c], columns, &x[c][b], line);
    }
    const __m512 scales = _mm512_load_ps(w->scale[h]);
    UNROLL
    for (int c = 0; c < C; c++) {
        const float scale = x[c][b].scale;
        acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[c]), _mm512_mul_ps(scales, _mm512_set1_ps(scale)), acc[c]);
        if (!of.has_min) continue;
        const float sum = scaled_sum_of(of.n_limbs, of.has_halves, h, &x[c][b]);
        acc[c] = _mm512_fmadd_ps(_mm512_load_ps(w->min[h]), _mm512_set1_ps(sum), acc[c]);
    }
}

/* Slices [from, from + n) for C step rows. */
INLINE void add_slices(const int C, const kind of, uint32_t zero_shift, const factors *w, uint32_t n,
                       const void *const *x, uint32_t from, row_sums *to) {
    const pleat__coded *xs[GROUP];
    __m512 acc[GROUP];
    for (int c = 0; c < C; c++) xs[c] = (const pleat__coded *)x[c] + from;
    UNROLL
    for (int c = 0; c < C; c++) acc[c] = _mm512_load_ps(to[c].rows);
    for (uint32_t b = 0; b < n; b++) {
        add_part(C, of, 0, zero_shift, w + b, xs, b, acc);
        if (of.has_halves) add_part(C, of, 1, zero_shift, w + b, xs, b, acc);
    }
    UNROLL
    for (int c = 0; c < C; c++) _mm512_store_ps(to[c].rows, acc[c]);
}

/* The same for a group, of which the last is smaller. */
INLINE void add_group(const kind of, uint32_t zero_shift, const factors *w, uint32_t n_slices, const void *const *x,
                      uint32_t n, uint32_t from, row_sums *acc) {
    if (n == GROUP) {
        add_slices(GROUP, of, zero_shift, w, n_slices, x, from, acc);
        return;
    }
    for (; n >= 3; n -= 3, x += 3, acc += 3) add_slices(3, of, zero_shift, w, n_slices, x, from, acc);
    for (; n > 0; n--, x++, acc++) add_slices(1, of, zero_shift, w, n_slices, x, from, acc);
}

typedef void (*add_group_fn)(uint32_t zero_shift, const factors *w, uint32_t n_slices, const void *const *x, uint32_t n,
                             uint32_t from, row_sums *acc);

#define ADD_GROUP(name, ...)                                                                                     \
    static void name(uint32_t zero_shift, const factors *w, uint32_t n_slices, const void *const *x, uint32_t n, \
                     uint32_t from, row_sums *acc) {                                                             \
        add_group((kind){__VA_ARGS__}, zero_shift, w, n_slices, x, n, from, acc);                                \
    }
ADD_GROUP(add_group_plain_one, false, false, 1)
ADD_GROUP(add_group_plain_two, false, false, 2)
ADD_GROUP(add_group_min_one, false, true, 1)
ADD_GROUP(add_group_min_two, false, true, 2)
ADD_GROUP(add_group_halves_one, true, false, 1)
ADD_GROUP(add_group_halves_two, true, false, 2)
ADD_GROUP(add_group_halves_min_one, true, true, 1)
ADD_GROUP(add_group_halves_min_two, true, true, 2)

INLINE add_group_fn add_group_of(pleat__weight_type type, const uint32_t n_limbs) {
    static const add_group_fn fns[2][2][2] = {
        {{add_group_plain_one, add_group_plain_two}, {add_group_min_one, add_group_min_two}},
        {{add_group_halves_one, add_group_halves_two}, {add_group_halves_min_one, add_group_halves_min_two}}};
    const pleat__weight_format *f = &pleat__weight_formats[type];
    return fns[f->has_halves][f->has_min][n_limbs - 1];
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* `n_strips` strips, of `strip_bytes`, for up to VECTOR_TILE step rows.  Each group of step rows comes from L2 once for all
 * of them. */
INLINE void add_strips(pleat__weight_type type, const uint32_t n_limbs, const uint8_t *strips, uint32_t n_strips,
                       size_t strip_bytes, uint32_t n_slices, const void *const *x, uint32_t n,
                       row_sums (*acc)[PLEAT__VECTOR_TILE]) {
    factors cluster[STRIPS][PLEAT__CLUSTER];
    for (uint32_t from = 0; from < n_slices; from += PLEAT__CLUSTER) {
        const uint32_t n_here = pleat__min_u32(PLEAT__CLUSTER, n_slices - from);
        for (uint32_t s = 0; s < n_strips; s++)
            for (uint32_t b = 0; b < n_here; b++)
                expand_slice(type, n_limbs, strips + s * strip_bytes, n_slices, from + b, &cluster[s][b]);
        for (uint32_t at = 0; at < n; at += GROUP)
            for (uint32_t s = 0; s < n_strips; s++)
                add_group_of(type, n_limbs)(pleat__weight_formats[type].zero_shift, cluster[s], n_here, x + at,
                                            pleat__min_u32(GROUP, n - at), from, acc[s] + at);
    }
}

/* The first `live` rows of a strip. */
INLINE void store_rows(const row_sums *acc, __mmask16 live, float *to, bool add) {
    __m512 rows = _mm512_load_ps(acc->rows);
    if (add) rows = _mm512_add_ps(_mm512_maskz_loadu_ps(live, to), rows);
    _mm512_mask_storeu_ps(to, live, rows);
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    row_sums acc[STRIPS][PLEAT__VECTOR_TILE];
    const size_t strip_bytes = ROWS * w->row_bytes;
    for (uint32_t at = 0; at < n; at += PLEAT__VECTOR_TILE) {
        const uint32_t n_here = pleat__min_u32(PLEAT__VECTOR_TILE, n - at);
        for (uint32_t r = row_from; r < row_to; r += STRIPS * ROWS) {
            const uint32_t n_strips = pleat__min_u32(STRIPS, (row_to - r + ROWS - 1) / ROWS);
            for (uint32_t s = 0; s < n_strips; s++) memset(acc[s], 0, n_here * sizeof *acc[s]);
            add_strips(type, n_limbs, w->data + r * w->row_bytes, n_strips, strip_bytes, w->cols / SLICE, x + at,
                       n_here, acc);
            for (uint32_t s = 0; s < n_strips; s++) {
                const uint32_t first = r + s * ROWS, left = row_to - first;
                const __mmask16 live = (__mmask16)(left >= ROWS ? 0xFFFF : (1u << left) - 1);
                for (uint32_t c = 0; c < n_here; c++) store_rows(&acc[s][c], live, y[at + c] + first, add);
            }
        }
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* Codes of 16 activations, at `at`, whole, those of columns 0 2 1 3 of each four. */
INLINE void store_whole(__m512i codes, uint32_t at, pleat__coded *out) {
    const __m256i words = _mm512_cvtsepi32_epi16(codes);
    const __m256i in_pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xD8), 0xD8);
    _mm256_storeu_si256((__m256i *)(void *)(out->codes.whole + at), in_pairs);
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_as(store_whole, true, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_many_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    fill_packed(dsp->mul_many, packed_muls[n_limbs - 1]);
    if (n_limbs == 2)
        dsp->mul_many[PLEAT__W_Q8_0] = NULL; /* whose bytes packed_avx512.c multiplies as they are, a little faster */
    dsp->code_many = codes[n_limbs - 1];
    dsp->many_rows = MANY_ROWS;
}
