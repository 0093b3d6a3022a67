/* SPDX-License-Identifier: MIT
 *
 * test_levels.c: the rotated formats' quantiser (src/quant/levels.c) and the rotation (src/quant/rotate.c).
 *
 * Levels are held against Lloyd-Max's mean squared errors of a normal variable, which are known; codes against a search
 * for the nearest level in float64; the rotation against its definition as a matrix.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "quant/levels.h"
#include "quant/quant.h"
#include "quant/rotate.h"

static const double largest[5] = {[2] = 1.5104, [3] = 2.1519, [4] = 2.7326};

static pleat__page_layout layout_of(uint8_t bits, uint32_t d) {
    pleat__page_layout l;
    CHECK_STATUS(pleat__page_layout_init(&l, (pleat_format){bits, bits, 1}, d, 16, false), PLEAT_OK);
    return l;
}

/* Keys and values [16][d] through a page: what comes back, and the tile's scales of keys. */
static void through_page(const pleat__page_layout *l, const float *x, float *k, float *v, uint16_t *scales) {
    check_buf page = check_buf_new(l->used_bytes, 64);
    pleat__quant_dsp dsp;
    pleat__quant_dsp_init(&dsp, pleat_cpu_flags());
    dsp.store(l, page.p, 0, 16, x, x, l->head_dim);
    for (uint32_t t = 0; t < 16; t++)
        pleat__quant_load_token(l, page.p, t, k + (size_t)t * l->head_dim, v + (size_t)t * l->head_dim);
    memcpy(scales, pleat__k_meta(l, page.p, 0), 16 * sizeof *scales);
    check_buf_free(&page);
}

/* The mean squared error of normal elements is Lloyd-Max's: .11748, .03455 and .00950 of their variance. */
static void test_error(void) {
    static float x[16 * 512], k[16 * 512], v[16 * 512];
    static const double known[5] = {[2] = 0.11748, [3] = 0.03455, [4] = 0.00950};
    uint16_t scales[16];
    for (uint8_t bits = 2; bits <= 4; bits++) {
        const pleat__page_layout l = layout_of(bits, 512);
        double error = 0, size = 0;
        for (uint64_t round = 0; round < 12; round++) {
            for (uint32_t i = 0; i < 16 * 512; i++) x[i] = 3 * check_normal();
            through_page(&l, x, k, v, scales);
            for (uint32_t i = 0; i < 16 * 512; i++) {
                error += ((double)x[i] - (double)k[i]) * ((double)x[i] - (double)k[i]);
                size += (double)x[i] * (double)x[i];
            }
            CHECK_EQ_MEM(k, v, sizeof k);
        }
        check_context("%u bits: %g", bits, error / size);
        /* The corrected norm gives away a little: an error e of the best reconstruction becomes 2 - 2 sqrt(1 - e). */
        const double expected = 2 - 2 * sqrt(1 - known[bits]);
        CHECK(fabs(error / size - expected) <= 0.02 * expected);
    }
}

/* Each code is that of the nearest level, and the norm is kept. */
static void test_codes(void) {
    static float x[16 * 512], k[16 * 512], v[16 * 512];
    static const uint32_t dims[] = {16, 48, 64, 80, 128, 512};
    uint16_t scales[16];
    for (uint64_t round = 0; round < check_rounds(60, 12); round++) {
        const uint8_t bits = (uint8_t)check_between(2, 4);
        const uint32_t d = dims[check_below(CHECK_COUNT(dims))];
        const pleat__page_layout l = layout_of(bits, d);
        for (uint32_t t = 0; t < 16; t++)
            check_fill(x + (size_t)t * d, d, (unsigned)check_below(CHECK_N_FILLS), (float)check_uniform(0.01, 30));
        through_page(&l, x, k, v, scales);
        for (uint32_t t = 0; t < 16; t++) {
            double size = 0, back = 0;
            for (uint32_t i = t * d; i < (t + 1) * d; i++) {
                size += (double)x[i] * (double)x[i];
                back += (double)k[i] * (double)k[i];
            }
            const double scale = (double)pleat__f16_to_f32(scales[t]), norm = sqrt(size);
            check_context("%u bits, d %u, norm %g", bits, d, norm);
            CHECK(fabs(sqrt(back) - norm) <= 0x1p-10 * norm + sqrt((double)d) * 127 * 0x1p-25);
            for (uint32_t i = t * d; i < (t + 1) * d && scale > 0x1p-14; i++) {
                const double y = (double)x[i] * sqrt((double)d) / norm * 127 / largest[bits];
                const double level = (double)k[i] / scale;
                for (uint32_t c = 0; c < 1u << bits; c++)
                    CHECK(fabs(y - level) <= fabs(y - pleat__levels[bits][c]) + 1e-3);
            }
        }
    }
}

/* The matrix, from unit vectors: its columns are orthonormal and dense, and turning back undoes it. */
static void test_rotation(void) {
    static float m[512 * 512], back[512 * 512];
    static const uint32_t dims[] = {16, 48, 64, 80, 96, 112, 128, 256};
    for (size_t n = 0; n < CHECK_COUNT(dims); n++) {
        const uint32_t d = dims[n];
        check_context("d %u", d);
        memset(m, 0, (size_t)d * d * sizeof *m);
        for (uint32_t i = 0; i < d; i++) m[i * d + i] = 1;
        pleat__rotate(m, d, d, m);
        for (uint32_t i = 0; i < d; i++) {
            for (uint32_t j = 0; j <= i; j++) {
                double dot = 0;
                for (uint32_t c = 0; c < d; c++) dot += (double)m[i * d + c] * (double)m[j * d + c];
                CHECK(fabs(dot - (i == j)) <= 1e-5);
            }
        }
        pleat__rotate_back(m, d, d, back);
        for (uint32_t i = 0; i < d * d; i++) CHECK(fabs((double)back[i] - (i % (d + 1) == 0)) <= 1e-6);
        for (uint32_t i = 0; i < d * d && (d & (d - 1)) == 0; i++) /* a power of two: all of one size */
            CHECK(fabs(fabs((double)m[i]) - 1 / sqrt((double)d)) <= 1e-6);
    }
}

/* Zeros, and what is beyond f16. */
static void test_extremes(void) {
    static float x[16 * 64], k[16 * 64], v[16 * 64];
    uint16_t scales[16];
    for (uint8_t bits = 2; bits <= 4; bits++) {
        const pleat__page_layout l = layout_of(bits, 64);
        for (uint32_t i = 0; i < 16 * 64; i++) x[i] = i < 64 ? 0 : i < 128 ? 1e30f : i < 192 ? NAN : 1e-9f;
        through_page(&l, x, k, v, scales);
        CHECK(scales[0] == 0);
        for (uint32_t i = 0; i < 16 * 64; i++) CHECK(isfinite(k[i]) && isfinite(v[i]));
        for (uint32_t i = 0; i < 64; i++) CHECK(k[i] == 0);
    }
}

static const check_test tests[] = {
    {"error", test_error},
    {"codes", test_codes},
    {"rotation", test_rotation},
    {"extremes", test_extremes},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
