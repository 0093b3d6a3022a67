/* SPDX-License-Identifier: MIT
 *
 * main.c: the command `pleat`: finds the command in one table, reads its options, calls it.
 *
 *     pleat COMMAND [OPTIONS]        pleat help [COMMAND]        pleat --version
 *
 * A command's name is one word or two (`bench attn`); `pleat help bench` lists those of the first word.
 * docs/CLI.md describes them all.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "common.h"
#include "peer_zstd.h"

typedef struct command_row {
    const char *name;
    uint32_t bit; /* CMD_ */
    int (*fn)(options *o);
    const char *help;
    const char *usage; /* what --help shows after the name */
} command_row;

static const command_row commands[] = {
    {"run", CMD_RUN, command_run, "generate text from a model on a compressed KV cache",
     "-m MODEL (-p TEXT | -f FILE) [-n N] [--kv SPEC] [--chat]"},
    {"eval", CMD_EVAL, command_eval, "compare KV specs: task accuracy, perplexity, divergence, bytes",
     "-m MODEL [--tasks FILE] [--text FILE] [--kv SPEC]..."},
    {"calibrate", CMD_CALIBRATE, command_calibrate, "find leankv's thresholds for a model, and write a profile",
     "-m MODEL --tasks FILE [--text FILE] [--kv leankv:...] [--ah X,..] [--al X,..] [-o PROFILE]"},
    {"bench attn", CMD_BENCH_ATTN, command_bench_attn, "speed of decode attention against the memory's",
     "[--kv SPEC]... [--ctx N,..] [--batch N,..] [--gqa N,..] [--head-dim N,..] [-r N] [--device cuda]"},
    {"bench pages", CMD_BENCH_PAGES, command_bench_pages, "time to take and return a page for every lane",
     "[--lanes N] [--device cuda]"},
    {"bench codec", CMD_BENCH_CODEC, command_bench_codec, "speed and bytes of kvcomp's and kivi's codecs, beside zstd",
     "[--kv SPEC]... [--head-dim N,..] [--ctx N,..] [-r N] [--device cuda]"},
    {"bench run", CMD_BENCH_RUN, command_bench_run, "speed of reading prompts and of generating",
     "-m MODEL [-p N,..] [-n N,..] [-d N,..] [-np N] [-b N] [--kv SPEC]..."},
    {"bench serve", CMD_BENCH_SERVE, command_bench_serve, "many requests from one pool: concurrency, speed, latencies",
     "-m MODEL (--trace FILE | --synthetic NAME) --pool-bytes B [--rate R] [--simulate] [--kv SPEC]..."},
    {"inspect", CMD_INSPECT, command_inspect, "what a GGUF file holds, and what its KV cache would take",
     "FILE [--kv SPEC]... [--ctx N,..] [--metadata] | --devices"},
    {"plan", CMD_PLAN, command_plan, "bytes, bandwidth and preemption of KV specs for a model, before it runs",
     "(-m MODEL | --arch NAME | --config FILE) [--ctx N] [--batch N] [--kv SPEC]... [--device-bytes B]"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_version(FILE *f) {
    fprintf(f, "pleat %s\n%s; %s\n", pleat_version(), pleat_build_info(), peer_describe());
}

/* One line for each command whose name begins with `start`. */
static void print_commands(const char *start, FILE *f) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strncmp(commands[i].name, start, strlen(start)))
            fprintf(f, "  %-12s %s\n", commands[i].name, commands[i].help);
}

static void print_help(FILE *f) {
    fprintf(f, "pleat %s: a KV-cache engine for language models\n\nusage: pleat COMMAND [OPTIONS]\n\n",
            pleat_version());
    print_commands("", f);
    fprintf(f, "  %-12s %s\n", "help", "this text, or a command's: pleat help run");
    fprintf(f, "  %-12s %s\n", "--version", "version, build, and what was found on this machine");
    fprintf(f, "\nexit codes: 0 ok, 1 failed, 2 wrong usage, 130 interrupted\n");
}

/* The end of a command that has only printed: CLI_FAILED after a message if stdout did not take it. */
static int finish_printing(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    cli_error("cannot write standard output: %s", strerror(errno));
    return CLI_FAILED;
}

