/* SPDX-License-Identifier: MIT
 *
 * test_sched.c: each rule of sched.h by itself, at its edge: what just holds, and what just does not.  Fairness and
 * the split of a pool are test_sched_share.c's, traffic as a whole is test_sched_model.c's.
 *
 * The usual pool here has 100 pages, low 80, high 90; a step 64 tokens; one tenant to whom all pages are lent.
 */
#include <stdlib.h>

#include "check.h"
#include "sched/sched.h"

enum { N_PAGES = 100, LOW = 80, HIGH = 90, STEP = 64 };
static const pleat__sched_tenant one_tenant = {0, 1};

static pleat__sched_options usual(const pleat__sched_tenant *tenants, uint32_t n_tenants) {
    return (pleat__sched_options){.max_requests = 16,
                                  .max_running = 8,
                                  .step_tokens = STEP,
                                  .n_pages = N_PAGES,
                                  .low_pages = LOW,
                                  .high_pages = HIGH,
                                  .n_tenants = n_tenants,
                                  .tenants = tenants};
}

static pleat__sched *new_sched(const pleat__sched_options *opt) {
    pleat__sched *s = NULL;
    CHECK_STATUS(pleat__sched_create(opt, NULL, &s), PLEAT_OK);
    if (!s) exit(1);
    return s;
}

static pleat__sched *usual_sched(void) {
    const pleat__sched_options opt = usual(&one_tenant, 1);
    return new_sched(&opt);
}

static void done(pleat__sched *s) {
    CHECK(pleat__sched_is_valid(s));
    pleat__sched_destroy(&s);
}

static pleat__sched_id add(pleat__sched *s, uint32_t tenant, int32_t priority, uint64_t arrival) {
    pleat__sched_id id = {0};
    CHECK_STATUS(pleat__sched_add(s, tenant, priority, arrival, &id), PLEAT_OK);
    CHECK(id.v != 0);
    return id;
}

static pleat__sched_demand prompt(uint32_t n_tokens, uint64_t n_pages, uint64_t held, uint64_t coming) {
    return (pleat__sched_demand){.n_tokens = n_tokens, .n_pages = n_pages, .held_pages = held, .coming_pages = coming};
}

static pleat__sched_demand generation(uint64_t n_pages, uint64_t held) {
    return (pleat__sched_demand){.n_tokens = 1, .generates = true, .n_pages = n_pages, .held_pages = held};
}

static pleat__sched_plan plan(pleat__sched *s, uint64_t n_free, uint64_t n_evictable) {
    pleat__sched_plan p;
    pleat__sched_plan_step(s, (pleat__sched_pages){n_free, n_evictable}, &p);
    return p;
}

/* A new request that runs with this demand, whatever the pool looks like. */
static pleat__sched_id start(pleat__sched *s, uint32_t tenant, int32_t priority, uint64_t arrival,
                             pleat__sched_demand demand) {
    const pleat__sched_id id = add(s, tenant, priority, arrival);
    const pleat__sched_demand small = generation(0, 0);
    pleat__sched_plan p = plan(s, N_PAGES, 0);
    CHECK_EQ_U64(pleat__sched_candidate(s).v, id.v);
    CHECK_EQ_U64(pleat__sched_admit(s, id, &small, &p), PLEAT__ADMITTED);
    pleat__sched_demand_set(s, id, &demand);
    return id;
}

/* Ask for the candidate, which is `want`, and try to let it in. */
static pleat__admission try_admit(pleat__sched *s, pleat__sched_plan *p, pleat__sched_id want,
                                  pleat__sched_demand demand) {
    const pleat__sched_id id = pleat__sched_candidate(s);
    CHECK_EQ_U64(id.v, want.v);
    return pleat__sched_admit(s, want, &demand, p);
}

static void check_runs(const pleat__sched_plan *p, const pleat__sched_id *want, uint32_t n, uint32_t n_tokens) {
    CHECK_EQ_U64(p->room, PLEAT__ROOM_ENOUGH);
    CHECK_EQ_U64(p->shortfall_pages, 0);
    CHECK_EQ_U64(p->n_tokens, n_tokens);
    if (!CHECK_EQ_U64(p->n_run, n)) return;
    for (uint32_t i = 0; i < n; i++) CHECK_EQ_U64(p->run[i].v, want[i].v);
}

