/* SPDX-License-Identifier: MIT
 *
 * prompt_ref.c: the arithmetic of prompt attention in plain C: the specification of the vector variants, and what
 * runs without AVX2.  prompt.h has the formulas and the order of the calls.
 *
 * Inner loops run over 16 keys or d dimensions, so that a compiler's baseline vectors serve them.
 */
#include <math.h>

#include "attn/prompt.h"

/* Not inlined: gcc 12 forgets `restrict` and the vectors with it, 2.5 times the time for all of this. */
__attribute__((noinline)) static void add_scaled(float *restrict sum, const float *restrict x, float factor,
                                                 uint32_t n) {
    for (uint32_t i = 0; i < n; i++) sum[i] += factor * x[i];
}

/* s of a row: the sums over PLEAT__PROMPT_CHAIN dimensions from c on are added to what is there. */
static void add_logits(const pleat__prompt_block *b, uint32_t row, uint32_t c) {
    const float *q = b->q + (size_t)row * b->head_dim;
    float *s = b->s + row * PLEAT__PROMPT_KEYS;
    float sum[PLEAT__PROMPT_KEYS] = {0};
    const uint32_t end = pleat__min_u32(c + PLEAT__PROMPT_CHAIN, b->head_dim);
    for (uint32_t i = c; i < end; i++)
        for (uint32_t t = 0; t < b->n_tiles; t++)
            add_scaled(sum + t * PLEAT__TILE, b->k[t] + i * PLEAT__TILE, q[i], PLEAT__TILE);
    for (uint32_t j = 0; j < PLEAT__PROMPT_KEYS; j++) s[j] = c == 0 ? sum[j] : s[j] + sum[j];
}

static void logits(const pleat__prompt_block *b) {
    for (uint32_t r = b->row_from; r < b->n_rows; r++)
        for (uint32_t c = 0; c < b->head_dim; c += PLEAT__PROMPT_CHAIN) add_logits(b, r, c);
}

static bool is_visible(const pleat__prompt_block *b, uint32_t row, uint32_t j) { return b->visible[row] >> j & 1; }

static void weights(const pleat__prompt_block *b) {
    const uint32_t n_keys = b->n_tiles * PLEAT__TILE;
    for (uint32_t r = b->row_from; r < b->n_rows; r++) {
        float *s = b->s + r * PLEAT__PROMPT_KEYS;
        float m = b->m[r], sum = 0;
        for (uint32_t j = 0; j < n_keys; j++)
            if (is_visible(b, r, j) && s[j] > m) m = s[j];
        b->rescale[r] = b->m[r] == m ? 1 : exp2f(b->m[r] - m); /* both are -infinity if all slots so far are dead */
        for (uint32_t j = 0; j < n_keys; j++) {
            s[j] = is_visible(b, r, j) ? exp2f(s[j] - m) : 0;
            sum += s[j];
        }
        b->l[r] = b->l[r] * b->rescale[r] + sum;
        b->m[r] = m;
    }
}

static void values(const pleat__prompt_block *b) {
    const uint32_t d = b->head_dim;
    for (uint32_t r = b->row_from; r < b->n_rows; r++) {
        float sum[PLEAT__MAX_HEAD_DIM] = {0};
        for (uint32_t j = 0; j < b->n_tiles * PLEAT__TILE; j++)
            add_scaled(sum, b->v[j / PLEAT__TILE] + j % PLEAT__TILE * d, b->s[r * PLEAT__PROMPT_KEYS + j], d);
        float *o = b->o + (size_t)r * d;
        for (uint32_t c = 0; c < d; c++) o[c] = o[c] * b->rescale[r] + sum[c];
    }
}

static void received(const pleat__prompt_block *b) {
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group) {
        for (uint32_t j = 0; j < b->n_tiles * PLEAT__TILE; j++) {
            if (!is_visible(b, r, j)) continue; /* the rows of a query see the same */
            float most = -INFINITY;             /* of logit2 - lse2, over the group */
            for (uint32_t row = r; row < r + b->n_group; row++)
                most = fmaxf(most, b->s[row * PLEAT__PROMPT_KEYS + j] - b->lse2[row]);
            b->received[j] += exp2f(most);
        }
    }
}

static void collect(const pleat__prompt_block *b) {
    for (uint32_t row = b->row_from; row < b->n_rows; row++) b->rescale[row] = exp2f(b->m[row] - b->lse2[row]);
    for (uint32_t r = b->row_from; r < b->n_rows; r += b->n_group)
        for (uint32_t j = 0; j < b->n_tiles * PLEAT__TILE; j++) {
            float most = 0;
            for (uint32_t row = r; row < r + b->n_group; row++)
                most = fmaxf(most, b->s[row * PLEAT__PROMPT_KEYS + j] * b->rescale[row]);
            b->received[j] += most;
        }
}

static const pleat__prompt_ops ops = {logits, pleat__attn_cap_ref, weights, values, received, collect};

void pleat__attn_prompt_ref(const pleat__attn_prompt *args) { pleat__attn_prompt_blocked(args, &ops); }

void pleat__attn_prompt_received_ref(const pleat__attn_prompt_received *args) {
    pleat__attn_prompt_received_blocked(args, &ops);
}
