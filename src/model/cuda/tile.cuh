/* SPDX-License-Identifier: MIT
 *
 * tile.cuh: what the products share: a lane's weights of a slice as operands of mma.m16n8k16, the product of a slice,
 * and what becomes of a sum.
 *
 *     A (weights, 16 x 16)    lane 4g + q: rows g and g + 8
 *     B (x, 16 x 8)           lane 4g + q: column g, which is row g of x
 *     sum (16 x 8)            lane 4g + q: [0], [1]: row g, columns 2q and 2q+1; [2], [3]: row g + 8
 *
 * A slice of 32 columns is two such products: of the first four and of the last four of a lane's eight columns.
 */
#ifndef PLEAT_MODEL_CUDA_TILE_CUH
#define PLEAT_MODEL_CUDA_TILE_CUH

#include <cuda_fp16.h>

#include "model/cuda/mul.h"

/* 16-byte words of a lane in a group: codes, and scales. */
template <int F>
static constexpr int pleat__n_codes = F == PLEAT__TILE_F16                              ? 8
                                      : F == PLEAT__TILE_Q8 || F == PLEAT__TILE_Q8_HALF ? 4
                                                                                        : 2;
template <int F> static constexpr int pleat__n_scales = F == PLEAT__TILE_F16 ? 0 : F == PLEAT__TILE_Q4_MIN ? 2 : 1;
template <int F> static constexpr int pleat__n_planes = F == PLEAT__TILE_Q8_HALF ? 2 : pleat__n_scales<F>;
template <int F>
static constexpr uint32_t pleat__group_bytes = pleat__n_codes<F> * 512 + pleat__n_planes<F> *PLEAT__TILE_SCALES_BYTES;

/* Ranges that a tile's groups are cut into: mul.h, rule 1. */
#define PLEAT__MUL_RANGES 16u
#define PLEAT__MUL_QUARTER 4u /* of them */

static __host__ __device__ inline uint32_t pleat__groups_per_range(uint32_t n_groups) {
    return (n_groups + PLEAT__MUL_RANGES - 1) / PLEAT__MUL_RANGES;
}

/* Bytes of a row of F16. */
static __host__ __device__ inline uint32_t pleat__row_bytes(const pleat__tiles &t) {
    return t.n_groups * PLEAT__GROUP_COLS * 2;
}

/* Bytes from a group of a tile to the next. */
template <int F>
static constexpr uint32_t pleat__group_step = F == PLEAT__TILE_F16 ? PLEAT__GROUP_COLS * 2 : pleat__group_bytes<F>;

/* Where a group of a tile begins: of F16 in the tile's first row. */
template <int F>
static __device__ __forceinline__ const uint8_t *pleat__group_at(const pleat__device_matrix &m, uint32_t tile,
                                                                 uint32_t group) {
    return m.data + (uint64_t)tile * m.tiles.n_groups * pleat__group_bytes<F> + group * pleat__group_step<F>;
}

/* Where piece i of a group is, 16 bytes: 32 for the lanes' first words, and so on.  Of F16 word 2 slice + r is in row
 * g + 8 r. */
template <int F> static __device__ __forceinline__ uint32_t pleat__piece_at(uint32_t i, uint32_t row_bytes) {
    if constexpr (F != PLEAT__TILE_F16) return 16 * i;
    const uint32_t word = i / 32, lane = i % 32;
    return (lane / 4 + word % 2 * 8) * row_bytes + word / 2 * 64 + lane % 4 * 16;
}

/* A lane's part of a group. */
template <int F> struct pleat__lane_group {
    uint4 codes[pleat__n_codes<F>];
    uint4 scales[pleat__n_scales<F> > 0 ? pleat__n_scales<F> : 1];
};

/* Where a lane's scales are: behind the codes, at its row g; of Q8_HALF those of its half of a slice. */
template <int F> static __device__ __forceinline__ uint32_t pleat__scales_at(uint32_t lane, int i) {
    const uint32_t plane = F == PLEAT__TILE_Q8_HALF ? lane % 4 / 2 : (uint32_t)i;
    return pleat__n_codes<F> * 512 + plane * PLEAT__TILE_SCALES_BYTES + 16 * (lane / 4);
}

