/* SPDX-License-Identifier: MIT
 *
 * test_novel.c: what novel promises of whole caches beyond test_evict_cache.c, which holds its scores and choices against
 * a shadow: the same bits for all kernels, threads and parts of a prompt; and what is no rope.
 */
#include <string.h>

#include "check.h"
#include "hw/cpu.h"
#include "policy_rig.h"

enum { LANES = LAYERS * HEADS, PROMPT = 200, GENERATED = 12 };

static const char *const specs[] = {"novel:budget=60,window=8,sinks=2", "novel:budget=30%,window=5,format=f16",
                                    "novel:budget=64,format=k4v4,reclaim=copy"};

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

static const check_test tests[] = {
    {"bits", test_bits},
    {"without_ropes", test_without_ropes},
    {"bad_ropes", test_bad_ropes},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
