/* SPDX-License-Identifier: MIT
 *
 * test_rd.c: the codec rd: streams of several codebooks, the turned mean, payloads of blocks, what is damaged, and
 * attention over them by every variant.
 */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "attn/attn.h"
#include "attn/blocks.h"
#include "check.h"
#include "codec/rd_internal.h"
#include "hw/cpu.h"
#include "pleat/image.h"
#include "rd_rig.h"
#include "stats/stats.h"
#include "tests/check/attn/attn_variants.h"

/* ---- streams --------------------------------------------------------------------------------------------- */

/* Pairs that have no word become two escapes. */
static void give_words(const pleat__codebook *book, uint8_t *at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (i % 128 < 64 && book->bits[at[i] | at[i + 64] << 4] == 0)
            at[i] = at[i + 64] = (uint8_t)(book->n_levels - 1);
}

static void test_streams(void) {
    static uint8_t codes[64 * 64], centred[64 * 64], decoded[64 * 64] __attribute__((aligned(64)));
    static uint8_t bytes[64 * 64 + 64 + PLEAT__STREAM_PAD];
    for (uint64_t round = 0, n_rounds = check_rounds(300, 40); round < n_rounds; round++) {
        pleat__stream_run runs[16];
        uint32_t n_runs = (uint32_t)check_between(1, 16), n_vectors = 0;
        for (uint32_t i = 0; i < n_runs; i++) {
            uint32_t class;
            do class = (uint32_t)check_below(PLEAT__RD_CLASSES);
            while (books.k[class].n_levels == 0);
            runs[i] = (pleat__stream_run){&books.k[class], 2 * (uint32_t)check_between(1, 2)};
            const int32_t add = (int32_t)PLEAT__RD_REACH - pleat__rd_reach(&books.k[class]);
            const uint32_t from = 64 * n_vectors, to = from + 64 * runs[i].n_vectors;
            for (uint32_t c = from; c < to; c++)
                codes[c] = (uint8_t)check_below(check_below(4) ? 2 : books.k[class].n_levels);
            if (books.k[class].kind == PLEAT__CODEBOOK_PAIRS) give_words(&books.k[class], codes + from, to - from);
            for (uint32_t c = from; c < to; c++) centred[c] = (uint8_t)(codes[c] + add);
            n_vectors += runs[i].n_vectors;
        }
        uint8_t *scratch = malloc(pleat__stream_runs_scratch(n_vectors));
        const size_t n = pleat__stream_encode_runs(runs, n_runs, codes, scratch, bytes);
        free(scratch);
        if (n_runs == 1) { /* the encoder of one codebook makes the same stream */
            static uint8_t same[64 * 64 * 2];
            CHECK_EQ_U64(pleat__stream_encode(runs[0].codebook, codes, n_vectors, same), n);
            CHECK_EQ_MEM(same, bytes, n);
        }
        for (size_t v = 0; v < CHECK_COUNT(decode_variants); v++) {
            if (decode_variants[v].flags & ~pleat_cpu_flags()) continue;
            pleat__stream stream, *streams[] = {&stream};
            const pleat__stream_decode_fn decode =
                pleat__stream_decode_of(decode_variants[v].flags | (pleat_cpu_flags() & PLEAT_CPU_VBMI2));
            pleat__stream_init(&stream, bytes, n, n_vectors);
            uint8_t *out = decoded;
            for (uint32_t i = 0; i < n_runs; out += 64 * runs[i++].n_vectors)
                decode(runs[i].codebook, streams, 1, runs[i].n_vectors, &out);
            check_context("%s, %u runs", decode_variants[v].name, n_runs);
            CHECK_EQ_MEM(decoded, centred, 64 * n_vectors);
            CHECK(pleat__stream_is_done(&stream));
        }
    }
}

/* A stream whose bytes are any: all decoders make the same codes of it, below the codebooks' levels, and end alike. */
enum { RUNS = 12, RUNS_VECTORS = RUNS * 8 };
typedef struct any_stream {
    uint8_t bytes[RUNS_VECTORS * 64 + PLEAT__STREAM_PAD];
    uint8_t codes[RUNS_VECTORS * 64] __attribute__((aligned(64)));
    pleat__stream stream;
} any_stream;

static void begin_any(any_stream *s, size_t n_bytes, uint32_t n_vectors) {
    memset(s->codes, 0xD0, sizeof s->codes);
    pleat__stream_init(&s->stream, s->bytes, n_bytes, n_vectors);
}

