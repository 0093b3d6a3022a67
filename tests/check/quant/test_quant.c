/* SPDX-License-Identifier: MIT
 *
 * test_quant.c: tokens into pages and back (src/quant).
 *
 * The reference is held against an independent decoder, which reads layout.h's picture segment by segment in float64,
 * and against the error bound of quant.h.  Each variant is held against the reference, byte for byte, whatever the
 * order and the length of the stores.  Pages end at an unreadable OS page.
 */
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "hw/cpu.h"
#include "quant/quant.h"

static const pleat_format formats[] = {{32, 32}, {16, 16}, {8, 8}, {8, 4},    {8, 2},    {4, 8},    {4, 4},   {4, 2},
                                       {2, 8},   {2, 4},   {2, 2}, {4, 3, 1}, {3, 4, 1}, {3, 2, 1}, {2, 3, 1}};
static const uint32_t head_dims[] = {16, 32, 48, 64, 80, 96, 128, 256, 512};
static const uint32_t variants[] = {0, PLEAT_CPU_AVX2, PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512, PLEAT_CPU_NEON};

/* Fills beyond check_fill()'s: huge, beyond f16, subnormal, a huge range, an offset much larger than the range. */
static void fill_row(float *x, uint32_t n, unsigned kind) {
    if (kind < CHECK_N_FILLS) {
        check_fill(x, n, kind, (float)check_uniform(0.01, 30));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const float r = check_normal();
        switch (kind - CHECK_N_FILLS) {
            case 0: x[i] = i % 3 ? 65504.0f : -65504.0f; break;
            case 1: x[i] = 1e30f * r; break;
            case 2: x[i] = 3e-7f * r; break;
            case 3: x[i] = ldexpf(r, (int)check_below(60) - 40); break;
            case 4: x[i] = 1000.7f + 0.01f * r; break;
            case 5: x[i] = i % 2 ? -0.0f : 0.0f; break;
            case 6: x[i] = 1.0004f; break; /* constant, not an f16 */
            default: x[i] = i == 3 ? INFINITY : i == 5 ? -INFINITY : r; break;
        }
    }
}
#define N_ROW_FILLS (CHECK_N_FILLS + 8)

typedef struct tokens {
    uint32_t n, d;
    float k[64 * 512];
    float v[64 * 512];
} tokens;

static tokens t; /* row i of k at t.k + i*d */

static void fill_tokens(uint32_t n, uint32_t d) {
    t.n = n;
    t.d = d;
    for (uint32_t i = 0; i < n; i++) {
        fill_row(t.k + i * d, d, (unsigned)check_below(N_ROW_FILLS));
        fill_row(t.v + i * d, d, (unsigned)check_below(N_ROW_FILLS));
    }
}

static pleat__page_layout random_layout(pleat_format format) {
    pleat__page_layout l;
    const uint32_t d = head_dims[check_below(CHECK_COUNT(head_dims))];
    const uint32_t n_tokens = 16 * (uint32_t)check_between(1, 4), kind = (uint32_t)check_below(3);
    if (kind == 2)
        CHECK_STATUS(pleat__page_layout_init_massed(&l, format, d, n_tokens, 1), PLEAT_OK);
    else
        CHECK_STATUS(pleat__page_layout_init(&l, format, d, n_tokens, kind == 1), PLEAT_OK);
    return l;
}

/* ---- an independent decoder: layout.h's table, one case a line ------------------------------------------------- */

/* A rotated format's whole number: 2 bits, and of 3 bits the third in the 32 bytes behind 64. */
static double level_of(uint32_t bits, const uint8_t *b, uint32_t d, uint32_t at, uint32_t plane) {
    static const int levels[5][16] = {[2] = {-127, -38, 38, 127},
                                      [3] = {-127, -79, -45, -14, 14, 45, 79, 127},
                                      [4] = {-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127}};
    if (bits == 4) return levels[4][b[at] >> (4 * plane) & 15];
    const uint32_t low = b[at] >> (2 * plane) & 3, i = at % 64;
    if (bits == 2) return levels[2][low];
    const uint32_t third = b[4 * d + at / 64 * 32 + i % 32] >> (plane + (i < 32 ? 0 : 4)) & 1;
    return levels[3][low + 4 * third];
}

