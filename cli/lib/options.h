/* SPDX-License-Identifier: MIT
 *
 * options.h: what a command takes from its command line, as rows of a table beside the command's code.
 *
 *     typedef struct run_options { common_options common; ... const char *prompt; } run_options;
 *
 *     #define AT(field) .offset = offsetof(run_options, field)
 *     static const option_row rows[] = {
 *         {"Prompt", "prompt", "p", "TEXT", "the prompt", KIND_TEXT, AT(prompt), .excludes = "file"},
 *         ...
 *         COMMON_ROWS(run_options),
 *     };
 *     const command run_command = {.name = "run", ROWS_OF(rows), ...};
 *
 * Parsing, refusals, help, man pages, completion and environment twins all come from the rows.
 *
 *     --n-predict 64     -n 64     PLEAT_N_PREDICT=64         the command line wins over the environment
 *
 *     options.c        a file, the environment and the command line
 *     options_value.c  what a text means to a row, and where it goes
 *     options_check.c  which options need or exclude each other
 *     options_help.c   --help
 */
#ifndef PLEAT_CLI_OPTIONS_H
#define PLEAT_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pleat/pleat.h"

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum out_format { FORMAT_TERMINAL, FORMAT_JSON, FORMAT_CSV, FORMAT_MD } out_format;

#define SPECS_CAP 16
typedef struct spec_list {
    uint32_t n;
    pleat_spec spec[SPECS_CAP];
    char text[SPECS_CAP][PLEAT_SPEC_TEXT_CAP]; /* canonical */
    uint8_t is_bare[SPECS_CAP];                /* 1: a name alone was given, and none of its keys */
} spec_list;

#define NUMBERS_CAP 16
typedef struct number_list {
    uint32_t n;
    uint32_t v[NUMBERS_CAP];
} number_list;

typedef struct float_list {
    uint32_t n;
    float v[NUMBERS_CAP];
} float_list;

/* What every command takes; the first member of each command's own options. */
#define INPUTS_CAP (8 + 2 * SPECS_CAP)
#define OUTPUTS_CAP 8
typedef struct output_name {
    const char *option; /* its name, without dashes */
    const char *path;
} output_name;

typedef struct common_options {
    uint32_t cpu_mask; /* PLEAT_CPU_* that may be used */
    out_format format;
    const char *output; /* NULL: stdout */
    int quiet;
    int help;
    const char *inputs[INPUTS_CAP]; /* [n_inputs] files that are read, which no output may replace */
    uint32_t n_inputs;
    output_name outputs[OUTPUTS_CAP]; /* [n_outputs] files that are written */
    uint32_t n_outputs;
    const char *hf_repo, *hf_file; /* of -hf (hub/hub.h); NULL: not given */
    char *hf_path;                 /* where that file is, on the heap; NULL: not known yet */
    const struct command *command; /* whose options they are */
    uint64_t on_line;              /* bit i: its row i stood on the command line */
} common_options;

/* ---- rows ------------------------------------------------------------------------------------ */

typedef enum option_kind {
    KIND_SWITCH,  /* int, set to 1 */
    KIND_TEXT,    /* const char * */
    KIND_INPUT,   /* const char *, a file that is read */
    KIND_CONFIG,  /* const char *, a file of options, which options_parse() reads; one a command */
    KIND_OUTPUT,  /* const char *, a file that is written */
    KIND_OPERAND, /* const char *, a file that is read and needs no dashes; one a command */
    KIND_U32,
    KIND_I32,
    KIND_MASK, /* uint32_t, bits of max */
    KIND_U64,
    KIND_F32,
    KIND_SPECS,   /* spec_list; may be repeated, unless max is 1 */
    KIND_NUMBERS, /* number_list, commas between */
    KIND_FLOATS,  /* float_list, commas between */
    KIND_WORD,    /* an enum that counts `words` from 0 */
    KIND_BYTES,   /* uint64_t, with a unit; min is 0 or 1 */
} option_kind;

/* An option counts as given where its value is not its default.  One that the command line gives makes those of the
 * environment that it excludes as if they were not set. */
typedef struct option_row {
    const char *group;
    const char *name;  /* after two dashes, and in the environment: PLEAT_ and the name in capitals, - as _ */
    const char *alias; /* after one dash; NULL: none */
    const char *arg;   /* NULL: a switch */
    const char *help;
    option_kind kind;
    size_t offset;            /* into the command's options */
    double min, max;          /* of a number, or of each in a list */
    uint32_t multiple;        /* which whole numbers must be one of; 0: any */
    uint32_t min_n, max_n;    /* numbers in a list; 0: any */
    const char *const *words; /* KIND_WORD: its values; else what completion offers.  NULL behind the last */
    const char *needs;        /* names with spaces between, "NAME=WORD" for a value; NULL: none */
    const char *excludes;     /* names with spaces between; said on one side is enough; NULL: none */
    const char *because;      /* the reason for either, behind the refusal; NULL: it is plain */
    const char
        *stands_for; /* where this is given, what is needed or demanded by that name is there; NULL: by no other */
} option_row;

/* One of some options that must be given. */
typedef struct option_demand {
    const char *any_of;    /* names with spaces between */
    const char *otherwise; /* the refusal */
} option_demand;

