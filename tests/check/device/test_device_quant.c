/* SPDX-License-Identifier: MIT
 *
 * test_device_quant.c: the GPU's quantiser against the CPU's: the same list of operations on the same pages leaves the
 * same bytes, for every format and both head dimensions, and tokens come back with the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/half.h"
#include "quant/cuda/quant.h"
#include "quant/quant.h"

enum { PAGES = 4, TOKENS = 48, ROWS = 64, OPS = 600, FORMATS = 16 };

static const pleat_format formats[FORMATS] = {{16, 16},  {8, 8},    {8, 4},    {8, 2},   {4, 8},    {4, 4},
                                              {4, 2},    {2, 8},    {2, 4},    {2, 2},   {4, 4, 1}, {3, 3, 1},
                                              {2, 2, 1}, {4, 3, 1}, {3, 2, 1}, {2, 4, 1}};

typedef struct rig {
    pleat__device_quant_args args; /* pointers of the device */
    uint32_t d;
    uint64_t bytes; /* of all pages */
    uint8_t *pages; /* the CPU's */
    uint16_t k[ROWS * 128], v[ROWS * 128];
    float out_k[ROWS * 128], out_v[ROWS * 128];
    pleat__device_quant_op ops[OPS];
} rig;

static const pleat__device_stream default_stream = {NULL};

