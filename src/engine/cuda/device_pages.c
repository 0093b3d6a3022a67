/* SPDX-License-Identifier: MIT
 *
 * device_pages.c: pages of an engine on a GPU: what sequences hold, what they share, what they will take.
 *
 *     uniform formats    lengths say it
 *     with a policy      what tokens become is known on the device alone, and counted there after each step: one
 *                        kernel, one copy
 */
#include "core/error.h"
#include "engine/cuda/engine_device.h"

/* The cache has said what is used. */
static pleat_status note_count(pleat__engine_device *d, pleat_status status) {
    if (status != PLEAT_OK) return status;
    d->is_counted = true;
    if (d->n_used > d->n_peak) d->n_peak = d->n_used;
    return PLEAT_OK;
}

pleat_status pleat__engine_device_recount(pleat_engine *e, pleat_error *err) {
    pleat__engine_device *d = e->device;
    pleat_device_cache_load *loads = d->is_uniform ? NULL : d->loads;
    return note_count(d, pleat_device_cache_get_loads(d->cache, &d->n_used, loads, d->stream.v, err));
}

pleat_status pleat__engine_device_count_end(pleat_engine *e, pleat_error *err) {
    pleat__engine_device *d = e->device;
    pleat_device_cache_load *loads = d->is_uniform ? NULL : d->loads;
    return note_count(d, pleat_device_cache_wait_end(d->cache, &d->n_used, loads, d->stream.v, err));
}

/* ---- lengths --------------------------------------------------------------------------------------------- */

static uint32_t window_of(const pleat_engine *e, uint32_t layer) {
    return e->device->windows ? e->device->windows[layer] : 0;
}

/* Slots of a lane of the layer that hold a token. */
static uint32_t slots_of(const pleat_engine *e, uint32_t layer, uint32_t n_tokens) {
    const uint32_t window = window_of(e, layer);
    return window ? pleat__min_u32(window, n_tokens) : n_tokens;
}

/* Of them those that the next token sees too: a full ring's oldest is a hole. */
static uint32_t live_of(const pleat_engine *e, uint32_t layer, uint32_t n_tokens) {
    const uint32_t window = window_of(e, layer);
    return window && n_tokens >= window ? window - 1 : n_tokens;
}

/* Pages of uniform formats at rest. */
static uint64_t pages_of_length(const pleat_engine *e, uint32_t n_tokens) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < e->info.n_layers; i++)
        n += pleat__div_up_u32(slots_of(e, i, n_tokens), e->device->page_tokens);
    return n * e->info.n_kv_heads;
}

/* The most of them while n_new tokens more are stored: lanes with a window hold those of a prompt or chunk beside their
 * own. */
static uint64_t pages_between(const pleat_engine *e, uint32_t n_before, uint32_t n_new) {
    uint64_t n = 0;
    if (!e->device->windows || n_new <= 1) return pages_of_length(e, n_before + n_new);
    for (uint32_t i = 0; i < e->info.n_layers; i++)
        n += pleat__div_up_u32(slots_of(e, i, n_before) + n_new, e->device->page_tokens);
    return n * e->info.n_kv_heads;
}

/* ---- budgets --------------------------------------------------------------------------------------------- */

/* Lanes with a budget hold no dead slots but a hole. */
static bool is_packed(const pleat_engine *e) {
    const pleat_reclaim how = e->opt.spec.reclaim;
    return e->device->evicts && (how == PLEAT_RECLAIM_REUSE || how == PLEAT_RECLAIM_COPY);
}

/* And lose a token for each that comes. */
static bool is_bounded(const pleat_engine *e) { return pleat_device_cache_is_bounded(e->device->cache) != 0; }

uint32_t pleat__engine_device_max_kept(const pleat_engine *e, uint32_t n_prompt) {
    return pleat_device_cache_max_kept(e->device->cache, n_prompt);
}

/* The most slots of a lane at rest. */
static uint32_t most_slots(const pleat_engine *e) {
    const uint32_t n = e->opt.max_tokens, kept = pleat__engine_device_max_kept(e, n);
    return is_bounded(e) && kept < n ? kept + 1 : n;
}

/* ---- places ---------------------------------------------------------------------------------------------- */

static const pleat_device_cache_load *load_of(const pleat_engine *e, const pleat__place *place) {
    return &e->device->loads[pleat__place_idx(e, place)];
}

