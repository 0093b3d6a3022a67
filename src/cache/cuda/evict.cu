/* SPDX-License-Identifier: MIT
 *
 * evict.cu: lanes that keep a budget of tokens: policy/evict.h's decisions, by positions or by scores, and
 * reclaim/reclaim.h's slots.  Who stays and in which slots is the CPU's: by scores, where these are, which have other
 * last bits.
 *
 *     rank     by scores: a thread for each token of a prompt's layer
 *     share    adakv: a block for the layer finds what each lane keeps
 *     keep     a block for each KV head of a prompt's layer: the last rank that stays is found by halving, as select.c
 *              does; then the lane's slots are written to `order`, for place
 *     evict    after a step, a warp for each lane, or eight where lanes are few: the token of the least rank dies, if
 *              the lane holds more than its budget
 *     close    for reclaim=copy, a warp for each lane: the tokens behind the dead slot move down by one
 *
 * close moves whole tiles through shared memory.  It needs no fresh pages, where the CPU copies a lane into such: the
 * slots that it leaves are the same.
 */
#include "cache/cuda/lanes.cuh"

/* ---- ranks ------------------------------------------------------------------------------------------- */

static __device__ inline uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

/* What random.c seeds a lane with. */
static __device__ inline uint32_t seed_of(uint32_t layer, uint32_t head) {
    return mix(layer << 16 ^ head ^ 0x9E3779B9u);
}

#define POSITION_BITS 24 /* of positions, and of ranks that are made of them */
#define SCORE_BITS 31    /* of scores, which have the order of their bits */

static __device__ inline uint32_t rank_of(const pleat__device_policy &p, uint32_t seed, uint32_t position) {
    return p.ranks == PLEAT__DEVICE_RANKS_HASH ? mix(seed ^ position) >> 8 : position;
}

/* pleat__rank_received(). */
static __device__ inline float counted(float score) { return score > 0 && score < INFINITY ? score : 0.0f; }

#define RANK_THREADS 256

/* What the token at `position` received; 0 where snapkv.c pads. */
static __device__ inline float received_at(const float *received, uint32_t position, uint32_t end) {
    return position < end ? counted(received[position]) : 0.0f;
}

/* Of the prompt's tokens; those in the window are no candidates. */
static __global__ void __launch_bounds__(RANK_THREADS)
    rank_tokens(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    const uint32_t i = blockIdx.x * RANK_THREADS + threadIdx.x, head = blockIdx.y;
    const uint32_t end = p.n_tokens > l.policy.window ? p.n_tokens - l.policy.window : 0;
    if (i >= end) return;
    const float *received = p.received + (uint64_t)head * p.n_tokens;
    float rank = counted(received[i]);
    if (l.policy.is_pooled) {
        float sum = i >= 2 ? counted(received[i - 2]) : 0.0f; /* in this order: snapkv.c's pool() */
        sum += i >= 1 ? counted(received[i - 1]) : 0.0f;
        sum += rank;
        sum += received_at(received, i + 1, end);
        rank = sum + received_at(received, i + 2, end);
    }
    l.ranks[(uint64_t)head * l.max_tokens + i] = __float_as_uint(rank);
}

/* ---- a block's counts ---------------------------------------------------------------------------------- */

#define KEEP_WARPS 32
#define KEEP_THREADS (KEEP_WARPS * 32)

static __device__ inline uint32_t block_sum(uint32_t mine, uint32_t sums[KEEP_WARPS]) {
    mine = __reduce_add_sync(PLEAT__ALL_THREADS, mine);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
    __syncthreads();
    const uint32_t all = __reduce_add_sync(PLEAT__ALL_THREADS, sums[threadIdx.x % 32]);
    __syncthreads();
    return all;
}

/* How many threads before this one say so; *all: how many of the block. */
static __device__ inline uint32_t block_rank(bool is, uint32_t sums[KEEP_WARPS], uint32_t *all) {
    const uint32_t thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t which = __ballot_sync(PLEAT__ALL_THREADS, is);
    if (thread == 0) sums[warp] = __popc(which);
    __syncthreads();
    const uint32_t n = sums[thread], before = __reduce_add_sync(PLEAT__ALL_THREADS, thread < warp ? n : 0);
    *all = __reduce_add_sync(PLEAT__ALL_THREADS, n);
    __syncthreads();
    return before + __popc(which & ((1u << thread) - 1));
}

