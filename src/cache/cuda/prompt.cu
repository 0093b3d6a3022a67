/* SPDX-License-Identifier: MIT
 *
 * prompt.cu: one layer of a prompt into its lanes: class, then place.
 *
 * class, a block for each KV head, goes over the tokens 4096 at a time.  Each thread gives four tokens a level; ballots
 * and sums over the warps before number those that become high, and those that become low, in the order of their
 * positions, which is that of the CPU's slots:
 *
 *     order    | positions of high slots 0, 1, ... ->        <- ... of low slots 1, 0 |        N cells
 *
 * place, a warp for each tile of 16 slots that has tokens: the high side's first, then the low side's.  A warp reads
 * the rows of its tokens and writes whole tiles, so no two warps touch a word; both are read and written once.  Rotated
 * tokens come one after the other.
 */
#include "cache/cuda/lanes.cuh"
#include "quant/cuda/tile.cuh"
#include "quant/cuda/wide.cuh"

/* ---- class ------------------------------------------------------------------------------------------- */

#define CLASS_WARPS 32
#define CLASS_THREADS (CLASS_WARPS * 32)
#define CLASS_ITEMS 4 /* tokens of a thread, CLASS_THREADS apart: their loads are under way together */

/* For threshold=length the thresholds are those of all tokens. */
static __device__ inline pleat_level level_of(const pleat__device_lanes &l, const pleat__device_prompt &p,
                                              pleat__device_thresholds limits, uint32_t head, uint32_t i) {
    if (i >= p.n_tokens) return PLEAT_LEVEL_DROPPED;
    if (!l.policy.is_leankv || p.n_tokens - i <= l.policy.window) return PLEAT_LEVEL_HIGH;
    const float sum = p.received[(uint64_t)head * p.n_tokens + i];
    if (l.policy.by_position) limits = pleat__device_thresholds_at(l.policy, i + 1);
    return pleat__device_level(limits, pleat__device_significance(sum, i, p.n_tokens));
}

/* Two counts in one word, high tokens in the lower half: of a round there are 4096 at most. */
static __device__ inline uint32_t pair_of(uint32_t high, uint32_t low) { return high | low << 16; }

/* How many tokens there are before each of a thread's tokens among the block's, and in all: pairs. */
typedef struct ranks {
    uint32_t before[CLASS_ITEMS], all;
} ranks;

/* high[i], low[i]: which of the warp's i-th tokens are that; counts[i][warp]: how many, of all warps, as pairs. */
static __device__ inline ranks rank_tokens(const uint32_t high[CLASS_ITEMS], const uint32_t low[CLASS_ITEMS],
                                           const uint32_t counts[CLASS_ITEMS][CLASS_WARPS]) {
    const uint32_t thread = threadIdx.x % 32, warp = threadIdx.x / 32, below = (1u << thread) - 1;
    ranks r = {{0}, 0};
#pragma unroll
    for (int i = 0; i < CLASS_ITEMS; i++) {
        const uint32_t n = counts[i][thread];
        r.before[i] = r.all + __reduce_add_sync(PLEAT__ALL_THREADS, thread < warp ? n : 0) +
                      pair_of(__popc(high[i] & below), __popc(low[i] & below));
        r.all += __reduce_add_sync(PLEAT__ALL_THREADS, n);
    }
    return r;
}

