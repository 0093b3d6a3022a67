/* SPDX-License-Identifier: MIT
 *
 * special.h: the tokens that are cut out of a text before the rest is merged: user-defined, control and unknown ones.
 *
 * They stand sorted by their bytes, so those that share a beginning are neighbours.  The longest one at a place of the
 * text is found as in a trie: each byte narrows the range of those that still fit, by binary search.
 *
 *     text  <tab...      '<' ── <table> <td> <tr>    't' ── all three    'a' ── <table>    'b' ── <table>    '.' ── none
 */
#ifndef PLEAT_TOKENIZER_SPECIAL_H
#define PLEAT_TOKENIZER_SPECIAL_H

#include "tokenizer/vocab.h"

/* The longest one that is read: at each place of a text so many bytes may have to be looked at.  The longest in the
 * vocabularies of tools/real_models.sh has 31. */
#define PLEAT__MAX_SPECIAL_BYTES 1024u

typedef struct pleat__special {
    const char *p; /* in the vocabulary's text */
    uint64_t n_bytes;
    pleat_token id;
    bool is_user;    /* else control or unknown */
    bool eats_space; /* whitespace behind it is part of it */
} pleat__special;

typedef struct pleat__specials {
    pleat_allocator al;
    pleat__special *list; /* [n] by their bytes */
    uint32_t n;
    uint32_t first[257]; /* list[first[b] .. first[b+1]) begin with byte b */
} pleat__specials;

/* Those of the vocabulary, which stays in place.  Tokens without bytes are left out; no two have the same, and
 * none has more than PLEAT__MAX_SPECIAL_BYTES. */
pleat_status pleat__specials_init(pleat__specials *specials, const pleat__vocab *vocab, const pleat_allocator *al,
                                  pleat_error *err);
void pleat__specials_release(pleat__specials *specials);

/* The one spelled `name`, or NULL. */
pleat__special *pleat__specials_find(const pleat__specials *specials, pleat__str name);

/* The longest that text[0..n_bytes), n_bytes > 0, begins with, or NULL.  Others than user-defined ones only if
 * with_control.  O(its bytes * log(n)). */
const pleat__special *pleat__specials_at(const pleat__specials *specials, const char *text, uint64_t n_bytes,
                                         bool with_control);

#endif
