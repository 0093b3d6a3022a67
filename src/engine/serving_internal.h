/* SPDX-License-Identifier: MIT
 *
 * serving_internal.h: what serving is made of, shared by the files serving*.c.
 *
 *     serving.c           create, destroy; requests: submit, cancel
 *     serving_inspect.c   what can be asked
 *     serving_step.c      the step: plan, relief, letting in, running, what became of it
 *     serving_prefix.c    cuts and stops of a prompt; prefixes found, promised, kept, evicted
 *     serving_preempt.c   who gives way: swap or recompute, compression; coming back
 *     backend*.c          who computes
 *
 * Who knows what.  The scheduler (sched/) knows requests as numbers; their cells in its array index `requests` here.
 * The tree (prefix/) knows prefixes as tokens; the value that stands behind an entry indexes `kept` here.  The backend
 * knows sequences.  Nothing below is about one of them alone: this is where they meet.
 *
 * A request's tokens are its prompt and behind it what was generated.  With p tokens stored in its sequence:
 *
 *     prompt  0 ........ n_prompt | generated ........ n_known
 *                  p: reading a chunk up to the next cut       p < n_known - 1: replay     p = n_known - 1: generating
 *
 *     (1) p < n_known: the last token that was sampled is not stored before it is run
 *     (2) logits are wanted of a step that brings p to n_known
 *     (3) n_seen is the largest p so far: what is run below it is a replay
 *
 * Pages.  Sequences that fork form a tree, kept prefixes inside and running requests at its leaves; a page has one
 * holder that brought it in, and those below.  With shared(a, b) the pages that both hold:
 *
 *     (4) kept[i].added_pages = pages(i) - shared(i, parent(i))       constant: a kept sequence is not run any more
 *     (5) r->own_pages        = pages(r) - shared(r, base of r)       base: the kept prefix that it stands on
 *     (6) pages used = sum of (4) + sum of (5)
 *     (7) kept[i].n_users counts locks on it and on all below; evictable_pages is the sum of (4) where it is 0
 *
 * For (7) to be what eviction can really free, leaf by leaf, the parent is the nearest kept prefix above in the tree of
 * tokens too: a request promises its stops one after the other from its base on, and stops doing so when it cannot.
 */
#ifndef PLEAT_ENGINE_SERVING_INTERNAL_H
#define PLEAT_ENGINE_SERVING_INTERNAL_H

#include "core/memory.h"
#include "engine/backend.h"
#include "prefix/radix.h"
#include "sched/cost.h"
#include "sched/sched.h"

/* Index into `kept`; 0 is none. */
typedef struct pleat__kept_id {
    uint32_t v;
} pleat__kept_id;

/* A kept prefix. */
typedef struct pleat__kept {
    pleat_seq seq; /* 0: this place is free, and n_users the next free one's index */
    pleat__kept_id parent;
    uint32_t n_tokens;
    uint32_t n_users;      /* (7) */
    uint32_t n_children;   /* kept prefixes whose parent it is */
    uint64_t n_hits;       /* requests that started from it */
    uint64_t added_pages;  /* (4) */
    uint64_t copied_pages; /* that whoever goes on from it copies first, at most */
    pleat__prefix entry;
} pleat__kept;

#define PLEAT__NO_ROOT UINT32_MAX

/* Stages in which the thresholds of a request are raised to the most that it allows. */
#define PLEAT__COMPRESS_STAGES 2u

