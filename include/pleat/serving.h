/* SPDX-License-Identifier: MIT
 *
 * serving.h: many requests on one engine: who runs in a step, who waits, who is preempted, what is shared.
 *
 *     pleat_serving_create(engine, options)        or _create_simulated(): traffic without a model
 *         pleat_serving_submit(request)            at any time between steps
 *         pleat_serving_step                       one step of the engine for whoever is to run
 *             pleat_serving_events                 the tokens that it brought, and who has finished
 *         pleat_serving_cancel
 *     pleat_serving_destroy
 *
 *     from other threads, while one drives it:     pleat_serving_post, pleat_serving_post_cancel, pleat_serving_wake
 *     the driving thread, with nothing to do:      pleat_serving_wait
 *
 *     waiting ──admitted──> reading its prompt (prefill) ──> generating ──> finished
 *        <─────────────────── preempted ────────────────────────┘
 *
 * Continuous batching: every step takes a token of each generating request and, with what is left of the step's tokens,
 * chunks of prompts.  Where a prompt's chunks end depends on the request alone.  So its tokens are the same alone and in
 * company, bit for bit; preempted or not, whether by swap or by being computed again; and from a kept prefix or not.
 * (Not after compression that it allowed by max_ah and max_al, nor from a prefix that pleat_serving_compress_prefix() has
 * compressed.)
 *
 *     breakpoints of a prompt:   every multiple of prefix_tokens, and those that the request names
 *     chunks of a prompt end at: every multiple of the engine's chunk_tokens, the breakpoints, the prompt's end
 *
 * At a breakpoint the cache classes and seals what it holds, or under eviction drops what is above the budget (cache.h).
 * The prefix so far is kept for others with the same tokens and salt.  One that is being computed is waited for rather than computed twice.  A prefix serves those whose
 * own chunks before its end are the same, since these are part of what the bits depend on.  So a conversation's turn names
 * as breakpoints where its prompt ends, to be kept for the next turn, and where each prompt before it ended.  Kept
 * prefixes that nobody uses are evicted when pages are needed, the least recently used leaf of the tree first, but for those
 * that are pinned.
 *
 * When pages run short: kept prefixes go; then requests that allow it are compressed; then the lowest in rank is
 * preempted.  sched/sched.h (source) has the rules: priorities, watermarks, tenants.  Under a policy that evicts in
 * generation, with reclaim=reuse or copy (spec.h), it is known what a request will hold at most at every step until it
 * leaves.  Then it is admitted when that fits with what the others will hold, and nobody is preempted later.  Where
 * prefixes are kept that is less than its whole prompt: what stays at a breakpoint, and the part up to the next.
 *
 * An answer's text, its stops, the probabilities of tokens and what moves the choice of them (penalties, biases) are a
 * request's own business too: they are looked at when its token has been computed, and change nothing for others.
 *
 * Threads: driven from one thread at a time.  post, post_cancel and wake may be called from any thread at any time between
 * create and destroy; then the allocator has to be thread-safe.
 *
 * Memory: create and submit allocate, and step does not for each token.  It does where a request is admitted (a page
 * table, a sampler), a prefix is kept (a page table, an edge of the tree) or a request is swapped out (its image), and
 * once a sequence for codebooks (kvcomp).  The first request that wants the logprobs of its prompt brings a buffer of
 * step_tokens rows of logits, which stays.
 */
#ifndef PLEAT_SERVING_H
#define PLEAT_SERVING_H

#include "pleat/engine.h"
#include "pleat/events.h"
#include "pleat/forecast.h"
#include "pleat/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_serving pleat_serving;

/* A request; never used twice.  0 is none. */
typedef struct pleat_request_id {
    uint64_t v;
} pleat_request_id;

/* Whose requests share a quota. */
typedef struct pleat_tenant {
    const char *name; /* distinct; copied */
    double quota;     /* share of the pool that is the tenant's own, 0..1.  All quotas add up to 1 at most; what they
                       * leave is lent to whoever needs more */
    uint32_t weight;  /* share of the service among those who wait, >= 1 */
} pleat_tenant;

