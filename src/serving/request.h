/* SPDX-License-Identifier: MIT
 *
 * request.h: a request, its states, and which of its fields may be trusted in each.
 *
 *        submit    ┌─────────┐ ──begin_running, by open or fork──> ┌─────────┐ ──┐ compress
 *       ─────────> │ WAITING │                                     │ RUNNING │ <─┘
 *                  └─────────┘ <─────preempt, to recompute──────── └─────────┘
 *                       ^                                             │   ^
 *                       │                            preempt, by swap │   │ begin_running, by restore
 *                       │                                             v   │
 *                       │                                          ┌─────────┐
 *                       └───────────────drop_image──────────────── │ SWAPPED │
 *        release: gone, from every state                           └─────────┘
 *
 *     submit.c: pleat_serving_submit     preempt.c: pleat__serving_preempt, _compress, _release
 *     admit.c: begin_running             image.c: pleat__serving_hold_image (of preempt by swap), _drop_image
 *
 *     state     it has                       what may be trusted beside identity, terms and progress
 *     WAITING   neither sequence nor image   part.waiting
 *     SWAPPED   an image, no sequence        part.swapped: the image, what it stands on, the place in the list
 *     RUNNING   a sequence, no image         part.running: the sequence, its pages, its promise
 *
 * The parts share their bytes: another state's fields are not stale but gone.  They are reached through PLEAT__WAITING(),
 * PLEAT__SWAPPED() and PLEAT__RUNNING(), which assert the state; only the functions on the arrows write `state`.  The
 * scheduler knows WAITING and SWAPPED as waiting.
 *
 * A request's tokens are its prompt and behind it what was generated.  With n_stored of them in its sequence:
 *
 *     prompt  0 ........ n_prompt | generated ........ n_known
 *               n_stored: reads a chunk, to its end      n_stored < n_known - 1: replays      = n_known - 1: generates
 *
 *     (1) n_stored < n_known: the last token that was sampled is not stored before it is run
 *     (2) logits are wanted of a step that brings n_stored to n_known
 *     (3) n_seen is the largest n_stored so far: what is run below it is a replay
 */
#ifndef PLEAT_SERVING_REQUEST_H
#define PLEAT_SERVING_REQUEST_H

#include <assert.h>

#include "prefix/radix.h"
#include "sched/sched.h"
#include "serving/answer.h"
#include "serving/backend.h"

/* Index into the array of kept prefixes; 0 is none. */
typedef struct pleat__kept_id {
    uint32_t v;
} pleat__kept_id;

/* Stages in which the thresholds of a request are raised to the most that it allows. */
#define PLEAT__COMPRESS_STAGES 2u

typedef enum pleat__request_state {
    PLEAT__REQUEST_WAITING,
    PLEAT__REQUEST_SWAPPED,
    PLEAT__REQUEST_RUNNING,
} pleat__request_state;

typedef struct pleat__waiting_part {
    uint64_t deferred_version;            /* version of the promises when it was deferred last; 0: it was not */
    pleat_store_fetch *fetch;             /* of its beginning from the store, under way or over; NULL: there is none */
    struct pleat__request *next_fetching; /* in the serving's list of those that have one */
} pleat__waiting_part;

typedef struct pleat__swapped_part {
    pleat__image image;
    pleat__kept_id base;                /* prefix that the image stands on */
    bool keeps_base;                    /* the image stands on the prefix that the request stood on */
    pleat_store_fetch *fetch;           /* whose bytes the image's are: it is of the store, and the request has not
                                         * computed it; NULL: it is the backend's */
    uint32_t n_stored;                  /* tokens in the image */
    struct pleat__request *next, *prev; /* neighbours in the serving's list of swapped requests */
} pleat__swapped_part;

typedef struct pleat__running_part {
    uint32_t running_idx; /* place in the serving's array of running requests */
    pleat_seq seq;
    uint32_t n_stored;
    pleat__kept_id base;          /* prefix that it stands on */
    pleat__prefix promise;        /* entry of its next breakpoint; 0: none */
    uint32_t promised_breakpoint; /* prompt tokens that the promised prefix will have */
    bool promises;                /* another prefix is promised when this one is kept */
    uint64_t n_pages;             /* pages of its sequence, shared ones included */
    uint64_t own_pages;           /* (5) of internal.h */
    bool own_changes;             /* the next step copies pages, so that own_pages has to be counted again */
    uint64_t step_pages;          /* pages that its next item takes */
    uint64_t reported_pages;      /* pages that the scheduler knows to be coming, step_pages included */
    uint32_t n_idle;              /* steps in a row without a token */
    bool was_compressed;          /* it has been compressed since it grew last */
    bool in_step;                 /* the step under way has an item of it */
} pleat__running_part;