typedef struct command {
    const char *name;  /* one word or two */
    const char *help;  /* a line */
    const char *usage; /* what stands behind the name */
    const char *about; /* a paragraph, for the man page */
    const option_row *rows;
    uint32_t n_rows;
    const option_demand *demands; /* [n_demands], in the order of their refusals */
    uint32_t n_demands;
    size_t options_bytes;             /* of the command's options */
    void (*set_defaults)(void *opts); /* fills defaults that are not zero; NULL: all are */
    int (*run)(void *opts);           /* the process' exit code (common.h) */
} command;

#define OPTION_ROWS_CAP 64
/* The size of the array of char is negative, and the compiler says so, where a table is too long. */
#define ROWS_OF(table)                                          \
    .rows = table, .n_rows = sizeof(table) / sizeof(table)[0] + \
                             0 * sizeof(char[sizeof(table) / sizeof(table)[0] <= OPTION_ROWS_CAP ? 1 : -1])
#define DEMANDS_OF(table) .demands = table, .n_demands = sizeof(table) / sizeof(table)[0]

/* Groups of options, in the order of --help. */
#define GROUP_MACHINE "Model and machine"
#define GROUP_CACHE "KV cache"
#define GROUP_SHAPE "Shape"
#define GROUP_OUTPUT "Output"

/* clang-format off */
#define CPU_BITS                                                                                                       \
    (PLEAT_CPU_AVX2 | PLEAT_CPU_AVX512 | PLEAT_CPU_VNNI | PLEAT_CPU_AVX_VNNI | PLEAT_CPU_NEON | PLEAT_CPU_DOTPROD |    \
     PLEAT_CPU_AMX_INT8 | PLEAT_CPU_VBMI2)

/* Rows that every command has: the first where GROUP_MACHINE is, the others last.  `type` is the command's options. */
#define CPU_MASK_ROW(type)                                                                                             \
    {GROUP_MACHINE, "cpu-mask", NULL, "BITS",                                                                          \
     "CPU features that may be used, added up: 1 AVX2, 2 AVX-512, 4 its VNNI, 8 AVX-VNNI; 16 NEON, 32 its dot "        \
     "product; 64 AMX, 128 AVX-512 VBMI2",                                                                             \
     KIND_MASK, .offset = offsetof(type, common.cpu_mask), 0, CPU_BITS}
#define FORMAT_ROW(type)                                                                                               \
    {GROUP_OUTPUT, "format", NULL, "FORMAT", "terminal, json, csv or md (default terminal)", KIND_WORD,                \
     .offset = offsetof(type, common.format), .words = option_formats}
#define OUTPUT_ROW(type, text)                                                                                         \
    {GROUP_OUTPUT, "output", "o", "FILE", text, KIND_OUTPUT,                                                           \
     .offset = offsetof(type, common.output)}
#define QUIET_ROWS(type)                                                                                               \
    {GROUP_OUTPUT, "quiet", "q", NULL, "no progress and no summary on stderr", KIND_SWITCH,                            \
     .offset = offsetof(type, common.quiet)},                                                                          \
    {GROUP_OUTPUT, "help", "h", NULL, "this text", KIND_SWITCH,                                                        \
     .offset = offsetof(type, common.help)}
#define OUTPUT_TEXT "write the result to FILE instead of stdout"
#define COMMON_ROWS(type) FORMAT_ROW(type), OUTPUT_ROW(type, OUTPUT_TEXT), QUIET_ROWS(type)
/* clang-format on */

/* ---- words that rows share ------------------------------------------------------------------- */

extern const char *const option_formats[];     /* of out_format */
extern const char *const option_spec_names[];  /* ways to keep a cache, for completion */
extern const char *const option_plain_specs[]; /* the default of what compares formats: f16, k8v8, k8v4, k4v4, k4v2 */

/* ---- what commands call ---------------------------------------------------------------------- */

/* Fill opts, c->options_bytes long, from defaults, then the environment, then argv[first..argc).  CLI_OK, or CLI_USAGE
 * after a message. */
int options_parse(const command *c, void *opts, int argc, char **argv, int first);

/* Did the option stand on the command line itself?  What the environment or a file says goes for every call. */
int options_on_line(const common_options *common, const char *name);

/* Note a file that is read; NULL and "" are none.  `path` stays as long as the options. */
void options_add_input(common_options *common, const char *path);

/* Note a file that is written, as --`option` says; "-" is stdout. */
void options_add_output(common_options *common, const char *option, const char *path);

/* Put the specs of `texts` (NULL-terminated) in the list if it is empty. */
void options_default_specs(spec_list *list, const char *const *texts);

/* Like strtod(), but no number where that reads a hexadecimal one. */
double options_decimal(const char *text, char **end);

/* Read "80000000000", "1.5TB" or "80GiB": decimal, with the units k, M, G, T (thousands) and Ki, Mi, Gi, Ti, a B behind
 * or not.  0 if it is none of these, or not in 1..2^62. */
int options_bytes(const char *text, uint64_t *out);

/* ---- what is said of rows -------------------------------------------------------------------- */

/* Print words from column `at` on; those that pass a terminal's last column stand below, from `indent` on.  Returns the
 * column behind them. */
uint32_t options_put_words(FILE *f, const char *text, uint32_t at, uint32_t indent);

/* Print the options that the command takes, in their groups. */
void options_help(const command *c, FILE *f);

#define OPTION_ENV_CAP 64
/* The row's twin in the environment, or "" for one that has none: --help and operands. */
const char *options_env_name(const option_row *row, char out[OPTION_ENV_CAP]);

#endif
