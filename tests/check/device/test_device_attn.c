/* SPDX-License-Identifier: MIT
 *
 * test_device_attn.c: decode attention and attention received on a GPU (src/attn/cuda/decode.h) against float64.
 *
 * A batch of lanes is stored with the CPU's quantiser in pages that stand anywhere in a pool, which is copied to the
 * device as it is; an oracle computes in float64 on the dequantised keys and values.  Error of a head's output: its
 * distance from the oracle's, relative to the norm of that or, where inputs are extreme and outputs cancel, to the sum
 * of |weight| * |value|.  Every case runs twice with the workspace poisoned before: the same bytes must come out.
 */
#include <stdlib.h>
#include <string.h>

#include "attn/cuda/decode.h"
#include "check.h"
#include "core/half.h"
#include "quant/variants.h"

#define MAX_D 128u
#define MAX_ROW 96u /* pages of a row */

typedef struct shape {
    pleat_format formats[2];
    uint32_t head_dim, n_group, n_kv_heads, n_layers, n_seqs;
    uint32_t tokens[2]; /* of a page */
    uint32_t max_slots[2];
    bool equal;          /* all lanes have max_slots */
    uint32_t long_slots; /* of the first lane's high side, where not 0 */
    bool tracked;
    unsigned fill; /* check_fill's */
    float size;    /* of keys and queries; values are size * 3 */
    pleat__device_schedule_kind schedule;
} shape;

/* A cache on the host and its copy on the device. */
typedef struct rig {
    shape s;
    pleat__device_view host, device;
    uint32_t n_pool, n_rows, n_lanes;
    uint8_t *pool;
    uint32_t *ids, *n_slots[2], *seq_idxs;
    uint16_t *q;
    uint64_t out_floats, logits_stride;
    float *out[2], *lse2[2], *logits; /* what came from the device: two runs */
    void *memory[8];                  /* of the device */
    uint32_t n_memory;
} rig;

static float keys[4096], values[4096];

/* ---- building --------------------------------------------------------------------------------------------------- */

static uint8_t *page_of(const rig *a, uint32_t row, uint32_t side, uint32_t i) {
    const uint32_t cell = side ? a->host.row_len - 1 - i : i;
    return a->pool + (uint64_t)a->ids[row * a->host.row_len + cell] * a->host.page_bytes;
}

static void fill_row(rig *a, uint32_t row) {
    const uint32_t d = a->s.head_dim;
    for (uint32_t side = 0; side < 2; side++) {
        const pleat__page_layout *l = &a->host.layouts[side];
        for (uint32_t slot = 0; slot < a->n_slots[side][row]; slot++) {
            uint8_t *page = page_of(a, row, side, slot / l->tokens);
            check_fill(keys, d, a->s.fill == 1 ? 0 : a->s.fill, a->s.size);
            check_fill(values, d, a->s.fill, 3 * a->s.size);
            pleat__quant_store_ref(l, page, slot % l->tokens, 1, keys, values, d);
            if (!l->tracked) continue;
            pleat__positions(l, page)[slot % l->tokens] = check_below(5) == 0 ? -1 : (int32_t)slot;
            pleat__scores(l, page)[slot % l->tokens] = (float)check_uniform(0, 2);
        }
    }
}

/* Lengths: none, one, and all between; some lanes much longer than others. */
static uint32_t some_slots(uint32_t most) {
    switch (check_below(6)) {
        case 0: return 0;
        case 1: return pleat__min_u32(most, 1);
        case 2: return (uint32_t)check_below(pleat__min_u32(most, 40) + 1);
        case 3: return most;
        default: return (uint32_t)check_below(most + 1);
    }
}

static void *to_device(rig *a, const void *from, uint64_t bytes) {
    void *p = NULL;
    if (!CHECK_STATUS(pleat__device_alloc(bytes > 0 ? bytes : 16, &p, NULL), PLEAT_OK)) exit(1);
    a->memory[a->n_memory++] = p;
    const pleat__device_stream none = {NULL};
    if (from) CHECK_STATUS(pleat__device_copy(p, from, bytes, none, NULL), PLEAT_OK);
    return p;
}

