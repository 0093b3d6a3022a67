/* SPDX-License-Identifier: MIT
 *
 * figures.c: the figures of the report.  See page.h; the figures named are LeanKV's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/svg.h"
#include "page.h"

static const char *const layer_tones[REPORT_LAYERS] = {"s0", "s1", "s2"};

static void begin_figures(FILE *f) { fputs("<div class=\"figures\">\n", f); }

static void end_figures(FILE *f) { fputs("</div>\n", f); }

static void caption(FILE *f, const char *text) {
    fputs("<p class=\"caption\">", f);
    svg_text(f, text);
    fputs("</p>\n", f);
}

/* Swatches and what they stand for; the words are ours and need no escapes. */
static void legend(FILE *f, const char *const *tones, const char *const *names, uint32_t n) {
    fputs("<p class=\"legend\">", f);
    for (uint32_t i = 0; i < n; i++) fprintf(f, "<span><i class=\"%s\"></i>%s</span>", tones[i], names[i]);
    fputs("</p>\n", f);
}

const score_row *report_reference(const evaluation *e) {
    for (uint32_t i = 0; i < e->o->load.kv.n; i++)
        if (!strcmp(e->rows[i].kv, "f16")) return &e->rows[i];
    return &e->rows[0];
}

/* ---- accuracy against memory (Figure 10) ------------------------------------------------------- */

typedef struct cloud {
    svg_point points[SPECS_CAP];
    char labels[SPECS_CAP][PLEAT_SPEC_TEXT_CAP + 8];
    char hints[SPECS_CAP][PLEAT_SPEC_TEXT_CAP + 64];
    uint32_t n;
    int is_numbered; /* labels are the rows' numbers alone */
} cloud;

/* Numbers alone where names would lie over each other. */
static int is_crowded(const evaluation *e) {
    size_t longest = 0;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++)
        if (strlen(e->rows[i].kv) > longest) longest = strlen(e->rows[i].kv);
    return longest > 24 || (longest > 6 && e->o->load.kv.n > 6);
}

/* Kinds of specs, and how they are drawn. */
enum { KIND_PLAIN, KIND_LEANKV, KIND_TOPK, KIND_EVICTION, KIND_BLOCKS, N_KINDS };
static const char *const kind_tones[N_KINDS] = {"s0", "s1", "s2", "s3", "s4"};
static const char *const kind_names[N_KINDS] = {"every token in one format", "leankv", "topk", "eviction by budget",
                                                "cold tokens in compressed blocks"};

static int kind_of(const pleat_spec *spec) {
    if (spec->compressor != PLEAT_COMPRESSOR_NONE) return KIND_BLOCKS;
    if (pleat_policy_evicts(spec->policy)) return KIND_EVICTION;
    if (spec->policy == PLEAT_POLICY_TOPK) return KIND_TOPK;
    return spec->policy == PLEAT_POLICY_LEANKV ? KIND_LEANKV : KIND_PLAIN;
}

static void add_point(cloud *c, const score_row *row, double bytes, double bytes_f16, double y) {
    const uint32_t i = c->n++;
    const double x = 100 * score_quotient(bytes, bytes_f16);
    snprintf(c->labels[i], sizeof c->labels[i], c->is_numbered ? "%u" : "%u %s", i + 1, row->kv);
    snprintf(c->hints[i], sizeof c->hints[i], "%s: %.4g at %.1f %% of f16's bytes", row->kv, y, x);
    c->points[i] = (svg_point){x, y, c->labels[i], c->hints[i], kind_tones[kind_of(&row->spec)]};
}

/* The reference's value as a line, if the reference is f16. */
static void draw_reference(const svg_plot *p, const score_row *row, int decimals, double y) {
    char label[64];
    if (strcmp(row->kv, "f16") != 0 || !isfinite(y)) return;
    snprintf(label, sizeof label, "f16: %.*f", decimals, y);
    svg_rule_y(p, y, label);
}

/* Take points outside of [low, high] out: one spec that fails would leave all others in a line.  Returns how many. */
static uint32_t cut_points(cloud *c, double low, double high) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->points[i].y >= low && c->points[i].y <= high) continue;
        c->points[i].y = NAN;
        n++;
    }
    return n;
}

