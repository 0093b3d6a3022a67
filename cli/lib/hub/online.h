/* SPDX-License-Identifier: MIT
 *
 * online.h: asks the hub for a model, and downloads it.
 *
 *     HF_ENDPOINT               the hub (default https://huggingface.co)
 *     HF_TOKEN, HF_TOKEN_PATH   a token, or a file with one (default HF_HOME/token, ~/.cache/huggingface/token)
 *     HF_HUB_DOWNLOAD_TIMEOUT   seconds without a byte after which a connection counts as broken (default 10)
 */
#ifndef PLEAT_CLI_HUB_ONLINE_H
#define PLEAT_CLI_HUB_ONLINE_H

#include "folder.h"

typedef struct hub_question {
    const hub_name *name;
    const char *file; /* --hf-file; NULL: not given */
    const hub_folder *folder;
    int has_cached; /* the folder has an answer, too: one try is enough */
    int is_quiet;
} hub_question;

/* CLI_OK: *path is the file's, on the heap; or NULL where the hub cannot be asked, and `why` says why not.  Else an exit
 * code after a message. */
int hub_online_take(const hub_question *q, char **path, hub_why why);

#endif
