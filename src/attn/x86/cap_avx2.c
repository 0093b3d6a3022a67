/* SPDX-License-Identifier: MIT
 *
 * cap_avx2.c: bounded logits with 256-bit registers.  See cap.h.
 */
#include "attn/cap.h"
#include "attn/x86/vector_avx2.h"

INLINE __m256 tanh_256(__m256 y) {
    const __m256 sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f)), one = _mm256_set1_ps(1);
    const __m256 size = _mm256_xor_ps(y, sign), square = _mm256_mul_ps(y, y);
    __m256 p = _mm256_set1_ps(PLEAT__TANH_4);
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(PLEAT__TANH_3));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(PLEAT__TANH_2));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(PLEAT__TANH_1));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(PLEAT__TANH_0));
    const __m256 near = _mm256_fmadd_ps(_mm256_mul_ps(p, square), y, y);
    const __m256 e = exp2_256(_mm256_mul_ps(size, _mm256_set1_ps(PLEAT__TANH_EXP2_FACTOR)));
    const __m256 far = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
    const __m256 is_near = _mm256_cmp_ps(size, _mm256_set1_ps(PLEAT__TANH_POLYNOMIAL_TO), _CMP_LT_OQ);
    return _mm256_blendv_ps(_mm256_or_ps(far, sign), near, is_near);
}

void pleat__attn_cap_avx2(float *x, size_t n, float cap2) {
    const __m256 cap = _mm256_set1_ps(cap2), inverse = _mm256_set1_ps(1 / cap2);
    for (size_t i = 0; i < n; i += 8)
        _mm256_store_ps(x + i, _mm256_mul_ps(cap, tanh_256(_mm256_mul_ps(_mm256_load_ps(x + i), inverse))));
}