/* ---- who stays of a prompt ----------------------------------------------------------------------------- */

/* Candidates are at begin <= position < end.  Of these stay those above the rank, and of those at it the ones before
 * the position. */
typedef struct cut {
    uint32_t begin, end, seed, rank, position;
    const uint32_t *ranks; /* by position; NULL: they are made of it */
} cut;

static __device__ inline uint32_t rank_at(const pleat__device_policy &p, const cut &c, uint32_t i) {
    return c.ranks ? c.ranks[i] : rank_of(p, c.seed, i);
}

static __device__ inline bool stays(const pleat__device_policy &p, const cut &c, uint32_t i) {
    if (i < c.begin || i >= c.end) return true;
    const uint32_t rank = rank_at(p, c, i);
    return rank > c.rank || (rank == c.rank && i < c.position);
}

/* Candidates whose rank is `least` or more. */
static __device__ inline uint32_t count_reach(const pleat__device_policy &p, const cut &c, uint32_t least,
                                              uint32_t sums[KEEP_WARPS]) {
    uint32_t n = 0;
    for (uint32_t i = c.begin + threadIdx.x; i < c.end; i += KEEP_THREADS) n += rank_at(p, c, i) >= least;
    return block_sum(n, sums);
}

/* Candidates before `end` at the cut's rank. */
static __device__ inline uint32_t count_at(const pleat__device_policy &p, const cut &c, uint32_t end,
                                           uint32_t sums[KEEP_WARPS]) {
    uint32_t n = 0;
    for (uint32_t i = c.begin + threadIdx.x; i < min(end, c.end); i += KEEP_THREADS) n += rank_at(p, c, i) == c.rank;
    return block_sum(n, sums);
}

/* The cut that leaves n > 0 of the candidates, which are more: of equals the older. */
static __device__ inline void cut_off(const pleat__device_policy &p, uint32_t n, cut *c, uint32_t sums[KEEP_WARPS]) {
    for (uint32_t bit = 1u << ((c->ranks ? SCORE_BITS : POSITION_BITS) - 1); bit > 0; bit /= 2)
        if (count_reach(p, *c, c->rank | bit, sums) >= n) c->rank |= bit;
    const uint32_t n_equal = n - count_reach(p, *c, c->rank + 1, sums);
    if (count_at(p, *c, c->end, sums) == n_equal) return;
    uint32_t last = 0; /* position of the last that stays */
    for (uint32_t bit = 1u << (POSITION_BITS - 1); bit > 0; bit /= 2)
        if (count_at(p, *c, last | bit, sums) < n_equal) last |= bit;
    c->position = last + 1;
}

/* Of a prompt of n tokens. */
static __device__ inline cut find_cut(const pleat__device_policy &p, uint32_t seed, const uint32_t *ranks, uint32_t n,
                                      uint32_t budget, uint32_t sums[KEEP_WARPS]) {
    cut c = {p.sinks, n > p.window ? n - p.window : 0, seed, 0, UINT32_MAX, ranks};
    if (n <= budget) return c;
    const uint32_t middle = budget - p.sinks - p.window;
    if (middle == 0)
        c.rank = UINT32_MAX;
    else if (p.ranks == PLEAT__DEVICE_RANKS_POSITION)
        c.rank = c.end - middle;
    else
        cut_off(p, middle, &c, sums);
    return c;
}

/* ---- who stays of a layer ------------------------------------------------------------------------------ */

/* Candidates of the lane that rank as `least` or better, or those that it is sure of where these are more. */
static __device__ inline uint32_t taken(const pleat__device_lanes &l, cut c, uint32_t head, uint32_t sure,
                                        uint32_t least, uint32_t sums[KEEP_WARPS]) {
    c.ranks = l.ranks + (uint64_t)head * l.max_tokens;
    return max(count_reach(l.policy, c, least, sums), sure);
}

