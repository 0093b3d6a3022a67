/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_manage.c: kept prefixes in the hands of who runs the serving: listed, found, pinned, dropped, compressed.
 */
#include "serving_rig.h"

enum { LONG = 280, N_KEPT = LONG / PREFIX };

static bool make(rig *r, const char *spec, uint64_t n_pages) {
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    return load_once() && rig_make(r, &eo, &so, n_pages);
}

static outcome serve_one(const rig *r, const pleat_token *prompt, uint32_t n, uint32_t n_predict) {
    const pleat_request q = request_of(prompt, n, n_predict);
    outcome out;
    submit(r->serving, &q, &out);
    run_to_end(r->serving, false);
    return out;
}

/* The kept prefix of text + from with n tokens. */
static pleat_kept_prefix kept(const rig *r, uint32_t from, uint32_t n) {
    static pleat_kept_prefix all[MAX_SEQS];
    pleat_token tokens[MAX_TOKENS];
    uint32_t n_tokens;
    const uint32_t n_all = pleat_serving_prefixes(r->serving, all, CHECK_COUNT(all));
    for (uint32_t i = 0; i < n_all; i++) {
        CHECK_STATUS(pleat_serving_prefix_tokens(r->serving, all[i].id, tokens, MAX_TOKENS, &n_tokens), PLEAT_OK);
        CHECK_EQ_U64(n_tokens, all[i].n_tokens);
        if (n_tokens == n && memcmp(tokens, text + from, n * sizeof *tokens) == 0) return all[i];
    }
    return (pleat_kept_prefix){0};
}

static void test_listed(void) {
    rig r = {0};
    pleat_token few[8];
    uint32_t n;
    if (make(&r, "f16", 0)) {
        CHECK_EQ_U64(pleat_serving_prefixes(r.serving, NULL, 0), 0);
        serve_one(&r, text, LONG, 2);
        CHECK_EQ_U64(pleat_serving_prefixes(r.serving, NULL, 0), N_KEPT);
        for (uint32_t i = 1; i <= N_KEPT; i++) {
            const pleat_kept_prefix k = kept(&r, 0, i * PREFIX), above = kept(&r, 0, (i - 1) * PREFIX);
            CHECK(k.id != 0 && k.parent == above.id && k.n_children == (i < N_KEPT) && k.n_salt == 0);
            CHECK(k.n_users == 0 && k.n_hits == 0 && k.n_pages > 0 && !k.is_pinned);
            CHECK(pleat_serving_find_prefix(r.serving, NULL, text, i * PREFIX + 5) == k.id);
        }
        CHECK(pleat_serving_find_prefix(r.serving, NULL, text, PREFIX - 1) == 0);
        CHECK(pleat_serving_find_prefix(r.serving, "other", text, LONG) == 0);
        const uint64_t id = kept(&r, 0, PREFIX).id;
        CHECK_STATUS(pleat_serving_prefix_tokens(r.serving, id, few, 8, &n), PLEAT_E_LIMIT);
        CHECK_EQ_U64(n, PREFIX);
        CHECK_STATUS(pleat_serving_prefix_tokens(r.serving, id + 1, few, 8, &n), PLEAT_E_ARG);
        pleat_request q = request_of(text + 500, 130, 3); /* with a mark within, and a salt */
        outcome out;
        q.salt = "whose";
        q.breakpoint = 100;
        submit(r.serving, &q, &out);
        while (r.serving->n_running == 0 || PLEAT__RUNNING(r.serving->running[0])->n_stored < 130)
            CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        const pleat_kept_prefix k = kept(&r, 500, 128);
        CHECK(k.n_users == 1 && k.n_salt == 5 && memcmp(k.salt, "whose", 5) == 0);
        CHECK(kept(&r, 500, 100).n_users == 1);
        run_to_end(r.serving, false);
    }
    rig_free(&r);
}

/* Others fill the pool several times over. */
static void flood(const rig *r) {
    for (uint32_t i = 0; i < 4; i++) serve_one(r, text + 600 + 300 * i, LONG, 2);
}

