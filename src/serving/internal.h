/* SPDX-License-Identifier: MIT
 *
 * internal.h: what serving is made of, shared by the files of src/serving.
 *
 *     serving.c    create, destroy
 *     submit.c     requests come, or are cancelled
 *     inbox.c      the same from other threads; the driver waits for them
 *     inspect.c    what can be asked
 *     manage.c     kept prefixes listed, pinned, dropped and compressed by who runs the serving
 *     pins.c       pinned prefixes, as other threads hear of them
 *     step.c       the step: plan, make room, admit, run, what became of it
 *     admit.c      waiting requests start: from a prefix, from their image, or empty
 *     demand.c     pages that a request takes: what the scheduler hears
 *     preempt.c    running requests wait again, are compressed, finish
 *     prefix.c     prefixes found, promised, kept, evicted; pages of those who stand on them
 *     tier.c       prefixes in a store: what is written there, what is read
 *     image.c      swapped requests' images
 *     chunks.c     where a prompt's chunks end; the tree's root for a salt
 *     place.c      places and ids of requests; waking the driver
 *     answer.c     what a request wants of its answer beside tokens: text, its ends, probabilities, what moves the choice
 *     backend*.c   who computes
 *     request.h    a request and its states
 *
 * Calls go down this list, never in a circle (tests/lint/serving.bash holds it):
 *
 *     step ──> admit ──> demand ──> preempt ──> prefix ──> tier ──> image ──> backend
 *       └────> inbox ──> submit ──> serving ──> preempt ──> answer, place
 *     inspect ──> serving                  prefix ──> chunks                  manage ──> prefix, chunks
 *
 * Who knows what.  The scheduler (sched/) knows requests as numbers; their cells in its array index `requests` here.
 * The tree (prefix/) knows prefixes as tokens; the value that stands behind an entry indexes `kept` here.  The backend
 * knows sequences.  Nothing below is about one of them alone: this is where they meet.
 *
 * Pages.  Sequences that fork form a tree, kept prefixes inside and running requests at its leaves; a page has one
 * holder that brought it in, and those below.  With shared(a, b) the pages that both hold:
 *
 *     (4) kept[i].added_pages = pages(i) - shared(i, parent(i))       constant: a kept sequence is not run any more
 *     (5) r->own_pages        = pages(r) - shared(r, base of r)       base: the kept prefix that it stands on
 *     (6) pages used = sum of (4) + sum of (5)
 *     (7) kept[i].n_users counts locks on it and on all below, pins among them; evictable_pages is the sum of (4) where it
 *         is 0
 *
 * For (7) to be what eviction can really free, leaf by leaf, the parent is the nearest kept prefix above in the tree of
 * tokens too.  So a request promises its breakpoints one after the other from its base on, until it cannot.  Who shares
 * no page with its base leaves it (under eviction after one step); then the parent of its next prefix is looked up, and
 * its promise is forgotten where that alone keeps a prefix above from going.
 */
#ifndef PLEAT_SERVING_INTERNAL_H
#define PLEAT_SERVING_INTERNAL_H

#include <pthread.h>

#include "core/clock.h"
#include "core/memory.h"
#include "sched/cost.h"
#include "serving/request.h"

/* A kept prefix. */
typedef struct pleat__kept {
    pleat_seq seq; /* 0: this cell is free, and n_users the next free one's index */
    uint64_t id;   /* serial * (max_prefixes + 1) + cell */
    pleat__kept_id parent;
    uint32_t n_tokens;
    uint32_t n_users;      /* (7) */
    uint32_t n_children;   /* kept prefixes whose parent it is */
    uint64_t n_hits;       /* requests that started from it */
    uint64_t added_pages;  /* (4) */
    uint64_t copied_pages; /* pages that whoever goes on from it copies first, at most */
    pleat__prefix entry;
    float ah, al;              /* thresholds */
    uint32_t n_pins;           /* (8) of pins.c */
    bool is_pinned;            /* holds one of n_users */
    bool is_compressed;        /* it, or one that it went on from: its bytes are not those of its tokens alone */
    pleat_events_prefix *told; /* what routers know of it; NULL: nothing */
} pleat__kept;

