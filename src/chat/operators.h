/* SPDX-License-Identifier: MIT
 *
 * operators.h: + - * / // % ** and comparisons, as Python has them.
 */
#ifndef PLEAT_CHAT_OPERATORS_H
#define PLEAT_CHAT_OPERATORS_H

#include "chat/ast.h"

pleat_status pleat__binary(pleat__vm *vm, pleat__op op, pleat__value a, pleat__value b, pleat__value *out);
pleat_status pleat__negative(pleat__vm *vm, pleat__value a, pleat__value *out);
pleat_status pleat__positive(pleat__vm *vm, pleat__value a, pleat__value *out);

/* a op b for the comparisons, `in` and `not in`. */
pleat_status pleat__relation(pleat__vm *vm, pleat__op op, pleat__value a, pleat__value b, bool *out);
pleat_status pleat__contains(pleat__vm *vm, pleat__value container, pleat__value item, bool *out);

#endif
