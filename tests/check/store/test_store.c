/* SPDX-License-Identifier: MIT
 *
 * test_store.c: images in a folder: what is put is found and read, by this store and by others, now and after a restart;
 * whatever else is there is a miss.  Which files go is held against a list that is searched from end to end.
 */
#include "store_rig.h"

#define LARGE ((uint64_t)1 << 30)

/* ---- what is put is read ------------------------------------------------------------------------------- */

static void test_round_trip(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store_stats st;
    pleat_store *a = store_open(&f, LARGE), *b = store_open(&f, LARGE);
    CHECK_STATUS(sample_read(a, 1), PLEAT_AGAIN);
    for (uint64_t i = 1; i <= 5; i++) CHECK_STATUS(sample_put(a, i, 1e6), PLEAT_OK);
    CHECK_STATUS(sample_put(a, 3, 1e6), PLEAT_AGAIN); /* queued, or there */
    pleat_store_flush(a);
    CHECK_STATUS(sample_put(a, 3, 1e6), PLEAT_AGAIN);
    for (uint64_t i = 1; i <= 5; i++) CHECK_STATUS(sample_read(a, i), PLEAT_OK);
    for (uint64_t i = 1; i <= 5; i++) CHECK_STATUS(sample_read(b, i), PLEAT_OK); /* another's */
    CHECK_STATUS(sample_put(b, 4, 1e6), PLEAT_AGAIN);
    pleat_store_get_stats(a, &st);
    CHECK_EQ_U64(st.n_files, 5);
    CHECK_EQ_U64(st.written, 5);
    CHECK_EQ_U64(st.hits, 5);
    CHECK_EQ_U64(st.queued_bytes, 0);
    CHECK_EQ_U64(st.skipped + st.failed + st.evicted, 0);
    CHECK(st.read_bytes == st.written_bytes && pleat_store_read_speed(a) > 0);
    pleat_store_close(&b);
    CHECK(pleat_store_is_valid(a));
    pleat_store_close(&a);
    a = store_open(&f, LARGE);
    for (uint64_t i = 1; i <= 5; i++) CHECK_STATUS(sample_read(a, i), PLEAT_OK);
    pleat_store_close(&a);
    folder_remove(&f);
}

