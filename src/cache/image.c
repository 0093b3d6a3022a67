/* SPDX-License-Identifier: MIT
 *
 * image.c: a sequence as bytes in the host's memory, for preemption by swap.
 *
 * image_form.h has the form.  What is left out are pages that neither the sequence nor `base` will ever write, and that
 * both hold at the same place; so a base that has gone on since still has them.
 * (But for one whose sealed pages were opened by compression.)
 * An image is for this process and this cache.  Restore knows damage by the hash of all bytes, 64 bits of
 * XXH3, and even so checks every count before it takes a page, and what the kind can check once its pages are there.
 */
#include <string.h>

#include "cache/image_form.h"
#include "cache/keep/keep.h"
#include "core/checked.h"
#include "core/error.h"

static pleat__image_form form_of(const pleat_cache *c) {
    const char *key = c->keep->image_key ? c->keep->image_key(c) : "";
    return (pleat__image_form){.n_lanes = c->n_lanes,
                               .page_bytes = c->page_bytes,
                               .kind =
                                   pleat__image_kind(&c->opt.spec, c->opt.head_dim, c->page_tokens[PLEAT__HIGH], key)};
}

static bool parts_of(const pleat_cache *c, const pleat__image_form *form, uint32_t n_classed, uint64_t n_pages,
                     uint64_t n_stored, pleat__image_parts *p) {
    const uint64_t kind_bytes = c->keep->image_bytes ? c->keep->image_bytes(c, n_classed) : 0;
    return pleat__image_parts_of(form, kind_bytes, n_pages, n_stored, p);
}

/* ---- walking over pages ------------------------------------------------------------------------------ */

/* Every page of a table in the image's order. */
typedef struct page_walk {
    const pleat__table *table;
    uint32_t lane;
    pleat__side side;
    uint32_t idx; /* of the next page */
} page_walk;

static bool next_page(page_walk *w, uint32_t *lane, pleat__side *side, uint32_t *idx) {
    while (w->lane < w->table->n_lanes && w->idx == w->table->n_pages[w->side][w->lane]) {
        w->idx = 0;
        w->lane += w->side == PLEAT__LOW;
        w->side = w->side == PLEAT__LOW ? PLEAT__HIGH : PLEAT__LOW;
    }
    if (w->lane == w->table->n_lanes) return false;
    *lane = w->lane;
    *side = w->side;
    *idx = w->idx++;
    return true;
}

/* The base's page at this place, if it will not be written; else NULL. */
static const pleat__page_id *base_page(const pleat_cache *c, const pleat__sequence *base, uint32_t lane,
                                       pleat__side side, uint32_t idx) {
    if (!base || idx >= pleat__keep_of_lane(c, lane)->first_written(c, &base->table, lane, side)) return NULL;
    return pleat__table_cell(&base->table, lane, side, idx);
}

/* Is the page left to the base? */
static bool is_left_out(const pleat_cache *c, const pleat__sequence *seq, const pleat__sequence *base, uint32_t lane,
                        pleat__side side, uint32_t idx) {
    const pleat__page_id *there = base_page(c, base, lane, side, idx);
    return there && idx < pleat__keep_of_lane(c, lane)->first_written(c, &seq->table, lane, side) &&
           there->v == pleat__table_cell(&seq->table, lane, side, idx)->v;
}

static uint64_t count_stored(const pleat_cache *c, const pleat__sequence *seq, const pleat__sequence *base) {
    if (!base) return seq->table.n_pages_all;
    page_walk walk = {.table = &seq->table};
    uint32_t lane, idx;
    pleat__side side;
    uint64_t n = 0;
    while (next_page(&walk, &lane, &side, &idx)) n += !is_left_out(c, seq, base, lane, side, idx);
    return n;
}

/* ---- save ---------------------------------------------------------------------------------------------- */

uint64_t pleat_cache_image_bytes(const pleat_cache *c, pleat_seq handle, pleat_seq base) {
    const pleat__sequence *seq = c && !c->step.is_open ? pleat__cache_seq(c, handle) : NULL;
    pleat__image_parts p;
    if (!seq) return 0;
    const pleat__image_form form = form_of(c);
    const uint64_t n_stored = count_stored(c, seq, pleat__cache_seq(c, base));
    if (!parts_of(c, &form, seq->n_classed, seq->table.n_pages_all, n_stored, &p)) return 0;
    return p.n_bytes;
}

