/* SPDX-License-Identifier: MIT
 *
 * sample.h: prompts read on an engine, for a forecast to look at what is kept of them.
 */
#ifndef PLEAT_CLI_SAMPLE_H
#define PLEAT_CLI_SAMPLE_H

#include "pleat/pleat.h"

/* Tokens of the i-th of PLEAT_FORECAST_SAMPLES prompts, each twice as long as the one before; the last has n_tokens. */
uint32_t sample_length(uint32_t n_tokens, uint32_t i);

/* Feed n tokens to a sequence as a prompt, `chunk` in a step. */
pleat_status sample_feed(pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n, uint32_t chunk,
                         pleat_error *err);

/* Take samples of the first tokens, of all of those lengths.  The engine is of the forecast's spec. */
pleat_status sample_prompts(pleat_engine *engine, const pleat_token *tokens, uint32_t n_tokens, uint32_t chunk,
                            pleat_forecast *forecast, pleat_error *err);

#endif
