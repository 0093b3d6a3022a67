/* SPDX-License-Identifier: MIT
 *
 * whole_file.h: a file that is seen whole or not at all: written beside its path, then moved over it.
 *
 *     nothing, a regular file    beside it, then moved over it; its mode stays
 *     a link to either           the same to what the link leads to; the link stays
 *     a pipe, a device           written as it is: there is nothing to move over
 */
#ifndef PLEAT_CLI_WHOLE_FILE_H
#define PLEAT_CLI_WHOLE_FILE_H

#include <stdio.h>

typedef struct whole_file {
    FILE *file;
    const char *path; /* as given; not owned */
    char *target;     /* what it leads to */
    char *temp;       /* where the bytes are until whole_file_close(); NULL: at the target itself */
} whole_file;

/* Whether `path` is there and can only be written as it is. */
int whole_file_is_special(const char *path);

/* Whether whole_file_open() would be fine now, without waiting for a pipe's reader.  CLI_OK, or CLI_FAILED after a
 * message. */
int whole_file_check(const char *path);

/* Begin a new file for `path`.  A pipe waits for its reader.  CLI_OK, or CLI_FAILED after a message. */
int whole_file_open(whole_file *w, const char *path);

/* All bytes on the disk, then the name.  CLI_OK, or CLI_FAILED after a message, with `path` as it was. */
int whole_file_close(whole_file *w);

/* Forget the new file; `path` stays as it was. */
void whole_file_abandon(whole_file *w);

#endif
