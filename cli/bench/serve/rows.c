/* SPDX-License-Identifier: MIT
 *
 * rows.c: the figures of a replay: one table of what there is, from which every form is printed.  Names and
 * units are those of vLLM's `bench serve` where it has them.
 *
 *     terminal, md    a line for each figure, a column for each spec
 *     csv, json       a row for each spec
 */
#include <math.h>

#include "cli/lib/common.h"
#include "serve.h"

/* clang-format off */
enum {
    COMPLETED, FAILED, REJECTED, UNFINISHED, DURATION, INPUT, OUTPUT, INPUT_MEAN, OUTPUT_MEAN,
    REQUEST_RATE, OUTPUT_RATE, TOKEN_RATE, OUTPUT_RATIO,
    TTFT_MEAN, TTFT_MEDIAN, TTFT_P99, TPOT_MEAN, TPOT_MEDIAN, TPOT_P99,
    ITL_MEAN, ITL_MEDIAN, ITL_P99, E2EL_MEAN, E2EL_MEDIAN, E2EL_P99,
    RUNNING_MEAN, MAX_RUNNING, RUNNING_RATIO,
    SWAPS, RECOMPUTES, COMPRESSIONS, EVICTIONS, IMAGES_LOST, SWAPPED_BYTES, REPLAYED,
    HIT_RATE, HITS, COMPUTED, USED_MEAN, USED_MAX, LIVE_MEAN, SHARED_MEAN,
    FRAGMENTATION, FRAGMENTATION_MEDIAN, FRAGMENTATION_P99, MOVED, RETURNED,
    STEPS, MAX_IDLE, STALLED_MAX, SCHEDULING, MANAGEMENT, MANAGEMENT_MS, COMPACTION_MS, N_FIGURES
};
/* clang-format on */

/* decimals: of tables.  Whole: a count, which JSON has as an integer. */
typedef struct figure {
    const char *key, *title;
    int decimals, is_whole;
} figure;

static const figure figures[N_FIGURES] = {
    [COMPLETED] = {"completed", "successful requests", 0, 1},
    [FAILED] = {"failed", "failed requests", 0, 1},
    [REJECTED] = {"rejected", "rejected requests", 0, 1},
    [UNFINISHED] = {"unfinished", "requests not served to their end", 0, 1},
    [DURATION] = {"duration", "benchmark duration (s)", 2, 0},
    [INPUT] = {"total_input_tokens", "total input tokens", 0, 1},
    [OUTPUT] = {"total_output_tokens", "total generated tokens", 0, 1},
    [INPUT_MEAN] = {"mean_input_tokens", "input tokens of a request", 1, 0},
    [OUTPUT_MEAN] = {"mean_output_tokens", "generated tokens of a request", 1, 0},
    [REQUEST_RATE] = {"request_throughput", "request throughput (req/s)", 2, 0},
    [OUTPUT_RATE] = {"output_throughput", "output token throughput (tok/s)", 2, 0},
    [TOKEN_RATE] = {"total_token_throughput", "total token throughput (tok/s)", 2, 0},
    [OUTPUT_RATIO] = {"output_throughput_to_first", "output throughput to the first", 3, 0},
    [TTFT_MEAN] = {"mean_ttft_ms", "mean TTFT (ms)", 2, 0},
    [TTFT_MEDIAN] = {"median_ttft_ms", "median TTFT (ms)", 2, 0},
    [TTFT_P99] = {"p99_ttft_ms", "P99 TTFT (ms)", 2, 0},
    [TPOT_MEAN] = {"mean_tpot_ms", "mean TPOT (ms)", 2, 0},
    [TPOT_MEDIAN] = {"median_tpot_ms", "median TPOT (ms)", 2, 0},
    [TPOT_P99] = {"p99_tpot_ms", "P99 TPOT (ms)", 2, 0},
    [ITL_MEAN] = {"mean_itl_ms", "mean ITL (ms)", 2, 0},
    [ITL_MEDIAN] = {"median_itl_ms", "median ITL (ms)", 2, 0},
    [ITL_P99] = {"p99_itl_ms", "P99 ITL (ms)", 2, 0},
    [E2EL_MEAN] = {"mean_e2el_ms", "mean E2EL (ms)", 2, 0},
    [E2EL_MEDIAN] = {"median_e2el_ms", "median E2EL (ms)", 2, 0},
    [E2EL_P99] = {"p99_e2el_ms", "P99 E2EL (ms)", 2, 0},
    [RUNNING_MEAN] = {"mean_concurrency", "concurrent requests, mean", 2, 0},
    [MAX_RUNNING] = {"max_concurrency", "concurrent requests, most", 0, 1},
    [RUNNING_RATIO] = {"concurrency_to_first", "concurrency to the first", 3, 0},
    [SWAPS] = {"preempted_swap", "preempted by swap", 0, 1},
    [RECOMPUTES] = {"preempted_recompute", "preempted to be recomputed", 0, 1},
    [COMPRESSIONS] = {"compressed", "compressed in need", 0, 1},
    [EVICTIONS] = {"evicted_prefixes", "prefixes evicted", 0, 1},
    [IMAGES_LOST] = {"images_lost", "images lost", 0, 1},
    [SWAPPED_BYTES] = {"swapped_bytes_most", "swapped, most bytes", 0, 1},
    [REPLAYED] = {"replayed_tokens", "tokens computed again", 0, 1},
    [HIT_RATE] = {"prefix_hit_rate", "prompt tokens from prefixes (of 1)", 4, 0},
    [HITS] = {"prefix_hits", "requests that hit a prefix", 0, 1},
    [COMPUTED] = {"prompt_tokens_computed", "prompt tokens computed", 0, 1},
    [USED_MEAN] = {"pool_used_mean", "pool in use, mean (of 1)", 4, 0},
    [USED_MAX] = {"pool_used_max", "pool in use, most", 4, 0},
    [LIVE_MEAN] = {"pool_live_mean", "pool in use without idle prefixes, mean", 4, 0},
    [SHARED_MEAN] = {"pool_shared_mean", "held from prefixes, for each who shares, mean", 4, 0},
    [FRAGMENTATION] = {"fragmentation", "fragmentation (of 1)", 4, 0},
    [FRAGMENTATION_MEDIAN] = {"median_fragmentation", "the same of a request, median", 2, 0},
    [FRAGMENTATION_P99] = {"p99_fragmentation", "the same of a request, P99", 2, 0},
    [MOVED] = {"tokens_moved", "tokens moved to other slots", 0, 1},
    [RETURNED] = {"pages_returned", "pages returned after steps", 0, 1},
    [STEPS] = {"steps", "steps", 0, 1},
    [MAX_IDLE] = {"idle_steps_most", "steps without a token, most in a row", 0, 1},
    [STALLED_MAX] = {"stalled_steps_most", "the same, of one running request", 0, 1},
    [SCHEDULING] = {"scheduling_share", "scheduling, of the steps' time (of 1)", 4, 0},
    [MANAGEMENT] = {"management_share", "memory management, of the steps' time", 4, 0},
    [MANAGEMENT_MS] = {"management_ms", "memory management (ms)", 2, 0},
    [COMPACTION_MS] = {"compaction_ms", "of that, policies and moving tokens (ms)", 2, 0},
};

