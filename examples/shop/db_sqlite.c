/* SPDX-License-Identifier: Apache-2.0
 *
 * db_sqlite: the shop's tables in a SQLite file.
 *
 * One writer at a time is SQLite's own rule.  Inside this process the writers of mode transaction
 * queue on a condition, because SQLite's own waiting is polling; between processes its busy
 * timeout decides.
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <semel/sqlite.h>

#include "db.h"

enum { BUSY_MS = 5000 }; /* for a write outside run_once */

struct sqlite_db {
        pthread_mutex_t lock;
        pthread_cond_t written; /* the writer has ended */
        bool writing;           /* somebody in this process is the writer */
        char path[];
};

struct sqlite_db_conn {
        struct db_conn head;
        sqlite3 *lite;
        bool writing; /* it is the writer */
        sqlite3_stmt *stmts[DB_STATEMENTS];
};

static const char schema[] =
        "BEGIN IMMEDIATE;"
        "CREATE TABLE IF NOT EXISTS shop_seller ("
        " id TEXT PRIMARY KEY, name TEXT NOT NULL,"
        " created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE IF NOT EXISTS shop_product ("
        " id TEXT PRIMARY KEY, name TEXT NOT NULL, price_minor_units INTEGER NOT NULL,"
        " currency TEXT NOT NULL, seller_id TEXT NOT NULL REFERENCES shop_seller,"
        " created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE INDEX IF NOT EXISTS shop_product_seller ON shop_product (seller_id);"
        "CREATE TABLE IF NOT EXISTS shop_order ("
        " id TEXT PRIMARY KEY, customer_id TEXT NOT NULL, total_kopecks INTEGER NOT NULL,"
        " status TEXT NOT NULL, request_id TEXT,"
        " created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE IF NOT EXISTS shop_idempotency ("
        " key TEXT PRIMARY KEY, request TEXT NOT NULL, response TEXT NOT NULL,"
        " status_code INTEGER NOT NULL, created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);"
        "COMMIT";

static struct sqlite_db_conn *own(struct db_conn *conn)
{
        return (struct sqlite_db_conn *)conn;
}

static struct timespec deadline_in(int64_t ms)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec += ms / 1000;
        t.tv_nsec += ms % 1000 * 1000000;
        if (t.tv_nsec >= 1000000000) {
                t.tv_sec++;
                t.tv_nsec -= 1000000000;
        }
        return t;
}

static int64_t ms_until(const struct timespec *end)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
}

/* Become this process's writer.  false: the one before it did not end in time. */
static bool writer_enter(struct sqlite_db_conn *c, const struct timespec *end)
{
        struct sqlite_db *priv = db_private(c->head.db);
        int rc = 0;
        pthread_mutex_lock(&priv->lock);
        while (priv->writing && rc == 0)
                rc = pthread_cond_clockwait(&priv->written, &priv->lock, CLOCK_MONOTONIC, end);
        if (!priv->writing)
                c->writing = priv->writing = true;
        pthread_mutex_unlock(&priv->lock);
        return c->writing;
}

static void writer_leave(struct sqlite_db_conn *c)
{
        struct sqlite_db *priv = db_private(c->head.db);
        if (!c->writing)
                return;
        c->writing = false;
        pthread_mutex_lock(&priv->lock);
        priv->writing = false;
        pthread_cond_signal(&priv->written);
        pthread_mutex_unlock(&priv->lock);
}

static void db_lite_disconnect(struct db_conn *conn)
{
        struct sqlite_db_conn *c = own(conn);
        for (int i = 0; i < DB_STATEMENTS; i++)
                sqlite3_finalize(c->stmts[i]);
        sqlite3_close(c->lite);
        writer_leave(c);
        free(c);
}

