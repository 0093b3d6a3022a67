/* SPDX-License-Identifier: MIT
 *
 * test_merge.c: merging what is dropped (src/cache/keep/merge.h) against an oracle in double that goes by the formulas,
 * one token after the other, and what it is for: attention stays what it was where keys are alike.
 */
#include <stdlib.h>
#include <string.h>

#include "attn/decode.h"
#include "attn/mass.h"
#include "cache/keep/merge.h"
#include "check.h"
#include "hw/cpu.h"

enum { CAP = 900, D_CAP = 128, PAGE = 32, PAGES = CAP / PAGE + 2 };

/* ---- a lane ------------------------------------------------------------------------------------------ */

/* A token as it was before, of a position; alive: it has a slot. */
typedef struct token {
    bool alive, goes;
    uint32_t slot;
    float k[D_CAP], v[D_CAP];
    float score;
    double mass; /* log2 */
} token;

static struct lane {
    pleat_cache cache;
    pleat__page_layout layout;
    pleat__page_id ids[PAGES];
    pleat__kv_run run;
    check_buf pages, scratch_memory;
    pleat__merge_scratch scratch;
    uint32_t n_tokens, d;
    token tokens[CAP];
    uint8_t verdicts[CAP];
} lane;

/* Which of a slot's scores is the attention received: novel's own stands before. */
static uint32_t counted(void) { return lane.cache.opt.spec.policy >= PLEAT_POLICY_NOVEL; }

static float *score_at(uint8_t *page, uint32_t slot) {
    return pleat__head_scores(&lane.layout, page, counted()) + slot % PAGE;
}

static uint8_t *page_at(uint32_t slot) { return pleat__kv_page(&lane.run, slot / PAGE); }