static void save_lanes(const pleat__table *table, uint8_t *out) {
    for (uint32_t i = 0; i < table->n_lanes; i++, out += sizeof(pleat__lane)) {
        const pleat__lane lane = pleat__table_lane(table, i);
        memcpy(out, &lane, sizeof lane);
    }
}

/* A page as an image has it: what its own tokens have put there, and zeros. */
static void save_page(const pleat_cache *c, const pleat__table *table, uint32_t lane, pleat__side side, uint32_t idx,
                      uint8_t *out) {
    const uint8_t *page = c->pages + (uint64_t)pleat__table_cell(table, lane, side, idx)->v * c->page_bytes;
    const uint32_t cap = c->page_tokens[side], n_slots = table->n_slots[side][lane];
    const uint32_t n_before = idx * cap < n_slots ? idx * cap : n_slots,
                   n_here = pleat__min_u32(n_slots - n_before, cap);
    if (side == PLEAT__HIGH || c->traits.low_page_tokens > 0) {
        pleat__quant_copy_page(pleat__cache_layout(c, lane, side), out, page, c->page_bytes, n_here);
        return;
    }
    const uint64_t n_bytes = (uint64_t)n_here * PLEAT__BLOCK_ALIGN; /* of payloads */
    memcpy(out, page, n_bytes);
    memset(out + n_bytes, 0, c->page_bytes - n_bytes);
}

/* All pages but those that are left to the base, and what is here. */
static void save_pages(const pleat_cache *c, const pleat__sequence *seq, const pleat__sequence *base, uint8_t *flag,
                       uint8_t *page) {
    page_walk walk = {.table = &seq->table};
    uint32_t lane, idx;
    pleat__side side;
    while (next_page(&walk, &lane, &side, &idx)) {
        *flag = !is_left_out(c, seq, base, lane, side, idx);
        if (!*flag++) continue;
        save_page(c, &seq->table, lane, side, idx, page);
        page += c->page_bytes;
    }
}

pleat_status pleat_cache_save(const pleat_cache *c, pleat_seq handle, pleat_seq base_handle, void *image,
                              uint64_t cap) {
    const pleat__sequence *seq = c ? pleat__cache_seq(c, handle) : NULL;
    const pleat__sequence *base = c && base_handle.v ? pleat__cache_seq(c, base_handle) : NULL;
    if (!seq || !image || (base_handle.v && !base)) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    const uint64_t n_stored = count_stored(c, seq, base);
    const pleat__image_form form = form_of(c);
    pleat__image_parts p;
    if (!parts_of(c, &form, seq->n_classed, seq->table.n_pages_all, n_stored, &p) || p.n_bytes > cap)
        return PLEAT_E_ARG;
    uint8_t *out = image;
    pleat__image_header head = pleat__image_header_of(&form);
    head.n_bytes = p.n_bytes;
    head.max_tokens = seq->max_tokens;
    head.n_tokens = seq->n_tokens;
    head.n_classed = seq->n_classed;
    head.n_prompt = seq->n_prompt;
    head.base = base_handle.v;
    head.base_opened = base ? base->n_opened : 0;
    head.n_pages = seq->table.n_pages_all;
    head.n_stored = n_stored;
    head.ah = seq->spec.ah;
    head.al = seq->spec.al;
    memcpy(out, &head, sizeof head);
    save_lanes(&seq->table, out + p.lanes_at);
    if (c->keep->write_image) c->keep->write_image(c, seq, out + p.kind_at);
    save_pages(c, seq, base, out + p.flags_at, out + p.pages_at);
    const uint64_t hash = pleat__image_hash(image, p.n_bytes);
    memcpy(out, &hash, sizeof hash);
    return PLEAT_OK;
}

/* ---- restore ------------------------------------------------------------------------------------------- */

