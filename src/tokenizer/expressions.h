/* SPDX-License-Identifier: MIT
 *
 * expressions.h: the pre-tokenizers' table.
 */
#ifndef PLEAT_TOKENIZER_EXPRESSIONS_H
#define PLEAT_TOKENIZER_EXPRESSIONS_H

#include "tokenizer/pretokenize.h"

typedef struct pleat__expressions {
    const char *names; /* each with a space behind it */
    pleat__pretokenizer_traits traits;
    const char *cuts[PLEAT__MAX_CUTS]; /* in their order; NULL behind the last */
} pleat__expressions;

extern const pleat__expressions pleat__expressions_table[];
extern const uint32_t pleat__n_expressions;

#endif
