/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox: see sqlite_outbox.h.  Connection, statements, transactions, waiting.
 */
#include "store/sqlite/sqlite_outbox.h"

#include <stdlib.h>
#include <time.h>

#include "core/limits.h"
#include "sql_sqlite.h"
#include "store/sqlite/sqlite_open.h"

enum {
        /* So often listen() looks whether somebody committed: a row waits 10 ms on average, and an
         * idle relay as a whole costs about half a percent of a core. */
        LISTEN_POLL_MS = 20,
        /* Virtual machine steps between two looks at the deadline: about 5 ms. */
        PROGRESS_STEPS = 100000,
};

static const char *const sql_text[OUTBOX_SQL_COUNT] = {
        [OUTBOX_SQL_FETCH] = sql_sqlite_outbox_fetch,
        [OUTBOX_SQL_BLOCKED] = sql_sqlite_outbox_blocked,
        [OUTBOX_SQL_DONE_DELETE] = sql_sqlite_outbox_done_delete,
        [OUTBOX_SQL_DONE_KEEP] = sql_sqlite_outbox_done_keep,
        [OUTBOX_SQL_LATER] = sql_sqlite_outbox_later,
        [OUTBOX_SQL_BURY] = sql_sqlite_outbox_bury,
        [OUTBOX_SQL_ROW_STATE] = sql_sqlite_outbox_row_state,
        [OUTBOX_SQL_SLOTS] = sql_sqlite_outbox_slots,
        [OUTBOX_SQL_SLOT_TAKE] = sql_sqlite_outbox_slot_take,
        [OUTBOX_SQL_SLOT_GIVE] = sql_sqlite_outbox_slot_give,
        [OUTBOX_SQL_META] = sql_sqlite_outbox_meta,
        [OUTBOX_SQL_DATA_VERSION] = sql_sqlite_outbox_data_version,
        [OUTBOX_SQL_PRUNE] = sql_sqlite_outbox_prune,
        [OUTBOX_SQL_PRUNE_COUNT] = sql_sqlite_outbox_prune_count,
        [OUTBOX_SQL_STATS_ABOUT] = sql_sqlite_outbox_stats_about,
        [OUTBOX_SQL_STATS] = sql_sqlite_outbox_stats,
        [OUTBOX_SQL_OLDEST] = sql_sqlite_outbox_oldest,
        [OUTBOX_SQL_AUDIT] = sql_sqlite_outbox_audit,
        [OUTBOX_SQL_LIST] = sql_sqlite_outbox_list,
        [OUTBOX_SQL_LIST_DEAD] = sql_sqlite_outbox_list_dead,
        [OUTBOX_SQL_RETRY] = sql_sqlite_outbox_retry,
        [OUTBOX_SQL_DISCARD] = sql_sqlite_outbox_discard,
        [OUTBOX_SQL_REPUBLISH] = sql_sqlite_outbox_republish,
        [OUTBOX_SQL_REPUBLISH_OLD] = sql_sqlite_outbox_republish_old,
};

/* -- statements ------------------------------------------------------------------------------- */

sqlite3_stmt *outbox_stmt(struct sqlite_outbox *o, enum outbox_sql which)
{
        sqlite3_stmt **stmt = &o->stmt[which];
        if (!*stmt)
                (void)sqlite3_prepare_v3(o->ses.db, sql_text[which], -1, SQLITE_PREPARE_PERSISTENT,
                                         stmt, NULL);
        if (*stmt) {
                (void)sqlite3_reset(*stmt);
                (void)sqlite3_clear_bindings(*stmt);
        }
        return *stmt;
}

int outbox_step(struct sqlite_outbox *o, sqlite3_stmt *stmt)
{
        if (!stmt)
                return sqlite3_extended_errcode(o->ses.db);
        int rc = sqlite3_step(stmt);
        bool ok = rc == SQLITE_DONE || rc == SQLITE_ROW;
        int final = sqlite3_reset(stmt);
        return ok ? SQLITE_OK : final;
}

