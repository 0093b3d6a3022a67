/* SPDX-License-Identifier: MIT
 *
 * os_cores.c: see os_cores.h.
 *
 *     /sys/devices/system/cpu/cpuN/topology/core_cpus_list   the CPUs of N's core: "0,64" or "0-1"; thread_siblings_list
 *                                                            in kernels before 5.3
 *     /proc/self/cgroup                                      "0::/PATH" (v2) and "4:cpu,cpuacct:/PATH" (v1)
 *     /sys/fs/cgroup/PATH/cpu.max                            v2: "150000 100000", microseconds of a period, or "max 100000"
 *     /sys/fs/cgroup/cpu/PATH/cpu.cfs_quota_us               v1: -1 for no limit, with cpu.cfs_period_us
 *
 * In a container PATH may be one that only the host sees: then the files of the directories above it answer.
 */
#include "hw/os_cores.h"

#ifdef __linux__
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_CAP 1024
#define LINE_CAP 512

/* The first line of a file, "" if there is none. */
static void read_line(const char *path, char line[LINE_CAP]) {
    line[0] = 0;
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (!fgets(line, LINE_CAP, f)) line[0] = 0;
    (void)fclose(f);
}

/* ---- SMT --------------------------------------------------------------------------------------------------------- */

/* Whether a list such as "0-1,64" names one of `cpus`. */
static bool names_any(const char *list, const uint32_t *cpus, uint32_t n) {
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (uint32_t i = 0; i < n; i++)
            if (cpus[i] >= first && cpus[i] <= last) return true;
    }
    return false;
}

/* CPUs of which none before shares the core. */
static uint32_t count_cores(const char *root, const uint32_t *cpus, uint32_t n) {
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    uint32_t n_cores = 0;
    for (uint32_t i = 0; i < n; i++) {
        char path[PATH_CAP], list[LINE_CAP] = "";
        for (uint32_t f = 0; f < 2 && !list[0]; f++) {
            (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/topology/%s", root, cpus[i], names[f]);
            read_line(path, list);
        }
        n_cores += !names_any(list, cpus, i);
    }
    return n_cores;
}

/* ---- quotas ------------------------------------------------------------------------------------------------------ */

static double read_number(const char *dir, const char *name) {
    char path[PATH_CAP + 32], line[LINE_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    read_line(path, line);
    return strtod(line, NULL);
}

/* Cores that a directory's own quota pays for, at most `most`. */
static double quota_of(const char *dir, bool is_v2, double most) {
    double quota, period;
    if (is_v2) {
        char path[PATH_CAP + 32], line[LINE_CAP], *end;
        (void)snprintf(path, sizeof path, "%s/cpu.max", dir);
        read_line(path, line);
        quota = strtod(line, &end); /* "max" is 0 */
        period = strtod(end, NULL);
    } else {
        quota = read_number(dir, "cpu.cfs_quota_us");
        period = read_number(dir, "cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 && quota / period < most ? quota / period : most;
}

/* The same of `path` below `mount` and of all directories between. */
static double quota_below(const char *mount, const char *path, bool is_v2, double most) {
    char dir[PATH_CAP];
    const size_t n_mount = strlen(mount);
    if (snprintf(dir, sizeof dir, "%s%s", mount, path) >= (int)sizeof dir) return most;
    for (;;) {
        most = quota_of(dir, is_v2, most);
        char *slash = strrchr(dir + n_mount, '/');
        if (!slash) return most;
        *slash = 0;
    }
}

/* Whether v1's list of controllers, which ends at `end`, has cpu. */
static bool has_cpu(const char *list, const char *end) {
    for (const char *next; list < end; list = next + 1) {
        for (next = list; next < end && *next != ',';) next++;
        if (next - list == 3 && memcmp(list, "cpu", 3) == 0) return true;
    }
    return false;
}

static double quota_cores(const char *root, double most) {
    char path[PATH_CAP], line[LINE_CAP];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;
        if (!end) continue;
        const bool is_v2 = end == list + 1;
        if (!is_v2 && !has_cpu(list + 1, end)) continue;
        (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/cpu");
        most = quota_below(path, end + 1, is_v2, most);
    }
    if (f) (void)fclose(f);
    return most;
}

/* ---- what callers ask -------------------------------------------------------------------------------------------- */

uint32_t pleat__os_cores_under(const char *root, const uint32_t *cpus, uint32_t n) {
    const uint32_t n_cores = count_cores(root, cpus, n);
    const double paid = quota_cores(root, n_cores);
    return paid < 1 ? 1 : (uint32_t)paid;
}

/* CPUs of the process's affinity, ascending; their number, 0 if it cannot be asked. */
static uint32_t list_cpus(uint32_t cpus[CPU_SETSIZE]) {
    cpu_set_t set;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus[n++] = cpu;
    return n;
}

uint32_t pleat__os_cpus(void) {
    uint32_t cpus[CPU_SETSIZE];
    return pleat__max_u32(1, list_cpus(cpus));
}

uint32_t pleat__os_cores(void) {
    uint32_t cpus[CPU_SETSIZE];
    return pleat__os_cores_under("", cpus, list_cpus(cpus));
}

int pleat__os_cpu(void) { return sched_getcpu(); }

bool pleat__os_leave_cpu(int cpu) {
    cpu_set_t all, others;
    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) != 0) return false;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
    (void)sched_setaffinity(0, sizeof all, &all);
    return true;
}
#else
#include <unistd.h>

uint32_t pleat__os_cpus(void) {
#ifdef _SC_NPROCESSORS_ONLN
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)n;
#else
    return 1;
#endif
}

uint32_t pleat__os_cores(void) { return pleat__os_cpus(); }

uint32_t pleat__os_cores_under(const char *root, const uint32_t *cpus, uint32_t n) {
    (void)root, (void)cpus;
    return pleat__max_u32(1, n);
}

int pleat__os_cpu(void) { return -1; }

bool pleat__os_leave_cpu(int cpu) {
    (void)cpu;
    return false;
}
#endif
