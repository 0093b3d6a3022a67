/* SPDX-License-Identifier: MIT
 *
 * test_store_servers.c: images on servers: a real redis-server, where there is one, which loses pieces, is full, restarts and
 * dies; and stand-ins that hang, close, and answer what was not asked for.
 */
#include <sched.h>

#include "redis.h"
#include "store/servers/servers.h"

#define MIB ((uint64_t)1 << 20)
enum { BIG = 3670123 }; /* bytes of a body of four pieces */

static pleat_store *open_servers(uint16_t a, uint16_t b, uint64_t timeout_ns) {
    char text[64];
    pleat_store_options o;
    pleat_store *s = NULL;
    pleat_error err = {0};
    pleat_store_options_default(&o);
    snprintf(text, sizeof text, b ? "redis://127.0.0.1:%u,127.0.0.1:%u" : "redis://127.0.0.1:%u", a, b);
    o.servers = text;
    if (timeout_ns) o.timeout_ns = timeout_ns;
    if (!CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_OK)) printf("%s\n", err.text);
    return s;
}

static bool have_hiredis(void) { return pleat__server_exists(); }

#define NEEDS_HIREDIS()                                         \
    do {                                                        \
        if (!have_hiredis()) SKIP("this build has no hiredis"); \
    } while (0)

#define NEEDS_REDIS(r)                                                     \
    do {                                                                   \
        NEEDS_HIREDIS();                                                   \
        if (!redis_start(r, 0)) SKIP("there is no redis-server to start"); \
    } while (0)

static void big_init(sample *s, uint64_t number) {
    sample_init(s, number);
    s->head.body_bytes = BIG;
}

static pleat_status big_put(pleat_store *store, uint64_t number) {
    sample s;
    big_init(&s, number);
    return pleat_store_put(store, &s.head, 1e6, sample_fill, &s);
}

/* As sample_read(). */
static pleat_status big_read(pleat_store *store, uint64_t number) {
    uint64_t n = 0;
    sample s;
    big_init(&s, number);
    if (pleat_store_find(store, &s.head, &n) != PLEAT_OK) return PLEAT_AGAIN;
    if (!CHECK_EQ_U64(n, BIG)) return PLEAT_E_STATE;
    uint8_t *body = malloc(BIG), *want = malloc(BIG);
    const pleat_status status = pleat_store_read(store, &s.head, body, n);
    (void)sample_fill(&s, want, BIG);
    if (status == PLEAT_OK) CHECK(memcmp(body, want, BIG) == 0);
    free(want);
    free(body);
    return status;
}

static pleat_store_stats stats_of(pleat_store *s) {
    pleat_store_stats st;
    pleat_store_get_stats(s, &st);
    return st;
}

static uint64_t all_misses(pleat_store *s) {
    const pleat_store_stats st = stats_of(s);
    uint64_t n = 0;
    for (int i = 0; i < PLEAT_STORE_N_MISSES; i++) n += st.misses[i];
    return n;
}

