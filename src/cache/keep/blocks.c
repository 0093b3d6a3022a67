/* SPDX-License-Identifier: MIT
 *
 * blocks.c: lanes that keep their first tokens, the sinks, and their newest, the buffer, in pages, and the cold ones
 * between them in compressed blocks (codec/block.h).
 *
 * All lanes of a sequence have the same n_classed tokens in blocks, those behind the first `sinks`.  The high side holds
 * the others in the order of positions, in the spec's high format:
 *
 *     tokens    | sinks | block 0 | block 1 | ... | buffer: sinks + n_classed, ... n_tokens - 1 |
 *     high      | sinks | buffer |
 *     row       | high pages ->                                        <- low pages: payloads, 16 bytes a slot |
 *
 * So the sinks take no page of their own: the buffer follows in the slot behind the last.  Exact pages for them alone
 * would cost a lane up to a page, which with 4 sinks in 16 f16 slots is 1.5 % of f16's bytes at 800 tokens.  For that
 * a step that makes blocks moves sinks, those in the page that the first block begins in.
 *
 * Blocks are written at the end of a step (block_writer.c); here is what they are to the rest of the cache: when tokens
 * are due, which pages a step writes, what attention reads, what forks and images carry.
 */
#include "cache/keep/blocks.h"

#include <string.h>

#include "attn/blocks.h"
#include "cache/keep/block_writer.h"
#include "cache/keep/groups.h"
#include "cache/keep/plain.h"
#include "cache/keep/promise.h"
#include "cache/keep/rd.h"
#include "core/error.h"
#include "pleat/stats.h"
#include "spec/spec.h"

static const pleat__block_format *format_of(const pleat_cache *c) { return &c->kept.blocks.format; }
static bool has_codebooks(const pleat_cache *c) { return c->kept.blocks.has_codebooks; }

/* Blocks of a lane when so many of its tokens are in blocks. */
static uint32_t count_blocks(const pleat_cache *c, uint32_t n_classed) { return n_classed / format_of(c)->tokens; }

/* ---- create -------------------------------------------------------------------------------------- */

/* Blocks take whole pages.  These are small: half a page of tokens and half a page of payloads are lost a lane, which
 * with 32 f16 tokens a page is 3.9 % of f16's bytes at 800 tokens. */
static uint32_t choose_page_tokens(const pleat_cache *c) {
    const bool is_long = c->opt.max_tokens >= PLEAT__LONG_PAGE_FROM;
    return pleat__min_u32(is_long ? PLEAT__LONG_PAGE_TOKENS : PLEAT__TILE, format_of(c)->tokens);
}

/* A payload goes into the pages that its tokens leave. */
static pleat_status check_room(const pleat_cache *c, pleat_error *err) {
    const uint64_t most =
        (pleat__block_bound(format_of(c)) + PLEAT__BLOCK_ALIGN - 1) & ~(uint64_t)(PLEAT__BLOCK_ALIGN - 1);
    const uint64_t room = format_of(c)->tokens / c->page_tokens[PLEAT__HIGH] * c->page_bytes;
    PLEAT_FAIL_IF(most > room, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: a block of %u tokens may take %llu bytes, more than the %llu that they take in the buffer: "
                  "give the spec's high more bits, or its steps more width",
                  format_of(c)->tokens, (unsigned long long)most, (unsigned long long)room);
    return PLEAT_OK;
}

