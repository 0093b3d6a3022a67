/* SPDX-License-Identifier: MIT
 *
 * test_page.c: pool, bidirectional table and plan against a naive oracle.
 *
 * The oracle keeps, for each lane and side, a plain list of page ids, and the free ids in a plain queue: ids leave at
 * the front and come back at the rear.  A million random operations drive both; ids must agree exactly.  The pool
 * swings between full and nearly empty, and the operations that took effect are counted: on a pool that is always
 * full, most would do nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "page/plan.h"
enum { N_PAGES = 211, N_TABLES = 5, N_LANES = 3, ROW_LEN = 34 };
static const uint32_t page_tokens[2] = {16, 40}; /* the second no power of two */

typedef struct oracle {
    uint32_t queue[N_PAGES]; /* free ids, the next to be taken first */
    uint32_t n_free;
    uint32_t n_peak;
    uint32_t refs[N_PAGES];
    uint32_t pages[N_TABLES][N_LANES][2][ROW_LEN];
    uint32_t n_pages[N_TABLES][N_LANES][2];
} oracle;

static uint32_t oracle_take(oracle *o) {
    const uint32_t id = o->queue[0];
    memmove(o->queue, o->queue + 1, --o->n_free * sizeof o->queue[0]);
    o->refs[id] = 1;
    if (N_PAGES - o->n_free > o->n_peak) o->n_peak = N_PAGES - o->n_free;
    return id;
}

static void oracle_unref(oracle *o, uint32_t id) {
    if (--o->refs[id] == 0) o->queue[o->n_free++] = id;
}

/* Pages that a lane holds after it wanted `want` of a side. */
static uint32_t oracle_pages_after(const oracle *o, uint32_t t, uint32_t lane, int side, pleat__lane l,
                                   const pleat__want *want) {
    uint32_t n = o->n_pages[t][lane][side], n_slots = l.n_slots[side] + want->n_new[side];
    if (side == PLEAT__HIGH && want->fill_hole && l.hole && want->n_new[side]) n_slots--;
    while (n * page_tokens[side] < n_slots) n++;
    return n;
}

typedef struct world {
    pleat__pool pool;
    pleat__table tables[N_TABLES];
    pleat__plan plan;
    void *block;
    oracle o;
    uint32_t extra_refs[N_PAGES]; /* references held by no table */
    bool growing;                 /* operations take more than they return */
    /* Operations that took effect. */
    uint64_t n_steps, n_refused, n_both, n_holes_filled, n_returned, n_trimmed, n_shared, n_unshared, n_swings;
} world;

static void carve_world(world *w, pleat__arena *arena) {
    pleat__pool_carve(&w->pool, N_PAGES, arena);
    pleat__plan_carve(&w->plan, N_TABLES, N_TABLES * N_LANES, arena);
    for (int t = 0; t < N_TABLES; t++) pleat__table_carve(&w->tables[t], N_LANES, ROW_LEN, arena);
}

static world *world_new(void) {
    world *w = calloc(1, sizeof *w);
    pleat__arena arena = {0};
    carve_world(w, &arena);
    const uint64_t bytes = arena.used_bytes;
    w->block = aligned_alloc(64, bytes);
    arena = (pleat__arena){.base = w->block, .cap_bytes = bytes};
    carve_world(w, &arena);
    CHECK(!arena.overflow && arena.used_bytes == bytes);
    pleat__pool_init(&w->pool);
    for (int t = 0; t < N_TABLES; t++) pleat__table_init(&w->tables[t]);
    w->o.n_free = N_PAGES;
    for (uint32_t i = 0; i < N_PAGES; i++) w->o.queue[i] = i;
    return w;
}

static void world_free(world *w) {
    free(w->block);
    free(w);
}

/* What a step's tables want: mostly nothing while the pool shrinks; nothing where a row has no room. */
static pleat__want random_want(const world *w, uint32_t t) {
    pleat__want want = {.page_tokens = {page_tokens[0], page_tokens[1]}, .fill_hole = check_below(2) == 0};
    if (check_below(w->growing ? 2 : 20) != 0) return want;
    for (int side = 0; side < 2; side++)
        want.n_new[side] = (uint32_t)check_below(check_below(2) ? 2 : 2 * page_tokens[side]);
    for (uint32_t lane = 0; lane < N_LANES; lane++) {
        const pleat__lane l = pleat__table_lane(&w->tables[t], lane);
        const uint32_t n = oracle_pages_after(&w->o, t, lane, PLEAT__HIGH, l, &want) +
                           oracle_pages_after(&w->o, t, lane, PLEAT__LOW, l, &want);
        if (n > ROW_LEN) want.n_new[0] = want.n_new[1] = 0;
    }
    return want;
}

