/* SPDX-License-Identifier: MIT
 *
 * test_replay.c: kvzip: what a replay gives to stored tokens, and what is dropped when it ends, against every logit in double
 * precision on the keys as they are stored.  test_mixed.c has replays in caches with windows, test_evict.c the ranks.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "policy_rig.h"

enum { LANES = LAYERS * HEADS, PROMPT = 150, PARTS = 2 };

static const uint32_t parts[PARTS] = {45, 2}; /* of a replay */

static const char *const specs[] = {
    "kvzip:budget=60,window=8,sinks=2,format=f16",
    "kvzip:budget=30%,window=5,sinks=0,reclaim=copy",
    "kvzip:budget=60,window=8,reclaim=block",
    "kvzip:budget=40,window=8,sinks=2,reclaim=none,format=h4v4",
};

/* The most that a query has given to each token of a lane, and which the lane still holds. */
typedef struct shadow {
    double most[LANES][CAP];
    bool alive[LANES][CAP];
} shadow;

/* Row `position` of the second reading: other contents than the prompt's. */
static void replay_row(uint32_t layer, uint32_t position, float *q, float *k, float *v) {
    rig_token(7, layer, position, q, k, v);
}

static void prompt_row(uint32_t layer, uint32_t position, float *q, float *k, float *v) {
    rig_token(0, layer, position, q, k, v);
}

/* One query head of a replay's row i: its logits over the lane's n stored tokens and the rows up to itself. */
static void give(shadow *s, uint32_t lane, uint32_t n, const float *stored, uint32_t first, uint32_t i,
                 uint32_t q_head) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    float mine[D];
    double weight[2 * CAP], most = -INFINITY, total = 0;
    uint32_t n_seen = n + i + 1;
    replay_row(lane / HEADS, first + i, q, k, v);
    memcpy(mine, q + q_head * D, sizeof mine);
    for (uint32_t j = 0; j < n_seen; j++) {
        const float *key = stored + (size_t)j * D;
        double dot = 0;
        if (j >= n) {
            replay_row(lane / HEADS, first + j - n, q, k, v);
            key = k + lane % HEADS * D;
        }
        for (uint32_t d = 0; d < D; d++) dot += (double)mine[d] * key[d];
        weight[j] = j < n && !s->alive[lane][j] ? -INFINITY : cache_logit(dot / sqrt(D));
        most = fmax(most, weight[j]);
    }
    for (uint32_t j = 0; j < n_seen; j++) total += exp(weight[j] - most);
    for (uint32_t j = 0; j < n; j++) s->most[lane][j] = fmax(s->most[lane][j], exp(weight[j] - most) / total);
}

/* What one part of a replay, of n rows from `first` on, gives to all lanes. */
static void shadow_part(shadow *s, const rig *r, uint32_t first, uint32_t n) {
    static float stored[CAP * D];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t n_stored = r->n_tokens[0], head = lane % HEADS;
        CHECK_STATUS(pleat_cache_export(r->cache, r->seqs[0], lane / HEADS, head, 0, n_stored, stored, NULL), PLEAT_OK);
        for (uint32_t i = 0; i < n * GROUP; i++)
            give(s, lane, n_stored, stored, first, i / GROUP, head * GROUP + i % GROUP);
    }
}

/* One step of the cache.  A replay's rows are others than a prompt's. */
static void run_step(rig *r, uint32_t first, uint32_t n, uint32_t flags, bool is_cancelled) {
    static float q[CAP * ROW], k[CAP * KV_ROW], v[CAP * KV_ROW];
    const bool is_replay = flags & PLEAT_ITEM_REPLAY;
    CHECK_STATUS(pleat_cache_begin(r->cache, &(pleat_cache_item){r->seqs[0], n, flags}, 1), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < n; i++)
            (is_replay ? replay_row : prompt_row)(layer, first + i, q + (size_t)i * ROW, k + (size_t)i * KV_ROW,
                                                  v + (size_t)i * KV_ROW);
        CHECK_STATUS(pleat_cache_attend(r->cache, layer, q, k, v, q), PLEAT_OK);
    }
    CHECK_STATUS(is_cancelled ? pleat_cache_cancel(r->cache) : pleat_cache_end(r->cache), PLEAT_OK);
    if (!is_replay && !is_cancelled) r->n_tokens[0] += n;
    CHECK_EQ_U64(pleat_cache_length(r->cache, r->seqs[0]), r->n_tokens[0]);
    CHECK(pleat_cache_is_valid(r->cache));
}

/* Scores are what the shadow found, of tokens that are there. */
static void check_scores(const shadow *s, const rig *r) {
    static pleat_cache_token tokens[CAP];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        CHECK_STATUS(pleat_cache_tokens(r->cache, r->seqs[0], lane / HEADS, lane % HEADS, 0, r->n_tokens[0], tokens),
                     PLEAT_OK);
        for (uint32_t j = 0; j < r->n_tokens[0]; j++) {
            const double want = s->alive[lane][j] ? s->most[lane][j] : 0;
            CHECK_EQ_U64(tokens[j].level, s->alive[lane][j] ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_DROPPED);
            CHECK(fabs((double)tokens[j].significance - want) <= 1e-4 * want + 1e-6);
        }
    }
}

static bool is_candidate(const pleat_spec *spec, uint32_t position, uint32_t n_tokens) {
    return position >= spec->sinks && position < n_tokens - spec->window;
}

