/* SPDX-License-Identifier: MIT
 *
 * workers.c: the team of threads behind pleat_workers.
 *
 * A loop is published by storing its number of work units in `open`.  Whoever is running, helper or caller, takes units
 * from there until none is left.  The loop has ended when all its units have returned: a helper that sleeps, or has
 * lost its CPU to another process, is not waited for unless it holds a unit.
 *
 *     helper:  asleep --epoch raised--> taking units --none left--> spinning --SPIN_NS without a new epoch--> asleep
 *
 * A token's forward pass is some forty loops of a few microseconds each.  So helpers spin briefly before they sleep on
 * the epoch (a futex wake takes 5-50 us on virtual machines), and idle teams use no CPU.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"

#define MAX_THREADS 256u
#define SPIN_NS 60000 /* longer than the gap between two loops of a token; short enough not to heat an idle core */

typedef struct helper {
    pleat_workers *team;
    pthread_t thread;
    uint32_t worker; /* 1 .. n_threads-1; the caller is 0 */
} helper;

struct pleat_workers {
    pleat_allocator al;
    uint32_t n_threads;
    uint32_t n_started; /* helpers whose thread runs */
    helper *helpers;    /* [n_threads] (the first is unused) */

    /* The loop; written by the caller while no unit is open or running, published by open. */
    void (*fn)(void *ctx, uint32_t unit, uint32_t worker);
    void *ctx;
    uint32_t n_units;
    _Atomic bool quit;

    _Alignas(64) _Atomic uint32_t epoch;  /* of the newest loop; what idle helpers watch */
    _Alignas(64) _Atomic uint64_t open;   /* epoch << 32 | units that nobody has taken */
    _Alignas(64) _Atomic uint32_t n_left; /* units that have not returned */
    _Alignas(64) _Atomic uint32_t asleep; /* helpers in futex_wait */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Take and run units until none is open.  Whoever has taken one may read the loop: it cannot end before the unit
 * returns. */
static void run_units(pleat_workers *team, uint32_t worker) {
    uint64_t open = atomic_load_explicit(&team->open, memory_order_acquire);
    while ((uint32_t)open != 0) {
        if (!atomic_compare_exchange_weak_explicit(&team->open, &open, open - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        team->fn(team->ctx, team->n_units - (uint32_t)open, worker);
        atomic_fetch_sub_explicit(&team->n_left, 1, memory_order_release);
        open = atomic_load_explicit(&team->open, memory_order_acquire);
    }
}

/* Wait until the epoch is no longer `seen`; return the new one. */
static uint32_t await_epoch(pleat_workers *team, uint32_t seen) {
    const uint64_t deadline = now_ns() + SPIN_NS;
    uint32_t epoch;
    while ((epoch = atomic_load_explicit(&team->epoch, memory_order_acquire)) == seen) {
        for (int i = 0; i < 32; i++) cpu_pause();
        if (now_ns() < deadline) continue;
        atomic_fetch_add(&team->asleep, 1);
        futex_wait(&team->epoch, seen);
        atomic_fetch_sub(&team->asleep, 1);
    }
    return epoch;
}

static void *helper_main(void *arg) {
    const helper *self = arg;
    pleat_workers *team = self->team;
    uint32_t seen = 0;
    for (;;) {
        seen = await_epoch(team, seen);
        if (team->quit) return NULL;
        run_units(team, self->worker);
    }
}

static void publish(pleat_workers *team) {
    const uint64_t epoch = atomic_load_explicit(&team->epoch, memory_order_relaxed) + 1;
    atomic_store_explicit(&team->n_left, team->n_units, memory_order_relaxed);
    atomic_store_explicit(&team->open, epoch << 32 | team->n_units, memory_order_release);
    atomic_fetch_add(&team->epoch, 1);
    if (atomic_load(&team->asleep) != 0) futex_wake_all(&team->epoch);
}

void pleat_workers_run(pleat_workers *team, uint32_t n_units, void (*fn)(void *, uint32_t, uint32_t), void *ctx) {
    if (!team || team->n_threads == 1 || n_units <= 1) {
        for (uint32_t unit = 0; unit < n_units; unit++) fn(ctx, unit, 0);
        return;
    }
    team->fn = fn;
    team->ctx = ctx;
    team->n_units = n_units;
    publish(team);
    run_units(team, 0);
    uint32_t spins = 0;
    while (atomic_load_explicit(&team->n_left, memory_order_acquire) != 0) {
        cpu_pause();
        if (++spins % 4096 == 0) sched_yield(); /* a helper may have lost its CPU to another process */
    }
}

uint32_t pleat_workers_count(const pleat_workers *team) { return team ? team->n_threads : 1; }

static uint32_t usable_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int n = CPU_COUNT(&set);
    return n < 1 ? 1 : pleat__min_u32((uint32_t)n, MAX_THREADS);
}

pleat_status pleat_workers_create(uint32_t n_threads, const pleat_allocator *allocator, pleat_workers **out) {
    if (!out || n_threads > MAX_THREADS) return PLEAT_E_ARG;
    if (n_threads == 0) n_threads = usable_cpus();
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_workers *team = pleat__alloc_zero(&al, 1, sizeof *team);
    if (!team) return PLEAT_E_MEMORY;
    team->al = al;
    team->n_threads = n_threads;
    team->helpers = pleat__alloc_zero(&al, n_threads, sizeof *team->helpers);
    if (!team->helpers) {
        pleat_workers_destroy(&team);
        return PLEAT_E_MEMORY;
    }
    for (uint32_t worker = 1; worker < n_threads; worker++) {
        helper *h = &team->helpers[worker];
        h->team = team;
        h->worker = worker;
        if (pthread_create(&h->thread, NULL, helper_main, h) != 0) {
            pleat_workers_destroy(&team);
            return PLEAT_E_IO;
        }
        team->n_started++;
    }
    *out = team;
    return PLEAT_OK;
}

void pleat_workers_destroy(pleat_workers **workers) {
    if (!workers || !*workers) return;
    pleat_workers *team = *workers;
    team->quit = true;
    atomic_fetch_add(&team->epoch, 1);
    futex_wake_all(&team->epoch);
    for (uint32_t worker = 1; worker <= team->n_started; worker++) pthread_join(team->helpers[worker].thread, NULL);
    const pleat_allocator al = team->al;
    pleat__free(&al, team->helpers, team->n_threads, sizeof *team->helpers);
    pleat__free(&al, team, 1, sizeof *team);
    *workers = NULL;
}
