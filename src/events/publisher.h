/* SPDX-License-Identifier: MIT
 *
 * publisher.h: batches on their way to subscribers, by a thread of its own.
 *
 *     pleat__publisher_post ──> queue ──the thread──> PUB:    topic, number, batch             to all who are there
 *                                            ├──> ring: the newest batches
 *     ROUTER: identity, "", number ──────────┴──> ROUTER: identity, "", topic, number, batch   for each from that number on
 *                                                         identity, "", "", -1, ""             behind the last
 *
 * Nobody is waited for: who reads too slowly misses batches, and sees by their numbers that he does.
 */
#ifndef PLEAT_EVENTS_PUBLISHER_H
#define PLEAT_EVENTS_PUBLISHER_H

#include "events/wire.h"
#include "pleat/events.h"

typedef struct pleat__publisher pleat__publisher;

pleat_status pleat__publisher_open(const pleat_events_options *opt, const pleat_allocator *al, pleat__publisher **out,
                                   pleat_error *err);

/* Number the batch, which is the publisher's from here on.  NULL: one was lost. */
void pleat__publisher_post(pleat__publisher *p, pleat__batch *batch);

/* Its part of the stats. */
void pleat__publisher_get_stats(pleat__publisher *p, pleat_events_stats *out);

/* Send what is queued, and free all.  NULL is fine. */
void pleat__publisher_close(pleat__publisher *p);

#endif
