/* SPDX-License-Identifier: MIT
 *
 * calls.c: see calls.h.
 */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

enum { NAME_MAX_BYTES = 256 }; /* of a name before [ARGS] */

static const struct form {
    const char *marker, *end; /* end NULL: another marker or the text's end */
} forms[] = {
    [CALLS_NONE] = {"", NULL},
    [CALLS_TAGS] = {"<tool_call>", "</tool_call>"},
    [CALLS_PIPES] = {"<|tool_call|>", "<|/tool_call|>"},
    [CALLS_MISTRAL] = {"[TOOL_CALLS]", NULL},
    [CALLS_ARGS] = {"[TOOL_CALLS]", NULL},
    [CALLS_LLAMA] = {"", ";"},
};

typedef enum state { TEXT, BODY, TAIL } state;

typedef struct call {
    char *name, *arguments;
} call;

struct calls {
    calls_form form;
    const json_t *tools;
    char *text; /* [n] what has not been handed out begins at `from`, [0, from) has */
    size_t n, cap, from;
    int has_ended;
    state state;
    size_t at;       /* TEXT: a marker begins here or further on.  BODY, TAIL: the next byte to look at */
    int eats_blanks; /* TEXT: those at `from` stand behind a call */
    size_t body;     /* BODY, TAIL: where the call's text begins, behind the marker */
    size_t json;     /* where its JSON begins */
    int is_args;     /* a name stands before the JSON, which are its arguments */
    size_t n_name;   /* bytes of that name */
    uint32_t depth;  /* open { and [ */
    int in_string, is_escaped;
    call found[CALLS_MAX]; /* [n_found] of which n_told have been handed out */
    uint32_t n_found, n_told;
};

static const char *find(const char *text, size_t n, const char *word) {
    const size_t n_word = strlen(word);
    for (size_t at = 0; at + n_word <= n; at++)
        if (text[at] == word[0] && memcmp(text + at, word, n_word) == 0) return text + at;
    return NULL;
}

calls_form calls_form_of(const char *text, size_t n) {
    if (!text) return CALLS_NONE;
    if (find(text, n, "[TOOL_CALLS]")) return find(text, n, "[ARGS]") ? CALLS_ARGS : CALLS_MISTRAL;
    if (find(text, n, "<tool_call>")) return CALLS_TAGS;
    if (find(text, n, "<|tool_call|>")) return CALLS_PIPES;
    if (find(text, n, "<|python_tag|>") || (find(text, n, "<|eot_id|>") && find(text, n, "\"parameters\"")))
        return CALLS_LLAMA;
    return CALLS_NONE;
}

const char *calls_marker(calls_form form) { return forms[form].marker; }

const char *calls_arguments(calls_form form) { return form == CALLS_LLAMA ? "parameters" : "arguments"; }

void calls_frame(calls_form form, const char *name, char **before, char **behind) {
    static const struct {
        const char *begin, *middle, *end;
    } frames[] = {
        [CALLS_NONE] = {"", "", ""},
        [CALLS_TAGS] = {"<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>"},
        [CALLS_PIPES] = {"<|tool_call|>[{\"name\": ", ", \"arguments\": ", "}]"},
        [CALLS_MISTRAL] = {"[TOOL_CALLS][{\"name\": ", ", \"arguments\": ", "}]"},
        [CALLS_ARGS] = {"[TOOL_CALLS]", "[ARGS]", ""},
        [CALLS_LLAMA] = {"{\"name\": ", ", \"parameters\": ", "}"},
    };
    static const char *const whole[][2] = {
        [CALLS_NONE] = {"", ""},
        [CALLS_TAGS] = {"<tool_call>\n", "\n</tool_call>"},
        [CALLS_PIPES] = {"<|tool_call|>[", "]"},
        [CALLS_MISTRAL] = {"[TOOL_CALLS][", "]"},
        [CALLS_ARGS] = {"[TOOL_CALLS][", "]"},
        [CALLS_LLAMA] = {"", ""},
    };
    if (!name) {
        *before = cli_copy(whole[form][0], strlen(whole[form][0]));
        *behind = cli_copy(whole[form][1], strlen(whole[form][1]));
        return;
    }
    json_t *string = json_string(name);
    char *quoted = form == CALLS_ARGS ? cli_copy(name, strlen(name)) : json_dumps(string, JSON_ENCODE_ANY);
    const size_t n = strlen(frames[form].begin) + strlen(quoted) + strlen(frames[form].middle) + 1;
    *before = cli_alloc(n, 1);
    snprintf(*before, n, "%s%s%s", frames[form].begin, quoted, frames[form].middle);
    *behind = cli_copy(frames[form].end, strlen(frames[form].end));
    free(quoted);
    json_decref(string);
}

