/* SPDX-License-Identifier: MIT
 *
 * test_attn_prompt.c: every variant of prompt attention and of the attention received against float64.
 *
 * A case is a lane: a past of two tracked or plain runs of any format, and the chunk's own run; pages of odd sizes in
 * random order, each pool ending at an unreadable page.  The oracle dequantises with the scalar loads and computes
 * softmax directly, in double.  Two tolerances:
 *
 *     usual data     2e-6 of the output's norm: the promise of attn.h
 *     extremes       the same of sum p|v|, plus what the worst rounding of the logits' sums does to the weights
 */
#include "attn_variants.h"
#include "prompt_rig.h"

/* ---- running a variant --------------------------------------------------------------------------------- */

static size_t lse2_stride(const attn_case *c) { return c->n_group + LSE_GAP; }

static void results_init(results *r, const attn_case *c) {
    r->out = check_buf_new(c->n_queries * c->stride * sizeof(float), 4);
    float *out = r->out.p;
    for (size_t i = 0; i < c->n_queries * c->stride; i++) out[i] = CANARY;
    r->lse2 = check_buf_new(c->n_queries * lse2_stride(c) * sizeof(float), 4);
    float *lse2 = r->lse2.p;
    for (size_t i = 0; i < c->n_queries * lse2_stride(c); i++) lse2[i] = CANARY;
    for (int w = 0; w < N_SIDES; w++) {
        r->received[w] = check_buf_new(c->sides[w].run.n_slots * sizeof(float), 4);
        float *received = r->received[w].p;
        for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) received[j] = (float)(j % 3);
    }
}

static void results_release(results *r) {
    CHECK(check_buf_is_intact(&r->out));
    CHECK(check_buf_is_intact(&r->lse2));
    check_buf_free(&r->out);
    check_buf_free(&r->lse2);
    for (int w = 0; w < N_SIDES; w++) {
        CHECK(check_buf_is_intact(&r->received[w]));
        check_buf_free(&r->received[w]);
    }
}

static check_buf new_scratch(const attn_case *c) {
    check_buf scratch = check_buf_new(pleat__attn_prompt_scratch_bytes(c->d), 64);
    float *x = scratch.p; /* it holds anything */
    for (size_t i = 0; i < scratch.bytes / sizeof *x; i++) x[i] = NAN;
    return scratch;
}

/* Let queries from, from + step, .. below `to` give to slots [slot_from, slot_to) of a run; needs their lse2 in r. */
static void run_received_in(const attn_case *c, const prompt_variant *v, results *r, int which, uint32_t step,
                            uint32_t from, uint32_t to, uint32_t slot_from, uint32_t slot_to) {
    pleat__quant_dsp quant;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    check_buf scratch = new_scratch(c);
    const pleat__attn_prompt_received args = {.run = &c->sides[which].run,
                                              .causal = which == SELF,
                                              .self_seen = which == SELF ? c->self_seen + from : 12345,
                                              .step = step,
                                              .slot_from = slot_from,
                                              .slot_to = slot_to,
                                              .n_queries = pleat__div_up_u32(to - from, step),
                                              .n_group = c->n_group,
                                              .head_dim = c->d,
                                              .scale = c->scale,
                                              .cap2 = c->cap2,
                                              .q = c->q + from * c->stride,
                                              .q_stride = c->stride * step,
                                              .lse2 = (const float *)r->lse2.p + from * lse2_stride(c),
                                              .lse2_stride = lse2_stride(c) * step,
                                              .received = (float *)r->received[which].p + slot_from,
                                              .quant = &quant,
                                              .scratch = scratch.p};
    v->received(&args);
    CHECK(check_buf_is_intact(&scratch));
    check_buf_free(&scratch);
}

static void run_received(const attn_case *c, const prompt_variant *v, results *r, int which, uint32_t from, uint32_t to,
                         uint32_t slot_from, uint32_t slot_to) {
    run_received_in(c, v, r, which, 1, from, to, slot_from, slot_to);
}

/* All queries to all slots. */
static void run_all_received(const attn_case *c, const prompt_variant *v, results *r) {
    for (int w = c->has_past ? HIGH : SELF; w < N_SIDES; w++)
        run_received(c, v, r, w, 0, c->n_queries, 0, c->sides[w].run.n_slots);
}

