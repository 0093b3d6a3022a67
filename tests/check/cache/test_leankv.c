/* SPDX-License-Identifier: MIT
 *
 * test_leankv.c: caches whose specs have a policy, through the public interface.
 *
 * The oracle keeps, for each lane, every token's key and value as handed in, as the high format stores them and as the
 * low format stores those.  It keeps how each token is kept, too, and the attention it has received, from its own
 * attention in float64.  After each step it decides by the text of leankv.h and topk.c what should have moved, and
 * every token must stand where that says.  Kept tokens are judged by the significance that the cache reports, after
 * that has been compared; those that have none to report, as dropped ones, are judged by the oracle's, less the
 * tolerance, which favours their end.
 *
 * Where not every step is counted, tokens leave from the lowest slot on: the oracle knows who stands in which.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "page/pool.h"
#include "policy_rig.h"
#include "quant/quant.h"

#define TOLERANCE 1e-3 /* of a significance, relative */

typedef struct lane {
    double sum[CAP];
    pleat_level level[CAP];
    float k[CAP][D], v[CAP][D];           /* as handed in */
    float high_k[CAP][D], high_v[CAP][D]; /* as stored */
    float low_k[CAP][D], low_v[CAP][D];
    uint32_t slots[2][CAP],
        n_slots[2]; /* positions of the tokens in the high and the low side's slots, with every > 1 */
} lane;

typedef struct world {
    rig rig;
    pleat_cache *plain[2];     /* one lane each in the high and in the low format alone */
    lane *lanes[SEQS];         /* [LAYERS][HEADS] each */
    uint32_t n_classed[SEQS];  /* tokens that have left the window, and been classed */
    bool has_prompt[SEQS];     /* its first prompt has ended */
    bool is_step[SEQS];        /* in generation, or as short as what is between counted steps */
    uint64_t open_bytes[SEQS]; /* what a sequence holds without a page */
    uint64_t n_moves[3][3];    /* [from][to], levels */
} world;

/* ---- storing ----------------------------------------------------------------------------------------- */

static pleat_cache *plain_new(pleat_format format) {
    pleat_cache_options opt = rig_options("f16", NULL);
    opt.spec.high = format;
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    return cache_made(&opt);
}

