/* SPDX-License-Identifier: MIT
 *
 * stream_avx2.c: decoding in 256-bit registers: 32 lanes a step, a byte of each lane in a register, up to four streams in
 * turn, two of them side by side.
 *
 * A lane's window is the last two bytes that it took, and how many of their 16 bits are used:
 *
 *     early, late     it takes a byte while used > 16 - max_bits: early = late, late = the byte, used -= 8
 *
 * So taking is a blend of bytes, and a lookup needs one shift, by a number of its own in each lane.  There is no such
 * shift of 16 bits: windows are multiplied by 2^(16 - max_bits - used), and their highest max_bits bits are the index.
 * Eight lanes at a time get their bytes by a shuffle (spread.h).
 *
 * Lookups are shuffles of 16 bytes too.  Shuffle i has entries 16*i.. of the table, xor those before, and zero for
 * indices below 16*i, whose difference is negative.  So all of them, xor each other, are the entry.
 *
 *     pairs    6, 7 bits   symbols, lengths           4 or 8 shuffles each
 *              8 bits      symbols, lengths           8 each for each half of the tables; the index's bit 7 chooses
 *     narrow   6, 7 bits   symbol << 3 | bits         4 or 8
 *              8 bits      symbol << 3 | bits - 1     8 for each half of the table; the index's bit 7 chooses
 *     wide                 symbol | bits << 8         gathered: 512 entries would be 64 shuffles
 *
 * Most codebooks are *split* (codebook.h).  Words of up to 4 or 5 bits are looked up by as many, longer ones by what
 * stands behind their ones.  Bit 7 of the first entry says that the word is longer.
 *
 *     pairs    7, 8 bits   symbols, lengths           2 shuffles each, and 2 or 4
 *     narrow   4 and 4     symbol << 3 | bits         1, and 1
 *              5 and 5     symbol << 3 | bits - 1     2, and 2
 */
#include <immintrin.h>
#include <string.h>

#include "core/compiler.h"
#include "entropy/spread.h"
#include "entropy/stream.h"
#include "entropy/stream_shapes.h"

typedef struct tables {
    __m256i a[16], b[16]; /* by shuffle; pairs: symbols, lengths; narrow: entries.  Split: longer words' from 8 */
    __m256i scale_low, scale_high; /* bytes of 2^(16 - max_bits - used), by `used` */
    __m256i most_used;             /* 16 - max_bits */
    __m256i base;                  /* of pairs: what is added to a code */
    __m128i rest;                  /* the same, as a count of bits */
    __m256i tail_mask;             /* split: of the bits behind n_ones ones */
    __m128i n_ones;                /* as a count of bits */
    uint16_t wide[514];            /* entries; a gather reads four bytes */
} tables;

/* Streams whose instructions stand side by side: a step waits at each of its own.  Four have too few registers. */
#define SIDE_BY_SIDE 2u

typedef struct lanes {
    __m256i early, late, used; /* bytes */
    const uint8_t *bytes;
    uint64_t n_bytes, n_taken;
} lanes;

/* Split: pairs by the shuffles of longer words, narrow by the bits of short ones. */
INLINE bool has_pairs(table_shape shape) { return is_pairs(shape) || shape == SPLIT_PAIRS_2 || shape == SPLIT_PAIRS_4; }
INLINE uint32_t n_shuffles(table_shape shape) { return shape == PAIRS_6 || shape == NARROW_6 ? 4 : 8; }

/* ---- tables -------------------------------------------------------------------------------------------- */

