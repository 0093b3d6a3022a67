/* SPDX-License-Identifier: MIT
 *
 * test_shape.c: objects of a given shape: what is written under random shapes, against a check of the values that jansson
 * reads.  What is taken can be completed, and then has the shape; and what has it, in the shape's order, is taken.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "core/memory.h"
#include "serving/json.h"

enum { NODES = 14, PARTS = 60, TEXT_CAP = 8192, DEEP = 9 };

/* ---- random shapes -------------------------------------------------------------------------------------------------------- */

typedef struct made {
    pleat_json_node nodes[NODES];
    pleat_json_part parts[PARTS];
    pleat_json_shape shape;
    pleat__shape copy;
    pleat_json_node copy_nodes[NODES];
    pleat_json_part copy_parts[PARTS];
    uint8_t depths[NODES];
    char text[1024];
    bool leads_back;
} made;

static const char *const names[] = {"a", "ab", "abc", "b", "\xc3\xa9", "\xc3\xa8z", "a\\\"b", ""};
static const char *const texts[] = {"true", "1",     "12",      "1.5",        "\"x\"", "\"xy\"", "\"\"",
                                    "null", "[1,2]", "\"\\n\"", "{\"a\":[]}", "-1",    "false"};

static void add_parts(made *m, pleat_json_node *node, uint32_t n) {
    node->first = m->shape.n_parts;
    node->n = n;
    m->shape.n_parts += n;
    for (uint32_t i = 0; i < n; i++) m->parts[node->first + i] = (pleat_json_part){.text = ""};
}

static uint32_t add_node(made *m, uint32_t depth);

/* A new node, or, to lead back, one that is there. */
static uint32_t some_node(made *m, uint32_t depth) {
    if (m->shape.n_nodes < NODES && check_below(8) > 0) return add_node(m, depth);
    m->leads_back = true;
    return (uint32_t)check_below(m->shape.n_nodes);
}

static void fill_object(made *m, uint32_t id, uint32_t depth) {
    pleat_json_node *node = &m->nodes[id];
    const uint32_t begin = (uint32_t)check_below(4), n = (uint32_t)check_below(5);
    add_parts(m, node, n);
    node->rest = PLEAT_JSON_NONE;
    for (uint32_t i = 0; i < n; i++) {
        pleat_json_part *part = &m->parts[node->first + i];
        part->text = names[begin + i];
        part->is_required = check_below(2) > 0;
        part->node = some_node(m, depth + 1);
    }
    if (check_below(3) == 0) node->rest = some_node(m, depth + 1);
}

static void fill_list(made *m, uint32_t id, uint32_t depth) {
    pleat_json_node *node = &m->nodes[id];
    node->least = (uint32_t)check_below(3);
    node->most = check_below(2) ? UINT32_MAX : node->least + (uint32_t)check_below(3);
    node->rest = some_node(m, depth + 1);
}

static uint32_t add_node(made *m, uint32_t depth) {
    const uint32_t id = m->shape.n_nodes++, n = 1 + (uint32_t)check_below(2);
    pleat_json_node *node = &m->nodes[id];
    *node = (pleat_json_node){.kind = id == 0 ? PLEAT_JSON_OBJECT : (pleat_json_kind)check_below(depth < 3 ? 8 : 5)};
    if (node->kind == PLEAT_JSON_OBJECT) fill_object(m, id, depth);
    if (node->kind == PLEAT_JSON_LIST) fill_list(m, id, depth);
    if (node->kind == PLEAT_JSON_TEXTS) {
        add_parts(m, node, n + 1);
        for (uint32_t i = 0; i <= n; i++) m->parts[node->first + i].text = texts[check_below(CHECK_COUNT(texts))];
    }
    if (node->kind == PLEAT_JSON_ONE_OF) {
        add_parts(m, node, n);
        for (uint32_t i = 0; i < n; i++) m->parts[node->first + i].node = some_node(m, depth);
    }
    return id;
}

/* False: it is none that can be written. */
static bool make(made *m) {
    *m = (made){.shape = {.nodes = m->nodes, .parts = m->parts}};
    (void)add_node(m, 0);
    CHECK(m->shape.n_parts <= PARTS);
    if (pleat__shape_check(&m->shape, NULL) != PLEAT_OK) return false;
    m->copy = pleat__shape_lengths(&m->shape);
    CHECK(m->copy.n_text <= sizeof m->text);
    m->copy.nodes = m->copy_nodes;
    m->copy.parts = m->copy_parts;
    m->copy.depths = m->depths;
    m->copy.text = m->text;
    pleat__shape_copy(&m->copy, &m->shape);
    return true;
}

