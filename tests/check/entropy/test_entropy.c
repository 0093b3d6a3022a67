/* SPDX-License-Identifier: MIT
 *
 * test_entropy.c: codebooks and streams (src/entropy).
 *
 * Lengths of words are held against a search over all complete codes.  Streams are held against a reader that follows
 * stream.h's text bit by bit, with the words alone, the decoders of other CPUs against the scalar one, states of
 * streams included.  Streams end PLEAT__STREAM_PAD bytes before an unreadable page.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "entropy_rig.h"
#include "hw/cpu.h"

static pleat__stream_decode_fn decoders[4];
static uint32_t n_decoders;

/* Every decoder that this CPU, with its mask, has. */
static void find_decoders(void) {
    const uint32_t mine = pleat_cpu_flags(), sets[] = {0, mine & PLEAT_CPU_AVX2, mine & PLEAT_CPU_NEON, mine};
    n_decoders = 0;
    for (uint32_t i = 0; i < CHECK_COUNT(sets); i++) {
        const pleat__stream_decode_fn decoder = pleat__stream_decode_of(sets[i]);
        if (n_decoders == 0 || decoder != decoders[n_decoders - 1]) decoders[n_decoders++] = decoder;
    }
    CHECK(decoders[0] == pleat__stream_decode_ref);
}

/* ---- lengths ------------------------------------------------------------------------------------------ */

static uint64_t kraft(const uint8_t *bits, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += bits[i] ? 512u >> bits[i] : 0;
    return sum;
}

#define ORACLE_N 24u
#define NEVER (UINT64_MAX / 2)

static uint64_t memo[12][ORACLE_N + 1][ORACLE_N + 1];

static int descending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Least bits of the symbols from i on, by falling weight, with `open` nodes of the tree at this depth: any number of
 * them are words. */
static uint64_t least(const uint64_t *w, uint32_t n, uint32_t max_bits, uint32_t depth, uint32_t i, uint32_t open) {
    if (i == n && open == 0) return 0;
    if (depth > max_bits || open > n - i || open == 0) return NEVER;
    uint64_t *known = &memo[depth][i][open];
    if (*known != UINT64_MAX) return *known;
    uint64_t best = NEVER, sum = 0;
    for (uint32_t m = 0; m <= open; m++) {
        const uint64_t rest = least(w, n, max_bits, depth + 1, i + m, 2 * (open - m));
        if (rest + sum * depth < best) best = rest + sum * depth;
        if (m < open) sum += w[i + m];
    }
    return *known = best;
}

static void check_lengths(const uint64_t *w, uint32_t n, uint32_t max_bits, const uint8_t *bits) {
    uint64_t sorted[256], cost = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(bits[i] >= 1 && bits[i] <= max_bits);
        cost += w[i] * bits[i];
    }
    CHECK_EQ_U64(kraft(bits, n), n == 1 ? 256 : 512);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            if (w[i] > w[j] || (w[i] == w[j] && i < j)) CHECK(bits[i] <= bits[j]);
        }
    }
    if (n < 2 || n > ORACLE_N) return;
    memcpy(sorted, w, n * sizeof *w);
    qsort(sorted, n, sizeof *sorted, descending);
    memset(memo, 0xFF, sizeof memo);
    CHECK_EQ_U64(cost, least(sorted, n, max_bits, 1, 0, 2));
}

static void test_lengths(void) {
    uint64_t w[256] = {0};
    uint8_t bits[256];
    for (uint64_t round = 0; round < check_rounds(3000, 300); round++) {
        const uint32_t n = (uint32_t)(round % 8 ? check_between(1, ORACLE_N) : check_between(1, 256));
        const uint32_t max_bits = (uint32_t)check_between(bits_for(n), 9), kind = (uint32_t)check_below(N_WEIGHTS);
        check_context("%u weights of kind %u, %u bits", n, kind, max_bits);
        fill_weights(w, n, kind);
        memset(bits, 0xD0, sizeof bits);
        pleat__codebook_lengths(w, n, max_bits, bits);
        check_lengths(w, n, max_bits, bits);
        for (uint32_t i = n; i < 256; i++) CHECK_EQ_U64(bits[i], 0xD0);
    }
}

