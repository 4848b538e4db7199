/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_tx: a command inside the caller's transaction (rule B8).
 *
 * Two round trips around the command: the claim (savepoint, limits, insert, limits back) and the
 * completion (update, release), each one pipeline.  A running duplicate is waited for where the
 * unique index makes the insert wait, and nowhere else: until the other transaction ends, its
 * row is invisible.  The caller's settings, search path, encoding and time zone are not
 * touched and do not matter; what the caller's isolation level makes of it is passed on.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres/pg_error.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"
#include "store/postgres/pg_tx_statement.h"
#include "store/postgres/postgres_store.h"

#define SAVEPOINT "semel_tx"
/* The least wait for a lock: the server's own short locks, such as the one for growing a table,
 * count too and must not look like a running duplicate.  (0 would mean no limit at all.) */
#define TX_WAIT_MIN_US (25 * MS)
#define TX_WORK_US (150 * MS) /* what a statement may take besides waiting */
#define TX_POLL_US (20 * MS) /* a row that somebody else holds, committed: rare here */

struct pg_tx {
        bool savepoint; /* set, and not released yet */
        struct params params;
        struct params limits;
        struct store_op op; /* the claim, for the statements that the store has anyway */
        struct batch batch; /* it alone */
};

static semel_code tx_state(semel_error *err, const char *what)
{
        return err_set(err, SEMEL_ERR_TX_STATE, "%s", what);
}

static semel_code broke(semel_error *err)
{
        return err_set(err, SEMEL_ERR_STORE_DOWN,
                       "the connection broke in the transaction; retry it on a new one");
}

/* -- pipelines -------------------------------------------------------------------------------- */

/* What the server said to one pipeline: the result of statement `keep`, and the first error. */
struct said {
        PGresult *res;
        PGresult *error;
};

static void said_release(struct said *said)
{
        PQclear(said->res);
        PQclear(said->error);
        *said = (struct said){0};
}

/* Read everything up to the Sync, keep the result of statement `keep` (from 0). */
static void collect(PGconn *pg, int keep, struct said *said)
{
        int at = 0;
        for (;;) {
                PGresult *res = PQgetResult(pg);
                ExecStatusType status = PQresultStatus(res);
                if (!res && PQstatus(pg) != CONNECTION_OK)
                        return;
                if (!res) {
                        at++;
                } else if (status == PGRES_PIPELINE_SYNC) {
                        PQclear(res);
                        return;
                } else if (status == PGRES_FATAL_ERROR && !said->error) {
                        said->error = res;
                } else if (status != PGRES_FATAL_ERROR && at == keep && !said->res) {
                        said->res = res;
                } else {
                        PQclear(res);
                }
        }
}

/* Sent as far as it could be; take the answers and leave pipeline mode. */
static semel_code finish(PGconn *pg, bool sent, int keep, struct said *said, semel_error *err)
{
        if (sent && PQpipelineSync(pg))
                collect(pg, keep, said);
        if (PQstatus(pg) != CONNECTION_OK || !PQexitPipelineMode(pg))
                return pg_error_from_connection(err, pg);
        if (!sent)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        return said->error ? pg_error_from_result(err, said->error) : SEMEL_OK;
}

static bool send_limits(PGconn *pg, struct params *p, int64_t left_us)
{
        char lock_ms[24], statement_ms[24];
        if (left_us < TX_WAIT_MIN_US)
                left_us = TX_WAIT_MIN_US;
        (void)snprintf(lock_ms, sizeof lock_ms, "%lld", (long long)(left_us / MS));
        (void)snprintf(statement_ms, sizeof statement_ms, "%lld",
                       (long long)((left_us + TX_WORK_US) / MS));
        pg_params_clear(p, 2);
        pg_params_text(p, 0, span_str(lock_ms));
        pg_params_text(p, 1, span_str(statement_ms));
        return pg_params_finish(p) == BUF_OK && pg_tx_send(pg, TX_LIMITS, p);
}

