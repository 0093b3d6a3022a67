/* SPDX-License-Identifier: MIT
 *
 * test_forward.c: the forward pass (src/model/forward.h) and what stands between its products (ops.h).
 *
 * Small models of random shapes and stored types are made in memory and run on an f32 cache; the oracle is a second
 * forward pass, one sequence at once, in float64 without a cache.  Then bits: n_logits, other items, and the thread
 * count change nothing.  And once made, neither the cache nor the pass takes memory for a step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"
#include "core/half.h"
#include "linear/linear.h"
#include "model/forward.h"
#include "model/ops.h"

/* ---- ops ---------------------------------------------------------------------------------------------- */

static const uint32_t ops_flags[] = {0, PLEAT_CPU_AVX2, PLEAT_CPU_NEON};

static bool has(uint32_t flags) { return (pleat_cpu_flags() & flags) == flags; }

static void try_rmsnorm(const pleat__ops_dsp *ops, uint32_t n, unsigned fill) {
    check_buf x = check_buf_new(n * sizeof(float), 4), w = check_buf_new(n * sizeof(float), 4);
    check_buf out = check_buf_new(n * sizeof(float), 4);
    const float *xs = x.p, *ws = w.p, *got = out.p;
    check_fill(x.p, n, fill, 20.0f);
    check_fill_normal(w.p, n);
    ops->rmsnorm(xs, ws, n, 1e-5f, out.p);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)xs[i] * (double)xs[i];
    const double factor = 1 / sqrt(sum / n + 1e-5);
    for (uint32_t i = 0; i < n; i++) {
        const double want = (double)xs[i] * factor * (double)ws[i];
        if (!CHECK_NEAR((double)got[i], want, 1e-6 * fabs(want) + 1e-30)) break;
    }
    ops->rmsnorm(xs, ws, n, 1e-5f, x.p);
    CHECK_EQ_MEM(x.p, out.p, n * sizeof(float));
    CHECK(check_buf_is_intact(&out));
    check_buf_free(&x), check_buf_free(&w), check_buf_free(&out);
}

static double f64_silu(double z) { return z / (1 + exp(-z)); }

static double f64_gelu(double z) { return 0.5 * z * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z))); }

static void try_gate(pleat__gate_fn gate_fn, double (*act)(double), uint32_t n, unsigned fill, float size) {
    check_buf a = check_buf_new(n * sizeof(float), 4), b = check_buf_new(n * sizeof(float), 4);
    float *gate = malloc(n * sizeof(float)), *as = a.p, *bs = b.p;
    check_fill(as, n, fill, size);
    check_fill_normal(bs, n);
    memcpy(gate, as, n * sizeof(float));
    gate_fn(as, bs, n);
    for (uint32_t i = 0; i < n; i++) {
        const double z = (double)gate[i], want = act(z) * (double)bs[i];
        /* tanh near -1 cancels in the oracle, not in what is tested */
        if (!CHECK_NEAR((double)as[i], want, 1e-6 * fabs(want) + (act == f64_gelu ? 1e-6 : 1e-30))) break;
    }
    CHECK(check_buf_is_intact(&a));
    check_buf_free(&a), check_buf_free(&b);
    free(gate);
}

static void try_clipped(const pleat__ops_dsp *ops, uint32_t n) {
    float a[150], b[150], gate[150];
    check_fill(a, n, 0, 10);
    check_fill(b, n, 0, 10);
    memcpy(gate, a, n * sizeof *a);
    ops->swiglu_clipped(a, b, n);
    for (uint32_t i = 0; i < n; i++) {
        const double z = fmin((double)gate[i], 7), y = fmax(fmin((double)b[i], 7), -7);
        const double want = z / (1 + exp(-(double)PLEAT__CLIP_ALPHA * z)) * (y + 1);
        if (!CHECK_NEAR((double)a[i], want, 1e-6 * fabs(want) + 1e-7 * fabs(z))) break;
    }
}

/* A NaN, which bounds do not hold, is NaN in what comes of it: a step with it is refused. */
static void try_clipped_nan(const pleat__ops_dsp *ops, uint32_t n) {
    float a[150], b[150];
    const uint32_t in_gate = (uint32_t)check_below(n), in_up = (uint32_t)check_below(n);
    check_fill(a, n, 0, 10);
    check_fill(b, n, 0, 10);
    a[in_gate] = b[in_up] = NAN;
    ops->swiglu_clipped(a, b, n);
    for (uint32_t i = 0; i < n; i++) CHECK((bool)isnan(a[i]) == (i == in_gate || i == in_up));
}

