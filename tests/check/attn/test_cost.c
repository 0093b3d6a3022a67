/* SPDX-License-Identifier: MIT
 *
 * test_cost.c: the cost model: counts against a walk over groups and heads, as the kernels walk; the solver against
 * rates that are known; what must hold for any shape.
 */
#include <math.h>
#include <string.h>

#include "attn/cost.h"
#include "attn/decode.h"
#include "cache/cache.h"
#include "cache/decode.h"
#include "cache/keep/keep.h"
#include "check.h"
#include "pleat/cost.h"

static const pleat_format formats[] = {{32, 32}, {16, 16}, {8, 8}, {8, 4}, {4, 8}, {4, 4}, {4, 2}, {2, 2}};
static const uint32_t flag_sets[] = {
    0,
    PLEAT_CPU_AVX2,
    PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI,
    PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512,
    PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI,
    PLEAT_CPU_NEON,
    PLEAT_CPU_NEON | PLEAT_CPU_DOTPROD,
};

static pleat_cost_shape random_shape(void) {
    return (pleat_cost_shape){.format = formats[check_below(CHECK_COUNT(formats))],
                              .head_dim = 16 * (uint32_t)check_between(1, 32),
                              .n_group = (uint32_t)check_between(1, PLEAT__MAX_GROUP),
                              .n_lanes = (uint32_t)check_between(1, 300),
                              .n_tokens = (uint32_t)check_between(1, 40000),
                              .n_threads = (uint32_t)check_between(1, 64),
                              .cpu_flags = flag_sets[check_below(CHECK_COUNT(flag_sets))]};
}

static pleat_cost_work work_of(const pleat_cost_shape *shape) {
    pleat_cost_work w;
    memset(&w, 0xD0, sizeof w);
    CHECK_STATUS(pleat_cost_work_of(shape, &w), PLEAT_OK);
    return w;
}

static void test_ranges(void) {
    for (uint32_t n = 1; n < 200000; n += 1 + n / 97) {
        pleat_cache cache = {.keep = &pleat__keep_all};
        const pleat_format format = formats[check_below(CHECK_COUNT(formats))];
        const uint32_t d = 16 * (uint32_t)check_between(1, 32);
        pleat__page_layout *l = &cache.layouts[PLEAT__HIGH];
        CHECK_STATUS(pleat__page_layout_init(l, format, d, PLEAT__TILE, false), PLEAT_OK);
        cache.layouts[PLEAT__LOW] = *l;
        check_context("%u tokens of k%uv%u, d %u", n, format.k_bits, format.v_bits, d);
        const uint64_t n_bytes = (uint64_t)pleat__div_up_u32(n, PLEAT__TILE) * l->used_bytes;
        CHECK_EQ_U64(pleat__attn_ranges(n_bytes, n), pleat__cache_max_splits(&cache, n));
    }
}

static void test_head_blocks(void) {
    static const uint32_t want[] = {0, 1, 1, 2, 1, 2, 2, 3, 2};
    for (uint32_t g = 1; g < CHECK_COUNT(want); g++) CHECK_EQ_U64(pleat__attn_head_blocks(g), want[g]);
}

/* One thread, one lane in one range: count tile by tile what the kernels' loops do. */
static void test_counts(void) {
    const uint32_t flags = PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI;
    for (uint32_t round = 0; round < 200; round++) {
        pleat_cost_shape s = random_shape();
        s.n_lanes = s.n_threads = 1;
        s.n_tokens = 16 * (uint32_t)check_between(1, 60); /* one range */
        s.cpu_flags = flags;
        const pleat_cost_work w = work_of(&s);
        const pleat__attn_counts *c = pleat__attn_counts_of(flags, s.format);
        const double lines = s.n_tokens * (double)pleat_format_token_bytes(s.format, s.head_dim) / 64;
        double dots = 0, fmas = 0, converts = 0;
        for (uint32_t t = 0; t < s.n_tokens; t += 16)
            for (uint32_t head = 0, n; head < s.n_group; head += n) {
                n = pleat__decode_block_heads(s.n_group - head);
                dots += 2 * c->dots * n * s.head_dim / 4;
                fmas += 2 * c->fmas * n * s.head_dim;
                converts += 2 * c->converts * s.head_dim * (s.format.k_bits == 16);
            }
        check_context("k%uv%u, d %u, G %u, %u tokens", s.format.k_bits, s.format.v_bits, s.head_dim, s.n_group,
                      s.n_tokens);
        const double product = w.n[PLEAT_COST_PRODUCT], least = dots + fmas + converts;
        CHECK(product >= least && product <= 1.5 * least); /* the rest folds groups into o */
        CHECK_NEAR(w.n[PLEAT_COST_LINE], lines, 1e-9 * lines);
        CHECK_NEAR(w.bytes, 64 * lines, 1e-9 * lines);
        CHECK_NEAR(w.n[PLEAT_COST_QUERY], (double)s.n_group * s.head_dim, 0);
        CHECK(w.n[PLEAT_COST_UNIT] == 1 && w.n[PLEAT_COST_CALL] == 1);
        CHECK(w.starts >= 1);
    }
}

