/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_admin: what operators see and do, and the clean-up of published rows.
 *
 * Times that people give or read are of the wall clock; published_at is kept on the file's own
 * calendar, which is `lag` behind it (sqlite_clock.h).
 */
#include "store/sqlite/sqlite_outbox.h"

#include <stdlib.h>

#include "core/limits.h"

/* An open write transaction. */
static int64_t now_us(const struct sqlite_outbox *o)
{
        return o->ses.now.wall_us;
}

static int64_t lag_us(const struct sqlite_outbox *o)
{
        return o->ses.mark.lag_us;
}

/* Step; how many rows of the outbox it changed goes to *ret when that is not NULL.  A view's
 * changes are those of its trigger. */
static semel_code run(struct sqlite_outbox *o, sqlite3_stmt *stmt, int64_t *ret, semel_error *err)
{
        int before = sqlite3_total_changes(o->ses.db);
        if (outbox_step(o, stmt) != SQLITE_OK)
                return outbox_error(o, err);
        if (ret)
                *ret = sqlite3_total_changes(o->ses.db) - before;
        return SEMEL_OK;
}

/* -- prune ------------------------------------------------------------------------------------ */

static semel_code prune_count(struct sqlite_outbox *o, int64_t keep_us, int64_t *ret,
                              semel_error *err)
{
        semel_code code = outbox_begin_read(o, err);
        if (code != SEMEL_OK)
                return code;
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_PRUNE_COUNT);
        if (stmt)
                (void)sqlite3_bind_int64(stmt, 1, now_us(o) - keep_us);
        if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
                *ret = o->ses.now.expiry_frozen ? 0 : sqlite3_column_int64(stmt, 0);
        else
                code = outbox_error(o, err);
        (void)sqlite3_reset(stmt);
        outbox_end_read(o);
        return code;
}

semel_code sqlite_outbox_prune(struct outbox_session *s, int64_t keep_us, bool dry,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        int64_t rows = 0;
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code == SEMEL_OK && dry)
                return prune_count(o, keep_us, ret_rows, err);
        if (code == SEMEL_OK)
                code = outbox_begin_write(o, err);
        if (code != SEMEL_OK)
                return code;
        if (!o->ses.now.expiry_frozen) { /* the clocks agree on how old a row is */
                sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_PRUNE);
                if (stmt) {
                        (void)sqlite3_bind_int64(stmt, 1, now_us(o) - keep_us);
                        (void)sqlite3_bind_int(stmt, 2, LIMIT_OUTBOX_PRUNE_ROWS);
                }
                code = run(o, stmt, &rows, err);
        }
        code = outbox_end(o, code, err);
        if (code == SEMEL_OK)
                *ret_rows = rows;
        return code;
}

/* -- stats -------------------------------------------------------------------------------------- */

/* What stats and list give out: spans point into `bytes`. */
struct answer {
        void *rows;
        struct buf bytes;
};

static void answer_free(void *driver)
{
        struct answer *a = driver;
        if (!a)
                return;
        free(a->rows);
        buf_release(&a->bytes);
        free(a);
}

static struct answer *answer_new(size_t rows_bytes, size_t bytes_max)
{
        struct answer *a = calloc(1, sizeof *a);
        if (!a)
                return NULL;
        buf_init(&a->bytes, bytes_max);
        a->rows = calloc(1, rows_bytes ? rows_bytes : 1);
        if (a->rows)
                return a;
        free(a);
        return NULL;
}

/* A copy in the answer; its place, until the buffer stands still, as an offset. */
static bool keep(struct answer *a, struct span from, struct span *ret)
{
        *ret = (struct span){(const uint8_t *)(uintptr_t)a->bytes.n, from.n};
        return buf_append_span(&a->bytes, from) == BUF_OK;
}

static void settle(const struct answer *a, struct span *s)
{
        s->p = s->n ? a->bytes.p + (uintptr_t)s->p : NULL;
}

static enum outbox_state state_of(const char *name)
{
        for (int i = 0; i < OUTBOX_STATES; i++)
                if (name && strcmp(name, outbox_state_name((enum outbox_state)i)) == 0)
                        return (enum outbox_state)i;
        return OUTBOX_PENDING;
}

enum { STATS_MAX = 3 * 1000 /* more topics than anybody looks at */, STATS_BYTES = 1 << 20,
       COUNT_KEPT_MAX = 100000 /* a twentieth of a second; the relay counts each 15 s */ };