static __global__ void __launch_bounds__(CLASS_THREADS)
    class_tokens(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p) {
    __shared__ uint32_t counts[CLASS_ITEMS][CLASS_WARPS];
    const uint32_t head = blockIdx.x, warp = threadIdx.x / 32, last = p.n_tokens - 1;
    const pleat__device_thresholds limits = pleat__device_thresholds_at(l.policy, p.n_tokens);
    uint32_t *order = l.order + (uint64_t)head * l.max_tokens, n_high = 0, n_low = 0;
    for (uint32_t round = 0; round < p.n_tokens; round += CLASS_ITEMS * CLASS_THREADS) {
        const uint32_t first = round + threadIdx.x;
        pleat_level levels[CLASS_ITEMS];
        uint32_t high[CLASS_ITEMS], low[CLASS_ITEMS];
#pragma unroll
        for (int i = 0; i < CLASS_ITEMS; i++) levels[i] = level_of(l, p, limits, head, first + i * CLASS_THREADS);
#pragma unroll
        for (int i = 0; i < CLASS_ITEMS; i++) {
            high[i] = __ballot_sync(PLEAT__ALL_THREADS, levels[i] == PLEAT_LEVEL_HIGH);
            low[i] = __ballot_sync(PLEAT__ALL_THREADS, levels[i] == PLEAT_LEVEL_LOW);
            if (threadIdx.x % 32 == 0) counts[i][warp] = pair_of(__popc(high[i]), __popc(low[i]));
        }
        __syncthreads();
        const ranks r = rank_tokens(high, low, counts);
#pragma unroll
        for (int i = 0; i < CLASS_ITEMS; i++) {
            const uint32_t token = first + i * CLASS_THREADS;
            if (levels[i] == PLEAT_LEVEL_HIGH) order[n_high + (r.before[i] & 0xFFFF)] = token;
            if (levels[i] == PLEAT_LEVEL_LOW) order[last - n_low - (r.before[i] >> 16)] = token;
        }
        n_high += r.all & 0xFFFF;
        n_low += r.all >> 16;
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    const uint32_t row = pleat__device_row_at(l, p.seq_idx, p.layer, head);
    l.pages.n_slots[0][row] = n_high;
    l.pages.n_slots[1][row] = n_low;
}

/* ---- made-up tokens -------------------------------------------------------------------------------------- */

/* SplitMix64's mixer. */
static __device__ inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Sums of four bytes: about normal, with a deviation of 1. */
static __device__ inline pleat__device_quad made_quad(uint64_t at) {
    pleat__device_quad q;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint64_t bits = mix(at + (i + 1) * 0x9E3779B97F4A7C15u);
        const uint32_t a = __dp4a((uint32_t)bits, 0x01010101u, 0u), b = __dp4a((uint32_t)(bits >> 32), 0x01010101u, 0u);
        q.x[i] = ((float)a - 510.0f) / 148.0f;
        q.x[i + 1] = ((float)b - 510.0f) / 148.0f;
    }
    return q;
}

/* Scores that stand about the thresholds. */
static __device__ inline float made_score(const pleat__device_lanes &l, uint64_t at, uint32_t position,
                                          uint32_t n_tokens) {
    const float u = (float)(uint32_t)(mix(at) >> 40) * 0x1p-24f;
    return 2 * u * l.policy.ah * (float)(n_tokens - 1 - position) / (float)n_tokens;
}

/* ---- place ----------------------------------------------------------------------------------------------- */

#define PLACE_WARPS 4

/* One tile's work. */
typedef struct tile_work {
    uint32_t row, head;
    int side;
    uint32_t first;    /* slot of the side that stands first in the tile */
    uint32_t n;        /* tokens in it, 1..16 */
    uint32_t position; /* of token threadIdx.x % 32, if there is one */
    bool is_dead;      /* it is dropped */
    uint32_t n_tokens; /* of the lane, as positions go */
    uint8_t *page;
    uint32_t tile; /* of the page */
} tile_work;

