/* SPDX-License-Identifier: MIT
 *
 * half.c: the names of halves; see half.h.
 */
#include "half.h"

#include <stddef.h>

const char *const half_names[] = {"all", "even", "odd", NULL};
