/* SPDX-License-Identifier: MIT
 *
 * options.c: defaults, a file, the environment and the command line, read by a command's rows.  See options.h.
 *
 * getopt_long_only() reads `-ctk` like `--ctk`, as llama.cpp's flags are written.  One-letter flags are handed to it
 * as long options too: were they short ones, `-ngl 99` would be read as `-n gl` instead of being refused.  A single
 * letter is no abbreviation: else `-c 512` would be `--cpu-mask 512` where -c is not an option.
 *
 * The file of a command that has a row of KIND_CONFIG, weaker than the environment and the command line:
 *
 *     # a line is an option by its long name
 *     model = models/small.gguf
 *     special = on                        a switch: on or off
 *
 * A value goes to the end of its line, without the blanks around it; nothing is quoted.
 */
#include "options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "borrowed.h"
#include "common.h"
#include "options_internal.h"

/* ---- environment ------------------------------------------------------------------------------- */

/* Whether the text switches something on; CLI_USAGE through *code if it says neither. */
static int is_on(const char *name, const char *text, int *code) {
    if (!strcmp(text, "1") || !strcmp(text, "true") || !strcmp(text, "on")) return 1;
    if (strcmp(text, "") && strcmp(text, "0") && strcmp(text, "false") && strcmp(text, "off")) {
        cli_error("%s: '%s' is neither 1 nor 0", name, text);
        *code = CLI_USAGE;
    }
    return 0;
}

/* Take `text` for row i, which `source` brings; it stays as long as the options.  It replaces what weaker sources brought,
 * a switch that it switches off included. */
static int take_text(option_parse *p, uint32_t i, option_source source, const char *flag, const char *text) {
    const option_row *row = &p->c->rows[i];
    int code = CLI_OK;
    if (row->kind == KIND_SWITCH && !is_on(flag, text, &code)) {
        *(int *)(p->opts + row->offset) = 0;
        return code;
    }
    if (row->kind == KIND_SPECS && p->source[i] != source) ((spec_list *)(p->opts + row->offset))->n = 0;
    p->source[i] = source;
    snprintf(p->flag[i], OPTION_FLAG_CAP, "%s", flag);
    return option_set(p->opts, row, flag, text);
}

static int read_environment(option_parse *p) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < p->c->n_rows && code == CLI_OK; i++) {
        char name[OPTION_ENV_CAP];
        const char *text = options_env_name(&p->c->rows[i], name)[0] ? getenv(name) : NULL;
        if (text) code = take_text(p, i, SOURCE_ENVIRONMENT, name, text);
    }
    return code;
}

/* ---- a file of options ------------------------------------------------------------------------ */

/* Values point into it, so it stays: one command reads one file. */
static char *config_text;

/* The last that the command line names by the option's name; NULL: none. */
static const char *path_on_line(const char *name, int argc, char **argv, int first) {
    const size_t n = strlen(name);
    const char *path = NULL;
    for (int i = first; i < argc; i++) {
        const char *word = argv[i] + strspn(argv[i], "-");
        if (argv[i][0] != '-' || strncmp(word, name, n) != 0) continue;
        if (word[n] == '=') path = word + n + 1;
        if (word[n] == 0 && i + 1 < argc) path = argv[i + 1];
    }
    return path;
}

static uint32_t row_of(const command *c, const char *name) {
    uint32_t i = 0;
    while (i < c->n_rows && strcmp(c->rows[i].name, name) != 0) i++;
    return i;
}

static char *trimmed(char *text) {
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1])) text[--n] = 0;
    return text;
}

static int unknown_name(const command *c, const char *where, const char *name) {
    const char *names[OPTION_ROWS_CAP];
    for (uint32_t i = 0; i < c->n_rows; i++) names[i] = c->rows[i].name;
    const char *nearest = names[cli_nearest(name, names, c->n_rows)];
    if (cli_is_near(name, nearest))
        cli_error("%s: no option '%s'; the nearest is '%s'", where, name, nearest);
    else
        cli_error("%s: no option '%s'; `pleat %s --help` lists all", where, name, c->name);
    return CLI_USAGE;
}

