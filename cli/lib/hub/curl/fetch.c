/* SPDX-License-Identifier: MIT
 *
 * fetch.c: see fetch.h.
 */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "hash.h"

/* Why a sink did not want to go on. */
typedef enum verdict {
    VERDICT_NONE,
    VERDICT_AGAIN,  /* from byte 0 */
    VERDICT_FAILED, /* a message has said why */
} verdict;

typedef struct fetch {
    const fetch_job *job;
    int fd;
    char *part;       /* BLOB.incomplete */
    char *etag_path;  /* BLOB.incomplete.etag */
    char etag[160];   /* of the bytes that are there; "": not known */
    uint64_t n_bytes; /* that are there */
    int is_of_two;    /* they came in more than one answer */
    int is_anew;      /* all of them were thrown away once */
    verdict verdict;
    char label[96];
} fetch;

/* ---- its files --------------------------------------------------------------------------------- */

static char *with_ending(const char *path, const char *ending) {
    const size_t cap = strlen(path) + strlen(ending) + 1;
    char *text = cli_alloc(cap, 1);
    snprintf(text, cap, "%s%s", path, ending);
    return text;
}

static int cannot(const fetch *f, const char *verb) {
    char kept[BYTES_CAP];
    cli_error("cannot %s %s: %s; %s of it are kept", verb, f->part, strerror(errno), print_bytes(kept, f->n_bytes));
    return CLI_FAILED;
}

