/* SPDX-License-Identifier: MIT
 *
 * json.h: is a text the beginning of one JSON object (RFC 8259)?  A push-down recogniser that takes a byte at a time.
 *
 *     START ──{──> KEY_OR_END ──"──> a string ──> COLON ──:──> VALUE ──> string, number, literal, { or [ ──> AFTER
 *                       └──}──> AFTER, or WHOLE where that was the first {         AFTER ──,──> KEY or VALUE
 *
 * A byte is taken only if the text so far can still become an object: so what is taken never leads to a dead end.
 *
 * Stricter than the RFC, since texts are written and not read here.  Strings are UTF-8 without lone surrogates, spelled out
 * or escaped.  At most JSON_DEPTH of { and [ are open.  At most JSON_BLANKS blanks stand side by side: models write them
 * without end.  Names in an object may stand twice.
 */
#ifndef PLEAT_SERVING_JSON_H
#define PLEAT_SERVING_JSON_H

#include <stdbool.h>

#include "core/types.h"

#define PLEAT__JSON_DEPTH 64u
#define PLEAT__JSON_BLANKS 64u

typedef enum pleat__json_mode {
    PLEAT__JSON_START, /* the beginning: zeros are one */
    PLEAT__JSON_KEY_OR_END,
    PLEAT__JSON_KEY,
    PLEAT__JSON_COLON,
    PLEAT__JSON_VALUE,
    PLEAT__JSON_VALUE_OR_END,
    PLEAT__JSON_AFTER, /* a value is whole; something is open */
    PLEAT__JSON_WHOLE, /* the object is */

    PLEAT__JSON_STRING,
    PLEAT__JSON_UTF8,   /* n_more bytes of a character are to come, the next in low..high */
    PLEAT__JSON_ESCAPE, /* behind a backslash */
    PLEAT__JSON_HEX,    /* n_more digits of \uXXXX are to come */
    PLEAT__JSON_HEX_D,  /* behind \uD: what follows says whether it is half a character */
    PLEAT__JSON_LOW,    /* behind a high surrogate: n_more bytes of \uD are to come */
    PLEAT__JSON_LOW_D,  /* the digit of a low surrogate, C..F */

    PLEAT__JSON_MINUS,
    PLEAT__JSON_ZERO,
    PLEAT__JSON_INT,
    PLEAT__JSON_POINT,
    PLEAT__JSON_FRACTION,
    PLEAT__JSON_EXP,
    PLEAT__JSON_EXP_SIGN,
    PLEAT__JSON_EXP_DIGITS,
    PLEAT__JSON_LITERAL, /* `rest` is to come */
} pleat__json_mode;

typedef struct pleat__json {
    uint64_t stack; /* the last bit for what was opened last; 1: a list */
    const char *rest;
    uint8_t mode; /* pleat__json_mode */
    uint8_t depth, n_blanks, n_more, low, high;
    bool is_key, is_high; /* the string is a name; \uXXXX is a high surrogate */
} pleat__json;

/* Take n bytes.  False: no object begins so, and *json is unspecified. */
bool pleat__json_take(pleat__json *json, const char *bytes, size_t n);

static inline bool pleat__json_is_whole(const pleat__json *json) { return json->mode == PLEAT__JSON_WHOLE; }

#endif
