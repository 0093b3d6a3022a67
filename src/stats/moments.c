/* SPDX-License-Identifier: MIT
 *
 * moments.c: sums over a lane's tokens, and the statistics that they make.
 *
 * The mean m of k0 = R(-t) k over tokens is known at their end alone.  But R(t) m = A u, where u has the cosine and the
 * sine of each pair's angle, or 1 where nothing turns, and A has m.  So the residual r = k - A u has
 *
 *     E[r r^T] = E[k k^T] - A E[u k^T] - E[k u^T] A^T + A E[u u^T] A^T
 *
 * and one pass over the tokens is enough.
 *
 * Windows of text begin at position 0, and a basis has to serve wherever a key stands: so products of queries and of
 * residuals are turned to where further windows would begin, and averaged.
 */
#include <math.h>
#include <string.h>

#include "stats/basis.h"
#include "stats/stats.h"

void pleat__moments_carve(uint32_t d, pleat__moments *m, pleat__arena *arena) {
    const uint64_t n = (uint64_t)d * d;
    m->qq = pleat__arena_take(arena, n, sizeof *m->qq);
    m->kk = pleat__arena_take(arena, n, sizeof *m->kk);
    m->ku = pleat__arena_take(arena, n, sizeof *m->ku);
    m->uu = pleat__arena_take(arena, n, sizeof *m->uu);
    m->vv = pleat__arena_take(arena, n, sizeof *m->vv);
}

/* Vectors that are summed up in one go: a matrix of sums is read and written once for all of them. */
typedef double vectors[PLEAT__MOMENTS_BATCH][PLEAT__MAX_HEAD_DIM];

/* sums[i][j] += sum over the vectors t of x[t][i] y[t][j], for j < i + 1 alone where x is y. */
static void add_products(double *sums, uint32_t d, const vectors x, const vectors y) {
    _Static_assert(PLEAT__MOMENTS_BATCH == 8, "vectors that are written out below");
    for (uint32_t i = 0; i < d; i++) {
        double *row = sums + (size_t)i * d;
        const uint32_t n = x == y ? i + 1 : d;
        const double a[] = {x[0][i], x[1][i], x[2][i], x[3][i], x[4][i], x[5][i], x[6][i], x[7][i]};
        for (uint32_t j = 0; j < n; j++)
            row[j] += ((a[0] * y[0][j] + a[1] * y[1][j]) + (a[2] * y[2][j] + a[3] * y[3][j])) +
                      ((a[4] * y[4][j] + a[5] * y[5][j]) + (a[6] * y[6][j] + a[7] * y[7][j]));
    }
}

static double to_doubles(const float *x, uint32_t d, double *out) {
    double square = 0;
    for (uint32_t i = 0; i < d; i++) {
        out[i] = (double)x[i];
        square += out[i] * out[i];
    }
    return square;
}

static void clear_from(vectors x, uint32_t t, uint32_t d) {
    for (; t < PLEAT__MOMENTS_BATCH; t++) memset(x[t], 0, d * sizeof **x);
}

void pleat__moments_add(pleat__moments *m, uint32_t d, const pleat__moments_tokens *of) {
    vectors x, u;
    m->n += of->n;
    m->n_q += (double)of->n * of->n_heads;
    for (uint32_t h = 0; h < of->n_heads; h++) {
        for (uint32_t t = 0; t < of->n; t++) (void)to_doubles(of->q + t * of->q_stride + (size_t)h * d, d, x[t]);
        clear_from(x, of->n, d);
        add_products(m->qq, d, x, x);
    }
    for (uint32_t t = 0; t < of->n; t++) {
        (void)to_doubles(of->k + t * of->kv_stride, d, x[t]);
        memcpy(u[t], of->turn + (size_t)t * d, d * sizeof *u[t]);
    }
    clear_from(x, of->n, d);
    clear_from(u, of->n, d);
    add_products(m->kk, d, x, x);
    add_products(m->ku, d, x, u);
    add_products(m->uu, d, u, u);
    for (uint32_t t = 0; t < of->n; t++) {
        const double square = to_doubles(of->v + t * of->kv_stride, d, x[t]), scale = square > 0 ? sqrt(d / square) : 0;
        for (uint32_t i = 0; i < d; i++) x[t][i] *= scale;
    }
    clear_from(x, of->n, d);
    add_products(m->vv, d, x, x);
}

