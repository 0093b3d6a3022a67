/* SPDX-License-Identifier: MIT
 *
 * borrowed.h: names that people bring from other programs, and what they are called here.  For hints alone: no such
 * name is taken.
 */
#ifndef PLEAT_CLI_BORROWED_H
#define PLEAT_CLI_BORROWED_H

/* The option, without dashes, that does what another program's option of this name does; NULL: none is known.  Case and
 * '_' for '-' make no difference. */
const char *borrowed_option(const char *name);

/* What to give in place of a KV spec that begins with another program's name, as a sentence without its end; NULL: none
 * is known.  `text` is all that stood behind --kv. */
const char *borrowed_spec(const char *text);

/* What another program's word for an option's value is called here, if it is one of `words` (NULL behind the last), else
 * NULL: "cuda" for "gpu". */
const char *borrowed_word(const char *text, const char *const *words);

#endif
