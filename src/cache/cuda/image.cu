/* SPDX-License-Identifier: MIT
 *
 * image.cu: whole pages of a sequence between the pool and one piece of memory, in the order of images.  A block has a
 * page: 16 bytes a thread and round.
 *
 * The CPU's cache seals pages, which hold means of scores then.  There are no seals here: they become sums again.
 */
#include "cache/cuda/lanes.cuh"

#define THREADS 256u

/* Row of the sequence that holds its page i: the last one with before[row] <= i. */
static __device__ inline uint32_t row_of(const uint32_t *before, uint32_t n_rows, uint32_t i) {
    uint32_t first = 0, n = n_rows;
    while (n > 1) {
        const uint32_t half = n / 2;
        if (before[first + half] <= i)
            first += half, n -= half;
        else
            n = half;
    }
    return first;
}

/* The page's means are sums again. */
static __device__ inline void unseal(const pleat__page_layout &layout, uint8_t *page, uint32_t n_tokens) {
    const int32_t *positions = pleat__device_positions(layout, page);
    float *scores = pleat__device_scores(layout, page);
    for (uint32_t i = threadIdx.x; i < layout.n_scores * layout.tokens; i += THREADS)
        scores[i] = __fmul_rn(scores[i], (float)(n_tokens - 1 - (uint32_t)positions[i % layout.tokens]));
}

template <bool BRINGS>
static __global__ void __launch_bounds__(THREADS)
    move_pages(const __grid_constant__ pleat__device_lanes l, const __grid_constant__ pleat__device_piece piece) {
    const uint32_t page = piece.first + blockIdx.x, n_rows = l.pages.rows_per_seq;
    const uint32_t of_seq = row_of(piece.before, n_rows, page), row = piece.seq_idx * n_rows + of_seq;
    const uint32_t i = page - piece.before[of_seq], tokens = l.pages.page_tokens[0];
    const uint32_t n_slots = l.pages.n_slots[0][row], n_high = n_slots / tokens + (n_slots % tokens != 0);
    const int side = i >= n_high;
    const uint32_t id = *pleat__device_cell(&l.pages, row, side, side ? i - n_high : i);
    uint4 *there = (uint4 *)(void *)(l.base + id * l.page_bytes);
    uint4 *here = (uint4 *)(void *)(piece.pages + blockIdx.x * piece.page_bytes);
    const uint32_t n_used = l.layouts[side].used_bytes / 16, n = (uint32_t)(piece.page_bytes / 16);
    for (uint32_t at = threadIdx.x; at < n; at += THREADS) {
        if (BRINGS)
            here[at] = at < n_used ? there[at] : make_uint4(0, 0, 0, 0);
        else if (at < n_used)
            there[at] = here[at];
    }
    if (BRINGS || !piece.sealed || !l.layouts[side].tracked) return;
    if ((side ? i - n_high : i) >= piece.sealed[side * n_rows + of_seq]) return;
    __syncthreads();
    unseal(l.layouts[side], (uint8_t *)there, piece.n_tokens);
}

extern "C" pleat_status pleat__device_lanes_bring(const pleat__device_lanes *l, const pleat__device_piece *piece,
                                                  pleat__device_stream stream, pleat_error *err) {
    move_pages<true><<<piece->n, THREADS, 0, pleat__cuda_stream(stream)>>>(*l, *piece);
    return PLEAT_CUDA_LAUNCHED("gathering a sequence's pages", err);
}

extern "C" pleat_status pleat__device_lanes_put(const pleat__device_lanes *l, const pleat__device_piece *piece,
                                                pleat__device_stream stream, pleat_error *err) {
    move_pages<false><<<piece->n, THREADS, 0, pleat__cuda_stream(stream)>>>(*l, *piece);
    return PLEAT_CUDA_LAUNCHED("putting a sequence's pages back", err);
}
