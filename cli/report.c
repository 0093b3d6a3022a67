/* SPDX-License-Identifier: MIT
 *
 * report.c: see report.h.
 */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "report_page.h"

/* ---- the file ---------------------------------------------------------------------------------- */

/* A file beside `path` under a name that nobody uses.  NULL with errno set if it cannot be made. */
static FILE *open_beside(const char *path, char **temp) {
    const size_t cap = strlen(path) + 32;
    *temp = cli_alloc(cap, 1);
    snprintf(*temp, cap, "%s.%ld.tmp", path, (long)getpid());
    const int fd = open(*temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!file && fd >= 0) close(fd);
    return file;
}

static int cannot_write(const char *path, const char *why) {
    cli_error("--report: cannot write %s: %s", path, why);
    return CLI_FAILED;
}

/* Whether both paths name one file, be it there already or not. */
static int is_same_file(const char *a, const char *b) {
    struct stat sa, sb;
    if (!strcmp(a, b)) return 1;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* The text is read once for the rows and once for the report. */
static int is_text_rereadable(const options *o) {
    struct stat info;
    if (!o->text || (strcmp(o->text, "-") != 0 && (stat(o->text, &info) != 0 || S_ISREG(info.st_mode)))) return 1;
    cli_error("--report reads the text twice: --text %s must be a regular file", o->text);
    return 0;
}

int report_check(const options *o) {
    const char *const others[] = {o->model, o->tasks, o->text, o->output};
    struct stat info;
    char *temp = NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] && is_same_file(o->report, others[i])) {
            cli_error("--report: cannot write %s: it is the same file as %s", o->report, others[i]);
            return CLI_FAILED;
        }
    if (!is_text_rereadable(o)) return CLI_FAILED;
    if (lstat(o->report, &info) == 0 &&
        !S_ISREG(info.st_mode)) /* moving a file over it would replace the thing itself */
        return cannot_write(o->report, "it is there and is no regular file");
    FILE *file = open_beside(o->report, &temp);
    const int code = file ? CLI_OK : cannot_write(o->report, strerror(errno));
    if (file) {
        fclose(file);
        unlink(temp);
    }
    free(temp);
    return code;
}

/* All bytes on the disk, then the name: a reader sees the old file or the whole new one. */
static int close_and_move(FILE *file, const char *temp, const char *path) {
    const int bad = fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0;
    const int bad_close = fclose(file) != 0;
    if (!bad && !bad_close && rename(temp, path) == 0) return CLI_OK;
    const int code = cannot_write(path, strerror(errno));
    unlink(temp);
    return code;
}

/* ---- the report -------------------------------------------------------------------------------- */

report_data *report_begin(evaluation *e) {
    report_data *d = report_data_create(e);
    for (uint32_t i = 0; i < e->o->kv.n; i++)
        if (e->rows[i].spec.policy != PLEAT_POLICY_NONE) e->rows[i].watch = report_watch_kept(d, i);
    return d;
}

void report_unwatch(evaluation *e) {
    for (uint32_t i = 0; i < e->o->kv.n; i++) e->rows[i].watch.request_ended = NULL;
}

int report_finish(report_data *d, evaluation *e) {
    const char *path = e->o->report;
    char *temp = NULL;
    int code = report_gather(d, e);
    if (code != CLI_OK) return code;
    FILE *file = open_beside(path, &temp);
    if (file) {
        report_write_page(file, e, d);
        code = close_and_move(file, temp, path);
    } else {
        code = cannot_write(path, strerror(errno));
    }
    free(temp);
    return code;
}

void report_release(report_data **report) { report_data_destroy(report); }