/* adakv.c's pleat__share_layer() for a prompt: tokens that each lane keeps go to l.shares.  One block. */
static __global__ void __launch_bounds__(KEEP_THREADS)
    share_layer(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    __shared__ uint32_t sums[KEEP_WARPS];
    const uint32_t n = p.n_tokens, n_protected = l.policy.sinks + l.policy.window;
    if (n <= p.budget) {
        for (uint32_t head = threadIdx.x; head < l.n_kv_heads; head += KEEP_THREADS) l.shares[head] = n;
        return;
    }
    const cut c = {l.policy.sinks, n - l.policy.window, 0, 0, UINT32_MAX, l.ranks};
    const uint32_t middle = p.budget - n_protected, sure = middle / PLEAT__DEVICE_SURE_PARTS;
    const uint64_t total = (uint64_t)middle * l.n_kv_heads;
    uint32_t least = 0;
    for (uint32_t bit = 1u << (SCORE_BITS - 1); bit > 0; bit /= 2) {
        uint64_t all = 0;
        for (uint32_t head = 0; head < l.n_kv_heads; head++) all += taken(l, c, head, sure, least | bit, sums);
        if (all >= total) least |= bit;
    }
    uint64_t left = total; /* for ranks that are `least`: of them those of the lower lanes */
    for (uint32_t head = 0; head < l.n_kv_heads; head++) left -= taken(l, c, head, sure, least + 1, sums);
    for (uint32_t head = 0; head < l.n_kv_heads; head++) {
        const uint32_t above = taken(l, c, head, sure, least + 1, sums);
        const uint32_t equal = taken(l, c, head, sure, least, sums) - above;
        const uint32_t more = equal < left ? equal : (uint32_t)left;
        left -= more;
        if (threadIdx.x == 0) l.shares[head] = n_protected + above + more;
    }
}

/* ---- where they stand ---------------------------------------------------------------------------------- */

/* Does the token's slot stay?  With block it goes with its page. */
static __device__ inline bool stands(const pleat__device_lanes &l, const cut &c, uint32_t i, uint32_t n) {
    if (l.policy.reclaim == PLEAT_RECLAIM_NONE) return true;
    if (l.policy.reclaim == PLEAT_RECLAIM_COPY) return stays(l.policy, c, i);
    const uint32_t tokens = l.pages.page_tokens[0], first = i / tokens * tokens, end = min(first + tokens, n);
    bool lives = false;
    for (uint32_t k = first; k < end && !lives; k++) lives = stays(l.policy, c, k);
    return lives;
}

/* none, block, copy: what stands keeps its order.  Gives the number of slots. */
static __device__ inline uint32_t line_up(const pleat__device_lanes &l, const cut &c, uint32_t n, uint32_t *order,
                                          uint32_t sums[KEEP_WARPS]) {
    uint32_t n_slots = 0, all;
    for (uint32_t round = 0; round < n; round += KEEP_THREADS) {
        const uint32_t i = round + threadIdx.x;
        const bool is = i < n && stands(l, c, i, n);
        const uint32_t before = block_rank(is, sums, &all);
        if (is) order[n_slots + before] = stays(l.policy, c, i) ? i : i | PLEAT__ORDER_DEAD;
        n_slots += all;
    }
    return n_slots;
}

/* reuse: reclaim.c's plan_fill().  Dead slots before the last of n_live, in their order, take the tokens behind them
 * from the last one on.  The slots are listed at the end of `order` meanwhile. */
static __device__ inline void fill_up(const pleat__device_lanes &l, const cut &c, uint32_t n, uint32_t n_live,
                                      uint32_t *order, uint32_t sums[KEEP_WARPS]) {
    uint32_t n_dead = 0, n_moved = 0, all;
    for (uint32_t round = 0; round < n_live; round += KEEP_THREADS) {
        const uint32_t i = round + threadIdx.x;
        const bool is_dead = i < n_live && !stays(l.policy, c, i);
        const uint32_t before = block_rank(is_dead, sums, &all);
        if (is_dead) order[n - 1 - (n_dead + before)] = i;
        if (i < n_live && !is_dead) order[i] = i;
        n_dead += all;
    }
    __syncthreads();
    for (uint32_t round = n_live; round < n; round += KEEP_THREADS) {
        const uint32_t i = round + threadIdx.x;
        const bool moves = i < n && stays(l.policy, c, i);
        const uint32_t before = block_rank(moves, sums, &all);
        if (moves) order[order[n - n_dead + n_moved + before]] = i; /* the first that moves takes the last slot */
        n_moved += all;
    }
}

