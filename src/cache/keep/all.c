/* SPDX-License-Identifier: MIT
 *
 * all.c: lanes that keep every token, in one format, in the order of positions: token p stands in slot p.
 *
 * A step writes behind the last token alone, and its end changes nothing.
 */
#include "cache/keep/plain.h"

#include <math.h>

/* A slot for each token, or for a fraction of them. */
static void forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q) {
    (void)n, (void)end;
    const uint64_t n_slots = (uint64_t)ceil(q->n_tokens * f->fraction);
    const uint32_t n_lanes = pleat__forecast_full_lanes(f), tokens = f->traits.high_page_tokens;
    q->n_pages = q->high_pages = q->step_pages = n_lanes * ((n_slots + tokens - 1) / tokens);
    q->full_pages = (double)n_lanes * (double)n_slots / tokens;
    q->final_pages = q->still_pages = n_lanes * (n_slots / tokens);
}

const pleat__keep pleat__keep_all = {
    .kind = PLEAT_LANES_WHOLE,
    .has_equal_lanes = true,
    .derive = pleat__plain_derive,
    .lane_slots = pleat__plain_lane_slots,
    .lane_pages = pleat__plain_lane_pages,
    .forecast_step = forecast_step,
    .first_written = pleat__plain_first_written,
    .low_run = pleat__plain_low_run,
    .lane_is_sound = pleat__plain_lane_is_sound,
    .find = pleat__plain_find,
    .list = pleat__plain_list,
    .is_valid = pleat__plain_is_valid,
};
