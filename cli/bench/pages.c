/* SPDX-License-Identifier: MIT
 *
 * pages.c: `pleat bench pages`: what it costs to take a page for every lane, and to return them all.
 *
 *     take    step    pleat_cache_begin() + pleat_cache_end() of one page's tokens for all sequences
 *             plan    of that: planning and committing pages, as pleat_cache_get_times() says
 *     return  step    pleat_cache_close() of all sequences
 *     both    loop    the plainest thing there is: a stack of free ids, a reference count and a table entry for each
 *                     lane, in one loop
 *             mutex   the same with the stack locked for each lane, all worker threads at once: LeanKV's memory manager
 *                     on the CPU, which its GPU manager replaces, in miniature
 *
 * All run turn and turn about in one run.  The tokens are stored between begin and end, as a cache's contract wants,
 * outside of the time taken.  Heads are small, so that pages are small and memory stays out of it.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cli/bench/device/device.h"
#include "cli/lib/common.h"
#include "cli/lib/load.h"
#include "cli/lib/measure.h"
#include "cli/lib/output.h"

/* ---- options ----------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(pages_options, field)
/* clang-format off */
static const option_row rows[] = {
    THREADS_ROW(pages_options, threads),
    CPU_MASK_ROW(pages_options),
    DEVICE_ROW(pages_options),
    {GROUP_SHAPE, "lanes", NULL, "N", "lanes that take a page (default 32768)", KIND_U32, AT(lanes), 64, 4194304},
    REPS_ROW(pages_options),
    COMMON_ROWS(pages_options),
};
/* clang-format on */

static void set_defaults(void *opts) {
    pages_options *o = opts;
    o->lanes = 32768;
    o->reps = DEFAULT_REPS;
}

/* ---- the benchmark ----------------------------------------------------------------------------- */

enum { N_LAYERS = 8, N_KV_HEADS = 8, HEAD_DIM = 16, PAGE_TOKENS = 16, LANES_PER_SEQ = N_LAYERS * N_KV_HEADS };

/* The rivals: ids 0..n_lanes-1 in a stack. */
typedef struct plain_pool {
    uint32_t *free_ids, *refs, *lane_page; /* [n_lanes] each */
    uint32_t n_free;
    uint32_t n_lanes, n_shares; /* units of a locked pool: equal shares of the lanes */
    pthread_mutex_t lock;       /* of free_ids and n_free */
} plain_pool;

enum { TAKE_STEP, TAKE_PLAN, TAKE_LOOP, TAKE_MUTEX, RETURN_STEP, RETURN_LOOP, RETURN_MUTEX, N_TIMINGS };

typedef struct contender {
    const char *op, *how;
    int loop, mutex; /* whom it is compared with */
} contender;

static const contender contenders[N_TIMINGS] = {
    [TAKE_STEP] = {"take", "step", TAKE_LOOP, TAKE_MUTEX},
    [TAKE_PLAN] = {"take", "plan", TAKE_LOOP, TAKE_MUTEX},
    [TAKE_LOOP] = {"take", "loop", TAKE_LOOP, TAKE_MUTEX},
    [TAKE_MUTEX] = {"take", "mutex", TAKE_LOOP, TAKE_MUTEX},
    [RETURN_STEP] = {"return", "step", RETURN_LOOP, RETURN_MUTEX},
    [RETURN_LOOP] = {"return", "loop", RETURN_LOOP, RETURN_MUTEX},
    [RETURN_MUTEX] = {"return", "mutex", RETURN_LOOP, RETURN_MUTEX},
};

typedef struct timing {
    double *ms; /* [reps] */
    measure_spread spread;
} timing;

typedef struct bench {
    const pages_options *o;
    output out;
    pleat_workers *workers;
    pleat_cache *cache;
    uint32_t n_seqs, n_lanes, reps;
    pleat_cache_item *items; /* [n_seqs] */
    float *kv;               /* [n_seqs * PAGE_TOKENS][N_KV_HEADS][HEAD_DIM] */
    plain_pool loop, mutex;
    timing timings[N_TIMINGS];
} bench;