semel_code outbox_error(struct sqlite_outbox *o, semel_error *err)
{
        int rc = sqlite3_extended_errcode(o->ses.db);
        if ((rc & 0xff) == SQLITE_INTERRUPT)
                return err_set(err, SEMEL_ERR_STORE_DOWN,
                               "%s did not answer in time: the disk is slow, or too much is asked "
                               "of it",
                               o->path);
        return sqlite_error(o->ses.db, rc, o->path, err);
}

/* -- connection ------------------------------------------------------------------------------- */

/* Runs now and then inside a long statement. */
static int is_late(void *arg)
{
        const struct sqlite_outbox *o = arg;
        return clock_boot_us() >= o->deadline_us;
}

static void disconnect(struct sqlite_outbox *o)
{
        for (int i = 0; i < OUTBOX_SQL_COUNT; i++) {
                (void)sqlite3_finalize(o->stmt[i]);
                o->stmt[i] = NULL;
        }
        if (o->open) {
                session_close(&o->ses);
                gate_close(&o->gate);
        }
        o->open = false;
        o->holds_relay = false;
        o->data_version = -1;
}

static void limit_pages(struct sqlite_outbox *o)
{
        char sql[64];
        if (o->max_page_count <= 0)
                return;
        (void)sqlite3_snprintf((int)sizeof sql, sql, "PRAGMA max_page_count=%d", o->max_page_count);
        (void)sqlite3_exec(o->ses.db, sql, NULL, NULL, NULL);
}

static semel_code connect_file(struct sqlite_outbox *o, semel_error *err)
{
        int64_t left_ms = (o->deadline_us - clock_boot_us()) / MS;
        const struct sqlite_hooks hooks = {
                .vfs = o->vfs,
                .open_wait_ms = left_ms > 1 ? (int)(left_ms > 60000 ? 60000 : left_ms) : 1};
        semel_code code = sqlite_open_file(o->path, &sys_clock_host, &o->boot_id, &hooks, &o->ses,
                                           &o->gate, err);
        if (code != SEMEL_OK)
                return code;
        o->open = true;
        sqlite3_progress_handler(o->ses.db, PROGRESS_STEPS, is_late, o);
        limit_pages(o);
        if (outbox_functions(o->ses.db, o) != SQLITE_OK)
                code = outbox_error(o, err);
        if (code == SEMEL_OK)
                code = outbox_map(o->ses.db, o->path, &o->mapping, err);
        if (code != SEMEL_OK)
                disconnect(o);
        return code;
}

semel_code outbox_ready(struct sqlite_outbox *o, int64_t deadline_us, semel_error *err)
{
        o->deadline_us = deadline_us;
        return o->open ? SEMEL_OK : connect_file(o, err);
}

/* -- transactions ------------------------------------------------------------------------------- */

semel_code outbox_begin_write(struct sqlite_outbox *o, semel_error *err)
{
        for (;;) {
                gate_enter(&o->gate);
                semel_code code = session_begin(&o->ses, SQL_BEGIN_IMMEDIATE, &sys_clock_host,
                                                &o->boot_id, err);
                if (code == SEMEL_OK)
                        return SEMEL_OK;
                gate_leave(&o->gate);
                if (code != SEMEL_ERR_BUSY || clock_boot_us() >= o->deadline_us)
                        return code;
        }
}

semel_code outbox_abort(struct sqlite_outbox *o, semel_code code)
{
        session_rollback(&o->ses);
        gate_leave(&o->gate);
        return code;
}

