/* SPDX-License-Identifier: MIT
 *
 * bench_pages.c: `pleat bench pages`: what it costs to give every lane a page, and to take them all back.
 *
 *     take    pleat_cache_begin() + pleat_cache_end() of one page's tokens for all sequences
 *     return  pleat_cache_close() of all sequences
 *     loop    the same with the plainest thing there is: a stack of free ids, a reference count and a table entry
 *             for each lane, in one loop
 *
 * Both run turn and turn about in one run.  The tokens are stored between begin and end, as a cache's contract wants,
 * outside of the time taken.  Heads are small, so that pages are small and memory stays out of it.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "load.h"
#include "output.h"

enum { N_LAYERS = 8, N_KV_HEADS = 8, HEAD_DIM = 16, PAGE_TOKENS = 16, LANES_PER_SEQ = N_LAYERS * N_KV_HEADS };
enum { DEFAULT_REPS = 15 };

/* The rival: ids 0..n_lanes-1 in a stack. */
typedef struct plain_pool {
    uint32_t *free_ids, *refs, *lane_page; /* [n_lanes] each */
    uint32_t n_free;
} plain_pool;

typedef struct timing {
    const char *what, *how;
    double *ms; /* [reps] */
    cli_spread spread;
} timing;

enum { TAKE_PLEAT, TAKE_LOOP, RETURN_PLEAT, RETURN_LOOP, N_TIMINGS };

typedef struct bench {
    const options *o;
    output out;
    pleat_workers *workers;
    pleat_cache *cache;
    uint32_t n_seqs, n_lanes, reps;
    pleat_cache_item *items; /* [n_seqs] */
    float *kv;               /* [n_seqs * PAGE_TOKENS][N_KV_HEADS][HEAD_DIM] */
    plain_pool plain;
    timing timings[N_TIMINGS];
} bench;

static void plain_take(plain_pool *p, uint32_t n_lanes) {
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t id = p->free_ids[--p->n_free];
        p->refs[id] = 1;
        p->lane_page[lane] = id;
    }
}

static void plain_return(plain_pool *p, uint32_t n_lanes) {
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t id = p->lane_page[lane];
        if (--p->refs[id] == 0) p->free_ids[p->n_free++] = id;
        p->lane_page[lane] = UINT32_MAX;
    }
}

static double ms_since(double start_s) { return (cli_seconds() - start_s) * 1e3; }

static pleat_status take_pages(bench *b, double *ms) {
    pleat_status status = PLEAT_OK;
    for (uint32_t i = 0; i < b->n_seqs && status == PLEAT_OK; i++)
        status = pleat_cache_open(b->cache, PAGE_TOKENS, &b->items[i].seq);
    double start_s = cli_seconds();
    if (status == PLEAT_OK) status = pleat_cache_begin(b->cache, b->items, b->n_seqs);
    *ms = ms_since(start_s);
    for (uint32_t layer = 0; layer < N_LAYERS && status == PLEAT_OK; layer++)
        status = pleat_cache_store(b->cache, layer, b->kv, b->kv);
    start_s = cli_seconds();
    if (status == PLEAT_OK) status = pleat_cache_end(b->cache);
    *ms += ms_since(start_s);
    return status;
}

static pleat_status return_pages(bench *b, double *ms) {
    pleat_status status = PLEAT_OK;
    const double start_s = cli_seconds();
    for (uint32_t i = 0; i < b->n_seqs && status == PLEAT_OK; i++)
        status = pleat_cache_close(b->cache, b->items[i].seq);
    *ms = ms_since(start_s);
    return status;
}

