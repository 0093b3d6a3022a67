/* SPDX-License-Identifier: MIT
 *
 * blocks.cu: cold tokens of lanes become blocks: cache/keep/blocks.c and block_writer.c on a GPU.
 *
 * A block of 64 tokens empties whole high pages, and its payload is no larger than they are.  So they become low pages
 * of the same row, and compressing takes no page from the pool; what is left over is returned by trim:
 *
 *     row before   | p0 p1 p2 p3 p4 p5 ->         <- q0 |     p0..p3 held the block
 *     row after    | p4 p5 ->         <- p3 p2 p1 p0 q0 |     the payload stands behind the last one, in q0 and p0
 *
 * Rows have room for all pages of the longest sequence on each side, so neither meets the other.  Sinks move from the
 * first page to the one that becomes the first, into the slots that the block's last tokens have left.
 *
 *     a step     a thread block for each lane of the batch: most have nothing to do
 *     a prompt   one for each block of a layer, which leaves its payload in the workspace; then one for each lane
 */
#include "cache/cuda/lanes.cuh"
#include "codec/cuda/pack_encode.cuh"

#define THREADS PLEAT__PACK_THREADS
#define TOKENS PLEAT__PACK_TOKENS
#define SLOT_BYTES 16u

/* Tokens from high slot `first` on, to a thread block's shared memory. */
template <int D> struct load_tokens {
    const pleat__device_lanes &l;
    uint32_t row, first;
    __device__ void operator()(pleat__pack_work<D> *w, bool is_values) const {
        const uint32_t t = pleat__device_team_thread<D>();
        for (uint32_t token = threadIdx.x / 32; token < TOKENS; token += PLEAT__PACK_WARPS) {
            const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 0, first + token);
            const pleat__device_quad quad = is_values ? pleat__device_load_value<D>(l.layouts[0], at.page, at.slot)
                                                      : pleat__device_load_key<D>(l.layouts[0], at.page, at.slot);
            if (!pleat__device_in_first_team<D>()) continue;
            for (int i = 0; i < 4; i++) w->x[token * D + 4 * t + i] = quad.x[i];
        }
    }
};

/* ---- rows ----------------------------------------------------------------------------------------------- */

/* Sinks are copied to where they will stand once n_pages high pages are empty. */
template <int D>
static __device__ inline void move_sinks(const pleat__device_lanes &l, uint32_t row, uint32_t n_pages) {
    uint8_t *from = l.base + *pleat__device_cell(&l.pages, row, 0, 0) * l.page_bytes;
    uint8_t *to = l.base + *pleat__device_cell(&l.pages, row, 0, n_pages) * l.page_bytes;
    for (uint32_t i = 0; i < l.policy.sinks && threadIdx.x < 32; i++) {
        pleat__device_copy_token<D>(l.layouts[0], to, i, from, i, pleat__device_in_first_team<D>());
        __syncwarp();
    }
}

/* The first n high pages become the last n low ones. */
static __device__ inline void move_pages(const pleat__device_lanes &l, uint32_t row, uint32_t n) {
    const pleat__device_pages *p = &l.pages;
    const uint32_t n_high = p->n_pages[0][row], n_low = p->n_pages[1][row];
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        *pleat__device_cell(p, row, 1, n_low + i) = *pleat__device_cell(p, row, 0, i);
    __syncthreads();
    for (uint32_t base = 0; base + n < n_high; base += THREADS) {
        const uint32_t i = base + threadIdx.x, id = i + n < n_high ? *pleat__device_cell(p, row, 0, i + n) : 0;
        __syncthreads();
        if (i + n < n_high) *pleat__device_cell(p, row, 0, i) = id;
        __syncthreads();
    }
    if (threadIdx.x == 0) p->n_pages[0][row] = n_high - n;
    if (threadIdx.x == 0) p->n_pages[1][row] = n_low + n;
}

