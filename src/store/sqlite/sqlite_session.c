/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_session: see sqlite_session.h.
 */
#include "store/sqlite/sqlite_session.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "sql_sqlite.h"
#include "store/sqlite/sqlite_schema.h"

static const char *const sql_text[SQL_COUNT] = {
        [SQL_BEGIN_IMMEDIATE] = sql_sqlite_begin_immediate,
        [SQL_BEGIN_READ] = sql_sqlite_begin_read,
        [SQL_COMMIT] = sql_sqlite_commit,
        [SQL_ROLLBACK] = sql_sqlite_rollback,
        [SQL_SAVEPOINT] = sql_sqlite_savepoint,
        [SQL_RELEASE_SAVEPOINT] = sql_sqlite_release_savepoint,
        [SQL_ROLLBACK_SAVEPOINT] = sql_sqlite_rollback_savepoint,
        [SQL_UPGRADE_LOCK] = sql_sqlite_upgrade_lock,
        [SQL_SELECT_META] = sql_sqlite_select_meta,
        [SQL_UPSERT_META] = sql_sqlite_upsert_meta,
        [SQL_SELECT_ROW] = sql_sqlite_select_row,
        [SQL_SELECT_LABEL] = sql_sqlite_select_label,
        [SQL_SELECT_REPLY] = sql_sqlite_select_reply,
        [SQL_INSERT_ROW] = sql_sqlite_insert_row,
        [SQL_TAKE_ROW] = sql_sqlite_take_row,
        [SQL_UPDATE_ROW] = sql_sqlite_update_row,
        [SQL_COMPLETE_ROW] = sql_sqlite_complete_row,
        [SQL_DELETE_ROW] = sql_sqlite_delete_row,
        [SQL_LIST_ROWS] = sql_sqlite_list_rows,
        [SQL_SWEEP_ROWS] = sql_sqlite_sweep_rows,
        [SQL_INSERT_AUDIT] = sql_sqlite_insert_audit,
};

/* -- errors ------------------------------------------------------------------------ */

static semel_code io_error(sqlite3 *db, const char *name, semel_error *err)
{
        int e = db ? sqlite3_system_errno(db) : 0;
        if (e == ENOSPC || e == EDQUOT)
                return err_set(err, SEMEL_ERR_STORE_FULL,
                               "there is no room left for %s: make room on its disk", name);
        if (e == EROFS)
                return err_set(err, SEMEL_ERR_STORE_READ_ONLY,
                               "%s is on a read-only disk: mount it writable", name);
        return err_set_errno(err, SEMEL_ERR_STORE_DOWN, e,
                             "reading or writing %s failed: look at its disk and directory", name);
}

/* SQLITE_ERROR is everything; only a missing table or column is something a user can do. */
static semel_code sql_error(sqlite3 *db, const char *name, semel_error *err)
{
        const char *msg = db ? sqlite3_errmsg(db) : "";
        if (strstr(msg, "no such table") || strstr(msg, "no such column"))
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "%s has no tables of semel (%s): call semel_sqlite_migrate() on it, "
                               "or run `semel migrate`",
                               name, msg);
        return err_set(err, SEMEL_ERR_INTERNAL, "SQLite refused a statement on %s: %s", name, msg);
}

