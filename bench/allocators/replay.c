/* SPDX-License-Identifier: MIT
 *
 * replay.c: a server in steps over one allocator, and the same allocations again under a clock.
 *
 * Requests in `running` stand in the order of their admission, those in `queue` in the order in which they will be
 * admitted: who was thrown out stands in front of who has never run.  A request's tokens are counted at the end of a
 * step, so each of its lengths prompt + 1 .. prompt + output counts in exactly one step, whatever is thrown out when.
 * Over the whole replay the sums of live and held tokens of AT_MAX and PAGED therefore depend on the requests alone.
 *
 * The clock runs over a log of what the allocator did, so that it sees neither the server nor itself.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocators.h"
#include "bench.h"

/* ---- one interface --------------------------------------------------------------------------------------------- */

void *need_memory(uint64_t n, uint64_t bytes) {
    void *p = n <= SIZE_MAX / bytes ? calloc(n ? n : 1, bytes) : NULL;
    if (!p) {
        fprintf(stderr, "bench_allocators: out of memory\n");
        exit(1);
    }
    return p;
}

void allocator_make(allocator *a, const allocator_kind *kind, uint32_t pool_tokens, uint32_t max_tokens,
                    uint32_t n_slots) {
    *a = (allocator){.kind = *kind, .pool_tokens = pool_tokens, .max_tokens = max_tokens, .n_slots = n_slots};
    a->capacity = need_memory(n_slots, sizeof *a->capacity);
    kind->how == PAGED ? paged_make(a) : contiguous_make(a);
}

void allocator_free(allocator *a) {
    a->kind.how == PAGED ? paged_free(a) : contiguous_free(a);
    free(a->capacity);
}

uint32_t allocator_piece(const allocator *a, uint32_t n_tokens, uint32_t n_final) {
    const uint32_t block = a->kind.block;
    return a->kind.how == PAGED ? pleat__div_up_u32(n_tokens, block) * block : contiguous_piece(a, n_tokens, n_final);
}

bool allocator_reserve(allocator *a, uint32_t slot, uint32_t n_tokens, uint32_t n_final) {
    return a->kind.how == PAGED ? paged_reserve(a, slot, n_tokens) : contiguous_reserve(a, slot, n_tokens, n_final);
}

void allocator_release(allocator *a, uint32_t slot) {
    a->kind.how == PAGED ? paged_release(a, slot) : contiguous_release(a, slot);
    a->held -= a->capacity[slot];
    a->capacity[slot] = 0;
}

uint32_t allocator_free_tokens(const allocator *a) {
    return a->kind.how == PAGED ? a->pool.n_free * a->kind.block : a->space.n_free;
}

uint32_t allocator_largest_free(const allocator *a) {
    return a->kind.how == PAGED ? allocator_free_tokens(a) : contiguous_largest(a);
}

double allocator_table_bytes(const allocator *a, double n_running, uint32_t n_lanes) {
    return a->kind.how == PAGED ? paged_table_bytes(a, n_running, n_lanes) : n_running * 2 * sizeof(uint64_t);
}

bool allocator_is_valid(const allocator *a) {
    uint64_t held = 0;
    for (uint32_t slot = 0; slot < a->n_slots; slot++) held += a->capacity[slot];
    return held == a->held && (a->kind.how == PAGED ? paged_is_valid(a) : contiguous_is_valid(a));
}

/* ---- the log, and the clock ------------------------------------------------------------------------------------ */

/* What an allocator did; n_tokens 0: it released the slot. */
typedef struct op {
    uint32_t slot, n_tokens, n_final;
} op;

typedef struct op_log {
    op *ops;
    uint64_t n, cap;
} op_log;

static void log_op(op_log *log, op o) {
    if (log->n == log->cap) {
        log->cap = log->cap ? 2 * log->cap : 4096;
        log->ops = realloc(log->ops, log->cap * sizeof *log->ops);
        if (!log->ops) need_memory(UINT64_MAX, 8);
    }
    log->ops[log->n++] = o;
}

/* Seconds that the log's operations take: the second time, when all memory has been touched.  After the first the
 * allocator is empty again. */
static double log_seconds(const op_log *log, allocator *a) {
    double start = 0;
    for (int pass = 0; pass < 2; pass++) {
        start = measure_now_s();
        for (uint64_t i = 0; i < log->n; i++) {
            const op *o = &log->ops[i];
            if (o->n_tokens == 0)
                allocator_release(a, o->slot);
            else
                allocator_reserve(a, o->slot, o->n_tokens, o->n_final);
        }
    }
    return measure_now_s() - start;
}