/* What close finds queued is written. */
static void test_close_writes(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    for (uint64_t i = 1; i <= 20; i++) CHECK_STATUS(sample_put(s, i, 1e6), PLEAT_OK);
    pleat_store_close(&s);
    s = store_open(&f, LARGE);
    for (uint64_t i = 1; i <= 20; i++) CHECK_STATUS(sample_read(s, i), PLEAT_OK);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* ---- what is another's is not found -------------------------------------------------------------------- */

static pleat_status find(pleat_store *s, const pleat_image_head *h) {
    uint64_t n;
    return pleat_store_find(s, h, &n);
}

static void test_others(void) {
    NEEDS_STORE();
    folder f;
    sample own;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    sample_init(&own, 9);
    CHECK_STATUS(sample_put(s, 9, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    CHECK_STATUS(find(s, &own.head), PLEAT_OK);
    pleat_image_head others[16];
    pleat_token tokens[SAMPLE_TOKENS];
    pleat_image_step steps[2];
    size_t n = 0;
    for (; n < CHECK_COUNT(others); n++) others[n] = own.head;
    memcpy(tokens, own.tokens, sizeof tokens);
    memcpy(steps, own.steps, sizeof steps);
    tokens[SAMPLE_TOKENS - 1] ^= 1;
    steps[1].flags = 0;
    n = 0;
    others[n++].model[31] = '0';
    strcpy(others[n++].profile, "0123456789abcdef0123456789abcdef");
    others[n].spec = "k8v8", n++;
    others[n].n_spec = 3, n++;
    others[n].salt = "tenant 8", n++;
    others[n].n_salt = 7, n++;
    others[n].n_salt = 0, n++;
    others[n++].n_layers = 3;
    others[n++].n_q_heads = 4;
    others[n++].n_kv_heads = 1;
    others[n++].head_dim = 128;
    others[n++].page_tokens = 16;
    others[n++].tokens = tokens;
    others[n++].n_tokens = SAMPLE_TOKENS - 1;
    others[n++].steps = steps;
    others[n++].n_steps = 1;
    CHECK_EQ_U64(n, CHECK_COUNT(others));
    for (size_t i = 0; i < n; i++) {
        check_context("difference %zu", i);
        CHECK_STATUS(find(s, &others[i]), PLEAT_AGAIN);
    }
    pleat_store_close(&s);
    folder_remove(&f);
}

/* A file under another's name, a link, a folder: misses, and what is another's goes. */
static void test_swapped_files(void) {
    NEEDS_STORE();
    folder f;
    char from[PLEAT__FOLDER_PATH_CAP], to[PLEAT__FOLDER_PATH_CAP];
    sample a, b;
    if (!folder_make(&f)) return;
    pleat_store_stats st;
    pleat_store *s = store_open(&f, LARGE);
    sample_init(&a, 1);
    sample_init(&b, 1 + SAMPLE_MAX_BODY - 1000); /* a body of the same length */
    CHECK_EQ_U64(a.head.body_bytes, b.head.body_bytes);
    CHECK_STATUS(sample_put(s, a.number, 1e6), PLEAT_OK);
    CHECK_STATUS(sample_put(s, b.number, 1e6), PLEAT_OK);
    pleat_store_flush(s);
    const pleat__store_key key_a = pleat__store_key_of(&a.head), key_b = pleat__store_key_of(&b.head);
    pleat__folder_path(s->shelf.ctx, &key_a, from);
    pleat__folder_path(s->shelf.ctx, &key_b, to);
    CHECK(rename(from, to) == 0);
    CHECK_STATUS(sample_read(s, b.number), PLEAT_AGAIN);
    CHECK_STATUS(sample_read(s, a.number), PLEAT_AGAIN);
    pleat_store_flush(s);
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.misses[PLEAT_STORE_OTHER], 1);
    CHECK_EQ_U64(st.misses[PLEAT_STORE_GONE], 1);
    CHECK_EQ_U64(st.n_files, 0);
    CHECK(access(to, F_OK) != 0);
    CHECK(symlink("/dev/zero", to) == 0);
    CHECK_STATUS(sample_put(s, b.number, 1e6), PLEAT_OK); /* the name is taken from it */
    pleat_store_flush(s);
    CHECK_STATUS(sample_read(s, b.number), PLEAT_OK);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
    folder_remove(&f);
}

/* ---- which go ------------------------------------------------------------------------------------------ */

/* The oracle: what the header says, by a search of all. */
typedef struct known {
    uint64_t number, bytes;
    double cost_ns, uses;
    int64_t used_at;
} known;

typedef struct oracle {
    known v[64];
    uint32_t n;
    int64_t now;
} oracle;

static double worth(const oracle *o, const known *k) {
    return k->uses * pow(0.5, (double)(o->now - k->used_at) / 1024) * k->cost_ns / (double)k->bytes;
}

static uint64_t oracle_bytes(const oracle *o) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < o->n; i++) sum += o->v[i].bytes;
    return sum;
}

static void oracle_evict(oracle *o, uint64_t max_bytes) {
    while (oracle_bytes(o) > max_bytes) {
        uint32_t low = 0;
        for (uint32_t i = 1; i < o->n; i++)
            if (worth(o, &o->v[i]) < worth(o, &o->v[low])) low = i;
        o->v[low] = o->v[--o->n];
    }
}

static known *oracle_find(oracle *o, uint64_t number) {
    for (uint32_t i = 0; i < o->n; i++)
        if (o->v[i].number == number) return &o->v[i];
    return NULL;
}

/* The clock of the index: one more than the newest use that it still knows. */
static int64_t tick(oracle *o) {
    o->now = 0;
    for (uint32_t i = 0; i < o->n; i++)
        if (o->v[i].used_at > o->now) o->now = o->v[i].used_at;
    return ++o->now;
}

static void oracle_put(oracle *o, uint64_t number, uint64_t bytes, double cost_ns, uint64_t max_bytes) {
    oracle_evict(o, max_bytes - bytes);
    o->v[o->n++] = (known){number, bytes, cost_ns, 1, tick(o)};
}

static void oracle_use(oracle *o, known *k) {
    const int64_t now = tick(o);
    k->uses = 1 + k->uses * pow(0.5, (double)(now - k->used_at) / 1024);
    k->used_at = now;
}

static uint64_t disk_bytes(uint64_t number) {
    sample s;
    sample_init(&s, number);
    s.head.piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT;
    return (pleat_image_head_bytes(&s.head) + s.head.body_bytes + 4095) / 4096 * 4096;
}

