/* SPDX-License-Identifier: MIT
 *
 * allocators.h: a workload of requests, the allocators that could keep its KV cache, and what replaying one against the
 * other gives.  Memory is counted in tokens: a pool of pool_tokens places, of which each holds one token's keys and
 * values.
 *
 *     requests_make        who comes when, with how long a prompt, for how many tokens     requests.c
 *     allocator_reserve    room for a request's tokens, and whether there is any           contiguous.c
 *     allocator_release    its end                                                         paged.c
 *     replay               a server that admits, generates and preempts                    replay.c
 */
#ifndef BENCH_ALLOCATORS_H
#define BENCH_ALLOCATORS_H

#include "page/plan.h"

/* ---- requests -------------------------------------------------------------------------------------------------- */

typedef struct request {
    double arrival;  /* in steps */
    uint32_t prompt; /* tokens, at least 1 */
    uint32_t output; /* tokens, at least 1; prompt + output <= workload.max_tokens */
} request;

/* Lengths are log-normal, prompt and output on their own, both cut at max_tokens together, times one factor for all of
 * them by which the mean of prompt + output is the sum of the means wanted, to a rounding. */
typedef struct workload {
    const char *name;
    double prompt, output; /* means wanted, in tokens */
    double shape;          /* deviation of the lengths' natural logarithms */
    uint32_t max_tokens;
} workload;

/* n requests into out[], by arrival.  They come at random, independent of each other, at the rate at which what they
 * hold while they run, live tokens alone, would fill `load` times pool_tokens. */
void requests_make(const workload *w, uint32_t n, double load, uint32_t pool_tokens, uint64_t seed, request *out);

/* Tokens that a request holds, summed over its steps: at step i of 1..output it holds prompt + i. */
static inline double request_token_steps(const request *r) {
    return (double)r->output * r->prompt + 0.5 * (double)r->output * (r->output + 1.0);
}

/* ---- allocators ------------------------------------------------------------------------------------------------ */

typedef enum allocator_how {
    AT_MAX,   /* one piece of max_tokens */
    KNOWN,    /* one piece of just the length that the request will reach: nobody knows it, so this is a bound */
    DOUBLING, /* one piece, a power of two; doubled where it stands or moved */
    STEPPING, /* one piece of whole blocks; one block more where it stands or moved */
    PAGED,    /* blocks anywhere: src/page's pool, tables and plan, one lane */
} allocator_how;

typedef struct allocator_kind {
    const char *name;
    allocator_how how;
    uint32_t block; /* tokens; STEPPING and PAGED */
    bool best_fit;  /* the smallest hole that is large enough; else the first one */
} allocator_kind;

/* Free runs of an address space, by address; no two touch. */
typedef struct hole {
    uint32_t start, len;
} hole;

typedef struct space {
    uint32_t n_free;
    uint32_t n_holes;
    hole *holes; /* [n_slots + 1] */
} space;

/* A slot is a running request.
 *
 *     (1) held = sum of capacity
 *     (2) contiguous: the slots' pieces and the holes tile 0..pool_tokens-1;  paged: pool.h's (1) to (4) */
typedef struct allocator {
    allocator_kind kind;
    uint32_t pool_tokens, max_tokens, n_slots;
    uint64_t held;
    uint64_t moved;     /* tokens copied because a piece had to move */
    uint32_t *capacity; /* [n_slots] tokens that the slot has room for; 0: closed */
    uint32_t *start;    /* [n_slots] contiguous: where the piece begins */
    space space;
    uint32_t row_len; /* paged: of each table */
    pleat__pool pool;
    pleat__plan plan;
    pleat__table *tables; /* [n_slots]; memory on first use */
    void *plan_memory, *pool_memory;
} allocator;

/* All memory free.  Ends the program where the machine has too little. */
void allocator_make(allocator *a, const allocator_kind *kind, uint32_t pool_tokens, uint32_t max_tokens,
                    uint32_t n_slots);
void allocator_free(allocator *a);

/* Room for n_tokens in a slot that has less, n_tokens <= n_final <= max_tokens; n_final is what KNOWN goes by.  False:
 * there is none, and nothing has changed. */
