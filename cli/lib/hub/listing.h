/* SPDX-License-Identifier: MIT
 *
 * listing.h: the hub's answers, from JSON.
 *
 *     api/models/USER/REPO/revision/main                {"sha": COMMIT, ..}
 *     api/models/USER/REPO/tree/COMMIT?recursive=true   [{"type": "file", "path", "size", "lfs": {"oid": SHA256, "size"}}, ..]
 */
#ifndef PLEAT_CLI_HUB_LISTING_H
#define PLEAT_CLI_HUB_LISTING_H

#include <stddef.h>

#include "pick.h"

#define HUB_SIZE_MAX ((uint64_t)1 << 50) /* of a file: a petabyte */

/* The commit of a revision.  0 and why not, if the n bytes do not say it. */
int hub_commit_parse(const char *json, size_t n, char commit[41], hub_why why);

/* Add the GGUF files of a list to `list`.  0 and why not, if the n bytes are none; `list` may have grown all the same. */
int hub_listing_parse(const char *json, size_t n, hub_listing *list, hub_why why);

#endif
