/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_inbox_session: a connection of the inbox: opened, waited for with a deadline, cancelled.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_inbox.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/postgres_store.h"
#include "sys/clock.h"

/* -- waiting ----------------------------------------------------------------------------------- */

/* Wait for the socket; false: the deadline came. */
static bool wait_for(PGconn *pg, short events, int64_t deadline_us)
{
        for (;;) {
                int64_t left_us = deadline_us - clock_boot_us();
                struct pollfd pfd = {.fd = PQsocket(pg), .events = events};
                if (left_us <= 0)
                        return false;
                int rc = poll(&pfd, 1, (int)(left_us / MS < 60000 ? left_us / MS + 1 : 60000));
                if (rc > 0)
                        return true;
                if (rc < 0 && errno != EINTR)
                        return false;
        }
}

PGresult *pg_inbox_result(struct pg_inbox *in, bool *ret_lost)
{
        PGconn *pg = in->pg;
        *ret_lost = false;
        for (;;) {
                int more = PQflush(pg);
                if (more < 0)
                        break;
                if (more == 0 && !PQisBusy(pg))
                        break;
                if (!wait_for(pg, (short)(POLLIN | (more ? POLLOUT : 0)), in->deadline_us)) {
                        in->s.vt->cancel(&in->s); /* what runs there is of no use any more */
                        *ret_lost = true;
                        pg_inbox_drop(in);
                        return NULL;
                }
                if (!PQconsumeInput(pg))
                        break;
        }
        PGresult *res = PQgetResult(pg);
        if (!res && PQstatus(pg) != CONNECTION_OK) {
                *ret_lost = true;
                pg_inbox_drop(in);
        }
        return res;
}

bool pg_inbox_sync(struct pg_inbox *in)
{
        return PQpipelineSync(in->pg) == 1;
}

bool pg_inbox_send(struct pg_inbox *in, const char *sql, bool with_params)
{
        struct params *p = with_params ? &in->params : NULL;
        if (p && pg_params_finish(p) != BUF_OK)
                return false;
        return PQsendQueryParams(in->pg, sql, p ? p->n : 0, p ? p->types : NULL,
                                 p ? p->values : NULL, p ? p->lengths : NULL,
                                 p ? p->formats : NULL, 1) == 1;
}

/* -- life ---------------------------------------------------------------------------------------- */

void pg_inbox_drop(struct pg_inbox *in)
{
        (void)pthread_mutex_lock(&in->mu);
        PQfreeCancel(in->cancel);
        in->cancel = NULL;
        PQfinish(in->pg);
        in->pg = NULL;
        in->prepared = NULL;
        in->used = in->stale = false;
        (void)pthread_mutex_unlock(&in->mu);
}

static semel_code lost(semel_error *err)
{
        return err_set(err, SEMEL_ERR_STORE_DOWN,
                       "the connection to the database broke, or no answer came in time");
}

/* One statement with in->params, if any, to its result. */
static PGresult *ask(struct pg_inbox *in, const char *sql, bool with_params, semel_error *err)
{
        bool gone = false;
        PGresult *kept = NULL;
        if (!pg_inbox_send(in, sql, with_params)) {
                (void)pg_error_from_connection(err, in->pg);
                pg_inbox_drop(in);
                return NULL;
        }
        for (;;) {
                PGresult *res = pg_inbox_result(in, &gone);
                if (!res)
                        break;
                PQclear(kept);
                kept = res;
        }
        ExecStatusType status = PQresultStatus(kept);
        if (kept && (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) && !gone)
                return kept;
        if (kept)
                (void)pg_error_from_result(err, kept);
        else
                (void)lost(err);
        PQclear(kept);
        if (in->pg && PQstatus(in->pg) != CONNECTION_OK)
                pg_inbox_drop(in);
        return NULL;
}

static semel_code check_server(struct pg_inbox *in, semel_error *err)
{
        PGresult *res = ask(in, sql_postgres_link_check, false, err);
        if (!res)
                return inbox_code_of(err);
        semel_code code = pg_server_check(in->pg, &in->config, res, &in->direct, err);
        PQclear(res);
        if (code != SEMEL_OK)
                return code;
        res = ask(in, sql_postgres_select_version, false, err);
        if (!res)
                return inbox_code_of(err);
        code = pg_schema_check(pg_result_int(res, 0, 0), err);
        PQclear(res);
        return code;
}

static semel_code open_connection(struct pg_inbox *in, semel_error *err)
{
        int64_t until_us = clock_boot_us() + INBOX_CONNECT_US;
        if (until_us > in->deadline_us)
                until_us = in->deadline_us;
        PGconn *pg = PQconnectStartParams((const char *const *)in->config.keywords,
                                          (const char *const *)in->config.values, 0);
        if (!pg)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a connection");
        (void)PQsetErrorVerbosity(pg, PQERRORS_VERBOSE); /* for the SQLSTATE */
        (void)PQsetNoticeReceiver(pg, pg_ignore_notice, NULL);
        PostgresPollingStatusType next = PGRES_POLLING_WRITING;
        while (PQstatus(pg) != CONNECTION_BAD && next != PGRES_POLLING_OK &&
               next != PGRES_POLLING_FAILED) {
                if (!wait_for(pg, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_us)) {
                        PQfinish(pg);
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "the database did not answer in time; start it or check "
                                       "the URL");
                }
                next = PQconnectPoll(pg);
        }
        if (PQstatus(pg) != CONNECTION_OK || PQsetnonblocking(pg, 1) != 0) {
                semel_code code = pg_error_from_connection(err, pg);
                PQfinish(pg);
                return code;
        }
        (void)pthread_mutex_lock(&in->mu);
        in->pg = pg;
        in->cancel = PQgetCancel(pg);
        (void)pthread_mutex_unlock(&in->mu);
        return SEMEL_OK;
}