static void check_room(const pleat__sched_plan *p, pleat__sched_room room, pleat__sched_id victim, uint64_t n_short) {
    CHECK_EQ_U64(p->room, room);
    CHECK_EQ_U64(p->victim.v, victim.v);
    CHECK_EQ_U64(p->shortfall_pages, n_short);
}

static void nobody_is_next(pleat__sched *s) { CHECK_EQ_U64(pleat__sched_candidate(s).v, 0); }

/* ---- create ---------------------------------------------------------------------------------------- */

static void test_options(void) {
    const pleat__sched_options good = usual(&one_tenant, 1);
    const pleat__sched_tenant no_weight = {0, 0}, greedy[2] = {{60, 1}, {41, 1}}, whole[2] = {{60, 1}, {40, 1}};
    pleat__sched *s = NULL;
#define REFUSED(field, value)                                           \
    do {                                                                \
        pleat__sched_options bad = good;                                \
        bad.field = (value);                                            \
        CHECK_STATUS(pleat__sched_create(&bad, NULL, &s), PLEAT_E_ARG); \
        CHECK(s == NULL);                                               \
    } while (0)
    REFUSED(max_requests, 0);
    REFUSED(max_requests, UINT32_MAX);
    REFUSED(max_running, 0);
    REFUSED(max_running, STEP + 1);
    REFUSED(step_tokens, 7);
    REFUSED(n_pages, HIGH - 1);
    REFUSED(n_pages, ((uint64_t)1 << 40) + 1);
    REFUSED(low_pages, 0);
    REFUSED(low_pages, HIGH + 1);
    REFUSED(high_pages, N_PAGES + 1);
    REFUSED(n_tenants, 0);
    REFUSED(tenants, NULL);
    REFUSED(tenants, &no_weight);
#undef REFUSED
    const pleat__sched_options broken = usual(greedy, 2), exact = usual(whole, 2);
    CHECK_STATUS(pleat__sched_create(&broken, NULL, &s), PLEAT_E_ARG);
    s = new_sched(&exact);
    CHECK_EQ_U64(pleat__sched_max_pages(s, 0), 60);
    CHECK_EQ_U64(pleat__sched_max_pages(s, 1), 40);
    done(s);
    pleat__sched_destroy(NULL);
}

static void test_no_memory(void) {
    const pleat__sched_options opt = usual(&one_tenant, 1);
    check_alloc ca;
    pleat__sched *s = NULL;
    check_alloc_init(&ca, 1, 0);
    CHECK_STATUS(pleat__sched_create(&opt, &ca.a, &s), PLEAT_E_MEMORY);
    CHECK_EQ_U64(ca.live, 0);
    CHECK_STATUS(pleat__sched_create(&opt, &ca.a, &s), PLEAT_OK);
    const uint64_t count = ca.count;
    for (uint64_t i = 0; i < 8; i++) start(s, 0, 0, i, generation(1, 1));
    plan(s, 92, 0);
    CHECK_EQ_U64(ca.count, count);
    pleat__sched_destroy(&s);
    CHECK_EQ_U64(ca.live, 0);
}

static void test_max_requests(void) {
    pleat__sched *s = usual_sched();
    pleat__sched_id ids[16], more = {77};
    for (uint32_t i = 0; i < 16; i++) ids[i] = add(s, 0, 0, i);
    CHECK_STATUS(pleat__sched_add(s, 0, 0, 16, &more), PLEAT_E_LIMIT);
    CHECK_EQ_U64(more.v, 77);
    CHECK_EQ_U64(pleat__sched_n_waiting(s), 16);
    pleat__sched_finish(s, ids[5]);
    add(s, 0, 0, 16);
    CHECK_EQ_U64(pleat__sched_n_waiting(s), 16);
    done(s);
}

