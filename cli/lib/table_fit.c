/* SPDX-License-Identifier: MIT
 *
 * table_fit.c: a table for a reader, folded where it is wider than there are columns.  See table.h.
 *
 *     sheet    the table as it is read: as it stands, or turned, so that its titles are the first column
 *     part     the first column of a sheet and some of the others, which are printed beside each other
 *
 * A part's columns get widths first: the natural ones, or less, down to what cannot be parted.  Then each row is printed
 * in as many lines as its longest cell needs.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "table.h"
#include "terminal.h"
#include "utf8.h"

enum { GAP = 2, LEAST_TEXT = 12, LONGEST_UNIT = 3, TITLE_LINES = 3 };

typedef struct sheet {
    const table *t;
    int is_turned;
    uint32_t n_rows, n_cols; /* row 0 is the head */
    uint32_t limit;          /* columns of a line */
    uint32_t *width;         /* [n_cols] of the part that is being printed */
    uint32_t *least;         /* [n_cols] */
    uint8_t *is_figures;     /* [n_cols] */
    size_t *at;              /* [n_cols] bytes of the row's cells that have been printed */
} sheet;

typedef struct part {
    uint32_t from, end; /* columns beside column 0 */
} part;

static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static const char *cell(const sheet *s, uint32_t row, uint32_t col) {
    return s->is_turned ? table_cell(s->t, col, row) : table_cell(s->t, row, col);
}

/* ---- lines of a cell --------------------------------------------------------------------------- */

/* Line ends and tabs are the only control characters that a table holds. */
static int is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Whether the space at text[at], at > 0, stands in a figure: "1.5 MiB", "87.1 ± 0.4". */
static int is_in_figure(const char *text, size_t at) {
    const unsigned char before = (unsigned char)text[at - 1], behind = (unsigned char)text[at + 1];
    return (isdigit(before) && strcspn(text + at + 1, " ") <= LONGEST_UNIT) || (before >= 0x80 && isdigit(behind));
}

/* Whether a line may end in front of text[at], at > 0: at a space, or behind a mark where a word begins: "tokens/s" and
 * "k=0.2" stay whole. */
static int can_part(const char *text, size_t at) {
    if (is_space(text[at])) return !is_in_figure(text, at);
    return strchr(",+:/=_", text[at - 1]) && isalpha((unsigned char)text[at]) && isalnum((unsigned char)text[at + 1]);
}

static size_t piece_length(const char *text) {
    size_t n = 1;
    while (text[n] && !can_part(text, n)) n++;
    return n;
}

/* Columns of the longest piece. */
static uint32_t longest_piece(const char *text) {
    uint32_t most = 0;
    while (*text) {
        while (is_space(*text)) text++;
        const size_t n = *text ? piece_length(text) : 0;
        most = max_u32(most, terminal_width(text, n));
        text += n;
    }
    return most;
}

/* Bytes of a piece that fit, one character at least. */
static size_t cut_length(const char *piece, size_t n_piece, uint32_t width) {
    uint32_t character;
    size_t n = utf8_decode(piece, n_piece, &character);
    while (n < n_piece) {
        const size_t next = n + utf8_decode(piece + n, n_piece - n, &character);
        if (terminal_width(piece, next) > width) break;
        n = next;
    }
    return n;
}

/* Bytes of the text's first line of `width` columns, without spaces at its end. */
static size_t line_length(const char *text, uint32_t width) {
    size_t n = 0;
    while (text[n]) {
        size_t next = n;
        while (is_space(text[next])) next++;
        if (!text[next]) break;
        next += piece_length(text + next);
        if (terminal_width(text, next) > width) break;
        n = next;
    }
    return n || !text[0] ? n : cut_length(text, piece_length(text), width);
}

static size_t skip_spaces(const char *text, size_t at) {
    while (is_space(text[at])) at++;
    return at;
}

static uint32_t n_lines(const char *text, uint32_t width) {
    uint32_t n = 0;
    for (size_t at = skip_spaces(text, 0); text[at]; at = skip_spaces(text, at + line_length(text + at, width))) n++;
    return n;
}

/* ---- widths ------------------------------------------------------------------------------------ */