/* n tokens as `plain` stores them. */
static void reformat(pleat_cache *plain, uint32_t n, float (*k)[D], float (*v)[D], float (*k_out)[D],
                     float (*v_out)[D]) {
    pleat_seq seq;
    CHECK_STATUS(pleat_cache_open(plain, n, &seq), PLEAT_OK);
    CHECK_STATUS(pleat_cache_begin(plain, &(pleat_cache_item){seq, n, 0}, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_store(plain, 0, k[0], v[0]), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(plain), PLEAT_OK);
    CHECK_STATUS(pleat_cache_export(plain, seq, 0, 0, 0, n, k_out[0], v_out[0]), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(plain, seq), PLEAT_OK);
}

static world world_new(const struct rig_spec *spec) {
    pleat_cache_options opt = rig_options(spec->text, NULL);
    opt.page_tokens = spec->page_tokens;
    world w = {.rig = rig_new(&opt, SEQS)};
    w.plain[0] = plain_new(opt.spec.high);
    w.plain[1] = plain_new(opt.spec.policy == PLEAT_POLICY_LEANKV ? opt.spec.low : opt.spec.high);
    for (uint32_t s = 0; s < SEQS; s++) {
        pleat_cache_usage u;
        CHECK_STATUS(pleat_cache_get_usage(w.rig.cache, w.rig.seqs[s], &u), PLEAT_OK);
        CHECK_EQ_U64(u.pages_used, 0);
        w.open_bytes[s] = u.bytes;
        w.lanes[s] = calloc(LAYERS * HEADS, sizeof(lane));
    }
    return w;
}

static void world_free(world *w) {
    rig_free(&w->rig);
    for (uint32_t s = 0; s < SEQS; s++) free(w->lanes[s]);
    pleat_cache_destroy(&w->plain[0]);
    pleat_cache_destroy(&w->plain[1]);
}

static lane *lane_at(const world *w, uint32_t seq, uint32_t layer, uint32_t head) {
    return &w->lanes[seq][layer * HEADS + head];
}

/* Enter an item's new tokens into the oracle's lane. */
static void enter_tokens(world *w, const share *s, uint32_t layer, uint32_t head, const float *k, const float *v) {
    const uint32_t first = w->rig.n_tokens[s->seq];
    lane *l = lane_at(w, s->seq, layer, head);
    for (uint32_t t = 0; t < s->n; t++) {
        memcpy(l->k[first + t], k + (size_t)t * KV_ROW + head * D, D * sizeof *k);
        memcpy(l->v[first + t], v + (size_t)t * KV_ROW + head * D, D * sizeof *v);
        l->sum[first + t] = 0;
        l->level[first + t] = PLEAT_LEVEL_HIGH;
    }
    reformat(w->plain[0], s->n, l->k + first, l->v + first, l->high_k + first, l->high_v + first);
    reformat(w->plain[1], s->n, l->high_k + first, l->high_v + first, l->low_k + first, l->low_v + first);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* The key or value that queries of a step see: the chunk's own tokens exactly, others as stored. */
static const float *seen(const lane *l, uint32_t i, uint32_t n_exact_from, bool is_key) {
    if (i >= n_exact_from) return is_key ? l->k[i] : l->v[i];
    if (l->level[i] == PLEAT_LEVEL_HIGH) return is_key ? l->high_k[i] : l->high_v[i];
    return is_key ? l->low_k[i] : l->low_v[i];
}

static double dot(const float *a, const float *b) {
    double sum = 0;
    for (uint32_t j = 0; j < D; j++) sum += (double)a[j] * (double)b[j];
    return sum;
}

/* One query head at `position`: weights of all tokens up to it, and whether `out` is right. */
static void attend_head(const lane *l, uint32_t position, uint32_t n_exact_from, const float *q, float sink,
                        const float *out, double *weights) {
    double sum = exp((double)sink), o[D] = {0}, diff2 = 0, norm2 = 0;
    for (uint32_t i = 0; i <= position; i++) {
        weights[i] = 0;
        if (l->level[i] == PLEAT_LEVEL_DROPPED) continue;
        sum += weights[i] = exp(cache_logit(dot(q, seen(l, i, n_exact_from, true)) / sqrt(D)));
    }
    for (uint32_t i = 0; i <= position; i++) {
        weights[i] /= sum;
        if (l->level[i] == PLEAT_LEVEL_DROPPED) continue;
        for (uint32_t j = 0; j < D; j++) o[j] += weights[i] * (double)seen(l, i, n_exact_from, false)[j];
    }
    for (uint32_t j = 0; j < D; j++) {
        diff2 += (o[j] - (double)out[j]) * (o[j] - (double)out[j]);
        norm2 += o[j] * o[j];
    }
    CHECK_NEAR(sqrt(diff2 / norm2), 0, 1e-3);
}

/* What an item's queries give to the tokens before them. */
static void receive_attention(world *w, const share *s, uint32_t layer, uint32_t head, const float *q,
                              const float *out) {
    const uint32_t first = w->rig.n_tokens[s->seq], n_exact_from = s->n > 1 ? first : UINT32_MAX;
    lane *l = lane_at(w, s->seq, layer, head);
    double weights[CAP], most[CAP];
    for (uint32_t t = 0; t < s->n; t++) {
        memset(most, 0, sizeof most);
        for (uint32_t g = 0; g < GROUP; g++) {
            const size_t at = (size_t)t * ROW + (head * GROUP + g) * D;
            attend_head(l, first + t, n_exact_from, q + at, cache_sink(layer, head * GROUP + g), out + at, weights);
            for (uint32_t i = 0; i < first + t; i++) most[i] = fmax(most[i], weights[i]);
        }
        const pleat_spec *spec = &w->rig.opt.spec;
        const uint32_t times = spec->every < 2 || (s->n > 1 && spec->al > 0) ? 1 : spec->every;
        if ((first + t + 1) % times > 0) continue; /* it is not counted */
        for (uint32_t i = 0; i < first + t; i++) l->sum[i] += times * most[i];
    }
}

/* One layer of a step that has begun, in the cache and in the oracle. */
static void run_layer(world *w, const share *shares, uint32_t n_shares, uint32_t layer) {
    static float q[SEQS * CAP * ROW], k[SEQS * CAP * KV_ROW], v[SEQS * CAP * KV_ROW], out[SEQS * CAP * ROW];
    rig_rows(&w->rig, shares, n_shares, layer, q, k, v);
    if (check_below(2) == 0) { /* out may be q, though attention received is counted after the output is written */
        memcpy(out, q, sizeof out);
        CHECK_STATUS(pleat_cache_attend(w->rig.cache, layer, out, k, v, out), PLEAT_OK);
    } else {
        CHECK_STATUS(pleat_cache_attend(w->rig.cache, layer, q, k, v, out), PLEAT_OK);
    }
    size_t row = 0;
    for (uint32_t i = 0; i < n_shares; i++) {
        for (uint32_t head = 0; head < HEADS; head++) {
            enter_tokens(w, &shares[i], layer, head, k + row * KV_ROW, v + row * KV_ROW);
            receive_attention(w, &shares[i], layer, head, q + row * ROW, out + row * ROW);
        }
        row += shares[i].n;
    }
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

/* What the oracle decides from: one lane after a step, before anything has moved. */
typedef struct scene {
    const pleat_spec *spec;
    const float *significance; /* [n] */
    pleat_level *level;        /* [n], changed by the decision */
    uint32_t n, end, classed;  /* tokens; tokens that have left the window; tokens classed before */
    bool is_step;
    lane *lane; /* whose slots change, with every > 1 */
} scene;

static pleat_level class_of(const scene *s, uint32_t i, uint32_t length) {
    if (s->significance[i] >= s->spec->ah / (float)length) return PLEAT_LEVEL_HIGH;
    return s->significance[i] >= s->spec->al / (float)length ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_DROPPED;
}

/* The least significant token of a level outside the window; n if there is none. */
static uint32_t least_of(const scene *s, pleat_level level) {
    uint32_t least = s->n;
    for (uint32_t i = 0; i < s->end; i++)
        if (s->level[i] == level && (least == s->n || s->significance[i] < s->significance[least])) least = i;
    return least;
}

static void demote_least(scene *s, pleat_level level) {
    const uint32_t victim = least_of(s, level);
    if (victim == s->n) return;
    const pleat_level now = class_of(s, victim, s->n);
    if (now < s->level[victim]) s->level[victim] = now;
}

static void decide_leankv_step(scene *s) {
    const uint32_t c = s->end - 1;
    if (s->spec->step == PLEAT_STEP_CODE) {
        demote_least(s, PLEAT_LEVEL_LOW);
        demote_least(s, PLEAT_LEVEL_HIGH);
        return;
    }
    const pleat_level level = class_of(s, c, s->n);
    if (level == PLEAT_LEVEL_LOW) demote_least(s, PLEAT_LEVEL_LOW);
    if (level == PLEAT_LEVEL_HIGH) demote_least(s, PLEAT_LEVEL_HIGH);
    s->level[c] = level;
}

static void decide_leankv_prompt(scene *s) {
    for (uint32_t i = s->classed; i < s->end; i++)
        s->level[i] = class_of(s, i, s->spec->threshold == PLEAT_THRESHOLD_POSITION ? i + 1 : s->n);
}

/* Tokens of one side whose level is below its own leave their slots, 2*every at most: who they are, the lowest slot's
 * first. */
static uint32_t leave(scene *s, int side, uint32_t *leavers) {
    uint32_t *slots = s->lane->slots[side], *n_slots = &s->lane->n_slots[side], at[2 * 8], n = 0;
    for (uint32_t slot = 0; slot < *n_slots && n < 2 * s->spec->every; slot++) {
        const uint32_t i = slots[slot];
        if (i >= s->end || class_of(s, i, s->n) >= (side ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_HIGH)) continue;
        at[n] = slot;
        leavers[n++] = i;
    }
    for (uint32_t k = n; k-- > 0;) slots[at[k]] = slots[--*n_slots];
    return n;
}

static void decide_counted(scene *s) {
    uint32_t leavers[2 * 8], n = rig_spec_low_is_tracked(s->spec) ? leave(s, 1, leavers) : 0;
    while (n > 0) s->level[leavers[--n]] = PLEAT_LEVEL_DROPPED;
    n = leave(s, 0, leavers);
    while (n > 0) {
        const uint32_t i = leavers[--n];
        s->level[i] = class_of(s, i, s->n);
        if (s->level[i] == PLEAT_LEVEL_LOW) s->lane->slots[1][s->lane->n_slots[1]++] = i;
    }
}

/* A prompt's tokens that stay keep their order, and those that become low theirs. */
static void place_prompt(scene *s) {
    lane *l = s->lane;
    const uint32_t n = l->n_slots[0];
    l->n_slots[0] = 0;
    for (uint32_t slot = 0; slot < n; slot++) {
        const uint32_t i = l->slots[0][slot];
        if (s->level[i] == PLEAT_LEVEL_HIGH) l->slots[0][l->n_slots[0]++] = i;
        if (s->level[i] == PLEAT_LEVEL_LOW) l->slots[1][l->n_slots[1]++] = i;
    }
}

static void decide_topk(scene *s, bool one_only) {
    const uint32_t percent = (uint32_t)lround(100 * (double)s->spec->keep), kept = (percent * s->n + 99) / 100;
    uint32_t n_live = 0, budget = kept > s->spec->window ? kept : s->spec->window;
    for (uint32_t i = 0; i < s->n; i++) n_live += s->level[i] == PLEAT_LEVEL_HIGH;
    for (; n_live > budget; n_live--) {
        s->level[least_of(s, PLEAT_LEVEL_HIGH)] = PLEAT_LEVEL_DROPPED;
        if (one_only) return;
    }
}

static void decide(scene *s) {
    const bool is_topk = s->spec->policy == PLEAT_POLICY_TOPK, skips = s->spec->every > 1;
    if (is_topk)
        decide_topk(s, s->end == s->classed + 1);
    else if (s->is_step && skips)
        decide_counted(s);
    else if (s->is_step)
        decide_leankv_step(s);
    else
        decide_leankv_prompt(s);
    if (!s->is_step && skips) place_prompt(s);
}

/* Compare what the cache says of every token with the oracle, and with what the policy must have decided if `end` says
 * that tokens have left the window. */
static void check_lane(world *w, uint32_t seq, uint32_t layer, uint32_t head, uint32_t end) {
    const uint32_t n = w->rig.n_tokens[seq];
    lane *l = lane_at(w, seq, layer, head);
    pleat_cache_token tokens[CAP];
    float significance[CAP];
    pleat_level before[CAP];
    CHECK_STATUS(pleat_cache_tokens(w->rig.cache, w->rig.seqs[seq], layer, head, 0, n, tokens), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        const double own = i + 1 < n ? l->sum[i] / (n - 1 - i) : 0;
        significance[i] = tokens[i].significance;
        if (tokens[i].level == PLEAT_LEVEL_DROPPED ||
            (tokens[i].level == PLEAT_LEVEL_LOW && !rig_low_is_tracked(&w->rig))) {
            CHECK(tokens[i].significance == 0);
            significance[i] = (float)(own * (1 - 2 * TOLERANCE));
        } else {
            CHECK_NEAR(tokens[i].significance, own, TOLERANCE * own);
        }
    }
    memcpy(before, l->level, sizeof before);
    scene s = {&w->rig.opt.spec, significance, l->level, n, end, w->n_classed[seq], w->is_step[seq], l};
    if (end > w->n_classed[seq]) decide(&s);
    for (uint32_t i = 0; i < n; i++) {
        if (!CHECK_EQ_U64(tokens[i].level, l->level[i])) return;
        w->n_moves[before[i]][l->level[i]]++;
    }
}

/* Kept tokens are, bit for bit, what the formats make of them; dropped ones are zeros. */
static void check_vectors(const world *w, uint32_t seq, uint32_t layer, uint32_t head) {
    static const float zeros[D];
    const lane *l = lane_at(w, seq, layer, head);
    for (uint32_t i = 0; i < w->rig.n_tokens[seq]; i++) {
        float k[D], v[D];
        const bool is_dropped = l->level[i] == PLEAT_LEVEL_DROPPED;
        const bool is_unknown = l->level[i] == PLEAT_LEVEL_LOW && !rig_low_is_tracked(&w->rig);
        CHECK_STATUS(pleat_cache_export(w->rig.cache, w->rig.seqs[seq], layer, head, i, 1, k, v),
                     is_unknown ? PLEAT_E_UNSUPPORTED : PLEAT_OK);
        if (is_unknown) continue;
        CHECK_EQ_MEM(k, is_dropped ? zeros : seen(l, i, UINT32_MAX, true), sizeof k);
        CHECK_EQ_MEM(v, is_dropped ? zeros : seen(l, i, UINT32_MAX, false), sizeof v);
    }
}

static void check_usage(const world *w, uint32_t seq) {
    const uint32_t n_tokens = w->rig.n_tokens[seq];
    uint64_t n_levels[3] = {0}, least_pages = 0, max_pages = 0;
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        uint32_t n[3] = {0};
        for (uint32_t t = 0; t < n_tokens; t++) n[w->lanes[seq][i].level[t]]++;
        for (uint32_t level = 0; level < 3; level++) n_levels[level] += n[level];
        const uint32_t n_low = pleat__div_up_u32(n[PLEAT_LEVEL_LOW], w->rig.page_tokens[1]);
        least_pages += n_low + pleat__div_up_u32(n[PLEAT_LEVEL_HIGH], w->rig.page_tokens[0]);
        max_pages += n_low + pleat__div_up_u32(n[PLEAT_LEVEL_HIGH] + 1, w->rig.page_tokens[0]); /* a hole */
    }
    pleat_cache_usage u;
    CHECK_STATUS(pleat_cache_get_usage(w->rig.cache, w->rig.seqs[seq], &u), PLEAT_OK);
    CHECK_EQ_U64(u.tokens_high, n_levels[PLEAT_LEVEL_HIGH]);
    CHECK_EQ_U64(u.tokens_low, n_levels[PLEAT_LEVEL_LOW]);
    CHECK_EQ_U64(u.tokens_dropped, n_levels[PLEAT_LEVEL_DROPPED]);
    CHECK_EQ_U64(u.tokens_high + u.tokens_low + u.tokens_dropped, (uint64_t)n_tokens * LAYERS * HEADS);
    CHECK(u.pages_used >= least_pages && u.pages_used <= max_pages);
    CHECK_EQ_U64(u.bytes_pages, u.pages_used * w->rig.page_bytes);
    CHECK_EQ_U64(u.bytes, w->open_bytes[seq] + u.bytes_pages + u.pages_used * PLEAT__POOL_BYTES_PER_PAGE);
    CHECK(u.bytes <= pleat_cache_bytes_for(&w->rig.opt, n_tokens, CAP));
}

/* ---- steps ------------------------------------------------------------------------------------------ */

static void check_seq(world *w, uint32_t seq, uint32_t end, bool vectors_too) {
    CHECK_EQ_U64(pleat_cache_length(w->rig.cache, w->rig.seqs[seq]), w->rig.n_tokens[seq]);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t head = 0; head < HEADS; head++) {
            check_lane(w, seq, layer, head, end);
            if (vectors_too) check_vectors(w, seq, layer, head);
        }
    check_usage(w, seq);
}

/* How many tokens have left the window and been classed, once a share has come; its tokens stand behind others. */
static uint32_t enter_share(world *w, const share *s) {
    const pleat_spec *spec = &w->rig.opt.spec;
    const uint32_t first = w->rig.n_tokens[s->seq], every = spec->every > 1 ? spec->every : 1;
    const uint32_t n_tokens = w->rig.n_tokens[s->seq] += s->n, n_classed = w->n_classed[s->seq];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++)
        for (uint32_t t = 0; t < s->n && every > 1; t++)
            w->lanes[s->seq][i].slots[0][w->lanes[s->seq][i].n_slots[0]++] = first + t;
    const bool is_first = !w->has_prompt[s->seq];
    w->has_prompt[s->seq] |= !s->more;
    if (s->more || n_tokens <= spec->window + n_classed) return n_classed;
    w->is_step[s->seq] = s->n == 1 && !is_first && n_tokens - spec->window - n_classed <= every;
    return w->is_step[s->seq] && n_tokens % every > 0 ? n_classed : n_tokens - spec->window;
}

