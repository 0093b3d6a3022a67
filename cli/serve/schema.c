/* SPDX-License-Identifier: MIT
 *
 * schema.c: see schema.h.
 */
#include "schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

enum { DEPTH_MAX = 64, NO_NODE = -1 };

#define TEXT_BYTES_MAX 131072u /* of all names and values: each step of an answer may look at all */

struct schema {
    pleat_json_node nodes[PLEAT_JSON_NODES_MAX];
    const json_t *read[PLEAT_JSON_NODES_MAX]; /* the schema that became the node */
    pleat_json_part parts[PLEAT_JSON_PARTS_MAX];
    pleat_json_shape shape;
    json_t *root; /* that references lead into */
    uint32_t depth;
    size_t n_text; /* bytes of all names and values */
    char *why;
    size_t cap;
};

static int refuse(schema *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int refuse(schema *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->why, s->cap, fmt, args);
    va_end(args);
    return NO_NODE;
}

/* ---- nodes and parts ------------------------------------------------------------------------------------------------------ */

static int add_node(schema *s, pleat_json_kind kind, const json_t *from) {
    const uint32_t id = s->shape.n_nodes;
    if (id == PLEAT_JSON_NODES_MAX) return refuse(s, "a schema of more than %u parts", PLEAT_JSON_NODES_MAX);
    s->nodes[id] = (pleat_json_node){.kind = kind, .rest = PLEAT_JSON_NONE};
    s->read[id] = from;
    s->shape.n_nodes++;
    return (int)id;
}

/* 0, or NO_NODE. */
static int add_parts(schema *s, int id, size_t n) {
    if (n > PLEAT_JSON_PARTS_MAX - s->shape.n_parts)
        return refuse(s, "a schema of more than %u names and values", PLEAT_JSON_PARTS_MAX);
    s->nodes[id].first = s->shape.n_parts;
    s->nodes[id].n = (uint32_t)n;
    s->shape.n_parts += (uint32_t)n;
    return 0;
}

static pleat_json_part *part_of(schema *s, int id, size_t i) { return &s->parts[s->nodes[id].first + i]; }

/* The JSON of a value, or of a name without its quotes, which the part keeps. */
static int set_text(schema *s, pleat_json_part *part, json_t *value, int is_name) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return refuse(s, "out of memory");
    const size_t n = strlen(text);
    part->text = is_name ? cli_copy(text + 1, n - 2) : cli_copy(text, n);
    free(text);
    s->n_text += n;
    if (n > PLEAT_JSON_TEXT_BYTES_MAX)
        return refuse(s, "a name or value of more than %u bytes", PLEAT_JSON_TEXT_BYTES_MAX);
    return s->n_text <= TEXT_BYTES_MAX ? 0 : refuse(s, "names and values of more than %u bytes", TEXT_BYTES_MAX);
}

static int set_name(schema *s, pleat_json_part *part, const char *name) {
    json_t *string = json_string(name);
    const int code = set_text(s, part, string, 1);
    json_decref(string);
    return code;
}

static int read_schema(schema *s, json_t *from);

/* ---- what a schema may say -------------------------------------------------------------------------------------------------- */

