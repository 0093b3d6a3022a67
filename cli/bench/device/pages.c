/* SPDX-License-Identifier: MIT
 *
 * pages.c: `pleat bench pages --device cuda`: what a step's pages cost on a GPU: every lane says what it
 * needs, ids are handed out and taken back in the lanes' order, all tables stand in device memory.
 *
 *     pages       pleat_device_cache_plan_pages(): from plan to commit, in one launch: pages past a lane's last
 *                 token go back to the circular list, those that one more token needs are taken from it
 *     CUB         cub::DeviceScan's exclusive sum of the needs, and a kernel that hands out: less than half of the work
 *                 (cuda/gpu_scan.cu)
 *     CPU loop    the same work on tables of the host: lanes' lengths are copied down, a plain loop returns pages to
 *                 a stack and takes pages from it, page counts and new ids are copied up
 *
 * Each launched by itself (a call between two events, nothing else under way) and, but for the loop, in a graph of a
 * hundred.  All run turn and turn about in one run.  In `1/16` every sixteenth lane stands at the end of a page, as in
 * generation with pages of 16 tokens; in `all` each does.  A lane there returns and takes a page in every call, so that
 * calls can be repeated.
 */
#include <stdlib.h>

#include "cli/lib/measure.h"
#include "cli/lib/progress.h"
#include "device.h"
#include "pleat/device_cache.h"

enum { N_LAYERS = 8, N_KV_HEADS = 8, LANES_PER_SEQ = N_LAYERS * N_KV_HEADS };
enum { HEAD_DIM = 64, PAGE_TOKENS = 16, LANE_PAGES = 2, ROW_CELLS = 4 }; /* pages of 4 KiB */
enum { CALLS = 10, CALLS_A_GRAPH = 100 };
#define NO_PAGE UINT32_MAX

enum { PAGES_LAUNCHED, PAGES_GRAPH, CUB_LAUNCHED, CUB_GRAPH, CPU_LOOP, N_TIMINGS };

typedef struct contender {
    const char *name, *how;
    int cub; /* whom of CUB's it is compared with */
} contender;

static const contender contenders[N_TIMINGS] = {
    [PAGES_LAUNCHED] = {"pages", "launched", CUB_LAUNCHED}, [PAGES_GRAPH] = {"pages", "graph", CUB_GRAPH},
    [CUB_LAUNCHED] = {"CUB", "launched", CUB_LAUNCHED},     [CUB_GRAPH] = {"CUB", "graph", CUB_GRAPH},
    [CPU_LOOP] = {"CPU loop", "copies", CUB_LAUNCHED},
};

/* Which lanes take a page. */
typedef struct load {
    const char *name;
    uint32_t every; /* of so many lanes one */
} load;
static const load loads[] = {{"1/16", 16}, {"all", 1}};
enum { N_LOADS = sizeof loads / sizeof loads[0] };

/* Tables of the host.  Copies reach the arrays that are marked. */
typedef struct host_pages {
    uint32_t *n_slots;           /* [n_lanes] copied down */
    uint32_t *n_pages, *new_ids; /* [n_lanes] copied up; NO_PAGE: the lane has got none */
    uint32_t *ids;               /* [n_lanes][ROW_CELLS] */
    uint32_t *free_ids, *refs;   /* [n_lanes * ROW_CELLS] a stack; references */
    uint32_t n_free;
} host_pages;

/* A cache, and its rivals with the same needs. */
typedef struct arena {
    pleat_device_cache *cache;
    gpu_scan *scan;
    gpu_graph graphs[2]; /* pages, CUB */
    host_pages host;
    uint32_t *device_slots, *device_pages, *device_ids; /* [n_lanes] device memory: the host's copies */
    uint32_t *takes;                                    /* [n_lanes] 1: the lane takes a page */
    uint32_t n_takers;
    double *us[N_TIMINGS]; /* [reps] */
} arena;

