/* SPDX-License-Identifier: MIT
 *
 * pyramidkv.c: snapkv with budgets that fall from layer to layer (PyramidKV, Cai et al. 2024, section 4).
 *
 * With L layers, N tokens, budget B and window w, M = B - w, layer l has the budget w + m(l) in each lane:
 *
 *     min  = max(floor(M / 20), sinks)                     beta = 20
 *     max  = 2*M - min;  if max > N - w:  max = N - w, min = 2*M - max
 *     m(l) = max - floor((max - min) * l / (L - 1))        2*l < L - 1
 *            M                                             2*l = L - 1
 *            2*M - m(L - 1 - l)                            2*l > L - 1
 *
 * A layer and its mirror image have 2*M together, so the total is that of equal budgets.  Sinks, sealed tokens and
 * representatives come out of m(l).  min is at least `sinks` because these stay in every layer; the authors' code knows
 * none.  It divides by L and rounds down, which leaves the last layer above min and the total above equal budgets', and
 * takes equal budgets where N < 2*M.
 */
#include "policy/evict.h"

#define BETA 20

/* m(l); may be above what a lane holds. */
static int64_t beside_window(const pleat__evict_layer *layer, int64_t mean, int64_t least) {
    const int64_t window = layer->spec->window;
    const int64_t before = layer->n_tokens > window ? layer->n_tokens - window : 0;
    if (least < layer->spec->sinks) least = layer->spec->sinks;
    int64_t most = 2 * mean - least;
    if (most > before) {
        most = before;
        least = 2 * mean - most;
    }
    const int64_t last = (int64_t)layer->n_layers - 1, l = layer->layer;
    if (2 * l == last) return mean;
    const int64_t upper = 2 * l < last ? l : last - l, fall = (most - least) * upper;
    /* rounded down; fall is below 0 where a prompt is so short that nothing is dropped */
    const int64_t m = most - (fall / last - (fall % last < 0));
    return 2 * l < last ? m : 2 * mean - m;
}

static int64_t mean_of(const pleat__evict_layer *layer) { return (int64_t)layer->budget - layer->spec->window; }

void pleat__fall_by_layer(const pleat__evict_layer *layer, int64_t least, int64_t *middle) {
    const int64_t more = beside_window(layer, mean_of(layer), least) - mean_of(layer);
    for (uint32_t i = 0; i < layer->n_lanes; i++) middle[i] += more;
}

static void budgets(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle) {
    (void)ranks;
    pleat__fall_by_layer(layer, mean_of(layer) / BETA, middle);
}

/* w + m(l) <= w + 2*M < 2*B: the first layers have what the last ones lack. */
uint32_t pleat__fall_spread(uint32_t n_lanes) {
    (void)n_lanes;
    return 2;
}

const pleat__evictor pleat__evictor_pyramidkv = {.scoring = PLEAT__SCORING_WINDOW,
                                                 .rank_block = pleat__rank_received,
                                                 .rank = pleat__rank_pooled,
                                                 .budgets = budgets,
                                                 .budget_spread = pleat__fall_spread};