/* Runs of any classes; returns their vectors. */
static uint32_t choose_runs(pleat__stream_run *runs, uint32_t n_runs) {
    uint32_t n_vectors = 0;
    for (uint32_t i = 0; i < n_runs; i++) {
        const uint32_t class = (uint32_t)check_between(4, PLEAT__RD_CLASSES - 1);
        CHECK(books.k[class].n_levels > 0);
        runs[i] = (pleat__stream_run){&books.k[class], 2 * (uint32_t)check_between(1, 4)};
        n_vectors += runs[i].n_vectors;
    }
    return n_vectors;
}

/* The scalar decoder makes the same of a stream, run by run. */
static void check_any(const any_stream *s, const pleat__stream_run *runs, uint32_t n_runs, uint32_t n_vectors) {
    static any_stream other;
    pleat__stream *ref = &other.stream;
    uint8_t *at = other.codes;
    memcpy(other.bytes, s->bytes, sizeof other.bytes);
    begin_any(&other, s->stream.n_bytes, n_vectors);
    for (uint32_t r = 0; r < n_runs; at += (size_t)64 * runs[r++].n_vectors)
        pleat__stream_decode_ref(runs[r].codebook, &ref, 1, runs[r].n_vectors, &at);
    CHECK_EQ_MEM(s->codes, other.codes, sizeof other.codes);
    CHECK_EQ_MEM(s->stream.window, ref->window, sizeof ref->window);
    CHECK_EQ_MEM(s->stream.valid, ref->valid, sizeof ref->valid);
    CHECK_EQ_U64(s->stream.n_taken, ref->n_taken);
    CHECK_EQ_U64(s->stream.n_left, ref->n_left);
}

/* Decoders of runs against the scalar one; in two calls, from one to four streams at once. */
static void test_runs(void) {
    static any_stream any[PLEAT__STREAMS];
    const uint32_t mine = pleat_cpu_flags(), sets[] = {mine, mine & PLEAT_CPU_AVX2};
    for (uint64_t round = 0; round < check_rounds(300, 40); round++) {
        const pleat__stream_decode_runs_fn decode = pleat__stream_decode_runs_of(sets[round % CHECK_COUNT(sets)]);
        if (!decode) continue;
        pleat__stream_run runs[RUNS];
        const uint32_t n_runs = (uint32_t)check_between(2, RUNS), cut = (uint32_t)check_between(1, n_runs - 1);
        const uint32_t n_streams = (uint32_t)check_between(1, PLEAT__STREAMS), left = 2 * (uint32_t)check_below(2);
        const uint32_t n_first = choose_runs(runs, cut), n_vectors = n_first + choose_runs(runs + cut, n_runs - cut);
        pleat__stream *streams[PLEAT__STREAMS];
        uint8_t *first[PLEAT__STREAMS], *second[PLEAT__STREAMS];
        for (uint32_t i = 0; i < n_streams; i++) {
            for (size_t k = 0; k < sizeof any[i].bytes; k++) any[i].bytes[k] = (uint8_t)check_below(256);
            begin_any(&any[i], (size_t)check_below(sizeof any[i].bytes - PLEAT__STREAM_PAD), n_vectors + left);
            streams[i] = &any[i].stream;
            first[i] = any[i].codes;
            second[i] = any[i].codes + (size_t)64 * n_first;
        }
        decode(runs, cut, streams, n_streams, first);
        decode(runs + cut, n_runs - cut, streams, n_streams, second);
        for (uint32_t i = 0; i < n_streams; i++) {
            check_context("%u runs, stream %u of %u", n_runs, i, n_streams);
            check_any(&any[i], runs, n_runs, n_vectors + left);
        }
    }
}

/* ---- the mean --------------------------------------------------------------------------------------------- */

static void test_mean(void) {
    double m[MAX_D];
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t d = round % 2 ? 64 : 128;
        lane_init(d, round % 5 > 0, round % 3 > 0, 0.15f, 1.1f);
        for (uint32_t i = 0; i < 50; i++) {
            float k[MAX_D] = {0};
            const uint32_t block = (uint32_t)check_below(MAX_BLOCKS), place = (uint32_t)check_below(T);
            pleat__rd_add_mean(&lane, block, place, 1, k, 1);
            turned_mean(d, SINKS + block * T + place, m);
            for (uint32_t pair = 0; pair < lane.n_means; pair++) {
                const uint32_t x = turns.first * lane.mean_pair[pair], y = x + turns.other;
                CHECK_NEAR(k[x], m[x], 1e-5 * (1 + hypot(m[x], m[y])));
                CHECK_NEAR(k[y], m[y], 1e-5 * (1 + hypot(m[x], m[y])));
            }
            for (uint32_t c = 0; c < d; c++)
                if (lane.flat[c] != 0) CHECK_NEAR(k[c], m[c], 1e-6 * fabs(m[c]));
        }
    }
}

/* ---- payloads --------------------------------------------------------------------------------------------- */

