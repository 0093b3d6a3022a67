/* SPDX-License-Identifier: MIT
 *
 * backend_simulated.c: prices and counters as serving's backend: traffic without a model.
 *
 * All lanes of a simulated sequence are alike, so their pages come and go as columns: n_lanes pages, one of each lane.
 * A sequence is a row of column ids, columns have reference counts, and a part-filled one that others hold too is
 * copied before it is written, as in the cache:
 *
 *     row of a   | 0  1  2  5          column 2 of b is part-filled: refs(2) = 2 until one of them goes on
 *     row of b   | 0  1  2
 *
 *     (1) a row has ceil(ceil(n_tokens * fraction) / page_tokens) columns
 *     (2) refs[id] is the number of rows that name the column; the others stand in the stack of free ones
 *
 * Steps and swaps wind the clock on by their prices, up to CLOCK_MOST_NS.  Tokens are never looked at.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/backend.h"
#include "sched/cost.h"

#define PRICE_MOST_NS 1e12           /* of a step, a token or a byte: a quarter of an hour */
#define CLOCK_MOST_NS 0x1p63         /* 292 years: later than this it never is */
#define POOL_MOST_BYTES (1ull << 62) /* and no sum of pages' bytes passes 64 bits */

typedef struct sim_seq {
    uint32_t *row; /* [row_cap]; NULL: not open */
    uint32_t row_cap;
    uint32_t n_cols;
    uint32_t n_tokens, max_tokens;
    bool is_part_filled; /* its last column */
} sim_seq;

typedef struct simulated {
    pleat_allocator al;
    pleat_simulation opt;
    pleat__serving_cost cost; /* its prices */
    pleat__backend_shape shape;
    sim_seq *seqs;      /* [max_seqs]; a handle is an index + 1 */
    uint32_t *free_seq; /* [max_seqs], a stack */
    uint32_t n_free_seqs;
    uint32_t *refs;     /* [n_cols] */
    uint32_t *free_col; /* [n_cols], a stack */
    uint32_t n_cols, n_free_cols;
    double now_ns;
    void *block;
    uint64_t block_bytes;
} simulated;

/* What an image holds: places, not bytes. */
typedef struct sim_image {
    uint32_t n_tokens, max_tokens, n_shared;
} sim_image;

static sim_seq *seq_of(simulated *s, pleat_seq seq) {
    assert(seq.v >= 1 && seq.v <= s->opt.max_seqs && s->seqs[seq.v - 1].row);
    return &s->seqs[seq.v - 1];
}

/* ---- columns --------------------------------------------------------------------------------------- */

static uint32_t take_col(simulated *s) {
    const uint32_t id = s->free_col[--s->n_free_cols];
    s->refs[id] = 1;
    return id;
}

static void drop_col(simulated *s, uint32_t id) {
    if (--s->refs[id] == 0) s->free_col[s->n_free_cols++] = id;
}

static uint32_t cols_for(const simulated *s, uint32_t n_tokens) {
    return (uint32_t)pleat__backend_lane_pages(&s->shape, n_tokens);
}

/* Is the last column going to be written while others hold it? */
static bool copies_last(const simulated *s, const sim_seq *q) {
    return q->is_part_filled && s->refs[q->row[q->n_cols - 1]] > 1;
}

static uint32_t cols_needed(const simulated *s, const sim_seq *q, uint32_t n_new) {
    return cols_for(s, q->n_tokens + n_new) - q->n_cols + copies_last(s, q);
}

static uint32_t n_common(const sim_seq *a, const sim_seq *b) {
    const uint32_t n = pleat__min_u32(a->n_cols, b->n_cols);
    uint32_t i = 0;
    while (i < n && a->row[i] == b->row[i]) i++;
    return i;
}

/* ---- sequences ------------------------------------------------------------------------------------- */