/* The column of the sheet that is column i of a part. */
static uint32_t column_of(part p, uint32_t i) { return i ? p.from + i - 1 : 0; }
static uint32_t part_columns(part p) { return 1 + p.end - p.from; }

static uint32_t text_width(const char *text) { return terminal_width(text, strlen(text)); }

/* Columns of the widest cell below the head, or of its longest piece. */
static uint32_t cells_width(const sheet *s, uint32_t col, uint32_t (*width)(const char *)) {
    uint32_t most = 0;
    for (uint32_t row = 1; row < s->n_rows; row++) most = max_u32(most, width(cell(s, row, col)));
    return most;
}

/* The fewest columns in which a title has so many lines at most. */
static uint32_t title_width(const char *title, uint32_t lines) {
    uint32_t width = longest_piece(title);
    while (n_lines(title, width) > lines) width++;
    return width;
}

static uint64_t total_width(const sheet *s, part p) {
    uint64_t sum = (uint64_t)GAP * (part_columns(p) - 1);
    for (uint32_t i = 0; i < part_columns(p); i++) sum += s->width[column_of(p, i)];
    return sum;
}

/* Titles in so many lines, cells in one. */
static int fits_with_titles(sheet *s, part p, uint32_t lines) {
    for (uint32_t i = 0; i < part_columns(p); i++) {
        const uint32_t col = column_of(p, i);
        const char *title = cell(s, 0, col);
        s->width[col] =
            max_u32(cells_width(s, col, text_width), lines > 1 ? title_width(title, lines) : text_width(title));
    }
    return total_width(s, p) <= s->limit;
}

/* The least that a column of text takes: a piece, and half of its cells or a third of the line, so that none becomes a
 * ribbon.  Columns of figures stay as wide as they are. */
static uint32_t least_width(const sheet *s, uint32_t col) {
    if (s->is_figures[col]) return UINT32_MAX;
    const uint32_t natural = cells_width(s, col, text_width);
    const uint32_t pieces = max_u32(cells_width(s, col, longest_piece), longest_piece(cell(s, 0, col)));
    return max_u32(pieces, min_u32(max_u32(natural / 2, min_u32(natural, LEAST_TEXT)), s->limit / 3));
}

/* The widest of a part's columns that have more than their least, or the sheet's n_cols. */
static uint32_t widest_to_spare(const sheet *s, part p) {
    uint32_t widest = s->n_cols;
    for (uint32_t i = 0; i < part_columns(p); i++) {
        const uint32_t col = column_of(p, i);
        if (s->width[col] > s->least[col] && (widest == s->n_cols || s->width[col] > s->width[widest])) widest = col;
    }
    return widest;
}

/* Columns of the longest line that a column of the sheet has now. */
static uint32_t longest_line(const sheet *s, uint32_t col) {
    uint32_t most = 0;
    for (uint32_t row = 0; row < s->n_rows; row++) {
        const char *text = cell(s, row, col);
        for (size_t at = skip_spaces(text, 0), n; text[at]; at = skip_spaces(text, at + n)) {
            n = line_length(text + at, s->width[col]);
            most = max_u32(most, terminal_width(text + at, n));
        }
    }
    return most;
}

/* Set the widths of a part: titles in one line or more, then less for the widest column of text until it fits, or none
 * has any more to spare. */
static int fits(sheet *s, part p) {
    for (uint32_t lines = 1; lines <= TITLE_LINES; lines++)
        if (fits_with_titles(s, p, lines)) return 1;
    uint64_t total = total_width(s, p);
    for (; total > s->limit; total--) {
        const uint32_t widest = widest_to_spare(s, p);
        if (widest == s->n_cols) return 0;
        s->width[widest]--;
    }
    for (uint32_t i = 0; i < part_columns(p); i++) s->width[column_of(p, i)] = longest_line(s, column_of(p, i));
    return 1;
}

/* ---- printing ---------------------------------------------------------------------------------- */

/* Text, its line ends and tabs as spaces. */
static void put_text(const char *text, size_t n, FILE *f) {
    for (size_t i = 0; i < n; i++) fputc(is_space(text[i]) ? ' ' : text[i], f);
}

