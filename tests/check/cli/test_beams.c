/* SPDX-License-Identifier: MIT
 *
 * test_beams.c: beams on the reference model: what four of them take that share a context, and that a search leaves no
 * page behind.  The search itself is checked by test_search.c.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run/search.h"
#include "model_rig.h"

enum { BEAMS = 4, DIFFERENT = 50 };

typedef struct rig {
    pleat_model *model;
    pleat_model_info info;
    pleat_engine *engine;
    pleat_seq seqs[BEAMS];
    float *logits; /* [BEAMS][n_vocab] */
    uint32_t max_tokens;
} rig;

static bool rig_make(rig *r, const char *spec, uint32_t max_tokens) {
    pleat_engine_options opt = engine_options_of(spec);
    *r = (rig){.max_tokens = max_tokens, .model = model_of(REFERENCE_MODEL)};
    if (!r->model) return false;
    pleat_model_get_info(r->model, &r->info);
    opt.max_seqs = BEAMS + 1; /* one more reads the best text alone */
    opt.max_tokens = max_tokens;
    r->logits = calloc((size_t)BEAMS * r->info.n_vocab, sizeof *r->logits);
    r->engine = engine_made(r->model, &opt);
    return CHECK_STATUS(pleat_engine_open(r->engine, max_tokens, &r->seqs[0]), PLEAT_OK);
}

static void rig_free(rig *r) {
    pleat_engine_destroy(&r->engine);
    pleat_model_destroy(&r->model);
    free(r->logits);
}

static float *row(const rig *r, uint32_t slot) { return r->logits + (size_t)slot * r->info.n_vocab; }

static pleat_cache_usage usage_of(const rig *r, pleat_seq seq) {
    pleat_cache_usage u = {0};
    CHECK_STATUS(pleat_engine_get_usage(r->engine, seq, &u), PLEAT_OK);
    return u;
}

static pleat_token token_at(uint32_t position, uint32_t beam) {
    return (pleat_token)(300 + (position * 7919 + beam * 31) % 4000);
}

/* Read n tokens into the first sequence and seal them. */
static void feed(rig *r, uint32_t n) {
    for (uint32_t at = 0; at < n; at += 512) {
        pleat_token tokens[512];
        const uint32_t left = n - at, now = left < 512 ? left : 512;
        for (uint32_t i = 0; i < now; i++) tokens[i] = token_at(at + i, 0);
        const uint32_t flags = now < left ? PLEAT_ITEM_MORE : PLEAT_ITEM_SEAL_ALL;
        const pleat_engine_item item = {r->seqs[0], tokens, now, 1, row(r, 0), flags};
        CHECK_STATUS(pleat_engine_step(r->engine, &item, 1, NULL), PLEAT_OK);
    }
}

/* ---- four beams ------------------------------------------------------------------------------------------ */

/* Append one token to each beam, another to each. */
static void step_beams(rig *r, uint32_t position) {
    pleat_token tokens[BEAMS];
    pleat_engine_item items[BEAMS];
    for (uint32_t b = 0; b < BEAMS; b++) {
        tokens[b] = token_at(position, b);
        items[b] = (pleat_engine_item){.seq = r->seqs[b], .tokens = &tokens[b], .n_tokens = 1};
    }
    CHECK_STATUS(pleat_engine_step(r->engine, items, BEAMS, NULL), PLEAT_OK);
}

/* Pages of all beams over those of the widest one; prints both. */
static double compare(const rig *r, const char *spec, uint32_t n) {
    const pleat_cache_usage all = usage_of(r, (pleat_seq){0});
    uint64_t one = 0;
    for (uint32_t b = 0; b < BEAMS; b++) {
        const uint64_t n_pages = usage_of(r, r->seqs[b]).pages_used;
        one = n_pages > one ? n_pages : one;
    }
    const double times = (double)all.pages_used / (double)one;
    printf("%s: %u beams over %u tokens, the last %u different: %llu pages, one has %llu (%.3fx); %.1f KiB\n", spec,
           BEAMS, n, DIFFERENT, (unsigned long long)all.pages_used, (unsigned long long)one, times,
           (double)all.bytes / 1024);
    return times;
}

/* Beams of n tokens whose last ones differ, in pages of page_tokens (0: they hold what the policy keeps). */
static double four_beams(const char *spec, uint32_t n, uint32_t page_tokens) {
    rig r;
    check_context("%s, %u tokens", spec, n);
    if (!rig_make(&r, spec, n)) return NAN;
    feed(&r, n - DIFFERENT);
    for (uint32_t b = 1; b < BEAMS; b++) CHECK_STATUS(pleat_engine_fork(r.engine, r.seqs[0], n, &r.seqs[b]), PLEAT_OK);
    for (uint32_t at = n - DIFFERENT; at < n; at++) step_beams(&r, at);
    const double times = compare(&r, spec, n);
    if (page_tokens) {
        const uint64_t n_lanes = (uint64_t)r.info.n_layers * r.info.n_kv_heads;
        const uint32_t n_shared = (n - DIFFERENT) / page_tokens, n_each = (n + page_tokens - 1) / page_tokens;
        CHECK_EQ_U64(usage_of(&r, (pleat_seq){0}).pages_used, n_lanes * (n_shared + BEAMS * (n_each - n_shared)));
    }
    CHECK(pleat_engine_is_valid(r.engine));
    for (uint32_t b = 0; b < BEAMS; b++) CHECK_STATUS(pleat_engine_close(r.engine, r.seqs[b]), PLEAT_OK);
    CHECK_EQ_U64(usage_of(&r, (pleat_seq){0}).pages_used, 0);
    rig_free(&r);
    return times;
}

