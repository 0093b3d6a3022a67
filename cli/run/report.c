/* SPDX-License-Identifier: MIT
 *
 * report.c: what `pleat run` prints: several texts, JSON or a row for each, and a summary on stderr.
 */
#include <math.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/terminal.h"
#include "run.h"

#define SPEED_CAP 48

static int has_several(const run *r) { return r->o->n_beams || r->o->n_best > 1; }

/* NaN where nothing was timed. */
static double rate(double n, double seconds) { return n > 0 && seconds > 0 ? n / seconds : NAN; }

/* ", 123 tokens/s", or nothing where nothing was timed. */
static const char *speed_text(double rate, char buf[SPEED_CAP]) {
    buf[0] = 0;
    if (isfinite(rate)) snprintf(buf, SPEED_CAP, ", %.0f tokens/s", rate);
    return buf;
}

static double fraction(const run *r) {
    return r->usage.bytes_f16 ? (double)r->usage.bytes / (double)r->usage.bytes_f16 : 0;
}

/* Short texts leave most of their pages' slots empty, which may cost more than the format saves. */
static const char *slack_hint(const run *r, char *buf, size_t cap) {
    const pleat_cache_usage *u = &r->usage;
    pleat_engine_options engine;
    pleat_engine_get_options(r->engine, &engine);
    const uint64_t n_slots = u->pages_used * engine.page_tokens;
    if (fraction(r) <= 1 || 2 * (u->tokens_high + u->tokens_low) >= n_slots) return "";
    snprintf(buf, cap, " (pages of %u tokens, mostly empty yet)", engine.page_tokens);
    return buf;
}

/* How tokens are kept where they are not all alike; a comma at every thousand. */
static void write_levels(const pleat_spec *spec, const pleat_cache_usage *u) {
    const int in_blocks = spec->compressor != PLEAT_COMPRESSOR_NONE; /* which drop none */
    const struct {
        const char *name;
        uint64_t n;
    } levels[] = {{in_blocks ? "in the buffer" : "high", u->tokens_high},
                  {in_blocks ? "in blocks" : "low", u->tokens_low},
                  {"dropped", u->tokens_dropped}};
    const size_t n_levels = in_blocks ? 2 : sizeof levels / sizeof levels[0];
    if (spec->policy == PLEAT_POLICY_NONE && !in_blocks) return;
    fputs("tokens     ", stderr);
    for (size_t i = 0; i < n_levels; i++) {
        char digits[24];
        const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)levels[i].n);
        fprintf(stderr, "%s%s ", i ? ", " : "", levels[i].name);
        for (int at = 0; at < n; at++) fprintf(stderr, "%s%c", at && (n - at) % 3 == 0 ? "," : "", digits[at]);
    }
    fputs("; summed over layers and KV heads\n", stderr);
}

/* Tokens of all texts. */
static uint64_t n_generated(const run *r) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_texts; i++) n += r->texts[i].n_tokens;
    return n;
}

static void write_generated(const run *r) {
    const unsigned long long n = n_generated(r);
    char buf[SPEED_CAP];
    const char *speed = speed_text(rate((double)r->n_steps, r->generation_s), buf);
    if (r->o->n_beams)
        fprintf(stderr, "generated  %llu tokens in the %u best of %u beams%s%s\n", n, r->n_texts, r->o->n_beams, speed,
                speed[0] ? " in all beams" : "");
    else if (r->n_texts > 1)
        fprintf(stderr, "generated  %llu tokens in %u texts%s\n", n, r->n_texts, speed);
    else
        fprintf(stderr, "generated  %llu tokens%s; finished: %s\n", n, speed, r->texts[0].finish);
}

static int is_cut_by_ctx(const run *r) {
    int n = 0;
    for (uint32_t i = 0; i < r->n_texts; i++) n += !strcmp(r->texts[i].finish, "length");
    return n > 0 && r->is_bound_by_ctx;
}

