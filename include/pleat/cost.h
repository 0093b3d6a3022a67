/* SPDX-License-Identifier: MIT
 *
 * cost.h: how long decode attention of one layer takes: work counted from the kernels' structure, times rates that the
 * caller has measured on its machine.
 *
 *     compute = sum over kinds of n[kind] * ns[kind]                      the busiest thread's share
 *     memory  = bytes / (gb_per_s / threads)
 *     time    = max(compute, memory) + exposed * min(compute, memory) + starts * start_ns
 *
 * The units are few and the same for every format, so rates measured with one format predict the others.  Nothing here
 * reads a clock.  Example: time some calls whose caches stay in the processor's, pleat_cost_fit_core(); read plain
 * memory, gb_per_s; time two or more calls from memory, pleat_cost_fit_memory(); then pleat_cost_ns() predicts.
 * Experimental: all of this may change between versions.
 */
#ifndef PLEAT_COST_H
#define PLEAT_COST_H

#include "pleat/common.h"
#include "pleat/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of work inside a core. */
#define PLEAT_COST_CALL 0    /* 1: waking the threads and waiting for the last */
#define PLEAT_COST_UNIT 1    /* ranges of slots: taking one, merging its result */
#define PLEAT_COST_QUERY 2   /* query values made ready, and results finished: G*d in each unit */
#define PLEAT_COST_PRODUCT 3 /* vector instructions that meet keys' and values' codes */
#define PLEAT_COST_SOFTMAX 4 /* vector instructions between the two */
#define PLEAT_COST_LINE 5    /* cache lines of codes and metadata that go through the core */
#define PLEAT_COST_KINDS 6

/* One call: a query of each sequence against all it has stored, one layer. */
typedef struct pleat_cost_shape {
    pleat_format format;
    uint32_t head_dim;  /* a multiple of 16, 16..512 */
    uint32_t n_group;   /* query heads that share a KV head, >= 1 */
    uint32_t n_lanes;   /* sequences times KV heads, >= 1 */
    uint32_t n_tokens;  /* in each lane, 1..2^24, as a cache's max_tokens */
    uint32_t n_threads; /* >= 1 */
    uint32_t cpu_flags; /* PLEAT_CPU_ bits: which kernels run */
} pleat_cost_shape;

typedef struct pleat_cost_work {
    double n[PLEAT_COST_KINDS]; /* of the busiest thread */
    double bytes;               /* codes and metadata that the busiest thread reads */
    double starts;              /* groups that the busiest thread reads before its prefetches arrive */
    uint32_t n_threads;
} pleat_cost_work;

typedef struct pleat_cost_rates {
    double ns[PLEAT_COST_KINDS]; /* each >= 0 */
    double gb_per_s;             /* speed at which all threads together read plain memory, > 0; 1e9 bytes */
    double exposed;              /* part of the shorter one of compute and memory that the longer does not hide, >= 0 */
    double start_ns;             /* >= 0 */
} pleat_cost_rates;

/* Count the work of a call.  PLEAT_E_ARG, and nothing written, if the shape is none that a cache can have.  O(1). */
PLEAT_API pleat_status pleat_cost_work_of(const pleat_cost_shape *shape, pleat_cost_work *out);

/* Nanoseconds that the work takes; with all in cache (from_memory 0) or read from memory. */
PLEAT_API double pleat_cost_ns(const pleat_cost_work *work, const pleat_cost_rates *rates, int from_memory);

/* Set rates->ns to what explains n calls in cache, measured_ns[i] for work[i], with the least squares of relative
 * deviations, none below 0.  The calls should differ in every kind; kinds that they cannot tell apart share their time
 * in some way.  PLEAT_E_ARG if n is 0 or a time is not positive. */
PLEAT_API pleat_status pleat_cost_fit_core(const pleat_cost_work *work, const double *measured_ns, uint32_t n,
                                           pleat_cost_rates *rates);

/* Like pleat_cost_fit_core(), but set `exposed` and `start_ns` from calls that read memory; ns and gb_per_s are set. */
PLEAT_API pleat_status pleat_cost_fit_memory(const pleat_cost_work *work, const double *measured_ns, uint32_t n,
                                             pleat_cost_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
