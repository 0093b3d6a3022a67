/* SPDX-License-Identifier: MIT
 *
 * stats.c: `pleat stats`: statistics of a model's keys, queries and values (pleat/stats.h), which `--kv rd` needs.
 *
 *     text ── its first half ── N windows, as far apart as they go ──> pass 1: moments ──> pass 2: codes ──┐
 *                           └── a few windows ──> scales of layers (fit.h) <──────────────────────────────┘ ──> file
 *
 * The second half of the text is left alone, so that figures can be shown on what had no part in them (lib/half.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/half.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/load.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/whole_file.h"
#include "fit.h"

#define MISSED 1.5 /* times off the target: worth a word */
enum { DEFAULT_WINDOWS = 16, DEFAULT_WINDOW_TOKENS = 1024, DEFAULT_FIT_WINDOWS = 4, FIT_SCORED = 256 };
static const float default_kld = 0.01f;

typedef struct stats_options {
    common_options common;
    load_options load;
    const char *text;
    const char *file; /* to write; NULL: beside the model */
    uint32_t n_windows, window_tokens;
    uint32_t n_positions; /* 0: the model's */
    float kld;            /* to fit scales to; 0: they are 1 */
    uint32_t fit_windows;
    int fit_layers;
} stats_options;

#define GROUP_TEXT_READ "Text"
#define AT(field) .offset = offsetof(stats_options, field)
/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(stats_options, load),
    CPU_MASK_ROW(stats_options),
    {GROUP_TEXT_READ, "text", NULL, "FILE", "text to read, of which the first half is used", KIND_INPUT, AT(text)},
    {GROUP_TEXT_READ, "text-windows", NULL, "N", "windows of it (default 16)", KIND_U32, AT(n_windows), 1, 4096},
    {GROUP_TEXT_READ, "ctx-window", NULL, "N", "tokens of a window (default 1024)", KIND_U32, AT(window_tokens), 128, 16777216},
    {GROUP_TEXT_READ, "positions", NULL, "N",
     "positions that keys are decorrelated for: fewer save more bytes there, and cost accuracy behind them (default: the model's context)",
     KIND_U32, AT(n_positions), 1, 16777216},
    {GROUP_TEXT_READ, "target-kld", NULL, "N",
     "mean divergence from f16, in nats a token, that a bare rd shall have (default 0.01); 0: do not fit steps",
     KIND_F32, AT(kld), 0, 10},
    {GROUP_TEXT_READ, "fit-windows", NULL, "N", "windows that steps are fitted on (default 4)", KIND_U32, AT(fit_windows),
     1, 4096},
    {GROUP_TEXT_READ, "fit-layers", NULL, NULL, "steps of each layer by itself, from two readings for each", KIND_SWITCH,
     AT(fit_layers)},
    {GROUP_TEXT_READ, "stats-file", NULL, "FILE", "where to write (default: the model's path with .stats for .gguf)",
     KIND_OUTPUT, AT(file)},
    QUIET_ROWS(stats_options),
};
/* clang-format on */

static const option_demand demands[] = {
    NO_MODEL,
    {"text", "nothing to read: give --text FILE, a text of the kind that the model is used for, a few hundred KB"},
};

typedef struct reading {
    const stats_options *o;
    loaded l;
    pleat_token *tokens; /* [n_tokens] of half of the text */
    uint32_t n_tokens;
    uint32_t n_windows, window; /* that fit */
    pleat_collector *collector;
    pleat_engine *engine;
    pleat_stats *stats;
    char *path;                              /* where to write */
    char fingerprint[PLEAT_FINGERPRINT_CAP]; /* the model's */
} reading;

/* ---- the text ---------------------------------------------------------------------------------- */