static void name_cut(FILE *f, const evaluation *e, double high) {
    int n = 0;
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        const double y = score_perplexity(&e->rows[i]);
        if (y <= high) continue;
        fputs(n++ ? ", " : "<p class=\"caption\">Beyond the plot of perplexity: ", f);
        fprintf(f, "%u <code>", i + 1);
        svg_text(f, e->rows[i].kv);
        fprintf(f, "</code> %.4g", y);
    }
    if (n) fputs(".</p>\n", f);
}

/* `top`: what y cannot pass. */
static void write_cloud(FILE *f, const evaluation *e, const cloud *c, const char *y_title, int decimals, double top) {
    double low = INFINITY, high = -INFINITY, right = 0;
    svg_plot p;
    for (uint32_t i = 0; i < c->n; i++) {
        if (!isfinite(c->points[i].x) || !isfinite(c->points[i].y)) continue;
        low = fmin(low, c->points[i].y);
        high = fmax(high, c->points[i].y);
        right = fmax(right, c->points[i].x);
    }
    const double room = 0.06 * (high - low);
    svg_axis y = svg_axis_linear(y_title, low - room, fmin(high + room, top));
    y.max = fmin(y.max, top); /* an empty range was widened */
    svg_begin(&p, f, 520, 360, y_title, svg_axis_linear("KV cache, % of f16's bytes", 0, right), y);
    draw_reference(&p, report_reference(e), decimals, c->points[report_reference(e) - e->rows].y);
    svg_points(&p, c->points, c->n);
    svg_end(&p);
}

void report_write_specs(FILE *f, const evaluation *e) {
    fputs("<ol class=\"names\">\n", f);
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        const int kind = kind_of(&e->rows[i].spec);
        fprintf(f, "<li><i class=\"%s\"></i><code>", kind_tones[kind]);
        svg_text(f, e->rows[i].kv);
        fprintf(f, "</code> <span class=\"caption\">%s</span></li>\n", kind_names[kind]);
    }
    fputs("</ol>\n", f);
}

/* The kinds that were run. */
static void kinds_legend(FILE *f, const evaluation *e) {
    const char *tones[N_KINDS], *names[N_KINDS];
    uint32_t n = 0;
    for (int kind = 0; kind < N_KINDS; kind++) {
        uint32_t i = 0;
        while (i < e->o->load.kv.n && kind_of(&e->rows[i].spec) != kind) i++;
        if (i == e->o->load.kv.n) continue;
        tones[n] = kind_tones[kind];
        names[n++] = kind_names[kind];
    }
    legend(f, tones, names, n);
}

static void fill_accuracy(const evaluation *e, cloud *c) {
    *c = (cloud){.is_numbered = is_crowded(e)};
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        uint64_t bytes, bytes_f16;
        score_bytes(e, &e->rows[i], &bytes, &bytes_f16);
        add_point(c, &e->rows[i], (double)bytes, (double)bytes_f16, score_accuracy(e, &e->rows[i]));
    }
}

static void fill_perplexity(const evaluation *e, cloud *c) {
    *c = (cloud){.is_numbered = is_crowded(e)};
    for (uint32_t i = 0; i < e->o->load.kv.n; i++) {
        const score_row *row = &e->rows[i];
        add_point(c, row, (double)row->bytes, (double)row->bytes_f16, score_perplexity(row));
    }
}

void report_write_memory(FILE *f, const evaluation *e) {
    static const double near = 0.05; /* accuracy lost by specs that are worth a closer look */
    const double accuracy = score_accuracy(e, report_reference(e)), worst = 2 * score_perplexity(report_reference(e));
    cloud *c = cli_alloc(1, sizeof *c);
    begin_figures(f);
    if (e->set.n_tasks) {
        fill_accuracy(e, c);
        write_cloud(f, e, c, "accuracy, mean over tasks", 4, 1);
        if (cut_points(c, accuracy - near, 1)) write_cloud(f, e, c, "the same, from 0.05 below the reference", 4, 1);
    }
    if (e->o->text) {
        fill_perplexity(e, c);
        cut_points(c, 0, worst);
        write_cloud(f, e, c, "perplexity of the text", 3, INFINITY);
    }
    end_figures(f);
    kinds_legend(f, e);
    if (e->o->text) name_cut(f, e, worst);
    free(c);
}

/* ---- shares of tokens, per layer and KV head (Figures 3 and 4) --------------------------------- */