/* Commit at one go, or part by part in random order. */
static void commit(world *w) {
    if (check_below(2)) {
        pleat__plan_commit(&w->plan, &w->pool);
        return;
    }
    uint32_t order[N_TABLES];
    for (uint32_t i = 0; i < N_TABLES; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < N_TABLES; i++) pleat__plan_commit_part(&w->plan, order[i], &w->pool);
    pleat__pool_advance(&w->pool, (uint32_t)w->plan.total);
}

/* The oracle takes the lane's pages, high before low; then the lane's slots grow, sometimes by less than was wanted. */
static void oracle_commit_lane(world *w, uint32_t t, uint32_t lane, const pleat__want *want) {
    pleat__table *table = &w->tables[t];
    const pleat__lane l = pleat__table_lane(table, lane);
    uint32_t n_grown = 0;
    for (int side = 0; side < 2; side++) {
        const uint32_t n_after = oracle_pages_after(&w->o, t, lane, side, l, want);
        uint32_t *n = &w->o.n_pages[t][lane][side];
        n_grown += *n < n_after;
        while (*n < n_after) w->o.pages[t][lane][side][(*n)++] = oracle_take(&w->o);
    }
    w->n_both += n_grown == 2;
    uint32_t n_new = want->n_new[PLEAT__HIGH];
    if (want->fill_hole && l.hole && n_new > 0) {
        n_new--;
        table->hole[lane] = 0;
        w->n_holes_filled++;
    }
    if (check_below(8) == 0) return; /* pages ahead of slots */
    table->n_slots[PLEAT__HIGH][lane] += n_new;
    table->n_slots[PLEAT__LOW][lane] += want->n_new[PLEAT__LOW];
}

/* Plan new slots for some tables; commit if they fit. */
static void op_step(world *w) {
    pleat__want wants[N_TABLES];
    uint32_t total = 0;
    pleat__plan_begin(&w->plan);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        wants[t] = random_want(w, t);
        for (uint32_t lane = 0; lane < N_LANES; lane++) {
            const pleat__lane l = pleat__table_lane(&w->tables[t], lane);
            for (int side = 0; side < 2; side++) {
                const uint32_t need =
                    oracle_pages_after(&w->o, t, lane, side, l, &wants[t]) - w->o.n_pages[t][lane][side];
                CHECK_EQ_U64(pleat__lane_need(&w->tables[t], lane, (pleat__side)side, &wants[t]), need);
                total += need;
            }
        }
        pleat__plan_add(&w->plan, &w->tables[t], &wants[t]);
    }
    const bool fits = pleat__plan_fits(&w->plan, &w->pool);
    CHECK_EQ_U64(fits, total <= w->o.n_free);
    CHECK_EQ_U64(w->plan.total, total);
    w->n_refused += !fits;
    if (!fits) return;
    w->n_steps += total > 0;
    commit(w);
    for (uint32_t t = 0; t < N_TABLES; t++)
        for (uint32_t lane = 0; lane < N_LANES; lane++) oracle_commit_lane(w, t, lane, &wants[t]);
}

/* A lane loses slots of a side, or one of its high slots dies. */
static void shrink(pleat__table *table, uint32_t lane, pleat__side side, uint32_t n_slots) {
    if (table->n_slots[side][lane] > n_slots) table->n_slots[side][lane] = n_slots;
    if (table->hole[lane] > table->n_slots[PLEAT__HIGH][lane]) table->hole[lane] = 0;
}

static void op_hole(world *w) {
    pleat__table *table = &w->tables[check_below(N_TABLES)];
    const uint32_t lane = (uint32_t)check_below(N_LANES), n_slots = table->n_slots[PLEAT__HIGH][lane];
    if (n_slots > 0) table->hole[lane] = 1 + (uint32_t)check_below(n_slots);
}

