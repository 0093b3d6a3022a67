/* SPDX-License-Identifier: MIT
 *
 * os_wait.h: threads that sleep until a word changes.  A futex where there is one (PLEAT_FUTEX, on Linux), mutexes and
 * condition variables of pthread elsewhere.  Who sleeps takes no CPU; who wakes nobody pays a system call all the same,
 * so a caller keeps count of its sleepers.
 *
 *     sleeper:   count itself;  while (*word == expected) pleat__os_wait(word, expected);  count itself out
 *     waker:     change *word;  if anybody is counted: pleat__os_wake_all(word)
 *
 * with memory_order_seq_cst on both sides: either the waker sees the sleeper or the sleeper the new word.
 */
#ifndef PLEAT_HW_OS_WAIT_H
#define PLEAT_HW_OS_WAIT_H

#include <stdatomic.h>

#include "core/types.h"

/* Sleep until woken if *word is `expected`; return at once if not.  May return without a reason. */
void pleat__os_wait(_Atomic uint32_t *word, uint32_t expected);

/* Wake all threads that sleep on `word`. */
void pleat__os_wake_all(_Atomic uint32_t *word);

#endif