static __global__ void __launch_bounds__(KEEP_THREADS)
    keep_tokens(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    __shared__ uint32_t sums[KEEP_WARPS];
    const uint32_t head = blockIdx.x, n = p.n_tokens, budget = l.shares ? l.shares[head] : p.budget;
    const uint32_t n_live = min(n, budget);
    const uint32_t *ranks = l.ranks ? l.ranks + (uint64_t)head * l.max_tokens : NULL;
    const cut c = find_cut(l.policy, seed_of(p.layer, head), ranks, n, budget, sums);
    uint32_t *order = l.order + (uint64_t)head * l.max_tokens, n_slots = n_live;
    if (l.policy.reclaim == PLEAT_RECLAIM_REUSE)
        fill_up(l, c, n, n_live, order, sums);
    else
        n_slots = line_up(l, c, n, order, sums);
    if (threadIdx.x > 0) return;
    const uint32_t row = pleat__device_row_at(l, p.seq_idx, p.layer, head);
    l.pages.n_slots[0][row] = n_slots;
    l.pages.n_slots[1][row] = 0;
    l.pages.dead[row] = n_slots - n_live;
}

/* ---- a step: who goes ------------------------------------------------------------------------------------ */

#define STEP_WARPS 4
#define MAX_WARPS 8 /* on one lane */
#define NO_SLOT UINT32_MAX

/* Of all candidates the one with the least key goes: rank, then the younger. */
typedef struct victim {
    uint64_t key;
    uint32_t slot;
} victim;

static __device__ inline victim less_of(victim a, victim b) { return b.key < a.key ? b : a; }

typedef struct shared_finds {
    victim finds[MAX_WARPS];
} shared_finds;

/* Of all threads' finds the least, in all of them. */
template <int W> static __device__ inline victim least_of_all(victim v, shared_finds *shared) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        v = less_of(v, victim{__shfl_xor_sync(PLEAT__ALL_THREADS, v.key, apart),
                              __shfl_xor_sync(PLEAT__ALL_THREADS, v.slot, apart)});
    if constexpr (W > 1) {
        if (threadIdx.x % 32 == 0) shared->finds[threadIdx.x / 32] = v;
        __syncthreads();
        for (int warp = 0; warp < W; warp++) v = less_of(v, shared->finds[warp]);
    }
    return v;
}

/* Where a row's slot stands. */
static __device__ inline int32_t *positions_at(const pleat__device_lanes &l, uint32_t row, uint32_t slot) {
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, slot);
    return pleat__device_positions(l.layouts[0], at.page) + at.slot;
}

/* Where a row's slot has its score. */
static __device__ inline float *scores_at(const pleat__device_lanes &l, uint32_t row, uint32_t slot) {
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, slot);
    return pleat__device_scores(l.layouts[0], at.page) + at.slot;
}

/* By W warps; four slots a thread, which stand in one page. */
template <int W>
static __device__ inline victim find_victim(const pleat__device_lanes &l, uint32_t row, uint32_t n_tokens,
                                            shared_finds *shared) {
    const uint32_t lane = row % l.pages.rows_per_seq, n_slots = l.pages.n_slots[0][row];
    const uint32_t seed = seed_of(lane / l.n_kv_heads, lane % l.n_kv_heads);
    const int32_t begin = (int32_t)l.policy.sinks, end = (int32_t)(n_tokens - l.policy.window);
    const uint32_t thread = W > 1 ? threadIdx.x : threadIdx.x % 32;
    const bool by_score = l.policy.ranks == PLEAT__DEVICE_RANKS_SCORE;
    victim least = {UINT64_MAX, NO_SLOT};
#pragma unroll 4
    for (uint32_t slot = 4 * thread; slot < n_slots; slot += 128 * W) {
        const int4 four = *(const int4 *)(const void *)positions_at(l, row, slot);
        const int32_t positions[4] = {four.x, four.y, four.z, four.w};
        float4 x = {};
        if (by_score) x = *(const float4 *)(const void *)scores_at(l, row, slot);
        const float scores[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (slot + i >= n_slots || positions[i] < begin || positions[i] >= end) continue;
            const uint32_t position = (uint32_t)positions[i];
            const uint32_t rank = by_score ? __float_as_uint(counted(scores[i])) : rank_of(l.policy, seed, position);
            least = less_of(least, victim{(uint64_t)rank << 32 | (UINT32_MAX - position), slot + i});
        }
    }
    return least_of_all<W>(least, shared);
}

