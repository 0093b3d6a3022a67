/* SPDX-License-Identifier: MIT
 *
 * stream_vbmi2.c: decoding in registers: 32 lanes a step, up to four streams at once, whose windows stay in registers for
 * all vectors of a call.
 *
 * A step of a stream.  The lanes that lack bits are a mask.  The stream's next bytes are spread to those lanes, above
 * their bits.  The symbol and its length are looked up by the lowest 6, 7 or 8 bits of each window.
 * Lookups and the spreading share one port, so the tables are as small as the codebook allows, and a narrow codebook's
 * symbol and length share a byte:
 *
 *     pairs    6 bits   symbols, lengths: 64 bytes each              vpermb x 2
 *              7 bits   symbols, lengths: 128 bytes each             vpermi2b x 2
 *              8 bits   symbols, lengths: 256 bytes each             vpermi2b x 4, and the window's bit 7 chooses
 *     narrow   6 bits   symbol << 3 | bits: 64 bytes                 vpermb
 *              7 bits   symbol << 3 | bits: 128 bytes                vpermi2b
 *              8 bits   symbol << 3 | bits - 1: 256 bytes            vpermi2b x 2, and the window's bit 7 chooses
 *     wide     symbols: 512 bytes; lengths by symbol: 256          vpermi2b x 4, and bits 7 and 8 choose; x 2
 *
 * Lanes are 16 bits wide and a lookup is of bytes: what it says of a window's high byte is masked off.
 */
#include <immintrin.h>

#include "core/compiler.h"
#include "entropy/stream.h"
#include "entropy/stream_shapes.h"

typedef struct tables {
    __m512i a[8], b[4]; /* pairs, wide: symbols, lengths; narrow: entries 0..127, entries 128..255 */
    __m512i short_of;   /* bits: a lane that has fewer takes a byte; wide: and in the high bytes, two bytes */
    __m512i base;       /* of pairs: what is added to a code */
} tables;

typedef struct lanes {
    __m512i window, valid;
    const uint8_t *bytes;
    uint64_t n_bytes, n_taken;
} lanes;

INLINE __m512i low_bytes(void) { return _mm512_set1_epi16(0x00FF); }

/* 64 entries from i on, as the shape has them. */
INLINE __m512i narrow_entries(table_shape shape, const pleat__codebook *codebook, uint32_t i) {
    const __m512i symbols = _mm512_loadu_si512(codebook->symbol + i); /* below 32: no bit leaves its byte */
    const __m512i bits = _mm512_loadu_si512(codebook->symbol_bits + i);
    const __m512i field = shape == NARROW_8 ? _mm512_sub_epi8(bits, _mm512_set1_epi8(1)) : bits;
    return _mm512_or_si512(_mm512_slli_epi16(symbols, 3), field);
}

INLINE tables load_tables(table_shape shape, const pleat__codebook *codebook) {
    tables t;
    t.short_of = _mm512_set1_epi16(codebook->max_bits);
    t.base = _mm512_set1_epi8((char)codebook->base);
    if (shape == WIDE) {
        const uint32_t bits = codebook->max_bits;
        t.short_of = _mm512_set1_epi16((int16_t)(bits | (bits > 8 ? bits - 8 : 0) << 8));
        for (uint32_t i = 0; i < 8; i++) t.a[i] = _mm512_loadu_si512(codebook->symbol + 64 * i);
        for (uint32_t i = 0; i < 4; i++) t.b[i] = _mm512_loadu_si512(codebook->bits + 64 * i);
    }
    for (uint32_t i = 0; shape != WIDE && i < (shape == PAIRS_8 ? 4u : 2u); i++) {
        if (is_pairs(shape)) {
            t.a[i] = _mm512_loadu_si512(codebook->symbol + 64 * i);
            t.b[i] = _mm512_loadu_si512(codebook->symbol_bits + 64 * i);
        } else {
            t.a[i] = narrow_entries(shape, codebook, 64 * i);
            t.b[i] = narrow_entries(shape, codebook, 128 + 64 * i);
        }
    }
    return t;
}

typedef struct looked_up {
    __m512i symbol; /* in the low byte (narrow: times 8, and with other bits below); the high one is undefined */
    __m512i bits;   /* of its word, 16 bits wide */
} looked_up;

