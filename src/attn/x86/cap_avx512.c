/* SPDX-License-Identifier: MIT
 *
 * cap_avx512.c: bounded logits with 512-bit registers.  See cap.h.
 */
#include "attn/cap.h"
#include "attn/x86/vector_avx512.h"

INLINE __m512 tanh_512(__m512 y) {
    const __m512 one = _mm512_set1_ps(1), size = _mm512_abs_ps(y), square = _mm512_mul_ps(y, y);
    __m512 p = _mm512_set1_ps(PLEAT__TANH_4);
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(PLEAT__TANH_3));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(PLEAT__TANH_2));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(PLEAT__TANH_1));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(PLEAT__TANH_0));
    const __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(p, square), y, y);
    const __m512 e = exp2_512(_mm512_mul_ps(size, _mm512_set1_ps(PLEAT__TANH_EXP2_FACTOR)), 0xFFFF);
    const __m512 far = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
    const __m512 sign = _mm512_and_ps(y, _mm512_set1_ps(-0.0f));
    const __mmask16 is_near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(PLEAT__TANH_POLYNOMIAL_TO), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_or_ps(far, sign), is_near, near);
}

void pleat__attn_cap_avx512(float *x, size_t n, float cap2) {
    const __m512 cap = _mm512_set1_ps(cap2), inverse = _mm512_set1_ps(1 / cap2);
    for (size_t i = 0; i < n; i += 16)
        _mm512_store_ps(x + i, _mm512_mul_ps(cap, tanh_512(_mm512_mul_ps(_mm512_load_ps(x + i), inverse))));
}
