/* SPDX-License-Identifier: MIT
 *
 * archs.h: the models that `pleat plan --arch` knows by name, with their sources.
 */
#ifndef PLEAT_CLI_ARCHS_H
#define PLEAT_CLI_ARCHS_H

#include "shape.h"

typedef struct arch {
    const char *name;
    const char *source;  /* the repository on huggingface.co whose config.json has these numbers */
    const char *why_not; /* NULL, or why its cache cannot be kept in Pleat's pages */
    model_shape shape;   /* parameters not counted yet */
} arch;

/* Their names, and "list" behind them, for completion; NULL behind the last. */
extern const char *const arch_names[];

/* All of them; *n is their number. */
const arch *archs_all(uint32_t *n);

/* The model of that name, or NULL. */
const arch *archs_find(const char *name);

/* The known name that comes nearest. */
const char *archs_nearest(const char *name);

#endif
