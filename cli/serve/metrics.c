/* SPDX-License-Identifier: MIT
 *
 * metrics.c: see metrics.h.
 */
#include "metrics.h"

/* Seconds; between the steps of a fast machine and the minutes of a long answer. */
static const double bounds[HISTOGRAM_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                0.5,   1,      2.5,   5,    10,    30,   60,  300};

void histogram_add(histogram *h, double seconds) {
    uint32_t i = 0;
    while (i < HISTOGRAM_BOUNDS && seconds > bounds[i]) i++;
    h->counts[i]++;
    h->sum += seconds;
}

/* A label's value as Prometheus wants it. */
static void print_label(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '\\' || *text == '"') fputc('\\', f);
        if (*text == '\n')
            fputs("\\n", f);
        else
            fputc(*text, f);
    }
}

static void print_kind(FILE *f, const char *name, const char *kind, const char *help) {
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

/* name{model_name="..." */
static void print_name(FILE *f, const char *name, const char *model) {
    fprintf(f, "%s{model_name=\"", name);
    print_label(f, model);
    fputc('"', f);
}

static void print_number(FILE *f, const metrics_facts *facts, const char *kind, const char *name, const char *help,
                         double value) {
    print_kind(f, name, kind, help);
    print_name(f, name, facts->model);
    fprintf(f, "} %.17g\n", value);
}

static void print_histogram(FILE *f, const metrics_facts *facts, const char *name, const char *help,
                            const histogram *h) {
    char part[96];
    uint64_t n = 0;
    print_kind(f, name, "histogram", help);
    snprintf(part, sizeof part, "%s_bucket", name);
    for (uint32_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        n += h->counts[i];
        print_name(f, part, facts->model);
        if (i < HISTOGRAM_BOUNDS)
            fprintf(f, ",le=\"%g\"} %llu\n", bounds[i], (unsigned long long)n);
        else
            fprintf(f, ",le=\"+Inf\"} %llu\n", (unsigned long long)n);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    print_name(f, part, facts->model);
    fprintf(f, "} %.17g\n", h->sum);
    snprintf(part, sizeof part, "%s_count", name);
    print_name(f, part, facts->model);
    fprintf(f, "} %llu\n", (unsigned long long)n);
}

static void print_finished(FILE *f, const metrics *m, const metrics_facts *facts) {
    static const char *const names[] = {"",       "stop", "length", /* NOT, END, LENGTH */
                                        "failed", "stop", "time_limit" /* FAILED, STOP, DEADLINE */};
    static const char name[] = "vllm:request_success_total";
    print_kind(f, name, "counter", "Texts that came to their end, by what ended them.");
    for (uint32_t i = PLEAT_FINISH_END; i <= PLEAT_FINISH_DEADLINE; i++) {
        if (i == PLEAT_FINISH_STOP) continue; /* with END */
        const uint64_t n = m->n_finished[i] + (i == PLEAT_FINISH_END ? m->n_finished[PLEAT_FINISH_STOP] : 0);
        print_name(f, name, facts->model);
        fprintf(f, ",finished_reason=\"%s\"} %llu\n", names[i], (unsigned long long)n);
    }
    print_name(f, name, facts->model);
    fprintf(f, ",finished_reason=\"abort\"} %llu\n", (unsigned long long)m->n_aborted);
}

static void print_vllm(FILE *f, const metrics *m, const metrics_facts *facts) {
    const pleat_serving_stats *s = facts->stats;
    const double used = s->pages_total ? (double)(s->pages_used - s->pages_evictable) / (double)s->pages_total : 0;
    print_number(f, facts, "gauge", "vllm:num_requests_running", "Texts that are in steps now.", s->n_running);
    print_number(f, facts, "gauge", "vllm:num_requests_waiting", "Texts that wait.", s->n_waiting);
    print_number(f, facts, "gauge", "vllm:kv_cache_usage_perc", "Part of the pool that cannot be freed at once, 0..1.",
                 used);
    print_number(f, facts, "counter", "vllm:prompt_tokens_total", "Prompt tokens, those from kept prefixes included.",
                 (double)(s->prompt_tokens + s->hit_tokens));
    print_number(f, facts, "counter", "vllm:generation_tokens_total", "Tokens generated.", (double)s->generated_tokens);
    print_number(f, facts, "counter", "vllm:prefix_cache_queries_total", "Prompt tokens that were looked up.",
                 (double)(s->prompt_tokens + s->hit_tokens));
    print_number(f, facts, "counter", "vllm:prefix_cache_hits_total", "Prompt tokens that kept prefixes gave.",
                 (double)s->hit_tokens);
    print_number(f, facts, "counter", "vllm:num_preemptions_total", "Requests preempted.",
                 (double)(s->preempted_swap + s->preempted_recompute));
    print_finished(f, m, facts);
    print_histogram(f, facts, "vllm:time_to_first_token_seconds", "From a request to its first token.",
                    &m->first_token_s);
    print_histogram(f, facts, "vllm:inter_token_latency_seconds", "From a token to the next.", &m->token_s);
    print_histogram(f, facts, "vllm:e2e_request_latency_seconds", "From a request to its text's end.", &m->whole_s);
}

static void print_ours(FILE *f, const metrics *m, const metrics_facts *facts) {
    const pleat_serving_stats *s = facts->stats;
    const double page = (double)facts->page_bytes;
    print_kind(f, "pleat_kv_bytes", "gauge", "Bytes of the pool, by what they hold.");
    const struct {
        const char *what;
        uint64_t n_pages;
    } parts[] = {{"requests", s->pages_used - s->pages_evictable},
                 {"kept", s->pages_evictable},
                 {"free", s->pages_total - s->pages_used}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        print_name(f, "pleat_kv_bytes", facts->model);
        fprintf(f, ",kv=\"");
        print_label(f, facts->kv);
        fprintf(f, "\",holds=\"%s\"} %.17g\n", parts[i].what, (double)parts[i].n_pages * page);
    }
    print_kind(f, "pleat_kv_side_pages", "gauge", "Pages by the side of the lane that holds them.");
    print_name(f, "pleat_kv_side_pages", facts->model);
    fprintf(f, ",side=\"high\"} %llu\n", (unsigned long long)s->pages_high);
    print_name(f, "pleat_kv_side_pages", facts->model);
    fprintf(f, ",side=\"low\"} %llu\n", (unsigned long long)s->pages_low);
    print_number(f, facts, "gauge", "pleat_kept_prefixes", "Prefixes kept.", s->n_prefixes);
    print_number(f, facts, "counter", "pleat_evicted_prefixes_total", "Prefixes that had to go.", (double)s->evicted);
    print_number(f, facts, "counter", "pleat_compressed_total", "Requests compressed since pages were short.",
                 (double)s->compressed);
    print_number(f, facts, "counter", "pleat_replayed_tokens_total", "Tokens computed again after preemption.",
                 (double)s->replayed_tokens);
    print_number(f, facts, "gauge", "pleat_swapped_bytes", "Images of preempted requests in the host's memory.",
                 (double)s->swapped_bytes);
    print_number(f, facts, "counter", "pleat_steps_total", "Steps of the engine.", (double)s->n_steps);
    print_number(f, facts, "counter", "pleat_step_seconds_total", "Time in steps.", (double)s->step_ns * 1e-9);
    print_number(f, facts, "gauge", "pleat_connections", "Connections open.", m->n_connections);
    print_number(f, facts, "gauge", "pleat_uptime_seconds", "Time since the server began.", facts->uptime_s);
    print_kind(f, "pleat_http_responses_total", "counter", "Answers by status.");
    for (uint32_t i = 0; i < METRICS_STATUSES; i++)
        if (m->responses[i])
            fprintf(f, "pleat_http_responses_total{code=\"%u\"} %llu\n", i, (unsigned long long)m->responses[i]);
}

void metrics_print(FILE *f, const metrics *m, const metrics_facts *facts) {
    print_vllm(f, m, facts);
    print_ours(f, m, facts);
}
