/* SPDX-License-Identifier: MIT
 *
 * svg.h: plots as inline SVG: a box with two axes, and lines, areas, bars and labelled points in it.
 *
 *     svg_begin(axes) -> svg_line, svg_area, svg_bar, svg_points, ... in values of the axes -> svg_end
 *
 * Colours and fonts are the page's: shapes carry classes and no colour.  `tone` names the class that gives a shape its
 * colour (CSS `color`); the shape's own class says what is done with it: .area and .dot are filled, .line is drawn.
 * Numbers go out as printf writes them in the C locale.
 */
#ifndef PLEAT_CLI_SVG_H
#define PLEAT_CLI_SVG_H

#include <stdint.h>
#include <stdio.h>

typedef enum svg_scale {
    SVG_LINEAR,
    SVG_LOG10, /* values are base-10 logarithms; ticks stand at whole ones and read as powers of ten */
    SVG_INDEX, /* 0, 1, .. in whole numbers: a place for each bar */
} svg_scale;

typedef struct svg_axis {
    const char *title;
    svg_scale scale;
    double min, max; /* min < max */
} svg_axis;

/* An axis from min to max, and on to the next ticks.  Values that are not finite count as 0; an empty range gets wider. */
svg_axis svg_axis_linear(const char *title, double min, double max);
svg_axis svg_axis_log10(const char *title, double min, double max);
svg_axis svg_axis_index(const char *title, uint32_t n);

typedef struct svg_plot {
    FILE *file;
    double left, top, width, height; /* the box between the axes, px */
    svg_axis x, y;
} svg_plot;

/* Open an <svg> of that size with its axes.  `label` says what it shows to those who cannot see it. */
void svg_begin(svg_plot *p, FILE *file, double width, double height, const char *label, svg_axis x, svg_axis y);
void svg_end(svg_plot *p);

void svg_line(const svg_plot *p, const double *x, const double *y, uint32_t n, const char *tone);

/* Between low and high; low NULL: from the bottom. */
void svg_area(const svg_plot *p, const double *x, const double *low, const double *high, uint32_t n, const char *tone);

/* A bar at index x from `low` to `high`; `hint` (or NULL) shows under the pointer. */
void svg_bar(const svg_plot *p, double x, double low, double high, const char *tone, const char *hint);

/* A whisker of mean +- sd at index x, cut at the box. */
void svg_whisker(const svg_plot *p, double x, double mean, double sd);

/* A dashed line across at y, or up at x, with a label. */
void svg_rule_y(const svg_plot *p, double y, const char *label);
void svg_rule_x(const svg_plot *p, double x, const char *label);

typedef struct svg_point {
    double x, y; /* not drawn unless both are finite */
    const char *label, *hint, *tone;
} svg_point;

/* Points with their labels beside them, each where it covers least of the others.  n <= SVG_POINTS_CAP. */
#define SVG_POINTS_CAP 64
void svg_points(const svg_plot *p, const svg_point *points, uint32_t n);

/* Text for HTML: markup characters escaped, bytes that are no text as U+FFFD. */
void svg_text(FILE *file, const char *text);

#endif
