/* SPDX-License-Identifier: MIT
 *
 * store_rig.h: folders, images whose bodies follow from their number, and a file layer that fails, for tests of the store.
 */
#ifndef CHECK_STORE_RIG_H
#define CHECK_STORE_RIG_H

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "store/folder/folder.h"

enum { SAMPLE_TOKENS = 61, SAMPLE_MAX_BODY = 40000 };

/* An image: all of it follows from its number. */
typedef struct sample {
    pleat_image_head head;
    pleat_token tokens[SAMPLE_TOKENS];
    pleat_image_step steps[2];
    uint64_t number;
} sample;

static inline uint8_t sample_byte(uint64_t number, uint64_t at) {
    const uint64_t x = (number * 2654435761u + at) * 0x9E3779B97F4A7C15u;
    return (uint8_t)(x >> 56);
}

static inline void sample_init(sample *s, uint64_t number) {
    static const char spec[] = "k8v4", salt[] = "tenant 7";
    memset(s, 0, sizeof *s);
    pleat_image_head_default(&s->head);
    for (uint32_t i = 0; i < SAMPLE_TOKENS; i++) s->tokens[i] = (pleat_token)((number * 31 + i * 7) % 50000);
    s->tokens[0] = (pleat_token)number;
    s->steps[0] = (pleat_image_step){0, 32, PLEAT_ITEM_MORE};
    s->steps[1] = (pleat_image_step){32, SAMPLE_TOKENS - 32, PLEAT_ITEM_SEAL};
    strcpy(s->head.model, "0123456789abcdef0123456789abcdef");
    s->head.spec = spec;
    s->head.n_spec = sizeof spec - 1;
    s->head.salt = salt;
    s->head.n_salt = sizeof salt - 1;
    s->head.n_layers = s->head.n_q_heads = s->head.n_kv_heads = 2;
    s->head.head_dim = 64;
    s->head.page_tokens = 32;
    s->head.tokens = s->tokens;
    s->head.n_tokens = SAMPLE_TOKENS;
    s->head.steps = s->steps;
    s->head.n_steps = 2;
    s->head.body_bytes = 1000 + number * 7919 % (SAMPLE_MAX_BODY - 1000);
    s->number = number;
}

static inline pleat_status sample_fill(void *ctx, void *body, uint64_t n) {
    const sample *s = ctx;
    for (uint64_t i = 0; i < n; i++) ((uint8_t *)body)[i] = sample_byte(s->number, i);
    return PLEAT_OK;
}

static inline pleat_status sample_put(pleat_store *store, uint64_t number, double cost_ns) {
    sample s;
    sample_init(&s, number);
    return pleat_store_put(store, &s.head, cost_ns, sample_fill, &s);
}

/* PLEAT_OK: it was found and read, and every byte is right.  PLEAT_AGAIN: a miss.  Anything else fails a check. */
static inline pleat_status sample_read(pleat_store *store, uint64_t number) {
    static uint8_t body[SAMPLE_MAX_BODY];
    uint64_t n = 0;
    sample s;
    sample_init(&s, number);
    pleat_status status = pleat_store_find(store, &s.head, &n);
    if (status == PLEAT_OK && CHECK_EQ_U64(n, s.head.body_bytes)) status = pleat_store_read(store, &s.head, body, n);
    CHECK(status == PLEAT_OK || status == PLEAT_AGAIN);
    for (uint64_t i = 0; status == PLEAT_OK && i < n; i++)
        if (body[i] != sample_byte(number, i))
            return CHECK(!"another body than the one that was stored"), PLEAT_E_STATE;
    return status;
}

/* ---- folders ------------------------------------------------------------------------------------------- */

typedef struct folder {
    char path[256];
} folder;

static inline bool folder_make(folder *f) {
    const char *tmp = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/pleat_store_XXXXXX", tmp ? tmp : "/tmp");
    return CHECK(mkdtemp(f->path) != NULL);
}

static inline void folder_remove(const folder *f) {
    char path[600];
    DIR *dir = opendir(f->path);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", f->path, e->d_name);
        (void)unlink(path);
    }
    if (dir) closedir(dir);
    CHECK(rmdir(f->path) == 0);
}

/* ---- files that fail ----------------------------------------------------------------------------------- */

/* The nth call of any kind, counted from 1, fails with `error`, and all later ones if for_ever.  0: none.  Calls before it
 * read and write in parts. */
