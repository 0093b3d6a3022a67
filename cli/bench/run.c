/* SPDX-License-Identifier: MIT
 *
 * run.c: `pleat bench run`: speed of reading prompts and of generating, in llama-bench's terms.
 *
 *     pp512          a prompt of 512 tokens read into an empty cache
 *     tg128          128 single steps from an empty cache
 *     ... @ d4096    the same after 4096 tokens that are already stored
 *
 * With -np N, N sequences: their prompts are read one after another, and each step generates a token of all; speeds are
 * of all of them together.  All specs are measured in one run, turn and turn about; tokens are random ordinary ones,
 * the same for every spec.  Speeds are mean and standard deviation over the repetitions, in llama-bench's columns; kv
 * stands for its type_k and type_v.  A test that the model's context cannot hold is skipped, which is said; it is an
 * error only when no test is left.
 * What the cache spends on its pages, and on compaction (deciding what tokens become, and moving them), is given as
 * part of the time of the test's steps, over all repetitions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/lib/made.h"
#include "cli/lib/common.h"
#include "cli/lib/load.h"
#include "cli/lib/measure.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/shape/archs.h"

enum { DEFAULT_RUN_REPS = 5, WARM_UP_TOKENS = 32, WARM_UP_TOKENS_DEVICE = 512, WARM_UP_STEPS_DEVICE = 20, SHIFT = 131 };

/* ---- options ----------------------------------------------------------------------------------- */

typedef struct bench_run_options {
    common_options common;
    load_options load;
    number_list n_prompt, n_gen, depth;
    uint32_t parallel; /* sequences in one step */
    uint32_t reps;
    const char *shape; /* of a model with random weights; NULL: -m is given */
    uint32_t weights;  /* their type, of weight_types.h */
} bench_run_options;

#define AT(field) .offset = offsetof(bench_run_options, field)
/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(bench_run_options, load),
    LOAD_DEVICE_ROW(bench_run_options, load),
    {GROUP_MACHINE, "shape", NULL, "NAME", "random weights in place of a file: a known model's (pleat plan --arch list), or a config.json's",
     KIND_TEXT, AT(shape), .words = arch_names, .excludes = "model hf-repo", .stands_for = "model", .because = "give one model"},
    {GROUP_MACHINE, "weights", NULL, "TYPE", "type of random weights: q8_0, q4_k, f16, ... (default q8_0)", KIND_WORD,
     AT(weights), .words = weight_type_names, .needs = "shape", .because = "a file has its own"},
    {GROUP_MACHINE, "fixed-splits", NULL, NULL, "on a GPU: as serve has it, so that last bits do not depend on what shares a step",
     KIND_SWITCH, AT(load.fixed_splits), .needs = "device"},
    CPU_MASK_ROW(bench_run_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept: f32, f16, ...; repeat to compare (default \"f16 k8v4\")",
     KIND_SPECS, AT(load.kv), .words = option_spec_names},
    {GROUP_SHAPE, "n-prompt", "p", "N,..", "prompt tokens (default 512; 0: none)", KIND_NUMBERS, AT(n_prompt), 0, 16777216},
    {GROUP_SHAPE, "n-gen", "n", "N,..", "tokens to generate (default 128; 0: none)", KIND_NUMBERS, AT(n_gen), 0, 16777216},
    {GROUP_SHAPE, "n-depth", "d", "N,..", "tokens in the cache beforehand (default 0)", KIND_NUMBERS, AT(depth), 0, 16777216},
    {GROUP_SHAPE, "parallel", "np", "N", "sequences in one step of generation (default 1)", KIND_U32, AT(parallel), 1, 1024},
    {GROUP_SHAPE, "reps", "r", "N", "repetitions (default 5)", KIND_U32, AT(reps), 1, 10000},
    COMMON_ROWS(bench_run_options),
};
/* clang-format on */

static const option_demand demands[] = {NO_MODEL};

static void set_defaults(void *opts) {
    bench_run_options *o = opts;
    o->load.chunk_tokens = DEFAULT_CHUNK_TOKENS;
    o->parallel = 1;
    o->reps = DEFAULT_RUN_REPS;
}

/* ---- the benchmark ----------------------------------------------------------------------------- */