static pleat_status sim_open(void *ctx, uint32_t max_tokens, pleat_seq *out) {
    simulated *s = ctx;
    if (max_tokens == 0 || max_tokens > s->opt.max_tokens) return PLEAT_E_ARG;
    if (s->n_free_seqs == 0) return PLEAT_E_LIMIT;
    const uint32_t row_cap = cols_for(s, max_tokens);
    uint32_t *row = pleat__alloc(&s->al, row_cap, sizeof *row);
    if (!row) return PLEAT_E_MEMORY;
    const uint32_t i = s->free_seq[--s->n_free_seqs];
    s->seqs[i] = (sim_seq){.row = row, .row_cap = row_cap, .max_tokens = max_tokens};
    out->v = i + 1;
    return PLEAT_OK;
}

static void share_row(simulated *s, const sim_seq *from, uint32_t n_cols, sim_seq *to) {
    memcpy(to->row, from->row, n_cols * sizeof *to->row);
    for (uint32_t i = 0; i < n_cols; i++) s->refs[to->row[i]]++;
    to->n_cols = n_cols;
}

static pleat_status sim_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    simulated *s = ctx;
    sim_seq *from = seq_of(s, seq);
    if (max_tokens < from->n_tokens) return PLEAT_E_ARG;
    PLEAT_TRY(sim_open(s, max_tokens, out));
    sim_seq *to = seq_of(s, *out);
    share_row(s, from, from->n_cols, to);
    to->n_tokens = from->n_tokens;
    to->is_part_filled = from->is_part_filled;
    return PLEAT_OK;
}

static void sim_close(void *ctx, pleat_seq seq) {
    simulated *s = ctx;
    sim_seq *q = seq_of(s, seq);
    for (uint32_t i = 0; i < q->n_cols; i++) drop_col(s, q->row[i]);
    pleat__free(&s->al, q->row, q->row_cap, sizeof *q->row);
    *q = (sim_seq){0};
    s->free_seq[s->n_free_seqs++] = seq.v - 1;
}

/* ---- a step ---------------------------------------------------------------------------------------- */

static void set_tokens(const simulated *s, sim_seq *q, uint32_t n_tokens) {
    q->n_tokens = n_tokens;
    q->is_part_filled = pleat__backend_slots(&s->shape, n_tokens) % s->opt.page_tokens != 0;
}

static void grow(simulated *s, sim_seq *q, uint32_t n_new) {
    if (copies_last(s, q)) {
        s->refs[q->row[q->n_cols - 1]]--;
        q->row[q->n_cols - 1] = take_col(s);
    }
    const uint32_t n_cols = cols_for(s, q->n_tokens + n_new);
    while (q->n_cols < n_cols) q->row[q->n_cols++] = take_col(s);
    set_tokens(s, q, q->n_tokens + n_new);
}

static void wind_on(simulated *s, double ns) { s->now_ns = fmin(s->now_ns + ns, CLOCK_MOST_NS); }

/* What items read: shared columns once for each, so that a sum may be far more than the pool. */
static uint64_t bytes_read(const simulated *s, uint64_t n_cols) {
    const uint64_t col_bytes = s->opt.n_lanes * s->opt.page_bytes;
    return n_cols > POOL_MOST_BYTES / col_bytes ? POOL_MOST_BYTES : n_cols * col_bytes;
}

static pleat_status sim_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_error *err) {
    simulated *s = ctx;
    uint64_t n_cols = 0, n_read_cols = 0;
    uint32_t n_prompt = 0, n_generated = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        sim_seq *q = seq_of(s, items[i].seq);
        PLEAT_FAIL_IF(items[i].n_tokens > q->max_tokens - q->n_tokens, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                      "step: item %u would pass the %u tokens that it was opened for", i, q->max_tokens);
        n_cols += cols_needed(s, q, items[i].n_tokens);
        n_prompt += items[i].n_tokens > 1 ? items[i].n_tokens : 0;
        n_generated += items[i].n_tokens == 1;
        n_read_cols += items[i].n_tokens == 1 ? q->n_cols : 0;
    }
    if (n_cols > s->n_free_cols) return PLEAT_AGAIN;
    for (uint32_t i = 0; i < n_items; i++) grow(s, seq_of(s, items[i].seq), items[i].n_tokens);
    wind_on(s, pleat__cost_step_ns(&s->cost, n_prompt, n_generated, bytes_read(s, n_read_cols)));
    return PLEAT_OK;
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static uint32_t sim_budget(void *ctx, uint32_t n_prompt) { return (void)ctx, (void)n_prompt, UINT32_MAX; }