/* Kept rows exactly while they are few; else about, without topics, as PostgreSQL's driver does. */
static semel_code count_kept(struct sqlite_outbox *o, struct outbox_count *count, size_t *n,
                             semel_error *err)
{
        int64_t kept = 0, open = 0;
        size_t first = 0;
        for (size_t i = 0; i < *n; i++) {
                bool is_kept = count[i].state == OUTBOX_PUBLISHED;
                kept += is_kept ? count[i].rows : 0;
                open += is_kept ? 0 : count[i].rows;
                first += !is_kept;
        }
        if (kept < COUNT_KEPT_MAX)
                return SEMEL_OK;
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_STATS_ABOUT);
        int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;
        int64_t about = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) - open : 0;
        semel_code code = rc == SQLITE_ROW ? SEMEL_OK : outbox_error(o, err);
        (void)sqlite3_reset(stmt);
        count[first] = (struct outbox_count){.state = OUTBOX_PUBLISHED,
                                             .rows = about > kept ? about : kept};
        *n = first + 1;
        return code;
}

static semel_code read_counts(struct sqlite_outbox *o, struct answer *a, size_t *ret_n,
                              semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_STATS);
        struct outbox_count *count = a->rows;
        if (stmt)
                (void)sqlite3_bind_int(stmt, 1, COUNT_KEPT_MAX);
        size_t n = 0;
        int rc = stmt ? SQLITE_DONE : SQLITE_ERROR;
        while (stmt && n < STATS_MAX && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                count[n].state = state_of((const char *)sqlite3_column_text(stmt, 0));
                if (!keep(a, column_span(stmt, 1), &count[n].topic))
                        break; /* no room: what was read so far is told */
                count[n].rows = sqlite3_column_int64(stmt, 2);
                n++;
        }
        semel_code code = rc == SQLITE_DONE || rc == SQLITE_ROW ? SEMEL_OK : outbox_error(o, err);
        (void)sqlite3_reset(stmt);
        for (size_t i = 0; i < n; i++)
                settle(a, &count[i].topic);
        if (code == SEMEL_OK)
                code = count_kept(o, count, &n, err);
        *ret_n = n;
        return code;
}

static semel_code read_oldest(struct sqlite_outbox *o, int64_t *ret_us, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_OLDEST);
        int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;
        semel_code code = SEMEL_OK;
        int64_t age_us = -1;
        if (rc == SQLITE_ROW && sqlite3_column_int64(stmt, 0) > 0) { /* else it does not say */
                age_us = now_us(o) + lag_us(o) - sqlite3_column_int64(stmt, 0);
                age_us = age_us > 0 ? age_us : 0;
        } else if (rc != SQLITE_DONE && rc != SQLITE_ROW) {
                code = outbox_error(o, err);
        }
        (void)sqlite3_reset(stmt);
        *ret_us = age_us;
        return code;
}

semel_code sqlite_outbox_stats(struct outbox_session *s, int64_t deadline_us,
                               struct outbox_stats *ret, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        struct outbox_stats stats = {.oldest_xmin_us = -1};
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        struct answer *a = answer_new(STATS_MAX * sizeof *stats.count, STATS_BYTES);
        if (!a)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for counts");
        code = outbox_begin_read(o, err);
        if (code == SEMEL_OK) {
                code = read_counts(o, a, &stats.n, err);
                if (code == SEMEL_OK)
                        code = read_oldest(o, &stats.oldest_pending_us, err);
                outbox_end_read(o);
        }
        if (code != SEMEL_OK) {
                answer_free(a);
                return code;
        }
        stats.count = a->rows;
        stats.driver = a;
        stats.release = answer_free;
        *ret = stats;
        return SEMEL_OK;
}

/* -- list ----------------------------------------------------------------------------------------- */

enum { LIST_MAX = 1000, LIST_BYTES = 64 << 20 };

static bool list_row(struct sqlite_outbox *o, struct answer *a, sqlite3_stmt *stmt,
                     enum outbox_state state, struct outbox_listed *row)
{
        bool waits = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
        bool published = sqlite3_column_type(stmt, 4) != SQLITE_NULL;
        *row = (struct outbox_listed){
                .id = sqlite3_column_int64(stmt, 0),
                .state = state,
                .attempts = sqlite3_column_int(stmt, 1),
                .created_us = sqlite3_column_int64(stmt, 2),
                .next_attempt_us = waits ? sqlite3_column_int64(stmt, 3) + lag_us(o) : 0,
                .published_us = published ? sqlite3_column_int64(stmt, 4) + lag_us(o) : 0,
                .key_is_null = sqlite3_column_type(stmt, 6) == SQLITE_NULL};
        outbox_event_id(column_span(stmt, 8), row->event_id);
        return keep(a, column_span(stmt, 5), &row->topic) &&
               keep(a, column_span(stmt, 6), &row->key) &&
               keep(a, column_span(stmt, 7), &row->last_error);
}