static void rig_init_host(rig *a) {
    const shape *s = &a->s;
    pleat__device_view *v = &a->host;
    for (uint32_t side = 0; side < 2; side++)
        CHECK_STATUS(
            pleat__page_layout_init(&v->layouts[side], s->formats[side], s->head_dim, s->tokens[side], s->tracked),
            PLEAT_OK);
    v->page_bytes = (pleat__max_u32(v->layouts[0].used_bytes, v->layouts[1].used_bytes) + 127) / 128 * 128;
    v->n_layers = s->n_layers;
    v->n_kv_heads = s->n_kv_heads;
    v->n_group = s->n_group;
    v->n_seqs = s->n_seqs;
    v->row_len = MAX_ROW;
    const uint32_t seqs_cap = s->n_seqs + 2;
    a->n_rows = seqs_cap * s->n_layers * s->n_kv_heads;
    a->n_lanes = s->n_seqs * s->n_kv_heads;
    a->ids = malloc((size_t)a->n_rows * MAX_ROW * sizeof *a->ids);
    a->seq_idxs = malloc(s->n_seqs * sizeof *a->seq_idxs);
    uint32_t n_pages = 0;
    for (uint32_t side = 0; side < 2; side++) {
        a->n_slots[side] = malloc(a->n_rows * sizeof *a->n_slots[side]);
        for (uint32_t row = 0; row < a->n_rows; row++) {
            a->n_slots[side][row] = s->equal ? s->max_slots[side] : some_slots(s->max_slots[side]);
            if (side == 0 && row == 0 && s->long_slots) a->n_slots[side][row] = s->long_slots;
            n_pages += pleat__div_up_u32(a->n_slots[side][row], s->tokens[side]);
        }
    }
    a->n_pool = n_pages + 3;
    a->pool = aligned_alloc(256, (a->n_pool * v->page_bytes + 255) / 256 * 256);
    memset(a->pool, 0xD0, a->n_pool * v->page_bytes);
    for (uint32_t i = 0; i < s->n_seqs; i++) a->seq_idxs[i] = (s->n_seqs - i); /* places 1..n, backwards */
}

