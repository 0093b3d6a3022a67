/* SPDX-License-Identifier: MIT
 *
 * prompt.c: what clients send as tokens: text, and conversations through the model's template.
 *
 * A message is what its author says and nothing else.  So what spells out a special token of the model, as <|im_end|>, is
 * refused, since in the template's text it would end the turn: chat.h says so.  --special lets it through.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/utf8.h"
#include "job.h"
#include "reply.h"

/* ---- text ------------------------------------------------------------------------------------------------------------- */

int job_tokens(const server *s, const char *text, size_t n_bytes, uint32_t flags, pleat_token **ids, uint32_t *n,
               refusal *why) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    uint32_t cap = (uint32_t)(n_bytes / 2 + 16);
    *ids = cli_alloc(cap, sizeof **ids);
    *n = 0;
    pleat_status status = pleat_model_tokenize(s->l->model, text, n_bytes, flags, *ids, cap, n, &err);
    if (status == PLEAT_E_LIMIT && *n > cap) {
        free(*ids);
        cap = *n;
        *ids = cli_alloc(cap, sizeof **ids);
        status = pleat_model_tokenize(s->l->model, text, n_bytes, flags, *ids, cap, n, &err);
    }
    if (status == PLEAT_OK) return 0;
    free(*ids);
    *ids = NULL;
    return params_refuse(why, status == PLEAT_E_MEMORY ? 503 : 400, "", "the text is refused: %s",
                         err.text[0] ? err.text : pleat_status_str(status));
}

char *job_text(const server *s, const pleat_token *ids, uint32_t n, size_t *n_text) {
    pleat_detokenizer d;
    size_t cap = 64, at = 0, n_piece = 0;
    char *text = cli_alloc(cap, 1);
    (void)pleat_detokenizer_init(&d, s->l->model, PLEAT_DETOKENIZE_SPECIAL);
    for (uint32_t i = 0; i <= n;) {
        const pleat_status status = i < n ? pleat_detokenizer_put(&d, ids[i], text + at, cap - at, &n_piece)
                                          : pleat_detokenizer_end(&d, text + at, cap - at, &n_piece);
        if (status == PLEAT_E_LIMIT) {
            char *longer = cli_alloc(2 * cap + n_piece, 1);
            memcpy(longer, text, at);
            free(text);
            text = longer;
            cap = 2 * cap + n_piece;
            continue;
        }
        if (status == PLEAT_OK) at += n_piece;
        i++;
    }
    *n_text = at;
    return text;
}

int job_check_ids(const server *s, const pleat_token *ids, uint32_t n, refusal *why) {
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] >= s->l->info.n_vocab)
            return params_refuse(why, 400, "prompt", "token %d, which the model has not", ids[i]);
    return 0;
}

/* ---- whose, and how it is kept --------------------------------------------------------------------------------------- */

void job_salt(const char *tenant, const char *cache_salt, char *out, size_t cap) {
    if (!cache_salt) cache_salt = "";
    out[0] = 0;
    if (tenant[0] || cache_salt[0]) snprintf(out, cap, "%s\n%s", tenant, cache_salt);
}

int job_heed_key(const key_terms *t, params *p, refusal *why) {
    if (!t) return 0;
    if (t->has_priority && p->has_priority && p->priority > t->priority)
        return params_refuse(why, 400, "priority", "priority %d is above %d, the highest of this key", p->priority,
                             t->priority);
    if (t->has_priority && !p->has_priority) p->priority = t->priority;
    if (t->time_limit_ms && (p->time_limit_ms == 0 || p->time_limit_ms > t->time_limit_ms))
        p->time_limit_ms = t->time_limit_ms;
    return 0;
}

int job_draft(const server *s, json_t *messages, conversation_draft *out, refusal *why) {
    size_t n;
    char *text = reply_dump(json_incref(messages), &n);
    if (conversations_draft(s->conversations, text, n, out)) return 0;
    return params_refuse(why, 429, "store", "%d bytes of conversations are under way, as many as there may be",
                         CONVERSATIONS_BYTES_MAX);
}

/* Does the name alone stand for the spec, whatever a profile has added behind it? */
static int is_named(const char *kv, const char *name) {
    const size_t n = strlen(name);
    return n > 0 && strncmp(kv, name, n) == 0 && kv[n] == ':';
}