static void test_pinned(void) {
    rig r = {0};
    if (make(&r, "f16", 32 * 50)) {
        serve_one(&r, text, LONG, 2);
        const uint64_t id = kept(&r, 0, 2 * PREFIX).id;
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, id, 1), PLEAT_OK);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, id, 1), PLEAT_OK); /* is no second one */
        CHECK(pleat_serving_is_valid(r.serving) && kept(&r, 0, 2 * PREFIX).is_pinned);
        flood(&r);
        CHECK(kept(&r, 0, PREFIX).id && kept(&r, 0, 2 * PREFIX).id == id && !kept(&r, 0, 3 * PREFIX).id);
        pleat_serving_forget_prefixes(r.serving);
        CHECK_EQ_U64(pleat_serving_prefixes(r.serving, NULL, 0), 2);
        CHECK_EQ_U64(serve_one(&r, text, LONG, 2).stats.n_hit, 2 * PREFIX);
        CHECK_STATUS(pleat_serving_drop_prefix(r.serving, id), PLEAT_E_STATE);
        CHECK_STATUS(pleat_serving_drop_prefix(r.serving, kept(&r, 0, PREFIX).id), PLEAT_E_STATE);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, id, 0), PLEAT_OK);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, id, 0), PLEAT_OK);
        flood(&r);
        CHECK(!kept(&r, 0, 2 * PREFIX).id);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, id, 1), PLEAT_E_ARG); /* nor has another its id */
    }
    rig_free(&r);
}

/* Of a pool of 24 pages a lane: who needs more than is left is refused, or fails where it was here before, and nobody waits
 * for ever. */
static void test_crowded(void) {
    rig r = {0};
    outcome out;
    pleat_request_id id;
    if (make(&r, "f16", 32 * 24)) {
        const pleat_request big = request_of(text + 600, 300, 20);
        serve_one(&r, text, LONG, 2);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 4 * PREFIX).id, 1), PLEAT_E_LIMIT);
        CHECK_EQ_U64(kept(&r, 0, 4 * PREFIX).is_pinned, 0);
        submit(r.serving, &big, &out);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 1), PLEAT_OK);
        run_to_end(r.serving, false);
        CHECK(out.finish == PLEAT_FINISH_FAILED && out.status == PLEAT_E_LIMIT);
        CHECK_STATUS(pleat_serving_submit(r.serving, &big, &id, NULL), PLEAT_E_LIMIT);
        CHECK(serve_one(&r, text + 600, 120, 20).finish == PLEAT_FINISH_LENGTH);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 0), PLEAT_OK);
        CHECK(serve_one(&r, text + 600, 300, 20).finish == PLEAT_FINISH_LENGTH);
        CHECK(pleat_serving_is_valid(r.serving));
    }
    rig_free(&r);
}

/* The tenant that has had less is asked first: its request fails, and an older one of another, which fits, does not. */
static void test_crowded_tenants(void) {
    static const pleat_tenant tenants[] = {{"a", 0, 1}, {"b", 0, 1}};
    rig r = {0};
    outcome fits, fails;
    if (!load_once()) return;
    const pleat_engine_options eo = engine_options("f16");
    pleat_serving_options so = serving_options();
    so.tenants = tenants;
    so.n_tenants = 2;
    if (rig_make(&r, &eo, &so, 32 * 24)) {
        pleat_request small = request_of(text + 600, 120, 20), big = request_of(text + 900, 300, 20);
        serve_one(&r, text, LONG, 2); /* of tenant a */
        small.tenant = "a";
        big.tenant = "b";
        submit(r.serving, &small, &fits);
        submit(r.serving, &big, &fails);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 1), PLEAT_OK);
        run_to_end(r.serving, false);
        CHECK(fails.finish == PLEAT_FINISH_FAILED && fails.status == PLEAT_E_LIMIT);
        CHECK(fits.finish == PLEAT_FINISH_LENGTH);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 0), PLEAT_OK);
    }
    rig_free(&r);
}