semel_code pg_inbox_connect(struct pg_inbox *in, int64_t deadline_us, semel_error *err)
{
        semel_error local = {0};
        in->deadline_us = deadline_us;
        in->cancelled = false;
        if (in->pg && PQstatus(in->pg) == CONNECTION_OK) {
                /* A server that went away while nothing ran has said so already. */
                struct pollfd pfd = {.fd = PQsocket(in->pg), .events = POLLIN};
                if (poll(&pfd, 1, 0) > 0 && !PQconsumeInput(in->pg))
                        pg_inbox_drop(in);
                else if (PQstatus(in->pg) == CONNECTION_OK)
                        return SEMEL_OK;
        }
        pg_inbox_drop(in);
        semel_code code = open_connection(in, &local);
        if (code == SEMEL_OK)
                code = check_server(in, &local);
        if (code != SEMEL_OK) {
                pg_inbox_drop(in);
                (void)err_copy(err, &local);
        }
        return code;
}

PGresult *pg_inbox_ask(struct pg_inbox *in, const char *sql, int64_t deadline_us, semel_error *err)
{
        struct inbox_result ret = {.end = INBOX_DONE};
        PGresult *res = NULL;
        if (pg_inbox_connect(in, deadline_us, &ret.err) != SEMEL_OK) {
                (void)err_copy(err, &ret.err);
                return NULL;
        }
        /* A pipeline is one transaction, so the setting is this statement's alone, also through a pooler. */
        bool sent = PQenterPipelineMode(in->pg) && pg_inbox_send(in, sql_postgres_inbox_durable, false) &&
                    pg_inbox_send(in, sql, in->params.n > 0) && pg_inbox_sync(in);
        if (sent)
                (void)pg_inbox_collect(in, 1, &res, &ret);
        else
                (void)pg_error_from_connection(&ret.err, in->pg);
        if (in->pg && (!sent || in->stale || PQstatus(in->pg) != CONNECTION_OK))
                pg_inbox_drop(in);
        if (sent && ret.end == INBOX_DONE)
                return res;
        (void)err_copy(err, &ret.err);
        PQclear(res);
        return NULL;
}

void pg_inbox_rollback(struct pg_inbox *in)
{
        semel_error ignored = {0};
        if (!in->pg)
                return;
        if (in->stale ||
            (PQpipelineStatus(in->pg) != PQ_PIPELINE_OFF && !PQexitPipelineMode(in->pg))) {
                pg_inbox_drop(in);
                return;
        }
        if (PQtransactionStatus(in->pg) == PQTRANS_IDLE)
                return;
        int64_t soon_us = clock_boot_us() + 2 * SECOND;
        if (in->deadline_us < soon_us)
                in->deadline_us = soon_us;
        PGresult *res = ask(in, "ROLLBACK", false, &ignored);
        if (!res)
                pg_inbox_drop(in);
        PQclear(res);
}

static void pg_inbox_cancel(struct inbox_session *s)
{
        struct pg_inbox *in = pg_inbox_of(s);
        char why[256];
        (void)pthread_mutex_lock(&in->mu);
        in->cancelled = true;
        if (in->cancel)
                (void)PQcancel(in->cancel, why, sizeof why);
        (void)pthread_mutex_unlock(&in->mu);
}

static void pg_inbox_close(struct inbox_session *s)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_inbox_drop(in);
        pg_params_release(&in->params);
        buf_release(&in->jsonb);
        pg_config_release(&in->config);
        (void)pthread_mutex_destroy(&in->mu);
        free(in->order);
        free(in->first);
        free(in);
}

static const struct inbox_vt pg_inbox_vt = {
        .name = "postgres",
        .check = pg_inbox_check,
        .counted = pg_inbox_counted,
        .count = pg_inbox_count,
        .count_back = pg_inbox_count_back,
        .seen = pg_inbox_seen,
        .apply = pg_inbox_apply,
        .bury = pg_inbox_bury,
        .take = pg_inbox_take,
        .retry_one = pg_inbox_retry_one,
        .untake = pg_inbox_untake,
        .prune = pg_inbox_prune,
        .status = pg_inbox_status,
        .list = pg_inbox_list,
        .decide = pg_inbox_decide,
        .cancel = pg_inbox_cancel,
        .close = pg_inbox_close,
};

semel_code postgres_inbox_open(const char *url, struct inbox_session **ret, semel_error *err)
{
        struct pg_inbox *in = calloc(1, sizeof *in);
        if (!in)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a session");
        in->s.vt = &pg_inbox_vt;
        (void)pthread_mutex_init(&in->mu, NULL);
        pg_params_init(&in->params);
        /* As much as a worker may hand over (it grows with what it has to hold). */
        buf_init(&in->jsonb, (size_t)LIMIT_EVENT_HEADERS_BYTES * 8 * LIMIT_INBOX_BATCH_ROWS);
        semel_code code = pg_config_parse(url, &in->config, err);
        in->order = calloc(LIMIT_INBOX_BATCH_ROWS, sizeof *in->order);
        in->first = calloc(LIMIT_INBOX_BATCH_ROWS, sizeof *in->first);
        if (code == SEMEL_OK && (!in->order || !in->first))
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a session");
        if (code != SEMEL_OK) {
                pg_inbox_close(&in->s);
                return code;
        }
        *ret = &in->s;
        return SEMEL_OK;
}