typedef struct bench {
    const pages_options *o;
    output out;
    bench_device device;
    uint32_t n_seqs, n_lanes, reps;
    arena arenas[N_LOADS];
} bench;

/* ---- the cache ------------------------------------------------------------------------------------------ */

static pleat_status make_cache(bench *b, arena *a, pleat_error *err) {
    pleat_device_cache_options opt;
    pleat_device_cache_options_default(&opt);
    opt.n_layers = N_LAYERS;
    opt.n_kv_heads = opt.n_q_heads = N_KV_HEADS;
    opt.head_dim = HEAD_DIM;
    opt.page_tokens = PAGE_TOKENS;
    opt.max_seqs = b->n_seqs;
    opt.max_tokens = PAGE_TOKENS * ROW_CELLS;
    return pleat_device_cache_create(&opt, &a->cache, err);
}

static pleat_status fill_cache(bench *b, arena *a, pleat_error *err) {
    void *stream = b->device.gpu.stream;
    uint32_t *seq_idxs = cli_alloc(b->n_seqs, sizeof *seq_idxs);
    pleat_status status = PLEAT_OK;
    for (uint32_t seq_idx = 0; seq_idx < b->n_seqs && status == PLEAT_OK; seq_idx++) {
        status = pleat_device_cache_fill(a->cache, seq_idx, a->host.n_slots + (size_t)seq_idx * LANES_PER_SEQ, NULL,
                                         seq_idx, stream, err);
        seq_idxs[seq_idx] = seq_idx;
    }
    DEVICE_THEN(status, pleat_device_cache_set_batch(a->cache, seq_idxs, b->n_seqs, stream, err));
    free(seq_idxs);
    return status;
}

/* Every lane has what it needs, and nobody has more. */
static pleat_status check_cache(bench *b, arena *a, pleat_error *err) {
    pleat_device_cache_usage usage;
    const uint64_t want = (uint64_t)b->n_lanes * LANE_PAGES + a->n_takers;
    pleat_status status = pleat_device_cache_plan_pages(a->cache, b->device.gpu.stream, err);
    DEVICE_THEN(status, pleat_device_cache_wait(a->cache, b->device.gpu.stream, err));
    DEVICE_THEN(status, pleat_device_cache_get_usage(a->cache, &usage, b->device.gpu.stream, err));
    if (status != PLEAT_OK || usage.pages_used == want) return status;
    snprintf(err->text, sizeof err->text, "%u lanes hold %llu pages, not %llu", b->n_lanes,
             (unsigned long long)usage.pages_used, (unsigned long long)want);
    return PLEAT_E_STATE;
}

/* ---- what is timed -------------------------------------------------------------------------------------- */

static pleat_status put(bench *b, arena *a, int timing, pleat_error *err) {
    if (timing == PAGES_LAUNCHED) return pleat_device_cache_plan_pages(a->cache, b->device.gpu.stream, err);
    return gpu_scan_run(&b->device.gpu, a->scan, err);
}

/* The median of some calls, each by itself. */
static pleat_status time_launched(bench *b, arena *a, int timing, double *us, pleat_error *err) {
    const gpu *g = &b->device.gpu;
    double each[CALLS];
    pleat_status status = PLEAT_OK;
    for (int i = 0; i < CALLS && status == PLEAT_OK; i++) {
        status = gpu_clock_start(g, err);
        DEVICE_THEN(status, put(b, a, timing, err));
        DEVICE_THEN(status, gpu_clock_stop(g, &each[i], err));
    }
    if (status == PLEAT_OK) *us = measure_median(each, CALLS);
    return status;
}

static pleat_status time_graph(bench *b, gpu_graph graph, double *us, pleat_error *err) {
    const gpu *g = &b->device.gpu;
    pleat_status status = gpu_clock_start(g, err);
    DEVICE_THEN(status, gpu_graph_launch(g, graph, err));
    DEVICE_THEN(status, gpu_clock_stop(g, us, err));
    *us /= CALLS_A_GRAPH;
    return status;
}

