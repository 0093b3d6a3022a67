/* SPDX-License-Identifier: MIT
 *
 * options.c: the one table of options, and what is made from it.  See options.h.
 *
 * getopt_long_only() reads `-ctk` like `--ctk`, as llama.cpp's flags are written.  One-letter flags are handed to it
 * as long options too: were they short ones, `-ngl 99` would be read as `-n gl` instead of being refused.  A single
 * letter is no abbreviation: else `-c 512` would be `--cpu-mask 512` where -c is not an option.
 *
 * The same letter may mean different things to commands that share no option (-p is a text to `run` and a count to
 * `bench run`, as in llama.cpp): rows of one name then have disjoint command bits.
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "search.h"

typedef enum option_kind {
    KIND_SWITCH, /* int, set to 1 */
    KIND_TEXT,   /* const char * */
    KIND_U32,
    KIND_I32,
    KIND_MASK, /* uint32_t, bits of max */
    KIND_U64,
    KIND_F32,
    KIND_SPECS,   /* spec_list; may be repeated */
    KIND_NUMBERS, /* number_list, commas between */
    KIND_FLOATS,  /* float_list, commas between */
    KIND_FORMAT,  /* out_format */
    KIND_GOAL,    /* calibration_goal */
    KIND_BYTES,   /* uint64_t, with a unit */
    KIND_PREEMPT, /* pleat_preemption */
} option_kind;

typedef struct option_row {
    const char *group;
    const char *name;  /* after two dashes, and in the environment: PLEAT_ and the name in capitals, - as _ */
    const char *alias; /* after one dash; NULL: none */
    const char *arg;   /* NULL: a switch */
    const char *help;
    uint32_t commands; /* CMD_ bits */
    option_kind kind;
    size_t offset; /* into options */
    double min, max;
} option_row;

#define CMD_ENGINE (CMD_RUN | CMD_EVAL | CMD_CALIBRATE | CMD_BENCH_RUN | CMD_BENCH_SERVE)
#define CMD_MEASURE (CMD_EVAL | CMD_CALIBRATE)
#define AT(field) offsetof(options, field)
#define U32_TOP 4294967295.0
#define CPU_BITS \
    (PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI | PLEAT_CPU_AVX_VNNI | PLEAT_CPU_NEON | PLEAT_CPU_DOTPROD)

