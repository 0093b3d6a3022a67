/* SPDX-License-Identifier: MIT
 *
 * device_create.c: from options to a device cache: what they may be, the sizes that follow, the memory that these take.
 *
 *     pages        [n_pages][page_bytes], never cleared: storing into a tile's first slot clears the tile
 *     tables       page/cuda's pool and rows; lengths, new tokens, the batch, the step's state
 *     workspace    attention's, logits of one layer where scores are kept, order and logarithms of one layer's prompt
 *
 * Layouts and page sizes are those of the CPU's cache for the same options (cache/layouts.h), but that pages are apart
 * by a multiple of 128 bytes, and a low one has 4096 slots at most.
 */
#include <math.h>
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "cache/layouts.h"
#include "codec/block.h"
#include "core/error.h"
#include "page/table.h"
#include "policy/evict.h"
#include "quant/layout.h"
#include "spec/spec.h"

#define MAX_SEQS 65535u
#define MAX_LAYERS 1024u
#define MAX_KV_HEADS 1024u
#define MAX_GROUP PLEAT__WIDE_GROUP
#define MAX_HEAD_DIM PLEAT__WIDE_HEAD_DIM
#define NARROW_GROUP 8u         /* what decode.h's kernels take */
#define NARROW_ROTATED_GROUP 4u /* of rotated formats */
#define MAX_TOKENS (1u << 24)
#define MAX_PAGE_TOKENS 4096u /* of either side: step.cu's side_view divides by fewer quads than 2^10 + 1 */
#define MAX_SCALE 65536.0f
#define MIN_CAP 0x1p-16f
#define MAX_ROWS (1u << 28)
/* Lanes that fill a GPU with a warp each.  With fewer, a warp's loads are too few to hide their latency. */
#define MANY_LANES 2048u
#define LOGITS_ALIGN 32u /* floats of a line of the level-2 cache */
#define PAGE_ALIGN 128u

void pleat_device_cache_options_default(pleat_device_cache_options *opt) {
    if (!opt) return;
    *opt = (pleat_device_cache_options){.size_bytes = sizeof *opt, .spec = {.high = {16, 16}}, .max_seqs = 1};
}

/* ---- options ------------------------------------------------------------------------------------- */

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, __VA_ARGS__)

/* Lanes hold rotated vectors if one of their formats is rotated. */
static bool is_rotated(const pleat_spec *spec) { return spec->high.rotated || spec->low.rotated; }

/* By what policies with a budget rank; NONE: those that are not there, too. */
static pleat__device_ranks ranks_of(const pleat_spec *spec) {
    if (spec->merge || spec->crush || spec->novel) return PLEAT__DEVICE_RANKS_NONE;
    switch (spec->policy) {
        case PLEAT_POLICY_RANDOM: return PLEAT__DEVICE_RANKS_HASH;
        case PLEAT_POLICY_RECENT:
        case PLEAT_POLICY_STREAMING: return PLEAT__DEVICE_RANKS_POSITION;
        case PLEAT_POLICY_H2O:
        case PLEAT_POLICY_SNAPKV:
        case PLEAT_POLICY_PYRAMIDKV:
        case PLEAT_POLICY_ADAKV:
        case PLEAT_POLICY_NOVEL: return PLEAT__DEVICE_RANKS_SCORE;
        default: return PLEAT__DEVICE_RANKS_NONE;
    }
}

static pleat__device_counting counting_of(const pleat_spec *spec) {
    switch (pleat__counted_of(spec)) {
        case PLEAT__SCORING_MAX: return PLEAT__DEVICE_COUNTS_MAX;
        case PLEAT__SCORING_SUM: return PLEAT__DEVICE_COUNTS_SUM;
        case PLEAT__SCORING_WINDOW: return PLEAT__DEVICE_COUNTS_WINDOW;
        default: return PLEAT__DEVICE_COUNTS_NONE;
    }
}

int pleat_device_cache_wants_received(const pleat_spec *spec) {
    return spec && counting_of(spec) != PLEAT__DEVICE_COUNTS_NONE;
}

