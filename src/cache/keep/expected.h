/* SPDX-License-Identifier: MIT
 *
 * expected.h: scoring the tokens of expected's lanes by the queries that are to be expected (policy/expected.h).
 *
 *     of the cache      how RoPE turned each layer's keys: novelty's tables
 *     of a sequence     sums over its queries, of each full layer and query head, twice: as they were before the last
 *                       step in which it had queries, and as they are with it.  A step that is cancelled, or has not
 *                       ended, leaves those before it.
 *
 * Sums are added token by token, so it does not matter how a prompt was cut into steps.  A score is taken when a prompt
 * ends: of all tokens of a lane, with all queries so far.
 */
#ifndef PLEAT_CACHE_KEEP_EXPECTED_H
#define PLEAT_CACHE_KEEP_EXPECTED_H

#include "cache/keep/keep.h"

/* Whether the spec's policy scores tokens so.  Without it the functions below do nothing. */
static inline bool pleat__expects(const pleat_cache *c) {
    return pleat__scoring_of(&c->opt.spec) == PLEAT__SCORING_EXPECTED;
}

/* Of keep.h's row. */
void pleat__expected_carve_seq(const pleat_cache *c, pleat__sequence *seq, pleat__arena *arena);
void pleat__expected_open_seq(const pleat_cache *c, pleat__sequence *seq);
void pleat__expected_look(const pleat__layer_job *job);
void pleat__expected_fork(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to);
uint64_t pleat__expected_image_bytes(const pleat_cache *c);
void pleat__expected_write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out);
bool pleat__expected_read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                                pleat__sequence *seq);

/* Memory of a unit. */
void pleat__expected_carve_unit(const pleat_cache *c, pleat__expected_scratch *scratch, pleat__arena *arena);

/* At the end of a prompt: score all tokens of a lane. */
void pleat__expected_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                               pleat__expected_scratch *scratch);

#endif