/* One of the statements on the claim, with t->params, for at most left_us. */
static semel_code ask(struct store_tx *tx, enum tx_statement stmt, int64_t left_us,
                      struct said *said, semel_error *err)
{
        PGconn *pg = tx->conn;
        struct pg_tx *t = tx->driver;
        bool first = !t->savepoint;
        *said = (struct said){0};
        if (pg_params_finish(&t->params) != BUF_OK)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        if (!PQenterPipelineMode(pg))
                return pg_error_from_connection(err, pg);
        bool sent = (!first || pg_tx_send(pg, TX_SAVEPOINT, NULL)) &&
                    send_limits(pg, &t->limits, left_us) && pg_tx_send(pg, stmt, &t->params) &&
                    pg_tx_send(pg, TX_RESTORE, NULL);
        semel_code code = finish(pg, sent, first ? 2 : 1, said, err);
        /* In a transaction that was fine the savepoint comes first and does not fail. */
        t->savepoint = PQstatus(pg) == CONNECTION_OK;
        return code;
}

/* Back to the savepoint, which is gone then; what was set since it is as before. */
static semel_code go_back(struct store_tx *tx, semel_error *err)
{
        PGconn *pg = tx->conn;
        struct pg_tx *t = tx->driver;
        PGresult *res = PQexec(pg, "ROLLBACK TO SAVEPOINT " SAVEPOINT
                                   "; RELEASE SAVEPOINT " SAVEPOINT);
        semel_code code = SEMEL_OK;
        if (PQresultStatus(res) != PGRES_COMMAND_OK)
                code = pg_error_from_result(err, res);
        t->savepoint = false;
        PQclear(res);
        return code;
}

/* -- the steps -------------------------------------------------------------------------------- */

static semel_code pg_tx_begin(struct store_tx *tx, semel_error *err)
{
        PGconn *pg = tx->conn;
        semel_code code = pg_tx_check(pg, err);
        if (code != SEMEL_OK)
                return code;
        struct pg_tx *t = calloc(1, sizeof *t);
        if (!t)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a transaction");
        pg_params_init(&t->params);
        pg_params_init(&t->limits);
        tx->driver = t;
        return SEMEL_OK; /* the savepoint travels with the claim */
}

/* Until a look finds out more.  Never RUN: only a row that was inserted or taken is the caller's. */
static struct command_answer held(void)
{
        return (struct command_answer){.outcome = COMMAND_BUSY, .lease_left_us = PG_HELD_KEY_US};
}

/* A statement of the claim failed.  A wait that was long enough is an answer; otherwise err, and
 * a transaction that can go on is as before. */
static semel_code claim_failed(struct store_tx *tx, const struct said *said, bool time_over,
                               struct command_answer *ret_answer, semel_error *err)
{
        PGconn *pg = tx->conn;
        if (PQstatus(pg) != CONNECTION_OK || PQtransactionStatus(pg) != PQTRANS_INERROR ||
            !said->error)
                return broke(err);
        const char *sqlstate = PQresultErrorField(said->error, PG_DIAG_SQLSTATE);
        semel_code code = pg_error_from_result(err, said->error);
        if (pg_error_verdict(sqlstate) == PG_VERDICT_AGAIN || code == SEMEL_ERR_TX_STATE)
                return code; /* only a new transaction helps: it stays failed */
        if (strcmp(sqlstate, "26000") == 0) { /* somebody deallocated our names */
                pg_tx_forget(pg);
                return err_set(err, SEMEL_ERR_CONFLICT,
                               "the prepared statements of semel_pg_prepare() are gone from the "
                               "connection; roll back and retry the transaction");
        }
        bool waited = strcmp(sqlstate, "55P03") == 0 ||
                      (strcmp(sqlstate, "57014") == 0 && time_over);
        if (go_back(tx, waited ? err : NULL) != SEMEL_OK)
                return waited ? pg_error_code(sqlstate) : code;
        if (!waited)
                return code;
        err_clear(err);
        *ret_answer = held();
        return SEMEL_OK;
}

static bool inserted(const struct pg_tx *t, const PGresult *res, struct command_answer *ret_answer,
                     struct store_record *ret_rec)
{
        if (PQntuples(res) == 0)
                return false;
        int64_t created_us = pg_result_time_us(res, 0, 3);
        int64_t now_us = pg_result_time_us(res, 0, 4);
        const struct command_now then = {.lease_us = created_us, .wall_us = created_us};
        *ret_answer = command_claim(&ret_rec->row, false, &t->op.in.claim.claim, then);
        ret_rec->row.token = ret_answer->token = pg_result_int(res, 0, 2);
        ret_answer->lease_left_us = ret_rec->row.lease_until_us - now_us;
        return true;
}

