/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_admin: list, sweep and resolve; and the reaper of our own stuck backends.
 */
#include <stdlib.h>

#include "sql_postgres.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

static void no_memory(struct pg_store *st, struct store_op *op)
{
        (void)err_set(&op->err, SEMEL_ERR_NO_MEMORY, "no memory for rows of the database");
        pg_fail(st, op);
}

static size_t rows_max(size_t asked)
{
        return asked < LIMIT_SWEEP_ROWS ? asked : LIMIT_SWEEP_ROWS;
}

/* -- a walk ----------------------------------------------------------------------------------- */

static void build_walk(struct params *p, const struct store_cursor *after, size_t max)
{
        pg_params_clear(p, 3);
        pg_params_scalar(p, 0, PG_TIMESTAMPTZ);
        pg_params_scalar(p, 1, PG_BYTEA);
        if (after->started) {
                pg_params_time(p, 0, after->created_us);
                pg_params_bytea(p, 1, span_of(after->id.b, sizeof after->id.b));
        } else {
                pg_params_int(p, 0, INT64_MIN); /* -infinity */
                pg_params_bytea(p, 1, span_of(NULL, 0));
        }
        pg_params_number(p, 2, PG_INT8, (int64_t)rows_max(max));
}

static void cursor_set(struct store_cursor *cur, const struct command_row *row)
{
        *cur = (struct store_cursor){
                .created_us = row->created_us, .id = row->id, .started = true};
}

static bool wanted(const struct store_op *op, const struct store_record *rec)
{
        if (op->in.list.stuck && !command_stuck(&rec->row, rec->now))
                return false;
        return op->in.list.key.n == 0 || span_eq(op->in.list.key, rec->key);
}

static void build_list(const struct batch *b, struct params *p)
{
        build_walk(p, &b->ops[0]->in.list.after, b->ops[0]->in.list.max);
}

static void take_list(struct pg_store *st, struct batch *b, const PGresult *res)
{
        struct store_op *op = b->ops[0];
        size_t n = (size_t)PQntuples(res);
        store_op_release(op); /* of an earlier try */
        op->out.list.recs = calloc(n ? n : 1, sizeof *op->out.list.recs);
        if (!op->out.list.recs) {
                no_memory(st, op);
                return;
        }
        op->out.list.next = op->in.list.after;
        for (size_t r = 0; r < n; r++) {
                struct store_record *rec = &op->out.list.recs[op->out.list.count];
                store_record_init(rec);
                if (pg_row_decode(res, (int)r, ROW_LABEL, rec, NULL, &op->err) != SEMEL_OK) {
                        store_record_release(rec);
                        pg_fail(st, op);
                        return;
                }
                cursor_set(&op->out.list.next, &rec->row);
                if (wanted(op, rec))
                        op->out.list.count++;
                else
                        store_record_release(rec);
        }
        op->out.list.end = n < rows_max(op->in.list.max);
        err_clear(&op->err);
        pg_answer(st, op);
}

const struct lane_vt pg_lane_list = {
        .name = "semel_list_rows",
        .sql = sql_postgres_list_rows,
        .ops_max = 1,
        .build = build_list,
        .take = take_list,
};

/* -- the purge pass: read, decide by command_sweep(), carry out what is still so ----------- */

static void build_sweep(const struct batch *b, struct params *p)
{
        build_walk(p, &b->ops[0]->in.sweep.after, b->ops[0]->in.sweep.max);
}

/* The row's verdict, if it has one, into the second statement's batch. */
static semel_code sweep_row(struct store_op *op, const PGresult *res, int r, struct batch *apply)
{
        struct store_record rec;
        store_record_init(&rec);
        semel_code code = pg_row_decode(res, r, ROW_LABEL, &rec, NULL, &op->err);
        if (code == SEMEL_OK) {
                struct command_row decided = rec.row;
                enum command_sweep verdict = command_sweep(&decided, rec.now);
                cursor_set(&op->out.sweep.next, &rec.row);
                if (verdict != COMMAND_KEEP) {
                        apply->rows[apply->row_count] = rec.row;
                        apply->gone[apply->row_count++] = verdict == COMMAND_DELETE;
                }
        }
        store_record_release(&rec);
        return code;
}

static void take_sweep(struct pg_store *st, struct batch *b, const PGresult *res)
{
        struct store_op *op = b->ops[0];
        int n = PQntuples(res);
        struct batch *apply = pg_batch_new(LANE_SWEEP_APPLY);
        if (apply) {
                apply->rows = calloc((size_t)n + 1, sizeof *apply->rows);
                apply->gone = calloc((size_t)n + 1, sizeof *apply->gone);
        }
        if (!apply || !apply->rows || !apply->gone) {
                pg_batch_free(apply);
                no_memory(st, op);
                return;
        }
        op->out.sweep.deleted = op->out.sweep.unknown = 0;
        op->out.sweep.next = op->in.sweep.after;
        op->out.sweep.end = (size_t)n < rows_max(op->in.sweep.max);
        semel_code code = SEMEL_OK;
        for (int r = 0; r < n && code == SEMEL_OK; r++)
                code = sweep_row(op, res, r, apply);
        if (code == SEMEL_OK && apply->row_count > 0) {
                apply->ops[apply->n++] = op;
                pg_form(st, apply);
                return;
        }
        pg_batch_free(apply);
        if (code != SEMEL_OK) {
                pg_fail(st, op);
                return;
        }
        err_clear(&op->err);
        pg_answer(st, op);
}

