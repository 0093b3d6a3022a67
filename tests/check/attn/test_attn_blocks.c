/* SPDX-License-Identifier: MIT
 *
 * test_attn_blocks.c: decode attention over compressed blocks (attn/blocks.h) against float64.
 *
 * A lane's random keys and values are compressed to payloads that stand one behind the other in the pages of a guarded
 * pool, across page ends, as in a cache.  They are decoded by pleat__block_load(), and each variant's result is
 * compared with what float64 gives on that.  Norms of errors are relative to the norm of the result, or, where inputs
 * are extreme, to the sum of weight * norm of value.
 */
#include <string.h>

#include "blocks_rig.h"
#include "hw/cpu.h"
#include "quant/variants.h"

/* blocks.h's bounds: of the result, and of logits relative to what they are sums of. */
typedef struct bound {
    double result, logits;
} bound;

typedef struct variant {
    const char *name;
    uint32_t flags;
    bound within;
} variant;

#define AS_F32 \
    { 1e-6, 0x1p-24 }
#define AS_16_BITS \
    { 1e-4, 0x1p-15 } /* numbers of 16 bits, or two limbs of 8 */

#define VNNI_FLAGS (PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI)
static const variant variants[] = {
    {"ref", 0, AS_F32},
    {"avx2", PLEAT_CPU_AVX2, AS_16_BITS},
    {"avxvnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI, AS_16_BITS},
    {"avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512, AS_16_BITS},
    {"vnni", VNNI_FLAGS, AS_16_BITS},
    {"vnni vbmi2", VNNI_FLAGS | PLEAT_CPU_VBMI2, AS_16_BITS},
    {"amx", VNNI_FLAGS | PLEAT_CPU_AMX_INT8, AS_16_BITS},
    {"amx vbmi2", VNNI_FLAGS | PLEAT_CPU_AMX_INT8 | PLEAT_CPU_VBMI2, AS_16_BITS},
    {"neon", PLEAT_CPU_NEON, AS_16_BITS},
};

/* For each variant that this machine has. */
#define FOR_EACH_VARIANT(v)                                                      \
    for (const variant *v = variants; v < variants + CHECK_COUNT(variants); v++) \
        if (!(v->flags & ~pleat_cpu_flags()))

/* ---- running a variant ----------------------------------------------------------------------------------------- */

typedef struct result {
    float out[MAX_G * MAX_D];
    float lse2[MAX_G];
} result;

static result got;

typedef struct engine {
    pleat__attn_dsp dsp;
    pleat__codec_dsp codec;
    check_buf query_memory, acc_memory[2], scratch;
    pleat__attn_query query;
    pleat__attn_acc acc[2];
    uint32_t n_group, d;
} engine;

static void engine_init(engine *e, const variant *v, const lane *a, uint32_t n_group) {
    e->n_group = n_group;
    e->d = a->format.head_dim;
    pleat__attn_dsp_init(&e->dsp, v->flags);
    pleat__codec_dsp_init(&e->codec, v->flags);
    e->query_memory = check_buf_new(pleat__attn_query_bytes(n_group, e->d), 64);
    pleat__attn_query_init_floats(&e->query, e->query_memory.p, query_in, n_group, e->d, a->scale);
    e->query.cap2 = a->cap2;
    e->scratch = check_buf_new(pleat__attn_blocks_scratch_bytes(&a->format, n_group), 64);
    CHECK(e->scratch.bytes % 64 == 0);
    for (int i = 0; i < 2; i++) {
        e->acc_memory[i] = check_buf_new(pleat__attn_acc_bytes(n_group, e->d), 64);
        pleat__attn_acc_init(&e->acc[i], e->acc_memory[i].p, n_group, e->d);
    }
}

static void engine_release(engine *e) {
    check_buf *all[] = {&e->query_memory, &e->scratch, &e->acc_memory[0], &e->acc_memory[1]};
    for (size_t i = 0; i < CHECK_COUNT(all); i++) {
        CHECK(check_buf_is_intact(all[i]));
        check_buf_free(all[i]);
    }
}

static bool engine_add(engine *e, const lane *a, int acc, uint32_t from, uint32_t to) {
    return e->dsp.blocks(&e->query, &e->codec, &a->run, from, to, &e->acc[acc], e->scratch.p);
}

static void engine_finish(engine *e, result *r) { pleat__attn_finish(&e->acc[0], e->n_group, e->d, r->out, r->lse2); }

/* Blocks [from, to) into `got`. */
static bool run_variant(const variant *v, const lane *a, uint32_t n_group, uint32_t from, uint32_t to) {
    engine e;
    engine_init(&e, v, a, n_group);
    const bool sound = engine_add(&e, a, 0, from, to);
    engine_finish(&e, &got);
    engine_release(&e);
    return sound;
}

/* What the variants read as query. */
static const float *query_read(const lane *a, uint32_t n_group) {
    static float memory[8 * MAX_G * MAX_D] __attribute__((aligned(64)));
    pleat__attn_query query;
    pleat__attn_query_init(&query, memory, query_in, n_group, a->format.head_dim, a->scale);
    return query.f32;
}

static void lane_exact(const lane *a, uint32_t n_group, uint32_t block_from, uint32_t block_to) {
    const uint32_t tokens = a->format.tokens;
    compute_exact(query_read(a, n_group), a->format.head_dim, n_group, block_from * tokens, block_to * tokens, 0, 0);
}

static double error_of(uint32_t g, uint32_t d) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) {
        const double e = (double)got.out[g * d + i] - want.out[g][i];
        sum += e * e;
    }
    return sqrt(sum);
}

