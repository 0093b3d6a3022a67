/* SPDX-License-Identifier: MIT
 *
 * man.c: man pages, in roff with the macros of man(7).
 *
 * A text is put as it is but for what roff reads: backslashes, dashes, and a point or quote at the start of a line.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "cli/lib/common.h"
#include "help.h"

/* When what stands here, and not in rows, was last changed; a page without a date draws warnings. */
static const char pages_date[] = "2026-11-23";

static void put_text(FILE *f, const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", f);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else if (*text == '~' || *text == '^' || *text == '`')
            fprintf(f, "\\(%s", *text == '~' ? "ti" : *text == '^' ? "ha" : "ga");
        else
            fputc(*text, f);
    }
}

static void put_bold(FILE *f, const char *before, const char *text) {
    fputs("\\fB", f);
    put_text(f, before);
    put_text(f, text);
    fputs("\\fR", f);
}

/* A page's name: its command's with dashes for spaces. */
static void page_name(const command *c, char *out, size_t cap) {
    snprintf(out, cap, "pleat%s%s", c ? "-" : "", c ? c->name : "");
    for (; *out; out++)
        if (*out == ' ') *out = '-';
}

static void put_head(FILE *f, const command *c, const char *help) {
    char name[64], title[64];
    page_name(c, name, sizeof name);
    for (size_t i = 0; i <= strlen(name); i++) title[i] = (char)toupper((unsigned char)name[i]);
    fprintf(f, ".\\\" Made by `pleat help --man` from the tables of options.\n.TH ");
    put_text(f, title);
    fprintf(f, " 1 %s \"pleat %s\" \"User Commands\"\n.SH NAME\n", pages_date, pleat_version());
    put_text(f, name);
    fputs(" \\- ", f);
    put_text(f, help);
    fputs("\n.SH SYNOPSIS\n", f);
}

/* "Needs --simulate." and the like. */
static void put_relation(FILE *f, const char *what, const char *names) {
    if (!names) return;
    fprintf(f, "\n%s", what);
    for (const char *at = names, *between = " "; *at; between = ", ") {
        char name[64];
        const size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        const int is_operand = isupper((unsigned char)name[0]);
        char *word = strchr(name, '=');
        if (word) *word = ' ';
        fputs(between, f);
        put_bold(f, is_operand ? "" : "--", name);
        at += n + strspn(at + n, " ");
    }
    fputc('.', f);
}

/* Whether names, with spaces between, hold name. */
static int holds_name(const char *names, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = names; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == n && strncmp(at, name, n) == 0) return 1;
    return 0;
}

/* What a row and another exclude stands in one of them: the names of both directions, in out; NULL if there are none. */
static const char *excluded_names(const command *c, const option_row *row, char *out, size_t cap) {
    int n = snprintf(out, cap, "%s", row->excludes ? row->excludes : "");
    for (uint32_t i = 0; i < c->n_rows && n >= 0 && (size_t)n < cap; i++)
        if (holds_name(c->rows[i].excludes, row->name))
            n += snprintf(out + n, cap - (size_t)n, "%s%s", n > 0 ? " " : "", c->rows[i].name);
    return n > 0 ? out : NULL;
}

/* Why it needs or excludes those, where the row says so. */
static void put_reason(FILE *f, const option_row *row) {
    if (!row->because || !(row->needs || row->excludes)) return;
    fputs("\nReason: ", f);
    put_text(f, row->because);
    fputc('.', f);
}

static void put_words(FILE *f, const option_row *row) {
    if (row->kind != KIND_WORD) return;
    fputs("\nOne of", f);
    for (uint32_t i = 0; row->words[i]; i++) {
        fputs(i ? ", " : " ", f);
        put_bold(f, "", row->words[i]);
    }
    fputc('.', f);
}

