/* SPDX-License-Identifier: MIT
 *
 * test_attn_decode.c: decode attention and attention received (src/attn) against float64.
 *
 * A random lane is stored with the reference quantiser in pages that stand anywhere in a guarded pool, then each
 * variant's result is compared with an oracle that computes in float64 on the dequantised keys and values.  Bounds are
 * those of attn.h; where inputs are extreme, the error is measured against the sum of |weight*value|, which
 * cancellation does not shrink.
 */
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "attn/decode.h"
#include "attn/mass.h"
#include "attn_variants.h"
#include "check.h"
#include "hw/cpu.h"
#include "quant/variants.h"

#define MAX_SLOTS 1024u
#define MAX_D 512u
#define MAX_G 64u

static const pleat_format formats[] = {{32, 32},  {16, 16},  {8, 8},    {8, 4},    {8, 2},   {4, 8},
                                       {4, 4},    {4, 2},    {2, 8},    {2, 4},    {2, 2},   {4, 4, 1},
                                       {4, 2, 1}, {3, 3, 1}, {3, 2, 1}, {2, 3, 1}, {2, 2, 1}};
static const uint32_t head_dims[] = {16, 64, 80, 96, 128, 256};

/* ---- a lane and its exact attention ----------------------------------------------------------------------------- */

typedef struct lane {
    pleat__page_layout layout;
    pleat__kv_run run;
    pleat__page_id ids[MAX_SLOTS / 16];
    check_buf pool;
    uint32_t n_pages;
    float scale;
    float cap2;
} lane;

static float keys[MAX_SLOTS * MAX_D], values[MAX_SLOTS * MAX_D], query_in[MAX_G * MAX_D];