static void op_return(world *w) {
    const uint32_t t = (uint32_t)check_below(N_TABLES), lane = (uint32_t)check_below(N_LANES);
    const pleat__side side = (pleat__side)check_below(2);
    const uint32_t n_return = (uint32_t)check_below(w->growing ? 3 : 9), n_held = w->tables[t].n_pages[side][lane];
    const uint32_t n_keep = n_held > n_return ? n_held - n_return : 0;
    w->n_returned += n_held - n_keep;
    pleat__lane_return_pages(&w->tables[t], lane, side, n_keep, &w->pool);
    uint32_t *n = &w->o.n_pages[t][lane][side];
    while (*n > n_keep) oracle_unref(&w->o, w->o.pages[t][lane][side][--*n]);
    shrink(&w->tables[t], lane, side, n_keep * page_tokens[side]);
}

/* Lanes of a table lose slots; all pages that no slot needs go back. */
static void op_trim(world *w) {
    const uint32_t t = (uint32_t)check_below(N_TABLES);
    for (uint32_t lane = 0; lane < N_LANES; lane++) {
        for (int side = 0; side < 2; side++)
            if (check_below(2))
                shrink(&w->tables[t], lane, (pleat__side)side,
                       (uint32_t)check_below(w->tables[t].n_slots[side][lane] + 1));
    }
    pleat__table_trim(&w->tables[t], page_tokens, &w->pool);
    for (uint32_t lane = 0; lane < N_LANES; lane++) {
        for (int side = 0; side < 2; side++) {
            uint32_t *n = &w->o.n_pages[t][lane][side];
            while (*n > 0 && (*n - 1) * page_tokens[side] >= w->tables[t].n_slots[side][lane]) {
                oracle_unref(&w->o, w->o.pages[t][lane][side][--*n]);
                w->n_trimmed++;
            }
        }
    }
}

/* Share a page in use, or, twice as often, stop sharing one. */
static void op_share(world *w) {
    const uint32_t id = (uint32_t)check_below(N_PAGES);
    if (check_below(3)) {
        if (w->extra_refs[id] == 0) return;
        w->n_unshared++;
        w->extra_refs[id]--;
        pleat__pool_unref(&w->pool, (pleat__page_id){id});
        oracle_unref(&w->o, id);
    } else if (w->o.refs[id] > 0) {
        w->n_shared++;
        w->extra_refs[id]++;
        pleat__pool_ref(&w->pool, (pleat__page_id){id});
        w->o.refs[id]++;
    }
}

static void compare_side(const world *w, uint32_t t, uint32_t lane, pleat__side side) {
    const uint32_t n = w->o.n_pages[t][lane][side];
    CHECK_EQ_U64(w->tables[t].n_pages[side][lane], n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_EQ_U64(pleat__table_cell(&w->tables[t], lane, side, i)->v, w->o.pages[t][lane][side][i]);
}

static void compare(const world *w) {
    uint8_t marks[N_PAGES];
    uint32_t refs[N_PAGES];
    CHECK(pleat__pool_is_valid(&w->pool, w->o.refs, marks));
    CHECK_EQ_U64(w->pool.n_free, w->o.n_free);
    CHECK_EQ_U64(w->pool.n_peak, w->o.n_peak);
    for (uint32_t i = 0; i < w->o.n_free; i++)
        CHECK_EQ_U64(w->pool.ring[pleat__pool_cell(&w->pool, i)].v, w->o.queue[i]);
    memcpy(refs, w->extra_refs, sizeof refs);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        CHECK(pleat__table_count_refs(&w->tables[t], N_PAGES, refs));
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            for (int side = 0; side < 2; side++) compare_side(w, t, lane, (pleat__side)side);
    }
    CHECK_EQ_MEM(refs, w->o.refs, sizeof refs);
}

/* Grow until no page is free, shrink until three in four are. */
static void swing(world *w) {
    if (w->growing ? w->o.n_free > 0 : w->o.n_free < N_PAGES * 3 / 4) return;
    w->growing = !w->growing;
    w->n_swings++;
}

