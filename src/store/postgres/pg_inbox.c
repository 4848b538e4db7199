/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_inbox: a batch of events in one transaction (rules D1 to D4).
 *
 *     BEGIN, settings, record the ids | the handler for each that is new, COMMIT
 *
 * The ids are recorded by one statement in the order of their bytes, so that two consumers that meet
 * on the same ids wait for each other instead of deadlocking.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/inbox_plan.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_inbox.h"
#include "store/postgres/pg_row.h"
#include "sys/clock.h"

enum { JSONB_OID = 3802, HANDLER_PARAMS = 5 };
#define HANDLER_NAME "semel_inbox_handler"

static const Oid handler_types[2][HANDLER_PARAMS] = {
        {PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, JSONB_OID},
        {PG_TEXT, PG_BYTEA, PG_TEXT, PG_TEXT, JSONB_OID},
};

/* -- what an error means ---------------------------------------------------------------------- */

enum inbox_end pg_inbox_end_of_ours(const char *sqlstate, semel_code code)
{
        if (inbox_sqlstate_is_goodbye(sqlstate))
                return INBOX_BROKE;
        if (inbox_sqlstate_is_transient(sqlstate) || strcmp(sqlstate, "57014") == 0)
                return INBOX_AGAIN;
        switch (code) {
        case SEMEL_ERR_STORE_DOWN:
        case SEMEL_ERR_STORE_FULL:
        case SEMEL_ERR_STORE_READ_ONLY:
        case SEMEL_ERR_BUSY:
                return INBOX_DOWN;
        default:
                return INBOX_STOP;
        }
}

enum inbox_end pg_inbox_end_of_handler(const struct pg_inbox *in, const char *sqlstate)
{
        if (inbox_sqlstate_is_goodbye(sqlstate))
                return INBOX_BROKE;
        if (inbox_sqlstate_is_transient(sqlstate))
                return INBOX_AGAIN;
        if (in->stale && in->used) /* on a new connection it is the handler's own, lest it be tried for ever */
                return INBOX_AGAIN;
        if (strncmp(sqlstate, "53", 2) == 0 || strcmp(sqlstate, "25006") == 0)
                return INBOX_DOWN;
        return in->cancelled ? INBOX_AGAIN : INBOX_FAILED; /* AGAIN: we ended it ourselves */
}

static bool result_says(const PGresult *res, int field, const char *text)
{
        const char *said = PQresultErrorField(res, field);
        return said && strcmp(said, text) == 0;
}

/* Is it about a statement as this connection has it, and not about the event?  Its result has another type
 * than when it was prepared (any other 0A000 is the handler's own), or its name is gone, or taken. */
static bool says_stale(const PGresult *res)
{
        return result_says(res, PG_DIAG_SQLSTATE, "26000") ||
               result_says(res, PG_DIAG_SQLSTATE, "42P05") ||
               (result_says(res, PG_DIAG_SQLSTATE, "0A000") &&
                result_says(res, PG_DIAG_SOURCE_FUNCTION, "RevalidateCachedQuery"));
}

static void result_lost(struct inbox_result *ret)
{
        ret->end = INBOX_BROKE;
        (void)err_set(&ret->err, SEMEL_ERR_STORE_DOWN,
                      "the connection to the database broke, or no answer came in time");
}