static void plain_take(plain_pool *p) {
    const uint32_t n_lanes = p->n_lanes;
    uint32_t n_free = p->n_free; /* in a register */
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t id = p->free_ids[--n_free];
        p->refs[id] = 1;
        p->lane_page[lane] = id;
    }
    p->n_free = n_free;
}

static void plain_return(plain_pool *p) {
    const uint32_t n_lanes = p->n_lanes;
    uint32_t n_free = p->n_free;
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t id = p->lane_page[lane];
        if (--p->refs[id] == 0) p->free_ids[n_free++] = id;
        p->lane_page[lane] = UINT32_MAX;
    }
    p->n_free = n_free;
}

/* First lane of a share; that of share n_shares is n_lanes. */
static uint32_t first_lane(const plain_pool *p, uint32_t share) {
    return (uint32_t)((uint64_t)p->n_lanes * share / p->n_shares);
}

static void locked_take(void *ctx, uint32_t share, uint32_t worker) {
    plain_pool *p = ctx;
    (void)worker;
    for (uint32_t lane = first_lane(p, share); lane < first_lane(p, share + 1); lane++) {
        pthread_mutex_lock(&p->lock);
        const uint32_t id = p->free_ids[--p->n_free];
        pthread_mutex_unlock(&p->lock);
        p->refs[id] = 1;
        p->lane_page[lane] = id;
    }
}

static void locked_return(void *ctx, uint32_t share, uint32_t worker) {
    plain_pool *p = ctx;
    (void)worker;
    for (uint32_t lane = first_lane(p, share); lane < first_lane(p, share + 1); lane++) {
        const uint32_t id = p->lane_page[lane];
        p->lane_page[lane] = UINT32_MAX;
        if (--p->refs[id] > 0) continue;
        pthread_mutex_lock(&p->lock);
        p->free_ids[p->n_free++] = id;
        pthread_mutex_unlock(&p->lock);
    }
}

static void nothing(void *ctx, uint32_t unit, uint32_t worker) {
    (void)ctx;
    (void)unit;
    (void)worker;
}

static double ms_since(double start_s) { return (measure_now_s() - start_s) * 1e3; }

/* Time that the cache says it has spent on pages in steps of several tokens. */
static double pages_ms(const bench *b) {
    pleat_cache_times times;
    pleat_cache_get_times(b->cache, &times);
    return (double)times.pages_ns[0] / 1e6;
}

static pleat_status take_pages(bench *b, double *step_ms, double *plan_ms) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < b->n_seqs && status == PLEAT_OK; i++)
        status = pleat_cache_open(b->cache, PAGE_TOKENS, &b->items[i].seq);
    *plan_ms = pages_ms(b);
    double start_s = measure_now_s();
    if (status == PLEAT_OK) status = pleat_cache_begin(b->cache, b->items, b->n_seqs);
    *step_ms = ms_since(start_s);
    for (uint32_t layer = 0; layer < N_LAYERS && status == PLEAT_OK; layer++)
        status = pleat_cache_store(b->cache, layer, b->kv, b->kv);
    start_s = measure_now_s();
    if (status == PLEAT_OK) status = pleat_cache_end(b->cache);
    *step_ms += ms_since(start_s);
    *plan_ms = pages_ms(b) - *plan_ms;
    return status;
}

static pleat_status return_pages(bench *b, double *ms) {
    pleat_status status = PLEAT_OK;
    const double start_s = measure_now_s();
    for (uint32_t i = 0; i < b->n_seqs && status == PLEAT_OK; i++)
        status = pleat_cache_close(b->cache, b->items[i].seq);
    *ms = ms_since(start_s);
    return status;
}

static double time_plain(plain_pool *p, void (*fn)(plain_pool *)) {
    const double start_s = measure_now_s();
    fn(p);
    return ms_since(start_s);
}