/* Line number `line` of a row of so many lines.  Titles of fewer stand right above the cells. */
static void put_line(const sheet *s, part p, uint32_t row, uint32_t line, uint32_t height, FILE *f) {
    uint32_t n_spaces = 0;
    for (uint32_t i = 0; i < part_columns(p); i++) {
        const uint32_t col = column_of(p, i), first = row ? 0 : height - n_lines(cell(s, row, col), s->width[col]);
        const char *text = cell(s, row, col) + s->at[col];
        const size_t n = line < first ? 0 : line_length(text, s->width[col]);
        const uint32_t width = terminal_width(text, n), pad = s->width[col] > width ? s->width[col] - width : 0;
        n_spaces += (i ? GAP : 0) + (s->is_figures[col] ? pad : 0);
        if (n) {
            fprintf(f, "%*s", (int)n_spaces, "");
            put_text(text, n, f);
            n_spaces = 0;
        }
        n_spaces += s->is_figures[col] ? 0 : pad;
        s->at[col] = skip_spaces(cell(s, row, col), s->at[col] + n);
    }
}

static void put_row(const sheet *s, part p, uint32_t row, FILE *f) {
    uint32_t height = 1;
    for (uint32_t i = 0; i < part_columns(p); i++) {
        const uint32_t col = column_of(p, i);
        s->at[col] = skip_spaces(cell(s, row, col), 0);
        height = max_u32(height, n_lines(cell(s, row, col), s->width[col]));
    }
    for (uint32_t line = 0; line < height; line++) {
        fputs(row ? "" : terminal_begin(f, STYLE_HEADING), f);
        put_line(s, p, row, line, height, f);
        fputs(row ? "" : terminal_end(f), f);
        fputc('\n', f);
    }
}

static void put_part(const sheet *s, part p, FILE *f) {
    for (uint32_t row = 0; row < s->n_rows; row++) put_row(s, p, row, f);
}

/* One table below the other, each with as many of the columns as fit beside the first. */
static void put_parts(sheet *s, FILE *f) {
    part p = {1, 1};
    do {
        p = (part){p.end, s->n_cols};
        while (!fits(s, p) && p.end > p.from + 1) p.end--;
        if (p.from > 1) fputc('\n', f);
        put_part(s, p, f);
    } while (p.end < s->n_cols);
}

/* Whether each column fits beside the first. */
static int has_parts(sheet *s) {
    for (uint32_t col = 1; col < s->n_cols; col++)
        if (!fits(s, (part){col, col + 1})) return 0;
    return s->n_cols > 1;
}

/* Whether a row is known by its first cell. */
static int has_names(const sheet *s) {
    for (uint32_t row = 1; row < s->n_rows; row++)
        for (uint32_t other = 1; other < row; other++)
            if (!strcmp(cell(s, row, 0), cell(s, other, 0))) return 0;
    return 1;
}

static void init(sheet *s, const table *t, int is_turned, uint32_t limit) {
    const uint32_t n_rows = table_n_rows(t);
    *s = (sheet){.t = t, .is_turned = is_turned, .limit = limit};
    s->n_rows = is_turned ? t->n_cols : n_rows;
    s->n_cols = is_turned ? n_rows : t->n_cols;
    s->width = cli_alloc(s->n_cols, sizeof *s->width);
    s->least = cli_alloc(s->n_cols, sizeof *s->least);
    s->is_figures = cli_alloc(s->n_cols, sizeof *s->is_figures);
    s->at = cli_alloc(s->n_cols, sizeof *s->at);
    for (uint32_t col = 0; col < s->n_cols; col++) {
        s->is_figures[col] = !is_turned && table_is_figures(t, col);
        s->least[col] = least_width(s, col);
    }
}

static void release(sheet *s) {
    free(s->width);
    free(s->least);
    free(s->is_figures);
    free(s->at);
}

void table_print_aligned(const table *t, FILE *f, uint32_t columns) {
    sheet s, turned;
    init(&s, t, 0, columns);
    init(&turned, t, 1, columns);
    const part all = {1, s.n_cols};
    if (fits(&s, all) || s.n_cols <= 2) /* names and what they stand for are not turned */
        put_part(&s, all, f);
    else if (s.n_rows > s.n_cols && has_names(&s) && has_parts(&s))
        put_parts(&s, f);
    else
        put_parts(&turned, f);
    release(&turned);
    release(&s);
}
