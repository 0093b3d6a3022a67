/* SPDX-License-Identifier: MIT
 *
 * folder.c: a folder opened and closed; what it is to a store.
 */
#include "store/folder/folder.h"

#include <string.h>

#include "core/error.h"

#define WRITER_WAITS_MS 5000u /* for another process that writes to the index */
#define FINDER_WAITS_MS 20u   /* readers wait for nobody, but where the log begins anew */

static const char index_name[] = "index.sqlite";

/* ---- the index ----------------------------------------------------------------------------------------- */

/* Remove an index that is none; the files say what it held. */
static void remove_index(pleat__folder *s) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    char path[PLEAT__FOLDER_PATH_CAP], name[64];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        memcpy(name, index_name, sizeof index_name);
        memcpy(name + sizeof index_name - 1, ends[i], strlen(ends[i]) + 1);
        if (pleat__folder_path_of(s, name, path)) (void)s->files.remove(s->files.ctx, path);
    }
}

static pleat_status open_index(pleat__folder *s, pleat_error *err) {
    char path[PLEAT__FOLDER_PATH_CAP];
    bool is_damaged;
    (void)pleat__folder_path_of(s, index_name, path);
    pleat_status status = pleat__index_open(path, WRITER_WAITS_MS, &s->al, &s->written, &is_damaged, err);
    if (status != PLEAT_OK && is_damaged) {
        remove_index(s);
        status = pleat__index_open(path, WRITER_WAITS_MS, &s->al, &s->written, &is_damaged, err);
    }
    PLEAT_TRY(status);
    return pleat__index_open(path, FINDER_WAITS_MS, &s->al, &s->found, &is_damaged, err);
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static pleat_status copy_dir(pleat__folder *s, const char *dir) {
    s->dir_bytes = strlen(dir) + 1;
    s->dir = pleat__alloc(&s->al, 1, s->dir_bytes);
    if (s->dir) memcpy(s->dir, dir, s->dir_bytes);
    return s->dir ? PLEAT_OK : PLEAT_E_MEMORY;
}

static void close_folder(void *folder) {
    pleat__folder *s = folder;
    pleat__index_close(&s->found);
    pleat__index_close(&s->written);
    if (s->has_lock) (void)pthread_mutex_destroy(&s->find_lock);
    const pleat_allocator al = s->al;
    pleat__free(&al, s->dir, 1, s->dir_bytes);
    pleat__free(&al, s, 1, sizeof *s);
}

static pleat_status open_parts(pleat__folder *s, const char *dir, pleat_error *err) {
    s->has_lock = pthread_mutex_init(&s->find_lock, NULL) == 0;
    if (!s->has_lock) return PLEAT_E_MEMORY;
    PLEAT_TRY(copy_dir(s, dir));
    const int made = pleat__files_make_folder(dir);
    PLEAT_FAIL_IF(made != 0, err, PLEAT_E_IO, PLEAT_NOWHERE, "store: cannot make the folder %s: %s", dir,
                  strerror(-made));
    PLEAT_TRY(open_index(s, err));
    pleat_status status = pleat__folder_agree(s);
    if (status == PLEAT_OK) status = pleat__folder_make_room(s, 0);
    PLEAT_FAIL_IF(status == PLEAT_E_IO, err, status, PLEAT_NOWHERE, "store: the folder %s cannot be read", dir);
    if (status == PLEAT_OK) pleat__folder_count(s);
    return status;
}

pleat_status pleat__folder_open(pleat_store *store, const pleat_store_options *o, const pleat__files *files,
                                pleat__shelf *out, pleat_error *err) {
    pleat__folder *s = pleat__alloc_zero(&store->al, 1, sizeof *s);
    if (!s) return PLEAT_E_MEMORY;
    s->store = store;
    s->al = store->al;
    s->files = *files;
    s->max_bytes = o->max_bytes;
    const pleat_status status = open_parts(s, o->dir, err);
    if (status != PLEAT_OK) {
        close_folder(s);
        return status;
    }
    *out = (pleat__shelf){s,
                          pleat__folder_find,
                          pleat__folder_read,
                          pleat__folder_write,
                          pleat__folder_use,
                          pleat__folder_forget,
                          pleat__folder_is_valid,
                          close_folder};
    return PLEAT_OK;
}
