/* SPDX-License-Identifier: MIT
 *
 * figures.c: see figures.h.  Sums saturate at PLAN_MAX, and plan_fill() refuses what got there.
 */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/shape/weight_types.h"

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) || r > PLAN_MAX ? PLAN_MAX : r;
}

static uint64_t mul(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) || r > PLAN_MAX ? PLAN_MAX : r;
}

/* ---- weights ----------------------------------------------------------------------------------- */

/* Bytes of n numbers. */
static uint64_t in_blocks(uint64_t n, const weight_type *t) {
    return mul(n / t->block_values + (n % t->block_values != 0), t->block_bytes);
}

/* Bytes of n numbers that are a part of more: rounded down, so that no parts have more bytes than the whole. */
static uint64_t part_in_blocks(uint64_t n, const weight_type *t) { return mul(n / t->block_values, t->block_bytes); }

/* Experts' matrices in MXFP4, their biases and all else in two bytes. */
static void weigh_mxfp4(const model_shape *s, plan_weights *w) {
    const uint64_t biases = s->traits & TRAIT_MLP_BIAS ? (2 * (uint64_t)s->n_ff + s->n_embd) * s->n_layers : 0;
    const uint64_t n_coded = s->n_params_expert - biases;
    const weight_type *mxfp4 = &weight_types[WEIGHT_MXFP4];
    w->expert = add(part_in_blocks(n_coded, mxfp4), 2 * biases);
    w->bytes = add(mul(s->n_params - s->n_experts * s->n_params_expert, 2),
                   mul(add(in_blocks(n_coded, mxfp4), 2 * biases), s->n_experts));
    snprintf(w->what, sizeof w->what, "MXFP4 experts, else 16 bits");
}

