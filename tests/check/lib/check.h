/* SPDX-License-Identifier: MIT
 *
 * check.h: the harness of every program in tests/check, whose folders are rooms as in src/; lib/ is for all of them.
 *
 *     static void test_add(void) { CHECK(1 + 1 == 2); }
 *
 *     static const check_test tests[] = {{"add", test_add}};
 *     int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
 *
 * A CHECK that fails prints file, line, values and the test's seed, and the test goes on; it is an expression,
 * so `if (!CHECK(p)) return;` ends a test that cannot go on.  A program's last line is
 * "N passed, N failed, N skipped", counting tests, and it exits 1 if any failed.
 *
 *     check_x            all tests          check_x pool       those with "pool" in their name
 *     check_x --list     names only
 *     check_x --device cuda       a GPU has to be there: without it tests of its kernels are skipped
 *
 * Environment: CHECK_SEED (default 1) seeds every test's random numbers.  CHECK_QUICK, if set and not 0, cuts
 * check_rounds() for slow builds, and CHECK_LEAST that and check_cases() for compute-sanitizer.  CHECK_KERNELS is a file
 * that launches of kernels are appended to (kernels.h).  PLEAT_CPU_MASK is handed to pleat_cpu_mask() before the first
 * test.
 *
 * Programs run in the repository's root, so "models/..." is a path.  test_NAME.c is built by itself as
 * check_NAME; a line " * ctest-labels: slow" in its head keeps it out of the jobs sanitize, plain and clang.
 * Not thread-safe: checks and random numbers belong to the main thread.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "pleat/common.h"

typedef struct check_test {
    const char *name; /* a filter finds it by any part */
    void (*fn)(void);
} check_test;

#define CHECK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

int check_main(const check_test *tests, size_t n_tests, int argc, char **argv);

/* ---- checks: each gives 1 if it held, else 0 ------------------------------------------------ */