/* Percent. */
typedef struct bar {
    double high; /* 0: the bar has one part */
    double kept, sd;
} bar;

static bar bar_of(const share_stat *s) {
    return (bar){100 * s->high.mean, 100 * s->kept.mean, 100 * moments_sd(&s->kept)};
}

static bar bar_of_one(const moments *m) { return (bar){0, 100 * m->mean, 100 * moments_sd(m)}; }

static void write_bars(FILE *f, const char *x_title, const bar *bars, uint32_t n, double top, double width) {
    svg_plot p;
    char hint[128];
    svg_begin(&p, f, width, 240, x_title, svg_axis_index(x_title, n), svg_axis_linear("% of the tokens", 0, top));
    for (uint32_t i = 0; i < n; i++) {
        const bar *b = &bars[i];
        snprintf(hint, sizeof hint, "%u: %.1f %%, sd %.1f", i, b->kept, b->sd);
        svg_bar(&p, i, b->high, b->kept, b->high > 0 ? "low" : "s3", hint);
        if (b->high > 0) {
            snprintf(hint, sizeof hint, "%u: %.1f %% high", i, b->high);
            svg_bar(&p, i, 0, b->high, "high", hint);
        }
    }
    for (uint32_t i = 0; i < n; i++) svg_whisker(&p, i, bars[i].kept, bars[i].sd);
    svg_end(&p);
}

/* One plot of all layers, and one of the KV heads of each layer shown, up to `top` percent. */
static void write_places(FILE *f, const report_data *d, const bar *layers, const bar *lanes, double top) {
    begin_figures(f);
    write_bars(f, "layer", layers, d->n_layers, top, 420);
    for (uint32_t i = 0; i < d->n_shown; i++) {
        char title[64];
        snprintf(title, sizeof title, "KV head of layer %u", d->shown[i]);
        write_bars(f, title, lanes + (size_t)d->shown[i] * d->n_heads, d->n_heads, top, 220);
    }
    end_figures(f);
}

void report_write_kept(FILE *f, const report_data *d, uint32_t row) {
    static const char *const tones[] = {"high", "low"};
    static const char *const names[] = {"high, window included", "low"};
    const kept_shares *k = &d->kept[row];
    const uint32_t n_lanes = d->n_layers * d->n_heads;
    bar *layers = cli_alloc(d->n_layers, sizeof *layers), *lanes = cli_alloc(n_lanes, sizeof *lanes);
    int has_low = 0;
    for (uint32_t i = 0; i < d->n_layers; i++) {
        layers[i] = bar_of(&k->layers[i]);
        has_low |= layers[i].kept - layers[i].high > 1e-6;
    }
    for (uint32_t i = 0; i < n_lanes; i++) lanes[i] = bar_of(&k->lanes[i]);
    write_places(f, d, layers, lanes, 100); /* one scale for all specs */
    legend(f, tones, names, has_low ? 2 : 1);
    free(layers);
    free(lanes);
}

void report_write_needed(FILE *f, const report_data *d) {
    const attention_study *s = &d->study;
    const uint32_t n_lanes = d->n_layers * d->n_heads;
    bar *layers = cli_alloc(d->n_layers, sizeof *layers), *lanes = cli_alloc(n_lanes, sizeof *lanes);
    double top = 0;
    char text[256];
    for (uint32_t i = 0; i < d->n_layers; i++) layers[i] = bar_of_one(&s->need_layers[i]);
    for (uint32_t i = 0; i < n_lanes; i++) {
        lanes[i] = bar_of_one(&s->need_lanes[i]);
        top = fmax(top, fmin(lanes[i].kept + lanes[i].sd, 100));
    }
    write_places(f, d, layers, lanes, top);
    snprintf(text, sizeof text,
             "Mean over %llu requests of %.0f tokens on average (sd %.0f); whiskers: one standard deviation over "
             "requests.",
             (unsigned long long)s->n_tokens.n, s->n_tokens.mean, moments_sd(&s->n_tokens));
    caption(f, text);
    free(layers);
    free(lanes);
}

/* ---- distributions (Figure 1) ------------------------------------------------------------------ */

enum { SHOWN_PER_DECADE = 4 };

