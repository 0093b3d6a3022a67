/* SPDX-License-Identifier: MIT
 *
 * kv_view.h: the one struct that crosses from control to data: what a kernel sees of a lane.
 *
 * A run is the tokens of one side of a lane: n_slots slots in pages that all have one layout, every page full but
 * the last.  A view is a lane: its high run, then its low run.  Views point into tables and pools
 * and own nothing; they are made for one call.
 *
 *     page_of(run, i) = base + ids[i * step] * page_bytes          i = 0 .. ceil(n_slots / layout->tokens) - 1
 *
 * step is positive on the high side, whose ids grow from the left of the table's row, and negative on the low side.
 * page/table.h says how far apart a row's cells are.
 */
#ifndef PLEAT_CORE_KV_VIEW_H
#define PLEAT_CORE_KV_VIEW_H

#include "core/types.h"

/* Where everything stands in a page of one format: quant/layout.h has the picture and makes it. */
typedef struct pleat__page_layout {
    pleat_format format;
    uint32_t head_dim;     /* multiple of 16 */
    uint32_t tokens;       /* slots in a page: a multiple of 16 */
    bool tracked;          /* pages have positions; a slot with position -1 is dead */
    uint32_t n_scores;     /* scores of a slot: 0 where not tracked; 1; or one for each query head of the group */
    uint32_t k_tile_bytes; /* K codes of 16 tokens */
    uint32_t v_tile_bytes;
    /* Offsets from the page's first byte. */
    uint32_t k_off;
    uint32_t k_meta_off; /* 0 where there is no metadata */
    uint32_t v_off;
    uint32_t v_meta_off; /* 0 where there is no metadata */
    uint32_t score_off;  /* 0 where there are no scores */
    uint32_t pos_off;    /* 0 where there are no positions */
    uint32_t mass_off;   /* 0 where tokens have no mass */
    uint32_t used_bytes; /* all segments; <= the pool's page_bytes */
} pleat__page_layout;

typedef struct pleat__kv_run {
    const pleat__page_layout *layout;
    uint8_t *base;             /* the pool's first byte, aligned to PLEAT__ALIGN */
    uint64_t page_bytes;       /* distance of pages; a multiple of PLEAT__ALIGN */
    const pleat__page_id *ids; /* id of the run's first page */
    int32_t step;              /* from one page's id to the next's */
    uint32_t n_slots;          /* slots in use */
    /* Not NULL: the slots are the tokens of these blocks (codec/block.h), and base, ids and layout say nothing. */
    const struct pleat__block_run *blocks;
    /* Slots that whoever reads this run is likely to read next, of a run with the same layout; NULL: nobody knows. */
    const struct pleat__kv_run *then;
    uint32_t then_slot;
} pleat__kv_run;

typedef struct pleat__kv_view {
    pleat__kv_run high;
    pleat__kv_run low; /* n_slots is 0 where a lane has one side */
    uint32_t n_sealed; /* high tokens of the lane that stand before `high` and are not to be judged */
} pleat__kv_view;

static inline uint8_t *pleat__kv_page(const pleat__kv_run *run, uint32_t page_idx) {
    return run->base + (uint64_t)run->ids[(int64_t)page_idx * run->step].v * run->page_bytes;
}

/* A tracked page's scores (attention received, summed over later queries), [n_scores][tokens], and positions, [tokens].
 * The score of one that is to stay whatever it receives is infinite: policies mark representatives so. */
static inline float *pleat__head_scores(const pleat__page_layout *l, uint8_t *page, uint32_t head) {
    return (float *)(void *)(page + l->score_off) + (size_t)head * l->tokens;
}
static inline float *pleat__scores(const pleat__page_layout *l, uint8_t *page) {
    return pleat__head_scores(l, page, 0);
}
static inline int32_t *pleat__positions(const pleat__page_layout *l, uint8_t *page) {
    return (int32_t *)(void *)(page + l->pos_off);
}

/* [tokens] log2 of what a token's attention is multiplied by, f16, of layouts with mass_off: attn/mass.h. */
static inline uint16_t *pleat__masses(const pleat__page_layout *l, uint8_t *page) {
    return (uint16_t *)(void *)(page + l->mass_off);
}

#endif
