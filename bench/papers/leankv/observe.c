/* SPDX-License-Identifier: MIT
 *
 * observe.c: what attention looks like in a model, and what a policy keeps of a prompt.  Prints JSON.
 *
 *     leankv_observe MODEL SPEC REQUESTS [WINDOW]
 *
 * REQUESTS is a text file with requests between NUL bytes.  One longer than WINDOW tokens (default: the model's context)
 * is cut into windows, each a request of its own; a rest is left out.  All of a request but its last QUERIES tokens is
 * read as a prompt; the last are single steps.
 *
 *     levels        tokens high, low and dropped at the ends of the requests, summed over lanes
 *     all           tokens that received 95 % of the attention of all queries together; `layers`: mean over the layer's KV
 *                   heads, `heads` [layer][KV head]: mean and sd over requests
 *     query         the same of the attention that one query gives, mean over the last QUERIES: what one step adds to the
 *                   sums of the tokens before it
 *     significance  of each layer's tokens, base-10 logarithms of quantiles `at`; tokens without any are left out
 *     norm          of their value vectors, likewise
 *     relative      of significance times the request's length, over all layers: a token is above a threshold a/N where
 *                   this is above a; without the newest 64 tokens, whose share of all tokens is `newest`
 *
 * All but levels show attention itself only if SPEC keeps every token high, as leankv:ah=0,al=0,high=f16,low=f16 does;
 * of another SPEC only levels are looked at and printed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pleat/pleat.h"

#define MASS 0.95     /* of the attention received */
#define QUERIES 4u    /* looked at one by one */
#define CHUNK 512u    /* tokens of a prompt in one step */
#define NEWEST 64u    /* the policies' default window */
#define MAX_LAYERS 64 /* of a model that fits here */
#define MAX_LANES 1024

static const double quantiles[] = {0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1};
enum { N_QUANTILES = sizeof quantiles / sizeof quantiles[0] };

typedef struct moments {
    uint32_t n;
    double mean, m2; /* m2: sum of squared distances from the mean */
} moments;

/* Values that keep coming. */
typedef struct pile {
    float *v;
    size_t n, cap;
} pile;

typedef struct study {
    pleat_model *model;
    pleat_model_info info;
    pleat_engine *engine;
    uint32_t window; /* most tokens of a request */
    int is_whole;    /* the spec keeps every token high */
    pleat_cache_token *kept;
    float *values;   /* [window][head_dim] */
    float *sums;     /* [layers][KV heads][window]: attention received before the step */
    float *received; /* [window] */
    uint64_t n_high, n_low, n_dropped;
    moments n_tokens;
    moments layers[MAX_LAYERS], lanes[MAX_LANES];             /* all queries together */
    moments query_layers[MAX_LAYERS], query_lanes[MAX_LANES]; /* one query */
    double needed[MAX_LANES];                                 /* of one query, summed over the request's last */
    pile significance[MAX_LAYERS], norm[MAX_LAYERS], relative;
    uint64_t n_newest, n_all; /* tokens, summed over lanes */
} study;

static void die(const char *what, pleat_status status, const pleat_error *err) {
    fprintf(stderr, "observe: %s: %s%s%s\n", what, pleat_status_str(status), err && err->text[0] ? ": " : "",
            err ? err->text : "");
    exit(1);
}

static void *get(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) die("memory", PLEAT_E_MEMORY, NULL);
    return p;
}

/* ---- sums -------------------------------------------------------------------------------------- */

static void moments_add(moments *m, double v) {
    const double gap = v - m->mean;
    m->mean += gap / ++m->n;
    m->m2 += gap * (v - m->mean);
}

static double moments_sd(const moments *m) { return m->n > 1 ? sqrt(m->m2 / (m->n - 1)) : 0; }

static void pile_add(pile *p, float v) {
    if (!(v > 0)) return;
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 1024;
        p->v = realloc(p->v, p->cap * sizeof *p->v);
        if (!p->v) die("memory", PLEAT_E_MEMORY, NULL);
    }
    p->v[p->n++] = v;
}

