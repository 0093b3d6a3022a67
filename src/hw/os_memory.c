/* SPDX-License-Identifier: MIT
 *
 * os_memory.c: see os_memory.h.
 */
#include "hw/os_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#define HUGE_BYTES ((uintptr_t)2 << 20)

void pleat__os_advise_huge(void *p, uint64_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t from = ((uintptr_t)p + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    const uintptr_t to = ((uintptr_t)p + bytes) & ~(HUGE_BYTES - 1);
    if (from < to) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

void pleat__os_release_mapped(const void *p, uint64_t bytes) {
#ifdef MADV_DONTNEED
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1), to = ((uintptr_t)p + bytes) & ~(page - 1);
    if (from < to) (void)madvise((void *)from, to - from, MADV_DONTNEED);
#else
    (void)p;
    (void)bytes;
#endif
}
