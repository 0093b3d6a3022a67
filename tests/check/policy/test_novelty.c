/* SPDX-License-Identifier: MIT
 *
 * test_novelty.c: how unlike a key is to its lane's, tile by tile, against keys that are turned back one by one in
 * double precision.  test_evict_cache.c has whole caches under novel.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "policy/novelty.h"

enum { MAX_DIM = 128, MAX_TOKENS = 1 << 20, TILE = PLEAT__TILE };

static double frequencies[MAX_DIM / 2];

/* Tables of one rope, and what they are carved from. */
typedef struct world {
    pleat_rope rope;
    pleat__turns turns;
    void *memory;
} world;

static world world_of(const pleat_rope *rope, uint32_t max_tokens) {
    world w = {.rope = *rope};
    pleat__arena arena = {0};
    pleat__turns_carve(rope, max_tokens, &w.turns, &arena);
    w.memory = aligned_alloc(64, (arena.used_bytes + 63) / 64 * 64);
    arena = (pleat__arena){.base = w.memory, .cap_bytes = arena.used_bytes};
    pleat__turns_carve(rope, max_tokens, &w.turns, &arena);
    CHECK(!arena.overflow);
    pleat__turns_init(rope, max_tokens, &w.turns);
    return w;
}

/* Key `at` of a tile [head_dim][16] as it was before it was turned. */
static void turn_back(const pleat_rope *rope, const float *tile, uint32_t head_dim, uint32_t at, uint32_t position,
                      double *k0) {
    for (uint32_t d = 0; d < head_dim; d++) k0[d] = (double)tile[d * TILE + at];
    for (uint32_t i = 0; rope && i < rope->n_dims / 2; i++) {
        const uint32_t a = rope->is_halves ? i : 2 * i, b = rope->is_halves ? i + rope->n_dims / 2 : 2 * i + 1;
        const double angle = position * rope->frequencies[i], x = k0[a], y = k0[b];
        k0[a] = (x * cos(angle) + y * sin(angle)) / (double)rope->magnitude;
        k0[b] = (y * cos(angle) - x * sin(angle)) / (double)rope->magnitude;
    }
}

static double length_of(const double *x, uint32_t n) {
    double square = 0;
    for (uint32_t i = 0; i < n; i++) square += x[i] * x[i];
    return sqrt(square);
}

/* Some slots hold no token, some keys are zeros. */
static void check_tile(const world *w, const pleat_rope *rope, uint32_t head_dim) {
    static float k[MAX_DIM * TILE], turned[MAX_DIM * TILE], turn[MAX_DIM * TILE];
    float sum[MAX_DIM] = {0}, mean[MAX_DIM], scores[TILE];
    double want_sum[MAX_DIM] = {0}, k0[TILE][MAX_DIM];
    int32_t positions[TILE];
    const int32_t from = (int32_t)check_below(MAX_TOKENS / 2);
    for (uint32_t i = 0; i < TILE; i++) {
        positions[i] = check_below(8) ? (int32_t)check_below(MAX_TOKENS) : -1;
        const bool is_zero = check_below(16) == 0;
        for (uint32_t d = 0; d < head_dim; d++) k[d * TILE + i] = is_zero ? 0 : (float)check_uniform(-3, 3) + 0.5f;
        turn_back(rope, k, head_dim, i, positions[i] < 0 ? 0 : (uint32_t)positions[i], k0[i]);
        const double length = length_of(k0[i], head_dim);
        for (uint32_t d = 0; d < head_dim; d++) k0[i][d] = length > 0 && positions[i] >= 0 ? k0[i][d] / length : 0;
        for (uint32_t d = 0; positions[i] >= from && d < head_dim; d++) want_sum[d] += k0[i][d];
    }
    memcpy(turned, k, sizeof turned);
    pleat__key_tile tile = {.k = k, .turn = turn, .head_dim = head_dim, .positions = positions};
    pleat__key_tile_unturn(&w->turns, &tile);
    for (uint32_t i = 0; i < TILE; i++)
        for (uint32_t d = 0; d < head_dim; d++) CHECK_NEAR(k[d * TILE + i] * tile.scales[i], k0[i][d], 1e-6);
    pleat__key_tile_add(&tile, from, sum);
    for (uint32_t d = 0; d < head_dim; d++) CHECK_NEAR(sum[d], want_sum[d], 2e-5);
    pleat__key_mean(sum, head_dim, mean);
    pleat__key_tile_score(&tile, mean, scores);
    const double length = length_of(want_sum, head_dim);
    for (uint32_t i = 0; i < TILE; i++) {
        double cosine = 0;
        for (uint32_t d = 0; length > 0 && d < head_dim; d++) cosine += k0[i][d] * want_sum[d] / length;
        CHECK_NEAR(scores[i], 1 - cosine, 1e-5);
        CHECK(scores[i] > 0 && scores[i] < 2.0001f);
    }
}

