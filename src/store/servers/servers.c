/* SPDX-License-Identifier: MIT
 *
 * servers.c: see servers.h.
 */
#include "store/servers/servers.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

enum { IN_FLIGHT = 8, NAME_CAP = 128, FIRST_BYTES = 24 };

/* ---- names -------------------------------------------------------------------------------------------------------- */

typedef struct name {
    char text[NAME_CAP];
    uint64_t n;
} name;

static name head_name(const pleat__store_key *key) {
    name out;
    char digits[PLEAT__STORE_KEY_DIGITS + 1];
    pleat__store_key_digits(key, digits);
    out.n = (uint64_t)snprintf(out.text, sizeof out.text, "pleat:%s", digits);
    return out;
}

/* head: of the image, [n_head] */
static name piece_name(const pleat__store_key *key, const uint8_t *head, uint64_t n_head, uint64_t i) {
    name out;
    pleat__store_key sum;
    char digits[PLEAT__STORE_KEY_DIGITS + 1], sum_digits[PLEAT__STORE_KEY_DIGITS + 1];
    memcpy(sum.bytes, head + n_head - sizeof sum.bytes, sizeof sum.bytes);
    pleat__store_key_digits(key, digits);
    pleat__store_key_digits(&sum, sum_digits);
    out.n =
        (uint64_t)snprintf(out.text, sizeof out.text, "pleat:%s:%s:%llu", digits, sum_digits, (unsigned long long)i);
    return out;
}

static pleat__word word(const char *text) { return (pleat__word){text, strlen(text)}; }
static pleat__word word_of(const name *n) { return (pleat__word){n->text, n->n}; }

static pleat__server *server_of(pleat__server_group *g, const pleat__store_key *key, uint64_t i) {
    return &g->server[(key->bytes[0] + i) % g->n];
}

/* Length of piece i of the body, and where it begins. */
static uint64_t piece_of(const pleat_image_head *h, uint64_t i, uint64_t *at) {
    *at = i * h->piece_bytes;
    return h->body_bytes - *at < h->piece_bytes ? h->body_bytes - *at : h->piece_bytes;
}

/* Nobody asks for what was asked and not answered: the connections begin anew. */
static void hang_up(pleat__server_group *g) {
    for (uint32_t i = 0; i < g->n; i++) pleat__server_close(&g->server[i]);
}

/* The servers that are left alone now, by these or by the others. */
static void count_down(pleat__servers *v, pleat__server_group *g) {
    uint32_t n = 0;
    (void)pthread_mutex_lock(&v->store->lock);
    for (uint32_t i = 0; i < g->n; i++) {
        g->is_down[i] = g->server[i].wait_ns > 0;
        n += v->readers.is_down[i] || v->writers.is_down[i];
    }
    v->store->stats.servers_down = n;
    (void)pthread_mutex_unlock(&v->store->lock);
}

typedef struct seconds {
    char text[16];
} seconds;

static seconds time_to_live(const pleat__servers *v) {
    seconds out;
    (void)snprintf(out.text, sizeof out.text, "%lu", (unsigned long)v->ttl_s);
    return out;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static int miss_of(const pleat__server *s) { return s->timed_out ? PLEAT_STORE_TIMEOUT : PLEAT_STORE_IO; }

/* Ask for the first bytes of a key's, as many as `find` looks at. */
static bool ask_for_start(pleat__server *s, const name *key) {
    const pleat__word words[4] = {word("GETRANGE"), word_of(key), word("0"), word("23")};
    return pleat__server_is_up(s) && pleat__server_ask(s, words, 4);
}

/* Ask for all of it, which lasts ttl_s from now on. */
static bool ask_for(const pleat__servers *v, pleat__server *s, const name *key) {
    const seconds ttl = time_to_live(v);
    const pleat__word words[4] = {word("GETEX"), word_of(key), word("EX"), word(ttl.text)};
    return pleat__server_is_up(s) && pleat__server_ask(s, words, 4);
}

/* What an answer of just these bytes was. */
static int result_of(const pleat__server *s, pleat__answer_kind kind) {
    if (kind == PLEAT__ANSWER_NONE) return miss_of(s);
    if (kind == PLEAT__ANSWER_TEXT) return PLEAT__READ;
    if (kind == PLEAT__ANSWER_NIL) return PLEAT_STORE_GONE;
    return kind == PLEAT__ANSWER_LONG ? PLEAT_STORE_DAMAGED : PLEAT_STORE_IO;
}

/* The head's first bytes say how long the body is; what else they say is looked at when it is read. */
static int take_start(pleat__server *s, uint64_t *body_bytes) {
    uint64_t first[FIRST_BYTES / 8];
    pleat__sink sink = {.to = first, .n_max = sizeof first};
    const pleat__answer_kind kind = pleat__server_answer(s, &sink);
    if (kind == PLEAT__ANSWER_TEXT && sink.n == 0) return PLEAT_STORE_ABSENT; /* as Redis says it of no key */
    if (kind == PLEAT__ANSWER_TEXT && sink.n < sizeof first) return PLEAT_STORE_DAMAGED;
    if (kind != PLEAT__ANSWER_TEXT) return result_of(s, kind);
    const uint8_t *b = (const uint8_t *)first + 16;
    *body_bytes = 0;
    for (uint32_t i = 0; i < 8; i++) *body_bytes |= (uint64_t)b[i] << 8 * i;
    return *body_bytes > 0 && *body_bytes <= (uint64_t)1 << 48 ? PLEAT__READ : PLEAT_STORE_DAMAGED;
}

/* All are asked for before the first is answered; answers behind the first that is there are taken, and forgotten. */
static int find(pleat__servers *v, const pleat__store_key *keys, uint32_t n, uint32_t *which, uint64_t *body_bytes) {
    uint64_t asked[PLEAT__STORE_FIND_MAX]; /* the connection; 0: none */
    int result = PLEAT_STORE_ABSENT;
    for (uint32_t i = 0; i < n; i++) {
        const name head = head_name(&keys[i]);
        pleat__server *s = server_of(&v->readers, &keys[i], 0);
        asked[i] = ask_for_start(s, &head) ? s->n_connected : 0;
    }
    *which = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t n_bytes = 0;
        pleat__server *s = server_of(&v->readers, &keys[i], 0);
        const int one = asked[i] == s->n_connected && asked[i] > 0 ? take_start(s, &n_bytes) : miss_of(s);
        if (*which < n || one == PLEAT_STORE_ABSENT) continue;
        *which = i;
        *body_bytes = n_bytes;
        result = one;
    }
    return result;
}

