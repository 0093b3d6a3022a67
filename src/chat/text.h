/* SPDX-License-Identifier: MIT
 *
 * text.h: text that is built up, code points, and values as Python prints them.
 *
 * str() of a list or dict shows what is in it by repr(): strings in quotes, what does not print as escapes.  Floats have
 * the fewest digits that read back as the same number.
 */
#ifndef PLEAT_CHAT_TEXT_H
#define PLEAT_CHAT_TEXT_H

#include "chat/value.h"

/* ---- UTF-8 that has been checked ------------------------------------------------------------------------------- */

/* Bytes of the character that begins with this byte. */
static inline uint32_t pleat__char_bytes(char first) {
    const uint8_t u = (uint8_t)first;
    return u < 0x80 ? 1 : u < 0xE0 ? 2 : u < 0xF0 ? 3 : 4;
}

uint32_t pleat__text_length(const char *s, uint32_t n);                         /* in code points */
uint32_t pleat__text_offset(const char *s, uint32_t n, uint32_t n_chars);       /* bytes of the first n_chars */
uint32_t pleat__char_at(const char *s, uint32_t n, uint32_t at, uint32_t *len); /* the code point at byte `at` < n */
uint32_t pleat__char_put(uint32_t cp, char out[4]);                             /* returns its bytes, 1..4 */

/* ---- properties of code points, as Python 3.11 has them (Unicode 14) --------------------------------------------- */

bool pleat__char_is_space(uint32_t cp);     /* str.isspace(), which strip() and split() go by */
bool pleat__char_is_line_end(uint32_t cp);  /* what splitlines() splits at */
bool pleat__char_is_printable(uint32_t cp); /* what repr() shows as it is */
bool pleat__char_is_cased(uint32_t cp);     /* has an upper or lower case: an approximation of Python's, for title() */

typedef enum pleat__case { PLEAT__CASE_LOWER, PLEAT__CASE_UPPER, PLEAT__CASE_TITLE } pleat__case;
/* One code point in another case: up to three, whose number is returned. */
uint32_t pleat__char_case(uint32_t cp, pleat__case to, uint32_t out[3]);

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* Text that grows in the vm.  {0} is empty. */
typedef struct pleat__builder {
    char *p; /* [cap] */
    uint32_t n, cap;
    uint32_t max; /* 0: as long as a string may be */
} pleat__builder;

pleat_status pleat__put(pleat__vm *vm, pleat__builder *b, const char *s, uint64_t n);
pleat_status pleat__put_text(pleat__vm *vm, pleat__builder *b, const char *s); /* NUL-terminated */
pleat_status pleat__put_char(pleat__vm *vm, pleat__builder *b, uint32_t cp);
pleat_status pleat__put_repeated(pleat__vm *vm, pleat__builder *b, const char *s, uint64_t n, uint64_t times);
static inline pleat__value pleat__built(const pleat__builder *b) { return pleat__value_str(b->p ? b->p : "", b->n); }

/* ---- printing ---------------------------------------------------------------------------------------------------- */

pleat_status pleat__put_str(pleat__vm *vm, pleat__builder *b, pleat__value v);
pleat_status pleat__put_repr(pleat__vm *vm, pleat__builder *b, pleat__value v);

/* Python's repr() of a float in out[PLEAT__FLOAT_CAP]. */
#define PLEAT__FLOAT_CAP 32
void pleat__float_text(double f, char out[PLEAT__FLOAT_CAP]);

/* str(): a string as it is, for others a new one. */
pleat_status pleat__to_str(pleat__vm *vm, pleat__value v, pleat__value *out);

/* `&`, `<`, `>` and both quotes as HTML wants them. */
pleat_status pleat__put_escaped(pleat__vm *vm, pleat__builder *b, const char *s, uint32_t n);

/* A text as a number, blanks around it and `_` between digits allowed: false where it is none. */
bool pleat__text_to_float(const char *s, uint32_t n, double *out);
bool pleat__text_to_int(const char *s, uint32_t n, int base, int64_t *out);

#endif
