/* SPDX-License-Identifier: MIT
 *
 * cost.c: prices of steps and swaps by least squares.  See cost.h.
 *
 * A step that took t, where w was expected, is the equation (fixed + p * prompt + g * token + kv * byte) / w = t / w.  So
 * among equal steps, some of which take longer as every eighth does of a policy's, prices give their mean.  Relative
 * deviations are made small, and w is within a factor of 2 of t.  So a step during which the machine did something else counts
 * as one step and not as a thousand, and it does not matter what was guessed at first.
 *
 * Steps often do not tell two prices apart (the same number of generations for minutes on end).  So what is minimised
 * has a small term more, RIDGE times the squared change of each price, in units of its own column: what the steps do
 * not tell stays as it was.
 */
#include "sched/cost.h"

#include <math.h>

#define KEEP (63.0 / 64) /* part of what was known that stays with each observation */
#define RIDGE 1e-3
#define WITHIN 2.0       /* factor that what was expected may be off by */
#define FORGOTTEN 1e-200 /* the square of a column that no step has told of for tens of thousands of steps */

/* What sums[] holds: sums of products of an equation's coefficients.  GEN: steps of generation alone, whose
 * coefficients are those of fixed, token and byte; PROMPT: steps with a prompt, those of `prompt` with all. */
enum {
    GEN_MATRIX = 0, /* [6] the upper half, by rows */
    GEN_TIME = 6,   /* [3] each with the equation's right side */
    PROMPT_SQUARE = 9,
    PROMPT_OTHER = 10, /* [3] */
    PROMPT_TIME = 13,
    SWAP_BYTES = 14,
    SWAP_TIME = 15,
};
enum { N_PRICES = 3 }; /* prices that generation teaches */

/* ---- three prices ---------------------------------------------------------------------------------- */

typedef struct equations {
    double matrix[N_PRICES][N_PRICES]; /* diagonal 1, before RIDGE */
    double right[N_PRICES];
    double unit[N_PRICES]; /* of a price's column; 0 if no step told anything about it */
} equations;

static equations scaled_equations(const double *sums) {
    equations e;
    for (int i = 0, at = 0; i < N_PRICES; i++)
        for (int j = i; j < N_PRICES; j++, at++) e.matrix[i][j] = e.matrix[j][i] = sums[GEN_MATRIX + at];
    for (int i = 0; i < N_PRICES; i++) e.unit[i] = e.matrix[i][i] > FORGOTTEN ? sqrt(e.matrix[i][i]) : 0;
    for (int i = 0; i < N_PRICES; i++) {
        e.right[i] = e.unit[i] > 0 ? sums[GEN_TIME + i] / e.unit[i] : 0;
        for (int j = 0; j < N_PRICES; j++)
            e.matrix[i][j] = e.unit[i] > 0 && e.unit[j] > 0 ? e.matrix[i][j] / e.unit[i] / e.unit[j] : 0;
    }
    return e;
}

/* Solve for the prices that are free, all others being 0, by elimination: matrix + RIDGE is positive definite. */
static void solve_for(const equations *e, const double *old, const bool *is_free, double *x) {
    double m[N_PRICES][N_PRICES + 1];
    for (int i = 0; i < N_PRICES; i++) {
        for (int j = 0; j < N_PRICES; j++) m[i][j] = is_free[i] && is_free[j] ? e->matrix[i][j] : 0;
        m[i][i] = is_free[i] ? 1 + RIDGE : 1;
        m[i][N_PRICES] = is_free[i] ? e->right[i] + RIDGE * old[i] : 0;
    }
    for (int k = 0; k < N_PRICES; k++)
        for (int i = k + 1; i < N_PRICES; i++) {
            const double factor = m[i][k] / m[k][k];
            for (int j = k; j <= N_PRICES; j++) m[i][j] -= factor * m[k][j];
        }
    for (int i = N_PRICES - 1; i >= 0; i--) {
        x[i] = m[i][N_PRICES];
        for (int j = i + 1; j < N_PRICES; j++) x[i] -= m[i][j] * x[j];
        x[i] /= m[i][i];
    }
}

/* Prices that come out negative are 0, the most negative first. */
static void solve_prices(const equations *e, double *prices) {
    double old[N_PRICES], x[N_PRICES];
    bool is_free[N_PRICES];
    for (int i = 0; i < N_PRICES; i++) {
        old[i] = prices[i] * e->unit[i];
        is_free[i] = e->unit[i] > 0;
    }
    for (;;) {
        int worst = 0;
        solve_for(e, old, is_free, x);
        for (int i = 1; i < N_PRICES; i++)
            if (x[i] < x[worst]) worst = i;
        if (!(x[worst] < 0)) break;
        is_free[worst] = false;
    }
    for (int i = 0; i < N_PRICES; i++)
        if (e->unit[i] > 0) prices[i] = x[i] / e->unit[i];
}

