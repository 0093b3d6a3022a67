/* SPDX-License-Identifier: MIT
 *
 * test_device_steps.c: calls of an engine on a GPU in which the runtime fails, and a step of more sequences than a layer's
 * block has rows.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "hw/device.h"
#include "text_rig.h"

/* The nth call of the runtime fails, for every so many n: an error, and all is returned. */
static void failures_of_the_runtime_are_told(void) {
    CHECK_DEVICE();
    text t = text_new(1);
    float *logits = malloc(t.info.n_vocab * sizeof *logits);
    uint32_t n_failed = 0;
    for (uint64_t nth = 1; nth < 1500; nth += 1 + nth / check_cases(3, 1)) {
        pleat_engine_options opt = engine_options_of("k8v4");
        opt.max_tokens = opt.chunk_tokens = opt.step_tokens = 64;
        opt.devices = 1;
        pleat_engine *e = NULL;
        pleat_seq seq = {0};
        pleat__device_fail_at(nth);
        pleat_status status = pleat_engine_create(t.model, &opt, &e, NULL);
        if (status == PLEAT_OK) status = pleat_engine_open(e, 64, &seq);
        if (status == PLEAT_OK) status = step_one(e, seq, t.tokens, 20, logits, NULL);
        if (status == PLEAT_OK) status = step_one(e, seq, t.tokens, 1, logits, NULL);
        pleat__device_fail_at(0);
        check_context("call %llu", (unsigned long long)nth);
        CHECK(status == PLEAT_OK || status == PLEAT_E_DEVICE || status == PLEAT_E_MEMORY);
        n_failed += status != PLEAT_OK;
        pleat_engine_destroy(&e);
    }
    printf("# %u failures told\n", n_failed);
    CHECK(n_failed > 5);
    text_free(&t);
    free(logits);
}

/* A step that failed is given up: its sequence can be closed, and others go on as if nothing had been. */
enum { RECORD_AT = 16 }; /* steps before a graph is recorded (engine/cuda/device_step.c) */
#define N_AFTER (uint32_t) check_cases(RECORD_AT + 2, 2)

static void feed(pleat_engine *e, const pleat_token *tokens, uint32_t n, pleat_seq *seq, float *logits) {
    CHECK_STATUS(pleat_engine_open(e, 64, seq), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) CHECK_STATUS(step_one(e, *seq, tokens + i, 1, logits, NULL), PLEAT_OK);
}

/* The nth call of the runtime fails in the step behind n_before others.  Did it? */
static bool step_fails(const text *t, const char *spec, uint32_t n_before, uint64_t nth, const float *want) {
    const size_t bytes = t->info.n_vocab * sizeof(float);
    pleat_engine *e = engine_on(t, spec, 1, 2, NULL);
    float *logits = malloc(bytes);
    pleat_seq seq;
    feed(e, t->tokens, n_before, &seq, logits);
    pleat__device_fail_at(nth);
    const pleat_status status = step_one(e, seq, t->tokens + n_before, 1, logits, NULL);
    pleat__device_fail_at(0);
    check_context("%s, call %llu, %u tokens before", spec, (unsigned long long)nth, n_before);
    CHECK(status == PLEAT_OK || status == PLEAT_E_DEVICE || status == PLEAT_E_MEMORY);
    CHECK_STATUS(pleat_engine_close(e, seq), PLEAT_OK);
    feed(e, t->tokens, N_AFTER, &seq, logits);
    CHECK_EQ_MEM(logits, want, bytes);
    CHECK_STATUS(pleat_engine_close(e, seq), PLEAT_OK);
    CHECK(pleat_engine_is_valid(e));
    pleat_engine_destroy(&e);
    free(logits);
    return status != PLEAT_OK;
}

/* Launched kernel by kernel, as it is recorded, and as a graph. */
static void check_failed_steps(const text *t, const char *spec) {
    const uint32_t before[] = {1, RECORD_AT, N_AFTER};
    float *want = malloc(t->info.n_vocab * sizeof *want);
    pleat_engine *e = engine_on(t, spec, 1, 2, NULL);
    pleat_seq seq;
    feed(e, t->tokens, N_AFTER, &seq, want);
    pleat_engine_destroy(&e);
    for (size_t k = 0; k < check_cases(CHECK_COUNT(before), 1); k++) {
        uint32_t n_failed = 0;
        for (uint64_t nth = 1; nth < 200 && check_failures() == 0; nth += check_cases(1 + nth / 5, 200))
            n_failed += step_fails(t, spec, before[k], nth, want);
        CHECK(n_failed > 0);
    }
    free(want);
}

static void failed_steps_are_given_up(void) {
    CHECK_DEVICE();
    text t = text_new(2);
    check_failed_steps(&t, "leankv:ah=3,al=0.05");
    if (check_cases(1, 0)) check_failed_steps(&t, "f16");
    text_free(&t);
}

/* The nth call of the runtime fails in a prompt, a later turn, a fork, an image that leaves beside a step, or one that
 * comes back.  What is left can be closed, and others go on. */
