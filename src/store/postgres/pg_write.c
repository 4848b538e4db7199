/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_write: what the holder of a claim writes: one statement, one round trip.
 *
 *   COMPLETE --> done (the row was in flight: nearly always)
 *     v
 *   READ --> done before, LOST
 *     v
 *   WRITE --> done; no row: READ
 *
 * WRITE gets the table of core/command.h as a parameter and does to each row what the table says
 * for the state it finds, under the row's lock.  COMPLETE is its one frequent case, at two thirds of the
 * cost.  Extending depends on times too: it reads, decides, and writes what is still as it was
 * read (LANE_TAKE).
 */
#include <assert.h>

#include "sql_postgres.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

enum { CELLS = COMMAND_WRITE_KINDS * COMMAND_STATES * 8 };

/* kind * 32 + state * 8 + retry * 4 + idempotent * 2 + maybe_executed, as write.sql has it */
static void effects_fill(uint8_t cells[CELLS])
{
        for (int cell = 0; cell < CELLS; cell++) {
                const struct command_policy policy = {.retry = cell & 4, .idempotent = cell & 2};
                cells[cell] = (uint8_t)command_write_effect(
                        (enum command_write_kind)(cell / 32),
                        (enum command_state)(cell / 8 % COMMAND_STATES), policy, cell & 1);
        }
}

static size_t reply_bytes(const struct store_op *op)
{
        return op->in.write.reply.headers.n + op->in.write.reply.body.n + 100;
}

/* Parameters at and behind `at`. */
static void add_guard(struct params *p, int at, const struct store_op *op)
{
        const struct command_write *write = &op->in.write.write;
        pg_params_bytea(p, at, span_of(write->id.b, sizeof write->id.b));
        pg_params_int(p, at + 1, write->token);
        pg_params_bytea(p, at + 2, span_of(write->attempt.b, sizeof write->attempt.b));
}

static void add_reply(struct params *p, int at, const struct store_op *op)
{
        const struct store_reply *rep = &op->in.write.reply;
        if (op->in.write.write.kind != COMMAND_COMPLETE) {
                for (int i = at; i < at + 4; i++)
                        pg_params_null(p, i);
                return;
        }
        pg_params_int(p, at, rep->status);
        pg_params_int(p, at + 1, rep->flags);
        pg_params_bytea(p, at + 2, rep->headers);
        pg_params_bytea(p, at + 3, rep->body);
}

static void build_complete(const struct batch *b, struct params *p)
{
        static const enum pg_type types[] = {PG_BYTEA, PG_INT8,  PG_BYTEA, PG_INT4,
                                             PG_INT4,  PG_BYTEA, PG_BYTEA};
        enum { N = sizeof types / sizeof *types };
        pg_params_clear(p, N);
        for (int i = 0; i < N; i++)
                pg_params_array(p, i, types[i]);
        for (size_t i = 0; i < b->n; i++) {
                add_guard(p, 0, b->ops[i]);
                add_reply(p, 3, b->ops[i]);
        }
}

static void build_write(const struct batch *b, struct params *p)
{
        static const enum pg_type types[] = {PG_BYTEA, PG_BYTEA, PG_INT8,  PG_BYTEA, PG_INT2,
                                             PG_INT4,  PG_INT4,  PG_BYTEA, PG_BYTEA};
        enum { N = sizeof types / sizeof *types };
        uint8_t cells[CELLS];
        effects_fill(cells);
        pg_params_clear(p, N);
        pg_params_scalar(p, 0, PG_BYTEA);
        pg_params_bytea(p, 0, span_of(cells, sizeof cells));
        for (int i = 1; i < N; i++)
                pg_params_array(p, i, types[i]);
        for (size_t i = 0; i < b->n; i++) {
                add_guard(p, 1, b->ops[i]);
                pg_params_int(p, 4, b->ops[i]->in.write.write.kind);
                add_reply(p, 5, b->ops[i]);
        }
}

