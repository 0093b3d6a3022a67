/* SPDX-License-Identifier: MIT
 *
 * test_table.c: tables for a reader: with room enough as a plain printer has them; folded, no line is too wide while words
 * are short, every figure is there in one piece, and so is every character of the rest.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"

enum { ROWS_MAX = 9, COLS_MAX = 14 };

static const char *const words[] = {"f16",
                                    "k8v4",
                                    "leankv:ah=30,al=0.05,window=256",
                                    "h2o:budget=25%+kvcrush:share=30%",
                                    "two words",
                                    "日本語",
                                    "e\u0301tude",
                                    "tokens/s at most",
                                    "kv_recall",
                                    "",
                                    "a/path/to/some/model.gguf",
                                    "of which 12.5 MiB are held",
                                    "tab\there",
                                    "-"};
static const char *const figures[] = {"1", "0.4078", "-", "-12.5", "13.2 KiB", "1234567", "87.25 ± 0.31", "1000 MiB"};

#define PICK(list) list[check_below(CHECK_COUNT(list))]

/* Columns of figures or of words; the first one's cells differ where `has_names`. */
static void fill(table *t, uint32_t n_rows, uint32_t n_cols, int has_names) {
    const char *titles[COLS_MAX] = {NULL};
    int is_figures[COLS_MAX] = {0};
    for (uint32_t col = 0; col < n_cols; col++) {
        titles[col] = PICK(words);
        is_figures[col] = col > 0 && check_below(3) > 0;
    }
    table_init(t, titles, n_cols);
    for (uint32_t row = 0; row < n_rows; row++)
        for (uint32_t col = 0; col < n_cols; col++)
            if (col == 0 && has_names)
                table_put(t, "name-%u", row);
            else
                table_put_text(t, is_figures[col] ? PICK(figures) : PICK(words));
}

static char *printed(const table *t, uint32_t columns) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    table_print_aligned(t, f, columns);
    fclose(f);
    return text;
}

static uint32_t width(const char *s) { return terminal_width(s, strlen(s)); }

/* ---- with room enough -------------------------------------------------------------------------- */

static void put_spaces(FILE *f, uint32_t n) {
    while (n-- > 0) fputc(' ', f);
}

/* Cell by cell, each as wide as the widest of its column. */
static char *plainly(const table *t) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (uint32_t row = 0; row < table_n_rows(t); row++) {
        uint32_t n_spaces = 0;
        for (uint32_t col = 0; col < t->n_cols; col++) {
            const char *s = table_cell(t, row, col);
            uint32_t most = 0;
            for (uint32_t r = 0; r < table_n_rows(t); r++)
                if (width(table_cell(t, r, col)) > most) most = width(table_cell(t, r, col));
            const uint32_t pad = most - width(s);
            n_spaces += (col ? 2 : 0) + (table_is_figures(t, col) ? pad : 0);
            if (*s) {
                put_spaces(f, n_spaces);
                n_spaces = 0;
                for (; *s; s++) fputc(*s == '\t' ? ' ' : *s, f);
            }
            n_spaces += table_is_figures(t, col) ? 0 : pad;
        }
        fputc('\n', f);
    }
    fclose(f);
    return text;
}

static void test_plain(void) {
    for (uint64_t round = 0; round < check_rounds(2000, 200); round++) {
        table t;
        fill(&t, (uint32_t)check_below(ROWS_MAX), (uint32_t)check_between(1, COLS_MAX), check_below(2) > 0);
        char *got = printed(&t, UINT32_MAX), *want = plainly(&t);
        CHECK_EQ_STR(got, want);
        free(got);
        free(want);
        table_release(&t);
    }
}

/* ---- folded ------------------------------------------------------------------------------------ */

/* How often a figure stands there with nothing but spaces beside it. */
static uint32_t count_of(const char *text, const char *figure) {
    uint32_t n = 0;
    const size_t length = strlen(figure);
    for (const char *at = text; (at = strstr(at, figure)); at++) {
        const char before = at > text ? at[-1] : ' ', behind = at[length];
        n += (before == ' ' || before == '\n') && (behind == ' ' || behind == '\n' || !behind);
    }
    return n;
}

static uint32_t widest_line(const char *text) {
    uint32_t most = 0;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        const uint32_t n = terminal_width(text, (size_t)(end - text));
        if (n > most) most = n;
    }
    return most;
}

/* Of each byte but spaces there are no fewer than in the cells: titles and names may stand there again. */
static int has_all_bytes(const table *t, const char *text) {
    int64_t left[256] = {0};
    for (; *text; text++) left[(unsigned char)*text]++;
    for (uint32_t row = 0; row < table_n_rows(t); row++)
        for (uint32_t col = 0; col < t->n_cols; col++)
            for (const char *s = table_cell(t, row, col); *s; s++)
                if (*s != ' ' && *s != '\t') left[(unsigned char)*s]--;
    for (int i = 0; i < 256; i++)
        if (left[i] < 0) return 0;
    return 1;
}

static int has_all_figures(const table *t, const char *text) {
    for (size_t i = 0; i < CHECK_COUNT(figures); i++) {
        uint32_t n = 0;
        for (uint32_t cell = 0; cell < t->n_cells; cell++) n += !strcmp(t->cells[cell], figures[i]);
        if (count_of(text, figures[i]) < n) return 0;
    }
    return 1;
}

