/* SPDX-License-Identifier: MIT
 *
 * backend_simulated.c: prices and counters as serving's backend: traffic without a model.
 *
 * What a sequence holds is a forecast's (pleat/forecast.h): of a cache's options, or of a fraction.  Pages that are full
 * and will not be written again stand in columns: as many pages as there are full lanes, or as there are in a group of them
 * where these differ.  The others are its tail:
 *
 *     row of a   | 0  1  5 | tail 3: 40 pages        refs(0) = refs(1) = 2: a and b share them
 *     row of b   | 0  1 |    tail 3                  refs of tail 3 = 2 until one of them goes on and takes its own
 *
 *     (1) pages of columns + pages of the tail = n_pages of the forecast, but for columns that stay beyond it
 *     (2) refs[id] is the number of rows that name the column; the others stand in the stack of free ones
 *     (3) n_used is the sum of the columns that are taken and of all tails
 *
 * Where tokens become blocks, a row has columns of payloads first.  Those of the tokens go, as many as are emptied; they
 * are copied first if others hold them, since payloads are written there; and so is the next one where sinks that fill no
 * page move there.  A fork takes the whole tail at its first step.
 *
 * Steps and swaps wind the clock on by their prices, up to MAX_CLOCK_NS.  Tokens are never looked at.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "sched/cost.h"
#include "serving/backend.h"

#define MAX_PRICE_NS 1e12           /* price of a step, a token or a byte: a quarter of an hour */
#define MAX_CLOCK_NS 0x1p63         /* 292 years: the clock stands still there */
#define MAX_POOL_BYTES (1ull << 62) /* so that no sum of pages' bytes passes 64 bits */

/* Pages that are not in columns. */
typedef struct sim_tail {
    uint64_t n_pages;
    uint32_t n_refs; /* 0: free */
} sim_tail;

typedef struct sim_seq {
    uint32_t *row; /* [row_cap]; NULL: not open */
    uint32_t row_cap;
    uint32_t n_cols, n_payload_cols; /* the latter are the first of the former */
    uint32_t n_left_cols;            /* columns of tokens that have been emptied; the row has those behind them */
    uint32_t tail;                   /* index; each open sequence has one */
    uint32_t max_tokens;
    pleat_forecast_seq held;
} sim_seq;

typedef struct simulated {
    pleat_allocator al;
    pleat_simulation opt;
    pleat_forecast forecast;
    pleat__serving_cost cost; /* prices of opt */
    pleat__backend_shape shape;
    sim_seq *seqs;      /* [max_seqs]; a handle is an index + 1 */
    uint32_t *free_seq; /* [max_seqs], a stack */
    uint32_t n_free_seqs;
    sim_tail *tails;     /* [max_seqs] */
    uint32_t *free_tail; /* [max_seqs], a stack */
    uint32_t n_free_tails;
    uint32_t col_pages; /* pages of a column */
    uint32_t *refs;     /* [n_cols] */
    uint32_t *free_col; /* [n_cols], a stack */
    uint32_t n_cols, n_free_cols;
    uint64_t n_used; /* pages */
    double now_ns;
    void *block;
    uint64_t block_bytes;
} simulated;

/* Columns that two sequences share. */
typedef struct sim_common {
    uint32_t n_payload, n_tokens; /* columns of payloads, and of tokens */
} sim_common;

/* What an image holds: counts, not bytes. */
typedef struct sim_image {
    pleat_forecast_seq held;
    uint32_t max_tokens, n_left_cols;
    sim_common shared; /* with the base */
} sim_image;

static sim_seq *seq_of(simulated *s, pleat_seq seq) {
    assert(seq.v >= 1 && seq.v <= s->opt.max_seqs && s->seqs[seq.v - 1].row);
    return &s->seqs[seq.v - 1];
}

/* ---- columns and tails ----------------------------------------------------------------------------- */

static uint32_t take_col(simulated *s) {
    const uint32_t id = s->free_col[--s->n_free_cols];
    s->refs[id] = 1;
    s->n_used += s->col_pages;
    return id;
}

static void drop_col(simulated *s, uint32_t id) {
    if (--s->refs[id] > 0) return;
    s->free_col[s->n_free_cols++] = id;
    s->n_used -= s->col_pages;
}

static uint32_t take_tail(simulated *s) {
    const uint32_t id = s->free_tail[--s->n_free_tails];
    s->tails[id] = (sim_tail){.n_refs = 1};
    return id;
}

