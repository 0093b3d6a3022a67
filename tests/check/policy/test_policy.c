/* SPDX-License-Identifier: MIT
 *
 * test_policy.c: policies against a slow oracle that follows the text of leankv.h and topk.c word by word.
 *
 * Lanes live whole lives: prompts and steps of generation in turn, scores that grow, decisions that are carried out.
 * The lane is kept in plain arrays; for every question it is laid out anew on scattered pages whose unused slots are
 * full of rubbish.  Significances are exact in both, so results must be equal, not near.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/types.h"
#include "policy/leankv.h"
#include "policy/policy.h"
#include "policy/scan.h"
#include "quant/layout.h"

#define SLOTS_CAP 5120u
#define PAGES_CAP (SLOTS_CAP / 16 + 8)

typedef struct token {
    int32_t position; /* -1: dead */
    float sum;
} token;

typedef struct side {
    token slots[SLOTS_CAP];
    uint32_t n;
} side;

typedef struct lane {
    pleat_spec spec;
    uint32_t percent; /* topk: spec.keep in whole percent */
    uint32_t n_tokens;
    uint32_t n_classed;
    uint32_t n_sealed; /* high tokens before those here */
    side high, low;
} lane;

/* ---- variants ---------------------------------------------------------------------------------------- */

/* Those that run here: the scalar one first. */
static pleat__scan_dsp scans[3];
static uint32_t n_scans;

static void find_scans(void) {
    const uint32_t flags = pleat_cpu_flags(), steps[] = {0, PLEAT_CPU_AVX2, PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512};
    n_scans = 0;
    for (size_t i = 0; i < CHECK_COUNT(steps); i++)
        if ((flags & steps[i]) == steps[i]) pleat__scan_dsp_init(&scans[n_scans++], steps[i]);
}

/* ---- the oracle ------------------------------------------------------------------------------------ */

static float significance(const lane *l, token t) {
    const uint32_t n_later = l->n_tokens - 1 - (uint32_t)t.position;
    return n_later == 0 ? 0 : t.sum / (float)n_later;
}

static bool has_left(const lane *l, token t) {
    return t.position >= 0 && (int64_t)t.position < (int64_t)l->n_tokens - l->spec.window;
}

static pleat_level level_of(const lane *l, token t, bool in_prompt) {
    if (t.position < 0) return PLEAT_LEVEL_DROPPED;
    if (!has_left(l, t)) return PLEAT_LEVEL_HIGH;
    float length = (float)l->n_tokens;
    if (in_prompt && l->spec.threshold == PLEAT_THRESHOLD_POSITION) length = (float)(t.position + 1);
    if (significance(l, t) >= l->spec.ah / length) return PLEAT_LEVEL_HIGH;
    if (significance(l, t) >= l->spec.al / length) return PLEAT_LEVEL_LOW;
    return PLEAT_LEVEL_DROPPED;
}

static uint32_t least_of(const lane *l, const side *s) {
    uint32_t least = PLEAT__NO_SLOT;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!has_left(l, s->slots[i])) continue;
        if (least == PLEAT__NO_SLOT || significance(l, s->slots[i]) < significance(l, s->slots[least])) least = i;
    }
    return least;
}

static uint32_t slot_at(const side *s, uint32_t position) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slots[i].position == (int32_t)position) return i;
    return PLEAT__NO_SLOT;
}

static uint32_t n_live(const side *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) n += s->slots[i].position >= 0;
    return n;
}

static uint32_t budget_of(const lane *l) {
    const uint64_t share = ((uint64_t)l->percent * l->n_tokens + 99) / 100;
    const uint64_t open = share > l->n_sealed ? share - l->n_sealed : 0;
    return open > l->spec.window ? (uint32_t)open : l->spec.window;
}

