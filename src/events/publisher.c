/* SPDX-License-Identifier: MIT
 *
 * publisher.c: see publisher.h.
 */
#include "events/publisher.h"

#include "core/error.h"

#if PLEAT_ZMQ

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

enum {
    TOPIC_CAP = 256,
    SEND_AHEAD = 100000, /* batches that a subscriber may lag behind; vLLM's number */
    FRAME_BYTES = 512,   /* received; identities and topics have 255, and a larger frame ends its connection */
    REQUEST_FRAMES = 3,  /* of a request that is one */
    REPLAYS_AHEAD = 4,   /* asked for and not read by one: libzmq drops more, and hears late of what was read */
    LINGER_MS = 500      /* what is sent may take so long to leave when all is closed */
};

struct pleat__publisher {
    pleat_allocator al;
    char topic[TOPIC_CAP];
    size_t n_topic;
    void *context, *pub, *router;
    int wake[2];         /* a pipe: a byte for the thread, when there is something */
    pleat__batch **ring; /* [ring_cap] batch seq at seq % ring_cap; the thread's */
    uint32_t ring_cap;
    uint64_t n_sent;     /* the thread's: numbers that have left the queue */
    uint64_t oldest;     /* the thread's: none before it is in the ring */
    uint64_t ring_bytes; /* the thread's: of the batches in the ring */
    uint64_t most_bytes; /* of these, the newest apart */

    pthread_mutex_t lock; /* guards what follows */
    pleat__batch *first, **last;
    int64_t next_seq;
    pleat_events_stats stats;
    bool is_stopping;

    pthread_t thread;
    bool has_lock, has_pipe, has_thread;
};

/* ---- sending ------------------------------------------------------------------------------------------------------ */