static void drop_tail(simulated *s, uint32_t id) {
    if (--s->tails[id].n_refs > 0) return;
    s->n_used -= s->tails[id].n_pages;
    s->free_tail[s->n_free_tails++] = id;
}

static void fill_tail(simulated *s, uint32_t id, uint64_t n_pages) {
    s->n_used += n_pages - s->tails[id].n_pages;
    s->tails[id].n_pages = n_pages;
}

static uint64_t pages_in_cols(const simulated *s, uint64_t n_cols) { return n_cols * s->col_pages; }

static uint64_t pages_held(const simulated *s, const sim_seq *q) {
    return pages_in_cols(s, q->n_cols) + s->tails[q->tail].n_pages;
}

/* a is not behind b: it has emptied as many columns or more. */
static sim_common common_of(const sim_seq *a, const sim_seq *b) {
    const uint32_t n_payload = pleat__min_u32(a->n_payload_cols, b->n_payload_cols);
    const uint32_t skipped = a->n_left_cols - b->n_left_cols, n_a = a->n_cols - a->n_payload_cols;
    const uint32_t n_b = b->n_cols - b->n_payload_cols;
    const uint32_t *x = a->row + a->n_payload_cols, *y = b->row + b->n_payload_cols + skipped;
    sim_common c = {0};
    while (c.n_payload < n_payload && a->row[c.n_payload] == b->row[c.n_payload]) c.n_payload++;
    while (c.n_tokens < n_a && skipped + c.n_tokens < n_b && x[c.n_tokens] == y[c.n_tokens]) c.n_tokens++;
    return c;
}

static uint32_t n_common(const sim_seq *a, const sim_seq *b) {
    const sim_common c = a->n_left_cols < b->n_left_cols ? common_of(b, a) : common_of(a, b);
    return c.n_payload + c.n_tokens;
}

/* ---- sequences ------------------------------------------------------------------------------------- */

/* Columns that a sequence has at most: of full pages, on both sides. */
static uint32_t most_cols(const simulated *s, uint32_t max_tokens) {
    const uint32_t n = (max_tokens / s->opt.page_tokens + 1) * (s->opt.n_lanes / s->col_pages + 1);
    return s->forecast.low_slots ? 2 * n : n;
}

static pleat_status open_row(simulated *s, uint32_t max_tokens, pleat_seq *out) {
    if (max_tokens == 0 || max_tokens > s->opt.max_tokens) return PLEAT_E_ARG;
    if (s->n_free_seqs == 0) return PLEAT_E_LIMIT;
    const uint32_t row_cap = most_cols(s, max_tokens);
    uint32_t *row = pleat__alloc(&s->al, row_cap, sizeof *row);
    if (!row) return PLEAT_E_MEMORY;
    const uint32_t i = s->free_seq[--s->n_free_seqs];
    s->seqs[i] = (sim_seq){.row = row, .row_cap = row_cap, .max_tokens = max_tokens, .tail = UINT32_MAX};
    out->v = i + 1;
    return PLEAT_OK;
}

static pleat_status sim_open(void *ctx, uint32_t max_tokens, pleat_seq *out) {
    simulated *s = ctx;
    PLEAT_TRY(open_row(s, max_tokens, out));
    seq_of(s, *out)->tail = take_tail(s);
    return PLEAT_OK;
}

/* The columns that a sequence with n_left emptied ones shares with `from`. */
static void share_row(simulated *s, const sim_seq *from, sim_common shared, uint32_t n_left, sim_seq *to) {
    const uint32_t *tokens = from->row + from->n_payload_cols + (n_left - from->n_left_cols);
    memcpy(to->row, from->row, shared.n_payload * sizeof *to->row);
    if (shared.n_tokens > 0) memcpy(to->row + shared.n_payload, tokens, shared.n_tokens * sizeof *to->row);
    to->n_cols = shared.n_payload + shared.n_tokens;
    to->n_payload_cols = shared.n_payload;
    to->n_left_cols = n_left;
    for (uint32_t i = 0; i < to->n_cols; i++) s->refs[to->row[i]]++;
}

