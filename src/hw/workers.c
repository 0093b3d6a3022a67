/* SPDX-License-Identifier: MIT
 *
 * workers.c: the team of threads behind pleat_workers.
 *
 * A loop is published by storing its number of work units in `open`.  Whoever is running, helper or caller, takes units
 * from there until none is left.  The loop has ended when all its units have returned: a helper that sleeps, or has
 * lost its CPU to another process, is not waited for unless it holds a unit.
 *
 *     helper:  asleep --epoch raised--> taking units --none left--> spinning --SPIN_NS without a new epoch--> asleep
 *     caller:  taking units --none left--> spinning --AWAIT_NS and some have not returned--> asleep --the last has--> done
 *
 * A token's forward pass is some forty loops of a few microseconds each.  So helpers spin briefly before they sleep on
 * the epoch (a wake takes 5-50 us on virtual machines), and idle teams use no CPU.
 *
 * Beside other processes two things would make a team slower than its caller alone.  The system takes a core away for
 * milliseconds, in the middle of a unit that everybody then waits for.  And it puts helpers on the caller's core, since
 * to it two processes on two cores should have one each.  So a helper that has lost its core *shares* for a while:
 *
 *     it works in stays shorter than what the system lets it run, and between two units it naps, so that others have
 *     their turn while it holds nothing
 *     without work it naps, so that nobody has to wake it
 *     it leaves the caller's core, or naps longer where there is no other
 *     it naps longer too while the caller itself loses its core: then no core is free
 *
 * Which thread takes which unit, and when, changes no result.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core/clock.h"
#include "core/memory.h"
#include "hw/os_cores.h"
#include "hw/os_wait.h"

#define MAX_THREADS 256u
#define SPIN_NS 60000u     /* longer than the gap between two loops of a token; short enough not to heat an idle core */
#define AWAIT_NS 1000000u  /* longer than most units: a caller that sleeps may find its core taken */
#define STAY_NS 1200000u   /* Linux lets a thread run for 1.4 ms at least before another has its turn */
#define LOST_NS 300000u    /* of a stay: more than interrupts take */
#define SHARE_NS 200000000 /* after a core was lost; then one stay is risked */
#define NAP_NS 50000       /* as short as timers are: it is the others' turn from then on anyway */
#define AWAY_NS 500000     /* a nap where staying would do harm */
#define CROWDED_NS 20000000

/* A thread on a core since the last time it slept, or was looked at. */
typedef struct stay {
    uint64_t since_ns;
    uint64_t cpu_ns; /* CPU time that the thread had taken by then */
} stay;

typedef struct helper {
    pleat_workers *team;
    pthread_t thread;
    uint32_t worker; /* 1 .. n_threads-1; the caller is 0 */
    stay stay;
    uint64_t unit_ns; /* when it last looked for a unit */
    uint64_t shares_until_ns;
} helper;

struct pleat_workers {
    pleat_allocator al;
    uint32_t n_threads;
    uint32_t n_started; /* helpers whose thread runs */
    helper *helpers;    /* [n_threads] (the first is unused) */
    stay stay;          /* the caller's */
    uint64_t ended_ns;  /* when its last loop did */

    /* The loop; written by the caller while no unit is open or running, published by open. */
    void (*fn)(void *ctx, uint32_t unit, uint32_t worker);
    void *ctx;
    uint32_t n_units;
    _Atomic bool quit;

    _Alignas(64) _Atomic uint32_t epoch;  /* of the newest loop; what idle helpers watch */
    _Alignas(64) _Atomic uint64_t open;   /* epoch << 32 | units that nobody has taken */
    _Alignas(64) _Atomic uint32_t n_left; /* units that have not returned */
    _Atomic bool is_awaited;              /* the caller sleeps on n_left */
    _Alignas(64) _Atomic uint32_t asleep; /* helpers that sleep on epoch */
    _Atomic int cpu;                      /* the caller's when the loop began; -1 unknown */
    _Atomic uint64_t crowded_until_ns;
};

static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- stays ------------------------------------------------------------------------------------------------------- */

static uint64_t thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void stay_begin(stay *s) { *s = (stay){.since_ns = pleat__clock_ns(), .cpu_ns = thread_cpu_ns()}; }