size_t pg_inbox_collect(struct pg_inbox *in, size_t keep, PGresult **ret_kept,
                        struct inbox_result *ret)
{
        size_t at = 0, good = 0;
        bool failed = false;
        PGresult *kept = NULL;
        for (;;) {
                bool gone;
                PGresult *res = pg_inbox_result(in, &gone);
                ExecStatusType status = PQresultStatus(res);
                if (gone) {
                        if (!failed) /* a server that ends a session says why, then hangs up */
                                result_lost(ret);
                        else
                                ret->end = INBOX_BROKE;
                        break;
                }
                if (!res) {
                        at++;
                        good += !failed;
                        continue;
                }
                if (status == PGRES_PIPELINE_SYNC) {
                        PQclear(res);
                        break;
                }
                if (status == PGRES_FATAL_ERROR && !failed) {
                        (void)pg_error_from_result(&ret->err, res);
                        in->stale = says_stale(res);
                        failed = true;
                }
                if (at == keep && !failed && !kept)
                        kept = res;
                else
                        PQclear(res);
        }
        if (ret_kept)
                *ret_kept = kept;
        else
                PQclear(kept);
        if (in->pg && !PQexitPipelineMode(in->pg)) {
                result_lost(ret);
                pg_inbox_drop(in);
        }
        if (!failed && ret->end != INBOX_BROKE)
                ret->end = INBOX_DONE;
        else if (ret->end != INBOX_BROKE)
                ret->end = INBOX_FAILED; /* the caller looks at the SQLSTATE */
        return good;
}

/* -- statements ------------------------------------------------------------------------------- */

bool pg_inbox_send_begin(struct pg_inbox *in, const struct inbox_handler *handler)
{
        struct params *p = &in->params;
        if (!PQsendQueryParams(in->pg, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", 0, NULL,
                               NULL, NULL, NULL, 1))
                return false;
        pg_params_clear(p, 2);
        pg_params_text(p, 0, span_str(INBOX_LOCK_TIMEOUT));
        pg_params_text(p, 1, span_str(handler && handler->fn ? INBOX_IDLE_TIMEOUT_FN
                                                             : INBOX_IDLE_TIMEOUT));
        return pg_inbox_send(in, sql_postgres_inbox_settings, true);
}

static int by_id(const void *a, const void *b, void *arg)
{
        const struct inbox_event *events = arg;
        size_t i = *(const size_t *)a, k = *(const size_t *)b;
        struct span x = events[i].id, y = events[k].id;
        int c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
        if (c == 0)
                c = (x.n > y.n) - (x.n < y.n);
        return c ? c : (i > k) - (i < k); /* of two of one id the earlier one is first */
}

bool pg_inbox_send_record(struct pg_inbox *in, const struct inbox_event *events, size_t n)
{
        struct params *p = &in->params;
        assert(n > 0 && n <= LIMIT_INBOX_BATCH_ROWS);
        for (size_t i = 0; i < n; i++)
                in->order[i] = i;
        qsort_r(in->order, n, sizeof *in->order, by_id, (void *)(uintptr_t)events);
        pg_params_clear(p, 4);
        pg_params_text(p, 0, events[0].consumer);
        pg_params_text(p, 1, events[0].source);
        pg_params_array(p, 2, PG_TEXT);
        pg_params_array(p, 3, PG_BYTEA);
        for (size_t k = 0; k < n; k++) {
                const struct inbox_event *e = &events[in->order[k]];
                pg_params_bytea(p, 2, e->id);
                if (e->has_hash)
                        pg_params_bytea(p, 3, span_of(e->hash, sizeof e->hash));
                else
                        pg_params_null(p, 3);
        }
        return pg_inbox_send(in, sql_postgres_inbox_record, true);
}

void pg_inbox_name_params(struct params *p, const struct inbox_event *event, int n)
{
        pg_params_clear(p, n);
        pg_params_text(p, 0, event->consumer);
        pg_params_text(p, 1, event->source);
        pg_params_text(p, 2, event->id);
}

bool pg_inbox_send_uncount(struct pg_inbox *in, const struct inbox_event *event)
{
        pg_inbox_name_params(&in->params, event, 3);
        return pg_inbox_send(in, sql_postgres_inbox_uncount, true);
}

