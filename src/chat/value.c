/* SPDX-License-Identifier: MIT
 *
 * value.c: lists and dicts, truth, equality and order.  See value.h.
 */
#include "chat/value.h"

#include <math.h>

#include "chat/text.h"

#define FEW_PAIRS 8u /* up to here a dict is searched from its start */

/* ---- lists ------------------------------------------------------------------------------------------------------- */

pleat_status pleat__list_new(pleat__vm *vm, pleat__kind kind, uint32_t cap, pleat__value *out) {
    void *p;
    PLEAT_TRY(pleat__vm_take(vm, sizeof(pleat__list), &p));
    pleat__list *list = p;
    *list = (pleat__list){.cap = cap};
    PLEAT_TRY(pleat__vm_take(vm, (uint64_t)cap * sizeof *list->items, &p));
    list->items = p;
    *out = (pleat__value){.kind = (uint8_t)kind, .list = list};
    return PLEAT_OK;
}

pleat_status pleat__list_add(pleat__vm *vm, pleat__list *list, pleat__value item) {
    if (list->n == list->cap) {
        void *p;
        if (list->cap > UINT32_MAX / 2) return pleat__vm_fail(vm, PLEAT_E_LIMIT, "a list is too long");
        const uint32_t cap = list->cap < 4 ? 4 : 2 * list->cap;
        PLEAT_TRY(pleat__vm_take(vm, (uint64_t)cap * sizeof *list->items, &p));
        if (list->n > 0) memcpy(p, list->items, list->n * sizeof *list->items);
        list->items = p;
        list->cap = cap;
    }
    list->items[list->n++] = item;
    return PLEAT_OK;
}

/* ---- dicts ------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    return x ^ (x >> 29);
}

static uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
    return mix(h);
}

/* Numbers that are equal have the same hash, whatever their kind. */
static uint64_t hash_number(pleat__value v) {
    if (v.kind != PLEAT__V_FLOAT) return mix((uint64_t)pleat__value_to_int(v));
    if (v.f >= -9e18 && v.f <= 9e18 && v.f == floor(v.f)) return mix((uint64_t)(int64_t)v.f);
    uint64_t bits;
    memcpy(&bits, &v.f, sizeof bits);
    return mix(bits);
}

static pleat_status hash(pleat__vm *vm, pleat__value v, uint64_t *out) {
    if (v.kind == PLEAT__V_STR) {
        *out = hash_bytes(v.s, v.n);
        return pleat__vm_charge(vm, v.n / 64);
    }
    if (pleat__value_is_number(v)) {
        *out = hash_number(v);
        return PLEAT_OK;
    }
    *out = v.kind;
    if (v.kind == PLEAT__V_TUPLE) {
        PLEAT_TRY(pleat__vm_enter(vm));
        for (uint32_t i = 0; i < v.list->n; i++) {
            uint64_t h;
            PLEAT_TRY(pleat__vm_charge(vm, 1));
            PLEAT_TRY(hash(vm, v.list->items[i], &h));
            *out = mix(*out * 31 + h);
        }
        pleat__vm_leave(vm);
        return PLEAT_OK;
    }
    if (pleat__value_is_hashable(v)) return PLEAT_OK;
    return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s cannot be a dict's key", pleat__value_type(v));
}

pleat_status pleat__dict_new(pleat__vm *vm, pleat__value *out) {
    void *p;
    PLEAT_TRY(pleat__vm_take(vm, sizeof(pleat__dict), &p));
    *(pleat__dict *)p = (pleat__dict){0};
    *out = (pleat__value){.kind = PLEAT__V_DICT, .dict = p};
    return PLEAT_OK;
}

static bool key_is(const pleat__pair *pair, uint64_t h, const char *s, size_t n) {
    return pair->hash == h && pair->key.kind == PLEAT__V_STR && pair->key.n == n && memcmp(pair->key.s, s, n) == 0;
}

