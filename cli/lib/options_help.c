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

static void help_row(const option_row *row, FILE *f) {
    char flags[80], env[OPTION_ENV_CAP];
    options_env_name(row, env);
    if (row->kind == KIND_OPERAND)
        snprintf(flags, sizeof flags, "%s", row->name);
    else
        snprintf(flags, sizeof flags, "%s%s%s--%s%s%s", row->alias ? "-" : "", row->alias ? row->alias : "",
                 row->alias ? ", " : "", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
    fprintf(f, "  %-28s %s%s%s%s\n", flags, row->help, env[0] ? "  [" : "", env, env[0] ? "]" : "");
}

void options_help(const command *c, FILE *f) {
    const char *group = "";
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (strcmp(group, c->rows[i].group) != 0)
            fprintf(f, "\n%s%s%s\n", terminal_begin(f, STYLE_HEADING), c->rows[i].group, terminal_end(f));
        group = c->rows[i].group;
        help_row(&c->rows[i], f);
    }
    fprintf(f, "\nNames in brackets are environment variables that set the same; the command line wins.\n");
}