/* ---- has a value the shape? ------------------------------------------------------------------------------------------------- */

static json_t *load(const char *text, size_t n, json_error_t *error) {
    return json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, error);
}

static bool has_shape(const made *m, uint32_t id, json_t *value);

static bool object_has(const made *m, const pleat_json_node *node, json_t *value) {
    const char *key;
    json_t *member;
    bool is = json_is_object(value);
    for (uint32_t i = 0; is && i < node->n; i++) {
        const pleat_json_part *part = &m->parts[node->first + i];
        is = !part->is_required || json_object_get(value, strcmp(part->text, "a\\\"b") ? part->text : "a\"b");
    }
    json_object_foreach(value, key, member) {
        uint32_t i = 0;
        const char *name = strcmp(key, "a\"b") ? key : "a\\\"b";
        while (i < node->n && strcmp(m->parts[node->first + i].text, name) != 0) i++;
        const uint32_t its = i < node->n ? m->parts[node->first + i].node : node->rest;
        is = is && its != PLEAT_JSON_NONE && has_shape(m, its, member);
    }
    return is;
}

static bool list_has(const made *m, const pleat_json_node *node, json_t *value) {
    size_t i;
    json_t *item;
    bool is = json_is_array(value) && json_array_size(value) >= node->least && json_array_size(value) <= node->most;
    json_array_foreach(value, i, item) is = is && has_shape(m, node->rest, item);
    return is;
}

static bool has_shape(const made *m, uint32_t id, json_t *value) {
    const pleat_json_node *node = &m->nodes[id];
    const double x = json_number_value(value);
    bool is = false;
    switch (node->kind) {
        case PLEAT_JSON_STRING: return json_is_string(value);
        case PLEAT_JSON_NUMBER: return json_is_number(value);
        case PLEAT_JSON_INTEGER: return json_is_number(value) && (x > 1e15 || x < -1e15 || x == (double)(int64_t)x);
        case PLEAT_JSON_OBJECT: return object_has(m, node, value);
        case PLEAT_JSON_LIST: return list_has(m, node, value);
        case PLEAT_JSON_ANY: return true;
        default: break;
    }
    for (uint32_t i = node->first; !is && i < node->first + node->n; i++) {
        json_t *one = node->kind == PLEAT_JSON_TEXTS ? load(m->parts[i].text, strlen(m->parts[i].text), NULL) : NULL;
        is = one ? json_equal(one, value) : has_shape(m, m->parts[i].node, value);
        json_decref(one);
    }
    return is;
}

/* ---- what is taken can be completed, and has the shape ------------------------------------------------------------------------ */

/* Where one of an object's names is being written: its end, of one that is required rather than not. */
static bool complete_name(char *text, size_t *n, pleat__json *s) {
    const pleat__json_path *p = &s->paths[0];
    if (p->mode != PLEAT__JSON_NAME) return false;
    const pleat__json_frame frame = p->open[p->depth - 1];
    const pleat_json_part *parts = pleat__shape_parts(s->shape, frame.node);
    for (uint32_t i = 2 * pleat__shape_node(s->shape, frame.node)->n; i-- > 0;) {
        const pleat_json_part *part = &parts[i / 2];
        pleat__json next;
        char rest[64];
        if (part->is_required != (int)(i % 2) || strncmp(part->text, parts[p->pick].text, p->n_taken) != 0) continue;
        const size_t n_rest = (size_t)snprintf(rest, sizeof rest, "%s\":", part->text + p->n_taken);
        pleat__json_copy(&next, s);
        if (!pleat__json_take(&next, rest, n_rest) || next.n_others > 0 || next.paths[0].node != part->node) continue;
        memcpy(text + *n, rest, n_rest);
        *n += n_rest;
        pleat__json_copy(s, &next);
        return true;
    }
    return false;
}

static bool complete(char *text, size_t *n, pleat__json *s) {
    static const char first[] = "\"}]:,0";
    while (*n < TEXT_CAP - 64 && !pleat__json_is_whole(s)) {
        uint32_t k = 0;
        if (complete_name(text, n, s)) continue;
        const uint32_t n_first = sizeof first - 1;
        pleat__json next;
        for (; k < n_first + 256; k++) {
            const char byte = k < n_first ? first[k] : (char)(255 - (k - n_first));
            pleat__json_copy(&next, s);
            if (!pleat__json_take(&next, &byte, 1)) continue;
            text[(*n)++] = byte;
            break;
        }
        if (k == n_first + 256) return false;
        pleat__json_copy(s, &next);
    }
    return pleat__json_is_whole(s);
}