INLINE __m256i twice(const uint8_t *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* What shuffle i of a table of 128 entries has. */
INLINE __m256i differences(const uint8_t *entries, uint32_t i) {
    return i == 0 ? twice(entries) : _mm256_xor_si256(twice(entries + 16 * i), twice(entries + 16 * i - 16));
}

/* Symbols are below 32. */
INLINE void narrow_entries(table_shape shape, const pleat__codebook *codebook, uint8_t *restrict entries) {
    const uint8_t less = shape == NARROW_8;
    AS_LOOP
    for (uint32_t i = 0; i < 256; i++)
        entries[i] = (uint8_t)(codebook->symbol[i] * 8 + codebook->symbol_bits[i] - less);
}

INLINE void wide_entries(const pleat__codebook *codebook, uint16_t *restrict entries) {
    AS_LOOP
    for (uint32_t i = 0; i < 512; i++) entries[i] = (uint16_t)(codebook->symbol[i] | codebook->symbol_bits[i] << 8);
    entries[512] = entries[513] = 0;
}

/* Tables of a split codebook.  A length that says that the word is longer is 0x81: less one it still does. */
INLINE void load_split_tables(table_shape shape, const pleat__codebook *codebook, tables *t) {
    uint8_t lengths[32], tail[64], symbols[32];
    const uint8_t less = shape == SPLIT_NARROW_5;
    AS_LOOP
    for (uint32_t i = 0; i < 32; i++)
        lengths[i] = codebook->symbol_bits[i] > codebook->short_bits ? 0x81 : codebook->symbol_bits[i];
    if (!has_pairs(shape)) {
        AS_LOOP
        for (uint32_t i = 0; i < 32; i++)
            symbols[i] = (uint8_t)((lengths[i] & 0x80 ? 0 : codebook->symbol[i] * 8) + lengths[i] - less);
        AS_LOOP
        for (uint32_t i = 0; i < 32; i++)
            tail[i] = (uint8_t)(codebook->tail_symbol[i] * 8 + codebook->tail_bits[i] - less);
    }
    for (uint32_t i = 0; i < 2; i++) {
        t->a[i] = twice(has_pairs(shape) ? codebook->symbol + 16 * i : symbols + 16 * i);
        t->a[8 + i] = twice(has_pairs(shape) ? codebook->tail_symbol + 16 * i : tail + 16 * i);
        t->b[i] = twice(lengths + 16 * i);
        t->b[8 + i] = twice(codebook->tail_bits + 16 * i);
    }
    for (uint32_t i = 0; shape == SPLIT_PAIRS_4 && i < 4; i++) {
        t->a[8 + i] = differences(codebook->tail_symbol, i);
        t->b[8 + i] = differences(codebook->tail_bits, i);
    }
    t->tail_mask = _mm256_set1_epi8((char)((1u << (codebook->max_bits - codebook->n_ones)) - 1));
    t->n_ones = _mm_cvtsi32_si128(codebook->n_ones);
}

INLINE void load_tables(table_shape shape, const pleat__codebook *codebook, tables *t) {
    const uint32_t rest = 16u - codebook->max_bits;
    uint8_t entries[256], scale[2][16];
    if (shape > WIDE) load_split_tables(shape, codebook, t);
    if (shape == WIDE) wide_entries(codebook, t->wide);
    if (!is_pairs(shape) && shape < WIDE) narrow_entries(shape, codebook, entries);
    for (uint32_t i = 0; shape < WIDE && i < n_shuffles(shape); i++) {
        t->a[i] = differences(is_pairs(shape) ? codebook->symbol : entries, i);
        if (is_pairs(shape)) t->b[i] = differences(codebook->symbol_bits, i);
        if (shape == NARROW_8) t->a[8 + i] = differences(entries + 128, i);
        if (shape == PAIRS_8) t->a[8 + i] = differences(codebook->symbol + 128, i);
        if (shape == PAIRS_8) t->b[8 + i] = differences(codebook->symbol_bits + 128, i);
    }
    for (uint32_t used = 0; used < 16; used++) {
        const uint32_t factor = used <= rest ? 1u << (rest - used) : 0;
        scale[0][used] = (uint8_t)factor;
        scale[1][used] = (uint8_t)(factor >> 8);
    }
    t->scale_low = twice(scale[0]);
    t->scale_high = twice(scale[1]);
    t->most_used = _mm256_set1_epi8((char)rest);
    t->base = _mm256_set1_epi8((char)codebook->base);
    t->rest = _mm_cvtsi32_si128((int)rest);
}

/* ---- streams' lanes ------------------------------------------------------------------------------------ */

/* Lanes 0..7 and 16..23 of a stream's 16-bit numbers, and the others: what unpacking bytes of lanes makes. */
INLINE void load_words(const uint16_t *p, __m256i out[2]) {
    const __m256i a = _mm256_load_si256((const __m256i *)(const void *)p);
    const __m256i b = _mm256_load_si256((const __m256i *)(const void *)(p + 16));
    out[0] = _mm256_permute2x128_si256(a, b, 0x20);
    out[1] = _mm256_permute2x128_si256(a, b, 0x31);
}
INLINE void store_words(uint16_t *p, __m256i x, __m256i y) {
    _mm256_store_si256((__m256i *)(void *)p, _mm256_permute2x128_si256(x, y, 0x20));
    _mm256_store_si256((__m256i *)(void *)(p + 16), _mm256_permute2x128_si256(x, y, 0x31));
}

/* Low bytes of 16-bit words, and high ones. */
INLINE __m256i low_bytes(__m256i x, __m256i y) {
    const __m256i mask = _mm256_set1_epi16(0xFF);
    return _mm256_packus_epi16(_mm256_and_si256(x, mask), _mm256_and_si256(y, mask));
}
INLINE __m256i high_bytes(__m256i x, __m256i y) {
    return _mm256_packus_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(y, 8));
}

