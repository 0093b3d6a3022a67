/* SPDX-License-Identifier: MIT
 *
 * policy_rig.h: caches with a policy and what is put into them, for the tests of whole caches.
 */
#ifndef CHECK_POLICY_RIG_H
#define CHECK_POLICY_RIG_H

#include <stdbool.h>

#include "cache_rig.h"
#include "core/types.h"
#include "quant/layout.h"

enum { LAYERS = 2, HEADS = 2, GROUP = 2, D = 32, CAP = 420, SEQS = 3, ROW = HEADS * GROUP * D, KV_ROW = HEADS * D };

typedef struct rig {
    pleat_cache *cache;
    pleat_cache_options opt;
    uint64_t page_bytes;
    uint32_t page_tokens[2]; /* high, low */
    pleat_seq seqs[SEQS];
    uint32_t n_tokens[SEQS];
} rig;

/* One sequence's share of a step. */
typedef struct share {
    uint32_t seq, n;
    bool more;
} share;

static const struct rig_spec {
    const char *text;
    uint32_t page_tokens;
} rig_specs[] = {
    {"leankv:ah=1.5,al=0.6,window=16", 32},
    {"leankv:ah=1.5,al=0.6,window=16,step=code", 16},
    {"leankv:ah=0.9,al=0.5,window=5,high=f16,low=k8v8", 16},
    {"leankv:ah=1.2,al=0.8,window=7,threshold=position,high=k4v4,low=k2v2", 48},
    {"leankv:ah=1,al=1,window=20", 16},
    {"leankv:ah=3,al=0,window=3,low=k2v2", 16},
    {"leankv:ah=1.2,al=0.5,window=9,low=k8v4,step=code", 32},
    {"leankv:ah=0,al=0,window=1", 32},
    {"leankv:ah=1.5,al=0.6,window=16,every=8", 16},
    {"leankv:ah=3,al=0,window=3,low=k2v2,every=4", 16},
    {"leankv:ah=1,al=1,window=20,every=2", 16},
    {"topk:keep=30%,window=12,format=k8v4", 16},
    {"topk:keep=80%,window=1,format=f16", 32},
};

/* Eviction, with every strategy of reclamation. */
static const struct rig_spec rig_evict_specs[] = {
    {"h2o:budget=60,window=16,sinks=2", 16},
    {"h2o:budget=30%,window=8,format=f16,reclaim=copy", 32},
    {"h2o:budget=50,window=8,reclaim=block+kvcrush:share=50%", 16},
    {"snapkv:budget=25%,window=16", 16},
    {"snapkv:budget=25%,window=16,reclaim=none+merge", 16},
    {"h2o:budget=56KiB,window=16+merge", 16},
    {"snapkv:budget=40,window=8,reclaim=copy+kvcrush:share=30%,anchor=alternate,unit=page", 16},
    {"pyramidkv:budget=64,window=8,format=k8v8,reclaim=block", 16},
    {"adakv:budget=50,window=12,reclaim=none", 32},
    {"adakv:budget=48KiB,window=12+kvcrush:anchor=kmeans", 16},
    {"streaming:budget=37,sinks=3", 16},
    {"recent:budget=20%,reclaim=copy", 16},
    {"random:budget=40,window=4,reclaim=none+kvcrush:anchor=random", 16},
    {"novel:budget=48,window=8,sinks=2", 16},
    {"novel:budget=30%,window=4,format=f16,reclaim=copy", 32},
    {"novel:budget=48KiB,reclaim=block", 16},
    {"novel:budget=48,window=8+merge", 16},
    {"snapkv:budget=48,window=8+novel", 16},
    {"expected:budget=48,window=8", 16},
    {"dropkv:budget=48,window=8", 16},
    {"kvzip:budget=48,window=8", 16},
    {"leverage:budget=48,window=8", 16},
    {"novel:budget=48,window=8,near=2", 16},
};

static inline pleat_cache_options rig_options(const char *text, pleat_workers *workers) {
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .max_seqs = SEQS,
                               .max_tokens = CAP,
                               .step_tokens = SEQS * CAP,
                               .workers = workers};
    return cache_options_of(text, &shape);
}

