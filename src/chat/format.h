/* SPDX-License-Identifier: MIT
 *
 * format.h: "..." % values and "...".format(...).
 *
 * Of format()'s fields: numbers and names with .attribute and [item] behind them, !r and !s, and
 * the fill, alignment, sign, width, precision and type of what stands behind the colon.  Fields inside that part are
 * not supported.
 */
#ifndef PLEAT_CHAT_FORMAT_H
#define PLEAT_CHAT_FORMAT_H

#include "chat/eval.h"

/* text % values: a tuple's items one after the other, a dict's by name, anything else as the only value. */
pleat_status pleat__format_percent(pleat__vm *vm, pleat__value text, pleat__value values, pleat__value *out);

pleat_status pleat__format_braces(pleat__vm *vm, pleat__value text, const pleat__args *args, pleat__value *out);

#endif
