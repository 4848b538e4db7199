/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_tx_statement: see pg_tx_statement.h.
 */
#include "store/postgres/pg_tx_statement.h"

#include <libpq-events.h>

#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/postgres_store.h"

static const struct {
        const char *name;
        const char *sql;
} statements[TX_STATEMENTS] = {
        [TX_SAVEPOINT] = {"semel_tx_savepoint", "SAVEPOINT semel_tx"},
        [TX_LIMITS] = {"semel_tx_limits", sql_postgres_tx_limits},
        [TX_CLAIM] = {"semel_tx_claim", sql_postgres_tx_claim},
        [TX_RESTORE] = {"semel_tx_restore", sql_postgres_tx_restore},
        [TX_READ] = {"semel_tx_read", sql_postgres_select_rows},
        [TX_TAKE] = {"semel_tx_take", sql_postgres_claim_take},
        [TX_COMPLETE] = {"semel_tx_complete", sql_postgres_tx_complete},
        [TX_RELEASE] = {"semel_tx_release", "RELEASE SAVEPOINT semel_tx"},
};

/* Its address is the key of the mark at the PGconn. */
static int on_event(PGEventId event, void *info, void *arg)
{
        (void)arg;
        if (event == PGEVT_CONNRESET) /* a new session knows no names */
                (void)PQsetInstanceData(((PGEventConnReset *)info)->conn, on_event, NULL);
        return 1;
}

static bool is_prepared(const PGconn *pg)
{
        return PQinstanceData(pg, on_event) != NULL;
}

void pg_tx_forget(PGconn *pg)
{
        (void)PQsetInstanceData(pg, on_event, NULL);
}

semel_code pg_tx_check(PGconn *pg, semel_error *err)
{
        if (PQstatus(pg) != CONNECTION_OK)
                return err_set(err, SEMEL_ERR_STORE_DOWN, "the connection is not open");
        if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF || PQisnonblocking(pg))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "the connection is in pipeline or non-blocking mode; semel needs it "
                               "plain");
        switch (PQtransactionStatus(pg)) {
        case PQTRANS_INTRANS:
                return SEMEL_OK;
        case PQTRANS_IDLE:
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "no transaction is open on the connection; send BEGIN first");
        case PQTRANS_INERROR:
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "the transaction has failed already; roll back and retry it");
        default:
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "a statement is still running on the connection; finish it");
        }
}

bool pg_tx_send(PGconn *pg, enum tx_statement stmt, const struct params *p)
{
        if (is_prepared(pg))
                return PQsendQueryPrepared(pg, statements[stmt].name, p ? p->n : 0,
                                           p ? p->values : NULL, p ? p->lengths : NULL,
                                           p ? p->formats : NULL, 1) == 1;
        return PQsendQueryParams(pg, statements[stmt].sql, p ? p->n : 0, p ? p->types : NULL,
                                 p ? p->values : NULL, p ? p->lengths : NULL,
                                 p ? p->formats : NULL, 1) == 1;
}

/* Every answer up to the Sync.   The first refusal stays in *ret_error. */
static void collect(PGconn *pg, PGresult **ret_error)
{
        for (;;) {
                PGresult *res = PQgetResult(pg);
                ExecStatusType status = PQresultStatus(res);
                if (!res && PQstatus(pg) != CONNECTION_OK)
                        return;
                if (status == PGRES_FATAL_ERROR && !*ret_error)
                        *ret_error = res;
                else
                        PQclear(res);
                if (status == PGRES_PIPELINE_SYNC)
                        return;
        }
}

semel_code postgres_store_prepare(PGconn *pg, semel_error *err)
{
        PGresult *error = NULL;
        semel_code code = SEMEL_OK;
        if (PQstatus(pg) != CONNECTION_OK)
                return err_set(err, SEMEL_ERR_STORE_DOWN, "the connection is not open");
        if (PQtransactionStatus(pg) != PQTRANS_IDLE || PQpipelineStatus(pg) != PQ_PIPELINE_OFF ||
            PQisnonblocking(pg))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "statements are prepared outside a transaction, on a connection in "
                               "plain blocking mode");
        if (is_prepared(pg))
                return SEMEL_OK;
        (void)PQregisterEventProc(pg, on_event, "semel", NULL); /* false: registered before */
        if (!PQenterPipelineMode(pg))
                return pg_error_from_connection(err, pg);
        for (int i = 0; i < TX_STATEMENTS && code == SEMEL_OK; i++)
                if (!PQsendPrepare(pg, statements[i].name, statements[i].sql, 0, NULL))
                        code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        if (PQpipelineSync(pg))
                collect(pg, &error);
        if (PQstatus(pg) != CONNECTION_OK || !PQexitPipelineMode(pg))
                code = pg_error_from_connection(err, pg);
        else if (error)
                code = pg_error_from_result(err, error);
        else if (code == SEMEL_OK && !PQsetInstanceData(pg, on_event, (void *)statements))
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a connection's mark");
        PQclear(error);
        return code;
}
