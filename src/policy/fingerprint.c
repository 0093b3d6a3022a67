/* SPDX-License-Identifier: MIT
 *
 * fingerprint.c: the scalar variants of fingerprint.h, and the choice among all.
 */
#include "policy/fingerprint.h"

#include "hw/cpu.h"

void pleat__fingerprint_distances_ref(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                      const uint64_t *anchor, uint32_t *distances) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t distance = 0;
        for (uint32_t w = 0; w < n_words; w++)
            distance += (uint32_t)__builtin_popcountll(fingerprints[(size_t)i * n_words + w] ^ anchor[w]);
        distances[i] = distance;
    }
}

void pleat__fingerprint_majority_ref(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out) {
    for (uint32_t w = 0; w < n_words; w++) {
        uint32_t counts[64] = {0};
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t b = 0; b < 64; b++) counts[b] += fingerprints[(size_t)i * n_words + w] >> b & 1;
        out[w] = 0;
        for (uint32_t b = 0; b < 64; b++) out[w] |= (uint64_t)(counts[b] >= n - n / 2) << b;
    }
}

void pleat__fingerprint_dsp_init(pleat__fingerprint_dsp *dsp, uint32_t cpu_flags) {
    *dsp = (pleat__fingerprint_dsp){pleat__fingerprint_distances_ref, pleat__fingerprint_majority_ref};
#if PLEAT_X86
    if (!(cpu_flags & PLEAT_CPU_AVX2)) return;
    *dsp = (pleat__fingerprint_dsp){pleat__fingerprint_distances_avx2, pleat__fingerprint_majority_avx2};
    if (!(cpu_flags & PLEAT_CPU_AVX512)) return;
    *dsp = (pleat__fingerprint_dsp){pleat__fingerprint_distances_avx512, pleat__fingerprint_majority_avx512};
#else
    (void)cpu_flags;
#endif
}