static uint8_t payload[2 * T * MAX_D + 1024 + PLEAT__STREAM_PAD], copy[64 * 1024] __attribute__((aligned(64)));
static uint8_t codes[T * MAX_D] __attribute__((aligned(64)));
static float k_out[T * MAX_D] __attribute__((aligned(64))), v_out[T * MAX_D] __attribute__((aligned(64)));

static uint32_t level = PLEAT__RD_SAME_LEVEL; /* that blocks are encoded at */

static size_t encode(uint32_t d, uint32_t block) {
    check_buf scratch = check_buf_new(pleat__rd_scratch_bytes(d), 64);
    const float *k = keys + (size_t)block * T * d, *v = values + (size_t)block * T * d;
    const size_t n = level == PLEAT__RD_SAME_LEVEL
                         ? pleat__rd_encode(&lane, block, k, v, d, scratch.p, payload)
                         : pleat__rd_encode_within(&lane, block, k, v, d, level, SIZE_MAX, scratch.p, payload);
    CHECK(check_buf_is_intact(&scratch));
    check_buf_free(&scratch);
    CHECK(n <= pleat__rd_bound(d));
    return n;
}

static pleat_status load(uint32_t block, size_t n, uint32_t flags) {
    pleat__codec_dsp dsp;
    pleat__block_reader reader;
    pleat__codec_dsp_init(&dsp, flags);
    const pleat_status status = pleat__rd_open(&lane, payload, n, copy, &reader);
    return status == PLEAT_OK ? pleat__rd_load(&dsp, &lane, block, &reader, codes, k_out, v_out) : status;
}

static float key_of(uint32_t d, uint32_t t, uint32_t i) { return k_out[((t / 16) * d + i) * 16 + t % 16]; }

/* The step of a token's values, bit by bit. */
static float v_step_of(uint32_t t) {
    const uint32_t width = payload[PLEAT__RD_FIXED_BYTES - 1];
    uint32_t above = 0;
    for (uint32_t i = t * width; i < (t + 1) * width; i++)
        above |= (payload[PLEAT__RD_FIXED_BYTES + i / 8] >> i % 8 & 1u) << (i - t * width);
    return pleat__rd_step((uint8_t)(payload[PLEAT__RD_FIXED_BYTES - 2] + above));
}

/* A component of a key's and of a value's error: half a step at most, and what rounding makes of large numbers. */
static void check_component(uint32_t d, uint32_t block, uint32_t t, uint32_t i, const double *m, float k_step,
                            float v_step) {
    double k_error = 0, v_error = 0, k_size = 0, v_size = 0, key = 0, value = 0;
    for (uint32_t j = 0; j < d; j++) {
        const double k = (double)keys[((size_t)block * T + t) * d + j], by = (double)k_to[j * d + i];
        const double v = (double)values[((size_t)block * T + t) * d + j], v_by = (double)v_to[j * d + i];
        k_error += by * ((double)key_of(d, t, j) - k);
        v_error += v_by * ((double)v_out[t * d + j] - v);
        key += by * (k - m[j]);
        value += v_by * v;
        k_size += fabs(by) * (fabs(k) + fabs(m[j]));
        v_size += fabs(v_by * v);
    }
    CHECK_NEAR(k_error, 0, 0.5001 * (double)k_step + 1e-3 * fabs(key) + 1e-5 * k_size);
    CHECK_NEAR(v_error, 0, 0.5001 * (double)v_step + 1e-3 * fabs(value) + 1e-5 * v_size);
}

/* Every number within half a step of what it was. */
static void check_bounds(uint32_t d, uint32_t block) {
    float step_of[MAX_D];
    for (uint32_t i = 0; i < d; i++)
        step_of[lane.order[i]] = pleat__rd_step_at(lane.k_steps, i, pleat__rd_level_of(payload));
    for (uint32_t t = 0; t < T; t++) {
        const float v_step = v_step_of(t);
        double m[MAX_D];
        turned_mean(d, SINKS + block * T + t, m);
        for (uint32_t i = 0; i < d; i++) {
            const double k = (double)keys[((size_t)block * T + t) * d + i],
                         v = (double)values[((size_t)block * T + t) * d + i];
            if (is_split) {
                check_component(d, block, t, i, m, step_of[i], v_step);
                continue;
            }
            CHECK_NEAR(key_of(d, t, i), k, 0.5001 * (double)step_of[i] + 1e-3 * (fabs(k) + fabs(m[i])));
            CHECK_NEAR(v_out[t * d + i], v, 0.5001 * (double)v_step + 1e-3 * fabs(v));
        }
    }
}

