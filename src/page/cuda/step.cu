/* SPDX-License-Identifier: MIT
 *
 * step.cu: take, trim and step: pages.h's launchers for all lanes of a batch, one kernel for the three.
 *
 *     block 0            block 1                   block b
 *     look at lanes      look at lanes        ...
 *     sums of the block  sums of the block    ...
 *     ------------------- meet: every block reads the sums of all ----------------------
 *     commit             commit               ...   with offsets of its own; block 0 also advances the pool
 *
 * A block has a contiguous part of the lanes, mostly one lane a thread.  All blocks are resident together: there are at
 * most half as many as multiprocessors.  To meet, each writes its two sums with the launch's tag beside them, and two
 * warps poll what the others wrote: no counter to reset, no second launch, and an integer sum in a fixed order.  Each
 * block knows the total too, so all agree whether the plan fits before anything is changed.
 *
 * Two things are rare and cost further meetings:
 *
 *     shared pages come back   a page is freed by the last reference that is dropped, in the order of lanes.  Droppers
 *                              count down its shares, to -1 if it comes free, and note the highest rank; who has that
 *                              rank frees it.
 *     fewer free pages than    pages that this launch frees are taken again, so all of the ring is written before any
 *     are taken                of it is read
 *
 * Time: a launch is mostly latency: parameters and code that the processor has to fetch, two dependent reads, the
 * meeting, two more.  32,768 lanes on an H200 inside a graph: 3.4 us where nothing moves and 4.4 us where every lane
 * returns a page and takes one, of which an empty kernel is 0.8; 4.3 and 5.3 launched one by one.  CUB's scan of given
 * counts and a scatter are 5.2 and 12 to 15 us, copying the counts to the host, a loop there and copying ids back 120
 * us and more.  1024 threads a block took 7.5 us, one cluster of 16 blocks 14 us (few processors do all the work); 128
 * blocks of 256 are as good as this (2026-11-22).
 */
#include "hw/cuda/cuda.cuh"
#include "hw/cuda/warp.cuh"
#include "page/cuda/pages.cuh"

enum {
    THREADS = 512,
    N_WARPS = THREADS / 32,
    MAX_BLOCKS = 64,
    N_MEETINGS = 4, /* sums; shares are counted; freed pages; the ring is written */
};
static_assert(2 * MAX_BLOCKS * N_MEETINGS <= PLEAT__DEVICE_SYNC_TAG, "two words a block and meeting, and the tag");
static_assert(MAX_BLOCKS % 32 == 0 && MAX_BLOCKS <= THREADS, "a thread polls a block");

typedef struct step_args {
    pleat__device_pages pages;
    pleat__device_want want;
    uint32_t n_lanes;
    uint32_t n_chunks; /* of THREADS lanes, each block's */
    bool trims, takes;
} step_args;

/* Two sums over lanes: of pages taken and of references dropped. */
typedef struct sums {
    uint32_t take, drop;
} sums;

/* What one lane does. */
typedef struct lane_plan {
    uint32_t row;
    uint32_t n_found[2]; /* pages, [side] */
    uint32_t n_kept[2];
    uint32_t n_take[2];
    bool no_room;
} lane_plan;

/* The pool as the launch finds it; each thread has it in registers. */
typedef struct found {
    uint32_t n_pages, start, n_free;
    uint64_t n_shares;
    uint32_t tag;
} found;

typedef struct shared_state {
    uint32_t warp_take[N_WARPS], warp_drop[N_WARPS];
    sums met_before[MAX_BLOCKS / 32], met_all[MAX_BLOCKS / 32]; /* by polling warp */
    bool met_flag[MAX_BLOCKS / 32];
} shared_state;

/* ---- meeting --------------------------------------------------------------------------------------------- */

/* What the blocks know after a meeting. */
typedef struct meeting {
    sums before, all; /* of the blocks before this one, of all */
    bool flag;        /* did any raise it? */
} meeting;

static __device__ inline void put_words(uint64_t *at, uint64_t a, uint64_t b) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(a), "l"(b) : "memory");
}