static void test_addresses(void) {
    static const char *const bad[] = {"",
                                      "redis://",
                                      "redis://a",
                                      "redis://a:",
                                      "redis://:1",
                                      "redis://a:0",
                                      "redis://a:65536",
                                      "redis://a:1x",
                                      "redis://a:1,",
                                      "redis://a:1,,b:2",
                                      "redis://a b:1",
                                      "redis://user@a:1",
                                      "redis://user:@a:1",
                                      "redis://:@a:1",
                                      "redis://a:b:c@a:1",
                                      "redis://:b%@a:1",
                                      "redis://:b%0@a:1",
                                      "redis://:b%00@a:1",
                                      "redis://:b%xx@a:1",
                                      "redis://:b@a:1,:b@a:2",
                                      "redis://:a/b@a:1",
                                      "redis://[a:1",
                                      "redis://a:1/0",
                                      "rediss://a:1"};
    pleat__server_address a[PLEAT__SERVERS_MAX];
    pleat__server_login login;
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        check_context("'%s'", bad[i]);
        CHECK_EQ_U64(pleat__server_addresses(bad[i], a, &login), 0);
    }
    CHECK_EQ_U64(pleat__server_addresses("redis://[::1]:6379,shard-2.example:65535", a, &login), 2);
    CHECK(login.user[0] == 0 && login.password[0] == 0);
    CHECK(strcmp(a[0].host, "::1") == 0 && a[0].port == 6379);
    CHECK(strcmp(a[1].host, "shard-2.example") == 0 && a[1].port == 65535);
    CHECK_EQ_U64(pleat__server_addresses("redis://us%65r:a%2C%40%ff@b:1,c:2", a, &login), 2);
    CHECK(strcmp(login.user, "user") == 0 && strcmp(login.password, "a,@\xff") == 0 && a[1].port == 2);
    CHECK_EQ_U64(pleat__server_addresses("redis://:x@b:1", a, &login), 1);
    CHECK(login.user[0] == 0 && strcmp(login.password, "x") == 0);
    char many[400] = "redis://a:1";
    for (int i = 1; i < PLEAT__SERVERS_MAX; i++) strcat(many, ",a:1");
    CHECK_EQ_U64(pleat__server_addresses(many, a, &login), PLEAT__SERVERS_MAX);
    strcat(many, ",a:1");
    CHECK_EQ_U64(pleat__server_addresses(many, a, &login), 0);
}

static void test_options(void) {
    pleat_store_options o;
    pleat_store *s = NULL;
    pleat_error err = {0};
    pleat_store_options_default(&o);
    o.servers = "redis://nowhere";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "HOST:PORT") != NULL);
    o.servers = "redis://user:word@a:x";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "HOST:PORT") != NULL && strstr(err.text, "word") == NULL); /* no secret in a log */
    o.servers = "redis://127.0.0.1:1";
    o.dir = "/tmp";
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    o.dir = NULL;
    o.ttl_s = 0;
    CHECK_STATUS(pleat_store_open(&o, &s, &err), PLEAT_E_ARG);
    o.ttl_s = 1;
    CHECK_STATUS(pleat_store_open(&o, &s, &err), have_hiredis() ? PLEAT_OK : PLEAT_E_UNSUPPORTED);
    if (!have_hiredis()) CHECK(strstr(err.text, "hiredis") != NULL);
    pleat_store_close(&s);
}

/* What one store writes another reads: small images and those of several pieces, on one server and on two. */
static void test_round_trip(void) {
    redis a, b;
    NEEDS_REDIS(&a);
    if (!CHECK(redis_start(&b, 0))) return;
    for (uint32_t n = 1; n <= 2; n++) {
        pleat_store *one = open_servers(a.port, n == 2 ? b.port : 0, 0),
                    *two = open_servers(a.port, n == 2 ? b.port : 0, 0);
        check_context("%u servers", n);
        CHECK_STATUS(big_read(one, 100 * n), PLEAT_AGAIN);
        for (uint64_t i = 0; i < 5; i++) {
            CHECK_STATUS(sample_put(one, 100 * n + i, 1e6), PLEAT_OK);
            CHECK_STATUS(big_put(one, 1000 * n + i), PLEAT_OK);
        }
        pleat_store_flush(one);
        for (uint64_t i = 0; i < 5; i++) {
            CHECK_STATUS(sample_read(one, 100 * n + i), PLEAT_OK);
            CHECK_STATUS(sample_read(two, 100 * n + i), PLEAT_OK);
            CHECK_STATUS(big_read(one, 1000 * n + i), PLEAT_OK);
            CHECK_STATUS(big_read(two, 1000 * n + i), PLEAT_OK);
        }
        CHECK_STATUS(big_put(two, 1000 * n), PLEAT_AGAIN); /* it has seen it there */
        const pleat_store_stats st = stats_of(one);
        CHECK_EQ_U64(st.written, 10);
        CHECK_EQ_U64(st.hits, 10);
        CHECK_EQ_U64(st.failed + st.servers_down + all_misses(one), 0);
        CHECK_EQ_U64(st.n_servers, n);
        CHECK(pleat_store_is_valid(one));
        pleat_store_close(&two);
        pleat_store_close(&one);
    }
    char said[64];
    redis_say(&b, "DBSIZE\r\n", said, sizeof said);
    CHECK(said[0] == ':' && atoi(said + 1) >= 10); /* both have some */
    redis_stop(&a);
    redis_stop(&b);
}

