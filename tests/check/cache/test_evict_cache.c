/* SPDX-License-Identifier: MIT
 *
 * test_evict_cache.c: caches under eviction policies, as a whole, against a shadow in double precision that knows every
 * key, value and attention weight. The four strategies of reclamation run side by side: they keep the same tokens and
 * give the same attention. Where tokens are merged the shadow takes over what the first has made of them (test_merge.c
 * judges that), and knows what it means for attention. test_evict.c tests the policies alone, test_reclaim.c the strategies alone.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/lane.h"
#include "check.h"
#include "core/half.h"
#include "key_oracle.h"
#include "policy_rig.h"
#include "stats/stats.h"
#include "stats_rig.h"

enum { LANES = LAYERS * HEADS, STRATEGIES = 4 };
static const char *const strategies[STRATEGIES] = {"none", "block", "copy", "reuse"};

static const struct evict_spec {
    const char *text, *stage;
    bool by_rank; /* the shadow knows what is ranked */
    bool equal;   /* every lane holds the budget */
} evict_specs[] = {
    {"h2o:budget=40,window=8,sinks=2", "", true, true},
    {"h2o:budget=25%,window=16,sinks=0", "", true, true},
    {"streaming:budget=37,sinks=3", "", true, true},
    {"recent:budget=33", "", true, true},
    {"random:budget=48,window=4,sinks=1", "", false, true},
    {"snapkv:budget=40,window=16,sinks=4", "", true, true},
    {"snapkv:budget=30%,window=7,sinks=0", "", true, true},
    {"novel:budget=44,window=8,sinks=2", "", true, true},
    {"novel:budget=30%,window=11,sinks=0", "", true, true},
    {"novel:budget=44,window=8,sinks=2,mean=model", "", true, true},
    {"novel:budget=30%,window=11,sinks=0,mean=model", "", true, true},
    {"novel:budget=44,window=8,sinks=2,near=2", "", true, true},
    {"novel:budget=44,window=8,sinks=2,mean=model,near=2", "", true, true},
    {"novel:budget=30%,window=11,sinks=0,mean=model,near=5", "", true, true},
    {"leverage:budget=44,window=8,sinks=2,near=2", "", true, true},
    {"leverage:budget=30%,window=11,sinks=0", "", true, true},
    {"leverage:budget=44,window=8,sinks=2,fall=60%", "", true, false},
    {"pyramidkv:budget=64,window=8,sinks=2", "", false, false},
    {"adakv:budget=50,window=12,sinks=4", "", false, false},
    {"h2o:budget=60,window=8,sinks=2", "+kvcrush:share=40%", false, true},
    {"snapkv:budget=50,window=8,sinks=2", "+kvcrush:share=30%,anchor=alternate", false, true},
    {"streaming:budget=64,sinks=2", "+kvcrush:share=50%,unit=page", false, false},
    {"h2o:budget=44,window=8,sinks=2", "+merge", true, true},
    {"snapkv:budget=40,window=12,sinks=2", "+merge", false, true},
    {"adakv:budget=50,window=12", "+merge", false, false},
    {"streaming:budget=40,sinks=3", "+merge", true, true},
    {"novel:budget=44,window=8,sinks=2", "+merge", true, true},
    {"expected:budget=44,window=8,sinks=2", "", true, true},
    {"expected:budget=30%,window=11,sinks=0", "", true, true},
    {"dropkv:budget=44,window=8,sinks=2", "", true, true},
    {"dropkv:budget=30%,window=11,sinks=0", "", true, true},
    {"dropkv:budget=40,window=12,sinks=2", "+novel:share=30%", true, true},
    {"h2o:budget=44,window=8,sinks=2", "+novel", true, true},
    {"snapkv:budget=40,window=12,sinks=2", "+novel:share=30%,mean=model", true, true},
    {"streaming:budget=40,sinks=3", "+novel:share=100%", true, true},
    {"streaming:budget=40,sinks=3", "+novel:share=50%,near=2", true, true},
    {"random:budget=48,window=4,sinks=1", "+novel:mean=model", false, true},
    {"adakv:budget=50,window=12,sinks=4", "+novel", false, false},
};

