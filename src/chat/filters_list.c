/* SPDX-License-Identifier: MIT
 *
 * filters_list.c: filters of sequences.
 *
 * map, select and their kin return an iterator in Python, which computes its items when they are asked for.  Here they are
 * computed at once; what can be told of the result is the same, but that an error in an item nobody asks for is one.
 * That a value cannot be walked at all is told when somebody walks the iterator.
 */
#include "chat/access.h"
#include "chat/filters.h"
#include "chat/list.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/tests.h"

/* ---- what an item is looked at by -------------------------------------------------------------------------------- */

/* An attribute's path, as "function.name" or "0"; and whether the case of strings counts. */
typedef struct key_of {
    pleat__value path;    /* none: the item itself */
    pleat__value missing; /* in place of what is not there; a missing argument: nothing */
    bool folds_case;
} key_of;

static bool is_number(pleat__value v) {
    uint32_t i = 0;
    while (i < v.n && v.s[i] >= '0' && v.s[i] <= '9') i++;
    return v.n > 0 && i == v.n;
}

static pleat_status follow_path(pleat__vm *vm, const key_of *k, pleat__value item, pleat__value *out) {
    *out = item;
    if (k->path.kind == PLEAT__V_NONE) return PLEAT_OK;
    if (k->path.kind == PLEAT__V_INT) return pleat__get_item(vm, item, k->path, out);
    if (k->path.kind != PLEAT__V_STR) return pleat__vm_fail(vm, PLEAT_E_ARG, "an attribute's name has to be a str");
    for (uint32_t at = 0; at <= k->path.n;) {
        const char *dot = k->path.n > at ? memchr(k->path.s + at, '.', k->path.n - at) : NULL;
        const uint32_t end = dot ? (uint32_t)(dot - k->path.s) : k->path.n;
        pleat__value part = pleat__value_str(k->path.s + at, end - at);
        int64_t number;
        if (is_number(part) && pleat__text_to_int(part.s, part.n, 10, &number)) {
            part = pleat__value_int(number);
        }
        PLEAT_TRY(pleat__get_item(vm, *out, part, out));
        if (out->kind == PLEAT__V_UNDEFINED && !pleat__is_missing(k->missing)) *out = k->missing;
        at = end + 1;
    }
    return PLEAT_OK;
}

static pleat_status fold(pleat__vm *vm, const key_of *k, pleat__value *v) {
    if (!k->folds_case || v->kind != PLEAT__V_STR) return PLEAT_OK;
    return pleat__str_case(vm, *v, PLEAT__CASE_LOWER, v);
}

static pleat_status key_by(pleat__vm *vm, void *ctx, pleat__value item, pleat__value *out) {
    const key_of *k = ctx;
    PLEAT_TRY(pleat__vm_charge(vm, 1));
    PLEAT_TRY(follow_path(vm, k, item, out));
    return fold(vm, k, out);
}

static key_of key_new(pleat__value attribute, pleat__value case_sensitive) {
    const bool folds = pleat__is_missing(case_sensitive) || !pleat__value_truth(case_sensitive);
    return (key_of){.path = pleat__is_missing(attribute) ? PLEAT__NONE : attribute,
                    .missing = pleat__undefined(PLEAT__LACK_SAID, NULL, 0),
                    .folds_case = folds};
}

static bool is_set(pleat__value v) { return !pleat__is_missing(v) && pleat__value_truth(v); }

/* A copy that may be sorted. */
static pleat_status copy_of(pleat__vm *vm, pleat__value v, pleat__kind kind, pleat__value *out) {
    pleat__list *items;
    PLEAT_TRY(pleat__value_items(vm, v, &items));
    PLEAT_TRY(pleat__list_new(vm, kind, items->n, out));
    for (uint32_t i = 0; i < items->n; i++) PLEAT_TRY(pleat__list_add(vm, out->list, items->items[i]));
    return pleat__vm_charge(vm, items->n);
}

/* What a filter that returns an iterator walks: *items is NULL where that would fail, which shows when somebody walks the
 * iterator *out, as in Python. */
static pleat_status begin_iterator(pleat__vm *vm, pleat__value v, bool is_walkable, pleat__list **items,
                                   pleat__value *out) {
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_ITER, 0, out));
    out->sub = !is_walkable;
    *items = NULL;
    return is_walkable ? pleat__value_items(vm, v, items) : PLEAT_OK;
}

