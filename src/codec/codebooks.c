/* SPDX-License-Identifier: MIT
 *
 * codebooks.c: the codebooks of a format: made from counts; and as bytes, with the format that they are for.
 *
 *     bytes   head (16 bytes) | K codebook, V codebook: only if the coder is HUFFMAN | sum u32
 *     head    "PLCB" | version u8 | coder u8 | units u8 | 0 u8 | T u16 | d u16 | g u16 | K levels - 1 u8 |
 *             V levels - 1 u8
 *             units: keys by channel | K compact << 1 | V compact << 2
 *     sum     XXH32 (seed 0) of all bytes before it
 *
 * A head says all that decides whether a payload can be read, and nothing else: a spec's `buffer` is not in it, nor are
 * step sizes beyond the levels that they make.  The sum is the seed of payloads' sums, so that each belongs to one
 * format and one pair of codebooks.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/internal.h"
#include "core/error.h"

#define HEAD_BYTES 16u
#define SUM_BYTES 4u
#define VERSION 1u
static const uint8_t magic[4] = {'P', 'L', 'C', 'B'};

static void put_u16(uint8_t *at, uint32_t x) {
    at[0] = (uint8_t)x;
    at[1] = (uint8_t)(x >> 8);
}

static void put_head(const pleat__block_format *f, uint8_t head[HEAD_BYTES]) {
    memcpy(head, magic, sizeof magic);
    head[4] = VERSION;
    head[5] = (uint8_t)f->coder;
    head[6] = (uint8_t)(f->by_channel | f->k_on_grids << 1 | f->v_on_grids << 2);
    head[7] = 0;
    put_u16(head + 8, f->tokens);
    put_u16(head + 10, f->head_dim);
    put_u16(head + 12, f->v_group);
    head[14] = (uint8_t)(f->k_levels - 1);
    head[15] = (uint8_t)(f->v_levels - 1);
}

/* ---- making and writing ------------------------------------------------------------------------------ */

#define CODEBOOK_CAP (PLEAT__CODEBOOK_HEAD_BYTES + PLEAT__CODEBOOK_SYMBOLS)

/* All but the sum; returns the bytes. */
static size_t put_body(const pleat__block_format *f, const pleat__block_codebooks *codebooks, uint8_t *out) {
    size_t n = HEAD_BYTES;
    put_head(f, out);
    if (f->coder != PLEAT__CODER_HUFFMAN) return n;
    n += pleat__codebook_write(&codebooks->k, out + n);
    return n + pleat__codebook_write(&codebooks->v, out + n);
}

void pleat__block_codebooks_build(const pleat__block_format *f, const pleat__code_counts *k_counts,
                                  const pleat__code_counts *v_counts, pleat__block_codebooks *codebooks) {
    uint8_t body[HEAD_BYTES + 2 * CODEBOOK_CAP];
    pleat__codebook_build(&codebooks->k, k_counts, f->k_levels);
    pleat__codebook_build(&codebooks->v, v_counts, f->v_levels);
    codebooks->sum = XXH32(body, put_body(f, codebooks, body), 0);
}

uint32_t pleat__block_seed(const pleat__block_format *f, const pleat__block_codebooks *codebooks) {
    uint8_t head[HEAD_BYTES];
    if (f->coder == PLEAT__CODER_HUFFMAN) return codebooks->sum;
    put_head(f, head);
    return XXH32(head, sizeof head, 0);
}

size_t pleat__block_codebooks_cap(const pleat__block_format *f) {
    if (f->coder != PLEAT__CODER_HUFFMAN) return HEAD_BYTES + SUM_BYTES;
    return HEAD_BYTES + pleat__codebook_bytes_cap(f->k_levels) + pleat__codebook_bytes_cap(f->v_levels) + SUM_BYTES;
}

