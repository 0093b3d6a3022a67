/* SPDX-License-Identifier: MIT
 *
 * os_cores.h: the cores that this process may use, and where a thread runs.  What the system does not say, as outside
 * Linux, counts as unlimited, unshared and unknown.
 */
#ifndef PLEAT_HW_OS_CORES_H
#define PLEAT_HW_OS_CORES_H

#include <stdbool.h>

#include "core/types.h"

/* Physical cores that this process may use, >= 1.  Of the CPUs that its affinity names, those that share a core (SMT)
 * count once.  There are at most as many as the quotas of its cgroup and of those above it, v1 or v2, pay for in
 * full. */
uint32_t pleat__os_cores(void);

/* The same for the CPUs cpus[n], ascending, with the files of /proc and /sys looked for under `root`. */
uint32_t pleat__os_cores_under(const char *root, const uint32_t *cpus, uint32_t n);

/* CPUs that this process may run on, >= 1: affinity alone. */
uint32_t pleat__os_cpus(void);

/* The CPU that the calling thread runs on, or -1. */
int pleat__os_cpu(void);

/* Move the calling thread away from `cpu`, to any other that it may use; later it may come back.  False if there is no
 * other, or the system has no such call. */
bool pleat__os_leave_cpu(int cpu);

#endif