/* Everything lasts as long as it is read. */
static void test_time_to_live(void) {
    redis a;
    char said[64];
    NEEDS_REDIS(&a);
    pleat_store *s = open_servers(a.port, 0, 0);
    CHECK_STATUS(big_put(s, 1), PLEAT_OK);
    pleat_store_flush(s);
    static const char least[] =
        "local t = -1 for i, k in ipairs(redis.call('keys', '*')) do local n = redis.call('ttl', k) "
        "if t < 0 or n < t then t = n end if n < 0 then return -7 end end return t";
    char command[600], age[600];
    snprintf(command, sizeof command, "*3\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n0\r\n", sizeof least - 1, least);
    static const char make_old[] =
        "for i, k in ipairs(redis.call('keys', '*')) do redis.call('expire', k, 9) end return 1";
    snprintf(age, sizeof age, "*3\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n0\r\n", sizeof make_old - 1, make_old);
    redis_say(&a, command, said, sizeof said);
    CHECK(said[0] == ':' && atoi(said + 1) > 86000 && atoi(said + 1) <= 86400);
    redis_say(&a, age, said, sizeof said);
    CHECK_STATUS(big_read(s, 1), PLEAT_OK);
    redis_say(&a, command, said, sizeof said);
    CHECK(said[0] == ':' && atoi(said + 1) > 86000);
    pleat_store_close(&s);
    redis_stop(&a);
}

/* A key that goes, or holds something else, costs a miss; the image is written again. */
static void test_lost_keys(void) {
    static const char *const changes[] = {"redis.call('del', k)",
                                          "redis.call('set', k, '')",
                                          "redis.call('set', k, 'x')",
                                          "redis.call('append', k, 'x')",
                                          "redis.call('setrange', k, redis.call('strlen', k) - 1, '?')",
                                          "redis.call('setrange', k, 25, '?')",
                                          "redis.call('del', k) redis.call('rpush', k, 'a')"};
    redis a;
    NEEDS_REDIS(&a);
    pleat_store *s = open_servers(a.port, 0, 0);
    for (uint32_t i = 0; i < 5 * CHECK_COUNT(changes) && check_failures() == 0; i++) {
        char script[400], command[600], said[64];
        check_context("key %u, %s", i / (uint32_t)CHECK_COUNT(changes), changes[i % CHECK_COUNT(changes)]);
        CHECK_STATUS(big_put(s, 1), PLEAT_OK);
        pleat_store_flush(s);
        CHECK_STATUS(big_read(s, 1), PLEAT_OK);
        const uint64_t n_misses = all_misses(s);
        snprintf(script, sizeof script,
                 "local all = redis.call('keys', '*') table.sort(all) local k = all[%u] %s return #all",
                 1 + i / (uint32_t)CHECK_COUNT(changes), changes[i % CHECK_COUNT(changes)]);
        snprintf(command, sizeof command, "*3\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n0\r\n", strlen(script), script);
        redis_say(&a, command, said, sizeof said);
        CHECK(strncmp(said, ":5", 2) == 0);
        CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
        CHECK(all_misses(s) == n_misses + 1 || i % CHECK_COUNT(changes) < 2); /* nothing: who looks counts it */
        pleat_store_flush(s);
        redis_say(&a, "FLUSHALL\r\n", said, sizeof said);
        CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
    }
    pleat_store_close(&s);
    redis_stop(&a);
}