static pleat_status check_spec(const pleat_device_cache_options *opt, pleat_error *err) {
    const pleat_spec *spec = &opt->spec;
    PLEAT_TRY(pleat__spec_check(spec, err));
    const bool is_known = spec->policy == PLEAT_POLICY_NONE || spec->policy == PLEAT_POLICY_LEANKV ||
                          (ranks_of(spec) && !is_rotated(spec));
    const bool is_coded = spec->compressor != PLEAT_COMPRESSOR_NONE && !pleat__device_spec_has_blocks(spec);
    PLEAT_FAIL_IF(
        !is_known || is_coded || spec->high.k_bits > 16, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
        "device cache: on a GPU there are f16, k8v8 to k2v2, h4v4 to h2v2, leankv and kvcomp+pack, and streaming, "
        "recent, random, h2o, snapkv, pyramidkv, adakv and novel of plain formats, without +merge, +novel and +kvcrush "
        "(docs/GPU.md says why)");
    PLEAT_FAIL_IF(ranks_of(spec) && spec->budget.unit == PLEAT_BUDGET_BYTES, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: on a GPU a budget is of tokens or a share, not of bytes");
    const bool alike = spec->high.k_bits == spec->low.k_bits && spec->high.v_bits == spec->low.v_bits &&
                       spec->high.rotated == spec->low.rotated;
    PLEAT_FAIL_IF(pleat__policy_has_low_side(spec) && alike, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                  "device cache: leankv of one format is on a GPU only with ah = al, which keeps the same tokens");
    REQUIRE(spec->profile[0] == 0, "device cache: the spec's profile '%s' has not been read", spec->profile);
    REQUIRE(spec->window <= opt->max_tokens,
            "device cache: the spec's window of %u tokens is longer than the longest sequence, %u tokens", spec->window,
            opt->max_tokens);
    return PLEAT_OK;
}

static bool has_windows(const pleat_device_cache_options *opt) {
    bool has = false;
    for (uint32_t i = 0; opt->windows && i < opt->n_layers; i++) has |= opt->windows[i] > 0;
    return has;
}

static uint32_t narrow_group(const pleat_spec *spec) { return is_rotated(spec) ? NARROW_ROTATED_GROUP : NARROW_GROUP; }

/* What attention's fast kernels, and so leankv, do not take. */
static bool is_wide(const pleat_device_cache_options *opt) {
    return (opt->head_dim != 64 && opt->head_dim != 128) ||
           opt->n_q_heads / opt->n_kv_heads > narrow_group(&opt->spec) || opt->logit_cap > 0 || has_windows(opt);
}

static pleat_status check_options(const pleat_device_cache_options *opt, pleat_error *err) {
    REQUIRE(opt->size_bytes == sizeof *opt, "device cache: options are not from pleat_device_cache_options_default()");
    REQUIRE(opt->n_layers >= 1 && opt->n_layers <= MAX_LAYERS, "device cache: n_layers %u is outside 1..%u",
            opt->n_layers, MAX_LAYERS);
    REQUIRE(opt->n_kv_heads >= 1 && opt->n_kv_heads <= MAX_KV_HEADS, "device cache: n_kv_heads %u is outside 1..%u",
            opt->n_kv_heads, MAX_KV_HEADS);
    REQUIRE(opt->n_q_heads >= 1 && opt->n_q_heads % opt->n_kv_heads == 0 &&
                opt->n_q_heads / opt->n_kv_heads <= MAX_GROUP,
            "device cache: n_q_heads %u is not 1..%u times n_kv_heads %u", opt->n_q_heads, MAX_GROUP, opt->n_kv_heads);
    REQUIRE(opt->head_dim >= 16 && opt->head_dim <= MAX_HEAD_DIM && opt->head_dim % 16 == 0,
            "device cache: head_dim %u is no multiple of 16 up to %u", opt->head_dim, MAX_HEAD_DIM);
    REQUIRE(opt->logit_cap == 0 || (opt->logit_cap >= MIN_CAP && opt->logit_cap <= MAX_SCALE),
            "device cache: logit_cap is neither 0 nor in 2^-16..65536");
    REQUIRE(opt->schedule == PLEAT_DEVICE_EQUAL_SHARES || opt->schedule == PLEAT_DEVICE_PER_LANE ||
                opt->schedule == PLEAT_DEVICE_FIXED_SPLITS,
            "device cache: no such schedule");
    REQUIRE(opt->softmax_scale >= 0 && opt->softmax_scale <= MAX_SCALE,
            "device cache: softmax_scale is outside 0..65536");
    REQUIRE(opt->page_tokens <= MAX_PAGE_TOKENS && opt->page_tokens % PLEAT__TILE == 0,
            "device cache: page_tokens %u is neither 0 nor a multiple of 16 up to %u", opt->page_tokens,
            MAX_PAGE_TOKENS);
    REQUIRE(opt->max_seqs >= 1 && opt->max_seqs <= MAX_SEQS, "device cache: max_seqs %u is outside 1..%u",
            opt->max_seqs, MAX_SEQS);
    REQUIRE(opt->max_tokens >= 1 && opt->max_tokens <= MAX_TOKENS, "device cache: max_tokens %u is outside 1..%u",
            opt->max_tokens, MAX_TOKENS);
    REQUIRE((uint64_t)opt->max_seqs * opt->n_layers * opt->n_kv_heads <= MAX_ROWS,
            "device cache: max_seqs %u of %u layers with %u KV heads are more than %u lanes", opt->max_seqs,
            opt->n_layers, opt->n_kv_heads, MAX_ROWS);
    PLEAT_FAIL_IF(
        is_wide(opt) && opt->spec.policy != PLEAT_POLICY_NONE, err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
        "device cache: on a GPU policies are for heads of 64 and 128, groups up to %u, and neither windows nor "
        "bounded logits",
        narrow_group(&opt->spec));
    PLEAT_TRY(pleat__device_compress_check(&opt->spec, opt->head_dim, is_wide(opt), err));
    PLEAT_TRY(check_spec(opt, err));
    return pleat__device_novelty_check(opt, err);
}

#undef REQUIRE

/* ---- pages --------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes, uint64_t align) { return (bytes + align - 1) / align * align; }

/* Lay out both sides' pages of `tokens` high tokens. */
static pleat_status lay_out(pleat_device_cache *c, const pleat__layouts_of *of, uint32_t tokens) {
    pleat__layouts l;
    PLEAT_TRY(pleat__layouts_init(&l, of, tokens));
    c->lanes.page_bytes = round_up(l.page_bytes, PAGE_ALIGN);
    c->image_form.page_bytes = l.page_bytes;
    for (int side = 0; side < 2; side++) c->lanes.layouts[side] = l.side[side];
    return PLEAT_OK;
}

static pleat_status derive_pages(pleat_device_cache *c, pleat_error *err) {
    uint32_t tokens = c->opt.page_tokens;
    const pleat__layouts_of of = {&c->opt.spec, c->opt.head_dim, c->n_group, c->two_sided, MAX_PAGE_TOKENS};
    const bool is_long = c->opt.max_tokens >= PLEAT__LONG_PAGE_FROM;
    if (tokens == 0 && c->two_sided) tokens = pleat__layouts_choose(&of);
    if (tokens == 0 && c->lanes.policy.has_blocks && !is_long) tokens = PLEAT__TILE; /* as cache/keep/blocks.c */
    if (tokens == 0) tokens = is_long ? PLEAT__LONG_PAGE_TOKENS : PLEAT__DEFAULT_PAGE_TOKENS;
    PLEAT_FAIL_IF(lay_out(c, &of, tokens) != PLEAT_OK, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device cache: no page layout for these formats, head_dim %u and %u tokens a page", c->opt.head_dim,
                  tokens);
    c->opt.page_tokens = tokens;
    c->image_form.n_lanes = c->rows_per_seq;
    c->image_form.kind = pleat__image_kind(&c->opt.spec, c->opt.head_dim, tokens, pleat__device_novelty_image_key(c));
    const uint64_t lane_pages = pleat__div_up_u32(c->opt.max_tokens, tokens) + (c->two_sided ? 1u : 0u);
    uint64_t n_pages = lane_pages * c->rows_per_seq * c->opt.max_seqs;
    if (c->opt.pool_bytes) n_pages = c->opt.pool_bytes / c->lanes.page_bytes;
    PLEAT_FAIL_IF(n_pages < 1 || n_pages > UINT32_MAX / 2, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device cache: %llu pages of %llu bytes: allowed are 1 to %u", (unsigned long long)n_pages,
                  (unsigned long long)c->lanes.page_bytes, UINT32_MAX / 2);
    c->n_pages = (uint32_t)n_pages;
    return PLEAT_OK;
}

_Static_assert(PLEAT__DEVICE_LEAVERS_CAP == PLEAT__LEAVERS_CAP, "the kernels cannot see policy.h");

/* Everything that follows from the options without memory. */
static pleat_status derive(pleat_device_cache *c, pleat_error *err) {
    const pleat_device_cache_options *opt = &c->opt;
    const pleat_spec *spec = &opt->spec;
    c->n_group = opt->n_q_heads / opt->n_kv_heads;
    c->rows_per_seq = opt->n_layers * opt->n_kv_heads;
    c->scale = opt->softmax_scale > 0 ? opt->softmax_scale : 1.0f / sqrtf((float)opt->head_dim);
    c->two_sided = pleat__policy_has_low_side(spec);
    c->is_wide = is_wide(opt);
    c->lanes.is_rotated = is_rotated(spec);
    c->stores_wide = c->is_wide || c->lanes.is_rotated;
    const pleat__evictor *evictor = pleat__evictor_of(spec->policy);
    c->lanes.policy = (pleat__device_policy){.is_leankv = spec->policy == PLEAT_POLICY_LEANKV,
                                             .has_blocks = pleat__device_spec_has_blocks(spec),
                                             .is_code = spec->step == PLEAT_STEP_CODE,
                                             .by_position = spec->threshold == PLEAT_THRESHOLD_POSITION,
                                             .every = pleat__counted_every(spec),
                                             .window = spec->window,
                                             .ah = spec->ah,
                                             .al = spec->al,
                                             .counts = counting_of(spec),
                                             .ranks = ranks_of(spec),
                                             .is_pooled = evictor && evictor->rank == pleat__rank_pooled,
                                             .in_generation = evictor && evictor->in_generation,
                                             .reclaim = spec->reclaim,
                                             .sinks = spec->sinks};
    c->lanes.n_layers = opt->n_layers;
    c->lanes.n_kv_heads = opt->n_kv_heads;
    c->lanes.head_dim = opt->head_dim;
    c->lanes.max_tokens = opt->max_tokens;
    c->lanes.many_lanes = MANY_LANES;
    c->keeps_ahead = !pleat__device_cache_has_policy(c); /* end trims where a policy acts */
    PLEAT_TRY(derive_pages(c, err));
    PLEAT_TRY(pleat__device_compress_derive(c, err));
    pleat__device_novelty_derive(c);
    /* A lane's slots are its tokens, a hole, and what fills up the high side's last tile. */
    if (pleat__device_cache_counts_steps(c))
        c->logits_stride = round_up(round_up(opt->max_tokens + 1, PLEAT__TILE) + PLEAT__TILE, LOGITS_ALIGN);
    return PLEAT_OK;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void carve_tables(pleat_device_cache *c, pleat__arena *arena) {
    const uint32_t sides = c->lanes.policy.has_blocks ? 2 : 1; /* of rows: cache/cuda/blocks.cu */
    const uint32_t row_len = sides * pleat__table_row_len(c->opt.max_tokens, c->lanes.layouts[0].tokens);
    const uint64_t n_rows = (uint64_t)c->opt.max_seqs * c->rows_per_seq;
    const uint32_t seqs_cap = c->opt.max_seqs + 1; /* the last stays empty: lanes.h, scored_seqs */
    void *pages =
        pleat__device_carve(arena, pleat__device_pages_bytes(c->n_pages, seqs_cap, c->rows_per_seq, row_len), 1);
    c->lanes.n_tokens = pleat__device_carve(arena, c->opt.max_seqs, sizeof *c->lanes.n_tokens);
    c->lanes.fresh = pleat__device_carve(arena, n_rows, sizeof *c->lanes.fresh);
    c->lanes.step = pleat__device_carve(arena, 1, sizeof *c->lanes.step);
    c->lanes.budgets = pleat__device_carve(arena, c->opt.max_seqs, sizeof *c->lanes.budgets);
    c->seq_idxs = pleat__device_carve(arena, c->opt.max_seqs, sizeof *c->seq_idxs);
    c->device_windows = c->windows ? pleat__device_carve(arena, c->opt.n_layers, sizeof *c->device_windows) : NULL;
    c->lanes.windows = c->device_windows;
    c->image.device_before = pleat__device_carve(arena, 3ull * c->rows_per_seq + 1, sizeof *c->image.device_before);
    c->lanes.scored_seqs = pleat__device_carve(arena, c->opt.max_seqs, sizeof *c->lanes.scored_seqs);
    pleat__device_compress_carve_tables(c, arena);
    pleat__device_novelty_carve_tables(c, arena);
    if (!pages) return;
    pleat__device_pages_carve(&c->lanes.pages, pages, c->n_pages, seqs_cap, c->rows_per_seq, row_len);
    for (int side = 0; side < 2; side++) c->lanes.pages.page_tokens[side] = c->lanes.layouts[side].tokens;
    if (c->lanes.policy.has_blocks)
        c->lanes.pages.page_tokens[1] = (uint32_t)(c->lanes.page_bytes / PLEAT__BLOCK_ALIGN);
    c->lanes.pages.seq_idxs = c->seq_idxs;
}

/* Keys and values of a chunk of any layer. */
static void carve_chunk(pleat_device_cache *c, pleat__arena *arena) {
    const uint64_t chunk_width = pleat__device_cache_has_policy(c) ? 0 : (uint64_t)c->opt.n_kv_heads * c->opt.head_dim;
    for (int i = 0; i < 2; i++)
        c->chunk_rows[i] =
            pleat__device_carve(arena, (c->opt.max_tokens + PLEAT__WIDE_KEYS) * chunk_width, sizeof *c->chunk_rows[i]);
}

static void carve_workspace(pleat_device_cache *c, pleat__arena *arena) {
    const uint64_t n_heads = (uint64_t)c->opt.max_seqs * c->opt.n_q_heads;
    carve_chunk(c, arena);
    pleat__device_compress_carve_workspace(c, arena);
    pleat__device_novelty_carve_workspace(c, arena);
    c->rotated_q =
        pleat__device_carve(arena, c->lanes.is_rotated ? n_heads * c->opt.head_dim : 0, sizeof *c->rotated_q);
    if (c->is_wide) {
        c->wide_workspace = pleat__device_carve(
            arena, pleat__device_wide_bytes(c->opt.max_seqs, c->opt.n_q_heads, c->opt.head_dim, c->opt.max_tokens), 1);
        return;
    }
    for (int i = 0; i < 3; i++) c->attn_workspaces[i] = pleat__device_carve(arena, c->plans[i].workspace_bytes, 1);
    c->logits = pleat__device_carve(arena, n_heads * c->logits_stride, sizeof *c->logits);
    c->lse2 = pleat__device_carve(arena, n_heads, sizeof *c->lse2);
    c->prompt_lse2 = pleat__device_carve(
        arena, (uint64_t)pleat__min_u32(c->opt.max_tokens, PLEAT_DEVICE_PROMPT_TOKENS) * c->opt.n_q_heads,
        sizeof *c->prompt_lse2);
    c->prompt_workspace = pleat__device_carve(arena, PLEAT__PROMPT_WORKSPACE_MAX, 1);
    const uint64_t n_ordered = (uint64_t)c->opt.n_kv_heads * c->opt.max_tokens;
    c->lanes.order = pleat__device_carve(arena, n_ordered, sizeof *c->lanes.order);
    if (c->lanes.policy.ranks == PLEAT__DEVICE_RANKS_SCORE)
        c->lanes.ranks = pleat__device_carve(arena, n_ordered, sizeof *c->lanes.ranks);
    if (c->opt.spec.policy == PLEAT_POLICY_ADAKV)
        c->lanes.shares = pleat__device_carve(arena, c->opt.n_kv_heads, sizeof *c->lanes.shares);
}

static pleat_status take_device(pleat_device_cache *c, void (*carve)(pleat_device_cache *, pleat__arena *), int which,
                                pleat_error *err) {
    pleat__arena arena = {0};
    carve(c, &arena);
    PLEAT_FAIL_IF(arena.overflow, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: sizes beyond 64 bits");
    PLEAT_TRY(pleat__device_alloc(arena.used_bytes, &c->memory[which], err));
    c->memory_bytes[which] = arena.used_bytes;
    arena = (pleat__arena){.base = c->memory[which], .cap_bytes = arena.used_bytes};
    carve(c, &arena);
    return PLEAT_OK;
}

/* What attention sees; its pointers only once there are tables. */
static void make_view(pleat_device_cache *c) {
    c->view =
        (pleat__device_view){.base = c->lanes.base,
                             .page_bytes = c->lanes.page_bytes,
                             .layouts = {c->lanes.layouts[0], c->lanes.layouts[1]},
                             .ids = c->lanes.pages.ids,
                             .n_slots = {c->lanes.pages.n_slots[0], c->two_sided ? c->lanes.pages.n_slots[1] : NULL},
                             .row_len = c->lanes.pages.row_len,
                             .n_layers = c->opt.n_layers,
                             .n_kv_heads = c->opt.n_kv_heads,
                             .n_group = c->n_group,
                             .seq_idxs = c->seq_idxs};
}

/* Memory of the host that the device writes and reads. */
static pleat_status take_host(pleat_device_cache *c, pleat_error *err) {
    pleat__device_image_work *w = &c->image;
    const uint64_t n_rows = c->rows_per_seq;
    void *told = NULL, *counts = NULL;
    PLEAT_TRY(pleat__device_alloc_host(sizeof *c->told + c->opt.max_seqs * sizeof *c->loads, &told, err));
    c->told = told;
    c->loads = (void *)(c->told + 1);
    PLEAT_TRY(pleat__device_alloc_host(PLEAT__HASH_SUMS * sizeof *w->host_state + (7 * n_rows + 1) * sizeof *w->before,
                                       &counts, err));
    w->host_state = counts;
    w->before = (uint32_t *)(void *)(w->host_state + PLEAT__HASH_SUMS);
    w->sealed = w->before + n_rows + 1;
    w->n_slots[0] = w->sealed + 2 * n_rows;
    w->n_slots[1] = w->n_slots[0] + n_rows;
    w->hole = w->n_slots[1] + n_rows;
    w->dead = w->hole + n_rows;
    PLEAT_TRY(pleat__device_stream_create(&w->copies, err));
    PLEAT_TRY(pleat__device_stream_create(&w->kernels, err));
    PLEAT_TRY(pleat__device_stream_create(&w->hashes, err));
    for (uint32_t i = 0; i < PLEAT__IMAGE_STAGES; i++) {
        PLEAT_TRY(pleat__device_event_create(&w->stages[i].there, err));
        PLEAT_TRY(pleat__device_event_create(&w->stages[i].copied, err));
        PLEAT_TRY(pleat__device_event_create(&w->stages[i].hashed, err));
    }
    return PLEAT_OK;
}

static pleat_status make_aside(pleat__device_aside *a, pleat_error *err) {
    PLEAT_TRY(pleat__device_event_create(&a->attended, err));
    PLEAT_TRY(pleat__device_event_create(&a->received, err));
    return pleat__device_stream_create(&a->stream, err);
}

static pleat_status take_memory(pleat_device_cache *c, pleat_error *err) {
    c->memory_bytes[0] = (uint64_t)c->n_pages * c->lanes.page_bytes;
    PLEAT_TRY(pleat__device_alloc(c->memory_bytes[0], &c->memory[0], err));
    c->lanes.base = c->memory[0];
    PLEAT_TRY(take_device(c, carve_tables, 1, err));
    make_view(c);
    if (!c->is_wide) {
        PLEAT_TRY(
            pleat__device_attn_plan_init(&c->plans[0], &c->view, c->opt.max_seqs, PLEAT__DEVICE_EQUAL_SHARES, err));
        PLEAT_TRY(pleat__device_attn_plan_init(&c->plans[1], &c->view, c->opt.max_seqs, PLEAT__DEVICE_PER_LANE, err));
        if (c->opt.schedule == PLEAT_DEVICE_FIXED_SPLITS)
            PLEAT_TRY(
                pleat__device_attn_plan_init(&c->plans[2], &c->view, c->opt.max_seqs, PLEAT__DEVICE_FIXED_SPLITS, err));
    }
    PLEAT_TRY(take_device(c, carve_workspace, 2, err));
    PLEAT_TRY(take_host(c, err));
    if (c->logits_stride > 0) PLEAT_TRY(make_aside(&c->aside, err));
    const pleat__device_stream stream = {NULL};
    PLEAT_TRY(pleat__device_fill(c->memory[1], 0, c->memory_bytes[1], stream, err));
    PLEAT_TRY(pleat__device_fill(c->memory[2], 0, c->memory_bytes[2], stream, err));
    if (c->windows)
        PLEAT_TRY(pleat__device_copy(c->device_windows, c->windows, c->opt.n_layers * sizeof *c->windows, stream, err));
    PLEAT_TRY(pleat__device_pages_init(&c->lanes.pages, c->n_pages, stream, err));
    for (uint32_t i = 0; i < c->opt.max_seqs; i++) c->budgets[i] = pleat__evict_budget(&c->opt.spec, 1, 0);
    PLEAT_TRY(pleat__device_copy(c->lanes.budgets, c->budgets, c->opt.max_seqs * sizeof *c->budgets, stream, err));
    return pleat__device_wait(stream, err);
}

/* ---- create and destroy ---------------------------------------------------------------------------- */

/* The object and the host's arrays, in one block. */
static void carve_host(const pleat_device_cache_options *opt, pleat_device_cache **c, pleat__arena *arena) {
    pleat_device_cache *at = pleat__arena_take(arena, 1, sizeof *at), none;
    pleat_device_cache *to = at ? at : &none;
    to->seq_states = pleat__arena_take(arena, opt->max_seqs, 1);
    to->batch = pleat__arena_take(arena, opt->max_seqs, sizeof *to->batch);
    to->placed = pleat__arena_take(arena, opt->n_layers, 1);
    to->marks = pleat__arena_take(arena, opt->max_seqs, 1);
    to->budgets = pleat__arena_take(arena, opt->max_seqs, sizeof *to->budgets);
    to->n_each = pleat__arena_take(arena, opt->n_layers, sizeof *to->n_each);
    to->windows = has_windows(opt) ? pleat__arena_take(arena, opt->n_layers, sizeof *to->windows) : NULL;
    *c = at;
}

pleat_status pleat_device_cache_create(const pleat_device_cache_options *opt, pleat_device_cache **out,
                                       pleat_error *err) {
    PLEAT_FAIL_IF(!opt || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "device cache: no options, or no place for the cache");
    PLEAT_TRY(check_options(opt, err));
    PLEAT_TRY(pleat__device_use(opt->device, err));
    const pleat_allocator al = pleat__allocator_or_default(opt->allocator);
    pleat_device_cache *c;
    pleat__arena arena = {0};
    carve_host(opt, &c, &arena);
    const uint64_t bytes = arena.used_bytes;
    void *block = pleat__alloc_zero(&al, 1, bytes);
    PLEAT_FAIL_IF(!block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device cache: out of memory");
    arena = (pleat__arena){.base = block, .cap_bytes = bytes};
    carve_host(opt, &c, &arena);
    c->al = al;
    c->opt = *opt;
    if (c->windows) memcpy(c->windows, opt->windows, opt->n_layers * sizeof *c->windows);
    c->opt.windows = c->windows;
    c->block = block;
    c->block_bytes = bytes;
    pleat_status status = derive(c, err);
    const pleat__device_stream stream = {NULL};
    if (status == PLEAT_OK) status = take_memory(c, err);
    if (status == PLEAT_OK) status = pleat__device_novelty_init(c, opt, stream, err);
    c->opt.ropes = NULL; /* read by create alone */
    if (status != PLEAT_OK) {
        pleat_device_cache_destroy(&c);
        return status;
    }
    *out = c;
    return PLEAT_OK;
}

static void release_image_work(pleat__device_image_work *w) {
    pleat__device_free_host(w->host_state); /* and the counts behind it */
    pleat__device_free(w->stage);
    for (uint32_t i = 0; i < PLEAT__IMAGE_STAGES; i++) {
        pleat__device_event_destroy(&w->stages[i].there);
        pleat__device_event_destroy(&w->stages[i].copied);
        pleat__device_event_destroy(&w->stages[i].hashed);
    }
    pleat__device_stream_destroy(&w->copies);
    pleat__device_stream_destroy(&w->kernels);
    pleat__device_stream_destroy(&w->hashes);
}

void pleat_device_cache_destroy(pleat_device_cache **cache) {
    if (!cache || !*cache) return;
    pleat_device_cache *c = *cache;
    *cache = NULL;
    if (pleat__device_use(c->opt.device, NULL) == PLEAT_OK) { /* freeing waits for the device */
        for (int i = 0; i < 3; i++) pleat__device_free(c->memory[i]);
        pleat__device_free_host(c->told);
        release_image_work(&c->image);
        pleat__device_event_destroy(&c->aside.attended);
        pleat__device_event_destroy(&c->aside.received);
        pleat__device_stream_destroy(&c->aside.stream);
    }
    const pleat_allocator al = c->al;
    pleat__free(&al, c->image.seen, c->opt.max_tokens, 1);
    pleat__free(&al, c->block, 1, c->block_bytes);
}
