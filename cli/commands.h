/* SPDX-License-Identifier: MIT
 *
 * commands.h: the commands of `pleat`, each defined in its folder beside its code.
 */
#ifndef PLEAT_CLI_COMMANDS_H
#define PLEAT_CLI_COMMANDS_H

#include "cli/lib/options.h"

extern const command run_command;                                 /* run/options.c */
extern const command serve_command;                               /* serve/options.c */
extern const command eval_command;                                /* eval/eval.c */
extern const command stats_command;                               /* stats/stats.c */
extern const command calibrate_command;                           /* calibrate/calibrate.c */
extern const command bench_attn_command;                          /* bench/attn.c */
extern const command bench_pages_command;                         /* bench/pages.c */
extern const command bench_codec_command;                         /* bench/codec.c */
extern const command bench_run_command;                           /* bench/run.c */
extern const command bench_serve_command;                         /* bench/serve/options.c */
extern const command inspect_command;                             /* inspect/inspect.c */
extern const command plan_command;                                /* plan/plan.c */
extern const command image_inspect_command, image_verify_command; /* image/image.c */

#endif
