/* SPDX-License-Identifier: MIT
 *
 * allocators.c: what becomes of a pool of KV memory under different allocators, by replaying one workload against each.
 *
 *     bench_allocators [OPTION VALUE]...
 *
 *     --workload NAME     chat, instruct, code or summary; default: each
 *     --prompt MEAN       other means, shape and maximum than the workload's (see workloads[] and allocators.h)
 *     --output MEAN
 *     --shape SIGMA
 *     --max TOKENS        longest context
 *     --requests N        of a workload (10000)
 *     --pool TOKENS       memory, a multiple of 128 (262144)
 *     --load X            offered live tokens / pool (1.5: some always wait)
 *     --headroom X        share of the pool that an admission leaves free where requests grow (0.01)
 *     --lanes N           layers times KV heads, for the tables' bytes (640, Llama-3-70B's)
 *     --lane-bytes N      keys and values of one token in a lane (512, f16 at a head dimension of 128)
 *     --seed N            (1)
 *     --repeats N         of the timing, 0: none (3)
 *     --format FORMAT     table, json or csv
 *     --whole             count every step; else only those after a tenth of the requests and while some still wait
 *     --check             recompute every invariant now and then
 *     --requests-only     print the requests as CSV and nothing else
 *
 * Output is the same for the same options, but for the nanoseconds.  What each column means stands in allocators.h
 * (replay_result).  Generation is all that takes time here, one token a step for each request, and prompts take none:
 * the figures are of memory, not of a server's speed.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocators.h"

/* The mean and longest totals are those of the article's table of waste; how they split into prompt and output, and the
 * shapes, are ours: log-normal lengths, chats the most uneven, documents to be summarised the least. */
static const workload workloads[] = {{"chat", 500, 330, 1.0, 4096},
                                     {"instruct", 80, 300, 0.8, 2048},
                                     {"code", 800, 400, 0.8, 4096},
                                     {"summary", 2500, 300, 0.5, 4096}};

static const allocator_kind kinds[] = {
    {"max", AT_MAX, 0, false},          {"known", KNOWN, 0, false},      {"double", DOUBLING, 0, false},
    {"double-best", DOUBLING, 0, true}, {"step16", STEPPING, 16, false}, {"step16-best", STEPPING, 16, true},
    {"paged1", PAGED, 1, false},        {"paged2", PAGED, 2, false},     {"paged4", PAGED, 4, false},
    {"paged8", PAGED, 8, false},        {"paged16", PAGED, 16, false},   {"paged32", PAGED, 32, false},
    {"paged64", PAGED, 64, false},      {"paged128", PAGED, 128, false}};

enum { N_WORKLOADS = sizeof workloads / sizeof workloads[0], N_KINDS = sizeof kinds / sizeof kinds[0] };
enum { LARGEST_BLOCK = 128, MAX_REQUESTS = 1000000, MAX_TOKENS = 1 << 20, MAX_POOL = 1 << 24 };

typedef enum format { TABLE, JSON, CSV } format;

typedef struct options {
    const char *workload; /* NULL: each */
    double prompt, output, shape, max_tokens, n_requests, load, seed, n_repeats, pool_tokens, n_lanes, lane_bytes;
    double headroom; /* all numbers are read as doubles; negative where the workload's own counts */
    format format;
    bool whole, check, requests_only;
} options;

/* ---- options --------------------------------------------------------------------------------------------------- */

static bool set_number(double *v, const char *text, double min, double max, bool whole) {
    char *end;
    errno = 0;
    *v = strtod(text, &end);
    return end != text && !*end && !errno && *v >= min && *v <= max && (!whole || *v == floor(*v));
}

/* One option with a value; false: not known, or not such a value. */
static bool set_option(options *o, const char *name, const char *value) {
    const struct {
        const char *name;
        double *v, min, max;
        bool whole;
    } numbers[] = {{"--prompt", &o->prompt, 1, MAX_TOKENS / 2.0, false},
                   {"--output", &o->output, 1, MAX_TOKENS / 2.0, false},
                   {"--shape", &o->shape, 0, 3, false},
                   {"--max", &o->max_tokens, 2, MAX_TOKENS, true},
                   {"--requests", &o->n_requests, 1, MAX_REQUESTS, true},
                   {"--pool", &o->pool_tokens, LARGEST_BLOCK, MAX_POOL, true},
                   {"--load", &o->load, 0.01, 1000, false},
                   {"--headroom", &o->headroom, 0, 0.5, false},
                   {"--lanes", &o->n_lanes, 1, 65536, true},
                   {"--lane-bytes", &o->lane_bytes, 1, 65536, true},
                   {"--seed", &o->seed, 0, 1e15, true},
                   {"--repeats", &o->n_repeats, 0, 100, true}};
    static const char *const formats[] = {"table", "json", "csv"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!strcmp(name, numbers[i].name))
            return set_number(numbers[i].v, value, numbers[i].min, numbers[i].max, numbers[i].whole);
    for (int i = TABLE; !strcmp(name, "--format") && i <= CSV; i++)
        if (!strcmp(value, formats[i])) {
            o->format = (format)i;
            return true;
        }
    for (int i = 0; !strcmp(name, "--workload") && i < N_WORKLOADS; i++)
        if (!strcmp(value, workloads[i].name)) {
            o->workload = value;
            return true;
        }
    return false;
}