static const char *const types[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
enum {
    N_TYPES = 7,
    OBJECT = 1,
    ARRAY = 2,
    STRING = 4,
    NUMBER = 8,
    INTEGER = 16,
    BOOLEAN = 32,
    NULL_ = 64,
    ALL = 47 + 64
};

static int is_among(const char *word, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return 1;
    return 0;
}

/* The first name that binds, or would, and is none of those known; a schema with anyOf, $ref, enum or const has no other. */
static int check_names(schema *s, json_t *from) {
    static const char *const passed[] = {"title",     "description", "default",    "examples",
                                         "$schema",   "$id",         "$comment",   "readOnly",
                                         "writeOnly", "$defs",       "deprecated", "definitions"};
    static const char *const known[] = {"type",
                                        "enum",
                                        "const",
                                        "anyOf",
                                        "$ref",
                                        "properties",
                                        "required",
                                        "items",
                                        "minItems",
                                        "maxItems",
                                        "additionalProperties"};
    const char *key, *alone = NULL;
    json_t *value;
    size_t n = 0;
    json_object_foreach(from, key, value) {
        if (is_among(key, passed, sizeof passed / sizeof passed[0])) continue;
        if (!is_among(key, known, sizeof known / sizeof known[0])) return refuse(s, "'%.60s' is not supported", key);
        if (is_among(key, known + 1, 4)) alone = key;
        n += strcmp(key, "type") != 0 || json_object_get(from, "anyOf") || json_object_get(from, "$ref");
    }
    return alone && n > 1 ? refuse(s, "other names beside '%s' are not supported", alone) : 0;
}

static int read_types(schema *s, json_t *from, unsigned *out) {
    static const struct {
        const char *name;
        unsigned type;
    } implied[] = {{"properties", OBJECT}, {"required", OBJECT}, {"additionalProperties", OBJECT},
                   {"items", ARRAY},       {"minItems", ARRAY},  {"maxItems", ARRAY}};
    json_t *type = json_object_get(from, "type"), *one;
    size_t i;
    *out = 0;
    for (size_t k = 0; !type && k < sizeof implied / sizeof implied[0]; k++)
        if (json_object_get(from, implied[k].name)) *out |= implied[k].type;
    if (!type && !*out) *out = ALL;
    for (unsigned t = 0; t < N_TYPES; t++) {
        if (json_is_string(type) && strcmp(json_string_value(type), types[t]) == 0) *out |= 1u << t;
        json_array_foreach(type, i, one) {
            if (json_is_string(one) && strcmp(json_string_value(one), types[t]) == 0) *out |= 1u << t;
        }
    }
    const size_t n = json_is_array(type) ? json_array_size(type) : 1;
    size_t n_known = 0;
    for (unsigned t = 0; type && t < N_TYPES; t++) n_known += *out >> t & 1;
    return !type || (n > 0 && n_known == n) ? 0
                                            : refuse(s, "'type' is one of JSON's types, or a list of these, each once");
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

static unsigned type_of(const json_t *value) {
    if (json_is_object(value)) return OBJECT;
    if (json_is_array(value)) return ARRAY;
    if (json_is_string(value)) return STRING;
    if (json_is_integer(value)) return NUMBER | INTEGER;
    if (json_is_real(value)) return NUMBER;
    return json_is_boolean(value) ? BOOLEAN : NULL_;
}

/* Those of `values` that have one of the types. */
static int read_values(schema *s, json_t *values, unsigned wanted, const json_t *from) {
    size_t i, n = 0, at = 0;
    json_t *value;
    if (!json_is_array(values)) return refuse(s, "'enum' is a list");
    json_array_foreach(values, i, value) n += (type_of(value) & wanted) != 0;
    if (n == 0) return refuse(s, "no value of 'enum' or 'const' has the type");
    const int id = add_node(s, PLEAT_JSON_TEXTS, from);
    if (id < 0 || add_parts(s, id, n) < 0) return NO_NODE;
    json_array_foreach(values, i, value) {
        if (type_of(value) & wanted && set_text(s, part_of(s, id, at++), value, 0) < 0) return NO_NODE;
    }
    return id;
}

static int read_const(schema *s, json_t *value, unsigned wanted, const json_t *from) {
    json_t *values = json_pack("[O]", value);
    const int id = read_values(s, values, wanted, from);
    json_decref(values);
    return id;
}

/* ---- objects, lists ------------------------------------------------------------------------------------------------------------ */

static int read_required(schema *s, json_t *required, int id, json_t *properties) {
    size_t i;
    json_t *one;
    if (required && !json_is_array(required)) return refuse(s, "'required' is a list of names");
    if (json_array_size(required) > json_object_size(properties))
        return refuse(s, "'required' has more names than 'properties'");
    json_array_foreach(required, i, one) {
        const char *key;
        json_t *unused;
        size_t at = 0, n = json_object_size(properties);
        if (!json_is_string(one)) return refuse(s, "'required' is a list of names");
        json_object_foreach(properties, key, unused) {
            if (strcmp(key, json_string_value(one)) == 0) break;
            at++;
        }
        if (at == n) return refuse(s, "'required' has '%.60s', which is none of 'properties'", json_string_value(one));
        part_of(s, id, at)->is_required = 1;
    }
    return 0;
}

static int read_object(schema *s, json_t *from) {
    json_t *properties = json_object_get(from, "properties"), *more = json_object_get(from, "additionalProperties"),
           *value;
    const char *key;
    size_t i = 0;
    const int id = add_node(s, PLEAT_JSON_OBJECT, NULL);
    if (properties && !json_is_object(properties)) return refuse(s, "'properties' is an object");
    if (id < 0 || add_parts(s, id, json_object_size(properties)) < 0) return NO_NODE;
    json_object_foreach(properties, key, value) {
        const int its = set_name(s, part_of(s, id, i), key) < 0 ? NO_NODE : read_schema(s, value);
        if (its < 0) return NO_NODE;
        part_of(s, id, i++)->node = (uint32_t)its;
    }
    if (read_required(s, json_object_get(from, "required"), id, properties) < 0) return NO_NODE;
    if (json_is_false(more) || (!more && json_object_size(properties) > 0)) return id;
    const int rest = more ? read_schema(s, more) : add_node(s, PLEAT_JSON_ANY, NULL);
    if (rest < 0) return NO_NODE;
    s->nodes[id].rest = (uint32_t)rest;
    return id;
}

static int read_bound(schema *s, json_t *from, const char *name, uint32_t *out) {
    json_t *value = json_object_get(from, name);
    if (!value) return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > PLEAT_JSON_ITEMS_MAX)
        return refuse(s, "'%s' is a whole number in 0..%u", name, PLEAT_JSON_ITEMS_MAX);
    *out = (uint32_t)json_integer_value(value);
    return 0;
}

static int read_list(schema *s, json_t *from) {
    json_t *items = json_object_get(from, "items");
    uint32_t least = 0, most = UINT32_MAX;
    const int id = add_node(s, PLEAT_JSON_LIST, NULL);
    if (id < 0 || read_bound(s, from, "minItems", &least) < 0 || read_bound(s, from, "maxItems", &most) < 0)
        return NO_NODE;
    if (json_is_false(items)) most = 0;
    if (least > most) return refuse(s, "'minItems' is above 'maxItems'");
    s->nodes[id].least = least;
    s->nodes[id].most = most;
    if (most == 0) return id;
    const int its = items ? read_schema(s, items) : add_node(s, PLEAT_JSON_ANY, NULL);
    if (its < 0) return NO_NODE;
    s->nodes[id].rest = (uint32_t)its;
    return id;
}

static int read_type(schema *s, json_t *from, unsigned type) {
    if (type == OBJECT) return read_object(s, from);
    if (type == ARRAY) return read_list(s, from);
    if (type == STRING) return add_node(s, PLEAT_JSON_STRING, NULL);
    if (type == NUMBER) return add_node(s, PLEAT_JSON_NUMBER, NULL);
    if (type == INTEGER) return add_node(s, PLEAT_JSON_INTEGER, NULL);
    json_t *values = type == NULL_ ? json_pack("[n]") : json_pack("[b,b]", 1, 0);
    const int id = read_values(s, values, type, NULL);
    json_decref(values);
    return id;
}

/* ---- one of several, and references ---------------------------------------------------------------------------------------------- */

static int read_any_of(schema *s, json_t *list, const json_t *from) {
    size_t i;
    json_t *one;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > PLEAT_JSON_CHOICES_MAX)
        return refuse(s, "'anyOf' is a list of 1 to %u schemas", PLEAT_JSON_CHOICES_MAX);
    const int id = add_node(s, PLEAT_JSON_ONE_OF, from);
    if (id < 0 || add_parts(s, id, json_array_size(list)) < 0) return NO_NODE;
    json_array_foreach(list, i, one) {
        const int its = read_schema(s, one);
        if (its < 0) return NO_NODE;
        part_of(s, id, i)->node = (uint32_t)its;
    }
    return id;
}

