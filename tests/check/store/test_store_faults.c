/* SPDX-License-Identifier: MIT
 *
 * test_store_faults.c: a store whose files are damaged, whose disk fails, whose process is killed: misses, and never a
 * body that is not what was stored (sample_read looks at every byte of what it is handed).
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "store_rig.h"

#define LARGE ((uint64_t)1 << 30)

/* Rounds of a test: what the environment says under `name`, as tests/long does, or these. */
static uint64_t rounds(const char *name, uint64_t full, uint64_t quick) {
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : check_rounds(full, quick);
}

/* ---- damaged files ------------------------------------------------------------------------------------- */

/* A store with image 5, and its file. */
typedef struct damage_rig {
    folder f;
    pleat_store *store;
    char path[PLEAT__FOLDER_PATH_CAP];
    uint8_t *bytes;
    size_t n, n_head;
} damage_rig;

static bool damage_rig_make(damage_rig *r) {
    sample s;
    if (!folder_make(&r->f)) return false;
    r->store = store_open(&r->f, LARGE);
    sample_init(&s, 5);
    CHECK_STATUS(sample_put(r->store, 5, 1e6), PLEAT_OK);
    pleat_store_flush(r->store);
    const pleat__store_key key = pleat__store_key_of(&s.head);
    pleat__folder_path(r->store->shelf.ctx, &key, r->path);
    r->bytes = check_read_file(r->path, &r->n);
    if (r->bytes) r->n_head = r->n - s.head.body_bytes;
    return CHECK(r->bytes != NULL);
}

static void damage_rig_free(damage_rig *r) {
    CHECK(pleat_store_is_valid(r->store));
    pleat_store_close(&r->store);
    free(r->bytes);
    folder_remove(&r->f);
}

/* The file becomes n of these bytes. */
static void put_file(const damage_rig *r, const uint8_t *bytes, size_t n) {
    FILE *file = fopen(r->path, "wb");
    if (!CHECK(file != NULL)) return;
    CHECK(fwrite(bytes, 1, n, file) == n);
    CHECK(fclose(file) == 0);
}

/* It is a miss, which is counted, and the file goes: the index is not asked, as if its row had outlived all. */
static void check_refused(const damage_rig *r) {
    static uint8_t body[SAMPLE_MAX_BODY];
    pleat_store_stats before, after;
    sample s;
    sample_init(&s, 5);
    pleat_store_get_stats(r->store, &before);
    CHECK_STATUS(pleat_store_read(r->store, &s.head, body, s.head.body_bytes), PLEAT_AGAIN);
    pleat_store_flush(r->store);
    pleat_store_get_stats(r->store, &after);
    CHECK_EQ_U64(after.hits, before.hits);
    CHECK_EQ_U64(after.misses[PLEAT_STORE_DAMAGED] + after.misses[PLEAT_STORE_OTHER],
                 before.misses[PLEAT_STORE_DAMAGED] + before.misses[PLEAT_STORE_OTHER] + 1);
    CHECK(access(r->path, F_OK) != 0);
}

static void flip(damage_rig *r, size_t at) {
    const uint8_t mask = (uint8_t)(1u << check_below(8));
    check_context("byte %zu, bit mask %02x", at, mask);
    r->bytes[at] ^= mask;
    put_file(r, r->bytes, r->n);
    r->bytes[at] ^= mask;
    check_refused(r);
}

static void test_flipped_bytes(void) {
    NEEDS_STORE();
    damage_rig r;
    if (!damage_rig_make(&r)) return;
    for (size_t at = 0; at < r.n_head && check_failures() == 0; at++) flip(&r, at);
    for (uint64_t i = 0; i < rounds("STORE_FLIPS", 1000, 100) && check_failures() == 0; i++)
        flip(&r, r.n_head + check_below(r.n - r.n_head));
    damage_rig_free(&r);
}

static void test_truncations(void) {
    NEEDS_STORE();
    damage_rig r;
    if (!damage_rig_make(&r)) return;
    const size_t step = getenv("STORE_CUTS") ? 1 : 997;
    for (size_t n = 0; n < r.n && check_failures() == 0; n += n < r.n_head ? 1 : step) {
        check_context("%zu of %zu bytes", n, r.n);
        put_file(&r, r.bytes, n);
        check_refused(&r);
    }
    check_context("a byte more");
    uint8_t *longer = malloc(r.n + 1);
    memcpy(longer, r.bytes, r.n);
    longer[r.n] = 0;
    put_file(&r, longer, r.n + 1);
    check_refused(&r);
    free(longer);
    check_context("whole, and without a row: found again when the store is opened");
    put_file(&r, r.bytes, r.n);
    pleat_store_close(&r.store);
    r.store = store_open(&r.f, LARGE);
    CHECK_STATUS(sample_read(r.store, 5), PLEAT_OK);
    damage_rig_free(&r);
}

