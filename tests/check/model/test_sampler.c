/* SPDX-License-Identifier: MIT
 *
 * test_sampler.c: which tokens can be drawn, how often, and that the same seed gives the same ones.
 *
 * The oracle sorts everything and filters in the documented order: top_k, top_p, min_p, temperature.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pleat/model.h"

#define MAX_VOCAB 200

/* ---- the oracle ---------------------------------------------------------------------------------------- */

typedef struct item {
    double logit;
    int id;
} item;

static int compare_items(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* Fill p [n] with each token's probability of being drawn. */
static void oracle(const pleat_sampler_options *opt, const float *logits, int n, double *p) {
    item items[MAX_VOCAB];
    double sum = 0, kept_sum = 0;
    for (int i = 0; i < n; i++) items[i] = (item){(double)logits[i], i};
    qsort(items, (size_t)n, sizeof *items, compare_items);
    for (int i = 0; i < n; i++) p[i] = 0;
    int k = opt->top_k > 0 && opt->top_k < (uint32_t)n ? (int)opt->top_k : n;
    for (int i = 0; i < k; i++) sum += exp(items[i].logit - items[0].logit);
    if (opt->top_p < 1) {
        double cumulative = 0;
        int i = 0;
        while (i < k && cumulative < (double)opt->top_p * sum) cumulative += exp(items[i++].logit - items[0].logit);
        k = i;
    }
    while (k > 1 && exp(items[k - 1].logit - items[0].logit) < (double)opt->min_p) k--;
    for (int i = 0; i < k; i++) kept_sum += exp((items[i].logit - items[0].logit) / (double)opt->temperature);
    for (int i = 0; i < k; i++) {
        p[items[i].id] = exp((items[i].logit - items[0].logit) / (double)opt->temperature) / kept_sum;
    }
}

static pleat_sampler *make(const pleat_sampler_options *opt, uint32_t n_vocab) {
    pleat_sampler *s = NULL;
    CHECK_STATUS(pleat_sampler_create(opt, n_vocab, NULL, &s, NULL), PLEAT_OK);
    return s;
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

/* The frequencies of many draws, each within 6 deviations of the oracle's probability; nothing else is drawn. */
static void test_distribution(void) {
    static const struct {
        float temperature;
        uint32_t top_k;
        float top_p, min_p;
    } cases[] = {
        {1.0f, 0, 1.0f, 0.0f},    {0.7f, 40, 0.95f, 0.05f}, {1.5f, 5, 1.0f, 0.0f},   {1.0f, 0, 0.5f, 0.0f},
        {1.0f, 0, 1.0f, 0.3f},    {0.3f, 0, 0.9f, 0.01f},   {2.0f, 7, 0.8f, 0.02f},  {1.0f, 1, 1.0f, 0.0f},
        {1.0f, 300, 0.99f, 0.0f}, {1e-30f, 0, 1.0f, 0.0f},  {100.0f, 0, 1.0f, 0.0f}, {1.0f, 0, 1e-20f, 0.0f},
    };
    const int n_draws = (int)check_rounds(40000, 4000);
    for (size_t c = 0; c < CHECK_COUNT(cases); c++) {
        const int n = (int)check_between(1, MAX_VOCAB);
        float logits[MAX_VOCAB];
        double p[MAX_VOCAB];
        int counts[MAX_VOCAB] = {0};
        pleat_sampler_options opt;
        pleat_sampler_options_default(&opt);
        opt.temperature = cases[c].temperature;
        opt.top_k = cases[c].top_k;
        opt.top_p = cases[c].top_p;
        opt.min_p = cases[c].min_p;
        opt.seed = check_u64();
        check_fill_normal(logits, (size_t)n);
        for (int i = 0; i < n; i++) logits[i] = 3 * logits[i] + 10;
        if (n > 3) logits[3] = -INFINITY;
        oracle(&opt, logits, n, p);
        pleat_sampler *s = make(&opt, (uint32_t)n);
        check_context("case %zu, %d tokens", c, n);
        for (int i = 0; s && i < n_draws; i++) {
            pleat_token id = -1;
            CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
            if (!CHECK(id >= 0 && id < n)) break;
            counts[id]++;
        }
        for (int i = 0; i < n; i++) {
            const double deviation = sqrt(p[i] * (1 - p[i]) * n_draws);
            CHECK_NEAR(counts[i], p[i] * n_draws, p[i] > 0 ? 6 * deviation + 3 : 0);
        }
        pleat_sampler_destroy(&s);
    }
}

/* Equal logits: greedy takes the lowest id, and so does top_k at its border: of 1, 3, 4 and 7 it keeps 1 and 3. */
static void test_ties(void) {
    const float logits[8] = {0, 2, 1, 2, 2, 1, 0, 2};
    pleat_sampler_options opt;
    pleat_token id = -1;
    pleat_sampler_options_default(&opt);
    pleat_sampler *s = make(&opt, 8);
    CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
    CHECK_EQ_I64(id, 1);
    pleat_sampler_destroy(&s);

    opt.temperature = 1;
    opt.top_k = 2;
    opt.top_p = 1;
    s = make(&opt, 8);
    int counts[8] = {0};
    for (int i = 0; i < 1000; i++) {
        if (CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK)) counts[id]++;
    }
    CHECK(counts[1] > 400 && counts[3] > 400 && counts[1] + counts[3] == 1000); /* 500 each, deviation 16 */
    pleat_sampler_destroy(&s);
}

/* The first draws of a seed, as recorded: they hold on every machine and in every build. */
static void test_recorded(void) {
    static const pleat_token want[16] = {128, 161, 19, 120, 30, 117, 90, 87, 120, 68, 90, 8, 8, 8, 98, 90};
    float logits[MAX_VOCAB];
    pleat_sampler_options opt;
    pleat_sampler_options_default(&opt);
    opt.temperature = 0.8f;
    opt.seed = 42;
    for (int i = 0; i < MAX_VOCAB; i++) logits[i] = (float)((i * 37) % 101) / 16.0f;
    pleat_sampler *s = make(&opt, MAX_VOCAB);
    for (int i = 0; i < 16; i++) {
        pleat_token id = -1;
        check_context("draw %d", i);
        CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
        CHECK_EQ_I64(id, want[i]);
    }
    pleat_sampler_destroy(&s);
}

static void test_bad_logits(void) {
    pleat_sampler_options opt;
    pleat_sampler_options_default(&opt);
    for (int is_warm = 0; is_warm < 2; is_warm++) {
        float logits[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        pleat_token id = -7;
        opt.temperature = (float)is_warm;
        opt.top_k = 0;
        pleat_sampler *s = make(&opt, 4);
        CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_E_ARG);
        logits[2] = -3e38f;
        CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
        CHECK_EQ_I64(id, 2);
        logits[1] = INFINITY;
        CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
        CHECK_EQ_I64(id, 1);
        logits[0] = 3e38f;
        logits[1] = -3e38f;
        CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
        CHECK_EQ_I64(id, 0);
        for (int i = 0; i < 4; i++) {
            logits[i] = NAN;
            CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_E_ARG);
            logits[i] = 0;
        }
        CHECK_EQ_I64(id, 0);
        CHECK_STATUS(pleat_sampler_sample(s, NULL, &id), PLEAT_E_ARG);
        CHECK_STATUS(pleat_sampler_sample(NULL, logits, &id), PLEAT_E_ARG);
        pleat_sampler_destroy(&s);
    }
    pleat_sampler_destroy(NULL);
}

