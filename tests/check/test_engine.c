/* SPDX-License-Identifier: MIT
 *
 * test_engine.c: the engine through its public interface: limits in words, flow control, mixed steps, weights that
 * give no finite numbers, and every allocation failing once.  What it computes is checked by test_golden.c.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "pleat/engine.h"

static const char model_path[] = "models/pleat-28m-q8_0.gguf";

static pleat_model *load(const char *path) {
    pleat_model *model = NULL;
    pleat_error err = {0};
    if (!CHECK_STATUS(pleat_model_load(path, NULL, &model, &err), PLEAT_OK)) printf("%s\n", err.text);
    return model;
}

static pleat_engine_options options_of(const char *spec, uint32_t max_seqs, uint32_t max_tokens) {
    pleat_engine_options opt;
    pleat_engine_options_default(&opt);
    CHECK_STATUS(pleat_spec_parse(spec, &opt.spec, NULL), PLEAT_OK);
    opt.max_seqs = max_seqs;
    opt.max_tokens = max_tokens;
    opt.chunk_tokens = 16;
    return opt;
}

static void test_limits_name_both_numbers(void) {
    pleat_model *model = load(model_path);
    pleat_engine_options opt = options_of("f16", 2, 40);
    opt.step_tokens = 20;
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a, b;
    const pleat_token tokens[32] = {0};
    if (!CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK)) return;
    pleat_engine_get_options(engine, &opt);
    CHECK_EQ_U64(opt.page_tokens, 32);
    CHECK(opt.allocator != NULL);
    CHECK_STATUS(pleat_engine_open(engine, 10, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 41, &b), PLEAT_E_ARG);
    CHECK_STATUS(pleat_engine_open(engine, 40, &b), PLEAT_OK);

    const pleat_engine_item long_a = {.seq = a, .tokens = tokens, .n_tokens = 11};
    CHECK_STATUS(pleat_engine_step(engine, &long_a, 1, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "11") && strstr(err.text, "10"));
    const pleat_engine_item chunk = {.seq = b, .tokens = tokens, .n_tokens = 17};
    CHECK_STATUS(pleat_engine_step(engine, &chunk, 1, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "17") && strstr(err.text, "16"));
    const pleat_engine_item both[] = {{.seq = b, .tokens = tokens, .n_tokens = 16},
                                      {.seq = a, .tokens = tokens, .n_tokens = 5}};
    CHECK_STATUS(pleat_engine_step(engine, both, 2, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "20") != NULL);
    CHECK_EQ_U64(pleat_engine_length(engine, a) + pleat_engine_length(engine, b), 0);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    CHECK(engine == NULL);
    opt = options_of("f16", 1, 4097);
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_E_LIMIT);
    CHECK(strstr(err.text, "4097") && strstr(err.text, "4096") && engine == NULL);
    pleat_model_destroy(&model);
}

/* Misuse is refused and changes nothing: the same sequence then takes a good step. */
static void test_misuse(void) {
    pleat_model *model = load(model_path);
    const pleat_engine_options opt = options_of("f16", 2, 40);
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a;
    pleat_token tokens[10] = {0};
    float *logits = malloc(2 * 8192 * sizeof *logits);
    if (!CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK)) return;
    CHECK_STATUS(pleat_engine_open(engine, 10, &a), PLEAT_OK);
    const pleat_engine_item twice[] = {{.seq = a, .tokens = tokens, .n_tokens = 1},
                                       {.seq = a, .tokens = tokens, .n_tokens = 1}};
    CHECK_STATUS(pleat_engine_step(engine, twice, 2, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_engine_step(engine, twice, 3, &err), PLEAT_E_ARG);
    tokens[1] = 8192;
    const pleat_engine_item bad = {.seq = a, .tokens = tokens, .n_tokens = 2};
    CHECK_STATUS(pleat_engine_step(engine, &bad, 1, &err), PLEAT_E_ARG);
    CHECK(strstr(err.text, "8192") != NULL);
    tokens[1] = -1;
    CHECK_STATUS(pleat_engine_step(engine, &bad, 1, &err), PLEAT_E_ARG);
    tokens[1] = 0;
    const pleat_engine_item greedy = {.seq = a, .tokens = tokens, .n_tokens = 1, .n_logits = 2, .logits = logits};
    CHECK_STATUS(pleat_engine_step(engine, &greedy, 1, &err), PLEAT_E_ARG);
    const pleat_engine_item nowhere = {.seq = a, .tokens = tokens, .n_tokens = 1, .n_logits = 1};
    CHECK_STATUS(pleat_engine_step(engine, &nowhere, 1, &err), PLEAT_E_ARG);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 0);
    CHECK(pleat_engine_is_valid(engine));
    const pleat_engine_item good = {.seq = a, .tokens = tokens, .n_tokens = 10, .n_logits = 2, .logits = logits};
    CHECK_STATUS(pleat_engine_step(engine, &good, 1, &err), PLEAT_OK);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 10);
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
    free(logits);
}