/* Least and greatest logarithm over the layers shown. */
static void range_of(const log_histogram *h, uint32_t n, double *min, double *max) {
    *min = INFINITY;
    *max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (!h[i].n) continue;
        *min = fmin(*min, fmax(h[i].min, LOG_FLOOR));
        *max = fmax(*max, fmin(h[i].max, LOG_TOP));
    }
    if (*min > *max) *min = *max = 0;
}

/* The axis with as many decades as `decades`, the values amid them. */
static svg_axis log_axis(const char *title, double min, double max, double decades) {
    svg_axis a = svg_axis_log10(title, min, max);
    const double spare = decades - (a.max - a.min);
    if (spare > 0) {
        a.min -= floor(spare / 2);
        a.max += spare - floor(spare / 2);
    }
    return a;
}

/* Outline the bins of one layer, in percent of its tokens. */
static void draw_histogram(const svg_plot *p, const log_histogram *h, const char *tone) {
    enum { CAP = 2 * (LOG_TOP - LOG_FLOOR) * SHOWN_PER_DECADE + 2 };
    double x[CAP], y[CAP];
    char veil[16];
    uint32_t n = 0;
    for (double at = p->x.min; at < p->x.max - 1e-6 && n + 2 <= CAP; at += 1.0 / SHOWN_PER_DECADE) {
        x[n] = at;
        y[n++] = 100 * log_histogram_share(h, at, SHOWN_PER_DECADE);
        x[n] = at + 1.0 / SHOWN_PER_DECADE;
        y[n] = y[n - 1];
        n++;
    }
    snprintf(veil, sizeof veil, "veil %s", tone);
    svg_area(p, x, NULL, y, n, veil);
    svg_line(p, x, y, n, tone);
}

static double tallest_bin(const log_histogram *h, uint32_t n) {
    double top = 0;
    for (uint32_t i = 0; i < n; i++)
        for (double at = LOG_FLOOR; at < LOG_TOP; at += 1.0 / SHOWN_PER_DECADE)
            top = fmax(top, 100 * log_histogram_share(&h[i], at, SHOWN_PER_DECADE));
    return top;
}

static void write_histograms(FILE *f, const log_histogram *h, uint32_t n, svg_axis x) {
    svg_plot p;
    svg_begin(&p, f, 520, 280, x.title, x, svg_axis_linear("% of the tokens", 0, tallest_bin(h, n)));
    for (uint32_t i = 0; i < n; i++) draw_histogram(&p, &h[i], layer_tones[i]);
    svg_end(&p);
}

static void write_orders(FILE *f, const char *what, uint32_t layer, const log_histogram *h) {
    const double low = log_histogram_quantile(h, 0.01), high = log_histogram_quantile(h, 0.99);
    fprintf(f,
            "<tr><td>%s</td><td>%u</td><td>%.2g</td><td>%.2g</td><td>%.2g</td><td>%.1f</td><td>%.1f</td>"
            "<td>%llu</td></tr>\n",
            what, layer, pow(10, low), pow(10, log_histogram_quantile(h, 0.5)), pow(10, high), high - low,
            h->n ? h->max - h->min : 0, (unsigned long long)h->n_zero);
}

void report_write_spread(FILE *f, const report_data *d) {
    const attention_study *s = &d->study;
    double min[2], max[2];
    range_of(s->significance, d->n_shown, &min[0], &max[0]);
    range_of(s->norm, d->n_shown, &min[1], &max[1]);
    const double decades = fmax(ceil(max[0]) - floor(min[0]), ceil(max[1]) - floor(min[1]));
    begin_figures(f);
    write_histograms(f, s->significance, d->n_shown, log_axis("significance of a token", min[0], max[0], decades));
    write_histograms(f, s->norm, d->n_shown, log_axis("norm of a value vector", min[1], max[1], decades));
    end_figures(f);
    char names[REPORT_LAYERS][24];
    const char *pointers[REPORT_LAYERS];
    for (uint32_t i = 0; i < d->n_shown; i++) {
        snprintf(names[i], sizeof names[i], "layer %u", d->shown[i]);
        pointers[i] = names[i];
    }
    legend(f, layer_tones, pointers, d->n_shown);
    fputs(
        "<div class=\"wide\"><table><thead><tr><th>of a token</th><th>layer</th><th>1st percentile</th><th>median</th>"
        "<th>99th percentile</th><th>orders of magnitude, 1st to 99th</th><th>full range</th><th>zeros, left out</th>"
        "</tr></thead><tbody>\n",
        f);
    for (uint32_t i = 0; i < d->n_shown; i++) write_orders(f, "significance", d->shown[i], &s->significance[i]);
    for (uint32_t i = 0; i < d->n_shown; i++) write_orders(f, "value norm", d->shown[i], &s->norm[i]);
    fputs("</tbody></table></div>\n", f);
}

