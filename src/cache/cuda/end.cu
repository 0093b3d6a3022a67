/* SPDX-License-Identifier: MIT
 *
 * end.cu: the policy's step in every lane of the batch, once the new tokens are there.
 *
 *     end       a warp for each lane, or eight where lanes are few: policy/leankv.c's step, then cache/keep/compact.c's
 *               moves, in their order:
 *
 *         the token that left the window is looked for from the last slot back
 *         it is low     demoted; the least significant low token is the victim
 *         it is high    the least significant high token, by one pass over scores and positions
 *         a token that becomes low takes the low victim's slot, or the next one; a high slot that is left is a hole,
 *         or the side is shorter by one; a low slot that is left is taken by the last low token
 *
 *     counted   the same where every > 1: lanes of sequences whose step is not counted are left at once.  Of the others
 *               one pass over each side finds all who leave, and one warp moves them
 *
 * Searches look at 4 slots a thread, 512 a warp at a time, so that 8 loads of a thread are under way together.  A
 * thread divides only where sum <= limit * (N - 1 - position) does not rule the slot out (policy/scan.h says why that
 * misses nothing), and lowers its limit as it finds less.  Of all threads' finds the least wins, ties to the lower
 * slot.
 */
#include "cache/cuda/lanes.cuh"
#include "quant/cuda/wide.cuh"

#define STEP_WARPS 4

/* ---- searches ---------------------------------------------------------------------------------------- */

#define NO_SLOT UINT32_MAX
#define MAX_WARPS 8    /* on one lane */
#define SEARCH_QUADS 4 /* of 4 slots, a thread's under way at once */
#define SEARCH_SLOTS (SEARCH_QUADS * 128)

/* One side of a lane, as a search sees it. */
typedef struct side_view {
    const pleat__page_layout *layout;
    const uint32_t *ids; /* of the side's first page */
    int32_t step;        /* from one page's id to the next's */
    uint8_t *base;
    uint64_t page_bytes;
    uint32_t n_slots;
    uint32_t
        inverse; /* ceil(2^32 / quads of a page): quad * inverse >> 32 is its page for quads up to 2^22 and 2^10 a page */
} side_view;

static __device__ inline side_view view_of(const pleat__device_lanes &l, uint32_t row, int side) {
    side_view v;
    v.layout = &l.layouts[side];
    v.ids = pleat__device_cell(&l.pages, row, side, 0);
    v.step = side ? -1 : 1;
    v.base = l.base;
    v.page_bytes = l.page_bytes;
    v.n_slots = l.pages.n_slots[side][row];
    v.inverse = UINT32_MAX / (v.layout->tokens / 4) + 1;
    return v;
}

/* The page of a slot, and where it stands there. */
static __device__ inline pleat__device_slot_bytes bytes_at(const side_view &v, uint32_t slot) {
    const uint32_t idx = __umulhi(slot / 4, v.inverse);
    return pleat__device_slot_bytes{v.base + v.ids[(int32_t)idx * v.step] * v.page_bytes,
                                    slot - idx * v.layout->tokens};
}

/* Positions, and scores, of SEARCH_QUADS quads of slots from `slot` on, 128 apart; -1 behind the side's last. */
typedef struct found_quads {
    int4 positions[SEARCH_QUADS];
    float4 scores[SEARCH_QUADS];
} found_quads;

template <bool SCORES> static __device__ inline void read_quads(const side_view &v, uint32_t slot, found_quads *q) {
#pragma unroll
    for (int i = 0; i < SEARCH_QUADS; i++) {
        q->positions[i] = make_int4(-1, -1, -1, -1);
        if (SCORES) q->scores[i] = make_float4(0, 0, 0, 0);
        if (slot + 128 * i >= v.n_slots) continue;
        const pleat__device_slot_bytes at = bytes_at(v, slot + 128 * i); /* 4 slots stand in one page */
        q->positions[i] = *(const int4 *)(const void *)(pleat__device_positions(*v.layout, at.page) + at.slot);
        if (SCORES) q->scores[i] = *(const float4 *)(const void *)(pleat__device_scores(*v.layout, at.page) + at.slot);
    }
}

