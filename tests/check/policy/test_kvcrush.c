/* SPDX-License-Identifier: MIT
 *
 * test_kvcrush.c: representatives of a layer's tokens against a naive model that knows positions only.
 */
#include <stdlib.h>

#include "fingerprint_rig.h"
#include "policy/kvcrush.h"
#include "policy/select.h"

enum { LANES = 10, GROUP = 10, TOKENS = NAIVE_PRINTS, SLOTS = 400, BITS = LANES * GROUP * TOKENS };

/* ---- the model of a layer: all by position -------------------------------------------------------------- */

typedef struct model {
    pleat_spec spec;
    uint32_t layer, n_lanes, n_group, n_tokens, page_tokens, percent;
    uint32_t middle[LANES];
    float ranks[LANES][TOKENS]; /* -1: no candidate */
    float scores[LANES][GROUP][TOKENS];
    uint8_t before[LANES][TOKENS]; /* verdicts */
    bool lives[LANES][TOKENS];
} model;

static uint32_t unit_tokens(const model *m) {
    return m->spec.unit == PLEAT_CRUSH_TOKEN ? 1 : m->page_tokens < m->n_tokens ? m->page_tokens : m->n_tokens;
}

static uint32_t n_units_of(const model *m) { return (m->n_tokens + unit_tokens(m) - 1) / unit_tokens(m); }

static uint32_t count_candidates(const model *m, uint32_t lane) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < m->n_tokens; p++) n += m->ranks[lane][p] >= 0;
    return n;
}

/* Units of representatives that the share gives. */
static uint32_t model_wanted(const model *m) {
    uint64_t sum = 0, before = 0;
    bool drops = false;
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        uint64_t standing = 0;
        for (uint32_t p = 0; p < m->n_tokens; p++) standing += m->before[lane][p] == PLEAT__VERDICT_STAND;
        if (standing > before) before = standing;
        sum += m->middle[lane];
        if (count_candidates(m, lane) > m->middle[lane]) drops = true;
    }
    const uint64_t n = m->percent * (sum + before * m->n_lanes) / (100 * m->n_lanes);
    return drops && n > before ? (uint32_t)(n - before) / unit_tokens(m) : 0;
}

/* Candidates of a unit that have no verdict yet. */
static uint32_t open_tokens(const model *m, uint32_t lane, uint32_t u, const uint8_t *verdicts, double *sum) {
    uint32_t n = 0;
    *sum = 0;
    for (uint32_t p = 0; p < m->n_tokens; p++) {
        if (p / unit_tokens(m) != u || m->ranks[lane][p] < 0 || verdicts[p] != PLEAT__VERDICT_DROP) continue;
        n++;
        *sum += m->ranks[lane][p];
    }
    return n;
}

/* Of the units in falling order those that fit. */
static void model_keep(const model *m, uint32_t lane, uint32_t room, uint8_t *verdicts) {
    double sums[TOKENS];
    uint32_t counts[TOKENS];
    for (uint32_t u = 0; u < n_units_of(m); u++) counts[u] = open_tokens(m, lane, u, verdicts, &sums[u]);
    for (;;) {
        uint32_t best = UINT32_MAX;
        for (uint32_t u = 0; u < n_units_of(m); u++)
            if (counts[u] && (best == UINT32_MAX || sums[u] > sums[best])) best = u;
        if (best == UINT32_MAX) return;
        for (uint32_t p = 0; p < m->n_tokens && counts[best] <= room; p++)
            if (p / unit_tokens(m) == best && m->ranks[lane][p] >= 0 && verdicts[p] == PLEAT__VERDICT_DROP)
                verdicts[p] = PLEAT__VERDICT_KEEP;
        if (counts[best] <= room) room -= counts[best];
        counts[best] = 0;
    }
}