/* ---- rank and the step ----------------------------------------------------------------------------- */

static void test_rank(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id late = start(s, 0, 0, 9, prompt(5, 1, 0, 0)), early = start(s, 0, 0, 2, prompt(6, 1, 0, 0));
    const pleat__sched_id high = start(s, 0, 3, 11, prompt(7, 1, 0, 0)), low = start(s, 0, -2, 1, prompt(8, 1, 0, 0));
    const pleat__sched_id generates = start(s, 0, -5, 12, generation(1, 4));
    const pleat__sched_id last = start(s, 0, INT32_MIN, 0, generation(0, 4));
    const pleat__sched_plan p = plan(s, 92, 0);
    check_runs(&p, (pleat__sched_id[]){generates, last, high, early, late, low}, 6, 28);
    CHECK_EQ_U64(pleat__sched_n_running(s), 6);
    done(s);
}

/* A chunk that just fits, one that just does not, and what is behind it. */
static void test_chunk_whole_or_not_at_all(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id gen = start(s, 0, 0, 0, generation(1, 1));
    const pleat__sched_id first = start(s, 0, 0, 1, prompt(1, 1, 0, 0)),
                          second = start(s, 0, 0, 2, prompt(22, 1, 0, 0));
    const pleat__sched_id third = start(s, 0, 0, 3, prompt(1, 1, 0, 0));
    pleat__sched_demand d = prompt(40, 1, 0, 0);
    pleat__sched_demand_set(s, first, &d);
    pleat__sched_plan p = plan(s, 99, 0);
    check_runs(&p, (pleat__sched_id[]){gen, first, second, third}, 4, 64);
    d = prompt(24, 1, 0, 0);
    pleat__sched_demand_set(s, second, &d);
    add(s, 0, 0, 4);
    p = plan(s, 99, 0);
    check_runs(&p, (pleat__sched_id[]){gen, first}, 2, 41);
    nobody_is_next(s); /* nobody overtakes a chunk */
    done(s);
}

static void test_admission_to_the_step(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id gen = start(s, 0, 0, 0, generation(1, 1));
    const pleat__sched_id a = add(s, 0, 0, 1), b = add(s, 0, 0, 2);
    pleat__sched_plan p = plan(s, 99, 0);
    CHECK_EQ_U64(try_admit(s, &p, a, prompt(64, 1, 0, 0)), PLEAT__REFUSED_STEP);
    nobody_is_next(s);
    p = plan(s, 99, 0);
    CHECK_EQ_U64(try_admit(s, &p, a, prompt(63, 1, 0, 0)), PLEAT__ADMITTED);
    check_runs(&p, (pleat__sched_id[]){gen, a}, 2, 64);
    nobody_is_next(s); /* the step's tokens are spent */
    const pleat__sched_demand shorter = prompt(1, 1, 0, 0);
    pleat__sched_demand_set(s, a, &shorter);
    p = plan(s, 99, 0);
    CHECK_EQ_U64(try_admit(s, &p, b, generation(1, 0)), PLEAT__ADMITTED);
    check_runs(&p, (pleat__sched_id[]){gen, a, b}, 3, 3); /* behind, though it generates */
    done(s);
}

/* Whoever is admitted has room in all steps to come. */
static void test_admission_to_later_steps(void) {
    pleat__sched *s = usual_sched();
    pleat__sched_demand first = prompt(8, 1, 0, 0), second = prompt(8, 1, 0, 0);
    first.later_tokens = 40;
    (void)start(s, 0, 0, 0, first);
    const pleat__sched_id b = add(s, 0, 0, 1);
    pleat__sched_plan p = plan(s, 99, 0);
    second.later_tokens = STEP - 40 + 1;
    CHECK_EQ_U64(try_admit(s, &p, b, second), PLEAT__REFUSED_STEP);
    nobody_is_next(s);
    p = plan(s, 99, 0);
    second.later_tokens = STEP - 40;
    CHECK_EQ_U64(try_admit(s, &p, b, second), PLEAT__ADMITTED);
    done(s);
}

