/* SPDX-License-Identifier: MIT
 *
 * rd_rate.c: what a block of the codec rd is expected to take, from the statistics alone: the entropy of codes at their
 * steps, as rd_lane.c chooses them, and what stands around the streams.
 */
#include <math.h>

#include "codec/rd_internal.h"

#define LEAST_OCTAVE (-6) /* of the table's spreads; beyond the greatest the entropy grows by a bit an octave */
#define TO_AN_OCTAVE 8
#define USUAL_WIDTH 4 /* of exponents */
#define ENDS 64u      /* bytes: of 32 lanes of both streams, which end in whole ones, and of some escapes */

void pleat__rd_rates_init(pleat__rd_rates *rates) {
    for (uint32_t i = 0; i < PLEAT__RD_RATES; i++)
        rates->bits[i] = pleat__rd_entropy_of(exp2((double)i / TO_AN_OCTAVE + LEAST_OCTAVE));
}

static double bits_of(const pleat__rd_rates *rates, double spread) {
    const double at = spread > 0 ? (log2(spread) - LEAST_OCTAVE) * TO_AN_OCTAVE : 0;
    const double most = PLEAT__RD_RATES - 1;
    if (!(at > 0)) return 0;
    if (at >= most) return rates->bits[PLEAT__RD_RATES - 1] + (at - most) / TO_AN_OCTAVE;
    const uint32_t i = (uint32_t)at;
    return rates->bits[i] + (at - i) * (rates->bits[i + 1] - rates->bits[i]);
}

/* Deviations of what keys' codes are of: where a mean is not taken away, it is in them. */
static void spreads_of(const pleat__rd_source *s, const pleat_rope *rope, uint32_t d, float *spread) {
    const uint32_t n_pairs = rope ? rope->n_dims / 2 : 0;
    memcpy(spread, s->k.to ? s->k.spread : s->spread, d * sizeof *spread);
    for (uint32_t i = 0; i < n_pairs && !s->k.to; i++) {
        const uint32_t x = rope->is_halves ? i : 2 * i, y = rope->is_halves ? i + n_pairs : 2 * i + 1;
        const float mx = s->mean[x] * rope->magnitude, my = s->mean[y] * rope->magnitude;
        const float square = 0.5f * (mx * mx + my * my);
        if (pleat__rd_mean_pays(square, 0.5f * (s->spread[x] + s->spread[y]))) continue;
        spread[x] = sqrtf(spread[x] * spread[x] + square);
        spread[y] = sqrtf(spread[y] * spread[y] + square);
    }
}

double pleat__rd_expected_bytes(const pleat__rd_rates *rates, const pleat__rd_source *s, const pleat_rope *rope,
                                uint32_t d, float k, float v) {
    float spread[PLEAT__MAX_HEAD_DIM];
    const float floor_energy = pleat__rd_floor_energy(s, d);
    double bits = 0;
    spreads_of(s, rope, d, spread);
    for (uint32_t i = 0; i < d; i++) {
        const float step = pleat__rd_key_step(s->k.to ? 1 : s->energy[i] + floor_energy, spread[i], k);
        bits += step > 0 ? bits_of(rates, (double)(spread[i] / step)) : 0;
        bits += bits_of(rates, (double)((s->v.to ? s->v.spread[i] : s->v_rms[i]) / v));
    }
    return PLEAT__RD_HEADER_BYTES + pleat__rd_exponents_bytes(USUAL_WIDTH) + ENDS + bits * PLEAT__RD_TOKENS / 8;
}