/* The threads are awake when the clock starts. */
static double time_locked(bench *b, void (*fn)(void *, uint32_t, uint32_t)) {
    for (int i = 0; i < 1000; i++) pleat_workers_run(b->workers, b->mutex.n_shares, nothing, NULL);
    const double start_s = measure_now_s();
    pleat_workers_run(b->workers, b->mutex.n_shares, fn, &b->mutex);
    return ms_since(start_s);
}

/* All once; times at index rep. */
static int run_once(bench *b, uint32_t rep) {
    timing *t = b->timings;
    pleat_cache_usage usage;
    pleat_status status = take_pages(b, &t[TAKE_STEP].ms[rep], &t[TAKE_PLAN].ms[rep]);
    if (status == PLEAT_OK) status = pleat_cache_get_usage(b->cache, (pleat_seq){0}, &usage);
    if (status == PLEAT_OK && usage.pages_used != b->n_lanes) {
        cli_error("%u lanes took %llu pages", b->n_lanes, (unsigned long long)usage.pages_used);
        return CLI_FAILED;
    }
    if (status == PLEAT_OK) status = return_pages(b, &t[RETURN_STEP].ms[rep]);
    t[TAKE_LOOP].ms[rep] = time_plain(&b->loop, plain_take);
    t[RETURN_LOOP].ms[rep] = time_plain(&b->loop, plain_return);
    t[TAKE_MUTEX].ms[rep] = time_locked(b, locked_take);
    t[RETURN_MUTEX].ms[rep] = time_locked(b, locked_return);
    return status == PLEAT_OK ? CLI_OK : cli_fail("the cache failed", status, NULL);
}

static int make_cache(bench *b) {
    pleat_cache_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_cache_options_default(&opt);
    opt.n_layers = N_LAYERS;
    opt.n_kv_heads = opt.n_q_heads = N_KV_HEADS;
    opt.head_dim = HEAD_DIM;
    opt.page_tokens = PAGE_TOKENS;
    opt.max_seqs = b->n_seqs;
    opt.max_tokens = PAGE_TOKENS;
    opt.step_tokens = b->n_seqs * PAGE_TOKENS;
    opt.workers = b->workers;
    const pleat_status status = pleat_cache_create(&opt, &b->cache, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot make the cache", status, &err);
}

static void make_plain(plain_pool *p, uint32_t n_lanes, uint32_t n_shares) {
    p->n_lanes = n_lanes;
    p->n_shares = n_shares;
    p->free_ids = cli_alloc(n_lanes, sizeof *p->free_ids);
    p->refs = cli_alloc(n_lanes, sizeof *p->refs);
    p->lane_page = cli_alloc(n_lanes, sizeof *p->lane_page);
    for (p->n_free = 0; p->n_free < n_lanes; p->n_free++) p->free_ids[p->n_free] = n_lanes - 1 - p->n_free;
    pthread_mutex_init(&p->lock, NULL);
}

static void free_plain(plain_pool *p) {
    if (!p->free_ids) return; /* never made */
    pthread_mutex_destroy(&p->lock);
    free(p->free_ids);
    free(p->refs);
    free(p->lane_page);
}

static int prepare(bench *b) {
    measure_rng rng = {3};
    b->reps = b->o->reps;
    b->n_seqs = (b->o->lanes + LANES_PER_SEQ - 1) / LANES_PER_SEQ;
    b->n_lanes = b->n_seqs * LANES_PER_SEQ;
    for (int i = 0; i < N_TIMINGS; i++) b->timings[i].ms = cli_alloc(b->reps, sizeof(double));
    b->items = cli_alloc(b->n_seqs, sizeof *b->items);
    for (uint32_t i = 0; i < b->n_seqs; i++) b->items[i].n_tokens = PAGE_TOKENS;
    const size_t n = (size_t)b->n_seqs * PAGE_TOKENS * N_KV_HEADS * HEAD_DIM;
    b->kv = cli_alloc(n, sizeof *b->kv);
    measure_rng_normal(&rng, b->kv, n);
    int code = output_open(&b->out, &b->o->common);
    if (code == CLI_OK) code = load_workers(b->o->threads, b->o->common.quiet, &b->workers);
    if (code != CLI_OK) return code;
    make_plain(&b->loop, b->n_lanes, 1);
    make_plain(&b->mutex, b->n_lanes, pleat_workers_count(b->workers));
    return make_cache(b);
}

static int run_all(bench *b) {
    int code = CLI_OK;
    for (int warm = 0; warm < 2 && code == CLI_OK; warm++) code = run_once(b, 0);
    for (uint32_t rep = 0; rep < b->reps && code == CLI_OK; rep++) code = run_once(b, rep);
    for (int i = 0; i < N_TIMINGS; i++) b->timings[i].spread = measure_spread_of(b->timings[i].ms, b->reps);
    return code;
}

/* ---- rows -------------------------------------------------------------------------------------- */

/* How many times as fast as another. */
static double speed_to(const bench *b, int i, int other) {
    return b->timings[other].spread.median / b->timings[i].spread.median;
}

static double ns_per_lane(const bench *b, int i) { return b->timings[i].spread.median * 1e6 / b->n_lanes; }

static json_t *json_row(const bench *b, int i) {
    const contender *c = &contenders[i];
    json_t *params = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i}", "op", c->op, "how", c->how, "lanes", (int)b->n_lanes,
                               "sequences", (int)b->n_seqs, "threads", (int)b->mutex.n_shares, "reps", (int)b->reps);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "what", "pages", "params", params, "ms",
                     json_spread(b->timings[i].spread), "ns_per_lane", json_number(ns_per_lane(b, i)), "speed_to_loop",
                     json_number(speed_to(b, i, c->loop)), "speed_to_mutex", json_number(speed_to(b, i, c->mutex)));
}