static void test_bad_options(void) {
    pleat_sampler_options good, o;
    pleat_sampler *s = NULL;
    pleat_error err;
    pleat_sampler_options_default(&good);
    CHECK_STATUS(pleat_sampler_create(&good, 0, NULL, &s, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_sampler_create(&good, UINT32_MAX, NULL, &s, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_sampler_create(NULL, 4, NULL, &s, &err), PLEAT_E_ARG);
    static const float bad_temperatures[] = {-1, NAN, INFINITY}, bad_top_p[] = {0, -1, 1.5f, NAN},
                       bad_min_p[] = {-0.5f, 1.5f, NAN};
    for (size_t i = 0; i < CHECK_COUNT(bad_temperatures); i++) {
        o = good;
        o.temperature = bad_temperatures[i];
        CHECK_STATUS(pleat_sampler_create(&o, 4, NULL, &s, &err), PLEAT_E_ARG);
    }
    for (size_t i = 0; i < CHECK_COUNT(bad_top_p); i++) {
        o = good;
        o.top_p = bad_top_p[i];
        CHECK_STATUS(pleat_sampler_create(&o, 4, NULL, &s, &err), PLEAT_E_ARG);
    }
    for (size_t i = 0; i < CHECK_COUNT(bad_min_p); i++) {
        o = good;
        o.min_p = bad_min_p[i];
        CHECK_STATUS(pleat_sampler_create(&o, 4, NULL, &s, &err), PLEAT_E_ARG);
    }
    o = good;
    o.size_bytes = 0;
    CHECK_STATUS(pleat_sampler_create(&o, 4, NULL, &s, &err), PLEAT_E_ARG);
    CHECK(s == NULL && err.code == PLEAT_E_ARG);
}

/* Creation with each allocation failing; sampling takes no memory. */
static void test_memory(void) {
    pleat_sampler_options opt;
    check_alloc ca;
    pleat_sampler *s = NULL;
    float logits[64] = {0};
    pleat_token id;
    pleat_sampler_options_default(&opt);
    opt.temperature = 1;
    for (uint64_t nth = 1;; nth++) {
        check_alloc_init(&ca, nth, 0);
        const pleat_status st = pleat_sampler_create(&opt, 64, &ca.a, &s, NULL);
        if (st == PLEAT_OK) {
            CHECK(nth > 1);
            break;
        }
        CHECK_STATUS(st, PLEAT_E_MEMORY);
        CHECK_EQ_U64(ca.live, 0);
    }
    const uint64_t count = ca.count;
    for (int i = 0; i < 10; i++) CHECK_STATUS(pleat_sampler_sample(s, logits, &id), PLEAT_OK);
    CHECK_EQ_U64(ca.count, count);
    pleat_sampler_destroy(&s);
    CHECK(s == NULL);
    CHECK_EQ_U64(ca.live, 0);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"distribution", test_distribution}, {"ties", test_ties},
        {"recorded", test_recorded},         {"bad_logits", test_bad_logits},
        {"bad_options", test_bad_options},   {"memory", test_memory},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
