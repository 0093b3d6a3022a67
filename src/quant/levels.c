/* SPDX-License-Identifier: MIT
 *
 * levels.c: see levels.h.  One implementation for every CPU: a token's codes are made sixteen at a time in loops that
 * compilers turn into vector instructions.
 */
#include "quant/levels.h"

#include <math.h>
#include <string.h>

#include "core/dot.h"
#include "core/half.h"
#include "quant/variants.h"

const int8_t pleat__levels[5][16] = {[2] = PLEAT__LEVELS_2, [3] = PLEAT__LEVELS_3, [4] = PLEAT__LEVELS_4};
static const float largest[5] = PLEAT__LARGEST_LEVELS;

/* ---- where codes stand ------------------------------------------------------------------------------------------- */

/* A code: its low two bits (all four of a code of 4) and, of 3 bits, its third. */
typedef struct place {
    uint32_t byte, shift;
    uint32_t third_byte, third_shift;
} place;

/* Of a plane `plane` of byte `at` of the tile's low bits, which take low_bytes. */
static place place_of(uint32_t bits, uint32_t low_bytes, uint32_t at, uint32_t plane) {
    const uint32_t line = at / 64, in_line = at % 64;
    return (place){at, (bits == 4 ? 4 : 2) * plane, low_bytes + line * 32 + in_line % 32, plane + 4 * (in_line / 32)};
}

static place place_of_key(uint32_t bits, uint32_t head_dim, uint32_t dim, uint32_t token) {
    const uint32_t per = bits == 4 ? 2 : 4;
    return place_of(bits, 4 * head_dim, dim / (4 * per) * 64 + token * 4 + dim % 4, dim / 4 % per);
}

static place place_of_value(uint32_t bits, uint32_t head_dim, uint32_t dim, uint32_t token) {
    const uint32_t per = bits == 4 ? 2 : 4;
    return place_of(bits, 4 * head_dim, token / (4 * per) * 4 * head_dim + dim * 4 + token % 4, token / 4 % per);
}

static uint32_t get_code(const uint8_t *tile, place at, uint32_t bits) {
    if (bits == 4) return tile[at.byte] >> at.shift & 15;
    const uint32_t third = bits == 3 ? tile[at.third_byte] >> at.third_shift & 1 : 0;
    return (tile[at.byte] >> at.shift & 3) | third << 2;
}

static void put_bits(uint8_t *byte, uint32_t mask, uint32_t shift, uint32_t code) {
    *byte = (uint8_t)((*byte & ~(mask << shift)) | (code & mask) << shift);
}

static void put_code(uint8_t *tile, place at, uint32_t bits, uint32_t code) {
    put_bits(tile + at.byte, bits == 4 ? 15 : 3, at.shift, code);
    if (bits == 3) put_bits(tile + at.third_byte, 1, at.third_shift, code >> 2);
}

/* ---- codes of a vector ------------------------------------------------------------------------------------------- */

/* The codes of x, and the scale to store. */
static uint16_t quantise(const float *x, uint32_t bits, uint32_t d, uint8_t *codes) {
    const int8_t *level = pleat__levels[bits];
    const uint32_t n_levels = 1u << bits;
    float y[PLEAT__MAX_HEAD_DIM], count[PLEAT__MAX_HEAD_DIM], chosen[PLEAT__MAX_HEAD_DIM];
    for (uint32_t i = 0; i < d; i++) y[i] = pleat__quant_clamp(x[i]);
    const float square = pleat__dot(y, y, d), norm = sqrtf(square);
    const float inverse = norm > 0 ? sqrtf((float)d) * (127 / largest[bits]) / norm : 0;
    for (uint32_t i = 0; i < d; i++) {
        y[i] *= inverse;
        count[i] = 0;
        chosen[i] = level[0];
    }
    for (uint32_t c = 1; c < n_levels; c++) {
        const float threshold = 0.5f * (float)(level[c - 1] + level[c]), step = (float)(level[c] - level[c - 1]);
        for (uint32_t i = 0; i < d; i++) {
            count[i] += y[i] > threshold ? 1.0f : 0.0f;
            chosen[i] += y[i] > threshold ? step : 0.0f;
        }
    }
    for (uint32_t i = 0; i < d; i++) codes[i] = (uint8_t)count[i];
    const float scale = norm / sqrtf(pleat__dot(chosen, chosen, d));
    return pleat__f32_to_f16(scale < PLEAT__F16_MAX ? scale : PLEAT__F16_MAX);
}

void pleat__levels_put(const pleat__page_layout *l, uint8_t *page, uint32_t slot, const float *k, const float *v) {
    const uint32_t tile = slot / PLEAT__TILE, token = slot % PLEAT__TILE, d = l->head_dim;
    const uint32_t k_bits = l->format.k_bits, v_bits = l->format.v_bits;
    uint8_t codes[PLEAT__MAX_HEAD_DIM];
    uint8_t *k_tile = pleat__k_tile(l, page, tile), *v_tile = pleat__v_tile(l, page, tile);
    pleat__k_meta(l, page, tile)[token] = quantise(k, k_bits, d, codes);
    for (uint32_t i = 0; i < d; i++) put_code(k_tile, place_of_key(k_bits, d, i, token), k_bits, codes[i]);
    pleat__v_meta(l, page, tile)[token] = quantise(v, v_bits, d, codes);
    for (uint32_t i = 0; i < d; i++) put_code(v_tile, place_of_value(v_bits, d, i, token), v_bits, codes[i]);
}

