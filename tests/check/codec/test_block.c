/* SPDX-License-Identifier: MIT
 *
 * test_block.c: payloads (src/codec): codes through every coder and back, damage, and payloads in pages.
 *
 * Payloads stand at the end of guarded memory, with no more than the pad behind them, so that a read beyond faults.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "codec/internal.h"
#include "core/half.h"
#include "hw/cpu.h"
#include "quant/bounded.h"

static const uint32_t variants[] = {0, PLEAT_CPU_AVX2, PLEAT_CPU_NEON, PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512,
                                    PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI | PLEAT_CPU_VBMI2};

/* ---- a block to play with ------------------------------------------------------------------------------ */

typedef struct rig {
    pleat__block_format f;
    pleat__block_codebooks codebooks;
    pleat__block_codes codes;
    void *memory;
    float *k, *v;   /* [T][d] */
    check_buf copy; /* the payload, with its pad */
    check_buf units;
    uint8_t *payload;
    size_t n_bytes;
} rig;

static pleat__block_format random_format(pleat__block_coder coder) {
    static const uint32_t head_dims[] = {16, 32, 48, 64, 80, 128, 256, 512};
    static const float rels[] = {1.0f, 0.5f, 0.3f, 0.25f, 0.15f, 0.05f, 0.033f, 0.03f, 0.01f, 1.0f / 255};
    pleat__block_format f = {.coder = coder, .by_channel = check_below(2) != 0};
    f.tokens = 16u << check_below(5);
    f.head_dim = head_dims[check_below(f.tokens > 64 ? 6 : 8)];
    f.v_group = check_below(2) ? f.head_dim : 16;
    pleat__block_set_steps(&f, rels[check_below(CHECK_COUNT(rels))], rels[check_below(CHECK_COUNT(rels))],
                           check_below(4) != 0);
    return f;
}

static size_t n_codes(const rig *r) { return (size_t)r->f.tokens * r->f.head_dim; }

static rig rig_new(pleat__block_format f) {
    rig r = {.f = f};
    pleat__arena arena = {0};
    pleat__block_codes_carve(&r.f, &r.codes, &arena);
    r.memory = aligned_alloc(64, arena.used_bytes);
    memset(r.memory, 0xD0, arena.used_bytes);
    arena = (pleat__arena){.base = r.memory, .cap_bytes = arena.used_bytes};
    pleat__block_codes_carve(&r.f, &r.codes, &arena);
    r.k = calloc(n_codes(&r), sizeof *r.k);
    r.v = calloc(n_codes(&r), sizeof *r.v);
    r.payload = malloc(pleat__block_bound(&f));
    r.units = check_buf_new(pleat__block_units_bytes(&f), 2);
    check_context("T %u d %u by_channel %d group %u levels %u %u coder %d", f.tokens, f.head_dim, f.by_channel,
                  f.v_group, f.k_levels, f.v_levels, (int)f.coder);
    return r;
}

static void rig_free(rig *r) {
    if (r->copy.map) check_buf_free(&r->copy);
    CHECK(check_buf_is_intact(&r->units));
    check_buf_free(&r->units);
    free(r->memory);
    free(r->k);
    free(r->v);
    free(r->payload);
}

/* Units of any kind that the format may have: each z and each step, or any bits. */
static bool set_units(bool may_be_compact, uint32_t n, uint16_t *mins, uint16_t *steps) {
    const bool is_wide = !may_be_compact || check_below(3) == 0;
    for (uint32_t i = 0; i < n; i++) {
        const int z = (int)check_between(0, 127) - 64;
        steps[i] = (uint16_t)check_between(0x0800 / 64, 0x67C0 / 64) * 64; /* 32 of it are within f16 */
        mins[i] = pleat__f32_to_f16((float)z * pleat__f16_to_f32(steps[i]) / 2);
        if (check_below(9) == 0) mins[i] = steps[i] = 0;
        if (is_wide) mins[i] = (uint16_t)check_u64(), steps[i] = (uint16_t)check_u64();
    }
    return is_wide;
}