static void put_row(FILE *f, const command *c, const option_row *row) {
    char env[OPTION_ENV_CAP];
    fputs(".TP\n", f);
    if (row->alias) {
        put_bold(f, "-", row->alias);
        fputs(", ", f);
    }
    put_bold(f, row->kind == KIND_OPERAND ? "" : "--", row->name);
    if (row->arg && row->kind != KIND_OPERAND) {
        fputs(" \\fI", f);
        put_text(f, row->arg);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    put_text(f, row->help);
    fputc('.', f);
    put_words(f, row);
    char excluded[512];
    put_relation(f, "Needs", row->needs);
    put_relation(f, "Excludes", excluded_names(c, row, excluded, sizeof excluded));
    put_reason(f, row);
    if (options_env_name(row, env)[0]) {
        fputs("\nEnvironment: ", f);
        put_bold(f, "", env);
        fputc('.', f);
    }
    fputc('\n', f);
}

static void put_rows(FILE *f, const command *c) {
    const char *group = "";
    fputs(".SH OPTIONS\n", f);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (strcmp(group, c->rows[i].group) != 0) {
            fputs(".SS ", f);
            put_text(f, c->rows[i].group);
            fputc('\n', f);
        }
        group = c->rows[i].group;
        put_row(f, c, &c->rows[i]);
    }
}

static void put_see_also(FILE *f, const command_list *list, const command *c) {
    const char *between = "";
    fputs(".SH SEE ALSO\n", f);
    for (uint32_t i = 0; i <= list->n; i++) {
        const command *other = i ? list->v[i - 1] : NULL;
        char name[64];
        if (other == c) continue;
        page_name(other, name, sizeof name);
        fputs(between, f);
        put_bold(f, "", name);
        fputs("(1)", f);
        between = ",\n";
    }
    fputc('\n', f);
}

static void put_exit_status(FILE *f) {
    fputs(".SH EXIT STATUS\n.TP\n0\nThe work was done.\n.TP\n1\nIt failed: a bad file, a prompt that is too long, no "
          "memory.\n.TP\n2\nThe command line is wrong.\n.TP\n130\nInterrupted.\n",
          f);
}

static void put_command_page(FILE *f, const command_list *list, const command *c) {
    put_head(f, c, c->help);
    fputs("\\fBpleat ", f);
    put_text(f, c->name);
    fputs("\\fR ", f);
    put_text(f, c->usage);
    fputs("\n.SH DESCRIPTION\n", f);
    put_text(f, c->about);
    fputs("\n.PP\nOne dash or two makes no difference, and an abbreviation of two letters or more is fine while it is "
          "unambiguous.\nAn environment variable sets the same as its option; the command line wins.\n",
          f);
    put_rows(f, c);
    put_exit_status(f);
    put_see_also(f, list, c);
}

static void put_command_line(FILE *f, const char *name, const char *usage, const char *help) {
    fputs(".TP\n", f);
    put_bold(f, "pleat ", name);
    fputc(' ', f);
    put_text(f, usage);
    fputc('\n', f);
    put_text(f, help);
    fputs(".\n", f);
}

static void put_main_page(FILE *f, const command_list *list) {
    put_head(f, NULL, "a KV-cache engine for language models");
    fputs("\\fBpleat\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
          "Generates text from models in GGUF files with a paged, compressed KV cache, and measures what ways to keep\n"
          "the cache cost in accuracy, memory and time.\nResults go to stdout, talk to stderr.\n.SH COMMANDS\n",
          f);
    for (uint32_t i = 0; i < list->n; i++) put_command_line(f, list->v[i]->name, list->v[i]->usage, list->v[i]->help);
    put_command_line(f, "help", HELP_USAGE, HELP_TEXT);
    put_command_line(f, "completion", COMPLETION_USAGE, COMPLETION_TEXT);
    put_command_line(f, "--version", "", VERSION_TEXT);
    fputs(".SH ENVIRONMENT\n.TP\n\\fBCOLUMNS\\fR\nThe width that tables fit; without it the "
          "terminal's.\n.TP\n\\fBNO_COLOR\\fR\n"
          "Set and not empty: no colours, and no bold or dim text.\n",
          f);
    put_exit_status(f);
    put_see_also(f, list, NULL);
}

void help_man(const command_list *list, const command *c, FILE *f) {
    if (c)
        put_command_page(f, list, c);
    else
        put_main_page(f, list);
}

int help_man_pages(const command_list *list, const char *dir) {
    for (uint32_t i = 0; i <= list->n; i++) {
        const command *c = i ? list->v[i - 1] : NULL;
        char name[64], path[4096];
        page_name(c, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s.1", dir, name);
        FILE *f = fopen(path, "w");
        if (f) help_man(list, c, f);
        const int bad = !f || ferror(f), bad_close = f && fclose(f) != 0;
        if (bad || bad_close) {
            cli_error("cannot write %s: %s", path, strerror(errno));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}
