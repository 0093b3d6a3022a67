/* SPDX-License-Identifier: MIT
 *
 * image_form.c: see image_form.h.
 */
#include "cache/image_form.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/checked.h"

#define MAGIC 0x746c7034u

uint64_t pleat__image_kind(const pleat_spec *spec, uint32_t head_dim, uint32_t page_tokens, const char *key) {
    char text[PLEAT_SPEC_TEXT_CAP] = "";
    (void)pleat_spec_print(spec, text, sizeof text); /* a cache's spec has a text */
    const uint64_t hash = XXH3_64bits_withSeed(text, strlen(text), (uint64_t)head_dim << 32 | page_tokens);
    return key[0] ? XXH3_64bits_withSeed(key, strlen(key), hash) : hash;
}

bool pleat__image_parts_of(const pleat__image_form *form, uint64_t kind_bytes, uint64_t n_pages, uint64_t n_stored,
                           pleat__image_parts *p) {
    uint64_t page_bytes;
    *p = (pleat__image_parts){.lanes_at = sizeof(pleat__image_header)};
    p->kind_at = p->lanes_at + (uint64_t)form->n_lanes * sizeof(pleat__lane);
    p->flags_at = p->kind_at + kind_bytes;
    if (n_pages > UINT32_MAX || !pleat__mul_u64(n_stored, form->page_bytes, &page_bytes)) return false;
    p->pages_at = p->flags_at + n_pages;
    return pleat__add_u64(p->pages_at, page_bytes, &p->n_bytes);
}

pleat__image_header pleat__image_header_of(const pleat__image_form *form) {
    return (pleat__image_header){
        .magic = MAGIC, .n_lanes = form->n_lanes, .page_bytes = form->page_bytes, .kind = form->kind};
}

bool pleat__image_read_header(const pleat__image_form *form, const void *image, uint64_t n_bytes,
                              pleat__image_header *head) {
    if (!image || n_bytes < sizeof *head) return false;
    memcpy(head, image, sizeof *head);
    return head->magic == MAGIC && head->n_lanes == form->n_lanes && head->page_bytes == form->page_bytes &&
           head->kind == form->kind && head->n_bytes == n_bytes && head->n_stored <= head->n_pages &&
           head->max_tokens >= 1 && head->n_tokens <= head->max_tokens && head->n_classed <= head->n_tokens &&
           head->n_prompt <= head->n_tokens;
}

uint64_t pleat__image_hash(const void *image, uint64_t n_bytes) {
    const uint64_t from = sizeof(uint64_t); /* the hash itself */
    return XXH3_64bits((const uint8_t *)image + from, n_bytes - from);
}

bool pleat__image_is_whole(const void *image, uint64_t n_bytes) {
    pleat__image_header head;
    if (!image || n_bytes < sizeof head) return false;
    memcpy(&head, image, sizeof head);
    return head.magic == MAGIC && head.n_bytes == n_bytes && head.hash == pleat__image_hash(image, n_bytes);
}