bool pg_inbox_send_handler(struct pg_inbox *in, const struct inbox_handler *handler,
                           const struct inbox_event *event)
{
        const char *values[HANDLER_PARAMS];
        int lengths[HANDLER_PARAMS], formats[HANDLER_PARAMS] = {1, 1, 1, 1, 1};
        struct span headers = event->headers.n ? event->headers : span_str("[]");
        buf_clear(&in->jsonb);
        if (buf_append_byte(&in->jsonb, 1) != BUF_OK || /* the version of jsonb's binary form */
            buf_append_span(&in->jsonb, headers) != BUF_OK)
                return false;
        const struct span spans[HANDLER_PARAMS] = {event->key, event->payload, event->id,
                                                   event->topic, buf_span(&in->jsonb)};
        for (int i = 0; i < HANDLER_PARAMS; i++) {
                values[i] = spans[i].n ? (const char *)spans[i].p : "";
                lengths[i] = (int)spans[i].n;
        }
        if (event->key_is_null)
                values[0] = NULL;
        if (event->payload_is_null)
                values[1] = NULL;
        if (in->prepared == handler->sql && in->prepared_bytea == handler->payload_is_bytea)
                return PQsendQueryPrepared(in->pg, HANDLER_NAME, HANDLER_PARAMS, values, lengths,
                                           formats, 1) == 1;
        return PQsendQueryParams(in->pg, handler->sql, HANDLER_PARAMS,
                                 handler_types[handler->payload_is_bytea], values, lengths, formats,
                                 1) == 1;
}

/* Give the handler's statement a name on this connection, or only see that it prepares. */
static semel_code prepare(struct pg_inbox *in, const struct inbox_handler *handler,
                          semel_error *err)
{
        bool gone = false;
        semel_code code = SEMEL_OK;
        if (!handler || !handler->sql || !in->direct ||
            (in->prepared == handler->sql && in->prepared_bytea == handler->payload_is_bytea))
                return SEMEL_OK;
        if (in->prepared) {
                pg_inbox_drop(in);
                code = pg_inbox_connect(in, in->deadline_us, err);
                if (code != SEMEL_OK)
                        return code;
        }
        if (!PQsendPrepare(in->pg, HANDLER_NAME, handler->sql, HANDLER_PARAMS,
                           handler_types[handler->payload_is_bytea]))
                return pg_error_from_connection(err, in->pg);
        for (;;) {
                PGresult *res = pg_inbox_result(in, &gone);
                if (!res)
                        break;
                if (PQresultStatus(res) != PGRES_COMMAND_OK && code == SEMEL_OK) {
                        code = pg_error_from_result(err, res);
                        in->stale = says_stale(res);
                }
                PQclear(res);
        }
        if (gone)
                return err_set(err, SEMEL_ERR_STORE_DOWN, "the connection to the database broke");
        if (code == SEMEL_OK) {
                in->prepared = handler->sql;
                in->prepared_bytea = handler->payload_is_bytea;
        } else if (in->stale) {
                pg_inbox_drop(in);
        }
        return code;
}

/* -- check -------------------------------------------------------------------------------------- */

semel_code pg_inbox_check(struct inbox_session *s, const struct inbox_handler *handler,
                          int64_t deadline_us, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        semel_error local = {0};
        semel_code code = pg_inbox_connect(in, deadline_us, &local);
        if (code == SEMEL_OK)
                code = pg_server_check_text(in->pg, &local);
        if (code != SEMEL_OK || !handler || !handler->sql) {
                (void)err_copy(err, &local);
                return code;
        }
        if (inbox_sql_ends_transaction(handler->sql))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--sql runs inside the transaction that records the event and must "
                               "not begin or end one");
        bool direct = in->direct;
        in->direct = true; /* through a pooler the name is of no use, but the answer is */
        code = prepare(in, handler, &local);
        in->direct = direct;
        in->used = true;
        if (!direct)
                pg_inbox_drop(in);
        if (code != SEMEL_OK && local.code != SEMEL_ERR_STORE_DOWN) {
                const char *words = strstr(local.text, "(SQLSTATE");
                code = err_set(err, SEMEL_ERR_ARGUMENT, "--sql does not prepare: %.500s",
                               words ? words : local.text);
        } else if (code != SEMEL_OK) {
                (void)err_copy(err, &local);
        }
        return code;
}