/* Place codes, as tokens would have been quantised to them. */
static void set_codes(rig *r, void (*next)(uint8_t *codes, size_t n, uint32_t n_levels)) {
    next(r->codes.k, n_codes(r), r->f.k_levels);
    next(r->codes.v, n_codes(r), r->f.v_levels);
    for (uint32_t i = 0; i < r->f.tokens; i++) r->codes.order[i] = (uint8_t)(r->f.tokens - 1 - i);
    r->codes.k_wide = set_units(r->f.k_on_grids, pleat__block_k_units(&r->f), r->codes.k_mins, r->codes.k_steps);
    r->codes.v_wide = set_units(r->f.v_on_grids, pleat__block_v_units(&r->f), r->codes.v_mins, r->codes.v_steps);
}

static void build_codebooks(rig *r) {
    pleat__code_counts *counts = calloc(2, sizeof *counts);
    pleat__code_counts_add(&counts[0], r->codes.k, pleat__block_vectors(&r->f), r->f.k_levels);
    pleat__code_counts_add(&counts[1], r->codes.v, pleat__block_vectors(&r->f), r->f.v_levels);
    pleat__block_codebooks_build(&r->f, &counts[0], &counts[1], &r->codebooks);
    free(counts);
}

/* `bytes` at the end of readable memory but for the pad, filled with anything. */
static const uint8_t *place_payload(rig *r, const uint8_t *bytes, size_t n) {
    if (r->copy.map) check_buf_free(&r->copy);
    r->copy = check_buf_new(n + PLEAT__STREAM_PAD, 1);
    uint8_t *at = r->copy.p;
    memcpy(at, bytes, n);
    for (uint32_t i = 0; i < PLEAT__STREAM_PAD; i++) at[n + i] = (uint8_t)check_u64();
    return at;
}

static void encode(rig *r) {
    r->n_bytes = pleat__block_encode(&r->f, &r->codebooks, &r->codes, r->payload);
    CHECK(r->n_bytes <= pleat__block_bound(&r->f));
    CHECK(pleat__block_bound(&r->f) < (size_t)4 * r->f.tokens * r->f.head_dim);
    CHECK(pleat__block_is_intact(&r->f, &r->codebooks, r->payload, r->n_bytes));
}

/* Decode both matrices of a reader in random runs of slices.  [2][T * d] */
static void decode_slices(const rig *r, uint32_t flags, pleat__block_reader *reader, uint8_t *out) {
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, flags & pleat_cpu_flags());
    for (uint32_t m = 0; m < 2; m++, out += n_codes(r)) {
        pleat__section *s = m ? &reader->v : &reader->k;
        const uint32_t slice = s->n_columns / 4, n_slices = pleat__block_vectors(&r->f) / slice;
        for (uint32_t at = 0, n; at < n_slices; at += n) {
            n = (uint32_t)check_between(1, n_slices - at);
            uint8_t *to = out + (size_t)at * slice * 64;
            pleat__sections_decode(&dsp, m ? &r->codebooks.v : &r->codebooks.k, &s, 1, n * slice, &to);
        }
    }
}

