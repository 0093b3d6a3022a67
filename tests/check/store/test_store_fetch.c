/* SPDX-License-Identifier: MIT
 *
 * test_store_fetch.c: fetches: the longest part that is there, or a miss; and a disk that hangs, fails, or is slow while they
 * are wanted, cancelled or given up.
 */
#include <sched.h>

#include "gate.h"

#define FOR_EVER ((uint64_t)1 << 62) /* ns */
#define CHEAP 1e18                   /* ns that computing takes, so that reading is cheaper */

/* Two parts of a sample: all of it, and its first step. */
static pleat_store_wish wish_of(const sample *s, const pleat_store_part parts[2]) {
    pleat_store_wish w;
    pleat_store_wish_default(&w);
    w.head = &s->head;
    w.parts = parts;
    w.n_parts = 2;
    return w;
}

static const pleat_store_part both[2] = {{2, CHEAP}, {1, CHEAP}};

static pleat_store_fetch *begin(pleat_store *store, uint64_t number) {
    pleat_store_fetch *f = NULL;
    sample s;
    sample_init(&s, number);
    const pleat_store_wish w = wish_of(&s, both);
    CHECK_STATUS(pleat_store_fetch_begin(store, &w, &f), PLEAT_OK);
    return f;
}

static pleat_store_found await(pleat_store_fetch *f) {
    pleat_store_found found;
    while (pleat_store_fetch_poll(f, &found) == PLEAT_AGAIN) sched_yield();
    return found;
}

/* What comes of it, and its end. */
static pleat_store_found fetch(pleat_store *store, uint64_t number) {
    pleat_store_fetch *f = begin(store, number);
    pleat_store_found found = await(f);
    for (uint64_t i = 0; i < found.body_bytes; i++)
        if (((uint8_t *)found.body)[i] != sample_byte(number, i)) {
            CHECK(!"another body than the one that was stored");
            break;
        }
    pleat_store_fetch_end(&f);
    CHECK(f == NULL);
    return found;
}

static uint64_t misses(pleat_store *s, pleat_store_miss miss) {
    pleat_store_stats st;
    pleat_store_get_stats(s, &st);
    return st.misses[miss];
}

/* Store the sample up to its first step. */
static void put_beginning(pleat_store *store, uint64_t number) {
    sample s;
    sample_init(&s, number);
    s.head.n_steps = 1;
    s.head.n_tokens = s.steps[0].n_tokens;
    CHECK_STATUS(pleat_store_put(store, &s.head, 1e6, sample_fill, &s), PLEAT_OK);
}

