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

enum { N_PAGES = 211, N_TABLES = 5, N_LANES = 3, ROW_LEN = 34, PAGE_TOKENS = 16 };

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

typedef struct world {
    pleat__pool pool;
    pleat__table tables[N_TABLES];
    pleat__plan plan;
    void *block;
    oracle o;
    uint32_t extra_refs[N_PAGES]; /* references held by no table */
    bool growing;                 /* operations take more than they give back */
    /* Operations that took effect. */
    uint64_t n_steps, n_refused, n_low, n_given_back, n_shared, n_unshared, n_swings;
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

/* Plan n_new tokens for some tables; commit if they fit. */
static void op_step(world *w) {
    uint32_t n_new[N_TABLES], want = 0;
    pleat__plan_begin(&w->plan);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        n_new[t] = check_below(w->growing ? 2 : 20) == 0 ? (uint32_t)check_below(2 * PAGE_TOKENS) : 0;
        for (uint32_t lane = 0; lane < N_LANES; lane++) {
            const pleat__lane *l = &w->tables[t].lanes[lane];
            const uint32_t room = ROW_LEN - l->n_pages[PLEAT__LOW];
            const uint32_t after = (l->n_slots[PLEAT__HIGH] + n_new[t] + PAGE_TOKENS - 1) / PAGE_TOKENS;
            if (after > room) n_new[t] = 0;
        }
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            want += (w->tables[t].lanes[lane].n_slots[PLEAT__HIGH] + n_new[t] + PAGE_TOKENS - 1) / PAGE_TOKENS -
                    w->o.n_pages[t][lane][PLEAT__HIGH];
        pleat__plan_add(&w->plan, &w->tables[t], n_new[t], PAGE_TOKENS);
    }
    const bool fits = pleat__plan_fits(&w->plan, &w->pool);
    CHECK_EQ_U64(fits, want <= w->o.n_free);
    CHECK_EQ_U64(w->plan.total, want);
    w->n_refused += !fits;
    if (!fits) return;
    w->n_steps += want > 0;
    pleat__plan_commit(&w->plan, &w->pool);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        for (uint32_t lane = 0; lane < N_LANES; lane++) {
            pleat__lane *l = &w->tables[t].lanes[lane];
            l->n_slots[PLEAT__HIGH] += n_new[t];
            uint32_t *n = &w->o.n_pages[t][lane][PLEAT__HIGH];
            while (*n * PAGE_TOKENS < l->n_slots[PLEAT__HIGH])
                w->o.pages[t][lane][PLEAT__HIGH][(*n)++] = oracle_take(&w->o);
        }
    }
}

/* Take one page for the low side of a lane, straight from the pool. */
static void op_low(world *w) {
    const uint32_t t = (uint32_t)check_below(N_TABLES), lane = (uint32_t)check_below(N_LANES);
    pleat__lane *l = &w->tables[t].lanes[lane];
    if (w->o.n_free == 0 || l->n_pages[0] + l->n_pages[1] == ROW_LEN) return;
    w->n_low++;
    *pleat__table_cell(&w->tables[t], lane, PLEAT__LOW, l->n_pages[PLEAT__LOW]++) = pleat__pool_take_at(&w->pool, 0);
    pleat__pool_advance(&w->pool, 1);
    w->o.pages[t][lane][PLEAT__LOW][w->o.n_pages[t][lane][PLEAT__LOW]++] = oracle_take(&w->o);
}

static void op_give_back(world *w) {
    const uint32_t t = (uint32_t)check_below(N_TABLES), lane = (uint32_t)check_below(N_LANES);
    const pleat__side side = (pleat__side)check_below(2);
    pleat__lane *l = &w->tables[t].lanes[lane];
    const uint32_t n_give = (uint32_t)check_below(w->growing ? 3 : 9);
    const uint32_t n_keep = l->n_pages[side] > n_give ? l->n_pages[side] - n_give : 0;
    w->n_given_back += l->n_pages[side] - n_keep;
    pleat__lane_give_back(&w->tables[t], lane, side, n_keep, &w->pool);
    uint32_t *n = &w->o.n_pages[t][lane][side];
    while (*n > n_keep) oracle_unref(&w->o, w->o.pages[t][lane][side][--*n]);
    if (side == PLEAT__HIGH && l->n_slots[side] > n_keep * PAGE_TOKENS) l->n_slots[side] = n_keep * PAGE_TOKENS;
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

static void compare(const world *w) {
    uint8_t marks[N_PAGES];
    uint32_t refs[N_PAGES];
    CHECK(pleat__pool_is_valid(&w->pool, marks));
    CHECK_EQ_U64(w->pool.n_free, w->o.n_free);
    CHECK_EQ_U64(w->pool.n_peak, w->o.n_peak);
    for (uint32_t i = 0; i < w->o.n_free; i++)
        CHECK_EQ_U64(w->pool.ring[pleat__pool_cell(&w->pool, i)].v, w->o.queue[i]);
    memcpy(refs, w->extra_refs, sizeof refs);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        CHECK(pleat__table_count_refs(&w->tables[t], N_PAGES, refs));
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            for (int side = 0; side < 2; side++)
                for (uint32_t i = 0; i < w->o.n_pages[t][lane][side]; i++)
                    CHECK_EQ_U64(pleat__table_cell(&w->tables[t], lane, (pleat__side)side, i)->v,
                                 w->o.pages[t][lane][side][i]);
    }
    CHECK_EQ_MEM(refs, w->o.refs, sizeof refs);
    CHECK_EQ_MEM(refs, w->pool.refs, sizeof refs);
}