static void check_round_trip(rig *r) {
    uint8_t *out = aligned_alloc(64, 2 * n_codes(r));
    encode(r);
    const uint8_t *payload = place_payload(r, r->payload, r->n_bytes);
    for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
        pleat__block_reader reader;
        if (!CHECK_STATUS(pleat__block_open(&r->f, &r->codebooks, payload, r->n_bytes, r->units.p, &reader), PLEAT_OK))
            break;
        decode_slices(r, variants[i], &reader, out);
        CHECK_EQ_MEM(out, r->codes.k, n_codes(r));
        CHECK_EQ_MEM(out + n_codes(r), r->codes.v, n_codes(r));
        CHECK(pleat__section_is_done(&reader.k));
        CHECK(pleat__section_is_done(&reader.v));
        CHECK_EQ_MEM(reader.k_mins, r->codes.k_mins, 2 * pleat__block_k_units(&r->f));
        CHECK_EQ_MEM(reader.k_steps, r->codes.k_steps, 2 * pleat__block_k_units(&r->f));
        CHECK_EQ_MEM(reader.v_mins, r->codes.v_mins, 2 * pleat__block_v_units(&r->f));
        CHECK_EQ_MEM(reader.v_steps, r->codes.v_steps, 2 * pleat__block_v_units(&r->f));
        CHECK_EQ_U64(reader.k_unit_bytes, (r->codes.k_wide ? 4 : 2) * pleat__block_k_units(&r->f));
        CHECK_EQ_U64(reader.v_unit_bytes, (r->codes.v_wide ? 4 : 2) * pleat__block_v_units(&r->f));
        if (r->f.coder == PLEAT__CODER_PACK)
            CHECK_EQ_MEM(reader.order, r->codes.order, r->f.tokens);
        else
            CHECK(reader.order == NULL);
    }
    free(out);
}

/* ---- codes --------------------------------------------------------------------------------------------- */

static void uniform_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)check_below(n_levels);
}
static void normal_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    for (size_t i = 0; i < n; i++) {
        const double x = (0.5 + 0.15 * (double)check_normal()) * (n_levels - 1);
        codes[i] = (uint8_t)(x < 0 ? 0 : x > n_levels - 1 ? n_levels - 1 : lround(x));
    }
}
static void lowest_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    (void)n_levels;
    memset(codes, 0, n);
}
static void highest_codes(uint8_t *codes, size_t n, uint32_t n_levels) { memset(codes, (int)n_levels - 1, n); }
static void all_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(i % n_levels);
}
/* Each code half as often as the one before: the longest words there are. */
static void steep_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)((uint32_t)__builtin_ctzll(check_u64() | 1ull << 63) % n_levels);
}
/* One code in a million differs. */
static void rare_codes(uint8_t *codes, size_t n, uint32_t n_levels) {
    memset(codes, (int)n_levels / 2, n);
    codes[check_below(n)] = (uint8_t)(n_levels - 1);
}

static void (*const fills[])(uint8_t *, size_t, uint32_t) = {uniform_codes, normal_codes, lowest_codes, highest_codes,
                                                             all_codes,     steep_codes,  rare_codes};

static void try_coder(pleat__block_coder coder) {
    for (uint64_t round = check_rounds(60, 6); round > 0; round--) {
        rig r = rig_new(random_format(coder));
        for (size_t i = 0; i < CHECK_COUNT(fills); i++) {
            set_codes(&r, fills[i]);
            if (i == 0 || check_below(2)) build_codebooks(&r); /* else those of other codes */
            check_round_trip(&r);
        }
        rig_free(&r);
    }
}
static void test_raw(void) { try_coder(PLEAT__CODER_RAW); }
static void test_huffman(void) { try_coder(PLEAT__CODER_HUFFMAN); }
static void test_pack(void) { try_coder(PLEAT__CODER_PACK); }

static pleat__block_coder k_coder(const rig *r) { return (pleat__block_coder)(r->payload[4] & 3); }

/* What coding does not shorten is stored as it is. */
static void test_raw_where_coding_does_not_help(void) {
    for (pleat__block_coder coder = PLEAT__CODER_HUFFMAN; coder <= PLEAT__CODER_PACK; coder++) {
        pleat__block_format f = random_format(coder);
        f.k_levels = f.v_levels = 16;
        rig r = rig_new(f);
        set_codes(&r, uniform_codes);
        build_codebooks(&r);
        check_round_trip(&r);
        CHECK_EQ_U64(k_coder(&r), PLEAT__CODER_RAW);
        set_codes(&r, lowest_codes);
        build_codebooks(&r);
        check_round_trip(&r);
        CHECK_EQ_U64(k_coder(&r), coder);
        rig_free(&r);
    }
}

