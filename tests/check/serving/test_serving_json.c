/* SPDX-License-Identifier: MIT
 *
 * test_serving_json.c: answers that have to be JSON objects, of the reference model, which knows nothing of JSON: jansson
 * reads each.  And a mask against the slow way, a token that does not bind, and what runs beside it.
 */
#include <jansson.h>

#include "serving_rig.h"

enum { TEXT_CAP = 8192, ANSWER = 100 };

typedef struct answer {
    pleat_token tokens[MAX_PREDICT];
    char text[TEXT_CAP];
    uint32_t n_tokens, n_text;
    pleat_finish finish;
} answer;

static void note(answer *a, const pleat_serving_event *e) {
    if (e->token >= 0) a->tokens[a->n_tokens++] = e->token;
    if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
    a->n_text += e->n_text;
    a->finish = e->finish;
}

static void drive(pleat_serving *s) {
    while (check_failures() == 0) {
        uint32_t n;
        const pleat_status status = pleat_serving_step(s, NULL);
        const pleat_serving_event *e = pleat_serving_events(s, &n);
        for (uint32_t i = 0; i < n; i++) note(e[i].user, &e[i]);
        if (status == PLEAT_AGAIN || !CHECK_STATUS(status, PLEAT_OK)) break;
    }
}

static bool make(rig *r) {
    const pleat_engine_options eo = engine_options("k8v4");
    const pleat_serving_options so = serving_options();
    return rig_make(r, &eo, &so, 0);
}

/* The token whose text is one byte; -1. */
static pleat_token token_of(char byte) {
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    for (uint32_t id = 0; id < info.n_vocab; id++) {
        size_t n = 0;
        const char *its = pleat_model_token_text(model, (pleat_token)id, &n);
        if (its && n == 1 && its[0] == byte && !pleat_model_token_is_special(model, (pleat_token)id))
            return (pleat_token)id;
    }
    return -1;
}

/* A whole answer is an object; one that was cut off ends too early, and nothing else is wrong with it. */
static bool is_well_formed(const answer *a) {
    json_error_t error;
    json_t *value = json_loadb(a->text, a->n_text, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    const bool is_object = json_is_object(value);
    json_decref(value);
    if (a->finish == PLEAT_FINISH_END) /* jansson has no larger numbers, and no NUL in names */
        return is_object || json_error_code(&error) == json_error_numeric_overflow ||
               json_error_code(&error) == json_error_null_byte_in_key;
    const bool is_cut = json_error_code(&error) == json_error_premature_end_of_input ||
                        error.position == (int)a->n_text; /* within a number, a literal or an escape */
    return a->finish == PLEAT_FINISH_LENGTH && !is_object && is_cut;
}

/* Every fourth greedy, others at 0.5 to 2; in half of them it is likelier that something is closed, so that some end. */
static pleat_request request_for(uint32_t i, const pleat_logit_bias *biases, uint32_t n_biases) {
    pleat_request q = request_of(text + 17 * (i % 50), 12 + i % 7, ANSWER);
    q.wants_text = 1;
    q.wants_json = 1;
    q.sampling.temperature = (float)(i % 4) * 0.5f + (i % 4 ? 0.5f : 0);
    q.sampling.top_k = i % 3 ? 0 : 40;
    q.sampling.top_p = i % 5 ? 1 : 0.9f;
    q.sampling.seed = 1000 + i;
    q.biases = biases;
    q.n_biases = i % 2 ? n_biases : 0;
    return q;
}

static void test_answers(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    enum { AT_ONCE = 5 };
    static answer answers[AT_ONCE];
    rig r;
    if (!load_once() || !make(&r)) return;
    const pleat_logit_bias biases[] = {{token_of('"'), 9}, {token_of('}'), 9}, {token_of(']'), 9}, {token_of(':'), 5}};
    uint32_t n_whole = 0, n_cut = 0;
    const uint32_t n = (uint32_t)check_rounds(200, 20);
    for (uint32_t at = 0; at < n && check_failures() == 0; at += AT_ONCE) {
        memset(answers, 0, sizeof answers);
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            pleat_request q = request_for(at + i, biases, (uint32_t)CHECK_COUNT(biases));
            q.user = &answers[i];
            pleat_request_id id;
            CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_OK);
        }
        drive(r.serving);
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            check_context("answer %u: %.*s", at + i, (int)answers[i].n_text, answers[i].text);
            CHECK(is_well_formed(&answers[i]));
            n_whole += answers[i].finish == PLEAT_FINISH_END;
            n_cut += answers[i].finish == PLEAT_FINISH_LENGTH;
        }
    }
    check_context("%u whole, %u cut off", n_whole, n_cut);
    CHECK(n_whole >= n / 8 && n_cut >= n / 8);
    rig_free(&r);
}

