/* SPDX-License-Identifier: MIT
 *
 * test_logprobs.c: logarithms of probabilities against sums in long double and a full sort, and that a token's float does
 * not depend on what else was asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pleat/model.h"

enum { MAX_VOCAB = 3000 };

static const float *sorted_by;
static int by_logit(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    if (sorted_by[x] != sorted_by[y]) return sorted_by[x] > sorted_by[y] ? -1 : 1;
    return x - y;
}

static void check_one(const float *x, uint32_t n, pleat_token token, uint32_t n_top) {
    static int order[MAX_VOCAB];
    pleat_logprob got[1 + PLEAT_LOGPROBS_MAX], alone, of_top;
    long double sum = 0, max = x[0];
    for (uint32_t i = 0; i < n; i++) order[i] = (int)i;
    for (uint32_t i = 0; i < n; i++) max = (long double)x[i] > max ? (long double)x[i] : max;
    for (uint32_t i = 0; i < n; i++) sum += expl((long double)x[i] - max);
    sorted_by = x;
    qsort(order, n, sizeof *order, by_logit);
    if (!CHECK_STATUS(pleat_logprobs(x, n, token, n_top, got), PLEAT_OK)) return;
    CHECK_EQ_I64(got[0].token, token);
    for (uint32_t i = 0; i <= n_top; i++) {
        if (i > 0) CHECK_EQ_I64(got[i].token, order[i - 1]);
        const double want = (double)((long double)x[got[i].token] - max - logl(sum));
        CHECK_NEAR(got[i].logprob, want, 1e-6 + 1e-7 * fabs(want));
        CHECK_STATUS(pleat_logprobs(x, n, got[i].token, 0, &of_top), PLEAT_OK);
        CHECK_EQ_MEM(&of_top, &got[i], sizeof of_top);
    }
    CHECK_STATUS(pleat_logprobs(x, n, token, 0, &alone), PLEAT_OK);
    CHECK_EQ_MEM(&alone, &got[0], sizeof alone);
}

static void test_oracle(void) {
    static float x[MAX_VOCAB];
    for (uint64_t round = 0; round < check_rounds(300, 30) && check_failures() == 0; round++) {
        const uint32_t n = (uint32_t)check_between(1, round % 8 == 0 ? MAX_VOCAB : 40);
        check_context("round %llu, %u tokens", (unsigned long long)round, n);
        check_fill(x, n, (unsigned)(round % CHECK_N_FILLS), round % 3 == 0 ? 80.0f : 4.0f);
        const uint32_t most = n < PLEAT_LOGPROBS_MAX ? n : PLEAT_LOGPROBS_MAX;
        check_one(x, n, (pleat_token)check_below(n), (uint32_t)check_between(0, most));
    }
}

static void test_edges(void) {
    float x[4] = {1, -INFINITY, 1, 0.5f};
    pleat_logprob out[1 + PLEAT_LOGPROBS_MAX];
    if (!CHECK_STATUS(pleat_logprobs(x, 4, 1, 4, out), PLEAT_OK)) return;
    CHECK(out[0].logprob == -INFINITY);
    CHECK_EQ_I64(out[1].token, 0); /* the lower id among equals */
    CHECK_EQ_I64(out[2].token, 2);
    CHECK_EQ_I64(out[4].token, 1);
    CHECK_STATUS(pleat_logprobs(x, 4, 4, 0, out), PLEAT_E_ARG);
    CHECK_STATUS(pleat_logprobs(x, 4, -1, 0, out), PLEAT_E_ARG);
    CHECK_STATUS(pleat_logprobs(x, 4, 0, 5, out), PLEAT_E_ARG);
    CHECK_STATUS(pleat_logprobs(NULL, 4, 0, 0, out), PLEAT_E_ARG);
    x[3] = NAN;
    CHECK_STATUS(pleat_logprobs(x, 4, 0, 0, out), PLEAT_E_ARG);
    x[3] = INFINITY;
    CHECK_STATUS(pleat_logprobs(x, 4, 0, 0, out), PLEAT_E_ARG);
    for (int i = 0; i < 4; i++) x[i] = -INFINITY;
    CHECK_STATUS(pleat_logprobs(x, 4, 0, 0, out), PLEAT_E_ARG);
}

static const check_test tests[] = {{"oracle", test_oracle}, {"edges", test_edges}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