static void try_rope(const pleat__ops_dsp *ops, uint32_t n_heads, uint32_t head_dim, uint32_t n_dims, bool is_halves) {
    const uint32_t n = n_heads * head_dim, position = (uint32_t)check_below(200000);
    check_buf x = check_buf_new(n * sizeof(float), 4), turn = check_buf_new(2 * n_dims * sizeof(float), 4);
    float *before = malloc(n * sizeof(float)), *xs = x.p;
    double *frequencies = malloc((n_dims / 2 + 1) * sizeof(double));
    float *factors = malloc((n_dims / 2 + 1) * sizeof(float));
    for (uint32_t i = 0; i < n_dims / 2; i++) factors[i] = (float)check_uniform(1, 8);
    check_fill_normal(xs, n);
    memcpy(before, xs, n * sizeof(float));
    const pleat__rope rope = {
        .n_dims = n_dims, .is_halves = is_halves, .base = 1e5f, .factor = 4, .magnitude = 1.25f, .factors = factors};
    pleat__rope_frequencies(&rope, position + 1, frequencies);
    pleat__rope_turn(&rope, position, frequencies, turn.p);
    (is_halves ? ops->rope_halves : ops->rope)(xs, n_heads, head_dim, turn.p, n_dims);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t j = i % head_dim, half = n_dims / 2;
        if (j >= n_dims) {
            CHECK(xs[i] == before[i]);
            continue;
        }
        const uint32_t pair = is_halves ? j % half : j / 2;
        const bool is_first = is_halves ? j < half : j % 2 == 0;
        const uint32_t other = is_halves ? (is_first ? i + half : i - half) : i ^ 1;
        const double angle = position * pow(1e5, -2.0 * pair / n_dims) / (double)factors[pair] / 4;
        const double a = 1.25 * (double)before[i], b = 1.25 * (double)before[other];
        const double want = is_first ? a * cos(angle) - b * sin(angle) : b * sin(angle) + a * cos(angle);
        CHECK_NEAR((double)xs[i], want, 1e-6 * (fabs(a) + fabs(b)));
    }
    CHECK(check_buf_is_intact(&x));
    check_buf_free(&x), check_buf_free(&turn);
    free(before), free(frequencies), free(factors);
}

static void test_ops(void) {
    for (size_t i = 0; i < CHECK_COUNT(ops_flags); i++) {
        if (!has(ops_flags[i])) continue;
        pleat__ops_dsp ops;
        pleat__ops_dsp_init(&ops, ops_flags[i]);
        for (uint32_t round = 0; round < 100; round++) {
            const uint32_t n = (uint32_t)check_between(1, 150);
            const unsigned fill = (unsigned)check_below(CHECK_N_FILLS);
            check_context("cpu flags %x, n %u, fill %u", ops_flags[i], n, fill);
            try_rmsnorm(&ops, n, fill);
            try_gate(ops.swiglu, f64_silu, n, fill, 10.0f);
            try_gate(ops.geglu, f64_gelu, n, fill, 10.0f);
            try_clipped(&ops, n);
            try_clipped_nan(&ops, n);
            const uint32_t head_dim = 16 * (uint32_t)check_between(1, 5);
            try_rope(&ops, (uint32_t)check_between(1, 4), head_dim, 2 * (uint32_t)check_between(1, head_dim / 2),
                     round % 2);
        }
    }
}

