/* SPDX-License-Identifier: MIT
 *
 * blocks.cuh: the kernel of blocks.h, for keys and for values alike, and how it is launched.
 *
 *     shared memory   table | zeros | for each warp: ring, weights, heads' scale and middle, sums of values
 *
 * A warp decodes 16 columns of 16 rows at a time, a *square*: 4 symbols of two codes a thread, or 8 of one.  A thread's
 * 8 codes are of one row, thread / 2, so those of 4 threads are two half rows.  For the tensor cores they are one
 * column of B.  Each of the two gets a row of weights in A for itself (blocks_weights.cuh), which is zero where the
 * other's codes are:
 *
 *     A  row i         high (i < 8) or low limb of head i % 4, for the first (i / 4 even) or second of the two rows
 *     B  column n      codes of threads 4n, 4n+1 (row 2n) and 4n+2, 4n+3 (row 2n+1)
 *     C  of a thread   both limbs of head thread/4 % 4 in rows 4*(thread%4) + thread/16 and 2 more
 *
 * So m16n8k32 takes a square and four heads: there is a kernel for 4 heads, and one for 8 that takes two.  The order of
 * codes along k is the threads' own: their bytes are, with c = 2 * (thread % 2), columns c, c+4, c+1, c+5, and 8 more
 * for the second half of a square.  Weights are put in the same order.
 *
 * Issue slots are what it takes: of about 1500 instructions that a block of 64 tokens has a warp (d 128, pairs), 950
 * decode and multiply.  32 x 8 lanes of 8192 tokens, d 128, 5 levels, one head, take 82 us (keys) and 86 (values) on an
 * H200, cuBLAS in f16 136 and 134 (November 2026).
 */
#ifndef PLEAT_CODEC_CUDA_BLOCKS_CUH
#define PLEAT_CODEC_CUDA_BLOCKS_CUH

#include "codec/cuda/blocks_weights.cuh"

/* Two thread blocks a multiprocessor, with all the threads that it has. */
#define BLOCKS_AN_SM 2
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
#define MAX_THREADS 768u
#else
#define MAX_THREADS 1024u
#endif
#define HEADS_BYTES (2 * 4 * PLEAT__BLOCK_GROUP_MAX)

/* ---- shared memory ----------------------------------------------------------------------------------- */

typedef struct shared_plan {
    uint32_t zeros_at, warps_at, warp_bytes; /* the table is at 0 */
    uint32_t weights_at, heads_at, sums_at;  /* in a warp's part; its ring is at 0 */
} shared_plan;

static __host__ __device__ inline shared_plan plan_of(const pleat__device_matrices &m, uint32_t n_quads,
                                                      uint32_t n_group, bool is_values) {
    const uint32_t weights_bytes = m.columns / 16 * QUAD_BYTES * n_quads;
    shared_plan s;
    s.zeros_at = 128u << m.max_bits;
    s.warps_at = s.zeros_at + weights_bytes;
    s.weights_at = PLEAT__RING_BYTES;
    s.heads_at = s.weights_at + weights_bytes;
    s.sums_at = s.heads_at + HEADS_BYTES;
    s.warp_bytes = s.sums_at + (is_values ? 4 * m.rows * n_group : 0);
    return s;
}

/* ---- squares ------------------------------------------------------------------------------------------- */

/* Add the products of a square's codes. */
template <int QUADS>
static __device__ __forceinline__ void multiply_square(const uint32_t *codes, uint32_t weights, int (*sums)[4]) {
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        uint32_t a[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(weights + i * QUAD_BYTES));
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(codes[0]), "r"(codes[1]));
    }
}

/* The next square of a stream. */
template <int KIND> static __device__ __forceinline__ void decode_square(pleat__warp_words *s, uint32_t *codes) {
    uint32_t e[4];
    if constexpr (KIND == PLEAT__CODEBOOK_PAIRS) {
        pleat__warp_group_4(s, e);
        codes[0] = __byte_perm(e[0], e[1], 0x7632);
        codes[1] = __byte_perm(e[2], e[3], 0x7632);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (KIND == PLEAT__CODEBOOK_NARROW) {
                pleat__warp_group_4(s, e);
            } else {
                pleat__warp_group_2(s, e);
                pleat__warp_group_2(s, e + 2);
                if (i == 0) pleat__ring_check(s);
            }
            codes[i] = __byte_perm(__byte_perm(e[0], e[2], 0x0062), __byte_perm(e[1], e[3], 0x0062), 0x5410);
        }
    }
}