static sqlite3 *lite_open(const char *path, char *why)
{
        sqlite3 *lite = NULL;
        int rc = sqlite3_open_v2(path, &lite,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                 NULL);
        if (rc == SQLITE_OK) {
                sqlite3_busy_timeout(lite, BUSY_MS);
                rc = sqlite3_exec(lite, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                                        "PRAGMA foreign_keys=ON",
                                  NULL, NULL, NULL);
        }
        if (rc != SQLITE_OK) {
                snprintf(why, DB_WHY_BYTES, "%.150s: %s", path,
                         lite ? sqlite3_errmsg(lite) : "no memory");
                sqlite3_close(lite);
                return NULL;
        }
        return lite;
}

static struct db_conn *db_lite_connect(struct db *db, char *why)
{
        struct sqlite_db *priv = db_private(db);
        struct sqlite_db_conn *c = calloc(1, sizeof *c);
        if (!c) {
                snprintf(why, DB_WHY_BYTES, "no memory");
                return NULL;
        }
        c->head.db = db;
        c->lite = lite_open(priv->path, why);
        if (!c->lite) {
                free(c);
                return NULL;
        }
        for (int i = 0; i < DB_STATEMENTS; i++)
                if (sqlite3_prepare_v3(c->lite, db_statement_sql[i], -1,
                                       SQLITE_PREPARE_PERSISTENT, &c->stmts[i], NULL)) {
                        snprintf(why, DB_WHY_BYTES, "%s", sqlite3_errmsg(c->lite));
                        db_lite_disconnect(&c->head);
                        return NULL;
                }
        return &c->head;
}

static bool db_lite_open(struct db *db, char *why)
{
        const char *path = db_url(db) + strlen("sqlite:");
        size_t n = strcspn(path, "?");
        struct sqlite_db *priv = calloc(1, sizeof *priv + n + 1);
        semel_error *err = semel_error_new();
        sqlite3 *lite = NULL;
        bool ok = false;

        if (!priv || !err) {
                free(priv);
                snprintf(why, DB_WHY_BYTES, "no memory");
                goto out;
        }
        memcpy(priv->path, path, n);
        pthread_mutex_init(&priv->lock, NULL);
        pthread_cond_init(&priv->written, NULL);
        db_set_private(db, priv);
        lite = lite_open(priv->path, why);
        if (!lite)
                goto out;
        if (sqlite3_exec(lite, schema, NULL, NULL, NULL) != SQLITE_OK) {
                snprintf(why, DB_WHY_BYTES, "%s", sqlite3_errmsg(lite));
                goto out;
        }
        if (semel_sqlite_migrate(lite, err) != SEMEL_OK) {
                snprintf(why, DB_WHY_BYTES, "%s", semel_error_text(err));
                goto out;
        }
        ok = true;
out:
        sqlite3_close(lite);
        semel_error_free(err);
        return ok;
}

static void db_lite_close(struct db *db)
{
        struct sqlite_db *priv = db_private(db);
        if (!priv)
                return;
        pthread_cond_destroy(&priv->written);
        pthread_mutex_destroy(&priv->lock);
        free(priv);
}

static bool db_lite_alive(struct db_conn *conn)
{
        return sqlite3_get_autocommit(own(conn)->lite);
}

static enum db_result lite_failed(struct sqlite_db_conn *c)
{
        int rc = sqlite3_extended_errcode(c->lite);
        snprintf(c->head.why, sizeof c->head.why, "%s", sqlite3_errmsg(c->lite));
        if (rc == SQLITE_CONSTRAINT_FOREIGNKEY)
                return DB_REFERENCE;
        switch (rc & 0xff) {
        case SQLITE_BUSY:
                return DB_BUSY;
        case SQLITE_IOERR: /* of a COMMIT: it may be on the disk */
                return DB_UNKNOWN;
        default:
                return DB_FAILED;
        }
}

