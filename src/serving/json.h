/* SPDX-License-Identifier: MIT
 *
 * json.h: is a text the beginning of one JSON object (RFC 8259), of any shape or of a given one?  A push-down recogniser that
 * takes a byte at a time.
 *
 *     START ──{──> KEY_OR_END ──"──> a name ──> COLON ──:──> VALUE ──> string, number, text, { or [ ──> AFTER
 *                       └──}──> AFTER, or WHOLE where that was the first {         AFTER ──,──> KEY or VALUE
 *
 * A byte is taken only if the text so far can still become an object: so what is taken never leads to a dead end.
 *
 * Under a shape (shape.h) a text may have several readings, its *paths*: a byte goes into each, and those that cannot take it
 * end.  Where a value or a name begins a path may become several.  Beyond JSON_PATHS those that come later are not followed.
 *
 * Stricter than the RFC, since texts are written and not read here.  Strings are UTF-8 without lone surrogates, spelled out
 * or escaped.  At most JSON_DEPTH of { and [ are open.  At most JSON_BLANKS blanks stand side by side: models write them
 * without end.  Names in an object may stand twice; those of a shape stand once, in its order and its spelling.
 */
#ifndef PLEAT_SERVING_JSON_H
#define PLEAT_SERVING_JSON_H

#include "serving/shape.h"

#define PLEAT__JSON_BLANKS 64u
#define PLEAT__JSON_PATHS PLEAT_JSON_CHOICES_MAX

typedef enum pleat__json_mode {
    PLEAT__JSON_START, /* the beginning: zeros are one */
    PLEAT__JSON_VALUE,
    PLEAT__JSON_VALUE_OR_END,
    PLEAT__JSON_KEY,
    PLEAT__JSON_KEY_OR_END, /* up to here a path may become several */
    PLEAT__JSON_COLON,
    PLEAT__JSON_AFTER, /* a value is whole; something is open */
    PLEAT__JSON_WHOLE, /* the object is */

    PLEAT__JSON_STRING,
    PLEAT__JSON_UTF8,   /* n_more bytes of a character are to come, the next in low..high */
    PLEAT__JSON_ESCAPE, /* behind a backslash */
    PLEAT__JSON_HEX,    /* n_more digits of \uXXXX are to come */
    PLEAT__JSON_HEX_D,  /* behind \uD: what follows says whether it is half a character */
    PLEAT__JSON_LOW,    /* behind a high surrogate: n_more bytes of \uD are to come */
    PLEAT__JSON_LOW_D,  /* the digit of a low surrogate, C..F */

    PLEAT__JSON_TEXT,  /* one of the node's texts */
    PLEAT__JSON_NAME,  /* one of the object's names */
    PLEAT__JSON_OTHER, /* a name that is none of them, and has not differed from all so far */

    PLEAT__JSON_MINUS,
    PLEAT__JSON_ZERO,
    PLEAT__JSON_INT,
    PLEAT__JSON_POINT,
    PLEAT__JSON_FRACTION,
    PLEAT__JSON_EXP,
    PLEAT__JSON_EXP_SIGN,
    PLEAT__JSON_EXP_DIGITS,
} pleat__json_mode;

/* A list or an object that is open. */
typedef struct pleat__json_frame {
    uint16_t node;
    uint16_t at; /* OBJECT: the first part that may yet come.  LIST: items before the last */
} pleat__json_frame;

typedef struct pleat__json_path {
    uint8_t mode; /* pleat__json_mode */
    uint8_t depth, n_blanks, n_more, low, high;
    bool is_key, is_high;   /* the string is a name; \uXXXX is a high surrogate */
    uint16_t node;          /* of the value that comes, or is being written */
    uint16_t pick, n_taken; /* of TEXT, NAME, OTHER: the text so far is that of a part, and its bytes */
    pleat__json_frame open[PLEAT__JSON_DEPTH];
} pleat__json_path;

typedef struct pleat__json {
    const pleat__shape *shape; /* NULL: any object */
    uint32_t n_others;         /* paths beside the first */
    pleat__json_path paths[PLEAT__JSON_PATHS];
} pleat__json;

/* Before the first byte; shape NULL: any object. */
void pleat__json_begin(pleat__json *json, const pleat__shape *shape);

/* Take n bytes.  False: no object begins so, and *json is unspecified. */
bool pleat__json_take(pleat__json *json, const char *bytes, size_t n);

/* *to = *from, but for what no path uses. */
void pleat__json_copy(pleat__json *to, const pleat__json *from);

bool pleat__json_is_whole(const pleat__json *json);

/* Is a string being written that may go on with any character? */
bool pleat__json_in_string(const pleat__json *json);

#endif
