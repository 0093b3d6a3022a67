/* SPDX-License-Identifier: MIT
 *
 * device_fill.c: sequences of made-up tokens, for benchmarks and for tests of full caches.
 */
#include "cache/cuda/device_cache.h"
#include "core/error.h"

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

/* What a sequence's lanes are filled with. */
typedef struct filling {
    const uint32_t *n_high, *n_low; /* [rows_per_seq] */
    uint32_t n_each;                /* pages that the hungriest lane takes */
    uint32_t n_tokens;              /* of the longest lane */
} filling;

static uint32_t low_of(const filling *f, uint32_t lane) { return f->n_low ? f->n_low[lane] : 0; }

static pleat_status measure(const pleat_device_cache *c, filling *f, pleat_error *err) {
    for (uint32_t lane = 0; lane < c->rows_per_seq; lane++) {
        const uint32_t n_high = f->n_high[lane], n_low = low_of(f, lane);
        REQUIRE(n_high >= 1 && (n_low == 0 || c->two_sided) && (uint64_t)n_high + n_low <= c->opt.max_tokens,
                "device cache: lane %u cannot hold %u high and %u low tokens", lane, n_high, n_low);
        REQUIRE(!c->lanes.policy.has_blocks || n_high == f->n_high[0],
                "device cache: lanes with blocks have as many tokens each");
        const uint32_t n_pages = pleat__div_up_u32(n_high, c->lanes.layouts[0].tokens) +
                                 pleat__div_up_u32(n_low, c->lanes.layouts[1].tokens);
        f->n_each = pleat__max_u32(f->n_each, n_pages);
        f->n_tokens = pleat__max_u32(f->n_tokens, n_high + n_low);
    }
    return PLEAT_OK;
}

static pleat_status make_tokens(pleat_device_cache *c, uint32_t seq_idx, const filling *f, uint64_t seed,
                                pleat__device_stream stream, pleat_error *err) {
    const uint32_t row = pleat__device_first_row(c, seq_idx);
    const uint64_t bytes = c->rows_per_seq * sizeof(uint32_t);
    PLEAT_TRY(pleat__device_copy(c->lanes.pages.n_slots[0] + row, f->n_high, bytes, stream, err));
    if (f->n_low) PLEAT_TRY(pleat__device_copy(c->lanes.pages.n_slots[1] + row, f->n_low, bytes, stream, err));
    PLEAT_TRY(pleat__device_settle(&c->lanes.pages, row, c->rows_per_seq, stream, err));
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++) {
        const pleat__device_prompt prompt = {.seq_idx = seq_idx, .layer = layer, .n_tokens = f->n_tokens};
        PLEAT_TRY(pleat__device_lanes_make(&c->lanes, &prompt, seed, stream, err));
        PLEAT_TRY(pleat__device_lanes_compress_prompt(&c->lanes, seq_idx, layer,
                                                      pleat__device_blocks_of(c, f->n_tokens), stream, err));
    }
    if (c->lanes.policy.has_blocks) {
        PLEAT_TRY(pleat_device_cache_set_batch(c, &seq_idx, 1, stream.v, err));
        PLEAT_TRY(pleat__device_trim(&c->lanes.pages, stream, err));
    }
    PLEAT_TRY(pleat__device_lanes_set_length(&c->lanes, seq_idx, f->n_tokens, stream, err));
    return pleat__device_wait(stream, err);
}

pleat_status pleat_device_cache_fill(pleat_device_cache *c, uint32_t seq_idx, const uint32_t *n_high,
                                     const uint32_t *n_low, uint64_t seed, void *stream, pleat_error *err) {
    REQUIRE(c && seq_idx < c->opt.max_seqs, "device cache: none given, or no sequence %u", seq_idx);
    PLEAT_TRY(pleat__device_use(c->opt.device, err));
    REQUIRE(n_high, "device cache: fill: no counts given");
    PLEAT_FAIL_IF(c->is_wide || pleat__device_cache_evicts(c), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: fill is for heads of 64 and 128, groups up to 8 (4 where rotated), and neither "
                  "windows, bounded logits "
                  "nor budgets");
    filling f = {.n_high = n_high, .n_low = n_low};
    PLEAT_TRY(measure(c, &f, err));
    PLEAT_TRY(pleat__device_cache_reserve(c, seq_idx, f.n_each, pleat__device_stream_of(stream), err));
    c->seq_states[seq_idx] = PLEAT__SEQ_OPEN;
    return make_tokens(c, seq_idx, &f, seed, pleat__device_stream_of(stream), err);
}