/* Gates so large that e^-z overflows or vanishes. */
static void test_swiglu_extremes(void) {
    for (size_t i = 0; i < CHECK_COUNT(ops_flags); i++) {
        if (!has(ops_flags[i])) continue;
        pleat__ops_dsp ops;
        pleat__ops_dsp_init(&ops, ops_flags[i]);
        float a[] = {-1e30f, -1000, -100, -88, 0, 88, 100, 1000, 1e30f}, b[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        const float gate[] = {-1e30f, -1000, -100, -88, 0, 88, 100, 1000, 1e30f};
        ops.swiglu(a, b, 9);
        for (uint32_t j = 1; j < 9; j++)
            CHECK_NEAR((double)a[j], gate[j] > 0 ? (double)gate[j] : 0, 1e-6 * fabs((double)gate[j]));
        CHECK(fabsf(a[0]) <= 1e-6f * 1e30f);
    }
}

/* ---- a random model and its oracle ---------------------------------------------------------------------- */

#define N_VOCAB 70u
#define N_LAYERS 3u
#define N_EXPERTS 5u

typedef struct toy {
    struct pleat_model model;
    pleat__arch arch;
    pleat__layer layers[N_LAYERS];
    void *owned[128];
    uint32_t n_owned;
    bool is_quantised; /* some matrix is */
} toy;

static void *toy_alloc(toy *t, size_t bytes) { return t->owned[t->n_owned++] = malloc(bytes); }

static float *toy_norm(toy *t, uint32_t n) {
    float *norm = toy_alloc(t, n * sizeof(float));
    for (uint32_t i = 0; i < n; i++) norm[i] = (float)check_uniform(0.5, 1.5);
    return norm;
}

static void store_weight(const pleat__matrix *m, uint8_t *row, uint32_t col, float value) {
    const uint16_t half = pleat__f32_to_f16(value);
    const uint16_t brain = (uint16_t)(pleat__f32_bits(value) >> 16);
    if (m->type == PLEAT__W_F32) memcpy(row + 4 * col, &value, 4);
    if (m->type == PLEAT__W_F16) memcpy(row + 2 * col, &half, 2);
    if (m->type == PLEAT__W_BF16) memcpy(row + 2 * col, &brain, 2);
}

/* A type whose blocks fill rows of `cols`. */
static pleat__weight_type random_type(uint32_t cols) {
    for (;;) {
        const pleat__weight_type type = (pleat__weight_type)check_below(PLEAT__N_WEIGHT_TYPES);
        if (cols % pleat__weight_formats[type].block == 0) return type;
    }
}

/* Scale a block of random bytes so that its weights have a size of about `size`. */
static void set_scales(const pleat__weight_format *f, uint8_t *block, float size) {
    const float code = f->table[0] ? 70 : f->has_min ? 1u << (f->low_bits + f->high_bits) : 1u << f->zero_shift;
    const float sub = f->sub == PLEAT__SUB_NONE   ? 1
                      : f->sub == PLEAT__SUB_BYTE ? 64
                      : f->sub == PLEAT__SUB_4_4  ? 8
                                                  : 24;
    const uint16_t d = pleat__f32_to_f16(size / code / sub * 1.6f),
                   m = pleat__f32_to_f16(0.8f * size / (f->sub == PLEAT__SUB_NONE ? -1 : sub));
    if (f->is_power)
        *block = (uint8_t)(127 + ilogbf(size / 2));
    else
        memcpy(block + f->d_at, &d, 2);
    if (f->has_min) memcpy(block + f->d_at + 2, &m, 2);
}

/* Random bytes are good codes; scales are set so that weights have a size of about 1/sqrt(cols). */
static pleat__matrix toy_matrix(toy *t, uint32_t rows, uint32_t cols) {
    const float size = 1.0f / sqrtf((float)cols);
    pleat__matrix m = {.type = random_type(cols), .rows = rows, .cols = cols};
    const pleat__weight_format *f = &pleat__weight_formats[m.type];
    m.row_bytes = pleat__weight_row_bytes(m.type, cols);
    t->is_quantised |= pleat__is_quantised(m.type);
    uint8_t *data = toy_alloc(t, m.row_bytes * rows);
    for (size_t i = 0; i < m.row_bytes * rows; i++) data[i] = (uint8_t)check_u64();
    for (uint32_t r = 0; r < rows; r++) {
        uint8_t *row = data + r * m.row_bytes;
        for (uint32_t col = 0; col < cols; col += f->block) {
            if (pleat__is_quantised(m.type))
                set_scales(f, row + (size_t)(col / f->block) * f->bytes, size);
            else
                store_weight(&m, row, col, check_normal() * size);
        }
    }
    m.data = data;
    return m;
}

static pleat__stack toy_stack(toy *t, uint32_t rows, uint32_t cols) {
    pleat__stack s = {.first = toy_matrix(t, N_EXPERTS * rows, cols)};
    s.first.rows = rows;
    s.stride = rows * s.first.row_bytes;
    return s;
}

/* What a layer may have or not, and its feed-forward or experts. */
static void toy_extras(toy *t, pleat__layer *layer) {
    struct pleat_model *m = &t->model;
    const pleat_model_info *info = &m->info;
    const uint32_t n_q = info->n_q_heads * info->head_dim, n_kv = info->n_kv_heads * info->head_dim;
    for (uint32_t i = 0; i < 3 && check_below(2); i++) layer->biases[i] = toy_norm(t, i == 0 ? n_q : n_kv);
    if (check_below(2)) layer->q_norm = toy_norm(t, info->head_dim), layer->k_norm = toy_norm(t, info->head_dim);
    if (check_below(2)) layer->o_bias = toy_norm(t, info->n_embd);
    if (check_below(2)) layer->post_attn_norm = toy_norm(t, info->n_embd);
    if (check_below(2)) layer->post_ffn_norm = toy_norm(t, info->n_embd);
    if (check_below(4) == 0) layer->rope = PLEAT__NO_ROPE;
    const bool has_shared = m->n_experts > 0 && check_below(2);
    if (has_shared) layer->shared_gate = toy_norm(t, info->n_embd);
    if (has_shared || m->n_experts == 0) {
        layer->gate = toy_matrix(t, info->n_ff, info->n_embd);
        layer->up = toy_matrix(t, info->n_ff, info->n_embd);
        layer->down = toy_matrix(t, info->n_embd, info->n_ff);
    }
    if (m->n_experts == 0) return;
    layer->router = toy_matrix(t, m->n_experts, info->n_embd);
    layer->gates = toy_stack(t, m->n_ff_expert, info->n_embd);
    layer->ups = toy_stack(t, m->n_ff_expert, info->n_embd);
    layer->downs = toy_stack(t, info->n_embd, m->n_ff_expert);
}

static void toy_make(toy *t) {
    *t = (toy){0};
    struct pleat_model *m = &t->model;
    pleat_model_info *info = &m->info;
    info->n_layers = N_LAYERS;
    info->n_embd = check_below(2) ? 64 : check_below(2) ? 256 : (uint32_t)check_between(20, 100);
    info->n_ff = check_below(2) ? 96 : check_below(2) ? 256 : (uint32_t)check_between(20, 200);
    info->n_vocab = N_VOCAB;
    info->n_kv_heads = (uint32_t)check_between(1, 3);
    info->n_q_heads = info->n_kv_heads * (uint32_t)check_between(1, 3);
    info->head_dim = 16 * (uint32_t)check_between(1, 3);
    info->n_ctx = 4096;
    if (check_below(2)) {
        m->n_experts = N_EXPERTS;
        m->n_experts_used = (uint32_t)check_between(1, N_EXPERTS);
        m->n_ff_expert = check_below(2) ? 32 : (uint32_t)check_between(20, 100);
        m->sums_experts_to_1 = check_below(2);
    }
    m->rms_eps = 1e-5f;
    m->n_ropes = 1;
    m->ropes[0] = (pleat__rope){.n_dims = check_below(2) ? info->head_dim : info->head_dim / 2,
                                .is_halves = check_below(2),
                                .base = 10000,
                                .factor = 1,
                                .magnitude = 1};
    if (check_below(2)) m->ropes[0].factors = toy_norm(t, m->ropes[0].n_dims / 2);
    t->arch.is_gelu = check_below(2);
    m->arch = &t->arch;
    m->embedding_scale = check_below(2) ? 1 : 3;
    m->residual_scale = check_below(2) ? 1 : 0.5f;
    m->logit_scale = check_below(2) ? 1 : 0.25f;
    m->logit_cap = check_below(2) ? 0 : 5;
    m->embedding = toy_matrix(t, N_VOCAB, info->n_embd);
    m->output = check_below(2) ? m->embedding : toy_matrix(t, N_VOCAB, info->n_embd);
    m->output_norm = toy_norm(t, info->n_embd);
    m->layers = t->layers;
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        pleat__layer *layer = &t->layers[i];
        layer->attn_norm = toy_norm(t, info->n_embd);
        layer->ffn_norm = toy_norm(t, info->n_embd);
        layer->q = toy_matrix(t, info->n_q_heads * info->head_dim, info->n_embd);
        layer->k = toy_matrix(t, info->n_kv_heads * info->head_dim, info->n_embd);
        layer->v = toy_matrix(t, info->n_kv_heads * info->head_dim, info->n_embd);
        layer->o = toy_matrix(t, info->n_embd, info->n_q_heads * info->head_dim);
        toy_extras(t, layer);
    }
}

