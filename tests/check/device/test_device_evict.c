/* SPDX-License-Identifier: MIT
 *
 * test_device_evict.c: lanes that keep a budget of tokens on a GPU, beside the CPU's cache: the same tokens stay, in the
 * same slots, whatever reclaim does with those that are dropped.  An image says all of it: after a prompt, after each
 * step, and behind a fork.
 */
#include <stdio.h>
#include <string.h>

#include "cache/cuda/device_cache.h"
#include "cache_pair.h"

/* Counts of lanes and all pages with their positions. */
static bool are_alike(const pair *p, uint32_t seq) {
    image cpu = image_of_cpu(p, seq), gpu = image_of_gpu(p, seq);
    const bool alike = CHECK_EQ_U64(gpu.n_bytes, cpu.n_bytes) && CHECK_EQ_MEM(gpu.data, cpu.data, cpu.n_bytes);
    free(cpu.data), free(gpu.data);
    return alike;
}

static bool step_alike(pair *p, const uint32_t *seqs, uint32_t n) {
    bool alike = true;
    step(p, seqs, n);
    for (uint32_t i = 0; i < n && alike; i++) alike = are_alike(p, seqs[i]);
    return alike && CHECK_STATUS(pleat_device_cache_check(p->gpu, NULL, NULL), PLEAT_OK);
}

/* What the cache says that it holds. */
static void counts_are_alike(const pair *p) {
    pleat_device_cache_load loads[N_SEQS];
    uint64_t used;
    CHECK_STATUS(pleat_device_cache_get_loads(p->gpu, &used, loads, NULL, NULL), PLEAT_OK);
    for (uint32_t seq = 0; seq < N_SEQS; seq++) {
        pleat_cache_usage u;
        pleat_device_cache_held held;
        CHECK_STATUS(pleat_cache_get_usage(p->cpu, p->seqs[seq], &u), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_get_held(p->gpu, seq, &held, NULL, NULL), PLEAT_OK);
        CHECK_EQ_U64(held.tokens[0], u.tokens_high);
        CHECK_EQ_U64(held.pages[0], u.pages_used);
        CHECK_EQ_U64(loads[seq].pages[0], u.pages_used);
        CHECK_EQ_U64(loads[seq].slots[0] - loads[seq].holes, u.tokens_high);
    }
}

static bool take_over(pair *p, uint32_t seq) { return take_image(p, seq) && are_alike(p, seq); }

static bool fork_over(pair *p, uint32_t from, uint32_t to) {
    fork_both(p, from, to);
    return are_alike(p, to);
}

static bool prompt_alike(pair *p, uint32_t seq, uint32_t n) {
    read_some(p, seq, n);
    return are_alike(p, seq);
}

/* Prompts above and below the budget, one from single tokens; steps in changing company; a fork; an image of the CPU's;
 * a place that begins again. */