/* What one test took with one spec, over all repetitions. */
typedef struct tally {
    double *speed;             /* [reps] tokens/s */
    double step_s;             /* in steps */
    pleat_cache_times times;   /* of that, for the cache's own work */
    uint64_t bytes, bytes_f16; /* held at the end of the last repetition, all sequences */
} tally;

typedef struct bench {
    const bench_run_options *o;
    loaded l;
    made_model made; /* bytes NULL: there is a file */
    output out;
    pleat_engine *engines[SPECS_CAP];
    tally tallies[SPECS_CAP];
    pleat_token *tokens;      /* random; sequence i begins at token SHIFT * i, so that no two are alike */
    pleat_seq *seqs;          /* [o->parallel] */
    pleat_engine_item *items; /* [o->parallel] */
    float *logits;            /* [o->parallel][n_vocab] */
    pleat_token *likeliest;   /* [o->parallel] */
    uint32_t reps;
    table t;
    json_t *rows, *skipped;
    uint64_t n_done;
} bench;

/* One test: `n` tokens of each sequence after `depth`: a prompt, or one by one. */
typedef struct shape {
    const char *kind; /* "pp" or "tg" */
    uint32_t n, depth;
    int is_generation;
} shape;

/* "tg128 @ d4096" */
enum { TEST_CAP = 64 };
static const char *name_of(const shape *s, char out[TEST_CAP]) {
    int n = snprintf(out, TEST_CAP, "%s%u", s->kind, s->n);
    if (s->depth) snprintf(out + n, TEST_CAP - (size_t)n, " @ d%u", s->depth);
    return out;
}

static float *logits_of(const bench *b, uint32_t i) { return b->logits + (size_t)i * b->l.info.n_vocab; }

/* likeliest: [n_items], or NULL where nobody asks. */
static int step(bench *b, pleat_engine *engine, uint32_t n_items, pleat_token *likeliest, double *seconds) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const double start_s = measure_now_s();
    const pleat_status status = pleat_engine_step_likeliest(engine, b->items, n_items, likeliest, &err);
    *seconds += measure_now_s() - start_s;
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &err);
}

/* Read n tokens of every sequence as prompts, one sequence after another. */
static int read_prompts(bench *b, pleat_engine *engine, uint32_t first, uint32_t n, double *seconds) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < b->o->parallel; i++)
        for (uint32_t done = 0, now; done < n && code == CLI_OK; done += now) {
            const uint32_t left = n - done;
            now = left < b->o->load.chunk_tokens ? left : b->o->load.chunk_tokens;
            b->items[0] = (pleat_engine_item){
                b->seqs[i],          b->tokens + SHIFT * i + first + done, now,
                now == left ? 1 : 0, now == left ? logits_of(b, i) : NULL, now == left ? 0 : PLEAT_ITEM_MORE};
            code = step(b, engine, 1, NULL, seconds);
        }
    return code;
}

/* Feed n tokens of every sequence one at a time, all sequences in each step.  On a GPU a step ends with the likeliest
 * tokens, since logits would be timed on their way to the host; on the CPU with logits, and choosing is not timed. */
static int generate(bench *b, pleat_engine *engine, uint32_t first, uint32_t n, double *seconds) {
    const int is_cpu = !b->l.n_devices;
    int code = CLI_OK;
    for (uint32_t t = 0; t < n && code == CLI_OK; t++) {
        for (uint32_t i = 0; i < b->o->parallel; i++)
            b->items[i] = (pleat_engine_item){.seq = b->seqs[i],
                                              .tokens = b->tokens + SHIFT * i + first + t,
                                              .n_tokens = 1,
                                              .n_logits = is_cpu,
                                              .logits = is_cpu ? logits_of(b, i) : NULL};
        code = step(b, engine, b->o->parallel, is_cpu ? NULL : b->likeliest, seconds);
    }
    return code;
}

/* Add to `sum` what the cache has spent since `before`. */
static void add_times(pleat_cache_times *sum, const pleat_engine *engine, const pleat_cache_times *before) {
    pleat_cache_times now = {{0}, {0}, {0}, 0, 0}; /* a cache on a GPU does not tell */
    pleat_cache_get_times(pleat_engine_cache(engine), &now);
    for (int kind = 0; kind < 2; kind++) {
        sum->n_steps[kind] += now.n_steps[kind] - before->n_steps[kind];
        sum->pages_ns[kind] += now.pages_ns[kind] - before->pages_ns[kind];
        sum->compact_ns[kind] += now.compact_ns[kind] - before->compact_ns[kind];
    }
}