static pleat_status sim_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    simulated *s = ctx;
    sim_seq *from = seq_of(s, seq);
    if (max_tokens < from->held.n_tokens) return PLEAT_E_ARG;
    PLEAT_TRY(open_row(s, max_tokens, out));
    sim_seq *to = seq_of(s, *out);
    share_row(s, from, common_of(from, from), from->n_left_cols, to);
    to->tail = from->tail;
    s->tails[to->tail].n_refs++;
    to->held = from->held;
    return PLEAT_OK;
}

static uint64_t sim_fork_pages(void *ctx, pleat_seq seq) {
    (void)ctx, (void)seq;
    return 0;
}

static void sim_close(void *ctx, pleat_seq seq) {
    simulated *s = ctx;
    sim_seq *q = seq_of(s, seq);
    for (uint32_t i = 0; i < q->n_cols; i++) drop_col(s, q->row[i]);
    drop_tail(s, q->tail);
    pleat__free(&s->al, q->row, q->row_cap, sizeof *q->row);
    *q = (sim_seq){0};
    s->free_seq[s->n_free_seqs++] = seq.v - 1;
}

/* ---- a step ---------------------------------------------------------------------------------------- */

/* A sequence's step. */
typedef struct sim_step {
    pleat_forecast_seq after;
    uint32_t n_emptied; /* columns whose tokens become blocks */
    bool copies_next;   /* the column behind these is another's too, and sinks move there */
    uint64_t n_taken;   /* pages, most of them at once */
} sim_step;

static uint32_t cols_of_payload(const simulated *s, const pleat_forecast_seq *held) {
    return s->forecast.block_tokens ? (uint32_t)(held->final_pages / s->col_pages) : 0;
}

static uint32_t cols_of(const simulated *s, const pleat_forecast_seq *held) {
    const uint64_t n_still = held->still_pages < held->n_pages ? held->still_pages : held->n_pages;
    return (uint32_t)(n_still / s->col_pages);
}

/* Columns whose tokens become blocks; at least what there is no room for behind the payloads' columns. */
static uint32_t count_emptied(const simulated *s, const sim_seq *q, const pleat_forecast_seq *after) {
    if (!s->forecast.block_tokens || after->n_classed == q->held.n_classed) return 0;
    const uint64_t n_pages =
        (after->n_classed - q->held.n_classed) / s->opt.page_tokens * pleat__backend_full_lanes(&s->shape);
    const uint32_t n_cols = (uint32_t)((n_pages + s->col_pages - 1) / s->col_pages),
                   n_high = q->n_cols - q->n_payload_cols;
    const uint32_t n_payload = pleat__max_u32(cols_of_payload(s, after), q->n_payload_cols), n_all = cols_of(s, after);
    const uint32_t room = n_all > n_payload ? n_all - n_payload : 0;
    return pleat__min_u32(n_high, pleat__max_u32(n_cols, n_high > room ? n_high - room : 0));
}

static bool copies_next(const simulated *s, const sim_seq *q, uint32_t n_emptied) {
    const uint32_t next = q->n_payload_cols + n_emptied;
    return n_emptied > 0 && s->forecast.spec.sinks % s->opt.page_tokens > 0 && next < q->n_cols &&
           s->refs[q->row[next]] > 1;
}

static sim_step plan_step(const simulated *s, const sim_seq *q, uint32_t n_new, uint32_t flags) {
    sim_step step = {.after = pleat_forecast_step(&s->forecast, &q->held, n_new, flags)};
    const sim_tail *tail = &s->tails[q->tail];
    const uint64_t n_held = pages_held(s, q);
    step.n_emptied = count_emptied(s, q, &step.after);
    step.copies_next = copies_next(s, q, step.n_emptied);
    if (step.after.step_pages > n_held) step.n_taken = step.after.step_pages - n_held;
    if (tail->n_refs > 1) step.n_taken += tail->n_pages;
    if (step.copies_next) step.n_taken += s->col_pages;
    for (uint32_t i = 0; i < step.n_emptied; i++)
        if (s->refs[q->row[q->n_payload_cols + i]] > 1) step.n_taken += s->col_pages;
    return step;
}

/* Take n columns and put them at `at` of the row. */
static void insert_cols(simulated *s, sim_seq *q, uint32_t at, uint32_t n) {
    n = pleat__min_u32(n, pleat__min_u32(s->n_free_cols, q->row_cap - q->n_cols));
    memmove(q->row + at + n, q->row + at, (q->n_cols - at) * sizeof *q->row);
    for (uint32_t i = 0; i < n; i++) q->row[at + i] = take_col(s);
    q->n_cols += n;
}

