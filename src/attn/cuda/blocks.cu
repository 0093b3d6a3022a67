/* SPDX-License-Identifier: MIT
 *
 * blocks.cu: the kernels of blocks.h.
 *
 * A warp is a thread block, and walks the blocks of one part of a lane.  Of a block:
 *
 *     payload ── cp.async ──> shared memory
 *     q * steps of keys ──> f16, in shared memory                                 s = q.min + (q*step).code
 *     slice of keys: 16 places ── decode ──> rows of 16 codes ── mma ──> logits
 *     weights * steps of values ──> f16                                           o = sum p*min + (p*step).code
 *     slice of values: 16 dimensions ── decode ──> rows of 16 codes ── mma ──> sums
 *
 * Products are m16n8k16, with codes as the rows of A and query heads as the columns of B.  A code n is the subnormal half
 * n * 2^-24: fields are masked into halves and need no conversion; sums are taken times 2^24.
 *
 * Of up to four heads the other four columns hold what rounding q*step and p*step took, so that nothing is lost.  Of more
 * a middling code's part of it is made good.
 *
 *     row      16 codes
 *     keys     a row is a dimension, codes are places
 *     values   PACK: a row is 16 places of a dimension; RAW: a place, codes are dimensions
 *
 * Fields become halves two at a time, those that are 8 apart in a pack, 4 in a nibble's word.  So within 16 places position
 * p is number p/2 + 8*(p%2) everywhere, and within 8 dimensions p/2 + 4*(p%2).  Which of a block's tokens stand at which
 * place does not matter to a sum over all of them.
 *
 *     shared memory of a warp   payload | q*step, then rows of a slice | steps and minimums of values | q.min
 */
#include "attn/cuda/blocks.h"
#include "attn/cuda/ops.cuh"
#include "hw/cuda/copy.cuh"
#include "hw/cuda/cuda.cuh"

#define T PLEAT__DEVICE_BLOCK_TOKENS
#define GROUP PLEAT__DEVICE_BLOCK_GROUP
#define RESTS 4u /* up to so many heads, columns RESTS further on have what rounding to halves took from theirs */
#define HEADER 12u
#define WIDE 4u
#define CODER 3u
#define CODER_RAW 0u
#define ROW_BYTES 32u
#define WARPS 16        /* of a multiprocessor, at least: what registers are for */
#define SECOND_ROWS 34u /* rows of a thread's second codes begin here: free of bank conflicts */

/* Addresses in shared memory.  Queries are in registers before rows are decoded, and stand in the same place. */
typedef struct warp_plan {
    uint32_t payload, rows, units, heads, end;
} warp_plan;

#define ROWS_BYTES ((SECOND_ROWS + 32) * ROW_BYTES)

template <int D> static __host__ __device__ inline warp_plan plan_of(uint32_t base, uint32_t payload_bytes) {
    static_assert(GROUP * (D + 8) * 2 <= ROWS_BYTES + 64, "queries fit where rows will be");
    warp_plan w;
    w.payload = base;
    w.rows = base + (payload_bytes + 16 + 127) / 128 * 128; /* what is read behind a section */
    w.units = w.rows + ROWS_BYTES + 64;
    w.heads = w.units + T * 8;
    w.end = w.heads + GROUP * 4;
    return w;
}

static __device__ __forceinline__ void put_4(uint32_t at, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
static __device__ __forceinline__ void put_8(uint32_t at, uint32_t x, uint32_t y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(x), "r"(y) : "memory");
}
static __device__ __forceinline__ void put_16(uint32_t at, const uint32_t *x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
static __device__ __forceinline__ void put_half(uint32_t at, __half x) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"(__half_as_ushort(x)) : "memory");
}
static __device__ __forceinline__ uint32_t load_2(uint32_t at) {
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
    return x;
}

/* 32 bits from bit `bit` of what begins at `at`, a multiple of 4, on. */
static __device__ __forceinline__ uint32_t load_bits(uint32_t at, uint32_t bit) {
    at += bit / 32 * 4;
    return __funnelshift_r(load_4(at), load_4(at + 4), bit);
}

