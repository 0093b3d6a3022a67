/* SPDX-License-Identifier: MIT
 *
 * cap.h: logits that a model bounds before the softmax: cap * tanh(logit / cap).  (Gemma 2, section 2.)
 *
 * Between a kernel's logits and its softmax stands one call, which runs where the model asks for it:
 *
 *     decode    after the keys of a group and block of heads       decode.h, pleat__decode_adjust
 *     prompt    after the logits of a block of keys                prompt_blocked.c, pleat__prompt_adjust
 *     blocks    after the keys of a group of blocks                blocks.c
 *
 * So what is left behind for the scores, and the running maximum, are of bounded logits.  A cap is in units of logit2, as
 * the logits are: log2(e) times the model's.  0 is none, and costs a comparison for each group.
 *
 * The vector variants take tanh(y) as y + y^3 P(y^2) for |y| < 0.625, and from 2^x beyond:
 *
 *     tanh |y| = (1 - e)/(1 + e),   e = 2^(-2 log2(e) |y|)
 *
 * Error: 3e-7 of the bounded logit, against float64 (check_attn_decode).  No result is above the cap.  The scalar
 * variant is libm's tanhf.
 */
#ifndef PLEAT_ATTN_CAP_H
#define PLEAT_ATTN_CAP_H

#include <stddef.h>
#include <stdint.h>

/* x[i] = cap2 * tanh(x[i] / cap2) for i < n, a multiple of 16; x aligned to 64 bytes, cap2 in 2^-17..2^17.  What is not
 * finite or stands for nothing may become anything. */
typedef void (*pleat__attn_cap_fn)(float *x, size_t n, float cap2);

void pleat__attn_cap_ref(float *x, size_t n, float cap2);
void pleat__attn_cap_avx2(float *x, size_t n, float cap2);   /* needs PLEAT_CPU_AVX2 */
void pleat__attn_cap_avx512(float *x, size_t n, float cap2); /* needs PLEAT_CPU_AVX512 */
void pleat__attn_cap_neon(float *x, size_t n, float cap2);   /* needs PLEAT_CPU_NEON */

/* P's coefficients, from y^2's highest power down: P interpolates (tanh(y)/y - 1)/y^2 at Chebyshev's points, 1.6e-8. */
#define PLEAT__TANH_4 (-0x1.8f8de4p-8f)
#define PLEAT__TANH_3 0x1.58048ep-6f
#define PLEAT__TANH_2 (-0x1.b9258ap-5f)
#define PLEAT__TANH_1 0x1.110e1cp-3f
#define PLEAT__TANH_0 (-0x1.555552p-2f)
#define PLEAT__TANH_POLYNOMIAL_TO 0.625f
#define PLEAT__TANH_EXP2_FACTOR (-0x1.715476p+1f) /* -2 log2(e) */

#endif
