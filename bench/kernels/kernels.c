/* SPDX-License-Identifier: MIT
 *
 * kernels.c: how fast the kernels of src/quant and src/attn are, by themselves.
 *
 *     bench_kernels [-t THREADS] [-r REPEATS] [-v VARIANT] [-s] [FORMAT...]
 *
 * Decode attention at two shapes:
 *     memory   32 query heads, 8 KV heads, d 128, 8192 tokens; more than 256 MiB of layers, read in turn
 *     cache    8 query heads, 4 KV heads, d 64, 4096 tokens, one layer (the reference model's)
 * Pages of 16 KiB stand in random order in the pool.  Every variant and format runs once in each repeat, so that a
 * busy machine hits all alike; figures are medians.  GB/s counts codes and metadata; "read" is its share of the plain
 * read bandwidth that was measured in the same run over the same pool.  With -s pages are tracked, and the last two
 * columns are the same steps with logits kept and the attention received added to every score, and what that costs.
 * Quantising: a page of tokens stored at once, one by one, and loaded, in ns a token and lane.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "attn_variants.h"
#include "bench.h"
#include "core/rng.h"
#include "hw/cpu.h"

#define PAGE_BYTES 16384u
#define RANGE_SLOTS 1024u
#define MAX_REPEATS 64
#define MAX_ROUNDS 15

static const pleat_format formats[] = {{32, 32}, {16, 16}, {8, 8}, {8, 4}, {4, 8}, {4, 4}, {4, 2}, {2, 2}};

#define N_VARIANTS (sizeof decode_variants / sizeof decode_variants[0])
#define N_FORMATS (sizeof formats / sizeof formats[0])

typedef struct shape {
    const char *name;
    uint32_t n_group, n_lanes, head_dim, n_tokens;
    uint64_t pool_bytes; /* as many layers as fill it */
} shape;

static const shape shapes[] = {{"memory", 4, 8, 128, 8192, 320u << 20}, {"cache", 2, 4, 64, 4096, 0}};

/* ---- decode attention ------------------------------------------------------------------------------------------ */

/* Lanes of one format in a pool. */
typedef struct lanes {
    shape shape;
    pleat__page_layout layout;
    uint32_t n_layers;
    uint32_t lane_pages;
    uint8_t *pool;
    pleat__page_id *ids;  /* [layer][lane][lane_pages] */
    uint64_t layer_bytes; /* that one layer's attention reads */
} lanes;

static void fill_page(const pleat__quant_dsp *quant, const pleat__page_layout *l, pleat__rng *rng, uint8_t *page) {
    const size_t n = (size_t)l->tokens * l->head_dim;
    float *x = malloc(2 * n * sizeof *x);
    if (!x) exit(1);
    for (size_t i = 0; i < 2 * n; i++) x[i] = bench_noise(rng);
    quant->store(l, page, 0, l->tokens, x, x + n, l->head_dim);
    for (uint32_t i = 0; l->tracked && i < l->tokens; i++) pleat__positions(l, page)[i] = (int32_t)i;
    free(x);
}

static lanes lanes_make(const shape *s, pleat_format format, bool tracked) {
    lanes a = {.shape = *s};
    for (uint32_t tokens = 16;; tokens += 16) {
        pleat__page_layout l;
        if (pleat__page_layout_init(&l, format, s->head_dim, tokens, tracked) != PLEAT_OK || l.used_bytes > PAGE_BYTES)
            break;
        a.layout = l;
    }
    a.layer_bytes = pleat_format_token_bytes(format, s->head_dim) * s->n_lanes * s->n_tokens;
    a.n_layers = (uint32_t)(s->pool_bytes / a.layer_bytes) + 1;
    a.lane_pages = pleat__div_up_u32(s->n_tokens, a.layout.tokens);
    const uint32_t n_pages = a.n_layers * s->n_lanes * a.lane_pages;
    a.pool = reserve((size_t)n_pages * PAGE_BYTES);
    a.ids = malloc(n_pages * sizeof *a.ids);
    if (!a.ids) exit(1);
    pleat__quant_dsp quant;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    pleat__rng rng = {7};
    for (uint32_t i = 0; i < n_pages; i++) {
        if (i < 64)
            fill_page(&quant, &a.layout, &rng, a.pool + (size_t)i * PAGE_BYTES);
        else
            memcpy(a.pool + (size_t)i * PAGE_BYTES, a.pool + (size_t)(i % 64) * PAGE_BYTES, PAGE_BYTES);
        a.ids[i].v = i;
        const uint32_t j = pleat__rng_below(&rng, i + 1);
        a.ids[i] = a.ids[j];
        a.ids[j].v = i;
    }
    return a;
}

