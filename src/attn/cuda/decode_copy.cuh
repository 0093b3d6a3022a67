/* SPDX-License-Identifier: MIT
 *
 * decode_copy.cuh: a step of decode attention on its way from a page to a warp's shared memory.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_COPY_CUH
#define PLEAT_ATTN_CUDA_DECODE_COPY_CUH

#include "core/device_view.h"
#include "hw/cuda/copy.cuh"

/* What a kernel is made for: the bits of keys or values, or 10 and those of a rotated format. */
#define PLEAT__ROTATED(bits) (10 + (bits))

static __host__ __device__ constexpr bool is_rotated(int kind) { return kind > PLEAT__ROTATED(0) && kind < 16; }
static __host__ __device__ constexpr int bits_of(int kind) {
    return is_rotated(kind) ? kind - PLEAT__ROTATED(0) : kind;
}
/* Bits of a code that stand where plain codes of so many bits do: 2 of 3 (quant/cuda/levels.cuh). */
static __host__ __device__ constexpr int low_bits_of(int kind) { return bits_of(kind) == 3 ? 2 : bits_of(kind); }

/* Whether values meet weights as bytes, and pairs of tokens are dealt out crosswise for that: decode_levels.cuh. */
static __host__ __device__ constexpr bool is_crossed(int vb) { return is_rotated(vb) && low_bits_of(vb) == 2; }

/* Where a step's parts stand: K codes | V codes | K metadata | V metadata | positions, each of T tiles.  Chunks of 16
 * bytes stand where reading them meets all banks.  Metadata has 64 bytes for a tile, of which a rotated format uses
 * the first T * 32; with four tiles it has no more than these. */
template <int D, int KB, int VB, int T> struct step_shape {
    static constexpr bool quantised = KB != 16, rotated = is_rotated(KB);
    static constexpr int k_bytes = 2 * D * bits_of(KB), v_bytes = 2 * D * bits_of(VB); /* codes of a tile */
    static constexpr int meta_bytes = rotated ? 32 : 64;                               /* of a tile's keys or values */
    static constexpr int segment_bytes = T == 4 ? 128 : T * 64;                        /* of a step's K or V metadata */
    static constexpr int v_off = T * k_bytes, meta_off = T * (k_bytes + v_bytes);
    static constexpr int pos_off = meta_off + 2 * segment_bytes;
    static constexpr int bytes = pos_off + T * 64;
    static_assert(T <= 2 || (quantised && rotated), "other metadata takes more threads than there are");
};

/* Where chunk c of K tiles goes. */
template <int D, int KB, int VB> static __device__ __forceinline__ int k_chunk(int c) {
    constexpr int up = is_crossed(VB) ? 0 : 1;
    if (KB == PLEAT__ROTATED(3)) { /* low bits, then thirds */
        const int in_tile = c % (D * 3 / 8);
        return in_tile < D / 4 ? c ^ (in_tile >> 3 & 1) << up : c;
    }
    return KB == 16 ? c ^ (c >> 3 & 1) : c ^ (c >> 3 & 1) << up;
}

/* Where chunk c of V tiles goes. */
template <int D, int VB> static __device__ __forceinline__ int v_chunk(int c) {
    if (VB == 16) return c ^ (c / (D / 8) >> 1 & 3) << 1;
    if (VB == 8) return c ^ (c / (D / 4) & 3) << 1;
    if (bits_of(VB) == 4) return c ^ (c / (D / 4) & 1) << 2;
    return c;
}

/* What copies a step: by a policy of the level-2 cache, or by its own. */
template <bool HAS_POLICY> struct copier {
    uint64_t policy;
    int thread;
    __device__ __forceinline__ void copy(uint32_t to, const void *from) const {
        if constexpr (HAS_POLICY)
            pleat__copy_16_by(to, from, policy);
        else
            pleat__copy_16(to, from);
    }
};

/* Copy n of T pieces of BYTES each, one behind the other in the page as here; to_chunk() says where chunks go. */
template <int BYTES, int T, class B, class F>
static __device__ __forceinline__ void copy_pieces(uint32_t to, const uint8_t *from, uint32_t n, const B &by,
                                                   F to_chunk) {
    const int thread = by.thread;
#pragma unroll
    for (int i = 0; i < (T * BYTES + 511) / 512; i++) {
        const bool wanted =
            BYTES % 512 == 0 ? i * 512 < BYTES || i * 512 < (int)n * BYTES : i * 512 + thread * 16 < (int)n * BYTES;
        if (wanted) by.copy(to + to_chunk(i * 32 + thread) * 16, from + i * 512);
    }
}

/* What a thread copies of a step's metadata: 16 bytes of K's (segment 0), V's or the positions. */
template <class SHAPE> struct meta_part {
    static constexpr int of_segment = SHAPE::segment_bytes / 16; /* threads */
    uint32_t segment, at, of_tile;                               /* bytes in the segment, and of a tile there */
    __device__ __forceinline__ explicit meta_part(int thread)
        : segment(min((uint32_t)thread / of_segment, 2)), at((thread - segment * of_segment) * 16),
          of_tile(segment < 2 ? SHAPE::meta_bytes : 64) {}
};

/* Where a thread's 16 bytes of a step's metadata stand in a page, from its tile's bytes on; UINT32_MAX: it copies
 * none. */
template <int D, int KB, int VB, int T>
static __device__ __forceinline__ uint32_t meta_source(const pleat__page_layout &l, int thread) {
    using shape = step_shape<D, KB, VB, T>;
    const meta_part<shape> part(thread);
    if (part.at >= T * part.of_tile) return UINT32_MAX;
    if (part.segment < 2) return shape::quantised ? (part.segment ? l.v_meta_off : l.k_meta_off) + part.at : UINT32_MAX;
    return l.tracked ? l.pos_off + part.at : UINT32_MAX;
}

/* Start copying tiles tile .. tile + n - 1 of a page to shared memory, n in 1..T. */
template <int D, int KB, int VB, int T, class B>
static __device__ __forceinline__ void copy_step(uint32_t to, const uint8_t *page, const pleat__page_layout &l,
                                                 uint32_t meta, uint32_t tile, uint32_t n, const B &by) {
    using shape = step_shape<D, KB, VB, T>;
    const int thread = by.thread;
    const uint8_t *k = page + (l.k_off + tile * shape::k_bytes + thread * 16);
    copy_pieces<shape::k_bytes, T>(to, k, n, by, k_chunk<D, KB, VB>);
    const uint8_t *v = page + (l.v_off + tile * shape::v_bytes + thread * 16);
    copy_pieces<shape::v_bytes, T>(to + shape::v_off, v, n, by, v_chunk<D, VB>);
    const meta_part<shape> part(thread);
    if (meta != UINT32_MAX && (T == 1 || part.at < n * part.of_tile))
        by.copy(to + shape::meta_off + thread * 16, page + (meta + tile * part.of_tile));
}

#endif