static pleat_status derive(pleat_cache *c, pleat_error *err) {
    const uint32_t tokens = c->opt.page_tokens;
    pleat__block_format *format = &c->kept.blocks.format;
    PLEAT_TRY(pleat__block_format_of(&c->opt.spec, c->opt.head_dim, format));
    PLEAT_FAIL_IF(tokens > 0 && format->tokens % tokens != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: page_tokens %u does not divide the spec's blocks of %u tokens", tokens, format->tokens);
    c->kept.blocks.has_codebooks = format->coder == PLEAT__CODER_HUFFMAN && !format->is_rd;
    c->kept.blocks.has_promise = c->opt.spec.bytes > 0;
    const pleat__layouts_of of = pleat__plain_layouts(c, false);
    PLEAT_TRY(pleat__plain_lay_out(c, &of, tokens > 0 ? tokens : choose_page_tokens(c), err));
    PLEAT_TRY(check_room(c, err));
    c->page_tokens[PLEAT__LOW] = (uint32_t)(c->page_bytes / PLEAT__BLOCK_ALIGN);
    c->traits.low_page_tokens = 0;
    c->high_weight = c->page_tokens[PLEAT__LOW] / c->page_tokens[PLEAT__HIGH];
    c->work.blocks_bytes = pleat__attn_blocks_scratch_bytes(format, c->n_group);
    return PLEAT_OK;
}

static uint32_t plain_tokens(const pleat_cache *c) {
    return c->kept.blocks.has_promise ? pleat__promise_plain_tokens(c) : 0;
}

static void choice(const pleat_cache *c, pleat_spec *out) {
    if (c->kept.blocks.has_promise) pleat__spec_fix_steps(out, c->kept.blocks.promise.k, c->kept.blocks.promise.v);
}

static pleat_status check(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    if (format_of(c)->is_rd) PLEAT_TRY(pleat__keep_rd_check(opt, err));
    return c->kept.blocks.has_promise ? pleat__promise_check(c, opt, err) : PLEAT_OK;
}

static void carve(pleat_cache *c, pleat__arena *arena) {
    if (format_of(c)->is_rd) pleat__keep_rd_carve(c, arena);
}

static void init(pleat_cache *c, const pleat_cache_options *opt) {
    if (format_of(c)->is_rd) pleat__keep_rd_init(c, opt);
}

static void carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena) {
    pleat__seq_blocks *b = &seq->blocks;
    b->cap = count_blocks(c, max_tokens);
    b->ends = pleat__arena_take(arena, (uint64_t)pleat__n_full_lanes(c) * b->cap, sizeof *b->ends);
}

static uint64_t end_bytes(const pleat_cache *c) {
    pleat__block_scratch scratch;
    pleat__arena arena = {0};
    pleat__cache_carve_blocks(c, format_of(c), &scratch, &arena);
    return arena.used_bytes;
}

/* ---- codebooks ----------------------------------------------------------------------------------- */

static size_t codebooks_bytes(const pleat_cache *c, uint32_t n_blocks) {
    return n_blocks > 0 && has_codebooks(c) ? c->n_full_layers * sizeof(pleat__block_codebooks) : 0;
}

/* Codebooks are there from the first blocks on: of a prompt of 100 tokens they would be 3.5 % of f16's bytes (8 layers
 * of 4 KV heads, d 64). */
static pleat_status reserve(pleat_cache *c, pleat__sequence *seq, uint32_t n_classed) {
    const size_t n_bytes = codebooks_bytes(c, count_blocks(c, n_classed));
    if (n_bytes == 0 || seq->blocks.codebooks) return PLEAT_OK;
    seq->blocks.codebooks = pleat__alloc(&c->al, 1, n_bytes);
    if (!seq->blocks.codebooks) return PLEAT_E_MEMORY;
    seq->blocks.codebooks_bytes = n_bytes;
    return PLEAT_OK;
}

static void cancel(const pleat_cache *c, const pleat__step_item *item) {
    pleat__seq_blocks *b = &item->seq->blocks;
    if (item->seq->n_classed > 0) return;
    pleat__free(&c->al, b->codebooks, 1, b->codebooks_bytes);
    b->codebooks = NULL;
    b->codebooks_bytes = 0;
}

/* ---- a step -------------------------------------------------------------------------------------- */

/* Of n_warm tokens that are in no block those that become blocks. */
static uint32_t count_due(uint32_t n_warm, const pleat_spec *spec, uint32_t block_tokens) {
    return pleat__blocks_due(spec, n_warm, block_tokens) * block_tokens;
}

static void end_at(const pleat__item_counts *n, const pleat_spec *spec, uint32_t block_tokens, pleat__item_end *end) {
    if (n->flags & PLEAT_ITEM_MORE) return;
    const uint32_t n_due = count_due(n->n_before + n->n_new - n->n_classed, spec, block_tokens);
    end->n_classed += n_due;
    if (n_due > 0) end->compaction = PLEAT__COMPACT_PROMPT;
}

