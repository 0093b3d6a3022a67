/* SPDX-License-Identifier: MIT
 *
 * edit.c: see edit.h.  PLEAT_EDITLINE is 1 where the build has libedit.
 *
 * Characters are read here rather than by libedit, which would take a Ctrl-C for a key that is to be waited for again.
 */
#include "edit.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/lib/common.h"

#if PLEAT_EDITLINE
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/interrupt.h"
#include "cli/lib/utf8.h"

enum { HISTORY_MESSAGES = 1000 };

static const char paste_begin[] = "\033[200~"; /* what terminals put around a paste when they are asked to */
static const wchar_t paste_end[] = L"\033[201~";
static const char marks_on[] = "\033[?2004h", marks_off[] = "\033[?2004l";

struct line_editor {
    EditLine *el;
    History *history;
    const char *prompt; /* of the line that is read */
    int was_empty;      /* when Ctrl-C came */
};

const char *edit_describe(void) {
    static char text[32];
    snprintf(text, sizeof text, "libedit %d.%d", LIBEDIT_MAJOR, LIBEDIT_MINOR);
    return text;
}

static line_editor *editor_of(EditLine *el) {
    void *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return e;
}

static char *prompt_of(EditLine *el) { return (char *)editor_of(el)->prompt; }

/* One character; bytes that are none become U+FFFD.  1, 0 at the end, or -1 for Ctrl-C. */
static int read_character(EditLine *el, wchar_t *out) {
    char bytes[4];
    for (size_t n = 1; n <= sizeof bytes; n++) {
        if (!interrupt_wait(STDIN_FILENO)) {
            const LineInfo *line = el_line(el);
            editor_of(el)->was_empty = line->lastchar == line->buffer;
            return -1;
        }
        if (read(STDIN_FILENO, &bytes[n - 1], 1) <= 0) return 0;
        uint32_t character;
        const size_t length = utf8_decode(bytes, n, &character);
        const unsigned char first = (unsigned char)bytes[0];
        const size_t wanted = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        *out = (wchar_t)character;
        if (length == n && character != 0xFFFD) return 1;
        if (n >= wanted) break;
    }
    *out = 0xFFFD;
    return 1;
}

/* Put a paste in the line, up to the mark behind it: line ends as they are, other control characters left out. */
static unsigned char insert_paste(EditLine *el, int key) {
    const size_t n_end = sizeof paste_end / sizeof *paste_end - 1;
    size_t n = 0, cap = 256;
    wchar_t *text = cli_alloc(cap, sizeof *text), character;
    (void)key;
    while (read_character(el, &character) == 1) {
        if (n + 2 > cap) {
            wchar_t *grown = cli_alloc(2 * cap, sizeof *grown);
            memcpy(grown, text, n * sizeof *text);
            free(text);
            text = grown;
            cap *= 2;
        }
        text[n++] = character == L'\r' ? L'\n' : character;
        if (n >= n_end && wmemcmp(text + n - n_end, paste_end, n_end) == 0) {
            n -= n_end;
            break;
        }
    }
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] >= L' ' || text[i] == L'\n' || text[i] == L'\t') text[n_kept++] = text[i];
    while (n_kept && text[n_kept - 1] == L'\n') n_kept--; /* it would stand where Enter is awaited */
    text[n_kept] = 0;
    if (n_kept) el_winsertstr(el, text);
    free(text);
    return CC_REFRESH;
}

/* libedit counts columns by the C library's locale.  Numbers keep their points: no more than characters change. */
static void use_utf8(void) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

line_editor *edit_open(void) {
    HistEvent event;
    int has_editing = 0;
    use_utf8();
    line_editor *e = cli_alloc(1, sizeof *e);
    e->el = el_init("pleat", stdin, stderr, stderr);
    e->history = history_init();
    if (!e->el || !e->history) {
        edit_close(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, HISTORY_MESSAGES);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_HIST, history, e->history);
    el_set(e->el, EL_GETCFN, read_character);
    el_wset(e->el, EL_ADDFN, L"pleat-paste", L"Insert a paste", insert_paste); /* el_set() would leak copies */
    el_set(e->el, EL_BIND, paste_begin, "pleat-paste", NULL);
    el_source(e->el, NULL);
    el_get(e->el, EL_EDITMODE, &has_editing);
    if (has_editing) return e;
    edit_close(e);
    return NULL;
}

input_kind edit_read(line_editor *e, const char *prompt, char **line, size_t *n) {
    int n_read = 0;
    e->prompt = prompt;
    e->was_empty = 1;
    el_resize(e->el); /* the window may have another size than for the last line */
    fputs(marks_on, stderr);
    fflush(stderr);
    const char *text = el_gets(e->el, &n_read);
    fputs(marks_off, stderr);
    fflush(stderr);
    if (interrupt_came()) return e->was_empty ? INPUT_INTERRUPT : INPUT_DROPPED;
    if (!text || n_read <= 0) return INPUT_END;
    *n = (size_t)n_read;
    if (text[*n - 1] == '\n') --*n;
    *line = cli_copy(text, *n);
    return INPUT_LINE;
}

void edit_remember(line_editor *e, const char *message) {
    HistEvent event;
    history(e->history, &event, H_ENTER, message);
}

void edit_close(line_editor *e) {
    if (!e) return;
    if (e->el) el_end(e->el);
    if (e->history) history_end(e->history);
    free(e);
}

#else

struct line_editor {
    int unused;
};

const char *edit_describe(void) { return "no libedit"; }

line_editor *edit_open(void) { return NULL; }

input_kind edit_read(line_editor *e, const char *prompt, char **line, size_t *n) {
    (void)e, (void)prompt, (void)line, (void)n;
    return INPUT_END;
}

void edit_remember(line_editor *e, const char *message) { (void)e, (void)message; }

void edit_close(line_editor *e) { free(e); }

#endif
