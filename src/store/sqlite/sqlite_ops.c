/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_ops: see sqlite_ops.h.
 */
#include "store/sqlite/sqlite_ops.h"

#include <stdlib.h>

#include "core/limits.h"

static enum row_result wrote(int rc)
{
        return rc == SQLITE_OK ? ROW_OK : ROW_FAILED;
}

/* -- claim and write ----------------------------------------------------------------- */

static enum row_result too_large(const char *what, size_t max, semel_error *err)
{
        (void)err_set(err, SEMEL_ERR_TOO_LARGE, "%s longer than %zu bytes cannot be kept", what,
                      max);
        return ROW_REFUSED;
}

static enum row_result check_label(const struct store_label *label, semel_error *err)
{
        enum { MAX = LIMIT_SCOPE_BYTES + LIMIT_OPERATION_BYTES + LIMIT_KEY_BYTES +
                     LIMIT_HOLDER_BYTES };
        size_t n = label->scope.n + label->operation.n + label->key.n + label->holder.n;
        return n > MAX ? too_large("scope, operation, key and holder", MAX, err) : ROW_OK;
}

static enum row_result check_reply(const struct store_reply *rep, semel_error *err)
{
        if (rep->headers.n > LIMIT_REPLY_HEADERS_BYTES)
                return too_large("a reply's headers", LIMIT_REPLY_HEADERS_BYTES, err);
        if (rep->body.n > LIMIT_REPLY_BODY_BYTES)
                return too_large("a reply's body", LIMIT_REPLY_BODY_BYTES, err);
        return ROW_OK;
}

/* What the caller learns beside RUN: who has the key, or the reply. */
static enum row_result claim_record(struct sqlite_session *ses, const struct sqlite_row *r,
                                    enum command_outcome outcome, struct store_record *rec,
                                    semel_error *err)
{
        bool replay = outcome == COMMAND_REPLAY;
        enum row_result result = row_load_record(ses, r, replay, rec, err);
        if (result == ROW_OK && replay && !rec->has_reply) {
                (void)err_set(err, SEMEL_ERR_CORRUPT,
                              "the key is completed but its reply is missing: resolve it by hand "
                              "(semel keys resolve)");
                return ROW_REFUSED; /* H17: an error of its own, neither a 409 for ever nor a run */
        }
        return result;
}

enum row_result sqlite_claim(struct sqlite_session *ses, const struct command_claim *claim,
                             const struct store_label *label, struct command_answer *ret_answer,
                             struct store_record *rec, semel_error *err)
{
        struct sqlite_row r = {0};
        enum row_result result = check_label(label, err);
        if (result == ROW_OK)
                result = row_select(ses, &claim->id, &r, err);
        if (result != ROW_OK && result != ROW_NONE)
                return result;

        struct command_answer answer = command_claim(&r.row, result == ROW_OK, claim, ses->now);
        result = ROW_OK;
        if (answer.inserted)
                result = wrote(row_insert(ses, &r.row, label));
        else if (answer.changed && answer.outcome == COMMAND_RUN)
                result = wrote(row_take(ses, &r, label));
        else if (answer.changed)
                result = wrote(row_update(ses, &r));
        if (result != ROW_OK)
                return result;

        if (answer.outcome == COMMAND_RUN)
                row_show(ses, &r.row, rec);
        else
                result = claim_record(ses, &r, answer.outcome, rec, err);
        if (result == ROW_OK)
                *ret_answer = answer;
        return result;
}

enum row_result sqlite_write(struct sqlite_session *ses, const struct command_write *write,
                             const struct store_reply *rep,
                             struct command_write_answer *ret_answer, semel_error *err)
{
        struct sqlite_row r = {0};
        enum row_result result = write->kind == COMMAND_COMPLETE ? check_reply(rep, err) : ROW_OK;
        if (result == ROW_OK)
                result = row_select(ses, &write->id, &r, err);
        if (result != ROW_OK && result != ROW_NONE)
                return result;
        struct command_write_answer answer =
                command_write(&r.row, result == ROW_OK, write, ses->now);
        result = ROW_OK;
        if (answer.changed)
                result = wrote(write->kind == COMMAND_COMPLETE ? row_complete(ses, &r, rep)
                                                               : row_update(ses, &r));
        if (result == ROW_OK)
                *ret_answer = answer;
        return result;
}

