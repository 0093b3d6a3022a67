/* SPDX-License-Identifier: MIT
 *
 * sampler.c: draws a token from logits.
 *
 *     logits -> top_k -> e = exp(logit - max) -> top_p, min_p -> exp((logit - max) / temperature) -> draw
 *
 * top_p and min_p both keep a run of the likeliest, so they commute as long as top_p's sum is taken over all that top_k
 * left: min_p goes first here and leaves little to sort.
 *
 * The same logits and seed give the same tokens on every machine.  Sums and products are IEEE doubles in a fixed order,
 * exp is our own (the C library's differ in the last bit), and ties fall to the lower id.
 */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/rng.h"
#include "pleat/model.h"
#include "tokenizer/vocab.h"

typedef struct candidate {
    float logit;
    uint32_t id;
    double weight;
} candidate;

struct pleat_sampler {
    pleat_allocator al;
    pleat_sampler_options opt;
    uint32_t n_vocab;
    pleat__rng rng;
    candidate *candidates; /* [n_vocab] */
};

/* ---- exp --------------------------------------------------------------------------------------------------------- */

/* e^x for x <= 0, -inf included, within 2^-51 of the value: x = k ln 2 + r with |r| <= ln 2 / 2, and a Taylor series
 * of degree 13 for e^r, whose rest is below 2^-57. */
static double exp_negative(double x) {
    static const double log2_e = 0x1.71547652b82fep+0;
    static const double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;
    if (!(x > -745.0)) return 0.0;
    const double k = floor(x * log2_e + 0.5);
    const double r = (x - k * ln2_high) - k * ln2_low;
    double sum = 1.0;
    for (int i = 13; i > 0; i--) sum = 1.0 + sum * r / (double)i;
    return ldexp(sum, (int)k);
}

/* e^((logit - max) / t).  The largest is 1, infinite or not. */
static double weight_of(float logit, float max, double temperature) {
    return logit == max ? 1.0 : exp_negative(((double)logit - (double)max) / temperature);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static bool is_worse(const candidate *a, const candidate *b) {
    return a->logit != b->logit ? a->logit < b->logit : a->id > b->id;
}

/* Let c[i] sink to its place in a heap of n with the worst on top. */
static void sink(candidate *c, uint32_t n, uint32_t i) {
    const candidate x = c[i];
    for (uint64_t child = 2 * (uint64_t)i + 1; child < n; child = 2 * (uint64_t)i + 1) {
        if (child + 1 < n && is_worse(&c[child + 1], &c[child])) child++;
        if (!is_worse(&c[child], &x)) break;
        c[i] = c[child];
        i = (uint32_t)child;
    }
    c[i] = x;
}

static void make_heap(candidate *c, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;) sink(c, n, i);
}

/* Heapsort: qsort() may allocate. */
static void sort_best_first(candidate *c, uint32_t n) {
    make_heap(c, n);
    for (uint32_t last = n; last-- > 1;) {
        const candidate worst = c[0];
        c[0] = c[last];
        c[last] = worst;
        sink(c, last, 0);
    }
}

/* ---- the filters: each leaves c[0..n') and returns n' ------------------------------------------------------------ */

static uint32_t keep_top_k(candidate *c, const float *logits, uint32_t n, uint32_t k) {
    if (k == 0 || k > n) k = n;
    for (uint32_t i = 0; i < k; i++) c[i] = (candidate){.logit = logits[i], .id = i};
    if (k == n) return n;
    make_heap(c, k);
    for (uint32_t i = k; i < n; i++) {
        const candidate x = {.logit = logits[i], .id = i};
        if (!is_worse(&c[0], &x)) continue;
        c[0] = x;
        sink(c, k, 0);
    }
    return k;
}

static uint32_t keep_min_p(candidate *c, uint32_t n, double min_p) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].weight >= min_p) c[kept++] = c[i];
    }
    return kept;
}

/* `total` is the weight of all that top_k left. */
static uint32_t keep_top_p(candidate *c, uint32_t n, double top_p, double total) {
    if (top_p >= 1.0) return n;
    sort_best_first(c, n);
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= top_p * total) return i + 1;
    }
    return n;
}

static pleat_token draw(pleat_sampler *s, uint32_t n, float max) {
    candidate *c = s->candidates;
    double total = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = weight_of(c[i].logit, max, s->opt.temperature);
        total += c[i].weight;
    }
    double rest = pleat__rng_f64(&s->rng) * total;
    uint32_t last = 0; /* where rounding lets the walk run off the end */
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].weight == 0.0) continue;
        rest -= c[i].weight;
        last = i;
        if (rest < 0.0) break;
    }
    return (pleat_token)c[last].id;
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

