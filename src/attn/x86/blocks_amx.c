/* SPDX-License-Identifier: MIT
 *
 * blocks_amx.c: decode attention over compressed blocks with AMX's tiles of bytes.
 *
 * Vectors of codes, 16 rows by 4 columns each, lie in memory as a tile wants its second factor: 16 vectors are 64
 * columns of 16 rows.  The first is 8 rows of 64 limbs: two limbs of four heads.  Sums are exact: the bits are those
 * of the VNNI variant.  A tile that ends before 64 columns reads what lies behind, which meets limbs that are 0.
 */
#include "attn/x86/blocks_avx512.h"
#include "core/x86/amx.h"

/* Registers.  More of them, for the sums of four blocks at once, gain nothing: products follow each other at full speed
 * as it is. */
#define SUMS 0
#define LIMBS_TILE 1
#define CODES 2
#define N_TILES 3

/* So many heads use half a tile at most, and are multiplied faster by VNNI: one call of two heads of dimension 64 in
 * half the time, of dimension 128 in the same (Emerald Rapids, 2026-11). */
#define FEW_HEADS 2

static void begin(pleat__blocks_walk *w) {
    pleat__amx_config config = {.palette = 1};
    for (int t = 0; t < N_TILES; t++) {
        config.rows[t] = t == CODES ? COLUMNS / 4 : LIMB_ROWS;
        config.row_bytes[t] = 64;
    }
    PLEAT__AMX_READS(&config);
    _tile_loadconfig(&config);
    pleat__blocks_begin_avx512(w);
}

static void end(pleat__blocks_walk *w) {
    (void)w;
    _tile_release();
}

/* Always of four heads: a tile has them anyway. */
static void dots(const uint8_t *codes, uint32_t n_columns, const int8_t *limbs, uint32_t n_heads,
                 pleat__blocks_sums *sums) {
    (void)n_heads;
    PLEAT__AMX_READS(codes);
    _tile_zero(SUMS);
    for (uint32_t i = 0; i < n_columns; i += COLUMNS, codes += COLUMNS * ROWS, limbs += LIMB_BYTES) {
        _tile_loadd(CODES, codes, VECTOR);
        _tile_loadd(LIMBS_TILE, limbs, COLUMNS);
        _tile_dpbsud(SUMS, LIMBS_TILE, CODES);
    }
    _tile_stored(SUMS, sums->of, sizeof sums->of[0]);
}

static void keys(pleat__blocks_walk *w, uint32_t slice) { keys_by(dots, w, slice); }
static void values(pleat__blocks_walk *w, uint32_t slice) { values_by(dots, w, slice); }

static const pleat__blocks_steps steps_amx = BLOCKS_STEPS(begin, keys, values, end, false);

bool pleat__attn_blocks_amx(const pleat__attn_query *query, const pleat__codec_dsp *codec, const pleat__block_run *run,
                            uint32_t block_from, uint32_t block_to, pleat__attn_acc *acc, void *scratch) {
    const pleat__blocks_steps *steps = query->n_group > FEW_HEADS ? &steps_amx : &pleat__blocks_steps_vnni;
    return pleat__blocks_walk_run(steps, query, codec, run, block_from, block_to, acc, scratch);
}