typedef enum pleat_preemption {
    PLEAT_PREEMPT_CHEAPER, /* by what swaps and steps have taken so far */
    PLEAT_PREEMPT_SWAP,    /* while swap_bytes last */
    PLEAT_PREEMPT_RECOMPUTE
} pleat_preemption;

typedef struct pleat_serving_options {
    size_t size_bytes;
    uint32_t max_requests;  /* waiting and running at once, 1..2^24; default 65536 */
    uint32_t prefix_tokens; /* prefixes are kept at multiples of this, made up to whole chunk_tokens of the engine: the
                             * default, 512, is the first multiple of these from 512 on.  At most 2^24.  0: none are
                             * kept and nothing is sealed */
    uint32_t max_prefixes;  /* kept at once; the engine's max_seqs less its max_items at most; 0, the default: that,
                             * and if that is 0 it is as with prefix_tokens = 0 */
    double low_watermark;   /* share of the pool up to which requests are admitted, 0 < low <= high; default 0.9 */
    double high_watermark;  /* share of the pool beyond which requests are preempted, high <= 1; default 1 */
    pleat_preemption preemption; /* default CHEAPER */
    uint64_t swap_bytes;         /* host memory for images; default 1 GiB; 0: none.  A GPU keeps up to 64 blocks more,
                                  * pinned, of images that are gone */
    const pleat_tenant *tenants; /* NULL: one tenant, "", who has everything */
    uint32_t n_tenants;
    const pleat_allocator *allocator;
    pleat_store *store; /* NULL: prefixes are kept in memory alone.  Not owned, outlives the serving; servings may share
                         * it.  Neither in a simulation nor on a GPU */
    pleat_events *events; /* hears of kept prefixes; NULL: nobody does.  Not owned, outlives the serving, which alone
                           * tells it */
} pleat_serving_options;

PLEAT_API void pleat_serving_options_default(pleat_serving_options *opt);

/* The engine is not owned, outlives the serving and has no open sequence; nobody else drives it.  At most its max_items
 * requests run at once.  PLEAT_E_ARG with words in err for options outside their ranges, and for an engine whose
 * step_tokens are less than chunk_tokens + max_items - 1: a chunk has to find room beside the others' tokens. */
PLEAT_API pleat_status pleat_serving_create(pleat_engine *engine, const pleat_serving_options *opt, pleat_serving **out,
                                            pleat_error *err);

/* What replaces an engine when traffic is simulated: shapes, and the price of a step (ns), as a measured run reports
 * them (pleat_serving_get_stats) or as another machine would have them.
 *     step = fixed_ns + chunk_ns * chunks of prompts + prompt_ns * their tokens + token_ns * generated tokens
 *            + byte_ns * KV bytes read */
typedef struct pleat_simulation {
    size_t size_bytes;
    uint32_t n_lanes;     /* lanes of a sequence: layers * KV heads */
    uint32_t page_tokens; /* f16 or uniform tokens in a page of one lane */
    uint64_t page_bytes;
    uint64_t n_pages; /* pages of the pool */
    const pleat_forecast
        *forecast;   /* of the same lanes and pages: what a sequence holds over its life; copied.  NULL: a
                                     * fraction says it */
    double fraction; /* without a forecast: part of its tokens that a sequence has slots for, 0 < fraction <= 1 */
    uint32_t max_items, max_seqs, max_tokens, chunk_tokens, step_tokens; /* limits of an engine (engine.h) */
    double fixed_ns, prompt_ns, token_ns, byte_ns;                       /* prices of a step's parts */
    double swap_bytes_per_s;                                             /* > 0 */
    double chunk_ns; /* price of a prompt's chunk, whatever its length */
} pleat_simulation;

/* Like pleat_serving_create(), without a model: tokens are not looked at but to compare prefixes, every request runs to
 * its n_predict, and time is pleat_serving_clock_ns(). */
PLEAT_API pleat_status pleat_serving_create_simulated(const pleat_simulation *simulation,
                                                      const pleat_serving_options *opt, pleat_serving **out,
                                                      pleat_error *err);

