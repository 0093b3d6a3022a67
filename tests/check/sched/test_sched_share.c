/* SPDX-License-Identifier: MIT
 *
 * test_sched_share.c: what tenants get: their shares of the service, and of the pool.
 */
#include <stdlib.h>

#include "check.h"
#include "sched/sched.h"

/* ---- fairness -------------------------------------------------------------------------------------- */

enum { CHUNK = 8, QUEUE = 8 };

/* Two tenants whose requests are prompts of one chunk, QUEUE of each waiting as long as it is at work. */
typedef struct two_shops {
    pleat__sched *s;
    uint64_t arrival;
    bool at_work[2];
    pleat__sched_id queue[2][QUEUE]; /* v is 0 where nobody is */
} two_shops;

static two_shops open_shops(uint32_t weight0, uint32_t weight1, uint32_t max_running) {
    const pleat__sched_tenant two[2] = {{50, weight0}, {0, weight1}};
    const pleat__sched_options opt = {.max_requests = 2 * QUEUE + 2,
                                      .max_running = max_running,
                                      .step_tokens = 64,
                                      .n_pages = 100,
                                      .low_pages = 80,
                                      .high_pages = 90,
                                      .n_tenants = 2,
                                      .tenants = two};
    two_shops shops = {0};
    CHECK_STATUS(pleat__sched_create(&opt, NULL, &shops.s), PLEAT_OK);
    if (!shops.s) exit(1);
    return shops;
}

static void close_shops(two_shops *shops) {
    CHECK(pleat__sched_is_valid(shops->s));
    pleat__sched_destroy(&shops->s);
}

static pleat__sched_id add(two_shops *shops, uint32_t tenant, int32_t priority) {
    pleat__sched_id id = {0};
    CHECK_STATUS(pleat__sched_add(shops->s, tenant, priority, shops->arrival++, &id), PLEAT_OK);
    return id;
}

static pleat__sched_plan plan(two_shops *shops) {
    pleat__sched_plan p;
    pleat__sched_plan_step(shops->s, (pleat__sched_pages){.n_free = 100}, &p);
    return p;
}

static void fill_queues(two_shops *shops) {
    for (uint32_t i = 0; i < 2 * QUEUE; i++) {
        const uint32_t tenant = 1 - i % 2; /* who has worked less comes first */
        pleat__sched_id *id = &shops->queue[tenant][i / 2];
        if (shops->at_work[tenant] && !id->v) *id = add(shops, tenant, 0);
    }
}

/* Everybody who was admitted ran, and goes. */
static void empty_queues(two_shops *shops, const pleat__sched_plan *p) {
    pleat__sched_id ran[QUEUE];
    for (uint32_t k = 0; k < p->n_run; k++) ran[k] = p->run[k];
    for (uint32_t k = 0; k < p->n_run; k++) {
        pleat__sched_ran(shops->s, ran[k], CHUNK);
        pleat__sched_finish(shops->s, ran[k]);
        for (uint32_t i = 0; i < 2 * QUEUE; i++)
            if (shops->queue[i % 2][i / 2].v == ran[k].v) shops->queue[i % 2][i / 2].v = 0;
    }
}

static void serve(two_shops *shops, int n_steps) {
    const pleat__sched_demand chunk = {.n_tokens = CHUNK, .n_pages = 1};
    for (int step = 0; step < n_steps; step++) {
        fill_queues(shops);
        pleat__sched_plan p = plan(shops);
        for (pleat__sched_id id; (id = pleat__sched_candidate(shops->s)).v;)
            CHECK_EQ_U64(pleat__sched_admit(shops->s, id, &chunk, &p), PLEAT__ADMITTED);
        empty_queues(shops, &p);
    }
}

/* Let a tenant stop: what it has queued is cancelled. */
static void stop(two_shops *shops, uint32_t tenant) {
    shops->at_work[tenant] = false;
    for (uint32_t i = 0; i < QUEUE; i++) {
        if (shops->queue[tenant][i].v) pleat__sched_finish(shops->s, shops->queue[tenant][i]);
        shops->queue[tenant][i].v = 0;
    }
}

/* Weights 1 and 3 and endless work: tokens 1 to 3, within a chunk, after every step. */
static void test_fair_shares(void) {
    for (uint32_t max_running = 1; max_running <= 5; max_running++) {
        two_shops shops = open_shops(1, 3, max_running);
        shops.at_work[0] = shops.at_work[1] = true;
        for (int step = 1; step <= 1000 && check_failures() == 0; step++) {
            serve(&shops, 1);
            const uint64_t one = pleat__sched_service(shops.s, 0), three_ = pleat__sched_service(shops.s, 1);
            CHECK_EQ_U64(one + three_, (uint64_t)step * CHUNK * max_running);
            CHECK_NEAR((double)one, (double)three_ / 3, CHUNK);
        }
        close_shops(&shops);
    }
}

