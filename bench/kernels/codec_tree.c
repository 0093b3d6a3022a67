/* SPDX-License-Identifier: MIT
 *
 * codec_tree.c: see codec_tree.h.
 */
#include "codec_tree.h"

#include <math.h>
#include <string.h>

#include "core/half.h"

/* ---- the tree ---------------------------------------------------------------------------------- */

/* The lightest of nodes 1..n-1 that have no parent yet. */
static uint32_t take_lightest(const uint64_t *weight, uint8_t *has_parent, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (!has_parent[i] && (!best || weight[i] < weight[best])) best = i;
    has_parent[best] = 1;
    return best;
}

/* Words of the leaves below `node`. */
static void put_words(tree *t, uint32_t node, uint64_t word, uint32_t n_bits) {
    const tree_node *at = &t->nodes[node];
    if (at->is_symbol) {
        t->words[at->symbol] = word;
        t->bits[at->symbol] = (uint8_t)n_bits;
        return;
    }
    for (uint32_t bit = 0; bit < 2; bit++) put_words(t, at->child[bit], word | (uint64_t)bit << n_bits, n_bits + 1);
}

void tree_build(tree *t, const uint64_t *counts, uint32_t n_levels) {
    uint64_t weight[2 * TREE_LEVELS];
    uint8_t has_parent[2 * TREE_LEVELS] = {0};
    const uint32_t n_nodes = 2 * n_levels - 1;
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < n_levels; i++) {
        weight[1 + i] = counts[i] + 1;
        t->nodes[1 + i] = (tree_node){.symbol = (uint16_t)i, .is_symbol = 1};
    }
    for (uint32_t next = n_levels + 1; next <= n_nodes; next++) {
        tree_node *parent = &t->nodes[next < n_nodes ? next : 0]; /* the last is the root */
        for (uint32_t bit = 0; bit < 2; bit++) parent->child[bit] = (uint16_t)take_lightest(weight, has_parent, next);
        weight[next] = weight[parent->child[0]] + weight[parent->child[1]];
    }
    put_words(t, 0, 0, 0);
}

/* ---- rows -------------------------------------------------------------------------------------- */

size_t tree_encode(const tree *t, const uint8_t *codes, uint32_t n_rows, uint32_t d, uint16_t *row_bits, uint8_t *out) {
    uint64_t at = 0;
    for (uint32_t row = 0; row < n_rows; row++) {
        const uint64_t from = at;
        for (uint32_t i = 0; i < d; i++) {
            const uint8_t code = codes[(size_t)row * d + i];
            for (uint32_t bit = 0; bit < t->bits[code]; bit++, at++)
                out[at / 8] |= (uint8_t)((t->words[code] >> bit & 1) << at % 8);
        }
        row_bits[row] = (uint16_t)(at - from);
    }
    return (size_t)(at + 7) / 8;
}

/* A row under way. */
typedef struct cursor {
    uint64_t at;     /* next bit */
    uint32_t n_bits; /* that are left */
    uint32_t index;  /* node */
    uint8_t *out;
} cursor;

/* Take the next n bits, n <= 56, of each cursor, bit by bit in turn. */
static inline void take_bits(const tree *t, const uint8_t *bytes, cursor *c, uint32_t n_cursors, uint32_t n) {
    uint64_t bits[TREE_ROWS];
    uint32_t index[TREE_ROWS];
    uint8_t *out[TREE_ROWS];
    for (uint32_t r = 0; r < n_cursors; r++) {
        memcpy(&bits[r], bytes + c[r].at / 8, sizeof bits[r]);
        bits[r] >>= c[r].at % 8;
        index[r] = c[r].index;
        out[r] = c[r].out;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < n_cursors; r++) {
            const uint32_t next = t->nodes[index[r]].child[bits[r] & 1], is_symbol = t->nodes[next].is_symbol;
            *out[r] = (uint8_t)t->nodes[next].symbol;
            out[r] += is_symbol;
            index[r] = next & ~-is_symbol;
            bits[r] >>= 1;
        }
    for (uint32_t r = 0; r < n_cursors; r++)
        c[r] = (cursor){.at = c[r].at + n, .n_bits = c[r].n_bits - n, .index = index[r], .out = out[r]};
}

/* All bits of the shortest of the rows. */
static inline void take_shortest(const tree *t, const uint8_t *bytes, cursor *c, uint32_t n_cursors) {
    uint32_t left = c[0].n_bits;
    for (uint32_t r = 1; r < n_cursors; r++) left = c[r].n_bits < left ? c[r].n_bits : left;
    for (uint32_t n; left > 0; left -= n) {
        n = left < 56 ? left : 56;
        take_bits(t, bytes, c, n_cursors, n);
    }
}

uint64_t tree_decode(const tree *t, const uint8_t *bytes, uint64_t at, const uint16_t *row_bits, uint32_t n_rows,
                     uint8_t *const *out) {
    cursor c[TREE_ROWS];
    for (uint32_t r = 0; r < n_rows; r++) {
        c[r] = (cursor){.at = at, .n_bits = row_bits[r], .out = out[r]};
        at += row_bits[r];
    }
    if (n_rows == TREE_ROWS) take_shortest(t, bytes, c, TREE_ROWS);
    for (uint32_t r = 0; r < n_rows; r++) take_shortest(t, bytes, &c[r], 1);
    return at;
}