static pleat__policy_step oracle_step(const lane *l) {
    pleat__policy_step none = {PLEAT__NO_SLOT, PLEAT_LEVEL_HIGH, PLEAT__NO_SLOT, PLEAT_LEVEL_HIGH, PLEAT__NO_SLOT};
    pleat__policy_step step = none;
    if (l->n_tokens <= l->spec.window) return none;
    step.left_slot = slot_at(&l->high, l->n_tokens - 1 - l->spec.window);
    if (step.left_slot == PLEAT__NO_SLOT) return none;
    const bool is_topk = l->spec.policy == PLEAT_POLICY_TOPK;
    const bool is_code = !is_topk && l->spec.step == PLEAT_STEP_CODE;
    if (!is_topk && !is_code) step.left_level = level_of(l, l->high.slots[step.left_slot], false);
    if (is_topk ? n_live(&l->high) > budget_of(l) : step.left_level == PLEAT_LEVEL_HIGH) {
        const uint32_t slot = least_of(l, &l->high);
        const pleat_level level = is_topk ? PLEAT_LEVEL_DROPPED : level_of(l, l->high.slots[slot], false);
        if (level != PLEAT_LEVEL_HIGH) {
            step.high_victim = slot;
            step.high_level = level;
        }
    }
    if (is_code || step.left_level == PLEAT_LEVEL_LOW) {
        const uint32_t slot = least_of(l, &l->low);
        if (slot != PLEAT__NO_SLOT && level_of(l, l->low.slots[slot], false) == PLEAT_LEVEL_DROPPED)
            step.low_victim = slot;
    }
    return step;
}

/* Slots of a side, from the lowest on, whose tokens miss `least`. */
static uint32_t oracle_below(const lane *l, const side *s, pleat_level least, uint32_t most, uint32_t *slots) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n && n < most; i++)
        if (s->slots[i].position >= 0 && has_left(l, s->slots[i]) && level_of(l, s->slots[i], false) < least)
            slots[n++] = i;
    return n;
}

/* topk keeps a before b. */
static bool is_before(const lane *l, token a, token b) {
    const float sa = significance(l, a), sb = significance(l, b);
    return sa > sb || (sa == sb && a.position < b.position);
}

static void oracle_prompt(const lane *l, uint8_t *levels) {
    const side *high = &l->high;
    for (uint32_t i = 0; i < high->n; i++) {
        const token t = high->slots[i];
        levels[i] = (uint8_t)level_of(l, t, true);
        if (l->spec.policy != PLEAT_POLICY_TOPK) {
            if (t.position >= 0 && (uint32_t)t.position < l->n_classed) levels[i] = PLEAT_LEVEL_HIGH;
            continue;
        }
        uint32_t n_before = 0;
        for (uint32_t j = 0; j < high->n; j++)
            n_before += has_left(l, high->slots[j]) && is_before(l, high->slots[j], t);
        if (has_left(l, t))
            levels[i] = n_before < budget_of(l) - l->spec.window ? PLEAT_LEVEL_HIGH : PLEAT_LEVEL_DROPPED;
    }
}

/* ---- the lane on pages ------------------------------------------------------------------------------ */

typedef struct paged {
    pleat__page_layout layouts[2];
    uint64_t page_bytes;
    uint32_t n_pages;
    check_buf pages;
    pleat__page_id ids[PAGES_CAP];
    pleat__kv_view view;
} paged;