static sqlite3_stmt *list_stmt(struct sqlite_outbox *o, enum outbox_state state, int64_t after_id,
                               size_t max)
{
        bool dead = state == OUTBOX_DEAD;
        sqlite3_stmt *stmt = outbox_stmt(o, dead ? OUTBOX_SQL_LIST_DEAD : OUTBOX_SQL_LIST);
        int at = 1;
        if (!stmt)
                return NULL;
        if (!dead)
                bind_str(stmt, at++, outbox_state_name(state));
        (void)sqlite3_bind_int64(stmt, at, after_id);
        (void)sqlite3_bind_int64(stmt, at + 1, (int64_t)max);
        return stmt;
}

semel_code sqlite_outbox_list(struct outbox_session *s, enum outbox_state state, int64_t after_id,
                              size_t max, int64_t deadline_us, struct outbox_list *ret,
                              semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        if (max > LIST_MAX)
                max = LIST_MAX;
        struct answer *a = answer_new(max * sizeof *ret->row, LIST_BYTES);
        if (!a)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a list of rows");
        struct outbox_listed *row = a->rows;
        size_t n = 0;
        code = outbox_begin_read(o, err);
        if (code == SEMEL_OK) {
                sqlite3_stmt *stmt = list_stmt(o, state, after_id, max);
                int rc = stmt ? SQLITE_DONE : SQLITE_ERROR;
                while (stmt && n < max && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
                        if (!list_row(o, a, stmt, state, &row[n++]))
                                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a list");
                if (rc != SQLITE_DONE && rc != SQLITE_ROW)
                        code = outbox_error(o, err);
                (void)sqlite3_reset(stmt);
                outbox_end_read(o);
        }
        if (code != SEMEL_OK) {
                answer_free(a);
                return code;
        }
        for (size_t i = 0; i < n; i++) {
                settle(a, &row[i].topic);
                settle(a, &row[i].key);
                settle(a, &row[i].last_error);
        }
        *ret = (struct outbox_list){.row = row, .n = n, .driver = a, .release = answer_free};
        return SEMEL_OK;
}

/* -- verbs ------------------------------------------------------------------------------------------ */

struct audit {
        const char *verb, *who, *why, *before, *after;
        int64_t id; /* 0: several rows */
        int64_t rows;
};

static semel_code audit(struct sqlite_outbox *o, const struct audit *a, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_AUDIT);
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, now_us(o) + lag_us(o));
                bind_str(stmt, 2, a->verb);
                bind_str(stmt, 3, a->who);
                bind_str(stmt, 4, a->why);
                bind_str(stmt, 5, a->before);
                bind_str(stmt, 6, a->after);
                if (a->id != 0)
                        (void)sqlite3_bind_int64(stmt, 7, a->id);
                (void)sqlite3_bind_int64(stmt, 8, a->rows);
        }
        return run(o, stmt, NULL, err);
}

static semel_code retry_in_tx(struct sqlite_outbox *o, int64_t id, const char *who,
                              int64_t *ret_rows, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_RETRY);
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, id);
                (void)sqlite3_bind_int(stmt, 2, LIMIT_OUTBOX_PRUNE_ROWS);
        }
        semel_code code = run(o, stmt, ret_rows, err);
        if (code != SEMEL_OK || *ret_rows == 0)
                return code;
        return audit(o,
                     &(struct audit){.verb = "retry",
                                     .who = who,
                                     .before = "DEAD",
                                     .after = "PENDING",
                                     .id = id,
                                     .rows = *ret_rows},
                     err);
}

static semel_code begin(struct sqlite_outbox *o, int64_t deadline_us, semel_error *err)
{
        semel_code code = outbox_ready(o, deadline_us, err);
        return code == SEMEL_OK ? outbox_begin_write(o, err) : code;
}

