/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox_session: see pg_outbox.h; connecting, and one pipeline at a time.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/retry.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_outbox.h"
#include "sys/clock.h"

static const char *const templates[OUTBOX_QUERIES] = {
        [OQ_BEGIN] = "BEGIN ISOLATION LEVEL READ COMMITTED",
        [OQ_COMMIT] = "COMMIT",
        [OQ_ROLLBACK] = "ROLLBACK",
        [OQ_LISTEN] = "LISTEN semel_outbox",
        [OQ_CHECK] = sql_postgres_link_check,
        [OQ_ISOLATION] = sql_postgres_batch_isolation,
        [OQ_SESSION] = sql_postgres_outbox_session,
        [OQ_VERSION] = sql_postgres_select_version,
        [OQ_FETCH] = sql_postgres_outbox_fetch,
        [OQ_FETCH_BYTES] = sql_postgres_outbox_fetch_bytes,
        [OQ_FETCH_LOCKED] = sql_postgres_outbox_fetch_locked,
        [OQ_FETCH_CLAIM] = sql_postgres_outbox_fetch_claim,
        [OQ_FENCE] = sql_postgres_outbox_fence,
        [OQ_MARK_DELETE] = sql_postgres_outbox_mark_delete,
        [OQ_MARK_DELETE_TRIED] = sql_postgres_outbox_mark_delete_tried,
        [OQ_MARK_UPDATE] = sql_postgres_outbox_mark_update,
        [OQ_RECOVER] = sql_postgres_outbox_recover,
        [OQ_UNSTICK] = sql_postgres_outbox_unstick,
        [OQ_BLOCKED] = sql_postgres_outbox_blocked,
        [OQ_BEAT] = sql_postgres_outbox_beat,
        [OQ_VIEW] = sql_postgres_outbox_view,
        [OQ_TAKE_META] = sql_postgres_outbox_take_meta,
        [OQ_TAKE_ORPHANS] = sql_postgres_outbox_take_orphans,
        [OQ_TAKE_SILENT] = sql_postgres_outbox_take_silent,
        [OQ_TAKE_OWNERS] = sql_postgres_outbox_take_owners,
        [OQ_TAKE_PUBLISHING] = sql_postgres_outbox_take_publishing,
        [OQ_TAKE_MODE] = sql_postgres_outbox_take_mode,
        [OQ_TAKE_SLOTS] = sql_postgres_outbox_take_slots,
        [OQ_GIVE] = sql_postgres_outbox_give,
        [OQ_LEAVE] = sql_postgres_outbox_leave,
        [OQ_FORGET] = sql_postgres_outbox_forget,
        [OQ_PRUNE] = sql_postgres_outbox_prune,
        [OQ_PRUNE_DRY] = sql_postgres_outbox_prune_dry,
        [OQ_COLUMNS] = sql_postgres_outbox_columns,
        [OQ_NAMES] = sql_postgres_outbox_names,
        [OQ_TRIGGER] = sql_postgres_outbox_trigger,
        [OQ_REAP] = sql_postgres_reap,
        [OQ_STATS] = sql_postgres_outbox_stats,
        [OQ_STATS_KEPT] = sql_postgres_outbox_stats_kept,
        [OQ_STATS_AGES] = sql_postgres_outbox_stats_ages,
        [OQ_LIST] = sql_postgres_outbox_list,
        [OQ_RETRY] = sql_postgres_outbox_retry,
        [OQ_DISCARD] = sql_postgres_outbox_discard,
        [OQ_REPUBLISH] = sql_postgres_outbox_republish,
        [OQ_OLDEST] = sql_postgres_outbox_oldest,
        [OQ_CLOCK] = "SELECT clock_timestamp()",
};

static_assert(OUTBOX_QUERIES <= 64, "a bit for each query");

const char *pg_outbox_template(enum outbox_query query)
{
        return templates[query];
}

const char *pg_outbox_sql(const struct pg_outbox *ob, enum outbox_query query)
{
        return ob->sql[query] ? ob->sql[query] : templates[query];
}

void pg_outbox_drop(struct pg_outbox *ob)
{
        PQfinish(ob->pg);
        ob->pg = NULL;
        ob->prepared = 0;
        ob->in_tx = ob->listening = false;
        ob->clock_us = 0;
}

bool pg_outbox_wait(struct pg_outbox *ob, short events, int64_t deadline_us)
{
        for (;;) {
                int64_t left_us = deadline_us - clock_boot_us();
                if (left_us <= 0)
                        return false;
                int64_t ms = (left_us + MS - 1) / MS;
                struct pollfd pfd = {.fd = PQsocket(ob->pg), .events = events};
                if (poll(&pfd, 1, ms < 60000 ? (int)ms : 60000) != 0)
                        return true; /* ready, or a signal: the caller looks anyway */
        }
}

