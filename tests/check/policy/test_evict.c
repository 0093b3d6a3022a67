/* SPDX-License-Identifier: MIT
 *
 * test_evict.c: the eviction policies against a slow oracle that follows the text of evict.h word by word.
 *
 * Layers of lanes are random: which positions live, in which slots, what they received, how many are sealed, which are
 * marked as representatives.  They stand in plain arrays and are laid out on scattered pages whose unused slots are
 * full of rubbish.  The oracle ranks each token by loops over all others, sorts the candidates, and takes the first.
 * Sums are added in the same order in both, so verdicts must be equal, not near.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/types.h"
#include "policy/evict.h"
#include "policy/select.h"
#include "quant/layout.h"

#define LANES_CAP 5u
#define SLOTS_CAP 768u
#define SCORES_CAP 5u
#define PAGES_CAP (LANES_CAP * (SLOTS_CAP / 16 + 1))

typedef struct token {
    int32_t position; /* -1: dead */
    float scores[SCORES_CAP];
} token;

typedef struct lane {
    token slots[SLOTS_CAP];
    uint32_t n_slots, n_sealed;
} lane;

typedef struct layer {
    pleat_spec spec;
    uint32_t layer, n_layers, n_lanes, n_tokens, budget, n_scores;
    lane lanes[LANES_CAP];
} layer;

static const pleat_policy policies[] = {PLEAT_POLICY_RANDOM, PLEAT_POLICY_RECENT, PLEAT_POLICY_STREAMING,
                                        PLEAT_POLICY_H2O,    PLEAT_POLICY_SNAPKV, PLEAT_POLICY_PYRAMIDKV,
                                        PLEAT_POLICY_ADAKV,  PLEAT_POLICY_NOVEL,  PLEAT_POLICY_EXPECTED,
                                        PLEAT_POLICY_DROPKV, PLEAT_POLICY_KVZIP,  PLEAT_POLICY_LEVERAGE};

static bool evicts_in_generation(pleat_policy p) { return p <= PLEAT_POLICY_H2O || p == PLEAT_POLICY_NOVEL; }

/* ---- the oracle: ranks --------------------------------------------------------------------------------- */

static uint32_t murmur(uint32_t x) {
    x = (x ^ x >> 16) * 2246822507u;
    x = (x ^ x >> 13) * 3266489909u;
    return x ^ x >> 16;
}

static float sum_of(const layer *l, token t) {
    float sum = 0;
    for (uint32_t k = l->spec.novel; k < l->n_scores; k++) sum += t.scores[k];
    return isfinite(sum) ? sum : 0;
}

/* What the token at a position before the window has received; 0 if there is none. */
static float received(const layer *l, const lane *ln, int64_t position) {
    if (position < 0 || position >= (int64_t)l->n_tokens - l->spec.window) return 0;
    for (uint32_t i = 0; i < ln->n_slots; i++)
        if (ln->slots[i].position == position) return sum_of(l, ln->slots[i]);
    return 0;
}

static float rank_of(const layer *l, uint32_t head, token t) {
    float pooled = 0;
    switch (l->spec.policy) {
        case PLEAT_POLICY_RANDOM: {
            const uint32_t seed = murmur(l->layer * 65536 ^ head ^ 0x9E3779B9u);
            return floorf((float)(murmur(seed ^ (uint32_t)t.position) / 256));
        }
        case PLEAT_POLICY_RECENT:
        case PLEAT_POLICY_STREAMING: return (float)t.position;
        case PLEAT_POLICY_H2O:
        case PLEAT_POLICY_DROPKV:
        case PLEAT_POLICY_KVZIP: return sum_of(l, t);
        case PLEAT_POLICY_NOVEL:
        case PLEAT_POLICY_LEVERAGE:
        case PLEAT_POLICY_EXPECTED: return isfinite(t.scores[0]) ? t.scores[0] : 0;
        default:
            for (int d = -2; d <= 2; d++) pooled += received(l, &l->lanes[head], (int64_t)t.position + d);
            return pooled;
    }
}

static bool is_marked(const layer *l, token t) { return l->n_scores > 0 && isinf(t.scores[0]); }

static bool is_candidate(const layer *l, token t) {
    if (t.position < 0 || (uint32_t)t.position < l->spec.sinks || is_marked(l, t)) return false;
    return (int64_t)t.position < (int64_t)l->n_tokens - l->spec.window;
}

/* ---- the oracle: prompts -------------------------------------------------------------------------------- */

typedef struct candidate {
    float rank, novelty;
    int32_t position;
    uint32_t lane, slot;
} candidate;

