/* SPDX-License-Identifier: MIT
 *
 * linear.c: how fast the model's matrix products are, by themselves.
 *
 *     bench_linear [-t THREADS] [-r REPEATS] [-n ROWS] [-w TYPE] [-s ROWSxCOLS] [-a BITS]
 *
 * For each stored type and shape that it fits, or the one given (-w Q4_K -s 4096x4096), by variant, with activations of
 * BITS (16, or 8):
 *     vector   one row through enough matrices to fill BYTES, read in turn as a token reads a model's: GB/s of stored
 *              weights, and their share of a plain read of the same bytes, measured in turn; that asks for nothing
 *              ahead, so a kernel that does can be above it
 *     prompt   ROWS rows (128) through one matrix: 10^9 multiplications and additions a second, and their share of the
 *              peak of f32 FMAs of 512 or 256 bits, measured in turn; matrices of floats go through GEMM where it is
 *              built in
 * Figures are medians over the repeats.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/rng.h"
#include "fma_peak.h"
#include "hw/cpu.h"
#include "linear/linear.h"
#define BYTES ((uint64_t)64 << 20) /* a 4096x4096 matrix of f32 */
#define MAX_PROMPT 512u
#define MAX_REPEATS 31
#define MAX_WORKERS 64u
#define FMA_ROUNDS 200000u
#define CHUNK 32768u /* bytes of a unit of the plain read */

typedef struct shape {
    uint32_t rows, cols;
} shape;
static const shape shapes[] = {{512, 512}, {1408, 512}, {512, 1408}, {8192, 512}, {4096, 4096}};
static const struct {
    const char *name;
    uint32_t flags;
} variants[] = {
#if PLEAT_X86
    {"avx2", PLEAT_CPU_AVX2},
    {"avxvnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX_VNNI},
    {"avx512", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512},
    {"avx512vnni", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI},
    {"amx", PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI | PLEAT_CPU_AMX_INT8},
#else
    {"scalar", 0},
#endif
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

typedef struct bench {
    pleat_workers *team;
    uint32_t n_repeats, n_prompt, n_limbs;
    uint8_t *weights; /* [BYTES] */
    float *x, *y;     /* [MAX_PROMPT][widest] */
    pleat__coded *coded;
    float *scratch[MAX_WORKERS];
    volatile uint64_t sink;
} bench;

/* Codes, and as scales or floats of any type numbers whose products are neither subnormal nor too large. */
static void fill_weights(bench *b) {
    pleat__rng rng = {1};
    uint64_t *words = (uint64_t *)(void *)b->weights;
    for (uint64_t i = 0; i < BYTES / 8; i++)
        words[i] = (pleat__rng_u64(&rng) & 0x2FFF2FFF2FFF2FFFu) | 0x2000200020002000u;
}

/* Does this machine have the variant, with a kernel for the type that the one before lacks? */
static bool is_of_interest(uint32_t variant, pleat__weight_type type) {
    const uint32_t flags = variants[variant].flags;
    if ((pleat_cpu_flags() & flags) != flags) return false;
    pleat__linear_dsp dsp, before;
    pleat__linear_dsp_init(&dsp, flags, 2);
    pleat__linear_dsp_init(&before, variant > 0 ? variants[variant - 1].flags : 0, 2);
    return variant == 0 || dsp.mul[type] != before.mul[type];
}

/* ---- what is measured ------------------------------------------------------------------------------------------ */

typedef uint64_t words8 __attribute__((vector_size(64))); /* as wide as the widest loads, or in pieces */

#if PLEAT_X86
__attribute__((target("avx2")))
#endif
static void
read_unit(void *ctx, uint32_t unit, uint32_t worker) {
    bench *b = ctx;
    const words8 *p = (const words8 *)(const void *)(b->weights + (size_t)unit * CHUNK);
    words8 s0 = p[0], s1 = p[1], s2 = p[2], s3 = p[3];
    (void)worker;
    for (uint32_t i = 4; i < CHUNK / sizeof *p; i += 4) {
        s0 ^= p[i];
        s1 ^= p[i + 1];
        s2 ^= p[i + 2];
        s3 ^= p[i + 3];
    }
    s0 ^= s1 ^ s2 ^ s3;
    b->sink = s0[0] ^ s0[1] ^ s0[2] ^ s0[3] ^ s0[4] ^ s0[5] ^ s0[6] ^ s0[7];
}

static double time_read(bench *b, uint64_t bytes) {
    const double start = measure_now_s();
    pleat_workers_run(b->team, (uint32_t)(bytes / CHUNK), read_unit, b);
    return measure_now_s() - start;
}

static double time_job(bench *b, uint32_t variant, pleat__matrix w, uint32_t n_matrices, uint32_t n_rows) {
    pleat__linear_dsp dsp;
    pleat__linear_dsp_init(&dsp, variants[variant].flags, b->n_limbs);
    const pleat__linear_span span = {0, n_rows};
    const pleat__linear_job job = {.dsp = &dsp,
                                   .x = b->x,
                                   .spans = &span,
                                   .n_spans = 1,
                                   .parts = {{.w = &w, .y = b->y}},
                                   .n_parts = 1,
                                   .coded = b->coded,
                                   .scratch = b->scratch};
    const double start = measure_now_s();
    for (uint32_t i = 0; i < n_matrices; i++) {
        w.data = b->weights + (size_t)i * w.rows * w.row_bytes;
        pleat__linear_run(&job, b->team);
    }
    return measure_now_s() - start;
}

static void run_shape(bench *b, pleat__weight_type type, uint32_t rows, uint32_t cols) {
    pleat__matrix w = {type, rows, cols, pleat__weight_row_bytes(type, cols), b->weights};
    const uint32_t n_matrices = (uint32_t)(BYTES / (rows * w.row_bytes));
    const uint64_t bytes = n_matrices * rows * w.row_bytes;
    double read[MAX_REPEATS], vector[N_VARIANTS][MAX_REPEATS], prompt[N_VARIANTS][MAX_REPEATS];
    double peak[N_VARIANTS] = {0}; /* of a thread; the best of the repeats */
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        read[r] = time_read(b, bytes) / (double)(bytes / CHUNK * CHUNK) * (double)bytes;
        for (uint32_t v = 0; v < N_VARIANTS; v++) {
            if (!is_of_interest(v, type)) continue;
            vector[v][r] = time_job(b, v, w, n_matrices, 1);
            prompt[v][r] = time_job(b, v, w, 1, b->n_prompt);
            peak[v] = fmax(peak[v], fma_peak(variants[v].flags, FMA_ROUNDS) / 1e9);
        }
    }
    const double read_s = measure_median(read, b->n_repeats);
    for (uint32_t v = 0; v < N_VARIANTS; v++) {
        if (!is_of_interest(v, type)) continue;
        const double s = measure_median(vector[v], b->n_repeats);
        const double macs = (double)b->n_prompt * rows * cols / measure_median(prompt[v], b->n_repeats) / 1e9;
        const double all_peak = peak[v] > 0 ? peak[v] * pleat_workers_count(b->team) : NAN;
        printf("%-6s %5ux%-5u %-11s %7.1f %6.0f %% %9.1f %6.0f %%\n", pleat__weight_formats[type].name, rows, cols,
               variants[v].name, (double)bytes / s / 1e9, 100 * read_s / s, macs, 100 * macs / all_peak);
    }
    fflush(stdout);
}

/* All types and shapes, or what was asked for. */
static void run_all(bench *b, const char *only_type, shape only) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++) {
        if (only_type && strcmp(only_type, pleat__weight_formats[type].name) != 0) continue;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (shapes[i].cols % pleat__weight_formats[type].block != 0) continue;
            if (only.rows && (only.rows != shapes[i].rows || only.cols != shapes[i].cols)) continue;
            run_shape(b, (pleat__weight_type)type, shapes[i].rows, shapes[i].cols);
        }
    }
}

