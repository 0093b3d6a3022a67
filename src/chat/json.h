/* SPDX-License-Identifier: MIT
 *
 * json.h: JSON text into values, and values into JSON text as Python's json module writes it.
 *
 * Reading is strict (RFC 8259): one value, UTF-8, no lone surrogates, at most PLEAT__JSON_DEPTH levels; of keys that come
 * twice the last one counts.  A whole number beyond 64 bits is refused, where Python has longer ones.
 */
#ifndef PLEAT_CHAT_JSON_H
#define PLEAT_CHAT_JSON_H

#include "chat/text.h"

/* Arrays and objects inside each other.  Tools' schemas have five or six; a parser's stack should not grow with a
 * stranger's text. */
#define PLEAT__JSON_DEPTH 100u

/* Strings without escapes point into `text`, which has to outlive the value.  err->where is the offset at fault. */
pleat_status pleat__json_read(pleat__vm *vm, const char *text, size_t n_bytes, pleat__value *out);

typedef struct pleat__json_style {
    bool ensure_ascii; /* escape everything beyond ASCII */
    bool sort_keys;
    bool is_indented;            /* line ends and `indent` */
    pleat__value indent;         /* a string, for each level */
    pleat__value between, colon; /* strings */
} pleat__json_style;

/* ", " and ": " on one line. */
pleat__json_style pleat__json_plain(void);

pleat_status pleat__json_write(pleat__vm *vm, const pleat__json_style *style, pleat__value v, pleat__builder *b);

#endif
