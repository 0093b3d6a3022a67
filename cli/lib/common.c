/* SPDX-License-Identifier: MIT
 *
 * common.c: see common.h.
 */
#include "common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "progress.h"
#include "terminal.h"
#include "utf8.h"

static const char *command_name = "";

void cli_set_command(const char *name) { command_name = name; }

/* Names and texts of files may hold what a terminal obeys.  Without memory they are printed as they are. */
static void print_escaped(const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = n >= 0 ? malloc((size_t)n + 1 + UTF8_ESCAPED_CAP((size_t)n)) : NULL;
    if (text) {
        vsnprintf(text, (size_t)n + 1, fmt, args);
        fputs(utf8_escape(text, "\n\t", text + n + 1), stderr);
    } else {
        vfprintf(stderr, fmt, args);
    }
    free(text);
}

static void print_message(terminal_style style, const char *kind, const char *fmt, va_list args) {
    progress_clear();
    fprintf(stderr, "%spleat%s%s:%s%s ", terminal_begin(stderr, style), command_name[0] ? " " : "", command_name, kind,
            terminal_end(stderr));
    print_escaped(fmt, args);
    fputc('\n', stderr);
}

void cli_error(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(STYLE_ERROR, "", fmt, args);
    va_end(args);
}

char *cli_path_beside(const char *model_path, const char *ending) {
    size_t n = strlen(model_path);
    if (n > 5 && strcmp(model_path + n - 5, ".gguf") == 0) n -= 5;
    char *path = cli_alloc(n + strlen(ending) + 1, 1);
    memcpy(path, model_path, n);
    strcpy(path + n, ending);
    return path;
}

void cli_note(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(STYLE_NOTE, " note:", fmt, args);
    va_end(args);
}

/* The text without ` 'name'` in quotes: a path that the library has named stands in front already. */
static const char *without_name(const char *text, const char *name, char out[]) {
    const size_t n = strlen(name);
    for (const char *at = strchr(text, '\''); at; at = strchr(at + 1, '\'')) {
        if (strncmp(at + 1, name, n) != 0 || at[n + 1] != '\'') continue;
        const char *rest = at + n + 2;
        const size_t n_before = (size_t)(at - text) - (at > text && at[-1] == ' ');
        memcpy(out, text, n_before);
        strcpy(out + n_before, rest + (n_before == 0 && *rest == ' '));
        return out;
    }
    return text;
}

int cli_fail(const char *what, pleat_status status, const pleat_error *err) {
    char once[sizeof err->text];
    const char *text = err && err->text[0] ? without_name(err->text, what, once) : pleat_status_str(status);
    if (err && err->text[0] && err->where != PLEAT_NOWHERE)
        cli_error("%s: %s (at byte %llu)", what, text, (unsigned long long)err->where);
    else
        cli_error("%s: %s", what, text);
    return CLI_FAILED;
}

void *cli_alloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        cli_error("out of memory: %zu x %zu bytes", n, size);
        exit(CLI_FAILED);
    }
    return p;
}

char *cli_copy(const char *text, size_t n) {
    char *copy = cli_alloc(n + 1, 1);
    if (n) memcpy(copy, text, n);
    return copy;
}

/* In the order of cli_content. */
static const struct {
    const char *name;
    size_t max_bytes;
} contents[] = {
    {"a prompt", (size_t)64 << 20}, /* 2^24 tokens of four bytes: more than any context */
    {"a task file", (size_t)256 << 20},  {"a text", (size_t)256 << 20},
    {"a trace", (size_t)1 << 30},        /* ten million requests by their lengths */
    {"a config.json", (size_t)16 << 20}, /* they have some KiB */
    {"a profile", (size_t)16 << 20},     {"a conversation", (size_t)64 << 20}, /* as a prompt, which it becomes */
};

/* Read f to its end, or to one byte more than max_bytes.  Works on pipes, where no size is known beforehand. */
static int read_stream(FILE *f, size_t max_bytes, char **text, size_t *n_bytes) {
    const size_t most = max_bytes + 2; /* a byte too many, and the NUL */
    size_t cap = 1 << 16, n = 0;
    char *buf = cli_alloc(cap, 1);
    for (;;) {
        n += fread(buf + n, 1, cap - 1 - n, f);
        if (n < cap - 1 || n > max_bytes) break;
        cap = cap * 2 < most ? cap * 2 : most;
        char *grown = realloc(buf, cap);
        if (!grown) {
            free(buf);
            errno = ENOMEM;
            return -1;
        }
        buf = grown;
    }
    if (ferror(f)) {
        free(buf);
        return -1;
    }
    buf[n] = 0;
    *text = buf;
    *n_bytes = n;
    return 0;
}

/* A device may have no end.  A message says so. */
static int is_device(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !(S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))) return 0;
    cli_error("cannot read %s: it is a device and no file", path);
    return 1;
}

int cli_read_file(cli_content content, const char *path, char **text, size_t *n_bytes) {
    const size_t max_bytes = contents[content].max_bytes;
    const int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    if (!is_stdin && is_device(path)) return CLI_FAILED;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    int bad = !f || read_stream(f, max_bytes, text, n_bytes) != 0;
    if (bad) cli_error("cannot read %s: %s", name, strerror(errno));
    if (!bad && *n_bytes > max_bytes) {
        cli_error("cannot read %s: it has more than %zu MiB, the most for %s", name, max_bytes >> 20,
                  contents[content].name);
        free(*text);
        *text = NULL; /* a caller may free it */
        bad = 1;
    }
    if (f && !is_stdin) fclose(f);
    return bad ? CLI_FAILED : CLI_OK;
}

/* ---- words that were meant --------------------------------------------------------------------- */

uint32_t cli_nearest(const char *word, const char *const *words, uint32_t n) {
    const char *meant = pleat_nearest_word(word, strlen(word), words, n);
    uint32_t i = 0;
    while (meant && words[i] != meant) i++;
    return i;
}

int cli_is_near(const char *word, const char *meant) { return pleat_word_is_near(word, strlen(word), meant); }

const char *cli_hint(char buf[HINT_CAP], const char *kind, const char *word, const char *meant) {
    buf[0] = 0;
    if (cli_is_near(word, meant)) snprintf(buf, HINT_CAP, "; the nearest%s is '%.40s'", kind, meant);
    return buf;
}

double cli_fragmentation(const pleat_cache_usage *usage) {
    return usage->slots ? 1 - (double)(usage->tokens_high + usage->tokens_low) / (double)usage->slots : 0;
}