/* 2^(16 - n) for a byte n of 1..16, as words of 16 bits: 0 for n = 0. */
INLINE void powers(__m256i n, __m256i out[2]) {
    const __m256i high = _mm256_setr_epi8(0, -128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, -128, 64, 32, 16, 8,
                                          4, 2, 1, 0, 0, 0, 0, 0, 0, 0);
    const __m256i low = _mm256_setr_epi8(1, 0, 0, 0, 0, 0, 0, 0, 0, -128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0,
                                         0, -128, 64, 32, 16, 8, 4, 2);
    const __m256i is_16 = _mm256_cmpeq_epi8(n, _mm256_set1_epi8(16)), low_n = _mm256_and_si256(n, _mm256_set1_epi8(15));
    const __m256i h = _mm256_andnot_si256(is_16, _mm256_shuffle_epi8(high, low_n));
    const __m256i l =
        _mm256_andnot_si256(_mm256_cmpeq_epi8(n, _mm256_setzero_si256()), _mm256_shuffle_epi8(low, low_n));
    out[0] = _mm256_unpacklo_epi8(l, h);
    out[1] = _mm256_unpackhi_epi8(l, h);
}

/* A stream's windows have their bits lowest; here they are highest, those used below them. */
INLINE void load_lanes(const pleat__stream *s, lanes *l) {
    __m256i window[2], valid[2], power[2];
    load_words(s->window, window);
    load_words(s->valid, valid);
    const __m256i n = low_bytes(valid[0], valid[1]);
    powers(n, power);
    window[0] = _mm256_mullo_epi16(window[0], power[0]);
    window[1] = _mm256_mullo_epi16(window[1], power[1]);
    l->early = low_bytes(window[0], window[1]);
    l->late = high_bytes(window[0], window[1]);
    l->used = _mm256_sub_epi8(_mm256_set1_epi8(16), n);
    l->bytes = s->bytes;
    l->n_bytes = s->n_bytes;
    l->n_taken = s->n_taken;
}