static int falling(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static uint8_t print_bits[TOKENS][BITS]; /* of units, one byte a bit */

static void model_prints(const model *m) {
    const uint32_t tokens = unit_tokens(m), token_bits = m->n_lanes * m->n_group;
    memset(print_bits, 0, sizeof print_bits);
    for (uint32_t lane = 0; lane < m->n_lanes; lane++)
        for (uint32_t g = 0; g < m->n_group; g++) {
            float sorted[TOKENS];
            uint32_t n = 0;
            for (uint32_t p = 0; p < m->n_tokens; p++)
                if (m->ranks[lane][p] >= 0) sorted[n++] = m->scores[lane][g][p];
            if (n == 0) continue;
            qsort(sorted, n, sizeof *sorted, falling);
            const uint32_t k = m->middle[lane] == 0 ? 1 : m->middle[lane] > n ? n : m->middle[lane];
            for (uint32_t p = 0; p < m->n_tokens; p++)
                print_bits[p / tokens][p % tokens * token_bits + lane * m->n_group + g] =
                    m->ranks[lane][p] >= 0 && m->scores[lane][g][p] >= sorted[k - 1];
        }
}

/* The bit that at least half of n units have. */
static uint8_t majority_bit(const uint32_t *units, uint32_t n, uint32_t b) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += print_bits[units[i]][b];
    return 2 * count >= n;
}

static uint32_t bits_of_unit;            /* of the model at hand */
static uint32_t anchor_distance[TOKENS]; /* of units */

static uint32_t distance_of(uint32_t u, const uint8_t *to) {
    uint32_t distance = 0;
    for (uint32_t b = 0; b < bits_of_unit; b++) distance += print_bits[u][b] != to[b];
    return distance;
}

static int by_distance_and_print(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (anchor_distance[x] != anchor_distance[y]) return anchor_distance[x] < anchor_distance[y] ? -1 : 1;
    for (uint32_t bit = bits_of_unit; bit-- > 0;)
        if (print_bits[x][bit] != print_bits[y][bit]) return print_bits[x][bit] ? 1 : -1;
    return x < y ? -1 : 1;
}

static uint64_t random_bits(uint32_t layer, uint32_t word) { /* SplitMix64 from the layer's number */
    uint64_t z = layer + (word + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void model_by_buckets(const model *m, uint32_t *rest, uint32_t n_rest, uint32_t k, uint32_t *chosen) {
    static uint8_t to[BITS];
    for (uint32_t b = 0; b < bits_of_unit; b++)
        to[b] = m->spec.anchor == PLEAT_ANCHOR_MEAN        ? majority_bit(rest, n_rest, b)
                : m->spec.anchor == PLEAT_ANCHOR_ALTERNATE ? b % 2
                                                           : random_bits(m->layer, b / 64) >> b % 64 & 1;
    for (uint32_t i = 0; i < n_rest; i++) anchor_distance[rest[i]] = distance_of(rest[i], to);
    qsort(rest, n_rest, sizeof *rest, by_distance_and_print);
    for (uint32_t i = 0, from = 0; i < k; i++) {
        const uint32_t end = (i + 1) * n_rest / k;
        CHECK(end - from == n_rest / k || end - from == n_rest / k + 1);
        for (uint32_t b = 0; b < bits_of_unit; b++) to[b] = majority_bit(rest + from, end - from, b);
        chosen[i] = UINT32_MAX;
        uint32_t least = UINT32_MAX;
        for (; from < end; from++) {
            const uint32_t d = distance_of(rest[from], to);
            if (d < least || (d == least && rest[from] < chosen[i])) least = d, chosen[i] = rest[from];
        }
    }
}

static void model_by_kmeans(const uint32_t *rest, uint32_t n_rest, uint32_t k, uint32_t *chosen) {
    static uint64_t prints[TOKENS * (NAIVE_BITS / 64 + 1)];
    const uint32_t n_words = (bits_of_unit + 63) / 64;
    memset(prints, 0, sizeof prints);
    for (uint32_t i = 0; i < n_rest; i++)
        for (uint32_t b = 0; b < bits_of_unit; b++)
            prints[i * n_words + b / 64] |= (uint64_t)print_bits[rest[i]][b] << b % 64;
    naive_run(&naive, prints, n_rest, bits_of_unit, k, chosen);
    for (uint32_t i = 0; i < k; i++) chosen[i] = rest[chosen[i]];
}

/* The verdicts. */
static void model_run(const model *m, uint8_t verdicts[LANES][TOKENS]) {
    uint32_t rest[TOKENS], chosen[TOKENS], n_rest = 0;
    const uint32_t tokens = unit_tokens(m), wanted = model_wanted(m);
    memcpy(verdicts, m->before, sizeof m->before);
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        const uint32_t n = wanted < m->middle[lane] / tokens ? wanted : m->middle[lane] / tokens;
        model_keep(m, lane, m->middle[lane] - n * tokens, verdicts[lane]);
    }
    for (uint32_t u = 0; u < n_units_of(m); u++) {
        bool open = true;
        double sum;
        for (uint32_t lane = 0; lane < m->n_lanes; lane++) open &= open_tokens(m, lane, u, verdicts[lane], &sum) > 0;
        if (open) rest[n_rest++] = u;
    }
    const uint32_t k = wanted < n_rest ? wanted : n_rest;
    bits_of_unit = m->n_lanes * m->n_group * tokens;
    model_prints(m);
    if (k > 0 && m->spec.anchor == PLEAT_ANCHOR_KMEANS)
        model_by_kmeans(rest, n_rest, k, chosen);
    else if (k > 0)
        model_by_buckets(m, rest, n_rest, k, chosen);
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        const uint32_t cap = m->middle[lane] / tokens < k ? m->middle[lane] / tokens : k;
        uint32_t n_kept = 0;
        for (uint32_t i = 0, n_given = 0; i < k; i++) { /* the i-th if that is due for an even spread */
            if ((i + 1) * cap / k == n_given) continue;
            n_given++;
            for (uint32_t p = 0; p < m->n_tokens; p++)
                if (p / tokens == chosen[i] && m->ranks[lane][p] >= 0) verdicts[lane][p] = PLEAT__VERDICT_STAND;
        }
        for (uint32_t p = 0; p < m->n_tokens; p++)
            n_kept += m->ranks[lane][p] >= 0 && verdicts[lane][p] != PLEAT__VERDICT_DROP;
        if (wanted) model_keep(m, lane, m->middle[lane] - n_kept, verdicts[lane]);
    }
}

