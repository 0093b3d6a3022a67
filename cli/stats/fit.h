/* SPDX-License-Identifier: MIT
 *
 * fit.h: how large rd's steps may be: scales of a model's layers (pleat/stats.h), so that a bare `rd` has the mean
 * divergence from an f16 cache that was asked for, in as few bytes as go.
 *
 *     divergence    K = sum over layers and sides of a s^2         s: a layer's scale of keys or values
 *     bytes         less by b for a step e times as large
 *     so            a s^2 as b: the next byte costs the same divergence, whatever it is taken from
 *
 *     1  K and bytes as collected, all scales 1
 *     2  a and b of each side: the same again with its scale at 1.6
 *        by layer: of each layer and side
 *     3  by layer: scales of a side's layers from a, within a factor of sqrt 2
 *        of both sides from a and b
 *     4  all times sqrt(wanted / measured), until it holds
 *
 * What one text says of a layer is noise in part, and what prose asks of a layer is not what all tasks ask.  So scales of
 * layers are kept near each other, and are the same unless somebody wants them otherwise (docs/RD.md).
 */
#ifndef PLEAT_CLI_FIT_H
#define PLEAT_CLI_FIT_H

#include "cli/lib/load.h"

typedef struct fit_options {
    const load_options *load;
    const char *text; /* of which the first half is read */
    uint32_t n_windows, window_tokens, n_scored;
    double kld;   /* to have, nats a token */
    int by_layer; /* each layer has its own; 0: all have the same */
    int quiet;
} fit_options;

typedef struct fit_result {
    double before, after;                   /* mean divergences: with scales of 1, and with those that were found */
    double fraction_before, fraction_after; /* of f16's bytes */
} fit_result;

/* *stats becomes the same ones with scales, owned as before.  CLI_OK, or a code after a message. */
int fit_scales(const fit_options *o, const loaded *l, pleat_stats **stats, fit_result *result);

#endif