/* The header, if the image can be this cache's. */
static bool read_header(const pleat_cache *c, const void *image, uint64_t n_bytes, pleat__image_header *head) {
    const pleat__image_form form = form_of(c);
    pleat__image_parts p;
    return pleat__image_read_header(&form, image, n_bytes, head) &&
           parts_of(c, &form, head->n_classed, head->n_pages, head->n_stored, &p) && p.n_bytes == n_bytes;
}

uint64_t pleat_cache_image_pages(const pleat_cache *c, const void *image, uint64_t n_bytes) {
    pleat__image_header head;
    return c && read_header(c, image, n_bytes, &head) ? head.n_stored : 0;
}

int pleat_cache_image_is_whole(const void *image, uint64_t n_bytes) { return pleat__image_is_whole(image, n_bytes); }

/* Table's rules (1) to (3) and (5) for one lane, and its kind's. */
static bool lane_is_sound(const pleat_cache *c, const pleat__table *table, uint32_t lane, const pleat__lane *l,
                          const pleat__image_counts *counts) {
    if (!pleat__keep_of_lane(c, lane)->lane_is_sound(c, lane, l, counts)) return false;
    if ((uint64_t)l->n_pages[0] + l->n_pages[1] > table->row_len || l->hole > l->n_slots[0]) return false;
    if (l->n_dead > l->n_slots[0] - (l->hole ? 1 : 0)) return false;
    for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
        const uint32_t tokens = c->page_tokens[side];
        if (l->n_pages[side] != pleat__div_up_u32(l->n_slots[side], tokens) ||
            (uint64_t)l->n_sealed[side] * tokens > l->n_slots[side])
            return false;
    }
    return true;
}

static pleat__image_counts counts_of(const pleat__image_header *head) {
    return (pleat__image_counts){.n_tokens = head->n_tokens, .n_classed = head->n_classed};
}

/* Counts of the table, all but its pages.  False: they break its rules. */
static bool restore_lanes(const pleat_cache *c, const uint8_t *in, const pleat__image_header *head,
                          pleat__table *table) {
    const pleat__image_counts counts = counts_of(head);
    for (uint32_t i = 0; i < table->n_lanes; i++, in += sizeof(pleat__lane)) {
        pleat__lane lane;
        memcpy(&lane, in, sizeof lane);
        if (!lane_is_sound(c, table, i, &lane, &counts)) return false;
        for (int side = PLEAT__HIGH; side <= PLEAT__LOW; side++) {
            table->n_pages[side][i] = lane.n_pages[side];
            table->n_slots[side][i] = lane.n_slots[side];
            table->n_sealed[side][i] = lane.n_sealed[side];
        }
        table->hole[i] = lane.hole;
        table->n_dead[i] = lane.n_dead;
        table->n_pages_all += (uint64_t)lane.n_pages[0] + lane.n_pages[1];
    }
    return table->n_pages_all == head->n_pages;
}

/* Do the flags say what the header says, and does the base hold what is left out? */
static bool flags_are_sound(const pleat_cache *c, const uint8_t *flag, const pleat__image_header *head,
                            const pleat__table *table, const pleat__sequence *base) {
    page_walk walk = {.table = table};
    uint32_t lane, idx;
    pleat__side side;
    uint64_t n_stored = 0;
    while (next_page(&walk, &lane, &side, &idx)) {
        const bool is_stored = *flag++ != 0;
        n_stored += is_stored;
        if (!is_stored && !base_page(c, base, lane, side, idx)) return false;
    }
    return n_stored == head->n_stored;
}

/* All is checked and enough pages are free. */
static void restore_pages(pleat_cache *c, const uint8_t *flag, const uint8_t *page, pleat__table *table,
                          const pleat__sequence *base) {
    pleat__pool_taker taker = pleat__pool_taker_at(&c->pool, 0);
    page_walk walk = {.table = table};
    uint32_t lane, idx, n_taken = 0;
    pleat__side side;
    while (next_page(&walk, &lane, &side, &idx)) {
        pleat__page_id *cell = pleat__table_cell(table, lane, side, idx);
        if (*flag++) {
            *cell = pleat__pool_take(&taker);
            memcpy(c->pages + cell->v * c->page_bytes, page, c->page_bytes);
            page += c->page_bytes;
            n_taken++;
        } else {
            *cell = *base_page(c, base, lane, side, idx);
            pleat__pool_ref(&c->pool, *cell);
        }
    }
    pleat__pool_advance(&c->pool, n_taken);
}