/* ---- codebooks -------------------------------------------------------------------------------------------- */

/* Canonical: by length, then symbol, each the one before plus one; and the table says what the words say. */
static void check_codebook(const pleat__codebook *codebook) {
    uint32_t next = 0, longest = 0, n_words = 0;
    for (uint32_t length = 1; length <= 9; length++, next *= 2) {
        for (uint32_t symbol = 0; symbol < 256; symbol++) {
            if (codebook->bits[symbol] != length) continue;
            longest = length;
            n_words++;
            for (uint32_t i = 0; i < length; i++) {
                CHECK_EQ_U64(codebook->words[symbol] >> i & 1, next >> (length - 1 - i) & 1);
            }
            CHECK_EQ_U64(codebook->words[symbol] >> length, 0);
            next++;
        }
    }
    CHECK_EQ_U64(codebook->max_bits, longest);
    for (uint32_t i = 0; i < 512; i++) {
        const uint32_t symbol = codebook->symbol[i], length = codebook->bits[symbol];
        CHECK_EQ_U64(codebook->symbol_bits[i], length);
        CHECK(n_words == 1 || (i & ((1u << length) - 1)) == codebook->words[symbol]);
    }
    for (uint32_t i = 0; i < 256; i++) CHECK(codebook->bits[i] > 0 || codebook->words[i] == 0);
}

/* Short words by short_bits bits alone, all others by what stands behind ones that they share. */
static void check_split(const pleat__codebook *codebook) {
    const uint32_t most = codebook->short_bits == 4 ? 4 : PLEAT__CODEBOOK_TAIL_BITS,
                   ones = (1u << codebook->n_ones) - 1;
    if (codebook->short_bits == 0) return;
    CHECK(codebook->kind != PLEAT__CODEBOOK_WIDE && codebook->short_bits <= 5);
    CHECK(codebook->max_bits <= codebook->n_ones + most);
    for (uint32_t i = 0; i < 1u << codebook->max_bits; i++) {
        const uint32_t low = i & ((1u << codebook->short_bits) - 1), tail = i >> codebook->n_ones;
        const bool is_long = codebook->symbol_bits[low] > codebook->short_bits;
        CHECK_EQ_U64(is_long, codebook->symbol_bits[i] > codebook->short_bits);
        CHECK(!is_long || (i & ones) == ones);
        CHECK_EQ_U64(is_long ? codebook->tail_symbol[tail] : codebook->symbol[low], codebook->symbol[i]);
        CHECK_EQ_U64(is_long ? codebook->tail_bits[tail] : codebook->symbol_bits[low], codebook->symbol_bits[i]);
    }
}

static void test_codebooks(void) {
    pleat__codebook codebook, again;
    for (uint64_t round = 0; round < check_rounds(600, 60); round++) {
        const pleat__codebook_kind kind = (pleat__codebook_kind)(round % 3);
        const uint32_t n_levels = (uint32_t)check_between(1, most_levels[kind]);
        check_context("kind %d, %u levels", (int)kind, n_levels);
        memset(&codebook, 0xD0, sizeof codebook);
        memset(&again, 0, sizeof again);
        random_codebook(&codebook, kind, n_levels);
        check_codebook(&codebook);
        check_split(&codebook);
        CHECK(pleat__codebook_from_bits(&again, kind, n_levels, codebook.bits));
        CHECK_EQ_MEM(&codebook, &again, sizeof codebook);
    }
}