/* What is added to a token's logit. */
typedef struct pleat_logit_bias {
    pleat_token token;
    float bias; /* finite; -100 all but forbids a token, 100 all but forces it */
} pleat_logit_bias;

/* What a JSON object has to be: a node, and nodes below it by their index. */
typedef enum pleat_json_kind {
    PLEAT_JSON_ANY,
    PLEAT_JSON_STRING,
    PLEAT_JSON_NUMBER,
    PLEAT_JSON_INTEGER, /* without a point or an exponent */
    PLEAT_JSON_TEXTS,   /* one of its parts' texts, byte for byte */
    PLEAT_JSON_ONE_OF,  /* what one of its parts' nodes is */
    PLEAT_JSON_OBJECT,  /* members in the order of its parts; others between them */
    PLEAT_JSON_LIST
} pleat_json_kind;

#define PLEAT_JSON_NONE UINT32_MAX      /* no node */
#define PLEAT_JSON_NODES_MAX 1024u      /* of a shape */
#define PLEAT_JSON_PARTS_MAX 4096u      /* of all its nodes */
#define PLEAT_JSON_TEXT_BYTES_MAX 4096u /* of a part */
#define PLEAT_JSON_CHOICES_MAX 32u      /* of a ONE_OF */
#define PLEAT_JSON_ITEMS_MAX 65535u     /* that a bound of a list may name */

typedef struct pleat_json_node {
    pleat_json_kind kind;
    uint32_t first, n; /* its parts */
    uint32_t rest;     /* OBJECT: node of members that are none of its parts; LIST: of items.  NONE: there are none */
    uint32_t least, most; /* LIST: items; most UINT32_MAX: no bound */
} pleat_json_node;

typedef struct pleat_json_part {
    const char *text; /* TEXTS: JSON; OBJECT: a name, as it stands between quotes */
    uint32_t node;    /* ONE_OF, OBJECT */
    int is_required;  /* OBJECT */
} pleat_json_part;

typedef struct pleat_json_shape {
    const pleat_json_node *nodes; /* [n_nodes] the first is the whole: OBJECT, or ONE_OF these */
    uint32_t n_nodes;
    const pleat_json_part *parts; /* [n_parts] */
    uint32_t n_parts;
} pleat_json_shape;

/* Can an answer have the shape?  PLEAT_E_ARG with words in err; a request with such a shape is refused alike. */
PLEAT_API pleat_status pleat_json_shape_check(const pleat_json_shape *shape, pleat_error *err);

#define PLEAT_STOPS_MAX 16       /* stop strings of a request */
#define PLEAT_STOP_BYTES_MAX 256 /* length of each */

/* What follows `user` concerns the answer alone, and needs a model but for time_limit_ns.  How a token is chosen:
 *
 *     logits ── + biases ── repetition_penalty ── frequency_, presence_penalty ── sampler ──> token
 *       └──> logprobs: of the model's own logits
 *
 *     repetition   a logit above 0 is divided by it, one below multiplied, for each token of prompt or answer so far
 *                  (Keskar et al. 2019, CTRL, section 4.1, with the sign minded as transformers does)
 *     frequency    times how often a token stands in the answer so far is taken away, as in OpenAI's API
 *     presence     is taken away if it stands there at all
 *
 * wants_json: a token that is chosen so and does not go on with an object is refused, and another is drawn from those that
 * do.  So where it does not bind, tokens are those without it; a token that ends the text is refused until the object is
 * whole, and then the answer is over.  Its text is UTF-8 without lone surrogates, with at most 64 levels of lists and
 * objects, and 64 blanks between two others.  It is cut where n_predict, a stop or a time limit ends it.  A draw that is
 * refused costs a look at each token of the vocabulary.
 *
 * With json_mark the answer is free until its text has the mark, and so is what follows the object behind it, until the mark
 * comes again: each time an object is to come.  Where the token that ends the mark goes on with what begins none, none is
 * asked for.  The answer ends as it would without.
 *
 * With a shape the object has that shape too.  Where several readings of a text are possible, as by ONE_OF, the first CHOICES_MAX are
 * followed.  A member that is none of an object's parts has another name than they have.
 */
