/* SPDX-License-Identifier: MIT
 *
 * test_serving_answer.c: what requests want of their answers beside tokens, and requests from other threads.
 *
 * Three oracles.  The whole text of the tokens so far is searched from its beginning after each token.  An engine that is
 * driven by hand gives logits, which are moved and looked at slowly.  And there is the same request by itself.
 */
#include <pthread.h>

#include "serving_rig.h"

enum { TEXT_CAP = 20000, PROMPT = 30, ANSWER = 24 };

/* ---- text and stop strings, without a serving --------------------------------------------------------------------------- */

/* All of the text of n tokens; with its end if they are all. */
static size_t whole_text(const pleat_token *ids, uint32_t n, bool ends, char *out) {
    pleat_detokenizer d;
    size_t n_bytes = 0, n_piece;
    CHECK_STATUS(pleat_detokenizer_init(&d, model, 0), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_STATUS(pleat_detokenizer_put(&d, ids[i], out + n_bytes, TEXT_CAP - n_bytes, &n_piece), PLEAT_OK);
        n_bytes += n_piece;
    }
    if (ends) CHECK_STATUS(pleat_detokenizer_end(&d, out + n_bytes, TEXT_CAP - n_bytes, &n_piece), PLEAT_OK);
    out[n_bytes += ends ? n_piece : 0] = 0;
    return n_bytes;
}

/* The first place of any stop; NULL if there is none. */
static const char *first_stop(const char *at, const pleat_request *q) {
    const char *best = NULL;
    for (uint32_t i = 0; i < q->n_stops; i++) {
        const char *found = strstr(at, q->stops[i]);
        if (found && (!best || found < best)) best = found;
    }
    return best;
}

/* Hand the answer n tokens; its text is that of the oracle after each of them. */
static void check_text(const pleat_request *q, const pleat_token *ids, uint32_t n, uint32_t max_bytes) {
    static char got[TEXT_CAP], want[TEXT_CAP];
    pleat__answer *a = NULL;
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    size_t n_got = 0;
    bool has_stopped = false;
    if (!CHECK_STATUS(pleat__answer_create(q, model, max_bytes, &al, &a), PLEAT_OK)) return;
    for (uint32_t i = 0; i < n && !has_stopped && check_failures() == 0; i++) {
        pleat_serving_event event = {.chosen = ids[i]};
        has_stopped = pleat__answer_take(a, ids[i]);
        const bool is_last = i + 1 == n && !has_stopped;
        if (is_last) pleat__answer_close(a);
        pleat__answer_tell(a, &event);
        if (event.n_text) memcpy(got + n_got, event.text, event.n_text);
        n_got += event.n_text;
        size_t n_want = whole_text(ids, i + 1, is_last, want);
        const char *stop = first_stop(want, q);
        if (!is_last) CHECK(has_stopped == (stop != NULL));
        if (stop) n_want = (size_t)(stop - want);
        CHECK(n_got <= n_want && memcmp(got, want, n_got) == 0);
        if (has_stopped || is_last) CHECK_EQ_U64(n_got, n_want);
    }
    pleat__answer_destroy(&al, 0, a);
}

/* A piece of the text, whole characters or not a stop. */
static const char *piece_of(const char *whole, size_t n, char *out) {
    const size_t length = check_between(1, n < 12 ? n : 12), at = check_below(n - length + 1);
    memcpy(out, whole + at, length);
    out[length] = 0;
    for (size_t i = 0; i < length; i++)
        if (out[i] & 0x80) return "\n";
    return out;
}