static int close_all(bench *b, pleat_engine *engine, uint32_t n_open, tally *sum) {
    int code = CLI_OK;
    pleat_cache_usage usage;
    sum->bytes = sum->bytes_f16 = 0;
    for (uint32_t i = 0; i < n_open; i++) {
        pleat_status status = pleat_engine_get_usage(engine, b->seqs[i], &usage);
        sum->bytes += usage.bytes;
        sum->bytes_f16 += usage.bytes_f16;
        if (status == PLEAT_OK) status = pleat_engine_close(engine, b->seqs[i]);
        if (status != PLEAT_OK) code = cli_fail("cannot close a sequence", status, NULL);
    }
    return code;
}

/* One repetition with spec number `spec`. */
static int run_once(bench *b, uint32_t spec, const shape *s, uint32_t rep) {
    pleat_engine *engine = b->engines[spec];
    tally *sum = &b->tallies[spec];
    pleat_cache_times before = {{0}, {0}, {0}, 0, 0};
    uint32_t n_open = 0;
    double unused = 0, seconds = 0;
    int code = CLI_OK;
    for (; n_open < b->o->parallel && code == CLI_OK; n_open++) {
        const pleat_status status = pleat_engine_open(engine, s->depth + s->n, &b->seqs[n_open]);
        if (status != PLEAT_OK) return cli_fail("cannot open a sequence", status, NULL);
    }
    code = read_prompts(b, engine, 0, s->depth, &unused);
    pleat_cache_get_times(pleat_engine_cache(engine), &before);
    if (code == CLI_OK) code = (s->is_generation ? generate : read_prompts)(b, engine, s->depth, s->n, &seconds);
    add_times(&sum->times, engine, &before);
    sum->step_s += seconds;
    sum->speed[rep] = (double)s->n * b->o->parallel / seconds;
    const int closed = close_all(b, engine, n_open, sum);
    progress_update(++b->n_done);
    return code == CLI_OK ? closed : code;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static const char *backend_of(const bench *b) {
    if (b->l.n_devices) return "CUDA";
    return load_activation_bits(&b->o->load) == 8 ? "CPU 8-bit" : "CPU";
}

/* Part of the test's time that went into nanoseconds ns[0] + ns[1]; a prompt's last chunk may be a single token. */
static double share(const tally *sum, const uint64_t ns[2]) {
    return sum->step_s > 0 && sum->times.n_steps[0] + sum->times.n_steps[1] > 0
               ? 1e-9 * (double)(ns[0] + ns[1]) / sum->step_s
               : NAN;
}

/* A sequence's bytes: a whole number unless the sequences differ. */
static json_t *sequence_bytes_json(const bench *b, const tally *sum) {
    const uint32_t n = b->o->parallel;
    return sum->bytes % n ? json_number((double)sum->bytes / n) : json_integer((json_int_t)(sum->bytes / n));
}

static json_t *row_json(const bench *b, const shape *s, uint32_t spec, const char *test, double mean, double sd) {
    const tally *sum = &b->tallies[spec];
    json_t *params =
        json_pack("{s:o, s:I, s:I, s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i}", "model", json_text(b->o->load.model),
                  "model_size", (json_int_t)b->l.info.weight_bytes, "model_n_params", (json_int_t)b->l.info.n_params,
                  "backend", b->l.n_devices ? "CUDA" : "CPU", "activations", (int)load_activation_bits(&b->o->load),
                  "kv", b->o->load.kv.text[spec], "test", test, "n", (int)s->n, "depth", (int)s->depth, "parallel",
                  (int)b->o->parallel, "threads", (int)pleat_workers_count(b->l.workers), "reps", (int)b->reps);
    const json_int_t n_steps = (json_int_t)(sum->times.n_steps[0] + sum->times.n_steps[1]);
    return json_pack("{s:s, s:o, s:o, s:o, s:{s:s, s:I, s:o, s:o}, s:o, s:o}", "what", "run", "params", params,
                     "tokens_per_s", json_number(mean), "sd", json_number(sd), "memory_management", "of",
                     s->is_generation ? "generation steps" : "prompt steps", "steps", n_steps, "pages",
                     json_number(share(sum, sum->times.pages_ns)), "compaction",
                     json_number(share(sum, sum->times.compact_ns)), "bytes_per_sequence", sequence_bytes_json(b, sum),
                     "fraction", json_number(sum->bytes_f16 ? (double)sum->bytes / (double)sum->bytes_f16 : NAN));
}

/* The file's name, as llama-bench's column has room for. */
static void put_model(bench *b) {
    const char *slash = strrchr(b->o->load.model, '/'), *name = slash ? slash + 1 : b->o->load.model;
    const char *end = strstr(name, ".gguf");
    char *text = cli_copy(name, end && !end[5] ? (size_t)(end - name) : strlen(name));
    table_put_text(&b->t, text);
    free(text);
}

/* Bytes as a reader likes them, or as a program does. */
static void put_bytes(bench *b, uint64_t bytes) {
    char text[BYTES_CAP];
    if (b->out.format == FORMAT_CSV)
        table_put(&b->t, "%llu", (unsigned long long)bytes);
    else
        table_put(&b->t, "%s", print_bytes(text, bytes));
}

static void put_row(bench *b, const tally *sum, const char *kv, const char *test, double mean, double sd) {
    const double n_params = (double)b->l.info.n_params;
    put_model(b);
    put_bytes(b, b->l.info.weight_bytes);
    if (b->out.format == FORMAT_CSV)
        table_put(&b->t, "%.0f", n_params);
    else
        table_put(&b->t, n_params < 1e9 ? "%.2f M" : "%.2f B", n_params / (n_params < 1e9 ? 1e6 : 1e9));
    table_put(&b->t, "%s", backend_of(b));
    table_put(&b->t, "%u", pleat_workers_count(b->l.workers));
    table_put(&b->t, "%u", b->o->parallel);
    table_put(&b->t, "%s", kv);
    table_put(&b->t, "%s", test);
    if (b->out.format == FORMAT_CSV) {
        table_put(&b->t, "%.2f", mean);
        table_put(&b->t, "%.2f", sd);
    } else {
        table_put(&b->t, "%.2f ± %.2f", mean, sd);
    }
    table_put_number(&b->t, 2, 100 * share(sum, sum->times.pages_ns));
    table_put_number(&b->t, 2, 100 * share(sum, sum->times.compact_ns));
    put_bytes(b, sum->bytes / b->o->parallel);
}

static void add_row(bench *b, const shape *s, uint32_t spec) {
    const double *speed = b->tallies[spec].speed;
    double mean = 0, variance = 0;
    char test[TEST_CAP];
    for (uint32_t i = 0; i < b->reps; i++) mean += speed[i] / b->reps;
    for (uint32_t i = 0; i < b->reps; i++)
        variance += (speed[i] - mean) * (speed[i] - mean) / (b->reps > 1 ? b->reps - 1 : 1);
    name_of(s, test);
    put_row(b, &b->tallies[spec], b->o->load.kv.text[spec], test, mean, sqrt(variance));
    json_array_append_new(b->rows, row_json(b, s, spec, test, mean, sqrt(variance)));
}

/* ---- tests ------------------------------------------------------------------------------------- */

static void clear_tallies(bench *b) {
    for (uint32_t i = 0; i < b->o->load.kv.n; i++) b->tallies[i] = (tally){.speed = b->tallies[i].speed};
}

static int has_policy(const bench *b) {
    int has = 0;
    for (uint32_t i = 0; i < b->o->load.kv.n; i++) has |= b->o->load.kv.spec[i].policy != PLEAT_POLICY_NONE;
    return has;
}

/* NULL: the test can be run; else why not. */
static const char *what_hinders(const bench *b, const shape *s, char reason[160]) {
    if ((uint64_t)s->depth + s->n > b->l.info.n_ctx)
        snprintf(reason, 160, "%s%u after %u tokens needs %llu, the model's context is %u", s->kind, s->n, s->depth,
                 (unsigned long long)s->depth + s->n, b->l.info.n_ctx);
    else if (b->l.n_devices && s->depth && !s->is_generation && has_policy(b))
        snprintf(reason, 160, "%s%u after %u tokens: a GPU reads later tokens of leankv one by one", s->kind, s->n,
                 s->depth);
    else
        return NULL;
    return reason;
}

static int fits(const bench *b, const shape *s) {
    char reason[160];
    return !what_hinders(b, s, reason);
}

/* Say that a test cannot be run, and why. */
static void skip_shape(bench *b, const shape *s, int is_all) {
    char test[TEST_CAP], reason[160];
    (void)what_hinders(b, s, reason);
    json_array_append_new(b->skipped, json_pack("{s:s, s:i, s:i, s:s}", "test", name_of(s, test), "n", (int)s->n,
                                                "depth", (int)s->depth, "reason", reason));
    if (is_all)
        cli_error("%s", reason);
    else if (!b->o->common.quiet)
        cli_note("skipped: %s", reason);
}

static int run_shape(bench *b, const shape *s) {
    int code = CLI_OK;
    clear_tallies(b);
    for (uint32_t rep = 0; rep < b->reps; rep++)
        for (uint32_t i = 0; i < b->o->load.kv.n && code == CLI_OK; i++) code = run_once(b, i, s, rep);
    for (uint32_t i = 0; i < b->o->load.kv.n && code == CLI_OK; i++) add_row(b, s, i);
    return code;
}

/* The tests that the options name, in their order: shapes[], of which there are room for all. */
static uint32_t list_shapes(const bench_run_options *o, shape *shapes) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < o->depth.n; d++) {
        for (uint32_t i = 0; i < o->n_prompt.n; i++)
            if (o->n_prompt.v[i]) shapes[n++] = (shape){"pp", o->n_prompt.v[i], o->depth.v[d], 0};
        for (uint32_t i = 0; i < o->n_gen.n; i++)
            if (o->n_gen.v[i]) shapes[n++] = (shape){"tg", o->n_gen.v[i], o->depth.v[d], 1};
    }
    return n;
}

