/* SPDX-License-Identifier: MIT
 *
 * device_cache_rig.h: device caches for tests, their contents on the host, and prompts that are held against the CPU's
 * functions.
 *
 * An image is everything in a cache: pages, tables, lengths.  `now` is what the device has, `want` what it has to have.
 * A call is made, what it had to do is done to `want` with quant.h and policy/leankv.h, and then the whole pool has to
 * be the same, byte for byte.
 */
#ifndef CHECK_DEVICE_CACHE_RIG_H
#define CHECK_DEVICE_CACHE_RIG_H

#include <stdlib.h>
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "check.h"
#include "core/half.h"
#include "pleat/cache.h"
#include "policy/leankv.h"
#include "policy/scan.h"
#include "quant/quant.h"
#include "quant/rotate.h"

enum { LAYERS = 2, HEADS = 2, GROUP = 3, CAP = 700, SEQS = 4, LANES = LAYERS * HEADS };

static const pleat__device_stream default_stream = {NULL};

/* Everything in a cache. */
typedef struct image {
    uint8_t *pages;
    uint32_t *ids, *n_slots[2], *n_pages[2], *hole, *new_slot, n_tokens[SEQS];
} image;

typedef struct rig {
    pleat_device_cache *cache;
    pleat_spec spec;
    uint32_t d, n_rows;
    pleat__quant_dsp quant;
    pleat__scan_dsp scan;
    image now, want;
    uint16_t *k, *v; /* of a call, here */
    float *received;
    void *device_k, *device_v, *device_q;
    float *device_received, *device_out, *device_lse2;
    uint64_t n_demoted, n_dropped, n_replaced, n_low_dropped, n_holes, n_kept; /* what steps did */
} rig;

/* ---- the device's memory ------------------------------------------------------------------------------------ */

static inline void *must_alloc(size_t bytes) {
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!p) abort();
    memset(p, 0, bytes);
    return p;
}

