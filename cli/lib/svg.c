/* SPDX-License-Identifier: MIT
 *
 * svg.c: see svg.h.
 */
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "utf8.h"

static const double char_px = 6.4; /* mean width of a character of the 12 px labels, on the wide side */
static const double label_px = 14; /* a label's line */
static const double dot_px = 5;    /* a point's radius */

void svg_text(FILE *file, const char *text) {
    const size_t n = strlen(text);
    utf8_stream stream = {.n_held = 0};
    char *valid = cli_alloc(UTF8_STREAM_CAP(n) + 1, 1);
    size_t n_valid = utf8_stream_put(&stream, text, n, valid);
    n_valid += utf8_stream_end(&stream, valid + n_valid);
    for (size_t i = 0; i < n_valid; i++) {
        const char c = valid[i];
        switch (c) {
            case '&': fputs("&amp;", file); break;
            case '<': fputs("&lt;", file); break;
            case '>': fputs("&gt;", file); break;
            case '"': fputs("&quot;", file); break;
            case '\'': fputs("&#39;", file); break;
            default:
                if (((unsigned char)c < 32 && c != '\n' && c != '\t') || c == 127)
                    fputs("\xEF\xBF\xBD", file);
                else
                    fputc(c, file);
        }
    }
    free(valid);
}