static void put_latency(double *v, serve_latency latency) {
    v[0] = latency.mean;
    v[1] = latency.median;
    v[2] = latency.p99;
}

static double share(double part, double whole) { return whole > 0 ? part / whole : NAN; }

/* What the requests saw. */
static void fill_requests(const serve_result *r, const serve_result *first, double *v) {
    v[COMPLETED] = r->n_completed;
    v[FAILED] = r->n_failed;
    v[REJECTED] = r->n_rejected;
    v[UNFINISHED] = r->n_unfinished;
    v[DURATION] = r->duration_s;
    v[INPUT] = (double)r->input_tokens;
    v[OUTPUT] = (double)r->output_tokens;
    v[INPUT_MEAN] = share(v[INPUT], r->n_completed);
    v[OUTPUT_MEAN] = share((double)r->completed_tokens, r->n_completed);
    v[REQUEST_RATE] = share(r->n_completed, r->duration_s);
    v[OUTPUT_RATE] = share(v[OUTPUT], r->duration_s);
    v[TOKEN_RATE] = share(v[INPUT] + v[OUTPUT], r->duration_s);
    v[OUTPUT_RATIO] = share(v[OUTPUT_RATE], share((double)first->output_tokens, first->duration_s));
    put_latency(&v[TTFT_MEAN], r->ttft);
    put_latency(&v[TPOT_MEAN], r->tpot);
    put_latency(&v[ITL_MEAN], r->itl);
    put_latency(&v[E2EL_MEAN], r->e2el);
    v[HIT_RATE] = share((double)r->hit_tokens, v[INPUT]);
    v[STALLED_MAX] = r->stalled_max;
}

/* The percentage that as large a share of the steps' sequences did not exceed, rounded down, of 1. */
static double fragmentation_at(const pleat_serving_stats *s, double at) {
    uint64_t n = 0, below = 0;
    for (int i = 0; i <= 100; i++) n += s->fragmentation[i];
    for (int i = 0; i <= 100; i++) {
        below += s->fragmentation[i];
        if (n > 0 && (double)below >= at * (double)n) return i / 100.0;
    }
    return NAN;
}

