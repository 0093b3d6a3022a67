/* SPDX-License-Identifier: MIT
 *
 * fuzz_calls.c: any text as a model's answer, in which tool calls may stand.  The first byte says in which form, and how
 * long the pieces are that it comes in.
 *
 * It does not matter where a text is cut.  A call has the name of a tool and arguments that are a JSON object.  Without a
 * call all of the text comes out; with one no more than came in.
 */
#include "fuzz.h"

#include <string.h>

#include "cli/serve/calls.h"

typedef struct shown {
    char *bytes; /* [n] text as it is, calls between bytes that no text here has */
    size_t n, cap, n_text;
    int n_calls;
} shown;

static void add(shown *s, const char *bytes, size_t n) {
    if (s->n + n > s->cap) {
        s->cap = 2 * (s->n + n) + 64;
        s->bytes = realloc(s->bytes, s->cap);
        EXPECT(s->bytes);
    }
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void take(shown *s, const calls_piece *p) {
    if (p->text) {
        EXPECT(p->n_text > 0);
        add(s, p->text, p->n_text);
        s->n_text += p->n_text;
        return;
    }
    json_t *object = json_loads(p->arguments, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
    EXPECT(json_is_object(object) && (strcmp(p->name, "tide") == 0 || strcmp(p->name, "a") == 0));
    json_decref(object);
    add(s, "\0", 1);
    add(s, p->name, strlen(p->name));
    add(s, p->arguments, strlen(p->arguments));
    add(s, "\0", 1);
    s->n_calls++;
}

static shown read_answer(calls_form form, const json_t *tools, const char *text, size_t n, size_t piece) {
    shown s = {0};
    calls_piece p;
    calls *c = calls_create(form, tools);
    for (size_t at = 0; at < n; at += piece) {
        calls_put(c, text + at, piece < n - at ? piece : n - at);
        while (calls_next(c, &p)) take(&s, &p);
    }
    calls_end(c);
    while (calls_next(c, &p)) take(&s, &p);
    calls_destroy(&c);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const calls_form form = (calls_form)(data[0] % (CALLS_LLAMA + 1));
    const size_t n = size - 1, piece = 1 + (size_t)(data[0] / (CALLS_LLAMA + 1)) % 16;
    const char *text = (const char *)data + 1;
    json_t *tools = json_loads("[{\"function\": {\"name\": \"tide\"}}, {\"function\": {\"name\": \"a\"}}]", 0, NULL);
    shown whole = read_answer(form, tools, text, n, n + 1), cut = read_answer(form, tools, text, n, piece);
    EXPECT(whole.n == cut.n && (whole.n == 0 || memcmp(whole.bytes, cut.bytes, whole.n) == 0));
    EXPECT(whole.n_text <= n && whole.n_calls == cut.n_calls);
    if (whole.n_calls == 0) EXPECT(whole.n_text == n && (n == 0 || memcmp(whole.bytes, text, n) == 0));
    if (form == CALLS_NONE) EXPECT(whole.n_calls == 0);
    free(whole.bytes);
    free(cut.bytes);
    json_decref(tools);
    return 0;
}