static void begin_table(bench *b) {
    static const char *const titles[] = {"model", "size", "params", "backend", "threads",      "np",
                                         "kv",    "test", "t/s",    "pages %", "compaction %", "bytes/seq"};
    static const char *const csv_titles[] = {"model", "size", "params", "backend", "threads",      "np",       "kv",
                                             "test",  "t/s",  "sd",     "pages %", "compaction %", "bytes/seq"};
    if (b->out.format == FORMAT_CSV)
        table_init(&b->t, csv_titles, sizeof csv_titles / sizeof csv_titles[0]);
    else
        table_init(&b->t, titles, sizeof titles / sizeof titles[0]);
    b->rows = json_array();
    b->skipped = json_array();
}

static int run_shapes(bench *b) {
    const bench_run_options *o = b->o;
    shape shapes[2 * NUMBERS_CAP * NUMBERS_CAP];
    const uint32_t n = list_shapes(o, shapes);
    uint32_t n_fit = 0;
    int code = CLI_OK;
    begin_table(b);
    for (uint32_t i = 0; i < n; i++) n_fit += fits(b, &shapes[i]) != 0;
    for (uint32_t i = 0; i < n; i++)
        if (!fits(b, &shapes[i])) skip_shape(b, &shapes[i], n_fit == 0);
    progress_begin("bench run", (uint64_t)n_fit * b->reps * o->load.kv.n, !o->common.quiet);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++)
        if (fits(b, &shapes[i])) code = run_shape(b, &shapes[i]);
    progress_end();
    return n_fit ? code : CLI_FAILED;
}

