/* SPDX-License-Identifier: MIT
 *
 * promise.c: see promise.h.  Where pages are only looked at once, they are counted anew: a cache that is checked has no
 * place for them yet.
 */
#include "cache/keep/promise.h"

#include <math.h>
#include <string.h>

#include "cache/keep/blocks.h"
#include "cache/keep/keep.h"
#include "core/error.h"
#include "page/pool.h"
#include "stats/stats.h"

#define MILLION 1000000u /* shares are counted in millionths */
#define N_LOOKED_AT 256u /* blocks behind `from` among which the rate is the least */
#define FINEST (-96)     /* steps are rd's times 2^(i/32) */
#define COARSEST 64
#define UNFILLED 0.55 /* of a page a lane that payloads leave empty: a half on average, and what a level is too fine */
#define AHEAD PLEAT__PROMISE_AHEAD
#define K 0.15f
#define V 1.1f

/* ---- bytes --------------------------------------------------------------------------------------- */

static uint32_t millionths(const pleat_spec *spec) { return (uint32_t)((double)spec->bytes * MILLION + 0.5); }

/* Millionths of f16's bytes. */
static uint64_t share_of(const pleat_cache *c, uint32_t share, uint32_t n) {
    const uint64_t f16 = (uint64_t)n * c->n_lanes * 4 * c->opt.head_dim;
    return f16 / MILLION * share + f16 % MILLION * share / MILLION;
}

uint64_t pleat__promise_bytes(const pleat_cache *c, uint32_t n_tokens) {
    return n_tokens < c->opt.spec.from ? UINT64_MAX : share_of(c, millionths(&c->opt.spec), n_tokens);
}

/* Pages of n tokens of which n_blocks * 64 are in blocks, those of payloads apart. */
static uint64_t pages_of(const pleat_cache *c, uint32_t n, uint32_t n_blocks) {
    const uint32_t n_warm = n - n_blocks * PLEAT__RD_TOKENS;
    uint64_t sum = (uint64_t)pleat__n_full_lanes(c) * pleat__div_up_u32(n_warm, c->page_tokens[PLEAT__HIGH]);
    for (uint32_t layer = 0; c->ring && layer < c->opt.n_layers; layer++)
        if (pleat__cache_window(c, layer))
            sum += c->ring->lane_pages(c, c->ring->lane_slots(c, layer, n, false), false) * c->opt.n_kv_heads;
    return sum;
}

/* Pages that n tokens leave to payloads; below 0: none, and too few for the others. */
static int64_t pages_left(const pleat_cache *c, uint32_t share, uint32_t n, uint32_t n_blocks) {
    const uint64_t may = share_of(c, share, n);
    const uint64_t page = c->page_bytes + PLEAT__POOL_BYTES_PER_PAGE;
    const int64_t n_may = may > c->seq_bytes ? (int64_t)((may - c->seq_bytes) / page) : 0;
    return n_may - (int64_t)pages_of(c, n, n_blocks);
}

/* Tokens at which there are n_blocks blocks at least: [first, last], and in the step behind last. */
static uint32_t last_tokens(const pleat_spec *s, uint32_t n_blocks) {
    return s->sinks + s->buffer + n_blocks * PLEAT__RD_TOKENS;
}

/* Blocks of n tokens. */
static uint32_t blocks_of(const pleat_spec *s, uint32_t n) {
    const uint32_t none = s->sinks + s->buffer;
    return n > none ? pleat__div_up_u32(n - none, PLEAT__RD_TOKENS) : 0;
}

/* The first number of blocks that anything is promised of. */
static uint32_t first_kept(const pleat_cache *c) { return blocks_of(&c->opt.spec, c->opt.spec.from); }