static __device__ inline void get_words(const uint64_t *at, uint64_t *a, uint64_t *b) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(at) : "memory");
}

/* Poll block threadIdx.x's words until both bear the tag, and sum over the warp what they say. */
static __device__ inline void poll(shared_state *s, const uint64_t *words, uint32_t tag) {
    uint32_t take = 0, drop = 0;
    if (threadIdx.x < gridDim.x) {
        uint64_t a, b;
        do get_words(words + 2 * threadIdx.x, &a, &b);
        while ((uint32_t)(a >> 32) != tag || (uint32_t)(b >> 32) != tag);
        take = (uint32_t)a;
        drop = (uint32_t)b;
    }
    const bool flag = __any_sync(PLEAT__ALL_THREADS, take >> 31), is_before = threadIdx.x < blockIdx.x;
    take &= 0x7FFFFFFFu;
    const sums all = {__reduce_add_sync(PLEAT__ALL_THREADS, take), __reduce_add_sync(PLEAT__ALL_THREADS, drop)};
    const sums before = {__reduce_add_sync(PLEAT__ALL_THREADS, is_before ? take : 0),
                         __reduce_add_sync(PLEAT__ALL_THREADS, is_before ? drop : 0)};
    if (threadIdx.x % 32 == 0) {
        s->met_all[threadIdx.x / 32] = all;
        s->met_before[threadIdx.x / 32] = before;
        s->met_flag[threadIdx.x / 32] = flag;
    }
}

/* Meet the `nth` time in this launch.  `ordered`: what blocks wrote before they all see after; the first meeting,
 * before which nothing is written, does without.  mine.take < 2^31. */
static __device__ inline meeting meet(const step_args *a, shared_state *s, uint32_t tag, uint32_t nth, sums mine,
                                      bool flag, bool ordered) {
    uint64_t *words = a->pages.sync + 2 * MAX_BLOCKS * nth;
    if (ordered) {
        __threadfence();
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const uint64_t high = (uint64_t)tag << 32;
        put_words(words + 2 * blockIdx.x, high | mine.take | (flag ? 1u << 31 : 0), high | mine.drop);
    }
    if (threadIdx.x < MAX_BLOCKS) poll(s, words, tag);
    if (ordered) __threadfence();
    __syncthreads();
    meeting m = {{0, 0}, {0, 0}, false};
    for (uint32_t i = 0; i < MAX_BLOCKS / 32; i++) {
        m.before.take += s->met_before[i].take;
        m.before.drop += s->met_before[i].drop;
        m.all.take += s->met_all[i].take;
        m.all.drop += s->met_all[i].drop;
        m.flag |= s->met_flag[i];
    }
    return m;
}

/* ---- a block's lanes ----------------------------------------------------------------------------------------- */

/* What is rare stands out of the way: a launch fetches its code anew, and waits for it. */
#define RARELY(cond) __builtin_expect((cond), 0)

/* Pages of a side that are kept. */
static __device__ inline uint32_t keep_of(uint32_t n_found, uint32_t n_slots, uint32_t tokens) {
#pragma unroll 1
    for (uint32_t n_have = n_found * tokens; n_have >= n_slots + tokens; n_have -= tokens) n_found--;
    return n_found;
}

/* Pages that a side with n_kept is short of to hold n_after slots. */
static __device__ inline uint32_t need_of(uint32_t n_kept, uint32_t n_after, uint32_t tokens) {
    uint32_t n = 0;
#pragma unroll 1
    for (uint32_t n_have = n_kept * tokens; n_have < n_after; n_have += tokens) n++;
    return n;
}