INLINE void store_lanes(const lanes *l, pleat__stream *s) {
    const __m256i zero = _mm256_setzero_si256(), valid = _mm256_sub_epi8(_mm256_set1_epi8(16), l->used);
    __m256i power[2]; /* 2^valid = 2^(16 - used): every lane has used a bit by now */
    powers(l->used, power);
    store_words(s->window, _mm256_mulhi_epu16(_mm256_unpacklo_epi8(l->early, l->late), power[0]),
                _mm256_mulhi_epu16(_mm256_unpackhi_epi8(l->early, l->late), power[1]));
    store_words(s->valid, _mm256_unpacklo_epi8(valid, zero), _mm256_unpackhi_epi8(valid, zero));
    s->n_taken = l->n_taken;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

INLINE __m128i two_eights(const void *low, const void *high) {
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)low)), (const __m64 *)high));
}
INLINE __m256i two_halves(__m128i low, __m128i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Where the stream's next byte is: all that a step reads from there is readable, as it is not past the end. */
INLINE const uint8_t *place_of(const lanes *l) {
    return l->bytes + (l->n_taken < l->n_bytes ? l->n_taken : l->n_bytes);
}

/* Bytes from `at` on for the set bits of a mask, in turn; zero for the others.  At most 32 are read. */
INLINE __m256i spread_at(const uint8_t *at, uint32_t mask) {
    const uint8_t *at_8 = at + __builtin_popcount(mask & 0xFF), *at_16 = at + __builtin_popcount(mask & 0xFFFF);
    const uint8_t *at_24 = at + __builtin_popcount(mask & 0xFFFFFF);
    const uint64_t *spread = pleat__spread;
    const __m256i from = two_halves(two_eights(spread + (mask & 0xFF), spread + (mask >> 8 & 0xFF)),
                                    two_eights(spread + (mask >> 16 & 0xFF), spread + (mask >> 24)));
    const __m256i upper = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    const __m256i bytes = two_halves(two_eights(at, at_8), two_eights(at_16, at_24));
    return _mm256_shuffle_epi8(bytes, _mm256_or_si256(from, upper));
}

/* The stream's next bytes for the lanes of `takes`, in turn; zero for the others. */
INLINE __m256i next_bytes(lanes *l, __m256i takes) {
    const uint32_t mask = (uint32_t)_mm256_movemask_epi8(takes);
    const __m256i bytes = spread_at(place_of(l), mask);
    l->n_taken += (uint64_t)__builtin_popcount(mask);
    return bytes;
}

/* Where `takes` is set late becomes early, and a byte late. */
INLINE void take(lanes *l, __m256i takes, __m256i bytes) {
    l->early = _mm256_blendv_epi8(l->early, l->late, takes);
    l->late = _mm256_or_si256(_mm256_andnot_si256(takes, l->late), bytes);
    l->used = _mm256_sub_epi8(l->used, _mm256_and_si256(takes, _mm256_set1_epi8(8)));
}

/* The same for lanes of a wide codebook, where one that has no bits takes two bytes.  Both bytes of a lane stand behind
 * each other in the stream: lanes 0..15 take theirs, then lanes 16..31. */
INLINE void take_wide(const tables *t, lanes *l) {
    const __m256i takes = _mm256_cmpgt_epi8(l->used, t->most_used);
    const __m256i twice = _mm256_cmpgt_epi8(l->used, _mm256_add_epi8(t->most_used, _mm256_set1_epi8(8)));
    const __m256i low = _mm256_unpacklo_epi8(takes, twice), high = _mm256_unpackhi_epi8(takes, twice);
    const uint32_t first = (uint32_t)_mm256_movemask_epi8(_mm256_permute2x128_si256(low, high, 0x20));
    const uint32_t second = (uint32_t)_mm256_movemask_epi8(_mm256_permute2x128_si256(low, high, 0x31));
    const uint32_t n_first = (uint32_t)__builtin_popcount(first);
    const __m256i x = spread_at(place_of(l), first), y = spread_at(place_of(l) + n_first, second);
    const __m256i a = _mm256_permute2x128_si256(x, y, 0x20), b = _mm256_permute2x128_si256(x, y, 0x31);
    l->n_taken += n_first + (uint64_t)__builtin_popcount(second);
    take(l, takes, low_bytes(a, b));
    take(l, twice, high_bytes(a, b));
}

/* The next max_bits bits of each lane that has as many, as words. */
INLINE void index_words(const tables *t, const lanes *l, __m256i out[2]) {
    const __m256i low = _mm256_shuffle_epi8(t->scale_low, l->used), high = _mm256_shuffle_epi8(t->scale_high, l->used);
    const __m256i x = _mm256_mullo_epi16(_mm256_unpacklo_epi8(l->early, l->late), _mm256_unpacklo_epi8(low, high));
    const __m256i y = _mm256_mullo_epi16(_mm256_unpackhi_epi8(l->early, l->late), _mm256_unpackhi_epi8(low, high));
    out[0] = _mm256_srl_epi16(x, t->rest);
    out[1] = _mm256_srl_epi16(y, t->rest);
}
/* And as bytes, where there are at most 8. */
INLINE __m256i index_of(const tables *t, const lanes *l) {
    __m256i words[2];
    index_words(t, l, words);
    return _mm256_packus_epi16(words[0], words[1]);
}

/* Entries of a table, and of a second one if there is one. */
INLINE void shuffles(const __m256i *a, const __m256i *b, uint32_t n, __m256i index, __m256i out[2]) {
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const __m256i x = _mm256_shuffle_epi8(a[i], index);
        out[0] = i ? _mm256_xor_si256(out[0], x) : x;
        if (b) {
            const __m256i y = _mm256_shuffle_epi8(b[i], index);
            out[1] = i ? _mm256_xor_si256(out[1], y) : y;
        }
        index = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
    }
}