int plan_weigh(const model_shape *s, const char *type, plan_weights *w) {
    const char *name = type[0] ? type : "f16";
    const weight_type *t = weight_type_of(name);
    *w = (plan_weights){.n_experts = s->n_experts, .n_experts_used = s->n_experts_used};
    if (!t) return 0;
    w->bytes = in_blocks(s->n_params, t);
    w->lookup = part_in_blocks(s->n_params_lookup, t);
    w->expert = part_in_blocks(s->n_params_expert, t);
    snprintf(w->what, sizeof w->what, "%s", name);
    if (!type[0] && (s->traits & TRAIT_MXFP4) && s->n_experts) weigh_mxfp4(s, w);
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

pleat_status plan_forecast(const plan_question *q, const pleat_spec *spec, uint32_t n_tokens, pleat_forecast *out,
                           pleat_error *err) {
    uint32_t windows[SHAPE_LAYERS_MAX];
    const pleat_cache_options opt = cache_for(q, spec, n_tokens, windows);
    return pleat_forecast_for(&opt, out, err);
}

int plan_wants_text(const plan_question *q, const pleat_spec *spec) {
    pleat_forecast f;
    const pleat_status status = plan_forecast(q, spec, q->n_tokens, &f, NULL);
    return status == PLEAT_E_UNSUPPORTED || (status == PLEAT_OK && !f.is_measured);
}

/* A sequence from its first token to its last. */
typedef struct life {
    pleat_forecast_seq prefix, end;
    uint64_t shared_pages; /* of end's, those that the prefix still holds */
    uint64_t most_pages;   /* in any of its steps */
} life;

static void live_on(const pleat_forecast *f, uint32_t n, uint32_t flags, life *l) {
    if (n == 0) return;
    l->end = pleat_forecast_step(f, &l->end, n, flags);
    if (l->end.step_pages > l->most_pages) l->most_pages = l->end.step_pages;
}

/* n_tokens stored, of which the last were generated: all that a request generates but its last. */
static life live(const plan_question *q, const pleat_forecast *f, uint32_t n_tokens) {
    const uint32_t n_stored = q->n_generated > 0 ? (uint32_t)q->n_generated - 1 : 0;
    const uint32_t n_single = n_stored < n_tokens ? n_stored : n_tokens - 1, n_prompt = n_tokens - n_single;
    const uint32_t n_shared = q->n_shared < n_prompt ? q->n_shared : n_prompt - 1;
    life l = {.most_pages = 0};
    live_on(f, n_shared, PLEAT_ITEM_SEAL_ALL, &l);
    l.prefix = l.end;
    live_on(f, n_prompt - n_shared, 0, &l);
    for (uint32_t i = 0; i < n_single; i++) live_on(f, 1, 0, &l);
    l.shared_pages = l.end.n_classed == l.prefix.n_classed ? l.prefix.still_pages : l.prefix.final_pages;
    return l;
}

/* How a spec's bytes are known, and its samples. */
typedef struct pricing {
    const pleat_spec *spec;
    const pleat_forecast *samples;
    plan_certainty certainty;
} pricing;

/* Bytes of a sequence of n_tokens. */
typedef struct seq_bytes {
    uint64_t kv, tables, most, prefix; /* as in plan_row */
    uint64_t read;
} seq_bytes;

/* Slots in use, without slack: of tokens where there is one format, of whatever fills pages elsewhere. */
static uint64_t bytes_in_use(const plan_question *q, const pricing *p, const pleat_forecast *f,
                             const pleat_forecast_seq *held) {
    const pleat_cache_traits *t = &f->traits;
    const uint64_t token =
        pleat_cache_token_bytes(p->spec, q->shape.head_dim, q->shape.n_q_heads / q->shape.n_kv_heads);
    const uint64_t ring_token = pleat_format_token_bytes(p->spec->high, q->shape.head_dim);
    const double in_rings = (double)t->n_ring_lanes * (held->n_tokens < t->ring_slots ? held->n_tokens : t->ring_slots);
    const double full_pages = held->full_pages - in_rings / t->high_page_tokens;
    const double in_full =
        f->low_slots ? full_pages * (double)t->page_bytes : round(full_pages * t->high_page_tokens) * (double)token;
    const double bytes = in_full + in_rings * (double)ring_token;
    return bytes < (double)PLAN_MAX ? (uint64_t)bytes : PLAN_MAX;
}

static void price_fraction(const plan_question *q, uint32_t n_tokens, seq_bytes *b) {
    const double held = q->fraction * (double)f16_of(&q->shape, n_tokens);
    const uint64_t all = held < (double)PLAN_MAX ? (uint64_t)(held + 0.5) : PLAN_MAX;
    b->kv = b->read = all > b->tables ? all - b->tables : 0;
    b->most = b->kv;
}

static seq_bytes bytes_of(const plan_question *q, const pricing *p, uint32_t n_tokens) {
    const uint32_t opened = n_tokens > q->max_tokens ? n_tokens : q->max_tokens;
    uint32_t windows[SHAPE_LAYERS_MAX];
    const pleat_cache_options opt = cache_for(q, p->spec, n_tokens, windows);
    seq_bytes b = {.tables = pleat_cache_bytes_for(&opt, 0, opened)};
    pleat_forecast f;
    if (p->certainty == PLAN_BY_FRACTION) {
        price_fraction(q, n_tokens, &b);
        return b;
    }
    if (pleat_forecast_for(&opt, &f, NULL) != PLEAT_OK) return (seq_bytes){PLAN_MAX, PLAN_MAX, PLAN_MAX, 0, PLAN_MAX};
    if (p->samples) {
        f.n_samples = p->samples->n_samples;
        memcpy(f.samples, p->samples->samples, sizeof f.samples);
    }
    const life l = live(q, &f, n_tokens);
    if (l.end.n_classed > 0) b.tables = add(b.tables, f.codebooks_bytes);
    const uint64_t n_shared = l.shared_pages < l.end.n_pages ? l.shared_pages : l.end.n_pages;
    b.kv = pleat_forecast_bytes(&f, l.end.n_pages - n_shared);
    b.most = pleat_forecast_bytes(&f, l.most_pages);
    b.read = bytes_in_use(q, p, &f, &l.end);
    if (l.prefix.n_tokens > 0)
        b.prefix = add(pleat_forecast_bytes(&f, l.prefix.n_pages), pleat_cache_bytes_for(&opt, 0, l.prefix.n_tokens));
    if (l.prefix.n_classed > 0) b.prefix = add(b.prefix, f.codebooks_bytes);
    return b;
}

/* ---- the device -------------------------------------------------------------------------------- */

static int fits(const plan_question *q, const pricing *p, uint32_t n_tokens) {
    const seq_bytes b = bytes_of(q, p, n_tokens);
    const uint64_t seqs = add(b.prefix, mul(add(b.kv, b.tables), q->n_seqs));
    return add(q->weights.bytes, seqs) <= q->device_bytes;
}

/* The longest sequences that fit, 0 if none do.  Bytes grow with the tokens but where longer pages come into use, which
 * is at a power of two: so the highest power that fits is the foot of the right stretch. */
static uint32_t most_tokens(const plan_question *q, const pricing *p) {
    uint32_t low = 1u << 24;
    while (low && !fits(q, p, low)) low /= 2;
    if (low == 0 || low == 1u << 24) return low;
    for (uint32_t high = 2 * low; high - low > 1;) {
        const uint32_t middle = low + (high - low) / 2;
        if (fits(q, p, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fill_device(const plan_question *q, const pricing *p, plan_row *r) {
    const uint64_t seq = add(r->seq_kv, r->seq_tables), once = add(q->weights.bytes, r->prefix);
    if (!q->device_bytes || !q->weights.bytes) return;
    if (q->device_bytes > once) r->max_seqs = (q->device_bytes - once) / seq;
    r->most_tokens = most_tokens(q, p);
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

/* How the spec's bytes are known, if at all. */
static pleat_status price(const plan_question *q, pricing *p, pleat_error *err) {
    pleat_forecast f;
    const pleat_status status = plan_forecast(q, p->spec, q->n_tokens, &f, err);
    const int is_forecast = status == PLEAT_OK && f.is_measured;
    if (status == PLEAT_E_UNSUPPORTED && q->fraction == 0)
        return shape_error(err, status,
                           "what it keeps cannot be forecast with reclaim=block: give --fraction, the part "
                           "of f16's bytes that `pleat eval` or `run` measured, or reclaim=reuse");
    if (status != PLEAT_OK && status != PLEAT_E_UNSUPPORTED) return status;
    p->certainty = pleat_spec_is_exact(p->spec)       ? PLAN_EXACT
                   : is_forecast                      ? PLAN_FORECAST
                   : p->samples && status == PLEAT_OK ? PLAN_MEASURED
                                                      : PLAN_BY_FRACTION;
    if (is_forecast) p->samples = NULL;
    if (p->certainty != PLAN_BY_FRACTION) return PLEAT_OK;
    if (q->fraction == 0)
        return shape_error(
            err, PLEAT_E_UNSUPPORTED,
            "what it keeps depends on the text: give --fraction, the part of f16's bytes that `pleat eval` "
            "or `run` measured, or a text to measure it on: -m FILE --text FILE");
    if (q->n_shared > 0)
        return shape_error(err, PLEAT_E_UNSUPPORTED,
                           "--fraction does not say what sequences share: --shared has to go");
    return PLEAT_OK;
}

static void fill_kinds(const plan_question *q, const pleat_spec *spec, uint64_t kv_bytes, plan_row *r) {
    uint32_t windows[SHAPE_LAYERS_MAX];
    const pleat_cache_options opt = cache_for(q, spec, q->n_tokens, windows);
    r->n_kinds = layer_kinds_of(&opt, q->n_tokens, kv_bytes, r->kinds);
    r->token_bytes = layer_kinds_token_bytes(r->kinds, r->n_kinds);
}

static void fill_bytes(const plan_question *q, const seq_bytes *b, plan_row *r) {
    r->seq_kv = b->kv;
    r->seq_tables = b->tables;
    r->seq_most = b->most;
    r->prefix = b->prefix;
    r->kv = add(b->prefix, mul(b->kv, q->n_seqs));
    r->tables = mul(b->tables, q->n_seqs);
    r->total = add(q->weights.bytes, add(r->kv, r->tables));
    r->f16_bytes = mul(f16_of(&q->shape, q->n_tokens), q->n_seqs);
}

pleat_status plan_fill(const plan_question *q, const pleat_spec *spec, const pleat_forecast *samples, plan_row *out,
                       pleat_error *err) {
    pricing p = {.spec = spec, .samples = samples};
    const pleat_status status = price(q, &p, err);
    if (status != PLEAT_OK) return status;
    plan_row r = {.certainty = p.certainty};
    const seq_bytes b = bytes_of(q, &p, q->n_tokens);
    fill_kinds(q, spec, b.kv, &r);
    fill_bytes(q, &b, &r);
    fill_device(q, &p, &r);
    fill_step(q, b.read ? b.read : 1, &r);
    if (r.total == PLAN_MAX || r.kv_read == PLAN_MAX || r.f16_bytes == PLAN_MAX)
        return shape_error(err, PLEAT_E_LIMIT, "%u sequences of %u tokens take more bytes than 2^63", q->n_seqs,
                           q->n_tokens);
    *out = r;
    return PLEAT_OK;
}