calls *calls_create(calls_form form, const json_t *tools) {
    calls *c = cli_alloc(1, sizeof *c);
    *c = (calls){.form = form, .tools = tools, .state = form == CALLS_LLAMA ? BODY : TEXT, .cap = 256};
    c->text = cli_alloc(c->cap, 1);
    return c;
}

static void forget_found(calls *c) {
    for (uint32_t i = 0; i < c->n_found; i++) {
        free(c->found[i].name);
        free(c->found[i].arguments);
    }
    c->n_found = c->n_told = 0;
}

void calls_destroy(calls **c) {
    if (!*c) return;
    forget_found(*c);
    free((*c)->text);
    free(*c);
    *c = NULL;
}

/* ---- JSON that jansson has accepted, or is about to be asked for -------------------------------------------------------- */

static int is_blank(char ch) { return ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t'; }

static size_t skip_blanks(const char *text, size_t at, size_t n) {
    while (at < n && is_blank(text[at])) at++;
    return at;
}

/* Behind the value at `at` of valid JSON. */
static size_t skip_value(const char *text, size_t at, size_t n) {
    uint32_t depth = 0;
    int in_string = 0;
    for (; at < n; at++) {
        const char ch = text[at];
        if (in_string) {
            if (ch == '\\') at++;
            if (ch == '"' && depth == 0) return at + 1;
            in_string = ch != '"';
        } else if (ch == '"') {
            in_string = 1;
        } else if (ch == '{' || ch == '[') {
            depth++;
        } else if (ch == '}' || ch == ']') {
            if (depth == 0) return at; /* of what is around it */
            if (--depth == 0) return at + 1;
        } else if (depth == 0 && (ch == ',' || is_blank(ch))) {
            return at;
        }
    }
    return n;
}

/* The value of a member of a valid object: where it begins, and *n_value; NULL: there is none. */
static const char *member(const char *object, size_t n, const char *key, size_t *n_value) {
    size_t at = skip_blanks(object, 1, n);
    while (at < n && object[at] == '"') {
        const size_t key_end = skip_value(object, at, n);
        const int is_it = key_end - at == strlen(key) + 2 && memcmp(object + at + 1, key, strlen(key)) == 0;
        const size_t value = skip_blanks(object, skip_blanks(object, key_end, n) + 1, n);
        const size_t end = skip_value(object, value, n);
        *n_value = end - value;
        if (is_it) return object + value;
        at = skip_blanks(object, skip_blanks(object, end, n) + 1, n);
    }
    return NULL;
}

static json_t *load(const char *text, size_t n) {
    return json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
}

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

static int has_tool(const calls *c, const char *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(c->tools, i, tool) {
        const char *its = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (its && strcmp(its, name) == 0) return 1;
    }
    return 0;
}

/* name [n_name] and arguments [n] are copied.  0: it is no call of a tool that is here. */
static int add_call(calls *c, const char *name, size_t n_name, const char *arguments, size_t n) {
    if (c->n_found == CALLS_MAX) return 0;
    call *one = &c->found[c->n_found++]; /* what is no call is forgotten with the others */
    one->name = cli_copy(name, n_name);
    one->arguments = cli_copy(arguments, n);
    return strlen(one->name) == n_name && has_tool(c, one->name);
}

static int is_object(const char *text, size_t n) {
    json_t *value = load(text, n);
    const int is = json_is_object(value);
    json_decref(value);
    return is;
}

/* A call from the text of an object, which jansson has read as `object`. */
static int read_call(calls *c, const char *text, size_t n, const json_t *object) {
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *key = json_object_get(object, "arguments") ? "arguments" : "parameters";
    const json_t *value = json_object_get(object, key);
    const size_t n_name = json_string_length(json_object_get(object, "name"));
    if (!name) return 0;
    if (!value) return c->form != CALLS_LLAMA && add_call(c, name, n_name, "{}", 2);
    if (json_is_string(value)) /* JSON within JSON */
        return is_object(json_string_value(value), json_string_length(value)) &&
               add_call(c, name, n_name, json_string_value(value), json_string_length(value));
    size_t n_arguments = 0;
    const char *arguments = member(text, n, key, &n_arguments);
    return json_is_object(value) && arguments && add_call(c, name, n_name, arguments, n_arguments);
}

/* The calls of a list's text. */
static int read_list(calls *c, const char *text, size_t n, const json_t *list) {
    size_t at = 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        at = skip_blanks(text, at, n);
        const size_t end = skip_value(text, at, n);
        if (!read_call(c, text + at, end - at, json_array_get(list, i))) return 0;
        at = skip_blanks(text, end, n) + 1;
    }
    return json_array_size(list) > 0;
}