static void test_stops(void) {
    if (!load_once()) return;
    static char whole[TEXT_CAP], pieces[PLEAT_STOPS_MAX][16];
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    size_t max_bytes = 0, n;
    for (uint32_t i = 0; i < info.n_vocab; i++)
        if (pleat_model_token_text(model, (pleat_token)i, &n) && n > max_bytes) max_bytes = n;
    for (uint64_t round = 0; round < check_rounds(400, 60) && check_failures() == 0; round++) {
        pleat_token ids[60];
        const char *stops[PLEAT_STOPS_MAX];
        const uint32_t n_ids = (uint32_t)check_between(1, 60), from = (uint32_t)check_below(2000);
        for (uint32_t i = 0; i < n_ids; i++) /* real text, or any tokens, which break characters */
            ids[i] = round % 2 ? text[from + i] : (pleat_token)check_below(info.n_vocab);
        n = whole_text(ids, n_ids, true, whole);
        pleat_request q = request_of(text, 1, 1);
        q.wants_text = 1;
        q.stops = stops;
        for (q.n_stops = 0; n > 0 && q.n_stops < check_below(5); q.n_stops++)
            stops[q.n_stops] = piece_of(whole, n, pieces[q.n_stops]);
        check_text(&q, ids, n_ids, (uint32_t)max_bytes);
    }
}

/* ---- one request, and all that came of it -------------------------------------------------------------------------------- */

typedef struct answer {
    pleat_token tokens[MAX_PREDICT];
    char text[TEXT_CAP];
    pleat_logprob logprobs[MAX_PREDICT][1 + PLEAT_LOGPROBS_MAX];
    pleat_logprob prompt[MAX_TOKENS][1 + PLEAT_LOGPROBS_MAX];
    uint32_t n_tokens, n_text, n_logprobs, n_rows, index;
    pleat_token last_chosen;
    pleat_finish finish;
} answer;

static void note(answer *a, const pleat_serving_event *e, uint32_t n_prompt, uint32_t n_top) {
    CHECK(a->finish == PLEAT_FINISH_NOT);
    if (e->token >= 0) a->tokens[a->n_tokens++] = e->token;
    if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
    a->n_text += e->n_text;
    a->text[a->n_text] = 0;
    if (e->n_logprobs) memcpy(a->logprobs[a->n_logprobs++], e->logprobs, e->n_logprobs * sizeof *e->logprobs);
    for (uint32_t i = 0; e->prompt_logprobs && i < n_prompt; i++)
        memcpy(a->prompt[a->n_rows++], e->prompt_logprobs + i * (1 + n_top), (1 + n_top) * sizeof *e->logprobs);
    a->last_chosen = e->chosen;
    a->finish = e->finish;
    a->index = e->index;
}

/* Run what is there to its end; answers stand in `user`. */
static void drive(pleat_serving *s, const pleat_request *q) {
    pleat_error err = {0};
    while (check_failures() == 0) {
        uint32_t n;
        const pleat_status status = pleat_serving_step(s, &err);
        const pleat_serving_event *e = pleat_serving_events(s, &n);
        for (uint32_t i = 0; i < n; i++)
            if (e[i].user) note(e[i].user, &e[i], q->n_prompt, q->n_top);
        if (status == PLEAT_AGAIN) break;
        if (!CHECK_STATUS(status, PLEAT_OK)) printf("%s\n", err.text);
    }
}

static bool run_one(rig *r, pleat_request q, answer *out) {
    pleat_request_id id;
    pleat_error err = {0};
    memset(out, 0, sizeof *out);
    q.user = out;
    if (!CHECK_STATUS(pleat_serving_submit(r->serving, &q, &id, &err), PLEAT_OK)) printf("%s\n", err.text);
    drive(r->serving, &q);
    return CHECK(out->finish != PLEAT_FINISH_NOT);
}

static bool make(rig *r, const char *spec) {
    const pleat_engine_options eo = engine_options(spec);
    const pleat_serving_options so = serving_options();
    return rig_make(r, &eo, &so, 0);
}

/* ---- probabilities, penalties and biases against an engine driven by hand -------------------------------------------------- */

/* The logits of the request's tokens, one row after the other: out [n_prompt + n_answer][n_vocab], prompt in one chunk. */
static void logits_by_hand(const pleat_token *ids, uint32_t n_prompt, uint32_t n_answer, float *out, uint32_t n_vocab) {
    const pleat_engine_options eo = engine_options("f16");
    pleat_engine *engine = NULL;
    pleat_seq seq;
    if (!CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK)) return;
    CHECK_STATUS(pleat_engine_open(engine, MAX_TOKENS, &seq), PLEAT_OK);
    for (uint32_t at = 0; at < n_prompt + n_answer;) {
        const uint32_t n = at == 0 ? n_prompt : 1;
        const pleat_engine_item item = {
            .seq = seq, .tokens = ids + at, .n_tokens = n, .n_logits = n, .logits = out + (size_t)at * n_vocab};
        if (!CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK)) break;
        at += n;
    }
    CHECK_STATUS(pleat_engine_close(engine, seq), PLEAT_OK);
    pleat_engine_destroy(&engine);
}

