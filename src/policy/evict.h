/* SPDX-License-Identifier: MIT
 *
 * evict.h: the policies that keep a lane within a budget by dropping tokens: random, recent, streaming, h2o, snapkv,
 * pyramidkv, adakv, novel, expected, dropkv, kvzip, leverage.  Each is a file with one pleat__evictor, and a row in
 * evict.c's table.
 *
 * N tokens of the sequence so far, B the budget of a lane.  Of a lane's tokens
 *
 *     protected   positions below `sinks`, positions >= N - window, sealed tokens, and those whose score is infinite
 *                 (of several scores: the first)
 *     candidates  all others; each has a rank >= 0
 *     middle      max(0, B - protected tokens): candidates that the lane may keep
 *
 * End of a prompt: the `middle` candidates of the highest rank stay, ties to the older.  A policy may move budget
 * between layers (pyramidkv) or between the lanes of a layer (adakv).  With +kvcrush a share of the middle goes to
 * representatives (kvcrush.h); those of earlier prompts that a lane's budget has no room for go, the youngest first.
 *
 * Behind +novel the first `share` of the middle, made up to a whole token, are the candidates whose keys are least like
 * the others' (novelty.h), ties to the older; the policy chooses the rest among those that are left.
 *
 * Generation, once a step and lane, where the policy evicts there: if the lane holds more than B tokens, the candidate
 * of the least rank goes, the younger among equals.  What +novel has chosen is no candidate until a prompt ends again.
 *
 * Ranks depend on positions and scores alone, never on slots: in which slots tokens stand (what reclaim/ decides) does
 * not change what is kept.
 *
 * What is counted as a token's score (the cache does, [n_scores] of them where query heads are told
 * apart, one that is their sum elsewhere):
 *
 *     NONE     nothing
 *     MAX      of each later query, the largest over the group                     leankv, topk
 *     SUM      of each later query, summed over the group
 *     WINDOW   the same of the last `window` queries of a prompt alone.  Where its last part has n < window queries,
 *              what the part before attended to counts for the other window - n: score = score * (1 - n/window) + received.
 *              What single tokens attend to does not count
 *     ERROR    of the same queries in place of what they give: how far what each finds would move without the token
 *              (dropkv.h)                                                                        dropkv
 *     REPLAY   the most that one query head of a replay gives (PLEAT_ITEM_REPLAY), and of nothing else      kvzip
 *     NOVELTY  how unlike the key is to the lane's: no attention (novelty.h)                     novel
 *     LEVERAGE how far the key stands out (leverage.h)                                          leverage
 *     EXPECTED what it may expect of the queries to come (expected.h)                           expected
 *
 * Behind novel and expected merge, which goes by attention, has a score of its own, the second: SUM.  Behind +novel the first score is
 * the novelty, infinite for what it has chosen, and the policy's own, where it has one, is the second.
 *
 * Pure functions of what they are handed.
 */
#ifndef PLEAT_POLICY_EVICT_H
#define PLEAT_POLICY_EVICT_H

#include "core/memory.h"
#include "policy/policy.h"
#include "policy/scan.h"

typedef enum pleat__scoring {
    PLEAT__SCORING_NONE,
    PLEAT__SCORING_MAX,
    PLEAT__SCORING_SUM,
    PLEAT__SCORING_WINDOW,
    PLEAT__SCORING_ERROR,
    PLEAT__SCORING_REPLAY,
    PLEAT__SCORING_NOVELTY,
    PLEAT__SCORING_EXPECTED,
    PLEAT__SCORING_LEVERAGE
} pleat__scoring;

/* One lane's open slots. */
typedef struct pleat__evict_lane {
    const pleat_spec *spec;
    const pleat__kv_run *run; /* high slots that are not sealed; dead ones have position -1 */
    uint32_t layer, head;     /* KV head */
    uint32_t n_tokens;        /* N */
} pleat__evict_lane;

/* What becomes of a slot's token. */
typedef enum pleat__verdict {
    PLEAT__VERDICT_DROP,  /* dropped, or the slot is dead */
    PLEAT__VERDICT_KEEP,  /* may go another time */
    PLEAT__VERDICT_STAND, /* stays: a representative, for good; or novel, until a prompt ends */
} pleat__verdict;

/* One layer of a sequence at the end of a prompt. */
typedef struct pleat__evict_layer {
    const pleat_spec *spec;
    uint32_t layer, n_layers;
    uint32_t n_lanes;            /* KV heads */
    uint32_t n_tokens;           /* N */
    uint32_t budget;             /* B >= sinks + window */
    uint32_t page_tokens;        /* of the cache: a unit of kvcrush's unit=page */
    const pleat__kv_view *lanes; /* [n_lanes] high: open slots */
} pleat__evict_layer;

/* Ranks of the PLEAT__SCAN_BLOCK slots from slot `first` of a page on: finite and >= 0; anything for those that are
 * dead or behind the last in use. */
typedef void (*pleat__rank_block_fn)(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first,
                                     float *ranks);