static int servers_find(void *ctx, const pleat__store_key *keys, uint32_t n, uint32_t *which, uint64_t *body_bytes) {
    pleat__servers *v = ctx;
    (void)pthread_mutex_lock(&v->read_lock);
    const int result = find(v, keys, n, which, body_bytes);
    count_down(v, &v->readers);
    (void)pthread_mutex_unlock(&v->read_lock);
    return result;
}

static int read_head(pleat__servers *v, const pleat__reading *r) {
    pleat__server *s = server_of(&v->readers, r->key, 0);
    pleat__sink sink = {.to = r->head, .n_min = r->n_head, .n_max = r->n_head};
    const name head = head_name(r->key);
    if (!ask_for(v, s, &head)) return miss_of(s);
    const int result = result_of(s, pleat__server_answer(s, &sink));
    return result == PLEAT__READ ? pleat__store_check_head(r) : result;
}

/* *is_over: all that was asked has been answered. */
static int read_pieces(pleat__servers *v, const pleat__reading *r, bool *is_over) {
    const uint64_t n = pleat_image_n_pieces(r->wanted);
    for (uint64_t i = 0, n_asked = 0; i < n; i++) {
        uint64_t at;
        for (; n_asked < n && n_asked < i + IN_FLIGHT; n_asked++) {
            const name piece = piece_name(r->key, r->head, r->n_head, n_asked);
            pleat__server *to = server_of(&v->readers, r->key, n_asked);
            if (!ask_for(v, to, &piece)) return miss_of(to);
        }
        const uint64_t n_bytes = piece_of(r->wanted, i, &at);
        pleat__server *s = server_of(&v->readers, r->key, i);
        pleat__sink sink = {.to = r->body + at, .n_min = n_bytes, .n_max = n_bytes};
        const int result = result_of(s, pleat__server_answer(s, &sink));
        if (result != PLEAT__READ) return result;
        if (r->goes_on && !r->goes_on(r->ctx)) return PLEAT__READ_STOPPED;
        if (pleat_image_check_piece(r->head, r->n_head, i, r->body + at) != PLEAT_OK) return PLEAT_STORE_DAMAGED;
    }
    *is_over = true;
    return PLEAT__READ;
}

