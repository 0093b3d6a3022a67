/* SPDX-License-Identifier: MIT
 *
 * free_memory.c: see free_memory.h.
 *
 *     /proc/meminfo                  MemAvailable, KiB
 *     /proc/self/statm               OS pages of the address space first
 *     /proc/self/cgroup              "0::/PATH" (v2) and "9:memory:/PATH" (v1)
 *     /sys/fs/cgroup/PATH            v2: memory.max and memory.high ("max": none), memory.current
 *     /sys/fs/cgroup/memory/PATH     v1: memory.limit_in_bytes (2^63 and less: none), memory.usage_in_bytes
 *
 * What a cgroup uses has the file pages that it read; those of memory.stat's inactive_file go where room is needed.
 * In a container PATH may be one that only the host sees: then the files of the directories above it answer.
 */
#include "cli/lib/machine/free_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATH_CAP 1024

typedef struct cgroup_names {
    const char *mount, *usage, *reclaimable;
    const char *limits[3]; /* NULL behind the last */
} cgroup_names;

static const cgroup_names version_1 = {
    "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "total_inactive_file", {"memory.limit_in_bytes"}};
static const cgroup_names version_2 = {
    "/sys/fs/cgroup", "memory.current", "inactive_file", {"memory.max", "memory.high"}};

/* The number behind `key` at the beginning of a line of a file; `none` where there is no such line or no number. */
static uint64_t read_number(const char *dir, const char *name, const char *key, uint64_t none) {
    char path[PATH_CAP + 32], line[512], *end;
    const size_t n_key = strlen(key);
    uint64_t found = none;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n_key) != 0) continue;
        const uint64_t number = strtoull(line + n_key, &end, 10);
        if (end != line + n_key) found = number;
        break;
    }
    if (f) (void)fclose(f);
    return found;
}

/* What a directory's own limits leave, at most `most`. */
static uint64_t left_in(const char *dir, const cgroup_names *names, uint64_t most) {
    const uint64_t usage = read_number(dir, names->usage, "", 0);
    const uint64_t reclaimable = read_number(dir, "memory.stat", names->reclaimable, 0);
    const uint64_t used = usage > reclaimable ? usage - reclaimable : 0;
    for (uint32_t i = 0; names->limits[i]; i++) {
        const uint64_t limit = read_number(dir, names->limits[i], "", UINT64_MAX);
        const uint64_t left = limit > used ? limit - used : 0;
        if (left < most) most = left;
    }
    return most;
}

/* The same of `path` below the mount and of all directories between. */
static uint64_t left_below(const char *root, const char *path, const cgroup_names *names, uint64_t most) {
    char dir[PATH_CAP];
    const size_t n_mount = strlen(root) + strlen(names->mount);
    if (snprintf(dir, sizeof dir, "%s%s%s", root, names->mount, path) >= (int)sizeof dir) return most;
    for (;;) {
        most = left_in(dir, names, most);
        char *slash = strrchr(dir + n_mount, '/');
        if (!slash) return most;
        *slash = 0;
    }
}

static uint64_t left_of_cgroups(const char *root, uint64_t most) {
    char path[PATH_CAP], line[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *end = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!end) continue;
        *end = 0;
        if (end == controllers + 1) most = left_below(root, end + 1, &version_2, most);
        if (strcmp(controllers + 1, "memory") == 0) most = left_below(root, end + 1, &version_1, most);
    }
    if (f) (void)fclose(f);
    return most;
}

uint64_t free_memory_under(const char *root) {
    char proc[PATH_CAP];
    (void)snprintf(proc, sizeof proc, "%s/proc", root);
    const uint64_t kib = read_number(proc, "meminfo", "MemAvailable:", 0);
    const uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return left_of_cgroups(root, kib ? kib * 1024 : all / 2);
}

uint64_t free_memory_bytes(void) {
    struct rlimit address_space;
    const uint64_t most = free_memory_under("");
    if (getrlimit(RLIMIT_AS, &address_space) != 0 || address_space.rlim_cur == RLIM_INFINITY) return most;
    const uint64_t used = read_number("/proc/self", "statm", "", 0) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t left = address_space.rlim_cur > used ? address_space.rlim_cur - used : 0;
    return left < most ? left : most;
}
