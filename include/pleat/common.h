/* SPDX-License-Identifier: MIT
 *
 * common.h: what every other public header needs: the export macro, the allocator, the worker
 * threads and the CPU feature mask.
 */
#ifndef PLEAT_COMMON_H
#define PLEAT_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include "pleat/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an object gets its memory.  Captured by value when the object is created.
 *   alloc   returns `bytes` (> 0) bytes aligned to `align` (a power of two), or NULL
 *   free    takes back what alloc returned, with the same `bytes`; p is never NULL
 * Both may be called from the thread that creates or destroys the object, and from no other,
 * unless a function says so.
 * Wherever a `const pleat_allocator *` may be NULL, NULL means aligned_alloc() and free(). */
typedef struct pleat_allocator {
    void *(*alloc)(void *ctx, size_t bytes, size_t align);
    void (*free)(void *ctx, void *p, size_t bytes);
    void *ctx;
} pleat_allocator;

/* A team of threads that runs loops of independent units.  The caller is one of the team, so a team
 * of 1 has no thread of its own.  Results never depend on the team's size: units are cut by the
 * input alone.  One loop at a time; a team may be shared by a cache, a model and an engine that are
 * driven from one thread. */
typedef struct pleat_workers pleat_workers;

/* Make a team of n_threads (1..256; 0: pleat_cpu_cores()).
 * PLEAT_E_ARG, PLEAT_E_MEMORY, or PLEAT_E_IO when a thread could not be started. */
PLEAT_API pleat_status pleat_workers_create(uint32_t n_threads, const pleat_allocator *allocator, pleat_workers **out);

/* How many threads the team has, the caller included.  NULL counts as a team of 1. */
PLEAT_API uint32_t pleat_workers_count(const pleat_workers *workers);

/* Call fn(ctx, unit, worker) once for each unit in 0..n_units-1.  Returns when all have returned.
 * worker is in 0..count-1; no two calls with the same worker overlap.  fn must not call this. */
PLEAT_API void pleat_workers_run(pleat_workers *workers, uint32_t n_units,
                                 void (*fn)(void *ctx, uint32_t unit, uint32_t worker), void *ctx);

/* Join the threads, free, set *workers to NULL.  NULL and *workers == NULL are fine. */
PLEAT_API void pleat_workers_destroy(pleat_workers **workers);

/* Physical cores that this process may use, 1..256: those of its affinity, with SMT siblings counted once, and at most as
 * many as the quotas of its cgroups (Linux, v1 and v2) pay for in full. */
PLEAT_API uint32_t pleat_cpu_cores(void);

/* CPU features that kernels may use.  A set bit means the feature is there and its registers are
 * saved by the operating system. */
#define PLEAT_CPU_AVX2 0x1u      /* AVX2, FMA, F16C */
#define PLEAT_CPU_AVX512 0x2u    /* AVX-512 F, BW, DQ, VL; implies PLEAT_CPU_AVX2 */
#define PLEAT_CPU_VNNI 0x4u      /* AVX-512 VNNI; implies PLEAT_CPU_AVX512 */
#define PLEAT_CPU_AVX_VNNI 0x8u  /* AVX-VNNI, its 256-bit form; implies PLEAT_CPU_AVX2 */
#define PLEAT_CPU_NEON 0x10u     /* Arm: Advanced SIMD, which every 64-bit one has */
#define PLEAT_CPU_DOTPROD 0x20u  /* Arm: its dot products; implies PLEAT_CPU_NEON */
#define PLEAT_CPU_AMX_INT8 0x40u /* AMX's tiles of bytes, which Linux was asked for; implies PLEAT_CPU_VNNI */
#define PLEAT_CPU_VBMI2 0x80u    /* AVX-512 VBMI, VBMI2 and GFNI; implies PLEAT_CPU_VNNI */

/* Features in use: those detected, less those masked off. */
PLEAT_API uint32_t pleat_cpu_flags(void);

/* Use only the features in `allowed` from now on (~0u: all).  Objects choose their kernels when they
 * are created, so existing ones keep theirs.  For tests and for telling a kernel's fault from others.
 * Thread-safe. */
PLEAT_API void pleat_cpu_mask(uint32_t allowed);

/* "Did you mean": the first of n_words words that word[0..n) is likeliest a slip for; NULL: it is near to none, or a
 * pointer is NULL.
 *     edits     insert, delete, replace, swap two neighbours: 1 each; case makes no difference
 *     near      no more edits than a third of the longer word's length; up to 4 letters the first one is right
 *               or the word's first letters, three at least, and no more: "stream" for "streaming", which count as 1
 * For words in ASCII, of which the first 63 bytes are compared.  From any thread. */
PLEAT_API const char *pleat_nearest_word(const char *word, size_t n, const char *const *words, size_t n_words);

/* Whether word[0..n) is near to `meant` by that rule: 1 or 0. */
PLEAT_API int pleat_word_is_near(const char *word, size_t n, const char *meant);

#ifdef __cplusplus
}
#endif
#endif
