/* SPDX-License-Identifier: MIT
 *
 * folder.h: the cache folder of downloaded models, in the form that the hub's own tools have given it.
 *
 *     HF_HUB_CACHE | HF_HOME/hub | XDG_CACHE_HOME/huggingface/hub | ~/.cache/huggingface/hub
 *         .locks/models--USER--REPO/SHA256.lock           flock()ed by who downloads
 *         models--USER--REPO/
 *             refs/main                                    the commit that main was, when last asked
 *             blobs/SHA256                                 a file's bytes
 *             blobs/SHA256.incomplete                      its first bytes
 *             blobs/SHA256.incomplete.etag                 what the server called them, for If-Range; ours alone
 *             snapshots/COMMIT/PATH -> ../../blobs/SHA256  its name
 *
 * A blob, a link and a ref appear whole, by rename.
 */
#ifndef PLEAT_CLI_HUB_FOLDER_H
#define PLEAT_CLI_HUB_FOLDER_H

#include "pick.h"

typedef struct hub_folder {
    char *root;  /* of all repositories */
    char *repo;  /* ROOT/models--USER--REPO */
    char *locks; /* ROOT/.locks/models--USER--REPO */
} hub_folder;

/* Where the files of a repository are, there or not.  CLI_OK, or CLI_FAILED after a message. */
int hub_folder_find(const char *repo, hub_folder *f);
void hub_folder_release(hub_folder *f);

/* A formatted text on the heap; ends the process with a message when there is no memory. */
char *hub_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The GGUF files of the commit that main was when last asked, without hashes, and that commit.  0 if there is none. */
int hub_folder_list(const hub_folder *f, char commit[41], hub_listing *list);

/* The path of a file of a commit; the caller frees it. */
char *hub_folder_path(const hub_folder *f, const char *commit, const char *path);

/* Make the folder of a path's file, and those above it.  CLI_OK, or CLI_FAILED after a message. */
int hub_folder_make_for(const char *path);

/* Give blob SHA256, which is there, its name in a commit, and let main be that commit.  CLI_OK, or CLI_FAILED after a
 * message. */
int hub_folder_name(const hub_folder *f, const char *commit, const hub_file *file);

#endif