/* The kept prefixes. */
typedef struct pleat__prefixes {
    pleat__radix *tree;       /* NULL: no prefix is kept */
    pleat__kept *kept;        /* [max_prefixes + 1] */
    uint32_t free_head;       /* of the list of free cells in kept */
    uint32_t n_kept;          /* kept now */
    uint64_t n_kept_ever;     /* serial of the last */
    uint64_t added_pages;     /* sum of (4) */
    uint64_t evictable_pages; /* (7) */
    uint64_t pinned_pages;    /* (8) */
    uint64_t version;         /* >= 1; changes when a promise is kept or forgotten */
    int32_t *path;            /* [2 * max_tokens] scratch: a prompt with its marks */
} pleat__prefixes;

/* The store, which outlives the process. */
typedef struct pleat__tier {
    pleat_store *store;       /* NULL: there is none */
    pleat_image_head like;    /* what all heads have alike */
    pleat_image_step *steps;  /* [max_tokens / 2 + 1] scratch: a prompt's chunks */
    pleat_store_part *parts;  /* [max_tokens / 2 + 1] scratch: those of its beginnings that the store may have */
    pleat__request *fetching; /* head of the list of waiting requests that have a fetch */
    bool stands_still;        /* the last step ran nothing: all who are here wait for these fetches */
} pleat__tier;

/* The step under way, and what the last one brought. */
typedef struct pleat__serving_step {
    pleat_engine_item *items;    /* [max_running] */
    pleat__request **requests;   /* [max_running] whose the items are */
    pleat__sched_id tried;       /* the last that was to be admitted; 0: none */
    pleat_status *statuses;      /* [max_running] results of items that are run one by one */
    pleat_token *likeliest;      /* [max_running] the items' likeliest tokens, where the backend finds them */
    float *logits;               /* [max_running][n_vocab] */
    float *moved;                /* [n_vocab] a row as biases and penalties leave it */
    pleat_serving_event *events; /* [8 * max_running] of max_running who ran before the step and as many that it
                                  * admitted, 3 each: start, part of a prompt, token.  And of as many again, 1 each,
                                  * that have run out of time */
    uint32_t n_events;
    float *prompt_logits;     /* [step_tokens][n_vocab]; NULL: nobody has asked for them yet */
    uint32_t n_prompt_rows;   /* rows of prompt_logits that this step's items have */
    pleat__request *finished; /* list of those that events point into */
    uint64_t occupied_pages;  /* pages that were used and not evictable when the step was planned */
    uint64_t elsewhere_ns;    /* time of this step in the backend and the sampler */
    pleat__step_load load;    /* of the last such call */
    uint32_t n_runs;          /* calls of the backend in this step */
    uint64_t swap_ns;         /* what images took in this step, on the backend's clock */
    uint64_t n_idle_in_row;   /* idle steps in a row up to now */
} pleat__serving_step;

typedef struct pleat__pin pleat__pin;

/* A place for a request, from when it is queued until it is gone. */
typedef struct pleat__place {
    uint64_t id;          /* of the request that has it; 0: it is free */
    uint32_t next_free;   /* 0: the last one */
    uint32_t next_cancel; /* neighbour in the list of cancellations; 0: the last one */
    uint64_t cancel_id;   /* request to be cancelled, which may be gone by now */
    bool is_listed;       /* it stands in that list */
} pleat__place;

/* What other threads may touch: all of it is guarded by the lock. */
typedef struct pleat__inbox {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pleat__place *places; /* [max_requests + 1] */
    uint32_t free_head;   /* of the list of free places; 0: none is free */
    uint32_t n_free;
    uint32_t cancel_head;  /* of the list of cancellations; 0: none */
    uint64_t *cancels;     /* [max_requests] the driver's: ids of a list that it has taken */
    uint64_t n_submitted;  /* requests so far */
    pleat__request *first; /* posted and not yet taken in, the oldest first */
    pleat__request **last; /* where the next one goes */
    pleat__pin *pins;      /* list of the pinned prefixes */
    uint64_t pinned_pages; /* the prefixes' */
    bool is_woken;
    bool exists; /* lock and wake are initialised */
} pleat__inbox;

/* The tenants' names. */
typedef struct pleat__tenant_names {
    char *text;       /* one behind the other, each with its NUL */
    uint64_t n_bytes; /* of text */
} pleat__tenant_names;

struct pleat_serving {
    /* What it was made with: constant. */
    pleat_allocator al;
    pleat_serving_options opt; /* zeros replaced; tenants is NULL */
    pleat__backend backend;
    bool has_backend;
    uint32_t max_running;
    pleat__tenant_names tenants;
    pleat_sampler *greedy;
    uint32_t max_token_bytes;       /* the longest text of a token */
    pleat__json_tokens json_tokens; /* made for the first who wants JSON */
    void *block;                    /* one allocation for all arrays */
    uint64_t block_bytes;