static void test_eviction(void) {
    NEEDS_STORE();
    enum { MAX = 300000, NUMBERS = 40 };
    folder f;
    oracle o = {.n = 0};
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, MAX);
    for (uint64_t i = 0; i < check_rounds(800, 200) && check_failures() == 0; i++) {
        const uint64_t number = 1 + check_below(NUMBERS);
        known *k = oracle_find(&o, number);
        if (CHECK_STATUS(sample_read(s, number), k ? PLEAT_OK : PLEAT_AGAIN) && k) oracle_use(&o, k);
        if (!k) {
            const double cost_ns = 1e6 * (double)check_between(1, 1000);
            CHECK_STATUS(sample_put(s, number, cost_ns), PLEAT_OK);
            oracle_put(&o, number, disk_bytes(number), cost_ns, MAX);
        }
        pleat_store_flush(s);
        if (i % 50 == 0) CHECK(pleat_store_is_valid(s));
    }
    pleat_store_close(&s);
    s = store_open(&f, MAX / 2); /* less room from now on */
    oracle_evict(&o, MAX / 2);
    for (uint64_t number = 1; number <= NUMBERS; number++)
        CHECK_STATUS(sample_read(s, number), oracle_find(&o, number) ? PLEAT_OK : PLEAT_AGAIN);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
    folder_remove(&f);
}

/* ---- bounds -------------------------------------------------------------------------------------------- */

static void test_bounds(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store_stats st;
    pleat_store_options o = store_options(&f, 4096);
    pleat_store *s = NULL;
    sample one;
    sample_init(&one, 3);
    CHECK_STATUS(pleat_store_open(&o, &s, NULL), PLEAT_OK);
    CHECK_STATUS(sample_put(s, 3, 1e6), PLEAT_E_LIMIT); /* larger than the folder may be */
    CHECK_STATUS(sample_put(s, 3, 0), PLEAT_E_ARG);
    CHECK_STATUS(sample_put(s, 3, (double)NAN), PLEAT_E_ARG);
    CHECK_STATUS(pleat_store_put(NULL, &one.head, 1e6, sample_fill, &one), PLEAT_E_ARG);
    one.head.n_tokens = 0;
    CHECK_STATUS(pleat_store_put(s, &one.head, 1e6, sample_fill, &one), PLEAT_E_ARG);
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.skipped, 1);
    pleat_store_close(&s);
    o = store_options(&f, LARGE);
    o.queue_bytes = 20000;
    CHECK_STATUS(pleat_store_open(&o, &s, NULL), PLEAT_OK);
    CHECK_STATUS(sample_put(s, 4, 1e6), PLEAT_E_LIMIT); /* a body of 32676 bytes */
    pleat_store_get_stats(s, &st);
    CHECK_EQ_U64(st.skipped, 1);
    CHECK_EQ_U64(st.queued_bytes, 0);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
    folder_remove(&f);
}

static void test_options(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store *s = NULL;
    pleat_error err = {0};
    pleat_store_options o = store_options(&f, 0);
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    o = store_options(&f, LARGE);
    o.size_bytes--;
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    o = store_options(&f, LARGE);
    o.dir = "";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    o.dir = "/dev/null/folder";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_IO);
    CHECK(err.text[0] && !s);
    o.dir = "/dev/null";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_IO);
    for (int i = 0; i < PLEAT_STORE_N_MISSES; i++) CHECK(pleat_store_miss_name((pleat_store_miss)i) != NULL);
    CHECK(!pleat_store_miss_name(PLEAT_STORE_N_MISSES));
    pleat_store_close(&s);
    pleat_store_close(NULL);
    folder_remove(&f);
}

/* Each allocation fails once while a store is opened, and while an image is put and read: no leak. */
static void test_allocations(void) {
    NEEDS_STORE();
    folder f;
    if (!folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    CHECK_STATUS(sample_put(s, 2, 1e6), PLEAT_OK);
    pleat_store_close(&s);
    check_alloc ca;
    pleat_store_options o = store_options(&f, LARGE);
    o.allocator = &ca.a;
    for (uint64_t nth = 1; nth < 100; nth++) {
        check_alloc_init(&ca, nth, 0);
        const pleat_status status = pleat_store_open(&o, &s, NULL);
        if (status == PLEAT_OK) break;
        CHECK_STATUS(status, PLEAT_E_MEMORY);
        CHECK_EQ_U64(ca.live, 0);
    }
    CHECK(s != NULL);
    pleat_store_close(&s);
    CHECK_EQ_U64(ca.live, 0);
    folder_remove(&f);
}

static const check_test tests[] = {
    {"round_trip", test_round_trip}, {"close_writes", test_close_writes},
    {"others", test_others},         {"swapped_files", test_swapped_files},
    {"eviction", test_eviction},     {"bounds", test_bounds},
    {"options", test_options},       {"allocations", test_allocations},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