/* Best first: rank, then lane, then age. */
static int by_rank(const void *pa, const void *pb) {
    const candidate *a = pa, *b = pb;
    if (a->rank != b->rank) return a->rank > b->rank ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

static uint32_t list_candidates(const layer *l, uint32_t head, candidate *out) {
    const lane *ln = &l->lanes[head];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ln->n_slots; i++)
        if (is_candidate(l, ln->slots[i]))
            out[n++] =
                (candidate){rank_of(l, head, ln->slots[i]), ln->slots[i].scores[0], ln->slots[i].position, head, i};
    qsort(out, n, sizeof *out, by_rank);
    return n;
}

/* pyramidkv's budget of a layer, and leverage's with fall, from the sequence of all layers' on paper. */
static int64_t pyramid_budget(const layer *l) {
    const int64_t w = l->spec.window, mean = (int64_t)l->budget - w, room = (int64_t)l->n_tokens - w;
    int64_t least = l->spec.fall > 0 ? mean - (int64_t)ceil((double)l->spec.fall * mean - 1e-4) : mean / 20;
    if (l->spec.sinks > least) least = l->spec.sinks;
    int64_t most = mean + (mean - least);
    if (room < most) {
        most = room > 0 ? room : 0;
        least = mean + (mean - most);
    }
    const uint32_t mirror = l->n_layers - 1 - l->layer;
    if (l->layer == mirror) return mean + w;
    const uint32_t upper = l->layer < mirror ? l->layer : mirror;
    int64_t m = most;
    while ((most - m + 1) * (l->n_layers - 1) <= (most - least) * upper) m--;
    while ((most - m) * (l->n_layers - 1) > (most - least) * upper) m++; /* with room for all they rise */
    return (l->layer < mirror ? m : mean + (mean - m)) + w;
}

/* Below 0: so many protected tokens are too many. */
static int64_t middle_of(const layer *l, uint32_t head) {
    const lane *ln = &l->lanes[head];
    int64_t left = l->spec.policy == PLEAT_POLICY_PYRAMIDKV || l->spec.fall > 0 ? pyramid_budget(l) : l->budget;
    left -= ln->n_sealed;
    for (uint32_t i = 0; i < ln->n_slots; i++) left -= ln->slots[i].position >= 0 && !is_candidate(l, ln->slots[i]);
    return left;
}

static uint8_t verdicts_want[LANES_CAP][SLOTS_CAP];

static void keep(const candidate *c) { verdicts_want[c->lane][c->slot] = PLEAT__VERDICT_KEEP; }

/* The youngest representatives of a lane go, n_more of them; gives how many there were to go. */
static uint64_t drop_youngest(const lane *ln, uint32_t head, int64_t n_more) {
    uint64_t n_gone = 0;
    for (; n_more > 0; n_more--, n_gone++) {
        uint32_t youngest = SLOTS_CAP;
        for (uint32_t i = 0; i < ln->n_slots; i++)
            if (verdicts_want[head][i] == PLEAT__VERDICT_STAND &&
                (youngest == SLOTS_CAP || ln->slots[i].position > ln->slots[youngest].position))
                youngest = i;
        if (youngest == SLOTS_CAP) break;
        verdicts_want[head][youngest] = PLEAT__VERDICT_DROP;
    }
    return n_gone;
}

/* What adakv guarantees each lane, if the layer has as much. */
static bool has_guarantees(const layer *l, int64_t *total) {
    static candidate of_lane[SLOTS_CAP];
    int64_t n_sure = 0;
    *total = 0;
    for (uint32_t head = 0; head < l->n_lanes; head++) {
        const int64_t middle = middle_of(l, head), sure = middle > 0 ? middle * 2 / 10 : 0;
        const uint32_t n = list_candidates(l, head, of_lane);
        *total += middle;
        n_sure += sure < n ? sure : n;
    }
    return n_sure <= *total;
}

