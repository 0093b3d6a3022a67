/* SPDX-License-Identifier: MIT
 *
 * shape.h: what a JSON value has to be (pleat_json_shape), checked and copied.
 *
 * A shape may lead back into itself.  What a node's value takes at least of nesting says where it may still begin:
 *
 *     depth of OBJECT   1 + the most of its required members      ONE_OF   the least of its parts
 *              LIST     1 + its item's where one is needed        others   0
 *
 * So whatever is begun can be completed within JSON_DEPTH.  What cannot is refused, as is ONE_OF that leads to itself with
 * nothing between.
 *
 * Beside a shape's own nodes there are some that each has: ids from SHAPE_ANY on.
 */
#ifndef PLEAT_SERVING_SHAPE_H
#define PLEAT_SERVING_SHAPE_H

#include <stdbool.h>

#include "pleat/serving.h"

#define PLEAT__JSON_DEPTH 64u
#define PLEAT__SHAPE_CHOICES_MAX 512u /* nodes that a ONE_OF leads to */

enum {
    PLEAT__SHAPE_ANY = 0xFFFC,
    PLEAT__SHAPE_ANY_OBJECT,
    PLEAT__SHAPE_ANY_LIST,
    PLEAT__SHAPE_LITERAL, /* true, false or null */
};

typedef struct pleat__shape {
    uint32_t n_nodes, n_parts;
    uint64_t n_text;        /* bytes of all texts, each with its NUL */
    pleat_json_node *nodes; /* [n_nodes] */
    pleat_json_part *parts; /* [n_parts] their texts are in `text` */
    uint8_t *depths;        /* [n_nodes] */
    char *text;             /* [n_text] */
} pleat__shape;

/* PLEAT_E_ARG with words where it is none.  Whether its texts are JSON is another question (json.h). */
pleat_status pleat__shape_check(const pleat_json_shape *shape, pleat_error *err);

/* The lengths of a copy, whose arrays are yet to be had. */
pleat__shape pleat__shape_lengths(const pleat_json_shape *shape);

/* Fill in the arrays from a shape that was checked. */
void pleat__shape_copy(pleat__shape *to, const pleat_json_shape *shape);

const pleat_json_node *pleat__shape_node(const pleat__shape *shape, uint32_t id);

/* The node's parts. */
const pleat_json_part *pleat__shape_parts(const pleat__shape *shape, uint32_t id);

/* May a value of this node begin where `depth` lists and objects are open? */
bool pleat__shape_fits(const pleat__shape *shape, uint32_t id, uint32_t depth);

#endif
