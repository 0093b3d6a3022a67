/* SPDX-License-Identifier: MIT
 *
 * attn.c: `pleat bench attn --device cuda`: decode attention of one layer on a GPU, for each head
 * dimension, GQA group, batch, context and spec.
 *
 *     for each repetition:  every spec's cache: launched | in a graph | a block a lane | a whole step  |  one copy
 *
 * Rules
 *  1. Everything that is compared runs turn and turn about in one run; figures are medians, by the device's own clock.
 *  2. Every call reads from memory: calls go round as many layers as are four times the level-2 cache, four at least, or
 *     as many as are asked for, if these are more.  256 are the most: lanes so short that these are less stay in the
 *     cache, and are bound by latency anyway.
 *  3. A call is all of attention, parts merged.  Cutting all layers' work, once a step, is timed by itself: plan us.
 *  4. bytes are those that must move, as the cache counts them: codes and metadata of whole tiles, positions where
 *     slots can be dead, page ids; in a step also scores, where the policy counts attention received, read and written.
 *  5. max_rel_err is the kernel's error against float64, without that of the format (cache.h).
 *  6. Specs whose caches do not fit beside each other take turns in several heats; `x first` compares within the first
 *     heat only, with the first spec called in the same way.  What does not fit by itself is skipped, and said.
 */
#include <math.h>
#include <stdlib.h>

#include "cache.h"
#include "cli/lib/measure.h"
#include "cli/lib/progress.h"

enum { L2_TIMES = 4, CONTENDERS_CAP = 2 * SPECS_CAP, LEAST_CALLS_BYTES = 64 << 20 };

static const char *const how_names[N_HOWS] = {"launched", "graph", "block a lane", "step"};

/* One spec's cache of one spread, and its times. */
typedef struct contender {
    uint32_t spec; /* index */
    uint32_t spread;
    device_cache cache;
    double *us[N_HOWS]; /* [reps] */
    double *plan_us;    /* [reps] */
} contender;

typedef struct bench {
    const attn_options *o;
    output out;
    bench_device device;
    uint32_t reps;
    device_shape shape; /* of the configuration under way */
    contender contenders[CONTENDERS_CAP];
    uint32_t n_contenders; /* of a configuration, whether they fit or not */
    table t;
    json_t *rows, *skipped;
    char label[96];
    char first_reason[240]; /* why the first configuration was skipped */
    uint64_t n_done;
} bench;

/* ---- one heat ------------------------------------------------------------------------------------------- */

static void say(bench *b, const char *what, const char *kv) {
    snprintf(b->label, sizeof b->label, "%u x %u tokens, %u heads a KV head, d %u: %s %s", b->shape.batch, b->shape.ctx,
             b->shape.group, b->shape.head_dim, what, kv);
    progress_update(b->n_done);
}

static int has(const contender *c, int how) { return how != HOW_STEP || c->spread == 1; }

static pleat_status make_contender(bench *b, contender *c, pleat_error *err) {
    const attn_options *o = b->o;
    device_shape shape = b->shape;
    const uint64_t l2_bytes = L2_TIMES * b->device.gpu.info.l2_bytes;
    const uint64_t least = l2_bytes > LEAST_CALLS_BYTES ? l2_bytes : LEAST_CALLS_BYTES;
    const uint32_t n_layers = device_layers_for(&shape, &o->kv.spec[c->spec], least);
    shape.spread = c->spread;
    say(b, "filling", o->kv.text[c->spec]);
    for (int how = 0; how < N_HOWS; how++) c->us[how] = cli_alloc(b->reps, sizeof(double));
    c->plan_us = cli_alloc(b->reps, sizeof(double));
    return device_cache_init(&c->cache, &b->device, &shape, &o->kv.spec[c->spec], o->kv.text[c->spec],
                             n_layers > o->layers ? n_layers : o->layers, err);
}

static void release_contender(contender *c) {
    device_cache_release(&c->cache);
    for (int how = 0; how < N_HOWS; how++) free(c->us[how]);
    free(c->plan_us);
    *c = (contender){.spec = c->spec, .spread = c->spread};
}

