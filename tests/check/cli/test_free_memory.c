/* SPDX-License-Identifier: MIT
 *
 * test_free_memory.c: memory that may still be taken, of made-up files of /proc and /sys, and under a limit.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "cli/lib/machine/free_memory.h"
#include "fake_root.h"

#define MIB ((uint64_t)1 << 20)

static void test_the_machine_is_the_limit(void) {
    fake_root root;
    if (!root_make(&root)) return;
    CHECK(free_memory_under(root.dir) > 0); /* half of all: nobody says more */
    root_write(&root, "/proc/meminfo",
               "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 2 * MIB);
    root_write(&root, "/proc/self/cgroup", "nonsense\n5:\n0::/\n9:memory:/\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 2 * MIB);
    root_write(&root, "/sys/fs/cgroup/memory.max", "max\n");
    root_write(&root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 2 * MIB);
    root_remove(&root);
}

/* The tightest directory counts, without what goes where room is needed. */
static void test_limits_of_version_2(void) {
    fake_root root;
    if (!root_make(&root)) return;
    root_write(&root, "/proc/meminfo", "MemAvailable:    1048576 kB\n");
    root_write(&root, "/proc/self/cgroup", "0::/slice/unit\n");
    root_write(&root, "/sys/fs/cgroup/slice/unit/memory.max", "max\n");
    root_write(&root, "/sys/fs/cgroup/slice/memory.max", "524288000\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 500 * MIB);
    root_write(&root, "/sys/fs/cgroup/slice/memory.current", "104857600\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 400 * MIB);
    root_write(&root, "/sys/fs/cgroup/slice/memory.stat", "anon 7\nfile 9\ninactive_file 52428800\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 450 * MIB);
    root_write(&root, "/sys/fs/cgroup/slice/unit/memory.high", "209715200\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 200 * MIB);
    root_write(&root, "/sys/fs/cgroup/slice/unit/memory.current", "209719296\n"); /* above it already */
    CHECK_EQ_U64(free_memory_under(root.dir), 0);
    root_remove(&root);
}

static void test_limits_of_version_1(void) {
    fake_root root;
    if (!root_make(&root)) return;
    root_write(&root, "/proc/meminfo", "MemAvailable:    1048576 kB\n");
    root_write(&root, "/proc/self/cgroup", "9:name=systemd:/\n3:cpuset:/box\n2:memory:/box/only/outside\n0::/\n");
    root_write(&root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "314572800\n");
    root_write(&root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n");
    root_write(&root, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600\n");
    CHECK_EQ_U64(free_memory_under(root.dir), 200 * MIB);
    root_remove(&root);
}

/* Of what a limit leaves beyond the address space that is in use, no more is free.  (A limit of less than that leaves a
 * sanitizer no room to read a file.) */
static void test_limit_of_the_address_space(void) {
    const uint64_t room = 64 * MIB;
    unsigned long long n_os_pages = 0;
    struct rlimit old, low;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!CHECK(f != NULL)) return;
    CHECK(fscanf(f, "%llu", &n_os_pages) == 1);
    (void)fclose(f);
    if (!CHECK(getrlimit(RLIMIT_AS, &old) == 0)) return;
    const uint64_t before = free_memory_bytes();
    low = old;
    low.rlim_cur = n_os_pages * (uint64_t)sysconf(_SC_PAGESIZE) + room;
    if (!CHECK(setrlimit(RLIMIT_AS, &low) == 0)) return;
    const uint64_t under = free_memory_bytes();
    CHECK(setrlimit(RLIMIT_AS, &old) == 0);
    CHECK(before > 2 * room);
    CHECK(under > 0 && under <= 2 * room); /* a page or so more or less is in use by now */
}

static const check_test tests[] = {
    {"the_machine_is_the_limit", test_the_machine_is_the_limit},
    {"limits_of_version_2", test_limits_of_version_2},
    {"limits_of_version_1", test_limits_of_version_1},
    {"limit_of_the_address_space", test_limit_of_the_address_space},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
