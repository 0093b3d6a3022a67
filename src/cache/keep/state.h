/* SPDX-License-Identifier: MIT
 *
 * state.h: what the kinds of lanes leave in a cache: their own derived sizes, and how attention received is counted.
 */
#ifndef PLEAT_CACHE_KEEP_STATE_H
#define PLEAT_CACHE_KEEP_STATE_H

#include "cache/keep/promise.h"
#include "codec/rd.h"
#include "policy/evict.h"
#include "policy/leverage.h"

/* Which attention received is counted in the slots' scores: prompt.c and decode.c do the counting.  All zero: none. */
typedef struct pleat__counting {
    bool of_prompts;    /* what prompt chunks attend to */
    bool of_steps;      /* what single tokens attend to */
    bool is_largest;    /* the largest weight over the group's heads; else their sum, or a score for each head */
    bool is_by_head;    /* a score for each head */
    bool is_error;      /* not what is given, but what would be missed (policy/dropkv.h) */
    bool is_peak;       /* the most that one query head of a replay gives, and nothing else (policy/kvzip.c) */
    float every_log2;   /* a single token's attention counts 2^this times: for those since the last one that counted */
    uint32_t first;     /* the slot's score that attention is added to; those before are the policy's own */
    uint32_t n_queries; /* only so many last queries of a prompt count; 0: all */
} pleat__counting;

/* What a row's derive and init have found out.  Only the file of a part's kind reads it. */
typedef struct pleat__kept {
    struct {
        uint32_t *windows;   /* [n_layers] 0: a full layer */
        uint32_t *max_slots; /* [n_lanes] slots of a ring; UINT32_MAX: a full layer's lane */
        uint32_t *full_idx;  /* [n_layers] full layers before it */
    } ring;
    struct {
        bool is_two_sided; /* there is a low side of tokens */
    } levels;
    struct {
        const pleat__evictor *evictor;
        uint32_t byte_tokens; /* what a budget in bytes comes to */
    } budget;
    struct {
        pleat__turns *turns; /* [n_layers] of full layers; NULL: the policy looks at no keys */
        float *means;        /* [full lanes][head_dim] the model's, of length 1; NULL: the sequence's */
    } novelty;
    struct {
        pleat__block_format format;
        bool has_codebooks;     /* of each sequence's layers */
        pleat__rd_lane *rd;     /* [full lanes]; NULL unless the format is rd's */
        pleat__rd_turns *turns; /* [n_layers] of full layers, likewise */
        bool has_promise;       /* the spec is auto */
        pleat__promise promise;
    } blocks;
} pleat__kept;

#endif