int job_find_spec(const server *s, const char *wanted, uint32_t *at, refusal *why) {
    char text[PLEAT_SPEC_TEXT_CAP], all[160];
    pleat_spec spec;
    *at = 0;
    if (!wanted) return 0;
    const int is_spec =
        pleat_spec_parse(wanted, &spec, NULL) == PLEAT_OK && pleat_spec_print(&spec, text, sizeof text) == PLEAT_OK;
    for (uint32_t i = 0; i < s->n_served; i++) {
        const char *kv = s->served[i].kv;
        *at = i;
        if (strcmp(kv, wanted) == 0 || (is_spec && strcmp(kv, text) == 0)) return 0;
    }
    for (uint32_t i = 0; i < s->n_served; i++) {
        *at = i;
        if (is_named(s->served[i].kv, wanted)) return 0;
    }
    server_list_specs(s, all, sizeof all);
    return params_refuse(why, 400, "kv", "the KV spec '%.60s' is not served here; these are: %s", wanted, all);
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

/* The text of a message's content: a string, null, or a list of parts of type text, one line below the other. */
static json_t *flat_content(json_t *content, size_t i, refusal *why) {
    size_t at, n = 0;
    json_t *part;
    if (!content || json_is_null(content) || json_is_string(content))
        return content ? json_incref(content) : json_null();
    char *text = cli_alloc(1, 1);
    json_array_foreach(content, at, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *value = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(value)) {
            params_refuse(why, 400, "messages", "messages[%zu].content[%zu] is no text, and this model reads no other",
                          i, at);
            free(text);
            return NULL;
        }
        const size_t n_part = json_string_length(value);
        char *longer = cli_alloc(n + n_part + 2, 1);
        memcpy(longer, text, n);
        if (at > 0) longer[n++] = '\n';
        memcpy(longer + n, json_string_value(value), n_part);
        n += n_part;
        free(text);
        text = longer;
    }
    json_t *flat = json_is_array(content) ? json_stringn(text, n) : NULL;
    free(text);
    if (!flat) params_refuse(why, 400, "messages", "messages[%zu].content is neither a string nor a list of parts", i);
    return flat;
}

/* Templates want the arguments of earlier calls as objects, where clients send text.  Text that is none stays. */
static void read_arguments(json_t *message) {
    size_t i;
    json_t *list = json_object_get(message, "tool_calls"), *call;
    if (!list) return;
    list = json_deep_copy(list);
    json_object_set_new(message, "tool_calls", list);
    json_array_foreach(list, i, call) {
        json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
        json_t *object = json_is_string(text) ? json_loadb(json_string_value(text), json_string_length(text),
                                                           JSON_REJECT_DUPLICATES, NULL)
                                              : NULL;
        if (json_is_object(object)) json_object_set(function, "arguments", object);
        json_decref(object);
    }
}

/* Only an assistant's message may say nothing: it may be a call of a tool. */
static int has_content(const json_t *message, size_t i, refusal *why) {
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if ((content && !json_is_null(content)) || (role && strcmp(role, "assistant") == 0)) return 1;
    params_refuse(why, 400, "messages", "messages[%zu] has no content", i);
    return 0;
}

static json_t *flat_messages(json_t *messages, refusal *why) {
    json_t *flat = json_array(), *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        json_t *content =
            has_content(message, i, why) ? flat_content(json_object_get(message, "content"), i, why) : NULL;
        json_t *copy = content ? json_copy(message) : NULL;
        if (!copy) {
            json_decref(flat);
            return NULL;
        }
        json_object_set_new(copy, "content", content);
        read_arguments(copy);
        json_array_append_new(flat, copy);
    }
    return flat;
}

/* Some vocabularies have the token that ends a turn among those that users define, which are not special. */
static int ends_or_is_special(const pleat_model *model, pleat_token id) {
    return pleat_model_token_is_special(model, id) || pleat_model_token_is_end(model, id);
}