typedef struct looked_up {
    __m256i symbol; /* narrow: times 8, with other bits below */
    __m256i bits;   /* of its word */
} looked_up;

/* Where bit 7 of the index is set it is the upper half of a table. */
INLINE void shuffles_of_256(const __m256i *a, const __m256i *b, __m256i index, __m256i out[2]) {
    __m256i upper[2];
    shuffles(a, b, 8, index, out);
    shuffles(a + 8, b ? b + 8 : NULL, 8, _mm256_xor_si256(index, _mm256_set1_epi8((char)0x80)), upper);
    out[0] = _mm256_blendv_epi8(out[0], upper[0], index);
    if (b) out[1] = _mm256_blendv_epi8(out[1], upper[1], index);
}

/* Entries of a table of 32; bit 7 of `upper` says that they are in its upper half. */
INLINE __m256i look_in_32(const __m256i *table, __m256i index, __m256i upper) {
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(table[0], index), _mm256_shuffle_epi8(table[1], index), upper);
}

/* Of a split codebook. */
INLINE looked_up look_up_split(table_shape shape, const tables *t, __m256i index) {
    const __m256i behind = _mm256_and_si256(_mm256_srl_epi16(index, t->n_ones), t->tail_mask);
    if (shape == SPLIT_NARROW_4) {
        const __m256i x = _mm256_shuffle_epi8(t->a[0], index);
        const __m256i y = _mm256_blendv_epi8(x, _mm256_shuffle_epi8(t->a[8], behind), x);
        return (looked_up){y, _mm256_and_si256(y, _mm256_set1_epi8(7))};
    }
    const __m256i upper = _mm256_slli_epi16(index, 3), tail_upper = _mm256_slli_epi16(behind, 3);
    const __m256i low = _mm256_and_si256(index, _mm256_set1_epi8(15)), x = look_in_32(t->a, low, upper);
    if (shape == SPLIT_NARROW_5) {
        const __m256i y = _mm256_blendv_epi8(x, look_in_32(t->a + 8, behind, tail_upper), x);
        return (looked_up){y, _mm256_add_epi8(_mm256_and_si256(y, _mm256_set1_epi8(7)), _mm256_set1_epi8(1))};
    }
    const __m256i bits = look_in_32(t->b, low, upper);
    __m256i tail[2];
    if (shape == SPLIT_PAIRS_4) {
        shuffles(t->a + 8, t->b + 8, 4, behind, tail);
    } else {
        tail[0] = look_in_32(t->a + 8, behind, tail_upper);
        tail[1] = look_in_32(t->b + 8, behind, tail_upper);
    }
    return (looked_up){_mm256_blendv_epi8(x, tail[0], bits), _mm256_blendv_epi8(bits, tail[1], bits)};
}

INLINE looked_up look_up(table_shape shape, const tables *t, __m256i index) {
    __m256i x[2];
    if (shape > WIDE) return look_up_split(shape, t, index);
    if (shape == NARROW_8 || shape == PAIRS_8)
        shuffles_of_256(t->a, is_pairs(shape) ? t->b : NULL, index, x);
    else
        shuffles(t->a, is_pairs(shape) ? t->b : NULL, n_shuffles(shape), index, x);
    if (is_pairs(shape)) return (looked_up){x[0], x[1]};
    const __m256i bits = _mm256_and_si256(x[0], _mm256_set1_epi8(7));
    return (looked_up){x[0], shape == NARROW_8 ? _mm256_add_epi8(bits, _mm256_set1_epi8(1)) : bits};
}

