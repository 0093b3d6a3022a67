/* SPDX-License-Identifier: MIT
 *
 * test_device_packs.c: attention over kvcomp+pack's blocks on a GPU (attn/cuda/blocks.h) against sums in float64 over
 * what the CPU's codec decodes from the same payloads, and over other tokens beside them.
 *
 * Payloads stand in pages in any order, and go on from one page in the next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/cuda/blocks.h"
#include "check.h"
#include "codec/internal.h"
#include "core/half.h"

#define T PLEAT__DEVICE_BLOCK_TOKENS

static const pleat__device_stream no_stream = {NULL};

typedef struct rig {
    pleat__block_format format;
    uint32_t n_lanes, n_group, most_blocks, page_units, row_len, n_raw[2];
    uint32_t *n_blocks, *ends, *ids; /* [n_lanes], [n_lanes][most_blocks], [n_lanes][row_len] */
    uint8_t *pool;
    uint64_t pool_bytes, used_bytes;
    uint16_t *q;
    float *other, *lse2, *k, *v; /* k, v: [n_lanes][most_blocks * T][d] as payloads hold them */
    float *out;
    void *on_device[9];
} rig;

/* ---- payloads -------------------------------------------------------------------------------------------- */

static void fill_block(float *x, size_t n, uint32_t d, bool is_keys) {
    check_fill_normal(x, n);
    if (!is_keys && check_below(8) == 0)
        for (size_t i = 0; i < n; i++) x[i] = expf(2 * x[i]); /* skewed: few levels have most */
    for (uint32_t i = 0; i < d && is_keys; i++) {
        const float offset = 2 * check_normal(), scale = expf(0.5f * check_normal());
        for (size_t t = i; t < n; t += d) x[t] = offset + scale * x[t];
    }
}

/* The block's values, in the order of places. */
static void decode(const rig *r, const uint8_t *payload, size_t n_bytes, float *k, float *v) {
    const pleat__block_format *f = &r->format;
    const uint32_t d = f->head_dim;
    uint8_t *codes = aligned_alloc(64, (size_t)T * d), *units = malloc(pleat__block_units_bytes(f));
    float *tiles = malloc((size_t)T * d * sizeof *tiles);
    pleat__codec_dsp dsp;
    pleat__codec_dsp_init(&dsp, 0);
    pleat__block_reader reader;
    CHECK_STATUS(pleat__block_open(f, NULL, payload, n_bytes, units, &reader), PLEAT_OK);
    CHECK_STATUS(pleat__block_load(&dsp, f, NULL, &reader, codes, tiles, v), PLEAT_OK);
    for (size_t i = 0; i < (size_t)T * d; i++) k[i] = tiles[(i / d / 16 * d + i % d) * 16 + i / d % 16];
    free(codes);
    free(units);
    free(tiles);
}

/* A lane's next payload into its pages. */
static void put_payload(rig *r, uint32_t lane, uint32_t block, const uint8_t *payload, size_t n_bytes) {
    const uint32_t from = block ? r->ends[lane * r->most_blocks + block - 1] : 0;
    const uint32_t n = (uint32_t)((n_bytes + 15) / 16);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t unit = from + i, page = r->ids[(lane + 1) * r->row_len - 1 - unit / r->page_units];
        const size_t left = n_bytes - 16u * i;
        memcpy(r->pool + 16 * ((uint64_t)page * r->page_units + unit % r->page_units), payload + 16u * i,
               left < 16 ? left : 16);
    }
    r->ends[lane * r->most_blocks + block] = from + n;
    r->used_bytes += 16u * n;
    r->n_raw[0] += (pleat__load_u32(payload + 4) & 3) == PLEAT__CODER_RAW;
    r->n_raw[1] += (pleat__load_u32(payload + 8) & 3) == PLEAT__CODER_RAW;
}

static void make_block(rig *r, uint32_t lane, uint32_t block, pleat__block_codes *codes) {
    const pleat__block_format *f = &r->format;
    const size_t n = (size_t)T * f->head_dim;
    float *k = r->k + ((size_t)lane * r->most_blocks + block) * n, *v = r->v + (k - r->k);
    uint8_t *payload = calloc(1, pleat__block_bound(f) + PLEAT__STREAM_PAD);
    fill_block(k, n, f->head_dim, true);
    fill_block(v, n, f->head_dim, false);
    pleat__block_quantise(f, k, v, f->head_dim, codes);
    const size_t n_bytes = pleat__block_encode(f, NULL, codes, payload);
    put_payload(r, lane, block, payload, n_bytes);
    decode(r, payload, n_bytes, k, v);
    free(payload);
}

static void make_blocks(rig *r) {
    pleat__block_codes codes;
    pleat__arena arena = {0};
    pleat__block_codes_carve(&r->format, &codes, &arena);
    const uint64_t n = arena.used_bytes + 64;
    void *memory = aligned_alloc(64, (n + 63) / 64 * 64);
    arena = (pleat__arena){.base = memory, .cap_bytes = n};
    pleat__block_codes_carve(&r->format, &codes, &arena);
    for (uint32_t lane = 0; lane < r->n_lanes; lane++)
        for (uint32_t i = 0; i < r->n_blocks[lane]; i++) make_block(r, lane, i, &codes);
    free(memory);
}

