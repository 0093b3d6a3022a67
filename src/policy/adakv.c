/* SPDX-License-Identifier: MIT
 *
 * adakv.c: snapkv with a layer's budget shared by its heads (Ada-KV, Feng et al. 2024, section 3).
 *
 * The lanes of a layer have the sum of their middles together.  First each lane gets the best fifth of its own middle,
 * rounded down (their alpha = 0.2).  What is left goes to the best of all other candidates of the layer, whichever lane
 * they are in: ties to the lower lane, then the older.  In a lane these are its best in any case, so that only how many
 * they are has to be found.  A lane whose representatives are more than its budget takes from the others; then no lane
 * is guaranteed what the layer has not.
 */
#include <math.h>
#include <string.h>

#include "policy/evict.h"
#include "policy/select.h"

/* Of a lane's candidates those with ranks whose bits are at least `least`, or the guaranteed ones where these are
 * more. */
static int64_t taken(const pleat__evict_layer *layer, float *const *ranks, uint32_t lane, const int64_t *guaranteed,
                     int32_t least) {
    const int64_t n = pleat__count_reach(ranks[lane], layer->lanes[lane].high.n_slots, least);
    return n > guaranteed[lane] ? n : guaranteed[lane];
}

/* The bits of the highest rank that would take `total` candidates of the layer; total is less than there are. */
static int32_t find_least(const pleat__evict_layer *layer, float *const *ranks, const int64_t *guaranteed,
                          int64_t total) {
    int32_t low = 0, high = pleat__rank_bits(INFINITY);
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        int64_t n = 0;
        for (uint32_t i = 0; i < layer->n_lanes; i++) n += taken(layer, ranks, i, guaranteed, middle);
        if (n >= total)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* What all lanes have together, and middle[] what each is guaranteed of it. */
static int64_t guarantee(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle, int64_t n_parts,
                         int64_t *n_candidates) {
    int64_t total = 0, n_sure = 0;
    *n_candidates = 0;
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        const int64_t n = pleat__count_reach(ranks[i], layer->lanes[i].high.n_slots, 0);
        const int64_t sure = n_parts > 0 ? middle[i] / n_parts : 0;
        total += middle[i];
        middle[i] = sure < 0 ? 0 : sure < n ? sure : n;
        n_sure += middle[i];
        *n_candidates += n;
    }
    if (n_sure > total) memset(middle, 0, layer->n_lanes * sizeof *middle);
    return total > 0 ? total : 0;
}

void pleat__share_layer(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle, int64_t n_parts) {
    int64_t n_candidates;
    const int64_t total = guarantee(layer, ranks, middle, n_parts, &n_candidates);
    const int32_t least = n_candidates > total ? find_least(layer, ranks, middle, total) : 0;
    int64_t left = total; /* for ranks that are `least` */
    for (uint32_t i = 0; i < layer->n_lanes; i++) left -= taken(layer, ranks, i, middle, least + 1);
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        const int64_t above = taken(layer, ranks, i, middle, least + 1);
        const int64_t equal = taken(layer, ranks, i, middle, least) - above;
        const int64_t n = equal < left ? equal : left;
        left -= n;
        middle[i] = above + n;
    }
}

static void budgets(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle) {
    pleat__share_layer(layer, ranks, middle, 5);
}

/* One lane may have what the whole layer has. */
static uint32_t spread(uint32_t n_lanes) { return n_lanes; }

const pleat__evictor pleat__evictor_adakv = {.scoring = PLEAT__SCORING_WINDOW,
                                             .rank_block = pleat__rank_received,
                                             .rank = pleat__rank_pooled,
                                             .budgets = budgets,
                                             .budget_spread = spread};
