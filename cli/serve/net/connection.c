/* SPDX-License-Identifier: MIT
 *
 * connection.c: see connection.h.
 *
 *     state    reads                       timer
 *     HEAD     up to a head, and takes it  idle, or for the head once a byte has come
 *              when the last answer is out
 *     BODY     up to its length            for the whole of it, by its length
 *     WORK     ahead, until too much       none: the answer takes what it takes; the writing has its own.  For a reader
 *              has come                    that is behind: what it has left unread then decides
 *     LAST     and forgets it              none: its last bytes are going out
 *     LINGER   and forgets it              2 s: so that the client sees the answer before the connection is reset
 */
#include "connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"

enum { INPUT_MAX = 2 * HTTP_HEAD_MAX, LINGER_S = 2, BODY_BYTES_PER_S = 32768, BODY_CAP = 1 << 16 /* at first */ };

typedef enum connection_state { HEAD, BODY, WORK, LAST, LINGER } connection_state;

struct connection {
    connections *all;
    connection *next, *prev;
    struct bufferevent *bev;
    struct event *timer;
    connection_state state;
    http_head head; /* of the request under way */
    char *body;     /* [n_body] of it that have come, in all->body_bytes; NULL: none */
    size_t n_body, body_cap;
    uint64_t wait;         /* which of all waits is its last one: the larger the later it began */
    uint64_t peer;         /* connection_peer() */
    const char *allow;     /* methods for an answer 405; NULL: not told */
    connection_work *work; /* NULL: none */
    int has_begun;         /* bytes of the next head have come */
    uint64_t id;           /* of the request under way; 0: there is none */
    double begin_s;        /* when its head was there */
    int status;            /* of its answer so far; 0: none */
    int is_cut;            /* its reader is too slow: it is going to be closed */
    int is_advancing;
};

/* ---- its life ---------------------------------------------------------------------------------------------------------- */

static void arm(connection *c, uint32_t seconds) {
    const struct timeval tv = {.tv_sec = seconds};
    if (seconds > 0)
        evtimer_add(c->timer, &tv);
    else
        evtimer_del(c->timer);
}

static size_t output_bytes(const connection *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)); }

static void free_body(connection *c) {
    c->all->body_bytes -= c->n_body;
    free(c->body);
    c->body = NULL;
    c->n_body = c->body_cap = 0;
}

static void begin_request(connection *c) {
    c->id = ++c->all->n_requests;
    c->begin_s = measure_now_s();
    c->status = 0;
}

static void end_request(connection *c, int has_left) {
    const connection_done d = {.id = c->id,
                               .method = c->head.method,
                               .path = c->head.path,
                               .status = c->status,
                               .has_left = has_left,
                               .seconds = measure_now_s() - c->begin_s};
    if (c->id) c->all->rules.done(c->all->rules.ctx, &d);
    c->id = 0;
}

void connection_close(connection *c) {
    connections *all = c->all;
    end_request(c, 1);
    if (c->work) {
        connection_work *gone = c->work;
        c->work = NULL;
        gone->leave(gone);
    }
    free_body(c);
    if (c->next) c->next->prev = c->prev;
    if (c->prev) c->prev->next = c->next;
    if (all->first == c) all->first = c->next;
    all->n--;
    event_free(c->timer);
    bufferevent_free(c->bev);
    free(c);
    all->rules.room(all->rules.ctx);
}

/* Nothing follows on this connection: what is written goes out, and then it ends. */
static void begin_last(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->state = LAST;
    c->wait = ++c->all->n_waits;
    arm(c, 0);
    evbuffer_drain(in, evbuffer_get_length(in));
    bufferevent_setwatermark(c->bev, EV_READ, 0, INPUT_MAX);
}

static void begin_linger(connection *c) {
    c->state = LINGER;
    if (c->all->tls) tls_end(c->bev);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    arm(c, LINGER_S);
}

static void begin_head(connection *c) {
    c->state = HEAD;
    c->wait = ++c->all->n_waits;
    c->has_begun = 0;
    bufferevent_setwatermark(c->bev, EV_READ, 0, INPUT_MAX);
    arm(c, output_bytes(c) > 0 ? 0 : NET_IDLE_S); /* until the last answer is out the writing's own time rules */
}

/* ---- answers ------------------------------------------------------------------------------------------------------------- */

