/* SPDX-License-Identifier: MIT
 *
 * access.c: see access.h.
 */
#include "chat/access.h"

#include "chat/eval.h"
#include "chat/text.h"
#include "core/bytes.h"

/* Methods by the kind of their object; those that would change it. */
static const char *const str_methods =
    " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii"
    " isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip"
    " maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
    "splitlines"
    " startswith strip swapcase title translate upper zfill ";
static const char *const dict_methods = " copy fromkeys get items keys values ";
static const char *const dict_changers = " clear pop popitem setdefault update ";
static const char *const list_methods = " copy count index ";
static const char *const list_changers = " append clear extend insert pop remove reverse sort ";
static const char *const tuple_methods = " count index ";

/* Whether `name` is one of the words of `list`, which has a blank on both sides of each. */
static bool is_word(const char *list, pleat__value name) {
    if (name.n == 0 || memchr(name.s, ' ', name.n)) return false;
    for (const char *p = list; (p = memmem(p, strlen(p), name.s, name.n)); p++) {
        if (p[-1] == ' ' && p[name.n] == ' ') return true; /* no name begins where the list does, at a blank */
    }
    return false;
}

static pleat_status method_new(pleat__vm *vm, pleat__value self, pleat__value name, pleat__value *out) {
    void *p;
    PLEAT_TRY(pleat__vm_take(vm, sizeof(pleat__method), &p));
    *(pleat__method *)p = (pleat__method){self, name};
    *out = (pleat__value){.kind = PLEAT__V_METHOD, .method = p};
    return PLEAT_OK;
}

/* ---- attributes --------------------------------------------------------------------------------------------------- */

static pleat_status loop_attr(pleat__value object, pleat__value name, pleat__value *out, bool *found) {
    static const char no_previous[] = "there is no previous item", no_next[] = "there is no next item";
    pleat__loop *loop = object.loop;
    const int64_t i = loop->index0, n = loop->items->n;
    const struct {
        const char *name;
        pleat__value value;
    } all[] = {
        {"index0", pleat__value_int(i)},
        {"index", pleat__value_int(i + 1)},
        {"revindex", pleat__value_int(n - i)},
        {"revindex0", pleat__value_int(n - i - 1)},
        {"first", pleat__value_bool(i == 0)},
        {"last", pleat__value_bool(i + 1 == n)},
        {"length", pleat__value_int(n)},
        {"depth", pleat__value_int(loop->depth0 + 1)},
        {"depth0", pleat__value_int(loop->depth0)},
        {"previtem",
         i > 0 ? loop->items->items[i - 1] : pleat__undefined(PLEAT__LACK_SAID, no_previous, sizeof no_previous - 1)},
        {"nextitem",
         i + 1 < n ? loop->items->items[i + 1] : pleat__undefined(PLEAT__LACK_SAID, no_next, sizeof no_next - 1)},
        {"cycle", {.kind = PLEAT__V_FUNCTION, .sub = PLEAT__F_LOOP_CYCLE, .loop = loop}},
        {"changed", {.kind = PLEAT__V_FUNCTION, .sub = PLEAT__F_LOOP_CHANGED, .loop = loop}},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        if (!pleat__is_text(name, all[k].name)) continue;
        *found = true;
        *out = all[k].value;
    }
    return PLEAT_OK;
}

/* What getattr() would find; *found is false where there is nothing. */
static pleat_status find_attr(pleat__vm *vm, pleat__value object, pleat__value name, pleat__value *out, bool *found) {
    const char *methods = "", *changers = "";
    *found = false;
    switch (object.kind) {
        case PLEAT__V_STR: methods = str_methods; break;
        case PLEAT__V_DICT:
            methods = dict_methods;
            changers = dict_changers;
            break;
        case PLEAT__V_LIST:
            methods = list_methods;
            changers = list_changers;
            break;
        case PLEAT__V_TUPLE: methods = tuple_methods; break;
        case PLEAT__V_LOOP: return loop_attr(object, name, out, found);
        case PLEAT__V_NAMESPACE: {
            const pleat__value *value = pleat__dict_get(object.dict, name.s, name.n);
            *found = value != NULL;
            if (value) *out = *value;
            return PLEAT_OK;
        }
        case PLEAT__V_MACRO:
            *found = pleat__is_text(name, "name");
            *out = object.macro->node->value;
            return PLEAT_OK;
        default: return PLEAT_OK;
    }
    if (is_word(methods, name)) {
        *found = true;
        return method_new(vm, object, name, out);
    }
    *found = is_word(changers, name) || (name.n >= 2 && memcmp(name.s, "__", 2) == 0);
    *out = pleat__undefined(PLEAT__LACK_UNSAFE, name.s, name.n);
    return PLEAT_OK;
}

