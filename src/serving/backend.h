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
#ifndef PLEAT_SERVING_BACKEND_H
#define PLEAT_SERVING_BACKEND_H

#include "core/types.h"
#include "pleat/serving.h"

/* What does not change. */
typedef struct pleat__backend_shape {
    uint64_t n_pages; /* pages of the pool */
    uint64_t page_bytes;
    uint32_t n_lanes;      /* lanes of a sequence */
    uint32_t n_ring_lanes; /* lanes that are rings; what follows of lanes is about the others */
    uint32_t ring_slots;   /* the most slots of a ring */
    uint32_t page_tokens;  /* tokens of a page in the high format */
    uint32_t spare_pages;  /* pages that a lane may take in a step beyond those of its tokens in the high format */
    uint32_t window;       /* newest tokens of a lane that its policy spares */
    bool is_packed;        /* lanes under a budget hold no dead slots but one, which the next token takes */
    bool is_bounded;       /* lanes that hold their budget lose a token for each that comes */
    bool takes_fresh;      /* a step in which lanes lose tokens takes pages for all that stays, until it ends */
    double fraction;       /* part of its tokens that a sequence holds slots for, at most; 0 < fraction <= 1 */
    uint32_t max_items, max_seqs, max_tokens, chunk_tokens, step_tokens; /* limits of an engine (engine.h) */
    const pleat_model *model; /* NULL: there are no logits, and every id is a token */
    uint32_t n_vocab;
    bool has_policy;      /* a step that was cancelled leaves traces in the scores of its sequences */
    bool shares_late;     /* a buffer before blocks: what a fork shares may still be copied after its first step */
    bool can_compress;    /* compress() does something */
    bool has_bases;       /* images can leave pages to another sequence */
    bool finds_likeliest; /* run() finds likeliest tokens cheaper than it hands out logits */
    float ah, al;         /* thresholds in force at first, where it does */
    char key[PLEAT_SPEC_TEXT_CAP]; /* text of what prefixes depend on beside their tokens */
} pleat__backend_shape;

/* A sequence in the host's memory. */
typedef struct pleat__image {
    void *data; /* the backend's; NULL: none */
    uint64_t data_bytes;
    uint64_t n_bytes;    /* bytes that a swap moves: those of data, or of a simulated image's pages */
    uint64_t n_pages;    /* pages that restoring takes */
    uint64_t moved_ns;   /* what saving it took, without finding memory for it */
    uint32_t max_tokens; /* tokens that its sequence is opened for; 0: those that the saved one was */
} pleat__image;

/* What steps have spent on memory so far. */
typedef struct pleat__backend_work {
    uint64_t pages_ns;   /* time of taking and returning pages */
    uint64_t compact_ns; /* time of policies, and of moving and requantising tokens */
    uint64_t tokens_moved, pages_returned;
} pleat__backend_work;

typedef struct pleat__backend {
    void *ctx;
    pleat__backend_shape shape;

    pleat_status (*open)(void *ctx, uint32_t max_tokens, pleat_seq *out);
    pleat_status (*fork)(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out);
    void (*close)(void *ctx, pleat_seq seq);
    /* Pages that fork() takes at once, at most: then it may be PLEAT_AGAIN. */
    uint64_t (*fork_pages)(void *ctx, pleat_seq seq);
    /* One step of the engine.  likeliest: [n_items] the likeliest token behind each item, where the shape finds it; else
     * NULL. */
    pleat_status (*run)(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                        pleat_error *err);

    /* The most tokens of a lane that stay when a prompt of n_prompt tokens has been read, or a part of it; UINT32_MAX:
     * all. */
    uint32_t (*budget)(void *ctx, uint32_t n_prompt);
    uint64_t (*pages_needed)(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags);
    uint64_t (*pages_of)(void *ctx, pleat_seq seq); /* O(1) */
    uint64_t (*pages_shared)(void *ctx, pleat_seq a, pleat_seq b);
    uint64_t (*pages_used)(void *ctx); /* in the pool */
    void (*pages_by_side)(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low);
    void (*slots_of)(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held); /* O(lanes), between steps */
    /* What it holds, and what f16 would for as many tokens, 0 where that is not known.  O(lanes), between steps. */
    void (*bytes_of)(void *ctx, pleat_seq seq, uint64_t *bytes, uint64_t *bytes_f16);

    uint64_t (*image_bytes)(void *ctx, pleat_seq seq, pleat_seq base);
    pleat_status (*save)(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out);
    pleat_status (*restore)(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out);
    void (*drop)(void *ctx, pleat__image *image);
    void (*expect)(void *ctx, uint64_t n_bytes); /* images may come, of so many bytes; NULL: nothing is done ahead */
    pleat_status (*compress)(void *ctx, pleat_seq seq, float ah, float al);

    /* For a store; NULL in a simulation.  describe: what an image's head says beside spec, salt and tokens. */
    pleat_status (*describe)(void *ctx, pleat_image_head *out);
    pleat_status (*save_into)(void *ctx, pleat_seq seq, void *data, uint64_t n_bytes); /* without a base */
    uint64_t (*image_pages)(void *ctx, const void *data, uint64_t n_bytes);            /* 0: it is no image */

    uint64_t (*clock_ns)(void *ctx);
    void (*advance)(void *ctx, uint64_t ns);
    void (*work)(void *ctx, pleat__backend_work *out);
    bool (*is_valid)(void *ctx);
    void (*destroy)(void *ctx);
} pleat__backend;

/* PLEAT_E_ARG with words in err, or PLEAT_E_MEMORY. */
pleat_status pleat__backend_on_engine(pleat_engine *engine, const pleat_allocator *allocator, pleat__backend *out,
                                      pleat_error *err);
