/* SPDX-License-Identifier: MIT
 *
 * prompt_neon.c: the arithmetic of prompt attention with registers of four floats.  prompt.h has the formulas.
 *
 * Both products keep 6 rows by 4 registers of sums: 24 sums, 4 registers of keys or values and one multiplier: 29 of
 * 32 registers.  10 loads feed 24 FMAs.
 *
 *     logits    4 registers: 16 keys of a tile     multiplier: q[row][c]         over c
 *     values    4 registers: 16 dimensions         multiplier: weight[row][j]    over the block's slots j
 */
#include <float.h>
#include <math.h>

#include "attn/arm/vector_neon.h"
#include "attn/prompt.h"

#define ROWS PLEAT__PROMPT_ROW_STEP
#define VECS 4u                               /* registers a row: always 16 keys or dimensions */
#define ROW_VECS (PLEAT__PROMPT_KEYS / LANES) /* registers of a row of logits */

typedef struct row_sums {
    float32x4_t v[ROWS][VECS];
} row_sums;

INLINE void clear(row_sums *s, uint32_t n_rows) {
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) s->v[r][x] = vdupq_n_f32(0);
}

/* Add `n` vectors of 16 numbers, `step` floats apart, times the multipliers [row][n], `stride` floats a row. */
INLINE void add_products(row_sums *s, uint32_t n_rows, const float *at, size_t step, uint32_t n, const float *m,
                         size_t stride) {
    for (size_t i = 0; i < n; i++, at += step) {
        const float32x4_t x[VECS] = {vld1q_f32(at), vld1q_f32(at + LANES), vld1q_f32(at + 2 * LANES),
                                     vld1q_f32(at + 3 * LANES)};
        for (uint32_t r = 0; r < n_rows; r++) {
            /* No multiplier before the row above is done: gcc 12 would load all six first, and spill. */
            if (r > 0) __asm__("" : "+r"(i) : "w"(s->v[r - 1][VECS - 1]));
            for (uint32_t v = 0; v < VECS; v++) s->v[r][v] = vfmaq_n_f32(s->v[r][v], x[v], m[r * stride + i]);
        }
    }
}

/* Tile t, dimensions c .. c+n-1, added to the sum of those before. */
INLINE void logits_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t t, uint32_t c,
                        uint32_t n) {
    const size_t d = b->head_dim;
    row_sums sum;
    clear(&sum, n_rows);
    add_products(&sum, n_rows, b->k[t] + c * PLEAT__TILE, PLEAT__TILE, n, b->q + row * d + c, d);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) {
            float *s = b->s + (row + r) * PLEAT__PROMPT_KEYS + t * PLEAT__TILE + x * LANES;
            vst1q_f32(s, c == 0 ? sum.v[r][x] : vaddq_f32(vld1q_f32(s), sum.v[r][x]));
        }
}

static void logits(const pleat__prompt_block *b) {
    for (uint32_t c = 0; c < b->head_dim; c += PLEAT__PROMPT_CHAIN) {
        const uint32_t n = pleat__min_u32(b->head_dim - c, PLEAT__PROMPT_CHAIN);
        for (uint32_t t = 0; t < b->n_tiles; t++) PLEAT__PROMPT_FOR_ROWS(b, logits_rows, t, c, n)
    }
}

/* Largest logit of a row's visible slots, -infinity if it sees none; hidden logits become -infinity. */
INLINE float hide_and_max(float *s, uint64_t visible, uint32_t n_tiles) {
    float32x4_t most = vdupq_n_f32(-INFINITY);
    if (visible != ~(uint64_t)0)
        for (uint32_t x = 0; x < ROW_VECS; x++)
            vst1q_f32(s + x * LANES, hide(vld1q_f32(s + x * LANES), mask_of(visible >> (x * LANES))));
    for (uint32_t x = 0; x < n_tiles * VECS; x++) most = vmaxq_f32(most, vld1q_f32(s + x * LANES));
    return vmaxvq_f32(most);
}

/* Hide what rows do not see; m and rescale of 4 rows from `row` on, of which n_rows count. */
static void raise_maxima(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows) {
    float most[LANES] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (uint32_t r = 0; r < n_rows; r++)
        most[r] = hide_and_max(b->s + (row + r) * PLEAT__PROMPT_KEYS, b->visible[row + r], b->n_tiles);
    const float32x4_t old = vld1q_f32(b->m + row);
    const float32x4_t m = vmaxq_f32(old, vld1q_f32(most));
    /* Where all slots so far are dead, m is -infinity, and o and l are 0 whatever the factor: avoid inf - inf. */
    const float32x4_t reference = vmaxq_f32(m, vdupq_n_f32(-FLT_MAX));
    vst1q_f32(b->rescale + row, exp2_neon(vsubq_f32(old, reference)));
    vst1q_f32(b->m + row, m);
}