typedef struct pleat_request {
    size_t size_bytes;
    const pleat_token *prompt; /* [n_prompt], n_prompt >= 1; copied */
    uint32_t n_prompt;
    uint32_t n_predict;  /* tokens to generate at most, >= 1; n_prompt + n_predict within the engine's max_tokens */
    const char *tenant;  /* name; NULL: the first tenant */
    const char *salt;    /* equal ones share prefixes: "" and the first 4095 others; NULL: ""; below 4096 bytes */
    int32_t priority;    /* the higher goes first; default 0 */
    uint32_t breakpoint; /* prompt tokens after which a prefix ends that others share, <= n_prompt; 0: none */
    const uint32_t *breakpoints; /* [n_breakpoints] more such breakpoints, ascending, none twice; copied */
    uint32_t n_breakpoints;
    pleat_sampler_options sampling;
    int ignores_end;      /* an end-of-generation token is a token like others */
    float max_ah, max_al; /* leankv: limits to which thresholds may be raised when pages run short; 0: not at all */
    void *user;           /* handed back in events */

    int wants_text;              /* events bring the answer's text */
    const char *const *stops;    /* [n_stops] UTF-8, each 1 to PLEAT_STOP_BYTES_MAX bytes; copied.  The first token with
                                 * which one of them stands in the answer's text is the last, and the text ends before
                                 * the first that does */
    uint32_t n_stops;            /* <= PLEAT_STOPS_MAX */
    const pleat_token *stop_ids; /* [n_stop_ids] tokens that end the answer and are not handed out; copied */
    uint32_t n_stop_ids;
    int wants_logprobs;             /* of the answer's tokens */
    int wants_prompt_logprobs;      /* of the prompt's; such a request shares no prefix, since each token is computed */
    uint32_t n_top;                 /* likeliest tokens beside each of these, 0..PLEAT_LOGPROBS_MAX */
    const pleat_logit_bias *biases; /* [n_biases] copied; those of one token add up */
    uint32_t n_biases;
    float frequency_penalty, presence_penalty; /* finite; default 0 */
    float repetition_penalty;                  /* > 0; default 1: none */
    uint64_t time_limit_ns; /* time from the first step that sees it until it is finished with DEADLINE; 0: none */
    int text_goes_on;       /* the answer's text goes on from the prompt's, so its first token's leading space stays */
    int wants_json;         /* the answer is one JSON object (RFC 8259), and ends with it */
    const pleat_json_shape *shape; /* what that object is; copied.  NULL: any */
    int text_has_special; /* special tokens stand in the answer's text by their names; else they are left out */
    int wants_progress;   /* events of progress: as it first runs, and with each part of its prompt that is read */
    const char
        *json_mark; /* wants_json: text behind which an object is to come, 1 to PLEAT_STOP_BYTES_MAX bytes; copied.
                            * NULL: the answer is that object */
} pleat_request;

/* Greedy, no tenant, 0 elsewhere. */
PLEAT_API void pleat_request_default(pleat_request *request);

/* Queue a request.  PLEAT_E_ARG: what is outside its range, a token id that the model has not, an unknown tenant;
 * PLEAT_E_LIMIT: it can never fit (context, pool, or its tenant's quota and what can be lent), or max_requests wait.
 * Lengths are checked first: of a prompt longer than the context no token is read.
 * err says which.  Nothing has changed then; other requests go on. */
PLEAT_API pleat_status pleat_serving_submit(pleat_serving *serving, const pleat_request *request, pleat_request_id *out,
                                            pleat_error *err);

/* Queue n continuations of one prompt, from any thread.  Checks and statuses are those of pleat_serving_submit(), and all n
 * or none are queued: PLEAT_E_LIMIT with err->where = n where more than max_requests would be there; that passes, other
 * limits do not.  The next step takes them in.
 *   ids   [n] out; events say by `index` which it is
 * Continuation i draws with seed sampling.seed + i.  Where n > 1 and the request names no breakpoint, one stands before the
 * prompt's last token: so the prompt is computed and held once, and each continuation is a fork of it.  Chunks of a prompt
 * end at breakpoints, so a continuation may differ in bits from what n = 1 gives; the n have the same bits. */
