/* SPDX-License-Identifier: MIT
 *
 * quant.cu: the list of operations of quant.h.
 */
#include "quant/cuda/quant.h"

#include "hw/cuda/cuda.cuh"
#include "quant/cuda/tile.cuh"
#include "quant/cuda/wide.cuh"

static __device__ inline uint8_t *page_of(const pleat__device_quant_args &a, const pleat__device_quant_slot &s) {
    return a.base + s.page * a.page_bytes;
}

/* One token's key and value. */
typedef struct token {
    pleat__device_quad k, v;
} token;

template <int D> static __device__ inline token row_of(const pleat__device_quant_args &a, uint32_t row) {
    const uint64_t at = (uint64_t)row * (D / 4) + pleat__device_team_thread<D>();
    return token{pleat__device_quad_of(((const uint2 *)a.k)[at]), pleat__device_quad_of(((const uint2 *)a.v)[at])};
}

template <int D>
static __device__ inline token load(const pleat__device_quant_args &a, const pleat__device_quant_slot &s) {
    const pleat__page_layout &l = a.layouts[s.layout];
    return token{pleat__device_load_key<D>(l, page_of(a, s), s.slot),
                 pleat__device_load_value<D>(l, page_of(a, s), s.slot)};
}

template <int D>
static __device__ inline void put(const pleat__device_quant_args &a, const pleat__device_quant_slot &to, token x,
                                  bool is_store) {
    const pleat__page_layout &l = a.layouts[to.layout];
    if (is_store && to.slot % PLEAT__TILE == 0) pleat__device_clear_tile(l, page_of(a, to), to.slot / PLEAT__TILE);
    if (l.format.rotated) {
        pleat__device_wide_put(l, page_of(a, to), to.slot, {{pleat__device_clamp_quad(x.k)}},
                               {{pleat__device_clamp_quad(x.v)}}, D / 4);
        return;
    }
    pleat__device_put_key<D>(l, page_of(a, to), to.slot, x.k, pleat__device_in_first_team<D>());
    pleat__device_put_value<D>(l, page_of(a, to), to.slot, x.v, pleat__device_in_first_team<D>());
}

template <int D>
static __device__ inline void store_tile(const pleat__device_quant_args &a, const pleat__device_quant_op &op) {
    const pleat__page_layout &l = a.layouts[op.to.layout];
    const uint2 *const from[2] = {(const uint2 *)a.k, (const uint2 *)a.v};
    if (l.format.rotated) {
        pleat__device_clear_codes(l, page_of(a, op.to), op.to.slot / PLEAT__TILE);
        for (uint32_t i = 0; i < op.n; i++) {
            pleat__device_quant_slot to = op.to;
            to.slot += i;
            put<D>(a, to, row_of<D>(a, op.row + i), false);
            __syncwarp();
        }
        return;
    }
    pleat__device_rows<D> rows[2];
    for (int which = 0; which < 2; which++) {
        rows[which].first = pleat__device_first_token<D>();
        rows[which].n = op.n;
#pragma unroll
        for (uint32_t i = 0; i < D / 8; i++) {
            const uint32_t token = rows[which].first + i;
            const uint64_t at = (uint64_t)(op.row + token) * (D / 4) + pleat__device_team_thread<D>();
            rows[which].quads[i] = token < op.n ? pleat__device_clamp_halves(from[which][at]) : make_uint2(0, 0);
        }
    }
    pleat__device_store_keys<D>(l, page_of(a, op.to), op.to.slot / PLEAT__TILE, rows[0]);
    pleat__device_store_values<D>(l, page_of(a, op.to), op.to.slot / PLEAT__TILE, rows[1]);
}

template <int D> static __device__ inline void write_out(const pleat__device_quant_args &a, uint32_t row, token x) {
    if (!pleat__device_in_first_team<D>()) return;
    const uint64_t at = (uint64_t)row * D + 4 * pleat__device_team_thread<D>();
    for (int i = 0; i < 4; i++) {
        a.out_k[at + i] = x.k.x[i];
        a.out_v[at + i] = x.v.x[i];
    }
}

template <int D> static __global__ void __launch_bounds__(32) run(const __grid_constant__ pleat__device_quant_args a) {
    for (uint32_t i = 0; i < a.n_ops; i++) {
        const pleat__device_quant_op op = a.ops[i];
        if (op.kind == PLEAT__DEVICE_STORE) put<D>(a, op.to, row_of<D>(a, op.row), true);
        if (op.kind == PLEAT__DEVICE_REPLACE) put<D>(a, op.to, row_of<D>(a, op.row), false);
        if (op.kind == PLEAT__DEVICE_STORE_TILE) store_tile<D>(a, op);
        if (op.kind == PLEAT__DEVICE_COPY)
            pleat__device_copy_token<D>(a.layouts[op.to.layout], page_of(a, op.to), op.to.slot, page_of(a, op.from),
                                        op.from.slot, pleat__device_in_first_team<D>());
        if (op.kind == PLEAT__DEVICE_REQUANTISE) put<D>(a, op.to, load<D>(a, op.from), true);
        if (op.kind == PLEAT__DEVICE_LOAD) write_out<D>(a, op.row, load<D>(a, op.from));
        __syncwarp();
    }
}

extern "C" pleat_status pleat__device_quant_run(const pleat__device_quant_args *a, pleat__device_stream stream,
                                                pleat_error *err) {
    if (a->layouts[0].head_dim == 128)
        run<128><<<1, 32, 0, pleat__cuda_stream(stream)>>>(*a);
    else
        run<64><<<1, 32, 0, pleat__cuda_stream(stream)>>>(*a);
    return PLEAT_CUDA_LAUNCHED("quantising", err);
}