/* Of quad i, member j. */
static __device__ inline int32_t position_of(const found_quads &q, int i, int j) {
    return j == 0 ? q.positions[i].x : j == 1 ? q.positions[i].y : j == 2 ? q.positions[i].z : q.positions[i].w;
}
static __device__ inline float score_of(const found_quads &q, int i, int j) {
    return j == 0 ? q.scores[i].x : j == 1 ? q.scores[i].y : j == 2 ? q.scores[i].z : q.scores[i].w;
}

/* What W warps of a block, which work on one lane, tell each other. */
typedef struct shared_finds {
    uint32_t slots[MAX_WARPS];
    float significances[MAX_WARPS];
} shared_finds;

/* The largest of all threads' numbers, in all of them. */
template <int W> static __device__ inline uint32_t max_of_all(uint32_t mine, shared_finds *shared) {
    mine = __reduce_max_sync(PLEAT__ALL_THREADS, mine);
    if constexpr (W > 1) {
        if (threadIdx.x % 32 == 0) shared->slots[threadIdx.x / 32] = mine;
        __syncthreads();
        for (int warp = 0; warp < W; warp++) mine = max(mine, shared->slots[warp]);
        __syncthreads();
    }
    return mine;
}

/* Which of a lane's warps this is. */
template <int W> static __device__ inline uint32_t warp_of(void) { return W > 1 ? threadIdx.x / 32 : 0; }

/* pleat__scan_find(). */
template <int W>
static __device__ inline uint32_t find_position(const side_view &v, uint32_t position, shared_finds *shared) {
    const int32_t n_rounds = (int32_t)((v.n_slots + SEARCH_SLOTS - 1) / SEARCH_SLOTS);
    for (int32_t last = n_rounds - 1; last >= 0; last -= W) {
        const int32_t round = last - (int32_t)warp_of<W>();
        uint32_t found = 0; /* 1 + slot */
        if (round >= 0) {
            const uint32_t first = (uint32_t)round * SEARCH_SLOTS + threadIdx.x % 32 * 4;
            found_quads q;
            read_quads<false>(v, first, &q);
#pragma unroll
            for (int i = 0; i < SEARCH_QUADS; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (position_of(q, i, j) == (int32_t)position && first + 128 * i + j < v.n_slots)
                        found = first + 128 * i + j + 1;
        }
        found = max_of_all<W>(found, shared);
        if (found) return found - 1;
    }
    return NO_SLOT;
}

/* The least significance and its slot. */
typedef struct victim {
    float significance;
    uint32_t slot;
} victim;

/* Look closely at a quad's member. */
static __device__ inline void consider(const side_view &v, uint32_t slot, int32_t position, float sum,
                                       uint32_t n_tokens, int32_t end, victim *least) {
    const float m = (float)((int32_t)(n_tokens - 1) - position);
    if (!(sum <= __fmul_rn(least->significance, m)) || position >= end) return;
    if (position < 0 || slot >= v.n_slots) return;
    const float s = pleat__device_significance(sum, (uint32_t)position, n_tokens);
    if (s < least->significance) *least = victim{s, slot};
}

/* The less of two; of equals the one of the lower slot. */
static __device__ inline victim less_of(victim a, victim b) {
    if (a.slot == NO_SLOT || b.slot == NO_SLOT) return a.slot == NO_SLOT ? b : a;
    if (a.significance != b.significance) return a.significance < b.significance ? a : b;
    return a.slot < b.slot ? a : b;
}

/* Of all threads' finds the least, in all of them. */
template <int W> static __device__ inline victim least_of_all(victim mine, shared_finds *shared) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        mine = less_of(mine, victim{__shfl_xor_sync(PLEAT__ALL_THREADS, mine.significance, apart),
                                    __shfl_xor_sync(PLEAT__ALL_THREADS, mine.slot, apart)});
    if constexpr (W > 1) {
        if (threadIdx.x % 32 == 0) {
            shared->significances[threadIdx.x / 32] = mine.significance;
            shared->slots[threadIdx.x / 32] = mine.slot;
        }
        __syncthreads();
        for (int warp = 0; warp < W; warp++)
            mine = less_of(mine, victim{shared->significances[warp], shared->slots[warp]});
        __syncthreads();
    }
    return mine;
}