static void *device_copy_of(const void *from, uint64_t bytes) {
    void *p = NULL;
    CHECK_STATUS(pleat__device_alloc(bytes, &p, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_copy(p, from, bytes, default_stream, NULL), PLEAT_OK);
    return p;
}

static void bring(void *to, const void *from, uint64_t bytes) {
    CHECK_STATUS(pleat__device_copy(to, from, bytes, default_stream, NULL), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(default_stream, NULL), PLEAT_OK);
}

/* Every kind of row, then NaN and infinities. */
static void fill_rows(uint16_t *rows, uint32_t d) {
    float x[128];
    for (uint32_t row = 0; row < ROWS; row++) {
        const float sizes[] = {1, 1e-6f, 3e4f, 30};
        check_fill(x, d, row % CHECK_N_FILLS, sizes[row / CHECK_N_FILLS % 4]);
        for (uint32_t i = 0; i < d; i++) rows[row * d + i] = pleat__f32_to_f16(x[i]);
        if (row == 5) rows[row * d + 3] = 0x7E00;
        if (row == 11) rows[row * d + 1] = 0x7C00;
        if (row == 12) rows[row * d + d - 1] = 0xFC00;
    }
}

static void widen(const rig *r, const uint16_t *rows, uint32_t row, float *x) {
    for (uint32_t i = 0; i < r->d; i++) x[i] = pleat__f16_to_f32(rows[row * r->d + i]);
}

static uint8_t *page_of(const rig *r, pleat__device_quant_slot s) { return r->pages + s.page * r->args.page_bytes; }

/* Scores and positions of a tile stay: what STORE_TILE leaves to the caller. */
static void store_tile(const rig *r, const pleat__quant_dsp *dsp, const pleat__device_quant_op *op) {
    const pleat__page_layout *l = &r->args.layouts[op->to.layout];
    float k[16 * 128], v[16 * 128];
    uint32_t kept[32];
    uint8_t *page = page_of(r, op->to);
    for (uint32_t i = 0; i < op->n; i++) {
        widen(r, r->k, op->row + i, k + i * r->d);
        widen(r, r->v, op->row + i, v + i * r->d);
    }
    memcpy(kept, pleat__scores(l, page) + op->to.slot, 64);
    memcpy(kept + 16, pleat__positions(l, page) + op->to.slot, 64);
    dsp->store(l, page, op->to.slot, op->n, k, v, r->d);
    memcpy(pleat__scores(l, page) + op->to.slot, kept, 64);
    memcpy(pleat__positions(l, page) + op->to.slot, kept + 16, 64);
}

static void run_here(rig *r, const pleat__quant_dsp *dsp, const pleat__device_quant_op *op) {
    const pleat__page_layout *to = &r->args.layouts[op->to.layout], *from = &r->args.layouts[op->from.layout];
    float k[128], v[128];
    if (op->kind == PLEAT__DEVICE_STORE || op->kind == PLEAT__DEVICE_REPLACE) {
        widen(r, r->k, op->row, k);
        widen(r, r->v, op->row, v);
    } else if (op->kind == PLEAT__DEVICE_REQUANTISE || op->kind == PLEAT__DEVICE_LOAD) {
        pleat__quant_load_token(from, page_of(r, op->from), op->from.slot, k, v);
    }
    switch (op->kind) {
        case PLEAT__DEVICE_STORE:
        case PLEAT__DEVICE_REQUANTISE: dsp->store(to, page_of(r, op->to), op->to.slot, 1, k, v, r->d); break;
        case PLEAT__DEVICE_REPLACE: dsp->replace(to, page_of(r, op->to), op->to.slot, k, v); break;
        case PLEAT__DEVICE_STORE_TILE: store_tile(r, dsp, op); break;
        case PLEAT__DEVICE_COPY:
            pleat__quant_copy(to, page_of(r, op->to), op->to.slot, page_of(r, op->from), op->from.slot);
            break;
        case PLEAT__DEVICE_LOAD:
            memcpy(r->out_k + op->row * r->d, k, r->d * sizeof *k);
            memcpy(r->out_v + op->row * r->d, v, r->d * sizeof *v);
            break;
    }
}

/* Pages 0 and 1 have the first layout, 2 and 3 the second. */
static pleat__device_quant_slot any_slot(uint32_t layout) {
    return (pleat__device_quant_slot){layout, 2 * layout + (uint32_t)check_below(2), (uint32_t)check_below(TOKENS)};
}

/* First every tile is filled; then anything. */
static void make_ops(rig *r) {
    const uint32_t n_tiles = PAGES * TOKENS / 16;
    for (uint32_t i = 0; i < OPS; i++) {
        pleat__device_quant_op *op = &r->ops[i];
        *op = (pleat__device_quant_op){.kind = (pleat__device_quant_kind)check_below(6), .n = 16};
        op->to = any_slot((uint32_t)check_below(2));
        op->from = any_slot(op->kind == PLEAT__DEVICE_COPY ? op->to.layout : (uint32_t)check_below(2));
        op->row = (uint32_t)check_below(ROWS - 16);
        if (i < n_tiles) {
            op->kind = PLEAT__DEVICE_STORE_TILE;
            op->to = (pleat__device_quant_slot){i / (n_tiles / 2), i / (TOKENS / 16), i % (TOKENS / 16) * 16};
        } else if (op->kind == PLEAT__DEVICE_STORE_TILE) {
            op->to.slot &= ~15u;
            op->n = (uint32_t)check_between(1, 16);
        }
    }
}

static void lay_out(rig *r, pleat_format a, pleat_format b) {
    CHECK_STATUS(pleat__page_layout_init(&r->args.layouts[0], a, r->d, TOKENS, true), PLEAT_OK);
    CHECK_STATUS(pleat__page_layout_init(&r->args.layouts[1], b, r->d, TOKENS, true), PLEAT_OK);
    const uint32_t most = pleat__max_u32(r->args.layouts[0].used_bytes, r->args.layouts[1].used_bytes);
    r->args.page_bytes = pleat__div_up_u32(most, 128) * 128;
    r->bytes = PAGES * r->args.page_bytes;
}

static void try_formats(rig *r, pleat_format a, pleat_format b) {
    pleat__quant_dsp dsp;
    pleat__quant_dsp_init(&dsp, pleat_cpu_flags());
    check_context("%c%uv%u and %c%uv%u, d %u", a.rotated ? 'h' : 'k', a.k_bits, a.v_bits, b.rotated ? 'h' : 'k',
                  b.k_bits, b.v_bits, r->d);
    lay_out(r, a, b);
    r->pages = aligned_alloc(128, r->bytes);
    if (!CHECK(r->pages)) return;
    memset(r->pages, 0, r->bytes);
    memset(r->out_k, 0, sizeof r->out_k);
    memset(r->out_v, 0, sizeof r->out_v);
    fill_rows(r->k, r->d);
    fill_rows(r->v, r->d);
    make_ops(r);
    uint8_t *got = malloc(r->bytes);
    float *out[2] = {malloc(sizeof r->out_k), malloc(sizeof r->out_v)};
    r->args.base = device_copy_of(r->pages, r->bytes);
    void *ops = device_copy_of(r->ops, sizeof r->ops), *k = device_copy_of(r->k, sizeof r->k);
    void *v = device_copy_of(r->v, sizeof r->v);
    r->args.out_k = device_copy_of(r->out_k, sizeof r->out_k);
    r->args.out_v = device_copy_of(r->out_v, sizeof r->out_v);
    r->args.ops = ops;
    r->args.n_ops = OPS;
    r->args.k = k;
    r->args.v = v;
    CHECK_STATUS(pleat__device_quant_run(&r->args, default_stream, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < OPS; i++) run_here(r, &dsp, &r->ops[i]);
    bring(got, r->args.base, r->bytes);
    CHECK_EQ_MEM(got, r->pages, r->bytes);
    bring(out[0], r->args.out_k, sizeof r->out_k);
    bring(out[1], r->args.out_v, sizeof r->out_v);
    CHECK_EQ_MEM(out[0], r->out_k, sizeof r->out_k);
    CHECK_EQ_MEM(out[1], r->out_v, sizeof r->out_v);
    void *device[] = {r->args.base, ops, k, v, r->args.out_k, r->args.out_v};
    for (size_t i = 0; i < CHECK_COUNT(device); i++) pleat__device_free(device[i]);
    free(out[0]);
    free(out[1]);
    free(got);
    free(r->pages);
}

static void test_bytes(void) {
    CHECK_DEVICE();
    rig *r = calloc(1, sizeof *r);
    if (!CHECK(r)) return;
    for (uint32_t i = 0; i < FORMATS; i++)
        for (r->d = 64; r->d <= 128; r->d += 64) try_formats(r, formats[i], formats[check_below(FORMATS)]);
    free(r);
}

static const check_test tests[] = {{"bytes", test_bytes}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
