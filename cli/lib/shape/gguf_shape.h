/* SPDX-License-Identifier: MIT
 *
 * gguf_shape.h: the shape of a model, and what its weights weigh, from a GGUF file of any architecture.
 */
#ifndef PLEAT_CLI_GGUF_SHAPE_H
#define PLEAT_CLI_GGUF_SHAPE_H

#include "pleat/model.h"
#include "shape.h"

/* Bytes of the tensors in a file. */
typedef struct gguf_weights {
    uint64_t bytes;   /* of all; 0 if the file has a type whose size is not known */
    uint64_t lookup;  /* token_embd, if it is not the output matrix too */
    uint64_t experts; /* ffn_*_exps */
} gguf_weights;

/* PLEAT_E_FORMAT for a key that is missing, of another kind or out of range, PLEAT_E_UNSUPPORTED for a model whose cache
 * pages cannot hold; err (not NULL) says which. */
pleat_status gguf_shape_read(const pleat_gguf *gguf, model_shape *out, gguf_weights *weights, pleat_error *err);

#endif
