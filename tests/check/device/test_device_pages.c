/* SPDX-License-Identifier: MIT
 *
 * test_device_pages.c: the page table on a GPU against the CPU's on the same operations.
 *
 * A world is a pool and the tables of some places, twice: with page/{pool,table,plan}.h here, with page/cuda/pages.h on
 * the device.  Random operations drive both; after each the ring (stale cells too), shares, counts and every cell in use
 * agree, bit for bit.  Batches are some places in any order; the pool swings between full and nearly empty; operations
 * that took effect are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "page/cuda/pages.h"
#include "page/plan.h"

typedef struct shape {
    uint32_t seqs_cap, rows_per_seq, row_len, n_pages, page_tokens[2];
} shape;

typedef struct world {
    shape s;
    uint32_t n_rows;
    /* Here: */
    pleat__pool pool;
    pleat__table *tables; /* [seqs_cap] */
    pleat__plan plan;
    void *block;
    uint32_t *n_tokens;     /* [seqs_cap] */
    uint32_t *batch;        /* [seqs_cap] */
    uint64_t n_refused;     /* plans */
    uint32_t *counts, *ids; /* [n_rows], [n_rows * row_len] for copies */
    /* There: */
    pleat__device_pages p;
    void *device_block;
    uint32_t *device_seqs, *device_tokens;
    bool growing;
    /* Operations that took effect. */
    uint64_t n_taken, n_trimmed, n_recycled, n_many, n_settled, n_closed, n_forked, n_unshared, n_narrow;
} world;

static const pleat__device_stream default_stream = {NULL};

/* ---- making and comparing -------------------------------------------------------------------------------- */

static void carve_host(world *w, pleat__arena *arena) {
    pleat__pool_carve(&w->pool, w->s.n_pages, arena);
    pleat__plan_carve(&w->plan, w->s.seqs_cap, w->n_rows, arena);
    for (uint32_t i = 0; i < w->s.seqs_cap; i++)
        pleat__table_carve(&w->tables[i], w->s.rows_per_seq, w->s.row_len, arena);
}

static void *must_calloc(size_t n, size_t bytes) {
    void *p = calloc(n, bytes);
    if (!p) abort();
    return p;
}

static void make_host(world *w) {
    w->tables = must_calloc(w->s.seqs_cap, sizeof *w->tables);
    pleat__arena arena = {0};
    carve_host(w, &arena);
    w->block = aligned_alloc(64, arena.used_bytes);
    if (!w->block) abort();
    arena = (pleat__arena){.base = w->block, .cap_bytes = arena.used_bytes};
    carve_host(w, &arena);
    pleat__pool_init(&w->pool);
    for (uint32_t i = 0; i < w->s.seqs_cap; i++) pleat__table_init(&w->tables[i]);
    w->n_tokens = must_calloc(w->s.seqs_cap, sizeof *w->n_tokens);
    w->batch = must_calloc(w->s.seqs_cap, sizeof *w->batch);
    w->counts = must_calloc(w->n_rows, sizeof *w->counts);
    w->ids = must_calloc((size_t)w->n_rows * w->s.row_len + w->s.n_pages, sizeof *w->ids);
}

