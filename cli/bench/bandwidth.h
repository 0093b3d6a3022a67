/* SPDX-License-Identifier: MIT
 *
 * bandwidth.h: how fast this machine's memory can be read right now, with the threads that a benchmark uses.
 *
 * Machines are shared and their speed drifts, so a benchmark measures this in the same run, turn and turn about with
 * its own loop, and reports its share of it.
 */
#ifndef PLEAT_CLI_BANDWIDTH_H
#define PLEAT_CLI_BANDWIDTH_H

#include "pleat/pleat.h"

typedef struct bandwidth {
    pleat_workers *workers; /* not owned */
    unsigned char *buffer;  /* [n_bytes], page-aligned; never zeros */
    size_t n_bytes;         /* bandwidth_working_set() */
    uint64_t *sums;         /* [workers]: keeps the reads from being optimised away */
    uint64_t (*read)(
        const unsigned char *p); /* reads one run; for this machine's widest vectors, whatever --cpu-mask */
    uint32_t n_threads;
} bandwidth;

/* Bytes that this machine's caches keep little of: four times the level-3 cache, 256 to 512 MiB. */
size_t bandwidth_working_set(void);

/* CLI_OK, or CLI_FAILED after a message. */
int bandwidth_init(bandwidth *b, pleat_workers *workers);

/* Read the buffer once with all threads; returns GB/s (1e9 bytes). */
double bandwidth_measure(bandwidth *b);
void bandwidth_release(bandwidth *b);

#endif
