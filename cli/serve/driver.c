/* SPDX-License-Identifier: MIT
 *
 * driver.c: see driver.h.
 */
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"

#define STATS_S 0.1 /* counting pages walks over all sequences: not at every step */

struct driver {
    pleat_serving *serving;
    turns *turns; /* NULL: it is alone */
    pthread_t thread;
    int fd;
    atomic_int is_stopping;
    double stats_at_s;
    pthread_mutex_t lock; /* guards what follows */
    note *first, **last;
    struct asks {
        driver_ask *first, **last;
    } asked, run; /* run: those that have */
    pleat_serving_stats stats;
};

/* ---- turns -------------------------------------------------------------------------------------------------------------- */

void turns_init(turns *t) {
    *t = (turns){0};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->moved, NULL);
}

void turns_release(turns *t) {
    pthread_cond_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
}

static void begin_turn(turns *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    const uint64_t mine = t->n_asked++;
    while (t->n_over != mine) pthread_cond_wait(&t->moved, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static void end_turn(turns *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->n_over++;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

/* ---- the thread ------------------------------------------------------------------------------------------------------- */

static note *copy_event(const pleat_serving_event *e) {
    const size_t n_logprobs = e->n_logprobs, n_rows = (size_t)e->n_prompt_rows * (1 + (size_t)e->n_top);
    note *n = cli_alloc(1, sizeof *n + (n_logprobs + n_rows) * sizeof(pleat_logprob) + e->n_text);
    pleat_logprob *logprobs = (pleat_logprob *)(n + 1);
    char *text = (char *)(logprobs + n_logprobs + n_rows);
    n->event = *e;
    n->at_s = measure_now_s();
    if (n_logprobs) memcpy(logprobs, e->logprobs, n_logprobs * sizeof *logprobs);
    if (n_rows) memcpy(logprobs + n_logprobs, e->prompt_logprobs, n_rows * sizeof *logprobs);
    if (e->n_text) memcpy(text, e->text, e->n_text);
    n->event.logprobs = logprobs;
    n->event.prompt_logprobs = n_rows ? logprobs + n_logprobs : NULL;
    n->event.text = text;
    return n;
}

static void publish_stats(driver *d, int now) {
    const double at_s = measure_now_s();
    if (!now && at_s - d->stats_at_s < STATS_S) return;
    pleat_serving_stats stats;
    pleat_serving_get_stats(d->serving, &stats);
    d->stats_at_s = at_s;
    pthread_mutex_lock(&d->lock);
    d->stats = stats;
    pthread_mutex_unlock(&d->lock);
}

static void tell(const driver *d) {
    const uint64_t one = 1;
    while (write(d->fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

static void publish_events(driver *d, int *has_ended) {
    uint32_t n;
    const pleat_serving_event *events = pleat_serving_events(d->serving, &n);
    note *first = NULL, **last = &first;
    for (uint32_t i = 0; i < n; i++) {
        *last = copy_event(&events[i]);
        last = &(*last)->next;
    }
    if (!first) return;
    for (uint32_t i = 0; i < n; i++) *has_ended |= events[i].finish != PLEAT_FINISH_NOT;
    pthread_mutex_lock(&d->lock);
    *d->last = first;
    d->last = last;
    pthread_mutex_unlock(&d->lock);
    tell(d);
}

static void put_ask(driver *d, struct asks *list, driver_ask *a) {
    a->next = NULL;
    pthread_mutex_lock(&d->lock);
    *list->last = a;
    list->last = &a->next;
    pthread_mutex_unlock(&d->lock);
}

static driver_ask *take_asks(driver *d, struct asks *list) {
    pthread_mutex_lock(&d->lock);
    driver_ask *first = list->first;
    *list = (struct asks){.last = &list->first};
    pthread_mutex_unlock(&d->lock);
    return first;
}

static void run_asks(driver *d) {
    driver_ask *first = take_asks(d, &d->asked);
    for (driver_ask *a = first, *next; a; a = next) {
        next = a->next;
        a->run(a, d->serving);
        put_ask(d, &d->run, a);
    }
    if (first) tell(d);
}

static void *drive(void *arg) {
    driver *d = arg;
    const struct timespec pause = {.tv_nsec = 10000000};
    while (!atomic_load(&d->is_stopping)) {
        (void)pleat_serving_wait(d->serving, 1000000000);
        begin_turn(d->turns);
        run_asks(d);
        const pleat_status status = pleat_serving_step(d->serving, NULL);
        end_turn(d->turns);
        int has_ended = 0;
        publish_events(d, &has_ended);
        publish_stats(d, has_ended || status == PLEAT_AGAIN);
        if (status < 0) nanosleep(&pause, NULL); /* no memory: others may return some */
    }
    return NULL;
}

/* ---- from the event loop ---------------------------------------------------------------------------------------------- */

driver *driver_start(pleat_serving *serving, turns *t) {
    driver *d = cli_alloc(1, sizeof *d);
    d->serving = serving;
    d->turns = t;
    d->last = &d->first;
    d->asked.last = &d->asked.first;
    d->run.last = &d->run.first;
    pthread_mutex_init(&d->lock, NULL);
    d->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    publish_stats(d, 1);
    if (d->fd >= 0 && pthread_create(&d->thread, NULL, drive, d) == 0) return d;
    cli_error("cannot start the engine's thread: %s", strerror(errno));
    if (d->fd >= 0) close(d->fd);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return NULL;
}

int driver_fd(const driver *d) { return d->fd; }

note *driver_take(driver *d) {
    uint64_t n;
    while (read(d->fd, &n, sizeof n) < 0 && errno == EINTR) {}
    pthread_mutex_lock(&d->lock);
    note *first = d->first;
    d->first = NULL;
    d->last = &d->first;
    pthread_mutex_unlock(&d->lock);
    return first;
}

void driver_put_ask(driver *d, driver_ask *ask) {
    put_ask(d, &d->asked, ask);
    pleat_serving_wake(d->serving);
}

static void answer_asks(driver_ask *first) {
    for (driver_ask *next; first; first = next) {
        next = first->next;
        first->answered(first);
    }
}

void driver_answer_asks(driver *d) { answer_asks(take_asks(d, &d->run)); }

void driver_get_stats(driver *d, pleat_serving_stats *out) {
    pthread_mutex_lock(&d->lock);
    *out = d->stats;
    pthread_mutex_unlock(&d->lock);
}

void driver_stop(driver **driver_at) {
    driver *d = *driver_at;
    if (!d) return;
    atomic_store(&d->is_stopping, 1);
    pleat_serving_wake(d->serving);
    pthread_join(d->thread, NULL);
    answer_asks(take_asks(d, &d->run));
    answer_asks(take_asks(d, &d->asked));
    for (note *n = driver_take(d), *next; n; n = next) {
        next = n->next;
        free(n);
    }
    close(d->fd);
    pthread_mutex_destroy(&d->lock);
    free(d);
    *driver_at = NULL;
}