/* clang-format off */
static const option_row rows[] = {
    {"Model and machine", "model", "m", "FILE", "GGUF model", CMD_ENGINE | CMD_INSPECT | CMD_PLAN, KIND_TEXT, AT(model), 0, 0},
    {"Model and machine", "threads", "t", "N", "threads (default: one for each CPU)",
     CMD_ALL & ~(CMD_INSPECT | CMD_PLAN), KIND_U32, AT(threads), 1, 256},
    {"Model and machine", "ctx-size", "c", "N", "context, tokens (default: the model's)",
     CMD_RUN | CMD_BENCH_SERVE, KIND_U32, AT(ctx_size), 1, 16777216},
    {"Model and machine", "batch-size", "b", "N", "most prompt tokens in one step (default 512)",
     CMD_ENGINE, KIND_U32, AT(chunk_tokens), 1, 65536},
    {"Model and machine", "cpu-mask", NULL, "BITS", "CPU features that may be used, added up: 1 AVX2, 2 AVX-512, 4 its VNNI, 8 AVX-VNNI; 16 NEON, 32 its dot product",
     CMD_ALL, KIND_MASK, AT(cpu_mask), 0, CPU_BITS},

    {"Model and machine", "arch", NULL, "NAME", "a known model in place of a file; list: which there are",
     CMD_PLAN, KIND_TEXT, AT(arch), 0, 0},
    {"Model and machine", "arch", NULL, "NAME", "a known model in place of a file, to simulate (names: pleat plan --arch list)",
     CMD_BENCH_SERVE, KIND_TEXT, AT(arch), 0, 0},
    {"Model and machine", "config", NULL, "FILE", "a HuggingFace config.json in place of a model (-: stdin)",
     CMD_PLAN, KIND_TEXT, AT(file), 0, 0},
    {"Model and machine", "weights", NULL, "WHAT", "f16, q8_0, q4_0 or bytes (default: the file's, or as published)",
     CMD_PLAN, KIND_TEXT, AT(weights), 0, 0},
    {"Model and machine", "device-bytes", NULL, "BYTES", "memory for weights and caches, as 80GiB (default: not said)",
     CMD_PLAN, KIND_BYTES, AT(device_bytes), 0, 0},
    {"Model and machine", "bandwidth", NULL, "BYTES", "that memory's, bytes/s, as 2TB (default: not said)",
     CMD_PLAN, KIND_BYTES, AT(bandwidth), 0, 0},
    {"Model and machine", "swap-bandwidth", NULL, "BYTES", "that of the way to the host, bytes/s (default: not said)",
     CMD_PLAN, KIND_BYTES, AT(swap_bandwidth), 0, 0},
    {"Model and machine", "prefill", NULL, "X", "speed of reading a prompt, tokens/s (default: not said)",
     CMD_PLAN, KIND_F32, AT(prefill), 1e-3, 1e9},

    {"KV cache", "kv", NULL, "SPEC", "how the cache is kept: f16, k8v4, leankv, ...; repeat to compare (default f16)",
     CMD_EVAL | CMD_BENCH_SERVE, KIND_SPECS, AT(kv), 0, 0},
    {"KV cache", "kv", NULL, "SPEC", "how the cache is kept: f32, f16, ...; repeat to compare (default \"f16 k8v4\")",
     CMD_BENCH_RUN, KIND_SPECS, AT(kv), 0, 0},
    {"KV cache", "kv", NULL, "SPEC", "how the cache is kept; repeat to compare (default \"f16 k8v8 k8v4 k4v4 k4v2\")",
     CMD_BENCH_ATTN | CMD_INSPECT | CMD_PLAN, KIND_SPECS, AT(kv), 0, 0},
    {"KV cache", "kv", NULL, "SPEC", "how the cache is kept: f32, f16, k8v4, leankv, ... (default k8v4)",
     CMD_RUN, KIND_SPECS, AT(kv), 0, 0},
    {"KV cache", "kv", NULL, "SPEC", "the leankv spec whose ah and al are sought (default leankv)",
     CMD_CALIBRATE, KIND_SPECS, AT(kv), 0, 0},
    {"KV cache", "cache-type-k", "ctk", "TYPE", "llama.cpp's name for the keys' format: f32, f16, q8_0, q4_0",
     CMD_RUN, KIND_TEXT, AT(cache_type_k), 0, 0},
    {"KV cache", "cache-type-v", "ctv", "TYPE", "the same for the values",
     CMD_RUN, KIND_TEXT, AT(cache_type_v), 0, 0},

    {"KV cache", "fraction", NULL, "X", "part of f16's bytes that a policy holds, as eval measured it (default: the most)",
     CMD_PLAN, KIND_F32, AT(fraction), 1e-6, 1e3},

    {"Prompt", "prompt", "p", "TEXT", "the prompt", CMD_RUN, KIND_TEXT, AT(prompt), 0, 0},
    {"Prompt", "file", "f", "FILE", "read the prompt from FILE (-: stdin); one newline at its end is left out",
     CMD_RUN, KIND_TEXT, AT(file), 0, 0},
    {"Prompt", "chat", NULL, NULL, "ask the prompt as a user's turn, in the model's chat form",
     CMD_RUN, KIND_SWITCH, AT(chat), 0, 0},
    {"Prompt", "special", NULL, NULL, "read special tokens that the prompt spells out, and print those generated",
     CMD_RUN, KIND_SWITCH, AT(special), 0, 0},

    {"Generation", "n-predict", "n", "N", "most tokens to generate (default -1: until the context is full)",
     CMD_RUN, KIND_I32, AT(n_predict), -1, 16777216},
    {"Generation", "temp", NULL, "T", "temperature (default 0: greedy)", CMD_RUN, KIND_F32, AT(temp), 0, 1000},
    {"Generation", "top-k", NULL, "K", "keep the K likeliest tokens (default 40; 0: all)",
     CMD_RUN, KIND_U32, AT(top_k), 0, U32_TOP},
    {"Generation", "top-p", NULL, "P", "keep the likeliest until their probability passes P (default 0.95)",
     CMD_RUN, KIND_F32, AT(top_p), 1e-6, 1},
    {"Generation", "min-p", NULL, "P", "keep those with P times the likeliest's probability (default 0.05)",
     CMD_RUN, KIND_F32, AT(min_p), 0, 1},
    {"Generation", "seed", "s", "N", "seed of the sampler (default 1)", CMD_RUN, KIND_U64, AT(seed), 0, 0},
    {"Generation", "n-best", NULL, "N", "texts: drawn with N seeds from --seed on, or the N best of --beams (default 1)",
     CMD_RUN, KIND_U32, AT(n_best), 1, SEARCH_MOST},
    {"Generation", "beams", NULL, "N", "search for the likeliest text with N beams instead of drawing one",
     CMD_RUN, KIND_U32, AT(n_beams), 1, SEARCH_MOST},

    {"What to evaluate", "tasks", NULL, "FILE", "samples with exact answers, one JSON object a line",
     CMD_MEASURE, KIND_TEXT, AT(tasks), 0, 0},
    {"What to evaluate", "samples", NULL, "N", "the first N samples of each task (default: all)",
     CMD_MEASURE, KIND_U32, AT(samples), 1, U32_TOP},
    {"What to evaluate", "text", NULL, "FILE", "text for perplexity", CMD_MEASURE, KIND_TEXT, AT(text), 0, 0},
    {"What to evaluate", "text-windows", NULL, "N", "the first N windows of the text (default: all)",
     CMD_EVAL, KIND_U32, AT(text_windows), 1, U32_TOP},
    {"What to evaluate", "text-windows", NULL, "N", "the first N windows of the text (default 8)",
     CMD_CALIBRATE, KIND_U32, AT(text_windows), 1, U32_TOP},
    {"What to evaluate", "ctx-window", NULL, "N", "tokens in a window; its second half is scored (default 2048)",
     CMD_MEASURE, KIND_U32, AT(ctx_window), 4, 16777216},
    {"What to evaluate", "parallel", "np", "N", "sequences in flight (default 16); results do not depend on it",
     CMD_MEASURE, KIND_U32, AT(parallel), 1, 1024},

    {"What to seek", "ah", NULL, "X,..", "thresholds of the high format to try, with al=0 (default 0,1,2,3,5,10,20,30)",
     CMD_CALIBRATE, KIND_FLOATS, AT(ah), 0, 1e6},
    {"What to seek", "al", NULL, "X,..", "those of the low one, with the ah found (default 0,0.02,0.04,0.06,0.08,0.1)",
     CMD_CALIBRATE, KIND_FLOATS, AT(al), 0, 1e6},
    {"What to seek", "goal", NULL, "GOAL", "bytes: the fewest within --tolerance; accuracy: the best (default bytes)",
     CMD_CALIBRATE, KIND_GOAL, AT(goal), 0, 0},
    {"What to seek", "tolerance", NULL, "X", "accuracy that may be lost against f16, of 1 (default 0.005)",
     CMD_CALIBRATE, KIND_F32, AT(tolerance), 0, 1},

    {"Shape", "ctx", NULL, "N,..", "tokens stored in each sequence (default 8192)",
     CMD_BENCH_ATTN, KIND_NUMBERS, AT(ctx), 1, 16777216},
    {"Shape", "ctx", NULL, "N,..", "context lengths to give sizes for",
     CMD_INSPECT, KIND_NUMBERS, AT(ctx), 1, 16777216},
    {"Shape", "ctx", NULL, "N", "tokens stored in each sequence (default: the model's context)",
     CMD_PLAN, KIND_U32, AT(seq_tokens), 1, 16777216},
    {"Shape", "ctx-size", "c", "N", "tokens that a sequence is opened for (default: --ctx)",
     CMD_PLAN, KIND_U32, AT(ctx_size), 1, 16777216},
    {"Shape", "batch", NULL, "N", "sequences at once (default 1)", CMD_PLAN, KIND_U32, AT(n_seqs), 1, 65536},
    {"Shape", "n-predict", "n", "N", "tokens that a request generates (default: not said)",
     CMD_PLAN, KIND_I32, AT(n_predict), 0, 16777216},
    {"Shape", "batch", NULL, "N,..", "sequences read at once (default 1)",
     CMD_BENCH_ATTN, KIND_NUMBERS, AT(batch), 1, 4096},
    {"Shape", "gqa", NULL, "N,..", "query heads for each KV head (default 4)",
     CMD_BENCH_ATTN, KIND_NUMBERS, AT(gqa), 1, GROUP_MOST},
    {"Shape", "heads", NULL, "N", "query heads, instead of --gqa", CMD_BENCH_ATTN, KIND_U32, AT(heads), 1, 65536},
    {"Shape", "kv-heads", NULL, "N", "KV heads (default 8)", CMD_BENCH_ATTN, KIND_U32, AT(kv_heads), 1, 1024},
    {"Shape", "head-dim", NULL, "N,..", "head dimension (default 128)",
     CMD_BENCH_ATTN, KIND_NUMBERS, AT(head_dim), 16, 512},
    {"Shape", "lanes", NULL, "N", "lanes that take a page (default 32768)",
     CMD_BENCH_PAGES, KIND_U32, AT(lanes), 64, 4194304},
    {"Shape", "n-prompt", "p", "N,..", "prompt tokens (default 512; 0: none)",
     CMD_BENCH_RUN, KIND_NUMBERS, AT(n_prompt), 0, 16777216},
    {"Shape", "n-gen", "n", "N,..", "tokens to generate (default 128; 0: none)",
     CMD_BENCH_RUN, KIND_NUMBERS, AT(n_gen), 0, 16777216},
    {"Shape", "n-depth", "d", "N,..", "tokens in the cache beforehand (default 0)",
     CMD_BENCH_RUN, KIND_NUMBERS, AT(depth), 0, 16777216},
    {"Shape", "parallel", "np", "N", "sequences in one step of generation (default 1)",
     CMD_BENCH_RUN, KIND_U32, AT(parallel), 1, 1024},
    {"Shape", "reps", "r", "N", "repetitions, at least 7 for a median (default 15)",
     CMD_BENCH_ATTN | CMD_BENCH_PAGES, KIND_U32, AT(reps), 7, 10000},
    {"Shape", "reps", "r", "N", "repetitions (default 5)", CMD_BENCH_RUN, KIND_U32, AT(reps), 1, 10000},

    {"Requests", "trace", NULL, "FILE", "requests, one JSON object a line (-: stdin)",
     CMD_BENCH_SERVE, KIND_TEXT, AT(file), 0, 0},
    {"Requests", "synthetic", NULL, "NAME", "made-up ones: chat, sharegpt, alpaca, longdoc, shared-prefix or fixed[:KEY=VALUE,..]",
     CMD_BENCH_SERVE, KIND_TEXT, AT(synthetic), 0, 0},
    {"Requests", "requests", NULL, "N", "at most so many (default: all of FILE, or as NAME has it)",
     CMD_BENCH_SERVE, KIND_U32, AT(requests), 1, 16777216},
    {"Requests", "rate", NULL, "R", "arrivals a second, at random; inf: all at once (default: as FILE has it, or inf)",
     CMD_BENCH_SERVE, KIND_F32, AT(rate), 1e-6, INFINITY},
    {"Requests", "text", NULL, "FILE", "take made-up prompts from this text (default: random tokens)",
     CMD_BENCH_SERVE, KIND_TEXT, AT(text), 0, 0},
    {"Requests", "seed", "s", "N", "seed of all that is made up (default 1)", CMD_BENCH_SERVE, KIND_U64, AT(seed), 0, 0},
    {"Requests", "write-trace", NULL, "FILE", "write the requests, as --trace reads them",
     CMD_BENCH_SERVE, KIND_TEXT, AT(write_trace), 0, 0},

    {"Service", "pool-bytes", NULL, "BYTES", "the pool of pages, as 64MiB; the same for every spec",
     CMD_BENCH_SERVE, KIND_BYTES, AT(pool_bytes), 0, 0},
    {"Service", "max-running", NULL, "N", "requests in one step (default 64)",
     CMD_BENCH_SERVE, KIND_U32, AT(max_running), 1, 4096},
    {"Service", "tenants", NULL, "T,..", "whose the pool is: NAME:QUOTA%[:WEIGHT]; the rest can be borrowed",
     CMD_BENCH_SERVE, KIND_TEXT, AT(tenants), 0, 0},
    {"Service", "preempt", NULL, "HOW", "cheaper, swap or recompute (default cheaper)",
     CMD_BENCH_SERVE, KIND_PREEMPT, AT(preempt), 0, 0},
    {"Service", "swap-bytes", NULL, "BYTES", "host memory for those who give way (default 1GiB)",
     CMD_BENCH_SERVE, KIND_BYTES, AT(swap_bytes), 0, 0},
    {"Service", "watermarks", NULL, "LOW,HIGH", "of the pool: let in up to LOW, give way above HIGH (default 0.9,1)",
     CMD_BENCH_SERVE, KIND_FLOATS, AT(watermarks), 0, 1},
    {"Service", "prefix-tokens", NULL, "N", "keep prefixes at multiples of N, one of -b's; 0: none (default: the first from 512)",
     CMD_BENCH_SERVE, KIND_U32, AT(prefix_tokens), 0, 16777216},
    {"Service", "page-tokens", NULL, "N", "tokens in a page, a multiple of 16 (default: the cache's choice)",
     CMD_BENCH_SERVE, KIND_U32, AT(page_tokens), 16, 4096},
    {"Service", "ah-most", NULL, "X", "leankv: raise ah up to this before anybody gives way (default: not at all)",
     CMD_BENCH_SERVE, KIND_F32, AT(ah_most), 0, 1e6},
    {"Service", "al-most", NULL, "X", "the same of al", CMD_BENCH_SERVE, KIND_F32, AT(al_most), 0, 1e6},

    {"Simulation", "simulate", NULL, NULL, "the scheduler alone, in simulated time",
     CMD_BENCH_SERVE, KIND_SWITCH, AT(simulate), 0, 0},
    {"Simulation", "prices", NULL, "X,..", "ns of a step, and in it of a prompt token, a generated one, a KV byte[, a swapped byte]",
     CMD_BENCH_SERVE, KIND_FLOATS, AT(prices), 0, 1e15},
    {"Simulation", "fractions", NULL, "X,..", "of its pages that a sequence keeps, one for each spec (default: measured, or 1)",
     CMD_BENCH_SERVE, KIND_FLOATS, AT(fractions), 1e-3, 1},

    {"What to show", "metadata", NULL, NULL, "all metadata entries", CMD_INSPECT, KIND_SWITCH, AT(metadata), 0, 0},

    {"Output", "format", NULL, "FORMAT", "terminal, json, csv or md (default terminal)",
     CMD_ALL, KIND_FORMAT, AT(format), 0, 0},
    {"Output", "output", "o", "FILE", "write the result to FILE instead of stdout",
     CMD_ALL & ~CMD_CALIBRATE, KIND_TEXT, AT(output), 0, 0},
    {"Output", "output", "o", "FILE", "the profile (default: the model's path with .leankv.json for .gguf)",
     CMD_CALIBRATE, KIND_TEXT, AT(output), 0, 0},
    {"Output", "report", NULL, "FILE", "write a page with charts of accuracy, memory and tokens kept (HTML, no scripts)",
     CMD_EVAL, KIND_TEXT, AT(report), 0, 0},
    {"Output", "series", NULL, "FILE", "write requests and pages over time (CSV)",
     CMD_BENCH_SERVE, KIND_TEXT, AT(series), 0, 0},
    {"Output", "svg", NULL, "FILE", "draw them", CMD_BENCH_SERVE, KIND_TEXT, AT(svg), 0, 0},
    {"Output", "quiet", "q", NULL, "no progress and no summary on stderr", CMD_ALL, KIND_SWITCH, AT(quiet), 0, 0},
    {"Output", "help", "h", NULL, "this text", CMD_ALL, KIND_SWITCH, AT(help), 0, 0},
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void options_default(options *o, uint32_t command) {
    pleat_sampler_options sampling;
    pleat_sampler_options_default(&sampling);
    memset(o, 0, sizeof *o);
    o->chunk_tokens = 512;
    o->cpu_mask = ~0u;
    o->n_predict = -1;
    o->top_k = sampling.top_k;
    o->top_p = sampling.top_p;
    o->min_p = sampling.min_p;
    o->seed = sampling.seed;
    o->n_best = 1;
    o->ctx_window = 2048;
    o->parallel = command == CMD_BENCH_RUN ? 1 : 16;
    o->tolerance = 0.005f;
    o->kv_heads = 8;
    o->lanes = 32768;
    o->n_seqs = 1;
    o->max_running = 64;
    o->prefix_tokens = UINT32_MAX;
}

/* ---- values ------------------------------------------------------------------------------------ */

static int bad_number(const char *flag, const char *text, const option_row *row) {
    const char *kind = row->kind == KIND_F32 || row->kind == KIND_FLOATS ? "number" : "whole number";
    cli_error("%s: '%s' is not a %s between %.10g and %.10g", flag, text, kind, row->min, row->max);
    return CLI_USAGE;
}

/* Decimal, or hexadecimal after 0x (a mask). */
static int parse_integer(const char *text, double min, double max, int64_t *out) {
    char *end;
    const int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    errno = 0;
    const long long v = strtoll(text, &end, base);
    if (errno || end == text || *end || isspace((unsigned char)text[0]) || (double)v < min || (double)v > max) return 0;
    *out = v;
    return 1;
}

static int set_u64(const char *flag, const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || *end || !isdigit((unsigned char)text[0])) {
        cli_error("%s: '%s' is not a whole number between 0 and %llu", flag, text, (unsigned long long)UINT64_MAX);
        return CLI_USAGE;
    }
    *out = v;
    return CLI_OK;
}

