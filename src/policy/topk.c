/* SPDX-License-Identifier: MIT
 *
 * topk.c: an equal share for every lane.  See topk.h.
 */
#include "policy/topk.h"

#include <math.h>
#include <string.h>

#include "policy/scan.h"

uint32_t pleat__topk_budget(const pleat_spec *spec, uint32_t n_tokens) {
    const double share = (double)spec->keep * n_tokens;
    return pleat__max_u32(spec->window, (uint32_t)ceil(share - share * 0x1p-24));
}

/* What the tokens that are not sealed may be. */
static uint32_t open_budget(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens) {
    const uint32_t budget = pleat__topk_budget(spec, n_tokens);
    return lane->n_sealed + spec->window < budget ? budget - lane->n_sealed : spec->window;
}

pleat__policy_step pleat__topk_step(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                                    uint32_t n_tokens) {
    pleat__policy_step step = pleat__policy_no_step();
    const pleat__kv_run *high = &lane->high;
    step.left_slot = pleat__scan_find(scan, high, n_tokens - 1 - spec->window);
    const uint32_t budget = open_budget(spec, lane, n_tokens);
    if (step.left_slot == PLEAT__NO_SLOT || high->n_slots <= budget || pleat__scan_live(high) <= budget) return step;
    float least;
    step.high_victim = pleat__scan_least(scan, high, n_tokens, spec->window, INFINITY, &least);
    if (step.high_victim != PLEAT__NO_SLOT) step.high_level = PLEAT_LEVEL_DROPPED;
    return step;
}

/* ---- the end of a prompt --------------------------------------------------------------------------- */

static int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The k-th largest of those of x[0..n) that are not negative, of which there are at least k >= 1.  Such floats have the
 * order of their bits, so 31 halvings find the largest that k of them reach, whatever a lane holds. */
static float kth_largest(const float *x, uint32_t n, uint32_t k) {
    int32_t low = 0, high = bits_of(INFINITY);
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        uint32_t n_reach = 0;
        for (uint32_t i = 0; i < n; i++) n_reach += bits_of(x[i]) >= middle;
        if (n_reach >= k)
            low = middle;
        else
            high = middle - 1;
    }
    return float_of(low);
}

/* ranks[slot] = significance of the tokens that have left the window, -1 for all other slots.  Gives the number of the
 * former, and the level of the latter. */
static uint32_t rank_by_significance(const pleat__kv_run *high, uint32_t n_tokens, uint32_t window, uint8_t *levels,
                                     float *ranks) {
    const uint32_t n_pages = pleat__tracked_pages(high);
    uint32_t n_left = 0;
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        const pleat__tracked page = pleat__tracked_page(high, page_idx);
        for (uint32_t i = 0; i < page.n; i++) {
            const uint32_t slot = page.first + i, position = (uint32_t)page.positions[i];
            const bool is_live = page.positions[i] >= 0;
            const bool has_left = is_live && !pleat__in_window(position, n_tokens, window);
            levels[slot] = (uint8_t)(is_live ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_DROPPED);
            ranks[slot] = has_left ? pleat__significance(page.sums[i], position, n_tokens) : -1.0f;
            n_left += has_left;
        }
    }
    return n_left;
}

/* Of the ranks only those equal to `last` are in doubt: they become their tokens' ages, those above infinite. */
static void rank_by_age(const pleat__kv_run *high, uint32_t n_tokens, float last, float *ranks) {
    const uint32_t n_pages = pleat__tracked_pages(high);
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        const pleat__tracked page = pleat__tracked_page(high, page_idx);
        for (uint32_t i = 0; i < page.n; i++) {
            float *rank = &ranks[page.first + i];
            if (*rank < 0) continue;
            const float age = (float)(n_tokens - (uint32_t)page.positions[i]);
            *rank = *rank > last ? INFINITY : *rank == last ? age : 0.0f; /* an age is at least 1 */
        }
    }
}

void pleat__topk_prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint8_t *levels,
                        float *ranks) {
    const pleat__kv_run *high = &lane->high;
    const uint32_t n = high->n_slots;
    const uint32_t n_left = rank_by_significance(high, n_tokens, spec->window, levels, ranks);
    const uint32_t n_stay = open_budget(spec, lane, n_tokens) - spec->window;
    if (n_left <= n_stay) return;
    float youngest = INFINITY;
    if (n_stay > 0) {
        rank_by_age(high, n_tokens, kth_largest(ranks, n, n_stay), ranks);
        youngest = kth_largest(ranks, n, n_stay);
    }
    for (uint32_t slot = 0; slot < n; slot++)
        if (ranks[slot] >= 0 && ranks[slot] < youngest) levels[slot] = PLEAT_LEVEL_DROPPED;
}