static void paged_new(paged *p, uint32_t n_slots, bool is_long) {
    const pleat_format high = {8, 4}, low = {4, 2};
    const uint32_t tokens = is_long ? 64 : 16 * (uint32_t)check_between(1, 4);
    CHECK_STATUS(pleat__page_layout_init(&p->layouts[0], high, 16, tokens, true), PLEAT_OK);
    CHECK_STATUS(pleat__page_layout_init(&p->layouts[1], low, 16, tokens + 16 * (uint32_t)check_below(3), true),
                 PLEAT_OK);
    const uint32_t most = pleat__max_u32(p->layouts[0].used_bytes, p->layouts[1].used_bytes);
    p->page_bytes = (most + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
    p->n_pages = pleat__div_up_u32(n_slots, tokens) + 4;
    p->pages = check_buf_new(p->n_pages * p->page_bytes, PLEAT__ALIGN);
    for (uint32_t i = 0; i < p->n_pages; i++) p->ids[i].v = i;
    for (uint32_t i = p->n_pages; i > 1; i--) {
        const uint32_t j = (uint32_t)check_below(i);
        const pleat__page_id id = p->ids[i - 1];
        p->ids[i - 1] = p->ids[j];
        p->ids[j] = id;
    }
}

/* Rubbish for slots behind the last in use: what would win every search if it were looked at. */
static token rubbish(const lane *l) {
    const float sums[] = {0, -1, NAN, INFINITY, FLT_TRUE_MIN};
    const int32_t newest = (int32_t)l->n_tokens - 1;
    return (token){check_below(4) == 0 ? INT32_MIN : newest - (int32_t)check_below(l->spec.window + 3u),
                   sums[check_below(CHECK_COUNT(sums))]};
}

static pleat__kv_run put_side(paged *p, const lane *l, const side *s, const pleat__page_layout *layout,
                              const pleat__page_id *ids, int32_t step) {
    const pleat__kv_run run = {
        .layout = layout, .base = p->pages.p, .page_bytes = p->page_bytes, .ids = ids, .step = step, .n_slots = s->n};
    for (uint32_t i = 0; i < pleat__div_up_u32(s->n, layout->tokens) * layout->tokens; i++) {
        uint8_t *page = pleat__kv_page(&run, i / layout->tokens);
        const token t = i < s->n ? s->slots[i] : rubbish(l);
        pleat__scores(layout, page)[i % layout->tokens] = t.sum;
        pleat__positions(layout, page)[i % layout->tokens] = t.position;
    }
    return run;
}

static void put_lane(paged *p, const lane *l) {
    p->view.n_sealed = l->n_sealed;
    p->view.high = put_side(p, l, &l->high, &p->layouts[0], p->ids, +1);
    p->view.low = put_side(p, l, &l->low, &p->layouts[1], p->ids + p->n_pages - 1, -1);
}

/* ---- lives ----------------------------------------------------------------------------------------- */

/* How scores come about. */
typedef enum scoring { GROWING, TIED, AT_THRESHOLD, TINY, ZERO, N_SCORINGS } scoring;

static float new_sum(const lane *l, scoring how, token t) {
    const uint32_t n_later = l->n_tokens - 1 - (uint32_t)t.position;
    const float a = check_below(2) ? l->spec.ah : l->spec.al;
    const uint32_t length = check_below(2) ? l->n_tokens : (uint32_t)t.position + 1;
    switch (how) {
        case GROWING:
            return t.sum + (check_below(3) ? 0.02f : 0.5f) * (float)check_uniform(0, 1) / (float)(1 + t.position % 7);
        case TIED: return (float)n_later * (float)check_below(4) * 0x1p-8f;
        case AT_THRESHOLD: return a / (float)length * (float)n_later;
        case TINY: return (float)check_below(2000) * FLT_TRUE_MIN;
        default: return check_below(8) ? 0 : 0x1p-10f;
    }
}

static void score(lane *l, scoring how) {
    side *sides[] = {&l->high, &l->low};
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < sides[k]->n; i++) {
            token *t = &sides[k]->slots[i];
            if (t->position >= 0 && (uint32_t)t->position + 1 < l->n_tokens) t->sum = new_sum(l, how, *t);
        }
}

/* Where the next token goes: into a dead slot if there is one, as in a cache, or else behind the last. */
static void append(lane *l, bool fills_dead) {
    uint32_t slot = fills_dead ? slot_at(&l->high, (uint32_t)-1) : PLEAT__NO_SLOT;
    if (slot == PLEAT__NO_SLOT) slot = l->high.n++;
    l->high.slots[slot] = (token){(int32_t)l->n_tokens++, 0};
}