/* ---- back ---------------------------------------------------------------------------------------------------------- */

static uint8_t *unconst(const uint8_t *page) { return (uint8_t *)(uintptr_t)page; } /* layout.h wants it; only read */

/* The levels of the four codes of a word's plane, read at the plane's byte `at` of the tile. */
static float level_at(const uint8_t *tile, place at, uint32_t bits) {
    return (float)pleat__levels[bits][get_code(tile, at, bits)];
}

void pleat__levels_load_k(const pleat__page_layout *l, const uint8_t *page, uint32_t tile, float *out) {
    const uint32_t bits = l->format.k_bits, d = l->head_dim;
    const uint8_t *codes = pleat__k_tile(l, unconst(page), tile);
    const uint16_t *meta = pleat__k_meta(l, unconst(page), tile);
    float scale[PLEAT__TILE];
    for (uint32_t t = 0; t < PLEAT__TILE; t++) scale[t] = pleat__f16_to_f32(meta[t]);
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t t = 0; t < PLEAT__TILE; t++)
            out[i * PLEAT__TILE + t] = scale[t] * level_at(codes, place_of_key(bits, d, i, t), bits);
}

void pleat__levels_load_v(const pleat__page_layout *l, const uint8_t *page, uint32_t tile, float *out) {
    const uint32_t bits = l->format.v_bits, d = l->head_dim;
    const uint8_t *codes = pleat__v_tile(l, unconst(page), tile);
    const uint16_t *meta = pleat__v_meta(l, unconst(page), tile);
    for (uint32_t t = 0; t < PLEAT__TILE; t++) {
        const float scale = pleat__f16_to_f32(meta[t]);
        for (uint32_t i = 0; i < d; i++) out[t * d + i] = scale * level_at(codes, place_of_value(bits, d, i, t), bits);
    }
}

void pleat__levels_load_token(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, float *k, float *v) {
    const uint32_t tile = slot / PLEAT__TILE, token = slot % PLEAT__TILE, d = l->head_dim;
    const uint32_t k_bits = l->format.k_bits, v_bits = l->format.v_bits;
    const uint8_t *k_tile = pleat__k_tile(l, unconst(page), tile), *v_tile = pleat__v_tile(l, unconst(page), tile);
    const float k_scale = pleat__f16_to_f32(pleat__k_meta(l, unconst(page), tile)[token]);
    const float v_scale = pleat__f16_to_f32(pleat__v_meta(l, unconst(page), tile)[token]);
    for (uint32_t i = 0; i < d; i++) {
        k[i] = k_scale * level_at(k_tile, place_of_key(k_bits, d, i, token), k_bits);
        v[i] = v_scale * level_at(v_tile, place_of_value(v_bits, d, i, token), v_bits);
    }
}

typedef place (*place_fn)(uint32_t bits, uint32_t head_dim, uint32_t dim, uint32_t token);

/* The codes of one token of a tile to another's of a tile. */
static void copy_codes(place_fn place_in, uint32_t bits, uint32_t d, uint8_t *to_tile, uint32_t to_token,
                       const uint8_t *from_tile, uint32_t from_token) {
    for (uint32_t i = 0; i < d; i++) {
        const uint32_t code = get_code(from_tile, place_in(bits, d, i, from_token), bits);
        put_code(to_tile, place_in(bits, d, i, to_token), bits, code);
    }
}

void pleat__levels_copy_key(const pleat__page_layout *l, uint8_t *to_page, uint32_t to_slot, const uint8_t *from_page,
                            uint32_t from_slot) {
    const uint32_t to = to_slot / PLEAT__TILE, from = from_slot / PLEAT__TILE;
    const uint32_t to_token = to_slot % PLEAT__TILE, from_token = from_slot % PLEAT__TILE;
    uint8_t *source = unconst(from_page);
    copy_codes(place_of_key, l->format.k_bits, l->head_dim, pleat__k_tile(l, to_page, to), to_token,
               pleat__k_tile(l, source, from), from_token);
    memmove(pleat__k_meta(l, to_page, to) + to_token, pleat__k_meta(l, source, from) + from_token, sizeof(uint16_t));
}

void pleat__levels_copy_value(const pleat__page_layout *l, uint8_t *to_page, uint32_t to_slot, const uint8_t *from_page,
                              uint32_t from_slot) {
    const uint32_t to = to_slot / PLEAT__TILE, from = from_slot / PLEAT__TILE;
    const uint32_t to_token = to_slot % PLEAT__TILE, from_token = from_slot % PLEAT__TILE;
    uint8_t *source = unconst(from_page);
    copy_codes(place_of_value, l->format.v_bits, l->head_dim, pleat__v_tile(l, to_page, to), to_token,
               pleat__v_tile(l, source, from), from_token);
    memmove(pleat__v_meta(l, to_page, to) + to_token, pleat__v_meta(l, source, from) + from_token, sizeof(uint16_t));
}