static void test_bounds(void) {
    uint64_t n_shifted = 0;
    for (uint64_t round = 0, n_rounds = check_rounds(120, 24); round < n_rounds; round++) {
        static const uint32_t dims[] = {16, 64, 80, 128, 256};
        const uint32_t d = dims[round % 5], block = (uint32_t)check_below(MAX_BLOCKS);
        lane_init(d, round % 7 > 0, check_below(2), (float)exp2(check_uniform(-5, 0)),
                  (float)exp2(check_uniform(-2, 1)));
        fill_tokens(d, MAX_BLOCKS);
        const size_t n = encode(d, block);
        check_context("d %u, k %g, %zu bytes", d, (double)lane.v, n);
        for (size_t v = 0; v < CHECK_COUNT(decode_variants); v++) {
            if (decode_variants[v].flags & ~pleat_cpu_flags()) continue;
            if (CHECK_STATUS(load(block, n, decode_variants[v].flags), PLEAT_OK)) check_bounds(d, block);
        }
        if (CHECK_STATUS(load(block, n, pleat_cpu_flags()), PLEAT_OK)) check_bounds(d, block);
        n_shifted += pleat__rd_level_of(payload) > PLEAT__RD_SAME_LEVEL;
        CHECK(pleat__rd_is_intact(&lane, payload, n));
        CHECK_EQ_U64(pleat__rd_said_bytes(payload, d), n);
        uint8_t *first = malloc(n);
        memcpy(first, payload, n);
        CHECK_EQ_U64(encode(d, block), n);
        CHECK_EQ_MEM(first, payload, n); /* the same bytes always */
        free(first);
    }
    CHECK(n_shifted < check_rounds(120, 24)); /* most are as they should be */
}

/* Whatever the numbers are: a payload, below its bound, that loads. */
static void test_extremes(void) {
    for (uint32_t kind = 0; kind < 2 * CHECK_N_FILLS; kind++)
        for (uint32_t i = 0; i < 6; i++) {
            static const float sizes[] = {1e-30f, 1e-3f, 1, 300, 65504, 1e30f};
            const uint32_t d = kind % 2 ? 64 : 128;
            lane_init(d, true, kind % 3 > 0, 0.15f, 1.1f);
            check_fill(keys, T * d, kind % CHECK_N_FILLS, sizes[i]);
            check_fill(values, T * d, (kind + i) % CHECK_N_FILLS, sizes[(i + kind) % 6]);
            const size_t n = encode(d, 0);
            check_context("fill %u of size %g: %zu bytes, level %u", kind, (double)sizes[i], n,
                          pleat__rd_level_of(payload));
            CHECK_STATUS(load(0, n, pleat_cpu_flags()), PLEAT_OK);
            for (uint32_t j = 0; j < T * d; j++) CHECK(fabsf(k_out[j]) < 1e6f && fabsf(v_out[j]) < 1e6f);
        }
}

/* ---- within a given room ------------------------------------------------------------------------------------ */

/* A payload fits whatever room there is, down to one that stores nothing, and loads; with room enough it is as it was.  What
 * is stored is within half a step still, unless nothing is. */
static void test_room(void) {
    static uint8_t whole[sizeof payload];
    check_buf scratch = check_buf_new(pleat__rd_scratch_bytes(128), 64);
    for (uint64_t round = 0, n_rounds = check_rounds(60, 12); round < n_rounds; round++) {
        const uint32_t d = round % 2 ? 64 : 128, block = (uint32_t)check_below(MAX_BLOCKS);
        const float *k = keys + (size_t)block * T * d, *v = values + (size_t)block * T * d;
        lane_init(d, round % 5 > 0, check_below(2), 0.15f, 1.1f);
        fill_tokens(d, MAX_BLOCKS);
        const size_t n = encode(d, block), least = pleat__rd_least_bytes(&books, d);
        memcpy(whole, payload, n);
        CHECK(least > 0 && least < n / 8);
        CHECK_EQ_U64(pleat__rd_encode_within(&lane, block, k, v, d, PLEAT__RD_SAME_LEVEL, n, scratch.p, payload), n);
        CHECK_EQ_MEM(payload, whole, n);
        for (size_t room = n - 1; room >= least; room = room > least ? least + (room - least) * 3 / 4 : 0) {
            const size_t m =
                pleat__rd_encode_within(&lane, block, k, v, d, PLEAT__RD_SAME_LEVEL, room, scratch.p, payload);
            check_context("d %u, %zu bytes in %zu, least %zu", d, m, room, least);
            CHECK(m <= room);
            if (room > n / 2) CHECK(m > room * 2 / 3); /* it grows in small steps */
            CHECK(pleat__rd_is_intact(&lane, payload, m));
            if (CHECK_STATUS(load(block, m, pleat_cpu_flags()), PLEAT_OK) && m > least) check_bounds(d, block);
        }
        CHECK_EQ_U64(pleat__rd_encode_within(&lane, block, k, v, d, PLEAT__RD_SAME_LEVEL, 0, scratch.p, payload),
                     least);
    }
    CHECK(check_buf_is_intact(&scratch));
    check_buf_free(&scratch);
}