/* pleat__scan_least(). */
template <int W>
static __device__ inline victim find_least(const side_view &v, uint32_t n_tokens, uint32_t window, float limit,
                                           shared_finds *shared) {
    victim least = {limit, NO_SLOT};
    const int32_t end = (int32_t)(n_tokens - window);
    if (!(limit > 0)) return least;
    for (uint32_t round = warp_of<W>() * SEARCH_SLOTS; round < v.n_slots; round += W * SEARCH_SLOTS) {
        const uint32_t first = round + threadIdx.x % 32 * 4;
        found_quads q;
        read_quads<true>(v, first, &q);
#pragma unroll
        for (int i = 0; i < SEARCH_QUADS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                consider(v, first + 128 * i + j, position_of(q, i, j), score_of(q, i, j), n_tokens, end, &least);
    }
    return least_of_all<W>(least, shared);
}

/* ---- the policy's step --------------------------------------------------------------------------------- */

/* What happens to a lane: pleat__policy_step, with who leaves the high side worked out. */
typedef struct decision {
    uint32_t leaver; /* high slot, or NO_SLOT */
    bool demotes;    /* it becomes low; else it is dropped */
    uint32_t low_victim;
} decision;

/* pleat__leankv_step() and compact.c's leaver_of(). */
template <int W>
static __device__ inline decision decide(const pleat__device_policy &p, const side_view &high, const side_view &low,
                                         uint32_t n_tokens, shared_finds *shared) {
    decision d = {NO_SLOT, false, NO_SLOT};
    const uint32_t left = n_tokens - 1 - p.window, left_slot = find_position<W>(high, left, shared);
    if (left_slot == NO_SLOT) return d;
    const pleat__device_thresholds limits = pleat__device_thresholds_at(p, n_tokens);
    pleat_level level = PLEAT_LEVEL_HIGH;
    if (!p.is_code) {
        const pleat__device_slot_bytes at = bytes_at(high, left_slot);
        const float sum = pleat__device_scores(*high.layout, at.page)[at.slot];
        level = pleat__device_level(limits, pleat__device_significance(sum, left, n_tokens));
    }
    if (level == PLEAT_LEVEL_HIGH) {
        const victim v = find_least<W>(high, n_tokens, p.window, limits.ah, shared);
        d.leaver = v.slot;
        d.demotes = v.slot != NO_SLOT && v.significance >= limits.al;
    } else {
        d.leaver = left_slot;
        d.demotes = level == PLEAT_LEVEL_LOW;
    }
    if (level == PLEAT_LEVEL_LOW || p.is_code)
        d.low_victim = find_least<W>(low, n_tokens, p.window, limits.al, shared).slot;
    return d;
}

/* compact.c's demote(): from the high side into slot `to_slot` of the low side, or behind its last. */
template <int D>
static __device__ inline void demote(const pleat__device_lanes &l, uint32_t row, const side_view &high,
                                     const side_view &low, uint32_t slot, uint32_t to_slot) {
    const bool is_append = to_slot == NO_SLOT;
    const pleat__device_slot_bytes from = bytes_at(high, slot), to = bytes_at(low, is_append ? low.n_slots : to_slot);
    const pleat__device_quad key = pleat__device_load_key<D>(*high.layout, from.page, from.slot);
    const pleat__device_quad value = pleat__device_load_value<D>(*high.layout, from.page, from.slot);
    if (is_append && to.slot % PLEAT__TILE == 0) pleat__device_clear_tile(*low.layout, to.page, to.slot / PLEAT__TILE);
    if (low.layout->format.rotated) {
        pleat__device_wide_put(*low.layout, to.page, to.slot, {{key}}, {{value}}, D / 4);
    } else {
        pleat__device_put_key<D>(*low.layout, to.page, to.slot, key, pleat__device_in_first_team<D>());
        pleat__device_put_value<D>(*low.layout, to.page, to.slot, value, pleat__device_in_first_team<D>());
    }
    if (threadIdx.x % 32 != 0) return;
    if (low.layout->tracked) {
        pleat__device_scores(*low.layout, to.page)[to.slot] = pleat__device_scores(*high.layout, from.page)[from.slot];
        pleat__device_positions(*low.layout, to.page)[to.slot] =
            pleat__device_positions(*high.layout, from.page)[from.slot];
    }
    if (is_append) l.pages.n_slots[1][row] = low.n_slots + 1;
}

/* free_high(), by one thread. */
static __device__ inline void free_high(const pleat__device_lanes &l, uint32_t row, const side_view &high,
                                        uint32_t slot) {
    const pleat__device_slot_bytes at = bytes_at(high, slot);
    pleat__device_positions(*high.layout, at.page)[at.slot] = -1;
    if (slot + 1 == high.n_slots)
        l.pages.n_slots[0][row] = slot;
    else
        l.pages.hole[row] = slot + 1;
}

/* close_slot() of compact.c, by one warp. */
template <int D>
static __device__ inline void close_slot(const pleat__device_lanes &l, uint32_t row, int side, const side_view &v,
                                         uint32_t slot) {
    const uint32_t last = v.n_slots - 1;
    const pleat__device_slot_bytes to = bytes_at(v, slot), from = bytes_at(v, last);
    if (slot != last)
        pleat__device_copy_token<D>(*v.layout, to.page, to.slot, from.page, from.slot,
                                    pleat__device_in_first_team<D>());
    if (threadIdx.x % 32 == 0) l.pages.n_slots[side][row] = last;
}

/* What was decided, done by one warp. */
template <int D>
static __device__ inline void act(const pleat__device_lanes &l, uint32_t row, const side_view &high,
                                  const side_view &low, const decision &d) {
    if (d.demotes) demote<D>(l, row, high, low, d.leaver, d.low_victim);
    __syncwarp();
    if (d.leaver != NO_SLOT && threadIdx.x % 32 == 0) free_high(l, row, high, d.leaver);
    if (!d.demotes && d.low_victim != NO_SLOT) close_slot<D>(l, row, 1, low, d.low_victim);
}

/* W warps a lane: the block's only one, or W = 1 and STEP_WARPS lanes a block. */
template <int D, int W>
static __global__ void __launch_bounds__((W > 1 ? W : STEP_WARPS) * 32)
    end_step(const __grid_constant__ pleat__device_lanes l) {
    __shared__ shared_finds shared;
    const uint32_t lane = W > 1 ? blockIdx.x : blockIdx.x * STEP_WARPS + threadIdx.x / 32;
    if (lane >= l.pages.n_seqs * l.pages.rows_per_seq) return;
    const uint32_t row = pleat__device_lane_row(&l.pages, lane);
    const pleat__device_new_token fresh = pleat__device_token_of(l, lane);
    if (fresh.slot == PLEAT__NO_NEW_SLOT) return;
    if (threadIdx.x % 32 == 0 && warp_of<W>() == 0) /* what the token received from itself does not count */
        pleat__device_scores(l.layouts[0], l.base + fresh.page * l.page_bytes)[fresh.at] = 0;
    if (fresh.position < l.policy.window) return;
    if constexpr (W > 1)
        __syncthreads();
    else
        __syncwarp();
    const side_view high = view_of(l, row, 0), low = view_of(l, row, 1);
    const decision d = decide<W>(l.policy, high, low, fresh.position + 1, &shared);
    if (warp_of<W>() == 0) act<D>(l, row, high, low, d);
}

/* ---- counted steps, where not every one is --------------------------------------------------------------- */

/* Slots of a lane's sides that leave, from the lowest on. */
typedef struct leavers {
    uint32_t slots[2][PLEAT__DEVICE_LEAVERS_CAP], n[2];
} leavers;

static __device__ inline bool is_below(int32_t position, float sum, uint32_t n_tokens, int32_t end, float limit) {
    const float m = (float)((int32_t)(n_tokens - 1) - position);
    if (!(sum <= __fmul_rn(limit, m)) || position >= end || position < 0) return false;
    return pleat__device_significance(sum, (uint32_t)position, n_tokens) < limit;
}

/* Which of a thread's slots are below: bit 4 * quad + member. */
static __device__ inline uint32_t mask_below(const side_view &v, uint32_t first, uint32_t n_tokens, int32_t end,
                                             float limit) {
    found_quads q;
    uint32_t mask = 0;
    read_quads<true>(v, first, &q);
#pragma unroll
    for (int i = 0; i < SEARCH_QUADS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (first + 128 * i + j < v.n_slots &&
                is_below(position_of(q, i, j), score_of(q, i, j), n_tokens, end, limit))
                mask |= 1u << (4 * i + j);
    return mask;
}

/* pleat__scan_below(): slots to shared memory, their number to all threads. */
template <int W>
static __device__ inline uint32_t find_below(const side_view &v, uint32_t n_tokens, const pleat__device_policy &p,
                                             float limit, uint32_t *slots, shared_finds *shared) {
    const int32_t end = (int32_t)(n_tokens - p.window);
    const uint32_t most = 2 * p.every;
    uint32_t n = 0;
    if (!(limit > 0)) return 0;
    for (uint32_t round = 0; round < v.n_slots && n < most; round += W * SEARCH_SLOTS) {
        const uint32_t first = round + warp_of<W>() * SEARCH_SLOTS + threadIdx.x % 32 * 4;
        uint32_t mask = mask_below(v, first, n_tokens, end, limit);
        while (n < most) {
            const uint32_t bit = __ffs(mask) - 1, mine = mask ? ~(first + bit / 4 * 128 + bit % 4) : 0;
            const uint32_t lowest = max_of_all<W>(mine, shared); /* ~slot */
            if (!lowest) break;
            if (lowest == mine) mask &= mask - 1;
            if (threadIdx.x % 32 == 0 && warp_of<W>() == 0) slots[n] = ~lowest;
            n++;
        }
    }
    return n;
}

/* The token in a high slot that leaves becomes low, unless it is dropped. */
template <int D>
static __device__ inline bool demote_unless_dropped(const pleat__device_lanes &l, uint32_t row, const side_view &high,
                                                    const side_view &low, uint32_t slot, uint32_t n_tokens) {
    const pleat__device_slot_bytes at = bytes_at(high, slot);
    const uint32_t position = (uint32_t)pleat__device_positions(*high.layout, at.page)[at.slot];
    const float sum = pleat__device_scores(*high.layout, at.page)[at.slot];
    const float significance = pleat__device_significance(sum, position, n_tokens);
    if (significance < pleat__device_thresholds_at(l.policy, n_tokens).al) return false;
    demote<D>(l, row, high, low, slot, NO_SLOT);
    return true;
}

/* compact_counted() of compact.c, by one warp. */
template <int D>
static __device__ inline void act_counted(const pleat__device_lanes &l, uint32_t row, uint32_t n_tokens,
                                          const leavers *who) {
    side_view high = view_of(l, row, 0), low = view_of(l, row, 1);
    __syncwarp();
    for (uint32_t i = who->n[1]; i-- > 0; low.n_slots--) {
        close_slot<D>(l, row, 1, low, who->slots[1][i]);
        __syncwarp();
    }
    for (uint32_t i = who->n[0]; i-- > 0; high.n_slots--) {
        low.n_slots += demote_unless_dropped<D>(l, row, high, low, who->slots[0][i], n_tokens);
        __syncwarp();
        close_slot<D>(l, row, 0, high, who->slots[0][i]);
        __syncwarp();
    }
}

/* As end_step. */
template <int D, int W>
static __global__ void __launch_bounds__((W > 1 ? W : STEP_WARPS) * 32)
    end_counted(const __grid_constant__ pleat__device_lanes l) {
    __shared__ shared_finds shared;
    __shared__ leavers of_warps[W > 1 ? 1 : STEP_WARPS];
    const uint32_t lane = W > 1 ? blockIdx.x : blockIdx.x * STEP_WARPS + threadIdx.x / 32;
    if (lane >= l.pages.n_seqs * l.pages.rows_per_seq) return;
    const pleat__device_new_token fresh = pleat__device_token_of(l, lane);
    const uint32_t n_tokens = fresh.position + 1;
    if (fresh.slot == PLEAT__NO_NEW_SLOT || !pleat__device_step_is_counted(l.policy, n_tokens)) return;
    if (threadIdx.x % 32 == 0 && warp_of<W>() == 0) /* what the token received from itself does not count */
        pleat__device_scores(l.layouts[0], l.base + fresh.page * l.page_bytes)[fresh.at] = 0;
    if (n_tokens <= l.policy.window) return;
    const uint32_t row = pleat__device_lane_row(&l.pages, lane);
    const pleat__device_thresholds limits = pleat__device_thresholds_at(l.policy, n_tokens);
    leavers *who = &of_warps[W > 1 ? 0 : threadIdx.x / 32];
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        const uint32_t n = find_below<W>(view_of(l, row, side), n_tokens, l.policy, side ? limits.al : limits.ah,
                                         who->slots[side], &shared);
        if (threadIdx.x % 32 == 0 && warp_of<W>() == 0) who->n[side] = n;
    }
    if (warp_of<W>() == 0) act_counted<D>(l, row, n_tokens, who);
}

/* ---- launchers ----------------------------------------------------------------------------------------- */

template <int D> static void launch_end(const pleat__device_lanes &l, uint32_t n_lanes, cudaStream_t stream) {
    const uint32_t n_blocks = (n_lanes + STEP_WARPS - 1) / STEP_WARPS;
    const bool is_many = n_lanes >= l.many_lanes, skips = l.policy.every > 1;
    if (skips && is_many)
        end_counted<D, 1><<<n_blocks, STEP_WARPS * 32, 0, stream>>>(l);
    else if (skips)
        end_counted<D, MAX_WARPS><<<n_lanes, MAX_WARPS * 32, 0, stream>>>(l);
    else if (!is_many)
        end_step<D, MAX_WARPS><<<n_lanes, MAX_WARPS * 32, 0, stream>>>(l);
    else
        end_step<D, 1><<<n_blocks, STEP_WARPS * 32, 0, stream>>>(l);
}

extern "C" pleat_status pleat__device_lanes_end(const pleat__device_lanes *l, pleat__device_stream stream,
                                                pleat_error *err) {
    const uint32_t n_lanes = l->pages.n_seqs * l->pages.rows_per_seq;
    if (!l->policy.is_leankv) return PLEAT_OK;
    if (l->head_dim == 128)
        launch_end<128>(*l, n_lanes, pleat__cuda_stream(stream));
    else
        launch_end<64>(*l, n_lanes, pleat__cuda_stream(stream));
    return PLEAT_CUDA_LAUNCHED("the policy's step", err);
}