/* With al = 0 no low token is ever looked for, so low pages say nothing of their tokens. */
static inline bool rig_spec_low_is_tracked(const pleat_spec *spec) { return spec->al > 0; }
static inline bool rig_low_is_tracked(const rig *r) { return rig_spec_low_is_tracked(&r->opt.spec); }

/* Sizes of pages, worked out again: as many low tiles as fit the bytes of a high page. */
static inline void rig_derive_pages(rig *r) {
    pleat__page_layout layout;
    const pleat_spec *spec = &r->opt.spec;
    const uint32_t tokens = r->opt.page_tokens;
    CHECK_STATUS(pleat__page_layout_init(&layout, spec->high, D, tokens, true), PLEAT_OK);
    r->page_bytes = ((uint64_t)layout.used_bytes + 63) / 64 * 64;
    r->page_tokens[0] = r->page_tokens[1] = tokens;
    while (spec->policy == PLEAT_POLICY_LEANKV &&
           pleat__page_layout_init(&layout, spec->low, D, r->page_tokens[1] + 16, rig_low_is_tracked(r)) == PLEAT_OK &&
           layout.used_bytes <= r->page_bytes)
        r->page_tokens[1] += 16;
}

/* A cache with `n_seqs` sequences open. */
static inline rig rig_new(const pleat_cache_options *opt, uint32_t n_seqs) {
    rig r = {.opt = *opt, .cache = cache_made(opt)};
    r.opt.page_tokens = pleat_cache_page_tokens(r.cache);
    rig_derive_pages(&r);
    for (uint32_t s = 0; s < n_seqs; s++) r.seqs[s] = cache_seq(r.cache, opt->max_tokens);
    return r;
}

/* Close everything that is open: all pages are back. */
static inline void rig_free(rig *r) {
    for (uint32_t s = 0; s < SEQS; s++)
        if (r->seqs[s].v) CHECK_STATUS(pleat_cache_close(r->cache, r->seqs[s]), PLEAT_OK);
    cache_check_empty(r->cache);
    pleat_cache_destroy(&r->cache);
}

/* The way that queries lean, in element i of a row. */
static inline float rig_lean(uint32_t i) { return i % D % 3 == 0 ? 1.0f : -0.5f; }

/* Contents that depend on (sequence, layer, position) alone.  Queries lean one way, and one key in eight does too: it
 * attracts attention. */
static inline void rig_token(uint32_t seq, uint32_t layer, uint32_t position, float *q, float *k, float *v) {
    pleat__rng rng = rng_of_token(seq, layer, position);
    const bool attracts = position % 8 == (position / 64 + seq) % 8;
    for (uint32_t i = 0; i < ROW; i++) q[i] = rng_within(&rng, 2) + rig_lean(i);
    for (uint32_t i = 0; i < KV_ROW; i++) k[i] = rng_within(&rng, 2) + (attracts ? 0.7f * rig_lean(i) : 0);
    for (uint32_t i = 0; i < KV_ROW; i++) v[i] = rng_within(&rng, 1) - 0.3f;
}

/* Rows of a step's layer. */
static inline void rig_rows(const rig *r, const share *shares, uint32_t n_shares, uint32_t layer, float *q, float *k,
                            float *v) {
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_shares; i++)
        for (uint32_t t = 0; t < shares[i].n; t++, row++)
            rig_token(shares[i].seq, layer, r->n_tokens[shares[i].seq] + t, q + (size_t)row * ROW,
                      k + (size_t)row * KV_ROW, v + (size_t)row * KV_ROW);
}

static inline pleat_status rig_begin(const rig *r, const share *shares, uint32_t n_shares) {
    pleat_cache_item items[SEQS];
    for (uint32_t i = 0; i < n_shares; i++)
        items[i] = (pleat_cache_item){
            .seq = r->seqs[shares[i].seq], .n_tokens = shares[i].n, .flags = shares[i].more ? PLEAT_ITEM_MORE : 0};
    return pleat_cache_begin(r->cache, items, n_shares);
}

#endif