static void make_vectors(rig *r) {
    const size_t heads = (size_t)r->n_lanes * r->n_group, n = heads * r->format.head_dim;
    for (size_t i = 0; i < n; i++) r->q[i] = pleat__f32_to_f16(check_normal());
    check_fill_normal(r->other, n);
    for (size_t i = 0; i < heads; i++) {
        r->lse2[i] = check_below(4) ? 4 + 2 * check_normal() : -INFINITY;
        for (uint32_t j = 0; j < r->format.head_dim && r->lse2[i] < 0; j++) r->other[i * r->format.head_dim + j] = 0;
    }
}

static rig *rig_new(const char *text, uint32_t d, uint32_t n_lanes, uint32_t n_group, uint32_t least,
                    uint32_t most_blocks) {
    rig *r = calloc(1, sizeof *r);
    pleat_spec spec;
    CHECK_STATUS(pleat_spec_parse(text, &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__block_format_of(&spec, d, &r->format), PLEAT_OK);
    r->n_lanes = n_lanes;
    r->n_group = n_group;
    r->most_blocks = most_blocks;
    r->page_units = 16 * (uint32_t)check_between(1, check_below(2) ? 80 : 8); /* a payload in one or in many */
    r->row_len = (uint32_t)(pleat__block_bound(&r->format) / 16 + 1) * most_blocks / r->page_units + 2;
    r->n_blocks = calloc(n_lanes, 4);
    r->ends = calloc((size_t)n_lanes * most_blocks, 4);
    r->ids = calloc((size_t)n_lanes * r->row_len, 4);
    const uint32_t n_pages = n_lanes * r->row_len;
    for (uint32_t i = 0; i < n_pages; i++) { /* any order */
        const uint32_t at = (uint32_t)check_below(i + 1);
        r->ids[i] = r->ids[at];
        r->ids[at] = i;
    }
    for (uint32_t i = 0; i < n_lanes; i++) r->n_blocks[i] = (uint32_t)check_between(least, most_blocks);
    r->pool_bytes = 16ull * n_pages * r->page_units;
    r->pool = malloc(r->pool_bytes);
    memset(r->pool, 0xA5, r->pool_bytes);
    const size_t n = (size_t)n_lanes * most_blocks * T * d, n_q = (size_t)n_lanes * n_group * d;
    r->k = calloc(n, sizeof(float));
    r->v = calloc(n, sizeof(float));
    r->q = calloc(n_q, 2);
    r->other = calloc(n_q, sizeof(float));
    r->lse2 = calloc((size_t)n_lanes * n_group, sizeof(float));
    r->out = calloc(n_q, sizeof(float));
    make_blocks(r);
    make_vectors(r);
    return r;
}

static void rig_free(rig *r) {
    for (size_t i = 0; i < CHECK_COUNT(r->on_device); i++) pleat__device_free(r->on_device[i]);
    free(r->n_blocks);
    free(r->ends);
    free(r->ids);
    free(r->pool);
    free(r->k);
    free(r->v);
    free(r->q);
    free(r->other);
    free(r->lse2);
    free(r->out);
    free(r);
}

/* ---- on the device ----------------------------------------------------------------------------------------- */

static void *send(rig *r, uint32_t which, const void *from, uint64_t n_bytes) {
    CHECK_STATUS(pleat__device_alloc(n_bytes, &r->on_device[which], NULL), PLEAT_OK);
    if (from) CHECK_STATUS(pleat__device_copy(r->on_device[which], from, n_bytes, no_stream, NULL), PLEAT_OK);
    return r->on_device[which];
}

/* All lanes are KV heads of one sequence.  n_parts 0: as many as fill the device. */
static pleat__device_blocks_attn args_of(rig *r, uint32_t n_parts) {
    const size_t heads = (size_t)r->n_lanes * r->n_group, n_q = heads * r->format.head_dim;
    pleat__device_block_lanes l = {.base = send(r, 0, r->pool, r->pool_bytes),
                                   .page_bytes = 16ull * r->page_units,
                                   .page_units = r->page_units,
                                   .ids = send(r, 1, r->ids, 4ull * r->n_lanes * r->row_len),
                                   .row_len = r->row_len,
                                   .ends = send(r, 2, r->ends, 4ull * r->n_lanes * r->most_blocks),
                                   .ends_cap = r->most_blocks,
                                   .n_blocks = send(r, 3, r->n_blocks, 4ull * r->n_lanes),
                                   .n_seqs = 1,
                                   .n_layers = 1,
                                   .n_kv_heads = r->n_lanes,
                                   .n_group = r->n_group,
                                   .head_dim = r->format.head_dim,
                                   .k_bits = pleat__code_bits(r->format.k_levels),
                                   .v_bits = pleat__code_bits(r->format.v_levels),
                                   .by_channel = r->format.by_channel};
    const uint32_t seq_idx = 0;
    l.seq_idxs = send(r, 4, &seq_idx, 4);
    if (n_parts == 0) CHECK_STATUS(pleat__device_blocks_parts(&l, &n_parts, NULL), PLEAT_OK);
    return (pleat__device_blocks_attn){.lanes = l,
                                       .n_parts = n_parts,
                                       .q = send(r, 5, r->q, 2 * n_q),
                                       .scale = 1 / sqrtf((float)r->format.head_dim),
                                       .parts = send(r, 6, NULL, 4 * pleat__device_blocks_parts_floats(&l, n_parts)),
                                       .other = send(r, 7, r->other, 4 * n_q),
                                       .lse2 = send(r, 8, r->lse2, 4 * heads),
                                       .out = r->on_device[7]};
}

/* ---- the oracle -------------------------------------------------------------------------------------------- */

static void attend(const rig *r, uint32_t lane, uint32_t g, double *out) {
    const uint32_t d = r->format.head_dim, n = r->n_blocks[lane] * T;
    const size_t head = (size_t)lane * r->n_group + g;
    const float *k = r->k + (size_t)lane * r->most_blocks * T * d, *v = r->v + (k - r->k);
    double *logits = calloc(n + 1, sizeof *logits), most = (double)r->lse2[head], sum = 0;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < d; i++)
            logits[t] += (double)pleat__f16_to_f32(r->q[head * d + i]) * (double)k[(size_t)t * d + i];
        logits[t] *= 1.4426950408889634 / sqrt(d);
        most = fmax(most, logits[t]);
    }
    for (uint32_t i = 0; i < d; i++) out[i] = 0;
    if (n > 0 || r->lse2[head] > -INFINITY) {
        const double p = exp2((double)r->lse2[head] - most);
        sum = p;
        for (uint32_t i = 0; i < d; i++) out[i] = p * (double)r->other[head * d + i];
        for (uint32_t t = 0; t < n; t++) {
            const double w = exp2(logits[t] - most);
            sum += w;
            for (uint32_t i = 0; i < d; i++) out[i] += w * (double)v[(size_t)t * d + i];
        }
        for (uint32_t i = 0; i < d; i++) out[i] /= sum;
    }
    free(logits);
}

