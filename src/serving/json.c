/* SPDX-License-Identifier: MIT
 *
 * json.c: see json.h.
 */
#include "serving/json.h"

#include <string.h>

#include "core/error.h"

typedef pleat__json_path path;

static bool go(path *p, pleat__json_mode mode) {
    p->mode = (uint8_t)mode;
    return true;
}

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_hex(uint8_t c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* ---- what encloses ----------------------------------------------------------------------------------------------------- */

static pleat__json_frame *top(path *p) { return &p->open[p->depth - 1]; }

/* Nothing is left of how the value was written: so paths that have come to the same are the same. */
static bool end_value(path *p) {
    p->node = p->pick = p->n_taken = 0;
    p->n_more = p->low = p->high = 0;
    p->is_key = p->is_high = false;
    return go(p, p->depth > 0 ? PLEAT__JSON_AFTER : PLEAT__JSON_WHOLE);
}

static bool open(const pleat__shape *s, path *p, uint32_t id) {
    const pleat_json_node *node = pleat__shape_node(s, id);
    const bool is_list = node->kind == PLEAT_JSON_LIST;
    if (p->depth == PLEAT__JSON_DEPTH) return false;
    p->open[p->depth++] = (pleat__json_frame){.node = (uint16_t)id};
    p->node = is_list ? (uint16_t)node->rest : 0;
    return go(p, is_list ? PLEAT__JSON_VALUE_OR_END : PLEAT__JSON_KEY_OR_END);
}

static bool close(path *p) {
    p->depth--;
    return end_value(p);
}

/* ---- parts of an object, and texts --------------------------------------------------------------------------------------- */

/* The part in low..high-1 that is written like the path's pick up to n_taken bytes, and then has c; high if there is none. */
static uint32_t find_part(const pleat_json_part *parts, uint32_t low, uint32_t high, const path *p, char c) {
    const char *so_far = parts[p->pick].text;
    for (uint32_t i = low; i < high; i++)
        if (strncmp(parts[i].text, so_far, p->n_taken) == 0 && parts[i].text[p->n_taken] == c) return i;
    return high;
}

/* Behind the last part that may come next: the first that is required, or all. */
static uint32_t window_end(const pleat_json_node *node, const pleat_json_part *parts, uint32_t at) {
    while (at < node->n && !parts[at].is_required) at++;
    return at < node->n ? at + 1 : node->n;
}

static bool may_end(const pleat_json_node *node, const pleat_json_part *parts, uint32_t at) {
    return window_end(node, parts, at) == node->n && (at == node->n || !parts[node->n - 1].is_required);
}

static bool has_others(const pleat__shape *s, const path *p, const pleat_json_node *node) {
    return node->rest != PLEAT_JSON_NONE && pleat__shape_fits(s, node->rest, p->depth);
}

/* The part's value would find room. */
static bool fits(const pleat__shape *s, const path *p, const pleat_json_part *part) {
    return pleat__shape_fits(s, part->node, p->depth);
}

/* The first of low..high-1 that fits, like `c` as in find_part(). */
static uint32_t find_fitting(const pleat__shape *s, const pleat_json_part *parts, uint32_t low, uint32_t high,
                             const path *p, char c) {
    while ((low = find_part(parts, low, high, p, c)) < high && !fits(s, p, &parts[low])) low++;
    return low;
}

static bool has_names(const pleat__shape *s, const path *p, const pleat_json_part *parts, uint32_t at, uint32_t end) {
    while (at < end && !fits(s, p, &parts[at])) at++;
    return at < end;
}

static bool end_name(path *p, uint32_t node) {
    (void)end_value(p);
    p->node = (uint16_t)node;
    return go(p, PLEAT__JSON_COLON);
}

static bool take_name(const pleat__shape *s, path *p, uint8_t c) {
    const uint32_t id = top(p)->node, at = top(p)->at;
    const pleat_json_part *parts = pleat__shape_parts(s, id);
    const uint32_t end = window_end(pleat__shape_node(s, id), parts, at);
    uint32_t i = c ? find_fitting(s, parts, at, end, p, (char)c) : end;
    if (i < end) {
        p->pick = (uint16_t)i;
        p->n_taken++;
        return true;
    }
    i = find_fitting(s, parts, at, end, p, 0);
    if (c != '"' || i == end) return false;
    top(p)->at = (uint16_t)(i + 1);
    return end_name(p, parts[i].node);
}

/* One of the node's texts.  It ends where none is longer, or with the byte that follows it, which is none of it. */
static bool take_text(const pleat__shape *s, path *p, uint8_t c, bool *is_over) {
    const pleat_json_part *parts = pleat__shape_parts(s, p->node);
    const uint32_t n = pleat__shape_node(s, p->node)->n, i = c ? find_part(parts, 0, n, p, (char)c) : n;
    *is_over = false;
    if (i == n) {
        *is_over = p->n_taken > 0 && find_part(parts, 0, n, p, 0) < n;
        return *is_over && end_value(p);
    }
    p->pick = (uint16_t)i;
    p->n_taken++;
    for (uint32_t k = 0; k < n; k++)
        if (strncmp(parts[k].text, parts[i].text, p->n_taken) == 0 && parts[k].text[p->n_taken]) return true;
    return end_value(p);
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

/* The first byte of a character beyond ASCII (RFC 3629): ranges of the second keep out long forms and surrogates. */
static bool begin_character(path *p, uint8_t c) {
    if (c < 0xC2 || c > 0xF4) return false;
    p->n_more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    p->low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    p->high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return go(p, PLEAT__JSON_UTF8);
}

static bool take_character(path *p, uint8_t c) {
    if (c < p->low || c > p->high) return false;
    p->low = 0x80;
    p->high = 0xBF;
    return --p->n_more > 0 || go(p, PLEAT__JSON_STRING);
}

/* Behind a value's string nothing depends on its node: so all that may be one are one path. */
static bool begin_string(path *p, bool is_key) {
    p->is_key = is_key;
    if (!is_key) p->node = 0;
    return go(p, PLEAT__JSON_STRING);
}

static bool take_plain(path *p, uint8_t c) {
    if (c == '"') return p->is_key ? end_name(p, p->node) : end_value(p);
    if (c == '\\') return go(p, PLEAT__JSON_ESCAPE);
    return c >= 0x80 ? begin_character(p, c) : c >= 0x20;
}

static bool is_middle(char byte) { return ((uint8_t)byte & 0xC0) == 0x80; }

/* c differs from what a part's name, so far the same, goes on with; it may be in the middle of a character. */
static bool differ(path *p, const char *name, uint8_t c) {
    uint32_t at = p->n_taken;
    const uint32_t n = p->n_taken;
    while (at > 0 && is_middle(name[at])) at--;
    p->pick = p->n_taken = 0;
    (void)begin_string(p, true);
    while (at < n) (void)(p->mode == PLEAT__JSON_UTF8 ? take_character : take_plain)(p, (uint8_t)name[at++]);
    return (p->mode == PLEAT__JSON_UTF8 ? take_character : take_plain)(p, c);
}

/* A name that is to be none of the parts'.  Once it differs from all it goes on as it likes.  Until then there is no escape,
 * which could spell one of theirs. */
static bool take_other(const pleat__shape *s, path *p, uint8_t c) {
    const uint32_t id = top(p)->node;
    const pleat_json_part *parts = pleat__shape_parts(s, id);
    const uint32_t n = pleat__shape_node(s, id)->n, i = c && c != '"' ? find_part(parts, 0, n, p, (char)c) : n;
    if (c == '\\') return false;
    if (i < n) {
        p->pick = (uint16_t)i;
        p->n_taken++;
        return true;
    }
    const char *name = parts[p->pick].text;
    if (c != '"' || is_middle(name[p->n_taken])) return differ(p, name, c);
    return find_part(parts, 0, n, p, 0) == n && end_name(p, p->node);
}

static bool begin_hex(path *p, uint8_t n_more, pleat__json_mode mode) {
    p->n_more = n_more;
    return go(p, mode);
}

/* \uXXXX: its digits are 1 and 3, and after D 1, 1 and 2. */
static bool take_escape(path *p, uint8_t c) {
    switch (p->mode) {
        case PLEAT__JSON_ESCAPE:
            if (c == 'u') return begin_hex(p, 4, PLEAT__JSON_HEX);
            return c && strchr("\"\\/bfnrt", c) && go(p, PLEAT__JSON_STRING);
        case PLEAT__JSON_HEX:
            if (!is_hex(c)) return false;
            if (p->n_more == 4 && (c == 'd' || c == 'D')) return go(p, PLEAT__JSON_HEX_D);
            if (--p->n_more > 0) return true;
            if (!p->is_high) return go(p, PLEAT__JSON_STRING);
            p->is_high = false;
            return begin_hex(p, 3, PLEAT__JSON_LOW);
        case PLEAT__JSON_HEX_D:
            if (!is_hex(c) || (c >= 'c' && c <= 'f') || (c >= 'C' && c <= 'F')) return false;
            p->is_high = c > '7';
            return begin_hex(p, 2, PLEAT__JSON_HEX);
        case PLEAT__JSON_LOW:
            if (p->n_more == 1 ? c != 'd' && c != 'D' : c != (p->n_more == 3 ? '\\' : 'u')) return false;
            return --p->n_more > 0 || go(p, PLEAT__JSON_LOW_D);
        default: /* LOW_D */
            return ((c >= 'c' && c <= 'f') || (c >= 'C' && c <= 'F')) && begin_hex(p, 2, PLEAT__JSON_HEX);
    }
}

/* ---- between values -------------------------------------------------------------------------------------------------------- */

static bool after_item(const pleat_json_node *node, path *p, uint8_t c) {
    const uint32_t n = top(p)->at < UINT16_MAX ? top(p)->at + 1u : UINT16_MAX;
    if (c == ']') return n >= node->least && close(p);
    if (c != ',' || n >= node->most) return false;
    top(p)->at = (uint16_t)n;
    p->node = (uint16_t)node->rest;
    return go(p, PLEAT__JSON_VALUE);
}

static bool after_value(const pleat__shape *s, path *p, uint8_t c) {
    const uint32_t id = top(p)->node, at = top(p)->at;
    const pleat_json_node *node = pleat__shape_node(s, id);
    const pleat_json_part *parts = pleat__shape_parts(s, id);
    if (node->kind == PLEAT_JSON_LIST) return after_item(node, p, c);
    if (c == '}') return may_end(node, parts, at) && close(p);
    return c == ',' && (has_names(s, p, parts, at, window_end(node, parts, at)) || has_others(s, p, node)) &&
           go(p, PLEAT__JSON_KEY);
}

/* True with *takes false: c is a blank that is one too many. */
static bool is_blank(path *p, uint8_t c, bool *takes) {
    const bool is = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    *takes = is && p->n_blanks < PLEAT__JSON_BLANKS;
    p->n_blanks = is ? (uint8_t)(p->n_blanks + *takes) : 0;
    return is;
}

static bool take_outside(const pleat__shape *s, path *p, uint8_t c) {
    bool takes;
    if (is_blank(p, c, &takes)) return takes;
    if (p->mode == PLEAT__JSON_AFTER) return after_value(s, p, c);
    return p->mode == PLEAT__JSON_COLON && c == ':' && go(p, PLEAT__JSON_VALUE); /* else WHOLE */
}

/* ---- numbers --------------------------------------------------------------------------------------------------------------- */

static bool take_number(const pleat__shape *s, path *p, uint8_t c) {
    const bool is_integer = pleat__shape_node(s, p->node)->kind == PLEAT_JSON_INTEGER;
    switch (p->mode) {
        case PLEAT__JSON_MINUS: return is_digit(c) && go(p, c == '0' ? PLEAT__JSON_ZERO : PLEAT__JSON_INT);
        case PLEAT__JSON_POINT: return is_digit(c) && go(p, PLEAT__JSON_FRACTION);
        case PLEAT__JSON_EXP:
            if (c == '+' || c == '-') return go(p, PLEAT__JSON_EXP_SIGN);
            return is_digit(c) && go(p, PLEAT__JSON_EXP_DIGITS);
        case PLEAT__JSON_EXP_SIGN: return is_digit(c) && go(p, PLEAT__JSON_EXP_DIGITS);
        default: break; /* the number may end here */
    }
    if (is_digit(c)) return p->mode != PLEAT__JSON_ZERO;
    if (c == '.' && p->mode <= PLEAT__JSON_INT) return !is_integer && go(p, PLEAT__JSON_POINT);
    if ((c == 'e' || c == 'E') && p->mode != PLEAT__JSON_EXP_DIGITS) return !is_integer && go(p, PLEAT__JSON_EXP);
    return end_value(p) && take_outside(s, p, c);
}

/* ---- where a path may become several ----------------------------------------------------------------------------------------- */

/* What a path has written down: the rest of `open` is not looked at. */
static size_t live_bytes(const path *p) { return offsetof(path, open) + p->depth * sizeof p->open[0]; }

static void copy_path(path *to, const path *from) { memcpy(to, from, live_bytes(from)); }

/* The paths behind a byte; n_others is a plain count until all are there. */
static void add(pleat__json *out, const path *p) {
    for (uint32_t i = 0; i < out->n_others; i++)
        if (out->paths[i].depth == p->depth && memcmp(&out->paths[i], p, live_bytes(p)) == 0) return;
    if (out->n_others < PLEAT__JSON_PATHS) copy_path(&out->paths[out->n_others++], p);
}

static bool begin_any(const pleat__shape *s, path *p, uint8_t c) {
    bool is_over;
    if (c == '{') return open(s, p, PLEAT__SHAPE_ANY_OBJECT);
    if (c == '[') return open(s, p, PLEAT__SHAPE_ANY_LIST);
    if (c == '"') return begin_string(p, false);
    if (c == '-') return go(p, PLEAT__JSON_MINUS);
    if (is_digit(c)) return go(p, c == '0' ? PLEAT__JSON_ZERO : PLEAT__JSON_INT);
    p->node = PLEAT__SHAPE_LITERAL;
    return go(p, PLEAT__JSON_TEXT) && take_text(s, p, c, &is_over);
}

static bool begin_value(const pleat__shape *s, path *p, uint32_t id, uint8_t c) {
    bool is_over;
    p->node = (uint16_t)id;
    switch (pleat__shape_node(s, id)->kind) {
        case PLEAT_JSON_STRING: return c == '"' && begin_string(p, false);
        case PLEAT_JSON_NUMBER:
        case PLEAT_JSON_INTEGER: return (c == '-' || is_digit(c)) && begin_any(s, p, c);
        case PLEAT_JSON_TEXTS: return go(p, PLEAT__JSON_TEXT) && take_text(s, p, c, &is_over);
        case PLEAT_JSON_OBJECT: return c == '{' && open(s, p, id);
        case PLEAT_JSON_LIST: return c == '[' && open(s, p, id);
        default: return begin_any(s, p, c);
    }
}

/* Each way in which c begins a value of the node. */
static void begin_values(pleat__json *out, const pleat__shape *s, const path *from, uint32_t id, uint8_t c) {
    const pleat_json_node *node = pleat__shape_node(s, id);
    const pleat_json_part *parts = pleat__shape_parts(s, id);
    path p;
    if (!pleat__shape_fits(s, id, from->depth)) return;
    if (node->kind == PLEAT_JSON_ONE_OF) {
        for (uint32_t i = 0; i < node->n; i++) begin_values(out, s, from, parts[i].node, c);
        return;
    }
    copy_path(&p, from);
    if (begin_value(s, &p, id, c)) add(out, &p);
}

/* A quote: one of the names that may come, or another one. */
static void begin_names(pleat__json *out, const pleat__shape *s, path *p) {
    const uint32_t id = top(p)->node, at = top(p)->at;
    const pleat_json_node *node = pleat__shape_node(s, id);
    const pleat_json_part *parts = pleat__shape_parts(s, id);
    if (has_names(s, p, parts, at, window_end(node, parts, at)) && go(p, PLEAT__JSON_NAME)) add(out, p);
    if (!has_others(s, p, node)) return;
    p->node = (uint16_t)node->rest;
    (void)(node->n == 0 ? begin_string(p, true) : go(p, PLEAT__JSON_OTHER));
    add(out, p);
}

static void fork(pleat__json *out, const pleat__shape *s, const path *from, uint8_t c) {
    bool takes;
    path p;
    copy_path(&p, from);
    if (is_blank(&p, c, &takes)) {
        if (takes) add(out, &p);
        return;
    }
    if (p.mode == PLEAT__JSON_START) {
        begin_values(out, s, &p, s ? 0 : PLEAT__SHAPE_ANY_OBJECT, c);
        return;
    }
    const bool is_end = c == (p.mode == PLEAT__JSON_VALUE_OR_END ? ']' : '}');
    const uint32_t id = p.depth > 0 ? top(&p)->node : 0;
    const pleat_json_node *node = pleat__shape_node(s, id);
    if (p.mode == PLEAT__JSON_VALUE || (p.mode == PLEAT__JSON_VALUE_OR_END && !is_end && node->most > 0))
        begin_values(out, s, &p, p.node, c);
    else if (p.mode == PLEAT__JSON_VALUE_OR_END && is_end && node->least == 0 && close(&p))
        add(out, &p);
    else if (p.mode == PLEAT__JSON_KEY_OR_END && is_end && may_end(node, pleat__shape_parts(s, id), 0) && close(&p))
        add(out, &p);
    else if (p.mode >= PLEAT__JSON_KEY && c == '"')
        begin_names(out, s, &p);
}

/* ---- taking bytes --------------------------------------------------------------------------------------------------------- */

void pleat__json_begin(pleat__json *json, const pleat__shape *shape) {
    json->shape = shape;
    json->n_others = 0;
    json->paths[0] = (path){.mode = PLEAT__JSON_START};
}

/* Where a path stays one. */
static bool step(const pleat__shape *s, path *p, uint8_t c) {
    bool is_over;
    if (p->mode < PLEAT__JSON_STRING) return take_outside(s, p, c);
    if (p->mode == PLEAT__JSON_STRING) return take_plain(p, c);
    if (p->mode == PLEAT__JSON_UTF8) return take_character(p, c);
    if (p->mode < PLEAT__JSON_TEXT) return take_escape(p, c);
    if (p->mode == PLEAT__JSON_TEXT) return take_text(s, p, c, &is_over) && (!is_over || take_outside(s, p, c));
    if (p->mode == PLEAT__JSON_NAME) return take_name(s, p, c);
    return p->mode == PLEAT__JSON_OTHER ? take_other(s, p, c) : take_number(s, p, c);
}

static bool take(pleat__json *json, uint8_t c) {
    const pleat__shape *s = json->shape;
    pleat__json next;
    if (json->n_others == 0 && json->paths[0].mode > PLEAT__JSON_KEY_OR_END) return step(s, &json->paths[0], c);
    next.shape = s;
    next.n_others = 0;
    for (uint32_t i = 0; i <= json->n_others; i++) {
        path *p = &json->paths[i];
        if (p->mode <= PLEAT__JSON_KEY_OR_END)
            fork(&next, s, p, c);
        else if (step(s, p, c))
            add(&next, p);
    }
    if (next.n_others-- == 0) return false;
    pleat__json_copy(json, &next);
    return true;
}

bool pleat__json_take(pleat__json *json, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!take(json, (uint8_t)bytes[i])) return false;
    return true;
}

void pleat__json_copy(pleat__json *to, const pleat__json *from) {
    to->shape = from->shape;
    to->n_others = from->n_others;
    for (uint32_t i = 0; i <= from->n_others; i++) copy_path(&to->paths[i], &from->paths[i]);
}

bool pleat__json_is_whole(const pleat__json *json) {
    bool is = false;
    for (uint32_t i = 0; i <= json->n_others; i++) is |= json->paths[i].mode == PLEAT__JSON_WHOLE;
    return is;
}

bool pleat__json_in_string(const pleat__json *json) {
    bool is = false;
    for (uint32_t i = 0; i <= json->n_others; i++) is |= json->paths[i].mode == PLEAT__JSON_STRING;
    return is;
}

/* ---- shapes ----------------------------------------------------------------------------------------------------------------- */

/* Is before + text + behind an object? */
static bool is_object(const char *before, const char *text, const char *behind) {
    pleat__json json;
    pleat__json_begin(&json, NULL);
    return pleat__json_take(&json, before, strlen(before)) && pleat__json_take(&json, text, strlen(text)) &&
           pleat__json_take(&json, behind, strlen(behind)) && pleat__json_is_whole(&json);
}

/* Of two places one does not go on behind a quote within it. */
static bool is_name(const char *text) { return is_object("{\"", text, "\":0}") && is_object("{\"a\":\"", text, "\"}"); }

pleat_status pleat_json_shape_check(const pleat_json_shape *shape, pleat_error *err) {
    PLEAT_TRY(pleat__shape_check(shape, err));
    for (uint32_t i = 0; i < shape->n_nodes; i++) {
        const pleat_json_node *node = &shape->nodes[i];
        const bool is_texts = node->kind == PLEAT_JSON_TEXTS;
        for (uint32_t k = node->first; k < node->first + node->n && (is_texts || node->kind == PLEAT_JSON_OBJECT);
             k++) {
            const char *text = shape->parts[k].text;
            PLEAT_FAIL_IF(!(is_texts ? is_object("{\"a\":", text, "}") : is_name(text)), err, PLEAT_E_ARG,
                          PLEAT_NOWHERE, "request: shape: the text of part %u is no %s", k, is_texts ? "JSON" : "name");
        }
    }
    return PLEAT_OK;
}
