/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_row: see sqlite_row.h.
 */
#include "store/sqlite/sqlite_row.h"

enum { FLAG_RETRY = 1, FLAG_IDEMPOTENT = 2, FLAG_MAYBE_EXECUTED = 4 };

/* Columns of select_row.sql, list_rows.sql and sweep_rows.sql. */
enum {
        COL_ROWID,
        COL_ID,
        COL_STATE,
        COL_TOKEN,
        COL_ATTEMPT,
        COL_FINGERPRINT,
        COL_FLAGS,
        COL_BOOT,
        COL_LEASE_UNTIL,
        COL_LEASE_LEN,
        COL_CLAIMED,
        COL_REQUEST_UNTIL,
        COL_RETENTION,
        COL_EXPIRE,
        COL_CREATED,
};

/* Times beyond this come from damage; within it, sums of two do not overflow. */
#define TIME_MAX_US (INT64_MAX / 4)

/* -- reading ------------------------------------------------------------------------- */

static bool decode_bytes(sqlite3_stmt *stmt, int col, uint8_t *ret, size_t n)
{
        struct span s = column_span(stmt, col);
        if (s.n != n)
                return false;
        memcpy(ret, s.p, n);
        return true;
}

static bool decode_time(sqlite3_stmt *stmt, int col, int64_t *ret)
{
        int64_t v = sqlite3_column_int64(stmt, col);
        if (v > TIME_MAX_US || v < -TIME_MAX_US)
                return false;
        *ret = v;
        return true;
}

static bool decode_times(sqlite3_stmt *stmt, struct command_row *row)
{
        return decode_time(stmt, COL_LEASE_UNTIL, &row->lease_until_us) &&
               decode_time(stmt, COL_LEASE_LEN, &row->lease_len_us) &&
               decode_time(stmt, COL_CLAIMED, &row->claimed_us) &&
               decode_time(stmt, COL_REQUEST_UNTIL, &row->request_until_us) &&
               decode_time(stmt, COL_RETENTION, &row->retention_us) &&
               decode_time(stmt, COL_EXPIRE, &row->expire_us) &&
               decode_time(stmt, COL_CREATED, &row->created_us);
}

static bool decode_row(sqlite3_stmt *stmt, struct command_row *row)
{
        int64_t state = sqlite3_column_int64(stmt, COL_STATE);
        if (state < 0 || state >= COMMAND_STATES)
                return false;
        int flags = sqlite3_column_int(stmt, COL_FLAGS);
        row->state = (enum command_state)state;
        row->token = sqlite3_column_int64(stmt, COL_TOKEN);
        row->policy.retry = flags & FLAG_RETRY;
        row->policy.idempotent = flags & FLAG_IDEMPOTENT;
        row->maybe_executed = flags & FLAG_MAYBE_EXECUTED;
        return row->token < INT64_MAX && row->token >= 0 &&
               decode_bytes(stmt, COL_ID, row->id.b, sizeof row->id.b) &&
               decode_bytes(stmt, COL_ATTEMPT, row->attempt.b, sizeof row->attempt.b) &&
               decode_bytes(stmt, COL_FINGERPRINT, row->fingerprint.b,
                            sizeof row->fingerprint.b) &&
               decode_times(stmt, row);
}

enum row_result row_decode(const struct sqlite_session *ses, sqlite3_stmt *stmt,
                           struct sqlite_row *ret, semel_error *err)
{
        struct sqlite_row r = {.rowid = sqlite3_column_int64(stmt, COL_ROWID)};
        if (!decode_row(stmt, &r.row)) {
                (void)err_set(err, SEMEL_ERR_CORRUPT,
                              "row %lld of semel_command in %s is damaged: look at it, then delete "
                              "it",
                              (long long)r.rowid, ses->name);
                return ROW_REFUSED;
        }
        if (sqlite3_column_int64(stmt, COL_BOOT) != ses->mark.boot_no) {
                /* Moments of another boot mean nothing on this boot's clock: 0, also for whoever reads the
                 * row once it was written so. */
                r.row.lease_until_us = 0;
                r.row.claimed_us = 0;
                r.row.request_until_us = 0;
        }
        *ret = r;
        return ROW_OK;
}