static pleat__attn_prompt args_of(const attn_case *c, results *r, uint32_t from, uint32_t to, const float *q) {
    return (pleat__attn_prompt){.past = c->has_past ? &c->view : NULL,
                                .self = &c->sides[SELF].run,
                                .self_seen = c->self_seen + from,
                                .window = c->window,
                                .oldest = c->oldest,
                                .n_queries = to - from,
                                .n_group = c->n_group,
                                .head_dim = c->d,
                                .scale = c->scale,
                                .cap2 = c->cap2,
                                .q = q + from * c->stride,
                                .q_stride = c->stride,
                                .out = (float *)r->out.p + from * c->stride,
                                .out_stride = c->stride,
                                .lse2 = (float *)r->lse2.p + from * lse2_stride(c),
                                .lse2_stride = lse2_stride(c)};
}

/* Run queries [from, to) of the case. */
static void run_part(const attn_case *c, const prompt_variant *v, results *r, uint32_t from, uint32_t to,
                     const float *q) {
    pleat__quant_dsp quant;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    check_buf scratch = new_scratch(c);
    pleat__attn_prompt args = args_of(c, r, from, to, q);
    args.quant = &quant;
    args.scratch = scratch.p;
    v->fn(&args);
    CHECK(check_buf_is_intact(&scratch));
    check_buf_free(&scratch);
}

/* All queries, and what they give found in the same walk, of n_together heads the largest. */
static void run_at_once(const attn_case *c, const prompt_variant *v, results *r, uint32_t n_together) {
    pleat__quant_dsp quant;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    const int first = c->has_past ? HIGH : SELF;
    uint32_t n = 0, at = 0;
    for (int w = first; w < N_SIDES; w++) n += pleat__attn_received_slots(c->sides[w].run.n_slots);
    check_buf scratch = new_scratch(c), kept = check_buf_new(pleat__attn_prompt_kept_bytes(n), 64);
    check_buf given = check_buf_new(n * sizeof(float), 4);
    memset(kept.p, 0xFF, kept.bytes);
    for (int w = first; w < N_SIDES; at += pleat__attn_received_slots(c->sides[w++].run.n_slots))
        memcpy((float *)given.p + at, r->received[w].p, c->sides[w].run.n_slots * sizeof(float));
    pleat__attn_prompt args = args_of(c, r, 0, c->n_queries, c->q);
    args.quant = &quant;
    args.scratch = scratch.p;
    args.received = given.p;
    args.n_together = n_together;
    args.weights = kept.p;
    v->fn(&args);
    at = 0;
    for (int w = first; w < N_SIDES; at += pleat__attn_received_slots(c->sides[w++].run.n_slots))
        memcpy(r->received[w].p, (float *)given.p + at, c->sides[w].run.n_slots * sizeof(float));
    check_buf *bufs[] = {&scratch, &kept, &given};
    for (size_t i = 0; i < CHECK_COUNT(bufs); i++) {
        CHECK(check_buf_is_intact(bufs[i]));
        check_buf_free(bufs[i]);
    }
}

/* Relative change of a weight when logits move by up to `wobble`: both the weight's and those of the sum. */
static double weight_change(double wobble) { return expm1(2 * fmin(wobble, 20) / LOG2_E); }

static void check_row(const attn_case *c, const results *r, uint32_t query, uint32_t head, bool usual) {
    const uint32_t row = query * c->n_group + head;
    const float *out = (const float *)r->out.p + query * c->stride + head * c->d;
    const double *want = c->out + row * c->d, *size = c->size + row * c->d;
    double error = 0, norm = 0;
    for (uint32_t i = 0; i < c->d; i++) {
        error += (out[i] - want[i]) * (out[i] - want[i]);
        norm += usual ? want[i] * want[i] : size[i] * size[i];
    }
    const double tol = 2e-6 + 6e-7 * c->cap2 + (usual ? 0 : weight_change(c->wobble[row]));
    CHECK_NEAR(sqrt(error), 0, tol * sqrt(norm) + 1e-37);
    const float lse2 = ((const float *)r->lse2.p)[query * lse2_stride(c) + head];
    CHECK_NEAR(lse2, c->lse2[row], 2e-6 + c->wobble[row] + 2e-7 * fabs(c->lse2[row]));
}