INLINE void weigh_row(const pleat__prompt_block *b, uint32_t row) {
    float *s = b->s + row * PLEAT__PROMPT_KEYS;
    const float32x4_t reference = vdupq_n_f32(b->m[row] > -FLT_MAX ? b->m[row] : -FLT_MAX);
    float32x4_t sum[VECS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (uint32_t t = 0; t < b->n_tiles; t++, s += PLEAT__TILE) {
        for (uint32_t x = 0; x < VECS; x++) {
            const float32x4_t weight = exp2_neon(vsubq_f32(vld1q_f32(s + x * LANES), reference));
            vst1q_f32(s + x * LANES, weight);
            sum[x] = vaddq_f32(sum[x], weight);
        }
    }
    b->l[row] =
        b->l[row] * b->rescale[row] + vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

static void weights(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += LANES) {
        const uint32_t n_rows = pleat__min_u32(b->n_rows - row, LANES);
        raise_maxima(b, row, n_rows);
        for (uint32_t r = 0; r < n_rows; r++) weigh_row(b, row + r);
    }
}

/* Dimensions c .. c+15. */
INLINE void values_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t c) {
    const size_t d = b->head_dim;
    row_sums sum;
    clear(&sum, n_rows);
    for (uint32_t t = 0; t < b->n_tiles; t++)
        add_products(&sum, n_rows, b->v[t] + c, d, PLEAT__TILE, b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE,
                     PLEAT__PROMPT_KEYS);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) {
            float *o = b->o + (row + r) * d + c + x * LANES;
            vst1q_f32(o, vfmaq_n_f32(sum.v[r][x], vld1q_f32(o), b->rescale[row + r]));
        }
}

static void values(const pleat__prompt_block *b) {
    for (uint32_t c = 0; c < b->head_dim; c += VECS * LANES) PLEAT__PROMPT_FOR_ROWS(b, values_rows, c)
}

/* Slots 16*t .. 16*t+15. */
static void received_by_tile(const pleat__prompt_block *b, uint32_t t) {
    float *at = b->received + t * PLEAT__TILE;
    float32x4_t sum[VECS];
    for (uint32_t x = 0; x < VECS; x++) sum[x] = vld1q_f32(at + x * LANES);
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
        float32x4_t most[VECS]; /* of logit2 - lse2 */
        for (uint32_t x = 0; x < VECS; x++) most[x] = vdupq_n_f32(-INFINITY);
        for (uint32_t row = r; row < r + b->n_group; row++) {
            const float *s = b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE;
            const float32x4_t lse2 = vdupq_n_f32(b->lse2[row]);
            for (uint32_t x = 0; x < VECS; x++)
                most[x] = vmaxnmq_f32(most[x], vsubq_f32(vld1q_f32(s + x * LANES), lse2));
        }
        const uint64_t visible = b->visible[r] >> (t * PLEAT__TILE); /* the rows of a query see the same */
        for (uint32_t x = 0; x < VECS; x++)
            sum[x] = vaddq_f32(sum[x], zero_unless(exp2_neon(most[x]), mask_of(visible >> (x * LANES))));
    }
    for (uint32_t x = 0; x < VECS; x++) vst1q_f32(at + x * LANES, sum[x]);
}

static void received(const pleat__prompt_block *b) {
    for (uint32_t t = 0; t < b->n_tiles; t++) received_by_tile(b, t);
}

/* Slots 16*t .. 16*t+15. */
static void collect_tile(const pleat__prompt_block *b, uint32_t t) {
    float *at = b->received + t * PLEAT__TILE;
    float32x4_t sum[VECS];
    for (uint32_t x = 0; x < VECS; x++) sum[x] = vld1q_f32(at + x * LANES);
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
        float32x4_t most[VECS];
        for (uint32_t x = 0; x < VECS; x++) most[x] = vdupq_n_f32(0);
        for (uint32_t row = r; row < r + b->n_group; row++) {
            const float *s = b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE;
            for (uint32_t x = 0; x < VECS; x++)
                most[x] = vmaxq_f32(most[x], vmulq_n_f32(vld1q_f32(s + x * LANES), b->rescale[row]));
        }
        for (uint32_t x = 0; x < VECS; x++) sum[x] = vaddq_f32(sum[x], most[x]);
    }
    for (uint32_t x = 0; x < VECS; x++) vst1q_f32(at + x * LANES, sum[x]);
}

static void collect(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += LANES)
        vst1q_f32(b->rescale + row, exp2_neon(vsubq_f32(vld1q_f32(b->m + row), vld1q_f32(b->lse2 + row))));
    for (uint32_t t = 0; t < b->n_tiles; t++) collect_tile(b, t);
}

static const pleat__prompt_ops ops = {logits, pleat__attn_cap_neon, weights, values, received, collect};

void pleat__attn_prompt_neon(const pleat__attn_prompt *args) { pleat__attn_prompt_blocked(args, &ops); }

void pleat__attn_prompt_received_neon(const pleat__attn_prompt_received *args) {
    pleat__attn_prompt_received_blocked(args, &ops);
}