static double log_median(const op_log *log, const allocator *like, uint32_t n_repeats) {
    double *seconds = need_memory(n_repeats, sizeof *seconds);
    for (uint32_t i = 0; i < n_repeats; i++) {
        allocator a;
        allocator_make(&a, &like->kind, like->pool_tokens, like->max_tokens, like->n_slots);
        seconds[i] = log_seconds(log, &a);
        allocator_free(&a);
    }
    const double middle = measure_median(seconds, n_repeats);
    free(seconds);
    return middle;
}

/* ---- the server ------------------------------------------------------------------------------------------------ */

/* A request at work or waiting. */
typedef struct job {
    uint32_t n_tokens; /* that it has: its prompt, and what has been generated; 0: has not come yet */
    uint32_t slot;     /* while it runs */
} job;

typedef struct server {
    const request *requests;
    uint32_t n_requests;
    const replay_options *o;
    allocator a;
    op_log log;
    job *jobs;         /* [n_requests] */
    uint32_t *running; /* [n_slots] request indexes */
    uint32_t n_running;
    uint32_t *thrown_out; /* [n_requests] a stack: who was thrown out last comes back first */
    uint32_t n_thrown_out;
    uint32_t next;        /* the first request that has never run */
    uint32_t *free_slots; /* [n_slots] a stack */
    uint32_t n_free_slots;
    uint32_t n_done;
    uint64_t n_generated, n_again;
    double sum_running, sum_live, sum_held, sum_external;
    replay_result *r;
} server;

static uint32_t n_final_of(const server *s, uint32_t i) { return s->requests[i].prompt + s->requests[i].output; }

static bool reserve_for(server *s, uint32_t slot, uint32_t i) {
    const op o = {slot, s->jobs[i].n_tokens + 1, n_final_of(s, i)};
    const uint32_t lacks = allocator_piece(&s->a, o.n_tokens, o.n_final) - s->a.capacity[slot];
    if (allocator_reserve(&s->a, slot, o.n_tokens, o.n_final)) {
        log_op(&s->log, o);
        s->r->n_allocations++;
        return true;
    }
    s->r->n_failures++;
    s->r->n_failures_holes += allocator_free_tokens(&s->a) >= lacks;
    return false;
}

/* A request that ran no longer does; the caller takes it out of `running`. */
static void give_up(server *s, uint32_t i) {
    const uint32_t slot = s->jobs[i].slot;
    allocator_release(&s->a, slot);
    log_op(&s->log, (op){.slot = slot});
    s->free_slots[s->n_free_slots++] = slot;
}

static void let_go(server *s) {
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->n_running; at++) {
        const uint32_t i = s->running[at];
        if (s->jobs[i].n_tokens < n_final_of(s, i)) {
            s->running[n++] = i;
            continue;
        }
        give_up(s, i);
        s->n_done++;
    }
    s->n_running = n;
}

/* Who waits and is the next to run; NOBODY: nobody waits. */
#define NOBODY UINT32_MAX
static uint32_t first_waiting(const server *s, double now) {
    if (s->n_thrown_out > 0) return s->thrown_out[s->n_thrown_out - 1];
    return s->next < s->n_requests && s->requests[s->next].arrival <= now ? s->next : NOBODY;
}

static void admit(server *s, double now) {
    const uint32_t headroom = allocator_grows(&s->a) ? (uint32_t)(s->o->headroom * s->a.pool_tokens) : 0;
    for (uint32_t i; s->n_free_slots > 0 && (i = first_waiting(s, now)) != NOBODY;) {
        job *j = &s->jobs[i];
        if (j->n_tokens == 0) j->n_tokens = s->requests[i].prompt;
        if (s->n_running > 0 && allocator_free_tokens(&s->a) < (uint64_t)j->n_tokens + 1 + headroom) {
            s->r->n_failures++;
            return;
        }
        j->slot = s->free_slots[s->n_free_slots - 1];
        if (!reserve_for(s, j->slot, i)) return;
        s->n_free_slots--;
        s->running[s->n_running++] = i;
        if (s->n_thrown_out > 0)
            s->n_thrown_out--;
        else
            s->next++;
    }
}