/* A dead token's score is whatever was left. */
static void kill(side *s, uint32_t slot) { s->slots[slot].position = -1; }

static void to_low(lane *l, uint32_t slot, uint32_t low_slot) {
    if (low_slot == PLEAT__NO_SLOT) low_slot = l->low.n++;
    l->low.slots[low_slot] = l->high.slots[slot];
}

static void carry_out(lane *l, const pleat__policy_step *step) {
    uint32_t leaver = step->high_victim;
    pleat_level level = step->high_level;
    if (step->left_slot != PLEAT__NO_SLOT && step->left_level != PLEAT_LEVEL_HIGH) {
        leaver = step->left_slot;
        level = step->left_level;
    }
    if (step->low_victim != PLEAT__NO_SLOT) kill(&l->low, step->low_victim);
    if (leaver == PLEAT__NO_SLOT) return;
    if (level == PLEAT_LEVEL_LOW) to_low(l, leaver, step->low_victim);
    kill(&l->high, leaver);
}

/* How often each decision was met, so that lives in which nothing happens do not pass for a test. */
typedef struct tally {
    uint64_t steps; /* in which a token left the window */
    uint64_t left[3], high_victims[3], low_victims, gone;
    uint64_t classed[3];
    uint64_t leavers[2],
        waiting[2]; /* of either side, where not every step is counted; sides with more than may leave */
} tally;
static tally met;

static void count_step(const lane *l, const pleat__policy_step *step) {
    met.steps += l->n_tokens > l->spec.window;
    if (step->left_slot != PLEAT__NO_SLOT) met.left[step->left_level]++;
    met.gone += step->left_slot == PLEAT__NO_SLOT;
    if (step->high_victim != PLEAT__NO_SLOT) met.high_victims[step->high_level]++;
    met.low_victims += step->low_victim != PLEAT__NO_SLOT;
}

/* What would leave if every so many steps were counted, and this one is. */
static void check_leavers(const lane *l, const paged *p) {
    if (l->spec.policy != PLEAT_POLICY_LEANKV || l->n_tokens <= l->spec.window) return;
    pleat_spec spec = l->spec;
    spec.every = 2u << check_below(3);
    uint32_t high[PLEAT__LEAVERS_CAP + 1], low[PLEAT__LEAVERS_CAP + 1];
    const uint32_t most = 2 * spec.every;
    uint32_t n_high = oracle_below(l, &l->high, PLEAT_LEVEL_HIGH, most + 1, high);
    uint32_t n_low = oracle_below(l, &l->low, PLEAT_LEVEL_LOW, most + 1, low);
    met.waiting[0] += n_high > most;
    met.waiting[1] += n_low > most;
    n_high = pleat__min_u32(n_high, most);
    n_low = pleat__min_u32(n_low, most);
    met.leavers[0] += n_high;
    met.leavers[1] += n_low;
    for (uint32_t i = 0; i < n_scans; i++) {
        pleat__leavers got;
        pleat__leankv_leavers(&spec, &scans[i], &p->view, l->n_tokens, &got);
        if (!CHECK_EQ_U64(got.n_high, n_high) || !CHECK_EQ_U64(got.n_low, n_low)) return;
        CHECK_EQ_MEM(got.high, high, n_high * sizeof *high);
        CHECK_EQ_MEM(got.low, low, n_low * sizeof *low);
        for (uint32_t k = 0; k < n_high; k++)
            CHECK(got.is_dropped[k] == (level_of(l, l->high.slots[high[k]], false) == PLEAT_LEVEL_DROPPED));
    }
}

