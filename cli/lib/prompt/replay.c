/* SPDX-License-Identifier: MIT
 *
 * replay.c: see replay.h.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"

/* Tokens before a part that the request for it names (KVzip, Kim et al. 2025). */
#define NAMED_TOKENS 8u

/* Least tokens of the prompt in a step: fewer would mostly read requests. */
#define LEAST_TOKENS 16u

static const char *const requests[2] = {
    "\n\nRepeat the previous context exactly.",
    "\n\nRepeat the part of the previous context exactly, starting with",
};

/* What follows a user's text in the model's chat form. */
static int prepare_turn(const loaded *l, replay *r) {
    static const char mark[] = "########";
    int is_own = 0;
    if (pleat_model_chat_check(l->model, &is_own, NULL) != PLEAT_OK)
        return load_tokens(l, "a new line", "\n", 1, 0, &r->turn, &r->n_turn);
    char *form = NULL;
    size_t n_form = 0;
    if (load_form(l, "kvzip", &(pleat_chat_message){"user", mark}, 1, &form, &n_form) != CLI_OK) return CLI_FAILED;
    const char *at = strstr(form, mark);
    const char *end = at ? at + strlen(mark) : "\n";
    const int code = load_tokens(l, "the chat form", end, strlen(end), PLEAT_TOKENIZE_SPECIAL, &r->turn, &r->n_turn);
    free(form);
    return code;
}

int replay_prepare(const loaded *l, const pleat_spec *spec, uint32_t chunk_tokens, replay *r) {
    *r = (replay){0};
    if (spec->policy != PLEAT_POLICY_KVZIP) return CLI_OK;
    int code = prepare_turn(l, r);
    for (uint32_t i = 0; i < 2 && code == CLI_OK; i++)
        code = load_tokens(l, "a request", requests[i], strlen(requests[i]), 0, &r->ask[i], &r->n_ask[i]);
    if (code != CLI_OK) return code;
    r->least = r->n_ask[1] + NAMED_TOKENS + r->n_turn + LEAST_TOKENS;
    if (chunk_tokens < r->least) {
        cli_error("kvzip reads prompts again in steps of --batch-size tokens: allowed is --batch-size %u and more",
                  r->least);
        return CLI_FAILED;
    }
    r->n_ctx = l->info.n_ctx;
    r->cap = chunk_tokens;
    r->step = cli_alloc(r->cap, sizeof *r->step);
    return CLI_OK;
}

void replay_release(replay *r) {
    free(r->ask[0]);
    free(r->ask[1]);
    free(r->turn);
    free(r->step);
    *r = (replay){0};
}

uint32_t replay_max_tokens(const replay *r, const loaded *l, uint32_t n) {
    const uint32_t most = n + r->cap;
    return most < l->info.n_ctx ? most : n > l->info.n_ctx ? n : l->info.n_ctx;
}

pleat_status replay_check(const replay *r, uint32_t n, pleat_error *err) {
    const uint32_t room = n < r->n_ctx ? r->n_ctx - n : 0;
    if (r->cap == 0 || room >= r->least) return PLEAT_OK;
    snprintf(err->text, sizeof err->text,
             "kvzip reads it again in steps of %u tokens and more, and its %u leave %u of the context of %u", r->least,
             n, room, r->n_ctx);
    return PLEAT_E_LIMIT;
}

static uint32_t append(const replay *r, uint32_t at, const pleat_token *tokens, uint32_t n) {
    memcpy(r->step + at, tokens, n * sizeof *tokens);
    return at + n;
}

pleat_status replay_prompt(const replay *r, pleat_engine *engine, pleat_seq seq, const pleat_token *tokens, uint32_t n,
                           void (*told)(uint64_t n_done), pleat_error *err) {
    pleat_status status = replay_check(r, n, err);
    const uint32_t cap = n + r->cap <= r->n_ctx ? r->cap : r->n_ctx - n;
    for (uint32_t done = 0, now; r->cap > 0 && done < n && status == PLEAT_OK && !interrupt_came(); done += now) {
        const int is_first = done == 0;
        const uint32_t n_named = done < NAMED_TOKENS ? done : NAMED_TOKENS;
        uint32_t at = append(r, 0, r->ask[!is_first], r->n_ask[!is_first]);
        at = append(r, at, tokens + done - n_named, n_named);
        at = append(r, at, r->turn, r->n_turn);
        now = n - done < cap - at ? n - done : cap - at;
        at = append(r, at, tokens + done, now);
        const uint32_t flags = PLEAT_ITEM_REPLAY | (done + now < n ? PLEAT_ITEM_MORE : 0);
        status = pleat_engine_step(engine, &(pleat_engine_item){seq, r->step, at, 0, NULL, flags}, 1, err);
        if (told) told(done + now);
    }
    return status;
}
