/* SPDX-License-Identifier: MIT
 *
 * prompt_avx512.c: the arithmetic of prompt attention with AVX-512 F and DQ.  prompt.h has the formulas.
 *
 * Both products keep 6 rows by 4 registers of 16 sums: 24 accumulators, 4 registers of keys or values, one broadcast.
 * 10 loads feed 24 FMAs, so that two FMAs a cycle are the limit, and 24 chains hide their latency.
 *
 *     logits    register t: 16 keys of tile t      broadcast: q[row][c]         over c
 *     values    register x: 16 dimensions          broadcast: weight[row][j]    over the block's slots j
 */
#include <float.h>
#include <math.h>

#include "attn/prompt.h"
#include "attn/x86/vector_avx512.h"

#define ROWS PLEAT__PROMPT_ROW_STEP
#define WIDTH 16u
#define VECS 4u /* registers a row */

/* Dimensions c .. c+n-1, added to the sum of those before. */
INLINE void logits_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t c, uint32_t n) {
    const size_t d = b->head_dim;
    const float *q = b->q + row * d + c;
    const float *k[VECS];
    __m512 sum[ROWS][VECS];
    for (uint32_t t = 0; t < VECS; t++) k[t] = b->k[t] + c * WIDTH;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t t = 0; t < VECS; t++) sum[r][t] = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i++) {
        __m512 key[VECS];
        for (uint32_t t = 0; t < VECS; t++) key[t] = _mm512_load_ps(k[t] + i * WIDTH);
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m512 x = _mm512_set1_ps(q[r * d + i]);
            for (uint32_t t = 0; t < VECS; t++) sum[r][t] = _mm512_fmadd_ps(x, key[t], sum[r][t]);
        }
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t t = 0; t < VECS; t++) {
            float *s = b->s + (row + r) * PLEAT__PROMPT_KEYS + t * WIDTH;
            _mm512_store_ps(s, c == 0 ? sum[r][t] : _mm512_add_ps(_mm512_load_ps(s), sum[r][t]));
        }
}

static void logits(const pleat__prompt_block *b) {
    for (uint32_t c = 0; c < b->head_dim; c += PLEAT__PROMPT_CHAIN) {
        const uint32_t n = pleat__min_u32(b->head_dim - c, PLEAT__PROMPT_CHAIN);
        PLEAT__PROMPT_FOR_ROWS(b, logits_rows, c, n)
    }
}

/* Largest logit of a row's visible slots, -infinity if it sees none. */
INLINE float row_max(const float *s, uint64_t visible) {
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (uint32_t t = 0; t < VECS; t++)
        most = _mm512_mask_max_ps(most, (__mmask16)(visible >> (t * WIDTH)), most, _mm512_load_ps(s + t * WIDTH));
    return _mm512_reduce_max_ps(most);
}

/* m and rescale of 16 rows from `row` on, of which n_rows count. */
static void raise_maxima(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows) {
    float most[WIDTH];
    for (uint32_t r = 0; r < WIDTH; r++) most[r] = -INFINITY;
    for (uint32_t r = 0; r < n_rows; r++) most[r] = row_max(b->s + (row + r) * PLEAT__PROMPT_KEYS, b->visible[row + r]);
    const __m512 old = _mm512_loadu_ps(b->m + row);
    const __m512 m = _mm512_max_ps(old, _mm512_loadu_ps(most));
    /* Where all slots so far are dead, m is -infinity, and o and l are 0 whatever the factor: avoid inf - inf. */
    const __m512 reference = _mm512_max_ps(m, _mm512_set1_ps(-FLT_MAX));
    _mm512_storeu_ps(b->rescale + row, exp2_512(_mm512_sub_ps(old, reference), 0xFFFF));
    _mm512_storeu_ps(b->m + row, m);
}

INLINE void weigh_row(const pleat__prompt_block *b, uint32_t row) {
    float *s = b->s + row * PLEAT__PROMPT_KEYS;
    const __m512 m = _mm512_set1_ps(b->m[row]);
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t t = 0; t < VECS; t++) {
        const __mmask16 visible = (__mmask16)(b->visible[row] >> (t * WIDTH));
        const __m512 weight = exp2_512(_mm512_sub_ps(_mm512_load_ps(s + t * WIDTH), m), visible);
        _mm512_store_ps(s + t * WIDTH, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    b->l[row] = b->l[row] * b->rescale[row] + _mm512_reduce_add_ps(sum);
}

static void weights(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += WIDTH) {
        const uint32_t n_rows = pleat__min_u32(b->n_rows - row, WIDTH);
        raise_maxima(b, row, n_rows);
        for (uint32_t r = 0; r < n_rows; r++) weigh_row(b, row + r);
    }
}

