/* SPDX-License-Identifier: MIT
 *
 * decode.cu: the plan of decode attention, and its launch: which kernel runs for which formats, on what grid, with what
 * workspace.  decode_schedule.cu cuts the work, decode_received.cu counts what slots received.  See decode.h.
 */
#include "attn/cuda/decode.h"
#include "attn/cuda/decode_share.cuh"
#include "attn/cuda/decode_table.cuh"
#include "attn/cuda/ops.cuh"
#include "hw/cuda/launch.cuh"

extern "C" {
#include "quant/layout.h"
}

/* In units of 32 bytes, from times on an H200, 2026-11-22 (docs/PERF.md): what a tile costs besides its bytes, and a
 * lane besides its tiles. */
#define TILE_UNITS 1024u
#define LANE_UNITS 1700u
#define MAX_LANES (1u << 20)
#define ALIGN_BYTES 256u
/* FIXED_SPLITS: a lane has so many pieces at most, and a piece about so many tiles at least.  One sequence would have smaller
 * ones, many larger: docs/GPU-KERNELS.md, "Fixed splits". */
#define MAX_PIECES 32u
#define LEAST_PIECE_TILES 70u

/* ---- the plan ------------------------------------------------------------------------------------------- */

/* Kernel i of all tables, or NULL. */
static const pleat__decode_kernel *kernel_at(uint32_t i) {
    typedef const pleat__decode_kernel *(*table_fn)(uint32_t *);
    static const table_fn tables[] = {pleat__decode_kernels_f16,      pleat__decode_kernels_one_k8,
                                      pleat__decode_kernels_one_k4,   pleat__decode_kernels_one_k2,
                                      pleat__decode_kernels_two_k8v8, pleat__decode_kernels_two_v4,
                                      pleat__decode_kernels_one_h4,   pleat__decode_kernels_one_h3,
                                      pleat__decode_kernels_one_h2,   pleat__decode_kernels_two_h};
    for (uint32_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        uint32_t n;
        const pleat__decode_kernel *rows = tables[t](&n);
        if (i < n) return rows + i;
        i -= n;
    }
    return NULL;
}

/* The first that fits; UINT32_MAX: none does. */
static uint32_t find_kernel(const pleat__device_view *v) {
    const pleat__page_layout *l = v->layouts;
    const bool two_sides = pleat__low_slots(v) != NULL;
    if (two_sides && l[0].head_dim != l[1].head_dim) return UINT32_MAX;
    const pleat__decode_kernel *k;
    for (uint32_t i = 0; (k = kernel_at(i)) != NULL; i++) {
        if (k->head_dim == l[0].head_dim && v->n_group <= k->heads && pleat__is_format(k->formats[0], l[0].format) &&
            pleat__is_format(k->formats[1], l[two_sides].format))
            return i;
    }
    return UINT32_MAX;
}

static pleat_status check_shape(const pleat__device_view *v, uint32_t seqs_cap, pleat_error *err) {
    const pleat__page_layout *l = v->layouts;
    const uint64_t n_lanes = (uint64_t)seqs_cap * v->n_kv_heads;
    if (v->n_group < 1 || v->n_group > 8)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: %u query heads share a KV head; 1 to 8 can", v->n_group);
    if (n_lanes == 0 || n_lanes > MAX_LANES || v->n_layers == 0)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE, "attention on the GPU: %llu lanes of %u layers",
                                (unsigned long long)n_lanes, v->n_layers);
    if (find_kernel(v) == UINT32_MAX)
        return pleat__error_set(
            err, PLEAT_E_ARG, PLEAT_NOWHERE,
            "attention on the GPU: no kernel for %c%uv%u and %c%uv%u with head_dim %u and %u heads a KV head",
            l[0].format.rotated ? 'h' : 'k', l[0].format.k_bits, l[0].format.v_bits, l[1].format.rotated ? 'h' : 'k',
            l[1].format.k_bits, l[1].format.v_bits, l[0].head_dim, v->n_group);
    return PLEAT_OK;
}

