/* SPDX-License-Identifier: MIT
 *
 * data.c: see data.h.
 *
 * Requests of the study and the trace are samples of the tasks; where there are no tasks, windows of the text, turned
 * into samples: the window is the prompt, and there is no answer.
 */
#include "data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/progress.h"

/* Every token is scored, all stay, and stay as precise: thresholds of 0 and one format on both sides. */
static const char study_spec[] = "leankv:ah=0,al=0,high=f16,low=f16";

enum { LONG_ANSWER = 256 }; /* tokens; a shorter one shows little of generation, and the text is traced instead */

report_data *report_data_create(const evaluation *e) {
    const pleat_model_info *info = &e->l.info;
    report_data *d = cli_alloc(1, sizeof *d);
    const uint32_t wanted[REPORT_LAYERS] = {0, info->n_layers / 2, info->n_layers - 1};
    d->n_layers = info->n_layers;
    d->n_heads = info->n_kv_heads;
    d->head_dim = info->head_dim;
    for (uint32_t i = 0; i < REPORT_LAYERS; i++)
        if (!d->n_shown || wanted[i] > d->shown[d->n_shown - 1]) d->shown[d->n_shown++] = wanted[i];
    d->n_rows = e->o->load.kv.n;
    d->kept = cli_alloc(d->n_rows, sizeof *d->kept);
    d->study.need_layers = cli_alloc(d->n_layers, sizeof(moments));
    d->study.need_lanes = cli_alloc((size_t)d->n_layers * d->n_heads, sizeof(moments));
    return d;
}

void report_data_destroy(report_data **data) {
    report_data *d = *data;
    if (!d) return;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        free(d->kept[i].layers);
        free(d->kept[i].lanes);
    }
    free(d->kept);
    free(d->study.need_layers);
    free(d->study.need_lanes);
    free(d->trace.what);
    free(d->trace.points);
    free(d->tokens);
    free(d->values);
    free(d->received);
    free(d);
    *data = NULL;
}

static void reserve(report_data *d, uint32_t n_tokens) {
    if (n_tokens <= d->cap) return;
    free(d->tokens);
    free(d->values);
    free(d->received);
    d->cap = n_tokens;
    d->tokens = cli_alloc(n_tokens, sizeof *d->tokens);
    d->values = cli_alloc((size_t)n_tokens * d->head_dim, sizeof *d->values);
    d->received = cli_alloc(n_tokens, sizeof *d->received);
}

/* Fill d->tokens with all tokens of a lane. */
static int read_lane(report_data *d, const pleat_cache *cache, pleat_seq seq, uint32_t layer, uint32_t head,
                     uint32_t n) {
    const pleat_status status = pleat_cache_tokens(cache, seq, layer, head, 0, n, d->tokens);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot read how tokens are kept", status, NULL);
}

/* ---- kept -------------------------------------------------------------------------------------- */

static void add_shares(share_stat *s, double high, double kept) {
    moments_add(&s->high, high);
    moments_add(&s->kept, kept);
}

static int note_kept(void *ctx, const pleat_cache *cache, pleat_seq seq) {
    const kept_shares *k = ctx;
    report_data *d = k->data;
    const uint32_t n = pleat_cache_length(cache, seq);
    reserve(d, n);
    for (uint32_t layer = 0; layer < d->n_layers; layer++) {
        double high_sum = 0, kept_sum = 0;
        for (uint32_t head = 0; head < d->n_heads; head++) {
            uint32_t n_high = 0, n_low = 0;
            if (read_lane(d, cache, seq, layer, head, n) != CLI_OK) return CLI_FAILED;
            for (uint32_t i = 0; i < n; i++) {
                n_high += d->tokens[i].level == PLEAT_LEVEL_HIGH;
                n_low += d->tokens[i].level == PLEAT_LEVEL_LOW;
            }
            const double high = score_quotient(n_high, n), kept = score_quotient(n_high + n_low, n);
            add_shares(&k->lanes[layer * d->n_heads + head], high, kept);
            high_sum += high;
            kept_sum += kept;
        }
        add_shares(&k->layers[layer], high_sum / d->n_heads, kept_sum / d->n_heads);
    }
    return CLI_OK;
}

