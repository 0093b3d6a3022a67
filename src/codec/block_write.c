/* SPDX-License-Identifier: MIT
 *
 * block_write.c: tokens to codes, codes to a payload.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/internal.h"
#include "codec/rd.h"
#include "quant/bounded.h"

size_t pleat__block_bound(const pleat__block_format *f) {
    if (f->is_rd) return pleat__rd_bound(f->head_dim);
    const uint32_t bits = pleat__code_bits(f->k_levels) + pleat__code_bits(f->v_levels);
    return pleat__block_fixed_bytes(f, PLEAT__MATRIX_WIDE, PLEAT__MATRIX_WIDE) +
           pleat__raw_bytes(bits, pleat__block_vectors(f));
}

void pleat__block_codes_carve(const pleat__block_format *f, pleat__block_codes *codes, pleat__arena *arena) {
    const uint64_t n = (uint64_t)f->tokens * f->head_dim;
    codes->k = pleat__arena_take(arena, n, 1);
    codes->v = pleat__arena_take(arena, n, 1);
    codes->k_mins = pleat__arena_take(arena, pleat__block_k_units(f), sizeof(uint16_t));
    codes->k_steps = pleat__arena_take(arena, pleat__block_k_units(f), sizeof(uint16_t));
    codes->v_mins = pleat__arena_take(arena, pleat__block_v_units(f), sizeof(uint16_t));
    codes->v_steps = pleat__arena_take(arena, pleat__block_v_units(f), sizeof(uint16_t));
    codes->k_wide = codes->v_wide = true;
    codes->order = pleat__arena_take(arena, f->tokens, 1);
    codes->rows = pleat__arena_take(arena, 2 * n, 1);
    codes->units = pleat__arena_take(arena, 2 * (uint64_t)pleat__block_v_units(f), sizeof(uint16_t));
}

/* ---- quantise --------------------------------------------------------------------------------------- */

/* Rows of keys by token to vectors: 16 places by 4 dimensions. */
static void keys_to_vectors(const pleat__block_format *f, const uint8_t *rows, const uint8_t *order, uint8_t *out) {
    const uint32_t d = f->head_dim;
    for (uint32_t place = 0; place < f->tokens; place++) {
        const uint8_t *row = rows + (size_t)order[place] * d;
        uint8_t *to = out + (size_t)(place / 16) * 16 * d + place % 16 * 4;
        for (uint32_t i = 0; i < d; i += 4) memcpy(to + (size_t)i * 16, row + i, 4);
    }
}

/* Rows of values by token to vectors: 16 dimensions by 4 places. */
static void values_to_vectors(const pleat__block_format *f, const uint8_t *rows, const uint8_t *order, uint8_t *out) {
    const uint32_t d = f->head_dim, n_columns = f->tokens;
    for (uint32_t place = 0; place < n_columns; place += 4) {
        const uint8_t *row[4];
        for (uint32_t c = 0; c < 4; c++) row[c] = rows + (size_t)order[place + c] * d;
        for (uint32_t dim = 0; dim < d; dim += 16) {
            uint8_t *restrict to = out + ((size_t)(dim / 16) * (n_columns / 4) + place / 4) * 64;
            for (uint32_t i = 0; i < 16; i++)
                for (uint32_t c = 0; c < 4; c++) to[4 * i + c] = row[c][dim + i];
        }
    }
}

/* Units by token to units by place. */
static void place_units(const pleat__block_format *f, const uint8_t *order, const uint16_t *by_token, uint16_t *out) {
    const uint32_t n = f->head_dim / f->v_group;
    for (uint32_t place = 0; place < f->tokens; place++)
        memcpy(out + (size_t)place * n, by_token + (size_t)order[place] * n, n * sizeof *out);
}

/* To rows of codes, and value units by token. */
static bool keys_to_codes(const pleat__block_format *f, const float *k, size_t stride, bool on_grids,
                          pleat__block_codes *c) {
    return pleat__bounded_keys(k, stride, f->tokens, f->head_dim, f->by_channel, on_grids, f->k_rel, c->k_mins,
                               c->k_steps, c->rows);
}
static bool values_to_codes(const pleat__block_format *f, const float *v, size_t stride, bool on_grids,
                            pleat__block_codes *c) {
    return pleat__bounded_values(v, stride, f->tokens, f->head_dim, f->v_group, on_grids, f->v_rel, c->units,
                                 c->units + pleat__block_v_units(f), c->rows + (size_t)f->tokens * f->head_dim);
}