static void toy_free(toy *t) {
    for (uint32_t i = 0; i < t->n_owned; i++) free(t->owned[i]);
}

#define MAX_WIDTH 512u

static void f64_mul(const pleat__matrix *m, const double *x, double *y) {
    pleat__linear_dsp dsp;
    float row[MAX_WIDTH];
    pleat__linear_fill_ref(&dsp, 2);
    for (uint32_t r = 0; r < m->rows; r++) {
        dsp.load[m->type](m, r, r + 1, row);
        y[r] = 0;
        for (uint32_t c = 0; c < m->cols; c++) y[r] += (double)row[c] * x[c];
    }
}

static void f64_norm(const double *x, const float *weight, uint32_t n, double *out) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] / sqrt(sum / n + 1e-5) * (double)weight[i];
}

static void f64_rope(const struct pleat_model *m, double *x, uint32_t n_heads, uint32_t position) {
    const pleat__rope *rope = &m->ropes[0];
    const uint32_t n_pairs = rope->n_dims / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += m->info.head_dim)
        for (uint32_t i = 0; i < n_pairs; i++) {
            const uint32_t first = rope->is_halves ? i : 2 * i, second = rope->is_halves ? i + n_pairs : 2 * i + 1;
            const double factor = rope->factors ? (double)rope->factors[i] : 1;
            const double angle = position * pow((double)rope->base, -2.0 * i / rope->n_dims) / factor;
            const double a = x[first], b = x[second];
            x[first] = a * cos(angle) - b * sin(angle);
            x[second] = a * sin(angle) + b * cos(angle);
        }
}

