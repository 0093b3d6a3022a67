/* SPDX-License-Identifier: MIT
 *
 * free_memory.h: memory that this process may still take.
 */
#ifndef PLEAT_CLI_FREE_MEMORY_H
#define PLEAT_CLI_FREE_MEMORY_H

#include <stdint.h>

/* Bytes that can be had without pushing anything out: the machine's, and no more than the limits of the process's
 * cgroup and of those above it, v1 or v2, and of its address space leave.  Half of what the machine has if nobody
 * says. */
uint64_t free_memory_bytes(void);

/* The same by the files of /proc and /sys below `root` alone. */
uint64_t free_memory_under(const char *root);

#endif