/* Address of a half of a row. */
static __device__ __forceinline__ uint32_t half_row(uint32_t rows, uint32_t row, uint32_t half) {
    return rows + row * ROW_BYTES + (half ^ (row / 4 % 2)) * 16;
}

/* ---- payloads ------------------------------------------------------------------------------------------- */

/* The payload of block `block`, page by page. */
static __device__ __forceinline__ void copy_payload(const pleat__device_block_lanes &l, uint32_t row, uint32_t block,
                                                    uint32_t to) {
    const uint32_t *ends = l.ends + (uint64_t)row * l.ends_cap, *ids = l.ids + (uint64_t)row * l.row_len;
    const uint32_t from = block > 0 ? __ldg(ends + block - 1) : 0, end = __ldg(ends + block);
    const uint32_t *id = ids + l.row_len - 1 - from / l.page_units;
    uint32_t unit = from % l.page_units, left = end - from;
#pragma unroll 1
    for (; left > 0; id--) {
        const uint32_t n = min(left, l.page_units - unit);
        const uint8_t *at = l.base + *id * l.page_bytes + (unit + threadIdx.x) * 16;
        uint32_t place = to + threadIdx.x * 16;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < n; i += 32, at += 512, place += 512) pleat__copy_16(place, at);
        to += 16 * n;
        left -= n;
        unit = 0;
    }
    pleat__copies_commit();
}

/* It is to be in the level-2 cache by the time that it is copied. */
static __device__ __forceinline__ void ask_for_payload(const pleat__device_block_lanes &l, uint32_t row,
                                                       uint32_t block) {
    const uint32_t *ends = l.ends + (uint64_t)row * l.ends_cap, *ids = l.ids + (uint64_t)row * l.row_len;
    const uint32_t from = __ldg(ends + block - 1), n = __ldg(ends + block) - from;
    for (uint32_t i = 8 * threadIdx.x; i < n; i += 256) { /* a line is 8 units */
        const uint32_t unit = from + i, page = ids[l.row_len - 1 - unit / l.page_units];
        asm volatile("prefetch.global.L2 [%0];" ::"l"(l.base + page * l.page_bytes + unit % l.page_units * 16));
    }
}

/* A unit's minimum and step. */
static __device__ __forceinline__ float2 unit_at(uint32_t units, uint32_t n_units, uint32_t i, bool is_wide) {
    const uint32_t bits = load_2(units + 2 * i);
    if (is_wide) {
        const uint32_t step = load_2(units + 2 * (n_units + i));
        return make_float2(__half2float(__ushort_as_half((uint16_t)bits)),
                           __half2float(__ushort_as_half((uint16_t)step)));
    }
    const float step = __half2float(__ushort_as_half((uint16_t)(bits >> 7 << 6))); /* codec/units.c */
    return make_float2(step * 0.5f * (float)((int32_t)(bits << 25) >> 25), step);
}

/* ---- codes ---------------------------------------------------------------------------------------------- */

/* Inclusive prefix sum over the warp. */
static __device__ __forceinline__ uint32_t prefix_of(uint32_t x) {
#pragma unroll
    for (int by = 1; by < 32; by *= 2)
        asm volatile("{.reg .pred p; .reg .b32 y; shfl.sync.up.b32 y|p, %0, %1, 0, -1; @p add.u32 %0, %0, y;}"
                     : "+r"(x)
                     : "r"(by));
    return x;
}

/* Of pairs of fields: two neighbours stand in the low 10 bits of a half, where a mask leaves a subnormal that a product
 * moves down and to which a sum adds the minimum.  So the pipe for logic and shifts, the busiest, has less to do. */
typedef struct field_masks {
    uint32_t first, second, down; /* down: 2^-width twice */
} field_masks;

