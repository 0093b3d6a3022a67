/* SPDX-License-Identifier: MIT
 *
 * kvcrush.c: important tokens and representatives of the others.  See kvcrush.h.
 *
 * Everything is done in units: tokens (of one position) or pages.  Arrays of units are indexed first by
 * position / unit_tokens, so that slots do not matter, then by the place among the rest, which is the order of age.
 */
#include "policy/kvcrush.h"

#include <math.h>
#include <string.h>

#include "core/compiler.h"
#include "core/rng.h"
#include "hw/cpu.h"
#include "policy/fingerprint.h"
#include "policy/kmeans.h"
#include "policy/scan.h"
#include "policy/select.h"

/* The stage's memory. */
typedef struct crush {
    uint32_t n_group, slots_cap;
    uint64_t *fingerprints; /* of units, [n_words] each: first of all, then of the rest */
    uint64_t *sorted;       /* fingerprints of the rest in the buckets' order */
    uint64_t *anchor;       /* [n_words]; later a bucket's centroid */
    uint32_t *lane_bits;    /* [slots] of each token, for the lane's heads 0..31, then [slots] for the others */
    int32_t *positions;     /* [lane][slots_cap]; -1: no candidate */
    uint32_t *others;       /* [slots] */
    uint32_t *candidates;   /* [lane] how many */
    float *open_ranks;      /* [slots] of candidates that have been given nothing yet; -1: of others */
    float *sums;            /* [units] of ranks */
    uint32_t *counts;       /* [units] tokens that the lane would take with the unit */
    uint32_t *order;        /* [units] */
    uint32_t *spare;        /* [units] the order that is being made */
    uint32_t *lanes;        /* [units] of the first so many lanes each has candidates of it, none of them important */
    uint32_t *rest;         /* [units] */
    uint32_t *distances;    /* [units] */
    uint32_t *nearest;      /* [units] representatives, indexes into rest */
    uint8_t *digits;        /* [units] what a sort looks at */
    uint8_t *taken;         /* [units] */
    pleat__kmeans kmeans;   /* for anchor=kmeans */
} crush;

/* One layer. */
typedef struct job {
    const pleat__evict_layer *layer;
    const pleat__evict_scratch *scratch;
    const uint32_t *middle;
    uint8_t *const *verdicts;
    crush *c;
    pleat__fingerprint_dsp dsp;
    uint32_t unit_tokens, n_units;
    uint32_t token_bits, n_bits, n_words; /* of a token's fingerprint, of a unit's, words of a unit's */
    uint32_t n_rest;
} job;

/* A unit's tokens are no more than the sequence's, so all units have less than twice the sequence's bits; and each
 * fingerprint is filled up to whole words. */
void *pleat__crush_carve(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_group, uint32_t slots_cap,
                         uint32_t max_tokens, pleat__arena *arena) {
    const bool by_page = spec->unit == PLEAT_CRUSH_PAGE;
    const uint64_t n_units = by_page ? pleat__div_up_u32(max_tokens, PLEAT__TILE) : max_tokens;
    const uint64_t token_bits = (uint64_t)n_lanes * n_group, unit_bits = token_bits * (by_page ? max_tokens : 1);
    const uint64_t all_bits = token_bits * max_tokens * (by_page ? 2 : 1), n_words = all_bits / 64 + n_units;
    crush *c = pleat__arena_take(arena, 1, sizeof *c), count;
    crush *to = c ? c : &count;
    to->n_group = n_group;
    to->slots_cap = slots_cap;
    to->fingerprints = pleat__arena_take(arena, n_words, sizeof *to->fingerprints);
    to->sorted = pleat__arena_take(arena, n_words, sizeof *to->sorted);
    to->anchor = pleat__arena_take(arena, unit_bits / 64 + 1, sizeof *to->anchor);
    to->lane_bits = pleat__arena_take(arena, (n_group > 32 ? 2ull : 1ull) * slots_cap, sizeof *to->lane_bits);
    to->positions = pleat__arena_take(arena, (uint64_t)n_lanes * slots_cap, sizeof *to->positions);
    to->others = pleat__arena_take(arena, (uint64_t)slots_cap + 1, sizeof *to->others);
    to->candidates = pleat__arena_take(arena, n_lanes, sizeof *to->candidates);
    to->open_ranks = pleat__arena_take(arena, slots_cap, sizeof *to->open_ranks);
    to->sums = pleat__arena_take(arena, n_units, sizeof *to->sums);
    uint32_t **const arrays[] = {&to->counts, &to->order,     &to->spare,  &to->lanes,
                                 &to->rest,   &to->distances, &to->nearest};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        *arrays[i] = pleat__arena_take(arena, n_units, sizeof(uint32_t));
    to->digits = pleat__arena_take(arena, n_units, 1);
    to->taken = pleat__arena_take(arena, n_units, 1);
    if (spec->anchor == PLEAT_ANCHOR_KMEANS) pleat__kmeans_carve(&to->kmeans, n_units, unit_bits, all_bits, arena);
    return c;
}

