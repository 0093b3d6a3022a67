/* SPDX-License-Identifier: MIT
 *
 * images.c: how fast a sequence leaves a GPU and comes back, its image, beside a copy of as many bytes; and what decoding
 * of others takes meanwhile, beside plain copies too, which tell what of that is the link's.
 *
 *     bench_images [TOKENS [SPEC...]]      of Llama-3-8B's shape; 8192 tokens, f16 k8v4 k4v2
 *
 * Others: attention of one step of 32 sequences of 2048 tokens in f16, all layers as one graph, again and again, on a
 * stream of its own and in another cache.  It does nothing but read memory: what a step has beside that, its products,
 * can only be slowed less.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bench.h"
#include "hw/device.h"
#include "pleat/device_cache.h"

enum { LAYERS = 32, HEADS = 8, GROUP = 4, DIM = 128, ROUNDS = 5, OTHERS = 32, OTHERS_TOKENS = 2048, STEPS = 200 };

static void must(pleat_status status, const pleat_error *err) {
    if (status == PLEAT_OK) return;
    fprintf(stderr, "bench_images: %s: %s\n", pleat_status_str(status), err->text);
    exit(1);
}

static double best_of(double best, double from_s, uint64_t n_bytes) {
    const double rate = (double)n_bytes / 1e9 / (measure_now_s() - from_s);
    return rate > best ? rate : best;
}

/* ---- a cache, a sequence ---------------------------------------------------------------------------- */

static pleat_device_cache *make_cache(const char *spec, uint32_t n_seqs, uint32_t n_tokens) {
    pleat_error err = {0};
    pleat_device_cache_options opt;
    pleat_device_cache *cache = NULL;
    pleat_device_cache_options_default(&opt);
    must(pleat_spec_parse(spec, &opt.spec, &err), &err);
    opt.n_layers = LAYERS;
    opt.n_kv_heads = HEADS;
    opt.n_q_heads = GROUP * HEADS;
    opt.head_dim = DIM;
    opt.max_seqs = n_seqs;
    opt.max_tokens = n_tokens;
    must(pleat_device_cache_create(&opt, &cache, &err), &err);
    return cache;
}

static void fill(pleat_device_cache *cache, uint32_t seq_idx, uint32_t n_tokens) {
    pleat_error err = {0};
    uint32_t n_high[LAYERS * HEADS];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) n_high[i] = n_tokens;
    must(pleat_device_cache_fill(cache, seq_idx, n_high, NULL, 1, NULL, &err), &err);
}

/* What is moved. */
typedef struct traveller {
    pleat_device_cache *cache;
    uint32_t n_tokens;
    uint64_t n_bytes;
    void *memory, *image; /* pinned: its pages begin at a multiple of 64 bytes */
    void *there;          /* as many bytes of the GPU's */
    pleat__device_stream stream;
    bool is_plain; /* copies as many bytes, and no more */
    atomic_bool ends;
    atomic_uint n_trips;
} traveller;

static void traveller_init(traveller *t, const char *spec, uint32_t n_tokens) {
    pleat_error err = {0};
    *t = (traveller){.cache = make_cache(spec, 2, n_tokens), .n_tokens = n_tokens};
    fill(t->cache, 0, n_tokens);
    must(pleat_device_cache_image_bytes(t->cache, 0, &t->n_bytes, NULL, &err), &err);
    must(pleat__device_alloc_host(t->n_bytes + 64, &t->memory, &err), &err);
    must(pleat__device_alloc(t->n_bytes, &t->there, &err), &err);
    must(pleat__device_stream_create(&t->stream, &err), &err);
    t->image = (char *)t->memory + pleat_device_cache_image_shift(t->cache, t->n_bytes);
}

static void traveller_release(traveller *t) {
    pleat__device_stream_destroy(&t->stream);
    pleat__device_free(t->there);
    pleat__device_free_host(t->memory);
    pleat_device_cache_destroy(&t->cache);
}

static void save(const traveller *t) {
    pleat_error err = {0};
    must(pleat_device_cache_save(t->cache, 0, t->n_tokens, t->n_tokens, t->image, t->n_bytes, NULL, &err), &err);
}

static void restore(const traveller *t) {
    pleat_error err = {0};
    must(pleat_device_cache_restore(t->cache, 1, t->image, t->n_bytes, NULL, &err), &err);
}

static void leave(const traveller *t) {
    pleat_error err = {0};
    must(pleat_device_cache_close(t->cache, 1, NULL, &err), &err);
}

static void copy(const traveller *t, void *to, const void *from) {
    pleat_error err = {0};
    must(pleat__device_copy(to, from, t->n_bytes, t->stream, &err), &err);
    must(pleat__device_wait(t->stream, &err), &err);
}

static void *travel(void *of) {
    traveller *t = of;
    pleat_error err = {0};
    must(pleat__device_use(0, &err), &err);
    while (!atomic_load(&t->ends)) {
        if (t->is_plain) {
            copy(t, t->memory, t->there);
            copy(t, t->there, t->memory);
        } else {
            save(t);
            restore(t);
            leave(t);
        }
        atomic_fetch_add(&t->n_trips, 1);
    }
    return NULL;
}

