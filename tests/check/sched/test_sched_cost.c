/* SPDX-License-Identifier: MIT
 *
 * test_sched_cost.c: prices of steps and swaps: found from steps that cost exactly so much, near enough with noise,
 * kept where nothing tells them, finite and not negative whatever is observed.
 */
#include "check.h"
#include "sched/cost.h"

/* 2 ms a step, 3 ms a chunk of a prompt and 0.4 ms a token of it, 0.1 ms a generation, 15 GB/s of KV; swaps at 10 GB/s. */
static const pleat__serving_cost truth = {
    .fixed_ns = 2e6, .chunk_ns = 3e6, .prompt_ns = 4e5, .token_ns = 1e5, .byte_ns = 1 / 15.0, .swap_ns = 0.1};

static void check_prices(const pleat__serving_cost *got, const pleat__serving_cost *want, double tol) {
    CHECK_NEAR(got->fixed_ns, want->fixed_ns, tol * want->fixed_ns);
    CHECK_NEAR(got->chunk_ns, want->chunk_ns, tol * want->chunk_ns);
    CHECK_NEAR(got->prompt_ns, want->prompt_ns, tol * want->prompt_ns);
    CHECK_NEAR(got->token_ns, want->token_ns, tol * want->token_ns);
    CHECK_NEAR(got->byte_ns, want->byte_ns, tol * want->byte_ns);
}

static void check_sane(const pleat__serving_cost *c) {
    const double prices[] = {c->fixed_ns, c->chunk_ns, c->prompt_ns, c->token_ns, c->byte_ns, c->swap_ns};
    for (uint32_t i = 0; i < CHECK_COUNT(prices); i++) CHECK(isfinite(prices[i]) && prices[i] >= 0);
}

/* n steps of a server: generation alone, prompts alone, both; times are true but for `noise`. */
static void observe_traffic(pleat__serving_cost *c, const pleat__serving_cost *t, int n, double noise) {
    for (int i = 0; i < n; i++) {
        const uint64_t kind = check_below(4);
        pleat__step_load load = {.n_chunks = kind >= 2 ? (uint32_t)check_between(1, 3) : 0,
                                 .n_generated = kind == 3 ? 0 : (uint32_t)check_between(1, 64)};
        load.n_prompt = load.n_chunks > 0 ? (uint32_t)check_between(load.n_chunks, 512) : 0;
        load.kv_bytes = load.n_generated * check_below(4000000);
        const double ns = pleat__cost_step_ns(t, &load);
        pleat__cost_observe_step(c, &load, (uint64_t)llround(ns * check_uniform(1 - noise, 1 + noise)));
        const uint64_t n_bytes = check_between(1000, 1000000000);
        pleat__cost_observe_swap(c, n_bytes, (uint64_t)llround((double)n_bytes * t->swap_ns));
    }
}

/* Steps of generation, and of one chunk of a prompt. */
static pleat__step_load generation(uint32_t n, uint64_t kv_bytes) {
    return (pleat__step_load){.n_generated = n, .kv_bytes = kv_bytes};
}

static pleat__step_load prompt(uint32_t n) { return (pleat__step_load){.n_chunks = 1, .n_prompt = n}; }

static void observe(pleat__serving_cost *c, pleat__step_load load, uint64_t ns) {
    pleat__cost_observe_step(c, &load, ns);
}

static double price_of(const pleat__serving_cost *c, pleat__step_load load) { return pleat__cost_step_ns(c, &load); }

static const pleat__serving_cost guesses[] = {
    {0},
    {.fixed_ns = 1, .prompt_ns = 1, .token_ns = 1, .byte_ns = 1e-3, .swap_ns = 1e-3},
    {.fixed_ns = 1e9, .prompt_ns = 1e8, .token_ns = 1e8, .byte_ns = 10, .swap_ns = 10},
};

