/* SPDX-License-Identifier: MIT
 *
 * image_form.h: a sequence as bytes, as caches on all devices write and read it.
 *
 *     image    header | counts of all lanes | what the kind adds | one byte a page: is it here? | the pages that are,
 *              whole
 *
 * Pages go lane by lane, the high side's first, each with its own tokens and nothing that others have left in it.  So
 * equal sequences make equal images, and none tells of another.
 */
#ifndef PLEAT_CACHE_IMAGE_FORM_H
#define PLEAT_CACHE_IMAGE_FORM_H

#include "page/table.h"
#include "pleat/spec.h"

typedef struct pleat__image_header {
    uint64_t hash; /* XXH3 of 64 bits, of all that follows */
    uint32_t magic;
    uint32_t n_lanes;
    uint64_t page_bytes;
    uint64_t kind;    /* of the cache: pleat__image_kind() */
    uint64_t n_bytes; /* of the whole image */
    uint32_t max_tokens, n_tokens, n_classed, n_prompt;
    uint32_t base; /* handle */
    uint32_t base_opened;
    uint64_t n_pages, n_stored;
    float ah, al;
} pleat__image_header;

/* What images of one cache have in common. */
typedef struct pleat__image_form {
    uint32_t n_lanes;
    uint64_t page_bytes, kind;
} pleat__image_form;

/* What images of two caches differ in beside counts: a hash of the spec's text, by shapes of pages.  key: what else the
 * formats are made with; "": nothing. */
uint64_t pleat__image_kind(const pleat_spec *spec, uint32_t head_dim, uint32_t page_tokens, const char *key);

/* Where the parts of an image stand. */
typedef struct pleat__image_parts {
    uint64_t lanes_at, kind_at, flags_at, pages_at, n_bytes;
} pleat__image_parts;

/* False: beyond 64 bits.  kind_bytes: of what the kind adds. */
bool pleat__image_parts_of(const pleat__image_form *form, uint64_t kind_bytes, uint64_t n_pages, uint64_t n_stored,
                           pleat__image_parts *parts);

/* A header of the form with its counts still to be filled in. */
pleat__image_header pleat__image_header_of(const pleat__image_form *form);

/* Is there a header of this form whose counts can be, of an image of n_bytes?  Where parts end is the caller's to check. */
bool pleat__image_read_header(const pleat__image_form *form, const void *image, uint64_t n_bytes,
                              pleat__image_header *out);

uint64_t pleat__image_hash(const void *image, uint64_t n_bytes);

/* Is it an image of n_bytes, of whatever form, whose hash holds? */
bool pleat__image_is_whole(const void *image, uint64_t n_bytes);

/* Is the position one of a sequence of n_tokens, seen for the first time?  seen: [n_tokens], of one lane. */
static inline bool pleat__position_is_new(int32_t position, uint32_t n_tokens, uint8_t *seen) {
    if (position < 0 || (uint32_t)position >= n_tokens || seen[position]) return false;
    seen[position] = 1;
    return true;
}

#endif
