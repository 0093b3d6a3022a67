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
    int why;          /* errno of a write that failed before the end; 0: none did */
} whole_file;

/* Whether `path` is there and can only be written as it is. */
int whole_file_is_special(const char *path);

/* Whether both paths lead to one file, be it there or not yet: by another spelling, a link or a hard link.  Devices are
 * not one file: what is written to them is not kept. */
int whole_file_is_same(const char *a, const char *b);

/* Whether whole_file_open() would be fine now, without waiting for a pipe's reader.  CLI_OK, or CLI_FAILED after a
 * message. */
int whole_file_check(const char *path);

/* Begin a new file for `path`.  A pipe waits for its reader.  CLI_OK, or CLI_FAILED after a message. */
int whole_file_open(whole_file *w, const char *path);

/* All bytes on the disk, then the name.  CLI_OK, or CLI_FAILED after a message, with `path` as it was. */
int whole_file_close(whole_file *w);

/* From here on whole_file_close() leaves files beside their paths, with all their bytes on the disk, until
 * whole_file_commit(): the files of one command appear together.  At most WHOLE_FILES_CAP. */
#define WHOLE_FILES_CAP 8
void whole_file_hold(void);

/* Move what is held over its paths, or forget it where `code` is not CLI_OK.  `code`, or CLI_FAILED after a message. */
int whole_file_commit(int code);

/* Forget the new file; `path` stays as it was. */
void whole_file_abandon(whole_file *w);

#endif