static void test_bad_codebooks(void) {
    pleat__codebook codebook;
    const uint8_t two[256] = {1, 1}, three[256] = {1, 2, 2}, one[256] = {1}, longer[256] = {2}, beside[256] = {1, 1, 5};
    uint8_t bits[256];
    CHECK(pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 2, two));
    CHECK(pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 3, three));
    CHECK(pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_PAIRS, 1, one));
    CHECK(pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_WIDE, 1, one));
    CHECK(!pleat__codebook_from_bits(&codebook, (pleat__codebook_kind)3, 2, two));
    CHECK(!pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 0, two));
    CHECK(!pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 1, longer)); /* one word has one bit */
    CHECK(!pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 2, beside)); /* a word outside the alphabet */
    CHECK(!pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 2, three));
    CHECK(!pleat__codebook_from_bits(&codebook, PLEAT__CODEBOOK_NARROW, 3, two)); /* a symbol without a word */
    for (uint32_t kind = 0; kind < 3; kind++) {
        CHECK(!pleat__codebook_from_bits(&codebook, (pleat__codebook_kind)kind, most_levels[kind] + 1, two));
        for (uint32_t round = 0; round < 50; round++) {
            random_codebook(&codebook, (pleat__codebook_kind)kind, (uint32_t)check_between(2, most_levels[kind]));
            memcpy(bits, codebook.bits, sizeof bits);
            const uint32_t i = codebook.symbol[check_below(512)];
            bits[i] = (uint8_t)(bits[i] + (check_below(2) ? 1 : -1)); /* too long, or too short */
            CHECK(!pleat__codebook_from_bits(&codebook, (pleat__codebook_kind)kind, codebook.n_levels, bits));
        }
    }
}

/* ---- counting and building ------------------------------------------------------------------------------ */

static _Alignas(64) uint8_t codes[4][64 * MAX_VECTORS], decoded[4][64 * MAX_VECTORS], wanted[4][64 * MAX_VECTORS];

static void test_counts(void) {
    static pleat__code_counts counts, naive;
    for (uint32_t round = 0; round < 40; round++) {
        const uint32_t n_levels = round < 8 ? round + 1 : (uint32_t)check_between(9, 256), n = 2 * (round % 8);
        memset(&counts, 0, sizeof counts);
        memset(&naive, 0, sizeof naive);
        for (uint32_t i = 0; i < n * 64; i++) {
            codes[0][i] = (uint8_t)check_below(n_levels);
            naive.single[codes[0][i]] += 2; /* as they are added twice */
        }
        for (uint32_t i = 0; n_levels <= 8 && i < n * 64; i++) {
            if (i / 64 % 2 == 0) naive.pair[codes[0][i + 64] * 8 + codes[0][i]] += 2;
        }
        pleat__code_counts_add(&counts, codes[0], n, n_levels);
        pleat__code_counts_add(&counts, codes[0], n, n_levels);
        CHECK_EQ_MEM(&counts, &naive, sizeof counts);
        double bits = 0;
        for (uint32_t i = 0; i < n_levels; i++) {
            const double p = n ? (double)naive.single[i] / (n * 128.0) : 0;
            if (p > 0) bits -= p * log2(p);
        }
        CHECK_NEAR(pleat__code_entropy(&counts, n_levels), bits, 1e-12);
    }
}

/* Bits of counts in a codebook of this kind with words up to max_bits, as build() would make it. */
static uint64_t cost_of(const pleat__code_counts *counts, bool pairs, uint32_t n_levels, uint32_t max_bits) {
    const uint32_t n = pairs ? n_levels * n_levels : n_levels;
    uint64_t w[256] = {0}, sum = 0;
    uint8_t bits[256];
    for (uint32_t i = 0; i < n; i++) {
        w[i] = 1 + (pairs ? counts->pair[i / n_levels * 8 + i % n_levels] : counts->single[i]);
    }
    pleat__codebook_lengths(w, n, max_bits, bits);
    for (uint32_t i = 0; i < n; i++) sum += (w[i] - 1) * bits[i];
    return sum;
}