/* ---- a damaged index ----------------------------------------------------------------------------------- */

static void damage_index(const folder *f, uint32_t how) {
    char path[300];
    size_t n;
    snprintf(path, sizeof path, "%s/index.sqlite", f->path);
    uint8_t *bytes = check_read_file(path, &n);
    if (!CHECK(bytes != NULL && n > 100)) return;
    if (how == 0) n = 0;
    if (how == 1) n = 50;
    if (how == 2) n -= 4096;
    for (size_t i = 0; how == 3 && i < n; i++) bytes[i] = (uint8_t)check_u64();
    for (size_t i = 100; how == 4 && i < n; i++) bytes[i] = (uint8_t)check_u64();
    for (uint32_t i = 0; how >= 5 && i < how; i++) bytes[check_below(n)] ^= (uint8_t)(1u << check_below(8));
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    free(bytes);
}

/* Whatever an index says, what is handed out is right; and an index that is none is made again from the files. */
static void test_damaged_index(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    for (uint32_t how = 0; how < rounds("STORE_INDEXES", 40, 15) && check_failures() == 0; how++) {
        check_context("damage %u", how);
        pleat_store *s = store_open(&f, LARGE);
        for (uint64_t i = 1; i <= 30 && s; i++) (void)sample_put(s, i, 1e6);
        pleat_store_close(&s); /* the log is empty then */
        damage_index(&f, how);
        const pleat_store_options o = store_options(&f, LARGE);
        const pleat_status status = pleat_store_open(&o, &s, NULL);
        CHECK(status == PLEAT_OK || status == PLEAT_E_IO);
        if (how < 5) CHECK_STATUS(status, PLEAT_OK);
        for (uint64_t i = 1; i <= 30 && s; i++) CHECK(sample_read(s, i) == PLEAT_OK || how >= 5);
        pleat_store_close(&s);
        if (status == PLEAT_OK) continue;
        folder_remove(&f); /* nothing can be made of it */
        if (!folder_make(&f)) return;
    }
    folder_remove(&f);
}

/* ---- a disk that fails --------------------------------------------------------------------------------- */

/* Put, evict and read on files of which the nth call fails.  True: none did, as there are fewer. */
static bool use_failing(const folder *f, failing *how) {
    const pleat_store_options o = store_options(f, 60000);
    const pleat__files files = failing_files(how);
    pleat_store *s = NULL;
    const pleat_status status = pleat__store_open_on(&o, &files, &s, NULL);
    CHECK(status == PLEAT_OK || status == PLEAT_E_IO);
    for (uint64_t i = 1; s && i <= 6; i++) {
        (void)sample_put(s, i, 1e6 * (double)i);
        pleat_store_flush(s);
        (void)sample_read(s, i);
        (void)sample_read(s, 1 + i / 2);
    }
    pleat_store_close(&s);
    return how->count < how->nth;
}

static void test_failing_disk(void) {
    NEEDS_STORE();
    static const int errors[] = {EIO, ENOSPC, EACCES};
    for (uint32_t k = 0; k < 2 * CHECK_COUNT(errors); k++) {
        bool is_over = false;
        for (uint64_t nth = 1; !is_over && check_failures() == 0; nth++) {
            folder f;
            failing how = {.nth = nth, .error = errors[k / 2], .for_ever = k % 2, .in_parts = true};
            check_context("call %llu fails with %d%s", (unsigned long long)nth, how.error,
                          k % 2 ? ", and all later" : "");
            if (!folder_make(&f)) return;
            is_over = use_failing(&f, &how);
            pleat_store *s = store_open(&f, 60000); /* on a disk that works again */
            CHECK(pleat_store_is_valid(s));
            for (uint64_t i = 1; i <= 6; i++) (void)sample_read(s, i);
            CHECK(sample_put(s, 7, 1e9) == PLEAT_OK);
            pleat_store_flush(s);
            CHECK_STATUS(sample_read(s, 7), PLEAT_OK);
            pleat_store_close(&s);
            folder_remove(&f);
        }
    }
}

