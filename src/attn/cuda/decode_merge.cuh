/* SPDX-License-Identifier: MIT
 *
 * decode_merge.cuh: what a warp has added up of a lane, and how that becomes the lane's output.
 *
 *     a warp has read all of a lane    it finishes it                                    state_finish()
 *     several warps of a block         each leaves a part, the block's threads merge     state_leave(), merge_shared()
 *     several blocks                   each leaves what it merged; the last merges that  arrive(), merge_blocks()
 *
 * Parts are [8] m, [8] l, [n_group][D] o in f32.  A lane that goes on behind a warp's share leaves its part in the
 * warp's ring, which is idle by then.  One that began before and ends in it leaves its part behind the ring.  A warp
 * has at most one of each.  A block has at most two lanes that it shares with others: one that began before it (slot
 * 2b + 1 of the workspace, whether it ends in it or not), and one that goes on (slot 2b).  Parts are merged in one
 * fixed order, whoever does it.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_MERGE_CUH
#define PLEAT_ATTN_CUDA_DECODE_MERGE_CUH

#include "attn/cuda/decode_share.cuh"
#include "attn/cuda/decode_tile.cuh"

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* o of one head, elements 32 * i + 4 * r and on, times `factor`. */
template <int D> static __device__ __forceinline__ float4 four_of(const warp_state<D> &st, int h, int i, float factor) {
    const float *x = st.o[2 * i], *y = st.o[2 * i + 1];
    return make_float4(x[h] * factor, x[2 + h] * factor, y[h] * factor, y[2 + h] * factor);
}

/* Four elements of the output. */
static __device__ __forceinline__ void store_out(const pleat__decode_params &a, uint64_t at, float4 o) {
    if (a.is_f16)
        *(uint2 *)(void *)((uint16_t *)a.out + at) = make_uint2(floats_to_halves(o.x, o.y), floats_to_halves(o.z, o.w));
    else
        *(float4 *)(void *)((float *)a.out + at) = o;
}

/* The lane is done: its output.  lane: index of (sequence, KV head). */
template <int D>
static __device__ __forceinline__ void state_finish(const warp_state<D> &st, const pleat__decode_params &a,
                                                    uint32_t lane, int thread) {
    const int r = thread >> 2, j = thread & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t head = 2 * j + h;
        if (head >= a.view.n_group) continue;
        const uint64_t at = (uint64_t)lane * a.view.n_group + head;
        const float factor = st.weight_sum[h] == 0 ? 0 : 1 / st.weight_sum[h]; /* what is no number stays none */
#pragma unroll
        for (int i = 0; i < D / 32; i++) store_out(a, at * D + 32 * i + 4 * r, four_of(st, h, i, factor));
        if (a.lse2 && r == 0) a.lse2[at] = st.m_ref[h] + log2f(st.weight_sum[h]);
    }
}

template <int D>
static __device__ __forceinline__ void state_leave(const warp_state<D> &st, float *part, uint32_t n_group, int thread) {
    const int r = thread >> 2, j = thread & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t head = 2 * j + h;
        if (head >= n_group) continue;
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            *(float4 *)(void *)(part + PLEAT__PART_O + head * D + 32 * i + 4 * r) = four_of(st, h, i, 1);
        if (r == 0) {
            part[head] = st.m_ref[h];
            part[8 + head] = st.weight_sum[h];
        }
    }
}

/* Four elements of o, with their head's m and l. */
struct merged {
    float m, l;
    float4 o;
};

/* Raise x's reference to `most`, not below x.m. */
static __device__ __forceinline__ void merged_raise(merged &x, float most) {
    const float factor = power_of_two(x.m - most);
    x = {most, x.l * factor, {x.o.x * factor, x.o.y * factor, x.o.z * factor, x.o.w * factor}};
}

