/* SPDX-License-Identifier: MIT
 *
 * test_policy_cache.c: caches with a policy, as a whole: the same bits for any threads and neighbours, bytes within
 * their bound over a long generation, pools that are too small, rows that are just long enough, specs that are refused.
 * test_leankv.c says whether the right tokens move.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "policy_rig.h"

/* ---- the same bits for any threads and neighbours -------------------------------------------------------- */

typedef struct recording {
    uint8_t *bytes;
    size_t n, cap;
} recording;

static void record(recording *rec, const void *bytes, size_t n) {
    if (rec->n + n > rec->cap) {
        rec->cap = 2 * (rec->n + n);
        rec->bytes = realloc(rec->bytes, rec->cap);
    }
    memcpy(rec->bytes + rec->n, bytes, n);
    rec->n += n;
}

/* A step without the oracle; the outputs of sequence 1 are recorded. */
static void record_step(rig *r, const share *shares, uint32_t n_shares, recording *rec) {
    static float q[SEQS * CAP * ROW], k[SEQS * CAP * KV_ROW], v[SEQS * CAP * KV_ROW], out[SEQS * CAP * ROW];
    if (!CHECK_STATUS(rig_begin(r, shares, n_shares), PLEAT_OK)) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        rig_rows(r, shares, n_shares, layer, q, k, v);
        CHECK_STATUS(pleat_cache_attend(r->cache, layer, q, k, v, out), PLEAT_OK);
        size_t row = 0;
        for (uint32_t i = 0; i < n_shares; row += shares[i++].n)
            if (shares[i].seq == 1) record(rec, out + row * ROW, shares[i].n * ROW * sizeof *out);
    }
    CHECK_STATUS(pleat_cache_end(r->cache), PLEAT_OK);
    for (uint32_t i = 0; i < n_shares; i++) r->n_tokens[shares[i].seq] += shares[i].n;
}

static void record_tokens(const rig *r, recording *rec) {
    pleat_cache_token tokens[CAP];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        CHECK_STATUS(pleat_cache_tokens(r->cache, r->seqs[1], i / HEADS, i % HEADS, 0, r->n_tokens[1], tokens),
                     PLEAT_OK);
        record(rec, tokens, r->n_tokens[1] * sizeof *tokens);
    }
}

/* Sequence 1's life: a prompt in two parts, generation, a later turn, generation. */
static recording play(const struct rig_spec *spec, uint32_t n_threads, bool together) {
    pleat_workers *workers = NULL;
    recording rec = {0};
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &workers), PLEAT_OK);
    pleat_cache_options opt = rig_options(spec->text, workers);
    opt.page_tokens = spec->page_tokens;
    rig r = rig_new(&opt, SEQS);
    for (uint32_t step = 0; step < 250; step++) {
        const uint32_t n = step == 0 ? 60 : step == 1 ? 45 : step == 150 ? 30 : 1;
        const share mine = {1, n, step == 0}, first = {2, step % 60 == 0 ? 20 : 1, false},
                    last = {0, step % 7 == 3 ? 4 : 1, step % 9 == 3};
        if (!together)
            record_step(&r, &mine, 1, &rec);
        else if (step % 5 == 0 || step > 200)
            record_step(&r, (share[]){first, mine}, 2, &rec);
        else
            record_step(&r, (share[]){first, mine, last}, 3, &rec);
    }
    record_tokens(&r, &rec);
    rig_free(&r);
    pleat_workers_destroy(&workers);
    return rec;
}

static void compare_plays(const struct rig_spec *specs, size_t n_specs) {
    for (size_t i = 0; i < n_specs; i++) {
        check_context("%s", specs[i].text);
        recording alone = play(&specs[i], 1, false), two = play(&specs[i], 2, false), among = play(&specs[i], 2, true);
        CHECK(alone.n > 0 && alone.n == two.n && alone.n == among.n);
        CHECK_EQ_MEM(two.bytes, alone.bytes, alone.n);
        CHECK_EQ_MEM(among.bytes, alone.bytes, alone.n);
        free(alone.bytes);
        free(two.bytes);
        free(among.bytes);
    }
}

static void test_threads_and_batch_change_no_bit(void) {
    compare_plays(rig_specs, CHECK_COUNT(rig_specs));
    compare_plays(rig_evict_specs, CHECK_COUNT(rig_evict_specs));
}

/* ---- long generation ------------------------------------------------------------------------------------ */

enum { LONG_PROMPT = 500, LONG = 2500 };

