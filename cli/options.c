/* SPDX-License-Identifier: MIT
 *
 * options.c: defaults, the environment, the command line and --help, all from the table of options.  See options.h.
 *
 * getopt_long_only() reads `-ctk` like `--ctk`, as llama.cpp's flags are written.  One-letter flags are handed to it
 * as long options too: were they short ones, `-ngl 99` would be read as `-n gl` instead of being refused.  A single
 * letter is no abbreviation: else `-c 512` would be `--cpu-mask 512` where -c is not an option.
 */
#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "options_table.h"

static void options_default(options *o, uint32_t command) {
    pleat_sampler_options sampling;
    pleat_serving_options serving;
    pleat_sampler_options_default(&sampling);
    pleat_serving_options_default(&serving);
    memset(o, 0, sizeof *o);
    o->chunk_tokens = 512;
    o->cpu_mask = ~0u;
    o->n_predict = -1;
    o->top_k = sampling.top_k;
    o->top_p = sampling.top_p;
    o->min_p = sampling.min_p;
    o->seed = sampling.seed;
    o->n_best = 1;
    o->ctx_window = 2048;
    o->parallel = command == CMD_BENCH_RUN ? 1 : 16;
    o->tolerance = 0.005f;
    o->kv_heads = 8;
    o->lanes = 32768;
    o->spread = 1;
    o->low_share = DEFAULT_LOW_SHARE;
    o->n_seqs = 1;
    o->max_running = 64;
    o->swap_bytes = serving.swap_bytes;
    o->prefix_tokens = UINT32_MAX;
}

/* ---- environment ------------------------------------------------------------------------------- */

enum { ENV_CAP = 64 };

static void env_name(const option_row *row, char out[ENV_CAP]) {
    int n = snprintf(out, ENV_CAP, "PLEAT_%s", row->name);
    for (int i = 0; i < n && i < ENV_CAP - 1; i++) out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

/* All but --help. */
static int has_environment(const option_row *row) { return row->offset != offsetof(options, help); }

/* Whether the text switches something on; CLI_USAGE through *code if it says neither. */
static int is_on(const char *name, const char *text, int *code) {
    if (!strcmp(text, "1") || !strcmp(text, "true") || !strcmp(text, "on")) return 1;
    if (strcmp(text, "") && strcmp(text, "0") && strcmp(text, "false") && strcmp(text, "off")) {
        cli_error("%s: '%s' is neither 1 nor 0", name, text);
        *code = CLI_USAGE;
    }
    return 0;
}

static int read_environment(options *o, uint32_t command) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < n_option_rows && code == CLI_OK; i++) {
        char name[ENV_CAP];
        if (!(option_rows[i].commands & command) || !has_environment(&option_rows[i])) continue;
        env_name(&option_rows[i], name);
        const char *text = getenv(name);
        if (!text || (option_rows[i].kind == KIND_SWITCH && !is_on(name, text, &code))) continue;
        code = option_set(o, &option_rows[i], name, text);
    }
    return code;
}

/* ---- command line ------------------------------------------------------------------------------ */

/* getopt's view of the rows of one command: name and alias of each. */
typedef struct spellings {
    uint32_t n;
    struct option longopt[2 * OPTION_ROWS_CAP + 1];
    const char *word[2 * OPTION_ROWS_CAP];
} spellings;

static void add_spelling(spellings *s, const char *word, uint32_t row) {
    s->longopt[s->n] =
        (struct option){word, option_rows[row].arg ? required_argument : no_argument, NULL, 256 + (int)row};
    s->word[s->n++] = word;
}

static void list_spellings(uint32_t command, spellings *s) {
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < n_option_rows; i++) {
        if (!(option_rows[i].commands & command)) continue;
        add_spelling(s, option_rows[i].name, i);
        if (option_rows[i].alias) add_spelling(s, option_rows[i].alias, i);
    }
}

static int is_alias(const char *word) {
    for (uint32_t i = 0; i < n_option_rows; i++)
        if (option_rows[i].alias && !strcmp(option_rows[i].alias, word)) return 1;
    return 0;
}

/* Where the word stood before getopt moved words about; counted from 1, as a reader counts after `pleat`. */
static int position_of(char *const *original, int argc, const char *word) {
    for (int i = 1; i < argc; i++)
        if (original[i] == word) return i;
    return 0;
}