/* A head whose length cannot be goes when it is looked for, and one of another length when it is put again. */
static void test_wrong_length(void) {
    redis a;
    char said[64], command[300];
    NEEDS_REDIS(&a);
    for (uint32_t at = 16; at < 24; at++) {
        pleat_store *s = open_servers(a.port, 0, 0), *other = open_servers(a.port, 0, 0);
        check_context("byte %u", at);
        CHECK_STATUS(big_put(s, 1), PLEAT_OK);
        pleat_store_flush(s);
        snprintf(
            command, sizeof command,
            "EVAL \"local a = redis.call('keys', '*') table.sort(a) redis.call('setrange', a[1], %u, '?') return 1\" "
            "0\r\n",
            at);
        redis_say(&a, command, said, sizeof said);
        CHECK(strncmp(said, ":1", 2) == 0);
        if (at >= 22) CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
        pleat_store_flush(s);
        CHECK_STATUS(big_put(at >= 22 ? s : other, 1), PLEAT_OK);
        pleat_store_flush(s);
        pleat_store_flush(other);
        CHECK_STATUS(big_read(s, 1), PLEAT_OK);
        pleat_store_close(&other);
        pleat_store_close(&s);
    }
    redis_stop(&a);
}

/* A server that has no room drops others' keys, or takes nothing; nobody gets a wrong body. */
static void test_full(void) {
    redis a;
    char said[64];
    NEEDS_REDIS(&a);
    for (uint32_t k = 0; k < 2; k++) {
        pleat_store *s = open_servers(a.port, 0, 0);
        uint32_t n_had = 0;
        check_context("%s", k ? "noeviction" : "allkeys-lru");
        redis_say(&a, "FLUSHALL\r\n", said, sizeof said);
        redis_say(&a, "CONFIG SET maxmemory 20mb\r\n", said, sizeof said);
        redis_say(&a, k ? "CONFIG SET maxmemory-policy noeviction\r\n" : "CONFIG SET maxmemory-policy allkeys-lru\r\n",
                  said, sizeof said);
        for (uint64_t i = 0; i < 12; i++) {
            CHECK_STATUS(big_put(s, 1 + i), PLEAT_OK);
            pleat_store_flush(s);
        }
        for (uint64_t i = 0; i < 12; i++) n_had += big_read(s, 1 + i) == PLEAT_OK;
        CHECK(n_had < 12 && (n_had > 0 || k == 0)); /* what is evicted may be a piece of each */
        CHECK((stats_of(s).failed > 0) == (k == 1));
        pleat_store_close(&s);
    }
    redis_stop(&a);
}

/* It dies, is missed, and comes back. */
static void test_restart(void) {
    redis a;
    NEEDS_REDIS(&a);
    const uint16_t port = a.port;
    pleat_store *s = open_servers(port, 0, 0);
    CHECK_STATUS(big_put(s, 1), PLEAT_OK);
    pleat_store_flush(s);
    CHECK_STATUS(big_read(s, 1), PLEAT_OK);
    redis_stop(&a);
    CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
    CHECK_EQ_U64(stats_of(s).servers_down, 1);
    CHECK_STATUS(big_put(s, 2), PLEAT_OK);
    pleat_store_flush(s);
    CHECK_EQ_U64(stats_of(s).failed, 1);
    if (CHECK(redis_start(&a, port))) {
        do {
            CHECK_STATUS(big_put(s, 3), PLEAT_OK); /* until it is asked again */
            pleat_store_flush(s);
        } while (stats_of(s).written == 1 && check_failures() == 0);
        CHECK_EQ_U64(stats_of(s).servers_down, 1); /* who reads has not asked it again */
        while (big_read(s, 3) != PLEAT_OK && check_failures() == 0) sched_yield();
        CHECK_EQ_U64(stats_of(s).servers_down, 0);
    }
    pleat_store_close(&s);
    redis_stop(&a);
}

/* Who says no password, or another, is told nothing. */
static void test_password(void) {
    static const char *const logins[] = {"",           ":wrong@",          "default:wrong@", "nobody:a%20word@",
                                         ":a%20word@", "default:a%20word@"};
    redis a;
    char said[64], text[128];
    NEEDS_REDIS(&a);
    redis_say(&a, "CONFIG SET requirepass \"a word\"\r\n", said, sizeof said);
    CHECK(strncmp(said, "+OK", 3) == 0);
    for (uint64_t i = 0; i < CHECK_COUNT(logins); i++) {
        const bool is_right = i >= 4;
        pleat_store_options o;
        pleat_store *s = NULL;
        pleat_store_options_default(&o);
        snprintf(text, sizeof text, "redis://%s127.0.0.1:%u", logins[i], a.port);
        check_context("%s", text);
        o.servers = text;
        if (!CHECK_STATUS(pleat_store_open(&o, &s, NULL), PLEAT_OK)) break;
        CHECK_STATUS(big_put(s, i + 1), PLEAT_OK);
        pleat_store_flush(s);
        CHECK_STATUS(big_read(s, i + 1), is_right ? PLEAT_OK : PLEAT_AGAIN);
        CHECK_EQ_U64(stats_of(s).written, is_right);
        CHECK_EQ_U64(stats_of(s).failed, !is_right);
        pleat_store_close(&s);
    }
    redis_stop(&a);
}