static uint32_t pages_for(uint32_t n_slots) { return (n_slots + PAGE_TOKENS - 1) / PAGE_TOKENS; }

/* What a step asks of pages: return those behind the last token, take those that one more token needs. */
static void step_on_host(host_pages *h, uint32_t n_lanes) {
    uint32_t n_free = h->n_free; /* in a register */
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        uint32_t *row = h->ids + (size_t)lane * ROW_CELLS, n = h->n_pages[lane];
        const uint32_t keep = pages_for(h->n_slots[lane]), want = pages_for(h->n_slots[lane] + 1);
        for (; n > keep; n--)
            if (--h->refs[row[n - 1]] == 0) h->free_ids[n_free++] = row[n - 1];
        h->new_ids[lane] = NO_PAGE;
        for (; n < want; n++) {
            row[n] = h->new_ids[lane] = h->free_ids[--n_free];
            h->refs[row[n]] = 1;
        }
        h->n_pages[lane] = n;
    }
    h->n_free = n_free;
}

/* By the host's clock, from the first copy until the last is done. */
static pleat_status time_loop(bench *b, arena *a, double *us, pleat_error *err) {
    const gpu *g = &b->device.gpu;
    const uint64_t bytes = b->n_lanes * sizeof(uint32_t);
    const double start_s = measure_now_s();
    pleat_status status = gpu_copy(g, a->host.n_slots, a->device_slots, bytes, err);
    DEVICE_THEN(status, gpu_wait(g, err));
    if (status == PLEAT_OK) step_on_host(&a->host, b->n_lanes);
    DEVICE_THEN(status, gpu_copy(g, a->device_pages, a->host.n_pages, bytes, err));
    DEVICE_THEN(status, gpu_copy(g, a->device_ids, a->host.new_ids, bytes, err));
    DEVICE_THEN(status, gpu_wait(g, err));
    *us = (measure_now_s() - start_s) * 1e6;
    return status;
}

/* All once; rep -1 warms up and is not kept. */
static pleat_status run_once(bench *b, arena *a, int rep, pleat_error *err) {
    double us[N_TIMINGS];
    pleat_status status = time_launched(b, a, PAGES_LAUNCHED, &us[PAGES_LAUNCHED], err);
    DEVICE_THEN(status, time_launched(b, a, CUB_LAUNCHED, &us[CUB_LAUNCHED], err));
    DEVICE_THEN(status, time_graph(b, a->graphs[0], &us[PAGES_GRAPH], err));
    DEVICE_THEN(status, time_graph(b, a->graphs[1], &us[CUB_GRAPH], err));
    DEVICE_THEN(status, time_loop(b, a, &us[CPU_LOOP], err));
    for (int i = 0; i < N_TIMINGS && rep >= 0 && status == PLEAT_OK; i++) a->us[i][rep] = us[i];
    return status;
}

/* ---- making it ------------------------------------------------------------------------------------------ */

static pleat_status record(bench *b, arena *a, int timing, gpu_graph *graph, pleat_error *err) {
    pleat_status status = gpu_graph_begin(&b->device.gpu, err);
    if (status != PLEAT_OK) return status;
    for (int i = 0; i < CALLS_A_GRAPH && status == PLEAT_OK; i++) status = put(b, a, timing, err);
    if (status == PLEAT_OK) return gpu_graph_end(&b->device.gpu, graph, err);
    (void)gpu_graph_end(&b->device.gpu, NULL, NULL);
    return status;
}

static pleat_status take_u32(pleat_status (*alloc)(void **, uint64_t, pleat_error *), uint32_t **out, uint64_t n,
                             pleat_error *err) {
    void *p = NULL;
    const pleat_status status = alloc(&p, n * sizeof **out, err);
    *out = p;
    return status;
}