INLINE void values_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t c, uint32_t n_vecs) {
    const size_t d = b->head_dim;
    __m512 sum[ROWS][VECS];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < n_vecs; x++) sum[r][x] = _mm512_setzero_ps();
    for (uint32_t t = 0; t < b->n_tiles; t++) {
        const float *v = b->v[t] + c;
        const float *weight = b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE;
        for (uint32_t j = 0; j < PLEAT__TILE; j++, v += d) {
            __m512 value[VECS];
            for (uint32_t x = 0; x < n_vecs; x++) value[x] = _mm512_load_ps(v + x * WIDTH);
            for (uint32_t r = 0; r < n_rows; r++) {
                const __m512 p = _mm512_set1_ps(weight[r * PLEAT__PROMPT_KEYS + j]);
                for (uint32_t x = 0; x < n_vecs; x++) sum[r][x] = _mm512_fmadd_ps(p, value[x], sum[r][x]);
            }
        }
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m512 rescale = _mm512_set1_ps(b->rescale[row + r]);
        for (uint32_t x = 0; x < n_vecs; x++) {
            float *o = b->o + (row + r) * d + c + x * WIDTH;
            _mm512_store_ps(o, _mm512_fmadd_ps(_mm512_load_ps(o), rescale, sum[r][x]));
        }
    }
}

static void values(const pleat__prompt_block *b) {
    uint32_t c = 0;
    for (; c + VECS * WIDTH <= b->head_dim; c += VECS * WIDTH) PLEAT__PROMPT_FOR_ROWS(b, values_rows, c, VECS)
    switch ((b->head_dim - c) / WIDTH) {
        case 1: PLEAT__PROMPT_FOR_ROWS(b, values_rows, c, 1) break;
        case 2: PLEAT__PROMPT_FOR_ROWS(b, values_rows, c, 2) break;
        case 3: PLEAT__PROMPT_FOR_ROWS(b, values_rows, c, 3) break;
        default: break;
    }
}

static void received(const pleat__prompt_block *b) {
    __m512 sum[VECS];
    for (uint32_t t = 0; t < VECS; t++) sum[t] = _mm512_load_ps(b->received + t * WIDTH);
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
        __m512 most[VECS]; /* of logit2 - lse2 */
        for (uint32_t t = 0; t < VECS; t++) most[t] = _mm512_set1_ps(-INFINITY);
        for (uint32_t row = r; row < r + b->n_group; row++) {
            const __m512 lse2 = _mm512_set1_ps(b->lse2[row]);
            const float *s = b->s + row * PLEAT__PROMPT_KEYS;
            for (uint32_t t = 0; t < VECS; t++)
                most[t] = _mm512_max_ps(most[t], _mm512_sub_ps(_mm512_load_ps(s + t * WIDTH), lse2));
        }
        const uint64_t visible = b->visible[r]; /* the rows of a query see the same */
        for (uint32_t t = 0; t < VECS; t++)
            sum[t] = _mm512_add_ps(sum[t], exp2_512(most[t], (__mmask16)(visible >> (t * WIDTH))));
    }
    for (uint32_t t = 0; t < VECS; t++) _mm512_store_ps(b->received + t * WIDTH, sum[t]);
}

static void collect(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += WIDTH) {
        const __m512 m = _mm512_loadu_ps(b->m + row), lse2 = _mm512_loadu_ps(b->lse2 + row);
        _mm512_storeu_ps(b->rescale + row, exp2_512(_mm512_sub_ps(m, lse2), 0xFFFF));
    }
    __m512 sum[VECS];
    for (uint32_t t = 0; t < b->n_tiles; t++) sum[t] = _mm512_loadu_ps(b->received + t * WIDTH);
    for (uint32_t t = b->n_tiles; t < VECS; t++) sum[t] = _mm512_setzero_ps();
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
        __m512 most[VECS];
        for (uint32_t t = 0; t < VECS; t++) most[t] = _mm512_setzero_ps();
        for (uint32_t row = r; row < r + b->n_group; row++) {
            const __m512 factor = _mm512_set1_ps(b->rescale[row]);
            const float *s = b->s + row * PLEAT__PROMPT_KEYS;
            for (uint32_t t = 0; t < VECS; t++)
                most[t] = _mm512_max_ps(most[t], _mm512_mul_ps(_mm512_load_ps(s + t * WIDTH), factor));
        }
        for (uint32_t t = 0; t < VECS; t++) sum[t] = _mm512_add_ps(sum[t], most[t]);
    }
    for (uint32_t t = 0; t < b->n_tiles; t++) _mm512_storeu_ps(b->received + t * WIDTH, sum[t]);
}

static const pleat__prompt_ops ops = {logits, pleat__attn_cap_avx512, weights, values, received, collect};

void pleat__attn_prompt_avx512(const pleat__attn_prompt *args) { pleat__attn_prompt_blocked(args, &ops); }

void pleat__attn_prompt_received_avx512(const pleat__attn_prompt_received *args) {
    pleat__attn_prompt_received_blocked(args, &ops);
}
