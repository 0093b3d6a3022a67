/* SPDX-License-Identifier: MIT
 *
 * test_novel.c: what novel promises of whole caches: the same bits for all kernels, threads and parts of a prompt; with
 * the model's mean whatever follows; and what is refused.  test_evict_cache.c holds scores and choices against a shadow.
 */
#include <string.h>

#include "check.h"
#include "hw/cpu.h"
#include "policy_rig.h"
#include "stats_rig.h"

enum { LANES = LAYERS * HEADS, PROMPT = 200, GENERATED = 12 };

static const char *const specs[] = {
    "novel:budget=60,window=8,sinks=2",         "novel:budget=30%,window=5,format=f16",
    "novel:budget=64,format=k4v4,reclaim=copy", "novel:budget=64,format=h4v4,mean=model",
    "novel:budget=64,window=8,near=3",          "novel:budget=64,mean=model,near=2",
    "leverage:budget=60,window=8,sinks=2",      "streaming:budget=60+novel:share=75%,mean=model",
    "random:budget=60,window=8+novel",          "expected:budget=60,window=8,sinks=2",
    "expected:budget=30%,format=h4v4"};

/* What a cache keeps of a sequence, and each token's score, after a prompt in these parts and some generation. */
typedef struct outcome {
    pleat_cache_token tokens[LANES][PROMPT + GENERATED];
} outcome;

static void run_step(rig *r, uint32_t n, bool more) {
    static float q[PROMPT * ROW], k[PROMPT * KV_ROW], v[PROMPT * KV_ROW], out[PROMPT * ROW];
    const share mine = {0, n, more};
    CHECK_STATUS(rig_begin(r, &mine, 1), PLEAT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        rig_rows(r, &mine, 1, layer, q, k, v);
        CHECK_STATUS(pleat_cache_attend(r->cache, layer, q, k, v, out), PLEAT_OK);
    }
    CHECK_STATUS(pleat_cache_end(r->cache), PLEAT_OK);
    r->n_tokens[0] += n;
}

static void run(const char *spec, pleat_workers *workers, const uint32_t *parts, outcome *out) {
    const pleat_cache_options opt = rig_options(spec, workers);
    rig r = rig_new(&opt, 1);
    memset(out, 0, sizeof *out);
    for (; *parts; parts++) run_step(&r, *parts, parts[1] != 0);
    for (uint32_t i = 0; i < GENERATED; i++) run_step(&r, 1, false);
    for (uint32_t lane = 0; lane < LANES; lane++)
        CHECK_STATUS(pleat_cache_tokens(r.cache, r.seqs[0], lane / HEADS, lane % HEADS, 0, PROMPT + GENERATED,
                                        out->tokens[lane]),
                     PLEAT_OK);
    rig_free(&r);
}

static void test_bits(void) {
    static const uint32_t whole[] = {PROMPT, 0}, in_parts[] = {70, 1, 64, 65, 0};
    static outcome want, got;
    const uint32_t flags = pleat_cpu_flags(), sets[] = {0, PLEAT_CPU_AVX2, UINT32_MAX};
    pleat_workers *workers = NULL;
    CHECK_STATUS(pleat_workers_create(3, NULL, &workers), PLEAT_OK);
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) {
        pleat_cpu_mask(0);
        run(specs[i], NULL, whole, &want);
        for (size_t set = 0; set < CHECK_COUNT(sets); set++) {
            check_context("%s with CPU features %x", specs[i], sets[set]);
            pleat_cpu_mask(flags & sets[set]);
            run(specs[i], set % 2 ? workers : NULL, whole, &got);
            CHECK_EQ_MEM(&got, &want, sizeof got);
            run(specs[i], workers, in_parts, &got);
            CHECK_EQ_MEM(&got, &want, sizeof got);
        }
    }
    pleat_cpu_mask(flags);
    pleat_workers_destroy(&workers);
}

/* ---- the model's mean ----------------------------------------------------------------------------------- */

static const cache_shape shape = {.n_layers = LAYERS,
                                  .n_kv_heads = HEADS,
                                  .head_dim = D,
                                  .group = GROUP,
                                  .max_seqs = 3,
                                  .max_tokens = CAP,
                                  .step_tokens = CAP};

/* A lane as it is read: what is kept, and its bytes as numbers. */
typedef struct reading {
    pleat_cache_token tokens[CAP];
    float k[CAP * D], v[CAP * D];
} reading;

static void read_lane(const pleat_cache *cache, pleat_seq seq, uint32_t lane, uint32_t n, reading *out) {
    memset(out, 0, sizeof *out);
    CHECK_STATUS(pleat_cache_tokens(cache, seq, lane / HEADS, lane % HEADS, 0, n, out->tokens), PLEAT_OK);
    CHECK_STATUS(pleat_cache_export(cache, seq, lane / HEADS, lane % HEADS, 0, n, out->k, out->v), PLEAT_OK);
}

static bool is_kept(const pleat_cache_token *t) { return t->level != PLEAT_LEVEL_DROPPED; }

