/* SPDX-License-Identifier: MIT
 *
 * pack.c: fixed widths, after PackKV by KVComp's authors: 16 places of tokens x one channel are a pack, which has a
 * minimum and a width; its codes are stored less the minimum, at that width.
 *
 *     slice    widths of all packs | minimums of all packs | fields of pack 0 | of pack 1 | ...
 *     keys     16 places x d dimensions: pack p is dimension p, its code i the slice's place i
 *     values   16 dimensions x T places: pack p is places 16 (p / 16) .. + 15 of dimension p % 16
 *
 * Widths, minimums and fields are numbers of a fixed number of bits, one behind the other from the lowest bit on:
 * widths of as many as the widest takes, minimums of as many as levels - 1 takes.  A pack of width w has 16 * w bits,
 * so every pack begins at a byte, and its codes 0..7 and 8..15 take w bytes each: eight fields are one 64-bit load.
 * Packs are read one slice after the other, without tables.  pack_order.c chooses which tokens stand together.
 */
#include "codec/internal.h"
#include "core/compiler.h"

/* ---- numbers of n_bits = 0..8, eight at a time --------------------------------------------------------- */

static uint8_t *put_eight(uint8_t *at, const uint8_t *x, uint32_t n_bits) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < 8; i++) bits |= (uint64_t)x[i] << (i * n_bits);
    memcpy(at, &bits, n_bits);
    return at + n_bits;
}

static uint8_t *put_numbers(uint8_t *at, const uint8_t *x, uint32_t n, uint32_t n_bits) {
    for (uint32_t i = 0; i < n; i += 8) at = put_eight(at, x + i, n_bits);
    return at;
}

/* Reads 8 bytes, n_bits of which matter. */
INLINE void get_eight(const uint8_t *at, uint32_t n_bits, uint8_t *x) {
    const uint64_t bits = pleat__load_u64(at);
    const uint32_t mask = (1u << n_bits) - 1;
    for (uint32_t i = 0; i < 8; i++) x[i] = (uint8_t)(bits >> (i * n_bits) & mask);
}

static void get_numbers(const uint8_t *at, uint32_t n, uint32_t n_bits, uint8_t *x) {
    for (uint32_t i = 0; i < n; i += 8, at += n_bits) get_eight(at, n_bits, x + i);
}

/* ---- a slice's vectors -------------------------------------------------- */

/* Byte of code i of pack p of a slice. */
INLINE uint32_t at(bool is_values, uint32_t p, uint32_t i) {
    if (!is_values) return p / 4 * 64 + 4 * i + p % 4;
    return (p / 16 * 4 + i / 4) * 64 + 4 * (p % 16) + i % 4;
}

/* ---- encode ----------------------------------------------------------------------------------------- */

static uint8_t *encode_slice(const uint8_t *codes, uint32_t n_levels, bool is_values, uint32_t n_packs, uint8_t *out) {
    const uint32_t code_bits = pleat__code_bits(n_levels);
    uint8_t widths[PLEAT__SLICE_PACKS], mins[PLEAT__SLICE_PACKS], packs[PLEAT__SLICE_PACKS][PLEAT__PACK_CODES];
    for (uint32_t p = 0; p < n_packs; p++) {
        uint8_t min = 255, max = 0;
        for (uint32_t i = 0; i < PLEAT__PACK_CODES; i++) {
            const uint8_t code = packs[p][i] = codes[at(is_values, p, i)];
            min = code < min ? code : min;
            max = code > max ? code : max;
        }
        mins[p] = min;
        widths[p] = max > min ? (uint8_t)pleat__code_bits(max - min + 1u) : 0;
        for (uint32_t i = 0; i < PLEAT__PACK_CODES; i++) packs[p][i] -= min;
    }
    out = put_numbers(out, widths, n_packs, pleat__pack_width_bits(code_bits));
    out = put_numbers(out, mins, n_packs, code_bits);
    for (uint32_t p = 0; p < n_packs; p++) out = put_numbers(out, packs[p], PLEAT__PACK_CODES, widths[p]);
    return out;
}

size_t pleat__pack_encode(const uint8_t *codes, uint32_t n_levels, bool is_values, uint32_t n_columns,
                          uint32_t n_vectors, uint8_t *out) {
    const uint32_t slice = n_columns / 4;
    uint8_t *to = out;
    for (uint32_t v = 0; v < n_vectors; v += slice, codes += (size_t)64 * slice)
        to = encode_slice(codes, n_levels, is_values, pleat__pack_count(slice), to);
    return (size_t)(to - out);
}

/* ---- decode ----------------------------------------------------------------------------------------- */