/* pages(n_blocks) of promise.h; n_blocks >= first_kept(). */
static int64_t pages_for(const pleat_cache *c, uint32_t share, uint32_t n_blocks) {
    const uint32_t last = last_tokens(&c->opt.spec, n_blocks) + 1;
    int64_t n_pages = INT64_MAX;
    for (uint32_t n = pleat__max_u32(c->opt.spec.from, last - PLEAT__RD_TOKENS); n <= last; n++) {
        const int64_t n_left = pages_left(c, share, n, n_blocks);
        if (n_left < n_pages) n_pages = n_left;
    }
    return n_pages;
}

/* Slots that payloads aim at in so many pages; below 0: there are not even pages. */
static double slots_in(const pleat_cache *c, int64_t n_pages) {
    return ((double)n_pages - UNFILLED * (double)pleat__n_full_lanes(c)) * c->page_tokens[PLEAT__LOW];
}

/* Slots for a block of all lanes so that no number of blocks has too many; below 0: not even the buffer fits. */
static double rate_of(const pleat_cache *c, uint32_t share) {
    const uint32_t first = first_kept(c);
    double rate = INFINITY;
    for (uint32_t b = first; b <= first + N_LOOKED_AT; b++) {
        const int64_t n_pages = pages_for(c, share, b);
        const double slots = b > 0 ? slots_in(c, n_pages) / b : INFINITY;
        if (n_pages < 0) return -1;
        if (slots < rate) rate = slots;
    }
    return rate;
}

/* ---- steps --------------------------------------------------------------------------------------- */

static float stepped(float at_zero, int32_t i) { return at_zero * (float)exp2(i / 32.0); }

/* Slots that a block of this lane is expected to take. */
static double expected(const pleat_cache *c, const pleat_cache_options *opt, const pleat__rd_rates *rates,
                       uint32_t layer, uint32_t head, int32_t step) {
    const pleat__rd_source source = pleat__stats_source(opt->stats, layer, head);
    const pleat_stats_scale scale = pleat_stats_get_scale(opt->stats, layer);
    const double n_bytes = pleat__rd_expected_bytes(rates, &source, opt->ropes[layer], c->opt.head_dim,
                                                    stepped(K, step) * scale.k, stepped(V, step) * scale.v);
    return n_bytes / PLEAT__BLOCK_ALIGN + 0.5;
}

static double expected_of_all(const pleat_cache *c, const pleat_cache_options *opt, const pleat__rd_rates *rates,
                              int32_t step) {
    double sum = 0;
    for (uint32_t layer = 0; layer < c->opt.n_layers; layer++)
        for (uint32_t head = 0; head < c->opt.n_kv_heads && !pleat__cache_window(c, layer); head++)
            sum += expected(c, opt, rates, layer, head, step);
    return sum;
}