static semel_code timed_out(semel_error *err)
{
        return err_set(err, SEMEL_ERR_STORE_DOWN,
                       "the database did not answer in time; it is tried again");
}

/* -- connecting ------------------------------------------------------------------------------- */

static semel_code shake_hands(struct pg_outbox *ob, int64_t deadline_us, semel_error *err)
{
        PostgresPollingStatusType next = PGRES_POLLING_WRITING;
        while (next != PGRES_POLLING_OK) {
                if (next == PGRES_POLLING_FAILED)
                        return pg_error_from_connection(err, ob->pg);
                if (!pg_outbox_wait(ob, next == PGRES_POLLING_READING ? POLLIN : POLLOUT,
                                    deadline_us))
                        return timed_out(err);
                next = PQconnectPoll(ob->pg);
        }
        return SEMEL_OK;
}

static void session_params(const struct pg_outbox *ob, struct params *p, bool local)
{
        pg_params_clear(p, 3);
        pg_params_text(p, 0, span_str(ob->lock_timeout));
        pg_params_text(p, 1, span_str(ob->idle_timeout));
        pg_params_number(p, 2, PG_BOOL, local);
}

static semel_code greet(struct pg_outbox *ob, int64_t deadline_us, semel_error *err)
{
        const struct pg_step steps[] = {{.query = OQ_CHECK}, {.query = OQ_VERSION, .sync = true}};
        PGresult *res[2] = {NULL, NULL};
        ob->direct = true; /* no settings in front of these */
        semel_code code = pg_outbox_run(ob, steps, 2, false, deadline_us, res, err);
        ob->direct = false;
        if (code == SEMEL_OK)
                code = pg_server_check(ob->pg, &ob->config, res[0], &ob->direct, err);
        if (code == SEMEL_OK)
                code = pg_schema_check(pg_result_int(res[1], 0, 0), err);
        PQclear(res[0]);
        PQclear(res[1]);
        if (code != SEMEL_OK || !ob->direct)
                return code;
        session_params(ob, &ob->params[4], false);
        code = pg_outbox_one(ob, OQ_SESSION, &ob->params[4], false, deadline_us, &res[0], err);
        PQclear(res[0]);
        return code;
}

semel_code pg_outbox_connect(struct pg_outbox *ob, int64_t deadline_us, semel_error *err)
{
        if (ob->pg && PQstatus(ob->pg) == CONNECTION_OK)
                return SEMEL_OK;
        pg_outbox_drop(ob);
        /* A server that is away is not knocked at in a loop.  An attempt that would have less than half
         * of its time left is none, and the next one does not wait for it: a caller with little time
         * would else come too late each time, for ever (rule B10). */
        int64_t now_us = clock_boot_us(), half_us = now_us + (deadline_us - now_us) / 2;
        if (ob->retry_us > now_us && deadline_us > now_us) {
                int64_t until_us = ob->retry_us < deadline_us ? ob->retry_us : deadline_us;
                (void)poll(NULL, 0, (int)((until_us - now_us) / MS + 1));
                if (until_us > half_us)
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "the database did not answer a moment ago; it is tried again");
        }
        semel_code code;
        ob->pg = PQconnectStartParams((const char *const *)ob->config.keywords,
                                      (const char *const *)ob->config.values, 0);
        if (!ob->pg)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a connection");
        (void)PQsetErrorVerbosity(ob->pg, PQERRORS_VERBOSE);
        (void)PQsetNoticeReceiver(ob->pg, pg_ignore_notice, NULL);
        if (PQstatus(ob->pg) == CONNECTION_BAD)
                code = pg_error_from_connection(err, ob->pg);
        else
                code = shake_hands(ob, deadline_us, err);
        if (code == SEMEL_OK &&
            (PQsetnonblocking(ob->pg, 1) != 0 || !PQenterPipelineMode(ob->pg)))
                code = pg_error_from_connection(err, ob->pg);
        if (code == SEMEL_OK)
                code = greet(ob, deadline_us, err);
        if (code == SEMEL_OK) {
                ob->failures = 0;
                ob->retry_us = 0;
                return SEMEL_OK;
        }
        ob->retry_us = clock_boot_us() +
                       retry_wait_us(PG_BACKOFF_US, PG_BACKOFF_MAX_US, ob->failures++);
        pg_outbox_drop(ob);
        return code;
}

/* -- one pipeline ----------------------------------------------------------------------------- */

/* ITEM_PREPARE - query: that statement's preparation. */
enum { ITEM_SYNC = -1, ITEM_OWN = -2, ITEM_PREPARE = -3, ITEMS_MAX = 5 * PG_STEPS_MAX };

