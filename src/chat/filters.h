/* SPDX-License-Identifier: MIT
 *
 * filters.h: value|name(arguments).
 *
 * filters.c has the table and what works on one value, filters_list.c what works on sequences.
 */
#ifndef PLEAT_CHAT_FILTERS_H
#define PLEAT_CHAT_FILTERS_H

#include "chat/eval.h"

/* The filter's number, or -1 if there is none of this name. */
int pleat__filter_find(pleat__value name);
/* Whether jinja2 has a filter of this name that is not supported here. */
bool pleat__filter_is_left_out(pleat__value name);

pleat_status pleat__filter_apply(pleat__run *run, int id, pleat__value input, const pleat__args *args,
                                 pleat__value *out);

typedef pleat_status (*pleat__filter_fn)(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);

/* ---- of filters_list.c --------------------------------------------------------------------------------------------- */

pleat_status pleat__filter_dictsort(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_first(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_items(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_join(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_last(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_list(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_map(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_max(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_min(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_reject(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_rejectattr(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_reverse(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_select(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_selectattr(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_sort(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_sum(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);
pleat_status pleat__filter_unique(pleat__run *run, pleat__value v, const pleat__args *args, pleat__value *out);

#endif