typedef struct failing {
    uint64_t nth, count;
    int error;
    bool for_ever, in_parts;
} failing;

static inline int failed(void *ctx) {
    failing *f = ctx;
    const uint64_t i = ++f->count;
    return f->nth > 0 && (i == f->nth || (f->for_ever && i > f->nth)) ? -f->error : 0;
}

#define FAIL_FIRST(ctx)                   \
    do {                                  \
        const int failed_ = failed(ctx);  \
        if (failed_ != 0) return failed_; \
    } while (0)

static inline int f_create(void *ctx, const char *path) {
    FAIL_FIRST(ctx);
    return pleat__files_system.create(NULL, path);
}
static inline int f_open(void *ctx, const char *path) {
    FAIL_FIRST(ctx);
    return pleat__files_system.open(NULL, path);
}
static inline int64_t f_size(void *ctx, int fd) {
    FAIL_FIRST(ctx);
    return pleat__files_system.size(NULL, fd);
}
static inline int64_t f_read(void *ctx, int fd, void *to, uint64_t n, uint64_t at) {
    FAIL_FIRST(ctx);
    return pleat__files_system.read(NULL, fd, to, ((failing *)ctx)->in_parts && n > 5000 ? 5000 : n, at);
}
static inline int64_t f_write(void *ctx, int fd, const void *from, uint64_t n, uint64_t at) {
    FAIL_FIRST(ctx);
    return pleat__files_system.write(NULL, fd, from, ((failing *)ctx)->in_parts && n > 7000 ? 7000 : n, at);
}
static inline int f_sync(void *ctx, int fd) {
    FAIL_FIRST(ctx);
    return pleat__files_system.sync(NULL, fd);
}
static inline int f_lock(void *ctx, int fd) {
    FAIL_FIRST(ctx);
    return pleat__files_system.lock(NULL, fd);
}
static inline int f_close(void *ctx, int fd) {
    (void)pleat__files_system.close(NULL, fd); /* it is closed, whatever is said */
    FAIL_FIRST(ctx);
    return 0;
}
static inline int f_rename(void *ctx, const char *from, const char *to) {
    FAIL_FIRST(ctx);
    return pleat__files_system.rename(NULL, from, to);
}
static inline int f_remove(void *ctx, const char *path) {
    FAIL_FIRST(ctx);
    return pleat__files_system.remove(NULL, path);
}
static inline int f_sync_folder(void *ctx, const char *path) {
    FAIL_FIRST(ctx);
    return pleat__files_system.sync_folder(NULL, path);
}
static inline int f_list(void *ctx, const char *path, bool (*each)(void *arg, const char *name), void *arg) {
    FAIL_FIRST(ctx);
    return pleat__files_system.list(NULL, path, each, arg);
}

static inline pleat__files failing_files(failing *f) {
    return (pleat__files){f,      f_create, f_open,   f_size,   f_read,        f_write, f_sync,
                          f_lock, f_close,  f_rename, f_remove, f_sync_folder, f_list};
}

/* ---- stores -------------------------------------------------------------------------------------------- */

static inline pleat_store_options store_options(const folder *f, uint64_t max_bytes) {
    pleat_store_options o;
    pleat_store_options_default(&o);
    o.dir = f->path;
    o.max_bytes = max_bytes;
    return o;
}

static inline pleat_store *store_open(const folder *f, uint64_t max_bytes) {
    const pleat_store_options o = store_options(f, max_bytes);
    pleat_store *store = NULL;
    pleat_error err = {0};
    if (!CHECK_STATUS(pleat_store_open(&o, &store, &err), PLEAT_OK)) printf("%s\n", err.text);
    return store;
}

/* Whether this build stores anything. */
static inline bool can_store(void) {
    folder f;
    pleat_store *store = NULL;
    pleat_error err = {0};
    if (!folder_make(&f)) return false;
    const pleat_store_options o = store_options(&f, 1 << 20);
    const pleat_status status = pleat_store_open(&o, &store, &err);
    pleat_store_close(&store);
    folder_remove(&f);
    if (status == PLEAT_E_UNSUPPORTED) CHECK(strstr(err.text, "SQLite") != NULL);
    return status != PLEAT_E_UNSUPPORTED;
}

#define NEEDS_STORE()                                       \
    do {                                                    \
        if (!can_store()) SKIP("this build has no SQLite"); \
    } while (0)

#endif
