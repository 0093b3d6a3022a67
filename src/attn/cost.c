/* SPDX-License-Identifier: MIT
 *
 * cost.c: see cost.h and include/pleat/cost.h.
 *
 * Rates are found by least squares of relative deviations under x >= 0: a rate that comes out negative is set to 0 and
 * the others are solved again, until none is.
 *
 * Why time is the longer of compute and memory and a part of the shorter.  Measured on two threads of a Xeon with AMX
 * (2026-11, when kernels prefetched two groups ahead): 90 shapes of five formats from memory, d 64 to 256, 1 to 8
 * heads, 512 and 8192 tokens.  The longer alone came within 0.34 to 1.02 of the measured time, the sum of both within
 * 0.65 to 1.29: little is hidden.  With `starts`, and all rates fitted to k8v8 alone (exposed 0.95), all 90 came within
 * 0.72 to 1.22.
 */
#include "attn/cost.h"

#include <math.h>
#include <string.h>

#include "attn/decode.h"
#include "pleat/cost.h"

/* ---- counts ------------------------------------------------------------------------------------ */

/* From the fastest; the last needs nothing.  Scalar code has an instruction for each product; Arm's counts are
 * estimates that no Arm machine has been asked about. */
static const pleat__attn_counts integer_counts[] = {
    {PLEAT_CPU_VNNI, 2, 0, 0, 5, 37, 0, 300},
    {PLEAT_CPU_AVX_VNNI, 4, 0, 0, 8, 66, 0, 300},
    {PLEAT_CPU_AVX2, 8, 0, 0, 8, 66, 0, 300}, /* a multiply and an addition for each pair of 16-bit products */
    {PLEAT_CPU_DOTPROD, 8, 0, 0, 16, 130, 0, 300},
    {PLEAT_CPU_NEON, 18, 0, 0, 16, 130, 0, 300},
    {0, 64, 0, 0, 32, 640, 0, 0},
};
static const pleat__attn_counts float_counts[] = {
    {PLEAT_CPU_AVX512, 0, 1, 1, 3, 0, 22, 300},
    {PLEAT_CPU_AVX2, 0, 2, 2, 6, 0, 40, 300},
    {PLEAT_CPU_NEON, 0, 4, 4, 12, 0, 80, 300},
    {0, 0, 16, 16, 32, 0, 400, 0},
};

const pleat__attn_counts *pleat__attn_counts_of(uint32_t cpu_flags, pleat_format format) {
    const pleat__attn_counts *c = pleat__format_is_quantised(format) ? integer_counts : float_counts;
    while ((cpu_flags & c->flags) != c->flags) c++;
    return c;
}

uint32_t pleat__attn_head_blocks(uint32_t n_group) {
    uint32_t n = 0;
    for (uint32_t head = 0; head < n_group; n++) head += pleat__decode_block_heads(n_group - head);
    return n;
}

/* ---- work -------------------------------------------------------------------------------------- */

enum { MAX_TOKENS = 1 << 24 }; /* tokens that a cache takes in a lane */

pleat_status pleat_cost_work_of(const pleat_cost_shape *s, pleat_cost_work *out) {
    pleat__page_layout tile;
    if (!s || !out || !s->n_group || s->n_group > PLEAT__MAX_GROUP || !s->n_lanes || !s->n_threads) return PLEAT_E_ARG;
    if (!s->n_tokens || s->n_tokens > MAX_TOKENS) return PLEAT_E_ARG;
    if (pleat__page_layout_init(&tile, s->format, s->head_dim, PLEAT__TILE, false) != PLEAT_OK) return PLEAT_E_ARG;
    const pleat__attn_counts *c = pleat__attn_counts_of(s->cpu_flags, s->format);
    const double d = s->head_dim, heads = s->n_group, blocks = pleat__attn_head_blocks(s->n_group);
    const double group = pleat__decode_group_tiles(&tile), tiles = pleat__div_up_u32(s->n_tokens, PLEAT__TILE);
    const double keys =
        d / 4 * c->dots * heads + d * (c->fmas * heads + (s->format.k_bits == 16) * c->converts * blocks);
    const double values =
        d / 4 * c->dots * heads + d * (c->fmas * heads + (s->format.v_bits == 16) * c->converts * blocks);
    const double fold = d / 16 * c->fold * heads / group;
    const double softmax = (c->weigh_int + c->weigh_float) * heads + c->reduce * blocks / group;
    const double tile_bytes = (double)PLEAT__TILE * (double)pleat_format_token_bytes(s->format, s->head_dim);

    /* the busiest thread's part of units that are all alike */
    const double splits = pleat__attn_ranges((uint64_t)tiles * tile.used_bytes, s->n_tokens),
                 units = splits * s->n_lanes;
    const double mine = ceil(units / s->n_threads), my_tiles = tiles * s->n_lanes * mine / units;
    const double ahead = pleat__decode_ahead_slots(&tile) / (PLEAT__TILE * group),
                 groups = ceil(tiles / splits / group);
    *out = (pleat_cost_work){
        .bytes = my_tiles * tile_bytes, .starts = mine * (ahead < groups ? ahead : groups), .n_threads = s->n_threads};
    out->n[PLEAT_COST_CALL] = 1;
    out->n[PLEAT_COST_UNIT] = mine;
    out->n[PLEAT_COST_QUERY] = mine * heads * d;
    out->n[PLEAT_COST_PRODUCT] = my_tiles * (keys + values + fold);
    out->n[PLEAT_COST_SOFTMAX] = my_tiles * softmax;
    out->n[PLEAT_COST_LINE] = my_tiles * tile_bytes / 64;
    return PLEAT_OK;
}

