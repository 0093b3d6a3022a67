/* SPDX-License-Identifier: MIT
 *
 * prompt.c: speed of prompt attention, and of finding the attention received: 512 queries of one lane on one core.
 *
 *     bench_prompt [VARIANT [d]]
 *
 *     chunk     the queries against their own 512 tokens in f32 pages (causal)
 *     f32       the last 512 of 2048 tokens of a prompt, all in f32 pages of the run itself (causal)
 *     others    512 queries against 1536 quantised tokens of the past and their own chunk in f32
 *
 * Prints multiply-adds per second of attention, counting only visible pairs of query and key (2*d each, and G heads).
 * Where the machine has vector FMA, it is also a share of the peak of independent FMAs, measured in the same run.  Then
 * comes what it takes to find the attention that all these slots received, as a share of attention: in a second walk,
 * and at once, from weights that the walk of attention has kept.  Medians of several rounds, all in turn; head
 * dimensions d and groups G as models have them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/prompt.h"
#include "attn_variants.h"
#include "bench.h"
#include "core/rng.h"
#include "fma_peak.h"
#include "hw/cpu.h"

#define N_QUERIES 512u
#define N_PAST 1536u
#define PAGE_TOKENS 64u
#define N_ROUNDS 9
#define PEAK_LOOPS 2000000u
#define PEAK_ROUNDS 10 /* the best counts: others may use the core */