/* -- count, seen --------------------------------------------------------------------------------- */

semel_code pg_inbox_counted(struct inbox_session *s, const struct inbox_event *event,
                            int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_inbox_name_params(&in->params, event, 3);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_counted, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        *ret_attempts = PQntuples(res) ? (int)pg_result_int(res, 0, 0) : 0;
        PQclear(res);
        return SEMEL_OK;
}

semel_code pg_inbox_count(struct inbox_session *s, const struct inbox_event *event, int number,
                          int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_inbox_name_params(&in->params, event, 4);
        pg_params_number(&in->params, 3, PG_INT4, number);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_count, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        *ret_attempts = (int)pg_result_int(res, 0, 0);
        PQclear(res);
        return SEMEL_OK;
}

semel_code pg_inbox_count_back(struct inbox_session *s, const struct inbox_event *event, int number,
                               int64_t deadline_us, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_inbox_name_params(&in->params, event, 4);
        pg_params_number(&in->params, 3, PG_INT4, number);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_count_back, deadline_us, err);
        PQclear(res);
        return res ? SEMEL_OK : inbox_code_of(err);
}

semel_code pg_inbox_seen(struct inbox_session *s, const struct inbox_event *events, size_t n,
                         int64_t deadline_us, bool *ret_seen, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        struct params *p = &in->params;
        pg_params_clear(p, 3);
        pg_params_text(p, 0, events[0].consumer);
        pg_params_text(p, 1, events[0].source);
        pg_params_array(p, 2, PG_TEXT);
        for (size_t i = 0; i < n; i++)
                pg_params_bytea(p, 2, events[i].id);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_seen, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        for (size_t i = 0; i < n; i++) {
                ret_seen[i] = false;
                for (int k = 0; k < PQntuples(res) && !ret_seen[i]; k++)
                        ret_seen[i] = span_eq(events[i].id, pg_result_bytes(res, k, 0));
        }
        PQclear(res);
        return SEMEL_OK;
}

/* -- apply ---------------------------------------------------------------------------------------- */

/* Which events are new: the ids that came back, in the order in which they were sent. */
static size_t mark_first(struct pg_inbox *in, const struct inbox_event *events, size_t n,
                         const PGresult *res)
{
        int row = 0, rows = PQntuples(res);
        size_t count = 0;
        for (size_t k = 0; k < n; k++) {
                size_t i = in->order[k];
                in->first[i] = row < rows && span_eq(events[i].id, pg_result_bytes(res, row, 0));
                row += in->first[i];
                count += in->first[i];
        }
        assert(row == rows);
        return count;
}

static bool send_alarms(struct pg_inbox *in, const struct inbox_event *events, size_t n)
{
        struct params *p = &in->params;
        pg_params_clear(p, 7);
        pg_params_text(p, 0, events[0].consumer);
        pg_params_text(p, 1, events[0].source);
        pg_params_array(p, 2, PG_TEXT);
        pg_params_array(p, 3, PG_BYTEA);
        pg_params_text(p, 4, events[0].topic);
        pg_params_number(p, 5, PG_INT4, events[0].partition);
        pg_params_array(p, 6, PG_INT8);
        for (size_t k = 0; k < n; k++) {
                const struct inbox_event *e = &events[in->order[k]];
                if (in->first[in->order[k]] || !e->has_hash)
                        continue;
                pg_params_bytea(p, 2, e->id);
                pg_params_bytea(p, 3, span_of(e->hash, sizeof e->hash));
                pg_params_int(p, 6, e->offset);
        }
        return pg_inbox_send(in, sql_postgres_inbox_alarm, true);
}