static bool way_fails(const text *t, const char *spec, uint64_t nth) {
    enum { N_PROMPT = 40, N_TURN = 9 };
    pleat_engine *e = engine_on(t, spec, 1, 4, NULL);
    float *logits = malloc(t->info.n_vocab * sizeof *logits);
    const pleat_seq none = {0};
    pleat_seq seqs[3] = {none, none, none}; /* it, its fork, its image's */
    pleat_status status[6] = {PLEAT_OK}, worst = PLEAT_OK;
    const pleat_token *tokens = t->tokens;
    check_context("%s, call %llu", spec, (unsigned long long)nth);
    CHECK_STATUS(pleat_engine_open(e, 100, &seqs[0]), PLEAT_OK);
    pleat__device_fail_at(nth);
    status[0] = step_one(e, seqs[0], tokens, N_PROMPT, logits, NULL);
    status[1] = step_one(e, seqs[0], tokens + N_PROMPT, N_TURN, logits, NULL);
    status[2] = pleat_engine_fork(e, seqs[0], 100, &seqs[1]);
    const uint64_t n_bytes = pleat_engine_image_bytes(e, seqs[0], none);
    void *image = n_bytes ? pleat_engine_take_image(e, n_bytes) : NULL;
    if (image) status[3] = pleat_engine_save_soon(e, seqs[0], none, image, n_bytes);
    if (image) status[4] = step_one(e, seqs[0], tokens + N_PROMPT + N_TURN, 1, logits, NULL);
    if (image) status[5] = pleat_engine_restore(e, image, n_bytes, none, &seqs[2]);
    pleat_engine_drop_image(e, image, image ? n_bytes : 0);
    pleat__device_fail_at(0);
    for (size_t i = 0; i < CHECK_COUNT(status); i++) worst = worst ? worst : status[i];
    check_context("%s, call %llu: %d", spec, (unsigned long long)nth, worst);
    for (size_t i = 0; i < CHECK_COUNT(seqs); i++)
        if (seqs[i].v) CHECK_STATUS(pleat_engine_close(e, seqs[i]), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(e, 100, &seqs[0]), PLEAT_OK);
    CHECK_STATUS(step_one(e, seqs[0], tokens, N_PROMPT, logits, NULL), PLEAT_OK);
    CHECK_STATUS(step_one(e, seqs[0], tokens, 1, logits, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_close(e, seqs[0]), PLEAT_OK);
    CHECK(pleat_engine_is_valid(e));
    CHECK_EQ_U64(pleat_engine_pages_held(e, none), 0);
    pleat_engine_destroy(&e);
    free(logits);
    return worst != PLEAT_OK;
}

static void failures_leave_nothing(void) {
    static const char *const specs[] = {"f16", "leankv:ah=3,al=0.05", "novel:budget=30,window=8"};
    CHECK_DEVICE();
    text t = text_new(1);
    for (size_t i = 0; i < check_cases(CHECK_COUNT(specs), 1); i++) {
        uint32_t n_failed = 0;
        for (uint64_t nth = 1; nth < 1200 && check_failures() == 0; nth += check_cases(1 + nth / 20, 300))
            n_failed += way_fails(&t, specs[i], nth);
        CHECK(n_failed > 0);
    }
    text_free(&t);
}

/* More sequences in a step than a prompt's rows that go through a layer at once. */
static void many_more_than_a_block(void) {
    CHECK_DEVICE();
    const uint32_t n = (uint32_t)check_cases(2100, 3);
    text t = text_new(1);
    pleat_engine_options opt = engine_options_of("f16");
    opt.max_seqs = n;
    opt.max_tokens = opt.chunk_tokens = 16;
    opt.page_tokens = 16;
    opt.devices = 1;
    pleat_engine *e = engine_made(t.model, &opt), *one = engine_on(&t, "f16", 1, 1, NULL);
    const size_t n_vocab = t.info.n_vocab;
    float *logits = malloc(3 * n_vocab * sizeof *logits);
    pleat_engine_item *items = malloc(n * sizeof *items);
    pleat_token *chosen = malloc(n * sizeof *chosen);
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (pleat_engine_item){.tokens = t.tokens + i, .n_tokens = 1};
        CHECK_STATUS(pleat_engine_open(e, 16, &items[i].seq), PLEAT_OK);
    }
    const uint32_t at[2] = {0, n - 1};
    for (uint32_t k = 0; k < 2; k++) items[at[k]].n_logits = 1, items[at[k]].logits = logits + k * n_vocab;
    for (uint32_t step = 0; step < check_cases(3, 1); step++) {
        CHECK_STATUS(pleat_engine_step_likeliest(e, items, n, chosen, NULL), PLEAT_OK);
        for (uint32_t i = 0; i < n; i++) items[i].tokens++;
    }
    for (uint32_t k = 0; k < 2; k++) {
        pleat_seq seq;
        feed(one, t.tokens + at[k], (uint32_t)check_cases(3, 1), &seq, logits + 2 * n_vocab);
        CHECK_STATUS(pleat_engine_close(one, seq), PLEAT_OK);
        CHECK_NEAR_ALL(logits + k * n_vocab, logits + 2 * n_vocab, n_vocab, 0.02, 0);
        CHECK_EQ_I64(chosen[at[k]], likeliest(logits + k * n_vocab, t.info.n_vocab));
    }
    CHECK(pleat_engine_is_valid(e));
    pleat_engine_destroy(&e);
    pleat_engine_destroy(&one);
    free(items), free(chosen), free(logits);
    text_free(&t);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"failures of the runtime are told", failures_of_the_runtime_are_told},
        {"failed steps are given up", failed_steps_are_given_up},
        {"failures leave nothing", failures_leave_nothing},
        {"many more than a block of rows", many_more_than_a_block},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
