/* SPDX-License-Identifier: MIT
 *
 * test_reclaim.c: plans of reclaim/ are carried out on a small store of pages and compared with a naive oracle.
 *
 * Whatever no plan may look at (free pages, fresh pages, slots behind a run's last) holds junk that reads like a living
 * token, so that a plan which looks at it is found out.  Pages carry references; a lane's run stands behind sealed
 * pages that all lanes share.
 *
 *     plans   random lanes, one plan each: every slot afterwards is what the oracle, which works on a plain array, says
 *     lives   a million operations: four lanes, one for each strategy, grow and shrink together; the tokens that live
 *             are always those of a plain set, and what is held is what the strategy promises
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "reclaim/reclaim.h"

enum {
    N_PAGES = 2048,
    PAGE_BYTES = 448,                          /* 48 tokens' values and positions, and 64 bytes in front */
    VALUES_OFF = 64,                           /* of a page: values, [tokens], then positions */
    MAX_TOKENS = 400,                          /* positions of a lane: 0..MAX_TOKENS-1 */
    MAX_SEALED = 3,                            /* pages */
    ROW_LEN = MAX_SEALED + 2 * MAX_TOKENS + 1, /* cells; pages may be of one token */
    MAX_STEP = 3,                              /* cells from a page to the next */
    JUNK = 0x5D5D5D5D,                         /* a position that no token has */
    SEALED_BYTE = 0xA5,
    N_HOW = 4,
};
static const pleat_reclaim hows[N_HOW] = {PLEAT_RECLAIM_NONE, PLEAT_RECLAIM_BLOCK, PLEAT_RECLAIM_COPY,
                                          PLEAT_RECLAIM_REUSE};
static const uint32_t page_tokens[] = {1, 2, 3, 5, 16, 48};

typedef struct store {
    pleat__page_layout layout;
    uint8_t *base; /* [N_PAGES * PAGE_BYTES] */
    uint32_t refs[N_PAGES];
    uint32_t owner[N_PAGES]; /* index of the lane that took it last */
    uint32_t free_ids[N_PAGES];
    uint32_t n_free;
    uint8_t *before; /* [n_watched * PAGE_BYTES] or NULL: planning may not change the first pages */
    uint32_t n_watched;
    pleat__reclaim_plan plan;
    pleat__reclaim_move moves[MAX_TOKENS];
    uint32_t pages[ROW_LEN];
} store;

typedef struct lane {
    store *s;
    pleat_reclaim how;
    uint32_t idx; /* of the store's lanes */
    pleat__page_id cells[MAX_STEP * ROW_LEN];
    int32_t step;
    uint32_t n_sealed, n_pages; /* n_pages: of the run */
    uint32_t n_slots, n_dead, hole;
} lane;

/* n_pages: of N_PAGES, that can be taken. */
static store *store_new(uint32_t n_pages) {
    store *s = calloc(1, sizeof *s);
    s->base = aligned_alloc(PLEAT__ALIGN, (size_t)N_PAGES * PAGE_BYTES);
    memset(s->base, JUNK & 0xFF, (size_t)N_PAGES * PAGE_BYTES);
    for (uint32_t i = 0; i < n_pages; i++) s->free_ids[i] = i;
    s->n_free = n_pages;
    s->plan.moves = s->moves;
    s->plan.pages = s->pages;
    return s;
}

static void store_free(store *s) {
    free(s->before);
    free(s->base);
    free(s);
}

static void store_set_tokens(store *s, uint32_t tokens) {
    s->layout = (pleat__page_layout){.tokens = tokens,
                                     .tracked = true,
                                     .k_off = VALUES_OFF,
                                     .pos_off = VALUES_OFF + tokens * (uint32_t)sizeof(uint32_t),
                                     .used_bytes = VALUES_OFF + 2 * tokens * (uint32_t)sizeof(uint32_t)};
}

static uint8_t *page_of(const store *s, uint32_t id) { return s->base + (size_t)id * PAGE_BYTES; }

static uint32_t take(store *s, uint32_t owner) {
    const uint32_t i = (uint32_t)check_below(s->n_free), id = s->free_ids[i];
    s->free_ids[i] = s->free_ids[--s->n_free];
    s->refs[id] = 1;
    s->owner[id] = owner;
    return id;
}