const struct lane_vt pg_lane_sweep = {
        .name = "semel_sweep_rows",
        .sql = sql_postgres_list_rows,
        .ops_max = 1,
        .build = build_sweep,
        .take = take_sweep,
};

static void build_sweep_apply(const struct batch *b, struct params *p)
{
        pg_params_clear(p, 7);
        pg_guard_begin(p, pg_params_array);
        pg_params_array(p, 6, PG_BOOL);
        for (size_t i = 0; i < b->row_count; i++) {
                pg_guard_add(p, &b->rows[i]);
                pg_params_int(p, 6, b->gone[i]);
        }
}

static void take_sweep_apply(struct pg_store *st, struct batch *b, const PGresult *res)
{
        struct store_op *op = b->ops[0];
        op->out.sweep.deleted = pg_result_int(res, 0, 0);
        op->out.sweep.unknown = pg_result_int(res, 0, 1);
        err_clear(&op->err);
        pg_answer(st, op);
}

const struct lane_vt pg_lane_sweep_apply = {
        .name = "semel_sweep",
        .sql = sql_postgres_sweep,
        .ops_max = 1,
        .writes = true,
        .build = build_sweep_apply,
        .take = take_sweep_apply,
};

/* -- an operator's decision ---------------------------------------------------------------- */

void pg_resolve_decide(struct pg_store *st, struct store_op *op, const struct store_record *rec,
                    bool exists)
{
        const struct command_resolve *resolve = &op->in.resolve.resolve;
        struct command_row row = exists ? rec->row : (struct command_row){0};
        const struct command_now now = exists ? rec->now : (struct command_now){0};
        err_clear(&op->err);
        bool done_before = exists && command_attempt_eq(&row.attempt, &resolve->new_attempt);
        op->out.resolve.outcome =
                command_resolve(&row, exists, resolve, now, &op->out.resolve.wait_us);
        if (op->out.resolve.outcome != COMMAND_RESOLVED || done_before) {
                pg_answer(st, op);
                return;
        }
        struct batch *b = pg_batch_new(LANE_RESOLVE);
        if (b)
                b->rows = calloc(2, sizeof *b->rows);
        if (!b || !b->rows) {
                pg_batch_free(b);
                no_memory(st, op);
                return;
        }
        b->rows[0] = rec->row;
        b->rows[1] = row;
        b->row_count = 2;
        b->ops[b->n++] = op;
        pg_form(st, b);
}

static const char *verb_of(enum command_resolve_kind kind)
{
        switch (kind) {
        case COMMAND_RESOLVE_EXECUTED:
                return "executed";
        case COMMAND_RESOLVE_NOT_EXECUTED:
                return "not-executed";
        case COMMAND_RESOLVE_FORGET:
                return "forget";
        }
        return "?";
}

static void build_resolve(const struct batch *b, struct params *p)
{
        static const enum pg_type types[] = {PG_INT2, PG_INT8,  PG_BYTEA, PG_TIMESTAMPTZ,
                                             PG_INT4, PG_INT4,  PG_BYTEA, PG_BYTEA,
                                             PG_TEXT, PG_BYTEA, PG_BYTEA};
        enum { N = sizeof types / sizeof *types, GUARD = 6 };
        const struct command_row *row = &b->rows[1];
        pg_params_clear(p, GUARD + N);
        pg_guard_begin(p, pg_params_scalar);
        pg_guard_add(p, &b->rows[0]);
        for (int i = 0; i < N; i++)
                pg_params_scalar(p, GUARD + i, types[i]);
        pg_params_int(p, 6, row->state);
        pg_params_int(p, 7, row->token);
        pg_params_bytea(p, 8, span_of(row->attempt.b, sizeof row->attempt.b));
        pg_params_time(p, 9, row->expire_us);
        const struct store_op *op = b->ops[0];
        if (op->in.resolve.resolve.kind != COMMAND_RESOLVE_EXECUTED) {
                for (int i = 10; i < 14; i++)
                        pg_params_null(p, i);
        } else {
                const struct store_reply *rep = &op->in.resolve.reply;
                pg_params_int(p, 10, rep->status);
                pg_params_int(p, 11, rep->flags);
                pg_params_bytea(p, 12, rep->headers);
                pg_params_bytea(p, 13, rep->body);
        }
        pg_params_bytea(p, 14, span_str(verb_of(op->in.resolve.resolve.kind)));
        pg_params_bytea(p, 15, op->in.resolve.who);
        pg_params_bytea(p, 16, op->in.resolve.reason);
}

static void take_resolve(struct pg_store *st, struct batch *b, const PGresult *res)
{
        struct store_op *op = b->ops[0];
        if (PQntuples(res) == 0) { /* the row changed since it was read */
                pg_queue(st, op, LANE_READ, 0);
                return;
        }
        err_clear(&op->err);
        pg_answer(st, op);
}

const struct lane_vt pg_lane_resolve = {
        .name = "semel_resolve",
        .sql = sql_postgres_resolve,
        .ops_max = 1,
        .writes = true,
        .build = build_resolve,
        .take = take_resolve,
};

/* -- the reaper (B3) ----------------------------------------------------------------------- */

static void build_reap(const struct batch *b, struct params *p)
{
        pg_params_clear(p, 1);
        pg_params_number(p, 0, PG_INT8, b->after_us);
}

static void take_reap(struct pg_store *st, struct batch *b, const PGresult *res)
{
        (void)st;
        (void)b;
        (void)res;
}

const struct lane_vt pg_lane_reap = {
        .name = "semel_reap",
        .sql = sql_postgres_reap,
        .ops_max = 0,
        .build = build_reap,
        .take = take_reap,
};
