/* SPDX-License-Identifier: MIT
 *
 * page.h: the report's HTML: one page without scripts, its figures as inline SVG.
 */
#ifndef PLEAT_CLI_REPORT_PAGE_H
#define PLEAT_CLI_REPORT_PAGE_H

#include <stdio.h>

#include "data.h"

/* Write the whole page.  Write errors are left in `file`. */
void report_write_page(FILE *file, evaluation *e, const report_data *data);

/* ---- its figures (figures.c) ----------------------------------------------------------------- */

/* Accuracy, and perplexity, against bytes, a point for each spec. */
void report_write_memory(FILE *file, const evaluation *e);

/* What was run: each spec with its number, and what kind of cache it is. */
void report_write_specs(FILE *file, const evaluation *e);

/* What row `i`'s policy keeps, per layer, and per KV head of the layers shown. */
void report_write_kept(FILE *file, const report_data *data, uint32_t i);

/* Tokens needed for REPORT_MASS of the attention, in the same places. */
void report_write_needed(FILE *file, const report_data *data);

/* Distributions of significance and of value norms. */
void report_write_spread(FILE *file, const report_data *data);

/* What one request's cache holds, step by step. */
void report_write_trace(FILE *file, const report_data *data);

/* The row whose spec is plain f16, which others are measured against; the first row if there is none. */
const score_row *report_reference(const evaluation *e);

#endif
