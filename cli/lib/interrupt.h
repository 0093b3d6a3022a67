/* SPDX-License-Identifier: MIT
 *
 * interrupt.h: Ctrl-C ends long work between two of its steps, so that the command can say what is kept and what is lost.
 * A second one ends the process, but in a conversation.
 */
#ifndef PLEAT_CLI_INTERRUPT_H
#define PLEAT_CLI_INTERRUPT_H

/* From here on. */
void interrupt_catch(void);

/* No longer: the next one ends the process. */
void interrupt_release(void);

/* From here on, any number of times: each stops what is under way, and interrupt_forget() makes ready for the next. */
void interrupt_catch_each(void);
void interrupt_forget(void);

/* Wait until there is something to read from the file `fd`, or its end.  0 where Ctrl-C came first. */
int interrupt_wait(int fd);

/* Whether Ctrl-C was pressed since. */
int interrupt_came(void);

/* The same as an exit code, for a loop over steps: CLI_OK, or CLI_INTERRUPTED. */
int interrupt_code(void);

#endif