/* The transaction is begun and the ids are recorded, or ret says why not. */
static bool record(struct pg_inbox *in, const struct inbox_event *events, size_t n,
                   const struct inbox_handler *handler, struct inbox_result *ret)
{
        PGresult *res = NULL;
        bool sent = PQenterPipelineMode(in->pg) && pg_inbox_send_begin(in, handler) &&
                    pg_inbox_send_record(in, events, n) && pg_inbox_sync(in);
        if (!sent) {
                result_lost(ret);
                pg_inbox_drop(in);
                return false;
        }
        (void)pg_inbox_collect(in, 2, &res, ret);
        if (ret->end == INBOX_FAILED)
                ret->end = pg_inbox_end_of_ours(ret->err.sqlstate, ret->err.code);
        if (ret->end == INBOX_DONE) {
                ret->processed = mark_first(in, events, n, res);
                ret->duplicates = n - ret->processed;
        }
        PQclear(res);
        return ret->end == INBOX_DONE;
}

/* A function of the caller's, event by event. */
static void call_handlers(struct pg_inbox *in, const struct inbox_event *events, size_t n,
                          const struct inbox_handler *handler, struct inbox_result *ret)
{
        (void)PQsetnonblocking(in->pg, 0); /* as every PGconn is that a program knows */
        for (size_t i = 0; i < n && ret->end == INBOX_DONE; i++) {
                semel_error why = {0};
                if (!in->first[i])
                        continue;
                if (in->cancelled) { /* no more of it is begun */
                        (void)err_set(&ret->err, SEMEL_ERR_BUSY, "the transaction was cancelled");
                        ret->end = INBOX_AGAIN;
                        break;
                }
                int rc = handler->fn(handler->arg, in->pg, &events[i], &why);
                PGTransactionStatusType status = PQtransactionStatus(in->pg);
                if (rc == 0 && status == PQTRANS_INTRANS)
                        continue;
                semel_error said = {0};
                if (status == PQTRANS_INERROR || PQstatus(in->pg) != CONNECTION_OK)
                        (void)pg_error_from_connection(&said, in->pg);
                if (why.code == SEMEL_OK && said.code != SEMEL_OK)
                        (void)err_copy(&why, &said);
                else if (why.code == SEMEL_OK)
                        (void)err_set(&why, SEMEL_ERR_REFUSED,
                                      rc == 0 ? "the handler ended the transaction it was given"
                                              : "the handler failed");
                ret->err = why;
                ret->failed_at = i;
                ret->end = PQstatus(in->pg) != CONNECTION_OK ? INBOX_BROKE
                                                             : pg_inbox_end_of_handler(in, said.sqlstate);
        }
        if (PQstatus(in->pg) == CONNECTION_OK)
                (void)PQsetnonblocking(in->pg, 1);
}

/* The handler for what is new, and COMMIT; one pipeline with a statement of SQL. */
static void handle_and_commit(struct pg_inbox *in, const struct inbox_event *events, size_t n,
                              const struct inbox_handler *handler, bool counted,
                              struct inbox_result *ret)
{
        size_t sent_alarms = 0, handled = 0;
        if (handler->fn)
                call_handlers(in, events, n, handler, ret);
        if (ret->end != INBOX_DONE)
                return;
        PGresult *alarms = NULL;
        bool sent = PQenterPipelineMode(in->pg) == 1;
        if (sent && ret->duplicates > 0) {
                sent = send_alarms(in, events, n);
                sent_alarms = 1;
        }
        for (size_t i = 0; i < n && sent && handler->sql; i++) {
                if (in->first[i])
                        sent = pg_inbox_send_handler(in, handler, &events[i]);
        }
        if (sent && counted)
                sent = pg_inbox_send_uncount(in, &events[0]);
        sent = sent && PQsendQueryParams(in->pg, "COMMIT", 0, NULL, NULL, NULL, NULL, 1) &&
               pg_inbox_sync(in);
        if (!sent) {
                result_lost(ret);
                pg_inbox_drop(in);
                return;
        }
        size_t good = pg_inbox_collect(in, sent_alarms ? 0 : SIZE_MAX, &alarms, ret);
        if (ret->end == INBOX_DONE && sent_alarms)
                ret->alarms = (size_t)PQntuples(alarms);
        PQclear(alarms);
        if (ret->end != INBOX_FAILED)
                return;
        if (good < sent_alarms) {
                ret->end = pg_inbox_end_of_ours(ret->err.sqlstate, ret->err.code);
                return;
        }
        ret->end = pg_inbox_end_of_handler(in, ret->err.sqlstate);
        ret->failed_at = INBOX_AT_COMMIT;
        good -= sent_alarms;
        for (size_t i = 0; i < n && handler->sql; i++) {
                if (in->first[i] && handled++ == good) {
                        ret->failed_at = i;
                        break;
                }
        }
}

