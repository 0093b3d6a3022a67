/* SPDX-License-Identifier: MIT
 *
 * progress.h: one line on stderr that says how far long work has come.
 *
 * Nothing is drawn when stderr is not a terminal or one that cannot be drawn over (terminal.h), with -q, or when the
 * whole work will take less than a second.
 * There is one line in the process; whoever prints to stderr clears it first (cli_error() does).
 */
#ifndef PLEAT_CLI_PROGRESS_H
#define PLEAT_CLI_PROGRESS_H

#include <stdint.h>

/* Start a line for `total` units of work.  `label` must outlive it.  show = 0 makes all of this do nothing. */
void progress_begin(const char *label, uint64_t total, int show);

/* `done` units of the line that has begun were done before: they say nothing of what the others will take. */
void progress_resume(uint64_t done);

/* The next line is part `part` (from 0) of n_parts that take about as long as each other: the line then says so, and when
 * all of them will be done.  n_parts 0 or 1: it stands alone, as at first. */
void progress_part(uint32_t part, uint32_t n_parts);

/* `done` units are done.  Draws at most ten times a second. */
void progress_update(uint64_t done);

/* Wipe the line from the terminal, if it is there; the next update draws it again. */
void progress_clear(void);

/* The work is over: wipe the line and forget it. */
void progress_end(void);

#endif