static int set_mask(const char *flag, const char *text, const option_row *row, uint32_t *out) {
    int64_t v;
    if (!parse_integer(text, 0, U32_TOP, &v) || (v & ~(int64_t)row->max)) {
        cli_error("%s: '%s' is not %s: %s", flag, text, row->arg, row->help);
        return CLI_USAGE;
    }
    *out = (uint32_t)v;
    return CLI_OK;
}

int options_bytes(const char *text, uint64_t *out) {
    static const char units[] = "kMGT";
    char *end;
    double v = strtod(text, &end);
    if (end == text || !isdigit((unsigned char)text[0])) return 0;
    const char *unit = *end ? strchr(units, *end == 'K' ? 'k' : *end) : NULL;
    if (unit) {
        const double base = end[1] == 'i' ? 1024 : 1000;
        for (const char *u = units; u <= unit; u++) v *= base;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B') end++;
    if (*end || !(v >= 1 && v <= 0x1p62)) return 0;
    *out = (uint64_t)v;
    return 1;
}

static int set_bytes(const char *flag, const char *text, uint64_t *out) {
    if (options_bytes(text, out)) return CLI_OK;
    cli_error("%s: '%s' is no number of bytes between 1 and 2^62, as 80000000000, 80GB or 80GiB", flag, text);
    return CLI_USAGE;
}

static int set_f32(const char *flag, const char *text, const option_row *row, float *out) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) || !(v >= row->min && v <= row->max))
        return bad_number(flag, text, row);
    *out = (float)v;
    return CLI_OK;
}

