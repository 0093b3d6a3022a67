/* SPDX-License-Identifier: MIT
 *
 * fuzz_stats.c: any bytes as a file of statistics.
 *
 * What is taken, written again, is the same bytes.  That is tried with the bytes as they are, and with their length and
 * a sum that holds, so that most inputs reach what the sum hides.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pleat/stats.h"

enum { SUM_BYTES = 16, SIZE_AT = 16 };

static void try_file(const uint8_t *bytes, size_t n) {
    pleat_stats *stats = NULL;
    pleat_error err = {0};
    const pleat_status status = pleat_stats_read(bytes, n, NULL, &stats, &err);
    EXPECT(status == PLEAT_OK || (status < 0 && err.text[0] && !stats));
    if (status != PLEAT_OK) return;
    EXPECT(pleat_stats_bytes(stats) == n);
    uint8_t *out = malloc(n);
    EXPECT(out);
    EXPECT(pleat_stats_write(stats, out, n) == PLEAT_OK);
    EXPECT(memcmp(out, bytes, n) == 0);
    for (uint32_t i = 0; i < pleat_stats_n_layers(stats); i++) {
        const pleat_stats_scale scale = pleat_stats_get_scale(stats, i);
        EXPECT((scale.k > 0) == (scale.v > 0) && scale.k <= PLEAT_STATS_SCALE_MAX && scale.v <= PLEAT_STATS_SCALE_MAX);
    }
    free(out);
    pleat_stats_destroy(&stats);
}

static void seal(uint8_t *bytes, size_t n) {
    const uint64_t size = n;
    if (n < SIZE_AT + sizeof size + SUM_BYTES) return;
    memcpy(bytes + SIZE_AT, &size, sizeof size);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, n - SUM_BYTES));
    memcpy(bytes + n - SUM_BYTES, &sum, SUM_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = calloc(size + 1, 1);
    EXPECT(bytes);
    if (size) memcpy(bytes, data, size);
    try_file(bytes, size);
    seal(bytes, size);
    try_file(bytes, size);
    free(bytes);
    return 0;
}
