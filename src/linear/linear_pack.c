/* SPDX-License-Identifier: MIT
 *
 * linear_pack.c: quantised matrices from the file's layout, blocks of 32 weights with their scale, to strips (linear.h), and from
 * strips to f32.
 */
#include <string.h>

#include "core/half.h"
#include "linear/linear.h"

#define ROWS PLEAT__STRIP_ROWS

uint64_t pleat__linear_packed_bytes(const pleat__matrix *w) {
    if (!pleat__is_quantised(w->type)) return 0;
    return (uint64_t)pleat__div_up_u32(w->rows, ROWS) * ROWS * w->row_bytes;
}

/* 4 bytes of codes for columns 4g..4g+3 of a block; of Q4_0 for 8g..8g+3 and, in the high nibbles, the next four. */
static uint32_t codes_of(pleat__weight_type type, const uint8_t *block, uint32_t g) {
    uint32_t a, b;
    if (type == PLEAT__W_Q8_0) {
        memcpy(&a, block + 2 + 4 * g, sizeof a);
        return a ^ 0x80808080u;
    }
    memcpy(&a, block + 2 + 8 * (g % 2), sizeof a); /* low nibbles are the block's columns 0..15, high ones 16..31 */
    memcpy(&b, block + 6 + 8 * (g % 2), sizeof b);
    const uint32_t shift = g < 2 ? 0 : 4;
    return (a >> shift & 0x0F0F0F0Fu) | (b >> shift & 0x0F0F0F0Fu) << 4;
}

/* 16 rows, of which the first n are there; `rows` is the first one's start. */
static void pack_strip(const pleat__matrix *w, const uint8_t *rows, uint32_t n, uint8_t *out) {
    const uint32_t n_blocks = w->cols / PLEAT__WEIGHT_BLOCK;
    const uint32_t block_bytes = w->type == PLEAT__W_Q8_0 ? PLEAT__Q8_0_BYTES : PLEAT__Q4_0_BYTES;
    const uint32_t n_groups = (block_bytes - 2) / 4;
    uint8_t *scales = out + (size_t)n_blocks * n_groups * 4 * ROWS;
    if (n < ROWS) memset(out, 0, ROWS * w->row_bytes);
    for (uint32_t b = 0; b < n_blocks; b++, scales += 2 * ROWS) {
        const uint8_t *block = rows + (size_t)b * block_bytes;
        for (uint32_t r = 0; r < n; r++) memcpy(scales + 2 * (size_t)r, block + r * w->row_bytes, 2);
        for (uint32_t g = 0; g < n_groups; g++, out += 4 * ROWS)
            for (uint32_t r = 0; r < n; r++) {
                const uint32_t codes = codes_of(w->type, block + r * w->row_bytes, g);
                memcpy(out + 4 * (size_t)r, &codes, sizeof codes);
            }
    }
}

void pleat__linear_pack(const pleat__matrix *w, uint32_t strip_from, uint32_t strip_to, uint8_t *packed) {
    for (uint32_t strip = strip_from; strip < strip_to; strip++) {
        const size_t at = (size_t)strip * ROWS * w->row_bytes;
        pack_strip(w, w->data + at, pleat__min_u32(ROWS, w->rows - strip * ROWS), packed + at);
    }
}

/* Column c of row r of a strip, whose codes are at p. */
static int32_t weight_at(pleat__weight_type type, const uint8_t *p, uint32_t r, uint32_t c) {
    if (type == PLEAT__W_Q8_0) return p[(size_t)(c / 4) * 4 * ROWS + 4 * r + c % 4] - 128;
    const uint8_t both = p[(size_t)(c / 8) * 4 * ROWS + 4 * r + c % 4];
    return (c % 8 < 4 ? both & 15 : both >> 4) - 8;
}

void pleat__linear_unpack(const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    const size_t code_bytes = (size_t)w->cols * ROWS / (w->type == PLEAT__W_Q8_0 ? 1 : 2);
    for (uint32_t row = row_from; row < row_to; row++) {
        const uint32_t r = row % ROWS;
        const uint8_t *codes = w->data + (row - r) * w->row_bytes, *scales = codes + code_bytes + 2 * (size_t)r;
        for (uint32_t b = 0; b < w->cols; b += PLEAT__WEIGHT_BLOCK, scales += 2 * ROWS) {
            uint16_t half;
            memcpy(&half, scales, sizeof half);
            const float scale = pleat__f16_to_f32(half);
            for (uint32_t c = b; c < b + PLEAT__WEIGHT_BLOCK; c++)
                *out++ = scale * (float)weight_at(w->type, codes, r, c);
        }
    }
}