/* Integer formats have a variant wherever floats have one, and better CPUs never count more. */
static void test_variants(void) {
    for (uint32_t f = 0; f < CHECK_COUNT(formats); f++) {
        double scalar = 0;
        for (uint32_t i = 0; i < CHECK_COUNT(flag_sets); i++) {
            const pleat_cost_shape s = {formats[f], 128, 4, 8, 8192, 2, flag_sets[i]};
            const pleat_cost_work w = work_of(&s);
            const double n = w.n[PLEAT_COST_PRODUCT];
            if (i == 0) scalar = n;
            check_context("k%uv%u, flags %x", formats[f].k_bits, formats[f].v_bits, flag_sets[i]);
            CHECK(n > 0 && (i == 0 || n < scalar));
        }
    }
}

/* More tokens, lanes or heads never cost less; more threads never more. */
static void test_monotonic(void) {
    const pleat_cost_rates rates = {{600, 330, 3.4, 0.26, 0.1, 1}, 28, 0.9, 300};
    for (uint32_t round = 0; round < 500; round++) {
        const pleat_cost_shape s = random_shape();
        const pleat_cost_work w = work_of(&s);
        for (int what = 0; what < 4; what++) {
            pleat_cost_shape more = s;
            more.n_tokens *= what == 0 ? 2 : 1;
            more.n_lanes *= what == 1 ? 2 : 1;
            more.n_group = what == 2 && s.n_group <= PLEAT__MAX_GROUP / 2 ? 2 * s.n_group : s.n_group;
            if (what == 3) more.n_threads = 1;
            const pleat_cost_work v = work_of(&more);
            check_context("what %d: d %u, G %u, %u lanes, %u tokens, %u threads", what, s.head_dim, s.n_group,
                          s.n_lanes, s.n_tokens, s.n_threads);
            CHECK(pleat_cost_ns(&v, &rates, 0) >= 0.999 * pleat_cost_ns(&w, &rates, 0));
            CHECK(pleat_cost_ns(&w, &rates, 1) >= pleat_cost_ns(&w, &rates, 0));
        }
    }
}

static void test_refused(void) {
    const pleat_cost_shape good = {{8, 4}, 128, 4, 8, 1u << 24, 2, 0};
    pleat_cost_work w, kept;
    memset(&w, 0xD0, sizeof w);
    kept = w;
    pleat_cost_shape bad[] = {good, good, good, good, good, good, good, good, good};
    bad[0].format = (pleat_format){8, 5};
    bad[1].head_dim = 24;
    bad[2].n_group = 0;
    bad[3].n_group = PLEAT__MAX_GROUP + 1;
    bad[4].n_lanes = 0;
    bad[5].n_tokens = 0;
    bad[6].n_threads = 0;
    bad[7].n_tokens = good.n_tokens + 1;
    bad[8].n_tokens = UINT32_MAX - 5; /* rounded up to whole tiles it would be 0 */
    for (uint32_t i = 0; i < CHECK_COUNT(bad); i++) CHECK_STATUS(pleat_cost_work_of(&bad[i], &w), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cost_work_of(NULL, &w), PLEAT_E_ARG);
    CHECK_EQ_MEM(&w, &kept, sizeof w);
    CHECK_STATUS(pleat_cost_work_of(&good, &w), PLEAT_OK);
    pleat_cost_rates rates = {.gb_per_s = 0};
    const double ns[] = {1, NAN, 0, -1, INFINITY};
    CHECK_STATUS(pleat_cost_fit_core(&w, ns, 0, &rates), PLEAT_E_ARG);
    for (uint32_t i = 1; i < 5; i++) CHECK_STATUS(pleat_cost_fit_core(&w, &ns[i], 1, &rates), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cost_fit_memory(&w, ns, 1, &rates), PLEAT_E_ARG); /* no bandwidth */
}