static int read_reference(schema *s, json_t *reference) {
    const char *path = json_string_value(reference);
    json_t *defs = NULL;
    if (path && strcmp(path, "#") == 0) return read_schema(s, s->root);
    if (path && strncmp(path, "#/$defs/", 8) == 0)
        defs = json_object_get(s->root, "$defs"), path += 8;
    else if (path && strncmp(path, "#/definitions/", 14) == 0)
        defs = json_object_get(s->root, "definitions"), path += 14;
    json_t *target = defs ? json_object_get(defs, path) : NULL;
    if (!target) return refuse(s, "'$ref' leads to '#', '#/$defs/NAME' or '#/definitions/NAME' that is there");
    return read_schema(s, target);
}

/* A schema of more than one type is one of as many. */
static int read_all_types(schema *s, json_t *from, unsigned wanted) {
    size_t n = 0, i = 0;
    if ((wanted & (wanted - 1)) == 0) return read_type(s, from, wanted);
    if (wanted == ALL) return add_node(s, PLEAT_JSON_ANY, from);
    for (unsigned t = 0; t < N_TYPES; t++) n += wanted >> t & 1;
    const int id = add_node(s, PLEAT_JSON_ONE_OF, from);
    if (id < 0 || add_parts(s, id, n) < 0) return NO_NODE;
    for (unsigned t = 0; t < N_TYPES; t++) {
        if (!(wanted >> t & 1)) continue;
        const int its = read_type(s, from, 1u << t);
        if (its < 0) return NO_NODE;
        part_of(s, id, i++)->node = (uint32_t)its;
    }
    return id;
}