static __device__ __forceinline__ field_masks masks_of(uint32_t width) {
    const uint32_t mask = (0x00010001u << width) - 0x00010001u;
    return field_masks{mask, mask << width, (15 - width) * 0x04000400u};
}

/* Two pairs of fields of two words' halves, twice `width` apart. */
static __device__ __forceinline__ void take_fields(uint32_t x, uint32_t width, const field_masks &m, uint32_t min,
                                                   uint32_t r[4]) {
    const uint32_t y = x >> 2 * width, one = 0x3C003C00u;
    r[0] = fma_halves(x & m.first, one, min);
    r[1] = fma_halves(x & m.second, m.down, min);
    r[2] = fma_halves(y & m.first, one, min);
    r[3] = fma_halves(y & m.second, m.down, min);
}

/* 16 fields of `width` bits: 0..7 from bit 0 of `first` on, 8..15 of `second`; `min` is added to both halves. */
static __device__ __forceinline__ void put_row(uint32_t rows, uint32_t row, uint32_t first, uint32_t second,
                                               uint32_t width, uint32_t min) {
    const field_masks m = masks_of(width);
    uint32_t r[4];
    take_fields(low_halves(first, second), width, m, min, r);
    put_16(half_row(rows, row, 0), r);
    take_fields(low_halves(first >> 4 * width, second >> 4 * width), width, m, min, r);
    put_16(half_row(rows, row, 1), r);
}

/* A section under way. */
typedef struct section {
    uint32_t at;   /* address of the next slice: a multiple of 2 */
    uint32_t bits; /* of a code */
    bool is_raw;
} section;

/* Where a thread's packs of a slice stand: 32 * N packs, of which thread t has those from N*t on. */
template <int N> struct packs { uint32_t at, widths, mins; };

template <int N> static __device__ __forceinline__ packs<N> find_packs(section *s) {
    const uint32_t thread = threadIdx.x, aligned = s->at & ~3u, first = s->at % 4 * 8;
    const uint32_t width_bits = s->bits == 4 ? 3 : s->bits == 1 ? 1 : 2;
    packs<N> p;
    p.widths = load_bits(aligned, first + thread * N * width_bits);
    p.mins = load_bits(aligned, first + 32 * N * width_bits + thread * N * s->bits);
    uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++) sum += p.widths >> j * width_bits & ((1u << width_bits) - 1);
    const uint32_t end = prefix_of(sum);
    p.at = s->at + 4 * N * (width_bits + s->bits) + 2 * (end - sum);
    s->at += 4 * N * (width_bits + s->bits) + 2 * __shfl_sync(PLEAT__ALL_THREADS, end, 31);
    return p;
}

/* The next two: the first to row `thread`, the second to SECOND_ROWS more. */
template <int N> static __device__ __forceinline__ void take_packs(packs<N> *p, uint32_t bits, uint32_t rows) {
    const uint32_t width_bits = bits == 4 ? 3 : bits == 1 ? 1 : 2;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t width = p->widths & ((1u << width_bits) - 1);
        const uint32_t word = p->at & ~3u, shift = p->at * 8, middle = load_4(word + 4);
        const uint32_t low = __funnelshift_r(load_4(word), middle, shift);
        const uint32_t high = __funnelshift_r(middle, load_4(word + 8), shift);
        put_row(rows, j * SECOND_ROWS + threadIdx.x, low, __funnelshift_rc(low, high, 8 * width), width,
                (p->mins & ((1u << bits) - 1)) * 0x00010001u);
        p->at += 2 * width;
        p->widths >>= width_bits;
        p->mins >>= bits;
    }
}

/* Bits 4i + j of words p, p and j = 0..3, become bits 4i + p of words j. */
static __device__ __forceinline__ void transpose_nibbles(uint32_t x[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t t = (x[i] >> 1 ^ x[i + 1]) & 0x55555555u;
        x[i + 1] ^= t;
        x[i] ^= t << 1;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t t = (x[i] >> 2 ^ x[i + 2]) & 0x33333333u;
        x[i + 2] ^= t;
        x[i] ^= t << 2;
    }
}

