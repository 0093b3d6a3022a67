/* SPDX-License-Identifier: MIT
 *
 * main.c: the command `pleat`: finds the command in one list, reads its options, calls it.
 *
 *     pleat COMMAND [OPTIONS]        pleat help [--man] [COMMAND]        pleat completion SHELL        pleat --version
 *
 * A command's name is one word or two (`bench attn`); `pleat help bench` lists those of the first word.
 * docs/CLI.md describes them all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/peer_zstd.h"
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/lib/common.h"
#include "cli/lib/hub/hub.h"
#include "cli/lib/output.h"
#include "cli/run/chat/edit.h"
#include "cli/serve/serve.h"

static const command *const commands[] = {
    &run_command,         &serve_command,       &eval_command,          &calibrate_command,    &bench_attn_command,
    &bench_pages_command, &bench_codec_command, &bench_run_command,     &bench_serve_command,  &inspect_command,
    &plan_command,        &stats_command,       &image_inspect_command, &image_verify_command,
};
static const command_list all = {commands, sizeof commands / sizeof commands[0]};

/* The end of a command that has only printed: CLI_FAILED after a message if stdout did not take it. */
static int finish_printing(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    cli_error("cannot write standard output: %s", strerror(errno));
    return CLI_FAILED;
}

static int is_help_flag(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "-help") || !strcmp(word, "-h");
}

/* help --man [COMMAND], help --man-to DIR */
static int print_man(int argc, char **argv) {
    int n_words;
    if (!strcmp(argv[2], "--man-to")) {
        if (argc == 4) return help_man_pages(&all, argv[3]);
        cli_error("argument 2, '--man-to': needs a folder for the pages");
        return CLI_USAGE;
    }
    const command *c = argc > 3 ? help_find(&all, argc, argv, 3, &n_words) : NULL;
    if (argc > 3 && !c) return help_unknown(&all, argc, argv, 3);
    help_man(&all, c, stdout);
    return finish_printing();
}

static int help(int argc, char **argv) {
    int n_words;
    if (argc == 2) {
        help_all(&all, stdout);
        return finish_printing();
    }
    if (!strcmp(argv[2], "--man") || !strcmp(argv[2], "--man-to")) return print_man(argc, argv);
    if (argc == 3 && help_is_group(&all, argv[2])) {
        help_group(&all, argv[2], stdout);
        return finish_printing();
    }
    if (help_itself(is_help_flag(argv[2]) ? "help" : argv[2], stdout)) return finish_printing();
    if (help_specs(argv[2], stdout)) return finish_printing();
    const command *c = help_find(&all, argc, argv, 2, &n_words);
    if (!c) return help_unknown(&all, argc, argv, 2);
    help_command(c, stdout);
    return finish_printing();
}

static int completion(int argc, char **argv) {
    if (argc != 3) {
        cli_error("completion: name a shell: " COMPLETION_USAGE);
        return CLI_USAGE;
    }
    if (is_help_flag(argv[2])) {
        help_itself(argv[1], stdout);
        return finish_printing();
    }
    const int code = help_completion(&all, argv[2], stdout);
    return code == CLI_OK ? finish_printing() : code;
}

static int version(void) {
    printf("pleat %s\n%s; %s; %s; %s; %s\n", pleat_version(), pleat_build_info(), peer_describe(), hub_describe(),
           server_describe(), edit_describe());
    return finish_printing();
}

static int call(const command *c, int argc, char **argv, int first) {
    void *opts = cli_alloc(1, c->options_bytes);
    cli_set_command(c->name);
    int code = options_parse(c, opts, argc, argv, first);
    if (code == CLI_OK && ((const common_options *)opts)->help) {
        help_command(c, stdout);
        code = finish_printing();
    } else if (code == CLI_OK) {
        code = hub_take(c, opts);
        if (code == CLI_OK) code = output_check_names(opts);
        if (code == CLI_OK) code = c->run(opts);
    }
    free(((common_options *)opts)->hf_path);
    free(opts);
    return code;
}

int main(int argc, char **argv) {
    int n_words;
    if (argc < 2) {
        help_all(&all, stderr);
        return CLI_USAGE;
    }
    if (is_help_flag(argv[1]) || !strcmp(argv[1], "help")) return help(argc, argv);
    if (!strcmp(argv[1], "--version")) return version();
    if (!strcmp(argv[1], "completion")) return completion(argc, argv);
    if (argc == 3 && help_is_group(&all, argv[1]) && is_help_flag(argv[2])) {
        help_group(&all, argv[1], stdout);
        return finish_printing();
    }
    const command *c = help_find(&all, argc, argv, 1, &n_words);
    return c ? call(c, argc, argv, 1 + n_words) : help_unknown(&all, argc, argv, 1);
}
