/* SPDX-License-Identifier: MIT
 *
 * check.c: runs the table of tests, and the tools that check.h promises.
 *
 * One test at a time; its state is in the one static struct `now`.  Each test starts from its own seed,
 * made of CHECK_SEED and its name, so a filter does not change what a test does.
 * The allocator keeps a header in front of each block and the blocks of one check_alloc in no list: what it
 * knows of a block stands in the header, and `live` counts the blocks.
 */
#include "check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"
#include "pleat/device.h"

#define MAX_REPORTS 10u /* failures printed in one test; the rest are counted */

static struct {
    const char *name;
    uint64_t seed;  /* CHECK_SEED */
    uint64_t state; /* of the generator */
    uint64_t failures;
    char skip_reason[256]; /* "": not skipped */
    char context[256];
    int device_required; /* --device cuda */
} now = {.seed = 1};

/* ---- checks ------------------------------------------------------------------------------------ */

/* Count a failure; 1 if there is still room to print about it. */
static int fail(const char *file, int line, const char *what) {
    now.failures++;
    if (now.failures > MAX_REPORTS) return 0;
    printf("%s:%d: in %s: CHECK_SEED=%" PRIu64 ": %s", file, line, now.name, now.seed, what);
    if (now.context[0]) printf(" [%s]", now.context);
    return 1;
}

int check_that(int ok, const char *file, int line, const char *what) {
    if (!ok && fail(file, line, what)) printf("\n");
    return ok;
}

int check_eq_u64(uint64_t a, uint64_t b, const char *file, int line, const char *what) {
    if (a == b) return 1;
    if (fail(file, line, what)) printf(": %" PRIu64 " is not %" PRIu64 "\n", a, b);
    return 0;
}

int check_eq_i64(int64_t a, int64_t b, const char *file, int line, const char *what) {
    if (a == b) return 1;
    if (fail(file, line, what)) printf(": %" PRId64 " is not %" PRId64 "\n", a, b);
    return 0;
}

int check_eq_str(const char *a, const char *b, const char *file, int line, const char *what) {
    if (a && b && strcmp(a, b) == 0) return 1;
    if (fail(file, line, what)) printf(": \"%s\" is not \"%s\"\n", a ? a : "(NULL)", b ? b : "(NULL)");
    return 0;
}

int check_eq_mem(const void *a, const void *b, size_t n_bytes, const char *file, int line, const char *what) {
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    while (i < n_bytes && x[i] == y[i]) i++;
    if (i == n_bytes) return 1;
    if (fail(file, line, what)) printf(": byte %zu of %zu is %02x, not %02x\n", i, n_bytes, x[i], y[i]);
    return 0;
}

int check_status(pleat_status got, pleat_status want, const char *file, int line, const char *what) {
    if (got == want) return 1;
    if (fail(file, line, what))
        printf(": %d (%s), not %d (%s)\n", got, pleat_status_str(got), want, pleat_status_str(want));
    return 0;
}

int check_near(double a, double b, double tol, const char *file, int line, const char *what) {
    if (fabs(a - b) <= tol) return 1;
    if (fail(file, line, what)) printf(": |%.9g - %.9g| = %.3g, not <= %.3g\n", a, b, fabs(a - b), tol);
    return 0;
}

int check_near_all(const float *a, const float *b, size_t n, double tol_abs, double tol_rel, const char *file, int line,
                   const char *what) {
    size_t worst = n;
    double worst_excess = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);
        double excess = diff - (tol_abs + tol_rel * fabs((double)b[i]));
        if (excess <= 0) continue;
        /* A NaN comes out on top of all others. */
        if (worst == n || !(excess <= worst_excess)) {
            worst = i;
            worst_excess = isnan(excess) ? INFINITY : excess;
        }
    }
    if (worst == n) return 1;
    if (fail(file, line, what))
        printf(": [%zu of %zu] %.9g is not near %.9g\n", worst, n, (double)a[worst], (double)b[worst]);
    return 0;
}

void check_skip(const char *reason) { snprintf(now.skip_reason, sizeof now.skip_reason, "%s", reason); }

int check_device(void) {
    uint32_t n;
    pleat_error err;
    if (pleat_device_count(&n, &err) == PLEAT_OK) return 1;
    if (!now.device_required)
        check_skip(err.text);
    else if (fail(__FILE__, __LINE__, "--device cuda"))
        printf(": %s\n", err.text);
    return 0;
}

void check_context(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(now.context, sizeof now.context, fmt, args);
    va_end(args);
}

uint64_t check_failures(void) { return now.failures; }

/* ---- random numbers: splitmix64 ------------------------------------------------------------------ */