/* ---- random layers ---------------------------------------------------------------------------------------- */

/* Whole eighths: sums of them are exact, and many are equal. */
static float eighths(uint32_t n) { return (float)check_below(n) / 8; }

static void draw_lane(model *m, uint32_t lane, uint32_t window, uint32_t n_values) {
    const bool is_sparse = check_below(3) == 0;
    for (uint32_t p = 0; p < m->n_tokens; p++) {
        m->lives[lane][p] = !is_sparse || check_below(4);
        const bool spared = p < m->spec.sinks || p + window >= m->n_tokens;
        m->before[lane][p] = (uint8_t)(m->lives[lane][p] && spared ? PLEAT__VERDICT_KEEP : PLEAT__VERDICT_DROP);
        m->ranks[lane][p] = m->lives[lane][p] && !spared ? eighths(n_values) : -1;
        for (uint32_t g = 0; g < m->n_group; g++) m->scores[lane][g][p] = eighths(n_values);
    }
}

/* Representatives of before: the same positions in all lanes that have them. */
static void draw_standing(model *m, uint32_t n) {
    while (n-- > 0) {
        const uint32_t p = (uint32_t)check_below(m->n_tokens);
        for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
            if (m->ranks[lane][p] < 0) continue;
            m->ranks[lane][p] = -1;
            m->before[lane][p] = PLEAT__VERDICT_STAND;
            for (uint32_t g = 0; g < m->n_group; g++) m->scores[lane][g][p] = INFINITY;
        }
    }
}

static void draw_model(model *m) {
    static const uint32_t percents[] = {0, 10, 25, 30, 50, 70, 90, 100};
    memset(m, 0, sizeof *m);
    m->spec.anchor = (pleat_anchor)check_below(4);
    m->spec.unit = (pleat_crush_unit)check_below(2);
    const bool is_heavy = m->spec.anchor == PLEAT_ANCHOR_KMEANS && m->spec.unit == PLEAT_CRUSH_PAGE;
    m->n_lanes = (uint32_t)check_between(1, is_heavy ? 5 : LANES);
    m->n_group = (uint32_t)check_between(m->n_lanes == 1 ? 2 : 1, is_heavy ? 5 : GROUP);
    m->layer = (uint32_t)check_below(80);
    m->page_tokens = (uint32_t)check_between(1, is_heavy ? 4 : 5) * 16;
    m->n_tokens = (uint32_t)(check_below(4) ? check_between(1, 100) : check_between(1, TOKENS));
    m->percent = percents[check_below(CHECK_COUNT(percents))];
    m->spec.share = (float)(m->percent / 100.0);
    m->spec.crush = 1;
    m->spec.sinks = (uint32_t)check_below(6);
    const uint32_t window = (uint32_t)check_below(20), n_values = check_below(3) ? 1000 : 5;
    const uint32_t equal = (uint32_t)check_below(m->n_tokens + 1), kind = (uint32_t)check_below(4);
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        draw_lane(m, lane, window, n_values);
        m->middle[lane] = kind ? equal : (uint32_t)check_below(m->n_tokens + 1);
    }
    if (check_below(3) == 0) draw_standing(m, (uint32_t)check_below(m->n_tokens / 4 + 1));
}