static const struct {
    uint32_t head_dim, n_dims;
    int is_halves;
    float magnitude;
} shapes[] = {{64, 64, 0, 1},    {128, 128, 1, 1},  {128, 64, 1, 1.2f}, {32, 8, 0, 0.5f},
              {80, 20, 1, 1.0f}, {16, 2, 1, 3.25f}, {16, 16, 0, 1},     {96, 96, 1, 1.19f}};

static void test_against_single_keys(void) {
    for (size_t s = 0; s < CHECK_COUNT(shapes); s++) {
        const pleat_rope rope = {shapes[s].n_dims, shapes[s].is_halves, shapes[s].magnitude, frequencies};
        world w = world_of(&rope, MAX_TOKENS);
        for (uint64_t round = check_rounds(40, 8); round-- > 0;) {
            check_context("head_dim %u, %u turn", shapes[s].head_dim, shapes[s].n_dims);
            check_tile(&w, &rope, shapes[s].head_dim);
        }
        free(w.memory);
    }
}

static void test_keys_that_are_not_turned(void) {
    pleat__turns turns;
    pleat__arena arena = {0};
    pleat__turns_carve(NULL, MAX_TOKENS, &turns, &arena);
    CHECK_EQ_U64(arena.used_bytes, 0);
    pleat__turns_init(NULL, MAX_TOKENS, &turns);
    const world w = {.turns = turns};
    for (uint64_t round = check_rounds(40, 8); round-- > 0;) check_tile(&w, NULL, 48);
}

/* A token's bits are its own: in any place of a tile, beside whatever stands there. */
static void test_places_do_not_matter(void) {
    enum { D = 64 };
    static float k[D * TILE], turn[D * TILE], key[D], sum[D], mean[D];
    const pleat_rope rope = {D, 1, 1, frequencies};
    world w = world_of(&rope, MAX_TOKENS);
    float want[TILE], want_sum[D];
    for (uint32_t d = 0; d < D; d++) key[d] = (float)check_uniform(-1, 1), mean[d] = 0.125f;
    for (uint32_t place = 0; place < TILE; place++) {
        int32_t positions[TILE];
        for (uint32_t i = 0; i < TILE; i++) {
            positions[i] = i == place ? 77777 : (int32_t)check_below(1000) - 500;
            for (uint32_t d = 0; d < D; d++) k[d * TILE + i] = i == place ? key[d] : (float)check_uniform(-9, 9);
        }
        pleat__key_tile tile = {.k = k, .turn = turn, .head_dim = D, .positions = positions};
        float scores[TILE];
        pleat__key_tile_unturn(&w.turns, &tile);
        pleat__key_tile_score(&tile, mean, scores);
        memset(sum, 0, sizeof sum);
        pleat__key_tile_add(&tile, 77777, sum);
        if (place == 0) memcpy(want_sum, sum, sizeof sum), want[0] = scores[0];
        CHECK_EQ_MEM(&scores[place], &want[0], sizeof(float));
        CHECK_EQ_MEM(sum, want_sum, sizeof sum);
    }
    free(w.memory);
}

static const check_test tests[] = {
    {"against_single_keys", test_against_single_keys},
    {"keys_that_are_not_turned", test_keys_that_are_not_turned},
    {"places_do_not_matter", test_places_do_not_matter},
};

int main(int argc, char **argv) {
    for (uint32_t i = 0; i < MAX_DIM / 2; i++) frequencies[i] = pow(10000, -(double)i / (MAX_DIM / 2));
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
