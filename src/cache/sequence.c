/* SPDX-License-Identifier: MIT
 *
 * sequence.c: the sequences of a cache: handles, open, close, lengths.  Opening one makes one allocation, for its block
 * table; blocks.c may make another.
 */
#include "cache/sequence.h"

#include "cache/keep/keep.h"
#include "core/error.h"

#define SEQ_IDX_BITS 17 /* holds 1..65,535 sequences; the rest of the handle is the generation */

void pleat__cache_release_seq(pleat_cache *c, pleat__sequence *seq) {
    pleat__free(&c->al, seq->blocks.codebooks, 1, seq->blocks.codebooks_bytes);
    pleat__free(&c->al, seq->memory, 1, seq->memory_bytes);
    *seq = (pleat__sequence){.generation = seq->generation + 1};
}

pleat_seq pleat__cache_handle(const pleat_cache *c, const pleat__sequence *seq) {
    return (pleat_seq){(seq->generation << SEQ_IDX_BITS) | ((uint32_t)(seq - c->seqs) + 1)};
}

pleat__sequence *pleat__cache_seq(const pleat_cache *c, pleat_seq seq) {
    const uint32_t idx = (seq.v & ((1u << SEQ_IDX_BITS) - 1)) - 1;
    if (idx >= c->opt.max_seqs || !c->seqs[idx].open || pleat__cache_handle(c, &c->seqs[idx]).v != seq.v) return NULL;
    return &c->seqs[idx];
}

uint64_t pleat__cache_carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena) {
    pleat__cache_carve_table(c, max_tokens, &seq->table, arena);
    if (c->keep->carve_seq) c->keep->carve_seq(c, max_tokens, seq, arena);
    return arena->used_bytes;
}

pleat_status pleat__cache_open_seq(pleat_cache *c, uint32_t max_tokens, pleat__sequence **out) {
    if (c->n_open == c->opt.max_seqs) return PLEAT_E_LIMIT;
    pleat__sequence arrays = {0};
    pleat__arena arena = {0};
    const uint64_t bytes = pleat__cache_carve_seq(c, max_tokens, &arrays, &arena);
    void *memory = arena.overflow ? NULL : pleat__alloc(&c->al, 1, bytes);
    if (!memory) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = memory, .cap_bytes = bytes};
    (void)pleat__cache_carve_seq(c, max_tokens, &arrays, &arena);
    pleat__table_init(&arrays.table);
    if (c->keep->open_seq) c->keep->open_seq(c, &arrays);
    while (c->seqs[c->first_closed].open) c->first_closed++;
    pleat__sequence *seq = &c->seqs[c->first_closed];
    *seq = (pleat__sequence){.open = true,
                             .generation = seq->generation,
                             .max_tokens = max_tokens,
                             .spec = c->opt.spec,
                             .table = arrays.table,
                             .blocks = arrays.blocks,
                             .key_sums = arrays.key_sums,
                             .queries = arrays.queries,
                             .memory = memory,
                             .memory_bytes = bytes};
    c->n_open++;
    *out = seq;
    return PLEAT_OK;
}

pleat_status pleat_cache_open(pleat_cache *c, uint32_t max_tokens, pleat_seq *out) {
    if (!c || !out || max_tokens < 1 || max_tokens > c->opt.max_tokens) return PLEAT_E_ARG;
    pleat__sequence *seq;
    PLEAT_TRY(pleat__cache_open_seq(c, max_tokens, &seq));
    *out = pleat__cache_handle(c, seq);
    return PLEAT_OK;
}

pleat_status pleat_cache_close(pleat_cache *c, pleat_seq handle) {
    pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    if (!seq) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    pleat__table_clear(&seq->table, &c->pool);
    pleat__cache_release_seq(c, seq);
    c->n_open--;
    c->first_closed = pleat__min_u32(c->first_closed, (uint32_t)(seq - c->seqs));
    return PLEAT_OK;
}

uint32_t pleat_cache_n_open(const pleat_cache *c) { return c ? c->n_open : 0; }

uint32_t pleat_cache_length(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    return seq ? seq->n_tokens : 0;
}

uint32_t pleat_cache_max_tokens(const pleat_cache *c, pleat_seq handle) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    return seq ? seq->max_tokens : 0;
}