static void unref(store *s, uint32_t id) {
    if (!CHECK(s->refs[id] > 0) || --s->refs[id] > 0) return;
    memset(page_of(s, id), JUNK & 0xFF, PAGE_BYTES);
    s->free_ids[s->n_free++] = id;
}

/* Page i of the row, sealed pages first. */
static pleat__page_id *row_cell(lane *l, uint32_t i) {
    const int64_t first = l->step > 0 ? 0 : MAX_STEP * ROW_LEN - 1;
    return &l->cells[first + (int64_t)i * l->step];
}
static uint32_t *cell(lane *l, uint32_t page_idx) { return &row_cell(l, l->n_sealed + page_idx)->v; }

static int32_t *position(lane *l, uint32_t slot) {
    const uint32_t tokens = l->s->layout.tokens;
    return pleat__positions(&l->s->layout, page_of(l->s, *cell(l, slot / tokens))) + slot % tokens;
}
static uint32_t *value(lane *l, uint32_t slot) {
    const uint32_t tokens = l->s->layout.tokens;
    return (uint32_t *)(void *)(page_of(l->s, *cell(l, slot / tokens)) + VALUES_OFF) + slot % tokens;
}
static uint32_t value_of(int32_t pos) { return (uint32_t)pos * 2654435761u; }
static bool is_token(int32_t pos) { return pos >= 0 && pos < MAX_TOKENS; }

static lane *lane_new(store *s, pleat_reclaim how, uint32_t idx, int32_t step) {
    lane *l = calloc(1, sizeof *l);
    l->s = s;
    l->how = how;
    l->idx = idx;
    l->step = step;
    return l;
}

static void lane_free(lane *l) {
    for (uint32_t i = 0; i < l->n_sealed + l->n_pages; i++) unref(l->s, row_cell(l, i)->v);
    free(l);
}

static void lane_take(lane *l, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) *cell(l, l->n_pages++) = take(l->s, l->idx);
}

/* The token goes to the hole, or behind the last. */
static void lane_append(lane *l, int32_t pos) {
    uint32_t slot = l->n_slots;
    if (l->hole) {
        slot = l->hole - 1;
        CHECK_EQ_I64(*position(l, slot), -1);
        l->hole = 0;
        l->n_dead--;
    } else {
        if (l->n_slots++ == l->n_pages * l->s->layout.tokens) lane_take(l, 1);
        CHECK_EQ_I64(*position(l, slot), JUNK);
    }
    *position(l, slot) = pos;
    *value(l, slot) = value_of(pos);
}

static void lane_kill_slot(lane *l, uint32_t slot) {
    *position(l, slot) = -1;
    *value(l, slot) = JUNK;
    l->n_dead++;
}

/* ---- carrying a plan out ------------------------------------------------------------------------ */

static void do_moves(lane *l, uint32_t n_row_slots) {
    const pleat__reclaim_plan *plan = &l->s->plan;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const uint32_t from = plan->moves[i].from, to = plan->moves[i].to, tokens = l->s->layout.tokens;
        if (!CHECK(from < l->n_slots && to < n_row_slots)) return;
        CHECK(is_token(*position(l, from)) && !is_token(*position(l, to)));
        CHECK(l->s->refs[*cell(l, from / tokens)] == 1 && l->s->refs[*cell(l, to / tokens)] == 1);
        *position(l, to) = *position(l, from);
        *value(l, to) = *value(l, from);
        *position(l, from) = JUNK; /* a later move finds no token here */
    }
}

static void do_order(lane *l) {
    const pleat__reclaim_plan *plan = &l->s->plan;
    uint32_t ids[ROW_LEN];
    bool seen[ROW_LEN] = {false};
    if (plan->n_pages == 0) return;
    CHECK_EQ_U64(plan->n_pages, l->n_pages);
    for (uint32_t i = 0; i < l->n_pages; i++) {
        const uint32_t was = plan->pages[i];
        if (!CHECK(was < l->n_pages && !seen[was])) return;
        seen[was] = true;
        ids[i] = *cell(l, was);
        CHECK_EQ_U64(l->s->refs[ids[i]], 1);
    }
    for (uint32_t i = 0; i < l->n_pages; i++) *cell(l, i) = ids[i];
}