static bound within; /* of the variant that was described last */

static void describe(const variant *v, const lane *a, uint32_t n_group, const char *what) {
    const pleat__block_format *f = &a->format;
    check_context("%s d %u T %u %s k %u v %u levels v_group %u coder %d G %u blocks %u page %u %s", v->name,
                  f->head_dim, f->tokens, f->by_channel ? "channel" : "block", f->k_levels, f->v_levels, f->v_group,
                  f->coder, n_group, a->run.n_blocks, (unsigned)a->run.page_bytes, what);
    within = v->within;
}

/* blocks.h's bound, and what the rounding of f32 logits does to weights. */
static void check_result(uint32_t n_group, uint32_t d) {
    for (uint32_t g = 0; g < n_group; g++) {
        const double capping = 6e-7 * fmin(want.size[g], (double)the_lane.cap2);
        CHECK(error_of(g, d) <= (within.result + within.logits * want.size[g] + capping) * want.norm[g]);
        CHECK_NEAR((double)got.lse2[g], want.lse2[g],
                   2 * within.result + 32 * within.logits * want.size[g] +
                       2e-6 * (1 + want.size[g]) * (the_lane.cap2 > 0));
    }
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void check_plausible(pleat__block_format format, uint32_t n_group, uint32_t n_blocks) {
    const float sizes[] = {0.1f, 1, 2, 4}, caps[] = {0, 0, 3, 50 * 1.442695f};
    fill_plausible(&format, n_blocks * format.tokens, n_group, sizes[check_below(4)]);
    lane *a = lane_new(format, n_blocks);
    a->cap2 = caps[check_below(4)];
    const uint32_t from = PLEAT__STREAMS * (uint32_t)check_below(pleat__div_up_u32(n_blocks, PLEAT__STREAMS));
    const uint32_t to = (uint32_t)check_between(from + 1, n_blocks);
    lane_exact(a, n_group, from, to);
    FOR_EACH_VARIANT(v) {
        describe(v, a, n_group, "");
        CHECK(run_variant(v, a, n_group, from, to));
        check_result(n_group, format.head_dim);
    }
    lane_release(a);
}

static void test_plausible(void) {
    const uint64_t rounds = check_rounds(150, 15);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        check_plausible(format, (uint32_t)check_between(1, 9), random_blocks(&format));
    }
}

