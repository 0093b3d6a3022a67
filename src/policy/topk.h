/* SPDX-License-Identifier: MIT
 *
 * topk.h: every lane keeps the same share of its tokens, those of the highest significance; there is no low side.  The
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
#ifndef PLEAT_POLICY_TOPK_H
#define PLEAT_POLICY_TOPK_H

#include "policy/policy.h"

/* Tokens that a lane may hold. */
uint32_t pleat__topk_budget(const pleat_spec *spec, uint32_t n_tokens);

#endif