static uint32_t unit_of(const job *j, int32_t position) {
    return j->unit_tokens == 1 ? (uint32_t)position : (uint32_t)position / j->unit_tokens;
}

/* ---- sorting ---------------------------------------------------------------------------------------- */

/* Order the n units of c->order by their digits, equal ones as they were. */
static void sort_by_digits(crush *c, uint32_t n) {
    uint32_t starts[256] = {0}, start = 0;
    for (uint32_t i = 0; i < n; i++) starts[c->digits[c->order[i]]]++;
    if (n == 0 || starts[c->digits[c->order[0]]] == n) return;
    for (uint32_t d = 0; d < 256; d++) {
        const uint32_t count = starts[d];
        starts[d] = start;
        start += count;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t unit = c->order[i];
        c->spare[starts[c->digits[unit]]++] = unit;
    }
    uint32_t *const made = c->spare;
    c->spare = c->order;
    c->order = made;
}

/* c->order: units with tokens to take, the highest sum first, the older among equals.  Floats that are not negative
 * have the order of their bits.  Gives how many they are. */
static uint32_t sort_by_sums(const job *j) {
    crush *c = j->c;
    uint32_t n = 0;
    for (uint32_t u = 0; u < j->n_units; u++)
        if (c->counts[u]) c->order[n++] = u;
    for (uint32_t shift = 0; shift < 32; shift += 8) {
        for (uint32_t u = 0; u < j->n_units; u++) c->digits[u] = (uint8_t)(~pleat__f32_bits(c->sums[u]) >> shift);
        sort_by_digits(c, n);
    }
    return n;
}

/* c->order: the rest by distance, then fingerprint as a number (bit 0 the least), then age. */
static void sort_by_fingerprints(const job *j) {
    crush *c = j->c;
    for (uint32_t i = 0; i < j->n_rest; i++) c->order[i] = i;
    for (uint32_t bit = 0; bit < j->n_bits; bit += 8) {
        const uint64_t *words = c->fingerprints + bit / 64;
        for (uint32_t i = 0; i < j->n_rest; i++) c->digits[i] = (uint8_t)(words[(size_t)i * j->n_words] >> bit % 64);
        sort_by_digits(c, j->n_rest);
    }
    for (uint32_t shift = 0; shift < 32 && j->n_bits >> shift; shift += 8) { /* distances are no more than n_bits */
        for (uint32_t i = 0; i < j->n_rest; i++) c->digits[i] = (uint8_t)(c->distances[i] >> shift);
        sort_by_digits(c, j->n_rest);
    }
}

/* ---- one lane --------------------------------------------------------------------------------------- */

static int32_t *positions_of(const job *j, uint32_t lane) { return j->c->positions + (size_t)lane * j->c->slots_cap; }

static uint32_t n_slots_of(const job *j, uint32_t lane) { return j->layer->lanes[lane].high.n_slots; }