static int read_object_schema(schema *s, json_t *from) {
    unsigned wanted;
    json_t *any_of = json_object_get(from, "anyOf"), *values = json_object_get(from, "enum");
    json_t *only = json_object_get(from, "const"), *reference = json_object_get(from, "$ref");
    if (check_names(s, from) < 0 || read_types(s, from, &wanted) < 0) return NO_NODE;
    if (any_of) return read_any_of(s, any_of, from);
    if (reference) return read_reference(s, reference);
    if (values) return read_values(s, values, wanted, from);
    if (only) return read_const(s, only, wanted, from);
    return read_all_types(s, from, wanted);
}

/* One that was read before is the same node, so that references may lead back: its place is kept while it is being read. */
static int read_schema(schema *s, json_t *from) {
    if (json_is_true(from)) return add_node(s, PLEAT_JSON_ANY, NULL);
    if (!json_is_object(from)) return refuse(s, "a schema is an object or true");
    for (uint32_t i = 0; i < s->shape.n_nodes; i++)
        if (s->read[i] == from) return (int)i;
    if (s->depth == DEPTH_MAX) return refuse(s, "more than %d schemas within each other", DEPTH_MAX);
    s->depth++;
    const int place = add_node(s, PLEAT_JSON_ONE_OF, from);
    int id = place < 0 || add_parts(s, place, 1) < 0 ? NO_NODE : read_object_schema(s, from);
    if (id >= 0) part_of(s, place, 0)->node = (uint32_t)id;
    s->depth--;
    return id < 0 ? NO_NODE : place;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------------------------ */

static schema *begin(char *why, size_t cap) {
    schema *s = cli_alloc(1, sizeof *s);
    s->why = why;
    s->cap = cap;
    s->shape = (pleat_json_shape){.nodes = s->nodes, .parts = s->parts};
    return s;
}

static int read_root(schema *s, json_t *root) {
    s->root = root;
    s->depth = 0;
    return read_schema(s, root);
}

schema *schema_read(json_t *root, char *why, size_t cap) {
    schema *s = begin(why, cap);
    if (read_root(s, root) < 0) schema_destroy(&s);
    return s;
}

static int read_call(schema *s, const char *name, json_t *arguments, const char *title) {
    const int id = add_node(s, PLEAT_JSON_OBJECT, NULL);
    json_t *any = json_pack("{s:s}", "type", "object"), *string = json_string(name);
    const int its_name = read_const(s, string, STRING, NULL), its = read_root(s, arguments ? arguments : any);
    int code = id < 0 || its_name < 0 || its < 0 ? NO_NODE : add_parts(s, id, 2);
    if (code == 0) code = set_name(s, part_of(s, id, 0), "name");
    if (code == 0) code = set_name(s, part_of(s, id, 1), title);
    for (size_t i = 0; code == 0 && i < 2; i++) {
        part_of(s, id, i)->node = (uint32_t)(i == 0 ? its_name : its);
        part_of(s, id, i)->is_required = 1;
    }
    for (uint32_t i = 0; i < s->shape.n_nodes; i++) s->read[i] = NULL; /* `any` goes */
    json_decref(any);
    json_decref(string);
    return code == 0 ? id : NO_NODE;
}

schema *schema_of_calls(const char *const *names, json_t *const *schemas, uint32_t n, const char *arguments, char *why,
                        size_t cap) {
    schema *s = begin(why, cap);
    const int id = add_node(s, PLEAT_JSON_ONE_OF, NULL);
    int code = add_parts(s, id, n);
    for (uint32_t i = 0; code == 0 && i < n; i++) {
        const int its = read_call(s, names[i], schemas[i], arguments);
        if (its < 0)
            code = NO_NODE;
        else
            part_of(s, id, i)->node = (uint32_t)its;
    }
    if (code != 0) schema_destroy(&s);
    return s;
}

const pleat_json_shape *schema_shape(const schema *s) { return s ? &s->shape : NULL; }

void schema_destroy(schema **s) {
    if (!*s) return;
    for (uint32_t i = 0; i < (*s)->shape.n_parts; i++) free((char *)(uintptr_t)(*s)->parts[i].text);
    free(*s);
    *s = NULL;
}
