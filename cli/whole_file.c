/* SPDX-License-Identifier: MIT
 *
 * whole_file.c: see whole_file.h.
 */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static int cannot_write(const char *path) {
    cli_error("cannot write %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static void release(whole_file *w) {
    free(w->temp);
    *w = (whole_file){0};
}

int whole_file_open(whole_file *w, const char *path) {
    const size_t cap = strlen(path) + 32;
    *w = (whole_file){.path = path, .temp = cli_alloc(cap, 1)};
    snprintf(w->temp, cap, "%s.%ld.tmp", path, (long)getpid());
    const int fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    w->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (w->file) return CLI_OK;
    const int code = cannot_write(path);
    if (fd >= 0) {
        close(fd);
        unlink(w->temp);
    }
    release(w);
    return code;
}

int whole_file_close(whole_file *w) {
    const int bad = fflush(w->file) != 0 || ferror(w->file) || fsync(fileno(w->file)) != 0;
    const int bad_close = fclose(w->file) != 0;
    int code = CLI_OK;
    if (bad || bad_close || rename(w->temp, w->path) != 0) {
        code = cannot_write(w->path);
        unlink(w->temp);
    }
    release(w);
    return code;
}

void whole_file_abandon(whole_file *w) {
    if (!w->file) return;
    fclose(w->file);
    unlink(w->temp);
    release(w);
}