static uint64_t reserved_bytes(const pleat_cache *c, uint32_t n_tokens) {
    const uint32_t n_due = count_due(n_tokens, &c->opt.spec, format_of(c)->tokens);
    return codebooks_bytes(c, count_blocks(c, n_due));
}

static uint64_t promised_bytes(const pleat_cache *c, uint32_t n_tokens) {
    return c->kept.blocks.has_promise ? pleat__promise_bytes(c, n_tokens) : UINT64_MAX;
}

static void plan(const pleat_cache *c, const pleat__item_counts *n, pleat__item_end *end) {
    end_at(n, &c->opt.spec, format_of(c)->tokens, end);
}

/* Payloads go into high pages that their tokens leave. */
static uint32_t first_written(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side) {
    return side == PLEAT__HIGH ? 0 : pleat__plain_first_written(c, table, lane, side);
}

/* High pages that the step empties, the one that sinks move to, and what stands behind the last token. */
static pleat__written written(const pleat_cache *c, const pleat__step_item *item, uint32_t lane) {
    const pleat__table *table = &item->seq->table;
    const uint32_t tokens = c->page_tokens[PLEAT__HIGH], n_full = table->n_slots[PLEAT__HIGH][lane] / tokens;
    const uint32_t n_stay = c->opt.spec.sinks / tokens;
    const uint32_t n_emptied = (item->end.n_classed - item->seq->n_classed) / tokens;
    const uint32_t end = n_emptied > 0 ? n_stay + n_emptied + (c->opt.spec.sinks % tokens > 0) : 0;
    return (pleat__written){
        .high = {pleat__min_u32(n_stay, n_full), end},
        .from = {pleat__max_u32(end, n_full), pleat__plain_first_written(c, table, lane, PLEAT__LOW)}};
}

/* What one lane leaves under a promise another may take: lanes are written one behind the other. */
static uint32_t end_units(const pleat_cache *c) { return c->kept.blocks.has_promise ? 1 : c->opt.n_layers; }

static void end_unit(const pleat_cache *c, const pleat__step_item *item, uint32_t layer, pleat__arena *arena) {
    pleat__block_scratch scratch;
    if (!c->kept.blocks.has_promise && pleat__cache_window(c, layer)) return;
    pleat__cache_carve_blocks(c, format_of(c), &scratch, arena);
    if (c->kept.blocks.has_promise)
        pleat__write_promised_blocks(c, item, &scratch);
    else
        pleat__write_blocks(c, item, layer, &scratch);
}

/* ---- forecasts --------------------------------------------------------------------------------- */

/* Without a sample payloads are as large as the pages that their tokens leave. */
static void forecast(const pleat_cache *c, pleat_forecast *out) {
    out->low_slots = c->page_tokens[PLEAT__LOW];
    out->block_tokens = format_of(c)->tokens;
    out->codebooks_bytes = codebooks_bytes(c, 1);
    out->most_low = (float)c->page_tokens[PLEAT__LOW] / (float)c->page_tokens[PLEAT__HIGH];
}

static float sample_high(const pleat__lane *lane, uint32_t n_warm, uint32_t n_classed) {
    (void)lane, (void)n_warm, (void)n_classed;
    return 0;
}

/* Full pages of sinks alone are as final as those of payloads. */
static void forecast_step(const pleat_forecast *f, const pleat__item_counts *n, pleat__item_end end,
                          pleat_forecast_seq *q) {
    const pleat__group_pages open = pleat__groups_count(f, n->n_classed, q->n_tokens - n->n_classed, 0);
    end_at(n, &f->spec, f->block_tokens, &end);
    q->n_classed = end.n_classed;
    const uint32_t n_warm = q->n_tokens - q->n_classed;
    const pleat__group_pages left = pleat__groups_count(f, q->n_classed, n_warm, 0);
    q->high_pages = left.high;
    q->n_pages = left.high + left.low;
    q->full_pages = left.full;
    q->step_pages = open.high + open.low;
    const uint32_t tokens = f->traits.high_page_tokens, n_sinks = pleat__min_u32(n_warm, f->spec.sinks);
    q->final_pages = left.full_old + pleat__forecast_full_lanes(f) * (uint64_t)(n_sinks / tokens);
    q->still_pages = left.full_old + pleat__forecast_full_lanes(f) * (uint64_t)(n_warm / tokens);
}

