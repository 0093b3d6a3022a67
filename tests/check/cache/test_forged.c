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

enum { D = 64, MOST_TOKENS = 600 };

/* The head of an image, as image.c has it. */
typedef struct image_head {
    uint64_t hash;
    uint32_t magic, n_lanes;
    uint64_t page_bytes, kind, n_bytes;
    uint32_t max_tokens, n_tokens, n_classed, n_prompt, base, base_opened;
    uint64_t n_pages, n_stored;
    float ah, al;
} image_head;

/* A cache of one lane, and the image of a sequence in it. */
typedef struct original {
    pleat_cache *cache;
    uint8_t *image;
    uint64_t n_bytes;
} original;

static void append(pleat_cache *cache, uint32_t n_tokens, pleat_seq *seq) {
    static float x[MOST_TOKENS * D], out[MOST_TOKENS * D];
    check_fill_normal(x, n_tokens * D);
    CHECK_STATUS(pleat_cache_open(cache, n_tokens, seq), PLEAT_OK);
    const pleat_cache_item item = {.seq = *seq, .n_tokens = n_tokens};
    CHECK_STATUS(pleat_cache_begin(cache, &item, 1), PLEAT_OK);
    CHECK_STATUS(pleat_cache_attend(cache, 0, x, x, x, out), PLEAT_OK);
    CHECK_STATUS(pleat_cache_end(cache), PLEAT_OK);
}

static bool make_original(const char *spec, uint32_t n_tokens, uint32_t max_tokens, const pleat_rope *const *ropes,
                          original *o) {
    pleat_cache_options opt;
    pleat_seq seq = {0};
    *o = (original){0};
    pleat_cache_options_default(&opt);
    opt.n_layers = opt.n_kv_heads = opt.n_q_heads = 1;
    opt.head_dim = D;
    opt.max_seqs = 2;
    opt.max_tokens = max_tokens;
    opt.step_tokens = n_tokens;
    opt.ropes = ropes;
    CHECK_STATUS(pleat_spec_parse(spec, &opt.spec, NULL), PLEAT_OK);
    if (!CHECK_STATUS(pleat_cache_create(&opt, &o->cache, NULL), PLEAT_OK)) return false;
    append(o->cache, n_tokens, &seq);
    o->n_bytes = pleat_cache_image_bytes(o->cache, seq, (pleat_seq){0});
    o->image = malloc(o->n_bytes);
    return CHECK_STATUS(pleat_cache_save(o->cache, seq, (pleat_seq){0}, o->image, o->n_bytes), PLEAT_OK);
}

static void release(original *o) {
    free(o->image);
    pleat_cache_destroy(&o->cache);
}

/* With its hash made right, the image is taken, or refused. */
static void check_restore(const original *o, uint8_t *image, uint64_t n_bytes, bool is_sound) {
    const uint64_t hash = XXH3_64bits(image + sizeof hash, n_bytes - sizeof hash);
    pleat_seq other;
    memcpy(image, &hash, sizeof hash);
    const pleat_status status = pleat_cache_restore(o->cache, image, n_bytes, (pleat_seq){0}, &other);
    CHECK_STATUS(status, is_sound ? PLEAT_OK : PLEAT_E_FORMAT);
    if (status == PLEAT_OK) CHECK_STATUS(pleat_cache_close(o->cache, other), PLEAT_OK);
}

/* Pages of the high side hold the newest n of n_tokens tokens. */
static void fill_positions(const original *o, uint8_t *pages, uint32_t n, uint32_t n_tokens) {
    const pleat__page_layout *layout = &o->cache->layouts[PLEAT__HIGH];
    for (uint32_t i = 0; i < n; i++) {
        const int32_t position = (int32_t)(n_tokens - n + i);
        uint8_t *page = pages + i / layout->tokens * o->cache->page_bytes;
        memcpy(page + layout->pos_off + i % layout->tokens * sizeof position, &position, sizeof position);
    }
}

/* An image of a lane whose sides have together more slots than the sequence has tokens: what walks over both would write
 * beyond its memory.  It is refused; so are its pages, which are there. */
static void test_forged_sides(void) {
    enum { LONG = MOST_TOKENS };
    original o;
    pleat__lane lane;
    image_head head;
    if (!make_original("leankv:ah=3,al=0.05,window=32", LONG, 2 * LONG, NULL, &o)) return;
    uint8_t *bad = calloc(1, o.n_bytes + 2 * LONG * (D * 8 + 1)); /* zeros: codes that are fine */
    memcpy(&head, o.image, sizeof head);
    memcpy(&lane, o.image + sizeof head, sizeof lane);
    CHECK(head.n_lanes == 1 && head.n_tokens == LONG);
    const uint64_t flags_at = o.n_bytes - head.n_stored * head.page_bytes - head.n_pages;
    for (uint32_t low_slots = 0; low_slots <= LONG + 1; low_slots += LONG + 1) {
        lane = (pleat__lane){.n_slots = {LONG / 2, low_slots}};
        for (int side = 0; side < 2; side++)
            lane.n_pages[side] = pleat__div_up_u32(lane.n_slots[side], o.cache->page_tokens[side]);
        head.n_pages = head.n_stored = lane.n_pages[0] + lane.n_pages[1];
        head.n_bytes = flags_at + head.n_pages * (1 + head.page_bytes);
        memcpy(bad, o.image, flags_at);
        memcpy(bad, &head, sizeof head);
        memcpy(bad + sizeof head, &lane, sizeof lane);
        memset(bad + flags_at, 1, head.n_pages);
        fill_positions(&o, bad + flags_at + head.n_pages, LONG / 2, LONG);
        check_context("%u low slots", low_slots);
        check_restore(&o, bad, head.n_bytes, low_slots == 0);
    }
    free(bad);
    release(&o);
}

