/* SPDX-License-Identifier: MIT
 *
 * tasks_internal.h: what tasks.c and tasks_turn.c share.
 */
#ifndef PLEAT_CLI_TASKS_INTERNAL_H
#define PLEAT_CLI_TASKS_INTERNAL_H

#include <jansson.h>

#include "tasks.h"

/* Where in which file a message points. */
typedef struct place {
    const char *path;
    unsigned line;
} place;

/* The object has the n_keys named, may have those behind them up to the NULL, and has no other: a misspelled one would be
 * left out silently.  1, or 0 after a message, as all below. */
int tasks_has_keys(const place *at, json_t *object, const char *const *keys, uint32_t n_keys, const char *what);
int tasks_is_text(const place *at, json_t *object, const char *key);

/* Turn number `index` of a sample, {"prompt", "answer"}. */
int tasks_read_turn(const place *at, const loaded *l, json_t *object, uint32_t index, int is_unseen, turn *t);

/* The turn that a line with a document is. */
int tasks_read_document(const place *at, const loaded *l, json_t *object, int is_unseen, turn *t);

void tasks_release_turn(turn *t);

#endif
