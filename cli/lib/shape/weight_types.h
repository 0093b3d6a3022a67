/* SPDX-License-Identifier: MIT
 *
 * weight_types.h: the types of weights that commands know by name: what they are called, their number in a GGUF, and
 * what a block of them takes.  They are the library's but for F32, which nobody asks for.
 */
#ifndef PLEAT_CLI_WEIGHT_TYPES_H
#define PLEAT_CLI_WEIGHT_TYPES_H

#include <stdint.h>

/* X(type, name, number, weights of a block, bytes of a block) */
#define WEIGHT_TYPES(X)               \
    X(Q8_0, "q8_0", 8, 32, 34)        \
    X(Q4_0, "q4_0", 2, 32, 18)        \
    X(Q4_1, "q4_1", 3, 32, 20)        \
    X(Q5_0, "q5_0", 6, 32, 22)        \
    X(Q5_1, "q5_1", 7, 32, 24)        \
    X(Q2_K, "q2_k", 10, 256, 84)      \
    X(Q3_K, "q3_k", 11, 256, 110)     \
    X(Q4_K, "q4_k", 12, 256, 144)     \
    X(Q5_K, "q5_k", 13, 256, 176)     \
    X(Q6_K, "q6_k", 14, 256, 210)     \
    X(IQ4_NL, "iq4_nl", 20, 32, 18)   \
    X(IQ4_XS, "iq4_xs", 23, 256, 136) \
    X(MXFP4, "mxfp4", 39, 32, 17)     \
    X(F16, "f16", 1, 1, 2)            \
    X(BF16, "bf16", 30, 1, 2)

/* Their names in a message, each with a comma behind it. */
#define WEIGHT_TYPE_LISTED(type, name, number, block_values, block_bytes) name ", "
#define WEIGHT_TYPES_LISTED WEIGHT_TYPES(WEIGHT_TYPE_LISTED)

#define WEIGHT_TYPE_IDX(type, name, number, block_values, block_bytes) WEIGHT_##type,
typedef enum weight_type_idx { WEIGHT_TYPES(WEIGHT_TYPE_IDX) N_WEIGHT_TYPES } weight_type_idx;

typedef struct weight_type {
    const char *name;
    uint16_t number;       /* in a GGUF */
    uint16_t block_values; /* weights of a block; rows are whole blocks */
    uint16_t block_bytes;
} weight_type;

extern const weight_type weight_types[N_WEIGHT_TYPES];

/* Their names in that order, NULL behind the last: an option's words. */
extern const char *const weight_type_names[N_WEIGHT_TYPES + 1];

/* NULL if none has this name. */
const weight_type *weight_type_of(const char *name);

#endif
