/* SPDX-License-Identifier: MIT
 *
 * prompt_avx2.c: the arithmetic of prompt attention with AVX2 and FMA.  prompt.h has the formulas.
 *
 * Both products keep 6 rows by 2 registers of 8 sums: 12 accumulators, 2 registers of keys or values, one broadcast:
 * 15 of 16 registers.  8 loads feed 12 FMAs.
 *
 *     logits    2 registers: 16 keys of a tile     broadcast: q[row][c]         over c
 *     values    2 registers: 16 dimensions         broadcast: weight[row][j]    over the block's slots j
 */
#include <float.h>
#include <math.h>

#include "attn/prompt.h"
#include "attn/x86/vector_avx2.h"

#define ROWS PLEAT__PROMPT_ROW_STEP
#define WIDTH 8u
#define VECS 2u                               /* registers a row: always 16 keys or dimensions */
#define ROW_VECS (PLEAT__PROMPT_KEYS / WIDTH) /* registers of a row of logits */

/* Tile t, dimensions c .. c+n-1, added to the sum of those before. */
INLINE void logits_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t t, uint32_t c,
                        uint32_t n) {
    const size_t d = b->head_dim;
    const float *q = b->q + row * d + c;
    const float *k = b->k[t] + c * PLEAT__TILE;
    __m256 sum[ROWS][VECS];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) sum[r][x] = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i++, k += PLEAT__TILE) {
        const __m256 key[VECS] = {_mm256_load_ps(k), _mm256_load_ps(k + WIDTH)};
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m256 y = _mm256_broadcast_ss(q + r * d + i);
            for (uint32_t x = 0; x < VECS; x++) sum[r][x] = _mm256_fmadd_ps(y, key[x], sum[r][x]);
        }
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) {
            float *s = b->s + (row + r) * PLEAT__PROMPT_KEYS + t * PLEAT__TILE + x * WIDTH;
            _mm256_store_ps(s, c == 0 ? sum[r][x] : _mm256_add_ps(_mm256_load_ps(s), sum[r][x]));
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
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 most = none;
    if (visible != ~(uint64_t)0)
        for (uint32_t x = 0; x < ROW_VECS; x++) {
            const __m256 keep = mask_of(visible >> (x * WIDTH));
            _mm256_store_ps(s + x * WIDTH, _mm256_blendv_ps(none, _mm256_load_ps(s + x * WIDTH), keep));
        }
    for (uint32_t x = 0; x < n_tiles * VECS; x++) most = _mm256_max_ps(most, _mm256_load_ps(s + x * WIDTH));
    return max_of(most);
}

/* Hide what rows do not see; m and rescale of 8 rows from `row` on, of which n_rows count. */
static void raise_maxima(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows) {
    float most[WIDTH];
    for (uint32_t r = 0; r < WIDTH; r++) most[r] = -INFINITY;
    for (uint32_t r = 0; r < n_rows; r++)
        most[r] = hide_and_max(b->s + (row + r) * PLEAT__PROMPT_KEYS, b->visible[row + r], b->n_tiles);
    const __m256 old = _mm256_loadu_ps(b->m + row);
    const __m256 m = _mm256_max_ps(old, _mm256_loadu_ps(most));
    /* Where all slots so far are dead, m is -infinity, and o and l are 0 whatever the factor: avoid inf - inf. */
    const __m256 reference = _mm256_max_ps(m, _mm256_set1_ps(-FLT_MAX));
    _mm256_storeu_ps(b->rescale + row, exp2_256(_mm256_sub_ps(old, reference)));
    _mm256_storeu_ps(b->m + row, m);
}

INLINE void weigh_row(const pleat__prompt_block *b, uint32_t row) {
    float *s = b->s + row * PLEAT__PROMPT_KEYS;
    const __m256 reference = _mm256_set1_ps(b->m[row] > -FLT_MAX ? b->m[row] : -FLT_MAX);
    __m256 sum[VECS] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t x = 0; x < b->n_tiles * VECS; x++) {
        const __m256 weight = exp2_256(_mm256_sub_ps(_mm256_load_ps(s + x * WIDTH), reference));
        _mm256_store_ps(s + x * WIDTH, weight);
        sum[x % VECS] = _mm256_add_ps(sum[x % VECS], weight);
    }
    b->l[row] = b->l[row] * b->rescale[row] + sum_of(_mm256_add_ps(sum[0], sum[1]));
}

static void weights(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += WIDTH) {
        const uint32_t n_rows = pleat__min_u32(b->n_rows - row, WIDTH);
        raise_maxima(b, row, n_rows);
        for (uint32_t r = 0; r < n_rows; r++) weigh_row(b, row + r);
    }
}

