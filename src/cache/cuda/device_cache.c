/* SPDX-License-Identifier: MIT
 *
 * device_cache.c: prompts and steps of a device cache: which launchers, in which order.
 *
 *     prompt_begin   reserve                      waits, to learn whether the pages fitted
 *     prompt         class or keep, settle, place      of one layer's rows
 *     prompt_end     set_length
 *     chunk_begin    take                         waits, likewise
 *     chunk_attend   gather, prompt's attention   of one layer; prompt is extend then
 *     fork           reserve, share or settle, copy      waits
 *     begin          take, grow, schedule
 *     append         append
 *     attend         decode, received
 *     end            end or evict, trim
 *
 * Calls of a step read nothing but what create and set_batch fixed, so that a recorded step is the same for any
 * lengths.
 */
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "core/error.h"
#include "policy/evict.h"
#include "quant/cuda/rotate.h"

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)
#define REQUIRE_STATE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_STATE, PLEAT_NOWHERE, __VA_ARGS__)

static pleat_status check_seq(const pleat_device_cache *c, uint32_t seq_idx, pleat_error *err) {
    REQUIRE(c, "device cache: none given");
    REQUIRE(seq_idx < c->opt.max_seqs, "device cache: no sequence %u: there are %u", seq_idx, c->opt.max_seqs);
    return pleat__device_use(c->opt.device, err);
}

static pleat_status check_layer(const pleat_device_cache *c, uint32_t layer, pleat_error *err) {
    REQUIRE(layer < c->opt.n_layers, "device cache: no layer %u: there are %u", layer, c->opt.n_layers);
    return PLEAT_OK;
}

static bool is_aligned(const void *p, uintptr_t align_bytes) { return p && (uintptr_t)p % align_bytes == 0; }

/* ---- counters ------------------------------------------------------------------------------------ */

pleat_status pleat__device_cache_counters(const pleat_device_cache *c, pleat__device_stream stream,
                                          pleat__device_counters *out, pleat_error *err) {
    PLEAT_TRY(pleat__device_lanes_tell(&c->lanes, c->told, stream, err));
    PLEAT_TRY(pleat__device_wait(stream, err));
    *out = *c->told;
    return PLEAT_OK;
}

pleat_status pleat__device_cache_tell(const pleat_device_cache *c, bool has_loads, pleat__device_stream stream,
                                      pleat_error *err) {
    const pleat__device_want want = pleat__device_cache_want(c);
    if (has_loads) PLEAT_TRY(pleat__device_loads(&c->lanes.pages, &want, c->opt.max_seqs, c->loads, stream, err));
    return pleat__device_lanes_tell(&c->lanes, c->told, stream, err);
}

/* ---- budgets ------------------------------------------------------------------------------------- */

pleat_status pleat__device_cache_set_budget(pleat_device_cache *c, uint32_t seq_idx, uint32_t n_prompt,
                                            pleat__device_stream stream, pleat_error *err) {
    if (!pleat__device_cache_evicts(c)) return PLEAT_OK;
    c->budgets[seq_idx] = pleat__evict_budget(&c->opt.spec, n_prompt, 0);
    return pleat__device_lanes_set_budget(&c->lanes, seq_idx, c->budgets[seq_idx], stream, err);
}

pleat_status pleat__device_cache_raise_budget(pleat_device_cache *c, uint32_t seq_idx, uint32_t n_tokens,
                                              pleat__device_stream stream, pleat_error *err) {
    if (!pleat__device_cache_evicts(c) || n_tokens <= c->budgets[seq_idx]) return PLEAT_OK;
    c->budgets[seq_idx] = n_tokens;
    return pleat__device_lanes_set_budget(&c->lanes, seq_idx, n_tokens, stream, err);
}

pleat_status pleat_device_cache_turn(pleat_device_cache *c, uint32_t seq_idx, uint32_t n_prompt, void *stream,
                                     pleat_error *err) {
    PLEAT_TRY(check_seq(c, seq_idx, err));
    REQUIRE(n_prompt >= 1 && n_prompt <= c->opt.max_tokens, "device cache: a turn that ends at token %u of at most %u",
            n_prompt, c->opt.max_tokens);
    REQUIRE_STATE(!c->in_step && c->seq_states[seq_idx] == PLEAT__SEQ_OPEN,
                  "device cache: sequence %u is in a step or a prompt, or empty", seq_idx);
    return pleat__device_cache_raise_budget(c, seq_idx, pleat__evict_budget(&c->opt.spec, n_prompt, 0),
                                            pleat__device_stream_of(stream), err);
}

/* ---- prompts ------------------------------------------------------------------------------------- */

/* Can the sequence's rows take n_all pages, n_most one of them?  Waits. */
static pleat_status check_reserve(pleat_device_cache *c, uint32_t seq_idx, uint64_t n_most, uint64_t n_all,
                                  pleat__device_stream stream, pleat_error *err) {
    REQUIRE_STATE(c->seq_states[seq_idx] == PLEAT__SEQ_EMPTY, "device cache: sequence %u is not empty", seq_idx);
    REQUIRE_STATE(!c->in_step && !c->in_prompt, "device cache: a step or a prompt is under way");
    uint32_t n_tokens;
    PLEAT_TRY(pleat_device_cache_length(c, seq_idx, &n_tokens, stream.v, err));
    REQUIRE_STATE(n_tokens == 0, "device cache: sequence %u is not empty: a graph's steps have been there", seq_idx);
    PLEAT_FAIL_IF(n_all > c->n_pages || n_most > c->lanes.pages.row_len, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "device cache: the tokens need %llu pages of %u", (unsigned long long)n_all, c->n_pages);
    return PLEAT_OK;
}