/* One line, without its end. */
static int take_line(option_parse *p, const char *path, uint32_t line_number, char *line) {
    char where[OPTION_FLAG_CAP], flag[OPTION_FLAG_CAP], name_in_environment[OPTION_ENV_CAP];
    const char *slash = strrchr(path, '/');
    snprintf(where, sizeof where, "%.40s, line %u", slash ? slash + 1 : path, line_number);
    line = trimmed(line);
    if (!line[0] || line[0] == '#') return CLI_OK;
    char *equals = strchr(line, '=');
    if (!equals) {
        cli_error("%s: an option is NAME = VALUE", where);
        return CLI_USAGE;
    }
    *equals = 0;
    const char *name = trimmed(line);
    const uint32_t i = row_of(p->c, name);
    if (i == p->c->n_rows) return unknown_name(p->c, where, name);
    if (p->c->rows[i].kind == KIND_CONFIG || !options_env_name(&p->c->rows[i], name_in_environment)[0]) {
        cli_error("%s: '%s' stands on the command line alone", where, name);
        return CLI_USAGE;
    }
    snprintf(flag, sizeof flag, "%.30s, %.24s", where, name);
    return take_text(p, i, SOURCE_FILE, flag, trimmed(equals + 1));
}

static int read_config(option_parse *p, int argc, char **argv, int first) {
    uint32_t row = 0;
    size_t n;
    while (row < p->c->n_rows && p->c->rows[row].kind != KIND_CONFIG) row++;
    if (row == p->c->n_rows) return CLI_OK;
    const char *path = path_on_line(p->c->rows[row].name, argc, argv, first);
    if (!path || !path[0]) return CLI_OK;
    free(config_text);
    int code = cli_read_file(CONTENT_CONFIG, path, &config_text, &n);
    if (code == CLI_OK && strlen(config_text) != n) {
        cli_error("--%s %s: there is a NUL in it", p->c->rows[row].name, path);
        return CLI_USAGE;
    }
    uint32_t line_number = 1;
    for (char *line = config_text, *next; code == CLI_OK && line; line = next, line_number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        code = take_line(p, path, line_number, line);
    }
    return code;
}

/* ---- command line ------------------------------------------------------------------------------ */

/* getopt's view of the rows: name and alias of each. */
typedef struct spellings {
    uint32_t n;
    struct option longopt[2 * OPTION_ROWS_CAP + 1];
    const char *word[2 * OPTION_ROWS_CAP];
} spellings;

enum { FIRST_ROW = 256 }; /* getopt's value of row 0: beyond every letter */

static void add_spelling(spellings *s, const char *word, const option_row *row, uint32_t row_idx) {
    s->longopt[s->n] =
        (struct option){word, row->arg ? required_argument : no_argument, NULL, FIRST_ROW + (int)row_idx};
    s->word[s->n++] = word;
}

static void list_spellings(const command *c, spellings *s) {
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        if (c->rows[i].kind == KIND_OPERAND) continue;
        add_spelling(s, c->rows[i].name, &c->rows[i], i);
        if (c->rows[i].alias) add_spelling(s, c->rows[i].alias, &c->rows[i], i);
    }
}

static int is_alias(const command *c, const char *word) {
    for (uint32_t i = 0; i < c->n_rows; i++)
        if (c->rows[i].alias && !strcmp(c->rows[i].alias, word)) return 1;
    return 0;
}

/* Where the word stood before getopt moved words about; counted from 1, as a reader counts after `pleat`. */
static int position_of(char *const *original, int argc, const char *word) {
    for (int i = 1; i < argc; i++)
        if (original[i] == word) return i;
    return 0;
}

/* Whether the command has the option that `here` begins with. */
static int has_option(const spellings *s, const char *here) {
    for (uint32_t i = 0; i < s->n; i++)
        if (strlen(s->word[i]) == strcspn(here, " ") && !strncmp(s->word[i], here, strlen(s->word[i]))) return 1;
    return 0;
}

