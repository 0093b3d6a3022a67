/* SPDX-License-Identifier: MIT
 *
 * page.c: the page around the figures: head, style, tables and words.
 *
 * Colours stand in the style alone, as variables that the dark scheme replaces; paper gets the light ones.
 */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/svg.h"
#include "pleat/version.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--mute:#59636e;--grid:#e4e8ec;--axis:#8b96a1;--s0:#7d8590;"
    "--s1:#1f6fb2;--s2:#c8611a;--s3:#2f8f63;--s4:#8455b8;--high:#1f6fb2;--low:#e3a743;--drop:#98a2ad;"
    "--heat:214,84,40}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e3e7eb;--mute:#9aa5b0;--grid:#2a3037;"
    "--axis:#6b7681;--s0:#98a2ad;--s1:#5aa5e6;--s2:#ee9250;--s3:#58b98a;--s4:#a985d8;--high:#4a95d8;--low:#d29a3c;"
    "--drop:#5b6570;--heat:224,100,52}}\n"
    "body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "main{max-width:1160px;margin:0 auto;padding:24px 20px 60px}\n"
    "h1{font-size:1.6em;margin:0 0 .4em;overflow-wrap:break-word}h2{font-size:1.2em;margin:2.2em 0 "
    ".3em;border-bottom:1px solid var(--grid)}\n"
    "h3{font-size:1em;margin:1.4em 0 .2em}p{max-width:76ch;margin:.4em 0}code{font:.9em ui-monospace,monospace;"
    "overflow-wrap:anywhere}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1.2em;margin:0}dt{color:var(--mute)}dd{margin:0}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85em;margin:.6em 0;"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.2em .5em;text-align:right;border-bottom:1px solid var(--grid)}th{color:var(--mute);"
    "font-weight:500;vertical-align:bottom}\n"
    "th.text,td.text{text-align:left}td.text{min-width:14em;max-width:34em;overflow-wrap:break-word}.flag,td:not(.text)"
    "{"
    "white-space:"
    "nowrap}\n"
    ".wide tr>:first-child{position:sticky;left:0;background:var(--bg)}\n"
    "td.heat{background:rgba(var(--heat),var(--loss))}\n"
    ".figures{display:flex;flex-wrap:wrap;gap:10px 16px;margin:.6em 0 .2em}svg{max-width:100%;height:auto;"
    "font:12px system-ui,sans-serif}\n"
    ".caption,.legend{color:var(--mute);font-size:.9em}.legend span{margin-right:1.4em;white-space:nowrap}"
    ".legend "
    "i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px;background:currentColor}\n"
    ".names "
    "i{display:inline-block;width:.7em;height:.7em;margin-right:.5em;border-radius:50%;background:currentColor}\n"
    ".names{columns:2;column-gap:2em;font-size:.9em;margin:.4em 0;padding-left:2em}.names li{break-inside:avoid}\n"
    ".s0{color:var(--s0)}.s1{color:var(--s1)}.s2{color:var(--s2)}.s3{color:var(--s3)}.s4{color:var(--s4)}"
    ".high{color:var(--high)}.low{color:var(--low)}.drop{color:var(--drop)}\n"
    ".area,.dot{fill:currentColor}.veil{fill-opacity:.14}.dot{stroke:var(--bg)}.line{fill:none;stroke:currentColor;"
    "stroke-width:1.8;stroke-linejoin:round}\n"
    ".grid{stroke:var(--grid);fill:none}.axis{stroke:var(--axis);fill:none}.whisker{stroke:var(--fg);fill:none}"
    ".rule{stroke:var(--mute);fill:none;stroke-dasharray:5 4}.lead{stroke:var(--axis);fill:none;stroke-width:.7}\n"
    ".tick,.name,.note{fill:var(--mute)}.tick{font-size:11px}.note{font-size:11px}.label{fill:var(--fg)}"
    ".note,.label{paint-order:stroke;stroke:var(--bg);stroke-width:3px}\n"
    "@media(max-width:640px){main{padding:16px 12px 40px}dl{grid-template-columns:1fr}dd{margin-bottom:.4em}"
    ".names{columns:1}td.text{min-width:8em;max-width:11em}svg{font-size:13px}.tick,.note{font-size:12px}"
    "svg[width='520']{font-size:15px}svg[width='520'] :is(.tick,.note){font-size:14px}"
    "svg[width='220']{width:calc(50% - 8px)}.legend span{display:inline-block;white-space:normal}}\n"
    "@media "
    "print{main{max-width:none;padding:0}table{font-size:.6em}.figures,table{break-inside:avoid}h2,h3{break-after:"
    "avoid}}\n";

static void section(FILE *f, const char *title, const char *text) {
    fprintf(f, "<h2>%s</h2>\n<p>%s</p>\n", title, text);
}

/* A spec may be parted behind its marks, and within no number. */
static void put_text(FILE *f, const char *text) {
    while (*text) {
        const size_t n = strcspn(text, ",:+") + 1, n_left = strlen(text);
        char *part = cli_copy(text, n < n_left ? n : n_left);
        svg_text(f, part);
        free(part);
        if (n >= n_left) return;
        fputs("<wbr>", f);
        text += n;
    }
}

/* ---- head -------------------------------------------------------------------------------------- */

/* A word of a command line, quoted for a shell if it needs to be. */
static void put_word(FILE *f, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+%@";
    if (word[0] && word[strspn(word, plain)] == 0) {
        svg_text(f, word);
        return;
    }
    char *quoted = cli_alloc(4 * strlen(word) + 3, 1), *out = quoted;
    *out++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') out += sprintf(out, "'\\'");
        *out++ = *word;
    }
    *out = '\'';
    svg_text(f, quoted);
    free(quoted);
}