/* Give every row pages in random order; cells without a page have an id that must not be followed. */
static void rig_fill(rig *a) {
    uint32_t *order = malloc(a->n_pool * sizeof *order);
    for (uint32_t i = 0; i < a->n_pool; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    memset(a->ids, 0xFF, (size_t)a->n_rows * MAX_ROW * sizeof *a->ids);
    uint32_t next = 0;
    for (uint32_t row = 0; row < a->n_rows; row++) {
        for (uint32_t side = 0; side < 2; side++) {
            const uint32_t n = pleat__div_up_u32(a->n_slots[side][row], a->s.tokens[side]);
            for (uint32_t i = 0; i < n; i++) a->ids[row * MAX_ROW + (side ? MAX_ROW - 1 - i : i)] = order[next++];
        }
        fill_row(a, row);
    }
    free(order);
    const uint64_t n_q = (uint64_t)a->n_lanes * a->s.n_group * a->s.head_dim;
    a->q = malloc(n_q * sizeof *a->q);
    for (uint64_t i = 0; i < n_q; i += a->s.head_dim) {
        check_fill(keys, a->s.head_dim, a->s.fill, a->s.size);
        for (uint32_t k = 0; k < a->s.head_dim; k++)
            a->q[i + k] = pleat__f32_to_f16(fminf(fmaxf(keys[k], -PLEAT__F16_MAX), PLEAT__F16_MAX));
    }
}

static void rig_init(rig *a, const shape *s) {
    memset(a, 0, sizeof *a);
    a->s = *s;
    rig_init_host(a);
    rig_fill(a);
    a->device = a->host;
    a->device.base = to_device(a, a->pool, a->n_pool * a->host.page_bytes);
    a->device.ids = to_device(a, a->ids, (uint64_t)a->n_rows * MAX_ROW * sizeof *a->ids);
    for (uint32_t side = 0; side < 2; side++)
        a->device.n_slots[side] = to_device(a, a->n_slots[side], a->n_rows * sizeof(uint32_t));
    if (s->max_slots[1] == 0) a->device.n_slots[1] = NULL;
    a->device.seq_idxs = to_device(a, a->seq_idxs, s->n_seqs * sizeof *a->seq_idxs);
    a->out_floats = (uint64_t)a->n_lanes * s->n_group * s->head_dim;
    a->logits_stride = (s->max_slots[0] + s->long_slots + s->max_slots[1] + 64) / 16 * 16;
    for (uint32_t i = 0; i < 2; i++) {
        a->out[i] = malloc(a->out_floats * sizeof(float));
        a->lse2[i] = malloc((uint64_t)a->n_lanes * s->n_group * sizeof(float));
    }
    a->logits = malloc(a->n_lanes * s->n_group * a->logits_stride * sizeof(float));
}

static void rig_release(rig *a) {
    for (uint32_t i = 0; i < a->n_memory; i++) pleat__device_free(a->memory[i]);
    free(a->pool);
    free(a->ids);
    free(a->n_slots[0]);
    free(a->n_slots[1]);
    free(a->seq_idxs);
    free(a->q);
    for (uint32_t i = 0; i < 2; i++) {
        free(a->out[i]);
        free(a->lse2[i]);
    }
    free(a->logits);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static void copy_back(void *to, const void *from, uint64_t bytes) {
    const pleat__device_stream none = {NULL};
    CHECK_STATUS(pleat__device_copy(to, from, bytes, none, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(none, NULL), PLEAT_OK);
}

/* Schedule and attention, captured and replayed. */
static void run_graph(const pleat__device_attn_plan *plan, const pleat__device_attn_args *args, void *workspace) {
    pleat__device_stream stream;
    pleat__device_graph graph;
    if (!CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK)) return;
    CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_attn_schedule(plan, &args->view, workspace, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_attn_decode(plan, args, workspace, stream, NULL), PLEAT_OK);
    if (CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK)) {
        CHECK_STATUS(pleat__device_graph_launch(graph, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
        pleat__device_graph_destroy(&graph);
    }
    pleat__device_stream_destroy(&stream);
}

#define TIMES 8 /* what slots received counts */

/* No logits are left of sequences that are not scored. */
static void check_no_logits(const rig *a, const void *logits, int poison) {
    const uint64_t n = (uint64_t)a->n_lanes * a->s.n_group * a->logits_stride;
    uint8_t *now = malloc(n * sizeof(float));
    uint64_t n_other = 0;
    copy_back(now, logits, n * sizeof(float));
    for (uint64_t i = 0; i < n * sizeof(float); i++) n_other += now[i] != poison;
    CHECK_EQ_U64(n_other, 0);
    free(now);
}

/* Attention of one layer, twice, into poisoned memory, the second time in a graph and with no sequence scored.  The
 * scores are added to once. */
static void rig_run(rig *a, uint32_t layer) {
    const pleat__device_stream stream = {NULL};
    const uint64_t heads = (uint64_t)a->n_lanes * a->s.n_group;
    pleat_error err = {0};
    pleat__device_attn_plan plan;
    const uint32_t n_before = a->n_memory;
    if (!CHECK_STATUS(pleat__device_attn_plan_init(&plan, &a->device, a->s.n_seqs + 1, a->s.schedule, &err),
                      PLEAT_OK)) {
        check_context("%s", err.text);
        return;
    }
    pleat__device_attn_args args = {.view = a->device, .layer = layer, .scale = 1 / sqrtf((float)a->s.head_dim)};
    args.q = to_device(a, a->q, a->out_floats * sizeof *a->q);
    /* one piece: workspace, out, lse2, logits */
    const uint64_t out_off = plan.workspace_bytes + 256, lse_off = out_off + (a->out_floats + 64) * 4,
                   logits_off = (lse_off + heads * 4 + 511) / 256 * 256,
                   bytes = logits_off + heads * a->logits_stride * 4 + 256;
    uint8_t *p = to_device(a, NULL, bytes);
    void *nobody = to_device(a, NULL, (uint64_t)a->s.n_seqs * sizeof(uint32_t));
    CHECK_STATUS(pleat__device_fill(nobody, 0xFF, (uint64_t)a->s.n_seqs * sizeof(uint32_t), stream, NULL), PLEAT_OK);
    args.out = (float *)(void *)(p + out_off);
    args.lse2 = (float *)(void *)(p + lse_off);
    args.logits = (float *)(void *)(p + logits_off);
    args.logits_stride = a->logits_stride;
    args.times = TIMES;
    for (uint32_t i = 0; i < 2; i++) {
        args.scored_seqs = i == 0 ? NULL : nobody;
        CHECK_STATUS(pleat__device_fill(p, 0xC3 + (int)i, bytes, stream, NULL), PLEAT_OK);
        if (i == 0) {
            CHECK_STATUS(pleat__device_attn_schedule(&plan, &a->device, p, stream, &err), PLEAT_OK);
            CHECK_STATUS(pleat__device_attn_decode(&plan, &args, p, stream, &err), PLEAT_OK);
            CHECK_STATUS(pleat__device_attn_received(&args, stream, &err), PLEAT_OK);
            copy_back(a->logits, args.logits, heads * a->logits_stride * 4);
        } else {
            CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
            run_graph(&plan, &args, p);
        }
        copy_back(a->out[i], args.out, a->out_floats * 4);
        copy_back(a->lse2[i], args.lse2, heads * 4);
    }
    check_no_logits(a, args.logits, 0xC4);
    CHECK_EQ_MEM(a->out[0], a->out[1], a->out_floats * 4);
    CHECK_EQ_MEM(a->lse2[0], a->lse2[1], heads * 4);
    while (a->n_memory > n_before) pleat__device_free(a->memory[--a->n_memory]);
}

/* ---- the oracle ------------------------------------------------------------------------------------------------- */

typedef struct exact {
    double out[MAX_D];
    double spread; /* sum of weight * norm of value */
    double lse2;
} exact;

static float k_tile[16 * MAX_D] __attribute__((aligned(64))), v_tile[16 * MAX_D] __attribute__((aligned(64)));

/* NaN stays. */
static void keep_larger(double *most, double x) {
    if (!isnan(*most) && !(x <= *most)) *most = x;
}

/* Logits: the largest error seen, the same relative to its bound, and the largest sum of |q * k|. */
static double logit_error, logit_of_bound, logit_size;

/* decode.h's bound: q is rounded to 16 bits of its largest, and sums of scale*code and minimum may cancel. */
static void note_logit(const rig *a, double got, double want, const float *k, const uint16_t *q, double factor) {
    double max_q = 0, max_k = 0, sum_q = 0, sum_k = 0, size = 0;
    if (want == -INFINITY) {
        CHECK(got == -INFINITY);
        return;
    }
    for (uint32_t i = 0; i < a->s.head_dim; i++) {
        const double x = fabs((double)pleat__f16_to_f32(q[i])), y = fabs((double)k[i * 16]);
        max_q = fmax(max_q, x);
        max_k = fmax(max_k, y);
        sum_q += x;
        sum_k += y;
        size += x * y;
    }
    const double bound = factor * (1.6e-5 * max_q * sum_k + 1e-6 * sum_q * max_k) + 1e-30, e = fabs(got - want);
    keep_larger(&logit_error, e);
    keep_larger(&logit_of_bound, e / bound);
    logit_size = fmax(logit_size, size * factor);
}

/* One pass over a lane's slots; most: the largest logit, for the second. */
static double walk_lane(const rig *a, uint32_t row, uint32_t lane, uint32_t head, double most, exact *x) {
    const uint32_t d = a->s.head_dim;
    const uint64_t at = (uint64_t)lane * a->s.n_group + head;
    double largest = -INFINITY, sum = 0;
    uint32_t low_from = 0;
    for (uint32_t side = 0; side < 2; side++) {
        const pleat__page_layout *l = &a->host.layouts[side];
        const uint32_t n = a->n_slots[side][row];
        for (uint32_t slot = 0; slot < n; slot++) {
            uint8_t *page = page_of(a, row, side, slot / l->tokens);
            const uint32_t s = slot % 16;
            if (s == 0) {
                pleat__quant_load_k_ref(l, page, slot % l->tokens / 16, k_tile);
                if (x) pleat__quant_load_v_ref(l, page, slot % l->tokens / 16, v_tile);
            }
            const bool live = !l->tracked || pleat__positions(l, page)[slot % l->tokens] >= 0;
            double dot = 0, norm = 0;
            for (uint32_t i = 0; i < d; i++)
                dot += (double)pleat__f16_to_f32(a->q[at * d + i]) * (double)k_tile[i * 16 + s];
            const double factor = 1.44269504088896340736 / sqrt((double)d);
            const double logit = live ? dot * factor : -INFINITY;
            if (logit > largest) largest = logit;
            if (!x) continue;
            note_logit(a, (double)a->logits[at * a->logits_stride + low_from + slot], logit, k_tile + s, a->q + at * d,
                       factor);
            if (!live) continue;
            const double weight = exp2(logit - most);
            sum += weight;
            for (uint32_t i = 0; i < d; i++) {
                x->out[i] += weight * (double)v_tile[s * d + i];
                norm += (double)v_tile[s * d + i] * (double)v_tile[s * d + i];
            }
            x->spread += weight * sqrt(norm);
        }
        low_from = (n + 15) / 16 * 16;
    }
    if (x) {
        for (uint32_t i = 0; i < d; i++) x->out[i] = sum > 0 ? x->out[i] / sum : 0;
        x->spread = sum > 0 ? x->spread / sum : 0;
        x->lse2 = most + log2(sum);
    }
    return largest;
}

typedef struct errors {
    double out, of_spread, lse2;
} errors;

static void compare_head(const rig *a, uint64_t at, const exact *x, errors *e) {
    const uint32_t d = a->s.head_dim;
    double diff = 0, norm = 0;
    for (uint32_t i = 0; i < d; i++) {
        const double y = (double)a->out[0][at * d + i] - x->out[i];
        diff += y * y;
        norm += x->out[i] * x->out[i];
    }
    const double relative = norm > 0 ? sqrt(diff / norm) : sqrt(diff);
    const double of_spread = x->spread > 0 ? sqrt(diff) / x->spread : sqrt(diff);
    keep_larger(&e->out, relative);
    keep_larger(&e->of_spread, of_spread);
    if (x->lse2 == -INFINITY) {
        CHECK(a->lse2[0][at] == -INFINITY && norm == 0);
        return;
    }
    keep_larger(&e->lse2, fabs((double)a->lse2[0][at] - x->lse2));
}

static uint32_t row_of(const rig *a, uint32_t lane, uint32_t layer) {
    const uint32_t seq_idx = a->seq_idxs[lane / a->s.n_kv_heads];
    return (seq_idx * a->s.n_layers + layer) * a->s.n_kv_heads + lane % a->s.n_kv_heads;
}

static errors rig_compare(const rig *a, uint32_t layer) {
    errors e = {0};
    logit_error = logit_of_bound = logit_size = 0;
    for (uint32_t lane = 0; lane < a->n_lanes; lane++) {
        const uint32_t row = row_of(a, lane, layer);
        for (uint32_t head = 0; head < a->s.n_group; head++) {
            exact x = {0};
            walk_lane(a, row, lane, head, walk_lane(a, row, lane, head, 0, NULL), &x);
            compare_head(a, (uint64_t)lane * a->s.n_group + head, &x, &e);
        }
    }
    return e;
}

/* What the scores came to, against the logits and lse2 that the device itself wrote. */
static void check_scores(rig *a, uint32_t layer) {
    uint8_t *now = malloc(a->n_pool * a->host.page_bytes);
    copy_back(now, a->device.base, a->n_pool * a->host.page_bytes);
    for (uint32_t lane = 0; lane < a->n_lanes; lane++) {
        const uint32_t row = row_of(a, lane, layer);
        uint32_t low_from = 0;
        for (uint32_t side = 0; side < 2; side++) {
            const pleat__page_layout *l = &a->host.layouts[side];
            const uint32_t n = a->n_slots[side][row];
            for (uint32_t slot = 0; slot < n; slot++) {
                uint8_t *page = page_of(a, row, side, slot / l->tokens);
                double most = 0;
                for (uint32_t g = 0; g < a->s.n_group; g++) {
                    const uint64_t at = (uint64_t)lane * a->s.n_group + g;
                    const double x =
                        (double)a->logits[at * a->logits_stride + low_from + slot] - (double)a->lse2[0][at];
                    most = fmax(most, x > -INFINITY ? exp2(x) : 0);
                }
                float *score = &pleat__scores(l, page)[slot % l->tokens];
                CHECK_NEAR((double)pleat__scores(l, now + (page - a->pool))[slot % l->tokens],
                           (double)*score + TIMES * most, TIMES * 2e-6);
                memcpy(score, now + ((uint8_t *)score - a->pool), sizeof *score);
            }
            low_from = (n + 15) / 16 * 16;
        }
    }
    CHECK_EQ_MEM(now, a->pool, a->n_pool * a->host.page_bytes); /* nothing else was written */
    free(now);
}

static void try_shape(const shape *s) {
    check_context("%c%uv%u+k%uv%u d %u group %u heads %u seqs %u tokens %u/%u slots %u/%u fill %u size %g schedule %u",
                  s->formats[0].rotated ? 'h' : 'k', s->formats[0].k_bits, s->formats[0].v_bits, s->formats[1].k_bits,
                  s->formats[1].v_bits, s->head_dim, s->n_group, s->n_kv_heads, s->n_seqs, s->tokens[0], s->tokens[1],
                  s->max_slots[0], s->max_slots[1], s->fill, (double)s->size, s->schedule);
    rig a;
    rig_init(&a, s);
    for (uint32_t layer = 0; layer < s->n_layers; layer++) {
        rig_run(&a, layer);
        const errors e = rig_compare(&a, layer);
        const double rounding = 2 * logit_error; /* what weights and lse2 inherit */
        CHECK_NEAR(logit_of_bound, 0, 1);
        CHECK_NEAR(e.of_spread, 0, 4e-4 + rounding);
        if (s->fill == 0 && s->size <= 1) CHECK_NEAR(e.out, 0, 1e-3);
        CHECK_NEAR(e.lse2, 0, 1e-5 + rounding + 1e-6 * logit_size);
        if (s->tracked) check_scores(&a, layer);
    }
    rig_release(&a);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static const pleat_format pairs[][2] = {{{16, 16}, {16, 16}},
                                        {{8, 8}, {8, 8}},
                                        {{8, 4}, {8, 4}},
                                        {{4, 4}, {4, 4}},
                                        {{4, 2}, {4, 2}},
                                        {{8, 8}, {4, 4}},
                                        {{8, 4}, {4, 2}},
                                        {{8, 2}, {8, 2}},
                                        {{4, 8}, {4, 8}},
                                        {{2, 8}, {2, 8}},
                                        {{2, 4}, {2, 4}},
                                        {{2, 2}, {2, 2}},
                                        {{16, 16}, {8, 8}},
                                        {{16, 16}, {8, 4}},
                                        {{16, 16}, {4, 4}},
                                        {{16, 16}, {4, 2}},
                                        {{8, 8}, {8, 4}},
                                        {{8, 8}, {4, 2}},
                                        {{8, 4}, {4, 4}},
                                        {{4, 4}, {4, 2}},
                                        /* rotated: a side's, and as the other's */
                                        {{4, 4, 1}, {4, 4, 1}},
                                        {{4, 3, 1}, {4, 3, 1}},
                                        {{4, 2, 1}, {4, 2, 1}},
                                        {{3, 4, 1}, {3, 4, 1}},
                                        {{3, 3, 1}, {3, 3, 1}},
                                        {{3, 2, 1}, {3, 2, 1}},
                                        {{2, 4, 1}, {2, 4, 1}},
                                        {{2, 3, 1}, {2, 3, 1}},
                                        {{2, 2, 1}, {2, 2, 1}},
                                        {{8, 8}, {3, 2, 1}},
                                        {{8, 8}, {2, 2, 1}},
                                        {{8, 4}, {3, 2, 1}},
                                        {{8, 4}, {2, 2, 1}}};

/* Query heads of a KV head, at most. */
static uint32_t group_of(uint32_t pair) { return pairs[pair][1].rotated ? 4 : 8; }

/* One of everything, small. */
static shape some_shape(uint32_t pair, uint32_t head_dim) {
    shape s = {.head_dim = head_dim, .n_kv_heads = 2, .size = 1};
    memcpy(s.formats, pairs[pair], sizeof s.formats);
    s.n_group = 1 + (uint32_t)check_below(group_of(pair));
    s.tokens[0] = 16 * (1 + (uint32_t)check_below(4));
    s.tokens[1] = 16 * (1 + (uint32_t)check_below(7));
    s.max_slots[0] = 16 + (uint32_t)check_below(500);
    const bool mixed = memcmp(&s.formats[0], &s.formats[1], sizeof s.formats[0]) != 0;
    s.max_slots[1] = mixed ? 16 + (uint32_t)check_below(300) : 0;
    s.n_layers = (uint32_t)check_cases(2, 1);
    s.n_seqs = (uint32_t)check_cases(5, 2);
    s.tracked = check_below(2) != 0;
    s.schedule = (pleat__device_schedule_kind)check_below(3);
    return s;
}

/* Lanes of several pieces. */
static void test_pieces(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(CHECK_COUNT(pairs), 3); i += 2) {
        shape s = some_shape(i, i % 4 ? 64 : 128);
        s.tokens[0] = 80, s.tokens[1] = 96; /* rows have MAX_ROW pages */
        s.max_slots[0] = 1024 + (uint32_t)check_below(3000);
        if (s.max_slots[1]) s.max_slots[1] = 1 + (uint32_t)check_below(2000);
        s.schedule = PLEAT__DEVICE_FIXED_SPLITS;
        try_shape(&s);
    }
}

/* With CHECK_LEAST short lanes, for the kernel of up to four heads and that of more. */
static void try_formats(uint32_t pair, uint32_t head_dim) {
    shape s = some_shape(pair, head_dim);
    if (check_cases(1, 0)) {
        try_shape(&s);
        return;
    }
    for (s.n_group = 3; s.n_group <= group_of(pair); s.n_group += 4) {
        s.max_slots[0] = 60;
        if (s.max_slots[1]) s.max_slots[1] = 30;
        try_shape(&s);
    }
}

static void test_formats(void) {
    CHECK_DEVICE();
    for (uint32_t round = 0; round < check_rounds(3, 1); round++) {
        for (uint32_t i = 0; i < CHECK_COUNT(pairs); i++) {
            try_formats(i, 64);
            try_formats(i, 128);
        }
    }
}

static void test_fills(void) {
    CHECK_DEVICE();
    static const float sizes[] = {1, 1e-3f, 60, 3000};
    for (uint32_t i = 0; i < check_cases(CHECK_COUNT(pairs), 2); i++) {
        for (unsigned fill = 0; fill < check_cases(CHECK_N_FILLS, 2); fill++) {
            shape s = some_shape(i, check_below(2) ? 64 : 128);
            s.n_seqs = 2;
            s.fill = fill;
            s.size = sizes[(fill + i) % 4];
            try_shape(&s);
        }
    }
}

/* Enough tiles that all blocks have work and lanes go across blocks, and a lane that towers above the others. */
static void test_long_lanes(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(CHECK_COUNT(pairs), 1); i++) {
        shape s = some_shape(i, i % 2 ? 64 : 128);
        s.n_layers = 1;
        s.n_kv_heads = 1;
        s.n_group = 4;
        s.n_seqs = 9;
        s.tokens[0] = 64;
        s.tokens[1] = 128;
        s.max_slots[0] = 4000;
        s.max_slots[1] = s.max_slots[1] ? 3000 : 0;
        s.schedule = PLEAT__DEVICE_EQUAL_SHARES;
        try_shape(&s);
    }
}

/* Two lanes for all blocks: each lane's parts come from tens of them, more than are merged at once, and those at the
 * border between the two have both. */
static void test_two_lanes(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(CHECK_COUNT(pairs), 1); i++) {
        shape s = some_shape(i, i / 2 % 2 ? 64 : 128);
        s.n_layers = 1;
        s.n_kv_heads = 1;
        s.n_group = 1 + i % group_of(i);
        s.n_seqs = 2;
        s.tokens[0] = 128, s.tokens[1] = 96; /* rows have MAX_ROW pages */
        s.max_slots[0] = 11000 + (uint32_t)check_below(600);
        s.equal = true;
        s.schedule = PLEAT__DEVICE_EQUAL_SHARES;
        try_shape(&s);
    }
}

/* As many lanes as blocks and more: equal ones, of which every block takes some, and short ones, several a share, beside
 * one that goes across blocks. */
static void test_many_lanes(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < check_cases(3, 1); i++) {
        shape s = some_shape(i == 1 ? 6 : 2, 64);
        s.n_layers = 1;
        s.n_kv_heads = 8;
        s.n_group = 2;
        s.n_seqs = i == 1 ? 66 : 33;
        s.max_slots[0] = i == 0 ? 150 : 40;
        s.equal = i < 2;
        s.long_slots = i == 2 ? 3000 : 0;
        s.schedule = PLEAT__DEVICE_EQUAL_SHARES;
        try_shape(&s);
    }
}