/* Random bytes that are taken. */
static size_t wander(const made *m, pleat__json *s, char *text) {
    static const char often[] = "{}[]\"\",,::  \\abcz\xc3\xa9\xa8\"x1250.-etrufalsn";
    size_t n = 0;
    *s = (pleat__json){.shape = &m->copy};
    for (uint64_t tries = check_below(400); tries > 0 && !pleat__json_is_whole(s); tries--) {
        const char byte = check_below(16) ? often[check_below(sizeof often - 1)] : (char)check_below(256);
        pleat__json next;
        pleat__json_copy(&next, s);
        if (!pleat__json_take(&next, &byte, 1)) continue;
        pleat__json_copy(s, &next);
        text[n++] = byte;
    }
    return n;
}

/* jansson has no larger numbers, and no NUL in names. */
static bool is_beyond(const json_error_t *error) {
    return json_error_code(error) == json_error_numeric_overflow ||
           json_error_code(error) == json_error_null_byte_in_key;
}

static void test_written(void) {
    static char text[TEXT_CAP];
    made m;
    uint64_t n_made = 0, n_whole = 0;
    for (uint64_t round = 0; round < check_rounds(100000, 4000) && check_failures() == 0; round++) {
        if (!make(&m)) continue;
        n_made++;
        for (uint32_t k = 0; k < 5; k++) {
            pleat__json s;
            size_t n = wander(&m, &s, text);
            const bool is = complete(text, &n, &s);
            json_error_t error = {0};
            json_t *value = load(text, n, &error);
            check_context("round %llu: %.*s", (unsigned long long)round, (int)n, text);
            CHECK(is ? value ? has_shape(&m, 0, value) : is_beyond(&error) : m.leads_back && n >= TEXT_CAP - 64);
            n_whole += value != NULL;
            json_decref(value);
        }
    }
    CHECK(n_made > check_rounds(100000, 4000) / 2 && n_whole > 4 * n_made);
}

/* ---- what has the shape is taken ------------------------------------------------------------------------------------------------ */

