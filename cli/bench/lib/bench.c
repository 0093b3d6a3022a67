/* SPDX-License-Identifier: MIT
 *
 * bench.c: see bench.h.
 */
#include "bench.h"

_Static_assert(sizeof(bench_device_kind) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");
const char *const bench_devices[] = {"cpu", "cuda", NULL};

uint32_t bench_shapes_count(const shape_options *o) { return o->head_dim.n * o->gqa.n * o->batch.n * o->ctx.n; }

bench_shape bench_shapes_at(const shape_options *o, uint32_t n) {
    const uint32_t by_batch = n / o->ctx.n, by_group = by_batch / o->batch.n;
    return (bench_shape){.ctx = o->ctx.v[n % o->ctx.n],
                         .batch = o->batch.v[by_batch % o->batch.n],
                         .kv_heads = o->kv_heads,
                         .group = o->gqa.v[by_group % o->gqa.n],
                         .head_dim = o->head_dim.v[by_group / o->gqa.n]};
}