semel_code outbox_commit(struct sqlite_outbox *o, semel_error *err)
{
        semel_code code = SEMEL_OK;
        /* SQLite ends the transaction by itself after some errors (B9); a COMMIT of nothing would
         * be answered OK. */
        if (sqlite3_get_autocommit(o->ses.db) || session_save_mark(&o->ses) != SQLITE_OK) {
                code = outbox_error(o, err);
                if (code == SEMEL_OK)
                        code = err_set(err, SEMEL_ERR_INTERNAL, "%s lost a transaction", o->path);
                return outbox_abort(o, code);
        }
        int rc = session_run(&o->ses, SQL_COMMIT);
        if (rc == SQLITE_OK)
                goto out;
        switch (rc & 0xff) {
        case SQLITE_FULL: /* a WAL without its commit frame is no transaction */
        case SQLITE_BUSY:
        case SQLITE_READONLY:
        case SQLITE_INTERRUPT:
                code = outbox_error(o, err);
                break;
        default:
                code = err_set(err, SEMEL_ERR_UNKNOWN,
                               "%s did not say whether it kept the write: look at its disk",
                               o->path);
        }
out:
        return outbox_abort(o, code);
}

semel_code outbox_end(struct sqlite_outbox *o, semel_code code, semel_error *err)
{
        return code == SEMEL_OK ? outbox_commit(o, err) : outbox_abort(o, code);
}

semel_code outbox_begin_read(struct sqlite_outbox *o, semel_error *err)
{
        for (;;) {
                semel_code code = session_begin(&o->ses, SQL_BEGIN_READ, &sys_clock_host,
                                                &o->boot_id, err);
                if (code != SEMEL_ERR_BUSY || clock_boot_us() >= o->deadline_us)
                        return code;
        }
}

void outbox_end_read(struct sqlite_outbox *o)
{
        session_rollback(&o->ses);
}

int64_t outbox_schema_cookie(struct sqlite_outbox *o)
{
        sqlite3_stmt *stmt = NULL;
        int64_t cookie = -1;
        if (sqlite3_prepare_v2(o->ses.db, "PRAGMA main.schema_version", -1, &stmt, NULL) ==
                    SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW)
                cookie = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_finalize(stmt);
        return cookie;
}

/* -- waiting ---------------------------------------------------------------------------------------- */

static semel_code data_version(struct sqlite_outbox *o, int64_t *ret, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_DATA_VERSION);
        if (!stmt || sqlite3_step(stmt) != SQLITE_ROW) {
                semel_code code = outbox_error(o, err);
                (void)sqlite3_reset(stmt);
                return code;
        }
        *ret = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
        return SEMEL_OK;
}

/* Nothing tells one process of another's commit, but SQLite counts them.  The first call returns at
 * once: what was committed before it is not known to be seen. */
static semel_code sqlite_outbox_listen(struct outbox_session *s, int64_t timeout_us,
                                       uint32_t *ret_slots, semel_error *err)
{
        static const struct timespec nap = {.tv_nsec = LISTEN_POLL_MS * 1000000L};
        struct sqlite_outbox *o = outbox_of(s);
        int64_t until_us = clock_boot_us() + timeout_us, version = 0;
        semel_code code = outbox_ready(o, until_us + 1 * SECOND, err);
        if (code != SEMEL_OK)
                return code;
        for (;;) {
                code = data_version(o, &version, err);
                if (code != SEMEL_OK)
                        return code;
                bool woken = version != o->data_version;
                o->data_version = version;
                if (woken || clock_boot_us() >= until_us) {
                        *ret_slots = woken ? EVENT_ALL_SLOTS : 0; /* whose they are is not told */
                        return SEMEL_OK;
                }
                (void)nanosleep(&nap, NULL);
        }
}

/* -- what does not exist here -------------------------------------------------------------------- */

static void sqlite_outbox_abandon(struct outbox_session *s)
{
        (void)s; /* no transaction is open while the broker works */
}

