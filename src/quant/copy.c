/* SPDX-License-Identifier: MIT
 *
 * copy.c: one token of a tile: from slot to slot as it stands, pleat__quant_copy(), and dequantised,
 * pleat__quant_load_token().
 *
 * In layout.h's planes a token of a tile is
 *
 *     K   f16                 2 bytes of every 32
 *         all others          4 bytes of every 64
 *     V   f32, f16            a row
 *         8, 4 and 2 bits     in byte token%4 of each of d words of 32 bits the same bits, bits*((token/4) % (8/bits)) on
 *
 * Source and target may share bytes (two slots of one tile), so each is read before it is written.  What is copied to
 * may stand anywhere, as a page of an image does: nothing of it is read or written but as bytes.
 */
#include <string.h>

#include "core/half.h"
#include "quant/levels.h"
#include "quant/quant.h"

static void copy_key(const pleat__page_layout *l, uint8_t *to_page, uint32_t to, uint8_t *from_page, uint32_t from) {
    const size_t bytes = l->format.k_bits == 16 ? 2 : 4; /* of a token, contiguous; those of 16 tokens follow */
    uint8_t *to_tile = pleat__k_tile(l, to_page, to / PLEAT__TILE) + to % PLEAT__TILE * bytes;
    const uint8_t *from_tile = pleat__k_tile(l, from_page, from / PLEAT__TILE) + from % PLEAT__TILE * bytes;
    if (bytes == 2) {
        for (uint32_t at = 0; at < l->k_tile_bytes; at += 2 * PLEAT__TILE) memmove(to_tile + at, from_tile + at, 2);
    } else {
        for (uint32_t at = 0; at < l->k_tile_bytes; at += 4 * PLEAT__TILE) memmove(to_tile + at, from_tile + at, 4);
    }
}

/* Where a token's codes stand in a tile of values of 8 bits or less. */
typedef struct bit_row {
    uint8_t *bytes; /* every fourth is the token's: [head_dim][4] */
    uint32_t shift;
} bit_row;

static bit_row bit_row_of(const pleat__page_layout *l, uint8_t *page, uint32_t slot) {
    const uint32_t bits = l->format.v_bits, per = 8 / bits, token = slot % PLEAT__TILE;
    uint8_t *tile = pleat__v_tile(l, page, slot / PLEAT__TILE);
    return (bit_row){tile + token / (4 * per) * 4 * l->head_dim + token % 4, bits * (token / 4 % per)};
}

static void copy_value(const pleat__page_layout *l, uint8_t *to_page, uint32_t to, uint8_t *from_page, uint32_t from) {
    const uint32_t d = l->head_dim;
    if (l->format.v_bits >= 16) {
        const size_t bytes = l->v_tile_bytes / PLEAT__TILE;
        memmove(pleat__v_tile(l, to_page, to / PLEAT__TILE) + to % PLEAT__TILE * bytes,
                pleat__v_tile(l, from_page, from / PLEAT__TILE) + from % PLEAT__TILE * bytes, bytes);
        return;
    }
    const bit_row target = bit_row_of(l, to_page, to), source = bit_row_of(l, from_page, from);
    const uint32_t mask = (1u << l->format.v_bits) - 1, keep = ~(mask << target.shift);
    for (size_t i = 0; i < 4 * (size_t)d; i += 4)
        target.bytes[i] =
            (uint8_t)((target.bytes[i] & keep) | ((uint32_t)source.bytes[i] >> source.shift & mask) << target.shift);
}

static void copy_meta(uint16_t *to_meta, uint32_t to, const uint16_t *from_meta, uint32_t from) {
    for (uint32_t part = 0; part < 2 * PLEAT__TILE; part += PLEAT__TILE)
        memmove(to_meta + part + to % PLEAT__TILE, from_meta + part + from % PLEAT__TILE, sizeof *to_meta);
}

static void copy_key_of(const pleat__page_layout *l, uint8_t *to_page, uint32_t to, uint8_t *from, uint32_t from_slot) {
    if (l->format.rotated) {
        pleat__levels_copy_key(l, to_page, to, from, from_slot);
        return;
    }
    copy_key(l, to_page, to, from, from_slot);
    if (pleat__format_is_quantised(l->format))
        copy_meta(pleat__k_meta(l, to_page, to / PLEAT__TILE), to, pleat__k_meta(l, from, from_slot / PLEAT__TILE),
                  from_slot);
}