    /* Who is here. */
    pleat__sched *sched;
    pleat__inbox inbox;
    pleat__request **requests; /* [max_requests + 1] by the scheduler's id */
    pleat__request **by_place; /* [max_requests + 1] those that have been taken in */
    uint64_t next_deadline_ns; /* no request's is earlier; UINT64_MAX: none has one */
    pleat__request **running;  /* [max_running] */
    uint32_t n_running;
    pleat__request *swapped; /* head of the list */
    uint64_t own_pages;      /* sum of (5) */

    pleat__prefixes prefixes;
    pleat__tier tier;
    pleat__serving_step step;
    pleat__serving_cost cost;
    pleat_serving_stats stats; /* counters; the rest is filled in when asked for */
};

static inline uint64_t pleat__serving_free_pages(const pleat_serving *s) {
    return s->backend.shape.n_pages - s->own_pages - s->prefixes.added_pages;
}

/* a - b, or 0. */
static inline uint64_t pleat__less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Pages that whoever goes on from a kept prefix shares with it, whatever comes: the others are copied. */
static inline uint64_t pleat__serving_shared_pages(const pleat_serving *s, const pleat__kept *k) {
    return pleat__less(s->backend.pages_of(s->backend.ctx, k->seq), k->copied_pages);
}

/* The request of this id; NULL if there is none, or it has not been taken in. */
static inline pleat__request *pleat__serving_request(const pleat_serving *s, pleat_request_id id) {
    pleat__request *r = s->by_place[id.v % ((uint64_t)s->opt.max_requests + 1)];
    return r && r->id.v == id.v ? r : NULL;
}

/* The clock of the scheduling itself stands still from pause to resume, while the backend or the sampler work.  manages:
 * that time is memory's. */
static inline uint64_t pleat__serving_pause(void) { return pleat__clock_ns(); }

static inline void pleat__serving_resume(pleat_serving *s, uint64_t paused_ns, bool manages) {
    const uint64_t ns = pleat__clock_ns() - paused_ns;
    s->step.elsewhere_ns += ns;
    if (manages) s->stats.manage_ns += ns;
}

/* ---- serving.c */

/* Like pleat_serving_create(), on any backend, which the serving owns from here on whatever comes: for tests. */
pleat_status pleat__serving_create_on(const pleat__backend *backend, const pleat_serving_options *opt,
                                      pleat_serving **out, pleat_error *err);

/* Index of a tenant; n_tenants if there is none of this name.  NULL is the first. */
uint32_t pleat__serving_tenant(const pleat_serving *s, const char *name);

/* ---- place.c */

/* Return the memory of a request that is nowhere. */
void pleat__request_free(const pleat_serving *s, pleat__request *r);

pleat_status pleat__places_init(pleat_serving *s);

/* Forget what was posted and not taken in, and all the rest. */
void pleat__places_release(pleat_serving *s);

/* Give n requests places, ids and turns (arrival), in this order, all or none.  posted [n] is not NULL: they go into the
 * inbox as well, and their ids there.  PLEAT_E_LIMIT: there are too few places. */
pleat_status pleat__places_take(pleat_serving *s, pleat__request *const *requests, uint32_t n,
                                pleat_request_id *posted);

/* The request's place is free again. */
void pleat__place_free(pleat_serving *s, const pleat__request *r);

/* ---- submit.c */

/* A checked record of a request that can be queued. */
pleat_status pleat__request_create(pleat_serving *s, const pleat_request *q, pleat__request **out, pleat_error *err);

/* It joins those who wait.  PLEAT_E_MEMORY: its prefixes cannot be shared; nothing has changed unless `must`. */
pleat_status pleat__request_enter_queue(pleat_serving *s, pleat__request *r, bool must);

/* ---- inbox.c */

/* Take in what was posted, and cancel what is to be cancelled. */
void pleat__inbox_drain(pleat_serving *s);

/* ---- pins.c */

/* Pin a prefix that is not.  PLEAT_E_LIMIT: pinned ones would have more than half of the pool; PLEAT_E_MEMORY. */
pleat_status pleat__pins_add(pleat_serving *s, pleat__kept_id id);
void pleat__pins_remove(pleat_serving *s, pleat__kept_id id);