/* Random tokens that end nothing. */
static void fill_tokens(bench *b) {
    measure_rng rng = {5};
    const uint32_t n_tokens = b->l.info.n_ctx + SHIFT * b->o->parallel;
    b->tokens = cli_alloc(n_tokens, sizeof *b->tokens);
    for (uint32_t i = 0; i < n_tokens;) {
        b->tokens[i] = (pleat_token)(measure_rng_next(&rng) % b->l.info.n_vocab);
        if (!pleat_model_token_is_special(b->l.model, b->tokens[i])) i++; /* bytes' tokens are ordinary: it ends */
    }
}

static void default_list(number_list *list, uint32_t v) {
    if (!list->n) *list = (number_list){1, {v}};
}

static uint32_t greatest(const number_list *list) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < list->n; i++) most = list->v[i] > most ? list->v[i] : most;
    return most;
}

/* Tokens that the longest test's sequences hold, at most the model's context: tests that pass it are skipped. */
static uint32_t longest(const bench *b) {
    const uint32_t p = greatest(&b->o->n_prompt), g = greatest(&b->o->n_gen), d = greatest(&b->o->depth);
    uint64_t n = (uint64_t)d + (p > g ? p : g);
    if (n < WARM_UP_TOKENS) n = WARM_UP_TOKENS;
    return n < b->l.info.n_ctx ? (uint32_t)n : b->l.info.n_ctx;
}