/* Biases, norms and turns of the heads of q or k. */
static void f64_shape(const struct pleat_model *m, const pleat__layer *layer, uint32_t part, uint32_t position,
                      double *x) {
    const uint32_t n_heads = part == 0 ? m->info.n_q_heads : m->info.n_kv_heads, d = m->info.head_dim;
    const float *norm = part == 0 ? layer->q_norm : part == 1 ? layer->k_norm : NULL;
    for (uint32_t i = 0; layer->biases[part] && i < n_heads * d; i++) x[i] += (double)layer->biases[part][i];
    for (uint32_t h = 0; norm && h < n_heads; h++) f64_norm(x + (size_t)h * d, norm, d, x + (size_t)h * d);
    if (part < 2 && layer->rope != PLEAT__NO_ROPE) f64_rope(m, x, n_heads, position);
}

/* x += branch(y); y is changed. */
static void f64_branch(const struct pleat_model *m, const float *bias, const float *norm, double *y, double *x) {
    for (uint32_t i = 0; bias && i < m->info.n_embd; i++) y[i] += (double)bias[i];
    if (norm) f64_norm(y, norm, m->info.n_embd, y);
    for (uint32_t i = 0; i < m->info.n_embd; i++) x[i] += (double)m->residual_scale * y[i];
}

/* Attention of one position over keys and values [n][n_kv_heads][head_dim]. */
static void f64_attend(const pleat_model_info *info, const double *q, const double *k, const double *v, uint32_t n,
                       double *out) {
    const uint32_t d = info->head_dim, stride = info->n_kv_heads * d;
    double *weights = malloc(n * sizeof(double));
    for (uint32_t h = 0; h < info->n_q_heads; h++) {
        const uint32_t kv = h / (info->n_q_heads / info->n_kv_heads) * d;
        double max = -1e300, sum = 0;
        for (uint32_t t = 0; t < n; t++) {
            weights[t] = 0;
            for (uint32_t i = 0; i < d; i++) weights[t] += q[h * d + i] * k[(size_t)t * stride + kv + i] / sqrt(d);
            if (weights[t] > max) max = weights[t];
        }
        for (uint32_t t = 0; t < n; t++) sum += weights[t] = exp(weights[t] - max);
        for (uint32_t i = 0; i < d; i++) {
            out[h * d + i] = 0;
            for (uint32_t t = 0; t < n; t++) out[h * d + i] += weights[t] / sum * v[(size_t)t * stride + kv + i];
        }
    }
    free(weights);
}

/* out += share * feed-forward of x. */
static void f64_gated(const struct pleat_model *m, const pleat__matrix *wg, const pleat__matrix *wu,
                      const pleat__matrix *wd, const double *x, double share, double *out) {
    double gate[MAX_WIDTH], up[MAX_WIDTH], down[MAX_WIDTH];
    f64_mul(wg, x, gate);
    f64_mul(wu, x, up);
    for (uint32_t i = 0; i < wg->rows; i++) gate[i] = (m->arch->is_gelu ? f64_gelu : f64_silu)(gate[i]) * up[i];
    f64_mul(wd, gate, down);
    for (uint32_t i = 0; i < wd->rows; i++) out[i] += share * down[i];
}

/* Least distance between a chosen expert's logit and another's: f32 may choose otherwise where it is tiny. */
static double least_margin;

static void f64_experts(const struct pleat_model *m, const pleat__layer *layer, const double *x, double *out) {
    double logits[N_EXPERTS], all = 0, chosen = 0;
    bool is_chosen[N_EXPERTS] = {false};
    f64_mul(&layer->router, x, logits);
    for (uint32_t n = 0; n < m->n_experts_used; n++) {
        uint32_t best = N_EXPERTS;
        for (uint32_t e = 0; e < N_EXPERTS; e++)
            if (!is_chosen[e] && (best == N_EXPERTS || logits[e] > logits[best])) best = e;
        is_chosen[best] = true;
        for (uint32_t e = 0; n + 1 == m->n_experts_used && e < N_EXPERTS; e++)
            if (!is_chosen[e]) least_margin = fmin(least_margin, logits[best] - logits[e]);
    }
    for (uint32_t e = 0; e < N_EXPERTS; e++) all += exp(logits[e]), chosen += is_chosen[e] ? exp(logits[e]) : 0;
    for (uint32_t e = 0; e < N_EXPERTS; e++) {
        const pleat__matrix gate = pleat__stack_at(&layer->gates, e), up = pleat__stack_at(&layer->ups, e);
        const pleat__matrix down = pleat__stack_at(&layer->downs, e);
        if (is_chosen[e])
            f64_gated(m, &gate, &up, &down, x, exp(logits[e]) / (m->sums_experts_to_1 ? chosen : all), out);
    }
}