/* The pair with this key, or NULL.  `key` is compared in full only where the hashes are the same. */
static pleat_status find(pleat__vm *vm, const pleat__dict *dict, pleat__value key, uint64_t h, pleat__pair **out) {
    *out = NULL;
    const uint32_t n_places = dict->index ? dict->index_cap : dict->n;
    for (uint32_t k = 0; k < n_places; k++) {
        const uint32_t place = dict->index ? dict->index[(h + k) & (dict->index_cap - 1)] : k + 1;
        if (place == 0) break;
        pleat__pair *pair = &dict->pairs[place - 1];
        if (k >= FEW_PAIRS) PLEAT_TRY(pleat__vm_charge(vm, 1)); /* keys made to have places side by side */
        if (pair->hash != h) continue;
        bool same = false;
        if (key.kind == PLEAT__V_STR)
            same = key_is(pair, h, key.s, key.n);
        else
            PLEAT_TRY(pleat__value_equal(vm, pair->key, key, &same));
        if (same) {
            *out = pair;
            return PLEAT_OK;
        }
    }
    return PLEAT_OK;
}

static void enter_index(pleat__dict *dict, uint32_t i) {
    uint64_t k = dict->pairs[i].hash;
    while (dict->index[k & (dict->index_cap - 1)]) k++;
    dict->index[k & (dict->index_cap - 1)] = i + 1;
}

static pleat_status grow(pleat__vm *vm, pleat__dict *dict) {
    void *p;
    if (dict->cap > UINT32_MAX / 4) return pleat__vm_fail(vm, PLEAT_E_LIMIT, "a dict is too large");
    const uint32_t cap = dict->cap ? 2 * dict->cap : 4;
    PLEAT_TRY(pleat__vm_take(vm, (uint64_t)cap * sizeof *dict->pairs, &p));
    if (dict->n > 0) memcpy(p, dict->pairs, dict->n * sizeof *dict->pairs);
    dict->pairs = p;
    dict->cap = cap;
    if (cap <= FEW_PAIRS) return PLEAT_OK;
    PLEAT_TRY(pleat__vm_take(vm, (uint64_t)2 * cap * sizeof *dict->index, &p));
    dict->index = memset(p, 0, (size_t)2 * cap * sizeof *dict->index);
    dict->index_cap = 2 * cap;
    for (uint32_t i = 0; i < dict->n; i++) enter_index(dict, i);
    return PLEAT_OK;
}

pleat_status pleat__dict_set(pleat__vm *vm, pleat__dict *dict, pleat__value key, pleat__value value) {
    uint64_t h;
    pleat__pair *pair;
    PLEAT_TRY(hash(vm, key, &h));
    PLEAT_TRY(find(vm, dict, key, h, &pair));
    if (pair) {
        pair->value = value;
        return PLEAT_OK;
    }
    if (dict->n == dict->cap) PLEAT_TRY(grow(vm, dict));
    dict->pairs[dict->n] = (pleat__pair){.key = key, .value = value, .hash = h};
    if (dict->index) enter_index(dict, dict->n);
    dict->n++;
    return PLEAT_OK;
}

pleat_status pleat__dict_find(pleat__vm *vm, const pleat__dict *dict, pleat__value key, pleat__value **out) {
    uint64_t h;
    pleat__pair *pair;
    PLEAT_TRY(hash(vm, key, &h));
    PLEAT_TRY(find(vm, dict, key, h, &pair));
    *out = pair ? &pair->value : NULL;
    return PLEAT_OK;
}

pleat__value *pleat__dict_get(const pleat__dict *dict, const char *name, size_t n) {
    const uint64_t h = hash_bytes(name, n);
    const uint32_t n_places = dict->index ? dict->index_cap : dict->n;
    for (uint32_t k = 0; k < n_places; k++) {
        const uint32_t place = dict->index ? dict->index[(h + k) & (dict->index_cap - 1)] : k + 1;
        if (place == 0) return NULL;
        if (key_is(&dict->pairs[place - 1], h, name, n)) return &dict->pairs[place - 1].value;
    }
    return NULL;
}

/* ---- what a value is --------------------------------------------------------------------------------------------- */

