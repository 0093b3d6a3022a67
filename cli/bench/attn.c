/* SPDX-License-Identifier: MIT
 *
 * attn.c: `pleat bench attn`: decode attention of one layer, for each head dimension, GQA group, batch, context
 * and spec.
 *
 *     for each repetition:  every spec's cache, all its layers in turn  |  the cost model's cases  |  one read of the
 *                           bandwidth buffer
 *
 * Rules
 *  1. Everything that is compared runs turn and turn about in one run; figures are medians.
 *  2. Every call reads from memory: the caches of a configuration together have as many layers as outgrow the
 *     processor's caches (bandwidth.h), each 64 MiB or more, and the bandwidth buffer is read between two turns.  Only
 *     shapes so small that a thousand layers are less stay in a cache.
 *  3. Keys, values and queries are normal variates, never zeros.
 *  4. bytes are those that must move: codes and metadata of the stored tokens of one layer; of kvcomp and kivi, whose
 *     blocks have no fixed size, all that the cache says it holds for a layer.
 *  5. max_rel_err is the kernel's error against float64, without that of the format (caches.h).
 *  6. Caches take a quarter of the memory that is free at most.  Specs that do not fit beside each other take turns in
 *     several heats; `x first` compares within the first heat only.  What does not fit by itself is skipped, and said.
 *  7. rd has statistics of the noise, which has no mean key: what turning one takes is not measured.
 *  8. model ms is a prediction: work counted from the kernels' structure, rates measured with other calls in the same
 *     repetitions (cost.h).  It knows pages, no blocks.
 */
#include <math.h>
#include <stdlib.h>

#include "bandwidth.h"
#include "caches.h"
#include "cli/bench/device/device.h"
#include "cli/lib/common.h"
#include "cli/lib/load.h"
#include "cli/lib/machine/free_memory.h"
#include "cli/lib/measure.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cost.h"

