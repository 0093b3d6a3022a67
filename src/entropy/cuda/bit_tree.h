/* SPDX-License-Identifier: MIT
 *
 * bit_tree.h: codes as KVComp's paper has them on a GPU (sections 3.2 and 3.3): the baseline of words.h, for measuring.
 *
 *     a row's codes one behind the other in a Huffman code of single codes; rows one behind the other, each as many
 *     bits as it has, which are kept beside it
 *
 * A reader follows a tree bit by bit: a *branch* is where a bit leads to from a node.
 */
#ifndef PLEAT_ENTROPY_CUDA_BIT_TREE_H
#define PLEAT_ENTROPY_CUDA_BIT_TREE_H

#include "entropy/codebook.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEAT__BIT_TREE_LEAF 0x8000u

typedef struct pleat__bit_branch {
    uint16_t next; /* branch of bit 0 of the next node (bit 1's is behind it); of a leaf 0: the root's */
    uint16_t leaf; /* of a leaf its code, with PLEAT__BIT_TREE_LEAF set; else 0 */
} pleat__bit_branch;

typedef struct pleat__bit_tree {
    pleat__bit_branch branches[2 * PLEAT__CODEBOOK_SYMBOLS];
    uint32_t n_branches;
    uint16_t words[PLEAT__CODEBOOK_SYMBOLS]; /* the first bit is the highest of bits[] */
    uint8_t bits[PLEAT__CODEBOOK_SYMBOLS];
} pleat__bit_tree;

/* The tree for codes that occur so often; one is added to each count.  2 <= n_levels <= 256; words of up to 9 bits. */
void pleat__bit_tree_build(pleat__bit_tree *tree, const uint64_t *counts, uint32_t n_levels);

/* Rows of a matrix whose codes are in the order of vectors (docs/FORMAT.md); row_bits [rows].  Returns the 32-bit words,
 * at most rows * columns * 9 / 32 and one. */
size_t pleat__bit_tree_encode(const pleat__bit_tree *tree, const uint8_t *codes, uint32_t rows, uint32_t columns,
                              uint16_t *row_bits, uint32_t *out);

#ifdef __cplusplus
}
#endif
#endif