/* Pages of a prefix have been counted again. */
void pleat__pins_counted(pleat_serving *s, pleat__kept_id id);

void pleat__pins_release(pleat_serving *s);

/* Pages that pinned prefixes leave to no request, and those that this one shares with them for good.  From any thread. */
uint64_t pleat__pins_pages(pleat_serving *s, const pleat__request *r, uint64_t *n_shared);

/* ---- chunks.c */

#define PLEAT__SALT_CAP 4096u /* bytes, NUL included */

/* The tree's root for a salt (NULL: ""), made at first use; PLEAT__NO_ROOT where there are MAX_ROOTS others. */
pleat_status pleat__serving_root(pleat_serving *s, const char *salt, uint32_t *root);

/* It, if it was made; else PLEAT__NO_ROOT. */
uint32_t pleat__serving_find_root(const pleat_serving *s, const char *salt);

/* A request's next item. */
typedef struct pleat__portion {
    uint32_t n_tokens;
    uint32_t flags;
    bool generates;
} pleat__portion;
pleat__portion pleat__serving_portion(const pleat_serving *s, const pleat__request *r, uint32_t n_stored);

/* Where the chunk ends that begins at n. */
uint32_t pleat__serving_chunk_end(const pleat_serving *s, const pleat__request *r, uint32_t n);

/* The flag with which a chunk ends at n if that is a breakpoint, else 0. */
uint32_t pleat__serving_seal_flag(const pleat_serving *s, const pleat__request *r, uint32_t n);

/* The first breakpoint beyond n; may be beyond the prompt. */
uint32_t pleat__serving_next_breakpoint(const pleat_serving *s, const pleat__request *r, uint32_t n);

/* Slots of a lane that the prompt takes at most while it is read. */
uint32_t pleat__serving_read_slots(const pleat_serving *s, const pleat__request *r);

/* Write the path of the request's first n >= 1 tokens into prefixes.path, the mark of a breakpoint at n included; returns
 * its length. */
uint32_t pleat__serving_path(pleat_serving *s, const pleat__request *r, uint32_t n);

/* Does the request's prompt go on from this path, [n], marks included? */
bool pleat__serving_begins(const pleat_serving *s, const pleat__request *r, const int32_t *path, uint32_t n);

/* ---- image.c */

/* Save a running request's sequence if that is the way to preempt it, into an image that stands on `base`.  False: it is
 * not, or it cannot be done.  The request runs on. */
bool pleat__serving_save_image(pleat_serving *s, const pleat__request *r, pleat__kept_id base, pleat__image *out);

/* A request that has just been stopped holds this image: it is SWAPPED. */
void pleat__serving_hold_image(pleat_serving *s, pleat__request *r, const pleat__swapped_part *part);

/* Forget the image of a swapped request: it is WAITING, and computes everything again unless it was restored. */
void pleat__serving_drop_image(pleat_serving *s, pleat__request *r);

/* Drop the images that stand on a prefix which is going. */
void pleat__serving_lose_images(pleat_serving *s, pleat__kept_id kept);

/* ---- tier.c */

/* Describe what is served, if there is a store. */
pleat_status pleat__tier_init(pleat_serving *s);

/* Queue a kept prefix, which the request computed or began from, for the store, if there is one and reading it would pay. */
void pleat__serving_store(pleat_serving *s, const pleat__request *r, pleat__kept_id id);

/* Is a waiting request's beginning being looked for in the store now? */
bool pleat__serving_is_fetching(const pleat__request *r);

/* Look for a longer prefix than `from` in the store, once for a waiting request.  False: it waits for that, or for another's
 * that may serve it too.  True: it need not wait; if there was one, that is its image now, and it is SWAPPED. */
bool pleat__serving_fetch(pleat_serving *s, pleat__request *r, pleat__kept_id from);

/* What was fetched cannot be restored here.  Where it is damaged it goes from the store; else another may restore it, as a
 * CPU what a GPU cannot. */
void pleat__serving_refuse(const pleat__swapped_part *part);

/* A waiting request goes, or wants nothing of the store any more. */
void pleat__serving_end_fetch(pleat_serving *s, pleat__request *r);

/* ---- prefix.c */

/* Count the pages of a running request anew. */
void pleat__serving_count_own(pleat_serving *s, pleat__request *r);

/* The longest kept prefix that the request can start from, or none; *waits: a longer one is being computed. */
pleat__kept_id pleat__serving_find(pleat_serving *s, const pleat__request *r, bool *waits);