/* What it took.  A simulated step takes no time of its own. */
static void fill_engine(const serve_result *r, const serve_result *first, int is_simulated, double *v) {
    const pleat_serving_stats *s = &r->stats;
    v[RUNNING_MEAN] = r->running_mean;
    v[MAX_RUNNING] = s->peak_running;
    v[RUNNING_RATIO] = share(r->running_mean, first->running_mean);
    v[SWAPS] = (double)s->preempted_swap;
    v[RECOMPUTES] = (double)s->preempted_recompute;
    v[COMPRESSIONS] = (double)s->compressed;
    v[EVICTIONS] = (double)s->evicted;
    v[IMAGES_LOST] = (double)s->images_lost;
    v[SWAPPED_BYTES] = (double)s->peak_swapped_bytes;
    v[REPLAYED] = (double)s->replayed_tokens;
    v[HITS] = (double)s->hits;
    v[COMPUTED] = (double)s->prompt_tokens;
    v[USED_MEAN] = r->used_mean;
    v[USED_MAX] = r->used_max;
    v[LIVE_MEAN] = r->live_mean;
    v[SHARED_MEAN] = r->shared_mean;
    v[FRAGMENTATION] = r->fragmentation;
    v[FRAGMENTATION_MEDIAN] = fragmentation_at(s, 0.5);
    v[FRAGMENTATION_P99] = fragmentation_at(s, 0.99);
    v[MOVED] = (double)s->tokens_moved;
    v[RETURNED] = (double)s->pages_returned;
    v[STEPS] = (double)s->n_steps;
    v[MAX_IDLE] = (double)s->max_idle_steps;
    v[SCHEDULING] = is_simulated ? NAN : share((double)s->schedule_ns, (double)s->step_ns);
    v[MANAGEMENT] = is_simulated ? NAN : share((double)s->manage_ns, (double)s->step_ns);
    v[MANAGEMENT_MS] = is_simulated ? NAN : 1e-6 * (double)s->manage_ns;
    v[COMPACTION_MS] = is_simulated ? NAN : 1e-6 * (double)s->compact_ns;
}

/* NULL: as the trace has it. */
static json_t *rate_json(const serve_options *o) {
    if (o->rate == 0) return NULL;
    return isfinite(o->rate) ? json_number((double)o->rate) : json_string("inf");
}

/* NULL: not given. */
static json_t *numbers_json(const float_list *list) {
    json_t *v = list->n ? json_array() : NULL;
    for (uint32_t i = 0; i < list->n; i++) json_array_append_new(v, json_number(round((double)list->v[i] * 1e6) / 1e6));
    return v;
}

static json_t *tenants_json(const tenant_list *tenants) {
    json_t *v = tenants->n ? json_array() : NULL;
    for (uint32_t i = 0; i < tenants->n; i++) {
        const pleat_tenant *t = &tenants->v[i];
        json_array_append_new(v, json_pack("{s:o, s:o, s:I}", "name", json_text(t->name), "quota",
                                           json_number(t->quota), "weight", (json_int_t)t->weight));
    }
    return v;
}

/* Where it ran, if that was a GPU. */
static void put_device(json_t *params, const loaded *l) {
    pleat_device_info info;
    if (!l->n_devices || pleat_device_get_info(l->device, &info, NULL) != PLEAT_OK) return;
    json_object_set_new(params, "device", json_string("cuda"));
    json_object_set_new(params, "gpu", json_text(info.name));
}

/* What only some runs have. */
static void put_given(json_t *params, const serve_setup *setup) {
    const serve_options *o = setup->o;
    put_device(params, &setup->l);
    json_t *tenants = tenants_json(&setup->tenants), *fractions = numbers_json(&o->fractions);
    if (tenants) json_object_set_new(params, "tenants", tenants);
    if (fractions) json_object_set_new(params, "fractions", fractions);
    if (o->warmup > 0) json_object_set_new(params, "warmup", json_number((double)o->warmup));
    if (o->steady) json_object_set_new(params, "steady", json_true());
    if (o->ah_most > 0) json_object_set_new(params, "ah_most", json_number((double)o->ah_most));
    if (o->al_most > 0) json_object_set_new(params, "al_most", json_number((double)o->al_most));
}