static void test_max_running(void) {
    pleat__sched *s = usual_sched();
    pleat__sched_id ids[9];
    for (uint32_t i = 0; i < 8; i++) ids[i] = start(s, 0, 0, i, generation(0, 1));
    ids[8] = add(s, 0, 9, 8);
    plan(s, 92, 0);
    nobody_is_next(s);
    pleat__sched_finish(s, ids[3]);
    nobody_is_next(s); /* not before the next plan */
    plan(s, 93, 0);
    CHECK_EQ_U64(pleat__sched_candidate(s).v, ids[8].v);
    done(s);
}

/* ---- pages: rules 1 to 4 --------------------------------------------------------------------------- */

static void test_rule_1_evict(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = start(s, 0, 0, 0, generation(2, 30)), b = start(s, 0, 0, 1, generation(3, 30));
    pleat__sched_plan p = plan(s, 5, 35);
    check_runs(&p, (pleat__sched_id[]){a, b}, 2, 2);
    p = plan(s, 4, 36);
    check_room(&p, PLEAT__ROOM_EVICT, (pleat__sched_id){0}, 1);
    add(s, 0, 0, 2);
    nobody_is_next(s); /* while there is no plan that stands */
    p = plan(s, 0, 40);
    check_room(&p, PLEAT__ROOM_EVICT, (pleat__sched_id){0}, 5);
    done(s);
}

static void test_rule_2_low_mark(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = start(s, 0, 0, 0, prompt(8, 3, 20, 7)), b = add(s, 0, 0, 1);
    /* 30 of 100 used, 10 of them evictable: 20, and 10 that come; up to 80 there is room for 50. */
    pleat__sched_plan p = plan(s, 70, 10);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(8, 11, 0, 40)), PLEAT__REFUSED_POOL);
    nobody_is_next(s);
    p = plan(s, 70, 10);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(8, 10, 0, UINT32_MAX)), PLEAT__REFUSED_TENANT);
    p = plan(s, 70, 10);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(8, 10, 0, 40)), PLEAT__ADMITTED);
    check_runs(&p, (pleat__sched_id[]){a, b}, 2, 16);
    const pleat__sched_id c = add(s, 0, 0, 2); /* what b takes counts at once */
    CHECK_EQ_U64(try_admit(s, &p, c, prompt(8, 0, 0, 1)), PLEAT__REFUSED_POOL);
    done(s);
}

static void test_alone_takes_the_whole_pool(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = add(s, 0, 0, 0), b = add(s, 0, 0, 1);
    pleat__sched_plan p = plan(s, 0, 0); /* nobody runs, so nobody is preempted */
    check_runs(&p, NULL, 0, 0);
    p = plan(s, 60, 39); /* one page is somebody's */
    CHECK_EQ_U64(try_admit(s, &p, a, prompt(8, 1, 0, 99)), PLEAT__REFUSED_POOL);
    p = plan(s, 60, 40);
    CHECK_EQ_U64(try_admit(s, &p, a, prompt(8, 1, 0, 99)), PLEAT__ADMITTED);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(8, 0, 0, 0)), PLEAT__REFUSED_POOL);
    pleat__sched_demand d = generation(10, 90);
    pleat__sched_demand_set(s, a, &d);
    p = plan(s, 10, 0); /* beyond the high mark, to the last page */
    check_runs(&p, &a, 1, 1);
    p = plan(s, 9, 1);
    check_room(&p, PLEAT__ROOM_EVICT, (pleat__sched_id){0}, 1);
    p = plan(s, 9, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, a, 1);
    done(s);
}

static void test_rule_3_high_mark(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id old = start(s, 0, 0, 3, generation(2, 40)), new = start(s, 0, 0, 7, generation(0, 30));
    const pleat__sched_id high = start(s, 0, 5, 9, generation(0, 10));
    pleat__sched_plan p = plan(s, 12, 0); /* 88 and 2: at the mark */
    check_runs(&p, (pleat__sched_id[]){high, old, new}, 3, 3);
    p = plan(s, 11, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, new, 1); /* of the lowest priority, the newest */
    p = plan(s, 6, 6);                           /* evictable pages do not count */
    CHECK_EQ_U64(p.room, PLEAT__ROOM_ENOUGH);
    pleat__sched_preempt(s, new);
    p = plan(s, 0, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, old, 12); /* it wants pages, and is its own victim */
    pleat__sched_preempt(s, old);
    p = plan(s, 1, 0);
    check_runs(&p, &high, 1, 1);
    done(s);
}