/* Of the prefix, apart from its newest tokens: what both keep is alike, and what one keeps beyond the other is less
 * novel than all that both keep.  Returns how many both keep. */
static uint32_t compare_kept(const reading *a, const reading *b, uint32_t n) {
    float least = INFINITY, most_lost = 0;
    uint32_t n_both = 0, n_lost[2] = {0};
    for (uint32_t t = 0; t < n; t++) {
        const bool in_a = is_kept(&a->tokens[t]), in_b = is_kept(&b->tokens[t]);
        if (in_a && in_b) {
            CHECK_EQ_MEM(a->k + t * D, b->k + t * D, D * sizeof(float));
            CHECK_EQ_MEM(a->v + t * D, b->v + t * D, D * sizeof(float));
            CHECK_EQ_MEM(&a->tokens[t].significance, &b->tokens[t].significance, sizeof(float));
            if (t >= 2) least = fminf(least, a->tokens[t].significance);
        }
        if (in_a && !in_b) most_lost = fmaxf(most_lost, a->tokens[t].significance);
        if (!in_a && in_b) most_lost = fmaxf(most_lost, b->tokens[t].significance);
        n_both += in_a && in_b;
        n_lost[0] += in_b && !in_a;
        n_lost[1] += in_a && !in_b;
    }
    CHECK(n_lost[0] == 0 || n_lost[1] == 0);
    CHECK(most_lost <= least);
    return n_both;
}

/* Of the prefix's newest tokens, whose scores have what follows: how many have other ones. */
static uint32_t count_changed(const reading *a, const reading *b, uint32_t from, uint32_t n) {
    uint32_t n_changed = 0;
    for (uint32_t t = from; t < n; t++)
        n_changed +=
            is_kept(&a->tokens[t]) && is_kept(&b->tokens[t]) && a->tokens[t].significance != b->tokens[t].significance;
    return n_changed;
}

/* Random prefixes, each read twice, in other parts and other company: the same tokens stay, in the same bytes and with the same scores.
 * Whatever follows then, the tokens that go go in one order, and those that stay stay as they are: all but the newest
 * `near` of the prefix, whose scores have neighbours that follow. */
static void check_whatever_follows(const char *spec, uint32_t near, uint64_t n_rounds) {
    enum { BUDGET = 60, WINDOW = 8 };
    static reading a, b;
    uint64_t n_alike = 0, n_kept = 0, n_changed = 0;
    pleat_cache *cache = cache_of(spec, &shape);
    for (uint64_t round = 0; round < n_rounds; round++) {
        uint64_t ids[2][CAP];
        const uint32_t n_prefix = (uint32_t)check_between(62, 300);
        const pleat_seq seqs[2] = {cache_seq(cache, CAP), cache_seq(cache, CAP)};
        uint32_t n[2];
        for (uint32_t i = 0; i < 2; i++) {
            n[i] = n_prefix + (uint32_t)check_between(WINDOW, 110);
            for (uint32_t t = 0; t < n[i]; t++) ids[i][t] = i && t < n_prefix ? ids[0][t] : check_u64() >> 24;
            stats_feed(cache, &shape, seqs[i], ids[i], n_prefix, 90);
        }
        check_context("%s, round %llu, a prefix of %u", spec, (unsigned long long)round, n_prefix);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            read_lane(cache, seqs[0], lane, n_prefix, &a);
            read_lane(cache, seqs[1], lane, n_prefix, &b);
            CHECK_EQ_MEM(&a, &b, sizeof a);
            for (uint32_t t = 0; t < n_prefix; t++) n_alike += is_kept(&a.tokens[t]);
        }
        for (uint32_t i = 0; i < 2; i++) stats_feed(cache, &shape, seqs[i], ids[i] + n_prefix, n[i] - n_prefix, 90);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            read_lane(cache, seqs[0], lane, n_prefix, &a);
            read_lane(cache, seqs[1], lane, n_prefix, &b);
            n_kept += compare_kept(&a, &b, n_prefix - near);
            n_changed += count_changed(&a, &b, n_prefix - near, n_prefix);
        }
        for (uint32_t i = 0; i < 2; i++) CHECK_STATUS(pleat_cache_close(cache, seqs[i]), PLEAT_OK);
    }
    CHECK_EQ_U64(n_alike, n_rounds * LANES * BUDGET);
    CHECK(n_kept > n_rounds * LANES * BUDGET / 4);
    CHECK((n_changed > 0) == (near > 0));
    pleat_cache_destroy(&cache);
}

static void test_whatever_follows(void) {
    check_whatever_follows("novel:budget=60,window=8,sinks=2,mean=model", 0, check_rounds(1000, 20));
    check_whatever_follows("novel:budget=60,window=8,sinks=2,mean=model,near=2", 2, check_rounds(300, 10));
}

/* ---- what is refused ------------------------------------------------------------------------------------ */

