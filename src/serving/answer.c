/* SPDX-License-Identifier: MIT
 *
 * answer.c: see answer.h.
 */
#include "serving/answer.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

#define IN_PROMPT (UINT32_C(1) << 31)

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "request: " __VA_ARGS__)

/* ---- checks ---------------------------------------------------------------------------------------------------------- */

static bool has_penalties(const pleat_request *q) {
    return q->frequency_penalty != 0 || q->presence_penalty != 0 || q->repetition_penalty != 1;
}

static bool wants_anything(const pleat_request *q) {
    return q->wants_text || q->n_stops || q->n_stop_ids || q->wants_logprobs || q->wants_prompt_logprobs ||
           q->n_biases || q->wants_json || has_penalties(q);
}

static bool is_utf8(const char *text, size_t n) {
    uint32_t character;
    for (size_t at = 0; at < n;) {
        const uint32_t len = pleat__utf8_decode(text + at, n - at, &character);
        if (len == 0) return false;
        at += len;
    }
    return true;
}

static pleat_status check_stops(const pleat_request *q, uint32_t n_vocab, pleat_error *err) {
    REQUIRE(q->n_stops <= PLEAT_STOPS_MAX && (q->n_stops == 0 || q->stops), "%u stop strings, %u are allowed",
            q->n_stops, PLEAT_STOPS_MAX);
    for (uint32_t i = 0; i < q->n_stops; i++) {
        const size_t n = q->stops[i] ? strlen(q->stops[i]) : 0;
        REQUIRE(n >= 1 && n <= PLEAT_STOP_BYTES_MAX, "stop string %u has %zu bytes, 1 to %u are allowed", i, n,
                PLEAT_STOP_BYTES_MAX);
        REQUIRE(is_utf8(q->stops[i], n), "stop string %u is not UTF-8", i);
    }
    REQUIRE(q->n_stop_ids == 0 || q->stop_ids, "no stop tokens, but a number of them");
    for (uint32_t i = 0; i < q->n_stop_ids; i++)
        REQUIRE(q->stop_ids[i] >= 0 && (uint32_t)q->stop_ids[i] < n_vocab, "stop token %d, which the model has not",
                q->stop_ids[i]);
    return PLEAT_OK;
}

static pleat_status check_moves(const pleat_request *q, uint32_t n_vocab, pleat_error *err) {
    REQUIRE(q->n_biases == 0 || q->biases, "no biases, but a number of them");
    for (uint32_t i = 0; i < q->n_biases; i++) {
        REQUIRE(q->biases[i].token >= 0 && (uint32_t)q->biases[i].token < n_vocab,
                "a bias for token %d, which the model has not", q->biases[i].token);
        REQUIRE(isfinite(q->biases[i].bias), "the bias of token %d is no number", q->biases[i].token);
    }
    REQUIRE(isfinite(q->frequency_penalty) && isfinite(q->presence_penalty),
            "frequency_penalty %g or presence_penalty %g is no number", (double)q->frequency_penalty,
            (double)q->presence_penalty);
    REQUIRE(q->repetition_penalty > 0 && isfinite(q->repetition_penalty), "repetition_penalty %g is not above 0",
            (double)q->repetition_penalty);
    return PLEAT_OK;
}

pleat_status pleat__answer_check(const pleat_request *q, const pleat_model *model, uint32_t n_vocab, pleat_error *err) {
    REQUIRE(model || !wants_anything(q), "text, stops, logprobs, biases, penalties or JSON, but there is no model");
    if (!model) return PLEAT_OK;
    REQUIRE(q->n_top <= PLEAT_LOGPROBS_MAX && q->n_top <= n_vocab, "n_top %u is more than %u", q->n_top,
            n_vocab < PLEAT_LOGPROBS_MAX ? n_vocab : PLEAT_LOGPROBS_MAX);
    REQUIRE(!q->shape || q->wants_json, "a shape, but no JSON is wanted");
    if (q->shape) PLEAT_TRY(pleat_json_shape_check(q->shape, err));
    REQUIRE(!q->json_mark || (q->wants_json && q->json_mark[0] && strlen(q->json_mark) <= PLEAT_STOP_BYTES_MAX),
            "a mark before JSON, of no byte or more than %u, or no JSON is wanted", PLEAT_STOP_BYTES_MAX);
    PLEAT_TRY(check_stops(q, n_vocab, err));
    return check_moves(q, n_vocab, err);
}

/* ---- create ---------------------------------------------------------------------------------------------------------- */

static uint64_t stop_bytes(const pleat_request *q) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < q->n_stops; i++) n += strlen(q->stops[i]);
    return n;
}