/* Least like the others first, then age. */
static int by_novelty(const void *pa, const void *pb) {
    const candidate *a = pa, *b = pb;
    if (a->novelty != b->novelty) return a->novelty > b->novelty ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

/* Of the m candidates that a lane may keep so many are its most novel, and the policy chooses the others once more. */
static void prefer_novel(const layer *l, uint32_t head, uint32_t m) {
    static candidate all[SLOTS_CAP];
    const uint32_t n = list_candidates(l, head, all);
    const double exact = (double)l->spec.share * m; /* what the share lacks as a float makes no token more */
    const uint32_t n_novel = (uint32_t)ceil(exact * (1 - 0x1p-24));
    uint32_t n_left = m - n_novel;
    for (uint32_t i = 0; i < n; i++) verdicts_want[head][all[i].slot] = PLEAT__VERDICT_DROP;
    qsort(all, n, sizeof *all, by_novelty);
    for (uint32_t i = 0; i < n && i < n_novel; i++) verdicts_want[head][all[i].slot] = PLEAT__VERDICT_STAND;
    qsort(all, n, sizeof *all, by_rank);
    for (uint32_t i = 0; i < n && n_left > 0; i++) {
        if (verdicts_want[head][all[i].slot] == PLEAT__VERDICT_STAND) continue;
        keep(&all[i]);
        n_left--;
    }
}

/* The same tokens in number, chosen by novelty in part: a lane keeps what its policy would have kept. */
static void oracle_novel(const layer *l) {
    for (uint32_t head = 0; head < l->n_lanes; head++) {
        const lane *ln = &l->lanes[head];
        const int64_t middle = middle_of(l, head);
        uint32_t n_kept = 0;
        for (uint32_t i = 0; i < ln->n_slots; i++)
            n_kept += is_candidate(l, ln->slots[i]) && verdicts_want[head][i] == PLEAT__VERDICT_KEEP;
        const bool is_ada = l->spec.policy == PLEAT_POLICY_ADAKV;
        prefer_novel(l, head, is_ada ? n_kept : (uint32_t)(middle > 0 ? middle : 0));
    }
}

/* Gives how many tokens are kept. */
static uint64_t oracle_prompt(const layer *l) {
    static candidate of_lane[SLOTS_CAP], rest[LANES_CAP * SLOTS_CAP];
    uint64_t n_rest = 0, n_kept = 0;
    int64_t left;
    const bool is_zip = l->spec.policy == PLEAT_POLICY_KVZIP, is_ada = l->spec.policy == PLEAT_POLICY_ADAKV || is_zip;
    const bool guarantees = has_guarantees(l, &left) && !is_zip;
    for (uint32_t head = 0; head < l->n_lanes; head++) {
        const lane *ln = &l->lanes[head];
        for (uint32_t i = 0; i < ln->n_slots; i++) {
            const token t = ln->slots[i];
            verdicts_want[head][i] = PLEAT__VERDICT_DROP;
            if (t.position < 0 || is_candidate(l, t)) continue;
            verdicts_want[head][i] = is_marked(l, t) ? PLEAT__VERDICT_STAND : PLEAT__VERDICT_KEEP;
            n_kept++;
        }
        const int64_t middle = middle_of(l, head), whole = middle > 0 ? middle : 0;
        const uint32_t n = list_candidates(l, head, of_lane);
        const uint32_t sure = (uint32_t)(!is_ada ? whole : guarantees ? whole * 2 / 10 : 0);
        if (!is_ada && l->spec.crush) n_kept -= drop_youngest(ln, head, -middle);
        for (uint32_t i = 0; i < n && i < sure; i++) keep(&of_lane[i]);
        for (uint32_t i = sure; i < n; i++) rest[n_rest++] = of_lane[i];
        n_kept += n < sure ? n : sure;
        left -= n < sure ? n : sure;
    }
    if (!is_ada || left < 0) return n_kept;
    qsort(rest, n_rest, sizeof *rest, by_rank);
    for (uint64_t i = 0; i < n_rest && i < (uint64_t)left; i++) keep(&rest[i]);
    return n_kept + (n_rest < (uint64_t)left ? n_rest : (uint64_t)left);
}

/* ---- random layers --------------------------------------------------------------------------------------- */

static uint32_t pick(const uint32_t *of, size_t n) { return of[check_below(n)]; }
#define PICK(...) pick((const uint32_t[]){__VA_ARGS__}, CHECK_COUNT(((const uint32_t[]){__VA_ARGS__})))

/* How scores come about. */
typedef enum scoring { SPREAD, TIED, EQUAL, TINY, ZERO, N_SCORINGS } scoring;

static float new_score(scoring how) {
    switch (how) {
        case SPREAD: return (float)check_uniform(0, 3);
        case TIED: return (float)check_below(4) / 8;
        case EQUAL: return 0.3f;
        case TINY: return (float)check_below(50) * 0x1p-149f;
        default: return check_below(9) ? 0 : 0x1p-10f;
    }
}

static void shuffle(lane *ln) {
    for (uint32_t i = ln->n_slots; i > 1; i--) {
        const uint32_t j = (uint32_t)check_below(i);
        const token t = ln->slots[i - 1];
        ln->slots[i - 1] = ln->slots[j];
        ln->slots[j] = t;
    }
}

static token rubbish(void) {
    const float scores[] = {0, -1, NAN, INFINITY, 1e30f};
    token t = {-1, {0}};
    for (uint32_t k = 0; k < SCORES_CAP; k++) t.scores[k] = scores[check_below(CHECK_COUNT(scores))];
    return t;
}

/* percent of the positions live; the first of them are sealed; dead slots stand between the others. */
static void random_lane(const layer *l, lane *ln, uint32_t percent, uint32_t percent_dead, uint32_t percent_marked) {
    const scoring how = (scoring)check_below(N_SCORINGS);
    uint32_t to_seal = check_below(3) ? 0 : (uint32_t)check_below(l->n_tokens / 2 + 1);
    *ln = (lane){0};
    for (uint32_t p = 0; p < l->n_tokens; p++) {
        if (check_below(100) >= percent) continue;
        if (to_seal > 0) {
            to_seal--;
            ln->n_sealed++;
            continue;
        }
        token t = {(int32_t)p, {0}};
        const bool is_rep = check_below(100) < percent_marked;
        for (uint32_t k = 0; k < l->n_scores; k++)
            t.scores[k] = is_rep && (k == 0 || !l->spec.novel) ? INFINITY : new_score(how);
        ln->slots[ln->n_slots++] = t;
        if (check_below(100) < percent_dead && ln->n_slots + l->n_tokens - p < SLOTS_CAP)
            ln->slots[ln->n_slots++] = rubbish();
    }
    if (check_below(2)) shuffle(ln);
}

/* A spec's policy decides no more here than it must: recent is tried with sinks, random with scores. */
static void random_layer(layer *l, pleat_policy policy) {
    *l = (layer){.spec = {.high = {8, 4}, .policy = policy}};
    l->spec.sinks = PICK(0, 0, 1, 4, 17);
    l->spec.window = PICK(1, 1, 2, 7, 16, 64);
    l->n_layers = (uint32_t)check_between(1, 7);
    l->layer = (uint32_t)check_below(l->n_layers);
    l->n_lanes = (uint32_t)check_between(1, LANES_CAP);
    l->n_tokens = (uint32_t)(check_below(3) ? check_between(1, 120) : check_between(1, 500));
    l->n_scores = PICK(1, 1, 2, SCORES_CAP);
    if (policy <= PLEAT_POLICY_STREAMING) l->n_scores = PICK(0, 0, 1, 3);
    l->spec.novel = (policy < PLEAT_POLICY_NOVEL || policy == PLEAT_POLICY_DROPKV) && check_below(3) == 0;
    l->spec.fall = policy == PLEAT_POLICY_LEVERAGE ? (float)PICK(0, 0, 1, 4, 7) / 8 : 0;
    l->spec.share = l->spec.novel ? (float)PICK(0, 1, 2, 4, 8) / 8 : 0;
    if (l->spec.novel) l->n_scores = pleat__n_scores_of(&l->spec, 1);
    const uint32_t least = l->spec.sinks + l->spec.window, n = l->n_tokens;
    l->budget = PICK(least, least + 1, n - 1, n, n + 5, least + (uint32_t)check_below(n), least + n / 4, least + n / 8);
    l->budget = pleat__max_u32(l->budget, least);
    const uint32_t percent = PICK(100, 100, 60, 10), dead = PICK(0, 0, 20, 80), marked = PICK(0, 0, 10, 90);
    for (uint32_t i = 0; i < l->n_lanes; i++) random_lane(l, &l->lanes[i], percent, dead, marked);
}

/* ---- layers on pages ---------------------------------------------------------------------------------------- */

typedef struct paged {
    pleat__page_layout layout;
    uint64_t page_bytes;
    check_buf pages;
    pleat__page_id ids[PAGES_CAP];
    pleat__kv_view views[LANES_CAP];
} paged;

static void put_lane(paged *p, const layer *l, const lane *ln, const pleat__page_id *ids, pleat__kv_view *view) {
    const uint32_t tokens = p->layout.tokens;
    *view = (pleat__kv_view){.n_sealed = ln->n_sealed};
    view->high = (pleat__kv_run){.layout = &p->layout,
                                 .base = p->pages.p,
                                 .page_bytes = p->page_bytes,
                                 .ids = ids,
                                 .step = 1,
                                 .n_slots = ln->n_slots};
    for (uint32_t i = 0; i < pleat__div_up_u32(ln->n_slots, tokens) * tokens; i++) {
        uint8_t *page = pleat__kv_page(&view->high, i / tokens);
        token t = i < ln->n_slots ? ln->slots[i] : rubbish();
        if (i >= ln->n_slots) t.position = (int32_t)check_below(l->n_tokens);
        pleat__positions(&p->layout, page)[i % tokens] = t.position;
        for (uint32_t k = 0; k < l->n_scores; k++) pleat__head_scores(&p->layout, page, k)[i % tokens] = t.scores[k];
    }
}

static void paged_new(paged *p, const layer *l) {
    const pleat_format format = {8, 4};
    const uint32_t tokens = PICK(16, 32, 32, 64);
    CHECK_STATUS(pleat__page_layout_init_scored(&p->layout, format, 16, tokens, l->n_scores), PLEAT_OK);
    p->page_bytes = (p->layout.used_bytes + PLEAT__ALIGN - 1) / PLEAT__ALIGN * PLEAT__ALIGN;
    uint32_t n_pages = 0;
    for (uint32_t i = 0; i < l->n_lanes; i++) n_pages += pleat__div_up_u32(l->lanes[i].n_slots, tokens);
    p->pages = check_buf_new(n_pages * p->page_bytes, PLEAT__ALIGN);
    for (uint32_t i = 0; i < n_pages; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        p->ids[i] = p->ids[j];
        p->ids[j].v = i;
    }
    const pleat__page_id *ids = p->ids;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        put_lane(p, l, &l->lanes[i], ids, &p->views[i]);
        ids += pleat__div_up_u32(l->lanes[i].n_slots, tokens);
    }
}

