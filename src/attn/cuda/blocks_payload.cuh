/* SPDX-License-Identifier: MIT
 *
 * blocks_payload.cuh: where the payloads of a lane's blocks stand, how they come to a warp's shared memory, and the
 * minimums and steps in them.
 *
 *     ends[]  of a row: where each payload ends, in units of 16 bytes from the row's begin
 *     ids[]   of a row, from its right: the pages that hold them, so that a payload may begin in one and go on in others
 *
 * With TMA (sm_90a) a page's piece is one bulk copy, and a barrier says that all are there; else threads copy 16 bytes each.
 */
#ifndef PLEAT_ATTN_CUDA_BLOCKS_PAYLOAD_CUH
#define PLEAT_ATTN_CUDA_BLOCKS_PAYLOAD_CUH

#include "attn/cuda/blocks_codes.cuh"
#include "hw/cuda/bulk.cuh"
#include "hw/cuda/copy.cuh"

/* A row's payload. */
typedef struct walk {
    const uint32_t *next; /* where the next one ends */
    const uint32_t *page; /* the page that it begins in, */
    uint32_t unit;        /* and where there */
    uint32_t end, n;      /* units of the row before its end; its own */
} walk;

static __device__ __forceinline__ walk walk_from(const pleat__device_block_lanes &l, uint32_t row, uint32_t block) {
    const uint32_t *ends = l.ends + (uint64_t)row * l.ends_cap + block;
    const uint32_t before = block > 0 ? __ldg(ends - 1) : 0, end = __ldg(ends);
    return walk{ends + 1, l.ids + (uint64_t)row * l.row_len + l.row_len - 1 - before / l.page_units,
                before % l.page_units, end, end - before};
}

static __device__ __forceinline__ void skip_units(const pleat__device_block_lanes &l, walk *at, uint32_t n) {
    at->unit += n;
    for (; at->unit >= l.page_units; at->unit -= l.page_units) at->page--;
}

static __device__ __forceinline__ void walk_on(const pleat__device_block_lanes &l, walk *at) {
    const uint32_t end = __ldg(at->next++);
    skip_units(l, at, at->n);
    at->n = end - at->end;
    at->end = end;
}

/* f(address, offset, bytes) of pieces of n units of a payload from `at` on, which may go on in other pages: LANES 32, of
 * every 32nd from the thread's own on; 1, of all. */
template <int LANES, class F>
static __device__ __forceinline__ void each_piece(const pleat__device_block_lanes &l, const walk &at, uint32_t n, F f) {
    const uint32_t first = l.page_units - at.unit;
#pragma unroll 1
    for (uint32_t i = LANES == 32 ? threadIdx.x : 0;; i += LANES) {
        const uint32_t begin = i > 0 ? first + (i - 1) * l.page_units : 0, skipped = i > 0 ? 0 : at.unit;
        if (begin >= n) break;
        f(l.base + at.page[-(int32_t)i] * l.page_bytes + skipped * 16, begin * 16,
          min(n - begin, l.page_units - skipped) * 16);
    }
}

#if PLEAT__HAS_WGMMA

static __device__ __forceinline__ void begin_copies(uint32_t bars) {
    if (threadIdx.x < 2) pleat__bar_init(bars + 8 * threadIdx.x, 1);
    if (threadIdx.x < 2) pleat__bars_are_ready();
    __syncwarp();
}

/* Units of a payload to `to`; and until they are there. */
static __device__ __forceinline__ void copy_units(const pleat__device_block_lanes &l, const walk &at, uint32_t n,
                                                  uint32_t to, uint32_t bar) {
    each_piece<32>(l, at, n, [to, bar](const uint8_t *from, uint32_t offset, uint32_t n_bytes) {
        pleat__bulk_copy(to + offset, from, n_bytes, bar);
    });
    if (threadIdx.x == 0) pleat__bar_expect(bar, n * 16);
}
static __device__ __forceinline__ void wait_for_units(uint32_t bar, uint32_t parity) { pleat__bar_wait(bar, parity); }

#else

static __device__ __forceinline__ void begin_copies(uint32_t) {}

static __device__ __forceinline__ void copy_units(const pleat__device_block_lanes &l, const walk &at, uint32_t n,
                                                  uint32_t to, uint32_t) {
    each_piece<1>(l, at, n, [to](const uint8_t *from, uint32_t offset, uint32_t n_bytes) {
        for (uint32_t i = 16 * threadIdx.x; i < n_bytes; i += 512) pleat__copy_16(to + offset + i, from + i);
    });
    pleat__copies_commit();
}
static __device__ __forceinline__ void wait_for_units(uint32_t, uint32_t) {
    pleat__copies_wait<0>();
    __syncwarp();
}

#endif

static __device__ __forceinline__ uint32_t plus_halves(uint32_t x, uint32_t y) {
    return fma_halves(x, power_halves(0), y);
}

/* Minimums and steps of units i and i + 1, i even. */
typedef struct unit_pair {
    uint32_t min, step;
} unit_pair;

/* Of COMPACT ones, as codec/units.c has them: 512 + 32 + z/2 is a half that is put together, and no product rounds. */
static __device__ __forceinline__ unit_pair expand_units(uint32_t two) {
    const uint32_t step = two >> 1 & 0x7FC07FC0u;
    const uint32_t half_z = plus_halves((two & 0x007F007Fu) ^ 0x60406040u, 0xE040E040u);
    return unit_pair{multiply_halves(half_z, step), step};
}

/* Units of keys are at a multiple of 4, those of values at a multiple of 2. */
template <bool WIDE_UNITS>
static __device__ __forceinline__ unit_pair key_units_at(uint32_t units, uint32_t n_units, uint32_t i) {
    const uint32_t two = load_4(units + 2 * i);
    return WIDE_UNITS ? unit_pair{two, load_4(units + 2 * (n_units + i))} : expand_units(two);
}
template <bool WIDE_UNITS> static __device__ __forceinline__ unit_pair value_units_at(uint32_t units, uint32_t i) {
    const uint32_t bit = units % 4 * 8 + 16 * i, two = load_bits(units & ~3u, bit);
    return WIDE_UNITS ? unit_pair{two, load_bits(units & ~3u, bit + 16 * T)} : expand_units(two);
}

/* The one unit of all keys. */
static __device__ __forceinline__ unit_pair unit_of_block(uint32_t units, bool is_wide) {
    const uint32_t word = load_4(units), twice = low_halves(word, word);
    return is_wide ? unit_pair{twice, high_halves(word, word)} : expand_units(twice);
}

#endif