/* ---- axes -------------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten, so that about `n` steps or fewer make up `span`. */
static double nice_step(double span, double n) {
    const double raw = span / n, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static double finite_or_0(double v) { return isfinite(v) ? v : 0; }

svg_axis svg_axis_linear(const char *title, double min, double max) {
    min = finite_or_0(min);
    max = finite_or_0(max);
    if (!(max - min > 1e-9 * fabs(max))) {
        const double room = max == 0 ? 1 : 0.05 * fabs(max);
        max += room;
        min = min == 0 ? 0 : min - room;
    }
    const double step = nice_step(max - min, 6);
    return (svg_axis){title, SVG_LINEAR, floor(min / step + 1e-6) * step, ceil(max / step - 1e-6) * step};
}

svg_axis svg_axis_log10(const char *title, double min, double max) {
    min = floor(finite_or_0(min));
    max = ceil(finite_or_0(max));
    return (svg_axis){title, SVG_LOG10, min, max > min ? max : min + 1};
}

svg_axis svg_axis_index(const char *title, uint32_t n) {
    return (svg_axis){title, SVG_INDEX, -0.5, n ? (double)n - 0.5 : 0.5};
}

static double place(const svg_axis *a, double v) { return (v - a->min) / (a->max - a->min); }

static double x_px(const svg_plot *p, double x) { return p->left + p->width * place(&p->x, x); }

static double y_px(const svg_plot *p, double y) { return p->top + p->height * (1 - place(&p->y, y)); }

/* The distance of ticks so that they stand at least `px` apart on an axis of `length` px. */
static double tick_step(const svg_axis *a, double length, double px) {
    const double step = nice_step(a->max - a->min, fmax(1, floor(length / px)));
    return a->scale == SVG_LINEAR ? step : fmax(1, ceil(step - 1e-9));
}

#define TICK_CAP 48
static const char *tick_text(char buf[TICK_CAP], const svg_axis *a, double v, double step) {
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    const int decimals = step < 1 ? (int)fmin(6, ceil(-log10(step) - 1e-9)) : 0;
    if (fabs(v) < 1e-9 * step) v = 0; /* no -0 */
    if (a->scale != SVG_LOG10) {
        snprintf(buf, TICK_CAP, "%.*f", decimals, v);
        return buf;
    }
    char digits[16], *out = buf;
    snprintf(digits, sizeof digits, "%d", abs((int)lround(v)));
    out += snprintf(buf, TICK_CAP, "10%s", v < 0 ? "⁻" : "");
    for (const char *d = digits; *d; d++) out += snprintf(out, 4, "%s", raised[*d - '0']);
    return buf;
}

static void draw_x_axis(const svg_plot *p) {
    const double step = tick_step(&p->x, p->width, p->x.scale == SVG_INDEX ? 22 : 62), bottom = p->top + p->height;
    char buf[TICK_CAP];
    for (int64_t i = (int64_t)ceil(p->x.min / step - 1e-6); (double)i * step <= p->x.max + 1e-6 * step; i++) {
        const double x = x_px(p, (double)i * step);
        if (p->x.scale != SVG_INDEX)
            fprintf(p->file, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", x, p->top, bottom);
        fprintf(p->file, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x,
                bottom + 16, tick_text(buf, &p->x, (double)i * step, step));
    }
    fprintf(p->file, "<path class=\"axis\" d=\"M%.1f %.1fh%.1f\"/>", p->left, bottom, p->width);
    fprintf(p->file, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", p->left + p->width / 2,
            bottom + 34);
    svg_text(p->file, p->x.title);
    fputs("</text>\n", p->file);
}

static void draw_y_axis(const svg_plot *p) {
    const double step = tick_step(&p->y, p->height, 34);
    char buf[TICK_CAP];
    for (int64_t i = (int64_t)ceil(p->y.min / step - 1e-6); (double)i * step <= p->y.max + 1e-6 * step; i++) {
        const double y = y_px(p, (double)i * step);
        fprintf(p->file, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>", p->left, y, p->width);
        fprintf(p->file, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", p->left - 6,
                y + 4, tick_text(buf, &p->y, (double)i * step, step));
    }
    fprintf(p->file, "<text class=\"name\" x=\"2\" y=\"12\">");
    svg_text(p->file, p->y.title);
    fputs("</text>\n", p->file);
}

void svg_begin(svg_plot *p, FILE *file, double width, double height, const char *label, svg_axis x, svg_axis y) {
    enum { LEFT = 46, RIGHT = 14, TOP = 24, BOTTOM = 40 };
    *p = (svg_plot){file, LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM, x, y};
    fprintf(file, "<svg role=\"img\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" aria-label=\"", width,
            height, width, height);
    svg_text(file, label);
    fputs("\">\n", file);
    draw_y_axis(p);
    draw_x_axis(p);
}

void svg_end(svg_plot *p) { fputs("</svg>\n", p->file); }

/* ---- shapes ------------------------------------------------------------------------------------ */

static void put_path(const svg_plot *p, const double *x, const double *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) fprintf(p->file, "%s%.1f %.1f", i ? "L" : "M", x_px(p, x[i]), y_px(p, y[i]));
}

void svg_line(const svg_plot *p, const double *x, const double *y, uint32_t n, const char *tone) {
    fprintf(p->file, "<path class=\"line %s\" d=\"", tone);
    put_path(p, x, y, n);
    fputs("\"/>\n", p->file);
}

void svg_area(const svg_plot *p, const double *x, const double *low, const double *high, uint32_t n, const char *tone) {
    if (!n) return;
    fprintf(p->file, "<path class=\"area %s\" d=\"", tone);
    put_path(p, x, high, n);
    for (uint32_t i = n; i-- > 0;)
        fprintf(p->file, "L%.1f %.1f", x_px(p, x[i]), low ? y_px(p, low[i]) : p->top + p->height);
    fputs("Z\"/>\n", p->file);
}

static void put_hint(FILE *file, const char *hint) {
    if (!hint) return;
    fputs("<title>", file);
    svg_text(file, hint);
    fputs("</title>", file);
}

void svg_bar(const svg_plot *p, double x, double low, double high, const char *tone, const char *hint) {
    const double slot = p->width / (p->x.max - p->x.min), width = slot * 0.72;
    fprintf(p->file, "<rect class=\"area %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">", tone,
            x_px(p, x) - width / 2, y_px(p, high), width, fmax(0, y_px(p, low) - y_px(p, high)));
    put_hint(p->file, hint);
    fputs("</rect>\n", p->file);
}

void svg_whisker(const svg_plot *p, double x, double mean, double sd) {
    if (!isfinite(mean) || !(sd > 0)) return;
    const double at = x_px(p, x), cap = fmin(4, 0.2 * p->width / (p->x.max - p->x.min));
    const double top = y_px(p, fmin(mean + sd, p->y.max)), bottom = y_px(p, fmax(mean - sd, p->y.min));
    fprintf(p->file, "<path class=\"whisker\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh%.1fM%.1f %.1fh%.1f\"/>\n", at, top, bottom,
            at - cap, top, 2 * cap, at - cap, bottom, 2 * cap);
}

void svg_rule_y(const svg_plot *p, double y, const char *label) {
    const double at = y_px(p, y);
    fprintf(p->file, "<path class=\"rule\" d=\"M%.1f %.1fh%.1f\"/>", p->left, at, p->width);
    fprintf(p->file, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">", p->left + 4,
            at - p->top < label_px ? at + 13 : at - 4); /* below the line where the box ends above it */
    svg_text(p->file, label);
    fputs("</text>\n", p->file);
}

void svg_rule_x(const svg_plot *p, double x, const char *label) {
    const double at = x_px(p, x);
    const int is_left = at < p->left + p->width / 2; /* the label stands on the roomier side */
    fprintf(p->file, "<path class=\"rule\" d=\"M%.1f %.1fv%.1f\"/>", at, p->top, p->height);
    fprintf(p->file, "<text class=\"note\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", is_left ? at + 4 : at - 4,
            p->top + 12, is_left ? "start" : "end");
    svg_text(p->file, label);
    fputs("</text>\n", p->file);
}

/* ---- labelled points --------------------------------------------------------------------------- */

typedef struct box {
    double x, y, width, height;
} box;

static double overlap(box a, box b) {
    const double w = fmin(a.x + a.width, b.x + b.width) - fmax(a.x, b.x);
    const double h = fmin(a.y + a.height, b.y + b.height) - fmax(a.y, b.y);
    return w > 0 && h > 0 ? w * h : 0;
}

static box dot_box(const svg_plot *p, const svg_point *point) {
    return (box){x_px(p, point->x) - dot_px, y_px(p, point->y) - dot_px, 2 * dot_px, 2 * dot_px};
}

/* The label's place number `at`: right, left, above, below, then the corners and the same farther off. */
static box label_box(const svg_plot *p, const svg_point *point, uint32_t at) {
    static const signed char dx[] = {1, -1, 0, 0, 1, 1, -1, -1}, dy[] = {0, 0, -1, 1, -1, 1, -1, 1};
    const double far = dot_px + 2 + 11 * (at / 8), width = char_px * (double)strlen(point->label);
    const int right = dx[at % 8], down = dy[at % 8];
    const double x = x_px(p, point->x) + right * far - (right < 0 ? width : right ? 0 : width / 2);
    const double y = y_px(p, point->y) + down * far - (down < 0 ? label_px : down ? 0 : label_px / 2);
    return (box){x, y, width, label_px};
}

static const double gap_px = 5; /* between labels side by side */

/* What a label there would cover, px^2; outside the box counts most. */
static double cost_of(const svg_plot *p, box b, const box *taken, uint32_t n_taken) {
    const box all = {p->left, p->top, p->width, p->height};
    double cost = 10 * (b.width * b.height - overlap(b, all));
    const box wide = {b.x - gap_px, b.y, b.width + 2 * gap_px, b.height}; /* else 3 beside 6 reads as 36 */
    for (uint32_t i = 0; i < n_taken; i++) cost += overlap(wide, taken[i]);
    return cost;
}

static box place_label(const svg_plot *p, const svg_point *point, const box *taken, uint32_t n_taken) {
    box best = label_box(p, point, 0);
    double best_cost = INFINITY;
    for (uint32_t at = 0; at < 24; at++) {
        const box b = label_box(p, point, at);
        const double cost = cost_of(p, b, taken, n_taken) + 0.5 * at; /* near places first */
        if (cost < best_cost) best = b, best_cost = cost;
    }
    return best;
}

static void draw_point(const svg_plot *p, const svg_point *point, box label) {
    const double x = x_px(p, point->x), y = y_px(p, point->y), middle = label.x + label.width / 2;
    if (fabs(middle - x) > label.width / 2 + 2 * dot_px || fabs(label.y + label_px / 2 - y) > label_px / 2 + 2 * dot_px)
        fprintf(p->file, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x, y, middle, label.y + label_px / 2);
    fprintf(p->file, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", point->tone, x, y, dot_px);
    put_hint(p->file, point->hint);
    fprintf(p->file, "</circle><text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", middle,
            label.y + label_px - 3);
    svg_text(p->file, point->label);
    fputs("</text>\n", p->file);
}

void svg_points(const svg_plot *p, const svg_point *points, uint32_t n) {
    box taken[2 * SVG_POINTS_CAP];
    uint32_t n_taken = 0;
    for (uint32_t i = 0; i < n; i++)
        if (isfinite(points[i].x) && isfinite(points[i].y)) taken[n_taken++] = dot_box(p, &points[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(points[i].x) || !isfinite(points[i].y)) continue;
        taken[n_taken] = place_label(p, &points[i], taken, n_taken);
        draw_point(p, &points[i], taken[n_taken++]);
    }
}
