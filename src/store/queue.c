/* SPDX-License-Identifier: MIT
 *
 * queue.c: what is to be written, from whoever computes to the writer's thread.
 *
 * Who puts something waits for nobody: what finds no room in the queue is left out, and counted.
 */
#include <assert.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "store/internal.h"

enum { MAX_SMALL = 1024 }; /* jobs without an image that are queued at most */

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* The next job, when there is one; NULL: there is none and there will be none. */
static pleat__job *take(pleat_store *s) {
    (void)pthread_mutex_lock(&s->lock);
    while (!s->first && !s->is_stopping) (void)pthread_cond_wait(&s->work, &s->lock);
    pleat__job *job = s->first;
    if (job) {
        s->first = job->next;
        if (!s->first) s->last = &s->first;
        if (job->kind != PLEAT__JOB_WRITE) s->n_small--;
    }
    s->current = job;
    s->writes_since_ns = job ? pleat__clock_ns() : 0;
    (void)pthread_mutex_unlock(&s->lock);
    return job;
}

static void release(pleat_store *s, pleat__job *job) {
    (void)pthread_mutex_lock(&s->lock);
    if (job->kind == PLEAT__JOB_WRITE) s->stats.queued_bytes -= job->block_bytes;
    s->current = NULL;
    s->writes_since_ns = 0;
    if (!s->first) (void)pthread_cond_broadcast(&s->idle);
    (void)pthread_mutex_unlock(&s->lock);
    pleat__free(&s->al, job, 1, job->block_bytes);
}

static void write_image(pleat_store *s, pleat__job *job) {
    const pleat__writing w = {&job->key, &job->head, job->file, job->n_head, job->cost_ns};
    pleat_status status = pleat_image_write_head(&job->head, job->file + job->n_head, job->file, job->n_head);
    if (status == PLEAT_OK) status = s->shelf.write(s->shelf.ctx, &w);
    if (status == PLEAT_OK) pleat__store_add(s, &s->stats.written_bytes, job->n_head + job->head.body_bytes);
    if (status != PLEAT_AGAIN) pleat__store_add(s, status == PLEAT_OK ? &s->stats.written : &s->stats.failed, 1);
    if (status == PLEAT_OK || status == PLEAT_AGAIN) pleat__store_learn(s, &job->key, true);
}

static void do_job(pleat_store *s, pleat__job *job) {
    if (job->kind == PLEAT__JOB_WRITE) write_image(s, job);
    if (job->kind == PLEAT__JOB_USE) s->shelf.use(s->shelf.ctx, &job->key);
    if (job->kind == PLEAT__JOB_FORGET) s->shelf.forget(s->shelf.ctx, &job->key);
}

void *pleat__store_write_all(void *arg) {
    pleat_store *s = arg;
    for (pleat__job *job; (job = take(s)) != NULL;) {
        do_job(s, job);
        release(s, job);
    }
    return NULL;
}

void pleat_store_flush(pleat_store *s) {
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    while (s->first || s->current) (void)pthread_cond_wait(&s->idle, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- putting ------------------------------------------------------------------------------------------- */

static void append(pleat_store *s, pleat__job *job) {
    job->next = NULL;
    *s->last = job;
    s->last = &job->next;
    (void)pthread_cond_signal(&s->work);
}

void pleat__store_note(pleat_store *s, pleat__job_kind kind, const pleat__store_key *key) {
    pleat__job *job = pleat__alloc_zero(&s->al, 1, sizeof *job);
    if (!job) return;
    job->kind = kind;
    job->key = *key;
    job->block_bytes = sizeof *job;
    (void)pthread_mutex_lock(&s->lock);
    const bool has_room = s->n_small < MAX_SMALL;
    s->n_small += has_room;
    if (has_room) append(s, job);
    (void)pthread_mutex_unlock(&s->lock);
    if (!has_room) pleat__free(&s->al, job, 1, job->block_bytes);
}

/* What a job with this head takes, and where its parts stand; base NULL: only how much. */
static uint64_t carve(const pleat_image_head *h, uint64_t n_head, uint8_t *base, pleat__job **job) {
    pleat__arena arena = {.base = base, .cap_bytes = UINT64_MAX};
    pleat__job *j = pleat__arena_take(&arena, 1, sizeof *j);
    uint8_t *file = pleat__arena_take(&arena, n_head + h->body_bytes, 1);
    if (base) *j = (pleat__job){.kind = PLEAT__JOB_WRITE, .file = file, .n_head = n_head};
    pleat__store_copy_head(&arena, h, base ? &j->head : NULL);
    if (base) *job = j;
    return arena.overflow ? UINT64_MAX : arena.used_bytes;
}

static bool is_queued(const pleat_store *s, const pleat__store_key *key) {
    const pleat__job *job = s->current;
    if (job && job->kind == PLEAT__JOB_WRITE && memcmp(&job->key, key, sizeof *key) == 0) return true;
    for (job = s->first; job; job = job->next)
        if (job->kind == PLEAT__JOB_WRITE && memcmp(&job->key, key, sizeof *key) == 0) return true;
    return false;
}

/* Room for a job of so many bytes is set aside. */
static pleat_status reserve(pleat_store *s, const pleat__store_key *key, uint64_t file_bytes, uint64_t block_bytes) {
    pleat_status status = PLEAT_OK;
    (void)pthread_mutex_lock(&s->lock);
    const uint64_t room = s->queue_bytes - s->stats.queued_bytes;
    if (is_queued(s, key))
        status = PLEAT_AGAIN;
    else if (block_bytes > room || pleat__store_disk_bytes(file_bytes) > s->max_bytes)
        status = PLEAT_E_LIMIT;
    if (status == PLEAT_OK) s->stats.queued_bytes += block_bytes;
    s->stats.skipped += status == PLEAT_E_LIMIT;
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

static void unreserve(pleat_store *s, uint64_t block_bytes) {
    (void)pthread_mutex_lock(&s->lock);
    s->stats.queued_bytes -= block_bytes;
    (void)pthread_mutex_unlock(&s->lock);
}

pleat_status pleat_store_put(pleat_store *s, const pleat_image_head *head, double cost_ns, pleat_store_fill fill,
                             void *ctx) {
    if (!s || !head || !fill || !(cost_ns > 0 && cost_ns < 1e30)) return PLEAT_E_ARG;
    pleat_image_head h = *head;
    h.piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT;
    const uint64_t n_head = pleat_image_head_bytes(&h);
    if (n_head == 0) return PLEAT_E_ARG;
    const pleat__store_key key = pleat__store_key_of(&h);
    if (pleat__store_knows(s, &key)) return PLEAT_AGAIN;
    const uint64_t block_bytes = carve(&h, n_head, NULL, NULL);
    PLEAT_TRY(reserve(s, &key, n_head + h.body_bytes, block_bytes));
    uint8_t *block = pleat__alloc(&s->al, 1, block_bytes);
    pleat__job *job = NULL;
    if (block) (void)carve(&h, n_head, block, &job);
    const pleat_status status = job ? fill(ctx, job->file + n_head, h.body_bytes) : PLEAT_E_MEMORY;
    if (status != PLEAT_OK) {
        pleat__free(&s->al, block, 1, block_bytes);
        unreserve(s, block_bytes);
        return status;
    }
    job->key = key;
    job->cost_ns = cost_ns;
    job->block_bytes = block_bytes;
    (void)pthread_mutex_lock(&s->lock);
    append(s, job);
    (void)pthread_mutex_unlock(&s->lock);
    return PLEAT_OK;
}
