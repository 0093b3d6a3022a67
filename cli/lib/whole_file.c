/* SPDX-License-Identifier: MIT
 *
 * whole_file.c: see whole_file.h.
 */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

enum { LINKS_MAX = 40 }; /* as Linux has it */

static int cannot_write(const char *path) {
    cli_error("cannot write %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static void release(whole_file *w) {
    free(w->temp);
    free(w->target);
    *w = (whole_file){0};
}

/* Names of what the process has open: moving a file over what they lead to would not change that. */
static int is_descriptor(const char *path) {
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0;
}

/* Where the links at the end of `path` lead, there or not; the caller frees it.  *is_open: by way of a descriptor. */
static char *follow_links(const char *path, int *is_open) {
    char link[PATH_MAX], *at = cli_copy(path, strlen(path));
    *is_open = is_descriptor(at);
    for (int i = 0; i < LINKS_MAX; i++) {
        const ssize_t n = readlink(at, link, sizeof link);
        if (n < 0) break;
        const char *slash = n > 0 && link[0] != '/' ? strrchr(at, '/') : NULL;
        const size_t n_dir = slash ? (size_t)(slash + 1 - at) : 0;
        char *next = cli_alloc(n_dir + (size_t)n + 1, 1);
        memcpy(next, at, n_dir);
        memcpy(next + n_dir, link, (size_t)n);
        free(at);
        at = next;
        *is_open |= is_descriptor(at);
    }
    return at;
}

int whole_file_is_special(const char *path) {
    struct stat info;
    int is_open;
    if (stat(path, &info) != 0) return 0;
    free(follow_links(path, &is_open));
    return is_open || !S_ISREG(info.st_mode);
}

/* The folder of a path whose links have been followed; the name in it, or NULL if the folder is not there. */
static const char *split(const char *path, struct stat *folder) {
    const char *slash = strrchr(path, '/');
    char *head = slash ? cli_copy(path, (size_t)(slash + 1 - path)) : cli_copy(".", 1);
    const int is_there = stat(head, folder) == 0;
    free(head);
    return is_there ? (slash ? slash + 1 : path) : NULL;
}

/* Of two paths where nothing is: whether they lead to one name in one folder. */
static int is_same_name(const char *a, const char *b) {
    int is_open;
    char *end_a = follow_links(a, &is_open), *end_b = follow_links(b, &is_open);
    struct stat in_a, in_b;
    const char *name_a = split(end_a, &in_a), *name_b = split(end_b, &in_b);
    const int is_same =
        name_a && name_b && !strcmp(name_a, name_b) && in_a.st_dev == in_b.st_dev && in_a.st_ino == in_b.st_ino;
    free(end_a);
    free(end_b);
    return is_same;
}

int whole_file_is_same(const char *a, const char *b) {
    struct stat in_a, in_b;
    const int has_a = stat(a, &in_a) == 0, has_b = stat(b, &in_b) == 0;
    if (!has_a && !has_b) return is_same_name(a, b);
    if (!has_a || !has_b || !(S_ISREG(in_a.st_mode) || S_ISFIFO(in_a.st_mode))) return 0;
    return in_a.st_dev == in_b.st_dev && in_a.st_ino == in_b.st_ino;
}

/* A new file beside the target, which may be written itself and whose mode it takes. */
static int open_beside(whole_file *w) {
    struct stat info;
    int is_open;
    w->target = follow_links(w->path, &is_open);
    const int is_there = stat(w->target, &info) == 0;
    if (is_there && access(w->target, W_OK) != 0) return -1;
    const size_t cap = strlen(w->target) + 32;
    w->temp = cli_alloc(cap, 1);
    snprintf(w->temp, cap, "%s.%ld.tmp", w->target, (long)getpid());
    const int fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && is_there) (void)!fchmod(fd, info.st_mode & 07777); /* some file systems have no modes */
    return fd;
}

int whole_file_open(whole_file *w, const char *path) {
    *w = (whole_file){.path = path};
    const int is_special = whole_file_is_special(path);
    const int fd = is_special ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY) : open_beside(w);
    w->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (w->file) return CLI_OK;
    const int code = cannot_write(path);
    if (fd >= 0) {
        close(fd);
        if (w->temp) unlink(w->temp);
    }
    release(w);
    return code;
}

int whole_file_check(const char *path) {
    struct stat info;
    whole_file probe;
    if (whole_file_is_special(path)) {
        errno = 0;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) errno = EISDIR;
        return errno || access(path, W_OK) != 0 ? cannot_write(path) : CLI_OK;
    }
    if (whole_file_open(&probe, path) != CLI_OK) return CLI_FAILED;
    whole_file_abandon(&probe);
    return CLI_OK;
}

/* Every byte where it belongs; else errno says why not. */
static int flush(whole_file *w) {
    errno = 0;
    int bad = fflush(w->file) != 0 || ferror(w->file) || (w->temp && fsync(fileno(w->file)) != 0);
    const int why = w->why ? w->why : errno ? errno : EIO;
    const int bad_close = fclose(w->file) != 0;
    if (bad) errno = why;
    return !bad && !bad_close;
}

/* The name at last, where all went well; else nothing is left. */
static int move_over(whole_file *w, int is_well) {
    int code = CLI_OK;
    if (w->temp && is_well && rename(w->temp, w->target) != 0) {
        code = cannot_write(w->path);
        is_well = 0;
    }
    if (w->temp && !is_well) unlink(w->temp);
    release(w);
    return code;
}

/* Files that wait for whole_file_commit(). */
static struct {
    int is_on;
    uint32_t n;
    whole_file v[WHOLE_FILES_CAP];
} held;

int whole_file_close(whole_file *w) {
    if (!flush(w)) {
        const int code = cannot_write(w->path);
        (void)move_over(w, 0);
        return code;
    }
    if (!held.is_on || held.n == WHOLE_FILES_CAP) return move_over(w, 1);
    held.v[held.n++] = *w;
    *w = (whole_file){0};
    return CLI_OK;
}

void whole_file_hold(void) { held.is_on = 1; }

int whole_file_commit(int code) {
    for (uint32_t i = 0; i < held.n; i++)
        if (move_over(&held.v[i], code == CLI_OK) != CLI_OK) code = CLI_FAILED;
    held.n = 0;
    held.is_on = 0;
    return code;
}

void whole_file_abandon(whole_file *w) {
    if (!w->file) return;
    fclose(w->file);
    if (w->temp) unlink(w->temp);
    release(w);
}