/* Pages of `tokens` slots at random places of a pool that has a few more; half of the tracked ones have masses. */
static void lane_init(lane *a, pleat_format format, uint32_t d, uint32_t tokens, uint32_t n_slots, bool tracked) {
    memset(a, 0, sizeof *a);
    if (tracked && check_below(2))
        CHECK_STATUS(pleat__page_layout_init_massed(&a->layout, format, d, tokens, 1), PLEAT_OK);
    else
        CHECK_STATUS(pleat__page_layout_init(&a->layout, format, d, tokens, tracked), PLEAT_OK);
    a->scale = 1 / sqrtf((float)d);
    a->n_pages = pleat__div_up_u32(n_slots, tokens);
    const uint32_t n_pool = a->n_pages + (uint32_t)check_below(3);
    a->run.page_bytes = (a->layout.used_bytes + 63) / 64 * 64 + 64 * check_below(3);
    a->pool = check_buf_new(n_pool * a->run.page_bytes, 64);
    uint32_t order[MAX_SLOTS / 16 + 3];
    for (uint32_t i = 0; i < n_pool; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    const bool backwards = check_below(2) != 0;
    for (uint32_t i = 0; i < a->n_pages; i++) a->ids[backwards ? a->n_pages - 1 - i : i].v = order[i];
    a->run.layout = &a->layout;
    a->run.base = a->pool.p;
    a->run.step = backwards ? -1 : 1;
    a->run.ids = backwards && a->n_pages ? a->ids + a->n_pages - 1 : a->ids;
    a->run.n_slots = n_slots;
}

/* A mass's bits: none, any, the least, the most. */
static uint16_t random_mass(void) {
    switch (check_below(4)) {
        case 0: return 0;
        case 1: return check_below(2) ? 1 : PLEAT__MASS_TOP_BITS;
        default: return (uint16_t)check_below(PLEAT__MASS_TOP_BITS + 1);
    }
}

/* Store keys and values [n_slots][d]; give tracked slots a position, `dead` in 8 of them none, and masses. */
static void lane_store(lane *a, uint32_t dead) {
    const uint32_t d = a->layout.head_dim;
    for (uint32_t slot = 0; slot < a->run.n_slots; slot += a->layout.tokens) {
        uint8_t *page = pleat__kv_page(&a->run, slot / a->layout.tokens);
        const uint32_t n = pleat__min_u32(a->layout.tokens, a->run.n_slots - slot);
        pleat__quant_store_ref(&a->layout, page, 0, n, keys + slot * d, values + slot * d, d);
        for (uint32_t i = 0; a->layout.tracked && i < n; i++)
            pleat__positions(&a->layout, page)[i] = check_below(8) < dead ? -1 : (int32_t)(slot + i);
        for (uint32_t i = 0; a->layout.mass_off && i < n; i++) pleat__masses(&a->layout, page)[i] = random_mass();
    }
}

static void lane_release(lane *a) {
    CHECK(check_buf_is_intact(&a->pool));
    check_buf_free(&a->pool);
}

static bool slot_is_live(const lane *a, uint32_t slot) {
    if (!a->layout.tracked) return true;
    const uint8_t *page = pleat__kv_page(&a->run, slot / a->layout.tokens);
    return pleat__positions(&a->layout, (uint8_t *)(uintptr_t)page)[slot % a->layout.tokens] >= 0;
}

/* log2 of a slot's mass. */
static double mass_of(const lane *a, uint32_t slot) {
    uint8_t *page = pleat__kv_page(&a->run, slot / a->layout.tokens);
    return a->layout.mass_off ? (double)pleat__f16_to_f32(pleat__masses(&a->layout, page)[slot % a->layout.tokens]) : 0;
}

/* As attn/cap.h has it. */
static double capped(const lane *a, double logit2) {
    return a->cap2 > 0 ? (double)a->cap2 * tanh(logit2 / (double)a->cap2) : logit2;
}

/* Replace keys and values by what the pages hold. */
static void lane_load(const lane *a) {
    static float tile[16 * MAX_D] __attribute__((aligned(64)));
    const uint32_t d = a->layout.head_dim;
    for (uint32_t slot = 0; slot < a->run.n_slots; slot++) {
        const uint8_t *page = pleat__kv_page(&a->run, slot / a->layout.tokens);
        const uint32_t t = slot % a->layout.tokens / 16, s = slot % 16;
        pleat__quant_load_k_ref(&a->layout, page, t, tile);
        for (uint32_t i = 0; i < d; i++) keys[slot * d + i] = tile[i * 16 + s];
        pleat__quant_load_v_ref(&a->layout, page, t, tile);
        for (uint32_t i = 0; i < d; i++) values[slot * d + i] = tile[s * d + i];
    }
}

typedef struct exact {
    double logit2[MAX_G][MAX_SLOTS];
    double size[MAX_G][MAX_SLOTS]; /* sum of |q k'|, and mass: what a logit's rounding is relative to */
    double out[MAX_G][MAX_D];
    double lse2[MAX_G];
    double out_norm[MAX_G];
    double spread[MAX_G]; /* sum of weight * norm of value */
} exact;

static exact want;

static void compute_exact(const lane *a, uint32_t n_group, uint32_t from, uint32_t to) {
    const uint32_t d = a->layout.head_dim;
    lane_load(a);
    for (uint32_t g = 0; g < n_group; g++) {
        double most = -INFINITY, sum = 0;
        for (uint32_t s = from; s < to; s++) {
            double dot = 0, size = 0;
            for (uint32_t i = 0; i < d; i++) {
                const double x = (double)query_in[g * d + i] * (double)keys[s * d + i];
                dot += x;
                size += fabs(x);
            }
            const double factor = (double)a->scale * 1.4426950408889634;
            want.logit2[g][s] = slot_is_live(a, s) ? capped(a, dot * factor) + mass_of(a, s) : -INFINITY;
            want.size[g][s] = size * factor + mass_of(a, s);
            most = fmax(most, want.logit2[g][s]);
        }
        memset(want.out[g], 0, sizeof want.out[g]);
        want.spread[g] = want.out_norm[g] = 0;
        for (uint32_t s = from; s < to && most > -INFINITY; s++) sum += exp2(want.logit2[g][s] - most);
        want.lse2[g] = most + log2(sum);
        for (uint32_t s = from; s < to && most > -INFINITY; s++) {
            const double weight = exp2(want.logit2[g][s] - most) / sum;
            double norm = 0;
            for (uint32_t i = 0; i < d; i++) {
                const double v = (double)values[s * d + i];
                want.out[g][i] += weight * v;
                norm += v * v;
            }
            want.spread[g] += weight * sqrt(norm);
        }
        for (uint32_t i = 0; i < d; i++) want.out_norm[g] += want.out[g][i] * want.out[g][i];
        want.out_norm[g] = sqrt(want.out_norm[g]);
    }
}

/* ---- running a variant ------------------------------------------------------------------------------------------- */

typedef struct result {
    float out[MAX_G * MAX_D];
    float lse2[MAX_G];
    float logits[MAX_G * (MAX_SLOTS + 32)];
} result;

#define LOGITS_STRIDE (MAX_SLOTS + 32)
#define UNTOUCHED 12345.0f

static result got;

typedef struct engine {
    pleat__attn_dsp dsp;
    check_buf query_memory;
    check_buf acc_memory[2];
    pleat__attn_query query;
    pleat__attn_acc acc[2];
    uint32_t n_group, d;
} engine;

static void engine_init(engine *e, const decode_variant *v, const lane *a, uint32_t n_group) {
    e->n_group = n_group;
    e->d = a->layout.head_dim;
    pleat__attn_dsp_init(&e->dsp, v->flags);
    e->query_memory = check_buf_new(pleat__attn_query_bytes(n_group, e->d), 64);
    (pleat__format_is_quantised(a->layout.format) ? pleat__attn_query_init : pleat__attn_query_init_floats)(
        &e->query, e->query_memory.p, query_in, n_group, e->d, a->scale);
    e->query.cap2 = a->cap2;
    for (int i = 0; i < 2; i++) {
        e->acc_memory[i] = check_buf_new(pleat__attn_acc_bytes(n_group, e->d), 64);
        pleat__attn_acc_init(&e->acc[i], e->acc_memory[i].p, n_group, e->d);
    }
}

static void engine_release(engine *e) {
    CHECK(check_buf_is_intact(&e->query_memory));
    check_buf_free(&e->query_memory);
    for (int i = 0; i < 2; i++) {
        CHECK(check_buf_is_intact(&e->acc_memory[i]));
        check_buf_free(&e->acc_memory[i]);
    }
}

/* Slots [from, to) into `got`; some rounds ask for logits. */
static void run_variant(const decode_variant *v, const lane *a, uint32_t n_group, uint32_t from, uint32_t to,
                        bool logits) {
    engine e;
    engine_init(&e, v, a, n_group);
    for (size_t i = 0; i < MAX_G * (size_t)LOGITS_STRIDE; i++) got.logits[i] = UNTOUCHED;
    e.dsp.decode(&e.query, &a->run, from, to, &e.acc[0], logits ? got.logits : NULL, LOGITS_STRIDE);
    pleat__attn_finish(&e.acc[0], n_group, e.d, got.out, got.lse2);
    engine_release(&e);
}

static bool is_exact_format(const lane *a, const decode_variant *v) {
    return v->flags == 0 || !pleat__format_is_quantised(a->layout.format);
}

static double error_of(uint32_t g, uint32_t d) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) {
        const double e = (double)got.out[g * d + i] - want.out[g][i];
        sum += e * e;
    }
    return sqrt(sum);
}