/* Who was away has no credit: neither against who worked meanwhile, nor after all have been away. */
static void test_no_credit_for_idleness(void) {
    for (int all_rest = 0; all_rest < 2; all_rest++) {
        two_shops shops = open_shops(2, 6, 3);
        shops.at_work[0] = true;
        serve(&shops, 500);
        CHECK_EQ_U64(pleat__sched_service(shops.s, 0), 500 * 3 * CHUNK);
        if (all_rest) stop(&shops, 0);
        shops.at_work[0] = shops.at_work[1] = true;
        serve(&shops, 400);
        CHECK_NEAR((double)pleat__sched_service(shops.s, 1), 400.0 * 3 * CHUNK * 3 / 4, 2 * CHUNK);
        stop(&shops, 1); /* and the other way round: what it got is not held against it, either */
        serve(&shops, 100);
        const uint64_t before = pleat__sched_service(shops.s, 1);
        shops.at_work[1] = true;
        serve(&shops, 400);
        CHECK_NEAR((double)(pleat__sched_service(shops.s, 1) - before), 400.0 * 3 * CHUNK * 3 / 4, 2 * CHUNK);
        close_shops(&shops);
    }
}

/* A higher priority goes first, whatever its tenant has had. */
static void test_priority_before_fairness(void) {
    two_shops shops = open_shops(1, 1, 1);
    shops.at_work[0] = true;
    serve(&shops, 10);
    const pleat__sched_id poor = add(&shops, 1, 0), rich = add(&shops, 0, 1);
    plan(&shops);
    CHECK_EQ_U64(pleat__sched_candidate(shops.s).v, rich.v);
    pleat__sched_finish(shops.s, rich);
    CHECK(pleat__sched_candidate(shops.s).v != poor.v); /* tenant 0's queue is older, and they are even */
    serve(&shops, 1);
    plan(&shops);
    CHECK_EQ_U64(pleat__sched_candidate(shops.s).v, poor.v);
    close_shops(&shops);
}

/* ---- split ----------------------------------------------------------------------------------------- */

static void check_split(uint64_t n_pages, const double *shares, uint32_t n, const uint64_t *want) {
    uint64_t pages[8];
    CHECK_STATUS(pleat__sched_split(n_pages, shares, n, pages), PLEAT_OK);
    CHECK_EQ_MEM(pages, want, n * sizeof *want);
}

static void test_split(void) {
    check_split(10, (double[]){1, 1, 1}, 3, (uint64_t[]){4, 3, 3});
    check_split(11, (double[]){1, 1, 1}, 3, (uint64_t[]){4, 4, 3});
    check_split(10, (double[]){0.1, 0.2, 0.7}, 3, (uint64_t[]){1, 2, 7});
    check_split(100, (double[]){0, 1, 0, 2}, 4, (uint64_t[]){0, 33, 0, 67});
    check_split(0, (double[]){3, 1}, 2, (uint64_t[]){0, 0});
    check_split(7, (double[]){1e308, 1e308, 1e308}, 3, (uint64_t[]){3, 2, 2});
    check_split(7, (double[]){5e-324, 5e-324, 5e-324}, 3, (uint64_t[]){3, 2, 2});
    check_split(1, (double[]){1e-300, 1, 1e300}, 3, (uint64_t[]){0, 0, 1});
    uint64_t pages[2];
    CHECK_STATUS(pleat__sched_split(10, (double[]){0, 0}, 2, pages), PLEAT_E_ARG);
    CHECK_STATUS(pleat__sched_split(10, (double[]){1, -1e-9}, 2, pages), PLEAT_E_ARG);
    CHECK_STATUS(pleat__sched_split(10, (double[]){1, (double)NAN}, 2, pages), PLEAT_E_ARG);
    CHECK_STATUS(pleat__sched_split(10, (double[]){1, (double)INFINITY}, 2, pages), PLEAT_E_ARG);
    CHECK_STATUS(pleat__sched_split(10, (double[]){1}, 0, pages), PLEAT_E_ARG);
}

/* No page lost or made, nothing for nothing; below 2^40 pages everybody is within one of what is due. */
static void test_split_at_random(void) {
    const uint64_t n_rounds = check_rounds(100000, 5000);
    for (uint64_t round = 0; round < n_rounds && check_failures() == 0; round++) {
        double shares[20], sum = 0;
        uint64_t pages[20], total = 0;
        const uint32_t n = (uint32_t)check_between(1, 20);
        const uint64_t n_pages = check_u64() >> check_below(64);
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t kind = check_below(4);
            shares[i] = kind == 0 ? 0 : kind == 1 ? (double)check_below(10) : check_uniform(0, kind == 2 ? 1 : 1e9);
            sum += shares[i];
        }
        check_context("%u shares of %llu pages", n, (unsigned long long)n_pages);
        CHECK_STATUS(pleat__sched_split(n_pages, shares, n, pages), sum > 0 ? PLEAT_OK : PLEAT_E_ARG);
        if (!(sum > 0)) continue;
        for (uint32_t i = 0; i < n; i++) {
            total += pages[i];
            CHECK(shares[i] > 0 || pages[i] == 0);
            if (n_pages >> 40 == 0) CHECK(fabs((double)pages[i] - shares[i] / sum * (double)n_pages) < 1 + 1e-3);
        }
        CHECK_EQ_U64(total, n_pages);
    }
}

static const check_test tests[] = {
    {"fair_shares", test_fair_shares},
    {"no_credit_for_idleness", test_no_credit_for_idleness},
    {"priority_before_fairness", test_priority_before_fairness},
    {"split", test_split},
    {"split_at_random", test_split_at_random},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
