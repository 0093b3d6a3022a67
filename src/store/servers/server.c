/* SPDX-License-Identifier: MIT
 *
 * server.c: see server.h.
 */
#include "store/servers/server.h"

#include "core/clock.h"

#if PLEAT_HIREDIS

#include <errno.h>
#include <hiredis/hiredis.h>
#include <string.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

#define FIRST_WAIT_NS 100000000u
#define LONGEST_WAIT_NS 30000000000u
#define SLACK_BYTES 65536u /* of an answer beside its bytes: a status, a refusal */
enum { MAX_WORDS = 8 };

bool pleat__server_exists(void) { return true; }

/* ---- answers ------------------------------------------------------------------------------------------------------ */

/* An answer that is being read: hiredis hands it to the functions below. */
typedef struct answer {
    pleat__sink *sink;
    pleat__answer_kind kind;
} answer;

static answer *whole(const redisReadTask *task) { return task->parent ? NULL : task->privdata; }

static void *take_string(const redisReadTask *task, char *bytes, size_t n) {
    answer *a = whole(task);
    if (!a) return task->privdata; /* of a list, which is refused */
    if (task->type != REDIS_REPLY_STRING) {
        a->kind = task->type == REDIS_REPLY_STATUS ? PLEAT__ANSWER_OK : PLEAT__ANSWER_ERROR;
        return a;
    }
    const bool fits = a->sink && n >= a->sink->n_min && n <= a->sink->n_max;
    a->kind = fits ? PLEAT__ANSWER_TEXT : PLEAT__ANSWER_LONG;
    if (fits) memcpy(a->sink->to, bytes, n);
    if (fits) a->sink->n = n;
    return a;
}

static void *take_integer(const redisReadTask *task, long long value) {
    answer *a = whole(task);
    (void)value;
    if (a) a->kind = PLEAT__ANSWER_OK;
    return task->privdata;
}

static void *take_nil(const redisReadTask *task) {
    answer *a = whole(task);
    if (a) a->kind = PLEAT__ANSWER_NIL;
    return task->privdata;
}

static void drop(void *object) { (void)object; }

/* No createArray: what stands for a list is no answer. */
static redisReplyObjectFunctions takers = {
    .createString = take_string, .createInteger = take_integer, .createNil = take_nil, .freeObject = drop};

/* ---- up and down -------------------------------------------------------------------------------------------------- */

static void fail(pleat__server *s, bool timed_out) {
    pleat__server_close(s);
    s->timed_out = timed_out;
    s->wait_ns = s->wait_ns == 0 ? FIRST_WAIT_NS : s->wait_ns < LONGEST_WAIT_NS / 2 ? 2 * s->wait_ns : LONGEST_WAIT_NS;
    s->retry_at_ns = pleat__clock_ns() + s->wait_ns;
}

void pleat__server_close(pleat__server *s) {
    if (s->connection) redisFree(s->connection);
    s->connection = NULL;
    s->n_asked = 0;
}