static void f64_feed_forward(const struct pleat_model *m, const pleat__layer *layer, double *x) {
    double normed[MAX_WIDTH], y[MAX_WIDTH] = {0}, gate = 0;
    f64_norm(x, layer->ffn_norm, m->info.n_embd, normed);
    for (uint32_t i = 0; layer->shared_gate && i < m->info.n_embd; i++)
        gate += (double)layer->shared_gate[i] * normed[i];
    if (m->n_experts > 0) f64_experts(m, layer, normed, y);
    if (layer->gate.rows > 0)
        f64_gated(m, &layer->gate, &layer->up, &layer->down, normed, layer->shared_gate ? 1 / (1 + exp(-gate)) : 1, y);
    f64_branch(m, NULL, layer->post_ffn_norm, y, x);
}

/* logits [n][N_VOCAB] of all positions before a choice of experts whose margin is below `margin`; their number. */
static uint32_t f64_forward(const struct pleat_model *m, const pleat_token *tokens, uint32_t n, double margin,
                            double *logits) {
    const pleat_model_info *info = &m->info;
    const uint32_t kv_width = info->n_kv_heads * info->head_dim;
    double *k = malloc(sizeof(double) * N_LAYERS * n * kv_width), *v = malloc(sizeof(double) * N_LAYERS * n * kv_width);
    pleat__linear_dsp dsp;
    pleat__linear_fill_ref(&dsp, 2);
    least_margin = 1;
    uint32_t t = 0;
    for (; t < n; t++) {
        double x[MAX_WIDTH], normed[MAX_WIDTH], q[MAX_WIDTH], a[MAX_WIDTH];
        float row[MAX_WIDTH];
        dsp.load[m->embedding.type](&m->embedding, (uint32_t)tokens[t], (uint32_t)tokens[t] + 1, row);
        for (uint32_t i = 0; i < info->n_embd; i++) x[i] = (double)row[i] * (double)m->embedding_scale;
        for (uint32_t l = 0; l < N_LAYERS; l++) {
            double *keys = k + (size_t)l * n * kv_width, *values = v + (size_t)l * n * kv_width;
            f64_norm(x, m->layers[l].attn_norm, info->n_embd, normed);
            f64_mul(&m->layers[l].q, normed, q);
            f64_mul(&m->layers[l].k, normed, keys + (size_t)t * kv_width);
            f64_mul(&m->layers[l].v, normed, values + (size_t)t * kv_width);
            f64_shape(m, &m->layers[l], 0, t, q);
            f64_shape(m, &m->layers[l], 1, t, keys + (size_t)t * kv_width);
            f64_shape(m, &m->layers[l], 2, t, values + (size_t)t * kv_width);
            f64_attend(info, q, keys, values, t + 1, a);
            f64_mul(&m->layers[l].o, a, normed);
            f64_branch(m, m->layers[l].o_bias, m->layers[l].post_attn_norm, normed, x);
            f64_feed_forward(m, &m->layers[l], x);
        }
        if (least_margin < margin) break;
        f64_norm(x, m->output_norm, info->n_embd, normed);
        double *out = logits + (size_t)t * N_VOCAB;
        f64_mul(&m->output, normed, out);
        for (uint32_t i = 0; i < N_VOCAB; i++) {
            out[i] *= (double)m->logit_scale;
            if (m->logit_cap > 0) out[i] = (double)m->logit_cap * tanh(out[i] / (double)m->logit_cap);
        }
    }
    free(k), free(v);
    return t;
}

/* ---- a model on a cache ----------------------------------------------------------------------------------- */

#define MAX_SEQS 4u
#define SEQ_TOKENS 100u

typedef struct rig {
    pleat_workers *workers;
    pleat_cache *cache;
    pleat__forward *fw;
    pleat_seq seqs[MAX_SEQS];
} rig;

