/* SPDX-License-Identifier: MIT
 *
 * hash.h: SHA-256 of a file.
 */
#ifndef PLEAT_CLI_HUB_HASH_H
#define PLEAT_CLI_HUB_HASH_H

#include <stdint.h>

/* Hash the first n_bytes of a file into `hex`, with a line that shows how far it is.  CLI_OK, CLI_INTERRUPTED, or
 * CLI_FAILED after a message, in which `path` names the file. */
int hub_hash(int fd, const char *path, uint64_t n_bytes, int is_quiet, char hex[65]);

#endif