enum row_result sqlite_undo_claim(struct sqlite_session *ses, const struct command_claim *claim,
                                  const struct store_label *label, semel_error *err)
{
        struct command_answer answer = {0};
        struct store_record rec;
        store_record_init(&rec);
        enum row_result result = sqlite_claim(ses, claim, label, &answer, &rec, err);
        if (result == ROW_OK && command_attempt_eq(&rec.row.attempt, &claim->attempt)) {
                const struct command_write release = {.kind = COMMAND_RELEASE_NOT_EXECUTED,
                                                      .id = claim->id,
                                                      .token = rec.row.token,
                                                      .attempt = claim->attempt};
                struct command_write_answer released;
                result = sqlite_write(ses, &release, NULL, &released, err);
        }
        store_record_release(&rec);
        return result;
}

/* -- get and list ------------------------------------------------------------------------ */

static enum row_result do_get(struct sqlite_session *ses, struct store_op *op)
{
        struct sqlite_row r;
        enum row_result result = row_select(ses, &op->in.get.id, &r, &op->err);
        if (result == ROW_OK)
                return row_load_record(ses, &r, true, &op->out.get, &op->err);
        if (result == ROW_NONE)
                (void)err_set(&op->err, SEMEL_ERR_NOT_FOUND, "no such key");
        return result;
}

static size_t walk_max(size_t max)
{
        return max < LIMIT_SWEEP_ROWS ? max : LIMIT_SWEEP_ROWS;
}

/* The next rows in order of creation. */
static sqlite3_stmt *walk_begin(struct sqlite_session *ses, enum sqlite_sql which,
                                const struct store_cursor *after, size_t max)
{
        sqlite3_stmt *stmt = session_stmt(ses, which);
        if (!stmt)
                return NULL;
        bool started = after->started;
        (void)sqlite3_bind_int64(stmt, 1, started ? after->created_us : INT64_MIN);
        (void)sqlite3_bind_blob(stmt, 2, after->id.b, started ? sizeof after->id.b : 0,
                                SQLITE_STATIC);
        (void)sqlite3_bind_int64(stmt, 3, (int64_t)max);
        return stmt;
}

/* Where the walk stands: taken from the columns, so that a damaged row is walked over too. */
static void cursor_at(struct store_cursor *cur, sqlite3_stmt *stmt)
{
        enum { ID = 1, CREATED = 14 };
        struct span id = column_span(stmt, ID);
        *cur = (struct store_cursor){.created_us = sqlite3_column_int64(stmt, CREATED),
                                     .started = true};
        if (id.n > 0)
                memcpy(cur->id.b, id.p, id.n < sizeof cur->id.b ? id.n : sizeof cur->id.b);
}

static enum row_result list_one(struct sqlite_session *ses, struct store_op *op,
                                sqlite3_stmt *stmt)
{
        enum { LABEL = 15, KEY = 18 };
        struct sqlite_row r;
        if (row_decode(ses, stmt, &r, NULL) != ROW_OK)
                return ROW_OK; /* one damaged row must not hide all the others */
        if (op->in.list.stuck && !command_stuck(&r.row, ses->now))
                return ROW_OK;
        if (op->in.list.key.n != 0 && !span_eq(op->in.list.key, column_span(stmt, KEY)))
                return ROW_OK;
        struct store_record *rec = &op->out.list.recs[op->out.list.count];
        store_record_init(rec);
        row_show(ses, &r.row, rec);
        enum row_result result = row_decode_label(stmt, LABEL, rec, &op->err);
        if (result == ROW_OK)
                op->out.list.count++;
        else
                store_record_release(rec);
        if (result == ROW_REFUSED) {
                err_clear(&op->err);
                result = ROW_OK;
        }
        return result;
}