PLEAT_API pleat_status pleat_serving_post(pleat_serving *serving, const pleat_request *request, uint32_t n,
                                          pleat_request_id *ids, pleat_error *err);

/* Forget a request that was posted or submitted, from any thread.  The next step does, and no event comes from it or from
 * later ones.  What has finished or is unknown is left alone. */
PLEAT_API void pleat_serving_post_cancel(pleat_serving *serving, pleat_request_id id);

/* Sleep until there is a request, something was posted, or pleat_serving_wake() was called: PLEAT_OK.  PLEAT_AGAIN:
 * timeout_ns have passed.  Returns at once while requests wait or run, unless all of them wait for the store: then it sleeps
 * until that has something, and not for long.  The driving thread's alone. */
PLEAT_API pleat_status pleat_serving_wait(pleat_serving *serving, uint64_t timeout_ns);

/* Let pleat_serving_wait() return, or the next one if none sleeps.  From any thread. */
PLEAT_API void pleat_serving_wake(pleat_serving *serving);

/* Forget a request; no event follows.  PLEAT_E_ARG for one that is unknown or has finished. */
PLEAT_API pleat_status pleat_serving_cancel(pleat_serving *serving, pleat_request_id id);

/* The sequence of a request that runs, for the calls of engine.h and cache.h that take a const engine or cache: what it holds,
 * and how its tokens are kept.  It is the serving's own, valid until the next step, cancel or destroy.  seq.v is 0 where there
 * is none: the request waits, is unknown or has finished, or there is no engine.  O(1). */
PLEAT_API pleat_seq pleat_serving_sequence(const pleat_serving *serving, pleat_request_id id);

/* Run one step.  PLEAT_AGAIN: there is no request.  Requests that fail (their keys or values are no numbers) finish with
 * an event, the others go on; an error is one of the whole: PLEAT_E_MEMORY.  Under a policy, and in models with a sliding
 * window, those who shared the step with one that failed may have to be computed again. */
PLEAT_API pleat_status pleat_serving_step(pleat_serving *serving, pleat_error *err);

typedef enum pleat_finish {
    PLEAT_FINISH_NOT,
    PLEAT_FINISH_END,     /* the model ended its text; that token is not handed out.  Or its JSON object is whole */
    PLEAT_FINISH_LENGTH,  /* n_predict tokens */
    PLEAT_FINISH_FAILED,  /* status says why */
    PLEAT_FINISH_STOP,    /* a stop string or stop token; a stop token is not handed out */
    PLEAT_FINISH_DEADLINE /* time_limit_ns have passed */
} pleat_finish;

/* What became of one request. */
typedef struct pleat_request_stats {
    uint32_t n_prompt, n_generated;
    uint32_t n_hit;        /* prompt tokens that a kept prefix gave when it first started */
    uint32_t n_computed;   /* prompt tokens behind these that steps have brought; replays do not count again */
    uint32_t n_swapped;    /* times preempted by swap */
    uint32_t n_recomputed; /* times preempted to be computed again */
    uint32_t n_compressed;
    uint32_t n_stalled;    /* most steps in a row that it stood among the running and took no token */
    uint64_t prompt_ns;    /* from when it first ran to its first token, or to its end; on the serving's clock */
    uint64_t answer_ns;    /* from there to its end, preemptions included */
    uint64_t kv_bytes;     /* held by its sequence at its end (pleat_cache_usage.bytes); 0: it had none */
    uint64_t kv_bytes_f16; /* what f16 would hold for as many tokens; in a simulation 0 */
} pleat_request_stats;