semel_code sqlite_outbox_retry(struct outbox_session *s, int64_t id, const char *who,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        int64_t rows = 0;
        semel_code code = begin(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        code = retry_in_tx(o, id, who, &rows, err);
        code = outbox_end(o, code, err);
        if (code == SEMEL_OK)
                *ret_rows = rows;
        return code;
}

/* Nothing was deleted: because the row is not DEAD, or not there? */
static semel_code refuse_discard(struct sqlite_outbox *o, int64_t id, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_ROW_STATE);
        if (!stmt)
                return outbox_error(o, err);
        (void)sqlite3_bind_int64(stmt, 1, id);
        int rc = sqlite3_step(stmt);
        semel_code code;
        if (rc == SQLITE_ROW)
                code = err_set(err, SEMEL_ERR_REFUSED,
                               "row %lld is %s: only DEAD rows are discarded", (long long)id,
                               (const char *)sqlite3_column_text(stmt, 0));
        else if (rc == SQLITE_DONE)
                code = err_set(err, SEMEL_ERR_NOT_FOUND,
                               "there is no row %lld: `semel outbox dead list` shows the DEAD ones",
                               (long long)id);
        else
                code = outbox_error(o, err);
        (void)sqlite3_reset(stmt);
        return code;
}

semel_code sqlite_outbox_discard(struct outbox_session *s, int64_t id, const char *who,
                                 const char *reason, int64_t deadline_us, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        int64_t rows = 0;
        semel_code code = begin(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        code = audit(o,
                     &(struct audit){.verb = "discard",
                                     .who = who,
                                     .why = reason,
                                     .before = "DEAD",
                                     .after = "discarded",
                                     .id = id,
                                     .rows = 1},
                     err);
        if (code == SEMEL_OK) {
                sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_DISCARD);
                if (stmt)
                        (void)sqlite3_bind_int64(stmt, 1, id);
                code = run(o, stmt, &rows, err);
        }
        if (code == SEMEL_OK && rows == 0)
                code = refuse_discard(o, id, err);
        return outbox_end(o, code, err);
}

static sqlite3_stmt *range_stmt(struct sqlite_outbox *o, enum outbox_sql which,
                                const struct outbox_again *again, int64_t third)
{
        sqlite3_stmt *stmt = outbox_stmt(o, which);
        if (!stmt)
                return NULL;
        (void)sqlite3_bind_int64(stmt, 1, again->since_us);
        (void)sqlite3_bind_int64(stmt, 2, again->until_us);
        (void)sqlite3_bind_int64(stmt, 3, third);
        return stmt;
}

/* C10: what a consumer's inbox has forgotten, it would apply again. */
static semel_code refuse_old(struct sqlite_outbox *o, const struct outbox_again *again,
                             semel_error *err)
{
        if (again->retention_us < 0)
                return SEMEL_OK;
        int64_t remembered_us = now_us(o) - again->retention_us;
        sqlite3_stmt *stmt = range_stmt(o, OUTBOX_SQL_REPUBLISH_OLD, again, remembered_us);
        if (stmt)
                (void)sqlite3_bind_int64(stmt, 4, remembered_us + lag_us(o));
        if (!stmt || sqlite3_step(stmt) != SQLITE_ROW) {
                semel_code code = outbox_error(o, err);
                (void)sqlite3_reset(stmt);
                return code;
        }
        int64_t old = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
        if (old == 0)
                return SEMEL_OK;
        return err_set(err, SEMEL_ERR_REFUSED,
                       "%lld of these rows were made or published longer ago than the %lld s for which "
                       "consumers remember events: they would apply them again",
                       (long long)old, (long long)(again->retention_us / SECOND));
}

/* Once a command, in its first transaction: from here on no other row comes into the range. */
static semel_code begin_again(struct sqlite_outbox *o, struct outbox_again *again, semel_error *err)
{
        struct outbox_again fixed = *again;
        if (again->begun)
                return SEMEL_OK;
        fixed.since_us -= lag_us(o);
        fixed.until_us -= lag_us(o);
        if (fixed.until_us > now_us(o))
                fixed.until_us = now_us(o);
        fixed.begun = true;
        semel_code code = refuse_old(o, &fixed, err);
        if (code == SEMEL_OK)
                *again = fixed;
        return code;
}

semel_code sqlite_outbox_republish(struct outbox_session *s, struct outbox_again *again,
                                   const char *who, int64_t deadline_us, int64_t *ret_rows,
                                   semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        int64_t rows = 0;
        semel_code code = begin(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        code = begin_again(o, again, err);
        if (code == SEMEL_OK)
                code = run(o, range_stmt(o, OUTBOX_SQL_REPUBLISH, again, LIMIT_OUTBOX_PRUNE_ROWS), &rows,
                           err);
        if (code == SEMEL_OK && rows > 0)
                code = audit(o,
                             &(struct audit){.verb = "republish",
                                             .who = who,
                                             .before = "PUBLISHED",
                                             .after = "PENDING",
                                             .rows = rows},
                             err);
        code = outbox_end(o, code, err);
        if (code == SEMEL_OK)
                *ret_rows = rows;
        return code;
}
