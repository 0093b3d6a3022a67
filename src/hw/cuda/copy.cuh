/* SPDX-License-Identifier: MIT
 *
 * copy.cuh: copies from global to shared memory that go on by themselves (cp.async), for all kernels.
 *
 *     pleat__copy_16(to, from); ... pleat__copies_commit();      a group, of this thread's copies since the last one
 *     pleat__copies_wait<N>();                                   until all but the N newest groups have landed
 *
 * What has landed is seen by this thread; a barrier shows it to others.  `to` is an address in shared memory, `from`
 * one in global memory; both are multiples of 16.
 *
 * Those of 16 bytes pass the level-1 cache by and ask the level-2 cache for whole lines of 128 bytes.  Without that, an
 * H200 reads pages from memory 1 to 3 % slower (938 against 963 us for 4.3 GB); asking for 256 bytes costs 6 %.
 */
#ifndef PLEAT_HW_CUDA_COPY_CUH
#define PLEAT_HW_CUDA_COPY_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t pleat__shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void pleat__copy_16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The same by a policy of the level-2 cache.  Lines that leave first make room for others that are read again soon. */
static __device__ __forceinline__ void pleat__copy_16_by(uint32_t to, const void *from, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "l"(policy)
                 : "memory");
}
static __device__ __forceinline__ uint64_t pleat__leave_first(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Or zeros; `from` is not read then, but must be a global address. */
static __device__ __forceinline__ void pleat__copy_16_or_zeros(uint32_t to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void pleat__copy_4_or_zeros(uint32_t to, const void *from, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(is_there ? 4 : 0) : "memory");
}

static __device__ __forceinline__ void pleat__copies_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void pleat__copies_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