pleat_status pleat__get_attr(pleat__vm *vm, pleat__value object, pleat__value name, pleat__value *out) {
    bool found;
    if (object.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, object);
    PLEAT_TRY(find_attr(vm, object, name, out, &found));
    if (found) return PLEAT_OK;
    const pleat__value *item = object.kind == PLEAT__V_DICT ? pleat__dict_get(object.dict, name.s, name.n) : NULL;
    *out = item ? *item : pleat__undefined(PLEAT__LACK_ITEM, name.s, name.n);
    return PLEAT_OK;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static bool is_hashable(pleat__vm *vm, pleat__value v) {
    if (v.kind != PLEAT__V_TUPLE) return pleat__value_is_hashable(v);
    bool all = vm->depth < vm->max_depth;
    vm->depth++;
    for (uint32_t i = 0; all && i < v.list->n; i++) all = is_hashable(vm, v.list->items[i]);
    vm->depth--;
    return all;
}

/* The item at a place counted from the front or, negative, from the end; *found is false beyond both ends. */
static pleat_status item_at(pleat__vm *vm, pleat__value object, int64_t at, pleat__value *out, bool *found) {
    uint32_t n;
    bool has;
    PLEAT_TRY(pleat__value_length(vm, object, &n, &has));
    if (at < 0) at += n;
    *found = has && at >= 0 && at < n;
    if (!*found) return PLEAT_OK;
    if (object.kind == PLEAT__V_RANGE) {
        *out = pleat__value_int((int64_t)((uint64_t)object.range->start + (uint64_t)object.range->step * (uint64_t)at));
    } else if (object.kind == PLEAT__V_STR) {
        const uint32_t from = n == object.n ? (uint32_t)at : pleat__text_offset(object.s, object.n, (uint32_t)at);
        *out = pleat__value_str(object.s + from, pleat__char_bytes(object.s[from]));
        out->sub = object.sub;
    } else {
        *out = object.list->items[at];
    }
    return PLEAT_OK;
}

static pleat_status find_item(pleat__vm *vm, pleat__value object, pleat__value key, pleat__value *out, bool *found) {
    *found = false;
    if (object.kind == PLEAT__V_DICT) {
        pleat__value *value = NULL;
        if (is_hashable(vm, key)) PLEAT_TRY(pleat__dict_find(vm, object.dict, key, &value));
        *found = value != NULL;
        if (value) *out = *value;
        return PLEAT_OK;
    }
    const bool is_sequence = object.kind == PLEAT__V_STR || object.kind == PLEAT__V_LIST ||
                             object.kind == PLEAT__V_TUPLE || object.kind == PLEAT__V_RANGE;
    if (!is_sequence || !pleat__value_is_int(key)) return PLEAT_OK;
    return item_at(vm, object, pleat__value_to_int(key), out, found);
}

pleat_status pleat__get_item(pleat__vm *vm, pleat__value object, pleat__value key, pleat__value *out) {
    bool found;
    if (object.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, object);
    PLEAT_TRY(find_item(vm, object, key, out, &found));
    if (found) return PLEAT_OK;
    if (key.kind == PLEAT__V_STR) {
        PLEAT_TRY(find_attr(vm, object, key, out, &found));
        if (!found) *out = pleat__undefined(PLEAT__LACK_ITEM, key.s, key.n);
        return PLEAT_OK;
    }
    static const char what[] = "that item";
    *out = pleat__undefined(PLEAT__LACK_ITEM, what, sizeof what - 1);
    return PLEAT_OK;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* Python's rules: where a slice of n items begins and ends, both clipped. */
static pleat_status slice_bounds(pleat__vm *vm, const pleat__value bounds[3], int64_t n, int64_t *start, int64_t *stop,
                                 int64_t *step) {
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, bounds[i]);
        if (bounds[i].kind != PLEAT__V_NONE && !pleat__value_is_int(bounds[i])) {
            return pleat__vm_fail(vm, PLEAT_E_ARG, "a slice wants whole numbers, not a %s",
                                  pleat__value_type(bounds[i]));
        }
    }
    *step = bounds[2].kind == PLEAT__V_NONE ? 1 : pleat__value_to_int(bounds[2]);
    if (*step == 0) return pleat__vm_fail(vm, PLEAT_E_ARG, "a slice with steps of 0");
    if (*step < -n - 1) *step = -n - 1; /* so that adding it cannot wrap */
    if (*step > n + 1) *step = n + 1;
    const int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    int64_t *ends[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        const bool is_far = (i == 0) == (*step < 0); /* where the default is */
        int64_t at = is_far ? high : low;
        if (bounds[i].kind != PLEAT__V_NONE) {
            at = pleat__value_to_int(bounds[i]);
            if (at < 0) at += n;
            if (at < low) at = low;
            if (at > high) at = high;
        }
        *ends[i] = at;
    }
    return PLEAT_OK;
}