/* ---- the shadow -------------------------------------------------------------------------------------- */

typedef struct shadow {
    pleat_spec spec;
    uint32_t n_tokens, n_prompt;
    bool alive[LANES][CAP];
    double score[LANES][CAP];
    double by_head[LANES][GROUP][CAP]; /* the same, of each query head */
    bool stands[LANES][CAP];           /* representatives, or chosen by novelty */
    bool ends_prompt;                  /* the step has done so */
    double novelty[LANES][CAP];        /* +novel: since a prompt ended */
    double key_sum[LANES][D];          /* novel: of unturned unit keys */
    uint32_t n_seen, n_classed;        /* novel: tokens in it; tokens that have left the window */
    double received[LANES][CAP];       /* merged: what all later queries give */
    uint16_t mass[LANES][CAP];         /* merged: as pages have it */
    float taken[LANES][CAP][D];        /* the value, where there is a mass */
    uint32_t n_takers;                 /* so far */
    double *out;                       /* [rows][ROW] of the last layer step */
} shadow;

static double dot(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < D; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* Query `row` of the step, one query head: weights of all keys that it sees, and the output. */
static void look(const shadow *s, uint32_t lane, uint32_t layer, uint32_t position, uint32_t first_new, uint32_t q_head,
                 double *weight, double *out) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    float mine[D];
    double total = 0, most = -INFINITY;
    rig_token(0, layer, position, q, k, v);
    memcpy(mine, q + q_head * D, sizeof mine);
    for (uint32_t j = 0; j <= position; j++) {
        weight[j] = -INFINITY;
        if (j < first_new && !s->alive[lane][j]) continue;
        rig_token(0, layer, j, q, k, v);
        weight[j] = cache_logit(dot(mine, k + lane % HEADS * D) / sqrt(D));
        weight[j] += (double)pleat__f16_to_f32(s->mass[lane][j]) * log(2);
        most = fmax(most, weight[j]);
    }
    for (uint32_t j = 0; j <= position; j++) total += exp(weight[j] - most);
    memset(out, 0, D * sizeof *out);
    for (uint32_t j = 0; j <= position; j++) {
        weight[j] = exp(weight[j] - most) / total;
        rig_token(0, layer, j, q, k, v);
        const float *value = s->mass[lane][j] ? s->taken[lane][j] : v + lane % HEADS * D;
        for (int i = 0; i < D; i++) out[i] += weight[j] * (double)value[i];
    }
}

static bool is_novel(const shadow *s) { return s->spec.policy == PLEAT_POLICY_NOVEL; }
static bool expects(const shadow *s) { return s->spec.policy == PLEAT_POLICY_EXPECTED; }
static bool has_leverage(const shadow *s) { return s->spec.policy == PLEAT_POLICY_LEVERAGE; }
static bool counts_window(const shadow *s) {
    return s->spec.policy >= PLEAT_POLICY_SNAPKV && !is_novel(s) && !expects(s) && !has_leverage(s);
}
static bool counts_errors(const shadow *s) { return s->spec.policy == PLEAT_POLICY_DROPKV; }
static bool counts_sum(const shadow *s) { return s->spec.policy == PLEAT_POLICY_H2O; }
static bool counts(const shadow *s) { return counts_window(s) || counts_sum(s); }

/* How far what a query finds moves, squared, without a token to which it gives `weight`. */
static double error_without(const shadow *s, uint32_t lane, uint32_t layer, uint32_t j, double weight,
                            const double *out) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    double square = 0;
    rig_token(0, layer, j, q, k, v);
    for (int i = 0; i < D; i++) {
        const double value = (double)v[lane % HEADS * D + i], others = (out[i] - weight * value) / (1 - weight);
        square += (others - out[i]) * (others - out[i]);
    }
    return s->alive[lane][j] || j >= s->n_tokens ? square : 0;
}