/* x to five significant bits, halves up. */
static double five_bits(double x) {
    int exponent;
    const double m = frexp(x, &exponent);
    return ldexp(floor(m * 32 + 0.5), exponent - 5);
}

/* Steps at every level are what they should be: quarters of octaves from half the lane's on, and so are minimums. */
static void test_levels(void) {
    static const double quarters[4] = {1, 19 / 16.0, 23 / 16.0, 27 / 16.0};
    for (uint32_t half = 0x0400; half <= 0x6C00; half += 64)
        for (uint32_t at = 0; at <= PLEAT__RD_MOST_LEVEL; at++) {
            const uint8_t bytes[2] = {(uint8_t)half, (uint8_t)(half >> 8)};
            const double was = (double)pleat__f16_to_f32((uint16_t)half) * quarters[at % 4];
            double step = five_bits(ldexp(was, (int)(at / 4) - 1));
            step = step < 0x1p-14 ? 0x1p-14 : step > 0x1p12 ? 0x1p12 : step;
            if (!CHECK((double)pleat__rd_step_at(bytes, 0, at) == step)) return;
        }
}

/* Finer and coarser than the lane's: each number is within half a step of what it was, a payload is larger the finer it is,
 * and units of a reader are those steps. */
static void test_finer(void) {
    for (uint32_t round = 0; round < 8; round++) {
        const uint32_t d = round % 2 ? 64 : 128, block = (uint32_t)check_below(MAX_BLOCKS);
        size_t before = SIZE_MAX;
        lane_init(d, true, check_below(2), 0.6f, 1.1f);
        fill_tokens(d, MAX_BLOCKS);
        for (level = 0; level < 14; level++) {
            pleat__block_reader reader;
            const size_t n = encode(d, block);
            check_context("d %u, level %u: %zu bytes, before %zu", d, level, n, before);
            CHECK(n < before && pleat__rd_level_of(payload) == level);
            if (CHECK_STATUS(load(block, n, pleat_cpu_flags()), PLEAT_OK)) check_bounds(d, block);
            CHECK_STATUS(pleat__rd_open(&lane, payload, n, copy, &reader), PLEAT_OK);
            CHECK(reader.k_steps_id == level + 1);
            for (uint32_t i = 0; i < d; i++) {
                const float step = pleat__rd_step_at(lane.k_steps, i, level);
                CHECK(pleat__f16_at(reader.k_steps + 2 * i) == step);
                CHECK(pleat__f16_at(reader.k_mins + 2 * i) == -(float)PLEAT__RD_REACH * step);
            }
            before = n;
        }
    }
    level = PLEAT__RD_SAME_LEVEL;
}

/* What blocks are expected to take is near what they take, if tokens are as the statistics say. */
static void test_expected_bytes(void) {
    pleat__rd_rates rates;
    pleat__rd_rates_init(&rates);
    for (uint32_t round = 0; round < 16; round++) {
        const uint32_t d = round % 2 ? 64 : 128;
        const float k = (float)exp2(check_uniform(-5, 0)), v = (float)exp2(check_uniform(-2, 1));
        const bool turns_keys = round % 5 > 0;
        lane_init(d, turns_keys, round % 3 > 0, k, v);
        const double want = pleat__rd_expected_bytes(&rates, &the_source, turns_keys ? &the_rope : NULL, d, k, v);
        double sum = 0;
        fill_tokens(d, MAX_BLOCKS);
        for (uint32_t block = 0; block < MAX_BLOCKS; block++) sum += (double)encode(d, block) / MAX_BLOCKS;
        check_context("d %u, k %g, v %g: %.0f bytes, expected %.0f", d, (double)k, (double)v, sum, want);
        CHECK_NEAR(sum / want, 1, 0.2);
    }
}

/* ---- text unlike the statistics ----------------------------------------------------------------------------- */

/* Bytes of n codes in a codebook of their own, and of the codebook; codes are -127..127. */
static double own_bytes(const int8_t *of, uint32_t n) {
    static uint8_t bytes[T * MAX_D];
    static pleat__code_counts own;
    pleat__codebook book;
    uint8_t written[PLEAT__CODEBOOK_HEAD_BYTES + PLEAT__CODEBOOK_SYMBOLS];
    int most = 0;
    for (uint32_t i = 0; i < n; i++) most = abs(of[i]) > most ? abs(of[i]) : most;
    for (uint32_t i = 0; i < n; i++) bytes[i] = (uint8_t)(of[i] + most);
    memset(&own, 0, sizeof own);
    pleat__code_counts_add(&own, bytes, n / 64, (uint32_t)(2 * most + 1));
    pleat__codebook_build(&book, &own, (uint32_t)(2 * most + 1));
    return (double)pleat__codebook_cost_bits(&book, &own) / 8 + (double)pleat__codebook_write(&book, written);
}