int main(int argc, char **argv) {
    uint32_t n_threads = 0;
    const char *only_type = NULL;
    shape only = {0, 0};
    bench b = {.n_repeats = 9, .n_prompt = 128, .n_limbs = 2};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-t") == 0) n_threads = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "-r") == 0) b.n_repeats = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "-n") == 0) b.n_prompt = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "-w") == 0) only_type = argv[i + 1];
        if (strcmp(argv[i], "-a") == 0) b.n_limbs = strcmp(argv[i + 1], "8") == 0 ? 1 : 2;
        if (strcmp(argv[i], "-s") == 0) sscanf(argv[i + 1], "%ux%u", &only.rows, &only.cols);
    }
    if (b.n_repeats < 3 || b.n_repeats > MAX_REPEATS) b.n_repeats = 9;
    if (b.n_prompt < 1 || b.n_prompt > MAX_PROMPT) b.n_prompt = 128;
    if (pleat_workers_create(n_threads, NULL, &b.team) != PLEAT_OK || pleat_workers_count(b.team) > MAX_WORKERS) {
        fprintf(stderr, "bench_linear: no team of %u threads\n", n_threads);
        return 1;
    }
    b.weights = reserve(BYTES);
    b.x = reserve((uint64_t)MAX_PROMPT * 4096 * sizeof *b.x);
    b.y = reserve((uint64_t)MAX_PROMPT * 8192 * sizeof *b.y);
    b.coded = reserve((uint64_t)MAX_PROMPT * 4096 / 32 * sizeof *b.coded);
    for (uint32_t i = 0; i < pleat_workers_count(b.team); i++)
        b.scratch[i] = reserve(pleat__linear_scratch_bytes(4096));
    fill_weights(&b);
    pleat__rng rng = {2};
    for (uint32_t i = 0; i < MAX_PROMPT * 4096; i++) b.x[i] = 2 * pleat__rng_f32(&rng) - 1;

    printf("%u threads\n                               vector: GB/s  of read   prompt: GMAC/s  of FMA\n",
           pleat_workers_count(b.team));
    run_all(&b, only_type, only);
    pleat_workers_destroy(&b.team);
    return 0;
}
