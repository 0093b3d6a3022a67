/* SPDX-License-Identifier: MIT
 *
 * files.h: what the store asks of a file system, as a row of functions, so that tests can have it fail.
 *
 * Each returns what it is asked for, or -errno.  read and write may do less than they are asked, as the system's may;
 * pleat__files_read() and pleat__files_write() go on until all is done.  The index is SQLite's own and not read or written
 * through these.
 */
#ifndef PLEAT_STORE_FILES_H
#define PLEAT_STORE_FILES_H

#include "core/types.h"

typedef struct pleat__files {
    void *ctx;
    int (*create)(void *ctx, const char *path); /* a new file to write to; a descriptor */
    int (*open)(void *ctx, const char *path);   /* a file to read; a descriptor */
    int64_t (*size)(void *ctx, int fd);
    int64_t (*read)(void *ctx, int fd, void *to, uint64_t n, uint64_t at);
    int64_t (*write)(void *ctx, int fd, const void *from, uint64_t n, uint64_t at);
    int (*sync)(void *ctx, int fd);
    int (*lock)(void *ctx, int fd); /* until it is closed, against other processes; -EWOULDBLOCK: one has it */
    int (*close)(void *ctx, int fd);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*remove)(void *ctx, const char *path);
    int (*sync_folder)(void *ctx, const char *path);
    /* Call each(arg, name) for the folder's entries until it returns false. */
    int (*list)(void *ctx, const char *path, bool (*each)(void *arg, const char *name), void *arg);
} pleat__files;

/* The system's. */
extern const pleat__files pleat__files_system;

/* Make the folder, for its owner alone, unless it is there.  0 or -errno. */
int pleat__files_make_folder(const char *path);

/* 0; -EIO where the file ends before n bytes; or -errno. */
int pleat__files_read(const pleat__files *f, int fd, void *to, uint64_t n, uint64_t at);
int pleat__files_write(const pleat__files *f, int fd, const void *from, uint64_t n, uint64_t at);

#endif