/* The kind and the longest word are the first of the documented choices that no later one beats by 1 %. */
static void test_build(void) {
    static pleat__code_counts counts;
    static pleat__codebook codebook;
    uint64_t w[256] = {0};
    uint32_t seen = 0;
    for (uint64_t round = 0; round < check_rounds(1500, 200); round++) {
        const uint32_t n_levels = (uint32_t)check_between(1, round % 4 == 0 ? 256 : round % 4 == 1 ? 32 : 8);
        fill_weights(w, n_levels, (uint32_t)check_below(N_WEIGHTS));
        memset(&counts, 0, sizeof counts);
        for (uint32_t i = 0; i < n_levels; i++) counts.single[i] = w[i] - 1;  /* some are not seen */
        for (uint32_t i = 0; n_levels <= 8 && i < n_levels * n_levels; i++) { /* any: they need not agree */
            const uint64_t a = w[i % n_levels] % 4096, b = w[i / n_levels] % 4096;
            counts.pair[i / n_levels * 8 + i % n_levels] = a * b / (1 + check_below(9));
        }
        check_context("%u levels, round %u", n_levels, (unsigned)round);
        pleat__codebook_build(&codebook, &counts, n_levels);
        check_codebook(&codebook);
        uint64_t best = cost_of(&counts, n_levels <= 8, n_levels, n_levels <= 5 ? 6 : n_levels <= 32 ? 7 : 9);
        pleat__codebook_kind kind = n_levels <= 8    ? PLEAT__CODEBOOK_PAIRS
                                    : n_levels <= 32 ? PLEAT__CODEBOOK_NARROW
                                                     : PLEAT__CODEBOOK_WIDE;
        const uint64_t longer = n_levels <= 5 ? cost_of(&counts, true, n_levels, 7) : best;
        if (80 * longer < 79 * best) best = longer;
        for (uint32_t bits = n_levels <= 8 ? 7 : 8; n_levels <= 32 && bits <= 8; bits++) {
            const uint64_t other = cost_of(&counts, false, n_levels, bits);
            if (80 * other >= 79 * best) continue;
            best = other;
            kind = PLEAT__CODEBOOK_NARROW;
        }
        CHECK_EQ_U64(codebook.kind, kind);
        CHECK_EQ_U64(codebook.n_levels, n_levels);
        CHECK_EQ_U64(pleat__codebook_cost_bits(&codebook, &counts), best);
        CHECK(codebook.max_bits <= most_bits[kind]);
        for (uint32_t i = 0; i < n_levels; i++)
            CHECK(codebook.bits[i] > 0 && (kind != 0 || codebook.bits[16 * i + i] > 0));
        seen |=
            1u << kind | (n_levels <= 8 && kind == PLEAT__CODEBOOK_NARROW ? 8 : 0) | (codebook.max_bits == 8 ? 16 : 0);
    }
    CHECK_EQ_U64(seen, 31); /* every kind, a narrow codebook of few levels, and one of 8 bits */
}

/* ---- streams -------------------------------------------------------------------------------------------- */

static void same_state(const pleat__stream *a, const pleat__stream *b) {
    CHECK_EQ_MEM(a->window, b->window, sizeof a->window);
    CHECK_EQ_MEM(a->valid, b->valid, sizeof a->valid);
    CHECK_EQ_U64(a->n_taken, b->n_taken);
    CHECK_EQ_U64(a->n_left, b->n_left);
}

static void check_levels(const uint8_t *x, size_t n, uint32_t n_levels) {
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) n_bad += x[i] >= n_levels;
    CHECK_EQ_U64(n_bad, 0);
}

/* Streams of one codebook, which may be of different lengths.  Each decoder decodes all to `decoded` in random slices,
 * beside the scalar one; states agree after each slice, and codes with `wanted`. */
