/* SPDX-License-Identifier: MIT
 *
 * figures.c: see figures.h.  Sums saturate at PLAN_MAX, and plan_fill() refuses what got there.
 */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) || r > PLAN_MAX ? PLAN_MAX : r;
}

static uint64_t mul(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) || r > PLAN_MAX ? PLAN_MAX : r;
}

/* ---- weights ----------------------------------------------------------------------------------- */

/* Bytes of n numbers in blocks of 32. */
static uint64_t in_blocks(uint64_t n, uint64_t block_bytes) { return mul(n / 32 + (n % 32 != 0), block_bytes); }

/* Bytes of n numbers; 0 for a format that is not known. */
static uint64_t format_bytes(const char *format, uint64_t n) {
    if (!strcmp(format, "f16")) return mul(n, 2);
    if (!strcmp(format, "q8_0")) return in_blocks(n, 34);
    return !strcmp(format, "q4_0") ? in_blocks(n, 18) : 0;
}

/* Experts' matrices in MXFP4, their biases and all else in two bytes. */
static void weigh_mxfp4(const model_shape *s, plan_weights *w) {
    const uint64_t biases = s->traits & TRAIT_MLP_BIAS ? (2 * (uint64_t)s->n_ff + s->n_embd) * s->n_layers : 0;
    w->expert = add(in_blocks(s->n_params_expert - biases, 17), 2 * biases);
    w->bytes = add(mul(s->n_params - s->n_experts * s->n_params_expert, 2), mul(w->expert, s->n_experts));
    snprintf(w->what, sizeof w->what, "MXFP4 experts, else 16 bits");
}

int plan_weigh(const model_shape *s, const char *format, plan_weights *w) {
    const char *name = format[0] ? format : "f16";
    *w = (plan_weights){.n_experts = s->n_experts, .n_experts_used = s->n_experts_used};
    if (!format_bytes(name, 1)) return 0;
    w->bytes = format_bytes(name, s->n_params);
    w->lookup = format_bytes(name, s->n_params_lookup);
    w->expert = format_bytes(name, s->n_params_expert);
    snprintf(w->what, sizeof w->what, "%s", name);
    if (!format[0] && (s->traits & TRAIT_MXFP4) && s->n_experts) weigh_mxfp4(s, w);
    return 1;
}

void plan_weigh_as(const model_shape *s, uint64_t bytes, const plan_weights *like, plan_weights *w) {
    plan_weights shares = *like;
    if (!shares.bytes && s->n_params) plan_weigh(s, "f16", &shares);
    const double scale = shares.bytes ? (double)bytes / (double)shares.bytes : 0;
    *w = shares;
    w->bytes = bytes;
    w->lookup = (uint64_t)(scale * (double)shares.lookup);
    w->expert = (uint64_t)(scale * (double)shares.expert);
    snprintf(w->what, sizeof w->what, "as given");
}

/* What a step of n_seqs sequences reads. */
static uint64_t weights_read(const plan_weights *w, uint64_t n_seqs) {
    const uint64_t n_reached = mul(n_seqs, w->n_experts_used);
    const uint64_t n_idle = n_reached < w->n_experts ? w->n_experts - n_reached : 0;
    return w->bytes - w->lookup - n_idle * w->expert;
}

/* ---- a sequence -------------------------------------------------------------------------------- */

typedef struct seq_bytes {
    uint64_t kv, tables;
} seq_bytes;

static uint64_t f16_of(const model_shape *s, uint32_t n_tokens) {
    return shape_layer_tokens(s, n_tokens) * s->n_kv_heads * 4 * s->head_dim;
}

/* The cache for sequences of n_tokens.  Which layers have the window does not matter to sums; windows: [layers]. */
static pleat_cache_options cache_for(const plan_question *q, const pleat_spec *spec, uint32_t n_tokens,
                                     uint32_t *windows) {
    const model_shape *s = &q->shape;
    const uint32_t opened = n_tokens > q->max_tokens ? n_tokens : q->max_tokens;
    const uint32_t least = pleat_cache_least_tokens(spec);
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.spec = *spec;
    opt.n_layers = s->n_layers;
    opt.n_kv_heads = s->n_kv_heads;
    opt.n_q_heads = s->n_q_heads;
    opt.head_dim = s->head_dim;
    opt.max_tokens = opened > least ? opened : least;
    memset(windows, 0, s->n_layers * sizeof *windows);
    for (uint32_t i = 0; i < s->n_windowed; i++) windows[i] = s->window;
    opt.windows = windows;
    return opt;
}

/* What a cache says of a sequence of n_tokens. */
static seq_bytes bytes_of(const plan_question *q, const pleat_spec *spec, plan_certainty certainty, uint32_t n_tokens) {
    const model_shape *s = &q->shape;
    const uint32_t opened = n_tokens > q->max_tokens ? n_tokens : q->max_tokens;
    uint32_t windows[SHAPE_LAYERS_MAX];
    const pleat_cache_options opt = cache_for(q, spec, n_tokens, windows);
    seq_bytes b = {.tables = pleat_cache_bytes_for(&opt, 0, opened)};
    b.kv = pleat_cache_bytes_kept(&opt, n_tokens, opened) - b.tables;
    if (certainty == PLAN_BY_FRACTION) {
        const double held = q->fraction * (double)f16_of(s, n_tokens);
        const uint64_t all = held < (double)PLAN_MAX ? (uint64_t)(held + 0.5) : PLAN_MAX;
        b.kv = all > b.tables ? all - b.tables : 0;
    }
    return b;
}