static int rising(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* ---- one request ------------------------------------------------------------------------------- */

/* The fewest of n tokens that received MASS of what all did.  Sorts s->received. */
static uint32_t tokens_needed(study *s, uint32_t n) {
    double total = 0, sum = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < n; i++) total += (double)s->received[i];
    qsort(s->received, n, sizeof *s->received, rising);
    while (taken < n && sum < MASS * total) sum += (double)s->received[n - ++taken];
    return taken;
}

static uint32_t n_lanes(const study *s) { return s->info.n_layers * s->info.n_kv_heads; }

static void read_lane(study *s, pleat_seq seq, uint32_t lane, uint32_t n) {
    const uint32_t layer = lane / s->info.n_kv_heads, head = lane % s->info.n_kv_heads;
    const pleat_status status = pleat_cache_tokens(pleat_engine_cache(s->engine), seq, layer, head, 0, n, s->kept);
    if (status != PLEAT_OK) die("reading a lane", status, NULL);
}

/* Attention that token i of n has received: the mean over later tokens, times their number. */
static float received(const study *s, uint32_t i, uint32_t n) { return s->kept[i].significance * (float)(n - 1 - i); }

/* The n-th token has just been stored: what did it give, lane by lane, to those before?  The first call only notes sums. */
static void look_at_query(study *s, pleat_seq seq, uint32_t n, int is_first) {
    for (uint32_t lane = 0; lane < n_lanes(s); lane++) {
        float *sums = s->sums + (size_t)lane * s->window;
        read_lane(s, seq, lane, n);
        for (uint32_t i = 0; i < n; i++) {
            const float sum = received(s, i, n), gain = sum - sums[i];
            s->received[i] = i + 1 < n && gain > 0 ? gain : 0; /* what a token pays to itself counts nowhere */
            sums[i] = sum;
        }
        s->needed[lane] = is_first ? 0 : s->needed[lane] + tokens_needed(s, n);
    }
}

static void look_at_lane(study *s, pleat_seq seq, uint32_t layer, uint32_t head, uint32_t n) {
    const uint32_t dim = s->info.head_dim;
    read_lane(s, seq, layer * s->info.n_kv_heads + head, n);
    const pleat_status status =
        pleat_cache_export(pleat_engine_cache(s->engine), seq, layer, head, 0, n, NULL, s->values);
    if (status != PLEAT_OK) die("reading values", status, NULL);
    for (uint32_t i = 0; i + 1 < n; i++) { /* nothing comes after the last */
        double square = 0;
        for (uint32_t d = 0; d < dim; d++) square += (double)s->values[i * dim + d] * (double)s->values[i * dim + d];
        pile_add(&s->significance[layer], s->kept[i].significance);
        pile_add(&s->norm[layer], (float)sqrt(square));
        if (i + NEWEST < n) pile_add(&s->relative, s->kept[i].significance * (float)n);
    }
    for (uint32_t i = 0; i < n; i++) s->received[i] = received(s, i, n);
    s->n_all += n;
    s->n_newest += n < NEWEST ? n : NEWEST;
}

static void look(study *s, pleat_seq seq, uint32_t n) {
    pleat_cache_usage usage;
    const uint32_t n_heads = s->info.n_kv_heads;
    const pleat_status status = pleat_engine_get_usage(s->engine, seq, &usage);
    if (status != PLEAT_OK) die("usage", status, NULL);
    s->n_high += usage.tokens_high;
    s->n_low += usage.tokens_low;
    s->n_dropped += usage.tokens_dropped;
    moments_add(&s->n_tokens, n);
    for (uint32_t layer = 0; s->is_whole && layer < s->info.n_layers; layer++) {
        double all = 0, query = 0;
        for (uint32_t head = 0; head < n_heads; head++) {
            const uint32_t lane = layer * n_heads + head;
            look_at_lane(s, seq, layer, head, n);
            const uint32_t needed = tokens_needed(s, n);
            moments_add(&s->lanes[lane], needed);
            moments_add(&s->query_lanes[lane], s->needed[lane] / QUERIES);
            all += needed;
            query += s->needed[lane] / QUERIES;
        }
        moments_add(&s->layers[layer], all / n_heads);
        moments_add(&s->query_layers[layer], query / n_heads);
    }
}