/* Dimensions c .. c+15. */
INLINE void values_rows(const pleat__prompt_block *b, uint32_t row, uint32_t n_rows, uint32_t c) {
    const size_t d = b->head_dim;
    __m256 sum[ROWS][VECS];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t x = 0; x < VECS; x++) sum[r][x] = _mm256_setzero_ps();
    for (uint32_t t = 0; t < b->n_tiles; t++) {
        const float *v = b->v[t] + c;
        const float *weight = b->s + row * PLEAT__PROMPT_KEYS + t * PLEAT__TILE;
        for (uint32_t j = 0; j < PLEAT__TILE; j++, v += d) {
            const __m256 value[VECS] = {_mm256_load_ps(v), _mm256_load_ps(v + WIDTH)};
            for (uint32_t r = 0; r < n_rows; r++) {
                const __m256 p = _mm256_broadcast_ss(weight + r * PLEAT__PROMPT_KEYS + j);
                for (uint32_t x = 0; x < VECS; x++) sum[r][x] = _mm256_fmadd_ps(p, value[x], sum[r][x]);
            }
        }
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m256 rescale = _mm256_broadcast_ss(b->rescale + row + r);
        for (uint32_t x = 0; x < VECS; x++) {
            float *o = b->o + (row + r) * d + c + x * WIDTH;
            _mm256_store_ps(o, _mm256_fmadd_ps(_mm256_load_ps(o), rescale, sum[r][x]));
        }
    }
}

static void values(const pleat__prompt_block *b) {
    for (uint32_t c = 0; c < b->head_dim; c += VECS * WIDTH) PLEAT__PROMPT_FOR_ROWS(b, values_rows, c)
}

static void received(const pleat__prompt_block *b) {
    for (uint32_t x = 0; x < b->n_tiles * VECS; x += VECS) {
        __m256 sum[VECS] = {_mm256_load_ps(b->received + x * WIDTH), _mm256_load_ps(b->received + (x + 1) * WIDTH)};
        for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
            __m256 most[VECS] = {_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)}; /* of logit2 - lse2 */
            for (uint32_t row = r; row < r + b->n_group; row++) {
                const float *s = b->s + row * PLEAT__PROMPT_KEYS + x * WIDTH;
                const __m256 lse2 = _mm256_broadcast_ss(b->lse2 + row);
                for (uint32_t y = 0; y < VECS; y++)
                    most[y] = _mm256_max_ps(most[y], _mm256_sub_ps(_mm256_load_ps(s + y * WIDTH), lse2));
            }
            const uint64_t visible = b->visible[r] >> (x * WIDTH); /* the rows of a query see the same */
            for (uint32_t y = 0; y < VECS; y++)
                sum[y] = _mm256_add_ps(sum[y], _mm256_and_ps(exp2_256(most[y]), mask_of(visible >> (y * WIDTH))));
        }
        for (uint32_t y = 0; y < VECS; y++) _mm256_store_ps(b->received + (x + y) * WIDTH, sum[y]);
    }
}

static void collect(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row += WIDTH) {
        const __m256 m = _mm256_loadu_ps(b->m + row), lse2 = _mm256_loadu_ps(b->lse2 + row);
        _mm256_storeu_ps(b->rescale + row, exp2_256(_mm256_sub_ps(m, lse2)));
    }
    for (uint32_t x = 0; x < b->n_tiles * VECS; x += VECS) {
        float *at = b->received + x * WIDTH;
        __m256 sum[VECS] = {_mm256_loadu_ps(at), _mm256_loadu_ps(at + WIDTH)};
        for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
            __m256 most[VECS] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            for (uint32_t row = r; row < r + b->n_group; row++) {
                const float *s = b->s + row * PLEAT__PROMPT_KEYS + x * WIDTH;
                const __m256 factor = _mm256_broadcast_ss(b->rescale + row);
                for (uint32_t y = 0; y < VECS; y++)
                    most[y] = _mm256_max_ps(most[y], _mm256_mul_ps(_mm256_load_ps(s + y * WIDTH), factor));
            }
            for (uint32_t y = 0; y < VECS; y++) sum[y] = _mm256_add_ps(sum[y], most[y]);
        }
        for (uint32_t y = 0; y < VECS; y++) _mm256_storeu_ps(at + y * WIDTH, sum[y]);
    }
}

static const pleat__prompt_ops ops = {logits, pleat__attn_cap_avx2, weights, values, received, collect};

void pleat__attn_prompt_avx2(const pleat__attn_prompt *args) { pleat__attn_prompt_blocked(args, &ops); }

void pleat__attn_prompt_received_avx2(const pleat__attn_prompt_received *args) {
    pleat__attn_prompt_received_blocked(args, &ops);
}
