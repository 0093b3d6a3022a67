/* SPDX-License-Identifier: MIT
 *
 * store.c: images read from a store, beside the bytes alone.
 *
 *     bench_store [-r REPEATS] [-m MIB] PLACE        PLACE: a folder that may be made, or redis://HOST:PORT[,HOST:PORT]..
 *
 * Images of MIB (64) of random bytes are put, written, and then read, turn and turn about:
 *
 *     store    a body, found, read and checked, as a fetch does
 *     bytes    of a folder: the same file by pread in pieces of 1 MiB into one of them, as dd bs=1M reads it
 *     copied   the same into a whole body, which is not in the CPU's cache then
 *     sums     of a piece's, again and again in the CPU's cache: what checking takes by itself
 *
 * cold: the file is not in the system's cache of files (posix_fadvise); warm: it is.  Medians and spreads.  What is in the
 * place already stays, and what is put goes.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "image/sum.h"
#include "store/folder/folder.h"

enum { N_IMAGES = 4, TOKENS = 64, MAX_REPEATS = 64, PIECE = 1 << 20 };

typedef struct rig {
    pleat_store *store;
    int is_folder;
    uint64_t n_bytes; /* of a body */
    uint8_t *body, *want;
    pleat_token tokens[N_IMAGES][TOKENS];
    uint32_t repeats;
} rig;

static void fail(const char *why) {
    fprintf(stderr, "bench_store: %s\n", why);
    exit(1);
}

static pleat_image_head head_of(const rig *r, uint32_t i) {
    pleat_image_head h;
    pleat_image_head_default(&h);
    memset(h.model, '7', sizeof h.model - 1);
    h.spec = "f16";
    h.n_spec = 3;
    h.n_layers = h.n_q_heads = h.n_kv_heads = 1;
    h.head_dim = 64;
    h.page_tokens = 32;
    h.tokens = r->tokens[i];
    h.n_tokens = TOKENS;
    h.body_bytes = r->n_bytes;
    return h;
}

static pleat_status fill(void *ctx, void *body, uint64_t n) {
    memcpy(body, ctx, n);
    return PLEAT_OK;
}

static void put_all(rig *r) {
    pleat_store_stats st;
    pleat__rng rng = {1};
    for (uint64_t i = 0; i < r->n_bytes; i += 8) {
        const uint64_t word = pleat__rng_u64(&rng);
        memcpy(r->want + i, &word, 8);
    }
    for (uint32_t i = 0; i < N_IMAGES; i++) {
        for (uint32_t k = 0; k < TOKENS; k++) r->tokens[i][k] = (pleat_token)(i * 1000 + k);
        const pleat_image_head h = head_of(r, i);
        const pleat_status status = pleat_store_put(r->store, &h, 1e9, fill, r->want);
        if (status != PLEAT_OK && status != PLEAT_AGAIN) fail("an image cannot be put");
        pleat_store_flush(r->store);
    }
    pleat_store_get_stats(r->store, &st);
    if (st.failed) fail("an image could not be written");
}

/* ---- ways ---------------------------------------------------------------------------------------------------------- */

static void path_of(const rig *r, uint32_t i, char *out) {
    const pleat_image_head h = head_of(r, i);
    const pleat__store_key key = pleat__store_key_of(&h);
    pleat__folder_path(r->store->shelf.ctx, &key, out);
}

static void make_cold(const rig *r, uint32_t i) {
    char path[PLEAT__FOLDER_PATH_CAP];
    path_of(r, i, path);
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        fail("a file cannot be made cold");
    (void)close(fd);
}

/* GB/s */
static double read_store(rig *r, uint32_t i) {
    const pleat_image_head h = head_of(r, i);
    uint64_t n = 0;
    const double start_s = measure_now_s();
    if (pleat_store_find(r->store, &h, &n) != PLEAT_OK || pleat_store_read(r->store, &h, r->body, n) != PLEAT_OK)
        fail("an image is not had");
    const double seconds = measure_now_s() - start_s;
    if (memcmp(r->body, r->want, r->n_bytes) != 0) fail("a body is another");
    return (double)r->n_bytes * 1e-9 / seconds;
}