enum next {
        NEXT_ANSWER,
        NEXT_TAKE,
        NEXT_WAIT,  /* somebody holds it */
        NEXT_AGAIN, /* somebody was faster: it is not as it was read, or gone */
};

/* The row was read into ret_rec, or is not there. */
static enum next decide(const struct pg_tx *t, bool exists, bool time_over,
                        struct command_answer *ret_answer, const struct store_record *ret_rec)
{
        if (!exists) {
                *ret_answer = held();
                return NEXT_AGAIN;
        }
        struct command_row row = ret_rec->row;
        *ret_answer = command_claim(&row, true, &t->op.in.claim.claim, ret_rec->now);
        if (ret_answer->changed)
                return NEXT_TAKE;
        return ret_answer->outcome == COMMAND_BUSY && !time_over ? NEXT_WAIT : NEXT_ANSWER;
}

static void build_claim(struct params *p, const struct command_claim *claim,
                        const struct store_label *label)
{
        pg_claim_params_begin(p, pg_params_scalar);
        pg_claim_params_add(p, claim, label);
}

/* Insert, else look, else take: once around.  *ret_next says whether there is an answer. */
static semel_code claim_once(struct store_tx *tx, int64_t until_us, struct said *said,
                             struct command_answer *ret_answer, struct store_record *ret_rec,
                             enum next *ret_next, semel_error *err)
{
        struct pg_tx *t = tx->driver;
        *ret_next = NEXT_ANSWER;
        build_claim(&t->params, &t->op.in.claim.claim, &t->op.in.claim.label);
        semel_code code = ask(tx, TX_CLAIM, until_us - clock_boot_us(), said, err);
        if (code != SEMEL_OK || inserted(t, said->res, ret_answer, ret_rec))
                return code;

        said_release(said);
        t->batch.whole_bodies = true;
        pg_lane_read.build(&t->batch, &t->params);
        code = ask(tx, TX_READ, until_us - clock_boot_us(), said, err);
        bool exists = code == SEMEL_OK && PQntuples(said->res) > 0;
        if (exists)
                code = pg_row_decode(said->res, 0, ROW_LABEL_AND_REPLY, ret_rec, NULL, err);
        if (code != SEMEL_OK)
                return code;
        *ret_next = decide(t, exists, clock_boot_us() >= until_us, ret_answer, ret_rec);
        if (*ret_next != NEXT_TAKE)
                return SEMEL_OK;

        said_release(said);
        t->op.out.claim.rec = *ret_rec; /* borrowed, for the guard */
        pg_lane_take.build(&t->batch, &t->params);
        code = ask(tx, TX_TAKE, until_us - clock_boot_us(), said, err);
        if (code != SEMEL_OK)
                return code;
        *ret_next = NEXT_ANSWER;
        if (PQntuples(said->res) == 0) {
                *ret_answer = held();
                *ret_next = NEXT_AGAIN;
        }
        return SEMEL_OK;
}

static semel_code pg_tx_claim(struct store_tx *tx, const struct command_claim *claim,
                              const struct store_label *label, int64_t wait_us,
                              struct command_answer *ret_answer, struct store_record *ret_rec,
                              semel_error *err)
{
        struct pg_tx *t = tx->driver;
        int64_t until_us = clock_boot_us() + wait_us;
        struct command_answer answer = held();
        enum next next = NEXT_ANSWER;
        semel_code code = SEMEL_OK;
        t->op.kind = STORE_CLAIM;
        t->op.in.claim.claim = *claim;
        t->op.in.claim.label = *label;
        t->batch.n = 1;
        t->batch.ops[0] = &t->op;
        for (bool last = false;;) {
                struct said said = {0};
                code = claim_once(tx, until_us, &said, &answer, ret_rec, &next, err);
                if (code != SEMEL_OK && said.error)
                        code = claim_failed(tx, &said, clock_boot_us() >= until_us, &answer, err);
                said_release(&said);
                bool over = clock_boot_us() >= until_us;
                if (code != SEMEL_OK || next == NEXT_ANSWER || last || (over && next != NEXT_AGAIN))
                        break;
                last = over; /* who was overtaken looks once more, for the reply that is kept now */
                (void)poll(NULL, 0, TX_POLL_US / MS);
        }
        if (code != SEMEL_OK)
                return code;
        if (answer.outcome == COMMAND_REPLAY && !ret_rec->has_reply)
                return err_set(err, SEMEL_ERR_CORRUPT,
                               "a row of semel.command is COMPLETED and has no reply: it was "
                               "changed by hand; delete it or resolve it again (H17)");
        *ret_answer = answer;
        return SEMEL_OK;
}

