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
 * Which types of weights there are is a table in made_types.c.
 */
#ifndef PLEAT_CLI_MADE_H
#define PLEAT_CLI_MADE_H

#include <stddef.h>

#include "cli/lib/measure.h"
#include "cli/lib/shape/shape.h"

/* A type of weights.  Rows are whole blocks. */
typedef struct made_type made_type;
struct made_type {
    const char *name;      /* as --weights has it */
    uint32_t ggml_type;    /* as a GGUF has it */
    uint32_t block_values; /* weights of a block */
    uint32_t block_bytes;
    uint32_t d_at; /* where in a block its scale d is, a half float unless `fill` has it otherwise */
    double unit;   /* deviation of weights whose d is 1 */
    double m_of_d; /* scale of the minima, a half float behind d, in units of d; 0: the type has none */
    /* Fill n blocks at `out` with weights of about this deviation. */
    void (*fill)(const made_type *t, unsigned char *out, uint64_t n, double deviation, measure_rng *rng);
};

/* made_types.c: their names, in the order of the table, NULL behind the last; and the type of a name's index. */
extern const char *const made_type_names[];
const made_type *made_type_at(uint32_t idx);

typedef struct made_model {
    unsigned char *bytes; /* [n_bytes], aligned to pages */
    size_t n_bytes;
    char name[SHAPE_NAME_CAP + 32]; /* "llama3-8b, random q4_0" */
} made_model;

/* The shape that a user means: a name that `pleat plan --arch` knows, or the path of a config.json (with a '/' or
 * ".json").  CLI_OK, or an exit code after a message; so where such a model cannot be made. */
int made_find_shape(const char *text, model_shape *out);

/* Say what the model takes, and make it if there is as much memory.  CLI_OK, or CLI_FAILED after a message. */
int made_build(const model_shape *shape, const made_type *type, uint32_t n_engines, int is_quiet, made_model *out);
void made_release(made_model *m);

#endif
