/* SPDX-License-Identifier: MIT
 *
 * input.c: see input.h.
 */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/terminal.h"
#include "edit.h"

static const size_t most_bytes = (size_t)64 << 20; /* as much as a prompt may have */

struct chat_input {
    int is_terminal;
    line_editor *editor; /* NULL: none */
    char *bytes;         /* [n] read from stdin and not handed out yet */
    size_t n, cap;
    int is_at_end;
};

chat_input *input_open(void) {
    chat_input *in = cli_alloc(1, sizeof *in);
    in->is_terminal = isatty(STDIN_FILENO);
    if (in->is_terminal && terminal_can_redraw(stderr)) in->editor = edit_open();
    return in;
}

int input_is_terminal(const chat_input *in) { return in->is_terminal; }

/* Hand out the first n bytes, and forget n_gone. */
static input_kind take(chat_input *in, size_t n, size_t n_gone, char **line, size_t *n_line) {
    if (n && in->bytes[n - 1] == '\r') n--;
    *line = cli_copy(in->bytes, n);
    *n_line = n;
    in->n -= n_gone;
    memmove(in->bytes, in->bytes + n_gone, in->n);
    return INPUT_LINE;
}

/* Read what there is.  INPUT_LINE: go on looking for one. */
static input_kind fill(chat_input *in) {
    if (in->n > most_bytes) {
        cli_error("standard input: a line has more than %zu MiB", most_bytes >> 20);
        return INPUT_FAILED;
    }
    if (in->cap - in->n < 4096) {
        in->cap = in->cap ? 2 * in->cap : 1 << 16;
        char *grown = cli_alloc(in->cap, 1);
        if (in->n) memcpy(grown, in->bytes, in->n);
        free(in->bytes);
        in->bytes = grown;
    }
    if (!interrupt_wait(STDIN_FILENO)) {
        if (in->is_terminal) in->n = 0; /* as the terminal drops the rest of the line */
        return INPUT_INTERRUPT;
    }
    const ssize_t n = read(STDIN_FILENO, in->bytes + in->n, in->cap - in->n);
    if (n < 0 && errno != EINTR) {
        cli_error("cannot read standard input: %s", strerror(errno));
        return INPUT_FAILED;
    }
    in->is_at_end = n == 0;
    if (n > 0) in->n += (size_t)n;
    return INPUT_LINE;
}

static input_kind read_plain(chat_input *in, const char *prompt, char **line, size_t *n_line) {
    size_t n_looked = 0;
    if (in->is_terminal) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    for (;;) {
        const char *end = in->n > n_looked ? memchr(in->bytes + n_looked, '\n', in->n - n_looked) : NULL;
        if (end) return take(in, (size_t)(end - in->bytes), (size_t)(end - in->bytes) + 1, line, n_line);
        if (in->is_at_end && in->n) return take(in, in->n, in->n, line, n_line);
        if (in->is_at_end) return INPUT_END;
        n_looked = in->n;
        const input_kind kind = fill(in);
        if (kind != INPUT_LINE) return kind;
    }
}

input_kind input_read(chat_input *in, const char *prompt, char **line, size_t *n) {
    return in->editor ? edit_read(in->editor, prompt, line, n) : read_plain(in, prompt, line, n);
}

void input_remember(chat_input *in, const char *message) {
    if (in->editor) edit_remember(in->editor, message);
}

void input_close(chat_input **in) {
    if (!*in) return;
    edit_close((*in)->editor);
    free((*in)->bytes);
    free(*in);
    *in = NULL;
}