static void lanes_free(lanes *a) {
    free(a->pool);
    free(a->ids);
}

/* One layer's step. */
typedef struct step {
    const lanes *a;
    uint32_t layer;
    uint32_t n_ranges;
    const pleat__attn_dsp *dsp;
    bool dsp_is_fast;
    const pleat__attn_query *query;
    pleat__attn_acc *acc; /* [lane][range] */
    float *logits;        /* [lane][G][n_tokens], or NULL */
    float *lse2;          /* [lane][G] */
} step;

static pleat__kv_run run_of(const step *s, uint32_t lane) {
    const lanes *a = s->a;
    return (pleat__kv_run){.layout = &a->layout,
                           .base = a->pool,
                           .page_bytes = PAGE_BYTES,
                           .ids = a->ids + ((size_t)s->layer * a->shape.n_lanes + lane) * a->lane_pages,
                           .step = 1,
                           .n_slots = a->shape.n_tokens};
}

static float *logits_of(const step *s, uint32_t lane) {
    return s->logits ? s->logits + (size_t)lane * s->a->shape.n_group * s->a->shape.n_tokens : NULL;
}

static void run_range(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    const step *s = ctx;
    const lanes *a = s->a;
    const uint32_t lane = unit / s->n_ranges, range = unit % s->n_ranges;
    const pleat__kv_run run = run_of(s, lane);
    for (uint32_t g = 0; g < a->shape.n_group; g++) {
        s->acc[unit].m[g] = -INFINITY;
        s->acc[unit].l[g] = 0;
    }
    memset(s->acc[unit].o, 0, sizeof(float) * a->shape.n_group * a->shape.head_dim);
    const uint32_t from = range * RANGE_SLOTS;
    s->dsp->decode(s->query, &run, from, pleat__min_u32(from + RANGE_SLOTS, a->shape.n_tokens), &s->acc[unit],
                   logits_of(s, lane), a->shape.n_tokens);
}

static void score_lane(void *ctx, uint32_t lane, uint32_t worker) {
    (void)worker;
    const step *s = ctx;
    const shape *sh = &s->a->shape;
    const pleat__kv_run run = run_of(s, lane);
    s->dsp->decode_received(&run, 0, sh->n_tokens, logits_of(s, lane), sh->n_tokens,
                            s->lse2 + (size_t)lane * sh->n_group, sh->n_group);
}

/* Add up each lane's ranges. */
static void merge_ranges(const step *s) {
    const shape *sh = &s->a->shape;
    float out[64 * 128];
    for (uint32_t lane = 0; lane < sh->n_lanes; lane++) {
        pleat__attn_acc *acc = s->acc + lane * s->n_ranges;
        for (uint32_t i = 1; i < s->n_ranges; i++) pleat__attn_merge(acc, &acc[i], sh->n_group, sh->head_dim);
        pleat__attn_finish(acc, sh->n_group, sh->head_dim, out, s->lse2 + (size_t)lane * sh->n_group);
    }
}

/* Seconds that all layers took; the caller has set all of the step but the layer.  A single layer is in the cache from
 * its first round on, and the median round counts. */
static double run_layers(step *s, pleat_workers *workers) {
    const uint32_t n_lanes = s->a->shape.n_lanes, n_rounds = s->a->n_layers == 1 && s->dsp_is_fast ? MAX_ROUNDS : 1;
    double seconds[MAX_ROUNDS];
    for (uint32_t round = 0; round < n_rounds; round++) {
        const double start = measure_now_s();
        for (s->layer = 0; s->layer < s->a->n_layers; s->layer++) {
            pleat_workers_run(workers, n_lanes * s->n_ranges, run_range, s);
            merge_ranges(s);
            if (s->logits) pleat_workers_run(workers, n_lanes, score_lane, s);
        }
        seconds[round] = measure_now_s() - start;
    }
    return measure_median(seconds, n_rounds);
}

