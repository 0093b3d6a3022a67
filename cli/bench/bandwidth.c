/* SPDX-License-Identifier: MIT
 *
 * bandwidth.c: see bandwidth.h.
 *
 * Each thread reads one run of the buffer after the other, 256 bytes a turn into four sums, so that no addition waits
 * for the one before.  The loop is compiled for the widest vectors that the machine has: one thread of an EPYC (Zen 5)
 * read 43 GB/s with 64-byte loads, 33 with SSE2's, 38 with SSE2's and software prefetch (2026-11).  The buffer asks for
 * huge pages, so that address translation costs nothing.
 *
 * How much has to be read: a machine that reports 480 MiB of level-3 cache shares it with others and keeps little.  Two
 * threads of one (Xeon with AMX, 2026-11, mean GB/s of three rounds) read a buffer of
 *
 *     MiB     64    128    256    512   1024   2048
 *     GB/s  53.7   40.9   30.5   28.1   26.7   27.0
 *
 * so 512 MiB read like any more, and nothing is gained by four times the level-3 cache beyond that.
 */
#include "bandwidth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/measure.h"

typedef uint64_t vec64 __attribute__((vector_size(64)));

enum {
    RUN_BYTES = 1 << 21, /* one unit of work: large enough that handing it out costs nothing */
    TURN_BYTES = 256,
};

/* Bytes of level-3 cache that this machine's CPUs reach; 0 if nobody says.  The C library knows the package's, of which
 * a virtual machine may have a small part; Linux knows the one that a CPU reaches. */
static size_t last_level_bytes(void) {
    size_t bytes = 0, own_kib = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long package = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (package > 0) bytes = (size_t)package;
#endif
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (f && fscanf(f, "%zuK", &own_kib) != 1) own_kib = 0;
    if (f) fclose(f);
    const size_t reached = own_kib * 1024 * (size_t)sysconf(_SC_NPROCESSORS_ONLN); /* were each CPU's another one */
    return own_kib && reached < bytes ? reached : bytes;
}

size_t bandwidth_working_set(void) {
    const size_t least = (size_t)256 << 20, most = (size_t)512 << 20, wanted = 4 * last_level_bytes();
    const size_t n = wanted < least ? least : wanted > most ? most : wanted;
    return (n + RUN_BYTES - 1) / RUN_BYTES * RUN_BYTES;
}

/* The loop, to be inlined into functions that are compiled for different vectors. */
static inline __attribute__((always_inline)) uint64_t read_bytes(const unsigned char *restrict p) {
    vec64 s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = 0; i < RUN_BYTES; i += TURN_BYTES) {
        const vec64 *v = (const vec64 *)(const void *)(p + i);
        s0 ^= v[0];
        s1 ^= v[1];
        s2 ^= v[2];
        s3 ^= v[3];
    }
    s0 ^= s1 ^ s2 ^ s3;
    return s0[0] ^ s0[1] ^ s0[2] ^ s0[3] ^ s0[4] ^ s0[5] ^ s0[6] ^ s0[7];
}

static uint64_t read_base(const unsigned char *p) { return read_bytes(p); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *p) { return read_bytes(p); }

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *p) { return read_bytes(p); }
#endif

static void read_run(void *ctx, uint32_t unit, uint32_t worker) {
    bandwidth *b = ctx;
    b->sums[(size_t)worker * 8] ^= b->read(b->buffer + (size_t)unit * RUN_BYTES);
}

int bandwidth_init(bandwidth *b, pleat_workers *workers) {
    memset(b, 0, sizeof *b);
    b->workers = workers;
    b->n_threads = pleat_workers_count(workers);
    b->n_bytes = bandwidth_working_set();
    b->read = read_base;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) b->read = read_avx2;
    if (__builtin_cpu_supports("avx512f")) b->read = read_avx512;
#endif
    b->buffer = aligned_alloc(RUN_BYTES, b->n_bytes);
    if (!b->buffer) {
        cli_error("out of memory: %zu bytes to measure the read bandwidth", b->n_bytes);
        return CLI_FAILED;
    }
#ifdef MADV_HUGEPAGE
    madvise(b->buffer, b->n_bytes, MADV_HUGEPAGE);
#endif
    memset(b->buffer, 0x5A, b->n_bytes);                            /* untouched pages would all be one page of zeros */
    b->sums = cli_alloc((size_t)b->n_threads * 8, sizeof *b->sums); /* a cache line for each thread */
    return CLI_OK;
}

double bandwidth_measure(bandwidth *b) {
    const double start_s = measure_now_s();
    pleat_workers_run(b->workers, (uint32_t)(b->n_bytes / RUN_BYTES), read_run, b);
    return (double)b->n_bytes / (measure_now_s() - start_s) / 1e9;
}

void bandwidth_release(bandwidth *b) {
    free(b->buffer);
    free(b->sums);
    b->buffer = NULL;
    b->sums = NULL;
}