static uint64_t pages_of(const pleat_engine *e, const pleat__place *place) {
    const pleat_device_cache_load *load = load_of(e, place);
    return e->device->is_uniform ? pages_of_length(e, place->n_tokens) : (uint64_t)load->pages[0] + load->pages[1];
}

/* Cold tokens are in blocks, whose slots are of 16 bytes: lengths say how many tokens there are. */
static bool has_blocks(const pleat_engine *e) { return e->opt.spec.compressor != PLEAT_COMPRESSOR_NONE; }

/* Two levels take a page of each side in a step; read in one go, tokens are all high ones until they are classed. */
static uint64_t pages_for_levels(const pleat_engine *e, const pleat__place *place, uint32_t n_new) {
    const pleat__engine_device *d = e->device;
    const uint64_t n_lane = pleat__div_up_u32(n_new, d->page_tokens);
    const uint64_t lane_most = pleat__div_up_u32(most_slots(e), d->page_tokens) + 1ull;
    const uint64_t grows = d->n_rows * (n_lane + 2), most = d->n_rows * lane_most - pages_of(e, place);
    if (place->n_tokens == 0) return d->n_rows * (n_lane + (n_new > 1 && !d->evicts && !has_blocks(e)));
    if (n_new == 1) return load_of(e, place)->next_pages;
    return grows < most ? grows : most;
}

uint64_t pleat__engine_pages_for(const pleat_engine *e, const pleat__place *place, uint32_t n_new) {
    if (!e->device->is_uniform) return pages_for_levels(e, place, n_new);
    return pages_between(e, place->n_tokens, n_new) - pages_of(e, place);
}

uint64_t pleat__engine_device_pages_needed(const pleat_engine *e, const pleat_cache_item *item) {
    const pleat__place *place = pleat__engine_place(e, item->seq);
    if (!place || item->n_tokens == 0 || item->n_tokens > place->max_tokens - place->n_tokens) return UINT64_MAX;
    return pleat__engine_pages_for(e, place, item->n_tokens);
}

uint64_t pleat__engine_device_pages_held(const pleat_engine *e, pleat_seq seq) {
    const pleat__place *place = pleat__engine_place(e, seq);
    if (seq.v == 0) return e->device->n_used;
    return place ? pages_of(e, place) : 0;
}

uint64_t pleat__engine_device_pages_shared(const pleat_engine *e, pleat_seq a, pleat_seq b) {
    const pleat__engine_device *d = e->device;
    const pleat__place *one = pleat__engine_place(e, a), *other = pleat__engine_place(e, b);
    uint64_t n = 0;
    if (!one || !other) return 0;
    (void)pleat_device_cache_get_shared(d->cache, pleat__place_idx(e, one), pleat__place_idx(e, other), &n, d->stream.v,
                                        NULL);
    return n;
}

/* What it copies: a page a lane where it shares, else all that they could be. */
uint64_t pleat__engine_device_fork_pages(const pleat_engine *e, pleat_seq seq) {
    const pleat__engine_device *d = e->device;
    const pleat__place *place = pleat__engine_place(e, seq);
    if (!place || place->n_tokens == 0) return 0;
    if (is_bounded(e)) return pages_of(e, place) + d->n_rows;
    if (!d->is_uniform) return d->n_rows * (pleat__div_up_u32(place->n_tokens + 1, d->page_tokens) + 1ull);
    if (d->windows) return pages_of(e, place);
    return place->n_tokens % d->page_tokens ? d->n_rows : 0;
}

/* ---- traits ---------------------------------------------------------------------------------------------- */

static uint32_t widest_window(const pleat_engine *e) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < e->info.n_layers; i++) most = pleat__max_u32(most, window_of(e, i));
    return most;
}

static uint32_t n_ring_lanes(const pleat_engine *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->info.n_layers; i++) n += window_of(e, i) ? e->info.n_kv_heads : 0;
    return n;
}