/* |logit error| <= half a step of the query times sum |k'|, and f32 rounding. */
static double logit_bound(const lane *a, uint32_t g, uint32_t slot, bool is_float) {
    const uint32_t d = a->layout.head_dim;
    double top = 0, k_sum = 0, k_most = 0, q_sum = 0;
    for (uint32_t i = 0; i < d; i++) {
        const double q = fabs((double)query_in[g * d + i]) * (double)a->scale * 1.4426950408889634;
        top = fmax(top, q);
        q_sum += q;
        k_sum += fabs((double)keys[slot * d + i]);
        k_most = fmax(k_most, fabs((double)keys[slot * d + i]));
    }
    const double query_steps = fmin(32639, 2147483647.0 / (255 * d) - 1);
    const double capping = a->cap2 > 0 ? 3e-7 * fabs(want.logit2[g][slot]) : 0;
    const double rounding = 4e-6 * want.size[g][slot] + 4e-7 * q_sum * k_most + capping + 1e-41;
    if (top < 1e-33) return rounding + want.size[g][slot]; /* taken as zero */
    return is_float ? rounding : rounding + 0.51 * top / query_steps * k_sum;
}

static void check_logits(const lane *a, const decode_variant *v, uint32_t n_group, uint32_t from, uint32_t to) {
    const uint32_t to_tile = (to + 15) / 16 * 16;
    for (uint32_t g = 0; g < n_group; g++) {
        const float *row = got.logits + (size_t)g * LOGITS_STRIDE;
        for (uint32_t s = 0; s < LOGITS_STRIDE; s++) {
            if (s >= from && s < to && slot_is_live(a, s))
                CHECK_NEAR((double)row[s], want.logit2[g][s], logit_bound(a, g, s, is_exact_format(a, v)));
            else if (s >= from && s < to)
                CHECK(row[s] == -INFINITY);
            else if (s >= to && s < to_tile)
                CHECK(row[s] == -INFINITY || row[s] == UNTOUCHED);
            else
                CHECK(row[s] == UNTOUCHED);
        }
    }
}

