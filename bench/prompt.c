/* SPDX-License-Identifier: MIT
 *
 * prompt.c: speed of prompt attention: 512 queries of one lane against 2048 keys, on one core.
 *
 *     f32       the last 512 of 2048 tokens of a prompt, all in f32 pages of the run itself (causal)
 *     others    512 queries against 1536 quantised tokens of the past and their own chunk in f32
 *     +recv     the same with attention received
 *
 * Prints multiply-adds per second, counting only visible pairs of query and key (2*d each, and G heads), and, where the
 * machine has vector FMA, the fraction of the peak of independent FMAs measured in the same run.  The median of several
 * rounds; head dimensions d and groups G as models have them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/prompt.h"
#include "attn_variants.h"
#include "core/rng.h"
#include "hw/cpu.h"

#if PLEAT_X86
#include <immintrin.h>
#endif

#define N_QUERIES 512u
#define N_KEYS 2048u
#define PAGE_TOKENS 64u
#define N_ROUNDS 7

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *get(size_t bytes) {
    void *p = aligned_alloc(PLEAT__ALIGN, (bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

#if PLEAT_X86
/* 12 chains of FMAs hide a latency of 4 to 6 cycles at 2 a cycle.  Named variables: an array may end in memory. */
#define PEAK_LOOPS 2000000u
#define PEAK_ROUNDS 10 /* the best counts: others may use the core */
#define CHAINS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)

__attribute__((target("avx2,fma"))) static double peak_avx2(void) {
    const __m256 a = _mm256_set1_ps(0.5f);
#define DECLARE(i) __m256 x##i = _mm256_set1_ps(i);
#define STEP(i) __asm__ volatile("vfmadd213ps %1, %1, %0" : "+x"(x##i) : "x"(a));
    CHAINS(DECLARE)
    const double start = now_s();
    for (uint32_t n = 0; n < PEAK_LOOPS; n++) {
        CHAINS(STEP)
    }
    return PEAK_LOOPS * 12.0 * 8 / (now_s() - start);
#undef DECLARE
#undef STEP
}

__attribute__((target("avx512f"))) static double peak_avx512(void) {
    const __m512 a = _mm512_set1_ps(0.5f);
#define DECLARE(i) __m512 x##i = _mm512_set1_ps(i);
#define STEP(i) __asm__ volatile("vfmadd213ps %1, %1, %0" : "+v"(x##i) : "v"(a));
    CHAINS(DECLARE)
    const double start = now_s();
    for (uint32_t n = 0; n < PEAK_LOOPS; n++) {
        CHAINS(STEP)
    }
    return PEAK_LOOPS * 12.0 * 16 / (now_s() - start);
#undef DECLARE
#undef STEP
}
#endif

/* Multiply-adds a second of this variant's registers, 0 if unknown. */
static double peak_macs(const prompt_variant *v) {
    double peak = 0;
#if PLEAT_X86
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        if (v->needs == PLEAT_CPU_AVX2) peak = fmax(peak, peak_avx2());
        if (v->needs == PLEAT_CPU_AVX512) peak = fmax(peak, peak_avx512());
    }
#endif
    (void)v;
    return peak;
}

/* Tokens of random keys and values in pages of their own. */
typedef struct tokens {
    pleat__page_layout layout;
    pleat__kv_run run;
    pleat__page_id *ids;
} tokens;

static void tokens_init(tokens *t, const pleat__quant_dsp *quant, uint8_t k_bits, uint8_t v_bits, uint32_t d,
                        uint32_t n_slots) {
    const uint32_t n_pages = pleat__div_up_u32(n_slots, PAGE_TOKENS);
    pleat__rng rng = {1};
    const size_t n_floats = (size_t)PAGE_TOKENS * d;
    float *x = get(2 * n_floats * sizeof *x);
    if (pleat__page_layout_init(&t->layout, (pleat_format){k_bits, v_bits}, d, PAGE_TOKENS, false) != PLEAT_OK) exit(1);
    t->ids = get(n_pages * sizeof *t->ids);
    t->run = (pleat__kv_run){&t->layout, get((size_t)n_pages * t->layout.used_bytes), t->layout.used_bytes, t->ids, 1,
                             n_slots};
    for (uint32_t p = 0; p < n_pages; p++) {
        t->ids[p].v = p;
        for (size_t i = 0; i < 2 * n_floats; i++) x[i] = 4 * pleat__rng_f32(&rng) - 2;
        quant->store(&t->layout, pleat__kv_page(&t->run, p), 0, PAGE_TOKENS, x, x + n_floats, d);
    }
    free(x);
}

