/* SPDX-License-Identifier: MIT
 *
 * plan_print.h: the forms in which `pleat plan` says what it found.
 */
#ifndef PLEAT_CLI_PLAN_PRINT_H
#define PLEAT_CLI_PLAN_PRINT_H

#include "options.h"
#include "plan_figures.h"

typedef struct plan {
    const options *o;
    const char *source; /* the file, or where a known model's numbers are from */
    plan_question q;
    plan_row rows[SPECS_CAP]; /* of o->kv */
    char answers[SPECS_CAP][PLAN_ANSWER_CAP];
    int is_worth[SPECS_CAP]; /* -1: cannot be said */
} plan;

/* Print as o->format and -o say.  CLI_OK, or CLI_FAILED after a message. */
int plan_print(const plan *p);

/* The same for the known models. */
int plan_print_archs(const options *o);

#endif
