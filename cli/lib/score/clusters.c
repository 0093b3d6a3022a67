/* SPDX-License-Identifier: MIT
 *
 * clusters.c: see clusters.h.
 */
#include "clusters.h"

#include <math.h>

void clusters_add(clusters *c, double x, double y) {
    c->n++;
    c->x += x;
    c->y += y;
    c->xx += x * x;
    c->xy += x * y;
    c->yy += y * y;
}

double clusters_ratio(const clusters *c) { return c->y > 0 ? c->x / c->y : NAN; }

double clusters_error(const clusters *c) {
    if (c->n < 2 || !(c->y > 0)) return NAN;
    const double r = c->x / c->y, squares = c->xx - 2 * r * c->xy + r * r * c->yy, n = (double)c->n;
    return sqrt(fmax(squares, 0) * n / (n - 1)) / c->y;
}
