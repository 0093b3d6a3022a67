/* SPDX-License-Identifier: MIT
 *
 * serving_ways.h: the ways in which a set of requests is served and has to come out as each did alone; and an engine
 * that is driven by hand.
 */
#ifndef CHECK_SERVING_WAYS_H
#define CHECK_SERVING_WAYS_H

#include "serving_rig.h"

typedef struct way {
    const char *name;
    bool is_short; /* of pages */
    pleat_preemption preemption;
    bool preempts; /* at random */
    bool twice;    /* again with what the first time kept */
} way;

static const way ways[] = {
    {"together", false, PLEAT_PREEMPT_CHEAPER, false, false},
    {"swapped", false, PLEAT_PREEMPT_SWAP, true, false},
    {"computed again", false, PLEAT_PREEMPT_RECOMPUTE, true, false},
    {"from prefixes", false, PLEAT_PREEMPT_CHEAPER, false, true},
    {"from prefixes, swapped", false, PLEAT_PREEMPT_SWAP, true, true},
    {"short of pages, swapped", true, PLEAT_PREEMPT_SWAP, false, false},
    {"short of pages, computed again", true, PLEAT_PREEMPT_RECOMPUTE, false, false},
};

/* The tokens are those that came alone.  n_few: pages of a pool that is short of them.  There some are preempted, but
 * nobody whose growth is known when it is admitted. */
static inline void check_way(const char *spec, const set *all, const outcome *alone, const way *w, uint64_t n_few) {
    rig r;
    outcome out[MAX_REQUESTS];
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.preemption = w->preemption;
    so.low_watermark = so.high_watermark = 1;
    check_context("%s, %s", spec, w->name);
    if (rig_make(&r, &eo, &so, w->is_short ? n_few : 0)) {
        run_set(r.serving, all, out, w->preempts);
        check_same(out, alone, all->n);
        if (w->twice) run_set(r.serving, all, out, w->preempts);
        if (w->twice) check_same(out, alone, all->n);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK(s.peak_running > 1 && s.max_idle_steps <= 2);
        CHECK(!w->twice || s.hits >= all->n - 2); /* two are too short */
        const bool keeps_all = eo.spec.budget.value == 0 || eo.spec.reclaim == PLEAT_RECLAIM_NONE;
        const bool has_images = n_devices == 0 || eo.spec.compressor == PLEAT_COMPRESSOR_NONE;
        if (w->preempts || (w->is_short && keeps_all))
            CHECK((w->preemption == PLEAT_PREEMPT_SWAP && has_images ? s.preempted_swap : s.preempted_recompute) > 0);
        if (w->is_short && r.serving->backend.shape.is_bounded)
            CHECK_EQ_U64(s.preempted_swap + s.preempted_recompute, 0);
    }
    rig_free(&r);
}

static inline pleat_token best_of(const float *logits) {
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    uint32_t best = 0;
    for (uint32_t k = 1; k < info.n_vocab; k++)
        if (logits[k] > logits[best]) best = k;
    return (pleat_token)best;
}

/* An engine that is driven by hand, as `pleat run` drives it: greedily, the prompt's last item with `flags`.  Before
 * token fork_at, if it comes to that, the sequence is forked, and both go on in the same steps.  out: [1 or 2] of
 * both. */
static inline void by_hand(const char *spec, const pleat_request *q, uint32_t flags, uint32_t fork_at,
                           pleat_token (*out)[MAX_PREDICT]) {
    pleat_engine *engine = NULL;
    pleat_seq seqs[2];
    const pleat_engine_options eo = engine_options(spec);
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    float *logits = malloc(2 * info.n_vocab * sizeof *logits), *const of[2] = {logits, logits + info.n_vocab};
    uint32_t n_seqs = 1;
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, MAX_TOKENS, &seqs[0]), PLEAT_OK);
    for (uint32_t at = 0; at < q->n_prompt && check_failures() == 0; at += CHUNK) {
        const uint32_t left = q->n_prompt - at, n = left < CHUNK ? left : CHUNK;
        const pleat_engine_item item = {seqs[0], q->prompt + at, n, 1, logits, n < left ? PLEAT_ITEM_MORE : flags};
        CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
    }
    for (uint32_t i = 0; i < q->n_predict && check_failures() == 0; i++) {
        if (i == fork_at) {
            CHECK_STATUS(pleat_engine_fork(engine, seqs[0], MAX_TOKENS, &seqs[n_seqs++]), PLEAT_OK);
            memcpy(of[1], of[0], info.n_vocab * sizeof *logits);
            memcpy(out[1], out[0], i * sizeof **out);
        }
        pleat_engine_item items[2];
        for (uint32_t k = 0; k < n_seqs; k++) {
            out[k][i] = best_of(of[k]);
            items[k] = (pleat_engine_item){seqs[k], &out[k][i], 1, 1, of[k], 0};
        }
        CHECK_STATUS(pleat_engine_step(engine, items, n_seqs, NULL), PLEAT_OK);
    }
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    free(logits);
}

/* A fork goes on as the sequence would have without it, and so does the sequence. */
static inline void check_forks(const char *spec) {
    const pleat_request q = request_of(text, 105, 60);
    pleat_token never[1][MAX_PREDICT], out[2][MAX_PREDICT];
    by_hand(spec, &q, PLEAT_ITEM_SEAL, UINT32_MAX, never);
    for (uint32_t fork_at = 0; fork_at <= 25; fork_at += 25) {
        check_context("%s, forked at %u", spec, fork_at);
        by_hand(spec, &q, PLEAT_ITEM_SEAL, fork_at, out);
        for (int k = 0; k < 2; k++) CHECK_EQ_MEM(out[k], never[0], q.n_predict * sizeof(pleat_token));
    }
}

/* Without prefixes the tokens are those of an engine that is driven by hand. */
static inline void check_as_by_hand(const char *spec) {
    rig r;
    set all = some_requests();
    outcome served[MAX_REQUESTS];
    pleat_token out[1][MAX_PREDICT];
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.prefix_tokens = 0;
    all.n = 4;
    all.q[1].sampling.temperature = 0;
    check_context("%s", spec);
    if (rig_make(&r, &eo, &so, 0)) {
        run_set(r.serving, &all, served, false);
        for (uint32_t k = 0; k < all.n; k++) {
            by_hand(spec, &all.q[k], 0, UINT32_MAX, out);
            CHECK_EQ_MEM(served[k].tokens, out[0], all.q[k].n_predict * sizeof **out);
        }
    }
    rig_free(&r);
}

#endif