static void tokens_release(tokens *t) {
    free(t->run.base);
    free(t->ids);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All queries, in blocks of as many rows as a call may have. */
static double run_once(pleat__attn_prompt args, pleat__attn_prompt_fn fn, uint32_t self_seen) {
    const uint32_t step = PLEAT__PROMPT_ROWS / args.n_group;
    const float *q = args.q;
    float *out = args.out;
    const double start = now_s();
    for (uint32_t i = 0; i < N_QUERIES; i += step) {
        args.n_queries = pleat__min_u32(step, N_QUERIES - i);
        args.self_seen = self_seen + i;
        args.q = q + i * args.q_stride;
        args.out = out + i * args.out_stride;
        fn(&args);
    }
    return now_s() - start;
}

/* One line of the table. */
typedef struct config {
    const prompt_variant *variant;
    double peak; /* multiply-adds a second, 0: unknown */
    uint8_t k_bits, v_bits;
    uint32_t head_dim, n_group;
    bool with_received;
} config;

static void print_line(const config *c, double *seconds) {
    qsort(seconds, N_ROUNDS, sizeof *seconds, compare);
    const double median = seconds[N_ROUNDS / 2];
    const double pairs = (double)N_QUERIES * (N_KEYS - N_QUERIES) + N_QUERIES * (N_QUERIES + 1.0) / 2;
    const double macs = pairs * c->n_group * 2 * c->head_dim / median;
    char format[24];
    if (c->k_bits >= 16)
        snprintf(format, sizeof format, "f%u%s", c->k_bits, c->with_received ? "+recv" : "");
    else
        snprintf(format, sizeof format, "k%uv%u%s", c->k_bits, c->v_bits, c->with_received ? "+recv" : "");
    printf("%-7s %-10s d %3u  G %u  %8.3f ms (%.3f .. %.3f)  %6.1f GMAC/s", c->variant->name, format, c->head_dim,
           c->n_group, 1e3 * median, 1e3 * seconds[0], 1e3 * seconds[N_ROUNDS - 1], 1e-9 * macs);
    if (c->peak > 0) printf("  %4.1f %% of peak", 100 * macs / c->peak);
    printf("\n");
}

static float *random_floats(size_t n, uint64_t seed) {
    float *x = get(n * sizeof *x);
    pleat__rng rng = {seed};
    for (size_t i = 0; i < n; i++) x[i] = 4 * pleat__rng_f32(&rng) - 2;
    return x;
}

static void measure(const config *c) {
    const bool one_run = c->k_bits == 32;
    const uint32_t d = c->head_dim, self_seen = one_run ? N_KEYS - N_QUERIES : 0;
    const size_t row_floats = (size_t)c->n_group * d;
    pleat__quant_dsp quant;
    tokens past, self;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    tokens_init(&past, &quant, c->k_bits, c->v_bits, d, N_KEYS - N_QUERIES);
    tokens_init(&self, &quant, 32, 32, d, self_seen + N_QUERIES);
    const pleat__kv_view view = {.high = past.run};
    float *q = random_floats(N_QUERIES * row_floats, 2), *out = get(N_QUERIES * row_floats * sizeof *out);
    float *received = get(2 * N_KEYS * sizeof *received);
    void *scratch = get(pleat__attn_prompt_scratch_bytes(d));

    const pleat__attn_prompt args = {.past = one_run ? NULL : &view,
                                     .self = &self.run,
                                     .n_group = c->n_group,
                                     .head_dim = d,
                                     .scale = 1 / sqrtf((float)d),
                                     .q = q,
                                     .q_stride = row_floats,
                                     .out = out,
                                     .out_stride = row_floats,
                                     .received_past_high = c->with_received ? received : NULL,
                                     .received_self = c->with_received ? received + N_KEYS : NULL,
                                     .quant = &quant,
                                     .scratch = scratch};
    double seconds[N_ROUNDS];
    run_once(args, c->variant->fn, self_seen);
    for (int i = 0; i < N_ROUNDS; i++) seconds[i] = run_once(args, c->variant->fn, self_seen);
    print_line(c, seconds);

    free(scratch);
    free(received);
    free(out);
    free(q);
    tokens_release(&self);
    tokens_release(&past);
}

int main(void) {
    static const uint8_t formats[][2] = {{32, 32}, {16, 16}, {8, 8}, {8, 4}, {4, 2}};
    static const uint32_t shapes[][2] = {{64, 2}, {128, 4}, {256, 4}, {80, 1}};
    for (size_t n = 0; n < sizeof prompt_variants / sizeof *prompt_variants; n++) {
        const prompt_variant *v = &prompt_variants[n];
        if ((pleat_cpu_flags() & v->needs) != v->needs) continue;
        const double peak = peak_macs(v);
        if (peak > 0) printf("%-7s peak %.1f GMAC/s\n", v->name, 1e-9 * peak);
        const size_t n_formats = v->needs == 0 ? 1 : sizeof formats / sizeof *formats; /* the reference is slow */
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t f = 0; f < n_formats; f++)
                for (int received = 0; received < 2; received++)
                    measure(&(config){v, peak, formats[f][0], formats[f][1], shapes[s][0], shapes[s][1], received});
    }
    return 0;
}