/* What a block's codes are multiplied with, and where its rows' sums go: a thread's two rows of every slice of 16, and
 * its heads, QUADS of them.  Addresses are in shared memory. */
typedef struct block_rows {
    uint32_t weights; /* this thread's of the first square */
    uint32_t head;    /* the thread's first; the second is 4 more */
    uint32_t scales;  /* address of the first head's scale and middle */
    uint32_t sums;    /* values: of the first slice's first row and first head; the second row is 2 more */
    float *out;       /* keys: of the first row and first head */
} block_rows;

static __device__ __forceinline__ void add_shared(uint32_t at, float x) {
    float sum;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sum) : "r"(at));
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum + x) : "memory");
}

/* A slice of 16 rows is done. */
template <int QUADS, bool VALUES>
static __device__ __forceinline__ void end_slice(const pleat__device_product &p, const block_rows &r, uint32_t sums_at,
                                                 float *out, int (*sums)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < QUADS; i++) {
        const int first = sums[i][0] * 256 + sums[i][2], second = sums[i][1] * 256 + sums[i][3];
        if (r.head + 4 * i < p.n_group) {
            float scale, middle;
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(scale), "=f"(middle) : "r"(r.scales + 32 * i));
            if (VALUES) {
                add_shared(sums_at + 256 * i, scale * (float)first);
                add_shared(sums_at + 256 * i + 8, scale * (float)second);
            } else {
                out[4 * i * p.stride] = middle + scale * (float)first;
                out[4 * i * p.stride + 2] = middle + scale * (float)second;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) sums[i][k] = 0;
    }
}

/* N squares, and what they do to `weights`, this thread's of the first. */
template <int KIND, int QUADS, int N>
static __device__ __forceinline__ void add_squares(pleat__warp_words *s, uint32_t *weights, int (*sums)[4]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t codes[2];
        decode_square<KIND>(s, codes);
        multiply_square<QUADS>(codes, *weights + i * (QUADS * QUAD_BYTES), sums);
    }
    *weights += N * (QUADS * QUAD_BYTES);
    pleat__ring_check(s);
}