/* A layer in memory. */
typedef struct rig {
    pleat__page_layout layout;
    check_buf pages, memory;
    pleat__page_id ids[LANES][SLOTS / 16 + 1];
    pleat__kv_view lanes[LANES];
    uint8_t verdicts[LANES][SLOTS];
    int32_t at[LANES][SLOTS]; /* position of each slot; -1: dead */
    float *ranks[LANES];
    uint8_t *verdict_rows[LANES];
    pleat__evict_scratch scratch;
} rig;

static void carve(const model *m, uint32_t slots_cap, rig *r, pleat__arena *arena) {
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) r->ranks[lane] = pleat__arena_take(arena, slots_cap, 4);
    r->scratch.ranks = r->ranks;
    r->scratch.by_position = pleat__arena_take(arena, m->n_tokens + 8, 4);
    r->scratch.floats = pleat__arena_take(arena, slots_cap, 4);
    r->scratch.crush = pleat__crush_carve(&m->spec, m->n_lanes, m->n_group, slots_cap, m->n_tokens, arena);
}

static void shuffle(int32_t *x, uint32_t n) {
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = (uint32_t)check_below(i);
        const int32_t t = x[i - 1];
        x[i - 1] = x[j];
        x[j] = t;
    }
}

/* Tokens of a lane in slots, in any order, among dead ones. */
static uint32_t place_lane(const model *m, uint32_t lane, bool is_shuffled, rig *r) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < m->n_tokens; p++)
        if (m->lives[lane][p]) r->at[lane][n++] = (int32_t)p;
    for (uint32_t dead = is_shuffled ? (uint32_t)check_below(60) : 0; dead > 0; dead--) r->at[lane][n++] = -1;
    if (is_shuffled) shuffle(r->at[lane], n);
    return n;
}

static void store_lane(const model *m, uint32_t lane, rig *r) {
    const pleat__kv_run *run = &r->lanes[lane].high;
    for (uint32_t slot = 0; slot < run->n_slots; slot++) {
        uint8_t *page = pleat__kv_page(run, slot / r->layout.tokens);
        const uint32_t i = slot % r->layout.tokens;
        const int32_t p = r->at[lane][slot];
        pleat__positions(&r->layout, page)[i] = p;
        r->ranks[lane][slot] = p < 0 ? -1 : m->ranks[lane][p];
        r->verdicts[lane][slot] = p < 0 ? (uint8_t)PLEAT__VERDICT_DROP : m->before[lane][p];
        for (uint32_t g = 0; g < m->n_group; g++)
            pleat__head_scores(&r->layout, page, g)[i] = p < 0 ? 1e9f : m->scores[lane][g][p];
    }
}