/* The calls of the JSON that ends before c->at.  0: it has other things in it. */
static int read_body(calls *c) {
    const char *text = c->text + c->json;
    const size_t n = c->at - c->json;
    json_t *value = load(text, n);
    int is_call;
    if (c->is_args)
        is_call = json_is_object(value) && add_call(c, c->text + c->body, c->n_name, text, n);
    else if (json_is_array(value))
        is_call = c->form != CALLS_LLAMA && read_list(c, text, n, value);
    else
        is_call = json_is_object(value) && read_call(c, text, n, value);
    json_decref(value);
    return is_call;
}

/* ---- the machine --------------------------------------------------------------------------------------------------------- */

typedef enum verdict { WAITS, MOVED, NO_CALL } verdict;

static void begin_body(calls *c, size_t at) {
    c->state = BODY;
    c->at = c->body = c->json = at;
    c->n_name = c->depth = 0;
    c->is_args = c->in_string = c->is_escaped = 0;
}

/* Text up to `to` is handed out; 0 where that is none. */
static int tell_text(calls *c, size_t to, calls_piece *out) {
    if (to <= c->from) return 0;
    *out = (calls_piece){.text = c->text + c->from, .n_text = to - c->from};
    c->from = to;
    return 1;
}

/* How many bytes of text [at, n) are a beginning of the word?  All of the word: its length. */
static size_t begins(const calls *c, size_t at, const char *word) {
    const size_t n_word = strlen(word), n_rest = c->n - at, n = n_rest < n_word ? n_rest : n_word;
    return memcmp(c->text + at, word, n) == 0 ? n : 0;
}

/* Up to the next marker, or to where one may begin; blanks before it wait for what follows. */
static int read_text(calls *c, calls_piece *out) {
    const char *marker = forms[c->form].marker;
    const size_t n_marker = strlen(marker);
    if (c->eats_blanks) c->from = skip_blanks(c->text, c->from, c->n);
    if (c->from < c->n) c->eats_blanks = 0;
    size_t at = c->at > c->from ? c->at : c->from;
    if (n_marker == 0) at = c->n;
    while (at < c->n && begins(c, at, marker) == 0) {
        const char *next = memchr(c->text + at + 1, marker[0], c->n - at - 1);
        at = next ? (size_t)(next - c->text) : c->n;
    }
    c->at = at;
    size_t sure = at;
    if (c->has_ended && n_marker > c->n - at) return tell_text(c, c->n, out);
    while (n_marker > 0 && sure > c->from && is_blank(c->text[sure - 1])) sure--;
    if (tell_text(c, sure, out)) return 1;
    if (n_marker > 0 && c->n - at >= n_marker) begin_body(c, at + n_marker);
    return 0;
}

/* On to the end of the JSON.  Outside of strings it has these bytes alone. */
static verdict read_json(calls *c) {
    for (; c->at < c->n; c->at++) {
        const char ch = c->text[c->at];
        if (c->in_string) {
            c->in_string = c->is_escaped || ch != '"';
            c->is_escaped = !c->is_escaped && ch == '\\';
            continue;
        }
        if (!ch || !strchr("{}[]\",: \n\r\t+-.0123456789eEtrufalsn", ch)) return NO_CALL;
        if (ch == '"') c->in_string = 1;
        if (ch == '{' || ch == '[') c->depth++;
        if (ch != '}' && ch != ']') continue;
        if (--c->depth > 0) continue;
        c->at++;
        if (!read_body(c)) return NO_CALL;
        c->state = TAIL;
        return MOVED;
    }
    return c->has_ended ? NO_CALL : WAITS;
}