/* Cleared. */
static inline void *device_alloc(uint64_t bytes) {
    void *p = NULL;
    CHECK_STATUS(pleat__device_alloc(bytes, &p, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(p, 0, bytes, default_stream, NULL), PLEAT_OK);
    return p;
}

static inline void copy(void *to, const void *from, uint64_t bytes) {
    CHECK_STATUS(pleat__device_copy(to, from, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

static inline void take_image(image *m, const pleat_device_cache *c, uint32_t n_rows) {
    m->pages = must_alloc(c->memory_bytes[0]);
    m->ids = must_alloc((uint64_t)n_rows * c->lanes.pages.row_len * 4);
    for (int side = 0; side < 2; side++) {
        m->n_slots[side] = must_alloc(n_rows * 4);
        m->n_pages[side] = must_alloc(n_rows * 4);
    }
    m->hole = must_alloc(n_rows * 4);
    m->new_slot = must_alloc(n_rows * 4);
}

static inline void free_image(image *m) {
    void *all[] = {m->pages, m->ids, m->n_slots[0], m->n_slots[1], m->n_pages[0], m->n_pages[1], m->hole, m->new_slot};
    for (size_t i = 0; i < CHECK_COUNT(all); i++) free(all[i]);
}

static inline void bring_image(const rig *r, image *m) {
    const pleat__device_lanes *l = &r->cache->lanes;
    copy(m->pages, l->base, r->cache->memory_bytes[0]);
    copy(m->ids, l->pages.ids, (uint64_t)r->n_rows * l->pages.row_len * 4);
    for (int side = 0; side < 2; side++) {
        copy(m->n_slots[side], l->pages.n_slots[side], r->n_rows * 4);
        copy(m->n_pages[side], l->pages.n_pages[side], r->n_rows * 4);
    }
    copy(m->hole, l->pages.hole, r->n_rows * 4);
    copy(m->n_tokens, l->n_tokens, sizeof m->n_tokens);
}

/* want = now. */
static inline void expect_now(rig *r) {
    const pleat__device_lanes *l = &r->cache->lanes;
    memcpy(r->want.pages, r->now.pages, r->cache->memory_bytes[0]);
    memcpy(r->want.ids, r->now.ids, (uint64_t)r->n_rows * l->pages.row_len * 4);
    for (int side = 0; side < 2; side++) {
        memcpy(r->want.n_slots[side], r->now.n_slots[side], r->n_rows * 4);
        memcpy(r->want.n_pages[side], r->now.n_pages[side], r->n_rows * 4);
    }
    memcpy(r->want.hole, r->now.hole, r->n_rows * 4);
    memcpy(r->want.new_slot, r->now.new_slot, r->n_rows * 4);
    memcpy(r->want.n_tokens, r->now.n_tokens, sizeof r->want.n_tokens);
}

/* Everything but ids and counts of pages, which page/'s tests hold. */
static inline bool is_as_expected(const rig *r) {
    bool same = CHECK_EQ_MEM(r->now.pages, r->want.pages, r->cache->memory_bytes[0]);
    for (int side = 0; side < 2; side++)
        same &= CHECK_EQ_MEM(r->now.n_slots[side], r->want.n_slots[side], r->n_rows * 4);
    same &= CHECK_EQ_MEM(r->now.hole, r->want.hole, r->n_rows * 4);
    return same & CHECK_EQ_MEM(r->now.n_tokens, r->want.n_tokens, sizeof r->now.n_tokens);
}

/* ---- a cache ------------------------------------------------------------------------------------------------- */

static inline pleat_device_cache_options options_of(const char *text, uint32_t d) {
    pleat_device_cache_options opt;
    pleat_device_cache_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse(text, &opt.spec, NULL), PLEAT_OK);
    opt.n_layers = LAYERS;
    opt.n_kv_heads = HEADS;
    opt.n_q_heads = HEADS * GROUP;
    opt.head_dim = d;
    opt.max_seqs = SEQS;
    opt.max_tokens = CAP;
    return opt;
}

static inline bool rig_init(rig *r, const pleat_device_cache_options *opt) {
    pleat_error err;
    *r = (rig){.spec = opt->spec, .d = opt->head_dim, .n_rows = SEQS * LANES};
    const pleat_status status = pleat_device_cache_create(opt, &r->cache, &err);
    if (!CHECK_STATUS(status, PLEAT_OK)) {
        check_context("%s", err.text);
        return CHECK(false);
    }
    pleat__quant_dsp_init(&r->quant, pleat_cpu_flags());
    pleat__scan_dsp_init(&r->scan, pleat_cpu_flags());
    take_image(&r->now, r->cache, r->n_rows);
    take_image(&r->want, r->cache, r->n_rows);
    const uint64_t n_tokens = opt->max_tokens, n = n_tokens * HEADS * r->d;
    r->k = must_alloc(n * 2);
    r->v = must_alloc(n * 2);
    r->received = must_alloc(n_tokens * HEADS * 4);
    r->device_k = device_alloc(n * 2);
    r->device_v = device_alloc(n * 2);
    r->device_q = device_alloc((uint64_t)SEQS * HEADS * GROUP * r->d * 2);
    r->device_received = device_alloc(n_tokens * HEADS * 4);
    r->device_out = device_alloc((uint64_t)SEQS * HEADS * GROUP * r->d * 4);
    r->device_lse2 = device_alloc(SEQS * HEADS * GROUP * 4);
    return true;
}

static inline void rig_free(rig *r) {
    pleat_device_cache_usage u;
    for (uint32_t seq_idx = 0; seq_idx < SEQS; seq_idx++)
        CHECK_STATUS(pleat_device_cache_close(r->cache, seq_idx, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_check(r->cache, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_device_cache_get_usage(r->cache, &u, NULL, NULL), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    CHECK_EQ_U64(u.tokens_high + u.tokens_low, 0);
    pleat_device_cache_destroy(&r->cache);
    CHECK(!r->cache);
    free_image(&r->now);
    free_image(&r->want);
    free(r->k);
    free(r->v);
    free(r->received);
    void *device[] = {r->device_k, r->device_v, r->device_q, r->device_received, r->device_out, r->device_lse2};
    for (size_t i = 0; i < CHECK_COUNT(device); i++) pleat__device_free(device[i]);
}

static inline uint32_t row_of(uint32_t seq_idx, uint32_t layer, uint32_t head) {
    return (seq_idx * LAYERS + layer) * HEADS + head;
}

static inline uint32_t *cell_of(const rig *r, const image *m, uint32_t row, int side, uint32_t idx) {
    const uint32_t row_len = r->cache->lanes.pages.row_len;
    return m->ids + (uint64_t)row * row_len + (side ? row_len - 1 - idx : idx);
}

/* A slot's page and its place there. */
typedef struct slot_at {
    uint8_t *page;
    uint32_t slot;
} slot_at;

static inline slot_at slot_of(const rig *r, const image *m, uint32_t row, int side, uint32_t slot) {
    const uint32_t tokens = r->cache->lanes.layouts[side].tokens;
    const uint32_t id = *cell_of(r, m, row, side, slot / tokens);
    return (slot_at){m->pages + id * r->cache->lanes.page_bytes, slot % tokens};
}

/* Tokens [n][HEADS][d], of which some attract attention. */
static inline void make_rows(rig *r, uint32_t n) {
    for (uint32_t i = 0; i < n * HEADS * r->d; i++) {
        r->k[i] = pleat__f32_to_f16(check_normal());
        r->v[i] = pleat__f32_to_f16(check_normal());
    }
    copy(r->device_k, r->k, (uint64_t)n * HEADS * r->d * 2);
    copy(r->device_v, r->v, (uint64_t)n * HEADS * r->d * 2);
}

static inline void row_at(const rig *r, const uint16_t *rows, uint32_t token, uint32_t head, float *x) {
    for (uint32_t i = 0; i < r->d; i++) x[i] = pleat__f16_to_f32(rows[(token * HEADS + head) * r->d + i]);
}

/* Attention that puts a token's significance about the thresholds: of N tokens. */
static inline float make_score(const rig *r, uint32_t position, uint32_t n_tokens) {
    const double most = r->spec.ah > 0 ? 2.0 * r->spec.ah : 1;
    const double u = check_uniform(0, 1);
    return (float)(u * u * most / n_tokens * (n_tokens - 1 - position));
}

/* ---- prompts ---------------------------------------------------------------------------------------------------- */

/* Store a token in `want` as the CPU does. */
static inline void put_token(rig *r, uint32_t row, int side, uint32_t slot, uint32_t token, uint32_t head, float score,
                             uint32_t position, bool is_hole) {
    const pleat__page_layout *l = &r->cache->lanes.layouts[side];
    const slot_at at = slot_of(r, &r->want, row, side, slot);
    float k[128], v[128];
    row_at(r, r->k, token, head, k);
    row_at(r, r->v, token, head, v);
    if (r->spec.high.rotated || r->spec.low.rotated) {
        pleat__rotate(k, 1, r->d, k);
        pleat__rotate(v, 1, r->d, v);
    }
    if (is_hole)
        r->quant.replace(l, at.page, at.slot, k, v);
    else
        r->quant.store(l, at.page, at.slot, 1, k, v, r->d);
    if (!l->tracked) return;
    pleat__scores(l, at.page)[at.slot] = score;
    pleat__positions(l, at.page)[at.slot] = (int32_t)position;
}

/* One lane of a prompt in `want`: levels, slots, bytes. */
static inline void expect_lane(rig *r, uint32_t row, uint32_t head, uint32_t n) {
    uint32_t n_slots[2] = {0, 0};
    for (uint32_t i = 0; i < n; i++) {
        const float sum = r->received[head * n + i];
        pleat_level level = PLEAT_LEVEL_HIGH;
        if (r->spec.policy == PLEAT_POLICY_LEANKV)
            level = pleat__leankv_level(&r->spec, pleat__significance(sum, i, n), i, n, true);
        if (level == PLEAT_LEVEL_DROPPED) continue;
        const int side = level == PLEAT_LEVEL_LOW;
        put_token(r, row, side, n_slots[side]++, i, head, sum, i, false);
    }
    for (int side = 0; side < 2; side++) r->want.n_slots[side][row] = n_slots[side];
}

static inline bool read_prompt(rig *r, uint32_t seq_idx, uint32_t n) {
    const pleat_status status = pleat_device_cache_prompt_begin(r->cache, seq_idx, n, NULL, NULL);
    if (!CHECK_STATUS(status, PLEAT_OK)) return false;
    CHECK_STATUS(pleat_device_cache_prompt_end(r->cache, NULL, NULL), PLEAT_E_STATE);
    for (uint32_t layer = LAYERS; layer-- > 0;) {
        make_rows(r, n);
        for (uint32_t head = 0; head < HEADS; head++)
            for (uint32_t i = 0; i < n; i++) r->received[head * n + i] = make_score(r, i, n);
        copy(r->device_received, r->received, n * HEADS * 4);
        CHECK_STATUS(
            pleat_device_cache_prompt(r->cache, layer, r->device_k, r->device_v, r->device_received, NULL, NULL),
            PLEAT_OK);
        bring_image(r, &r->now);
        expect_now(r);
        for (uint32_t head = 0; head < HEADS; head++) expect_lane(r, row_of(seq_idx, layer, head), head, n);
        if (!is_as_expected(r)) return false;
    }
    CHECK_STATUS(pleat_device_cache_prompt_end(r->cache, NULL, NULL), PLEAT_OK);
    return CHECK_STATUS(pleat_device_cache_check(r->cache, NULL, NULL), PLEAT_OK);
}

#endif