/* One layer of a step of n tokens: s->out, and what every key has received. */
static void shadow_layer(shadow *s, uint32_t layer, uint32_t n) {
    double weight[CAP];
    for (uint32_t head = 0; head < HEADS; head++) {
        const uint32_t lane = layer * HEADS + head, last = n < s->spec.window ? n : s->spec.window;
        for (uint32_t j = 0; counts_window(s) && n > 1 && j < s->n_tokens; j++) {
            s->score[lane][j] *= 1 - (double)last / s->spec.window;
            for (uint32_t g = 0; g < GROUP; g++) s->by_head[lane][g][j] *= 1 - (double)last / s->spec.window;
        }
        for (uint32_t t = 0; t < n; t++)
            for (uint32_t g = 0; g < GROUP; g++) {
                const uint32_t q_head = head * GROUP + g, position = s->n_tokens + t;
                look(s, lane, layer, position, s->n_tokens, q_head, weight, s->out + (size_t)t * ROW + q_head * D);
                const bool is_counted = counts_sum(s) || (counts_window(s) && n > 1 && t >= n - last);
                for (uint32_t j = 0; j < position; j++) s->received[lane][j] += weight[j];
                for (uint32_t j = 0; is_counted && j < position; j++) {
                    s->score[lane][j] += counts_errors(s) ? error_without(s, lane, layer, j, weight[j],
                                                                          s->out + (size_t)t * ROW + q_head * D)
                                                          : weight[j];
                    s->by_head[lane][g][j] += weight[j];
                }
            }
    }
}

/* ---- keys as they were before RoPE */

/* The key of a lane at a position, turned back by hand and of length 1. */
static void unit_key(uint32_t lane, uint32_t position, double *u) {
    double square = 0;
    oracle_key(lane, position, u);
    for (uint32_t i = 0; i < D; i++) square += u[i] * u[i];
    for (uint32_t i = 0; i < D; i++) u[i] /= sqrt(square);
}

static bool has_mean(const shadow *s) { return s->spec.mean == PLEAT_KEY_MEAN_MODEL; }

static void add_key(shadow *s, uint32_t lane, uint32_t position) {
    double u[D];
    unit_key(lane, position, u);
    for (uint32_t i = 0; i < D; i++) s->key_sum[lane][i] += u[i];
}

static double novelty(const shadow *s, uint32_t lane, uint32_t position) {
    double u[D], product = 0, square = 0;
    const float *own = pleat__stats_field(cache_stats, lane / HEADS, lane % HEADS, 0);
    unit_key(lane, position, u);
    for (uint32_t i = 0; i < D; i++) {
        const double mean = has_mean(s) ? (double)own[i] : s->key_sum[lane][i];
        product += u[i] * mean;
        square += mean * mean;
    }
    return 1 - product / sqrt(square);
}

/* A token's mean over its neighbours; what has been dropped is none, but where own are the model's and final. */
static double near_mean(const shadow *s, uint32_t lane, uint32_t position, const double *own) {
    const bool is_final = is_novel(s) && has_mean(s);
    double sum = 0;
    int n = 0;
    for (int64_t j = (int64_t)position - s->spec.near; j <= (int64_t)position + s->spec.near; j++) {
        const bool is_inside = j >= 0 && j < s->n_tokens, is_there = is_inside && (is_final || s->alive[lane][j]);
        if (is_there) sum += own[j];
        n += is_there || !is_inside;
    }
    return sum / n;
}

/* When a prompt has ended: the scores of all tokens that are there. */
static void score_leverage(shadow *s, uint32_t lane) {
    static double rows[CAP][D];
    double own[CAP];
    bool counts[CAP];
    for (uint32_t j = 0; j < s->n_tokens; j++) {
        oracle_key(lane, j, rows[j]);
        counts[j] = s->alive[lane][j] && j >= s->spec.sinks;
    }
    oracle_leverage(rows, counts, s->n_tokens, own);
    for (uint32_t j = 0; j < s->spec.sinks; j++) own[j] = 0;
    for (uint32_t j = 0; j < s->n_tokens; j++) s->score[lane][j] = near_mean(s, lane, j, own);
}

/* A token has come: it joins its neighbours' scores. */
static void score_next(const shadow *s, uint32_t lane, uint32_t position, double *scores) {
    const double part = 1.0 / (2 * s->spec.near + 1);
    scores[position] = novelty(s, lane, position) * part;
    for (uint32_t j = position < s->spec.near ? 0 : position - s->spec.near; j < position; j++) {
        if (s->alive[lane][j]) scores[position] += novelty(s, lane, j) * part;
        scores[j] += novelty(s, lane, position) * part;
    }
}

