/* SPDX-License-Identifier: MIT
 *
 * device_inspect.c: what a device cache holds, brought to the host: usage, lengths, tokens, invariants.  All of it
 * waits for the stream; none of it is meant for a hot path.
 */
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "codec/block.h"
#include "core/error.h"
#include "policy/evict.h"
#include "quant/quant.h"
#include "quant/rotate.h"

static pleat_status check_cache(const pleat_device_cache *c, const void *out, pleat_error *err) {
    PLEAT_FAIL_IF(!c || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device cache: none given, or no place for the answer");
    return pleat__device_use(c->opt.device, err);
}

/* An array of the device in memory of the host, which the caller frees with drop(). */
static pleat_status bring(const pleat_device_cache *c, const uint32_t *from, uint64_t n, pleat__device_stream stream,
                          uint32_t **to, pleat_error *err) {
    *to = pleat__alloc(&c->al, n, sizeof **to);
    PLEAT_FAIL_IF(!*to, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    PLEAT_TRY(pleat__device_copy(*to, from, n * sizeof **to, stream, err));
    return pleat__device_wait(stream, err);
}

static void drop(const pleat_device_cache *c, uint32_t *array, uint64_t n) {
    pleat__free(&c->al, array, n, sizeof *array);
}

/* ---- usage --------------------------------------------------------------------------------------- */

/* The tables' counts. */
typedef struct counts {
    uint64_t n_rows;
    uint32_t *n_slots[2], *hole, *dead; /* [n_rows] */
    uint32_t *n_tokens;                 /* [max_seqs] */
} counts;

static void drop_counts(const pleat_device_cache *c, counts *n) {
    drop(c, n->n_slots[0], n->n_rows);
    drop(c, n->n_slots[1], n->n_rows);
    drop(c, n->hole, n->n_rows);
    drop(c, n->dead, n->n_rows);
    drop(c, n->n_tokens, c->opt.max_seqs);
}

static pleat_status bring_counts(const pleat_device_cache *c, pleat__device_stream stream, counts *n,
                                 pleat_error *err) {
    const pleat__device_pages *pages = &c->lanes.pages;
    *n = (counts){.n_rows = (uint64_t)c->opt.max_seqs * c->rows_per_seq};
    PLEAT_TRY(bring(c, pages->n_slots[0], n->n_rows, stream, &n->n_slots[0], err));
    PLEAT_TRY(bring(c, pages->n_slots[1], n->n_rows, stream, &n->n_slots[1], err));
    PLEAT_TRY(bring(c, pages->hole, n->n_rows, stream, &n->hole, err));
    PLEAT_TRY(bring(c, pages->dead, n->n_rows, stream, &n->dead, err));
    return bring(c, c->lanes.n_tokens, c->opt.max_seqs, stream, &n->n_tokens, err);
}

/* What attention reads of n slots of a side. */
static uint64_t attend_bytes(const pleat__page_layout *l, uint32_t n_slots) {
    const uint64_t n_tiles = pleat__div_up_u32(n_slots, PLEAT__TILE);
    uint64_t tile_bytes = (uint64_t)l->k_tile_bytes + l->v_tile_bytes;
    if (pleat__format_is_quantised(l->format)) tile_bytes += 2 * PLEAT__META_TILE_BYTES;
    if (l->tracked) tile_bytes += PLEAT__TILE * sizeof(int32_t);
    return n_tiles * tile_bytes + pleat__div_up_u32(n_slots, l->tokens) * sizeof(uint32_t);
}

static void add_seq(const pleat_device_cache *c, const counts *n, uint32_t seq_idx, bool in_batch,
                    pleat_device_cache_usage *u) {
    const uint64_t first = (uint64_t)seq_idx * c->rows_per_seq;
    u->bytes_f16 += (uint64_t)n->n_tokens[seq_idx] * c->rows_per_seq * 4 * c->opt.head_dim;
    for (uint64_t row = first; row < first + c->rows_per_seq; row++) {
        u->tokens_high += n->n_slots[0][row] - n->dead[row] - (n->hole[row] != 0);
        u->tokens_low += c->lanes.policy.has_blocks ? n->n_tokens[seq_idx] - n->n_slots[0][row] : n->n_slots[1][row];
        if (in_batch && c->lanes.policy.has_blocks)
            u->bytes_attend += attend_bytes(&c->lanes.layouts[0], n->n_slots[0][row]) +
                               (uint64_t)PLEAT__BLOCK_ALIGN * n->n_slots[1][row];
        for (int side = 0; side < 2 && in_batch && !c->lanes.policy.has_blocks; side++)
            u->bytes_attend += attend_bytes(&c->lanes.layouts[side], n->n_slots[side][row]);
    }
}

static void add_up(const pleat_device_cache *c, const counts *n, const pleat__device_counters *now,
                   pleat_device_cache_usage *u) {
    const pleat__device_pool *pool = &now->pool;
    *u = (pleat_device_cache_usage){.bytes_pool = c->memory_bytes[0],
                                    .bytes_tables = c->memory_bytes[1],
                                    .bytes_workspace = c->memory_bytes[2],
                                    .page_bytes = c->lanes.page_bytes,
                                    .pages_used = pool->n_pages - pool->n_free,
                                    .pages_peak = pool->n_peak,
                                    .pages_total = pool->n_pages,
                                    .n_refused = pool->n_refused + now->step.n_full,
                                    .page_tokens = {c->lanes.pages.page_tokens[0], c->lanes.pages.page_tokens[1]}};
    u->bytes_pages = u->pages_used * u->page_bytes;
    u->bytes = u->bytes_pages + u->bytes_tables;
    memset(c->marks, 0, c->opt.max_seqs);
    for (uint32_t i = 0; i < c->lanes.pages.n_seqs; i++) c->marks[c->batch[i]] = 1;
    for (uint32_t seq_idx = 0; seq_idx < c->opt.max_seqs; seq_idx++) add_seq(c, n, seq_idx, c->marks[seq_idx], u);
}

pleat_status pleat_device_cache_get_usage(pleat_device_cache *c, pleat_device_cache_usage *out, void *stream,
                                          pleat_error *err) {
    PLEAT_TRY(check_cache(c, out, err));
    const pleat__device_stream s = pleat__device_stream_of(stream);
    pleat__device_counters now;
    counts n = {0};
    PLEAT_TRY(pleat__device_cache_counters(c, s, &now, err));
    const pleat_status status = bring_counts(c, s, &n, err);
    if (status == PLEAT_OK) add_up(c, &n, &now, out);
    drop_counts(c, &n);
    return status;
}

/* The counts of a sequence's rows from `of`, [rows_per_seq], summed up. */
static pleat_status sum_of_rows(const pleat_device_cache *c, uint32_t seq_idx, const uint32_t *of,
                                pleat__device_stream stream, uint64_t *sum, pleat_error *err) {
    uint32_t *each;
    const pleat_status status = bring(c, of + pleat__device_first_row(c, seq_idx), c->rows_per_seq, stream, &each, err);
    *sum = 0;
    for (uint32_t row = 0; row < c->rows_per_seq && status == PLEAT_OK; row++) *sum += each[row];
    drop(c, each, c->rows_per_seq);
    return status;
}

/* Lanes with a hole. */
static pleat_status count_holes(const pleat_device_cache *c, uint32_t seq_idx, pleat__device_stream stream, uint64_t *n,
                                pleat_error *err) {
    uint32_t *holes;
    const pleat_status status =
        bring(c, c->lanes.pages.hole + pleat__device_first_row(c, seq_idx), c->rows_per_seq, stream, &holes, err);
    *n = 0;
    for (uint32_t row = 0; row < c->rows_per_seq && status == PLEAT_OK; row++) *n += holes[row] != 0;
    drop(c, holes, c->rows_per_seq);
    return status;
}

pleat_status pleat_device_cache_get_held(pleat_device_cache *c, uint32_t seq_idx, pleat_device_cache_held *out,
                                         void *stream, pleat_error *err) {
    PLEAT_TRY(check_cache(c, out, err));
    PLEAT_FAIL_IF(seq_idx >= c->opt.max_seqs, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device cache: no sequence %u", seq_idx);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    pleat_device_cache_held held = {.slots = 0};
    uint64_t n_holes, n_dead;
    PLEAT_TRY(count_holes(c, seq_idx, s, &n_holes, err));
    PLEAT_TRY(sum_of_rows(c, seq_idx, c->lanes.pages.dead, s, &n_dead, err));
    for (int side = 0; side < 2; side++) {
        PLEAT_TRY(sum_of_rows(c, seq_idx, c->lanes.pages.n_pages[side], s, &held.pages[side], err));
        PLEAT_TRY(sum_of_rows(c, seq_idx, c->lanes.pages.n_slots[side], s, &held.tokens[side], err));
        held.slots += held.pages[side] * c->lanes.pages.page_tokens[side];
    }
    held.tokens[0] -= n_holes + n_dead;
    if (c->lanes.policy.has_blocks) {
        uint32_t n_tokens;
        PLEAT_TRY(pleat_device_cache_length(c, seq_idx, &n_tokens, stream, err));
        held.tokens[1] = (uint64_t)n_tokens * c->rows_per_seq - held.tokens[0];
    }
    const uint64_t row_words = c->lanes.pages.row_len + 6; /* cells; pages and slots of both sides, hole, dead */
    held.table_bytes = c->rows_per_seq * row_words * sizeof(uint32_t) + 8 * (held.pages[0] + held.pages[1]);
    *out = held;
    return PLEAT_OK;
}

pleat_status pleat_device_cache_length(pleat_device_cache *c, uint32_t seq_idx, uint32_t *n_tokens, void *stream,
                                       pleat_error *err) {
    PLEAT_TRY(check_cache(c, n_tokens, err));
    PLEAT_FAIL_IF(seq_idx >= c->opt.max_seqs, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device cache: no sequence %u", seq_idx);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    uint32_t n;
    PLEAT_TRY(pleat__device_copy(&n, c->lanes.n_tokens + seq_idx, sizeof n, s, err));
    PLEAT_TRY(pleat__device_wait(s, err));
    *n_tokens = n;
    return PLEAT_OK;
}

/* ---- what a scheduler asks --------------------------------------------------------------------------- */

_Static_assert(sizeof(pleat_device_cache_load) == sizeof(pleat__device_load), "one struct in two headers");

/* PLEAT_AGAIN if what was told counts refused steps that nobody has heard of. */
static pleat_status hear_refused(pleat_device_cache *c, pleat_error *err) {
    const uint64_t n_refused = c->told->pool.n_refused + c->told->step.n_full, n_seen = c->n_refused_seen;
    c->n_refused_seen = n_refused;
    PLEAT_FAIL_IF(n_refused != n_seen, err, PLEAT_AGAIN, PLEAT_NOWHERE,
                  "device cache: %llu steps were refused: pages are short, or a sequence has max_tokens",
                  (unsigned long long)(n_refused - n_seen));
    return PLEAT_OK;
}

pleat_status pleat_device_cache_wait(pleat_device_cache *c, void *stream, pleat_error *err) {
    pleat__device_counters now;
    PLEAT_TRY(check_cache(c, &now, err));
    PLEAT_TRY(pleat__device_cache_counters(c, pleat__device_stream_of(stream), &now, err));
    return hear_refused(c, err);
}

/* What was told, once it is there. */
static pleat_status hear_loads(pleat_device_cache *c, uint64_t *pages_used, pleat_device_cache_load *out,
                               pleat__device_stream stream, pleat_error *err) {
    PLEAT_TRY(pleat__device_wait(stream, err));
    *pages_used = c->told->pool.n_pages - c->told->pool.n_free;
    if (out) memcpy(out, c->loads, c->opt.max_seqs * sizeof *out);
    return PLEAT_OK;
}

pleat_status pleat_device_cache_wait_end(pleat_device_cache *c, uint64_t *pages_used, pleat_device_cache_load *out,
                                         void *stream, pleat_error *err) {
    PLEAT_TRY(check_cache(c, pages_used, err));
    PLEAT_TRY(hear_loads(c, pages_used, out, pleat__device_stream_of(stream), err));
    return hear_refused(c, err);
}

pleat_status pleat_device_cache_get_loads(pleat_device_cache *c, uint64_t *pages_used, pleat_device_cache_load *out,
                                          void *stream, pleat_error *err) {
    PLEAT_TRY(check_cache(c, pages_used, err));
    PLEAT_TRY(pleat__device_cache_tell(c, out != NULL, pleat__device_stream_of(stream), err));
    return hear_loads(c, pages_used, out, pleat__device_stream_of(stream), err);
}

uint32_t pleat_device_cache_max_kept(const pleat_device_cache *c, uint32_t n_prompt) {
    if (!c || !pleat__device_cache_evicts(c)) return UINT32_MAX;
    return pleat__evict_max_budget(&c->opt.spec, c->opt.n_kv_heads, n_prompt, 0);
}

int pleat_device_cache_is_bounded(const pleat_device_cache *c) { return c && pleat__device_cache_is_bounded(c); }

/* The pages of a sequence's first lane: [*n] ids, which the caller drops as [row_len]. */
static pleat_status bring_first_row(const pleat_device_cache *c, uint32_t seq_idx, pleat__device_stream stream,
                                    uint32_t *n, uint32_t **ids, pleat_error *err) {
    const pleat__device_pages *pages = &c->lanes.pages;
    const uint32_t row = pleat__device_first_row(c, seq_idx);
    PLEAT_TRY(pleat__device_copy(n, pages->n_pages[0] + row, sizeof *n, stream, err));
    return bring(c, pages->ids + (uint64_t)row * pages->row_len, pages->row_len, stream, ids, err);
}

pleat_status pleat_device_cache_get_shared(pleat_device_cache *c, uint32_t a, uint32_t b, uint64_t *n_pages,
                                           void *stream, pleat_error *err) {
    PLEAT_TRY(check_cache(c, n_pages, err));
    PLEAT_FAIL_IF(a >= c->opt.max_seqs || b >= c->opt.max_seqs, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device cache: no sequence %u or %u", a, b);
    const pleat__device_stream s = pleat__device_stream_of(stream);
    uint32_t n[2] = {0, 0}, *ids[2] = {NULL, NULL};
    *n_pages = 0;
    if (!pleat__device_cache_shares(c)) return PLEAT_OK;
    pleat_status status = bring_first_row(c, a, s, &n[0], &ids[0], err);
    if (status == PLEAT_OK) status = bring_first_row(c, b, s, &n[1], &ids[1], err);
    uint32_t n_alike = 0; /* of any lane: all have as many tokens, and were shared together */
    for (uint32_t i = 0; status == PLEAT_OK && i < n[0] && i < n[1]; i++) n_alike += ids[0][i] == ids[1][i];
    *n_pages = (uint64_t)n_alike * c->rows_per_seq;
    for (int i = 0; i < 2; i++) drop(c, ids[i], c->lanes.pages.row_len);
    return status;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

/* What is asked for. */
typedef struct request {
    uint32_t first, n_tokens;
    uint32_t ring, length; /* of a lane with a window: its slots; tokens of the sequence.  Else 0 */
    bool is_rotated;
    float *k, *v;
} request;

/* Position of the token in a slot of a lane whose pages have none. */
static int64_t position_of(const request *want, uint32_t slot) {
    if (want->ring == 0) return slot;
    const uint32_t position = slot + (want->length - 1 - slot) / want->ring * want->ring;
    return want->length - position == want->ring ? -1 : (int64_t)position; /* the next token's slot: no query sees it */
}

/* Tokens of one page into their rows.  Without positions slots stand for them. */
static void export_page(const pleat__page_layout *l, uint8_t *page, uint32_t first_slot, uint32_t n,
                        const request *want) {
    for (uint32_t slot = 0; slot < n; slot++) {
        const int64_t position = l->tracked ? pleat__positions(l, page)[slot] : position_of(want, first_slot + slot);
        const int64_t at = position - want->first;
        if (position < 0 || at < 0 || at >= want->n_tokens) continue;
        float *k = want->k + at * l->head_dim, *v = want->v + at * l->head_dim;
        pleat__quant_load_token(l, page, slot, k, v);
        if (!want->is_rotated) continue;
        pleat__rotate_back(k, 1, l->head_dim, k);
        pleat__rotate_back(v, 1, l->head_dim, v);
    }
}

static pleat_status export_side(const pleat_device_cache *c, uint32_t row, int side, uint32_t n_slots,
                                const request *want, pleat__device_stream stream, uint8_t *page, pleat_error *err) {
    const pleat__device_pages *pages = &c->lanes.pages;
    const pleat__page_layout *l = &c->lanes.layouts[side];
    const uint32_t *cells = pages->ids + (uint64_t)row * pages->row_len;
    for (uint32_t first = 0; first < n_slots; first += l->tokens) {
        const uint32_t idx = first / l->tokens;
        uint32_t id;
        PLEAT_TRY(pleat__device_copy(&id, cells + (side ? pages->row_len - 1 - idx : idx), sizeof id, stream, err));
        PLEAT_TRY(pleat__device_wait(stream, err));
        PLEAT_TRY(pleat__device_copy(page, c->lanes.base + id * c->lanes.page_bytes, l->used_bytes, stream, err));
        PLEAT_TRY(pleat__device_wait(stream, err));
        export_page(l, page, first, pleat__min_u32(l->tokens, n_slots - first), want);
    }
    return PLEAT_OK;
}

static pleat_status export_row(const pleat_device_cache *c, uint32_t row, const request *want,
                               pleat__device_stream stream, uint8_t *page, pleat_error *err) {
    uint32_t n_slots[2];
    for (int side = 0; side < 2; side++)
        PLEAT_TRY(pleat__device_copy(&n_slots[side], c->lanes.pages.n_slots[side] + row, sizeof *n_slots, stream, err));
    PLEAT_TRY(pleat__device_wait(stream, err));
    PLEAT_FAIL_IF(n_slots[1] > 0 && !c->lanes.layouts[1].tracked, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: low pages keep no positions where al is 0");
    for (int side = 0; side < 2; side++) PLEAT_TRY(export_side(c, row, side, n_slots[side], want, stream, page, err));
    return PLEAT_OK;
}

pleat_status pleat_device_cache_export(pleat_device_cache *c, uint32_t seq_idx, uint32_t layer, uint32_t kv_head,
                                       uint32_t first, uint32_t n_tokens, float *k, float *v, void *stream,
                                       pleat_error *err) {
    uint32_t length;
    PLEAT_TRY(pleat_device_cache_length(c, seq_idx, &length, stream, err));
    PLEAT_FAIL_IF(c->lanes.policy.has_blocks, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: blocks are not exported from a GPU");
    PLEAT_FAIL_IF(!k || !v || layer >= c->opt.n_layers || kv_head >= c->opt.n_kv_heads || first > length ||
                      n_tokens > length - first,
                  err, PLEAT_E_ARG, PLEAT_NOWHERE, "device cache: export: no such tokens, or no place for them");
    uint8_t *page = pleat__alloc(&c->al, 1, c->lanes.page_bytes);
    PLEAT_FAIL_IF(!page, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    const uint64_t n = (uint64_t)n_tokens * c->opt.head_dim;
    memset(k, 0, n * sizeof *k);
    memset(v, 0, n * sizeof *v);
    const uint32_t ring = pleat__device_window(c, layer);
    const request want = {first, n_tokens, ring, ring ? length : 0, c->lanes.is_rotated, k, v};
    const uint32_t row = pleat__device_first_row(c, seq_idx) + layer * c->opt.n_kv_heads + kv_head;
    const pleat_status status = export_row(c, row, &want, pleat__device_stream_of(stream), page, err);
    pleat__free(&c->al, page, 1, c->lanes.page_bytes);
    return status;
}

/* ---- invariants ---------------------------------------------------------------------------------- */

/* Each lane's tokens are no more than the sequence's, and all of them where nothing is dropped. */
static bool lengths_are_valid(const pleat_device_cache *c, const counts *n) {
    for (uint64_t row = 0; row < n->n_rows; row++) {
        const uint64_t n_dead = (uint64_t)n->dead[row] + (n->hole[row] != 0), n_slots = n->n_slots[0][row];
        const uint64_t n_low = c->lanes.policy.has_blocks ? 0 : n->n_slots[1][row]; /* of blocks not tokens */
        const uint64_t n_live = n_slots - n_dead + n_low;
        if (n->hole[row] > n_slots || n_dead > n_slots || n_live > n->n_tokens[row / c->rows_per_seq]) return false;
    }
    return true;
}

pleat_status pleat_device_cache_check(pleat_device_cache *c, void *stream, pleat_error *err) {
    PLEAT_TRY(check_cache(c, c, err));
    const pleat__device_stream s = pleat__device_stream_of(stream);
    const bool at_rest = !c->in_step && !c->in_prompt && !c->keeps_ahead;
    bool valid;
    PLEAT_TRY(pleat__device_pages_check(&c->lanes.pages, at_rest, s, &valid, err));
    PLEAT_FAIL_IF(!valid, err, PLEAT_E_STATE, PLEAT_NOWHERE, "device cache: pool or tables break their invariants");
    counts n = {0};
    const pleat_status status = bring_counts(c, s, &n, err);
    valid = status != PLEAT_OK || c->in_prompt || lengths_are_valid(c, &n);
    drop_counts(c, &n);
    PLEAT_TRY(status);
    PLEAT_FAIL_IF(!valid, err, PLEAT_E_STATE, PLEAT_NOWHERE,
                  "device cache: a lane holds more tokens than its sequence");
    return PLEAT_OK;
}
