/* SPDX-License-Identifier: MIT
 *
 * policy.c: hands the cache's questions to the policy of the spec.  A new policy is a case here.
 */
#include "policy/policy.h"

#include <string.h>

#include "policy/leankv.h"
#include "policy/topk.h"

pleat__policy_step pleat__policy_step_of(const pleat_spec *spec, const pleat__scan_dsp *scan,
                                         const pleat__kv_view *lane, uint32_t n_tokens) {
    const bool has_left = n_tokens > spec->window;
    if (has_left && spec->policy == PLEAT_POLICY_LEANKV) return pleat__leankv_step(spec, scan, lane, n_tokens);
    if (has_left && spec->policy == PLEAT_POLICY_TOPK) return pleat__topk_step(spec, scan, lane, n_tokens);
    return pleat__policy_no_step();
}

void pleat__policy_prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                          uint8_t *levels, float *scratch) {
    if (spec->policy == PLEAT_POLICY_LEANKV)
        pleat__leankv_prompt(spec, &lane->high, n_tokens, classed, levels);
    else if (spec->policy == PLEAT_POLICY_TOPK)
        pleat__topk_prompt(spec, lane, n_tokens, levels, scratch);
    else
        memset(levels, PLEAT_LEVEL_HIGH, lane->high.n_slots);
}