static uint64_t append(uint64_t *end, uint64_t bytes) {
    const uint64_t off = *end;
    *end = (off + bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return off;
}

/* FIXED_SPLITS: all warps of a piece have equally many steps.  A cache with room for few pieces cuts a lane as any other
 * does. */
static void cut_lanes(pleat__device_attn_plan *p, const pleat__device_view *view) {
    const uint32_t of_block = p->n_warps * p->step_tiles;
    uint32_t page_tiles = view->layouts[0].tokens / 16;
    if (page_tiles < view->layouts[1].tokens / 16) page_tiles = view->layouts[1].tokens / 16;
    p->piece_tiles = (LEAST_PIECE_TILES + of_block - 1) / of_block * of_block;
    const uint64_t n_tiles = (uint64_t)view->row_len * page_tiles, n = (n_tiles + p->piece_tiles - 1) / p->piece_tiles;
    p->n_pieces = n < MAX_PIECES ? (uint32_t)n : MAX_PIECES;
}

/* Grid, warps and shared memory, and the workspace that follows from them. */
static void lay_out(pleat__device_attn_plan *p, const pleat__device_view *view, const pleat__decode_kernel *k,
                    uint32_t n_multiprocessors, uint32_t max_smem) {
    const uint64_t lanes_cap = (uint64_t)p->seqs_cap * p->n_kv_heads;
    const uint32_t part_bytes = pleat__part_floats(p->head_dim, p->n_group) * sizeof(float);
    const uint32_t warp_bytes = k->warp_bytes + part_bytes;
    p->n_warps = (max_smem / k->resident - 2048) / warp_bytes; /* a block takes up to 2 KiB besides */
    if (p->n_warps > k->max_warps) p->n_warps = k->max_warps;
    p->smem_bytes = p->n_warps * warp_bytes;
    p->step_tiles = k->step_tiles;
    const bool per_lane = p->schedule == PLEAT__DEVICE_PER_LANE, fixed = p->schedule == PLEAT__DEVICE_FIXED_SPLITS;
    if (fixed) cut_lanes(p, view);
    p->n_blocks = per_lane ? (uint32_t)lanes_cap : n_multiprocessors * k->resident;
    const uint64_t n_starts = fixed ? 0 : (uint64_t)p->n_blocks * p->n_warps + 1;
    const uint64_t n_parts = fixed ? lanes_cap * p->n_pieces : per_lane ? 0 : (uint64_t)p->n_blocks * 2;
    uint64_t end = 0;
    p->starts_off = append(&end, p->n_layers * n_starts * sizeof(pleat__share_start));
    p->lanes_off = append(&end, p->n_layers * lanes_cap * sizeof(pleat__device_lane));
    p->arrivals_off = append(&end, p->n_layers * lanes_cap * sizeof(uint32_t));
    p->block_parts_off = append(&end, n_parts * part_bytes);
    p->places_off = append(&end, fixed ? p->n_layers * (p->n_blocks + 1ull) * sizeof(pleat__piece_place) : 0);
    p->workspace_bytes = end;
}

/* Costs of tiles and lanes, in units so large that no layer that fits a GPU costs 2^32, however its rows are filled. */
static void set_costs(pleat__device_attn_plan *p, const pleat__device_view *view) {
    uint64_t most = 0; /* of a lane: its tiles */
    for (int side = 0; side < 2; side++) {
        const pleat__page_layout *l = &view->layouts[side];
        const bool meta = l->format.k_bits <= 8;
        p->tile_units[side] = (l->k_tile_bytes + l->v_tile_bytes + (meta ? 2 * pleat__meta_tile_bytes(l->format) : 0) +
                               (l->tracked ? 64 : 0)) /
                                  32 +
                              TILE_UNITS;
        const uint64_t of_side = (uint64_t)view->row_len * (l->tokens / 16) * p->tile_units[side];
        if (of_side > most) most = of_side;
    }
    const uint64_t total = (uint64_t)p->seqs_cap * p->n_kv_heads * (most + LANE_UNITS);
    uint32_t shift = 0;
    while (total >> shift > UINT32_MAX / 2) shift++;
    const uint32_t up = (1u << shift) - 1; /* no cost is 0 */
    for (int side = 0; side < 2; side++) p->tile_units[side] = (p->tile_units[side] + up) >> shift;
    p->lane_units = (LANE_UNITS + up) >> shift;
}

pleat_status pleat__device_attn_plan_init(pleat__device_attn_plan *plan, const pleat__device_view *view,
                                          uint32_t seqs_cap, pleat__device_schedule_kind schedule, pleat_error *err) {
    PLEAT_TRY(check_shape(view, seqs_cap, err));
    pleat__device_attn_plan p = {};
    p.schedule = schedule;
    p.head_dim = view->layouts[0].head_dim;
    p.n_layers = view->n_layers;
    p.n_kv_heads = view->n_kv_heads;
    p.n_group = view->n_group;
    p.seqs_cap = seqs_cap;
    p.kernel_idx = find_kernel(view);
    set_costs(&p, view);
    int device, n_multiprocessors, max_smem;
    PLEAT_CUDA_TRY(cudaGetDevice(&device), "attention's plan", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
                   "attention's plan", err);
    PLEAT_CUDA_TRY(cudaDeviceGetAttribute(&max_smem, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
                   "attention's plan", err);
    const pleat__decode_kernel *k = kernel_at(p.kernel_idx);
    lay_out(&p, view, k, (uint32_t)n_multiprocessors, (uint32_t)max_smem);
    PLEAT_FAIL_IF(p.n_warps == 0, err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                  "attention's plan: a multiprocessor has %d bytes of shared memory, a warp needs %u", max_smem,
                  k->warp_bytes);
    const pleat__decode_fn fn = schedule == PLEAT__DEVICE_FIXED_SPLITS ? k->pieces_fn : k->fn;
    PLEAT_CUDA_TRY(
        cudaFuncSetAttribute((const void *)fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)p.smem_bytes),
        "attention's plan", err);
    *plan = p;
    return PLEAT_OK;
}

/* ---- attention ------------------------------------------------------------------------------------------- */

pleat_status pleat__device_attn_check_view(const pleat__device_attn_plan *p, const pleat__device_view *v,
                                           pleat_error *err) {
    if (v->n_seqs > p->seqs_cap || v->n_layers != p->n_layers || v->n_kv_heads != p->n_kv_heads ||
        v->n_group != p->n_group || v->layouts[0].head_dim != p->head_dim || find_kernel(v) != p->kernel_idx)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: a view that the plan is not for");
    return PLEAT_OK;
}

uint32_t pleat__device_attn_blocks(const pleat__device_attn_plan *p, uint32_t n_seqs) {
    const uint64_t n_lanes = (uint64_t)n_seqs * p->n_kv_heads, n_pieces = n_lanes * p->n_pieces;
    if (p->schedule == PLEAT__DEVICE_PER_LANE) return (uint32_t)n_lanes;
    return p->schedule == PLEAT__DEVICE_FIXED_SPLITS && n_pieces < p->n_blocks ? (uint32_t)n_pieces : p->n_blocks;
}

pleat_status pleat__device_attn_decode(const pleat__device_attn_plan *plan, const pleat__device_attn_args *args,
                                       void *workspace, pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(pleat__device_attn_check_view(plan, &args->view, err));
    if (args->layer >= plan->n_layers || args->logits_stride % 2 != 0)
        return pleat__error_set(err, PLEAT_E_ARG, PLEAT_NOWHERE,
                                "attention on the GPU: layer %u of %u, logits_stride %llu", args->layer, plan->n_layers,
                                (unsigned long long)args->logits_stride);
    if (args->view.n_seqs == 0) return PLEAT_OK;
    uint8_t *memory = (uint8_t *)workspace;
    const uint64_t n_shares = (uint64_t)plan->n_blocks * plan->n_warps;
    const uint64_t lanes_cap = (uint64_t)plan->seqs_cap * plan->n_kv_heads;
    pleat__decode_params a = {};
    a.view = args->view;
    a.reads_ahead = args->reads_ahead;
    a.q = args->q;
    a.scale = args->scale;
    a.out = args->out;
    a.is_f16 = args->is_f16;
    a.lse2 = args->lse2;
    a.logits = args->logits;
    a.logits_stride = args->logits_stride;
    a.scored_seqs = args->scored_seqs;
    a.starts = (const pleat__share_start *)(void *)(memory + plan->starts_off) + args->layer * (n_shares + 1);
    a.lanes = (const pleat__device_lane *)(void *)(memory + plan->lanes_off) + args->layer * lanes_cap;
    a.arrivals = (uint32_t *)(void *)(memory + plan->arrivals_off) + args->layer * lanes_cap;
    a.block_parts = (float *)(void *)(memory + plan->block_parts_off);
    a.places = (const pleat__piece_place *)(void *)(memory + plan->places_off) + args->layer * (plan->n_blocks + 1ull);
    a.pieces = {plan->n_pieces, plan->piece_tiles};
    const pleat__decode_kernel *k = kernel_at(plan->kernel_idx);
    pleat__launch(plan->schedule == PLEAT__DEVICE_FIXED_SPLITS ? k->pieces_fn : k->fn,
                  pleat__device_attn_blocks(plan, args->view.n_seqs), plan->n_warps * 32, plan->smem_bytes, stream, a);
    return PLEAT_CUDA_LAUNCHED("attention", err);
}
