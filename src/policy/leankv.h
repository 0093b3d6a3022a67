/* SPDX-License-Identifier: MIT
 *
 * leankv.h: which tokens of a lane are kept high, kept low or dropped.  LeanKV, section 4, with what it leaves open.
 *
 *     level(i)        = high   if i >= N - window
 *                       high   if significance(i) >= ah / L
 *                       low    if significance(i) >= al / L
 *                       drop   otherwise
 *
 * N, i and significance as in policy.h.  L is N; with threshold=position it is i + 1 for the tokens of a prompt, as the
 * text of section 4 has it, which demotes the first tokens.
 *
 * Prompt: every token that has left the window and was not classed before is classed by level().
 *
 * Generation: one token, c = N - 1 - window, leaves the window in a step.
 *
 *     step=paper (Algorithm 1, T = a/N)
 *         c high   stays; victim: the least significant high token outside the window.  Becomes low, dropped, or stays
 *         c low    moves to the low side; victim: the least significant low token, dropped if its level is drop
 *         c drop   dropped; no victim
 *     step=code (the order of the authors' code)
 *         c stays high whatever it received.  Victims: the least significant high token outside the window, c included,
 *         which becomes low, dropped or stays; and the least significant low token, dropped if its level is drop
 *
 * c is not its own victim under step=paper: it was found at least as significant as the threshold that a victim must
 * miss.
 */
#ifndef PLEAT_POLICY_LEANKV_H
#define PLEAT_POLICY_LEANKV_H

#include "policy/policy.h"

/* The level of a token; `in_prompt` lets threshold=position apply. */
pleat_level pleat__leankv_level(const pleat_spec *spec, float significance, uint32_t position, uint32_t n_tokens,
                                bool in_prompt);

/* policy.h's two questions; for the first n_tokens > spec->window. */
pleat__policy_step pleat__leankv_step(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                                      uint32_t n_tokens);
void pleat__leankv_prompt(const pleat_spec *spec, const pleat__kv_run *high, uint32_t n_tokens, uint32_t classed,
                          uint8_t *levels);

#endif
