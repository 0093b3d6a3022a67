/* SPDX-License-Identifier: MIT
 *
 * report.h: `pleat eval --report FILE`: one HTML page with the rows and what lies behind them.
 *
 *     report_check      before anything long: can FILE be written?
 *     report_begin      watch the evaluation's requests: what do the policies keep of them?
 *     (the evaluation)
 *     report_finish     look at attention itself, follow one request, write the page
 *
 * The page is complete or not there: it is written beside FILE under another name and moved over it at the end.
 */
#ifndef PLEAT_CLI_REPORT_H
#define PLEAT_CLI_REPORT_H

#include "data.h"

/* CLI_OK, or CLI_FAILED after a message if `path` cannot be written or is a file that the command reads or writes. */
int report_check(const score_options *o, const char *path);

/* A report that will be written to `path`.  Set the watches of e's rows.  `e` and its rows stay where they are until
 * report_release(). */
report_data *report_begin(evaluation *e, const char *path);

/* The requests that follow are none of the report's. */
void report_unwatch(evaluation *e);

/* Gather the rest and write the page.  CLI_OK, or CLI_FAILED after a message. */
int report_finish(report_data *report, evaluation *e);

/* Free and set *report to NULL.  *report == NULL is fine. */
void report_release(report_data **report);

#endif