static void refused(const pleat_cache_options *opt, const char *words) {
    pleat_cache *cache = NULL;
    pleat_error err = {0};
    check_context("%s", words);
    CHECK_STATUS(pleat_cache_create(opt, &cache, &err), PLEAT_E_ARG);
    CHECK(cache == NULL && strstr(err.text, words) != NULL);
}

/* Without ropes a cache can be planned, not made.  Other policies do not ask. */
static void test_without_ropes(void) {
    pleat_cache_options opt = rig_options("novel:budget=60", NULL), other = rig_options("h2o:budget=68", NULL);
    pleat_cache_traits traits = {.size_bytes = sizeof traits};
    opt.ropes = other.ropes = NULL;
    CHECK(pleat_cache_bytes_for(&opt, 100, CAP) > 0);
    CHECK_STATUS(pleat_cache_traits_for(&opt, &traits, NULL), PLEAT_OK);
    refused(&opt, "novel looks at keys as they were before RoPE, and options.ropes does not say how to undo it");
    rig r = rig_new(&other, 0);
    rig_free(&r);
}

static void test_bad_ropes(void) {
    static double frequencies[D / 2] = {1, 0.5};
    static const struct {
        uint32_t n_dims;
        float magnitude;
        double first;
        bool has_none;
        const char *words;
    } cases[] = {
        {0, 1, 1, false, "ropes[1] turns 0 dimensions: allowed are even numbers from 2 to head_dim 32"},
        {7, 1, 1, false, "ropes[1] turns 7 dimensions"},
        {34, 1, 1, false, "ropes[1] turns 34 dimensions"},
        {8, 0, 1, false, "the magnitude of ropes[1] is outside 2^-16..65536"},
        {8, -1, 1, false, "the magnitude of ropes[1]"},
        {8, NAN, 1, false, "the magnitude of ropes[1]"},
        {8, 1, INFINITY, false, "frequency 0 of ropes[1] is not below 65536 in magnitude"},
        {8, 1, NAN, false, "frequency 0 of ropes[1]"},
        {8, 1, 1, true, "ropes[1] has no frequencies"},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_cache_options opt = rig_options("novel:budget=60", NULL);
        frequencies[0] = cases[i].first;
        const pleat_rope bad = {cases[i].n_dims, 0, cases[i].magnitude, cases[i].has_none ? NULL : frequencies};
        const pleat_rope *ropes[LAYERS] = {NULL, &bad};
        opt.ropes = ropes;
        refused(&opt, cases[i].words);
    }
}

/* Without statistics, or with those of another shape; for the mean of a prompt nobody asks. */
static void test_without_stats(void) {
    pleat_cache_options opt = rig_options("novel:budget=60,mean=model", NULL),
                        own = rig_options("novel:budget=60", NULL);
    opt.stats = own.stats = NULL;
    CHECK(pleat_cache_bytes_for(&opt, 100, CAP) > 0);
    refused(&opt, "novel:mean=model takes the mean key from statistics of the model, and options.stats has none");
    rig r = rig_new(&own, 0);
    rig_free(&r);
    opt.stats = cache_stats;
    opt.n_layers = 1;
    refused(&opt, "the statistics are of 2 layers of 2 KV heads of 32 dimensions, the cache is of 1, 2 and 32");
}

/* An image goes into caches of its mean alone: of this model's, not of another's or the prompt's. */
static void test_image_of_another_mean(void) {
    static const char *const others[] = {"novel:budget=60", "novel:budget=60,mean=model"};
    pleat_stats *mine = stats_of_texts(&shape, 1, NULL);
    const pleat_stats *own = cache_stats;
    uint64_t ids[100];
    pleat_cache *cache = cache_of("novel:budget=60,mean=model", &shape);
    const pleat_seq seq = cache_seq(cache, CAP);
    for (uint32_t t = 0; t < 100; t++) ids[t] = check_u64() >> 24;
    stats_step(cache, &shape, seq, ids, 100, 0, NULL);
    const uint64_t n_bytes = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *image = malloc(n_bytes);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, image, n_bytes), PLEAT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        cache_stats = i == 1 ? mine : own;
        pleat_cache *other = cache_of(others[i > 0], &shape);
        pleat_seq got = {0};
        CHECK_STATUS(pleat_cache_restore(other, image, n_bytes, (pleat_seq){0}, &got),
                     i == 2 ? PLEAT_OK : PLEAT_E_FORMAT);
        pleat_cache_destroy(&other);
    }
    cache_stats = own;
    free(image);
    pleat_cache_destroy(&cache);
    pleat_stats_destroy(&mine);
}

static const check_test tests[] = {
    {"bits", test_bits},
    {"whatever_follows", test_whatever_follows},
    {"without_stats", test_without_stats},
    {"image_of_another_mean", test_image_of_another_mean},
    {"without_ropes", test_without_ropes},
    {"bad_ropes", test_bad_ropes},
};

int main(int argc, char **argv) { return stats_main(&shape, tests, CHECK_COUNT(tests), argc, argv); }