/* Pages of the prefix and those above it that are evictable now, and would not be if it were used. */
uint64_t pleat__serving_lock_pages(const pleat_serving *s, pleat__kept_id kept);

/* Stand on a prefix; 0 is fine. */
void pleat__serving_use(pleat_serving *s, pleat__kept_id kept);

/* Stand on it no longer; 0 is fine. */
void pleat__serving_unuse(pleat_serving *s, pleat__kept_id kept);

/* Promise a running request's next breakpoint, if it promises any. */
void pleat__serving_promise(pleat_serving *s, pleat__request *r);

/* Forget its promise. */
void pleat__serving_forget(pleat_serving *s, pleat__request *r);

/* A running request stands at the breakpoint that it promised: keep the prefix, and promise the next. */
void pleat__serving_keep(pleat_serving *s, pleat__request *r);

/* A running request has just come from the store: keep its prefix in memory too, if there is room for those who go on from
 * it, and promise the next. */
void pleat__serving_keep_stored(pleat_serving *s, pleat__request *r);

/* Remove a prefix that nobody uses and nothing stands on. */
void pleat__serving_remove_kept(pleat_serving *s, pleat__kept_id id);

/* The pages of a kept prefix have changed, and nothing stands on it. */
void pleat__serving_count_kept(pleat_serving *s, pleat__kept_id id);

/* Remove prefixes under a running request that nobody else uses or has started from, the last one first.  What it shares
 * with them is its own again, and what it had to copy is free.  all: every one of them, so that nothing of it is shared;
 * else down to the first that would free nothing.  False: no page is free by it, and nothing has changed unless all. */
bool pleat__serving_leave_base(pleat_serving *s, pleat__request *r, bool all);

/* Leave the prefix that the request stands on if it shares none of its pages any more; own pages have been counted. */
void pleat__serving_leave_unshared(pleat_serving *s, pleat__request *r);

/* Evict the least recently used prefix that nobody uses.  False: there is none. */
bool pleat__serving_evict(pleat_serving *s);

/* Evict until n_pages are free.  False: nothing is left to evict, and they are not. */
bool pleat__serving_evict_until(pleat_serving *s, uint64_t n_pages);

/* ---- preempt.c */

/* A running request waits again.  for_pages: they are short; else its sequence is not to be trusted, so it is not
 * swapped.  One that had the whole pool to itself and needs more has finished then. */
void pleat__serving_preempt(pleat_serving *s, pleat__request *r, bool for_pages);

/* Return all that a request holds and forget it, whatever its state. */
void pleat__serving_release(pleat_serving *s, pleat__request *r);

/* Return the memory of those that finished in the last step. */
void pleat__serving_free_finished(pleat_serving *s);

/* An event of a request, which the caller fills in further. */
pleat_serving_event *pleat__serving_add_event(pleat_serving *s, pleat__request *r, pleat_finish finish);

/* An event of how far its prompt has been read. */
void pleat__serving_tell_progress(pleat_serving *s, pleat__request *r);

/* It is done: release it, with an event. */
void pleat__serving_finish(pleat_serving *s, pleat__request *r, pleat_token token, pleat_finish finish,
                           pleat_status status);

/* Compress a running request by one stage; its demand has changed then. */
void pleat__serving_compress(pleat_serving *s, pleat__request *r);
bool pleat__serving_can_compress(const pleat_serving *s, const pleat__request *r);

/* ---- demand.c */

/* Tell the scheduler what a running request takes next. */
void pleat__serving_demand(pleat_serving *s, pleat__request *r);

/* Pages that a running request's next item takes. */
uint64_t pleat__serving_next_pages(const pleat_serving *s, const pleat__request *r);

/* What a request that does not run would take if it started from a prefix, or from its image on that prefix. */
pleat__sched_demand pleat__serving_start_demand(const pleat_serving *s, const pleat__request *r, pleat__kept_id from);

/* Where it is known what all requests come to hold, one more is admitted if they fit together at every step to come.  Its
 * demand becomes the shortfall to that; elsewhere it stays. */
void pleat__serving_fit_demand(const pleat_serving *s, const pleat__request *r, pleat__kept_id from,
                               pleat__sched_demand *demand);

/* ---- admit.c */

/* Admit candidates as long as there is room; they join the plan. */
pleat_status pleat__serving_admit(pleat_serving *s, pleat__sched_plan *plan);

#endif