/* ---- prompts -------------------------------------------------------------------------------------------------- */

/* How often each case was met, so that layers in which nothing happens do not pass for a test. */
typedef struct tally {
    uint64_t verdicts[3], victims, spared, full;
} tally;
static tally met;

/* One decision with exactly the memory that it may use. */
static void decide(const layer *l, const paged *p, check_buf *verdicts) {
    uint32_t slots_cap = 0;
    uint8_t *rows[LANES_CAP];
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        verdicts[i] = check_buf_new(l->lanes[i].n_slots, 1);
        rows[i] = verdicts[i].p;
        slots_cap = pleat__max_u32(slots_cap, l->lanes[i].n_slots);
    }
    slots_cap = pleat__max_u32(slots_cap, 1);
    pleat__evict_scratch scratch;
    pleat__arena arena = {0};
    pleat__evict_carve(&l->spec, l->n_lanes, 2, slots_cap, l->n_tokens, &scratch, &arena);
    check_buf block = check_buf_new(arena.used_bytes, PLEAT__ALIGN);
    arena = (pleat__arena){.base = block.p, .cap_bytes = arena.used_bytes};
    pleat__evict_carve(&l->spec, l->n_lanes, 2, slots_cap, l->n_tokens, &scratch, &arena);
    CHECK(!arena.overflow && arena.used_bytes == arena.cap_bytes && scratch.crush == NULL);
    const pleat__evict_layer asked = {&l->spec,    l->layer,  l->n_layers,      l->n_lanes,
                                      l->n_tokens, l->budget, p->layout.tokens, p->views};
    pleat__evict_prompt(&asked, &scratch, rows);
    CHECK(check_buf_is_intact(&block));
    check_buf_free(&block);
}