static int unknown_option(const command *c, const spellings *s, const char *word, int position) {
    char bare[64];
    const char *start = word + strspn(word, "-");
    const size_t n = strcspn(start, "=");
    snprintf(bare, sizeof bare, "%.*s", (int)(n < sizeof bare ? n : sizeof bare - 1), start);
    const char *nearest = s->word[cli_nearest(bare, s->word, s->n)];
    const char *dashes = is_alias(c, nearest) ? "-" : "--";
    const char *here = borrowed_option(bare);
    if (here && has_option(s, here))
        cli_error("argument %d, '%s': no such option; it is '--%s' here (`pleat %s --help` lists all)", position, word,
                  here, c->name);
    else if (cli_is_near(bare, nearest))
        cli_error("argument %d, '%s': no such option; the nearest is '%s%s' (`pleat %s --help` lists all)", position,
                  word, dashes, nearest, c->name);
    else
        cli_error("argument %d, '%s': no such option; `pleat %s --help` lists all", position, word, c->name);
    return CLI_USAGE;
}

/* Whether the word, alone or with =VALUE, is an abbreviation that is refused: one letter that is no alias of the row, and
 * any of the file of options, which path_on_line() looks for by its whole name. */
static int is_too_short(const char *word, const option_row *row) {
    const char *name = word + strspn(word, "-");
    const size_t n = strcspn(name, "=");
    if (row->kind == KIND_CONFIG) return n != strlen(row->name);
    return n == 1 && !(row->alias && row->alias[0] == name[0] && !row->alias[1]);
}

/* getopt found fault with argument `word`.  `known` is the row's value, or 0 if it knows no such option. */
static int bad_option(const command *c, const spellings *s, int fault, int known, const char *word, int position) {
    if (known < FIRST_ROW || is_too_short(word, &c->rows[known - FIRST_ROW]))
        return unknown_option(c, s, word, position);
    const option_row *row = &c->rows[known - FIRST_ROW];
    if (fault == ':')
        cli_error("argument %d, '%s': needs %s: %s", position, word, row->arg, row->help);
    else
        cli_error("argument %d, '%s': takes no value", position, word);
    return CLI_USAGE;
}

/* The word of the option that getopt has just read, before its value if that is a word of its own. */
static char *word_of(char **argv) {
    char *last = argv[optind - 1];
    return optarg == last ? argv[optind - 2] : last;
}

/* What a word was meant for that stands where an option should. */
static const char *meaning_of(const command *c, const char *word) {
    const size_t n = strlen(word);
    const int is_model = n > 5 && !strcmp(word + n - 5, ".gguf");
    for (uint32_t i = 0; i < c->n_rows && is_model; i++)
        if (c->rows[i].alias && !strcmp(c->rows[i].alias, "m")) return "a model's file stands behind -m: -m FILE";
    return "an option was expected, as --help; a text with spaces needs quotes";
}

/* The words left over: the operand, where the command takes one. */
static int take_operand(option_parse *p, int argc, char **argv, char *const *original) {
    for (uint32_t i = 0; i < p->c->n_rows && optind < argc; i++) {
        if (p->c->rows[i].kind != KIND_OPERAND) continue;
        p->source[i] = SOURCE_LINE;
        snprintf(p->flag[i], OPTION_FLAG_CAP, "%s", p->c->rows[i].name);
        option_set(p->opts, &p->c->rows[i], p->flag[i], argv[optind++]);
    }
    if (optind == argc) return CLI_OK;
    cli_error("argument %d, '%s': %s", position_of(original, argc, argv[optind]), argv[optind],
              meaning_of(p->c, argv[optind]));
    return CLI_USAGE;
}

/* Put what getopt read where row i says.  The first spec on the command line replaces those of the environment. */
static int take_option(option_parse *p, uint32_t i, const char *spelled) {
    const option_row *row = &p->c->rows[i];
    char flag[OPTION_FLAG_CAP];
    if (row->kind == KIND_SPECS && p->source[i] != SOURCE_LINE) ((spec_list *)(p->opts + row->offset))->n = 0;
    p->source[i] = SOURCE_LINE;
    const char *dashes = row->alias && !strcmp(spelled, row->alias) ? "-" : "--";
    snprintf(p->flag[i], OPTION_FLAG_CAP, "%s%s", dashes, spelled);
    snprintf(flag, sizeof flag, "--%s", row->name);
    return option_set(p->opts, row, flag, optarg);
}