static void put_option(FILE *f, const char *flag, const char *value) {
    if (!value) return;
    fprintf(f, " <span class=\"flag\">%s</span> ", flag);
    put_word(f, value);
}

static void put_count(FILE *f, const char *flag, uint32_t value) {
    if (value) fprintf(f, " <span class=\"flag\">%s %u</span>", flag, value);
}

/* The command line that gives the same figures, environment and defaults spelled out. */
static void put_command(FILE *f, const score_options *o, const char *path) {
    fputs("pleat eval", f);
    put_option(f, "-m", o->load.model);
    put_option(f, "--tasks", o->tasks);
    put_count(f, "--samples", o->samples);
    put_option(f, "--text", o->text);
    put_count(f, "--text-windows", o->text ? o->text_windows : 0);
    put_count(f, "--ctx-window", o->text ? o->ctx_window : 0);
    put_count(f, "--scored", o->text ? o->scored : 0);
    if (o->half != HALF_ALL) put_option(f, "--half", half_names[o->half]);
    if (o->unseen) fputs(" <span class=\"flag\">--unseen</span>", f);
    put_count(f, "-b", o->load.chunk_tokens);
    put_count(f, "-np", o->parallel);
    put_count(f, "-t", o->load.threads);
    for (uint32_t i = 0; i < o->load.kv.n; i++) put_option(f, "--kv", o->load.kv.text[i]);
    put_option(f, "--report", path);
}

static void put_entry(FILE *f, const char *term, const char *text) {
    fprintf(f, "<dt>%s</dt><dd>", term);
    svg_text(f, text);
    fputs("</dd>\n", f);
}

static void put_model(FILE *f, const evaluation *e) {
    const pleat_model_info *m = &e->l.info;
    fputs("<dt>model</dt><dd>", f);
    svg_text(f, m->name[0] ? m->name : m->architecture);
    fprintf(f, ", %.1f M parameters, %u layers, %u KV heads for %u query heads, head dimension %u; <code>",
            (double)m->n_params * 1e-6, m->n_layers, m->n_kv_heads, m->n_q_heads, m->head_dim);
    svg_text(f, e->o->load.model);
    fputs("</code></dd>\n", f);
}

/* The spec with the fewest bytes that answers no less than the reference; NULL: only the reference does. */
static const score_row *leanest_right(const evaluation *e) {
    const score_row *ref = report_reference(e), *best = NULL;
    uint64_t bytes, bytes_f16, least = UINT64_MAX;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        const score_row *row = &e->rows[i];
        score_bytes(e, row, &bytes, &bytes_f16);
        if (row == ref || !(score_accuracy(e, row) >= score_accuracy(e, ref)) || bytes >= least) continue;
        best = row;
        least = bytes;
    }
    return best;
}