/* ---- the device -------------------------------------------------------------------------------- */

static int fits(const plan_question *q, const pleat_spec *spec, plan_certainty certainty, uint32_t n_tokens) {
    const seq_bytes b = bytes_of(q, spec, certainty, n_tokens);
    return add(q->weights.bytes, mul(add(b.kv, b.tables), q->n_seqs)) <= q->device_bytes;
}

/* The longest sequences that fit, 0 if none do.  Bytes grow with the tokens but where longer pages come into use, which
 * is at a power of two: so the highest power that fits is the foot of the right stretch. */
static uint32_t most_tokens(const plan_question *q, const pleat_spec *spec, plan_certainty certainty) {
    uint32_t low = 1u << 24;
    while (low && !fits(q, spec, certainty, low)) low /= 2;
    if (low == 0 || low == 1u << 24) return low;
    for (uint32_t high = 2 * low; high - low > 1;) {
        const uint32_t middle = low + (high - low) / 2;
        if (fits(q, spec, certainty, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fill_device(const plan_question *q, const pleat_spec *spec, plan_row *r) {
    const uint64_t seq = add(r->seq_kv, r->seq_tables);
    if (!q->device_bytes || !q->weights.bytes) return;
    if (q->device_bytes > q->weights.bytes) r->max_seqs = (q->device_bytes - q->weights.bytes) / seq;
    r->most_tokens = most_tokens(q, spec, r->certainty);
    r->fits = r->total <= q->device_bytes;
}

/* ---- a row ------------------------------------------------------------------------------------- */

/* The fewest sequences with seq_read bytes each that read more than the weights do.  Reading grows faster than the
 * weights' share from the first such number on, so that halving finds it. */
static uint64_t crossing_of(const plan_weights *w, uint64_t seq_read) {
    uint64_t low = 0, high = w->bytes / seq_read + 1;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (mul(middle, seq_read) > weights_read(w, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Time for `amount` at `per_s`, in ms; NAN if the rate is not said. */
static double ms_for(double amount, double per_s) { return per_s > 0 ? amount / per_s * 1e3 : NAN; }

static void fill_step(const plan_question *q, uint64_t seq_read, plan_row *r) {
    r->kv_read = mul(seq_read, q->n_seqs);
    r->step_ms = r->tokens_per_s = NAN;
    if (q->weights.bytes) {
        r->weights_read = weights_read(&q->weights, q->n_seqs);
        r->crossing = crossing_of(&q->weights, seq_read);
        r->step_ms = ms_for((double)add(r->weights_read, r->kv_read), (double)q->bytes_per_s);
        r->tokens_per_s = q->n_seqs / r->step_ms * 1e3;
    }
    r->swap_bytes = seq_read;
    r->swap_ms = ms_for((double)seq_read, (double)q->swap_bytes_per_s);
    r->prompt_ms = ms_for(q->n_tokens, q->prompt_tokens_per_s);
}

pleat_status plan_fill(const plan_question *q, const pleat_spec *spec, plan_row *out, pleat_error *err) {
    const model_shape *s = &q->shape;
    const int has_policy = spec->policy != PLEAT_POLICY_NONE;
    plan_row r = {.certainty = pleat_spec_is_exact(spec) ? PLAN_EXACT
                               : q->fraction > 0         ? PLAN_BY_FRACTION
                                                         : PLAN_AT_MOST};
    const uint64_t lane_token = pleat_cache_token_bytes(spec, s->head_dim, s->n_q_heads / s->n_kv_heads);
    if (has_policy && s->n_windowed > 0 && s->window < q->max_tokens)
        return shape_error(err, PLEAT_E_ARG,
                           "a policy on layers with a sliding window (%u of %u layers, %u tokens) is not supported: "
                           "choose a spec without one",
                           s->n_windowed, s->n_layers, s->window);
    uint32_t windows[SHAPE_LAYERS_MAX];
    const pleat_cache_options opt = cache_for(q, spec, q->n_tokens, windows);
    const pleat_status status = pleat_cache_check(&opt, err);
    if (status != PLEAT_OK) return status;
    const seq_bytes b = bytes_of(q, spec, r.certainty, q->n_tokens);
    r.token_bytes = lane_token * s->n_kv_heads * s->n_layers;
    r.seq_kv = b.kv;
    r.seq_tables = b.tables;
    r.kv = mul(b.kv, q->n_seqs);
    r.tables = mul(b.tables, q->n_seqs);
    r.total = add(q->weights.bytes, add(r.kv, r.tables));
    r.f16_bytes = mul(f16_of(s, q->n_tokens), q->n_seqs);
    fill_device(q, spec, &r);
    const uint64_t all = shape_layer_tokens(s, q->n_tokens) * s->n_kv_heads * lane_token;
    const uint64_t stored = all < b.kv ? all : b.kv; /* a budget holds fewer than all tokens */
    fill_step(q, r.certainty == PLAN_BY_FRACTION ? (b.kv ? b.kv : 1) : stored, &r);
    if (r.total == PLAN_MAX || r.kv_read == PLAN_MAX || r.f16_bytes == PLAN_MAX)
        return shape_error(err, PLEAT_E_LIMIT, "%u sequences of %u tokens take more bytes than 2^63", q->n_seqs,
                           q->n_tokens);
    *out = r;
    return PLEAT_OK;
}