/* Everything goes back: every page free, every count 0. */
static void return_all(world *w) {
    for (uint32_t t = 0; t < 2; t++) {
        pleat__table_clear(&w->tables[t], &w->pool);
        CHECK_EQ_U64(w->tables[t].n_pages_all, 0);
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            CHECK(w->tables[t].n_slots[0][lane] == 0 && w->tables[t].hole[lane] == 0);
    }
    for (uint32_t t = 2; t < N_TABLES; t++)
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            for (int side = 0; side < 2; side++)
                pleat__lane_return_pages(&w->tables[t], lane, (pleat__side)side, 0, &w->pool);
    for (uint32_t id = 0; id < N_PAGES; id++)
        for (; w->extra_refs[id] > 0; w->extra_refs[id]--) pleat__pool_unref(&w->pool, (pleat__page_id){id});
    CHECK_EQ_U64(w->pool.n_free, N_PAGES);
    const uint32_t no_refs[N_PAGES] = {0};
    uint8_t marks[N_PAGES];
    CHECK(pleat__pool_is_valid(&w->pool, no_refs, marks));
}

static void test_million_operations(void) {
    world *w = world_new();
    const uint64_t n = check_rounds(1000000, 50000);
    for (uint64_t i = 0; i < n && check_failures() == 0; i++) {
        swing(w);
        switch (check_below(8)) {
            case 0:
            case 1: op_step(w); break;
            case 2: op_hole(w); break;
            case 3:
            case 4: op_share(w); break;
            case 5: w->growing ? op_step(w) : op_trim(w); break;
            case 6: check_below(w->growing ? 8 : 2) ? op_return(w) : op_trim(w); break;
            default: op_return(w); break;
        }
        if (i % 97 == 0 || i + 1 == n) compare(w);
    }
    return_all(w);
    CHECK(w->n_steps > n / 25 && w->n_refused > n / 200 && w->n_both > n / 25 && w->n_holes_filled > n / 100);
    CHECK(w->n_returned > n / 10 && w->n_trimmed > n / 10 && w->n_swings > n / 1000);
    CHECK(w->n_shared > n / 60 && w->n_unshared > n / 60);
    world_free(w);
}

/* A table in memory that is not clear.  Returns the block to free. */
static void *table_alone(pleat__table *table, uint32_t n_lanes, uint32_t row_len) {
    pleat__arena arena = {0};
    pleat__table_carve(table, n_lanes, row_len, &arena);
    const uint64_t bytes = arena.used_bytes;
    arena = (pleat__arena){.base = aligned_alloc(64, bytes), .cap_bytes = bytes};
    memset(arena.base, 0xD0, bytes);
    pleat__table_carve(table, n_lanes, row_len, &arena);
    pleat__table_init(table);
    return arena.base;
}

/* Likewise with a pool and a plan for it. */
static void *one_table(pleat__pool *pool, pleat__table *table, pleat__plan *plan, uint32_t n_pages, uint32_t n_lanes,
                       uint32_t row_len) {
    pleat__arena arena = {0};
    for (int pass = 0; pass < 2; pass++) {
        pleat__pool_carve(pool, n_pages, &arena);
        pleat__table_carve(table, n_lanes, row_len, &arena);
        pleat__plan_carve(plan, 1, n_lanes, &arena);
        if (pass == 0) {
            const uint64_t bytes = arena.used_bytes;
            arena = (pleat__arena){.base = aligned_alloc(64, bytes), .cap_bytes = bytes};
        }
    }
    memset(arena.base, 0xD0, arena.used_bytes);
    pleat__pool_init(pool);
    pleat__table_init(table);
    return arena.base;
}

/* The paper's overflowing case: 2 high or 4 low tokens a page and 8 tokens.  7 high and 1 low are 5 pages; the paper
 * gives their row 8 / 2 cells. */
static void test_row_holds_the_overflowing_case(void) {
    const pleat__want want = {.n_new = {7, 1}, .page_tokens = {2, 4}};
    const uint32_t paper_row_len = 8 / 2, row_len = pleat__table_row_len(8, 2);
    pleat__pool pool;
    pleat__table table;
    pleat__plan plan = {0};
    void *block = one_table(&pool, &table, &plan, 8, 1, row_len);
    pleat__plan_begin(&plan);
    pleat__plan_add(&plan, &table, &want);
    CHECK(pleat__plan_fits(&plan, &pool));
    CHECK_EQ_U64(plan.total, 5);
    CHECK(plan.total > paper_row_len && plan.total <= row_len);
    pleat__plan_commit(&plan, &pool);
    for (uint32_t i = 0; i < 4; i++) CHECK_EQ_U64(pleat__table_cell(&table, 0, PLEAT__HIGH, i)->v, i);
    CHECK_EQ_U64(pleat__table_cell(&table, 0, PLEAT__LOW, 0)->v, 4);
    uint32_t refs[8] = {0};
    CHECK(pleat__table_count_refs(&table, 8, refs));
    for (int i = 0; i < 5; i++) CHECK_EQ_U64(refs[i], 1);
    table.row_len = paper_row_len;
    CHECK(!pleat__table_count_refs(&table, 8, refs));
    free(block);
}