static double decode_rotated_key(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, uint32_t i) {
    const uint32_t tile = slot / 16, s = slot % 16, per = l->format.k_bits == 4 ? 2 : 4;
    const uint16_t *meta = (const uint16_t *)(const void *)(page + l->k_meta_off + tile * 32);
    const uint32_t at = i / (4 * per) * 64 + s * 4 + i % 4;
    return (double)pleat__f16_to_f32(meta[s]) *
           level_of(l->format.k_bits, page + l->k_off + tile * l->k_tile_bytes, l->head_dim, at, i / 4 % per);
}

static double decode_rotated_value(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, uint32_t i) {
    const uint32_t tile = slot / 16, s = slot % 16, per = l->format.v_bits == 4 ? 2 : 4, d = l->head_dim;
    const uint16_t *meta = (const uint16_t *)(const void *)(page + l->v_meta_off + tile * 32);
    const uint32_t at = (s / (4 * per) * d + i) * 4 + s % 4;
    return (double)pleat__f16_to_f32(meta[s]) *
           level_of(l->format.v_bits, page + l->v_off + tile * l->v_tile_bytes, d, at, s / 4 % per);
}

static double decode_key(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, uint32_t i) {
    if (l->format.rotated) return decode_rotated_key(l, page, slot, i);
    const uint32_t tile = slot / 16, s = slot % 16;
    const uint8_t *b = page + l->k_off + tile * l->k_tile_bytes;
    const uint16_t *meta = (const uint16_t *)(const void *)(page + l->k_meta_off + tile * 64);
    uint32_t code = 0;
    switch (l->format.k_bits) {
        case 32: return (double)((const float *)(const void *)b)[i * 16 + s];
        case 16: return (double)pleat__f16_to_f32(((const uint16_t *)(const void *)b)[i * 16 + s]);
        case 8: code = b[(i / 4) * 64 + s * 4 + i % 4]; break;
        case 4: code = b[(i / 8) * 64 + s * 4 + i % 4] >> (i % 8 >= 4 ? 4 : 0) & 15; break;
        case 2: code = b[(i / 16) * 64 + s * 4 + i % 4] >> (2 * (i % 16 / 4)) & 3; break;
    }
    return (double)pleat__f16_to_f32(meta[s]) * code + (double)pleat__f16_to_f32(meta[16 + s]);
}

static double decode_value(const pleat__page_layout *l, const uint8_t *page, uint32_t slot, uint32_t i) {
    if (l->format.rotated) return decode_rotated_value(l, page, slot, i);
    const uint32_t tile = slot / 16, s = slot % 16, d = l->head_dim;
    const uint8_t *b = page + l->v_off + tile * l->v_tile_bytes;
    const uint16_t *meta = (const uint16_t *)(const void *)(page + l->v_meta_off + tile * 64);
    int code = 0;
    switch (l->format.v_bits) {
        case 32: return (double)((const float *)(const void *)b)[s * d + i];
        case 16: return (double)pleat__f16_to_f32(((const uint16_t *)(const void *)b)[s * d + i]);
        case 8: code = (int8_t)b[((s / 4) * d + i) * 4 + s % 4] + 128; break;
        case 4: code = b[((s / 8) * d + i) * 4 + s % 4] >> (s % 8 >= 4 ? 4 : 0) & 15; break;
        case 2: code = b[i * 4 + s % 4] >> (2 * (s / 4)) & 3; break;
    }
    return (double)pleat__f16_to_f32(meta[s]) * code + (double)pleat__f16_to_f32(meta[16 + s]);
}

/* ---- the reference --------------------------------------------------------------------------------------------- */

/* quant.h's bound; 1e-6 of the range for the f32 arithmetic on the way. */
static double bound_of(const float *x, uint32_t d, uint32_t bits) {
    double min = 65504, max = -65504;
    for (uint32_t i = 0; i < d; i++) {
        const double y = fmin(fmax((double)x[i], -65504), 65504);
        min = fmin(min, y);
        max = fmax(max, y);
    }
    const double m = (double)pleat__f16_to_f32(pleat__f32_to_f16((float)min));
    const double steps = (double)((1u << bits) - 1);
    const double range = max > min && max > m ? max - m : 0;
    const double s = (double)pleat__f16_to_f32(pleat__f32_to_f16((float)(range / steps)));
    return s / 2 + 0x1p-11 * (fabs(m) + steps * s) + 0x1p-25 * (steps + 1) + 1e-6 * range;
}