/* Slots are below 2^31, as plan.c has it. */
static __device__ inline lane_plan look(const step_args *a, uint32_t lane) {
    const pleat__device_pages *p = &a->pages;
    const uint32_t item = lane / p->rows_per_seq, seq_idx = p->seq_idxs[item];
    const uint32_t row = seq_idx * p->rows_per_seq + (lane - item * p->rows_per_seq);
    const uint32_t *tokens = p->page_tokens;
    const uint32_t n_slots[2] = {p->n_slots[0][row], p->n_slots[1][row]};
    lane_plan l = {row, {p->n_pages[0][row], p->n_pages[1][row]}, {0, 0}, {0, 0}, false};
    uint32_t n_new[2] = {a->want.n_new[0], a->want.n_new[1]};
    if (a->takes && a->want.fill_hole && n_new[0] > 0) n_new[0] -= p->hole[row] != 0;
    if (a->takes && !pleat__device_wants_low(&a->want, seq_idx)) n_new[1] = 0;
    for (int side = 0; side < 2; side++) {
        l.n_kept[side] = a->trims ? keep_of(l.n_found[side], n_slots[side], tokens[side]) : l.n_found[side];
        if (a->takes) l.n_take[side] = need_of(l.n_kept[side], n_slots[side] + n_new[side], tokens[side]);
    }
    const uint64_t n_after = (uint64_t)l.n_kept[0] + l.n_kept[1] + l.n_take[0] + l.n_take[1];
    l.no_room = (l.n_take[0] | l.n_take[1]) > 0 && n_after > p->row_len;
    if (l.no_room) l.n_take[0] = l.n_take[1] = 0;
    return l;
}

static __device__ inline uint32_t n_dropped(const lane_plan *l, int side) { return l->n_found[side] - l->n_kept[side]; }

/* Exclusive prefix over a warp of high + low, and the warp's sum.  Mostly 0 or 1 each. */
static __device__ inline uint32_t warp_prefix(uint32_t high, uint32_t low, uint32_t *sum) {
    if (!RARELY(__any_sync(PLEAT__ALL_THREADS, (high | low) > 1))) {
        const uint32_t before = (1u << (threadIdx.x % 32)) - 1;
        const uint32_t highs = __ballot_sync(PLEAT__ALL_THREADS, high), lows = __ballot_sync(PLEAT__ALL_THREADS, low);
        *sum = __popc(highs) + __popc(lows);
        return __popc(highs & before) + __popc(lows & before);
    }
    const uint32_t inclusive = pleat__warp_prefix(high + low);
    *sum = __shfl_sync(PLEAT__ALL_THREADS, inclusive, 31);
    return inclusive - high - low;
}

/* Exclusive prefixes over the block, of what is taken and of what is dropped.  A barrier must be between two calls. */
static __device__ inline sums block_prefix(shared_state *s, const uint32_t take[2], const uint32_t drop[2], sums *all) {
    const uint32_t warp = threadIdx.x / 32, i = threadIdx.x % 32;
    uint32_t takes, drops;
    sums before = {warp_prefix(take[0], take[1], &takes), warp_prefix(drop[0], drop[1], &drops)};
    if (i == 0) {
        s->warp_take[warp] = takes;
        s->warp_drop[warp] = drops;
    }
    __syncthreads();
    takes = i < N_WARPS ? s->warp_take[i] : 0;
    drops = i < N_WARPS ? s->warp_drop[i] : 0;
    *all = sums{__reduce_add_sync(PLEAT__ALL_THREADS, takes), __reduce_add_sync(PLEAT__ALL_THREADS, drops)};
    before.take += __reduce_add_sync(PLEAT__ALL_THREADS, i < warp ? takes : 0);
    before.drop += __reduce_add_sync(PLEAT__ALL_THREADS, i < warp ? drops : 0);
    return before;
}

/* Lane of a chunk that is this thread's. */
static __device__ inline uint32_t lane_of(const step_args *a, uint32_t chunk) {
    return (blockIdx.x * a->n_chunks + chunk) * THREADS + threadIdx.x;
}

/* A chunk's lane and its prefixes in the block, after those of the chunks before. */
static __device__ inline sums look_at_chunk(const step_args *a, shared_state *s, uint32_t chunk, lane_plan *l,
                                            sums *running) {
    const uint32_t lane = lane_of(a, chunk);
    *l = lane < a->n_lanes ? look(a, lane) : lane_plan{};
    const uint32_t drop[2] = {n_dropped(l, 0), n_dropped(l, 1)};
    if (chunk > 0) __syncthreads();
    sums all, before = block_prefix(s, l->n_take, drop, &all);
    before.take += running->take;
    before.drop += running->drop;
    running->take += all.take;
    running->drop += all.drop;
    return before;
}

