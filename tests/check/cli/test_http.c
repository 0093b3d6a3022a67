/* SPDX-License-Identifier: MIT
 *
 * test_http.c: which heads of requests are taken and which refused, with which status; and keys.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "cli/serve/keys.h"
#include "cli/serve/net/http.h"

#define HOST "Host: a\r\n"

static const struct {
    const char *text;
    int want; /* 1: taken whole; 0: its end has not come; else the status */
} heads[] = {
    {"GET / HTTP/1.1\r\n" HOST "\r\n", 1},
    {"GET / HTTP/1.0\r\n\r\n", 1},
    {"POST /v1/completions HTTP/1.1\r\nhost:a\r\ncontent-length:  12\t\r\n\r\n", 1},
    {"GET / HTTP/1.1\r\n" HOST "\r", 0},
    {"", 0},
    {"GET / HTTP/1.1\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", -400},
    {"GET / HTTP/1.1\n" HOST "\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST "X\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n", -400},
    {"GET  / HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET a HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET /\x80 HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET http://a/health HTTP/1.1\r\n" HOST "\r\n", 1},
    {"GET http://a HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET http:///health HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET http://a/\x80 HTTP/1.1\r\n" HOST "\r\n", -400},
    {"G@T / HTTP/1.1\r\n" HOST "\r\n", -400},
    {"GET / HTTP/1.2\r\n" HOST "\r\n", -505},
    {"GET / HTTP/2.0\r\n" HOST "\r\n", -505},
    {"GET / FTP/1.1\r\n" HOST "\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", -400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", -411},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", -400},
    {"GET / HTTP/1.1\r\n" HOST "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", -400},
};

static void test_heads(void) {
    http_head head;
    for (size_t i = 0; i < CHECK_COUNT(heads); i++) {
        const size_t n = strlen(heads[i].text);
        check_context("head %zu: %s", i, heads[i].text);
        CHECK_EQ_I64(http_read_head(heads[i].text, n, &head), heads[i].want == 1 ? (int)n : heads[i].want);
    }
    static const char with_nul[] = "GET / HTTP/1.1\r\n" HOST "X: \0\r\n\r\n";
    CHECK_EQ_I64(http_read_head(with_nul, sizeof with_nul - 1, &head), -400);
    CHECK_EQ_I64(http_read_head("G\0", 2, &head), -400); /* before its end has come */
}

static void test_fields(void) {
    http_head head;
    static const char text[] = "POST /v1/completions?x=1 HTTP/1.1\r\nHOST: a\r\nAuthorization: bearer  key \r\n"
                               "Content-Length: 345\r\nExpect: 100-Continue\r\nConnection: foo, Close\r\n\r\nbody";
    if (!CHECK(http_read_head(text, sizeof text - 1, &head) == (int)sizeof text - 5)) return;
    CHECK_EQ_STR(head.method, "POST");
    CHECK_EQ_STR(head.path, "/v1/completions");
    CHECK_EQ_STR(head.key, "key");
    CHECK_EQ_U64(head.content_length, 345);
    CHECK(head.expects_continue && !head.stays && head.minor == 1);
    static const char old[] = "GET / HTTP/1.0\r\nConnection: keep-alive\r\nAuthorization: Basic eHg=\r\n\r\n";
    if (!CHECK(http_read_head(old, sizeof old - 1, &head) > 0)) return;
    CHECK(head.stays && head.minor == 0 && head.key[0] == 0 && head.content_length == 0);
    static const char whole[] = "GET HTTP://a:80/health?x=/ HTTP/1.1\r\n" HOST "\r\n";
    if (CHECK(http_read_head(whole, sizeof whole - 1, &head) > 0)) CHECK_EQ_STR(head.path, "/health");
}

static void test_lengths(void) {
    static char text[2 * HTTP_HEAD_MAX];
    static http_head head;
    const char *begin = "GET / HTTP/1.1\r\n" HOST "X: ";
    memset(text, 'x', sizeof text);
    memcpy(text, begin, strlen(begin));
    CHECK_EQ_I64(http_read_head(text, HTTP_HEAD_MAX, &head), 0);
    CHECK_EQ_I64(http_read_head(text, HTTP_HEAD_MAX + 1, &head), -431);
    memcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n", 4);
    CHECK_EQ_I64(http_read_head(text, sizeof text, &head), HTTP_HEAD_MAX);
    memset(text, 'x', sizeof text);
    memcpy(text, "GET /", 5);
    memcpy(text + 5 + HTTP_TARGET_MAX, " HTTP/1.1\r\n" HOST "\r\n", 22);
    CHECK_EQ_I64(http_read_head(text, 5 + HTTP_TARGET_MAX + 22, &head), -414);
}

static size_t read_keys(const char *text, size_t n, api_keys *keys) {
    char why[256] = "";
    const size_t line = keys_read(text, n, keys, why, sizeof why);
    CHECK((line == 0) == (why[0] == 0));
    return line;
}

static void test_terms(void) {
    api_keys keys;
    static const char text[] = "a\nb tenant=sea quota=0.25 priority=-3\nc  tenant=sea\tweight=7 quota=0.25\r\n"
                               "d time-limit-ms=1500 tenant=land admin=on\na tenant=land priority=5 admin=off\n";
    CHECK_EQ_U64(read_keys(text, sizeof text - 1, &keys), 0);
    CHECK_EQ_U64(keys.n_tenants, 3);
    const key_terms *a = keys_find(&keys, "a"), *b = keys_find(&keys, "b"), *c = keys_find(&keys, "c"),
                    *d = keys_find(&keys, "d");
    if (CHECK(a && b && c && d)) {
        CHECK(keys.terms[0].tenant == 0 && keys.tenants[0].name[0] == 0 && !keys.terms[0].has_priority);
        CHECK(a == &keys.terms[4] && a->priority == 5 && a->tenant == d->tenant); /* the last line counts */
        CHECK(b->tenant == c->tenant && b->has_priority && b->priority == -3 && !c->has_priority);
        CHECK_EQ_STR(keys.tenants[b->tenant].name, "sea");
        CHECK(keys.tenants[b->tenant].quota == 0.25 && keys.tenants[b->tenant].weight == 7);
        CHECK_EQ_U64(d->time_limit_ms, 1500);
        CHECK(d->is_admin && !a->is_admin && !b->is_admin && !c->is_admin);
        CHECK(keys.tenants[d->tenant].quota == 0 && keys.tenants[d->tenant].weight == 0);
    }
    keys_release(&keys);
    static const char *const bad[] = {"a\nb tenant=",
                                      "a\nb tenant",
                                      "a\nb quota=1.5",
                                      "a\nb quota=nan",
                                      "a\nb quota=-0.1",
                                      "a\nb quota=",
                                      "a\nb weight=0",
                                      "a\nb weight=1x",
                                      "a\nb priority=9999999999",
                                      "a\nb priority=",
                                      "a\nb admin=yes",
                                      "a\nb admin",
                                      "a\nb time-limit-ms=0",
                                      "a\nb colour=red",
                                      "a\nb =",
                                      "a\nb two words",
                                      "a tenant=x quota=0.5\nb tenant=x quota=0.6",
                                      "a tenant=x weight=2\nb tenant=x weight=3",
                                      "a\nb tenant=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        check_context("%s", bad[i]);
        CHECK_EQ_U64(read_keys(bad[i], strlen(bad[i]), &keys), 2);
        keys_release(&keys);
    }
    static char many[TENANTS_MAX * 20];
    size_t n = 0;
    for (int i = 0; i < TENANTS_MAX; i++) n += (size_t)sprintf(many + n, "k tenant=t%d\n", i);
    CHECK_EQ_U64(read_keys(many, n, &keys), TENANTS_MAX); /* with "" one too many */
    keys_release(&keys);
}

static void test_keys(void) {
    api_keys keys;
    static const char text[] = "# a comment\nfirst \r\n\n\t second\t";
    CHECK_EQ_U64(read_keys(text, sizeof text - 1, &keys), 0);
    CHECK_EQ_U64(keys.n, 2);
    CHECK(keys_find(&keys, "first") == &keys.terms[0] && keys_find(&keys, "second") == &keys.terms[1]);
    CHECK(!keys_find(&keys, "") && !keys_find(&keys, "firs") && !keys_find(&keys, "first ") &&
          !keys_find(&keys, "# a comment") && !keys_find(&keys, "first\r"));
    keys_release(&keys);
    CHECK_EQ_U64(read_keys("#\n\n", 3, &keys), SIZE_MAX);
    keys_release(&keys);
    static char long_key[KEY_MAX + 3] = "a\n";
    memset(long_key + 2, 'x', KEY_MAX);
    CHECK_EQ_U64(read_keys(long_key, KEY_MAX + 2, &keys), 2);
    keys_release(&keys);
    long_key[2] = '#'; /* a comment may be as long as it likes */
    CHECK_EQ_U64(read_keys(long_key, KEY_MAX + 2, &keys), 0);
    keys_release(&keys);
    static char many[2 * KEYS_MAX + 5];
    for (size_t i = 0; i < KEYS_MAX; i++) memcpy(many + 2 * i, "k\n", 2);
    memcpy(many + 2 * KEYS_MAX, "# k\nk", 5);
    CHECK_EQ_U64(read_keys(many, 2 * KEYS_MAX + 4, &keys), 0); /* behind the last key, too */
    keys_release(&keys);
    CHECK_EQ_U64(read_keys(many, sizeof many, &keys), KEYS_MAX + 2);
    keys_release(&keys);
}

static const check_test tests[] = {{"heads", test_heads},
                                   {"fields", test_fields},
                                   {"lengths", test_lengths},
                                   {"keys", test_keys},
                                   {"terms", test_terms}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