static void empty_cols(simulated *s, sim_seq *q, uint32_t n) {
    uint32_t *first = q->row + q->n_payload_cols;
    for (uint32_t i = 0; i < n; i++) drop_col(s, first[i]);
    q->n_cols -= n;
    q->n_left_cols += n;
    memmove(first, first + n, (q->n_cols - q->n_payload_cols) * sizeof *first);
}

/* Put a column of its own in the place of the first of tokens, while there is one. */
static void copy_first_col(simulated *s, sim_seq *q) {
    if (s->n_free_cols == 0) return;
    drop_col(s, q->row[q->n_payload_cols]);
    q->row[q->n_payload_cols] = take_col(s);
}

/* The row and the tail come to hold what the forecast says. */
static void hold(simulated *s, sim_seq *q, const pleat_forecast_seq *held) {
    const uint32_t n_all = cols_of(s, held), n_payload = cols_of_payload(s, held);
    drop_tail(s, q->tail);
    q->tail = take_tail(s);
    if (n_payload > q->n_payload_cols) {
        const uint32_t n_before = q->n_cols;
        insert_cols(s, q, q->n_payload_cols, n_payload - q->n_payload_cols);
        q->n_payload_cols += q->n_cols - n_before;
    }
    if (n_all > q->n_cols) insert_cols(s, q, q->n_cols, n_all - q->n_cols);
    const uint64_t in_cols = pages_in_cols(s, q->n_cols);
    fill_tail(s, q->tail, held->n_pages > in_cols ? held->n_pages - in_cols : 0);
    q->held = *held;
}

static void wind_on(simulated *s, double ns) { s->now_ns = fmin(s->now_ns + ns, MAX_CLOCK_NS); }

/* What items read: shared pages once for each, so that a sum may be far more than the pool. */
static uint64_t bytes_read(const simulated *s, uint64_t n_pages) {
    return n_pages > MAX_POOL_BYTES / s->opt.page_bytes ? MAX_POOL_BYTES : n_pages * s->opt.page_bytes;
}

static uint64_t n_free(const simulated *s) { return s->shape.n_pages - s->n_used; }

static pleat_status sim_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                            pleat_error *err) {
    simulated *s = ctx;
    (void)likeliest;
    uint64_t n_taken = 0, n_read = 0;
    pleat__step_load load = {0};
    for (uint32_t i = 0; i < n_items; i++) {
        sim_seq *q = seq_of(s, items[i].seq);
        PLEAT_FAIL_IF(items[i].n_tokens > q->max_tokens - q->held.n_tokens, err, PLEAT_E_LIMIT, PLEAT_NOWHERE,
                      "step: item %u would pass the %u tokens that it was opened for", i, q->max_tokens);
        n_taken += plan_step(s, q, items[i].n_tokens, items[i].flags).n_taken;
        load.n_chunks += items[i].n_tokens > 1;
        load.n_prompt += items[i].n_tokens > 1 ? items[i].n_tokens : 0;
        load.n_generated += items[i].n_tokens == 1;
        n_read += items[i].n_tokens == 1 ? pages_held(s, q) : 0;
    }
    if (n_taken > n_free(s)) return PLEAT_AGAIN;
    for (uint32_t i = 0; i < n_items; i++) {
        sim_seq *q = seq_of(s, items[i].seq);
        const sim_step step = plan_step(s, q, items[i].n_tokens, items[i].flags);
        empty_cols(s, q, step.n_emptied);
        if (step.copies_next) copy_first_col(s, q);
        hold(s, q, &step.after);
    }
    load.kv_bytes = bytes_read(s, n_read);
    wind_on(s, pleat__cost_step_ns(&s->cost, &load));
    return PLEAT_OK;
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static uint32_t sim_budget(void *ctx, uint32_t n_prompt) {
    return pleat_forecast_max_kept(&((simulated *)ctx)->forecast, n_prompt);
}

static uint64_t sim_pages_needed(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    simulated *s = ctx;
    return plan_step(s, seq_of(s, seq), n_tokens, flags).n_taken;
}

static uint64_t sim_pages_of(void *ctx, pleat_seq seq) {
    simulated *s = ctx;
    return seq.v ? pages_held(s, seq_of(s, seq)) : 0;
}

static uint64_t sim_pages_shared(void *ctx, pleat_seq a, pleat_seq b) {
    simulated *s = ctx;
    const sim_seq *x = seq_of(s, a), *y = seq_of(s, b);
    return pages_in_cols(s, n_common(x, y)) + (x->tail == y->tail ? s->tails[x->tail].n_pages : 0);
}

static uint64_t sim_pages_used(void *ctx) { return ((simulated *)ctx)->n_used; }

static void sim_pages_by_side(void *ctx, pleat_seq seq, uint64_t *high, uint64_t *low) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    const uint64_t n_pages = pages_held(s, q);
    *high = q->held.high_pages < n_pages ? q->held.high_pages : n_pages;
    *low = n_pages - *high;
}