bool allocator_reserve(allocator *a, uint32_t slot, uint32_t n_tokens, uint32_t n_final);
void allocator_release(allocator *a, uint32_t slot);

/* Tokens that a slot with room for n_tokens holds. */
uint32_t allocator_piece(const allocator *a, uint32_t n_tokens, uint32_t n_final);

/* Free tokens in all, and in the largest piece that a request could get. */
uint32_t allocator_free_tokens(const allocator *a);
uint32_t allocator_largest_free(const allocator *a);

/* May a request come to need more than it was given? */
static inline bool allocator_grows(const allocator *a) { return a->kind.how >= DOUBLING; }

/* Bytes of tables with n_running requests, for a model of n_lanes lanes (layers times KV heads): paged, of all tables
 * and the pool as src/page has them; contiguous, an address and a length. */
double allocator_table_bytes(const allocator *a, double n_running, uint32_t n_lanes);

/* Recompute (1) and (2). */
bool allocator_is_valid(const allocator *a);

/* The two kinds' own: contiguous.c, paged.c. */
void contiguous_make(allocator *a);
void contiguous_free(allocator *a);
bool contiguous_reserve(allocator *a, uint32_t slot, uint32_t n_tokens, uint32_t n_final);
void contiguous_release(allocator *a, uint32_t slot);
uint32_t contiguous_piece(const allocator *a, uint32_t n_tokens, uint32_t n_final);
uint32_t contiguous_largest(const allocator *a);
bool contiguous_is_valid(const allocator *a);
void paged_make(allocator *a);
void paged_free(allocator *a);
bool paged_reserve(allocator *a, uint32_t slot, uint32_t n_tokens);
void paged_release(allocator *a, uint32_t slot);
double paged_table_bytes(const allocator *a, double n_running, uint32_t n_lanes);
bool paged_is_valid(const allocator *a);

/* n elements of `bytes` each, cleared, or the end of the program. */
void *need_memory(uint64_t n, uint64_t bytes);

/* ---- replay ---------------------------------------------------------------------------------------------------- */

typedef struct replay_options {
    uint32_t pool_tokens;
    double headroom;     /* share of the pool that stays free when a request is admitted; allocators that grow */
    double warm_up;      /* share of the requests that end before anything is counted */
    bool whole;          /* count every step, also while the pool fills and empties */
    bool check;          /* allocator_is_valid() now and then */
    uint32_t n_repeats;  /* of the timing; 0: none */
    uint32_t n_lanes;    /* of the model, for table_bytes */
    uint32_t lane_bytes; /* of a token in a lane */
} replay_options;

/* Means over the steps that count, NaN if none does (too few requests for the pool); shares 0..1. */
typedef struct replay_result {
    uint64_t n_steps;          /* that count */
    double running;            /* requests at once */
    double utilisation;        /* live tokens / held tokens, of the sums over the steps */
    double external;           /* 1 - largest free piece / free tokens; 0 where nothing is free */
    double live, slack, free;  /* of the pool: live tokens, held but not live, free; their sum is 1 */
    double table_bytes;        /* of all tables and the pool's own arrays */
    double table_share;        /* of the bytes of the keys and values that the pool has room for */
    uint64_t n_allocations;    /* reservations that took memory */
    uint64_t n_failures;       /* refused, of admissions (tried once a step) and of growth */
    uint64_t n_failures_holes; /* of these, although as many tokens were free */
    uint64_t n_preempted;      /* requests thrown out, which start again later from the tokens they have */
    double moved, again;       /* tokens copied by moves, and computed again, for each token generated */
    double ns_allocation;      /* with its share of the releases; median; NaN: not timed */
    double ns_token;           /* the same over the tokens generated */
} replay_result;

/* A step: those that have ended leave; waiting ones are admitted in their order, the first refusal ends that; every
 * running one gets one token, and who finds no room throws out the newest, or itself.  False: memory was lost or held
 * twice, which is a bug. */
bool replay(const request *requests, uint32_t n_requests, uint32_t max_tokens, const allocator_kind *kind,
            const replay_options *o, replay_result *r);

#endif
