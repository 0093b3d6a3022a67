/* SPDX-License-Identifier: MIT
 *
 * logprobs.c: the logarithms of tokens' probabilities.
 *
 *     ln p(i) = x[i] - max - ln(sum over j of e^(x[j] - max))
 *
 * The sum runs in double precision over LANES partial sums, whose order is the vocabulary's and nobody else's: a row of
 * logits has one sum, whoever asks and however many of the likeliest.
 */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "pleat/model.h"

enum { LANES = 8 };

/* e^x for -700 <= x <= 0, within 1e-8 of the value: x = k ln 2 + r with |r| <= ln 2 / 2, and e^r's series to the seventh
 * power.  No branch and no table, so that compilers turn it into vectors. */
static inline double exp_near(double x) {
    static const double shift = 0x1.8p52; /* added and taken away again it rounds to whole numbers */
    const double k = (x * 0x1.71547652b82fep+0 + shift) - shift;
    const double r = x - k * 0x1.62e42fefa39efp-1;
    double sum = 1.0 + r * (1.0 / 7);
    sum = 1.0 + r * (1.0 / 6) * sum;
    sum = 1.0 + r * (1.0 / 5) * sum;
    sum = 1.0 + r * (1.0 / 4) * sum;
    sum = 1.0 + r * (1.0 / 3) * sum;
    sum = 1.0 + r * (1.0 / 2) * sum;
    sum = 1.0 + r * sum;
    const int64_t bits = ((int64_t)k + 1023) * ((int64_t)1 << 52);
    double two_to_k;
    memcpy(&two_to_k, &bits, sizeof two_to_k);
    return sum * two_to_k;
}

static inline double exp_of(float logit, float max) {
    const double x = (double)logit - (double)max;
    return exp_near(x > -700.0 ? x : -700.0); /* 1e-304 of the largest: nothing in a sum that has it */
}

static double sum_of_exp(const float *x, uint32_t n, float max) {
    double part[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++) part[j] += exp_of(x[i + j], max);
    for (; i < n; i++) part[i % LANES] += exp_of(x[i], max);
    for (uint32_t j = 0; j < LANES; j++) sum += part[j];
    return sum;
}

/* The largest; NaN if any is one. */
static float largest(const float *x, uint32_t n) {
    float max = x[0];
    int is_bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        is_bad |= x[i] != x[i];
        max = x[i] > max ? x[i] : max;
    }
    return is_bad ? NAN : max;
}

/* The n_top likeliest, in order, by insertion: n_top is small, and few tokens get past the last one's logit. */
static void find_top(const float *x, uint32_t n, uint32_t n_top, pleat_logprob *top) {
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (n_found == n_top && !(x[i] > top[n_top - 1].logprob)) continue;
        uint32_t at = n_found < n_top ? n_found++ : n_top - 1;
        for (; at > 0 && x[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (pleat_logprob){.token = (pleat_token)i, .logprob = x[i]};
    }
}

pleat_status pleat_logprobs(const float *logits, uint32_t n_vocab, pleat_token token, uint32_t n_top,
                            pleat_logprob *out) {
    if (!logits || !out || n_vocab == 0 || token < 0 || (uint32_t)token >= n_vocab) return PLEAT_E_ARG;
    if (n_top > PLEAT_LOGPROBS_MAX || n_top > n_vocab) return PLEAT_E_ARG;
    const float max = largest(logits, n_vocab);
    if (!isfinite(max)) return PLEAT_E_ARG;
    const double log_sum = log(sum_of_exp(logits, n_vocab, max));
    out[0] = (pleat_logprob){.token = token, .logprob = logits[token]};
    if (n_top > 0) find_top(logits, n_vocab, n_top, out + 1);
    for (uint32_t i = 0; i <= n_top; i++) out[i].logprob = (float)((double)out[i].logprob - (double)max - log_sum);
    return PLEAT_OK;
}
