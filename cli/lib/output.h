/* SPDX-License-Identifier: MIT
 *
 * output.h: where results go (stdout or -o FILE) and the forms they take (a table, or JSON).
 *
 * Tables are table.h's.  JSON is built by each command with jansson and printed here.
 */
#ifndef PLEAT_CLI_OUTPUT_H
#define PLEAT_CLI_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "common.h"
#include "measure.h"
#include "options.h"
#include "table.h"
#include "whole_file.h"

typedef struct output {
    FILE *file;       /* where to print */
    const char *path; /* NULL: stdout */
    whole_file whole; /* a path that is written as it is */
    char *text;       /* else what was printed, until output_close(): the file is as it was while the work goes on */
    size_t n_text;
    out_format format;
    int is_incomplete; /* something could not be printed, and a message has said so */
    int is_done;       /* even nothing is a result */
} output;

/* Whether every file that is written is one by itself, whatever its spelling: neither one that is read, which would be
 * lost, and a mapped model with it, nor one that is written by another option too.  stdout is one where it leads to a file.
 * CLI_OK, or CLI_FAILED after a message. */
int output_check_names(const common_options *common);

/* Open what -o names (-: stdout).  CLI_OK, or CLI_FAILED after a message. */
int output_open(output *out, const common_options *common);

/* What was printed so far leaves at once.  0 where it cannot: output_close() will say why. */
int output_flush(output *out);

/* Flush and close; CLI_FAILED after a message if not every byte could be written.  A file stays as it was if nothing was
 * printed and the output is not done. */
int output_close(output *out);

/* Print `root` as indented JSON and a newline, and drop the reference to it.  NULL, what jansson makes of values that it
 * cannot hold, is an error that output_close() reports. */
void output_json(output *out, json_t *root);

/* A JSON text of any bytes: what is no UTF-8 becomes U+FFFD. */
json_t *json_text(const char *text);

/* A JSON number, or null when v is not finite, which JSON cannot say. */
json_t *json_number(double v);

/* {"min", "median", "max"} */
json_t *json_spread(measure_spread s);

/* Print the table as out->format says; JSON is no table. */
void table_write(const table *t, output *out);

/* Print rows that exist in both forms: {"rows": rows, "skipped": skipped} as JSON, without the latter where it is NULL, or
 * else the table.  The caller keeps all of them. */
void output_rows(output *out, json_t *rows, json_t *skipped, const table *t);

/* The end of a command that makes such rows: print them if `code` is CLI_OK, close, and let go of all three.  `code`, or
 * what output_close() says. */
int output_end_rows(output *out, int code, json_t *rows, json_t *skipped, table *t);

/* CLI_OK, or CLI_FAILED after a message where a benchmark has no rows: nothing was left to measure, and `why`. */
int output_check_rows(const json_t *rows, const char *why);

#define BYTES_CAP 32
/* "13.2 KiB": four figures or fewer and a binary unit. */
const char *print_bytes(char buf[BYTES_CAP], uint64_t n);

#endif