/* What cannot be written is counted, and nothing is left of it. */
static void test_full_disk(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    failing how = {.error = ENOSPC, .for_ever = true};
    const pleat_store_options o = store_options(&f, LARGE);
    const pleat__files files = failing_files(&how);
    pleat_store *s = NULL;
    pleat_store_stats st;
    CHECK_STATUS(pleat__store_open_on(&o, &files, &s, NULL), PLEAT_OK);
    CHECK_STATUS(sample_put(s, 1, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    how.nth = how.count + 3; /* created and locked, and then no byte */
    CHECK_STATUS(sample_put(s, 2, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    how.nth = 0;
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.failed, 1);
    CHECK_EQ_U64(st.written, 1);
    CHECK_STATUS(sample_read(s, 1), PLEAT_OK);
    CHECK_STATUS(sample_read(s, 2), PLEAT_AGAIN);
    pleat_store_close(&s);
    s = store_open(&f, LARGE);
    CHECK(pleat_store_is_valid(s)); /* the temporary file too is gone */
    pleat_store_close(&s);
    folder_remove(&f);
}

/* ---- a process that is killed -------------------------------------------------------------------------- */

/* Write, evict and read until killed. */
static void live(const folder *f, uint64_t seed) {
    pleat_store *s = NULL;
    const pleat_store_options o = store_options(f, 200000);
    pleat_error err = {0};
    if (pleat_store_open(&o, &s, &err) != PLEAT_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    for (uint64_t i = seed;; i++) {
        (void)sample_put(s, 1 + i * 7 % 50, 1e6 * (double)(1 + i % 13));
        (void)sample_read(s, 1 + i * 3 % 50);
        if (check_failures() > 0) _exit(1);
    }
}

static void test_killed(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    for (uint64_t round = 0; round < rounds("STORE_KILLS", 40, 10) && check_failures() == 0; round++) {
        check_context("round %llu", (unsigned long long)round);
        pid_t children[2];
        for (uint32_t i = 0; i < 2; i++) {
            children[i] = fork();
            if (children[i] == 0) live(&f, round * 100 + i);
        }
        const struct timespec t = {.tv_nsec = (long)check_between(1000000, 60000000)};
        nanosleep(&t, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            int status = 0;
            CHECK(kill(children[i], SIGKILL) == 0);
            CHECK(waitpid(children[i], &status, 0) == children[i]);
            CHECK(WIFSIGNALED(status)); /* it has not ended by itself, at a wrong body */
        }
        pleat_store *s = store_open(&f, 200000);
        CHECK(pleat_store_is_valid(s));
        for (uint64_t i = 1; i <= 50; i++) (void)sample_read(s, i);
        pleat_store_close(&s);
    }
    folder_remove(&f);
}

/* ---- processes that open one folder at once ------------------------------------------------------------ */

enum { OPENERS = 6 };

/* Open it when `start` ends. */
static void open_one(const folder *f, const int start[2]) {
    char byte;
    (void)close(start[1]);
    (void)!read(start[0], &byte, 1);
    pleat_store *s = store_open(f, LARGE);
    pleat_store_close(&s);
    _exit(check_failures() > 0);
}

/* Each of them, where the folder is a new one. */
static void test_opened_at_once(void) {
    NEEDS_STORE();
    for (uint32_t round = 0; round < check_rounds(12, 5) && check_failures() == 0; round++) {
        folder f;
        int start[2];
        pid_t children[OPENERS];
        check_context("round %u", round);
        if (!folder_make(&f) || !CHECK(pipe(start) == 0)) return;
        for (uint32_t i = 0; i < OPENERS; i++) {
            children[i] = fork();
            if (children[i] == 0) open_one(&f, start);
        }
        (void)close(start[0]);
        (void)close(start[1]);
        for (uint32_t i = 0; i < OPENERS; i++) {
            int status = 0;
            CHECK(waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        folder_remove(&f);
    }
}

static const check_test tests[] = {
    {"killed", test_killed}, /* first: these fork */
    {"opened_at_once", test_opened_at_once},
    {"flipped_bytes", test_flipped_bytes},
    {"truncations", test_truncations},
    {"damaged_index", test_damaged_index},
    {"failing_disk", test_failing_disk},
    {"full_disk", test_full_disk},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