/* ---- a step: its slot -------------------------------------------------------------------------------------- */

/* The page at idx, which holds n slots, goes behind the row's others, where trim finds it. */
static __device__ inline void put_last(const pleat__device_lanes &l, uint32_t row, uint32_t idx, uint32_t n) {
    const uint32_t n_slots = l.pages.n_slots[0][row], tokens = l.pages.page_tokens[0], thread = threadIdx.x % 32;
    const uint32_t n_pages = n_slots / tokens + (n_slots % tokens != 0);
    uint32_t *ids = pleat__device_cell(&l.pages, row, 0, 0);
    const uint32_t leaver = ids[idx];
    for (uint32_t first = idx; first + 1 < n_pages; first += 32) {
        const uint32_t i = first + thread;
        const uint32_t id = i + 1 < n_pages ? ids[i + 1] : 0;
        __syncwarp();
        if (i + 1 < n_pages) ids[i] = id;
        __syncwarp();
    }
    if (thread > 0) return;
    ids[n_pages - 1] = leaver;
    l.pages.n_slots[0][row] = n_slots - n;
    l.pages.dead[row] -= n;
}

/* reclaim=block: a page without a living token goes. */
static __device__ inline void drop_page(const pleat__device_lanes &l, uint32_t row, uint32_t slot) {
    const uint32_t n_slots = l.pages.n_slots[0][row], tokens = l.pages.page_tokens[0];
    const uint32_t first = slot / tokens * tokens, n = min(tokens, n_slots - first);
    const int32_t *positions = positions_at(l, row, first);
    bool lives = false;
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32) lives |= positions[i] >= 0;
    if (!__any_sync(PLEAT__ALL_THREADS, lives)) put_last(l, row, slot / tokens, n);
}

/* The slot's token dies, by one warp. */
static __device__ inline void drop_token(const pleat__device_lanes &l, uint32_t row, uint32_t slot) {
    const pleat_reclaim how = l.policy.reclaim;
    const bool stays_dead = how == PLEAT_RECLAIM_NONE || how == PLEAT_RECLAIM_BLOCK;
    const uint32_t n_slots = l.pages.n_slots[0][row];
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        *positions_at(l, row, slot) = -1;
        if (stays_dead)
            l.pages.dead[row]++;
        else if (slot + 1 == n_slots)
            l.pages.n_slots[0][row] = slot;
        else
            l.pages.hole[row] = slot + 1;
    }
    __syncwarp();
    if (how == PLEAT_RECLAIM_BLOCK) drop_page(l, row, slot);
}

/* What the step's token received from itself does not count. */
template <int W> static __device__ inline void forget_itself(const pleat__device_lanes &l, uint32_t lane) {
    const pleat__device_new_token fresh = pleat__device_token_of(l, lane);
    if (threadIdx.x % (W > 1 ? W * 32 : 32) == 0)
        pleat__device_scores(l.layouts[0], l.base + fresh.page * l.page_bytes)[fresh.at] = 0;
    if constexpr (W > 1)
        __syncthreads();
    else
        __syncwarp();
}

/* W warps a lane: the block's only one, or W = 1 and STEP_WARPS lanes a block. */
template <int W>
static __global__ void __launch_bounds__((W > 1 ? W : STEP_WARPS) * 32)
    evict(const __grid_constant__ pleat__device_lanes l) {
    __shared__ shared_finds shared;
    const uint32_t lane = W > 1 ? blockIdx.x : blockIdx.x * STEP_WARPS + threadIdx.x / 32;
    if (lane >= l.pages.n_seqs * l.pages.rows_per_seq || l.fresh[lane].slot == PLEAT__NO_NEW_SLOT) return;
    const uint32_t row = pleat__device_lane_row(&l.pages, lane);
    if (l.policy.counts == PLEAT__DEVICE_COUNTS_SUM) forget_itself<W>(l, lane);
    const uint32_t n_live = l.pages.n_slots[0][row] - l.pages.dead[row];
    if (n_live <= l.budgets[row / l.pages.rows_per_seq]) return;
    const victim v = find_victim<W>(l, row, l.fresh[lane].position + 1, &shared);
    if (v.slot != NO_SLOT && (W == 1 || threadIdx.x < 32)) drop_token(l, row, v.slot);
}