static void check_results(const attn_case *c, const results *r, double *const *given, bool usual) {
    double wobble = 0;
    for (uint32_t row = 0; row < n_rows(c); row++) wobble = fmax(wobble, c->wobble[row]);
    for (uint32_t i = 0; i < c->n_queries; i++) {
        for (uint32_t g = 0; g < c->n_group; g++) check_row(c, r, i, g, usual);
        const float *gap = (const float *)r->out.p + i * c->stride + c->n_group * c->d;
        for (uint32_t j = 0; j < GAP; j++) CHECK(gap[j] == CANARY);
        const float *lse2_gap = (const float *)r->lse2.p + i * lse2_stride(c) + c->n_group;
        for (uint32_t j = 0; j < LSE_GAP; j++) CHECK(lse2_gap[j] == CANARY);
    }
    for (int w = 0; w < N_SIDES && c->window == 0; w++) {
        const float *received = r->received[w].p;
        for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) {
            const double want = j % 3 + given[w][j];
            CHECK_NEAR(received[j], want, (1e-5 + 6e-7 * c->cap2 + (usual ? 0 : weight_change(wobble))) * want + 1e-30);
        }
    }
}

static bool is_here(const prompt_variant *v) { return (pleat_cpu_flags() & v->needs) == v->needs; }

