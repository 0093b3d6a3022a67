/* SPDX-License-Identifier: MIT
 *
 * hub.h: -hf USER/REPO[:QUANT]: a model that the hub has, in place of a file.
 *
 *     name ──> the hub's list of files ──> which of them (pick.h) ──> blobs/SHA256, downloaded once ──> path for -m
 *
 *     pick.h     what a user may write, and which file of a list is meant: text in, text out
 *     listing.h  the hub's answers, from JSON
 *     folder.h   the cache folder, which the hub's own tools share
 *     online.h   asks the hub and downloads; curl/ has what needs libcurl and libcrypto
 *
 * The folder is asked alone where HF_HUB_OFFLINE is set, where this build has no libcurl, and where the hub cannot be
 * reached.  What comes from the hub is believed in nothing: names, counts and sizes are checked, and bytes are hashed.
 */
#ifndef PLEAT_CLI_HUB_H
#define PLEAT_CLI_HUB_H

#include "cli/lib/options.h"

/* clang-format off */
/* Rows of the commands that take -m.  `others`: what else names a model there, with spaces between. */
#define HUB_ROWS(others)                                                                                               \
    {GROUP_MACHINE, "hf-repo", "hf", "REPO",                                                                           \
     "a model of the hub in place of a file, as USER/REPO[:QUANT]: downloaded once (default Q4_K_M, else Q8_0)",       \
     KIND_TEXT, .offset = offsetof(common_options, hf_repo), .excludes = others, .stands_for = "model",                \
     .because = "give one model"},                                                                                     \
    {GROUP_MACHINE, "hf-file", "hff", "FILE", "the file of that repository, by its name", KIND_TEXT,                   \
     .offset = offsetof(common_options, hf_file), .needs = "hf-repo", .excludes = others,                              \
     .because = "it is of the repository that -hf names"}
/* clang-format on */

/* Where -hf is given: find the file, download it if it is not there, and put its path where -m of the command `c` would.
 * CLI_OK, or an exit code after a message. */
int hub_take(const command *c, void *opts);

/* "libcurl 7.88.1" or "no libcurl". */
const char *hub_describe(void);

#endif