static enum db_result db_lite_run(struct db_conn *conn, enum db_statement stmt,
                                  const char *const *params, db_row_fn fn, void *arg, int *ret_n)
{
        struct sqlite_db_conn *c = own(conn);
        sqlite3_stmt *s = c->stmts[stmt];
        enum db_result result = DB_OK;
        const char *cells[DB_COLUMNS_MAX];
        int rc, rows = 0;

        for (int i = 0; i < db_statement_params[stmt]; i++) {
                char name[16];
                snprintf(name, sizeof name, "$%d", i + 1);
                rc = sqlite3_bind_text(s, sqlite3_bind_parameter_index(s, name), params[i], -1,
                                       SQLITE_STATIC);
                if (rc != SQLITE_OK)
                        goto out;
        }
        while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
                for (int k = 0; k < sqlite3_column_count(s) && k < DB_COLUMNS_MAX; k++)
                        cells[k] = (const char *)sqlite3_column_text(s, k);
                if (fn)
                        fn(arg, cells);
                rows++;
        }
out:
        if (rc != SQLITE_DONE)
                result = lite_failed(c);
        else
                *ret_n = sqlite3_column_count(s) > 0 ? rows : sqlite3_changes(c->lite);
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
        return result;
}

static enum db_result lite_exec(struct sqlite_db_conn *c, const char *sql)
{
        return sqlite3_exec(c->lite, sql, NULL, NULL, NULL) == SQLITE_OK ? DB_OK : lite_failed(c);
}

static enum db_result db_lite_begin(struct db_conn *conn, int64_t wait_ms)
{
        struct sqlite_db_conn *c = own(conn);
        struct timespec end = deadline_in(wait_ms);
        enum db_result result;
        int64_t left_ms;

        if (!writer_enter(c, &end)) {
                snprintf(conn->why, sizeof conn->why, "another command is writing");
                return DB_BUSY;
        }
        left_ms = ms_until(&end); /* for writers of other processes */
        sqlite3_busy_timeout(c->lite, left_ms > 0 ? (int)left_ms : 0);
        result = lite_exec(c, "BEGIN IMMEDIATE");
        sqlite3_busy_timeout(c->lite, BUSY_MS);
        if (result != DB_OK)
                writer_leave(c);
        conn->in_transaction = result == DB_OK;
        return result;
}

static enum db_result db_lite_commit(struct db_conn *conn)
{
        struct sqlite_db_conn *c = own(conn);
        enum db_result result = lite_exec(c, "COMMIT");
        if (!sqlite3_get_autocommit(c->lite))
                lite_exec(c, "ROLLBACK");
        conn->in_transaction = false;
        writer_leave(c);
        return result;
}

static void db_lite_rollback(struct db_conn *conn)
{
        struct sqlite_db_conn *c = own(conn);
        if (!sqlite3_get_autocommit(c->lite))
                lite_exec(c, "ROLLBACK");
        conn->in_transaction = false;
        writer_leave(c);
}

struct lite_call {
        struct db_conn *conn;
        db_command_fn fn;
        void *arg;
};

static semel_effect lite_call_command(void *arg, struct sqlite3 *lite, semel_reply *reply)
{
        struct lite_call *call = arg;
        (void)lite; /* the connection in call->conn */
        return call->fn(call->arg, call->conn, reply);
}

static semel_outcome db_lite_run_once(struct db_conn *conn, const semel_command *cmd,
                                      db_command_fn fn, void *arg, semel_reply **ret_reply,
                                      semel_error *err)
{
        struct lite_call call = {conn, fn, arg};
        return semel_sqlite_run(own(conn)->lite, cmd, lite_call_command, &call, ret_reply, err);
}

static enum db_result db_lite_append(struct db_conn *conn, const semel_event *ev,
                                     semel_error *err)
{
        return semel_sqlite_outbox_append(own(conn)->lite, ev, NULL, err) == SEMEL_OK ? DB_OK
                                                                                      : DB_FAILED;
}

const struct db_driver db_sqlite = {
        .conns_max = 64, /* as on PostgreSQL: a waiting duplicate holds one */
        .open = db_lite_open,
        .close = db_lite_close,
        .connect = db_lite_connect,
        .disconnect = db_lite_disconnect,
        .alive = db_lite_alive,
        .run = db_lite_run,
        .begin = db_lite_begin,
        .commit = db_lite_commit,
        .rollback = db_lite_rollback,
        .run_once = db_lite_run_once,
        .append = db_lite_append,
};