/* Every number of tokens with every coder, and one to five blocks: groups of each size. */
static void test_every_shape(void) {
    for (uint32_t tokens = 16; tokens <= 256; tokens *= 2) {
        for (uint32_t coder = 0; coder < 3; coder++) {
            for (uint32_t n_blocks = 1; n_blocks <= 5 && check_failures() < 10; n_blocks++) {
                const uint32_t d = 16 * (uint32_t)check_between(1, 9);
                check_plausible(
                    format_of(d, tokens, n_blocks % 2, d, random_rel(), random_rel(), (pleat__block_coder)coder),
                    (uint32_t)check_between(1, 5), n_blocks);
            }
        }
    }
}

/* The two formats of the issue: kvcomp's default and KIVI's, all heads of a group that models have. */
static void test_usual_formats(void) {
    for (uint32_t n_group = 1; n_group <= 8 && check_failures() < 10; n_group++) {
        for (uint32_t d = 64; d <= 128; d *= 2) {
            check_plausible(format_of(d, 64, true, d, 0.25f, 0.15f, PLEAT__CODER_HUFFMAN), n_group, 7);
            check_plausible(format_of(d, 64, false, d, 0.05f, 0.15f, PLEAT__CODER_HUFFMAN), n_group, 6);
            check_plausible(format_of(d, 32, true, 32, 1 / 3.0f, 1 / 3.0f, PLEAT__CODER_RAW), n_group, 9);
            check_plausible(format_of(d, 32, true, 32, 1 / 15.0f, 1 / 15.0f, PLEAT__CODER_RAW), n_group, 5);
        }
    }
}

static void test_many_heads(void) {
    check_plausible(format_of(512, 32, true, 512, 0.25f, 0.15f, PLEAT__CODER_HUFFMAN), 64, 5);
    check_plausible(format_of(512, 16, false, 16, 0.05f, 0.1f, PLEAT__CODER_HUFFMAN), 63, 3);
    check_plausible(format_of(16, 256, true, 16, 0.25f, 0.15f, PLEAT__CODER_PACK), 64, 5);
}

static void check_largest_sums(pleat__block_format format) {
    const uint32_t d = format.head_dim, n_group = 5;
    for (uint32_t t = 0; t < 4 * format.tokens; t++)
        for (uint32_t i = 0; i < d; i++) keys[t * d + i] = values[t * d + i] = i == t % d ? -1 : 1;
    for (uint32_t i = 0; i < n_group * d; i++) query_in[i] = 1;
    lane *a = lane_new(format, 4);
    lane_exact(a, n_group, 0, 4);
    FOR_EACH_VARIANT(v) {
        describe(v, a, n_group, "largest sums");
        CHECK(run_variant(v, a, n_group, 0, 4));
        check_result(n_group, d);
    }
    lane_release(a);
}

/* Codes of all levels, and of the four that planes are multiplied of, at their top, of every token: integer sums may not
 * wrap. */
static void test_largest_sums(void) {
    for (uint32_t coder = 0; coder < 3; coder++) {
        check_largest_sums(format_of(512, 256, false, 512, 1 / 255.0f, 1 / 255.0f, (pleat__block_coder)coder));
        check_largest_sums(format_of(512, 256, false, 512, 1 / 3.0f, 1 / 3.0f, (pleat__block_coder)coder));
    }
}

static void fill_extreme(float *x, size_t n, uint32_t d) {
    for (size_t i = 0; i < n; i += d) {
        const unsigned kind = (unsigned)check_below(CHECK_N_FILLS + 3);
        if (kind < CHECK_N_FILLS) check_fill(x + i, d, kind, ldexpf(1, (int)check_below(8) - 4));
        for (uint32_t j = 0; kind >= CHECK_N_FILLS && j < d; j++)
            x[i + j] = kind == CHECK_N_FILLS       ? (j % 2 ? 65504.0f : -65504.0f)
                       : kind == CHECK_N_FILLS + 1 ? 3e-7f * check_normal()
                                                   : ldexpf(check_normal(), (int)check_below(40) - 24);
    }
}