static void step(study *s, pleat_seq seq, const pleat_token *tokens, uint32_t n, uint32_t flags) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_engine_item item = {seq, tokens, n, 0, NULL, flags};
    const pleat_status status = pleat_engine_step(s->engine, &item, 1, &err);
    if (status != PLEAT_OK) die("a step", status, &err);
}

/* Read n tokens, look, forget. */
static void observe(study *s, const pleat_token *tokens, uint32_t n) {
    pleat_seq seq;
    if (n < 2 * QUERIES) return;
    const uint32_t n_prompt = n - QUERIES;
    pleat_status status = pleat_engine_open(s->engine, n, &seq);
    if (status != PLEAT_OK) die("opening", status, NULL);
    for (uint32_t done = 0, now; done < n_prompt; done += now) {
        const uint32_t left = n_prompt - done;
        now = left < CHUNK ? left : CHUNK;
        step(s, seq, tokens + done, now, now < left ? PLEAT_ITEM_MORE : 0);
    }
    if (s->is_whole) look_at_query(s, seq, n_prompt, 1);
    for (uint32_t i = 0; i < QUERIES; i++) {
        step(s, seq, tokens + n_prompt + i, 1, 0);
        if (s->is_whole) look_at_query(s, seq, n_prompt + i + 1, 0);
    }
    look(s, seq, n);
    status = pleat_engine_close(s->engine, seq);
    if (status != PLEAT_OK) die("closing", status, NULL);
}