/* A policy. */
typedef struct pleat__evictor {
    pleat__scoring scoring;
    bool in_generation; /* rank is NULL: a token's rank is found without the others' */
    pleat__rank_block_fn rank_block;
    /* ranks[slot] of a whole run, made of what rank_block returns; NULL: it stays.  by_position: scratch, see carve. */
    void (*rank)(const pleat__evict_lane *lane, float *ranks, float *by_position);
    /* Change middle[n_lanes], B less a lane's protected tokens, below 0 where these are more; NULL: it stays.
     * ranks[lane][slot] are -1 for slots that are no candidates. */
    void (*budgets)(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle);
    /* How many times the budget one lane may come to hold where a layer has n_lanes of them; NULL: once. */
    uint32_t (*budget_spread)(uint32_t n_lanes);
    bool by_fall; /* budgets and budget_spread are for specs whose fall is above 0 */
} pleat__evictor;

extern const pleat__evictor pleat__evictor_random, pleat__evictor_recent, pleat__evictor_streaming, pleat__evictor_h2o,
    pleat__evictor_snapkv, pleat__evictor_pyramidkv, pleat__evictor_adakv, pleat__evictor_novel,
    pleat__evictor_expected, pleat__evictor_dropkv, pleat__evictor_kvzip, pleat__evictor_leverage;

/* The policy's row; NULL for those that do not evict by budget. */
const pleat__evictor *pleat__evictor_of(pleat_policy policy);

/* Whether lanes have budgets of their own. */
bool pleat__moves_budgets(const pleat_spec *spec);

/* middle[n_lanes] becomes what budgets that fall from layer to layer leave this one, where the last layer's have `least`
 * beside the window, and sinks (pyramidkv.c). */
void pleat__fall_by_layer(const pleat__evict_layer *layer, int64_t least, int64_t *middle);

/* budget_spread of such budgets. */
uint32_t pleat__fall_spread(uint32_t n_lanes);

/* Whether a lane's tokens are scored by their keys, for the policy itself or behind it. */
bool pleat__scores_novelty(const pleat_spec *spec);

/* Whether keys or queries are looked at as they were before RoPE; and keys. */
bool pleat__turns_back(const pleat_spec *spec);
bool pleat__looks_at_keys(const pleat_spec *spec);

/* Whether a score is the policy's own, and no attention that was received. */
bool pleat__is_own_score(pleat__scoring scoring);

/* What tokens are ranked by, what attention is counted beside it or for it, in which of a slot's scores, and how many
 * scores a slot has in a group of n_group query heads. */
pleat__scoring pleat__scoring_of(const pleat_spec *spec);
pleat__scoring pleat__counted_of(const pleat_spec *spec);
uint32_t pleat__first_counted(const pleat_spec *spec);
uint32_t pleat__n_scores_of(const pleat_spec *spec, uint32_t n_group);

/* B for a prompt of n_prompt tokens.  byte_tokens: what a budget in bytes comes to, in tokens of a lane. */
uint32_t pleat__evict_budget(const pleat_spec *spec, uint32_t n_prompt, uint32_t byte_tokens);

/* The most tokens that one of a layer's n_lanes lanes may come to hold then: B, or what it may have where budget moves. */
uint32_t pleat__evict_max_budget(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_prompt, uint32_t byte_tokens);

/* ---- ranks that policies share --------------------------------------------------------------------- */

/* The position: the newest is the best. */
void pleat__rank_position(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first, float *ranks);

/* The lanes of a layer share its budget: adakv.c.  Each is sure of one of `n_parts` of its middle, or of nothing where
 * that is 0; what is left goes to the best of the layer. */
void pleat__share_layer(const pleat__evict_layer *layer, float *const *ranks, int64_t *middle, int64_t n_parts);

/* Attention received: the sum of a slot's scores in their order, but for novelty's; 0 where it is infinite or NaN. */
void pleat__rank_received(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first, float *ranks);

/* The same, pooled: snapkv.c.  A whole run; ranks: what was received. */
void pleat__rank_pooled(const pleat__evict_lane *lane, float *ranks, float *by_position);

/* A score of the policy's own, the first: behind it there may be the attention received.  0 where it is infinite or
 * NaN. */
void pleat__rank_own(const pleat__evict_lane *lane, const pleat__tracked *page, uint32_t first, float *ranks);

/* ---- decisions --------------------------------------------------------------------------------------- */

/* Memory of one layer's decision. */
typedef struct pleat__evict_scratch {
    float **ranks;      /* [n_lanes][slots_cap], with whole blocks (policy/scan.h) */
    float *by_position; /* [max_tokens + 8] */
    float *floats;      /* [slots_cap] */
    int64_t *room;      /* [n_lanes] middle, or what protected tokens are too many */
    uint32_t *middle;   /* [n_lanes] */
    void *crush;        /* pleat__crush_carve()'s; NULL without kvcrush */
} pleat__evict_scratch;

/* Lanes of slots_cap slots, sequences of max_tokens. */
void pleat__evict_carve(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_group, uint32_t slots_cap,
                        uint32_t max_tokens, pleat__evict_scratch *out, pleat__arena *arena);

/* End of a prompt: verdicts[lane][slot] (pleat__verdict) of each lane's open slots. */
void pleat__evict_prompt(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch,
                         uint8_t *const *verdicts);

/* Generation: the slot that goes, or PLEAT__NO_SLOT if there is no candidate or the policy does not evict there.  The
 * caller has found the lane above its budget.  ranks: scratch of PLEAT__SCAN_BLOCK. */
uint32_t pleat__evict_victim(const pleat__evict_lane *lane, float *ranks);

#endif