pleat_status pleat__device_cache_reserve(pleat_device_cache *c, uint32_t seq_idx, uint64_t n_each,
                                         pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(check_reserve(c, seq_idx, n_each, n_each * c->rows_per_seq, stream, err));
    PLEAT_TRY(pleat__device_reserve(&c->lanes.pages, pleat__device_first_row(c, seq_idx), c->rows_per_seq,
                                    (uint32_t)n_each, stream, err));
    pleat__device_counters now;
    PLEAT_TRY(pleat__device_cache_counters(c, stream, &now, err));
    if (!now.pool.refused) return PLEAT_OK;
    c->n_refused_seen++; /* told of here, so not by wait */
    return pleat__error_set(err, PLEAT_AGAIN, PLEAT_NOWHERE, "device cache: %u pages are free, %llu are needed",
                            now.pool.n_free, (unsigned long long)(n_each * c->rows_per_seq));
}

pleat_status pleat__device_cache_reserve_layers(pleat_device_cache *c, uint32_t seq_idx, const uint32_t *n_each,
                                                pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_heads = c->opt.n_kv_heads;
    uint32_t n_most = 0;
    uint64_t n_all = 0;
    for (uint32_t i = 0; i < c->opt.n_layers; i++) {
        n_all += (uint64_t)n_each[i] * n_heads;
        n_most = pleat__max_u32(n_most, n_each[i]);
    }
    PLEAT_TRY(check_reserve(c, seq_idx, n_most, n_all, stream, err));
    pleat__device_counters now;
    PLEAT_TRY(pleat__device_cache_counters(c, stream, &now, err));
    PLEAT_FAIL_IF(n_all > now.pool.n_free, err, PLEAT_AGAIN, PLEAT_NOWHERE,
                  "device cache: %u pages are free, %llu are needed", now.pool.n_free, (unsigned long long)n_all);
    const uint32_t first_row = pleat__device_first_row(c, seq_idx);
    for (uint32_t from = 0, end; from < c->opt.n_layers; from = end) {
        for (end = from + 1; end < c->opt.n_layers && n_each[end] == n_each[from];) end++;
        PLEAT_TRY(pleat__device_reserve(&c->lanes.pages, first_row + from * n_heads, (end - from) * n_heads,
                                        n_each[from], stream, err));
    }
    return PLEAT_OK;
}

pleat_status pleat_device_cache_prompt_begin(pleat_device_cache *c, uint32_t seq_idx, uint32_t n_tokens, void *stream,
                                             pleat_error *err) {
    PLEAT_TRY(check_seq(c, seq_idx, err));
    REQUIRE(n_tokens >= 1 && n_tokens <= c->opt.max_tokens, "device cache: a prompt of %u tokens: allowed are 1 to %u",
            n_tokens, c->opt.max_tokens);
    const uint32_t n_each = pleat__div_up_u32(n_tokens, c->lanes.layouts[0].tokens) + (c->two_sided ? 1 : 0);
    PLEAT_TRY(pleat__device_cache_reserve(c, seq_idx, n_each, pleat__device_stream_of(stream), err));
    memset(c->placed, 0, c->opt.n_layers);
    c->seq_states[seq_idx] = PLEAT__SEQ_PROMPT;
    c->in_prompt = true;
    c->prompt_seq = seq_idx;
    c->prompt_tokens = n_tokens;
    return pleat__device_cache_set_budget(c, seq_idx, n_tokens, pleat__device_stream_of(stream), err);
}

/* A prompt's or chunk's attention, of n_past tokens before it and its own: k and v. */
static pleat_status attend_wide(const pleat_device_cache *c, uint32_t layer, const void *q, const void *k,
                                const void *v, void *out, uint32_t n_past, pleat__device_stream stream,
                                pleat_error *err) {
    const pleat__device_wide_chunk chunk = {.q = q,
                                            .k = k,
                                            .v = v,
                                            .n_past = n_past,
                                            .n_tokens = c->prompt_tokens,
                                            .n_kv_heads = c->opt.n_kv_heads,
                                            .n_group = c->n_group,
                                            .head_dim = c->opt.head_dim,
                                            .window = pleat__device_window(c, layer),
                                            .scale = c->scale,
                                            .cap = c->opt.logit_cap,
                                            .out = out};
    return pleat__device_wide_prompt(&chunk, stream, err);
}

/* The same of heads that are not wide; what tokens receive is not counted. */
static pleat__device_prompt_attn attn_of(const pleat_device_cache *c, const void *q, const void *k, const void *v,
                                         void *out) {
    return (pleat__device_prompt_attn){.q = q,
                                       .k = k,
                                       .v = v,
                                       .q_stride = c->opt.n_q_heads * c->opt.head_dim,
                                       .kv_stride = c->opt.n_kv_heads * c->opt.head_dim,
                                       .n_seqs = 1,
                                       .n_past = c->prompt_past,
                                       .n_tokens = c->prompt_tokens,
                                       .max_tokens = c->prompt_tokens,
                                       .n_kv_heads = c->opt.n_kv_heads,
                                       .n_group = c->n_group,
                                       .head_dim = c->opt.head_dim,
                                       .scale = c->scale,
                                       .out = out,
                                       .out_stride = c->opt.n_q_heads * c->opt.head_dim,
                                       .lse2 = c->prompt_lse2};
}

