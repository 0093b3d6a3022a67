/* SPDX-License-Identifier: MIT
 *
 * pins.c: pinned prefixes, as those hear of them who check a request from another thread.
 *
 *     (8) prefixes.pinned_pages = sum of (4) where n_pins > 0          n_pins: the pinned among it and all below
 *
 * A pinned prefix is no request's, so what is left for these is less.  But who begins with one takes none of the pages that
 * it shares with it.
 */
#include <string.h>

#include "serving/internal.h"

/* A pinned prefix, in a list that the inbox's lock guards. */
struct pleat__pin {
    pleat__pin *next;
    uint64_t id;           /* the prefix's */
    uint64_t shared_pages; /* whoever goes on from it shares them for good */
    uint64_t n_bytes;      /* of this block */
    uint32_t n_salt, n_path;
    int32_t path[]; /* [n_path] with marks (chunks.c); behind it the salt [n_salt] */
};

static pleat__pin **find(pleat__pin **at, uint64_t id) {
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

static pleat__pin *make(const pleat_serving *s, const pleat__kept *k) {
    const pleat__radix *tree = s->prefixes.tree;
    const uint32_t n_spec = (uint32_t)strlen(s->backend.shape.key) + 1;
    const uint32_t n_path = pleat__radix_info(tree, k->entry).n_tokens;
    uint32_t n_key;
    const uint32_t root = pleat__radix_path(tree, k->entry, s->prefixes.path);
    const char *key = pleat__radix_key(tree, root, &n_key);
    const uint64_t n_bytes = sizeof(pleat__pin) + n_path * sizeof(int32_t) + n_key - n_spec;
    pleat__pin *pin = pleat__alloc(&s->al, 1, n_bytes);
    if (!pin) return NULL;
    *pin = (pleat__pin){.id = k->id,
                        .shared_pages = pleat__serving_shared_pages(s, k),
                        .n_bytes = n_bytes,
                        .n_salt = n_key - n_spec,
                        .n_path = n_path};
    memcpy(pin->path, s->prefixes.path, n_path * sizeof(int32_t));
    memcpy(pin->path + n_path, key + n_spec, n_key - n_spec);
    return pin;
}

/* The driver's numbers, for the others; pin NULL: none comes.  What goes is returned, to be freed. */
static pleat__pin *publish(pleat_serving *s, uint64_t id, pleat__pin *pin) {
    pleat__inbox *in = &s->inbox;
    (void)pthread_mutex_lock(&in->lock);
    pleat__pin **at = find(&in->pins, id), *old = *at;
    if (old) *at = old->next;
    if (pin) pin->next = in->pins;
    if (pin) in->pins = pin;
    in->pinned_pages = s->prefixes.pinned_pages;
    (void)pthread_mutex_unlock(&in->lock);
    return old;
}

static void release(const pleat_serving *s, pleat__pin *pin) {
    if (pin) pleat__free(&s->al, pin, 1, pin->n_bytes);
}

/* ---- the driver's ------------------------------------------------------------------------------------------------------- */

pleat_status pleat__pins_add(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    const uint64_t old_pages = p->pinned_pages;
    for (pleat__kept_id i = id; i.v; i = p->kept[i.v].parent)
        if (p->kept[i.v].n_pins++ == 0) p->pinned_pages += p->kept[i.v].added_pages;
    const bool is_much = p->pinned_pages > s->backend.shape.n_pages / 2;
    pleat__pin *pin = is_much ? NULL : make(s, &p->kept[id.v]);
    if (pin) {
        (void)publish(s, p->kept[id.v].id, pin);
        return PLEAT_OK;
    }
    for (pleat__kept_id i = id; i.v; i = p->kept[i.v].parent) p->kept[i.v].n_pins--;
    p->pinned_pages = old_pages;
    return is_much ? PLEAT_E_LIMIT : PLEAT_E_MEMORY;
}

void pleat__pins_remove(pleat_serving *s, pleat__kept_id id) {
    pleat__prefixes *p = &s->prefixes;
    const uint64_t its_id = p->kept[id.v].id;
    for (; id.v; id = p->kept[id.v].parent)
        if (--p->kept[id.v].n_pins == 0) p->pinned_pages -= p->kept[id.v].added_pages;
    release(s, publish(s, its_id, NULL));
}

void pleat__pins_counted(pleat_serving *s, pleat__kept_id id) {
    pleat__inbox *in = &s->inbox;
    const pleat__kept *k = &s->prefixes.kept[id.v];
    (void)pthread_mutex_lock(&in->lock);
    pleat__pin *pin = *find(&in->pins, k->id);
    if (pin) pin->shared_pages = pleat__serving_shared_pages(s, k);
    in->pinned_pages = s->prefixes.pinned_pages;
    (void)pthread_mutex_unlock(&in->lock);
}

void pleat__pins_release(pleat_serving *s) {
    for (pleat__pin *pin = s->inbox.pins, *next; pin; pin = next) {
        next = pin->next;
        release(s, pin);
    }
    s->inbox.pins = NULL;
}

/* ---- anybody's ---------------------------------------------------------------------------------------------------------- */

static bool begins_with(const pleat_serving *s, const pleat__request *r, const pleat__pin *pin) {
    const size_t n_salt = r->salt ? strlen(r->salt) : 0;
    return n_salt == pin->n_salt && (n_salt == 0 || memcmp(pin->path + pin->n_path, r->salt, n_salt) == 0) &&
           pleat__serving_begins(s, r, pin->path, pin->n_path);
}

uint64_t pleat__pins_pages(pleat_serving *s, const pleat__request *r, uint64_t *n_shared) {
    pleat__inbox *in = &s->inbox;
    *n_shared = 0;
    (void)pthread_mutex_lock(&in->lock);
    for (const pleat__pin *pin = in->pins; pin; pin = pin->next)
        if (pin->shared_pages > *n_shared && begins_with(s, r, pin)) *n_shared = pin->shared_pages;
    const uint64_t n_pages = in->pinned_pages;
    (void)pthread_mutex_unlock(&in->lock);
    return n_pages;
}
