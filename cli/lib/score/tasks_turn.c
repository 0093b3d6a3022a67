/* SPDX-License-Identifier: MIT
 *
 * tasks_turn.c: a turn of a sample, as tokens; see tasks.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "tasks_internal.h"

/* An open turn may take twice the tokens of its answers, and some more for what stands between them. */
enum { OPEN_SPARE_TOKENS = 16 };

int tasks_has_keys(const place *at, json_t *object, const char *const *keys, uint32_t n_keys, const char *what) {
    const char *key;
    json_t *value;
    uint32_t n_known = n_keys;
    if (!json_is_object(object)) {
        cli_error("%s, line %u: %s is not an object", at->path, at->line, what);
        return 0;
    }
    for (uint32_t i = 0; i < n_keys; i++)
        if (!json_object_get(object, keys[i])) {
            cli_error("%s, line %u: %s has no \"%s\"", at->path, at->line, what, keys[i]);
            return 0;
        }
    while (keys[n_known]) n_known++;
    json_object_foreach(object, key, value) {
        const char *nearest = keys[cli_nearest(key, keys, n_known)];
        if (strcmp(key, nearest) != 0) {
            char hint[HINT_CAP];
            cli_error("%s, line %u: %s has an unknown \"%s\"%s", at->path, at->line, what, key,
                      cli_hint(hint, " known", key, nearest));
            return 0;
        }
    }
    return 1;
}

int tasks_is_text(const place *at, json_t *object, const char *key) {
    if (json_is_string(json_object_get(object, key))) return 1;
    cli_error("%s, line %u: \"%s\" is not a text", at->path, at->line, key);
    return 0;
}

static int to_tokens(const place *at, const loaded *l, const char *text, size_t n_bytes, uint32_t flags,
                     pleat_token **ids, uint32_t *n) {
    char what[160];
    snprintf(what, sizeof what, "%s, line %u", at->path, at->line);
    if (load_tokens(l, what, text, n_bytes, flags, ids, n) != CLI_OK) return 0;
    if (*n == 0) cli_error("%s: an empty text", what);
    return *n > 0;
}

/* Take `text` as the turn's prompt, whose first n_document bytes are the document.  Its tokens are those that the document
 * alone and the prompt begin with: so a prompt's tokens are the same whether its document is read first or not. */
static int take_prompt(const place *at, const loaded *l, const char *text, size_t n_bytes, size_t n_document,
                       uint32_t flags, turn *t) {
    pleat_token *alone = NULL;
    uint32_t n_alone = 0;
    if (!to_tokens(at, l, text, n_bytes, flags, &t->prompt, &t->n_prompt)) return 0;
    if (n_document == 0) return 1;
    const int ok = to_tokens(at, l, text, n_document, flags, &alone, &n_alone);
    while (ok && t->n_document < n_alone && t->n_document + 1 < t->n_prompt &&
           t->prompt[t->n_document] == alone[t->n_document])
        t->n_document++;
    free(alone);
    return ok;
}

/* Bytes of a prompt up to behind its last blank line; 0: it has none. */
static size_t document_of(const char *prompt) {
    const char *end = NULL;
    for (const char *at = prompt; (at = strstr(at, "\n\n")) != NULL; at++) end = at + 2;
    return end ? (size_t)(end - prompt) : 0;
}

int tasks_read_turn(const place *at, const loaded *l, json_t *object, uint32_t index, int is_unseen, turn *t) {
    static const char *const keys[] = {"prompt", "answer", NULL};
    const uint32_t flags = PLEAT_TOKENIZE_SPECIAL | (index == 0 ? PLEAT_TOKENIZE_ADD_BOS : 0);
    if (!tasks_has_keys(at, object, keys, 2, "a turn") || !tasks_is_text(at, object, "prompt") ||
        !tasks_is_text(at, object, "answer"))
        return 0;
    const json_t *prompt = json_object_get(object, "prompt"), *answer = json_object_get(object, "answer");
    const size_t n_document = is_unseen && index == 0 ? document_of(json_string_value(prompt)) : 0;
    return take_prompt(at, l, json_string_value(prompt), json_string_length(prompt), n_document, flags, t) &&
           to_tokens(at, l, json_string_value(answer), json_string_length(answer), 0, &t->answer, &t->n_answer);
}