static void write_rows(bench *b) {
    static const char *const titles[] = {"op",     "how",     "lanes",  "ms min", "ms median",
                                         "ms max", "ns/lane", "x loop", "x mutex"};
    json_t *list = json_array();
    table t;
    table_init(&t, titles, 9);
    for (int i = 0; i < N_TIMINGS; i++) {
        const contender *c = &contenders[i];
        const measure_spread *ms = &b->timings[i].spread;
        table_put(&t, "%s", c->op);
        table_put(&t, "%s", c->how);
        table_put(&t, "%u", b->n_lanes);
        table_put(&t, "%.4f", ms->min);
        table_put(&t, "%.4f", ms->median);
        table_put(&t, "%.4f", ms->max);
        table_put_number(&t, 2, ns_per_lane(b, i));
        table_put_number(&t, 2, speed_to(b, i, c->loop));
        table_put_number(&t, 2, speed_to(b, i, c->mutex));
        json_array_append_new(list, json_row(b, i));
    }
    output_rows(&b->out, list, NULL, &t);
    json_decref(list);
    table_release(&t);
}

static int run(void *opts) {
    const pages_options *o = opts;
    if (o->device == DEVICE_CUDA) return bench_device_pages(o);
    bench b = {.o = o};
    int code = prepare(&b);
    if (code == CLI_OK) code = run_all(&b);
    if (code == CLI_OK) write_rows(&b);
    const int closed = output_close(&b.out);
    pleat_cache_destroy(&b.cache);
    pleat_workers_destroy(&b.workers);
    for (int i = 0; i < N_TIMINGS; i++) free(b.timings[i].ms);
    free(b.items);
    free(b.kv);
    free_plain(&b.loop);
    free_plain(&b.mutex);
    return code == CLI_OK ? closed : code;
}

const command bench_pages_command = {
    .name = "bench pages",
    .help = "time to take and return a page for every lane",
    .usage = "[--lanes N] [--device cuda]",
    .about = "Times a step that takes one page for every lane, and their return to the pool, beside a plain stack of "
             "free ids and a locked one.",
    ROWS_OF(rows),
    .options_bytes = sizeof(pages_options),
    .set_defaults = set_defaults,
    .run = run,
};
