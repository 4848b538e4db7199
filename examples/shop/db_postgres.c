/* SPDX-License-Identifier: Apache-2.0
 *
 * db_postgres: the shop's tables on PostgreSQL.
 *
 * Statements are prepared once a connection; a command is one round trip in autocommit.
 */
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <semel/postgres.h>

#include "db.h"

struct pg_db_conn {
        struct db_conn head;
        PGconn *pg;
};

/* One implicit transaction; the lock lets several shops start at once. */
static const char schema[] =
        "SELECT pg_advisory_xact_lock(7305808);"
        "CREATE TABLE IF NOT EXISTS shop_seller ("
        " id uuid PRIMARY KEY, name text NOT NULL,"
        " created_us bigint NOT NULL, updated_us bigint NOT NULL);"
        "CREATE TABLE IF NOT EXISTS shop_product ("
        " id uuid PRIMARY KEY, name text NOT NULL, price_minor_units bigint NOT NULL,"
        " currency char(3) NOT NULL, seller_id uuid NOT NULL REFERENCES shop_seller,"
        " created_us bigint NOT NULL, updated_us bigint NOT NULL);"
        "CREATE INDEX IF NOT EXISTS shop_product_seller ON shop_product (seller_id);"
        "CREATE TABLE IF NOT EXISTS shop_order ("
        " id uuid PRIMARY KEY, customer_id text NOT NULL, total_kopecks bigint NOT NULL,"
        " status text NOT NULL, request_id text,"
        " created_us bigint NOT NULL, updated_us bigint NOT NULL);"
        "CREATE TABLE IF NOT EXISTS shop_idempotency ("
        " key text PRIMARY KEY, request text NOT NULL, response text NOT NULL,"
        " status_code int NOT NULL, created_at timestamptz NOT NULL DEFAULT clock_timestamp())";

static PGconn *pg_of(struct db_conn *conn)
{
        return ((struct pg_db_conn *)conn)->pg;
}

/* The server's sentence without the newline at its end. */
static void pg_why(char *why, const char *text)
{
        snprintf(why, DB_WHY_BYTES, "%s", text);
        why[strcspn(why, "\n")] = '\0';
}

static void pg_silent(void *arg, const char *text)
{
        (void)arg;
        (void)text; /* notices: "relation already exists, skipping" */
}

static PGconn *pg_connect(const char *url, char *why)
{
        const char *const names[] = {"dbname", "connect_timeout", "tcp_user_timeout",
                                     "application_name", NULL};
        const char *const values[] = {url, "2", "5000", "shop", NULL};
        PGconn *pg = PQconnectdbParams(names, values, 1);
        if (PQstatus(pg) != CONNECTION_OK) {
                pg_why(why, PQerrorMessage(pg));
                PQfinish(pg);
                return NULL;
        }
        PQsetNoticeProcessor(pg, pg_silent, NULL);
        return pg;
}

static void db_pg_disconnect(struct db_conn *conn)
{
        PQfinish(pg_of(conn));
        free(conn);
}

/* All statements in one round trip. */
static bool pg_prepare_all(PGconn *pg, char *why)
{
        bool ok = PQenterPipelineMode(pg) == 1;
        for (int i = 0; ok && i < DB_STATEMENTS; i++) {
                char name[16];
                snprintf(name, sizeof name, "s%d", i);
                ok = PQsendPrepare(pg, name, db_statement_sql[i], 0, NULL) == 1;
        }
        ok = ok && PQpipelineSync(pg) == 1;
        for (int i = 0; ok && i < DB_STATEMENTS; i++) {
                PGresult *res = PQgetResult(pg);
                ok = PQresultStatus(res) == PGRES_COMMAND_OK;
                if (!ok)
                        pg_why(why, res ? PQresultErrorMessage(res) : PQerrorMessage(pg));
                PQclear(res);
                PQclear(PQgetResult(pg)); /* NULL: the end of this one */
        }
        if (ok) {
                PQclear(PQgetResult(pg)); /* the sync */
                ok = PQexitPipelineMode(pg) == 1;
        }
        if (!ok && why[0] == '\0')
                pg_why(why, PQerrorMessage(pg));
        return ok;
}

static struct db_conn *db_pg_connect(struct db *db, char *why)
{
        struct pg_db_conn *conn = calloc(1, sizeof *conn);
        why[0] = '\0';
        if (!conn) {
                snprintf(why, DB_WHY_BYTES, "no memory");
                return NULL;
        }
        conn->head.db = db;
        conn->pg = pg_connect(db_url(db), why);
        if (!conn->pg) {
                free(conn);
                return NULL;
        }
        if (!pg_prepare_all(conn->pg, why)) {
                db_pg_disconnect(&conn->head);
                return NULL;
        }
        return &conn->head;
}

static bool db_pg_open(struct db *db, char *why)
{
        PGconn *pg = pg_connect(db_url(db), why);
        PGresult *res;
        bool ok;
        if (!pg)
                return false;
        res = PQexec(pg, schema);
        ok = PQresultStatus(res) == PGRES_COMMAND_OK;
        if (!ok)
                pg_why(why, PQerrorMessage(pg));
        PQclear(res);
        PQfinish(pg);
        return ok;
}

static void db_pg_close(struct db *db)
{
        (void)db;
}