struct pipe {
        int item[ITEMS_MAX]; /* a step's number, ITEM_SYNC, or a statement of the session's own */
        int n;
        uint64_t preparing;
        PGresult *error; /* the first */
        bool error_at_sync;
        bool all_sent;
};

static void name_of(enum outbox_query query, char ret[16])
{
        (void)snprintf(ret, 16, "semel_ob_%d", (int)query);
}

static bool send_one(struct pg_outbox *ob, struct pipe *pipe, enum outbox_query query,
                     struct params *p, int item)
{
        static struct params none;
        bool prepare = ob->direct && query >= OQ_FETCH;
        const char *sql = pg_outbox_sql(ob, query);
        char name[16];
        if (!p)
                p = &none;
        name_of(query, name);
        if (prepare && !((ob->prepared | pipe->preparing) & UINT64_C(1) << query)) {
                if (!PQsendPrepare(ob->pg, name, sql, p->n, p->types))
                        return false;
                pipe->item[pipe->n++] = ITEM_PREPARE - (int)query;
                pipe->preparing |= UINT64_C(1) << query;
        }
        pipe->item[pipe->n++] = item;
        if (prepare)
                return PQsendQueryPrepared(ob->pg, name, p->n, p->values, p->lengths, p->formats, 1);
        return PQsendQueryParams(ob->pg, sql, p->n, p->types, p->values, p->lengths, p->formats, 1);
}

static bool send_sync(struct pg_outbox *ob, struct pipe *pipe)
{
        pipe->item[pipe->n++] = ITEM_SYNC;
        return PQpipelineSync(ob->pg);
}

/* Where a pooler may be, each transaction says what it needs (rule B7). */
static bool send_settings(struct pg_outbox *ob, struct pipe *pipe, bool explicit_begin)
{
        const char *const texts[] = {ob->lock_timeout, ob->idle_timeout, "true"};
        if (!explicit_begin) {
                pipe->item[pipe->n++] = ITEM_OWN;
                if (!PQsendQueryParams(ob->pg, templates[OQ_ISOLATION], 0, NULL, NULL, NULL, NULL,
                                       0))
                        return false;
        }
        static const Oid types[] = {PG_TEXT, PG_TEXT, PG_BOOL};
        pipe->item[pipe->n++] = ITEM_OWN;
        return PQsendQueryParams(ob->pg, templates[OQ_SESSION], 3, types, texts, NULL, NULL, 0);
}

static bool send_all(struct pg_outbox *ob, const struct pg_step *steps, size_t n,
                     struct pipe *pipe)
{
        bool begins = !ob->direct && !ob->in_tx; /* the next statement begins a transaction */
        for (size_t i = 0; i < n; i++) {
                bool is_begin = steps[i].query == OQ_BEGIN;
                if (begins && !is_begin && !send_settings(ob, pipe, false))
                        return false;
                if (!send_one(ob, pipe, steps[i].query, steps[i].params, (int)i))
                        return false;
                if (begins && is_begin && !send_settings(ob, pipe, true))
                        return false;
                begins = false;
                if ((steps[i].sync || i + 1 == n) && !send_sync(ob, pipe))
                        return false;
                if (steps[i].sync)
                        begins = !ob->direct && !ob->in_tx;
        }
        return true;
}

/* One result (NULL between two statements); false: the time is over, or the connection. */
static bool next_result(struct pg_outbox *ob, struct pipe *pipe, int64_t deadline_us,
                        PGresult **ret)
{
        for (;;) {
                int unsent = PQflush(ob->pg);
                if (unsent < 0)
                        return false;
                pipe->all_sent |= unsent == 0;
                if (!PQisBusy(ob->pg)) {
                        *ret = PQgetResult(ob->pg);
                        return true;
                }
                short events = (short)(POLLIN | (unsent ? POLLOUT : 0));
                if (!pg_outbox_wait(ob, events, deadline_us) || !PQconsumeInput(ob->pg))
                        return false;
        }
}

static void keep_error(struct pipe *pipe, PGresult *res, bool at_sync)
{
        if (pipe->error) {
                PQclear(res);
                return;
        }
        pipe->error = res;
        pipe->error_at_sync = at_sync;
}

/* The answers to one statement.  A preparation counts though a later statement fails. */
static bool collect_item(struct pg_outbox *ob, struct pipe *pipe, int item, int64_t deadline_us,
                         PGresult **ret)
{
        PGresult *res = NULL;
        for (;;) {
                if (!next_result(ob, pipe, deadline_us, &res))
                        return false;
                if (!res)
                        return true;
                ExecStatusType status = PQresultStatus(res);
                if (item <= ITEM_PREPARE && status == PGRES_COMMAND_OK)
                        ob->prepared |= UINT64_C(1) << (ITEM_PREPARE - item);
                if (status == PGRES_FATAL_ERROR)
                        keep_error(pipe, res, false);
                else if (item >= 0 && status != PGRES_PIPELINE_ABORTED && !ret[item])
                        ret[item] = res;
                else
                        PQclear(res);
                if (status == PGRES_PIPELINE_SYNC || PQstatus(ob->pg) != CONNECTION_OK)
                        return false;
        }
}

