/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_inbox: a batch of events in one transaction, on a connection of its own that passes the
 * file's gate like every writer (rule B9).  The file has one writer at a time, so nobody can meet on
 * an id here; what is waited for is the file.
 */
#include "store/sqlite/sqlite_inbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/inbox_plan.h"
#include "sql_sqlite.h"
#include "store/sqlite/sqlite_open.h"
#include "store/sqlite/sqlite_store.h"
#include "store/sqlite/sqlite_writer.h"
#include "sys/clock.h"

static const char *const sql_text[INBOX_SQLS] = {
        [INBOX_SQL_FIRST] = sql_sqlite_inbox_first,
        [INBOX_SQL_ALARM] = sql_sqlite_inbox_alarm,
        [INBOX_SQL_SEEN] = sql_sqlite_inbox_seen,
        [INBOX_SQL_COUNTED] = sql_sqlite_inbox_counted,
        [INBOX_SQL_COUNT] = sql_sqlite_inbox_count,
        [INBOX_SQL_COUNT_BACK] = sql_sqlite_inbox_count_back,
        [INBOX_SQL_UNCOUNT] = sql_sqlite_inbox_uncount,
        [INBOX_SQL_BURY] = sql_sqlite_inbox_bury,
        [INBOX_SQL_LOCK] = sql_sqlite_inbox_letter_lock,
        [INBOX_SQL_TAKE] = sql_sqlite_inbox_letter_take,
        [INBOX_SQL_UNTAKE] = sql_sqlite_inbox_letter_untake,
        [INBOX_SQL_DONE] = sql_sqlite_inbox_letter_done,
        [INBOX_SQL_BACK] = sql_sqlite_inbox_letter_back,
        [INBOX_SQL_LIST] = sql_sqlite_inbox_letter_list,
        [INBOX_SQL_DECIDE] = sql_sqlite_inbox_letter_decide,
        [INBOX_SQL_PRUNE] = sql_sqlite_inbox_prune,
        [INBOX_SQL_PRUNE_ATTEMPTS] = sql_sqlite_inbox_prune_attempts,
        [INBOX_SQL_STATUS] = sql_sqlite_inbox_status,
};

/* -- statements ------------------------------------------------------------------------------- */

sqlite3_stmt *sqlite_inbox_stmt(struct sqlite_inbox *in, enum inbox_sql which)
{
        sqlite3_stmt **stmt = &in->stmt[which];
        if (!*stmt)
                (void)sqlite3_prepare_v3(in->ses.db, sql_text[which], -1,
                                         SQLITE_PREPARE_PERSISTENT, stmt, NULL);
        else
                (void)sqlite3_reset(*stmt);
        return *stmt;
}

int sqlite_inbox_run(struct sqlite_inbox *in, sqlite3_stmt *stmt)
{
        if (!stmt)
                return sqlite3_extended_errcode(in->ses.db);
        int rc;
        do
                rc = sqlite3_step(stmt);
        while (rc == SQLITE_ROW);
        rc = rc == SQLITE_DONE ? SQLITE_OK : sqlite3_extended_errcode(in->ses.db);
        (void)sqlite3_reset(stmt);
        return rc;
}

/* consumer, source, id: ?1 ?2 ?3 */
static sqlite3_stmt *named(struct sqlite_inbox *in, enum inbox_sql which,
                           const struct inbox_event *e)
{
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, which);
        if (!stmt)
                return NULL;
        bind_text(stmt, 1, e->consumer);
        bind_text(stmt, 2, e->source);
        bind_text(stmt, 3, e->id);
        return stmt;
}

/* -- errors ------------------------------------------------------------------------------------- */

enum inbox_end sqlite_inbox_end_of(semel_code code, enum inbox_end otherwise)
{
        switch (code) {
        case SEMEL_ERR_BUSY:
        case SEMEL_ERR_CONFLICT:
                return INBOX_AGAIN;
        case SEMEL_ERR_STORE_DOWN:
        case SEMEL_ERR_STORE_FULL:
        case SEMEL_ERR_STORE_READ_ONLY:
        case SEMEL_ERR_NO_MEMORY:
                return INBOX_DOWN;
        case SEMEL_ERR_CORRUPT:
        case SEMEL_ERR_UNSAFE:
                return INBOX_STOP;
        default:
                return otherwise;
        }
}