const char *pleat__value_type(pleat__value v) {
    static const char *const names[PLEAT__N_KINDS] = {
        [PLEAT__V_UNDEFINED] = "Undefined", [PLEAT__V_NONE] = "NoneType",
        [PLEAT__V_BOOL] = "bool",           [PLEAT__V_INT] = "int",
        [PLEAT__V_FLOAT] = "float",         [PLEAT__V_STR] = "str",
        [PLEAT__V_LIST] = "list",           [PLEAT__V_TUPLE] = "tuple",
        [PLEAT__V_ITER] = "iterator",       [PLEAT__V_VIEW] = "dict view",
        [PLEAT__V_DICT] = "dict",           [PLEAT__V_NAMESPACE] = "namespace",
        [PLEAT__V_RANGE] = "range",         [PLEAT__V_METHOD] = "method",
        [PLEAT__V_MACRO] = "macro",         [PLEAT__V_LOOP] = "loop",
        [PLEAT__V_FUNCTION] = "function"};
    return names[v.kind];
}

bool pleat__value_is_hashable(pleat__value v) {
    return v.kind != PLEAT__V_LIST && v.kind != PLEAT__V_DICT &&
           !(v.kind == PLEAT__V_VIEW && v.sub != PLEAT__VIEW_VALUES);
}

bool pleat__value_truth(pleat__value v) {
    switch (v.kind) {
        case PLEAT__V_UNDEFINED:
        case PLEAT__V_NONE: return false;
        case PLEAT__V_BOOL: return v.b;
        case PLEAT__V_INT: return v.i != 0;
        case PLEAT__V_FLOAT: return v.f != 0; /* NaN is true */
        case PLEAT__V_STR: return v.n > 0;
        case PLEAT__V_LIST:
        case PLEAT__V_TUPLE:
        case PLEAT__V_VIEW: return v.list->n > 0;
        case PLEAT__V_DICT: return v.dict->n > 0;
        case PLEAT__V_RANGE: return v.range->n > 0;
        default: return true;
    }
}

pleat_status pleat__undefined_fail(pleat__vm *vm, pleat__value v) {
    const int n = v.n > 120 ? 120 : (int)v.n;
    switch ((pleat__lack)v.sub) {
        case PLEAT__LACK_NAME: return pleat__vm_fail(vm, PLEAT_E_ARG, "'%.*s' is undefined", n, v.s);
        case PLEAT__LACK_ITEM:
            return pleat__vm_fail(vm, PLEAT_E_ARG, "'%.*s' is undefined: what it is asked of has none", n, v.s);
        case PLEAT__LACK_SAID: return pleat__vm_fail(vm, PLEAT_E_ARG, "%.*s", n, v.s);
        case PLEAT__LACK_UNSAFE: break;
    }
    return pleat__vm_fail(vm, PLEAT_E_ARG, "'%.*s' changes its object or is private, which templates may not use", n,
                          v.s);
}

/* ---- equality and order ------------------------------------------------------------------------------------------ */

static int sign_of(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

/* Both are numbers.  An integer against a float is compared exactly as long as the float is below 2^63. */
static int compare_numbers(pleat__value a, pleat__value b) {
    if (a.kind != PLEAT__V_FLOAT && b.kind != PLEAT__V_FLOAT) {
        return sign_of(pleat__value_to_int(a), pleat__value_to_int(b));
    }
    const double x = pleat__value_to_float(a), y = pleat__value_to_float(b);
    if (isnan(x) || isnan(y)) return 2;
    if (x != y || (a.kind == PLEAT__V_FLOAT && b.kind == PLEAT__V_FLOAT)) return x < y ? -1 : x > y;
    if (fabs(x) >= 9223372036854775807.0) return a.kind == PLEAT__V_FLOAT ? (x > 0 ? 1 : -1) : (y > 0 ? -1 : 1);
    return a.kind == PLEAT__V_FLOAT ? sign_of((int64_t)x, pleat__value_to_int(b))
                                    : sign_of(pleat__value_to_int(a), (int64_t)y);
}

/* By bytes, which is the order of code points. */
static int compare_strings(pleat__value a, pleat__value b) {
    const uint32_t n = a.n < b.n ? a.n : b.n;
    const int c = n > 0 ? memcmp(a.s, b.s, n) : 0;
    return c ? (c < 0 ? -1 : 1) : sign_of(a.n, b.n);
}

static pleat_status equal_lists(pleat__vm *vm, const pleat__list *a, const pleat__list *b, bool *out) {
    *out = a->n == b->n;
    for (uint32_t i = 0; *out && i < a->n; i++) {
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__value_equal(vm, a->items[i], b->items[i], out));
    }
    return PLEAT_OK;
}

