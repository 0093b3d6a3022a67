/* SPDX-License-Identifier: MIT
 *
 * table.c: see table.h.
 */
#include "table.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "utf8.h"

/* Text of files may hold escape sequences: none of them reaches a terminal. */
static char *shown(const char *text) {
    char *out = cli_alloc(UTF8_ESCAPED_CAP(strlen(text)), 1);
    return utf8_escape(text, "\n\r\t", out);
}

void table_init(table *t, const char *const *titles, uint32_t n_cols) {
    *t = (table){.titles = cli_alloc(n_cols, sizeof *t->titles), .n_cols = n_cols};
    for (uint32_t i = 0; i < n_cols; i++) t->titles[i] = shown(titles[i]);
}

void table_put_text(table *t, const char *text) {
    if (t->n_cells == t->cap) {
        const uint32_t cap = t->cap ? t->cap * 2 : 64;
        char **grown = cli_alloc(cap, sizeof *grown);
        if (t->n_cells) memcpy(grown, t->cells, t->n_cells * sizeof *grown);
        free(t->cells);
        t->cells = grown;
        t->cap = cap;
    }
    t->cells[t->n_cells++] = shown(text);
}

void table_put(table *t, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    table_put_text(t, text);
}

void table_put_number(table *t, int decimals, double v) {
    if (isfinite(v))
        table_put(t, "%.*f", decimals, v);
    else
        table_put_text(t, "-");
}

static int is_known(const table *t, uint32_t col) {
    for (uint32_t i = col; i < t->n_cells; i += t->n_cols)
        if (strcmp(t->cells[i], "-") != 0) return 1;
    return col == 0;
}

void table_drop_unknown(table *t) {
    char *keeps = cli_alloc(t->n_cols, 1);
    uint32_t n_cols = 0, n_cells = 0;
    for (uint32_t col = 0; col < t->n_cols; col++) keeps[col] = (char)is_known(t, col);
    for (uint32_t i = 0; i < t->n_cells; i++) {
        if (keeps[i % t->n_cols])
            t->cells[n_cells++] = t->cells[i];
        else
            free(t->cells[i]);
    }
    for (uint32_t col = 0; col < t->n_cols; col++) {
        if (keeps[col])
            t->titles[n_cols++] = t->titles[col];
        else
            free(t->titles[col]);
    }
    free(keeps);
    t->n_cells = n_cells;
    t->n_cols = n_cols;
}

void table_release(table *t) {
    for (uint32_t i = 0; i < t->n_cells; i++) free(t->cells[i]);
    for (uint32_t i = 0; i < t->n_cols; i++) free(t->titles[i]);
    free(t->cells);
    free(t->titles);
    *t = (table){0};
}

const char *table_cell(const table *t, uint32_t row, uint32_t col) {
    return row ? t->cells[(row - 1) * t->n_cols + col] : t->titles[col];
}

uint32_t table_n_rows(const table *t) { return 1 + t->n_cells / t->n_cols; }

int table_is_figures(const table *t, uint32_t col) {
    for (uint32_t row = 1; row < table_n_rows(t); row++) {
        const char *s = table_cell(t, row, col);
        if (!isdigit((unsigned char)s[0]) && s[0] != '-') return 0;
    }
    return table_n_rows(t) > 1;
}

/* Other control characters have been escaped: shown(). */
static int is_space(char c) { return c == '\n' || c == '\r' || c == '\t'; }

void table_csv_cell(const char *s, FILE *f) {
    if (!strpbrk(s, ",\"\r\n")) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"') fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void write_md_cell(const char *s, FILE *f) {
    for (; *s; s++) {
        if (*s == '|')
            fputs("\\|", f);
        else if (*s == '\n')
            fputs("<br>", f);
        else
            fputc(is_space(*s) ? ' ' : *s, f);
    }
}

void table_print_csv(const table *t, FILE *f) {
    for (uint32_t row = 0; row < table_n_rows(t); row++)
        for (uint32_t col = 0; col < t->n_cols; col++) {
            table_csv_cell(table_cell(t, row, col), f);
            fputc(col + 1 == t->n_cols ? '\n' : ',', f);
        }
}

void table_print_md(const table *t, FILE *f) {
    for (uint32_t row = 0; row < table_n_rows(t); row++) {
        for (uint32_t col = 0; col < t->n_cols; col++) {
            fputs(col ? " | " : "| ", f);
            write_md_cell(table_cell(t, row, col), f);
        }
        fputs(" |\n", f);
        for (uint32_t col = 0; row == 0 && col < t->n_cols; col++)
            fprintf(f, "|%s%s", table_is_figures(t, col) ? "---:" : "---", col + 1 == t->n_cols ? "|\n" : "");
    }
}
