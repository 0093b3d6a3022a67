/* SPDX-License-Identifier: MIT
 *
 * blocks_rig.h: lanes of compressed blocks for tests of attention over them: random formats, keys and values, payloads
 * in the pages of a guarded pool, and the exact attention of what they decode to.
 */
#ifndef CHECK_BLOCKS_RIG_H
#define CHECK_BLOCKS_RIG_H

#include <stdlib.h>
#include <string.h>

#include "attn/blocks.h"
#include "check.h"
#include "quant/bounded.h"

#define MAX_TOKENS 1296u
#define MAX_D 512u
#define MAX_G 64u
#define MAX_BLOCKS 16u
#define MAX_PAGES 16384u

/* ---- a lane of blocks ------------------------------------------------------------------------------------------ */

typedef struct lane {
    pleat__block_format format;
    pleat__block_codebooks codebooks;
    pleat__block_run run;
    pleat__page_id ids[MAX_PAGES];
    uint32_t ends[MAX_BLOCKS];
    check_buf pool;
    uint32_t n_tokens;
    float scale;
    float cap2; /* of logits: attn/cap.h; 0: none */
} lane;

static lane the_lane;
static float keys[MAX_TOKENS * MAX_D], values[MAX_TOKENS * MAX_D], query_in[MAX_G * MAX_D];

static pleat__block_format format_of(uint32_t d, uint32_t tokens, bool by_channel, uint32_t v_group, float k_rel,
                                     float v_rel, pleat__block_coder coder) {
    pleat__block_format f = {
        .head_dim = d, .tokens = tokens, .by_channel = by_channel, .v_group = v_group, .coder = coder};
    pleat__block_set_steps(&f, k_rel, v_rel, check_below(4) > 0);
    return f;
}

static float random_rel(void) {
    static const float rels[] = {1,         1 / 3.0f, 0.25f,     0.15f, 1 / 7.0f,  0.1f,
                                 1 / 15.0f, 0.05f,    1 / 31.0f, 0.01f, 1 / 255.0f};
    return rels[check_below(CHECK_COUNT(rels))];
}

static pleat__block_format random_format(void) {
    static const uint32_t dims[] = {16, 32, 64, 80, 96, 112, 128, 256, 512};
    const uint32_t d = dims[check_below(CHECK_COUNT(dims))], tokens = 16u << check_below(5);
    uint32_t v_group = d;
    while (v_group % 32 == 0 && check_below(3) == 0) v_group /= 2;
    return format_of(d, tokens, check_below(2) != 0, v_group, random_rel(), random_rel(),
                     (pleat__block_coder)check_below(3));
}

/* Payloads of all blocks, by keys and values, one behind the other; returns their bytes. */
static size_t encode_blocks(lane *a, uint32_t n_blocks, uint8_t *out) {
    const pleat__block_format *f = &a->format;
    const size_t of_block = (size_t)f->tokens * f->head_dim;
    static pleat__block_codes codes[MAX_BLOCKS];
    pleat__arena arena = {0};
    pleat__block_codes_carve(f, &codes[0], &arena);
    const size_t codes_bytes = arena.used_bytes;
    static pleat__code_counts k_counts, v_counts;
    memset(&k_counts, 0, sizeof k_counts);
    memset(&v_counts, 0, sizeof v_counts);
    check_buf memory[MAX_BLOCKS];
    for (uint32_t b = 0; b < n_blocks; b++) {
        memory[b] = check_buf_new(codes_bytes, 64);
        arena = (pleat__arena){.base = memory[b].p, .cap_bytes = codes_bytes};
        pleat__block_codes_carve(f, &codes[b], &arena);
        pleat__block_quantise(f, keys + b * of_block, values + b * of_block, f->head_dim, &codes[b]);
        pleat__code_counts_add(&k_counts, codes[b].k, pleat__block_vectors(f), f->k_levels);
        pleat__code_counts_add(&v_counts, codes[b].v, pleat__block_vectors(f), f->v_levels);
    }
    pleat__block_codebooks_build(f, &k_counts, &v_counts, &a->codebooks);
    size_t at = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        at += pleat__block_encode(f, &a->codebooks, &codes[b], out + at);
        at = (at + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN * PLEAT__BLOCK_ALIGN;
        a->ends[b] = (uint32_t)(at / PLEAT__BLOCK_ALIGN);
        CHECK(check_buf_is_intact(&memory[b]));
        check_buf_free(&memory[b]);
    }
    return at;
}