/* All four once; times at index rep. */
static int run_once(bench *b, uint32_t rep) {
    pleat_cache_usage usage;
    pleat_status status = take_pages(b, &b->timings[TAKE_PLEAT].ms[rep]);
    if (status == PLEAT_OK) status = pleat_cache_get_usage(b->cache, (pleat_seq){0}, &usage);
    if (status == PLEAT_OK && usage.pages_used != b->n_lanes) {
        cli_error("%u lanes took %llu pages", b->n_lanes, (unsigned long long)usage.pages_used);
        return CLI_FAILED;
    }
    if (status == PLEAT_OK) status = return_pages(b, &b->timings[RETURN_PLEAT].ms[rep]);
    double start_s = cli_seconds();
    plain_take(&b->plain, b->n_lanes);
    b->timings[TAKE_LOOP].ms[rep] = ms_since(start_s);
    start_s = cli_seconds();
    plain_return(&b->plain, b->n_lanes);
    b->timings[RETURN_LOOP].ms[rep] = ms_since(start_s);
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

static void make_plain(plain_pool *p, uint32_t n) {
    p->free_ids = cli_alloc(n, sizeof *p->free_ids);
    p->refs = cli_alloc(n, sizeof *p->refs);
    p->lane_page = cli_alloc(n, sizeof *p->lane_page);
    for (p->n_free = 0; p->n_free < n; p->n_free++) p->free_ids[p->n_free] = n - 1 - p->n_free;
}

static int prepare(bench *b) {
    static const char *const what[N_TIMINGS] = {"take", "take", "return", "return"};
    static const char *const how[N_TIMINGS] = {"pleat", "loop", "pleat", "loop"};
    cli_rng rng = {3};
    b->reps = b->o->reps ? b->o->reps : DEFAULT_REPS;
    b->n_seqs = (b->o->lanes + LANES_PER_SEQ - 1) / LANES_PER_SEQ;
    b->n_lanes = b->n_seqs * LANES_PER_SEQ;
    for (int i = 0; i < N_TIMINGS; i++)
        b->timings[i] = (timing){what[i], how[i], cli_alloc(b->reps, sizeof(double)), {0, 0, 0}};
    b->items = cli_alloc(b->n_seqs, sizeof *b->items);
    for (uint32_t i = 0; i < b->n_seqs; i++) b->items[i].n_tokens = PAGE_TOKENS;
    const size_t n = (size_t)b->n_seqs * PAGE_TOKENS * N_KV_HEADS * HEAD_DIM;
    b->kv = cli_alloc(n, sizeof *b->kv);
    cli_rng_normal(&rng, b->kv, n);
    make_plain(&b->plain, b->n_lanes);
    int code = output_open(&b->out, b->o);
    if (code == CLI_OK) code = load_workers(b->o, &b->workers);
    return code == CLI_OK ? make_cache(b) : code;
}

static int run_all(bench *b) {
    int code = CLI_OK;
    for (int warm = 0; warm < 2 && code == CLI_OK; warm++) code = run_once(b, 0);
    for (uint32_t rep = 0; rep < b->reps && code == CLI_OK; rep++) code = run_once(b, rep);
    for (int i = 0; i < N_TIMINGS; i++) b->timings[i].spread = cli_spread_of(b->timings[i].ms, b->reps);
    return code;
}

/* ---- rows -------------------------------------------------------------------------------------- */

/* How many times as fast as the plain loop; the loop's row follows each row of ours. */
static double ratio(const bench *b, int i) { return b->timings[i | 1].spread.median / b->timings[i].spread.median; }

static void write_json(bench *b) {
    json_t *rows = json_array();
    for (int i = 0; i < N_TIMINGS; i++) {
        const timing *t = &b->timings[i];
        json_t *params = json_pack("{s:s, s:s, s:i, s:i, s:i}", "op", t->what, "how", t->how, "lanes", (int)b->n_lanes,
                                   "sequences", (int)b->n_seqs, "reps", (int)b->reps);
        json_array_append_new(rows, json_pack("{s:s, s:o, s:o, s:o, s:o}", "what", "pages", "params", params, "ms",
                                              json_spread(t->spread), "ns_per_lane",
                                              json_number(t->spread.median * 1e6 / b->n_lanes), "speed_to_loop",
                                              json_number(ratio(b, i))));
    }
    output_json(&b->out, json_pack("{s:o}", "rows", rows));
}

static void write_rows(bench *b) {
    static const char *const titles[] = {"op", "how", "lanes", "ms min", "ms median", "ms max", "ns/lane", "x loop"};
    table t;
    table_init(&t, titles, 8);
    for (int i = 0; i < N_TIMINGS; i++) {
        const timing *row = &b->timings[i];
        table_put(&t, "%s", row->what);
        table_put(&t, "%s", row->how);
        table_put(&t, "%u", b->n_lanes);
        table_put(&t, "%.4f", row->spread.min);
        table_put(&t, "%.4f", row->spread.median);
        table_put(&t, "%.4f", row->spread.max);
        table_put_number(&t, 2, row->spread.median * 1e6 / b->n_lanes);
        table_put_number(&t, 2, ratio(b, i));
    }
    table_write(&t, &b->out);
    table_release(&t);
}

int command_bench_pages(options *o) {
    bench b = {.o = o};
    int code = prepare(&b);
    if (code == CLI_OK) code = run_all(&b);
    if (code == CLI_OK && o->format == FORMAT_JSON)
        write_json(&b);
    else if (code == CLI_OK)
        write_rows(&b);
    const int closed = output_close(&b.out);
    pleat_cache_destroy(&b.cache);
    pleat_workers_destroy(&b.workers);
    for (int i = 0; i < N_TIMINGS; i++) free(b.timings[i].ms);
    free(b.items);
    free(b.kv);
    free(b.plain.free_ids);
    free(b.plain.refs);
    free(b.plain.lane_page);
    return code == CLI_OK ? closed : code;
}