/* Everybody who can is compressed, from the lowest rank up, before anybody is preempted. */
static void test_compress_first(void) {
    pleat__sched *s = usual_sched();
    pleat__sched_demand can = generation(1, 30), cannot = generation(1, 30);
    can.can_compress = true;
    const pleat__sched_id first = start(s, 0, 0, 0, can), second = start(s, 0, 0, 1, can);
    const pleat__sched_id third = start(s, 0, 0, 2, cannot);
    pleat__sched_plan p = plan(s, 10, 0);
    check_room(&p, PLEAT__ROOM_COMPRESS, second, 3);
    pleat__sched_demand_set(s, second, &cannot);
    p = plan(s, 11, 0);
    check_room(&p, PLEAT__ROOM_COMPRESS, first, 2);
    pleat__sched_demand_set(s, first, &cannot);
    p = plan(s, 12, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, third, 1);
    p = plan(s, 13, 0);
    CHECK_EQ_U64(p.room, PLEAT__ROOM_ENOUGH);
    done(s);
}

static void test_rule_4_hysteresis(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = start(s, 0, 0, 0, generation(0, 40)), b = start(s, 0, 0, 1, generation(0, 1));
    const pleat__sched_id c = add(s, 0, 0, 2);
    plan(s, 19, 0); /* 81 used, but nobody has been preempted */
    CHECK_EQ_U64(pleat__sched_candidate(s).v, c.v);
    pleat__sched_preempt(s, b);
    nobody_is_next(s); /* the plan is void */
    plan(s, 19, 0);
    nobody_is_next(s);
    plan(s, 19, 1); /* one of the 81 is evictable: open */
    CHECK_EQ_U64(pleat__sched_candidate(s).v, b.v);
    plan(s, 19, 0); /* and stays so */
    CHECK_EQ_U64(pleat__sched_candidate(s).v, b.v);
    pleat__sched_preempt(s, a);
    pleat__sched_plan p = plan(s, 19, 0); /* nobody runs: whoever is next may, however full it is */
    CHECK_EQ_U64(try_admit(s, &p, a, generation(19, 0)), PLEAT__ADMITTED);
    nobody_is_next(s); /* still closed for others */
    done(s);
}

static void test_preempted_comes_back_first(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = start(s, 0, 0, 0, generation(0, 1)), b = start(s, 0, 0, 1, generation(0, 1));
    const pleat__sched_id c = add(s, 0, 0, 2), d = add(s, 0, 1, 3);
    pleat__sched_preempt(s, b);
    CHECK_EQ_U64(pleat__sched_n_waiting(s), 3);
    CHECK_EQ_U64(pleat__sched_held(s, 0), 1);
    pleat__sched_plan p = plan(s, 99, 0);
    CHECK_EQ_U64(try_admit(s, &p, d, generation(0, 0)), PLEAT__ADMITTED); /* its priority is higher */
    CHECK_EQ_U64(try_admit(s, &p, b, generation(0, 1)), PLEAT__ADMITTED);
    CHECK_EQ_U64(try_admit(s, &p, c, generation(0, 0)), PLEAT__ADMITTED);
    check_runs(&p, (pleat__sched_id[]){a, d, b, c}, 4, 4);
    done(s);
}

/* ---- tenants: rules 5 and 6 ------------------------------------------------------------------------ */

static const pleat__sched_tenant three_tenants[3] = {{50, 1}, {20, 1}, {0, 1}}; /* 30 to lend */

static pleat__sched *three(void) {
    const pleat__sched_options opt = usual(three_tenants, 3);
    return new_sched(&opt);
}