/* ---- ends, order --------------------------------------------------------------------------------------------------- */

static pleat__value no_item(void) {
    static const char why[] = "there was no item, the sequence was empty";
    return pleat__undefined(PLEAT__LACK_SAID, why, sizeof why - 1);
}

pleat_status pleat__filter_first(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, "first", 0, "", NULL));
    if (v.kind == PLEAT__V_ITER && !v.sub) { /* takes one and leaves the others */
        *out = v.list->at < v.list->n ? v.list->items[v.list->at++] : no_item();
        return PLEAT_OK;
    }
    PLEAT_TRY(pleat__value_items(run->vm, v, &items));
    *out = items->n ? items->items[0] : no_item();
    return PLEAT_OK;
}

pleat_status pleat__filter_last(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, "last", 0, "", NULL));
    if (v.kind == PLEAT__V_ITER)
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "last: an iterator cannot be walked backwards");
    PLEAT_TRY(pleat__value_items(run->vm, v, &items));
    *out = items->n ? items->items[items->n - 1] : no_item();
    return PLEAT_OK;
}

pleat_status pleat__filter_list(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "list", 0, "", NULL));
    return copy_of(run->vm, v, PLEAT__V_LIST, out);
}

pleat_status pleat__filter_reverse(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "reverse", 0, "", NULL));
    PLEAT_TRY(copy_of(run->vm, v, v.kind == PLEAT__V_ITER ? PLEAT__V_LIST : PLEAT__V_ITER, out));
    pleat__list *list = out->list;
    for (uint32_t i = 0, k = list->n; i + 1 < k; i++) {
        const pleat__value swap = list->items[i];
        list->items[i] = list->items[--k];
        list->items[k] = swap;
    }
    if (v.kind != PLEAT__V_STR) return PLEAT_OK;
    return pleat__str_join(run->vm, pleat__value_text(""), list, true, out);
}

pleat_status pleat__filter_sort(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[3];
    PLEAT_TRY(pleat__bind(run->vm, args, "sort", 0, "reverse case_sensitive attribute", a));
    key_of key = key_new(a[2], a[1]);
    if (key.path.kind == PLEAT__V_STR && memchr(key.path.s, ',', key.path.n)) {
        return pleat__vm_fail(run->vm, PLEAT_E_UNSUPPORTED, "sort by several attributes is not supported");
    }
    PLEAT_TRY(copy_of(run->vm, v, PLEAT__V_LIST, out));
    return pleat__list_sort(run->vm, out->list, key_by, &key, is_set(a[0]));
}

pleat_status pleat__filter_dictsort(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[3], pairs;
    PLEAT_TRY(pleat__bind(run->vm, args, "dictsort", 0, "case_sensitive by reverse", a));
    const bool by_key = pleat__is_missing(a[1]) || pleat__is_text(a[1], "key");
    if (!by_key && !pleat__is_text(a[1], "value"))
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "dictsort: by is 'key' or 'value'");
    if (v.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(run->vm, v);
    if (v.kind != PLEAT__V_DICT) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "dictsort wants a dict");
    key_of key = key_new(pleat__value_int(by_key ? 0 : 1), a[0]);
    PLEAT_TRY(pleat__view_new(run->vm, v.dict, PLEAT__VIEW_ITEMS, &pairs));
    *out = (pleat__value){.kind = PLEAT__V_LIST, .list = pairs.list};
    return pleat__list_sort(run->vm, out->list, key_by, &key, is_set(a[2]));
}

static pleat_status extreme(pleat__run *run, pleat__value v, const pleat__args *args, bool largest, pleat__value *out) {
    pleat__value a[2], best = PLEAT__NONE, now;
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, largest ? "max" : "min", 0, "case_sensitive attribute", a));
    PLEAT_TRY(pleat__value_items(run->vm, v, &items));
    key_of key = key_new(a[1], a[0]);
    *out = no_item();
    for (uint32_t i = 0; i < items->n; i++) {
        int order = 0;
        PLEAT_TRY(key_by(run->vm, &key, items->items[i], &now));
        if (i > 0) PLEAT_TRY(pleat__value_compare(run->vm, now, best, &order));
        if (i > 0 && (order == 2 || (largest ? order <= 0 : order >= 0))) continue;
        best = now;
        *out = items->items[i];
    }
    return PLEAT_OK;
}