static const pleat_format *random_format(void) { return &formats[check_below(CHECK_COUNT(formats))]; }

static void describe(const decode_variant *v, const lane *a, uint32_t n_group, const char *what) {
    check_context("%s k%uv%u d %u G %u tokens %u slots %u %s%s", v->name, a->layout.format.k_bits,
                  a->layout.format.v_bits, a->layout.head_dim, n_group, a->layout.tokens, a->run.n_slots,
                  a->layout.tracked ? "tracked " : "", what);
}

/* For each variant that this machine has. */
#define FOR_EACH_VARIANT(v)                                                                                  \
    for (const decode_variant *v = decode_variants; v < decode_variants + CHECK_COUNT(decode_variants); v++) \
        if (!(v->flags & ~pleat_cpu_flags()))

/* attn.h's bounds.  Those for floats leave out what the rounding of large f32 logits does to weights. */
static double tolerance(const lane *a, const decode_variant *v, uint32_t g, uint32_t from, uint32_t to) {
    double size = 0;
    for (uint32_t s = from; s < to; s++) size = fmax(size, want.size[g][s]);
    const double capping = 6e-7 * fmin(size, (double)a->cap2);
    return (is_exact_format(a, v) ? 2e-6 : 3e-4) + 0x1p-24 * size + capping;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* tanh alone: cap.h's bound, and never above the cap; from tiny numbers to the largest, where 2^x takes over too. */
static void test_cap(void) {
    static const float caps[] = {0x1p-17f, 0.5f, 7, 50 * 1.442695f, 0x1p17f};
    static float in[16 * 1024] __attribute__((aligned(64))), out[16 * 1024] __attribute__((aligned(64)));
    for (size_t c = 0; c < CHECK_COUNT(caps); c++) {
        const float cap = caps[c];
        for (size_t i = 0; i < CHECK_COUNT(in); i++)
            in[i] = i % 2 ? cap * (float)check_uniform(-1, 1) : cap * ldexpf(check_normal(), (int)check_below(60) - 40);
        const float ends[] = {0, -0.0f, 0.625f * cap, -0.625f * cap, 0x1p100f, -0x1p100f, 8 * cap, 10 * cap};
        memcpy(in, ends, sizeof ends);
        for (const cap_variant *v = cap_variants; v < cap_variants + CHECK_COUNT(cap_variants); v++) {
            if (v->needs & ~pleat_cpu_flags()) continue;
            check_context("cap %g, %s", (double)cap, v->name);
            memcpy(out, in, sizeof out);
            v->fn(out, CHECK_COUNT(out), cap);
            for (size_t i = 0; i < CHECK_COUNT(in) && check_failures() < 10; i++) {
                const double bounded = (double)cap * tanh((double)in[i] / (double)cap);
                CHECK_NEAR((double)out[i], bounded, 3e-7 * fabs(bounded) + 1e-41);
                CHECK(fabsf(out[i]) <= cap);
            }
        }
    }
}

static void fill_normal_lane(lane *a, uint32_t n_group, float q_size, uint32_t dead) {
    const uint32_t d = a->layout.head_dim;
    check_fill_normal(keys, (size_t)a->run.n_slots * d);
    check_fill_normal(values, (size_t)a->run.n_slots * d);
    check_fill(query_in, (size_t)n_group * d, 0, q_size);
    lane_store(a, dead);
}

static uint32_t random_slots(void) {
    switch (check_below(4)) {
        case 0: return (uint32_t)check_between(1, 17);
        case 1: return 16 * (uint32_t)check_between(1, 20);
        case 2: return 16 * (uint32_t)check_between(1, 20) - 1;
        default: return (uint32_t)check_between(1, 600);
    }
}

/* One lane of plausible keys, values and queries: attn.h's bounds, relative to the norm of the result. */
static void check_plausible_lane(pleat_format format, uint32_t d, uint32_t n_group, uint32_t n_slots) {
    lane a;
    const bool tracked = check_below(2) != 0;
    const uint32_t dead = tracked ? (uint32_t)check_below(5) : 0;
    lane_init(&a, format, d, 16 * (uint32_t)check_between(1, 6), n_slots, tracked);
    const float sizes[] = {0.1f, 1, 2, 4}, caps[] = {0, 0, 3, 50 * 1.442695f};
    fill_normal_lane(&a, n_group, sizes[check_below(4)], dead);
    a.cap2 = caps[check_below(4)];
    const uint32_t from = 16 * (uint32_t)check_below(pleat__div_up_u32(n_slots, 16));
    const uint32_t to = check_below(2) ? n_slots : pleat__min_u32(n_slots, from + 16 * (uint32_t)check_between(1, 9));
    compute_exact(&a, n_group, from, to);
    FOR_EACH_VARIANT(v) {
        describe(v, &a, n_group, "");
        const bool logits = check_below(2) != 0;
        run_variant(v, &a, n_group, from, to, logits);
        for (uint32_t g = 0; g < n_group; g++) {
            CHECK(error_of(g, d) <= tolerance(&a, v, g, from, to) * want.out_norm[g]);
            if (want.lse2[g] > -INFINITY)
                CHECK_NEAR((double)got.lse2[g], want.lse2[g], is_exact_format(&a, v) ? 2e-5 : 5e-3);
            else
                CHECK(got.lse2[g] == -INFINITY);
        }
        if (logits) check_logits(&a, v, n_group, from, to);
    }
    lane_release(&a);
}

static void test_plausible(void) {
    const uint64_t rounds = check_rounds(30, 2);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        for (size_t f = 0; f < CHECK_COUNT(formats); f++)
            check_plausible_lane(formats[f], head_dims[check_below(CHECK_COUNT(head_dims))],
                                 (uint32_t)check_between(1, 9), random_slots());
    }
}

