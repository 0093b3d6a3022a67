/* SPDX-License-Identifier: MIT
 *
 * server.c: the event loop: who comes, what the engine's thread has brought, and the end.
 *
 *     SIGTERM, SIGINT ──> no new connection, no new work; idle connections are closed
 *                         jobs go on for --grace seconds ──> those that are left end as they are (job_abort)
 *                         the last answers go out, FLUSH_S at most ──> the loop ends
 *     a second signal ──> at once
 */
#include <arpa/inet.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <malloc.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "job.h"
#include "log.h"
#include "reply.h"
#include "routes.h"

enum { FLUSH_S = 3 /* for the last answers to go out */, LARGE_BYTES = 1 << 18 };

typedef struct loop {
    server *s;
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *notes[SPECS_CAP]; /* of each driver; NULL: none */
    struct event *searches;         /* of conversations; NULL: there is no store */
    struct event *terminate, *interrupt, *clock;
    connections all;
    enum { SERVING, STOPPING, FLUSHING } phase;
} loop;

/* ---- the end -------------------------------------------------------------------------------------------------------------- */

static uint32_t count_jobs(const server *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_jobs_max; i++) n += s->jobs[i] != NULL;
    return n;
}

static void set_clock(loop *l, uint32_t seconds) {
    const struct timeval tv = {.tv_sec = seconds};
    evtimer_add(l->clock, &tv);
}

static void begin_flush(loop *l) {
    l->phase = FLUSHING;
    connections_close_idle(&l->all);
    set_clock(l, FLUSH_S);
    if (l->all.n == 0) event_base_loopbreak(l->base);
}

static void abort_jobs(server *s) {
    for (uint32_t i = 0; i < s->n_jobs_max; i++)
        if (s->jobs[i]) job_abort(s->jobs[i]);
}

static void on_signal(evutil_socket_t signal_number, short what, void *arg) {
    loop *l = arg;
    (void)signal_number, (void)what;
    if (l->phase != SERVING) {
        event_base_loopbreak(l->base);
        return;
    }
    l->phase = STOPPING;
    l->s->is_stopping = l->all.is_stopping = 1;
    evconnlistener_disable(l->listener);
    const uint32_t n = count_jobs(l->s);
    if (!l->s->o->common.quiet) cli_note("stopping: %u requests are under way", n);
    connections_close_idle(&l->all);
    if (n == 0 || l->s->o->grace_s == 0) {
        abort_jobs(l->s);
        begin_flush(l);
    } else {
        set_clock(l, l->s->o->grace_s);
    }
}

/* The one that has waited longest makes room.  0: none waits. */
static int make_room(loop *l) {
    const int is_gone = connections_close_oldest(&l->all);
    l->s->metrics.n_displaced += (unsigned)is_gone;
    return is_gone;
}

/* Who comes is taken; but not where there is one too many, since none waits. */
static void open_door(loop *l) {
    if (l->phase == SERVING && l->all.n <= l->s->o->connections) evconnlistener_enable(l->listener);
}

static void on_clock(evutil_socket_t fd, short what, void *arg) {
    loop *l = arg;
    (void)fd, (void)what;
    if (l->phase == SERVING) {
        open_door(l);
    } else if (l->phase == STOPPING) {
        abort_jobs(l->s);
        begin_flush(l);
    } else {
        event_base_loopbreak(l->base);
    }
}

/* ---- what comes ------------------------------------------------------------------------------------------------------------- */

static void on_notes(evutil_socket_t fd, short what, void *arg) {
    loop *l = arg;
    (void)fd, (void)what;
    for (uint32_t i = 0; i < l->s->n_served; i++)
        for (note *n = driver_take(l->s->served[i].driver), *next; n; n = next) {
            next = n->next;
            job_note(l->s, n);
            free(n);
        }
    for (uint32_t i = 0; i < l->s->n_served; i++) driver_answer_asks(l->s->served[i].driver);
    if (l->phase == STOPPING && count_jobs(l->s) == 0) begin_flush(l);
}

/* A conversation is looked for, or was. */
static void on_searches(evutil_socket_t fd, short what, void *arg) {
    loop *l = arg;
    const struct timeval soon = {.tv_usec = 100000};
    (void)fd, (void)what;
    event_add(l->searches, conversations_look(l->s->conversations) ? &soon : NULL);
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int n,
                          void *arg) {
    loop *l = arg;
    (void)n;
    if (l->all.n >= l->s->o->connections) make_room(l);
    connection_open(&l->all, fd, address);
    l->s->metrics.n_connections = l->all.n;
    if (l->all.n > l->s->o->connections) evconnlistener_disable(listener);
}

/* ---- what connections ask and tell (connection_rules) ----------------------------------------------------------------------- */

static int on_admits(void *ctx, connection *c, const http_head *head) {
    return route_admits(((loop *)ctx)->s, c, head);
}

static void on_request(void *ctx, connection *c, const http_head *head, const char *body, size_t n) {
    route_request(((loop *)ctx)->s, c, head, body, n);
}

static void on_refuse(void *ctx, connection *c, int status, const char *text) {
    (void)ctx;
    reply_refuse(c, status, "", text);
}

static void on_answered(void *ctx, int status) { ((loop *)ctx)->s->metrics.responses[status]++; }

static void on_done(void *ctx, const connection_done *d) {
    request_log(stderr, ((loop *)ctx)->s->o->log_format, time(NULL), d);
}

static void on_room(void *ctx) {
    loop *l = ctx;
    l->s->metrics.n_connections = l->all.n;
    open_door(l);
    if (l->phase == STOPPING && count_jobs(l->s) == 0)
        set_clock(l, 0); /* the last client has left, and no note comes */
    if (l->phase == FLUSHING && l->all.n == 0) event_base_loopbreak(l->base);
}