void pleat__block_quantise(const pleat__block_format *f, const float *k, const float *v, size_t stride,
                           pleat__block_codes *c) {
    const uint8_t *k_rows = c->rows, *v_rows = c->rows + (size_t)f->tokens * f->head_dim;
    const uint16_t *mins = c->units, *steps = c->units + pleat__block_v_units(f);
    c->k_wide = !f->k_on_grids || !keys_to_codes(f, k, stride, true, c);
    c->v_wide = !f->v_on_grids || !values_to_codes(f, v, stride, true, c);
    if (c->k_wide) keys_to_codes(f, k, stride, false, c);
    if (c->v_wide) values_to_codes(f, v, stride, false, c);
    for (uint32_t i = 0; i < f->tokens; i++) c->order[i] = (uint8_t)i;
    if (f->coder == PLEAT__CODER_PACK) pleat__pack_order(f, k_rows, v_rows, c->order);
    keys_to_vectors(f, k_rows, c->order, c->k);
    values_to_vectors(f, v_rows, c->order, c->v);
    place_units(f, c->order, mins, c->v_mins);
    place_units(f, c->order, steps, c->v_steps);
}

/* ---- encode ----------------------------------------------------------------------------------------- */

static uint8_t *put_u32(uint8_t *at, uint32_t x) {
    memcpy(at, &x, sizeof x);
    return at + sizeof x;
}

static uint8_t *put_units(uint8_t *at, const uint16_t *mins, const uint16_t *steps, uint32_t n, bool is_wide) {
    const size_t n_bytes = n * sizeof *mins;
    if (!is_wide) {
        pleat__units_pack(mins, steps, n, at);
        return at + n_bytes;
    }
    memcpy(at, mins, n_bytes);
    memcpy(at + n_bytes, steps, n_bytes);
    return at + 2 * n_bytes;
}

/* One matrix as the format's coder has it, in `scratch`, or RAW if that is no longer.  Returns the matrix's word. */
static uint32_t put_section(const pleat__block_format *f, const pleat__codebook *codebook, bool is_values, bool is_wide,
                            const uint8_t *codes, uint8_t *scratch, uint8_t **at) {
    const uint32_t n_vectors = pleat__block_vectors(f), n_levels = is_values ? f->v_levels : f->k_levels;
    const uint32_t n_bits = pleat__code_bits(n_levels);
    size_t n_bytes = pleat__raw_bytes(n_bits, n_vectors), n_coded = n_bytes;
    if (f->coder == PLEAT__CODER_HUFFMAN)
        n_coded = pleat__stream_encode(codebook, codes, n_vectors, scratch);
    else if (f->coder == PLEAT__CODER_PACK)
        n_coded =
            pleat__pack_encode(codes, n_levels, is_values, is_values ? f->tokens : f->head_dim, n_vectors, scratch);
    pleat__block_coder coder = PLEAT__CODER_RAW;
    if (n_coded < n_bytes) {
        coder = f->coder;
        n_bytes = n_coded;
        memcpy(*at, scratch, n_bytes);
    } else {
        pleat__raw_encode(codes, n_bits, n_vectors, *at);
    }
    *at += n_bytes;
    return pleat__matrix_word(n_bytes, is_wide, coder);
}

size_t pleat__block_encode(const pleat__block_format *f, const pleat__block_codebooks *codebooks,
                           const pleat__block_codes *codes, uint8_t *out) {
    uint8_t *at = out + PLEAT__BLOCK_HEADER_BYTES;
    at = put_units(at, codes->k_mins, codes->k_steps, pleat__block_k_units(f), codes->k_wide);
    at = put_units(at, codes->v_mins, codes->v_steps, pleat__block_v_units(f), codes->v_wide);
    memcpy(at, codes->order, pleat__block_order_bytes(f));
    at += pleat__block_order_bytes(f);
    put_u32(out + 4,
            put_section(f, codebooks ? &codebooks->k : NULL, false, codes->k_wide, codes->k, codes->rows, &at));
    put_u32(out + 8, put_section(f, codebooks ? &codebooks->v : NULL, true, codes->v_wide, codes->v, codes->rows, &at));
    put_u32(out, XXH32(out + 4, (size_t)(at - out) - 4, pleat__block_seed(f, codebooks)));
    return (size_t)(at - out);
}

bool pleat__block_is_intact(const pleat__block_format *f, const pleat__block_codebooks *codebooks,
                            const uint8_t *payload, size_t n_bytes) {
    return n_bytes >= PLEAT__BLOCK_HEADER_BYTES &&
           pleat__load_u32(payload) == XXH32(payload + 4, n_bytes - 4, pleat__block_seed(f, codebooks));
}