semel_code sqlite_error(sqlite3 *db, int rc, const char *name, semel_error *err)
{
        if (rc == SQLITE_BUSY_SNAPSHOT)
                return err_set(err, SEMEL_ERR_CONFLICT,
                               "the transaction on %s began with a read and somebody wrote since: "
                               "retry your transaction, with BEGIN IMMEDIATE",
                               name);
        switch (rc & 0xff) {
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return err_set(err, SEMEL_ERR_BUSY,
                               "%s is locked by another connection's transaction: try again, or "
                               "end that transaction",
                               name);
        case SQLITE_FULL:
                return err_set(err, SEMEL_ERR_STORE_FULL,
                               "there is no room left for %s: make room on its disk", name);
        case SQLITE_READONLY:
                return err_set(err, SEMEL_ERR_STORE_READ_ONLY,
                               "%s cannot be written: check the permissions of the file and of its "
                               "directory, and that the disk is not mounted read-only",
                               name);
        case SQLITE_CANTOPEN:
                return err_set_errno(err, SEMEL_ERR_STORE_DOWN, db ? sqlite3_system_errno(db) : 0,
                                     "%s or its -wal file cannot be opened: check that the "
                                     "directory exists and may be written",
                                     name);
        case SQLITE_PERM:
        case SQLITE_AUTH:
                return err_set(err, SEMEL_ERR_ACCESS, "access to %s was denied", name);
        case SQLITE_NOTADB:
                return err_set(err, SEMEL_ERR_CORRUPT,
                               "%s is not an SQLite database: give another path, or move it away",
                               name);
        case SQLITE_CORRUPT:
                return err_set(err, SEMEL_ERR_CORRUPT,
                               "%s is damaged (%s): look with `PRAGMA integrity_check`, restore a "
                               "backup",
                               name, db ? sqlite3_errmsg(db) : "");
        case SQLITE_TOOBIG:
                return err_set(err, SEMEL_ERR_TOO_LARGE,
                               "the row is larger than SQLite's limit for one row");
        case SQLITE_NOMEM:
                return err_set(err, SEMEL_ERR_NO_MEMORY, "SQLite is out of memory");
        case SQLITE_IOERR:
                if (rc == SQLITE_IOERR_NOMEM)
                        return err_set(err, SEMEL_ERR_NO_MEMORY, "SQLite is out of memory");
                return io_error(db, name, err);
        case SQLITE_ERROR:
                return sql_error(db, name, err);
        default:
                return err_set(err, SEMEL_ERR_INTERNAL, "SQLite error %d on %s: %s", rc, name,
                               db ? sqlite3_errmsg(db) : "");
        }
}

semel_code session_error(const struct sqlite_session *ses, semel_error *err)
{
        return sqlite_error(ses->db, sqlite3_extended_errcode(ses->db), ses->name, err);
}

/* -- life ---------------------------------------------------------------------------- */

void session_init(struct sqlite_session *ses, sqlite3 *db, const char *name)
{
        *ses = (struct sqlite_session){.db = db, .name = name};
}

void session_release(struct sqlite_session *ses)
{
        for (int i = 0; i < SQL_COUNT; i++) {
                (void)sqlite3_finalize(ses->stmt[i]);
                ses->stmt[i] = NULL;
        }
}

void session_close(struct sqlite_session *ses)
{
        session_release(ses);
        (void)sqlite3_close(ses->db);
        ses->db = NULL;
}

/* Wait for a lock in short slices: the store's thread serves reads and looks at deadlines in
 * between.  SQLite's own handler sleeps up to 100 ms at a time, and loses against everybody
 * who asks more often. */
static int wait_for_lock(void *arg, int tries)
{
        (void)arg;
        const struct timespec nap = {.tv_nsec = 1000000};
        if (tries >= SESSION_LOCK_SLICE_MS)
                return 0;
        (void)nanosleep(&nap, NULL);
        return 1;
}

static const char session_settings[] = "PRAGMA synchronous=FULL;"
                                       "PRAGMA temp_store=MEMORY;"
                                       "PRAGMA cache_size=-16000;"
                                       "PRAGMA journal_size_limit=67108864;"
                                       "PRAGMA trusted_schema=OFF";

/* The file stays in WAL mode; the change to it wants the file for itself, once. */
static int switch_to_wal(sqlite3 *db)
{
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_step(stmt);
        bool wal = rc == SQLITE_ROW &&
                   sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
        int final = sqlite3_finalize(stmt);
        if (wal)
                return SQLITE_OK;
        if (rc != SQLITE_ROW)
                return final;
        return sqlite3_db_readonly(db, "main") == 1 ? SQLITE_READONLY : SQLITE_BUSY;
}

