/* SPDX-License-Identifier: MIT
 *
 * test_core.c: half floats bit for bit, worker teams, allocation, statuses, the CPU mask.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "check.h"
#include "core/error.h"
#include "core/half.h"
#include "core/memory.h"
#include "core/rng.h"
#include "pleat/pleat.h"

/* The definition, in double: sign * 2^(e-15) * (1 + m/1024), or subnormal. */
static double f16_value(uint16_t h) {
    const int e = (h >> 10) & 31, m = h & 1023;
    const double v = e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m / 1024.0, -14);
    return h & 0x8000 ? -v : v;
}

static void test_f16_reads_every_value(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = pleat__f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) != 0x7C00)
            CHECK((double)x == f16_value((uint16_t)h) && !signbit(x) == !(h & 0x8000));
        else
            CHECK((h & 0x3FF) ? isnan(x) : isinf(x));
    }
}

/* Rounding: the result is one of the two neighbours, the nearer, the even one when both are as near. */
static void test_f16_rounds_to_nearest_even(void) {
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        const double a = f16_value((uint16_t)h), b = f16_value((uint16_t)(h + 1)), mid = (a + b) / 2;
        CHECK_EQ_U64(pleat__f32_to_f16((float)a), h);
        CHECK_EQ_U64(pleat__f32_to_f16((float)mid), h & 1 ? h + 1 : h);
        CHECK_EQ_U64(pleat__f32_to_f16(nextafterf((float)mid, 0)), h);
        CHECK_EQ_U64(pleat__f32_to_f16(nextafterf((float)mid, INFINITY)), h + 1);
        CHECK_EQ_U64(pleat__f32_to_f16(-(float)a), h | 0x8000);
    }
    CHECK_EQ_U64(pleat__f32_to_f16(65504.0f), 0x7BFF);
    CHECK_EQ_U64(pleat__f32_to_f16(65519.9f), 0x7BFF);
    CHECK_EQ_U64(pleat__f32_to_f16(65520.0f), 0x7C00);
    CHECK_EQ_U64(pleat__f32_to_f16(1e30f), 0x7C00);
    CHECK_EQ_U64(pleat__f32_to_f16(-INFINITY), 0xFC00);
    CHECK(isnan(pleat__f16_to_f32(pleat__f32_to_f16(NAN))));
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static float hardware_f16_to_f32(uint16_t h) { return _cvtsh_ss(h); }

__attribute__((target("f16c"))) static uint16_t hardware_f32_to_f16(float x) {
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

static void test_f16_is_the_hardwares(void) {
    if (!(pleat_cpu_flags() & PLEAT_CPU_AVX2)) SKIP("no F16C");
    for (uint32_t h = 0; h < 65536; h++)
        CHECK_EQ_U64(pleat__f32_bits(pleat__f16_to_f32((uint16_t)h)),
                     pleat__f32_bits(hardware_f16_to_f32((uint16_t)h)));
    for (uint64_t i = check_rounds(1000000, 100000); i-- > 0;) {
        const float x = pleat__bits_f32((uint32_t)check_u64());
        CHECK_EQ_U64(pleat__f32_to_f16(x), hardware_f32_to_f16(x));
    }
}
#else
static void test_f16_is_the_hardwares(void) { SKIP("not x86"); }
#endif

typedef struct run_ctx {
    _Atomic uint32_t calls[1000];
    _Atomic uint32_t in_worker[8];
    _Atomic uint32_t overlaps;
} run_ctx;

static void count_unit(void *ctx, uint32_t unit, uint32_t worker) {
    run_ctx *r = ctx;
    if (atomic_fetch_add(&r->in_worker[worker], 1) != 0) atomic_fetch_add(&r->overlaps, 1);
    atomic_fetch_add(&r->calls[unit], 1);
    atomic_fetch_sub(&r->in_worker[worker], 1);
}

static void test_workers_run_each_unit_once(void) {
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        pleat_workers *team = NULL;
        if (!CHECK_STATUS(pleat_workers_create(n_threads, NULL, &team), PLEAT_OK)) return;
        CHECK_EQ_U64(pleat_workers_count(team), n_threads);
        run_ctx r;
        memset(&r, 0, sizeof r);
        const uint32_t n_loops = (uint32_t)check_rounds(2000, 200);
        for (uint32_t i = 0; i < n_loops; i++) pleat_workers_run(team, i % 1001, count_unit, &r);
        uint32_t want[1000] = {0};
        for (uint32_t i = 0; i < n_loops; i++)
            for (uint32_t u = 0; u < i % 1001; u++) want[u]++;
        for (uint32_t u = 0; u < 1000; u++) CHECK_EQ_U64(r.calls[u], want[u]);
        for (uint32_t worker = 0; worker < 8; worker++) CHECK_EQ_U64(r.in_worker[worker], 0);
        CHECK_EQ_U64(r.overlaps, 0);
        pleat_workers_destroy(&team);
        CHECK(team == NULL);
    }
    run_ctx r;
    memset(&r, 0, sizeof r);
    pleat_workers_run(NULL, 3, count_unit, &r);
    CHECK(r.calls[0] == 1 && r.calls[1] == 1 && r.calls[2] == 1);
}

