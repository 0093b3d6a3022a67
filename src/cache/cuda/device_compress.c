/* SPDX-License-Identifier: MIT
 *
 * device_compress.c: a device cache whose cold tokens become blocks: kvcomp with fixed widths (+pack).
 *
 * Of kvcomp's coders fixed widths are a GPU's: every thread finds its codes by a prefix sum, where a Huffman stream is
 * read symbol by symbol (attn/cuda/blocks.h has the counts).  What is built, from the smallest that is whole:
 *
 *     prompt     attention on exact keys and values; tokens into the high side's pages, as without blocks; then a
 *                layer's cold ones are encoded, all blocks at once, and take the low side's place of their pages
 *     step       append to the high side; attention over that by decode.h, over blocks by attn/cuda/blocks.h, merged
 *     end        lanes with more than sinks and buffer encode their oldest 64 tokens: no page is taken, trim returns
 *                what is left over
 *
 * Payloads are the CPU's, byte for byte (codec/cuda/pack_encode.cuh).  All lanes of a sequence have as many blocks; their
 * bytes differ.  A fork copies all pages at once.  Images, export and prompts in parts are refused: nobody has written
 * them.
 */
#include <math.h>
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "codec/block.h"
#include "codec/internal.h"
#include "core/error.h"
#include "quant/bounded.h"

#define MAX_PARTS 64u
/* FIXED_SPLITS: blocks of a part. */
#define PART_BLOCKS 16u
/* More parts than any device has room for at once. */
#define MOST_RESIDENT 8192u

_Static_assert(PLEAT__PACK_TOKENS == PLEAT__DEVICE_BLOCK_TOKENS && PLEAT__PACK_LEVELS == PLEAT__DEVICE_BLOCK_LEVELS,
               "what encodes and what attends take the same blocks");

bool pleat__device_spec_has_blocks(const pleat_spec *spec) {
    return spec->compressor == PLEAT_COMPRESSOR_KVCOMP && spec->pack;
}

pleat_status pleat__device_compress_check(const pleat_spec *spec, uint32_t head_dim, bool is_wide, pleat_error *err) {
    pleat__block_format f;
    if (!pleat__device_spec_has_blocks(spec)) return PLEAT_OK;
    PLEAT_FAIL_IF(is_wide || pleat__block_format_of(spec, head_dim, &f) != PLEAT_OK || f.tokens != PLEAT__PACK_TOKENS ||
                      f.k_levels > PLEAT__PACK_LEVELS || f.v_levels > PLEAT__PACK_LEVELS || f.v_group != head_dim ||
                      spec->high.rotated || spec->sinks >= PLEAT__TILE,
                  err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: on a GPU kvcomp+pack is for heads of 64 and 128, groups up to 8, no windows and no "
                  "bounded logits, blocks of 64 tokens, k and v from 0.07 on, fewer than 16 sinks, and plain formats");
    return PLEAT_OK;
}

uint32_t pleat__device_blocks_of(const pleat_device_cache *c, uint32_t n_tokens) {
    return c->lanes.policy.has_blocks ? pleat__blocks_due(&c->opt.spec, n_tokens, PLEAT__PACK_TOKENS) : 0;
}

uint32_t pleat__device_compress_most_pages(const pleat_device_cache *c, uint32_t n_tokens) {
    const uint32_t n_blocks = pleat__device_blocks_of(c, n_tokens);
    const uint64_t n_units = (uint64_t)n_blocks * c->lanes.blocks.coder.cap_bytes / PLEAT__BLOCK_ALIGN;
    const uint32_t page_units = c->lanes.pages.page_tokens[1];
    return pleat__div_up_u32(n_tokens - n_blocks * PLEAT__PACK_TOKENS, c->lanes.layouts[0].tokens) +
           (uint32_t)((n_units + page_units - 1) / page_units);
}

pleat_status pleat__device_compress_copy(const pleat_device_cache *c, uint32_t from_row, uint32_t to_row,
                                         pleat__device_stream stream, pleat_error *err) {
    const pleat__device_lane_blocks *b = &c->lanes.blocks;
    const uint64_t n = c->rows_per_seq, cap = b->ends_cap;
    if (!c->lanes.policy.has_blocks) return PLEAT_OK;
    PLEAT_TRY(
        pleat__device_copy(b->ends + to_row * cap, b->ends + from_row * cap, n * cap * sizeof *b->ends, stream, err));
    return pleat__device_copy(b->n_blocks + to_row, b->n_blocks + from_row, n * sizeof *b->n_blocks, stream, err);
}

/* ---- create ---------------------------------------------------------------------------------------------- */

static pleat__pack_matrix matrix_of(float rel, uint32_t n_levels, bool on_grids) {
    return (pleat__pack_matrix){.rel = rel,
                                .bits = pleat__code_bits(n_levels),
                                .top_grid = pleat__bounded_grid_levels(rel) - 1,
                                .top_wide = pleat__bounded_levels(rel) - 1,
                                .on_grids = on_grids};
}

