/* SPDX-License-Identifier: MIT
 *
 * fuzz_image.c: any bytes as a file of a sequence.
 *
 * What is taken, written again, is the same bytes.  That is tried with the bytes as they are, and with a sum of the head
 * and of the pieces that hold, so that most inputs reach what the sums hide.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pleat/image.h"

static void try_file(const uint8_t *bytes, size_t n) {
    pleat_image_head h, again;
    pleat_error err = {0};
    const void *body;
    uint64_t n_head = 0;
    const pleat_status status = pleat_image_check(bytes, n, &h, &body, &err);
    const pleat_status head_status = pleat_image_read_head(bytes, n, &again, &n_head, NULL);
    EXPECT(status == PLEAT_OK || (status < 0 && err.text[0]));
    EXPECT(status != PLEAT_OK || head_status == PLEAT_OK);
    if (head_status != PLEAT_OK) return;
    EXPECT(n_head <= n && pleat_image_head_bytes(&again) == n_head);
    EXPECT(pleat_image_compare(&again, &again, NULL) == PLEAT_OK);
    if (status != PLEAT_OK) return;
    uint8_t *out = malloc(n_head);
    EXPECT(out);
    EXPECT(pleat_image_write_head(&h, body, out, n_head) == PLEAT_OK);
    EXPECT(memcmp(out, bytes, n_head) == 0);
    free(out);
}

/* Make sums hold, as far as the fixed part says where they are. */
static void seal(uint8_t *bytes, size_t n) {
    uint32_t head_bytes, piece_bytes;
    uint64_t body_bytes;
    if (n < 128) return;
    memcpy(&head_bytes, bytes + 12, sizeof head_bytes);
    memcpy(&body_bytes, bytes + 16, sizeof body_bytes);
    memcpy(&piece_bytes, bytes + 24, sizeof piece_bytes);
    if (head_bytes < 128 + 16 || head_bytes > n || body_bytes != n - head_bytes || piece_bytes == 0) return;
    const uint64_t n_pieces = body_bytes ? (body_bytes - 1) / piece_bytes + 1 : 0;
    if (n_pieces > (head_bytes - 144) / 8) return;
    for (uint64_t i = 0; i < n_pieces; i++) {
        const uint64_t at = i * piece_bytes, left = body_bytes - at;
        const uint64_t sum = XXH3_64bits_withSeed(bytes + head_bytes + at, left < piece_bytes ? left : piece_bytes, i);
        memcpy(bytes + head_bytes - 16 - 8 * (n_pieces - i), &sum, sizeof sum);
    }
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, head_bytes - 16));
    memcpy(bytes + head_bytes - 16, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = aligned_alloc(8, (size + 8) / 8 * 8);
    EXPECT(bytes);
    if (size) memcpy(bytes, data, size);
    try_file(bytes, size);
    seal(bytes, size);
    try_file(bytes, size);
    free(bytes);
    return 0;
}
