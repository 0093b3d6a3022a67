/* SPDX-License-Identifier: MIT
 *
 * rotate.c: see rotate.h.
 */
#include "quant/rotate.h"

#include <math.h>
#include <string.h>

#include "core/types.h"

static float sign_of(uint32_t i) { return pleat__rotation_flips(i) ? -1.0f : 1.0f; }

/* Orthonormal Walsh-Hadamard of n elements, a power of two from 16 on. */
static void walsh(float *x, uint32_t n) {
    for (uint32_t half = 1; half < n; half *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                const float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
        }
    }
    const float factor = 1 / sqrtf((float)n);
    for (uint32_t i = 0; i < n; i++) x[i] *= factor;
}

static uint32_t power_in(uint32_t d) {
    uint32_t n = 16;
    while (2 * n <= d) n *= 2;
    return n;
}

void pleat__rotate(const float *from, uint32_t n, uint32_t d, float *to) {
    const uint32_t power = power_in(d);
    float sign[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) sign[i] = sign_of(i);
    for (uint32_t v = 0; v < n; v++, from += d, to += d) {
        for (uint32_t i = 0; i < d; i++) to[i] = from[i] * sign[i];
        walsh(to, power);
        if (power < d) walsh(to + d - power, power);
    }
}

void pleat__rotate_back(const float *from, uint32_t n, uint32_t d, float *to) {
    const uint32_t power = power_in(d);
    float sign[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) sign[i] = sign_of(i);
    for (uint32_t v = 0; v < n; v++, from += d, to += d) {
        if (to != from) memcpy(to, from, d * sizeof *to);
        if (power < d) walsh(to + d - power, power);
        walsh(to, power);
        for (uint32_t i = 0; i < d; i++) to[i] *= sign[i];
    }
}

void pleat__rotate_tile_back(float *k, uint32_t d) {
    float key[PLEAT__MAX_HEAD_DIM];
    for (uint32_t t = 0; t < PLEAT__TILE; t++) {
        for (uint32_t i = 0; i < d; i++) key[i] = k[i * PLEAT__TILE + t];
        pleat__rotate_back(key, 1, d, key);
        for (uint32_t i = 0; i < d; i++) k[i * PLEAT__TILE + t] = key[i];
    }
}