/* ---- commit ------------------------------------------------------------------------------------------------- */

static __device__ inline uint32_t ring_cell(const found *f, uint32_t offset) {
    const uint32_t cell = f->start + offset;
    return cell < f->n_pages ? cell : cell - f->n_pages;
}

/* Append what the lane takes, from the free page `offset` after start on. */
static __device__ inline void append(const step_args *a, const found *f, const lane_plan *l, uint32_t offset) {
    const pleat__device_pages *p = &a->pages;
    for (int side = 0; side < 2; side++) {
#pragma unroll 1
        for (uint32_t i = 0; i < l->n_take[side]; i++)
            *pleat__device_cell(p, l->row, side, l->n_kept[side] + i) = __ldcg(&p->ring[ring_cell(f, offset++)]);
        if (l->n_take[side] > 0) p->n_pages[side][l->row] = l->n_kept[side] + l->n_take[side];
    }
}

/* Put back what the lane drops, no page of which is shared, from the cell `offset` after end on. */
static __device__ inline void return_pages(const step_args *a, const found *f, const lane_plan *l, uint32_t offset) {
    const pleat__device_pages *p = &a->pages;
    offset += f->n_free;
    for (int side = 0; side < 2; side++) {
#pragma unroll 1
        for (uint32_t i = l->n_found[side]; i-- > l->n_kept[side];)
            p->ring[ring_cell(f, offset++)] = *pleat__device_cell(p, l->row, side, i);
        if (n_dropped(l, side) > 0) p->n_pages[side][l->row] = l->n_kept[side];
    }
}

/* Where pages are shared.  First each dropped reference is counted, ... */
static __device__ inline void count_drops(const step_args *a, const lane_plan *l, uint32_t rank) {
    const pleat__device_pages *p = &a->pages;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = l->n_found[side]; i-- > l->n_kept[side];) {
            const uint32_t id = *pleat__device_cell(p, l->row, side, i);
            atomicSub(&p->shares[id], 1);
            atomicMax(&p->drops[id], ++rank);
        }
    }
}

/* ... then the last one's lane knows whether it frees its page, ... */
static __device__ inline uint32_t count_freed(const step_args *a, const lane_plan *l, uint32_t rank) {
    const pleat__device_pages *p = &a->pages;
    uint32_t n_freed = 0;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = l->n_found[side]; i-- > l->n_kept[side];) {
            const uint32_t id = *pleat__device_cell(p, l->row, side, i);
            n_freed += __ldcg(&p->drops[id]) == ++rank && __ldcg(&p->shares[id]) == UINT32_MAX;
        }
    }
    return n_freed;
}

/* ... and frees it.  The counts are as they were between calls. */
static __device__ inline void return_shared(const step_args *a, const found *f, const lane_plan *l, uint32_t rank,
                                            uint32_t offset) {
    const pleat__device_pages *p = &a->pages;
    offset += f->n_free;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = l->n_found[side]; i-- > l->n_kept[side];) {
            const uint32_t id = *pleat__device_cell(p, l->row, side, i);
            if (__ldcg(&p->drops[id]) != ++rank) continue;
            p->drops[id] = 0;
            if (__ldcg(&p->shares[id]) != UINT32_MAX) continue;
            p->shares[id] = 0;
            p->ring[ring_cell(f, offset++)] = id;
        }
        if (n_dropped(l, side) > 0) p->n_pages[side][l->row] = l->n_kept[side];
    }
}

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