/* ---- documents ----------------------------------------------------------------------------------- */

/* The answers' texts, and how many tokens may hold them. */
static int read_answers(const place *at, const loaded *l, json_t *list, turn *t) {
    if (!json_is_array(list) || json_array_size(list) == 0) {
        cli_error("%s, line %u: \"answers\" is not a list of texts", at->path, at->line);
        return 0;
    }
    t->n_texts = (uint32_t)json_array_size(list);
    t->texts = cli_alloc(t->n_texts, sizeof *t->texts);
    t->n_answer = OPEN_SPARE_TOKENS;
    for (uint32_t i = 0; i < t->n_texts; i++) {
        const json_t *text = json_array_get(list, i);
        pleat_token *ids = NULL;
        uint32_t n = 0;
        if (!json_is_string(text) || json_string_length(text) == 0) {
            cli_error("%s, line %u: \"answers\" is not a list of texts", at->path, at->line);
            return 0;
        }
        t->texts[i] = cli_copy(json_string_value(text), json_string_length(text));
        if (!to_tokens(at, l, t->texts[i], json_string_length(text), 0, &ids, &n)) return 0;
        free(ids);
        t->n_answer += 2 * n;
    }
    return 1;
}

/* Document and question as the model is to be asked, in the model's chat form if it has one; the caller frees *text. */
static int write_prompt(const place *at, const loaded *l, const char *document, const char *question, const char *begin,
                        char **text) {
    const size_t n = strlen(document) + strlen(question) + 3;
    char *asked = cli_alloc(n, 1), *form = NULL;
    size_t n_form = 0;
    snprintf(asked, n, "%s\n\n%s", document, question);
    int is_own = 0; /* a template that is not supported is no reason to ask otherwise */
    const int has_form = pleat_model_chat_check(l->model, &is_own, NULL) == PLEAT_OK || is_own;
    char what[160];
    snprintf(what, sizeof what, "%s, line %u", at->path, at->line);
    const int ok = !has_form || load_form(l, what, &(pleat_chat_message){"user", asked}, 1, &form, &n_form) == CLI_OK;
    if (ok) {
        const char *front = form ? form : asked, *gap = form ? "" : "\n";
        *text = cli_alloc(strlen(front) + strlen(gap) + strlen(begin) + 1, 1);
        sprintf(*text, "%s%s%s", front, gap, begin);
    }
    free(form);
    free(asked);
    return ok;
}

/* Bytes in front of the question where it stands for the last time. */
static size_t bytes_before(const char *text, const char *question) {
    const char *last = text;
    for (const char *at = text; (at = strstr(at, question)) != NULL; at++) last = at;
    return (size_t)(last - text);
}

int tasks_read_document(const place *at, const loaded *l, json_t *object, int is_unseen, turn *t) {
    static const char *const keys[] = {"id", "task", "document", "question", "answers", "begin", NULL};
    const uint32_t flags = PLEAT_TOKENIZE_SPECIAL | PLEAT_TOKENIZE_ADD_BOS;
    const json_t *begin = json_object_get(object, "begin");
    if (!tasks_has_keys(at, object, keys, 5, "the line") || !tasks_is_text(at, object, "document") ||
        !tasks_is_text(at, object, "question") || (begin && !tasks_is_text(at, object, "begin")))
        return 0;
    const char *question = json_string_value(json_object_get(object, "question"));
    char *text = NULL;
    int ok = *question != 0;
    if (!ok) cli_error("%s, line %u: an empty text", at->path, at->line);
    ok = ok && read_answers(at, l, json_object_get(object, "answers"), t) &&
         write_prompt(at, l, json_string_value(json_object_get(object, "document")), question,
                      begin ? json_string_value(begin) : "", &text) &&
         take_prompt(at, l, text, strlen(text), is_unseen ? bytes_before(text, question) : 0, flags, t);
    free(text);
    return ok;
}

void tasks_release_turn(turn *t) {
    for (uint32_t i = 0; t->texts && i < t->n_texts; i++) free(t->texts[i]);
    free(t->texts);
    free(t->prompt);
    free(t->answer);
}
