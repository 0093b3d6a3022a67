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

/* name{model_name="...",kv="..." */
static void print_spec_name(FILE *f, const char *name, const metrics_facts *facts, uint32_t i) {
    print_name(f, name, facts->model);
    fprintf(f, ",kv=\"");
    print_label(f, facts->specs[i].kv);
    fputc('"', f);
}

/* What all specs have together. */
static pleat_serving_stats add_up(const metrics_facts *facts) {
    pleat_serving_stats sum = {0};
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        const pleat_serving_stats *s = &facts->specs[i].serving;
        sum.n_running += s->n_running;
        sum.n_waiting += s->n_waiting;
        sum.prompt_tokens += s->prompt_tokens;
        sum.hit_tokens += s->hit_tokens;
        sum.generated_tokens += s->generated_tokens;
        sum.preempted_swap += s->preempted_swap;
        sum.preempted_recompute += s->preempted_recompute;
        sum.n_prefixes += s->n_prefixes;
        sum.evicted += s->evicted;
        sum.compressed += s->compressed;
        sum.replayed_tokens += s->replayed_tokens;
        sum.swapped_bytes += s->swapped_bytes;
        sum.n_steps += s->n_steps;
        sum.step_ns += s->step_ns;
    }
    return sum;
}

/* Part of all pools' bytes that cannot be freed at once. */
static double used_part(const metrics_facts *facts) {
    double used = 0, all = 0;
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        const spec_stats *spec = &facts->specs[i];
        used += (double)(spec->serving.pages_used - spec->serving.pages_evictable) * (double)spec->page_bytes;
        all += (double)spec->serving.pages_total * (double)spec->page_bytes;
    }
    return all > 0 ? used / all : 0;
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
    const pleat_serving_stats sum = add_up(facts), *s = &sum;
    print_number(f, facts, "gauge", "vllm:num_requests_running", "Texts that are in steps now.", s->n_running);
    print_number(f, facts, "gauge", "vllm:num_requests_waiting", "Texts that wait.", s->n_waiting);
    print_number(f, facts, "gauge", "vllm:kv_cache_usage_perc", "Part of the pool that cannot be freed at once, 0..1.",
                 used_part(facts));
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

static void print_bytes(FILE *f, const metrics_facts *facts, uint32_t i) {
    const pleat_serving_stats *s = &facts->specs[i].serving;
    const struct {
        const char *what;
        uint64_t n_pages;
    } parts[] = {{"requests", s->pages_used - s->pages_evictable},
                 {"kept", s->pages_evictable},
                 {"free", s->pages_total - s->pages_used}};
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        print_spec_name(f, "pleat_kv_bytes", facts, i);
        fprintf(f, ",holds=\"%s\"} %.17g\n", parts[k].what,
                (double)parts[k].n_pages * (double)facts->specs[i].page_bytes);
    }
}

/* A number for each KV spec. */
static void print_by_spec(FILE *f, const metrics_facts *facts) {
    print_kind(f, "pleat_kv_bytes", "gauge", "Bytes of the pool, by what they hold.");
    for (uint32_t i = 0; i < facts->n_specs; i++) print_bytes(f, facts, i);
    print_kind(f, "pleat_kv_side_pages", "gauge", "Pages by the side of the lane that holds them.");
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        print_spec_name(f, "pleat_kv_side_pages", facts, i);
        fprintf(f, ",side=\"high\"} %llu\n", (unsigned long long)facts->specs[i].serving.pages_high);
        print_spec_name(f, "pleat_kv_side_pages", facts, i);
        fprintf(f, ",side=\"low\"} %llu\n", (unsigned long long)facts->specs[i].serving.pages_low);
    }
    print_kind(f, "pleat_kv_running", "gauge", "Texts that are in steps now.");
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        print_spec_name(f, "pleat_kv_running", facts, i);
        fprintf(f, "} %u\n", facts->specs[i].serving.n_running);
    }
    print_kind(f, "pleat_kv_generated_tokens_total", "counter", "Tokens generated.");
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        print_spec_name(f, "pleat_kv_generated_tokens_total", facts, i);
        fprintf(f, "} %llu\n", (unsigned long long)facts->specs[i].serving.generated_tokens);
    }
}

static void print_events(FILE *f, const metrics_facts *facts) {
    const pleat_events_stats *e = facts->events;
    if (!e) return;
    print_number(f, facts, "counter", "pleat_events_total", "Batches of KV events.", (double)e->n_batches);
    print_number(f, facts, "counter", "pleat_events_lost_total", "Of them, those that there was no memory for.",
                 (double)e->n_lost);
    print_number(f, facts, "counter", "pleat_events_replays_total", "Replays of them.", (double)e->n_replays);
}

