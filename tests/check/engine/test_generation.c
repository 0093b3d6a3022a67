/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_generation.c: long generation of the reference model on a cache with a policy.  2000 tokens after a prompt of
 * 500 with the first spec, 200 with the others (60 after 200, two specs, where CHECK_QUICK is set or there is no AVX2).
 *
 * At every step the bytes held are exactly those of the pages that the lanes' tokens need, and within
 * pleat_cache_bytes_for(), the policy's bound; at the end every page is back.  The text is the same for one thread and for
 * two, and (a quarter as long) with other sequences in the same steps.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_rig.h"

#define TEXT "eval/prose.txt"
#define MAX_TOKENS 2500u
#define NEIGHBOURS 2u /* sequences that share the steps, in the run that has any */

static const char *const specs[] = {"leankv:ah=30,al=0", "leankv:ah=1,al=0.02", "leankv:ah=2,al=0.1,step=code",
                                    "topk:keep=25%", "kvcomp:k=0.2,v=0.2,block=32,buffer=40"};

typedef struct rig {
    pleat_workers *workers;
    pleat_engine *engine;
    pleat_engine_options opt;
    pleat_model_info info;
    float *logits; /* [1 + NEIGHBOURS][n_vocab] */
} rig;

static bool rig_make(rig *r, const pleat_model *model, const char *spec, uint32_t n_threads) {
    *r = (rig){0};
    pleat_model_get_info(model, &r->info);
    r->opt = engine_options_of(spec);
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &r->workers), PLEAT_OK);
    r->opt.workers = r->workers;
    r->opt.max_seqs = 1 + NEIGHBOURS;
    r->opt.max_tokens = MAX_TOKENS;
    r->logits = malloc((1 + NEIGHBOURS) * r->info.n_vocab * sizeof *r->logits);
    r->engine = engine_made(model, &r->opt);
    return r->engine != NULL;
}

static void rig_free(rig *r) {
    pleat_engine_destroy(&r->engine);
    pleat_workers_destroy(&r->workers);
    free(r->logits);
}

/* The most that `n_tokens` may hold: from options that say what the engine told its cache. */
static uint64_t bound_for(const rig *r, uint32_t n_tokens) {
    pleat_cache_options opt;
    pleat_cache_options_default(&opt);
    opt.spec = r->opt.spec;
    opt.n_layers = r->info.n_layers;
    opt.n_kv_heads = r->info.n_kv_heads;
    opt.n_q_heads = r->info.n_q_heads;
    opt.head_dim = r->info.head_dim;
    opt.max_seqs = r->opt.max_seqs;
    opt.max_tokens = r->opt.max_tokens;
    return pleat_cache_bytes_for(&opt, n_tokens, MAX_TOKENS);
}

static void check_bytes(const rig *r, pleat_seq seq, uint32_t n_tokens) {
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(r->engine, seq, &u), PLEAT_OK);
    const uint64_t n_lanes = (uint64_t)r->info.n_layers * r->info.n_kv_heads;
    CHECK_EQ_U64(u.tokens_high + u.tokens_low + u.tokens_dropped, n_tokens * n_lanes);
    CHECK(u.bytes <= bound_for(r, n_tokens));
    CHECK(u.bytes_pages <= u.bytes && u.pages_used <= u.pages_peak);
}

/* Feed the prompt to every sequence; the neighbours get a few tokens less. */
static void feed_prompt(rig *r, const pleat_seq *seqs, uint32_t n_seqs, const pleat_token *prompt, uint32_t n_prompt) {
    for (uint32_t s = 0; s < n_seqs; s++) {
        const uint32_t n = n_prompt - 7 * s;
        for (uint32_t at = 0; at < n; at += r->opt.chunk_tokens) {
            const uint32_t left = n - at, now = left < r->opt.chunk_tokens ? left : r->opt.chunk_tokens;
            const pleat_engine_item item = {
                seqs[s], prompt + at, now, 1, r->logits + s * r->info.n_vocab, now < left ? PLEAT_ITEM_MORE : 0};
            CHECK_STATUS(pleat_engine_step(r->engine, &item, 1, NULL), PLEAT_OK);
        }
    }
}

