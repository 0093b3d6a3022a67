/* SPDX-License-Identifier: MIT
 *
 * test_slabs.c: pieces of slabs that a thread gets ahead: none overlap, all are counted, nobody waits for ever, and what the
 * source has no more of is said.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "engine/slabs.h"

#define UNIT PLEAT__SLAB_UNIT
#define LOTS (UINT64_MAX / 2)
enum { PIECES = 40, ROUNDS = 4000, SLAB_UNITS = 16 };

/* Memory that is never touched but at each unit's first byte; of as many bytes as there are. */
typedef struct source {
    atomic_uint_fast64_t n_left;
    atomic_uint n_gets, n_in_get, n_at_once; /* the last: how often rule (3) did not hold */
    atomic_bool is_slow;
} source;

static void *get(void *ctx, uint64_t n_bytes) {
    source *s = ctx;
    if (atomic_fetch_add(&s->n_in_get, 1) > 0) atomic_fetch_add(&s->n_at_once, 1);
    atomic_fetch_add(&s->n_gets, 1);
    if (atomic_load(&s->is_slow)) usleep(2000);
    void *p = n_bytes <= atomic_load(&s->n_left) ? malloc(n_bytes) : NULL;
    if (p) atomic_fetch_sub(&s->n_left, n_bytes);
    atomic_fetch_sub(&s->n_in_get, 1);
    return p;
}

static void put(void *ctx, void *p, uint64_t n_bytes) {
    source *s = ctx;
    atomic_fetch_add(&s->n_left, n_bytes);
    free(p);
}

/* All has gone back. */
static void end(pleat__slabs **slabs, const source *from, uint64_t n_left) {
    pleat__slabs_destroy(slabs);
    CHECK(*slabs == NULL);
    CHECK_EQ_U64(atomic_load(&from->n_left), n_left);
    CHECK_EQ_U64(atomic_load(&from->n_at_once), 0);
}

static pleat__slabs *make(source *s, uint64_t n_left) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    const pleat__slab_source from = {get, put, s};
    *s = (source){.n_left = n_left};
    return pleat__slabs_create(&from, SLAB_UNITS * UNIT, &al);
}

/* A piece, each of whose units begins with its number. */
typedef struct piece {
    uint8_t *p;
    uint64_t n_bytes;
    uint8_t mark;
} piece;

static void mark(const piece *of) {
    for (uint64_t at = 0; at < of->n_bytes; at += UNIT) of->p[at] = of->mark;
    of->p[of->n_bytes - 1] = of->mark;
}

static void check_mark(const piece *of) {
    bool is_own = of->p[of->n_bytes - 1] == of->mark;
    for (uint64_t at = 0; at < of->n_bytes; at += UNIT) is_own &= of->p[at] == of->mark;
    CHECK(is_own);
}

static uint64_t units_of(uint64_t n_bytes) { return (n_bytes + UNIT - 1) / UNIT; }

/* Take and drop at random; the sums are checked after each. */
static void churn(pleat__slabs *s, uint32_t n_rounds, uint64_t most_units) {
    piece pieces[PIECES] = {0};
    uint64_t n_taken = 0, n_units, n_free;
    for (uint32_t i = 0; i < n_rounds && check_failures() == 0; i++) {
        piece *of = &pieces[check_below(PIECES)];
        if (of->p) {
            check_mark(of);
            const uint64_t shift = check_below(2) ? check_below(64) : 0; /* where an image may begin in its piece */
            n_taken -= units_of(of->n_bytes);
            pleat__slabs_drop(s, of->p + shift, of->n_bytes > shift ? of->n_bytes - shift : 1);
            of->p = NULL;
        } else {
            *of = (piece){.n_bytes = 65 + check_below(most_units * UNIT - 65), .mark = (uint8_t)(1 + i % 255)};
            of->p = pleat__slabs_take(s, of->n_bytes);
            if (!CHECK(of->p != NULL)) return;
            n_taken += units_of(of->n_bytes);
            mark(of);
        }
        CHECK(pleat__slabs_are_valid(s, &n_units, &n_free));
        CHECK_EQ_U64(n_units - n_free, n_taken);
    }
    for (uint32_t i = 0; i < PIECES; i++)
        if (pieces[i].p) pleat__slabs_drop(s, pieces[i].p, pieces[i].n_bytes);
    CHECK(pleat__slabs_are_valid(s, &n_units, &n_free));
    CHECK_EQ_U64(n_free, n_units);
}

static void test_random(void) {
    for (int expects = 0; expects < 2 && check_failures() == 0; expects++) {
        source from;
        pleat__slabs *s = make(&from, LOTS);
        if (!CHECK(s != NULL)) return;
        if (expects) pleat__slabs_expect(s, 2 * SLAB_UNITS * UNIT, 30 * SLAB_UNITS * UNIT);
        churn(s, ROUNDS, SLAB_UNITS);
        churn(s, ROUNDS / 10, 3 * SLAB_UNITS); /* larger than slabs were */
        end(&s, &from, LOTS);
    }
}

static bool wait_for_free(pleat__slabs *s, uint64_t n) {
    uint64_t n_units = 0, n_free = 0;
    for (int i = 0; i < 5000 && n_free < n; i++) {
        usleep(1000);
        CHECK(pleat__slabs_are_valid(s, &n_units, &n_free));
    }
    return n_free >= n;
}

