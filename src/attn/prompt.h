/* SPDX-License-Identifier: MIT
 *
 * prompt.h: the variants of prompt attention and of the attention received, and the walks they share.
 *
 * A lane is walked in blocks of 64 keys, all rows (query i, head g: row i*G + g) at once:
 *
 *     for each block of a run, from its slot 0                       prompt_blocked.c
 *         K, V: tiles in place (f32) or dequantised to scratch       prompt_blocked.c
 *         logits    s = q k'             [rows][64]                  variant
 *         adjust    where the model bounds its logits, and masses    variant (cap.h), prompt_blocked.c (mass.h)
 *         weights   s = 2^(s - m'), m = m', l = l*2^(m-m') + sum     variant
 *         values    o = o*2^(m-m') + s v'                            variant
 *     out = o/l, lse2 = m + log2(l)                                  prompt_blocked.c
 *
 * The attention that a slot receives needs the rows' final lse2.  Where there is memory for it, a walk keeps the weights
 * of its blocks, each relative to the maximum m' of its time, and adds them up at its end:
 *
 *     for each block that was kept                                   prompt_blocked.c
 *         received += max over g of (s * 2^(m' - lse2))              variant (collect)
 *
 * Where there is none, a second walk makes the logits again, not the values.  A range of slots is walked by itself, in
 * spans of up to four blocks:
 *
 *     for each span of the range                                     received_blocked.c
 *         K: tiles in place or dequantised, once                     prompt_blocked.c
 *         for each block of rows, in the order of queries            received_blocked.c
 *             for each block of the span that these rows see         received_blocked.c
 *                 logits, adjust                                     as above
 *                 received += 2^(max over g of (s - lse2))           variant
 *
 * A row's bits depend on its query and the keys it sees alone, not on the rows it shares the call with.  Blocks start
 * at fixed slots of a run, a logit is a chain of sums over 64 dimensions at a time, and each block's values are one
 * chain over its slots.  A hidden slot has weight +0, which changes nothing, so hidden rows and blocks may be skipped.
 * received is summed query by query onto what is there: cutting the slots or a prompt elsewhere keeps the bits of one
 * array too.
 */
#ifndef PLEAT_ATTN_PROMPT_H
#define PLEAT_ATTN_PROMPT_H

#include "attn/attn.h"

void pleat__attn_prompt_ref(const pleat__attn_prompt *args);
void pleat__attn_prompt_avx2(const pleat__attn_prompt *args);   /* needs PLEAT_CPU_AVX2 */
void pleat__attn_prompt_avx512(const pleat__attn_prompt *args); /* needs PLEAT_CPU_AVX512 */
void pleat__attn_prompt_neon(const pleat__attn_prompt *args);   /* needs PLEAT_CPU_NEON */

void pleat__attn_prompt_received_ref(const pleat__attn_prompt_received *args);
void pleat__attn_prompt_received_avx2(const pleat__attn_prompt_received *args);   /* needs PLEAT_CPU_AVX2 */
void pleat__attn_prompt_received_avx512(const pleat__attn_prompt_received *args); /* needs PLEAT_CPU_AVX512 */
void pleat__attn_prompt_received_neon(const pleat__attn_prompt_received *args);   /* needs PLEAT_CPU_NEON */

/* Tiles and keys of a block.  64: one word says which of them a row sees, and a slice of K or V that all rows meet
 * stays in L1. */
#define PLEAT__PROMPT_TILES 4u
#define PLEAT__PROMPT_KEYS (PLEAT__PROMPT_TILES * PLEAT__TILE)

/* Dimensions that a logit sums before it adds them to those before.  At d = 512 one long chain would lose 2e-6 of the
 * result to rounding, and these of all 64 keys take 16 KiB whatever d is. */
#define PLEAT__PROMPT_CHAIN 64u

/* Entries of per-row arrays: kernels may handle 16 rows' maxima at once, from any row on. */
#define PLEAT__PROMPT_ROW_CAP (PLEAT__PROMPT_ROWS + 16u)

/* A block of keys and the rows that see some of it, row_from .. n_rows-1.  All arrays are aligned to 64 bytes.
 * Variants write s, o, l, m, rescale and received alone; collect's rescale is 2^(m - lse2). */