/* ---- one request ------------------------------------------------------------------------------- */

enum { CURVE_CAP = 500 }; /* points of a curve: more than pixels would be lost */

typedef struct curves {
    uint32_t n;
    double x[CURVE_CAP], zero[CURVE_CAP];
    double high[CURVE_CAP], kept[CURVE_CAP], all[CURVE_CAP]; /* tokens a lane: tops of the three areas */
    double bytes[CURVE_CAP];                                 /* % of f16's */
} curves;

/* Every n-th point of the trace, the last one included. */
static void thin(const report_data *d, curves *c) {
    const request_trace *t = &d->trace;
    const double n_lanes = (double)d->n_layers * d->n_heads;
    const uint32_t n = t->n_points < CURVE_CAP ? t->n_points : CURVE_CAP;
    for (c->n = 0; c->n < n; c->n++) {
        const uint64_t at = n > 1 ? (uint64_t)c->n * (t->n_points - 1) / (n - 1) : 0;
        const pleat_cache_usage *u = &t->points[at].usage;
        c->x[c->n] = t->points[at].n_tokens;
        c->high[c->n] = (double)u->tokens_high / n_lanes;
        c->kept[c->n] = c->high[c->n] + (double)u->tokens_low / n_lanes;
        c->all[c->n] = c->kept[c->n] + (double)u->tokens_dropped / n_lanes;
        c->bytes[c->n] = 100 * score_quotient((double)u->bytes, (double)u->bytes_f16);
    }
}

static void write_levels(FILE *f, const report_data *d, const curves *c, svg_axis x) {
    svg_plot p;
    svg_begin(&p, f, 520, 300, "tokens by level", x,
              svg_axis_linear("tokens of a lane, mean over lanes", 0, c->all[c->n - 1]));
    svg_area(&p, c->x, c->zero, c->high, c->n, "high");
    svg_area(&p, c->x, c->high, c->kept, c->n, "low");
    svg_area(&p, c->x, c->kept, c->all, c->n, "drop");
    svg_rule_x(&p, d->trace.n_prompt, "end of the prompt");
    svg_end(&p);
}

static void write_bytes(FILE *f, const report_data *d, const curves *c, svg_axis x) {
    double top = 100;
    svg_plot p;
    for (uint32_t i = 0; i < c->n; i++) top = fmax(top, c->bytes[i]);
    svg_begin(&p, f, 520, 300, "bytes", x, svg_axis_linear("bytes held, % of f16's for as many tokens", 0, top));
    svg_rule_x(&p, d->trace.n_prompt, c->bytes[0] > 0.85 * top ? "" : "end of the prompt"); /* not over the line */
    svg_line(&p, c->x, c->bytes, c->n, "s1");
    svg_end(&p);
}

/* Those levels that the request had, from the top down. */
static void trace_legend(FILE *f, const curves *c) {
    const char *tones[3], *names[3];
    uint32_t n = 0;
    int has_dropped = 0, has_low = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        has_dropped |= c->all[i] - c->kept[i] > 1e-6;
        has_low |= c->kept[i] - c->high[i] > 1e-6;
    }
    if (has_dropped) tones[n] = "drop", names[n++] = "dropped";
    if (has_low) tones[n] = names[n] = "low", n++;
    tones[n] = names[n] = "high", n++;
    legend(f, tones, names, n);
}

void report_write_trace(FILE *f, const report_data *d) {
    curves *c = cli_alloc(1, sizeof *c);
    thin(d, c);
    if (c->n) {
        const svg_axis x = {"tokens of the request so far", SVG_LINEAR, c->x[0] < c->x[c->n - 1] ? c->x[0] : 0,
                            c->x[c->n - 1]};
        begin_figures(f);
        write_levels(f, d, c, x);
        write_bytes(f, d, c, x);
        end_figures(f);
        trace_legend(f, c);
    }
    free(c);
}