/* A payload, aligned to 16, to the low side from slot `first` on. */
static __device__ inline void put_payload(const pleat__device_lanes &l, uint32_t row, uint32_t first,
                                          const uint8_t *payload, uint32_t n_slots) {
    for (uint32_t i = threadIdx.x; i < n_slots; i += THREADS) {
        const pleat__device_slot_bytes at = pleat__device_bytes_of(l, row, 1, first + i);
        *(uint4 *)(void *)(at.page + SLOT_BYTES * at.slot) = *(const uint4 *)(const void *)(payload + SLOT_BYTES * i);
    }
}

static __device__ inline uint32_t slots_for(uint32_t n_bytes) { return (n_bytes + SLOT_BYTES - 1) / SLOT_BYTES; }

static __device__ inline uint32_t pages_of(const pleat__device_lanes &l, uint32_t n_blocks) {
    return n_blocks * TOKENS / l.layouts[0].tokens;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

template <int D>
static __global__ void __launch_bounds__(THREADS) compress(const __grid_constant__ pleat__device_lanes l) {
    extern __shared__ __align__(16) uint8_t shared[];
    pleat__pack_work<D> *w = (pleat__pack_work<D> *)(void *)shared;
    const uint32_t row = pleat__device_lane_row(&l.pages, blockIdx.x), n_slots = l.pages.n_slots[0][row];
    const uint32_t sinks = l.policy.sinks, buffer = l.blocks.buffer > TOKENS - 1 ? l.blocks.buffer : TOKENS - 1;
    if (n_slots <= sinks + buffer) return;
    const uint32_t n_bytes = pleat__pack_encode<D>(w, l.blocks.coder, load_tokens<D>{l, row, sinks});
    const uint32_t block = l.blocks.n_blocks[row], first = l.pages.n_slots[1][row], end = first + slots_for(n_bytes);
    move_sinks<D>(l, row, pages_of(l, 1));
    __syncthreads();
    move_pages(l, row, pages_of(l, 1));
    __syncthreads();
    put_payload(l, row, first, w->payload, end - first);
    if (threadIdx.x > 0) return;
    l.blocks.ends[(uint64_t)row * l.blocks.ends_cap + block] = end;
    l.blocks.n_blocks[row] = block + 1;
    l.pages.n_slots[0][row] = n_slots - TOKENS;
    l.pages.n_slots[1][row] = end;
}

/* ---- a prompt ------------------------------------------------------------------------------------------- */

/* Payload of a block of a layer's prompt in the workspace. */
static __device__ inline uint64_t prompt_block(const pleat__device_lanes &l, uint32_t head, uint32_t block) {
    return (uint64_t)head * l.blocks.ends_cap + block;
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    encode_prompt(const __grid_constant__ pleat__device_lanes l, uint32_t seq_idx, uint32_t layer) {
    extern __shared__ __align__(16) uint8_t shared[];
    pleat__pack_work<D> *w = (pleat__pack_work<D> *)(void *)shared;
    const uint32_t head = blockIdx.y, row = pleat__device_row_at(l, seq_idx, layer, head);
    const uint64_t at = prompt_block(l, head, blockIdx.x);
    const uint32_t first = l.policy.sinks + blockIdx.x * TOKENS;
    const uint32_t n_bytes = pleat__pack_encode<D>(w, l.blocks.coder, load_tokens<D>{l, row, first});
    uint4 *to = (uint4 *)(void *)(l.blocks.payloads + at * l.blocks.coder.cap_bytes);
    for (uint32_t i = threadIdx.x; i < slots_for(n_bytes); i += THREADS)
        to[i] = ((const uint4 *)(const void *)w->payload)[i];
    if (threadIdx.x == 0) l.blocks.sizes[at] = n_bytes;
}

/* Where the lane's blocks end; returns the last one's. */
static __device__ inline uint32_t put_ends(const pleat__device_lanes &l, uint32_t row, uint32_t head,
                                           uint32_t n_blocks) {
    __shared__ uint32_t sums[PLEAT__PACK_WARPS];
    uint32_t before = 0;
    for (uint32_t base = 0; base < n_blocks; base += THREADS) {
        const uint32_t block = base + threadIdx.x;
        uint32_t end =
            pleat__warp_prefix(block < n_blocks ? slots_for(l.blocks.sizes[prompt_block(l, head, block)]) : 0);
        __syncthreads();
        if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = end;
        __syncthreads();
        for (uint32_t i = 0; i < PLEAT__PACK_WARPS; i++)
            if (i < threadIdx.x / 32) end += sums[i];
        if (block < n_blocks) l.blocks.ends[(uint64_t)row * l.blocks.ends_cap + block] = before + end;
        for (uint32_t i = 0; i < PLEAT__PACK_WARPS; i++) before += sums[i];
    }
    __syncthreads();
    return before;
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    commit_prompt(const __grid_constant__ pleat__device_lanes l, uint32_t seq_idx, uint32_t layer, uint32_t n_blocks) {
    const uint32_t head = blockIdx.x, row = pleat__device_row_at(l, seq_idx, layer, head);
    const uint32_t *ends = l.blocks.ends + (uint64_t)row * l.blocks.ends_cap;
    const uint32_t end = put_ends(l, row, head, n_blocks);
    move_sinks<D>(l, row, pages_of(l, n_blocks));
    __syncthreads();
    move_pages(l, row, pages_of(l, n_blocks));
    __syncthreads();
    for (uint32_t block = 0; block < n_blocks; block++) {
        const uint32_t first = block > 0 ? ends[block - 1] : 0;
        put_payload(l, row, first, l.blocks.payloads + prompt_block(l, head, block) * l.blocks.coder.cap_bytes,
                    ends[block] - first);
    }
    if (threadIdx.x > 0) return;
    l.blocks.n_blocks[row] = n_blocks;
    l.pages.n_slots[0][row] -= n_blocks * TOKENS;
    l.pages.n_slots[1][row] = end;
}

/* ---- launchers ------------------------------------------------------------------------------------------ */

template <int D> static pleat_status compress_by(const pleat__device_lanes *l, cudaStream_t stream, pleat_error *err) {
    const int bytes = sizeof(pleat__pack_work<D>);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(compress<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "compressing a step's tokens", err);
    compress<D><<<l->pages.n_seqs * l->pages.rows_per_seq, THREADS, bytes, stream>>>(*l);
    return PLEAT_CUDA_LAUNCHED("compressing a step's tokens", err);
}

extern "C" pleat_status pleat__device_lanes_compress(const pleat__device_lanes *l, pleat__device_stream stream,
                                                     pleat_error *err) {
    return l->head_dim == 128 ? compress_by<128>(l, pleat__cuda_stream(stream), err)
                              : compress_by<64>(l, pleat__cuda_stream(stream), err);
}

template <int D>
static pleat_status compress_prompt_by(const pleat__device_lanes *l, uint32_t seq_idx, uint32_t layer,
                                       uint32_t n_blocks, cudaStream_t stream, pleat_error *err) {
    const int bytes = sizeof(pleat__pack_work<D>);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(encode_prompt<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "compressing a prompt", err);
    encode_prompt<D><<<dim3(n_blocks, l->n_kv_heads), THREADS, bytes, stream>>>(*l, seq_idx, layer);
    PLEAT_TRY(PLEAT_CUDA_LAUNCHED("compressing a prompt", err));
    commit_prompt<D><<<l->n_kv_heads, THREADS, 0, stream>>>(*l, seq_idx, layer, n_blocks);
    return PLEAT_CUDA_LAUNCHED("compressing a prompt", err);
}

extern "C" pleat_status pleat__device_lanes_compress_prompt(const pleat__device_lanes *l, uint32_t seq_idx,
                                                            uint32_t layer, uint32_t n_blocks,
                                                            pleat__device_stream stream, pleat_error *err) {
    if (n_blocks == 0) return PLEAT_OK;
    return l->head_dim == 128 ? compress_prompt_by<128>(l, seq_idx, layer, n_blocks, pleat__cuda_stream(stream), err)
                              : compress_prompt_by<64>(l, seq_idx, layer, n_blocks, pleat__cuda_stream(stream), err);
}
