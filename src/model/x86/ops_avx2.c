/* SPDX-License-Identifier: MIT
 *
 * ops_avx2.c: ops.h with AVX2 and FMA, eight elements at a time, the last ones of a row under a mask.
 *
 * The gates' exponential is why this file exists: expf() takes a tenth of a prompt, this one a hundredth.
 */
#include <immintrin.h>

#include "core/compiler.h"
#include "model/ops.h"

/* Lanes 0..n-1 of 8. */
INLINE __m256i first_lanes(uint32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE __m256i lanes_left(uint32_t n, uint32_t i) { return first_lanes(n - i < 8 ? n - i : 8); }

INLINE float sum8(__m256 v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static void rmsnorm_avx2(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            const __m256 v = _mm256_loadu_ps(x + i + 8 * j);
            sums[j] = _mm256_fmadd_ps(v, v, sums[j]);
        }
    }
    for (; i < n; i += 8) {
        const __m256 v = _mm256_maskload_ps(x + i, lanes_left(n, i));
        sums[0] = _mm256_fmadd_ps(v, v, sums[0]);
    }
    const float sum = sum8(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    const float mean = sum / (float)n + eps;
    const __m256 factor = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
    for (i = 0; i < n; i += 8) {
        const __m256i live = lanes_left(n, i);
        const __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, live), factor);
        _mm256_maskstore_ps(out + i, live, _mm256_mul_ps(_mm256_maskload_ps(weight + i, live), v));
    }
}

/* e^x for x clamped to +-87, error <= 2 ulp: x = k*ln 2 + r with ln 2 in two parts (Cody and Waite), |r| <= 0.347,
 * where Taylor's polynomial of degree 7 is good to 2^-28. */
INLINE __m256 exp8(__m256 x) {
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(87.0f));
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.62e400p-1f), x);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    static const float inverse_factorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    for (int i = 0; i < 7; i++) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(inverse_factorials[i]));
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(k), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

/* z / (1 + e^-y) */
INLINE __m256 gate8(__m256 z, __m256 y) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), y));
    return _mm256_div_ps(z, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static void swiglu_avx2(float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256i live = lanes_left(n, i);
        const __m256 z = _mm256_maskload_ps(a + i, live);
        _mm256_maskstore_ps(a + i, live, _mm256_mul_ps(gate8(z, z), _mm256_maskload_ps(b + i, live)));
    }
}

static void geglu_avx2(float *a, const float *b, uint32_t n) {
    const __m256 u1 = _mm256_set1_ps(2 * PLEAT__GELU_U1), u3 = _mm256_set1_ps(2 * PLEAT__GELU_U3);
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256i live = lanes_left(n, i);
        const __m256 z = _mm256_maskload_ps(a + i, live);
        const __m256 y = _mm256_mul_ps(z, _mm256_fmadd_ps(u3, _mm256_mul_ps(z, z), u1));
        _mm256_maskstore_ps(a + i, live, _mm256_mul_ps(gate8(z, y), _mm256_maskload_ps(b + i, live)));
    }
}

static void swiglu_clipped_avx2(float *a, const float *b, uint32_t n) {
    const __m256 top = _mm256_set1_ps(PLEAT__CLIP_LIMIT), bottom = _mm256_set1_ps(-PLEAT__CLIP_LIMIT);
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256i live = lanes_left(n, i);
        const __m256 z = _mm256_min_ps(top, _mm256_maskload_ps(a + i, live));
        const __m256 y = _mm256_max_ps(bottom, _mm256_min_ps(top, _mm256_maskload_ps(b + i, live)));
        const __m256 gate = gate8(z, _mm256_mul_ps(z, _mm256_set1_ps(PLEAT__CLIP_ALPHA)));
        _mm256_maskstore_ps(a + i, live, _mm256_mul_ps(gate, _mm256_add_ps(y, _mm256_set1_ps(1.0f))));
    }
}

static void rope_avx2(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < n_dims; j += 8) {
            const __m256i live = lanes_left(n_dims, j);
            const __m256 v = _mm256_maskload_ps(x + j, live);
            const __m256 swapped = _mm256_permute_ps(v, 0xB1); /* pairs */
            const __m256 turned = _mm256_mul_ps(swapped, _mm256_maskload_ps(turn + n_dims + j, live));
            _mm256_maskstore_ps(x + j, live, _mm256_fmadd_ps(v, _mm256_maskload_ps(turn + j, live), turned));
        }
    }
}

static void rope_halves_avx2(float *x, uint32_t n_heads, uint32_t head_dim, const float *turn, uint32_t n_dims) {
    const uint32_t half = n_dims / 2;
    for (uint32_t head = 0; head < n_heads; head++, x += head_dim) {
        for (uint32_t j = 0; j < half; j += 8) {
            const __m256i live = lanes_left(half, j);
            const __m256 a = _mm256_maskload_ps(x + j, live), b = _mm256_maskload_ps(x + half + j, live);
            const __m256 from_b = _mm256_mul_ps(b, _mm256_maskload_ps(turn + n_dims + j, live));
            const __m256 from_a = _mm256_mul_ps(a, _mm256_maskload_ps(turn + n_dims + half + j, live));
            _mm256_maskstore_ps(x + j, live, _mm256_fmadd_ps(a, _mm256_maskload_ps(turn + j, live), from_b));
            _mm256_maskstore_ps(x + half + j, live,
                                _mm256_fmadd_ps(b, _mm256_maskload_ps(turn + half + j, live), from_a));
        }
    }
}

void pleat__ops_fill_avx2(pleat__ops_dsp *dsp) {
    *dsp = (pleat__ops_dsp){.rmsnorm = rmsnorm_avx2,
                            .swiglu = swiglu_avx2,
                            .geglu = geglu_avx2,
                            .swiglu_clipped = swiglu_clipped_avx2,
                            .rope = rope_avx2,
                            .rope_halves = rope_halves_avx2};
}