static void sim_slots_of(void *ctx, pleat_seq seq, uint64_t *live, uint64_t *held) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    *held = pages_held(s, q) * s->opt.page_tokens;
    *live = (uint64_t)(q->held.full_pages * s->opt.page_tokens + 0.5);
    if (*live > *held) *live = *held;
}

static void sim_bytes_of(void *ctx, pleat_seq seq, uint64_t *bytes, uint64_t *bytes_f16) {
    simulated *s = ctx;
    *bytes = pages_held(s, seq_of(s, seq)) * s->opt.page_bytes;
    *bytes_f16 = 0;
}

/* ---- images ---------------------------------------------------------------------------------------- */

/* Columns that the base keeps for the sequence, which has gone on from it: of pages that neither will ever write, as those
 * of tokens that become blocks are. */
static sim_common left_out(simulated *s, const sim_seq *q, pleat_seq base) {
    sim_common c = base.v ? common_of(q, seq_of(s, base)) : (sim_common){0};
    if (s->forecast.block_tokens) c.n_tokens = 0;
    return c;
}

static uint64_t image_pages(const simulated *s, const sim_seq *q, sim_common shared) {
    return pages_held(s, q) - pages_in_cols(s, shared.n_payload + shared.n_tokens);
}

static uint64_t sim_image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    return image_pages(s, q, left_out(s, q, base)) * s->opt.page_bytes;
}

static void swap(simulated *s, uint64_t n_bytes) { wind_on(s, (double)n_bytes / s->opt.swap_bytes_per_s * 1e9); }

static pleat_status sim_save(void *ctx, pleat_seq seq, pleat_seq base, pleat__image *out) {
    simulated *s = ctx;
    const sim_seq *q = seq_of(s, seq);
    sim_image *image = pleat__alloc(&s->al, 1, sizeof *image);
    if (!image) return PLEAT_E_MEMORY;
    *image = (sim_image){
        .held = q->held, .max_tokens = q->max_tokens, .n_left_cols = q->n_left_cols, .shared = left_out(s, q, base)};
    const uint64_t n_pages = image_pages(s, q, image->shared);
    *out = (pleat__image){
        .data = image, .data_bytes = sizeof *image, .n_bytes = n_pages * s->opt.page_bytes, .n_pages = n_pages};
    const uint64_t start_ns = (uint64_t)s->now_ns;
    swap(s, out->n_bytes);
    out->moved_ns = (uint64_t)s->now_ns - start_ns;
    return PLEAT_OK;
}

static pleat_status sim_restore(void *ctx, const pleat__image *in, pleat_seq base, pleat_seq *out) {
    simulated *s = ctx;
    const sim_image *image = in->data;
    if (in->n_pages > n_free(s)) return PLEAT_AGAIN;
    PLEAT_TRY(sim_open(s, image->max_tokens, out));
    sim_seq *q = seq_of(s, *out);
    q->n_left_cols = image->n_left_cols;
    if (base.v) share_row(s, seq_of(s, base), image->shared, image->n_left_cols, q);
    hold(s, q, &image->held);
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

static bool refs_are_valid(const simulated *s) {
    uint64_t n_refs = 0, n_tail_refs = 0, n_unused = 0, n_used = 0;
    for (uint32_t i = 0; i < s->n_cols; i++) {
        n_refs += s->refs[i];
        n_unused += s->refs[i] == 0;
    }
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) {
        n_tail_refs += s->tails[i].n_refs;
        n_used += s->tails[i].n_refs > 0 ? s->tails[i].n_pages : 0;
    }
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) {
        if (!s->seqs[i].row) continue;
        n_refs -= s->seqs[i].n_cols;
        n_tail_refs--;
    }
    return n_refs == 0 && n_tail_refs == 0 && n_unused == s->n_free_cols &&
           n_used + (s->n_cols - n_unused) * s->col_pages == s->n_used && s->n_used <= s->shape.n_pages;
}