/* `al` may be NULL. */
static void rig_make(rig *r, const toy *t, const char *spec, uint32_t n_threads, const pleat_allocator *al) {
    const pleat_model_info *info = &t->model.info;
    CHECK_STATUS(pleat_workers_create(n_threads, al, &r->workers), PLEAT_OK);
    const cache_shape shape = {.n_layers = info->n_layers,
                               .n_kv_heads = info->n_kv_heads,
                               .head_dim = info->head_dim,
                               .group = info->n_q_heads / info->n_kv_heads,
                               .max_seqs = MAX_SEQS,
                               .max_tokens = SEQ_TOKENS,
                               .step_tokens = MAX_SEQS * SEQ_TOKENS,
                               .workers = r->workers};
    pleat_cache_options opt = cache_options_of(spec, &shape);
    opt.allocator = al;
    r->cache = cache_made(&opt);
    CHECK_STATUS(pleat__forward_create(&t->model, opt.step_tokens, SEQ_TOKENS, 16, r->workers, al, &r->fw, NULL),
                 PLEAT_OK);
    for (uint32_t s = 0; s < MAX_SEQS; s++) r->seqs[s] = cache_seq(r->cache, SEQ_TOKENS);
}

static void rig_free(rig *r) {
    pleat__forward_destroy(&r->fw);
    pleat_cache_destroy(&r->cache);
    pleat_workers_destroy(&r->workers);
}

/* One step: the next n_tokens[s] tokens of each sequence that has any, with logits of the last n_logits[s]. */
static void rig_step(rig *r, pleat_token tokens[MAX_SEQS][SEQ_TOKENS], const uint32_t *n_tokens,
                     const uint32_t *n_logits, float *logits[MAX_SEQS]) {
    pleat_cache_item cache_items[MAX_SEQS];
    pleat__forward_item items[MAX_SEQS];
    uint32_t n_items = 0;
    for (uint32_t s = 0; s < MAX_SEQS; s++) {
        if (n_tokens[s] == 0) continue;
        const uint32_t from = pleat_cache_length(r->cache, r->seqs[s]);
        cache_items[n_items] = (pleat_cache_item){r->seqs[s], n_tokens[s], 0};
        items[n_items++] = (pleat__forward_item){tokens[s] + from, n_tokens[s], from, n_logits[s], logits[s]};
    }
    CHECK_STATUS(pleat_cache_begin(r->cache, cache_items, n_items), PLEAT_OK);
    CHECK_STATUS(pleat__forward_run(r->fw, r->cache, items, n_items), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(r->cache), PLEAT_OK);
}

static void random_tokens(pleat_token tokens[MAX_SEQS][SEQ_TOKENS]) {
    for (uint32_t s = 0; s < MAX_SEQS; s++)
        for (uint32_t i = 0; i < SEQ_TOKENS; i++) tokens[s][i] = (pleat_token)check_below(N_VOCAB);
}

/* Sequences advance by random chunks, together; every logit is near the oracle's. */
static void try_oracle(void) {
    toy t;
    rig r;
    pleat_token tokens[MAX_SEQS][SEQ_TOKENS];
    float *logits[MAX_SEQS];
    double *want = malloc(sizeof(double) * SEQ_TOKENS * N_VOCAB);
    toy_make(&t);
    rig_make(&r, &t, "f32", 2, NULL);
    random_tokens(tokens);
    for (uint32_t s = 0; s < MAX_SEQS; s++) logits[s] = malloc(sizeof(float) * SEQ_TOKENS * N_VOCAB);
    for (;;) {
        uint32_t n_tokens[MAX_SEQS], n_total = 0;
        float *to[MAX_SEQS];
        for (uint32_t s = 0; s < MAX_SEQS; s++) {
            const uint32_t from = pleat_cache_length(r.cache, r.seqs[s]), left = SEQ_TOKENS - from;
            const uint32_t chunk = (uint32_t)(check_below(2) ? 1 : check_between(0, 80));
            n_total += n_tokens[s] = chunk < left ? chunk : left;
            to[s] = logits[s] + (size_t)from * N_VOCAB;
        }
        if (n_total > 0) rig_step(&r, tokens, n_tokens, n_tokens, to);
        uint32_t n_done = 0;
        for (uint32_t s = 0; s < MAX_SEQS; s++) n_done += pleat_cache_length(r.cache, r.seqs[s]) == SEQ_TOKENS;
        if (n_done == MAX_SEQS) break;
    }
    for (uint32_t s = 0; s < MAX_SEQS; s++) {
        check_context("sequence %u, n_embd %u, n_ff %u, heads %u/%u x %u", s, t.model.info.n_embd, t.model.info.n_ff,
                      t.model.info.n_q_heads, t.model.info.n_kv_heads, t.model.info.head_dim);
        const double tol = t.is_quantised ? 1.5e-3 : 3e-5; /* a row of a quantised product is coded to 16 bits */
        const uint32_t n = f64_forward(&t.model, tokens[s], SEQ_TOKENS, tol, want);
        for (uint32_t i = 0; i < n * N_VOCAB; i++)
            if (!CHECK_NEAR((double)logits[s][i], want[i], tol)) break;
        free(logits[s]);
    }
    free(want);
    rig_free(&r);
    toy_free(&t);
}

