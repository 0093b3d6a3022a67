/* SPDX-License-Identifier: MIT
 *
 * codec.c: fused attention over compressed blocks against what it replaces.
 *
 *     bench_codec [-t THREADS] [-r REPEATS] [SPEC...]        SPEC: kvcomp without +pack
 *
 * One layer of 32 query heads, 8 KV heads, d 128, 8192 tokens, from four layers in turn, whose blocks stand in pages of
 * 16 KiB in random order.  Keys have an offset and a scale for each channel.  Ways:
 *
 *     tree decode    the paper's tree (codec_tree.h): codes of all rows, to a buffer; x4: four rows bit by bit in turn
 *     block decode   pleat: codes of all blocks, four streams at a time, to a buffer
 *     tree fused     attention of the group from the tree, a row at a time
 *     block fused    attention from the blocks (attn/blocks.h)
 *     block first    all blocks to f32 tiles (pleat__block_load), then attention over f32 pages
 *     f32 alone      of that, the attention
 *     f16            attention over f16 pages, without compression
 *
 * All run turn and turn about in each repeat; figures are medians.  G codes/s counts keys and values; MB is what a
 * layer holds: bits, units, offsets, without codebooks and trees.  What attends is compared with `block first`:
 * |difference| / |it|, the worst head; f16's is the error of quantisation.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/blocks.h"
#include "bench.h"
#include "codec_tree.h"
#include "core/rng.h"
#include "hw/cpu.h"
#include "quant/bounded.h"

enum { N_LANES = 8, GROUP = 4, D = 128, TOKENS = 8192, N_LAYERS = 4, LANES = N_LAYERS * N_LANES };
enum { MAX_REPEATS = 64, MAX_WORKERS = 64, CODEBOOK_TOKENS = 512 };
#define PAGE_BYTES 16384u
#define LANE_FLOATS ((size_t)TOKENS * D)
#define OUT_FLOATS (GROUP * D)

enum {
    TREE_DECODE,
    TREE4_DECODE,
    BLOCK_DECODE,
    TREE_FUSED,
    TREE4_FUSED,
    BLOCK_FUSED,
    BLOCK_FIRST,
    F32_ALONE,
    F16,
    N_WAYS
};
static const char *const way_names[N_WAYS] = {"tree decode", "tree x4 decode", "block decode",
                                              "tree fused",  "tree x4 fused",  "block fused",
                                              "block first", "f32 alone",      "f16"};

/* What the tree holds of a lane. */
typedef struct tree_lane {
    uint8_t *bytes;
    uint32_t *at[2];       /* [n_blocks] where the bits of keys and values begin */
    uint16_t *row_bits[2]; /* [TOKENS] */
    uint16_t *mins[2], *steps[2];
    uint64_t n_bytes; /* of all that */
} tree_lane;

typedef struct worker_memory {
    float *floats;  /* of the tree */
    uint8_t *codes; /* PLEAT__STREAMS blocks of codes */
    uint8_t *copies;
    uint8_t *f32_pages;
    void *blocks_scratch;
} worker_memory;

typedef struct bench {
    pleat__block_format format;
    uint32_t n_blocks; /* of a lane */
    pleat__attn_dsp attn;
    pleat__codec_dsp codec;
    pleat__quant_dsp quant;

    pleat__block_codebooks codebooks;
    uint8_t *block_pool;
    uint32_t n_block_pages; /* so far */
    pleat__page_id *block_ids[LANES];
    uint32_t *ends[LANES];

    tree trees[2];
    tree_format tree_format;
    tree_lane tree_lanes[LANES];

    pleat__page_layout f16, f32;
    uint8_t *f16_pool;
    pleat__page_id *f16_ids; /* [LANES][lane's pages] */
    pleat__page_id *f32_ids; /* 0, 1, ... */

    pleat__attn_query query;
    pleat__attn_acc acc[N_LANES];
    worker_memory memory[MAX_WORKERS];
    float out[N_WAYS][N_LANES][OUT_FLOATS];
    uint64_t layer_bytes[N_WAYS];
    uint32_t layer; /* under way */
    int way;
} bench;

