/* SPDX-License-Identifier: MIT
 *
 * basis.c: see basis.h.  Eigenvectors by Jacobi's rotations, one pair of rows after the other.
 */
#include "stats/basis.h"

#include <math.h>
#include <string.h>

#include "core/half.h"

#define MOST_SWEEPS 30u
#define RIDGE 0.001   /* of the mean energy: what no query asks for is kept as if some did */
#define LEAST 0x1p-28 /* energy that is added, at least: its root is the least normal f16, so there is always a basis */

/* Rows i and j of a [d][d], or columns, turned by an angle's cosine c and sine s. */
static void turn_rows(double *a, uint32_t d, uint32_t i, uint32_t j, double c, double s) {
    double *x = a + (size_t)i * d, *y = a + (size_t)j * d;
    for (uint32_t k = 0; k < d; k++) {
        const double p = x[k], q = y[k];
        x[k] = c * p - s * q;
        y[k] = s * p + c * q;
    }
}

static void turn_columns(double *a, uint32_t d, uint32_t i, uint32_t j, double c, double s) {
    for (uint32_t k = 0; k < d; k++) {
        double *row = a + (size_t)k * d;
        const double p = row[i], q = row[j];
        row[i] = c * p - s * q;
        row[j] = s * p + c * q;
    }
}

/* One rotation that makes a[i][j] 0; false: it was, but for rounding. */
static bool rotate(double *a, double *vectors, uint32_t d, uint32_t i, uint32_t j) {
    const double off = a[(size_t)i * d + j], p = a[(size_t)i * d + i], q = a[(size_t)j * d + j];
    if (!(fabs(off) > 1e-14 * sqrt(fabs(p * q)) + 1e-300)) return false;
    const double theta = (q - p) / (2 * off);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    turn_rows(a, d, i, j, c, s);
    turn_columns(a, d, i, j, c, s);
    turn_rows(vectors, d, i, j, c, s);
    return true;
}

/* Symmetric a becomes diagonal; rows of vectors are its eigenvectors. */
static void diagonalise(double *a, double *vectors, uint32_t d) {
    memset(vectors, 0, (size_t)d * d * sizeof *vectors);
    for (uint32_t i = 0; i < d; i++) vectors[(size_t)i * d + i] = 1;
    bool is_turning = true;
    for (uint32_t sweep = 0; is_turning && sweep < MOST_SWEEPS; sweep++) {
        is_turning = false;
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t j = i + 1; j < d; j++) is_turning = rotate(a, vectors, d, i, j) || is_turning;
    }
}

/* Lower triangle g with g g^T = a, in place; a is positive definite. */
static void cholesky(double *a, uint32_t d) {
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double sum = a[(size_t)i * d + j];
            for (uint32_t k = 0; k < j; k++) sum -= a[(size_t)i * d + k] * a[(size_t)j * d + k];
            a[(size_t)i * d + j] = i == j ? sqrt(sum > 0 ? sum : 1e-300) : sum / a[(size_t)j * d + j];
            if (i != j) a[(size_t)j * d + i] = 0;
        }
}

/* out = a b, or a^T b. */
static void multiply(const double *a, bool is_turned, const double *b, uint32_t d, double *out) {
    memset(out, 0, (size_t)d * d * sizeof *out);
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t k = 0; k < d; k++) {
            const double x = is_turned ? a[(size_t)k * d + i] : a[(size_t)i * d + k];
            for (uint32_t j = 0; x != 0 && j < d; j++) out[(size_t)i * d + j] += x * b[(size_t)k * d + j];
        }
}

/* Rows in the order of eigenvalues, as what a file holds. */
static void put_rows(const double *a, const double *from, uint32_t d, double *values, float *to, float *spread) {
    for (uint32_t i = 0; i < d; i++) values[i] = a[(size_t)i * d + i];
    for (uint32_t i = 0; i < d; i++) {
        uint32_t most = 0;
        for (uint32_t j = 1; j < d; j++) most = values[j] > values[most] ? j : most;
        spread[i] = values[most] > 0 ? (float)sqrt(values[most]) : 0;
        values[most] = -INFINITY;
        for (uint32_t j = 0; j < d; j++)
            to[(size_t)j * d + i] = pleat__f16_to_f32(pleat__f32_to_f16((float)from[(size_t)most * d + j]));
    }
}

void pleat__basis_of_keys(const double *queries, const double *residuals, uint32_t d, double *scratch, float *to,
                          float *spread) {
    const size_t n = (size_t)d * d;
    double *g = scratch, *a = g + n, *b = a + n, *vectors = b + n, sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += queries[(size_t)i * d + i];
    memcpy(g, queries, n * sizeof *g);
    for (uint32_t i = 0; i < d; i++) g[(size_t)i * d + i] += fmax(RIDGE * sum / d, LEAST);
    cholesky(g, d);
    multiply(residuals, false, g, d, b);
    multiply(g, true, b, d, a);
    diagonalise(a, vectors, d);
    for (uint32_t i = 0; i < d; i++) /* rows of vectors, times g^T */
        for (uint32_t j = 0; j < d; j++) {
            double x = 0;
            for (uint32_t k = 0; k <= j; k++) x += vectors[(size_t)i * d + k] * g[(size_t)j * d + k];
            b[(size_t)i * d + j] = x;
        }
    put_rows(a, b, d, vectors + n, to, spread);
}

void pleat__basis_of_values(const double *values, uint32_t d, double *scratch, float *to, float *spread) {
    const size_t n = (size_t)d * d;
    double *a = scratch, *vectors = a + n;
    memcpy(a, values, n * sizeof *a);
    diagonalise(a, vectors, d);
    put_rows(a, vectors, d, vectors + n, to, spread);
}

/* a and b side by side: rows of a become those of the identity, and those of b the inverse's. */
static bool eliminate(double *a, double *b, uint32_t d) {
    for (uint32_t i = 0; i < d; i++) {
        uint32_t pivot = i;
        for (uint32_t j = i + 1; j < d; j++)
            if (fabs(a[(size_t)j * d + i]) > fabs(a[(size_t)pivot * d + i])) pivot = j;
        const double p = a[(size_t)pivot * d + i];
        if (!(fabs(p) > 1e-30)) return false;
        for (uint32_t k = 0; k < d; k++) {
            const size_t x = (size_t)i * d + k, y = (size_t)pivot * d + k;
            const double a_y = a[y], b_y = b[y];
            a[y] = a[x], b[y] = b[x];
            a[x] = a_y / p, b[x] = b_y / p;
        }
        for (uint32_t j = 0; j < d; j++) {
            const double f = a[(size_t)j * d + i];
            if (j == i || f == 0) continue;
            for (uint32_t k = 0; k < d; k++) {
                a[(size_t)j * d + k] -= f * a[(size_t)i * d + k];
                b[(size_t)j * d + k] -= f * b[(size_t)i * d + k];
            }
        }
    }
    return true;
}

bool pleat__basis_undo(const float *to, uint32_t d, double *scratch, float *from, float *query) {
    const size_t n = (size_t)d * d;
    double *a = scratch, *b = a + n;
    for (size_t i = 0; i < n; i++) a[i] = (double)to[i];
    memset(b, 0, n * sizeof *b);
    for (uint32_t i = 0; i < d; i++) b[(size_t)i * d + i] = 1;
    if (!eliminate(a, b, d)) return false;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(b[i]) < 0x1p48)) return false;
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = 0; j < d; j++) {
            const float x = (float)b[(size_t)i * d + j];
            from[(size_t)i * d + j] = x;
            if (query) query[(size_t)j * d + i] = x;
        }
    return true;
}