/* ---- reading ------------------------------------------------------------------------------------- */

pleat__block_run pleat__cache_block_run(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane) {
    const pleat__seq_blocks *b = &seq->blocks;
    return (pleat__block_run){.format = format_of(c),
                              .codebooks =
                                  b->codebooks ? &b->codebooks[pleat__full_idx(c, lane / c->opt.n_kv_heads)] : NULL,
                              .rd = c->kept.blocks.rd ? &c->kept.blocks.rd[pleat__full_lane_idx(c, lane)] : NULL,
                              .base = c->pages,
                              .page_bytes = c->page_bytes,
                              .ids = pleat__table_cell(&seq->table, lane, PLEAT__LOW, 0),
                              .step = pleat__table_step(&seq->table, lane, PLEAT__LOW),
                              .ends = b->ends + (size_t)pleat__full_lane_idx(c, lane) * b->cap,
                              .n_blocks = count_blocks(c, seq->n_classed)};
}

static pleat__kv_run low_run(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane,
                             pleat__block_run *blocks) {
    *blocks = pleat__cache_block_run(c, seq, lane);
    return (pleat__kv_run){.blocks = blocks, .n_slots = seq->n_classed};
}

static void carve_loader(const pleat_cache *c, pleat__block_loader *loader, pleat__arena *arena) {
    pleat__block_loader_carve(format_of(c), &c->codec, loader, arena);
}

/* ---- forks and images ------------------------------------------------------------------------------ */

static pleat__left left(const pleat_cache *c, const pleat__sequence *seq) {
    const uint32_t tokens = c->page_tokens[PLEAT__HIGH];
    return (pleat__left){.first = c->opt.spec.sinks / tokens, .n = seq->n_classed / tokens};
}

static void share(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to) {
    const uint32_t n_blocks = count_blocks(c, from->n_classed);
    if (n_blocks == 0) return;
    if (has_codebooks(c)) memcpy(to->blocks.codebooks, from->blocks.codebooks, codebooks_bytes(c, n_blocks));
    for (size_t i = 0; i < pleat__n_full_lanes(c); i++)
        memcpy(to->blocks.ends + i * to->blocks.cap, from->blocks.ends + i * from->blocks.cap,
               n_blocks * sizeof *to->blocks.ends);
}

/* Codebooks in an image: of each full layer its bytes, u32, and docs/FORMAT.md's section 9, in room for the longest. */
static size_t image_codebook_bytes(const pleat_cache *c) {
    return (sizeof(uint32_t) + pleat__block_codebooks_cap(format_of(c)) + 3) & ~(size_t)3;
}
static size_t image_codebooks_bytes(const pleat_cache *c, uint32_t n_blocks) {
    return has_codebooks(c) && n_blocks > 0 ? c->n_full_layers * image_codebook_bytes(c) : 0;
}

/* The codebooks, then the lanes' ends. */
static const char *image_key(const pleat_cache *c) {
    return format_of(c)->is_rd ? pleat_stats_fingerprint(c->opt.stats) : "";
}

static uint64_t image_bytes(const pleat_cache *c, uint32_t n_classed) {
    const uint32_t n_blocks = count_blocks(c, n_classed);
    return image_codebooks_bytes(c, n_blocks) + (uint64_t)pleat__n_full_lanes(c) * n_blocks * sizeof(uint32_t);
}

static void write_codebooks(const pleat_cache *c, const pleat__block_codebooks *codebooks, uint8_t *out) {
    const size_t slot = image_codebook_bytes(c);
    memset(out, 0, c->n_full_layers * slot);
    for (uint32_t i = 0; i < c->n_full_layers; i++, out += slot) {
        const uint32_t n = (uint32_t)pleat__block_codebooks_write(format_of(c), &codebooks[i], out + sizeof n);
        memcpy(out, &n, sizeof n);
    }
}

