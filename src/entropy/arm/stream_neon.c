/* SPDX-License-Identifier: MIT
 *
 * stream_neon.c: decoding with registers of 16 bytes: 32 lanes a step, two registers of each kind.
 *
 * A lane's window is the last two bytes that it took, and how many of their 16 bits are used, as x86/stream_avx2.c has
 * it.  The next bits are early >> used | late << (8 - used): NEON shifts each byte by a number of its own, to either
 * side.  Tables of 64 bytes are one lookup; an index beyond one gives zero, or leaves what an earlier one gave.
 *
 *     pairs    6, 7 bits   symbols, lengths           1 or 2 lookups each
 *              8 bits      symbols, lengths           4 each
 *     narrow   6, 7 bits   symbol << 3 | bits         1 or 2
 *              8 bits      symbol << 3 | bits - 1     4
 *     wide                 symbols, lengths by symbol 4 for each half of the table, 4
 */
#include <arm_neon.h>

#include "core/compiler.h"
#include "entropy/spread.h"
#include "entropy/stream_shapes.h"

typedef struct tables {
    uint8x16x4_t a[8], b[4]; /* pairs, wide: symbols, lengths; narrow: entries */
    uint8x16_t most_used;    /* 16 - max_bits */
    uint8x16_t mask;         /* 2^max_bits - 1 */
    uint8x16_t base;         /* of pairs: what is added to a code */
} tables;

#define HALVES 2

typedef struct lanes {
    uint8x16_t early[HALVES], late[HALVES], used[HALVES];
    const uint8_t *bytes;
    uint64_t n_bytes, n_taken;
} lanes;

