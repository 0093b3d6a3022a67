/* SPDX-License-Identifier: MIT
 *
 * folder.h: a shelf that is a folder of image files.
 *
 *     folder.c    opened and closed; the shelf's row
 *     agree.c     the folder and its index brought to agree, when it is opened
 *     read.c      is it there; its body, checked
 *     write.c     files written, used, forgotten, evicted
 *     name.c      paths
 *     index.c     the index;  files.c     the file system
 *
 * Calls go down this list.
 *
 * A file gets its name and its row in one transaction of the index, and loses the row before it is removed.  So a process
 * that is killed leaves at most a file without a row, which the next open finds, or a temporary file, whose lock is gone.
 * A row whose file is not there costs a miss.  Nothing but the file itself is believed.
 */
#ifndef PLEAT_STORE_FOLDER_FOLDER_H
#define PLEAT_STORE_FOLDER_FOLDER_H

#include "store/folder/files.h"
#include "store/folder/index.h"
#include "store/internal.h"

/* Longest path of a file in the folder, NUL included. */
enum { PLEAT__FOLDER_PATH_CAP = 4096 };

typedef struct pleat__folder {
    pleat_store *store; /* whose stats it counts in, and which forgets what it evicts */
    pleat_allocator al;
    pleat__files files;
    char *dir;
    uint64_t dir_bytes;
    uint64_t max_bytes;
    uint64_t serial;       /* of temporary files; the writer's */
    pleat__index *written; /* the writer's connection; before its thread runs, open's */

    pthread_mutex_t find_lock; /* guards the connection of those who look for something */
    bool has_lock;
    pleat__index *found;
} pleat__folder;

/* The shelf of o->dir, on these files. */
pleat_status pleat__folder_open(pleat_store *store, const pleat_store_options *o, const pleat__files *files,
                                pleat__shelf *out, pleat_error *err);

/* ---- name.c */

/* Path of a key's file, or of the writer's serial-th temporary file; cap PLEAT__FOLDER_PATH_CAP. */
void pleat__folder_path(const pleat__folder *s, const pleat__store_key *key, char *out);
void pleat__folder_temp_path(const pleat__folder *s, const pleat__store_key *key, uint64_t serial, char *out);

/* Path of any name in the folder.  False: it is too long. */
bool pleat__folder_path_of(const pleat__folder *s, const char *name, char *out);

/* The key that a file's name says; false: it is no image's name. */
bool pleat__folder_key_of_name(const char *name, pleat__store_key *out);

bool pleat__folder_is_temp(const char *name);

/* ---- read.c */

int pleat__folder_find(void *folder, const pleat__store_key *keys, uint32_t n, uint32_t *which, uint64_t *body_bytes);
int pleat__folder_read(void *folder, const pleat__reading *r);

/* ---- write.c */

pleat_status pleat__folder_write(void *folder, const pleat__writing *w);
void pleat__folder_use(void *folder, const pleat__store_key *key);
void pleat__folder_forget(void *folder, const pleat__store_key *key);

/* Evict until n_bytes more fit.  PLEAT_E_IO: the index cannot be used. */
pleat_status pleat__folder_make_room(pleat__folder *s, uint64_t n_bytes);

/* Take the index's sums into the stats. */
void pleat__folder_count(pleat__folder *s);

/* ---- agree.c */

/* The index and the folder agree, and what killed processes have left is gone. */
pleat_status pleat__folder_agree(pleat__folder *s);
bool pleat__folder_is_valid(void *folder);

#endif