static double read_bytes(rig *r, uint32_t i, int is_whole) {
    char path[PLEAT__FOLDER_PATH_CAP];
    uint64_t at = 0;
    path_of(r, i, path);
    const double start_s = measure_now_s();
    const int fd = open(path, O_RDONLY);
    for (ssize_t n = 1; n > 0; at += (uint64_t)n)
        if ((n = pread(fd, r->body + (is_whole ? at : 0), PIECE, (off_t)at)) < 0) fail("a file cannot be read");
    (void)close(fd);
    return (double)at * 1e-9 / (measure_now_s() - start_s);
}

static double take_sums(const rig *r) {
    const pleat__piece_sum_fn sum_of = pleat__piece_sum_of(pleat_cpu_flags());
    volatile uint64_t sum = 0;
    const double start_s = measure_now_s();
    for (uint64_t at = 0; at < r->n_bytes; at += PIECE) sum = sum + sum_of(r->body, PIECE, at);
    return (double)r->n_bytes * 1e-9 / (measure_now_s() - start_s);
}

static void print(const char *what, double *figures, uint32_t n) {
    const measure_spread s = measure_spread_of(figures, n);
    printf("%-12s %6.2f GB/s (%.2f to %.2f)\n", what, s.median, s.min, s.max);
}

static void measure_way(rig *r, int is_cold) {
    double store[MAX_REPEATS], bytes[MAX_REPEATS], copied[MAX_REPEATS], ratios[MAX_REPEATS], of_copied[MAX_REPEATS],
        sums[MAX_REPEATS];
    for (uint32_t k = 0; k < r->repeats; k++) {
        const uint32_t i = k % N_IMAGES;
        if (is_cold) make_cold(r, i);
        store[k] = read_store(r, i);
        if (!r->is_folder) continue;
        if (is_cold) make_cold(r, i);
        bytes[k] = read_bytes(r, i, 0);
        if (is_cold) make_cold(r, i);
        copied[k] = read_bytes(r, i, 1);
        sums[k] = take_sums(r);
        ratios[k] = store[k] / bytes[k];
        of_copied[k] = store[k] / copied[k];
    }
    if (r->is_folder) printf("%s\n", is_cold ? "cold" : "warm");
    print("store", store, r->repeats);
    if (!r->is_folder) return;
    print("bytes", bytes, r->repeats);
    print("copied", copied, r->repeats);
    print("sums", sums, r->repeats);
    printf("%-12s %6.2f of bytes, %.2f of copied\n", "ratio", measure_median(ratios, r->repeats),
           measure_median(of_copied, r->repeats));
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */

static void open_place(rig *r, const char *place) {
    pleat_store_options o;
    pleat_error err = {0};
    pleat_store_options_default(&o);
    r->is_folder = strstr(place, "://") == NULL;
    if (r->is_folder)
        o.dir = place;
    else
        o.servers = place;
    o.max_bytes = (uint64_t)1 << 40;
    o.queue_bytes = 2 * r->n_bytes;
    o.timeout_ns = 10000000000;
    if (pleat_store_open(&o, &r->store, &err) != PLEAT_OK) fail(err.text);
}

int main(int argc, char **argv) {
    static rig r = {.repeats = 12, .n_bytes = (uint64_t)64 << 20};
    int option;
    while ((option = getopt(argc, argv, "r:m:")) != -1) {
        if (option == 'r') r.repeats = (uint32_t)strtoul(optarg, NULL, 10);
        if (option == 'm') r.n_bytes = strtoull(optarg, NULL, 10) << 20;
        if (option == '?') return 2;
    }
    if (optind + 1 != argc || r.repeats < 1 || r.repeats > MAX_REPEATS || r.n_bytes == 0)
        fail("see the head of store.c");
    r.body = reserve(r.n_bytes + PIECE);
    r.want = reserve(r.n_bytes);
    open_place(&r, argv[optind]);
    put_all(&r);
    if (r.is_folder) measure_way(&r, 1);
    measure_way(&r, 0);
    for (uint32_t i = 0; i < N_IMAGES; i++) {
        const pleat_image_head h = head_of(&r, i);
        const pleat__store_key key = pleat__store_key_of(&h);
        r.store->shelf.forget(r.store->shelf.ctx, &key);
    }
    pleat_store_close(&r.store);
    free(r.want);
    free(r.body);
    return 0;
}