static void test_parts(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, (uint64_t)1 << 30);
    CHECK(fetch(s, 1).body == NULL);
    CHECK_EQ_U64(misses(s, PLEAT_STORE_ABSENT), 1);
    put_beginning(s, 1);
    pleat_store_flush(s);
    CHECK_EQ_U64(fetch(s, 1).n_tokens, 32);
    CHECK_STATUS(sample_put(s, 1, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    CHECK_EQ_U64(fetch(s, 1).n_tokens, SAMPLE_TOKENS);
    for (uint64_t i = 2; i < 40; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    pleat_store_fetch *many[40];
    for (uint64_t i = 1; i < 40; i++) many[i] = begin(s, i);
    for (uint64_t i = 1; i < 40; i += 2) pleat_store_fetch_end(&many[i]); /* whatever state it is in */
    for (uint64_t i = 2; i < 40; i += 2) {
        sample want;
        sample_init(&want, i);
        CHECK_EQ_U64(await(many[i]).body_bytes, want.head.body_bytes);
        pleat_store_fetch_end(&many[i]);
    }
    CHECK_EQ_U64(s->n_fetches, 0);
    CHECK_EQ_U64(s->fetched_bytes, 0);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* What costs more than computing, what has no room, and wishes that are none. */
static void test_refused(void) {
    NEEDS_STORE();
    folder f;
    sample own;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, (uint64_t)1 << 30);
    sample_init(&own, 7);
    CHECK_STATUS(sample_put(s, 7, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    const pleat_store_part dear[2] = {{2, 1}, {1, 1}}, none[2] = {{3, CHEAP}, {1, CHEAP}},
                           zero[2] = {{0, CHEAP}, {1, CHEAP}};
    pleat_store_wish w = wish_of(&own, dear);
    pleat_store_fetch *fetched = NULL;
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_OK);
    pleat_store_found found = await(fetched);
    CHECK(found.body == NULL && found.is_costly);
    pleat_store_fetch_end(&fetched);
    w = wish_of(&own, both);
    w.max_bytes = own.head.body_bytes - 1;
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_OK);
    found = await(fetched);
    CHECK(found.body == NULL && found.is_costly);
    pleat_store_fetch_end(&fetched);
    w = wish_of(&own, none);
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_E_ARG);
    w = wish_of(&own, zero);
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_E_ARG);
    w = wish_of(&own, both);
    w.n_parts = 0;
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_E_ARG);
    w = wish_of(&own, both);
    w.size_bytes--;
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_E_ARG);
    own.steps[0].first = UINT32_MAX - 1;
    w = wish_of(&own, both);
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_E_ARG);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* A read that was slow keeps others away for a while, not for good. */
static void test_slow_read(void) {
    NEEDS_STORE();
    folder f;
    sample own;
    uint32_t n_costly = 0;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, (uint64_t)1 << 30);
    sample_init(&own, 7);
    CHECK_STATUS(sample_put(s, 7, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    CHECK(fetch(s, 7).body != NULL);
    s->speed = 1e4; /* nobody else is here: as a read that took seconds leaves it */
    const pleat_store_part parts[2] = {{2, 1e8}, {1, 1e8}};
    pleat_store_wish w = wish_of(&own, parts);
    for (bool is_had = false; !is_had && n_costly < 1000;) {
        pleat_store_fetch *fetched = NULL;
        CHECK_STATUS(pleat_store_fetch_begin(s, &w, &fetched), PLEAT_OK);
        is_had = await(fetched).body != NULL;
        n_costly += !is_had;
        pleat_store_fetch_end(&fetched);
    }
    CHECK(n_costly > 0 && n_costly < 100);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* A read that hangs: who wants it is told in time, nobody else begins, and all is well once it goes on. */
static void test_hang(void) {
    NEEDS_STORE();
    folder f;
    gate g;
    if (!folder_make(&f)) return;
    gate_init(&g);
    pleat_store *s = gated_open(&f, &g, 1000000);
    for (uint64_t i = 1; i <= 3; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    gate_set(&g, true, false);
    pleat_store_fetch *hung = begin(s, 1), *behind = begin(s, 2), *none = NULL;
    gate_await(&g);
    CHECK(await(hung).body == NULL);
    CHECK(await(behind).body == NULL);
    CHECK_EQ_U64(misses(s, PLEAT_STORE_TIMEOUT), 2);
    sample third;
    sample_init(&third, 3);
    const pleat_store_wish w = wish_of(&third, both);
    CHECK_STATUS(pleat_store_fetch_begin(s, &w, &none), PLEAT_AGAIN);
    CHECK_EQ_U64(misses(s, PLEAT_STORE_TIMEOUT), 3);
    pleat_store_stats st;
    pleat_store_get_stats(s, &st);
    CHECK(st.read_waits_ns > 1000000);
    CHECK(await(hung).body == NULL); /* asked again */
    pleat_store_fetch_end(&hung);
    gate_set(&g, false, false);
    pleat_store_fetch_end(&behind);
    while (pleat_store_fetch_begin(s, &w, &none) == PLEAT_AGAIN) sched_yield(); /* until the reader is back */
    CHECK_EQ_U64(await(none).n_tokens, SAMPLE_TOKENS);
    pleat_store_fetch_end(&none);
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.read_waits_ns, 0);
    CHECK_EQ_U64(s->n_fetches + s->fetched_bytes, 0);
    pleat_store_close(&s);
    gate_release(&g);
    folder_remove(&f);
}

/* Cancelled while it hangs, and in the queue behind it; a writer that hangs keeps nobody from reading or putting. */
static void test_cancel(void) {
    NEEDS_STORE();
    folder f;
    gate g;
    if (!folder_make(&f)) return;
    gate_init(&g);
    pleat_store *s = gated_open(&f, &g, FOR_EVER);
    for (uint64_t i = 1; i <= 3; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    gate_set(&g, true, false);
    pleat_store_fetch *hung = begin(s, 1), *behind = begin(s, 2), *last = begin(s, 3);
    gate_await(&g);
    pleat_store_fetch_end(&hung);
    pleat_store_fetch_end(&behind);
    gate_set(&g, false, false);
    CHECK_EQ_U64(await(last).n_tokens, SAMPLE_TOKENS);
    pleat_store_fetch_end(&last);
    pleat_store_stats st;
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.hits, 1);
    gate_set(&g, false, true);
    CHECK_STATUS(sample_put(s, 4, 1e6), PLEAT_OK);
    gate_await(&g);
    CHECK_STATUS(sample_put(s, 5, 1e6), PLEAT_OK);
    CHECK_EQ_U64(fetch(s, 1).n_tokens, SAMPLE_TOKENS);
    CHECK(fetch(s, 4).body == NULL);
    gate_set(&g, false, false);
    pleat_store_flush(s);
    CHECK_EQ_U64(fetch(s, 4).n_tokens, SAMPLE_TOKENS);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
    gate_release(&g);
    folder_remove(&f);
}

/* Bodies that nobody takes hold the reader back, and are counted. */
static void test_room(void) {
    NEEDS_STORE();
    folder f;
    sample first, second;
    if (!folder_make(&f)) return;
    sample_init(&first, 1);
    sample_init(&second, 2);
    pleat_store_options o = store_options(&f, (uint64_t)1 << 30);
    pleat_store *s = store_open(&f, (uint64_t)1 << 30);
    for (uint64_t i = 1; i <= 2; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_close(&s);
    o.queue_bytes = first.head.body_bytes + second.head.body_bytes - 1;
    CHECK_STATUS(pleat_store_open(&o, &s, NULL), PLEAT_OK);
    pleat_store_fetch *held = begin(s, 1);
    CHECK(await(held).body != NULL);
    CHECK(fetch(s, 2).body == NULL);
    CHECK_EQ_U64(misses(s, PLEAT_STORE_BUSY), 1);
    pleat_store_fetch_end(&held);
    CHECK(fetch(s, 2).body != NULL);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* Each call of the file layer fails once, and for ever, while four are fetched: right bytes, or misses. */
static void test_failing(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, (uint64_t)1 << 30);
    for (uint64_t i = 1; i <= 4; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_close(&s);
    for (uint64_t k = 0; k < 40 && check_failures() == 0; k++) {
        failing fail = {.error = EIO, .for_ever = k % 2, .in_parts = true};
        const pleat__files files = failing_files(&fail);
        const pleat_store_options o = store_options(&f, (uint64_t)1 << 30);
        check_context("call %llu%s", (unsigned long long)k / 2, k % 2 ? " and all behind it" : "");
        if (!CHECK_STATUS(pleat__store_open_on(&o, &files, &s, NULL), PLEAT_OK)) break;
        fail.nth = fail.count + 1 + k / 2;
        for (uint64_t i = 1; i <= 4; i++) (void)fetch(s, i);
        pleat_store_flush(s);
        fail.nth = 0;
        for (uint64_t i = 1; i <= 4; i++) CHECK_EQ_U64(fetch(s, i).n_tokens, SAMPLE_TOKENS);
        pleat_store_close(&s);
    }
    folder_remove(&f);
}

static const check_test tests[] = {{"parts", test_parts},    {"refused", test_refused}, {"slow_read", test_slow_read},
                                   {"hang", test_hang},      {"cancel", test_cancel},   {"room", test_room},
                                   {"failing", test_failing}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
