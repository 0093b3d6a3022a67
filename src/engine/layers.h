/* SPDX-License-Identifier: MIT
 *
 * layers.h: what a cache is told of a model's layers when it is made, on either device.  The cache copies it.
 */
#ifndef PLEAT_ENGINE_LAYERS_H
#define PLEAT_ENGINE_LAYERS_H

#include "engine/internal.h"

typedef struct pleat__engine_layers {
    uint32_t *windows;        /* [n_layers], or NULL: none has one */
    float *sinks;             /* [n_layers][n_q_heads], or NULL: none has some */
    const pleat_rope **ropes; /* [n_layers] into kinds */
    pleat_rope kinds[2];      /* of the model's ropes */
    double *frequencies;      /* [2][head_dim/2] theirs */
    void *memory;             /* of all of it */
    uint64_t memory_bytes;
} pleat__engine_layers;

pleat_status pleat__engine_layers_init(const pleat_engine *engine, pleat__engine_layers *layers, pleat_error *err);
void pleat__engine_layers_free(const pleat_engine *engine, pleat__engine_layers *layers);

#endif