static void test_finds_true_prices(void) {
    for (uint32_t g = 0; g < CHECK_COUNT(guesses); g++) {
        check_context("guess %u", g);
        pleat__serving_cost c = guesses[g];
        observe_traffic(&c, &truth, 400, 0);
        check_prices(&c, &truth, 0.01);
        CHECK_NEAR(c.swap_ns, truth.swap_ns, 0.01 * truth.swap_ns);
        /* The machine becomes half as fast. */
        const pleat__serving_cost slow = {
            .fixed_ns = 4e6, .chunk_ns = 6e6, .prompt_ns = 8e5, .token_ns = 2e5, .byte_ns = 2 / 15.0, .swap_ns = 0.2};
        observe_traffic(&c, &slow, 1500, 0);
        check_prices(&c, &slow, 0.01);
        CHECK_NEAR(c.swap_ns, slow.swap_ns, 0.01 * slow.swap_ns);
    }
}

/* Every eighth step takes half as long again: the price is their mean. */
static void test_mean(void) {
    for (int first = 0; first < 3; first++) {
        pleat__serving_cost c = {.fixed_ns = first * 5e6};
        for (int i = 0; i < 2000; i++) {
            observe(&c, generation(50, 4000000000u), i % 8 == 3 ? 9000000 : 6000000);
            if (i < 300) continue;
            const double got = price_of(&c, generation(50, 4000000000u));
            CHECK(fabs(got / 6.375e6 - 1) < 0.02);
        }
    }
}

/* A tenth more or less, and a step in a hundred that waits a second for something else: costs, rather than each price,
 * are near. */
static void test_noise(void) {
    pleat__serving_cost c = {0};
    for (int i = 0; i < 2000; i++) {
        observe_traffic(&c, &truth, 1, 0.1);
        if (i % 100 == 50) observe(&c, generation(20, 30000000), 1000000000);
        if (i < 200) continue;
        const pleat__step_load mixed = {1, 100, 30, 60000000};
        const double got = price_of(&c, mixed), want = price_of(&truth, mixed);
        CHECK_NEAR(got, want, 0.15 * want);
    }
    check_prices(&c, &truth, 0.5);
}

static void test_keeps_guesses(void) {
    const pleat__serving_cost guess = {
        .fixed_ns = 3e6, .prompt_ns = 7e5, .token_ns = 2e5, .byte_ns = 0.03, .swap_ns = 0.3};
    pleat__serving_cost c = guess;
    observe(&c, generation(0, 0), 1000000); /* none of these tells anything */
    observe(&c, (pleat__step_load){1, 5, 5, 5}, 0);
    pleat__cost_observe_swap(&c, 0, 1000);
    pleat__cost_observe_swap(&c, 1000, 0);
    CHECK_EQ_MEM(&c, &guess, sizeof c);
    for (int i = 0; i < 50; i++) /* prompts alone */
        observe(&c, prompt(100), (uint64_t)(guess.fixed_ns + 100 * 4e5));
    CHECK_NEAR(c.prompt_ns, 4e5, 1);
    CHECK_NEAR(c.chunk_ns, 0, 1);
    CHECK(c.fixed_ns == guess.fixed_ns && c.token_ns == guess.token_ns && c.byte_ns == guess.byte_ns);
    CHECK(c.swap_ns == guess.swap_ns);
    for (int i = 0; i < 50; i++) /* generation that reads no KV */
        observe(&c, generation(1 + (uint32_t)i % 8, 0), (uint64_t)(2e6 + 1e5 * (1 + i % 8)));
    CHECK_NEAR(c.fixed_ns, 2e6, 2e4);
    CHECK_NEAR(c.token_ns, 1e5, 1e3);
    CHECK(c.byte_ns == guess.byte_ns && c.swap_ns == guess.swap_ns);
    CHECK_NEAR(price_of(&c, prompt(100)), guess.fixed_ns + 100 * 4e5, 5e4); /* what the fixed part lost */
}

/* Always the same number of generations: fixed and token cannot be told apart.  Their sum is found, and each moves no
 * more than it has to. */