/* ---- a step: reclaim=copy ------------------------------------------------------------------------------------ */

#define CLOSE_WARPS 2

/* A page of one tile, for shared memory. */
static __host__ __device__ inline pleat__page_layout layout_of_tile(const pleat__page_layout &of) {
    pleat__page_layout l = of;
    l.tokens = PLEAT__TILE;
    l.k_off = 0;
    l.v_off = l.k_tile_bytes;
    l.k_meta_off = l.v_off + l.v_tile_bytes;
    l.v_meta_off = l.k_meta_off + PLEAT__META_TILE_BYTES;
    l.score_off = l.v_meta_off + PLEAT__META_TILE_BYTES;
    l.pos_off = l.score_off + l.n_scores * PLEAT__TILE * (uint32_t)sizeof(float);
    l.used_bytes = l.pos_off + PLEAT__TILE * (uint32_t)sizeof(int32_t);
    return l;
}

static __device__ inline void copy_bytes(void *to, const void *from, uint32_t bytes) {
    for (uint32_t i = threadIdx.x % 32; i < bytes / 16; i += 32) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
}

/* One tile from one page to another, by a warp. */
static __device__ inline void copy_tile(const pleat__page_layout &to_layout, uint8_t *to, uint32_t to_tile,
                                        const pleat__page_layout &from_layout, uint8_t *from, uint32_t from_tile) {
    copy_bytes(pleat__device_k_tile(to_layout, to, to_tile), pleat__device_k_tile(from_layout, from, from_tile),
               from_layout.k_tile_bytes);
    copy_bytes(pleat__device_v_tile(to_layout, to, to_tile), pleat__device_v_tile(from_layout, from, from_tile),
               from_layout.v_tile_bytes);
    if (from_layout.format.k_bits <= 8) {
        copy_bytes(pleat__device_k_meta(to_layout, to, to_tile), pleat__device_k_meta(from_layout, from, from_tile),
                   PLEAT__META_TILE_BYTES);
        copy_bytes(pleat__device_v_meta(to_layout, to, to_tile), pleat__device_v_meta(from_layout, from, from_tile),
                   PLEAT__META_TILE_BYTES);
    }
    if (from_layout.n_scores)
        copy_bytes(pleat__device_scores(to_layout, to) + to_tile * PLEAT__TILE,
                   pleat__device_scores(from_layout, from) + from_tile * PLEAT__TILE,
                   PLEAT__TILE * (uint32_t)sizeof(float));
    copy_bytes(pleat__device_positions(to_layout, to) + to_tile * PLEAT__TILE,
               pleat__device_positions(from_layout, from) + from_tile * PLEAT__TILE,
               PLEAT__TILE * (uint32_t)sizeof(int32_t));
    __syncwarp();
}

/* The tokens of slots hole + 1 .. n_slots - 1 move down by one.  here, next: a tile each. */
template <int D>
static __device__ inline void move_down(const pleat__device_lanes &l, uint32_t row, uint32_t hole, uint8_t *here,
                                        uint8_t *next) {
    const pleat__page_layout &layout = l.layouts[0], tile = layout_of_tile(layout);
    const uint32_t last = (l.pages.n_slots[0][row] - 1) / PLEAT__TILE;
    pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, hole / PLEAT__TILE * PLEAT__TILE);
    copy_tile(tile, here, 0, layout, at.page, at.slot / PLEAT__TILE);
    for (uint32_t t = hole / PLEAT__TILE, from = hole % PLEAT__TILE; t <= last; t++, from = 0) {
        const pleat__device_slot_bytes to = at;
        if (t < last) {
            at = pleat__device_bytes_of(l, row, 0, (t + 1) * PLEAT__TILE);
            copy_tile(tile, next, 0, layout, at.page, at.slot / PLEAT__TILE);
        }
        const bool writes = pleat__device_in_first_team<D>();
        for (uint32_t i = from; i + 1 < PLEAT__TILE; i++)
            pleat__device_copy_token<D>(tile, here, i, here, i + 1, writes);
        if (t < last) pleat__device_copy_token<D>(tile, here, PLEAT__TILE - 1, next, 0, writes);
        __syncwarp();
        copy_tile(layout, to.page, to.slot / PLEAT__TILE, tile, here, 0);
        uint8_t *const done = here;
        here = next;
        next = done;
    }
}

