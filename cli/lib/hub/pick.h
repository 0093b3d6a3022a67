/* SPDX-License-Identifier: MIT
 *
 * pick.h: what a user writes behind -hf, and which file of a repository is meant by it.
 *
 *     USER/REPO          the file of Q4_K_M, else that of Q8_0, else the only one
 *     USER/REPO:QUANT    the file whose path has QUANT as a word: "x-Q4_K_M.gguf", "q4_k_m/x.gguf", in any case of
 *                        letters; "Q4_K" is no word of "x-Q4_K_M.gguf"
 *     --hf-file PATH     that file
 *
 * Where none is meant or several are, there is no guess: the refusal lists what there is.  Projectors (mmproj) and
 * importance matrices are no models; a model in several parts is refused by name.
 */
#ifndef PLEAT_CLI_HUB_PICK_H
#define PLEAT_CLI_HUB_PICK_H

#include <stdint.h>

enum {
    HUB_WHY_CAP = 1024,
    HUB_REPO_CAP = 200, /* two names of 96 and a slash */
    HUB_QUANT_CAP = 32,
    HUB_PATH_CAP = 512,    /* of a path inside a repository */
    HUB_DEPTH_MAX = 8,     /* folders that a file lies in there */
    HUB_FILES_MAX = 10000, /* models of one repository */
};

/* Why not; ends with a NUL. */
typedef char hub_why[HUB_WHY_CAP];

typedef struct hub_name {
    char repo[HUB_REPO_CAP];
    char quant[HUB_QUANT_CAP]; /* "": not given */
} hub_name;

typedef struct hub_file {
    char path[HUB_PATH_CAP]; /* parts with slashes between, none "", "." or ".." */
    uint64_t size_bytes;
    char sha256[65]; /* small hexadecimal letters; "": not said */
} hub_file;

/* GGUF files of a repository. */
typedef struct hub_listing {
    hub_file *at; /* [n], on the heap */
    uint32_t n, cap;
} hub_listing;

/* Read USER/REPO[:QUANT].  0 and why not, if it is none. */
int hub_name_parse(const char *text, hub_name *out, hub_why why);

/* Whether a path of a repository is one that a file below a folder may have. */
int hub_is_path(const char *path);

int hub_is_gguf(const char *path);

/* Whether `text` has `n` hexadecimal digits in small letters, and nothing else. */
int hub_is_hex(const char *text, uint32_t n);

/* Add a file.  0 if there is no memory, or there are HUB_FILES_MAX. */
int hub_listing_add(hub_listing *list, const hub_file *file);
void hub_listing_release(hub_listing *list);

/* The file that is meant; `path` NULL: the quant decides.  NULL and why not, if it is none or not one. */
const hub_file *hub_pick(const hub_listing *list, const hub_name *name, const char *path, hub_why why);

#endif