void sqlite_inbox_failed(struct sqlite_inbox *in, struct inbox_result *ret)
{
        ret->end = sqlite_inbox_end_of(session_error(&in->ses, &ret->err), INBOX_STOP);
}

semel_code sqlite_inbox_code(const struct inbox_result *ret, semel_error *err)
{
        return ret->end == INBOX_DONE ? SEMEL_OK : err_copy(err, &ret->err);
}

/* -- transactions -------------------------------------------------------------------------------- */

static void shut(struct sqlite_inbox *in)
{
        if (!in->open)
                return;
        (void)pthread_mutex_lock(&in->mu);
        for (int i = 0; i < INBOX_SQLS; i++) {
                (void)sqlite3_finalize(in->stmt[i]);
                in->stmt[i] = NULL;
        }
        (void)sqlite3_finalize(in->handler);
        in->handler = NULL;
        in->handler_sql = NULL;
        session_close(&in->ses);
        gate_close(&in->gate);
        in->open = false;
        (void)pthread_mutex_unlock(&in->mu);
}

static semel_code ensure_open(struct sqlite_inbox *in, semel_error *err)
{
        if (in->open)
                return SEMEL_OK;
        struct sqlite_session ses;
        struct sqlite_gate gate;
        semel_code code = sqlite_boot_id_read(&in->boot_id, err);
        if (code == SEMEL_OK)
                code = sqlite_open_file(in->path, &sys_clock_host, &in->boot_id,
                                        &(struct sqlite_hooks){0}, &ses, &gate, err);
        if (code != SEMEL_OK)
                return code;
        (void)pthread_mutex_lock(&in->mu);
        in->ses = ses;
        in->gate = gate;
        in->open = true;
        (void)pthread_mutex_unlock(&in->mu);
        return SEMEL_OK;
}

bool sqlite_inbox_begin(struct sqlite_inbox *in, int64_t deadline_us, struct inbox_result *ret)
{
        *ret = (struct inbox_result){.end = INBOX_DONE};
        in->cancelled = false;
        semel_code code = ensure_open(in, &ret->err);
        if (code != SEMEL_OK) {
                ret->end = sqlite_inbox_end_of(code, INBOX_STOP);
                return false;
        }
        int64_t until_us = clock_boot_us() + SQLITE_INBOX_LOCK_US;
        if (until_us > deadline_us)
                until_us = deadline_us;
        gate_enter(&in->gate);
        do
                code = session_begin(&in->ses, SQL_BEGIN_IMMEDIATE, &sys_clock_host, &in->boot_id,
                                     &ret->err);
        while (code == SEMEL_ERR_BUSY && clock_boot_us() < until_us && !in->cancelled);
        if (code == SEMEL_OK) {
                err_clear(&ret->err);
                return true;
        }
        gate_leave(&in->gate);
        ret->end = sqlite_inbox_end_of(code, INBOX_STOP);
        if (code == SEMEL_ERR_UNSAFE || code == SEMEL_ERR_SCHEMA)
                shut(in); /* the file may be another one by now */
        return false;
}

void sqlite_inbox_end(struct sqlite_inbox *in, struct inbox_result *ret)
{
        bool committing = false;
        int rc = SQLITE_OK;
        if (ret->end == INBOX_DONE && sqlite3_get_autocommit(in->ses.db) == 0) {
                rc = session_save_mark(&in->ses);
                committing = rc == SQLITE_OK;
                if (committing)
                        rc = session_run(&in->ses, SQL_COMMIT);
        }
        if (rc != SQLITE_OK) {
                ret->end = sqlite_inbox_end_of(session_error(&in->ses, &ret->err), INBOX_FAILED);
                ret->failed_at = INBOX_AT_COMMIT;
                if (committing && (rc & 0xff) == SQLITE_IOERR)
                        ret->end = INBOX_BROKE; /* nobody knows: doing it again is safe */
        }
        session_rollback(&in->ses);
        gate_leave(&in->gate);
        if (ret->end == INBOX_BROKE)
                shut(in);
}