/* Tables in which every lane holds its pages; those that take one have whole pages, others room for more tokens. */
static void fill_host(host_pages *h, const uint32_t *takes, uint32_t n_lanes) {
    for (uint32_t id = n_lanes * ROW_CELLS; id > 0; id--) h->free_ids[h->n_free++] = id - 1;
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        h->n_slots[lane] = PAGE_TOKENS * LANE_PAGES - (takes[lane] ? 0 : PAGE_TOKENS / 2);
        for (h->n_pages[lane] = 0; h->n_pages[lane] < LANE_PAGES; h->n_pages[lane]++) {
            const uint32_t id = h->free_ids[--h->n_free];
            h->ids[(size_t)lane * ROW_CELLS + h->n_pages[lane]] = id;
            h->refs[id] = 1;
        }
    }
}

static pleat_status make_host(bench *b, arena *a, uint32_t every, pleat_error *err) {
    const uint32_t n = b->n_lanes;
    host_pages *h = &a->host;
    measure_rng rng = {every};
    pleat_status status = take_u32(gpu_alloc_host, &h->n_slots, n, err);
    DEVICE_THEN(status, take_u32(gpu_alloc_host, &h->n_pages, n, err));
    DEVICE_THEN(status, take_u32(gpu_alloc_host, &h->new_ids, n, err));
    DEVICE_THEN(status, take_u32(gpu_alloc, &a->device_slots, n, err));
    DEVICE_THEN(status, take_u32(gpu_alloc, &a->device_pages, n, err));
    DEVICE_THEN(status, take_u32(gpu_alloc, &a->device_ids, n, err));
    if (status != PLEAT_OK) return status;
    a->takes = cli_alloc(n, sizeof *a->takes);
    h->ids = cli_alloc((size_t)n * ROW_CELLS, sizeof *h->ids);
    h->free_ids = cli_alloc((size_t)n * ROW_CELLS, sizeof *h->free_ids);
    h->refs = cli_alloc((size_t)n * ROW_CELLS, sizeof *h->refs);
    for (uint32_t i = 0; i < n; i++) { /* one of every so many, anywhere among them */
        a->takes[i] = measure_rng_next(&rng) % every == 0;
        a->n_takers += a->takes[i];
    }
    fill_host(h, a->takes, n);
    return gpu_copy(&b->device.gpu, a->device_slots, h->n_slots, n * sizeof *h->n_slots, err);
}

static int make_arena(bench *b, arena *a, const load *l) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    for (int i = 0; i < N_TIMINGS; i++) a->us[i] = cli_alloc(b->reps, sizeof(double));
    pleat_status status = make_host(b, a, l->every, &err);
    DEVICE_THEN(status, gpu_scan_create(&b->device.gpu, a->takes, b->n_lanes, &a->scan, &err));
    DEVICE_THEN(status, make_cache(b, a, &err));
    DEVICE_THEN(status, fill_cache(b, a, &err));
    DEVICE_THEN(status, check_cache(b, a, &err));
    DEVICE_THEN(status, record(b, a, PAGES_LAUNCHED, &a->graphs[0], &err));
    DEVICE_THEN(status, record(b, a, CUB_LAUNCHED, &a->graphs[1], &err));
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->device.gpu.info.name, status, &err);
}

static void release_arena(arena *a) {
    for (int i = 0; i < 2; i++) gpu_graph_destroy(&a->graphs[i]);
    pleat_device_cache_destroy(&a->cache);
    gpu_scan_destroy(&a->scan);
    gpu_free(a->device_slots);
    gpu_free(a->device_pages);
    gpu_free(a->device_ids);
    gpu_free_host(a->host.n_slots);
    gpu_free_host(a->host.n_pages);
    gpu_free_host(a->host.new_ids);
    free(a->host.ids);
    free(a->host.free_ids);
    free(a->host.refs);
    free(a->takes);
    for (int i = 0; i < N_TIMINGS; i++) free(a->us[i]);
}