/* The likeliest token as the request moves logits, counted from the tokens each time. */
static pleat_token choose_slowly(const pleat_request *q, const pleat_token *ids, uint32_t n_known, const float *logits,
                                 uint32_t n_vocab) {
    pleat_token best = 0;
    float most = -INFINITY;
    for (pleat_token t = 0; (uint32_t)t < n_vocab; t++) {
        float x = logits[t];
        uint32_t n_answer = 0, n_all = 0;
        for (uint32_t i = 0; i < q->n_biases; i++) x += q->biases[i].token == t ? q->biases[i].bias : 0;
        for (uint32_t i = 0; i < n_known; i++) {
            n_all += ids[i] == t;
            n_answer += i >= q->n_prompt && ids[i] == t;
        }
        if (n_all > 0) x = x > 0 ? x / q->repetition_penalty : x * q->repetition_penalty;
        if (n_answer > 0) x -= q->frequency_penalty * (float)n_answer + q->presence_penalty;
        if (x > most) most = x, best = t;
    }
    return best;
}

static void check_moved(pleat_request q) {
    rig r;
    static answer got;
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    const uint32_t n_vocab = info.n_vocab, row = 1 + q.n_top;
    pleat_token ids[PROMPT + ANSWER];
    pleat_logprob want[1 + PLEAT_LOGPROBS_MAX];
    q.wants_logprobs = q.wants_prompt_logprobs = 1;
    if (!make(&r, "f16") || !run_one(&r, q, &got)) return;
    CHECK_EQ_U64(got.n_tokens, ANSWER);
    CHECK_EQ_U64(got.n_logprobs, ANSWER);
    CHECK_EQ_U64(got.n_rows, PROMPT);
    memcpy(ids, q.prompt, PROMPT * sizeof *ids);
    memcpy(ids + PROMPT, got.tokens, ANSWER * sizeof *ids);
    float *logits = malloc((size_t)(PROMPT + ANSWER) * n_vocab * sizeof *logits);
    logits_by_hand(ids, PROMPT, ANSWER - 1, logits, n_vocab);
    for (uint32_t i = 0; i + 1 < PROMPT + ANSWER && check_failures() == 0; i++) {
        const float *x = logits + (size_t)i * n_vocab;
        CHECK_STATUS(pleat_logprobs(x, n_vocab, ids[i + 1], q.n_top, want), PLEAT_OK);
        CHECK_EQ_MEM(i + 1 < PROMPT ? got.prompt[i + 1] : got.logprobs[i + 1 - PROMPT], want, row * sizeof *want);
        if (i + 1 >= PROMPT) CHECK_EQ_I64(ids[i + 1], choose_slowly(&q, ids, i + 1, x, n_vocab));
    }
    CHECK_EQ_I64(got.prompt[0][0].token, q.prompt[0]);
    if (q.n_top > 0) CHECK_EQ_I64(got.prompt[0][1].token, -1);
    free(logits);
    rig_free(&r);
}

static void test_by_hand(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    pleat_request q = request_of(text, PROMPT, ANSWER);
    q.n_top = 5;
    check_context("nothing moved");
    check_moved(q);
    const pleat_logit_bias biases[] = {{text[PROMPT], 6}, {text[PROMPT + 1], -100}, {text[PROMPT], -2.5f}};
    q.biases = biases;
    q.n_biases = 3;
    q.n_top = PLEAT_LOGPROBS_MAX;
    check_context("biases");
    check_moved(q);
    q.frequency_penalty = 1.5f;
    q.presence_penalty = 0.75f;
    q.repetition_penalty = 1.3f;
    q.n_top = 0;
    check_context("penalties");
    check_moved(q);
}