/* As much is ready as is asked for, up to the most; who takes it gets no slab, and waits for none. */
static void test_ahead(void) {
    source from;
    void *p[8];
    pleat__slabs *s = make(&from, LOTS);
    if (!CHECK(s != NULL)) return;
    pleat__slabs_expect(s, 2 * SLAB_UNITS * UNIT, (4 * SLAB_UNITS + 3) * UNIT);
    CHECK(wait_for_free(s, 2 * SLAB_UNITS));
    CHECK_EQ_U64(atomic_load(&from.n_gets), 2);
    for (int i = 0; i < 4; i++) {
        p[i] = pleat__slabs_take(s, SLAB_UNITS * UNIT);
        CHECK(p[i] != NULL);
        CHECK(wait_for_free(s, i < 2 ? 2 * SLAB_UNITS : i == 2 ? SLAB_UNITS + 3 : 3));
        CHECK_EQ_U64(atomic_load(&from.n_gets), i < 2 ? 3 + (unsigned)i : 5);
    }
    p[4] = pleat__slabs_take(s, 3 * UNIT); /* the last of them, which is smaller */
    CHECK_EQ_U64(atomic_load(&from.n_gets), 5);
    p[5] = pleat__slabs_take(s, UNIT); /* beyond what was expected: now */
    CHECK(p[4] && p[5]);
    CHECK_EQ_U64(atomic_load(&from.n_gets), 6);
    end(&s, &from, LOTS);
}

/* Who takes while a slab is being got has of that one. */
static void test_waits(void) {
    source from;
    pleat__slabs *s = make(&from, LOTS);
    if (!CHECK(s != NULL)) return;
    atomic_store(&from.is_slow, true);
    pleat__slabs_expect(s, SLAB_UNITS * UNIT, SLAB_UNITS * UNIT);
    while (atomic_load(&from.n_in_get) == 0) usleep(10);
    CHECK(pleat__slabs_take(s, SLAB_UNITS * UNIT) != NULL);
    CHECK_EQ_U64(atomic_load(&from.n_gets), 1);
    end(&s, &from, LOTS);
}

/* There is no more: what is free goes for what is wanted, else NULL, and there is some again later. */
static void test_none(void) {
    source from;
    const uint64_t slab_bytes = SLAB_UNITS * (UNIT + 1);
    pleat__slabs *s = make(&from, 2 * slab_bytes);
    if (!CHECK(s != NULL)) return;
    pleat__slabs_expect(s, 4 * SLAB_UNITS * UNIT, 100 * SLAB_UNITS * UNIT);
    void *p = pleat__slabs_take(s, 2 * SLAB_UNITS * UNIT - 100); /* the two slabs go */
    CHECK(p != NULL);
    CHECK(pleat__slabs_take(s, UNIT) == NULL);
    pleat__slabs_drop(s, p, 2 * SLAB_UNITS * UNIT - 100);
    p = pleat__slabs_take(s, UNIT);
    CHECK(p != NULL);
    CHECK(pleat__slabs_take(s, 100 * SLAB_UNITS * UNIT) == NULL);
    CHECK(pleat__slabs_take(s, 0) == NULL);
    CHECK(pleat__slabs_take(s, UINT64_MAX) == NULL);
    end(&s, &from, 2 * slab_bytes);
}

/* Two who take, and the thread. */
static void *churn_beside(void *ctx) {
    pleat__slabs *s = ctx;
    uint32_t n_wrong = 0;
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        piece of = {.n_bytes = UNIT * (1 + i % 5), .mark = (uint8_t)(i % 200 + 1)};
        of.p = pleat__slabs_take(s, of.n_bytes);
        if (!of.p) return NULL;
        mark(&of);
        for (uint64_t at = 0; at < of.n_bytes; at += UNIT) n_wrong += of.p[at] != of.mark;
        pleat__slabs_drop(s, of.p, of.n_bytes);
    }
    return n_wrong == 0 ? s : NULL;
}

static void test_company(void) {
    source from;
    pthread_t threads[2];
    pleat__slabs *s = make(&from, LOTS);
    if (!CHECK(s != NULL)) return;
    pleat__slabs_expect(s, 3 * SLAB_UNITS * UNIT, 9 * SLAB_UNITS * UNIT);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, churn_beside, s) == 0);
    for (int i = 0; i < 2; i++) {
        void *is_well = NULL;
        CHECK(pthread_join(threads[i], &is_well) == 0);
        CHECK(is_well != NULL);
    }
    end(&s, &from, LOTS);
}

static void test_memory(void) {
    source from = {.n_left = LOTS};
    const pleat__slab_source where = {get, put, &from};
    pleat__slabs *none = NULL;
    check_alloc ca;
    check_alloc_init(&ca, 1, 0);
    pleat__slabs_destroy(&none);
    CHECK(pleat__slabs_create(&where, UNIT, &ca.a) == NULL);
}

static const check_test tests[] = {{"random", test_random}, {"ahead", test_ahead},     {"waits", test_waits},
                                   {"none", test_none},     {"company", test_company}, {"memory", test_memory}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