/* Entries of 16 lanes, by words. */
INLINE __m256i gather(const tables *t, __m256i index) {
    const __m256i zero = _mm256_setzero_si256(), low = _mm256_set1_epi32(0xFFFF);
    const int *from = (const int *)(const void *)t->wide;
    const __m256i x = _mm256_i32gather_epi32(from, _mm256_unpacklo_epi16(index, zero), 2);
    const __m256i y = _mm256_i32gather_epi32(from, _mm256_unpackhi_epi16(index, zero), 2);
    return _mm256_packus_epi32(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
}

/* Of a wide codebook. */
INLINE looked_up look_up_wide(const tables *t, const lanes *l) {
    __m256i index[2];
    index_words(t, l, index);
    const __m256i x = gather(t, index[0]), y = gather(t, index[1]);
    return (looked_up){low_bytes(x, y), high_bytes(x, y)};
}

/* The next symbol of each lane of a wide codebook. */
INLINE __m256i step_wide(const tables *t, lanes *l) {
    take_wide(t, l);
    const looked_up x = look_up_wide(t, l);
    l->used = _mm256_add_epi8(l->used, x.bits);
    return x.symbol;
}

/* The next symbols of n streams, as look_up() has them. */
INLINE void steps(table_shape shape, const tables *t, uint32_t n, lanes *l, __m256i *symbols) {
    __m256i takes[SIDE_BY_SIDE], bytes[SIDE_BY_SIDE], index[SIDE_BY_SIDE];
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        takes[i] = _mm256_cmpgt_epi8(l[i].used, t->most_used);
        bytes[i] = next_bytes(&l[i], takes[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        take(&l[i], takes[i], bytes[i]);
        index[i] = index_of(t, &l[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const looked_up x = look_up(shape, t, index[i]);
        l[i].used = _mm256_add_epi8(l[i].used, x.bits);
        symbols[i] = x.symbol;
    }
}

INLINE void all_steps(table_shape shape, const tables *t, uint32_t n_streams, lanes *l, __m256i *symbols) {
    UNROLL
    for (uint32_t i = 0; i < n_streams; i += SIDE_BY_SIDE) {
        if (shape != WIDE) {
            steps(shape, t, n_streams < SIDE_BY_SIDE ? n_streams : SIDE_BY_SIDE, l + i, symbols + i);
            continue;
        }
        for (uint32_t j = i; j < n_streams && j < i + SIDE_BY_SIDE; j++) symbols[j] = step_wide(t, l + j);
    }
}

INLINE __m256i step(table_shape shape, const tables *t, lanes *l) {
    __m256i symbols;
    all_steps(shape, t, 1, l, &symbols);
    return symbols;
}

/* The last step of a stream: lanes whose bits are a whole word take nothing.  Lanes that would take a byte take a zero
 * first, to see their word. */
INLINE __m256i last_step(table_shape shape, const tables *t, lanes *l) {
    const __m256i lacking = _mm256_cmpgt_epi8(l->used, t->most_used);
    const __m256i valid = _mm256_sub_epi8(_mm256_set1_epi8(16), l->used);
    lanes ahead = *l;
    take(&ahead, lacking, _mm256_setzero_si256());
    const __m256i need = look_up(shape, t, index_of(t, &ahead)).bits;
    const __m256i takes = _mm256_and_si256(lacking, _mm256_cmpgt_epi8(need, valid));
    const __m256i bytes = next_bytes(l, takes);
    take(l, takes, bytes);
    ahead.late = _mm256_or_si256(ahead.late, bytes);
    const looked_up x = look_up(shape, t, index_of(t, &ahead));
    l->used = _mm256_add_epi8(l->used, x.bits);
    return x.symbol;
}

/* ---- streams -------------------------------------------------------------------------------------------- */

INLINE void store_two(uint8_t *out, size_t gap, __m256i x) {
    _mm_store_si128((__m128i *)(void *)out, _mm256_castsi256_si128(x));
    _mm_store_si128((__m128i *)(void *)(out + gap), _mm256_extracti128_si256(x, 1));
}

/* What two steps gave: a vector of single codes, or two of pairs. */
INLINE void store(table_shape shape, const tables *t, __m256i even, __m256i odd, uint8_t *out) {
    const __m256i low = _mm256_unpacklo_epi8(even, odd), high = _mm256_unpackhi_epi8(even, odd);
    if (has_pairs(shape)) {
        const __m256i mask = _mm256_set1_epi8(15);
        store_two(out, 32, _mm256_add_epi8(_mm256_and_si256(low, mask), t->base));
        store_two(out + 16, 32, _mm256_add_epi8(_mm256_and_si256(high, mask), t->base));
        store_two(out + 64, 32, _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(low, 4), mask), t->base));
        store_two(out + 80, 32, _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(high, 4), mask), t->base));
    } else if (shape == WIDE) {
        store_two(out, 32, low);
        store_two(out + 16, 32, high);
    } else {
        const __m256i mask = _mm256_set1_epi8(31);
        store_two(out, 32, _mm256_and_si256(_mm256_srli_epi16(low, 3), mask));
        store_two(out + 16, 32, _mm256_and_si256(_mm256_srli_epi16(high, 3), mask));
    }
}