typedef struct pleat__served {
    pleat_request_id id;
    pleat__sched_id sched;
    void *user;
    uint32_t n_prompt, n_predict;
    pleat__backend_extent extent;
    uint32_t n_breaks;
    uint32_t *breaks; /* [n_breaks] its breakpoints, ascending; behind its tokens */
    uint32_t root;    /* of the tree; NO_ROOT: its prefixes are not shared */
    uint32_t tenant;
    int32_t priority;
    uint64_t arrival;
    bool ignores_end;
    float ah_most, al_most;
    pleat_sampler_options sampling;
    pleat_sampler *sampler; /* its own; NULL: greedy, or not started */
    pleat_request_stats stats;
    uint32_t n_seen;        /* (3) */
    bool has_started;       /* has been let in once */
    bool shares_nothing;    /* it needs the whole pool: takes no prefix and keeps none */
    uint32_t alone_to;      /* the item that brings p here is a step by itself: in company it failed, and whose fault
                             * that was did not show; 0: there is none */
    uint64_t waits_version; /* version of the promises when it was put off; 0: it was not */

    /* While it runs. */
    bool runs;
    uint32_t running_idx;
    pleat_seq seq;
    uint32_t n_stored; /* p */
    pleat__kept_id base;
    pleat__prefix promise; /* of its next stop, at promised_stop; 0: none */
    uint32_t promised_stop;
    bool keeps; /* it goes on promising */
    uint64_t n_pages;
    uint64_t own_pages;    /* (5) */
    bool own_changes;      /* the next step copies pages, so that (5) has to be counted again */
    uint64_t step_pages;   /* that its next item takes */
    uint64_t told_pages;   /* that the scheduler knows to be coming, these included */
    uint32_t n_idle;       /* steps in a row without a token */
    uint32_t n_compressed; /* stages done */
    bool was_compressed;   /* and has not grown since */
    bool in_step;

    /* While it waits with an image. */
    pleat__image image;
    pleat__kept_id image_base;
    bool image_base_is_base; /* it stands on what the request stood on */
    uint32_t image_stored;   /* p */
    struct pleat__served *next_swapped, *prev_swapped;

    uint64_t block_bytes;
    pleat_token tokens[]; /* [n_prompt + n_predict] */
} pleat__served;

struct pleat_serving {
    pleat_allocator al;
    pleat_serving_options opt; /* zeros replaced; tenants is NULL */
    pleat__backend backend;
    bool has_backend;
    pleat__sched *sched;
    pleat__radix *tree; /* NULL: no prefix is kept */
    pleat_sampler *greedy;
    char *names; /* of the tenants, one behind the other */
    uint64_t names_bytes;
    uint32_t max_running;

    uint64_t next_serial;
    pleat__served **requests; /* [max_requests + 1] by sched id */
    pleat__served **running;  /* [max_running] */
    uint32_t n_running;
    pleat__served *swapped; /* list */
    pleat__kept *kept;      /* [max_prefixes + 1] */
    uint32_t kept_free;     /* head of the list of free places */
    uint32_t n_kept;
    uint64_t own_pages, added_pages, evictable_pages; /* sums of (5), (4), and (7) */
    uint64_t promises_version;                        /* >= 1; changes when a promise is kept or forgotten */
    int32_t *path;                                    /* [2 * max_tokens] scratch: a prompt with its marks */

    pleat_engine_item *items;    /* [max_running] */
    pleat__served **in_step;     /* [max_running] whose they are */
    pleat_status *statuses;      /* [max_running] */
    float *logits;               /* [max_running][n_vocab] */
    pleat_serving_event *events; /* [2 * max_running]: of those who ran before the step, and of those let in by it */
    uint32_t n_events;

    pleat__serving_cost cost;
    pleat_serving_stats stats; /* counters; the rest is filled in when asked for */
    uint64_t occupied_pages;   /* when the step was planned: used, but not evictable */
    uint64_t n_idle_now;       /* idle steps in a row */
    uint64_t elsewhere_ns;     /* of this step: in the backend and the sampler */
    void *block;
    uint64_t block_bytes;
};

/* ---- serving.c */

/* Like pleat_serving_create(), on any backend, which the serving owns from here on whatever comes: for tests. */
pleat_status pleat__serving_create_on(const pleat__backend *backend, const pleat_serving_options *opt,
                                      pleat_serving **out, pleat_error *err);

/* Index of a tenant; n_tenants if there is none of this name.  NULL is the first. */
uint32_t pleat__serving_tenant(const pleat_serving *s, const char *name);

/* It is done: release it, with an event. */
void pleat__serving_finish(pleat_serving *s, pleat__served *r, pleat_token token, pleat_finish finish,
                           pleat_status status);

static inline uint32_t pleat__served_known(const pleat__served *r) { return r->n_prompt + r->stats.n_generated; }

