/* SPDX-License-Identifier: MIT
 *
 * json_write.c: see json.h.
 */
#include <math.h>
#include <stdio.h>

#include "chat/json.h"
#include "chat/list.h"

typedef struct writer {
    pleat__vm *vm;
    const pleat__json_style *style;
    pleat__builder *b;
    uint32_t level;
} writer;

pleat__json_style pleat__json_plain(void) {
    return (pleat__json_style){.between = pleat__value_text(", "), .colon = pleat__value_text(": ")};
}

static pleat_status put_escape(writer *w, uint32_t cp) {
    char text[16];
    switch (cp) {
        case '"': return pleat__put_text(w->vm, w->b, "\\\"");
        case '\\': return pleat__put_text(w->vm, w->b, "\\\\");
        case '\n': return pleat__put_text(w->vm, w->b, "\\n");
        case '\r': return pleat__put_text(w->vm, w->b, "\\r");
        case '\t': return pleat__put_text(w->vm, w->b, "\\t");
        case '\b': return pleat__put_text(w->vm, w->b, "\\b");
        case '\f': return pleat__put_text(w->vm, w->b, "\\f");
        default: break;
    }
    if (cp < 0x10000)
        (void)snprintf(text, sizeof text, "\\u%04x", cp);
    else
        (void)snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
    return pleat__put_text(w->vm, w->b, text);
}

static bool needs_escape(const writer *w, uint32_t cp) {
    return cp < 0x20 || cp == '"' || cp == '\\' || (cp >= 0x7F && w->style->ensure_ascii);
}

static pleat_status put_string(writer *w, pleat__value v) {
    PLEAT_TRY(pleat__put_text(w->vm, w->b, "\""));
    uint32_t from = 0;
    for (uint32_t i = 0, len; i < v.n; i += len) {
        const uint32_t cp = pleat__char_at(v.s, v.n, i, &len);
        if (!needs_escape(w, cp)) continue;
        PLEAT_TRY(pleat__put(w->vm, w->b, v.s + from, i - from));
        PLEAT_TRY(put_escape(w, cp));
        from = i + len;
    }
    PLEAT_TRY(pleat__put(w->vm, w->b, v.s + from, v.n - from));
    return pleat__put_text(w->vm, w->b, "\"");
}

static const char *float_text(double f, char text[PLEAT__FLOAT_CAP]) {
    if (isnan(f)) return "NaN";
    if (isinf(f)) return f < 0 ? "-Infinity" : "Infinity";
    pleat__float_text(f, text);
    return text;
}

/* The text of a scalar but a string; NULL for what is none. */
static const char *scalar_text(pleat__value v, char text[PLEAT__FLOAT_CAP]) {
    switch (v.kind) {
        case PLEAT__V_NONE: return "null";
        case PLEAT__V_BOOL: return v.b ? "true" : "false";
        case PLEAT__V_INT: (void)snprintf(text, PLEAT__FLOAT_CAP, "%lld", (long long)v.i); return text;
        case PLEAT__V_FLOAT: return float_text(v.f, text);
        default: return NULL;
    }
}

static pleat_status put_line(writer *w) {
    if (!w->style->is_indented) return PLEAT_OK;
    PLEAT_TRY(pleat__put_text(w->vm, w->b, "\n"));
    return pleat__put_repeated(w->vm, w->b, w->style->indent.s, w->style->indent.n, w->level);
}

static pleat_status put_value(writer *w, pleat__value v);

static pleat_status put_list(writer *w, const pleat__list *list) {
    if (list->n == 0) return pleat__put_text(w->vm, w->b, "[]");
    PLEAT_TRY(pleat__put_text(w->vm, w->b, "["));
    w->level++;
    for (uint32_t i = 0; i < list->n; i++) {
        if (i > 0) PLEAT_TRY(pleat__put(w->vm, w->b, w->style->between.s, w->style->between.n));
        PLEAT_TRY(put_line(w));
        PLEAT_TRY(put_value(w, list->items[i]));
    }
    w->level--;
    PLEAT_TRY(put_line(w));
    return pleat__put_text(w->vm, w->b, "]");
}