/* Every split of up to max_tokens tokens between the sides, with and without a hole in the way, fits into a row with
 * the two cells that compaction needs left. */
static void test_row_holds_every_split(void) {
    static const uint32_t tokens[][2] = {{2, 4}, {2, 3}, {16, 16}, {16, 32}, {16, 48}, {32, 80}};
    for (size_t i = 0; i < CHECK_COUNT(tokens); i++) {
        for (uint32_t n = 1; n <= 200; n++) {
            for (uint32_t n_high = 0; n_high <= n; n_high++) {
                const pleat__want want = {.n_new = {n_high + 1, n - n_high},
                                          .page_tokens = {tokens[i][0], tokens[i][1]}};
                uint32_t zero = 0;
                const pleat__table empty = {
                    .n_lanes = 1, .n_pages = {&zero, &zero}, .n_slots = {&zero, &zero}, .hole = &zero};
                const uint32_t n_pages =
                    pleat__lane_need(&empty, 0, PLEAT__HIGH, &want) + pleat__lane_need(&empty, 0, PLEAT__LOW, &want);
                CHECK(n_pages + 2 <= pleat__table_row_len(n, tokens[i][0]));
            }
        }
    }
}

/* A new table is empty whatever its memory held. */
static void test_new_table_is_empty(void) {
    pleat__pool pool;
    pleat__table table;
    pleat__plan plan = {0};
    void *block = one_table(&pool, &table, &plan, 8, 1, 6);
    const pleat__lane l = pleat__table_lane(&table, 0);
    CHECK(l.n_pages[0] == 0 && l.n_pages[1] == 0 && l.n_slots[0] == 0 && l.n_slots[1] == 0 && l.hole == 0);
    CHECK_EQ_U64(table.n_pages_all, 0);
    free(block);
}

/* A plan that does not fit has changed nothing. */
static void test_refused_plan_is_forgotten(void) {
    const pleat__want want = {.n_new = {7, 1}, .page_tokens = {2, 4}};
    pleat__pool pool;
    pleat__table table;
    pleat__plan plan = {0};
    void *block = one_table(&pool, &table, &plan, 4, 1, 8);
    const pleat__lane before = pleat__table_lane(&table, 0);
    pleat__plan_begin(&plan);
    pleat__plan_add(&plan, &table, &want);
    CHECK(!pleat__plan_fits(&plan, &pool));
    CHECK_EQ_U64(plan.total, 5);
    const pleat__lane after = pleat__table_lane(&table, 0);
    CHECK_EQ_MEM(&after, &before, sizeof before);
    CHECK(pool.n_free == 4 && pool.start == 0);
    free(block);
}

/* A step's token takes the hole: no page; without the hole it needs one; a second token needs one either way. */
static void test_hole_saves_a_page(void) {
    uint32_t n_pages[2] = {2, 0}, n_slots[2] = {8, 0}, hole = 3;
    const pleat__table t = {
        .n_lanes = 1, .n_pages = {&n_pages[0], &n_pages[1]}, .n_slots = {&n_slots[0], &n_slots[1]}, .hole = &hole};
    pleat__want want = {.n_new = {1, 0}, .page_tokens = {4, 8}, .fill_hole = true};
    CHECK_EQ_U64(pleat__lane_need(&t, 0, PLEAT__HIGH, &want), 0);
    want.fill_hole = false;
    CHECK_EQ_U64(pleat__lane_need(&t, 0, PLEAT__HIGH, &want), 1);
    want.fill_hole = true;
    want.n_new[PLEAT__HIGH] = 2;
    CHECK_EQ_U64(pleat__lane_need(&t, 0, PLEAT__HIGH, &want), 1);
    hole = 0;
    want.n_new[PLEAT__HIGH] = 0;
    CHECK_EQ_U64(pleat__lane_need(&t, 0, PLEAT__HIGH, &want), 0);
    want.n_new[PLEAT__LOW] = 9;
    CHECK_EQ_U64(pleat__lane_need(&t, 0, PLEAT__LOW, &want), 2);
}

