/* SPDX-License-Identifier: MIT
 *
 * words.cuh: one warp decodes one stream of words.h: each thread has one of its 32 stream lanes.
 *
 *     global memory ── cp.async, 512 bytes at a time ──> ring in shared memory ── 32 bits ──> a thread's 64 bits
 *     64 bits ── next bits ── table ──> entry: a word's length and its codes
 *
 * Threads take their bits in turn, so a thread's place is what was taken before.  Those of the group at hand are a
 * ballot, of which threads below count; those of the group before count for threads from this on.  So a thread's place
 * moves on by the ones of one number, put together of two ballots:
 *
 *     place += 4 * popc(ballot & below  |  ballot of the group before & ~below)
 *
 * The table has a copy for every thread, free of bank conflicts: an entry is 128 bytes, so bits index it from bit 7 on.
 *
 *     ring      | segment | segment | segment | the first MARGIN bytes of the first, again |
 *
 * Places move through the ring from the left; the next segment is loaded, and the one after it waited for, MARGIN bytes
 * early: pleat__ring_check(), at the latest every second group.  Nothing that a stream says moves a place out of the
 * ring.  A group of 4 symbols is about 24 instructions.
 */
#ifndef PLEAT_ENTROPY_CUDA_WORDS_CUH
#define PLEAT_ENTROPY_CUDA_WORDS_CUH

#include "hw/cuda/copy.cuh"
#include "hw/cuda/cuda.cuh"
#include "hw/cuda/warp.cuh"

#define PLEAT__RING_SEGMENT 512u
#define PLEAT__RING_SEGMENTS 3u
#define PLEAT__RING_END (PLEAT__RING_SEGMENT * PLEAT__RING_SEGMENTS)
/* Most that is taken from one check to the next, 2 * 128 bytes, and by the threads above the lowest in the group
 * before. */
#define PLEAT__RING_MARGIN 384u
#define PLEAT__RING_BYTES (PLEAT__RING_END + PLEAT__RING_MARGIN)

/* What is read behind streams: segments are copied before it is known whether they are needed. */
#define PLEAT__RING_BEHIND (3 * PLEAT__RING_SEGMENT)

#define PLEAT__ENTRY_SHIFT 7u

/* The same in all threads, but for `copy`, `below`, `from` and what a group changes. */
typedef struct pleat__warp_words {
    uint32_t low, high;  /* 64 bits */
    uint32_t used;       /* of them, in bits 0..5; others are dust */
    uint32_t place;      /* address in shared memory of what the thread takes, were it to take */
    uint32_t took;       /* ballot of the group before */
    uint32_t limit;      /* where pleat__ring_check() has something to do */
    uint32_t phase;      /* what: 0..2 segments to wait for and to copy, 3 back to the ring's beginning */
    uint32_t from;       /* this thread's part of the next segment, in 16 bytes */
    uint32_t below;      /* threads below this one */
    uint32_t copy;       /* 4 * thread: its word of a table's entry */
    uint32_t mask;       /* of what indexes the table */
    uint32_t table;      /* address in shared memory */
    uint32_t one;        /* 1, but the compiler does not know */
    const uint8_t *base; /* what streams are in, aligned to 128 */
} pleat__warp_words;

/* A condition that is the same in all threads, so that the compiler knows it: around branches that it thinks threads
 * may part at, every ballot costs two instructions more. */
static __device__ __forceinline__ bool pleat__warp_all(bool condition) {
    return __all_sync(PLEAT__ALL_THREADS, condition);
}

static __device__ __forceinline__ bool pleat__warp_any(bool condition) {
    return __any_sync(PLEAT__ALL_THREADS, condition);
}

static __device__ __forceinline__ uint32_t pleat__load_shared(uint32_t at) {
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    return word;
}

/* ---- the ring ------------------------------------------------------------------------------------------ */

/* Copy the next segment to a slot of the ring. */
static __device__ __forceinline__ void pleat__ring_load(pleat__warp_words *s, uint32_t slot, bool is_first) {
    const uint8_t *from = s->base + (uint64_t)s->from * 16;
    pleat__copy_16(slot + 4 * s->copy, from);
    if (is_first && 4 * s->copy < PLEAT__RING_MARGIN) pleat__copy_16(slot + 4 * s->copy + PLEAT__RING_END, from);
    s->from += PLEAT__RING_SEGMENT / 16;
}

/* What has been copied is there for the whole warp. */
static __device__ __forceinline__ void pleat__ring_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
}

/* Limits of the phases are MARGIN before the ends of segments, and the ring's end.  A segment is copied to the slot
 * that was left when the one at hand was begun. */
static __device__ __forceinline__ void pleat__ring_turn(pleat__warp_words *s) {
    if (s->phase == 3) {
        s->place -= PLEAT__RING_END;
        s->limit -= PLEAT__RING_END - PLEAT__RING_SEGMENT + PLEAT__RING_MARGIN;
        s->phase = 0;
        return;
    }
    pleat__ring_wait();
    const uint32_t end = s->limit + PLEAT__RING_MARGIN;
    pleat__ring_load(s, s->phase == 0 ? end + PLEAT__RING_SEGMENT : end - 2 * PLEAT__RING_SEGMENT, s->phase == 1);
    s->limit += s->phase == 2 ? PLEAT__RING_MARGIN : PLEAT__RING_SEGMENT;
    s->phase++;
}