/* rep -1 warms up and is not kept. */
static pleat_status time_contender(contender *c, int rep, pleat_error *err) {
    double unused;
    pleat_status status = device_cache_time_plan(&c->cache, rep < 0 ? &unused : &c->plan_us[rep], err);
    for (int how = 0; how < N_HOWS && status == PLEAT_OK; how++)
        if (has(c, how))
            status = device_cache_time(&c->cache, (device_how)how, rep < 0 ? &unused : &c->us[how][rep], err);
    return status;
}

static int time_all(bench *b, uint32_t from, uint32_t to) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    say(b, "timing", "");
    for (int rep = -1; rep < (int)b->reps; rep++) {
        for (uint32_t i = from; i < to; i++) {
            const pleat_status status = time_contender(&b->contenders[i], rep, &err);
            if (status != PLEAT_OK) return cli_fail(b->contenders[i].cache.name, status, &err);
        }
        const pleat_status status = bench_device_measure_copy(&b->device, rep, &err);
        if (status != PLEAT_OK) return cli_fail("copying", status, &err);
        if (rep >= 0) b->n_done += to - from;
        progress_update(b->n_done);
    }
    return CLI_OK;
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

static json_t *params_json(const bench *b, const contender *c, const char *how) {
    const device_shape *s = &b->shape;
    json_t *p =
        json_pack("{s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "kv", b->o->kv.text[c->spec], "device",
                  "cuda", "gpu", json_text(b->device.gpu.info.name), "ctx", (int)s->ctx, "batch", (int)s->batch, "gqa",
                  (int)s->group, "heads", (int)(s->group * s->kv_heads), "kv_heads", (int)s->kv_heads, "head_dim",
                  (int)s->head_dim, "spread", (int)c->spread, "reps", (int)b->reps);
    if (how) {
        json_object_set_new(p, "how", json_string(how));
        json_object_set_new(p, "layers", json_integer(c->cache.n_layers));
        json_object_set_new(p, "calls", json_integer(c->cache.n_calls));
    }
    if (b->o->kv.spec[c->spec].policy != PLEAT_POLICY_NONE)
        json_object_set_new(p, "low_share", json_number(round((double)s->low_share * 1e6) / 1e6));
    return p;
}

/* What a row is compared with: medians in us, NAN where there is no such row in this heat. */
typedef struct rivals {
    double first, lanes, equal; /* the first spec; a block a lane; lanes of one length */
} rivals;

static double median_us(const bench *b, const contender *c, int how) { return bench_median(c->us[how], b->reps); }

static rivals rivals_of(const bench *b, uint32_t from, uint32_t to, const contender *c, int how) {
    rivals r = {NAN, NAN, NAN};
    if (from == 0) r.first = median_us(b, &b->contenders[0], how);
    if (how == HOW_LAUNCHED) r.lanes = median_us(b, c, HOW_LANES);
    for (uint32_t i = from; i < to && c->spread != 1; i++)
        if (b->contenders[i].spec == c->spec && b->contenders[i].spread == 1)
            r.equal = median_us(b, &b->contenders[i], how);
    return r;
}

static uint64_t bytes_of(const contender *c, int how) {
    return c->cache.layer_bytes + (how == HOW_STEP ? c->cache.score_bytes : 0);
}

static json_t *json_row(const bench *b, const contender *c, int how, const rivals *r, measure_spread us, double peak) {
    const double gb_per_s = (double)bytes_of(c, how) / us.median / 1e3;
    return json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "attn", "params",
                     params_json(b, c, how_names[how]), "us", json_spread(us), "plan_us",
                     json_spread(measure_spread_of(c->plan_us, b->reps)), "bytes", (json_int_t)bytes_of(c, how),
                     "gb_per_s", json_number(gb_per_s), "peak_gb_per_s", json_number(peak), "fraction_of_peak",
                     json_number(gb_per_s / peak), "speed_to_first", json_number(r->first / us.median),
                     "speed_to_block_a_lane", json_number(r->lanes / us.median), "time_to_equal",
                     json_number(us.median / r->equal), "max_rel_err", json_number(c->cache.max_rel_err));
}