static void test_oracle(void) {
    for (uint64_t round = check_rounds(8, 2); round > 0; round--) try_oracle();
}

/* Logits of a prompt and then of single tokens: the last position's alone on one thread, all in company on two. */
static void test_bits(void) {
    toy t;
    rig alone, shared;
    pleat_token tokens[MAX_SEQS][SEQ_TOKENS];
    static const uint32_t prompts[MAX_SEQS] = {90, 5, 33, 70}, ones[MAX_SEQS] = {1, 1, 1, 1};
    toy_make(&t);
    rig_make(&alone, &t, "f32", 1, NULL);
    rig_make(&shared, &t, "f32", 2, NULL);
    random_tokens(tokens);
    float *all[MAX_SEQS], *last[MAX_SEQS];
    for (uint32_t s = 0; s < MAX_SEQS; s++) {
        all[s] = malloc(sizeof(float) * SEQ_TOKENS * N_VOCAB);
        last[s] = malloc(sizeof(float) * N_VOCAB);
    }
    for (uint32_t pass = 0; pass < 3; pass++) {
        const uint32_t *n = pass == 0 ? prompts : ones;
        rig_step(&shared, tokens, n, n, all);
        for (uint32_t s = 0; s < MAX_SEQS; s++) {
            uint32_t n_tokens[MAX_SEQS] = {0};
            n_tokens[s] = n[s];
            rig_step(&alone, tokens, n_tokens, ones, last);
            check_context("pass %u, sequence %u", pass, s);
            CHECK_EQ_MEM(last[s], all[s] + (size_t)(n[s] - 1) * N_VOCAB, N_VOCAB * sizeof(float));
        }
    }
    for (uint32_t s = 0; s < MAX_SEQS; s++) free(all[s]), free(last[s]);
    rig_free(&alone);
    rig_free(&shared);
    toy_free(&t);
}

/* Prompts and generated tokens, with a policy that moves some and without, take no memory. */
static void test_no_allocation(void) {
    static const char *const specs[] = {"f16", "k8v4", "leankv:ah=1.5,al=0.6,window=16"};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        toy t;
        rig r;
        check_alloc ca;
        pleat_token tokens[MAX_SEQS][SEQ_TOKENS];
        float *logits[MAX_SEQS];
        check_context("%s", specs[i]);
        check_alloc_init(&ca, 0, 0);
        toy_make(&t);
        rig_make(&r, &t, specs[i], 2, &ca.a);
        random_tokens(tokens);
        for (uint32_t s = 0; s < MAX_SEQS; s++) logits[s] = malloc(sizeof(float) * N_VOCAB);
        const uint64_t n_made = ca.count;
        CHECK(n_made > 0);
        static const uint32_t prompts[MAX_SEQS] = {40, 1, 33, 7}, ones[MAX_SEQS] = {1, 1, 1, 1};
        for (uint32_t step = 0; step < SEQ_TOKENS - 40; step++) {
            rig_step(&r, tokens, step == 0 ? prompts : ones, ones, logits);
            CHECK_EQ_U64(ca.count, n_made);
        }
        for (uint32_t s = 0; s < MAX_SEQS; s++) free(logits[s]);
        rig_free(&r);
        CHECK_EQ_U64(ca.live, 0);
        toy_free(&t);
    }
}

static void test_create(void) {
    toy t;
    toy_make(&t);
    pleat__forward *fw = NULL;
    pleat_error err;
    CHECK_STATUS(pleat__forward_create(&t.model, 0, 1, 16, NULL, NULL, &fw, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__forward_create(NULL, 1, 1, 16, NULL, NULL, &fw, NULL), PLEAT_E_ARG);
    check_alloc ca;
    for (uint64_t nth = 1;; nth++) {
        check_alloc_init(&ca, nth, 0);
        const pleat_status status = pleat__forward_create(&t.model, 100, 100, 16, NULL, &ca.a, &fw, &err);
        if (status == PLEAT_OK) break;
        CHECK_STATUS(status, PLEAT_E_MEMORY);
        CHECK_EQ_U64(ca.live, 0);
        CHECK(fw == NULL);
    }
    CHECK_EQ_U64(ca.live_bytes, pleat__forward_bytes(&t.model, 100, NULL));
    pleat__forward_destroy(&fw);
    pleat__forward_destroy(&fw);
    pleat__forward_destroy(NULL);
    CHECK_EQ_U64(ca.live, 0);
    toy_free(&t);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"ops", test_ops},   {"swiglu_extremes", test_swiglu_extremes}, {"oracle", test_oracle},
        {"bits", test_bits}, {"no_allocation", test_no_allocation},     {"create", test_create},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