static json_t *params_json(const serve_setup *setup, const trace *t, const serve_result *r, uint32_t spec) {
    const serve_options *o = setup->o;
    json_t *params = json_pack(
        "{s:s, s:o*, s:o*, s:o*, s:o*, s:b, s:i, s:o*, s:I, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:s, s:I, s:I, s:o*}",
        "kv", o->load.kv.text[spec], "model", o->load.model ? json_text(o->load.model) : NULL, "arch",
        setup->l.model ? NULL : json_text(o->arch), "trace", t->path ? json_text(t->path) : NULL, "synthetic",
        t->path ? NULL : json_text(o->synthetic), "simulated", o->simulate, "requests", (int)r->n_requests, "rate",
        rate_json(o), "pool_bytes", (json_int_t)o->service.pool_bytes, "max_running", (int)o->max_running, "max_tokens",
        (int)setup->max_tokens, "chunk_tokens", (int)o->load.chunk_tokens, "prefix_tokens", (int)setup->prefix_tokens,
        "page_tokens", (int)r->page_tokens, "low_watermark", json_number(setup->serving.low_watermark),
        "high_watermark", json_number(setup->serving.high_watermark), "preempt",
        service_preemptions[o->service.preempt], "swap_bytes", (json_int_t)o->service.swap_bytes, "seed",
        (json_int_t)o->seed, "threads", setup->l.model ? json_integer(pleat_workers_count(setup->l.workers)) : NULL);
    put_given(params, setup);
    return params;
}

/* What a step costs: of a simulation what was assumed, of an engine what was seen. */
static json_t *prices_json(const pleat_serving_stats *s) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "fixed_ns", json_number(s->fixed_ns), "prompt_ns",
                     json_number(s->prompt_ns), "token_ns", json_number(s->token_ns), "byte_ns",
                     json_number(s->byte_ns), "swap_ns", json_number(s->swap_ns), "chunk_ns", json_number(s->chunk_ns));
}

static json_t *row_json(const serve_setup *setup, const trace *t, const serve_result *r, uint32_t spec,
                        const double *v) {
    json_t *row = json_pack("{s:s, s:o}", "what", "serve", "params", params_json(setup, t, r, spec));
    for (int i = 0; i < N_FIGURES; i++)
        json_object_set_new(row, figures[i].key,
                            figures[i].is_whole ? json_integer((json_int_t)v[i]) : json_number(v[i]));
    json_object_set_new(row, "pages_total", json_integer((json_int_t)r->stats.pages_total));
    json_object_set_new(row, "pages_left", json_integer((json_int_t)r->pages_left));
    json_object_set_new(row, "prices", prices_json(&r->stats));
    return row;
}

/* A line for each spec. */
static void write_wide(const serve_setup *setup, double (*v)[N_FIGURES], output *out) {
    const char *titles[N_FIGURES + 1] = {"kv"};
    table t;
    for (int i = 0; i < N_FIGURES; i++) titles[i + 1] = figures[i].key;
    table_init(&t, titles, N_FIGURES + 1);
    for (uint32_t spec = 0; spec < setup->o->load.kv.n; spec++) {
        table_put_text(&t, setup->o->load.kv.text[spec]);
        for (int i = 0; i < N_FIGURES; i++) table_put_number(&t, figures[i].is_whole ? 0 : 9, v[spec][i]);
    }
    table_write(&t, out);
    table_release(&t);
}

/* A column for each spec. */
static void write_tall(const serve_setup *setup, double (*v)[N_FIGURES], output *out) {
    const char *titles[SPECS_CAP + 1] = {""};
    const uint32_t n = setup->o->load.kv.n;
    table t;
    for (uint32_t spec = 0; spec < n; spec++) titles[spec + 1] = setup->o->load.kv.text[spec];
    table_init(&t, titles, n + 1);
    for (int i = 0; i < N_FIGURES; i++) {
        table_put_text(&t, figures[i].title);
        for (uint32_t spec = 0; spec < n; spec++) table_put_number(&t, figures[i].decimals, v[spec][i]);
    }
    table_write(&t, out);
    table_release(&t);
}

void serve_write_rows(const serve_setup *setup, const trace *t, const serve_result *results, output *out) {
    double v[SPECS_CAP][N_FIGURES];
    json_t *rows = json_array();
    for (uint32_t spec = 0; spec < setup->o->load.kv.n; spec++) {
        fill_requests(&results[spec], &results[0], v[spec]);
        fill_engine(&results[spec], &results[0], setup->o->simulate, v[spec]);
        json_array_append_new(rows, row_json(setup, t, &results[spec], spec, v[spec]));
    }
    if (out->format == FORMAT_JSON)
        output_json(out, json_pack("{s:O}", "rows", rows));
    else if (out->format == FORMAT_CSV)
        write_wide(setup, v, out);
    else
        write_tall(setup, v, out);
    json_decref(rows);
}