/* Gives how many tokens are kept. */
static uint64_t check_prompt(const layer *l) {
    static paged p;
    check_buf verdicts[LANES_CAP];
    paged_new(&p, l);
    decide(l, &p, verdicts);
    const uint64_t want = oracle_prompt(l);
    if (l->spec.novel) oracle_novel(l);
    uint64_t n_kept = 0;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        const uint8_t *got = verdicts[i].p;
        CHECK_EQ_MEM(got, verdicts_want[i], l->lanes[i].n_slots);
        for (uint32_t j = 0; j < l->lanes[i].n_slots; j++) {
            n_kept += got[j] != PLEAT__VERDICT_DROP;
            if (got[j] <= 2) met.verdicts[got[j]]++;
        }
        CHECK(check_buf_is_intact(&verdicts[i]));
        check_buf_free(&verdicts[i]);
    }
    CHECK_EQ_U64(n_kept, want);
    CHECK(check_buf_is_intact(&p.pages));
    check_buf_free(&p.pages);
    return n_kept;
}

static void test_prompts(void) {
    static layer l;
    for (size_t k = 0; k < CHECK_COUNT(policies); k++) {
        met = (tally){0};
        for (uint64_t round = 0; round < check_rounds(150, 20) && check_failures() == 0; round++) {
            random_layer(&l, policies[k]);
            check_context("policy %d, novel %u, N %u, B %u, sinks %u, window %u, layer %u of %u, %u lanes, %u scores",
                          (int)policies[k], l.spec.novel, l.n_tokens, l.budget, l.spec.sinks, l.spec.window, l.layer,
                          l.n_layers, l.n_lanes, l.n_scores);
            check_prompt(&l);
        }
        check_context("policy %d", (int)policies[k]);
        CHECK(met.verdicts[PLEAT__VERDICT_DROP] && met.verdicts[PLEAT__VERDICT_KEEP] &&
              met.verdicts[PLEAT__VERDICT_STAND]);
    }
}