/* What was summed up below the diagonal stands above it, too. */
static void mirror(double *sums, uint32_t d) {
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = i + 1; j < d; j++) sums[(size_t)i * d + j] = sums[(size_t)j * d + i];
}

/* Pairs of dimensions: the one that is met with i, and whether i is the first of both; else i itself. */
static uint32_t other_of(const pleat__rd_turns *t, uint32_t i, bool *is_first) {
    *is_first = true;
    for (uint32_t pair = 0; pair < t->n_pairs; pair++) {
        const uint32_t x = t->first * pair, y = x + t->other;
        if (i == y) *is_first = false;
        if (i == x || i == y) return i == x ? y : x;
    }
    return i;
}

/* The mean key before RoPE: of x and y of a pair (k_x cos + k_y sin) and (k_y cos - k_x sin). */
static void mean_of(const pleat__moments *m, const pleat__rd_turns *t, uint32_t d, double magnitude, float *mean) {
    for (uint32_t i = 0; i < d && m->n > 0; i++) {
        bool is_first;
        const uint32_t o = other_of(t, i, &is_first);
        const double *own = m->ku + (size_t)i * d, *others = m->ku + (size_t)o * d;
        const double sum = o == i     ? own[i]
                           : is_first ? (own[i] + others[o]) / magnitude
                                      : (own[o] - others[i]) / magnitude;
        mean[i] = (float)(sum / m->n);
    }
}

/* Row i of A, times what stands at x in steps of `stride`. */
static double turned(const float *mean, double magnitude, uint32_t i, uint32_t o, bool is_first, const double *x,
                     size_t stride) {
    if (o == i) return (double)mean[i] * x[i * stride];
    const double a = (double)mean[is_first ? i : o], b = (double)mean[is_first ? o : i];
    return magnitude * (is_first ? a * x[i * stride] - b * x[o * stride] : a * x[i * stride] + b * x[o * stride]);
}

/* E[r r^T]; scratch: [d][d], for A E[u u^T]. */
static void residuals_of(const pleat__moments *m, const pleat__rd_turns *t, uint32_t d, double magnitude,
                         const float *mean, double *scratch, double *out) {
    for (uint32_t i = 0; i < d; i++) {
        bool is_first;
        const uint32_t o = other_of(t, i, &is_first);
        for (uint32_t j = 0; j < d; j++)
            scratch[(size_t)i * d + j] = turned(mean, magnitude, i, o, is_first, m->uu + j, d);
        for (uint32_t j = 0; j < d; j++)
            out[(size_t)i * d + j] = turned(mean, magnitude, i, o, is_first, m->ku + (size_t)j * d, 1);
    }
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = 0; j <= i; j++) {
            bool is_first;
            const uint32_t o = other_of(t, j, &is_first);
            const double both = turned(mean, magnitude, j, o, is_first, scratch + (size_t)i * d, 1);
            const double cross = out[(size_t)i * d + j] + out[(size_t)j * d + i];
            out[(size_t)i * d + j] = (m->kk[(size_t)i * d + j] - cross + both) / m->n;
        }
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = i + 1; j < d; j++) out[(size_t)i * d + j] = out[(size_t)j * d + i];
}

static float root(double square) { return square > 0 ? (float)sqrt(square) : 0; }

/* Mean squares of queries; positions turn one of a pair into the other. */
static void energies_of(const double *queries, const pleat__rd_turns *t, uint32_t d, float *energy) {
    for (uint32_t i = 0; i < d; i++) {
        bool is_first;
        const uint32_t o = other_of(t, i, &is_first);
        energy[i] = (float)(0.5 * (queries[(size_t)i * d + i] + queries[(size_t)o * d + o]));
    }
}

/* Two numbers, and a turn that shrinks, as complex numbers. */
typedef struct complex_number {
    double re, im;
} complex_number;