/* Shapes without a kernel are refused before a GPU is asked for anything. */
static void test_refused(void) {
    const pleat_format k8v8 = {8, 8}, k4v4 = {4, 4}, h2v2 = {2, 2, 1};
    pleat__device_view good = {.n_layers = 1, .n_kv_heads = 2, .n_group = 4}, bad;
    const uint32_t counts[2] = {0, 0};
    pleat__device_attn_plan plan;
    CHECK_STATUS(pleat__page_layout_init(&good.layouts[0], k8v8, 64, 64, false), PLEAT_OK);
    CHECK_STATUS(pleat__page_layout_init(&good.layouts[1], k4v4, 64, 64, false), PLEAT_OK);
    good.n_slots[0] = good.n_slots[1] = counts;
    bad = good;
    bad.n_group = 5;
    CHECK_STATUS(pleat__page_layout_init(&bad.layouts[0], h2v2, 64, 64, false), PLEAT_OK);
    bad.layouts[1] = bad.layouts[0];
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &bad, 4, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
    bad = good;
    bad.n_group = 9;
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &bad, 4, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
    bad = good;
    bad.layouts[0] = good.layouts[1]; /* fewer bits high than low */
    bad.layouts[1] = good.layouts[0];
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &bad, 4, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
    bad = good;
    CHECK_STATUS(pleat__page_layout_init(&bad.layouts[0], k8v8, 80, 64, false), PLEAT_OK);
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &bad, 4, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &good, 0, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_attn_plan_init(&plan, &good, 1u << 20, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_E_ARG);
}

