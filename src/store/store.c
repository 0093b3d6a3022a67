/* SPDX-License-Identifier: MIT
 *
 * store.c: making a store, its end, and what can be asked of it.
 */
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "store/folder/folder.h"
#include "store/servers/servers.h"

void pleat_store_options_default(pleat_store_options *opt) {
    if (!opt) return;
    *opt = (pleat_store_options){
        .size_bytes = sizeof *opt, .queue_bytes = (uint64_t)256 << 20, .timeout_ns = 1000000000, .ttl_s = 86400};
}

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "store: " __VA_ARGS__)

static pleat_status check_options(const pleat_store_options *o, pleat_error *err) {
    REQUIRE(o && o->size_bytes == sizeof *o, "options are not from pleat_store_options_default()");
    REQUIRE(!o->dir != !o->servers, "neither a folder nor servers, or both");
    REQUIRE(!o->servers || o->ttl_s >= 1, "ttl_s is 0");
    REQUIRE(o->timeout_ns >= 1, "timeout_ns is 0");
    REQUIRE(o->queue_bytes >= 1, "queue_bytes is 0");
    if (o->servers) return PLEAT_OK;
    REQUIRE(o->dir[0], "no folder");
    REQUIRE(strlen(o->dir) <= PLEAT__FOLDER_PATH_CAP - 128, "the folder's name is longer than %d bytes",
            PLEAT__FOLDER_PATH_CAP - 128);
    REQUIRE(o->max_bytes >= 1, "max_bytes is 0");
    return PLEAT_OK;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static pleat_status init_locks(pleat_store *s) {
    if (pthread_mutex_init(&s->lock, NULL) != 0) return PLEAT_E_MEMORY;
    if (pthread_cond_init(&s->work, NULL) != 0) goto no_work;
    if (pthread_cond_init(&s->idle, NULL) != 0) goto no_idle;
    if (pthread_cond_init(&s->wants, NULL) != 0) goto no_wants;
    s->has_locks = true;
    return PLEAT_OK;
no_wants:
    (void)pthread_cond_destroy(&s->idle);
no_idle:
    (void)pthread_cond_destroy(&s->work);
no_work:
    (void)pthread_mutex_destroy(&s->lock);
    return PLEAT_E_MEMORY;
}

static pleat_status start_threads(pleat_store *s) {
    s->has_writer = pthread_create(&s->writer, NULL, pleat__store_write_all, s) == 0;
    s->has_reader = s->has_writer && pthread_create(&s->reader, NULL, pleat__store_fetch_all, s) == 0;
    return s->has_reader ? PLEAT_OK : PLEAT_E_IO;
}

/* Let them end their work, and end them. */
static void stop_threads(pleat_store *s) {
    if (!s->has_locks) return;
    (void)pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    (void)pthread_cond_signal(&s->work);
    (void)pthread_cond_signal(&s->wants);
    (void)pthread_mutex_unlock(&s->lock);
    if (s->has_reader) (void)pthread_join(s->reader, NULL);
    if (s->has_writer) (void)pthread_join(s->writer, NULL);
}

static pleat_status open_parts(pleat_store *s, const pleat_store_options *o, const pleat__files *files,
                               pleat_error *err) {
    PLEAT_TRY(init_locks(s));
    PLEAT_TRY(o->servers ? pleat__servers_open(s, o, &s->shelf, err) : pleat__folder_open(s, o, files, &s->shelf, err));
    const pleat_status status = start_threads(s);
    PLEAT_FAIL_IF(status != PLEAT_OK, err, status, PLEAT_NOWHERE, "store: no thread could be started");
    return PLEAT_OK;
}

pleat_status pleat__store_open_on(const pleat_store_options *o, const pleat__files *files, pleat_store **out,
                                  pleat_error *err) {
    REQUIRE(out, "no place for the result");
    PLEAT_TRY(check_options(o, err));
    const pleat_allocator al = pleat__allocator_or_default(o->allocator);
    pleat_store *s = pleat__alloc_zero(&al, 1, sizeof *s);
    PLEAT_FAIL_IF(!s, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "store: out of memory");
    s->al = al;
    s->max_bytes = o->servers ? UINT64_MAX : o->max_bytes;
    s->stats.max_bytes = o->servers ? 0 : o->max_bytes;
    s->queue_bytes = o->queue_bytes;
    s->timeout_ns = o->timeout_ns;
    s->speed = PLEAT__STORE_FIRST_SPEED;
    s->last = &s->first;
    s->last_wanted = &s->wanted;
    const pleat_status status = open_parts(s, o, files, err);
    if (status == PLEAT_OK)
        *out = s;
    else
        pleat_store_close(&s);
    if (status == PLEAT_E_MEMORY) (void)pleat__error_set(err, status, PLEAT_NOWHERE, "store: out of memory");
    return status;
}

pleat_status pleat_store_open(const pleat_store_options *opt, pleat_store **out, pleat_error *err) {
    return pleat__store_open_on(opt, &pleat__files_system, out, err);
}

void pleat_store_close(pleat_store **store) {
    if (!store || !*store) return;
    pleat_store *s = *store;
    stop_threads(s);
    if (s->shelf.ctx) s->shelf.close(s->shelf.ctx);
    if (s->has_locks) {
        (void)pthread_cond_destroy(&s->wants);
        (void)pthread_cond_destroy(&s->idle);
        (void)pthread_cond_destroy(&s->work);
        (void)pthread_mutex_destroy(&s->lock);
    }
    const pleat_allocator al = s->al;
    pleat__free(&al, s, 1, sizeof *s);
    *store = NULL;
}

/* ---- questions ----------------------------------------------------------------------------------------- */

const char *pleat_store_miss_name(pleat_store_miss miss) {
    static const char *const names[PLEAT_STORE_N_MISSES] = {"absent", "gone",  "io",      "damaged",
                                                            "other",  "index", "timeout", "busy"};
    return (unsigned)miss < PLEAT_STORE_N_MISSES ? names[miss] : NULL;
}

void pleat_store_get_stats(pleat_store *s, pleat_store_stats *out) {
    if (!s || !out) return;
    (void)pthread_mutex_lock(&s->lock);
    const uint64_t now_ns = pleat__clock_ns(); /* behind all moments that the lock guards */
    *out = s->stats;
    if (s->reads_since_ns) out->read_waits_ns = now_ns - s->reads_since_ns;
    if (s->writes_since_ns) out->write_waits_ns = now_ns - s->writes_since_ns;
    (void)pthread_mutex_unlock(&s->lock);
}

int pleat_store_is_valid(pleat_store *s) {
    if (!s) return 0;
    pleat_store_flush(s); /* the writer is free then, as nobody else uses the store */
    return s->shelf.is_valid(s->shelf.ctx);
}