/* Vectors of one codebook; bit i of `ends`: stream i ends with them. */
INLINE void decode_vectors(table_shape shape, uint32_t n_streams, const pleat__codebook *codebook, uint32_t n_vectors,
                           uint32_t ends, lanes *l, uint8_t *const *out) {
    const uint32_t n_turns = has_pairs(shape) ? n_vectors / 2 : n_vectors;
    const size_t turn_bytes = has_pairs(shape) ? 128 : 64;
    tables t;
    load_tables(shape, codebook, &t);
    for (uint32_t turn = 0; turn + 1 < n_turns; turn++) {
        __m256i even[PLEAT__STREAMS], odd[PLEAT__STREAMS];
        all_steps(shape, &t, n_streams, l, even);
        all_steps(shape, &t, n_streams, l, odd);
        UNROLL
        for (uint32_t i = 0; i < n_streams; i++) store(shape, &t, even[i], odd[i], out[i] + turn * turn_bytes);
    }
    for (uint32_t i = 0; i < n_streams; i++) {
        const __m256i even = step(shape, &t, &l[i]);
        const __m256i odd = ends >> i & 1 ? last_step(shape, &t, &l[i]) : step(shape, &t, &l[i]);
        store(shape, &t, even, odd, out[i] + (n_turns - 1) * turn_bytes);
    }
}

/* The same for 1, 2 and 4 streams. */
typedef void (*vectors_fn)(const pleat__codebook *codebook, uint32_t n_vectors, uint32_t ends, lanes *l,
                           uint8_t *const *out);
#define VECTORS(name, shape, n_streams)                                                            \
    static void name(const pleat__codebook *codebook, uint32_t n_vectors, uint32_t ends, lanes *l, \
                     uint8_t *const *out) {                                                        \
        decode_vectors(shape, n_streams, codebook, n_vectors, (shape) == WIDE ? 0 : ends, l, out); \
    }