/* An idle connection has nothing to read, unless the server said good-bye. */
static bool db_pg_alive(struct db_conn *conn)
{
        PGconn *pg = pg_of(conn);
        struct pollfd p = {.fd = PQsocket(pg), .events = POLLIN};
        if (PQstatus(pg) != CONNECTION_OK || PQtransactionStatus(pg) != PQTRANS_IDLE)
                return false;
        return poll(&p, 1, 0) == 0 || (PQconsumeInput(pg) && PQstatus(pg) == CONNECTION_OK);
}

/* What a failed statement means.  An ERROR of the server says that it had no effect; a FATAL one
 * or a dead connection says nothing about it. */
static enum db_result pg_failed(struct db_conn *conn, const PGresult *res)
{
        const char *severity = res ? PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED) : NULL;
        const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
        pg_why(conn->why, PQerrorMessage(pg_of(conn)));
        if (!severity || strcmp(severity, "ERROR") != 0 || !state)
                return DB_UNKNOWN;
        return strcmp(state, "23503") == 0 ? DB_REFERENCE : DB_FAILED;
}

static enum db_result db_pg_run(struct db_conn *conn, enum db_statement stmt,
                                const char *const *params, db_row_fn fn, void *arg, int *ret_n)
{
        enum db_result result = DB_OK;
        const char *cells[DB_COLUMNS_MAX];
        char name[16];
        PGresult *res;

        snprintf(name, sizeof name, "s%d", stmt);
        res = PQexecPrepared(pg_of(conn), name, db_statement_params[stmt], params, NULL, NULL, 0);
        if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK) {
                result = pg_failed(conn, res);
                goto out;
        }
        for (int i = 0; fn && i < PQntuples(res); i++) {
                for (int c = 0; c < PQnfields(res) && c < DB_COLUMNS_MAX; c++)
                        cells[c] = PQgetisnull(res, i, c) ? NULL : PQgetvalue(res, i, c);
                fn(arg, cells);
        }
        *ret_n = (int)strtol(PQcmdTuples(res), NULL, 10); /* rows changed, or selected */
out:
        PQclear(res);
        return result;
}

static enum db_result pg_simple(struct db_conn *conn, const char *sql)
{
        PGresult *res = PQexec(pg_of(conn), sql);
        enum db_result result = DB_OK;
        if (PQresultStatus(res) != PGRES_COMMAND_OK)
                result = pg_failed(conn, res);
        else if (strcmp(PQcmdStatus(res), "ROLLBACK") == 0 && sql[0] == 'C') {
                snprintf(conn->why, sizeof conn->why, "the transaction had failed");
                result = DB_FAILED; /* COMMIT of a failed transaction */
        }
        PQclear(res);
        return result;
}

/* semel's statements by name, too: sent once a connection, remembered there by semel. */
static enum db_result semel_prepare(struct db_conn *conn)
{
        semel_error *err = semel_error_new();
        semel_code code = semel_pg_prepare(pg_of(conn), err);
        snprintf(conn->why, sizeof conn->why, "%s", semel_error_text(err));
        semel_error_free(err);
        return code == SEMEL_OK ? DB_OK : DB_FAILED;
}

static enum db_result pg_begin(struct db_conn *conn, int64_t wait_ms)
{
        (void)wait_ms; /* waiting is done by semel_pg_run(), for the key alone */
        if (semel_prepare(conn) != DB_OK)
                return DB_FAILED;
        return pg_simple(conn, "BEGIN ISOLATION LEVEL READ COMMITTED");
}

static enum db_result db_pg_begin(struct db_conn *conn, int64_t wait_ms)
{
        enum db_result result = pg_begin(conn, wait_ms);
        conn->in_transaction = result == DB_OK;
        return result;
}

static enum db_result db_pg_commit(struct db_conn *conn)
{
        conn->in_transaction = false;
        return pg_simple(conn, "COMMIT");
}

static void db_pg_rollback(struct db_conn *conn)
{
        conn->in_transaction = false;
        pg_simple(conn, "ROLLBACK");
}

struct pg_call {
        struct db_conn *conn;
        db_command_fn fn;
        void *arg;
};

static semel_effect pg_call_command(void *arg, struct pg_conn *pg, semel_reply *reply)
{
        struct pg_call *call = arg;
        (void)pg; /* the connection in call->conn */
        return call->fn(call->arg, call->conn, reply);
}

static semel_outcome db_pg_run_once(struct db_conn *conn, const semel_command *cmd,
                                    db_command_fn fn, void *arg, semel_reply **ret_reply,
                                    semel_error *err)
{
        struct pg_call call = {conn, fn, arg};
        return semel_pg_run(pg_of(conn), cmd, pg_call_command, &call, ret_reply, err);
}

static enum db_result db_pg_append(struct db_conn *conn, const semel_event *ev, semel_error *err)
{
        return semel_pg_outbox_append(pg_of(conn), ev, NULL, err) == SEMEL_OK ? DB_OK : DB_FAILED;
}

const struct db_driver db_postgres = {
        .conns_max = 64,
        .open = db_pg_open,
        .close = db_pg_close,
        .connect = db_pg_connect,
        .disconnect = db_pg_disconnect,
        .alive = db_pg_alive,
        .run = db_pg_run,
        .begin = db_pg_begin,
        .commit = db_pg_commit,
        .rollback = db_pg_rollback,
        .run_once = db_pg_run_once,
        .append = db_pg_append,
};