/* False: wrong usage, which has been said. */
static bool read_options(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--whole"))
            o->whole = true;
        else if (!strcmp(argv[i], "--check"))
            o->check = true;
        else if (!strcmp(argv[i], "--requests-only"))
            o->requests_only = true;
        else if (i + 1 == argc || !set_option(o, argv[i], argv[i + 1])) {
            fprintf(stderr,
                    "bench_allocators: %s %s: no such option or value\n"
                    "usage: bench_allocators [--workload chat|instruct|code|summary] [--prompt MEAN] [--output MEAN] "
                    "[--shape SIGMA] [--max TOKENS] [--requests N] [--pool TOKENS] [--load X] [--headroom X] "
                    "[--lanes N] [--lane-bytes N] [--seed N] [--repeats N] [--format table|json|csv] [--whole] "
                    "[--check] [--requests-only]\n",
                    argv[i], i + 1 == argc ? "" : argv[i + 1]);
            return false;
        } else
            i++;
    }
    return true;
}

/* The workload with what the options change; false: it cannot be, which has been said. */
static bool set_workload(workload *w, const options *o) {
    w->prompt = o->prompt > 0 ? o->prompt : w->prompt;
    w->output = o->output > 0 ? o->output : w->output;
    w->shape = o->shape >= 0 ? o->shape : w->shape;
    w->max_tokens = o->max_tokens > 0 ? (uint32_t)o->max_tokens : w->max_tokens;
    if (w->prompt + w->output > 0.9 * w->max_tokens) {
        fprintf(stderr, "bench_allocators: a mean of %g tokens needs a --max of at least %.0f, not %u\n",
                w->prompt + w->output, ceil((w->prompt + w->output) / 0.9), w->max_tokens);
        return false;
    }
    if ((uint32_t)o->pool_tokens % LARGEST_BLOCK || o->pool_tokens < w->max_tokens + (double)LARGEST_BLOCK) {
        fprintf(stderr, "bench_allocators: --pool is a multiple of %d and at least %d above --max\n", LARGEST_BLOCK,
                LARGEST_BLOCK);
        return false;
    }
    return true;
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

static void print_number(const char *key, double v, const char *before, const char *after) {
    if (isfinite(v))
        printf("%s\"%s\": %.10g%s", before, key, v, after);
    else
        printf("%s\"%s\": null%s", before, key, after);
}

typedef struct field {
    const char *name;
    double v;
} field;

enum { N_FIELDS = 20 };

/* What JSON and CSV hold of one result, in order. */
static void fields_of(const allocator_kind *kind, const replay_result *r, field out[N_FIELDS]) {
    const field all[N_FIELDS] = {{"block", kind->block},
                                 {"steps", (double)r->n_steps},
                                 {"running", r->running},
                                 {"utilisation", r->utilisation},
                                 {"internal", 1 - r->utilisation},
                                 {"external", r->external},
                                 {"live", r->live},
                                 {"slack", r->slack},
                                 {"free", r->free},
                                 {"table_bytes", r->table_bytes},
                                 {"table_share", r->table_share},
                                 {"allocations", (double)r->n_allocations},
                                 {"failures", (double)r->n_failures},
                                 {"failures_holes", (double)r->n_failures_holes},
                                 {"preempted", (double)r->n_preempted},
                                 {"moved", r->moved},
                                 {"again", r->again},
                                 {"ns_allocation", r->ns_allocation},
                                 {"ns_token", r->ns_token},
                                 {"best_fit", kind->best_fit}};
    memcpy(out, all, sizeof all);
}

/* Means of the requests as they were drawn. */
typedef struct drawn {
    double prompt, output, live; /* live: tokens that a running request has, mean over its steps */
} drawn;

static drawn drawn_of(const request *requests, uint32_t n) {
    drawn d = {0};
    for (uint32_t i = 0; i < n; i++) {
        d.prompt += requests[i].prompt;
        d.output += requests[i].output;
        d.live += request_token_steps(&requests[i]);
    }
    return (drawn){d.prompt / n, d.output / n, d.live / d.output};
}

static void print_json_head(const options *o) {
    printf("{\"pool_tokens\": %.0f, \"requests\": %.0f, \"load\": %g, \"headroom\": %g, \"lanes\": %.0f, "
           "\"lane_bytes\": %.0f, \"seed\": %.0f, \"whole\": %s, \"workloads\": [",
           o->pool_tokens, o->n_requests, o->load, o->headroom, o->n_lanes, o->lane_bytes, o->seed,
           o->whole ? "true" : "false");
}

static void begin_workload(const options *o, const workload *w, const drawn *d, bool is_first) {
    if (o->format == JSON) {
        printf("%s\n {\"name\": \"%s\", \"shape\": %g, \"max\": %u", is_first ? "" : ",", w->name, w->shape,
               w->max_tokens);
        print_number("prompt", d->prompt, ", ", "");
        print_number("output", d->output, ", ", "");
        print_number("live", d->live, ", ", ", \"rows\": [");
    } else if (o->format == TABLE) {
        printf("%s%s: prompt %.0f, output %.0f tokens in the mean, longest %u; a running request has %.0f\n"
               "               at once  utilised  internal  external  live  slack  free   tables  refused (holes) "
               "preempted  moved  again  ns/alloc  ns/token\n",
               is_first ? "" : "\n", w->name, d->prompt, d->output, w->max_tokens, d->live);
    } else if (is_first) {
        field f[N_FIELDS];
        fields_of(&kinds[0], &(replay_result){0}, f);
        printf("workload,allocator");
        for (int i = 0; i < N_FIELDS; i++) printf(",%s", f[i].name);
        printf("\n");
    }
}

static void print_row(const options *o, const workload *w, const allocator_kind *kind, const replay_result *r,
                      bool is_first) {
    field f[N_FIELDS];
    fields_of(kind, r, f);
    if (o->format == TABLE && r->n_steps == 0) {
        printf("%-12s no step counts: too few requests to fill the pool (see --whole)\n", kind->name);
    } else if (o->format == TABLE) {
        printf(
            "%-12s %9.1f  %7.2f%%  %7.2f%%  %7.2f%%  %3.0f%%   %3.0f%%  %3.0f%%  %6.3f%%  %7llu (%5llu) %9llu  %5.2f  "
            "%5.2f  %8.1f  %8.2f\n",
            kind->name, r->running, 100 * r->utilisation, 100 * (1 - r->utilisation), 100 * r->external, 100 * r->live,
            100 * r->slack, 100 * r->free, 100 * r->table_share, (unsigned long long)r->n_failures,
            (unsigned long long)r->n_failures_holes, (unsigned long long)r->n_preempted, r->moved, r->again,
            r->ns_allocation, r->ns_token);
    } else if (o->format == CSV) {
        printf("%s,%s", w->name, kind->name);
        for (int i = 0; i < N_FIELDS; i++) isfinite(f[i].v) ? printf(",%.10g", f[i].v) : printf(",");
        printf("\n");
    } else {
        printf("%s\n  {\"name\": \"%s\"", is_first ? "" : ",", kind->name);
        for (int i = 0; i < N_FIELDS; i++) print_number(f[i].name, f[i].v, ", ", "");
        printf("}");
    }
}

static void print_requests(const workload *w, const request *requests, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        printf("%s,%.6f,%u,%u\n", w->name, requests[i].arrival, requests[i].prompt, requests[i].output);
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

/* One workload against each allocator; false: an allocator broke. */
static bool run_workload(const options *o, const workload *w, bool is_first) {
    const uint32_t n = (uint32_t)o->n_requests;
    const replay_options ro = {.pool_tokens = (uint32_t)o->pool_tokens,
                               .headroom = o->headroom,
                               .warm_up = 0.1,
                               .whole = o->whole,
                               .check = o->check,
                               .n_repeats = (uint32_t)o->n_repeats,
                               .n_lanes = (uint32_t)o->n_lanes,
                               .lane_bytes = (uint32_t)o->lane_bytes};
    request *requests = need_memory(n, sizeof *requests);
    requests_make(w, n, o->load, ro.pool_tokens, (uint64_t)o->seed, requests);
    const drawn d = drawn_of(requests, n);
    bool ok = true;
    if (o->requests_only)
        print_requests(w, requests, n);
    else
        begin_workload(o, w, &d, is_first);
    for (int k = 0; !o->requests_only && ok && k < N_KINDS; k++) {
        replay_result r;
        ok = replay(requests, n, w->max_tokens, &kinds[k], &ro, &r);
        if (ok)
            print_row(o, w, &kinds[k], &r, k == 0);
        else
            fprintf(stderr, "bench_allocators: %s: memory was lost or held twice\n", kinds[k].name);
        fflush(stdout);
    }
    if (o->format == JSON && !o->requests_only) printf("]}");
    free(requests);
    return ok;
}

int main(int argc, char **argv) {
    options o = {
        .prompt = -1, .output = -1, .shape = -1, .max_tokens = -1, .n_requests = 10000, .load = 1.5, .seed = 1};
    o.n_repeats = 3, o.pool_tokens = 262144, o.n_lanes = 640, o.lane_bytes = 512, o.headroom = 0.01;
    if (!read_options(&o, argc, argv)) return 2;
    workload chosen[N_WORKLOADS];
    int n_chosen = 0;
    for (int i = 0; i < N_WORKLOADS; i++) {
        if (o.workload && strcmp(o.workload, workloads[i].name)) continue;
        chosen[n_chosen] = workloads[i];
        if (!set_workload(&chosen[n_chosen++], &o)) return 2;
    }
    const bool is_json = o.format == JSON && !o.requests_only;
    bool ok = true;
    if (is_json) print_json_head(&o);
    for (int i = 0; i < n_chosen && ok; i++) ok = run_workload(&o, &chosen[i], i == 0);
    if (is_json) printf("]}\n");
    return ok ? 0 : 1;
}