/* ---- options ----------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(attn_options, field)
#define AT_SHAPE(field) AT(shape.field)
/* clang-format off */
static const option_row rows[] = {
    THREADS_ROW(attn_options, threads),
    CPU_MASK_ROW(attn_options),
    DEVICE_ROW(attn_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept; repeat to compare (default \"f16 k8v8 k8v4 k4v4 k4v2\"; --device cuda: and leankv:ah=3,al=0.05)",
     KIND_SPECS, AT(kv), .words = option_spec_names},
    {GROUP_SHAPE, "ctx", NULL, "N,..", "tokens stored in each sequence (default 8192)",
     KIND_NUMBERS, AT_SHAPE(ctx), 1, 16777216},
    {GROUP_SHAPE, "batch", NULL, "N,..", "sequences read at once (default 1)", KIND_NUMBERS, AT_SHAPE(batch), 1, 4096},
    {GROUP_SHAPE, "gqa", NULL, "N,..", "query heads for each KV head (default 4; --device cuda: 8 at most)",
     KIND_NUMBERS, AT_SHAPE(gqa), 1, MAX_GROUP},
    {GROUP_SHAPE, "heads", NULL, "N", "query heads, instead of --gqa", KIND_U32, AT(heads), 1, 65536, .excludes = "gqa",
     .because = "--gqa counts the query heads of one KV head"},
    {GROUP_SHAPE, "kv-heads", NULL, "N", "KV heads (default 8)", KIND_U32, AT_SHAPE(kv_heads), 1, 1024},
    {GROUP_SHAPE, "head-dim", NULL, "N,..", "head dimension (default 128; --device cuda: 64 or 128)",
     KIND_NUMBERS, AT_SHAPE(head_dim), 16, 512, .multiple = 16},
    {GROUP_SHAPE, "spread", NULL, "N", "--device cuda: beside equally long lanes also some whose lengths differ up to N:1 (default 1: none)",
     KIND_U32, AT(spread), 1, 64, .needs = "device=cuda"},
    {GROUP_SHAPE, "low-share", NULL, "X", "--device cuda: share of leankv's tokens that are in the low format (default 0.5)",
     KIND_F32, AT(low_share), 0, 0.99, .needs = "device=cuda"},
    {GROUP_SHAPE, "layers", NULL, "N", "--device cuda: calls go round so many layers at least (default: as many as do not stay in the level-2 cache)",
     KIND_U32, AT(layers), 1, 256, .needs = "device=cuda"},
    REPS_ROW(attn_options),
    COMMON_ROWS(attn_options),
};
/* clang-format on */

static void set_defaults(void *opts) {
    attn_options *o = opts;
    o->shape.kv_heads = 8;
    o->spread = o->layers = 1;
    o->low_share = 0.5f;
    o->reps = DEFAULT_REPS;
}

/* ---- the benchmark ----------------------------------------------------------------------------- */

enum { MEMORY_SHARE = 4 /* a quarter */ };
static const uint64_t cache_least_bytes = (uint64_t)64 << 20;

/* One spec's cache and its times. */
typedef struct contender {
    bench_cache cache;
    double *ms; /* [reps]: mean over the layers of one pass */
    measure_spread spread;
    double max_rel_err;
} contender;

typedef struct bench {
    attn_options *o;
    output out;
    pleat_workers *workers;
    bandwidth memory;
    bench_noise noise;
    bench_cost cost;
    pleat_cost_rates rates; /* of the heat under way */
    double *gb_per_s;       /* [reps] */
    double peak_gb_per_s;
    uint32_t reps;
    uint64_t budget_bytes; /* for caches */
    bench_shape shape;     /* of the configuration under way */
    contender contenders[SPECS_CAP];
    double first_ms; /* the first spec's median in this heat; NAN in others */
    table t;
    json_t *rows, *skipped;
    char label[96];
    uint64_t n_done, n_steps;
} bench;

/* ---- memory ------------------------------------------------------------------------------------ */

static uint32_t layers_of(const bench *b, uint32_t i) {
    const uint64_t share = bandwidth_working_set() / b->o->kv.n;
    return bench_layers_for(&b->shape, b->o->kv.spec[i], share > cache_least_bytes ? share : cache_least_bytes);
}

/* Bytes that a spec's cache takes, with room for what its last pages do not use. */
static uint64_t resident_bytes(const bench *b, uint32_t i) {
    const uint64_t bytes = bench_layer_bytes(&b->shape, b->o->kv.spec[i]) * layers_of(b, i);
    return bytes + bytes / 8;
}

/* ---- one heat ---------------------------------------------------------------------------------- */

static void say(bench *b, const char *what, const char *kv) {
    snprintf(b->label, sizeof b->label, "%u x %u tokens, %u heads a KV head, d %u: %s%s%s", b->shape.batch,
             b->shape.ctx, b->shape.group, b->shape.head_dim, what, kv ? " " : "", kv ? kv : "");
    progress_update(b->n_done);
}

static int make_contender(bench *b, uint32_t i) {
    contender *c = &b->contenders[i];
    const attn_options *o = b->o;
    say(b, "filling", o->kv.text[i]);
    c->ms = cli_alloc(b->reps, sizeof *c->ms);
    int code =
        bench_cache_init(&c->cache, &b->shape, o->kv.spec[i], o->kv.text[i], layers_of(b, i), &b->noise, b->workers);
    if (code == CLI_OK) code = bench_cache_check(&c->cache, &c->max_rel_err);
    b->n_done += b->reps;
    return code;
}

/* rep -1 warms up and is not kept. */
static int time_all(bench *b, uint32_t from, uint32_t to) {
    int code = CLI_OK;
    double unused;
    say(b, "timing", NULL);
    for (int rep = -1; rep < (int)b->reps && code == CLI_OK; rep++) {
        for (uint32_t i = from; i < to && code == CLI_OK; i++)
            code = bench_cache_time(&b->contenders[i].cache, 1, rep < 0 ? &unused : &b->contenders[i].ms[rep]);
        if (code == CLI_OK) code = bench_cost_measure(&b->cost, rep);
        *(rep < 0 ? &unused : &b->gb_per_s[rep]) = bandwidth_measure(&b->memory);
        if (rep >= 0) b->n_done += to - from;
        progress_update(b->n_done);
    }
    b->peak_gb_per_s = measure_median(b->gb_per_s, b->reps);
    for (uint32_t i = from; i < to && code == CLI_OK; i++)
        b->contenders[i].spread = measure_spread_of(b->contenders[i].ms, b->reps);
    return code == CLI_OK ? bench_cost_rates(&b->cost, b->reps, b->peak_gb_per_s, &b->rates) : code;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static json_t *params_json(const bench *b, uint32_t i) {
    const bench_shape *s = &b->shape;
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "kv", b->o->kv.text[i], "ctx", (int)s->ctx,
                     "batch", (int)s->batch, "gqa", (int)s->group, "heads", (int)(s->group * s->kv_heads), "kv_heads",
                     (int)s->kv_heads, "head_dim", (int)s->head_dim, "threads", (int)pleat_workers_count(b->workers),
                     "layers", (int)layers_of(b, i), "reps", (int)b->reps);
}

static void add_row(bench *b, uint32_t i) {
    const contender *c = &b->contenders[i];
    const uint64_t bytes = c->cache.layer_bytes;
    const double gb_per_s = (double)bytes / (c->spread.median * 1e-3) / 1e9, ratio = b->first_ms / c->spread.median;
    const double model_ms =
        b->o->kv.spec[i].compressor != PLEAT_COMPRESSOR_NONE
            ? NAN
            : bench_cost_predict(&b->shape, b->o->kv.spec[i], pleat_workers_count(b->workers), &b->rates);
    json_array_append_new(
        b->rows, json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "attn", "params",
                           params_json(b, i), "ms", json_spread(c->spread), "bytes", (json_int_t)bytes, "gb_per_s",
                           json_number(gb_per_s), "peak_gb_per_s", json_number(b->peak_gb_per_s), "fraction_of_peak",
                           json_number(gb_per_s / b->peak_gb_per_s), "speed_to_first", json_number(ratio), "model_ms",
                           json_number(model_ms), "measured_to_model", json_number(c->spread.median / model_ms),
                           "max_rel_err", json_number(c->max_rel_err)));
    table_put(&b->t, "%s", b->o->kv.text[i]);
    table_put(&b->t, "%u", b->shape.ctx);
    table_put(&b->t, "%u", b->shape.batch);
    table_put(&b->t, "%u", b->shape.group);
    table_put(&b->t, "%u", b->shape.head_dim);
    table_put(&b->t, "%.4f", c->spread.min);
    table_put(&b->t, "%.4f", c->spread.median);
    table_put(&b->t, "%.4f", c->spread.max);
    table_put(&b->t, "%llu", (unsigned long long)bytes);
    table_put_number(&b->t, 2, gb_per_s);
    table_put_number(&b->t, 2, b->peak_gb_per_s);
    table_put_number(&b->t, 3, gb_per_s / b->peak_gb_per_s);
    table_put_number(&b->t, 2, ratio);
    table_put_number(&b->t, 4, model_ms);
    table_put_number(&b->t, 2, c->spread.median / model_ms);
    table_put(&b->t, "%.1e", c->max_rel_err);
}

