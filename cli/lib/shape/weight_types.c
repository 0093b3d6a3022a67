/* SPDX-License-Identifier: MIT
 *
 * weight_types.c: see weight_types.h.
 */
#include "weight_types.h"

#include <stddef.h>
#include <string.h>

#define ROW(type, name, number, block_values, block_bytes) {name, number, block_values, block_bytes},
const weight_type weight_types[N_WEIGHT_TYPES] = {WEIGHT_TYPES(ROW)};

#define NAME(type, name, number, block_values, block_bytes) name,
const char *const weight_type_names[N_WEIGHT_TYPES + 1] = {WEIGHT_TYPES(NAME) NULL};

const weight_type *weight_type_of(const char *name) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPES; i++)
        if (!strcmp(name, weight_types[i].name)) return &weight_types[i];
    return NULL;
}