static complex_number times(complex_number a, complex_number b) {
    return (complex_number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* The mean of the turns by 0, angle, 2 angle, ... of n windows: however many these are, it takes as long. */
static complex_number mean_turn(double angle, uint32_t n) {
    const double half = remainder(angle, 2 * M_PI) / 2, sine = sin(half);
    const double size = fabs(sine) > 0 ? sin(n * half) / (n * sine) : 1;
    return (complex_number){size * cos((n - 1) * half), size * sin((n - 1) * half)};
}

/* What is turned from both sides: of a pair's two rows and another's two columns one part goes by the difference of their
 * angles a and b, the other by the sum. */
static void turn_block(double *x, double *y, uint32_t other, double a, double b, uint32_t n) {
    const complex_number apart = {(x[0] + y[other]) / 2, (y[0] - x[other]) / 2},
                         together = {(x[0] - y[other]) / 2, (y[0] + x[other]) / 2};
    const complex_number p = times(apart, mean_turn(a - b, n)), q = times(together, mean_turn(a + b, n));
    x[0] = p.re + q.re;
    y[other] = p.re - q.re;
    y[0] = p.im + q.im;
    x[other] = q.im - p.im;
}

static void turn_two(double *x, double *y, complex_number turn) {
    const complex_number z = times((complex_number){*x, *y}, turn);
    *x = z.re;
    *y = z.im;
}

/* m becomes the mean of R(t) m R(t)^T over the positions t = 0, n_tokens, ... where windows begin. */
static void turn_mean(const pleat_rope *rope, const pleat__rd_turns *t, uint32_t d, pleat__windows windows, double *m) {
    for (uint32_t i = 0; rope && i < t->n_pairs; i++) {
        const uint32_t at = t->first * i;
        const double a = rope->frequencies[i] * windows.n_tokens;
        const complex_number turn = mean_turn(a, windows.n);
        double *x = m + (size_t)at * d, *y = x + (size_t)t->other * d;
        for (uint32_t j = 0; j < t->n_pairs; j++)
            turn_block(x + t->first * j, y + t->first * j, t->other, a, rope->frequencies[j] * windows.n_tokens,
                       windows.n);
        for (uint32_t j = 2 * t->n_pairs; j < d; j++) { /* what does not turn */
            turn_two(x + j, y + j, turn);
            turn_two(m + (size_t)j * d + at, m + (size_t)j * d + at + t->other, turn);
        }
    }
}

uint64_t pleat__moments_scratch(uint32_t d) { return 3 * (uint64_t)d * d + pleat__basis_scratch(d); }

void pleat__moments_finish(pleat__moments *m, const pleat__rd_turns *t, const pleat_rope *rope, pleat__windows windows,
                           uint32_t d, double *scratch, const pleat__stats_lane *out) {
    const size_t n = (size_t)d * d;
    const double magnitude = rope ? (double)rope->magnitude : 1;
    double *queries = scratch, *residuals = queries + n, *values = residuals + n, *rest = values + n;
    if (!(m->n > 0)) return;
    mirror(m->qq, d);
    mirror(m->kk, d);
    mirror(m->uu, d);
    mirror(m->vv, d);
    for (size_t i = 0; i < n; i++) {
        queries[i] = m->qq[i] / m->n_q / d;
        values[i] = m->vv[i] / m->n;
    }
    mean_of(m, t, d, magnitude, out->mean);
    residuals_of(m, t, d, magnitude, out->mean, rest, residuals);
    turn_mean(rope, t, d, windows, queries);
    turn_mean(rope, t, d, windows, residuals);
    energies_of(queries, t, d, out->energy);
    for (uint32_t i = 0; i < d; i++) {
        out->spread[i] = root(residuals[(size_t)i * d + i]);
        out->v_rms[i] = root(values[(size_t)i * d + i]);
    }
    pleat__basis_of_keys(queries, residuals, d, rest, out->k_to, out->k_spread);
    pleat__basis_of_values(values, d, rest, out->v_to, out->v_spread);
}