/* A step, checked. */
static void run_step(world *w, const share *shares, uint32_t n_shares) {
    if (!CHECK_STATUS(rig_begin(&w->rig, shares, n_shares), PLEAT_OK)) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++) run_layer(w, shares, n_shares, layer);
    CHECK_STATUS(pleat_cache_end(w->rig.cache), PLEAT_OK);
    CHECK(pleat_cache_is_valid(w->rig.cache));
    for (uint32_t i = 0; i < n_shares; i++) {
        const uint32_t seq = shares[i].seq, end = enter_share(w, &shares[i]);
        check_seq(w, seq, end, shares[i].n > 1 || w->rig.n_tokens[seq] % 8 == 0);
        w->n_classed[seq] = end;
    }
}

/* A step that is given up after some of its layers: all is as before, but that attention was received. */
static void cancel_step(world *w, const share *shares, uint32_t n_shares) {
    pleat_cache_usage before[SEQS], after;
    for (uint32_t s = 0; s < SEQS; s++)
        CHECK_STATUS(pleat_cache_get_usage(w->rig.cache, w->rig.seqs[s], &before[s]), PLEAT_OK);
    if (!CHECK_STATUS(rig_begin(&w->rig, shares, n_shares), PLEAT_OK)) return;
    const uint32_t n_layers = (uint32_t)check_below(LAYERS + 1);
    for (uint32_t layer = 0; layer < n_layers; layer++) run_layer(w, shares, n_shares, layer);
    CHECK_STATUS(pleat_cache_cancel(w->rig.cache), PLEAT_OK);
    CHECK(pleat_cache_is_valid(w->rig.cache));
    for (uint32_t s = 0; s < SEQS; s++) {
        CHECK_STATUS(pleat_cache_get_usage(w->rig.cache, w->rig.seqs[s], &after), PLEAT_OK);
        before[s].pages_peak = after.pages_peak; /* as much as the step held */
        CHECK_EQ_MEM(&before[s], &after, sizeof after);
        check_seq(w, s, w->n_classed[s], true);
    }
}

