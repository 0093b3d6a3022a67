/* SPDX-License-Identifier: MIT
 *
 * groups.c: see groups.h.
 */
#include "cache/keep/groups.h"

/* Slots of a lane of the group for a classed token, when there are so many of these. */
typedef struct shares {
    double high, low;
} shares;

static shares shares_at(const pleat_forecast *f, uint32_t group, uint32_t n_classed) {
    const pleat_forecast_sample *s = f->samples;
    uint32_t i = 0;
    if (f->n_samples == 0) return (shares){(double)f->most_high, (double)f->most_low};
    while (i + 1 < f->n_samples && s[i + 1].n_classed <= n_classed) i++;
    const uint32_t k = i + 1 < f->n_samples && n_classed > s[i].n_classed ? i + 1 : i;
    const double span = s[k].n_classed - (double)s[i].n_classed;
    const double t = span > 0 ? (n_classed - (double)s[i].n_classed) / span : 0;
    return (shares){(1 - t) * (double)s[i].high[group] + t * (double)s[k].high[group],
                    (1 - t) * (double)s[i].low[group] + t * (double)s[k].low[group]};
}

static uint64_t pages_of(uint64_t n_slots, uint32_t page_slots) { return (n_slots + page_slots - 1) / page_slots; }

pleat__group_pages pleat__groups_count(const pleat_forecast *f, uint32_t n_classed, uint32_t n_warm, uint32_t n_low) {
    const uint32_t tokens = f->traits.high_page_tokens, low_slots = f->low_slots ? f->low_slots : tokens;
    const uint32_t n_full = pleat__forecast_full_lanes(f);
    pleat__group_pages all = {0};
    for (uint32_t g = 0; g < PLEAT_FORECAST_GROUPS; g++) {
        const uint64_t n_lanes = pleat__group_begin(n_full, g + 1) - pleat__group_begin(n_full, g);
        const shares s = shares_at(f, g, n_classed);
        const uint64_t old_high = (uint64_t)(s.high * n_classed + 0.5), old_low = (uint64_t)(s.low * n_classed + 0.5);
        const uint64_t high = old_high + n_warm;
        all.high += n_lanes * pages_of(high, tokens);
        all.low += n_lanes * pages_of(old_low + n_low, low_slots);
        all.full_old += n_lanes * (old_high / tokens + old_low / low_slots);
        all.full_high += n_lanes * (high / tokens);
        all.full_low += n_lanes * (old_low / low_slots);
        all.full += (double)n_lanes * ((double)high / tokens + (double)old_low / low_slots);
    }
    return all;
}
