/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_session: one connection with its prepared statements, the time of the transaction that is
 * open on it, and what SQLite's errors mean.  Used by one thread at a time.
 *
 *     session_begin(ses, SQL_BEGIN_IMMEDIATE, &clock, &boot_id, err)   // and read the clock
 *     ops...
 *     session_save_mark(ses); session_run(ses, SQL_COMMIT)
 */
#ifndef STORE_SQLITE_SESSION_H
#define STORE_SQLITE_SESSION_H

#include <sqlite3.h>

#include "base/err.h"
#include "base/span.h"
#include "store/sqlite/sqlite_clock.h"
#include "sys/clock.h"

enum sqlite_sql {
        SQL_BEGIN_IMMEDIATE,
        SQL_BEGIN_READ,
        SQL_COMMIT,
        SQL_ROLLBACK,
        SQL_SAVEPOINT,
        SQL_RELEASE_SAVEPOINT,
        SQL_ROLLBACK_SAVEPOINT,
        SQL_UPGRADE_LOCK,
        SQL_SELECT_META,
        SQL_UPSERT_META,
        SQL_SELECT_ROW,
        SQL_SELECT_LABEL,
        SQL_SELECT_REPLY,
        SQL_INSERT_ROW,
        SQL_TAKE_ROW,
        SQL_UPDATE_ROW,
        SQL_COMPLETE_ROW,
        SQL_DELETE_ROW,
        SQL_LIST_ROWS,
        SQL_SWEEP_ROWS,
        SQL_INSERT_AUDIT,
        SQL_COUNT
};

struct sqlite_session {
        sqlite3 *db;
        const char *name;             /* for texts: the file's path */
        sqlite3_stmt *stmt[SQL_COUNT]; /* prepared when first needed */
        struct sqlite_mark mark;
        bool mark_changed;
        struct command_now now;       /* wall_us is the file's own calendar */
};

enum { SESSION_LOCK_SLICE_MS = 100 };

/* Take over `db` (borrowed by a tx, owned by a store: session_close). */
void session_init(struct sqlite_session *ses, sqlite3 *db, const char *name);
/* Finalize the statements; db stays open. */
void session_release(struct sqlite_session *ses);

/* Open an existing file with the settings that the promises need: WAL, synchronous=FULL. */
semel_code session_open(struct sqlite_session *ses, const char *path, const char *vfs,
                        semel_error *err);
/* Statements and connection.  Safe twice. */
void session_close(struct sqlite_session *ses);

/* The statement, reset and ready to bind; NULL: err says why. */
sqlite3_stmt *session_stmt(struct sqlite_session *ses, enum sqlite_sql which);

/* Run a statement without rows.  SQLITE_OK or an extended code. */
int session_run(struct sqlite_session *ses, enum sqlite_sql which);

/* Begin, read the mark, take the time.  On failure no transaction is open.
 * SEMEL_ERR_UNSAFE: the file is in use in another boot, or it is no longer the one at its path.
 * SEMEL_ERR_SCHEMA: it is another version. */
semel_code session_begin(struct sqlite_session *ses, enum sqlite_sql begin,
                         const struct sys_clock *clock, const struct sqlite_boot_id *boot_id,
                         semel_error *err);
/* Read the mark in the transaction that is open. */
semel_code session_load_mark(struct sqlite_session *ses, semel_error *err);
void session_take_time(struct sqlite_session *ses, const struct sys_clock *clock);
/* Write the mark if it changed.  SQLITE_OK or an extended code. */
int session_save_mark(struct sqlite_session *ses);
void session_rollback(struct sqlite_session *ses);

/* In a transaction of somebody else's: make it a writing one, and read the clock (sqlite_tx.c). */
semel_code sqlite_tx_write_lock(struct sqlite_session *ses, semel_error *err);
semel_code sqlite_tx_clock(struct sqlite_session *ses, semel_error *err);

/* What the connection's last error means; fills err. */
semel_code session_error(const struct sqlite_session *ses, semel_error *err);
semel_code sqlite_error(sqlite3 *db, int rc, const char *name, semel_error *err);

/* Values of parameters; their bytes are borrowed until the statement is reset. */
void bind_span(sqlite3_stmt *stmt, int at, struct span s); /* a blob; NULL when empty */
void bind_bytes(sqlite3_stmt *stmt, int at, struct span s, bool is_null); /* a blob */
void bind_text(sqlite3_stmt *stmt, int at, struct span s);
void bind_str(sqlite3_stmt *stmt, int at, const char *text); /* NULL: as it was */
/* A column of the row that a statement stands on, blob or text; NULL: an empty span. */
struct span column_span(sqlite3_stmt *stmt, int at);

#endif
