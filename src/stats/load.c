/* SPDX-License-Identifier: MIT
 *
 * load.c: statistics from a file: all of it is read, then pleat_stats_read() looks at it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "stats/stats.h"

enum { MOST_BYTES = 1 << 30 }; /* of a file */

/* All of a regular file, in memory of n bytes.  NULL after a message. */
static uint8_t *read_file(int fd, const char *path, const pleat_allocator *al, uint64_t *n, pleat_error *err) {
    struct stat info;
    uint8_t *bytes = NULL;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) {
        (void)pleat__error_set(err, PLEAT_E_FORMAT, 0, "statistics: the file is empty");
        return NULL;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) {
        (void)pleat__error_set(err, PLEAT_E_IO, PLEAT_NOWHERE, "statistics: this is no regular file of up to 1 GiB");
        return NULL;
    }
    *n = (uint64_t)info.st_size;
    if (!(bytes = pleat__alloc(al, 1, *n))) {
        (void)pleat__error_set(err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "statistics: out of memory");
        return NULL;
    }
    for (uint64_t at = 0; at < *n;) {
        const ssize_t got = read(fd, bytes + at, *n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got > 0) {
            at += (uint64_t)got;
            continue;
        }
        (void)pleat__error_set(err, PLEAT_E_IO, at, "statistics: cannot read %s: %s", path,
                               got < 0 ? strerror(errno) : "it became shorter");
        pleat__free(al, bytes, 1, *n);
        return NULL;
    }
    return bytes;
}

pleat_status pleat_stats_load(const char *path, const pleat_allocator *allocator, pleat_stats **out, pleat_error *err) {
    if (!path || !out) return PLEAT_E_ARG;
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_error own = {PLEAT_E_IO, PLEAT_NOWHERE, ""};
    uint64_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    PLEAT_FAIL_IF(fd < 0, err, PLEAT_E_IO, PLEAT_NOWHERE, "statistics: cannot open %s: %s", path, strerror(errno));
    uint8_t *bytes = read_file(fd, path, &al, &n, &own);
    close(fd);
    if (!bytes && err) *err = own;
    if (!bytes) return own.code;
    const pleat_status status = pleat_stats_read(bytes, n, allocator, out, err);
    pleat__free(&al, bytes, 1, n);
    return status;
}