/* The end of a step of n tokens, which are among n_tokens already: of a prompt, or of one that brought a single token. */
static void score_keys(shadow *s, uint32_t n) {
    if (s->n_tokens <= s->spec.window + s->n_classed) return;
    const bool is_prompt = n > 1 || s->n_tokens - s->spec.window - s->n_classed > 1;
    double own[CAP];
    s->n_classed = s->n_tokens - s->spec.window;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        double *scores = s->spec.novel ? s->novelty[lane] : s->score[lane];
        for (uint32_t j = s->n_seen; j < s->n_tokens; j++) {
            add_key(s, lane, j);
            score_next(s, lane, j, scores);
        }
        for (uint32_t j = 0; is_prompt && j < s->n_tokens; j++) own[j] = novelty(s, lane, j);
        for (uint32_t j = 0; is_prompt && j < s->n_tokens; j++) scores[j] = near_mean(s, lane, j, own);
    }
    s->n_seen = s->n_tokens;
}

/* ---- what is expected of the queries to come */

/* Of a query head: the mean of what follows, and by channel the mean square. */
static void expect(const shadow *s, uint32_t layer, uint32_t q_head, double *m, double *square) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    double mean[D] = {0}, u[D];
    memset(m, 0, D * sizeof *m);
    memset(square, 0, D * sizeof *square);
    for (uint32_t j = 4; j < s->n_tokens; j++) {
        rig_token(0, layer, j, q, k, v);
        for (uint32_t i = 0; i < D; i++) u[i] = (double)q[q_head * D + i];
        for (uint32_t i = 0; i < D; i++) square[i] += u[i] * u[i] / (s->n_tokens - 4);
        oracle_turn(layer, j, -1, u);
        for (uint32_t i = 0; i < D; i++) mean[i] += u[i] / (s->n_tokens - 4);
    }
    for (uint32_t ahead = 0; ahead < 512; ahead++) {
        memcpy(u, mean, sizeof u);
        oracle_turn(layer, s->n_tokens + ahead, 1, u);
        for (uint32_t i = 0; i < D; i++) m[i] += u[i] / 512;
    }
}

/* Spreads from mean squares: a pair's two are alike. */
static void spread(uint32_t layer, const double *m, double *square) {
    const pleat_rope *rope = cache_rope(layer, D);
    const uint32_t n_turned = rope ? rope->n_dims : 0;
    for (uint32_t i = 0; i < n_turned / 2; i++) {
        const uint32_t a = rope->is_halves ? i : 2 * i, b = rope->is_halves ? i + n_turned / 2 : 2 * i + 1;
        square[a] = square[b] = fmax(0, (square[a] + square[b] - m[a] * m[a] - m[b] * m[b]) / 2);
    }
    for (uint32_t i = n_turned; i < D; i++) square[i] = fmax(0, square[i] - m[i] * m[i]);
}

/* When a prompt has ended: the scores of all tokens that are there. */
static void score_expected(shadow *s, uint32_t lane) {
    static float q[ROW], k[KV_ROW], v[KV_ROW];
    double m[D], square[D], z[CAP], scale = 1 / sqrt(D);
    for (uint32_t j = 0; j < s->n_tokens; j++) s->score[lane][j] = 0;
    for (uint32_t g = 0; g < GROUP; g++) {
        double total = 0;
        expect(s, lane / HEADS, lane % HEADS * GROUP + g, m, square);
        spread(lane / HEADS, m, square);
        for (uint32_t j = 0; j < s->n_tokens; j++) {
            rig_token(0, lane / HEADS, j, q, k, v);
            const float *key = k + lane % HEADS * D;
            z[j] = 0;
            for (uint32_t i = 0; i < D; i++)
                z[j] += scale * (double)key[i] * m[i] + scale * scale / 2 * square[i] * (double)key[i] * (double)key[i];
            if (s->alive[lane][j]) total += exp(z[j]);
        }
        for (uint32_t j = 0; j < s->n_tokens; j++) {
            rig_token(0, lane / HEADS, j, q, k, v);
            const float *value = v + lane % HEADS * D;
            s->score[lane][j] += exp(z[j]) / total / GROUP * sqrt(dot(value, value));
        }
    }
}