semel_code session_open(struct sqlite_session *ses, const char *path, const char *vfs,
                        semel_error *err)
{
        sqlite3 *db = NULL;
        int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs);
        if (db)
                (void)sqlite3_extended_result_codes(db, 1);
        if (rc == SQLITE_OK)
                rc = sqlite3_busy_handler(db, wait_for_lock, NULL);
        if (rc == SQLITE_OK && sqlite3_db_readonly(db, "main") == 1)
                rc = SQLITE_READONLY;
        if (rc == SQLITE_OK)
                rc = switch_to_wal(db);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, session_settings, NULL, NULL, NULL);
        if (rc != SQLITE_OK) {
                semel_code code = sqlite_error(db, rc, path, err);
                (void)sqlite3_close(db);
                return code;
        }
        session_init(ses, db, path);
        return SEMEL_OK;
}

/* -- statements ------------------------------------------------------------------------ */

sqlite3_stmt *session_stmt(struct sqlite_session *ses, enum sqlite_sql which)
{
        sqlite3_stmt **stmt = &ses->stmt[which];
        if (!*stmt)
                (void)sqlite3_prepare_v3(ses->db, sql_text[which], -1, SQLITE_PREPARE_PERSISTENT,
                                         stmt, NULL);
        return *stmt;
}

int session_run(struct sqlite_session *ses, enum sqlite_sql which)
{
        sqlite3_stmt *stmt = session_stmt(ses, which);
        if (!stmt)
                return sqlite3_extended_errcode(ses->db);
        int rc = sqlite3_step(stmt);
        bool ok = rc == SQLITE_DONE || rc == SQLITE_ROW;
        (void)sqlite3_reset(stmt);
        /* A caller's connection may not have extended codes switched on. */
        return ok ? SQLITE_OK : sqlite3_extended_errcode(ses->db);
}

void bind_bytes(sqlite3_stmt *stmt, int at, struct span s, bool is_null)
{
        if (is_null)
                (void)sqlite3_bind_null(stmt, at);
        else
                (void)sqlite3_bind_blob64(stmt, at, s.n ? (const void *)s.p : "", s.n,
                                          SQLITE_STATIC);
}

void bind_span(sqlite3_stmt *stmt, int at, struct span s)
{
        bind_bytes(stmt, at, s, s.n == 0);
}

void bind_text(sqlite3_stmt *stmt, int at, struct span s)
{
        (void)sqlite3_bind_text64(stmt, at, s.n ? (const char *)s.p : "", s.n, SQLITE_STATIC,
                                  SQLITE_UTF8);
}

void bind_str(sqlite3_stmt *stmt, int at, const char *text)
{
        if (text)
                (void)sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

struct span column_span(sqlite3_stmt *stmt, int at)
{
        const void *p = sqlite3_column_blob(stmt, at);
        return span_of(p, p ? (size_t)sqlite3_column_bytes(stmt, at) : 0);
}

/* -- transactions ------------------------------------------------------------------------ */

semel_code session_load_mark(struct sqlite_session *ses, semel_error *err)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_SELECT_META);
        if (!stmt)
                return session_error(ses, err);
        int rc = sqlite3_step(stmt);
        semel_code code = SEMEL_OK;
        if (rc != SQLITE_ROW) {
                code = rc == SQLITE_DONE
                               ? err_set(err, SEMEL_ERR_SCHEMA,
                                         "%s has lost its row in semel_meta: restore a backup",
                                         ses->name)
                               : session_error(ses, err);
                goto out;
        }
        code = schema_check_version(ses->name, sqlite3_column_int64(stmt, 8), err);
        if (code != SEMEL_OK)
                goto out;
        struct sqlite_mark *mark = &ses->mark;
        mark->boot_no = sqlite3_column_int64(stmt, 0);
        const void *boot_id = sqlite3_column_blob(stmt, 1);
        if (!boot_id || sqlite3_column_bytes(stmt, 1) != sizeof mark->boot_id.b) {
                code = err_set(err, SEMEL_ERR_CORRUPT, "%s has a damaged row in semel_meta",
                               ses->name);
                goto out;
        }
        memcpy(mark->boot_id.b, boot_id, sizeof mark->boot_id.b);
        mark->boot_us = sqlite3_column_int64(stmt, 2);
        mark->own_us = sqlite3_column_int64(stmt, 3);
        mark->lag_us = sqlite3_column_int64(stmt, 4);
        mark->settled = sqlite3_column_int(stmt, 5) != 0;
        mark->since_us = sqlite3_column_int64(stmt, 6);
        mark->credit_us = sqlite3_column_int64(stmt, 7);
        ses->mark_changed = false;