/* How much is sealed under a policy depends on the tokens: shown, and no more than a copy for each. */
static void test_four_beams_take_little_more_than_one(void) {
    const uint32_t n = model_rounds(2048, 120);
    const double f16 = four_beams("f16", n, 32), k8v4 = four_beams("k8v4", n, 32);
    if (n < 2048) return;
    CHECK(f16 <= 1.10 && k8v4 <= 1.10);
    CHECK(four_beams("leankv:ah=3,al=0", n, 0) < BEAMS);
    CHECK(four_beams("leankv:ah=1,al=0.02", n, 0) < BEAMS);
    CHECK(four_beams("topk:keep=50%", n, 0) < BEAMS);
}

/* ---- a search ---------------------------------------------------------------------------------------------- */

static int is_end(void *self, pleat_token token) {
    const rig *r = self;
    return pleat_model_token_is_end(r->model, token);
}

static int never(void *self) {
    (void)self;
    return 0;
}

static pleat_status do_fork(void *self, uint32_t from, uint32_t to) {
    rig *r = self;
    return pleat_engine_fork(r->engine, r->seqs[from], r->max_tokens, &r->seqs[to]);
}

static pleat_status do_close(void *self, uint32_t slot) {
    rig *r = self;
    return pleat_engine_close(r->engine, r->seqs[slot]);
}

static pleat_status do_step(void *self, const uint32_t *slots, const pleat_token *tokens, uint32_t n) {
    rig *r = self;
    pleat_engine_item items[BEAMS];
    for (uint32_t i = 0; i < n; i++)
        items[i] = (pleat_engine_item){r->seqs[slots[i]], &tokens[i], 1, 1, row(r, slots[i]), 0};
    const pleat_status status = pleat_engine_step(r->engine, items, n, NULL);
    CHECK(pleat_engine_is_valid(r->engine));
    return status;
}

/* The best text's log-probability, from feeding it alone to a fork of the prompt's sequence. */
static double read_again(rig *r, pleat_seq seq, const float *first, const search_text *text) {
    float *logits = malloc(r->info.n_vocab * sizeof *logits);
    double sum = 0;
    memcpy(logits, first, r->info.n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < text->n_tokens; i++) {
        const pleat_engine_item item = {seq, &text->tokens[i], 1, 1, logits, 0};
        sum += (double)logits[text->tokens[i]] - search_log_sum(logits, r->info.n_vocab);
        CHECK_STATUS(pleat_engine_step(r->engine, &item, 1, NULL), PLEAT_OK);
    }
    free(logits);
    return sum;
}

/* Forks and closes of whatever order: pages are exact, and the score is what the text has by itself, to the bit. */
static void search_with(const char *spec) {
    rig r;
    search_result found;
    pleat_seq alone;
    const uint32_t n_prompt = 70, n_new = model_rounds(40, 6);
    check_context("%s", spec);
    if (!rig_make(&r, spec, n_prompt + n_new)) return;
    feed(&r, n_prompt);
    float *first = malloc(r.info.n_vocab * sizeof *first);
    memcpy(first, row(&r, 0), r.info.n_vocab * sizeof *first);
    CHECK_STATUS(pleat_engine_fork(r.engine, r.seqs[0], r.max_tokens, &alone), PLEAT_OK);
    const search_options opt = {BEAMS, BEAMS, n_new, r.info.n_vocab};
    const search_model model = {&r, r.logits, is_end, never, do_fork, do_close, do_step};
    CHECK_STATUS(search_run(&opt, &model, &found), PLEAT_OK);
    CHECK_EQ_U64(found.n, BEAMS);
    CHECK_EQ_U64(usage_of(&r, (pleat_seq){0}).pages_used, usage_of(&r, alone).pages_used);
    if (found.n && !strcmp(found.texts[0].finish, "length"))
        CHECK_NEAR(read_again(&r, alone, first, &found.texts[0]), found.texts[0].logprob, 0);
    CHECK_STATUS(pleat_engine_close(r.engine, alone), PLEAT_OK);
    CHECK_EQ_U64(usage_of(&r, (pleat_seq){0}).pages_used, 0);
    CHECK(pleat_engine_is_valid(r.engine));
    search_release(&found);
    free(first);
    rig_free(&r);
}

static void test_search_leaves_no_page(void) {
    static const char *const specs[] = {"f16", "k8v4", "leankv:ah=2,al=0.5,window=16", "topk:keep=50%,window=16"};
    for (size_t i = 0; i < CHECK_COUNT(specs); i++) search_with(specs[i]);
}

static const check_test tests[] = {
    {"four_beams_take_little_more_than_one", test_four_beams_take_little_more_than_one},
    {"search_leaves_no_page", test_search_leaves_no_page},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
