/* SPDX-License-Identifier: MIT
 *
 * adakv.c: snapkv with a layer's budget shared by its heads (Ada-KV, Feng et al. 2024, section 3).
 *
 * The lanes of a layer have the sum of their middles together.  First each lane gets the best fifth of its own middle,
 * rounded down (their alpha = 0.2); what is left goes to the best of all other candidates of the layer, whichever lane they
 * are in: ties to the lower lane, then the older.  In a lane these are its best in any case, so that only how many they
 * are has to be found.
 */
#include <math.h>
#include <string.h>

#include "policy/evict.h"
#include "policy/select.h"

/* Of a lane's candidates those with ranks whose bits are at least `least`, or the guaranteed ones where these are more. */
static uint32_t taken(const pleat__evict_layer *layer, float *const *ranks, uint32_t lane, const uint32_t *guaranteed,
                      int32_t least) {
    return pleat__max_u32(guaranteed[lane], pleat__count_reach(ranks[lane], layer->lanes[lane].high.n_slots, least));
}

/* The bits of the highest rank that would take `total` candidates of the layer; total is less than there are. */
static int32_t find_least(const pleat__evict_layer *layer, float *const *ranks, const uint32_t *guaranteed,
                          uint64_t total) {
    const float infinity = INFINITY;
    int32_t low = 0, high;
    memcpy(&high, &infinity, sizeof high);
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        uint64_t n = 0;
        for (uint32_t i = 0; i < layer->n_lanes; i++) n += taken(layer, ranks, i, guaranteed, middle);
        if (n >= total)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void budgets(const pleat__evict_layer *layer, float *const *ranks, uint32_t *middle) {
    uint64_t total = 0, n_candidates = 0;
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        const uint32_t n = pleat__count_reach(ranks[i], layer->lanes[i].high.n_slots, 0);
        total += middle[i];
        n_candidates += n;
        middle[i] = pleat__min_u32(middle[i] / 5, n); /* guaranteed */
    }
    const int32_t least = n_candidates > total ? find_least(layer, ranks, middle, total) : 0;
    uint64_t left = total; /* for ranks that are `least` */
    for (uint32_t i = 0; i < layer->n_lanes; i++) left -= taken(layer, ranks, i, middle, least + 1);
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        const uint32_t above = taken(layer, ranks, i, middle, least + 1);
        const uint32_t equal = taken(layer, ranks, i, middle, least) - above;
        const uint32_t n = equal < left ? equal : (uint32_t)left;
        left -= n;
        middle[i] = above + n;
    }
}

const pleat__evictor pleat__evictor_adakv = {PLEAT__SCORING_WINDOW, false, pleat__rank_received, pleat__rank_pooled,
                                             budgets};