/* What pages hold is seen once they are there. */
static bool pages_are_intact(const pleat_cache *c, const pleat__sequence *seq) {
    uint8_t *scratch = pleat__cache_scratch(c, 0).base;
    for (uint32_t lane = 0; lane < c->n_lanes; lane++) {
        const pleat__keep *keep = pleat__keep_of_lane(c, lane);
        if (keep->is_intact && !keep->is_intact(c, seq, lane, scratch)) return false;
    }
    return true;
}

/* Fill an open, empty sequence.  If that fails it may be half filled, but holds the pages that its table says. */
static pleat_status restore_into(pleat_cache *c, const uint8_t *in, const pleat__image_header *head,
                                 pleat__sequence *seq, const pleat__sequence *base) {
    const pleat__image_form form = form_of(c);
    pleat__image_parts p;
    (void)parts_of(c, &form, head->n_classed, head->n_pages, head->n_stored, &p);
    if (c->keep->reserve) PLEAT_TRY(c->keep->reserve(c, seq, head->n_classed));
    const pleat__image_counts counts = counts_of(head);
    const bool is_sound = restore_lanes(c, in + p.lanes_at, head, &seq->table) &&
                          (!c->keep->read_image || c->keep->read_image(c, in + p.kind_at, &counts, seq)) &&
                          flags_are_sound(c, in + p.flags_at, head, &seq->table, base);
    if (!is_sound || head->n_stored > c->pool.n_free) {
        pleat__table_init(&seq->table); /* it holds no page yet */
        return is_sound ? PLEAT_AGAIN : PLEAT_E_FORMAT;
    }
    restore_pages(c, in + p.flags_at, in + p.pages_at, &seq->table, base);
    seq->n_tokens = head->n_tokens;
    seq->n_classed = head->n_classed;
    seq->n_prompt = head->n_prompt;
    seq->n_pages_peak = seq->table.n_pages_all;
    seq->spec.ah = head->ah;
    seq->spec.al = head->al;
    return pages_are_intact(c, seq) ? PLEAT_OK : PLEAT_E_FORMAT;
}

pleat_status pleat_cache_restore_for(pleat_cache *c, const void *image, uint64_t n_bytes, pleat_seq base_handle,
                                     uint32_t max_tokens, pleat_seq *out) {
    if (!c || !image || !out) return PLEAT_E_ARG;
    if (c->step.is_open) return PLEAT_E_STATE;
    pleat__image_header head;
    const pleat__sequence *base = base_handle.v ? pleat__cache_seq(c, base_handle) : NULL;
    if (!read_header(c, image, n_bytes, &head) || head.hash != pleat__image_hash(image, n_bytes) ||
        head.base != base_handle.v || (base_handle.v && !base) || (base && head.base_opened != base->n_opened))
        return PLEAT_E_FORMAT;
    if (max_tokens < head.n_tokens || max_tokens > c->opt.max_tokens) return PLEAT_E_ARG;
    pleat__sequence *seq;
    PLEAT_TRY(pleat__cache_open_seq(c, max_tokens, &seq));
    const pleat_status status = restore_into(c, image, &head, seq, base);
    if (status != PLEAT_OK) {
        (void)pleat_cache_close(c, pleat__cache_handle(c, seq));
        return status;
    }
    *out = pleat__cache_handle(c, seq);
    return PLEAT_OK;
}

pleat_status pleat_cache_restore(pleat_cache *c, const void *image, uint64_t n_bytes, pleat_seq base, pleat_seq *out) {
    pleat__image_header head;
    if (!c || !image || !out) return PLEAT_E_ARG;
    if (!read_header(c, image, n_bytes, &head) || head.max_tokens > c->opt.max_tokens)
        return c->step.is_open ? PLEAT_E_STATE : PLEAT_E_FORMAT;
    return pleat_cache_restore_for(c, image, n_bytes, base, head.max_tokens, out);
}
