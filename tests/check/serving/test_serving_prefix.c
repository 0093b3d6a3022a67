/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_prefix.c: prefixes that one request computed and others go on from, where what is kept is compressed or
 * evicted: byte for byte what each would have made alone.
 *
 *     kept alike      the kept prefix is the same bytes whatever came behind it in the request that made it, and
 *                     stays so while others go on from it
 *     served alike    a request that begins from it holds, when its prompt has been read, the bytes that it holds alone;
 *                     its blocks have the same hashes, and its tokens are the same
 *     counted         tokens that were not computed, and pages that are not held twice
 *
 * Bytes are compared as images (pleat_cache_save), which hold all of a sequence: levels, payloads, scores, slots.
 */
#include "serving_rig.h"

enum { SHARED = 256, OWN = 40, PREDICT = 30, N_CONTINUATIONS = 3, N_LANES = 32 };

/* shares: a continuation goes on sharing pages.  Under eviction each step may write all of them. */
static const struct {
    const char *spec;
    bool shares;
} cases[] = {{"rd:k=0.15,v=1.1,buffer=40", true},
             {"novel:budget=96,window=16,mean=model", false},
             {"f16", true}, /* the control */
             {"rd", true},
             {"rd:k=0.15,v=1.1,buffer=72,sinks=20", true},
             {"novel:budget=48,window=16,format=h4v4,mean=model", false},
             {"novel:budget=48,window=16,mean=model,reclaim=copy", false},
             {"kvcomp:k=0.2,v=0.2,block=32,buffer=40", true}};

/* The shared tokens and a continuation of its own. */
static pleat_token prompts[N_CONTINUATIONS][SHARED + OWN];

static void make_prompts(void) {
    for (uint32_t i = 0; i < N_CONTINUATIONS; i++) {
        memcpy(prompts[i], text, SHARED * sizeof **prompts);
        memcpy(prompts[i] + SHARED, text + 700 + 90 * i, OWN * sizeof **prompts);
    }
}

/* Bytes of a sequence. */
typedef struct image {
    uint8_t *bytes;
    uint64_t n;
} image;

static image image_of(const rig *r, pleat_seq seq) {
    const pleat_cache *cache = pleat_engine_cache(r->engine);
    image out = {.n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0})};
    out.bytes = malloc(out.n + 1);
    CHECK(out.n > 0);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, out.bytes, out.n), PLEAT_OK);
    return out;
}

static void check_equal(image a, image b) {
    if (CHECK_EQ_U64(a.n, b.n)) CHECK_EQ_MEM(a.bytes, b.bytes, a.n);
}

/* The kept prefix of SHARED tokens. */
static image kept_image(const rig *r) {
    const pleat_serving *s = r->serving;
    for (uint32_t i = 1; i <= s->opt.max_prefixes; i++)
        if (s->prefixes.kept[i].seq.v && s->prefixes.kept[i].n_tokens == SHARED)
            return image_of(r, s->prefixes.kept[i].seq);
    CHECK(false);
    return (image){0};
}

/* What came of a request: its tokens, and what it held when its prompt had been read. */
typedef struct served {
    outcome out;
    image read;
    uint32_t n_blocks;
    uint64_t hashes[N_LANES * 8];
    uint64_t pages_shared; /* its own, then */
} served;

static void look(const rig *r, pleat_seq seq, served *v) {
    const pleat_cache *cache = pleat_engine_cache(r->engine);
    pleat_serving_stats s;
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    v->read = image_of(r, seq);
    v->n_blocks = pleat_cache_n_blocks(cache, seq);
    for (uint32_t lane = 0; lane < N_LANES; lane++)
        for (uint32_t i = 0; i < v->n_blocks; i++)
            CHECK_STATUS(pleat_cache_block_hash(cache, seq, lane / info.n_kv_heads, lane % info.n_kv_heads, i,
                                                &v->hashes[lane * 8 + i]),
                         PLEAT_OK);
    pleat_serving_get_stats(r->serving, &s);
    uint64_t n_shared = 0;
    for (uint32_t i = 0; i < r->serving->n_running; i++) {
        const pleat__running_part *run = PLEAT__RUNNING(r->serving->running[i]);
        n_shared += run->n_pages - run->own_pages;
        if (run->seq.v == seq.v) v->pages_shared = run->n_pages - run->own_pages;
    }
    CHECK_EQ_U64(s.pages_shared, n_shared);
}

