/* SPDX-License-Identifier: MIT
 *
 * evict.c: which tokens of a lane go, by its policy's ranks.  See evict.h.
 *
 * Who is a candidate is the same for all policies and said here alone: is_candidate, which block_may_have and sort_out
 * ask.  Loops over blocks of slots have a fixed count and no branch, as in scan.c.
 */
#include "policy/evict.h"

#include <math.h>

#include "policy/kvcrush.h"
#include "policy/select.h"

#define BLOCK PLEAT__SCAN_BLOCK

/* Pages that are fetched ahead, as in scan.c. */
#define AHEAD 4u

/* ---- policies ------------------------------------------------------------------------------------------- */

const pleat__evictor *pleat__evictor_of(pleat_policy policy) {
    static const pleat__evictor *const rows[] = {
        [PLEAT_POLICY_RANDOM] = &pleat__evictor_random,       [PLEAT_POLICY_RECENT] = &pleat__evictor_recent,
        [PLEAT_POLICY_STREAMING] = &pleat__evictor_streaming, [PLEAT_POLICY_H2O] = &pleat__evictor_h2o,
        [PLEAT_POLICY_SNAPKV] = &pleat__evictor_snapkv,       [PLEAT_POLICY_PYRAMIDKV] = &pleat__evictor_pyramidkv,
        [PLEAT_POLICY_ADAKV] = &pleat__evictor_adakv,         [PLEAT_POLICY_NOVEL] = &pleat__evictor_novel,
        [PLEAT_POLICY_EXPECTED] = &pleat__evictor_expected,   [PLEAT_POLICY_DROPKV] = &pleat__evictor_dropkv,
        [PLEAT_POLICY_KVZIP] = &pleat__evictor_kvzip,         [PLEAT_POLICY_LEVERAGE] = &pleat__evictor_leverage,
    };
    return (size_t)policy < sizeof rows / sizeof rows[0] ? rows[policy] : NULL;
}

pleat__scoring pleat__scoring_of(const pleat_spec *spec) {
    if (pleat__leveler_of(spec->policy)) return PLEAT__SCORING_MAX;
    const pleat__evictor *evictor = pleat__evictor_of(spec->policy);
    if (!evictor) return PLEAT__SCORING_NONE;
    return evictor->scoring == PLEAT__SCORING_NONE && (spec->crush || spec->merge) ? PLEAT__SCORING_SUM
                                                                                   : evictor->scoring;
}

bool pleat__moves_budgets(const pleat_spec *spec) {
    const pleat__evictor *evictor = pleat__evictor_of(spec->policy);
    return evictor && evictor->budgets && (!evictor->by_fall || spec->fall > 0);
}

bool pleat__scores_novelty(const pleat_spec *spec) {
    return spec->novel || pleat__scoring_of(spec) == PLEAT__SCORING_NOVELTY;
}

bool pleat__is_own_score(pleat__scoring scoring) {
    return scoring == PLEAT__SCORING_NOVELTY || scoring == PLEAT__SCORING_EXPECTED ||
           scoring == PLEAT__SCORING_LEVERAGE;
}

bool pleat__looks_at_keys(const pleat_spec *spec) {
    return pleat__scores_novelty(spec) || pleat__scoring_of(spec) == PLEAT__SCORING_LEVERAGE;
}

bool pleat__turns_back(const pleat_spec *spec) { return spec->novel || pleat__is_own_score(pleat__scoring_of(spec)); }

pleat__scoring pleat__counted_of(const pleat_spec *spec) {
    const pleat__scoring scoring = pleat__scoring_of(spec);
    if (!pleat__is_own_score(scoring)) return scoring;
    return spec->merge ? PLEAT__SCORING_SUM : PLEAT__SCORING_NONE;
}

uint32_t pleat__first_counted(const pleat_spec *spec) {
    return spec->novel || (pleat__is_own_score(pleat__scoring_of(spec)) && spec->merge) ? 1 : 0;
}