/* Specs [from, to) take turns. */
static int run_heat(bench *b, uint32_t from, uint32_t to) {
    int code = CLI_OK;
    for (uint32_t i = from; i < to && code == CLI_OK; i++) code = make_contender(b, i);
    if (code == CLI_OK) code = time_all(b, from, to);
    b->first_ms = from == 0 ? b->contenders[0].spread.median : NAN;
    for (uint32_t i = from; i < to && code == CLI_OK; i++) add_row(b, i);
    for (uint32_t i = from; i < to; i++) {
        bench_cache_release(&b->contenders[i].cache);
        free(b->contenders[i].ms);
        b->contenders[i] = (contender){0};
    }
    return code;
}

/* ---- the sweep --------------------------------------------------------------------------------- */

static void skip(bench *b, uint32_t i) {
    char need[BYTES_CAP], have[BYTES_CAP], reason[160];
    snprintf(reason, sizeof reason, "one layer needs %s, and caches may take %s here",
             print_bytes(need, resident_bytes(b, i)), print_bytes(have, b->budget_bytes));
    json_array_append_new(b->skipped, json_pack("{s:o, s:s}", "params", params_json(b, i), "reason", reason));
    if (!b->o->common.quiet)
        cli_note("skipped: %s, %u x %u tokens, %u KV heads, head dimension %u: %s", b->o->kv.text[i], b->shape.batch,
                 b->shape.ctx, b->shape.kv_heads, b->shape.head_dim, reason);
    b->n_done += 2 * b->reps;
}

/* Cut the specs into heats that fit in memory. */
static int run_shape(bench *b) {
    int code = CLI_OK;
    for (uint32_t from = 0, to; from < b->o->kv.n && code == CLI_OK; from = to) {
        uint64_t bytes = resident_bytes(b, from);
        to = from + 1;
        if (bytes > b->budget_bytes) {
            skip(b, from);
            continue;
        }
        while (to < b->o->kv.n && bytes + resident_bytes(b, to) <= b->budget_bytes) bytes += resident_bytes(b, to++);
        code = run_heat(b, from, to);
    }
    return code;
}