static enum row_result do_list(struct sqlite_session *ses, struct store_op *op)
{
        size_t max = walk_max(op->in.list.max);
        op->out.list.next = op->in.list.after;
        op->out.list.recs = calloc(max ? max : 1, sizeof *op->out.list.recs);
        if (!op->out.list.recs) {
                (void)err_set(&op->err, SEMEL_ERR_NO_MEMORY, "no memory for a list of keys");
                return ROW_NO_MEMORY;
        }
        sqlite3_stmt *stmt = walk_begin(ses, SQL_LIST_ROWS, &op->in.list.after, max);
        if (!stmt)
                return ROW_FAILED;
        enum row_result result = ROW_OK;
        size_t looked = 0;
        int rc;
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                looked++;
                cursor_at(&op->out.list.next, stmt);
                result = list_one(ses, op, stmt);
                if (result != ROW_OK)
                        break;
        }
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                result = ROW_FAILED;
        (void)sqlite3_reset(stmt);
        op->out.list.end = looked < max;
        return result;
}

/* -- operator --------------------------------------------------------------------------------- */

static const char *const resolve_verb[] = {
        [COMMAND_RESOLVE_EXECUTED] = "executed",
        [COMMAND_RESOLVE_NOT_EXECUTED] = "not-executed",
        [COMMAND_RESOLVE_FORGET] = "forget",
};

static int audit(struct sqlite_session *ses, const struct store_op *op, int64_t rowid,
                 enum command_state before, enum command_state after)
{
        sqlite3_stmt *stmt = session_stmt(ses, SQL_INSERT_AUDIT);
        if (!stmt)
                return sqlite3_extended_errcode(ses->db);
        (void)sqlite3_bind_int64(stmt, 1, ses->now.wall_us + ses->mark.lag_us);
        (void)sqlite3_bind_int64(stmt, 2, rowid);
        bind_text(stmt, 3, span_str(resolve_verb[op->in.resolve.resolve.kind]));
        bind_text(stmt, 4, op->in.resolve.reason);
        bind_text(stmt, 5, op->in.resolve.who);
        bind_text(stmt, 6, span_str(command_state_name(before)));
        bind_text(stmt, 7, span_str(command_state_name(after)));
        return session_run(ses, SQL_INSERT_AUDIT);
}

static enum row_result do_resolve(struct sqlite_session *ses, struct store_op *op)
{
        const struct command_resolve *resolve = &op->in.resolve.resolve;
        struct sqlite_row r = {0};
        enum row_result result = check_reply(&op->in.resolve.reply, &op->err);
        if (result == ROW_OK)
                result = row_select(ses, &resolve->id, &r, &op->err);
        if (result != ROW_OK && result != ROW_NONE)
                return result;
        bool exists = result == ROW_OK;
        if (exists && command_attempt_eq(&r.row.attempt, &resolve->new_attempt)) {
                /* This very verb, whose COMMIT's answer was lost (A7): nobody else has the nonce. */
                op->out.resolve.outcome = COMMAND_RESOLVED;
                return ROW_OK;
        }
        enum command_state before = r.row.state;
        op->out.resolve.outcome =
                command_resolve(&r.row, exists, resolve, ses->now, &op->out.resolve.wait_us);
        if (op->out.resolve.outcome != COMMAND_RESOLVED)
                return ROW_OK;
        bool executed = resolve->kind == COMMAND_RESOLVE_EXECUTED;
        int rc = row_complete(ses, &r, executed ? &op->in.resolve.reply : NULL);
        if (rc == SQLITE_OK)
                rc = audit(ses, op, r.rowid, before, r.row.state);
        return wrote(rc);
}