/* The model of --shape, in the place of a file. */
static int make_model(bench *b, bench_run_options *o) {
    model_shape sizes;
    int code = made_find_shape(o->shape, &sizes);
    if (code == CLI_OK) code = load_find_device(&o->load, &b->l.n_devices, &b->l.device);
    if (code == CLI_OK) code = made_build(&sizes, &weight_types[o->weights], o->load.kv.n, o->common.quiet, &b->made);
    o->load.model = b->made.name;
    o->load.image = b->made.bytes;
    o->load.image_bytes = b->made.n_bytes;
    o->load.ignores_shipped = 1;
    return code;
}

static int prepare(bench *b, bench_run_options *o) {
    static const char *const default_specs[] = {"f16", "k8v4", NULL};
    options_default_specs(&o->load.kv, default_specs);
    default_list(&o->n_prompt, 512);
    default_list(&o->n_gen, 128);
    default_list(&o->depth, 0);
    if (!greatest(&o->n_prompt) && !greatest(&o->n_gen)) {
        cli_error("nothing to measure: -p and -n are 0");
        return CLI_USAGE;
    }
    b->reps = o->reps;
    int code = o->shape ? make_model(b, o) : CLI_OK;
    if (code == CLI_OK) code = load_model(&o->load, &o->common, &b->l);
    if (code == CLI_OK) code = output_open(&b->out, &o->common);
    for (uint32_t i = 0; i < o->load.kv.n && code == CLI_OK; i++)
        code = load_engine(&o->load, &b->l, o->load.kv.spec[i], o->parallel, longest(b), 0, &b->engines[i]);
    if (code != CLI_OK) return code;
    b->seqs = cli_alloc(o->parallel, sizeof *b->seqs);
    b->items = cli_alloc(o->parallel, sizeof *b->items);
    b->likeliest = cli_alloc(o->parallel, sizeof *b->likeliest);
    b->logits = cli_alloc((size_t)o->parallel * b->l.info.n_vocab, sizeof *b->logits);
    for (uint32_t i = 0; i < o->load.kv.n; i++) b->tallies[i].speed = cli_alloc(b->reps, sizeof(double));
    fill_tokens(b);
    /* a few steps that wake the threads and touch the weights; on a GPU, as much of a prompt as loads all kernels, and
     * as many steps of all sequences as record their graph */
    const uint32_t wanted = b->l.n_devices ? WARM_UP_TOKENS_DEVICE : WARM_UP_TOKENS, most = longest(b);
    const uint32_t n_warm = most < WARM_UP_TOKENS ? 1 : most < wanted ? most : wanted;
    const uint32_t n_steps = most < WARM_UP_STEPS_DEVICE ? most : WARM_UP_STEPS_DEVICE;
    for (uint32_t i = 0; i < o->load.kv.n && code == CLI_OK; i++) {
        code = run_once(b, i, &(shape){"pp", n_warm, 0, 0}, 0);
        if (code == CLI_OK && b->l.n_devices && greatest(&o->n_gen))
            code = run_once(b, i, &(shape){"tg", n_steps, 0, 1}, 0);
    }
    b->n_done = 0;
    return code;
}

static int run(void *opts) {
    bench_run_options *o = opts;
    bench b = {.o = o};
    int code = prepare(&b, o);
    if (code == CLI_OK) code = run_shapes(&b);
    code = output_end_rows(&b.out, code, b.rows, b.skipped, &b.t);
    for (uint32_t i = 0; i < o->load.kv.n; i++) {
        pleat_engine_destroy(&b.engines[i]);
        free(b.tallies[i].speed);
    }
    load_release(&b.l);
    made_release(&b.made);
    free(b.tokens);
    free(b.likeliest);
    free(b.logits);
    free(b.seqs);
    free(b.items);
    return code;
}

const command bench_run_command = {
    .name = "bench run",
    .help = "speed of reading prompts and of generating",
    .usage = "(-m MODEL | --shape NAME [--weights TYPE]) [-p N,..] [-n N,..] [-d N,..] [-np N] [-b N] [--kv SPEC]...",
    .about =
        "Times a model's reading of prompts and its generation, in llama-bench's terms, with each spec turn and turn "
        "about.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(bench_run_options),
    .set_defaults = set_defaults,
    .run = run,
};