static void *get(size_t bytes) {
    void *p = aligned_alloc(PLEAT__ALIGN, (bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

/* Multiply-adds a second of this variant's registers, 0 if unknown. */
static double peak_macs(const prompt_variant *v) {
    double peak = 0;
    for (int i = 0; i < PEAK_ROUNDS; i++) peak = fmax(peak, fma_peak(v->needs, PEAK_LOOPS));
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
    t->run = (pleat__kv_run){.layout = &t->layout,
                             .base = get((size_t)n_pages * t->layout.used_bytes),
                             .page_bytes = t->layout.used_bytes,
                             .ids = t->ids,
                             .step = 1,
                             .n_slots = n_slots};
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

/* One line of the table. */
typedef struct config {
    const prompt_variant *variant;
    double peak; /* multiply-adds a second, 0: unknown */
    uint8_t k_bits, v_bits;
    uint32_t head_dim, n_group;
    uint32_t n_past;
} config;

/* What a line runs over and what it gives. */
typedef struct job {
    const config *c;
    pleat__quant_dsp quant;
    tokens past, self;
    pleat__kv_view view;
    uint32_t self_seen; /* the past too where all is one run */
    float *q, *out, *lse2, *received;
    void *scratch, *kept;
} job;

static bool is_one_run(const config *c) { return c->k_bits == 32; }

/* All queries, in blocks of as many rows as a call may have; with what slots receive if `received` is not NULL. */
static double attend_once(const job *j, float *received) {
    const config *c = j->c;
    const uint32_t step = PLEAT__PROMPT_ROWS / c->n_group;
    const size_t row_floats = (size_t)c->n_group * c->head_dim;
    const double start = measure_now_s();
    for (uint32_t i = 0; i < N_QUERIES; i += step) {
        const pleat__attn_prompt args = {.past = is_one_run(c) ? NULL : &j->view,
                                         .self = &j->self.run,
                                         .self_seen = j->self_seen + i,
                                         .n_queries = pleat__min_u32(step, N_QUERIES - i),
                                         .n_group = c->n_group,
                                         .head_dim = c->head_dim,
                                         .scale = 1 / sqrtf((float)c->head_dim),
                                         .q = j->q + i * row_floats,
                                         .q_stride = row_floats,
                                         .out = j->out + i * row_floats,
                                         .out_stride = row_floats,
                                         .lse2 = j->lse2 + (size_t)i * c->n_group,
                                         .lse2_stride = c->n_group,
                                         .quant = &j->quant,
                                         .scratch = j->scratch,
                                         .received = received,
                                         .n_together = c->n_group,
                                         .weights = j->kept};
        c->variant->fn(&args);
    }
    return measure_now_s() - start;
}

static double receive_once(const job *j) {
    const config *c = j->c;
    const double start = measure_now_s();
    for (int causal = is_one_run(c); causal < 2; causal++) {
        const pleat__kv_run *run = causal ? &j->self.run : &j->past.run;
        const pleat__attn_prompt_received args = {.run = run,
                                                  .causal = causal,
                                                  .self_seen = j->self_seen,
                                                  .step = 1,
                                                  .slot_from = 0,
                                                  .slot_to = run->n_slots,
                                                  .n_queries = N_QUERIES,
                                                  .n_group = c->n_group,
                                                  .head_dim = c->head_dim,
                                                  .scale = 1 / sqrtf((float)c->head_dim),
                                                  .q = j->q,
                                                  .q_stride = (size_t)c->n_group * c->head_dim,
                                                  .lse2 = j->lse2,
                                                  .lse2_stride = c->n_group,
                                                  .received = j->received + (causal ? N_PAST : 0),
                                                  .quant = &j->quant,
                                                  .scratch = j->scratch};
        c->variant->received(&args);
    }
    return measure_now_s() - start;
}

static void print_line(const config *c, measure_spread attend, measure_spread receive, measure_spread at_once) {
    const double pairs = (double)N_QUERIES * c->n_past + N_QUERIES * (N_QUERIES + 1.0) / 2;
    const double macs = pairs * c->n_group * 2 * c->head_dim / attend.median;
    char format[16] = "chunk";
    if (c->n_past > 0) snprintf(format, sizeof format, c->k_bits < 16 ? "k%uv%u" : "f%u", c->k_bits, c->v_bits);
    printf("%-7s %-6s d %3u  G %u  %8.3f ms (%.3f .. %.3f)  %6.1f GMAC/s", c->variant->name, format, c->head_dim,
           c->n_group, 1e3 * attend.median, 1e3 * attend.min, 1e3 * attend.max, 1e-9 * macs);
    if (c->peak > 0) printf("  %4.1f %% of peak", 100 * macs / c->peak);
    printf("   received: again +%.1f %%, at once +%.1f %%\n", 100 * receive.median / attend.median,
           100 * (at_once.median / attend.median - 1));
}

static float *random_floats(size_t n, uint64_t seed) {
    float *x = get(n * sizeof *x);
    pleat__rng rng = {seed};
    for (size_t i = 0; i < n; i++) x[i] = 4 * pleat__rng_f32(&rng) - 2;
    return x;
}

static void measure(const config *c) {
    const uint32_t d = c->head_dim;
    const size_t row_floats = (size_t)c->n_group * d;
    job j = {.c = c, .self_seen = is_one_run(c) ? c->n_past : 0};
    pleat__quant_dsp_init(&j.quant, pleat_cpu_flags());
    tokens_init(&j.past, &j.quant, c->k_bits, c->v_bits, d, N_PAST);
    tokens_init(&j.self, &j.quant, 32, 32, d, j.self_seen + N_QUERIES);
    j.view = (pleat__kv_view){.high = j.past.run};
    j.q = random_floats(N_QUERIES * row_floats, 2);
    j.out = get(N_QUERIES * row_floats * sizeof(float));
    j.lse2 = get((size_t)N_QUERIES * c->n_group * sizeof(float));
    j.received = get((2 * N_PAST + N_QUERIES) * sizeof(float));
    j.scratch = get(pleat__attn_prompt_scratch_bytes(d));
    j.kept = get(pleat__attn_prompt_kept_bytes(N_PAST + j.self.run.n_slots));

    double attend[N_ROUNDS], receive[N_ROUNDS], at_once[N_ROUNDS];
    for (int i = -1; i < N_ROUNDS; i++) { /* the first warms up */
        attend[i < 0 ? 0 : i] = attend_once(&j, NULL);
        receive[i < 0 ? 0 : i] = receive_once(&j);
        at_once[i < 0 ? 0 : i] = attend_once(&j, j.received);
    }
    print_line(c, measure_spread_of(attend, N_ROUNDS), measure_spread_of(receive, N_ROUNDS),
               measure_spread_of(at_once, N_ROUNDS));

    free(j.kept);
    free(j.scratch);
    free(j.received);
    free(j.lse2);
    free(j.out);
    free(j.q);
    tokens_release(&j.self);
    tokens_release(&j.past);
}

int main(int argc, char **argv) {
    static const uint8_t formats[][2] = {{32, 32}, {16, 16}, {8, 8}, {8, 4}, {4, 2}};
    static const uint32_t shapes[][2] = {{64, 2}, {128, 4}, {256, 4}, {80, 1}};
    for (size_t n = 0; n < sizeof prompt_variants / sizeof *prompt_variants; n++) {
        const prompt_variant *v = &prompt_variants[n];
        if ((pleat_cpu_flags() & v->needs) != v->needs || (argc > 1 && strcmp(argv[1], v->name) != 0)) continue;
        const double peak = peak_macs(v);
        if (peak > 0) printf("%-7s peak %.1f GMAC/s\n", v->name, 1e-9 * peak);
        const size_t n_formats = v->needs == 0 ? 1 : sizeof formats / sizeof *formats; /* the reference is slow */
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            if (argc > 2 && shapes[s][0] != (uint32_t)atoi(argv[2])) continue;
            measure(&(config){v, peak, 32, 32, shapes[s][0], shapes[s][1], 0});
            for (size_t f = 0; f < n_formats; f++)
                measure(&(config){v, peak, formats[f][0], formats[f][1], shapes[s][0], shapes[s][1], N_PAST});
        }
    }
    return 0;
}