/* Entries of a table of 256, by the bytes of `index`. */
INLINE __m512i look_in_256(const __m512i *table, __m512i index) {
    const __m512i lower = _mm512_permutex2var_epi8(table[0], index, table[1]);
    const __m512i upper = _mm512_permutex2var_epi8(table[2], index, table[3]);
    return _mm512_mask_mov_epi8(lower, _mm512_movepi8_mask(index), upper);
}

INLINE looked_up look_up_wide(const tables *t, __m512i window) {
    const __mmask32 is_upper = _mm512_test_epi16_mask(window, _mm512_set1_epi16(0x100));
    looked_up x;
    x.symbol = _mm512_mask_mov_epi16(look_in_256(t->a, window), is_upper, look_in_256(t->a + 4, window));
    x.bits = _mm512_and_si512(look_in_256(t->b, x.symbol), low_bytes());
    return x;
}

INLINE looked_up look_up(table_shape shape, const tables *t, __m512i window) {
    const __mmask64 low = 0x5555555555555555u;
    looked_up x;
    if (shape == WIDE) return look_up_wide(t, window);
    if (shape == PAIRS_6) {
        x.symbol = _mm512_permutexvar_epi8(window, t->a[0]);
        x.bits = _mm512_maskz_permutexvar_epi8(low, window, t->b[0]);
        return x;
    }
    if (shape == PAIRS_8) {
        x.symbol = look_in_256(t->a, window);
        x.bits = _mm512_and_si512(look_in_256(t->b, window), low_bytes());
        return x;
    }
    if (shape == PAIRS_7) {
        x.symbol = _mm512_permutex2var_epi8(t->a[0], window, t->a[1]);
        x.bits = _mm512_maskz_permutex2var_epi8(low, t->b[0], window, t->b[1]);
        return x;
    }
    x.symbol = shape == NARROW_6 ? _mm512_permutexvar_epi8(window, t->a[0])
                                 : _mm512_permutex2var_epi8(t->a[0], window, t->a[1]);
    if (shape == NARROW_8) {
        const __m512i upper = _mm512_permutex2var_epi8(t->b[0], window, t->b[1]);
        x.symbol = _mm512_mask_mov_epi8(x.symbol, _mm512_movepi8_mask(window), upper);
    }
    x.bits = _mm512_and_si512(x.symbol, _mm512_set1_epi16(7));
    if (shape == NARROW_8) x.bits = _mm512_add_epi16(x.bits, _mm512_set1_epi16(1));
    return x;
}

/* Lanes of n streams that have fewer bits than `need` says take a byte.  At most 32 bytes are taken; they are readable,
 * as the place is not past the end.  Words are spread and not bytes: Zen 4 takes a third of the time for VPEXPANDW that
 * it takes for VPEXPANDB of 64 bytes. */
INLINE void refill(uint32_t n, lanes *l, __m512i need) {
    __mmask32 takes[PLEAT__STREAMS];
    __m512i bytes[PLEAT__STREAMS];
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = l[i].n_taken < l[i].n_bytes ? l[i].n_taken : l[i].n_bytes;
        bytes[i] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(l[i].bytes + at)));
    }
    UNROLL
    for (uint32_t i = 0; i < n; i++) takes[i] = _mm512_cmplt_epu16_mask(l[i].valid, need);
    UNROLL
    for (uint32_t i = 0; i < n; i++) bytes[i] = _mm512_maskz_expand_epi16(takes[i], bytes[i]);
    UNROLL
    for (uint32_t i = 0; i < n; i++) l[i].n_taken += (uint64_t)_mm_popcnt_u32(takes[i]);
    UNROLL
    for (uint32_t i = 0; i < n; i++) bytes[i] = _mm512_sllv_epi16(bytes[i], l[i].valid);
    UNROLL
    for (uint32_t i = 0; i < n; i++)
        l[i].valid = _mm512_mask_add_epi16(l[i].valid, takes[i], l[i].valid, _mm512_set1_epi16(8));
    UNROLL
    for (uint32_t i = 0; i < n; i++) l[i].window = _mm512_or_si512(l[i].window, bytes[i]);
}