/* The planes of 8 rows by 4 columns, 32 bits each and 8 bytes apart, from byte `at` on, as 8 codes of 4 bits of each
 * column. */
static __device__ __forceinline__ void load_planes(uint32_t at, uint32_t n, uint32_t x[4]) {
    const uint32_t bit = at % 4 * 8;
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) x[p] = p < n ? load_bits(at & ~3u, bit + 64 * p) : 0;
    transpose_nibbles(x);
}

/* A slice of keys in planes: a thread has 4 columns of 16 rows, or 2 of them where heads have 64. */
typedef struct planes {
    uint32_t first[4], second[4];
} planes;

template <int N> static __device__ __forceinline__ planes load_key_planes(section *s) {
    const uint32_t thread = threadIdx.x, at = s->at + N * thread / 4 * 8 * s->bits;
    planes p;
    load_planes(at, s->bits, p.first);
    load_planes(at + 4, s->bits, p.second);
    s->at += 32 * N / 4 * 8 * s->bits;
    return p;
}

/* Two columns. */
static __device__ __forceinline__ void take_planes(const planes &p, bool upper, uint32_t rows) {
#pragma unroll
    for (int j = 0; j < 2; j++)
        put_row(rows, j * SECOND_ROWS + threadIdx.x, upper ? p.first[j + 2] : p.first[j],
                upper ? p.second[j + 2] : p.second[j], 4, 0);
}

/* A slice of values in planes: a thread has 8 dimensions of 4 places: half a row of each. */
static __device__ __forceinline__ void decode_value_planes(section *s, uint32_t rows) {
    const uint32_t thread = threadIdx.x, half = thread % 2;
    uint32_t x[4];
    load_planes(s->at + thread / 2 * 8 * s->bits + 4 * half, s->bits, x);
    s->at += T / 4 * 8 * s->bits;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t r[4];
        take_fields(x[j], 4, masks_of(4), 0, r);
        put_16(half_row(rows, thread / 2 * 4 + j, half), r);
    }
}

/* ---- a block -------------------------------------------------------------------------------------------- */

#define TWO_24 16777216.0f

/* all[i] += c; all stays in registers. */
template <int N> static __device__ __forceinline__ void add_to(float all[N][4], uint32_t i, const float c[4]) {
#define CASE(n)                                                        \
    case n:                                                            \
        if (n < N)                                                     \
            for (int j = 0; j < 4; j++) all[n < N ? n : 0][j] += c[j]; \
        break;
    switch (i) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) }
#undef CASE
}

/* What a warp knows of its part: of query heads 2*(thread%4) and one more. */
template <int D> struct sums {
    float max[2], weight[2], middle[2]; /* logit2; sum of weights; of weights * minimums: this thread's places alone */
    float out[D / 16][4];               /* C of a slice of dimensions */
};

