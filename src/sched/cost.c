/* SPDX-License-Identifier: MIT
 *
 * cost.c: prices of steps and swaps by least squares.  See cost.h.
 *
 * A step that took t, where w was expected, is the equation (fixed + chunk * chunks + .. + byte * bytes) / w = t / w.  So
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
 * coefficients are those of fixed, token and byte; PROMPT: steps with a prompt, those of chunk and prompt. */
enum {
    GEN_MATRIX = 0, /* [6] the upper half, by rows */
    GEN_TIME = 6,   /* [3] each with the equation's right side */
    PROMPT_MATRIX = 9,
    PROMPT_OTHER = 12, /* [2][3] each with those of fixed, token and byte */
    PROMPT_TIME = 18,
    SWAP_BYTES = 20,
    SWAP_TIME = 21,
};
enum { N_GEN = 3, N_PROMPT = 2, N_MOST = N_GEN }; /* prices that generation teaches, and that prompts do */

/* ---- two prices or three --------------------------------------------------------------------------- */

typedef struct equations {
    double matrix[N_MOST][N_MOST]; /* diagonal 1, before RIDGE */
    double right[N_MOST];
    double unit[N_MOST]; /* of a price's column; 0 if there is none, or no step told anything about it */
} equations;

/* matrix: its upper half, by rows. */
static equations scaled_equations(int n, const double *matrix, const double *right) {
    equations e = {0};
    for (int i = 0, at = 0; i < n; i++)
        for (int j = i; j < n; j++, at++) e.matrix[i][j] = e.matrix[j][i] = matrix[at];
    for (int i = 0; i < n; i++) e.unit[i] = e.matrix[i][i] > FORGOTTEN ? sqrt(e.matrix[i][i]) : 0;
    for (int i = 0; i < n; i++) {
        e.right[i] = e.unit[i] > 0 ? right[i] / e.unit[i] : 0;
        for (int j = 0; j < n; j++)
            e.matrix[i][j] = e.unit[i] > 0 && e.unit[j] > 0 ? e.matrix[i][j] / e.unit[i] / e.unit[j] : 0;
    }
    return e;
}

/* Solve for the prices that are free, all others being 0, by elimination: matrix + RIDGE is positive definite. */
static void solve_for(const equations *e, const double *old, const bool *is_free, double *x) {
    double m[N_MOST][N_MOST + 1];
    for (int i = 0; i < N_MOST; i++) {
        for (int j = 0; j < N_MOST; j++) m[i][j] = is_free[i] && is_free[j] ? e->matrix[i][j] : 0;
        m[i][i] = is_free[i] ? 1 + RIDGE : 1;
        m[i][N_MOST] = is_free[i] ? e->right[i] + RIDGE * old[i] : 0;
    }
    for (int k = 0; k < N_MOST; k++)
        for (int i = k + 1; i < N_MOST; i++) {
            const double factor = m[i][k] / m[k][k];
            for (int j = k; j <= N_MOST; j++) m[i][j] -= factor * m[k][j];
        }
    for (int i = N_MOST - 1; i >= 0; i--) {
        x[i] = m[i][N_MOST];
        for (int j = i + 1; j < N_MOST; j++) x[i] -= m[i][j] * x[j];
        x[i] /= m[i][i];
    }
}

/* Prices that come out negative are 0, the most negative first. */
static void solve_prices(const equations *e, double *prices) {
    double old[N_MOST], x[N_MOST];
    bool is_free[N_MOST];
    for (int i = 0; i < N_MOST; i++) {
        old[i] = e->unit[i] > 0 ? prices[i] * e->unit[i] : 0;
        is_free[i] = e->unit[i] > 0;
    }
    for (;;) {
        int worst = 0;
        solve_for(e, old, is_free, x);
        for (int i = 1; i < N_MOST; i++)
            if (x[i] < x[worst]) worst = i;
        if (!(x[worst] < 0)) break;
        is_free[worst] = false;
    }
    for (int i = 0; i < N_MOST; i++)
        if (e->unit[i] > 0) prices[i] = x[i] / e->unit[i];
}

/* ---- observations ---------------------------------------------------------------------------------- */

static void forget(double *sums, int n) {
    for (int i = 0; i < n; i++) sums[i] *= KEEP;
}

