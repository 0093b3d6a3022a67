/* SPDX-License-Identifier: MIT
 *
 * series.c: the state of a replay over its time, as CSV for programs and as SVG for eyes: two panels for each
 * spec, requests and pages, on one time axis for all of them.
 *
 *     pages   in use ▓ of these kept for nobody ░        the rest of the pool is free
 *             line: of those in use, the low format's
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/svg.h"
#include "cli/lib/whole_file.h"
#include "serve.h"

enum { PANEL_WIDTH = 560, PANEL_HEIGHT = 260, HEAD_HEIGHT = 44, TITLE_HEIGHT = 28, MARGIN = 12 };

/* Colours are the figure's own: it stands in pages of any kind. */
static const char style[] =
    "svg{font:12px system-ui,sans-serif;background:#fff}.title{font-size:14px;fill:#1b1f24}\n"
    ".grid{stroke:#e4e8ec;fill:none}.axis{stroke:#8b96a1;fill:none}.rule{stroke:#59636e;stroke-dasharray:5 4}\n"
    ".tick,.name,.note{fill:#59636e}.tick,.note{font-size:11px}.area{fill:currentColor}.line{fill:none;"
    "stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}\n"
    ".s1{color:#1f6fb2}.s2{color:#c8611a}.s3{color:#2f8f63}.low{color:#c8611a}.used{color:#a9c9e4}"
    ".kept{color:#d5dae0}";

/* One of a sample's numbers. */
typedef enum what { WAITING, RUNNING, SWAPPED, USED, LIVE } what;

static double number_of(const serve_sample *s, what w) {
    switch (w) {
        case WAITING: return s->waiting;
        case RUNNING: return s->running;
        case SWAPPED: return s->swapped;
        case USED: return (double)s->pages_used;
        case LIVE: return (double)(s->pages_used - s->pages_evictable);
    }
    return NAN;
}

/* Fills v[s->n], in parts of `unit`; the greatest of them. */
static double numbers_of(const serve_series *s, what w, double unit, double *v) {
    double most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        v[i] = number_of(&s->v[i], w) / unit;
        if (v[i] > most) most = v[i];
    }
    return most;
}

/* ---- CSV --------------------------------------------------------------------------------------- */

int serve_write_series(const serve_setup *setup, const serve_result *results, const char *path) {
    whole_file w;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    fputs("kv,time_s,waiting,running,swapped,pages_used,pages_evictable,pages_free,pages_high,pages_low\n", w.file);
    for (uint32_t spec = 0; spec < setup->o->load.kv.n; spec++)
        for (uint32_t i = 0; i < results[spec].series.n; i++) {
            const serve_sample *s = &results[spec].series.v[i];
            table_csv_cell(setup->o->load.kv.text[spec], w.file);
            fprintf(w.file, ",%.6f,%u,%u,%u,%llu,%llu,%llu,%llu,%llu\n", s->time_s, s->waiting, s->running, s->swapped,
                    (unsigned long long)s->pages_used, (unsigned long long)s->pages_evictable,
                    (unsigned long long)s->pages_free, (unsigned long long)s->pages_high,
                    (unsigned long long)s->pages_low);
        }
    return whole_file_close(&w);
}

/* ---- SVG --------------------------------------------------------------------------------------- */

typedef struct panel {
    FILE *file;
    const serve_series *s;
    double *x, *y, *low; /* [s->n] */
    double end_s;        /* of the longest replay */
} panel;

/* An entry of the legend right of the last; where the next begins. */
static double put_name(FILE *f, double x, const char *tone, const char *name) {
    fprintf(f,
            "<text class=\"name\" x=\"%.0f\" y=\"12\"><tspan class=\"%s\" fill=\"currentColor\">■</tspan> %s</text>\n",
            x, tone, name);
    return x + 6.6 * (double)strlen(name) + 26;
}

static void draw_requests(panel *p) {
    static const what lines[] = {WAITING, RUNNING, SWAPPED};
    static const char *const tones[] = {"s2", "s1", "s3"}, *const names[] = {"waiting", "running", "swapped"};
    double most = 0, x = 106;
    svg_plot plot;
    for (int i = 0; i < 3; i++) most = fmax(most, numbers_of(p->s, lines[i], 1, p->y));
    svg_begin(&plot, p->file, PANEL_WIDTH, PANEL_HEIGHT, "requests over time", svg_axis_linear("s", 0, p->end_s),
              svg_axis_linear("requests", 0, most));
    for (int i = 0; i < 3; i++) {
        numbers_of(p->s, lines[i], 1, p->y);
        svg_line(&plot, p->x, p->y, p->s->n, tones[i]);
    }
    for (int i = 0; i < 3; i++) x = put_name(p->file, x, tones[i], names[i]);
    svg_end(&plot);
}