static struct command_write_answer answer_of(enum command_effect effect, int64_t was_state)
{
        struct command_write_answer answer = {.outcome = COMMAND_DONE};
        switch (effect) {
        case EFFECT_LOST:
                answer.outcome = COMMAND_LOST;
                break;
        case EFFECT_NOTHING:
                answer.outcome = COMMAND_NOTHING;
                break;
        case EFFECT_DONE_BEFORE:
                break;
        case EFFECT_COMPLETE:
                answer.self_resolved = was_state == COMMAND_UNKNOWN;
                answer.changed = true;
                break;
        case EFFECT_EXTEND: /* never asked of this statement */
        case EFFECT_FREE:
        case EFFECT_END_LEASE:
        case EFFECT_UNKNOWN:
                answer.changed = true;
                break;
        }
        return answer;
}

static struct command_write_answer written_answer(const PGresult *res, int r)
{
        return answer_of((enum command_effect)pg_result_int(res, r, 1), pg_result_int(res, r, 2));
}

static struct command_write_answer completed_answer(const PGresult *res, int r)
{
        (void)res;
        (void)r;
        /* The statement wrote what the table says about a row in flight, whatever its policy. */
        assert(command_write_effect(COMMAND_COMPLETE, COMMAND_IN_FLIGHT,
                                    (struct command_policy){0}, false) == EFFECT_COMPLETE);
        return answer_of(EFFECT_COMPLETE, COMMAND_IN_FLIGHT);
}

/* Column 0 says which operations found their row. */
static void take_rows(struct pg_store *st, struct batch *b, const PGresult *res,
                      struct command_write_answer (*answer)(const PGresult *res, int r))
{
        bool taken[LIMIT_BATCH_OPS] = {false};
        for (int r = 0; r < PQntuples(res); r++) {
                size_t i = (size_t)pg_result_int(res, r, 0) - 1;
                if (i >= b->n || taken[i])
                        continue;
                taken[i] = true;
                struct store_op *op = b->ops[i];
                op->out.write = answer(res, r);
                err_clear(&op->err);
                pg_answer(st, op);
        }
        for (size_t i = 0; i < b->n; i++) {
                if (!taken[i]) /* no row with this token and attempt: the row says why (A2) */
                        pg_queue(st, b->ops[i], LANE_READ, 0);
        }
}

static void take_complete(struct pg_store *st, struct batch *b, const PGresult *res)
{
        take_rows(st, b, res, completed_answer);
}

static void take_write(struct pg_store *st, struct batch *b, const PGresult *res)
{
        take_rows(st, b, res, written_answer);
}

void pg_write_decide(struct pg_store *st, struct store_op *op, const struct store_record *rec,
                  bool exists)
{
        struct command_row row = exists ? rec->row : (struct command_row){0};
        const struct command_now now = exists ? rec->now : (struct command_now){0};
        struct command_write_answer answer =
                command_write(&row, exists, &op->in.write.write, now);
        if (answer.changed && op->in.write.write.kind == COMMAND_EXTEND) {
                op->out.claim.rec.row = rec->row; /* plain data, for LANE_TAKE */
                op->out.claim.rec.now = rec->now;
                pg_queue(st, op, LANE_TAKE, 0);
                return;
        }
        if (answer.changed) { /* not as COMPLETE wants it; or not there a moment ago, and now */
                pg_queue(st, op, LANE_WRITE, 0);
                return;
        }
        op->out.write = answer;
        err_clear(&op->err);
        pg_answer(st, op);
}

const struct lane_vt pg_lane_complete = {
        .name = "semel_complete",
        .sql = sql_postgres_complete,
        .ops_max = LIMIT_BATCH_OPS,
        .distinct = true,
        .writes = true,
        .bytes = reply_bytes,
        .build = build_complete,
        .take = take_complete,
};

const struct lane_vt pg_lane_write = {
        .name = "semel_write",
        .sql = sql_postgres_write,
        .ops_max = LIMIT_BATCH_OPS,
        .distinct = true,
        .writes = true,
        .bytes = reply_bytes,
        .build = build_write,
        .take = take_write,
};