template <int KIND, int QUADS, bool VALUES, int COLUMNS>
static __device__ __forceinline__ void decode_rows(const pleat__device_matrices &m, const pleat__device_product &p,
                                                   pleat__warp_words *s, const block_rows &r) {
    constexpr int N = KIND == PLEAT__CODEBOOK_PAIRS ? 2 : 1; /* from check to check */
    int sums[QUADS][4] = {};
    uint32_t sums_at = r.sums;
    float *out = r.out;
#pragma unroll 1
    for (uint32_t slice = m.rows / 16; slice > 0; slice--) {
        uint32_t weights = r.weights, left = columns_of<COLUMNS>(m) / 16;
#pragma unroll 1
        for (; left >= 2 * N; left -= 2 * N) {
            add_squares<KIND, QUADS, N>(s, &weights, sums);
            add_squares<KIND, QUADS, N>(s, &weights, sums);
        }
#pragma unroll 1
        for (; left > 0; left--) add_squares<KIND, QUADS, 1>(s, &weights, sums);
        end_slice<QUADS, VALUES>(p, r, sums_at, out, sums);
        sums_at += 64 * p.n_group;
        out += 16;
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void fill_shared(const pleat__device_matrices &m, const shared_plan &plan,
                                                   uint8_t *shared, bool has_sums) {
    uint32_t *words = (uint32_t *)shared;
    const uint32_t n_table = plan.zeros_at / 4, n_zeros = plan.warps_at / 4;
    for (uint32_t i = threadIdx.x; i < n_zeros; i += blockDim.x) words[i] = i < n_table ? __ldg(m.table + i / 32) : 0;
    if (!has_sums) return;
    float *sums = (float *)(shared + plan.warps_at + threadIdx.x / 32 * plan.warp_bytes + plan.heads_at);
    for (uint32_t i = threadIdx.x % 32; i < (plan.warp_bytes - plan.heads_at) / 4; i += 32) sums[i] = 0;
}

/* Sums of values of all warps, in their order. */
static __device__ __forceinline__ void add_warps(const pleat__device_matrices &m, const shared_plan &plan,
                                                 const uint8_t *shared, float *out, uint32_t n_group) {
    const uint32_t n_warps = blockDim.x / 32;
    for (uint32_t i = threadIdx.x; i < m.rows * n_group; i += blockDim.x) {
        const uint32_t head = i / 16 % n_group;
        const uint8_t *at = shared + plan.warps_at;
        float sum = 0;
        for (uint32_t warp = 0; warp < n_warps; warp++, at += plan.warp_bytes)
            sum += *(const float *)(at + plan.sums_at + 4 * i) + *(const float *)(at + plan.heads_at + 8 * head + 4);
        out[head * m.rows + i / 16 / n_group * 16 + i % 16] = sum;
    }
}

template <int KIND, int QUADS, bool VALUES, int COLUMNS>
static __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_AN_SM)
    product_kernel(const __grid_constant__ pleat__device_matrices m, const __grid_constant__ pleat__device_product p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const shared_plan plan = plan_of(m, QUADS, p.n_group, VALUES);
    const uint32_t thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint8_t *mine = shared + plan.warps_at + warp * plan.warp_bytes;
    const pleat__device_task task = m.tasks[blockIdx.x];
    pleat__warp_words s;
    pleat__warp_words_init(&s, (const uint32_t *)shared, m.max_bits, m.one, m.words);
    const uint32_t base = pleat__shared_address(mine);
    block_rows r;
    r.head = thread / 4 % 4;
    const uint32_t bank = (r.head * 2 + thread % 2) * 16; /* zeros are read from others */
    r.weights = kept(thread / 2 % 2 == thread / 16 ? base + plan.weights_at + bank
                                                   : pleat__shared_address(shared) + plan.zeros_at + (bank ^ 64));
    const uint32_t first_row = thread % 4 * 4 + thread / 16;
    r.sums = kept(base + plan.sums_at + r.head * 64 + first_row * 4);
    r.scales = kept(base + plan.heads_at + 8 * r.head);
    r.head = kept(r.head);
    r.out = nullptr;
    const word_place place = place_word<QUADS, COLUMNS>(m, base + plan.weights_at);
    const uint32_t n_warps = blockDim.x / 32;
    const uint32_t from = task.n_blocks * warp / n_warps, to = task.n_blocks * (warp + 1) / n_warps;
    const uint64_t row = (uint64_t)task.lane * p.n_group;
    pleat__warp_words_begin(&s, m.sections[task.first + from].words * 4, base);
    fill_shared(m, plan, shared, VALUES); /* while the first codes are on their way */
    __syncthreads();
    pleat__ring_wait();
#pragma unroll 1
    for (uint32_t i = from; pleat__warp_all(i < to); i++) {
        const pleat__device_section section = m.sections[task.first + i];
        const uint64_t token = (uint64_t)(task.index + i) * (VALUES ? columns_of<COLUMNS>(m) : m.rows);
        const float *x = VALUES ? p.x + row * p.stride + token : p.x + row * columns_of<COLUMNS>(m);
        const uint8_t *units = m.units + (uint64_t)section.units * 16;
        const uint64_t x_stride = VALUES ? p.stride : columns_of<COLUMNS>(m);
        if (columns_of<COLUMNS>(m) <= 128)
            make_weights<QUADS, VALUES, COLUMNS>(m, p.n_group, x, x_stride, units, section.is_wide, place,
                                                 base + plan.heads_at);
        else
            make_many_weights<QUADS, VALUES>(m, p.n_group, x, x_stride, units, section.is_wide, base + plan.weights_at,
                                             base + plan.heads_at);
        if (!VALUES) r.out = p.out + (row + r.head) * p.stride + token + first_row;
        pleat__warp_words_start(&s);
        decode_rows<KIND, QUADS, VALUES, COLUMNS>(m, p, &s, r);
        __syncwarp(); /* weights are read */
    }
    if (!VALUES) return;
    __syncthreads();
    const bool is_alone = m.lane_tasks[task.lane + 1] - m.lane_tasks[task.lane] == 1;
    add_warps(m, plan, shared,
              is_alone ? p.out + (uint64_t)task.lane * p.n_group * m.rows
                       : p.partial + (uint64_t)blockIdx.x * p.n_group * m.rows,
              p.n_group);
}

/* ---- launching ------------------------------------------------------------------------------------------- */

/* Warps of a thread block: as many as half a multiprocessor has room for, or all of it if that is none. */
static inline uint32_t warps_of(const shared_plan &plan, const pleat__device_shape *shape) {
    for (uint32_t n_blocks = 2; n_blocks > 0; n_blocks--) {
        uint32_t room = shape->shared_bytes / n_blocks - shape->reserved_bytes;
        if (room > shape->shared_block_bytes) room = shape->shared_block_bytes;
        if (room < plan.warps_at + plan.warp_bytes) continue;
        uint32_t n_warps = (room - plan.warps_at) / plan.warp_bytes;
        if (n_warps > shape->n_threads / BLOCKS_AN_SM / 32) n_warps = shape->n_threads / BLOCKS_AN_SM / 32;
        return n_warps < MAX_THREADS / 32 ? n_warps : MAX_THREADS / 32;
    }
    return 0;
}

template <int KIND, int QUADS, bool VALUES, int COLUMNS>
static pleat_status launch(const pleat__device_matrices *m, const pleat__device_product *p,
                           const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err) {
    const shared_plan plan = plan_of(*m, QUADS, p->n_group, VALUES);
    const uint32_t n_warps = warps_of(plan, shape), shared_bytes = plan.warps_at + n_warps * plan.warp_bytes;
    PLEAT_FAIL_IF(n_warps == 0, err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                  "this GPU has too little shared memory for blocks of this size");
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(product_kernel<KIND, QUADS, VALUES, COLUMNS>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes),
                   "shared memory of the block product", err);
    product_kernel<KIND, QUADS, VALUES, COLUMNS>
        <<<m->n_tasks, n_warps * 32, shared_bytes, pleat__cuda_stream(stream)>>>(*m, *p);
    return PLEAT_CUDA_LAUNCHED("the block product", err);
}