/* Throw out the newest. */
static void throw_out(server *s) {
    const uint32_t i = s->running[--s->n_running];
    give_up(s, i);
    s->n_again += s->jobs[i].n_tokens;
    s->thrown_out[s->n_thrown_out++] = i;
    s->r->n_preempted++;
}

static void generate(server *s) {
    for (uint32_t at = 0; at < s->n_running; at++) {
        const uint32_t i = s->running[at];
        job *j = &s->jobs[i];
        while (at < s->n_running && j->n_tokens == s->a.capacity[j->slot] && !reserve_for(s, j->slot, i)) throw_out(s);
        if (at == s->n_running) break; /* it was the newest itself */
        j->n_tokens++;
        s->n_generated++;
    }
}

/* What a step that counts adds. */
static void count(server *s) {
    uint64_t live = 0;
    for (uint32_t at = 0; at < s->n_running; at++) live += s->jobs[s->running[at]].n_tokens;
    const double n_free = allocator_free_tokens(&s->a);
    s->r->n_steps++;
    s->sum_running += s->n_running;
    s->sum_live += (double)live;
    s->sum_held += (double)s->a.held;
    if (n_free > 0) s->sum_external += 1 - allocator_largest_free(&s->a) / n_free;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static void server_make(server *s, uint32_t max_tokens, const allocator_kind *kind) {
    const uint32_t n_slots = pleat__min_u32(s->n_requests, s->o->pool_tokens);
    allocator_make(&s->a, kind, s->o->pool_tokens, max_tokens, n_slots);
    s->jobs = need_memory(s->n_requests, sizeof *s->jobs);
    s->running = need_memory(n_slots, sizeof *s->running);
    s->thrown_out = need_memory(s->n_requests, sizeof *s->thrown_out);
    s->free_slots = need_memory(n_slots, sizeof *s->free_slots);
    while (s->n_free_slots < n_slots) {
        s->free_slots[s->n_free_slots] = n_slots - 1 - s->n_free_slots;
        s->n_free_slots++;
    }
}

static void server_free(server *s) {
    allocator_free(&s->a);
    free(s->jobs);
    free(s->running);
    free(s->thrown_out);
    free(s->free_slots);
    free(s->log.ops);
}

/* Until all have ended; false: the allocator is no longer valid. */
static bool serve(server *s) {
    enum { CHECK_EVERY = 97 };
    const uint32_t n_first = (uint32_t)(s->o->warm_up * s->n_requests);
    for (uint64_t step = 0;; step++) {
        let_go(s);
        if (s->n_done == s->n_requests) return allocator_is_valid(&s->a) && s->a.held == 0;
        admit(s, (double)step);
        generate(s);
        const bool waits = s->n_thrown_out > 0 || s->next < s->n_requests;
        if (s->o->whole || (s->n_done >= n_first && waits)) count(s);
        if (s->o->check && step % CHECK_EVERY == 0 && !allocator_is_valid(&s->a)) return false;
    }
}

static void set_means(const server *s, replay_result *r) {
    const double n = r->n_steps ? (double)r->n_steps : NAN, pool = n * s->a.pool_tokens;
    const double n_generated = s->n_generated ? (double)s->n_generated : 1;
    r->running = s->sum_running / n;
    r->utilisation = s->sum_live / s->sum_held;
    r->external = s->sum_external / n;
    r->live = s->sum_live / pool;
    r->slack = (s->sum_held - s->sum_live) / pool;
    r->free = 1 - s->sum_held / pool;
    r->table_bytes = allocator_table_bytes(&s->a, r->running, s->o->n_lanes);
    r->table_share = r->table_bytes / ((double)s->a.pool_tokens * s->o->n_lanes * s->o->lane_bytes);
    r->moved = (double)s->a.moved / n_generated;
    r->again = (double)s->n_again / n_generated;
    r->ns_allocation = r->ns_token = NAN;
    if (s->o->n_repeats == 0) return;
    const double ns = 1e9 * log_median(&s->log, &s->a, s->o->n_repeats);
    r->ns_allocation = ns / (double)r->n_allocations;
    r->ns_token = ns / n_generated;
}

bool replay(const request *requests, uint32_t n_requests, uint32_t max_tokens, const allocator_kind *kind,
            const replay_options *o, replay_result *r) {
    server s = {.requests = requests, .n_requests = n_requests, .o = o, .r = r};
    *r = (replay_result){0};
    server_make(&s, max_tokens, kind);
    const bool ok = serve(&s);
    if (ok) set_means(&s, r);
    server_free(&s);
    return ok;
}
