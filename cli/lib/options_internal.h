/* SPDX-License-Identifier: MIT
 *
 * options_internal.h: what the files behind options.h share.
 */
#ifndef PLEAT_CLI_OPTIONS_INTERNAL_H
#define PLEAT_CLI_OPTIONS_INTERNAL_H

#include "options.h"

#define OPTION_FLAG_CAP 64

/* Who gave an option its value. */
typedef enum option_source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_LINE } option_source;

/* A command's options on their way. */
typedef struct option_parse {
    const command *c;
    char *opts;           /* [c->options_bytes] */
    const char *defaults; /* [c->options_bytes] */
    option_source source[OPTION_ROWS_CAP];
    char flag[OPTION_ROWS_CAP][OPTION_FLAG_CAP]; /* as the user spelled it, "" for a default */
} option_parse;

/* Put `text` where the row says.  `flag` is how the user spelled it.  CLI_OK, or CLI_USAGE after a message. */
int option_set(void *opts, const option_row *row, const char *flag, const char *text);

/* CLI_OK if what was given goes together and nothing is missing, or CLI_USAGE after a message. */
int options_check(option_parse *p);

#endif