typedef struct pleat__request {
    /* Identity: constant. */
    pleat_request_id id;
    pleat__sched_id sched; /* cell in the scheduler */
    void *user;            /* handed back in events */
    uint32_t tenant;       /* index */
    int32_t priority;
    uint32_t index; /* of the continuations of one post */
    uint64_t arrival;
    uint32_t root; /* root in the tree, by its salt; NO_ROOT: its prefixes are not shared */

    /* Terms: constant. */
    uint32_t n_prompt, n_predict;
    pleat__backend_extent extent;
    uint32_t n_breakpoints;
    uint32_t *breakpoints; /* [n_breakpoints] that it names itself, ascending; behind its tokens in the same block */
    bool ignores_end;
    bool wants_progress;
    float max_ah, max_al;
    pleat_sampler_options sampling;
    uint64_t time_limit_ns; /* 0: none */
    char *salt;             /* behind the breakpoints in the same block; NULL: none */

    /* Progress: true in every state. */
    bool is_compressed;          /* what it holds goes on from a prefix that is_compressed (internal.h) */
    float ah, al;                /* thresholds with which its prompt is read */
    pleat_sampler *sampler;      /* its own; NULL: greedy, or not started */
    pleat_token chosen;          /* token chosen in this step; -1: none, or an event has told it */
    bool has_no_memory;          /* it came in without what it needs: it fails in the next step */
    pleat__answer *answer;       /* NULL: nothing but tokens is wanted */
    uint64_t deadline_ns;        /* on the serving's clock; UINT64_MAX: none */
    struct pleat__request *next; /* in the inbox, or among those that have finished in this step */
    pleat_request_stats stats;
    uint64_t start_ns;       /* when it first ran; 0 before */
    uint64_t answer_ns;      /* when its first token was to be chosen; 0 before */
    uint32_t n_seen;         /* (3) */
    uint32_t solo_end;       /* the item that brings n_stored here is a step by itself, to show whose fault a failure
                              * was; 0: there is none */
    uint32_t compress_stage; /* thresholds' stage, 0..COMPRESS_STAGES */
    bool has_started;        /* it has been admitted once */
    bool asked_store;        /* it has been, or is being, looked for in the store */
    bool shares_nothing;     /* it needs the whole pool: takes no prefix and keeps none */

    pleat__request_state state;
    union {
        pleat__waiting_part waiting;
        pleat__swapped_part swapped;
        pleat__running_part running;
    } part;

    uint64_t block_bytes;
    pleat_token tokens[]; /* [n_prompt + n_predict] */
} pleat__request;

/* A state's part of a request that is in it; const where the request is.  r has no side effects: it is named twice. */
#define PLEAT__WAITING(r) (assert((r)->state == PLEAT__REQUEST_WAITING), &(r)->part.waiting)
#define PLEAT__SWAPPED(r) (assert((r)->state == PLEAT__REQUEST_SWAPPED), &(r)->part.swapped)
#define PLEAT__RUNNING(r) (assert((r)->state == PLEAT__REQUEST_RUNNING), &(r)->part.running)

/* An arrow's end: the new part is empty, and the caller fills it in. */
static inline void pleat__request_enter(pleat__request *r, pleat__request_state state) {
    r->state = state;
    if (state == PLEAT__REQUEST_WAITING) r->part.waiting = (pleat__waiting_part){0};
    if (state == PLEAT__REQUEST_SWAPPED) r->part.swapped = (pleat__swapped_part){0};
    if (state == PLEAT__REQUEST_RUNNING) r->part.running = (pleat__running_part){0};
}

static inline bool pleat__request_waits(const pleat__request *r) { return r->state == PLEAT__REQUEST_WAITING; }
static inline bool pleat__request_is_swapped(const pleat__request *r) { return r->state == PLEAT__REQUEST_SWAPPED; }
static inline bool pleat__request_runs(const pleat__request *r) { return r->state == PLEAT__REQUEST_RUNNING; }

/* Tokens that are known: prompt and generated. */
static inline uint32_t pleat__request_known(const pleat__request *r) { return r->n_prompt + r->stats.n_generated; }

#endif
