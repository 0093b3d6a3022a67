/* SPDX-License-Identifier: MIT
 *
 * index.c: see index.h.
 */
#include "store/folder/index.h"

#include "core/error.h"

#if PLEAT_SQLITE

#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include "core/memory.h"

/* Statements, prepared once for a connection. */
typedef enum statement {
    FIND,
    BEGIN,
    END,
    UNDO,
    PUT,
    USES,
    USE,
    REMOVE,
    LOWEST,
    TOTAL,
    EACH,
    CLOCK,
    N_STATEMENTS
} statement;

static const char *const texts[N_STATEMENTS] = {
    [FIND] = "SELECT bytes, body_bytes, cost_ns FROM images WHERE key = ?1",
    [BEGIN] = "BEGIN IMMEDIATE",
    [END] = "COMMIT",
    [UNDO] = "ROLLBACK",
    [PUT] = ("INSERT INTO images VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
             "ON CONFLICT(key) DO UPDATE SET bytes = ?2, body_bytes = ?3"),
    [USES] = "SELECT bytes, body_bytes, cost_ns, uses, used_at FROM images WHERE key = ?1",
    [USE] = "UPDATE images SET uses = ?2, used_at = ?3, rank = ?4 WHERE key = ?1",
    [REMOVE] = "DELETE FROM images WHERE key = ?1",
    [LOWEST] = "SELECT bytes, body_bytes, cost_ns, key FROM images ORDER BY rank, key LIMIT 1",
    [TOTAL] = "SELECT count(*), coalesce(sum(bytes), 0) FROM images",
    [EACH] = "SELECT bytes, body_bytes, cost_ns, key FROM images",
    [CLOCK] = "SELECT coalesce(max(used_at), 0) + 1 FROM images",
};

static const char schema[] =
    "PRAGMA synchronous = NORMAL;"
    "CREATE TABLE IF NOT EXISTS images(key BLOB PRIMARY KEY CHECK(length(key) = 16), bytes INTEGER NOT NULL,"
    " body_bytes INTEGER NOT NULL, cost_ns REAL NOT NULL, uses REAL NOT NULL,"
    " used_at INTEGER NOT NULL, rank REAL NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS by_rank ON images(rank, key);"
    "CREATE INDEX IF NOT EXISTS by_use ON images(used_at);";

enum { OPEN_WAITS_MS = 5000, TRY_AGAIN_MS = 2 }; /* for others that open, or write, when a connection is made */

struct pleat__index {
    pleat_allocator al;
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
};

/* ---- statements ---------------------------------------------------------------------------------------- */

/* One step of a statement whose parameters are bound: SQLITE_ROW or SQLITE_DONE, or an error. */
static sqlite3_stmt *ready(pleat__index *ix, statement which, const pleat__store_key *key) {
    sqlite3_stmt *st = ix->statements[which];
    (void)sqlite3_reset(st);
    if (key) (void)sqlite3_bind_blob(st, 1, key->bytes, sizeof key->bytes, SQLITE_TRANSIENT);
    return st;
}

static pleat_status status_of(int code) { return code == SQLITE_DONE || code == SQLITE_ROW ? PLEAT_OK : PLEAT_E_IO; }

/* Run it to its end. */
static pleat_status run(sqlite3_stmt *st) {
    const int code = sqlite3_step(st);
    (void)sqlite3_reset(st);
    return status_of(code);
}

/* Its first row: PLEAT_OK, and it has to be reset; PLEAT_AGAIN: there is none. */
static pleat_status first_row(sqlite3_stmt *st) {
    const int code = sqlite3_step(st);
    if (code == SQLITE_ROW) return PLEAT_OK;
    (void)sqlite3_reset(st);
    return code == SQLITE_DONE ? PLEAT_AGAIN : PLEAT_E_IO;
}

/* Numbers of a row that somebody else may have written: what is below 0 is none. */
static uint64_t number(sqlite3_stmt *st, int column) {
    const sqlite3_int64 v = sqlite3_column_int64(st, column);
    return v > 0 ? (uint64_t)v : 0;
}

static pleat__index_row row_of(sqlite3_stmt *st) {
    const double cost_ns = sqlite3_column_double(st, 2);
    return (pleat__index_row){
        .bytes = number(st, 0), .body_bytes = number(st, 1), .cost_ns = cost_ns >= 1 ? cost_ns : 1};
}