/* Pages for n_bytes, at random places of a pool that has a few more. */
static void lane_pages(lane *a, const uint8_t *bytes, size_t n_bytes) {
    uint32_t n_pages = (uint32_t)((n_bytes + a->run.page_bytes - 1) / a->run.page_bytes);
    const uint32_t n_pool = n_pages + (uint32_t)check_below(3);
    a->pool = check_buf_new(n_pool * a->run.page_bytes, 64);
    static uint32_t order[MAX_PAGES];
    for (uint32_t i = 0; i < n_pool; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    const bool backwards = check_below(2) != 0;
    a->run.base = a->pool.p;
    a->run.step = backwards ? -1 : 1;
    a->run.ids = backwards ? a->ids + n_pages - 1 : a->ids;
    for (uint32_t i = 0; i < n_pages; i++) {
        const size_t from = i * (size_t)a->run.page_bytes, left = n_bytes - from;
        a->ids[backwards ? n_pages - 1 - i : i].v = order[i];
        memcpy((uint8_t *)a->pool.p + order[i] * a->run.page_bytes, bytes + from,
               left < a->run.page_bytes ? left : (size_t)a->run.page_bytes);
    }
}

/* Keys and values become what the blocks hold. */
static void lane_load(lane *a) {
    const uint32_t d = a->format.head_dim, tokens = a->format.tokens;
    check_buf codes = check_buf_new((size_t)tokens * d, 64);
    check_buf k = check_buf_new((size_t)tokens * d * 4, 64), v = check_buf_new((size_t)tokens * d * 4, 64);
    check_buf copy = check_buf_new(pleat__block_copy_bytes(&a->format), 16);
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, 0);
    for (uint32_t b = 0; b < a->run.n_blocks; b++) {
        pleat__block_reader reader;
        if (!CHECK_STATUS(pleat__block_run_open(&a->run, b, copy.p, &reader), PLEAT_OK)) break;
        CHECK_STATUS(pleat__block_load(&dsp, &a->format, &a->codebooks, &reader, codes.p, k.p, v.p), PLEAT_OK);
        float *to = keys + (size_t)b * tokens * d;
        for (uint32_t i = 0; i < tokens * d; i++) to[i] = ((float *)k.p)[(i / d / 16 * d + i % d) * 16 + i / d % 16];
        memcpy(values + (size_t)b * tokens * d, v.p, (size_t)tokens * d * 4);
    }
    check_buf_free(&codes);
    check_buf_free(&k);
    check_buf_free(&v);
    check_buf_free(&copy);
}

/* Compress keys and values to n_blocks blocks. */
static lane *lane_new(pleat__block_format format, uint32_t n_blocks) {
    lane *a = &the_lane;
    memset(a, 0, sizeof *a);
    a->format = format;
    a->n_tokens = n_blocks * format.tokens;
    a->scale = 1 / sqrtf((float)format.head_dim);
    static const uint32_t page_sizes[] = {256, 1024, 4160, 16384, 65536};
    a->run = (pleat__block_run){.format = &a->format,
                                .codebooks = &a->codebooks,
                                .page_bytes = page_sizes[check_below(CHECK_COUNT(page_sizes))],
                                .ends = a->ends,
                                .n_blocks = n_blocks};
    uint8_t *bytes = malloc(n_blocks * (pleat__block_bound(&format) + PLEAT__BLOCK_ALIGN));
    if (!CHECK(bytes)) abort();
    const size_t n_bytes = encode_blocks(a, n_blocks, bytes);
    lane_pages(a, bytes, n_bytes);
    free(bytes);
    lane_load(a);
    return a;
}