/* Number and batch behind what has been sent of a message; batch NULL: nothing, and the number -1. */
static void send_batch(void *socket, const pleat__batch *batch) {
    uint8_t seq[PLEAT__SEQ_BYTES];
    pleat__put_seq(batch ? batch->seq : -1, seq);
    (void)zmq_send(socket, seq, sizeof seq, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(socket, batch ? batch->bytes : seq, batch ? batch->n_bytes : 0, ZMQ_DONTWAIT);
}

static pleat__batch *take_all(pleat__publisher *p, bool *is_last) {
    char bytes[64];
    while (read(p->wake[0], bytes, sizeof bytes) > 0) {}
    (void)pthread_mutex_lock(&p->lock);
    pleat__batch *first = p->first;
    p->first = NULL;
    p->last = &p->first;
    *is_last = p->is_stopping;
    (void)pthread_mutex_unlock(&p->lock);
    return first;
}

static void forget(pleat__publisher *p, uint64_t seq) {
    pleat__batch **place = &p->ring[seq % p->ring_cap];
    if (*place) p->ring_bytes -= (*place)->cap_bytes;
    pleat__batch_free(&p->al, *place);
    *place = NULL;
}

/* The newest; the oldest make room. */
static void keep(pleat__publisher *p, pleat__batch *b) {
    const uint64_t seq = (uint64_t)b->seq;
    while (p->oldest < seq && (seq - p->oldest >= p->ring_cap || p->ring_bytes + b->cap_bytes > p->most_bytes))
        forget(p, p->oldest++);
    p->ring[seq % p->ring_cap] = b;
    p->ring_bytes += b->cap_bytes;
    p->n_sent = seq + 1;
    (void)pthread_mutex_lock(&p->lock);
    p->stats.replay_bytes = p->ring_bytes;
    (void)pthread_mutex_unlock(&p->lock);
}

/* True: these were the last. */
static bool publish(pleat__publisher *p) {
    bool is_last;
    for (pleat__batch *b = take_all(p, &is_last), *next; b; b = next) {
        next = b->next;
        (void)zmq_send(p->pub, p->topic, p->n_topic, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        send_batch(p->pub, b);
        keep(p, b);
    }
    return is_last;
}

/* ---- replay ------------------------------------------------------------------------------------------------------- */

static void begin_reply(pleat__publisher *p, const zmq_msg_t *who, bool is_end) {
    zmq_msg_t *identity = (zmq_msg_t *)who; /* zmq_msg_data() takes no const */
    (void)zmq_send(p->router, zmq_msg_data(identity), zmq_msg_size(identity), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(p->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(p->router, p->topic, is_end ? 0 : p->n_topic, ZMQ_SNDMORE | ZMQ_DONTWAIT);
}

static void replay(pleat__publisher *p, const zmq_msg_t *who, uint64_t from) {
    for (uint64_t seq = from > p->oldest ? from : p->oldest; seq < p->n_sent; seq++) {
        const pleat__batch *b = p->ring[seq % p->ring_cap];
        if (!b || (uint64_t)b->seq != seq) continue; /* it was lost */
        begin_reply(p, who, false);
        send_batch(p->router, b);
    }
    begin_reply(p, who, true);
    send_batch(p->router, NULL);
}

/* One message: as many frames as a request has, and how many there were. */
static uint32_t receive(void *socket, zmq_msg_t frames[REQUEST_FRAMES]) {
    uint32_t n = 0;
    for (int more = 1; more; n++) {
        zmq_msg_t rest, *to = n < REQUEST_FRAMES ? &frames[n] : &rest;
        (void)zmq_msg_init(&rest);
        more = zmq_msg_recv(to, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(to);
        (void)zmq_msg_close(&rest);
    }
    return n;
}

static void answer(pleat__publisher *p) {
    zmq_msg_t frames[REQUEST_FRAMES];
    pleat__frame parts[REQUEST_FRAMES];
    uint64_t from = 0;
    for (uint32_t i = 0; i < REQUEST_FRAMES; i++) (void)zmq_msg_init(&frames[i]);
    const uint32_t n = receive(p->router, frames);
    for (uint32_t i = 0; i < REQUEST_FRAMES; i++)
        parts[i] = (pleat__frame){zmq_msg_data(&frames[i]), zmq_msg_size(&frames[i])};
    const bool is_asked = pleat__get_replay(parts, n, &from);
    if (is_asked) replay(p, &frames[0], from);
    for (uint32_t i = 0; i < REQUEST_FRAMES; i++) (void)zmq_msg_close(&frames[i]);
    (void)pthread_mutex_lock(&p->lock);
    p->stats.n_replays += is_asked;
    p->stats.n_refused += !is_asked;
    (void)pthread_mutex_unlock(&p->lock);
}

static void *run(void *arg) {
    pleat__publisher *p = arg;
    zmq_pollitem_t items[2] = {{.fd = p->wake[0], .events = ZMQ_POLLIN}, {.socket = p->router, .events = ZMQ_POLLIN}};
    const int n = p->router ? 2 : 1;
    for (bool is_last = false; !is_last;) {
        if (zmq_poll(items, n, -1) < 0 && errno != EINTR) return NULL;
        if (items[0].revents) is_last = publish(p);
        if (n > 1 && items[1].revents) answer(p);
    }
    return NULL;
}

/* ---- open and close ----------------------------------------------------------------------------------------------- */

static void wake_thread(pleat__publisher *p) {
    ssize_t n;
    do n = write(p->wake[1], "", 1);
    while (n < 0 && errno == EINTR); /* a full pipe wakes it too */
}

static bool open_pipe(pleat__publisher *p) {
    p->has_pipe = pipe(p->wake) == 0;
    for (int i = 0; p->has_pipe && i < 2; i++) {
        (void)fcntl(p->wake[i], F_SETFL, O_NONBLOCK);
        (void)fcntl(p->wake[i], F_SETFD, FD_CLOEXEC);
    }
    return p->has_pipe;
}

/* libzmq takes the place of whatever has an ipc endpoint's name: nobody's file, and no socket where somebody listens.  False: errno
 * says why. */
static bool is_free(const char *endpoint) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    if (strncmp(endpoint, "ipc://", 6) != 0 || strlen(endpoint + 6) >= sizeof to.sun_path) return true;
    strcpy(to.sun_path, endpoint + 6);
    if (lstat(to.sun_path, &st) != 0) return true;
    const int fd = S_ISSOCK(st.st_mode) ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
    bool is_left_over = false;
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, O_NONBLOCK); /* whoever listens may hang */
        is_left_over = connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 && errno == ECONNREFUSED;
        (void)close(fd);
    }
    errno = fd >= 0 ? EADDRINUSE : EEXIST;
    return is_left_over;
}

static bool bind_one(pleat__publisher *p, int type, const char *endpoint, int send_ahead, void **out) {
    const int linger_ms = LINGER_MS;
    const int64_t most_bytes = FRAME_BYTES;
    *out = zmq_socket(p->context, type);
    return *out && zmq_setsockopt(*out, ZMQ_SNDHWM, &send_ahead, sizeof send_ahead) == 0 &&
           zmq_setsockopt(*out, ZMQ_LINGER, &linger_ms, sizeof linger_ms) == 0 &&
           zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &most_bytes, sizeof most_bytes) == 0 && is_free(endpoint) &&
           zmq_bind(*out, endpoint) == 0;
}

static pleat_status bind_all(pleat__publisher *p, const pleat_events_options *o, pleat_error *err) {
    p->context = zmq_ctx_new();
    PLEAT_FAIL_IF(!p->context, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "events: out of memory");
    PLEAT_FAIL_IF(!bind_one(p, ZMQ_PUB, o->endpoint, SEND_AHEAD, &p->pub), err, PLEAT_E_IO, PLEAT_NOWHERE,
                  "events: cannot listen at '%.200s': %s", o->endpoint, zmq_strerror(errno));
    if (!o->replay_endpoint) return PLEAT_OK;
    const int all = (int)(REPLAYS_AHEAD * (o->replay_batches + 1));
    PLEAT_FAIL_IF(!bind_one(p, ZMQ_ROUTER, o->replay_endpoint, all, &p->router), err, PLEAT_E_IO, PLEAT_NOWHERE,
                  "events: cannot listen at '%.200s': %s", o->replay_endpoint, zmq_strerror(errno));
    return PLEAT_OK;
}

static pleat_status open_parts(pleat__publisher *p, const pleat_events_options *o, pleat_error *err) {
    p->ring_cap = o->replay_batches;
    p->most_bytes = o->replay_bytes;
    p->ring = pleat__alloc_zero(&p->al, p->ring_cap, sizeof(void *));
    p->has_lock = p->ring && pthread_mutex_init(&p->lock, NULL) == 0;
    PLEAT_FAIL_IF(!p->has_lock, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "events: out of memory");
    PLEAT_FAIL_IF(!open_pipe(p), err, PLEAT_E_IO, PLEAT_NOWHERE, "events: no pipe: %s", strerror(errno));
    PLEAT_TRY(bind_all(p, o, err));
    p->has_thread = pthread_create(&p->thread, NULL, run, p) == 0;
    PLEAT_FAIL_IF(!p->has_thread, err, PLEAT_E_IO, PLEAT_NOWHERE, "events: no thread could be started");
    return PLEAT_OK;
}

pleat_status pleat__publisher_open(const pleat_events_options *o, const pleat_allocator *al, pleat__publisher **out,
                                   pleat_error *err) {
    pleat__publisher *p = pleat__alloc_zero(al, 1, sizeof *p);
    PLEAT_FAIL_IF(!p, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "events: out of memory");
    p->al = *al;
    p->last = &p->first;
    p->n_topic = strlen(o->topic);
    memcpy(p->topic, o->topic, p->n_topic + 1);
    const pleat_status status = open_parts(p, o, err);
    if (status == PLEAT_OK)
        *out = p;
    else
        pleat__publisher_close(p);
    return status;
}

void pleat__publisher_post(pleat__publisher *p, pleat__batch *batch) {
    (void)pthread_mutex_lock(&p->lock);
    p->stats.n_batches++;
    p->stats.n_lost += !batch;
    const int64_t seq = p->next_seq++;
    if (batch) {
        batch->seq = seq;
        batch->next = NULL;
        *p->last = batch;
        p->last = &batch->next;
    }
    (void)pthread_mutex_unlock(&p->lock);
    wake_thread(p);
}

void pleat__publisher_get_stats(pleat__publisher *p, pleat_events_stats *out) {
    (void)pthread_mutex_lock(&p->lock);
    *out = p->stats;
    (void)pthread_mutex_unlock(&p->lock);
}

static void stop(pleat__publisher *p) {
    (void)pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    (void)pthread_mutex_unlock(&p->lock);
    wake_thread(p);
    (void)pthread_join(p->thread, NULL);
}

void pleat__publisher_close(pleat__publisher *p) {
    if (!p) return;
    if (p->has_thread) stop(p);
    if (p->pub) (void)zmq_close(p->pub);
    if (p->router) (void)zmq_close(p->router);
    while (p->context && zmq_ctx_term(p->context) != 0 && errno == EINTR) {}
    for (int i = 0; p->has_pipe && i < 2; i++) (void)close(p->wake[i]);
    for (uint32_t i = 0; p->ring && i < p->ring_cap; i++) pleat__batch_free(&p->al, p->ring[i]);
    if (p->ring) pleat__free(&p->al, p->ring, p->ring_cap, sizeof(void *));
    if (p->has_lock) (void)pthread_mutex_destroy(&p->lock);
    const pleat_allocator al = p->al;
    pleat__free(&al, p, 1, sizeof *p);
}

#else

pleat_status pleat__publisher_open(const pleat_events_options *o, const pleat_allocator *al, pleat__publisher **out,
                                   pleat_error *err) {
    (void)o;
    (void)al;
    (void)out;
    return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                            "events: this build has no libzmq (Debian package libzmq3-dev), by which they are sent");
}

void pleat__publisher_post(pleat__publisher *p, pleat__batch *batch) {
    (void)p;
    (void)batch;
}

void pleat__publisher_get_stats(pleat__publisher *p, pleat_events_stats *out) {
    (void)p;
    (void)out;
}

void pleat__publisher_close(pleat__publisher *p) { (void)p; }

#endif