/* The side's pages become full in all lanes, in none, or in some, in whole blocks or lane by lane; now and then one lane
 * has no slot left. */
static void random_slots(pleat__table *table, pleat__side side) {
    const uint64_t kind = check_below(4);
    bool less = false;
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        uint32_t *n_slots = &table->n_slots[side][lane];
        *n_slots = table->n_pages[side][lane] * page_tokens[side];
        if (kind < 3 || lane % PLEAT__ROW_BLOCK == 0) less = kind == 1 || (kind >= 2 && check_below(2));
        if (*n_slots > 0 && less) (*n_slots)--;
    }
    if (check_below(8) == 0) table->n_slots[side][check_below(table->n_lanes)] = 0;
}

/* Holes in all lanes, none or some. */
static void random_holes(pleat__table *table) {
    const uint64_t kind = check_below(3);
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        const bool has = table->n_slots[PLEAT__HIGH][lane] > 0 && (kind == 1 || (kind == 2 && check_below(2)));
        table->hole[lane] = has ? 1 : 0;
    }
}

/* Needs as plan.h words them.  A limited lane that has more slots already needs none. */
static void check_needs(const pleat__table *table, const pleat__want *want) {
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        const bool is_limited = want->max_slots && want->max_slots[lane] != UINT32_MAX;
        const pleat__lane l = pleat__table_lane(table, lane);
        for (int side = 0; side < 2; side++) {
            const uint32_t n_new = !is_limited ? want->n_new[side] : side == 0 ? want->n_new_limited : 0;
            uint32_t n_slots = l.n_slots[side], n_pages = 0;
            for (uint32_t i = 0; i < n_new; i++) {
                const bool fills = side == 0 && i == 0 && want->fill_hole && l.hole;
                n_slots += !fills && (!is_limited || n_slots < want->max_slots[lane]);
            }
            while ((l.n_pages[side] + n_pages) * want->page_tokens[side] < n_slots) n_pages++;
            CHECK_EQ_U64(pleat__lane_need(table, lane, (pleat__side)side, want), n_pages);
        }
    }
}

/* One step of a table from a pool whose free ids are next[]: every lane takes the next ones, high before low. */
static void check_step(pleat__table *table, pleat__plan *plan, pleat__pool *pool, const pleat__want *want,
                       const uint32_t *next) {
    uint32_t before[130][2], need[130][2], total = 0;
    const uint64_t n_before = table->n_pages_all;
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        for (int side = 0; side < 2; side++) {
            before[lane][side] = table->n_pages[side][lane];
            need[lane][side] = pleat__lane_need(table, lane, (pleat__side)side, want);
            total += need[lane][side];
        }
    }
    pleat__plan_begin(plan);
    pleat__plan_add(plan, table, want);
    if (!CHECK(pleat__plan_fits(plan, pool))) return;
    CHECK_EQ_U64(plan->total, total);
    pleat__plan_commit(plan, pool);
    CHECK_EQ_U64(table->n_pages_all, n_before + total);
    for (uint32_t lane = 0; lane < table->n_lanes; lane++) {
        for (int side = 0; side < 2; side++) {
            CHECK_EQ_U64(table->n_pages[side][lane], before[lane][side] + need[lane][side]);
            for (uint32_t i = 0; i < need[lane][side]; i++)
                CHECK_EQ_U64(pleat__table_cell(table, lane, (pleat__side)side, before[lane][side] + i)->v, *next++);
        }
    }
}

