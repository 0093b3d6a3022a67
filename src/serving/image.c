/* SPDX-License-Identifier: MIT
 *
 * image.c: images of swapped requests: saved, held, dropped, lost.
 *
 * An image leaves out the pages of a prefix that others use too, since that one is likely to stay.  What the request
 * alone stands on goes into the image.  Should the prefix be evicted nevertheless, the image is lost.
 *
 * All swapped requests stand in one list, so that an eviction finds those whose images it makes worthless.
 */
#include "core/error.h"
#include "serving/internal.h"

static void link_swapped(pleat_serving *s, pleat__request *r) {
    pleat__swapped_part *part = PLEAT__SWAPPED(r);
    part->prev = NULL;
    part->next = s->swapped;
    if (s->swapped) PLEAT__SWAPPED(s->swapped)->prev = r;
    s->swapped = r;
}

static void unlink_swapped(pleat_serving *s, const pleat__request *r) {
    const pleat__swapped_part *part = PLEAT__SWAPPED(r);
    if (part->next) PLEAT__SWAPPED(part->next)->prev = part->prev;
    *(part->prev ? &PLEAT__SWAPPED(part->prev)->next : &s->swapped) = part->next;
}

/* Is moving n_bytes out and in cheaper than computing the request again behind the prefix? */
static bool swap_pays(const pleat_serving *s, const pleat__request *r, pleat__kept_id base, uint64_t n_bytes) {
    if (s->opt.preemption != PLEAT_PREEMPT_CHEAPER) return true;
    const pleat__running_part *run = PLEAT__RUNNING(r);
    const uint32_t n_prompt = pleat__min_u32(run->n_stored, r->n_prompt);
    const uint32_t n_kept = base.v ? s->prefixes.kept[base.v].n_tokens : 0;
    const uint64_t kv_bytes = run->n_pages * s->backend.shape.page_bytes;
    const uint32_t n_chunks = pleat__div_up_u32(n_prompt - n_kept, s->backend.shape.chunk_tokens);
    return pleat__cost_swap_ns(&s->cost, n_bytes) < pleat__cost_recompute_ns(&s->cost, n_chunks, n_prompt - n_kept,
                                                                             run->n_stored - n_prompt, s->n_running - 1,
                                                                             kv_bytes);
}

bool pleat__serving_save_image(pleat_serving *s, const pleat__request *r, pleat__kept_id base, pleat__image *out) {
    const pleat__running_part *run = PLEAT__RUNNING(r);
    if (s->opt.preemption == PLEAT_PREEMPT_RECOMPUTE || run->n_stored == 0) return false;
    const pleat_seq base_seq = s->prefixes.kept[base.v].seq;
    const uint64_t n_bytes = s->backend.image_bytes(s->backend.ctx, run->seq, base_seq);
    if (n_bytes == 0 || n_bytes > s->opt.swap_bytes - s->stats.swapped_bytes) return false;
    if (!swap_pays(s, r, base, n_bytes)) return false;
    const uint64_t paused = pleat__serving_pause();
    const pleat_status status = s->backend.save(s->backend.ctx, run->seq, base_seq, out);
    pleat__serving_resume(s, paused, true);
    if (status != PLEAT_OK) return false;
    pleat__cost_observe_swap(&s->cost, out->n_bytes, out->moved_ns);
    s->step.swap_ns += out->moved_ns;
    return true;
}

void pleat__serving_hold_image(pleat_serving *s, pleat__request *r, const pleat__swapped_part *part) {
    pleat__request_enter(r, PLEAT__REQUEST_SWAPPED);
    *PLEAT__SWAPPED(r) = *part;
    link_swapped(s, r);
    s->stats.n_swapped++;
    s->stats.swapped_bytes += part->image.n_bytes;
    if (s->stats.swapped_bytes > s->stats.peak_swapped_bytes) s->stats.peak_swapped_bytes = s->stats.swapped_bytes;
}

void pleat__serving_drop_image(pleat_serving *s, pleat__request *r) {
    unlink_swapped(s, r);
    pleat__swapped_part *part = PLEAT__SWAPPED(r);
    s->stats.n_swapped--;
    s->stats.swapped_bytes -= part->image.n_bytes;
    if (part->fetch)
        pleat_store_fetch_end(&part->fetch);
    else
        s->backend.drop(s->backend.ctx, &part->image);
    pleat__request_enter(r, PLEAT__REQUEST_WAITING);
}

void pleat__serving_lose_images(pleat_serving *s, pleat__kept_id kept) {
    for (pleat__request *r = s->swapped, *next; r; r = next) {
        next = PLEAT__SWAPPED(r)->next;
        if (PLEAT__SWAPPED(r)->base.v != kept.v) continue;
        pleat__serving_drop_image(s, r);
        s->stats.images_lost++;
    }
}
