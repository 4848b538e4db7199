/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_write: what the holder of a claim writes: one statement, one round trip.  The statement
 * gets the table of core/command.h as a parameter and does to each row what the table says for
 * the state it finds, under the row's lock.  Extending depends on times too: it reads, decides,
 * and writes what is still as it was read (LANE_TAKE).
 */
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

static void add_reply(struct params *p, const struct store_op *op)
{
        const struct store_reply *rep = &op->in.write.reply;
        if (op->in.write.write.kind != COMMAND_COMPLETE) {
                for (int i = 5; i < 9; i++)
                        pg_params_null(p, i);
                return;
        }
        pg_params_int(p, 5, rep->status);
        pg_params_int(p, 6, rep->flags);
        pg_params_bytea(p, 7, rep->headers);
        pg_params_bytea(p, 8, rep->body);
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
                const struct command_write *write = &b->ops[i]->in.write.write;
                pg_params_bytea(p, 1, span_of(write->id.b, sizeof write->id.b));
                pg_params_int(p, 2, write->token);
                pg_params_bytea(p, 3, span_of(write->attempt.b, sizeof write->attempt.b));
                pg_params_int(p, 4, write->kind);
                add_reply(p, b->ops[i]);
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

static void take_write(struct pg_store *st, struct batch *b, const PGresult *res)
{
        bool taken[LIMIT_BATCH_OPS] = {false};
        for (int r = 0; r < PQntuples(res); r++) {
                size_t i = (size_t)pg_result_int(res, r, 0) - 1;
                if (i >= b->n || taken[i])
                        continue;
                taken[i] = true;
                struct store_op *op = b->ops[i];
                op->out.write = answer_of((enum command_effect)pg_result_int(res, r, 1),
                                          pg_result_int(res, r, 2));
                err_clear(&op->err);
                pg_answer(st, op);
        }
        for (size_t i = 0; i < b->n; i++) {
                if (!taken[i]) /* no row with this token and attempt: the row says why (A2) */
                        pg_queue(st, b->ops[i], LANE_READ, 0);
        }
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
        if (answer.changed) { /* it was not there a moment ago, and is now */
                pg_queue(st, op, LANE_WRITE, 0);
                return;
        }
        op->out.write = answer;
        err_clear(&op->err);
        pg_answer(st, op);
}

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