/* Generate n tokens with n_seqs sequences in each step; out gets the first one's. */
static void generate(rig *r, const pleat_token *prompt, uint32_t n_prompt, uint32_t n, uint32_t n_seqs,
                     pleat_token *out) {
    pleat_seq seqs[1 + NEIGHBOURS];
    for (uint32_t s = 0; s < n_seqs; s++) CHECK_STATUS(pleat_engine_open(r->engine, MAX_TOKENS, &seqs[s]), PLEAT_OK);
    feed_prompt(r, seqs, n_seqs, prompt, n_prompt);
    for (uint32_t i = 0; i < n && check_failures() == 0; i++) {
        pleat_token next[1 + NEIGHBOURS];
        pleat_engine_item items[1 + NEIGHBOURS];
        for (uint32_t s = 0; s < n_seqs; s++) {
            float *logits = r->logits + s * r->info.n_vocab;
            next[s] = likeliest(logits, r->info.n_vocab);
            items[s] = (pleat_engine_item){seqs[s], &next[s], 1, 1, logits, 0};
        }
        out[i] = next[0];
        CHECK_STATUS(pleat_engine_step(r->engine, items, n_seqs, NULL), PLEAT_OK);
        check_bytes(r, seqs[0], n_prompt + i + 1);
        if (i % 250 == 0) CHECK(pleat_engine_is_valid(r->engine));
    }
    CHECK(pleat_engine_is_valid(r->engine));
    for (uint32_t s = 0; s < n_seqs; s++) CHECK_STATUS(pleat_engine_close(r->engine, seqs[s]), PLEAT_OK);
    pleat_cache_usage u;
    CHECK_STATUS(pleat_engine_get_usage(r->engine, (pleat_seq){0}, &u), PLEAT_OK);
    CHECK_EQ_U64(u.pages_used, 0);
    CHECK(pleat_engine_is_valid(r->engine)); /* used + free = total, references exact */
}

static uint32_t read_prompt(const pleat_model *model, pleat_token *ids, uint32_t cap) {
    static char text[8192];
    FILE *f = fopen(TEXT, "rb");
    if (!CHECK(f != NULL)) return 0;
    const size_t n_bytes = fread(text, 1, sizeof text, f);
    fclose(f);
    uint32_t n = 0;
    static pleat_token all[sizeof text];
    CHECK_STATUS(pleat_model_tokenize(model, text, n_bytes, 0, all, sizeof text, &n, NULL), PLEAT_OK);
    if (!CHECK(n >= cap)) return 0;
    memcpy(ids, all, cap * sizeof *ids);
    return cap;
}

static void long_run(const pleat_model *model, const char *spec, uint32_t n) {
    const uint32_t n_prompt = model_rounds(500, 200);
    static pleat_token prompt[500], alone[2000], threaded[2000], batched[2000];
    static const struct {
        uint32_t n_threads, n_seqs;
        pleat_token *out;
    } runs[] = {{1, 1, alone}, {2, 1, threaded}, {2, 1 + NEIGHBOURS, batched}};
    if (read_prompt(model, prompt, n_prompt) != n_prompt) return;
    for (size_t i = 0; i < CHECK_COUNT(runs); i++) {
        rig r;
        check_context("%s, %u threads, %u sequences", spec, runs[i].n_threads, runs[i].n_seqs);
        const uint32_t n_now = runs[i].n_seqs > 1 ? n / 4 : n;
        if (rig_make(&r, model, spec, runs[i].n_threads))
            generate(&r, prompt, n_prompt, n_now, runs[i].n_seqs, runs[i].out);
        rig_free(&r);
    }
    CHECK_EQ_MEM(alone, threaded, n * sizeof *alone);
    CHECK_EQ_MEM(alone, batched, n / 4 * sizeof *alone);
}

static void test_long_generation(void) {
    pleat_model *model = model_of(REFERENCE_MODEL);
    if (!model) return;
    const size_t n_specs = model_rounds(CHECK_COUNT(specs), 2);
    for (size_t i = 0; i < n_specs; i++) long_run(model, specs[i], model_rounds(i == 0 ? 2000 : 200, 60));
    pleat_model_destroy(&model);
}

static const check_test tests[] = {{"long_generation", test_long_generation}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