uint32_t pleat__n_scores_of(const pleat_spec *spec, uint32_t n_group) {
    if (pleat__scoring_of(spec) == PLEAT__SCORING_NONE) return spec->novel;
    return spec->crush ? n_group : 1 + pleat__first_counted(spec);
}

uint32_t pleat__evict_budget(const pleat_spec *spec, uint32_t n_prompt, uint32_t byte_tokens) {
    const double value = spec->budget.value;
    uint32_t budget = byte_tokens;
    if (spec->budget.unit == PLEAT_BUDGET_TOKENS) budget = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    if (spec->budget.unit == PLEAT_BUDGET_SHARE) budget = pleat__share_tokens(value, n_prompt);
    return pleat__max_u32(budget, spec->sinks + spec->window);
}

uint32_t pleat__evict_max_budget(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_prompt, uint32_t byte_tokens) {
    uint64_t most = pleat__evict_budget(spec, n_prompt, byte_tokens);
    if (pleat__moves_budgets(spec)) most *= pleat__evictor_of(spec->policy)->budget_spread(n_lanes);
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* ---- a lane's slots ----------------------------------------------------------------------------------------- */

/* Scores and positions of a page, which stand behind each other; nothing if page_idx >= n_pages. */
static void fetch(const pleat__kv_run *run, uint32_t page_idx, uint32_t n_pages) {
    if (page_idx >= n_pages) return;
    const pleat__page_layout *layout = run->layout;
    const uint8_t *page = pleat__kv_page(run, page_idx);
    const uint32_t end = layout->pos_off + layout->tokens * (uint32_t)sizeof(int32_t);
    for (uint32_t i = layout->n_scores ? layout->score_off : layout->pos_off; i < end; i += PLEAT__ALIGN)
        __builtin_prefetch(page + i);
}

/* ranks[slot] of a whole run, in whole blocks. */
static void rank_run(const pleat__evictor *evictor, const pleat__evict_lane *lane, float *ranks, float *by_position) {
    const uint32_t n_pages = pleat__tracked_pages(lane->run);
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        fetch(lane->run, page_idx + AHEAD, n_pages);
        const pleat__tracked page = pleat__tracked_page(lane->run, page_idx);
        for (uint32_t i = 0; i < page.n; i += BLOCK) evictor->rank_block(lane, &page, i, ranks + page.first + i);
    }
    if (evictor->rank) evictor->rank(lane, ranks, by_position);
}

/* Positions of candidates, but for those with infinite scores: begin <= position < end. */
typedef struct range {
    int32_t begin, end;
} range;

static range range_of(const pleat_spec *spec, uint32_t n_tokens) {
    return (range){(int32_t)spec->sinks, n_tokens > spec->window ? (int32_t)(n_tokens - spec->window) : 0};
}

/* Scores that mark representatives: a block of zeros, and the same again, where a page has none. */
typedef struct marks {
    const float *scores;
    uint32_t step;
} marks;

static marks marks_of(const pleat__kv_run *run, const pleat__tracked *page) {
    static const float none[BLOCK];
    return run->layout->n_scores ? (marks){page->sums, 1} : (marks){none, 0};
}

/* Dead slots have position -1 and are none, as begin >= 0. */
static inline int32_t is_candidate(int32_t position, float score, range r) {
    return (position >= r.begin) & (position < r.end) & (score != INFINITY);
}

/* ---- generation --------------------------------------------------------------------------------------------- */

/* Whoever goes first among the candidates that were looked at.  Ranks by their bits, which have their order. */
typedef struct victim {
    int32_t rank, position;
    uint32_t slot;
} victim;

/* Whether a block may have one that goes first: a candidate of at most this rank. */
static bool block_may_have(const float *ranks, const int32_t *positions, const float *scores, range r, int32_t rank) {
    int32_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        found |= (is_candidate(positions[i], scores[i], r) & (pleat__rank_bits(ranks[i]) <= rank)) ? -1 : 0;
    return found;
}