pleat_status pleat__backend_simulated(const pleat_simulation *simulation, const pleat_allocator *allocator,
                                      pleat__backend *out, pleat_error *err);

/* Lanes that are no rings. */
static inline uint64_t pleat__backend_full_lanes(const pleat__backend_shape *shape) {
    return shape->n_lanes - shape->n_ring_lanes;
}

/* Slots of one of them that n tokens take at most. */
static inline uint64_t pleat__backend_slots(const pleat__backend_shape *shape, uint32_t n_tokens) {
    const double exact = n_tokens * shape->fraction;
    const uint64_t whole = (uint64_t)exact;
    return whole + ((double)whole < exact);
}

/* Pages of one of them that n tokens take at most. */
static inline uint64_t pleat__backend_lane_pages(const pleat__backend_shape *shape, uint32_t n_tokens) {
    return (pleat__backend_slots(shape, n_tokens) + shape->page_tokens - 1) / shape->page_tokens;
}

/* Pages of all rings when there are n tokens. */
static inline uint64_t pleat__backend_ring_pages(const pleat__backend_shape *shape, uint32_t n_tokens) {
    const uint32_t n_slots = n_tokens < shape->ring_slots ? n_tokens : shape->ring_slots;
    return (uint64_t)shape->n_ring_lanes * pleat__div_up_u32(n_slots, shape->page_tokens);
}

/* How large a request becomes. */
typedef struct pleat__backend_extent {
    uint32_t n_prompt;
    uint32_t n_tokens; /* prompt and all that it generates */
    uint32_t n_read;   /* slots of a lane that its prompt takes at most while it is read (chunks.c) */
    uint32_t budget;   /* tokens of a lane that stay, by the backend's budget() */
} pleat__backend_extent;

/* Pages of a lane for what stays of n tokens, in a step in which some may go. */
static inline uint64_t pleat__backend_fresh_pages(const pleat__backend_shape *shape, const pleat__backend_extent *e,
                                                  uint32_t n_tokens) {
    if (!shape->takes_fresh) return 0;
    return pleat__backend_lane_pages(shape, e->budget < n_tokens ? e->budget : n_tokens);
}

/* The most pages that the request holds while its prompt is read, in a step too: what is stored of it, beside what is
 * taken for what will stay. */
static inline uint64_t pleat__backend_prompt_pages(const pleat__backend_shape *shape, const pleat__backend_extent *e) {
    const uint32_t spare = shape->spare_pages > 0 ? shape->spare_pages + 1 : 0;
    const uint64_t n_fresh = pleat__backend_fresh_pages(shape, e, e->n_prompt);
    return pleat__backend_full_lanes(shape) * (pleat__backend_lane_pages(shape, e->n_read) + n_fresh + spare) +
           pleat__backend_ring_pages(shape, e->n_prompt);
}

/* The most pages behind its prompt, in the step after which it has n_tokens.  Packed lanes hold what the prompt has left
 * and what has followed; bounded ones the budget, and the token that comes before another goes.  Never less with more
 * tokens. */
static inline uint64_t pleat__backend_grown_pages(const pleat__backend_shape *shape, const pleat__backend_extent *e,
                                                  uint32_t n_tokens) {
    const uint32_t spare = shape->spare_pages > 0 ? shape->spare_pages + 1 : 0;
    const uint64_t n_kept = e->budget, n_comes = n_tokens - e->n_prompt;
    uint64_t n_slots = shape->is_packed ? n_kept + (shape->is_bounded ? 1 : n_comes) : n_tokens;
    if (n_slots > n_tokens) n_slots = n_tokens;
    uint64_t n_pages = pleat__backend_lane_pages(shape, (uint32_t)n_slots) + spare;
    if (shape->is_bounded && n_tokens > e->budget) n_pages += pleat__backend_fresh_pages(shape, e, n_tokens);
    return pleat__backend_full_lanes(shape) * n_pages + pleat__backend_ring_pages(shape, n_tokens);
}

/* The most pages that the request holds at any time from n_stored tokens on. */
static inline uint64_t pleat__backend_pages_for(const pleat__backend_shape *shape, const pleat__backend_extent *e,
                                                uint32_t n_stored) {
    const uint64_t grown = pleat__backend_grown_pages(shape, e, e->n_tokens);
    const uint64_t read = n_stored < e->n_prompt ? pleat__backend_prompt_pages(shape, e) : 0;
    return grown > read ? grown : read;
}

/* The most pages that n_new tokens come to hold behind n_before others, copies apart.  Exact where full lanes hold a slot
 * for each token and there are no spare pages. */
static inline uint64_t pleat__backend_pages_behind(const pleat__backend_shape *shape, uint32_t n_before,
                                                   uint32_t n_new) {
    const uint64_t n_rings =
        pleat__backend_ring_pages(shape, n_before + n_new) - pleat__backend_ring_pages(shape, n_before);
    uint64_t n_lane = pleat__backend_lane_pages(shape, n_new);
    if (shape->spare_pages == 0 && !shape->is_packed)
        n_lane = pleat__backend_lane_pages(shape, n_before + n_new) - pleat__backend_lane_pages(shape, n_before);
    return pleat__backend_full_lanes(shape) * n_lane + n_rings;
}

/* The most pages that are taken by the step that stores n_new tokens. */
static inline uint64_t pleat__backend_pages_in_step(const pleat__backend_shape *shape, const pleat__backend_extent *e,
                                                    uint32_t n_before, uint32_t n_new) {
    return pleat__backend_pages_behind(shape, n_before, n_new) +
           pleat__backend_full_lanes(shape) *
               (shape->spare_pages + pleat__backend_fresh_pages(shape, e, n_before + n_new));
}

#endif