/* The same where lanes may take two bytes, which stand behind each other: those that have no bits. */
INLINE void refill_wide(uint32_t n, lanes *l, __m512i need) {
    __mmask64 takes[PLEAT__STREAMS];
    __m512i bytes[PLEAT__STREAMS];
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const __m512i both = _mm512_or_si512(l[i].valid, _mm512_slli_epi16(l[i].valid, 8));
        takes[i] = _mm512_cmplt_epu8_mask(both, need);
    }
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = l[i].n_taken < l[i].n_bytes ? l[i].n_taken : l[i].n_bytes;
        bytes[i] = _mm512_maskz_expand_epi8(takes[i], _mm512_loadu_si512(l[i].bytes + at));
        l[i].n_taken += (uint64_t)_mm_popcnt_u64(takes[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const __m512i more = _mm512_maskz_mov_epi8(takes[i], _mm512_set1_epi8(8));
        l[i].window = _mm512_or_si512(l[i].window, _mm512_sllv_epi16(bytes[i], l[i].valid));
        l[i].valid = _mm512_add_epi16(l[i].valid, _mm512_maddubs_epi16(more, _mm512_set1_epi8(1)));
    }
}

/* The next symbol of each lane of n streams, as look_up() has it.  What a step does is done for all streams before what
 * follows: a step of one stream waits at each instruction, and cores look ahead for less than four of them. */
INLINE void step(table_shape shape, uint32_t n, const tables *t, lanes *l, __m512i need, __m512i *symbols) {
    looked_up x[PLEAT__STREAMS];
    if (shape == WIDE)
        refill_wide(n, l, need);
    else
        refill(n, l, need);
    UNROLL
    for (uint32_t i = 0; i < n; i++) x[i] = look_up(shape, t, l[i].window);
    UNROLL
    for (uint32_t i = 0; i < n; i++) l[i].valid = _mm512_sub_epi16(l[i].valid, x[i].bits);
    UNROLL
    for (uint32_t i = 0; i < n; i++) {
        l[i].window = _mm512_srlv_epi16(l[i].window, x[i].bits);
        symbols[i] = x[i].symbol;
    }
}

/* What two steps gave: a vector of single codes, or two of pairs. */
INLINE void store(table_shape shape, const tables *t, __m512i even, __m512i odd, uint8_t *out) {
    const __m512i both = _mm512_ternarylogic_epi64(low_bytes(), even, _mm512_slli_epi16(odd, 8), 0xCA);
    if (is_pairs(shape)) {
        const __m512i mask = _mm512_set1_epi8(15);
        const __m512i first = _mm512_and_si512(both, mask), second = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
        _mm512_store_si512(out, _mm512_add_epi8(first, t->base));
        _mm512_store_si512(out + 64, _mm512_add_epi8(second, t->base));
    } else if (shape == WIDE) {
        _mm512_store_si512(out, both);
    } else {
        _mm512_store_si512(out, _mm512_and_si512(_mm512_srli_epi16(both, 3), _mm512_set1_epi8(31)));
    }
}

/* Two steps more.  If the stream `ends` there, lanes whose bits are a whole word take nothing more. */
INLINE void last_two_steps(table_shape shape, const tables *t, lanes *l, bool ends, uint8_t *out) {
    __m512i even, odd;
    step(shape, 1, t, l, t->short_of, &even);
    const __m512i need = ends ? look_up(shape, t, l->window).bits : t->short_of;
    step(shape, 1, t, l, need, &odd);
    store(shape, t, even, odd, out);
}

/* ---- streams -------------------------------------------------------------------------------------------- */

INLINE void load_lanes(uint32_t n_streams, pleat__stream *const *streams, lanes *l) {
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) {
        const pleat__stream *s = streams[i];
        l[i] = (lanes){_mm512_load_si512(s->window), _mm512_load_si512(s->valid), s->bytes, s->n_bytes, s->n_taken};
    }
}

INLINE void store_lanes(uint32_t n_streams, const lanes *l, uint32_t n_vectors, pleat__stream *const *streams) {
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) {
        _mm512_store_si512(streams[i]->window, l[i].window);
        _mm512_store_si512(streams[i]->valid, l[i].valid);
        streams[i]->n_taken = l[i].n_taken;
        streams[i]->n_left -= n_vectors;
    }
}

