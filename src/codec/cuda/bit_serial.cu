/* SPDX-License-Identifier: MIT
 *
 * bit_serial.cu: attention's products as KVComp's paper makes them (section 3.3), one bit at a time: what blocks.cuh is
 * measured against.
 *
 *     a thread block has a block of codes in shared memory; a thread has a row
 *     bit ── branch ──┬─ inside: on from there
 *                     └─ leaf: the row's sum grows by weight * code, on from the root
 *
 * One bit an iteration, and no branch but the loop's: a node inside adds zero.  Where a row begins is the sum of the
 * rows' bits before it.  Steps and minimums fold into the vector, once a block, as in blocks.cuh.
 *
 *     shared memory   the block's words | the tree | x*step
 */
#include <cuda_fp16.h>

#include "codec/cuda/blocks.h"
#include "hw/cuda/cuda.cuh"
#include "hw/cuda/warp.cuh"

#define MAX_THREADS 512u

/* Exclusive sum over the threads; part has room for every warp's. */
static __device__ uint32_t bits_before(uint32_t n, uint32_t *part) {
    const uint32_t thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = pleat__warp_prefix(n);
    if (thread == 31) part[warp] = sum;
    __syncthreads();
    sum -= n;
    for (uint32_t i = 0; i < warp; i++) sum += part[i];
    return sum;
}

/* Sum over the threads, in one order. */
static __device__ float sum_of_all(float x, float *part) {
    for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(PLEAT__ALL_THREADS, x, i);
    __syncthreads(); /* others may still read what was there */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (uint32_t i = 0; i < blockDim.x / 32; i++) sum += part[i];
    return sum;
}

/* A column's step and minimum. */
static __device__ float2 unit_of(const pleat__device_matrices &m, const pleat__device_section &section,
                                 uint32_t column) {
    const uint16_t *at = (const uint16_t *)(m.units + (uint64_t)section.units * 16);
    const uint32_t n_units = m.has_column_units ? m.columns : 1, unit = m.has_column_units ? column : 0;
    const uint32_t bits = at[unit];
    if (section.is_wide)
        return make_float2(__half2float(__ushort_as_half(at[n_units + unit])),
                           __half2float(__ushort_as_half((uint16_t)bits)));
    const float step = __half2float(__ushort_as_half((uint16_t)(bits >> 7 << 6))); /* codec/units.c */
    return make_float2(step, step * 0.5f * (float)((int32_t)(bits << 25) >> 25));
}

/* Sums of a row over its codes; x [GROUP][columns]. */
template <int GROUP>
static __device__ __forceinline__ void decode_row(const uint32_t *words, const uint32_t *tree, const float *x,
                                                  uint32_t columns, uint32_t bit, uint32_t end, float *sums) {
    uint32_t node = 0, column = 0, window = bit < end ? words[bit / 32] >> bit % 32 : 0;
    for (; bit < end; bit++) {
        const uint32_t branch = tree[node + (window & 1)], is_leaf = branch >> 31;
        const float code = (float)(branch >> 16 & (PLEAT__BIT_TREE_LEAF - 1));
#pragma unroll
        for (uint32_t g = 0; g < GROUP; g++) sums[g] += code * x[g * columns + column];
        column = min(column + is_leaf, columns - 1);
        node = branch & 0xFFFF;
        window = (bit + 1) % 32 == 0 ? words[(bit + 1) / 32] : window >> 1;
    }
}

