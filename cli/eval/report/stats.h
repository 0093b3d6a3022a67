/* SPDX-License-Identifier: MIT
 *
 * stats.h: sums that the report keeps: mean and deviation, and histograms over many orders of magnitude.
 */
#ifndef PLEAT_CLI_REPORT_STATS_H
#define PLEAT_CLI_REPORT_STATS_H

#include <stdint.h>

/* Mean and deviation of values as they come (Welford 1962). */
typedef struct moments {
    uint64_t n;
    double mean, m2; /* m2: sum of squared distances from the mean */
} moments;

void moments_add(moments *m, double v);

/* Standard deviation of the values, n - 1 in the quotient; 0 for fewer than two. */
double moments_sd(const moments *m);

/* Counts of positive values by their base-10 logarithm. */
enum {
    LOG_BINS_PER_DECADE = 20,
    LOG_FLOOR = -30, /* decades: smaller values count in the first bin, greater ones than 10^TOP in the last */
    LOG_TOP = 10,
    LOG_BINS = (LOG_TOP - LOG_FLOOR) * LOG_BINS_PER_DECADE,
};

typedef struct log_histogram {
    uint64_t n, n_zero; /* positive values; the others */
    double min, max;    /* of the positive ones, as logarithms; exact */
    uint32_t bins[LOG_BINS];
} log_histogram;

void log_histogram_add(log_histogram *h, double v);

/* The logarithm that a share `at` (0..1) of the positive values stays below, to a bin's width.  0 without values. */
double log_histogram_quantile(const log_histogram *h, double at);

/* Share of the positive values with logarithms in [from, from + 1/per_decade), per_decade a divisor of
 * LOG_BINS_PER_DECADE and from a multiple of its inverse. */
double log_histogram_share(const log_histogram *h, double from, int per_decade);

#endif