/* ---- in company -------------------------------------------------------------------------------------------------------- */

static void check_same_answer(const answer *a, const answer *b) {
    CHECK_EQ_U64(a->n_tokens, b->n_tokens);
    CHECK_EQ_MEM(a->tokens, b->tokens, sizeof a->tokens);
    CHECK_EQ_STR(a->text, b->text);
    CHECK_EQ_MEM(a->logprobs, b->logprobs, sizeof a->logprobs);
    CHECK_EQ_MEM(a->prompt, b->prompt, sizeof a->prompt);
    CHECK_EQ_U64(a->finish, b->finish);
}

/* Every second request wants all of its answer; nobody's differs from what it is alone. */
static void check_company(const char *spec) {
    enum { N = 5 };
    static answer alone[N], together[N];
    static const char *const stops[] = {"the", " of a"};
    pleat_request q[N];
    rig r;
    check_context("%s", spec);
    for (uint32_t i = 0; i < N; i++) {
        q[i] = request_of(text + 200 * i, 20 + 35 * i, ANSWER);
        q[i].n_top = 3;
        q[i].wants_text = 1;
        q[i].wants_logprobs = i % 2 == 0;
        q[i].wants_prompt_logprobs = i == 2 || i == 3;
        q[i].frequency_penalty = i == 4 ? 0.5f : 0;
        q[i].stops = stops;
        q[i].n_stops = i == 1 ? 2 : 0;
        if (!make(&r, spec) || !run_one(&r, q[i], &alone[i])) return;
        rig_free(&r);
    }
    if (!make(&r, spec)) return;
    memset(together, 0, sizeof together);
    for (uint32_t i = 0; i < N; i++) {
        pleat_request_id id;
        q[i].user = &together[i];
        CHECK_STATUS(pleat_serving_post(r.serving, &q[i], 1, &id, NULL), PLEAT_OK);
    }
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        uint32_t n;
        const pleat_serving_event *e = pleat_serving_events(r.serving, &n);
        for (uint32_t i = 0; i < n; i++) {
            answer *a = e[i].user;
            note(a, &e[i], q[a - together].n_prompt, 3);
        }
    }
    for (uint32_t i = 0; i < N; i++) check_same_answer(&alone[i], &together[i]);
    rig_free(&r);
}

static void test_company(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once()) return;
    check_company("k8v4");
    check_company("leankv:ah=1,al=0.02,window=32");
}

/* ---- continuations ------------------------------------------------------------------------------------------------------ */