static inline uint64_t pleat__serving_free_pages(const pleat_serving *s) {
    return s->backend.shape.n_pages - s->own_pages - s->added_pages;
}

/* ---- serving_step.c */

/* Time on somebody else's account, from leave to back: the backend's or the sampler's, not scheduling.  manages: it is
 * memory's. */
uint64_t pleat__serving_leave(void);
void pleat__serving_back(pleat_serving *s, uint64_t left_ns, bool manages);

/* The request's next item with p tokens stored: n_tokens and flags. */
typedef struct pleat__portion {
    uint32_t n_tokens;
    uint32_t flags;
    bool generates;
} pleat__portion;
pleat__portion pleat__serving_portion(const pleat_serving *s, const pleat__served *r, uint32_t n_stored);

/* Tell the scheduler what a running request takes next. */
void pleat__serving_demand(pleat_serving *s, pleat__served *r);

/* Count the pages of a running request anew. */
void pleat__serving_count_own(pleat_serving *s, pleat__served *r);

/* ---- serving_prefix.c */

/* Where the chunk that begins at n ends, and the flag with which a chunk ends at n if that is a stop, else 0. */
uint32_t pleat__serving_next_cut(const pleat_serving *s, const pleat__served *r, uint32_t n);
uint32_t pleat__serving_seal_at(const pleat_serving *s, const pleat__served *r, uint32_t n);

/* The longest kept prefix that the request can start from, or none; *waits: a longer one is being computed. */
pleat__kept_id pleat__serving_find(pleat_serving *s, const pleat__served *r, bool *waits);

/* Pages of the prefix and those above it that are evictable now, and would not be if it were used. */
uint64_t pleat__serving_lock_pages(const pleat_serving *s, pleat__kept_id kept);

/* Stand on a prefix, and no longer.  0 is fine. */
void pleat__serving_use(pleat_serving *s, pleat__kept_id kept);
void pleat__serving_unuse(pleat_serving *s, pleat__kept_id kept);

/* Promise the request's next stop, if it keeps prefixes; forget its promise. */
void pleat__serving_promise(pleat_serving *s, pleat__served *r);
void pleat__serving_forget(pleat_serving *s, pleat__served *r);

/* A running request stands at the stop that it promised: keep the prefix, and promise the next. */
void pleat__serving_keep(pleat_serving *s, pleat__served *r);

/* Let go of the prefixes under a running request that nobody else uses or has started from, from the last one on: what
 * it shares with them is its own again, and what it had to copy is free.  all: of all of them, for the first's sake; else
 * down to one that would free nothing, and that one stays.  False: no page is free by it; nothing has changed then
 * unless all. */
bool pleat__serving_leave_base(pleat_serving *s, pleat__served *r, bool all);

/* Evict the least recently used prefix that nobody uses.  False: there is none. */
bool pleat__serving_evict(pleat_serving *s);

/* Evict until n_pages are free.  False: nothing is left to evict, and they are not. */
bool pleat__serving_make_room(pleat_serving *s, uint64_t n_pages);

/* ---- serving_preempt.c */

/* A running request waits again.  for_pages: it gives way; else its sequence is not to be trusted, so it is not swapped.
 * One that had the whole pool to itself and needs more has finished then. */
void pleat__serving_preempt(pleat_serving *s, pleat__served *r, bool for_pages);

/* Give back all that a request holds and forget it, whatever its state. */
void pleat__serving_release(pleat_serving *s, pleat__served *r);

/* Compress a running request by one stage. */
void pleat__serving_compress(pleat_serving *s, pleat__served *r);
bool pleat__serving_can_compress(const pleat_serving *s, const pleat__served *r);

/* Forget an image; the request computes everything again. */
void pleat__serving_drop_image(pleat_serving *s, pleat__served *r);

/* The images that stand on a prefix which is going. */
void pleat__serving_lose_images(pleat_serving *s, pleat__kept_id kept);

/* Open the sequence of a request that has been let in, from its image, from a prefix, or empty.  `from` is what it
 * stands on, in use already.  PLEAT_AGAIN, PLEAT_E_MEMORY: nothing has changed. */
pleat_status pleat__serving_open(pleat_serving *s, pleat__served *r, pleat__kept_id from);

#endif