static void test_full_pool_is_flow_control(void) {
    pleat_model *model = load(model_path);
    pleat_engine_options opt = options_of("k8v4", 2, 64);
    opt.pool_bytes = (uint64_t)8 * 4 * 32 * 104; /* one page a lane */
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a, b;
    const pleat_token tokens[16] = {0};
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &b), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = a, .tokens = tokens, .n_tokens = 16}, 1, &err),
                 PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = b, .tokens = tokens, .n_tokens = 1}, 1, &err),
                 PLEAT_AGAIN);
    CHECK(strstr(err.text, "32 of 32") != NULL);
    CHECK_STATUS(pleat_engine_close(engine, a), PLEAT_OK);
    const pleat_engine_item half = {.seq = b, .tokens = tokens, .n_tokens = 16};
    for (int i = 0; i < 2; i++) CHECK_STATUS(pleat_engine_step(engine, &half, 1, &err), PLEAT_OK);
    CHECK_EQ_U64(pleat_engine_length(engine, b), 32);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = b, .tokens = tokens, .n_tokens = 1}, 1, &err),
                 PLEAT_E_LIMIT); /* no pool of this size can hold it */
    CHECK(strstr(err.text, "32 pages") != NULL);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
}

/* A model whose weights give NaN: an error, and the sequence is as it was. */
static void test_damaged_weights(void) {
    size_t n_bytes;
    unsigned char *file = check_read_file(model_path, &n_bytes);
    if (!CHECK(file != NULL)) return;
    /* The second half of the data: scales of every layer's matrices become f16 NaN here and there. */
    for (size_t i = n_bytes / 2; i + 1 < n_bytes; i += 997) file[i] = file[i + 1] = 0xFF;
    char path[256];
    pleat_model *model = NULL;
    if (CHECK(check_write_temp(file, n_bytes, path, sizeof path))) {
        model = load(path);
        unlink(path);
    }
    free(file);
    if (!model) return;
    pleat_engine_options opt = options_of("k8v4", 1, 64);
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    pleat_seq a;
    const pleat_token tokens[16] = {1, 2, 3};
    CHECK_STATUS(pleat_engine_create(model, &opt, &engine, &err), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, 64, &a), PLEAT_OK);
    CHECK_STATUS(pleat_engine_step(engine, &(pleat_engine_item){.seq = a, .tokens = tokens, .n_tokens = 16}, 1, &err),
                 PLEAT_E_RANGE);
    CHECK(strstr(err.text, "finite") != NULL);
    CHECK_EQ_U64(pleat_engine_length(engine, a), 0);
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(engine, a, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    CHECK(pleat_engine_is_valid(engine));
    pleat_engine_destroy(&engine);
    pleat_model_destroy(&model);
}

/* Load, create and open with the nth allocation failing; one that only costs the tokenizer its JIT may succeed. */
static pleat_status run_all(check_alloc *ca, pleat_model **model, pleat_engine **engine, pleat_seq *seq) {
    pleat_status st = pleat_model_load(model_path, &ca->a, model, NULL);
    if (st != PLEAT_OK) return st;
    pleat_engine_options opt = options_of("k8v4", 1, 64);
    opt.allocator = &ca->a;
    st = pleat_engine_create(*model, &opt, engine, NULL);
    if (st != PLEAT_OK) return st;
    return pleat_engine_open(*engine, 64, seq);
}

static void test_allocation_failure(void) {
    for (uint64_t nth = 1; nth < 1000; nth++) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_model *model = NULL;
        pleat_engine *engine = NULL;
        pleat_seq seq = {0};
        const pleat_status st = run_all(&ca, &model, &engine, &seq);
        const bool done = ca.count < nth; /* none failed */
        if (st != PLEAT_OK) {
            CHECK_STATUS(st, PLEAT_E_MEMORY);
            CHECK_EQ_U64(seq.v, 0);
        } else {
            const uint64_t count = ca.count;
            const pleat_token tokens[3] = {0, 5, 6};
            float *logits = malloc(8192 * sizeof *logits);
            const pleat_engine_item item = {
                .seq = seq, .tokens = tokens, .n_tokens = 3, .n_logits = 1, .logits = logits};
            CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
            CHECK_EQ_U64(ca.count, count); /* a step allocates nothing */
            free(logits);
        }
        pleat_engine_destroy(&engine);
        pleat_model_destroy(&model);
        CHECK_EQ_U64(ca.live, 0);
        if (!done) continue;
        CHECK_STATUS(st, PLEAT_OK);
        CHECK(nth > 10);
        return;
    }
    CHECK(!"an end");
}

static const check_test tests[] = {
    {"limits_name_both_numbers", test_limits_name_both_numbers},
    {"misuse", test_misuse},
    {"full_pool_is_flow_control", test_full_pool_is_flow_control},
    {"damaged_weights", test_damaged_weights},
    {"allocation_failure", test_allocation_failure},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
