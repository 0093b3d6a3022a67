/* SPDX-License-Identifier: MIT
 *
 * held.h: which tokens the cache holds of a conversation, and how it gets to the next turn's with the least reading.
 *
 * Every turn the whole conversation is put in the model's chat form and becomes tokens.  What the cache holds already is
 * a beginning of them, as long as the form adds at the end alone:
 *
 *     held    |s s s u u u a a a a|                         goes on: the rest is read
 *     turn    |s s s u u u a a a a . u u u u .|
 *                                 `--------- read
 *
 *     held    |s s s u u u a a a a|                         goes back: to the longest mark that is a beginning
 *     turn    |s s s u u u a b . u u u u .|                 of both, or to nothing
 *              `-- mark --' `--------- read
 *
 * Forms that trim an answer, or leave out its thoughts once it is an old one, go back every turn.  So do /regen, /undo and
 * another system text.
 *
 * The model need not have spelled its answer as the tokenizer would.  So where the tokens differ and the texts do not,
 * the held ones stay and the rest of the text alone becomes tokens.
 *
 * The last token of a turn is always read: its logits begin the answer.
 */
#ifndef PLEAT_CLI_HELD_H
#define PLEAT_CLI_HELD_H

#include "pleat/pleat.h"

#define HELD_MARKS 4

typedef struct held_tokens {
    pleat_token *ids; /* [n] that the cache's sequence has been fed, in order */
    uint32_t n, cap;
    char *text; /* [n_text] what they spell, special tokens spelled out; NULL: not known */
    size_t n_text, text_cap;
    uint32_t marks[HELD_MARKS]; /* [n_marks] lengths that the cache can go back to, ascending */
    uint32_t n_marks;
} held_tokens;

/* How the cache gets to a turn's tokens. */
typedef struct held_way {
    uint32_t n_same; /* tokens at the beginning that held ones equal, the turn's last one not counted */
    uint32_t n_keep; /* of these, those that stay: where reading begins */
    int is_back;     /* the sequence goes back to n_keep; else it goes on */
} held_way;

/* The way to ids[0..n), n >= 1. */
held_way held_plan(const held_tokens *h, const pleat_token *ids, uint32_t n);

/* The way back to what the first n held tokens and a mark have in common. */
held_way held_back(const held_tokens *h, uint32_t n);

/* Where in text[0..n) the part begins that the held tokens do not spell; SIZE_MAX where they spell no beginning of it. */
size_t held_spell(const held_tokens *h, const char *text, size_t n);

/* The sequence is about to grow behind its first n tokens, or has gone back to them.  Marks beyond are gone, and what the
 * tokens spell is not known. */
void held_cut(held_tokens *h, uint32_t n);

/* The cache has been fed n tokens more. */
void held_add(held_tokens *h, const pleat_token *ids, uint32_t n);

/* What all tokens spell; bytes are copied.  From then on each token that is added brings its own. */
void held_set_text(held_tokens *h, const char *text, size_t n);
void held_add_text(held_tokens *h, const char *text, size_t n);

/* The cache has a new mark at the last token; where there are HELD_MARKS, marks[0] must have been dropped. */
void held_mark(held_tokens *h);

/* marks[0] is gone. */
void held_drop_mark(held_tokens *h);

void held_release(held_tokens *h);

#endif
