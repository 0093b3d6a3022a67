/* SPDX-License-Identifier: MIT
 *
 * test_dropkv.c: what a query would miss without a token, against attention without it in double precision.
 * test_evict_cache.c has whole caches under dropkv.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "policy/dropkv.h"
#include "policy/evict.h"

enum { MAX_DIM = 128, TILE = PLEAT__TILE };

static float values[TILE * MAX_DIM], p[TILE], found[MAX_DIM], scores[TILE];

/* Weights of n tokens that add up to 1, the others 0, and what they find. */
static void attend(uint32_t n, uint32_t d) {
    double weights[TILE], sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += weights[i] = exp(2 * (double)check_normal());
    for (uint32_t i = 0; i < TILE; i++) p[i] = i < n ? (float)(weights[i] / sum) : 0;
    for (uint32_t k = 0; k < d; k++) {
        double o = 0;
        for (uint32_t i = 0; i < n; i++) o += weights[i] / sum * (double)values[i * d + k];
        found[k] = (float)o;
    }
}

/* How far what is found moves, squared, when the others share token i's weight. */
static double moves_without(uint32_t i, uint32_t n, uint32_t d) {
    double rest = 0, square = 0;
    for (uint32_t j = 0; j < n; j++) rest += j == i ? 0 : (double)p[j];
    for (uint32_t k = 0; k < d; k++) {
        double o = 0;
        for (uint32_t j = 0; j < n; j++) o += j == i ? 0 : (double)p[j] / rest * (double)values[j * d + k];
        square += (o - (double)found[k]) * (o - (double)found[k]);
    }
    return square;
}

static void test_is_what_moves(void) {
    static const uint32_t dims[] = {16, 64, 80, 128};
    const uint64_t rounds = check_rounds(400, 40);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const uint32_t d = dims[check_below(CHECK_COUNT(dims))], n = (uint32_t)check_between(2, TILE);
        check_fill_normal(values, (size_t)TILE * d);
        attend(n, d);
        for (uint32_t k = n * d; k < TILE * d; k++) values[k] = NAN; /* no tokens */
        for (uint32_t i = 0; i < TILE; i++) scores[i] = (float)i;
        pleat__dropkv_add(values, d, found, p, scores);
        for (uint32_t i = 0; i < TILE; i++) {
            const double more = i < n ? moves_without(i, n, d) : 0;
            CHECK_NEAR((double)scores[i], i + more, 1e-3 * more + 1e-5);
        }
    }
}

/* Whatever the values are, a score can be compared, and marks no representative. */
static void test_is_finite(void) {
    static const float sizes[] = {1e-30f, 65504, 1e18f, 1e30f}, weights[] = {1e-40f, 1e-30f, 0.5f, 1, 1.0000002f};
    for (size_t s = 0; s < CHECK_COUNT(sizes); s++) {
        for (size_t w = 0; w < CHECK_COUNT(weights); w++) {
            memset(scores, 0, sizeof scores);
            memset(found, 0, sizeof found);
            for (uint32_t i = 0; i < TILE * MAX_DIM; i++) values[i] = i % 2 ? sizes[s] : -sizes[s];
            for (uint32_t i = 0; i < TILE; i++) p[i] = weights[w];
            for (uint32_t query = 0; query < 1024; query++) pleat__dropkv_add(values, MAX_DIM, found, p, scores);
            for (uint32_t i = 0; i < TILE; i++) CHECK(isfinite(scores[i]) && scores[i] >= 0);
        }
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"is what moves", test_is_what_moves}, {"is finite", test_is_finite}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