/* Every format with every head dimension and group of heads that models have; groups of one to four tiles. */
static void test_every_shape(void) {
    for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
        for (size_t i = 1; i < CHECK_COUNT(head_dims); i++) {
            for (uint32_t n_group = 1; n_group <= 8 && check_failures() < 10; n_group++)
                check_plausible_lane(formats[f], head_dims[i], n_group, (uint32_t)check_between(49, 130));
        }
    }
}

static void test_one_token_and_tails(void) {
    for (uint32_t n_slots = 1; n_slots <= 17; n_slots++) {
        for (size_t f = 0; f < CHECK_COUNT(formats); f++) check_plausible_lane(formats[f], 64, 4, n_slots);
    }
}

static void test_many_heads(void) {
    check_plausible_lane((pleat_format){8, 4}, 512, 64, 40);
    check_plausible_lane((pleat_format){16, 16}, 512, 63, 40);
    check_plausible_lane((pleat_format){4, 2}, 16, 64, 100);
}

static void fill_extreme(float *x, size_t n, uint32_t d) {
    for (size_t i = 0; i < n; i += d) {
        const unsigned kind = (unsigned)check_below(CHECK_N_FILLS + 4);
        if (kind < CHECK_N_FILLS) check_fill(x + i, d, kind, ldexpf(1, (int)check_below(8) - 4));
        for (uint32_t j = 0; kind >= CHECK_N_FILLS && j < d; j++) {
            const float r = check_normal();
            x[i + j] = kind == CHECK_N_FILLS       ? (j % 2 ? 65504.0f : -65504.0f)
                       : kind == CHECK_N_FILLS + 1 ? 3e-7f * r
                       : kind == CHECK_N_FILLS + 2 ? ldexpf(r, (int)check_below(40) - 24)
                                                   : 1e6f * r;
        }
    }
}

/* Any mix of huge, tiny and constant vectors.  Queries are sized so that logits stay where their own rounding cannot
 * move weights by more than the bound. */
static void test_extreme(void) {
    const uint64_t rounds = check_rounds(300, 20);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        lane a;
        const uint32_t d = head_dims[check_below(CHECK_COUNT(head_dims))], n_group = (uint32_t)check_between(1, 9);
        lane_init(&a, *random_format(), d, 16 * (uint32_t)check_between(1, 5), random_slots(), false);
        fill_extreme(keys, (size_t)a.run.n_slots * d, d);
        fill_extreme(values, (size_t)a.run.n_slots * d, d);
        for (uint32_t g = 0; g < n_group; g++) {
            const float size = check_below(4) ? 1e-5f / sqrtf((float)d) : 0;
            check_fill(query_in + g * d, d, (unsigned)check_below(CHECK_N_FILLS), size);
            if (check_below(8) == 0) check_fill(query_in + g * d, d, 0, 1e-35f);
        }
        lane_store(&a, 0);
        compute_exact(&a, n_group, 0, a.run.n_slots);
        FOR_EACH_VARIANT(v) {
            describe(v, &a, n_group, "extreme");
            run_variant(v, &a, n_group, 0, a.run.n_slots, true);
            for (uint32_t g = 0; g < n_group; g++) {
                double worst = 0;
                for (uint32_t s = 0; s < a.run.n_slots; s++)
                    worst = fmax(worst, logit_bound(&a, g, s, is_exact_format(&a, v)));
                const double tol = (is_exact_format(&a, v) ? 2e-6 : 3e-4) + expm1(2 * worst * 0.6931471805599453);
                CHECK(error_of(g, d) <= tol * want.spread[g] + 1e-30);
            }
            check_logits(&a, v, n_group, 0, a.run.n_slots);
        }
        lane_release(&a);
    }
}

