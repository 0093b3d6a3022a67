/* SPDX-License-Identifier: MIT
 *
 * prompt_rig.h: cases of prompt attention for the tests, and their oracle in float64.  A case is a lane of two runs of
 * any format and the chunk's own run, in pages of odd sizes in random order.  Each pool ends at an unreadable page.
 */
#ifndef CHECK_PROMPT_RIG_H
#define CHECK_PROMPT_RIG_H

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "attn/mass.h"
#include "attn/prompt.h"
#include "check.h"
#include "quant/variants.h"

#define LOG2_E 1.44269504088896341
#define GAP 5u      /* floats between the rows of padded arrays */
#define LSE_GAP 2u  /* and of lse2 */
#define CANARY 7.5f /* what they hold */

static const pleat_format formats[] = {{32, 32},  {16, 16},  {8, 8},    {8, 4},    {8, 2},   {4, 8},
                                       {4, 4},    {4, 2},    {2, 8},    {2, 4},    {2, 2},   {4, 4, 1},
                                       {4, 2, 1}, {3, 3, 1}, {3, 2, 1}, {2, 3, 1}, {2, 2, 1}};
static const uint32_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 256, 512};

/* ---- lanes -------------------------------------------------------------------------------------- */

typedef struct side {
    pleat__page_layout layout;
    pleat__kv_run run;
    check_buf pool;
    pleat__page_id *ids;
    uint32_t n_pages;
    float *k; /* [n_slots][d] as kernels will read them */
    float *v;
    float *mass;    /* [n_slots] log2 of it */
    uint8_t *alive; /* [n_slots] */
} side;

typedef struct data {
    unsigned kind; /* of check_fill() */
    float k_size, v_size, v_mean;
} data;

static void *get(size_t bytes) {
    void *p = aligned_alloc(PLEAT__ALIGN, (bytes + PLEAT__ALIGN) / PLEAT__ALIGN * PLEAT__ALIGN);
    if (!p) abort();
    return p;
}

static void fill_pages(side *s, const data *x) {
    const uint32_t d = s->layout.head_dim, tokens = s->layout.tokens;
    float *kv = get(2 * (size_t)tokens * d * sizeof *kv);
    for (uint32_t p = 0; p < s->n_pages; p++) {
        const uint32_t n = pleat__min_u32(tokens, s->run.n_slots - p * tokens);
        float *v = kv + tokens * d;
        for (uint32_t i = 0; i < n; i++) {
            check_fill(kv + i * d, d, x->kind, x->k_size);
            check_fill(v + i * d, d, x->kind, x->v_size);
        }
        for (uint32_t i = 0; i < n * d; i++) v[i] += x->v_mean;
        pleat__quant_store_ref(&s->layout, pleat__kv_page(&s->run, p), 0, n, kv, v, d);
    }
    free(kv);
}

/* Give a slot a mass where the layout has them, and note it. */
static void set_mass(side *s, uint32_t slot) {
    uint8_t *page = pleat__kv_page(&s->run, slot / s->layout.tokens);
    const uint16_t half = check_below(3) ? (uint16_t)check_below(PLEAT__MASS_TOP_BITS + 1) : 0;
    if (s->layout.mass_off) pleat__masses(&s->layout, page)[slot % s->layout.tokens] = half;
    s->mass[slot] = s->layout.mass_off ? pleat__f16_to_f32(half) : 0;
}

/* Mark slots as dead with this probability, and note the rest and the dequantised tokens for the oracle. */
static void read_back(side *s, double dead) {
    const uint32_t d = s->layout.head_dim, tokens = s->layout.tokens;
    float *tile = get(PLEAT__TILE * d * sizeof *tile);
    for (uint32_t slot = 0; slot < s->run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&s->run, slot / tokens);
        const uint32_t t = slot % tokens / PLEAT__TILE, j = slot % PLEAT__TILE;
        pleat__quant_load_k_ref(&s->layout, page, t, tile);
        for (uint32_t c = 0; c < d; c++) s->k[slot * d + c] = tile[c * PLEAT__TILE + j];
        pleat__quant_load_v_ref(&s->layout, page, t, tile);
        memcpy(s->v + slot * d, tile + j * d, d * sizeof *tile);
        set_mass(s, slot);
        s->alive[slot] = !s->layout.tracked || check_uniform(0, 1) >= dead;
        if (s->layout.tracked) pleat__positions(&s->layout, page)[slot % tokens] = s->alive[slot] ? (int32_t)slot : -1;
    }
    free(tile);
}