static uint64_t sim_pages_needed(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    simulated *s = ctx;
    (void)flags;
    return (uint64_t)cols_needed(s, seq_of(s, seq), n_tokens) * s->opt.n_lanes;
}

static uint64_t sim_pages_of(void *ctx, pleat_seq seq) {
    simulated *s = ctx;
    return (uint64_t)seq_of(s, seq)->n_cols * s->opt.n_lanes;
}

static uint64_t sim_pages_shared(void *ctx, pleat_seq a, pleat_seq b) {
    simulated *s = ctx;
    return (uint64_t)n_common(seq_of(s, a), seq_of(s, b)) * s->opt.n_lanes;
}

static uint64_t sim_pages_used(void *ctx) {
    const simulated *s = ctx;
    return (uint64_t)(s->n_cols - s->n_free_cols) * s->opt.n_lanes;
}

static void sim_pages_by_side(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low) {
    *high = sim_pages_of(ctx, seq);
    *low = 0;
}

static void sim_slots_of(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    *live = pleat__backend_slots(&s->shape, q->n_tokens) * s->opt.n_lanes;
    *held = (uint64_t)q->n_cols * s->opt.page_tokens * s->opt.n_lanes;
}

/* ---- images ---------------------------------------------------------------------------------------- */

/* Columns that the base keeps for the sequence: full ones that both hold. */
static uint32_t left_out(simulated *s, const sim_seq *q, pleat_seq base) {
    if (!base.v) return 0;
    const sim_seq *b = seq_of(s, base);
    const uint32_t n_full = (uint32_t)(pleat__backend_slots(&s->shape, b->n_tokens) / s->opt.page_tokens);
    return pleat__min_u32(n_common(q, b), n_full);
}

static uint64_t bytes_of(const simulated *s, uint32_t n_cols) {
    return (uint64_t)n_cols * s->opt.n_lanes * s->opt.page_bytes;
}

static uint64_t sim_image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    return bytes_of(s, q->n_cols - left_out(s, q, base));
}

static void swap(simulated *s, uint64_t n_bytes) { wind_on(s, (double)n_bytes / s->opt.swap_bytes_per_s * 1e9); }

static pleat_status sim_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    sim_image *image = pleat__alloc(&s->al, 1, sizeof *image);
    if (!image) return PLEAT_E_MEMORY;
    *image = (sim_image){.n_tokens = q->n_tokens, .max_tokens = q->max_tokens, .n_shared = left_out(s, q, base)};
    const uint32_t n_cols = q->n_cols - image->n_shared;
    *out = (pleat__image){.data = image,
                          .data_bytes = sizeof *image,
                          .n_bytes = bytes_of(s, n_cols),
                          .n_pages = (uint64_t)n_cols * s->opt.n_lanes};
    swap(s, out->n_bytes);
    return PLEAT_OK;
}

static pleat_status sim_restore(void *ctx, const pleat__image *in, pleat_seq base, pleat_seq *out) {
    simulated *s = ctx;
    const sim_image *image = in->data;
    const uint32_t n_cols = cols_for(s, image->n_tokens);
    if (n_cols - image->n_shared > s->n_free_cols) return PLEAT_AGAIN;
    PLEAT_TRY(sim_open(s, image->max_tokens, out));
    sim_seq *q = seq_of(s, *out);
    if (image->n_shared > 0) share_row(s, seq_of(s, base), image->n_shared, q);
    while (q->n_cols < n_cols) q->row[q->n_cols++] = take_col(s);
    set_tokens(s, q, image->n_tokens);
    swap(s, in->n_bytes);
    return PLEAT_OK;
}