void pleat__quant_copy_value(const pleat__page_layout *l, uint8_t *to_page, uint32_t to, const uint8_t *from_page,
                             uint32_t from_slot) {
    uint8_t *from = (uint8_t *)(uintptr_t)from_page; /* the accessors of layout.h want it; only read */
    if (l->format.rotated) {
        pleat__levels_copy_value(l, to_page, to, from, from_slot);
        return;
    }
    copy_value(l, to_page, to, from, from_slot);
    if (pleat__format_is_quantised(l->format))
        copy_meta(pleat__v_meta(l, to_page, to / PLEAT__TILE), to, pleat__v_meta(l, from, from_slot / PLEAT__TILE),
                  from_slot);
}

void pleat__quant_copy(const pleat__page_layout *l, uint8_t *to_page, uint32_t to_slot, const uint8_t *from_page,
                       uint32_t from_slot) {
    uint8_t *from = (uint8_t *)(uintptr_t)from_page; /* as above */
    copy_key_of(l, to_page, to_slot, from, from_slot);
    pleat__quant_copy_value(l, to_page, to_slot, from, from_slot);
    if (l->mass_off) memmove(pleat__masses(l, to_page) + to_slot, pleat__masses(l, from) + from_slot, sizeof(uint16_t));
    if (!l->tracked) return;
    for (uint32_t h = 0; h < l->n_scores; h++)
        memmove(pleat__head_scores(l, to_page, h) + to_slot, pleat__head_scores(l, from, h) + from_slot, sizeof(float));
    memmove(pleat__positions(l, to_page) + to_slot, pleat__positions(l, from) + from_slot, sizeof(int32_t));
}

/* ---- dequantised ----------------------------------------------------------------------------------------------------- */

static float scale_of(const uint16_t *meta, uint32_t slot) { return pleat__f16_to_f32(meta[slot % PLEAT__TILE]); }
static float min_of(const uint16_t *meta, uint32_t slot) {
    return pleat__f16_to_f32(meta[PLEAT__TILE + slot % PLEAT__TILE]);
}

static void load_key(const pleat__page_layout *l, uint8_t *page, uint32_t slot, float *out) {
    const uint32_t d = l->head_dim, bits = l->format.k_bits, token = slot % PLEAT__TILE;
    const uint8_t *tile = pleat__k_tile(l, page, slot / PLEAT__TILE);
    const uint32_t *words = (const uint32_t *)(const void *)tile + token; /* every 16th is the token's */
    if (bits == 32) {
        for (uint32_t i = 0; i < d; i++) out[i] = ((const float *)(const void *)words)[i * PLEAT__TILE];
        return;
    }
    if (bits == 16) {
        const uint16_t *halves = (const uint16_t *)(const void *)tile + token;
        for (uint32_t i = 0; i < d; i++) out[i] = pleat__f16_to_f32(halves[i * PLEAT__TILE]);
        return;
    }
    const uint16_t *meta = pleat__k_meta(l, page, slot / PLEAT__TILE);
    const float scale = scale_of(meta, slot), min = min_of(meta, slot);
    const uint32_t mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < d; words += PLEAT__TILE)
        for (uint32_t shift = 0; shift < 8;
             shift += bits, i += 4) /* a word: four dimensions, and four for each plane */
            for (uint32_t j = 0; j < 4; j++)
                out[i + j] = scale * (float)(int32_t)(*words >> (8 * j + shift) & mask) + min;
}

static void load_value(const pleat__page_layout *l, uint8_t *page, uint32_t slot, float *out) {
    const uint32_t d = l->head_dim, bits = l->format.v_bits, token = slot % PLEAT__TILE;
    const uint8_t *tile = pleat__v_tile(l, page, slot / PLEAT__TILE);
    if (bits == 32) {
        memcpy(out, (const float *)(const void *)tile + (size_t)token * d, d * sizeof *out);
        return;
    }
    if (bits == 16) {
        const uint16_t *halves = (const uint16_t *)(const void *)tile + (size_t)token * d;
        for (uint32_t i = 0; i < d; i++) out[i] = pleat__f16_to_f32(halves[i]);
        return;
    }
    const uint16_t *meta = pleat__v_meta(l, page, slot / PLEAT__TILE);
    const float scale = scale_of(meta, slot), min = min_of(meta, slot);
    const bit_row row = bit_row_of(l, page, slot);
    const uint32_t mask = (1u << bits) - 1, flip = bits == 8 ? 0x80 : 0;
    for (uint32_t i = 0; i < d; i++)
        out[i] = scale * (float)(int32_t)(((uint32_t)row.bytes[4 * (size_t)i] >> row.shift & mask) ^ flip) + min;
}

void pleat__quant_load_token(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, float *k, float *v) {
    uint8_t *from = (uint8_t *)(uintptr_t)page; /* as above */
    if (l->format.rotated) {
        pleat__levels_load_token(l, from, slot, k, v);
        return;
    }
    load_key(l, from, slot, k);
    load_value(l, from, slot, v);
}
