/* SPDX-License-Identifier: MIT
 *
 * stats.c: see stats.h.
 */
#include "stats.h"

#include <math.h>

void moments_add(moments *m, double v) {
    const double gap = v - m->mean;
    m->n++;
    m->mean += gap / (double)m->n;
    m->m2 += gap * (v - m->mean);
}

double moments_sd(const moments *m) { return m->n > 1 ? sqrt(m->m2 / (double)(m->n - 1)) : 0; }

void log_histogram_add(log_histogram *h, double v) {
    if (!(v > 0) || !isfinite(v)) {
        h->n_zero++;
        return;
    }
    const double at = log10(v);
    const int bin = (int)floor(fmin(fmax(at - LOG_FLOOR, 0), LOG_TOP - LOG_FLOOR) * LOG_BINS_PER_DECADE);
    h->bins[bin < LOG_BINS ? bin : LOG_BINS - 1]++;
    if (!h->n || at < h->min) h->min = at;
    if (!h->n || at > h->max) h->max = at;
    h->n++;
}

double log_histogram_quantile(const log_histogram *h, double at) {
    uint64_t below = 0;
    for (int i = 0; i < LOG_BINS && h->n; i++) {
        below += h->bins[i];
        if ((double)below >= at * (double)h->n && below) return LOG_FLOOR + (i + 0.5) / LOG_BINS_PER_DECADE;
    }
    return 0;
}

double log_histogram_share(const log_histogram *h, double from, int per_decade) {
    const long first = lround((from - LOG_FLOOR) * LOG_BINS_PER_DECADE), n = LOG_BINS_PER_DECADE / per_decade;
    uint64_t count = 0;
    for (long i = first; i < first + n; i++)
        if (i >= 0 && i < LOG_BINS) count += h->bins[i];
    return h->n ? (double)count / (double)h->n : 0;
}