static int read_text(reading *r) {
    char *text;
    size_t n, n_half;
    if (cli_read_file(CONTENT_TEXT, r->o->text, &text, &n) != CLI_OK) return CLI_FAILED;
    const size_t at = half_of_text(HALF_CHOOSE, text, n, &n_half);
    const int code = load_tokens(&r->l, r->o->text, text + at, n_half, 0, &r->tokens, &r->n_tokens);
    free(text);
    if (code != CLI_OK) return code;
    const uint32_t n_ctx = r->l.info.n_ctx;
    r->window = r->o->window_tokens < n_ctx ? r->o->window_tokens : n_ctx;
    r->n_windows = r->o->n_windows < r->n_tokens / r->window ? r->o->n_windows : r->n_tokens / r->window;
    if (r->n_windows > 0) return CLI_OK;
    cli_error("%s: its first half has %u tokens, and a window has %u: give a longer text, or --ctx-window", r->o->text,
              r->n_tokens, r->window);
    return CLI_FAILED;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int make_engine(reading *r) {
    pleat_spec f16;
    (void)pleat_spec_parse("f16", &f16, NULL);
    pleat_engine_options opt = load_engine_options(&r->o->load, &r->l, f16, 1, r->window, 0);
    const pleat_status status = pleat_collector_create(NULL, &r->collector);
    if (status != PLEAT_OK) return cli_fail("cannot collect statistics", status, NULL);
    opt.collector = r->collector;
    return load_engine_with(&r->l, &opt, &r->engine);
}

/* One window through the model, in chunks; its first token is the model's first, where it has one. */
static int read_window(reading *r, uint32_t idx) {
    const uint32_t spare = r->n_tokens - r->window, chunk = r->o->load.chunk_tokens;
    pleat_token *tokens = r->tokens + (r->n_windows > 1 ? (uint64_t)spare * idx / (r->n_windows - 1) : 0),
                first = tokens[0];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_seq seq;
    pleat_status status = pleat_engine_open(r->engine, r->window, &seq);
    if (r->l.info.add_bos && r->l.info.bos >= 0) tokens[0] = r->l.info.bos;
    for (uint32_t at = 0; status == PLEAT_OK && at < r->window && !interrupt_came(); at += chunk) {
        const uint32_t left = r->window - at, n = left < chunk ? left : chunk;
        const pleat_engine_item item = {
            .seq = seq, .tokens = tokens + at, .n_tokens = n, .flags = n < left ? PLEAT_ITEM_MORE : 0};
        status = pleat_engine_step(r->engine, &item, 1, &err);
    }
    tokens[0] = first;
    if (status == PLEAT_OK) status = pleat_engine_close(r->engine, seq);
    return status == PLEAT_OK ? CLI_OK : cli_fail("a step failed", status, &err);
}

static int read_windows(reading *r, uint32_t pass) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < r->n_windows && code == CLI_OK && !interrupt_came(); i++) {
        code = read_window(r, i);
        progress_update(pass * r->n_windows + i + 1);
    }
    return code;
}

static int collect(reading *r) {
    progress_begin("reading windows, twice", 2 * r->n_windows, !r->o->common.quiet);
    int code = read_windows(r, 0);
    if (code == CLI_OK && !interrupt_came()) {
        const pleat_status status =
            pleat_collector_count(r->collector, r->o->n_positions ? r->o->n_positions : r->l.info.n_ctx);
        if (status != PLEAT_OK) code = cli_fail("cannot count codes", status, NULL);
    }
    if (code == CLI_OK && !interrupt_came()) code = read_windows(r, 1);
    progress_end();
    return code != CLI_OK ? code : interrupt_came() ? CLI_INTERRUPTED : CLI_OK;
}

static int make_stats(reading *r) {
    int code = make_engine(r);
    if (code == CLI_OK) code = collect(r);
    if (code != CLI_OK) return code;
    const pleat_status status = pleat_collector_finish(r->collector, r->fingerprint, &r->stats);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot make the statistics", status, NULL);
}

/* Statistics that are there already: only their scales are wanted. */
static int take_others(reading *r) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const char *path = r->o->load.stats;
    if (pleat_stats_load(path, NULL, &r->stats, &err) != PLEAT_OK) return cli_fail(path, err.code, &err);
    if (strcmp(pleat_stats_model(r->stats), r->fingerprint) == 0) return CLI_OK;
    cli_error("%s is of another model: fingerprint %s, not %s", path, pleat_stats_model(r->stats), r->fingerprint);
    return CLI_FAILED;
}