static int read_arguments(option_parse *p, int argc, char **argv, int first, char *const *original) {
    spellings s;
    int val, at = 0;
    list_spellings(p->c, &s);
    opterr = 0;
    optind = first;
    while ((val = getopt_long_only(argc, argv, ":", s.longopt, &at)) != -1) {
        if (val < FIRST_ROW)
            return bad_option(p->c, &s, val, optopt, argv[optind - 1], position_of(original, argc, argv[optind - 1]));
        const uint32_t row = (uint32_t)(val - FIRST_ROW);
        const char *word = word_of(argv);
        if (is_too_short(word, &p->c->rows[row]))
            return unknown_option(p->c, &s, word, position_of(original, argc, word));
        if (take_option(p, row, s.word[at]) != CLI_OK) return CLI_USAGE;
    }
    return take_operand(p, argc, argv, original);
}

/* ---- all --------------------------------------------------------------------------------------- */

int options_on_line(const common_options *common, const char *name) {
    const uint32_t i = common->command ? row_of(common->command, name) : OPTION_ROWS_CAP;
    return i < OPTION_ROWS_CAP && (common->on_line >> i & 1) != 0;
}

void options_add_input(common_options *common, const char *path) {
    if (path && path[0] && common->n_inputs < INPUTS_CAP) common->inputs[common->n_inputs++] = path;
}

void options_add_output(common_options *common, const char *option, const char *path) {
    if (path && path[0] && strcmp(path, "-") != 0 && common->n_outputs < OUTPUTS_CAP)
        common->outputs[common->n_outputs++] = (output_name){option, path};
}

/* The files that the row's value names. */
static void note_files(const option_row *row, void *opts) {
    void *at = (char *)opts + row->offset;
    const spec_list *specs = at;
    if (row->kind == KIND_INPUT || row->kind == KIND_CONFIG || row->kind == KIND_OPERAND)
        options_add_input(opts, *(const char **)at);
    else if (row->kind == KIND_OUTPUT)
        options_add_output(opts, row->name, *(const char **)at);
    else if (row->kind == KIND_SPECS)
        for (uint32_t i = 0; i < specs->n; i++) options_add_input(opts, specs->spec[i].profile);
}

static int read_all(option_parse *p, int argc, char **argv, int first) {
    int code = read_config(p, argc, argv, first);
    if (code == CLI_OK) code = read_environment(p);
    if (code != CLI_OK) return code;
    char **original = cli_alloc((size_t)argc + 1, sizeof *original);
    memcpy(original, argv, (size_t)argc * sizeof *original);
    code = read_arguments(p, argc, argv, first, original);
    free(original);
    return code;
}

int options_parse(const command *c, void *opts, int argc, char **argv, int first) {
    option_parse *p = cli_alloc(1, sizeof *p);
    common_options *common = opts; /* the first member */
    memset(opts, 0, c->options_bytes);
    common->cpu_mask = ~0u;
    if (c->set_defaults) c->set_defaults(opts);
    char *defaults = cli_alloc(c->options_bytes, 1);
    memcpy(defaults, opts, c->options_bytes);
    p->c = c;
    p->opts = opts;
    p->defaults = defaults;
    int code = read_all(p, argc, argv, first);
    if (code == CLI_OK && !common->help) code = options_check(p);
    if (code == CLI_OK) {
        common->command = c;
        for (uint32_t i = 0; i < c->n_rows; i++) {
            note_files(&c->rows[i], opts);
            common->on_line |= (uint64_t)(p->source[i] == SOURCE_LINE) << i;
        }
        pleat_cpu_mask(common->cpu_mask);
    }
    free(defaults);
    free(p);
    return code;
}