/* The plan's effect on the lane: tokens, order, counts, pages returned. */
static void carry_out(lane *l) {
    const pleat__reclaim_plan *plan = &l->s->plan;
    const uint32_t tokens = l->s->layout.tokens;
    do_moves(l, l->n_pages * tokens);
    do_order(l);
    CHECK(plan->n_slots <= l->n_slots && plan->n_dead <= plan->n_slots && plan->hole <= plan->n_slots);
    l->n_slots = plan->n_slots;
    l->n_dead = plan->n_dead;
    l->hole = plan->hole;
    const uint32_t n_keep = pleat__div_up_u32(l->n_slots, tokens);
    if (!CHECK(n_keep <= l->n_pages)) return;
    while (l->n_pages > n_keep) unref(l->s, *cell(l, --l->n_pages));
    for (uint32_t slot = l->n_slots; slot < n_keep * tokens; slot++) {
        *position(l, slot) = JUNK;
        *value(l, slot) = JUNK;
    }
}

/* `slot` has died, or, if not `one`, any number.  Fresh pages are taken as a step would take them, sometimes more. */
static void reclaim(lane *l, bool one, uint32_t slot) {
    store *s = l->s;
    const uint32_t n_live = l->n_slots - l->n_dead, n_run = l->n_pages;
    lane_take(l, pleat__reclaim_fresh(l->how, n_live, s->layout.tokens));
    if (l->how == PLEAT_RECLAIM_COPY && check_below(8) == 0) lane_take(l, 1);
    const pleat__reclaim_lane rl = {.run = {.layout = &s->layout,
                                            .base = s->base,
                                            .page_bytes = PAGE_BYTES,
                                            .ids = row_cell(l, l->n_sealed),
                                            .step = l->step,
                                            .n_slots = l->n_slots},
                                    .n_dead = l->n_dead,
                                    .n_fresh = l->n_pages - n_run};
    if (s->before) memcpy(s->before, s->base, (size_t)s->n_watched * PAGE_BYTES);
    if (one)
        pleat__reclaim_one(l->how, &rl, slot, &s->plan);
    else
        pleat__reclaim_many(l->how, &rl, &s->plan);
    if (s->before) CHECK_EQ_MEM(s->base, s->before, (size_t)s->n_watched * PAGE_BYTES);
    carry_out(l);
}

/* ---- plans: against an oracle on an array --------------------------------------------------------- */

typedef struct oracle {
    int32_t slots[MAX_TOKENS]; /* positions */
    uint32_t n_slots, n_dead, hole, n_moves;
} oracle;

static void oracle_count(oracle *o) {
    o->n_dead = 0;
    for (uint32_t i = 0; i < o->n_slots; i++) o->n_dead += o->slots[i] < 0;
}

static uint32_t first_dead(const oracle *o) {
    uint32_t i = 0;
    while (i < o->n_slots && o->slots[i] >= 0) i++;
    return i;
}

static void oracle_block(oracle *o, uint32_t tokens) {
    uint32_t n = 0;
    for (uint32_t first = 0; first < o->n_slots; first += tokens) {
        const uint32_t n_in = pleat__min_u32(tokens, o->n_slots - first);
        bool lives = false;
        for (uint32_t i = 0; i < n_in; i++) lives = lives || o->slots[first + i] >= 0;
        for (uint32_t i = 0; lives && i < n_in; i++) o->slots[n++] = o->slots[first + i];
    }
    o->n_slots = n;
}

static void oracle_copy(oracle *o) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_slots; i++)
        if (o->slots[i] >= 0) o->slots[n++] = o->slots[i];
    o->n_moves = n < o->n_slots ? n : 0;
    o->n_slots = n;
}

/* Drop the last while it is dead, put it into the first dead slot while there is one. */
static void oracle_fill(oracle *o) {
    for (uint32_t dead; (dead = first_dead(o)) < o->n_slots; o->n_slots--) {
        if (o->slots[o->n_slots - 1] < 0) continue;
        o->slots[dead] = o->slots[o->n_slots - 1];
        o->n_moves++;
    }
}

