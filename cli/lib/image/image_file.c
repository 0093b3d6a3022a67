/* SPDX-License-Identifier: MIT
 *
 * image_file.c: see image_file.h.
 */
#include "image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/common.h"
#include "cli/lib/whole_file.h"

/* ---- reading ------------------------------------------------------------------------------------- */

/* Map what is behind fd, a regular file that is not empty; or say why not. */
static const char *map(image_file *f, int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0) return strerror(errno);
    if (!S_ISREG(info.st_mode)) return "it is no regular file";
    if (info.st_size == 0) return "it is empty";
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return strerror(errno);
    f->bytes = bytes;
    f->n_bytes = (uint64_t)info.st_size;
    return NULL;
}

pleat_status image_file_open(image_file *f, const char *path, pleat_error *err) {
    *f = (image_file){.path = path};
    *err = (pleat_error){0, PLEAT_NOWHERE, ""};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    const char *why = fd < 0 ? strerror(errno) : map(f, fd);
    if (fd >= 0) close(fd);
    if (why) {
        err->code = PLEAT_E_IO;
        snprintf(err->text, sizeof err->text, "%s", why);
        return PLEAT_E_IO;
    }
    const pleat_status status = pleat_image_check(f->bytes, f->n_bytes, &f->head, &f->body, err);
    if (status != PLEAT_OK) image_file_close(f);
    return status;
}

void image_file_close(image_file *f) {
    if (f->bytes) munmap(f->bytes, (size_t)f->n_bytes);
    *f = (image_file){0};
}

/* ---- writing ------------------------------------------------------------------------------------- */

int image_file_wanted(const pleat_engine *engine, const char *spec, pleat_image_head *wanted) {
    const pleat_status status = pleat_engine_image_head(engine, wanted);
    if (status != PLEAT_OK) return cli_fail("cannot tell the model's fingerprint", status, NULL);
    wanted->spec = spec;
    wanted->n_spec = (uint32_t)strlen(spec);
    return CLI_OK;
}

/* Both parts, one behind the other. */
static int put(const char *path, const void *head, uint64_t n_head, const void *body, uint64_t n_body) {
    whole_file w;
    if (whole_file_open(&w, path) != CLI_OK) return CLI_FAILED;
    if (fwrite(head, 1, n_head, w.file) == n_head && fwrite(body, 1, n_body, w.file) == n_body)
        return whole_file_close(&w);
    cli_error("cannot write %s: %s", path, strerror(errno));
    whole_file_abandon(&w);
    return CLI_FAILED;
}

int image_file_write(const char *path, const pleat_engine *engine, pleat_seq seq, const pleat_image_head *like) {
    const pleat_seq no_base = {0};
    pleat_image_head head = *like;
    head.body_bytes = pleat_engine_image_bytes(engine, seq, no_base);
    const uint64_t n_head = pleat_image_head_bytes(&head);
    if (!n_head) return cli_fail(path, PLEAT_E_ARG, NULL);
    uint8_t *bytes = cli_alloc(n_head + head.body_bytes, 1), *body = bytes + n_head;
    pleat_status status = pleat_engine_save(engine, seq, no_base, body, head.body_bytes);
    if (status == PLEAT_OK) status = pleat_image_write_head(&head, body, bytes, n_head);
    const int code =
        status == PLEAT_OK ? put(path, bytes, n_head, body, head.body_bytes) : cli_fail(path, status, NULL);
    free(bytes);
    return code;
}