static void check_case(const attn_case *c, bool usual) {
    for (size_t n = 0; n < CHECK_COUNT(prompt_variants); n++) {
        const prompt_variant *v = &prompt_variants[n];
        if (!is_here(v)) continue;
        check_context(
            "%s: d %u, cap %g, group %u, queries %u, seen %u, past %d: high k%uv%u %u, low k%uv%u %u, self k%uv%u %u",
            v->name, c->d, (double)c->cap2, c->n_group, c->n_queries, c->self_seen, c->has_past,
            c->sides[HIGH].layout.format.k_bits, c->sides[HIGH].layout.format.v_bits, c->sides[HIGH].run.n_slots,
            c->sides[LOW].layout.format.k_bits, c->sides[LOW].layout.format.v_bits, c->sides[LOW].run.n_slots,
            c->sides[SELF].layout.format.k_bits, c->sides[SELF].layout.format.v_bits, c->sides[SELF].run.n_slots);
        results r;
        results_init(&r, c);
        run_part(c, v, &r, 0, c->n_queries, c->q);
        if (c->window == 0) run_all_received(c, v, &r);
        check_results(c, &r, c->received, usual);
        for (int together = 0; together < 2 && c->window == 0; together++) {
            results once;
            results_init(&once, c);
            run_at_once(c, v, &once, together ? c->n_group : 1);
            CHECK_EQ_MEM(once.out.p, r.out.p, r.out.bytes);
            CHECK_EQ_MEM(once.lse2.p, r.lse2.p, r.lse2.bytes);
            check_results(c, &once, together ? c->received : c->summed, usual);
            results_release(&once);
        }
        results_release(&r);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static pleat_format random_format(void) { return formats[check_below(CHECK_COUNT(formats))]; }
static uint32_t random_tokens(void) { return PLEAT__TILE * (uint32_t)check_between(1, 7); }

/* Sizes, formats and runs at random; `longest` bounds the runs. */
static void random_case(attn_case *c, const data *x, float q_size, uint32_t longest) {
    static const uint32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64};
    memset(c, 0, sizeof *c);
    c->d = dims[check_below(CHECK_COUNT(dims))];
    c->n_group = groups[check_below(CHECK_COUNT(groups))];
    c->n_queries = (uint32_t)check_between(1, PLEAT__PROMPT_ROWS / c->n_group);
    if (check_below(4) == 0) c->n_queries = 1;
    c->self_seen = check_below(2) ? 0 : (uint32_t)check_below(longest);
    c->scale = 1 / sqrtf((float)c->d);
    if (check_below(3) == 0) c->cap2 = check_below(2) ? 3 : 50 * (float)LOG2_E;
    c->has_past = check_below(4) != 0;
    const bool tracked = check_below(2);
    const double dead = check_below(8) == 0 ? 1 : check_uniform(0, 0.5); /* 1: all */
    const uint32_t n_low = check_below(2) ? 0 : (uint32_t)check_below(longest);
    const uint32_t n_self = c->self_seen + c->n_queries + (uint32_t)check_below(40);
    side_init(&c->sides[HIGH], random_format(), c->d, random_tokens(), tracked, 1, (uint32_t)check_below(longest), dead,
              x);
    side_init(&c->sides[LOW], random_format(), c->d, random_tokens(), tracked, -1, n_low, dead, x);
    side_init(&c->sides[SELF], check_below(2) ? formats[0] : random_format(), c->d, random_tokens(), false,
              check_below(2) ? 1 : -1, n_self, 0, x);
    case_finish(c, x->kind, q_size);
}

static void test_random(void) {
    for (uint64_t n = check_rounds(150, 20); n-- > 0 && check_failures() == 0;) {
        const data x = {.kind = 0, .k_size = 1, .v_size = 1, .v_mean = check_below(2) ? 3 : 0};
        attn_case c;
        random_case(&c, &x, 1, 200);
        check_case(&c, true);
        case_release(&c);
    }
}

static void test_extremes(void) {
    static const float sizes[] = {1e-20f, 1e-3f, 1, 30, 1000};
    for (uint64_t n = check_rounds(150, 20); n-- > 0 && check_failures() == 0;) {
        const data x = {.kind = (unsigned)check_below(CHECK_N_FILLS),
                        .k_size = sizes[check_below(CHECK_COUNT(sizes))],
                        .v_size = check_below(4) ? sizes[check_below(CHECK_COUNT(sizes))] : PLEAT__F16_MAX};
        attn_case c;
        random_case(&c, &x, sizes[check_below(CHECK_COUNT(sizes))], 100);
        check_case(&c, false);
        case_release(&c);
    }
}

/* Every format, past and self, at every tail of a block. */
static void test_tails(void) {
    const data x = {.kind = 0, .k_size = 1, .v_size = 1};
    for (size_t f = 0; f < CHECK_COUNT(formats); f++)
        for (uint32_t n = 1; n <= 130 && check_failures() == 0; n += n < 20 || n > 60 ? 1 : 9) {
            attn_case c = {
                .d = 48, .n_group = 3, .n_queries = n % 7 + 1, .self_seen = n - 1, .scale = 0.15f, .has_past = true};
            side_init(&c.sides[HIGH], formats[f], c.d, 48, f % 2 == 0, 1, n, 0.1, &x);
            side_init(&c.sides[LOW], formats[(f + 1) % CHECK_COUNT(formats)], c.d, 80, true, -1, 131 - n, 0.1, &x);
            side_init(&c.sides[SELF], formats[f], c.d, 16, false, 1, c.self_seen + c.n_queries, 0, &x);
            case_finish(&c, 0, 1);
            check_case(&c, true);
            case_release(&c);
        }
}

static void check_same(const attn_case *c, const results *a, const results *b) {
    CHECK_EQ_MEM(a->out.p, b->out.p, a->out.bytes);
    CHECK_EQ_MEM(a->lse2.p, b->lse2.p, a->lse2.bytes);
    for (int w = 0; w < N_SIDES; w++)
        CHECK_EQ_MEM(a->received[w].p, b->received[w].p, c->sides[w].run.n_slots * sizeof(float));
}

/* A past in a circle, and queries that see the newest tokens alone: windows shorter and longer than chunk and past, the
 * oldest token in any slot. */
static void windowed_case(attn_case *c) {
    static const uint32_t groups[] = {1, 3, 4, 8};
    const data x = {.kind = 0, .k_size = 1, .v_size = 1, .v_mean = check_below(2) ? 3 : 0};
    memset(c, 0, sizeof *c);
    c->d = dims[check_below(CHECK_COUNT(dims))];
    c->n_group = groups[check_below(CHECK_COUNT(groups))];
    c->window = (uint32_t)check_between(1, check_below(2) ? 40 : 300);
    c->n_queries = (uint32_t)check_between(1, PLEAT__PROMPT_ROWS / c->n_group);
    c->self_seen = check_below(2) ? 0 : (uint32_t)check_below(400);
    c->scale = 1 / sqrtf((float)c->d);
    c->has_past = check_below(4) != 0;
    const bool is_full = check_below(2);
    const uint32_t n_past = is_full ? c->window : (uint32_t)check_below(c->window);
    c->oldest = is_full ? (uint32_t)check_below(c->window) : 0;
    const uint32_t n_self = c->self_seen + c->n_queries + (uint32_t)check_below(40);
    side_init(&c->sides[HIGH], random_format(), c->d, random_tokens(), false, 1, n_past, 0, &x);
    side_init(&c->sides[LOW], formats[2], c->d, random_tokens(), false, -1, 0, 0, &x);
    side_init(&c->sides[SELF], formats[0], c->d, PLEAT__TILE, false, 1, n_self, 0, &x);
    case_finish(c, 0, 1);
}

static void test_windows(void) {
    for (uint64_t n = check_rounds(200, 30); n-- > 0 && check_failures() == 0;) {
        attn_case c;
        windowed_case(&c);
        check_case(&c, true);
        for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) { /* any cut of the queries: the same bits */
            if (!is_here(&prompt_variants[k])) continue;
            results whole, parts;
            results_init(&whole, &c);
            results_init(&parts, &c);
            run_part(&c, &prompt_variants[k], &whole, 0, c.n_queries, c.q);
            for (uint32_t from = 0, to; from < c.n_queries; from = to) {
                to = from + 1 + (uint32_t)check_below(c.n_queries - from);
                run_part(&c, &prompt_variants[k], &parts, from, to, c.q);
            }
            check_same(&c, &whole, &parts);
            results_release(&whole);
            results_release(&parts);
        }
        case_release(&c);
    }
}

