/* SPDX-License-Identifier: MIT
 *
 * device_novelty.c: the host's part of novel on a GPU.
 *
 * It checks what novel asks of the options and sends its tables.  A sequence's sums of keys go with forks, and with
 * images, where they stand as the CPU's cache has them (cache/keep/novelty.c).
 */
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "core/error.h"
#include "policy/evict.h"
#include "policy/novelty.h"
#include "quant/quant.h"
#include "stats/stats.h"

_Static_assert(PLEAT__NEAR_TURNS == 256, "the kernels cannot see policy/novelty.h");

static bool is_on(const pleat_device_cache *c) { return c->opt.spec.policy == PLEAT_POLICY_NOVEL; }
static bool has_means(const pleat_device_cache *c) { return c->opt.spec.mean == PLEAT_KEY_MEAN_MODEL; }
static bool has_sums(const pleat_device_cache *c) { return is_on(c) && !has_means(c); }

static pleat_status check_stats(const pleat_device_cache_options *opt, pleat_error *err) {
    const pleat_stats *s = opt->stats;
    PLEAT_TRY(pleat__stats_check(s, opt->n_layers, opt->n_kv_heads, opt->head_dim,
                                 "novel:mean=model takes the mean key from statistics of the model", err));
    for (uint32_t i = 0; i < opt->n_layers; i++)
        PLEAT_FAIL_IF(!s->has_layer[i], err, PLEAT_E_ARG, PLEAT_NOWHERE,
                      "device cache: the statistics say nothing of layer %u", i);
    return PLEAT_OK;
}

/* Which layer's turns the layer has: the first with its pointer. */
static uint32_t owner_of(const pleat_rope *const *ropes, uint32_t layer) {
    uint32_t owner = 0;
    while (ropes[owner] != ropes[layer]) owner++;
    return owner;
}

