/* SPDX-License-Identifier: MIT
 *
 * blocks_amx.c: decode attention over compressed blocks with AMX's tiles of bytes.
 *
 * Vectors of codes, 16 rows by 4 columns each, lie in memory as a tile wants its second factor: 16 vectors are 64
 * columns of 16 rows.  The first is 12 rows of 64 limbs: three limbs of four heads.  Sums are exact: the bits are those
 * of the VNNI variant.  A tile that ends before 64 columns reads what lies behind, which meets limbs that are 0.
 */
#include "attn/x86/blocks_avx512.h"

/* What LDTILECFG reads, palette 1. */
typedef struct tile_config {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Registers.  More of them, for the sums of four blocks at once, gain nothing: products follow each other at full speed
 * as it is. */
#define SUMS 0
#define LIMBS_TILE 1
#define CODES 2
#define N_TILES 3

/* gcc 12 does not know what tile instructions read: stores before this come before them, stores after it after. */
#define MEMORY_IS_READ(p) __asm__ volatile("" ::"r"(p) : "memory")

static void begin(pleat__blocks_walk *w) {
    tile_config config = {.palette = 1};
    for (int t = 0; t < N_TILES; t++) {
        config.rows[t] = t == CODES ? COLUMNS / 4 : LIMB_ROWS;
        config.row_bytes[t] = 64;
    }
    MEMORY_IS_READ(&config);
    _tile_loadconfig(&config);
    pleat__blocks_begin_avx512(w);
}

static void end(pleat__blocks_walk *w) {
    (void)w;
    _tile_release();
}

/* sums = codes of n_columns columns times limbs. */
static void dots(const uint8_t *codes, uint32_t n_columns, const int8_t *limbs, pleat__blocks_sums *sums) {
    MEMORY_IS_READ(codes);
    _tile_zero(SUMS);
    for (uint32_t i = 0; i < n_columns; i += COLUMNS, codes += COLUMNS * ROWS, limbs += LIMB_BYTES) {
        _tile_loadd(CODES, codes, VECTOR);
        _tile_loadd(LIMBS_TILE, limbs, COLUMNS);
        _tile_dpbsud(SUMS, LIMBS_TILE, CODES);
    }
    _tile_stored(SUMS, sums->of, sizeof sums->of[0]);
}

static void keys(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t d = w->format->head_dim;
    pleat__blocks_sums sums[PLEAT__STREAMS];
    for (uint32_t head = 0; head < w->query->n_group; head += HEADS) {
        for (uint32_t b = 0; b < w->n_blocks; b++)
            dots(w->codes + (size_t)b * d * ROWS, d, pleat__key_limbs(w, b, head), &sums[b]);
        pleat__blocks_write_logits(w, head, slice, sums);
    }
}

static void values(pleat__blocks_walk *w, uint32_t slice) {
    pleat__blocks_sums sums[MOST_PARTS];
    for (uint32_t head = 0; head < w->query->n_group; head += HEADS) {
        const int8_t *limbs = pleat__value_limbs(w, head);
        for (uint32_t from = 0, p = 0; from < w->n_tokens; from += PART_TOKENS, p++)
            dots(w->codes + (size_t)from * ROWS, pleat__min_u32(w->n_tokens - from, PART_TOKENS),
                 limbs + p * PART_LIMB_BYTES, &sums[p]);
        pleat__blocks_add_values(w, head, slice, sums);
    }
}

static const pleat__blocks_steps steps_amx = {.begin = begin,
                                              .keys_begin = pleat__blocks_keys_begin_avx512,
                                              .keys = keys,
                                              .softmax = pleat__blocks_softmax_avx512,
                                              .values_begin = pleat__blocks_values_begin_avx512,
                                              .values = values,
                                              .end = end};

bool pleat__attn_blocks_amx(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                            uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    return pleat__blocks_walk_run(&steps_amx, query, codec, run, block_from, block_to, acc, scratch);
}