static bool sim_is_valid(void *ctx) {
    const simulated *s = ctx;
    uint64_t n_open = 0;
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) {
        const sim_seq *q = &s->seqs[i];
        if (!q->row) continue;
        if (q->n_cols > q->row_cap || q->held.n_tokens > q->max_tokens || pages_held(s, q) < q->held.n_pages)
            return false;
        for (uint32_t j = 0; j < q->n_cols; j++)
            if (s->refs[q->row[j]] == 0) return false;
        n_open++;
    }
    return n_open + s->n_free_seqs == s->opt.max_seqs && refs_are_valid(s);
}

static void sim_destroy(void *ctx) {
    simulated *s = ctx;
    const pleat_allocator al = s->al;
    for (uint32_t i = 0; s->seqs && i < s->opt.max_seqs; i++)
        if (s->seqs[i].row) pleat__free(&al, s->seqs[i].row, s->seqs[i].row_cap, sizeof *s->seqs[i].row);
    pleat__free(&al, s->block, 1, s->block_bytes);
    pleat__free(&al, s, 1, sizeof *s);
}

static bool is_price(double x) { return x >= 0 && x <= MAX_PRICE_NS; }

static bool is_of(const pleat_simulation *o, const pleat_forecast *f) {
    return f->size_bytes == sizeof *f && f->n_samples <= PLEAT_FORECAST_SAMPLES && f->traits.n_lanes == o->n_lanes &&
           f->traits.n_ring_lanes <= o->n_lanes && f->traits.page_bytes == o->page_bytes &&
           f->traits.high_page_tokens == o->page_tokens;
}

/* What a measured forecast has, and one that is filled by hand may not: shares that are numbers, in order. */
static bool is_sound(const pleat_forecast *f) {
    bool ok = f->fraction >= 0 && f->fraction <= 1 && f->most_high >= 0 && isfinite(f->most_high) && f->most_low >= 0 &&
              isfinite(f->most_low);
    for (uint32_t i = 0; i < f->n_samples; i++) {
        const pleat_forecast_sample *s = &f->samples[i];
        ok = ok && (i == 0 || s->n_classed >= s[-1].n_classed);
        for (uint32_t g = 0; g < PLEAT_FORECAST_GROUPS; g++)
            ok = ok && s->high[g] >= 0 && isfinite(s->high[g]) && s->low[g] >= 0 && isfinite(s->low[g]);
    }
    return ok;
}

static pleat_status check_simulation(const pleat_simulation *o, pleat_error *err) {
#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "simulation: " __VA_ARGS__)
    REQUIRE(o && o->size_bytes == sizeof *o, "no options, or of another size");
    REQUIRE(o->n_lanes >= 1 && o->page_tokens >= 1 && o->page_bytes >= 1, "no lanes, or empty pages");
    REQUIRE(o->n_pages >= o->n_lanes && o->n_pages <= UINT32_MAX, "%llu pages are not from one a lane to 2^32 - 1",
            (unsigned long long)o->n_pages);
    REQUIRE(o->page_tokens <= 1u << 24 && o->page_bytes <= MAX_POOL_BYTES / o->n_pages,
            "pages of more than 2^24 tokens, or more than 2^62 bytes of them");
    REQUIRE(o->forecast || (o->fraction > 0 && o->fraction <= 1), "fraction %g is not above 0 and up to 1",
            o->fraction);
    REQUIRE(!o->forecast || is_of(o, o->forecast), "a forecast of other lanes or pages");
    REQUIRE(!o->forecast || is_sound(o->forecast), "a forecast whose shares are no numbers, or in no order");
    REQUIRE(!o->forecast || o->forecast->is_measured,
            "what the spec keeps depends on the text, and the forecast has no sample of it");
    REQUIRE(o->max_items >= 1 && o->max_items <= o->max_seqs && o->max_seqs <= 1u << 24,
            "max_items %u is not from 1 to max_seqs %u", o->max_items, o->max_seqs);
    REQUIRE(o->max_tokens >= 1 && o->max_tokens <= 1u << 24 && o->chunk_tokens >= 1 && o->step_tokens >= 1,
            "max_tokens, chunk_tokens and step_tokens must be at least 1");
    REQUIRE(is_price(o->fixed_ns) && is_price(o->chunk_ns) && is_price(o->prompt_ns) && is_price(o->token_ns) &&
                is_price(o->byte_ns),
            "a price is not from 0 to %g ns", MAX_PRICE_NS);
    REQUIRE(o->fixed_ns + o->chunk_ns + o->prompt_ns + o->token_ns + o->byte_ns > 0,
            "all prices are 0: time would stand still");
    REQUIRE(o->swap_bytes_per_s > 0 && isfinite(o->swap_bytes_per_s), "swap_bytes_per_s is not above 0");
#undef REQUIRE
    return PLEAT_OK;
}

