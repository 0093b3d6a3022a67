/* SPDX-License-Identifier: MIT
 *
 * sample.c: see sample.h.
 */
#include "sample.h"

uint32_t sample_length(uint32_t n_tokens, uint32_t i) {
    const uint32_t n = n_tokens >> (PLEAT_FORECAST_SAMPLES - 1 - i);
    return n ? n : 1;
}

pleat_status sample_feed(pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n, uint32_t chunk,
                         pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (uint32_t done = 0, now; done < n && status == PLEAT_OK; done += now) {
        now = n - done < chunk ? n - done : chunk;
        const uint32_t flags = done + now < n ? PLEAT_ITEM_MORE : 0;
        status = pleat_engine_step(engine, &(pleat_engine_item){seq, tokens + done, now, 0, NULL, flags}, 1, err);
    }
    return status;
}

pleat_status sample_prompts(pleat_engine *engine, const pleat_token *tokens, uint32_t n_tokens, uint32_t chunk,
                            pleat_forecast *f, pleat_error *err) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < PLEAT_FORECAST_SAMPLES && status == PLEAT_OK; i++) {
        const uint32_t n = sample_length(n_tokens, i);
        pleat_seq seq;
        status = pleat_engine_open(engine, n, &seq);
        if (status != PLEAT_OK) return status;
        status = sample_feed(engine, seq, tokens, n, chunk, err);
        if (status == PLEAT_OK) status = pleat_forecast_measure(f, pleat_engine_cache(engine), seq);
        const pleat_status closed = pleat_engine_close(engine, seq);
        if (status == PLEAT_OK) status = closed;
    }
    return status;
}