/* The mask of what can follow a text, against trying each token's bytes behind it. */
static void test_mask(void) {
    static const char *const begun[] = {"",
                                        " ",
                                        "{",
                                        "{\"",
                                        "{\"a",
                                        "{\"a\\",
                                        "{\"a\\u00",
                                        "{\"\\ud83d",
                                        "{\"\xe2\x80",
                                        "{\"a\"",
                                        "{\"a\":",
                                        "{\"a\": -",
                                        "{\"a\": 0",
                                        "{\"a\": 1.5",
                                        "{\"a\": tr",
                                        "{\"a\": [",
                                        "{\"a\": [1",
                                        "{\"a\": [\"x\"",
                                        "{\"a\": {\"b\": 1}",
                                        "{\"a\": [[[["};
    if (!load_once()) return;
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat__json_tokens t;
    if (!CHECK_STATUS(pleat__json_tokens_init(&t, model, info.n_vocab, &al), PLEAT_OK)) return;
    float *logits = malloc(info.n_vocab * sizeof *logits);
    for (size_t k = 0; k < CHECK_COUNT(begun) && check_failures() == 0; k++) {
        pleat__json json = {0};
        uint32_t n_fit = 0;
        CHECK(pleat__json_take(&json, begun[k], strlen(begun[k])));
        for (uint32_t id = 0; id < info.n_vocab; id++) logits[id] = (float)id;
        pleat__json_tokens_mask(&t, &json, logits);
        for (uint32_t id = 0; id < info.n_vocab; id++) {
            size_t n = 0;
            const char *its = pleat_model_token_text(model, (pleat_token)id, &n);
            pleat__json next = {0};
            const bool fits = !pleat_model_token_is_special(model, (pleat_token)id) &&
                              !pleat_model_token_is_end(model, (pleat_token)id) && n > 0 &&
                              pleat__json_take(&next, begun[k], strlen(begun[k])) && pleat__json_take(&next, its, n);
            check_context("behind %s: token %u", begun[k], id);
            if (!CHECK(logits[id] == (fits ? (float)id : -INFINITY))) break;
            n_fit += fits;
        }
        CHECK(n_fit > 0);
    }
    free(logits);
    pleat__json_tokens_release(&t, &al);
}

/* A prompt that the model goes on with as it likes: forced by biases to write an object, which the constraint leaves as
 * it is; and a request that wants none, beside one that does. */
static void test_unbound(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    static answer with, without, beside, alone;
    rig r;
    if (!load_once() || !make(&r)) return;
    const pleat_logit_bias biases[] = {{token_of('{'), 1000}};
    pleat_request q = request_of(text, 20, 1);
    pleat_request_id id;
    q.biases = biases;
    q.n_biases = 1;
    q.wants_text = 1;
    memset(&with, 0, sizeof with);
    memset(&without, 0, sizeof without);
    for (int is_json = 0; is_json < 2; is_json++) {
        q.wants_json = is_json;
        q.user = is_json ? &with : &without;
        q.sampling.temperature = 1.0f;
        q.sampling.seed = 5;
        CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_OK);
        drive(r.serving);
    }
    CHECK(without.n_tokens == 1 && with.n_tokens == 1 && with.tokens[0] == without.tokens[0] && with.text[0] == '{');

    pleat_request plain = request_of(text, 20, ANSWER), json = plain;
    memset(&alone, 0, sizeof alone);
    memset(&beside, 0, sizeof beside);
    plain.user = &alone;
    plain.sampling.temperature = 0.9f;
    CHECK_STATUS(pleat_serving_submit(r.serving, &plain, &id, NULL), PLEAT_OK);
    drive(r.serving);
    memset(&with, 0, sizeof with);
    plain.user = &beside;
    json.wants_json = json.wants_text = 1;
    json.user = &with;
    CHECK_STATUS(pleat_serving_submit(r.serving, &json, &id, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_serving_submit(r.serving, &plain, &id, NULL), PLEAT_OK);
    drive(r.serving);
    CHECK_EQ_U64(alone.n_tokens, beside.n_tokens);
    CHECK_EQ_MEM(alone.tokens, beside.tokens, sizeof alone.tokens);
    CHECK(is_well_formed(&with));
    rig_free(&r);
}

/* An object that is whole ends the answer, though more tokens were asked for and what ends texts is ignored. */
static void test_end(void) {
    if (is_slow()) SKIP("too slow without AVX2");
    static answer a;
    rig r;
    if (!load_once() || !make(&r)) return;
    const pleat_logit_bias biases[] = {{token_of('}'), 1000}, {token_of('{'), 900}};
    pleat_request q = request_of(text, 20, ANSWER);
    pleat_request_id id;
    memset(&a, 0, sizeof a);
    q.wants_text = q.wants_json = q.ignores_end = 1;
    q.biases = biases;
    q.n_biases = 2;
    q.user = &a;
    CHECK_STATUS(pleat_serving_submit(r.serving, &q, &id, NULL), PLEAT_OK);
    drive(r.serving);
    a.text[a.n_text] = 0;
    const char *end = a.n_text >= 2 ? a.text + a.n_text - 2 : "";
    CHECK_EQ_STR(end, "{}");
    CHECK_EQ_U64(a.finish, PLEAT_FINISH_END);
    rig_free(&r);
}

static const check_test tests[] = {
    {"answers", test_answers},
    {"mask", test_mask},
    {"unbound", test_unbound},
    {"end", test_end},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
