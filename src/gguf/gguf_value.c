/* SPDX-License-Identifier: MIT
 *
 * gguf_value.c: metadata values of an open GGUF, read as numbers and strings and printed as text.
 *
 * gguf.c has checked that every value lies in the file, so nothing here can fail for that.  Values have no
 * alignment in the file: all are copied out.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "gguf/gguf.h"

/* Arrays of up to this many items are printed item by item. */
#define MAX_SHOWN_ITEMS 8u

bool pleat__str_eq(pleat__str a, pleat__str b) { return a.n_bytes == b.n_bytes && memcmp(a.p, b.p, a.n_bytes) == 0; }

const char *pleat__str_show(pleat__str s, char *buf, size_t cap) {
    size_t n = 0;
    for (; n < s.n_bytes && n + 1 < cap; n++) buf[n] = s.p[n] >= 0x20 && s.p[n] < 0x7F ? s.p[n] : '?';
    buf[n] = '\0';
    return buf;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

#define ITEM(type)                                                    \
    type x;                                                           \
    memcpy(&x, gguf->bytes + value->offset + i * sizeof x, sizeof x); \
    *out = x;                                                         \
    return true

bool pleat__gguf_u64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, uint64_t *out) {
    switch (value->kind) {
        case PLEAT__GGUF_U8: {
            ITEM(uint8_t);
        }
        case PLEAT__GGUF_U16: {
            ITEM(uint16_t);
        }
        case PLEAT__GGUF_U32: {
            ITEM(uint32_t);
        }
        case PLEAT__GGUF_U64: {
            ITEM(uint64_t);
        }
        default: return false;
    }
}

bool pleat__gguf_i64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, int64_t *out) {
    uint64_t u;
    switch (value->kind) {
        case PLEAT__GGUF_I8: {
            ITEM(int8_t);
        }
        case PLEAT__GGUF_I16: {
            ITEM(int16_t);
        }
        case PLEAT__GGUF_I32: {
            ITEM(int32_t);
        }
        case PLEAT__GGUF_I64: {
            ITEM(int64_t);
        }
        default:
            if (!pleat__gguf_u64(gguf, value, i, &u) || u > INT64_MAX) return false;
            *out = (int64_t)u;
            return true;
    }
}

bool pleat__gguf_f64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, double *out) {
    switch (value->kind) {
        case PLEAT__GGUF_F32: {
            ITEM(float);
        }
        case PLEAT__GGUF_F64: {
            ITEM(double);
        }
        default: return false;
    }
}

bool pleat__gguf_bool(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, bool *out) {
    if (value->kind != PLEAT__GGUF_BOOL) return false;
    *out = gguf->bytes[value->offset + i] != 0;
    return true;
}

pleat__str pleat__gguf_next_string(const pleat_gguf *gguf, uint64_t *offset) {
    uint64_t n;
    memcpy(&n, gguf->bytes + *offset, sizeof n);
    const pleat__str s = {(const char *)gguf->bytes + *offset + sizeof n, n};
    *offset += sizeof n + n;
    return s;
}

bool pleat__gguf_string(const pleat_gguf *gguf, const char *key, pleat__str *out) {
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    if (!v || v->is_array || v->kind != PLEAT__GGUF_STRING) return false;
    uint64_t offset = v->offset;
    *out = pleat__gguf_next_string(gguf, &offset);
    return true;
}

pleat_status pleat__gguf_need_string(const pleat_gguf *gguf, const char *key, pleat__str *out, pleat_error *err) {
    if (pleat__gguf_string(gguf, key, out)) return PLEAT_OK;
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    return pleat__error_set(err, PLEAT_E_FORMAT, v ? v->offset : PLEAT_NOWHERE, "metadata key '%s' is %s", key,
                            v ? "no string" : "missing");
}

pleat_status pleat__gguf_need_strings(const pleat_gguf *gguf, const char *key, const pleat__gguf_value **out,
                                      pleat_error *err) {
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    PLEAT_FAIL_IF(!v || !v->is_array || v->kind != PLEAT__GGUF_STRING, err, PLEAT_E_FORMAT,
                  v ? v->offset : PLEAT_NOWHERE, "metadata key '%s' is %s", key, v ? "no array of strings" : "missing");
    *out = v;
    return PLEAT_OK;
}

pleat_status pleat_gguf_get_u64(const pleat_gguf *gguf, const char *key, uint64_t *out) {
    if (!gguf || !key || !out) return PLEAT_E_ARG;
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    return v && !v->is_array && pleat__gguf_u64(gguf, v, 0, out) ? PLEAT_OK : PLEAT_E_ARG;
}

