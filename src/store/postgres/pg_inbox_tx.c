/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_inbox_tx: is this event new?  In the caller's own transaction, on the caller's connection.
 *
 * One round trip: savepoint, limits, insert, limits back, release.  Another transaction that holds
 * the same event is waited for where the unique index makes the insert wait, for a bounded time, as
 * semel_pg_run() does (rule B8).
 */
#include <libpq-fe.h>

#include <stdio.h>

#include "core/inbox_plan.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_inbox.h"
#include "store/postgres/pg_params.h"
#include "store/postgres/pg_tx_statement.h"
#include "store/postgres/postgres_store.h"

#define SAVEPOINT "semel_tx"
#define FIRST_WAIT_MS "5000"
#define FIRST_STATEMENT_MS "6000"
enum { AT_INSERT = 2 };

static semel_code check(PGconn *pg, const struct inbox_event *event, semel_error *err)
{
        semel_code code = pg_tx_check(pg, err); /* of no connection libpq says that it is bad */
        if (code != SEMEL_OK)
                return code;
        const struct span names[] = {event->consumer, event->source, event->id};
        for (size_t i = 0; i < 3; i++)
                if (inbox_id_fault(names[i].p, names[i].n))
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "consumer, source and event id are 1 to 255 bytes of UTF-8");
        return SEMEL_OK;
}

static bool send(PGconn *pg, const struct inbox_event *event, const char *sql, struct params *p)
{
        pg_params_clear(p, 4);
        /* Bytes: the server would take text for what the caller's connection speaks. */
        pg_params_maybe(p, 0, PG_BYTEA, event->consumer, false);
        pg_params_maybe(p, 1, PG_BYTEA, event->source, false);
        pg_params_maybe(p, 2, PG_BYTEA, event->id, false);
        pg_params_maybe(p, 3, PG_BYTEA, span_of(event->hash, sizeof event->hash), !event->has_hash);
        return pg_params_finish(p) == BUF_OK &&
               PQsendQueryParams(pg, sql, p->n, p->types, p->values, p->lengths, p->formats, 1);
}

static bool send_limits(PGconn *pg)
{
        const char *const values[] = {FIRST_WAIT_MS, FIRST_STATEMENT_MS};
        const Oid types[] = {PG_TEXT, PG_TEXT};
        return PQsendQueryParams(pg, sql_postgres_tx_limits, 2, types, values, NULL, NULL, 0) == 1;
}

static bool send_plain(PGconn *pg, const char *sql)
{
        return PQsendQueryParams(pg, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

/* Everything up to the Sync: the insert's row count, and the first error. */
static PGresult *collect(PGconn *pg, bool *ret_first)
{
        PGresult *error = NULL;
        for (int at = 0;;) {
                PGresult *res = PQgetResult(pg);
                ExecStatusType status = PQresultStatus(res);
                if (!res && PQstatus(pg) != CONNECTION_OK)
                        return error;
                if (!res) {
                        at++;
                        continue;
                }
                if (at == AT_INSERT && status == PGRES_COMMAND_OK)
                        *ret_first = PQcmdTuples(res)[0] == '1';
                if (status == PGRES_FATAL_ERROR && !error)
                        error = res;
                else
                        PQclear(res);
                if (status == PGRES_PIPELINE_SYNC)
                        return error;
        }
}

/* An error before which the savepoint stood: back to it, unless only a new transaction helps. */
static semel_code failed(PGconn *pg, const PGresult *error, semel_error *err)
{
        semel_code code = pg_error_from_result(err, error);
        const char *sqlstate = PQresultErrorField(error, PG_DIAG_SQLSTATE);
        if (PQstatus(pg) != CONNECTION_OK)
                return err_set(err, SEMEL_ERR_STORE_DOWN,
                               "the connection broke in the transaction; retry it on a new one");
        if (pg_error_verdict(sqlstate ? sqlstate : "") == PG_VERDICT_AGAIN)
                return code;
        PQclear(PQexec(pg, "ROLLBACK TO SAVEPOINT " SAVEPOINT "; RELEASE SAVEPOINT " SAVEPOINT));
        if (sqlstate && (strcmp(sqlstate, "55P03") == 0 || strcmp(sqlstate, "57014") == 0))
                return err_set(err, SEMEL_ERR_BUSY,
                               "another transaction is at this event and did not end in time: try "
                               "again later");
        return code;
}

semel_code postgres_inbox_first(PGconn *pg, const struct inbox_event *event, bool *ret_first,
                                semel_error *err)
{
        struct params p;
        bool first = false;
        semel_code code = check(pg, event, err);
        if (code != SEMEL_OK)
                return code;
        if (!PQenterPipelineMode(pg))
                return pg_error_from_connection(err, pg);
        pg_params_init(&p);
        bool sent = send_plain(pg, "SAVEPOINT " SAVEPOINT) && send_limits(pg) &&
                    send(pg, event, sql_postgres_inbox_first, &p) &&
                    (!event->has_hash || send(pg, event, sql_postgres_inbox_first_alarm, &p)) &&
                    send_plain(pg, sql_postgres_tx_restore) &&
                    send_plain(pg, "RELEASE SAVEPOINT " SAVEPOINT);
        PGresult *error = PQpipelineSync(pg) ? collect(pg, &first) : NULL;
        pg_params_release(&p);
        if (PQstatus(pg) != CONNECTION_OK || !PQexitPipelineMode(pg))
                code = pg_error_from_connection(err, pg);
        else if (error)
                code = failed(pg, error, err);
        else if (!sent)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        PQclear(error);
        if (code == SEMEL_OK)
                *ret_first = first;
        return code;
}