/* The lane's candidates: c->positions and c->candidates. */
static void load_positions(const job *j, uint32_t lane) {
    const pleat__kv_run *run = &j->layer->lanes[lane].high;
    pleat__tracked page;
    uint32_t n_candidates = 0;
    for (pleat__page_walk walk = pleat__walk_pages(run); pleat__next_page(&walk, &page);) {
        const float *ranks = j->scratch->ranks[lane] + page.first;
        int32_t *positions = positions_of(j, lane) + page.first;
        for (uint32_t i = 0; i < page.n; i++) {
            const int32_t is_candidate = ranks[i] >= 0;
            positions[i] = page.positions[i] | (is_candidate - 1); /* all ones: -1 */
            n_candidates += (uint32_t)is_candidate;
        }
    }
    j->c->candidates[lane] = n_candidates;
}

/* c->sums and c->counts over the lane's candidates that have been given nothing yet; summed by position. */
static void sum_units(const job *j, uint32_t lane) {
    const float *ranks = j->scratch->ranks[lane];
    const int32_t *positions = positions_of(j, lane);
    float *by_position = j->scratch->by_position;
    crush *c = j->c;
    for (uint32_t p = 0; p < j->layer->n_tokens; p++) by_position[p] = -1;
    for (uint32_t slot = 0, n = n_slots_of(j, lane); slot < n; slot++)
        if (positions[slot] >= 0 && j->verdicts[lane][slot] == PLEAT__VERDICT_DROP)
            by_position[positions[slot]] = ranks[slot];
    for (uint32_t u = 0, p = 0; u < j->n_units; u++) {
        const uint32_t end = pleat__min_u32(p + j->unit_tokens, j->layer->n_tokens);
        c->sums[u] = 0;
        c->counts[u] = 0;
        for (; p < end; p++) {
            const bool is_open = by_position[p] >= 0;
            c->sums[u] += is_open ? by_position[p] : 0;
            c->counts[u] += is_open;
        }
    }
}

/* KEEP the best pages that fit in `room` tokens. */
static void keep_pages(const job *j, uint32_t lane, uint32_t room) {
    crush *c = j->c;
    sum_units(j, lane);
    memset(c->taken, 0, j->n_units);
    const uint32_t n = sort_by_sums(j);
    for (uint32_t i = 0; i < n && room > 0; i++) {
        const uint32_t u = c->order[i];
        if (c->counts[u] > room) continue;
        room -= c->counts[u];
        c->taken[u] = 1;
    }
    const int32_t *positions = positions_of(j, lane);
    uint8_t *verdicts = j->verdicts[lane];
    for (uint32_t slot = 0, n_slots = n_slots_of(j, lane); slot < n_slots; slot++)
        if (positions[slot] >= 0 && c->taken[unit_of(j, positions[slot])] && verdicts[slot] == PLEAT__VERDICT_DROP)
            verdicts[slot] = PLEAT__VERDICT_KEEP;
}

/* The same of tokens. */
static void keep_tokens(const job *j, uint32_t lane, uint32_t room) {
    const pleat__kv_run *run = &j->layer->lanes[lane].high;
    const float *ranks = j->scratch->ranks[lane];
    float *restrict open_ranks = j->c->open_ranks;
    uint8_t *verdicts = j->verdicts[lane];
    for (uint32_t slot = 0; slot < run->n_slots; slot++)
        open_ranks[slot] = verdicts[slot] == PLEAT__VERDICT_DROP ? ranks[slot] : -1;
    pleat__select_top(run, open_ranks, room, j->layer->n_tokens, PLEAT__VERDICT_KEEP, verdicts, j->scratch->floats);
}

static void keep_best(const job *j, uint32_t lane, uint32_t room) {
    if (room == 0) return;
    if (j->layer->spec->unit == PLEAT_CRUSH_PAGE)
        keep_pages(j, lane, room);
    else
        keep_tokens(j, lane, room);
}

/* The same loop for pages of tokens and, without its division, for tokens. */
INLINE void count_slots(const job *j, uint32_t lane, uint32_t unit_tokens) {
    const int32_t *positions = positions_of(j, lane);
    const uint8_t *verdicts = j->verdicts[lane];
    uint32_t *lanes = j->c->lanes;
    for (uint32_t slot = 0, n = n_slots_of(j, lane); slot < n; slot++) {
        const bool is_open = (positions[slot] >= 0) & (verdicts[slot] == PLEAT__VERDICT_DROP);
        const uint32_t u = (uint32_t)(positions[slot] & ~(positions[slot] >> 31)) / unit_tokens; /* of -1: 0 */
        lanes[u] += is_open & (lanes[u] == lane); /* no branch: which tokens are open, nobody can guess */
    }
}