/* An image with blocks before all sinks are there: a position among these has no slot then. */
static void test_forged_sinks(void) {
    enum { N = 20, BLOCK = 16, SINKS = N - BLOCK };
    original o;
    pleat__lane lane;
    image_head head;
    if (!make_original("kvcomp:k=0.2,block=16,buffer=1", N, N, NULL, &o)) return;
    CHECK_EQ_U64(o.cache->opt.spec.sinks, SINKS);
    memcpy(&head, o.image, sizeof head);
    memcpy(&lane, o.image + sizeof head, sizeof lane);
    CHECK(head.n_tokens == N && head.n_classed == BLOCK && lane.n_slots[0] == SINKS);
    for (uint32_t less = 0; less <= 1; less++) { /* a token less, in both counts: the pages are as many */
        head.n_tokens = head.n_prompt = N - less;
        lane.n_slots[0] = SINKS - less;
        memcpy(o.image, &head, sizeof head);
        memcpy(o.image + sizeof head, &lane, sizeof lane);
        check_context("%u sinks", SINKS - less);
        check_restore(&o, o.image, o.n_bytes, less == 0);
    }
    release(&o);
}

/* An image whose pages say that a token stands where no sequence reaches: tables of positions were read there. */
static void test_forged_positions(void) {
    enum { N = 64 };
    static double frequencies[D / 2];
    const pleat_rope rope = {D, 1, 1, frequencies}, *ropes[] = {&rope};
    original o;
    uint8_t *at = NULL;
    if (!make_original("novel:budget=40,window=4", N, N, ropes, &o)) return;
    const int32_t sinks[] = {0, 1, 2, 3}, far[] = {0, N, -2, INT32_MAX - 255};
    for (uint64_t i = 0; i + sizeof sinks <= o.n_bytes && !at; i++)
        if (!memcmp(o.image + i, sinks, sizeof sinks)) at = o.image + i; /* the four sinks' positions */
    for (size_t i = 0; CHECK(at != NULL) && i < CHECK_COUNT(far); i++) {
        memcpy(at, &far[i], sizeof far[i]);
        check_context("position %d", far[i]);
        check_restore(&o, o.image, o.n_bytes, i == 0);
    }
    release(&o);
}

/* Positions in the pages of sides that say where their tokens stand: each once, the window's among them, none in slots
 * that are dead.  The page is the last of the high side, which has slots of the window. */
static void test_forged_slots(void) {
    enum { N = 200 };
    static const char *const specs[] = {"leankv:ah=3,al=0.05,window=32", "leankv:ah=3,al=0,window=32",
                                        "h2o:budget=64,window=32"};
    for (size_t k = 0; k < CHECK_COUNT(specs); k++) {
        original o;
        pleat__lane lane;
        if (!make_original(specs[k], N, N, NULL, &o)) return;
        memcpy(&lane, o.image + sizeof(image_head), sizeof lane);
        const pleat__page_layout *layout = &o.cache->layouts[PLEAT__HIGH];
        const uint64_t n_behind = lane.n_pages[1] + 1ull;
        const uint32_t last = (lane.n_slots[0] - 1) % layout->tokens;
        int32_t two[2];
        uint8_t *at = o.image + o.n_bytes - n_behind * o.cache->page_bytes + layout->pos_off + (last - 1) * sizeof *two;
        CHECK(last >= 1 && lane.hole == 0);
        memcpy(two, at, sizeof two);
        const int32_t bad[] = {two[1], N, -1, -2, INT32_MIN, two[0]};
        for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
            memcpy(at + sizeof *two, &bad[i], sizeof bad[i]);
            check_context("%s, position %d", specs[k], bad[i]);
            check_restore(&o, o.image, o.n_bytes, i == 0);
        }
        release(&o);
    }
}

/* An image whose tokens have masses that no merging gives: logits above all others, or none at all. */
static void test_forged_masses(void) {
    enum { N = 64 };
    original o;
    if (!make_original("h2o:budget=64,window=4+merge", N, N, NULL, &o)) return;
    uint8_t *at =
        o.image + o.n_bytes - o.cache->page_bytes + o.cache->layouts[PLEAT__HIGH].mass_off; /* of the last page */
    const uint16_t masses[] = {0, 0x4880, 0x4881, 0x7C00, 0x7E00, 0xBC00};
    for (size_t i = 0; i < CHECK_COUNT(masses); i++) {
        memcpy(at, &masses[i], sizeof masses[i]);
        check_context("mass %04x", masses[i]);
        check_restore(&o, o.image, o.n_bytes, i < 2);
    }
    release(&o);
}

static const check_test tests[] = {{"sides", test_forged_sides},
                                   {"sinks", test_forged_sinks},
                                   {"positions", test_forged_positions},
                                   {"slots", test_forged_slots},
                                   {"masses", test_forged_masses}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
