/* SPDX-License-Identifier: MIT
 *
 * pinned.cu: hw/pinned.h on the CUDA runtime.
 */
#include <sys/mman.h>

#include "hw/cuda/cuda.cuh"
#include "hw/os_memory.h"
#include "hw/pinned.h"

#define SMALL_PAGE 4096ull
#define HUGE_PAGE (2ull << 20)

static uint64_t whole_pages(uint64_t bytes) { return (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE; }

/* Huge pages begin at multiples of their size.  All are there once they have been written to. */
static void *map_huge(uint64_t bytes) {
    void *mapped = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    uint8_t *p = (uint8_t *)mapped;
    const uint64_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) (void)munmap(p, before);
    p += before;
    if (before < HUGE_PAGE) (void)munmap(p + bytes, HUGE_PAGE - before);
    pleat__os_advise_huge(p, bytes);
    for (uint64_t at = 0; at < bytes; at += SMALL_PAGE) *(volatile uint8_t *)(p + at) = 0;
    return p;
}

extern "C" pleat_status pleat__device_pin(uint64_t bytes, void **p, pleat_error *err) {
    const uint64_t whole = whole_pages(bytes);
    void *got = map_huge(whole);
    PLEAT_FAIL_IF(!got, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory of the host to pin: %llu bytes",
                  (unsigned long long)whole);
    const cudaError_t code = cudaHostRegister(got, whole, cudaHostRegisterPortable);
    const pleat_status status = pleat__cuda_status((int)code, "pinning memory of the host", err);
    if (status == PLEAT_OK)
        *p = got;
    else
        pleat__device_unpin(got, bytes);
    return status;
}

extern "C" void pleat__device_unpin(void *p, uint64_t bytes) {
    if (!p) return;
    (void)cudaHostUnregister(p);
    (void)cudaGetLastError(); /* it may not have been registered */
    (void)munmap(p, whole_pages(bytes));
}