INLINE uint32_t n_lookups(table_shape shape) {
    return shape == PAIRS_6 || shape == NARROW_6   ? 1
           : shape == PAIRS_8 || shape == NARROW_8 ? 4
                                                   : 2; /* wide: its own */
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* Entries 64 * i and on. */
INLINE uint8x16x4_t load_64(const uint8_t *p, uint32_t i) {
    p += (size_t)64 * i;
    return (uint8x16x4_t){{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}

INLINE void load_tables(table_shape shape, const pleat__codebook *codebook, tables *t) {
    const uint8_t less = shape == NARROW_8;
    uint8_t entries[256];
    for (uint32_t i = 0; i < 256 && !is_pairs(shape) && shape != WIDE; i++) /* symbols are below 32 */
        entries[i] = (uint8_t)(codebook->symbol[i] * 8 + codebook->symbol_bits[i] - less);
    for (uint32_t i = 0; i < 8 && shape == WIDE; i++) t->a[i] = load_64(codebook->symbol, i);
    for (uint32_t i = 0; i < 4 && shape == WIDE; i++) t->b[i] = load_64(codebook->bits, i);
    for (uint32_t i = 0; i < n_lookups(shape) && shape != WIDE; i++) {
        t->a[i] = load_64(is_pairs(shape) ? codebook->symbol : entries, i);
        if (is_pairs(shape)) t->b[i] = load_64(codebook->symbol_bits, i);
    }
    t->most_used = vdupq_n_u8((uint8_t)(16 - codebook->max_bits));
    t->mask = vdupq_n_u8((uint8_t)((1u << codebook->max_bits) - 1));
    t->base = vdupq_n_u8(codebook->base);
}

/* ---- streams' lanes ------------------------------------------------------------------------------------ */

/* A stream's windows have their bits lowest; here they are highest, those used below them. */
INLINE void load_lanes(const pleat__stream *s, lanes *l) {
    for (uint32_t i = 0; i < HALVES; i++) {
        const uint16x8_t v0 = vld1q_u16(s->valid + 16 * i), v1 = vld1q_u16(s->valid + 16 * i + 8);
        const int16x8_t up0 = vreinterpretq_s16_u16(vsubq_u16(vdupq_n_u16(16), v0));
        const int16x8_t up1 = vreinterpretq_s16_u16(vsubq_u16(vdupq_n_u16(16), v1));
        const uint8x16_t w0 = vreinterpretq_u8_u16(vshlq_u16(vld1q_u16(s->window + 16 * i), up0));
        const uint8x16_t w1 = vreinterpretq_u8_u16(vshlq_u16(vld1q_u16(s->window + 16 * i + 8), up1));
        l->early[i] = vuzp1q_u8(w0, w1);
        l->late[i] = vuzp2q_u8(w0, w1);
        l->used[i] = vuzp1q_u8(vreinterpretq_u8_s16(up0), vreinterpretq_u8_s16(up1));
    }
    l->bytes = s->bytes;
    l->n_bytes = s->n_bytes;
    l->n_taken = s->n_taken;
}

INLINE void store_eight(pleat__stream *s, uint32_t at, uint8x16_t window, uint8x8_t used) {
    const int16x8_t down = vnegq_s16(vreinterpretq_s16_u16(vmovl_u8(used)));
    vst1q_u16(s->window + at, vshlq_u16(vreinterpretq_u16_u8(window), down));
    vst1q_u16(s->valid + at, vreinterpretq_u16_s16(vaddq_s16(down, vdupq_n_s16(16))));
}

INLINE void store_lanes(const lanes *l, pleat__stream *s) {
    for (uint32_t i = 0; i < HALVES; i++) {
        store_eight(s, 16 * i, vzip1q_u8(l->early[i], l->late[i]), vget_low_u8(l->used[i]));
        store_eight(s, 16 * i + 8, vzip2q_u8(l->early[i], l->late[i]), vget_high_u8(l->used[i]));
    }
    s->n_taken = l->n_taken;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

/* Bit j: lane j takes. */
INLINE uint32_t mask_of(const uint8x16_t *takes) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    uint8x16_t x = vpaddq_u8(vandq_u8(takes[0], bit), vandq_u8(takes[1], bit));
    x = vpaddq_u8(x, x);
    return vgetq_lane_u32(vreinterpretq_u32_u8(vpaddq_u8(x, x)), 0);
}

/* Byte i: how many bits are set in bytes 0..i. */
INLINE uint32_t counts_to(uint32_t mask) {
    uint32_t x = mask - (mask >> 1 & 0x55555555u);
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0F0F0F0Fu) * 0x01010101u;
}

INLINE uint8x8_t spread(const uint8_t *at, uint32_t mask) {
    return vtbl1_u8(vld1_u8(at), vcreate_u8(pleat__spread[mask & 0xFF]));
}

/* Where the stream's next byte is: all that a step reads from there is readable, as it is not past the end. */
INLINE const uint8_t *place_of(const lanes *l) {
    return l->bytes + (l->n_taken < l->n_bytes ? l->n_taken : l->n_bytes);
}

/* Bytes from `at` on for those that `takes` says, in turn; zero for the others.  At most 32 are read.  Returns how many
 * are taken. */
INLINE uint32_t spread_at(const uint8_t *at, const uint8x16_t *takes, uint8x16_t *bytes) {
    const uint32_t mask = mask_of(takes), counts = counts_to(mask);
    bytes[0] = vcombine_u8(spread(at, mask), spread(at + (counts & 0xFF), mask >> 8));
    bytes[1] =
        vcombine_u8(spread(at + (counts >> 8 & 0xFF), mask >> 16), spread(at + (counts >> 16 & 0xFF), mask >> 24));
    return counts >> 24;
}

/* The stream's next bytes for the lanes of `takes`, in turn; zero for the others. */
INLINE void next_bytes(lanes *l, const uint8x16_t *takes, uint8x16_t *bytes) {
    l->n_taken += spread_at(place_of(l), takes, bytes);
}

/* Where `takes` is set late becomes early, and a byte late. */
INLINE void take(lanes *l, const uint8x16_t *takes, const uint8x16_t *bytes) {
    for (uint32_t i = 0; i < HALVES; i++) {
        l->early[i] = vbslq_u8(takes[i], l->late[i], l->early[i]);
        l->late[i] = vbslq_u8(takes[i], bytes[i], l->late[i]);
        l->used[i] = vsubq_u8(l->used[i], vandq_u8(takes[i], vdupq_n_u8(8)));
    }
}

/* The same for lanes of a wide codebook, where one that has no bits takes two bytes.  Both bytes of a lane stand behind
 * each other in the stream. */
INLINE void take_wide(const tables *t, lanes *l) {
    const uint8_t *at = place_of(l);
    uint8x16_t takes[HALVES], twice[HALVES], first[HALVES], second[HALVES];
    for (uint32_t i = 0; i < HALVES; i++) {
        takes[i] = vcgtq_u8(l->used[i], t->most_used);
        twice[i] = vcgtq_u8(l->used[i], vaddq_u8(t->most_used, vdupq_n_u8(8)));
        const uint8x16_t both[2] = {vzip1q_u8(takes[i], twice[i]), vzip2q_u8(takes[i], twice[i])};
        uint8x16_t bytes[2];
        const uint32_t n = spread_at(at, both, bytes);
        first[i] = vuzp1q_u8(bytes[0], bytes[1]);
        second[i] = vuzp2q_u8(bytes[0], bytes[1]);
        at += n;
        l->n_taken += n;
    }
    take(l, takes, first);
    take(l, twice, second);
}

typedef struct looked_up {
    uint8x16_t symbol; /* narrow: times 8, with other bits below */
    uint8x16_t bits;   /* of its word */
} looked_up;

INLINE uint8x16_t look_in(const uint8x16x4_t *tables_of_64, uint32_t n, uint8x16_t index) {
    uint8x16_t x = vqtbl4q_u8(tables_of_64[0], index);
    for (uint32_t i = 1; i < n; i++) x = vqtbx4q_u8(x, tables_of_64[i], vsubq_u8(index, vdupq_n_u8((uint8_t)(64 * i))));
    return x;
}

/* Of a wide codebook.  The next eight bits are `low`, the lowest of `high` is the ninth. */
INLINE looked_up look_up_wide(const tables *t, uint8x16_t low, uint8x16_t high) {
    const uint8x16_t is_upper = vtstq_u8(high, vdupq_n_u8(1));
    const uint8x16_t symbol = vbslq_u8(is_upper, look_in(t->a + 4, 4, low), look_in(t->a, 4, low));
    return (looked_up){symbol, look_in(t->b, 4, symbol)};
}

/* The next word of the lanes of half i: their next max_bits bits are the index. */
INLINE looked_up look_up(table_shape shape, const tables *t, const lanes *l, uint32_t i) {
    const int8x16_t used = vreinterpretq_s8_u8(l->used[i]);
    const uint8x16_t early = vshlq_u8(l->early[i], vnegq_s8(used));
    const uint8x16_t late = vshlq_u8(l->late[i], vsubq_s8(vdupq_n_s8(8), used));
    if (shape == WIDE) return look_up_wide(t, vorrq_u8(early, late), vshlq_u8(l->late[i], vnegq_s8(used)));
    const uint8x16_t index = vandq_u8(vorrq_u8(early, late), t->mask);
    const uint8x16_t x = look_in(t->a, n_lookups(shape), index);
    if (is_pairs(shape)) return (looked_up){x, look_in(t->b, n_lookups(shape), index)};
    const uint8x16_t bits = vandq_u8(x, vdupq_n_u8(7));
    return (looked_up){x, shape == NARROW_8 ? vaddq_u8(bits, vdupq_n_u8(1)) : bits};
}

/* The next symbol of each lane, as look_up() has it. */
INLINE void step(table_shape shape, const tables *t, lanes *l, uint8x16_t *symbols) {
    uint8x16_t takes[HALVES], bytes[HALVES];
    if (shape == WIDE) {
        take_wide(t, l);
    } else {
        for (uint32_t i = 0; i < HALVES; i++) takes[i] = vcgtq_u8(l->used[i], t->most_used);
        next_bytes(l, takes, bytes);
        take(l, takes, bytes);
    }
    for (uint32_t i = 0; i < HALVES; i++) {
        const looked_up x = look_up(shape, t, l, i);
        l->used[i] = vaddq_u8(l->used[i], x.bits);
        symbols[i] = x.symbol;
    }
}

/* The last step of a stream: lanes whose bits are a whole word take nothing. */
INLINE void last_step(table_shape shape, const tables *t, lanes *l, uint8x16_t *symbols) {
    uint8x16_t takes[HALVES], bytes[HALVES];
    for (uint32_t i = 0; i < HALVES; i++) /* behind a lane's bits zeros are shifted in */
        takes[i] = vcgtq_u8(look_up(shape, t, l, i).bits, vsubq_u8(vdupq_n_u8(16), l->used[i]));
    next_bytes(l, takes, bytes);
    take(l, takes, bytes);
    for (uint32_t i = 0; i < HALVES; i++) {
        const looked_up x = look_up(shape, t, l, i);
        l->used[i] = vaddq_u8(l->used[i], x.bits);
        symbols[i] = x.symbol;
    }
}

/* ---- streams -------------------------------------------------------------------------------------------- */

INLINE uint8x16x2_t two(uint8x16_t even, uint8x16_t odd) { return (uint8x16x2_t){{even, odd}}; }

/* What two steps gave: a vector of single codes, or two of pairs. */
INLINE void store(table_shape shape, const tables *t, const uint8x16_t *even, const uint8x16_t *odd, uint8_t *out) {
    for (uint32_t i = 0; i < HALVES; i++, out += 32) {
        if (is_pairs(shape)) {
            const uint8x16_t mask = vdupq_n_u8(15);
            vst2q_u8(out, two(vaddq_u8(vandq_u8(even[i], mask), t->base), vaddq_u8(vandq_u8(odd[i], mask), t->base)));
            vst2q_u8(out + 64,
                     two(vaddq_u8(vshrq_n_u8(even[i], 4), t->base), vaddq_u8(vshrq_n_u8(odd[i], 4), t->base)));
        } else if (shape == WIDE) {
            vst2q_u8(out, two(even[i], odd[i]));
        } else {
            vst2q_u8(out, two(vshrq_n_u8(even[i], 3), vshrq_n_u8(odd[i], 3)));
        }
    }
}

INLINE void decode(table_shape shape, uint32_t n_streams, const pleat__codebook *codebook,
                   pleat__stream *const *streams, uint32_t n_vectors, uint8_t *const *out) {
    const uint32_t n_turns = is_pairs(shape) ? n_vectors / 2 : n_vectors;
    const size_t turn_bytes = is_pairs(shape) ? 128 : 64;
    tables t;
    lanes l[PLEAT__STREAMS];
    if (n_turns == 0) return;
    load_tables(shape, codebook, &t);
    for (uint32_t i = 0; i < n_streams; i++) load_lanes(streams[i], &l[i]);
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        for (uint32_t i = 0; i < n_streams; i++) {
            uint8x16_t even[HALVES], odd[HALVES];
            step(shape, &t, &l[i], even);
            if (shape != WIDE && turn + 1 == n_turns && streams[i]->n_left == n_vectors)
                last_step(shape, &t, &l[i], odd);
            else
                step(shape, &t, &l[i], odd);
            store(shape, &t, even, odd, out[i] + turn * turn_bytes);
        }
    }
    for (uint32_t i = 0; i < n_streams; i++) {
        store_lanes(&l[i], streams[i]);
        streams[i]->n_left -= n_vectors;
    }
}

DECODERS

void pleat__stream_decode_neon(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                               uint32_t n_vectors, uint8_t *const *out) {
    decoders[shape_of(codebook)](codebook, streams, n_streams, n_vectors, out);
}
