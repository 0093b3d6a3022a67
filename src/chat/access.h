/* SPDX-License-Identifier: MIT
 *
 * access.h: object.name, object[key], object[a:b:c], and what namespaces allow.
 *
 * As in jinja2's sandbox, a dot asks for an attribute first and for an item then, and brackets the other way round.  What
 * is not there is undefined.  What would change its object, as a list's append(), is undefined too, and says so when it is
 * called.
 */
#ifndef PLEAT_CHAT_ACCESS_H
#define PLEAT_CHAT_ACCESS_H

#include "chat/value.h"

pleat_status pleat__get_attr(pleat__vm *vm, pleat__value object, pleat__value name, pleat__value *out);
pleat_status pleat__get_item(pleat__vm *vm, pleat__value object, pleat__value key, pleat__value *out);

/* bounds: start, stop and step, each a whole number or none. */
pleat_status pleat__get_slice(pleat__vm *vm, pleat__value object, const pleat__value bounds[3], pleat__value *out);

/* Names that begin with an underscore are not for namespaces. */
pleat_status pleat__namespace_check(pleat__vm *vm, pleat__value name);
pleat_status pleat__namespace_set(pleat__vm *vm, pleat__dict *attrs, pleat__value name, pleat__value value);

#endif
