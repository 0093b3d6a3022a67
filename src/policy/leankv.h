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
 * every > 1: only tokens that make N a multiple of every are counted as queries, of generation, and of prompts with al = 0.
 * What they attend to counts `every` times over, for all since the last one, so that significance is still about the mean.
 * A token has up to every-1 queries too many or too few, of at least `window`.  Other steps of generation count and class
 * nothing: up to every-1 tokens more are high.  With al > 0 all of a prompt count, but in a part of one token, which is
 * read as a step.  At the end of a counted step, together:
 *
 *     of the high side   tokens outside the window whose level() is not high become low or are dropped
 *     of the low side    tokens whose level() is drop are dropped
 *
 * of each side 2*every at most, from the lowest slot on; others wait.  No one is a victim in another's place.
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

/* policy.h's questions; for the first n_tokens > spec->window. */
pleat__policy_step pleat__leankv_step(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                                      uint32_t n_tokens);
void pleat__leankv_leavers(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                           uint32_t n_tokens, pleat__leavers *out);

#endif