static void check_row(const float *x, uint32_t d, uint32_t bits,
                      double (*decode)(const pleat__page_layout *, const uint8_t *, uint32_t, uint32_t),
                      const pleat__page_layout *l, const uint8_t *page, uint32_t slot) {
    const double bound = bits <= 8 ? bound_of(x, d, bits) : 0;
    for (uint32_t i = 0; i < d; i++) {
        const double y = fmin(fmax((double)x[i], -65504), 65504);
        const double got = decode(l, page, slot, i);
        if (bits == 32)
            CHECK(got == (double)x[i]);
        else if (bits == 16)
            CHECK(fabs(got - y) <= 0x1p-11 * fabs(y) + 0x1p-25);
        else
            CHECK(fabs(got - y) <= bound);
    }
}

static void test_bound(void) {
    pleat__quant_dsp dsp;
    pleat__quant_dsp_init(&dsp, 0);
    const uint64_t rounds = check_rounds(40, 4);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
            if (formats[f].rotated) continue; /* test_levels.c */
            const pleat__page_layout l = random_layout(formats[f]);
            check_context("k%uv%u d %u", formats[f].k_bits, formats[f].v_bits, l.head_dim);
            check_buf page = check_buf_new(l.used_bytes, 64);
            fill_tokens((uint32_t)check_between(1, l.tokens), l.head_dim);
            dsp.store(&l, page.p, 0, t.n, t.k, t.v, l.head_dim);
            for (uint32_t i = 0; i < t.n; i++) {
                check_row(t.k + i * t.d, t.d, l.format.k_bits, decode_key, &l, page.p, i);
                check_row(t.v + i * t.d, t.d, l.format.v_bits, decode_value, &l, page.p, i);
            }
            CHECK(check_buf_is_intact(&page));
            check_buf_free(&page);
        }
    }
}

static void test_constant_rows(void) {
    pleat__quant_dsp dsp;
    pleat__quant_dsp_init(&dsp, pleat_cpu_flags());
    pleat__page_layout l;
    CHECK_STATUS(pleat__page_layout_init(&l, (pleat_format){8, 4}, 64, 16, false), PLEAT_OK);
    const float constants[] = {0.0f, -0.0f, 1.0f, 1.0004f, -1.0004f, 65504.0f, 1e9f, -1e9f, 1e-9f, -1e-9f};
    for (size_t c = 0; c < CHECK_COUNT(constants); c++) {
        check_context("constant %g", (double)constants[c]);
        check_buf page = check_buf_new(l.used_bytes, 64);
        for (uint32_t i = 0; i < 64; i++) t.k[i] = t.v[i] = constants[c];
        dsp.store(&l, page.p, 0, 1, t.k, t.v, 64);
        const uint16_t *km = pleat__k_meta(&l, page.p, 0), *vm = pleat__v_meta(&l, page.p, 0);
        CHECK(km[0] == 0 && vm[0] == 0); /* scale */
        const float clamped = fminf(fmaxf(constants[c], -65504.0f), 65504.0f);
        CHECK_EQ_U64(km[16], pleat__f32_to_f16(clamped + 0.0f));
        CHECK_EQ_U64(vm[16], km[16]);
        const uint8_t *codes = pleat__k_tile(&l, page.p, 0);
        for (uint32_t i = 0; i < l.k_tile_bytes; i++) CHECK(codes[i] == 0);
        check_buf_free(&page);
    }
}