/* The warp's tile; false: there are no more. */
static __device__ inline bool find_work(const pleat__device_lanes &l, const pleat__device_prompt &p, bool made,
                                        tile_work *w) {
    w->head = blockIdx.x % l.n_kv_heads;
    w->row = pleat__device_row_at(l, p.seq_idx, p.layer, w->head);
    const uint32_t n_high = l.pages.n_slots[0][w->row], n_low = l.pages.n_slots[1][w->row];
    const uint32_t unit = blockIdx.x / l.n_kv_heads * PLACE_WARPS + threadIdx.x / 32, n_high_tiles = (n_high + 15) / 16;
    w->side = unit >= n_high_tiles;
    w->first = 16 * (w->side ? unit - n_high_tiles : unit);
    const uint32_t n_side = w->side ? n_low : n_high, thread = threadIdx.x % 32;
    if (w->first >= n_side) return false;
    w->n = min(16u, n_side - w->first);
    w->n_tokens = made ? n_high + n_low : p.n_tokens;
    const uint32_t slot = w->first + thread;
    w->position = 0;
    w->is_dead = false;
    if (thread < w->n && made) w->position = w->side ? slot : n_low + slot;
    if (thread < w->n && !made) {
        const uint32_t *order = l.order + (uint64_t)w->head * l.max_tokens;
        const uint32_t token = order[w->side ? p.n_tokens - 1 - slot : slot];
        w->position = token & ~PLEAT__ORDER_DEAD;
        w->is_dead = token & PLEAT__ORDER_DEAD;
    }
    const pleat__device_slot_bytes at = pleat__device_bytes_of(l, w->row, w->side, w->first);
    w->page = at.page;
    w->tile = at.slot / PLEAT__TILE;
    return true;
}

/* Rows of the tile's tokens, from keys or values. */
template <int D, bool MADE>
static __device__ inline void read_rows(const pleat__device_lanes &l, const tile_work &w, const void *from,
                                        uint64_t seed, pleat__device_rows<D> *rows) {
    const uint32_t t = pleat__device_team_thread<D>();
    rows->first = pleat__device_first_token<D>();
    rows->n = w.n;
#pragma unroll
    for (uint32_t i = 0; i < D / 8; i++) {
        const uint32_t token = rows->first + i;
        const uint32_t position = __shfl_sync(PLEAT__ALL_THREADS, w.position, token);
        rows->quads[i] = make_uint2(0, 0);
        if (token >= w.n) continue;
        if (MADE) {
            const uint64_t at = mix(seed + ((uint64_t)w.row << 32 | position));
            rows->quads[i] = pleat__device_quad_f16(made_quad(at + t));
        } else {
            const uint64_t row = (uint64_t)position * l.n_kv_heads + w.head;
            rows->quads[i] = ((const uint2 *)from)[row * (D / 4) + t];
        }
    }
}

template <int D> static __device__ inline void clamp_rows(pleat__device_rows<D> *rows) {
#pragma unroll
    for (int i = 0; i < D / 8; i++) rows->quads[i] = pleat__device_clamp_halves(rows->quads[i]);
}

/* Scores and positions of a tile; without a token 0 and -1.  A dropped one's is -1 too. */
static __device__ inline void write_tracked(const pleat__device_lanes &l, const pleat__device_prompt &p,
                                            const pleat__page_layout &layout, const tile_work &w, bool made,
                                            uint64_t seed) {
    const uint32_t thread = threadIdx.x % 32;
    if (!layout.tracked || thread >= PLEAT__TILE) return;
    const uint32_t slot = w.tile * PLEAT__TILE + thread;
    const bool is_there = thread < w.n;
    float score = 0;
    if (is_there && layout.n_scores)
        score = made ? made_score(l, seed + ((uint64_t)w.row << 32 | w.position), w.position, w.n_tokens)
                     : p.received[(uint64_t)w.head * p.n_tokens + w.position];
    if (layout.n_scores) pleat__device_scores(layout, w.page)[slot] = score;
    pleat__device_positions(layout, w.page)[slot] = is_there && !w.is_dead ? (int32_t)w.position : -1;
}