/* ---- alone ------------------------------------------------------------------------------------------- */

static void alone(const traveller *t, const char *spec) {
    double out_image = 0, in_image = 0, out = 0, in = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double from = measure_now_s();
        save(t);
        out_image = best_of(out_image, from, t->n_bytes);
        from = measure_now_s();
        restore(t);
        in_image = best_of(in_image, from, t->n_bytes);
        leave(t);
        from = measure_now_s();
        copy(t, t->memory, t->there);
        out = best_of(out, from, t->n_bytes);
        from = measure_now_s();
        copy(t, t->there, t->memory);
        in = best_of(in, from, t->n_bytes);
    }
    printf("| %s | %.0f | %.1f, %.2f of the link's %.1f | %.1f, %.2f of %.1f |", spec, (double)t->n_bytes / 1e6,
           out_image, out_image / out, out, in_image, in_image / in, in);
}

/* ---- beside others ----------------------------------------------------------------------------------- */

typedef struct others {
    pleat_device_cache *cache;
    pleat__device_stream stream;
    pleat__device_graph step;
    void *q, *out;
} others;

static void others_init(others *o) {
    const uint64_t n = (uint64_t)OTHERS * GROUP * HEADS * DIM;
    pleat_error err = {0};
    uint32_t idxs[OTHERS];
    o->cache = make_cache("f16", OTHERS, OTHERS_TOKENS);
    must(pleat__device_stream_create(&o->stream, &err), &err);
    must(pleat__device_alloc(2 * n, &o->q, &err), &err);
    must(pleat__device_alloc(4 * n, &o->out, &err), &err);
    must(pleat__device_fill(o->q, 0, 2 * n, o->stream, &err), &err);
    for (uint32_t i = 0; i < OTHERS; i++) fill(o->cache, idxs[i] = i, OTHERS_TOKENS);
    must(pleat_device_cache_set_batch(o->cache, idxs, OTHERS, o->stream.v, &err), &err);
    must(pleat_device_cache_plan(o->cache, PLEAT_DEVICE_EQUAL_SHARES, o->stream.v, &err), &err);
    must(pleat__device_wait(o->stream, &err), &err);
    must(pleat__device_graph_begin(o->stream, &err), &err);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        must(pleat_device_cache_attend(o->cache, layer, o->q, (float *)o->out, NULL, o->stream.v, &err), &err);
    must(pleat__device_graph_end(o->stream, &o->step, &err), &err);
}

static void others_release(others *o) {
    pleat__device_graph_destroy(&o->step);
    pleat__device_free(o->q);
    pleat__device_free(o->out);
    pleat__device_stream_destroy(&o->stream);
    pleat_device_cache_destroy(&o->cache);
}

/* Milliseconds of a step, the mean of many, by the device's clock: the host need not be there in time. */
static double step_ms(const others *o) {
    pleat_error err = {0};
    pleat__device_event from, to;
    float ms = 0;
    must(pleat__device_event_create(&from, &err), &err);
    must(pleat__device_event_create(&to, &err), &err);
    must(pleat__device_event_record(from, o->stream, &err), &err);
    for (int i = 0; i < STEPS; i++) must(pleat__device_graph_launch(o->step, o->stream, &err), &err);
    must(pleat__device_event_record(to, o->stream, &err), &err);
    must(pleat__device_event_elapsed(from, to, &ms, &err), &err);
    pleat__device_event_destroy(&from);
    pleat__device_event_destroy(&to);
    return (double)ms / STEPS;
}

static void beside(traveller *t, const others *o, bool is_plain) {
    pthread_t thread;
    (void)step_ms(o);
    const double quiet = step_ms(o);
    t->is_plain = is_plain;
    atomic_store(&t->ends, false);
    if (pthread_create(&thread, NULL, travel, t)) exit(1);
    (void)step_ms(o);
    const uint32_t n_before = atomic_load(&t->n_trips);
    const double from = measure_now_s(), busy = step_ms(o), s = measure_now_s() - from;
    const uint32_t n_trips = atomic_load(&t->n_trips) - n_before;
    atomic_store(&t->ends, true);
    (void)pthread_join(thread, NULL);
    printf(" %.2f for %.2f ms, %+.1f %%; %.1f GB/s |", busy, quiet, 100 * (busy / quiet - 1),
           2.0 * n_trips * (double)t->n_bytes / 1e9 / s);
}

int main(int argc, char **argv) {
    static char *some[] = {"f16", "k8v4", "k4v2"};
    const uint32_t n_tokens = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 8192;
    char **specs = argc > 2 ? argv + 2 : some;
    const int n = argc > 2 ? argc - 2 : 3;
    others o = {0};
    others_init(&o);
    printf("| KV | image, MB | saved, GB/s | restored, GB/s | a step of others meanwhile; moved then | beside plain "
           "copies |\n"
           "|---|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        traveller t;
        traveller_init(&t, specs[i], n_tokens);
        alone(&t, specs[i]);
        beside(&t, &o, false);
        beside(&t, &o, true);
        printf("\n");
        fflush(stdout);
        traveller_release(&t);
    }
    others_release(&o);
    return 0;
}
