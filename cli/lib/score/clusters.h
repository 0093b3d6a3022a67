/* SPDX-License-Identifier: MIT
 *
 * clusters.h: a quotient of two sums, and its standard error, where what is summed comes in clusters: turns in samples,
 * tokens in windows.  Clusters are taken as independent of each other, and what is within one not.
 *
 *     ratio    R = sum of x / sum of y
 *     error    sqrt(n/(n-1) * sum of (x - R*y)^2) / sum of y
 */
#ifndef PLEAT_CLI_CLUSTERS_H
#define PLEAT_CLI_CLUSTERS_H

#include <stdint.h>

typedef struct clusters {
    uint64_t n;
    double x, y, xx, xy, yy; /* sums over the clusters */
} clusters;

/* Add a cluster of y things that come to x together. */
void clusters_add(clusters *c, double x, double y);

/* NAN where nothing was counted. */
double clusters_ratio(const clusters *c);

/* NAN below two clusters. */
double clusters_error(const clusters *c);

#endif