static void test_folded(void) {
    for (uint64_t round = 0; round < check_rounds(6000, 300); round++) {
        table t;
        const uint32_t columns = (uint32_t)check_between(1, 160);
        fill(&t, (uint32_t)check_below(ROWS_MAX), (uint32_t)check_between(1, COLS_MAX), check_below(2) > 0);
        char *text = printed(&t, columns), *whole = printed(&t, UINT32_MAX);
        check_context("%u columns:\n%s\n%s", columns, text, whole);
        CHECK(has_all_bytes(&t, text));
        CHECK(has_all_figures(&t, text));
        CHECK(columns < 60 || widest_line(text) <= columns);
        CHECK(widest_line(whole) > columns || strcmp(text, whole) == 0);
        free(text);
        free(whole);
        table_release(&t);
    }
}

/* ---- forms ------------------------------------------------------------------------------------- */

static void check_form(const table *t, uint32_t columns, const char *want) {
    char *got = printed(t, columns);
    check_context("%u columns", columns);
    CHECK_EQ_STR(got, want);
    free(got);
}

static void test_forms(void) {
    static const char *const titles[] = {"kv", "ms at least", "answer"};
    table t;
    table_init(&t, titles, 3);
    table_put(&t, "leankv:ah=3,window=64");
    table_put(&t, "12.5 MiB");
    table_put(&t, "worth it");
    check_form(&t, 44,
               "kv                     ms at least  answer\n"
               "leankv:ah=3,window=64     12.5 MiB  worth it\n");
    check_form(&t, 43,
               "                          ms at\n"
               "kv                        least  answer\n"
               "leankv:ah=3,window=64  12.5 MiB  worth it\n");
    check_form(&t, 36,
               "                 ms at\n"
               "kv               least  answer\n"
               "leankv:ah=3,  12.5 MiB  worth it\n"
               "window=64\n");
    check_form(&t, 28,
               "             leankv:ah=3,\n"
               "kv           window=64\n"
               "ms at least  12.5 MiB\n"
               "answer       worth it\n");
    table_release(&t);
}

static void test_widths(void) {
    CHECK_EQ_U64(width(""), 0);
    CHECK_EQ_U64(width("abc"), 3);
    CHECK_EQ_U64(width("日本"), 4);
    CHECK_EQ_U64(width("e\u0301"), 1);
    CHECK_EQ_U64(width("±"), 1);
    CHECK_EQ_U64(width("\xff\xfe"), 2);
}

/* ---- a model's text -------------------------------------------------------------------------- */

/* What reaches the other side of a pseudo-terminal, or a file. */
static void put_and_read(int has_terminal, const char *text, size_t n, char *got, size_t cap) {
    const int other = has_terminal ? posix_openpt(O_RDWR | O_NOCTTY) : -1;
    if (has_terminal && !CHECK(other >= 0 && grantpt(other) == 0 && unlockpt(other) == 0)) return;
    FILE *f = has_terminal ? fopen(ptsname(other), "w+") : tmpfile();
    if (!CHECK(f != NULL)) return;
    setvbuf(f, NULL, _IOFBF, 4096); /* one write, so one read */
    terminal_put_text(f, text, n);
    fflush(f);
    if (!has_terminal) rewind(f);
    const ssize_t n_got = has_terminal ? read(other, got, cap - 1) : (ssize_t)fread(got, 1, cap - 1, f);
    got[n_got > 0 ? n_got : 0] = '\0';
    fclose(f);
    if (has_terminal) close(other);
}

static void test_unknown(void) {
    static const char *const titles[] = {"kv", "accuracy", "kld", "bytes"};
    table t;
    table_init(&t, titles, 4);
    table_drop_unknown(&t);
    CHECK_EQ_U64(t.n_cols, 1); /* no rows: nothing is known but what they would be called */
    table_release(&t);
    table_init(&t, titles, 4);
    for (int row = 0; row < 2; row++) {
        table_put_text(&t, "-");
        table_put_text(&t, "-");
        table_put_number(&t, 1, row == 0 ? NAN : 0.5);
        table_put_text(&t, row == 0 ? "12" : "--");
    }
    table_drop_unknown(&t);
    char *text = printed(&t, UINT32_MAX);
    CHECK_EQ_STR(text, "kv  kld  bytes\n -    -     12\n -  0.5     --\n");
    free(text);
    table_release(&t);
}

static void test_model_text(void) {
    static const char text[] = "a\x1b[2J\tb\u00e9\xc2\x9b"
                               "1m\rc\x07\nd";
    char got[1024], many[601], want[1024];
    put_and_read(0, text, sizeof text - 1, got, sizeof got);
    CHECK_EQ_STR(got, text);
    put_and_read(1, text, sizeof text - 1, got, sizeof got);
    CHECK_EQ_STR(got, "a\\x1b[2J\tb\u00e9\\u009b"
                      "1m\\x0dc\\x07\r\nd"); /* the terminal's driver adds the \r */
    put_and_read(1, "x\0y", 3, got, sizeof got);
    CHECK_EQ_STR(got, "x\\x00y");
    for (size_t i = 0; i < 200; i++) memcpy(many + 3 * i, "\u65e5", 3); /* longer than a piece */
    many[600] = '\0';
    snprintf(want, sizeof want, "z%s", many);
    put_and_read(1, want, strlen(want), got, sizeof got);
    CHECK_EQ_STR(got, want);
}

static const check_test tests[] = {{"plain", test_plain},   {"folded", test_folded},   {"forms", test_forms},
                                   {"widths", test_widths}, {"unknown", test_unknown}, {"model_text", test_model_text}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
