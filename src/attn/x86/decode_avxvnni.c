/* SPDX-License-Identifier: MIT
 *
 * decode_avxvnni.c: decode attention of integers with 256-bit registers and AVX-VNNI's dot product; the walk and the
 * softmax are those of decode_avx2.c.
 */
#include "attn/x86/decode_integer_avx2.h"

KEYS_ALL_HEADS(2, integer)
KEYS_ALL_HEADS(4, integer)
KEYS_ALL_HEADS(8, integer)
KEYS_ALL_HEADS(12, integer)
KEYS_ALL_HEADS(13, integer)
KEYS_ALL_HEADS(14, integer)
VALUES_ALL_HEADS(2, integer)
VALUES_ALL_HEADS(4, integer)
VALUES_ALL_HEADS(8, integer)
VALUES_ALL_HEADS(12, integer)
VALUES_ALL_HEADS(13, integer)
VALUES_ALL_HEADS(14, integer)

static const pleat__keys_avx2_fn keys[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL}, ROW(keys, 2), ROW(keys, 4), ROW(keys, 8), {NULL}, {NULL}, ROW(keys, 12), ROW(keys, 13), ROW(keys, 14)};
static const pleat__values_avx2_fn values[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL}, ROW(values, 2),  ROW(values, 4),  ROW(values, 8), {NULL},
    {NULL}, ROW(values, 12), ROW(values, 13), ROW(values, 14)};

void pleat__attn_decode_avxvnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    const pleat_format f = run->layout->format;
    if (pleat__format_is_quantised(f))
        pleat__decode_walk_avx2(keys[pleat__decode_row(f.k_bits, f.rotated)],
                                values[pleat__decode_row(f.v_bits, f.rotated)], query, run, slot_from, slot_to, acc,
                                logits, logits_stride);
    else
        pleat__attn_decode_avx2(query, run, slot_from, slot_to, acc, logits, logits_stride);
}

void pleat__attn_decode_avx512_avxvnni(const pleat__attn_query *query, const pleat__kv_run *run, uint32_t slot_from,
                                       uint32_t slot_to, pleat__attn_acc *acc, float *logits, size_t logits_stride) {
    if (pleat__format_is_quantised(run->layout->format))
        pleat__attn_decode_avxvnni(query, run, slot_from, slot_to, acc, logits, logits_stride);
    else
        pleat__attn_decode_avx512(query, run, slot_from, slot_to, acc, logits, logits_stride);
}