static void put_row(bench *b, const contender *c, int how, const rivals *r, measure_spread us, double peak) {
    const double gb_per_s = (double)bytes_of(c, how) / us.median / 1e3;
    table_put(&b->t, "%s", b->o->kv.text[c->spec]);
    table_put(&b->t, "%s", how_names[how]);
    table_put(&b->t, "%u:1", c->spread);
    table_put(&b->t, "%u", b->shape.ctx);
    table_put(&b->t, "%u", b->shape.batch);
    table_put(&b->t, "%u", b->shape.group);
    table_put(&b->t, "%u", b->shape.head_dim);
    table_put(&b->t, "%.2f", us.min);
    table_put(&b->t, "%.2f", us.median);
    table_put(&b->t, "%.2f", us.max);
    table_put(&b->t, "%.2f", bench_median(c->plan_us, b->reps));
    table_put(&b->t, "%llu", (unsigned long long)bytes_of(c, how));
    table_put_number(&b->t, 0, gb_per_s);
    table_put_number(&b->t, 0, peak);
    table_put_number(&b->t, 3, gb_per_s / peak);
    table_put_number(&b->t, 2, r->first / us.median);
    table_put_number(&b->t, 2, r->lanes / us.median);
    table_put_number(&b->t, 2, us.median / r->equal);
    bench_device_put_error(&b->t, c->cache.max_rel_err);
}

static void add_row(bench *b, uint32_t from, uint32_t to, const contender *c, int how) {
    const rivals r = rivals_of(b, from, to, c, how);
    const measure_spread us = measure_spread_of(c->us[how], b->reps);
    const double peak = bench_device_peak(&b->device);
    json_array_append_new(b->rows, json_row(b, c, how, &r, us, peak));
    put_row(b, c, how, &r, us, peak);
}

static void add_rows(bench *b, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        for (int how = 0; how < N_HOWS; how++)
            if (has(&b->contenders[i], how)) add_row(b, from, to, &b->contenders[i], how);
}

/* ---- the sweep ------------------------------------------------------------------------------------------ */

static void skip(bench *b, const contender *c, const pleat_error *err) {
    if (!b->first_reason[0]) snprintf(b->first_reason, sizeof b->first_reason, "%s", err->text);
    json_array_append_new(b->skipped,
                          json_pack("{s:o, s:o}", "params", params_json(b, c, NULL), "reason", json_text(err->text)));
    if (!b->o->common.quiet)
        cli_note("skipped: %s, %u x %u tokens, spread %u:1, %u KV heads, head dimension %u: %s", b->o->kv.text[c->spec],
                 b->shape.batch, b->shape.ctx, c->spread, b->shape.kv_heads, b->shape.head_dim, err->text);
    b->n_done += b->reps;
}

/* It does not fit, or no cache can be so. */
static int can_be_skipped(pleat_status status) {
    return status == PLEAT_E_MEMORY || status == PLEAT_E_UNSUPPORTED || status == PLEAT_E_ARG ||
           status == PLEAT_E_LIMIT;
}

/* Make contenders from `from` on, until one does not fit or cannot be: *to.  err says why. */
static int make_heat(bench *b, uint32_t from, uint32_t *to, pleat_error *err) {
    for (*to = from; *to < b->n_contenders; ++*to) {
        contender *c = &b->contenders[*to];
        const pleat_status status = make_contender(b, c, err);
        if (status == PLEAT_OK) continue;
        release_contender(c);
        if (can_be_skipped(status)) return CLI_OK;
        return cli_fail(b->o->kv.text[c->spec], status, err);
    }
    return CLI_OK;
}

