/* SPDX-License-Identifier: MIT
 *
 * all.c: lanes that keep every token, in one format, in the order of positions: token p stands in slot p.
 *
 * A step writes behind the last token alone, and its end changes nothing.
 */
#include "cache/keep/plain.h"

const pleat__keep pleat__keep_all = {
    .has_equal_lanes = true,
    .derive = pleat__plain_derive,
    .lane_slots = pleat__plain_lane_slots,
    .lane_pages = pleat__plain_lane_pages,
    .first_written = pleat__plain_first_written,
    .low_run = pleat__plain_low_run,
    .lane_is_sound = pleat__plain_lane_is_sound,
    .find = pleat__plain_find,
    .list = pleat__plain_list,
    .is_valid = pleat__plain_is_valid,
};
