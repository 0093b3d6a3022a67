/* SPDX-License-Identifier: MIT
 *
 * policy.h: which tokens of a lane are kept, and how well: what the cache asks whichever policy its spec names.
 *
 * N is the number of tokens of the sequence so far, i a token's position.  sum(i) is the attention it has received from
 * the tokens after it: the sum over later queries of the largest weight that a query head of the group gave it.
 *
 *     significance(i) = sum(i) / (N - 1 - i)        mean over the later queries; 0 for the newest token
 *
 * (The paper takes for each head the mean, then the largest over the group.  One sum a token serves if each query adds
 * its largest, which is never less.  It is 1.23 times that at the median, 1.51 at the 90th percentile on 1479 tokens of
 * prose with the reference model, G = 2, 2026-11.  An ah a quarter higher takes about as many; at ah = 30 0.2 % of the
 * tokens have another level, at ah = 3 10 %.)
 *
 * A token stays high while i >= N - window.  When several tokens have left the window at once, at the end of a prompt,
 * each gets a level; when one has, in a step of generation, that one is, and other tokens may have to go: victims.
 * Among victims ties go to the lower slot.  A victim is found before any token moves, so that the slot that it leaves
 * can be taken at once.
 *
 * leankv.h and topk.c say what each policy decides, scan.h how lanes are searched.  A policy is a file with its
 * pleat__leveler and a row in policy.c's table; policies that keep a budget have rows of their own (evict.h).
 * Everything here is a pure function of what it is handed; scores and positions are read through a kv_view.
 */
#ifndef PLEAT_POLICY_POLICY_H
#define PLEAT_POLICY_POLICY_H

#include <math.h>

#include "core/kv_view.h"

/* How lanes are searched: scan.h. */
typedef struct pleat__scan_dsp pleat__scan_dsp;

/* No slot. */
#define PLEAT__NO_SLOT UINT32_MAX

/* 0 <= position < n_tokens. */
static inline float pleat__significance(float sum, uint32_t position, uint32_t n_tokens) {
    return position + 1 < n_tokens ? sum / (float)(n_tokens - 1 - position) : 0.0f;
}

/* A share of n tokens, made up to a whole one.  A share stands for a decimal: that the float which it may have been is a
 * little above it (by 2^-24 of it) takes no more. */
static inline uint32_t pleat__share_tokens(double share, uint32_t n) {
    const double exact = share * n;
    return (uint32_t)ceil(exact - exact * 0x1p-24);
}

/* Is the position among the newest `window`?  position < n_tokens. */
static inline bool pleat__in_window(uint32_t position, uint32_t n_tokens, uint32_t window) {
    return n_tokens - position <= window;
}

/* What a step of generation does to one lane.  Slots are of the side named; PLEAT__NO_SLOT: none. */
typedef struct pleat__policy_step {
    uint32_t left_slot;     /* high slot of the token that left the window; if it is not there, nothing happens */
    pleat_level left_level; /* what becomes of it */
    uint32_t high_victim;
    pleat_level high_level; /* what becomes of high_victim: low or dropped */
    uint32_t low_victim;    /* dropped */
} pleat__policy_step;

/* Everything stays as it is. */
static inline pleat__policy_step pleat__policy_no_step(void) {
    return (pleat__policy_step){.left_slot = PLEAT__NO_SLOT,
                                .left_level = PLEAT_LEVEL_HIGH,
                                .high_victim = PLEAT__NO_SLOT,
                                .high_level = PLEAT_LEVEL_HIGH,
                                .low_victim = PLEAT__NO_SLOT};
}

/* Of steps of generation, is the one that makes the sequence n_tokens long counted: does its attention count, and are
 * tokens classed at its end?  By the sequence's length, so that it is the same alone and in company. */
static inline uint32_t pleat__counted_every(const pleat_spec *spec) { return spec->every > 1 ? spec->every : 1; }
/* The same of a prompt's tokens.  All count where tokens are dropped: of few queries too many would be. */
static inline uint32_t pleat__counted_every_of_prompts(const pleat_spec *spec) {
    return spec->al > 0 ? 1 : pleat__counted_every(spec);
}
static inline bool pleat__step_is_counted(const pleat_spec *spec, uint32_t n_tokens) {
    return n_tokens % pleat__counted_every(spec) == 0;
}

/* Who leaves one lane at the end of a counted step where not every step is: slots from the lowest on. */
#define PLEAT__LEAVERS_CAP 16u /* 2 * every, at most */
typedef struct pleat__leavers {
    uint32_t n_high, n_low;
    uint32_t high[PLEAT__LEAVERS_CAP], low[PLEAT__LEAVERS_CAP]; /* low: dropped */
    bool is_dropped[PLEAT__LEAVERS_CAP];                        /* of high: else it becomes low */
} pleat__leavers;

/* A policy with levels.  step and prompt are the two questions below, which ask the spec's policy. */
typedef struct pleat__leveler {
    pleat__policy_step (*step)(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane,
                               uint32_t n_tokens);
    void (*prompt)(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                   uint8_t *levels, float *scratch);
    /* The end of a counted step, with spec->every > 1.  NULL: the policy counts every step. */
    void (*leavers)(const pleat_spec *spec, const pleat__scan_dsp *scan, const pleat__kv_view *lane, uint32_t n_tokens,
                    pleat__leavers *out);
    bool (*has_low_side)(const pleat_spec *spec); /* NULL: no token is ever low */
    /* Whether a token of the low side stays there, by thresholds that may have been raised; of policies that have
     * one. */
    bool (*stays_low)(const pleat_spec *spec, float significance, uint32_t position, uint32_t n_tokens);
} pleat__leveler;

extern const pleat__leveler pleat__leveler_leankv, pleat__leveler_topk;

/* The policy's row; NULL for those without levels. */
const pleat__leveler *pleat__leveler_of(pleat_policy policy);

/* Whether lanes have a low side of tokens. */
bool pleat__policy_has_low_side(const pleat_spec *spec);

/* The step of generation for spec->policy, when exactly one token of the lane has left the window: the one at position
 * n_tokens - 1 - spec->window.  The low side need not be tracked if spec->al is 0. */
pleat__policy_step pleat__policy_step_of(const pleat_spec *spec, const pleat__scan_dsp *scan,
                                         const pleat__kv_view *lane, uint32_t n_tokens);

/* Class the tokens of the lane's high side: levels[slot] for each of its n_slots.  Tokens inside the window and tokens
 * at positions below `classed` stay high (leankv: they were classed before); dead slots are dropped.
 * scratch: n_slots floats.  topk classes all tokens again. */
void pleat__policy_prompt(const pleat_spec *spec, const pleat__kv_view *lane, uint32_t n_tokens, uint32_t classed,
                          uint8_t *levels, float *scratch);

#endif