static int8_t code_near(float x, float step) { return (int8_t)fmin(fmax(rint((double)(x / step)), -127), 127); }

/* The same for keys and values of block 0, with the steps that its payload has. */
static double own_block_bytes(uint32_t d) {
    static int8_t k_codes[T * MAX_D], v_codes[T * MAX_D];
    for (uint32_t t = 0; t < T; t++) {
        float taken[MAX_D] = {0};
        pleat__rd_add_mean(&lane, 0, t, 1, taken, 1);
        for (uint32_t i = 0; i < d; i++) {
            const uint32_t c = lane.order[i];
            k_codes[t * d + i] =
                code_near(keys[t * d + c] - taken[c], pleat__rd_step_at(lane.k_steps, i, pleat__rd_level_of(payload)));
            v_codes[t * d + i] = code_near(values[t * d + i], v_step_of(t));
        }
    }
    return PLEAT__RD_FIXED_BYTES + T + own_bytes(k_codes, T * d) + own_bytes(v_codes, T * d);
}

/* Keys whose spread is not what the statistics say, and values of other dimensions. */
static void fill_unlike(uint32_t d, float size) {
    fill_tokens(d, 1);
    for (uint32_t t = 0; t < T; t++) {
        double m[MAX_D];
        turned_mean(d, SINKS + t, m);
        for (uint32_t i = 0; i < d; i++) {
            float *k = &keys[t * d + i];
            *k = (float)m[i] + size * (*k - (float)m[i]);
            values[t * d + i] *= size == 1 || i % 3 ? 1 : 3;
        }
    }
}

/* A block against one with two codebooks of its own, for keys and for values.  Where keys spread a quarter to one and a half
 * times as far as the statistics say, it is a sixteenth and 96 bytes larger at most.  Up to three times, where codes are
 * beyond all codebooks, it is half.  Text of the statistics' own kind has the lane's classes for its keys. */
static void test_unlike(void) {
    static const float sizes[] = {1, 0.25f, 0.5f, 1.5f, 2, 3};
    may_split = false;
    for (uint64_t round = 0, n_rounds = check_rounds(120, 24); round < n_rounds; round++) {
        const uint32_t d = check_below(2) ? 64 : 128, kind = round % CHECK_COUNT(sizes);
        lane_init(d, true, check_below(2), (float)exp2(check_uniform(-1, 1)), (float)check_uniform(0.6, 1.4));
        fill_unlike(d, sizes[kind]);
        const size_t n = encode(d, 0);
        const pleat__block_about about = pleat__block_look(&(pleat__block_format){.is_rd = true}, payload);
        check_context("spread %g, d %u, own %d %d", (double)sizes[kind], d, about.has_own_keys, about.has_own_values);
        CHECK((double)n <= (sizes[kind] > 1.5f ? 1.5 : 17.0 / 16) * own_block_bytes(d) + 96);
        CHECK(kind != 0 || !about.has_own_keys);
        CHECK(sizes[kind] > 0.25f || about.has_own_keys);
        CHECK(pleat__rd_is_intact(&lane, payload, n));
        for (size_t v = 0; v < CHECK_COUNT(decode_variants); v++) {
            if (decode_variants[v].flags & ~pleat_cpu_flags()) continue;
            if (CHECK_STATUS(load(0, n, decode_variants[v].flags), PLEAT_OK)) check_bounds(d, 0);
        }
    }
    may_split = true;
}