/* Up to four sections at once, some of them stored RAW, give what each gives alone. */
static void test_sections_together(void) {
    for (uint64_t round = check_rounds(40, 4); round > 0; round--) {
        const pleat__block_coder coder = (pleat__block_coder)check_below(3);
        rig r = rig_new(random_format(coder));
        set_codes(&r, normal_codes);
        build_codebooks(&r);
        const uint32_t n = (uint32_t)check_between(1, 4), n_vectors = pleat__block_vectors(&r.f);
        uint8_t *want[4], *got[4], *payload[4];
        pleat__block_reader readers[4];
        pleat__section *sections[4];
        for (uint32_t i = 0; i < n; i++) {
            set_codes(&r, check_below(2) ? normal_codes : uniform_codes);
            encode(&r);
            payload[i] = malloc(r.n_bytes + PLEAT__STREAM_PAD);
            memcpy(payload[i], r.payload, r.n_bytes);
            memset(payload[i] + r.n_bytes, 0x5A, PLEAT__STREAM_PAD);
            CHECK_STATUS(pleat__block_open(&r.f, &r.codebooks, payload[i], r.n_bytes, NULL, &readers[i]), PLEAT_OK);
            sections[i] = &readers[i].v;
            want[i] = malloc(n_codes(&r));
            got[i] = aligned_alloc(64, n_codes(&r));
            memcpy(want[i], r.codes.v, n_codes(&r));
        }
        pleat__codec_dsp dsp;
        pleat__codec_dsp_init(&dsp, variants[check_below(CHECK_COUNT(variants))] & pleat_cpu_flags());
        pleat__sections_decode(&dsp, &r.codebooks.v, sections, n, n_vectors, got);
        for (uint32_t i = 0; i < n; i++) {
            CHECK_EQ_MEM(got[i], want[i], n_codes(&r));
            CHECK(pleat__section_is_done(sections[i]));
            free(want[i]);
            free(got[i]);
            free(payload[i]);
        }
        rig_free(&r);
    }
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

static void fill_tokens(rig *r) {
    const float size = (float)check_uniform(0.1, 20);
    const unsigned k_kind = (unsigned)check_below(CHECK_N_FILLS), v_kind = (unsigned)check_below(CHECK_N_FILLS);
    check_fill(r->k, n_codes(r), check_below(2) ? 0 : k_kind, size);
    check_fill(r->v, n_codes(r), check_below(2) ? 0 : v_kind, size);
}

static double f16_at(const uint8_t *units, uint32_t i) { return pleat__f16_to_f32(pleat__load_u16(units + 2 * i)); }

static double clamped(float x) { return fmin(fmax((double)x, -(double)PLEAT__F16_MAX), (double)PLEAT__F16_MAX); }

/* Load gives every token at its place, each value within half its step. */
static void check_load(rig *r, const pleat__block_reader *at, const float *k, const float *v) {
    const uint32_t d = r->f.head_dim, n_groups = d / r->f.v_group;
    for (uint32_t place = 0; place < r->f.tokens; place++) {
        const uint32_t token = at->order ? at->order[place] : place;
        for (uint32_t i = 0; i < d; i++) {
            const double k_step = f16_at(at->k_steps, r->f.by_channel ? i : 0);
            const double v_step = f16_at(at->v_steps, place * n_groups + i / r->f.v_group);
            const double k_want = clamped(r->k[token * d + i]), v_want = clamped(r->v[token * d + i]);
            const double k_got = k[(place / 16 * d + i) * 16 + place % 16], v_got = v[place * d + i];
            CHECK(fabs(k_got - k_want) <= k_step / 2 + 1e-6 * (fabs(k_want) + fabs(k_got)));
            CHECK(fabs(v_got - v_want) <= v_step / 2 + 1e-6 * (fabs(v_want) + fabs(v_got)));
        }
        if (check_failures() > 0) return;
    }
}

/* Quantise, encode and load the tokens. */
static void check_tokens(rig *r) {
    pleat__block_quantise(&r->f, r->k, r->v, r->f.head_dim, &r->codes);
    build_codebooks(r);
    check_round_trip(r);
    float *k = calloc(n_codes(r), sizeof *k), *v = calloc(n_codes(r), sizeof *v);
    uint8_t *scratch = aligned_alloc(64, n_codes(r));
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, pleat_cpu_flags());
    pleat__block_reader reader;
    CHECK_STATUS(pleat__block_open(&r->f, &r->codebooks, r->copy.p, r->n_bytes, r->units.p, &reader), PLEAT_OK);
    CHECK_STATUS(pleat__block_load(&dsp, &r->f, &r->codebooks, &reader, scratch, k, v), PLEAT_OK);
    check_load(r, &reader, k, v);
    free(k);
    free(v);
    free(scratch);
}