static void die(const char *what) {
    fprintf(stderr, "bench_codec: %s\n", what);
    exit(1);
}

/* Zeros, aligned to 64, until release_all(). */
static struct {
    void *p[1024];
    uint32_t n;
} taken;

static void *take(size_t n) {
    void *p = n < PAGE_BYTES * 64 ? aligned_alloc(64, (n + 63) / 64 * 64) : reserve(n);
    if (!p || taken.n == sizeof taken.p / sizeof taken.p[0]) die("no memory");
    taken.p[taken.n++] = p;
    return memset(p, 0, n);
}

static void release_all(void) {
    while (taken.n > 0) free(taken.p[--taken.n]);
}

/* ids 0..n-1 in random order */
static pleat__page_id *shuffled(uint32_t n, pleat__rng *rng) {
    pleat__page_id *ids = take(n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t j = pleat__rng_below(rng, i + 1);
        ids[i] = ids[j];
        ids[j].v = i;
    }
    return ids;
}

/* ---- making it ----------------------------------------------------------------------------------------------- */

static void fill_lane(pleat__rng *rng, float *k, float *v) {
    float offset[D], scale[D];
    for (uint32_t i = 0; i < D; i++) {
        offset[i] = 2 * bench_noise(rng);
        scale[i] = expf(0.5f * bench_noise(rng));
    }
    for (size_t i = 0; i < LANE_FLOATS; i++) {
        k[i] = offset[i % D] + scale[i % D] * bench_noise(rng);
        v[i] = bench_noise(rng);
    }
}

/* One block's codes, row by row as the tree wants them, and its units. */
typedef struct rows {
    uint8_t *codes[2]; /* [T][D] */
    uint16_t *mins[2], *steps[2];
} rows;

static void quantise_rows(const bench *b, const float *k, const float *v, const rows *r) {
    const pleat__block_format *f = &b->format;
    bool done[2] = {false, false};
    for (int on_grid = 1; on_grid >= 0; on_grid--) { /* as pleat__block_quantise() does */
        if (!done[0] && (!on_grid || f->k_on_grids))
            done[0] = pleat__bounded_keys(k, D, f->tokens, D, f->by_channel, on_grid, f->k_rel, r->mins[0], r->steps[0],
                                          r->codes[0]);
        if (!done[1] && (!on_grid || f->v_on_grids))
            done[1] = pleat__bounded_values(v, D, f->tokens, D, f->v_group, on_grid, f->v_rel, r->mins[1], r->steps[1],
                                            r->codes[1]);
    }
}

/* Codebooks and trees of the first tokens of a lane. */
static void make_codebooks(bench *b, const float *k, const float *v, pleat__block_codes *codes) {
    static pleat__code_counts counts[2];
    memset(counts, 0, sizeof counts);
    const pleat__block_format *f = &b->format;
    for (uint32_t i = 0; i < CODEBOOK_TOKENS / f->tokens; i++) {
        const size_t at = (size_t)i * f->tokens * D;
        pleat__block_quantise(f, k + at, v + at, D, codes);
        pleat__code_counts_add(&counts[0], codes->k, pleat__block_vectors(f), f->k_levels);
        pleat__code_counts_add(&counts[1], codes->v, pleat__block_vectors(f), f->v_levels);
    }
    pleat__block_codebooks_build(f, &counts[0], &counts[1], &b->codebooks);
    tree_build(&b->trees[0], counts[0].single, f->k_levels);
    tree_build(&b->trees[1], counts[1].single, f->v_levels);
    b->tree_format = (tree_format){&b->trees[0], &b->trees[1], D, f->tokens, f->by_channel, 1};
}