/* Weights are read once: they are to leave the caches to what is read again. */
static __device__ __forceinline__ uint4 pleat__load_once(const uint8_t *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

template <int F>
static __device__ __forceinline__ void pleat__load_group(pleat__lane_group<F> &to, const uint8_t *group,
                                                         uint32_t row_bytes, uint32_t lane) {
#pragma unroll
    for (int i = 0; i < pleat__n_codes<F>; i++)
        to.codes[i] = pleat__load_once(group + pleat__piece_at<F>(32 * i + lane, row_bytes));
#pragma unroll
    for (int i = 0; i < pleat__n_scales<F>; i++) to.scales[i] = pleat__load_once(group + pleat__scales_at<F>(lane, i));
}

/* Words of a group that slice j is the last to need, in place of another group's. */
template <int F>
static __device__ __forceinline__ void pleat__refill(pleat__lane_group<F> &to, const uint8_t *group, uint32_t row_bytes,
                                                     uint32_t lane, int j) {
    constexpr int slices = (int)PLEAT__TILE_SLICES, each = pleat__n_codes<F> < slices ? slices / pleat__n_codes<F> : 1;
#pragma unroll
    for (int i = 0; i < pleat__n_codes<F>; i++)
        if (j == i * slices / pleat__n_codes<F> + each - 1)
            to.codes[i] = pleat__load_once(group + pleat__piece_at<F>(32 * i + lane, row_bytes));
#pragma unroll
    for (int i = 0; i < pleat__n_scales<F>; i++)
        if (j == slices - 1) to.scales[i] = pleat__load_once(group + pleat__scales_at<F>(lane, i));
}

static __device__ __forceinline__ uint32_t pleat__word_of(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

static __device__ __forceinline__ uint32_t pleat__as_word(__half2 h) { return *(const uint32_t *)(const void *)&h; }
static __device__ __forceinline__ __half2 pleat__as_half2(uint32_t w) { return *(const __half2 *)(const void *)&w; }

/* Eight floats. */
static __device__ __forceinline__ uint4 pleat__halves_of(const float *from) {
    const float4 a = *(const float4 *)(const void *)from, b = *(const float4 *)(const void *)(from + 4);
    return make_uint4(pleat__as_word(__floats2half2_rn(a.x, a.y)), pleat__as_word(__floats2half2_rn(a.z, a.w)),
                      pleat__as_word(__floats2half2_rn(b.x, b.y)), pleat__as_word(__floats2half2_rn(b.z, b.w)));
}

/* Where a packed x has columns col and col + 1 of a row, in bytes; col is even.  Panels of 64 columns, as wgmma.cuh has
 * them in shared memory; in a slice word i of piece q is word q of piece i, which is the order that operands have. */
static __device__ __forceinline__ uint32_t pleat__packed_at(uint32_t row, uint32_t col) {
    const uint32_t piece = col / 8, chunk = (piece / 4 * 4 + col / 2 % 4 ^ row) & 7;
    return (col / 64 * PLEAT__MUL_PACKED + row) * 128 + chunk * 16 + piece % 4 * 4;
}

/* 0x6400 is 1024, whose last bit is 1: a code in its low bits adds to it exactly. */
#define PLEAT__MAGIC 0x64006400u

/* Codes 2i and 2i + 1 of 8, less `zero`; low, high: the words of bytes. */
static __device__ __forceinline__ __half2 pleat__pair_of_bytes(uint32_t low, uint32_t high, int i) {
    const uint32_t word = i < 2 ? low : high;
    const uint32_t both = __byte_perm(word, 0x64646464u, i % 2 ? 0x4342u : 0x4140u);
    return __hsub2(pleat__as_half2(both), pleat__as_half2(0x64806480u)); /* 1024 + 128 */
}

/* word & mask | PLEAT__MAGIC, by one instruction: operators become two, each with a constant. */
static __device__ __forceinline__ uint32_t pleat__with_magic(uint32_t word, uint32_t mask) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word), "r"(mask), "r"(PLEAT__MAGIC));
    return out;
}

/* Nibbles i and i + 4 of a word, less `zero`, which is 0 or 8.  An odd i's are left where they are: 1024 + 16 codes. */
static __device__ __forceinline__ __half2 pleat__pair_of_nibbles(uint32_t word, int i, int zero) {
    const __half2 both = pleat__as_half2(pleat__with_magic(word >> 8 * (i / 2), i % 2 ? 0x00F000F0u : 0x000F000Fu));
    if (i % 2) return __hfma2(both, __float2half2_rn(1 / 16.0f), __float2half2_rn(-64.0f - (float)zero));
    return __hsub2(both, __float2half2_rn(1024.0f + (float)zero));
}