static void test_continuations(void) {
    enum { N = 4, LONG = 150 };
    static answer got[N], alone;
    pleat_request_id ids[N];
    rig r;
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once() || !make(&r, "k8v4")) return;
    pleat_request q = request_of(text, LONG, 12);
    q.sampling.temperature = 0.9f;
    q.sampling.seed = 40;
    memset(got, 0, sizeof got);
    q.user = &got[0];
    CHECK_STATUS(pleat_serving_post(r.serving, &q, N, ids, NULL), PLEAT_OK);
    while (check_failures() == 0 && pleat_serving_step(r.serving, NULL) == PLEAT_OK) {
        uint32_t n;
        const pleat_serving_event *e = pleat_serving_events(r.serving, &n);
        for (uint32_t i = 0; i < n; i++) {
            if (!CHECK(e[i].index < N && ids[e[i].index].v == e[i].id.v)) return;
            note(&got[e[i].index], &e[i], LONG, 0);
        }
    }
    pleat_serving_stats stats;
    pleat_serving_get_stats(r.serving, &stats);
    CHECK_EQ_U64(stats.prompt_tokens, LONG - 1 + N); /* the last one once each */
    CHECK_EQ_U64(stats.hits, N - 1);
    rig_free(&r);
    for (uint32_t i = 0; i < N; i++) { /* as a request by itself with that seed and breakpoint */
        pleat_request one = q;
        one.sampling.seed = 40 + i;
        one.breakpoint = LONG - 1;
        if (!make(&r, "k8v4") || !run_one(&r, one, &alone)) return;
        CHECK_EQ_U64(got[i].n_tokens, alone.n_tokens);
        CHECK_EQ_MEM(got[i].tokens, alone.tokens, sizeof alone.tokens);
        rig_free(&r);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------------------------------- */

static void test_stop_ids(void) {
    static answer whole, got;
    rig r;
    if (is_slow()) SKIP("too slow without AVX2");
    if (!load_once() || !make(&r, "f16")) return;
    pleat_request q = request_of(text + 50, PROMPT, ANSWER);
    q.wants_text = q.wants_logprobs = 1;
    if (!run_one(&r, q, &whole)) return;
    CHECK(whole.finish == PLEAT_FINISH_LENGTH);
    const pleat_token stop = whole.tokens[ANSWER / 2];
    uint32_t at = 0;
    while (whole.tokens[at] != stop) at++;
    q.stop_ids = &stop;
    q.n_stop_ids = 1;
    if (!run_one(&r, q, &got)) return;
    CHECK(got.finish == PLEAT_FINISH_STOP);
    CHECK_EQ_U64(got.n_tokens, at);
    CHECK_EQ_U64(got.n_logprobs, at + 1); /* the token that ended it has one too */
    CHECK_EQ_I64(got.last_chosen, stop);
    CHECK(strncmp(whole.text, got.text, strlen(got.text)) == 0);
    rig_free(&r);
}

static void test_time_limit(void) {
    static answer got[2];
    rig r;
    if (!load_once() || !make(&r, "f16")) return;
    pleat_request q = request_of(text, 5, 3);
    pleat_request_id id;
    memset(got, 0, sizeof got);
    q.user = &got[0];
    q.time_limit_ns = 1; /* over before its first token */
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 1, &id, NULL), PLEAT_OK);
    q.user = &got[1];
    q.time_limit_ns = UINT64_MAX;
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_OK);
    drive(r.serving, &q);
    CHECK(got[0].finish == PLEAT_FINISH_DEADLINE);
    CHECK(got[0].n_tokens < 3);
    CHECK(got[1].finish == PLEAT_FINISH_LENGTH);
    CHECK_EQ_U64(got[1].n_tokens, 3);
    rig_free(&r);
}

/* Is e the event of progress that follows one of n_read tokens? */
static void check_told(const pleat_serving_event *e, const pleat_request *q, uint32_t n_read) {
    CHECK(e->is_progress && e->token < 0 && e->finish == PLEAT_FINISH_NOT);
    CHECK(e->n_read > n_read && e->n_read <= q->n_prompt);
    CHECK_EQ_U64(e->stats.n_prompt, q->n_prompt);
    CHECK_EQ_U64(e->stats.n_hit + e->stats.n_computed, e->n_read);
}

/* Steps of one request until its first token: the first event of progress tells what a kept prefix gave, the last of a step
 * what its sequence holds then, more each time, and the last of all the prompt.  Returns the number of events; *n_hit: the
 * last one's. */
static uint32_t watch_prompt(pleat_serving *s, const pleat_request *q, uint32_t *n_hit) {
    pleat_request_id id;
    uint32_t n_told = 0, n, n_read = 0;
    bool is_answered = false;
    CHECK_STATUS(pleat_serving_submit(s, q, &id, NULL), PLEAT_OK);
    for (uint32_t i = 0; i < q->n_prompt && !is_answered && check_failures() == 0; i++) {
        CHECK_STATUS(pleat_serving_step(s, NULL), PLEAT_OK);
        const pleat_serving_event *e = pleat_serving_events(s, &n);
        for (uint32_t k = 0; k < n && !is_answered; k++) {
            is_answered = e[k].token >= 0;
            if (is_answered) break;
            if (n_told == 0) CHECK_EQ_U64(e[k].n_read, e[k].stats.n_hit);
            if (n_told > 0) check_told(&e[k], q, n_read);
            n_read = e[k].n_read;
            *n_hit = e[k].stats.n_hit;
            n_told++;
        }
        if (n_told > 0) CHECK_EQ_U64(n_read, PLEAT__RUNNING(s->running[0])->n_stored);
    }
    CHECK_EQ_U64(n_told > 0 ? n_read : q->n_prompt, q->n_prompt);
    CHECK_STATUS(pleat_serving_cancel(s, id), PLEAT_OK);
    return n_told;
}