static int servers_read(void *ctx, const pleat__reading *r) {
    pleat__servers *v = ctx;
    bool is_over = false;
    (void)pthread_mutex_lock(&v->read_lock);
    int result = read_head(v, r);
    if (result == PLEAT__READ) {
        result = read_pieces(v, r, &is_over);
        if (!is_over) hang_up(&v->readers);
    }
    count_down(v, &v->readers);
    (void)pthread_mutex_unlock(&v->read_lock);
    return result;
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static bool ask_to_set(pleat__servers *v, pleat__server *s, const name *key, const uint8_t *bytes, uint64_t n) {
    const seconds ttl = time_to_live(v);
    const pleat__word words[5] = {word("SET"), word_of(key), {bytes, n}, word("EX"), word(ttl.text)};
    return pleat__server_is_up(s) && pleat__server_ask(s, words, 5);
}

/* Is there a head already, that begins as `wanted` does?  A server that fails says so when it is asked to set something. */
static bool has_head(pleat__server *s, const name *head, const uint8_t *wanted) {
    uint8_t first[FIRST_BYTES];
    pleat__sink sink = {.to = first, .n_max = sizeof first};
    return ask_for_start(s, head) && pleat__server_answer(s, &sink) == PLEAT__ANSWER_TEXT && sink.n == sizeof first &&
           memcmp(first, wanted, sizeof first) == 0;
}

static bool is_ok(pleat__server *s) { return pleat__server_answer(s, NULL) == PLEAT__ANSWER_OK; }

/* *is_over as in read_pieces. */
static bool write_pieces(pleat__servers *v, const pleat__writing *w, bool *is_over) {
    const uint64_t n = pleat_image_n_pieces(w->head);
    const uint8_t *body = w->file + w->n_head;
    for (uint64_t i = 0, n_asked = 0; i < n; i++) {
        uint64_t at;
        for (; n_asked < n && n_asked < i + IN_FLIGHT; n_asked++) {
            const name piece = piece_name(w->key, w->file, w->n_head, n_asked);
            const uint64_t n_bytes = piece_of(w->head, n_asked, &at);
            if (!ask_to_set(v, server_of(&v->writers, w->key, n_asked), &piece, body + at, n_bytes)) return false;
        }
        if (!is_ok(server_of(&v->writers, w->key, i))) return false;
    }
    *is_over = true;
    return true;
}

static pleat_status servers_write(void *ctx, const pleat__writing *w) {
    pleat__servers *v = ctx;
    pleat__server *s = server_of(&v->writers, w->key, 0);
    const name head = head_name(w->key);
    bool is_over = false;
    if (has_head(s, &head, w->file)) return PLEAT_AGAIN;
    const bool is_written = write_pieces(v, w, &is_over) && ask_to_set(v, s, &head, w->file, w->n_head) && is_ok(s);
    if (!is_over) hang_up(&v->writers);
    count_down(v, &v->writers);
    return is_written ? PLEAT_OK : PLEAT_E_IO;
}

/* It has been told when it was read. */
static void servers_use(void *ctx, const pleat__store_key *key) {
    (void)ctx;
    (void)key;
}

static void servers_forget(void *ctx, const pleat__store_key *key) {
    pleat__servers *v = ctx;
    pleat__server *s = server_of(&v->writers, key, 0);
    const name head = head_name(key);
    const pleat__word words[2] = {word("DEL"), word_of(&head)};
    if (pleat__server_is_up(s) && pleat__server_ask(s, words, 2)) (void)pleat__server_answer(s, NULL);
    count_down(v, &v->writers);
}

/* ---- open and close ----------------------------------------------------------------------------------------------- */

static bool servers_are_valid(void *ctx) { return ctx != NULL; }

static void close_servers(void *ctx) {
    pleat__servers *v = ctx;
    hang_up(&v->readers);
    hang_up(&v->writers);
    if (v->has_lock) (void)pthread_mutex_destroy(&v->read_lock);
    pleat__free(&v->store->al, v, 1, sizeof *v);
}

/* So that it is known from the start who is not there. */
static void try_all(pleat__servers *v) {
    for (uint32_t i = 0; i < v->readers.n; i++) (void)pleat__server_is_up(&v->readers.server[i]);
    count_down(v, &v->readers);
}

pleat_status pleat__servers_open(pleat_store *store, const pleat_store_options *o, pleat__shelf *out,
                                 pleat_error *err) {
    pleat__server_address addresses[PLEAT__SERVERS_MAX];
    pleat__server_login login;
    const uint32_t n = pleat__server_addresses(o->servers, addresses, &login);
    PLEAT_FAIL_IF(n == 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "store: '%.200s' is not redis://[[USER]:PASSWORD@]HOST:PORT[,HOST:PORT]..., of %d servers at most",
                  strchr(o->servers, '@') ? "...@..." : o->servers, PLEAT__SERVERS_MAX);
    PLEAT_FAIL_IF(!pleat__server_exists(), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "store: this build has no hiredis (Debian package libhiredis-dev), which servers are asked with");
    pleat__servers *v = pleat__alloc_zero(&store->al, 1, sizeof *v);
    if (!v) return PLEAT_E_MEMORY;
    v->store = store;
    v->ttl_s = o->ttl_s;
    v->login = login;
    v->readers.n = v->writers.n = n;
    for (uint32_t i = 0; i < n; i++) {
        pleat__server one = {
            .address = addresses[i], .login = &v->login, .timeout_ns = o->timeout_ns, .buffer = v->readers.buffer};
        v->readers.server[i] = one;
        one.buffer = v->writers.buffer;
        v->writers.server[i] = one;
    }
    store->stats.n_servers = n;
    v->has_lock = pthread_mutex_init(&v->read_lock, NULL) == 0;
    if (!v->has_lock) {
        close_servers(v);
        return PLEAT_E_MEMORY;
    }
    try_all(v);
    *out = (pleat__shelf){v,           servers_find,   servers_read,      servers_write,
                          servers_use, servers_forget, servers_are_valid, close_servers};
    return PLEAT_OK;
}