/* What is freed, in pages, when some page of the pool is shared: all passes over the lanes. */
static __device__ inline uint32_t trim_shared(const step_args *a, const found *f, shared_state *s, sums before_block) {
    const uint32_t none[2] = {0, 0};
    lane_plan l;
    sums running = before_block, all;
    for (uint32_t chunk = 0; chunk < a->n_chunks; chunk++) {
        const uint32_t rank = look_at_chunk(a, s, chunk, &l, &running).drop;
        count_drops(a, &l, rank);
    }
    (void)meet(a, s, f->tag, 1, sums{0, 0}, false, true);
    uint32_t n_block = 0;
    running = before_block;
    for (uint32_t chunk = 0; chunk < a->n_chunks; chunk++) {
        const uint32_t rank = look_at_chunk(a, s, chunk, &l, &running).drop;
        const uint32_t n_freed[2] = {count_freed(a, &l, rank), 0};
        __syncthreads();
        (void)block_prefix(s, none, n_freed, &all);
        n_block += all.drop;
    }
    const meeting m = meet(a, s, f->tag, 2, sums{0, n_block}, false, true);
    uint32_t offset = m.before.drop;
    running = before_block;
    for (uint32_t chunk = 0; chunk < a->n_chunks; chunk++) {
        const uint32_t rank = look_at_chunk(a, s, chunk, &l, &running).drop;
        const uint32_t n_freed[2] = {count_freed(a, &l, rank), 0};
        __syncthreads();
        const uint32_t mine = block_prefix(s, none, n_freed, &all).drop;
        return_shared(a, f, &l, rank, offset + mine);
        offset += all.drop;
    }
    __syncthreads(); /* the next look's */
    return m.all.drop;
}

static __device__ inline found find_pool(const pleat__device_pages *p) {
    return found{p->pool->n_pages, p->pool->start, p->pool->n_free, p->pool->n_shares,
                 (uint32_t)p->sync[PLEAT__DEVICE_SYNC_TAG]};
}

/* Never; but to ask is to have read all of it, which must be before block 0 changes it: before this block meets. */
static __device__ inline bool is_broken(const found *f) {
    return f->start >= f->n_pages || f->n_free > f->n_pages || f->n_shares > UINT32_MAX || f->tag == 0;
}

/* The pool after the launch; by one thread. */
static __device__ inline void advance(const step_args *a, const found *f, uint32_t n_taken, uint32_t n_dropped,
                                      uint32_t n_freed, bool refused) {
    pleat__device_pool *pool = a->pages.pool;
    const uint32_t n_free = f->n_free + n_freed - n_taken;
    pool->start = ring_cell(f, n_taken);
    pool->n_free = n_free;
    if (f->n_pages - n_free > pool->n_peak) pool->n_peak = f->n_pages - n_free;
    pool->n_shares = f->n_shares - (n_dropped - n_freed);
    if (a->takes) pool->refused = refused;
    if (refused) pool->n_refused++;
    a->pages.sync[PLEAT__DEVICE_SYNC_TAG] = f->tag == UINT32_MAX ? 1 : f->tag + 1;
}

static __device__ inline bool is_refused(const step_args *a, const found *f, const meeting *m, uint32_t n_freed) {
    return a->takes && (m->flag || m->all.take > f->n_free + n_freed);
}

/* Commit where it is not one simple pass over one chunk: the lanes are looked at again. */
static __device__ __noinline__ void commit_slowly(const step_args *a, shared_state *s, found f, meeting m) {
    const bool is_shared = f.n_shares > 0 && m.all.drop > 0;
    const uint32_t n_freed = is_shared ? trim_shared(a, &f, s, m.before) : m.all.drop;
    const bool refused = is_refused(a, &f, &m, n_freed);
    const uint32_t n_taken = refused ? 0 : m.all.take;
    const bool recycles = n_taken > f.n_free;
#pragma unroll 1
    for (int pass = recycles ? 0 : 1; pass < 2; pass++) {
        const bool gives = !is_shared && (pass == 0 || !recycles);
        sums running = m.before;
        for (uint32_t chunk = 0; chunk < a->n_chunks; chunk++) {
            lane_plan l;
            const sums at = look_at_chunk(a, s, chunk, &l, &running);
            if (gives) return_pages(a, &f, &l, at.drop);
            if (pass == 1 && !refused) append(a, &f, &l, at.take);
        }
        if (pass == 0) (void)meet(a, s, f.tag, 3, sums{0, 0}, false, true);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) advance(a, &f, n_taken, m.all.drop, n_freed, refused);
}