static void sim_drop(void *ctx, pleat__image *image) {
    pleat__free(&((simulated *)ctx)->al, image->data, 1, image->data_bytes);
    *image = (pleat__image){0};
}

static pleat_status sim_compress(void *ctx, pleat_seq seq, float ah, float al) {
    (void)ctx, (void)seq, (void)ah, (void)al;
    return PLEAT_E_UNSUPPORTED;
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static uint64_t sim_clock_ns(void *ctx) { return (uint64_t)((simulated *)ctx)->now_ns; }
static void sim_advance(void *ctx, uint64_t ns) { wind_on(ctx, (double)ns); }
static void sim_work(void *ctx, pleat__backend_work *out) { (void)ctx, *out = (pleat__backend_work){0}; }

static bool sim_is_valid(void *ctx) {
    const simulated *s = ctx;
    uint64_t n_refs = 0, n_named = 0, n_free = 0, n_open = 0;
    for (uint32_t i = 0; i < s->n_cols; i++) {
        n_refs += s->refs[i];
        n_free += s->refs[i] == 0;
    }
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) {
        const sim_seq *q = &s->seqs[i];
        if (!q->row) continue;
        if (q->n_cols != cols_for(s, q->n_tokens) || q->n_cols > q->row_cap) return false;
        for (uint32_t j = 0; j < q->n_cols; j++)
            if (s->refs[q->row[j]] == 0) return false;
        n_named += q->n_cols;
        n_open++;
    }
    return n_refs == n_named && n_free == s->n_free_cols && n_open + s->n_free_seqs == s->opt.max_seqs;
}

static void sim_destroy(void *ctx) {
    simulated *s = ctx;
    const pleat_allocator al = s->al;
    for (uint32_t i = 0; s->seqs && i < s->opt.max_seqs; i++)
        if (s->seqs[i].row) pleat__free(&al, s->seqs[i].row, s->seqs[i].row_cap, sizeof *s->seqs[i].row);
    pleat__free(&al, s->block, 1, s->block_bytes);
    pleat__free(&al, s, 1, sizeof *s);
}

static bool is_price(double x) { return x >= 0 && x <= PRICE_MOST_NS; }

static pleat_status check_simulation(const pleat_simulation *o, pleat_error *err) {
#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "simulation: " __VA_ARGS__)
    REQUIRE(o && o->size_bytes == sizeof *o, "no options, or of another size");
    REQUIRE(o->n_lanes >= 1 && o->page_tokens >= 1 && o->page_bytes >= 1, "no lanes, or empty pages");
    REQUIRE(o->n_pages >= o->n_lanes && o->n_pages <= UINT32_MAX, "%llu pages are not from one a lane to 2^32 - 1",
            (unsigned long long)o->n_pages);
    REQUIRE(o->page_tokens <= 1u << 24 && o->page_bytes <= POOL_MOST_BYTES / o->n_pages,
            "pages of more than 2^24 tokens, or more than 2^62 bytes of them");
    REQUIRE(o->fraction > 0 && o->fraction <= 1, "fraction %g is not above 0 and up to 1", o->fraction);
    REQUIRE(o->max_items >= 1 && o->max_items <= o->max_seqs && o->max_seqs <= 1u << 24,
            "max_items %u is not from 1 to max_seqs %u", o->max_items, o->max_seqs);
    REQUIRE(o->max_tokens >= 1 && o->max_tokens <= 1u << 24 && o->chunk_tokens >= 1 && o->step_tokens >= 1,
            "max_tokens, chunk_tokens and step_tokens must be at least 1");
    REQUIRE(is_price(o->fixed_ns) && is_price(o->prompt_ns) && is_price(o->token_ns) && is_price(o->byte_ns),
            "a price is not from 0 to %g ns", PRICE_MOST_NS);
    REQUIRE(o->fixed_ns + o->prompt_ns + o->token_ns + o->byte_ns > 0, "all prices are 0: time would stand still");
    REQUIRE(o->swap_bytes_per_s > 0 && isfinite(o->swap_bytes_per_s), "swap_bytes_per_s is not above 0");
#undef REQUIRE
    return PLEAT_OK;
}