static bool key_of(sqlite3_stmt *st, int column, pleat__store_key *out) {
    const void *bytes = sqlite3_column_blob(st, column);
    if (!bytes || sqlite3_column_bytes(st, column) != (int)sizeof out->bytes) return false;
    memcpy(out->bytes, bytes, sizeof out->bytes);
    return true;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static bool means_damage(int code) { return code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_ERROR; }

static int prepare(pleat__index *ix) {
    for (int i = 0; i < N_STATEMENTS; i++) {
        const int code = sqlite3_prepare_v3(ix->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &ix->statements[i], NULL);
        if (code != SQLITE_OK) return code;
    }
    return SQLITE_OK;
}

/* SQLITE_CORRUPT unless the whole of it is sound. */
static int check(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (code == SQLITE_OK) code = sqlite3_step(st);
    const unsigned char *text = code == SQLITE_ROW ? sqlite3_column_text(st, 0) : NULL;
    const bool is_sound = text && strcmp((const char *)text, "ok") == 0;
    (void)sqlite3_finalize(st);
    return is_sound ? SQLITE_OK : code == SQLITE_ROW ? SQLITE_CORRUPT : code;
}

/* SQLite waits for nobody here: of two that do it to a new file at once, one hears that it is locked. */
static int keep_log(sqlite3 *db) {
    int code = SQLITE_BUSY;
    for (int waited_ms = 0; code == SQLITE_BUSY && waited_ms < OPEN_WAITS_MS; waited_ms += TRY_AGAIN_MS) {
        if (waited_ms > 0) (void)sqlite3_sleep(TRY_AGAIN_MS);
        code = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL) & 0xff;
    }
    return code;
}

static int connect(pleat__index *ix, const char *path, uint32_t wait_ms) {
    int code = sqlite3_open_v2(path, &ix->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK) code = sqlite3_busy_timeout(ix->db, OPEN_WAITS_MS);
    if (code == SQLITE_OK) code = keep_log(ix->db);
    if (code == SQLITE_OK) code = sqlite3_exec(ix->db, schema, NULL, NULL, NULL);
    if (code == SQLITE_OK) code = check(ix->db);
    if (code == SQLITE_OK) code = prepare(ix);
    return code == SQLITE_OK ? sqlite3_busy_timeout(ix->db, (int)wait_ms) : code;
}

pleat_status pleat__index_open(const char *path, uint32_t wait_ms, const pleat_allocator *al, pleat__index **out,
                               bool *is_damaged, pleat_error *err) {
    pleat__index *ix = pleat__alloc_zero(al, 1, sizeof *ix);
    *is_damaged = false;
    PLEAT_FAIL_IF(!ix, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "store: out of memory");
    ix->al = *al;
    const int code = connect(ix, path, wait_ms);
    if (code == SQLITE_OK) {
        *out = ix;
        return PLEAT_OK;
    }
    const int system = ix->db ? sqlite3_system_errno(ix->db) : 0; /* 0: the system had no part in it */
    *is_damaged = means_damage(code & 0xff);
    (void)pleat__error_set(err, PLEAT_E_IO, PLEAT_NOWHERE, "store: the index %s: %s%s%s", path,
                           ix->db ? sqlite3_errmsg(ix->db) : sqlite3_errstr(code), system ? ": " : "",
                           system ? strerror(system) : "");
    pleat__index_close(&ix);
    return PLEAT_E_IO;
}