static int run_heat(bench *b, uint32_t from, uint32_t *to) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    int code = make_heat(b, from, to, &err);
    if (code == CLI_OK && *to == from) {
        skip(b, &b->contenders[from], &err);
        ++*to;
        return CLI_OK;
    }
    if (code == CLI_OK) code = time_all(b, from, *to);
    if (code == CLI_OK) add_rows(b, from, *to);
    for (uint32_t i = from; i < *to; i++) release_contender(&b->contenders[i]);
    return code;
}

static int run_shape(bench *b) {
    const uint32_t n_spreads = b->o->spread > 1 ? 2 : 1;
    int code = CLI_OK;
    b->n_contenders = 0;
    for (uint32_t i = 0; i < b->o->kv.n; i++)
        for (uint32_t s = 0; s < n_spreads; s++)
            b->contenders[b->n_contenders++] = (contender){.spec = i, .spread = s ? b->o->spread : 1};
    for (uint32_t from = 0, to; from < b->n_contenders && code == CLI_OK; from = to) code = run_heat(b, from, &to);
    return code;
}

static int run_shapes(bench *b) {
    static const char *const titles[] = {
        "kv",           "how",     "spread",         "ctx",           "batch",      "gqa",  "d",
        "us min",       "us",      "us max",         "plan us",       "bytes",      "GB/s", "peak GB/s",
        "part of peak", "x first", "x block a lane", "time to equal", "max rel err"};
    const attn_options *o = b->o;
    const uint32_t n_shapes = bench_shapes_count(&o->shape);
    int code = CLI_OK;
    table_init(&b->t, titles, sizeof titles / sizeof titles[0]);
    b->rows = json_array();
    b->skipped = json_array();
    progress_begin(b->label, (uint64_t)b->reps * n_shapes * o->kv.n * (o->spread > 1 ? 2 : 1), !o->common.quiet);
    for (uint32_t n = 0; n < n_shapes && code == CLI_OK; n++) {
        const bench_shape s = bench_shapes_at(&o->shape, n);
        b->shape = (device_shape){s.ctx, s.batch, s.kv_heads, s.group, s.head_dim, 1, o->low_share};
        code = run_shape(b);
    }
    progress_end();
    return code == CLI_OK ? output_check_rows(b->rows, b->first_reason) : code;
}

/* ---- the command ---------------------------------------------------------------------------------------- */

/* Refuse what no cache on a GPU can have. */
static int check_options(const attn_options *o) {
    for (uint32_t i = 0; i < o->shape.head_dim.n; i++)
        if (o->shape.head_dim.v[i] != 64 && o->shape.head_dim.v[i] != 128) {
            cli_error("--head-dim %u: with --device cuda it is 64 or 128", o->shape.head_dim.v[i]);
            return CLI_USAGE;
        }
    for (uint32_t i = 0; i < o->shape.gqa.n; i++)
        if (o->shape.gqa.v[i] > 8) {
            cli_error("%u query heads for a KV head: with --device cuda at most 8", o->shape.gqa.v[i]);
            return CLI_USAGE;
        }
    for (uint32_t i = 0; i < o->kv.n; i++) {
        const pleat_spec *s = &o->kv.spec[i];
        if ((s->policy != PLEAT_POLICY_NONE && s->policy != PLEAT_POLICY_LEANKV) || s->profile[0] ||
            (s->compressor != PLEAT_COMPRESSOR_NONE && !(s->compressor == PLEAT_COMPRESSOR_KVCOMP && s->pack)) ||
            s->high.k_bits > 16) {
            cli_error("--kv %s: on a GPU there are f16, k8v8 to k2v2, h4v4 to h2v2, kvcomp+pack, and leankv without a "
                      "profile",
                      o->kv.text[i]);
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

int bench_device_attn(const attn_options *o) {
    bench b = {.o = o};
    int code = check_options(o);
    if (code != CLI_OK) return code;
    b.reps = o->reps;
    code = output_open(&b.out, &o->common);
    if (code == CLI_OK) code = bench_device_open(&b.device, b.reps);
    if (code == CLI_OK) code = run_shapes(&b);
    code = output_end_rows(&b.out, code, b.rows, b.skipped, &b.t);
    bench_device_close(&b.device);
    return code;
}
