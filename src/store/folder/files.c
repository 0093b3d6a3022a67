/* SPDX-License-Identifier: MIT
 *
 * files.c: see files.h.
 */
#include "store/folder/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_AT_ONCE ((uint64_t)1 << 26) /* bytes of a call */

static int result(int done) { return done < 0 ? -errno : done; }

static int system_create(void *ctx, const char *path) {
    (void)ctx;
    return result(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

/* A pipe is opened and fails when it is read, where it would be waited for. */
static int system_open(void *ctx, const char *path) {
    (void)ctx;
    return result(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
}

static int64_t system_size(void *ctx, int fd) {
    struct stat info;
    (void)ctx;
    if (fstat(fd, &info) != 0) return -errno;
    return S_ISREG(info.st_mode) ? (int64_t)info.st_size : -EINVAL;
}

static int64_t system_read(void *ctx, int fd, void *to, uint64_t n, uint64_t at) {
    (void)ctx;
    const ssize_t done = pread(fd, to, (size_t)n, (off_t)at);
    return done < 0 ? -errno : (int64_t)done;
}

static int64_t system_write(void *ctx, int fd, const void *from, uint64_t n, uint64_t at) {
    (void)ctx;
    const ssize_t done = pwrite(fd, from, (size_t)n, (off_t)at);
    return done < 0 ? -errno : (int64_t)done;
}

static int system_sync(void *ctx, int fd) {
    (void)ctx;
    return result(fsync(fd));
}

static int system_lock(void *ctx, int fd) {
    (void)ctx;
    return result(flock(fd, LOCK_EX | LOCK_NB));
}

static int system_close(void *ctx, int fd) {
    (void)ctx;
    return result(close(fd));
}

static int system_rename(void *ctx, const char *from, const char *to) {
    (void)ctx;
    return result(rename(from, to));
}

static int system_remove(void *ctx, const char *path) {
    (void)ctx;
    return result(unlink(path));
}

static int system_sync_folder(void *ctx, const char *path) {
    (void)ctx;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const int status = result(fsync(fd));
    (void)close(fd);
    return status;
}

static int system_list(void *ctx, const char *path, bool (*each)(void *arg, const char *name), void *arg) {
    (void)ctx;
    DIR *folder = opendir(path);
    if (!folder) return -errno;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry || !each(arg, entry->d_name)) break;
    }
    const int status = -errno;
    (void)closedir(folder);
    return status;
}

const pleat__files pleat__files_system = {
    .create = system_create,
    .open = system_open,
    .size = system_size,
    .read = system_read,
    .write = system_write,
    .sync = system_sync,
    .lock = system_lock,
    .close = system_close,
    .rename = system_rename,
    .remove = system_remove,
    .sync_folder = system_sync_folder,
    .list = system_list,
};

int pleat__files_make_folder(const char *path) {
    struct stat info;
    if (mkdir(path, 0700) == 0) return 0;
    const int why = errno;
    if (why != EEXIST || stat(path, &info) != 0) return -why;
    return S_ISDIR(info.st_mode) ? 0 : -ENOTDIR;
}

int pleat__files_read(const pleat__files *f, int fd, void *to, uint64_t n, uint64_t at) {
    for (uint64_t done = 0; done < n;) {
        const uint64_t left = n - done;
        const int64_t got =
            f->read(f->ctx, fd, (uint8_t *)to + done, left < MAX_AT_ONCE ? left : MAX_AT_ONCE, at + done);
        if (got == -EINTR) continue;
        if (got <= 0) return got < 0 ? (int)got : -EIO;
        done += (uint64_t)got;
    }
    return 0;
}

int pleat__files_write(const pleat__files *f, int fd, const void *from, uint64_t n, uint64_t at) {
    for (uint64_t done = 0; done < n;) {
        const uint64_t left = n - done;
        const int64_t put =
            f->write(f->ctx, fd, (const uint8_t *)from + done, left < MAX_AT_ONCE ? left : MAX_AT_ONCE, at + done);
        if (put == -EINTR) continue;
        if (put <= 0) return put < 0 ? (int)put : -EIO;
        done += (uint64_t)put;
    }
    return 0;
}