score_watch report_watch_kept(report_data *d, uint32_t i) {
    kept_shares *k = &d->kept[i];
    k->data = d;
    k->layers = cli_alloc(d->n_layers, sizeof *k->layers);
    k->lanes = cli_alloc((size_t)d->n_layers * d->n_heads, sizeof *k->lanes);
    return (score_watch){note_kept, k};
}

/* ---- study ------------------------------------------------------------------------------------- */

static int compare_falling(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The least share of the n tokens in d->tokens that received REPORT_MASS of what all did.  n >= 2. */
static double share_needed(report_data *d, uint32_t n) {
    double total = 0, sum = 0;
    uint32_t i = 0;
    for (uint32_t k = 0; k < n; k++) {
        d->received[k] = d->tokens[k].significance * (float)(n - 1 - k);
        total += (double)d->received[k];
    }
    qsort(d->received, n, sizeof *d->received, compare_falling);
    while (i < n && sum < REPORT_MASS * total) sum += (double)d->received[i++];
    return (double)i / n;
}

/* Histograms of the layer that is number `at` of those shown; d->tokens holds the lane. */
static int note_values(report_data *d, uint32_t at, uint32_t head, const pleat_cache *cache, pleat_seq seq,
                       uint32_t n) {
    const pleat_status status = pleat_cache_export(cache, seq, d->shown[at], head, 0, n, NULL, d->values);
    if (status != PLEAT_OK) return cli_fail("cannot read values", status, NULL);
    for (uint32_t i = 0; i < n; i++) {
        double square = 0;
        for (uint32_t c = 0; c < d->head_dim; c++) {
            const double v = (double)d->values[(size_t)i * d->head_dim + c];
            square += v * v;
        }
        log_histogram_add(&d->study.norm[at], sqrt(square));
        if (i + 1 < n) log_histogram_add(&d->study.significance[at], (double)d->tokens[i].significance);
    }
    return CLI_OK;
}

static int note_attention(void *ctx, const pleat_cache *cache, pleat_seq seq) {
    report_data *d = ctx;
    const uint32_t n = pleat_cache_length(cache, seq);
    if (n < 2) return CLI_OK; /* nothing has been received */
    reserve(d, n);
    moments_add(&d->study.n_tokens, n);
    for (uint32_t layer = 0, at = 0; layer < d->n_layers; layer++) {
        const int is_shown = at < d->n_shown && d->shown[at] == layer;
        double sum = 0;
        for (uint32_t head = 0; head < d->n_heads; head++) {
            if (read_lane(d, cache, seq, layer, head, n) != CLI_OK) return CLI_FAILED;
            const double need = share_needed(d, n);
            moments_add(&d->study.need_lanes[layer * d->n_heads + head], need);
            sum += need;
            if (is_shown && note_values(d, at, head, cache, seq, n) != CLI_OK) return CLI_FAILED;
        }
        moments_add(&d->study.need_layers[layer], sum / d->n_heads);
        at += is_shown ? 1 : 0;
    }
    return CLI_OK;
}

static int gather_study(report_data *d, const evaluation *e, const task_set *set) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    score_row *row = cli_alloc(1, sizeof *row);
    row->kv = "(all attention, for the report)";
    row->watch = (score_watch){note_attention, d};
    const pleat_status status = pleat_spec_parse(study_spec, &row->spec, &err);
    const int code = status == PLEAT_OK ? score_tasks(e->o, &e->l, set, row) : cli_fail(study_spec, status, &err);
    score_release_row(row);
    free(row);
    return code;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* The first REPORT_REQUESTS samples of each task of `from`, which keeps what they point to: free out->samples only. */
static void pick_samples(const task_set *from, task_set *out) {
    uint32_t taken[TASKS_CAP] = {0};
    *out = *from;
    out->samples = cli_alloc(from->n_samples, sizeof *out->samples);
    out->n_samples = out->max_tokens = 0;
    for (uint32_t i = 0; i < from->n_samples; i++) {
        const sample *s = &from->samples[i];
        if (taken[s->task]++ >= REPORT_REQUESTS) continue;
        out->samples[out->n_samples++] = *s;
        if (s->n_tokens > out->max_tokens) out->max_tokens = s->n_tokens;
    }
}

static void set_window(sample *s, const loaded *l, const pleat_token *text, uint32_t window) {
    const uint32_t n_bos = l->info.add_bos ? 1 : 0;
    turn *t = cli_alloc(1, sizeof *t);
    t->n_prompt = window;
    t->prompt = cli_alloc(window, sizeof *t->prompt);
    t->answer = cli_alloc(1, sizeof *t->answer);
    if (n_bos) t->prompt[0] = l->info.bos;
    memcpy(t->prompt + n_bos, text, (window - n_bos) * sizeof *text);
    *s = (sample){.id = cli_copy("a window of the text", 20), .turns = t, .n_turns = 1, .n_tokens = window};
}

/* The first windows of the half of the text, REPORT_REQUESTS or as many as there are, as samples without answers. */
static int cut_windows(const evaluation *e, task_set *set) {
    const loaded *l = &e->l;
    pleat_token *tokens = NULL;
    uint32_t n_tokens = 0, n_bos = l->info.add_bos ? 1 : 0, window = e->o->ctx_window;
    char *text;
    size_t n_bytes;
    memset(set, 0, sizeof *set);
    if (cli_read_file(CONTENT_TEXT, e->o->text, &text, &n_bytes) != CLI_OK) return CLI_FAILED;
    const size_t first = half_of_text(e->o->half, text, n_bytes, &n_bytes);
    const int code = load_tokens(l, e->o->text, text + first, n_bytes, 0, &tokens, &n_tokens);
    free(text);
    if (code != CLI_OK) return code;
    if (window > l->info.n_ctx) window = l->info.n_ctx;
    if (window > n_tokens + n_bos) window = n_tokens + n_bos;
    const sample_half half = e->o->half;
    const uint32_t n_own = window - n_bos, n = half_count(half, n_own ? n_tokens / n_own : 0);
    set->names[set->n_tasks++] = cli_copy("text", 4);
    set->n_samples = set->n_of[0] = n < REPORT_REQUESTS ? n : REPORT_REQUESTS;
    set->samples = cli_alloc(set->n_samples, sizeof *set->samples);
    set->max_tokens = window;
    set->end = -1;
    for (uint32_t i = 0; i < set->n_samples; i++)
        set_window(&set->samples[i], l, tokens + (size_t)half_place(half, i) * n_own, window);
    tasks_number(set);
    free(tokens);
    return CLI_OK;
}

/* ---- trace ------------------------------------------------------------------------------------- */

typedef struct tracer {
    const evaluation *e;
    const score_row *row; /* what it answered to open turns is fed again */
    request_trace *trace;
    pleat_engine *engine;
    pleat_seq seq;
} tracer;

/* Store n tokens and note what the cache holds. */
static int trace_step(tracer *t, const pleat_token *tokens, uint32_t n, uint32_t flags) {
    const pleat_engine_item item = {t->seq, tokens, n, 0, NULL, flags};
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (interrupt_came()) return CLI_INTERRUPTED;
    pleat_status status = pleat_engine_step(t->engine, &item, 1, &err);
    if (status != PLEAT_OK) return cli_fail("a step failed", status, &err);
    trace_point *point = &t->trace->points[t->trace->n_points++];
    status = pleat_engine_get_usage(t->engine, t->seq, &point->usage);
    if (status != PLEAT_OK) return cli_fail("cannot read the cache's usage", status, NULL);
    point->n_tokens = pleat_engine_length(t->engine, t->seq);
    progress_update(point->n_tokens);
    return CLI_OK;
}

static int trace_turn(tracer *t, const turn *u) {
    const uint32_t chunk = t->e->o->load.chunk_tokens;
    int code = CLI_OK;
    for (uint32_t done = 0; done < u->n_prompt && code == CLI_OK;) {
        const uint32_t end = done < u->n_document ? u->n_document : u->n_prompt;
        const uint32_t left = end - done, n = left < chunk ? left : chunk;
        code = trace_step(t, u->prompt + done, n, n < left ? PLEAT_ITEM_MORE : 0);
        done += n;
    }
    const score_answers *said = &t->row->answers;
    const pleat_token *answer = u->n_texts ? said->tokens + u->first : u->answer;
    const uint32_t n_answer = u->n_texts ? said->n_tokens[u->index] : u->n_answer;
    for (uint32_t i = 0; i < n_answer && code == CLI_OK; i++) code = trace_step(t, answer + i, 1, 0);
    return code;
}

/* Follow one request with the row's spec; the answers are fed as generation would store them. */
static int trace_request(report_data *d, const evaluation *e, const score_row *row, const sample *s) {
    tracer t = {.e = e, .row = row, .trace = &d->trace};
    if (load_engine(&e->o->load, &e->l, row->spec, 1, s->n_tokens, 0, &t.engine) != CLI_OK) return CLI_FAILED;
    const pleat_status status = pleat_engine_open(t.engine, s->n_tokens, &t.seq);
    int code = status == PLEAT_OK ? CLI_OK : cli_fail("cannot open a sequence", status, NULL);
    d->trace.points = cli_alloc(s->n_tokens, sizeof *d->trace.points);
    d->trace.kv = row->kv;
    d->trace.what = cli_copy(s->id, strlen(s->id));
    d->trace.n_prompt = s->turns[0].n_prompt;
    progress_begin("one request for the report", s->n_tokens, !e->o->common.quiet);
    for (uint32_t i = 0; i < s->n_turns && code == CLI_OK; i++) code = trace_turn(&t, &s->turns[i]);
    progress_end();
    pleat_engine_destroy(&t.engine);
    return code;
}

static uint32_t answer_tokens(const sample *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) n += s->turns[i].n_answer;
    return n;
}

