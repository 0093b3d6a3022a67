/* SPDX-License-Identifier: MIT
 *
 * caches.h: caches full of random keys and values, to time attention on.
 *
 *     init ── fill ──> check (any number) ── time (any number) ──> release
 *
 * Keys, values and queries are normal variates, never zeros; the same for every format.  They are stored as prompts are,
 * some hundred tokens at a time, at whose ends kvcomp and kivi compress what has left their buffer.
 */
#ifndef PLEAT_CLI_BENCH_CACHES_H
#define PLEAT_CLI_BENCH_CACHES_H

#include "cli/bench/lib/bench.h"
#include "cli/lib/common.h"
#include "pleat/pleat.h"

/* Where keys, values and queries come from. */
typedef struct bench_noise {
    float *v; /* [n] */
    size_t n;
} bench_noise;

void bench_noise_init(bench_noise *noise);
void bench_noise_release(bench_noise *noise);

typedef struct bench_cache {
    bench_shape shape;
    const bench_noise *noise; /* not owned */
    const char *name;         /* for messages; not owned */
    pleat_spec spec;
    uint32_t n_layers;
    pleat_stats *stats; /* rd's, and how its keys turn */
    pleat_rope rope;
    double *frequencies;      /* [head_dim / 2] */
    const pleat_rope **ropes; /* [n_layers] */
    pleat_cache *cache;
    uint64_t layer_bytes; /* bytes that attention over one layer reads */
    pleat_seq *seqs;      /* [batch] */
    float *q, *result;    /* [batch][kv_heads * group][head_dim] */
} bench_cache;

/* Bytes of codes and metadata of one layer.  kvcomp, kivi: about the most that there can be, as if codes were not coded:
 * what there are is known when the cache is full. */
uint64_t bench_layer_bytes(const bench_shape *shape, pleat_spec spec);

/* Layers that are needed for `bytes`, at least one and at most a thousand. */
uint32_t bench_layers_for(const bench_shape *shape, pleat_spec spec, uint64_t bytes);

/* Make the cache and fill it.  CLI_OK, or CLI_FAILED after a message; release it in either case. */
int bench_cache_init(bench_cache *c, const bench_shape *shape, pleat_spec spec, const char *name, uint32_t n_layers,
                     const bench_noise *noise, pleat_workers *workers);
void bench_cache_release(bench_cache *c);

/* Attention over all layers, n_passes times; *ms for one layer. */
int bench_cache_time(bench_cache *c, uint32_t n_passes, double *ms);

/* |out - ref| / |ref| (L2, one query head), the worst of the first and last heads of the first and last KV head of the
 * last sequence, against float64 attention on the values that the cache returns. */
int bench_cache_check(bench_cache *c, double *max_rel_err);

#endif
