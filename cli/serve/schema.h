/* SPDX-License-Identifier: MIT
 *
 * schema.h: a JSON schema as the shape of an answer (serving.h): the part of draft 2020-12 that a shape can say.
 *
 *     type (a word or a list), properties, required, additionalProperties, items, minItems, maxItems, enum, const, anyOf,
 *     $ref to #, #/$defs/NAME and #/definitions/NAME; true
 *
 * What describes and does not bind is passed over: title, description, default, examples and the like.  All else is refused
 * by name.  What is written has the schema, but not all that has it is written: members come in the order of `properties`,
 * and others only where additionalProperties says so, or where there are no properties.
 */
#ifndef PLEAT_CLI_SERVE_SCHEMA_H
#define PLEAT_CLI_SERVE_SCHEMA_H

#include <jansson.h>

#include "pleat/pleat.h"

typedef struct schema schema;

/* An object as the schema has it.  NULL with words in why, cap bytes. */
schema *schema_read(json_t *root, char *why, size_t cap);

/* One of n objects {"name": names[i], arguments: an object of schemas[i]}, or of any where that is NULL; `arguments` is what
 * they are called. */
schema *schema_of_calls(const char *const *names, json_t *const *schemas, uint32_t n, const char *arguments, char *why,
                        size_t cap);

const pleat_json_shape *schema_shape(const schema *s);
void schema_destroy(schema **s);

#endif