static double rank_of(const shadow *s, uint32_t lane, uint32_t position) {
    double sum = 0;
    if (s->spec.policy == PLEAT_POLICY_RECENT || s->spec.policy == PLEAT_POLICY_STREAMING) return position;
    if (!counts_window(s) || counts_errors(s)) return s->score[lane][position];
    for (uint32_t j = position < 2 ? 0 : position - 2; j <= position + 2 && j < s->n_tokens - s->spec.window; j++)
        if (s->alive[lane][j]) sum += s->score[lane][j];
    return sum / 5;
}

static uint32_t budget_of(const shadow *s) {
    const uint32_t least = s->spec.sinks + s->spec.window;
    const double b = s->spec.budget.unit == PLEAT_BUDGET_SHARE ? ceil(s->spec.budget.value * s->n_prompt - 1e-4)
                                                               : s->spec.budget.value;
    return b < least ? least : (uint32_t)b;
}

static bool spares(const shadow *s, uint32_t position) {
    return position < s->spec.sinks || position + s->spec.window >= s->n_tokens;
}

/* Of what the budget leaves beside sinks and window a share stands for its novelty, until a prompt ends again. */
static void choose_novel(shadow *s, uint32_t lane) {
    double middle = budget_of(s);
    for (uint32_t j = 0; j < s->n_tokens; j++) {
        s->stands[lane][j] = false;
        middle -= s->alive[lane][j] && spares(s, j);
    }
    for (double left = ceil((double)s->spec.share * middle - 1e-4); left > 0; left--) {
        uint32_t best = CAP;
        for (uint32_t j = 0; j < s->n_tokens; j++)
            if (s->alive[lane][j] && !spares(s, j) && !s->stands[lane][j] &&
                (best == CAP || s->novelty[lane][j] > s->novelty[lane][best]))
                best = j;
        if (best == CAP) return;
        s->stands[lane][best] = true;
    }
}

/* The attention that a token is said to have received; a representative's is infinite. */
static void check_score(const shadow *s, uint32_t lane, uint32_t position, float significance) {
    const double score = s->score[lane][position];
    if (is_novel(s)) CHECK_NEAR(significance, score, 1e-5);
    if (has_leverage(s) && s->ends_prompt) CHECK_NEAR(significance, score, 1e-4 * (1 + score));
    if (expects(s) && s->ends_prompt) CHECK_NEAR(significance, score, 1e-7 + 2e-5 * score);
    if (!counts(s) || (s->spec.crush && isinf(significance))) return;
    CHECK_NEAR(significance * (float)(s->n_tokens - 1 - position), score, 1e-5 + 1e-5 * score);
}

/* What `tokens` says is kept of a lane is right, and becomes what is alive. */
static void take_over(shadow *s, uint32_t lane, const pleat_cache_token *tokens, const struct evict_spec *spec,
                      bool evicted) {
    double least_kept = INFINITY, max_gone = -INFINITY;
    uint32_t n_live = 0, n_before = 0, n_stand = 0;
    bool now[CAP];
    if (s->spec.novel && spec->by_rank && s->ends_prompt) choose_novel(s, lane);
    for (uint32_t j = 0; j < s->n_tokens; j++) {
        now[j] = tokens[j].level != PLEAT_LEVEL_DROPPED;
        n_live += now[j];
        n_before += s->alive[lane][j];
        CHECK(s->alive[lane][j] || !now[j]);
        CHECK(now[j] || !s->stands[lane][j] || s->spec.policy == PLEAT_POLICY_PYRAMIDKV); /* its budgets fall */
        if (!s->spec.novel) s->stands[lane][j] = now[j] && isinf(tokens[j].significance);
        n_stand += s->stands[lane][j];
        if (!s->alive[lane][j]) continue;
        if (spares(s, j)) {
            CHECK(now[j]);
            continue;
        }
        const double rank = s->spec.novel && s->stands[lane][j] ? INFINITY : rank_of(s, lane, j);
        if (now[j]) least_kept = fmin(least_kept, rank);
        if (!now[j]) max_gone = fmax(max_gone, rank);
        if (now[j]) check_score(s, lane, j, tokens[j].significance);
    }
    if (spec->by_rank) CHECK(max_gone <= least_kept + (has_leverage(s) ? 1e-3 : 1e-5));
    if (spec->equal) CHECK_EQ_U64(n_live, evicted && n_before > budget_of(s) ? budget_of(s) : n_before);
    CHECK(n_stand == 0 || s->spec.crush || s->spec.novel);
    if (spec->equal && (s->spec.crush || (s->spec.novel && spec->by_rank)) && s->n_prompt > 0) CHECK(n_stand > 0);
    memcpy(s->alive[lane], now, s->n_tokens * sizeof *now);
}

