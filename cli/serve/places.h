/* SPDX-License-Identifier: MIT
 *
 * places.h: who holds how many of the places for texts, --parallel and --queue, and who may have more.
 *
 * A client has more while it holds no more than SHARE times as many as are free.  So one alone may have nearly all, and of
 * two that want all each has nearly half.  Where there are more than SHARE + 1 places for each client, there is one for
 * who has none, however often others ask: without the rule it is who asks most often that meets a free place.
 *
 * Who a client is: a tenant; of keys without one, the key; where there are no keys, an address.
 */
#ifndef PLEAT_CLI_SERVE_PLACES_H
#define PLEAT_CLI_SERVE_PLACES_H

#include <stdint.h>

enum { PLACES_SHARE = 15 };

typedef struct place_holder {
    uint64_t who;
    uint32_t n;
} place_holder;

typedef struct places {
    place_holder *holders; /* [n_holders], of n_max; each holds something */
    uint32_t n_holders, n_held, n_max;
} places;

void places_init(places *p, uint32_t n_max);
void places_release(places *p);

/* The most that one client can have. */
uint32_t places_most(const places *p);

/* Take n places.  0: there are too few, or too few that this client may have. */
int places_take(places *p, uint64_t who, uint32_t n);

/* Return some that it has taken. */
void places_return(places *p, uint64_t who, uint32_t n);

#endif