/* Does the JSON text, and so any string in it, spell out a special token? */
static int check_special(const server *s, const char *json, size_t n, refusal *why) {
    pleat_token *ids;
    uint32_t n_ids;
    int code = 0;
    if (s->o->special) return 0;
    if (job_tokens(s, json, n, PLEAT_TOKENIZE_SPECIAL, &ids, &n_ids, why) != 0) return -1;
    for (uint32_t i = 0; i < n_ids && code == 0; i++) {
        size_t n_name = 0;
        const char *name = pleat_model_token_text(s->l->model, ids[i], &n_name);
        if (!ends_or_is_special(s->l->model, ids[i]) || n_name == 0 || !memmem(json, n, name, n_name)) continue;
        code = params_refuse(why, 400, "messages",
                             "a message spells out %.*s, a special token of this model; the server's option --special "
                             "lets it through",
                             (int)(n_name < 64 ? n_name : 64), name);
    }
    free(ids);
    return code;
}

/* ---- the template ------------------------------------------------------------------------------------------------------ */

/* What one rendering may take: much less than the library's defaults, since the loop waits for it. */
static pleat_chat_options chat_limits(void) {
    pleat_chat_options opt;
    pleat_chat_options_default(&opt);
    opt.max_steps = 1 << 24;
    opt.max_memory_bytes = 256 << 20;
    return opt;
}

static char *render(const server *s, const char *json, size_t n_json, size_t *n, refusal *why) {
    const pleat_chat_options opt = chat_limits();
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    size_t cap = n_json + 16384;
    char *text = cli_alloc(cap, 1);
    pleat_status status = pleat_model_chat_json(s->l->model, json, n_json, &opt, text, cap, n, &err);
    if (status == PLEAT_E_LIMIT && *n >= cap) {
        free(text);
        cap = *n + 256; /* the next rendering may name another day */
        text = cli_alloc(cap, 1);
        status = pleat_model_chat_json(s->l->model, json, n_json, &opt, text, cap, n, &err);
    }
    if (status == PLEAT_OK) return text;
    free(text);
    params_refuse(why, status == PLEAT_E_MEMORY ? 503 : 400, "messages", "the model's chat template: %s",
                  err.text[0] ? err.text : pleat_status_str(status));
    return NULL;
}

/* With the bos that the model asks for, where its template has not put one in front. */
static int text_tokens(const server *s, const char *text, size_t n_text, pleat_token **ids, uint32_t *n, refusal *why) {
    pleat_model_info info;
    size_t n_bos = 0;
    pleat_model_get_info(s->l->model, &info);
    const char *bos = info.bos >= 0 ? pleat_model_token_text(s->l->model, info.bos, &n_bos) : NULL;
    const int has_bos = bos && n_bos > 0 && n_bos <= n_text && memcmp(text, bos, n_bos) == 0;
    return job_tokens(s, text, n_text, PLEAT_TOKENIZE_SPECIAL | (has_bos ? 0 : PLEAT_TOKENIZE_ADD_BOS), ids, n, why);
}

/* begun behind text [*n], which it takes. */
static char *join(char *text, size_t *n, const char *begun) {
    const size_t n_begun = strlen(begun);
    char *both = cli_alloc(*n + n_begun + 1, 1);
    memcpy(both, text, *n);
    memcpy(both + *n, begun, n_begun);
    *n += n_begun;
    free(text);
    return both;
}

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static char *reversed(const char *text, size_t n) {
    char *back = cli_alloc(n + 1, 1);
    for (size_t i = 0; i < n; i++) back[i] = text[n - 1 - i];
    return back;
}

/* Where the word stands in the text for the last time; n: nowhere.  In time that grows as both do, whatever they say. */
static size_t find_last(const char *text, size_t n, const char *word, size_t n_word) {
    char *text_back = reversed(text, n), *word_back = reversed(word, n_word);
    const char *found = memmem(text_back, n, word_back, n_word);
    const size_t at = found ? n - n_word - (size_t)(found - text_back) : n;
    free(text_back);
    free(word_back);
    return at;
}

/* Cut the text [*n] where the last message's ends, as transformers does: with the blanks behind it that the template has
 * left. */
static int cut_behind_last(const char *text, size_t *n, const json_t *flat, refusal *why) {
    const json_t *content = json_object_get(json_array_get(flat, json_array_size(flat) - 1), "content");
    const char *last = json_string_value(content);
    size_t n_last = last ? json_string_length(content) : 0, n_word;
    while (n_last > 0 && is_space(*last)) last++, n_last--;
    for (n_word = n_last; n_word > 0 && is_space(last[n_word - 1]);) n_word--;
    const size_t at = n_word > 0 ? find_last(text, *n, last, n_word) : *n;
    if (at < *n) {
        *n = at + (*n - at >= n_last && memcmp(text + at, last, n_last) == 0 ? n_last : n_word);
        return 0;
    }
    return params_refuse(why, 400, "continue_final_message",
                         "the template's text has no last message with words to go on from");
}