/* Each byte of a payload, and then with a sum that holds. */
static void test_damaged(void) {
    const uint32_t d = 64;
    lane_init(d, true, true, 0.15f, 1.1f);
    fill_tokens(d, 1);
    const size_t n = encode(d, 0);
    for (size_t i = 0; i < n; i++) {
        const uint8_t was = payload[i];
        payload[i] = (uint8_t)(was ^ (1u << check_below(8)));
        CHECK(!pleat__rd_is_intact(&lane, payload, n));
        (void)load(0, n, pleat_cpu_flags()); /* some numbers, or refused: nothing outside is touched */
        payload[i] = was;
    }
    for (size_t less = 1; less < n; less++) CHECK_STATUS(load(0, n - less, pleat_cpu_flags()), PLEAT_E_FORMAT);
    CHECK_STATUS(load(0, n, pleat_cpu_flags()), PLEAT_OK);
    const uint32_t seed = lane.seed;
    lane.seed++;
    CHECK(!pleat__rd_is_intact(&lane, payload, n)); /* of other statistics */
    lane.seed = seed;
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

/* Whole numbers alone decide what follows, so that it is the same on any machine. */
static int32_t drawn(uint32_t *state, int32_t most) {
    *state = *state * 1664525u + 1013904223u;
    return (int32_t)((*state >> 8) % (2 * (uint32_t)most + 1)) - most;
}

static void plain_books(void) {
    memset(&counts, 0, sizeof counts);
    for (uint32_t class = 0; class < PLEAT__RD_CLASSES; class ++)
        for (int a = -16; a <= 16; a++)
            for (int b = -16; b <= 16; b++)
                counts.n[class][a + 16][b + 16] =
                    1u << (24 - pleat__min_u32(24, (uint32_t)(abs(a) + abs(b)) * 12 / (class + 1)));
    for (uint32_t class = 0; class < PLEAT__RD_CLASSES; class ++) {
        pleat__rd_book_choose(&counts, class, &books.k[class]);
        pleat__rd_book_choose(&counts, class, &books.v[class]);
    }
    books.sum = 7;
    pleat__rd_books_centre(&books);
}

/* A lane without means whose channels, or components, spread by powers of two; components are channels the other way
 * round, so that nothing is rounded. */
static void plain_lane(uint32_t d, bool splits) {
    lane_init(d, false, true, 0.25f, 1);
    memset(mean, 0, sizeof mean);
    memset(k_to, 0, sizeof k_to);
    memset(v_to, 0, sizeof v_to);
    for (uint32_t i = 0; i < d; i++) {
        k_to[i * d + d - 1 - i] = v_to[i * d + d - 1 - i] = 1;
        energy[i] = v_rms[i] = v_spread[i] = 1;
        spread[i] = k_spread[i] = ldexpf(1, (int)(i / 16) - 2);
    }
    pleat__rd_source source = {.mean = mean, .energy = energy, .spread = spread, .v_rms = v_rms};
    if (splits) source.k = (pleat__rd_basis){k_to, k_to, k_to, k_spread};
    if (splits) source.v = (pleat__rd_basis){v_to, v_to, NULL, v_spread};
    pleat__rd_lane_init(&lane, &source, &books, &turns, NULL, d, 0.25f, 1);
}

/* Payloads are those that images of this version hold.  Where this fails, images of older builds would be read as what they
 * are not: PLEAT_IMAGE_VERSION has to grow with the sums here. */
static void test_bytes(void) {
    static const uint32_t sums[2] = {0xFAD94FFAU, 0xA6061590U};
    const uint32_t d = 64;
    uint32_t state = 1;
    CHECK_EQ_U64(PLEAT_IMAGE_VERSION, 2);
    plain_books();
    for (uint32_t splits = 0; splits < 2; splits++) {
        plain_lane(d, splits);
        for (uint32_t i = 0; i < T * d; i++) {
            const int32_t wide = 1 << (i % d / 16 + (drawn(&state, 9) == 9 ? 6 : 3)); /* some are escapes */
            keys[i] = (float)drawn(&state, wide) / 16;
            values[i] = (float)(drawn(&state, 16) * (int32_t)(1 + i / d % 5)) / 16;
        }
        const size_t n = encode(d, 0);
        check_context("%s, %zu bytes", splits ? "components" : "channels", n);
        CHECK_EQ_U64(XXH32(payload, n, 0), sums[splits]);
    }
    make_books();
}

/* ---- attention -------------------------------------------------------------------------------------------- */

enum { MAX_G = 5 };
static double want[MAX_G][MAX_D], want_norm[MAX_G];

/* In double, over keys and values as they load. */
static void attend_exactly(const float *q, uint32_t d, uint32_t n_group, uint32_t n_tokens) {
    static double logits[MAX_BLOCKS * T];
    for (uint32_t g = 0; g < n_group; g++) {
        double most = -INFINITY, sum = 0;
        for (uint32_t t = 0; t < n_tokens; t++) {
            logits[t] = 0;
            for (uint32_t i = 0; i < d; i++) logits[t] += (double)q[g * d + i] * (double)keys[(size_t)t * d + i];
            most = fmax(most, logits[t]);
        }
        memset(want[g], 0, sizeof want[g]);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const double w = exp2(logits[t] - most);
            sum += w;
            for (uint32_t i = 0; i < d; i++) want[g][i] += w * (double)values[(size_t)t * d + i];
        }
        want_norm[g] = 0;
        for (uint32_t i = 0; i < d; i++) {
            want[g][i] /= sum;
            want_norm[g] += want[g][i] * want[g][i];
        }
        want_norm[g] = sqrt(want_norm[g]);
    }
}