typedef struct pleat_serving_event {
    pleat_request_id id;
    void *user;
    pleat_token token; /* -1 where none came */
    pleat_finish finish;
    pleat_status status;       /* why it is FAILED */
    pleat_request_stats stats; /* when it has finished, and in an event of progress */
    uint32_t index;            /* of the continuations of one post, 0 first */

    const char *text;    /* [n_text] UTF-8 without a NUL behind it: what can be handed out now.  A character that is not
                            * complete is held back, and what may yet become a stop string */
    uint32_t n_text;     /* 0 where no text was asked for */
    pleat_token chosen;  /* token that was chosen, one that ends the text included; -1: none */
    uint32_t n_logprobs; /* 1 + n_top where they were asked for and a token was chosen, else 0 */
    const pleat_logprob *logprobs; /* [n_logprobs] of `chosen`, then of the likeliest (pleat_logprobs) */
    const pleat_logprob
        *prompt_logprobs;   /* [n_prompt_rows][1 + n_top] with the first token chosen; else NULL.  Row i has
                                           * prompt token i; row 0, before which nothing stands, has 0 and tokens -1 */
    uint32_t n_prompt_rows; /* n_prompt, or 0 */
    uint32_t n_top;         /* the request's */
    int is_progress;        /* an event of progress: there is no token, and stats are as of now */
    uint32_t n_read; /* in one: prompt tokens read so far.  First stats.n_hit, then more each time, last n_prompt */
} pleat_serving_event;

/* What the last step brought, in order of the running requests; with what it points at the serving's own until the next
 * call. */
PLEAT_API const pleat_serving_event *pleat_serving_events(const pleat_serving *serving, uint32_t *n_events);

typedef struct pleat_serving_stats {
    uint32_t n_waiting, n_running;
    uint32_t n_swapped;    /* waiting with an image */
    uint32_t peak_running; /* most that ran at once */
    uint64_t n_steps;
    uint64_t n_idle_steps;   /* steps in which nobody took a token though somebody was there */
    uint64_t max_idle_steps; /* most idle steps in a row */
    uint64_t prompt_tokens;  /* prompt tokens computed for the first time */
    uint64_t hit_tokens;     /* prompt tokens taken from kept prefixes */
    uint64_t lookups, hits;  /* searches for a prefix, and finds, of requests that were admitted for the first time */
    uint64_t generated_tokens;
    uint64_t replayed_tokens; /* prompt and generated tokens computed again */
    uint64_t preempted_swap, preempted_recompute, compressed, evicted;
    uint64_t images_lost; /* requests computed again though swapped, since the prefix that they stood on was evicted */
    uint64_t swapped_bytes; /* bytes of images in host memory now */
    uint64_t peak_swapped_bytes;
    uint32_t n_prefixes; /* kept now */
    uint64_t pages_total, pages_used, pages_evictable;
    uint64_t pages_high, pages_low; /* pages by the side that holds them; a shared page counts for each who shares it */
    uint64_t pages_shared; /* held by requests from the kept prefixes that they stand on; counts for each who runs */
    uint64_t schedule_ns;  /* time spent on deciding: plans, prefixes, demands */
    uint64_t manage_ns;    /* time spent on memory: pages and compaction in the engine, forks, copies, swaps */
    uint64_t compact_ns;   /* part of manage_ns for policies, and moving and requantising tokens */
    uint64_t tokens_moved, pages_returned; /* counters of the engine's cache (pleat_cache_usage) */
    uint64_t fragmentation[101]; /* [k]: how often, after a step, k % of the slots in a running request's pages had no
                                  * token, rounded down */
    uint64_t step_ns;            /* time of all steps, with the forward passes */
    double fixed_ns, prompt_ns, token_ns, byte_ns, swap_ns; /* prices as observed so far */
    uint64_t store_hits,
        store_tokens;      /* requests that began from a prefix of the store, and its tokens: a part of `hits`
                                        * and `hit_tokens` */
    uint64_t store_costly; /* prefixes that the store has, and that were cheaper to compute or had no room */
    double chunk_ns;       /* one more price: of a prompt's chunk, whatever its length */
} pleat_serving_stats;
PLEAT_API void pleat_serving_get_stats(const pleat_serving *serving, pleat_serving_stats *out);

/* Pages that a tenant holds now, and of these beyond its quota.  PLEAT_E_ARG for an unknown name. */
PLEAT_API pleat_status pleat_serving_tenant_pages(const pleat_serving *serving, const char *tenant, uint64_t *held,
                                                  uint64_t *borrowed);

