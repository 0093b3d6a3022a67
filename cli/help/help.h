/* SPDX-License-Identifier: MIT
 *
 * help.h: what is said of commands and their options, all of it made from the rows beside their code.
 *
 *     help.c         the texts of `pleat help`, and which command was meant
 *     specs.c        `pleat help kv`: what may stand behind --kv
 *     man.c          man pages: `pleat help --man [COMMAND]`
 *     completion.c   what shells complete: `pleat completion bash|zsh|fish`; completion_specs.c: inside a KV spec
 */
#ifndef PLEAT_CLI_HELP_H
#define PLEAT_CLI_HELP_H

#include <stdio.h>

#include "cli/lib/options.h"

typedef struct command_list {
    const command *const *v; /* [n]; those of one first word stand together */
    uint32_t n;
} command_list;

/* Words that are no commands of the list and take none of its options. */
#define HELP_USAGE "[--man] [COMMAND] | kv"
#define HELP_TEXT "this text, or a command's: pleat help run; kv: what --kv takes; --man: a man page"
#define COMPLETION_USAGE "bash|zsh|fish"
#define COMPLETION_TEXT "a script that completes commands, options and values in a shell"
#define VERSION_TEXT "version, build, and what was found on this machine"

/* ---- help.c ---------------------------------------------------------------------------------- */

/* The command whose name argv[first..] spells out, and its number of words; NULL if there is none. */
const command *help_find(const command_list *list, int argc, char **argv, int first, int *n_words);

/* Say which command comes nearest to the words at argv[first], or which there are.  CLI_USAGE. */
int help_unknown(const command_list *list, int argc, char **argv, int first);

/* Whether several commands begin with this word; and what they are for. */
int help_is_group(const command_list *list, const char *word);
const char *help_of_group(const char *word);

/* Print what help, completion or --help itself is, if it is this word; 0 if it is not. */
int help_itself(const char *word, FILE *f);

void help_all(const command_list *list, FILE *f);
void help_group(const command_list *list, const char *word, FILE *f);
void help_command(const command *c, FILE *f);

/* ---- specs.c --------------------------------------------------------------------------------- */

/* Print what KV specs there are, if the word asks for them: kv or specs; 0 if it does not. */
int help_specs(const char *word, FILE *f);

/* ---- man.c ----------------------------------------------------------------------------------- */

/* The man page of a command, or of `pleat` where c is NULL. */
void help_man(const command_list *list, const command *c, FILE *f);

/* All pages into a folder that is there: pleat.1 and pleat-COMMAND.1.  CLI_OK, or CLI_FAILED after a message. */
int help_man_pages(const command_list *list, const char *dir);

/* ---- completion.c ---------------------------------------------------------------------------- */

/* Print the script for a shell.  CLI_OK, or CLI_USAGE after a message for one that is not known. */
int help_completion(const command_list *list, const char *shell, FILE *f);

#endif