/* Pages of all lanes stand mixed up in a pool that ends where reading does. */
static void rig_make(const model *m, bool is_shuffled, rig *r) {
    const uint32_t t = m->page_tokens;
    r->layout = (pleat__page_layout){.tokens = t, .tracked = true, .n_scores = m->n_group, .pos_off = 64};
    r->layout.score_off = 64 + (t * 4 + 63) / 64 * 64;
    const uint32_t page_bytes = r->layout.score_off + (m->n_group * t * 4 + 63) / 64 * 64;
    uint32_t n_pages = 0, slots_cap = 1;
    int32_t ids[LANES * (SLOTS / 16 + 1)];
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        const uint32_t n = place_lane(m, lane, is_shuffled, r);
        r->lanes[lane] =
            (pleat__kv_view){.high = {.layout = &r->layout, .page_bytes = page_bytes, .step = 1, .n_slots = n}};
        n_pages += (n + t - 1) / t;
        if (n > slots_cap) slots_cap = n;
    }
    for (uint32_t i = 0; i < n_pages; i++) ids[i] = (int32_t)i;
    shuffle(ids, n_pages);
    pleat__arena count = {0};
    carve(m, slots_cap, r, &count);
    r->pages = check_buf_new((size_t)n_pages * page_bytes, 64);
    r->memory = check_buf_new(count.used_bytes, 64);
    pleat__arena arena = {.base = r->memory.p, .cap_bytes = count.used_bytes};
    carve(m, slots_cap, r, &arena);
    CHECK(!arena.overflow);
    for (uint32_t lane = 0, next = 0; lane < m->n_lanes; lane++) {
        pleat__kv_run *run = &r->lanes[lane].high;
        for (uint32_t i = 0; i * t < run->n_slots; i++) r->ids[lane][i].v = (uint32_t)ids[next++];
        run->base = r->pages.p;
        run->ids = r->ids[lane];
        r->verdict_rows[lane] = r->verdicts[lane];
        store_lane(m, lane, r);
    }
}

static void rig_run(const model *m, rig *r) {
    const pleat__evict_layer layer = {.spec = &m->spec,
                                      .layer = m->layer,
                                      .n_layers = 80,
                                      .n_lanes = m->n_lanes,
                                      .n_tokens = m->n_tokens,
                                      .page_tokens = m->page_tokens,
                                      .lanes = r->lanes};
    pleat__crush_layer(&layer, &r->scratch, m->middle, r->verdict_rows);
    CHECK(check_buf_is_intact(&r->memory) && check_buf_is_intact(&r->pages));
}

static void rig_free(rig *r) {
    check_buf_free(&r->memory);
    check_buf_free(&r->pages);
}

/* What holds of any layer, whatever the model says. */
static void check_budget(const model *m, const rig *r, uint32_t lane) {
    uint32_t n_kept = 0;
    uint8_t took[TOKENS] = {0};
    for (uint32_t slot = 0; slot < r->lanes[lane].high.n_slots; slot++) {
        const int32_t p = r->at[lane][slot];
        if (p < 0) CHECK_EQ_U64(r->verdicts[lane][slot], PLEAT__VERDICT_DROP);
        if (p < 0 || m->ranks[lane][p] < 0) continue;
        took[p] = r->verdicts[lane][slot] != PLEAT__VERDICT_DROP;
        n_kept += took[p];
    }
    const uint32_t n = count_candidates(m, lane), most = n < m->middle[lane] ? n : m->middle[lane];
    CHECK(n_kept <= most);
    if (m->spec.unit == PLEAT_CRUSH_TOKEN) CHECK_EQ_U64(n_kept, most);
    for (uint32_t u = 0; u < n_units_of(m); u++) { /* whole units, and none is left that would fit */
        uint32_t n_open = 0, n_took = 0;
        for (uint32_t p = u * unit_tokens(m); p < m->n_tokens && p / unit_tokens(m) == u; p++) {
            n_open += m->ranks[lane][p] >= 0;
            n_took += took[p];
        }
        CHECK(n_took == 0 || n_took == n_open);
        CHECK(n_took > 0 || n_open == 0 || n_kept + n_open > m->middle[lane]);
    }
}

static void check_case(const model *m, uint8_t want[LANES][TOKENS], bool is_shuffled) {
    static rig r;
    rig_make(m, is_shuffled, &r);
    rig_run(m, &r);
    for (uint32_t lane = 0; lane < m->n_lanes; lane++) {
        for (uint32_t slot = 0; slot < r.lanes[lane].high.n_slots; slot++)
            if (r.at[lane][slot] >= 0) CHECK_EQ_U64(r.verdicts[lane][slot], want[lane][r.at[lane][slot]]);
        check_budget(m, &r, lane);
    }
    rig_free(&r);
}

static model drawn;
static uint8_t wanted_verdicts[LANES][TOKENS];