static void test_held_and_borrowed(void) {
    pleat__sched *s = three();
    const pleat__sched_id a = start(s, 1, 0, 0, generation(0, 18));
    start(s, 1, 0, 1, generation(0, 9));
    CHECK_EQ_U64(pleat__sched_held(s, 1), 27);
    CHECK_EQ_U64(pleat__sched_borrowed(s, 1), 7);
    CHECK_EQ_U64(pleat__sched_borrowed(s, 0), 0);
    CHECK_EQ_U64(pleat__sched_max_pages(s, 0), 80);
    CHECK_EQ_U64(pleat__sched_max_pages(s, 2), 30);
    pleat__sched_finish(s, a);
    CHECK_EQ_U64(pleat__sched_held(s, 1), 9);
    CHECK_EQ_U64(pleat__sched_borrowed(s, 1), 0);
    done(s);
}

/* Room in the pool does not help a tenant that has nothing left to borrow; others go on. */
static void test_rule_5_admission(void) {
    pleat__sched *s = three();
    start(s, 1, 0, 0, prompt(1, 2, 30, 3)); /* it borrows 10, and will 15 */
    const pleat__sched_id c = add(s, 2, 0, 1), d = add(s, 2, 0, 2), e = add(s, 1, 0, 3), f = add(s, 0, 0, 4);
    pleat__sched_plan p = plan(s, 70, 0);
    CHECK_EQ_U64(try_admit(s, &p, c, prompt(1, 10, 0, 6)), PLEAT__REFUSED_TENANT);
    CHECK_EQ_U64(try_admit(s, &p, f, prompt(1, 0, 0, 0)), PLEAT__ADMITTED); /* served least; d waits behind c */
    CHECK_EQ_U64(try_admit(s, &p, e, prompt(1, 16, 0, 0)), PLEAT__REFUSED_TENANT);
    nobody_is_next(s);
    p = plan(s, 70, 0);
    CHECK_EQ_U64(try_admit(s, &p, c, prompt(1, 10, 0, 5)), PLEAT__ADMITTED);
    CHECK_EQ_U64(try_admit(s, &p, d, prompt(1, 0, 0, 0)), PLEAT__ADMITTED);
    CHECK_EQ_U64(try_admit(s, &p, e, prompt(1, 1, 0, 0)), PLEAT__REFUSED_TENANT);
    done(s);
}

/* Who stays within its quota is admitted though others have come to owe more than there is. */
static void test_rule_5_spares_who_does_not_borrow(void) {
    pleat__sched *s = three();
    start(s, 2, 0, 0, prompt(1, 1, 20, 30));
    const pleat__sched_id b = add(s, 1, 0, 1);
    pleat__sched_plan p = plan(s, 80, 0);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(1, 10, 0, 11)), PLEAT__REFUSED_TENANT);
    p = plan(s, 80, 0);
    CHECK_EQ_U64(try_admit(s, &p, b, prompt(1, 10, 0, 10)), PLEAT__ADMITTED);
    done(s);
}

/* A tenant that waits for pages to borrow is not overtaken by others who borrow. */
static void test_rule_5_is_not_overtaken(void) {
    pleat__sched *s = three();
    start(s, 2, 0, 0, generation(0, 10));
    const pleat__sched_id big = add(s, 2, 1, 1), small = add(s, 1, 0, 2), modest = add(s, 1, 0, 3);
    pleat__sched_plan p = plan(s, 90, 0);
    CHECK_EQ_U64(try_admit(s, &p, big, prompt(1, 21, 0, 0)), PLEAT__REFUSED_TENANT);
    CHECK_EQ_U64(try_admit(s, &p, small, prompt(1, 21, 0, 0)), PLEAT__REFUSED_TENANT);
    p = plan(s, 90, 0);
    CHECK_EQ_U64(try_admit(s, &p, big, prompt(1, 21, 0, 0)), PLEAT__REFUSED_TENANT);
    pleat__sched_finish(s, small);
    CHECK_EQ_U64(try_admit(s, &p, modest, prompt(1, 20, 0, 0)), PLEAT__ADMITTED);
    p = plan(s, 90, 0);
    CHECK_EQ_U64(try_admit(s, &p, big, prompt(1, 20, 0, 0)), PLEAT__ADMITTED);
    done(s);
}