/* kept[lane][position] of one decision. */
static void positions_kept(const layer *l, uint8_t kept[LANES_CAP][SLOTS_CAP]) {
    static paged p;
    check_buf verdicts[LANES_CAP];
    paged_new(&p, l);
    decide(l, &p, verdicts);
    memset(kept, 0, LANES_CAP * SLOTS_CAP);
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        const uint8_t *got = verdicts[i].p;
        for (uint32_t j = 0; j < l->lanes[i].n_slots; j++)
            if (l->lanes[i].slots[j].position >= 0) kept[i][l->lanes[i].slots[j].position] = got[j];
        check_buf_free(&verdicts[i]);
    }
    check_buf_free(&p.pages);
}

/* In which slots tokens stand changes nothing. */
static void test_slot_order(void) {
    static layer l;
    static uint8_t before[LANES_CAP][SLOTS_CAP], after[LANES_CAP][SLOTS_CAP];
    for (uint64_t round = 0; round < check_rounds(210, 35); round++) {
        random_layer(&l, policies[round % CHECK_COUNT(policies)]);
        positions_kept(&l, before);
        for (uint32_t i = 0; i < l.n_lanes; i++) shuffle(&l.lanes[i]);
        positions_kept(&l, after);
        check_context("policy %d", (int)l.spec.policy);
        CHECK_EQ_MEM(after, before, sizeof before);
    }
}

/* Layers whose lanes hold every token, none marked. */
static void full_layer(layer *l, uint32_t n_tokens) {
    l->n_tokens = n_tokens;
    l->n_scores = 1;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        l->lanes[i] = (lane){.n_slots = n_tokens};
        for (uint32_t p = 0; p < n_tokens; p++)
            l->lanes[i].slots[p] = (token){(int32_t)p, {new_score(i % 2 ? SPREAD : TIED)}};
    }
}

/* However budgets are moved, a sequence keeps as many tokens as with equal ones. */
static void test_totals(void) {
    static layer l;
    for (uint64_t round = 0; round < check_rounds(140, 35); round++) {
        l.spec = (pleat_spec){.high = {8, 4}, .policy = policies[round % CHECK_COUNT(policies)]};
        l.spec.sinks = PICK(0, 4, 17);
        l.spec.window = PICK(1, 16, 32);
        l.n_layers = (uint32_t)check_between(1, 6);
        l.n_lanes = (uint32_t)check_between(1, 3);
        const uint32_t n = (uint32_t)check_between(50, 400), least = l.spec.sinks + l.spec.window;
        l.budget = (uint32_t)check_between(least, pleat__max_u32(least, n));
        uint64_t total = 0;
        for (l.layer = 0; l.layer < l.n_layers; l.layer++) {
            full_layer(&l, n);
            total += check_prompt(&l);
        }
        check_context("policy %d", (int)l.spec.policy);
        CHECK_EQ_U64(total, (uint64_t)l.n_layers * l.n_lanes * pleat__min_u32(l.budget, n));
    }
}

static void test_pyramid_by_hand(void) {
    static layer l;
    l.spec = (pleat_spec){.high = {8, 4}, .policy = PLEAT_POLICY_PYRAMIDKV, .window = 10, .sinks = 4};
    l.n_layers = 4;
    l.n_lanes = 1;
    l.budget = 110; /* M = 100: 5 to 195, falling by 190/3 */
    const uint64_t want[] = {205, 142, 78, 15}, clipped[] = {150, 124, 96, 70};
    for (l.layer = 0; l.layer < 4; l.layer++) {
        full_layer(&l, 700);
        CHECK_EQ_U64(check_prompt(&l), want[l.layer]);
        full_layer(&l, 150); /* 140 down to 60, by 80/3 */
        CHECK_EQ_U64(check_prompt(&l), clipped[l.layer]);
    }
}

/* Two lanes of ten candidates with a middle of 5: one is guaranteed, and the other lane's are better. */
static void test_ada_by_hand(void) {
    static layer l;
    l.spec = (pleat_spec){.high = {8, 4}, .policy = PLEAT_POLICY_ADAKV, .window = 1};
    l.n_layers = 1;
    l.layer = 0;
    l.n_lanes = 2;
    l.budget = 6;
    full_layer(&l, 11);
    for (uint32_t p = 0; p < 11; p++) {
        l.lanes[0].slots[p].scores[0] = 1;
        l.lanes[1].slots[p].scores[0] = 8;
    }
    CHECK_EQ_U64(check_prompt(&l), 12); /* two lanes of 6 */
    uint32_t n_first = 0;
    for (uint32_t p = 0; p < 11; p++) n_first += verdicts_want[0][p] == PLEAT__VERDICT_KEEP;
    CHECK_EQ_U64(n_first, 2); /* the best and the window */
}

