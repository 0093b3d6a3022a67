/* SPDX-License-Identifier: MIT
 *
 * groups.h: pages of lanes whose lengths depend on the text, counted without a cache.
 *
 * A forecast knows of such lanes what samples say (pleat/forecast.h): how many slots a group of lanes has on each side for
 * a classed token, groups being equal parts of the lanes in the order of their shares.  Between samples of two lengths
 * shares lie on a line; beyond the last one they stay.
 *
 *     samples    n_classed 100: high .8 .9 .. 1     300: high .5 .6 .. .9      asked at 200: .65 .75 .. .95
 */
#ifndef PLEAT_CACHE_KEEP_GROUPS_H
#define PLEAT_CACHE_KEEP_GROUPS_H

#include "cache/keep/keep.h"

/* The first lane of a group. */
static inline uint32_t pleat__group_begin(uint32_t n_lanes, uint32_t group) {
    return (uint32_t)((uint64_t)n_lanes * group / PLEAT_FORECAST_GROUPS);
}

/* Of all lanes. */
typedef struct pleat__group_pages {
    uint64_t high, low;
    uint64_t full_old;            /* full pages of classed tokens alone, on both sides */
    uint64_t full_high, full_low; /* full pages of each side */
    double full;                  /* pages that the slots would fill */
} pleat__group_pages;

/* Lanes with n_warm high slots beside those of n_classed classed tokens, and n_low low slots beside theirs. */
pleat__group_pages pleat__groups_count(const pleat_forecast *forecast, uint32_t n_classed, uint32_t n_warm,
                                       uint32_t n_low);

#endif
