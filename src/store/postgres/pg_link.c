/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_link: one connection, from the first packet to the last, without ever blocking (only
 * libpq's name resolution may).
 *
 *   CLOSED -> CONNECTING -> CHECKING -> VERSION -> (SETTING) -> IDLE <-> BUSY
 *     ^___________________________|_________|__________|___________________|
 *     ^___________________________________________________________ HUNG <--'
 *
 * A connection is given up, never reused, after a timeout or anything unexpected (B10).
 * Pipeline mode is for the single write: the batch's statement and its Sync go to the kernel
 * together, so that a process stopped between them leaves no lock held (B1, B3).  (Parameters
 * that fill libpq's buffer go before, and lock nothing; when the end straddles one of its 8 KB
 * blocks it is two writes back to back.  What that leaves over is the reaper's.)
 */
#include <assert.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "core/retry.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

enum { SERVER_VERSION_MIN = 130000 };

void pg_link_init(struct link *ln, struct pg_store *st)
{
        *ln = (struct link){.st = st, .fd = -1};
        pg_params_init(&ln->params);
}

static void forget_results(struct link *ln)
{
        PQclear(ln->res);
        PQclear(ln->error);
        ln->res = ln->error = NULL;
}

static void close_connection(struct link *ln)
{
        if (ln->fd >= 0)
                (void)epoll_ctl(ln->st->epoll_fd, EPOLL_CTL_DEL, ln->fd, NULL);
        ln->fd = -1;
        PQfinish(ln->pg);
        ln->pg = NULL;
        ln->prepared = 0;
        forget_results(ln);
}

void pg_link_release(struct link *ln)
{
        close_connection(ln);
        pg_params_release(&ln->params);
        ln->state = LINK_CLOSED;
}

bool pg_link_up(const struct link *ln)
{
        return ln->state == LINK_IDLE || ln->state == LINK_BUSY;
}

int64_t pg_link_timer_us(const struct link *ln)
{
        switch (ln->state) {
        case LINK_CLOSED: /* it is opened when there is work: pg_store.c looks */
        case LINK_IDLE:
                return INT64_MAX;
        default:
                return ln->timer_us;
        }
}

/* libpq may change its socket while it connects, and the number may stay the same. */
static void watch(struct link *ln, uint32_t events)
{
        int fd = PQsocket(ln->pg);
        struct epoll_event ev = {.events = events, .data = {.ptr = ln}};
        if (fd != ln->fd && ln->fd >= 0)
                (void)epoll_ctl(ln->st->epoll_fd, EPOLL_CTL_DEL, ln->fd, NULL);
        ln->fd = fd;
        if (fd >= 0 && epoll_ctl(ln->st->epoll_fd, EPOLL_CTL_MOD, fd, &ev) < 0)
                (void)epoll_ctl(ln->st->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

void pg_link_drop(struct link *ln, bool soon)
{
        struct batch *b = ln->batch;
        bool in_doubt = ln->state == LINK_BUSY && ln->flushed;
        ln->batch = NULL;
        close_connection(ln);
        ln->state = LINK_CLOSED;
        ln->timer_us = pg_now_us(ln->st);
        if (!soon)
                ln->timer_us += retry_wait_us(PG_BACKOFF_US, PG_BACKOFF_MAX_US, ln->failures);
        if (b)
                pg_batch_lost(ln->st, b, in_doubt);
}

/* An attempt to connect failed, with st->fault. */
static void connect_failed(struct link *ln)
{
        ln->failures++;
        ln->st->attempt_failed = true;
        pg_link_drop(ln, false);
}

/* A library does not print what the server says on the side; but a server that says goodbye to an
 * idle connection will not take the next batch. */
static void notice(void *arg, const PGresult *res)
{
        struct link *ln = arg;
        const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);
        if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
                ln->goodbye = true;
}

void pg_link_open(struct link *ln)
{
        struct pg_store *st = ln->st;
        bool slow = ln->failures % 3 == 2;
        assert(ln->state == LINK_CLOSED && !ln->pg);
        ln->timer_us = pg_now_us(st) + (slow ? PG_CONNECT_SLOW_US : PG_CONNECT_US);
        ln->direct = ln->goodbye = false;
        ln->pg = PQconnectStartParams((const char *const *)st->config.keywords,
                                      (const char *const *)st->config.values, 0);
        if (!ln->pg) {
                (void)err_set(&st->fault, SEMEL_ERR_NO_MEMORY, "no memory for a connection");
                connect_failed(ln);
                return;
        }
        (void)PQsetErrorVerbosity(ln->pg, PQERRORS_VERBOSE);
        (void)PQsetNoticeReceiver(ln->pg, notice, ln);
        ln->state = LINK_CONNECTING;
        if (PQstatus(ln->pg) == CONNECTION_BAD) {
                (void)pg_error_from_connection(&st->fault, ln->pg);
                connect_failed(ln);
                return;
        }
        watch(ln, EPOLLOUT);
}

/* -- sending ----------------------------------------------------------------------------------- */

static void flush(struct link *ln)
{
        int rc = PQflush(ln->pg);
        if (rc < 0) {
                pg_link_drop(ln, true);
                return;
        }
        ln->flushed = rc == 0;
        watch(ln, rc == 0 ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static int send_statement(struct link *ln, const char *sql, const struct params *p)
{
        return PQsendQueryParams(ln->pg, sql, p ? p->n : 0, p ? p->types : NULL,
                                 p ? p->values : NULL, p ? p->lengths : NULL,
                                 p ? p->formats : NULL, 1);
}

/* Send one of the link's own statements. */
static void send_own(struct link *ln, enum link_state state, const char *sql)
{
        ln->state = state;
        ln->flushed = false;
        forget_results(ln);
        if (!send_statement(ln, sql, &ln->params) || !PQpipelineSync(ln->pg))
                pg_link_drop(ln, false);
        else
                flush(ln);
}

/* Settings that hold for this transaction only, in front of the batch's statement. */
static int send_prologue(struct link *ln)
{
        static const unsigned type = PG_TEXT;
        static const char *const value = PG_LOCK_TIMEOUT;
        return send_statement(ln, sql_postgres_batch_isolation, NULL) &&
               PQsendQueryParams(ln->pg, sql_postgres_batch_settings, 1, &type, &value, NULL,
                                 NULL, 1);
}

static int send_prepared(struct link *ln, enum lane lane)
{
        const struct lane_vt *vt = pg_lane_vt(lane);
        struct params *p = &ln->params;
        ln->preparing = !(ln->prepared & 1u << lane);
        if (ln->preparing && !PQsendPrepare(ln->pg, vt->name, vt->sql, p->n, p->types))
                return 0;
        ln->prepared |= 1u << lane;
        return PQsendQueryPrepared(ln->pg, vt->name, p->n, p->values, p->lengths, p->formats, 1);
}

/* When an answer that has not come is not waited for any longer. */
static int64_t give_up_us(const struct batch *b, int64_t now_us, size_t bytes)
{
        /* A long body takes its time on a slow network: 1 MB/s and more is fine. */
        int64_t at_us = now_us + PG_BATCH_US + (int64_t)bytes;
        for (size_t i = 0; i < b->n; i++) {
                int64_t deadline_us = b->ops[i]->deadline_us;
                if (deadline_us < INT64_MAX - PG_GRACE_US && deadline_us + PG_GRACE_US < at_us)
                        at_us = deadline_us + PG_GRACE_US;
        }
        return at_us;
}

void pg_link_send(struct link *ln, struct batch *b)
{
        assert(ln->state == LINK_IDLE && !ln->batch);
        const struct lane_vt *vt = pg_lane_vt(b->lane);
        pg_params_clear(&ln->params, 0);
        vt->build(b, &ln->params);
        ln->batch = b;
        ln->state = LINK_BUSY;
        ln->flushed = ln->preparing = false;
        ln->sent_us = pg_now_us(ln->st);
        ln->timer_us = give_up_us(b, ln->sent_us, pg_params_bytes(&ln->params));
        forget_results(ln);
        if (pg_params_finish(&ln->params) != BUF_OK) {
                ln->batch = NULL;
                ln->state = LINK_IDLE;
                for (size_t i = 0; i < b->n; i++) {
                        (void)err_set(&b->ops[i]->err, SEMEL_ERR_NO_MEMORY,
                                      "no memory for a batch of operations");
                        pg_fail(ln->st, b->ops[i]);
                }
                pg_batch_free(b);
                return;
        }
        int sent = ln->direct ? send_prepared(ln, b->lane)
                              : send_prologue(ln) && send_statement(ln, vt->sql, &ln->params);
        if (!sent || !PQpipelineSync(ln->pg))
                pg_link_drop(ln, true);
        else
                flush(ln);
}

/* -- after connecting ---------------------------------------------------------------------- */

static void check(struct link *ln)
{
        struct pg_store *st = ln->st;
        if (PQserverVersion(ln->pg) < SERVER_VERSION_MIN) {
                (void)err_set(&st->fault, SEMEL_ERR_SCHEMA,
                              "the server is PostgreSQL %d; semel needs 13 or newer",
                              PQserverVersion(ln->pg) / 10000);
                connect_failed(ln);
                return;
        }
        if (PQsetnonblocking(ln->pg, 1) != 0 || !PQenterPipelineMode(ln->pg)) {
                (void)pg_error_from_connection(&st->fault, ln->pg);
                connect_failed(ln);
                return;
        }
        pg_params_clear(&ln->params, 0);
        (void)pg_params_finish(&ln->params);
        send_own(ln, LINK_CHECKING, sql_postgres_link_check);
}

static void become_idle(struct link *ln)
{
        ln->state = LINK_IDLE;
        ln->failures = 0;
        err_clear(&ln->st->fault);
}

static void checked(struct link *ln, const PGresult *res)
{
        struct pg_store *st = ln->st;
        if (pg_server_check(ln->pg, &st->config, res, &ln->direct, &st->fault) != SEMEL_OK) {
                connect_failed(ln);
                return;
        }
        if (st->plans_off)
                ln->direct = false;
        send_own(ln, LINK_VERSION, sql_postgres_select_version);
}

static void version_read(struct link *ln, const PGresult *res)
{
        struct pg_store *st = ln->st;
        if (pg_schema_check(pg_result_int(res, 0, 0), &st->fault) != SEMEL_OK) {
                connect_failed(ln);
        } else if (!ln->direct) {
                become_idle(ln);
        } else {
                pg_params_clear(&ln->params, 1);
                pg_params_text(&ln->params, 0, span_str(PG_LOCK_TIMEOUT));
                (void)pg_params_finish(&ln->params);
                send_own(ln, LINK_SETTING, sql_postgres_link_session);
        }
}

/* -- receiving ----------------------------------------------------------------------------- */

/* An error after which the session is over, and of a commit nothing is known. */
static bool is_fatal(const PGresult *error)
{
        const char *severity = PQresultErrorField(error, PG_DIAG_SEVERITY_NONLOCALIZED);
        return !severity || strcmp(severity, "ERROR") != 0;
}

/* A batch of these answers with the rows that it changed: its commit did not hang. */
static bool has_written(const struct batch *b, const PGresult *res)
{
        return (b->lane == LANE_INSERT || b->lane == LANE_TAKE || b->lane == LANE_COMPLETE) &&
               PQntuples(res) > 0;
}

/* The Sync came back: what was sent before it is committed, or undone as a whole. */
static void synced(struct link *ln)
{
        struct pg_store *st = ln->st;
        PGresult *res = ln->res;
        PGresult *error = ln->error;
        struct batch *b = ln->batch;
        ln->res = ln->error = NULL;

        if (ln->state == LINK_HUNG) { /* nobody waits for it any more, but the server writes again */
                if (!error)
                        st->hangs = 0;
                pg_link_drop(ln, true);
        } else if (ln->state != LINK_BUSY) {
                if (error) {
                        (void)pg_error_from_result(&st->fault, error);
                        connect_failed(ln);
                } else if (ln->state == LINK_CHECKING) {
                        checked(ln, res);
                } else if (ln->state == LINK_VERSION) {
                        version_read(ln, res);
                } else {
                        become_idle(ln);
                }
        } else {
                ln->batch = NULL;
                ln->state = LINK_IDLE;
                enum pg_verdict verdict = PG_VERDICT_ALL;
                const char *sqlstate = "";
                if (error) {
                        if (ln->preparing && !res) /* it was the preparing that failed */
                                ln->prepared &= ~(1u << b->lane);
                        sqlstate = PQresultErrorField(error, PG_DIAG_SQLSTATE);
                        verdict = pg_error_verdict(sqlstate ? sqlstate : "08006");
                        pg_batch_failed(st, b, error);
                } else {
                        if (has_written(b, res))
                                st->hangs = 0;
                        pg_batch_done(st, b, res);
                }
                /* A schema that changed needs new plans; a pooler, none at all. */
                if (verdict == PG_VERDICT_PLAN && strcmp(sqlstate, "0A000") != 0)
                        st->plans_off = true;
                /* A standby stays one: find the primary anew (O56). */
                if (verdict == PG_VERDICT_PLAN || (sqlstate && strcmp(sqlstate, "25006") == 0))
                        pg_link_drop(ln, true);
        }
        PQclear(res);
        PQclear(error);
}

/* Keep the last result and the first error. */
static void keep(struct link *ln, PGresult *res)
{
        switch (PQresultStatus(res)) {
        case PGRES_TUPLES_OK:
        case PGRES_COMMAND_OK:
                PQclear(ln->res);
                ln->res = res;
                break;
        case PGRES_FATAL_ERROR:
                if (!ln->error) {
                        ln->error = res;
                        break;
                }
                PQclear(res);
                break;
        default: /* PIPELINE_ABORTED: what follows an error */
                PQclear(res);
                break;
        }
}

static void receive(struct link *ln)
{
        PGconn *pg = ln->pg;
        bool alive = PQconsumeInput(pg) != 0;
        int nulls = 0; /* one behind each statement, two at the end */
        while (nulls < 2 && !PQisBusy(pg)) {
                PGresult *res = PQgetResult(pg);
                if (!res) {
                        nulls++;
                        continue;
                }
                nulls = 0;
                if (PQresultStatus(res) != PGRES_PIPELINE_SYNC) {
                        keep(ln, res);
                        if (ln->error && is_fatal(ln->error))
                                break;
                        continue;
                }
                PQclear(res);
                synced(ln);
                return;
        }
        if (alive && PQstatus(pg) == CONNECTION_OK && !ln->goodbye &&
            !(ln->error && is_fatal(ln->error)))
                return;
        if (pg_link_up(ln) || ln->state == LINK_HUNG) {
                pg_link_drop(ln, true);
                return;
        }
        if (ln->error)
                (void)pg_error_from_result(&ln->st->fault, ln->error);
        else
                (void)pg_error_from_connection(&ln->st->fault, pg);
        connect_failed(ln);
}

static void connect_on(struct link *ln)
{
        switch (PQconnectPoll(ln->pg)) {
        case PGRES_POLLING_READING:
                watch(ln, EPOLLIN);
                break;
        case PGRES_POLLING_WRITING:
                watch(ln, EPOLLOUT);
                break;
        case PGRES_POLLING_OK:
                check(ln);
                break;
        default:
                (void)pg_error_from_connection(&ln->st->fault, ln->pg);
                connect_failed(ln);
                break;
        }
}

void pg_link_ready(struct link *ln)
{
        switch (ln->state) {
        case LINK_CLOSED:
                break;
        case LINK_CONNECTING:
                connect_on(ln);
                break;
        case LINK_IDLE: /* nothing is expected: a notice, or the end */
        case LINK_CHECKING:
        case LINK_VERSION:
        case LINK_SETTING:
        case LINK_BUSY:
        case LINK_HUNG:
                if (ln->state != LINK_IDLE && !ln->flushed)
                        flush(ln);
                if (ln->state != LINK_CLOSED)
                        receive(ln);
                break;
        }
}

/* The answer to its batch does not come.  When it is the commit that hangs (a synchronous standby is
 * away), so does the backend, whatever becomes of its client, and a connection made anew would hang
 * the next one.  So once as many ended so as there are links, and no write was committed meanwhile,
 * a link stays with its backend; it is not cancelled either: what no standby has would be seen. */
static void answer_is_late(struct link *ln, int64_t now_us)
{
        struct pg_store *st = ln->st;
        struct batch *b = ln->batch;
        unsigned links = (unsigned)st->config.links;
        bool hangs = ln->flushed && pg_lane_vt(b->lane)->writes;
        if (!hangs || st->hangs++ < links) {
                pg_link_drop(ln, true);
                return;
        }
        ln->batch = NULL;
        ln->state = LINK_HUNG;
        ln->timer_us = now_us + retry_wait_us(PG_HUNG_US, PG_HUNG_MAX_US, st->hangs - links - 1);
        (void)err_set(&st->fault, SEMEL_ERR_STORE_DOWN,
                      "the database does not finish its commits; is its synchronous standby away, or "
                      "its disk stuck?");
        pg_batch_lost(st, b, true);
}

void pg_link_expire(struct link *ln, int64_t now_us)
{
        if (now_us < pg_link_timer_us(ln))
                return;
        if (ln->state == LINK_BUSY) {
                answer_is_late(ln, now_us);
                return;
        }
        if (ln->state == LINK_HUNG) {
                pg_link_drop(ln, true);
                return;
        }
        (void)err_set(&ln->st->fault, SEMEL_ERR_STORE_DOWN,
                      "the database does not answer; start it or check the URL");
        connect_failed(ln);
}