static void check_step(lane *l, paged *p) {
    put_lane(p, l);
    check_leavers(l, p);
    const pleat__policy_step want = oracle_step(l);
    for (uint32_t i = 0; i < n_scans; i++) {
        const pleat__policy_step got = pleat__policy_step_of(&l->spec, &scans[i], &p->view, l->n_tokens);
        CHECK_EQ_U64(got.left_slot, want.left_slot);
        CHECK_EQ_U64(got.left_level, want.left_level);
        CHECK_EQ_U64(got.high_victim, want.high_victim);
        CHECK_EQ_U64(got.high_level, want.high_level);
        CHECK_EQ_U64(got.low_victim, want.low_victim);
    }
    count_step(l, &want);
    carry_out(l, &want);
}

static void check_prompt(lane *l, paged *p) {
    static uint8_t want[SLOTS_CAP];
    check_buf levels = check_buf_new(l->high.n, 1), scratch = check_buf_new(l->high.n * sizeof(float), sizeof(float));
    put_lane(p, l);
    pleat__policy_prompt(&l->spec, &p->view, l->n_tokens, l->n_classed, levels.p, scratch.p);
    oracle_prompt(l, want);
    CHECK_EQ_MEM(levels.p, want, l->high.n);
    CHECK(check_buf_is_intact(&levels) && check_buf_is_intact(&scratch));
    check_buf_free(&levels);
    check_buf_free(&scratch);
    side *high = &l->high;
    uint32_t n = 0;
    for (uint32_t i = 0; i < high->n; i++) {
        met.classed[want[i]]++;
        if (want[i] == PLEAT_LEVEL_LOW) to_low(l, i, PLEAT__NO_SLOT);
        if (want[i] == PLEAT_LEVEL_HIGH) high->slots[n++] = high->slots[i];
    }
    high->n = n;
}

static uint32_t pick_u32(const uint32_t *of, size_t n) { return of[check_below(n)]; }

static pleat_spec random_leankv(void) {
    const float highs[] = {0, 1e-40f, 0.3f, 1, 3, 20, 1e6f}, lows[] = {0, 0.02f, 0.3f, 1};
    pleat_spec spec = {.high = {8, 4}, .low = {4, 2}, .policy = PLEAT_POLICY_LEANKV};
    spec.ah = highs[check_below(CHECK_COUNT(highs))];
    spec.al = spec.ah * lows[check_below(CHECK_COUNT(lows))];
    spec.threshold = (pleat_threshold)check_below(2);
    spec.step = (pleat_step_order)check_below(2);
    return spec;
}

static pleat_spec random_topk(uint32_t *percent) {
    *percent = (uint32_t)check_between(1, 100);
    return (pleat_spec){.high = {8, 4}, .policy = PLEAT_POLICY_TOPK, .keep = (float)*percent / 100};
}

/* One life: a prompt, then n_steps tokens, a few of them in later prompts. */
static void live(lane *l, bool is_topk, uint32_t n_prompt, uint32_t n_steps) {
    const uint32_t windows[] = {1, 2, 7, 16, 33, 64}, bases[] = {0, 0, 0, 100, (1u << 24) - 2048};
    const scoring how = (scoring)check_below(N_SCORINGS);
    const uint32_t deaths = (uint32_t)check_below(3) * 5; /* per cent of tokens that die for no reason */
    paged p;
    memset(l, 0, offsetof(lane, high));
    l->high.n = l->low.n = 0;
    l->spec = is_topk ? random_topk(&l->percent) : random_leankv();
    l->spec.window = pick_u32(windows, CHECK_COUNT(windows));
    l->n_tokens = pick_u32(bases, CHECK_COUNT(bases)); /* of those before, none is left */
    if (n_prompt + n_steps > 1024) l->n_tokens = 0;
    l->n_sealed = check_below(2) * (uint32_t)check_below(40);
    paged_new(&p, 2 * (n_prompt + n_steps), n_prompt > 500);
    check_context("ah %g al %g percent %u window %u threshold %d step %d scoring %d", (double)l->spec.ah,
                  (double)l->spec.al, l->percent, l->spec.window, l->spec.threshold, l->spec.step, how);
    for (uint32_t i = 0; i < n_prompt + n_steps && check_failures() == 0; i++) {
        const bool is_prompt = i < n_prompt || check_below(64) == 0;
        append(l, !is_prompt);
        for (uint32_t more = is_prompt ? (uint32_t)check_below(12) : 0; more > 0 && i < n_prompt + n_steps; more--, i++)
            append(l, false);
        if (i + 1 < n_prompt) continue;
        score(l, how);
        if (check_below(100) < deaths) kill(&l->high, (uint32_t)check_below(l->high.n));
        if (l->low.n > 0 && check_below(100) < deaths) kill(&l->low, (uint32_t)check_below(l->low.n));
        if (is_prompt)
            check_prompt(l, &p);
        else
            check_step(l, &p);
        if (l->n_tokens > l->spec.window) l->n_classed = l->n_tokens - l->spec.window;
        while (l->low.n > 0 && l->low.slots[l->low.n - 1].position < 0) l->low.n--;
    }
    CHECK(check_buf_is_intact(&p.pages));
    check_buf_free(&p.pages);
}