static const sample *longest_answer(const task_set *set) {
    const sample *best = NULL;
    for (uint32_t i = 0; i < set->n_samples; i++)
        if (!best || answer_tokens(&set->samples[i]) > answer_tokens(best)) best = &set->samples[i];
    return best;
}

/* A window's first half as the prompt and its second as the answer. */
static int trace_window(report_data *d, const evaluation *e, const score_row *row, const sample *window) {
    turn halves = window->turns[0];
    sample s = *window;
    halves.n_prompt = window->n_tokens / 2;
    halves.answer = halves.prompt + halves.n_prompt;
    halves.n_answer = window->n_tokens - halves.n_prompt;
    s.turns = &halves;
    return trace_request(d, e, row, &s);
}

/* ---- all --------------------------------------------------------------------------------------- */

static const score_row *first_policy(const evaluation *e) {
    for (uint32_t i = 0; i < e->o->load.kv.n; i++)
        if (e->rows[i].spec.policy != PLEAT_POLICY_NONE) return &e->rows[i];
    return NULL;
}

static int gather_trace(report_data *d, const evaluation *e, const task_set *windows) {
    const score_row *row = first_policy(e);
    const sample *longest = longest_answer(&e->set);
    if (!row) return CLI_OK;
    if (windows->n_samples && (!longest || answer_tokens(longest) < LONG_ANSWER))
        return trace_window(d, e, row, &windows->samples[0]);
    return longest ? trace_request(d, e, row, longest) : CLI_OK;
}

int report_gather(report_data *d, const evaluation *e) {
    task_set windows = {.n_samples = 0};
    int code = e->o->text ? cut_windows(e, &windows) : CLI_OK;
    if (code == CLI_OK && e->set.n_samples) {
        task_set picked;
        pick_samples(&e->set, &picked);
        code = gather_study(d, e, &picked);
        free(picked.samples);
    } else if (code == CLI_OK) {
        code = gather_study(d, e, &windows);
    }
    if (code == CLI_OK) code = gather_trace(d, e, &windows);
    tasks_release(&windows);
    return code;
}
