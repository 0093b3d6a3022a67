/* SPDX-License-Identifier: MIT
 *
 * topk.c: every lane keeps the same share of its tokens, those of the highest significance; there is no low side.  The
 * baseline of LeanKV's Figure 8.
 *
 *     budget(N) = max(window, ceil(keep * N))
 *     prompt:      of the tokens that have left the window the budget(N) - window most significant stay, ties to the
 *                  older; the others are dropped
 *     generation:  if a lane holds more than budget(N) tokens, the least significant outside the window is dropped
 *
 * Where n_sealed of a lane's tokens are sealed (kv_view.h), they stay, and the others have what is left of the budget,
 * but not less than the window.
 *
 * N, window and significance as in policy.h.
 */
#include <math.h>

#include "policy/policy.h"
#include "policy/scan.h"
#include "policy/select.h"

static uint32_t budget_of(const pleat_spec *spec, uint32_t n_tokens) {
    return pleat__max_u32(spec->window, pleat__share_tokens((double)spec->keep, n_tokens));
}

/* What the tokens that are not sealed may be. */
static uint32_t open_budget(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens) {
    const uint32_t budget = budget_of(spec, n_tokens);
    return lane->n_sealed + spec->window < budget ? budget - lane->n_sealed : spec->window;
}

static pleat__policy_step step(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                               uint32_t n_tokens) {
    pleat__policy_step out = pleat__policy_no_step();
    const pleat__kv_run *high = &lane->high;
    out.left_slot = pleat__scan_find(scan, high, n_tokens - 1 - spec->window);
    const uint32_t budget = open_budget(spec, lane, n_tokens);
    if (out.left_slot == PLEAT__NO_SLOT || high->n_slots <= budget || pleat__scan_live(high) <= budget) return out;
    float least;
    out.high_victim = pleat__scan_least(scan, high, n_tokens, spec->window, INFINITY, &least);
    if (out.high_victim != PLEAT__NO_SLOT) out.high_level = PLEAT_LEVEL_DROPPED;
    return out;
}

/* ---- the end of a prompt --------------------------------------------------------------------------- */

/* ranks[slot] = significance of the tokens that have left the window, -1 for all other slots.  Of these the living are
 * high; all others are dropped as yet. */
static void rank_by_significance(const pleat__kv_run *high, uint32_t n_tokens, uint32_t window, uint8_t *levels,
                                 float *ranks) {
    pleat__tracked page;
    for (pleat__page_walk walk = pleat__walk_pages(high); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++) {
            const uint32_t slot = page.first + i, position = (uint32_t)page.positions[i];
            const bool is_live = page.positions[i] >= 0;
            const bool is_new = is_live && pleat__in_window(position, n_tokens, window);
            levels[slot] = (uint8_t)(is_new ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_DROPPED);
            ranks[slot] = is_live && !is_new ? pleat__significance(page.sums[i], position, n_tokens) : -1.0f;
        }
    }
}

/* All tokens are judged again, whatever was classed before.  ranks: scratch. */
static void prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                   uint8_t *levels, float *ranks) {
    (void)classed;
    const pleat__kv_run *high = &lane->high;
    rank_by_significance(high, n_tokens, spec->window, levels, ranks);
    const uint32_t n_stay = open_budget(spec, lane, n_tokens) - spec->window;
    pleat__select_top(high, ranks, n_stay, n_tokens, PLEAT_LEVEL_HIGH, levels, ranks);
}

const pleat__leveler pleat__leveler_topk = {.step = step, .prompt = prompt};