#define SHAPE(name, shape)         \
    VECTORS(name##_by_1, shape, 1) \
    VECTORS(name##_by_2, shape, 2) \
    VECTORS(name##_by_4, shape, 4)
#define ALL_OF(name) \
    { name##_by_1, name##_by_2, name##_by_4 }

SHAPE(pairs_6, PAIRS_6)
SHAPE(pairs_7, PAIRS_7)
SHAPE(pairs_8, PAIRS_8)
SHAPE(narrow_6, NARROW_6)
SHAPE(narrow_7, NARROW_7)
SHAPE(narrow_8, NARROW_8)
SHAPE(wide, WIDE)
SHAPE(split_pairs_2, SPLIT_PAIRS_2)
SHAPE(split_pairs_4, SPLIT_PAIRS_4)
SHAPE(split_narrow_4, SPLIT_NARROW_4)
SHAPE(split_narrow_5, SPLIT_NARROW_5)

static const vectors_fn by_shape[][3] = {ALL_OF(pairs_6),        ALL_OF(pairs_7),       ALL_OF(pairs_8),
                                         ALL_OF(narrow_6),       ALL_OF(narrow_7),      ALL_OF(narrow_8),
                                         ALL_OF(wide),           ALL_OF(split_pairs_2), ALL_OF(split_pairs_4),
                                         ALL_OF(split_narrow_4), ALL_OF(split_narrow_5)};

/* Have entries of short words room for the bit that says that a word is longer? */
static bool has_room(const pleat__codebook *codebook) {
    const __m256i symbols = _mm256_loadu_si256((const __m256i *)(const void *)codebook->symbol);
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)codebook->symbol_bits);
    const __m256i is_longer = _mm256_cmpgt_epi8(bits, _mm256_set1_epi8((char)codebook->short_bits));
    const __m256i has_none = _mm256_cmpgt_epi8(symbols, _mm256_set1_epi8(15));
    return _mm256_testc_si256(is_longer, has_none);
}

/* Split where that is less than the whole table. */
static table_shape best_shape_of(const pleat__codebook *codebook) {
    const uint32_t tail_bits = codebook->max_bits - codebook->n_ones;
    if (codebook->short_bits == 0) return shape_of(codebook);
    if (codebook->kind == PLEAT__CODEBOOK_PAIRS) {
        if (codebook->max_bits < 7) return shape_of(codebook);
        return tail_bits <= 5 ? SPLIT_PAIRS_2 : SPLIT_PAIRS_4;
    }
    if (tail_bits > codebook->short_bits || !has_room(codebook)) return shape_of(codebook);
    return codebook->short_bits == 4 && codebook->max_bits < 8 ? SPLIT_NARROW_4 : SPLIT_NARROW_5;
}

/* Of 1, 2 or 4 streams. */
static void decode_runs(const pleat__stream_run *runs, uint32_t n_runs, pleat__stream *const *streams,
                        uint32_t n_streams, uint8_t *const *out) {
    lanes l[PLEAT__STREAMS];
    uint8_t *to[PLEAT__STREAMS] = {NULL};
    uint32_t n_vectors = 0, ends = 0;
    for (uint32_t r = 0; r < n_runs; r++) n_vectors += runs[r].n_vectors;
    for (uint32_t i = 0; i < n_streams; i++) {
        load_lanes(streams[i], &l[i]);
        to[i] = out[i];
        ends |= (uint32_t)(streams[i]->n_left == n_vectors) << i;
    }
    for (uint32_t r = 0; r < n_runs; r++) {
        const vectors_fn *vectors = by_shape[best_shape_of(runs[r].codebook)];
        vectors[n_streams / 2](runs[r].codebook, runs[r].n_vectors, r + 1 == n_runs ? ends : 0, l, to);
        for (uint32_t i = 0; i < n_streams; i++) to[i] += (size_t)64 * runs[r].n_vectors;
    }
    for (uint32_t i = 0; i < n_streams; i++) {
        store_lanes(&l[i], streams[i]);
        streams[i]->n_left -= n_vectors;
    }
}

void pleat__stream_decode_runs_avx2(const pleat__stream_run *runs, uint32_t n_runs, pleat__stream *const *streams,
                                    uint32_t n_streams, uint8_t *const *out) {
    if (n_streams == 4) {
        decode_runs(runs, n_runs, streams, 4, out);
        return;
    }
    if (n_streams >= 2) decode_runs(runs, n_runs, streams, 2, out);
    if (n_streams % 2) decode_runs(runs, n_runs, streams + n_streams - 1, 1, out + n_streams - 1);
}

static void decode_some(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                        uint32_t n_vectors, uint8_t *const *out) {
    const pleat__stream_run run = {codebook, n_vectors};
    if (n_vectors > 0) pleat__stream_decode_runs_avx2(&run, 1, streams, n_streams, out);
}

void pleat__stream_decode_avx2(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                               uint32_t n_vectors, uint8_t *const *out) {
    if (codebook->kind == PLEAT__CODEBOOK_WIDE)
        last_by_scalar(decode_some, codebook, streams, n_streams, n_vectors, out);
    else
        decode_some(codebook, streams, n_streams, n_vectors, out);
}