/* Every code at its top, every limb at its largest, every weight equal. */
static void check_largest_sums(pleat_format format, uint32_t d, uint32_t n_slots) {
    lane a;
    lane_init(&a, format, d, 64, n_slots, false);
    for (uint32_t s = 0; s < n_slots; s++) {
        for (uint32_t i = 0; i < d; i++) keys[s * d + i] = values[s * d + i] = i == s % d ? -1 : 1;
    }
    for (uint32_t i = 0; i < d; i++) query_in[i] = 1;
    lane_store(&a, 0);
    compute_exact(&a, 1, 0, n_slots);
    FOR_EACH_VARIANT(v) {
        describe(v, &a, 1, "largest sums");
        run_variant(v, &a, 1, 0, n_slots, true);
        CHECK(error_of(0, d) <= 3e-4 * want.out_norm[0]);
        check_logits(&a, v, 1, 0, n_slots);
    }
    lane_release(&a);
}

/* Integer sums may not wrap: over the most dimensions, and over the most tokens of a group. */
static void test_largest_sums(void) {
    for (size_t f = 2; f < CHECK_COUNT(formats); f++) {
        check_largest_sums(formats[f], 512, 64);
        check_largest_sums(formats[f], 64, 16 * PLEAT__DECODE_TILES);
    }
}

/* Cut anywhere at a tile, merge in order: the whole, within rounding.  The same call twice: the same bits. */
static void test_merge_of_splits(void) {
    const uint64_t rounds = check_rounds(100, 10);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        lane a;
        const uint32_t d = head_dims[check_below(CHECK_COUNT(head_dims))], n_group = (uint32_t)check_between(1, 9);
        lane_init(&a, *random_format(), d, 16 * (uint32_t)check_between(1, 5), (uint32_t)check_between(1, 1000), true);
        fill_normal_lane(&a, n_group, 2, (uint32_t)check_below(4));
        FOR_EACH_VARIANT(v) {
            describe(v, &a, n_group, "splits");
            run_variant(v, &a, n_group, 0, a.run.n_slots, false);
            engine e;
            engine_init(&e, v, &a, n_group);
            for (uint32_t from = 0; from < a.run.n_slots;) {
                const uint32_t to = pleat__min_u32(a.run.n_slots, from + 16 * (uint32_t)check_between(1, 30));
                pleat__attn_acc_init(&e.acc[1], e.acc_memory[1].p, n_group, d);
                e.dsp.decode(&e.query, &a.run, from, to, &e.acc[1], NULL, 0);
                pleat__attn_merge(&e.acc[0], &e.acc[1], n_group, d);
                from = to;
            }
            static float out[MAX_G * MAX_D], lse2[MAX_G];
            pleat__attn_finish(&e.acc[0], n_group, d, out, lse2);
            const double tol = is_exact_format(&a, v) ? 5e-6 : 2e-4;
            CHECK_NEAR_ALL(out, got.out, n_group * d, tol, tol);
            for (uint32_t g = 0; g < n_group; g++)
                CHECK(lse2[g] == got.lse2[g] || fabs((double)lse2[g] - (double)got.lse2[g]) <= 1e-5);
            engine_release(&e);

            memcpy(out, got.out, sizeof out);
            memcpy(lse2, got.lse2, sizeof lse2);
            const pleat__kv_run then = a.run; /* what is read next changes nothing */
            a.run.then = &then;
            a.run.then_slot = 16 * (uint32_t)check_below(pleat__div_up_u32(a.run.n_slots, 16) + 1);
            run_variant(v, &a, n_group, 0, a.run.n_slots, false);
            a.run.then = NULL;
            CHECK_EQ_MEM(out, got.out, n_group * d * sizeof(float));
            CHECK_EQ_MEM(lse2, got.lse2, n_group * sizeof(float));
        }
        lane_release(&a);
    }
}