/* ---- generation ------------------------------------------------------------------------------------------------- */

static uint32_t oracle_victim(const layer *l, uint32_t head) {
    const lane *ln = &l->lanes[head];
    candidate worst = {0, 0, -1, 0, PLEAT__NO_SLOT};
    for (uint32_t i = 0; i < ln->n_slots; i++) {
        const token t = ln->slots[i];
        if (!is_candidate(l, t)) continue;
        const candidate c = {rank_of(l, head, t), 0, t.position, 0, i};
        if (worst.slot == PLEAT__NO_SLOT || by_rank(&worst, &c) < 0) worst = c;
    }
    return worst.slot;
}

static void check_victims(layer *l, paged *p) {
    float ranks[PLEAT__SCAN_BLOCK];
    for (uint32_t head = 0; head < l->n_lanes; head++) {
        const pleat__evict_lane asked = {&l->spec, &p->views[head].high, l->layer, head, l->n_tokens};
        for (uint32_t round = 0; round < 6; round++) { /* each time one fewer */
            const uint32_t want = oracle_victim(l, head), got = pleat__evict_victim(&asked, ranks);
            CHECK_EQ_U64(got, want);
            met.victims += want != PLEAT__NO_SLOT;
            met.spared += want == PLEAT__NO_SLOT;
            if (got != want || want == PLEAT__NO_SLOT) break;
            uint8_t *page = pleat__kv_page(asked.run, want / p->layout.tokens);
            pleat__positions(&p->layout, page)[want % p->layout.tokens] = -1;
            l->lanes[head].slots[want].position = -1;
        }
    }
}