pleat_status pleat_device_cache_prompt_attend(pleat_device_cache *c, uint32_t layer, const void *q, const void *k,
                                              const void *v, void *out, float *received, void *stream,
                                              pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    PLEAT_TRY(check_layer(c, layer, err));
    REQUIRE_STATE(c->in_prompt && c->prompt_past == 0, "device cache: no prompt is under way, or it is a chunk");
    PLEAT_FAIL_IF(c->prompt_tokens > PLEAT_DEVICE_PROMPT_TOKENS, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "device cache: a prompt of %u tokens is too long to attend to at once: at most %u", c->prompt_tokens,
                  PLEAT_DEVICE_PROMPT_TOKENS);
    if (c->is_wide) {
        PLEAT_FAIL_IF(received, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                      "device cache: what tokens receive is not counted for these heads, windows or logits");
        return attend_wide(c, layer, q, k, v, out, 0, pleat__device_stream_of(stream), err);
    }
    pleat__device_prompt_attn prompt = attn_of(c, q, k, v, out);
    const pleat__device_policy *policy = &c->lanes.policy;
    const bool is_windowed = policy->counts == PLEAT__DEVICE_COUNTS_WINDOW && c->prompt_tokens > policy->window;
    prompt.received = received;
    prompt.every = policy->al > 0 ? 1 : policy->every; /* pleat__counted_every_of_prompts() */
    prompt.sums_heads = policy->counts > PLEAT__DEVICE_COUNTS_MAX;
    prompt.first_query = is_windowed ? c->prompt_tokens - policy->window : 0;
    prompt.workspace = c->prompt_workspace;
    return pleat__device_prompt_attn_run(&prompt, pleat__device_stream_of(stream), err);
}

static pleat_status place_wide(const pleat_device_cache *c, const pleat__device_prompt *p, pleat__device_stream stream,
                               pleat_error *err) {
    const uint32_t row = pleat__device_first_row(c, p->seq_idx) + p->layer * c->opt.n_kv_heads;
    PLEAT_TRY(pleat__device_wide_count(&c->lanes, p->seq_idx, p->layer, p->n_past + p->n_tokens, stream, err));
    if (p->n_past == 0) PLEAT_TRY(pleat__device_settle(&c->lanes.pages, row, c->opt.n_kv_heads, stream, err));
    return pleat__device_wide_store(&c->lanes, p, stream, err);
}

/* Tokens of the prompt that a lane of the layer keeps: pyramidkv's budgets fall from layer to layer. */
static uint32_t layer_budget(const pleat_device_cache *c, uint32_t layer) {
    const uint32_t budget = c->budgets[c->prompt_seq];
    if (c->opt.spec.policy != PLEAT_POLICY_PYRAMIDKV) return budget;
    const pleat__evict_layer of = {.spec = &c->opt.spec,
                                   .layer = layer,
                                   .n_layers = c->opt.n_layers,
                                   .n_lanes = 1,
                                   .n_tokens = c->prompt_tokens,
                                   .budget = budget};
    int64_t kept = budget;
    pleat__evictor_pyramidkv.budgets(&of, NULL, &kept);
    return (uint32_t)kept;
}

pleat_status pleat_device_cache_prompt(pleat_device_cache *c, uint32_t layer, const void *k, const void *v,
                                       const float *received, void *stream, pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE_STATE(c->in_prompt, "device cache: no prompt is under way");
    REQUIRE(layer < c->opt.n_layers, "device cache: no layer %u: there are %u", layer, c->opt.n_layers);
    REQUIRE(is_aligned(k, 8) && is_aligned(v, 8) && (received || !pleat__device_cache_counts(c)),
            "device cache: no keys, values or attention received, or not aligned to 8 bytes");
    REQUIRE_STATE(!c->placed[layer], "device cache: layer %u of the prompt has been placed", layer);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    pleat__device_prompt prompt = {c->prompt_seq,         layer, c->prompt_tokens, c->prompt_past, k, v, received,
                                   layer_budget(c, layer)};
    c->placed[layer] = 1;
    const bool is_chunk = c->prompt_past > 0;
    if (c->is_wide || (is_chunk && c->stores_wide)) return place_wide(c, &prompt, s, err);
    if (is_chunk) return pleat__device_lanes_extend(&c->lanes, &prompt, s, err);
    const uint32_t row = pleat__device_first_row(c, c->prompt_seq) + layer * c->opt.n_kv_heads;
    if (c->lanes.novelty.is_on) {
        PLEAT_TRY(pleat__device_lanes_score_prompt(&c->lanes, &prompt, s, err));
        prompt.received = c->lanes.novelty.scores;
    }
    PLEAT_TRY(pleat__device_cache_evicts(c) ? pleat__device_lanes_keep(&c->lanes, &prompt, s, err)
                                            : pleat__device_lanes_class(&c->lanes, &prompt, s, err));
    PLEAT_TRY(pleat__device_settle(&c->lanes.pages, row, c->opt.n_kv_heads, s, err));
    PLEAT_TRY(pleat__device_lanes_place(&c->lanes, &prompt, s, err));
    return pleat__device_lanes_compress_prompt(&c->lanes, c->prompt_seq, layer,
                                               pleat__device_blocks_of(c, c->prompt_tokens), s, err);
}