static void build_complete(struct params *p, const struct command_write *write,
                           const struct store_reply *rep)
{
        static const enum pg_type types[] = {PG_BYTEA, PG_INT8,  PG_BYTEA, PG_INT4,
                                             PG_INT4,  PG_BYTEA, PG_BYTEA};
        enum { N = sizeof types / sizeof *types };
        pg_params_clear(p, N);
        for (int i = 0; i < N; i++)
                pg_params_scalar(p, i, types[i]);
        pg_params_bytea(p, 0, span_of(write->id.b, sizeof write->id.b));
        pg_params_int(p, 1, write->token);
        pg_params_bytea(p, 2, span_of(write->attempt.b, sizeof write->attempt.b));
        pg_params_int(p, 3, rep->status);
        pg_params_int(p, 4, rep->flags);
        pg_params_bytea(p, 5, rep->headers);
        pg_params_bytea(p, 6, rep->body);
}

static semel_code pg_tx_complete(struct store_tx *tx, const struct command_write *write,
                                 const struct store_reply *rep, semel_error *err)
{
        PGconn *pg = tx->conn;
        struct pg_tx *t = tx->driver;
        struct said said = {0};
        if (PQstatus(pg) != CONNECTION_OK)
                return broke(err);
        if (PQtransactionStatus(pg) != PQTRANS_INTRANS || !t->savepoint)
                return tx_state(err, "the command ended or broke the transaction it was given; its "
                                     "reply cannot be kept, roll back");
        if (rep->headers.n > LIMIT_REPLY_HEADERS_BYTES || rep->body.n > LIMIT_REPLY_BODY_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the reply is longer than the limit");
        build_complete(&t->params, write, rep);
        if (pg_params_finish(&t->params) != BUF_OK || !PQenterPipelineMode(pg))
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        bool sent = pg_tx_send(pg, TX_COMPLETE, &t->params) && pg_tx_send(pg, TX_RELEASE, NULL);
        semel_code code = finish(pg, sent, 0, &said, err);
        if (code == SEMEL_OK)
                t->savepoint = false;
        const char *sqlstate =
                said.error ? PQresultErrorField(said.error, PG_DIAG_SQLSTATE) : NULL;
        if (sqlstate && strcmp(sqlstate, "22012") == 0)
                code = err_set(err, SEMEL_ERR_LOST,
                               "the key's row is no longer as this transaction claimed it: the "
                               "command changed or deleted it");
        said_release(&said);
        return code;
}

static semel_code pg_tx_undo(struct store_tx *tx, semel_error *err)
{
        PGTransactionStatusType status = PQtransactionStatus(tx->conn);
        struct pg_tx *t = tx->driver;
        if (PQstatus(tx->conn) != CONNECTION_OK)
                return broke(err);
        if (!t->savepoint || (status != PQTRANS_INTRANS && status != PQTRANS_INERROR))
                return tx_state(err, "the command ended the transaction it was given");
        return go_back(tx, err);
}

static void pg_tx_end(struct store_tx *tx)
{
        struct pg_tx *t = tx->driver;
        if (t->savepoint && PQtransactionStatus(tx->conn) == PQTRANS_INTRANS)
                PQclear(PQexec(tx->conn, "RELEASE SAVEPOINT " SAVEPOINT));
        pg_params_release(&t->params);
        pg_params_release(&t->limits);
        free(t);
        tx->driver = NULL;
}

const struct store_tx_vt store_postgres_tx = {
        .begin = pg_tx_begin,
        .claim = pg_tx_claim,
        .complete = pg_tx_complete,
        .undo = pg_tx_undo,
        .end = pg_tx_end,
};
