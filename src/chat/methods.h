/* SPDX-License-Identifier: MIT
 *
 * methods.h: what Python's strings, dicts, lists and tuples can be asked to do.
 */
#ifndef PLEAT_CHAT_METHODS_H
#define PLEAT_CHAT_METHODS_H

#include "chat/eval.h"

pleat_status pleat__call_method(pleat__vm *vm, const pleat__method *method, const pleat__args *args, pleat__value *out);

/* A new dict view of this kind. */
pleat_status pleat__view_new(pleat__vm *vm, const pleat__dict *dict, pleat__view view, pleat__value *out);

/* ---- parts that filters use, too --------------------------------------------------------------------------------- */

typedef enum pleat__side { PLEAT__LEFT = 1, PLEAT__RIGHT = 2, PLEAT__BOTH = 3 } pleat__side;

/* strip(): without the characters of `chars` at its ends; NULL: blanks. */
pleat__value pleat__str_strip(pleat__value s, const pleat__value *chars, pleat__side side);
pleat_status pleat__str_replace(pleat__vm *vm, pleat__value s, pleat__value old, pleat__value new, int64_t most,
                                pleat__value *out);
pleat_status pleat__str_case(pleat__vm *vm, pleat__value s, pleat__case to, pleat__value *out);
pleat_status pleat__str_capitalize(pleat__vm *vm, pleat__value s, pleat__value *out);
pleat_status pleat__str_center(pleat__vm *vm, pleat__value s, int64_t width, uint32_t fill, pleat__side pad,
                               pleat__value *out);
/* The lines of a text, without what ends them. */
pleat_status pleat__str_lines(pleat__vm *vm, pleat__value s, bool keep_ends, pleat__value *out);
pleat_status pleat__str_join(pleat__vm *vm, pleat__value between, const pleat__list *items, bool any_kind,
                             pleat__value *out);
/* islower() or isupper(). */
bool pleat__str_is_case(pleat__value s, pleat__case which);

#endif