static void check_rig(rig *r, uint32_t n_parts) {
    const uint32_t d = r->format.head_dim;
    const size_t n_q = (size_t)r->n_lanes * r->n_group * d;
    double worst = 0, want[128];
    const pleat__device_blocks_attn args = args_of(r, n_parts);
    check_context("d %u, levels %u %u, units %s, %u lanes of up to %u blocks, group %u, %u parts, raw %u %u", d,
                  r->format.k_levels, r->format.v_levels, r->format.by_channel ? "channel" : "block", r->n_lanes,
                  r->most_blocks, r->n_group, args.n_parts, r->n_raw[0], r->n_raw[1]);
    if (!CHECK_STATUS(pleat__device_blocks_attend(&args, no_stream, NULL), PLEAT_OK)) return;
    CHECK_STATUS(pleat__device_copy(r->out, args.out, 4 * n_q, no_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(no_stream, NULL), PLEAT_OK);
    for (uint32_t lane = 0; lane < r->n_lanes; lane++)
        for (uint32_t g = 0; g < r->n_group; g++) {
            double error = 0, norm = 0;
            attend(r, lane, g, want);
            for (uint32_t i = 0; i < d; i++) {
                const double got = (double)r->out[((size_t)lane * r->n_group + g) * d + i];
                error += (got - want[i]) * (got - want[i]);
                norm += want[i] * want[i];
            }
            CHECK_NEAR(sqrt(error), 0, 2e-3 * sqrt(norm) + 1e-6);
            if (norm > 0 && sqrt(error / norm) > worst) worst = sqrt(error / norm);
        }
    if (getenv("CHECK_VERBOSE"))
        printf("%u %u levels, raw %u %u: %.1e\n", r->format.k_levels, r->format.v_levels, r->n_raw[0], r->n_raw[1],
               worst);
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static const char *const specs[] = {"kvcomp:k=0.13,v=0.15+pack",
                                    "kvcomp:k=0.2,v=0.15+pack",
                                    "kvcomp:k=0.1,v=0.2+pack",
                                    "kvcomp:k=0.25,v=0.4+pack",
                                    "kvcomp:k=0.07,v=0.07+pack",
                                    "kvcomp:k=1,v=0.5+pack",
                                    "kvcomp:k=0.07,v=0.2,kunit=block+pack"};

static void test_attention(void) {
    CHECK_DEVICE();
    for (uint32_t i = 0; i < CHECK_COUNT(specs); i++)
        for (uint32_t d = 64; d <= 128; d += 64) {
            rig *r = rig_new(specs[i], d, (uint32_t)check_between(1, 6), (uint32_t)check_between(1, 8), 0, 9);
            check_rig(r, (uint32_t)check_below(5));
            rig_free(r);
        }
}
static const check_test tests[] = {{"attention", test_attention}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