size_t pleat__block_codebooks_write(const pleat__block_format *f, const pleat__block_codebooks *codebooks,
                                    uint8_t *out) {
    const size_t n = put_body(f, codebooks, out);
    const uint32_t sum = pleat__block_seed(f, codebooks);
    put_u16(out + n, sum);
    put_u16(out + n + 2, sum >> 16);
    return n + SUM_BYTES;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* Numbers of a head, as messages name them: bytes `at` to at + n_bytes hold them, less `less`. */
static const struct {
    const char *name;
    uint8_t at, n_bytes, less;
} fields[] = {
    {"coder (0 RAW, 1 HUFFMAN, 2 PACK)", 5, 1, 0},
    {"kinds of units (1 by channel, 2 compact keys, 4 compact values)", 6, 1, 0},
    {"byte 7", 7, 1, 0},
    {"tokens of a block", 8, 2, 0},
    {"head_dim", 10, 2, 0},
    {"values of a unit", 12, 2, 0},
    {"K levels", 14, 1, 1},
    {"V levels", 15, 1, 1},
};

static uint32_t number_at(const uint8_t *at, uint32_t n_bytes) { return n_bytes == 2 ? at[0] | at[1] << 8 : at[0]; }

/* Is the head this format's? */
static pleat_status check_head(const pleat__block_format *f, const uint8_t *head, pleat_error *err) {
    uint8_t own[HEAD_BYTES];
    put_head(f, own);
    for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const uint32_t at = fields[i].at, n_bytes = fields[i].n_bytes;
        const uint32_t theirs = number_at(head + at, n_bytes), ours = number_at(own + at, n_bytes);
        PLEAT_FAIL_IF(theirs != ours, err, PLEAT_E_FORMAT, at,
                      "codebooks of another spec or head_dim: their %s: %u; this codec's: %u", fields[i].name,
                      theirs + fields[i].less, ours + fields[i].less);
    }
    return PLEAT_OK;
}

/* The codebook of n_levels at *at, before `end`; moves *at behind it. */
static pleat_status read_codebook(const uint8_t *bytes, size_t *at, size_t end, uint32_t n_levels, char which,
                                  pleat__codebook *codebook, pleat_error *err) {
    const size_t n = pleat__codebook_read(codebook, bytes + *at, end - *at);
    PLEAT_FAIL_IF(n == 0 || codebook->n_levels != n_levels || !pleat__codebook_is_plain(codebook), err, PLEAT_E_FORMAT,
                  *at, "codebooks: %c's is no codebook of %u levels", which, n_levels);
    *at += n;
    return PLEAT_OK;
}

pleat_status pleat__block_codebooks_read(const pleat__block_format *f, const uint8_t *bytes, size_t n_bytes,
                                         pleat__block_codebooks *codebooks, pleat_error *err) {
    PLEAT_FAIL_IF(n_bytes < HEAD_BYTES + SUM_BYTES, err, PLEAT_E_FORMAT, n_bytes,
                  "codebooks: they end after %llu bytes, and have at least %u", (unsigned long long)n_bytes,
                  HEAD_BYTES + SUM_BYTES);
    PLEAT_FAIL_IF(memcmp(bytes, magic, sizeof magic) != 0, err, PLEAT_E_FORMAT, 0,
                  "codebooks: the bytes do not begin with PLCB: they are something else");
    PLEAT_FAIL_IF(bytes[4] != VERSION, err, PLEAT_E_FORMAT, 4, "codebooks: version %u; this library reads version %u",
                  bytes[4], VERSION);
    size_t at = HEAD_BYTES;
    const size_t end = n_bytes - SUM_BYTES;
    const uint32_t sum = number_at(bytes + end, 2) | number_at(bytes + end + 2, 2) << 16;
    PLEAT_FAIL_IF(sum != XXH32(bytes, end, 0), err, PLEAT_E_FORMAT, end,
                  "codebooks: damaged or cut: their sum does not hold");
    PLEAT_TRY(check_head(f, bytes, err));
    pleat__block_codebooks all;
    if (f->coder == PLEAT__CODER_HUFFMAN) {
        PLEAT_TRY(read_codebook(bytes, &at, end, f->k_levels, 'K', &all.k, err));
        PLEAT_TRY(read_codebook(bytes, &at, end, f->v_levels, 'V', &all.v, err));
        all.sum = sum;
    }
    PLEAT_FAIL_IF(at != end, err, PLEAT_E_FORMAT, at, "codebooks: %llu bytes more than they have",
                  (unsigned long long)(end - at));
    if (f->coder == PLEAT__CODER_HUFFMAN) *codebooks = all;
    return PLEAT_OK;
}