/* Of the pages in use, in hundredths of the pool, those of the low format: as sequences hold them, shared ones once for
 * each holder.  Fills y; the greatest. */
static double low_pages(panel *p, double unit) {
    double most = 0;
    for (uint32_t i = 0; i < p->s->n; i++) {
        const serve_sample *s = &p->s->v[i];
        const double held = (double)(s->pages_high + s->pages_low);
        p->y[i] = held > 0 ? number_of(s, LIVE) / unit * (double)s->pages_low / held : 0;
        most = fmax(most, p->y[i]);
    }
    return most;
}

/* In hundredths of the pool. */
static void draw_pages(panel *p, uint64_t pages_total) {
    const double unit = (double)pages_total / 100;
    const uint32_t n = p->s->n;
    svg_plot plot;
    svg_begin(&plot, p->file, PANEL_WIDTH, PANEL_HEIGHT, "pages over time", svg_axis_linear("s", 0, p->end_s),
              svg_axis_linear("% of the pool", 0, 100));
    numbers_of(p->s, LIVE, unit, p->low);
    svg_area(&plot, p->x, NULL, p->low, n, "used");
    numbers_of(p->s, USED, unit, p->y);
    svg_area(&plot, p->x, p->low, p->y, n, "kept");
    const int has_low = low_pages(p, unit) > 0;
    if (has_low) svg_line(&plot, p->x, p->y, n, "low");
    double x = put_name(p->file, 130, "used", "in use");
    if (has_low) x = put_name(p->file, x, "low", "of these low");
    put_name(p->file, x, "kept", "prefixes that nobody uses");
    svg_end(&plot);
}

static void draw_spec(FILE *f, const serve_result *r, const char *spec, uint32_t row, double end_s) {
    const size_t n = r->series.n ? r->series.n : 1;
    double *v = cli_alloc(3 * n, sizeof *v);
    panel p = {f, &r->series, v, v + n, v + 2 * n, end_s};
    for (uint32_t i = 0; i < r->series.n; i++) p.x[i] = r->series.v[i].time_s;
    const int top = MARGIN + TITLE_HEIGHT + (int)row * (PANEL_HEIGHT + HEAD_HEIGHT);
    fprintf(f, "<g transform=\"translate(%d %d)\"><text class=\"title\" x=\"0\" y=\"18\">", MARGIN, top);
    svg_text(f, spec);
    fprintf(f, "</text></g>\n<g transform=\"translate(%d %d)\">\n", MARGIN, top + 26);
    draw_requests(&p);
    fprintf(f, "</g>\n<g transform=\"translate(%d %d)\">\n", MARGIN + PANEL_WIDTH, top + 26);
    draw_pages(&p, r->stats.pages_total);
    fputs("</g>\n", f);
    free(v);
}

/* Who served what, from which pool. */
static void put_title(FILE *f, const serve_options *o) {
    char pool[BYTES_CAP];
    fprintf(f, "<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 14);
    svg_text(f, o->load.model ? o->load.model : o->arch);
    fprintf(f, "%s, pool of %s, ", o->simulate ? " (simulated)" : "", print_bytes(pool, o->service.pool_bytes));
    svg_text(f, o->trace ? o->trace : o->synthetic);
    fputs("</text>\n", f);
}

int serve_write_figure(const serve_setup *setup, const serve_result *results, const char *path) {
    const uint32_t n = setup->o->load.kv.n;
    const int width = 2 * (MARGIN + PANEL_WIDTH),
              height = 2 * MARGIN + TITLE_HEIGHT + (int)n * (PANEL_HEIGHT + HEAD_HEIGHT);
    whole_file w;
    double end_s = 0;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    for (uint32_t spec = 0; spec < n; spec++) end_s = fmax(end_s, results[spec].duration_s);
    fprintf(w.file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
            width, height, width, height);
    fprintf(w.file, "<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", style);
    put_title(w.file, setup->o);
    for (uint32_t spec = 0; spec < n; spec++)
        draw_spec(w.file, &results[spec], setup->o->load.kv.text[spec], spec, end_s);
    fputs("</svg>\n", w.file);
    return whole_file_close(&w);
}
