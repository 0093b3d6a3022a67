/* SPDX-License-Identifier: MIT
 *
 * leankv.c: LeanKV's classes and its step of generation.  See leankv.h.
 */
#include "policy/leankv.h"

#include "policy/scan.h"

/* ah / L or al / L.  Searches and level() compare with the same float. */
static float threshold(float a, uint32_t length) { return a / (float)length; }

pleat_level pleat__leankv_level(const pleat_spec *spec, float significance, uint32_t position, uint32_t n_tokens,
                                bool in_prompt) {
    if (pleat__in_window(position, n_tokens, spec->window)) return PLEAT_LEVEL_HIGH;
    const uint32_t length = in_prompt && spec->threshold == PLEAT_THRESHOLD_POSITION ? position + 1 : n_tokens;
    if (significance >= threshold(spec->ah, length)) return PLEAT_LEVEL_HIGH;
    if (significance >= threshold(spec->al, length)) return PLEAT_LEVEL_LOW;
    return PLEAT_LEVEL_DROPPED;
}

/* The significance of the high token in `slot`, which is at `position`. */
static float significance_at(const pleat__kv_run *high, uint32_t slot, uint32_t position, uint32_t n_tokens) {
    const pleat__tracked page = pleat__tracked_page(high, slot / high->layout->tokens);
    return pleat__significance(page.sums[slot - page.first], position, n_tokens);
}

static void find_high_victim(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_run *high,
                             uint32_t n_tokens, pleat__policy_step *step) {
    float least;
    step->high_victim = pleat__scan_least(scan, high, n_tokens, spec->window, threshold(spec->ah, n_tokens), &least);
    if (step->high_victim == PLEAT__NO_SLOT) return;
    const bool is_low = least >= threshold(spec->al, n_tokens);
    step->high_level = is_low ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_DROPPED;
}

static void find_low_victim(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_run *low,
                            uint32_t n_tokens, pleat__policy_step *step) {
    float least;
    step->low_victim = pleat__scan_least(scan, low, n_tokens, spec->window, threshold(spec->al, n_tokens), &least);
}

pleat__policy_step pleat__leankv_step(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                                      uint32_t n_tokens) {
    const uint32_t left = n_tokens - 1 - spec->window;
    pleat__policy_step step = pleat__policy_no_step();
    step.left_slot = pleat__scan_find(scan, &lane->high, left);
    if (step.left_slot == PLEAT__NO_SLOT) return step;
    const bool is_code = spec->step == PLEAT_STEP_CODE;
    if (!is_code) {
        const float significance = significance_at(&lane->high, step.left_slot, left, n_tokens);
        step.left_level = pleat__leankv_level(spec, significance, left, n_tokens, false);
    }
    if (step.left_level == PLEAT_LEVEL_HIGH) find_high_victim(spec, scan, &lane->high, n_tokens, &step);
    if (step.left_level == PLEAT_LEVEL_LOW || is_code) find_low_victim(spec, scan, &lane->low, n_tokens, &step);
    return step;
}

void pleat__leankv_leavers(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                           uint32_t n_tokens, pleat__leavers *out) {
    const float ah = threshold(spec->ah, n_tokens), al = threshold(spec->al, n_tokens);
    const uint32_t most = 2 * spec->every;
    float significance[PLEAT__LEAVERS_CAP];
    out->n_low = pleat__scan_below(scan, &lane->low, n_tokens, spec->window, al, most, out->low, significance);
    out->n_high = pleat__scan_below(scan, &lane->high, n_tokens, spec->window, ah, most, out->high, significance);
    for (uint32_t i = 0; i < out->n_high; i++) out->is_dropped[i] = significance[i] < al;
}

static void class_prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                         uint8_t *levels, float *scratch) {
    (void)scratch;
    pleat__tracked page;
    for (pleat__page_walk walk = pleat__walk_pages(&lane->high); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++) {
            pleat_level level = PLEAT_LEVEL_DROPPED;
            if (page.positions[i] >= 0) {
                const uint32_t position = (uint32_t)page.positions[i];
                const float significance = pleat__significance(page.sums[i], position, n_tokens);
                level = position < classed ? PLEAT_LEVEL_HIGH
                                           : pleat__leankv_level(spec, significance, position, n_tokens, true);
            }
            levels[page.first + i] = (uint8_t)level;
        }
    }
}

static bool has_low_side(const pleat_spec *spec) { return spec->al < spec->ah; }

static bool stays_low(const pleat_spec *spec, float significance, uint32_t position, uint32_t n_tokens) {
    return pleat__leankv_level(spec, significance, position, n_tokens, false) != PLEAT_LEVEL_DROPPED;
}

const pleat__leveler pleat__leveler_leankv = {.step = pleat__leankv_step,
                                              .leavers = pleat__leankv_leavers,
                                              .prompt = class_prompt,
                                              .has_low_side = has_low_side,
                                              .stays_low = stays_low};