pleat_status pleat_device_cache_prompt_end(pleat_device_cache *c, void *stream, pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE_STATE(c->in_prompt && !memchr(c->placed, 0, c->opt.n_layers),
                  "device cache: no prompt is under way, or a layer of it is missing");
    PLEAT_TRY(pleat__device_lanes_set_length(&c->lanes, c->prompt_seq, c->prompt_past + c->prompt_tokens,
                                             pleat__device_stream_of(stream), err));
    /* Pages that a chunk took for rings, or whose tokens became blocks. */
    const bool has_more = (c->windows && c->prompt_past > 0) || c->lanes.policy.has_blocks;
    c->seq_states[c->prompt_seq] = PLEAT__SEQ_OPEN;
    c->in_prompt = false;
    c->prompt_past = 0;
    if (!has_more) return PLEAT_OK;
    PLEAT_TRY(pleat_device_cache_set_batch(c, &c->prompt_seq, 1, stream, err));
    return pleat__device_trim(&c->lanes.pages, pleat__device_stream_of(stream), err);
}

/* ---- chunks -------------------------------------------------------------------------------------- */

/* The length of a sequence that can be gone on with, or forked. */
static pleat_status check_begun(pleat_device_cache *c, uint32_t seq_idx, void *stream, uint32_t *n_tokens,
                                pleat_error *err) {
    PLEAT_TRY(check_seq(c, seq_idx, err));
    REQUIRE_STATE(!c->in_step && !c->in_prompt, "device cache: a step or a prompt is under way");
    PLEAT_TRY(pleat_device_cache_length(c, seq_idx, n_tokens, stream, err));
    REQUIRE_STATE(*n_tokens > 0, "device cache: sequence %u is empty", seq_idx);
    return PLEAT_OK;
}

/* Pages of a sequence that takes n_new tokens behind n_past: a ring gives none back before they are stored. */
static uint64_t pages_with_chunk(const pleat_device_cache *c, uint32_t n_past, uint32_t n_new) {
    const uint32_t page_tokens = c->lanes.layouts[0].tokens;
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->opt.n_layers; i++) {
        const uint32_t window = pleat__device_window(c, i), n_held = window && window < n_past ? window : n_past;
        n += ((uint64_t)n_held + n_new + page_tokens - 1) / page_tokens;
    }
    return n * c->opt.n_kv_heads;
}