static int add_spec(const char *flag, const char *text, spec_list *list) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (list->n == SPECS_CAP) {
        cli_error("%s '%s': at most %d specs can be compared", flag, text, SPECS_CAP);
        return CLI_USAGE;
    }
    if (pleat_spec_parse(text, &list->spec[list->n], &err) != PLEAT_OK) {
        cli_error("%s: %s", flag, err.text); /* it names the word and its position */
        return CLI_USAGE;
    }
    pleat_spec_print(&list->spec[list->n], list->text[list->n], PLEAT_SPEC_TEXT_CAP);
    list->n++;
    return CLI_OK;
}

/* One spec or several with spaces between: a spec itself may hold commas. */
static int add_specs(const char *flag, const char *text, spec_list *list) {
    int code = CLI_OK;
    if (!strchr(text, ' ')) return add_spec(flag, text, list);
    char *copy = cli_copy(text, strlen(text)), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word && code == CLI_OK; word = strtok_r(NULL, " ", &save))
        code = add_spec(flag, word, list);
    free(copy);
    return code;
}

/* Numbers with commas between: whole ones into a number_list, others into a float_list. */
static int set_list(const char *flag, const char *text, const option_row *row, void *out) {
    number_list *numbers = row->kind == KIND_NUMBERS ? out : NULL;
    float_list *floats = row->kind == KIND_FLOATS ? out : NULL;
    const char *at = text;
    uint32_t n = 0;
    for (int is_last = 0; !is_last; n++) {
        char word[32];
        int64_t v;
        const size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        if (n == NUMBERS_CAP) {
            cli_error("%s '%s': more than %d numbers", flag, text, NUMBERS_CAP);
            return CLI_USAGE;
        }
        if (floats && set_f32(flag, word, row, &floats->v[n]) != CLI_OK) return CLI_USAGE;
        if (numbers && !parse_integer(word, row->min, row->max, &v)) return bad_number(flag, word, row);
        if (numbers) numbers->v[n] = (uint32_t)v;
        is_last = !at[length];
        at += length + 1;
    }
    *(numbers ? &numbers->n : &floats->n) = n;
    return CLI_OK;
}