/* The finest step whose blocks are expected to fit the rate; COARSEST + 1: none. */
static int32_t choose_step(const pleat_cache *c, const pleat_cache_options *opt, const pleat__rd_rates *rates,
                           double rate) {
    int32_t low = FINEST, high = COARSEST + 1;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (expected_of_all(c, opt, rates, middle) <= rate)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Windows have to be told from full layers as they are, so nothing else is chosen for. */
uint32_t pleat__promise_plain_tokens(const pleat_cache *c) {
    const bool is_own = c->opt.windows || c->opt.spec.from > 1u << 22;
    return is_own ? c->opt.max_tokens : 2 * c->opt.spec.from;
}

/* What is chosen for a share, in millionths. */
typedef struct choice {
    const pleat_cache_options *opt;
    const pleat_cache *plain;
    pleat__rd_rates rates;
    uint32_t share;
    int32_t step;
} choice;

static void choose_for(choice *out, uint32_t share) {
    const double rate = rate_of(out->plain, share);
    out->share = share;
    out->step = choose_step(out->plain, out->opt, &out->rates, rate);
}

static choice choose(const pleat_cache *c, const pleat_cache_options *opt) {
    choice out = {.opt = opt, .plain = c->plain};
    pleat__rd_rates_init(&out.rates);
    choose_for(&out, millionths(&opt->spec));
    return out;
}

/* What is the cache's own, but for its tables. */
static pleat__promise promise_of(const pleat_cache *c, const choice *chosen) {
    const size_t least = pleat__rd_least_bytes(&chosen->opt->stats->books, c->opt.head_dim);
    return (pleat__promise){.k = stepped(K, chosen->step),
                            .v = stepped(V, chosen->step),
                            .first = first_kept(c),
                            .least = (uint32_t)((least + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN)};
}

/* ---- can it be kept? ----------------------------------------------------------------------------- */

/* Pages of all lanes whose n blocks store nothing, from pages' beginnings on. */
static int64_t least_pages(const pleat_cache *c, const pleat__promise *p, uint32_t n) {
    return (int64_t)pleat__n_full_lanes(c) * pleat__div_up_u32(n * p->least, c->page_tokens[PLEAT__LOW]);
}

/* Do blocks that store nothing fit from the first on, and behind any that fitted?  Where some fit among the next AHEAD,
 * those further on do if AHEAD to 2 * AHEAD - 1 of them bring as many pages as they need: any more are sums of such. */
static bool always_fits(const pleat_cache *c, const pleat__promise *p, uint32_t share) {
    const uint32_t last = pleat__max_u32(p->first, c->opt.max_tokens / PLEAT__RD_TOKENS);
    int64_t next[2 * AHEAD]; /* pages_for(), from b on */
    for (uint32_t i = 0; i < 2 * AHEAD; i++) next[i] = pages_for(c, share, p->first + i);
    for (uint32_t i = 0; i < AHEAD; i++)
        if (next[i] < least_pages(c, p, p->first + i)) return false;
    for (uint32_t b = p->first; b <= last; b++) {
        for (uint32_t i = AHEAD; i < 2 * AHEAD; i++)
            if (next[i] < next[0] + least_pages(c, p, i)) return false;
        memmove(next, next + 1, (2 * AHEAD - 1) * sizeof *next);
        next[2 * AHEAD - 1] = pages_for(c, share, b + 2 * AHEAD);
    }
    return true;
}

static bool can_keep(const pleat_cache *c, const choice *chosen) {
    if (chosen->step > COARSEST) return false;
    const pleat__promise p = promise_of(c, chosen);
    const double coarsest = expected_of_all(c, chosen->opt, &chosen->rates, COARSEST);
    return rate_of(c, chosen->share) >= coarsest && always_fits(c, &p, chosen->share);
}

/* In tenths of a per cent; 1001: none. */
static uint32_t smallest_share(const pleat_cache *c, choice *chosen) {
    uint32_t low = 1, high = 1001;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        choose_for(chosen, middle * (MILLION / 1000));
        if (can_keep(c, chosen))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

pleat_status pleat__promise_check(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err) {
    const pleat_spec *s = &c->opt.spec;
    PLEAT_FAIL_IF(pleat__rd_least_bytes(&opt->stats->books, opt->head_dim) == 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "cache: auto needs statistics with a class that stores nothing; `pleat stats` makes such");
    choice chosen = choose(c, opt);
    if (can_keep(c, &chosen)) return PLEAT_OK;
    const uint32_t least = smallest_share(c, &chosen);
    PLEAT_FAIL_IF(
        least > 1000, err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "cache: auto cannot promise any share of f16's bytes from %u tokens on, with tables for %u: ask for a "
        "greater from, or for shorter sequences",
        s->from, c->opt.max_tokens);
    return pleat__error_set(
        err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "cache: auto cannot promise %.4g%% of f16's bytes from %u tokens on, with tables for %u: the "
        "smallest share that it can is %.1f%%; a greater from, or shorter sequences, allow less",
        (double)s->bytes * 100, s->from, c->opt.max_tokens, least / 10.0);
}

/* ---- the promise --------------------------------------------------------------------------------- */

/* Blocks whose pages are counted: the longest sequence's, those of `from`, and AHEAD more. */
static uint32_t n_counted(const pleat_cache *c) {
    return pleat__max_u32(c->opt.max_tokens / PLEAT__RD_TOKENS, first_kept(c)) + 1 + AHEAD;
}

void pleat__promise_carve(pleat_cache *c, pleat__arena *arena) {
    c->kept.blocks.promise.pages = pleat__arena_take(arena, n_counted(c), sizeof *c->kept.blocks.promise.pages);
}

void pleat__promise_init(pleat_cache *c, const pleat_cache_options *opt) {
    pleat__promise *p = &c->kept.blocks.promise;
    uint32_t *pages = p->pages;
    const choice chosen = choose(c, opt);
    *p = promise_of(c, &chosen);
    p->pages = pages;
    for (uint32_t b = p->first; b < n_counted(c); b++) p->pages[b] = (uint32_t)pages_for(c, chosen.share, b);
    for (uint32_t level = 0; level < PLEAT__RD_LEVELS_USED; level++)
        p->expected[level] = expected_of_all(chosen.plain, opt, &chosen.rates,
                                             chosen.step + ((int32_t)level - (int32_t)PLEAT__RD_SAME_LEVEL) * 8);
}

/* Before `first` each block aims at as much as any other. */
static double aimed_at(const pleat_cache *c, uint32_t n_blocks) {
    const pleat__promise *p = &c->kept.blocks.promise;
    const double slots = slots_in(c, p->pages[pleat__max_u32(n_blocks, p->first)]);
    return n_blocks < p->first ? slots / p->first * n_blocks : slots;
}

uint32_t pleat__promise_level(const pleat_cache *c, uint32_t n_blocks, uint64_t n_slots) {
    const pleat__promise *p = &c->kept.blocks.promise;
    const double room = aimed_at(c, n_blocks + 1) - (double)n_slots;
    uint32_t level = 0;
    while (level < PLEAT__RD_LEVELS_USED - 1 && p->expected[level] > room) level++;
    return level;
}

/* ---- the room of a block --------------------------------------------------------------------------- */

/* Pages of a lane of n_slots slots behind which n blocks store nothing. */
static int64_t pages_with(const pleat_cache *c, uint64_t n_slots, uint32_t n) {
    const uint64_t page = c->page_tokens[PLEAT__LOW];
    return (int64_t)((n_slots + (uint64_t)n * c->kept.blocks.promise.least + page - 1) / page);
}

pleat__promise_row pleat__promise_open_row(const pleat_cache *c, uint32_t n_blocks, const uint32_t *n_slots) {
    const pleat__promise *p = &c->kept.blocks.promise;
    pleat__promise_row row = {.n_behind = p->first > n_blocks + 1 ? p->first - n_blocks - 1 : 0};
    for (uint32_t i = 0; i < AHEAD; i++) {
        row.left[i] = p->pages[n_blocks + 1 + row.n_behind + i];
        for (uint32_t lane = 0; lane < c->n_lanes; lane++)
            if (!pleat__cache_is_ring(c, lane)) row.left[i] -= pages_with(c, n_slots[lane], 1 + row.n_behind + i);
    }
    return row;
}

uint64_t pleat__promise_room(const pleat_cache *c, const pleat__promise_row *row, uint32_t n_slots) {
    int64_t most = INT64_MAX;
    for (uint32_t i = 0; i < AHEAD; i++) {
        const uint32_t n = row->n_behind + i;
        const int64_t pages = pages_with(c, n_slots, 1 + n) + row->left[i];
        const int64_t slots =
            pages * (int64_t)c->page_tokens[PLEAT__LOW] - n_slots - (int64_t)n * c->kept.blocks.promise.least;
        if (slots < most) most = slots;
    }
    return most > 0 ? (uint64_t)most : 0;
}

void pleat__promise_take(const pleat_cache *c, pleat__promise_row *row, uint32_t before, uint32_t now) {
    for (uint32_t i = 0; i < AHEAD; i++)
        row->left[i] += pages_with(c, before, 1 + row->n_behind + i) - pages_with(c, now, row->n_behind + i);
}