/* No file descriptor is left, as a rule: one is given up, or else they come again when some have gone. */
static void on_accept_error(struct evconnlistener *listener, void *arg) {
    loop *l = arg;
    if (make_room(l)) return;
    evconnlistener_disable(listener);
    set_clock(l, 1);
}

/* ---- the address ------------------------------------------------------------------------------------------------------------ */

static int is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) return (ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Say where it listens, and what follows from that. */
static void announce(const loop *l, const struct addrinfo *wanted) {
    const server_options *o = l->s->o;
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    if (getsockname(evconnlistener_get_fd(l->listener), (struct sockaddr *)&address, &n) == 0)
        (void)getnameinfo((struct sockaddr *)&address, n, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    if (!is_loopback(wanted->ai_addr) && !l->s->keys.keys)
        cli_note("%s can be reached from other machines, and there is no --api-key-file: anybody may use it", host);
    if (o->common.quiet) return;
    char kv[SPECS_CAP * PLEAT_SPEC_TEXT_CAP];
    server_list_specs(l->s, kv, sizeof kv);
    const int is_v6 = address.ss_family == AF_INET6;
    fprintf(stderr, "%s on %s://%s%s%s:%s/v1 (KV cache %s, context %u, %u at once)\n", l->s->name,
            l->s->tls ? "https" : "http", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port, kv, l->s->n_ctx, o->parallel);
    fflush(stderr);
}

static int listen_at(loop *l) {
    const server_options *o = l->s->o;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%u", o->port);
    const int failed = getaddrinfo(o->host, port, &hints, &found);
    if (failed) {
        cli_error("--host %s: %s", o->host, gai_strerror(failed));
        return CLI_FAILED;
    }
    l->listener = evconnlistener_new_bind(l->base, on_connection, l,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC, 512,
                                          found->ai_addr, (int)found->ai_addrlen);
    if (l->listener) {
        evconnlistener_set_error_cb(l->listener, on_accept_error);
        announce(l, found);
    } else {
        cli_error("cannot listen on %s port %u: %s", o->host, o->port,
                  evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    }
    freeaddrinfo(found);
    return l->listener ? CLI_OK : CLI_FAILED;
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

static int make_events(loop *l) {
    l->base = event_base_new();
    if (!l->base) return 0;
    const connection_rules rules = {.ctx = l,
                                    .body_bytes = l->s->o->body_bytes,
                                    .admits = on_admits,
                                    .request = on_request,
                                    .refuse = on_refuse,
                                    .answered = on_answered,
                                    .done = on_done,
                                    .room = on_room};
    l->all = (connections){.base = l->base, .tls = l->s->tls, .rules = rules};
    for (uint32_t i = 0; i < l->s->n_served; i++) {
        l->notes[i] = event_new(l->base, driver_fd(l->s->served[i].driver), EV_READ | EV_PERSIST, on_notes, l);
        if (!l->notes[i] || event_add(l->notes[i], NULL) != 0) return 0;
    }
    const int searches = conversations_fd(l->s->conversations);
    if (searches >= 0) l->searches = event_new(l->base, searches, EV_READ, on_searches, l);
    if (searches >= 0 && (!l->searches || event_add(l->searches, NULL) != 0)) return 0;
    l->terminate = evsignal_new(l->base, SIGTERM, on_signal, l);
    l->interrupt = evsignal_new(l->base, SIGINT, on_signal, l);
    l->clock = evtimer_new(l->base, on_clock, l);
    return l->terminate && l->interrupt && l->clock && event_add(l->terminate, NULL) == 0 &&
           event_add(l->interrupt, NULL) == 0;
}

static void release(loop *l) {
    l->phase = FLUSHING;
    while (l->all.first) connection_close(l->all.first);
    if (l->listener) evconnlistener_free(l->listener);
    for (uint32_t i = 0; i < l->s->n_served; i++)
        if (l->notes[i]) event_free(l->notes[i]);
    struct event *const events[] = {l->searches, l->terminate, l->interrupt, l->clock};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i]) event_free(events[i]);
    if (l->base) event_base_free(l->base);
    libevent_global_shutdown();
}

const char *server_describe(void) {
    static char text[64];
    snprintf(text, sizeof text, "libevent %s", event_get_version());
    return text;
}

static int start_drivers(server *s) {
    turns_init(&s->turns);
    for (uint32_t i = 0; i < s->n_served; i++) {
        s->served[i].driver = driver_start(s->served[i].serving, s->n_served > 1 ? &s->turns : NULL);
        if (!s->served[i].driver) return 0;
    }
    return 1;
}

static void stop_drivers(server *s) {
    for (uint32_t i = 0; i < s->n_served; i++) driver_stop(&s->served[i].driver);
    turns_release(&s->turns);
}

/* Bodies and whole answers go back to the system when they are freed.  glibc takes the size of the largest that was freed for
 * what a heap should hold, so that after one large body all would be kept. */
static void return_large_blocks(void) {
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 16 * LARGE_BYTES);
#endif
}

int server_run(server *s) {
    loop l = {.s = s};
    int code = CLI_FAILED;
    return_large_blocks();
    signal(SIGPIPE, SIG_IGN);
    const int has_drivers = start_drivers(s);
    if (has_drivers && make_events(&l))
        code = listen_at(&l);
    else if (has_drivers)
        cli_error("cannot make an event loop");
    if (code == CLI_OK) event_base_dispatch(l.base);
    release(&l);
    stop_drivers(s);
    return code;
}