/* Time on the serving's clock: simulated, or since create. */
PLEAT_API uint64_t pleat_serving_clock_ns(const pleat_serving *serving);

/* Let simulated time pass, to the next arrival. */
PLEAT_API void pleat_serving_clock_advance(pleat_serving *serving, uint64_t ns);

/* Drop every kept prefix that nobody uses, and that is not pinned nor below one that is. */
PLEAT_API void pleat_serving_forget_prefixes(pleat_serving *serving);

/* A kept prefix, for who runs the serving.  All that follows is the driving thread's, between steps. */
typedef struct pleat_kept_prefix {
    uint64_t id;         /* never used twice; 0 is none */
    uint64_t parent;     /* of the kept one that it goes on from; 0: none */
    uint32_t n_tokens;   /* from the beginning of a prompt */
    uint32_t n_users;    /* running requests that stand on it, or on one that goes on from it */
    uint32_t n_children; /* kept ones that go on from it */
    uint64_t n_hits;     /* requests that began from it */
    uint64_t n_pages;    /* pages that it has beside those of its parent */
    int is_pinned;
    float ah, al;     /* leankv: its thresholds; else 0 */
    const char *salt; /* [n_salt] without a NUL; lives as long as the serving */
    uint32_t n_salt;
} pleat_kept_prefix;

/* The first n of the kept prefixes, in no order.  Returns how many there are, at most max_prefixes. */
PLEAT_API uint32_t pleat_serving_prefixes(const pleat_serving *serving, pleat_kept_prefix *out, uint32_t n);

/* The tokens of a kept prefix.  PLEAT_E_LIMIT: there are *n, more than cap.  PLEAT_E_ARG: there is no such prefix. */
PLEAT_API pleat_status pleat_serving_prefix_tokens(const pleat_serving *serving, uint64_t id, pleat_token *out,
                                                   uint32_t cap, uint32_t *n);

/* The longest kept prefix of tokens [n] that ends at a multiple of prefix_tokens, as all do that requests which name no
 * breakpoints share; 0: there is none.  salt as in a request. */
PLEAT_API uint64_t pleat_serving_find_prefix(pleat_serving *serving, const char *salt, const pleat_token *tokens,
                                             uint32_t n);

/* Pin a prefix: it is not evicted, and so neither are those that it goes on from.  is_pinned 0: no longer.  Pinned ones
 * have at most half of the pool, and requests that cannot fit beside them are refused, or fail with PLEAT_E_LIMIT where
 * they were here before.  PLEAT_E_ARG: there is no such prefix; PLEAT_E_LIMIT: they would have more; PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_serving_pin_prefix(pleat_serving *serving, uint64_t id, int is_pinned);

/* Drop a prefix, and those that go on from it.  PLEAT_E_ARG: there is no such prefix; PLEAT_E_STATE: a request stands on
 * one of them, or one is pinned. */
PLEAT_API pleat_status pleat_serving_drop_prefix(pleat_serving *serving, uint64_t id);

/* Raise the thresholds of a prefix (pleat_cache_compress), so that it holds less from now on.  Those that go on from it are
 * dropped, and it is not written to a store any more.  Pages that it shares with its parent stay as they are.
 * Who begins from it has its thresholds, and not the tokens that it would have without.
 * PLEAT_E_UNSUPPORTED: the spec has no thresholds; PLEAT_E_ARG: there is no such prefix, or these are no higher ones;
 * PLEAT_E_STATE: a request stands on it, or one below it is pinned.  PLEAT_AGAIN: no pages are free to work with, and
 * nothing has changed. */
PLEAT_API pleat_status pleat_serving_compress_prefix(pleat_serving *serving, uint64_t id, float ah, float al);

/* Recompute every invariant of the cache, the tree and the scheduler, and that their pages agree.  Slow, for tests. */
PLEAT_API int pleat_serving_is_valid(const pleat_serving *serving);

/* Cancels what is left.  Set *serving to NULL; NULL and *serving == NULL are fine. */
PLEAT_API void pleat_serving_destroy(pleat_serving **serving);

#ifdef __cplusplus
}
#endif
#endif