out:
        (void)sqlite3_reset(stmt);
        return code;
}

void session_take_time(struct sqlite_session *ses, const struct sys_clock *clock)
{
        if (sqlite_mark_read(&ses->mark, clock->boot_us(clock->arg), clock->wall_us(clock->arg),
                             &ses->now))
                ses->mark_changed = true;
}

int session_save_mark(struct sqlite_session *ses)
{
        if (!ses->mark_changed)
                return SQLITE_OK;
        sqlite3_stmt *stmt = session_stmt(ses, SQL_UPSERT_META);
        if (!stmt)
                return sqlite3_extended_errcode(ses->db);
        const struct sqlite_mark *mark = &ses->mark;
        (void)sqlite3_bind_int64(stmt, 1, mark->boot_no);
        bind_span(stmt, 2, span_of(mark->boot_id.b, sizeof mark->boot_id.b));
        (void)sqlite3_bind_int64(stmt, 3, mark->boot_us);
        (void)sqlite3_bind_int64(stmt, 4, mark->own_us);
        (void)sqlite3_bind_int64(stmt, 5, mark->lag_us);
        (void)sqlite3_bind_int(stmt, 6, mark->settled);
        (void)sqlite3_bind_int64(stmt, 7, mark->since_us);
        (void)sqlite3_bind_int64(stmt, 8, mark->credit_us);
        return session_run(ses, SQL_UPSERT_META);
}

void session_rollback(struct sqlite_session *ses)
{
        /* Some errors end the transaction by themselves (B9); a second ROLLBACK would fail. */
        if (ses->db && sqlite3_get_autocommit(ses->db) == 0)
                (void)session_run(ses, SQL_ROLLBACK);
}

/* Somebody put another file in its place (a restored backup): what is written here is lost, and
 * whoever opens the path now does not see our claims. */
static bool was_replaced(const struct sqlite_session *ses)
{
        int moved = 0;
        return sqlite3_file_control(ses->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
               moved;
}

semel_code session_begin(struct sqlite_session *ses, enum sqlite_sql begin,
                         const struct sys_clock *clock, const struct sqlite_boot_id *boot_id,
                         semel_error *err)
{
        if (session_run(ses, begin) != SQLITE_OK)
                return session_error(ses, err);
        semel_code code = session_load_mark(ses, err);
        if (code == SEMEL_OK && memcmp(ses->mark.boot_id.b, boot_id->b, sizeof boot_id->b) != 0)
                code = err_set(err, SEMEL_ERR_UNSAFE,
                               "%s is in use by another machine too, and their clocks cannot be "
                               "compared: use one machine, or PostgreSQL",
                               ses->name);
        if (code == SEMEL_OK && was_replaced(ses))
                code = err_set(err, SEMEL_ERR_UNSAFE,
                               "%s was moved or replaced while it was open: start all programs that "
                               "use it anew",
                               ses->name);
        if (code != SEMEL_OK) {
                session_rollback(ses);
                return code;
        }
        session_take_time(ses, clock);
        return SEMEL_OK;
}