static void print_command_help(const command_row *row) {
    printf("pleat %s: %s\n\nusage: pleat %s %s\n", row->name, row->help, row->name, row->usage);
    options_help(row->bit, stdout);
}

/* Number of words of `name` that argv[first..] spells out; 0 if it does not. */
static int match(const char *name, int argc, char **argv, int first) {
    const char *space = strchr(name, ' ');
    const size_t n = space ? (size_t)(space - name) : strlen(name);
    if (first >= argc || strlen(argv[first]) != n || strncmp(argv[first], name, n) != 0) return 0;
    if (!space) return 1;
    return first + 1 < argc && !strcmp(argv[first + 1], space + 1) ? 2 : 0;
}

static void print_bench_help(void) {
    printf("pleat bench: measure this machine\n\nusage: pleat bench attn|pages|codec|run|serve [OPTIONS]\n\n");
    print_commands("bench ", stdout);
    printf("\nThe options of one: pleat help bench attn\n");
}

static int is_help_flag(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "-help") || !strcmp(word, "-h");
}

/* Say which command comes nearest to the words at argv[first], or which there are. */
static int unknown_command(int argc, char **argv, int first) {
    enum { N_NAMES = N_COMMANDS + 2 };
    const char *names[N_NAMES];
    char words[128];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    names[N_COMMANDS] = "help";
    names[N_COMMANDS + 1] = "--version";
    if (!strcmp(argv[first], "bench") && (first + 1 == argc || argv[first + 1][0] == '-')) {
        cli_error("argument %d, 'bench': needs a second word: attn, pages, codec, run or serve", first);
        return CLI_USAGE;
    }
    const int two = !strcmp(argv[first], "bench");
    snprintf(words, sizeof words, "%s%s%s", argv[first], two ? " " : "", two ? argv[first + 1] : "");
    const char *nearest = names[cli_nearest(words, names, N_NAMES)];
    const char *space = strchr(nearest, ' ');
    if (cli_is_near(two ? argv[first + 1] : words, two && space ? space + 1 : nearest)) {
        cli_error("argument %d, '%s': no such command; the nearest is 'pleat %s' (`pleat help` lists all)", first,
                  words, nearest);
        return CLI_USAGE;
    }
    cli_error("argument %d, '%s': no such command; there are:", first, words);
    print_commands(two ? "bench " : "", stderr);
    return CLI_USAGE;
}

static const command_row *find_command(int argc, char **argv, int first, int *n_words) {
    for (int i = 0; i < N_COMMANDS; i++)
        if ((*n_words = match(commands[i].name, argc, argv, first)) > 0) return &commands[i];
    return NULL;
}

static int help_command(int argc, char **argv) {
    int n_words;
    if (argc == 2) {
        print_help(stdout);
        return finish_printing();
    }
    if (argc == 3 && !strcmp(argv[2], "bench")) {
        print_bench_help();
        return finish_printing();
    }
    const command_row *row = find_command(argc, argv, 2, &n_words);
    if (!row) return unknown_command(argc, argv, 2);
    print_command_help(row);
    return finish_printing();
}

static int call(const command_row *row, int argc, char **argv, int first) {
    static options o; /* large, and there is one */
    cli_set_command(row->name);
    const int code = options_parse(&o, row->bit, row->name, argc, argv, first);
    if (code != CLI_OK) return code;
    if (o.help) {
        print_command_help(row);
        return finish_printing();
    }
    return row->fn(&o);
}

int main(int argc, char **argv) {
    int n_words;
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (is_help_flag(argv[1]) || !strcmp(argv[1], "help")) return help_command(argc, argv);
    if (argc == 3 && !strcmp(argv[1], "bench") && is_help_flag(argv[2])) {
        print_bench_help();
        return finish_printing();
    }
    if (!strcmp(argv[1], "--version")) {
        print_version(stdout);
        return finish_printing();
    }
    const command_row *row = find_command(argc, argv, 1, &n_words);
    return row ? call(row, argc, argv, 1 + n_words) : unknown_command(argc, argv, 1);
}