static uint32_t longest_stop(const pleat_request *q) {
    size_t most = 0;
    for (uint32_t i = 0; i < q->n_stops; i++) most = strlen(q->stops[i]) > most ? strlen(q->stops[i]) : most;
    return (uint32_t)most;
}

/* Hand out the arrays of *a (counting when the arena has no base), whose lengths are set. */
static char *carve(pleat__answer *a, const pleat_request *q, pleat__arena *arena) {
    const uint64_t n_rows = a->wants_prompt ? q->n_prompt : 0;
    (void)pleat__arena_take(arena, 1, sizeof *a); /* itself */
    a->stops = pleat__arena_take(arena, a->n_stops, sizeof *a->stops);
    a->stop_ids = pleat__arena_take(arena, a->n_stop_ids, sizeof *a->stop_ids);
    a->biases = pleat__arena_take(arena, a->n_biases, sizeof *a->biases);
    pleat_logprob *rows = pleat__arena_take(arena, n_rows * (1 + (uint64_t)a->n_top), sizeof *rows);
    a->prompt_logprobs = n_rows > 0 ? rows : NULL;
    a->shape.nodes = pleat__arena_take(arena, a->shape.n_nodes, sizeof *a->shape.nodes);
    a->shape.parts = pleat__arena_take(arena, a->shape.n_parts, sizeof *a->shape.parts);
    pleat__json *json = pleat__arena_take(arena, a->wants_json, sizeof *json);
    a->json = a->wants_json ? json : NULL;
    a->shape.depths = pleat__arena_take(arena, a->shape.n_nodes, 1);
    a->shape.text = pleat__arena_take(arena, a->shape.n_text, 1);
    a->mark = pleat__arena_take(arena, a->n_mark, 1);
    a->held = pleat__arena_take(arena, a->held_cap, 1);
    return pleat__arena_take(arena, stop_bytes(q), 1);
}

static void begin_json(pleat__answer *a) {
    pleat__json_begin(a->json, a->shape.n_nodes > 0 ? &a->shape : NULL);
    a->in_json = true;
}

/* Copy what the request points at into the arrays; `text` takes the stop strings. */
static void copy_terms(pleat__answer *a, const pleat_request *q, char *text) {
    for (uint32_t i = 0; i < q->n_stops; i++) {
        const uint32_t n = (uint32_t)strlen(q->stops[i]);
        memcpy(text, q->stops[i], n);
        a->stops[i] = (pleat__stop){.text = text, .n_bytes = n};
        text += n;
    }
    if (q->n_stop_ids) memcpy(a->stop_ids, q->stop_ids, q->n_stop_ids * sizeof *a->stop_ids);
    if (q->n_biases) memcpy(a->biases, q->biases, q->n_biases * sizeof *a->biases);
    if (q->shape) pleat__shape_copy(&a->shape, q->shape);
    if (a->n_mark) memcpy(a->mark, q->json_mark, a->n_mark);
    if (a->json && !a->n_mark) begin_json(a);
    for (uint32_t i = 0; a->prompt_logprobs && i <= a->n_top; i++)
        a->prompt_logprobs[i] = (pleat_logprob){.token = i == 0 ? q->prompt[0] : -1};
}

pleat_status pleat__answer_create(const pleat_request *q, const pleat_model *model, uint32_t max_token_bytes,
                                  const pleat_allocator *al, pleat__answer **out) {
    *out = NULL;
    if (!wants_anything(q)) return PLEAT_OK;
    const bool has_text = q->wants_text || q->n_stops > 0;
    pleat__answer terms = {.wants_text = q->wants_text != 0,
                           .wants_logprobs = q->wants_logprobs != 0,
                           .wants_prompt = q->wants_prompt_logprobs != 0,
                           .wants_json = q->wants_json != 0,
                           .n_mark = q->json_mark ? (uint32_t)strlen(q->json_mark) : 0,
                           .n_top = q->n_top,
                           .n_prompt = q->n_prompt,
                           .n_stops = q->n_stops,
                           .n_stop_ids = q->n_stop_ids,
                           .n_biases = q->n_biases,
                           .frequency = q->frequency_penalty,
                           .presence = q->presence_penalty,
                           .repetition = q->repetition_penalty,
                           .model = model};
    if (q->shape) terms.shape = pleat__shape_lengths(q->shape);
    if (has_text) terms.held_cap = longest_stop(q) + (uint32_t)PLEAT_DETOKENIZER_CAP(max_token_bytes) + 3;
    PLEAT_TRY(pleat_detokenizer_init(&terms.detokenizer, model,
                                     (q->text_goes_on ? PLEAT_DETOKENIZE_MIDDLE : 0) |
                                         (q->text_has_special ? PLEAT_DETOKENIZE_SPECIAL : 0)));
    pleat__arena arena = {0};
    (void)carve(&terms, q, &arena);
    terms.block_bytes = arena.used_bytes;
    pleat__answer *a = arena.overflow ? NULL : pleat__alloc_zero(al, 1, terms.block_bytes);
    if (!a) return PLEAT_E_MEMORY;
    arena = (pleat__arena){.base = (void *)a, .cap_bytes = terms.block_bytes};
    *a = terms;
    copy_terms(a, q, carve(a, q, &arena));
    *out = a;
    return PLEAT_OK;
}