static void test_dropped(void) {
    rig r = {0};
    outcome out;
    if (make(&r, "k8v4", 0)) {
        serve_one(&r, text, LONG, 2);
        const uint64_t id = kept(&r, 0, 2 * PREFIX).id;
        const pleat_request q = request_of(text, LONG, 20);
        submit(r.serving, &q, &out);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        take_events(r.serving);
        CHECK_STATUS(pleat_serving_drop_prefix(r.serving, id), PLEAT_E_STATE);
        run_to_end(r.serving, false);
        CHECK_EQ_U64(out.stats.n_hit, 4 * PREFIX);
        CHECK_STATUS(pleat_serving_drop_prefix(r.serving, id), PLEAT_OK);
        CHECK_STATUS(pleat_serving_drop_prefix(r.serving, id), PLEAT_E_ARG);
        CHECK_EQ_U64(pleat_serving_prefixes(r.serving, NULL, 0), 1);
        CHECK(pleat_serving_is_valid(r.serving));
        const outcome again = serve_one(&r, text, LONG, 20);
        CHECK_EQ_U64(again.stats.n_hit, PREFIX);
        CHECK_EQ_MEM(again.tokens, out.tokens, sizeof out.tokens);
    }
    rig_free(&r);
}

/* A sequence's image. */
static uint8_t *image_of(pleat_engine *engine, pleat_seq seq, uint64_t *n) {
    const pleat_cache *cache = pleat_engine_cache(engine);
    *n = pleat_cache_image_bytes(cache, seq, (pleat_seq){0});
    uint8_t *bytes = malloc(*n + 1);
    CHECK_STATUS(pleat_cache_save(cache, seq, (pleat_seq){0}, bytes, *n), PLEAT_OK);
    return bytes;
}

static const pleat__kept *cell_of(const rig *r, uint64_t id) {
    for (uint32_t i = 1; i <= r->serving->opt.max_prefixes; i++)
        if (r->serving->prefixes.kept[i].id == id) return &r->serving->prefixes.kept[i];
    return &r->serving->prefixes.kept[0];
}

enum { ONE = 256 };

/* A kept prefix of ONE tokens against its own image, compressed by hand in another engine. */
static void check_compression(const rig *r, pleat_engine *other, uint64_t id) {
    uint64_t n_before, n_after, n_by_hand;
    pleat_seq seq = {0};
    uint8_t *before = image_of(r->engine, cell_of(r, id)->seq, &n_before);
    CHECK_STATUS(pleat_serving_compress_prefix(r->serving, id, 8, 1), PLEAT_OK);
    CHECK(pleat_serving_is_valid(r->serving));
    uint8_t *after = image_of(r->engine, cell_of(r, id)->seq, &n_after);
    CHECK_STATUS(pleat_engine_restore(other, before, n_before, (pleat_seq){0}, &seq), PLEAT_OK);
    CHECK_STATUS(pleat_engine_compress(other, seq, 8, 1), PLEAT_OK);
    uint8_t *by_hand = image_of(other, seq, &n_by_hand);
    if (CHECK_EQ_U64(n_after, n_by_hand)) CHECK_EQ_MEM(after, by_hand, n_after);
    CHECK(n_after < n_before);
    (void)pleat_engine_close(other, seq);
    free(before);
    free(after);
    free(by_hand);
}

/* A cache that compresses; prefixes have ONE tokens. */
static bool make_leankv(rig *r) {
    const pleat_engine_options eo = engine_options("leankv:ah=1,al=0.02,window=16");
    pleat_serving_options so = serving_options();
    so.prefix_tokens = ONE;
    return rig_make(r, &eo, &so, 0);
}