template <int D>
static __global__ void __launch_bounds__(CLOSE_WARPS * 32)
    close_holes(const __grid_constant__ pleat__device_lanes l, uint32_t tile_bytes) {
    extern __shared__ uint4 tiles[];
    const uint32_t warp = threadIdx.x / 32, lane = blockIdx.x * CLOSE_WARPS + warp;
    if (lane >= l.pages.n_seqs * l.pages.rows_per_seq) return;
    const uint32_t row = pleat__device_lane_row(&l.pages, lane), hole = l.pages.hole[row];
    if (hole == 0) return;
    uint8_t *here = (uint8_t *)tiles + 2 * warp * tile_bytes;
    move_down<D>(l, row, hole - 1, here, here + tile_bytes);
    if (threadIdx.x % 32 > 0) return;
    l.pages.n_slots[0][row]--;
    l.pages.hole[row] = 0;
}

/* ---- launchers ------------------------------------------------------------------------------------------------- */

static uint32_t blocks_for(uint32_t n, uint32_t each) { return (n + each - 1) / each; }

static __global__ void set_budget(uint32_t *budget, uint32_t n) { *budget = n; }

extern "C" pleat_status pleat__device_lanes_set_budget(const pleat__device_lanes *l, uint32_t seq_idx,
                                                       uint32_t n_tokens, pleat__device_stream stream,
                                                       pleat_error *err) {
    set_budget<<<1, 1, 0, pleat__cuda_stream(stream)>>>(l->budgets + seq_idx, n_tokens);
    return PLEAT_CUDA_LAUNCHED("setting a sequence's budget", err);
}

extern "C" pleat_status pleat__device_lanes_keep(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                 pleat__device_stream stream, pleat_error *err) {
    const dim3 grid(blocks_for(p->n_tokens, RANK_THREADS), l->n_kv_heads);
    if (l->ranks) rank_tokens<<<grid, RANK_THREADS, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    if (l->shares) share_layer<<<1, KEEP_THREADS, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    keep_tokens<<<l->n_kv_heads, KEEP_THREADS, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    return PLEAT_CUDA_LAUNCHED("choosing a prompt's tokens", err);
}

static void launch_close(const pleat__device_lanes &l, uint32_t n_lanes, cudaStream_t stream) {
    const uint32_t tile_bytes = layout_of_tile(l.layouts[0]).used_bytes, n_blocks = blocks_for(n_lanes, CLOSE_WARPS);
    const uint32_t bytes = 2 * CLOSE_WARPS * tile_bytes;
    if (l.head_dim == 128)
        close_holes<128><<<n_blocks, CLOSE_WARPS * 32, bytes, stream>>>(l, tile_bytes);
    else
        close_holes<64><<<n_blocks, CLOSE_WARPS * 32, bytes, stream>>>(l, tile_bytes);
}

extern "C" pleat_status pleat__device_lanes_evict(const pleat__device_lanes *l, pleat__device_stream stream,
                                                  pleat_error *err) {
    const uint32_t n_lanes = l->pages.n_seqs * l->pages.rows_per_seq;
    if (!l->policy.in_generation) return PLEAT_OK;
    cudaStream_t on = pleat__cuda_stream(stream);
    if (n_lanes < l->many_lanes)
        evict<MAX_WARPS><<<n_lanes, MAX_WARPS * 32, 0, on>>>(*l);
    else
        evict<1><<<blocks_for(n_lanes, STEP_WARPS), STEP_WARPS * 32, 0, on>>>(*l);
    if (l->policy.reclaim == PLEAT_RECLAIM_COPY) launch_close(*l, n_lanes, on);
    return PLEAT_CUDA_LAUNCHED("a budget's step", err);
}
