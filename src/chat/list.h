/* SPDX-License-Identifier: MIT
 *
 * list.h: what filters and JSON do with lists as a whole.
 */
#ifndef PLEAT_CHAT_LIST_H
#define PLEAT_CHAT_LIST_H

#include "chat/value.h"

/* What an item is sorted or compared by. */
typedef pleat_status (*pleat__list_key_fn)(pleat__vm *vm, void *ctx, pleat__value item, pleat__value *key);

/* A tuple's first item. */
pleat_status pleat__list_key_first(pleat__vm *vm, void *ctx, pleat__value item, pleat__value *key);

/* A new list of the tuples (key, value). */
pleat_status pleat__list_of_pairs(pleat__vm *vm, const pleat__dict *dict, pleat__list **out);

/* Sort in place, stable; `reverse` as Python's sort has it, which keeps equal items in their order. */
pleat_status pleat__list_sort(pleat__vm *vm, pleat__list *list, pleat__list_key_fn key_of, void *ctx, bool reverse);

#endif