/* -- the handler ---------------------------------------------------------------------------------- */

static semel_code prepare(struct sqlite_inbox *in, const char *sql, semel_error *err)
{
        const char *tail = NULL;
        if (in->handler && in->handler_sql == sql)
                return SEMEL_OK;
        (void)sqlite3_finalize(in->handler);
        in->handler = NULL;
        if (inbox_sql_ends_transaction(sql))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--sql runs inside the transaction that records the event and must "
                               "not begin or end one");
        int rc = sqlite3_prepare_v3(in->ses.db, sql, -1, SQLITE_PREPARE_PERSISTENT, &in->handler,
                                    &tail);
        if (rc != SQLITE_OK || !in->handler)
                return err_set(err, SEMEL_ERR_ARGUMENT, "--sql does not prepare: %.500s",
                               rc == SQLITE_OK ? "it is empty" : sqlite3_errmsg(in->ses.db));
        if (tail && tail[strspn(tail, " ;\t\r\n")])
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--sql is one statement; put several into a trigger");
        if (sqlite3_bind_parameter_count(in->handler) > 5)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--sql has the parameters ?1 key, ?2 payload, ?3 event id, ?4 topic, "
                               "?5 headers, and no more");
        in->handler_sql = sql;
        return SEMEL_OK;
}

static void run_sql(struct sqlite_inbox *in, const struct inbox_handler *handler,
                    const struct inbox_event *e, struct inbox_result *ret)
{
        semel_code code = prepare(in, handler->sql, &ret->err);
        if (code != SEMEL_OK) {
                ret->end = INBOX_FAILED; /* a table that it needs is gone: the operator's business */
                return;
        }
        sqlite3_stmt *stmt = in->handler;
        (void)sqlite3_clear_bindings(stmt);
        if (!e->key_is_null)
                bind_text(stmt, 1, e->key);
        if (!e->payload_is_null && handler->payload_is_bytea)
                bind_bytes(stmt, 2, e->payload, false);
        else if (!e->payload_is_null)
                bind_text(stmt, 2, e->payload);
        bind_text(stmt, 3, e->id);
        bind_text(stmt, 4, e->topic);
        bind_text(stmt, 5, e->headers.n ? e->headers : span_str("[]"));
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK) {
                code = session_error(&in->ses, &ret->err);
                if (code == SEMEL_ERR_SCHEMA || code == SEMEL_ERR_INTERNAL)
                        (void)err_set(&ret->err, SEMEL_ERR_REFUSED, "the statement failed: %.500s",
                                      sqlite3_errmsg(in->ses.db));
                ret->end = in->cancelled ? INBOX_AGAIN : sqlite_inbox_end_of(code, INBOX_FAILED);
        }
}