/* ---- plain reading --------------------------------------------------------------------------------------------- */

typedef struct reading {
    const uint8_t *from;
    uint64_t bytes;
    uint32_t n_units;
    uint64_t sums[64];
} reading;

static void read_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    reading *r = ctx;
    const uint64_t piece = r->bytes / r->n_units / 64 * 8;
    const uint64_t *p = (const uint64_t *)(const void *)r->from + unit * piece;
    uint64_t sum[8] = {0};
    for (uint64_t i = 0; i < piece; i += 8) {
        for (uint32_t j = 0; j < 8; j++) sum[j] ^= p[i + j];
    }
    for (uint32_t j = 1; j < 8; j++) sum[0] ^= sum[j];
    r->sums[unit] = sum[0];
}

/* Reads 64 MiB at least. */
static double read_gbs(const uint8_t *pool, uint64_t bytes, pleat_workers *workers) {
    reading r = {.from = pool, .bytes = bytes, .n_units = 64};
    const uint64_t rounds = (64u << 20) / bytes + 1;
    const double start = measure_now_s();
    for (uint64_t i = 0; i < rounds; i++) pleat_workers_run(workers, r.n_units, read_unit, &r);
    const double s = (measure_now_s() - start) / (double)rounds;
    static volatile uint64_t sink;
    sink = r.sums[0];
    (void)sink;
    return (double)bytes / s * 1e-9;
}

/* ---- the tables ------------------------------------------------------------------------------------------------ */

typedef struct options {
    uint32_t n_threads;
    uint32_t repeats;
    bool scores;
    const char *variant;
    int n_formats;
    char **formats;
} options;

static bool wants_format(const options *o, pleat_format f) {
    char name[16];
    snprintf(name, sizeof name, f.k_bits > 8 ? "f%u" : "k%uv%u", f.k_bits, f.v_bits);
    for (int i = 0; i < o->n_formats; i++) {
        if (!strcmp(o->formats[i], name)) return true;
    }
    return o->n_formats == 0;
}

static bool wants_variant(const options *o, const decode_variant *v) {
    if (v->flags & ~pleat_cpu_flags()) return false;
    return !o->variant || !strcmp(o->variant, v->name);
}

/* What bench_decode() made and measured. */
typedef struct decode_results {
    lanes lanes[N_FORMATS];
    double seconds[2][N_FORMATS][N_VARIANTS][MAX_REPEATS]; /* of all layers: without and with scores */
    double read[MAX_REPEATS];                              /* GB/s */
} decode_results;

/* Seconds of each variant and format once, in repeat r; s has the query and the memory. */
static void time_variants(decode_results *d, const options *opt, uint32_t r, step s, pleat_workers *workers) {
    float *logits = s.logits;
    for (size_t f = 0; f < N_FORMATS; f++) {
        s.a = &d->lanes[f];
        for (size_t v = 0; v < N_VARIANTS && wants_format(opt, formats[f]); v++) {
            if (!wants_variant(opt, &decode_variants[v])) continue;
            pleat__attn_dsp dsp;
            pleat__attn_dsp_init(&dsp, decode_variants[v].flags);
            s.dsp = &dsp;
            const bool scalar = decode_variants[v].flags == 0 && r >= 3; /* slow: three repeats do */
            s.dsp_is_fast = decode_variants[v].flags != 0;
            for (int scores = 0; scores <= opt->scores; scores++) {
                s.logits = scores ? logits : NULL;
                double *seconds = d->seconds[scores][f][v];
                seconds[r] = scalar ? seconds[1] : run_layers(&s, workers);
            }
        }
    }
}

