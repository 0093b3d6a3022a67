/* SPDX-License-Identifier: MIT
 *
 * test_images.c: what an image holds is its sequence's alone.
 *
 * One cache has had other sequences in its pages, in all kinds of steps, forks included; the other is new.  The same
 * sequence's images are the same bytes from both, and a third cache goes on from one as the first does.
 */
#include <stdlib.h>
#include <string.h>

#include "cache_rig.h"
#include "stats_rig.h"

#define LAYERS 3u
#define KV_HEADS 2u
#define GROUP 2u
#define D 64u
#define MAX_TOKENS 400u
#define CHUNK 96u

static const uint32_t windows[LAYERS] = {0, 40, 0};

static pleat_cache *cache_new(const char *spec, bool has_rings) {
    const cache_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = KV_HEADS,
                               .head_dim = D,
                               .group = GROUP,
                               .max_seqs = 3,
                               .max_tokens = MAX_TOKENS,
                               .step_tokens = CHUNK};
    pleat_cache_options opt = cache_options_of(spec, &shape);
    opt.windows = has_rings ? windows : NULL;
    return cache_made(&opt);
}

/* n tokens that follow those of the sequence, their numbers from `seed`. */
static void step(pleat_cache *cache, pleat_seq seq, uint32_t n, uint64_t seed, uint32_t flags, float *out) {
    static float q[CHUNK * KV_HEADS * GROUP * D], k[CHUNK * KV_HEADS * D], v[CHUNK * KV_HEADS * D];
    const pleat_cache_item item = {seq, n, flags};
    if (!CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK)) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        pleat__rng rng = rng_of_seed(seed << 8 | layer);
        fill_within(&rng, q, (size_t)n * KV_HEADS * GROUP * D, 3);
        fill_within(&rng, k, (size_t)n * KV_HEADS * D, 2);
        fill_within(&rng, v, (size_t)n * KV_HEADS * D, 1);
        CHECK_STATUS(pleat_cache_attend(cache, layer, q, k, v, out), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

/* A prompt in three chunks, some tokens, and a later turn. */
static pleat_seq live(pleat_cache *cache, uint64_t seed) {
    static float out[CHUNK * KV_HEADS * GROUP * D];
    const pleat_seq seq = cache_seq(cache, MAX_TOKENS);
    for (uint32_t i = 0; i < 3; i++) step(cache, seq, CHUNK - i, seed + i, i < 2 ? PLEAT_ITEM_MORE : 0, out);
    for (uint32_t i = 0; i < 7; i++) step(cache, seq, 1, seed + 10 + i, 0, out);
    step(cache, seq, 21, seed + 20, PLEAT_ITEM_SEAL, out);
    step(cache, seq, 1, seed + 30, 0, out);
    return seq;
}

/* Leave something of others in the pages. */
static void use_pages(pleat_cache *cache) {
    static float out[CHUNK * KV_HEADS * GROUP * D];
    const pleat_seq seq = live(cache, 1000);
    pleat_seq fork;
    CHECK_STATUS(pleat_cache_fork(cache, seq, MAX_TOKENS, &fork), PLEAT_OK);
    step(cache, fork, 33, 2000, 0, out);
    const pleat_seq other = live(cache, 3000);
    CHECK_STATUS(pleat_cache_close(cache, seq), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(cache, other), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(cache, fork), PLEAT_OK);
}

static uint8_t *image_of(const pleat_cache *cache, pleat_seq seq, uint64_t *n_bytes) {
    *n_bytes = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(*n_bytes);
    memset(image, 0xA5, *n_bytes);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, *n_bytes), PLEAT_OK);
    return image;
}

/* The sequence goes on in both caches with the same bits. */
static void check_goes_on(pleat_cache *a, pleat_seq seq_a, pleat_cache *b, pleat_seq seq_b) {
    static float out[2][CHUNK * KV_HEADS * GROUP * D];
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t n = i == 1 ? 18 : 1;
        step(a, seq_a, n, 500 + i, 0, out[0]);
        step(b, seq_b, n, 500 + i, 0, out[1]);
        CHECK_EQ_MEM(out[0], out[1], (size_t)n * KV_HEADS * GROUP * D * sizeof(float));
    }
}

static void try_spec(const char *spec, bool has_rings) {
    check_context("%s%s", spec, has_rings ? ", a layer with a window" : "");
    pleat_cache *used = cache_new(spec, has_rings), *fresh = cache_new(spec, has_rings),
                *third = cache_new(spec, has_rings);
    use_pages(used);
    const pleat_seq a = live(used, 1), b = live(fresh, 1);
    uint64_t n_a, n_b;
    uint8_t *image_a = image_of(used, a, &n_a), *image_b = image_of(fresh, b, &n_b);
    CHECK_EQ_U64(n_a, n_b);
    if (n_a == n_b) CHECK_EQ_MEM(image_a, image_b, n_a);
    pleat_seq c = {0};
    if (CHECK_STATUS(pleat_cache_restore(third, image_a, n_a, (pleat_seq){0}, &c), PLEAT_OK)) {
        uint64_t n_c;
        uint8_t *image_c = image_of(third, c, &n_c);
        CHECK_EQ_U64(n_c, n_a);
        if (n_c == n_a) CHECK_EQ_MEM(image_c, image_a, n_a);
        free(image_c);
        CHECK(pleat_cache_is_valid(third));
        check_goes_on(used, a, third, c);
    }
    free(image_a);
    free(image_b);
    pleat_cache_destroy(&used);
    pleat_cache_destroy(&fresh);
    pleat_cache_destroy(&third);
}

static void test_own(void) {
    static const char *const specs[] = {"f32",
                                        "f16",
                                        "k8v8",
                                        "k8v4",
                                        "k4v2",
                                        "k2v2",
                                        "leankv:ah=1,al=0,window=32",
                                        "leankv:ah=1,al=0.3,window=16",
                                        "leankv:ah=1,al=0.3,window=16,every=8",
                                        "topk:keep=50%",
                                        "h2o:budget=120",
                                        "h2o:budget=120,reclaim=copy",
                                        "h2o:budget=120,reclaim=none",
                                        "snapkv:budget=50%",
                                        "novel:budget=120",
                                        "novel:budget=120,mean=model",
                                        "novel:budget=120,mean=model,near=2",
                                        "leverage:budget=120",
                                        "leverage:budget=120,fall=40%",
                                        "h2o:budget=120+kvcrush",
                                        "h2o:budget=120+merge",
                                        "novel:budget=120+merge",
                                        "snapkv:budget=120+novel",
                                        "expected:budget=120",
                                        "dropkv:budget=120",
                                        "expected:budget=120+merge",
                                        "h2o:budget=120+novel:mean=model",
                                        "snapkv:budget=50%,format=f16+merge",
                                        "kvcomp",
                                        "kvcomp:k=0.2,v=0.2,buffer=64",
                                        "kvcomp+pack",
                                        "kivi:bits=2",
                                        "rd:k=0.15,v=1.1,buffer=32"};
    const cache_shape shape = {.n_layers = LAYERS, .n_kv_heads = KV_HEADS, .head_dim = D, .group = GROUP};
    pleat_stats *stats = stats_new(&shape);
    cache_stats = stats;
    for (size_t i = 0; i < CHECK_COUNT(specs); i++)
        for (int has_rings = 0; has_rings < 2; has_rings++) try_spec(specs[i], has_rings);
    cache_stats = NULL;
    pleat_stats_destroy(&stats);
}

static const check_test tests[] = {{"own", test_own}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