void sqlite_inbox_handle(struct sqlite_inbox *in, const struct inbox_handler *handler,
                         const struct inbox_event *event, struct inbox_result *ret)
{
        if (handler->sql) {
                run_sql(in, handler, event, ret);
        } else if (handler->fn) {
                semel_error why = {0};
                if (handler->fn(handler->arg, in->ses.db, event, &why) != 0) {
                        int rc = sqlite3_extended_errcode(in->ses.db);
                        bool is_busy = (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
                        if (why.code == SEMEL_OK)
                                (void)err_set(&why, SEMEL_ERR_REFUSED, "the handler failed");
                        ret->err = why;
                        ret->end = is_busy || in->cancelled ? INBOX_AGAIN : INBOX_FAILED;
                }
        }
        if (ret->end == INBOX_DONE && sqlite3_get_autocommit(in->ses.db)) {
                (void)err_set(&ret->err, SEMEL_ERR_REFUSED,
                              "the handler ended the transaction it was given");
                ret->end = INBOX_FAILED;
        }
}

/* -- the interface ------------------------------------------------------------------------------ */

static semel_code check(struct inbox_session *s, const struct inbox_handler *handler,
                        int64_t deadline_us, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        (void)deadline_us;
        semel_code code = ensure_open(in, err);
        if (code == SEMEL_OK && handler && handler->sql)
                code = prepare(in, handler->sql, err);
        return code;
}

static semel_code counted(struct inbox_session *s, const struct inbox_event *event,
                          int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        (void)deadline_us;
        semel_code code = ensure_open(in, err);
        if (code != SEMEL_OK)
                return code;
        sqlite3_stmt *stmt = named(in, INBOX_SQL_COUNTED, event);
        int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;
        if (rc == SQLITE_ROW)
                *ret_attempts = sqlite3_column_int(stmt, 0);
        else if (rc == SQLITE_DONE)
                *ret_attempts = 0;
        else
                code = session_error(&in->ses, err);
        (void)sqlite3_reset(stmt);
        return code;
}

static semel_code count(struct inbox_session *s, const struct inbox_event *event, int number,
                        int64_t deadline_us, int *ret_attempts, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result ret;
        int attempts = 0;
        if (!sqlite_inbox_begin(in, deadline_us, &ret))
                return sqlite_inbox_code(&ret, err);
        sqlite3_stmt *stmt = named(in, INBOX_SQL_COUNT, event);
        if (stmt) {
                (void)sqlite3_bind_int(stmt, 4, number);
                (void)sqlite3_bind_int64(stmt, 5, in->ses.now.wall_us);
        }
        if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
                attempts = sqlite3_column_int(stmt, 0);
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK || attempts == 0)
                sqlite_inbox_failed(in, &ret);
        sqlite_inbox_end(in, &ret);
        if (ret.end == INBOX_DONE)
                *ret_attempts = attempts;
        return sqlite_inbox_code(&ret, err);
}

static semel_code count_back(struct inbox_session *s, const struct inbox_event *event, int number,
                             int64_t deadline_us, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result ret;
        if (!sqlite_inbox_begin(in, deadline_us, &ret))
                return sqlite_inbox_code(&ret, err);
        sqlite3_stmt *stmt = named(in, INBOX_SQL_COUNT_BACK, event);
        if (stmt)
                (void)sqlite3_bind_int(stmt, 4, number);
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                sqlite_inbox_failed(in, &ret);
        sqlite_inbox_end(in, &ret);
        return sqlite_inbox_code(&ret, err);
}

static semel_code seen(struct inbox_session *s, const struct inbox_event *events, size_t n,
                       int64_t deadline_us, bool *ret_seen, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        (void)deadline_us;
        semel_code code = ensure_open(in, err);
        for (size_t i = 0; i < n && code == SEMEL_OK; i++) {
                sqlite3_stmt *stmt = named(in, INBOX_SQL_SEEN, &events[i]);
                int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;
                ret_seen[i] = rc == SQLITE_ROW;
                if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                        code = session_error(&in->ses, err);
                (void)sqlite3_reset(stmt);
        }
        return code;
}

static int raise_alarm(struct sqlite_inbox *in, const struct inbox_event *e, size_t *alarms)
{
        if (!e->has_hash)
                return SQLITE_OK;
        sqlite3_stmt *stmt = named(in, INBOX_SQL_ALARM, e);
        if (!stmt)
                return sqlite3_extended_errcode(in->ses.db);
        bind_bytes(stmt, 4, span_of(e->hash, sizeof e->hash), false);
        (void)sqlite3_bind_int64(stmt, 5, in->ses.now.wall_us);
        bind_text(stmt, 6, e->topic);
        (void)sqlite3_bind_int(stmt, 7, e->partition);
        (void)sqlite3_bind_int64(stmt, 8, e->offset);
        int rc = sqlite_inbox_run(in, stmt);
        if (rc == SQLITE_OK && alarms && sqlite3_changes(in->ses.db) > 0)
                ++*alarms;
        return rc;
}