static pleat_status equal_dicts(pleat__vm *vm, const pleat__dict *a, const pleat__dict *b, bool *out) {
    *out = a->n == b->n;
    for (uint32_t i = 0; *out && i < a->n; i++) {
        pleat__value *other;
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__dict_find(vm, b, a->pairs[i].key, &other));
        *out = other != NULL;
        if (other) PLEAT_TRY(pleat__value_equal(vm, a->pairs[i].value, *other, out));
    }
    return PLEAT_OK;
}

static bool equal_ranges(const pleat__range *a, const pleat__range *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static pleat_status equal_nested(pleat__vm *vm, pleat__value a, pleat__value b, bool *out) {
    PLEAT_TRY(pleat__vm_enter(vm));
    if (a.kind == PLEAT__V_DICT)
        PLEAT_TRY(equal_dicts(vm, a.dict, b.dict, out));
    else
        PLEAT_TRY(equal_lists(vm, a.list, b.list, out));
    pleat__vm_leave(vm);
    return PLEAT_OK;
}

pleat_status pleat__value_equal(pleat__vm *vm, pleat__value a, pleat__value b, bool *out) {
    if (pleat__value_is_number(a) && pleat__value_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return PLEAT_OK;
    }
    *out = false;
    if (a.kind != b.kind) return PLEAT_OK;
    switch (a.kind) {
        case PLEAT__V_UNDEFINED:
        case PLEAT__V_NONE: *out = true; return PLEAT_OK;
        case PLEAT__V_STR:
            *out = a.n == b.n && compare_strings(a, b) == 0;
            return pleat__vm_charge(vm, *out ? a.n / 64 : 0);
        case PLEAT__V_LIST:
        case PLEAT__V_TUPLE:
        case PLEAT__V_DICT: return equal_nested(vm, a, b, out);
        case PLEAT__V_RANGE: *out = equal_ranges(a.range, b.range); return PLEAT_OK;
        case PLEAT__V_FUNCTION: *out = a.sub == b.sub && a.loop == b.loop; return PLEAT_OK;
        default: *out = a.list == b.list; return PLEAT_OK;
    }
}

static pleat_status compare_lists(pleat__vm *vm, const pleat__list *a, const pleat__list *b, int *out) {
    PLEAT_TRY(pleat__vm_enter(vm));
    const uint32_t n = a->n < b->n ? a->n : b->n;
    bool same = true;
    uint32_t i = 0;
    for (; same && i < n; i++) {
        PLEAT_TRY(pleat__vm_charge(vm, 1));
        PLEAT_TRY(pleat__value_equal(vm, a->items[i], b->items[i], &same));
    }
    *out = sign_of(a->n, b->n);
    if (!same) PLEAT_TRY(pleat__value_compare(vm, a->items[i - 1], b->items[i - 1], out));
    pleat__vm_leave(vm);
    return PLEAT_OK;
}

pleat_status pleat__value_compare(pleat__vm *vm, pleat__value a, pleat__value b, int *out) {
    if (a.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, a);
    if (b.kind == PLEAT__V_UNDEFINED) return pleat__undefined_fail(vm, b);
    if (pleat__value_is_number(a) && pleat__value_is_number(b)) {
        *out = compare_numbers(a, b);
        return PLEAT_OK;
    }
    if (a.kind == PLEAT__V_STR && b.kind == PLEAT__V_STR) {
        *out = compare_strings(a, b);
        return pleat__vm_charge(vm, (a.n < b.n ? a.n : b.n) / 64);
    }
    if (a.kind == b.kind && (a.kind == PLEAT__V_LIST || a.kind == PLEAT__V_TUPLE)) {
        return compare_lists(vm, a.list, b.list, out);
    }
    return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s and a %s have no order", pleat__value_type(a), pleat__value_type(b));
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

bool pleat__value_is_iterable(pleat__value v) {
    switch (v.kind) {
        case PLEAT__V_NONE:
        case PLEAT__V_BOOL:
        case PLEAT__V_INT:
        case PLEAT__V_FLOAT:
        case PLEAT__V_NAMESPACE:
        case PLEAT__V_METHOD:
        case PLEAT__V_MACRO:
        case PLEAT__V_FUNCTION: return false;
        default: return true;
    }
}

static pleat_status items_of_string(pleat__vm *vm, pleat__value v, pleat__list *list) {
    for (uint32_t i = 0; i < v.n;) {
        const uint32_t len = pleat__char_bytes(v.s[i]);
        PLEAT_TRY(pleat__list_add(vm, list, pleat__value_str(v.s + i, len)));
        i += len;
    }
    return pleat__vm_charge(vm, list->n);
}

static pleat_status items_of_iterator(pleat__vm *vm, pleat__value v, pleat__list *list) {
    pleat__list *from = v.list;
    if (v.sub) return pleat__vm_fail(vm, PLEAT_E_ARG, "a filter was handed a value that it cannot iterate over");
    for (; from->at < from->n; from->at++) PLEAT_TRY(pleat__list_add(vm, list, from->items[from->at]));
    return pleat__vm_charge(vm, list->n);
}

pleat_status pleat__value_items(pleat__vm *vm, pleat__value v, pleat__list **out) {
    if (v.kind == PLEAT__V_LIST || v.kind == PLEAT__V_TUPLE || v.kind == PLEAT__V_VIEW) {
        *out = v.list;
        return PLEAT_OK;
    }
    pleat__value made;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, 4, &made));
    *out = made.list;
    switch (v.kind) {
        case PLEAT__V_UNDEFINED: return PLEAT_OK;
        case PLEAT__V_STR: return items_of_string(vm, v, made.list);
        case PLEAT__V_ITER: return items_of_iterator(vm, v, made.list);
        case PLEAT__V_DICT:
            for (uint32_t i = 0; i < v.dict->n; i++) {
                PLEAT_TRY(pleat__list_add(vm, made.list, v.dict->pairs[i].key));
            }
            return pleat__vm_charge(vm, made.list->n);
        case PLEAT__V_RANGE:
            for (uint32_t i = 0; i < v.range->n; i++) {
                const int64_t x = (int64_t)((uint64_t)v.range->start + (uint64_t)v.range->step * i);
                PLEAT_TRY(pleat__list_add(vm, made.list, pleat__value_int(x)));
            }
            return pleat__vm_charge(vm, made.list->n);
        default: return pleat__vm_fail(vm, PLEAT_E_ARG, "a %s cannot be iterated over", pleat__value_type(v));
    }
}

pleat_status pleat__value_length(pleat__vm *vm, pleat__value v, uint32_t *out, bool *has) {
    *has = true;
    switch (v.kind) {
        case PLEAT__V_UNDEFINED: *out = 0; return PLEAT_OK;
        case PLEAT__V_STR: *out = pleat__text_length(v.s, v.n); return pleat__vm_charge(vm, v.n / 64);
        case PLEAT__V_LIST:
        case PLEAT__V_TUPLE:
        case PLEAT__V_VIEW: *out = v.list->n; return PLEAT_OK;
        case PLEAT__V_DICT: *out = v.dict->n; return PLEAT_OK;
        case PLEAT__V_RANGE: *out = v.range->n; return PLEAT_OK;
        default: *has = false; return PLEAT_OK;
    }
}