static semel_code sqlite_outbox_recover(struct outbox_session *s, bool keep,
                                        const struct outbox_slot *slots, size_t slot_count,
                                        const int64_t *ids,
                                        const uint8_t (*event_ids)[EVENT_ID_BYTES],
                                        const int64_t *published_us, size_t n, int64_t deadline_us,
                                        size_t *ret_finished, semel_error *err)
{
        (void)s, (void)keep, (void)slots, (void)slot_count, (void)ids, (void)event_ids;
        (void)published_us, (void)deadline_us;
        if (n == 0) {
                *ret_finished = 0;
                return SEMEL_OK;
        }
        return err_set(err, SEMEL_ERR_ARGUMENT,
                       "exactly-once needs PostgreSQL: on SQLite the relay has the mode owned alone");
}

static semel_code sqlite_outbox_unstick(struct outbox_session *s, const struct outbox_slot *slots,
                                        size_t slot_count, int64_t stuck_after_us,
                                        int64_t deadline_us, size_t *ret_rows, semel_error *err)
{
        (void)s, (void)slots, (void)slot_count, (void)stuck_after_us, (void)deadline_us, (void)err;
        *ret_rows = 0; /* nothing is ever PUBLISHING */
        return SEMEL_OK;
}

/* -- life -------------------------------------------------------------------------------------------- */

static void sqlite_outbox_close(struct outbox_session *s)
{
        struct sqlite_outbox *o = outbox_of(s);
        if (!s)
                return;
        disconnect(o);
        outbox_mapping_release(&o->mapping);
        buf_release(&o->blocked_keys);
        free(o->blocked_rows);
        free(o->path);
        free(o);
}

const struct outbox_vt sqlite_outbox_vt = {
        .name = "sqlite",
        .check = sqlite_outbox_check,
        .beat = sqlite_outbox_beat,
        .take = sqlite_outbox_take,
        .give = sqlite_outbox_give,
        .leave = sqlite_outbox_leave,
        .fetch = sqlite_outbox_fetch,
        .mark = sqlite_outbox_mark,
        .abandon = sqlite_outbox_abandon,
        .blocked = sqlite_outbox_blocked,
        .recover = sqlite_outbox_recover,
        .unstick = sqlite_outbox_unstick,
        .prune = sqlite_outbox_prune,
        .listen = sqlite_outbox_listen,
        .stats = sqlite_outbox_stats,
        .list = sqlite_outbox_list,
        .retry = sqlite_outbox_retry,
        .discard = sqlite_outbox_discard,
        .republish = sqlite_outbox_republish,
        .close = sqlite_outbox_close,
};

semel_code sqlite_outbox_open_with(const char *url, const struct outbox_mapping *mapping,
                                   const struct sqlite_hooks *hooks, struct outbox_session **ret,
                                   semel_error *err)
{
        static const struct outbox_mapping own = {.preset = "semel"};
        struct sqlite_outbox *o = calloc(1, sizeof *o);
        if (!o)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an outbox session");
        o->s.vt = &sqlite_outbox_vt;
        o->gate.fd = -1;
        o->data_version = -1;
        o->vfs = hooks->vfs;
        o->max_page_count = hooks->max_page_count;
        buf_init(&o->blocked_keys,
                 (size_t)LIMIT_OUTBOX_BLOCKED_KEYS * (LIMIT_EVENT_KEY_BYTES + 1));
        semel_code code = sqlite_url_path(url, &o->path, err);
        if (code == SEMEL_OK)
                code = outbox_mapping_copy(mapping ? mapping : &own, &o->mapping, err);
        if (code == SEMEL_OK)
                code = sqlite_boot_id_read(&o->boot_id, err);
        if (code != SEMEL_OK) {
                sqlite_outbox_close(&o->s);
                return code;
        }
        *ret = &o->s;
        return SEMEL_OK;
}

semel_code sqlite_outbox_open(const char *url, const struct outbox_mapping *mapping,
                              const char *name, struct outbox_session **ret, semel_error *err)
{
        (void)name; /* SQLite's connections have no names */
        return sqlite_outbox_open_with(url, mapping, &(struct sqlite_hooks){0}, ret, err);
}
