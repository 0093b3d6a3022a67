/* SPDX-License-Identifier: MIT
 *
 * os_wait.c: see os_wait.h.
 *
 * Without a futex, words share a few pairs of mutex and condition variable.  A waker holds the mutex, so it comes before
 * a sleeper has looked at the word or after that has gone to sleep; who is woken for another word looks again.
 */
#include "hw/os_wait.h"

#ifndef PLEAT_FUTEX
#define PLEAT_FUTEX 0
#endif

#if PLEAT_FUTEX
#include <sys/syscall.h>
#include <unistd.h>

enum { WAIT_PRIVATE = 128, WAKE_PRIVATE = 129 }; /* of <linux/futex.h>, which musl does not bring */

void pleat__os_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void pleat__os_wake_all(_Atomic uint32_t *word) { syscall(SYS_futex, word, WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0); }
#else
#include <pthread.h>

typedef struct bed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
} bed;

#define BED \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER }

static bed beds[8] = {BED, BED, BED, BED, BED, BED, BED, BED};

static bed *bed_of(const _Atomic uint32_t *word) { return &beds[(uintptr_t)word / 64 % 8]; } /* by cache line */

void pleat__os_wait(_Atomic uint32_t *word, uint32_t expected) {
    bed *b = bed_of(word);
    pthread_mutex_lock(&b->lock);
    if (atomic_load(word) == expected) pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void pleat__os_wake_all(_Atomic uint32_t *word) {
    bed *b = bed_of(word);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}
#endif
