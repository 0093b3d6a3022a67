/* SPDX-License-Identifier: MIT
 *
 * list.c: see list.h.
 */
#include "chat/list.h"

pleat_status pleat__list_key_first(pleat__vm *vm, void *ctx, pleat__value item, pleat__value *key) {
    (void)vm;
    (void)ctx;
    *key = item.list->items[0];
    return PLEAT_OK;
}

static pleat_status pair_new(pleat__vm *vm, pleat__value a, pleat__value b, pleat__value *out) {
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_TUPLE, 2, out));
    PLEAT_TRY(pleat__list_add(vm, out->list, a));
    return pleat__list_add(vm, out->list, b);
}

pleat_status pleat__list_of_pairs(pleat__vm *vm, const pleat__dict *dict, pleat__list **out) {
    pleat__value made, pair;
    PLEAT_TRY(pleat__list_new(vm, PLEAT__V_LIST, dict->n, &made));
    for (uint32_t i = 0; i < dict->n; i++) {
        PLEAT_TRY(pair_new(vm, dict->pairs[i].key, dict->pairs[i].value, &pair));
        PLEAT_TRY(pleat__list_add(vm, made.list, pair));
    }
    *out = made.list;
    return pleat__vm_charge(vm, dict->n);
}

/* An item beside the key that it is sorted by. */
typedef struct keyed {
    pleat__value key, item;
} keyed;

/* Whether b has to stand before a, which is on its left. */
static pleat_status is_before(pleat__vm *vm, const keyed *b, const keyed *a, bool reverse, bool *out) {
    int order;
    PLEAT_TRY(pleat__vm_charge(vm, 1));
    PLEAT_TRY(pleat__value_compare(vm, b->key, a->key, &order));
    *out = order != 2 && (reverse ? order > 0 : order < 0);
    return PLEAT_OK;
}

/* Merge from[low..middle) and from[middle..high) into to[low..high). */
static pleat_status merge(pleat__vm *vm, const keyed *from, keyed *to, uint32_t low, uint32_t middle, uint32_t high,
                          bool reverse) {
    uint32_t a = low, b = middle;
    for (uint32_t i = low; i < high; i++) {
        bool takes_b = a == middle;
        if (a < middle && b < high) PLEAT_TRY(is_before(vm, &from[b], &from[a], reverse, &takes_b));
        to[i] = takes_b ? from[b++] : from[a++];
    }
    return PLEAT_OK;
}

pleat_status pleat__list_sort(pleat__vm *vm, pleat__list *list, pleat__list_key_fn key_of, void *ctx, bool reverse) {
    const uint32_t n = list->n;
    void *p, *q;
    PLEAT_TRY(pleat__vm_take(vm, (uint64_t)n * sizeof(keyed), &p));
    PLEAT_TRY(pleat__vm_take(vm, (uint64_t)n * sizeof(keyed), &q));
    keyed *from = p, *to = q;
    for (uint32_t i = 0; i < n; i++) {
        from[i].item = list->items[i];
        PLEAT_TRY(key_of(vm, ctx, list->items[i], &from[i].key));
    }
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t low = 0; low < n; low += 2 * width) {
            const uint64_t middle = low + width < n ? low + width : n, high = middle + width < n ? middle + width : n;
            PLEAT_TRY(merge(vm, from, to, (uint32_t)low, (uint32_t)middle, (uint32_t)high, reverse));
        }
        keyed *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < n; i++) list->items[i] = from[i].item;
    return PLEAT_OK;
}