static void write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out) {
    const uint32_t n_blocks = count_blocks(c, seq->n_classed);
    const size_t lane_bytes = n_blocks * sizeof *seq->blocks.ends;
    if (n_blocks == 0) return;
    if (has_codebooks(c)) write_codebooks(c, seq->blocks.codebooks, out);
    out += image_codebooks_bytes(c, n_blocks);
    for (size_t i = 0; i < pleat__n_full_lanes(c); i++)
        memcpy(out + i * lane_bytes, seq->blocks.ends + i * seq->blocks.cap, lane_bytes);
}

static bool read_codebooks(const pleat_cache *c, const uint8_t *in, pleat__block_codebooks *codebooks) {
    const size_t slot = image_codebook_bytes(c);
    for (uint32_t i = 0; i < c->n_full_layers; i++, in += slot) {
        uint32_t n;
        memcpy(&n, in, sizeof n);
        if (n > slot - sizeof n ||
            pleat__block_codebooks_read(format_of(c), in + sizeof n, n, &codebooks[i], NULL) != PLEAT_OK)
            return false;
    }
    return true;
}

/* A lane's blocks end one behind the other, where its low side does; and the high side has the other tokens. */
static bool ends_are_sound(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane,
                           const pleat__image_counts *counts) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    const uint32_t *ends = seq->blocks.ends + (size_t)pleat__full_lane_idx(c, lane) * seq->blocks.cap;
    uint32_t end = 0;
    for (uint32_t i = 0; i < count_blocks(c, counts->n_classed); i++) {
        if (ends[i] <= end || ends[i] - end > pleat__block_bound(format_of(c))) return false;
        end = ends[i];
    }
    return l.n_slots[PLEAT__LOW] == end && l.n_slots[PLEAT__HIGH] == counts->n_tokens - counts->n_classed;
}

/* Blocks are whole, and there are none before all sinks. */
static bool is_classed_soundly(const pleat_cache *c, uint32_t n_tokens, uint32_t n_classed) {
    return n_classed % format_of(c)->tokens == 0 &&
           (n_classed == 0 || (uint64_t)c->opt.spec.sinks + n_classed <= n_tokens);
}

static bool read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                       pleat__sequence *seq) {
    const uint32_t n_blocks = count_blocks(c, counts->n_classed);
    const size_t lane_bytes = n_blocks * sizeof *seq->blocks.ends;
    if (!is_classed_soundly(c, counts->n_tokens, counts->n_classed) || n_blocks > seq->blocks.cap) return false;
    if (has_codebooks(c) && n_blocks > 0 && !read_codebooks(c, in, seq->blocks.codebooks)) return false;
    in += image_codebooks_bytes(c, n_blocks);
    for (size_t i = 0; i < pleat__n_full_lanes(c); i++)
        memcpy(seq->blocks.ends + i * seq->blocks.cap, in + i * lane_bytes, lane_bytes);
    for (uint32_t lane = 0; lane < c->n_lanes; lane++)
        if (!pleat__cache_is_ring(c, lane) && !ends_are_sound(c, seq, lane, counts)) return false;
    return true;
}

static bool lane_is_sound(const pleat_cache *c, uint32_t lane_idx, const pleat__lane *lane,
                          const pleat__image_counts *counts) {
    (void)lane_idx;
    return lane->hole == 0 && lane->n_dead == 0 &&
           (uint64_t)lane->n_slots[PLEAT__HIGH] + counts->n_classed == counts->n_tokens &&
           lane->n_slots[PLEAT__LOW] <= UINT32_MAX - c->page_tokens[PLEAT__LOW];
}

