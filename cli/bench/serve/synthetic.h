/* SPDX-License-Identifier: MIT
 *
 * synthetic.h: traffic that is made up: `--synthetic NAME[:KEY=VALUE,...]`.
 *
 * A request's prompt is a prefix that others share, or none, and tokens of its own; the lengths of these and of the
 * output are log-normal.  The presets' lengths are made for a context and shrink with a smaller one; lengths that the
 * user gives do not.
 */
#ifndef PLEAT_CLI_SYNTHETIC_H
#define PLEAT_CLI_SYNTHETIC_H

#include "trace.h"

/* What `text` says of traffic for sequences of at most max_tokens tokens: n requests (0: as many as the preset has), by
 * the seed alone.  All arrive at 0: see trace_arrivals().  Tenants are taken in equal shares, at random.
 * CLI_OK, or CLI_USAGE after a message; trace_release() is due in either case. */
int synthetic_make(trace *t, const char *text, uint32_t n, uint32_t max_tokens, uint32_t n_tenants, uint64_t seed);

#endif