static int fit(reading *r) {
    const stats_options *o = r->o;
    const fit_options options = {.load = &o->load,
                                 .text = o->text,
                                 .n_windows = o->fit_windows,
                                 .window_tokens = r->window,
                                 .n_scored = r->window > 2 * FIT_SCORED ? FIT_SCORED : r->window / 2,
                                 .kld = (double)o->kld,
                                 .by_layer = o->fit_layers,
                                 .quiet = o->common.quiet};
    fit_result found;
    pleat_engine_destroy(&r->engine);
    const int code = fit_scales(&options, &r->l, &r->stats, &found);
    if (code != CLI_OK) return code;
    if (!o->common.quiet)
        fprintf(
            stderr,
            "rd: a mean divergence of %.4f in %.1f %% of f16's bytes; before its steps were fitted %.4f in %.1f %%\n",
            found.after, 100 * found.fraction_after, found.before, 100 * found.fraction_before);
    if (!(found.after < MISSED * options.kld && found.after > options.kld / MISSED))
        cli_note("--target-kld %g is not what came out: steps have bounds, and the buffer's 8 bits cost something too",
                 options.kld);
    return CLI_OK;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int put(const char *path, const void *bytes, uint64_t n) {
    whole_file w;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    if (fwrite(bytes, 1, n, w.file) == n) return whole_file_close(&w);
    cli_error("cannot write %s: %s", path, strerror(errno));
    whole_file_abandon(&w);
    return CLI_FAILED;
}

static int write_stats(const reading *r) {
    char size[BYTES_CAP];
    const uint64_t n = pleat_stats_bytes(r->stats);
    uint8_t *bytes = cli_alloc(n, 1);
    (void)pleat_stats_write(r->stats, bytes, n); /* there is room */
    const int code = put(r->path, bytes, n);
    if (code == CLI_OK && !r->o->common.quiet)
        fprintf(stderr, "%s: %s, of %u layer%s\n", r->path, print_bytes(size, n), pleat_stats_n_layers(r->stats),
                pleat_stats_n_layers(r->stats) == 1 ? "" : "s");
    free(bytes);
    return code;
}

static void release(reading *r) {
    pleat_engine_destroy(&r->engine);
    pleat_collector_destroy(&r->collector);
    pleat_stats_destroy(&r->stats);
    free(r->tokens);
    free(r->path);
    load_release(&r->l);
}

static int stats_main(void *opts) {
    stats_options *o = opts;
    reading r = {.o = o};
    if (o->fit_layers && o->kld == 0) {
        cli_error("--fit-layers fits steps, and --target-kld 0 says not to: leave one of them out");
        return CLI_USAGE;
    }
    int code = load_model(&o->load, &o->common, &r.l);
    if (code != CLI_OK) return code;
    r.path = o->file ? cli_copy(o->file, strlen(o->file)) : load_stats_path(o->load.model);
    if (whole_file_check(r.path) != CLI_OK) { /* before minutes of work */
        release(&r);
        return CLI_FAILED;
    }
    interrupt_catch();
    const pleat_status status = pleat_model_fingerprint(r.l.model, r.fingerprint);
    code = status == PLEAT_OK ? read_text(&r) : cli_fail(o->load.model, status, NULL);
    if (code == CLI_OK) code = o->load.stats ? take_others(&r) : make_stats(&r);
    if (code == CLI_OK && o->kld > 0) code = fit(&r);
    if (code == CLI_OK) code = write_stats(&r);
    if (code == CLI_INTERRUPTED) cli_note("interrupted: nothing was written");
    release(&r);
    return code;
}

static void set_defaults(void *opts) {
    stats_options *o = opts;
    o->load.chunk_tokens = DEFAULT_CHUNK_TOKENS;
    o->n_windows = DEFAULT_WINDOWS;
    o->window_tokens = DEFAULT_WINDOW_TOKENS;
    o->kld = default_kld;
    o->fit_windows = DEFAULT_FIT_WINDOWS;
}

const command stats_command = {
    .name = "stats",
    .help = "make the statistics of a model that --kv rd needs",
    .usage = "-m MODEL --text FILE [--stats-file FILE]",
    .about =
        "Reads windows of a text twice, and writes what the compressor rd chooses its steps and codebooks by: of the "
        "model, not of the text.  Then it fits the steps, so that a bare rd diverges from f16 as much as --target-kld "
        "says: "
        "that reads some windows several times more.  Every command finds the file beside the model.  With --stats "
        "FILE "
        "only the steps are fitted, of what that file has.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(stats_options),
    .set_defaults = set_defaults,
    .run = stats_main,
};