typedef struct pleat__prompt_block {
    uint32_t head_dim;
    uint32_t n_group;
    uint32_t n_rows;
    uint32_t row_from;                         /* a multiple of n_group */
    uint32_t n_tiles;                          /* 1..PLEAT__PROMPT_TILES that hold keys; the others' k may be read */
    const float *k[PLEAT__PROMPT_TILES];       /* [d][16 keys] */
    const float *v[PLEAT__PROMPT_TILES];       /* [16 keys][d]; not for `received` */
    const uint16_t *mass[PLEAT__PROMPT_TILES]; /* [16 keys]; NULL: none has any */
    uint64_t *visible;                         /* [row] bit j: the row sees slot j of the block */
    float *q;                                  /* [row][d], times scale*log2(e) */
    float *s;                                  /* [row][64] logit2, then weight */
    float *o;                                  /* [row][d]; o, l, m as in attn.h */
    float *l;                                  /* [row] */
    float *m;                                  /* [row]; past n_rows -infinity, and stays so */
    float *rescale;                            /* [row] 2^(m - m'), from weights to values */
    float *lse2;                               /* [row] for `received` and `collect`, as is */
    float *received;                           /* [64] */
} pleat__prompt_block;

/* What a walk keeps of a block for `collect`. */
typedef struct pleat__prompt_kept {
    _Alignas(64) float s[PLEAT__PROMPT_ROWS * PLEAT__PROMPT_KEYS];
    float m[PLEAT__PROMPT_ROW_CAP];
    uint32_t row_from;
    uint32_t n_tiles;
    uint32_t at; /* its first slot in `received` */
} pleat__prompt_kept;

/* Set the block's tiles to those of slots [slot, slot + n_slots) of a run, n_slots <= 64, and return which of these are
 * alive.  Tiles that are not f32 are dequantised to k and v [4 tiles][16*d]; no values are if v is NULL. */
uint64_t pleat__prompt_fetch(pleat__prompt_block *b, const pleat__kv_run *run, uint32_t slot, uint32_t n_slots,
                             const pleat__quant_dsp *quant, float *k, float *v);

/* Set row_from and visible.  Query i of the block, n_queries in all, sees slots [0, seen + i*step) of the run, of which
 * the block has those from `slot` on.  `alive` are those that anyone may see.  step is 0 or 1. */
void pleat__prompt_set_visible(pleat__prompt_block *b, uint32_t slot, uint64_t alive, uint32_t n_queries, uint32_t seen,
                               uint32_t step);

/* Slots that queries do not see, though they are before them: of n slots in a circle, query i misses the n_hidden + i
 * ones from slot `oldest` on; none if that is below 0. */
typedef struct pleat__prompt_hidden {
    uint32_t n, oldest;
    int64_t n_hidden;
} pleat__prompt_hidden;

/* Bound the block's logits where cap2 is not 0 (cap.h), and add masses where there are (mass.h). */
void pleat__prompt_adjust(const pleat__prompt_block *b, pleat__attn_cap_fn cap, float cap2);

/* Copy queries [n][G][d] to q, scaled. */
void pleat__prompt_read_queries(float *to, const float *q, size_t q_stride, uint32_t n_queries, size_t row_floats,
                                float scale);

/* Call fn(b, row, n, ...) for the rows of a block in sixes and a rest, n being a constant in each. */
#define PLEAT__PROMPT_ROW_STEP 6u
#define PLEAT__PROMPT_FOR_ROWS(b, fn, ...)                                                 \
    for (uint32_t row = (b)->row_from; row < (b)->n_rows; row += PLEAT__PROMPT_ROW_STEP) { \
        switch (pleat__min_u32((b)->n_rows - row, PLEAT__PROMPT_ROW_STEP)) {               \
            case 1: fn(b, row, 1, __VA_ARGS__); break;                                     \
            case 2: fn(b, row, 2, __VA_ARGS__); break;                                     \
            case 3: fn(b, row, 3, __VA_ARGS__); break;                                     \
            case 4: fn(b, row, 4, __VA_ARGS__); break;                                     \
            case 5: fn(b, row, 5, __VA_ARGS__); break;                                     \
            default: fn(b, row, PLEAT__PROMPT_ROW_STEP, __VA_ARGS__); break;               \
        }                                                                                  \
    }

/* What a variant supplies. */
typedef struct pleat__prompt_ops {
    void (*logits)(const pleat__prompt_block *block);
    pleat__attn_cap_fn cap;
    void (*weights)(const pleat__prompt_block *block);
    void (*values)(const pleat__prompt_block *block);
    void (*received)(const pleat__prompt_block *block);
    void (*collect)(
        const pleat__prompt_block *block); /* n_group: heads of which the largest counts; m as it was kept */
} pleat__prompt_ops;

/* pleat__attn_prompt_fn and pleat__attn_prompt_received_fn for a variant. */
void pleat__attn_prompt_blocked(const pleat__attn_prompt *args, const pleat__prompt_ops *ops);
void pleat__attn_prompt_received_blocked(const pleat__attn_prompt_received *args, const pleat__prompt_ops *ops);

#endif
