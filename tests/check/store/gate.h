/* SPDX-License-Identifier: MIT
 *
 * gate.h: files whose reads, or writes, stand still until a gate is opened: a disk that hangs.
 */
#ifndef CHECK_STORE_GATE_H
#define CHECK_STORE_GATE_H

#include <pthread.h>

#include "store_rig.h"

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool holds_reads, holds_writes;
    uint32_t n_standing; /* calls that stand before it */
} gate;

static inline void gate_init(gate *g) {
    *g = (gate){0};
    CHECK(pthread_mutex_init(&g->lock, NULL) == 0 && pthread_cond_init(&g->moved, NULL) == 0);
}

static inline void gate_release(gate *g) {
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
}

static inline void gate_set(gate *g, bool holds_reads, bool holds_writes) {
    pthread_mutex_lock(&g->lock);
    g->holds_reads = holds_reads;
    g->holds_writes = holds_writes;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static inline void gate_pass(gate *g, const bool *holds) {
    pthread_mutex_lock(&g->lock);
    g->n_standing++;
    pthread_cond_broadcast(&g->moved);
    while (*holds) pthread_cond_wait(&g->moved, &g->lock);
    g->n_standing--;
    pthread_mutex_unlock(&g->lock);
}

/* Until somebody stands before it. */
static inline void gate_await(gate *g) {
    pthread_mutex_lock(&g->lock);
    while (g->n_standing == 0) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static inline int64_t gated_read(void *ctx, int fd, void *to, uint64_t n, uint64_t at) {
    gate *g = ctx;
    gate_pass(g, &g->holds_reads);
    return pleat__files_system.read(NULL, fd, to, n, at);
}

static inline int64_t gated_write(void *ctx, int fd, const void *from, uint64_t n, uint64_t at) {
    gate *g = ctx;
    gate_pass(g, &g->holds_writes);
    return pleat__files_system.write(NULL, fd, from, n, at);
}

/* The others of the system's functions do not look at their ctx. */
static inline pleat__files gated_files(gate *g) {
    pleat__files files = pleat__files_system;
    files.ctx = g;
    files.read = gated_read;
    files.write = gated_write;
    return files;
}

/* A store on such files. */
static inline pleat_store *gated_open(const folder *f, gate *g, uint64_t timeout_ns) {
    pleat_store_options o = store_options(f, (uint64_t)1 << 30);
    const pleat__files files = gated_files(g);
    pleat_store *store = NULL;
    pleat_error err = {0};
    o.timeout_ns = timeout_ns;
    if (!CHECK_STATUS(pleat__store_open_on(&o, &files, &store, &err), PLEAT_OK)) printf("%s\n", err.text);
    return store;
}

#endif