/* Vectors of one codebook, of streams whose lanes stay in registers.  Bit i of `ends`: stream i ends with them. */
INLINE void decode_vectors(table_shape shape, uint32_t n_streams, const pleat__codebook *codebook, uint32_t n_vectors,
                           uint32_t ends, lanes *l, uint8_t **to) {
    const tables t = load_tables(shape, codebook);
    const uint32_t n_turns = is_pairs(shape) ? n_vectors / 2 : n_vectors, n_plain = n_turns - (ends != 0);
    const size_t turn_bytes = is_pairs(shape) ? 128 : 64;
    for (uint32_t turn = 0; turn < n_plain; turn++) {
        __m512i even[PLEAT__STREAMS], odd[PLEAT__STREAMS];
        step(shape, n_streams, &t, l, t.short_of, even);
        step(shape, n_streams, &t, l, t.short_of, odd);
        UNROLL
        for (uint32_t i = 0; i < n_streams; i++) {
            store(shape, &t, even[i], odd[i], to[i]);
            to[i] += turn_bytes;
        }
    }
    if (n_plain == n_turns) return;
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) {
        last_two_steps(shape, &t, &l[i], ends >> i & 1, to[i]);
        to[i] += turn_bytes;
    }
}

INLINE uint32_t ends_of(uint32_t n_streams, pleat__stream *const *streams, uint32_t n_vectors) {
    uint32_t ends = 0;
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) ends |= (uint32_t)(streams[i]->n_left == n_vectors) << i;
    return ends;
}

INLINE void decode(table_shape shape, uint32_t n_streams, const pleat__codebook *codebook,
                   pleat__stream *const *streams, uint32_t n_vectors, uint8_t *const *out) {
    lanes l[PLEAT__STREAMS];
    uint8_t *to[PLEAT__STREAMS];
    if (n_vectors == 0) return;
    load_lanes(n_streams, streams, l);
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) to[i] = out[i];
    decode_vectors(shape, n_streams, codebook, n_vectors, shape == WIDE ? 0 : ends_of(n_streams, streams, n_vectors), l,
                   to);
    store_lanes(n_streams, l, n_vectors, streams);
}

DECODERS

void pleat__stream_decode_vbmi2(const pleat__codebook *codebook, pleat__stream *const *streams, uint32_t n_streams,
                                uint32_t n_vectors, uint8_t *const *out) {
    decoders[shape_of(codebook)](codebook, streams, n_streams, n_vectors, out);
}

/* ---- runs ----------------------------------------------------------------------------------------------- */

INLINE void decode_runs(uint32_t n_streams, const pleat__stream_run *runs, uint32_t n_runs,
                        pleat__stream *const *streams, uint8_t *const *out) {
    lanes l[PLEAT__STREAMS];
    uint8_t *to[PLEAT__STREAMS];
    uint32_t n_vectors = 0;
    for (uint32_t r = 0; r < n_runs; r++) n_vectors += runs[r].n_vectors;
    const uint32_t ends = ends_of(n_streams, streams, n_vectors);
    load_lanes(n_streams, streams, l);
    UNROLL
    for (uint32_t i = 0; i < n_streams; i++) to[i] = out[i];
    for (uint32_t r = 0; r < n_runs; r++) {
        const pleat__codebook *codebook = runs[r].codebook;
        const uint32_t n = runs[r].n_vectors, ends_now = r + 1 == n_runs ? ends : 0;
        switch (shape_of(codebook)) {
            case PAIRS_6: decode_vectors(PAIRS_6, n_streams, codebook, n, ends_now, l, to); break;
            case PAIRS_7: decode_vectors(PAIRS_7, n_streams, codebook, n, ends_now, l, to); break;
            case PAIRS_8: decode_vectors(PAIRS_8, n_streams, codebook, n, ends_now, l, to); break;
            case NARROW_6: decode_vectors(NARROW_6, n_streams, codebook, n, ends_now, l, to); break;
            case NARROW_7: decode_vectors(NARROW_7, n_streams, codebook, n, ends_now, l, to); break;
            case NARROW_8: decode_vectors(NARROW_8, n_streams, codebook, n, ends_now, l, to); break;
            default: break; /* no run is wide */
        }
    }
    store_lanes(n_streams, l, n_vectors, streams);
}

void pleat__stream_decode_runs_vbmi2(const pleat__stream_run *runs, uint32_t n_runs, pleat__stream *const *streams,
                                     uint32_t n_streams, uint8_t *const *out) {
    if (n_streams == 4) {
        decode_runs(4, runs, n_runs, streams, out);
        return;
    }
    if (n_streams >= 2) decode_runs(2, runs, n_runs, streams, out);
    if (n_streams % 2) decode_runs(1, runs, n_runs, streams + n_streams - 1, out + n_streams - 1);
}
