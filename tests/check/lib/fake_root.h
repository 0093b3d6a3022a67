/* SPDX-License-Identifier: MIT
 *
 * fake_root.h: made-up files of /proc and /sys, below a folder that is removed with them.
 */
#ifndef CHECK_FAKE_ROOT_H
#define CHECK_FAKE_ROOT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* A directory that stands for "/", and what was made in it, oldest first. */
typedef struct fake_root {
    char dir[64];
    char *made[64];
    uint32_t n_made;
} fake_root;

static inline bool root_make(fake_root *root) {
    *root = (fake_root){.dir = "/tmp/check_root.XXXXXX"};
    return CHECK(mkdtemp(root->dir) != NULL);
}

static inline void root_note(fake_root *root, const char *path) {
    if (CHECK(root->n_made < 64)) root->made[root->n_made++] = strdup(path);
}

/* Write a file below the root, and the directories that it needs. */
static inline void root_write(fake_root *root, const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", root->dir, name);
    for (char *slash = path + strlen(root->dir) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (mkdir(path, 0700) == 0) root_note(root, path);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    if (!CHECK(f != NULL)) return;
    CHECK(fputs(text, f) >= 0 && fclose(f) == 0);
    root_note(root, path);
}

static inline void root_remove(fake_root *root) {
    while (root->n_made > 0) {
        char *path = root->made[--root->n_made];
        CHECK(remove(path) == 0 || access(path, F_OK) != 0); /* a file that was written twice is gone */
        free(path);
    }
    CHECK(rmdir(root->dir) == 0);
}

#endif