void pleat_sampler_options_default(pleat_sampler_options *opt) {
    if (!opt) return;
    *opt = (pleat_sampler_options){
        .size_bytes = sizeof *opt, .temperature = 0.0f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 1};
}

static pleat_status check_options(const pleat_sampler_options *opt, uint32_t n_vocab, pleat_error *err) {
    PLEAT_FAIL_IF(!opt || opt->size_bytes != sizeof *opt, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "options not made by pleat_sampler_options_default()");
    PLEAT_FAIL_IF(n_vocab < 1 || n_vocab > PLEAT__MAX_VOCAB, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "a vocabulary of %u tokens, 1 to %u are allowed", n_vocab, PLEAT__MAX_VOCAB);
    PLEAT_FAIL_IF(!(opt->temperature >= 0) || !isfinite(opt->temperature), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "temperature %g is not a finite number >= 0", (double)opt->temperature);
    PLEAT_FAIL_IF(!(opt->top_p > 0 && opt->top_p <= 1), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "top_p %g is not above 0 and up to 1", (double)opt->top_p);
    PLEAT_FAIL_IF(!(opt->min_p >= 0 && opt->min_p <= 1), err, PLEAT_E_ARG, PLEAT_NOWHERE, "min_p %g is not in 0..1",
                  (double)opt->min_p);
    return PLEAT_OK;
}

pleat_status pleat_sampler_create(const pleat_sampler_options *opt, uint32_t n_vocab, const pleat_allocator *allocator,
                                  pleat_sampler **out, pleat_error *err) {
    PLEAT_FAIL_IF(!out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "out may not be NULL");
    PLEAT_TRY(check_options(opt, n_vocab, err));
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_sampler *s = pleat__alloc_zero(&al, 1, sizeof *s);
    candidate *candidates = s ? pleat__alloc(&al, n_vocab, sizeof *candidates) : NULL;
    if (!candidates) {
        pleat__free(&al, s, 1, sizeof *s);
        return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for a sampler of %u tokens", n_vocab);
    }
    *s = (pleat_sampler){
        .al = al, .opt = *opt, .n_vocab = n_vocab, .rng = {.state = opt->seed}, .candidates = candidates};
    *out = s;
    return PLEAT_OK;
}

/* The lowest index of the largest of x[0..n); n if any is NaN.  16 at a time, which compilers turn into vectors. */
static uint32_t argmax(const float *x, uint32_t n) {
    enum { W = 16 };
    float most[W];
    uint32_t bad[W] = {0}, best = 0, i = 0;
    for (uint32_t j = 0; j < W; j++) most[j] = -INFINITY;
    for (; i + W <= n; i += W)
        for (uint32_t j = 0; j < W; j++) {
            most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
            bad[j] |= x[i + j] != x[i + j];
        }
    float max = -INFINITY;
    for (uint32_t j = 0; j < W; j++) {
        if (bad[j]) return n;
        max = most[j] > max ? most[j] : max;
    }
    for (; i < n; i++) {
        if (isnan(x[i])) return n;
        max = x[i] > max ? x[i] : max;
    }
    while (x[best] != max) best++; /* one of them is */
    return best;
}

pleat_status pleat_sampler_sample(pleat_sampler *sampler, const float *logits, pleat_token *out) {
    if (!sampler || !logits || !out) return PLEAT_E_ARG;
    const uint32_t best = argmax(logits, sampler->n_vocab);
    const float max = best < sampler->n_vocab ? logits[best] : -INFINITY;
    if (max == -INFINITY) return PLEAT_E_ARG;
    if (sampler->opt.temperature == 0.0f) {
        *out = (pleat_token)best;
        return PLEAT_OK;
    }
    candidate *c = sampler->candidates;
    uint32_t n = keep_top_k(c, logits, sampler->n_vocab, sampler->opt.top_k);
    double total = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = weight_of(c[i].logit, max, 1.0);
        total += c[i].weight;
    }
    n = keep_min_p(c, n, sampler->opt.min_p);
    n = keep_top_p(c, n, sampler->opt.top_p, total);
    *out = draw(sampler, n, max);
    return PLEAT_OK;
}

void pleat_sampler_destroy(pleat_sampler **sampler) {
    if (!sampler || !*sampler) return;
    pleat_sampler *s = *sampler;
    const pleat_allocator al = s->al;
    pleat__free(&al, s->candidates, s->n_vocab, sizeof *s->candidates);
    pleat__free(&al, s, 1, sizeof *s);
    *sampler = NULL;
}