/* Add y, whose m is not above x.m. */
static __device__ __forceinline__ void merged_add(merged &x, const merged &y) {
    const float factor = power_of_two(y.m - x.m);
    x.l += y.l * factor;
    x.o.x += y.o.x * factor;
    x.o.y += y.o.y * factor;
    x.o.z += y.o.z * factor;
    x.o.w += y.o.w * factor;
}

static __device__ __forceinline__ merged merged_none() { return {-3.0e38f, 0, {0, 0, 0, 0}}; }

/* Of a part in the workspace. */
template <int D> static __device__ __forceinline__ merged load_part(const float *part, uint32_t element) {
    const float4 o = __ldcg((const float4 *)(const void *)(part + PLEAT__PART_O + element));
    return {__ldcg(part + element / D), __ldcg(part + 8 + element / D), o};
}

/* Of one in shared memory. */
template <int D> static __device__ __forceinline__ merged part_at(const float *part, uint32_t element) {
    return {part[element / D], part[8 + element / D], *(const float4 *)(const void *)(part + PLEAT__PART_O + element)};
}

template <int D> static __device__ __forceinline__ void store_part(float *part, const merged &x, uint32_t element) {
    *(float4 *)(void *)(part + PLEAT__PART_O + element) = x.o;
    if (element % D == 0) {
        part[element / D] = x.m;
        part[8 + element / D] = x.l;
    }
}

template <int D>
static __device__ __forceinline__ void store_merged(const merged &x, const pleat__decode_params &a, uint32_t lane,
                                                    uint32_t element) {
    const uint64_t at = (uint64_t)lane * a.view.n_group + element / D;
    const float inverse = x.l == 0 ? 0 : 1 / x.l;
    store_out(a, at * D + element % D, make_float4(x.o.x * inverse, x.o.y * inverse, x.o.z * inverse, x.o.w * inverse));
    if (a.lse2 && element % D == 0) a.lse2[at] = x.m + log2f(x.l);
}

/* A lane that several warps of a block have read, or several blocks. */
struct shared_lane {
    uint32_t lane;
    uint32_t first, last; /* warps of the block, in the lane's order */
    bool before, after;   /* the lane begins before the block, goes on behind it */
};

/* A block's shared memory: for each warp its ring, and behind it the part of a lane that began before it and ends in
 * it. */
template <class C> struct block_memory {
    float *rings;
    uint32_t stride; /* from warp to warp, floats */

    __device__ __forceinline__ block_memory(uint8_t *memory, uint32_t n_group)
        : rings((float *)(void *)memory), stride(C::warp_bytes / sizeof(float) + pleat__part_floats(C::d, n_group)) {}
    __device__ __forceinline__ float *ring(uint32_t warp) const { return rings + warp * stride; }
    __device__ __forceinline__ float *end_part(uint32_t warp) const {
        return ring(warp) + C::warp_bytes / sizeof(float);
    }
};

/* Merge elements i, i + by, .. of what the block's warps have of a lane.  If other blocks have read it too, leave the
 * result for the last of them to come. */
template <class C>
static __device__ __forceinline__ void merge_lane(const shared_lane &s, const pleat__decode_params &a,
                                                  const block_memory<C> &memory, uint32_t i, uint32_t by) {
    const uint32_t in_rings = s.after ? s.last + 1 : s.last;
    float *left = a.block_parts + (2 * (uint64_t)blockIdx.x + s.before) * pleat__part_floats(C::d, a.view.n_group);
#pragma unroll 1
    for (; i < a.view.n_group * C::d; i += by) {
        merged x = merged_none();
        if (!s.after) x = part_at<C::d>(memory.end_part(s.last), i);
        float most = x.m;
#pragma unroll 4
        for (uint32_t w = s.first; w < in_rings; w++) most = fmaxf(most, memory.ring(w)[i / C::d]);
        merged_raise(x, most);
#pragma unroll 4
        for (uint32_t w = s.first; w < in_rings; w++) merged_add(x, part_at<C::d>(memory.ring(w), i));
        if (s.before || s.after)
            store_part<C::d>(left, x, i);
        else
            store_merged<C::d>(x, a, s.lane, i);
    }
}