pleat_status pleat__filter_max(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return extreme(run, v, args, true, out);
}

pleat_status pleat__filter_min(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return extreme(run, v, args, false, out);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

pleat_status pleat__filter_items(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    PLEAT_TRY(pleat__bind(run->vm, args, "items", 0, "", NULL));
    if (v.kind != PLEAT__V_DICT) {
        pleat__list *none;
        return begin_iterator(run->vm, v, v.kind == PLEAT__V_UNDEFINED, &none, out);
    }
    PLEAT_TRY(pleat__view_new(run->vm, v.dict, PLEAT__VIEW_ITEMS, out));
    out->sub = 0;
    out->kind = PLEAT__V_ITER;
    return PLEAT_OK;
}

pleat_status pleat__filter_join(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2], between = pleat__value_text(""), picked;
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, "join", 0, "d attribute", a));
    PLEAT_TRY(pleat__value_items(run->vm, v, &items));
    if (!pleat__is_missing(a[0])) PLEAT_TRY(pleat__to_str(run->vm, a[0], &between));
    if (!pleat__is_missing(a[1]) && a[1].kind != PLEAT__V_NONE) {
        key_of key = key_new(a[1], pleat__value_bool(true));
        PLEAT_TRY(pleat__list_new(run->vm, PLEAT__V_LIST, items->n, &picked));
        for (uint32_t i = 0; i < items->n; i++) {
            pleat__value one;
            PLEAT_TRY(key_by(run->vm, &key, items->items[i], &one));
            PLEAT_TRY(pleat__list_add(run->vm, picked.list, one));
        }
        items = picked.list;
    }
    return pleat__str_join(run->vm, between, items, true, out);
}

pleat_status pleat__filter_sum(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2], one;
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, "sum", 0, "attribute start", a));
    PLEAT_TRY(pleat__value_items(run->vm, v, &items));
    key_of key = key_new(a[0], pleat__value_bool(true));
    *out = pleat__is_missing(a[1]) ? pleat__value_int(0) : a[1];
    if (out->kind == PLEAT__V_STR) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "sum does not add strings: use join");
    for (uint32_t i = 0; i < items->n; i++) {
        PLEAT_TRY(key_by(run->vm, &key, items->items[i], &one));
        PLEAT_TRY(pleat__binary(run->vm, PLEAT__OP_ADD, *out, one, out));
    }
    return PLEAT_OK;
}

pleat_status pleat__filter_unique(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__value a[2], seen, key, *old;
    pleat__list *items;
    PLEAT_TRY(pleat__bind(run->vm, args, "unique", 0, "case_sensitive attribute", a));
    PLEAT_TRY(begin_iterator(run->vm, v, pleat__value_is_iterable(v), &items, out));
    if (!items) return PLEAT_OK;
    key_of by = key_new(a[1], a[0]);
    PLEAT_TRY(pleat__dict_new(run->vm, &seen));
    for (uint32_t i = 0; i < items->n; i++) {
        PLEAT_TRY(key_by(run->vm, &by, items->items[i], &key));
        PLEAT_TRY(pleat__dict_find(run->vm, seen.dict, key, &old));
        if (old) continue;
        PLEAT_TRY(pleat__dict_set(run->vm, seen.dict, key, PLEAT__NONE));
        PLEAT_TRY(pleat__list_add(run->vm, out->list, items->items[i]));
    }
    return PLEAT_OK;
}

/* ---- map, select ----------------------------------------------------------------------------------------------------- */

/* The arguments behind the first n. */
static pleat_status args_behind(pleat__vm *vm, const pleat__args *args, uint32_t n, pleat__args *out) {
    pleat__value plain;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, args->plain->n, &plain));
    for (uint32_t i = n; i < args->plain->n; i++) PLEAT_TRY(pleat__list_add(vm, plain.list, args->plain->items[i]));
    *out = (pleat__args){plain.list, args->named};
    return PLEAT_OK;
}