/* q * step of all heads to shared memory, q.min to heads.  Thread t has dimensions N*t on: rows j*32 + t. */
template <int D>
static __device__ __forceinline__ void put_queries(const pleat__device_blocks_attn &a, const warp_plan &w,
                                                   const uint16_t *q, uint32_t word) {
    enum { N = D / 32 };
    const uint32_t thread = threadIdx.x, n_units = a.lanes.by_channel ? D : 1;
    const float scale = a.scale * 1.44269504f, centre = (float)((1u << a.lanes.k_bits) - 1) / 2;
    const bool has_rests = a.lanes.n_group <= RESTS;
    float2 unit[N];
#pragma unroll
    for (int j = 0; j < N; j++)
        unit[j] = unit_at(w.payload + HEADER, n_units, a.lanes.by_channel ? N * thread + j : 0, word & WIDE);
#pragma unroll 4
    for (uint32_t g = 0; g < a.lanes.n_group; g++) {
        float middle = 0;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float x = __half2float(__ushort_as_half(__ldg(q + g * D + N * thread + j))) * scale;
            const __half weight = __float2half_rn(x * unit[j].y);
            const uint32_t at = w.rows + (g * (D + 8) + j * 32 + thread) * 2;
            const float rest = fmaf(x, unit[j].y, -__half2float(weight)); /* what rounding took */
            put_half(at, weight);
            if (has_rests) put_half(at + RESTS * (D + 8) * 2, __float2half_rn(rest));
            middle = fmaf(x, unit[j].x, has_rests ? middle : fmaf(rest, centre, middle));
        }
#pragma unroll
        for (int i = 16; i > 0; i /= 2) middle += __shfl_xor_sync(PLEAT__ALL_THREADS, middle, i);
        if (thread == 0) put_4(w.heads + 4 * g, __float_as_uint(middle));
        if (thread == 0 && has_rests) put_4(w.heads + 4 * (g + RESTS), __float_as_uint(middle));
    }
    if (a.lanes.n_group == RESTS || a.lanes.n_group == GROUP) return;
    for (uint32_t g = a.lanes.n_group; g < GROUP; g++) /* columns of nobody */
        for (uint32_t i = thread; i < D / 2 && !(has_rests && g >= RESTS && g < RESTS + a.lanes.n_group); i += 32)
            put_4(w.rows + g * (D + 8) * 2 + 4 * i, 0);
}

/* B of 16 dimensions each: rows j*32 + t and so on. */
template <int D> static __device__ __forceinline__ void load_queries(const warp_plan &w, uint32_t queries[D / 16][2]) {
    const uint32_t at = w.rows + (threadIdx.x / 4 * (D + 8) + 2 * (threadIdx.x % 4)) * 2;
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < D / 16; k++)
        for (uint32_t i = 0; i < 2; i++) queries[k][i] = load_4(at + 32 * k + 16 * i);
}

/* Steps and minimums of values, by place. */
static __device__ __forceinline__ void put_value_units(const warp_plan &w, uint32_t units, uint32_t word) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < T; i += 32) {
        const float2 unit = unit_at(units, T, i, word & WIDE);
        put_8(w.units + 8 * i, __float_as_uint(unit.x), __float_as_uint(unit.y));
    }
}

/* Products of 64 dimensions of a slice of keys, which stand in the rows. */
static __device__ __forceinline__ void multiply_rows(const uint32_t at[2], const uint32_t (*queries)[2],
                                                     float c[2][4]) {
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t codes[4];
        load_matrices_transposed(codes, at[k / 2] + k % 2 * 16 * ROW_BYTES);
        multiply(c[k % 2], codes, queries[k][0], queries[k][1]);
    }
}

/* Logits of the block's places: C of each slice. */
template <int D>
static __device__ __forceinline__ void multiply_keys(const warp_plan &w, section *s, const uint32_t queries[D / 16][2],
                                                     float logits[T / 16][4]) {
    constexpr int N = D / 32; /* dimensions of a thread, two at a time */
    const uint32_t thread = threadIdx.x, row = thread / 16 * 8 + thread % 8;
    const uint32_t at[2] = {half_row(w.rows, row, thread / 8 % 2), half_row(w.rows, row + SECOND_ROWS, thread / 8 % 2)};
    packs<N> p;
    if (!s->is_raw) p = find_packs<N>(s);
#pragma unroll 1
    for (uint32_t i = 0; i < T / 16; i++) {
        float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        planes plain;
        if (s->is_raw) plain = load_key_planes<N>(s);
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            __syncwarp();
            if (s->is_raw)
                take_planes(plain, N == 2 ? thread % 2 != 0 : j != 0, w.rows);
            else
                take_packs<N>(&p, s->bits, w.rows);
            __syncwarp();
            if (!s->is_raw && j + 2 == N) p = find_packs<N>(s); /* the next slice's, or what nobody takes */
            multiply_rows(at, queries + 2 * j, c);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) c[0][j] += c[1][j];
        add_to<T / 16>(logits, i, c[0]);
    }
}

