/* SPDX-License-Identifier: MIT
 *
 * driver.h: the thread that drives a serving, and the notes by which another learns what its steps brought.
 *
 *     driver_start ──> thread: pleat_serving_wait, pleat_serving_step ──> notes, copied out of events ──> eventfd
 *     driver_take  <── the event loop, when the eventfd can be read
 *     driver_put_ask ─> thread: run, between two steps ──> eventfd ──> driver_answer_asks ──> answered
 *     driver_stop
 */
#ifndef PLEAT_CLI_SERVE_DRIVER_H
#define PLEAT_CLI_SERVE_DRIVER_H

#include <pthread.h>

#include "pleat/pleat.h"

/* An event that outlives its step. */
typedef struct note {
    struct note *next;
    pleat_serving_event event; /* text and logprobs point behind it, into the same block */
    double at_s;               /* when its step was over, on the clock of measure.h */
} note;

typedef struct driver driver;

/* Whose turn it is, where several servings share the threads that compute: who asks first steps first. */
typedef struct turns {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved;
    uint64_t n_asked, n_over;
} turns;

void turns_init(turns *t);
void turns_release(turns *t);

/* Start it.  t: of the servings that compute with the same threads, outlives it; NULL: there is one.  NULL after a
 * message. */
driver *driver_start(pleat_serving *serving, turns *t);

/* Readable when there are notes. */
int driver_fd(const driver *d);

/* All notes so far, the oldest first; the caller frees each.  NULL: there are none. */
note *driver_take(driver *d);

/* A question to a serving, or what it is to do between two steps; the first member of a record of its own. */
typedef struct driver_ask {
    struct driver_ask *next;
    void (*run)(struct driver_ask *ask, pleat_serving *serving); /* by the driver's thread */
    void (*answered)(struct driver_ask *ask);                    /* by the event loop's */
} driver_ask;

/* Have it run soon.  It is the driver's until it is answered. */
void driver_put_ask(driver *d, driver_ask *ask);

/* Those that have run are told so by `answered`, the oldest first. */
void driver_answer_asks(driver *d);

/* Counters as of some tenths of a second ago at most. */
void driver_get_stats(driver *d, pleat_serving_stats *out);

/* End the thread, which finishes the step it is in, and free all; asks that are left, run or not, are told so by
 * answered.  NULL is fine. */
void driver_stop(driver **d);

#endif