static lane the_lane;

static void live_for(bool is_topk, uint64_t n_steps) {
    memset(&met, 0, sizeof met);
    while (met.steps < n_steps && check_failures() == 0)
        live(&the_lane, is_topk, (uint32_t)check_between(1, 200), (uint32_t)check_between(10, 300));
    const uint64_t some = n_steps / 100;
    CHECK(met.left[PLEAT_LEVEL_HIGH] > some && met.gone > some);
    CHECK(met.high_victims[PLEAT_LEVEL_DROPPED] > some);
    CHECK(met.classed[PLEAT_LEVEL_HIGH] > some && met.classed[PLEAT_LEVEL_DROPPED] > some);
    if (is_topk) return;
    CHECK(met.left[PLEAT_LEVEL_LOW] > some && met.left[PLEAT_LEVEL_DROPPED] > some);
    CHECK(met.high_victims[PLEAT_LEVEL_LOW] > some && met.low_victims > some);
    CHECK(met.classed[PLEAT_LEVEL_LOW] > some);
    for (int k = 0; k < 2; k++) CHECK(met.leavers[k] > some && met.waiting[k] > 0);
}

static void test_leankv_lives(void) { live_for(false, check_rounds(100000, 10000)); }

static void test_topk_lives(void) { live_for(true, check_rounds(50000, 5000)); }

static void test_long_lanes(void) {
    for (uint64_t n = check_rounds(20, 2); n > 0 && check_failures() == 0; n--) {
        live(&the_lane, false, 2000, 50);
        live(&the_lane, true, 2000, 50);
    }
}

/* ---- the tests of blocks ------------------------------------------------------------------------------ */

static float random_sum(void) {
    const float odd[] = {0, -0.0f, -1, NAN, -NAN, INFINITY, -INFINITY, FLT_TRUE_MIN, FLT_MAX};
    if (check_below(8) == 0) return odd[check_below(CHECK_COUNT(odd))];
    return (float)check_below(64) * 0x1p-4f; /* equal to limit * m as often as not */
}