/* ---- four caches side by side ------------------------------------------------------------------------- */

typedef struct quartet {
    rig rigs[STRATEGIES];
    shadow s;
    const struct evict_spec *spec;
} quartet;

static void attend_all(quartet *t, const share *mine) {
    static float q[CAP * ROW], k[CAP * KV_ROW], v[CAP * KV_ROW], out[CAP * ROW];
    for (uint32_t i = 0; i < STRATEGIES; i++) CHECK_STATUS(rig_begin(&t->rigs[i], mine, 1), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        shadow_layer(&t->s, layer, mine->n);
        rig_rows(&t->rigs[0], mine, 1, layer, q, k, v);
        for (uint32_t i = 0; i < STRATEGIES; i++) {
            CHECK_STATUS(pleat_cache_attend(t->rigs[i].cache, layer, q, k, v, out), PLEAT_OK);
            double far = 0, norm = 0;
            for (size_t x = 0; x < (size_t)mine->n * ROW; x++) {
                far += (out[x] - t->s.out[x]) * (out[x] - t->s.out[x]);
                norm += t->s.out[x] * t->s.out[x];
            }
            CHECK_NEAR(sqrt(far / norm), 0, i > 0 && t->s.spec.merge ? 1e-2 : 1e-6); /* s is rounded: merge.h */
        }
    }
}

static void compare_tokens(quartet *t, bool evicts) {
    static pleat_cache_token tokens[CAP], others[CAP];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t layer = lane / HEADS, head = lane % HEADS, n = t->s.n_tokens;
        CHECK_STATUS(pleat_cache_tokens(t->rigs[0].cache, t->rigs[0].seqs[0], layer, head, 0, n, tokens), PLEAT_OK);
        for (uint32_t i = 1; i < STRATEGIES; i++) {
            CHECK_STATUS(pleat_cache_tokens(t->rigs[i].cache, t->rigs[i].seqs[0], layer, head, 0, n, others), PLEAT_OK);
            for (uint32_t j = 0; j < n; j++) CHECK(tokens[j].level == others[j].level);
        }
        take_over(&t->s, lane, tokens, t->spec, evicts);
    }
}

/* Where query heads are told apart, each has its own score in the page. */
static void compare_heads(const quartet *t, uint32_t i) {
    const pleat_cache *c = t->rigs[i].cache;
    const pleat__sequence *seq = pleat__cache_seq(c, t->rigs[i].seqs[0]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const pleat__kv_run run = pleat__cache_open_run(c, &seq->table, lane, PLEAT__HIGH);
        CHECK_EQ_U64(run.layout->n_scores, GROUP);
        for (uint32_t slot = 0; slot < run.n_slots; slot++) {
            uint8_t *page = pleat__kv_page(&run, slot / run.layout->tokens);
            const uint32_t at = slot % run.layout->tokens;
            const int32_t position = pleat__positions(run.layout, page)[at];
            for (uint32_t g = 0; position >= 0 && !t->s.stands[lane][position] && g < GROUP; g++)
                CHECK_NEAR(pleat__head_scores(run.layout, page, g)[at], t->s.by_head[lane][g][position],
                           1e-5 + 1e-5 * t->s.by_head[lane][g][position]);
        }
    }
}

