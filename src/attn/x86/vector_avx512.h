/* SPDX-License-Identifier: MIT
 *
 * vector_avx512.h: what decode and prompt attention both do with 512-bit registers.
 */
#ifndef PLEAT_ATTN_X86_VECTOR_AVX512_H
#define PLEAT_ATTN_X86_VECTOR_AVX512_H

#include <immintrin.h>

#include "core/compiler.h"

/* 2^x for x <= 0 as exp2_256() has it (vector_avx2.h), and +0 where `keep` is 0. */
INLINE __m512 exp2_512(__m512 x, __mmask16 keep) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(x, n);
    __m512 y = _mm512_set1_ps(0x1.41fbbap-13f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.5f3e54p-10f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.3b2d4cp-7f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.c6aee8p-5f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.ebfbdcp-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.62e430p-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    keep = _mm512_mask_cmp_ps_mask(keep, x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(keep, y, n);
}

#endif