static void print_decode(const shape *sh, decode_results *d, const options *opt, pleat_workers *workers) {
    const double read_median = measure_median(d->read, opt->repeats);
    printf("\ndecode, %s: %u query heads, %u KV heads, d %u, %u tokens, %u threads; plain read %.1f GB/s\n", sh->name,
           sh->n_group * sh->n_lanes, sh->n_lanes, sh->head_dim, sh->n_tokens, pleat_workers_count(workers),
           read_median);
    printf("%-7s %-7s %9s %9s %8s %6s %13s%s\n", "format", "variant", "ms/layer", "min", "GB/s", "read",
           "ns/token/lane", opt->scores ? "  ms/layer with scores" : "");
    for (size_t f = 0; f < N_FORMATS; f++) {
        for (size_t v = 0; v < N_VARIANTS && wants_format(opt, formats[f]); v++) {
            if (!wants_variant(opt, &decode_variants[v])) continue;
            const lanes *a = &d->lanes[f];
            const double s = measure_median(d->seconds[0][f][v], opt->repeats) / a->n_layers; /* leaves them in order */
            const double gbs = (double)a->layer_bytes / s * 1e-9;
            printf("k%uv%-4u %-7s %9.4f %9.4f %8.2f %5.0f%% %13.2f", formats[f].k_bits, formats[f].v_bits,
                   decode_variants[v].name, s * 1e3, d->seconds[0][f][v][0] / a->n_layers * 1e3, gbs,
                   100 * gbs / read_median, s * 1e9 / sh->n_lanes / sh->n_tokens);
            const double scored = opt->scores ? measure_median(d->seconds[1][f][v], opt->repeats) / a->n_layers : 0;
            if (opt->scores) printf(" %9.4f %+6.1f%%", scored * 1e3, 100 * (scored / s - 1));
            printf("\n");
        }
    }
}

static void bench_decode(const shape *sh, const options *opt, pleat_workers *workers) {
    static decode_results d;
    float q[64 * 128];
    pleat__rng rng = {3};
    for (size_t i = 0; i < 64 * 128; i++) q[i] = 4 * pleat__rng_f32(&rng) - 2;
    pleat__attn_query query;
    void *query_memory = reserve(pleat__attn_query_bytes(sh->n_group, sh->head_dim));
    pleat__attn_query_init(&query, query_memory, q, sh->n_group, sh->head_dim, 1 / sqrtf((float)sh->head_dim));
    const uint32_t n_units = sh->n_lanes * pleat__div_up_u32(sh->n_tokens, RANGE_SLOTS);
    const uint64_t acc_bytes = pleat__attn_acc_bytes(sh->n_group, sh->head_dim);
    uint8_t *acc_memory = reserve(n_units * acc_bytes);
    pleat__attn_acc *acc = malloc(n_units * sizeof *acc);
    if (!acc) exit(1);
    for (uint32_t i = 0; i < n_units; i++)
        pleat__attn_acc_init(&acc[i], acc_memory + i * acc_bytes, sh->n_group, sh->head_dim);
    const uint32_t n_heads = sh->n_group * sh->n_lanes;
    step s = {.query = &query, .acc = acc, .n_ranges = n_units / sh->n_lanes};
    s.logits = reserve((size_t)n_heads * sh->n_tokens * sizeof(float));
    s.lse2 = reserve(n_heads * sizeof(float));
    const uint8_t *pool = NULL;
    for (size_t f = 0; f < N_FORMATS; f++) {
        if (!wants_format(opt, formats[f])) continue;
        d.lanes[f] = lanes_make(sh, formats[f], opt->scores);
        pool = d.lanes[f].pool;
    }
    const uint64_t read_bytes = sh->pool_bytes ? sh->pool_bytes : 1u << 20;
    for (uint32_t r = 0; r < opt->repeats; r++) {
        d.read[r] = read_gbs(pool, read_bytes, workers);
        time_variants(&d, opt, r, s, workers);
    }
    print_decode(sh, &d, opt, workers);
    for (size_t f = 0; f < N_FORMATS; f++)
        if (wants_format(opt, formats[f])) lanes_free(&d.lanes[f]);
    free(s.logits);
    free(s.lse2);
    free(acc);
    free(acc_memory);
    free(query_memory);
}