/* The error of extreme lanes: relative to the spread, and with what logits that are wrong by a rounding of the largest
 * do to weights. */
static void check_extreme_result(uint32_t n_group, uint32_t d) {
    for (uint32_t g = 0; g < n_group; g++) {
        const double wrong = 5 * within.logits * (want.size[g] + want.reach[g]) + 1e-30;
        CHECK(error_of(g, d) <=
              (within.result + expm1(fmin(2 * wrong * 0.6931471805599453, 100))) * want.spread[g] + 1e-30);
        CHECK_NEAR((double)got.lse2[g], want.lse2[g], 2 * within.result + wrong + 2e-7 * fabs(want.lse2[g]));
    }
}

/* Any mix of huge, tiny and constant vectors, queries of zeros and of all sizes. */
static void test_extreme(void) {
    const uint64_t rounds = check_rounds(150, 15);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t d = format.head_dim, n_group = (uint32_t)check_between(1, 9), n_blocks = random_blocks(&format);
        fill_extreme(keys, (size_t)n_blocks * format.tokens * d, d);
        fill_extreme(values, (size_t)n_blocks * format.tokens * d, d);
        for (uint32_t g = 0; g < n_group; g++)
            check_fill(query_in + g * d, d, (unsigned)check_below(CHECK_N_FILLS),
                       check_below(4)   ? ldexpf(1e-5f, (int)check_below(12))
                       : check_below(2) ? 0
                                        : 1e-35f);
        lane *a = lane_new(format, n_blocks);
        lane_exact(a, n_group, 0, n_blocks);
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "extreme");
            CHECK(run_variant(v, a, n_group, 0, n_blocks));
            check_extreme_result(n_group, d);
        }
        lane_release(a);
    }
}

/* Logits all equal: the mean of the values; one token with all of the weight: its value; queries so large that logits
 * are near what f32 holds: finite. */
static void test_extreme_weights(void) {
    for (uint32_t kind = 0; kind < 3; kind++) {
        for (uint32_t i = 0; i < 4; i++) {
            const pleat__block_format format =
                format_of(64, 64, i % 2, i < 2 ? 64 : 16, 0.25f, 0.15f, PLEAT__CODER_HUFFMAN);
            const uint32_t n_blocks = 6, n_tokens = 6 * 64, chosen = (uint32_t)check_below(n_tokens);
            check_fill_normal(values, n_tokens * 64);
            for (uint32_t t = 0; t < n_tokens; t++) {
                for (uint32_t j = 0; j < 64; j++) keys[t * 64 + j] = kind == 1 && t == chosen ? 7 : 1;
            }
            for (uint32_t j = 0; j < 3 * 64; j++) query_in[j] = kind == 2 ? 1e30f : 20;
            lane *a = lane_new(format, n_blocks);
            lane_exact(a, 3, 0, n_blocks);
            FOR_EACH_VARIANT(v) {
                describe(v, a, 3, kind == 0 ? "all equal" : kind == 1 ? "one token" : "huge");
                CHECK(run_variant(v, a, 3, 0, n_blocks));
                for (uint32_t g = 0; g < 3; g++) {
                    CHECK(error_of(g, 64) <= 2 * within.result * want.spread[g]);
                    CHECK_NEAR((double)got.lse2[g], want.lse2[g], within.result * fabs(want.lse2[g]));
                }
            }
            lane_release(a);
        }
    }
}

/* The same range in one call or in groups gives the same bits, and so does a second time; accumulators of ranges merged
 * give the whole.  AVX2 and AVX-VNNI give each other's bits, and so do VNNI and AMX, whatever decoded the codes. */
