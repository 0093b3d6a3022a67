/* SPDX-License-Identifier: MIT
 *
 * kernels.h: which kernels of a program were launched on a GPU, so that it can be shown that a tool saw them all.
 */
#ifndef CHECK_KERNELS_H
#define CHECK_KERNELS_H

#include <stdint.h>

/* Launches so far; those of a graph once, as it is recorded. */
uint64_t check_kernels_launched(void);

/* Append a line "LAUNCHES MANGLED-NAME" for each kernel of the program to a file, those without launches too.  1 if done. */
int check_kernels_write(const char *path);

#endif