/* ---- tests -------------------------------------------------------------------------------------------- */

/* What a sequence does next: parts of a prompt first, then mostly single tokens. */
static share next_share(const rig *r, uint32_t seq) {
    const uint32_t n_tokens = r->n_tokens[seq], room = CAP - n_tokens;
    const bool is_prompt = n_tokens < 40 * (seq + 1) || check_below(50) == 0;
    share s = {seq, is_prompt ? (uint32_t)check_between(1, 60) : 1, is_prompt && check_below(2)};
    if (s.n > room) s.n = room;
    return s;
}

/* Lives in which nothing happens do not pass for a test. */
static void check_moves(const world *w) {
    const pleat_spec *spec = &w->rig.opt.spec;
    const uint64_t(*moves)[3] = w->n_moves;
    const bool is_topk = spec->policy == PLEAT_POLICY_TOPK;
    if (is_topk || spec->al > 0) CHECK(moves[PLEAT_LEVEL_HIGH][PLEAT_LEVEL_DROPPED] > 50);
    if (spec->al < spec->ah) CHECK(moves[PLEAT_LEVEL_HIGH][PLEAT_LEVEL_LOW] > 50);
    if (spec->al < spec->ah && spec->al > 0) CHECK(moves[PLEAT_LEVEL_LOW][PLEAT_LEVEL_DROPPED] > 10);
}