static void test_what_steps_do_not_tell_apart(void) {
    pleat__serving_cost c = {.fixed_ns = 1e6, .token_ns = 1e5, .byte_ns = 0.1};
    for (uint64_t i = 0; i < 500; i++) {
        const uint64_t kv_bytes = i * 100000;
        observe(&c, generation(8, kv_bytes), (uint64_t)(3.6e6 + 0.1 * (double)kv_bytes));
    }
    CHECK_NEAR(c.fixed_ns + 8 * c.token_ns, 3.6e6, 3.6e4);
    CHECK_NEAR(c.byte_ns, 0.1, 0.001);
    CHECK_NEAR(c.fixed_ns, 1.9e6, 1e5);
    CHECK_NEAR(c.token_ns, 2.125e5, 2e4);
}

static uint64_t any_u64(void) {
    static const uint64_t edges[] = {0, 1, 2, 1000000, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX};
    return check_below(2) ? edges[check_below(CHECK_COUNT(edges))] : check_u64() >> check_below(64);
}

static void test_any_observation(void) {
    const uint64_t n_rounds = check_rounds(200000, 20000);
    pleat__serving_cost c = {0};
    for (uint64_t round = 0; round < n_rounds && check_failures() == 0; round++) {
        if (round % 1000 == 0) c = guesses[check_below(CHECK_COUNT(guesses))];
        const uint32_t n_prompt = (uint32_t)any_u64(), n_generated = (uint32_t)any_u64();
        const bool has_prompt = check_below(2);
        const pleat__step_load load = {has_prompt ? 1 + (uint32_t)any_u64() % 8 : 0, has_prompt ? n_prompt : 0,
                                       n_generated, any_u64()};
        pleat__cost_observe_step(&c, &load, any_u64());
        pleat__cost_observe_swap(&c, any_u64(), any_u64());
        check_sane(&c);
        CHECK(isfinite(price_of(&c, (pleat__step_load){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX})));
    }
    observe_traffic(&c, &truth, 30000, 0); /* and it is forgotten */
    check_prices(&c, &truth, 0.01);
}

/* A price seen once and then never again stays what it was, for however long. */
static void test_forgetting_does_not_wear_out(void) {
    pleat__serving_cost c = {0};
    observe_traffic(&c, &truth, 400, 0);
    const double byte_ns = c.byte_ns;
    for (uint32_t i = 0; i < 100000; i++) observe(&c, generation(1 + i % 32, 0), (uint64_t)(2e6 + 1e5 * (1 + i % 32)));
    check_sane(&c);
    CHECK_NEAR(c.byte_ns, byte_ns, 0.01 * byte_ns);
    CHECK_NEAR(c.token_ns, 1e5, 1e3);
}

static void test_costs(void) {
    const pleat__serving_cost *t = &truth;
    CHECK_NEAR(price_of(t, generation(0, 0)), 2e6, 1e-3);
    CHECK_NEAR(price_of(t, (pleat__step_load){2, 10, 3, 30000000}), 2e6 + 6e6 + 4e6 + 3e5 + 2e6, 1e-3);
    CHECK_NEAR(pleat__cost_swap_ns(t, 1000000), 2e5, 1e-6);
    CHECK_NEAR(pleat__cost_recompute_ns(t, 2, 100, 0, 0, 0), 4e6 + 6e6 + 4e7, 1e-3);
    CHECK_NEAR(pleat__cost_recompute_ns(t, 0, 0, 10, 0, 15000000), 10 * (2e6 + 1e5 + 1e6), 1e-3);
    CHECK_NEAR(pleat__cost_recompute_ns(t, 1, 100, 10, 3, 15000000), 5e5 + 3e6 + 4e7 + 10 * (5e5 + 1e5 + 1e6), 1e-3);
    CHECK(isfinite(pleat__cost_recompute_ns(t, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX)));
}

static const check_test tests[] = {
    {"mean", test_mean},

    {"finds_true_prices", test_finds_true_prices},
    {"noise", test_noise},
    {"keeps_guesses", test_keeps_guesses},
    {"what_steps_do_not_tell_apart", test_what_steps_do_not_tell_apart},
    {"any_observation", test_any_observation},
    {"forgetting_does_not_wear_out", test_forgetting_does_not_wear_out},
    {"costs", test_costs},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