static pleat_status put_key(writer *w, pleat__value key) {
    char text[PLEAT__FLOAT_CAP];
    if (key.kind == PLEAT__V_STR) return put_string(w, key);
    const char *s = scalar_text(key, text);
    if (!s) return pleat__vm_fail(w->vm, PLEAT_E_ARG, "tojson: a %s cannot be a key", pleat__value_type(key));
    return put_string(w, pleat__value_text(s));
}

static pleat_status put_pair(writer *w, const pleat__pair *pair) {
    PLEAT_TRY(put_line(w));
    PLEAT_TRY(put_key(w, pair->key));
    PLEAT_TRY(pleat__put(w->vm, w->b, w->style->colon.s, w->style->colon.n));
    return put_value(w, pair->value);
}

/* The dict's pairs as they are written: a list of (key, value). */
static pleat_status sorted_pairs(writer *w, const pleat__dict *dict, pleat__list **out) {
    PLEAT_TRY(pleat__list_of_pairs(w->vm, dict, out));
    if (w->style->sort_keys) PLEAT_TRY(pleat__list_sort(w->vm, *out, pleat__list_key_first, NULL, false));
    return PLEAT_OK;
}

static pleat_status put_dict(writer *w, const pleat__dict *dict) {
    if (dict->n == 0) return pleat__put_text(w->vm, w->b, "{}");
    pleat__list *pairs = NULL;
    if (w->style->sort_keys) PLEAT_TRY(sorted_pairs(w, dict, &pairs));
    PLEAT_TRY(pleat__put_text(w->vm, w->b, "{"));
    w->level++;
    for (uint32_t i = 0; i < dict->n; i++) {
        pleat__pair pair = dict->pairs[i];
        if (pairs) {
            const pleat__list *sorted = pairs->items[i].list;
            pair = (pleat__pair){.key = sorted->items[0], .value = sorted->items[1]};
        }
        if (i > 0) PLEAT_TRY(pleat__put(w->vm, w->b, w->style->between.s, w->style->between.n));
        PLEAT_TRY(put_pair(w, &pair));
    }
    w->level--;
    PLEAT_TRY(put_line(w));
    return pleat__put_text(w->vm, w->b, "}");
}

static pleat_status put_nested(writer *w, pleat__value v) {
    if (v.kind == PLEAT__V_LIST || v.kind == PLEAT__V_TUPLE) return put_list(w, v.list);
    if (v.kind == PLEAT__V_DICT) return put_dict(w, v.dict);
    if (v.kind == PLEAT__V_UNDEFINED && v.sub == PLEAT__LACK_NAME) {
        return pleat__vm_fail(w->vm, PLEAT_E_ARG, "tojson: '%.*s' is undefined", v.n > 120 ? 120 : (int)v.n, v.s);
    }
    return pleat__vm_fail(w->vm, PLEAT_E_ARG, "tojson: JSON has no %s", pleat__value_type(v));
}

static pleat_status put_value(writer *w, pleat__value v) {
    char text[PLEAT__FLOAT_CAP];
    PLEAT_TRY(pleat__vm_charge(w->vm, 1));
    if (v.kind == PLEAT__V_STR) return put_string(w, v);
    const char *scalar = scalar_text(v, text);
    if (scalar) return pleat__put_text(w->vm, w->b, scalar);
    PLEAT_TRY(pleat__vm_enter(w->vm));
    PLEAT_TRY(put_nested(w, v));
    pleat__vm_leave(w->vm);
    return PLEAT_OK;
}

pleat_status pleat__json_write(pleat__vm *vm, const pleat__json_style *style, pleat__value v, pleat__builder *b) {
    writer w = {.vm = vm, .style = style, .b = b};
    return put_value(&w, v);
}
