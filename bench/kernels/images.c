/* SPDX-License-Identifier: MIT
 *
 * images.c: how fast a sequence leaves a GPU and comes back: its image, beside a copy of as many bytes.
 *
 *     bench_images [TOKENS [SPEC...]]      of Llama-3-8B's shape; 8192 tokens, f16 k8v4 k4v2
 */
#include <string.h>

#include "bench.h"
#include "hw/device.h"
#include "pleat/device_cache.h"

enum { LAYERS = 32, HEADS = 8, ROUNDS = 5 };

static void must(pleat_status status, const pleat_error *err) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "bench_images: %s: %s\n", pleat_status_str(status), err->text);
    exit(1);
}

static double best_of(double best, double from_s, uint64_t n_bytes) {
    const double rate = (double)n_bytes / 1e9 / (measure_now_s() - from_s);
    return rate > best ? rate : best;
}

static void run(const char *spec, uint32_t n_tokens) {
    const pleat__device_stream stream = {NULL};
    pleat_error err = {0};
    pleat_device_cache_options opt;
    pleat_device_cache *cache = NULL;
    uint32_t n_high[LAYERS * HEADS];
    uint64_t n_bytes = 0;
    void *image = NULL, *there = NULL;
    double save = 0, restore = 0, out = 0, in = 0;
    pleat_device_cache_options_default(&opt);
    must(pleat_spec_parse(spec, &opt.spec, &err), &err);
    opt.n_layers = LAYERS;
    opt.n_kv_heads = HEADS;
    opt.n_q_heads = 4 * HEADS;
    opt.head_dim = 128;
    opt.max_seqs = 2;
    opt.max_tokens = n_tokens;
    must(pleat_device_cache_create(&opt, &cache, &err), &err);
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) n_high[i] = n_tokens;
    must(pleat_device_cache_fill(cache, 0, n_high, NULL, 1, NULL, &err), &err);
    must(pleat_device_cache_image_bytes(cache, 0, &n_bytes, NULL, &err), &err);
    must(pleat__device_alloc_host(n_bytes, &image, &err), &err);
    must(pleat__device_alloc(n_bytes, &there, &err), &err);
    for (int i = 0; i < ROUNDS; i++) {
        double from = measure_now_s();
        must(pleat_device_cache_save(cache, 0, n_tokens, n_tokens, image, n_bytes, NULL, &err), &err);
        save = best_of(save, from, n_bytes);
        from = measure_now_s();
        must(pleat_device_cache_restore(cache, 1, image, n_bytes, NULL, &err), &err);
        restore = best_of(restore, from, n_bytes);
        must(pleat_device_cache_close(cache, 1, NULL, &err), &err);
        from = measure_now_s();
        must(pleat__device_copy(image, there, n_bytes, stream, &err), &err);
        must(pleat__device_wait(stream, &err), &err);
        out = best_of(out, from, n_bytes);
        from = measure_now_s();
        must(pleat__device_copy(there, image, n_bytes, stream, &err), &err);
        must(pleat__device_wait(stream, &err), &err);
        in = best_of(in, from, n_bytes);
    }
    printf("| %s | %.0f | %.1f, %.2f of the link's %.1f | %.1f, %.2f of %.1f |\n", spec, (double)n_bytes / 1e6, save,
           save / out, out, restore, restore / in, in);
    pleat__device_free_host(image);
    pleat__device_free(there);
    pleat_device_cache_destroy(&cache);
}

int main(int argc, char **argv) {
    static char *some[] = {"f16", "k8v4", "k4v2"};
    const uint32_t n_tokens = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 8192;
    char **specs = argc > 2 ? argv + 2 : some;
    const int n = argc > 2 ? argc - 2 : 3;
    printf("| KV | image, MB | saved, GB/s | restored, GB/s |\n|---|---|---|---|\n");
    for (int i = 0; i < n; i++) run(specs[i], n_tokens);
    return 0;
}