static void lane_release(lane *a) {
    CHECK(check_buf_is_intact(&a->pool));
    check_buf_free(&a->pool);
}

static uint32_t random_blocks(const pleat__block_format *f) {
    return (uint32_t)check_between(1, pleat__min_u32(9, MAX_TOKENS / f->tokens));
}

/* Keys with channels of their own size and middle, as keys have them. */
static void fill_plausible(const pleat__block_format *f, uint32_t n_tokens, uint32_t n_group, float q_size) {
    const uint32_t d = f->head_dim;
    check_fill_normal(keys, (size_t)n_tokens * d);
    check_fill_normal(values, (size_t)n_tokens * d);
    for (uint32_t i = 0; i < d; i++) {
        const float middle = check_below(4) ? 0 : 4 * check_normal(), size = expf(0.5f * check_normal());
        for (uint32_t t = 0; t < n_tokens; t++) keys[t * d + i] = keys[t * d + i] * size + middle;
    }
    check_fill(query_in, (size_t)n_group * d, 0, q_size);
}

/* ---- exact attention ------------------------------------------------------------------------------------------- */

typedef struct exact {
    double out[MAX_G][MAX_D];
    double lse2[MAX_G];
    double norm[MAX_G];   /* of out */
    double spread[MAX_G]; /* sum of weight * norm of value */
    double size[MAX_G];   /* largest sum of |q k| */
    double reach[MAX_G];  /* sum of |q| times the largest |k|: what a block whose values share one step is exact to */
} exact;

static exact want;

/* Of tokens [from, to) but those of block `missing`, with the query as kernels read it. */
static void compute_exact(const float *query, uint32_t d, uint32_t n_group, uint32_t from, uint32_t to,
                          uint32_t missing_from, uint32_t missing_to) {
    static double logits[MAX_TOKENS];
    for (uint32_t g = 0; g < n_group; g++) {
        double most = -INFINITY, sum = 0, out_norm = 0;
        double q_sum = 0, k_most = 0;
        want.size[g] = want.spread[g] = 0;
        memset(want.out[g], 0, sizeof want.out[g]);
        for (uint32_t t = from; t < to; t++) {
            double size = 0;
            logits[t] = t >= missing_from && t < missing_to ? -INFINITY : 0;
            for (uint32_t i = 0; i < d; i++) {
                const double x = (double)query[g * d + i] * (double)keys[t * d + i];
                logits[t] += x;
                k_most = fmax(k_most, fabs((double)keys[t * d + i]));
                size += fabs(x);
            }
            const double cap = (double)the_lane.cap2;
            if (cap > 0) logits[t] = cap * tanh(logits[t] / cap);
            want.size[g] = fmax(want.size[g], size);
            most = fmax(most, logits[t]);
        }
        for (uint32_t i = 0; i < d; i++) q_sum += fabs((double)query[g * d + i]);
        want.reach[g] = q_sum * k_most;
        for (uint32_t t = from; t < to; t++) sum += exp2(logits[t] - most);
        want.lse2[g] = most + log2(sum);
        for (uint32_t t = from; t < to && most > -INFINITY; t++) {
            const double weight = exp2(logits[t] - most) / sum;
            double norm = 0;
            for (uint32_t i = 0; i < d; i++) {
                const double v = (double)values[t * d + i];
                want.out[g][i] += weight * v;
                norm += v * v;
            }
            want.spread[g] += weight * sqrt(norm);
        }
        for (uint32_t i = 0; i < d; i++) out_norm += want.out[g][i] * want.out[g][i];
        want.norm[g] = sqrt(out_norm);
    }
}

#endif