/* What came of it, in a sentence. */
static void put_headline(FILE *f, const evaluation *e) {
    const score_row *ref = report_reference(e), *best = e->set.n_tasks ? leanest_right(e) : NULL;
    uint64_t bytes, bytes_ref, bytes_f16;
    fputs("<p class=\"caption\">pleat eval</p>\n<h1>", f);
    if (!best) {
        svg_text(f, e->l.info.name[0] ? e->l.info.name : e->o->load.model);
        fprintf(f, ": %u way%s to keep the KV cache</h1>\n", e->o->load.kv.n, e->o->load.kv.n == 1 ? "" : "s");
        return;
    }
    score_bytes(e, best, &bytes, &bytes_f16);
    score_bytes(e, ref, &bytes_ref, &bytes_f16);
    put_text(f, best->kv);
    fputs(" answers no less than ", f);
    put_text(f, ref->kv);
    fprintf(f,
            " in %.1f %% of its bytes</h1>\n<p>Of what was run, the fewest bytes at an accuracy of %.4f or more; %u "
            "samples.</p>\n",
            100 * score_quotient((double)bytes, (double)bytes_ref), score_accuracy(e, ref), e->set.n_samples);
}

static void write_head(FILE *f, const evaluation *e, const report_data *d) {
    const score_options *o = e->o;
    const time_t now = time(NULL);
    struct tm utc;
    char date[64] = "";
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>pleat eval: ",
          f);
    svg_text(f, e->l.info.name[0] ? e->l.info.name : o->load.model);
    fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
    put_headline(f, e);
    fputs("<dl>\n", f);
    put_model(f, e);
    if (o->tasks) {
        put_entry(f, "tasks", o->tasks);
        fprintf(f, "<dt>samples</dt><dd>%u, of %u tasks</dd>\n", e->set.n_samples, e->set.n_tasks);
    }
    if (o->text) {
        put_entry(f, "text", o->text);
        fprintf(f, "<dt>scored</dt><dd>%llu tokens of the text</dd>\n", (unsigned long long)e->rows[0].n_scored);
    }
    put_entry(f, "date", date);
    put_entry(f, "version", PLEAT_VERSION_STRING);
    fputs("<dt>command</dt><dd><code>", f);
    put_command(f, o, d->path);
    fputs("</code></dd>\n</dl>\n", f);
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void put_cell(FILE *f, const char *tag, int is_text, const char *text) {
    fprintf(f, "<%s%s>", tag, is_text ? " class=\"text\"" : "");
    (is_text ? put_text : svg_text)(f, text);
    fprintf(f, "</%s>", tag);
}

/* Whether a column has a figure in any row. */
static int has_figures(const table *t, uint32_t col) {
    for (uint32_t cell = col; cell < t->n_cells; cell += t->n_cols)
        if (strcmp(t->cells[cell], "-") != 0) return 1;
    return 0;
}

/* eval's table.  The columns of single tasks are the next table's; those without a figure are left out. */
static void write_rows(FILE *f, evaluation *e) {
    table t;
    score_table(e, &t);
    const uint32_t n_rows = t.n_cells / t.n_cols, first_figure = 1 + e->set.n_tasks;
    fputs("<div class=\"wide\"><table><thead><tr><th>#</th>", f);
    put_cell(f, "th", 1, t.titles[0]);
    for (uint32_t col = first_figure; col < t.n_cols; col++)
        if (has_figures(&t, col)) put_cell(f, "th", 0, t.titles[col]);
    fputs("</tr></thead><tbody>\n", f);
    for (uint32_t row = 0; row < n_rows; row++) {
        char *const *cells = t.cells + (size_t)row * t.n_cols;
        fprintf(f, "<tr><td>%u</td>", row + 1);
        put_cell(f, "td", 1, cells[0]);
        for (uint32_t col = first_figure; col < t.n_cols; col++)
            if (has_figures(&t, col)) put_cell(f, "td", 0, cells[col]);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    table_release(&t);
}

/* Turns lost against the reference, as a share; 0 where nothing is known. */
static double loss_of(const evaluation *e, const score_row *row, uint32_t task) {
    const double loss = score_task_accuracy(report_reference(e), task) - score_task_accuracy(row, task);
    return loss > 0 ? loss : 0;
}

static double greatest_loss(const evaluation *e) {
    double most = 0;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++)
        for (uint32_t t = 0; t < e->set.n_tasks; t++) most = fmax(most, loss_of(e, &e->rows[i], t));
    return most;
}