static void test_same_bits(void) {
    const uint64_t rounds = check_rounds(40, 5);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t d = format.head_dim, n_group = (uint32_t)check_between(1, 9), n_blocks = random_blocks(&format);
        fill_plausible(&format, n_blocks * format.tokens, n_group, 2);
        lane *a = lane_new(format, n_blocks);
        lane_exact(a, n_group, 0, n_blocks);
        static result first, integer[2]; /* of 16-bit numbers, of limbs */
        bool has_integer[2] = {false, false};
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "same bits");
            run_variant(v, a, n_group, 0, n_blocks);
            memcpy(&first, &got, sizeof got);
            engine e;
            engine_init(&e, v, a, n_group);
            for (uint32_t from = 0; from < n_blocks; from += PLEAT__STREAMS) {
                const uint32_t to = pleat__min_u32(from + PLEAT__STREAMS, n_blocks);
                CHECK(engine_add(&e, a, 0, from, to));
                CHECK(engine_add(&e, a, 0, to, to));
            }
            engine_finish(&e, &got);
            CHECK_EQ_MEM(got.out, first.out, n_group * d * sizeof(float));
            CHECK_EQ_MEM(got.lse2, first.lse2, n_group * sizeof(float));
            pleat__attn_acc_init(&e.acc[0], e.acc_memory[0].p, n_group, d);
            engine_add(&e, a, 0, 0, pleat__min_u32(n_blocks, PLEAT__STREAMS));
            if (n_blocks > PLEAT__STREAMS) engine_add(&e, a, 1, PLEAT__STREAMS, n_blocks);
            pleat__attn_merge(&e.acc[0], &e.acc[1], n_group, d);
            engine_finish(&e, &got);
            check_result(n_group, d);
            engine_release(&e);
            if (!(v->flags & PLEAT_CPU_AVX2)) continue;
            const bool limbs = (v->flags & PLEAT_CPU_VNNI) != 0;
            if (has_integer[limbs]) CHECK_EQ_MEM(first.out, integer[limbs].out, n_group * d * sizeof(float));
            if (has_integer[limbs]) CHECK_EQ_MEM(first.lse2, integer[limbs].lse2, n_group * sizeof(float));
            memcpy(&integer[limbs], &first, sizeof first);
            has_integer[limbs] = true;
        }
        lane_release(a);
    }
}

/* Pages of f32 or f16 that hold tokens [from, to) of keys and values. */
typedef struct pages {
    pleat__page_layout layout;
    pleat__kv_run run;
    pleat__page_id ids[MAX_TOKENS / 16 + 1];
    check_buf pool;
} pages;

static void pages_init(pages *p, uint8_t bits, uint32_t d, uint32_t from, uint32_t to) {
    memset(p, 0, sizeof *p);
    const uint32_t n_pages = pleat__div_up_u32(to - from, 16);
    CHECK_STATUS(pleat__page_layout_init(&p->layout, (pleat_format){bits, bits}, d, 16, false), PLEAT_OK);
    p->run.page_bytes = (p->layout.used_bytes + 63) / 64 * 64;
    p->pool = check_buf_new(n_pages * p->run.page_bytes, 64);
    p->run.layout = &p->layout;
    p->run.base = p->pool.p;
    p->run.step = 1;
    p->run.ids = p->ids;
    p->run.n_slots = to - from;
    for (uint32_t i = 0; i < n_pages; i++) {
        p->ids[i].v = i;
        const uint32_t at = from + 16 * i;
        pleat__quant_store_ref(&p->layout, (uint8_t *)p->pool.p + i * p->run.page_bytes, 0, pleat__min_u32(16, to - at),
                               keys + (size_t)at * d, values + (size_t)at * d, d);
    }
}

