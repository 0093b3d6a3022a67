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

/* ---- slots without a token --------------------------------------------------------------------------- */

/* Which bits of byte i of a tile of codes are of tokens before `end`: quant/layout.h says where tokens stand.  Of 3 bits
 * the low two come first, and then for each 64 bytes of these the thirds of two bytes to a byte. */
static __device__ inline uint32_t key_bits(uint32_t k_bits, uint32_t head_dim, uint32_t i, uint32_t end) {
    if (k_bits == 3 && i >= 4 * head_dim) {
        const uint32_t token = i % 32 / 4;
        return (token < end ? 0x0F : 0) | (token + PLEAT__TILE / 2 < end ? 0xF0 : 0);
    }
    const uint32_t token = k_bits == 16 ? i / 2 % PLEAT__TILE : i / 4 % PLEAT__TILE;
    return token < end ? 0xFF : 0;
}
static __device__ inline uint32_t value_bits(uint32_t v_bits, uint32_t head_dim, uint32_t i, uint32_t end) {
    if (v_bits == 16) return i / (2 * head_dim) < end ? 0xFF : 0;
    const uint32_t j = i % 4, group = i / (4 * head_dim);
    if (v_bits == 8) return 4 * group + j < end ? 0xFF : 0;
    if (v_bits == 4) return (8 * group + j < end ? 0x0F : 0) | (8 * group + 4 + j < end ? 0xF0 : 0);
    const bool are_thirds = v_bits == 3 && i >= 4 * head_dim;
    uint32_t bits = 0;
    for (uint32_t p = 0; p < 4; p++)
        if (4 * p + j < end) bits |= are_thirds ? 0x11u << p : 3u << 2 * p;
    return bits;
}

/* Of a tile's scales and, where there are any, minimums. */
static __device__ inline void clear_meta(uint16_t *meta, uint32_t n, uint32_t end) {
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        if (i % PLEAT__TILE >= end) meta[i] = 0;
}

/* The slots of a tile from `end` on, of its 16, are cleared: by the whole block. */
static __device__ inline void clear_slots(const pleat__page_layout &l, uint32_t head_dim, uint8_t *page, uint32_t tile,
                                          uint32_t end) {
    uint8_t *keys = pleat__device_k_tile(l, page, tile), *values = pleat__device_v_tile(l, page, tile);
    for (uint32_t i = threadIdx.x; i < l.k_tile_bytes; i += THREADS)
        keys[i] &= key_bits(l.format.k_bits, head_dim, i, end);
    for (uint32_t i = threadIdx.x; i < l.v_tile_bytes; i += THREADS)
        values[i] &= value_bits(l.format.v_bits, head_dim, i, end);
    if (l.format.k_bits <= 8) {
        const uint32_t n = l.format.rotated ? PLEAT__TILE : 2 * PLEAT__TILE;
        clear_meta(pleat__device_k_meta(l, page, tile), n, end);
        clear_meta(pleat__device_v_meta(l, page, tile), n, end);
    }
    if (!l.tracked || threadIdx.x >= PLEAT__TILE || threadIdx.x < end) return;
    const uint32_t slot = tile * PLEAT__TILE + threadIdx.x;
    pleat__device_positions(l, page)[slot] = -1;
    for (uint32_t h = 0; h < l.n_scores; h++) pleat__device_scores(l, page)[h * l.tokens + slot] = 0;
}

/* A page of n tokens holds nothing else. */
static __device__ inline void clean(const pleat__page_layout &l, uint32_t head_dim, uint8_t *page, uint32_t n) {
    for (uint32_t tile = n / PLEAT__TILE; tile < l.tokens / PLEAT__TILE; tile++)
        clear_slots(l, head_dim, page, tile, n > tile * PLEAT__TILE ? n - tile * PLEAT__TILE : 0);
}

