/* SPDX-License-Identifier: MIT
 *
 * test_forged.c: images whose counts lie, with a hash that does not tell: each by itself looks right.
 */
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/cache.h"
#include "cache/lane.h"
#include "check.h"
#include "pleat/cache.h"

enum { D = 64 };

/* The head of an image, as image.c has it. */
typedef struct image_head {
    uint64_t hash;
    uint32_t magic, n_lanes;
    uint64_t page_bytes, kind, n_bytes;
    uint32_t max_tokens, n_tokens, n_classed, n_prompt, base, base_opened;
    uint64_t n_pages, n_stored;
    float ah, al;
} image_head;

/* An image of a lane whose sides have together more slots than the sequence has tokens: what walks over both would write
 * beyond its memory.  It is refused; so are its pages, which are there. */
static void test_forged_sides(void) {
    enum { LONG = 600 };
    static float x[LONG * D], out[LONG * D];
    pleat_cache_options opt;
    pleat_cache *cache = NULL;
    pleat_seq seq = {0}, other;
    pleat__lane lane;
    image_head head;
    pleat_cache_options_default(&opt);
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    opt.head_dim = D;
    opt.max_seqs = 2;
    opt.max_tokens = 2 * LONG;
    opt.step_tokens = LONG;
    CHECK_STATUS(pleat_spec_parse("leankv:ah=3,al=0.05,window=32", &opt.spec, NULL), PLEAT_OK);
    if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) return;
    check_fill_normal(x, LONG * D);
    CHECK_STATUS(pleat_cache_open(cache, LONG, &seq), PLEAT_OK);
    const pleat_cache_item item = {.seq = seq, .n_tokens = LONG};
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_attend(cache, 0, x, x, x, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    const uint64_t n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n),
            *bad = calloc(1, n + 2 * LONG * (opt.head_dim * 8 + 1)); /* zeros: pages that are fine */
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
    memcpy(&head, image, sizeof head);
    memcpy(&lane, image + sizeof head, sizeof lane);
    CHECK(head.n_lanes == 1 && head.n_tokens == LONG);
    const uint64_t flags_at = n - head.n_stored * head.page_bytes - head.n_pages;
    for (uint32_t low_slots = 0; low_slots <= LONG + 1; low_slots += LONG + 1) {
        lane = (pleat__lane){.n_slots = {LONG / 2, low_slots}};
        for (int side = 0; side < 2; side++)
            lane.n_pages[side] = pleat__div_up_u32(lane.n_slots[side], cache->page_tokens[side]);
        head.n_pages = head.n_stored = lane.n_pages[0] + lane.n_pages[1];
        head.n_bytes = flags_at + head.n_pages * (1 + head.page_bytes);
        memcpy(bad, image, flags_at);
        memcpy(bad, &head, sizeof head);
        memcpy(bad + sizeof head, &lane, sizeof lane);
        memset(bad + flags_at, 1, head.n_pages);
        const uint64_t hash = XXH3_64bits(bad + sizeof hash, head.n_bytes - sizeof hash);
        memcpy(bad, &hash, sizeof hash);
        const pleat_status status = pleat_cache_restore(cache, bad, head.n_bytes, (pleat_seq){0}, &other);
        check_context("%u low slots", low_slots);
        CHECK_STATUS(status, low_slots ? PLEAT_E_FORMAT : PLEAT_OK);
        if (status == PLEAT_OK) CHECK_STATUS(pleat_cache_close(cache, other), PLEAT_OK);
    }
    free(image);
    free(bad);
    pleat_cache_destroy(&cache);
}