pleat_status pleat__engine_device_get_traits(const pleat_engine *e, pleat_cache_traits *out) {
    const pleat__engine_device *d = e->device;
    const bool has_levels = !d->is_uniform;
    *out = (pleat_cache_traits){
        .size_bytes = sizeof *out,
        .n_pages = d->n_pages,
        .page_bytes = d->page_bytes,
        .high_page_tokens = d->page_tokens,
        .low_page_tokens = d->low_page_tokens,
        .n_lanes = d->n_rows,
        .n_ring_lanes = n_ring_lanes(e),
        .ring_slots = d->windows ? widest_window(e) + e->opt.chunk_tokens : 0, /* while a chunk is stored */
        .spare_pages = has_levels && !d->evicts ? 2 : 0,
        .window = has_levels ? e->opt.spec.window : 0,
        .unshared_tokens = has_levels || d->windows ? UINT32_MAX : d->page_tokens,
        .has_policy = has_levels,
        .is_packed = is_packed(e),
        .is_bounded = is_bounded(e),
    };
    return PLEAT_OK;
}

/* ---- what they hold -------------------------------------------------------------------------------------- */

/* Low slots that a high slot's bytes come to where low slots hold no tokens; else 1. */
static uint32_t high_weight(const pleat_engine *e) {
    return has_blocks(e) ? e->device->low_page_tokens / e->device->page_tokens : 1;
}

static pleat_cache_sides sides_of(const pleat_engine *e, const pleat__place *place) {
    const pleat__engine_device *d = e->device;
    pleat_cache_sides sides = {.high_pages = pages_of(e, place)};
    if (d->is_uniform) {
        for (uint32_t i = 0; i < e->info.n_layers; i++)
            sides.live_slots += (uint64_t)live_of(e, i, place->n_tokens) * e->info.n_kv_heads;
    } else {
        const pleat_device_cache_load *load = load_of(e, place);
        sides.high_pages = load->pages[0];
        sides.low_pages = load->pages[1];
        sides.live_slots = (uint64_t)(load->slots[0] - load->holes) * high_weight(e) + load->slots[1];
    }
    sides.held_slots = sides.high_pages * d->page_tokens * high_weight(e) + sides.low_pages * d->low_page_tokens;
    return sides;
}

pleat_status pleat__engine_device_get_sides(const pleat_engine *e, pleat_seq seq, pleat_cache_sides *out) {
    const pleat__place *place = pleat__engine_place(e, seq);
    if (!place) return PLEAT_E_ARG;
    *out = sides_of(e, place);
    return PLEAT_OK;
}

/* Pages that it shares are counted too. */
static void add_place(const pleat_engine *e, const pleat__place *place, pleat_cache_usage *u) {
    const pleat__engine_device *d = e->device;
    const pleat_cache_sides sides = sides_of(e, place);
    const uint64_t n_pages = sides.high_pages + sides.low_pages, n_tokens = (uint64_t)place->n_tokens * d->n_rows;
    const uint64_t n_live = has_blocks(e) ? n_tokens : sides.live_slots;
    const uint64_t n_low = d->is_uniform   ? 0
                           : has_blocks(e) ? n_tokens - load_of(e, place)->slots[0]
                                           : load_of(e, place)->slots[1];
    u->bytes += n_pages * d->page_bytes + d->table_bytes + 8 * n_pages;
    u->bytes_pages += n_pages * d->page_bytes;
    u->bytes_f16 += n_tokens * 4 * e->info.head_dim;
    u->pages_used += n_pages;
    u->tokens_high += n_live - n_low;
    u->tokens_low += n_low;
    u->tokens_dropped += n_tokens - n_live;
    u->slots += has_blocks(e) ? sides.high_pages * d->page_tokens + n_low : sides.held_slots;
}

pleat_status pleat__engine_device_get_usage(const pleat_engine *e, pleat_seq seq, pleat_cache_usage *out) {
    const pleat__engine_device *d = e->device;
    const pleat__place *only = seq.v ? pleat__engine_place(e, seq) : NULL;
    pleat_cache_usage u = {.pages_total = d->n_pages};
    if (seq.v && !only) return PLEAT_E_ARG;
    for (uint32_t i = 0; i < e->opt.max_seqs; i++) {
        const pleat__place *place = &d->places[i];
        if (place->is_open && (!only || only == place)) add_place(e, place, &u);
    }
    u.pages_own = u.pages_used;
    if (!seq.v) u.pages_used = d->n_used;
    u.pages_peak = seq.v ? u.pages_used : d->n_peak;
    *out = u;
    return PLEAT_OK;
}