/* A rotated side's tile, one token after the other. */
template <int D, bool MADE>
static __device__ inline void place_rotated(const pleat__device_lanes &l, const pleat__page_layout &layout,
                                            const pleat__device_prompt &p, const tile_work &w, uint64_t seed) {
    pleat__device_clear_codes(layout, w.page, w.tile);
    for (uint32_t token = 0; token < w.n; token++) {
        const uint32_t position = __shfl_sync(PLEAT__ALL_THREADS, w.position, token);
        pleat__device_wide x[2];
        for (int which = 0; which < 2; which++) {
            const void *from = which ? p.v : p.k;
            const uint64_t row = (uint64_t)position * l.n_kv_heads + w.head;
            if (MADE) {
                const uint64_t at = mix((which ? ~seed : seed) + ((uint64_t)w.row << 32 | position));
                x[which] = {{made_quad(at + threadIdx.x % 32)}};
            } else {
                x[which] = pleat__device_wide_of((const uint2 *)from + row * (D / 4), D / 4);
            }
            pleat__device_wide_rotate(&x[which], D / 4);
            pleat__device_wide_clamp(&x[which]);
        }
        pleat__device_wide_put(layout, w.page, w.tile * PLEAT__TILE + token, x[0], x[1], D / 4);
        __syncwarp();
    }
}

template <int D, bool MADE>
static __global__ void __launch_bounds__(PLACE_WARPS * 32)
    place_tokens(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_prompt p,
                 uint64_t seed) {
    tile_work w;
    if (!find_work(l, p, MADE, &w)) return;
    const pleat__page_layout &layout = l.layouts[w.side];
    if (l.is_rotated) {
        place_rotated<D, MADE>(l, layout, p, w, seed);
        write_tracked(l, p, layout, w, MADE, mix(seed));
        return;
    }
    pleat__device_rows<D> k, v;
    read_rows<D, MADE>(l, w, p.k, seed, &k);
    read_rows<D, MADE>(l, w, p.v, ~seed, &v);
    clamp_rows<D>(&k);
    pleat__device_store_keys<D>(layout, w.page, w.tile, k);
    clamp_rows<D>(&v);
    pleat__device_store_values<D>(layout, w.page, w.tile, v);
    write_tracked(l, p, layout, w, MADE, mix(seed));
}

static __global__ void set_length(uint32_t *n_tokens, uint32_t n) { *n_tokens = n; }

/* ---- launchers ------------------------------------------------------------------------------------------- */

template <bool MADE>
static pleat_status launch_place(const pleat__device_lanes *l, const pleat__device_prompt *p, uint64_t seed,
                                 pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_tiles = p->n_tokens / PLEAT__TILE + 2; /* both sides may end in a part-filled one */
    const uint32_t grid =
        (n_tiles + PLACE_WARPS - 1) / PLACE_WARPS * l->n_kv_heads; /* a row's heads at about one time */
    if (l->head_dim == 128)
        place_tokens<128, MADE><<<grid, PLACE_WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p, seed);
    else
        place_tokens<64, MADE><<<grid, PLACE_WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p, seed);
    return PLEAT_CUDA_LAUNCHED("placing a prompt's tokens", err);
}

extern "C" pleat_status pleat__device_lanes_class(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                  pleat__device_stream stream, pleat_error *err) {
    class_tokens<<<l->n_kv_heads, CLASS_WARPS * 32, 0, pleat__cuda_stream(stream)>>>(*l, *p);
    return PLEAT_CUDA_LAUNCHED("classing a prompt's tokens", err);
}

extern "C" pleat_status pleat__device_lanes_place(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                  pleat__device_stream stream, pleat_error *err) {
    return launch_place<false>(l, p, 0, stream, err);
}

extern "C" pleat_status pleat__device_lanes_make(const pleat__device_lanes *l, const pleat__device_prompt *p,
                                                 uint64_t seed, pleat__device_stream stream, pleat_error *err) {
    return launch_place<true>(l, p, seed * 0x9E3779B97F4A7C15u, stream, err);
}

extern "C" pleat_status pleat__device_lanes_set_length(const pleat__device_lanes *l, uint32_t seq_idx,
                                                       uint32_t n_tokens, pleat__device_stream stream,
                                                       pleat_error *err) {
    set_length<<<1, 1, 0, pleat__cuda_stream(stream)>>>(l->n_tokens + seq_idx, n_tokens);
    return PLEAT_CUDA_LAUNCHED("setting a sequence's length", err);
}