static void live(const struct rig_spec *spec) {
    check_context("%s", spec->text);
    world w = world_new(spec);
    for (uint64_t step = check_rounds(330, 120); step > 0 && check_failures() == 0; step--) {
        share shares[SEQS];
        uint32_t n_shares = 0;
        for (uint32_t s = 0; s < SEQS; s++) {
            if (check_below(s + 3) == 0) continue; /* sequences move at their own pace */
            shares[n_shares] = next_share(&w.rig, s);
            n_shares += shares[n_shares].n > 0;
        }
        if (n_shares == 0) continue;
        if (check_below(20) == 0) cancel_step(&w, shares, n_shares);
        run_step(&w, shares, n_shares);
    }
    check_moves(&w);
    world_free(&w);
}

/* The last part of a first prompt is one token: it is no step of generation, however few tokens leave the window. */
static void test_prompts_may_end_with_one_token(void) {
    for (size_t i = 0; i < CHECK_COUNT(rig_specs) && check_failures() == 0; i++) {
        check_context("%s", rig_specs[i].text);
        world w = world_new(&rig_specs[i]);
        const pleat_spec *spec = &w.rig.opt.spec;
        const uint32_t n = spec->window + (uint32_t)check_between(1, spec->every > 1 ? spec->every : 1);
        const share parts[] = {{0, n - 1, true}, {0, 1, false}};
        run_step(&w, &parts[0], 1);
        run_step(&w, &parts[1], 1);
        if (spec->policy == PLEAT_POLICY_LEANKV) CHECK_EQ_U64(w.n_classed[0], n - spec->window);
        for (uint32_t step = 0; step < 20; step++) run_step(&w, &parts[1], 1);
        world_free(&w);
    }
}