static void oracle_reclaim(oracle *o, pleat_reclaim how, bool one, uint32_t tokens) {
    oracle_count(o);
    const uint32_t dead = first_dead(o);
    if (how == PLEAT_RECLAIM_BLOCK) oracle_block(o, tokens);
    if (how == PLEAT_RECLAIM_COPY) oracle_copy(o);
    if (how == PLEAT_RECLAIM_REUSE && one && o->n_dead == 1 && dead + 1 < o->n_slots)
        o->hole = dead + 1;
    else if (how == PLEAT_RECLAIM_REUSE)
        oracle_fill(o);
    oracle_count(o);
}

/* Every slot and count; and of reuse, that no fewer moves would do. */
static void compare(lane *l, const oracle *o, uint32_t n_dead_in_front) {
    const pleat__reclaim_plan *plan = &l->s->plan;
    CHECK_EQ_U64(l->n_slots, o->n_slots);
    CHECK_EQ_U64(l->n_dead, o->n_dead);
    CHECK_EQ_U64(l->hole, o->hole);
    CHECK_EQ_U64(plan->n_moves, o->n_moves);
    if (l->how == PLEAT_RECLAIM_REUSE && l->hole == 0) CHECK_EQ_U64(plan->n_moves, n_dead_in_front);
    for (uint32_t slot = 0; slot < pleat__min_u32(l->n_slots, o->n_slots); slot++) {
        CHECK_EQ_I64(*position(l, slot), o->slots[slot]);
        if (o->slots[slot] >= 0) CHECK_EQ_U64(*value(l, slot), value_of(o->slots[slot]));
    }
}

/* Tokens die in runs, so that whole pages do. */
static void kill_runs(lane *l, uint32_t percent) {
    uint32_t n_left = 0;
    bool dies = false;
    for (uint32_t slot = 0; slot < l->n_slots; slot++, n_left--) {
        if (n_left == 0) {
            n_left = 1 + (uint32_t)check_below(check_below(2) ? 3 : 2 * l->s->layout.tokens);
            dies = check_below(100) < percent;
        }
        if (dies) lane_kill_slot(l, slot);
    }
}

/* One living token dies; its slot. */
static uint32_t kill_one(lane *l) {
    uint32_t slot = 0;
    for (uint32_t nth = (uint32_t)check_below(l->n_slots - l->n_dead);; slot++)
        if (*position(l, slot) >= 0 && nth-- == 0) break;
    lane_kill_slot(l, slot);
    return slot;
}

/* Reclaim, and the same by the oracle. */
static void try_reclaim(lane *l, bool one, uint32_t slot) {
    oracle o = {.n_slots = l->n_slots};
    for (uint32_t i = 0; i < l->n_slots; i++) o.slots[i] = *position(l, i);
    uint32_t n_dead_in_front = 0;
    for (uint32_t i = 0; i < l->n_slots - l->n_dead; i++) n_dead_in_front += o.slots[i] < 0;
    oracle_reclaim(&o, l->how, one, l->s->layout.tokens);
    reclaim(l, one, slot);
    compare(l, &o, n_dead_in_front);
}

/* A lane of random tokens of which any number die; then some die one by one. */
static void try_lane(store *s, pleat_reclaim how) {
    static const int32_t steps[] = {1, -1, MAX_STEP};
    static const uint32_t percents[] = {0, 5, 30, 50, 90, 100};
    store_set_tokens(s, page_tokens[check_below(CHECK_COUNT(page_tokens))]);
    lane *l = lane_new(s, how, 0, steps[check_below(CHECK_COUNT(steps))]);
    const uint32_t n = (uint32_t)check_below(1 + pleat__min_u32(100, 7 * s->layout.tokens));
    const uint32_t stride = check_below(2) ? 7 : 1;
    for (uint32_t i = 0; i < n; i++) lane_append(l, (int32_t)((i + 1) * stride % 101)); /* 101 is prime */
    kill_runs(l, percents[check_below(CHECK_COUNT(percents))]);
    try_reclaim(l, false, 0);
    for (uint32_t i = (uint32_t)check_below(20); i > 0 && l->n_slots > l->n_dead && check_failures() == 0; i--)
        try_reclaim(l, true, kill_one(l)); /* with reuse: a hole that stays open, and then a second dead slot */
    lane_free(l);
}

