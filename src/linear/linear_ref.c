/* SPDX-License-Identifier: MIT
 *
 * linear_ref.c: matrix products in plain C: the specification of linear.h's table, and what runs without AVX2.
 *
 * Floats: a row is taken in blocks of 32 weights; lane j of 16 adds the products of columns j, j+16, j+32, ...; the
 * lanes are then added in halves: 16 to 8 to 4 to 2 to 1.  Quantised: the slices of a row in order.
 */
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "linear/linear.h"
#include "linear/packed.h"

#define BLOCK PLEAT__WEIGHT_BLOCK
#define STRIP PLEAT__STRIP_ROWS
#define LANES 16u
#define TILE 4u /* vectors that share one dequantised block */

static uint16_t load_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* n <= BLOCK weights of a row, from column `col`, a multiple of BLOCK; n == BLOCK for quantised types. */
static void load_block(pleat__weight_type type, const uint8_t *row, uint32_t col, uint32_t n, float *out) {
    switch (type) {
        case PLEAT__W_F32: memcpy(out, row + (size_t)col * 4, (size_t)n * 4); break;
        case PLEAT__W_F16:
            for (uint32_t j = 0; j < n; j++) out[j] = pleat__f16_to_f32(load_u16(row + ((size_t)col + j) * 2));
            break;
        case PLEAT__W_BF16:
            for (uint32_t j = 0; j < n; j++) out[j] = pleat__bf16_to_f32(load_u16(row + ((size_t)col + j) * 2));
            break;
        default: {
            const uint32_t slice = col / BLOCK, in_block = pleat__weight_formats[type].block / BLOCK;
            const uint8_t *block = row + (size_t)(slice / in_block) * pleat__weight_formats[type].bytes;
            pleat__weight_slice_load(type, block, slice % in_block, out);
        }
    }
}

static float add_lanes(const float *lanes) {
    float sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    for (uint32_t half = LANES / 2; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

/* One output row for n <= TILE vectors. */
static void mul_row(pleat__weight_type type, const uint8_t *row, uint32_t cols, const float *const *x, uint32_t n,
                    float *sums) {
    float lanes[TILE][LANES] = {{0}};
    float w[BLOCK];
    for (uint32_t col = 0; col < cols; col += BLOCK) {
        const uint32_t n_block = pleat__min_u32(BLOCK, cols - col);
        load_block(type, row, col, n_block, w);
        for (uint32_t i = 0; i < n; i++) {
            const float *xi = x[i] + col;
            if (n_block == BLOCK) {
                for (uint32_t j = 0; j < LANES; j++)
                    lanes[i][j] = lanes[i][j] + w[j] * xi[j] + w[j + LANES] * xi[j + LANES];
            } else {
                for (uint32_t j = 0; j < n_block; j++) lanes[i][j % LANES] += w[j] * xi[j];
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) sums[i] = add_lanes(lanes[i]);
}

static void mul_ref(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y,
                    uint32_t n, bool add) {
    float sums[TILE];
    for (uint32_t i = 0; i < n; i += TILE) {
        const uint32_t n_tile = pleat__min_u32(TILE, n - i);
        const float *xs[TILE];
        for (uint32_t t = 0; t < n_tile; t++) xs[t] = x[i + t];
        for (uint32_t r = row_from; r < row_to; r++) {
            mul_row(w->type, w->data + r * w->row_bytes, w->cols, xs, n_tile, sums);
            for (uint32_t t = 0; t < n_tile; t++) y[i + t][r] = add ? y[i + t][r] + sums[t] : sums[t];
        }
    }
}

/* ---- quantised ------------------------------------------------------------------------------------------------- */

/* A block that holds no finite number has none as its scale; its codes do not matter then. */
INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    const float code_max = pleat__code_max(n_limbs);
    for (; cols > 0; cols -= BLOCK, x += BLOCK, out++) {
        uint32_t max_bits = 0; /* as integers, infinity and NaN are above all others */
        for (uint32_t j = 0; j < BLOCK; j++) max_bits = pleat__max_u32(max_bits, pleat__f32_bits(x[j]) & 0x7FFFFFFFu);
        const float max = pleat__bits_f32(max_bits);
        *out = (pleat__coded){.scale = max / code_max};
        if (!isfinite(max)) continue;
        if (max < PLEAT__CODED_ZERO) {
            out->scale = 0;
            continue;
        }
        const float inverse = code_max / max;
        for (uint32_t j = 0; j < BLOCK; j++) {
            out->codes.whole[j] = (int16_t)lrintf(x[j] * inverse);
            out->sum[j / (BLOCK / 2)] += out->codes.whole[j];
        }
        out->total = out->sum[0] + out->sum[1];
    }
}

static void code_one_limb(const float *x, uint32_t cols, pleat__coded *out) { code_row(1, x, cols, out); }
static void code_two_limbs(const float *x, uint32_t cols, pleat__coded *out) { code_row(2, x, cols, out); }

/* The product of a slice of a row with a block of codes, half by half where it has two scales. */
static float dot_slice(pleat__weight_type type, const pleat__unpacked *w, const pleat__coded *x, float acc) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    int32_t sums[2] = {0};
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t j = h * BLOCK / 2; j < (h + 1) * BLOCK / 2; j++) sums[h] += w->values[j] * x->codes.whole[j];
    for (uint32_t h = 0; h < (f->has_halves ? 2 : 1); h++) {
        const int32_t sum = f->has_halves ? sums[h] : sums[0] + sums[1];
        acc += w->scale[h] * x->scale * (float)sum;
        if (f->has_min) acc += w->min[h] * (x->scale * (float)(f->has_halves ? x->sum[h] : x->total));
    }
    return acc;
}

static void mul_packed(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x,
                       float *const *y, uint32_t n, bool add) {
    const uint32_t n_slices = w->cols / BLOCK;
    for (uint32_t row = row_from; row < row_to; row++) {
        const uint8_t *strip = w->data + (row - row % STRIP) * w->row_bytes;
        for (uint32_t i = 0; i < n; i += TILE) {
            const uint32_t n_tile = pleat__min_u32(TILE, n - i);
            float acc[TILE] = {0};
            for (uint32_t b = 0; b < n_slices; b++) {
                pleat__unpacked u;
                pleat__linear_unpack_slice(w->type, strip, n_slices, b, row % STRIP, &u);
                for (uint32_t t = 0; t < n_tile; t++)
                    acc[t] = dot_slice(w->type, &u, (const pleat__coded *)x[i + t] + b, acc[t]);
            }
            for (uint32_t t = 0; t < n_tile; t++) y[i + t][row] = add ? y[i + t][row] + acc[t] : acc[t];
        }
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void load_ref(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    for (uint32_t r = row_from; r < row_to; r++) {
        const uint8_t *row = w->data + r * w->row_bytes;
        float *to = out + (size_t)(r - row_from) * w->cols;
        for (uint32_t col = 0; col < w->cols; col += BLOCK)
            load_block(w->type, row, col, pleat__min_u32(BLOCK, w->cols - col), to + col);
    }
}

void pleat__linear_fill_ref(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++) {
        dsp->mul[type] = pleat__is_quantised(type) ? mul_packed : mul_ref;
        dsp->load[type] = load_ref;
    }
    dsp->code = n_limbs == 1 ? code_one_limb : code_two_limbs;
    dsp->vector_rows = 2;
    dsp->packed_rows = 2;
    dsp->many_rows = UINT32_MAX;
}