/* kIsOne: a block has one chunk, so a thread one lane. */
template <bool kIsOne>
static __global__ void __launch_bounds__(THREADS) step_kernel(const __grid_constant__ step_args a) {
    __shared__ shared_state s;
    const found f = find_pool(&a.pages);
    sums before, running = {0, 0};
    lane_plan l;
    bool no_room = false;
    for (uint32_t chunk = 0; chunk < (kIsOne ? 1 : a.n_chunks); chunk++) {
        before = look_at_chunk(&a, &s, chunk, &l, &running);
        no_room |= l.no_room;
    }
    no_room = __syncthreads_or(no_room | is_broken(&f)) != 0;
    const meeting m = meet(&a, &s, f.tag, 0, running, no_room, false);
    const bool refused = is_refused(&a, &f, &m, m.all.drop);
    const uint32_t n_taken = refused ? 0 : m.all.take;
    if (!kIsOne || RARELY((f.n_shares > 0 && m.all.drop > 0) || n_taken > f.n_free)) {
        commit_slowly(&a, &s, f, m);
        return;
    }
    return_pages(&a, &f, &l, m.before.drop + before.drop);
    if (!refused) append(&a, &f, &l, m.before.take + before.take);
    if (blockIdx.x == 0 && threadIdx.x == 0) advance(&a, &f, n_taken, m.all.drop, m.all.drop, refused);
}

/* ---- launchers ------------------------------------------------------------------------------------------------ */

/* All blocks of two such launches fit on the device at once. */
static pleat_status max_blocks(uint32_t *n, pleat_error *err) {
    int device, n_processors;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "asking which GPU", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device),
                   "asking for the GPU's size", err);
    *n = n_processors / 2 < 1 ? 1 : (uint32_t)n_processors / 2;
    if (*n > MAX_BLOCKS) *n = MAX_BLOCKS;
    return PLEAT_OK;
}

static pleat_status launch(step_args *a, const char *what, pleat__device_stream stream, pleat_error *err) {
    const pleat__device_pages *p = &a->pages;
    PLEAT_FAIL_IF(p->page_tokens[0] == 0 || p->page_tokens[1] == 0 || p->rows_per_seq == 0, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "%s: a page of no tokens, or a sequence of no rows", what);
    a->n_lanes = p->n_seqs * p->rows_per_seq;
    if (a->n_lanes == 0) return PLEAT_OK;
    uint32_t n_max;
    PLEAT_TRY(max_blocks(&n_max, err));
    const uint32_t n_chunks = (a->n_lanes + THREADS - 1) / THREADS;
    a->n_chunks = (n_chunks + n_max - 1) / n_max;
    const uint32_t n_blocks = (n_chunks + a->n_chunks - 1) / a->n_chunks;
    if (a->n_chunks == 1)
        step_kernel<true><<<n_blocks, THREADS, 0, pleat__cuda_stream(stream)>>>(*a);
    else
        step_kernel<false><<<n_blocks, THREADS, 0, pleat__cuda_stream(stream)>>>(*a);
    return PLEAT_CUDA_LAUNCHED(what, err);
}

pleat_status pleat__device_take(const pleat__device_pages *p, const pleat__device_want *want,
                                pleat__device_stream stream, pleat_error *err) {
    step_args a = {};
    a.pages = *p;
    a.want = *want;
    a.takes = true;
    return launch(&a, "taking pages", stream, err);
}

pleat_status pleat__device_trim(const pleat__device_pages *p, pleat__device_stream stream, pleat_error *err) {
    step_args a = {};
    a.pages = *p;
    a.trims = true;
    return launch(&a, "returning pages", stream, err);
}

pleat_status pleat__device_step(const pleat__device_pages *p, const pleat__device_want *want,
                                pleat__device_stream stream, pleat_error *err) {
    step_args a = {};
    a.pages = *p;
    a.want = *want;
    a.trims = a.takes = true;
    return launch(&a, "returning and taking pages", stream, err);
}