/* Four elements of what blocks from, from + by, .. last have left of a lane that begins in block `first`; eight parts
 * are loaded at once. */
template <int D>
static __device__ __forceinline__ merged merge_some(const pleat__decode_params &a, uint32_t first, uint32_t last,
                                                    uint32_t from, uint32_t by, uint32_t element) {
    merged x = merged_none();
#pragma unroll 1
    for (; from <= last; from += 8 * by) {
        merged y[8];
        float most = x.m;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t b = from + i * by;
            const uint64_t slot = 2 * (uint64_t)b + (b > first);
            y[i] = merged_none();
            if (b <= last) y[i] = load_part<D>(a.block_parts + slot * pleat__part_floats(D, a.view.n_group), element);
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) most = fmaxf(most, y[i].m);
        merged_raise(x, most);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) merged_add(x, y[i]);
    }
    return x;
}

/* The same of n parts that stand one behind the other. */
template <int D>
static __device__ __forceinline__ merged merge_some(const pleat__decode_params &a, const float *parts, uint32_t n,
                                                    uint32_t element) {
    merged x = merged_none();
#pragma unroll 1
    for (uint32_t from = 0; from < n; from += 8) {
        merged y[8];
        float most = x.m;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            y[i] = merged_none();
            if (from + i < n)
                y[i] = load_part<D>(parts + (uint64_t)(from + i) * pleat__part_floats(D, a.view.n_group), element);
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) most = fmaxf(most, y[i].m);
        merged_raise(x, most);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) merged_add(x, y[i]);
    }
    return x;
}

/* What a block's warps share: where its shares start, and the lanes at its borders, that other blocks have read too:
 * blocks first..last. */
struct block_borders {
    position starts[PLEAT__DECODE_WARPS + 1];
    uint32_t lanes[2], first[2], last[2];
    bool is_last[2]; /* this block came last to the lane at its front border, at its back */
};

/* Which blocks have read the lane at the block's front border (i = 0) or back: the lane in which share s starts. */
static __device__ __forceinline__ void note_border(block_borders &b, int i, const pleat__share_start &s,
                                                   uint32_t n_warps) {
    b.lanes[i] = s.lane;
    b.first[i] = s.first_share / n_warps;
    b.last[i] = s.last_share / n_warps;
}

/* A warp's share is from `first` to `next`. */
static __device__ __forceinline__ void note_share(block_borders &b, uint32_t warp, const pleat__share_start &first,
                                                  const pleat__share_start &next) {
    const uint32_t n_warps = blockDim.x / 32;
    b.starts[warp] = {first.lane, first.tile};
    if (warp == 0) note_border(b, 0, first, n_warps);
    if (warp < n_warps - 1) return;
    b.starts[n_warps] = {next.lane, next.tile};
    note_border(b, 1, next, n_warps);
}

/* Merge what many blocks have left of a lane, by all threads: groups take every n_groups'th block and meet in shared
 * memory. */
template <class C>
static __device__ __forceinline__ void merge_many(const pleat__decode_params &a, const block_borders &b, int border,
                                                  float *shared) {
    const uint32_t part_floats = pleat__part_floats(C::d, a.view.n_group), items = a.view.n_group * C::d / 4;
    const uint32_t n_groups = min(blockDim.x / items, blockDim.x / 32); /* a part of each fits the rings: one a warp */
    const uint32_t group = threadIdx.x / items, element = threadIdx.x % items * 4;
    if (group < n_groups)
        store_part<C::d>(
            shared + group * part_floats,
            merge_some<C::d>(a, b.first[border], b.last[border], b.first[border] + group, n_groups, element), element);
    __syncthreads();
    if (group == 0) {
        merged x = merged_none();
        for (uint32_t g = 0; g < n_groups; g++) {
            const merged y = part_at<C::d>(shared + g * part_floats, element);
            merged_raise(x, fmaxf(x.m, y.m));
            merged_add(x, y);
        }
        store_merged<C::d>(x, a, b.lanes[border], element);
    }
    __syncthreads();
}