void pleat__answer_destroy(const pleat_allocator *al, uint32_t n_vocab, pleat__answer *a) {
    if (!a) return;
    pleat__free(al, a->counts, n_vocab, sizeof *a->counts);
    pleat__free(al, a, 1, a->block_bytes);
}

/* ---- what moves the choice ------------------------------------------------------------------------------------------- */

static bool counts_tokens(const pleat__answer *a) {
    return a->frequency != 0 || a->presence != 0 || a->repetition != 1;
}

pleat_status pleat__answer_begin(pleat__answer *a, const pleat_request_stats *stats, const pleat_token *tokens,
                                 const pleat_allocator *al, uint32_t n_vocab) {
    if (a->counts || !counts_tokens(a)) return PLEAT_OK;
    a->counts = pleat__alloc_zero(al, n_vocab, sizeof *a->counts);
    if (!a->counts) return PLEAT_E_MEMORY;
    for (uint32_t i = 0; i < stats->n_prompt; i++) a->counts[tokens[i]] |= IN_PROMPT;
    return PLEAT_OK;
}

bool pleat__answer_moves(const pleat__answer *a) { return a->n_biases > 0 || counts_tokens(a); }

bool pleat__answer_wants_logits(const pleat__answer *a) {
    return pleat__answer_moves(a) || a->wants_logprobs || a->wants_json;
}

void pleat__answer_move(const pleat__answer *a, const float *logits, float *moved, uint32_t n_vocab) {
    memcpy(moved, logits, n_vocab * sizeof *moved);
    for (uint32_t i = 0; i < a->n_biases; i++) moved[a->biases[i].token] += a->biases[i].bias;
    for (uint32_t i = 0; a->counts && i < n_vocab; i++) {
        if (a->counts[i] == 0) continue;
        const uint32_t n = a->counts[i] & ~IN_PROMPT;
        moved[i] = moved[i] > 0 ? moved[i] / a->repetition : moved[i] * a->repetition;
        if (n > 0) moved[i] -= a->frequency * (float)n + a->presence;
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------ */

bool pleat__answer_fits(const pleat__answer *a, pleat_token token) {
    pleat__json next;
    if (!a->in_json) return true;
    pleat__json_copy(&next, a->json);
    return pleat__json_tokens_take(a->json_tokens, &next, token);
}

void pleat__answer_mask(const pleat__answer *a, float *logits) {
    pleat__json_tokens_mask(a->json_tokens, a->json, logits);
}

bool pleat__answer_is_whole(const pleat__answer *a) { return a->in_json && pleat__json_is_whole(a->json); }

/* Fewer bytes of the mark than the text ends with: the most of them that it ends with too. */
static uint32_t shorter_mark(const pleat__answer *a) {
    uint32_t n = a->n_marked - 1;
    while (n > 0 && memcmp(a->mark, a->mark + a->n_marked - n, n) != 0) n--;
    return n;
}

/* Look for the mark's end in n more bytes of text: where it is, or n + 1. */
static size_t find_mark(pleat__answer *a, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        while (a->n_marked > 0 && a->mark[a->n_marked] != text[i]) a->n_marked = shorter_mark(a);
        a->n_marked += a->mark[a->n_marked] == text[i];
        if (a->n_marked < a->n_mark) continue;
        a->n_marked = 0;
        return i + 1;
    }
    return n + 1;
}

/* The token joins the object, or text in which the mark may stand. */
static void take_json(pleat__answer *a, pleat_token token) {
    size_t n = 0;
    if (a->in_json) {
        (void)pleat__json_tokens_take(a->json_tokens, a->json, token); /* it fits */
    } else {
        const char *text = pleat_model_token_text(a->model, token, &n);
        const size_t at = text ? find_mark(a, text, n) : n + 1;
        if (at > n) return;
        begin_json(a);
        a->in_json = pleat__json_take(a->json, text + at, n - at);
    }
    if (a->n_mark > 0 && pleat__answer_is_whole(a)) a->in_json = false;
}

/* ---- probabilities --------------------------------------------------------------------------------------------------- */

void pleat__answer_see_prompt(pleat__answer *a, const pleat_token *prompt, uint32_t n_prompt, uint32_t first,
                              uint32_t n_rows, const float *logits, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n_rows && first + i + 1 < n_prompt; i++) {
        const uint32_t at = first + i + 1; /* logits are finite: the engine has looked */
        (void)pleat_logprobs(logits + (size_t)i * n_vocab, n_vocab, prompt[at], a->n_top,
                             a->prompt_logprobs + (size_t)at * (1 + (size_t)a->n_top));
    }
}

