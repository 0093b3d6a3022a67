/* SPDX-License-Identifier: MIT
 *
 * bit_tree.c: Huffman's tree as branches, and rows in its words.  See bit_tree.h.
 */
#include "entropy/cuda/bit_tree.h"

#include <string.h>

/* Branches along a code's word, made where there are none. */
static void add_word(pleat__bit_tree *tree, uint32_t code) {
    uint32_t node = 0;
    for (uint32_t i = tree->bits[code]; i-- > 0;) {
        pleat__bit_branch *branch = &tree->branches[node + (tree->words[code] >> i & 1)];
        if (i == 0) {
            branch->leaf = (uint16_t)(PLEAT__BIT_TREE_LEAF | code);
        } else if (branch->next == 0) {
            branch->next = (uint16_t)tree->n_branches;
            tree->n_branches += 2;
        }
        node = branch->next;
    }
}

void pleat__bit_tree_build(pleat__bit_tree *tree, const uint64_t *counts, uint32_t n_levels) {
    uint64_t weights[PLEAT__CODEBOOK_SYMBOLS] = {0};
    memset(tree, 0, sizeof *tree);
    for (uint32_t i = 0; i < n_levels; i++) weights[i] = counts[i] + 1;
    pleat__codebook_lengths(weights, n_levels, PLEAT__CODEBOOK_WIDE_BITS, tree->bits);
    uint32_t word = 0;
    for (uint32_t length = 1; length <= PLEAT__CODEBOOK_WIDE_BITS; length++, word <<= 1)
        for (uint32_t code = 0; code < n_levels; code++)
            if (tree->bits[code] == length) tree->words[code] = (uint16_t)word++;
    tree->n_branches = 2;
    for (uint32_t code = 0; code < n_levels; code++) add_word(tree, code);
}

size_t pleat__bit_tree_encode(const pleat__bit_tree *tree, const uint8_t *codes, uint32_t rows, uint32_t columns,
                              uint16_t *row_bits, uint32_t *out) {
    uint64_t at = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const uint64_t from = at;
        for (uint32_t column = 0; column < columns; column++) {
            const uint32_t vector = row / 16 * (columns / 4) + column / 4;
            const uint8_t code = codes[(size_t)vector * 64 + 4 * (row % 16) + column % 4];
            for (uint32_t i = tree->bits[code]; i-- > 0; at++) {
                if (at % 32 == 0) out[at / 32] = 0;
                out[at / 32] |= (uint32_t)(tree->words[code] >> i & 1) << at % 32;
            }
        }
        row_bits[row] = (uint16_t)(at - from);
    }
    return (size_t)((at + 31) / 32);
}