/* How long the core was taken away, or the thread slept. */
static uint64_t stay_lost_ns(const stay *s, uint64_t now_ns) {
    const uint64_t stayed = now_ns - s->since_ns, taken = thread_cpu_ns() - s->cpu_ns;
    return stayed > taken ? stayed - taken : 0;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Take a unit: how many were open, 0 if none.  Whoever has taken one may read the loop: it cannot end before the unit
 * returns. */
static uint32_t take_unit(pleat_workers *team) {
    uint64_t open = atomic_load_explicit(&team->open, memory_order_acquire);
    while ((uint32_t)open != 0 && !atomic_compare_exchange_weak_explicit(&team->open, &open, open - 1,
                                                                         memory_order_acq_rel, memory_order_acquire))
        continue;
    return (uint32_t)open;
}

static void run_unit(pleat_workers *team, uint32_t open, uint32_t worker) {
    team->fn(team->ctx, team->n_units - open, worker);
    if (atomic_fetch_sub(&team->n_left, 1) == 1 && atomic_load(&team->is_awaited)) pleat__os_wake_all(&team->n_left);
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static void nap(helper *self, long ns) {
    const struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
    stay_begin(&self->stay);
    self->unit_ns = self->stay.since_ns;
}

static void look_for_others(helper *self, uint64_t now_ns) {
    if (stay_lost_ns(&self->stay, now_ns) > LOST_NS) self->shares_until_ns = now_ns + SHARE_NS;
}

static bool is_on_callers_cpu(const helper *self) {
    const int cpu = pleat__os_cpu();
    return cpu >= 0 && cpu == atomic_load_explicit(&self->team->cpu, memory_order_relaxed);
}

static bool is_crowded(const pleat_workers *team, uint64_t now_ns) {
    return now_ns < atomic_load_explicit(&team->crowded_until_ns, memory_order_relaxed);
}

/* Between two units, where a helper shares: make way.  False if it had better take none now. */
static bool make_way(helper *self, uint64_t now_ns, uint64_t unit_ns) {
    if (is_crowded(self->team, now_ns)) {
        nap(self, AWAY_NS);
        return false;
    }
    if (now_ns - self->stay.since_ns + unit_ns >= STAY_NS) {
        look_for_others(self, now_ns);
        nap(self, NAP_NS);
    }
    return true;
}

/* Between two units.  False if the helper had better take none now. */
static bool share_core(helper *self) {
    const uint64_t now_ns = pleat__clock_ns(), unit_ns = now_ns - self->unit_ns;
    self->unit_ns = now_ns;
    if (is_on_callers_cpu(self)) {
        const bool has_left = pleat__os_leave_cpu(pleat__os_cpu());
        if (!has_left) nap(self, AWAY_NS);
        return has_left;
    }
    if (now_ns < self->shares_until_ns) return make_way(self, now_ns, unit_ns);
    if (now_ns - self->stay.since_ns >= STAY_NS) {
        look_for_others(self, now_ns);
        stay_begin(&self->stay);
    }
    return true;
}

static void help(helper *self) {
    pleat_workers *team = self->team;
    while ((uint32_t)atomic_load_explicit(&team->open, memory_order_relaxed) != 0) {
        if (!share_core(self)) continue;
        const uint32_t open = take_unit(team);
        if (open != 0) run_unit(team, open, self->worker);
    }
}

static void sleep_until_epoch(helper *self, uint32_t seen) {
    pleat_workers *team = self->team;
    atomic_fetch_add(&team->asleep, 1);
    pleat__os_wait(&team->epoch, seen);
    atomic_fetch_sub(&team->asleep, 1);
    stay_begin(&self->stay);
}

/* Wait until the epoch is no longer `seen`; return the new one. */
static uint32_t await_epoch(helper *self, uint32_t seen) {
    pleat_workers *team = self->team;
    const uint64_t began_ns = pleat__clock_ns();
    uint32_t epoch;
    while ((epoch = atomic_load_explicit(&team->epoch, memory_order_acquire)) == seen) {
        for (int i = 0; i < 32; i++) cpu_pause();
        const uint64_t now_ns = pleat__clock_ns();
        const bool in_the_way = is_on_callers_cpu(self);
        if (now_ns < began_ns + SPIN_NS && !in_the_way) continue;
        look_for_others(self, now_ns);
        if (now_ns < self->shares_until_ns && now_ns < began_ns + SHARE_NS)
            nap(self, in_the_way || is_crowded(team, now_ns) ? AWAY_NS : NAP_NS);
        else
            sleep_until_epoch(self, seen);
    }
    return epoch;
}

static void *helper_main(void *arg) {
    helper *self = arg;
    pleat_workers *team = self->team;
    uint32_t seen = 0;
    stay_begin(&self->stay);
    for (;;) {
        seen = await_epoch(self, seen);
        if (team->quit) return NULL;
        help(self);
    }
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

/* Once in a few loops: where the caller is, and whether it has lost more than a quarter of its core. */
static void look_around(pleat_workers *team) {
    const uint64_t now_ns = pleat__clock_ns(), stayed_ns = now_ns - team->stay.since_ns;
    atomic_store_explicit(&team->cpu, pleat__os_cpu(), memory_order_relaxed);
    if (now_ns - team->ended_ns > LOST_NS) stay_begin(&team->stay); /* what it did in between is its own affair */
    if (now_ns - team->ended_ns > LOST_NS || stayed_ns < 4 * STAY_NS) return;
    if (stay_lost_ns(&team->stay, now_ns) > stayed_ns / 4)
        atomic_store_explicit(&team->crowded_until_ns, now_ns + CROWDED_NS, memory_order_relaxed);
    stay_begin(&team->stay);
}

static void publish(pleat_workers *team) {
    const uint64_t epoch = atomic_load_explicit(&team->epoch, memory_order_relaxed) + 1;
    atomic_store_explicit(&team->n_left, team->n_units, memory_order_relaxed);
    atomic_store_explicit(&team->open, epoch << 32 | team->n_units, memory_order_release);
    atomic_fetch_add(&team->epoch, 1);
    if (atomic_load(&team->asleep) != 0) pleat__os_wake_all(&team->epoch);
}

/* Wait until all units have returned.  A caller that sleeps leaves an idle core, to which the system can bring the
 * helper that holds the last unit and waits for another core. */
static void await_units(pleat_workers *team) {
    uint32_t n_left = atomic_load_explicit(&team->n_left, memory_order_acquire);
    if (n_left == 0) return;
    const uint64_t began_ns = pleat__clock_ns();
    while ((n_left = atomic_load_explicit(&team->n_left, memory_order_acquire)) != 0) {
        for (int i = 0; i < 32; i++) cpu_pause();
        if (pleat__clock_ns() < began_ns + AWAIT_NS) continue;
        atomic_store(&team->is_awaited, true);
        pleat__os_wait(&team->n_left, n_left);
        atomic_store(&team->is_awaited, false);
        stay_begin(&team->stay);
    }
}

void pleat_workers_run(pleat_workers *team, uint32_t n_units, void (*fn)(void *, uint32_t, uint32_t), void *ctx) {
    if (!team || team->n_threads == 1 || n_units <= 1) {
        for (uint32_t unit = 0; unit < n_units; unit++) fn(ctx, unit, 0);
        return;
    }
    team->fn = fn;
    team->ctx = ctx;
    team->n_units = n_units;
    look_around(team);
    publish(team);
    for (uint32_t open; (open = take_unit(team)) != 0;) run_unit(team, open, 0);
    await_units(team);
    team->ended_ns = pleat__clock_ns();
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

uint32_t pleat_workers_count(const pleat_workers *team) { return team ? team->n_threads : 1; }

uint32_t pleat_cpu_cores(void) { return pleat__min_u32(pleat__os_cores(), MAX_THREADS); }

pleat_status pleat_workers_create(uint32_t n_threads, const pleat_allocator *allocator, pleat_workers **out) {
    if (!out || n_threads > MAX_THREADS) return PLEAT_E_ARG;
    if (n_threads == 0) n_threads = pleat_cpu_cores();
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
    pleat__os_wake_all(&team->epoch);
    for (uint32_t worker = 1; worker <= team->n_started; worker++) pthread_join(team->helpers[worker].thread, NULL);
    const pleat_allocator al = team->al;
    pleat__free(&al, team->helpers, team->n_threads, sizeof *team->helpers);
    pleat__free(&al, team, 1, sizeof *team);
    *workers = NULL;
}