/* Our own backends that wait for the rest of a batch hold its locks for ever (rule B3). */
static void reap(struct pg_inbox *in, const struct inbox_result *ret)
{
        semel_error ignored = {0};
        bool is_locked = ret->end == INBOX_AGAIN && strcmp(ret->err.sqlstate, "55P03") == 0;
        in->locked = is_locked ? in->locked + 1 : 0;
        if (in->locked < INBOX_LOCKED_BEFORE_REAP)
                return;
        in->locked = 0;
        pg_params_clear(&in->params, 1);
        pg_params_number(&in->params, 0, PG_INT8, INBOX_REAP_US);
        PQclear(pg_inbox_ask(in, sql_postgres_reap, clock_boot_us() + 2 * SECOND, &ignored));
}

bool pg_inbox_ready(struct pg_inbox *in, const struct inbox_handler *handler, int64_t deadline_us,
                    struct inbox_result *ret)
{
        *ret = (struct inbox_result){.end = INBOX_DONE};
        semel_code code = pg_inbox_connect(in, deadline_us, &ret->err);
        if (code == SEMEL_OK)
                code = prepare(in, handler, &ret->err);
        if (code == SEMEL_OK)
                return true;
        ret->end = pg_inbox_end_of_ours(ret->err.sqlstate, code);
        if (ret->end == INBOX_BROKE || ret->end == INBOX_AGAIN)
                ret->end = INBOX_DOWN; /* nothing was sent */
        return false;
}

void pg_inbox_apply(struct inbox_session *s, const struct inbox_event *events, size_t n,
                    const struct inbox_handler *handler, bool counted, int64_t deadline_us,
                    struct inbox_result *ret)
{
        struct pg_inbox *in = pg_inbox_of(s);
        assert(n > 0 && n <= LIMIT_INBOX_BATCH_ROWS);
        if (!pg_inbox_ready(in, handler, deadline_us, ret))
                return;
        if (record(in, events, n, handler, ret))
                handle_and_commit(in, events, n, handler, counted, ret);
        if (ret->end != INBOX_DONE) {
                ret->processed = ret->duplicates = ret->alarms = 0;
                pg_inbox_rollback(in);
                reap(in, ret);
        }
        in->used = in->pg != NULL;
}

void pg_inbox_handle_one(struct pg_inbox *in, const struct inbox_handler *handler,
                         const struct inbox_event *event, struct inbox_result *ret)
{
        if (handler->fn) {
                in->first[0] = true;
                call_handlers(in, event, 1, handler, ret);
                return;
        }
        if (!handler->sql)
                return;
        bool sent = PQenterPipelineMode(in->pg) && pg_inbox_send_handler(in, handler, event) &&
                    pg_inbox_sync(in);
        if (!sent) {
                result_lost(ret);
                pg_inbox_drop(in);
                return;
        }
        (void)pg_inbox_collect(in, SIZE_MAX, NULL, ret);
        if (ret->end == INBOX_FAILED)
                ret->end = pg_inbox_end_of_handler(in, ret->err.sqlstate);
}