/* Tables of whole and part-filled words of lanes; steps in which all lanes, some or none need pages, of either side. */
static void test_any_number_of_lanes(void) {
    static const uint32_t n_lanes[] = {1, 2, 15, 16, 17, 48, 63, 64, 65, 80, 127, 128, 130};
    enum { ROW = 16, MAX_PAGES = 130 * ROW };
    static uint32_t next[MAX_PAGES];
    static uint32_t refs[MAX_PAGES], max_slots[130];
    static uint8_t marks[MAX_PAGES];
    const uint64_t n_rounds = check_rounds(300, 30);
    for (size_t i = 0; i < CHECK_COUNT(n_lanes); i++) {
        pleat__pool pool;
        pleat__table table;
        pleat__plan plan = {0};
        void *block = one_table(&pool, &table, &plan, n_lanes[i] * ROW, n_lanes[i], ROW);
        for (uint64_t round = 0; round < n_rounds && check_failures() == 0; round++) {
            check_context("%u lanes, round %u", n_lanes[i], (unsigned)round);
            for (uint32_t step = 0; step < 4; step++) { /* of at most two pages a side */
                pleat__want want = {.page_tokens = {page_tokens[0], page_tokens[1]}, .fill_hole = check_below(2)};
                for (int side = 0; side < 2; side++)
                    want.n_new[side] = check_below(3) ? 1 : (uint32_t)check_below(2 * page_tokens[side] + 1);
                want.n_new[check_below(2)] *= (uint32_t)check_below(2);
                const uint32_t limits[2] = {5, UINT32_MAX};
                for (uint32_t lane = 0; lane < table.n_lanes; lane++) max_slots[lane] = limits[check_below(2)];
                want.n_new_limited = (uint32_t)check_below(want.n_new[PLEAT__HIGH] + 1);
                want.max_slots = check_below(2) ? max_slots : NULL;
                for (uint32_t k = 0; k < pool.n_free; k++) next[k] = pool.ring[pleat__pool_cell(&pool, k)].v;
                check_needs(&table, &want);
                check_step(&table, &plan, &pool, &want, next);
                random_slots(&table, PLEAT__HIGH);
                random_slots(&table, PLEAT__LOW);
                random_holes(&table);
            }
            memset(refs, 0, sizeof refs);
            CHECK(pleat__table_count_refs(&table, pool.n_pages, refs));
            CHECK(pleat__pool_is_valid(&pool, refs, marks));
            if (check_below(2)) pleat__table_trim(&table, page_tokens, &pool);
            pleat__table_clear(&table, &pool);
            CHECK_EQ_U64(pool.n_free, pool.n_pages);
        }
        free(block);
    }
}

static void test_damage_is_seen(void) {
    world *w = world_new();
    uint32_t refs[N_PAGES] = {0};
    uint8_t marks[N_PAGES];
    w->pool.ring[3].v = 4; /* one id twice, one missing */
    CHECK(!pleat__pool_is_valid(&w->pool, refs, marks));
    w->pool.ring[3].v = 3;
    refs[7] = 1; /* free and referenced */
    CHECK(!pleat__pool_is_valid(&w->pool, refs, marks));
    refs[7] = 0;
    w->pool.shares[7] = 1; /* shared with nobody */
    CHECK(!pleat__pool_is_valid(&w->pool, refs, marks));
    w->pool.shares[7] = 0;
    w->pool.n_shares = 1;
    CHECK(!pleat__pool_is_valid(&w->pool, refs, marks));
    w->pool.n_shares = 0;
    CHECK(pleat__pool_is_valid(&w->pool, refs, marks));
    w->pool.n_free--; /* a page that is neither */
    CHECK(!pleat__pool_is_valid(&w->pool, refs, marks));
    uint32_t table_refs[N_PAGES] = {0};
    w->tables[0].n_pages_all = 1; /* in no lane */
    CHECK(!pleat__table_count_refs(&w->tables[0], N_PAGES, table_refs));
    world_free(w);
}

/* Tables of many lanes in one plan, from a pool that holds exactly what they need, one page more or one less, and whose
 * ring wraps within a block.  All or nothing, and ids in lane order in whatever order the tables commit. */
enum { MANY_TABLES = 7, MANY_LANES = 83, MANY_PAGES = MANY_TABLES * MANY_LANES };