static void decode_in_slices(const pleat__codebook *codebook, const encoded *e, const uint32_t *n_vectors, uint32_t n) {
    pleat__stream streams[4], refs[4];
    for (uint32_t d = 0; d < n_decoders; d++) {
        uint32_t at[4] = {0};
        memset(decoded, 0xFF, sizeof decoded);
        for (uint32_t i = 0; i < n; i++) {
            pleat__stream_init(&streams[i], e[i].buf.p, e[i].n_bytes, n_vectors[i]);
            refs[i] = streams[i];
        }
        for (;;) {
            pleat__stream *all[4], *ref;
            uint8_t *out[4], *ref_out;
            uint32_t which[4], n_open = 0, most = MAX_VECTORS;
            for (uint32_t i = 0; i < n; i++) {
                if (streams[i].n_left == 0) continue;
                which[n_open] = i;
                out[n_open] = decoded[i] + 64 * at[i];
                all[n_open++] = &streams[i];
                most = streams[i].n_left < most ? streams[i].n_left : most;
            }
            if (n_open == 0) break;
            const uint32_t slice = check_below(3) ? 2 * (uint32_t)check_between(0, most / 2) : most;
            decoders[d](codebook, all, n_open, slice, out);
            for (uint32_t k = 0; k < n_open; k++) {
                static _Alignas(64) uint8_t other[64 * MAX_VECTORS];
                ref = &refs[which[k]];
                ref_out = other;
                pleat__stream_decode_ref(codebook, &ref, 1, slice, &ref_out);
                CHECK_EQ_MEM(other, out[k], 64 * slice);
                same_state(ref, all[k]);
                at[which[k]] += slice;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            CHECK_EQ_MEM(decoded[i], wanted[i], 64 * n_vectors[i]);
            check_levels(decoded[i], 64 * n_vectors[i], codebook->n_levels + codebook->base);
            for (uint32_t k = 64 * n_vectors[i]; k < sizeof decoded[i]; k++) {
                if (decoded[i][k] != 0xFF && !CHECK(!"codes beyond the vectors")) return;
            }
        }
        for (uint32_t i = 0; i < n; i++) refs[i] = streams[i];
    }
}

static uint32_t random_vectors(void) {
    return 2 * (uint32_t)(check_below(8) ? check_between(1, 20) : check_between(1, MAX_VECTORS / 2));
}

/* Which tables a codebook is decoded with; see x86/stream_vbmi2.c. */
static uint32_t shape_of(const pleat__codebook *codebook) {
    return 1u << (3 * codebook->kind + (codebook->max_bits < 7 ? 0 : codebook->max_bits - 6));
}

/* Which of those that are split; see x86/stream_avx2.c. */
static uint32_t split_of(const pleat__codebook *codebook) {
    const uint32_t tail_bits = codebook->max_bits - codebook->n_ones;
    if (codebook->short_bits == 0) return 0;
    if (codebook->kind == PLEAT__CODEBOOK_PAIRS) return codebook->max_bits < 7 ? 0 : tail_bits <= 5 ? 1 : 2;
    return tail_bits > codebook->short_bits ? 0 : codebook->short_bits == 4 && codebook->max_bits < 8 ? 4 : 8;
}

/* The same streams, decoded to codes from a base on; without it the codebook is what it was. */
static void decode_from_a_base(pleat__codebook *codebook, const encoded *e, const uint32_t *n_vectors, uint32_t n) {
    static pleat__codebook before;
    const uint8_t base = (uint8_t)check_between(1, PLEAT__CODEBOOK_NARROW_LEVELS - codebook->n_levels);
    before = *codebook;
    pleat__codebook_rebase(codebook, (uint8_t)check_between(1, base));
    pleat__codebook_rebase(codebook, base);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < 64 * n_vectors[i]; k++) wanted[i][k] = (uint8_t)(wanted[i][k] + base);
    decode_in_slices(codebook, e, n_vectors, n);
    pleat__codebook_rebase(codebook, 0);
    CHECK_EQ_MEM(codebook, &before, sizeof before);
}

static void test_round_trip(void) {
    static pleat__codebook codebook;
    uint32_t shapes = 0, splits = 0;
    find_decoders();
    for (uint64_t round = 0; round < check_rounds(1500, 120); round++) {
        const pleat__codebook_kind kind = (pleat__codebook_kind)(round % 3);
        const uint32_t n_levels = (uint32_t)check_between(1, most_levels[kind]), n = (uint32_t)check_between(1, 4);
        encoded e[4];
        uint32_t n_vectors[4];
        random_codebook(&codebook, kind, n_levels);
        shapes |= shape_of(&codebook);
        splits |= split_of(&codebook);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t fill = (uint32_t)check_below(N_FILLS);
            check_context("kind %d, %u levels, %u bits; fill %u, stream %u of %u, round %u", (int)kind, n_levels,
                          codebook.max_bits, fill, i, n, (unsigned)round);
            n_vectors[i] = random_vectors();
            fill_codes(&codebook, n_vectors[i], fill, codes[i]);
            e[i] = encode(&codebook, codes[i], n_vectors[i]);
            memset(decoded[0], 0xFF, sizeof decoded[0]);
            CHECK_EQ_U64(naive_decode(&codebook, e[i].buf.p, n_vectors[i], decoded[0]), e[i].n_bytes);
            CHECK_EQ_MEM(decoded[0], codes[i], 64 * n_vectors[i]);
            memcpy(wanted[i], codes[i], 64 * n_vectors[i]);
        }
        decode_in_slices(&codebook, e, n_vectors, n);
        if (kind != PLEAT__CODEBOOK_WIDE && n_levels < PLEAT__CODEBOOK_NARROW_LEVELS)
            decode_from_a_base(&codebook, e, n_vectors, n);
        for (uint32_t i = 0; i < n; i++) check_buf_free(&e[i].buf);
        if (check_failures() > 20) return;
    }
    CHECK_EQ_U64(shapes & 0x3F, 0x3F); /* pairs and narrow, to 6, 7 and 8 */
    CHECK_EQ_U64(splits, 15);
}