pleat_status pleat__device_novelty_check(const pleat_device_cache_options *opt, pleat_error *err) {
    if (opt->spec.policy != PLEAT_POLICY_NOVEL) return PLEAT_OK;
    PLEAT_FAIL_IF(!opt->ropes, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device cache: novel looks at keys as they were before RoPE, and options.ropes does not say how to "
                  "undo it");
    uint32_t n_kinds = 0;
    for (uint32_t i = 0; i < opt->n_layers; i++) PLEAT_TRY(pleat__turns_check(opt->ropes[i], opt->head_dim, i, err));
    for (uint32_t i = 0; i < opt->n_layers; i++) n_kinds += opt->ropes[i] && owner_of(opt->ropes, i) == i;
    PLEAT_FAIL_IF(n_kinds > PLEAT__DEVICE_TURNS_MOST, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: keys are turned in %u ways, on a GPU at most in %u", n_kinds,
                  PLEAT__DEVICE_TURNS_MOST);
    return opt->spec.mean == PLEAT_KEY_MEAN_MODEL ? check_stats(opt, err) : PLEAT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static uint32_t far_rows(const pleat_device_cache *c) {
    return pleat__div_up_u32(c->opt.max_tokens, PLEAT__NEAR_TURNS);
}

/* Of one kind of turns. */
static uint64_t turns_floats(const pleat_device_cache *c) {
    return (uint64_t)(PLEAT__NEAR_TURNS + far_rows(c)) * c->opt.head_dim;
}

void pleat__device_novelty_derive(pleat_device_cache *c) {
    c->lanes.novelty = (pleat__device_novelty){.is_on = is_on(c), .has_means = has_means(c), .near = c->opt.spec.near};
}

void pleat__device_novelty_carve_tables(pleat_device_cache *c, pleat__arena *arena) {
    pleat__device_novelty *n = &c->lanes.novelty;
    const uint64_t d = c->opt.head_dim, n_rows = c->rows_per_seq;
    if (!is_on(c)) return;
    c->turns = pleat__device_carve(arena, PLEAT__DEVICE_TURNS_MOST * turns_floats(c), sizeof *c->turns);
    c->turns_of = pleat__device_carve(arena, c->opt.n_layers, sizeof *c->turns_of);
    n->turns_of = c->turns_of;
    n->sums = has_sums(c) ? pleat__device_carve(arena, c->opt.max_seqs * n_rows * d, sizeof *n->sums) : NULL;
    n->means = pleat__device_carve(arena, n_rows * d, sizeof *n->means);
}

void pleat__device_novelty_carve_workspace(pleat_device_cache *c, pleat__arena *arena) {
    pleat__device_novelty *n = &c->lanes.novelty;
    const uint64_t n_cells = (uint64_t)c->opt.n_kv_heads * c->opt.max_tokens;
    if (!is_on(c)) return;
    n->parts = pleat__device_carve(arena, (uint64_t)c->opt.n_kv_heads * PLEAT__NOVELTY_PARTS * c->opt.head_dim,
                                   sizeof *n->parts);
    n->own = pleat__device_carve(arena, n_cells, sizeof *n->own);
    n->scores = pleat__device_carve(arena, n_cells, sizeof *n->scores);
}

/* Of one kind of turns, made on the host and sent.  to: its rows in device memory. */
static pleat_status send_turns(const pleat_device_cache *c, const pleat_rope *rope, float *to,
                               pleat__device_turns *turns, pleat__device_stream stream, pleat_error *err) {
    pleat__turns host;
    pleat__arena arena = {0};
    pleat__turns_carve(rope, c->opt.max_tokens, &host, &arena);
    const uint64_t n_bytes = arena.used_bytes;
    void *memory = pleat__alloc(&c->al, 1, n_bytes);
    PLEAT_FAIL_IF(!memory, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    arena = (pleat__arena){.base = memory, .cap_bytes = n_bytes};
    pleat__turns_carve(rope, c->opt.max_tokens, &host, &arena);
    pleat__turns_init(rope, c->opt.max_tokens, &host);
    const uint64_t width = 2ull * host.n_pairs, near = PLEAT__NEAR_TURNS * width, far = far_rows(c) * width;
    *turns = (pleat__device_turns){host.n_pairs, host.first, host.other, to, to + near};
    pleat_status status = pleat__device_copy(to, host.near, near * sizeof *to, stream, err);
    if (status == PLEAT_OK) status = pleat__device_copy(to + near, host.far, far * sizeof *to, stream, err);
    if (status == PLEAT_OK) status = pleat__device_wait(stream, err);
    pleat__free(&c->al, memory, 1, n_bytes);
    return status;
}

static pleat_status send_all_turns(pleat_device_cache *c, const pleat_rope *const *ropes, pleat__device_stream stream,
                                   pleat_error *err) {
    pleat__device_novelty *n = &c->lanes.novelty;
    uint8_t *kind_of_layer = c->placed; /* scratch as yet */
    for (uint32_t i = 0; i < c->opt.n_layers; i++) {
        const uint32_t owner = owner_of(ropes, i);
        kind_of_layer[i] =
            ropes[i] ? (uint8_t)(owner == i ? n->n_turns : kind_of_layer[owner]) : (uint8_t)PLEAT__DEVICE_NO_TURNS;
        if (!ropes[i] || owner != i) continue;
        PLEAT_TRY(send_turns(c, ropes[i], c->turns + n->n_turns * turns_floats(c), &n->turns[n->n_turns], stream, err));
        n->n_turns++;
    }
    PLEAT_TRY(pleat__device_copy(c->turns_of, kind_of_layer, c->opt.n_layers, stream, err));
    PLEAT_TRY(pleat__device_wait(stream, err));
    memset(c->placed, 0, c->opt.n_layers);
    return PLEAT_OK;
}

/* The model's mean keys. */
static pleat_status send_means(const pleat_device_cache *c, const pleat_stats *stats, pleat__device_stream stream,
                               pleat_error *err) {
    const uint32_t d = c->opt.head_dim;
    const uint64_t n_bytes = (uint64_t)c->rows_per_seq * d * sizeof(float);
    float *means = pleat__alloc(&c->al, 1, n_bytes);
    PLEAT_FAIL_IF(!means, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    for (uint32_t row = 0; row < c->rows_per_seq; row++) {
        const pleat__rd_source source = pleat__stats_source(stats, row / c->opt.n_kv_heads, row % c->opt.n_kv_heads);
        pleat__key_mean(source.mean, d, means + (uint64_t)row * d);
    }
    pleat_status status = pleat__device_copy(c->lanes.novelty.means, means, n_bytes, stream, err);
    if (status == PLEAT_OK) status = pleat__device_wait(stream, err);
    pleat__free(&c->al, means, 1, n_bytes);
    return status;
}

pleat_status pleat__device_novelty_init(pleat_device_cache *c, const pleat_device_cache_options *opt,
                                        pleat__device_stream stream, pleat_error *err) {
    if (!is_on(c)) return PLEAT_OK;
    PLEAT_TRY(send_all_turns(c, opt->ropes, stream, err));
    return has_means(c) ? send_means(c, opt->stats, stream, err) : PLEAT_OK;
}

/* ---- a sequence's sums --------------------------------------------------------------------------------------- */

static uint64_t sums_bytes(const pleat_device_cache *c) {
    return (uint64_t)c->rows_per_seq * c->opt.head_dim * sizeof(float);
}

static float *sums_of(const pleat_device_cache *c, uint32_t seq_idx) {
    return c->lanes.novelty.sums + (uint64_t)pleat__device_first_row(c, seq_idx) * c->opt.head_dim;
}

pleat_status pleat__device_novelty_fork(const pleat_device_cache *c, uint32_t from, uint32_t to,
                                        pleat__device_stream stream, pleat_error *err) {
    if (!has_sums(c)) return PLEAT_OK;
    return pleat__device_copy(sums_of(c, to), sums_of(c, from), sums_bytes(c), stream, err);
}

const char *pleat__device_novelty_image_key(const pleat_device_cache *c) {
    return is_on(c) && has_means(c) ? pleat_stats_fingerprint(c->opt.stats) : "";
}

uint64_t pleat__device_novelty_image_bytes(const pleat_device_cache *c, uint32_t n_classed) {
    return has_sums(c) && n_classed > 0 ? sums_bytes(c) : 0;
}

pleat_status pleat__device_novelty_write_image(const pleat_device_cache *c, uint32_t seq_idx, uint32_t n_classed,
                                               uint8_t *out, pleat__device_stream stream, pleat_error *err) {
    const uint64_t n_bytes = pleat__device_novelty_image_bytes(c, n_classed);
    if (n_bytes == 0) return PLEAT_OK;
    PLEAT_TRY(pleat__device_copy(out, sums_of(c, seq_idx), n_bytes, stream, err));
    return pleat__device_wait(stream, err);
}

pleat_status pleat__device_novelty_read_image(const pleat_device_cache *c, uint32_t seq_idx, uint32_t n_classed,
                                              const uint8_t *in, pleat__device_stream stream, pleat_error *err) {
    const uint64_t n_bytes = pleat__device_novelty_image_bytes(c, n_classed);
    for (uint64_t at = 0; at < n_bytes; at += sizeof(float)) {
        float x;
        memcpy(&x, in + at, sizeof x);
        PLEAT_FAIL_IF(!pleat__values_in_range(&x, 1), err, PLEAT_E_FORMAT, PLEAT_NOWHERE,
                      "device cache: the image's sums of keys are no such sums");
    }
    return n_bytes ? pleat__device_copy(sums_of(c, seq_idx), in, n_bytes, stream, err) : PLEAT_OK;
}