/* Every variant gives what the scalar test gives, whatever a page holds. */
static void test_variants_agree(void) {
    enum { SLOTS = 96 };
    float sums[SLOTS + 1];
    int32_t positions[SLOTS + 1];
    uint64_t n_below = 0, n_found = 0;
    for (uint64_t round = check_rounds(200000, 20000); round > 0 && check_failures() == 0; round--) {
        const uint32_t newest = check_below(4) ? (uint32_t)check_below(200) : (1u << 24) - 1;
        const float limits[] = {0x1p-4f, 0x1p-6f, FLT_TRUE_MIN, INFINITY, 1e-3f};
        const pleat__scan_bound bound = {newest, (int32_t)newest - (int32_t)check_below(20),
                                         limits[check_below(CHECK_COUNT(limits))]};
        const uint32_t shift = (uint32_t)check_below(2); /* pages are aligned; the tests do not need it */
        for (uint32_t i = 0; i <= SLOTS; i++) {
            sums[i] = check_below(16) ? 1e30f : random_sum();
            positions[i] = (int32_t)newest - (int32_t)check_below(200);
            if (check_below(16) == 0) positions[i] = check_below(2) ? -1 : INT32_MIN;
        }
        const pleat__tracked page = {sums + shift, positions + shift, 0, (uint32_t)check_below(SLOTS + 1)};
        const uint32_t from = 16 * (uint32_t)check_below(page.n / 16 + 1);
        const int32_t wanted = (int32_t)newest - (int32_t)check_below(200);
        const uint32_t below = scans[0].below(&page, from, &bound);
        const uint32_t last = scans[0].last(page.positions, page.n, wanted);
        n_below += below < page.n;
        n_found += last > 0;
        for (uint32_t i = 1; i < n_scans; i++) {
            CHECK_EQ_U64(scans[i].below(&page, from, &bound), below);
            CHECK_EQ_U64(scans[i].last(page.positions, page.n, wanted), last);
        }
        uint32_t oracle = page.n;
        while (oracle > 0 && page.positions[oracle - 1] != wanted) oracle--;
        CHECK_EQ_U64(last, oracle);
    }
    CHECK(n_below > 1000 && n_found > 1000);
}

/* ---- by hand ---------------------------------------------------------------------------------------- */

/* Eight tokens, window 2, ah 1, al 0.25: of position i the significance is the i-th number over N. */
static void lay_out_by_hand(lane *l, paged *p) {
    const float times_n[] = {2, 0.5f, 0.5f, 0.125f, 1, 3, 0, 0};
    memset(l, 0, offsetof(lane, high));
    l->high.n = l->low.n = 0;
    l->spec = (pleat_spec){.policy = PLEAT_POLICY_LEANKV, .window = 2, .ah = 1, .al = 0.25f};
    for (uint32_t i = 0; i < CHECK_COUNT(times_n); i++) append(l, false);
    for (uint32_t i = 0; i < l->n_tokens; i++) l->high.slots[i].sum = times_n[i] / 8 * (float)(7 - i);
    paged_new(p, 64, false);
    put_lane(p, l);
}

static void test_prompt_by_hand(void) {
    paged p;
    uint8_t levels[8];
    float scratch[8];
    lay_out_by_hand(&the_lane, &p);
    pleat_spec spec = the_lane.spec;
    pleat__policy_prompt(&spec, &p.view, 8, 0, levels, scratch);
    CHECK_EQ_MEM(levels, ((uint8_t[]){2, 1, 1, 0, 2, 2, 2, 2}), 8);
    pleat__policy_prompt(&spec, &p.view, 8, 2, levels, scratch);
    CHECK_EQ_MEM(levels, ((uint8_t[]){2, 2, 1, 0, 2, 2, 2, 2}), 8);
    /* thresholds by position: 1/1, 1/2, ... */
    spec.threshold = PLEAT_THRESHOLD_POSITION;
    pleat__policy_prompt(&spec, &p.view, 8, 0, levels, scratch);
    CHECK_EQ_MEM(levels, ((uint8_t[]){1, 0, 0, 0, 1, 2, 2, 2}), 8);
    /* half of 8: the window, 5 and 0; three quarters: also 4, and of 1 and 2 the older */
    spec = (pleat_spec){.policy = PLEAT_POLICY_TOPK, .window = 2, .keep = 0.5f};
    pleat__policy_prompt(&spec, &p.view, 8, 4, levels, scratch);
    CHECK_EQ_MEM(levels, ((uint8_t[]){2, 0, 0, 0, 0, 2, 2, 2}), 8);
    spec.keep = 0.75f;
    pleat__policy_prompt(&spec, &p.view, 8, 0, levels, scratch);
    CHECK_EQ_MEM(levels, ((uint8_t[]){2, 2, 0, 0, 2, 2, 2, 2}), 8);
    check_buf_free(&p.pages);
}