/* At the end: all decoded, all bytes taken, none taken twice; and one vector less is not the end. */
static void test_done(void) {
    static pleat__codebook codebook;
    find_decoders();
    for (uint64_t round = 0; round < check_rounds(600, 60); round++) {
        const pleat__codebook_kind kind = (pleat__codebook_kind)(round % 3);
        random_codebook(&codebook, kind, (uint32_t)check_between(1, most_levels[kind]));
        const uint32_t n_vectors = random_vectors();
        fill_codes(&codebook, n_vectors, (uint32_t)check_below(N_FILLS), codes[0]);
        encoded e = encode(&codebook, codes[0], n_vectors);
        for (uint32_t d = 0; d < n_decoders; d++) {
            pleat__stream stream, *streams = &stream;
            uint8_t *out = decoded[0];
            pleat__stream_init(&stream, e.buf.p, e.n_bytes, n_vectors);
            CHECK(!pleat__stream_is_done(&stream));
            decoders[d](&codebook, &streams, 1, n_vectors - 2, &out);
            CHECK(!pleat__stream_is_done(&stream));
            decoders[d](&codebook, &streams, 1, 2, &out);
            CHECK(pleat__stream_is_done(&stream));
            encoded longer = with_noise(e.buf.p, e.n_bytes + 1); /* by a byte that no lane may take */
            pleat__stream_init(&stream, longer.buf.p, longer.n_bytes, n_vectors);
            decoders[d](&codebook, &streams, 1, n_vectors, &out);
            CHECK_EQ_U64(pleat__stream_is_done(&stream), stream.n_taken > e.n_bytes);
            check_buf_free(&longer.buf);
        }
        check_buf_free(&e.buf);
    }
}

static void damage(uint8_t *bytes, size_t *n_bytes, uint64_t how) {
    const size_t n = *n_bytes;
    if (how % 4 == 0) {
        *n_bytes = check_below(n + 1);
        return;
    }
    if (how % 4 == 3) *n_bytes = check_below(64 * MAX_VECTORS); /* garbage of any length */
    const uint64_t n_changes = how % 4 == 1 ? 1 + check_below(8) : how % 4 == 2 ? n / 4 : *n_bytes;
    for (uint64_t i = 0; i < n_changes; i++) {
        bytes[how % 4 == 3 ? i : check_below(n)] ^=
            how % 4 == 1 ? (uint8_t)(1u << check_below(8)) : (uint8_t)check_u64();
    }
}

static void test_damage(void) {
    static pleat__codebook codebook;
    static uint8_t bytes[64 * MAX_VECTORS * 9 / 8 + 64];
    find_decoders();
    for (uint64_t round = 0; round < check_rounds(1500, 150); round++) {
        const pleat__codebook_kind kind = (pleat__codebook_kind)(round % 3);
        const uint32_t n = (uint32_t)check_between(1, 4);
        encoded e[4];
        uint32_t n_vectors[4];
        random_codebook(&codebook, kind, (uint32_t)check_between(1, most_levels[kind]));
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t how = check_below(4);
            check_context("kind %d, %u levels, damage %u, round %u", (int)kind, codebook.n_levels, (unsigned)how,
                          (unsigned)round);
            n_vectors[i] = random_vectors();
            fill_codes(&codebook, n_vectors[i], (uint32_t)check_below(N_FILLS), codes[i]);
            size_t n_bytes = pleat__stream_encode(&codebook, codes[i], n_vectors[i], bytes);
            damage(bytes, &n_bytes, how);
            e[i] = with_noise(bytes, n_bytes);
            pleat__stream stream, *one = &stream;
            uint8_t *out = wanted[i]; /* in one go by the scalar decoder, which the others have to agree with */
            pleat__stream_init(&stream, e[i].buf.p, n_bytes, n_vectors[i]);
            pleat__stream_decode_ref(&codebook, &one, 1, n_vectors[i], &out);
        }
        decode_in_slices(&codebook, e, n_vectors, n);
        for (uint32_t i = 0; i < n; i++) check_buf_free(&e[i].buf);
        if (check_failures() > 20) return;
    }
}