/* At the latest after every second group. */
static __device__ __forceinline__ void pleat__ring_check(pleat__warp_words *s) {
    while (pleat__warp_all(s->place >= s->limit)) pleat__ring_turn(s);
}

/* ---- streams --------------------------------------------------------------------------------------------- */

/* Set up what stays the same for all streams of a warp.  Shuffled, so that the compiler keeps what it would else ask
 * the hardware for again in every group. */
static __device__ __forceinline__ void pleat__warp_words_init(pleat__warp_words *s, const uint32_t *table,
                                                              uint32_t max_bits, uint32_t one, const uint8_t *base) {
    const uint32_t thread = threadIdx.x % 32;
    s->one = one;
    s->below = __shfl_sync(PLEAT__ALL_THREADS, (1u << thread) - 1, thread);
    s->copy = __shfl_sync(PLEAT__ALL_THREADS, 4 * thread, thread);
    s->mask = ((1u << max_bits) - 1) << PLEAT__ENTRY_SHIFT;
    s->table = pleat__shared_address(table);
    s->base = base;
}

/* Have the first segments of streams, one behind the other from base + at on, a multiple of 4, copied to the warp's
 * ring: pleat__ring_wait() before the first one starts.  Up to PLEAT__RING_BEHIND bytes are read behind them. */
static __device__ __forceinline__ void pleat__warp_words_begin(pleat__warp_words *s, uint64_t at, uint32_t ring) {
    const uint32_t skip = (uint32_t)at % 128; /* whole lines */
    s->from = (uint32_t)(at / 128 * 8) + s->copy / 4;
    s->place = ring + skip;
    s->limit = ring + PLEAT__RING_SEGMENT - PLEAT__RING_MARGIN;
    s->phase = 0;
    pleat__ring_load(s, ring, true);
    pleat__ring_load(s, ring + PLEAT__RING_SEGMENT, false);
}

/* The next stream: take each thread's first 64 bits.  What threads took after the last group of the stream before was
 * of this one, and does not count: it begins at the lowest thread's place. */
static __device__ __forceinline__ void pleat__warp_words_start(pleat__warp_words *s) {
    s->place = __shfl_sync(PLEAT__ALL_THREADS, s->place, 0);
    pleat__ring_check(s);
    s->low = pleat__load_shared(s->place + s->copy);
    s->high = pleat__load_shared(s->place + 128 + s->copy);
    s->place += 256;
    s->used = 0;
    s->took = 0;
    pleat__ring_check(s);
}

/* The entry for the bits from bit 7 of `bits` on. */
static __device__ __forceinline__ uint32_t pleat__table_entry(const pleat__warp_words *s, uint32_t bits) {
    uint32_t at;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(at) : "r"(bits), "r"(s->mask), "r"(s->copy)); /* a & b | c */
    return pleat__load_shared(at + s->table);
}

/* Threads that have used 32 bits take 32 more.  In assembly, so that one predicate serves the ballot and what follows;
 * and with multiplications by one, since the pipe for logic and sums is the busiest of all, and that for products has
 * time. */
static __device__ __forceinline__ void pleat__take_bits(pleat__warp_words *s) {
    uint32_t took;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .b32 n;\n"
                 "and.b32 n, %3, 32;\n"
                 "setp.ne.u32 p, n, 0;\n"
                 "vote.sync.ballot.b32 %4, p, -1;\n"
                 "lop3.b32 n, %4, %5, %6, 0xE2;\n" /* a & b | c & ~b */
                 "popc.b32 n, n;\n"
                 "mad.lo.u32 %0, n, 4, %0;\n"
                 "@p mul.lo.u32 %1, %2, %7;\n"
                 "@p ld.shared.u32 %2, [%0];\n"
                 "@p mad.lo.u32 %3, %7, -32, %3;\n"
                 "}"
                 : "+r"(s->place), "+r"(s->low), "+r"(s->high), "+r"(s->used), "=&r"(took)
                 : "r"(s->below), "r"(s->took), "r"(s->one));
    s->took = took;
}

/* The next group of every thread, as its table's entries.  Shifts are by their lowest 5 bits, so entries, with the
 * lengths there, are shifted by and added up as they are.  Three words are at most 24 bits, which fit above bit 7. */
static __device__ __forceinline__ void pleat__warp_group_4(pleat__warp_words *s, uint32_t *entries) {
    const uint32_t bits = __funnelshift_r(s->low, s->high, s->used);
    uint32_t window = bits << PLEAT__ENTRY_SHIFT;
    entries[0] = pleat__table_entry(s, window);
    window = __funnelshift_r(window, 0, entries[0]);
    entries[1] = pleat__table_entry(s, window);
    window = __funnelshift_r(window, 0, entries[1]);
    entries[2] = pleat__table_entry(s, window);
    const uint32_t three = entries[0] + entries[1] + entries[2];
    entries[3] = pleat__table_entry(s, __funnelshift_r(bits, 0, three) << PLEAT__ENTRY_SHIFT);
    s->used += three + entries[3];
    pleat__take_bits(s);
}

static __device__ __forceinline__ void pleat__warp_group_2(pleat__warp_words *s, uint32_t *entries) {
    const uint32_t window = __funnelshift_r(s->low, s->high, s->used) << PLEAT__ENTRY_SHIFT;
    entries[0] = pleat__table_entry(s, window);
    entries[1] = pleat__table_entry(s, __funnelshift_r(window, 0, entries[0]));
    s->used += entries[0] + entries[1];
    pleat__take_bits(s);
}

#endif
