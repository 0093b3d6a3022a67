/* SPDX-License-Identifier: MIT
 *
 * devices.h: `pleat inspect --devices`: the GPUs that this build finds on this machine.
 */
#ifndef PLEAT_CLI_DEVICES_H
#define PLEAT_CLI_DEVICES_H

#include "cli/lib/options.h"

/* Print one row for each GPU.  That there is none is a result too: an empty table, and on stderr the reason. */
int devices_print(const common_options *common);

#endif