int sqlite_inbox_record(struct sqlite_inbox *in, const struct inbox_event *e, bool *ret_first,
                        size_t *alarms)
{
        sqlite3_stmt *stmt = named(in, INBOX_SQL_FIRST, e);
        if (!stmt)
                return sqlite3_extended_errcode(in->ses.db);
        bind_bytes(stmt, 4, span_of(e->hash, sizeof e->hash), !e->has_hash);
        (void)sqlite3_bind_int64(stmt, 5, in->ses.now.wall_us);
        int rc = sqlite_inbox_run(in, stmt);
        if (rc != SQLITE_OK)
                return rc;
        *ret_first = sqlite3_changes(in->ses.db) > 0;
        return *ret_first ? SQLITE_OK : raise_alarm(in, e, alarms);
}

static void apply(struct inbox_session *s, const struct inbox_event *events, size_t n,
                  const struct inbox_handler *handler, bool counted, int64_t deadline_us,
                  struct inbox_result *ret)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        assert(n > 0 && n <= LIMIT_INBOX_BATCH_ROWS);
        if (!sqlite_inbox_begin(in, deadline_us, ret))
                return;
        for (size_t i = 0; i < n && ret->end == INBOX_DONE; i++) {
                bool first = false;
                if (sqlite_inbox_record(in, &events[i], &first, &ret->alarms) != SQLITE_OK) {
                        sqlite_inbox_failed(in, ret);
                        break;
                }
                if (!first) {
                        ret->duplicates++;
                        continue;
                }
                if (in->cancelled) { /* no more of it is begun */
                        (void)err_set(&ret->err, SEMEL_ERR_BUSY, "the transaction was cancelled");
                        ret->end = INBOX_AGAIN;
                        break;
                }
                ret->failed_at = i;
                sqlite_inbox_handle(in, handler, &events[i], ret);
                ret->processed++;
        }
        if (ret->end == INBOX_DONE && counted &&
            sqlite_inbox_run(in, named(in, INBOX_SQL_UNCOUNT, &events[0])) != SQLITE_OK)
                sqlite_inbox_failed(in, ret);
        sqlite_inbox_end(in, ret);
        if (ret->end != INBOX_DONE)
                ret->processed = ret->duplicates = ret->alarms = 0;
}

static void cancel(struct inbox_session *s)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        (void)pthread_mutex_lock(&in->mu);
        in->cancelled = true;
        if (in->open)
                sqlite3_interrupt(in->ses.db);
        (void)pthread_mutex_unlock(&in->mu);
}

static void close_session(struct inbox_session *s)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        shut(in);
        (void)pthread_mutex_destroy(&in->mu);
        free(in->path);
        free(in);
}

static const struct inbox_vt sqlite_inbox_vt = {
        .name = "sqlite",
        .check = check,
        .count = count,
        .counted = counted,
        .count_back = count_back,
        .seen = seen,
        .apply = apply,
        .bury = sqlite_inbox_bury,
        .take = sqlite_inbox_take,
        .retry_one = sqlite_inbox_retry_one,
        .untake = sqlite_inbox_untake,
        .prune = sqlite_inbox_prune,
        .status = sqlite_inbox_status,
        .list = sqlite_inbox_list,
        .decide = sqlite_inbox_decide,
        .cancel = cancel,
        .close = close_session,
};

semel_code sqlite_inbox_open(const char *url, struct inbox_session **ret, semel_error *err)
{
        struct sqlite_inbox *in = calloc(1, sizeof *in);
        if (!in)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a session");
        in->s.vt = &sqlite_inbox_vt;
        in->gate.fd = -1;
        (void)pthread_mutex_init(&in->mu, NULL);
        semel_code code = sqlite_url_path(url, &in->path, err);
        if (code != SEMEL_OK) {
                close_session(&in->s);
                return code;
        }
        *ret = &in->s;
        return SEMEL_OK;
}
