/* SPDX-License-Identifier: MIT
 *
 * places.c: see places.h.
 */
#include "places.h"

#include <stdlib.h>

#include "cli/lib/common.h"

void places_init(places *p, uint32_t n_max) {
    *p = (places){.holders = cli_alloc(n_max, sizeof *p->holders), .n_max = n_max};
}

void places_release(places *p) {
    free(p->holders);
    *p = (places){0};
}

uint32_t places_most(const places *p) {
    return (uint32_t)((PLACES_SHARE * (uint64_t)p->n_max + PLACES_SHARE + 1) / (PLACES_SHARE + 1));
}

/* The client's entry, or the one behind the last. */
static place_holder *find(const places *p, uint64_t who) {
    place_holder *h = p->holders;
    while (h < p->holders + p->n_holders && h->who != who) h++;
    return h;
}

int places_take(places *p, uint64_t who, uint32_t n) {
    place_holder *h = find(p, who);
    const int is_new = h == p->holders + p->n_holders;
    if (n == 0 || n > p->n_max - p->n_held) return 0;
    const uint64_t held = (is_new ? 0 : h->n) + (uint64_t)n - 1,
                   n_free = p->n_max - p->n_held - n + 1; /* at the last one */
    if (held > PLACES_SHARE * n_free) return 0;
    if (is_new) p->holders[p->n_holders++] = (place_holder){.who = who};
    h->n += n;
    p->n_held += n;
    return 1;
}

void places_return(places *p, uint64_t who, uint32_t n) {
    place_holder *h = find(p, who);
    if (n == 0 || h == p->holders + p->n_holders) return;
    h->n -= n;
    p->n_held -= n;
    if (h->n == 0) *h = p->holders[--p->n_holders];
}