static void test_rule_5_step(void) {
    pleat__sched *s = three();
    const pleat__sched_id b = start(s, 1, 9, 0, generation(2, 30)), c = start(s, 2, 0, 1, generation(0, 18));
    pleat__sched_plan p = plan(s, 52, 0); /* 10 and 18 are borrowed, 2 come */
    check_runs(&p, (pleat__sched_id[]){b, c}, 2, 2);
    const pleat__sched_demand more = generation(1, 18);
    pleat__sched_demand_set(s, c, &more);
    p = plan(s, 52, 0); /* the pool is half empty */
    check_room(&p, PLEAT__ROOM_PREEMPT, c, 1);
    pleat__sched_preempt(s, c);
    p = plan(s, 70, 0);
    check_runs(&p, &b, 1, 1);
    done(s);
}

static void test_rule_6_borrowers_first(void) {
    pleat__sched *s = three();
    const pleat__sched_id a = start(s, 0, -9, 0, generation(1, 49)); /* within its quota, of the lowest priority */
    const pleat__sched_id b = start(s, 1, 3, 1, generation(0, 20)), c = start(s, 1, 7, 2, generation(0, 20));
    pleat__sched_plan p = plan(s, 11, 0);
    CHECK_EQ_U64(p.room, PLEAT__ROOM_ENOUGH);
    p = plan(s, 10, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, b, 1);
    pleat__sched_demand d = generation(1, 49);
    d.can_compress = true;
    pleat__sched_demand_set(s, a, &d);
    p = plan(s, 10, 0);
    check_room(&p, PLEAT__ROOM_PREEMPT, b, 1); /* a is not even compressed */
    d = generation(0, 20);
    d.can_compress = true;
    pleat__sched_demand_set(s, c, &d);
    p = plan(s, 10, 0);
    check_room(&p, PLEAT__ROOM_COMPRESS, c, 1);
    pleat__sched_preempt(s, b);
    d = generation(0, 20);
    pleat__sched_demand_set(s, c, &d); /* exactly its tenant's quota: no borrower any more */
    p = plan(s, 0, 0);
    CHECK_EQ_U64(p.victim.v, a.v);
    d = generation(1, 20);
    pleat__sched_demand_set(s, c, &d); /* but it would be one after the step */
    p = plan(s, 0, 0);
    CHECK_EQ_U64(p.victim.v, c.v);
    done(s);
}

/* ---- the queue ------------------------------------------------------------------------------------- */

static void test_refused_pool_is_not_overtaken(void) {
    const pleat__sched_tenant two[2] = {{0, 1}, {0, 1}};
    const pleat__sched_options opt = usual(two, 2);
    pleat__sched *s = new_sched(&opt);
    start(s, 0, 0, 0, generation(0, 50));
    const pleat__sched_id big = add(s, 0, 1, 1);
    add(s, 0, 0, 2);
    add(s, 1, 0, 3);
    for (int step = 0; step < 3; step++) {
        pleat__sched_plan p = plan(s, 50, 0);
        CHECK_EQ_U64(try_admit(s, &p, big, prompt(8, 31, 0, 0)), PLEAT__REFUSED_POOL);
        nobody_is_next(s);
    }
    pleat__sched_plan p = plan(s, 50, 0);
    CHECK_EQ_U64(try_admit(s, &p, big, prompt(8, 30, 0, 0)), PLEAT__ADMITTED);
    done(s);
}