/* The newest tokens in pages, the others in blocks, into one accumulator. */
static void test_with_pages(void) {
    const uint64_t rounds = check_rounds(40, 5);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t d = format.head_dim, n_group = (uint32_t)check_between(1, 9), n_blocks = random_blocks(&format);
        const uint32_t n_cold = n_blocks * format.tokens, n_tokens = (uint32_t)check_between(n_cold + 1, n_cold + 16);
        if (n_tokens > MAX_TOKENS) continue;
        fill_plausible(&format, n_tokens, n_group, 2);
        for (uint32_t i = n_cold * d; i < n_tokens * d; i++) { /* f16's values */
            keys[i] = pleat__f16_to_f32(pleat__f32_to_f16(keys[i]));
            values[i] = pleat__f16_to_f32(pleat__f32_to_f16(values[i]));
        }
        lane *a = lane_new(format, n_blocks);
        static pages p;
        pages_init(&p, 16, d, n_cold, n_tokens);
        compute_exact(query_read(a, n_group), d, n_group, 0, n_tokens, 0, 0);
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "with pages");
            engine e;
            engine_init(&e, v, a, n_group);
            const bool pages_first = check_below(2) != 0;
            if (pages_first) e.dsp.decode(&e.query, &p.run, 0, n_tokens - n_cold, &e.acc[0], NULL, 0);
            CHECK(engine_add(&e, a, 0, 0, n_blocks));
            if (!pages_first) e.dsp.decode(&e.query, &p.run, 0, n_tokens - n_cold, &e.acc[0], NULL, 0);
            engine_finish(&e, &got);
            for (uint32_t g = 0; g < n_group; g++) /* attn.h's bound for f16 */
                CHECK(error_of(g, d) <= (2 * within.result + within.logits * want.size[g]) * want.norm[g]);
            engine_release(&e);
        }
        check_buf_free(&p.pool);
        lane_release(a);
    }
}

/* Fused is what decoding to f32 pages and multiplying gives. */
static void test_fused_is_decoded(void) {
    const uint64_t rounds = check_rounds(30, 4);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t d = format.head_dim, n_group = (uint32_t)check_between(1, 5), n_blocks = random_blocks(&format);
        fill_plausible(&format, n_blocks * format.tokens, n_group, 1);
        lane *a = lane_new(format, n_blocks);
        lane_exact(a, n_group, 0, n_blocks);
        static pages p;
        pages_init(&p, 32, d, 0, a->n_tokens);
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "fused");
            engine e;
            static result decoded;
            engine_init(&e, v, a, n_group);
            e.dsp.decode(&e.query, &p.run, 0, a->n_tokens, &e.acc[0], NULL, 0);
            engine_finish(&e, &decoded);
            engine_release(&e);
            run_variant(v, a, n_group, 0, n_blocks);
            for (uint32_t g = 0; g < n_group; g++) {
                double sum = 0;
                for (uint32_t i = 0; i < d; i++) {
                    const double x = (double)got.out[g * d + i] - (double)decoded.out[g * d + i];
                    sum += x * x;
                }
                CHECK(sqrt(sum) <= (2 * within.result + 2 * within.logits * want.size[g]) * want.norm[g]);
            }
        }
        check_buf_free(&p.pool);
        lane_release(a);
    }
}

static uint8_t *byte_of(const lane *a, uint64_t at) {
    const pleat__block_run *r = &a->run;
    return (uint8_t *)a->pool.p + r->ids[(int64_t)(at / r->page_bytes) * r->step].v * r->page_bytes +
           at % r->page_bytes;
}