static void test_fresh_tile_is_cleared(void) {
    pleat__quant_dsp dsp;
    pleat__quant_dsp_init(&dsp, pleat_cpu_flags());
    for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
        pleat__page_layout l;
        CHECK_STATUS(pleat__page_layout_init_massed(&l, formats[f], 64, 48, 1), PLEAT_OK);
        check_buf page = check_buf_new(l.used_bytes, 64);
        fill_tokens(17, 64);
        dsp.store(&l, page.p, 0, 17, t.k, t.v, 64);
        for (uint32_t slot = 17; slot < 32; slot++) {
            for (uint32_t i = 0; i < 64; i++) {
                CHECK(decode_key(&l, page.p, slot, i) == 0);
                CHECK(decode_value(&l, page.p, slot, i) == 0);
            }
        }
        for (uint32_t slot = 0; slot < 32; slot++)
            CHECK(pleat__positions(&l, page.p)[slot] == -1 && pleat__scores(&l, page.p)[slot] == 0.0f &&
                  pleat__masses(&l, page.p)[slot] == 0);
        const uint8_t *third = pleat__k_tile(&l, page.p, 2); /* not begun: untouched */
        for (uint32_t i = 0; i < l.k_tile_bytes; i++) CHECK(third[i] == 0xD0);
        check_buf_free(&page);
    }
}

/* Storing over a slot replaces it and leaves its neighbours. */
static void test_overwrite(void) {
    pleat__quant_dsp dsp;
    for (size_t v = 0; v < CHECK_COUNT(variants); v++) {
        if (variants[v] & ~pleat_cpu_flags()) continue;
        pleat__quant_dsp_init(&dsp, variants[v]);
        for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
            pleat__page_layout l;
            CHECK_STATUS(pleat__page_layout_init(&l, formats[f], 32, 32, false), PLEAT_OK);
            check_buf a = check_buf_new(l.used_bytes, 64), b = check_buf_new(l.used_bytes, 64);
            fill_tokens(32, 32);
            dsp.store(&l, a.p, 0, 32, t.k, t.v, 32);
            const uint32_t slot = 16 * (uint32_t)check_below(2) + (uint32_t)check_between(1, 15);
            memcpy(b.p, a.p, l.used_bytes);
            dsp.store(&l, b.p, slot, 1, t.k, t.v, 32);
            CHECK(memcmp(a.p, b.p, l.used_bytes) != 0);
            dsp.store(&l, b.p, slot, 1, t.k + slot * 32, t.v + slot * 32, 32);
            CHECK_EQ_MEM(a.p, b.p, l.used_bytes);
            check_buf_free(&a);
            check_buf_free(&b);
        }
    }
}

/* ---- replace and copy, against a model ------------------------------------------------------------------------- */

/* What a full page should hold: slot i the token t.k + row[i]*d, t.v + row[i]*d, score[i],
 * position[i] and mass[i]. */
typedef struct page_model {
    uint32_t row[64], value_row[64]; /* the key's, the value's */
    uint16_t mass[64];
    float score[64];
    int32_t position[64];
} page_model;

static void model_init(page_model *m) {
    for (uint32_t i = 0; i < 64; i++) {
        m->row[i] = m->value_row[i] = (uint32_t)check_below(t.n);
        m->mass[i] = (uint16_t)check_below(0x4881);
        m->score[i] = check_normal();
        m->position[i] = (int32_t)check_below(1000) - 1;
    }
}

/* A page made as the model says, by the reference's store. */
static check_buf model_page(const page_model *m, const pleat__page_layout *l) {
    pleat__quant_dsp ref;
    pleat__quant_dsp_init(&ref, 0);
    check_buf page = check_buf_new(l->used_bytes, 64);
    for (uint32_t i = 0; i < l->tokens; i++)
        ref.store(l, page.p, i, 1, t.k + m->row[i] * t.d, t.v + m->value_row[i] * t.d, t.d);
    for (uint32_t i = 0; l->mass_off && i < l->tokens; i++) pleat__masses(l, page.p)[i] = m->mass[i];
    for (uint32_t i = 0; l->tracked && i < l->tokens; i++) {
        pleat__scores(l, page.p)[i] = m->score[i];
        pleat__positions(l, page.p)[i] = m->position[i];
    }
    return page;
}

static void check_against_model(check_buf *page, const page_model *m, const pleat__page_layout *l) {
    check_buf want = model_page(m, l);
    CHECK_EQ_MEM(page->p, want.p, l->used_bytes);
    CHECK(check_buf_is_intact(page));
    check_buf_free(&want);
}

