/* SPDX-License-Identifier: MIT
 *
 * image_file.h: files of sequences (pleat/image.h): mapped and checked, and written whole.
 */
#ifndef PLEAT_CLI_IMAGE_FILE_H
#define PLEAT_CLI_IMAGE_FILE_H

#include "cli/lib/load.h"

typedef struct image_file {
    const char *path; /* not owned */
    void *bytes;      /* [n_bytes] mapped; NULL: not open */
    uint64_t n_bytes;
    pleat_image_head head; /* points into bytes */
    const void *body;
} image_file;

/* Map the file and check all of it.  Else err says why not: PLEAT_E_IO where it cannot be read, PLEAT_E_FORMAT at offset 0
 * for what is no image at all, and otherwise as pleat_image_check() does. */
pleat_status image_file_open(image_file *f, const char *path, pleat_error *err);
void image_file_close(image_file *f);

/* What a file must be of that a cache of this engine may restore: all of a head but tokens, steps and body.  `spec` is the
 * text of the engine's.  CLI_OK, or CLI_FAILED after a message. */
int image_file_wanted(const pleat_engine *engine, const char *spec, pleat_image_head *wanted);

/* Save the sequence, whose tokens and steps stand in *head with all that image_file_wanted() gives.  CLI_OK, or
 * CLI_FAILED after a message, and the file is as it was. */
int image_file_write(const char *path, const pleat_engine *engine, pleat_seq seq, const pleat_image_head *head);

#endif