static void test_progress(void) {
    rig r;
    uint32_t n_hit = 1;
    if (!load_once() || !make(&r, "f16")) return;
    pleat_request q = request_of(text + 20, 5 * CHUNK + 3, ANSWER);
    q.wants_progress = 1;
    CHECK_EQ_U64(watch_prompt(r.serving, &q, &n_hit), 1 + 6);
    CHECK_EQ_U64(n_hit, 0);
    CHECK_EQ_U64(watch_prompt(r.serving, &q, &n_hit), 1 + 6 - 2 * PREFIX / CHUNK);
    CHECK_EQ_U64(n_hit, 2 * PREFIX);
    q.wants_progress = 0;
    CHECK_EQ_U64(watch_prompt(r.serving, &q, &n_hit), 0);
    q.n_prompt = CHUNK;
    q.wants_progress = 1;
    CHECK_EQ_U64(watch_prompt(r.serving, &q, &n_hit), 1 + 1); /* in one step */
    rig_free(&r);
}

static void test_refused(void) {
    rig r;
    pleat_request_id ids[2];
    if (!load_once() || !make(&r, "f16")) return;
    const char *const stops[] = {""}, *const bad_utf8[] = {"\xff"};
    const pleat_token no_token = INT32_MAX;
    const pleat_logit_bias nan_bias = {0, NAN};
    pleat_request bad[9];
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) bad[i] = request_of(text, 5, 3);
    bad[0].stops = stops, bad[0].n_stops = 1;
    bad[1].stops = bad_utf8, bad[1].n_stops = 1;
    bad[2].n_stops = PLEAT_STOPS_MAX + 1;
    bad[3].stop_ids = &no_token, bad[3].n_stop_ids = 1;
    bad[4].biases = &nan_bias, bad[4].n_biases = 1;
    bad[5].n_top = PLEAT_LOGPROBS_MAX + 1;
    bad[6].repetition_penalty = 0;
    bad[7].frequency_penalty = NAN;
    bad[8].presence_penalty = INFINITY;
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        pleat_error err = {0};
        check_context("case %zu", i);
        CHECK_STATUS(pleat_serving_post(r.serving, &bad[i], 2, ids, &err), PLEAT_E_ARG);
        CHECK_STATUS(pleat_serving_submit(r.serving, &bad[i], ids, &err), PLEAT_E_ARG);
        CHECK(err.text[0] != 0);
    }
    CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_AGAIN);
    rig_free(&r);
}

/* Full: refused at once with the number as place, and there is room again when one has gone. */
static void test_full(void) {
    rig r;
    pleat_request_id ids[4];
    const pleat_engine_options eo = engine_options("f16");
    pleat_serving_options so = serving_options();
    pleat_error err = {0};
    so.max_requests = 3;
    if (!load_once() || !rig_make(&r, &eo, &so, 0)) return;
    const pleat_request q = request_of(text, 5, 3);
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 4, ids, &err), PLEAT_E_LIMIT);
    CHECK_EQ_U64(err.where, PLEAT_NOWHERE);
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 2, ids, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 2, ids + 2, &err), PLEAT_E_LIMIT);
    CHECK_EQ_U64(err.where, 2);
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 1, ids + 2, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, ids + 3, NULL), PLEAT_E_LIMIT);
    pleat_serving_post_cancel(r.serving, ids[1]);
    CHECK_STATUS(pleat_serving_step(r.serving, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_post(r.serving, &q, 1, ids + 1, NULL), PLEAT_OK);
    run_to_end(r.serving, false);
    rig_free(&r);
}

/* ---- other threads -------------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, EACH = 8, PREDICT = 6 };

typedef struct poster {
    pleat_serving *serving;
    uint32_t first;
    outcome *out; /* [EACH] */
    pleat_request_id ids[EACH];
} poster;