/* Any slot of a full page, the first of a tile too; scores, positions and masses stay. */
static void test_replace(void) {
    const uint64_t rounds = check_rounds(20, 3);
    for (size_t v = 0; v < CHECK_COUNT(variants); v++) {
        if (variants[v] & ~pleat_cpu_flags()) continue;
        pleat__quant_dsp dsp;
        pleat__quant_dsp_init(&dsp, variants[v]);
        for (uint64_t i = 0; i < rounds * CHECK_COUNT(formats) && check_failures() < 10; i++) {
            const pleat__page_layout l = random_layout(formats[i % CHECK_COUNT(formats)]);
            check_context("flags %x k%uv%u d %u tokens %u", variants[v], l.format.k_bits, l.format.v_bits, l.head_dim,
                          l.tokens);
            fill_tokens(64, l.head_dim);
            page_model m;
            model_init(&m);
            check_buf page = model_page(&m, &l);
            for (uint32_t n = 0; n < 20; n++) {
                const uint32_t slot = n == 0 ? 0 : (uint32_t)check_below(l.tokens);
                m.row[slot] = m.value_row[slot] = (uint32_t)check_below(t.n);
                dsp.replace(&l, page.p, slot, t.k + m.row[slot] * t.d, t.v + m.row[slot] * t.d);
            }
            check_against_model(&page, &m, &l);
            check_buf_free(&page);
        }
    }
}

/* Between two full pages and within one, within one tile and onto itself; now and then the value alone. */
static void test_copy(void) {
    const uint64_t rounds = check_rounds(40, 5);
    for (uint64_t i = 0; i < rounds * CHECK_COUNT(formats) && check_failures() < 10; i++) {
        const pleat__page_layout l = random_layout(formats[i % CHECK_COUNT(formats)]);
        check_context("k%uv%u d %u tokens %u", l.format.k_bits, l.format.v_bits, l.head_dim, l.tokens);
        fill_tokens(64, l.head_dim);
        page_model m[2];
        check_buf page[2];
        for (int p = 0; p < 2; p++) {
            model_init(&m[p]);
            page[p] = model_page(&m[p], &l);
        }
        for (uint32_t n = 0; n < 40; n++) {
            const uint32_t a = (uint32_t)check_below(2), b = (uint32_t)check_below(2);
            const uint32_t to = (uint32_t)check_below(l.tokens), from = (uint32_t)check_below(l.tokens);
            m[a].value_row[to] = m[b].value_row[from];
            if (check_below(4) == 0) {
                pleat__quant_copy_value(&l, page[a].p, to, page[b].p, from);
                continue;
            }
            m[a].row[to] = m[b].row[from];
            m[a].mass[to] = m[b].mass[from];
            m[a].score[to] = m[b].score[from];
            m[a].position[to] = m[b].position[from];
            pleat__quant_copy(&l, page[a].p, to, page[b].p, from);
        }
        for (int p = 0; p < 2; p++) {
            check_against_model(&page[p], &m[p], &l);
            check_buf_free(&page[p]);
        }
    }
}

/* ---- the variants ---------------------------------------------------------------------------------------------- */

/* Store t in pieces of random length, with rows `stride` apart. */
static void store_in_pieces(const pleat__quant_dsp *dsp, const pleat__page_layout *l, uint8_t *page) {
    static float k[64 * 520], v[64 * 520];
    const size_t stride = t.d + check_below(8);
    for (uint32_t i = 0; i < t.n; i++) {
        memcpy(k + i * stride, t.k + i * t.d, t.d * sizeof(float));
        memcpy(v + i * stride, t.v + i * t.d, t.d * sizeof(float));
    }
    for (uint32_t slot = 0; slot < t.n;) {
        const uint32_t n = (uint32_t)check_between(1, t.n - slot);
        dsp->store(l, page, slot, n, k + slot * stride, v + slot * stride, stride);
        slot += n;
    }
}

