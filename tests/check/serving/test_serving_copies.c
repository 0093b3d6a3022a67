/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_copies.c: what an engine on a GPU does otherwise than one on the CPU, by the CPU's engine behind the same
 * table of functions (serving/backend.h).  A fork copies all pages at once, and may find too few.  An image leaves
 * no pages to another sequence.  Who is greedy gets the likeliest token and no logits.  What comes out is what came out
 * alone, to the token.
 */
#include "serving_rig.h"

static pleat__backend whole;
static uint32_t n_greedy, n_logits, n_refused;

static pleat_status copying_fork(void *ctx, pleat_seq seq, uint32_t max_tokens, pleat_seq *out) {
    pleat__image image;
    pleat_status status = whole.save(ctx, seq, (pleat_seq){0}, &image);
    if (status != PLEAT_OK) return status;
    image.max_tokens = max_tokens;
    status = whole.restore(ctx, &image, (pleat_seq){0}, out);
    whole.drop(ctx, &image);
    n_refused += status == PLEAT_AGAIN;
    return status;
}

static uint64_t copied_pages(void *ctx, pleat_seq seq) { return whole.pages_of(ctx, seq); }

static uint64_t image_bytes(void *ctx, pleat_seq seq, pleat_seq base) {
    CHECK_EQ_U64(base.v, 0);
    return whole.image_bytes(ctx, seq, base);
}

static pleat_status counting_run(void *ctx, const pleat_engine_item *items, uint32_t n_items, pleat_token *likeliest,
                                 pleat_error *err) {
    CHECK(likeliest != NULL);
    for (uint32_t i = 0; i < n_items; i++) *(items[i].n_logits > 0 ? &n_logits : &n_greedy) += 1;
    return whole.run(ctx, items, n_items, likeliest, err);
}

/* n_pages 0: as many as are needed. */
static bool make(rig *r, const char *spec, const pleat_serving_options *so, uint64_t n_pages) {
    pleat_engine_options eo = engine_options(spec);
    *r = (rig){0};
    if (n_pages > 0) {
        if (!CHECK_STATUS(pleat_engine_create(model, &eo, &r->engine, NULL), PLEAT_OK)) return false;
        pleat_cache_traits t = {.size_bytes = sizeof t};
        CHECK_STATUS(pleat_engine_get_traits(r->engine, &t), PLEAT_OK);
        eo.pool_bytes = n_pages * t.page_bytes;
        pleat_engine_destroy(&r->engine);
    }
    if (!CHECK_STATUS(pleat_engine_create(model, &eo, &r->engine, NULL), PLEAT_OK)) return false;
    CHECK_STATUS(pleat__backend_on_engine(r->engine, NULL, &whole, NULL), PLEAT_OK);
    n_greedy = n_logits = n_refused = 0;
    pleat__backend copying = whole;
    copying.shape.has_bases = false;
    copying.shape.finds_likeliest = true;
    copying.fork = copying_fork;
    copying.fork_pages = copied_pages;
    copying.image_bytes = image_bytes;
    copying.run = counting_run;
    return CHECK_STATUS(pleat__serving_create_on(&copying, so, &r->serving, NULL), PLEAT_OK);
}

static const char *const some[] = {"k8v4", "leankv:ah=1,al=0.02,window=32", "f16"};

/* In company, swapped or computed again, and from prefixes. */
static void test_same_tokens(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    const set all = some_requests();
    const size_t n = check_rounds(CHECK_COUNT(some), 1);
    for (size_t i = 0; i < n && check_failures() == 0; i++) {
        rig r;
        outcome alone[MAX_REQUESTS], out[MAX_REQUESTS];
        pleat_serving_options so = serving_options();
        so.preemption = i % 2 ? PLEAT_PREEMPT_RECOMPUTE : PLEAT_PREEMPT_SWAP;
        check_context("%s", some[i]);
        run_alone(some[i], &all, alone);
        if (make(&r, some[i], &so, 0)) {
            pleat_serving_stats s;
            for (int round = 0; round < 2; round++) {
                run_set(r.serving, &all, out, true);
                check_same(out, alone, all.n);
            }
            pleat_serving_get_stats(r.serving, &s);
            CHECK(s.peak_running > 1 && s.hits >= 4);
            CHECK(i % 2 ? s.preempted_recompute > 0 && s.preempted_swap == 0 : s.preempted_swap > 0);
            CHECK(n_greedy > 5 * n_logits && n_logits >= 2 * 40); /* one of six is sampled */
        }
        rig_free(&r);
    }
}

/* A pool that is short of pages: prefixes are kept as long as there is room for their copies. */
static void test_short_of_pages(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    rig r;
    outcome alone[MAX_REQUESTS], out[MAX_REQUESTS];
    pleat_serving_options so = serving_options();
    const set growing = growing_requests();
    so.low_watermark = so.high_watermark = 1;
    run_alone("k8v4", &growing, alone);
    if (make(&r, "k8v4", &so, 32 * 14)) {
        pleat_serving_stats s;
        for (int round = 0; round < 2; round++) {
            run_set(r.serving, &growing, out, false);
            check_same(out, alone, growing.n);
        }
        pleat_serving_get_stats(r.serving, &s);
        CHECK(s.preempted_recompute + s.preempted_swap > 0 && s.max_idle_steps <= 2);
    }
    rig_free(&r);
}

/* Ten times as many as fit, which share a beginning; some are cancelled. */
static void test_oversubscribed(void) {
    enum { N = 30, STEPS = 4000 };
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    rig r;
    static outcome out[N];
    pleat_request_id ids[N];
    const pleat_serving_options so = serving_options();
    uint32_t n_done = 0, n_cancelled = 0;
    if (make(&r, "k8v4", &so, 32 * 20)) {
        static pleat_token prompts[N][100];
        for (uint32_t i = 0; i < N; i++) {
            memcpy(prompts[i], text, 64 * sizeof *text);
            memcpy(prompts[i] + 64, text + 64 + 30 * i, 36 * sizeof *text);
            pleat_request q = request_of(prompts[i], 70 + i, 12);
            out[i] = (outcome){0};
            q.user = &out[i];
            CHECK_STATUS(pleat_serving_submit(r.serving, &q, &ids[i], NULL), PLEAT_OK);
        }
        for (uint32_t i = 0; i < STEPS && pleat_serving_step(r.serving, NULL) == PLEAT_OK; i++) {
            take_events(r.serving);
            if (i % 8 == 0) CHECK(pleat_serving_is_valid(r.serving));
            if (i == 20) n_cancelled += pleat_serving_cancel(r.serving, ids[N - 1]) == PLEAT_OK;
        }
        take_events(r.serving);
        for (uint32_t i = 0; i < N; i++) n_done += out[i].finish == PLEAT_FINISH_LENGTH && out[i].n_tokens == 12;
        CHECK_EQ_U64(n_done + n_cancelled, N);
        pleat_serving_stats s;
        pleat_serving_get_stats(r.serving, &s);
        CHECK(s.hits > N / 2 && s.max_idle_steps <= 2);
    }
    rig_free(&r);
}

static const check_test tests[] = {
    {"same_tokens", test_same_tokens},
    {"short_of_pages", test_short_of_pages},
    {"oversubscribed", test_oversubscribed},
};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