static int unknown_option(const spellings *s, const char *name, const char *word, int position) {
    char bare[64];
    const char *start = word + strspn(word, "-");
    const size_t n = strcspn(start, "=");
    snprintf(bare, sizeof bare, "%.*s", (int)(n < sizeof bare ? n : sizeof bare - 1), start);
    const char *nearest = s->word[cli_nearest(bare, s->word, s->n)];
    const char *dashes = is_alias(nearest) ? "-" : "--";
    if (cli_is_near(bare, nearest))
        cli_error("argument %d, '%s': no such option; the nearest is '%s%s' (`pleat %s --help` lists all)", position,
                  word, dashes, nearest, name);
    else
        cli_error("argument %d, '%s': no such option; `pleat %s --help` lists all", position, word, name);
    return CLI_USAGE;
}

/* Whether the word is one letter, alone or with =VALUE, that is no alias of the row: an abbreviation too short. */
static int is_lone_letter(const char *word, const option_row *row) {
    const char *name = word + strspn(word, "-");
    return strcspn(name, "=") == 1 && !(row->alias && row->alias[0] == name[0] && !row->alias[1]);
}

/* getopt found fault with argument `word`.  `known` is the row's val, or 0 if it knows no such option. */
static int bad_option(const spellings *s, int fault, int known, const char *name, const char *word, int position) {
    if (known < 256 || is_lone_letter(word, &option_rows[known - 256])) return unknown_option(s, name, word, position);
    const option_row *row = &option_rows[known - 256];
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

/* The words left over: `inspect` takes one, other commands none. */
static int take_operands(options *o, uint32_t command, int argc, char **argv, char *const *original) {
    if (optind < argc && command == CMD_INSPECT) o->operand = argv[optind++];
    if (optind == argc) return CLI_OK;
    cli_error("argument %d, '%s': an option was expected, as --help; a text with spaces needs quotes",
              position_of(original, argc, argv[optind]), argv[optind]);
    return CLI_USAGE;
}

static int read_arguments(options *o, uint32_t command, const char *name, int argc, char **argv, int first,
                          char *const *original) {
    spellings s;
    int val, seen_kv = 0;
    list_spellings(command, &s);
    opterr = 0;
    optind = first;
    while ((val = getopt_long_only(argc, argv, ":", s.longopt, NULL)) != -1) {
        if (val < 256)
            return bad_option(&s, val, optopt, name, argv[optind - 1], position_of(original, argc, argv[optind - 1]));
        const option_row *row = &option_rows[val - 256];
        const char *word = word_of(argv);
        if (is_lone_letter(word, row)) return unknown_option(&s, name, word, position_of(original, argc, word));
        if (row->kind == KIND_SPECS && !seen_kv++) o->kv.n = 0; /* the command line's specs replace the environment's */
        char flag[ENV_CAP];
        snprintf(flag, sizeof flag, "--%s", row->name);
        if (option_set(o, row, flag, optarg) != CLI_OK) return CLI_USAGE;
    }
    return take_operands(o, command, argc, argv, original);
}

int options_parse(options *o, uint32_t command, const char *name, int argc, char **argv, int first) {
    options_default(o, command);
    int code = read_environment(o, command);
    if (code != CLI_OK) return code;
    char **original = cli_alloc((size_t)argc + 1, sizeof *original);
    memcpy(original, argv, (size_t)argc * sizeof *original);
    code = read_arguments(o, command, name, argc, argv, first, original);
    free(original);
    if (code == CLI_OK) pleat_cpu_mask(o->cpu_mask);
    return code;
}

/* ---- help -------------------------------------------------------------------------------------- */

static void help_row(const option_row *row, FILE *f) {
    char flags[80], env[ENV_CAP];
    const int has_twin = has_environment(row);
    env_name(row, env);
    snprintf(flags, sizeof flags, "%s%s%s--%s%s%s", row->alias ? "-" : "", row->alias ? row->alias : "",
             row->alias ? ", " : "", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
    fprintf(f, "  %-28s %s%s%s%s\n", flags, row->help, has_twin ? "  [" : "", has_twin ? env : "", has_twin ? "]" : "");
}

void options_help(uint32_t command, FILE *f) {
    const char *group = "";
    for (uint32_t i = 0; i < n_option_rows; i++) {
        if (!(option_rows[i].commands & command)) continue;
        if (strcmp(group, option_rows[i].group) != 0) fprintf(f, "\n%s\n", option_rows[i].group);
        group = option_rows[i].group;
        help_row(&option_rows[i], f);
    }
    fprintf(f, "\nNames in brackets are environment variables that set the same; the command line wins.\n");
}