/* A block whose header is damaged does not count; the others do. */
static void test_damaged_header(void) {
    const uint64_t rounds = check_rounds(40, 5);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t d = format.head_dim, n_group = (uint32_t)check_between(1, 5), n_blocks = random_blocks(&format);
        fill_plausible(&format, n_blocks * format.tokens, n_group, 1);
        lane *a = lane_new(format, n_blocks);
        const uint32_t bad = (uint32_t)check_below(n_blocks);
        for (uint32_t i = 4; i < 12; i++)
            *byte_of(a, (bad ? (uint64_t)a->ends[bad - 1] * PLEAT__BLOCK_ALIGN : 0) + i) = 0xFF;
        compute_exact(query_read(a, n_group), d, n_group, 0, a->n_tokens, bad * format.tokens,
                      (bad + 1) * format.tokens);
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "damaged header");
            CHECK(!run_variant(v, a, n_group, 0, n_blocks));
            if (n_blocks > 1)
                check_result(n_group, d);
            else
                CHECK(got.lse2[0] == -INFINITY && got.out[0] == 0.0f);
        }
        lane_release(a);
    }
}

/* Whatever stands in the pages: nothing outside is read or written (guards, and the sanitizer job), and codes whose end
 * is missing are noticed. */
static void test_damaged_bytes(void) {
    const uint64_t rounds = check_rounds(60, 10);
    for (uint64_t round = 0; round < rounds && check_failures() < 10; round++) {
        const pleat__block_format format = random_format();
        const uint32_t n_group = (uint32_t)check_between(1, 5), n_blocks = random_blocks(&format);
        fill_plausible(&format, n_blocks * format.tokens, n_group, 1);
        lane *a = lane_new(format, n_blocks);
        const uint64_t n_bytes = (uint64_t)a->ends[n_blocks - 1] * PLEAT__BLOCK_ALIGN;
        const uint64_t spared = check_below(2) ? 12 : 0; /* headers of all blocks, or the damage is found at once */
        uint32_t block = 0;
        for (uint64_t at = 0, begin = 0; at < n_bytes; at++) {
            if (at >= (uint64_t)a->ends[block] * PLEAT__BLOCK_ALIGN)
                begin = (uint64_t)a->ends[block++] * PLEAT__BLOCK_ALIGN;
            if (at - begin >= spared && check_below(round % 8 + 1) == 0) *byte_of(a, at) = (uint8_t)check_u64();
        }
        FOR_EACH_VARIANT(v) {
            describe(v, a, n_group, "damaged");
            run_variant(v, a, n_group, 0, n_blocks);
        }
        lane_release(a);
    }
}

static void test_choice(void) {
#if PLEAT_X86
    static const struct {
        uint32_t flags;
        pleat__attn_blocks_fn blocks;
    } choices[] = {{0, pleat__attn_blocks_ref},
                   {PLEAT_CPU_AVX2, pleat__attn_blocks_avx2},
                   {PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI, pleat__attn_blocks_avxvnni},
                   {PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512, pleat__attn_blocks_avx2},
                   {VNNI_FLAGS, pleat__attn_blocks_vnni},
                   {VNNI_FLAGS | PLEAT_CPU_VBMI2, pleat__attn_blocks_vbmi2},
                   {VNNI_FLAGS | PLEAT_CPU_AMX_INT8, pleat__attn_blocks_amx}};
    for (size_t i = 0; i < CHECK_COUNT(choices); i++) {
        pleat__attn_dsp dsp;
        pleat__attn_dsp_init(&dsp, choices[i].flags);
        check_context("flags 0x%x", choices[i].flags);
        CHECK(dsp.blocks == choices[i].blocks);
    }
#endif
}

static const check_test tests[] = {
    {"choice of variants", test_choice},
    {"plausible lanes", test_plausible},
    {"every shape", test_every_shape},
    {"usual formats", test_usual_formats},
    {"many heads", test_many_heads},
    {"largest sums", test_largest_sums},
    {"extreme lanes", test_extreme},
    {"extreme weights", test_extreme_weights},
    {"same bits", test_same_bits},
    {"with pages", test_with_pages},
    {"fused is decoded", test_fused_is_decoded},
    {"damaged header", test_damaged_header},
    {"damaged bytes", test_damaged_bytes},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