/* Sums over many keys, with values whose mean is not 0, keep the promise. */
static void test_long(void) {
    const data x = {.kind = 0, .k_size = 1, .v_size = 1, .v_mean = 2};
    for (uint32_t d = 64; d <= 128; d += 64) {
        attn_case c = {
            .d = d, .n_group = 2, .n_queries = 8, .self_seen = 4000, .scale = 1 / sqrtf((float)d), .has_past = true};
        side_init(&c.sides[HIGH], formats[3], d, 64, true, 1, 1500, 0.1, &x);
        side_init(&c.sides[LOW], formats[7], d, 96, true, -1, 3000, 0.1, &x);
        side_init(&c.sides[SELF], formats[0], d, 64, false, 1, c.self_seen + c.n_queries, 0, &x);
        case_finish(&c, 0, 1);
        check_case(&c, true);
        case_release(&c);
    }
}

/* Give in pieces: any cut of the slots at a multiple of 64, in any order, and of the queries in theirs. */
static void receive_in_pieces(const attn_case *c, const prompt_variant *v, results *r, int which) {
    const uint32_t n_slots = c->sides[which].run.n_slots, n_blocks = pleat__div_up_u32(n_slots, PLEAT__PROMPT_KEYS);
    for (uint32_t to = n_blocks, from; to > 0; to = from) {
        from = (uint32_t)check_below(to);
        for (uint32_t i = 0, end; i < c->n_queries; i = end) {
            end = i + 1 + (uint32_t)check_below(c->n_queries - i);
            run_received(c, v, r, which, i, end, from * PLEAT__PROMPT_KEYS,
                         pleat__min_u32(n_slots, to * PLEAT__PROMPT_KEYS));
        }
    }
}

/* Rows and slots do not know each other: any cut of the queries or slots into calls gives the same bits. */
static void test_cut_anywhere(void) {
    for (uint64_t n = check_rounds(60, 10); n-- > 0 && check_failures() == 0;) {
        const data x = {.kind = 0, .k_size = (float)check_uniform(0.1, 8), .v_size = 1};
        attn_case c;
        random_case(&c, &x, 1, 150);
        for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
            if (!is_here(&prompt_variants[k])) continue;
            check_context("%s: d %u, group %u, queries %u", prompt_variants[k].name, c.d, c.n_group, c.n_queries);
            results whole, parts;
            results_init(&whole, &c);
            results_init(&parts, &c);
            run_part(&c, &prompt_variants[k], &whole, 0, c.n_queries, c.q);
            run_all_received(&c, &prompt_variants[k], &whole);
            for (uint32_t from = 0, to; from < c.n_queries; from = to) {
                to = from + 1 + (uint32_t)check_below(c.n_queries - from);
                run_part(&c, &prompt_variants[k], &parts, from, to, c.q);
            }
            for (int w = c.has_past ? HIGH : SELF; w < N_SIDES; w++)
                receive_in_pieces(&c, &prompt_variants[k], &parts, w);
            check_same(&c, &whole, &parts);
            results_release(&whole);
            results_release(&parts);
        }
        case_release(&c);
    }
}