/* The rates that made the times come back, with any of them 0. */
static void test_fit(void) {
    enum { N = 60 };
    pleat_cost_work w[N];
    double core_ns[N], memory_ns[N];
    for (uint32_t round = 0; round < 100; round++) {
        pleat_cost_rates want = {
            .gb_per_s = check_uniform(5, 300), .exposed = check_uniform(0, 1), .start_ns = check_uniform(0, 1000)};
        static const double typical[PLEAT_COST_KINDS] = {2000, 400, 3, 0.3, 0.2, 1};
        for (uint32_t k = 0; k < PLEAT_COST_KINDS; k++)
            want.ns[k] = check_below(6) ? typical[k] * check_uniform(0.3, 3) : 0;
        for (uint32_t i = 0; i < N; i++) {
            pleat_cost_shape s = random_shape();
            s.format = (pleat_format){8, 8};
            s.cpu_flags = 0;
            s.n_tokens = (uint32_t)check_between(1, i % 2 ? 64 : 4096);
            s.n_threads = 2;
            w[i] = work_of(&s);
            core_ns[i] = pleat_cost_ns(&w[i], &want, 0);
            memory_ns[i] = pleat_cost_ns(&w[i], &want, 1);
        }
        pleat_cost_rates got = {.gb_per_s = want.gb_per_s};
        if (!(core_ns[0] > 0)) continue;
        CHECK_STATUS(pleat_cost_fit_core(w, core_ns, N, &got), PLEAT_OK);
        for (uint32_t k = 0; k < PLEAT_COST_KINDS; k++) {
            check_context("round %u, kind %u", round, k);
            CHECK(got.ns[k] >= 0);
        }
        CHECK_STATUS(pleat_cost_fit_memory(w, memory_ns, N, &got), PLEAT_OK);
        for (uint32_t i = 0; i < N; i++) {
            CHECK_NEAR(pleat_cost_ns(&w[i], &got, 0), core_ns[i], 0.01 * core_ns[i]);
            CHECK_NEAR(pleat_cost_ns(&w[i], &got, 1), memory_ns[i], 0.01 * memory_ns[i]);
        }
    }
}

/* Times that no rates of 0 and above explain: nothing negative comes out, and nothing that is no number. */
static void test_fit_noise(void) {
    enum { N = 8 };
    pleat_cost_work w[N];
    double ns[N];
    for (uint32_t round = 0; round < 300; round++) {
        const uint32_t n = (uint32_t)check_between(1, N);
        for (uint32_t i = 0; i < n; i++) {
            const pleat_cost_shape s = random_shape();
            w[i] = i && check_below(4) == 0 ? w[0] : work_of(&s);
            ns[i] = exp(check_uniform(0, 20));
        }
        pleat_cost_rates got = {.gb_per_s = 30};
        CHECK_STATUS(pleat_cost_fit_core(w, ns, n, &got), PLEAT_OK);
        CHECK_STATUS(pleat_cost_fit_memory(w, ns, n, &got), PLEAT_OK);
        for (uint32_t k = 0; k < PLEAT_COST_KINDS; k++) CHECK(got.ns[k] >= 0 && got.ns[k] < INFINITY);
        CHECK(got.exposed >= 0 && got.exposed < INFINITY && got.start_ns >= 0 && got.start_ns < INFINITY);
    }
}

static const check_test tests[] = {
    {"ranges", test_ranges},     {"head_blocks", test_head_blocks}, {"counts", test_counts},
    {"variants", test_variants}, {"monotonic", test_monotonic},     {"refused", test_refused},
    {"fit", test_fit},           {"fit_noise", test_fit_noise},
};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