static void print_store(FILE *f, const metrics_facts *facts) {
    const pleat_store_stats *s = facts->store;
    uint64_t n_hits = 0, n_tokens = 0, n_costly = 0;
    if (!s) return;
    for (uint32_t i = 0; i < facts->n_specs; i++) {
        n_hits += facts->specs[i].serving.store_hits;
        n_tokens += facts->specs[i].serving.store_tokens;
        n_costly += facts->specs[i].serving.store_costly;
    }
    print_number(f, facts, "counter", "pleat_store_hits_total", "Texts that began from a stored prefix.",
                 (double)n_hits);
    print_number(f, facts, "counter", "pleat_store_hit_tokens_total", "Tokens of these prefixes.", (double)n_tokens);
    print_kind(f, "pleat_store_misses_total", "counter", "Stored prefixes that were not had, by reason.");
    for (int i = 0; i < PLEAT_STORE_N_MISSES; i++) {
        print_name(f, "pleat_store_misses_total", facts->model);
        fprintf(f, ",reason=\"%s\"} %llu\n", pleat_store_miss_name((pleat_store_miss)i),
                (unsigned long long)s->misses[i]);
    }
    print_name(f, "pleat_store_misses_total", facts->model);
    fprintf(f, ",reason=\"costly\"} %llu\n", (unsigned long long)n_costly);
    print_number(f, facts, "gauge", "pleat_store_servers", "Servers that the store is kept on.", s->n_servers);
    print_number(f, facts, "gauge", "pleat_store_servers_down", "Of these, those that failed when last asked.",
                 s->servers_down);
    print_number(f, facts, "gauge", "pleat_store_files", "Files in the store.", (double)s->n_files);
    print_number(f, facts, "gauge", "pleat_store_bytes", "Bytes of these.", (double)s->bytes);
    print_number(f, facts, "counter", "pleat_store_read_bytes_total", "Bytes read.", (double)s->read_bytes);
    print_number(f, facts, "counter", "pleat_store_read_seconds_total", "Time of reading.", (double)s->read_ns * 1e-9);
    print_number(f, facts, "gauge", "pleat_store_read_waits_seconds", "How long a read has brought nothing.",
                 (double)s->read_waits_ns * 1e-9);
    print_number(f, facts, "gauge", "pleat_store_write_waits_seconds", "How long a prefix has been being written.",
                 (double)s->write_waits_ns * 1e-9);
    print_number(f, facts, "counter", "pleat_store_written_bytes_total", "Bytes written.", (double)s->written_bytes);
    print_number(f, facts, "counter", "pleat_store_evicted_total", "Files that had to go.", (double)s->evicted);
    print_number(f, facts, "counter", "pleat_store_skipped_total", "Prefixes that found no room in the queue.",
                 (double)s->skipped);
    print_number(f, facts, "counter", "pleat_store_failed_total", "Prefixes that could not be written.",
                 (double)s->failed);
}

static void print_ours(FILE *f, const metrics *m, const metrics_facts *facts) {
    const pleat_serving_stats sum = add_up(facts), *s = &sum;
    print_by_spec(f, facts);
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
    print_number(f, facts, "counter", "pleat_displaced_connections_total",
                 "Connections closed to make room for others.", (double)m->n_displaced);
    print_number(f, facts, "gauge", "pleat_conversations", "Conversations in memory.", facts->n_conversations);
    print_number(f, facts, "gauge", "pleat_uptime_seconds", "Time since the server began.", facts->uptime_s);
    print_kind(f, "pleat_http_responses_total", "counter", "Answers by status.");
    for (uint32_t i = 0; i < METRICS_STATUSES; i++)
        if (m->responses[i])
            fprintf(f, "pleat_http_responses_total{code=\"%u\"} %llu\n", i, (unsigned long long)m->responses[i]);
}

static void print_tenant(FILE *f, const metrics_facts *facts, const char *name, uint32_t i, const char *kind,
                         uint64_t n) {
    print_name(f, name, facts->model);
    fprintf(f, ",tenant=\"");
    print_label(f, facts->keys->tenants[i].name);
    fprintf(f, kind[0] ? "\",kind=\"%s\"} %llu\n" : "\"%s} %llu\n", kind, (unsigned long long)n);
}

static void print_tenants(FILE *f, const metrics *m, const metrics_facts *facts) {
    const uint32_t n = facts->keys->n_tenants;
    if (n == 0) return;
    print_kind(f, "pleat_tenant_texts_total", "counter", "Texts that came to their end, by whose keys asked.");
    for (uint32_t i = 0; i < n; i++) print_tenant(f, facts, "pleat_tenant_texts_total", i, "", m->tenants[i].n_texts);
    print_kind(f, "pleat_tenant_tokens_total", "counter", "Their tokens.");
    for (uint32_t i = 0; i < n; i++) {
        print_tenant(f, facts, "pleat_tenant_tokens_total", i, "prompt", m->tenants[i].n_prompt);
        print_tenant(f, facts, "pleat_tenant_tokens_total", i, "generated", m->tenants[i].n_generated);
    }
}

void metrics_print(FILE *f, const metrics *m, const metrics_facts *facts) {
    print_vllm(f, m, facts);
    print_ours(f, m, facts);
    print_store(f, facts);
    print_events(f, facts);
    print_tenants(f, m, facts);
}