/* Every step-th query gives what these give one by one. */
static void test_some_queries(void) {
    for (uint64_t n = check_rounds(60, 10); n-- > 0 && check_failures() == 0;) {
        const data x = {.kind = 0, .k_size = 1, .v_size = 1};
        attn_case c;
        random_case(&c, &x, 1, 150);
        const uint32_t step = 1u << check_below(4), from = (uint32_t)check_below(step);
        for (size_t k = 0; k < CHECK_COUNT(prompt_variants) && from < c.n_queries; k++) {
            if (!is_here(&prompt_variants[k])) continue;
            check_context("%s: d %u, queries %u, step %u", prompt_variants[k].name, c.d, c.n_queries, step);
            results at_once, one_by_one;
            results_init(&at_once, &c);
            results_init(&one_by_one, &c);
            run_part(&c, &prompt_variants[k], &at_once, 0, c.n_queries, c.q);
            run_part(&c, &prompt_variants[k], &one_by_one, 0, c.n_queries, c.q);
            for (int w = c.has_past ? HIGH : SELF; w < N_SIDES; w++) {
                const uint32_t n_slots = c.sides[w].run.n_slots;
                run_received_in(&c, &prompt_variants[k], &at_once, w, step, from, c.n_queries, 0, n_slots);
                for (uint32_t i = from; i < c.n_queries; i += step)
                    run_received(&c, &prompt_variants[k], &one_by_one, w, i, i + 1, 0, n_slots);
            }
            check_same(&c, &at_once, &one_by_one);
            results_release(&at_once);
            results_release(&one_by_one);
        }
        case_release(&c);
    }
}

/* out may be q. */
static void test_in_place(void) {
    for (uint64_t n = check_rounds(30, 10); n-- > 0 && check_failures() == 0;) {
        const data x = {.kind = 0, .k_size = 1, .v_size = 1};
        attn_case c;
        random_case(&c, &x, 1, 100);
        for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
            if (!is_here(&prompt_variants[k])) continue;
            check_context("%s: d %u, group %u, queries %u", prompt_variants[k].name, c.d, c.n_group, c.n_queries);
            results apart, in_place;
            results_init(&apart, &c);
            results_init(&in_place, &c);
            run_part(&c, &prompt_variants[k], &apart, 0, c.n_queries, c.q);
            float *q = in_place.out.p;
            for (uint32_t i = 0; i < c.n_queries; i++)
                memcpy(q + i * c.stride, c.q + i * c.stride, c.n_group * c.d * sizeof *q);
            run_part(&c, &prompt_variants[k], &in_place, 0, c.n_queries, q);
            check_same(&c, &apart, &in_place);
            results_release(&apart);
            results_release(&in_place);
        }
        case_release(&c);
    }
}

/* More queries than one block of rows holds, with ranges longer than a span: against float64 and in pieces. */
static void test_many_queries(void) {
    const data x = {.kind = 0, .k_size = 1, .v_size = 1};
    attn_case c = {.d = 64, .n_group = 3, .n_queries = 100, .self_seen = 30, .scale = 0.125f, .has_past = true};
    side_init(&c.sides[HIGH], formats[3], c.d, 48, true, 1, 700, 0.3, &x);
    side_init(&c.sides[LOW], formats[7], c.d, 80, true, -1, 333, 0.3, &x);
    side_init(&c.sides[SELF], formats[0], c.d, 32, false, 1, 140, 0, &x);
    case_finish(&c, 0, 1);
    for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
        const prompt_variant *v = &prompt_variants[k];
        if (!is_here(v)) continue;
        check_context("%s", v->name);
        results whole, parts;
        results_init(&whole, &c);
        results_init(&parts, &c);
        for (uint32_t from = 0; from < c.n_queries; from += 40) {
            const uint32_t to = pleat__min_u32(c.n_queries, from + 40);
            run_part(&c, v, &whole, from, to, c.q);
            run_part(&c, v, &parts, from, to, c.q);
        }
        run_all_received(&c, v, &whole);
        check_results(&c, &whole, c.received, true);
        for (int w = HIGH; w < N_SIDES; w++) receive_in_pieces(&c, v, &parts, w);
        check_same(&c, &whole, &parts);
        results_release(&whole);
        results_release(&parts);
    }
    case_release(&c);
}