/* A cache of which there is what merging looks at, and pages for n_slots in any order. */
static void lane_init(const char *text, uint32_t d, uint32_t n_tokens, uint32_t n_slots) {
    memset(&lane, 0, sizeof lane);
    pleat_cache *c = &lane.cache;
    lane.d = d;
    lane.n_tokens = n_tokens;
    CHECK_STATUS(pleat_spec_parse(text, &c->opt.spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__page_layout_init_massed(&lane.layout, c->opt.spec.high, d, PAGE, counted() + 1), PLEAT_OK);
    c->opt.head_dim = d;
    c->opt.max_tokens = CAP;
    c->page_bytes = (lane.layout.used_bytes + 63) / 64 * 64;
    pleat__quant_dsp_init(&c->quant, pleat_cpu_flags());
    for (uint32_t i = 0; i < PAGES; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        lane.ids[i] = lane.ids[j];
        lane.ids[j].v = i;
    }
    lane.pages = check_buf_new(PAGES * c->page_bytes, 64);
    lane.run = (pleat__kv_run){&lane.layout, lane.pages.p, c->page_bytes, lane.ids, 1, n_slots, NULL};
    pleat__arena arena = {0};
    pleat__merge_carve_unit(c, &lane.scratch, &arena);
    lane.scratch_memory = check_buf_new(arena.used_bytes, 64);
    arena = (pleat__arena){.base = lane.scratch_memory.p, .cap_bytes = arena.used_bytes};
    pleat__merge_carve_unit(c, &lane.scratch, &arena);
}

static void lane_free(void) {
    CHECK(check_buf_is_intact(&lane.pages) && check_buf_is_intact(&lane.scratch_memory));
    check_buf_free(&lane.pages);
    check_buf_free(&lane.scratch_memory);
}

/* Put the living tokens into slots in any order, with dead ones between, and note what pages made of them. */
static void store(void) {
    uint32_t order[CAP];
    for (uint32_t i = 0; i < lane.run.n_slots; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < lane.run.n_slots; i += PLEAT__TILE)
        pleat__quant_clear_tile(&lane.layout, page_at(i), i % PAGE / PLEAT__TILE);
    for (uint32_t p = 0, i = 0; p < lane.n_tokens; p++) {
        token *t = &lane.tokens[p];
        if (!t->alive) continue;
        const uint32_t slot = t->slot = order[i++], at = slot % PAGE;
        lane.cache.quant.replace(&lane.layout, page_at(slot), at, t->k, t->v);
        pleat__quant_load_token(&lane.layout, page_at(slot), at, t->k, t->v);
        *score_at(page_at(slot), at) = t->score;
        if (counted()) pleat__scores(&lane.layout, page_at(slot))[at] = (float)p; /* which stays */
        pleat__positions(&lane.layout, page_at(slot))[at] = (int32_t)p;
        const uint16_t mass = pleat__f32_to_f16((float)t->mass);
        pleat__masses(&lane.layout, page_at(slot))[at] = mass;
        t->mass = (double)pleat__f16_to_f32(mass);
    }
    memset(lane.verdicts, PLEAT__VERDICT_DROP, sizeof lane.verdicts); /* as dead slots have it */
    for (uint32_t p = 0; p < lane.n_tokens; p++)
        if (lane.tokens[p].alive && !lane.tokens[p].goes) lane.verdicts[lane.tokens[p].slot] = PLEAT__VERDICT_KEEP;
}

static pleat__merge_lane merging(void) { return (pleat__merge_lane){&lane.cache, &lane.run, lane.n_tokens}; }

/* ---- the oracle --------------------------------------------------------------------------------------- */

static double queries_of(uint32_t position) {
    const pleat_policy policy = lane.cache.opt.spec.policy;
    const bool of_window = policy == PLEAT_POLICY_SNAPKV || policy == PLEAT_POLICY_ADAKV;
    const uint32_t n_later = lane.n_tokens - 1 - position, window = lane.cache.opt.spec.window;
    return n_later == 0 ? 1 : of_window && n_later > window ? window : n_later;
}

/* s, to 8 bits. */
static double mean_of(uint32_t position) {
    const double mean = (double)(lane.tokens[position].score / (float)queries_of(position));
    int exponent;
    if (!(mean > 1e-9)) return (double)1e-9f;
    const double m = frexp(mean, &exponent);
    return ldexp(floor(m * 256 + 0.5) / 256, exponent);
}

static double cosine(const token *a, const token *b) {
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < lane.d; i++) {
        ab += (double)a->k[i] * (double)b->k[i];
        aa += (double)a->k[i] * (double)a->k[i];
        bb += (double)b->k[i] * (double)b->k[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static bool takes(uint32_t p) {
    const pleat_spec *spec = &lane.cache.opt.spec;
    return lane.tokens[p].alive && !lane.tokens[p].goes && p >= spec->sinks && p + 8 < lane.n_tokens;
}

/* s of every token, and of the takers, how many have a larger one, or the same and are older. */
static double means[CAP];
static uint32_t ranks[CAP];

static void rank_all(void) {
    for (uint32_t p = 0; p < lane.n_tokens; p++) means[p] = mean_of(p);
    for (uint32_t p = 0; p < lane.n_tokens; p++) {
        ranks[p] = 0;
        for (uint32_t o = 0; o < lane.n_tokens; o++)
            ranks[p] += takes(o) && (means[o] > means[p] || (means[o] == means[p] && o < p));
    }
}

/* The taker of p's token, or CAP; *is_clear becomes false where rounding decides. */
static uint32_t taker_of(uint32_t p, bool *is_clear) {
    double best = 0.4f;
    uint32_t found = CAP;
    for (uint32_t o = 0; o < lane.n_tokens; o++) {
        if (!takes(o) || ((o > p ? o - p : p - o) > 256 && ranks[o] >= 64)) continue;
        const double x = cosine(&lane.tokens[o], &lane.tokens[p]);
        const bool is_same = found < CAP && memcmp(lane.tokens[o].k, lane.tokens[found].k, lane.d * sizeof(float)) == 0;
        *is_clear &= is_same || fabs(x - best) > 2e-6;
        if (is_same || x <= best) continue;
        best = x;
        found = o;
    }
    return found;
}

/* What each position's token should have become. */
typedef struct wanted {
    bool is_changed;
    double v[D_CAP], mass, score;
} wanted;

static wanted want[CAP];

/* False: rounding decides who takes whom. */
static bool merge_all(void) {
    bool is_clear = true;
    static double all[CAP];
    rank_all();
    for (uint32_t p = 0; p < lane.n_tokens; p++) {
        all[p] = means[p];
        want[p] = (wanted){.mass = lane.tokens[p].mass, .score = (double)lane.tokens[p].score};
        for (uint32_t i = 0; i < lane.d; i++) want[p].v[i] = (double)lane.tokens[p].v[i] * all[p];
    }
    for (uint32_t p = 0; p < lane.n_tokens; p++) {
        if (!lane.tokens[p].alive || !lane.tokens[p].goes) continue;
        const uint32_t c = taker_of(p, &is_clear);
        if (c == CAP) continue;
        want[c].is_changed = true;
        all[c] += means[p];
        for (uint32_t i = 0; i < lane.d; i++) want[c].v[i] += means[p] * (double)lane.tokens[p].v[i];
    }
    for (uint32_t p = 0; p < lane.n_tokens; p++) {
        for (uint32_t i = 0; i < lane.d; i++) want[p].v[i] /= all[p];
        want[p].mass = fmin(9, want[p].mass + log2(all[p] / means[p]));
        want[p].score += (all[p] - means[p]) * queries_of(p);
    }
    return is_clear;
}

/* How far a value may be from what was to be stored: rounding of the sums, and half a step of the format. */
static double value_bound(const double *v) {
    double least = v[0], most = v[0], size = 0;
    for (uint32_t i = 0; i < lane.d; i++) {
        least = fmin(least, v[i]);
        most = fmax(most, v[i]);
        size = fmax(size, fabs(v[i]));
    }
    const pleat_format f = lane.layout.format;
    if (f.v_bits == 32) return 1e-5 * size;
    if (f.v_bits == 16) return 1e-3 * size;
    if (f.rotated) return 1.2 * size; /* one of few levels: test_levels.c judges these */
    return 0.51 * (most - least) / ((1 << f.v_bits) - 1) + 2e-3 * size;
}

static void check_token(uint32_t p) {
    const token *t = &lane.tokens[p];
    const wanted *w = &want[p];
    const uint32_t at = t->slot % PAGE;
    uint8_t *page = page_at(t->slot);
    float k[D_CAP], v[D_CAP];
    pleat__quant_load_token(&lane.layout, page, at, k, v);
    CHECK_EQ_MEM(k, t->k, lane.d * sizeof *k);
    CHECK(pleat__positions(&lane.layout, page)[at] == (int32_t)p);
    CHECK(!counted() || pleat__scores(&lane.layout, page)[at] == (float)p);
    if (!w->is_changed) {
        CHECK_EQ_MEM(v, t->v, lane.d * sizeof *v);
        CHECK(*score_at(page, at) == t->score);
        CHECK((double)pleat__f16_to_f32(pleat__masses(&lane.layout, page)[at]) == t->mass);
        return;
    }
    const double bound = value_bound(w->v);
    for (uint32_t i = 0; i < lane.d; i++) CHECK_NEAR((double)v[i], w->v[i], bound);
    CHECK_NEAR((double)pleat__f16_to_f32(pleat__masses(&lane.layout, page)[at]), w->mass, 0.0045);
    CHECK_NEAR((double)*score_at(page, at), w->score, 1e-5 * w->score);
}

static uint32_t check_all(void) {
    uint32_t n_changed = 0;
    for (uint32_t p = 0; p < lane.n_tokens && check_failures() < 10; p++) {
        if (lane.tokens[p].alive) check_token(p);
        n_changed += lane.tokens[p].alive && want[p].is_changed;
    }
    return n_changed;
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static const char *const specs[] = {
    "h2o:budget=40,window=8,sinks=2,format=f32+merge",
    "snapkv:budget=40,window=20,sinks=4,format=f32+merge",
    "h2o:budget=40,window=1,sinks=0,format=f16+merge",
    "adakv:budget=40,window=9,sinks=1,format=k8v4+merge",
    "recent:budget=25%,format=k8v8+merge",
    "random:budget=40,window=30,sinks=3,format=h3v2+merge",
    "novel:budget=40,window=3,format=f16+merge",
};

/* Keys about a few directions, so that all cosines come about; a share of the tokens has gone long ago, and of the
 * others a share goes now.  Some keys are the same, some zeros; some scores are 0. */
static void fill_tokens(double gone, double goes, float noise) {
    static float directions[12][D_CAP];
    for (uint32_t i = 0; i < 12; i++) check_fill_normal(directions[i], lane.d);
    for (uint32_t p = 0; p < lane.n_tokens; p++) {
        token *t = &lane.tokens[p];
        const uint32_t other = (uint32_t)check_below(p + 1);
        t->alive = check_uniform(0, 1) >= gone;
        t->goes = p >= lane.cache.opt.spec.sinks && p + lane.cache.opt.spec.window < lane.n_tokens &&
                  check_uniform(0, 1) < goes;
        check_fill_normal(t->v, lane.d);
        check_fill_normal(t->k, lane.d);
        const float *direction = directions[check_below(12)];
        for (uint32_t i = 0; i < lane.d; i++) t->k[i] = direction[i] + noise * t->k[i];
        if (check_below(40) == 0) memcpy(t->k, lane.tokens[other].k, sizeof t->k);
        if (check_below(40) == 0) memset(t->k, 0, sizeof t->k);
        t->score = check_below(20) ? 10 * expf(2 * check_normal()) : 0;
        t->mass = check_below(3) ? 0 : check_uniform(0, check_below(4) ? 2 : 9);
    }
}

static uint32_t count_alive(void) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < lane.n_tokens; p++) n += lane.tokens[p].alive;
    return n;
}

/* A lane of a random length, stored; false: rounding would decide. */
static bool make_lane(const char *text, uint32_t n_tokens) {
    const double gone = check_below(2) ? 0 : check_uniform(0, 0.7);
    lane_init(text, 16 * (uint32_t)check_between(1, D_CAP / 16), n_tokens, CAP);
    fill_tokens(gone, check_uniform(0, 1), (float)check_uniform(0.2, 2));
    lane.run.n_slots = pleat__min_u32(CAP, count_alive() + (uint32_t)check_below(10));
    store();
    return merge_all();
}

static void test_against_oracle(void) {
    const uint64_t rounds = check_rounds(60, 12);
    uint32_t n_judged = 0, n_changed = 0;
    for (uint64_t i = 0; i < rounds && check_failures() < 10; i++) {
        const char *text = specs[i % CHECK_COUNT(specs)];
        const bool is_clear = make_lane(text, (uint32_t)check_between(60, check_below(3) ? 200 : CAP - 20));
        const pleat__merge_lane m = merging();
        check_context("%s, %u tokens, d %u", text, lane.n_tokens, lane.d);
        pleat__merge_dropped(&m, lane.verdicts, &lane.scratch);
        n_judged += is_clear;
        n_changed += is_clear ? check_all() : 0;
        lane_free();
    }
    CHECK(2 * n_judged > rounds && n_changed > 2 * n_judged); /* the test has something to judge */
}

/* One token alone goes as it would with others, near or far. */
static void test_one(void) {
    const uint64_t rounds = check_rounds(60, 12);
    uint32_t n_changed = 0;
    for (uint64_t i = 0; i < rounds && check_failures() < 10; i++) {
        const char *text = specs[i % CHECK_COUNT(specs)];
        lane_init(text, 16 * (uint32_t)check_between(1, D_CAP / 16), (uint32_t)check_between(60, CAP - 20), CAP);
        fill_tokens(check_uniform(0, 0.5), 0, (float)check_uniform(0.2, 2));
        const uint32_t p = (uint32_t)check_between(lane.cache.opt.spec.sinks, lane.n_tokens - 31);
        lane.tokens[p].alive = lane.tokens[p].goes = true;
        lane.run.n_slots = count_alive() + (uint32_t)check_below(10);
        store();
        const bool is_clear = merge_all();
        const pleat__merge_lane m = merging();
        check_context("%s, %u tokens, d %u", text, lane.n_tokens, lane.d);
        pleat__merge_one(&m, lane.tokens[p].slot, &lane.scratch);
        if (is_clear) n_changed += check_all();
        lane_free();
    }
    CHECK(n_changed > rounds / 4);
}

/* Slots do not matter: the same tokens in another order become the same, bit for bit. */
static void test_slots_do_not_matter(void) {
    static float values[2][CAP][D_CAP];
    static uint16_t masses[2][CAP];
    float k[D_CAP];
    for (size_t i = 0; i < 3 && check_failures() < 10; i++) { /* formats that are stored as they are read */
        (void)make_lane(specs[i], 400);
        memset(values, 0, sizeof values);
        memset(masses, 0, sizeof masses);
        for (int turn = 0; turn < 2; turn++) {
            const pleat__merge_lane m = merging();
            if (turn == 1) store();
            pleat__merge_dropped(&m, lane.verdicts, &lane.scratch);
            for (uint32_t p = 0; p < lane.n_tokens; p++) {
                const uint32_t slot = lane.tokens[p].slot, at = slot % PAGE;
                if (!lane.tokens[p].alive) continue;
                pleat__quant_load_token(&lane.layout, page_at(slot), at, k, values[turn][p]);
                masses[turn][p] = pleat__masses(&lane.layout, page_at(slot))[at];
            }
        }
        CHECK_EQ_MEM(masses[1], masses[0], sizeof masses[0]);
        CHECK_EQ_MEM(values[1], values[0], sizeof values[0]);
        lane_free();
    }
}

/* The lane's attention for one query. */
static void attend(const float *q, float *out, float *lse2) {
    check_buf query_memory = check_buf_new(pleat__attn_query_bytes(1, lane.d), 64);
    check_buf acc_memory = check_buf_new(pleat__attn_acc_bytes(1, lane.d), 64);
    pleat__attn_query query;
    pleat__attn_acc acc;
    pleat__attn_query_init(&query, query_memory.p, q, 1, lane.d, 1 / sqrtf((float)lane.d));
    pleat__attn_acc_init(&acc, acc_memory.p, 1, lane.d);
    pleat__attn_decode_ref(&query, &lane.run, 0, lane.run.n_slots, &acc, NULL, 0);
    pleat__attn_finish(&acc, 1, lane.d, out, lse2);
    check_buf_free(&query_memory);
    check_buf_free(&acc_memory);
}

/* Tokens with the same key receive the same attention.  Of each such set all go but one, and no query sees a difference:
 * neither in the values, nor in the sum of all weights. */
static void test_same_keys(void) {
    float q[D_CAP], before[D_CAP], after[D_CAP], lse_before, lse_after;
    lane_init("snapkv:budget=40,window=5,sinks=2,format=f32+merge", 64, 300, CAP);
    fill_tokens(0, 0, 3);
    for (uint32_t p = 2; p + 5 < lane.n_tokens; p++) {
        token *t = &lane.tokens[p];
        t->mass = 0;
        if (p < 60) {
            check_fill_normal(t->k, lane.d); /* none is zeros, or another's */
            t->score = 1 + t->score;
            continue;
        }
        const token *first = &lane.tokens[2 + p % 50];
        t->goes = true;
        memcpy(t->k, first->k, sizeof t->k);
        t->score = first->score;
    }
    lane.run.n_slots = count_alive();
    store();
    check_fill_normal(q, lane.d);
    attend(q, before, &lse_before);
    const pleat__merge_lane m = merging();
    pleat__merge_dropped(&m, lane.verdicts, &lane.scratch);
    for (uint32_t p = 0; p < lane.n_tokens; p++)
        if (lane.tokens[p].goes)
            pleat__positions(&lane.layout, page_at(lane.tokens[p].slot))[lane.tokens[p].slot % PAGE] = -1;
    attend(q, after, &lse_after);
    CHECK_NEAR((double)lse_after, (double)lse_before, 1e-3);
    CHECK_NEAR_ALL(after, before, lane.d, 2e-3, 1e-3);
    lane_free();
}

/* What a page of an image may hold. */
static void test_masses(void) {
    lane_init(specs[0], 16, 10, PAGE);
    memset(pleat__masses(&lane.layout, page_at(0)), 0, PAGE * sizeof(uint16_t));
    CHECK((double)pleat__f16_to_f32(PLEAT__MASS_TOP_BITS) == (double)PLEAT__MASS_TOP);
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint16_t half = (uint16_t)bits;
        const float mass = pleat__f16_to_f32(half);
        const bool may_be = mass >= 0 && mass <= PLEAT__MASS_TOP && !(half >> 15);
        pleat__masses(&lane.layout, page_at(0))[bits % PAGE] = half;
        CHECK(pleat__merge_masses_are_sound(&lane.layout, page_at(0)) == may_be);
        CHECK(!may_be || pleat__mass_f32(half) == mass);
        pleat__masses(&lane.layout, page_at(0))[bits % PAGE] = 0;
    }
    lane_free();
}

static const check_test tests[] = {
    {"against_oracle", test_against_oracle}, {"one", test_one},       {"slots_do_not_matter", test_slots_do_not_matter},
    {"same_keys", test_same_keys},           {"masses", test_masses},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