/* One of the words (NULL behind the last) of an enum that counts them from 0. */
static int set_word(const char *flag, const char *text, const char *const *words, void *out) {
    char list[64] = "";
    uint32_t n = 0;
    for (; words[n]; n++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n ? ", " : "", words[n]);
    const uint32_t nearest = cli_nearest(text, words, n);
    if (strcmp(words[nearest], text) != 0) {
        cli_error("%s: '%s' is none of %s; the nearest is '%s'", flag, text, list, words[nearest]);
        return CLI_USAGE;
    }
    memcpy(out, &nearest, sizeof nearest);
    return CLI_OK;
}
static const char *const formats[] = {"terminal", "json", "csv", "md", NULL};
static const char *const goals[] = {"bytes", "accuracy", NULL};
static const char *const preemptions[] = {"cheaper", "swap", "recompute", NULL};
_Static_assert(sizeof(out_format) == 4 && sizeof(calibration_goal) == 4 && sizeof(pleat_preemption) == 4,
               "set_word() writes a uint32_t");

/* Put `text` where the row says.  `flag` is how the user spelled it. */
static int set_value(options *o, const option_row *row, const char *flag, const char *text) {
    void *at = (char *)o + row->offset;
    int64_t v;
    switch (row->kind) {
        case KIND_SWITCH: *(int *)at = 1; return CLI_OK;
        case KIND_TEXT: *(const char **)at = text; return CLI_OK;
        case KIND_U32:
            if (!parse_integer(text, row->min, row->max, &v)) return bad_number(flag, text, row);
            *(uint32_t *)at = (uint32_t)v;
            return CLI_OK;
        case KIND_I32:
            if (!parse_integer(text, row->min, row->max, &v)) return bad_number(flag, text, row);
            *(int32_t *)at = (int32_t)v;
            return CLI_OK;
        case KIND_MASK: return set_mask(flag, text, row, at);
        case KIND_U64: return set_u64(flag, text, at);
        case KIND_F32: return set_f32(flag, text, row, at);
        case KIND_SPECS: return add_specs(flag, text, at);
        case KIND_NUMBERS:
        case KIND_FLOATS: return set_list(flag, text, row, at);
        case KIND_FORMAT: return set_word(flag, text, formats, at);
        case KIND_GOAL: return set_word(flag, text, goals, at);
        case KIND_BYTES: return set_bytes(flag, text, at);
        case KIND_PREEMPT: return set_word(flag, text, preemptions, at);
    }
    return CLI_USAGE;
}