/* Serve continuation `which` to its end, beside a neighbour of other text where there is one. */
static void serve(const rig *r, uint32_t which, bool has_neighbour, served *v) {
    pleat_request q = request_of(prompts[which], SHARED + OWN, PREDICT);
    const pleat_request neighbour = request_of(text + 1500, 201, PREDICT);
    pleat_request_id id = {0};
    outcome other;
    *v = (served){0};
    q.user = &v->out;
    if (has_neighbour) submit(r->serving, &neighbour, &other);
    CHECK_STATUS(pleat_serving_submit(r->serving, &q, &id, NULL), PLEAT_OK);
    while (check_failures() == 0 && pleat_serving_step(r->serving, NULL) == PLEAT_OK) {
        take_events(r->serving);
        const pleat_seq seq = pleat_serving_sequence(r->serving, id);
        if (seq.v && !v->read.bytes && pleat_engine_length(r->engine, seq) == q.n_prompt) look(r, seq, v);
    }
    CHECK(v->out.finish == PLEAT_FINISH_LENGTH && v->read.bytes);
}

static void compare(const served *a, const served *b) {
    check_equal(a->read, b->read);
    CHECK_EQ_U64(a->n_blocks, b->n_blocks);
    CHECK_EQ_MEM(a->hashes, b->hashes, sizeof a->hashes);
    CHECK_EQ_U64(a->out.n_tokens, PREDICT);
    CHECK_EQ_MEM(a->out.tokens, b->out.tokens, sizeof a->out.tokens);
}

/* Each continuation alone, in a serving of its own. */
static void serve_alone(const char *spec, uint32_t which, served *v, image *kept) {
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    if (rig_make(&r, &eo, &so, 0)) {
        serve(&r, which, false, v);
        CHECK_EQ_U64(v->out.stats.n_hit, 0);
        *kept = kept_image(&r);
    }
    rig_free(&r);
}

/* All in one serving: the first computes the prefix, the others begin from it, some beside a neighbour. */
static void check_reuse(const char *spec, bool shares) {
    served alone[N_CONTINUATIONS] = {0}, v;
    image kept[N_CONTINUATIONS] = {0};
    rig r;
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    check_context("%s", spec);
    for (uint32_t i = 0; i < N_CONTINUATIONS && check_failures() == 0; i++) {
        serve_alone(spec, i, &alone[i], &kept[i]);
        check_equal(kept[i], kept[0]);
        if (i > 0)
            CHECK(alone[i].read.n != alone[0].read.n ||
                  memcmp(alone[i].read.bytes, alone[0].read.bytes, alone[0].read.n) != 0);
    }
    if (rig_make(&r, &eo, &so, 0)) {
        for (uint32_t i = 0; i < N_CONTINUATIONS && check_failures() == 0; i++) {
            check_context("%s, continuation %u", spec, i);
            serve(&r, i, i == 2, &v);
            compare(&v, &alone[i]);
            CHECK_EQ_U64(v.out.stats.n_hit, i > 0 ? SHARED : 0);
            CHECK_EQ_U64(v.out.stats.n_computed, i > 0 ? OWN : SHARED + OWN);
            CHECK(i == 0 || (v.pages_shared > 0) == shares);
            const image now = kept_image(&r);
            check_equal(now, kept[0]);
            free(now.bytes);
            free(v.read.bytes);
        }
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK_EQ_U64(s.hit_tokens, (N_CONTINUATIONS - 1) * SHARED);
        CHECK_EQ_U64(s.hits, N_CONTINUATIONS - 1);
        CHECK_EQ_U64(s.pages_shared, 0); /* nobody runs */
    }
    rig_free(&r);
    for (uint32_t i = 0; i < N_CONTINUATIONS; i++) free(kept[i].bytes), free(alone[i].read.bytes);
}

static void test_reuse(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    make_prompts();
    for (size_t i = 0; i < check_rounds(CHECK_COUNT(cases), 3) && check_failures() == 0; i++)
        check_reuse(cases[i].spec, cases[i].shares);
}

static const check_test tests[] = {{"reuse", test_reuse}};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