static void test_plans(void) {
    store *s = store_new(256);
    s->n_watched = 256;
    s->before = malloc((size_t)s->n_watched * PAGE_BYTES);
    for (uint64_t round = check_rounds(4000, 400); round > 0 && check_failures() == 0; round--)
        for (uint32_t i = 0; i < N_HOW; i++) {
            check_context("round %llu, strategy %d", (unsigned long long)round, (int)hows[i]);
            try_lane(s, hows[i]);
        }
    CHECK_EQ_U64(s->n_free, 256);
    store_free(s);
}

/* The picture in reclaim.h: a to h are positions 0 to 7; b, e and f have died; the last slot is not in use. */
static void test_picture(void) {
    static const struct {
        uint32_t n_slots;
        int32_t slots[8];
    } want[N_HOW] = {
        {8, {0, -1, 2, 3, -1, -1, 6, 7}}, {8, {0, -1, 2, 3, -1, -1, 6, 7}}, {5, {0, 2, 3, 6, 7}}, {5, {0, 7, 2, 3, 6}}};
    for (uint32_t i = 0; i < N_HOW; i++) {
        store *s = store_new(16);
        store_set_tokens(s, 3);
        lane *l = lane_new(s, hows[i], 0, 1);
        for (int32_t pos = 0; pos < 8; pos++) lane_append(l, pos);
        lane_kill_slot(l, 1);
        lane_kill_slot(l, 4);
        lane_kill_slot(l, 5);
        reclaim(l, false, 0);
        CHECK_EQ_U64(l->n_slots, want[i].n_slots);
        for (uint32_t slot = 0; slot < l->n_slots; slot++) CHECK_EQ_I64(*position(l, slot), want[i].slots[slot]);
        if (hows[i] == PLEAT_RECLAIM_REUSE) CHECK_EQ_U64(s->plan.n_moves, 2);
        if (hows[i] == PLEAT_RECLAIM_BLOCK) {
            lane_kill_slot(l, 3);
            reclaim(l, true, 3);
            CHECK(l->n_slots == 5 && l->n_dead == 1 && l->n_pages == 2);
            CHECK(*position(l, 0) == 0 && *position(l, 3) == 6 && *position(l, 4) == 7);
        }
        lane_free(l);
        CHECK_EQ_U64(s->n_free, 16);
        store_free(s);
    }
}

static void test_carve(void) {
    _Alignas(PLEAT__ALIGN) static uint8_t block[1024];
    pleat__reclaim_plan plan;
    pleat__arena count = {0}, arena = {.base = block, .cap_bytes = sizeof block};
    pleat__reclaim_carve(&plan, 33, 9, &count);
    pleat__reclaim_carve(&plan, 33, 9, &arena);
    CHECK(!arena.overflow && arena.used_bytes == count.used_bytes);
    CHECK((uint8_t *)plan.moves >= block && (uint8_t *)(plan.moves + 33) <= (uint8_t *)plan.pages);
    CHECK((uint8_t *)(plan.pages + 9) <= block + arena.used_bytes);
    CHECK_EQ_U64(pleat__reclaim_fresh(PLEAT_RECLAIM_COPY, 33, 16), 3);
    CHECK_EQ_U64(pleat__reclaim_fresh(PLEAT_RECLAIM_COPY, 0, 16), 0);
    CHECK_EQ_U64(pleat__reclaim_fresh(PLEAT_RECLAIM_REUSE, 33, 16), 0);
}

/* ---- lives: four lanes with the same operations ---------------------------------------------------- */

/* Which token dies when one does. */
typedef enum taste { TASTE_ANY, TASTE_OLDEST, TASTE_NEWEST, N_TASTES } taste;

typedef struct life {
    store *s;
    lane *lanes[N_HOW]; /* in the order of `hows` */
    bool alive[MAX_TOKENS];
    uint32_t n_live, n_made, n_target;
    taste taste;
} life;

/* What happened, so that a test which tries nothing fails. */
static struct { uint64_t filled_holes, second_dead, cut, moved, middle_pages, emptied, above_block; } seen;