/* ---- environment ------------------------------------------------------------------------------- */

enum { ENV_CAP = 64 };

static void env_name(const option_row *row, char out[ENV_CAP]) {
    int n = snprintf(out, ENV_CAP, "PLEAT_%s", row->name);
    for (int i = 0; i < n && i < ENV_CAP - 1; i++) out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

/* Whether the text switches something on; CLI_USAGE through *code if it says neither. */
static int is_on(const char *name, const char *text, int *code) {
    if (!strcmp(text, "1") || !strcmp(text, "true") || !strcmp(text, "on")) return 1;
    if (strcmp(text, "") && strcmp(text, "0") && strcmp(text, "false") && strcmp(text, "off")) {
        cli_error("%s: '%s' is neither 1 nor 0", name, text);
        *code = CLI_USAGE;
    }
    return 0;
}

static int read_environment(options *o, uint32_t command) {
    int code = CLI_OK;
    for (int i = 0; i < N_ROWS && code == CLI_OK; i++) {
        char name[ENV_CAP];
        if (!(rows[i].commands & command) || rows[i].offset == AT(help)) continue;
        env_name(&rows[i], name);
        const char *text = getenv(name);
        if (!text || (rows[i].kind == KIND_SWITCH && !is_on(name, text, &code))) continue;
        code = set_value(o, &rows[i], name, text);
    }
    return code;
}

/* ---- command line ------------------------------------------------------------------------------ */

/* getopt's view of the rows of one command: name and alias of each. */
typedef struct spellings {
    uint32_t n;
    struct option longopt[2 * N_ROWS + 1];
    const char *word[2 * N_ROWS];
} spellings;

static void add_spelling(spellings *s, const char *word, int row) {
    s->longopt[s->n] = (struct option){word, rows[row].arg ? required_argument : no_argument, NULL, 256 + row};
    s->word[s->n++] = word;
}

static void list_spellings(uint32_t command, spellings *s) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < N_ROWS; i++) {
        if (!(rows[i].commands & command)) continue;
        add_spelling(s, rows[i].name, i);
        if (rows[i].alias) add_spelling(s, rows[i].alias, i);
    }
}