/* ---- size ----------------------------------------------------------------------------------------------- */

/* Normal numbers quantised within `rel` of the range of each `unit` of them; returns the levels. */
static uint32_t normal_codes(uint8_t *out, uint32_t n, uint32_t unit, float rel) {
    static float x[64 * MAX_VECTORS];
    uint32_t top = 0;
    check_fill_normal(x, n);
    for (uint32_t at = 0; at < n; at += unit) {
        float low = x[at], high = x[at];
        for (uint32_t i = at; i < at + unit; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        for (uint32_t i = at; i < at + unit; i++) {
            out[i] = (uint8_t)((x[i] - low) / (rel * (high - low)) + 0.5f);
            top = out[i] > top ? out[i] : top;
        }
    }
    return top + 1;
}

/* Streams of 64 x 64 and 64 x 128 codes are within 4 % of the entropy where that is 2 bits or more, and within 0.085 bits
 * below, with a codebook made for 64 of them. */
static void test_size(void) {
    static const struct {
        const char *name;
        uint32_t unit; /* 0: the block */
        float rel;
        uint32_t n_levels; /* in case 64 x 64 */
    } cases[] = {{"V, 64", 64, 0.15f, 8},       {"V, 128", 128, 0.15f, 8},      {"K channel, 8", 64, 0.14f, 8},
                 {"K channel, 6", 64, 0.2f, 6}, {"K channel, 5", 64, 0.25f, 5}, {"K block", 0, 0.05f, 21}};
    enum { N_BLOCKS = 64 };
    static uint8_t blocks[N_BLOCKS][64 * 128], bytes[64 * MAX_VECTORS * 9 / 8 + 64];
    static pleat__code_counts counts;
    static pleat__codebook codebook;
    for (uint32_t i = 0; i < 2 * CHECK_COUNT(cases); i++) {
        const uint32_t k = i / 2, n_vectors = i % 2 ? 128 : 64, n = 64 * n_vectors;
        uint32_t n_levels = 0;
        memset(&counts, 0, sizeof counts);
        for (uint32_t b = 0; b < N_BLOCKS; b++) {
            const uint32_t levels = normal_codes(blocks[b], n, cases[k].unit ? cases[k].unit : n, cases[k].rel);
            n_levels = levels > n_levels ? levels : n_levels;
        }
        for (uint32_t b = 0; b < N_BLOCKS; b++) pleat__code_counts_add(&counts, blocks[b], n_vectors, n_levels);
        pleat__codebook_build(&codebook, &counts, n_levels);
        uint64_t n_bytes = 0;
        for (uint32_t b = 0; b < N_BLOCKS; b++) n_bytes += pleat__stream_encode(&codebook, blocks[b], n_vectors, bytes);
        const double stored = 8.0 * (double)n_bytes / ((double)n * N_BLOCKS);
        const double entropy = pleat__code_entropy(&counts, n_levels);
        check_context("%s, 64 x %u: %.3f bits stored, entropy %.3f", cases[k].name, n_vectors, stored, entropy);
        CHECK_EQ_U64(n_levels, cases[k].n_levels);
        const double most = entropy >= 2 ? 1.04 * entropy : entropy + 0.085;
        CHECK(entropy > 1.9 && stored >= entropy && stored <= most);
    }
}

static const check_test tests[] = {
    {"lengths", test_lengths}, {"codebooks", test_codebooks}, {"bad_codebooks", test_bad_codebooks},
    {"counts", test_counts},   {"build", test_build},         {"round_trip", test_round_trip},
    {"done", test_done},       {"damage", test_damage},       {"size", test_size}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
