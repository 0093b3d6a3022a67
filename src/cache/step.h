/* SPDX-License-Identifier: MIT
 *
 * step.h: the step that is under way, its items, and the arguments that a layer's units are handed.
 *
 *     idle ──begin──> in step ──attend, store──> in step ──end──> idle       lengths grow at end
 *       <──────────────cancel─────────────┘                                  pages are returned
 *
 * In a step the tables already hold the new tokens' pages while table.n_slots and seq.n_tokens are still those before.
 * A prompt chunk's tokens take the slots after the high side's last; a single token takes the lane's hole if there is
 * one.
 *
 * Work of a step's layer is cut into units by the lengths of sequences and their lanes alone, so that neither the
 * thread count nor the neighbours change a result:
 *
 *     prompt item   (head, block of query positions), after all its heads are staged
 *                   (head, range of slots) for the attention that these received, after that
 *     single token  (head, split of the lane's slots); whoever finishes a lane last merges its splits in order
 */
#ifndef PLEAT_CACHE_STEP_H
#define PLEAT_CACHE_STEP_H

#include "cache/sequence.h"
#include "page/plan.h"
#include "policy/policy.h"

/* What the end of a step does to the lanes of an item's sequence. */
typedef enum pleat__compaction {
    PLEAT__COMPACT_NOT,    /* no policy, no token left the window, or more of the prompt follows */
    PLEAT__COMPACT_STEP,   /* a step of generation: one token left the window, or those since the last counted step */
    PLEAT__COMPACT_PROMPT, /* several did, or blocks are due */
} pleat__compaction;

/* One sequence's step in numbers: with the options all that the plan of its end depends on.  The step that is under way
 * and a forecast (pleat/forecast.h) hand the same ones to the same functions. */
typedef struct pleat__item_counts {
    uint32_t n_before, n_new;     /* tokens stored before the step, and of the step */
    uint32_t n_classed, n_prompt; /* of the sequence, before the step */
    uint32_t flags;               /* PLEAT_ITEM_* */
} pleat__item_counts;

/* The end of a step as begin has planned it for one item. */
typedef struct pleat__item_end {
    pleat__compaction compaction;
    uint32_t seal;      /* PLEAT_ITEM_SEAL or _SEAL_ALL; 0: neither */
    uint32_t n_classed; /* of the sequence when the step has ended */
    uint32_t n_prompt;  /* of the sequence when the step has ended */
    uint32_t budget;    /* eviction: tokens that a lane may keep */
    uint32_t n_fresh;   /* pages that each lane takes for what is copied (reclaim=copy) */
} pleat__item_end;

/* The end that changes no lane.  A prompt's last part may be a single token: then more leave the window than ever do
 * between two counted steps. */
static inline pleat__item_end pleat__item_end_at(const pleat__item_counts *n, const pleat_spec *spec) {
    const uint32_t n_after = n->n_before + n->n_new, most = spec->window + n->n_classed + pleat__counted_every(spec);
    const bool ends_prompt = !(n->flags & PLEAT_ITEM_MORE) && (n->n_new > 1 || n->n_prompt == 0 || n_after > most);
    return (pleat__item_end){
        .compaction = PLEAT__COMPACT_NOT, .n_classed = n->n_classed, .n_prompt = ends_prompt ? n_after : n->n_prompt};
}

/* Slots of a lane when n_new tokens are stored behind n_slots: a single one takes the hole. */
static inline uint32_t pleat__slots_grown(uint32_t n_slots, bool has_hole, uint32_t n_new) {
    return n_slots + n_new - (n_new == 1 && has_hole);
}

/* Where an item's units stand among those of the step. */
typedef struct pleat__item_units {
    uint32_t n_parts;        /* blocks or strands of queries, or splits, per head */
    uint32_t first;          /* units of the items before */
    uint32_t first_received; /* prompt items: ranges of attention received of the items before */
    uint32_t first_strand;   /* items that are scored at once: strands of the items before */
    uint32_t stage_tile;     /* prompt items: tiles of each head before its own in the staging buffer */
} pleat__item_units;

/* One sequence's share of the step, or of a read (then n_new is 0). */
typedef struct pleat__step_item {
    pleat__sequence *seq;
    uint32_t n_before; /* tokens stored before the step */
    uint32_t n_new;    /* tokens of this step */
    uint32_t row;      /* its first row in q, k, v and out */
    bool is_replay;    /* its tokens are not kept (PLEAT_ITEM_REPLAY) */
    pleat__item_end end;
    pleat__item_units units;
} pleat__step_item;

typedef struct pleat__step {
    bool is_open; /* between begin and end or cancel */
    uint64_t id;
    uint32_t n_items;
    uint32_t n_prompt_items;
    uint32_t n_rows;
    uint32_t n_units;
    uint32_t n_received_units;
    bool walks_twice;        /* a prompt item's queries are needed again, for what slots receive */
    uint8_t *stored;         /* [n_layers] 1: the step's tokens have been stored in this layer */
    pleat__step_item *items; /* [max_items] */
    uint32_t *prompt_items;  /* [max_items] indices of items with n_new > 1 */
    pleat__plan plan;
} pleat__step;

/* One call's arguments, handed to the units. */
typedef struct pleat__layer_job {
    pleat_cache *cache;
    uint32_t layer;
    const float *q;
    const float *k; /* NULL in a read */
    const float *v;
    float *out;
    float *lse; /* natural logarithm; NULL but in some reads */
} pleat__layer_job;

/* Number the units of step.items[0..n_items) and count them. */
void pleat__cache_number_units(pleat_cache *cache);

#endif
