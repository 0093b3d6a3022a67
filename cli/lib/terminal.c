/* SPDX-License-Identifier: MIT
 *
 * terminal.c: see terminal.h.
 */
#include "terminal.h"

#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "utf8.h"

static const char *const codes[] = {
    [STYLE_DIM] = "\033[2m", [STYLE_HEADING] = "\033[1m", [STYLE_ERROR] = "\033[1;31m", [STYLE_NOTE] = "\033[33m"};

static int is_terminal(FILE *f) { return isatty(fileno(f)); } /* a file in memory has the number -1 */

int terminal_can_redraw(FILE *f) {
    const char *term = getenv("TERM");
    return term && term[0] && strcmp(term, "dumb") != 0 && is_terminal(f);
}

int terminal_has_styles(FILE *f) {
    const char *no_color = getenv("NO_COLOR");
    return !(no_color && no_color[0]) && terminal_can_redraw(f);
}

const char *terminal_begin(FILE *f, terminal_style style) { return terminal_has_styles(f) ? codes[style] : ""; }

const char *terminal_end(FILE *f) { return terminal_has_styles(f) ? "\033[0m" : ""; }

void terminal_put_text(FILE *f, const char *text, size_t n) {
    enum { PIECE = 256 };
    char escaped[UTF8_ESCAPED_CAP(PIECE)];
    if (!is_terminal(f)) {
        fwrite(text, 1, n, f);
        return;
    }
    while (n > 0) {
        size_t n_piece = n < PIECE ? n : PIECE;
        while (n_piece < n && n_piece > PIECE - 4 && ((unsigned char)text[n_piece] & 0xC0) == 0x80) n_piece--;
        fputs(utf8_escape_bytes(text, n_piece, "\n\t", escaped), f);
        text += n_piece;
        n -= n_piece;
    }
}

/* What COLUMNS says; 0: nothing. */
static uint32_t asked_columns(void) {
    const char *text = getenv("COLUMNS");
    char *end;
    if (!text || !isdigit((unsigned char)text[0])) return 0;
    const unsigned long n = strtoul(text, &end, 10);
    return *end || n > 65535 ? 0 : (uint32_t)n;
}

uint32_t terminal_columns(FILE *f) {
    struct winsize size;
    const int has_terminal = is_terminal(f);
    const uint32_t asked = has_terminal || f == stdout ? asked_columns() : 0;
    if (asked) return asked;
    if (has_terminal && ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col) return size.ws_col;
    return UINT32_MAX;
}

/* ---- widths ------------------------------------------------------------------------------------ */

/* Columns of one character.  The C library knows; the command's own locale stays C, whose numbers have points. */
static uint32_t width_of(uint32_t character) {
    static locale_t utf8;
    if (character < 0x80) return 1;
    if (!utf8) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    if (!utf8) return 1;
    const locale_t before = uselocale(utf8);
    const int n = wcwidth((wchar_t)character);
    uselocale(before);
    return n < 0 ? 1 : (uint32_t)n;
}

uint32_t terminal_width(const char *text, size_t n) {
    uint32_t columns = 0;
    for (size_t at = 0; at < n;) {
        uint32_t character;
        at += utf8_decode(text + at, n - at, &character);
        columns += width_of(character);
    }
    return columns;
}