/* ---- observations ---------------------------------------------------------------------------------- */

static void forget(double *sums, int n) {
    for (int i = 0; i < n; i++) sums[i] *= KEEP;
}

/* took: t / w. */
static void learn_generation(pleat__serving_cost *cost, const double *row, double took) {
    double *sums = cost->sums;
    forget(sums + GEN_MATRIX, PROMPT_SQUARE - GEN_MATRIX);
    for (int i = 0, at = 0; i < N_PRICES; i++) {
        sums[GEN_TIME + i] += row[i] * took;
        for (int j = i; j < N_PRICES; j++, at++) sums[GEN_MATRIX + at] += row[i] * row[j];
    }
    const equations e = scaled_equations(sums);
    double prices[N_PRICES] = {cost->fixed_ns, cost->token_ns, cost->byte_ns};
    solve_prices(&e, prices);
    cost->fixed_ns = prices[0];
    cost->token_ns = prices[1];
    cost->byte_ns = prices[2];
}

static void learn_prompt(pleat__serving_cost *cost, const double *row, double prompt, double took) {
    double *sums = cost->sums;
    forget(sums + PROMPT_SQUARE, SWAP_BYTES - PROMPT_SQUARE);
    sums[PROMPT_SQUARE] += prompt * prompt;
    for (int i = 0; i < N_PRICES; i++) sums[PROMPT_OTHER + i] += prompt * row[i];
    sums[PROMPT_TIME] += prompt * took;
}

/* What is left of the steps with prompts when the other prices are taken off; these may have changed, too. */
static void price_prompt(pleat__serving_cost *cost) {
    const double *s = cost->sums, *other = s + PROMPT_OTHER;
    if (s[PROMPT_SQUARE] == 0) return;
    const double others = cost->fixed_ns * other[0] + cost->token_ns * other[1] + cost->byte_ns * other[2];
    cost->prompt_ns = fmax((s[PROMPT_TIME] - others) / s[PROMPT_SQUARE], 0);
}

void pleat__cost_observe_step(pleat__serving_cost *cost, uint32_t n_prompt, uint32_t n_generated, uint64_t kv_bytes,
                              uint64_t ns) {
    if (ns == 0 || (n_prompt == 0 && n_generated == 0)) return;
    const double t = (double)ns, expected = pleat__cost_step_ns(cost, n_prompt, n_generated, kv_bytes);
    const double w = fmin(fmax(expected, t / WITHIN), t * WITHIN);
    const double row[N_PRICES] = {1 / w, n_generated / w, (double)kv_bytes / w};
    if (n_prompt > 0)
        learn_prompt(cost, row, n_prompt / w, t / w);
    else
        learn_generation(cost, row, t / w);
    price_prompt(cost);
}

void pleat__cost_observe_swap(pleat__serving_cost *cost, uint64_t n_bytes, uint64_t ns) {
    if (ns == 0 || n_bytes == 0) return;
    forget(cost->sums + SWAP_BYTES, 2);
    cost->sums[SWAP_BYTES] += (double)n_bytes;
    cost->sums[SWAP_TIME] += (double)ns;
    cost->swap_ns = cost->sums[SWAP_TIME] / cost->sums[SWAP_BYTES];
}

/* ---- costs ----------------------------------------------------------------------------------------- */

double pleat__cost_step_ns(const pleat__serving_cost *cost, uint32_t n_prompt, uint32_t n_generated,
                           uint64_t kv_bytes) {
    return cost->fixed_ns + n_prompt * cost->prompt_ns + n_generated * cost->token_ns +
           (double)kv_bytes * cost->byte_ns;
}

double pleat__cost_swap_ns(const pleat__serving_cost *cost, uint64_t n_bytes) {
    return 2 * (double)n_bytes * cost->swap_ns;
}

double pleat__cost_recompute_ns(const pleat__serving_cost *cost, uint32_t n_prompt, uint32_t n_generated,
                                uint32_t n_neighbours, uint64_t kv_bytes) {
    const double fixed = cost->fixed_ns / (1.0 + n_neighbours);
    const double token = fixed + cost->token_ns + (double)kv_bytes * cost->byte_ns;
    return (n_prompt ? fixed : 0) + n_prompt * cost->prompt_ns + n_generated * token;
}