static void test_load(void) {
    for (uint64_t round = check_rounds(60, 6); round > 0; round--) {
        rig r = rig_new(random_format((pleat__block_coder)check_below(3)));
        fill_tokens(&r);
        check_tokens(&r);
        rig_free(&r);
    }
}

/* All units that there are, but for steps that overflow, come back from 16 bits; the highest and the lowest too. */
static void test_units(void) {
    uint16_t mins[128], steps[128];
    uint8_t packed[2 * 128], got[2][2 * 128];
    for (uint32_t h = 0; h < 0x7C00; h += 64) {
        uint32_t n = 0;
        for (int z = h == 0 ? 0 : PLEAT__GRID_MIN_Z; z <= (h == 0 ? 0 : PLEAT__GRID_MAX_Z); z++) {
            const float step = pleat__f16_to_f32((uint16_t)h), min = (float)z * step / 2;
            if (h > 0 && (h < 0x800 || fabsf(min) > PLEAT__F16_MAX)) continue;
            steps[n] = (uint16_t)h;
            mins[n++] = pleat__f32_to_f16(min);
            CHECK(pleat__f16_to_f32(mins[n - 1]) == min);
        }
        pleat__units_pack(mins, steps, n, packed);
        pleat__units_expand(packed, n, got[0], got[1]);
        CHECK_EQ_MEM(got[0], mins, 2 * n);
        CHECK_EQ_MEM(got[1], steps, 2 * n);
    }
}

/* What makes units no grid's makes that matrix WIDE and no other, and it comes back. */
static void make_wide(float *x, size_t n, uint32_t how) {
    for (size_t i = 0; i < n; i++) {
        switch (how) {
            case 0: x[i] = 100 + 0.1f * x[i]; break; /* far from 0 */
            case 1: x[i] *= 1e-6f; break;            /* steps too small */
            case 2: x[i] = -300 + 0.1f * x[i]; break;
            default: x[i] = 1.0001f; break; /* equal, and no short number */
        }
    }
}

static void test_wide_fallback(void) {
    for (uint32_t round = 0; round < 40; round++) {
        pleat__block_format f = random_format((pleat__block_coder)check_below(3));
        const bool keys = round / 4 % 2 != 0;
        pleat__block_set_steps(&f, 0.15f, 0.15f, true);
        rig r = rig_new(f);
        check_fill_normal(r.k, n_codes(&r));
        check_fill_normal(r.v, n_codes(&r));
        pleat__block_quantise(&r.f, r.k, r.v, r.f.head_dim, &r.codes);
        CHECK(!r.codes.k_wide && !r.codes.v_wide);
        make_wide(keys ? r.k : r.v, n_codes(&r), round % 4);
        check_tokens(&r);
        CHECK(r.codes.k_wide == keys && r.codes.v_wide == !keys);
        rig_free(&r);
    }
}

