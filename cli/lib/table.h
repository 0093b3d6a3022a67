/* SPDX-License-Identifier: MIT
 *
 * table.h: columns and rows of text, which print themselves aligned for a reader, as CSV (RFC 4180, with \n) or as
 * Markdown.
 *
 *     table.c        what stands in a table; CSV and Markdown
 *     table_fit.c    the form for a reader, in as many columns as there are
 */
#ifndef PLEAT_CLI_TABLE_H
#define PLEAT_CLI_TABLE_H

#include <stdint.h>
#include <stdio.h>

/* The words of a table's cells, row by row. */
typedef struct table {
    char **titles; /* [n_cols] */
    uint32_t n_cols;
    uint32_t n_cells, cap;
    char **cells; /* [n_cells]; the last row may be growing */
} table;

/* The titles are copied. */
void table_init(table *t, const char *const *titles, uint32_t n_cols);

/* Put the next cell, control characters but line ends and tabs escaped; after n_cols cells a new row begins. */
void table_put(table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Like table_put(), for text that may be longer than a line. */
void table_put_text(table *t, const char *text);

/* Put v with that many decimals, or "-" when it is not finite. */
void table_put_number(table *t, int decimals, double v);

/* Take out the columns in which every cell is "-", which say nothing to a reader.  Not the first. */
void table_drop_unknown(table *t);

void table_release(table *t);

/* Rows, the titles among them, and the cells of one; row 0 is the titles. */
uint32_t table_n_rows(const table *t);
const char *table_cell(const table *t, uint32_t row, uint32_t col);

/* Whether a column's cells are figures, which stand to the right. */
int table_is_figures(const table *t, uint32_t col);

/* Print for a reader with so many columns (UINT32_MAX: no limit).  A table that is wider is folded, by the first of these
 * that is enough; nothing is left out, and no figure is parted:
 *
 *     titles over two or three lines
 *     text and specs over several lines, behind a space or one of , : + / = _
 *     where it has more rows than columns, and first cells that differ: its columns a few at a time, each time with the
 *         first one
 *     else turned: titles at the left, a column for each row, as many beside each other as there is room for; not where
 *         there are two columns
 *
 * Where that is too narrow for a title and a figure, lines are longer. */
void table_print_aligned(const table *t, FILE *f, uint32_t columns);

/* Print for programs, and for documents. */
void table_print_csv(const table *t, FILE *f);
void table_print_md(const table *t, FILE *f);

/* Print a cell of CSV, in quotes if it needs them. */
void table_csv_cell(const char *s, FILE *f);

#endif