pleat_status pleat_device_cache_chunk_begin(pleat_device_cache *c, uint32_t seq_idx, uint32_t n_tokens, void *stream,
                                            pleat_error *err) {
    const pleat__device_stream s = pleat__device_stream_of(stream);
    uint32_t n_past = 0;
    PLEAT_TRY(check_begun(c, seq_idx, stream, &n_past, err));
    PLEAT_FAIL_IF(pleat__device_cache_has_policy(c), err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: where a policy acts, later tokens are read one by one");
    REQUIRE(n_tokens >= 1, "device cache: a chunk without tokens");
    PLEAT_FAIL_IF((uint64_t)n_past + n_tokens > c->opt.max_tokens || pages_with_chunk(c, n_past, n_tokens) > c->n_pages,
                  err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                  "device cache: %u more tokens behind %u: a sequence has at most %u, and all pages are %u", n_tokens,
                  n_past, c->opt.max_tokens, c->n_pages);
    PLEAT_TRY(pleat_device_cache_set_batch(c, &seq_idx, 1, stream, err));
    const pleat__device_want want = {.n_new = {n_tokens, 0}};
    pleat__device_counters now;
    PLEAT_TRY(pleat__device_take(&c->lanes.pages, &want, s, err));
    PLEAT_TRY(pleat__device_cache_counters(c, s, &now, err));
    if (now.pool.refused) c->n_refused_seen++; /* told of here, so not by wait */
    PLEAT_FAIL_IF(now.pool.refused, err, PLEAT_AGAIN, PLEAT_NOWHERE,
                  "device cache: %u pages are free, too few for %u tokens", now.pool.n_free, n_tokens);
    memset(c->placed, 0, c->opt.n_layers);
    c->seq_states[seq_idx] = PLEAT__SEQ_PROMPT;
    c->in_prompt = true;
    c->prompt_seq = seq_idx;
    c->prompt_tokens = n_tokens;
    c->prompt_past = n_past;
    return PLEAT_OK;
}

/* What the layer's window holds of the tokens before a chunk, into chunk_rows; *n_past: rows there.  The first stand for
 * tokens that no query sees, so that keys are met in the tiles of a whole prompt; they are zeros, as weights of 0 do not
 * stop a NaN. */
static pleat_status gather_wide(const pleat_device_cache *c, const pleat__device_prompt *chunk, uint32_t *n_past,
                                pleat__device_stream stream, pleat_error *err) {
    const uint32_t window = pleat__device_window(c, chunk->layer), width = c->opt.n_kv_heads * c->opt.head_dim;
    const uint32_t first = window && window < chunk->n_past ? chunk->n_past - window : 0;
    const uint32_t n_unseen = first % PLEAT__WIDE_KEYS;
    const uint64_t unseen = (uint64_t)n_unseen * width;
    for (int i = 0; i < 2; i++) PLEAT_TRY(pleat__device_fill(c->chunk_rows[i], 0, unseen * 2, stream, err));
    *n_past = chunk->n_past - first + n_unseen;
    return pleat__device_wide_gather(&c->lanes, chunk, first, c->chunk_rows[0] + unseen, c->chunk_rows[1] + unseen,
                                     stream, err);
}

pleat_status pleat_device_cache_chunk_attend(pleat_device_cache *c, uint32_t layer, const void *q, const void *k,
                                             const void *v, void *out, void *stream, pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE_STATE(c->in_prompt && c->prompt_past > 0, "device cache: no chunk is under way");
    REQUIRE(layer < c->opt.n_layers, "device cache: no layer %u: there are %u", layer, c->opt.n_layers);
    REQUIRE_STATE(!c->placed[layer], "device cache: layer %u of the chunk has been placed", layer);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    const pleat__device_prompt chunk = {c->prompt_seq, layer, c->prompt_tokens, c->prompt_past, k, v, NULL};
    const uint32_t width = c->opt.n_kv_heads * c->opt.head_dim;
    const uint64_t own_bytes = (uint64_t)c->prompt_tokens * width * 2;
    uint32_t n_past = c->prompt_past;
    if (c->stores_wide)
        PLEAT_TRY(gather_wide(c, &chunk, &n_past, s, err));
    else
        PLEAT_TRY(pleat__device_lanes_gather(&c->lanes, &chunk, c->chunk_rows[0], c->chunk_rows[1], s, err));
    PLEAT_TRY(pleat__device_copy(c->chunk_rows[0] + (uint64_t)n_past * width, k, own_bytes, s, err));
    PLEAT_TRY(pleat__device_copy(c->chunk_rows[1] + (uint64_t)n_past * width, v, own_bytes, s, err));
    if (c->is_wide) return attend_wide(c, layer, q, c->chunk_rows[0], c->chunk_rows[1], out, n_past, s, err);
    const pleat__device_prompt_attn attn = attn_of(c, q, c->chunk_rows[0], c->chunk_rows[1], out);
    return pleat__device_prompt_attn_run(&attn, s, err);
}

/* Uniform formats without windows: full pages are never written again, so both hold them. */
static pleat_status share(pleat_device_cache *c, uint32_t from, uint32_t to, uint32_t n_tokens,
                          pleat__device_stream stream, pleat_error *err) {
    const uint32_t n_full = n_tokens / c->lanes.layouts[0].tokens;
    const uint32_t n_last = n_tokens % c->lanes.layouts[0].tokens != 0;
    PLEAT_TRY(pleat__device_cache_reserve(c, to, n_last, stream, err));
    PLEAT_TRY(pleat__device_share(&c->lanes.pages, from, to, stream, err));
    return pleat__device_lanes_copy(&c->lanes, from, to, n_full, n_full + n_last, stream, err);
}

static pleat_status copy(pleat_device_cache *c, uint32_t from, uint32_t to, uint32_t n_tokens,
                         pleat__device_stream stream, pleat_error *err) {
    /* A low page holds as many tokens as a high one, or more. */
    const uint32_t n_slots_most = pleat__device_cache_most_slots(c, n_tokens, c->budgets[from]);
    const uint32_t n_pages = c->lanes.policy.has_blocks
                                 ? pleat__device_compress_most_pages(c, n_tokens)
                                 : pleat__div_up_u32(n_slots_most, c->lanes.layouts[0].tokens) + (c->two_sided ? 1 : 0);
    for (uint32_t i = 0; i < c->opt.n_layers; i++) {
        const uint32_t window = pleat__device_window(c, i);
        c->n_each[i] = window && window < n_tokens ? pleat__div_up_u32(window, c->lanes.layouts[0].tokens) : n_pages;
    }
    PLEAT_TRY(pleat__device_cache_reserve_layers(c, to, c->n_each, stream, err));
    const uint32_t from_row = pleat__device_first_row(c, from), to_row = pleat__device_first_row(c, to);
    for (int side = 0; side < 2; side++) {
        uint32_t *n_slots = c->lanes.pages.n_slots[side];
        PLEAT_TRY(
            pleat__device_copy(n_slots + to_row, n_slots + from_row, c->rows_per_seq * sizeof *n_slots, stream, err));
    }
    PLEAT_TRY(pleat__device_settle(&c->lanes.pages, to_row, c->rows_per_seq, stream, err));
    PLEAT_TRY(pleat__device_compress_copy(c, from_row, to_row, stream, err));
    PLEAT_TRY(pleat__device_novelty_fork(c, from, to, stream, err));
    return pleat__device_lanes_copy(&c->lanes, from, to, 0, n_pages, stream, err);
}

pleat_status pleat_device_cache_fork(pleat_device_cache *c, uint32_t from, uint32_t to, void *stream,
                                     pleat_error *err) {
    const pleat__device_stream s = pleat__device_stream_of(stream);
    uint32_t n_tokens = 0;
    PLEAT_TRY(check_begun(c, from, stream, &n_tokens, err));
    PLEAT_TRY(check_seq(c, to, err));
    PLEAT_TRY(pleat__device_cache_shares(c) ? share(c, from, to, n_tokens, s, err)
                                            : copy(c, from, to, n_tokens, s, err));
    PLEAT_TRY(pleat__device_lanes_set_length(&c->lanes, to, n_tokens, s, err));
    c->seq_states[to] = PLEAT__SEQ_OPEN;
    if (pleat__device_cache_evicts(c)) {
        c->budgets[to] = c->budgets[from];
        PLEAT_TRY(pleat__device_lanes_set_budget(&c->lanes, to, c->budgets[to], s, err));
    }
    return pleat__device_wait(s, err);
}

pleat_status pleat_device_cache_close(pleat_device_cache *c, uint32_t seq_idx, void *stream, pleat_error *err) {
    PLEAT_TRY(check_seq(c, seq_idx, err));
    REQUIRE_STATE(!c->in_step, "device cache: a step is under way");
    const pleat__device_stream s = pleat__device_stream_of(stream);
    PLEAT_TRY(pleat__device_close(&c->lanes.pages, seq_idx, s, err));
    PLEAT_TRY(pleat__device_lanes_set_length(&c->lanes, seq_idx, 0, s, err));
    if (c->lanes.policy.has_blocks)
        PLEAT_TRY(pleat__device_fill(c->lanes.blocks.n_blocks + pleat__device_first_row(c, seq_idx), 0,
                                     c->rows_per_seq * sizeof *c->lanes.blocks.n_blocks, s, err));
    PLEAT_TRY(pleat__device_cache_set_budget(c, seq_idx, 1, s, err)); /* what begins with a step has a prompt of 1 */
    if (c->seq_states[seq_idx] == PLEAT__SEQ_PROMPT) c->in_prompt = false, c->prompt_past = 0;
    c->seq_states[seq_idx] = PLEAT__SEQ_EMPTY;
    return PLEAT_OK;
}

/* ---- steps --------------------------------------------------------------------------------------- */

/* Places are in range, each stands once, and none has a prompt under way. */
static pleat_status check_batch(pleat_device_cache *c, const uint32_t *seq_idxs, uint32_t n_seqs, pleat_error *err) {
    memset(c->marks, 0, c->opt.max_seqs);
    for (uint32_t i = 0; i < n_seqs; i++) {
        REQUIRE(seq_idxs[i] < c->opt.max_seqs && !c->marks[seq_idxs[i]],
                "device cache: sequence %u of the batch is none of %u, or stands twice", seq_idxs[i], c->opt.max_seqs);
        REQUIRE_STATE(c->seq_states[seq_idxs[i]] != PLEAT__SEQ_PROMPT,
                      "device cache: the prompt of sequence %u has not ended", seq_idxs[i]);
        c->marks[seq_idxs[i]] = 1;
    }
    return PLEAT_OK;
}

pleat_status pleat_device_cache_set_batch(pleat_device_cache *c, const uint32_t *seq_idxs, uint32_t n_seqs,
                                          void *stream, pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE(seq_idxs && n_seqs >= 1 && n_seqs <= c->opt.max_seqs, "device cache: a batch of %u: allowed are 1 to %u",
            n_seqs, c->opt.max_seqs);
    PLEAT_TRY(check_batch(c, seq_idxs, n_seqs, err));
    REQUIRE_STATE(!c->in_step, "device cache: a step is under way");
    PLEAT_TRY(
        pleat__device_copy(c->seq_idxs, seq_idxs, n_seqs * sizeof *seq_idxs, pleat__device_stream_of(stream), err));
    memcpy(c->batch, seq_idxs, n_seqs * sizeof *seq_idxs);
    for (uint32_t i = 0; i < n_seqs; i++) c->seq_states[seq_idxs[i]] = PLEAT__SEQ_OPEN;
    c->lanes.pages.n_seqs = c->view.n_seqs = n_seqs;
    c->is_planned = false; /* a plan for more sequences would write behind `out` */
    return PLEAT_OK;
}

/* Until what the last layer's slots received has been added to their scores. */
static pleat_status wait_for_received(pleat_device_cache *c, pleat__device_stream stream, pleat_error *err) {
    if (!c->aside.is_ahead) return PLEAT_OK;
    c->aside.is_ahead = false;
    return pleat__device_stream_follow(stream, c->aside.received, err);
}

static pleat_status check_step(const pleat_device_cache *c, bool in_step, pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE_STATE(c->lanes.pages.n_seqs > 0, "device cache: no batch has been set");
    REQUIRE_STATE(c->in_step == in_step, "device cache: %s", in_step ? "no step is under way" : "a step is under way");
    return PLEAT_OK;
}

/* Places of the batch may have been closed since, and prompts begun there.  What was closed begins anew. */
static pleat_status open_batch(pleat_device_cache *c, pleat_error *err) {
    const uint32_t n_seqs = c->lanes.pages.n_seqs;
    for (uint32_t i = 0; i < n_seqs; i++)
        REQUIRE_STATE(c->seq_states[c->batch[i]] != PLEAT__SEQ_PROMPT,
                      "device cache: the prompt of sequence %u has not ended", c->batch[i]);
    for (uint32_t i = 0; i < n_seqs; i++) c->seq_states[c->batch[i]] = PLEAT__SEQ_OPEN;
    return PLEAT_OK;
}

pleat_status pleat_device_cache_plan_pages(pleat_device_cache *c, void *stream, pleat_error *err) {
    PLEAT_TRY(check_step(c, false, err));
    PLEAT_TRY(open_batch(c, err));
    const pleat__device_want want = pleat__device_cache_want(c);
    c->keeps_ahead = true;
    return pleat__device_step(&c->lanes.pages, &want, pleat__device_stream_of(stream), err);
}

pleat_status pleat_device_cache_begin(pleat_device_cache *c, void *stream, pleat_error *err) {
    PLEAT_TRY(check_step(c, false, err));
    PLEAT_TRY(open_batch(c, err));
    const pleat__device_stream s = pleat__device_stream_of(stream);
    const pleat__device_want want = pleat__device_cache_want(c);
    PLEAT_TRY(pleat__device_take(&c->lanes.pages, &want, s, err));
    PLEAT_TRY(pleat__device_lanes_grow(&c->lanes, s, err));
    PLEAT_TRY(pleat_device_cache_plan(c, c->opt.schedule, stream, err));
    c->in_step = true;
    return PLEAT_OK;
}

pleat_status pleat_device_cache_append(pleat_device_cache *c, uint32_t layer, const void *k, const void *v,
                                       void *stream, pleat_error *err) {
    PLEAT_TRY(check_step(c, true, err));
    PLEAT_TRY(check_layer(c, layer, err));
    REQUIRE(is_aligned(k, 8) && is_aligned(v, 8), "device cache: no keys or values, or not aligned to 8 bytes");
    const pleat__device_stream s = pleat__device_stream_of(stream);
    PLEAT_TRY(wait_for_received(c, s, err));
    c->has_stored = true;
    return c->stores_wide ? pleat__device_wide_append(&c->lanes, layer, k, v, s, err)
                          : pleat__device_lanes_append(&c->lanes, layer, k, v, s, err);
}

int pleat_device_cache_takes_heads(const pleat_device_cache *c) { return c && !c->stores_wide; }

static pleat_status check_takes_heads(const pleat_device_cache *c, pleat_error *err) {
    PLEAT_FAIL_IF(c->stores_wide, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: heads are made ready apart for these heads, formats, windows or logits");
    return PLEAT_OK;
}

pleat_status pleat_device_cache_append_heads(pleat_device_cache *c, uint32_t layer,
                                             const pleat_device_cache_heads *heads, void *q, void *stream,
                                             pleat_error *err) {
    PLEAT_TRY(check_step(c, true, err));
    PLEAT_TRY(check_layer(c, layer, err));
    REQUIRE(heads && heads->qkv && heads->n_dims <= c->opt.head_dim && is_aligned(q, 16),
            "device cache: no heads or no place for queries, or not aligned to 16 bytes");
    PLEAT_TRY(check_takes_heads(c, err));
    PLEAT_TRY(wait_for_received(c, pleat__device_stream_of(stream), err));
    c->has_stored = true;
    return pleat__device_lanes_append_heads(&c->lanes, layer, heads, c->n_group, q, pleat__device_stream_of(stream),
                                            err);
}

pleat_status pleat_device_cache_plan(pleat_device_cache *c, pleat_device_schedule schedule, void *stream,
                                     pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    REQUIRE_STATE(c->lanes.pages.n_seqs > 0, "device cache: no batch has been set");
    REQUIRE(schedule == PLEAT_DEVICE_EQUAL_SHARES || schedule == PLEAT_DEVICE_PER_LANE || schedule == c->opt.schedule,
            "device cache: no such schedule, or not one that the cache was made for");
    if (!c->is_wide) /* those kernels cut a lane by itself */
        PLEAT_TRY(pleat__device_attn_schedule(&c->plans[schedule], &c->view, c->attn_workspaces[schedule],
                                              pleat__device_stream_of(stream), err));
    c->schedule = schedule;
    c->is_planned = true;
    c->has_stored = false;
    return PLEAT_OK;
}

static pleat_status decode_wide(const pleat_device_cache *c, uint32_t layer, const uint16_t *q, float scale, float *out,
                                float *lse2, pleat__device_stream stream, pleat_error *err) {
    const pleat__device_wide_attn attn = {.view = c->view,
                                          .layer = layer,
                                          .max_slots = c->opt.max_tokens,
                                          .q = q,
                                          .scale = scale,
                                          .cap = c->opt.logit_cap,
                                          .out = out,
                                          .lse2 = lse2,
                                          .workspace = c->wide_workspace};
    return pleat__device_wide_decode(&attn, stream, err);
}

/* Aside, until the next layer's append or attention.  The last layer's in the stream itself: nothing is left over. */
static pleat_status add_received(pleat_device_cache *c, pleat__device_attn_args *args, pleat__device_stream stream,
                                 pleat_error *err) {
    args->view.seq_idxs = c->lanes.scored_seqs;
    if (args->layer + 1 == c->opt.n_layers) return pleat__device_attn_received(args, stream, err);
    PLEAT_TRY(pleat__device_event_record(c->aside.attended, stream, err));
    PLEAT_TRY(pleat__device_stream_follow(c->aside.stream, c->aside.attended, err));
    PLEAT_TRY(pleat__device_attn_received(args, c->aside.stream, err));
    c->aside.is_ahead = true;
    return pleat__device_event_record(c->aside.received, c->aside.stream, err);
}

/* out: f16 if is_f16, else f32. */
static pleat_status decode(pleat_device_cache *c, uint32_t layer, const uint16_t *q, float scale, void *out,
                           bool is_f16, float *lse2, pleat__device_stream stream, pleat_error *err) {
    const bool scores = pleat__device_cache_counts_steps(c) && c->in_step, has_blocks = c->lanes.policy.has_blocks;
    float *lse2_of_all = lse2 ? lse2 : c->lse2;
    pleat__device_attn_args args = {.view = c->view,
                                    .layer = layer,
                                    .reads_ahead = c->in_step && c->has_stored && !c->windows &&
                                                   !pleat__device_cache_has_policy(c),
                                    .q = q,
                                    .scale = scale,
                                    .out = has_blocks && is_f16 ? c->block_other : out,
                                    .is_f16 = is_f16 && !has_blocks,
                                    .lse2 = scores || has_blocks ? lse2_of_all : lse2,
                                    .logits = scores ? c->logits : NULL,
                                    .logits_stride = scores ? c->logits_stride : 0,
                                    .scored_seqs = scores ? c->lanes.scored_seqs : NULL,
                                    .times = (float)c->lanes.policy.every,
                                    .sums_heads = c->lanes.policy.counts == PLEAT__DEVICE_COUNTS_SUM,
                                    .drops_logits = scores};
    PLEAT_TRY(wait_for_received(c, stream, err));
    PLEAT_TRY(pleat__device_attn_decode(&c->plans[c->schedule], &args, c->attn_workspaces[c->schedule], stream, err));
    if (has_blocks) return pleat__device_compress_attend(c, layer, q, args.out, lse2_of_all, out, is_f16, stream, err);
    return scores ? add_received(c, &args, stream, err) : PLEAT_OK;
}

static pleat_status check_attend(const pleat_device_cache *c, uint32_t layer, const void *q, const void *out,
                                 pleat_error *err) {
    PLEAT_TRY(check_seq(c, 0, err));
    PLEAT_TRY(check_layer(c, layer, err));
    REQUIRE_STATE(c->is_planned, "device cache: no batch has been set, or attention to it has not been planned");
    REQUIRE(is_aligned(q, 16) && is_aligned(out, 16),
            "device cache: no queries or no place for the result, or not aligned to 16 bytes");
    return PLEAT_OK;
}

pleat_status pleat_device_cache_attend(pleat_device_cache *c, uint32_t layer, const void *q, float *out, float *lse2,
                                       void *stream, pleat_error *err) {
    PLEAT_TRY(check_attend(c, layer, q, out, err));
    const pleat__device_stream s = pleat__device_stream_of(stream);
    const uint32_t n_heads = c->view.n_seqs * c->opt.n_q_heads, d = c->opt.head_dim;
    const bool is_rotated = c->lanes.is_rotated;
    const float scale = is_rotated ? c->scale * PLEAT__ROTATED_QUERY_UNIT : c->scale;
    if (is_rotated) PLEAT_TRY(pleat__device_rotate_queries(q, n_heads, d, c->rotated_q, s, err));
    if (is_rotated) q = c->rotated_q;
    PLEAT_TRY(c->is_wide ? decode_wide(c, layer, q, scale, out, lse2, s, err)
                         : decode(c, layer, q, scale, out, false, lse2, s, err));
    return is_rotated ? pleat__device_rotate_back(out, n_heads, d, s, err) : PLEAT_OK;
}

pleat_status pleat_device_cache_attend_f16(pleat_device_cache *c, uint32_t layer, const void *q, void *out,
                                           void *stream, pleat_error *err) {
    PLEAT_TRY(check_attend(c, layer, q, out, err));
    PLEAT_TRY(check_takes_heads(c, err));
    return decode(c, layer, q, c->scale, out, true, NULL, pleat__device_stream_of(stream), err);
}

pleat_status pleat_device_cache_end(pleat_device_cache *c, void *stream, pleat_error *err) {
    const pleat_status status = check_step(c, true, err);
    if (c) c->in_step = false; /* one that cannot end is given up */
    PLEAT_TRY(status);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    PLEAT_TRY(wait_for_received(c, s, err)); /* of a step that is given up before its last layer: else it has been */
    if (c->lanes.novelty.is_on) PLEAT_TRY(pleat__device_lanes_score_step(&c->lanes, s, err));
    if (pleat__device_cache_has_policy(c)) {
        PLEAT_TRY(c->lanes.policy.is_leankv    ? pleat__device_lanes_end(&c->lanes, s, err)
                  : c->lanes.policy.has_blocks ? pleat__device_lanes_compress(&c->lanes, s, err)
                                               : pleat__device_lanes_evict(&c->lanes, s, err));
        PLEAT_TRY(pleat__device_trim(&c->lanes.pages, s, err));
    }
    return pleat__device_cache_tell(c, pleat__device_cache_has_policy(c), s, err);
}