/* ---- time -------------------------------------------------------------------------------------- */

static double compute_ns(const pleat_cost_work *w, const pleat_cost_rates *r) {
    double ns = 0;
    for (uint32_t i = 0; i < PLEAT_COST_KINDS; i++) ns += w->n[i] * r->ns[i];
    return ns;
}

static double memory_ns(const pleat_cost_work *w, const pleat_cost_rates *r) {
    return w->bytes * w->n_threads / r->gb_per_s;
}

double pleat_cost_ns(const pleat_cost_work *work, const pleat_cost_rates *rates, int from_memory) {
    const double compute = compute_ns(work, rates);
    if (!from_memory) return compute;
    const double memory = memory_ns(work, rates);
    return fmax(compute, memory) + rates->exposed * fmin(compute, memory) + work->starts * rates->start_ns;
}

/* ---- rates ------------------------------------------------------------------------------------- */

enum { MAX_UNKNOWNS = PLEAT_COST_KINDS };

/* Sums of the normal equations: a x = b, upper left n x n. */
typedef struct normal {
    double a[MAX_UNKNOWNS][MAX_UNKNOWNS], b[MAX_UNKNOWNS];
    uint32_t n;
} normal;

/* One more equation: row . x = y. */
static void add_equation(normal *s, const double *row, double y) {
    for (uint32_t i = 0; i < s->n; i++) {
        for (uint32_t j = 0; j < s->n; j++) s->a[i][j] += row[i] * row[j];
        s->b[i] += row[i] * y;
    }
}

/* Solve for the unknowns in `used`, a bit each; the others are 0.  A pivot that vanishes against its diagonal element
 * belongs to an unknown that the others express: it becomes 0 too. */
static void solve(const normal *s, uint32_t used, double *x) {
    normal m = *s;
    bool is_pivot[MAX_UNKNOWNS] = {false};
    for (uint32_t k = 0; k < m.n; k++) {
        is_pivot[k] = (used >> k & 1) && m.a[k][k] > 1e-9 * s->a[k][k];
        for (uint32_t i = 0; i < m.n && is_pivot[k]; i++) {
            if (i == k || !(used >> i & 1)) continue;
            const double f = m.a[i][k] / m.a[k][k];
            for (uint32_t j = 0; j < m.n; j++) m.a[i][j] -= f * m.a[k][j];
            m.b[i] -= f * m.b[k];
        }
    }
    for (uint32_t k = 0; k < m.n; k++) x[k] = is_pivot[k] ? m.b[k] / m.a[k][k] : 0;
}

static void solve_positive(const normal *s, double *x) {
    uint32_t used = (1u << s->n) - 1;
    for (;;) {
        uint32_t worst = 0;
        solve(s, used, x);
        for (uint32_t k = 1; k < s->n; k++) /* how much of the explained sum the unknown stands for */
            if (x[k] * s->a[k][k] < x[worst] * s->a[worst][worst]) worst = k;
        if (!(x[worst] < 0)) return;
        used &= ~(1u << worst);
    }
}

static bool are_times(const double *ns, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!(ns[i] > 0 && ns[i] < INFINITY)) return false;
    return n > 0;
}

pleat_status pleat_cost_fit_core(const pleat_cost_work *work, const double *measured_ns, uint32_t n,
                                 pleat_cost_rates *rates) {
    if (!work || !measured_ns || !rates || !are_times(measured_ns, n)) return PLEAT_E_ARG;
    normal s = {.n = PLEAT_COST_KINDS};
    for (uint32_t i = 0; i < n; i++) {
        double row[PLEAT_COST_KINDS];
        for (uint32_t k = 0; k < PLEAT_COST_KINDS; k++) row[k] = work[i].n[k] / measured_ns[i];
        add_equation(&s, row, 1);
    }
    solve_positive(&s, rates->ns);
    return PLEAT_OK;
}

pleat_status pleat_cost_fit_memory(const pleat_cost_work *work, const double *measured_ns, uint32_t n,
                                   pleat_cost_rates *rates) {
    if (!work || !measured_ns || !rates || !(rates->gb_per_s > 0) || !are_times(measured_ns, n)) return PLEAT_E_ARG;
    normal s = {.n = 2};
    for (uint32_t i = 0; i < n; i++) {
        const double compute = compute_ns(&work[i], rates), memory = memory_ns(&work[i], rates);
        const double row[2] = {fmin(compute, memory) / measured_ns[i], work[i].starts / measured_ns[i]};
        add_equation(&s, row, 1 - fmax(compute, memory) / measured_ns[i]);
    }
    double x[2];
    solve_positive(&s, x);
    rates->exposed = x[0];
    rates->start_ns = x[1];
    return PLEAT_OK;
}