/* A connection that the server has closed since nobody used it is made again, and nothing is missed. */
static void test_idle(void) {
    redis a;
    char said[64];
    NEEDS_REDIS(&a);
    pleat_store *s = open_servers(a.port, 0, 0);
    for (uint64_t i = 1; i <= 4 && check_failures() == 0; i++) {
        CHECK_STATUS(big_put(s, i), PLEAT_OK);
        pleat_store_flush(s);
        CHECK_STATUS(big_read(s, i), PLEAT_OK);
        redis_say(&a, "CLIENT KILL TYPE normal\r\n", said, sizeof said);
        CHECK(strncmp(said, ":2", 2) == 0); /* who reads, who writes */
    }
    CHECK_EQ_U64(stats_of(s).written, 4);
    CHECK_EQ_U64(all_misses(s) + stats_of(s).failed + stats_of(s).servers_down, 0);
    pleat_store_close(&s);
    redis_stop(&a);
}

/* ---- fetches ---------------------------------------------------------------------------------------------------------- */

/* Two parts of a sample: all of it, and its first step. */
static pleat_store_fetch *begin(pleat_store *store, double compute_ns) {
    const pleat_store_part parts[2] = {{2, compute_ns}, {1, compute_ns}};
    pleat_store_fetch *f = NULL;
    pleat_store_wish w;
    sample own;
    sample_init(&own, 1);
    pleat_store_wish_default(&w);
    w.head = &own.head;
    w.parts = parts;
    w.n_parts = 2;
    CHECK_STATUS(pleat_store_fetch_begin(store, &w, &f), PLEAT_OK);
    return f;
}

/* Nothing is had. */
static void await_nothing(pleat_store_fetch *f) {
    pleat_store_found found;
    while (pleat_store_fetch_poll(f, &found) == PLEAT_AGAIN) sched_yield();
    CHECK(found.body == NULL);
}

/* Answers two questions when it has heard both. */
static void *answer_both(void *arg) {
    const int fd = accept(*(const int *)arg, NULL, NULL);
    static const char two[] = "$0\r\n\r\n$0\r\n\r\n";
    char heard[4096] = "";
    for (size_t n = 0; fd >= 0 && n < sizeof heard - 1;) {
        const ssize_t more = recv(fd, heard + n, sizeof heard - 1 - n, 0);
        if (more <= 0) break;
        n += (size_t)more;
        const char *first = strstr(heard, "GETRANGE");
        if (first && strstr(first + 1, "GETRANGE"))
            CHECK(send(fd, two, strlen(two), MSG_NOSIGNAL) == (ssize_t)strlen(two));
    }
    if (fd >= 0) close(fd);
    return NULL;
}

/* What might be there is asked for at once, not one by one. */
static void test_asked_at_once(void) {
    NEEDS_HIREDIS();
    uint16_t port = 0;
    pthread_t thread;
    int fd = listen_anywhere(&port);
    CHECK(pthread_create(&thread, NULL, answer_both, &fd) == 0);
    pleat_store *s = open_servers(port, 0, 20000000000);
    pleat_store_fetch *f = begin(s, 1e18);
    await_nothing(f);
    pleat_store_fetch_end(&f);
    CHECK_EQ_U64(stats_of(s).misses[PLEAT_STORE_ABSENT], 1);
    CHECK_EQ_U64(all_misses(s), 1);
    pleat_store_close(&s);
    pthread_join(thread, NULL);
    close(fd);
}