/* A lane's payloads, cut into pages that stand anywhere in the pool. */
static void make_blocks(bench *b, uint32_t lane, const float *k, const float *v, pleat__block_codes *codes,
                        const pleat__page_id *free_ids) {
    const pleat__block_format *f = &b->format;
    const size_t bound = pleat__block_bound(f);
    uint8_t *payloads = take(b->n_blocks * (bound + PLEAT__BLOCK_ALIGN) + PAGE_BYTES);
    uint64_t at = 0;
    b->ends[lane] = take(b->n_blocks * sizeof(uint32_t));
    for (uint32_t i = 0; i < b->n_blocks; i++) {
        const size_t from = (size_t)i * f->tokens * D;
        pleat__block_quantise(f, k + from, v + from, D, codes);
        at += pleat__block_encode(f, &b->codebooks, codes, payloads + at);
        at = (at + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN * PLEAT__BLOCK_ALIGN;
        b->ends[lane][i] = (uint32_t)(at / PLEAT__BLOCK_ALIGN);
    }
    const uint32_t n_pages = (uint32_t)((at + PAGE_BYTES - 1) / PAGE_BYTES);
    b->block_ids[lane] = take(n_pages * sizeof(pleat__page_id));
    for (uint32_t i = 0; i < n_pages; i++) {
        const pleat__page_id id = b->block_ids[lane][i] = free_ids[b->n_block_pages++];
        memcpy(b->block_pool + (size_t)id.v * PAGE_BYTES, payloads + (size_t)i * PAGE_BYTES, PAGE_BYTES);
    }
    if (lane < N_LANES) b->layer_bytes[BLOCK_FUSED] += at + b->n_blocks * sizeof(uint32_t);
}

static void make_tree_lane(bench *b, uint32_t lane, const float *k, const float *v) {
    const pleat__block_format *f = &b->format;
    const uint32_t k_units = pleat__block_k_units(f);
    tree_lane *t = &b->tree_lanes[lane];
    const uint32_t units[2] = {k_units, f->tokens};
    rows r;
    for (int i = 0; i < 2; i++) {
        r.codes[i] = take((size_t)f->tokens * D);
        t->at[i] = take(b->n_blocks * sizeof(uint32_t));
        t->row_bits[i] = take(TOKENS * sizeof(uint16_t));
        t->mins[i] = take((size_t)b->n_blocks * units[i] * sizeof(uint16_t));
        t->steps[i] = take((size_t)b->n_blocks * units[i] * sizeof(uint16_t));
        t->n_bytes += b->n_blocks * (sizeof(uint32_t) + 4 * units[i] + 2 * f->tokens);
    }
    t->bytes = take(2 * LANE_FLOATS * 2 + TREE_PAD);
    size_t n = 0;
    for (uint32_t block = 0; block < b->n_blocks; block++) {
        const size_t from = (size_t)block * f->tokens * D;
        for (int i = 0; i < 2; i++) {
            r.mins[i] = t->mins[i] + (size_t)block * units[i];
            r.steps[i] = t->steps[i] + (size_t)block * units[i];
        }
        quantise_rows(b, k + from, v + from, &r);
        for (int i = 0; i < 2; i++) {
            t->at[i][block] = (uint32_t)n;
            n += tree_encode(&b->trees[i], r.codes[i], f->tokens, D, t->row_bits[i] + block * f->tokens, t->bytes + n);
        }
    }
    t->n_bytes += n;
    if (lane < N_LANES) b->layer_bytes[TREE_FUSED] += t->n_bytes;
}

static uint32_t f16_lane_pages(const bench *b) { return TOKENS / b->f16.tokens; }

static void make_f16(bench *b, uint32_t lane, const float *k, const float *v) {
    for (uint32_t i = 0; i < f16_lane_pages(b); i++) {
        const size_t from = (size_t)i * b->f16.tokens * D;
        uint8_t *page = b->f16_pool + (size_t)b->f16_ids[lane * f16_lane_pages(b) + i].v * PAGE_BYTES;
        b->quant.store(&b->f16, page, 0, b->f16.tokens, k + from, v + from, D);
    }
}

/* Pages that all lanes' blocks take at most. */
static uint32_t block_pages(const bench *b) {
    const size_t bytes = b->n_blocks * (pleat__block_bound(&b->format) + PLEAT__BLOCK_ALIGN);
    return (uint32_t)(bytes / PAGE_BYTES + 1) * LANES;
}

static void make_lanes(bench *b) {
    pleat__rng rng = {7};
    pleat__arena arena = {0};
    pleat__block_codes codes;
    pleat__block_codes_carve(&b->format, &codes, &arena);
    void *codes_memory = take(arena.used_bytes);
    arena = (pleat__arena){.base = codes_memory, .cap_bytes = arena.used_bytes};
    pleat__block_codes_carve(&b->format, &codes, &arena);
    pleat__page_id *free_ids = shuffled(block_pages(b), &rng);
    b->block_pool = take((size_t)block_pages(b) * PAGE_BYTES);
    b->f16_ids = shuffled(LANES * f16_lane_pages(b), &rng);
    b->f16_pool = take((size_t)LANES * f16_lane_pages(b) * PAGE_BYTES);
    float *k = take(LANE_FLOATS * sizeof(float)), *v = take(LANE_FLOATS * sizeof(float));
    for (uint32_t lane = 0; lane < LANES; lane++) {
        fill_lane(&rng, k, v);
        if (lane == 0) make_codebooks(b, k, v, &codes);
        make_blocks(b, lane, k, v, &codes, free_ids);
        make_tree_lane(b, lane, k, v);
        make_f16(b, lane, k, v);
    }
}

static void make_workers(bench *b, uint32_t n) {
    const size_t codes = (size_t)b->format.tokens * D;
    for (uint32_t i = 0; i < n; i++) {
        worker_memory *m = &b->memory[i];
        m->floats = take(tree_scratch_floats(&b->tree_format, GROUP) * sizeof(float));
        m->codes = take(PLEAT__STREAMS * codes + b->format.tokens); /* rows of the tree have a byte more */
        m->copies = take(PLEAT__STREAMS * pleat__block_copy_bytes(&b->format));
        m->f32_pages = take((size_t)b->n_blocks * b->f32.used_bytes);
        m->blocks_scratch = take(pleat__attn_blocks_scratch_bytes(&b->format, GROUP));
    }
}

static void bench_init(bench *b, const pleat_spec *spec, uint32_t n_workers) {
    pleat__rng rng = {3};
    float q[OUT_FLOATS];
    if (pleat__block_format_of(spec, D, &b->format) != PLEAT_OK || b->format.coder != PLEAT__CODER_HUFFMAN)
        die("specs are kvcomp without +pack");
    b->n_blocks = TOKENS / b->format.tokens;
    pleat__attn_dsp_init(&b->attn, pleat_cpu_flags());
    pleat__codec_dsp_init(&b->codec, pleat_cpu_flags());
    pleat__quant_dsp_init(&b->quant, pleat_cpu_flags());
    if (pleat__page_layout_init(&b->f16, (pleat_format){16, 16}, D, PAGE_BYTES / (4 * D), false) != PLEAT_OK ||
        pleat__page_layout_init(&b->f32, (pleat_format){32, 32}, D, b->format.tokens, false) != PLEAT_OK)
        die("no layout");
    b->f32_ids = take(b->n_blocks * sizeof(pleat__page_id));
    for (uint32_t i = 0; i < b->n_blocks; i++) b->f32_ids[i].v = i;
    for (uint32_t i = 0; i < OUT_FLOATS; i++) q[i] = bench_noise(&rng);
    pleat__attn_query_init(&b->query, take(pleat__attn_query_bytes(GROUP, D)), q, GROUP, D, 1 / sqrtf(D));
    for (uint32_t i = 0; i < N_LANES; i++)
        pleat__attn_acc_view(&b->acc[i], take(pleat__attn_acc_bytes(GROUP, D)), GROUP, D);
    make_lanes(b);
    make_workers(b, n_workers);
    b->layer_bytes[F16] = (uint64_t)4 * D * TOKENS * N_LANES;
    b->layer_bytes[F32_ALONE] = 2 * b->layer_bytes[F16];
    b->layer_bytes[TREE_DECODE] = b->layer_bytes[TREE4_DECODE] = b->layer_bytes[TREE4_FUSED] =
        b->layer_bytes[TREE_FUSED];
    b->layer_bytes[BLOCK_DECODE] = b->layer_bytes[BLOCK_FIRST] = b->layer_bytes[BLOCK_FUSED];
}

/* ---- ways: one lane each --------------------------------------------------------------------------------------- */

static pleat__block_run block_run(const bench *b, uint32_t lane) {
    return (pleat__block_run){.format = &b->format,
                              .codebooks = &b->codebooks,
                              .base = b->block_pool,
                              .page_bytes = PAGE_BYTES,
                              .ids = b->block_ids[lane],
                              .step = 1,
                              .ends = b->ends[lane],
                              .n_blocks = b->n_blocks};
}

static tree_rows tree_rows_of(const bench *b, uint32_t lane, int matrix, uint32_t block) {
    const tree_lane *t = &b->tree_lanes[lane];
    const uint32_t units = matrix == 0 ? pleat__block_k_units(&b->format) : b->format.tokens;
    return (tree_rows){.bytes = t->bytes + t->at[matrix][block],
                       .row_bits = t->row_bits[matrix] + block * b->format.tokens,
                       .mins = t->mins[matrix] + (size_t)block * units,
                       .steps = t->steps[matrix] + (size_t)block * units};
}

static void decode_tree(bench *b, uint32_t lane, worker_memory *m) {
    const uint32_t n = b->way == TREE4_DECODE ? TREE_ROWS : 1;
    for (uint32_t block = 0; block < b->n_blocks; block++)
        for (int i = 0; i < 2; i++) {
            const tree_rows r = tree_rows_of(b, lane, i, block);
            uint64_t at = 0;
            for (uint32_t row = 0; row < b->format.tokens; row += n) {
                uint8_t *out[TREE_ROWS];
                for (uint32_t j = 0; j < n; j++) out[j] = m->codes + (size_t)(row + j) * (D + 1);
                at = tree_decode(&b->trees[i], r.bytes, at, r.row_bits + row, n, out);
            }
        }
}

static void block_decode(bench *b, uint32_t lane, worker_memory *m) {
    const pleat__block_run run = block_run(b, lane);
    const size_t codes = (size_t)b->format.tokens * D, copy = pleat__block_copy_bytes(&b->format);
    static _Thread_local pleat__block_reader readers[PLEAT__STREAMS];
    for (uint32_t block = 0; block < b->n_blocks; block += PLEAT__STREAMS) {
        pleat__section *k[PLEAT__STREAMS], *v[PLEAT__STREAMS];
        uint8_t *out[PLEAT__STREAMS];
        const uint32_t n = pleat__min_u32(PLEAT__STREAMS, b->n_blocks - block);
        for (uint32_t i = 0; i < n; i++) {
            if (pleat__block_run_open(&run, block + i, m->copies + i * copy, &readers[i]) != PLEAT_OK) die("no block");
            k[i] = &readers[i].k;
            v[i] = &readers[i].v;
            out[i] = m->codes + i * codes;
        }
        const uint32_t n_vectors = pleat__block_vectors(&b->format);
        pleat__sections_decode(&b->codec, &b->codebooks.k, k, n, n_vectors, out);
        pleat__sections_decode(&b->codec, &b->codebooks.v, v, n, n_vectors, out);
    }
}

static void tree_fused(bench *b, uint32_t lane, worker_memory *m) {
    tree_format format = b->tree_format;
    format.rows_at_once = b->way == TREE4_FUSED ? TREE_ROWS : 1;
    for (uint32_t block = 0; block < b->n_blocks; block++) {
        const tree_rows k = tree_rows_of(b, lane, 0, block), v = tree_rows_of(b, lane, 1, block);
        tree_attend(&format, &k, &v, &b->query, &b->acc[lane % N_LANES], m->floats);
    }
}

static void block_fused(bench *b, uint32_t lane, worker_memory *m) {
    const pleat__block_run run = block_run(b, lane);
    if (!b->attn.blocks(&b->query, &b->codec, &run, 0, b->n_blocks, &b->acc[lane % N_LANES], m->blocks_scratch))
        die("a block is damaged");
}

static void attend_pages(bench *b, const pleat__page_layout *layout, const uint8_t *base, uint64_t page_bytes,
                         const pleat__page_id *ids, uint32_t lane) {
    const pleat__kv_run run = {
        .layout = layout, .base = (uint8_t *)base, .page_bytes = page_bytes, .ids = ids, .step = 1, .n_slots = TOKENS};
    b->attn.decode(&b->query, &run, 0, TOKENS, &b->acc[lane % N_LANES], NULL, 0);
}

/* Over the lane that this worker loaded last. */
static void f32_alone(bench *b, uint32_t lane, worker_memory *m) {
    attend_pages(b, &b->f32, m->f32_pages, b->f32.used_bytes, b->f32_ids, lane);
}

static void block_first(bench *b, uint32_t lane, worker_memory *m) {
    const pleat__block_run run = block_run(b, lane);
    static _Thread_local pleat__block_reader reader;
    for (uint32_t block = 0; block < b->n_blocks; block++) {
        uint8_t *page = m->f32_pages + (size_t)block * b->f32.used_bytes;
        if (pleat__block_run_open(&run, block, m->copies, &reader) != PLEAT_OK ||
            pleat__block_load(&b->codec, &b->format, &b->codebooks, &reader, m->codes,
                              (float *)(void *)pleat__k_tile(&b->f32, page, 0),
                              (float *)(void *)pleat__v_tile(&b->f32, page, 0)) != PLEAT_OK)
            die("no block");
    }
    f32_alone(b, lane, m);
}

static void f16(bench *b, uint32_t lane, worker_memory *m) {
    (void)m;
    attend_pages(b, &b->f16, b->f16_pool, PAGE_BYTES, b->f16_ids + lane * f16_lane_pages(b), lane);
}

static void (*const ways[N_WAYS])(bench *, uint32_t, worker_memory *) = {
    decode_tree, decode_tree, block_decode, tree_fused, tree_fused, block_fused, block_first, f32_alone, f16};

static void run_lane(void *ctx, uint32_t unit, uint32_t worker) {
    bench *b = ctx;
    pleat__attn_acc *acc = &b->acc[unit];
    for (uint32_t g = 0; g < GROUP; g++) {
        acc->m[g] = -INFINITY;
        acc->l[g] = 0;
    }
    memset(acc->o, 0, OUT_FLOATS * sizeof(float));
    ways[b->way](b, b->layer * N_LANES + unit, &b->memory[worker]);
    pleat__attn_finish(acc, GROUP, D, b->out[b->way][unit], NULL);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static double difference(const bench *b, int way) {
    double worst = 0;
    for (uint32_t head = 0; head < N_LANES * GROUP; head++) {
        const float *x = b->out[way][head / GROUP] + head % GROUP * D;
        const float *ref = b->out[BLOCK_FIRST][head / GROUP] + head % GROUP * D;
        double diff = 0, norm = 0;
        for (uint32_t i = 0; i < D; i++) {
            diff += ((double)x[i] - ref[i]) * ((double)x[i] - ref[i]);
            norm += (double)ref[i] * ref[i];
        }
        if (!isnan(worst) && !(sqrt(diff / norm) <= worst)) worst = sqrt(diff / norm);
    }
    return worst;
}

static void print_table(bench *b, const char *spec, double seconds[N_WAYS][MAX_REPEATS], uint32_t repeats,
                        uint32_t n_threads) {
    const double codes = 2.0 * LANE_FLOATS * N_LANES;
    double ms[N_WAYS];
    for (int w = 0; w < N_WAYS; w++) ms[w] = measure_median(seconds[w], repeats) * 1e3;
    printf("\n%s: %d query heads, %d KV heads, d %d, %d tokens, %u threads\n", spec, GROUP * N_LANES, N_LANES, D,
           TOKENS, n_threads);
    printf("%-14s %9s %9s %10s %7s %7s %8s %11s\n", "way", "ms/layer", "min", "G codes/s", "x tree", "x f16", "MB",
           "difference");
    for (int w = 0; w < N_WAYS; w++) {
        const int attends = w > BLOCK_DECODE;
        const double megabytes = (double)b->layer_bytes[w] * 1e-6;
        char to_f16[16] = "-", diff[16] = "-";
        if (attends) snprintf(to_f16, sizeof to_f16, "%.2f", ms[F16] / ms[w]);
        if (attends && w != F32_ALONE) snprintf(diff, sizeof diff, "%.1e", difference(b, w));
        printf("%-14s %9.3f %9.3f %10.2f %7.2f %7s %8.2f %11s\n", way_names[w], ms[w], seconds[w][0] * 1e3,
               codes / ms[w] * 1e-6, ms[attends ? TREE_FUSED : TREE_DECODE] / ms[w], to_f16, megabytes, diff);
    }
}

static void bench_spec(const char *text, uint32_t repeats, pleat_workers *workers) {
    static bench b;
    static double seconds[N_WAYS][MAX_REPEATS];
    pleat_spec spec;
    pleat_error err;
    memset(&b, 0, sizeof b);
    if (pleat_spec_parse(text, &spec, &err) != PLEAT_OK) die(err.text);
    bench_init(&b, &spec, pleat_workers_count(workers));
    for (int rep = -1; rep < (int)repeats; rep++)
        for (b.way = 0; b.way < N_WAYS; b.way++) {
            const double start = measure_now_s();
            for (b.layer = 0; b.layer < N_LAYERS; b.layer++) pleat_workers_run(workers, N_LANES, run_lane, &b);
            if (rep >= 0) seconds[b.way][rep] = (measure_now_s() - start) / N_LAYERS;
        }
    print_table(&b, text, seconds, repeats, pleat_workers_count(workers));
    release_all();
}

int main(int argc, char **argv) {
    static char *default_specs[] = {"kvcomp:k=0.25,v=0.15", "kvcomp:k=0.05,v=0.15,kunit=block"};
    uint32_t n_threads = 1, repeats = 7;
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        const int n = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-t") && n > 0 && n <= MAX_WORKERS)
            n_threads = (uint32_t)n;
        else if (!strcmp(argv[i], "-r") && n > 0 && n <= MAX_REPEATS)
            repeats = (uint32_t)n;
        else
            break;
    }
    if (i < argc && argv[i][0] == '-') {
        fprintf(stderr, "usage: bench_codec [-t THREADS] [-r REPEATS] [SPEC...]\n");
        return 2;
    }
    if (PLEAT_X86 && !(pleat_cpu_flags() & PLEAT_CPU_AVX2)) die("the tree was compiled for AVX2");
    pleat_workers *workers;
    if (pleat_workers_create(n_threads, NULL, &workers) != PLEAT_OK) die("no threads");
    char **specs = i < argc ? argv + i : default_specs;
    const int n_specs = i < argc ? argc - i : 2;
    for (int s = 0; s < n_specs; s++) bench_spec(specs[s], repeats, workers);
    pleat_workers_destroy(&workers);
    return 0;
}