/* An image with blocks before all sinks are there: a position among these has no slot then. */
static void test_forged_sinks(void) {
    enum { N = 20, BLOCK = 16, SINKS = N - BLOCK };
    static float x[N * D], out[N * D];
    pleat_cache_options opt;
    pleat_cache *cache = NULL;
    pleat_seq seq = {0}, other;
    pleat__lane lane;
    image_head head;
    pleat_cache_options_default(&opt);
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    opt.head_dim = D;
    opt.max_seqs = 2;
    opt.max_tokens = opt.step_tokens = N;
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.2,block=16,buffer=1", &opt.spec, NULL), PLEAT_OK);
    CHECK_EQ_U64(opt.spec.sinks, SINKS);
    if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) return;
    check_fill_normal(x, N * D);
    CHECK_STATUS(pleat_cache_open(cache, N, &seq), PLEAT_OK);
    const pleat_cache_item item = {.seq = seq, .n_tokens = N};
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_attend(cache, 0, x, x, x, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    const uint64_t n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
    memcpy(&head, image, sizeof head);
    memcpy(&lane, image + sizeof head, sizeof lane);
    CHECK(head.n_tokens == N && head.n_classed == BLOCK && lane.n_slots[0] == SINKS);
    for (uint32_t less = 0; less <= 1; less++) { /* a token less, in both counts: the pages are as many */
        head.n_tokens = head.n_prompt = N - less;
        lane.n_slots[0] = SINKS - less;
        memcpy(image, &head, sizeof head);
        memcpy(image + sizeof head, &lane, sizeof lane);
        const uint64_t hash = XXH3_64bits(image + sizeof hash, n - sizeof hash);
        memcpy(image, &hash, sizeof hash);
        check_context("%u sinks", SINKS - less);
        const pleat_status status = pleat_cache_restore(cache, image, n, (pleat_seq){0}, &other);
        CHECK_STATUS(status, less ? PLEAT_E_FORMAT : PLEAT_OK);
        if (status == PLEAT_OK) CHECK_STATUS(pleat_cache_close(cache, other), PLEAT_OK);
    }
    free(image);
    pleat_cache_destroy(&cache);
}

/* An image whose pages say that a token stands where no sequence reaches: tables of positions were read there. */
static void test_forged_positions(void) {
    enum { N = 64 };
    static float x[N * D], out[N * D];
    static double frequencies[D / 2];
    const pleat_rope rope = {D, 1, 1, frequencies}, *ropes[] = {&rope};
    pleat_cache_options opt;
    pleat_cache *cache = NULL;
    pleat_seq seq = {0}, other;
    pleat_cache_options_default(&opt);
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    opt.head_dim = D;
    opt.max_seqs = 2;
    opt.max_tokens = opt.step_tokens = N;
    opt.ropes = ropes;
    CHECK_STATUS(pleat_spec_parse("novel:budget=40,window=4", &opt.spec, NULL), PLEAT_OK);
    if (!CHECK_STATUS(pleat_cache_create(&opt, &cache, NULL), PLEAT_OK)) return;
    check_fill_normal(x, N * D);
    CHECK_STATUS(pleat_cache_open(cache, N, &seq), PLEAT_OK);
    const pleat_cache_item item = {.seq = seq, .n_tokens = N};
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_attend(cache, 0, x, x, x, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
    const uint64_t n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n), *at = NULL;
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n), PLEAT_OK);
    const int32_t sinks[] = {0, 1, 2, 3}, far[] = {N - 1, N, -2, INT32_MAX - 255};
    for (uint64_t i = 0; i + sizeof sinks <= n && !at; i++)
        if (!memcmp(image + i, sinks, sizeof sinks)) at = image + i; /* the four sinks' positions */
    for (size_t i = 0; CHECK(at != NULL) && i < CHECK_COUNT(far); i++) {
        memcpy(at, &far[i], sizeof far[i]);
        const uint64_t hash = XXH3_64bits(image + sizeof hash, n - sizeof hash);
        memcpy(image, &hash, sizeof hash);
        check_context("position %d", far[i]);
        const pleat_status status = pleat_cache_restore(cache, image, n, (pleat_seq){0}, &other);
        CHECK_STATUS(status, i == 0 ? PLEAT_OK : PLEAT_E_FORMAT);
        if (status == PLEAT_OK) CHECK_STATUS(pleat_cache_close(cache, other), PLEAT_OK);
    }
    free(image);
    pleat_cache_destroy(&cache);
}

static const check_test tests[] = {
    {"sides", test_forged_sides}, {"sinks", test_forged_sinks}, {"positions", test_forged_positions}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