/* Merge what blocks have left of the lanes at this block's borders to which it came last. */
template <class C>
static __device__ __forceinline__ void merge_blocks(const pleat__decode_params &a, const block_borders &b,
                                                    float *shared) {
    const uint32_t items = a.view.n_group * C::d / 4;
    const uint32_t most = blockDim.x >= 2 * items ? 7 : UINT32_MAX; /* after the first, of those that are not many */
    for (uint32_t k = threadIdx.x; k < 2 * items; k += blockDim.x) {
        const int i = k >= items;
        const uint32_t element = (i ? k - items : k) * 4;
        if (b.is_last[i] && b.last[i] - b.first[i] <= most)
            store_merged<C::d>(merge_some<C::d>(a, b.first[i], b.last[i], b.first[i], 1, element), a, b.lanes[i],
                               element);
    }
    for (int i = 0; i < 2; i++)
        if (b.is_last[i] && b.last[i] - b.first[i] > most) merge_many<C>(a, b, i, shared);
}

/* Merge what the block's warps have of every lane that goes across a border of their shares: groups of threads take
 * lanes in turn. */
template <class C>
static __device__ __forceinline__ void merge_shared(const pleat__decode_params &a, const block_borders &b,
                                                    const block_memory<C> &memory) {
    const uint32_t n_warps = blockDim.x / 32, items = a.view.n_group * C::d / 4;
    const uint32_t n_groups = max(blockDim.x / items, 1), of_group = min(blockDim.x, items);
    const uint32_t group = threadIdx.x / of_group, element = threadIdx.x % of_group * 4;
    uint32_t turn = 0;
    for (uint32_t k = 0; k <= n_warps; k++) {
        if (b.starts[k].tile == 0) continue;
        shared_lane s = {b.starts[k].lane, k > 0 ? k - 1 : 0, k, k == 0, false};
        while (k < n_warps && b.starts[k + 1].lane == s.lane) k++;
        s.after = k == n_warps;
        s.last = s.after ? n_warps - 1 : k;
        if (turn++ % n_groups == group) merge_lane<C>(s, a, memory, element, of_group * 4);
    }
}

/* Count one more block at a lane; how many were there before.  What the block's threads wrote before the barrier that
 * is before this is seen by whoever comes later, and behind its next barrier by its other threads. */
static __device__ __forceinline__ uint32_t arrive(uint32_t *counter, uint32_t n) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(n) : "memory");
    return before;
}

/* Merge every lane that goes across a border of a share of the block. */
template <class C>
static __device__ __forceinline__ void merge_lanes(const pleat__decode_params &a, block_borders &b,
                                                   const block_memory<C> &memory) {
    const uint32_t n_warps = blockDim.x / 32;
    merge_shared<C>(a, b, memory);
    const position front = b.starts[0], back = b.starts[n_warps];
    if (front.tile == 0 && back.tile == 0) return;
    __syncthreads();
    if (threadIdx.x < 2) {
        const position at = threadIdx.x ? back : front;
        const bool both = front.tile > 0 && front.lane == back.lane; /* one lane, counted once */
        bool is_last = false;
        if (at.tile > 0 && !(threadIdx.x && both)) {
            is_last = arrive(a.arrivals + at.lane, 1) == b.last[threadIdx.x] - b.first[threadIdx.x];
            if (is_last) a.arrivals[at.lane] = 0;
        }
        b.is_last[threadIdx.x] = is_last;
    }
    __syncthreads();
    merge_blocks<C>(a, b, memory.rings);
}

#endif