static life *life_new(store *s) {
    life *f = calloc(1, sizeof *f);
    f->s = s;
    f->n_target = (uint32_t)check_below(120);
    f->taste = (taste)check_below(N_TASTES);
    store_set_tokens(s, page_tokens[check_below(CHECK_COUNT(page_tokens))]);
    for (uint32_t i = 0; i < N_HOW; i++) f->lanes[i] = lane_new(s, hows[i], i, check_below(2) ? MAX_STEP : -1);
    for (uint32_t n = (uint32_t)check_below(MAX_SEALED + 1); n > 0; n--) { /* sealed pages, shared by all */
        const uint32_t id = take(s, N_HOW);
        s->refs[id] = N_HOW;
        memset(page_of(s, id), SEALED_BYTE, PAGE_BYTES);
        for (uint32_t i = 0; i < N_HOW; i++) row_cell(f->lanes[i], f->lanes[i]->n_sealed++)->v = id;
    }
    return f;
}

static void life_free(life *f) {
    for (uint32_t i = 0; i < N_HOW; i++) lane_free(f->lanes[i]);
    CHECK_EQ_U64(f->s->n_free, N_PAGES);
    free(f);
}

static void op_append(life *f) {
    const int32_t pos = (int32_t)f->n_made++;
    f->alive[pos] = true;
    f->n_live++;
    for (uint32_t i = 0; i < N_HOW; i++) {
        seen.filled_holes += f->lanes[i]->hole != 0;
        lane_append(f->lanes[i], pos);
    }
}

static uint32_t slot_of(lane *l, int32_t pos) {
    for (uint32_t slot = 0; slot < l->n_slots; slot++)
        if (*position(l, slot) == pos) return slot;
    CHECK(0);
    return 0;
}

static void note(const life *f, const lane *l, uint32_t n_before) {
    const pleat__reclaim_plan *plan = &f->s->plan;
    if (l->how == PLEAT_RECLAIM_REUSE) {
        seen.moved += plan->n_moves > 0;
        seen.cut += plan->n_moves == 0 && plan->n_slots < n_before;
    }
    if (l->how == PLEAT_RECLAIM_BLOCK) seen.middle_pages += plan->n_pages > 0;
    seen.emptied += n_before > 0 && plan->n_slots == 0;
}

static void op_kill_one(life *f) {
    uint32_t nth = f->taste == TASTE_ANY      ? (uint32_t)check_below(f->n_live)
                   : f->taste == TASTE_OLDEST ? 0
                                              : f->n_live - 1;
    if (check_below(8) == 0) nth = (uint32_t)check_below(f->n_live);
    int32_t pos = 0;
    while (!f->alive[pos] || nth-- > 0) pos++;
    f->alive[pos] = false;
    f->n_live--;
    for (uint32_t i = 0; i < N_HOW; i++) {
        lane *l = f->lanes[i];
        const uint32_t slot = slot_of(l, pos), n_before = l->n_slots;
        lane_kill_slot(l, slot);
        seen.second_dead += l->hole != 0;
        reclaim(l, true, slot);
        note(f, l, n_before);
    }
}

static void op_kill_many(life *f) {
    const uint32_t percent = (uint32_t)check_below(5) * 25;
    uint32_t n_left = 0;
    bool dies = false;
    for (uint32_t pos = 0; pos < f->n_made; pos++, n_left--) {
        if (n_left == 0) {
            n_left = 1 + (uint32_t)check_below(2 * f->s->layout.tokens);
            dies = check_below(100) < percent;
        }
        if (!dies || !f->alive[pos]) continue;
        f->alive[pos] = false;
        f->n_live--;
    }
    for (uint32_t i = 0; i < N_HOW; i++) {
        lane *l = f->lanes[i];
        const uint32_t n_before = l->n_slots;
        for (uint32_t slot = 0; slot < l->n_slots; slot++) {
            const int32_t pos = *position(l, slot);
            if (pos >= 0 && !f->alive[pos]) lane_kill_slot(l, slot);
        }
        reclaim(l, false, 0);
        note(f, l, n_before);
    }
}

/* After each operation: what is held, in pages.  Fragmentation is 1 - n_live / (n_pages * tokens), so it is ordered as
 * pages are. */