/* Zeros between segments, which begin at multiples of 64 bytes: rotated formats end before. */
static __device__ inline void clear_gap(uint8_t *page, uint32_t end, uint32_t next) {
    for (uint32_t i = end + threadIdx.x; i < next; i += THREADS) page[i] = 0;
}
static __device__ inline void clear_gaps(const pleat__page_layout &l, uint8_t *page) {
    const uint32_t n = l.tokens / PLEAT__TILE, meta_bytes = n * pleat__device_meta_bytes(l);
    const uint32_t last = l.n_scores > 0 ? l.score_off : l.tracked ? l.pos_off : l.used_bytes;
    clear_gap(page, l.k_off + n * l.k_tile_bytes, l.k_meta_off);
    clear_gap(page, l.k_meta_off + meta_bytes, l.v_off);
    clear_gap(page, l.v_off + n * l.v_tile_bytes, l.v_meta_off);
    clear_gap(page, l.v_meta_off + meta_bytes, last);
}

/* ---- pages ------------------------------------------------------------------------------------------- */

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
    const uint32_t idx = side ? i - n_high : i, cap = l.layouts[side].tokens;
    if (BRINGS) {
        const uint32_t n_here = l.pages.n_slots[side][row] - idx * cap;
        __syncthreads();
        if (l.layouts[side].format.rotated) clear_gaps(l.layouts[side], (uint8_t *)here);
        if (n_here >= cap) return;
        clean(l.layouts[side], l.head_dim, (uint8_t *)here, n_here);
    } else if (piece.sealed && l.layouts[side].tracked && idx < piece.sealed[side * n_rows + of_seq]) {
        __syncthreads();
        unseal(l.layouts[side], (uint8_t *)there, piece.n_tokens);
    }
}

/* ---- sums -------------------------------------------------------------------------------------------- */

/* A thread for each of a block's eight numbers.  Words begin at any byte: each is put together from two. */
static __global__ void __launch_bounds__(THREADS) sum_blocks(const __grid_constant__ pleat__device_sums of) {
    __shared__ uint64_t key[PLEAT__HASH_WORDS];
    if (threadIdx.x < PLEAT__HASH_WORDS) key[threadIdx.x] = of.key[threadIdx.x];
    __syncthreads();
    const uint64_t number = (uint64_t)blockIdx.x * THREADS + threadIdx.x, block = number / PLEAT__HASH_SUMS;
    const uint32_t l = number % PLEAT__HASH_SUMS, shift = of.at % 8 * 8;
    const uint64_t *words = (const uint64_t *)(const void *)(of.pages + of.at / 8 * 8) + l;
    uint64_t plain = 0, products = 0;
    if (block < of.n) {
        words += block * (PLEAT__HASH_BLOCK / 8);
#pragma unroll
        for (uint32_t i = 0; i < PLEAT__HASH_BLOCK / 64; i++) {
            const uint64_t low = words[8 * i], high = shift ? words[8 * i + 1] << (64 - shift) : 0;
            const uint64_t word = low >> shift | high, w = word ^ key[i + l];
            plain += word;
            products += (w & 0xFFFFFFFFu) * (w >> 32);
        }
    }
    const uint64_t other = __shfl_xor_sync(PLEAT__ALL_THREADS, (unsigned long long)plain, 1);
    if (block < of.n) of.sums[number] = products + other;
}

extern "C" pleat_status pleat__device_lanes_sum(const pleat__device_sums *of, pleat__device_stream stream,
                                                pleat_error *err) {
    if (of->n == 0) return PLEAT_OK;
    const uint64_t n_blocks = (of->n * PLEAT__HASH_SUMS + THREADS - 1) / THREADS;
    sum_blocks<<<(uint32_t)n_blocks, THREADS, 0, pleat__cuda_stream(stream)>>>(*of);
    return PLEAT_CUDA_LAUNCHED("summing an image's blocks", err);
}

#define WARP 32u
#define BATCH 64u                                      /* blocks at a time */
#define AHEAD 8u                                       /* of them in registers before they are needed */
#define QUARTERS (BATCH * PLEAT__HASH_SUMS / 2 / WARP) /* of a batch's words, two by two: a thread's */