static int run_shapes(bench *b) {
    static const char *const titles[] = {"kv",        "ctx",      "batch",   "gqa",        "d",         "ms min",
                                         "ms median", "ms max",   "bytes",   "GB/s",       "peak GB/s", "part of peak",
                                         "x first",   "model ms", "x model", "max rel err"};
    const attn_options *o = b->o;
    const uint32_t n_shapes = bench_shapes_count(&o->shape);
    int code = CLI_OK;
    table_init(&b->t, titles, sizeof titles / sizeof titles[0]);
    b->rows = json_array();
    b->skipped = json_array();
    b->n_steps = 2 * (uint64_t)b->reps * n_shapes * o->kv.n;
    progress_begin(b->label, b->n_steps, !o->common.quiet);
    for (uint32_t n = 0; n < n_shapes && code == CLI_OK; n++) {
        b->shape = bench_shapes_at(&o->shape, n);
        code = run_shape(b);
    }
    progress_end();
    return code == CLI_OK ? output_check_rows(b->rows, "no configuration fits in memory") : code;
}

/* ---- the command ------------------------------------------------------------------------------- */

/* Give lists their defaults and refuse what no cache can have. */
static int check_options(attn_options *o) {
    static const char *const device_specs[] = {"f16", "k8v8", "k8v4", "k4v4", "k4v2", "leankv:ah=3,al=0.05", NULL};
    options_default_specs(&o->kv, o->device == DEVICE_CPU ? option_plain_specs : device_specs);
    if (!o->shape.ctx.n) o->shape.ctx = (number_list){1, {8192}};
    if (!o->shape.batch.n) o->shape.batch = (number_list){1, {1}};
    if (!o->shape.head_dim.n) o->shape.head_dim = (number_list){1, {128}};
    const uint32_t heads = o->heads ? o->heads : 4 * o->shape.kv_heads;
    if (heads % o->shape.kv_heads != 0 || heads / o->shape.kv_heads > MAX_GROUP) {
        cli_error("--heads %u must be a multiple of --kv-heads %u, and at most %d times as many", heads,
                  o->shape.kv_heads, MAX_GROUP);
        return CLI_USAGE;
    }
    if (!o->shape.gqa.n) o->shape.gqa = (number_list){1, {heads / o->shape.kv_heads}};
    if (o->device != DEVICE_CPU) return CLI_OK;
    for (uint32_t i = 0; i < o->kv.n; i++)
        if (o->kv.spec[i].policy != PLEAT_POLICY_NONE || o->kv.spec[i].compressor == PLEAT_COMPRESSOR_AUTO) {
            cli_error("--kv %s: this measures formats, as f16 or k8v4, kvcomp, kivi and rd; `pleat bench run` measures "
                      "a policy's caches and auto's, which need a model",
                      o->kv.text[i]);
            return CLI_USAGE;
        }
    return CLI_OK;
}

static int prepare(bench *b, attn_options *o) {
    b->reps = o->reps;
    b->gb_per_s = cli_alloc(b->reps, sizeof *b->gb_per_s);
    bench_noise_init(&b->noise);
    int code = output_open(&b->out, &b->o->common);
    if (code == CLI_OK) code = load_workers(o->threads, o->common.quiet, &b->workers);
    if (code == CLI_OK) code = bandwidth_init(&b->memory, b->workers);
    if (code == CLI_OK) code = bench_cost_init(&b->cost, &b->noise, b->workers, b->reps);
    b->budget_bytes = free_memory_bytes() / MEMORY_SHARE;
    return code;
}

static int run(void *opts) {
    attn_options *o = opts;
    bench b = {.o = o};
    int code = check_options(o);
    if (code != CLI_OK) return code;
    if (o->device == DEVICE_CUDA) return bench_device_attn(o);
    code = prepare(&b, o);
    if (code == CLI_OK) code = run_shapes(&b);
    code = output_end_rows(&b.out, code, b.rows, b.skipped, &b.t);
    bench_cost_release(&b.cost);
    bench_noise_release(&b.noise);
    bandwidth_release(&b.memory);
    pleat_workers_destroy(&b.workers);
    free(b.gb_per_s);
    return code;
}

const command bench_attn_command = {
    .name = "bench attn",
    .help = "speed of decode attention against the memory's",
    .usage = "[--kv SPEC]... [--ctx N,..] [--batch N,..] [--gqa N,..] [--head-dim N,..] [-r N] [--device cuda]",
    .about = "Times decode attention of one layer over caches that each spec keeps, turn and turn about, beside plain "
             "reads of the memory.",
    ROWS_OF(rows),
    .options_bytes = sizeof(attn_options),
    .set_defaults = set_defaults,
    .run = run,
};