static void carve(simulated *s, pleat__arena *arena) {
    s->seqs = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->seqs);
    s->free_seq = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->free_seq);
    s->refs = pleat__arena_take(arena, s->n_cols, sizeof *s->refs);
    s->free_col = pleat__arena_take(arena, s->n_cols, sizeof *s->free_col);
}

static pleat_status take_memory(simulated *s) {
    pleat__arena arena = {0};
    carve(s, &arena);
    s->block_bytes = arena.used_bytes;
    if (arena.overflow || !(s->block = pleat__alloc_zero(&s->al, 1, s->block_bytes))) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = s->block, .cap_bytes = s->block_bytes};
    carve(s, &arena);
    /* Stacks: the lowest first. */
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) s->free_seq[i] = s->opt.max_seqs - 1 - i;
    for (uint32_t i = 0; i < s->n_cols; i++) s->free_col[i] = s->n_cols - 1 - i;
    s->n_free_seqs = s->opt.max_seqs;
    s->n_free_cols = s->n_cols;
    return PLEAT_OK;
}

static pleat__backend_shape shape_of(const pleat_simulation *o) {
    return (pleat__backend_shape){
        .n_pages = o->n_pages - o->n_pages % o->n_lanes, /* whole columns */
        .page_bytes = o->page_bytes,
        .n_lanes = o->n_lanes,
        .page_tokens = o->page_tokens,
        .fraction = o->fraction,
        .max_items = o->max_items,
        .max_seqs = o->max_seqs,
        .max_tokens = o->max_tokens,
        .chunk_tokens = pleat__min_u32(o->chunk_tokens, o->max_tokens),
        .step_tokens = o->step_tokens,
        .key = "simulated",
    };
}

pleat_status pleat__backend_simulated(const pleat_simulation *simulation, const pleat_allocator *allocator,
                                      pleat__backend *out, pleat_error *err) {
    PLEAT_TRY(check_simulation(simulation, err));
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    simulated *s = pleat__alloc_zero(&al, 1, sizeof *s);
    PLEAT_FAIL_IF(!s, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "simulation: out of memory");
    s->al = al;
    s->opt = *simulation;
    s->cost = (pleat__serving_cost){.fixed_ns = simulation->fixed_ns,
                                    .prompt_ns = simulation->prompt_ns,
                                    .token_ns = simulation->token_ns,
                                    .byte_ns = simulation->byte_ns};
    s->shape = shape_of(simulation);
    s->n_cols = (uint32_t)(s->shape.n_pages / simulation->n_lanes);
    if (take_memory(s) != PLEAT_OK) {
        sim_destroy(s);
        return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "simulation: out of memory");
    }
    *out = (pleat__backend){
        .ctx = s,
        .shape = s->shape,
        .open = sim_open,
        .fork = sim_fork,
        .close = sim_close,
        .run = sim_run,
        .budget = sim_budget,
        .pages_needed = sim_pages_needed,
        .pages_of = sim_pages_of,
        .pages_shared = sim_pages_shared,
        .pages_used = sim_pages_used,
        .pages_by_side = sim_pages_by_side,
        .slots_of = sim_slots_of,
        .image_bytes = sim_image_bytes,
        .save = sim_save,
        .restore = sim_restore,
        .drop = sim_drop,
        .compress = sim_compress,
        .clock_ns = sim_clock_ns,
        .advance = sim_advance,
        .work = sim_work,
        .is_valid = sim_is_valid,
        .destroy = sim_destroy,
    };
    return PLEAT_OK;
}