static int is_alias(const char *word) {
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].alias && !strcmp(rows[i].alias, word)) return 1;
    return 0;
}

/* Where the word stood before getopt moved words about; counted from 1, as a reader counts after `pleat`. */
static int position_of(char *const *original, int argc, const char *word) {
    for (int i = 1; i < argc; i++)
        if (original[i] == word) return i;
    return 0;
}

static int unknown_option(const spellings *s, const char *name, const char *word, int position) {
    char bare[64];
    const char *start = word + strspn(word, "-");
    const size_t n = strcspn(start, "=");
    snprintf(bare, sizeof bare, "%.*s", (int)(n < sizeof bare ? n : sizeof bare - 1), start);
    const char *nearest = s->word[cli_nearest(bare, s->word, s->n)];
    cli_error("argument %d, '%s': no such option; the nearest is '%s%s' (`pleat %s --help` lists all)", position, word,
              is_alias(nearest) ? "-" : "--", nearest, name);
    return CLI_USAGE;
}

/* Whether the word is one letter, alone or with =VALUE, that is no alias of the row: an abbreviation too short. */
static int is_lone_letter(const char *word, const option_row *row) {
    const char *name = word + strspn(word, "-");
    return strcspn(name, "=") == 1 && !(row->alias && row->alias[0] == name[0] && !row->alias[1]);
}

/* getopt found fault with argument `word`.  `known` is the row's val, or 0 if it knows no such option. */
static int bad_option(const spellings *s, int fault, int known, const char *name, const char *word, int position) {
    if (known < 256 || is_lone_letter(word, &rows[known - 256])) return unknown_option(s, name, word, position);
    const option_row *row = &rows[known - 256];
    if (fault == ':')
        cli_error("argument %d, '%s': needs %s: %s", position, word, row->arg, row->help);
    else
        cli_error("argument %d, '%s': takes no value", position, word);
    return CLI_USAGE;
}