static int make_device(world *w) {
    const shape *s = &w->s;
    const uint64_t bytes = pleat__device_pages_bytes(s->n_pages, s->seqs_cap, s->rows_per_seq, s->row_len);
    if (!CHECK_STATUS(pleat__device_alloc(bytes, &w->device_block, NULL), PLEAT_OK)) return 0;
    CHECK_STATUS(pleat__device_fill(w->device_block, 0xD0, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(s->seqs_cap * sizeof(uint32_t), (void **)&w->device_seqs, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(s->seqs_cap * sizeof(uint32_t), (void **)&w->device_tokens, NULL), PLEAT_OK);
    pleat__device_pages_carve(&w->p, w->device_block, s->n_pages, s->seqs_cap, s->rows_per_seq, s->row_len);
    memcpy(w->p.page_tokens, s->page_tokens, sizeof w->p.page_tokens);
    w->p.seq_idxs = w->device_seqs;
    CHECK_EQ_U64(w->p.n_rows, w->n_rows);
    CHECK_STATUS(pleat__device_fill(w->device_tokens, 0, s->seqs_cap * sizeof(uint32_t), default_stream, NULL),
                 PLEAT_OK);
    return CHECK_STATUS(pleat__device_pages_init(&w->p, s->n_pages, default_stream, NULL), PLEAT_OK);
}

static world *world_new(shape s) {
    world *w = must_calloc(1, sizeof *w);
    w->s = s;
    w->n_rows = s.seqs_cap * s.rows_per_seq;
    make_host(w);
    make_device(w);
    return w;
}

static void world_free(world *w) {
    pleat__device_free(w->device_block);
    pleat__device_free(w->device_seqs);
    pleat__device_free(w->device_tokens);
    free(w->ids);
    free(w->counts);
    free(w->batch);
    free(w->n_tokens);
    free(w->block);
    free(w->tables);
    free(w);
}

static void fetch(void *to, const void *from, uint64_t bytes) {
    CHECK_STATUS(pleat__device_copy(to, from, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

static void send(void *to, const void *from, uint64_t bytes) {
    CHECK_STATUS(pleat__device_copy(to, from, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

/* Which of a table's counts stand in which device array. */
#define N_COUNTS 5
static uint32_t *host_counts(const pleat__table *t, int i) {
    return i < 2 ? t->n_pages[i] : i < 4 ? t->n_slots[i - 2] : t->hole;
}
static uint32_t *device_counts(const world *w, int i) {
    return i < 2 ? w->p.n_pages[i] : i < 4 ? w->p.n_slots[i - 2] : w->p.hole;
}

/* Slots and holes, which are the caller's, as they are here. */
static void send_counts(world *w) {
    const uint32_t n = w->s.rows_per_seq;
    for (int i = 2; i < N_COUNTS; i++) {
        for (uint32_t t = 0; t < w->s.seqs_cap; t++)
            memcpy(w->counts + (size_t)t * n, host_counts(&w->tables[t], i), n * sizeof *w->counts);
        send(device_counts(w, i), w->counts, w->n_rows * sizeof *w->counts);
    }
}

static void compare_pool(world *w) {
    pleat__device_pool pool;
    fetch(&pool, w->p.pool, sizeof pool);
    CHECK_EQ_U64(pool.n_pages, w->pool.n_pages);
    CHECK_EQ_U64(pool.start, w->pool.start);
    CHECK_EQ_U64(pool.n_free, w->pool.n_free);
    CHECK_EQ_U64(pool.n_peak, w->pool.n_peak);
    CHECK_EQ_U64(pool.n_shares, w->pool.n_shares);
    CHECK_EQ_U64(pool.n_refused, w->n_refused);
    CHECK_EQ_U64(pool.n_faults, 0);
    uint32_t *cells = w->ids + (size_t)w->n_rows * w->s.row_len;
    fetch(cells, w->p.ring, w->s.n_pages * sizeof *cells);
    CHECK_EQ_MEM(cells, w->pool.ring, w->s.n_pages * sizeof *cells);
    fetch(cells, w->p.shares, w->s.n_pages * sizeof *cells);
    CHECK_EQ_MEM(cells, w->pool.shares, w->s.n_pages * sizeof *cells);
}

static void compare_row(const world *w, uint32_t t, uint32_t lane) {
    const uint32_t *row = w->ids + ((size_t)t * w->s.rows_per_seq + lane) * w->s.row_len;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < w->tables[t].n_pages[side][lane]; i++) {
            const uint32_t id = pleat__table_cell(&w->tables[t], lane, (pleat__side)side, i)->v;
            if (row[side == 0 ? i : w->s.row_len - 1 - i] == id) continue;
            CHECK_EQ_U64(row[side == 0 ? i : w->s.row_len - 1 - i], id);
            return;
        }
    }
}

static void compare(world *w) {
    const uint32_t n = w->s.rows_per_seq;
    compare_pool(w);
    for (int i = 0; i < N_COUNTS; i++) {
        fetch(w->counts, device_counts(w, i), w->n_rows * sizeof *w->counts);
        for (uint32_t t = 0; t < w->s.seqs_cap; t++)
            CHECK_EQ_MEM(w->counts + (size_t)t * n, host_counts(&w->tables[t], i), n * sizeof *w->counts);
    }
    fetch(w->ids, w->p.ids, (uint64_t)w->n_rows * w->s.row_len * sizeof *w->ids);
    for (uint32_t t = 0; t < w->s.seqs_cap && check_failures() == 0; t++)
        for (uint32_t lane = 0; lane < n; lane++) compare_row(w, t, lane);
}

/* ---- generation --------------------------------------------------------------------------------------------- */

/* Some places, in any order. */
static void draw_batch(world *w) {
    for (uint32_t i = 0; i < w->s.seqs_cap; i++) {
        const uint32_t j = (uint32_t)check_below(i + 1);
        w->batch[i] = w->batch[j];
        w->batch[j] = i;
    }
    w->p.n_seqs = 1 + (uint32_t)check_below(w->s.seqs_cap);
    send(w->device_seqs, w->batch, w->s.seqs_cap * sizeof *w->batch);
}

/* What the lanes of a place want. */
static pleat__want want_of(const world *w, const pleat__device_want *want, uint32_t seq_idx) {
    pleat__want out = {.n_new = {want->n_new[0], want->n_new[1]}, .fill_hole = want->fill_hole};
    memcpy(out.page_tokens, w->s.page_tokens, sizeof out.page_tokens);
    const uint32_t every = want->low_every > 1 ? want->low_every : 1;
    if (want->n_tokens && (w->n_tokens[seq_idx] < want->low_from || (w->n_tokens[seq_idx] + 1) % every > 0))
        out.n_new[1] = 0;
    return out;
}

/* Pages that the place's lanes need; false if one has no room for them. */
static bool has_room(const world *w, uint32_t seq_idx, const pleat__want *want) {
    const pleat__table *t = &w->tables[seq_idx];
    for (uint32_t lane = 0; lane < t->n_lanes; lane++) {
        const uint32_t n = pleat__lane_need(t, lane, PLEAT__HIGH, want) + pleat__lane_need(t, lane, PLEAT__LOW, want);
        if (n > 0 && t->n_pages[0][lane] + t->n_pages[1][lane] + n > t->row_len) return false;
    }
    return true;
}

static uint64_t host_trim(world *w) {
    const uint32_t n_before = w->pool.n_free;
    const uint64_t n_shares = w->pool.n_shares;
    for (uint32_t i = 0; i < w->p.n_seqs; i++) pleat__table_trim(&w->tables[w->batch[i]], w->s.page_tokens, &w->pool);
    w->n_unshared += n_shares - w->pool.n_shares;
    w->n_trimmed += w->pool.n_free - n_before;
    return w->pool.n_free - n_before;
}

/* True if the plan fits. */
static bool host_take(world *w, const pleat__device_want *want) {
    bool room = true;
    pleat__plan_begin(&w->plan);
    for (uint32_t i = 0; i < w->p.n_seqs; i++) {
        const pleat__want here = want_of(w, want, w->batch[i]);
        room &= has_room(w, w->batch[i], &here);
        pleat__plan_add(&w->plan, &w->tables[w->batch[i]], &here);
    }
    w->n_narrow += !room;
    if (!room || !pleat__plan_fits(&w->plan, &w->pool)) {
        w->n_refused++;
        return false;
    }
    pleat__plan_commit(&w->plan, &w->pool);
    w->n_taken += w->plan.total;
    return true;
}

/* The batch's lanes store what they wanted, or less. */
static void grow(world *w, const pleat__device_want *want) {
    for (uint32_t i = 0; i < w->p.n_seqs; i++) {
        pleat__table *t = &w->tables[w->batch[i]];
        const pleat__want here = want_of(w, want, w->batch[i]);
        for (uint32_t lane = 0; lane < t->n_lanes; lane++) {
            if (check_below(16) == 0) continue;
            const bool fills = here.fill_hole && t->hole[lane] && here.n_new[0] > 0;
            t->n_slots[0][lane] += here.n_new[0] - fills;
            t->n_slots[1][lane] += here.n_new[1];
            if (fills) t->hole[lane] = 0;
        }
        w->n_tokens[w->batch[i]]++;
    }
    send(w->device_tokens, w->n_tokens, w->s.seqs_cap * sizeof *w->n_tokens);
    send_counts(w);
}

static pleat__device_want draw_want(world *w) {
    pleat__device_want want = {.fill_hole = check_below(2) == 0,
                               .low_from = (uint32_t)check_below(20),
                               .low_every = check_below(8) ? 0 : (uint32_t)check_between(1, 3)};
    for (int side = 0; side < 2; side++)
        want.n_new[side] =
            (uint32_t)(check_below(w->growing ? 2 : 8) ? check_below(2) : check_below(3 * w->s.page_tokens[side]));
    if (check_below(2)) want.n_tokens = w->device_tokens;
    return want;
}

static void op_take(world *w) {
    draw_batch(w);
    const pleat__device_want want = draw_want(w);
    const bool trims = check_below(2) != 0;
    const uint32_t n_free = w->pool.n_free;
    if (trims) (void)host_trim(w);
    const bool taken = host_take(w, &want);
    w->n_recycled += trims && taken && w->plan.total > n_free;
    w->n_many += taken && want.n_new[0] > w->s.page_tokens[0];
    if (trims)
        CHECK_STATUS(pleat__device_step(&w->p, &want, default_stream, NULL), PLEAT_OK);
    else
        CHECK_STATUS(pleat__device_take(&w->p, &want, default_stream, NULL), PLEAT_OK);
    pleat__device_pool pool;
    fetch(&pool, w->p.pool, sizeof pool);
    CHECK_EQ_U64(pool.refused, !taken);
    if (taken && check_below(8)) grow(w, &want); /* else there are pages ahead of slots */
}

/* Lanes lose slots and get holes. */
static void op_shrink(world *w) {
    pleat__table *t = &w->tables[check_below(w->s.seqs_cap)];
    const uint32_t most = w->growing ? 2 : 3 * w->s.page_tokens[0];
    for (uint32_t lane = 0; lane < t->n_lanes; lane++) {
        for (int side = 0; side < 2; side++) {
            const uint32_t n = (uint32_t)check_below(most);
            t->n_slots[side][lane] -= n < t->n_slots[side][lane] ? n : t->n_slots[side][lane];
        }
        const uint32_t n_slots = t->n_slots[0][lane];
        t->hole[lane] = n_slots > 0 && check_below(2) ? 1 + (uint32_t)check_below(n_slots) : 0;
    }
    send_counts(w);
}

static void op_trim(world *w) {
    draw_batch(w);
    (void)host_trim(w);
    CHECK_STATUS(pleat__device_trim(&w->p, default_stream, NULL), PLEAT_OK);
}

/* ---- places -------------------------------------------------------------------------------------------------- */

/* Any place, empty or not as asked; seqs_cap if there is none. */
static uint32_t draw_seq(const world *w, bool empty) {
    const uint32_t first = (uint32_t)check_below(w->s.seqs_cap);
    for (uint32_t i = 0; i < w->s.seqs_cap; i++) {
        const uint32_t t = (first + i) % w->s.seqs_cap;
        if ((w->tables[t].n_pages_all == 0) == empty) return t;
    }
    return w->s.seqs_cap;
}

static bool host_reserve(world *w, uint32_t seq_idx, uint32_t first, uint32_t n_lanes, uint32_t n_each) {
    pleat__table *t = &w->tables[seq_idx];
    if ((uint64_t)n_lanes * n_each > w->pool.n_free) {
        w->n_refused++;
        return false;
    }
    pleat__pool_taker taker = pleat__pool_taker_at(&w->pool, 0);
    for (uint32_t lane = first; lane < first + n_lanes; lane++) {
        for (uint32_t i = 0; i < n_each; i++) *pleat__table_cell(t, lane, PLEAT__HIGH, i) = pleat__pool_take(&taker);
        t->n_pages[0][lane] = n_each;
    }
    t->n_pages_all += n_lanes * n_each;
    pleat__pool_advance(&w->pool, n_lanes * n_each);
    return true;
}

/* The lane's last reserved pages become its low ones, and what is between goes back. */
static void host_settle_lane(world *w, pleat__table *t, uint32_t lane, uint32_t n_reserved) {
    const uint32_t n_high = pleat__div_up_u32(t->n_slots[0][lane], w->s.page_tokens[0]);
    const uint32_t n_low = pleat__div_up_u32(t->n_slots[1][lane], w->s.page_tokens[1]);
    if (n_reserved == 0) {
        t->n_slots[0][lane] = t->n_slots[1][lane] = 0;
        return;
    }
    for (uint32_t i = 0; i < n_low; i++)
        *pleat__table_cell(t, lane, PLEAT__LOW, i) = *pleat__table_cell(t, lane, PLEAT__HIGH, n_reserved - 1 - i);
    t->n_pages[0][lane] = n_reserved - n_low;
    t->n_pages[1][lane] = n_low;
    pleat__lane_return_pages(t, lane, PLEAT__HIGH, n_high, &w->pool);
}

/* n_tokens tokens, of which some stay high, some become low, the rest is dropped. */
static void draw_slots(pleat__table *t, uint32_t lane, uint32_t n_tokens) {
    const uint32_t n = (uint32_t)check_below(4) ? n_tokens : (uint32_t)check_below(n_tokens + 1);
    t->n_slots[0][lane] = (uint32_t)check_below(n + 1);
    t->n_slots[1][lane] = check_below(4) ? n - t->n_slots[0][lane] : 0;
    t->hole[lane] = 0;
}

static void op_prompt(world *w) {
    const uint32_t seq_idx = draw_seq(w, true), n_lanes = w->s.rows_per_seq;
    const uint32_t most = (w->s.row_len - 1) * w->s.page_tokens[0];
    const uint32_t n_tokens = (uint32_t)(check_below(4) ? check_below(most / 3) : check_below(most + 1));
    const uint32_t n_each = pleat__div_up_u32(n_tokens, w->s.page_tokens[0]) + 1;
    if (seq_idx == w->s.seqs_cap) return;
    pleat__table *t = &w->tables[seq_idx];
    const uint32_t n_layer = 1 + (uint32_t)check_below(n_lanes), row = seq_idx * n_lanes; /* in two parts, or one */
    for (uint32_t first = 0; first < n_lanes; first += n_layer) {
        const uint32_t n = pleat__min_u32(n_layer, n_lanes - first);
        const bool taken = host_reserve(w, seq_idx, first, n, n_each);
        CHECK_STATUS(pleat__device_reserve(&w->p, row + first, n, n_each, default_stream, NULL), PLEAT_OK);
        for (uint32_t lane = first; lane < first + n; lane++) draw_slots(t, lane, n_tokens);
        send_counts(w);
        CHECK_STATUS(pleat__device_settle(&w->p, row + first, n, default_stream, NULL), PLEAT_OK);
        for (uint32_t lane = first; lane < first + n; lane++) host_settle_lane(w, t, lane, taken ? n_each : 0);
        w->n_settled += taken;
    }
    w->n_tokens[seq_idx] = n_tokens;
    send(w->device_tokens, w->n_tokens, w->s.seqs_cap * sizeof *w->n_tokens);
}

static void op_close(world *w) {
    const uint32_t seq_idx = draw_seq(w, check_below(20) == 0);
    if (seq_idx == w->s.seqs_cap) return;
    pleat__table *t = &w->tables[seq_idx];
    for (uint32_t lane = 0; lane < t->n_lanes; lane++)
        for (int side = 0; side < 2; side++) pleat__lane_return_pages(t, lane, (pleat__side)side, 0, &w->pool);
    CHECK_EQ_U64(t->n_pages_all, 0);
    pleat__table_init(t);
    CHECK_STATUS(pleat__device_close(&w->p, seq_idx, default_stream, NULL), PLEAT_OK);
    w->n_closed++;
}

static void op_fork(world *w) {
    const uint32_t a = draw_seq(w, false), b = draw_seq(w, true);
    if (a == w->s.seqs_cap || b == w->s.seqs_cap) return;
    const pleat__table *from = &w->tables[a];
    pleat__table *to = &w->tables[b];
    for (uint32_t lane = 0; lane < from->n_lanes; lane++) {
        for (int s = 0; s < 2; s++) {
            for (uint32_t i = 0; i < from->n_pages[s][lane]; i++) {
                const pleat__page_id id = *pleat__table_cell(from, lane, (pleat__side)s, i);
                *pleat__table_cell(to, lane, (pleat__side)s, i) = id;
                pleat__pool_ref(&w->pool, id);
            }
            to->n_pages[s][lane] = from->n_pages[s][lane];
            to->n_slots[s][lane] = from->n_slots[s][lane];
        }
        to->hole[lane] = from->hole[lane];
    }
    to->n_pages_all = from->n_pages_all;
    CHECK_STATUS(pleat__device_fork(&w->p, a, b, default_stream, NULL), PLEAT_OK);
    w->n_forked++;
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void one_op(world *w) {
    const uint64_t what = check_below(w->growing ? 17 : 20);
    if (w->pool.n_free <= w->s.n_pages / 40) w->growing = false;
    if (w->pool.n_free >= w->s.n_pages - w->s.n_pages / 10) w->growing = true;
    if (what < 9)
        op_take(w);
    else if (what < 11)
        op_prompt(w);
    else if (what < 13)
        op_shrink(w);
    else if (what < 14)
        op_fork(w);
    else if (what < 16)
        op_trim(w);
    else
        op_close(w);
}

static void run_world(world *w, uint64_t n_ops) {
    for (uint64_t i = 0; i < n_ops && check_failures() == 0; i++) {
        one_op(w);
        compare(w);
        bool valid = false;
        if (i % 16 != 0) continue;
        CHECK_STATUS(pleat__device_pages_check(&w->p, false, default_stream, &valid, NULL), PLEAT_OK);
        CHECK(valid);
    }
    draw_batch(w);
    w->p.n_seqs = w->s.seqs_cap;
    CHECK_STATUS(pleat__device_trim(&w->p, default_stream, NULL), PLEAT_OK);
    bool valid = false;
    CHECK_STATUS(pleat__device_pages_check(&w->p, true, default_stream, &valid, NULL), PLEAT_OK);
    CHECK(valid);
}

static void test_random(void) {
    CHECK_DEVICE();
    world *w = world_new((shape){7, 3, 34, 331, {16, 40}}); /* the second no power of two */
    run_world(w, check_cases(check_rounds(3000, 500), 60));
    if (check_cases(1, 0)) {
        CHECK(w->n_taken > 500 && w->n_trimmed > 100 && w->n_many > 10 && w->n_refused > 10);
        CHECK(w->n_settled > 20 && w->n_closed > 20 && w->n_forked > 5 && w->n_unshared > 5);
    }
    world_free(w);
}

static void test_one_lane(void) {
    CHECK_DEVICE();
    world *w = world_new((shape){1, 1, 9, 8, {16, 32}});
    run_world(w, check_cases(check_rounds(500, 100), 30));
    if (check_cases(1, 0)) CHECK(w->n_taken > 5 && w->n_narrow + w->n_refused > 5);
    world_free(w);
}

/* Several lanes a thread, rows of several hundred cells, a pool that is too small for all. */
static void test_many_lanes(void) {
    CHECK_DEVICE();
    static const shape shapes[] = {
        {160, 256, 12, 250000, {16, 32}}, {37, 135, 40, 70000, {32, 64}}, {3, 7, 700, 12000, {16, 16}}};
    for (size_t i = 0; i < CHECK_COUNT(shapes); i++) {
        check_context("%u sequences of %u rows", shapes[i].seqs_cap, shapes[i].rows_per_seq);
        world *w = world_new(shapes[i]);
        run_world(w, check_cases(check_rounds(i == 0 ? 80 : 300, 20), 8));
        if (check_rounds(1, 0)) CHECK(w->n_taken > 0 && w->n_trimmed > 0 && w->n_settled > 0);
        world_free(w);
    }
}

/* Half of the places are forks of the others, and all are in one batch: pages come free with the last of their droppers, and
 * are taken again in the same launch. */
static void share_and_recycle(shape s) {
    world *w = world_new(s);
    const uint32_t n_half = s.seqs_cap / 2;
    const pleat__device_want want = {.n_new = {s.page_tokens[0], 1}};
    for (uint64_t round = 0; round < check_cases(8, 2) && check_failures() == 0; round++) {
        for (uint32_t i = 0; i < 2 * s.seqs_cap && w->pool.n_free > 4 * s.rows_per_seq; i++)
            if (i < n_half)
                op_prompt(w);
            else
                op_fork(w);
        compare(w);
        for (int i = 0; i < 12; i++) {
            w->growing = i < 6; /* first lanes lose a slot or none, then whole pages */
            for (uint32_t k = 0; k < s.seqs_cap; k++) op_shrink(w);
            draw_batch(w);
            w->p.n_seqs = s.seqs_cap;
            const uint32_t n_free = w->pool.n_free;
            (void)host_trim(w);
            w->n_recycled += host_take(w, &want) && w->plan.total > n_free;
            CHECK_STATUS(pleat__device_step(&w->p, &want, default_stream, NULL), PLEAT_OK);
            compare(w);
        }
        while (draw_seq(w, false) < s.seqs_cap && check_failures() == 0) op_close(w);
        compare(w);
    }
    CHECK(w->n_unshared > 0 && w->n_recycled > 0 && w->n_trimmed > 0);
    world_free(w);
}

static void test_shared(void) {
    CHECK_DEVICE();
    share_and_recycle((shape){8, 5, 20, 110, {16, 32}});
    if (check_cases(1, 0)) share_and_recycle((shape){40, 70, 12, 6500, {16, 32}});
    if (check_rounds(1, 0)) share_and_recycle((shape){144, 256, 9, 95000, {16, 32}}); /* several lanes a thread */
}

/* A recorded step sees what pool and counts are when it runs. */
static void test_graph(void) {
    CHECK_DEVICE();
    world *w = world_new((shape){9, 70, 20, 4000, {16, 32}});
    pleat__device_stream stream;
    pleat__device_graph graph;
    for (int i = 0; i < 10; i++) op_prompt(w);
    draw_batch(w);
    const pleat__device_want want = {.n_new = {20, 1}, .fill_hole = true};
    CHECK_STATUS(pleat__device_stream_create(&stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_begin(stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_step(&w->p, &want, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_trim(&w->p, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_take(&w->p, &want, stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_end(stream, &graph, NULL), PLEAT_OK);
    const uint32_t n_seqs = w->p.n_seqs; /* is recorded; which places they are is not */
    for (uint64_t i = 0; i < check_cases(40, 4); i++) {
        draw_batch(w);
        w->p.n_seqs = n_seqs;
        for (int k = 0; k < 2; k++) {
            (void)host_trim(w);
            (void)host_take(w, &want);
        }
        CHECK_STATUS(pleat__device_graph_launch(graph, stream, NULL), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(stream, NULL), PLEAT_OK);
        compare(w);
        for (int k = 0; k < 3; k++) one_op(w);
    }
    CHECK(w->n_taken > 0);
    pleat__device_graph_destroy(&graph);
    pleat__device_stream_destroy(&stream);
    world_free(w);
}

static void test_errors(void) {
    CHECK_DEVICE();
    pleat_error err;
    world *w = world_new((shape){4, 5, 10, 100, {16, 32}});
    const pleat__device_want want = {.n_new = {1, 0}};
    CHECK_STATUS(pleat__device_reserve(&w->p, 0, 5, 11, default_stream, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_reserve(&w->p, 16, 5, 1, default_stream, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_settle(&w->p, UINT32_MAX, 5, default_stream, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_close(&w->p, 4, default_stream, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_close(&w->p, UINT32_MAX, default_stream, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat__device_fork(&w->p, 1, 1, default_stream, &err), PLEAT_E_ARG);
    w->p.n_seqs = 0;
    CHECK_STATUS(pleat__device_step(&w->p, &want, default_stream, &err), PLEAT_OK); /* nobody wants anything */
    draw_batch(w);
    compare(w);
    /* More slots than reserved pages hold: a fault, and nothing outside the row. */
    bool valid;
    pleat__device_pool pool;
    CHECK_STATUS(pleat__device_reserve(&w->p, 5, 5, 3, default_stream, &err), PLEAT_OK);
    for (uint32_t lane = 0; lane < 5; lane++) w->tables[1].n_slots[lane % 2][lane] = 64 + 8 * lane;
    send_counts(w);
    CHECK_STATUS(pleat__device_settle(&w->p, 5, 5, default_stream, &err), PLEAT_OK);
    fetch(&pool, w->p.pool, sizeof pool);
    CHECK_EQ_U64(pool.n_faults, 3); /* lanes 0, 2 and 4: 64 high slots and more in three pages of 16 */
    CHECK_EQ_U64(pool.n_free, 100 - 15);
    CHECK_STATUS(pleat__device_pages_check(&w->p, true, default_stream, &valid, &err), PLEAT_OK);
    CHECK(!valid);
    pleat__device_fail_at(1);
    CHECK_STATUS(pleat__device_step(&w->p, &want, default_stream, &err), PLEAT_E_DEVICE);
    pleat__device_fail_at(0);
    world_free(w);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"random", test_random},         {"one_lane", test_one_lane},
                                       {"many_lanes", test_many_lanes}, {"shared", test_shared},
                                       {"graph", test_graph},           {"errors", test_errors}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