/* A batch of none is nothing to do; one beyond the plan, or a layer that is not there, is refused. */
static void test_bounds(void) {
    CHECK_DEVICE();
    pleat__device_view view = {.n_layers = 1, .n_kv_heads = 2, .n_group = 4};
    const pleat_format k8v8 = {8, 8};
    const pleat__device_stream none = {NULL};
    pleat__device_attn_plan plan;
    for (uint32_t side = 0; side < 2; side++)
        CHECK_STATUS(pleat__page_layout_init(&view.layouts[side], k8v8, 64, 64, false), PLEAT_OK);
    if (!CHECK_STATUS(pleat__device_attn_plan_init(&plan, &view, 4, PLEAT__DEVICE_EQUAL_SHARES, NULL), PLEAT_OK))
        return;
    pleat__device_attn_args args = {.view = view, .scale = 1};
    CHECK_STATUS(pleat__device_attn_schedule(&plan, &view, NULL, none, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_attn_decode(&plan, &args, NULL, none, NULL), PLEAT_OK);
    args.layer = 1;
    CHECK_STATUS(pleat__device_attn_decode(&plan, &args, NULL, none, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_attn_received(&args, none, NULL), PLEAT_E_ARG);
    view.n_seqs = 5;
    CHECK_STATUS(pleat__device_attn_schedule(&plan, &view, NULL, none, NULL), PLEAT_E_ARG);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"formats", test_formats},       {"pieces", test_pieces},
                                       {"fills", test_fills},           {"long lanes", test_long_lanes},
                                       {"many lanes", test_many_lanes}, {"two lanes", test_two_lanes},
                                       {"bounds", test_bounds},         {"refused", test_refused}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