/* Blocks in one page, of one level or of a few in turns; keys and values become what they hold. */
static void make_run(uint32_t d, uint32_t n_blocks, bool has_levels, uint8_t *page, uint32_t *ends) {
    size_t at = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (has_levels && check_below(4) == 0) level = PLEAT__RD_SAME_LEVEL - 1 + (uint32_t)check_below(3);
        const size_t n = encode(d, b);
        memcpy(page + at, payload, n);
        at = (at + n + 15) / 16 * 16;
        ends[b] = (uint32_t)(at / 16);
        CHECK_STATUS(load(b, n, 0), PLEAT_OK);
        for (uint32_t t = 0; t < T; t++)
            for (uint32_t i = 0; i < d; i++) {
                keys[((size_t)b * T + t) * d + i] = key_of(d, t, i);
                values[((size_t)b * T + t) * d + i] = v_out[t * d + i];
            }
    }
    level = PLEAT__RD_SAME_LEVEL;
}

static void test_attention(void) {
    static uint8_t page[MAX_BLOCKS * (2 * T * MAX_D + 1024)] __attribute__((aligned(64)));
    static pleat__page_id id;
    static uint32_t ends[MAX_BLOCKS];
    for (uint64_t round = 0, n_rounds = check_rounds(40, 30); round < n_rounds; round++) {
        static const uint32_t dims[] = {64, 128, 256, 80};
        const uint32_t d = dims[round % 4], n_blocks = (uint32_t)check_between(1, MAX_BLOCKS),
                       n_group = 1 + round % MAX_G;
        float q[MAX_G * MAX_D];
        lane_init(d, round % 6 > 0, check_below(2), (float)exp2(check_uniform(-4, -1)),
                  (float)exp2(check_uniform(-1, 1)));
        fill_tokens(d, n_blocks);
        pleat__block_format format = pleat__rd_format(d);
        pleat__block_run run = {.format = &format,
                                .rd = &lane,
                                .base = page,
                                .page_bytes = sizeof page,
                                .ids = &id,
                                .step = 1,
                                .ends = ends,
                                .n_blocks = n_blocks};
        make_run(d, n_blocks, round % 2, page, ends);
        check_fill_normal(q, n_group * d);
        const float scale = 0.3f / sqrtf((float)d);
        uint8_t *query_memory = aligned_alloc(64, (pleat__attn_query_bytes(n_group, d) + 63) / 64 * 64);
        uint8_t *acc_memory = aligned_alloc(64, (pleat__attn_acc_bytes(n_group, d) + 63) / 64 * 64);
        uint8_t *scratch = aligned_alloc(64, pleat__attn_blocks_scratch_bytes(&format, n_group));
        pleat__attn_query query;
        pleat__attn_query_init(&query, query_memory, q, n_group, d, scale);
        attend_exactly(query.f32, d, n_group, n_blocks * T);
        for (size_t v = 0; v <= CHECK_COUNT(decode_variants); v++) {
            const uint32_t flags = v < CHECK_COUNT(decode_variants) ? decode_variants[v].flags : pleat_cpu_flags();
            if (flags & ~pleat_cpu_flags()) continue;
            pleat__attn_dsp attn;
            pleat__codec_dsp codec;
            pleat__attn_acc acc;
            float out[MAX_G * MAX_D];
            pleat__attn_dsp_init(&attn, flags);
            pleat__codec_dsp_init(&codec, flags);
            pleat__attn_acc_init(&acc, acc_memory, n_group, d);
            const uint32_t half = n_blocks > 4 ? 4 : n_blocks; /* in two ranges */
            CHECK(attn.blocks(&query, &codec, &run, 0, half, &acc, scratch));
            CHECK(attn.blocks(&query, &codec, &run, half, n_blocks, &acc, scratch));
            pleat__attn_finish(&acc, n_group, d, out, NULL);
            for (uint32_t g = 0; g < n_group; g++) {
                double error = 0;
                for (uint32_t i = 0; i < d; i++) error += pow((double)out[g * d + i] - want[g][i], 2);
                check_context("%s, d %u, %u blocks, head %u of %u, %u means",
                              v < CHECK_COUNT(decode_variants) ? decode_variants[v].name : "all", d, n_blocks, g,
                              n_group, lane.n_means);
                CHECK(sqrt(error) <= 1e-3 * want_norm[g]);
            }
        }
        free(query_memory);
        free(acc_memory);
        free(scratch);
    }
}

static const check_test tests[] = {
    {"streams", test_streams},
    {"runs", test_runs},
    {"mean", test_mean},
    {"bounds", test_bounds},
    {"extremes", test_extremes},
    {"unlike", test_unlike},
    {"damaged", test_damaged},
    {"bytes", test_bytes},
    {"attention", test_attention},
    {"levels", test_levels},
    {"finer", test_finer},
    {"room", test_room},
    {"expected_bytes", test_expected_bytes},
};

int main(int argc, char **argv) {
    make_books();
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