/* The word of the option that getopt has just read, before its value if that is a word of its own. */
static char *word_of(char **argv) {
    char *last = argv[optind - 1];
    return optarg == last ? argv[optind - 2] : last;
}

/* The words left over: `inspect` takes one, other commands none. */
static int take_operands(options *o, uint32_t command, int argc, char **argv, char *const *original) {
    if (optind < argc && command == CMD_INSPECT) o->operand = argv[optind++];
    if (optind == argc) return CLI_OK;
    cli_error("argument %d, '%s': an option was expected, as --help; a text with spaces needs quotes",
              position_of(original, argc, argv[optind]), argv[optind]);
    return CLI_USAGE;
}

static int read_arguments(options *o, uint32_t command, const char *name, int argc, char **argv, int first,
                          char *const *original) {
    spellings s;
    int val, seen_kv = 0;
    list_spellings(command, &s);
    opterr = 0;
    optind = first;
    while ((val = getopt_long_only(argc, argv, ":", s.longopt, NULL)) != -1) {
        if (val < 256)
            return bad_option(&s, val, optopt, name, argv[optind - 1], position_of(original, argc, argv[optind - 1]));
        const option_row *row = &rows[val - 256];
        const char *word = word_of(argv);
        if (is_lone_letter(word, row)) return unknown_option(&s, name, word, position_of(original, argc, word));
        if (row->kind == KIND_SPECS && !seen_kv++) o->kv.n = 0; /* the command line's specs replace the environment's */
        char flag[ENV_CAP];
        snprintf(flag, sizeof flag, "--%s", row->name);
        if (set_value(o, row, flag, optarg) != CLI_OK) return CLI_USAGE;
    }
    return take_operands(o, command, argc, argv, original);
}

int options_parse(options *o, uint32_t command, const char *name, int argc, char **argv, int first) {
    options_default(o, command);
    int code = read_environment(o, command);
    if (code != CLI_OK) return code;
    char **original = cli_alloc((size_t)argc + 1, sizeof *original);
    memcpy(original, argv, (size_t)argc * sizeof *original);
    code = read_arguments(o, command, name, argc, argv, first, original);
    free(original);
    if (code == CLI_OK) pleat_cpu_mask(o->cpu_mask);
    return code;
}

int options_one_spec(options *o, const char *fallback) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const int has_types = o->cache_type_k || o->cache_type_v;
    if (o->kv.n > 1 || (o->kv.n && has_types)) {
        cli_error(has_types ? "--kv and --cache-type-k/--cache-type-v exclude each other; --kv alone is enough"
                            : "--kv may stand once here; `pleat eval` compares several");
        return CLI_USAGE;
    }
    if (!has_types) {
        if (!o->kv.n) add_spec("--kv", fallback, &o->kv);
        return CLI_OK;
    }
    const char *k = o->cache_type_k ? o->cache_type_k : "f16", *v = o->cache_type_v ? o->cache_type_v : "f16";
    if (pleat_spec_from_cache_types(k, v, &o->kv.spec[0], &err) != PLEAT_OK) {
        cli_error("--cache-type-k '%s', --cache-type-v '%s': %s", k, v, err.text);
        return CLI_USAGE;
    }
    pleat_spec_print(&o->kv.spec[0], o->kv.text[0], PLEAT_SPEC_TEXT_CAP);
    o->kv.n = 1;
    return CLI_OK;
}

void options_default_specs(options *o, const char *const *texts) {
    if (o->kv.n) return;
    for (; *texts; texts++) add_spec("--kv", *texts, &o->kv);
}

/* ---- help -------------------------------------------------------------------------------------- */

static void help_row(const option_row *row, FILE *f) {
    char flags[80], env[ENV_CAP];
    env_name(row, env);
    snprintf(flags, sizeof flags, "%s%s%s--%s%s%s", row->alias ? "-" : "", row->alias ? row->alias : "",
             row->alias ? ", " : "", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
    fprintf(f, "  %-28s %s%s%s%s\n", flags, row->help, row->offset == AT(help) ? "" : "  [", /* no twin for --help */
            row->offset == AT(help) ? "" : env, row->offset == AT(help) ? "" : "]");
}

void options_help(uint32_t command, FILE *f) {
    const char *group = "";
    for (int i = 0; i < N_ROWS; i++) {
        if (!(rows[i].commands & command)) continue;
        if (strcmp(group, rows[i].group) != 0) fprintf(f, "\n%s\n", rows[i].group);
        group = rows[i].group;
        help_row(&rows[i], f);
    }
    fprintf(f, "\nNames in brackets are environment variables that set the same; the command line wins.\n");
}