static void test_defer(void) {
    pleat__sched *s = usual_sched();
    const pleat__sched_id a = add(s, 0, 0, 0), b = add(s, 0, 0, 1), c = add(s, 0, 0, 2);
    plan(s, 100, 0);
    pleat__sched_defer(s, pleat__sched_candidate(s));
    CHECK_EQ_U64(pleat__sched_n_waiting(s), 3);
    CHECK(pleat__sched_is_valid(s));
    CHECK_EQ_U64(pleat__sched_candidate(s).v, b.v);
    pleat__sched_defer(s, b);
    pleat__sched_finish(s, a); /* deferred, and cancelled */
    CHECK_EQ_U64(pleat__sched_candidate(s).v, c.v);
    pleat__sched_defer(s, c);
    nobody_is_next(s);
    plan(s, 100, 0);
    CHECK_EQ_U64(pleat__sched_candidate(s).v, b.v);
    done(s);
}

static pleat__sched *heap_sched; /* for qsort: what is waiting, in the test's own words */
static struct {
    int32_t priority;
    uint64_t arrival;
} heap_keys[20001]; /* by id */

static int by_rank(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (heap_keys[x].priority != heap_keys[y].priority) return heap_keys[x].priority > heap_keys[y].priority ? -1 : 1;
    return heap_keys[x].arrival < heap_keys[y].arrival ? -1 : 1;
}

static void heap_add(uint32_t *ids, uint32_t i) {
    const int32_t priority = (int32_t)check_below(5) - 2;
    const uint64_t arrival = check_u64();
    ids[i] = add(heap_sched, 0, priority, arrival).v;
    heap_keys[ids[i]].priority = priority;
    heap_keys[ids[i]].arrival = arrival;
}

/* Many wait, many are cancelled from the middle, cells are used again; the rest come out in order. */
static void test_waiting_order(void) {
    static uint32_t ids[20000];
    const uint32_t n = (uint32_t)check_rounds(20000, 2000);
    pleat__sched_options opt = usual(&one_tenant, 1);
    opt.max_requests = n;
    heap_sched = new_sched(&opt);
    for (uint32_t i = 0; i < n; i++) heap_add(ids, i);
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t at = (uint32_t)check_below(n);
        pleat__sched_finish(heap_sched, (pleat__sched_id){ids[at]});
        if (i % (n / 10) == 0) CHECK(pleat__sched_is_valid(heap_sched));
        heap_add(ids, at);
    }
    qsort(ids, n, sizeof *ids, by_rank);
    plan(heap_sched, 100, 0);
    for (uint32_t i = 0; i < n && check_failures() == 0; i++) {
        CHECK_EQ_U64(pleat__sched_candidate(heap_sched).v, ids[i]);
        pleat__sched_finish(heap_sched, (pleat__sched_id){ids[i]});
    }
    CHECK_EQ_U64(pleat__sched_n_waiting(heap_sched), 0);
    done(heap_sched);
}

static const check_test tests[] = {
    {"options", test_options},
    {"no_memory", test_no_memory},
    {"max_requests", test_max_requests},
    {"rank", test_rank},
    {"chunk_whole_or_not_at_all", test_chunk_whole_or_not_at_all},
    {"admission_to_the_step", test_admission_to_the_step},
    {"admission_to_later_steps", test_admission_to_later_steps},
    {"max_running", test_max_running},
    {"rule_1_evict", test_rule_1_evict},
    {"rule_2_low_mark", test_rule_2_low_mark},
    {"alone_takes_the_whole_pool", test_alone_takes_the_whole_pool},
    {"rule_3_high_mark", test_rule_3_high_mark},
    {"compress_first", test_compress_first},
    {"rule_4_hysteresis", test_rule_4_hysteresis},
    {"preempted_comes_back_first", test_preempted_comes_back_first},
    {"held_and_borrowed", test_held_and_borrowed},
    {"rule_5_admission", test_rule_5_admission},
    {"rule_5_spares_who_does_not_borrow", test_rule_5_spares_who_does_not_borrow},
    {"rule_5_is_not_overtaken", test_rule_5_is_not_overtaken},
    {"rule_5_step", test_rule_5_step},
    {"rule_6_borrowers_first", test_rule_6_borrowers_first},
    {"refused_pool_is_not_overtaken", test_refused_pool_is_not_overtaken},
    {"defer", test_defer},
    {"waiting_order", test_waiting_order},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