/* Look closely at n <= BLOCK slots. */
static void search_block(const float *ranks, const int32_t *positions, const float *scores, range r, uint32_t n,
                         uint32_t first_slot, victim *v) {
    for (uint32_t i = 0; i < n; i++) {
        const int32_t rank = pleat__rank_bits(ranks[i]);
        if (!is_candidate(positions[i], scores[i], r)) continue;
        if (rank < v->rank || (rank == v->rank && positions[i] > v->position))
            *v = (victim){rank, positions[i], first_slot + i};
    }
}

uint32_t pleat__evict_victim(const pleat__evict_lane *lane, float *ranks) {
    const pleat__evictor *evictor = pleat__evictor_of(lane->spec->policy);
    if (!evictor || !evictor->in_generation) return PLEAT__NO_SLOT;
    const range r = range_of(lane->spec, lane->n_tokens);
    const uint32_t n_pages = pleat__tracked_pages(lane->run);
    victim v = {INT32_MAX, -1, PLEAT__NO_SLOT};
    for (uint32_t page_idx = 0; page_idx < n_pages; page_idx++) {
        fetch(lane->run, page_idx + AHEAD, n_pages);
        const pleat__tracked page = pleat__tracked_page(lane->run, page_idx);
        const marks m = marks_of(lane->run, &page);
        for (uint32_t i = 0; i < page.n; i += BLOCK) {
            const int32_t *positions = page.positions + i;
            const float *scores = m.scores + i * m.step;
            evictor->rank_block(lane, &page, i, ranks);
            if (block_may_have(ranks, positions, scores, r, v.rank))
                search_block(ranks, positions, scores, r, pleat__min_u32(BLOCK, page.n - i), page.first + i, &v);
        }
    }
    return v.slot;
}

/* ---- the end of a prompt --------------------------------------------------------------------------------------- */

/* Sort out up to BLOCK slots: ranks of all but candidates become -1; candidates are dropped as yet.  Gives how many are
 * protected. */
static inline int32_t sort_out(const int32_t *restrict positions, const float *restrict scores, range r, uint32_t n,
                               float *restrict ranks, uint8_t *restrict verdicts) {
    int32_t n_protected = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t is_one = is_candidate(positions[i], scores[i], r);
        const int32_t is_protected = (positions[i] >= 0) & !is_one;
        const int32_t verdict = scores[i] == INFINITY ? PLEAT__VERDICT_STAND : PLEAT__VERDICT_KEEP;
        ranks[i] = is_one ? ranks[i] : -1.0f;
        verdicts[i] = (uint8_t)(is_protected ? verdict : PLEAT__VERDICT_DROP);
        n_protected += is_protected;
    }
    return n_protected;
}

/* Rank a lane's open slots and sort them out.  Gives what B leaves beside its protected tokens. */
static int64_t rank_lane(const pleat__evict_layer *layer, uint32_t head, float *ranks, float *by_position,
                         uint8_t *verdicts) {
    const pleat__kv_run *run = &layer->lanes[head].high;
    const pleat__evict_lane lane = {layer->spec, run, layer->layer, head, layer->n_tokens};
    const range r = range_of(layer->spec, layer->n_tokens);
    pleat__tracked page;
    uint32_t n_protected = layer->lanes[head].n_sealed;
    rank_run(pleat__evictor_of(layer->spec->policy), &lane, ranks, by_position);
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        const marks m = marks_of(run, &page);
        for (uint32_t i = 0; i < page.n; i += BLOCK) {
            float *of = ranks + page.first + i;
            uint8_t *to = verdicts + page.first + i;
            const float *scores = m.scores + i * m.step;
            n_protected +=
                (uint32_t)(i + BLOCK <= page.n ? sort_out(page.positions + i, scores, r, BLOCK, of, to)
                                               : sort_out(page.positions + i, scores, r, page.n - i, of, to));
        }
    }
    return (int64_t)layer->budget - n_protected;
}