/* A name and [ARGS] before the JSON.  Newer files have an id between them. */
static verdict read_name(calls *c) {
    const char *name = c->text + c->body;
    const size_t n_rest = c->n - c->body, n_most = n_rest < NAME_MAX_BYTES ? n_rest : NAME_MAX_BYTES;
    const char *brace = memchr(name, '{', n_most); /* of the JSON, before which [ARGS] has to stand */
    const char *end = find(name, brace ? (size_t)(brace - name) : n_most, "[ARGS]");
    if (!end) return n_most < NAME_MAX_BYTES && !c->has_ended && !brace ? WAITS : NO_CALL;
    const char *bracket = memchr(name, '[', n_most);
    c->n_name = (size_t)(bracket - name);
    c->is_args = 1;
    c->at = (size_t)(end - c->text) + 6;
    return MOVED;
}

/* The first byte of the JSON, and on. */
static verdict read_begin(calls *c) {
    c->at = skip_blanks(c->text, c->at, c->n);
    if (c->at == c->n) return c->has_ended ? NO_CALL : WAITS;
    c->json = c->at;
    if (c->text[c->at] == '{' || (c->text[c->at] == '[' && !c->is_args)) return read_json(c);
    return (c->form == CALLS_MISTRAL || c->form == CALLS_ARGS) && !c->is_args && c->at == c->body ? read_name(c)
                                                                                                  : NO_CALL;
}

/* Behind the JSON: the end marker, another marker, or nothing. */
static verdict read_tail(calls *c) {
    const size_t at = skip_blanks(c->text, c->at, c->n);
    const char *end = forms[c->form].end ? forms[c->form].end : forms[c->form].marker;
    const size_t n = at < c->n ? begins(c, at, end) : 0;
    if (at == c->n || (n == c->n - at && n < strlen(end))) {
        c->at = at;
        if (!c->has_ended) return WAITS;
        if (at < c->n) return NO_CALL;
        c->from = c->at = c->n;
        c->state = TEXT;
        return MOVED;
    }
    if (n < strlen(end)) return NO_CALL;
    c->from = c->at = forms[c->form].end ? at + n : at;
    c->state = TEXT;
    c->eats_blanks = 1;
    if (c->form == CALLS_LLAMA) begin_body(c, c->at);
    return MOVED;
}

/* The marker is text like any other; what follows it is looked at again. */
static void give_up(calls *c) {
    c->state = TEXT;
    c->at = c->body;
    forget_found(c);
}

/* Calls that are certain. */
static int tell_call(calls *c, calls_piece *out) {
    if (c->state == TAIL || c->n_told == c->n_found) return 0;
    const call *one = &c->found[c->n_told++];
    *out = (calls_piece){.name = one->name, .arguments = one->arguments};
    return 1;
}

int calls_next(calls *c, calls_piece *out) {
    for (;;) {
        if (tell_call(c, out)) return 1;
        if (c->state != TAIL) forget_found(c);
        if (c->state == TEXT) {
            if (read_text(c, out)) return 1;
            if (c->state == TEXT) return 0;
        }
        const verdict v = c->state == TAIL ? read_tail(c) : c->depth > 0 ? read_json(c) : read_begin(c);
        if (v == WAITS) return 0;
        if (v == NO_CALL) give_up(c);
    }
}

/* ---- what comes in --------------------------------------------------------------------------------------------------------- */

/* What has been handed out goes. */
static void compact(calls *c) {
    const size_t n = c->from;
    if (n == 0) return;
    memmove(c->text, c->text + n, c->n - n);
    c->n -= n;
    c->at -= n;
    c->from = 0;
    if (c->state == TEXT) return;
    c->body -= n;
    c->json -= n;
}

void calls_put(calls *c, const char *text, size_t n) {
    compact(c);
    if (c->n + n > c->cap) {
        c->cap = 2 * (c->n + n);
        char *longer = cli_alloc(c->cap, 1);
        memcpy(longer, c->text, c->n);
        free(c->text);
        c->text = longer;
    }
    if (n) memcpy(c->text + c->n, text, n);
    c->n += n;
}

void calls_end(calls *c) { c->has_ended = 1; }