uint64_t check_u64(void) {
    uint64_t z = now.state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t check_below(uint64_t n) { return check_u64() % n; /* the bias for n far below 2^64 is of no matter here */ }

uint64_t check_between(uint64_t low, uint64_t high) { return low + check_below(high - low + 1); }

double check_uniform(double low, double high) { return low + (high - low) * ((double)(check_u64() >> 11) * 0x1p-53); }

float check_normal(void) {
    double u = 1.0 - check_uniform(0, 1); /* in (0, 1] */
    double angle = 6.283185307179586 * check_uniform(0, 1);
    return (float)(sqrt(-2.0 * log(u)) * cos(angle));
}

void check_fill_normal(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = check_normal();
}

void check_fill(float *x, size_t n, unsigned kind, float size) {
    size_t outlier = n ? (size_t)check_below(n) : 0;
    for (size_t i = 0; i < n; i++) {
        switch (kind) {
            case 0: x[i] = size * check_normal(); break;
            case 1: x[i] = size; break;
            case 2: x[i] = 0; break;
            case 3: x[i] = i == outlier ? 100 * size : size * check_normal(); break;
            case 4: x[i] = i % 2 ? size : -size; break;
            case 5: x[i] = 1e-6f * check_normal(); break;
            default: x[i] = size * (float)i / (float)n; break;
        }
    }
}

/* ---- running ------------------------------------------------------------------------------------- */

static uint64_t env_u64(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t v = strtoull(text, &end, 0);
    if (*end) {
        fprintf(stderr, "%s=%s is not a number\n", name, text);
        exit(2);
    }
    return v;
}

static int is_least(void) { return env_u64("CHECK_LEAST", 0) != 0; }

uint64_t check_rounds(uint64_t full, uint64_t quick) { return env_u64("CHECK_QUICK", 0) || is_least() ? quick : full; }

uint64_t check_cases(uint64_t all, uint64_t least) { return is_least() ? least : all; }

/* FNV-1a, so that the tests of one program get different numbers. */
static uint64_t hash_name(const char *name) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

#if !PLEAT_CUDA
uint64_t check_kernels_launched(void) { return 0; }
int check_kernels_write(const char *path) { return path != NULL; }
#endif

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a test took: of a tool that makes kernels slow. */
static void say_ok(const char *name, double s, uint64_t n_launches) {
    if (n_launches > 0 && s >= 1)
        printf("ok   %s (%.1f s, %" PRIu64 " launches)\n", name, s, n_launches);
    else
        printf("ok   %s\n", name);
}

static void run_one(const check_test *test) {
    const double begun = seconds();
    const uint64_t launched = check_kernels_launched();
    now.name = test->name;
    now.state = now.seed ^ hash_name(test->name);
    now.failures = 0;
    now.skip_reason[0] = 0;
    now.context[0] = 0;
    test->fn();
    if (now.failures > MAX_REPORTS)
        printf("in %s: %" PRIu64 " failures, %u printed\n", now.name, now.failures, MAX_REPORTS);
    if (now.failures)
        printf("FAIL %s\n", test->name);
    else if (now.skip_reason[0])
        printf("skip %s: %s\n", test->name, now.skip_reason);
    else
        say_ok(test->name, seconds() - begun, check_kernels_launched() - launched);
}

/* CHECK_KERNELS; 1 if all is written. */
static int write_kernels(void) {
    const char *path = getenv("CHECK_KERNELS");
    if (!path || !*path || check_kernels_write(path)) return 1;
    fprintf(stderr, "CHECK_KERNELS=%s: not written\n", path);
    return 0;
}

int check_main(const check_test *tests, size_t n_tests, int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "--device") && !strcmp(argv[2], "cuda")) {
        now.device_required = 1;
        argc -= 2;
        argv += 2;
    }
    const char *filter = argc > 1 ? argv[1] : "";
    int list_only = strcmp(filter, "--list") == 0;
    unsigned passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a crash leaves the lines before it */
    now.seed = env_u64("CHECK_SEED", 1);
    pleat_cpu_mask((uint32_t)env_u64("PLEAT_CPU_MASK", UINT32_MAX));
    for (size_t i = 0; i < n_tests; i++) {
        if (list_only) {
            printf("%s\n", tests[i].name);
            continue;
        }
        if (!strstr(tests[i].name, filter)) continue;
        run_one(&tests[i]);
        if (now.failures)
            failed++;
        else if (now.skip_reason[0])
            skipped++;
        else
            passed++;
    }
    if (list_only) return 0;
    if (passed + failed + skipped == 0) {
        fprintf(stderr, "no test has \"%s\" in its name\n", filter);
        return 2;
    }
    if (!write_kernels()) failed++;
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}

/* ---- allocator ----------------------------------------------------------------------------------- */

/* In front of every block, at the end of a run of `offset` bytes that keeps the block aligned. */
typedef struct block_head {
    uint64_t magic;
    uint64_t bytes;
    uint64_t offset; /* from what posix_memalign gave to the block */
    const check_alloc *owner;
} block_head;