/* Every block of the lane opens and is undamaged, and the blocks take the low side's slots. */
static bool is_intact(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *copy) {
    const pleat__block_run run = pleat__cache_block_run(c, seq, lane);
    if (!is_classed_soundly(c, seq->n_tokens, seq->n_classed)) return false;
    for (uint32_t i = 0; i < run.n_blocks; i++) {
        if (run.ends[i] <= (i > 0 ? run.ends[i - 1] : 0)) return false;
        pleat__block_reader reader;
        size_t n_bytes;
        const uint8_t *payload = pleat__block_fetch(&run, i, copy, &n_bytes);
        if (run.rd) {
            if (!pleat__rd_is_intact(run.rd, payload, n_bytes)) return false;
            if (pleat__rd_open(run.rd, payload, n_bytes, copy, &reader) != PLEAT_OK) return false;
            continue;
        }
        if (!pleat__block_is_intact(run.format, run.codebooks, payload, n_bytes)) return false;
        if (pleat__block_open(run.format, run.codebooks, payload, n_bytes, copy, &reader) != PLEAT_OK) return false;
    }
    return seq->table.n_slots[PLEAT__LOW][lane] == (run.n_blocks > 0 ? run.ends[run.n_blocks - 1] : 0);
}

/* ---- inspection ---------------------------------------------------------------------------------- */

static void count_low(const pleat_cache *c, const pleat__sequence *seq, const pleat__lane *lane, uint32_t *n_tokens,
                      uint64_t *n_slots) {
    (void)c, (void)lane;
    *n_tokens = seq->n_classed;
    *n_slots = seq->n_classed;
}

/* Behind the sinks, the first n_classed. */
static bool is_in_block(const pleat_cache *c, const pleat__sequence *seq, uint32_t position) {
    return position >= c->opt.spec.sinks && position - c->opt.spec.sinks < seq->n_classed;
}

static pleat__token_at find(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t position) {
    const uint32_t tokens = format_of(c)->tokens, sinks = c->opt.spec.sinks;
    if (!is_in_block(c, seq, position))
        return pleat__plain_token(c, seq, lane, position < sinks ? position : position - seq->n_classed);
    return (pleat__token_at){.level = PLEAT_LEVEL_LOW,
                             .is_in_block = true,
                             .slot = (position - sinks) % tokens,
                             .block = (position - sinks) / tokens};
}

static void list(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint32_t first, uint32_t n_tokens,
                 pleat_cache_token *out) {
    (void)lane;
    for (uint32_t i = 0; i < n_tokens; i++)
        out[i] = (pleat_cache_token){.level = is_in_block(c, seq, first + i) ? PLEAT_LEVEL_LOW : PLEAT_LEVEL_HIGH};
}

static uint64_t check_bytes(const pleat_cache *c) { return pleat__block_copy_bytes(format_of(c)); }

static bool is_valid(const pleat_cache *c, const pleat__sequence *seq, uint32_t lane, uint8_t *copy) {
    const pleat__lane l = pleat__table_lane(&seq->table, lane);
    return pleat__lane_live_high(&l) + seq->n_classed == seq->n_tokens && is_intact(c, seq, lane, copy);
}

const pleat__keep pleat__keep_blocks = {
    .kind = PLEAT_LANES_BLOCKS,
    .traits = {.shares_late = 1},
    .has_equal_lanes = true,
    .span_slack = 2 * PLEAT__TILE,
    .derive = derive,
    .plain_tokens = plain_tokens,
    .choice = choice,
    .check = check,
    .carve = carve,
    .init = init,
    .carve_seq = carve_seq,
    .reserve = reserve,
    .reserved_bytes = reserved_bytes,
    .promised_bytes = promised_bytes,
    .end_bytes = end_bytes,
    .lane_slots = pleat__plain_lane_slots,
    .lane_pages = pleat__plain_lane_pages,
    .forecast = forecast,
    .forecast_step = forecast_step,
    .sample_high = sample_high,
    .plan = plan,
    .first_written = first_written,
    .written = written,
    .end_units = end_units,
    .end_unit = end_unit,
    .cancel = cancel,
    .low_run = low_run,
    .carve_loader = carve_loader,
    .left = left,
    .fork = share,
    .image_bytes = image_bytes,
    .image_key = image_key,
    .write_image = write_image,
    .read_image = read_image,
    .lane_is_sound = lane_is_sound,
    .is_intact = is_intact,
    .count_low = count_low,
    .find = find,
    .list = list,
    .is_valid = is_valid,
    .check_bytes = check_bytes,
};
