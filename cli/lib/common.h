/* SPDX-License-Identifier: MIT
 *
 * common.h: what every command of `pleat` needs: exit codes, messages, memory and files.
 *
 * Results go to stdout (or -o FILE), talk goes to stderr.  A message names the command, then what is wrong, where,
 * and what would be right:
 *
 *     pleat run: --kv 'k9v4', position 0: unknown stage ...
 *
 * The command may end the process where the library may not: cli_alloc() does when memory is out.
 */
#ifndef PLEAT_CLI_COMMON_H
#define PLEAT_CLI_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include "pleat/pleat.h"

/* Exit codes; documented in docs/CLI.md. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,        /* the work could not be done: a bad file, a prompt that is too long, no memory */
    CLI_USAGE = 2,         /* the command line is wrong */
    CLI_INTERRUPTED = 130, /* Ctrl-C; docs/CLI.md says what is printed or kept */
};

/* The word after `pleat` that messages carry; "" for none.  `name` must outlive the process' messages. */
void cli_set_command(const char *name);

/* Print `pleat COMMAND: ` and the message as one line on stderr. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same for what is no error: `pleat COMMAND: note: ` and the message.  The caller minds -q. */
/* A model's path with this ending in place of .gguf; the caller frees it. */
char *cli_path_beside(const char *model_path, const char *ending);

void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print what the library said about `what`, with its offset if it has one.  Returns CLI_FAILED. */
int cli_fail(const char *what, pleat_status status, const pleat_error *err);

/* n zeroed elements of `size` bytes; ends the process with a message when there is no memory.  Never NULL. */
void *cli_alloc(size_t n, size_t size);

/* A copy of the n bytes at `text` with a NUL behind. */
char *cli_copy(const char *text, size_t n);

/* What is read whole.  common.c has the most bytes of each, docs/CLI.md their list. */
typedef enum cli_content {
    CONTENT_PROMPT,
    CONTENT_TASKS,
    CONTENT_TEXT,
    CONTENT_TRACE,
    CONTENT_CONFIG,
    CONTENT_PROFILE,
    CONTENT_CONVERSATION
} cli_content;

/* Read the whole of `path` ("-": stdin) into *text, n_bytes long with a NUL behind; the caller frees it.  A file or a
 * pipe, no device, no larger than such content may be.  CLI_OK, or CLI_FAILED after a message, with nothing to free. */
int cli_read_file(cli_content content, const char *path, char **text, size_t *n_bytes);

/* The index of the word that `word` is likeliest a slip for, the first among equals; 0 where cli_is_near() says of none
 * that it is; n >= 1. */
uint32_t cli_nearest(const char *word, const char *const *words, uint32_t n);

/* Whether `word` is likely a slip for `meant`, by the rule of pleat_nearest_word(). */
int cli_is_near(const char *word, const char *meant);

#define HINT_CAP 96
/* "; the nearest is 'MEANT'", or "" where it is not near.  `kind`: "" or what it is, with a space before it. */
const char *cli_hint(char buf[HINT_CAP], const char *kind, const char *word, const char *meant);

/* Of the slots of all pages that are held, those without a token; 0 where none are held. */
double cli_fragmentation(const pleat_cache_usage *usage);

#endif