static int has_blob(const fetch_job *job) {
    struct stat info;
    return stat(job->blob, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == job->size_bytes;
}

/* What the server called the bytes that are there.  Without it they are taken as they are: the hash has the last word. */
static void read_etag(fetch *f) {
    FILE *file = fopen(f->etag_path, "rb");
    const size_t n = file ? fread(f->etag, 1, sizeof f->etag - 1, file) : 0;
    if (file) fclose(file);
    f->etag[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (f->etag[i] < ' ' || f->etag[i] > '~') f->etag[0] = 0;
    if (f->etag[0] != '"') f->etag[0] = 0;
}

static void write_etag(fetch *f, const char *etag) {
    if (!strcmp(f->etag, etag)) return;
    snprintf(f->etag, sizeof f->etag, "%s", etag);
    FILE *file = etag[0] ? fopen(f->etag_path, "wb") : NULL;
    if (file) {
        fputs(etag, file);
        fclose(file);
    } else {
        unlink(f->etag_path);
    }
}

static int start_again(fetch *f) {
    if (ftruncate(f->fd, 0) != 0) return cannot(f, "shorten");
    f->n_bytes = 0;
    f->is_of_two = 0;
    write_etag(f, "");
    return CLI_OK;
}

/* Open what is there of the file, or begin it. */
static int open_part(fetch *f) {
    struct stat info;
    f->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0 || fstat(f->fd, &info) != 0) return cannot(f, "open");
    f->n_bytes = (uint64_t)info.st_size;
    read_etag(f);
    return f->n_bytes > f->job->size_bytes ? start_again(f) : CLI_OK;
}

/* Whether what is missing fits on the disk, as far as that can be known. */
static int check_room(const fetch *f) {
    struct statvfs disk;
    char missing[BYTES_CAP], room[BYTES_CAP];
    const uint64_t n_missing = f->job->size_bytes - f->n_bytes;
    if (fstatvfs(f->fd, &disk) != 0 || disk.f_bavail >= n_missing / disk.f_frsize + 1) return CLI_OK;
    cli_error("%s: %s are missing, and the disk of %s has room for %s", f->job->name, print_bytes(missing, n_missing),
              f->part, print_bytes(room, (uint64_t)disk.f_bavail * disk.f_frsize));
    return CLI_FAILED;
}

/* ---- the bytes --------------------------------------------------------------------------------- */

/* A server's answer before its first byte: does it go on where the file ends? */
static int on_head(void *self, const http_answer *a) {
    fetch *f = self;
    if (a->status == 206 && (a->range_first != (int64_t)f->n_bytes ||
                             (a->range_total >= 0 && (uint64_t)a->range_total != f->job->size_bytes))) {
        f->verdict = VERDICT_AGAIN;
        return 0;
    }
    if (a->status == 200 && f->n_bytes && start_again(f) != CLI_OK) {
        f->verdict = VERDICT_FAILED;
        return 0;
    }
    const uint64_t n_missing = f->job->size_bytes - f->n_bytes;
    if (a->content_length >= 0 && (uint64_t)a->content_length != n_missing) {
        cli_error("%s: the server has %lld bytes where the hub lists %llu", f->job->name, (long long)a->content_length,
                  (unsigned long long)n_missing);
        f->verdict = VERDICT_FAILED;
        return 0;
    }
    f->is_of_two = f->n_bytes > 0;
    write_etag(f, a->etag);
    progress_begin(f->label, f->job->size_bytes / 1000000, !f->job->is_quiet);
    progress_resume(f->n_bytes / 1000000);
    return 1;
}

static int on_bytes(void *self, const void *bytes, size_t n) {
    fetch *f = self;
    const char *at = bytes;
    if (n > f->job->size_bytes - f->n_bytes) {
        cli_error("%s: the server sends more than the %llu bytes that the hub lists", f->job->name,
                  (unsigned long long)f->job->size_bytes);
        f->verdict = VERDICT_FAILED;
        return 0;
    }
    while (n) {
        const ssize_t written = pwrite(f->fd, at, n, (off_t)f->n_bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            cannot(f, "write");
            f->verdict = VERDICT_FAILED;
            return 0;
        }
        at += written;
        n -= (size_t)written;
        f->n_bytes += (uint64_t)written;
    }
    progress_update(f->n_bytes / 1000000);
    return 1;
}

/* The end of an answer that was not the end of the file: CLI_OK if another try is worth it. */
static int weigh(fetch *f, http_fate fate, const http_answer *a, uint32_t tries) {
    char kept[BYTES_CAP], all[BYTES_CAP];
    print_bytes(kept, f->n_bytes);
    print_bytes(all, f->job->size_bytes);
    if (fate == HTTP_INTERRUPTED) {
        cli_error("interrupted: %s of %s are kept; the same command goes on from there", kept, all);
        return CLI_INTERRUPTED;
    }
    if (f->verdict == VERDICT_FAILED) return CLI_FAILED;
    if (f->verdict == VERDICT_AGAIN || (fate == HTTP_STATUS && a->status == 416)) {
        f->verdict = VERDICT_NONE;
        if (start_again(f) != CLI_OK) return CLI_FAILED;
    } else if (fate != HTTP_DONE && !http_may_pass(fate, a)) {
        cli_error("%s: %s%s%s", f->job->name, http_why(f->job->session), a->message[0] ? ": " : "", a->message);
        return CLI_FAILED;
    }
    const char *why = fate == HTTP_BROKEN || fate == HTTP_STATUS ? http_why(f->job->session) : "the server ended early";
    if (tries == HTTP_TRIES) {
        cli_error("%s: %s; %s of %s are kept, and the same command goes on from there", f->job->name, why, kept, all);
        return CLI_FAILED;
    }
    if (!f->job->is_quiet) cli_note("%s: %s; going on", f->job->name, why);
    return CLI_OK;
}

/* Until all bytes are there. */
static int get_all(fetch *f) {
    const http_sink sink = {on_head, on_bytes, f};
    uint32_t tries = 0;
    while (f->n_bytes < f->job->size_bytes) {
        const uint64_t before = f->n_bytes;
        http_answer answer;
        char etag[sizeof f->etag]; /* f->etag changes while it is sent */
        memcpy(etag, f->etag, sizeof etag);
        const http_fate fate = http_get(f->job->session, f->job->url, before, etag[0] ? etag : NULL, &sink, &answer);
        progress_end();
        if (f->n_bytes == f->job->size_bytes && fate == HTTP_DONE) break;
        tries = f->n_bytes > before ? 1 : tries + 1;
        int code = weigh(f, fate, &answer, tries);
        if (code == CLI_OK) code = http_wait(tries, &answer);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static void forget_part(const fetch *f) {
    unlink(f->part);
    unlink(f->etag_path);
}

/* All bytes are there; do they have the hash?  *is_again: no, and it is worth to get them anew. */
static int check_hash(fetch *f, int *is_again) {
    char hex[65];
    *is_again = 0;
    const int code = hub_hash(f->fd, f->part, f->job->size_bytes, f->job->is_quiet, hex);
    if (code == CLI_INTERRUPTED) cli_error("interrupted: all bytes of %s are kept", f->job->name);
    if (code != CLI_OK || !strcmp(hex, f->job->sha256)) return code;
    if (f->is_of_two && !f->is_anew) {
        f->is_anew = 1;
        if (!f->job->is_quiet) cli_note("%s: its parts do not fit together; it is downloaded anew", f->job->name);
        *is_again = 1;
        return start_again(f);
    }
    forget_part(f);
    cli_error("%s: its SHA-256 is %s, and the hub lists %s; what came is deleted", f->job->name, hex, f->job->sha256);
    return CLI_FAILED;
}

/* The bytes on the disk, then the name, then the folder. */
static int give_name(const fetch *f) {
    if (fsync(f->fd) != 0 || rename(f->part, f->job->blob) != 0) return cannot(f, "finish");
    unlink(f->etag_path);
    char *folder = with_ending(f->job->blob, "");
    *strrchr(folder, '/') = 0;
    const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        (void)fsync(dir); /* some file systems do not know it of folders */
        close(dir);
    }
    free(folder);
    return CLI_OK;
}

static int fetch_locked(const fetch_job *job) {
    fetch f = {.job = job,
               .part = with_ending(job->blob, ".incomplete"),
               .etag_path = with_ending(job->blob, ".incomplete.etag")};
    char size[BYTES_CAP], kept[BYTES_CAP];
    int code = open_part(&f), is_again = 1;
    snprintf(f.label, sizeof f.label, "%.80s, MB", job->name);
    for (char *at = f.label; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?'; /* a byte is a column, and none is a terminal's */
    if (code == CLI_OK) code = check_room(&f);
    if (code == CLI_OK && !job->is_quiet)
        cli_note("downloading %s, %s%s%s", job->name, print_bytes(size, job->size_bytes),
                 f.n_bytes ? ", of which are here " : "", f.n_bytes ? print_bytes(kept, f.n_bytes) : "");
    f.is_of_two = f.n_bytes > 0;
    while (code == CLI_OK && is_again) {
        code = get_all(&f);
        if (code == CLI_OK) code = check_hash(&f, &is_again);
    }
    if (code == CLI_OK) code = give_name(&f);
    if (f.fd >= 0) close(f.fd);
    free(f.part);
    free(f.etag_path);
    return code;
}

/* ---- the lock ---------------------------------------------------------------------------------- */

/* Whether the locked file still has its name: who had the lock before may have deleted it. */
static int has_name(int fd, const char *path) {
    struct stat by_fd, by_name;
    return fstat(fd, &by_fd) == 0 && stat(path, &by_name) == 0 && by_fd.st_ino == by_name.st_ino &&
           by_fd.st_dev == by_name.st_dev;
}

/* Wait for the lock; *fd is closed to let go of it. */
static int take_lock(const fetch_job *job, int *fd) {
    for (int is_told = job->is_quiet;;) {
        *fd = open(job->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        const int is_locked = *fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) == 0;
        if (is_locked && has_name(*fd, job->lock)) return CLI_OK;
        const int why = errno;
        if (*fd >= 0) close(*fd);
        if (!is_locked && why != EWOULDBLOCK && why != EINTR) {
            cli_error("cannot lock %s: %s", job->lock, strerror(why));
            return CLI_FAILED;
        }
        if (!is_told && !is_locked) cli_note("%s: another process downloads it; waiting", job->name);
        is_told = 1;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (interrupt_came()) return CLI_INTERRUPTED;
    }
}

int fetch_blob(const fetch_job *job) {
    int fd;
    if (has_blob(job)) return CLI_OK;
    int code = take_lock(job, &fd);
    if (code != CLI_OK) return code;
    if (!has_blob(job)) code = fetch_locked(job); /* who had the lock may have done it */
    close(fd);
    return code;
}
