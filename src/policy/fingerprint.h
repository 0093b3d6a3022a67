/* SPDX-License-Identifier: MIT
 *
 * fingerprint.h: sets of bit vectors, as kvcrush compares tokens by: how far each is from one, and what most of them
 * have.  A fingerprint is n_words 64-bit words; n of them stand side by side.  Bit b is bit b % 64 of word b / 64; bits
 * that stand for nothing are 0.  All variants give the same numbers.
 */
#ifndef PLEAT_POLICY_FINGERPRINT_H
#define PLEAT_POLICY_FINGERPRINT_H

#include "core/types.h"

/* distances[i] = number of bits in which fingerprint i differs from the anchor [n_words].  n_words >= 1. */
typedef void (*pleat__fingerprint_distances_fn)(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                                const uint64_t *anchor, uint32_t *distances);

/* out[n_words]: a bit is set if at least half of the n fingerprints have it.  n >= 1. */
typedef void (*pleat__fingerprint_majority_fn)(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                               uint64_t *out);

typedef struct pleat__fingerprint_dsp {
    pleat__fingerprint_distances_fn distances;
    pleat__fingerprint_majority_fn majority;
} pleat__fingerprint_dsp;

void pleat__fingerprint_distances_ref(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                      const uint64_t *anchor, uint32_t *distances);
void pleat__fingerprint_majority_ref(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out);
void pleat__fingerprint_distances_avx2(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                       const uint64_t *anchor, uint32_t *distances);
void pleat__fingerprint_majority_avx2(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out);
void pleat__fingerprint_distances_avx512(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                         const uint64_t *anchor, uint32_t *distances);
void pleat__fingerprint_majority_avx512(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out);

/* Fill the table with the best variants for these CPU flags (pleat_cpu_flags()). */
void pleat__fingerprint_dsp_init(pleat__fingerprint_dsp *dsp, uint32_t cpu_flags);

#endif
