/* SPDX-License-Identifier: MIT
 *
 * options_table.h: a row for each option, from which parsing, help, environment twins and the nearest valid word come.
 * For options*.c alone; commands see options.h.
 *
 *     options_table.c    the rows
 *     options_values.c   what a text means to a row, and where it goes
 *     options.c          the environment, the command line, --help
 */
#ifndef PLEAT_CLI_OPTIONS_TABLE_H
#define PLEAT_CLI_OPTIONS_TABLE_H

#include <stddef.h>

#include "options.h"

typedef enum option_kind {
    KIND_SWITCH, /* int, set to 1 */
    KIND_TEXT,   /* const char * */
    KIND_U32,
    KIND_I32,
    KIND_MASK, /* uint32_t, bits of max */
    KIND_U64,
    KIND_F32,
    KIND_SPECS,   /* spec_list; may be repeated */
    KIND_NUMBERS, /* number_list, commas between */
    KIND_FLOATS,  /* float_list, commas between */
    KIND_FORMAT,  /* out_format */
    KIND_GOAL,    /* calibration_goal */
    KIND_BYTES,   /* uint64_t, with a unit; min is 0 or 1 */
    KIND_PREEMPT, /* pleat_preemption */
    KIND_DEVICE,  /* bench_device_kind */
} option_kind;

typedef struct option_row {
    const char *group;
    const char *name;  /* after two dashes, and in the environment: PLEAT_ and the name in capitals, - as _ */
    const char *alias; /* after one dash; NULL: none */
    const char *arg;   /* NULL: a switch */
    const char *help;
    uint32_t commands; /* CMD_ bits */
    option_kind kind;
    size_t offset; /* into options */
    double min, max;
} option_row;

#define OPTION_ROWS_CAP 128
extern const option_row option_rows[];
extern const uint32_t n_option_rows; /* at most OPTION_ROWS_CAP */

/* Put `text` where the row says.  `flag` is how the user spelled it.  CLI_OK, or CLI_USAGE after a message. */
int option_set(options *o, const option_row *row, const char *flag, const char *text);

#endif