/* -- purge pass ------------------------------------------------------------------------------- */

/* The rows are read first and changed then: a walk over a table that changes under it may see a
 * row twice. */
static enum row_result sweep_read(struct sqlite_session *ses, struct store_op *op, size_t max,
                                  struct sqlite_row *rows, size_t *ret_count)
{
        sqlite3_stmt *stmt = walk_begin(ses, SQL_SWEEP_ROWS, &op->in.sweep.after, max);
        if (!stmt)
                return ROW_FAILED;
        size_t looked = 0, count = 0;
        int rc;
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                looked++;
                cursor_at(&op->out.sweep.next, stmt);
                if (row_decode(ses, stmt, &rows[count], NULL) == ROW_OK)
                        count++;
        }
        (void)sqlite3_reset(stmt);
        if (rc != SQLITE_DONE)
                return ROW_FAILED;
        op->out.sweep.end = looked < max;
        *ret_count = count;
        return ROW_OK;
}

static int sweep_one(struct sqlite_session *ses, struct store_op *op, struct sqlite_row *r)
{
        bool deleted = false;
        int rc = SQLITE_OK;
        switch (command_sweep(&r->row, ses->now)) {
        case COMMAND_KEEP:
                break;
        case COMMAND_DELETE:
                rc = row_delete(ses, r, &deleted);
                if (deleted)
                        op->out.sweep.deleted++;
                break;
        case COMMAND_TO_UNKNOWN:
                rc = row_update(ses, r);
                if (rc == SQLITE_OK)
                        op->out.sweep.unknown++;
                break;
        }
        return rc;
}

static enum row_result do_sweep(struct sqlite_session *ses, struct store_op *op)
{
        size_t max = walk_max(op->in.sweep.max), count = 0;
        op->out.sweep.next = op->in.sweep.after;
        struct sqlite_row *rows = malloc((max ? max : 1) * sizeof *rows);
        if (!rows) {
                (void)err_set(&op->err, SEMEL_ERR_NO_MEMORY, "no memory for a purge step");
                return ROW_NO_MEMORY;
        }
        enum row_result result = sweep_read(ses, op, max, rows, &count);
        for (size_t i = 0; i < count && result == ROW_OK; i++)
                result = wrote(sweep_one(ses, op, &rows[i]));
        free(rows);
        return result;
}

/* -- any ------------------------------------------------------------------------------------------ */

void sqlite_op_reset(struct store_op *op)
{
        store_op_release(op);
        memset(&op->out, 0, sizeof op->out);
        err_clear(&op->err);
        if (op->kind == STORE_CLAIM)
                store_record_init(&op->out.claim.rec);
        else if (op->kind == STORE_GET)
                store_record_init(&op->out.get);
}

static enum row_result run(struct sqlite_session *ses, struct store_op *op)
{
        switch (op->kind) {
        case STORE_CLAIM:
                return sqlite_claim(ses, &op->in.claim.claim, &op->in.claim.label,
                                    &op->out.claim.answer, &op->out.claim.rec, &op->err);
        case STORE_WRITE:
                return sqlite_write(ses, &op->in.write.write, &op->in.write.reply,
                                    &op->out.write, &op->err);
        case STORE_GET:
                return do_get(ses, op);
        case STORE_LIST:
                return do_list(ses, op);
        case STORE_RESOLVE:
                return do_resolve(ses, op);
        case STORE_SWEEP:
                return do_sweep(ses, op);
        }
        return ROW_FAILED;
}

bool sqlite_op_run(struct sqlite_session *ses, struct store_op *op)
{
        switch (run(ses, op)) {
        case ROW_OK:
        case ROW_NONE:
        case ROW_REFUSED:
                return true;
        case ROW_NO_MEMORY:
                return false; /* some have written before they ran out */
        case ROW_FAILED:
                break;
        }
        (void)session_error(ses, &op->err);
        return false;
}