static void check_held(const life *f) {
    const uint32_t tokens = f->s->layout.tokens;
    for (uint32_t i = 0; i < N_HOW; i++) {
        CHECK_EQ_U64(f->lanes[i]->n_slots - f->lanes[i]->n_dead, f->n_live);
        CHECK_EQ_U64(f->lanes[i]->n_pages, pleat__div_up_u32(f->lanes[i]->n_slots, tokens));
    }
    const lane *none = f->lanes[0], *block = f->lanes[1], *copy = f->lanes[2], *reuse = f->lanes[3];
    CHECK(none->hole == 0 && block->hole == 0 && copy->hole == 0 && copy->n_dead == 0);
    CHECK_EQ_U64(none->n_slots, f->n_made);
    CHECK_EQ_U64(reuse->n_dead, reuse->hole != 0);
    CHECK(copy->n_pages <= reuse->n_pages && block->n_pages <= none->n_pages && block->n_slots <= none->n_slots);
    if (reuse->n_pages <= block->n_pages) return;
    CHECK(reuse->hole != 0 && reuse->n_pages == block->n_pages + 1 && f->n_live % tokens == 0);
    seen.above_block++;
}

/* Each living token stands in the lane once, with its value, on pages that the lane alone holds; sealed pages are as
 * they were; with block each page lives. */
static void check_lane(life *f, lane *l) {
    const uint32_t tokens = l->s->layout.tokens;
    bool found[MAX_TOKENS] = {false}, lives = true;
    uint32_t n_found = 0;
    for (uint32_t slot = 0; slot < l->n_slots; slot++) {
        const int32_t pos = *position(l, slot);
        if (slot % tokens == 0) {
            const uint32_t id = *cell(l, slot / tokens);
            CHECK(l->s->refs[id] == 1 && l->s->owner[id] == l->idx);
            CHECK(lives || l->how != PLEAT_RECLAIM_BLOCK);
            lives = false;
        }
        lives = lives || pos >= 0;
        if (pos == -1) continue;
        if (!CHECK(is_token(pos) && f->alive[pos] && !found[pos])) return;
        CHECK_EQ_U64(*value(l, slot), value_of(pos));
        found[pos] = true;
        n_found++;
    }
    CHECK(lives || l->how != PLEAT_RECLAIM_BLOCK);
    CHECK_EQ_U64(n_found, f->n_live);
    if (l->hole) CHECK_EQ_I64(*position(l, l->hole - 1), -1);
    for (uint32_t i = 0; i < l->n_sealed; i++) {
        const uint8_t *page = page_of(l->s, row_cell(l, i)->v);
        CHECK(page[0] == SEALED_BYTE && memcmp(page, page + 1, PAGE_BYTES - 1) == 0);
    }
}

/* One operation: below the target mostly appends, else in turn one dies and one comes; sometimes many die. */
static void life_step(life *f) {
    if (check_below(64) == 0)
        op_kill_many(f);
    else if (f->n_live > 0 && check_below(100) < (f->n_live > f->n_target ? 90 : 25))
        op_kill_one(f);
    else if (f->n_made < MAX_TOKENS)
        op_append(f);
}

static void test_lives(void) {
    store *s = store_new(N_PAGES);
    const uint64_t n_ops = check_rounds(1000000, 60000);
    for (uint64_t op = 0; op < n_ops && check_failures() == 0;) {
        life *f = life_new(s);
        check_context("operation %llu, pages of %u", (unsigned long long)op, s->layout.tokens);
        for (uint32_t n = 50 + (uint32_t)check_below(800); n > 0 && check_failures() == 0; n--, op++) {
            life_step(f);
            check_held(f);
            for (uint32_t i = 0; n % 8 == 1 && i < N_HOW; i++) check_lane(f, f->lanes[i]);
        }
        life_free(f);
    }
    CHECK(seen.filled_holes > 1000 && seen.second_dead > 1000 && seen.cut > 1000 && seen.moved > 500);
    CHECK(seen.middle_pages > 1000 && seen.emptied > 50 && seen.above_block > 10);
    store_free(s);
}

static const check_test tests[] = {
    {"picture", test_picture}, {"carve", test_carve}, {"plans", test_plans}, {"lives", test_lives}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
