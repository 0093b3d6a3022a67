/* SPDX-License-Identifier: MIT
 *
 * options_help.c: what --help says of a command's options.
 */
#include <ctype.h>
#include <string.h>

#include "options_internal.h"
#include "terminal.h"

const char *options_env_name(const option_row *row, char out[OPTION_ENV_CAP]) {
    out[0] = 0;
    if (row->kind == KIND_OPERAND || row->kind == KIND_CONFIG || row->offset == offsetof(common_options, help))
        return out;
    const int n = snprintf(out, OPTION_ENV_CAP, "PLEAT_%s", row->name);
    for (int i = 0; i < n && i < OPTION_ENV_CAP - 1; i++)
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
    return out;
}

#define HELP_AT 31u       /* the column where descriptions begin */
#define LEAST_COLUMNS 60u /* where there are fewer, lines are left to the terminal */

static uint32_t help_columns(FILE *f) {
    const uint32_t columns = terminal_columns(f);
    return columns < LEAST_COLUMNS ? UINT32_MAX : columns;
}

uint32_t options_put_words(FILE *f, const char *text, uint32_t at, uint32_t indent) {
    const uint32_t columns = help_columns(f);
    while (*text) {
        const size_t n_blanks = strspn(text, " "), n = n_blanks + strcspn(text + n_blanks, " ");
        if (at > indent && at + terminal_width(text, n) > columns) {
            fprintf(f, "\n%*s", (int)indent, "");
            text += n_blanks;
            at = indent;
            continue;
        }
        fwrite(text, 1, n, f);
        at += terminal_width(text, n);
        text += n;
    }
    return at;
}

static void help_row(const option_row *row, FILE *f) {
    char flags[80], env[OPTION_ENV_CAP], twin[OPTION_ENV_CAP + 8] = "";
    options_env_name(row, env);
    if (env[0]) snprintf(twin, sizeof twin, "  [%s]", env);
    if (row->kind == KIND_OPERAND)
        snprintf(flags, sizeof flags, "%s", row->name);
    else
        snprintf(flags, sizeof flags, "%s%s%s--%s%s%s", row->alias ? "-" : "", row->alias ? row->alias : "",
                 row->alias ? ", " : "", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
    const int n = fprintf(f, "  %-28s ", flags);
    options_put_words(f, twin, options_put_words(f, row->help, n > 0 ? (uint32_t)n : HELP_AT, HELP_AT), HELP_AT);
    fputc('\n', f);
}

void options_help(const command *c, FILE *f) {
    const char *group = "";
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (strcmp(group, c->rows[i].group) != 0)
            fprintf(f, "\n%s%s%s\n", terminal_begin(f, STYLE_HEADING), c->rows[i].group, terminal_end(f));
        group = c->rows[i].group;
        help_row(&c->rows[i], f);
    }
    fputc('\n', f);
    options_put_words(f, "Names in brackets are environment variables that set the same; the command line wins.", 0, 0);
    fputc('\n', f);
}