enum row_result row_select(struct sqlite_session *ses, const struct command_id *id,
                           struct sqlite_row *ret, semel_error *err)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_SELECT_ROW);
        if (!stmt)
                return ROW_FAILED;
        bind_span(stmt, 1, span_of(id->b, sizeof id->b));
        int rc = sqlite3_step(stmt);
        enum row_result result = ROW_FAILED;
        if (rc == SQLITE_ROW)
                result = row_decode(ses, stmt, ret, err);
        else if (rc == SQLITE_DONE)
                result = ROW_NONE;
        (void)sqlite3_reset(stmt);
        return result;
}

static enum row_result no_memory(semel_error *err)
{
        (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory to read a row");
        return ROW_NO_MEMORY;
}

static enum row_result record_result(int rc, const char *what, semel_error *err)
{
        if (rc == BUF_OK)
                return ROW_OK;
        if (rc == BUF_NO_MEMORY)
                return no_memory(err);
        (void)err_set(err, SEMEL_ERR_CORRUPT, "a kept %s is larger than semel ever writes", what);
        return ROW_REFUSED;
}

enum row_result row_decode_label(sqlite3_stmt *stmt, int at, struct store_record *rec,
                                 semel_error *err)
{
        int64_t mode = sqlite3_column_int64(stmt, at);
        if (mode < 0 || mode >= COMMAND_MODES) {
                (void)err_set(err, SEMEL_ERR_CORRUPT, "a row has mode %lld, which does not exist",
                              (long long)mode);
                return ROW_REFUSED;
        }
        const struct store_label label = {
                .mode = (enum command_mode)mode,
                .scope = column_span(stmt, at + 1),
                .operation = column_span(stmt, at + 2),
                .key = column_span(stmt, at + 3),
                .holder = column_span(stmt, at + 4),
        };
        return record_result(store_record_set_label(rec, &label), "label", err);
}

static enum row_result decode_reply(sqlite3_stmt *stmt, struct store_record *rec,
                                    semel_error *err)
{
        if (sqlite3_column_type(stmt, 5) == SQLITE_NULL)
                return ROW_OK; /* has_reply stays false */
        const struct store_reply rep = {
                .status = sqlite3_column_int(stmt, 5),
                .flags = (uint32_t)sqlite3_column_int64(stmt, 6),
                .headers = column_span(stmt, 7),
                .body = column_span(stmt, 8),
        };
        return record_result(store_record_set_reply(rec, &rep), "reply", err);
}

void row_show(const struct sqlite_session *ses, const struct command_row *row,
              struct store_record *rec)
{
        rec->row = *row;
        rec->row.created_us += ses->mark.lag_us;
        if (row->expire_us != 0)
                rec->row.expire_us += ses->mark.lag_us;
        rec->now = ses->now;
        rec->now.wall_us += ses->mark.lag_us;
}

enum row_result row_load_record(struct sqlite_session *ses, const struct sqlite_row *r,
                                bool with_reply, struct store_record *rec, semel_error *err)
{
        sqlite3_stmt *stmt = session_stmt(ses, with_reply ? SQL_SELECT_REPLY : SQL_SELECT_LABEL);
        if (!stmt)
                return ROW_FAILED;
        (void)sqlite3_bind_int64(stmt, 1, r->rowid);
        int rc = sqlite3_step(stmt);
        enum row_result result = ROW_FAILED;
        if (rc == SQLITE_ROW) {
                row_show(ses, &r->row, rec);
                result = row_decode_label(stmt, 0, rec, err);
                if (result == ROW_OK && with_reply)
                        result = decode_reply(stmt, rec, err);
        }
        (void)sqlite3_reset(stmt);
        return result;
}

/* -- writing --------------------------------------------------------------------------- */

/* ?1..?12 of every write. */
static void row_bind(sqlite3_stmt *stmt, const struct sqlite_session *ses,
                     const struct command_row *row)
{
        int flags = (row->policy.retry ? FLAG_RETRY : 0) |
                    (row->policy.idempotent ? FLAG_IDEMPOTENT : 0) |
                    (row->maybe_executed ? FLAG_MAYBE_EXECUTED : 0);
        (void)sqlite3_bind_int(stmt, 1, (int)row->state);
        (void)sqlite3_bind_int64(stmt, 2, row->token);
        bind_span(stmt, 3, span_of(row->attempt.b, sizeof row->attempt.b));
        bind_span(stmt, 4, span_of(row->fingerprint.b, sizeof row->fingerprint.b));
        (void)sqlite3_bind_int(stmt, 5, flags);
        (void)sqlite3_bind_int64(stmt, 6, ses->mark.boot_no);
        (void)sqlite3_bind_int64(stmt, 7, row->lease_until_us);
        (void)sqlite3_bind_int64(stmt, 8, row->lease_len_us);
        (void)sqlite3_bind_int64(stmt, 9, row->claimed_us);
        (void)sqlite3_bind_int64(stmt, 10, row->request_until_us);
        (void)sqlite3_bind_int64(stmt, 11, row->retention_us);
        (void)sqlite3_bind_int64(stmt, 12, row->expire_us);
}

static void label_bind(sqlite3_stmt *stmt, int at, const struct store_label *label)
{
        (void)sqlite3_bind_int(stmt, at, (int)label->mode);
        bind_span(stmt, at + 1, label->scope);
        bind_span(stmt, at + 2, label->operation);
        bind_span(stmt, at + 3, label->key);
        bind_span(stmt, at + 4, label->holder);
}

static int failed(const struct sqlite_session *ses)
{
        return sqlite3_extended_errcode(ses->db);
}

int row_insert(struct sqlite_session *ses, const struct command_row *row,
               const struct store_label *label)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_INSERT_ROW);
        if (!stmt)
                return failed(ses);
        row_bind(stmt, ses, row);
        bind_span(stmt, 13, span_of(row->id.b, sizeof row->id.b));
        (void)sqlite3_bind_int64(stmt, 14, row->created_us);
        label_bind(stmt, 15, label);
        return session_run(ses, SQL_INSERT_ROW);
}