static __device__ inline void fetch_sums(ulonglong2 *own, const pleat__device_chain &of, uint64_t first) {
    const ulonglong2 *from = (const ulonglong2 *)(const void *)(of.sums + first * PLEAT__HASH_SUMS);
    const uint64_t n = first < of.n ? (of.n - first) * PLEAT__HASH_SUMS / 2 : 0;
#pragma unroll
    for (uint32_t i = 0; i < QUARTERS; i++) {
        const uint32_t at = i * WARP + threadIdx.x;
        own[i] = at < n ? from[at] : make_ulonglong2(0, 0);
    }
}

static __device__ inline uint64_t stirred(uint64_t x, uint64_t key) { return x ^ x >> 47 ^ key; }

/* What was stirred, times the prime and with more added, is stirred.  Three instructions stand between one number and the
 * next: shift, xor, and a product of 32 bits that adds 64; the upper half's product is in what it adds.  In PTX, since the
 * compiler makes a product of 64 bits of it again, which is eight in a row. */
static __device__ inline uint64_t go_on(uint64_t before, uint64_t more, uint64_t key) {
    uint32_t high;
    uint64_t x;
    asm("mad.lo.u32 %0, %1, %2, %3;"
        : "=r"(high)
        : "r"((uint32_t)(before >> 32)), "r"(PLEAT__HASH_PRIME), "r"((uint32_t)(more >> 32)));
    asm("mad.wide.u32 %0, %1, %2, %3;"
        : "=l"(x)
        : "r"((uint32_t)before), "r"(PLEAT__HASH_PRIME), "l"((uint64_t)high << 32 | (uint32_t)more));
    return stirred(x, key);
}

/* A whole batch; words are loaded eight blocks ahead, since shared memory takes longer than a step of the chain. */
static __device__ inline uint64_t stir_batch(uint64_t x, const uint64_t *words, uint64_t key) {
    uint64_t ahead[AHEAD];
#pragma unroll
    for (uint32_t k = 0; k < AHEAD; k++) ahead[k] = words[k * PLEAT__HASH_SUMS];
#pragma unroll
    for (uint32_t i = 0; i < BATCH; i += AHEAD) {
        uint64_t now[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            now[k] = ahead[k];
            if (i + AHEAD < BATCH) ahead[k] = words[(i + AHEAD + k) * PLEAT__HASH_SUMS];
        }
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) x = go_on(x, now[k], key);
    }
    return x;
}

/* A warp, whose threads bring the next batch while eight numbers go through this one, each in four threads alike. */
static __global__ void __launch_bounds__(WARP) stir_blocks(const __grid_constant__ pleat__device_chain of) {
    __shared__ __align__(16) uint64_t batch[BATCH * PLEAT__HASH_SUMS];
    const uint32_t l = threadIdx.x % PLEAT__HASH_SUMS;
    const uint64_t key = of.key[l];
    ulonglong2 own[QUARTERS];
    uint64_t x = stirred(of.state[l] + of.sums[l], key);
    fetch_sums(own, of, 1);
    for (uint64_t first = 1; first < of.n; first += BATCH) {
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < QUARTERS; i++) ((ulonglong2 *)(void *)batch)[i * WARP + threadIdx.x] = own[i];
        __syncwarp();
        fetch_sums(own, of, first + BATCH);
        if (of.n - first >= BATCH)
            x = stir_batch(x, batch + l, key);
        else
            for (uint32_t i = 0; i < of.n - first; i++) x = go_on(x, batch[i * PLEAT__HASH_SUMS + l], key);
    }
    if (threadIdx.x < PLEAT__HASH_SUMS) of.state[l] = x * PLEAT__HASH_PRIME;
}

extern "C" pleat_status pleat__device_lanes_stir(const pleat__device_chain *of, pleat__device_stream stream,
                                                 pleat_error *err) {
    if (of->n == 0) return PLEAT_OK;
    stir_blocks<<<1, WARP, 0, pleat__cuda_stream(stream)>>>(*of);
    return PLEAT_CUDA_LAUNCHED("stirring an image's sums", err);
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