static void carve(simulated *s, pleat__arena *arena) {
    s->seqs = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->seqs);
    s->free_seq = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->free_seq);
    s->tails = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->tails);
    s->free_tail = pleat__arena_take(arena, s->opt.max_seqs, sizeof *s->free_tail);
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
    for (uint32_t i = 0; i < s->opt.max_seqs; i++) s->free_seq[i] = s->free_tail[i] = s->opt.max_seqs - 1 - i;
    for (uint32_t i = 0; i < s->n_cols; i++) s->free_col[i] = s->n_cols - 1 - i;
    s->n_free_seqs = s->n_free_tails = s->opt.max_seqs;
    s->n_free_cols = s->n_cols;
    return PLEAT_OK;
}

/* As an engine's: what is admitted must not differ. */
static pleat__backend_shape shape_of(const pleat_simulation *o, const pleat_forecast *f) {
    const pleat_cache_traits *t = &f->traits;
    return (pleat__backend_shape){
        .n_pages = o->n_pages,
        .page_bytes = o->page_bytes,
        .n_lanes = o->n_lanes,
        .page_tokens = o->page_tokens,
        .spare_pages = t->spare_pages,
        .n_ring_lanes = t->n_ring_lanes,
        .ring_slots = t->ring_slots,
        .window = t->window,
        .is_packed = t->is_packed,
        .is_bounded = t->is_bounded,
        .takes_fresh = t->takes_fresh,
        .shares_late = t->shares_late,
        .fraction = f->fraction,
        .has_bases = true,
        .max_items = o->max_items,
        .max_seqs = o->max_seqs,
        .max_tokens = o->max_tokens,
        .chunk_tokens = pleat__min_u32(o->chunk_tokens, o->max_tokens),
        .step_tokens = o->step_tokens,
        .key = "simulated",
    };
}

/* Lanes that differ have full pages at different times.  Rings, which are written everywhere, have no column. */
static uint32_t col_pages_of(const pleat_forecast *f) {
    const uint32_t n_lanes = f->traits.n_lanes - f->traits.n_ring_lanes;
    const uint32_t n_groups = f->wants_samples ? PLEAT_FORECAST_GROUPS : 1;
    return n_lanes > n_groups ? n_lanes / n_groups : 1;
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
                                    .chunk_ns = simulation->chunk_ns,
                                    .prompt_ns = simulation->prompt_ns,
                                    .token_ns = simulation->token_ns,
                                    .byte_ns = simulation->byte_ns};
    s->forecast = simulation->forecast ? *simulation->forecast
                                       : pleat_forecast_of_fraction(simulation->n_lanes, simulation->page_tokens,
                                                                    simulation->page_bytes, simulation->fraction);
    s->opt.forecast = NULL; /* the caller's */
    s->shape = shape_of(simulation, &s->forecast);
    s->col_pages = col_pages_of(&s->forecast);
    s->n_cols = (uint32_t)(s->shape.n_pages / s->col_pages);
    if (take_memory(s) != PLEAT_OK) {
        sim_destroy(s);
        return pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "simulation: out of memory");
    }
    *out = (pleat__backend){
        .ctx = s,
        .shape = s->shape,
        .open = sim_open,
        .fork = sim_fork,
        .fork_pages = sim_fork_pages,
        .close = sim_close,
        .run = sim_run,
        .budget = sim_budget,
        .pages_needed = sim_pages_needed,
        .pages_of = sim_pages_of,
        .pages_shared = sim_pages_shared,
        .pages_used = sim_pages_used,
        .pages_by_side = sim_pages_by_side,
        .slots_of = sim_slots_of,
        .bytes_of = sim_bytes_of,
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