/* Generate 2000 tokens after a prompt of 500; the bytes stay within what the options say at every step. */
static recording generate(const char *text, uint32_t n_threads) {
    static float q[LONG_PROMPT * ROW], k[LONG_PROMPT * KV_ROW], v[LONG_PROMPT * KV_ROW], out[LONG_PROMPT * ROW];
    pleat_workers *workers = NULL;
    recording rec = {0};
    CHECK_STATUS(pleat_workers_create(n_threads, NULL, &workers), PLEAT_OK);
    pleat_cache_options opt = rig_options(text, workers);
    opt.max_tokens = LONG;
    rig r = rig_new(&opt, 1);
    pleat_cache_usage u;
    while (r.n_tokens[0] < LONG && check_failures() == 0) {
        const share all = {0, r.n_tokens[0] == 0 ? LONG_PROMPT : 1, false};
        CHECK_STATUS(rig_begin(&r, &all, 1), PLEAT_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            rig_rows(&r, &all, 1, layer, q, k, v);
            CHECK_STATUS(pleat_cache_attend(r.cache, layer, q, k, v, out), PLEAT_OK);
            record(&rec, out, all.n * ROW * sizeof *out);
        }
        CHECK_STATUS(pleat_cache_end(r.cache), PLEAT_OK);
        const uint32_t n_tokens = r.n_tokens[0] += all.n;
        CHECK_STATUS(pleat_cache_get_usage(r.cache, r.seqs[0], &u), PLEAT_OK);
        CHECK(u.bytes <= pleat_cache_bytes_for(&r.opt, n_tokens, LONG));
        CHECK_EQ_U64(u.tokens_high + u.tokens_low + u.tokens_dropped, (uint64_t)n_tokens * LAYERS * HEADS);
        if (n_tokens % 64 == 0) CHECK(pleat_cache_is_valid(r.cache));
    }
    record(&rec, &u, sizeof u);
    rig_free(&r);
    pleat_workers_destroy(&workers);
    return rec;
}

static void test_long_generation_stays_bounded(void) {
    /* the second keeps lanes long enough to be split between threads */
    static const char *const texts[] = {"leankv",
                                        "leankv:ah=0.7,al=0",
                                        "leankv:ah=1,al=0.5,step=code",
                                        "topk:keep=60%",
                                        "h2o:budget=900,reclaim=none",
                                        "streaming:budget=20%",
                                        "h2o:budget=700,reclaim=copy+kvcrush",
                                        "h2o:budget=700+merge"};
    for (size_t i = 0; i < check_rounds(CHECK_COUNT(texts), 1); i++) {
        check_context("%s", texts[i]);
        recording one = generate(texts[i], 1), two = generate(texts[i], 2);
        CHECK_EQ_U64(one.n, two.n);
        CHECK_EQ_MEM(two.bytes, one.bytes, one.n);
        free(one.bytes);
        free(two.bytes);
    }
}

/* ---- limits -------------------------------------------------------------------------------------------- */

/* Everything that can be asked about a sequence. */
static recording state_of(const rig *r, uint32_t seq) {
    recording rec = {0};
    pleat_cache_usage u;
    pleat_cache_token tokens[CAP];
    const uint32_t n = pleat_cache_length(r->cache, r->seqs[seq]);
    CHECK_STATUS(pleat_cache_get_usage(r->cache, r->seqs[seq], &u), PLEAT_OK);
    record(&rec, &u, sizeof u);
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        CHECK_STATUS(pleat_cache_tokens(r->cache, r->seqs[seq], i / HEADS, i % HEADS, 0, n, tokens), PLEAT_OK);
        record(&rec, tokens, n * sizeof *tokens);
    }
    return rec;
}

/* A step that must not begin, and change nothing. */
static void refuse(rig *r, share s, pleat_status want) {
    recording before = state_of(r, s.seq);
    CHECK_STATUS(rig_begin(r, &s, 1), want);
    recording after = state_of(r, s.seq);
    CHECK_EQ_U64(after.n, before.n);
    CHECK_EQ_MEM(after.bytes, before.bytes, before.n);
    CHECK(pleat_cache_is_valid(r->cache));
    free(before.bytes);
    free(after.bytes);
}