/* Everything up to the answer to a Sync: the commit's own failure comes here. */
static bool collect_sync(struct pg_outbox *ob, struct pipe *pipe, int64_t deadline_us)
{
        PGresult *res = NULL;
        for (int nothing = 0; nothing < 3;) {
                if (!next_result(ob, pipe, deadline_us, &res))
                        return false;
                if (!res) {
                        nothing++;
                        continue;
                }
                ExecStatusType status = PQresultStatus(res);
                if (status == PGRES_FATAL_ERROR)
                        keep_error(pipe, res, true);
                else
                        PQclear(res);
                if (status == PGRES_PIPELINE_SYNC)
                        return true;
                if (PQstatus(ob->pg) != CONNECTION_OK)
                        return false;
        }
        return false;
}

/* Take all answers; false: they did not come. */
static bool collect(struct pg_outbox *ob, struct pipe *pipe, int64_t deadline_us, PGresult **ret)
{
        for (int i = 0; i < pipe->n; i++) {
                bool ok = pipe->item[i] == ITEM_SYNC
                                  ? collect_sync(ob, pipe, deadline_us)
                                  : collect_item(ob, pipe, pipe->item[i], deadline_us, ret);
                if (!ok)
                        return false;
        }
        return true;
}

static semel_code unknown_commit(semel_error *err)
{
        return err_set(err, SEMEL_ERR_UNKNOWN,
                       "the connection broke before the database said whether it was written; ask "
                       "again");
}

/* It failed: say why, and whether it may have happened. */
static semel_code explain(struct pg_outbox *ob, const struct pipe *pipe, bool answered,
                          bool writes, semel_error *err)
{
        const char *state = pipe->error ? PQresultErrorField(pipe->error, PG_DIAG_SQLSTATE) : NULL;
        bool in_doubt = writes && pipe->all_sent && (!state || pipe->error_at_sync);
        semel_code code;
        if (state) {
                code = pg_error_from_result(err, pipe->error);
                if (strcmp(state, "25P03") == 0)
                        code = err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "the server ended a transaction that waited for %s: in mode "
                                       "single a batch must end within the lease of its slots; raise "
                                       "slot_lease, or lower batch_rows",
                                       ob->idle_timeout);
                if (strcmp(state, "55P03") == 0)
                        code = err_set(err, SEMEL_ERR_BUSY,
                                       "rows or slots of the outbox are locked by another "
                                       "transaction; it is tried again");
        } else if (PQstatus(ob->pg) != CONNECTION_OK) {
                code = pg_error_from_connection(err, ob->pg);
        } else {
                code = timed_out(err);
        }
        /* What is not in order is not used again (rule B10); 25006 wants another server (O56). */
        bool plans = state && pg_error_verdict(state) == PG_VERDICT_PLAN;
        if (!answered || plans || code == SEMEL_ERR_STORE_READ_ONLY ||
            PQstatus(ob->pg) != CONNECTION_OK)
                pg_outbox_drop(ob);
        return in_doubt ? unknown_commit(err) : code;
}

semel_code pg_outbox_run(struct pg_outbox *ob, const struct pg_step *steps, size_t n, bool writes,
                         int64_t deadline_us, PGresult **ret, semel_error *err)
{
        struct pipe pipe = {.n = 0};
        semel_code code = SEMEL_OK;
        assert(n >= 1 && n <= PG_STEPS_MAX);
        for (size_t i = 0; i < n; i++)
                ret[i] = NULL;
        for (size_t i = 0; i < n; i++) {
                if (steps[i].params && pg_params_finish(steps[i].params) != BUF_OK)
                        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
        }
        assert(ob->pg);
        bool sent = send_all(ob, steps, n, &pipe);
        bool answered = sent && collect(ob, &pipe, deadline_us, ret);
        if (answered && !pipe.error)
                return SEMEL_OK;
        code = explain(ob, &pipe, answered, writes, err);
        PQclear(pipe.error);
        for (size_t i = 0; i < n; i++) {
                PQclear(ret[i]);
                ret[i] = NULL;
        }
        return code;
}

semel_code pg_outbox_one(struct pg_outbox *ob, enum outbox_query query, struct params *params,
                         bool writes, int64_t deadline_us, PGresult **ret, semel_error *err)
{
        const struct pg_step step = {.query = query, .params = params, .sync = true};
        return pg_outbox_run(ob, &step, 1, writes, deadline_us, ret, err);
}
