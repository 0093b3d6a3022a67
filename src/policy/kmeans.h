/* SPDX-License-Identifier: MIT
 *
 * kmeans.h: Lloyd's algorithm on fingerprints (fingerprint.h) as vectors of zeros and ones: the clustering that kvcrush
 * is compared with (KVCrush, Figure 3).
 *
 *     seeds       fingerprint j*n/k for cluster j = 0 .. k-1
 *     assign      each fingerprint to the nearest centroid, the lower cluster among equals
 *     relocate    each cluster that is left empty, in their order, takes the fingerprint that is farthest from its centroid,
 *                 of those that are not alone in their cluster; the first among equals.  So none stays empty
 *     update      centroids = means
 *
 * until no fingerprint changes its cluster, 300 rounds at most.  Squared distances that differ by less than 1e-9 are
 * equal.  O(n * k * bits) a round, by intent without any trick that only fingerprints allow.
 */
#ifndef PLEAT_POLICY_KMEANS_H
#define PLEAT_POLICY_KMEANS_H

#include "core/memory.h"

#define PLEAT__KMEANS_ROUNDS 300u

/* Its memory. */
typedef struct pleat__kmeans {
    uint32_t *sums;      /* [k][n_bits]: how many fingerprints of the cluster have the bit */
    uint32_t *sizes;     /* [k] fingerprints of the cluster */
    double *norms;       /* [k] squared length of the centroid */
    uint32_t *clusters;  /* [n] of each fingerprint */
    uint32_t *before;    /* [n] of each fingerprint a round ago */
    double *distances;   /* [n] squared, to the cluster's centroid */
    uint32_t *bits_set;  /* [n_bits] of the fingerprint at hand */
    uint32_t n_bits_set; /* entries of bits_set */
} pleat__kmeans;

/* For k <= n <= n_cap, n_bits <= bits_cap, n * n_bits <= all_bits_cap. */
void pleat__kmeans_carve(pleat__kmeans *km, uint64_t n_cap, uint64_t bits_cap, uint64_t all_bits_cap,
                         pleat__arena *arena);

/* nearest[j]: the fingerprint of cluster j that is nearest its centroid, the first among equals.  1 <= k <= n. */
void pleat__kmeans_run(pleat__kmeans *km, const uint64_t *fingerprints, uint32_t n, uint32_t n_bits, uint32_t k,
                       uint32_t *nearest);

#endif