static int run_all(bench *b) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_status status = PLEAT_OK;
    int code = CLI_OK;
    for (int i = 0; i < N_LOADS && code == CLI_OK; i++) code = make_arena(b, &b->arenas[i], &loads[i]);
    if (code != CLI_OK) return code;
    progress_begin("pages", b->reps, !b->o->common.quiet);
    for (int rep = -2; rep < (int)b->reps && status == PLEAT_OK; rep++) {
        for (int i = 0; i < N_LOADS && status == PLEAT_OK; i++) status = run_once(b, &b->arenas[i], rep, &err);
        DEVICE_THEN(status, bench_device_measure_copy(&b->device, rep, &err));
        progress_update(rep < 0 ? 0 : (uint64_t)rep + 1);
    }
    for (int i = 0; i < N_LOADS; i++) DEVICE_THEN(status, check_cache(b, &b->arenas[i], &err));
    progress_end();
    return status == PLEAT_OK ? CLI_OK : cli_fail(b->device.gpu.info.name, status, &err);
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

static json_t *json_row(const bench *b, int load_idx, int timing, measure_spread us) {
    const arena *a = &b->arenas[load_idx];
    const contender *c = &contenders[timing];
    json_t *params =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:i, s:i, s:i, s:i}", "op", c->name, "how", c->how, "device", "cuda",
                  "gpu", json_text(b->device.gpu.info.name), "taking", loads[load_idx].name, "takers", (int)a->n_takers,
                  "lanes", (int)b->n_lanes, "sequences", (int)b->n_seqs, "reps", (int)b->reps);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "pages", "params", params, "us", json_spread(us),
                     "ns_per_lane", json_number(us.median * 1e3 / b->n_lanes), "speed_to_cub",
                     json_number(bench_median(a->us[c->cub], b->reps) / us.median), "speed_to_loop",
                     json_number(bench_median(a->us[CPU_LOOP], b->reps) / us.median), "peak_gb_per_s",
                     json_number(bench_device_peak(&b->device)));
}

static void put_row(const bench *b, table *t, int load_idx, int timing, measure_spread us) {
    const arena *a = &b->arenas[load_idx];
    const contender *c = &contenders[timing];
    table_put(t, "%s", c->name);
    table_put(t, "%s", c->how);
    table_put(t, "%s", loads[load_idx].name);
    table_put(t, "%u", b->n_lanes);
    table_put(t, "%.2f", us.min);
    table_put(t, "%.2f", us.median);
    table_put(t, "%.2f", us.max);
    table_put_number(t, 3, us.median * 1e3 / b->n_lanes);
    table_put_number(t, 2, bench_median(a->us[c->cub], b->reps) / us.median);
    table_put_number(t, 2, bench_median(a->us[CPU_LOOP], b->reps) / us.median);
}

static void write_rows(bench *b) {
    static const char *const titles[] = {"op", "how",    "taking",  "lanes", "us min",
                                         "us", "us max", "ns/lane", "x CUB", "x CPU loop"};
    json_t *rows = json_array();
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (int i = 0; i < N_LOADS; i++)
        for (int timing = 0; timing < N_TIMINGS; timing++) {
            const measure_spread us = measure_spread_of(b->arenas[i].us[timing], b->reps);
            put_row(b, &t, i, timing, us);
            json_array_append_new(rows, json_row(b, i, timing, us));
        }
    output_rows(&b->out, rows, NULL, &t);
    json_decref(rows);
    table_release(&t);
}

int bench_device_pages(const pages_options *o) {
    bench b = {.o = o, .reps = o->reps};
    b.n_seqs = (o->lanes + LANES_PER_SEQ - 1) / LANES_PER_SEQ;
    b.n_lanes = b.n_seqs * LANES_PER_SEQ;
    int code = output_open(&b.out, &o->common);
    if (code == CLI_OK) code = bench_device_open(&b.device, b.reps);
    if (code == CLI_OK) code = run_all(&b);
    if (code == CLI_OK) write_rows(&b);
    const int closed = output_close(&b.out);
    for (int i = 0; i < N_LOADS; i++) release_arena(&b.arenas[i]);
    bench_device_close(&b.device);
    return code == CLI_OK ? closed : code;
}