/* Take over what a token of the first cache has become; attention that it received is known before. */
static void take_over_token(quartet *t, uint32_t lane, uint8_t *page, uint32_t at) {
    shadow *s = &t->s;
    const pleat__page_layout *layout = &t->rigs[0].cache->layouts[0];
    const int32_t position = pleat__positions(layout, page)[at];
    if (position < 0) return;
    const uint16_t mass = pleat__masses(layout, page)[at];
    const float score = pleat__head_scores(layout, page, is_novel(s) ? 1 : 0)[at];
    double *known = counts_window(s) ? &s->score[lane][position] : &s->received[lane][position];
    if (mass == 0) {
        CHECK_NEAR((double)score, *known, 1e-5 + 1e-5 * *known);
        return;
    }
    float k[D];
    CHECK((double)score > *known * (1 - 1e-5) && mass >= s->mass[lane][position]);
    s->n_takers += mass > s->mass[lane][position];
    pleat__quant_load_token(layout, page, at, k, s->taken[lane][position]);
    s->mass[lane][position] = mass;
    *known = (double)score;
    if (counts_sum(s)) s->score[lane][position] = (double)score;
}

static void take_over_merged(quartet *t) {
    const pleat_cache *c = t->rigs[0].cache;
    const pleat__sequence *seq = pleat__cache_seq(c, t->rigs[0].seqs[0]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const pleat__kv_run run = pleat__cache_open_run(c, &seq->table, lane, PLEAT__HIGH);
        for (uint32_t slot = 0; slot < run.n_slots; slot++)
            take_over_token(t, lane, pleat__kv_page(&run, slot / run.layout->tokens), slot % run.layout->tokens);
    }
}

static void compare_slots(quartet *t) {
    pleat_cache_usage u[STRATEGIES];
    for (uint32_t i = 0; i < STRATEGIES; i++) {
        CHECK_STATUS(pleat_cache_get_usage(t->rigs[i].cache, t->rigs[i].seqs[0], &u[i]), PLEAT_OK);
        CHECK(pleat_cache_is_valid(t->rigs[i].cache));
        CHECK_EQ_U64(u[i].tokens_high, u[0].tokens_high);
        CHECK_EQ_U64(u[i].slots, u[i].pages_used * t->rigs[i].page_tokens[0]);
    }
    const uint64_t least = u[0].tokens_high;
    CHECK(u[2].slots <= u[3].slots && u[3].slots <= u[1].slots && u[1].slots <= u[0].slots);
    CHECK(u[3].slots < least + (uint64_t)LANES * (t->rigs[0].page_tokens[0] + 1)); /* a part-filled page, and a hole */
    CHECK(u[0].tokens_moved == 0 && u[1].tokens_moved == 0 && u[0].pages_returned == 0);
}

static void step(quartet *t, uint32_t n, bool more) {
    const share mine = {0, n, more};
    attend_all(t, &mine);
    for (uint32_t i = 0; i < STRATEGIES; i++) CHECK_STATUS(pleat_cache_end(t->rigs[i].cache), PLEAT_OK);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t j = 0; j < n; j++) t->s.alive[lane][t->s.n_tokens + j] = true;
    t->s.n_tokens += n;
    const bool ends_prompt = !more && (n > 1 || t->s.n_prompt == 0); /* its last part may be one token */
    if (ends_prompt) t->s.n_prompt = t->s.n_tokens;
    t->s.ends_prompt = ends_prompt;
    for (uint32_t lane = 0; expects(&t->s) && ends_prompt && lane < LANES; lane++) score_expected(&t->s, lane);
    for (uint32_t lane = 0; has_leverage(&t->s) && ends_prompt && lane < LANES; lane++) score_leverage(&t->s, lane);
    if ((is_novel(&t->s) || t->s.spec.novel) && !more) score_keys(&t->s, n);
    for (uint32_t i = 0; i < STRATEGIES; i++) t->rigs[i].n_tokens[0] = t->s.n_tokens;
    if (t->s.spec.merge) take_over_merged(t);
    compare_tokens(t, ends_prompt || (!more && (t->s.spec.policy < PLEAT_POLICY_SNAPKV || is_novel(&t->s))));
    compare_slots(t);
    for (uint32_t i = 0; t->s.spec.crush && counts(&t->s) && i < STRATEGIES; i++) compare_heads(t, i);
}

