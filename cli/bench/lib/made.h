/* SPDX-License-Identifier: MIT
 *
 * made.h: a model with the shape of a known one and random weights, as a GGUF in memory: its speed is that of the real
 * one, for whom no file is at hand.
 *
 *     header, metadata: the shape, and a vocabulary of the true size (256 bytes, then names that mean nothing)
 *     tensors' names    as the architecture has them; which it is, what the shape has says
 *     tensors' data     codes at random; scales such that a row's weights have a variance of 1 / columns, which leaves
 *                       activations finite through any number of layers; norms are 1, biases 0
 *
 * How blocks of each type are made is a table in made_types.c.
 */
#ifndef PLEAT_CLI_MADE_H
#define PLEAT_CLI_MADE_H

#include <stddef.h>

#include "cli/lib/measure.h"
#include "cli/lib/shape/shape.h"
#include "cli/lib/shape/weight_types.h"

/* made_types.c: fill n blocks at `out` with random weights of about this deviation. */
void made_fill(const weight_type *type, unsigned char *out, uint64_t n, double deviation, measure_rng *rng);

typedef struct made_model {
    unsigned char *bytes; /* [n_bytes], aligned to pages */
    size_t n_bytes;
    char name[SHAPE_NAME_CAP + 32]; /* "llama3-8b, random q4_0" */
} made_model;

/* The shape that a user means: a name that `pleat plan --arch` knows, or the path of a config.json (with a '/' or
 * ".json").  CLI_OK, or an exit code after a message; so where such a model cannot be made. */
int made_find_shape(const char *text, model_shape *out);

/* Say what the model takes, and make it if there is as much memory.  CLI_OK, or CLI_FAILED after a message. */
int made_build(const model_shape *shape, const weight_type *type, uint32_t n_engines, int is_quiet, made_model *out);
void made_release(made_model *m);

#endif
