/* SPDX-License-Identifier: MIT
 *
 * test_cores.c: how many cores a process may use, of made-up files of /proc and /sys; a team on one CPU; the wait.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "hw/os_cores.h"
#include "hw/os_wait.h"
#include "pleat/pleat.h"

#ifdef __linux__
#include <sched.h>

#include "fake_root.h"

static const uint32_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void test_no_files_no_limit(void) {
    fake_root root;
    if (!root_make(&root)) return;
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 8);
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 0), 1);
    root_remove(&root);
}

/* CPUs n and n+4 share a core. */
static void test_siblings_count_once(void) {
    fake_root root;
    if (!root_make(&root)) return;
    for (uint32_t cpu = 0; cpu < 8; cpu++) {
        char name[96], list[16];
        (void)snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu,
                       cpu < 4 ? "core_cpus_list" : "thread_siblings_list");
        (void)snprintf(list, sizeof list, "%u,%u\n", cpu % 4, cpu % 4 + 4);
        root_write(&root, name, list);
    }
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 4);
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, (const uint32_t[]){0, 1, 5, 6}, 4), 3);
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, (const uint32_t[]){4, 5, 6, 7}, 4), 4);
    root_write(&root, "/sys/devices/system/cpu/cpu1/topology/core_cpus_list", "0-1,64\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, (const uint32_t[]){0, 1, 2}, 3), 2);
    root_remove(&root);
}

/* The tightest directory counts; a part of a core does not, but there is always one. */
static void test_quota_of_version_2(void) {
    fake_root root;
    if (!root_make(&root)) return;
    root_write(&root, "/proc/self/cgroup", "0::/slice/unit\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 8);
    root_write(&root, "/sys/fs/cgroup/slice/unit/cpu.max", "max 100000\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 8);
    root_write(&root, "/sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 3);
    root_write(&root, "/sys/fs/cgroup/slice/unit/cpu.max", "100000 50000\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 2);
    root_write(&root, "/sys/fs/cgroup/cpu.max", "20000 100000\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 1);
    root_remove(&root);
}

static void test_quota_of_version_1(void) {
    fake_root root;
    if (!root_make(&root)) return;
    root_write(&root, "/proc/self/cgroup", "9:name=systemd:/\n3:cpuset:/box\n2:cpuacct,cpu:/box/inner\n0::/\n");
    root_write(&root, "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n");
    root_write(&root, "/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    root_write(&root, "/sys/fs/cgroup/cpu/box/inner/cpu.cfs_quota_us", "-1\n");
    root_write(&root, "/sys/fs/cgroup/cpu/box/inner/cpu.cfs_period_us", "100000\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 2);
    root_write(&root, "/proc/self/cgroup", "3:cpuset:/box\n2:cpuacct:/box\nnonsense\n5:\n");
    CHECK_EQ_U64(pleat__os_cores_under(root.dir, eight, 8), 8);
    root_remove(&root);
}

static void sum_unit(void *ctx, uint32_t unit, uint32_t worker) {
    (void)worker;
    atomic_fetch_add((_Atomic uint64_t *)ctx, unit + 1);
}

/* Teams whose threads have one CPU between them, all of them on the caller's. */
static void test_team_on_one_cpu(void) {
    cpu_set_t all, one;
    if (!CHECK(sched_getaffinity(0, sizeof all, &all) == 0)) return;
    const int cpu = pleat__os_cpu();
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (!CHECK(sched_setaffinity(0, sizeof one, &one) == 0)) return;
    CHECK_EQ_U64(pleat__os_cpus(), 1);
    CHECK_EQ_U64(pleat_cpu_cores(), 1);
    CHECK(!pleat__os_leave_cpu(cpu));
    pleat_workers *team = NULL;
    if (CHECK_STATUS(pleat_workers_create(0, NULL, &team), PLEAT_OK)) CHECK_EQ_U64(pleat_workers_count(team), 1);
    pleat_workers_destroy(&team);
    if (CHECK_STATUS(pleat_workers_create(4, NULL, &team), PLEAT_OK)) {
        _Atomic uint64_t sum = 0;
        for (int i = 0; i < 200; i++) pleat_workers_run(team, 100, sum_unit, &sum);
        CHECK_EQ_U64(sum, 200 * 5050);
    }
    pleat_workers_destroy(&team);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

/* Who leaves a CPU runs on another one, and may still use all. */
static void test_leave_cpu(void) {
    cpu_set_t all, after;
    if (pleat__os_cpus() < 2) SKIP("one CPU");
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int i = 0; i < 10; i++) CHECK(pleat__os_leave_cpu(pleat__os_cpu()));
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&all, &after));
    CHECK(!pleat__os_leave_cpu(-1));
    CHECK(!pleat__os_leave_cpu(CPU_SETSIZE));
}
#endif

static void test_cores_of_this_machine(void) { CHECK(pleat_cpu_cores() >= 1 && pleat_cpu_cores() <= pleat__os_cpus()); }

/* Two threads that take turns. */
typedef struct turns {
    _Atomic uint32_t turn;
    uint32_t n;
} turns;

static void take_turns(turns *t, uint32_t mine) {
    for (uint32_t turn; (turn = atomic_load(&t->turn)) < t->n;) {
        if (turn % 2 == mine) {
            atomic_fetch_add(&t->turn, 1);
            pleat__os_wake_all(&t->turn);
        } else {
            pleat__os_wait(&t->turn, turn);
        }
    }
}

static void *other_turns(void *ctx) {
    take_turns(ctx, 1);
    return NULL;
}

static void test_wait_and_wake(void) {
    turns t = {.n = (uint32_t)check_rounds(2000, 500)};
    pthread_t other;
    pleat__os_wait(&t.turn, 7); /* it is not 7 */
    if (!CHECK(pthread_create(&other, NULL, other_turns, &t) == 0)) return;
    take_turns(&t, 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK_EQ_U64(t.turn, t.n);
}

static const check_test tests[] = {
#ifdef __linux__
    {"no_files_no_limit", test_no_files_no_limit},
    {"siblings_count_once", test_siblings_count_once},
    {"quota_of_version_2", test_quota_of_version_2},
    {"quota_of_version_1", test_quota_of_version_1},
    {"team_on_one_cpu", test_team_on_one_cpu},
    {"leave_cpu", test_leave_cpu},
#endif
    {"cores_of_this_machine", test_cores_of_this_machine},
    {"wait_and_wake", test_wait_and_wake},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