static void write_heat(FILE *f, const evaluation *e) {
    const double deepest = fmax(greatest_loss(e), 0.05); /* noise stays pale */
    fputs("<div class=\"wide\"><table><thead><tr><th>#</th><th class=\"text\">kv</th>", f);
    for (uint32_t t = 0; t < e->set.n_tasks; t++) put_cell(f, "th", 0, e->set.names[t]);
    fputs("</tr></thead><tbody>\n", f);
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        fprintf(f, "<tr><td>%u</td>", i + 1);
        put_cell(f, "td", 1, e->rows[i].kv);
        for (uint32_t t = 0; t < e->set.n_tasks; t++)
            fprintf(f, "<td class=\"heat\" style=\"--loss:%.3f\">%.3f</td>", 0.7 * loss_of(e, &e->rows[i], t) / deepest,
                    score_task_accuracy(&e->rows[i], t));
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n<p class=\"caption\">Shaded by what is lost against <code>", f);
    svg_text(f, report_reference(e)->kv);
    fprintf(f, "</code>; the deepest shade is %.3f.  Turns:", deepest);
    for (uint32_t t = 0; t < e->set.n_tasks; t++) {
        fputs(t ? ", " : " ", f);
        svg_text(f, e->set.names[t]);
        fprintf(f, " %u", e->rows[0].score[t].total);
    }
    fputs(".</p>\n", f);
}

/* ---- sections ---------------------------------------------------------------------------------- */

static void write_policies(FILE *f, const evaluation *e, const report_data *d) {
    int n = 0;
    for (uint32_t i = 0; i < d->n_rows; i++) n += d->kept[i].lanes != NULL;
    section(
        f, "Tokens kept, by layer and KV head",
        n ? "Share of a request's tokens that each KV head still holds when the request ends: mean and, as whiskers, "
            "one standard deviation over requests."
          : "No spec here has a policy: every KV head keeps all its tokens.");
    for (uint32_t i = 0; i < d->n_rows; i++) {
        if (!d->kept[i].lanes) continue;
        fprintf(f, "<h3>%u <code>", i + 1);
        put_text(f, e->rows[i].kv);
        fprintf(f, "</code>, %llu requests</h3>\n", (unsigned long long)d->kept[i].layers[0].kept.n);
        report_write_kept(f, d, i);
    }
}

static void write_trace(FILE *f, const report_data *d) {
    if (!d->trace.n_points) return;
    section(f, "One request, step by step",
            "What the cache holds of one request as it grows, under the first spec that has a policy.  Its answers are "
            "fed as generation stores them, a token a step.");
    fputs("<h3><code>", f);
    put_text(f, d->trace.kv);
    fputs("</code>, request: ", f);
    svg_text(f, d->trace.what);
    fputs("</h3>\n", f);
    report_write_trace(f, d);
}

static void write_study(FILE *f, const report_data *d) {
    if (!d->study.n_tokens.n) return;
    section(
        f, "Tokens that 95 % of the attention goes to",
        "The fewest tokens of a request that together received 95 % of the attention that its tokens gave to earlier "
        "ones, by layer and KV head.  From a pass in f16 in which every token is scored and none is dropped.");
    report_write_needed(f, d);
    section(
        f, "Significance and value norms",
        "The attention that a token received from later ones (mean over those, the largest over the query heads that "
        "share its KV head), and the length of its value vector, in the same pass.  Both axes span the same number "
        "of decades; the newest token of a request, which nothing has attended to, is left out on the left.");
    report_write_spread(f, d);
}

#define RESULTS_TEXT                                                                                                  \
    "accuracy: turns answered right, mean over tasks.  fraction: bytes held at the ends of the requests over what "   \
    "f16 "                                                                                                            \
    "holds for as many tokens, everything counted; fraction_short: the same over requests of fewer than 300 tokens; " \
    "gain: accuracy above the first spec's; _se: standard errors."

void report_write_page(FILE *f, evaluation *e, const report_data *d) {
    write_head(f, e, d);
    section(f, "What was run", "Ways to keep the cache, in the order and with the numbers of all that follows.");
    report_write_specs(f, e);
    section(f, "Results",
            e->o->text ? RESULTS_TEXT "  kld_mean and same_top1: against the first spec, on the text." : RESULTS_TEXT);
    write_rows(f, e);
    if (e->set.n_tasks) {
        section(f, "Accuracy by task", "Share of a task's turns answered right.");
        write_heat(f, e);
    }
    section(f, e->set.n_tasks ? "Accuracy against memory" : "Perplexity against memory",
            "Up and to the left is better for accuracy, down and to the left for perplexity.  Numbers are those of the "
            "tables above.");
    report_write_memory(f, e);
    write_policies(f, e, d);
    write_trace(f, d);
    write_study(f, d);
    fputs("</main>\n</body>\n</html>\n", f);
}