pleat_status pleat_gguf_get_item(const pleat_gguf *gguf, const char *key, uint64_t i, uint64_t *out) {
    if (!gguf || !key || !out) return PLEAT_E_ARG;
    const pleat__gguf_value *v = pleat__gguf_find(gguf, key);
    bool truth;
    if (!v || !v->is_array || i >= v->n_items) return PLEAT_E_ARG;
    if (!pleat__gguf_bool(gguf, v, i, &truth)) return pleat__gguf_u64(gguf, v, i, out) ? PLEAT_OK : PLEAT_E_ARG;
    *out = truth;
    return PLEAT_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* A buffer that swallows what does not fit. */
typedef struct writer {
    char *buf;
    size_t cap;
    size_t used; /* < cap: the NUL's place */
} writer;

static void put_bytes(writer *w, const char *p, uint64_t n) {
    const size_t room = w->cap - 1 - w->used;
    const size_t take = n < room ? (size_t)n : room;
    memcpy(w->buf + w->used, p, take);
    w->used += take;
    w->buf[w->used] = '\0';
}

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *fmt, ...) {
    char text[64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_bytes(w, text, strlen(text));
}

/* The shortest decimal that gives the value back. */
static void put_float(writer *w, double x, bool is_f32) {
    const int most = is_f32 ? 9 : 17;
    char text[40];
    for (int digits = 6; digits <= most; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (is_f32 ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
    }
    put(w, "%s", text);
}

/* Item `i`; *offset walks along where items are strings. */
static void put_item(writer *w, const pleat_gguf *g, const pleat__gguf_value *v, uint64_t i, uint64_t *offset) {
    uint64_t u;
    int64_t s;
    double f;
    bool b;
    if (v->kind == PLEAT__GGUF_STRING) {
        const pleat__str str = pleat__gguf_next_string(g, offset);
        put_bytes(w, str.p, str.n_bytes);
    } else if (pleat__gguf_bool(g, v, i, &b)) {
        put(w, "%s", b ? "true" : "false");
    } else if (pleat__gguf_u64(g, v, i, &u)) {
        put(w, "%" PRIu64, u);
    } else if (pleat__gguf_i64(g, v, i, &s)) {
        put(w, "%" PRId64, s);
    } else if (pleat__gguf_f64(g, v, i, &f)) {
        put_float(w, f, v->kind == PLEAT__GGUF_F32);
    }
}

static void put_value(writer *w, const pleat_gguf *g, const pleat__gguf_value *v) {
    static const char *const kinds[PLEAT__N_GGUF_KINDS] = {
        [PLEAT__GGUF_U8] = "u8",        [PLEAT__GGUF_I8] = "i8",         [PLEAT__GGUF_U16] = "u16",
        [PLEAT__GGUF_I16] = "i16",      [PLEAT__GGUF_U32] = "u32",       [PLEAT__GGUF_I32] = "i32",
        [PLEAT__GGUF_F32] = "f32",      [PLEAT__GGUF_BOOL] = "booleans", [PLEAT__GGUF_STRING] = "strings",
        [PLEAT__GGUF_ARRAY] = "arrays", [PLEAT__GGUF_U64] = "u64",       [PLEAT__GGUF_I64] = "i64",
        [PLEAT__GGUF_F64] = "f64",
    };
    uint64_t offset = v->offset;
    if (!v->is_array) {
        put_item(w, g, v, 0, &offset);
    } else if (v->n_items > MAX_SHOWN_ITEMS) {
        put(w, "[%" PRIu64 " %s]", v->n_items, kinds[v->kind]);
    } else {
        put(w, "[");
        for (uint64_t i = 0; i < v->n_items; i++) {
            if (i > 0) put(w, ", ");
            put_item(w, g, v, i, &offset);
        }
        put(w, "]");
    }
}

pleat_status pleat_gguf_metadata(const pleat_gguf *gguf, uint64_t i, char *key, size_t key_cap, char *value,
                                 size_t value_cap) {
    if (!gguf || !key || !value || i >= gguf->info.n_metadata || key_cap == 0 || value_cap == 0) return PLEAT_E_ARG;
    const pleat__gguf_value *v = &gguf->values[i];
    writer w = {.buf = key, .cap = key_cap};
    put_bytes(&w, v->key.p, v->key.n_bytes);
    w = (writer){.buf = value, .cap = value_cap};
    value[0] = '\0';
    put_value(&w, gguf, v);
    return PLEAT_OK;
}