void pleat__answer_see(pleat__answer *a, pleat_token token, const float *logits, uint32_t n_vocab) {
    a->has_logprobs = a->wants_logprobs && pleat_logprobs(logits, n_vocab, token, a->n_top, a->logprobs) == PLEAT_OK;
}

/* ---- text ------------------------------------------------------------------------------------------------------------ */

bool pleat__answer_has_stop_id(const pleat__answer *a, pleat_token token) {
    for (uint32_t i = 0; i < a->n_stop_ids; i++)
        if (a->stop_ids[i] == token) return true;
    return false;
}

/* Forget what an event has told. */
static void drop_told(pleat__answer *a) {
    a->n_held -= a->n_told;
    if (a->n_held > 0 && a->n_told > 0) memmove(a->held, a->held + a->n_told, a->n_held);
    a->n_told = a->n_out = 0;
}

static bool stands_at(const pleat__answer *a, const pleat__stop *stop, uint32_t at) {
    return stop->n_bytes <= a->n_held - at && memcmp(a->held + at, stop->text, stop->n_bytes) == 0;
}

/* Where the first stop string begins; n_held if none is there. */
static uint32_t find_stop(const pleat__answer *a) {
    for (uint32_t at = 0; at < a->n_held; at++)
        for (uint32_t i = 0; i < a->n_stops; i++)
            if (stands_at(a, &a->stops[i], at)) return at;
    return a->n_held;
}

/* Where the longest end begins with which a stop string begins; n_held if there is none. */
static uint32_t find_beginning(const pleat__answer *a) {
    for (uint32_t at = 0; at < a->n_held; at++)
        for (uint32_t i = 0; i < a->n_stops; i++)
            if (a->stops[i].n_bytes > a->n_held - at && memcmp(a->held + at, a->stops[i].text, a->n_held - at) == 0)
                return at;
    return a->n_held;
}

/* After text was added: what goes out.  True: up to a stop string. */
static bool settle(pleat__answer *a) {
    const uint32_t at = find_stop(a);
    const bool has_stopped = at < a->n_held;
    if (has_stopped) a->n_held = at;
    a->n_out = has_stopped ? at : find_beginning(a);
    return has_stopped;
}

bool pleat__answer_take(pleat__answer *a, pleat_token token) {
    size_t n = 0;
    if (a->counts) a->counts[token]++;
    if (a->wants_json) take_json(a, token);
    if (a->held_cap == 0) return false;
    drop_told(a);
    if (pleat_detokenizer_put(&a->detokenizer, token, a->held + a->n_held, a->held_cap - a->n_held, &n) != PLEAT_OK)
        n = 0; /* cannot be: held_cap has room */
    a->n_held += (uint32_t)n;
    return settle(a);
}

void pleat__answer_close(pleat__answer *a) {
    size_t n = 0;
    if (a->held_cap == 0) return;
    drop_told(a);
    if (pleat_detokenizer_end(&a->detokenizer, a->held + a->n_held, a->held_cap - a->n_held, &n) != PLEAT_OK) n = 0;
    a->n_held += (uint32_t)n;
    (void)settle(a);
    a->n_out = a->n_held;
}

void pleat__answer_tell(pleat__answer *a, pleat_serving_event *event) {
    event->n_top = a->n_top;
    if (a->wants_text) {
        event->text = a->held + a->n_told;
        event->n_text = a->n_out;
    }
    a->n_told += a->n_out;
    a->n_out = 0;
    if (a->has_logprobs) {
        event->logprobs = a->logprobs;
        event->n_logprobs = 1 + a->n_top;
    }
    if (event->chosen >= 0 && a->prompt_logprobs && !a->has_told_prompt) {
        event->prompt_logprobs = a->prompt_logprobs;
        event->n_prompt_rows = a->n_prompt;
        a->has_told_prompt = true;
    }
    a->has_logprobs = false;
}