/* ---- attention --------------------------------------------------------------------------------- */

size_t tree_scratch_floats(const tree_format *f, uint32_t n_group) {
    return (size_t)n_group * (f->head_dim + f->tokens + 1) + (size_t)TREE_ROWS * f->head_dim;
}

/* Queries times the steps of their dimensions, [n_group][d], and with the minimums, [n_group]. */
static void fold_steps(const tree_format *f, const tree_rows *k, const pleat__attn_query *query, float *folded,
                       float *bias) {
    const uint32_t d = f->head_dim;
    for (uint32_t g = 0; g < query->n_group; g++) {
        bias[g] = 0;
        for (uint32_t i = 0; i < d; i++) {
            const uint32_t unit = f->by_channel ? i : 0;
            const float q = query->f32[(size_t)g * d + i];
            folded[(size_t)g * d + i] = q * pleat__f16_to_f32(k->steps[unit]);
            bias[g] += q * pleat__f16_to_f32(k->mins[unit]);
        }
    }
}

/* Sixteen sums at once, which a compiler may keep in vectors. */
static float dot(const float *a, const float *b, uint32_t n) {
    float sums[16] = {0};
    for (uint32_t i = 0; i < n; i += 16)
        for (uint32_t j = 0; j < 16; j++) sums[j] += a[i + j] * b[i + j];
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

/* Codes of the next rows as floats, [rows_at_once][d]. */
static uint64_t decode_floats(const tree_format *f, const tree *t, const tree_rows *rows, uint64_t at, uint32_t row,
                              float *out) {
    uint8_t codes[TREE_ROWS][PLEAT__MAX_HEAD_DIM + 1];
    uint8_t *const to[TREE_ROWS] = {codes[0], codes[1], codes[2], codes[3]};
    at = tree_decode(t, rows->bytes, at, rows->row_bits + row, f->rows_at_once, to);
    for (uint32_t r = 0; r < f->rows_at_once; r++)
        for (uint32_t i = 0; i < f->head_dim; i++) out[r * f->head_dim + i] = codes[r][i];
    return at;
}

/* logit2 [n_group][T] */
static void attend_keys(const tree_format *f, const tree_rows *k, uint32_t n_group, const float *folded,
                        const float *bias, float *rows, float *logits) {
    const uint32_t d = f->head_dim;
    uint64_t at = 0;
    for (uint32_t token = 0; token < f->tokens; token++) {
        const uint32_t r = token % f->rows_at_once;
        if (r == 0) at = decode_floats(f, f->k, k, at, token, rows);
        for (uint32_t g = 0; g < n_group; g++)
            logits[(size_t)g * f->tokens + token] = bias[g] + dot(folded + (size_t)g * d, rows + (size_t)r * d, d);
    }
}

/* Logits to weights against the new maximum, to which acc is brought. */
static void weigh(const tree_format *f, uint32_t g, float *logits, pleat__attn_acc *acc) {
    float max = acc->m[g], sum = 0;
    for (uint32_t i = 0; i < f->tokens; i++) max = logits[i] > max ? logits[i] : max;
    const float rescale = exp2f(acc->m[g] - max);
    for (uint32_t i = 0; i < f->tokens; i++) sum += logits[i] = exp2f(logits[i] - max);
    acc->m[g] = max;
    acc->l[g] = acc->l[g] * rescale + sum;
    for (uint32_t i = 0; i < f->head_dim; i++) acc->o[(size_t)g * f->head_dim + i] *= rescale;
}

static void attend_values(const tree_format *f, const tree_rows *v, uint32_t n_group, const float *weights, float *bias,
                          float *rows, float *o) {
    const uint32_t d = f->head_dim;
    uint64_t at = 0;
    memset(bias, 0, n_group * sizeof *bias);
    for (uint32_t token = 0; token < f->tokens; token++) {
        const float min = pleat__f16_to_f32(v->mins[token]), step = pleat__f16_to_f32(v->steps[token]);
        const uint32_t r = token % f->rows_at_once;
        if (r == 0) at = decode_floats(f, f->v, v, at, token, rows);
        for (uint32_t g = 0; g < n_group; g++) {
            const float weight = weights[(size_t)g * f->tokens + token], scale = weight * step;
            bias[g] += weight * min;
            for (uint32_t i = 0; i < d; i++) o[(size_t)g * d + i] += scale * rows[(size_t)r * d + i];
        }
    }
    for (uint32_t g = 0; g < n_group; g++)
        for (uint32_t i = 0; i < d; i++) o[(size_t)g * d + i] += bias[g];
}

void tree_attend(const tree_format *f, const tree_rows *k, const tree_rows *v, const pleat__attn_query *query,
                 pleat__attn_acc *acc, float *scratch) {
    const uint32_t n = query->n_group;
    float *folded = scratch, *logits = folded + (size_t)n * f->head_dim, *bias = logits + (size_t)n * f->tokens;
    float *rows = bias + n;
    fold_steps(f, k, query, folded, bias);
    attend_keys(f, k, n, folded, bias, rows, logits);
    for (uint32_t g = 0; g < n; g++) weigh(f, g, logits + (size_t)g * f->tokens, acc);
    attend_values(f, v, n, logits, bias, rows, acc->o);
}