static void side_init(side *s, pleat_format format, uint32_t d, uint32_t tokens, bool tracked, int32_t step,
                      uint32_t n_slots, double dead, const data *x) {
    memset(s, 0, sizeof *s);
    if (tracked && check_below(2)) /* half of the tracked ones have masses */
        CHECK_STATUS(pleat__page_layout_init_massed(&s->layout, format, d, tokens, 1), PLEAT_OK);
    else
        CHECK_STATUS(pleat__page_layout_init(&s->layout, format, d, tokens, tracked), PLEAT_OK);
    s->n_pages = pleat__div_up_u32(n_slots, tokens);
    const uint64_t page_bytes = (s->layout.used_bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
    s->pool = check_buf_new(s->n_pages * page_bytes, PLEAT__ALIGN);
    s->ids = get(s->n_pages * sizeof *s->ids);
    for (uint32_t p = 0; p < s->n_pages; p++) { /* shuffled as it grows */
        const uint32_t other = (uint32_t)check_below(p + 1);
        s->ids[p] = s->ids[other];
        s->ids[other].v = p;
    }
    const pleat__page_id *first = step > 0 || s->n_pages == 0 ? s->ids : s->ids + s->n_pages - 1;
    s->run = (pleat__kv_run){.layout = &s->layout,
                             .base = s->pool.p,
                             .page_bytes = page_bytes,
                             .ids = first,
                             .step = step,
                             .n_slots = n_slots};
    s->k = get((size_t)n_slots * d * sizeof(float));
    s->v = get((size_t)n_slots * d * sizeof(float));
    s->mass = get((size_t)n_slots * sizeof(float));
    s->alive = get(n_slots);
    fill_pages(s, x);
    read_back(s, dead);
}

static void side_release(side *s) {
    CHECK(check_buf_is_intact(&s->pool));
    check_buf_free(&s->pool);
    free(s->ids);
    free(s->k);
    free(s->v);
    free(s->mass);
    free(s->alive);
}

/* ---- cases and their oracle ------------------------------------------------------------------------ */

enum { HIGH, LOW, SELF, N_SIDES };

/* Results of a call, between guards; also the oracle's. */
typedef struct results {
    check_buf out; /* [n_queries][stride] */
    check_buf lse2;
    check_buf received[N_SIDES];
} results;

typedef struct attn_case {
    uint32_t d, n_group, n_queries, self_seen;
    float scale, cap2;
    bool has_past;
    uint32_t window, oldest;
    size_t stride;
    float *q;
    side sides[N_SIDES];
    pleat__kv_view view;
    /* oracle */
    double *out;    /* [rows][d] */
    double *size;   /* [rows][d] sum of p*|v| */
    double *lse2;   /* [rows] */
    double *wobble; /* [rows] bound on a logit2's error: roundings on the way of a product into the sum */
    double *received[N_SIDES];
    double *summed[N_SIDES]; /* the same where the weights of all heads are added */
} attn_case;

static uint32_t n_rows(const attn_case *c) { return c->n_queries * c->n_group; }

static bool sees(const attn_case *c, int which, uint32_t query, uint32_t slot) {
    const side *s = &c->sides[which];
    if (!s->alive[slot] || (which == SELF ? slot > c->self_seen + query : !c->has_past)) return false;
    if (c->window == 0) return true;
    /* positions from the chunk's first token on */
    const uint32_t n = s->run.n_slots;
    const int64_t age = which == SELF ? slot : (int64_t)((slot + n - c->oldest) % n) - n;
    return age > (int64_t)c->self_seen + query - c->window;
}

static double logit2(const attn_case *c, const side *s, const float *q, uint32_t slot, double *wobble) {
    double dot = 0;
    const double n_roundings = 4 + PLEAT__PROMPT_CHAIN + c->d / PLEAT__PROMPT_CHAIN;
    *wobble = 0;
    for (uint32_t i = 0; i < c->d; i++) {
        const double x = (double)q[i] * s->k[slot * c->d + i];
        dot += x;
        *wobble += fabs(x);
    }
    *wobble *= fabs(c->scale) * LOG2_E * n_roundings * FLT_EPSILON / 2;
    dot *= c->scale * LOG2_E;
    if (c->cap2 > 0) {
        dot = c->cap2 * tanh(dot / c->cap2); /* which makes errors no larger, and adds its own */
        *wobble += 3e-7 * fabs(dot);
    }
    *wobble += s->mass[slot] > 0 ? (fabs(dot) + s->mass[slot]) * FLT_EPSILON / 2 : 0;
    return dot + s->mass[slot];
}

/* One row; weights [side][slot] are left behind. */
static void oracle_row(attn_case *c, uint32_t query, uint32_t head, double **weights) {
    const uint32_t row = query * c->n_group + head;
    const float *q = c->q + query * c->stride + head * c->d;
    double most = -INFINITY, sum = 0, wobble;
    for (int w = 0; w < N_SIDES; w++)
        for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) {
            weights[w][j] = -INFINITY;
            if (!sees(c, w, query, j)) continue;
            weights[w][j] = logit2(c, &c->sides[w], q, j, &wobble);
            c->wobble[row] = fmax(c->wobble[row], wobble);
            most = fmax(most, weights[w][j]);
        }
    for (int w = 0; w < N_SIDES; w++)
        for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) sum += weights[w][j] = exp2(weights[w][j] - most);
    c->lse2[row] = most + log2(sum);
    for (int w = 0; w < N_SIDES; w++)
        for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) {
            weights[w][j] /= sum;
            for (uint32_t i = 0; i < c->d; i++) {
                const double x = weights[w][j] * c->sides[w].v[j * c->d + i];
                c->out[row * c->d + i] += x;
                c->size[row * c->d + i] += fabs(x);
            }
        }
}