#define CHECK(cond) check_that((cond) ? 1 : 0, __FILE__, __LINE__, #cond)
#define CHECK_EQ_U64(a, b) check_eq_u64((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_EQ_I64(a, b) check_eq_i64((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_EQ_STR(a, b) check_eq_str((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_EQ_MEM(a, b, n) check_eq_mem((a), (b), (n), __FILE__, __LINE__, #a " == " #b)
#define CHECK_STATUS(expr, want) check_status((expr), (want), __FILE__, __LINE__, #expr)
/* |a - b| <= tol; fails when any of them is NaN. */
#define CHECK_NEAR(a, b, tol) check_near((a), (b), (tol), __FILE__, __LINE__, #a " ~ " #b)
/* Same for n floats: reports the worst index.  A tolerance for all: tol_abs + tol_rel * |b[i]|. */
#define CHECK_NEAR_ALL(a, b, n, tol_abs, tol_rel) \
    check_near_all((a), (b), (n), (tol_abs), (tol_rel), __FILE__, __LINE__, #a " ~ " #b)

/* End the test, and count it as skipped; `reason` is printed.  For use in the test's own function. */
#define SKIP(reason)        \
    do {                    \
        check_skip(reason); \
        return;             \
    } while (0)

/* A line that is printed with each failure until the test ends or the next call: which variant, which sizes. */
void check_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Failures in this test so far; 0 while all is well. */
uint64_t check_failures(void);

int check_that(int ok, const char *file, int line, const char *what);
int check_eq_u64(uint64_t a, uint64_t b, const char *file, int line, const char *what);
int check_eq_i64(int64_t a, int64_t b, const char *file, int line, const char *what);
int check_eq_str(const char *a, const char *b, const char *file, int line, const char *what);
int check_eq_mem(const void *a, const void *b, size_t n_bytes, const char *file, int line, const char *what);
int check_status(pleat_status got, pleat_status want, const char *file, int line, const char *what);
int check_near(double a, double b, double tol, const char *file, int line, const char *what);
int check_near_all(const float *a, const float *b, size_t n, double tol_abs, double tol_rel, const char *file, int line,
                   const char *what);
void check_skip(const char *reason);

/* Tests of GPU kernels begin with CHECK_DEVICE(): they go on where this build and machine have a GPU, and are skipped, or
 * have failed under --device cuda, where not. */
#define CHECK_DEVICE()               \
    do {                             \
        if (!check_device()) return; \
    } while (0)
int check_device(void);

/* ---- random numbers: the same in every run of a test with the same CHECK_SEED ----------------- */

uint64_t check_u64(void);
uint64_t check_below(uint64_t n);                    /* 0..n-1, n > 0 */
uint64_t check_between(uint64_t low, uint64_t high); /* low..high, both included */
double check_uniform(double low, double high);
float check_normal(void); /* mean 0, deviation 1 */
void check_fill_normal(float *x, size_t n);
/* A fill of kind 0..CHECK_N_FILLS-1 scaled to `size`: normal, all equal, zeros, one outlier, alternating
 * extremes, tiny (subnormal in f16), ascending.  Kernels are tried with each. */
#define CHECK_N_FILLS 7u
void check_fill(float *x, size_t n, unsigned kind, float size);

/* `full` rounds, or `quick` where CHECK_QUICK is set. */
uint64_t check_rounds(uint64_t full, uint64_t quick);

/* `all` cases or steps, or `least` where CHECK_LEAST is set: so many that each kernel runs. */
uint64_t check_cases(uint64_t all, uint64_t least);

/* ---- an allocator that counts and fails ------------------------------------------------------- */

/* Try an operation with its 1st, 2nd, ... allocation failing until it succeeds:
 *
 *     check_alloc ca;
 *     for (uint64_t nth = 1;; nth++) {
 *         check_alloc_init(&ca, nth, 0);
 *         pleat_status st = pleat_x_create(&ca.a, &x);
 *         if (st == PLEAT_OK) break;
 *         CHECK_STATUS(st, PLEAT_E_MEMORY);
 *         CHECK_EQ_U64(ca.live, 0);
 *     }
 *     pleat_x_destroy(&x);
 *     CHECK_EQ_U64(ca.live, 0);
 *
 * New memory is filled with 0xD0, freed memory with 0xDF.  Free with the wrong size, of a stranger, or twice
 * is a failed check. */
typedef struct check_alloc {
    pleat_allocator a; /* hand &a to the object under test */
    uint64_t fail_at;  /* this call, counted from 1, returns NULL; 0: none */
    int for_ever;      /* 1: every later call too */
    uint64_t count;    /* calls of alloc so far, failed ones included */
    uint64_t live;     /* blocks held */
    uint64_t live_bytes;
    uint64_t peak_bytes;
} check_alloc;

void check_alloc_init(check_alloc *ca, uint64_t fail_at, int for_ever);

/* ---- buffers between guards ------------------------------------------------------------------- */

/* Memory that ends at an unreadable page (when bytes is a multiple of align, exactly there), with canaries in what is
 * left before and after.  A write outside makes check_buf_is_intact() 0 or faults; a read beyond faults. */
typedef struct check_buf {
    void *p; /* aligned to align, filled with 0xD0 */
    size_t bytes;
    unsigned char *map; /* [map_bytes], first and last page unreadable */
    size_t map_bytes;
} check_buf;

/* align is a power of two up to 4096.  bytes may be 0.  Ends the program if there is no memory. */
check_buf check_buf_new(size_t bytes, size_t align);
int check_buf_is_intact(const check_buf *buf);
void check_buf_free(check_buf *buf);

/* ---- files -------------------------------------------------------------------------------------- */

/* The whole file in malloc'ed memory with a NUL behind it, or NULL. */
unsigned char *check_read_file(const char *path, size_t *n_bytes);
/* Write a new file below $TMPDIR or /tmp and give its path in `path` [cap]; the caller unlinks.  1 if done. */
int check_write_temp(const void *bytes, size_t n_bytes, char *path, size_t cap);

#endif
