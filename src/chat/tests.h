/* SPDX-License-Identifier: MIT
 *
 * tests.h: value is name(arguments).
 */
#ifndef PLEAT_CHAT_TESTS_H
#define PLEAT_CHAT_TESTS_H

#include "chat/eval.h"

/* The test's number, or -1 if there is none of this name.  All of jinja2's are here. */
int pleat__test_find(pleat__value name);

pleat_status pleat__test_apply(pleat__vm *vm, int id, pleat__value v, const pleat__args *args, bool *out);

#endif