/* Continuing an accumulator is the same as one range. */
static void test_continue(void) {
    for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
        lane a;
        lane_init(&a, formats[f], 64, 32, 500, false);
        fill_normal_lane(&a, 3, 2, 0);
        compute_exact(&a, 3, 0, 500);
        FOR_EACH_VARIANT(v) {
            describe(v, &a, 3, "continued");
            engine e;
            engine_init(&e, v, &a, 3);
            const uint32_t cuts[] = {0, 16, 16, 208, 272, 500};
            for (size_t i = 0; i + 1 < CHECK_COUNT(cuts); i++)
                e.dsp.decode(&e.query, &a.run, cuts[i], cuts[i + 1], &e.acc[0], NULL, 0);
            pleat__attn_finish(&e.acc[0], 3, 64, got.out, NULL);
            for (uint32_t g = 0; g < 3; g++) CHECK(error_of(g, 64) <= tolerance(&a, v, g, 0, 500) * want.out_norm[g]);
            engine_release(&e);
        }
        lane_release(&a);
    }
}

/* The largest logits that a cache takes, of either sign, and all equal: the mean of the values. */
static void test_largest_logits(void) {
    for (size_t i = 0; i < 2 * CHECK_COUNT(formats); i++) {
        lane a;
        lane_init(&a, formats[i / 2], 512, 32, 40, false);
        a.scale = 65536;
        a.cap2 = i / 2 % 2 ? 50 : 0;
        check_fill_normal(values, 40 * 512);
        for (uint32_t j = 0; j < 40 * 512; j++) keys[j] = 0.99f * PLEAT__VALUE_MAX;
        for (uint32_t j = 0; j < 3 * 512; j++) query_in[j] = (i % 2 ? 0.99f : -0.99f) * PLEAT__VALUE_MAX;
        lane_store(&a, 0);
        compute_exact(&a, 3, 0, 40);
        FOR_EACH_VARIANT(v) {
            describe(v, &a, 3, i % 2 ? "largest logits" : "lowest logits");
            run_variant(v, &a, 3, 0, 40, false);
            for (uint32_t g = 0; g < 3; g++) {
                CHECK(error_of(g, 512) <= (is_exact_format(&a, v) ? 2e-6 : 3e-4) * want.out_norm[g]);
                CHECK_NEAR((double)got.lse2[g], want.lse2[g], 1e-4 * fabs(want.lse2[g]));
            }
        }
        lane_release(&a);
    }
}

static void test_nothing_to_see(void) {
    for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
        lane a;
        lane_init(&a, formats[f], 64, 32, 200, true);
        fill_normal_lane(&a, 5, 1, 8); /* all dead */
        FOR_EACH_VARIANT(v) {
            describe(v, &a, 5, "nothing live");
            for (uint32_t to = 0; to <= 200; to += 200) {
                run_variant(v, &a, 5, 0, to, true);
                for (uint32_t i = 0; i < 5 * 64; i++) CHECK(got.out[i] == 0.0f);
                for (uint32_t g = 0; g < 5; g++) CHECK(got.lse2[g] == -INFINITY);
                for (uint32_t s = 0; s < to; s++) CHECK(got.logits[s] == -INFINITY);
                CHECK(got.logits[(to + 15) / 16 * 16] == UNTOUCHED);
            }
        }
        lane_release(&a);
    }
}

static void test_received(void) {
    const uint64_t rounds = check_rounds(60, 6);
    for (uint64_t round = 0; round < rounds; round++) {
        lane a;
        const uint32_t n_group = (uint32_t)check_between(1, 9), n_slots = random_slots();
        lane_init(&a, *random_format(), 64, 16 * (uint32_t)check_between(1, 4), n_slots, true);
        fill_normal_lane(&a, n_group, 3, (uint32_t)check_below(4));
        a.cap2 = check_below(2) ? 3 : 0;
        compute_exact(&a, n_group, 0, n_slots);
        FOR_EACH_VARIANT(v) {
            describe(v, &a, n_group, "received");
            for (uint32_t p = 0; p < a.n_pages; p++) {
                float *score = pleat__scores(&a.layout, pleat__kv_page(&a.run, p));
                for (uint32_t i = 0; i < a.layout.tokens; i++) score[i] = (float)i;
            }
            run_variant(v, &a, n_group, 0, n_slots, true);
            for (uint32_t s = n_slots; s < n_slots + 16; s++) /* nobody's: decode may write them or not */
                for (uint32_t g = 0; g < n_group; g++) got.logits[g * LOGITS_STRIDE + s] = UNTOUCHED;
            pleat__attn_dsp dsp;
            pleat__attn_dsp_init(&dsp, v->flags);
            const uint32_t from = 16 * (uint32_t)check_below(pleat__div_up_u32(n_slots, 16));
            const uint32_t to = check_below(2) ? n_slots : pleat__min_u32(n_slots, from + 16);
            dsp.decode_received(&a.run, from, to, got.logits, LOGITS_STRIDE, got.lse2, n_group);
            for (uint32_t s = 0; s < a.n_pages * a.layout.tokens; s++) { /* slots outside keep their scores */
                double most = 0;
                for (uint32_t g = 0; g < n_group && s >= from && s < to && slot_is_live(&a, s); g++)
                    most = fmax(most, exp2(want.logit2[g][s] - want.lse2[g]));
                const float *score = pleat__scores(&a.layout, pleat__kv_page(&a.run, s / a.layout.tokens));
                CHECK_NEAR((double)score[s % a.layout.tokens], s % a.layout.tokens + most, 2e-3 * most + 1e-5);
            }
        }
        lane_release(&a);
    }
}