/* Of a lane's representatives of before `n_more` are more than its budget has room for: the youngest go. */
static void thin_out(const pleat__evict_layer *layer, uint32_t head, int64_t n_more, float *ages, uint8_t *verdicts) {
    const pleat__kv_run *run = &layer->lanes[head].high;
    pleat__tracked page;
    int64_t n_stand = 0;
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        for (uint32_t i = 0; i < page.n; i++) {
            uint8_t *verdict = &verdicts[page.first + i];
            const bool stands = *verdict == PLEAT__VERDICT_STAND;
            ages[page.first + i] = stands ? (float)(layer->n_tokens - (uint32_t)page.positions[i]) : -1.0f;
            *verdict = stands ? PLEAT__VERDICT_DROP : *verdict;
            n_stand += stands;
        }
    }
    const uint32_t n_stay = n_stand > n_more ? (uint32_t)(n_stand - n_more) : 0;
    pleat__select_top(run, ages, n_stay, layer->n_tokens, PLEAT__VERDICT_STAND, verdicts, ages);
}

/* Of a lane's candidates the n least like the others stand, and are candidates no more.  novelty: scratch. */
static void take_novel(const pleat__evict_layer *layer, uint32_t head, uint32_t n, float *ranks, float *novelty,
                       uint8_t *verdicts) {
    const pleat__kv_run *run = &layer->lanes[head].high;
    pleat__tracked page;
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);)
        for (uint32_t i = 0; i < page.n; i++)
            novelty[page.first + i] = ranks[page.first + i] < 0 ? -1.0f : page.sums[i];
    pleat__select_top(run, novelty, n, layer->n_tokens, PLEAT__VERDICT_STAND, verdicts, novelty);
    for (uint32_t slot = 0; slot < run->n_slots; slot++)
        ranks[slot] = verdicts[slot] == PLEAT__VERDICT_STAND ? -1.0f : ranks[slot];
}

void pleat__evict_prompt(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch,
                         uint8_t *const *verdicts) {
    const pleat__evictor *evictor = pleat__evictor_of(layer->spec->policy);
    uint32_t *middle = scratch->middle;
    int64_t *room = scratch->room;
    for (uint32_t i = 0; i < layer->n_lanes; i++)
        room[i] = rank_lane(layer, i, scratch->ranks[i], scratch->by_position, verdicts[i]);
    if (pleat__moves_budgets(layer->spec)) evictor->budgets(layer, scratch->ranks, room);
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        middle[i] = room[i] > 0 ? (uint32_t)room[i] : 0;
        if (room[i] < 0 && layer->spec->crush) thin_out(layer, i, -room[i], scratch->floats, verdicts[i]);
    }
    if (layer->spec->crush) {
        pleat__crush_layer(layer, scratch, middle, verdicts);
        return;
    }
    for (uint32_t i = 0; i < layer->n_lanes; i++) {
        const uint32_t n_novel = layer->spec->novel ? pleat__share_tokens((double)layer->spec->share, middle[i]) : 0;
        if (n_novel > 0) take_novel(layer, i, n_novel, scratch->ranks[i], scratch->floats, verdicts[i]);
        pleat__select_top(&layer->lanes[i].high, scratch->ranks[i], middle[i] - n_novel, layer->n_tokens,
                          PLEAT__VERDICT_KEEP, verdicts[i], scratch->floats);
    }
}

void pleat__evict_carve(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_group, uint32_t slots_cap,
                        uint32_t max_tokens, pleat__evict_scratch *out, pleat__arena *arena) {
    *out = (pleat__evict_scratch){0};
    out->ranks = pleat__arena_take(arena, n_lanes, sizeof *out->ranks);
    for (uint32_t i = 0; i < n_lanes; i++) {
        float *ranks = pleat__arena_take(arena, pleat__div_up_u32(slots_cap, BLOCK), BLOCK * sizeof *ranks);
        if (out->ranks) out->ranks[i] = ranks;
    }
    out->by_position = pleat__arena_take(arena, (uint64_t)max_tokens + 8, sizeof *out->by_position);
    out->floats = pleat__arena_take(arena, slots_cap, sizeof *out->floats);
    out->room = pleat__arena_take(arena, n_lanes, sizeof *out->room);
    out->middle = pleat__arena_take(arena, n_lanes, sizeof *out->middle);
    if (spec->crush) out->crush = pleat__crush_carve(spec, n_lanes, n_group, slots_cap, max_tokens, arena);
}