static void oracle(attn_case *c) {
    double *weights[N_SIDES], *most[N_SIDES];
    c->out = calloc((size_t)n_rows(c) * c->d, sizeof(double));
    c->size = calloc((size_t)n_rows(c) * c->d, sizeof(double));
    c->lse2 = calloc(n_rows(c), sizeof(double));
    c->wobble = calloc(n_rows(c), sizeof(double));
    for (int w = 0; w < N_SIDES; w++) {
        const size_t n = c->sides[w].run.n_slots + 1;
        weights[w] = calloc(n, sizeof(double));
        most[w] = calloc(n, sizeof(double));
        c->received[w] = calloc(n, sizeof(double));
        c->summed[w] = calloc(n, sizeof(double));
    }
    for (uint32_t i = 0; i < c->n_queries; i++) {
        for (uint32_t g = 0; g < c->n_group; g++) {
            oracle_row(c, i, g, weights);
            for (int w = 0; w < N_SIDES; w++)
                for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++) {
                    most[w][j] = g == 0 ? weights[w][j] : fmax(most[w][j], weights[w][j]);
                    if (w != SELF || j != c->self_seen + i) c->summed[w][j] += weights[w][j];
                }
        }
        for (int w = 0; w < N_SIDES; w++)
            for (uint32_t j = 0; j < c->sides[w].run.n_slots; j++)
                if (w != SELF || j != c->self_seen + i) c->received[w][j] += most[w][j];
    }
    for (int w = 0; w < N_SIDES; w++) {
        free(weights[w]);
        free(most[w]);
    }
}

static void case_release(attn_case *c) {
    for (int w = 0; w < N_SIDES; w++) {
        side_release(&c->sides[w]);
        free(c->received[w]);
        free(c->summed[w]);
    }
    free(c->q);
    free(c->out);
    free(c->size);
    free(c->lse2);
    free(c->wobble);
}

/* Queries, the view and the oracle, once d, n_group, n_queries, self_seen, scale, has_past and sides are set. */
static void case_finish(attn_case *c, unsigned kind, float q_size) {
    c->stride = c->n_group * c->d + GAP;
    c->q = get(c->n_queries * c->stride * sizeof *c->q);
    for (uint32_t i = 0; i < c->n_queries; i++) check_fill(c->q + i * c->stride, c->stride, kind, q_size);
    c->view = (pleat__kv_view){.high = c->sides[HIGH].run, .low = c->sides[LOW].run};
    oracle(c);
}

#endif