static void test_victims(void) {
    static layer l;
    static paged p;
    for (size_t k = 0; k < CHECK_COUNT(policies); k++) {
        met = (tally){0};
        const bool evicts = evicts_in_generation(policies[k]);
        for (uint64_t round = 0; round < check_rounds(200, 30) && check_failures() == 0; round++) {
            random_layer(&l, policies[k]);
            check_context("policy %d, N %u, sinks %u, window %u", (int)policies[k], l.n_tokens, l.spec.sinks,
                          l.spec.window);
            paged_new(&p, &l);
            const pleat__evict_lane first = {&l.spec, &p.views[0].high, l.layer, 0, l.n_tokens};
            if (evicts)
                check_victims(&l, &p);
            else
                CHECK_EQ_U64(pleat__evict_victim(&first, NULL), PLEAT__NO_SLOT);
            check_buf_free(&p.pages);
        }
        CHECK(!evicts || (met.victims > 100 && met.spared > 10));
    }
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void test_rows(void) {
    const pleat__scoring own[] = {PLEAT__SCORING_NONE,   PLEAT__SCORING_NONE,    PLEAT__SCORING_NONE,
                                  PLEAT__SCORING_SUM,    PLEAT__SCORING_WINDOW,  PLEAT__SCORING_WINDOW,
                                  PLEAT__SCORING_WINDOW, PLEAT__SCORING_NOVELTY, PLEAT__SCORING_EXPECTED,
                                  PLEAT__SCORING_ERROR,  PLEAT__SCORING_REPLAY,  PLEAT__SCORING_LEVERAGE};
    for (size_t k = 0; k < CHECK_COUNT(policies); k++) {
        pleat_spec spec = {.policy = policies[k]};
        CHECK(pleat__evictor_of(policies[k]) != NULL);
        CHECK_EQ_U64(pleat__evictor_of(policies[k])->in_generation, evicts_in_generation(policies[k]));
        CHECK_EQ_U64(pleat__scoring_of(&spec), own[k]);
        CHECK_EQ_U64(pleat__n_scores_of(&spec, 6), own[k] != PLEAT__SCORING_NONE);
        const bool is_novel = policies[k] == PLEAT_POLICY_NOVEL,
                   is_own = is_novel || policies[k] == PLEAT_POLICY_EXPECTED || policies[k] == PLEAT_POLICY_LEVERAGE;
        CHECK_EQ_U64(pleat__counted_of(&spec), is_own ? PLEAT__SCORING_NONE : own[k]);
        CHECK_EQ_U64(pleat__turns_back(&spec), is_own);
        spec.merge = 1; /* goes by attention, which novel's own score is not */
        CHECK_EQ_U64(pleat__counted_of(&spec), own[k] == PLEAT__SCORING_NONE || is_own ? PLEAT__SCORING_SUM : own[k]);
        CHECK_EQ_U64(pleat__first_counted(&spec), is_own);
        CHECK_EQ_U64(pleat__n_scores_of(&spec, 6), is_own ? 2 : 1);
        CHECK_EQ_U64(pleat__scores_novelty(&spec), is_novel);
        spec.merge = 0, spec.novel = !is_own;
        CHECK(pleat__turns_back(&spec));
        CHECK_EQ_U64(pleat__scores_novelty(&spec), is_novel || !is_own);
        CHECK_EQ_U64(pleat__scoring_of(&spec), own[k]);
        CHECK_EQ_U64(pleat__first_counted(&spec), spec.novel);
        CHECK_EQ_U64(pleat__n_scores_of(&spec, 6), spec.novel && own[k] != PLEAT__SCORING_NONE ? 2 : 1);
        spec.novel = 0, spec.crush = 1;
        CHECK_EQ_U64(pleat__scoring_of(&spec), own[k] == PLEAT__SCORING_NONE ? PLEAT__SCORING_SUM : own[k]);
        CHECK_EQ_U64(pleat__n_scores_of(&spec, 6), 6);
    }
    const pleat_policy others[] = {PLEAT_POLICY_NONE, PLEAT_POLICY_LEANKV, PLEAT_POLICY_TOPK, (pleat_policy)99};
    for (size_t k = 0; k < CHECK_COUNT(others); k++) {
        const pleat_spec spec = {.policy = others[k]};
        const bool is_classed = k == 1 || k == 2;
        CHECK(pleat__evictor_of(others[k]) == NULL);
        CHECK_EQ_U64(pleat__scoring_of(&spec), is_classed ? PLEAT__SCORING_MAX : PLEAT__SCORING_NONE);
        CHECK_EQ_U64(pleat__n_scores_of(&spec, 6), is_classed);
    }
}

static void test_budgets(void) {
    pleat_spec spec = {.policy = PLEAT_POLICY_H2O, .window = 6, .sinks = 2, .budget = {512, PLEAT_BUDGET_TOKENS}};
    CHECK_EQ_U64(pleat__evict_budget(&spec, 100, 7), 512);
    spec.budget = (pleat_budget){1e12, PLEAT_BUDGET_TOKENS};
    CHECK_EQ_U64(pleat__evict_budget(&spec, 100, 7), UINT32_MAX); /* the most that the type holds */
    spec.budget = (pleat_budget){65536, PLEAT_BUDGET_BYTES};
    CHECK_EQ_U64(pleat__evict_budget(&spec, 100, 77), 77); /* what the bytes come to, by the caller */
    CHECK_EQ_U64(pleat__evict_budget(&spec, 100, 7), 8);   /* sinks + window at least */
    const double shares[] = {0.25, 0.3, (double)0.3f, 0.7, (double)0.7f, 1, 0.001};
    const uint32_t thousandths[] = {250, 300, 300, 700, 700, 1000, 1};
    for (size_t k = 0; k < CHECK_COUNT(shares); k++)
        for (uint32_t n = 0; n < 5000; n++) {
            spec.budget = (pleat_budget){shares[k], PLEAT_BUDGET_SHARE};
            CHECK_EQ_U64(pleat__evict_budget(&spec, n, 7), pleat__max_u32((n * thousandths[k] + 999) / 1000, 8));
        }
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

static void test_kth_largest(void) {
    static float x[700], sorted[700];
    const float some[] = {0, 1, INFINITY, 0x1p-149f, 3e38f, 0.5f};
    for (uint64_t round = 0; round < check_rounds(300, 50); round++) {
        const uint32_t n = (uint32_t)(check_below(2) ? check_between(1, 200) : check_between(1, 700));
        uint32_t m = 0;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = check_below(3) ? (float)check_uniform(0, 1) : some[check_below(CHECK_COUNT(some))];
            if (check_below(8) == 0) x[i] = check_below(2) ? -1 : -INFINITY;
            if (x[i] >= 0) sorted[m++] = x[i];
        }
        CHECK_EQ_U64(pleat__count_reach(x, n, 0), m);
        if (m == 0) continue;
        qsort(sorted, m, sizeof *sorted, by_value);
        const uint32_t ks[] = {1, m, 1 + (uint32_t)check_below(m)};
        for (size_t i = 0; i < CHECK_COUNT(ks); i++) CHECK(pleat__kth_largest(x, n, ks[i]) == sorted[ks[i] - 1]);
    }
}

static const check_test tests[] = {
    {"prompts", test_prompts},
    {"slot_order", test_slot_order},
    {"totals", test_totals},
    {"pyramid_by_hand", test_pyramid_by_hand},
    {"ada_by_hand", test_ada_by_hand},
    {"victims", test_victims},
    {"rows", test_rows},
    {"budgets", test_budgets},
    {"kth_largest", test_kth_largest},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