static void compare_variant(const pleat__quant_dsp *ref, const pleat__quant_dsp *dsp, const pleat__page_layout *l) {
    check_buf want = check_buf_new(l->used_bytes, 64), got = check_buf_new(l->used_bytes, 64);
    check_buf a = check_buf_new(64 * (size_t)l->head_dim, 64), b = check_buf_new(64 * (size_t)l->head_dim, 64);
    fill_tokens((uint32_t)check_between(1, l->tokens), l->head_dim);
    ref->store(l, want.p, 0, t.n, t.k, t.v, l->head_dim);
    store_in_pieces(dsp, l, got.p);
    CHECK_EQ_MEM(got.p, want.p, l->used_bytes);
    for (uint32_t tile = 0; tile < pleat__div_up_u32(t.n, 16); tile++) {
        ref->load_k(l, want.p, tile, a.p);
        dsp->load_k(l, want.p, tile, b.p);
        CHECK_EQ_MEM(a.p, b.p, a.bytes);
        for (uint32_t i = 0; i < 16 * l->head_dim; i++)
            CHECK(((const float *)a.p)[i] == (float)decode_key(l, want.p, tile * 16 + i % 16, i / 16));
        ref->load_v(l, want.p, tile, a.p);
        dsp->load_v(l, want.p, tile, b.p);
        CHECK_EQ_MEM(a.p, b.p, a.bytes);
        for (uint32_t i = 0; i < 16 * l->head_dim; i++)
            CHECK(((const float *)a.p)[i] ==
                  (float)decode_value(l, want.p, tile * 16 + i / l->head_dim, i % l->head_dim));
    }
    CHECK(check_buf_is_intact(&want) && check_buf_is_intact(&got) && check_buf_is_intact(&a) &&
          check_buf_is_intact(&b));
    check_buf_free(&want);
    check_buf_free(&got);
    check_buf_free(&a);
    check_buf_free(&b);
}

static void test_variants_agree(void) {
    pleat__quant_dsp ref, dsp;
    pleat__quant_dsp_init(&ref, 0);
    const uint64_t rounds = check_rounds(60, 5);
    for (size_t v = 0; v < CHECK_COUNT(variants); v++) {
        if (variants[v] & ~pleat_cpu_flags()) continue;
        pleat__quant_dsp_init(&dsp, variants[v]);
        for (size_t f = 0; f < CHECK_COUNT(formats); f++) {
            for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
                const pleat__page_layout l = random_layout(formats[f]);
                check_context("flags %x k%uv%u d %u tokens %u", variants[v], formats[f].k_bits, formats[f].v_bits,
                              l.head_dim, l.tokens);
                compare_variant(&ref, &dsp, &l);
            }
        }
    }
}

static void test_nan_gives_the_same_bytes(void) {
    pleat__quant_dsp ref, dsp;
    pleat__quant_dsp_init(&ref, 0);
    for (size_t v = 0; v < CHECK_COUNT(variants); v++) {
        if (variants[v] & ~pleat_cpu_flags()) continue;
        pleat__quant_dsp_init(&dsp, variants[v]);
        for (size_t f = 1; f < CHECK_COUNT(formats); f++) {
            pleat__page_layout l;
            CHECK_STATUS(pleat__page_layout_init(&l, formats[f], 64, 16, false), PLEAT_OK);
            check_buf a = check_buf_new(l.used_bytes, 64), b = check_buf_new(l.used_bytes, 64);
            fill_tokens(16, 64);
            for (uint32_t i = 0; i < 16; i++) t.k[i * 64 + check_below(64)] = t.v[i * 64 + check_below(64)] = NAN;
            ref.store(&l, a.p, 0, 16, t.k, t.v, 64);
            dsp.store(&l, b.p, 0, 16, t.k, t.v, 64);
            CHECK_EQ_MEM(a.p, b.p, l.used_bytes);
            for (uint32_t i = 0; i < 64; i++) CHECK(isfinite(decode_key(&l, a.p, 5, i)));
            check_buf_free(&a);
            check_buf_free(&b);
        }
    }
}

static const check_test tests[] = {
    {"reference keeps the error bound", test_bound},
    {"constant rows are exact to f16", test_constant_rows},
    {"a fresh tile is cleared", test_fresh_tile_is_cleared},
    {"overwriting a slot", test_overwrite},
    {"replacing a token", test_replace},
    {"copying a token", test_copy},
    {"variants give the same bytes", test_variants_agree},
    {"NaN gives the same bytes", test_nan_gives_the_same_bytes},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