/* A lane's eight weights of slice j in the rows g and g + 8: each is rounded to f16 once. */
template <int F>
static __device__ __forceinline__ void pleat__operands(const pleat__lane_group<F> &from, int j, uint32_t (&g)[4],
                                                       uint32_t (&g8)[4]) {
    if constexpr (F == PLEAT__TILE_F16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            g[i] = pleat__word_of(from.codes[2 * j], i);
            g8[i] = pleat__word_of(from.codes[2 * j + 1], i);
        }
    } else if constexpr (F == PLEAT__TILE_Q8 || F == PLEAT__TILE_Q8_HALF) {
        const uint4 c = from.codes[j];
        const __half2 scales = pleat__as_half2(pleat__word_of(from.scales[0], j));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            g[i] = pleat__as_word(__hmul2(pleat__pair_of_bytes(c.x, c.y, i), __low2half2(scales)));
            g8[i] = pleat__as_word(__hmul2(pleat__pair_of_bytes(c.z, c.w, i), __high2half2(scales)));
        }
    } else {
        const uint32_t words[2] = {pleat__word_of(from.codes[j / 2], j % 2 * 2),
                                   pleat__word_of(from.codes[j / 2], j % 2 * 2 + 1)};
        constexpr int zero = F == PLEAT__TILE_Q4 ? 8 : 0;
        const __half2 scales = pleat__as_half2(pleat__word_of(from.scales[0], j));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            __half2 a = pleat__pair_of_nibbles(words[0], i, zero), b = pleat__pair_of_nibbles(words[1], i, zero);
            if constexpr (F == PLEAT__TILE_Q4_MIN) {
                const __half2 mins = pleat__as_half2(pleat__word_of(from.scales[1], j));
                a = __hfma2(a, __low2half2(scales), __low2half2(mins));
                b = __hfma2(b, __high2half2(scales), __high2half2(mins));
            } else {
                a = __hmul2(a, __low2half2(scales));
                b = __hmul2(b, __high2half2(scales));
            }
            g[i] = pleat__as_word(a);
            g8[i] = pleat__as_word(b);
        }
    }
}

static __device__ __forceinline__ void pleat__mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* sum += the slice's product with 8 rows of x, of which the lane has 8 columns of one. */
static __device__ __forceinline__ void pleat__add_slice(float (&sum)[4], const uint32_t (&g)[4],
                                                        const uint32_t (&g8)[4], const uint4 &x) {
    pleat__mma(sum, g[0], g8[0], g[1], g8[1], x.x, x.y);
    pleat__mma(sum, g[2], g8[2], g[3], g8[3], x.z, x.w);
}

/* ---- what becomes of a sum --------------------------------------------------------------------------- */

/* model/ops.h's gates. */
static __device__ __forceinline__ float pleat__act(float z, bool is_gelu) {
    const float u = is_gelu ? 2 * (0.7978845608028654f * z + 0.7978845608028654f * 0.044715f * (z * z * z)) : z;
    return z / (1.0f + expf(-u));
}

/* What a sum adds to y: rounded by itself, so that it is the same however it is added. */
static __device__ __forceinline__ float pleat__addend(const pleat__device_mul &m, uint32_t row, float sum) {
    return __fmul_rn(m.scale, m.bias ? sum + m.bias[row] : sum);
}

template <int END>
static __device__ __forceinline__ void pleat__end_sum(const pleat__device_mul &m, uint32_t x_row, uint32_t row,
                                                      float sum) {
    float *y = m.y + (uint64_t)x_row * m.y_stride + row;
    if constexpr (END == PLEAT__MUL_ADD) {
        *y += pleat__addend(m, row, sum);
    } else {
        sum *= m.scale;
        *y = m.cap > 0 ? m.cap * tanhf(sum / m.cap) : sum;
    }
}

/* Row `row` of either matrix of a pair. */
static __device__ __forceinline__ void pleat__end_gate(const pleat__device_mul &m, uint32_t x_row, uint32_t row,
                                                       float gate, float up) {
    const __half h = __float2half_rn(pleat__act(gate, m.is_gelu) * up);
    const uint64_t at =
        m.h_is_packed ? pleat__packed_at(x_row, row & ~1u) / 2 + row % 2 : (uint64_t)x_row * m.y_stride + row;
    m.h[at] = *(const uint16_t *)(const void *)&h;
}

#endif