static void test_query_limbs(void) {
    for (unsigned kind = 0; kind < CHECK_N_FILLS + 3; kind++) {
        const uint32_t d = 96, n_group = 3;
        check_context("fill %u", kind);
        if (kind < CHECK_N_FILLS)
            check_fill(query_in, d * n_group, kind, 2);
        else
            check_fill(query_in, d * n_group, 0,
                       kind == CHECK_N_FILLS       ? 1e-39f
                       : kind == CHECK_N_FILLS + 1 ? 1e30f
                                                   : 1e-30f);
        check_buf memory = check_buf_new(pleat__attn_query_bytes(n_group, d), 64);
        pleat__attn_query q;
        pleat__attn_query_init(&q, memory.p, query_in, n_group, d, 0.125f);
        static const uint32_t order[4] = {0, 2, 1, 3};
        for (uint32_t g = 0; g < n_group; g++) {
            double sum = 0;
            for (uint32_t i = 0; i < d; i++) {
                const int code = 256 * q.hi[g * d + i] + q.lo[g * d + i];
                CHECK(abs(q.hi[g * d + i]) <= 127);
                CHECK(q.both[g * d + i / 4 * 4 + order[i % 4]] == code);
                CHECK_NEAR((double)q.step[g] * code, (double)q.f32[g * d + i], 0.505 * (double)q.step[g] + 1e-33);
                sum += (double)q.step[g] * code;
            }
            CHECK_NEAR((double)q.sum[g], sum, 1e-6 * fabs(sum));
        }
        CHECK(check_buf_is_intact(&memory));
        check_buf_free(&memory);
    }
}

/* Which variant goes with which features: the integers of a CPU with AVX-512 but without its VNNI are the odd case. */
static void test_choice(void) {
#if PLEAT_X86
    enum { A2 = PLEAT_CPU_AVX2, AV = PLEAT_CPU_AVX_VNNI, A5 = PLEAT_CPU_AVX512, V5 = PLEAT_CPU_VNNI };
    static const struct {
        uint32_t flags;
        pleat__attn_decode_fn decode;
    } choices[] = {{0, pleat__attn_decode_ref},
                   {A2, pleat__attn_decode_avx2},
                   {A2 | AV, pleat__attn_decode_avxvnni},
                   {A2 | A5, pleat__attn_decode_avx512},
                   {A2 | A5 | AV, pleat__attn_decode_avx512_avxvnni},
                   {A2 | A5 | V5, pleat__attn_decode_vnni},
                   {A2 | A5 | V5 | AV, pleat__attn_decode_vnni}};
    for (size_t i = 0; i < CHECK_COUNT(choices); i++) {
        pleat__attn_dsp dsp;
        pleat__attn_dsp_init(&dsp, choices[i].flags);
        check_context("flags 0x%x", choices[i].flags);
        CHECK(dsp.decode == choices[i].decode);
    }
#endif
}

static const check_test tests[] = {
    {"query limbs", test_query_limbs},
    {"choice of variants", test_choice},
    {"bounded logits", test_cap},
    {"plausible lanes", test_plausible},
    {"every shape", test_every_shape},
    {"one token, tails", test_one_token_and_tails},
    {"many heads", test_many_heads},
    {"extreme lanes", test_extreme},
    {"largest sums", test_largest_sums},
    {"merge of splits", test_merge_of_splits},
    {"continued accumulator", test_continue},
    {"largest logits", test_largest_logits},
    {"nothing to see", test_nothing_to_see},
    {"attention received", test_received},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