/* What the template gets.  NULL with *why. */
static char *variables_of(const chat_ask *ask, json_t *flat, refusal *why) {
    json_t *variables = ask->template_args ? json_copy(ask->template_args) : json_object();
    json_object_set(variables, "messages", flat);
    if (ask->tools) json_object_set(variables, "tools", ask->tools);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(!ask->is_unprompted && !ask->goes_on));
    char *json = json_dumps(variables, JSON_COMPACT);
    json_decref(variables);
    if (!json) params_refuse(why, 503, "", "out of memory");
    return json;
}

int job_chat_tokens(const server *s, const chat_ask *ask, pleat_token **ids, uint32_t *n, refusal *why) {
    json_t *flat = flat_messages(ask->messages, why);
    size_t n_text = 0;
    char *json = flat ? variables_of(ask, flat, why) : NULL, *text = NULL;
    int code = json ? check_special(s, json, strlen(json), why) : -1;
    if (code == 0) text = render(s, json, strlen(json), &n_text, why);
    free(json);
    if (text && ask->begun) text = join(text, &n_text, ask->begun);
    code = text && ask->goes_on ? cut_behind_last(text, &n_text, flat, why) : text ? 0 : -1;
    json_decref(flat);
    if (code == 0) code = text_tokens(s, text, n_text, ids, n, why);
    free(text);
    return code;
}

/* ---- turns ------------------------------------------------------------------------------------------------------------- */

/* Tokens of earlier prompts that are made for one request: the loop waits for that. */
#define TURN_TOKENS_MAX (1u << 17)

/* Where a prompt of n tokens is cut for the turn that comes next: before its last token, and up to two more where a chunk of one
 * token would begin or end there.  Such a chunk is read as a generated token is, and no image has one. */
static uint32_t cut_of(uint32_t n, uint32_t chunk_tokens) {
    uint32_t end = n - 1;
    if (end > 0 && end % chunk_tokens == chunk_tokens - 1) end--;
    if (end % chunk_tokens == 1) end--;
    return end;
}

/* Where the prompt of the first n_messages of these was cut, if ids begin as it did; 0: they do not.  *n_made: its tokens. */
static uint32_t turn_end(const server *s, const params *p, size_t n_messages, uint32_t chunk_tokens,
                         const pleat_token *ids, uint32_t n, uint32_t *n_made) {
    pleat_token *own = NULL;
    uint32_t n_own = 0;
    refusal why;
    json_t *first = json_array();
    for (size_t i = 0; i < n_messages; i++) json_array_append(first, json_array_get(p->messages, i));
    const chat_ask ask = {.messages = first, .tools = p->tools, .template_args = p->template_args};
    const int code = job_chat_tokens(s, &ask, &own, &n_own, &why);
    json_decref(first);
    *n_made = n_own;
    const int begins = code == 0 && n_own >= 2 && n_own <= n && memcmp(own, ids, (n_own - 1) * sizeof *ids) == 0;
    free(own);
    return begins ? cut_of(n_own, chunk_tokens) : 0;
}

/* One more, unless it would be a token's chunk. */
static void add_end(uint32_t end, uint32_t *ends, uint32_t *n) {
    if (end > (*n > 0 ? ends[*n - 1] : 0) + 1) ends[(*n)++] = end;
}

uint32_t job_turn_ends(const server *s, const params *p, uint32_t chunk_tokens, const pleat_token *ids, uint32_t n,
                       uint32_t *out) {
    json_t *messages = p->messages;
    uint32_t n_ends = 0, n_turns = 0, n_tokens = 0;
    for (size_t i = 1; i < json_array_size(messages) && n_turns < JOB_TURNS_MAX && n_tokens < TURN_TOKENS_MAX; i++) {
        uint32_t n_made;
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        add_end(turn_end(s, p, i, chunk_tokens, ids, n, &n_made), out, &n_ends);
        n_tokens += n_made;
        n_turns++;
    }
    add_end(cut_of(n, chunk_tokens), out, &n_ends);
    return n_ends;
}