static void test_steps_match_the_oracle(void) {
    for (size_t i = 0; i < CHECK_COUNT(rig_specs) && check_failures() == 0; i++) {
        cache_logit_cap = check_below(3) ? 0 : 1.5f;
        cache_has_sinks = check_below(2);
        live(&rig_specs[i]);
    }
    cache_logit_cap = 0;
    cache_has_sinks = false;
}

/* A token that is moved alone is dequantised to the same bits as with its tile: all formats, by any CPU's variant. */
static void test_one_token_is_its_tiles(void) {
    static const pleat_format formats[] = {{32, 32}, {16, 16}, {8, 8}, {8, 4}, {8, 2},
                                           {4, 8},   {4, 4},   {4, 2}, {2, 8}, {2, 2}};
    pleat__quant_dsp quant;
    pleat__quant_dsp_init(&quant, pleat_cpu_flags());
    for (uint64_t round = check_rounds(2000, 200); round > 0 && check_failures() == 0; round--) {
        pleat__page_layout layout;
        const pleat_format format = formats[check_below(CHECK_COUNT(formats))];
        const uint32_t d = 16 * (uint32_t)check_between(1, 10), slot = (uint32_t)check_below(48);
        CHECK_STATUS(pleat__page_layout_init(&layout, format, d, 48, check_below(2)), PLEAT_OK);
        check_buf page = check_buf_new(layout.used_bytes, PLEAT__ALIGN), x = check_buf_new(48 * d * sizeof(float), 64);
        check_buf tile = check_buf_new(16 * d * sizeof(float), 64);
        check_buf k = check_buf_new(d * sizeof(float), 4), v = check_buf_new(d * sizeof(float), 4);
        check_fill(x.p, 48 * d, (unsigned)check_below(CHECK_N_FILLS), (float)check_uniform(0, 100));
        quant.store(&layout, page.p, 0, 48, x.p, x.p, d);
        pleat__quant_load_token(&layout, page.p, slot, k.p, v.p);
        check_context("k%uv%u, d %u, slot %u", format.k_bits, format.v_bits, d, slot);
        const float *in_tile = (const float *)tile.p;
        quant.load_k(&layout, page.p, slot / PLEAT__TILE, tile.p);
        for (uint32_t i = 0; i < d; i++)
            CHECK_EQ_MEM((const float *)k.p + i, in_tile + i * PLEAT__TILE + slot % PLEAT__TILE, sizeof(float));
        quant.load_v(&layout, page.p, slot / PLEAT__TILE, tile.p);
        CHECK_EQ_MEM(v.p, in_tile + (size_t)(slot % PLEAT__TILE) * d, d * sizeof(float));
        CHECK(check_buf_is_intact(&k) && check_buf_is_intact(&v));
        check_buf *const bufs[] = {&page, &x, &tile, &k, &v};
        for (size_t i = 0; i < CHECK_COUNT(bufs); i++) check_buf_free(bufs[i]);
    }
}

static const check_test tests[] = {{"steps_match_the_oracle", test_steps_match_the_oracle},
                                   {"prompts_may_end_with_one_token", test_prompts_may_end_with_one_token},
                                   {"one_token_is_its_tiles", test_one_token_is_its_tiles}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
