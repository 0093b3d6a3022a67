/* SPDX-License-Identifier: MIT
 *
 * keys.h: numbers in the metadata of an architecture, by the part of a key behind the architecture's name: for a qwen2
 * "attention.head_count" is the file's qwen2.attention.head_count.
 *
 * Every number is held against a range; messages name the whole key.
 */
#ifndef PLEAT_MODEL_KEYS_H
#define PLEAT_MODEL_KEYS_H

#include "gguf/gguf.h"

typedef struct pleat__keys {
    const pleat_gguf *gguf;
    const char *arch;
    pleat_error *err;
    char key[96]; /* the last one that was asked for, whole */
} pleat__keys;

/* NULL if there is none.  k->key is the key. */
const pleat__gguf_value *pleat__keys_find(pleat__keys *k, const char *suffix);

/* An integer in 1..max; a missing one leaves *out, which is then an error if it is 0.  An array, one item for each
 * layer, has to say the same for all. */
pleat_status pleat__keys_u32(pleat__keys *k, const char *suffix, uint32_t max, uint32_t *out);

/* A finite number above 0; a missing one leaves *out, which is then an error if it is 0. */
pleat_status pleat__keys_f32(pleat__keys *k, const char *suffix, float *out);

/* The same for one that may be 0, which counts as missing and leaves *out. */
pleat_status pleat__keys_factor(pleat__keys *k, const char *suffix, float *out);

/* A number or a truth value, as f64; NaN for anything else.  False where there is no such key: *out stays. */
bool pleat__keys_any(pleat__keys *k, const char *suffix, double *out);

#endif