/* The lanes of each layer hold the budget together.  Nothing that has gone was given more than what stays. */
static void take_dropped(shadow *s, const rig *r, uint32_t budget) {
    static pleat_cache_token tokens[CAP];
    const pleat_spec *spec = &r->opt.spec;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        double least = INFINITY, gone = 0;
        uint32_t n_kept = 0, n_before = 0;
        for (uint32_t lane = layer * HEADS; lane < (layer + 1) * HEADS; lane++) {
            CHECK_STATUS(pleat_cache_tokens(r->cache, r->seqs[0], layer, lane % HEADS, 0, r->n_tokens[0], tokens),
                         PLEAT_OK);
            for (uint32_t j = 0; j < r->n_tokens[0]; j++) {
                const bool stays = tokens[j].level == PLEAT_LEVEL_HIGH;
                n_before += s->alive[lane][j];
                n_kept += stays;
                CHECK(s->alive[lane][j] || !stays);
                CHECK(stays || !s->alive[lane][j] || is_candidate(spec, j, r->n_tokens[0]));
                if (stays && is_candidate(spec, j, r->n_tokens[0])) least = fmin(least, s->most[lane][j]);
                if (!stays && s->alive[lane][j]) gone = fmax(gone, s->most[lane][j]);
                s->alive[lane][j] = stays;
            }
        }
        CHECK(n_before > HEADS * budget);
        CHECK_EQ_U64(n_kept, HEADS * budget);
        CHECK(gone <= least * (1 + 1e-4));
    }
}

static uint32_t budget_of(const rig *r) {
    const pleat_budget budget = r->opt.spec.budget;
    return budget.unit == PLEAT_BUDGET_TOKENS ? (uint32_t)budget.value
                                              : (uint32_t)ceil(budget.value * r->n_tokens[0] - 1e-9);
}

/* A prompt's end alone drops nothing; a replay that is cancelled does not either. */
static void read_prompt(rig *r, shadow *s, uint32_t n) {
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t j = 0; j < n; j++) s->alive[lane][r->n_tokens[0] + j] = true;
    run_step(r, r->n_tokens[0], n - 33, PLEAT_ITEM_MORE, false);
    run_step(r, r->n_tokens[0], 33, 0, false);
    check_scores(s, r);
}

static void replay(rig *r, shadow *s) {
    const uint64_t n_pages = pleat_cache_pages_held(r->cache, r->seqs[0]);
    for (uint32_t part = 0, first = 0; part < PARTS; first += parts[part++]) {
        const bool is_last = part + 1 == PARTS;
        shadow_part(s, r, first, parts[part]);
        run_step(r, first, parts[part], PLEAT_ITEM_REPLAY | (is_last ? 0 : PLEAT_ITEM_MORE), false);
        if (is_last) take_dropped(s, r, budget_of(r));
        check_scores(s, r);
        CHECK(pleat_cache_pages_held(r->cache, r->seqs[0]) <= n_pages);
    }
}

/* Two prompts, each read twice, with single tokens between and behind, which stay. */
static void test_against_shadow(void) {
    for (size_t i = 0; i < CHECK_COUNT(specs) && check_failures() == 0; i++) {
        const pleat_cache_options opt = rig_options(specs[i], NULL);
        rig r = rig_new(&opt, 1);
        static shadow s;
        memset(&s, 0, sizeof s);
        check_context("%s", specs[i]);
        for (int prompt = 0; prompt < 2; prompt++) {
            read_prompt(&r, &s, prompt ? 70 : PROMPT);
            replay(&r, &s);
            for (int n = 0; n < 20; n++) {
                for (uint32_t lane = 0; lane < LANES; lane++) s.alive[lane][r.n_tokens[0]] = true;
                run_step(&r, r.n_tokens[0], 1, 0, false);
            }
            check_scores(&s, &r);
        }
        rig_free(&r);
    }
}

/* A cancelled replay leaves its attention in the scores and nothing else. */
static void test_cancel(void) {
    const pleat_cache_options opt = rig_options(specs[0], NULL);
    rig r = rig_new(&opt, 1);
    static shadow s;
    memset(&s, 0, sizeof s);
    read_prompt(&r, &s, PROMPT);
    const uint64_t n_pages = pleat_cache_pages_held(r.cache, r.seqs[0]);
    shadow_part(&s, &r, 0, parts[0]);
    run_step(&r, 0, parts[0], PLEAT_ITEM_REPLAY, true);
    check_scores(&s, &r);
    CHECK_EQ_U64(pleat_cache_pages_held(r.cache, r.seqs[0]), n_pages);
    replay(&r, &s);
    rig_free(&r);
}

static void test_refusals(void) {
    const pleat_cache_options opt = rig_options(specs[0], NULL), other = rig_options("snapkv:budget=80", NULL);
    rig r = rig_new(&opt, 1), o = rig_new(&other, 1);
    const uint32_t again = PLEAT_ITEM_REPLAY;
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], 9, again}, 1), PLEAT_E_ARG);
    run_step(&r, 0, 100, 0, false);
    run_step(&o, 0, 100, 0, false);
    CHECK_STATUS(pleat_cache_begin(o.cache, &(pleat_cache_item){o.seqs[0], 9, again}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], 1, again}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], 9, again | PLEAT_ITEM_SEAL}, 1),
                 PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], 9, 16}, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_cache_begin(r.cache, &(pleat_cache_item){r.seqs[0], CAP - 99, again}, 1), PLEAT_E_LIMIT);
    rig_free(&r);
    rig_free(&o);
}

static const check_test tests[] = {
    {"against_shadow", test_against_shadow},
    {"cancel", test_cancel},
    {"refusals", test_refusals},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