/* Every layer in order, and shuffled with another variant. */
static void test_layers(void) {
    const uint32_t flags = pleat_cpu_flags();
    for (uint64_t round = check_rounds(800, 60); round-- > 0 && !check_failures();) {
        draw_model(&drawn);
        model_run(&drawn, wanted_verdicts);
        check_context("N %u, %u lanes of %u, share %u, anchor %d, unit %d, page %u, middle %u, layer %u",
                      drawn.n_tokens, drawn.n_lanes, drawn.n_group, drawn.percent, (int)drawn.spec.anchor,
                      (int)drawn.spec.unit, drawn.page_tokens, drawn.middle[0], drawn.layer);
        check_case(&drawn, wanted_verdicts, false);
        pleat_cpu_mask(variants[check_below(n_variants)]);
        check_case(&drawn, wanted_verdicts, true);
        pleat_cpu_mask(flags);
    }
}

/* Without a share the stage is the plain selection. */
static void test_no_share(void) {
    for (uint64_t round = check_rounds(200, 30); round-- > 0;) {
        static rig r;
        draw_model(&drawn);
        drawn.percent = 0;
        drawn.spec.share = 0;
        drawn.spec.unit = PLEAT_CRUSH_TOKEN;
        rig_make(&drawn, true, &r);
        rig_run(&drawn, &r);
        for (uint32_t lane = 0; lane < drawn.n_lanes; lane++) {
            const uint32_t n = r.lanes[lane].high.n_slots;
            uint8_t want[SLOTS];
            float scratch[SLOTS];
            for (uint32_t i = 0; i < n; i++)
                want[i] = r.at[lane][i] < 0 ? (uint8_t)PLEAT__VERDICT_DROP : drawn.before[lane][r.at[lane][i]];
            pleat__select_top(&r.lanes[lane].high, r.ranks[lane], drawn.middle[lane], drawn.n_tokens,
                              PLEAT__VERDICT_KEEP, want, scratch);
            CHECK_EQ_MEM(r.verdicts[lane], want, n);
        }
        rig_free(&r);
    }
}

/* A layer of one lane and two heads that can be followed by hand: budget 4, two of them representatives.
 *
 *     position   0    1    2    3    4    5    6    7
 *     rank       1    8    7    2    6    5    4    3         important: 1 and 2
 *     head 0     0    9    0    0    5    5    0    5         threshold 5: bit 0 of 1, 4, 5, 7
 *     head 1     0    0    9    3    4    0    5    0         threshold 3: bit 1 of 2, 3, 4, 6
 *     rest       0: 00   3: 10   4: 11   5: 01   6: 10   7: 01     as numbers 0 2 3 1 2 1
 *     mean       bit 0 of 4, 5, 7; bit 1 of 3, 4, 6: a tie each, anchor 11
 *     order      4 (distance 0)   5 7 3 6 (distance 1; print 1, 1, 2, 2)   0 (distance 2)
 *     buckets    4 5 7: centroid 01, nearest 5       3 6 0: centroid 10, nearest 3
 */
static void test_by_hand(void) {
    static const float ranks[] = {1, 8, 7, 2, 6, 5, 4, 3};
    static const float heads[2][8] = {{0, 9, 0, 0, 5, 5, 0, 5}, {0, 0, 9, 3, 4, 0, 5, 0}};
    memset(&drawn, 0, sizeof drawn);
    drawn.n_lanes = 1;
    drawn.n_group = 2;
    drawn.n_tokens = 8;
    drawn.page_tokens = 16;
    drawn.middle[0] = 4;
    drawn.percent = 50;
    drawn.spec.crush = 1;
    drawn.spec.share = 0.5f;
    memcpy(drawn.ranks[0], ranks, sizeof ranks);
    for (uint32_t g = 0; g < 2; g++) memcpy(drawn.scores[0][g], heads[g], sizeof heads[g]);
    for (uint32_t p = 0; p < 8; p++) drawn.lives[0][p] = true;
    memset(wanted_verdicts, PLEAT__VERDICT_DROP, sizeof wanted_verdicts);
    wanted_verdicts[0][1] = wanted_verdicts[0][2] = PLEAT__VERDICT_KEEP;
    wanted_verdicts[0][5] = wanted_verdicts[0][3] = PLEAT__VERDICT_STAND;
    check_case(&drawn, wanted_verdicts, true);
    uint8_t modelled[LANES][TOKENS];
    model_run(&drawn, modelled);
    CHECK_EQ_MEM(modelled[0], wanted_verdicts[0], 8);
}

static const check_test tests[] = {{"by hand", test_by_hand}, {"layers", test_layers}, {"no share", test_no_share}};

int main(int argc, char **argv) {
    find_variants();
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