static void test_a_small_pool(void) {
    pleat_cache_options opt = rig_options("leankv:ah=1,al=0,window=16", NULL);
    recording unused = {0};
    opt.page_tokens = 16;
    rig sizes = rig_new(&opt, 0);
    opt.pool_bytes = 24 * sizes.page_bytes; /* a prompt of 64: four high and two low pages in each of four lanes */
    rig_free(&sizes);
    rig r = rig_new(&opt, 2);
    refuse(&r, (share){0, 65, false}, PLEAT_E_LIMIT);
    record_step(&r, &(share){0, 64, false}, 1, &unused);
    refuse(&r, (share){1, 64, false}, PLEAT_AGAIN);
    refuse(&r, (share){0, 128, false}, PLEAT_E_LIMIT);
    refuse(&r, (share){0, CAP, true}, PLEAT_E_LIMIT);
    CHECK_STATUS(pleat_cache_close(r.cache, r.seqs[0]), PLEAT_OK);
    r.seqs[0].v = 0;
    record_step(&r, &(share){1, 64, false}, 1, &unused);
    while (r.n_tokens[1] < CAP && check_failures() == 0) { /* generate until the pool ends */
        const pleat_status status = rig_begin(&r, &(share){1, 1, false}, 1);
        if (status != PLEAT_OK) break;
        CHECK_STATUS(pleat_cache_cancel(r.cache), PLEAT_OK);
        record_step(&r, &(share){1, 1, false}, 1, &unused);
    }
    CHECK(r.n_tokens[1] > 64 && r.n_tokens[1] < CAP);
    refuse(&r, (share){1, 1, false}, PLEAT_E_LIMIT);
    rig_free(&r);
    free(unused.bytes);
}

/* By the paper's reckoning a lane's row overflows when one token more than whole pages of high ones is low.  Every split
 * of a whole number of pages is tried: tokens that leave the window become low. */
static void test_rows_have_room(void) {
    for (uint32_t window = 1; window < 48; window++) {
        pleat_cache_options opt = rig_options("leankv:ah=1000000,al=0,high=k8v4,low=k4v2", NULL);
        pleat_cache_usage u;
        recording unused = {0};
        opt.spec.window = window;
        opt.page_tokens = 16;
        opt.max_tokens = 48;
        opt.max_seqs = 2; /* and the pool has room for no more */
        rig r = rig_new(&opt, 2);
        record_step(&r, &(share){0, 48, false}, 1, &unused);
        record_step(&r, &(share){1, 40, false}, 1, &unused);
        while (r.n_tokens[1] < 48 && check_failures() == 0) record_step(&r, &(share){1, 1, false}, 1, &unused);
        CHECK(pleat_cache_is_valid(r.cache));
        for (uint32_t s = 0; s < 2; s++) {
            CHECK_STATUS(pleat_cache_get_usage(r.cache, r.seqs[s], &u), PLEAT_OK);
            CHECK_EQ_U64(u.tokens_low, (48 - window) * LAYERS * HEADS);
            CHECK_EQ_U64(u.tokens_dropped, 0);
            CHECK(u.bytes <= pleat_cache_bytes_for(&opt, 48, 48));
        }
        rig_free(&r);
        free(unused.bytes);
    }
}

static void check_refused(const pleat_cache_options *opt, const char *word) {
    pleat_cache *cache = NULL;
    pleat_error err = {0};
    CHECK_STATUS(pleat_cache_create(opt, &cache, &err), PLEAT_E_ARG);
    CHECK(!cache);
    check_context("'%s' names %s", err.text, word);
    CHECK(strstr(err.text, word) != NULL);
    CHECK_EQ_U64(pleat_cache_bytes_for(opt, 1, 1), 0);
}

static void test_bad_specs_are_refused_by_name(void) {
    pleat_cache_options opt = rig_options("leankv", NULL);
    opt.spec.window = CAP + 1;
    check_refused(&opt, "window");
    opt.spec.window = 0;
    check_refused(&opt, "window");
    opt = rig_options("leankv:profile=model.leankv.json", NULL);
    check_refused(&opt, "model.leankv.json");
    opt = rig_options("leankv", NULL);
    opt.spec.high = (pleat_format){4, 2};
    opt.spec.low = (pleat_format){8, 8};
    check_refused(&opt, "low");
    opt = rig_options("leankv", NULL);
    opt.spec.al = 4;
    check_refused(&opt, "al");
    opt.spec.al = NAN;
    check_refused(&opt, "al");
    opt = rig_options("topk", NULL);
    opt.spec.keep = 0;
    check_refused(&opt, "keep");
    opt = rig_options("h2o:budget=300,window=200,sinks=100", NULL);
    opt.max_tokens = 299;
    check_refused(&opt, "sinks");
    opt = rig_options("h2o:budget=421", NULL);
    check_refused(&opt, "allowed are 68 to 420");
    opt.spec.budget.value = 60;
    check_refused(&opt, "68");
    opt.spec.budget.value = NAN;
    check_refused(&opt, "budget");
    opt = rig_options("h2o:budget=1KiB", NULL);
    check_refused(&opt, "allowed are");
}

static const check_test tests[] = {
    {"threads_and_batch_change_no_bit", test_threads_and_batch_change_no_bit},
    {"long_generation_stays_bounded", test_long_generation_stays_bounded},
    {"a_small_pool", test_a_small_pool},
    {"rows_have_room", test_rows_have_room},
    {"bad_specs_are_refused_by_name", test_bad_specs_are_refused_by_name},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