static quartet *quartet_new(const struct evict_spec *spec) {
    quartet *t = calloc(1, sizeof *t);
    char text[160];
    t->spec = spec;
    for (uint32_t i = 0; i < STRATEGIES; i++) {
        snprintf(text, sizeof text, "%s,format=f32,reclaim=%s%s", spec->text, strategies[i], spec->stage);
        pleat_cache_options opt = rig_options(text, NULL);
        opt.page_tokens = 16;
        t->rigs[i] = rig_new(&opt, 1);
        t->s.spec = opt.spec;
    }
    t->s.out = calloc((size_t)CAP * ROW, sizeof *t->s.out);
    return t;
}

static void quartet_free(quartet *t) {
    for (uint32_t i = 0; i < STRATEGIES; i++) rig_free(&t->rigs[i]);
    free(t->s.out);
    free(t);
}

/* A prompt in parts, generation, a later turn, generation. */
static void test_strategies_against_shadow(void) {
    const uint32_t n_generated = (uint32_t)check_rounds(60, 20);
    for (size_t i = 0; i < CHECK_COUNT(evict_specs); i++) {
        check_context("%s%s", evict_specs[i].text, evict_specs[i].stage);
        cache_logit_cap = i % 2 ? 1.5f : 0;
        quartet *t = quartet_new(&evict_specs[i]);
        step(t, 70, true);
        step(t, 75, false);
        for (uint32_t n = 0; n < n_generated; n++) step(t, 1, false);
        step(t, 90, false);
        for (uint32_t n = 0; n < n_generated / 2; n++) step(t, 1, false);
        CHECK(!t->s.spec.merge || t->s.n_takers > LANES);
        quartet_free(t);
    }
    cache_logit_cap = 0;
}

/* A prompt whose last part is a single token ends there. */
static void test_a_prompt_ends_in_one_token(void) {
    for (size_t i = 0; i < CHECK_COUNT(evict_specs); i++) {
        check_context("%s%s", evict_specs[i].text, evict_specs[i].stage);
        quartet *t = quartet_new(&evict_specs[i]);
        step(t, 130, true);
        for (uint32_t n = 0; n < 12; n++) step(t, 1, false);
        quartet_free(t);
    }
}

/* Representatives of earlier turns stay, yet no layer passes its budget: many turns, whatever gives lanes their own. */
static void test_turns_keep_budgets(void) {
    static const struct evict_spec specs[] = {
        {"adakv:budget=60,window=1,sinks=0", "+kvcrush:share=100%", false, false},
        {"adakv:budget=48,window=8,sinks=2", "+kvcrush:share=50%,anchor=random", false, false},
        {"pyramidkv:budget=60,window=1,sinks=0", "+kvcrush:share=25%", false, false},
        {"pyramidkv:budget=40,window=6,sinks=2", "+kvcrush:share=100%", false, false},
        {"adakv:budget=50,window=6,sinks=2", "", false, false},
        {"pyramidkv:budget=50,window=6,sinks=2", "", false, false},
        {"leverage:budget=50,window=6,sinks=2,fall=95%", "", false, false},
    };
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        quartet *t = quartet_new(&specs[i]);
        for (uint32_t turn = 0; turn < 12 && check_failures() == 0; turn++) {
            pleat_cache_usage u;
            check_context("%s%s turn %u", specs[i].text, specs[i].stage, turn);
            step(t, turn == 0 ? 62 : 10 + turn, false);
            CHECK_STATUS(pleat_cache_get_usage(t->rigs[3].cache, t->rigs[3].seqs[0], &u), PLEAT_OK);
            CHECK(u.tokens_high <= (uint64_t)budget_of(&t->s) * LANES);
            step(t, 1, false);
        }
        quartet_free(t);
    }
}

static const check_test tests[] = {
    {"turns_keep_budgets", test_turns_keep_budgets},
    {"a_prompt_ends_in_one_token", test_a_prompt_ends_in_one_token},
    {"strategies_against_shadow", test_strategies_against_shadow},
};

int main(int argc, char **argv) {
    const cache_shape shape = {.n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = D, .group = GROUP};
    return stats_main(&shape, tests, CHECK_COUNT(tests), argc, argv);
}