/* One request of the file, whole or in windows. */
static void observe_text(study *s, const char *text, size_t n_bytes) {
    const uint32_t flags = PLEAT_TOKENIZE_ADD_BOS | PLEAT_TOKENIZE_SPECIAL;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    uint32_t n = 0;
    pleat_status status = pleat_model_tokenize(s->model, text, n_bytes, flags, NULL, 0, &n, &err);
    if (status != PLEAT_OK && status != PLEAT_E_LIMIT) die("a request", status, &err);
    pleat_token *tokens = get(n, sizeof *tokens);
    status = pleat_model_tokenize(s->model, text, n_bytes, flags, tokens, n, &n, &err);
    if (status != PLEAT_OK) die("a request", status, &err);
    if (n <= s->window) observe(s, tokens, n);
    for (uint32_t at = 0; n > s->window && at + s->window <= n; at += s->window) observe(s, tokens + at, s->window);
    free(tokens);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_moments(const char *before, const moments *m) {
    printf("%s{\"mean\": %.3f, \"sd\": %.3f}", before, m->mean, moments_sd(m));
}

static double quantile(const pile *p, double at) {
    return log10((double)p->v[(size_t)(at * (double)(p->n - 1) + 0.5)]);
}

static void print_pile(pile *p) {
    qsort(p->v, p->n, sizeof *p->v, rising);
    printf("[");
    for (int i = 0; i < N_QUANTILES && p->n; i++) printf("%s%.3f", i ? ", " : "", quantile(p, quantiles[i]));
    printf("]");
}

/* In steps of 2 %. */
static void print_relative(study *s) {
    pile *p = &s->relative;
    qsort(p->v, p->n, sizeof *p->v, rising);
    printf(",\n \"newest\": %.4f, \"relative\": [", s->n_all ? (double)s->n_newest / (double)s->n_all : 0.0);
    for (int i = 0; i <= 50 && p->n; i++) printf("%s%.3f", i ? ", " : "", quantile(p, i / 50.0));
    printf("]");
}

static void print_piles(const char *name, pile *piles, uint32_t n) {
    printf(",\n \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) {
        printf("%s", i ? ",\n  " : "");
        print_pile(&piles[i]);
    }
    printf("]");
}

static void print_needs(const study *s, const char *name, const moments *layers, const moments *lanes) {
    printf(",\n \"%s\": {\"layers\": [", name);
    for (uint32_t i = 0; i < s->info.n_layers; i++) print_moments(i ? ",\n  " : "", &layers[i]);
    printf("],\n  \"heads\": [");
    for (uint32_t i = 0; i < n_lanes(s); i++)
        print_moments(i % s->info.n_kv_heads ? ", " : i ? "],\n  [" : "[", &lanes[i]);
    printf("]]}");
}

static void print_study(study *s, const char *spec) {
    const uint32_t n_layers = s->info.n_layers;
    printf("{\"kv\": \"%s\", \"requests\": %u,\n", spec, s->n_tokens.n);
    print_moments(" \"tokens\": ", &s->n_tokens);
    printf(",\n \"levels\": {\"high\": %llu, \"low\": %llu, \"dropped\": %llu}", (unsigned long long)s->n_high,
           (unsigned long long)s->n_low, (unsigned long long)s->n_dropped);
    if (!s->is_whole) {
        printf("}\n");
        return;
    }
    print_needs(s, "all", s->layers, s->lanes);
    print_needs(s, "query", s->query_layers, s->query_lanes);
    printf(",\n \"at\": [");
    for (int i = 0; i < N_QUANTILES; i++) printf("%s%g", i ? ", " : "", quantiles[i]);
    printf("]");
    print_piles("significance", s->significance, n_layers);
    print_piles("norm", s->norm, n_layers);
    print_relative(s);
    printf("}\n");
}

/* ---- all --------------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *n_bytes) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) die(path, PLEAT_E_IO, NULL);
    const long size = ftell(f);
    rewind(f);
    char *text = get((size_t)size + 1, 1);
    *n_bytes = fread(text, 1, (size_t)size, f);
    if (*n_bytes != (size_t)size) die(path, PLEAT_E_IO, NULL);
    fclose(f);
    return text;
}

static void start(study *s, const char *model, const char *spec, const char *window) {
    pleat_engine_options opt;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_engine_options_default(&opt);
    pleat_status status = pleat_spec_parse(spec, &opt.spec, &err);
    if (status != PLEAT_OK) die(spec, status, &err);
    s->is_whole = opt.spec.policy == PLEAT_POLICY_LEANKV && opt.spec.ah == 0;
    status = pleat_model_load(model, NULL, &s->model, &err);
    if (status != PLEAT_OK) die(model, status, &err);
    pleat_model_get_info(s->model, &s->info);
    const unsigned long wanted = window ? strtoul(window, NULL, 10) : 0;
    s->window = wanted >= 2 && wanted < s->info.n_ctx ? (uint32_t)wanted : s->info.n_ctx;
    if (s->info.n_layers > MAX_LAYERS || s->info.n_layers * s->info.n_kv_heads > MAX_LANES)
        die(model, PLEAT_E_LIMIT, NULL);
    opt.max_tokens = s->window;
    opt.chunk_tokens = CHUNK;
    status = pleat_engine_create(s->model, &opt, &s->engine, &err);
    if (status != PLEAT_OK) die(spec, status, &err);
    s->kept = get(s->window, sizeof *s->kept);
    s->values = get((size_t)s->window * s->info.head_dim, sizeof *s->values);
    s->received = get(s->window, sizeof *s->received);
    s->sums = get((size_t)n_lanes(s) * s->window, sizeof *s->sums);
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: leankv_observe MODEL SPEC REQUESTS [WINDOW]\n");
        return 2;
    }
    study *s = get(1, sizeof *s);
    size_t n_bytes;
    char *text = read_file(argv[3], &n_bytes);
    start(s, argv[1], argv[2], argc == 5 ? argv[4] : NULL);
    for (size_t at = 0; at < n_bytes;) {
        const size_t n = strlen(text + at); /* read_file() put a NUL behind the last */
        if (n) observe_text(s, text + at, n);
        at += n + 1;
    }
    print_study(s, argv[2]);
    pleat_engine_destroy(&s->engine);
    pleat_model_destroy(&s->model);
    for (int i = 0; i < MAX_LAYERS; i++) {
        free(s->significance[i].v);
        free(s->norm[i].v);
    }
    free(s->relative.v);
    free(s->kept);
    free(s->values);
    free(s->received);
    free(s->sums);
    free(text);
    free(s);
    return 0;
}