/* row: [n]; took: t / w. */
static void add_row(int n, const double *row, double took, double *matrix, double *right) {
    for (int i = 0, at = 0; i < n; i++) {
        right[i] += row[i] * took;
        for (int j = i; j < n; j++, at++) matrix[at] += row[i] * row[j];
    }
}

static void learn_generation(pleat__serving_cost *cost, const double *row, double took) {
    double *sums = cost->sums;
    forget(sums + GEN_MATRIX, PROMPT_MATRIX - GEN_MATRIX);
    add_row(N_GEN, row, took, sums + GEN_MATRIX, sums + GEN_TIME);
    const equations e = scaled_equations(N_GEN, sums + GEN_MATRIX, sums + GEN_TIME);
    double prices[N_GEN] = {cost->fixed_ns, cost->token_ns, cost->byte_ns};
    solve_prices(&e, prices);
    cost->fixed_ns = prices[0];
    cost->token_ns = prices[1];
    cost->byte_ns = prices[2];
}

/* row: what generation's prices are of; prompt: [2] what the others are of. */
static void learn_prompt(pleat__serving_cost *cost, const double *row, const double *prompt, double took) {
    double *sums = cost->sums;
    forget(sums + PROMPT_MATRIX, SWAP_BYTES - PROMPT_MATRIX);
    add_row(N_PROMPT, prompt, took, sums + PROMPT_MATRIX, sums + PROMPT_TIME);
    for (int i = 0; i < N_PROMPT; i++)
        for (int j = 0; j < N_GEN; j++) sums[PROMPT_OTHER + i * N_GEN + j] += prompt[i] * row[j];
}

/* What is left of the steps with prompts when the other prices are taken off; these may have changed, too. */
static void price_prompt(pleat__serving_cost *cost) {
    const double *s = cost->sums, others[N_GEN] = {cost->fixed_ns, cost->token_ns, cost->byte_ns};
    double left[N_PROMPT], prices[N_MOST] = {cost->chunk_ns, cost->prompt_ns};
    for (int i = 0; i < N_PROMPT; i++) {
        left[i] = s[PROMPT_TIME + i];
        for (int j = 0; j < N_GEN; j++) left[i] -= others[j] * s[PROMPT_OTHER + i * N_GEN + j];
    }
    const equations e = scaled_equations(N_PROMPT, s + PROMPT_MATRIX, left);
    solve_prices(&e, prices);
    cost->chunk_ns = prices[0];
    cost->prompt_ns = prices[1];
}

void pleat__cost_observe_step(pleat__serving_cost *cost, const pleat__step_load *load, uint64_t ns) {
    if (ns == 0 || (load->n_prompt == 0 && load->n_generated == 0)) return;
    const double t = (double)ns, expected = pleat__cost_step_ns(cost, load);
    const double w = fmin(fmax(expected, t / WITHIN), t * WITHIN);
    const double row[N_GEN] = {1 / w, load->n_generated / w, (double)load->kv_bytes / w};
    const double prompt[N_PROMPT] = {load->n_chunks / w, load->n_prompt / w};
    if (load->n_prompt > 0)
        learn_prompt(cost, row, prompt, t / w);
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

double pleat__cost_step_ns(const pleat__serving_cost *cost, const pleat__step_load *load) {
    return cost->fixed_ns + load->n_chunks * cost->chunk_ns + load->n_prompt * cost->prompt_ns +
           load->n_generated * cost->token_ns + (double)load->kv_bytes * cost->byte_ns;
}

double pleat__cost_swap_ns(const pleat__serving_cost *cost, uint64_t n_bytes) {
    return 2 * (double)n_bytes * cost->swap_ns;
}

double pleat__cost_recompute_ns(const pleat__serving_cost *cost, uint32_t n_chunks, uint32_t n_prompt,
                                uint32_t n_generated, uint32_t n_neighbours, uint64_t kv_bytes) {
    const double fixed = cost->fixed_ns / (1.0 + n_neighbours);
    const double token = fixed + cost->token_ns + (double)kv_bytes * cost->byte_ns;
    return n_chunks * (fixed + cost->chunk_ns) + n_prompt * cost->prompt_ns + n_generated * token;
}
