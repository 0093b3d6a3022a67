/* SPDX-License-Identifier: MIT
 *
 * stats.h: statistics of a model's keys, queries and values, which the compressor `rd` chooses its steps and codebooks
 * by, and which the policy `novel:mean=model` has the mean key from: of a model, not of a request.
 *
 *     collect     pleat_collector_create ── an engine with options.collector reads texts (moments)
 *                                        ── pleat_collector_count ── and the same or other texts again (codes)
 *                                        ── pleat_collector_finish ──> pleat_stats ── pleat_stats_write ──> file
 *     use         pleat_stats_load ──> options.stats of a cache or an engine whose spec needs them
 *
 * Layers without a sliding window have, for each KV head and channel: the mean key before RoPE; the mean square of
 * queries after it; and the deviation of keys from that mean, turned to their positions.  Of values it is the mean square
 * over their token's.  And there are bases, in which components of keys, and of values, are not correlated.  The first
 * four tokens of a sequence are left out: they are unlike all others.  For classes of spread there are codebooks.  And a
 * layer has scales, by which a spec's steps are multiplied.
 *
 * Statistics do not change once they are made; any number of caches and threads may read them at once.
 */
#ifndef PLEAT_STATS_H
#define PLEAT_STATS_H

#include "pleat/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat_stats pleat_stats;

/* Read a file.  PLEAT_E_IO, PLEAT_E_MEMORY; PLEAT_E_FORMAT for what is no such file or a damaged one, PLEAT_E_UNSUPPORTED
 * for another version; err says which, and may be NULL. */
PLEAT_API pleat_status pleat_stats_load(const char *path, const pleat_allocator *allocator, pleat_stats **out,
                                        pleat_error *err);
/* The same from n_bytes bytes in memory, which are not needed afterwards. */
PLEAT_API pleat_status pleat_stats_read(const void *bytes, uint64_t n_bytes, const pleat_allocator *allocator,
                                        pleat_stats **out, pleat_error *err);

/* Bytes of the file, and write them; cap >= pleat_stats_bytes(), else PLEAT_E_ARG.  The same statistics are the same
 * bytes. */
PLEAT_API uint64_t pleat_stats_bytes(const pleat_stats *stats);
PLEAT_API pleat_status pleat_stats_write(const pleat_stats *stats, void *out, uint64_t cap);

/* The fingerprint of the model that they are of (pleat_model_fingerprint()), and their own: hexadecimal digits. */
PLEAT_API const char *pleat_stats_model(const pleat_stats *stats);
PLEAT_API const char *pleat_stats_fingerprint(const pleat_stats *stats);

/* Positions that keys' bases serve (pleat_collector_count()): rd takes more bytes, or loses more, in sequences that go
 * further.  0: not known, for NULL and for files that were made before it was kept. */
PLEAT_API uint32_t pleat_stats_n_positions(const pleat_stats *stats);

/* Set *stats to NULL; NULL and *stats == NULL are fine. */
PLEAT_API void pleat_stats_destroy(pleat_stats **stats);

/* ---- scales ------------------------------------------------------------------------------------------ */

/* What rd's steps are multiplied by in a layer: k of keys, v of values.  1 as collected.  Models differ in what a step
 * costs, and layers do too: with scales that were fitted (`pleat stats` does) one k and one v serve all. */
typedef struct pleat_stats_scale {
    float k, v;
} pleat_stats_scale;
#define PLEAT_STATS_SCALE_MAX 64.0f /* and 1/64 the least */

/* Layers of the model; 0 for NULL. */
PLEAT_API uint32_t pleat_stats_n_layers(const pleat_stats *stats);

/* A layer's scales; zeros where nothing is known of it: it has a window, or there is no such layer. */
PLEAT_API pleat_stats_scale pleat_stats_get_scale(const pleat_stats *stats, uint32_t layer);

/* The same statistics with other scales, [layers]; those of layers without statistics are not looked at.  Both are the
 * caller's.  PLEAT_E_RANGE for a scale that is not within 1/64 to 64, PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_stats_rescale(const pleat_stats *stats, const pleat_stats_scale *scales,
                                           const pleat_allocator *allocator, pleat_stats **out);

/* ---- collecting -------------------------------------------------------------------------------------- */

typedef struct pleat_collector pleat_collector;

/* A collector.  It learns the model's shape from the first engine that is made with it, and looks at every step of two
 * tokens or more.  Driven by the thread that drives the engine, and outlives it. */
PLEAT_API pleat_status pleat_collector_create(const pleat_allocator *allocator, pleat_collector **out);

/* From here on codes are counted, for codebooks.  What keys are coded in serves positions up to n_positions: those of the
 * longest sequence that is to be kept.  PLEAT_E_STATE before 64 tokens were seen, or a second time; PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_collector_count(pleat_collector *collector, uint32_t n_positions);

/* Tokens that were seen so far, in both passes; without the first four of a sequence. */
PLEAT_API uint64_t pleat_collector_n_tokens(const pleat_collector *collector);

/* What was found.  model: the fingerprint to keep.  PLEAT_E_STATE before codes were counted, PLEAT_E_MEMORY. */
PLEAT_API pleat_status pleat_collector_finish(pleat_collector *collector, const char model[PLEAT_FINGERPRINT_CAP],
                                              pleat_stats **out);

PLEAT_API void pleat_collector_destroy(pleat_collector **collector);

#ifdef __cplusplus
}
#endif
#endif