#define BLOCK_MAGIC 0x50C4B10C5A11E7EDu

static void *counted_alloc(void *ctx, size_t bytes, size_t align) {
    check_alloc *ca = ctx;
    ca->count++;
    CHECK(bytes > 0);
    CHECK(align > 0 && (align & (align - 1)) == 0);
    if (ca->fail_at && (ca->count == ca->fail_at || (ca->for_ever && ca->count > ca->fail_at))) return NULL;
    size_t offset = align < 64 ? 64 : align;
    void *base;
    if (bytes > SIZE_MAX - offset || posix_memalign(&base, offset, offset + bytes) != 0) return NULL;
    unsigned char *p = (unsigned char *)base + offset;
    block_head head = {BLOCK_MAGIC, bytes, offset, ca};
    memcpy(p - sizeof head, &head, sizeof head);
    memset(p, 0xD0, bytes);
    ca->live++;
    ca->live_bytes += bytes;
    if (ca->peak_bytes < ca->live_bytes) ca->peak_bytes = ca->live_bytes;
    return p;
}

static void counted_free(void *ctx, void *p, size_t bytes) {
    check_alloc *ca = ctx;
    block_head head;
    if (!CHECK(p != NULL)) return;
    memcpy(&head, (unsigned char *)p - sizeof head, sizeof head);
    if (!CHECK_EQ_U64(head.magic, BLOCK_MAGIC) || !CHECK(head.owner == ca)) return;
    CHECK_EQ_U64(head.bytes, bytes);
    memset(p, 0xDF, head.bytes);
    memset((unsigned char *)p - sizeof head, 0, sizeof head);
    ca->live--;
    ca->live_bytes -= head.bytes;
    free((unsigned char *)p - head.offset);
}

void check_alloc_init(check_alloc *ca, uint64_t fail_at, int for_ever) {
    *ca = (check_alloc){.a = {counted_alloc, counted_free, ca}, .fail_at = fail_at, .for_ever = for_ever};
}

/* ---- guarded buffers ------------------------------------------------------------------------------- */

#define CANARY 0xC5

check_buf check_buf_new(size_t bytes, size_t align) {
    size_t os_page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (bytes + align - 1) / align * align;
    size_t inner = (body + os_page - 1) / os_page * os_page + os_page; /* a page for the front canary */
    check_buf buf = {.bytes = bytes, .map_bytes = inner + 2 * os_page};
    void *map = mmap(NULL, buf.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect((char *)map + os_page, inner, PROT_READ | PROT_WRITE) != 0) {
        perror("check_buf_new");
        exit(1);
    }
    buf.map = map;
    memset(buf.map + os_page, CANARY, inner);
    buf.p = buf.map + os_page + inner - body;
    memset(buf.p, 0xD0, bytes);
    return buf;
}

int check_buf_is_intact(const check_buf *buf) {
    size_t os_page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *first = buf->map + os_page, *data = buf->p;
    const unsigned char *end = buf->map + buf->map_bytes - os_page;
    for (const unsigned char *c = first; c < data; c++)
        if (*c != CANARY) return 0;
    for (const unsigned char *c = data + buf->bytes; c < end; c++)
        if (*c != CANARY) return 0;
    return 1;
}

void check_buf_free(check_buf *buf) {
    if (buf->map) munmap(buf->map, buf->map_bytes);
    *buf = (check_buf){0};
}

/* ---- files ------------------------------------------------------------------------------------------- */

unsigned char *check_read_file(const char *path, size_t *n_bytes) {
    unsigned char *bytes = NULL;
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    if (fseek(f, 0, SEEK_END) != 0) goto done;
    long size = ftell(f);
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0) goto done;
    bytes = malloc((size_t)size + 1);
    if (!bytes) goto done;
    if (fread(bytes, 1, (size_t)size, f) != (size_t)size) {
        free(bytes);
        bytes = NULL;
        goto done;
    }
    bytes[size] = 0;
    *n_bytes = (size_t)size;
done:
    fclose(f);
    return bytes;
}

int check_write_temp(const void *bytes, size_t n_bytes, char *path, size_t cap) {
    const char *dir = getenv("TMPDIR");
    int n = snprintf(path, cap, "%s/pleat-check-XXXXXX", dir && *dir ? dir : "/tmp");
    if (n < 0 || (size_t)n >= cap) return 0;
    int fd = mkstemp(path);
    if (fd < 0) return 0;
    const char *p = bytes;
    while (n_bytes > 0) {
        ssize_t wrote = write(fd, p, n_bytes);
        if (wrote <= 0) break;
        p += wrote;
        n_bytes -= (size_t)wrote;
    }
    close(fd);
    if (n_bytes > 0) unlink(path);
    return n_bytes == 0;
}