static void test_compressed(void) {
    rig r = {0}, other = {0};
    outcome out;
    if (!load_once()) return;
    if (make_leankv(&r) && make_leankv(&other)) {
        pleat_request q = request_of(text, LONG, 20);
        q.breakpoint = ONE + 10;
        submit(r.serving, &q, &out);
        run_to_end(r.serving, false);
        const pleat_kept_prefix was = kept(&r, 0, ONE);
        CHECK_EQ_U64(was.n_children, 1);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, was.id, 0.5f, 0.02f), PLEAT_E_ARG);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, was.id, 1, 0.02f), PLEAT_E_ARG);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, was.id, 8, 9), PLEAT_E_ARG);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, was.id + 1, 8, 1), PLEAT_E_ARG);
        CHECK_EQ_U64(kept(&r, 0, ONE).n_children, 1); /* who is refused has dropped nothing */
        submit(r.serving, &q, &out);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, was.id, 8, 1), PLEAT_E_STATE);
        run_to_end(r.serving, false);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, was.id, 1), PLEAT_OK);
        check_compression(&r, other.engine, was.id);
        const pleat_kept_prefix now = kept(&r, 0, ONE);
        CHECK(now.id == was.id && now.is_pinned && now.n_children == 0 && now.n_pages < was.n_pages);
        CHECK(now.ah > was.ah && now.al > was.al);
        CHECK_EQ_U64(r.serving->inbox.pinned_pages, now.n_pages);
        submit(r.serving, &q, &out); /* what goes on from it is no store's either */
        run_to_end(r.serving, false);
        CHECK_EQ_U64(out.stats.n_hit, ONE);
        pleat_kept_prefix all[4];
        CHECK_EQ_U64(pleat_serving_prefixes(r.serving, all, 4), 2);
        for (uint32_t i = 0; i < 2; i++) CHECK(cell_of(&r, all[i].id)->is_compressed && all[i].ah > was.ah);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, was.id, 0), PLEAT_OK);
    }
    rig_free(&r);
    rig_free(&other);
    if (make(&r, "k8v4", 0)) {
        serve_one(&r, text, LONG, 2);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, kept(&r, 0, PREFIX).id, 8, 1), PLEAT_E_UNSUPPORTED);
    }
    rig_free(&r);
}

static uint64_t needs_all(void *ctx, pleat_seq seq, uint32_t n_tokens, uint32_t flags) {
    (void)ctx, (void)seq, (void)n_tokens, (void)flags;
    return 1u << 30;
}

/* Where there are no pages to compress with, what goes on from a prefix stays. */
static void test_no_pages(void) {
    rig r = {0};
    outcome out;
    if (!load_once()) return;
    if (make_leankv(&r)) {
        pleat_request q = request_of(text, LONG, 2);
        q.breakpoint = ONE + 10;
        submit(r.serving, &q, &out);
        run_to_end(r.serving, false);
        const uint64_t id = kept(&r, 0, ONE).id;
        uint64_t (*const pages_needed)(void *, pleat_seq, uint32_t, uint32_t) = r.serving->backend.pages_needed;
        r.serving->backend.pages_needed = needs_all;
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, id, 8, 1), PLEAT_AGAIN);
        r.serving->backend.pages_needed = pages_needed;
        CHECK_EQ_U64(kept(&r, 0, ONE).n_children, 1);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, id, 8, 1), PLEAT_OK);
        CHECK_EQ_U64(kept(&r, 0, ONE).n_children, 0);
    }
    rig_free(&r);
}

/* Who has left a prefix that is compressed then keeps one with its own thresholds. */
static void test_left(void) {
    rig r = {0};
    outcome out;
    if (!load_once()) return;
    if (make_leankv(&r)) {
        serve_one(&r, text, ONE + 20, 2);
        const pleat_kept_prefix above = kept(&r, 0, ONE);
        pleat_request q = request_of(text, ONE + 64, 2);
        q.breakpoint = ONE + 40;
        submit(r.serving, &q, &out);
        CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        pleat__request *one = r.serving->running[0];
        pleat__serving_unuse(r.serving, PLEAT__RUNNING(one)->base); /* as who shares no page with it does */
        PLEAT__RUNNING(one)->base.v = 0;
        pleat__serving_count_own(r.serving, one);
        CHECK_STATUS(pleat_serving_compress_prefix(r.serving, above.id, 8, 1), PLEAT_OK);
        while (PLEAT__RUNNING(one)->n_stored < ONE + 40) CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
        const pleat_kept_prefix k = kept(&r, 0, ONE + 40);
        CHECK(k.parent == above.id && k.ah == above.ah && k.al == above.al && !cell_of(&r, k.id)->is_compressed);
        run_to_end(r.serving, false);
    }
    rig_free(&r);
}