/* The sum of n <= 512 widths below 16, n a multiple of 8.  False: one is above `most`.  Eight at a time: bytes hold the
 * sums of 16 of them, and 16-bit lanes those of all; a byte's bit 7 says that it is too large. */
static bool add_widths(const uint8_t *widths, uint32_t n, uint32_t most, uint32_t *sum) {
    const uint64_t each = 0x0101010101010101u, even = 0x00FF00FF00FF00FFu;
    uint64_t sums = 0, larger = 0;
    for (uint32_t i = 0; i < n;) {
        const uint32_t to = pleat__min_u32(i + 8 * 16, n);
        uint64_t bytes = 0;
        for (; i < to; i += 8) {
            const uint64_t eight = pleat__load_u64(widths + i);
            bytes += eight;
            larger |= eight + (0x7F - most) * each;
        }
        sums += (bytes & even) + (bytes >> 8 & even);
    }
    *sum = (uint32_t)(sums * 0x0001000100010001u >> 48);
    return !(larger & 0x80 * each);
}

/* Read and check a slice's widths and minimums, and move the section behind its fields. */
static bool read_slice(pleat__section *s, uint32_t n_packs, pleat__pack_numbers_fn get, pleat__pack_slice *slice) {
    const uint32_t code_bits = pleat__code_bits(s->n_levels), width_bits = pleat__pack_width_bits(code_bits);
    const size_t width_bytes = (size_t)n_packs * width_bits / 8,
                 head_bytes = width_bytes + (size_t)n_packs * code_bits / 8;
    if (!s->bytes || s->n_bytes < head_bytes) return false;
    get(s->bytes, n_packs, width_bits, slice->widths);
    get(s->bytes + width_bytes, n_packs, code_bits, slice->mins);
    uint32_t sum;
    const bool fit = add_widths(slice->widths, n_packs, code_bits, &sum);
    const size_t n_field_bytes = (size_t)sum * PLEAT__PACK_CODES / 8;
    if (!fit || s->n_bytes - head_bytes < n_field_bytes) return false;
    slice->fields = s->bytes + head_bytes;
    s->bytes += head_bytes + n_field_bytes;
    s->n_bytes -= head_bytes + n_field_bytes;
    return true;
}

bool pleat__pack_next(pleat__section *s, pleat__pack_numbers_fn get, pleat__pack_slice *slice) {
    static const uint8_t zeros[PLEAT__STREAM_PAD] = {0};
    const uint32_t n_packs = pleat__pack_count(s->n_columns / 4);
    if (read_slice(s, n_packs, get, slice)) return true;
    s->bytes = NULL;
    slice->fields = zeros;
    memset(slice->widths, 0, n_packs);
    memset(slice->mins, 0, n_packs);
    return false;
}

void pleat__pack_decode_by(const pleat__pack_ops *ops, const void *constants, pleat__section *s, uint32_t n_vectors,
                           uint8_t *out) {
    const uint32_t vectors = s->n_columns / 4;
    pleat__pack_slice slice;
    for (uint32_t v = 0; v < n_vectors; v += vectors, out += (size_t)64 * vectors) {
        pleat__pack_next(s, ops->numbers, &slice);
        (s->is_values ? ops->values : ops->keys)(constants, &slice, pleat__pack_count(vectors), out);
    }
}

/* ---- the reference ------------------------------------------------------------------------------------ */

INLINE void decode_slice(bool is_values, uint8_t top, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    const uint8_t *from = slice->fields;
    uint8_t fields[PLEAT__PACK_CODES];
    for (uint32_t p = 0; p < n_packs; from += 2u * slice->widths[p], p++) {
        get_numbers(from, PLEAT__PACK_CODES, slice->widths[p], fields);
        for (uint32_t i = 0; i < PLEAT__PACK_CODES; i++) {
            const uint32_t code = (uint32_t)slice->mins[p] + fields[i];
            out[at(is_values, p, i)] = code < top ? (uint8_t)code : top;
        }
    }
}

static void decode_keys(const void *top, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    decode_slice(false, *(const uint8_t *)top, slice, n_packs, out);
}

static void decode_values(const void *top, const pleat__pack_slice *slice, uint32_t n_packs, uint8_t *out) {
    decode_slice(true, *(const uint8_t *)top, slice, n_packs, out);
}

void pleat__pack_decode_ref(pleat__section *s, uint32_t n_vectors, uint8_t *out) {
    static const pleat__pack_ops ops = {get_numbers, decode_keys, decode_values};
    const uint8_t top = (uint8_t)(s->n_levels - 1);
    pleat__pack_decode_by(&ops, &top, s, n_vectors, out);
}