int row_take(struct sqlite_session *ses, const struct sqlite_row *r,
             const struct store_label *label)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_TAKE_ROW);
        if (!stmt)
                return failed(ses);
        row_bind(stmt, ses, &r->row);
        (void)sqlite3_bind_int64(stmt, 13, r->rowid);
        label_bind(stmt, 14, label);
        return session_run(ses, SQL_TAKE_ROW);
}

int row_update(struct sqlite_session *ses, const struct sqlite_row *r)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_UPDATE_ROW);
        if (!stmt)
                return failed(ses);
        row_bind(stmt, ses, &r->row);
        (void)sqlite3_bind_int64(stmt, 13, r->rowid);
        return session_run(ses, SQL_UPDATE_ROW);
}

int row_complete(struct sqlite_session *ses, const struct sqlite_row *r,
                 const struct store_reply *rep)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_COMPLETE_ROW);
        if (!stmt)
                return failed(ses);
        row_bind(stmt, ses, &r->row);
        (void)sqlite3_bind_int64(stmt, 13, r->rowid);
        if (rep) {
                (void)sqlite3_bind_int(stmt, 14, rep->status);
                (void)sqlite3_bind_int64(stmt, 15, rep->flags);
                bind_span(stmt, 16, rep->headers);
                bind_span(stmt, 17, rep->body);
        } else {
                for (int i = 14; i <= 17; i++)
                        (void)sqlite3_bind_null(stmt, i);
        }
        return session_run(ses, SQL_COMPLETE_ROW);
}

int row_delete(struct sqlite_session *ses, const struct sqlite_row *r, bool *ret_deleted)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_DELETE_ROW);
        if (!stmt)
                return failed(ses);
        (void)sqlite3_bind_int64(stmt, 1, r->rowid);
        (void)sqlite3_bind_int64(stmt, 2, r->row.token);
        (void)sqlite3_bind_int64(stmt, 3, ses->now.wall_us);
        int rc = session_run(ses, SQL_DELETE_ROW);
        if (rc == SQLITE_OK)
                *ret_deleted = sqlite3_changes(ses->db) == 1;
        return rc;
}
