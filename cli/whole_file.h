/* SPDX-License-Identifier: MIT
 *
 * whole_file.h: a file that is seen whole or not at all: written beside its path, then moved over it.
 */
#ifndef PLEAT_CLI_WHOLE_FILE_H
#define PLEAT_CLI_WHOLE_FILE_H

#include <stdio.h>

typedef struct whole_file {
    FILE *file;
    const char *path; /* not owned */
    char *temp;       /* where the bytes are until whole_file_close() */
} whole_file;

/* Begin a new file for `path`.  CLI_OK, or CLI_FAILED after a message. */
int whole_file_open(whole_file *w, const char *path);

/* All bytes on the disk, then the name.  CLI_OK, or CLI_FAILED after a message, with `path` as it was. */
int whole_file_close(whole_file *w);

/* Forget the new file; `path` stays as it was. */
void whole_file_abandon(whole_file *w);

#endif