static pleat_status slice_string(pleat__vm *vm, pleat__value s, const pleat__value bounds[3], pleat__value *out) {
    int64_t start, stop, step;
    const uint32_t n = pleat__text_length(s.s, s.n);
    PLEAT_TRY(pleat__vm_charge(vm, s.n / 64));
    PLEAT_TRY(slice_bounds(vm, bounds, n, &start, &stop, &step));
    if (step == 1) {
        const uint32_t from = pleat__text_offset(s.s, s.n, (uint32_t)start);
        const uint32_t len = stop > start ? pleat__text_offset(s.s + from, s.n - from, (uint32_t)(stop - start)) : 0;
        *out = pleat__value_str(s.s + from, len);
        out->sub = s.sub;
        return PLEAT_OK;
    }
    pleat__list *chars;
    pleat__builder b = {0};
    PLEAT_TRY(pleat__value_items(vm, s, &chars));
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        PLEAT_TRY(pleat__put(vm, &b, chars->items[i].s, chars->items[i].n));
    }
    *out = pleat__built(&b);
    out->sub = s.sub;
    return PLEAT_OK;
}

pleat_status pleat__get_slice(pleat__vm *vm, pleat__value object, const pleat__value bounds[3], pleat__value *out) {
    int64_t start, stop, step;
    if (object.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, object);
    if (object.kind == PLEAT__V_STR) return slice_string(vm, object, bounds, out);
    if (object.kind != PLEAT__V_LIST && object.kind != PLEAT__V_TUPLE && object.kind != PLEAT__V_RANGE) {
        return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s cannot be sliced", pleat__value_type(object));
    }
    if (object.kind == PLEAT__V_RANGE) {
        return pleat__vm_fail(vm, PLEAT_E_UNSUPPORTED,
                              "slices of range() are not supported: use the filter list first");
    }
    PLEAT_TRY(slice_bounds(vm, bounds, object.list->n, &start, &stop, &step));
    PLEAT_TRY(pleat__list_new(vm, object.kind, 0, out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__list_add(vm, out->list, object.list->items[i]));
    }
    return PLEAT_OK;
}

/* ---- namespaces -------------------------------------------------------------------------------------------------- */

pleat_status pleat__namespace_check(pleat__vm *vm, pleat__value name) {
    if (name.kind != PLEAT__V_STR || name.n == 0 || name.s[0] != '_') return PLEAT_OK;
    return pleat__vm_fail(vm, PLEAT_E_ARG, "a namespace has no attributes that begin with an underscore, as '%.*s'",
                          name.n > 60 ? 60 : (int)name.n, name.s);
}

pleat_status pleat__namespace_set(pleat__vm *vm, pleat__dict *attrs, pleat__value name, pleat__value value) {
    PLEAT_TRY(pleat__namespace_check(vm, name));
    return pleat__dict_set(vm, attrs, name, value);
}