template <int GROUP, bool VALUES>
static __global__ void __launch_bounds__(MAX_THREADS)
    bit_serial_kernel(const __grid_constant__ pleat__device_matrices m, const __grid_constant__ pleat__device_rows rows,
                      const __grid_constant__ pleat__device_product p) {
    extern __shared__ __align__(16) uint32_t shared[];
    __shared__ uint32_t bits_part[MAX_THREADS / 32];
    __shared__ float sums_part[MAX_THREADS / 32];
    const pleat__device_task task = m.tasks[blockIdx.x]; /* of one block, or none */
    const pleat__device_section section = m.sections[task.first];
    const uint32_t n_words = task.n_blocks ? (uint32_t)(m.sections[task.first + 1].words - section.words) : 0;
    uint32_t *words = shared, *tree = words + rows.max_words + 1;
    float *x = (float *)(tree + rows.n_branches);
    const uint32_t *from = (const uint32_t *)m.words + section.words;
    for (uint32_t i = threadIdx.x; i < n_words; i += blockDim.x) words[i] = from[i];
    for (uint32_t i = threadIdx.x; i < rows.n_branches; i += blockDim.x) tree[i] = ((const uint32_t *)rows.tree)[i];
    const uint64_t row = (uint64_t)task.lane * GROUP, token = (uint64_t)task.index * (VALUES ? m.columns : m.rows);
    float sums[GROUP] = {0}, middle[GROUP] = {0};
    for (uint32_t i = threadIdx.x; i < m.columns && task.n_blocks; i += blockDim.x) {
        const float2 unit = unit_of(m, section, i);
        for (uint32_t g = 0; g < GROUP; g++) {
            const float value = VALUES ? p.x[(row + g) * p.stride + token + i] : p.x[(row + g) * m.columns + i];
            x[g * m.columns + i] = value * unit.x;
            middle[g] += value * unit.y;
        }
    }
    for (uint32_t g = 0; g < GROUP; g++) middle[g] = sum_of_all(middle[g], sums_part);
    const bool has_row = threadIdx.x < m.rows;
    const uint32_t n_bits = has_row && task.n_blocks ? rows.row_bits[(uint64_t)task.first * m.rows + threadIdx.x] : 0;
    const uint32_t start = bits_before(n_bits, bits_part);
    decode_row<GROUP>(words, tree, x, m.columns, start, start + n_bits, sums);
    if (!has_row || (!VALUES && !task.n_blocks)) return;
    const bool is_alone = m.lane_tasks[task.lane + 1] - m.lane_tasks[task.lane] == 1;
    float *values_out = is_alone ? p.out + row * m.rows : p.partial + (uint64_t)blockIdx.x * GROUP * m.rows;
#pragma unroll
    for (uint32_t g = 0; g < GROUP; g++) {
        float *out = VALUES ? values_out + g * m.rows : p.out + (row + g) * p.stride + token;
        out[threadIdx.x] = middle[g] + sums[g];
    }
}

template <int GROUP, bool VALUES>
static pleat_status launch(const pleat__device_matrices *m, const pleat__device_rows *rows,
                           const pleat__device_product *p, pleat__device_stream stream, pleat_error *err) {
    const uint32_t shared_bytes = 4 * (rows->max_words + 1 + rows->n_branches + GROUP * m->columns);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(bit_serial_kernel<GROUP, VALUES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared_bytes),
                   "shared memory of the bit-serial product", err);
    bit_serial_kernel<GROUP, VALUES>
        <<<m->n_tasks, (m->rows + 31) / 32 * 32, shared_bytes, pleat__cuda_stream(stream)>>>(*m, *rows, *p);
    return PLEAT_CUDA_LAUNCHED("the bit-serial product", err);
}

template <bool VALUES>
static pleat_status launch_group(const pleat__device_matrices *m, const pleat__device_rows *rows,
                                 const pleat__device_product *p, pleat__device_stream stream, pleat_error *err) {
    switch (p->n_group) {
        case 1: return launch<1, VALUES>(m, rows, p, stream, err);
        case 2: return launch<2, VALUES>(m, rows, p, stream, err);
        case 3: return launch<3, VALUES>(m, rows, p, stream, err);
        case 4: return launch<4, VALUES>(m, rows, p, stream, err);
        case 5: return launch<5, VALUES>(m, rows, p, stream, err);
        case 6: return launch<6, VALUES>(m, rows, p, stream, err);
        case 7: return launch<7, VALUES>(m, rows, p, stream, err);
        default: return launch<8, VALUES>(m, rows, p, stream, err);
    }
}

extern "C" pleat_status pleat__blocks_bit_serial(const pleat__device_matrices *m, const pleat__device_rows *rows,
                                                 const pleat__device_product *p, bool is_values,
                                                 pleat__device_stream stream, pleat_error *err) {
    if (!is_values) return launch_group<false>(m, rows, p, stream, err);
    PLEAT_TRY(launch_group<true>(m, rows, p, stream, err));
    return pleat__blocks_add_tasks(m, p, stream, err);
}