/* Posts, and cancels every fourth. */
static void *post_some(void *arg) {
    poster *p = arg;
    for (uint32_t i = 0; i < EACH; i++) {
        pleat_request q = request_of(text + 40 * (p->first + i), 10 + (p->first + i) % 20, PREDICT);
        q.user = i % 4 == 3 ? NULL : &p->out[i];
        while (pleat_serving_post(p->serving, &q, 1, &p->ids[i], NULL) == PLEAT_E_LIMIT) sched_yield();
        if (i % 4 == 3) pleat_serving_post_cancel(p->serving, p->ids[i]);
        if (i % 4 == 3) pleat_serving_post_cancel(p->serving, p->ids[i]);
    }
    pleat_serving_wake(p->serving);
    return NULL;
}

static uint32_t count_done(const outcome *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < THREADS * EACH; i++) n += out[i].finish != PLEAT_FINISH_NOT;
    return n;
}

static void test_threads(void) {
    static outcome out[THREADS * EACH], alone;
    pthread_t threads[THREADS];
    poster posters[THREADS];
    rig r;
    const pleat_engine_options eo = engine_options("k8v4");
    pleat_serving_options so = serving_options();
    so.max_requests = 7;
    if (!load_once() || !rig_make(&r, &eo, &so, 0)) return;
    memset(out, 0, sizeof out);
    CHECK_STATUS(pleat_serving_wait(r.serving, 0), PLEAT_AGAIN);
    for (uint32_t i = 0; i < THREADS; i++) {
        posters[i] = (poster){.serving = r.serving, .first = i * EACH, .out = out + i * EACH};
        CHECK(pthread_create(&threads[i], NULL, post_some, &posters[i]) == 0);
    }
    while (check_failures() == 0 && count_done(out) < THREADS * EACH * 3 / 4) {
        CHECK_STATUS(pleat_serving_wait(r.serving, UINT64_MAX), PLEAT_OK);
        const pleat_status status = pleat_serving_step(r.serving, NULL);
        CHECK(status == PLEAT_OK || status == PLEAT_AGAIN);
        take_events(r.serving);
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    run_to_end(r.serving, false); /* cancellations that came last */
    for (uint32_t i = 0; i < THREADS * EACH && check_failures() == 0; i++) {
        if (i % 4 == 3) continue;
        const pleat_request q = request_of(text + 40 * i, 10 + i % 20, PREDICT);
        submit(r.serving, &q, &alone);
        run_to_end(r.serving, false);
        check_same(&out[i], &alone, 1);
    }
    rig_free(&r);
}

/* What was posted and never taken in goes with the serving; a failed allocation leaves nothing behind. */
static void test_left_behind(void) {
    const char *const stops[] = {"x"};
    if (!load_once()) return;
    const pleat_engine_options eo = engine_options("f16");
    pleat_engine *engine = NULL;
    if (!CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK)) return;
    pleat_request q = request_of(text, 5, 3);
    q.wants_text = 1;
    q.stops = stops;
    q.n_stops = 1;
    q.salt = "a";
    pleat_status status = PLEAT_E_MEMORY;
    for (uint64_t nth = 1; status != PLEAT_OK && check_failures() == 0; nth++) {
        check_alloc ca;
        check_alloc_init(&ca, nth, 0);
        pleat_serving_options so = serving_options();
        so.allocator = &ca.a;
        pleat_serving *s = NULL;
        pleat_request_id ids[2];
        status = pleat_serving_create(engine, &so, &s, NULL);
        if (status == PLEAT_OK) status = pleat_serving_post(s, &q, 2, ids, NULL);
        if (status != PLEAT_OK) CHECK_STATUS(status, PLEAT_E_MEMORY);
        pleat_serving_destroy(&s);
        CHECK_EQ_U64(ca.live, 0);
    }
    pleat_engine_destroy(&engine);
}

static const check_test tests[] = {
    {"stops", test_stops},       {"by_hand", test_by_hand},
    {"company", test_company},   {"continuations", test_continuations},
    {"stop_ids", test_stop_ids}, {"time_limit", test_time_limit},
    {"refused", test_refused},   {"full", test_full},
    {"threads", test_threads},   {"left_behind", test_left_behind},
    {"progress", test_progress},
};

int main(int argc, char **argv) {
    const int code = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return code;
}
