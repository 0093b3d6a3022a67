/* SPDX-License-Identifier: MIT
 *
 * samples.h: what a text decides about specs, measured on the model.
 */
#ifndef PLEAT_CLI_PLAN_SAMPLES_H
#define PLEAT_CLI_PLAN_SAMPLES_H

#include "print.h"

/* Of each of o->kv that depends on the text a forecast with samples of o->text, others without; out: [o->kv.n].  Profiles
 * that specs name are read, and the specs become what these say.  CLI_OK, or an exit code after a message. */
int plan_measure(plan_options *o, const plan_question *question, pleat_forecast *out);

#endif
