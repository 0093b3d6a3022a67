/* SPDX-License-Identifier: MIT
 *
 * moments.c: sums over a lane's tokens, and the statistics that they make.
 *
 * With k0 = R(-t) k and its mean m over tokens, the residual of a pair is
 *
 *     r_x = x - (c m_x - s m_y)      r_y = y - (s m_x + c m_y)
 *
 * whose squares have means that follow from those of x^2, x c, x s, y^2, y c, y s, c^2, s^2 and c s.  So one pass over the
 * tokens is enough, though m is known at its end alone.
 */
#include <math.h>

#include "stats/stats.h"

void pleat__moments_carve(uint32_t d, pleat__moments *m, pleat__arena *arena) {
    m->qq = pleat__arena_take(arena, d, sizeof *m->qq);
    m->kk = pleat__arena_take(arena, d, sizeof *m->kk);
    m->k = pleat__arena_take(arena, d, sizeof *m->k);
    m->kc = pleat__arena_take(arena, d, sizeof *m->kc);
    m->ks = pleat__arena_take(arena, d, sizeof *m->ks);
    m->cc = pleat__arena_take(arena, d / 2, sizeof *m->cc);
    m->ss = pleat__arena_take(arena, d / 2, sizeof *m->ss);
    m->cs = pleat__arena_take(arena, d / 2, sizeof *m->cs);
    m->vv = pleat__arena_take(arena, d, sizeof *m->vv);
}

static void add_key(pleat__moments *m, const pleat__rd_turns *t, const double *cosines, const double *sines, uint32_t d,
                    double unscale, const float *k) {
    for (uint32_t i = 0; i < d; i++) {
        m->kk[i] += (double)k[i] * (double)k[i];
        m->k[i] += (double)k[i];
    }
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        const uint32_t x = t->first * i, y = x + t->other;
        const double c = cosines[i], s = sines[i], kx = (double)k[x] * unscale, ky = (double)k[y] * unscale;
        m->kc[x] += kx * c;
        m->ks[x] += kx * s;
        m->kc[y] += ky * c;
        m->ks[y] += ky * s;
        m->cc[i] += c * c;
        m->ss[i] += s * s;
        m->cs[i] += c * s;
    }
}

static void add_value(pleat__moments *m, uint32_t d, const float *v) {
    double square = 0;
    for (uint32_t i = 0; i < d; i++) square += (double)v[i] * (double)v[i];
    if (!(square > 0)) return;
    for (uint32_t i = 0; i < d; i++) m->vv[i] += (double)v[i] * (double)v[i] * d / square;
}

void pleat__moments_add(pleat__moments *m, const pleat__rd_turns *t, const double *cosines, const double *sines,
                        uint32_t d, uint32_t n_heads, double unscale, const float *q, size_t q_stride, const float *k,
                        const float *v) {
    m->n += 1;
    m->n_q += n_heads;
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < d; i++) m->qq[i] += (double)q[h * q_stride + i] * (double)q[h * q_stride + i];
    add_key(m, t, cosines, sines, d, unscale, k);
    add_value(m, d, v);
}

/* The mean square of what is left of a pair's halves, once their mean is taken away. */
static void pair_residual(const pleat__moments *m, uint32_t pair, uint32_t x, uint32_t y, double scale, double mx,
                          double my, double *rx, double *ry) {
    const double cc = m->cc[pair], ss = m->ss[pair], cs = m->cs[pair], up = scale * scale;
    *rx = m->kk[x] + up * (-2 * mx * m->kc[x] + 2 * my * m->ks[x] + mx * mx * cc - 2 * mx * my * cs + my * my * ss);
    *ry = m->kk[y] + up * (-2 * mx * m->ks[y] - 2 * my * m->kc[y] + mx * mx * ss + 2 * mx * my * cs + my * my * cc);
}

static float root(double sum, double n) { return n > 0 && sum > 0 ? (float)sqrt(sum / n) : 0; }

void pleat__moments_finish(const pleat__moments *m, const pleat__rd_turns *t, uint32_t d, float magnitude,
                           float *const fields[PLEAT__STATS_FIELDS]) {
    float *mean = fields[0], *energy = fields[1], *spread = fields[2], *v_rms = fields[3];
    for (uint32_t i = 0; i < d; i++) {
        mean[i] = m->n > 0 ? (float)(m->k[i] / m->n) : 0;
        energy[i] = m->n_q > 0 ? (float)(m->qq[i] / m->n_q / d) : 0;
        spread[i] = root(m->kk[i] - (double)mean[i] * (double)mean[i] * m->n, m->n);
        v_rms[i] = root(m->vv[i], m->n);
    }
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        const uint32_t x = t->first * i, y = x + t->other;
        const double mx = m->n > 0 ? (m->kc[x] + m->ks[y]) / m->n : 0, my = m->n > 0 ? (m->kc[y] - m->ks[x]) / m->n : 0;
        double rx, ry;
        pair_residual(m, i, x, y, (double)magnitude, mx, my, &rx, &ry);
        mean[x] = (float)mx;
        mean[y] = (float)my;
        spread[x] = root(rx, m->n);
        spread[y] = root(ry, m->n);
        energy[x] = energy[y] = 0.5f * (energy[x] + energy[y]); /* positions turn one into the other */
    }
}
