/* SPDX-License-Identifier: MIT
 *
 * entropy_rig.h: what tests of codebooks and streams are made of: random codebooks, codes, and encoded streams; and a reader
 * that follows stream.h's text bit by bit, with the words alone.
 */
#ifndef CHECK_ENTROPY_RIG_H
#define CHECK_ENTROPY_RIG_H

#include <string.h>

#include "check.h"
#include "entropy/stream.h"

#define MAX_VECTORS 256u

/* ---- weights and codebooks ------------------------------------------------------------------------------- */

enum { EQUAL, RANDOM, FIBONACCI, FIBONACCI_DOWN, ONE, GEOMETRIC, FEW_VALUES, HUGE_WEIGHTS, N_WEIGHTS };

static void fill_weights(uint64_t *w, uint32_t n, uint32_t kind) {
    uint64_t a = 1, b = 1;
    const uint64_t one = check_below(n);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t next = i < 60 ? a + b : b;
        a = b;
        b = next;
        switch (kind) {
            case EQUAL: w[i] = 7; break;
            case RANDOM: w[i] = 1 + check_below(1000); break;
            case FIBONACCI: w[i] = a; break;
            case FIBONACCI_DOWN: w[n - 1 - i] = a; break;
            case ONE: w[i] = i == one ? 1000000 : 1; break;
            case GEOMETRIC: w[i] = 1 + ((uint64_t)1 << 40 >> (i < 40 ? i : 40)); break;
            case FEW_VALUES: w[i] = 1 + check_below(3); break;
            default: w[i] = 1 + check_below((uint64_t)1 << check_below(45)); break;
        }
    }
}

static uint32_t bits_for(uint32_t n) {
    uint32_t bits = 1;
    while (1u << bits < n) bits++;
    return bits;
}

static const uint32_t most_levels[] = {16, 32, 256}, most_bits[] = {8, 8, 9};

/* A codebook of this kind for random weights and a random limit.  Half of those of pairs lack words for some. */
static void random_codebook(pleat__codebook *codebook, pleat__codebook_kind kind, uint32_t n_levels) {
    const bool pairs = kind == PLEAT__CODEBOOK_PAIRS;
    const uint32_t n = pairs ? n_levels * n_levels : n_levels, part = pairs && n > 2 ? (uint32_t)check_below(8) : 0;
    uint64_t weights[256] = {0};
    uint8_t lengths[256], bits[256] = {0}, symbols[256];
    uint32_t n_words = 0;
    for (uint32_t i = 0; i < n; i++)
        if (part < 4 || i < 2 || check_below(part) == 0)
            symbols[n_words++] = (uint8_t)(pairs ? i % n_levels + i / n_levels * 16 : i);
    fill_weights(weights, n_words, (uint32_t)check_below(N_WEIGHTS));
    pleat__codebook_lengths(weights, n_words, (uint32_t)check_between(bits_for(n_words), most_bits[kind]), lengths);
    for (uint32_t i = 0; i < n_words; i++) bits[symbols[i]] = lengths[i];
    CHECK(pleat__codebook_from_bits(codebook, kind, n_levels, bits));
    CHECK_EQ_U64(codebook->kind, kind);
    CHECK_EQ_U64(codebook->n_levels, n_levels);
    CHECK_EQ_U64(pleat__codebook_is_plain(codebook),
                 !pairs || (n_words == n && n_levels <= 8 && codebook->max_bits <= 7));
}

/* ---- streams -------------------------------------------------------------------------------------------- */

/* Where symbol s of lane j is: the place of its first code in the vectors. */
static size_t place(const pleat__codebook *codebook, uint32_t s, uint32_t j) {
    const uint32_t vector = codebook->kind == PLEAT__CODEBOOK_PAIRS ? 2 * (s / 2) : s / 2;
    return (size_t)64 * vector + 2 * j + s % 2;
}

static uint32_t n_symbols(const pleat__codebook *codebook, uint32_t n_vectors) {
    return 2 * n_vectors / pleat__codebook_codes_per_symbol(codebook);
}

enum { ANY_CODE, AS_WORDS_SAY, CONSTANT, LONGEST, SHORTEST, LONG_THEN_SHORT, N_FILLS };

static uint32_t random_symbol(const pleat__codebook *codebook) {
    if (codebook->kind != PLEAT__CODEBOOK_PAIRS) return (uint32_t)check_below(codebook->n_levels);
    for (;;) {
        const uint32_t x = (uint32_t)(check_below(codebook->n_levels) | check_below(codebook->n_levels) << 4);
        if (codebook->bits[x] > 0) return x;
    }
}

/* Of a few symbols the one with the most bits, or the fewest. */
static uint32_t extreme_symbol(const pleat__codebook *codebook, bool longest) {
    uint32_t best = random_symbol(codebook);
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t x = random_symbol(codebook);
        if (longest ? codebook->bits[x] > codebook->bits[best] : codebook->bits[x] < codebook->bits[best]) best = x;
    }
    return best;
}

