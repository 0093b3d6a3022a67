/* SPDX-License-Identifier: MIT
 *
 * workers.c: what handing a parallel loop to a team of threads costs.
 *
 *     bench_workers [-t THREADS] [-r REPEATS]
 *
 *     busy     loops of empty units one after the other, as the forty of a token: helpers are spinning
 *     asleep   a loop after 2 ms without any: helpers are in futex_wait; how long until the last unit has run, when each
 *              thread has one and waits for the others'
 *     idle     CPU time that the whole process takes in a second without loops, in per cent of one core
 *
 * Medians in microseconds, and the 90th percentile of `asleep`.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "pleat/common.h"

enum { LOOPS = 2000, MAX_REPEATS = 10000, DEFAULT_REPEATS = 200 };

static void nothing(void *ctx, uint32_t unit, uint32_t worker) { (void)ctx, (void)unit, (void)worker; }

/* Ends when all threads have come, or after 100 ms: a team of more threads than CPUs takes turns. */
static void meet(void *ctx, uint32_t unit, uint32_t worker) {
    _Atomic uint32_t *left = ctx;
    (void)unit, (void)worker;
    const double deadline = measure_now_s() + 0.1;
    atomic_fetch_sub(left, 1);
    while (atomic_load(left) != 0 && measure_now_s() < deadline) continue;
}

static double busy_us(pleat_workers *workers) {
    const uint32_t n = pleat_workers_count(workers);
    pleat_workers_run(workers, n, nothing, NULL); /* wakes them */
    const double start = measure_now_s();
    for (int i = 0; i < LOOPS; i++) pleat_workers_run(workers, n, nothing, NULL);
    return (measure_now_s() - start) / LOOPS * 1e6;
}

static double asleep_us(pleat_workers *workers) {
    const struct timespec pause = {.tv_nsec = 2000000};
    _Atomic uint32_t left = pleat_workers_count(workers);
    nanosleep(&pause, NULL);
    const double start = measure_now_s();
    pleat_workers_run(workers, left, meet, &left);
    return (measure_now_s() - start) * 1e6;
}

/* Seconds of all cores together that this process took. */
static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double idle_percent(void) {
    const struct timespec pause = {.tv_sec = 1};
    const double cpu = cpu_s(), start = measure_now_s();
    nanosleep(&pause, NULL);
    return 100 * (cpu_s() - cpu) / (measure_now_s() - start);
}

int main(int argc, char **argv) {
    static double busy[MAX_REPEATS], asleep[MAX_REPEATS];
    int threads = 0, repeats = DEFAULT_REPEATS, i = 1;
    for (; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-t"))
            threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-r"))
            repeats = atoi(argv[i + 1]);
        else
            break;
    }
    if (i < argc || threads < 0 || threads > 256 || repeats < 1 || repeats > MAX_REPEATS) {
        fprintf(stderr, "usage: bench_workers [-t THREADS (0: one for each core)] [-r REPEATS, 1..%d]\n", MAX_REPEATS);
        return 2;
    }
    pleat_workers *workers;
    const pleat_status status = pleat_workers_create((uint32_t)threads, NULL, &workers);
    if (status != PLEAT_OK) {
        fprintf(stderr, "bench_workers: %d threads: %s\n", threads, pleat_status_str(status));
        return 1;
    }
    for (i = 0; i < repeats; i++) {
        busy[i] = busy_us(workers);
        asleep[i] = asleep_us(workers);
    }
    const double median = measure_median(asleep, (uint32_t)repeats); /* leaves them in order */
    printf("%u threads: a loop costs %.2f us busy, %.1f us asleep (90th percentile %.1f); idle: %.2f %% of a core\n",
           pleat_workers_count(workers), measure_median(busy, (uint32_t)repeats), median, asleep[repeats * 9 / 10],
           idle_percent());
    pleat_workers_destroy(&workers);
    return 0;
}