/* Twice the same bytes, and no matter what stood in the scratch. */
static void test_encode_is_deterministic(void) {
    for (uint32_t round = 0; round < 12; round++) {
        rig a = rig_new(random_format((pleat__block_coder)(round % 3)));
        rig b = rig_new(a.f);
        memset(b.codes.rows, 0x11, 2 * n_codes(&b));
        fill_tokens(&a);
        pleat__block_quantise(&a.f, a.k, a.v, a.f.head_dim, &a.codes);
        pleat__block_quantise(&b.f, a.k, a.v, a.f.head_dim, &b.codes);
        build_codebooks(&a);
        build_codebooks(&b);
        encode(&a);
        encode(&b);
        CHECK_EQ_U64(a.n_bytes, b.n_bytes);
        CHECK_EQ_MEM(a.payload, b.payload, a.n_bytes);
        rig_free(&a);
        rig_free(&b);
    }
}

/* Tokens alternate between two kinds: put together they take narrower packs. */
static void test_order_narrows_packs(void) {
    pleat__block_format f = random_format(PLEAT__CODER_PACK);
    f.tokens = 64;
    f.head_dim = 64;
    f.v_group = 64;
    f.k_levels = f.v_levels = 16;
    rig r = rig_new(f);
    uint8_t *k_rows = malloc(64 * 64), *v_rows = malloc(64 * 64), order[64], seen[64] = {0};
    for (uint32_t i = 0; i < 64 * 64; i++) {
        k_rows[i] = (uint8_t)((i / 64 % 2 ? 8 : 0) + check_below(2));
        v_rows[i] = (uint8_t)((i / 64 % 2 ? 0 : 12) + check_below(2));
    }
    for (uint32_t i = 0; i < 64; i++) order[i] = (uint8_t)i;
    pleat__pack_order(&f, k_rows, v_rows, order);
    uint32_t mixed = 0;
    for (uint32_t i = 0; i < 64; i++) {
        seen[order[i]]++;
        mixed += order[i] % 2 != order[i / 16 * 16] % 2;
    }
    for (uint32_t i = 0; i < 64; i++) CHECK_EQ_U64(seen[i], 1);
    CHECK_EQ_U64(mixed, 0);
    free(k_rows);
    free(v_rows);
    rig_free(&r);
}

/* ---- damage -------------------------------------------------------------------------------------------- */

/* Opening and decoding whatever bytes reads nothing outside and gives codes below the levels. */
static void check_damaged(rig *r, const uint8_t *bytes, size_t n) {
    const uint8_t *payload = place_payload(r, bytes, n);
    pleat__block_reader reader;
    if (pleat__block_open(&r->f, &r->codebooks, payload, n, r->units.p, &reader) != PLEAT_OK) return;
    uint8_t *out = aligned_alloc(64, 4 * n_codes(r));
    for (size_t i = 0; i < CHECK_COUNT(variants); i++) {
        pleat__block_reader again = reader;
        uint8_t *to = out + (i > 0 ? 2 * n_codes(r) : 0);
        decode_slices(r, variants[i], &again, to);
        uint32_t k_top = 0, v_top = 0;
        for (size_t j = 0; j < n_codes(r); j++) {
            k_top = to[j] > k_top ? to[j] : k_top;
            v_top = to[n_codes(r) + j] > v_top ? to[n_codes(r) + j] : v_top;
        }
        CHECK(k_top < r->f.k_levels);
        CHECK(v_top < r->f.v_levels);
        CHECK_EQ_MEM(to, out, 2 * n_codes(r));
    }
    free(out);
}

