/* SPDX-License-Identifier: MIT
 *
 * quant_ref.c: the quantiser as quant.h defines it, value by value.
 *
 * This is the specification of the vector variants, which give the same bytes, and what runs where there are none.
 */
#include "quant/variants.h"

/* Where a code stands: layout.h's planes. */
typedef struct place {
    uint32_t byte;
    uint32_t shift;
} place;

static place place_of_key(uint32_t bits, uint32_t dim, uint32_t token) {
    const uint32_t per = 8 / bits;
    return (place){dim / (4 * per) * 64 + token * 4 + dim % 4, bits * (dim / 4 % per)};
}

static place place_of_value(uint32_t bits, uint32_t head_dim, uint32_t dim, uint32_t token) {
    const uint32_t per = 8 / bits;
    return (place){token / (4 * per) * 4 * head_dim + dim * 4 + token % 4, bits * (token / 4 % per)};
}

static void put_code(uint8_t *tile, place at, uint32_t bits, uint32_t code) {
    const uint32_t mask = ((1u << bits) - 1) << at.shift;
    tile[at.byte] = (uint8_t)((tile[at.byte] & ~mask) | (code << at.shift));
}

/* Choose the token's scale and minimum and store them; s says how to make its codes. */
static pleat__quant_scale put_scale(uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token, const float *x) {
    float min = pleat__quant_clamp(x[0]), max = min;
    for (uint32_t i = 1; i < head_dim; i++) {
        const float y = pleat__quant_clamp(x[i]);
        min = y < min ? y : min;
        max = y > max ? y : max;
    }
    const pleat__quant_scale s = pleat__quant_scale_of(min, max, bits);
    meta[token] = s.scale_f16;
    meta[PLEAT__TILE + token] = s.min_f16;
    return s;
}

/* clamp(round((x - min)/scale)).  Adding 1.5*2^23 rounds to nearest even and leaves the integer in the low bits. */
static uint32_t code_of(pleat__quant_scale s, uint32_t bits, float x) {
    const float top = (float)((1u << bits) - 1);
    float y = (pleat__quant_clamp(x) - s.min) * s.inverse;
    y = y > 0 ? y : 0;
    y = y < top ? y : top;
    return pleat__f32_bits(y + 0x1.8p23f) & 0xFFu;
}

static void put_key(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token, const float *x) {
    if (bits == 16) {
        for (uint32_t i = 0; i < head_dim; i++)
            ((uint16_t *)(void *)tile)[i * PLEAT__TILE + token] = pleat__f32_to_f16(pleat__quant_clamp(x[i]));
    } else {
        const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
        for (uint32_t i = 0; i < head_dim; i++)
            put_code(tile, place_of_key(bits, i, token), bits, code_of(s, bits, x[i]));
    }
}

static void put_value(uint8_t *tile, uint16_t *meta, uint32_t bits, uint32_t head_dim, uint32_t token, const float *x) {
    if (bits == 16) {
        for (uint32_t i = 0; i < head_dim; i++)
            ((uint16_t *)(void *)tile)[token * head_dim + i] = pleat__f32_to_f16(pleat__quant_clamp(x[i]));
    } else {
        const pleat__quant_scale s = put_scale(meta, bits, head_dim, token, x);
        const uint32_t flip = bits == 8 ? 0x80 : 0; /* 8-bit codes are stored as code - 128 */
        for (uint32_t i = 0; i < head_dim; i++)
            put_code(tile, place_of_value(bits, head_dim, i, token), bits, code_of(s, bits, x[i]) ^ flip);
    }
}

void pleat__quant_store_ref(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, uint32_t n, const float *k,
                            const float *v, size_t stride) {
    pleat__quant_store_rows(layout, page, slot, n, k, v, stride, put_key, put_value);
}

void pleat__quant_replace_ref(const pleat__page_layout *layout, uint8_t *page, uint32_t slot, const float *k,
                              const float *v) {
    pleat__quant_put_row(layout, page, slot, k, v, put_key, put_value);
}

/* Metadata of a tile as f32. */
typedef struct tile_meta {
    float scale[PLEAT__TILE];
    float min[PLEAT__TILE];
} tile_meta;

static tile_meta load_meta(const uint8_t *at) {
    const uint16_t *meta = (const uint16_t *)(const void *)at;
    tile_meta m;
    for (uint32_t token = 0; token < PLEAT__TILE; token++) {
        m.scale[token] = pleat__f16_to_f32(meta[token]);
        m.min[token] = pleat__f16_to_f32(meta[PLEAT__TILE + token]);
    }
    return m;
}

static void widen_f16(const uint8_t *from, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i++) out[i] = pleat__f16_to_f32(((const uint16_t *)(const void *)from)[i]);
}

static void load_k_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim, float *out) {
    const tile_meta m = load_meta(meta);
    const uint32_t per = 8 / bits, mask = (1u << bits) - 1;
    for (uint32_t dim = 0; dim < head_dim; dim += 4 * per) { /* 64 bytes */
        for (uint32_t p = 0; p < per; p++) {
            for (uint32_t j = 0; j < 4; j++) {
                float *row = out + (dim + 4 * p + j) * PLEAT__TILE;
                for (uint32_t token = 0; token < PLEAT__TILE; token++) {
                    const uint32_t code = (uint32_t)codes[dim / per * PLEAT__TILE + token * 4 + j] >> (bits * p) & mask;
                    row[token] = m.scale[token] * (float)code + m.min[token];
                }
            }
        }
    }
}

void pleat__quant_load_k_ref(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_k(layout, page, tile, out, widen_f16, load_k_codes);
}

static void load_v_codes(const uint8_t *codes, const uint8_t *meta, uint32_t bits, uint32_t head_dim, float *out) {
    const tile_meta m = load_meta(meta);
    const uint32_t mask = (1u << bits) - 1, flip = bits == 8 ? 0x80 : 0;
    for (uint32_t token = 0; token < PLEAT__TILE; token++) {
        const place first = place_of_value(bits, head_dim, 0, token);
        for (uint32_t dim = 0; dim < head_dim; dim++) {
            const uint32_t code = ((uint32_t)codes[first.byte + 4 * dim] >> first.shift & mask) ^ flip;
            out[token * head_dim + dim] = m.scale[token] * (float)code + m.min[token];
        }
    }
}

void pleat__quant_load_v_ref(const pleat__page_layout *layout, const uint8_t *page, uint32_t tile, float *out) {
    pleat__quant_load_v(layout, page, tile, out, widen_f16, load_v_codes);
}