static bool run_pair(pair *p) {
    static const uint32_t all[] = {2, 0, 1}, two[] = {0, 2};
    const uint32_t n_more = (uint32_t)check_cases(20, 1);
    bool goes_on = prompt_alike(p, 0, (uint32_t)check_cases(290, 90)) && prompt_alike(p, 1, 7);
    for (uint32_t i = 0; i < 3 * n_more && goes_on; i++)
        goes_on = i % 3 ? step_alike(p, all, 3) : step_alike(p, two, 2);
    if (goes_on) counts_are_alike(p);
    goes_on = goes_on && fork_over(p, 0, 2) && take_over(p, 0);
    for (uint32_t i = 0; i < n_more && goes_on; i++) goes_on = step_alike(p, all, 3);
    if (!goes_on) return false;
    CHECK_STATUS(pleat_device_cache_close(p->gpu, 1, NULL, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_cache_close(p->cpu, p->seqs[1]), PLEAT_OK);
    CHECK_STATUS(pleat_cache_open(p->cpu, N_MOST, &p->seqs[1]), PLEAT_OK);
    p->lengths[1] = p->n_prompts[1] = 0;
    goes_on = prompt_alike(p, 1, 120);
    for (uint32_t i = 0; i < n_more && goes_on; i++) goes_on = step_alike(p, all, 3);
    if (goes_on) counts_are_alike(p);
    return goes_on;
}

static void the_cpus_tokens_stay_in_the_cpus_slots(void) {
    CHECK_DEVICE();
    static const char *const policies[] = {"streaming:budget=60,sinks=4", "recent:budget=48", "recent:budget=30%",
                                           "random:budget=50,window=8,sinks=2", "random:budget=40%,window=3"};
    static const char *const reclaims[] = {"reuse", "copy", "block", "none"};
    static const char *const formats[] = {"f16", "k8v4", "k4v2", "k2v2", "k8v8"};
    const uint32_t n_specs = CHECK_COUNT(policies) * CHECK_COUNT(reclaims), each = (uint32_t)check_cases(1, 5);
    for (uint32_t i = 0; i < n_specs && check_failures() == 0; i += each) {
        const uint32_t policy = i / CHECK_COUNT(reclaims), how = i % CHECK_COUNT(reclaims);
        char text[128];
        snprintf(text, sizeof text, "%s,reclaim=%s,format=%s", policies[policy], reclaims[how],
                 formats[(i + i / 5) % 5]);
        const shape s = {(i + i / 3) % 3 ? 64 : 128, 2, 1 + i % 8, {0, 0}, 0, text, i % 4 ? 16 * (i % 4) : 0};
        pair p;
        const bool is_there = pair_init(&p, &s);
        if (is_there && i / 5 % 2) p.gpu->lanes.many_lanes = 1; /* one warp a lane, or eight */
        if (is_there) run_pair(&p);
        pair_free(&p);
    }
}

/* Lanes of several rounds of keep's, searches of several rounds, more lanes than have eight warps each. */
static void many_tokens(void) {
    CHECK_DEVICE();
    const uint32_t many = (uint32_t)check_cases(40000, 3000), budget = many / 6 * 5;
    for (uint32_t i = 0; i < 2 && check_failures() == 0; i++) {
        pleat_device_cache_options opt;
        pleat_device_cache *c = NULL;
        pleat_device_cache_held held;
        pleat_device_cache_options_default(&opt);
        char text[128];
        snprintf(text, sizeof text, i ? "random:budget=%u,window=16,format=k4v4" : "streaming:budget=%u,format=k4v4",
                 budget);
        CHECK_STATUS(pleat_spec_parse(text, &opt.spec, NULL), PLEAT_OK);
        opt.n_layers = 1, opt.n_kv_heads = 2, opt.n_q_heads = 2, opt.head_dim = 64;
        opt.max_tokens = many + 8;
        if (!CHECK_STATUS(pleat_device_cache_create(&opt, &c, NULL), PLEAT_OK)) return;
        void *rows = device_alloc((uint64_t)many * 2 * 64 * 2);
        CHECK_STATUS(pleat__device_fill(rows, 0, (uint64_t)many * 2 * 64 * 2, default_stream, NULL), PLEAT_OK);
        const uint32_t batch[] = {0};
        CHECK_STATUS(pleat_device_cache_prompt_begin(c, 0, many, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_prompt(c, 0, rows, rows, NULL, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_prompt_end(c, NULL, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_device_cache_set_batch(c, batch, 1, NULL, NULL), PLEAT_OK);
        for (uint32_t step = 0; step < check_cases(5, 2); step++) {
            CHECK_STATUS(pleat_device_cache_get_held(c, 0, &held, NULL, NULL), PLEAT_OK);
            CHECK_EQ_U64(held.tokens[0], 2 * budget);
            CHECK_STATUS(pleat_device_cache_begin(c, NULL, NULL), PLEAT_OK);
            CHECK_STATUS(pleat_device_cache_append(c, 0, rows, rows, NULL, NULL), PLEAT_OK);
            CHECK_STATUS(pleat_device_cache_end(c, NULL, NULL), PLEAT_OK);
        }
        CHECK_STATUS(pleat_device_cache_check(c, NULL, NULL), PLEAT_OK);
        pleat_device_cache_destroy(&c);
        pleat__device_free(rows);
    }
}

static void what_it_does_not_take_is_named(void) {
    CHECK_DEVICE();
    static const struct {
        const char *spec, *words;
        uint32_t head_dim;
    } cases[] = {
        {"dropkv:budget=128", "streaming, recent, random, h2o, snapkv, pyramidkv, adakv and novel", 64},
        {"leverage:budget=128", "streaming, recent, random, h2o, snapkv, pyramidkv, adakv and novel", 64},
        {"snapkv:budget=128+kvcrush", "+kvcrush", 64},
        {"streaming:budget=64+merge", "+merge", 64},
        {"random:budget=64,window=8+kvcrush", "+kvcrush", 64},
        {"streaming:budget=16MiB", "not of bytes", 64},
        {"streaming:budget=64", "heads of 64 and 128", 96},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_device_cache_options opt;
        pleat_device_cache_options_default(&opt);
        opt.n_layers = 1, opt.n_kv_heads = 1, opt.n_q_heads = 1, opt.head_dim = cases[i].head_dim;
        opt.max_tokens = 200;
        check_refused(&opt, cases[i].spec, PLEAT_E_UNSUPPORTED, cases[i].words);
    }
}

static const check_test tests[] = {
    {"the cpu's tokens stay in the cpu's slots", the_cpus_tokens_stay_in_the_cpus_slots},
    {"many tokens", many_tokens},
    {"what it does not take is named", what_it_does_not_take_is_named},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
