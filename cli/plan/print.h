/* SPDX-License-Identifier: MIT
 *
 * print.h: the forms in which `pleat plan` says what it found.
 */
#ifndef PLEAT_CLI_PLAN_PRINT_H
#define PLEAT_CLI_PLAN_PRINT_H

#include "cli/lib/options.h"
#include "figures.h"

typedef struct plan_options {
    common_options common;
    const char *model, *arch, *config;                /* one of them; NULL: not given */
    const char *weights;                              /* NULL: not given */
    const char *text;                                 /* NULL: not given */
    uint64_t device_bytes, bandwidth, swap_bandwidth; /* bytes, bytes/s; 0: not given */
    float prefill, fraction;                          /* tokens/s; 0: not given */
    spec_list kv;
    uint32_t ctx, n_seqs; /* tokens stored in each sequence, 0: the model's; sequences */
    uint32_t ctx_size;    /* tokens that a sequence is opened for; 0: ctx */
    uint32_t n_shared;    /* first tokens that all sequences have from one kept prefix */
    int32_t n_predict;    /* tokens that a request generates; -1: not said */
} plan_options;

typedef struct plan {
    const plan_options *o;
    const char *source; /* the file, or where a known model's numbers are from */
    plan_question q;
    pleat_forecast samples[SPECS_CAP]; /* with o->text: what it says of o->kv */
    plan_row rows[SPECS_CAP];          /* of o->kv */
    char answers[SPECS_CAP][PLAN_ANSWER_CAP];
    int is_worth[SPECS_CAP]; /* -1: cannot be said */
} plan;

/* Print as --format and -o say.  CLI_OK, or CLI_FAILED after a message. */
int plan_print(const plan *p);

/* The same for the known models. */
int plan_print_archs(const common_options *common);

#endif
