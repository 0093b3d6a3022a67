/* SPDX-License-Identifier: MIT
 *
 * clock.h: time that only moves forward, for figures about where a step's time went, and the time of day, for what others
 * are told.  No result depends on either.
 */
#ifndef PLEAT_CORE_CLOCK_H
#define PLEAT_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment. */
static inline uint64_t pleat__clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Seconds since 1970. */
static inline double pleat__wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
