/* SPDX-License-Identifier: MIT
 *
 * leverage.c: tokens stay whose keys stand out: rank = the score that leverage.h gives, which stands where other policies
 * have the attention received.
 *
 * Scores are taken when a prompt ends, of all tokens that are there, and tokens are dropped at no other time.  No query is
 * looked at, and a sequence keeps nothing between prompts.
 *
 * With fall=f budgets fall from layer to layer as pyramidkv's do: of M, the budget beside the window, the first layer's
 * lanes have M (1 + f) and the last one's M (1 - f), where prompts are that long.
 */
#include "policy/leverage.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "policy/evict.h"

#define TILE PLEAT__TILE
#define RIDGE 0.1   /* of the mean diagonal */
#define FLAT 1e-12f /* the least ridge: where all keys are one */

void pleat__spread_carve(uint32_t head_dim, pleat__key_spread *spread, pleat__arena *arena) {
    spread->head_dim = head_dim;
    spread->mean = pleat__arena_take(arena, head_dim, sizeof *spread->mean);
    spread->lower = pleat__arena_take(arena, (uint64_t)head_dim * head_dim, sizeof *spread->lower);
    spread->row = pleat__arena_take(arena, head_dim, sizeof *spread->row);
}

void pleat__spread_open(pleat__key_spread *s) {
    s->n = 0;
    memset(s->mean, 0, s->head_dim * sizeof *s->mean);
    memset(s->lower, 0, (size_t)s->head_dim * s->head_dim * sizeof *s->lower);
}

void pleat__spread_add_mean(const pleat__key_tile *tile, int32_t from, pleat__key_spread *s) {
    for (uint32_t i = 0; i < TILE; i++) {
        if (tile->positions[i] < from) continue;
        s->n++;
        for (uint32_t d = 0; d < s->head_dim; d++) s->mean[d] += tile->k[d * TILE + i];
    }
}

void pleat__spread_centre(pleat__key_spread *s) {
    for (uint32_t d = 0; d < s->head_dim; d++) s->mean[d] /= s->n > 0 ? s->n : 1;
}

static void centre_tile(const pleat__key_spread *s, pleat__key_tile *tile) {
    for (uint32_t d = 0; d < s->head_dim; d++)
        for (uint32_t i = 0; i < TILE; i++) tile->k[d * TILE + i] -= s->mean[d];
}

void pleat__spread_add_products(pleat__key_tile *tile, int32_t from, pleat__key_spread *s) {
    centre_tile(s, tile);
    for (uint32_t i = 0; i < TILE; i++) {
        if (tile->positions[i] < from) continue;
        for (uint32_t d = 0; d < s->head_dim; d++) s->row[d] = tile->k[d * TILE + i];
        for (uint32_t d = 0; d < s->head_dim; d++) {
            float *restrict to = s->lower + (size_t)d * s->head_dim;
            for (uint32_t j = 0; j <= d; j++) to[j] += s->row[d] * s->row[j];
        }
    }
}

/* The mean of the diagonal, which is what a usual channel's keys deviate by, squared. */
static float mean_diagonal(const pleat__key_spread *s) {
    double sum = 0;
    for (uint32_t d = 0; d < s->head_dim; d++) sum += (double)s->lower[(size_t)d * s->head_dim + d];
    return (float)(sum / s->head_dim);
}

static float product_less(float x, const float *a, const float *b, uint32_t n) {
    double sum = (double)x;
    for (uint32_t i = 0; i < n; i++) sum -= (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Cholesky, row by row. */
void pleat__spread_close(pleat__key_spread *s) {
    const uint32_t n = s->head_dim;
    for (size_t i = 0; i < (size_t)n * n; i++) s->lower[i] /= s->n > 0 ? s->n : 1;
    const float ridge = fmaxf((float)RIDGE * mean_diagonal(s), FLAT);
    for (uint32_t d = 0; d < n; d++) {
        float *row = s->lower + (size_t)d * n;
        row[d] += ridge;
        for (uint32_t j = 0; j < d; j++) {
            const float *other = s->lower + (size_t)j * n;
            row[j] = product_less(row[j], row, other, j) / other[j];
        }
        row[d] = sqrtf(fmaxf(product_less(row[d], row, row, d), ridge / 2)); /* >= ridge but for rounding */
    }
}

void pleat__spread_score(const pleat__key_spread *s, pleat__key_tile *tile, float *scores) {
    float squares[TILE] = {0};
    centre_tile(s, tile);
    for (uint32_t d = 0; d < s->head_dim; d++) { /* L y = x, in x's place */
        const float *row = s->lower + (size_t)d * s->head_dim;
        float *restrict y = tile->k + (size_t)d * TILE;
        for (uint32_t j = 0; j < d; j++)
            for (uint32_t i = 0; i < TILE; i++) y[i] -= row[j] * tile->k[j * TILE + i];
        for (uint32_t i = 0; i < TILE; i++) {
            y[i] /= row[d];
            squares[i] += y[i] * y[i];
        }
    }
    for (uint32_t i = 0; i < TILE; i++) scores[i] = squares[i] > FLT_MIN ? squares[i] : FLT_MIN;
}

/* ---- budgets */

static void budgets(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle) {
    const uint32_t mean = layer->budget - layer->spec->window;
    (void)ranks;
    pleat__fall_by_layer(layer, mean - pleat__share_tokens((double)layer->spec->fall, mean), middle);
}

const pleat__evictor pleat__evictor_leverage = {.scoring = PLEAT__SCORING_LEVERAGE,
                                                .rank_block = pleat__rank_own,
                                                .budgets = budgets,
                                                .budget_spread = pleat__fall_spread,
                                                .by_fall = true};
