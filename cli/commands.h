/* SPDX-License-Identifier: MIT
 *
 * commands.h: the functions behind the words of `pleat`.  Each returns the process' exit code (common.h).
 */
#ifndef PLEAT_CLI_COMMANDS_H
#define PLEAT_CLI_COMMANDS_H

#include "options.h"

int command_run(options *o);
int command_eval(options *o);
int command_calibrate(options *o);
int command_bench_attn(options *o);
int command_bench_pages(options *o);
int command_bench_codec(options *o);
int command_bench_run(options *o);
int command_bench_serve(options *o);
int command_inspect(options *o);
int command_plan(options *o);

#endif
