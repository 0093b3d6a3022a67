/* SPDX-License-Identifier: MIT
 *
 * codec_tree.h: KVComp as its paper describes it (sections 3.2 and 3.3), on the CPU: the baseline of bench_codec.
 *
 *     codes ── count ──> tree ── encode rows ──> bits, and how many a row has ── decode a row ──> codes
 *
 * The tree is an array of nodes with the indexes of their two children; 0 is the root.  A row is a token's key or value,
 * d codes, and is decoded by itself, bit by bit and without a branch.  The symbol of the node that a bit leads to is
 * always written.  If that node is a leaf, the place to write to moves on and the node goes back to the root.
 *
 * On a GPU each thread has a row.  A CPU's core has to wait for each bit of a row, so it may take four rows bit by bit
 * in turn, which is ours.
 *
 * Attention is fused with it: a row of keys is decoded to a buffer of d codes and multiplied with the queries of the
 * group at once, a row of values with their weights.  Steps and minimums fold in as in attn/blocks.h.
 */
#ifndef BENCH_CODEC_TREE_H
#define BENCH_CODEC_TREE_H

#include "attn/attn.h"

#define TREE_LEVELS 256u
#define TREE_PAD 8u /* readable bytes behind a block's bits */

typedef struct tree_node {
    uint16_t child[2];
    uint16_t symbol;
    uint16_t is_symbol; /* 0 or 1 */
} tree_node;

typedef struct tree {
    tree_node nodes[2 * TREE_LEVELS];
    uint64_t words[TREE_LEVELS]; /* the first bit is the lowest */
    uint8_t bits[TREE_LEVELS];
} tree;

/* Huffman's tree for 2 <= n_levels <= 256; one is added to every count. */
void tree_build(tree *t, const uint64_t *counts, uint32_t n_levels);

/* Append rows of d codes to `out`, which is zeros; row_bits [n_rows].  Returns their bytes. */
size_t tree_encode(const tree *t, const uint8_t *codes, uint32_t n_rows, uint32_t d, uint16_t *row_bits, uint8_t *out);

#define TREE_ROWS 4u

/* Decode the next n_rows rows, 1 or TREE_ROWS, whose bits begin at bit `at` of `bytes`; returns the bit behind them.
 * out[i] has one byte more than a row has codes. */
uint64_t tree_decode(const tree *t, const uint8_t *bytes, uint64_t at, const uint16_t *row_bits, uint32_t n_rows,
                     uint8_t *const *out);

/* Keys or values of a block. */
typedef struct tree_rows {
    const uint8_t *bytes;
    const uint16_t *row_bits; /* [T] */
    const uint16_t *mins;     /* f16: of the keys [d] or [1], of the values [T] */
    const uint16_t *steps;
} tree_rows;

typedef struct tree_format {
    const tree *k, *v;
    uint32_t head_dim, tokens; /* of a block; head_dim a multiple of 16 */
    bool by_channel;           /* keys */
    uint32_t rows_at_once;     /* 1 or TREE_ROWS */
} tree_format;

/* Floats of scratch for a call below. */
size_t tree_scratch_floats(const tree_format *format, uint32_t n_group);

/* Add a block to acc, as pleat__attn_decode_fn adds slots.  Reads query->f32. */
void tree_attend(const tree_format *format, const tree_rows *k, const tree_rows *v, const pleat__attn_query *query,
                 pleat__attn_acc *acc, float *scratch);

#endif