static void fill_codes(const pleat__codebook *codebook, uint32_t n_vectors, uint32_t kind, uint8_t *out) {
    const uint32_t constant = random_symbol(codebook), n = n_symbols(codebook, n_vectors);
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t j = 0; j < 32; j++) {
            uint32_t x = constant;
            if (kind == ANY_CODE) x = random_symbol(codebook);
            if (kind == AS_WORDS_SAY) x = codebook->symbol[check_below(512)];
            if (kind == LONGEST || (kind == LONG_THEN_SHORT && s < n / 2 + j / 4)) x = extreme_symbol(codebook, true);
            if (kind == SHORTEST || (kind == LONG_THEN_SHORT && s >= n / 2 + j / 4))
                x = extreme_symbol(codebook, false);
            const size_t at = place(codebook, s, j);
            out[at] = (uint8_t)(codebook->kind == PLEAT__CODEBOOK_PAIRS ? x & 15 : x);
            if (codebook->kind == PLEAT__CODEBOOK_PAIRS) out[at + 64] = (uint8_t)(x >> 4);
        }
    }
}

/* The symbol whose word the lowest bits are, or 256. */
static uint32_t match(const pleat__codebook *codebook, uint32_t window, uint32_t valid) {
    for (uint32_t x = 0; x < 256; x++) {
        if (codebook->bits[x] == 0 || codebook->bits[x] > valid) continue;
        if ((window & ((1u << codebook->bits[x]) - 1)) == codebook->words[x]) return x;
    }
    return 256;
}

/* stream.h's text, with the words alone.  Returns the bytes that have to be stored: those up to the last that a word's
 * bits are in. */
static size_t naive_decode(const pleat__codebook *codebook, const uint8_t *bytes, uint32_t n_vectors, uint8_t *out) {
    uint32_t window[32] = {0}, valid[32] = {0};
    size_t next = 0, taken_at[32] = {0};
    const uint32_t n = n_symbols(codebook, n_vectors);
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t j = 0; j < 32; j++) {
            while (s + 1 < n ? valid[j] < codebook->max_bits : match(codebook, window[j], valid[j]) == 256) {
                taken_at[j] = next;
                window[j] |= (uint32_t)bytes[next++] << valid[j];
                valid[j] += 8;
            }
        }
        for (uint32_t j = 0; j < 32; j++) {
            const uint32_t x = match(codebook, window[j], valid[j]);
            if (!CHECK(x < 256)) return 0;
            window[j] >>= codebook->bits[x];
            valid[j] -= codebook->bits[x];
            out[place(codebook, s, j)] = (uint8_t)(codebook->kind == PLEAT__CODEBOOK_PAIRS ? x & 15 : x);
            if (codebook->kind == PLEAT__CODEBOOK_PAIRS) out[place(codebook, s, j) + 64] = (uint8_t)(x >> 4);
        }
    }
    for (uint32_t j = 0; j < 32;) {
        CHECK(valid[j] < 16);
        const bool is_empty = valid[j] >= 8 && taken_at[j] + 1 == next;
        next -= is_empty;
        j = is_empty ? 0 : j + 1;
    }
    return next;
}

/* An encoded stream before an unreadable page; behind its end PLEAT__STREAM_PAD bytes of noise. */
typedef struct encoded {
    check_buf buf;
    size_t n_bytes;
} encoded;

static encoded with_noise(const uint8_t *bytes, size_t n_bytes) {
    encoded e = {check_buf_new(n_bytes + PLEAT__STREAM_PAD, 1), n_bytes};
    uint8_t *p = e.buf.p;
    memcpy(p, bytes, n_bytes);
    for (uint32_t i = 0; i < PLEAT__STREAM_PAD; i++) p[n_bytes + i] = (uint8_t)check_u64();
    return e;
}

/* Encode into a buffer of just the bound, twice, over different bytes. */
static encoded encode(const pleat__codebook *codebook, const uint8_t *from, uint32_t n_vectors) {
    static uint8_t first[64 * MAX_VECTORS * 9 / 8 + 64];
    const size_t bound = pleat__stream_bound(n_vectors);
    check_buf buf = check_buf_new(bound, 1);
    const size_t n_bytes = pleat__stream_encode(codebook, from, n_vectors, buf.p);
    CHECK(n_bytes <= bound && bound <= sizeof first);
    memcpy(first, buf.p, n_bytes);
    memset(buf.p, 0xFF, bound);
    CHECK_EQ_U64(pleat__stream_encode(codebook, from, n_vectors, buf.p), n_bytes);
    CHECK_EQ_MEM(buf.p, first, n_bytes);
    CHECK(check_buf_is_intact(&buf));
    check_buf_free(&buf);
    return with_noise(first, n_bytes);
}

#endif