/* Candidates of this lane that were given nothing: theirs are units of the rest if they were in the lanes before. */
static void count_lane(const job *j, uint32_t lane) {
    if (j->unit_tokens == 1)
        count_slots(j, lane, 1);
    else
        count_slots(j, lane, j->unit_tokens);
}

/* ---- fingerprints ------------------------------------------------------------------------------------- */

/* c->others: slots of the lane that hold no candidate, most often few.  Gives how many. */
static uint32_t list_others(const job *j, uint32_t lane) {
    const int32_t *positions = positions_of(j, lane);
    uint32_t *others = j->c->others, n_others = 0;
    for (uint32_t slot = 0, n = n_slots_of(j, lane); slot < n; slot++) {
        others[n_others] = slot;
        n_others += positions[slot] < 0;
    }
    return n_others;
}

/* x[slot] = a candidate's score in the head, -1 for the others. */
static void load_scores(const job *j, uint32_t lane, uint32_t head, uint32_t n_others, float *x) {
    const pleat__kv_run *run = &j->layer->lanes[lane].high;
    for (uint32_t page_idx = 0; page_idx < pleat__tracked_pages(run); page_idx++) {
        const uint32_t first = page_idx * run->layout->tokens;
        const uint32_t n = pleat__min_u32(run->layout->tokens, run->n_slots - first);
        memcpy(x + first, pleat__head_scores(run->layout, pleat__kv_page(run, page_idx), head), n * sizeof *x);
    }
    for (uint32_t i = 0; i < n_others; i++) x[j->c->others[i]] = -1;
}

/* bits[slot] has the bit if x[slot] >= threshold. */
static void add_bit(const float *restrict x, uint32_t n, float threshold, uint32_t bit, uint32_t *restrict bits) {
    for (uint32_t i = 0; i < n; i++) bits[i] |= x[i] >= threshold ? bit : 0;
}

/* Of a slot, for n_group heads of the lane. */
static uint64_t bits_of_slot(const crush *c, uint32_t slot) {
    return c->lane_bits[slot] | (c->n_group > 32 ? (uint64_t)c->lane_bits[c->slots_cap + slot] << 32 : 0);
}

/* words |= the low n <= 64 bits, from bit `at` on. */
static void put_bits(uint64_t *words, uint32_t at, uint64_t bits, uint32_t n) {
    words += at / 64;
    words[0] |= bits << at % 64;
    if (at % 64 + n > 64) words[1] |= bits >> (64 - at % 64);
}

/* Set the lane's bits in its candidates' fingerprints. */
static void add_fingerprints(const job *j, uint32_t lane) {
    const crush *c = j->c;
    const uint32_t n = n_slots_of(j, lane), n_group = c->n_group, n_words = j->n_words;
    const int32_t *positions = positions_of(j, lane);
    const bool is_word = n_words == 1 && j->unit_tokens == 1; /* a token's bits are one word */
    float *x = j->scratch->floats;
    if (c->candidates[lane] == 0) return;
    memset(c->lane_bits, 0, (n_group > 32 ? c->slots_cap + n : n) * sizeof *c->lane_bits);
    const uint32_t k = pleat__max_u32(1, pleat__min_u32(j->middle[lane], c->candidates[lane]));
    const uint32_t n_others = list_others(j, lane);
    for (uint32_t head = 0; head < n_group; head++) {
        load_scores(j, lane, head, n_others, x);
        add_bit(x, n, pleat__kth_largest(x, n, k), 1u << head % 32, c->lane_bits + (size_t)(head / 32) * c->slots_cap);
    }
    for (uint32_t slot = 0; slot < n && is_word; slot++)
        if (positions[slot] >= 0) c->fingerprints[positions[slot]] |= bits_of_slot(c, slot) << lane * n_group;
    for (uint32_t slot = 0; slot < n && !is_word; slot++) {
        if (positions[slot] < 0) continue;
        const uint32_t u = unit_of(j, positions[slot]), token = (uint32_t)positions[slot] - u * j->unit_tokens;
        put_bits(c->fingerprints + (size_t)u * n_words, token * j->token_bits + lane * n_group, bits_of_slot(c, slot),
                 n_group);
    }
}

