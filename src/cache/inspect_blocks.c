/* SPDX-License-Identifier: MIT
 *
 * inspect_blocks.c: what the blocks of a sequence hold, as bytes: how many there are, their hashes, and how
 * far their text drifts from statistics.  inspect.c has what concerns tokens.  Nothing here changes anything.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/keep/keep.h"
#include "core/error.h"

/* The blocks of a lane of a full layer; false where it has none, of whatever kind it is. */
static bool find_blocks(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, pleat__block_run *blocks) {
    const pleat__keep *keep = pleat__keep_of_lane(c, lane);
    return keep->carve_loader && keep->low_run(c, seq, lane, blocks).blocks == blocks;
}

uint32_t pleat_cache_n_blocks(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    pleat__block_run blocks;
    for (uint32_t lane = 0; seq && lane < c->n_lanes; lane++)
        if (find_blocks(c, seq, lane, &blocks)) return blocks.n_blocks;
    return 0;
}

pleat_status pleat_cache_block_hash(const pleat_cache *c, pleat_seq handle, uint32_t layer, uint32_t kv_head,
                                    uint32_t block, uint64_t *out) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    pleat__block_run blocks;
    if (!seq || !out || layer >= c->opt.n_layers || kv_head >= c->opt.n_kv_heads) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    if (!find_blocks(c, seq, pleat__cache_lane_of(c, layer, kv_head), &blocks) || block >= blocks.n_blocks)
        return PLEAT_E_ARG;
    const size_t n_copy = pleat__block_copy_bytes(blocks.format);
    uint8_t *copy = pleat__alloc(&c->al, 1, n_copy);
    if (!copy) return PLEAT_E_MEMORY;
    size_t n_bytes;
    const uint8_t *payload = pleat__block_fetch(&blocks, block, copy, &n_bytes);
    *out = XXH3_64bits(payload, n_bytes);
    pleat__free(&c->al, copy, 1, n_copy);
    return PLEAT_OK;
}

/* ---- auto -------------------------------------------------------------------------------------- */

pleat_status pleat_cache_get_choice(const pleat_cache *c, pleat_spec *out) {
    if (!c || !out) return PLEAT_E_ARG;
    *out = c->opt.spec;
    if (c->keep->choice) c->keep->choice(c, out);
    return PLEAT_OK;
}

/* ---- drift ------------------------------------------------------------------------------------- */

static void add_drift(const pleat__block_run *blocks, uint8_t *copy, pleat_cache_drift *drift) {
    for (uint32_t i = 0; blocks->rd && i < blocks->n_blocks; i++) {
        size_t n_bytes;
        const uint8_t *payload = pleat__block_fetch(blocks, i, copy, &n_bytes);
        const pleat__block_about about = pleat__block_look(blocks->format, payload);
        drift->n_blocks++;
        drift->n_own_keys += about.has_own_keys;
        drift->n_own_values += about.has_own_values;
        drift->n_coarser += about.coarser > 0;
        drift->n_finer += about.coarser < 0;
        drift->n_escapes += about.n_escapes;
        drift->bytes += n_bytes;
    }
}

/* PLEAT_E_MEMORY, or what is there is added. */
static pleat_status add_seq_drift(const pleat_cache *c, const pleat__sequence *seq, pleat_cache_drift *drift) {
    pleat__block_run blocks;
    uint8_t *copy = NULL;
    size_t n_copy = 0;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        if (!find_blocks(c, seq, lane, &blocks) || !blocks.rd) continue;
        if (!copy) copy = pleat__alloc(&c->al, 1, n_copy = pleat__block_copy_bytes(blocks.format));
        if (!copy) return PLEAT_E_MEMORY;
        add_drift(&blocks, copy, drift);
    }
    pleat__free(&c->al, copy, 1, n_copy);
    return PLEAT_OK;
}

pleat_status pleat_cache_get_drift(const pleat_cache *c, pleat_seq handle, pleat_cache_drift *out) {
    const pleat__sequence *seq = c && handle.v ? pleat__cache_seq(c, handle) : NULL;
    pleat_cache_drift drift = {0};
    if (!c || !out || (handle.v && !seq)) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    for (uint32_t i = 0; !seq && i < c->opt.max_seqs; i++)
        if (c->seqs[i].open) PLEAT_TRY(add_seq_drift(c, &c->seqs[i], &drift));
    if (seq) PLEAT_TRY(add_seq_drift(c, seq, &drift));
    *out = drift;
    return PLEAT_OK;
}