static pleat_status map_attribute(pleat__run *run, pleat__list *items, const pleat__args *args, pleat__value *out) {
    pleat__value a[2], one;
    PLEAT_TRY(pleat__bind(run->vm, args, "map", 1, "attribute default", a));
    key_of key = key_new(a[0], pleat__value_bool(true));
    if (!pleat__is_missing(a[1]) && a[1].kind != PLEAT__V_NONE) key.missing = a[1];
    for (uint32_t i = 0; i < items->n; i++) {
        PLEAT_TRY(key_by(run->vm, &key, items->items[i], &one));
        PLEAT_TRY(pleat__list_add(run->vm, out->list, one));
    }
    return PLEAT_OK;
}

pleat_status pleat__filter_map(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    pleat__list *items;
    pleat__args rest;
    pleat__value one;
    if (!pleat__value_truth(v)) return pleat__list_new(run->vm, PLEAT__V_ITER, 0, out);
    PLEAT_TRY(begin_iterator(run->vm, v, pleat__value_is_iterable(v), &items, out));
    if (!items) return PLEAT_OK;
    if (args->plain->n == 0 && pleat__dict_get(args->named, "attribute", 9))
        return map_attribute(run, items, args, out);
    if (args->plain->n == 0 || args->plain->items[0].kind != PLEAT__V_STR) {
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "map wants a filter's name or attribute=");
    }
    const pleat__value name = args->plain->items[0];
    const int id = pleat__filter_find(name);
    if (id < 0) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "map: there is no filter '%.*s' here", (int)name.n, name.s);
    PLEAT_TRY(args_behind(run->vm, args, 1, &rest));
    for (uint32_t i = 0; i < items->n; i++) {
        PLEAT_TRY(pleat__vm_charge(run->vm, 1));
        PLEAT_TRY(pleat__vm_enter(run->vm));
        PLEAT_TRY(pleat__filter_apply(run, id, items->items[i], &rest, &one));
        pleat__vm_leave(run->vm);
        PLEAT_TRY(pleat__list_add(run->vm, out->list, one));
    }
    return PLEAT_OK;
}

/* select, reject, selectattr, rejectattr: items for which a test, or truth where none is named, comes out as wanted. */
static pleat_status choose(pleat__run *run, pleat__value v, const pleat__args *args, bool by_attr, bool wanted,
                           pleat__value *out) {
    pleat__list *items;
    pleat__args rest;
    const uint32_t at = by_attr ? 1 : 0;
    if (!pleat__value_truth(v)) return pleat__list_new(run->vm, PLEAT__V_ITER, 0, out);
    PLEAT_TRY(begin_iterator(run->vm, v, pleat__value_is_iterable(v), &items, out));
    if (!items) return PLEAT_OK;
    if (by_attr && args->plain->n == 0)
        return pleat__vm_fail(run->vm, PLEAT_E_ARG, "selectattr wants an attribute's name");
    const key_of key = key_new(by_attr ? args->plain->items[0] : PLEAT__NONE, pleat__value_bool(true));
    int id = -1;
    if (args->plain->n > at) {
        const pleat__value name = args->plain->items[at];
        id = name.kind == PLEAT__V_STR ? pleat__test_find(name) : -1;
        if (id < 0) return pleat__vm_fail(run->vm, PLEAT_E_ARG, "select: there is no such test");
    }
    PLEAT_TRY(args_behind(run->vm, args, at + 1, &rest));
    for (uint32_t i = 0; i < items->n; i++) {
        pleat__value one;
        PLEAT_TRY(key_by(run->vm, (void *)(uintptr_t)&key, items->items[i], &one));
        bool holds = pleat__value_truth(one);
        if (id >= 0) PLEAT_TRY(pleat__test_apply(run->vm, id, one, &rest, &holds));
        if (holds == wanted) PLEAT_TRY(pleat__list_add(run->vm, out->list, items->items[i]));
    }
    return PLEAT_OK;
}

pleat_status pleat__filter_select(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return choose(run, v, args, false, true, out);
}

pleat_status pleat__filter_reject(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return choose(run, v, args, false, false, out);
}

pleat_status pleat__filter_selectattr(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return choose(run, v, args, true, true, out);
}

pleat_status pleat__filter_rejectattr(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out) {
    return choose(run, v, args, true, false, out);
}