static void test_workers_allocation_failure(void) {
    for (uint64_t nth = 1;; nth++) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_workers *team = NULL;
        const pleat_status st = pleat_workers_create(3, &ca.a, &team);
        if (st == PLEAT_OK) {
            pleat_workers_destroy(&team);
            CHECK_EQ_U64(ca.live, 0);
            CHECK(nth > 1);
            return;
        }
        CHECK_STATUS(st, PLEAT_E_MEMORY);
        CHECK(team == NULL);
        CHECK_EQ_U64(ca.live, 0);
    }
}

static void test_misuse(void) {
    pleat_workers *team = NULL;
    CHECK_STATUS(pleat_workers_create(257, NULL, &team), PLEAT_E_ARG);
    CHECK_STATUS(pleat_workers_create(1, NULL, NULL), PLEAT_E_ARG);
    pleat_workers_destroy(NULL);
    pleat_workers_destroy(&team);
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    CHECK(pleat__alloc(&al, UINT64_MAX, 2) == NULL);
    CHECK(pleat__alloc(&al, UINT64_MAX / 2, 1) == NULL);
}

static void test_words(void) {
    CHECK_EQ_STR(pleat_status_str(PLEAT_E_MEMORY), "out of memory");
    CHECK_EQ_STR(pleat_status_str(-9999), "unknown status");
    CHECK_EQ_STR(pleat_version(), PLEAT_VERSION_STRING);
    CHECK(strlen(pleat_build_info()) > 0);
    pleat_error err;
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    CHECK_STATUS(pleat__error_set(&err, PLEAT_E_IO, 7, "%s", text), PLEAT_E_IO);
    CHECK(strlen(err.text) == sizeof err.text - 1 && err.where == 7);
}

static void test_cpu_mask(void) {
    const uint32_t before = pleat_cpu_flags();
    pleat_cpu_mask(0);
    CHECK_EQ_U64(pleat_cpu_flags(), 0);
    pleat_cpu_mask(PLEAT_CPU_VNNI);
    CHECK_EQ_U64(pleat_cpu_flags(), 0); /* VNNI without AVX-512 is nothing */
    pleat_cpu_mask(before);
    CHECK_EQ_U64(pleat_cpu_flags(), before);
}

/* SplitMix64's published first outputs for seed 1234567. */
static void test_rng_is_splitmix64(void) {
    pleat__rng rng = {1234567};
    CHECK_EQ_U64(pleat__rng_u64(&rng), 6457827717110365317u);
    CHECK_EQ_U64(pleat__rng_u64(&rng), 3203168211198807973u);
    for (int i = 0; i < 10000; i++) {
        const float x = pleat__rng_f32(&rng);
        CHECK(x >= 0 && x < 1);
        CHECK(pleat__rng_below(&rng, 7) < 7);
    }
}

static const check_test tests[] = {
    {"f16_reads_every_value", test_f16_reads_every_value},
    {"f16_rounds_to_nearest_even", test_f16_rounds_to_nearest_even},
    {"f16_is_the_hardwares", test_f16_is_the_hardwares},
    {"workers_run_each_unit_once", test_workers_run_each_unit_once},
    {"workers_allocation_failure", test_workers_allocation_failure},
    {"misuse", test_misuse},
    {"words", test_words},
    {"cpu_mask", test_cpu_mask},
    {"rng_is_splitmix64", test_rng_is_splitmix64},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