static void put_head(connection *c, int status, const char *type) {
    struct evbuffer *out = bufferevent_get_output(c->bev);
    char date[64];
    const time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    if (c->all->is_stopping) c->head.stays = 0;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n", status, http_reason(status), date,
                        type);
    evbuffer_add_printf(out, "X-Request-Id: %llu\r\n", (unsigned long long)c->id);
    if (strncmp(type, "text/html", 9) == 0)
        evbuffer_add_printf(out,
                            "Content-Security-Policy: frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n");
    c->status = status;
    if (status == 429 || status == 503) evbuffer_add_printf(out, "Retry-After: 1\r\n");
    if (status == 401) evbuffer_add_printf(out, "WWW-Authenticate: Bearer\r\n");
    if (status == 405 && c->allow) evbuffer_add_printf(out, "Allow: %s\r\n", c->allow);
    if (!c->head.stays) evbuffer_add_printf(out, "Connection: close\r\n");
    if (c->head.stays && c->head.minor == 0) evbuffer_add_printf(out, "Connection: keep-alive\r\n");
    c->all->rules.answered(c->all->rules.ctx, status);
}

/* The answer is written: the next request, or the end. */
static void end_answer(connection *c) {
    end_request(c, 0);
    free_body(c);
    if (c->head.stays)
        begin_head(c);
    else
        begin_last(c);
    if (!c->is_advancing)
        bufferevent_trigger(c->bev, EV_READ | EV_WRITE, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

void connection_answer(connection *c, int status, const char *type, const char *text, size_t n) {
    if (c->is_cut) return;
    put_head(c, status, type);
    evbuffer_add_printf(bufferevent_get_output(c->bev), "Content-Length: %zu\r\n\r\n", n);
    if (strcmp(c->head.method, "HEAD") != 0) bufferevent_write(c->bev, text, n);
    end_answer(c);
}

void connection_begin_stream(connection *c) {
    if (c->head.minor == 0) c->head.stays = 0;
    put_head(c, 200, "text/event-stream");
    evbuffer_add_printf(bufferevent_get_output(c->bev), "Cache-Control: no-cache\r\n%s\r\n",
                        c->head.minor == 1 ? "Transfer-Encoding: chunked\r\n" : "");
}

/* Bytes of a stream.  What the socket takes goes out at once where nothing waits before it: a turn through the loop would
 * cost an event as much again.  An error is left for the loop to find. */
static void put_out(connection *c, const char *data, size_t n) {
    ssize_t n_sent = 0;
    if (!c->all->tls && output_bytes(c) == 0)
        n_sent = send(bufferevent_getfd(c->bev), data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n_sent < 0) n_sent = 0;
    if ((size_t)n_sent < n) bufferevent_write(c->bev, data + n_sent, n - (size_t)n_sent);
}

void connection_send(connection *c, const char *data, size_t n) {
    static const char before[] = "data: ", after[] = "\n\n";
    const size_t n_event = sizeof before - 1 + n + sizeof after - 1;
    char small[1024];
    if (c->is_cut) return;
    char *text = n_event + 32 <= sizeof small ? small : cli_alloc(n_event + 32, 1), *at = text;
    if (c->head.minor == 1) at += sprintf(at, "%zx\r\n", n_event);
    at = mempcpy(at, before, sizeof before - 1);
    at = mempcpy(at, data, n);
    at = mempcpy(at, after, sizeof after - 1);
    if (c->head.minor == 1) at = mempcpy(at, "\r\n", 2);
    put_out(c, text, (size_t)(at - text));
    if (text != small) free(text);
    if (output_bytes(c) > NET_OUTPUT_CUT) {
        c->is_cut = 1; /* closed from the loop */
        event_active(c->timer, EV_TIMEOUT, 0);
    } else if (output_bytes(c) > NET_OUTPUT_MAX && !evtimer_pending(c->timer, NULL)) {
        arm(c, NET_BEHIND_S);
    }
}

void connection_end_stream(connection *c) {
    if (c->is_cut) return;
    if (c->head.minor == 1) evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    end_answer(c);
}

void connection_set_work(connection *c, connection_work *work) { c->work = work; }

void connection_set_allow(connection *c, const char *methods) { c->allow = methods; }

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

/* A refusal behind which the connection cannot be read any further. */
static void refuse_and_end(connection *c, int status, const char *text) {
    c->head.stays = 0;
    c->all->rules.refuse(c->all->rules.ctx, c, status, text);
}

static void take_head(connection *c, size_t n_head) {
    const connection_rules *rules = &c->all->rules;
    const int stays = c->head.stays, has_body = c->head.content_length > 0;
    evbuffer_drain(bufferevent_get_input(c->bev), n_head);
    if (has_body) c->head.stays = 0; /* behind a body that is not read nothing can be */
    if (!rules->admits(rules->ctx, c, &c->head)) return;
    c->head.stays = stays;
    if (c->head.content_length > rules->body_bytes) {
        char text[128];
        snprintf(text, sizeof text, "a body of %llu bytes; at most %llu are taken",
                 (unsigned long long)c->head.content_length, (unsigned long long)rules->body_bytes);
        refuse_and_end(c, 413, text);
    } else {
        c->state = BODY;
        arm(c, NET_BODY_S + (uint32_t)(c->head.content_length / BODY_BYTES_PER_S));
        if (c->head.expects_continue && has_body)
            evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

/* How a head should have been that http_read_head() refuses with `status`. */
static const char *how_heads_are(int status) {
    switch (status) {
        case 411: return "a body needs a Content-Length";
        case 414: return "a path has 2048 bytes at most, its query included";
        case 431: return "a request's head has 16384 bytes and 100 fields at most";
        case 505: return "HTTP/1.1 and HTTP/1.0 are understood here";
        default:
            return "this is no request of HTTP/1.1: its lines end in CR LF, it has one Host and one length at most";
    }
}
_Static_assert(HTTP_TARGET_MAX == 2048 && HTTP_HEAD_MAX == 16384 && HTTP_FIELDS_MAX == 100, "as how_heads_are() says");

/* 1: there was a head. */
static int read_head(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    const unsigned char *crlf = evbuffer_get_length(in) >= 2 ? evbuffer_pullup(in, 2) : NULL;
    if (crlf && crlf[0] == '\r' && crlf[1] == '\n') evbuffer_drain(in, 2); /* RFC 9112, 2.2 */
    const size_t n = evbuffer_get_length(in);
    if (n == 0) return 0;
    const size_t n_seen = n < HTTP_HEAD_MAX + 1 ? n : HTTP_HEAD_MAX + 1;
    const int length = http_read_head((const char *)evbuffer_pullup(in, (ev_ssize_t)n_seen), n_seen, &c->head);
    if (length != 0) begin_request(c);
    if (length > 0) {
        take_head(c, (size_t)length);
        return 1;
    }
    if (length < 0) {
        memset(&c->head, 0, sizeof c->head);
        c->head.minor = 1;
        refuse_and_end(c, -length, how_heads_are(-length));
        return 1;
    }
    if (!c->has_begun) arm(c, NET_HEAD_S);
    c->has_begun = 1;
    return 0;
}

/* Room for more of the body, and a NUL behind it.  It grows as bytes come: who announces much and sends nothing takes nothing
 * from others. */
static void grow_body(connection *c, size_t n_more) {
    const size_t n_whole = (size_t)c->head.content_length + 1, n = c->n_body + n_more + 1;
    if (n <= c->body_cap) return;
    c->body_cap = 2 * n > BODY_CAP ? 2 * n : BODY_CAP;
    if (c->body_cap > n_whole) c->body_cap = n_whole;
    char *grown = realloc(c->body, c->body_cap);
    if (!grown) {
        cli_error("out of memory: %zu bytes of a body", c->body_cap);
        exit(CLI_FAILED);
    }
    c->body = grown;
}

/* What has come of the body goes out of the input, whose small blocks would stay behind it as holes. */
static void take_body(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    const size_t n_left = (size_t)c->head.content_length - c->n_body, n_here = evbuffer_get_length(in);
    const size_t n = n_here < n_left ? n_here : n_left;
    grow_body(c, n);
    evbuffer_remove(in, c->body + c->n_body, n);
    c->n_body += n;
    c->all->body_bytes += n;
    c->body[c->n_body] = 0;
}

/* While too much has come of all bodies the largest goes: so who sends much, and stays, keeps nobody else away. */
static void bound_bodies(connections *all) {
    while (all->body_bytes > NET_BODIES_MAX) {
        connection *most = all->first;
        for (connection *c = all->first; c; c = c->next)
            if (c->n_body > most->n_body) most = c;
        refuse_and_end(most, 503, "too many bytes of other requests are under way");
    }
}

/* 1: the body was there, and the request is under way or answered. */
static int read_body(connection *c) {
    take_body(c);
    bound_bodies(c->all);
    if (c->state != BODY) return 1;
    if (c->n_body < c->head.content_length) return 0;
    char *body = c->body;
    const size_t n = c->n_body;
    c->body = NULL; /* it outlives the answer, which may be given in this call */
    c->state = WORK;
    arm(c, 0);
    c->all->rules.request(c->all->rules.ctx, c, &c->head, body, n);
    free_body(c);
    free(body);
    return 1;
}

/* A head is taken when nothing is unsent: so who asks and does not read has one answer here. */
static void advance(connection *c) {
    int goes_on = 1;
    c->is_advancing = 1;
    while (goes_on && !c->is_cut) {
        if (c->state == HEAD && output_bytes(c) > 0) break; /* on_write goes on */
        goes_on = c->state == HEAD ? read_head(c) : c->state == BODY ? read_body(c) : 0;
    }
    c->is_advancing = 0;
}

/* ---- what the loop calls --------------------------------------------------------------------------------------------------- */

/* The last thing in a callback: c may be gone.  Who sends too far ahead is not read, so that it would not be seen to
 * leave. */
static void look(connection *c) {
    if (c->state == LAST && output_bytes(c) == 0) begin_linger(c);
    if (c->state == WORK && evbuffer_get_length(bufferevent_get_input(c->bev)) >= INPUT_MAX) connection_close(c);
}

static void on_read(struct bufferevent *bev, void *arg) {
    connection *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (c->state == LAST || c->state == LINGER)
        evbuffer_drain(in, evbuffer_get_length(in));
    else
        advance(c);
    look(c);
}

static void on_write(struct bufferevent *bev, void *arg) {
    connection *c = arg;
    (void)bev;
    if (output_bytes(c) > 0) return;
    if (c->state == HEAD) {
        if (!c->has_begun) arm(c, NET_IDLE_S);
        advance(c);
    }
    look(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return; /* TLS is ready */
    connection_close(arg);                  /* its end, an error, or a reader that takes nothing: all the same here */
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    const connection *c = arg;
    (void)fd, (void)what;
    if (c->state == WORK && !c->is_cut && output_bytes(c) <= NET_OUTPUT_MAX) return; /* its reader has caught up */
    connection_close(arg);
}

/* An IPv4 address in the form of an IPv6 one is that IPv4 address. */
static uint64_t number_of(const struct sockaddr *address) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    uint64_t n = 0;
    if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        return v4.sin_addr.s_addr;
    }
    if (address->sa_family != AF_INET6) return 0;
    memcpy(&v6, address, sizeof v6);
    const int is_v4 = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    memcpy(&n, v6.sin6_addr.s6_addr + (is_v4 ? 12 : 0), is_v4 ? 4 : 8);
    return n;
}

uint64_t connection_peer(const connection *c) { return c->peer; }

void connection_open(connections *all, evutil_socket_t fd, const struct sockaddr *peer) {
    const struct timeval write_tv = {.tv_sec = NET_WRITE_S};
    const int one = 1;
    connection *c = cli_alloc(1, sizeof *c);
    *c = (connection){.all = all, .next = all->first, .peer = number_of(peer)};
    c->timer = evtimer_new(all->base, on_timer, c);
    c->bev =
        all->tls ? tls_accept(all->tls, all->base, fd) : bufferevent_socket_new(all->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev || !c->timer) {
        if (c->timer) event_free(c->timer);
        if (c->bev)
            bufferevent_free(c->bev);
        else
            evutil_closesocket(fd);
        free(c);
        return;
    }
    if (all->first) all->first->prev = c;
    all->first = c;
    all->n++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_set_timeouts(c->bev, NULL, &write_tv);
    begin_head(c);
    arm(c, NET_HEAD_S);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

int connections_close_oldest(connections *all) {
    connection *oldest = NULL;
    for (connection *c = all->first; c; c = c->next)
        if (c->state != WORK && (!oldest || c->wait < oldest->wait)) oldest = c;
    if (oldest) connection_close(oldest);
    return oldest != NULL;
}

void connections_close_idle(connections *all) {
    for (connection *c = all->first, *next; c; c = next) {
        next = c->next;
        if ((c->state == HEAD || c->state == BODY) && output_bytes(c) == 0) connection_close(c);
    }
}