/* The rest with their fingerprints: c->rest, c->fingerprints, n_rest. */
static void find_rest(job *j) {
    crush *c = j->c;
    const uint32_t n_words = j->n_words;
    memset(c->fingerprints, 0, (size_t)j->n_units * n_words * sizeof *c->fingerprints);
    for (uint32_t lane = 0; lane < j->layer->n_lanes; lane++) add_fingerprints(j, lane);
    for (uint32_t u = 0; u < j->n_units; u++) {
        if (c->lanes[u] < j->layer->n_lanes) continue;
        for (uint32_t w = 0; w < n_words; w++)
            c->fingerprints[(size_t)j->n_rest * n_words + w] = c->fingerprints[(size_t)u * n_words + w];
        c->rest[j->n_rest++] = u;
    }
}

/* ---- representatives ---------------------------------------------------------------------------------- */

static void make_anchor(const job *j) {
    uint64_t *anchor = j->c->anchor;
    pleat__rng rng = {.state = j->layer->layer};
    if (j->layer->spec->anchor == PLEAT_ANCHOR_MEAN) {
        j->dsp.majority(j->c->fingerprints, j->n_rest, j->n_words, anchor);
        return;
    }
    for (uint32_t w = 0; w < j->n_words; w++)
        anchor[w] = j->layer->spec->anchor == PLEAT_ANCHOR_RANDOM ? pleat__rng_u64(&rng) : 0xAAAAAAAAAAAAAAAAu;
    if (j->n_bits % 64) anchor[j->n_words - 1] &= ((uint64_t)1 << j->n_bits % 64) - 1;
}

/* Of the rest from..end-1 in the buckets' order, the nearest to their centroid. */
static uint32_t nearest_of(const job *j, uint32_t from, uint32_t end) {
    crush *c = j->c;
    const uint64_t *fingerprints = c->sorted + (size_t)from * j->n_words;
    j->dsp.majority(fingerprints, end - from, j->n_words, c->anchor);
    j->dsp.distances(fingerprints, end - from, j->n_words, c->anchor, c->distances);
    uint32_t best = 0;
    for (uint32_t i = 1; i < end - from; i++)
        if (c->distances[i] < c->distances[best] ||
            (c->distances[i] == c->distances[best] && c->order[from + i] < c->order[from + best]))
            best = i;
    return c->order[from + best];
}

/* c->nearest: k of the rest. */
static void find_representatives(const job *j, uint32_t k) {
    crush *c = j->c;
    if (j->layer->spec->anchor == PLEAT_ANCHOR_KMEANS) {
        pleat__kmeans_run(&c->kmeans, c->fingerprints, j->n_rest, j->n_bits, k, c->nearest);
        return;
    }
    make_anchor(j);
    j->dsp.distances(c->fingerprints, j->n_rest, j->n_words, c->anchor, c->distances);
    sort_by_fingerprints(j);
    for (uint32_t i = 0; i < j->n_rest; i++)
        for (uint32_t w = 0; w < j->n_words; w++)
            c->sorted[(size_t)i * j->n_words + w] = c->fingerprints[(size_t)c->order[i] * j->n_words + w];
    for (uint32_t b = 0; b < k; b++)
        c->nearest[b] =
            nearest_of(j, (uint32_t)((uint64_t)b * j->n_rest / k), (uint32_t)((uint64_t)(b + 1) * j->n_rest / k));
}

/* STAND for tokens of units that are taken; returns how many candidates stay so far. */
INLINE uint32_t stand_and_count(const job *j, uint32_t lane, uint32_t unit_tokens) {
    const int32_t *positions = positions_of(j, lane);
    const uint8_t *taken = j->c->taken;
    uint8_t *verdicts = j->verdicts[lane];
    uint32_t n_kept = 0;
    for (uint32_t slot = 0, n = n_slots_of(j, lane); slot < n; slot++) {
        if (positions[slot] < 0) continue;
        if (taken[(uint32_t)positions[slot] / unit_tokens]) verdicts[slot] = PLEAT__VERDICT_STAND;
        n_kept += verdicts[slot] != PLEAT__VERDICT_DROP;
    }
    return n_kept;
}

