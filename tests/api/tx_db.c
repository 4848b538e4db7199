/* SPDX-License-Identifier: Apache-2.0
 *
 * tx_db: see tx_db.h.
 */
#include "tx_db.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <semel/postgres.h>
#include <semel/sqlite.h>

struct tx_db {
        PGconn *pg;
        sqlite3 *lite;
        tx_fn fn; /* of the run that is under way */
        void *arg;
};

bool tx_db_is_postgres(const char *url)
{
        return strncmp(url, "postgres", 8) == 0;
}

struct tx_db *tx_db_open(const char *url)
{
        struct tx_db *db = calloc(1, sizeof *db);
        if (!db)
                abort();
        if (tx_db_is_postgres(url)) {
                db->pg = PQconnectdb(url);
                if (PQstatus(db->pg) != CONNECTION_OK) {
                        fprintf(stderr, "%s", PQerrorMessage(db->pg));
                        abort();
                }
                PQclear(PQexec(db->pg, "SET client_min_messages = warning"));
                /* The same tests once more, with semel's statements known by name. */
                if (getenv("SEMEL_TEST_PREPARE") && semel_pg_prepare(db->pg, NULL) != SEMEL_OK)
                        abort();
                return db;
        }
        if (sqlite3_open(url + strlen("sqlite:"), &db->lite) != SQLITE_OK)
                abort();
        sqlite3_busy_timeout(db->lite, 5000);
        return db;
}

void tx_db_close(struct tx_db *db)
{
        if (!db)
                return;
        if (db->pg)
                PQfinish(db->pg);
        sqlite3_close(db->lite);
        free(db);
}

bool tx_db_exec(struct tx_db *db, const char *sql)
{
        if (db->lite)
                return sqlite3_exec(db->lite, sql, NULL, NULL, NULL) == SQLITE_OK;
        PGresult *res = PQexec(db->pg, sql);
        ExecStatusType status = PQresultStatus(res);
        PQclear(res);
        return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

const char *tx_db_error(struct tx_db *db)
{
        return db->lite ? sqlite3_errmsg(db->lite) : PQerrorMessage(db->pg);
}

static void lite_value(sqlite3 *lite, const char *sql, char *buf, int size)
{
        sqlite3_stmt *stmt = NULL;
        if (sqlite3_prepare_v2(lite, sql, -1, &stmt, NULL) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW)
                (void)snprintf(buf, (size_t)size, "%s", (const char *)sqlite3_column_text(stmt, 0));
        sqlite3_finalize(stmt);
}

const char *tx_db_value(struct tx_db *db, const char *sql, char *buf, int size)
{
        buf[0] = 0;
        if (db->lite) {
                lite_value(db->lite, sql, buf, size);
                return buf;
        }
        PGresult *res = PQexec(db->pg, sql);
        if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) > 0)
                (void)snprintf(buf, (size_t)size, "%s", PQgetvalue(res, 0, 0));
        PQclear(res);
        return buf;
}

bool tx_db_begin(struct tx_db *db)
{
        return tx_db_exec(db, db->lite ? "BEGIN IMMEDIATE" : "BEGIN");
}

static semel_effect pg_fn(void *arg, struct pg_conn *conn, semel_reply *rep)
{
        struct tx_db *db = arg;
        (void)conn;
        return db->fn(db->arg, db, rep);
}

static semel_effect lite_fn(void *arg, struct sqlite3 *lite, semel_reply *rep)
{
        struct tx_db *db = arg;
        (void)lite;
        return db->fn(db->arg, db, rep);
}

semel_outcome tx_db_run(struct tx_db *db, const semel_command *cmd, tx_fn fn, void *arg,
                        semel_reply **ret_reply, semel_error *err)
{
        db->fn = fn;
        db->arg = arg;
        if (db->lite)
                return semel_sqlite_run(db->lite, cmd, lite_fn, db, ret_reply, err);
        return semel_pg_run(db->pg, cmd, pg_fn, db, ret_reply, err);
}

semel_code tx_db_append(struct tx_db *db, const semel_event *ev, char *ret_event_id,
                        semel_error *err)
{
        if (db->lite)
                return semel_sqlite_outbox_append(db->lite, ev, ret_event_id, err);
        return semel_pg_outbox_append(db->pg, ev, ret_event_id, err);
}