static void write_prompt(const run *r) {
    char speed[SPEED_CAP];
    fprintf(stderr, "\nprompt     %u tokens", r->n_prompt);
    if (r->n_taken)
        fprintf(stderr, ", %u of them from %s\n", r->n_taken, r->o->prompt_cache);
    else
        fprintf(stderr, "%s\n", speed_text(rate(r->n_fed, r->prompt_s), speed));
}

/* What a budget in bytes has become. */
static void write_choice(const run *r) {
    char buf[PLEAT_SPEC_TEXT_CAP];
    const pleat_spec *spec = &r->o->load.kv.spec[0];
    const char *choice = load_choice(r->engine, buf);
    if (choice)
        fprintf(stderr, "chosen     %s, coarser or finer as the text needs; promised from %u tokens on\n", choice,
                spec->from);
}

static void write_summary(const run *r) {
    const pleat_cache_usage *u = &r->usage;
    char held[BYTES_CAP], f16[BYTES_CAP], hint[64], shared[64] = "";
    if (is_cut_by_ctx(r)) fprintf(stderr, "\nstopped: the context of %u tokens is full\n", r->n_ctx);
    write_prompt(r);
    write_generated(r);
    if (r->n_seqs > 1)
        snprintf(shared, sizeof shared, " (%llu of them shared)", (unsigned long long)(u->pages_used - u->pages_own));
    fprintf(stderr, "KV cache   %s: %s in %llu pages%s, %.1f %% of f16's %s%s%s\n", r->o->load.kv.text[0],
            print_bytes(held, u->bytes), (unsigned long long)u->pages_used, shared, 100 * fraction(r),
            print_bytes(f16, u->bytes_f16), r->n_seqs > 1 ? " unshared" : "", slack_hint(r, hint, sizeof hint));
    write_choice(r);
    write_levels(&r->o->load.kv.spec[0], u);
}

static json_t *kv_json(const run *r) {
    const pleat_cache_usage *u = &r->usage;
    char buf[PLEAT_SPEC_TEXT_CAP];
    return json_pack("{s:s, s:s*, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "spec",
                     r->o->load.kv.text[0], "chosen", load_choice(r->engine, buf), "bytes", (json_int_t)u->bytes,
                     "bytes_f16", (json_int_t)u->bytes_f16, "fraction", json_number(fraction(r)), "pages_used",
                     (json_int_t)u->pages_used, "pages_own", (json_int_t)u->pages_own, "pages_peak",
                     (json_int_t)u->pages_peak, "tokens_high", (json_int_t)u->tokens_high, "tokens_low",
                     (json_int_t)u->tokens_low, "tokens_dropped", (json_int_t)u->tokens_dropped, "fragmentation",
                     json_number(cli_fragmentation(u)), "tokens_moved", (json_int_t)u->tokens_moved, "pages_returned",
                     (json_int_t)u->pages_returned);
}

static json_t *text_json(const run_text *t) { return json_stringn(t->bytes ? t->bytes : "", t->n_bytes); }

static json_t *choices_json(const run *r) {
    json_t *choices = json_array();
    for (uint32_t i = 0; i < r->n_texts; i++) {
        const run_text *t = &r->texts[i];
        json_t *choice = json_pack("{s:o, s:I, s:s, s:o}", "text", text_json(t), "tokens", (json_int_t)t->n_tokens,
                                   "finish_reason", t->finish, "logprob", json_number(t->logprob));
        if (r->o->n_beams)
            json_object_set_new(choice, "score", json_number(t->score));
        else
            json_object_set_new(choice, "seed", json_integer((json_int_t)t->seed));
        json_array_append_new(choices, choice);
    }
    return choices;
}

