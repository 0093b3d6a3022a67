/* SPDX-License-Identifier: MIT
 *
 * backend.h: what serving asks of whoever computes: an engine, or prices and counters.
 *
 *     serving ── pleat__backend ─┬─ backend_engine.c      a pleat_engine: pages, logits, the clock on the wall
 *                                └─ backend_simulated.c   columns of pages and a clock that steps and swaps wind on
 *
 * Sequences are the backend's own handles.  Functions follow cache.h and engine.h where they are named alike: PLEAT_AGAIN
 * means too few free pages, an error leaves everything as it was.  ctx is the backend's.
 */
#ifndef PLEAT_ENGINE_BACKEND_H
#define PLEAT_ENGINE_BACKEND_H

#include "core/types.h"
#include "pleat/serving.h"

/* What does not change. */
typedef struct pleat__backend_shape {
    uint64_t n_pages; /* of the pool */
    uint64_t page_bytes;
    uint32_t n_lanes;     /* of a sequence */
    uint32_t page_tokens; /* of the high format */
    uint32_t spare_pages; /* that a lane may take in a step beyond those of its tokens in the high format */
    uint32_t most_slots;  /* of a lane that is a ring; 0: there is no such limit */
    double fraction;      /* of its tokens that a sequence holds slots for, at most; 0 < fraction <= 1 */
    uint32_t max_items, max_seqs, max_tokens, chunk_tokens, step_tokens; /* as of an engine */
    const pleat_model *model; /* NULL: there are no logits, and every id is a token */
    uint32_t n_vocab;
    bool has_policy;   /* a step that was cancelled leaves traces in the scores of its sequences */
    bool can_compress; /* compress() does something: ah and al are those in force at first */
    float ah, al;
    char key[PLEAT_SPEC_TEXT_CAP]; /* what prefixes depend on beside their tokens */
} pleat__backend_shape;

/* A sequence in the host's memory. */
typedef struct pleat__image {
    void *data; /* the backend's; NULL: none */
    uint64_t data_bytes;
    uint64_t n_bytes; /* that it would take, and has cost to move */
    uint64_t n_pages; /* that restoring takes */
} pleat__image;

typedef struct pleat__backend {
    void *ctx;
    pleat__backend_shape shape;

    pleat_status (*open)(void *ctx, uint32_t max_tokens, pleat_seq *out);
    pleat_status (*fork)(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out);
    void (*close)(void *ctx, pleat_seq seq);
    /* One step of the engine. */
    pleat_status (*run)(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_error *err);

    uint64_t (*pages_needed)(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags);
    uint64_t (*pages_of)(void *ctx, pleat_seq seq); /* O(1) */
    uint64_t (*pages_shared)(void *ctx, pleat_seq a, pleat_seq b);
    uint64_t (*pages_used)(void *ctx); /* of the pool */
    void (*pages_by_side)(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low);

    uint64_t (*image_bytes)(void *ctx, pleat_seq seq, pleat_seq base);
    pleat_status (*save)(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out);
    pleat_status (*restore)(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out);
    void (*drop)(void *ctx, pleat__image *image);
    pleat_status (*compress)(void *ctx, pleat_seq seq, float ah, float al);

    uint64_t (*clock_ns)(void *ctx);
    void (*advance)(void *ctx, uint64_t ns);
    uint64_t (*manage_ns)(void *ctx); /* that its steps have spent on pages and compaction so far */
    bool (*is_valid)(void *ctx);
    void (*destroy)(void *ctx);
} pleat__backend;

/* PLEAT_E_ARG with words in err, or PLEAT_E_MEMORY. */
pleat_status pleat__backend_on_engine(pleat_engine *engine, const pleat_allocator *allocator, pleat__backend *out,
                                      pleat_error *err);
pleat_status pleat__backend_simulated(const pleat_simulation *simulation, const pleat_allocator *allocator,
                                      pleat__backend *out, pleat_error *err);

/* Slots of one lane that n tokens take at most, and the pages of these. */
static inline uint64_t pleat__backend_slots(const pleat__backend_shape *shape, uint32_t n_tokens) {
    const double exact = n_tokens * shape->fraction;
    const uint64_t whole = (uint64_t)exact, n_slots = whole + ((double)whole < exact);
    return shape->most_slots && n_slots > shape->most_slots ? shape->most_slots : n_slots;
}

static inline uint64_t pleat__backend_lane_pages(const pleat__backend_shape *shape, uint32_t n_tokens) {
    return (pleat__backend_slots(shape, n_tokens) + shape->page_tokens - 1) / shape->page_tokens;
}

/* The most pages that a sequence of n_tokens holds, in a step too. */
static inline uint64_t pleat__backend_pages_for(const pleat__backend_shape *shape, uint32_t n_tokens) {
    const uint32_t spare = shape->spare_pages > 0 ? shape->spare_pages + 1 : 0;
    return shape->n_lanes * (pleat__backend_lane_pages(shape, n_tokens) + spare);
}

/* The most pages that n_new tokens come to hold behind n_before others, copies apart; exact without spare pages. */
static inline uint64_t pleat__backend_pages_behind(const pleat__backend_shape *shape, uint32_t n_before,
                                                   uint32_t n_new) {
    if (shape->spare_pages > 0) return shape->n_lanes * pleat__backend_lane_pages(shape, n_new);
    return shape->n_lanes *
           (pleat__backend_lane_pages(shape, n_before + n_new) - pleat__backend_lane_pages(shape, n_before));
}

/* The most that the step takes which stores them. */
static inline uint64_t pleat__backend_pages_in_step(const pleat__backend_shape *shape, uint32_t n_before,
                                                    uint32_t n_new) {
    return pleat__backend_pages_behind(shape, n_before, n_new) + (uint64_t)shape->n_lanes * shape->spare_pages;
}

#endif