static size_t put(char *out, const char *text) {
    const size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

static bool write(const made *m, uint32_t id, uint32_t depth, char *out, size_t *n);

static bool write_member(const made *m, const char *name, uint32_t id, uint32_t depth, char *out, size_t *n) {
    if (out[*n - 1] != '{') out[(*n)++] = ',';
    *n += (size_t)sprintf(out + *n, check_below(2) ? "\"%s\":" : " \"%s\" :\n", name);
    return write(m, id, depth + 1, out, n);
}

static bool write_object(const made *m, const pleat_json_node *node, uint32_t depth, char *out, size_t *n) {
    static const char *const others[] = {"z", "abcd", "aa", "a\\u0062", "\xc3\xb6", "bb", "a b"};
    bool is = true;
    out[(*n)++] = '{';
    for (uint32_t i = 0; is && i <= node->n; i++) {
        const pleat_json_part *part = &m->parts[node->first + i];
        const char *other = others[check_below(CHECK_COUNT(others))];
        const bool spells = strcmp(other, "a\\u0062") == 0 && node->n > 0; /* "ab" */
        if (node->rest != PLEAT_JSON_NONE && check_below(4) == 0 && !spells)
            is = write_member(m, other, node->rest, depth, out, n);
        if (is && i < node->n && (part->is_required || (depth < 3 && check_below(2))))
            is = write_member(m, part->text, part->node, depth, out, n);
    }
    out[(*n)++] = '}';
    return is;
}

static bool write_list(const made *m, const pleat_json_node *node, uint32_t depth, char *out, size_t *n) {
    const uint32_t spread = node->most - node->least, more = (uint32_t)check_below((spread < 3 ? spread : 3) + 1);
    const uint32_t n_items = node->least + (depth < 3 ? more : 0);
    bool is = true;
    out[(*n)++] = '[';
    for (uint32_t i = 0; is && i < n_items; i++) {
        if (i > 0) *n += put(out + *n, check_below(2) ? "," : " , ");
        is = write(m, node->rest, depth + 1, out, n);
    }
    out[(*n)++] = ']';
    return is;
}

/* False: it became too deep or too long. */
static bool write(const made *m, uint32_t id, uint32_t depth, char *out, size_t *n) {
    static const char *const strings[] = {"\"\"", "\"x\"", "\"xy\\n\"", "\"\xc3\xa9\\u00e9\""};
    static const char *const numbers[] = {"0", "-12", "1", "12", "1.5", "1e3", "-0.25"};
    static const char *const any[] = {"null", "{\"a\": [1, true]}", "[]", "\"q\"", "12.5"};
    const pleat_json_node *node = &m->nodes[id];
    const pleat_json_part *part = &m->parts[node->first];
    if (depth > DEEP || *n > TEXT_CAP / 2) return false;
    switch (node->kind) {
        case PLEAT_JSON_STRING: *n += put(out + *n, strings[check_below(4)]); return true;
        case PLEAT_JSON_NUMBER: *n += put(out + *n, numbers[check_below(7)]); return true;
        case PLEAT_JSON_INTEGER: *n += put(out + *n, numbers[check_below(4)]); return true;
        case PLEAT_JSON_OBJECT: return write_object(m, node, depth, out, n);
        case PLEAT_JSON_LIST: return write_list(m, node, depth, out, n);
        case PLEAT_JSON_TEXTS: *n += put(out + *n, part[check_below(node->n)].text); return true;
        case PLEAT_JSON_ONE_OF: return write(m, part[check_below(node->n)].node, depth, out, n);
        default: *n += put(out + *n, any[check_below(5)]); return true;
    }
}

static void test_taken(void) {
    static char text[2 * TEXT_CAP];
    made m;
    uint64_t n_taken = 0;
    for (uint64_t round = 0; round < check_rounds(100000, 4000) && check_failures() == 0; round++) {
        if (!make(&m) || m.leads_back) continue;
        for (uint32_t k = 0; k < 5; k++) {
            pleat__json s = {.shape = &m.copy};
            size_t n = 0;
            if (!write(&m, 0, 0, text, &n)) continue;
            check_context("round %llu: %.*s", (unsigned long long)round, (int)n, text);
            CHECK(pleat__json_take(&s, text, n) && pleat__json_is_whole(&s));
            n_taken++;
        }
    }
    CHECK(n_taken > check_rounds(100000, 4000));
}

/* ---- by hand ---------------------------------------------------------------------------------------------------------------- */

static void test_refused(void) {
    const pleat_json_part back = {.text = "a", .node = 0, .is_required = 1}, two = {.text = "x\"y"},
                          member = {.text = "a\":0,\"b"}, none_of_it = {.text = "a\",\"b\":\"c"},
                          no_json = {.text = "tru"};
    const pleat_json_node itself = {.kind = PLEAT_JSON_ONE_OF, .n = 1}, endless = {.kind = PLEAT_JSON_OBJECT, .n = 1};
    const pleat_json_node list = {.kind = PLEAT_JSON_LIST, .rest = 0, .most = 3};
    const pleat_json_node none = {.kind = PLEAT_JSON_OBJECT, .rest = 7},
                          bounds[] = {{.kind = PLEAT_JSON_OBJECT, .rest = 1},
                                      {.kind = PLEAT_JSON_LIST, .rest = 0, .least = 3, .most = 2}};
    const pleat_json_node word[] = {{.kind = PLEAT_JSON_OBJECT, .rest = 1}, {.kind = PLEAT_JSON_TEXTS, .n = 1}};
    const pleat_json_shape shapes[] = {{.nodes = &itself, .n_nodes = 1, .parts = &back, .n_parts = 1},
                                       {.nodes = &endless, .n_nodes = 1, .parts = &back, .n_parts = 1},
                                       {.nodes = &endless, .n_nodes = 1, .parts = &two, .n_parts = 1},
                                       {.nodes = &endless, .n_nodes = 1, .parts = &member, .n_parts = 1},
                                       {.nodes = &endless, .n_nodes = 1, .parts = &none_of_it, .n_parts = 1},
                                       {.nodes = &endless, .n_nodes = 1},
                                       {.nodes = &list, .n_nodes = 1},
                                       {.nodes = &none, .n_nodes = 1},
                                       {.nodes = bounds, .n_nodes = 2},
                                       {.nodes = word, .n_nodes = 2, .parts = &no_json, .n_parts = 1},
                                       {.nodes = NULL, .n_nodes = 1}};
    for (size_t i = 0; i < CHECK_COUNT(shapes); i++) {
        pleat_error err;
        check_context("shape %zu", i);
        CHECK_STATUS(pleat_json_shape_check(&shapes[i], &err), PLEAT_E_ARG);
    }
}

static const check_test tests[] = {
    {"written", test_written},
    {"taken", test_taken},
    {"refused", test_refused},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
