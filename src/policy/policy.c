/* SPDX-License-Identifier: MIT
 *
 * policy.c: hands the cache's questions to the policy of the spec.  A new policy with levels is a row here.
 */
#include "policy/policy.h"

#include <string.h>

const pleat__leveler *pleat__leveler_of(pleat_policy policy) {
    static const pleat__leveler *const rows[] = {
        [PLEAT_POLICY_LEANKV] = &pleat__leveler_leankv,
        [PLEAT_POLICY_TOPK] = &pleat__leveler_topk,
    };
    return (size_t)policy < sizeof rows / sizeof rows[0] ? rows[policy] : NULL;
}

bool pleat__policy_has_low_side(const pleat_spec *spec) {
    const pleat__leveler *leveler = pleat__leveler_of(spec->policy);
    return leveler && leveler->has_low_side && leveler->has_low_side(spec);
}

pleat__policy_step pleat__policy_step_of(const pleat_spec *spec, const pleat__scan_dsp *scan,
                                         const pleat__kv_view *lane, uint32_t n_tokens) {
    const pleat__leveler *leveler = pleat__leveler_of(spec->policy);
    return leveler && n_tokens > spec->window ? leveler->step(spec, scan, lane, n_tokens) : pleat__policy_no_step();
}

void pleat__policy_prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                          uint8_t *levels, float *scratch) {
    const pleat__leveler *leveler = pleat__leveler_of(spec->policy);
    if (leveler)
        leveler->prompt(spec, lane, n_tokens, classed, levels, scratch);
    else
        memset(levels, PLEAT_LEVEL_HIGH, lane->high.n_slots);
}