static void bench_quant(uint32_t d, const options *opt) {
    enum { TOKENS = 64, ROUNDS = 200 };
    static float x[2 * TOKENS * 128], tile[16 * 128] __attribute__((aligned(64)));
    pleat__rng rng = {5};
    for (size_t i = 0; i < 2 * TOKENS * d; i++) x[i] = 2 * pleat__rng_f32(&rng) - 1;
    printf("\nquantise, d %u, ns/token/lane\n%-7s %-7s %10s %10s %8s %8s\n", d, "format", "variant", "store page",
           "store one", "load k", "load v");
    for (size_t f = 0; f < N_FORMATS; f++) {
        pleat__quant_store_fn timed = NULL;
        for (size_t v = 0; v < N_VARIANTS && wants_format(opt, formats[f]); v++) {
            if (!wants_variant(opt, &decode_variants[v])) continue;
            pleat__quant_dsp dsp;
            pleat__quant_dsp_init(&dsp, decode_variants[v].flags);
            if (dsp.store == timed) continue; /* vnni quantises as avx512 does */
            timed = dsp.store;
            pleat__page_layout l;
            if (pleat__page_layout_init(&l, formats[f], d, TOKENS, false) != PLEAT_OK) exit(1);
            uint8_t *page = reserve(l.used_bytes);
            double s[4][MAX_REPEATS];
            for (uint32_t r = 0; r < opt->repeats; r++) {
                double t[5];
                t[0] = measure_now_s();
                for (int i = 0; i < ROUNDS; i++) dsp.store(&l, page, 0, TOKENS, x, x + TOKENS * d, d);
                t[1] = measure_now_s();
                for (uint32_t i = 0; i < ROUNDS * TOKENS; i++)
                    dsp.store(&l, page, i % TOKENS, 1, x + i % TOKENS * d, x + (TOKENS + i % TOKENS) * d, d);
                t[2] = measure_now_s();
                for (uint32_t i = 0; i < ROUNDS * TOKENS / 16; i++) dsp.load_k(&l, page, i % (TOKENS / 16), tile);
                t[3] = measure_now_s();
                for (uint32_t i = 0; i < ROUNDS * TOKENS / 16; i++) dsp.load_v(&l, page, i % (TOKENS / 16), tile);
                t[4] = measure_now_s();
                for (int i = 0; i < 4; i++) s[i][r] = (t[i + 1] - t[i]) / (ROUNDS * TOKENS) * 1e9;
            }
            printf("k%uv%-4u %-7s %10.1f %10.1f %8.1f %8.1f\n", formats[f].k_bits, formats[f].v_bits,
                   decode_variants[v].name, measure_median(s[0], opt->repeats), measure_median(s[1], opt->repeats),
                   measure_median(s[2], opt->repeats), measure_median(s[3], opt->repeats));
            free(page);
        }
    }
}

/* True if the options name a variant that runs here and known formats only. */
static bool names_are_known(const options *opt) {
    bool runs = false;
    for (size_t v = 0; v < N_VARIANTS; v++) runs = runs || wants_variant(opt, &decode_variants[v]);
    bool all = runs;
    for (int i = 0; i < opt->n_formats; i++) {
        const options one = {.n_formats = 1, .formats = opt->formats + i};
        bool known = false;
        for (size_t f = 0; f < N_FORMATS; f++) known = known || wants_format(&one, formats[f]);
        all = all && known;
    }
    return all;
}

int main(int argc, char **argv) {
    options opt = {.n_threads = 0, .repeats = 9};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i += 2) {
        if (!strcmp(argv[i], "-s")) {
            opt.scores = true;
            i--;
            continue;
        }
        if (i + 1 == argc) break;
        const int n = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-t") && n >= 0)
            opt.n_threads = (uint32_t)n;
        else if (!strcmp(argv[i], "-r") && n > 0 && n <= MAX_REPEATS)
            opt.repeats = (uint32_t)n;
        else if (!strcmp(argv[i], "-v"))
            opt.variant = argv[i + 1];
        else
            break;
    }
    opt.n_formats = argc - i;
    opt.formats = argv + i;
    if ((i < argc && argv[i][0] == '-') || !names_are_known(&opt)) {
        fprintf(stderr,
                "usage: bench_kernels [-t THREADS] [-r REPEATS] [-v VARIANT] [-s] [FORMAT...]\n"
                "variants: ref avx2 avxvnni avx512 vnni neon dotprod, as the CPU has them; formats: f32 f16 k8v8 k8v4 "
                "k4v8 k4v4 k4v2 k2v2\n");
        return 2;
    }
    pleat_workers *workers;
    const pleat_status status = pleat_workers_create(opt.n_threads, NULL, &workers);
    if (status != PLEAT_OK) {
        fprintf(stderr, "bench_kernels: %u threads: %s\n", opt.n_threads, pleat_status_str(status));
        return 1;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) bench_decode(&shapes[s], &opt, workers);
    bench_quant(64, &opt);
    bench_quant(128, &opt);
    pleat_workers_destroy(&workers);
    return 0;
}