template <int KIND, int QUADS, bool VALUES>
static pleat_status launch_columns(const pleat__device_matrices *m, const pleat__device_product *p,
                                   const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err) {
    if (m->columns == 64) return launch<KIND, QUADS, VALUES, 64>(m, p, shape, stream, err);
    if (m->columns == 128) return launch<KIND, QUADS, VALUES, 128>(m, p, shape, stream, err);
    return launch<KIND, QUADS, VALUES, 0>(m, p, shape, stream, err);
}

template <int KIND, bool VALUES>
static pleat_status launch_group(const pleat__device_matrices *m, const pleat__device_product *p,
                                 const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err) {
    if (p->n_group <= 4) return launch_columns<KIND, 1, VALUES>(m, p, shape, stream, err);
    return launch_columns<KIND, 2, VALUES>(m, p, shape, stream, err);
}

template <bool VALUES>
static pleat_status launch_kind(const pleat__device_matrices *m, const pleat__device_product *p,
                                const pleat__device_shape *shape, pleat__device_stream stream, pleat_error *err) {
    if (m->codebook_kind == PLEAT__CODEBOOK_PAIRS)
        return launch_group<PLEAT__CODEBOOK_PAIRS, VALUES>(m, p, shape, stream, err);
    if (m->codebook_kind == PLEAT__CODEBOOK_NARROW)
        return launch_group<PLEAT__CODEBOOK_NARROW, VALUES>(m, p, shape, stream, err);
    return launch<PLEAT__CODEBOOK_WIDE, 2, VALUES, 0>(m, p, shape, stream, err);
}

#endif