/* Nothing is to be answered: has the server closed the connection, or said something? */
static bool is_stale(const redisContext *c) {
    char byte;
    const ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static struct timeval time_of(uint64_t ns) {
    const uint64_t us = ns / 1000 > 0 ? ns / 1000 : 1;
    return (struct timeval){.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
}

/* Who asks.  True: the server has no objection. */
static bool log_in(pleat__server *s) {
    const pleat__server_login *l = s->login;
    pleat__word words[3] = {{"AUTH", 4}};
    uint32_t n = 1;
    if (!l->password[0]) return true;
    if (l->user[0]) words[n++] = (pleat__word){l->user, strlen(l->user)};
    words[n++] = (pleat__word){l->password, strlen(l->password)};
    const uint64_t wait_ns = s->wait_ns;
    if (!pleat__server_ask(s, words, n)) return false;
    const pleat__answer_kind kind = pleat__server_answer(s, NULL);
    if (kind != PLEAT__ANSWER_OK && kind != PLEAT__ANSWER_NONE) {
        s->wait_ns = wait_ns; /* an answer, but not what ends its being left alone */
        fail(s, false);
    }
    return kind == PLEAT__ANSWER_OK;
}

bool pleat__server_is_up(pleat__server *s) {
    if (s->connection && s->n_asked == 0 && is_stale(s->connection)) pleat__server_close(s);
    if (s->connection) return true;
    if (pleat__clock_ns() < s->retry_at_ns) return false;
    redisContext *c = redisConnectWithTimeout(s->address.host, s->address.port, time_of(s->timeout_ns));
    s->connection = c;
    if (!c || c->err != 0 || redisSetTimeout(c, time_of(s->timeout_ns)) != REDIS_OK) {
        fail(s, c && c->err == REDIS_ERR_IO && errno == ETIMEDOUT);
        return false;
    }
    c->reader->fn = &takers;
    c->reader->maxbuf = 0; /* its memory is kept from answer to answer */
    s->n_connected++;
    return log_in(s);
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

/* False, with errno. */
static bool send_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        const ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

bool pleat__server_ask(pleat__server *s, const pleat__word *words, uint32_t n) {
    const redisContext *c = s->connection;
    const char *bytes[MAX_WORDS];
    size_t sizes[MAX_WORDS];
    char *command = NULL;
    if (!c || n > MAX_WORDS) return false;
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = words[i].bytes;
        sizes[i] = (size_t)words[i].n;
    }
    const int n_command = redisFormatCommandArgv(&command, (int)n, bytes, sizes);
    const bool is_sent = n_command > 0 && send_all(c->fd, command, (size_t)n_command);
    const bool timed_out = errno == EAGAIN || errno == EWOULDBLOCK;
    if (n_command > 0) redisFreeCommand(command);
    s->n_asked += is_sent;
    if (!is_sent) fail(s, n_command > 0 && timed_out);
    return is_sent;
}

static void set_first(redisReader *r, void *privdata) {
#if HIREDIS_MAJOR >= 1
    r->task[0]->privdata = privdata;
#else
    r->rstack[0].privdata = privdata;
#endif
}

/* Bytes of the server into the reader.  False, with errno. */
static bool feed(redisContext *c, char *buffer, uint64_t *n_fed) {
    ssize_t n;
    do n = recv(c->fd, buffer, PLEAT__SERVER_BUFFER_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n == 0) errno = ECONNRESET;
    if (n <= 0) return false;
    *n_fed += (uint64_t)n;
    return redisReaderFeed(c->reader, buffer, (size_t)n) == REDIS_OK;
}

pleat__answer_kind pleat__server_answer(pleat__server *s, pleat__sink *sink) {
    redisContext *c = s->connection;
    answer a = {.sink = sink, .kind = PLEAT__ANSWER_NONE};
    if (!c) return PLEAT__ANSWER_NONE;
    const uint64_t now_ns = pleat__clock_ns(), most = (sink ? sink->n_max : 0) + SLACK_BYTES;
    const uint64_t until_ns = s->timeout_ns < UINT64_MAX - now_ns ? now_ns + s->timeout_ns : UINT64_MAX;
    c->reader->privdata = &a;
    set_first(c->reader, &a); /* of an answer of which a part is there already */
    for (uint64_t n_fed = 0;;) {
        void *object = NULL;
        errno = 0;
        const bool is_sound = redisReaderGetReply(c->reader, &object) == REDIS_OK && (!object || object == &a);
        if (is_sound && object) {
            s->wait_ns = 0;
            s->n_asked--;
            return a.kind;
        }
        const bool is_late = pleat__clock_ns() > until_ns;
        if (!is_sound || is_late || n_fed > most || !feed(c, s->buffer, &n_fed)) {
            fail(s, is_late || errno == EAGAIN || errno == EWOULDBLOCK);
            return PLEAT__ANSWER_NONE;
        }
    }
}

#else

bool pleat__server_exists(void) { return false; }
bool pleat__server_is_up(pleat__server *s) { return s->connection != NULL; }
bool pleat__server_ask(pleat__server *s, const pleat__word *words, uint32_t n) {
    return s->connection && words && n > 0;
}
pleat__answer_kind pleat__server_answer(pleat__server *s, pleat__sink *sink) {
    (void)s;
    (void)sink;
    return PLEAT__ANSWER_NONE;
}
void pleat__server_close(pleat__server *s) { (void)s; }

#endif