/* Grow until no page is free, shrink until three in four are. */
static void swing(world *w) {
    if (w->growing ? w->o.n_free > 0 : w->o.n_free < N_PAGES * 3 / 4) return;
    w->growing = !w->growing;
    w->n_swings++;
}

/* Everything goes back: every page free, every count 0. */
static void give_all_back(world *w) {
    for (uint32_t t = 0; t < N_TABLES; t++)
        for (uint32_t lane = 0; lane < N_LANES; lane++)
            for (int side = 0; side < 2; side++)
                pleat__lane_give_back(&w->tables[t], lane, (pleat__side)side, 0, &w->pool);
    for (uint32_t id = 0; id < N_PAGES; id++)
        for (; w->extra_refs[id] > 0; w->extra_refs[id]--) pleat__pool_unref(&w->pool, (pleat__page_id){id});
    CHECK_EQ_U64(w->pool.n_free, N_PAGES);
    for (uint32_t id = 0; id < N_PAGES; id++) CHECK_EQ_U64(w->pool.refs[id], 0);
}

static void test_million_operations(void) {
    world *w = world_new();
    const uint64_t n = check_rounds(1000000, 50000);
    for (uint64_t i = 0; i < n && check_failures() == 0; i++) {
        swing(w);
        switch (check_below(8)) {
            case 0: op_step(w); break;
            case 1: op_low(w); break;
            case 2: w->growing ? op_low(w) : op_give_back(w); break;
            case 3:
            case 4: op_share(w); break;
            default: op_give_back(w); break;
        }
        if (i % 97 == 0 || i + 1 == n) compare(w);
    }
    give_all_back(w);
    CHECK(w->n_steps > n / 50 && w->n_refused > n / 1000 && w->n_low > n / 50 && w->n_swings > n / 2000);
    CHECK(w->n_given_back > n / 5 && w->n_shared > n / 50 && w->n_unshared > n / 50);
    world_free(w);
}

/* The paper's overflowing case: 2 high or 4 low tokens a page, 8 tokens, 7 high and 1 low: 5 pages in a row to which
 * the paper gives 4. */
static void test_row_holds_the_overflowing_case(void) {
    CHECK(pleat__table_row_len(8, 2) >= 4 + 1);
    pleat__arena arena = {0};
    pleat__table table;
    pleat__table_carve(&table, 1, pleat__table_row_len(8, 2), &arena);
    const uint64_t bytes = arena.used_bytes;
    void *block = aligned_alloc(64, bytes);
    arena = (pleat__arena){.base = block, .cap_bytes = bytes};
    pleat__table_carve(&table, 1, pleat__table_row_len(8, 2), &arena);
    pleat__table_init(&table);
    for (uint32_t i = 0; i < 4; i++)
        pleat__table_cell(&table, 0, PLEAT__HIGH, table.lanes[0].n_pages[PLEAT__HIGH]++)->v = i;
    pleat__table_cell(&table, 0, PLEAT__LOW, table.lanes[0].n_pages[PLEAT__LOW]++)->v = 4;
    uint32_t refs[5] = {0};
    CHECK(pleat__table_count_refs(&table, 5, refs));
    for (int i = 0; i < 5; i++) CHECK_EQ_U64(refs[i], 1);
    free(block);
}

static void test_damage_is_seen(void) {
    world *w = world_new();
    uint8_t marks[N_PAGES];
    w->pool.ring[3].v = 4; /* one id twice, one missing */
    CHECK(!pleat__pool_is_valid(&w->pool, marks));
    w->pool.ring[3].v = 3;
    w->pool.refs[7] = 1; /* free and referenced */
    CHECK(!pleat__pool_is_valid(&w->pool, marks));
    w->pool.refs[7] = 0;
    CHECK(pleat__pool_is_valid(&w->pool, marks));
    w->pool.n_free--; /* a page that is neither */
    CHECK(!pleat__pool_is_valid(&w->pool, marks));
    world_free(w);
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
    {"damage_is_seen", test_damage_is_seen},
    {"arena_overflow", test_arena_overflow},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