static void test_damage(void) {
    for (uint64_t round = check_rounds(30, 6); round > 0; round--) {
        pleat__block_format f = random_format((pleat__block_coder)(round % 3));
        f.tokens = f.tokens > 64 ? 64 : f.tokens;
        f.head_dim = f.v_group = 32;
        rig r = rig_new(f);
        set_codes(&r, check_below(2) ? normal_codes : steep_codes);
        build_codebooks(&r);
        encode(&r);
        uint8_t *bytes = malloc(r.n_bytes + 64);
        for (uint32_t i = 0; i < 60; i++) {
            memcpy(bytes, r.payload, r.n_bytes);
            const uint32_t n_flips = 1 + (uint32_t)check_below(i % 2 ? 1 : 200);
            for (uint32_t j = 0; j < n_flips; j++) bytes[12 + check_below(r.n_bytes - 12)] ^= (uint8_t)check_u64();
            CHECK(!pleat__block_is_intact(&r.f, &r.codebooks, bytes, r.n_bytes) ||
                  memcmp(bytes, r.payload, r.n_bytes) == 0);
            check_damaged(&r, bytes, r.n_bytes);
        }
        for (size_t i = 0; i < r.n_bytes; i++) bytes[i] = i < 12 ? r.payload[i] : (uint8_t)check_u64();
        check_damaged(&r, bytes, r.n_bytes);
        for (size_t n = 0; n <= r.n_bytes; n += n < 100 ? 1 : 1 + check_below(37)) {
            pleat__block_reader reader;
            const uint8_t *payload = place_payload(&r, r.payload, n);
            CHECK_STATUS(pleat__block_open(&r.f, &r.codebooks, payload, n, r.units.p, &reader),
                         n == r.n_bytes ? PLEAT_OK : PLEAT_E_FORMAT);
        }
        free(bytes);
        rig_free(&r);
    }
}

/* Headers whose sections still add up but are moved, or of another coder. */
static void test_wrong_headers(void) {
    for (uint32_t coder = 0; coder < 3; coder++) {
        pleat__block_format f = random_format((pleat__block_coder)coder);
        rig r = rig_new(f);
        set_codes(&r, rare_codes);
        build_codebooks(&r);
        encode(&r);
        uint8_t *bytes = malloc(r.n_bytes);
        for (uint32_t i = 0; i < 400; i++) {
            uint32_t words[2] = {pleat__load_u32(r.payload + 4), pleat__load_u32(r.payload + 8)};
            const uint32_t move = (uint32_t)check_below(i < 200 ? 64 : 1u << 30);
            words[0] += 8 * move;
            words[1] -= 8 * move;
            words[check_below(2)] ^= (uint32_t)check_below(8);
            memcpy(bytes, r.payload, r.n_bytes);
            memcpy(bytes + 4, words, 8);
            check_damaged(&r, bytes, r.n_bytes);
        }
        memcpy(bytes, r.payload, r.n_bytes);
        bytes[4] |= 3; /* no such coder */
        pleat__block_reader reader;
        CHECK_STATUS(pleat__block_open(&r.f, &r.codebooks, bytes, r.n_bytes, r.units.p, &reader), PLEAT_E_FORMAT);
        const uint32_t k_units = pleat__block_k_units(&f), k_word = pleat__load_u32(r.payload + 4);
        if (!f.k_on_grids) { /* with as many bytes as COMPACT units had */
            const uint32_t word = k_word & ~PLEAT__MATRIX_WIDE;
            memcpy(bytes, r.payload, r.n_bytes);
            memcpy(bytes + 4, &word, sizeof word);
            CHECK_STATUS(pleat__block_open(&r.f, &r.codebooks, bytes, r.n_bytes - 2 * k_units, r.units.p, &reader),
                         PLEAT_E_FORMAT);
        }
        if (coder == PLEAT__CODER_HUFFMAN && k_coder(&r) == PLEAT__CODER_HUFFMAN)
            CHECK_STATUS(pleat__block_open(&r.f, NULL, r.payload, r.n_bytes, r.units.p, &reader), PLEAT_E_FORMAT);
        free(bytes);
        rig_free(&r);
    }
}

/* ---- payloads in pages --------------------------------------------------------------------------------- */

#define PAGE_BYTES 4096u
#define N_PAGES 64u
#define N_BLOCKS 12u

