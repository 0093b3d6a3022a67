/* SPDX-License-Identifier: MIT
 *
 * prompt_rig.h: lanes for tests of prompt attention: runs of pages of odd sizes in random order, with dead slots, each
 * pool ending at an unreadable page, and what kernels will read in them as the scalar reference does.
 */
#ifndef CHECK_PROMPT_RIG_H
#define CHECK_PROMPT_RIG_H

#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "check.h"
#include "quant/variants.h"

typedef struct side {
    pleat__page_layout layout;
    pleat__kv_run run;
    check_buf pool;
    pleat__page_id *ids;
    uint32_t n_pages;
    float *k; /* [n_slots][d] as kernels will read them */
    float *v;
    uint8_t *alive; /* [n_slots] */
} side;

typedef struct data {
    unsigned kind; /* of check_fill() */
    float k_size, v_size, v_mean;
} data;

static void *get(size_t bytes) {
    void *p = aligned_alloc(PLEAT__ALIGN, (bytes + PLEAT__ALIGN) / PLEAT__ALIGN * PLEAT__ALIGN);
    if (!p) abort();
    return p;
}

static void fill_pages(side *s, const data *x) {
    const uint32_t d = s->layout.head_dim, tokens = s->layout.tokens;
    float *kv = get(2 * (size_t)tokens * d * sizeof *kv);
    for (uint32_t p = 0; p < s->n_pages; p++) {
        const uint32_t n = pleat__min_u32(tokens, s->run.n_slots - p * tokens);
        float *v = kv + tokens * d;
        for (uint32_t i = 0; i < n; i++) {
            check_fill(kv + i * d, d, x->kind, x->k_size);
            check_fill(v + i * d, d, x->kind, x->v_size);
        }
        for (uint32_t i = 0; i < n * d; i++) v[i] += x->v_mean;
        pleat__quant_store_ref(&s->layout, pleat__kv_page(&s->run, p), 0, n, kv, v, d);
    }
    free(kv);
}

/* Mark slots as dead with this probability, and note the rest and the dequantised tokens for the oracle. */
static void read_back(side *s, double dead) {
    const uint32_t d = s->layout.head_dim, tokens = s->layout.tokens;
    float *tile = get(PLEAT__TILE * d * sizeof *tile);
    for (uint32_t slot = 0; slot < s->run.n_slots; slot++) {
        uint8_t *page = pleat__kv_page(&s->run, slot / tokens);
        const uint32_t t = slot % tokens / PLEAT__TILE, j = slot % PLEAT__TILE;
        pleat__quant_load_k_ref(&s->layout, page, t, tile);
        for (uint32_t c = 0; c < d; c++) s->k[slot * d + c] = tile[c * PLEAT__TILE + j];
        pleat__quant_load_v_ref(&s->layout, page, t, tile);
        memcpy(s->v + slot * d, tile + j * d, d * sizeof *tile);
        s->alive[slot] = !s->layout.tracked || check_uniform(0, 1) >= dead;
        if (s->layout.tracked) pleat__positions(&s->layout, page)[slot % tokens] = s->alive[slot] ? (int32_t)slot : -1;
    }
    free(tile);
}

static void side_init(side *s, pleat_format format, uint32_t d, uint32_t tokens, bool tracked, int32_t step,
                      uint32_t n_slots, double dead, const data *x) {
    memset(s, 0, sizeof *s);
    CHECK_STATUS(pleat__page_layout_init(&s->layout, format, d, tokens, tracked), PLEAT_OK);
    s->n_pages = pleat__div_up_u32(n_slots, tokens);
    const uint64_t page_bytes = (s->layout.used_bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
    s->pool = check_buf_new(s->n_pages * page_bytes, PLEAT__ALIGN);
    s->ids = get(s->n_pages * sizeof *s->ids);
    for (uint32_t p = 0; p < s->n_pages; p++) { /* shuffled as it grows */
        const uint32_t other = (uint32_t)check_below(p + 1);
        s->ids[p] = s->ids[other];
        s->ids[other].v = p;
    }
    const pleat__page_id *first = step > 0 || s->n_pages == 0 ? s->ids : s->ids + s->n_pages - 1;
    s->run = (pleat__kv_run){.layout = &s->layout,
                             .base = s->pool.p,
                             .page_bytes = page_bytes,
                             .ids = first,
                             .step = step,
                             .n_slots = n_slots};
    s->k = get((size_t)n_slots * d * sizeof(float));
    s->v = get((size_t)n_slots * d * sizeof(float));
    s->alive = get(n_slots);
    fill_pages(s, x);
    read_back(s, dead);
}

static void side_release(side *s) {
    CHECK(check_buf_is_intact(&s->pool));
    check_buf_free(&s->pool);
    free(s->ids);
    free(s->k);
    free(s->v);
    free(s->alive);
}

#endif