/* Places: the number of a position within 16. */
static __device__ __forceinline__ uint32_t place_of(uint32_t position) { return position / 2 + position % 2 * 8; }
/* Dimensions. */
static __device__ __forceinline__ uint32_t dimension_of(uint32_t position) {
    return position / 8 * 8 + position % 8 / 2 + position % 2 * 4;
}

/* Logits become weights * steps, B of each slice of places. */
template <int D>
static __device__ __forceinline__ void weigh(const warp_plan &w, bool has_rests, float logits[T / 16][4], sums<D> *sum,
                                             uint32_t weights[T / 16][2]) {
    const uint32_t thread = threadIdx.x, place = place_of(thread / 4);
    const bool is_rest = has_rests && thread % 4 >= 2;
    float most[2] = {sum->max[0], sum->max[1]}, less[2];
    const uint2 middle = load_8(w.heads + thread % 4 * 8);
#pragma unroll
    for (uint32_t i = 0; i < T / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (has_rests) logits[i][j] += __shfl_xor_sync(PLEAT__ALL_THREADS, logits[i][j], 2);
            logits[i][j] = fmaf(logits[i][j], TWO_24, __uint_as_float(j % 2 ? middle.y : middle.x));
            most[j % 2] = fmaxf(most[j % 2], logits[i][j]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = max_over_rows(most[h]);
        less[h] = power_of_two(sum->max[h] - most[h]);
        sum->max[h] = most[h];
        sum->weight[h] *= less[h];
        sum->middle[h] *= less[h];
    }
    if (__any_sync(PLEAT__ALL_THREADS, less[0] != 1.0f || less[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum->out[i][j] *= less[j % 2];
    }
#pragma unroll
    for (uint32_t i = 0; i < T / 16; i++)
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) { /* positions thread/4 and 8 more: their numbers are 4 apart */
            const uint2 unit = load_8(w.units + (16 * i + place + 4 * k) * 8);
            float p[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                p[h] = power_of_two(logits[i][2 * k + h] - most[h]);
                sum->weight[h] += p[h];
                sum->middle[h] += p[h] * __uint_as_float(unit.x);
                p[h] *= __uint_as_float(unit.y);
            }
            uint32_t both = floats_to_halves(p[0], p[1]);
            const float2 rounded = halves_to_floats(both);
            if (is_rest) both = floats_to_halves(p[0] - rounded.x, p[1] - rounded.y);
            weights[i][k] = transpose_8x8(both);
        }
}

/* Sums of the block's values. */
template <int D>
static __device__ __forceinline__ void multiply_values(const warp_plan &w, section *s,
                                                       const uint32_t weights[T / 16][2], sums<D> *sum) {
    const uint32_t thread = threadIdx.x, in_8 = thread % 8, upper = thread / 8 % 2, right = thread / 16;
    const uint32_t place = place_of(right * 8 + in_8), dimension = dimension_of(upper * 8 + in_8);
    const uint32_t at = s->is_raw ? half_row(w.rows, place, upper)
                                  : half_row(w.rows, dimension % 2 * SECOND_ROWS + dimension / 2, right);
    const uint32_t step = (s->is_raw ? 16 : 8) * ROW_BYTES;
    packs<T / 32> p;
    if (!s->is_raw) p = find_packs<T / 32>(s);
#pragma unroll 1
    for (uint32_t i = 0; i < D / 16; i++) {
        float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        __syncwarp();
        if (s->is_raw)
            decode_value_planes(s, w.rows);
        else
            take_packs<T / 32>(&p, s->bits, w.rows);
        __syncwarp();
        if (!s->is_raw) p = find_packs<T / 32>(s);
#pragma unroll
        for (uint32_t k = 0; k < T / 16; k++) {
            uint32_t codes[4];
            if (s->is_raw)
                load_matrices_transposed(codes, at + k * step);
            else
                load_matrices(codes, at + k * step);
            multiply(c[k % 2], codes, weights[k][0], weights[k][1]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) c[0][j] += c[1][j];
        add_to<D / 16>(sum->out, i, c[0]);
    }
}

template <int D>
static __device__ __forceinline__ void add_block(const pleat__device_blocks_attn &a, const warp_plan &w,
                                                 const uint16_t *q, sums<D> *sum) {
    const uint32_t k_word = load_4(w.payload + 4), v_word = load_4(w.payload + 8);
    const uint32_t v_units = w.payload + HEADER + (a.lanes.by_channel ? D : 1) * (k_word & WIDE ? 4 : 2);
    section k = {v_units + T * (v_word & WIDE ? 4 : 2) + T, a.lanes.k_bits, (k_word & CODER) == CODER_RAW};
    section v = {k.at + (k_word >> 3), a.lanes.v_bits, (v_word & CODER) == CODER_RAW};
    float logits[T / 16][4] = {};
    uint32_t weights[T / 16][2], queries[D / 16][2];
    put_queries<D>(a, w, q, k_word);
    put_value_units(w, v_units, v_word);
    load_queries<D>(w, queries);
    multiply_keys<D>(w, &k, queries, logits);
    weigh<D>(w, a.lanes.n_group <= RESTS, logits, sum, weights);
    multiply_values<D>(w, &v, weights, sum);
}

/* ---- a part --------------------------------------------------------------------------------------------- */

/* Head g's D sums, then its largest logit and its sum of weights. */
template <int D> static __device__ __forceinline__ void put_part(const pleat__device_blocks_attn &a, sums<D> *sum) {
    const uint32_t thread = threadIdx.x;
    float *part = a.parts + (uint64_t)blockIdx.x * a.lanes.n_group * (D + 2);
    if (a.lanes.n_group <= RESTS)
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum->out[i][j] += __shfl_xor_sync(PLEAT__ALL_THREADS, sum->out[i][j], 2);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t g = 2 * (thread % 4) + h;
        const float weight = sum_over_rows(sum->weight[h]), middle = sum_over_rows(sum->middle[h]);
        if (g >= a.lanes.n_group) continue;
        float *to = part + g * (D + 2);
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++)
                to[16 * i + 8 * k + dimension_of(thread / 4)] = fmaf(sum->out[i][2 * k + h], TWO_24, middle);
        if (thread / 4 == 0) {
            to[D] = sum->max[h];
            to[D + 1] = weight;
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(32, WARPS) attend(const __grid_constant__ pleat__device_blocks_attn a) {
    extern __shared__ __align__(128) uint8_t shared[];
    const pleat__device_block_lanes &l = a.lanes;
    const warp_plan w = plan_of<D>(pleat__shared_address(shared), l.payload_bytes);
    const uint32_t lane = blockIdx.x / a.n_parts, part = blockIdx.x % a.n_parts, item = lane / l.n_kv_heads;
    const uint32_t row = (l.seq_idxs[item] * l.n_layers + a.layer) * l.n_kv_heads + lane % l.n_kv_heads;
    const uint32_t n = l.n_blocks[row], from = n * part / a.n_parts, to = n * (part + 1) / a.n_parts;
    const uint16_t *q = a.q + (uint64_t)lane * l.n_group * D;
    sums<D> sum;
    for (int h = 0; h < 2; h++) {
        sum.max[h] = -INFINITY;
        sum.weight[h] = sum.middle[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        for (int j = 0; j < 4; j++) sum.out[i][j] = 0;
    if (threadIdx.x < GROUP) put_4(w.heads + 4 * threadIdx.x, 0);
#pragma unroll 1
    for (uint32_t block = from; block < to; block++) {
        __syncwarp();
        copy_payload(l, row, block, w.payload);
        if (block + 1 < to) ask_for_payload(l, row, block + 1);
        pleat__copies_wait<0>();
        __syncwarp();
        add_block<D>(a, w, q, &sum);
    }
    put_part<D>(a, &sum);
}

/* ---- merging -------------------------------------------------------------------------------------------- */

/* A warp for each query head. */
template <int D>
static __global__ void __launch_bounds__(32) merge(const __grid_constant__ pleat__device_blocks_attn a) {
    enum { N = D / 32 };
    const uint32_t head = blockIdx.x, lane = head / a.lanes.n_group, g = head % a.lanes.n_group;
    const float *parts = a.parts + ((uint64_t)lane * a.n_parts * a.lanes.n_group + g) * (D + 2);
    const uint64_t stride = (uint64_t)a.lanes.n_group * (D + 2);
    float most = a.lse2[head];
    for (uint32_t i = 0; i < a.n_parts; i++) most = fmaxf(most, parts[i * stride + D]);
    if (most == -INFINITY) most = 0; /* no tokens at all */
    float weight = power_of_two(a.lse2[head] - most), out[N];
    __syncwarp();
    for (int j = 0; j < N; j++) out[j] = weight * a.other[(uint64_t)head * D + j * 32 + threadIdx.x];
    for (uint32_t i = 0; i < a.n_parts; i++) {
        const float *part = parts + i * stride, less = power_of_two(part[D] - most);
        weight += less * part[D + 1];
        for (int j = 0; j < N; j++) out[j] += less * part[j * 32 + threadIdx.x];
    }
    const float inverse = weight > 0 ? 1 / weight : 0;
    if (threadIdx.x == 0) a.lse2[head] = most + log2f(weight);
    for (int j = 0; j < N; j++) {
        const uint64_t at = (uint64_t)head * D + j * 32 + threadIdx.x;
        if (a.is_f16)
            ((__half *)a.out)[at] = __float2half_rn(out[j] * inverse);
        else
            ((float *)a.out)[at] = out[j] * inverse;
    }
}

/* ---- launching ------------------------------------------------------------------------------------------ */

template <int D> static uint32_t shared_bytes(const pleat__device_block_lanes *l) {
    return plan_of<D>(0, l->payload_bytes).end;
}

template <int D> static pleat_status parts_of(const pleat__device_block_lanes *l, uint32_t *n_parts, pleat_error *err) {
    const uint32_t bytes = shared_bytes<D>(l);
    int device, n_multiprocessors, resident;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
                   "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "attention over blocks", err);
    PLEAT_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, attend<D>, 32, bytes),
                   "attention over blocks", err);
    const uint32_t n = (uint32_t)(n_multiprocessors * resident) / (l->n_seqs * l->n_kv_heads);
    *n_parts = n < 1 ? 1 : n > 64 ? 64 : n;
    return PLEAT_OK;
}

extern "C" pleat_status pleat__device_blocks_parts(const pleat__device_block_lanes *l, uint32_t *n_parts,
                                                   pleat_error *err) {
    return l->head_dim == 128 ? parts_of<128>(l, n_parts, err) : parts_of<64>(l, n_parts, err);
}

template <int D> static pleat_status launch(const pleat__device_blocks_attn *a, cudaStream_t stream, pleat_error *err) {
    const uint32_t n_lanes = a->lanes.n_seqs * a->lanes.n_kv_heads;
    PLEAT_CUDA_TRY(
        cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes<D>(&a->lanes)),
        "attention over blocks", err);
    attend<D><<<n_lanes * a->n_parts, 32, shared_bytes<D>(&a->lanes), stream>>>(*a);
    PLEAT_TRY(PLEAT_CUDA_LAUNCHED("attention over blocks", err));
    merge<D><<<n_lanes * a->lanes.n_group, 32, 0, stream>>>(*a);
    return PLEAT_CUDA_LAUNCHED("attention over blocks", err);
}

extern "C" pleat_status pleat__device_blocks_attend(const pleat__device_blocks_attn *a, pleat__device_stream stream,
                                                    pleat_error *err) {
    return a->lanes.head_dim == 128 ? launch<128>(a, pleat__cuda_stream(stream), err)
                                    : launch<64>(a, pleat__cuda_stream(stream), err);
}