/* One text is said by the object itself. */
static json_t *run_json(const run *r) {
    json_t *root = json_object();
    if (has_several(r))
        json_object_set_new(root, "choices", choices_json(r));
    else
        json_object_set_new(root, "text", text_json(&r->texts[0]));
    json_object_set_new(root, "tokens",
                        json_pack("{s:I, s:I, s:I, s:I}", "prompt", (json_int_t)r->n_prompt, "from_prompt_cache",
                                  (json_int_t)r->n_taken, "generated", (json_int_t)n_generated(r), "context",
                                  (json_int_t)r->n_ctx));
    if (!has_several(r)) json_object_set_new(root, "finish_reason", json_string(r->texts[0].finish));
    json_object_set_new(root, "kv", kv_json(r));
    json_object_set_new(root, "speed",
                        json_pack("{s:o, s:o, s:f}", "prompt_tokens_per_s",
                                  json_number(rate(r->n_fed - r->n_taken, r->prompt_s)), "generation_tokens_per_s",
                                  json_number(rate((double)r->n_steps, r->generation_s)), "load_ms", r->l.load_ms));
    return root;
}

static void put_row(const run *r, const run_text *text, table *t) {
    const pleat_cache_usage *u = &r->usage;
    table_put(t, "%s", r->o->load.kv.text[0]);
    table_put(t, "%u", r->n_prompt);
    table_put(t, "%u", text->n_tokens);
    table_put(t, "%s", text->finish);
    table_put(t, "%llu", (unsigned long long)u->bytes);
    table_put(t, "%llu", (unsigned long long)u->bytes_f16);
    table_put(t, "%.4f", fraction(r));
    table_put(t, "%llu", (unsigned long long)u->pages_used);
    table_put(t, "%llu", (unsigned long long)u->tokens_high);
    table_put(t, "%llu", (unsigned long long)u->tokens_low);
    table_put(t, "%llu", (unsigned long long)u->tokens_dropped);
    table_put_number(t, 1, rate(r->n_fed - r->n_taken, r->prompt_s));
    table_put_number(t, 1, rate((double)r->n_steps, r->generation_s));
    table_put_number(t, 4, text->logprob);
    table_put_number(t, 4, text->score);
    if (r->o->n_beams || !(r->o->temp > 0)) /* nothing is drawn */
        table_put(t, "-");
    else
        table_put(t, "%llu", (unsigned long long)text->seed);
    table_put_text(t, text->bytes ? text->bytes : "");
}

/* A row for each text; the cache's figures are those of all of them. */
static void write_rows(run *r) {
    static const char *const titles[] = {
        "kv",    "prompt",      "generated",  "finish_reason",  "bytes",      "bytes_f16",      "fraction",
        "pages", "tokens_high", "tokens_low", "tokens_dropped", "prompt t/s", "generation t/s", "logprob",
        "score", "seed",        "text"};
    table t;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    for (uint32_t i = 0; i < r->n_texts; i++) put_row(r, &r->texts[i], &t);
    table_write(&t, &r->out);
    table_release(&t);
}

/* Texts that did not stream; with a line in front of each if they are several. */
static void write_texts(run *r) {
    for (uint32_t i = 0; i < r->n_texts; i++) {
        const run_text *t = &r->texts[i];
        const char *gap = i ? "\n" : "";
        if (r->n_texts > 1 && r->o->n_beams)
            fprintf(r->out.file, "%s== %u: score %.4f, %u tokens, %s ==\n", gap, i + 1, t->score, t->n_tokens,
                    t->finish);
        else if (r->n_texts > 1)
            fprintf(r->out.file, "%s== %u: seed %llu, %u tokens, %s ==\n", gap, i + 1, (unsigned long long)t->seed,
                    t->n_tokens, t->finish);
        terminal_put_text(r->out.file, t->bytes, t->n_bytes);
        fputc('\n', r->out.file);
    }
}

int run_report(run *r) {
    if (r->out.format == FORMAT_JSON)
        output_json(&r->out, run_json(r));
    else if (r->out.format != FORMAT_TERMINAL)
        write_rows(r);
    else if (!run_streams(r))
        write_texts(r);
    r->out.is_done = 1;  /* without a token too */
    fflush(r->out.file); /* before the summary on stderr */
    if (!r->o->common.quiet) write_summary(r);
    return interrupt_code();
}