pleat_status pleat__device_compress_derive(pleat_device_cache *c, pleat_error *err) {
    pleat__block_format f;
    pleat__device_lane_blocks *b = &c->lanes.blocks;
    if (!c->lanes.policy.has_blocks) return PLEAT_OK;
    PLEAT_TRY(pleat__block_format_of(&c->opt.spec, c->opt.head_dim, &f));
    b->coder = (pleat__pack_coder){.k = matrix_of(f.k_rel, f.k_levels, f.k_on_grids),
                                   .v = matrix_of(f.v_rel, f.v_levels, f.v_on_grids),
                                   .by_channel = f.by_channel,
                                   .seed = pleat__block_seed(&f, NULL),
                                   .cap_bytes = (uint32_t)(pleat__block_bound(&f) + PLEAT__BLOCK_ALIGN - 1) /
                                                PLEAT__BLOCK_ALIGN * PLEAT__BLOCK_ALIGN};
    b->buffer = c->opt.spec.buffer;
    b->ends_cap = c->opt.max_tokens / PLEAT__PACK_TOKENS + 1;
    const uint32_t tokens = c->opt.page_tokens;
    PLEAT_FAIL_IF(PLEAT__PACK_TOKENS % tokens != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device cache: page_tokens %u does not divide the spec's blocks of %u tokens", tokens,
                  PLEAT__PACK_TOKENS);
    const uint64_t room = PLEAT__PACK_TOKENS / tokens * c->lanes.page_bytes;
    PLEAT_FAIL_IF(
        b->coder.cap_bytes > room, err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "device cache: a block may take %u bytes, more than the %llu that its tokens take in the buffer: give "
        "the spec's high more bits, or its steps more width",
        b->coder.cap_bytes, (unsigned long long)room);
    return PLEAT_OK;
}

void pleat__device_compress_carve_tables(pleat_device_cache *c, pleat__arena *arena) {
    pleat__device_lane_blocks *b = &c->lanes.blocks;
    const uint64_t n_rows = c->lanes.policy.has_blocks ? (uint64_t)c->opt.max_seqs * c->rows_per_seq : 0;
    b->ends = pleat__device_carve(arena, n_rows * b->ends_cap, sizeof *b->ends);
    b->n_blocks = pleat__device_carve(arena, n_rows, sizeof *b->n_blocks);
}

/* Of a lane, by FIXED_SPLITS. */
static uint32_t fixed_parts(const pleat_device_cache *c) {
    return pleat__min_u32(pleat__div_up_u32(c->lanes.blocks.ends_cap, PART_BLOCKS), MAX_PARTS);
}

/* Of all lanes, at most. */
static uint64_t most_parts(const pleat_device_cache *c) {
    const uint64_t n_lanes = (uint64_t)c->opt.max_seqs * c->opt.n_kv_heads;
    const uint64_t n_fixed = c->opt.schedule == PLEAT_DEVICE_FIXED_SPLITS ? n_lanes * fixed_parts(c) : 0;
    return n_fixed > n_lanes + MOST_RESIDENT ? n_fixed : n_lanes + MOST_RESIDENT;
}

void pleat__device_compress_carve_workspace(pleat_device_cache *c, pleat__arena *arena) {
    pleat__device_lane_blocks *b = &c->lanes.blocks;
    const bool has = c->lanes.policy.has_blocks;
    const uint64_t n_prompt = has ? (uint64_t)c->opt.n_kv_heads * b->ends_cap : 0;
    const uint64_t n_heads = has ? (uint64_t)c->opt.max_seqs * c->opt.n_q_heads : 0;
    b->payloads = pleat__device_carve(arena, n_prompt * b->coder.cap_bytes, 1);
    b->sizes = pleat__device_carve(arena, n_prompt, sizeof *b->sizes);
    c->block_other = pleat__device_carve(arena, n_heads * c->opt.head_dim, sizeof *c->block_other);
    c->block_parts = pleat__device_carve(arena, has ? most_parts(c) * c->n_group * (c->opt.head_dim + 2u) : 0,
                                         sizeof *c->block_parts);
}

/* ---- attention ------------------------------------------------------------------------------------------- */

static pleat__device_block_lanes lanes_of(const pleat_device_cache *c) {
    const pleat__device_lanes *l = &c->lanes;
    return (pleat__device_block_lanes){.base = l->base,
                                       .page_bytes = l->page_bytes,
                                       .page_units = l->pages.page_tokens[1],
                                       .ids = l->pages.ids,
                                       .row_len = l->pages.row_len,
                                       .ends = l->blocks.ends,
                                       .ends_cap = l->blocks.ends_cap,
                                       .n_blocks = l->blocks.n_blocks,
                                       .seq_idxs = l->pages.seq_idxs,
                                       .n_seqs = l->pages.n_seqs,
                                       .n_layers = l->n_layers,
                                       .n_kv_heads = l->n_kv_heads,
                                       .n_group = c->n_group,
                                       .head_dim = l->head_dim,
                                       .k_bits = l->blocks.coder.k.bits,
                                       .v_bits = l->blocks.coder.v.bits,
                                       .by_channel = l->blocks.coder.by_channel};
}

pleat_status pleat__device_compress_attend(const pleat_device_cache *c, uint32_t layer, const uint16_t *q,
                                           const float *other, float *lse2, void *out, bool is_f16,
                                           pleat__device_stream stream, pleat_error *err) {
    pleat__device_blocks_attn a = {.lanes = lanes_of(c),
                                   .layer = layer,
                                   .q = q,
                                   .scale = c->scale,
                                   .parts = c->block_parts,
                                   .other = other,
                                   .lse2 = lse2,
                                   .out = out,
                                   .is_f16 = is_f16};
    a.n_parts = fixed_parts(c);
    if (c->schedule != PLEAT_DEVICE_FIXED_SPLITS) PLEAT_TRY(pleat__device_blocks_parts(&a.lanes, &a.n_parts, err));
    return pleat__device_blocks_attend(&a, stream, err);
}