/* Of a pool of 24 pages a lane 12 are pinned.  Who begins with these needs the others alone. */
static void test_begins_pinned(void) {
    rig r = {0};
    pleat_request_id id;
    if (make(&r, "f16", 32 * 24)) {
        pleat_request q = request_of(text, 300, 20);
        serve_one(&r, text, LONG, 2);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 1), PLEAT_OK);
        const outcome out = serve_one(&r, text, 300, 20);
        CHECK(out.finish == PLEAT_FINISH_LENGTH && out.stats.n_hit >= 3 * PREFIX);
        q.salt = "another";
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_E_LIMIT);
        q.salt = NULL;
        q.breakpoint = 100; /* is read in other chunks */
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_E_LIMIT);
        q.breakpoint = 200;
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_serving_cancel(r.serving, id), PLEAT_OK);
        q.prompt = text + 1;
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_E_LIMIT);
        q.prompt = text;
        q.n_prompt = 3 * PREFIX; /* one token of it is computed */
        q.breakpoint = 0;
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_E_LIMIT);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 0), PLEAT_OK);
        CHECK(pleat_serving_is_valid(r.serving));
    }
    rig_free(&r);
}

/* A kept prefix and its copies would take more than what is pinned leaves: its request goes without. */
static void test_beside(void) {
    rig r = {0};
    outcome out;
    if (make(&r, "f16", 32 * 24)) {
        pleat_request q = request_of(text + 600, 140, 2);
        q.breakpoint = 130; /* within a page */
        serve_one(&r, text, LONG, 2);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 1), PLEAT_OK);
        submit(r.serving, &q, &out);
        run_to_end(r.serving, false);
        CHECK(kept(&r, 600, 130).id != 0);
        q.n_prompt = 170;
        q.n_predict = 22; /* 12 pages a lane in all */
        submit(r.serving, &q, &out);
        run_to_end(r.serving, false);
        CHECK(out.finish == PLEAT_FINISH_LENGTH && out.n_tokens == 22);
        CHECK_STATUS(pleat_serving_pin_prefix(r.serving, kept(&r, 0, 3 * PREFIX).id, 0), PLEAT_OK);
    }
    rig_free(&r);
}

/* Who looks for prefixes of salts that nobody has makes none of them known. */
static void test_looked_for(void) {
    rig r = {0};
    char salt[32];
    if (make(&r, "f16", 0)) {
        for (uint32_t i = 0; i < 5000; i++) {
            snprintf(salt, sizeof salt, "nobody's %u", i);
            CHECK(pleat_serving_find_prefix(r.serving, salt, text, LONG) == 0);
        }
        pleat_request q = request_of(text, LONG, 2);
        outcome out;
        q.salt = "late";
        for (uint32_t i = 0; i < 2; i++) {
            submit(r.serving, &q, &out);
            run_to_end(r.serving, false);
        }
        CHECK_EQ_U64(out.stats.n_hit, 4 * PREFIX);
        CHECK(pleat_serving_find_prefix(r.serving, "late", text, LONG) != 0);
    }
    rig_free(&r);
}

static const check_test tests[] = {{"listed", test_listed},
                                   {"pinned", test_pinned},
                                   {"crowded", test_crowded},
                                   {"crowded_tenants", test_crowded_tenants},
                                   {"dropped", test_dropped},
                                   {"compressed", test_compressed},
                                   {"no_pages", test_no_pages},
                                   {"left", test_left},
                                   {"begins_pinned", test_begins_pinned},
                                   {"beside", test_beside},
                                   {"looked_for", test_looked_for}};

int main(int argc, char **argv) {
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