static void test_step_by_hand(void) {
    paged p;
    lay_out_by_hand(&the_lane, &p);
    pleat_spec spec = the_lane.spec;
    /* 5 leaves the window and is high: 3 is the least, and dropped */
    pleat__policy_step step = pleat__policy_step_of(&spec, &scans[0], &p.view, 8);
    CHECK_EQ_U64(step.left_slot, 5);
    CHECK_EQ_U64(step.left_level, PLEAT_LEVEL_HIGH);
    CHECK_EQ_U64(step.high_victim, 3);
    CHECK_EQ_U64(step.high_level, PLEAT_LEVEL_DROPPED);
    CHECK_EQ_U64(step.low_victim, PLEAT__NO_SLOT);
    /* with no low threshold 3 becomes low; ah = 0: nobody has to go */
    spec.al = 0;
    step = pleat__policy_step_of(&spec, &scans[0], &p.view, 8);
    CHECK_EQ_U64(step.high_victim, 3);
    CHECK_EQ_U64(step.high_level, PLEAT_LEVEL_LOW);
    spec.ah = 0;
    CHECK_EQ_U64(pleat__policy_step_of(&spec, &scans[0], &p.view, 8).high_victim, PLEAT__NO_SLOT);
    /* a window that holds all tokens, and a token that is not there */
    spec = the_lane.spec;
    spec.window = 8;
    CHECK_EQ_U64(pleat__policy_step_of(&spec, &scans[0], &p.view, 8).left_slot, PLEAT__NO_SLOT);
    spec.window = 2;
    CHECK_EQ_U64(pleat__policy_step_of(&spec, &scans[0], &p.view, 11).left_slot, PLEAT__NO_SLOT);
    CHECK_EQ_U64(pleat__policy_step_of(&spec, &scans[0], &p.view, 11).high_victim, PLEAT__NO_SLOT);
    check_buf_free(&p.pages);
}

/* Dead slots are no victims, and stay dropped. */
static void test_dead_lane(void) {
    paged p;
    uint8_t levels[8];
    float scratch[8];
    lay_out_by_hand(&the_lane, &p);
    for (uint32_t i = 0; i < 8; i++) kill(&the_lane.high, i);
    the_lane.low = the_lane.high;
    put_lane(&p, &the_lane);
    for (int policy = PLEAT_POLICY_LEANKV; policy <= PLEAT_POLICY_TOPK; policy++) {
        pleat_spec spec = the_lane.spec;
        spec.policy = (pleat_policy)policy;
        spec.keep = 0.1f;
        const pleat__policy_step step = pleat__policy_step_of(&spec, &scans[0], &p.view, 8);
        CHECK_EQ_U64(step.left_slot, PLEAT__NO_SLOT);
        CHECK_EQ_U64(step.high_victim, PLEAT__NO_SLOT);
        CHECK_EQ_U64(step.low_victim, PLEAT__NO_SLOT);
        pleat__policy_prompt(&spec, &p.view, 8, 4, levels, scratch);
        CHECK_EQ_MEM(levels, ((uint8_t[8]){0}), 8);
    }
    check_buf_free(&p.pages);
}

static const check_test tests[] = {
    {"variants_agree", test_variants_agree}, {"leankv_lives", test_leankv_lives},
    {"topk_lives", test_topk_lives},         {"long_lanes", test_long_lanes},
    {"prompt_by_hand", test_prompt_by_hand}, {"step_by_hand", test_step_by_hand},
    {"dead_lane", test_dead_lane},
};

int main(int argc, char **argv) {
    find_scans();
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