/* STAND for `cap` of the k representatives, evenly spread; then KEEP what else has room. */
static void finish_lane(const job *j, uint32_t lane, uint32_t k, uint32_t cap) {
    crush *c = j->c;
    cap = pleat__min_u32(cap, k);
    memset(c->taken, 0, j->n_units);
    for (uint64_t i = 0; i < k; i++) c->taken[c->rest[c->nearest[i]]] = (i + 1) * cap / k > i * cap / k;
    const uint32_t n_kept =
        j->unit_tokens == 1 ? stand_and_count(j, lane, 1) : stand_and_count(j, lane, j->unit_tokens);
    if (n_kept < pleat__min_u32(j->middle[lane], c->candidates[lane])) keep_best(j, lane, j->middle[lane] - n_kept);
}

/* ---- the layer ---------------------------------------------------------------------------------------- */

static job job_of(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch, const uint32_t *middle,
                  uint8_t *const *verdicts) {
    job j = {.layer = layer, .scratch = scratch, .middle = middle, .verdicts = verdicts, .c = scratch->crush};
    const bool by_page = layer->spec->unit == PLEAT_CRUSH_PAGE;
    j.unit_tokens = by_page ? pleat__min_u32(layer->page_tokens, layer->n_tokens) : 1;
    j.n_units = pleat__div_up_u32(layer->n_tokens, j.unit_tokens);
    j.token_bits = layer->n_lanes * j.c->n_group;
    j.n_bits = j.token_bits * j.unit_tokens;
    j.n_words = pleat__div_up_u32(j.n_bits, 64);
    pleat__fingerprint_dsp_init(&j.dsp, pleat_cpu_flags());
    return j;
}

/* Units that the lanes' representatives may be, less those of before.  A share stands for a decimal that its float may
 * be a little below. */
static uint32_t representatives_wanted(const job *j) {
    double sum = 0;
    uint32_t n_before = 0;
    bool drops = false;
    for (uint32_t lane = 0; lane < j->layer->n_lanes; lane++) {
        const uint8_t *verdicts = j->verdicts[lane];
        uint32_t n_standing = 0;
        for (uint32_t slot = 0, n = n_slots_of(j, lane); slot < n; slot++)
            n_standing += verdicts[slot] == PLEAT__VERDICT_STAND;
        n_before = pleat__max_u32(n_before, n_standing);
        sum += j->middle[lane];
        drops = drops || j->c->candidates[lane] > j->middle[lane];
    }
    const double share = (double)j->layer->spec->share * (sum / j->layer->n_lanes + n_before);
    const uint32_t n = (uint32_t)floor(share + share * 0x1p-24);
    return drops && n > n_before ? (n - n_before) / j->unit_tokens : 0;
}

void pleat__crush_layer(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch, const uint32_t *middle,
                        uint8_t *const *verdicts) {
    if (layer->n_tokens == 0) return;
    job j = job_of(layer, scratch, middle, verdicts);
    for (uint32_t lane = 0; lane < layer->n_lanes; lane++) load_positions(&j, lane);
    const uint32_t wanted = representatives_wanted(&j);
    memset(j.c->lanes, 0, j.n_units * sizeof *j.c->lanes);
    for (uint32_t lane = 0; lane < layer->n_lanes; lane++) {
        const uint32_t n_stand = pleat__min_u32(wanted, middle[lane] / j.unit_tokens);
        keep_best(&j, lane, middle[lane] - n_stand * j.unit_tokens);
        count_lane(&j, lane);
    }
    if (wanted == 0) return;
    find_rest(&j);
    const uint32_t k = pleat__min_u32(wanted, j.n_rest);
    if (k > 0) find_representatives(&j, k);
    for (uint32_t lane = 0; lane < layer->n_lanes; lane++) finish_lane(&j, lane, k, middle[lane] / j.unit_tokens);
}