static void check_fetch(rig *r, const pleat__block_run *run, uint32_t block, const uint8_t *want, size_t n) {
    check_buf copy = check_buf_new(pleat__block_copy_bytes(&r->f), 64);
    size_t n_bytes = 0;
    const uint8_t *payload = pleat__block_fetch(run, block, copy.p, &n_bytes);
    CHECK_EQ_U64(n_bytes, n);
    CHECK_EQ_MEM(payload, want, n);
    pleat__block_reader reader;
    CHECK_STATUS(pleat__block_run_open(run, block, copy.p, &reader), PLEAT_OK);
    uint8_t *out = aligned_alloc(64, 2 * n_codes(r));
    decode_slices(r, ~0u, &reader, out);
    CHECK(pleat__section_is_done(&reader.k) && pleat__section_is_done(&reader.v));
    CHECK(check_buf_is_intact(&copy));
    free(out);
    check_buf_free(&copy);
}

/* Pages in any order, ids in either direction; the last block may end where the last page does. */
static void test_fetch(void) {
    for (uint64_t round = check_rounds(40, 6); round > 0; round--) {
        pleat__block_format f = random_format((pleat__block_coder)check_below(3));
        f.tokens = 32;
        f.head_dim = f.v_group = 64;
        rig r = rig_new(f);
        check_buf pool = check_buf_new(N_PAGES * PAGE_BYTES, 64);
        pleat__page_id ids[N_PAGES];
        for (uint32_t i = 0; i < N_PAGES; i++) ids[i].v = i;
        for (uint32_t i = N_PAGES - 1; i > 0; i--) {
            const uint32_t j = (uint32_t)check_below(i + 1);
            const pleat__page_id id = ids[i];
            ids[i] = ids[j];
            ids[j] = id;
        }
        uint32_t ends[N_BLOCKS];
        uint8_t *payloads[N_BLOCKS];
        size_t sizes[N_BLOCKS];
        const int32_t step = check_below(2) ? 1 : -1;
        const pleat__block_run run = {.format = &r.f,
                                      .codebooks = &r.codebooks,
                                      .base = pool.p,
                                      .page_bytes = PAGE_BYTES,
                                      .ids = step > 0 ? ids : ids + N_PAGES - 1,
                                      .step = step,
                                      .ends = ends,
                                      .n_blocks = N_BLOCKS};
        uint64_t at = 0;
        for (uint32_t i = 0; i < N_BLOCKS; i++) {
            set_codes(&r, normal_codes);
            if (i == 0) build_codebooks(&r);
            encode(&r);
            payloads[i] = malloc(r.n_bytes);
            sizes[i] = r.n_bytes;
            memcpy(payloads[i], r.payload, r.n_bytes);
            for (size_t j = 0; j < r.n_bytes; j++)
                ((uint8_t *)pool.p)[run.ids[(int64_t)((at + j) / PAGE_BYTES) * step].v * (size_t)PAGE_BYTES +
                                    (at + j) % PAGE_BYTES] = r.payload[j];
            at = (at + r.n_bytes + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN * PLEAT__BLOCK_ALIGN;
            ends[i] = (uint32_t)(at / PLEAT__BLOCK_ALIGN);
        }
        for (uint32_t i = 0; i < N_BLOCKS; i++) {
            check_fetch(&r, &run, i, payloads[i], sizes[i]);
            free(payloads[i]);
        }
        check_buf_free(&pool);
        rig_free(&r);
    }
}

static const check_test tests[] = {
    {"raw", test_raw},
    {"huffman", test_huffman},
    {"pack", test_pack},
    {"raw_where_coding_does_not_help", test_raw_where_coding_does_not_help},
    {"sections_together", test_sections_together},
    {"load", test_load},
    {"units", test_units},
    {"wide_fallback", test_wide_fallback},
    {"encode_is_deterministic", test_encode_is_deterministic},
    {"order_narrows_packs", test_order_narrows_packs},
    {"damage", test_damage},
    {"wrong_headers", test_wrong_headers},
    {"fetch", test_fetch},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