/* A fetch that is given up counts once, though its reader hears of the time-out too. */
static void test_late_once(void) {
    stand_in in;
    NEEDS_HIREDIS();
    for (uint64_t i = 1; i <= 5; i++) {
        stand_in_start(&in, NULL, 0, false);
        pleat_store *s = open_servers(in.port, 0, i * 1000000);
        pleat_store_fetch *f = begin(s, 1);
        await_nothing(f);
        pleat_store_fetch_end(&f);
        while (stats_of(s).read_waits_ns > 0) sched_yield(); /* until the reader has done with it */
        CHECK_EQ_U64(stats_of(s).misses[PLEAT_STORE_TIMEOUT], 1);
        CHECK_EQ_U64(all_misses(s), 1);
        pleat_store_close(&s);
        stand_in_stop(&in);
    }
}

/* What no server of the kind says: a miss, and nothing is believed; then it is left alone. */
static void test_strangers(void) {
    static const struct {
        const char *says;
        bool closes, is_late;
    } kinds[] = {{NULL, false, true},
                 {"", true, false},
                 {"HTTP/1.1 400 Bad Request\r\n\r\n", false, false},
                 {"$24\r\n12345", true, false},
                 {"$24\r\n12345", false, true},
                 {"$-5\r\n", false, false},
                 {"$99999999999999\r\n", false, true},
                 {"$10\r\n0123456789\r\n", false, false},
                 {"$24\r\nabcdefghijklmnopqrstuvwx\r\n", false, false},
                 {"$24\r\nPLEATIMG\2\0\0\0\0\1\0\0\377\377\377\377\377\377\377\377\r\n", false, false},
                 {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", false, false},
                 {"*1000000000\r\n", false, true},
                 {"-ERR no\r\n", false, false},
                 {":7\r\n", false, false},
                 {"+OK\r\n", false, false},
                 {"$0\r\n\r\n", false, false}};
    NEEDS_HIREDIS();
    for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++) {
        stand_in in;
        const char *says = kinds[i].says;
        check_context("answer %zu", i);
        stand_in_start(&in, says, i == 9 ? 5 + 24 + 2 : says ? strlen(says) : 0, kinds[i].closes);
        pleat_store *s = open_servers(in.port, 0, kinds[i].is_late ? 20000000 : 600000000000);
        CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
        CHECK_STATUS(big_put(s, 2), PLEAT_OK);
        pleat_store_flush(s);
        const pleat_store_stats st = stats_of(s);
        CHECK_EQ_U64(st.hits, 0);
        CHECK_EQ_U64(st.misses[PLEAT_STORE_TIMEOUT], kinds[i].is_late);
        pleat_store_close(&s);
        stand_in_stop(&in);
    }
}

/* A server that hangs costs its time-out once, and whoever comes then does not wait. */
static void test_hang(void) {
    stand_in in;
    NEEDS_HIREDIS();
    stand_in_start(&in, NULL, 0, false);
    pleat_store *s = open_servers(in.port, 0, 1000000);
    CHECK_STATUS(big_read(s, 1), PLEAT_AGAIN);
    const unsigned n_heard = atomic_load(&in.n_heard);
    for (uint64_t i = 0; i < 1000; i++) CHECK_STATUS(big_read(s, i), PLEAT_AGAIN);
    CHECK(atomic_load(&in.n_heard) < n_heard + 20);
    CHECK_EQ_U64(stats_of(s).servers_down, 1);
    CHECK_EQ_U64(stats_of(s).misses[PLEAT_STORE_TIMEOUT], 1001);
    pleat_store_close(&s);
    stand_in_stop(&in);
}

static const check_test tests[] = {{"addresses", test_addresses},
                                   {"options", test_options},
                                   {"round_trip", test_round_trip},
                                   {"lost_keys", test_lost_keys},
                                   {"wrong_length", test_wrong_length},
                                   {"time_to_live", test_time_to_live},
                                   {"full", test_full},
                                   {"restart", test_restart},
                                   {"password", test_password},
                                   {"idle", test_idle},
                                   {"asked_at_once", test_asked_at_once},
                                   {"late_once", test_late_once},
                                   {"strangers", test_strangers},
                                   {"hang", test_hang}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