void pleat__index_close(pleat__index **index) {
    pleat__index *ix = *index;
    if (!ix) return;
    for (int i = 0; i < N_STATEMENTS; i++) (void)sqlite3_finalize(ix->statements[i]);
    (void)sqlite3_close(ix->db);
    const pleat_allocator al = ix->al;
    pleat__free(&al, ix, 1, sizeof *ix);
    *index = NULL;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

pleat_status pleat__index_find(pleat__index *ix, const pleat__store_key *key, pleat__index_row *out) {
    sqlite3_stmt *st = ready(ix, FIND, key);
    PLEAT_TRY(first_row(st));
    *out = row_of(st);
    (void)sqlite3_reset(st);
    return PLEAT_OK;
}

pleat_status pleat__index_begin(pleat__index *ix) { return run(ready(ix, BEGIN, NULL)); }

pleat_status pleat__index_end(pleat__index *ix) {
    const pleat_status status = run(ready(ix, END, NULL));
    if (status != PLEAT_OK) pleat__index_undo(ix);
    return status;
}

void pleat__index_undo(pleat__index *ix) {
    if (!sqlite3_get_autocommit(ix->db)) (void)run(ready(ix, UNDO, NULL));
}

static double rank_of(double uses, int64_t used_at, const pleat__index_row *row) {
    const double bytes = row->bytes > 0 ? (double)row->bytes : 1, cost_ns = row->cost_ns >= 1 ? row->cost_ns : 1;
    return log2(uses) + (double)used_at / PLEAT__INDEX_HALF_LIFE + log2(cost_ns / bytes);
}

static pleat_status tick(pleat__index *ix, int64_t *now) {
    sqlite3_stmt *st = ready(ix, CLOCK, NULL);
    PLEAT_TRY(first_row(st));
    *now = sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return PLEAT_OK;
}

pleat_status pleat__index_put(pleat__index *ix, const pleat__store_key *key, const pleat__index_row *row) {
    int64_t now = 0;
    PLEAT_TRY(tick(ix, &now));
    sqlite3_stmt *st = ready(ix, PUT, key);
    (void)sqlite3_bind_int64(st, 2, (sqlite3_int64)row->bytes);
    (void)sqlite3_bind_int64(st, 3, (sqlite3_int64)row->body_bytes);
    (void)sqlite3_bind_double(st, 4, row->cost_ns);
    (void)sqlite3_bind_double(st, 5, 1);
    (void)sqlite3_bind_int64(st, 6, now);
    (void)sqlite3_bind_double(st, 7, rank_of(1, now, row));
    return run(st);
}

pleat_status pleat__index_use(pleat__index *ix, const pleat__store_key *key) {
    int64_t now = 0;
    PLEAT_TRY(tick(ix, &now));
    sqlite3_stmt *st = ready(ix, USES, key);
    const pleat_status status = first_row(st);
    if (status != PLEAT_OK) return status == PLEAT_AGAIN ? PLEAT_OK : status;
    const pleat__index_row row = row_of(st);
    const double age = (double)(now - sqlite3_column_int64(st, 4));
    const double uses = 1 + sqlite3_column_double(st, 3) * exp2(-age / PLEAT__INDEX_HALF_LIFE);
    (void)sqlite3_reset(st);
    st = ready(ix, USE, key);
    (void)sqlite3_bind_double(st, 2, uses);
    (void)sqlite3_bind_int64(st, 3, now);
    (void)sqlite3_bind_double(st, 4, rank_of(uses, now, &row));
    return run(st);
}

pleat_status pleat__index_remove(pleat__index *ix, const pleat__store_key *key) { return run(ready(ix, REMOVE, key)); }

pleat_status pleat__index_lowest(pleat__index *ix, pleat__store_key *key, pleat__index_row *out) {
    sqlite3_stmt *st = ready(ix, LOWEST, NULL);
    PLEAT_TRY(first_row(st));
    const bool is_key = key_of(st, 3, key);
    *out = row_of(st);
    (void)sqlite3_reset(st);
    return is_key ? PLEAT_OK : PLEAT_E_IO;
}

pleat_status pleat__index_total(pleat__index *ix, uint64_t *n_files, uint64_t *bytes) {
    sqlite3_stmt *st = ready(ix, TOTAL, NULL);
    PLEAT_TRY(first_row(st));
    *n_files = number(st, 0);
    *bytes = number(st, 1);
    (void)sqlite3_reset(st);
    return PLEAT_OK;
}

pleat_status pleat__index_each(pleat__index *ix,
                               bool (*each)(void *arg, const pleat__store_key *key, const pleat__index_row *row),
                               void *arg) {
    sqlite3_stmt *st = ready(ix, EACH, NULL);
    int code;
    while ((code = sqlite3_step(st)) == SQLITE_ROW) {
        pleat__store_key key;
        const pleat__index_row row = row_of(st);
        if (key_of(st, 3, &key) && !each(arg, &key, &row)) break;
    }
    (void)sqlite3_reset(st);
    return status_of(code);
}

#else

pleat_status pleat__index_open(const char *path, uint32_t wait_ms, const pleat_allocator *al, pleat__index **out,
                               bool *is_damaged, pleat_error *err) {
    (void)path, (void)wait_ms, (void)al, (void)out;
    *is_damaged = false;
    return pleat__error_set(err, PLEAT_E_UNSUPPORTED, PLEAT_NOWHERE,
                            "store: this build has no SQLite (the build option PLEAT_SQLITE), so it stores nothing");
}

void pleat__index_close(pleat__index **ix) { *ix = NULL; }

/* There is no index to ask. */
pleat_status pleat__index_find(pleat__index *ix, const pleat__store_key *key, pleat__index_row *out) {
    (void)ix, (void)key, (void)out;
    return PLEAT_E_IO;
}
pleat_status pleat__index_begin(pleat__index *ix) { return (void)ix, PLEAT_E_IO; }
pleat_status pleat__index_end(pleat__index *ix) { return (void)ix, PLEAT_E_IO; }
void pleat__index_undo(pleat__index *ix) { (void)ix; }
pleat_status pleat__index_put(pleat__index *ix, const pleat__store_key *key, const pleat__index_row *row) {
    (void)ix, (void)key, (void)row;
    return PLEAT_E_IO;
}
pleat_status pleat__index_use(pleat__index *ix, const pleat__store_key *key) {
    (void)ix, (void)key;
    return PLEAT_E_IO;
}
pleat_status pleat__index_remove(pleat__index *ix, const pleat__store_key *key) {
    (void)ix, (void)key;
    return PLEAT_E_IO;
}
pleat_status pleat__index_lowest(pleat__index *ix, pleat__store_key *key, pleat__index_row *out) {
    (void)ix, (void)key, (void)out;
    return PLEAT_E_IO;
}
pleat_status pleat__index_total(pleat__index *ix, uint64_t *n_files, uint64_t *bytes) {
    (void)ix, (void)n_files, (void)bytes;
    return PLEAT_E_IO;
}
pleat_status pleat__index_each(pleat__index *ix,
                               bool (*each)(void *arg, const pleat__store_key *key, const pleat__index_row *row),
                               void *arg) {
    (void)ix, (void)each, (void)arg;
    return PLEAT_E_IO;
}

#endif
