/* SPDX-License-Identifier: MIT
 *
 * redis.h: servers for tests: a real one, and a stand-in that answers as it is told.
 */
#ifndef CHECK_STORE_REDIS_H
#define CHECK_STORE_REDIS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "store_rig.h"

/* A socket of this machine's that listens, and its port; -1. */
static inline int listen_anywhere(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!CHECK(fd >= 0)) return -1;
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static inline int connect_to(uint16_t port) {
    const struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* ---- a real one -------------------------------------------------------------------------------------------------- */

typedef struct redis {
    pid_t pid;
    uint16_t port;
} redis;

static inline void redis_stop(redis *r) {
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
    r->pid = 0;
}

/* Start one on this port, or anywhere (0).  False: this machine has none. */
static inline bool redis_start(redis *r, uint16_t port) {
    char text[16];
    *r = (redis){.port = port};
    if (port == 0) close(listen_anywhere(&r->port));
    snprintf(text, sizeof text, "%u", r->port);
    r->pid = fork();
    if (r->pid == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        execlp("redis-server", "redis-server", "--port", text, "--save", "", "--bind", "127.0.0.1", (char *)NULL);
        _exit(127);
    }
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int fd; waitpid(r->pid, NULL, WNOHANG) == 0; nanosleep(&pause, NULL))
        if ((fd = connect_to(r->port)) >= 0) return close(fd), true;
    r->pid = 0;
    return false;
}

/* Say something to it; the first bytes of what it says. */
static inline void redis_say(const redis *r, const char *what, char *out, size_t cap) {
    const int fd = connect_to(r->port);
    if (!CHECK(fd >= 0)) return;
    CHECK(write(fd, what, strlen(what)) == (ssize_t)strlen(what));
    const ssize_t n = read(fd, out, cap - 1);
    out[n > 0 ? n : 0] = 0;
    close(fd);
}

/* ---- a stand-in -------------------------------------------------------------------------------------------------- */

/* Says `says` to whoever connects and says something, once for each time; and closes then if `closes`.  says NULL: nothing. */
typedef struct stand_in {
    int fd;
    uint16_t port;
    const char *says;
    size_t n;
    bool closes;
    pthread_t thread;
    atomic_uint n_heard; /* times that somebody has said something */
} stand_in;

/* Somebody has said something, or has gone: false, it is closed. */
static inline bool stand_in_serve(stand_in *s, int fd) {
    char heard[65536];
    if (recv(fd, heard, sizeof heard, 0) <= 0) return false;
    atomic_fetch_add(&s->n_heard, 1);
    return !(s->says && send(fd, s->says, s->n, MSG_NOSIGNAL) < 0) && !s->closes;
}

/* All connections at once, until the socket is shut. */
static inline void *stand_in_work(void *arg) {
    stand_in *s = arg;
    struct pollfd at[32] = {{s->fd, POLLIN, 0}};
    nfds_t n = 1;
    while (poll(at, n, -1) > 0) {
        for (nfds_t i = n - 1; i > 0; i--)
            if (at[i].revents && !stand_in_serve(s, at[i].fd)) {
                close(at[i].fd);
                at[i] = at[--n];
            }
        if (!at[0].revents) continue;
        const int fd = accept(s->fd, NULL, NULL);
        if (fd < 0 || n == CHECK_COUNT(at)) break;
        at[n++] = (struct pollfd){fd, POLLIN, 0};
    }
    for (nfds_t i = 1; i < n; i++) close(at[i].fd);
    return NULL;
}

static inline void stand_in_start(stand_in *s, const char *says, size_t n, bool closes) {
    *s = (stand_in){.says = says, .n = n, .closes = closes};
    s->fd = listen_anywhere(&s->port);
    CHECK(pthread_create(&s->thread, NULL, stand_in_work, s) == 0);
}

/* Nobody is connected any more. */
static inline void stand_in_stop(stand_in *s) {
    CHECK(shutdown(s->fd, SHUT_RDWR) == 0);
    pthread_join(s->thread, NULL);
    close(s->fd);
}

#endif