static void test_exact_fit(void) {
    const pleat__want want = {.n_new = {16, 0}, .page_tokens = {16, 40}};
    static pleat__table tables[MANY_TABLES];
    static uint32_t next[MANY_PAGES + 1];
    for (uint64_t round = check_rounds(60, 10); round > 0 && check_failures() == 0; round--) {
        const uint32_t n_pages = MANY_PAGES - 1 + (uint32_t)check_below(3), turn = (uint32_t)check_below(n_pages);
        pleat__pool pool;
        pleat__plan plan = {0};
        void *blocks[MANY_TABLES], *block = one_table(&pool, &tables[0], &plan, n_pages, 1, 1);
        pleat__arena arena = {0};
        pleat__plan_carve(&plan, MANY_TABLES, MANY_PAGES, &arena);
        void *plan_block = aligned_alloc(64, arena.used_bytes);
        arena = (pleat__arena){.base = plan_block, .cap_bytes = arena.used_bytes};
        pleat__plan_carve(&plan, MANY_TABLES, MANY_PAGES, &arena);
        pool.start = turn; /* all are free: any cell may be the first */
        for (uint32_t k = 0; k < n_pages; k++) next[k] = pool.ring[pleat__pool_cell(&pool, k)].v;
        pleat__plan_begin(&plan);
        for (uint32_t t = 0; t < MANY_TABLES; t++) {
            blocks[t] = table_alone(&tables[t], MANY_LANES, 3);
            pleat__plan_add(&plan, &tables[t], &want);
        }
        CHECK_EQ_U64(plan.total, MANY_PAGES);
        const bool fits = pleat__plan_fits(&plan, &pool);
        CHECK_EQ_U64(fits, n_pages >= MANY_PAGES);
        for (uint32_t t = MANY_TABLES; t-- > 0 && fits;) pleat__plan_commit_part(&plan, t, &pool);
        if (fits) pleat__pool_advance(&pool, MANY_PAGES);
        CHECK_EQ_U64(pool.n_free, fits ? n_pages - MANY_PAGES : n_pages);
        for (uint32_t i = 0; i < MANY_PAGES; i++) {
            const pleat__table *t = &tables[i / MANY_LANES];
            CHECK_EQ_U64(t->n_pages[PLEAT__HIGH][i % MANY_LANES], fits);
            if (fits) CHECK_EQ_U64(pleat__table_cell(t, i % MANY_LANES, PLEAT__HIGH, 0)->v, next[i]);
        }
        for (uint32_t t = 0; t < MANY_TABLES; t++) free(blocks[t]);
        free(plan_block);
        free(block);
    }
}

/* Every cell of every row is another one, both sides of a row meet, and steps lead from cell to cell. */
static void test_cells_are_distinct(void) {
    for (uint32_t n_lanes = 1; n_lanes <= 50; n_lanes++) {
        enum { ROW = 9 };
        pleat__table table;
        void *block = table_alone(&table, n_lanes, ROW);
        memset(table.ids, 0, (size_t)n_lanes * ROW * sizeof *table.ids);
        for (uint32_t lane = 0; lane < n_lanes; lane++) {
            for (uint32_t i = 0; i < ROW; i++) {
                pleat__page_id *cell = pleat__table_cell(&table, lane, PLEAT__HIGH, i);
                CHECK(cell >= table.ids && cell < table.ids + (size_t)n_lanes * ROW && cell->v++ == 0);
                CHECK(cell == pleat__table_cell(&table, lane, PLEAT__LOW, ROW - 1 - i));
                const int64_t at = (int64_t)i * pleat__table_step(&table, lane, PLEAT__HIGH);
                CHECK(cell == pleat__table_cell(&table, lane, PLEAT__HIGH, 0) + at);
                CHECK_EQ_I64(pleat__table_step(&table, lane, PLEAT__LOW),
                             -pleat__table_step(&table, lane, PLEAT__HIGH));
            }
        }
        free(block);
    }
}

static void test_arena_overflow(void) {
    pleat__arena arena = {0};
    CHECK(pleat__arena_take(&arena, UINT64_MAX / 2, 4) == NULL);
    CHECK(arena.overflow);
    uint8_t block[64];
    arena = (pleat__arena){.base = block, .cap_bytes = sizeof block};
    CHECK(pleat__arena_take(&arena, 1, 64) == block);
    CHECK(pleat__arena_take(&arena, 1, 1) == NULL && arena.overflow);
}

static const check_test tests[] = {
    {"million_operations", test_million_operations},
    {"row_holds_the_overflowing_case", test_row_holds_the_overflowing_case},
    {"row_holds_every_split", test_row_holds_every_split},
    {"new_table_is_empty", test_new_table_is_empty},
    {"refused_plan_is_forgotten", test_refused_plan_is_forgotten},
    {"hole_saves_a_page", test_hole_saves_a_page},
    {"any_number_of_lanes", test_any_number_of_lanes},
    {"exact_fit", test_exact_fit},
    {"cells_are_distinct", test_cells_are_distinct},
    {"damage_is_seen", test_damage_is_seen},
    {"arena_overflow", test_arena_overflow},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