/* Dead slots, and those that no query of a causal chunk has before it, receive nothing: not even a changed zero. */
static void test_received_by_nobody(void) {
    const data x = {.kind = 0, .k_size = 1, .v_size = 1};
    attn_case c = {.d = 32, .n_group = 2, .n_queries = 20, .self_seen = 70, .scale = 0.2f, .has_past = true};
    side_init(&c.sides[HIGH], formats[4], c.d, 48, true, 1, 300, 0.6, &x);
    side_init(&c.sides[LOW], formats[6], c.d, 80, true, -1, 200, 1, &x);
    side_init(&c.sides[SELF], formats[0], c.d, 32, false, 1, 150, 0, &x);
    case_finish(&c, 0, 1);
    for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
        if (!is_here(&prompt_variants[k])) continue;
        check_context("%s", prompt_variants[k].name);
        results r;
        results_init(&r, &c);
        run_part(&c, &prompt_variants[k], &r, 0, c.n_queries, c.q);
        run_all_received(&c, &prompt_variants[k], &r);
        for (int w = HIGH; w < N_SIDES; w++)
            for (uint32_t j = 0; j < c.sides[w].run.n_slots; j++) {
                const bool gets = c.sides[w].alive[j] && (w != SELF || j + 1 < c.self_seen + c.n_queries);
                const float got = ((const float *)r.received[w].p)[j];
                CHECK(gets ? got > (float)(j % 3) : got == (float)(j % 3));
            }
        results_release(&r);
    }
    case_release(&c);
}

/* The optional outputs may be left out, and then nothing changes in the rest. */
static void test_without_extras(void) {
    const data x = {.kind = 0, .k_size = 1, .v_size = 1};
    attn_case c;
    random_case(&c, &x, 1, 100);
    for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
        if (!is_here(&prompt_variants[k])) continue;
        check_context("%s", prompt_variants[k].name);
        results with, without;
        results_init(&with, &c);
        results_init(&without, &c);
        run_part(&c, &prompt_variants[k], &with, 0, c.n_queries, c.q);
        pleat__quant_dsp quant;
        pleat__quant_dsp_init(&quant, pleat_cpu_flags());
        void *scratch = get(pleat__attn_prompt_scratch_bytes(c.d));
        const pleat__attn_prompt args = {.past = c.has_past ? &c.view : NULL,
                                         .self = &c.sides[SELF].run,
                                         .self_seen = c.self_seen,
                                         .n_queries = c.n_queries,
                                         .n_group = c.n_group,
                                         .head_dim = c.d,
                                         .scale = c.scale,
                                         .cap2 = c.cap2,
                                         .q = c.q,
                                         .q_stride = c.stride,
                                         .out = without.out.p,
                                         .out_stride = c.stride,
                                         .quant = &quant,
                                         .scratch = scratch};
        prompt_variants[k].fn(&args);
        CHECK_EQ_MEM(with.out.p, without.out.p, with.out.bytes);
        free(scratch);
        results_release(&with);
        results_release(&without);
    }
    case_release(&c);
}

/* The table has the variants of this list, each where the CPU has what the ones before need too. */
static void test_table(void) {
    uint32_t flags = 0;
    for (size_t k = 0; k < CHECK_COUNT(prompt_variants); k++) {
        pleat__attn_dsp dsp;
        flags |= prompt_variants[k].needs;
        pleat__attn_dsp_init(&dsp, flags);
        CHECK(dsp.prompt == prompt_variants[k].fn && dsp.prompt_received == prompt_variants[k].received);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"random", test_random},
        {"extremes", test_extremes},
        {"tails", test_tails},
        {"windows", test_windows},
        {"long", test_long},
        {"cut_anywhere", test_cut_anywhere},
        {"some_queries", test_some_queries},
        {"in_place", test_in_place},
        {"many_queries", test_many_queries},
        {"received_by_nobody", test_received_by_nobody},
        {"without_extras", test_without_extras},
        {"table", test_table},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
