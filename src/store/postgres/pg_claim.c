/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_claim: a claim's statements.
 *
 *   INSERT --inserted--> RUN
 *     |  ^ (the row is gone again)
 *     v  |
 *   READ --nothing to change--> BUSY, REPLAY, MISMATCH, UNKNOWN, or RUN when it is its own (A7)
 *     |  ^ (the row changed in between)
 *     v  |
 *   TAKE --> RUN, UNKNOWN
 *
 * The unique index decides who is first; who comes later decides by command_claim() on a copy
 * and writes only if the row is still as it was read.
 */
#include <assert.h>

#include "sql_postgres.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

static size_t label_bytes(const struct store_op *op)
{
        if (op->kind != STORE_CLAIM) /* an extension, in LANE_TAKE */
                return 0;
        const struct store_label *label = &op->in.claim.label;
        return label->scope.n + label->operation.n + label->key.n + label->holder.n + 200;
}

static struct span attempt_span(const struct command_attempt *attempt)
{
        return span_of(attempt->b, sizeof attempt->b);
}

/* -- INSERT -------------------------------------------------------------------------------- */

void pg_claim_params_begin(struct params *p,
                           void (*column)(struct params *p, int i, enum pg_type type))
{
        static const enum pg_type types[] = {
                PG_BYTEA, PG_BYTEA, PG_BYTEA, PG_BOOL,  PG_BOOL,  PG_INT8, PG_INT8,
                PG_INT8,  PG_INT2,  PG_BYTEA, PG_BYTEA, PG_BYTEA, PG_BYTEA};
        enum { N = sizeof types / sizeof *types };
        pg_params_clear(p, N);
        for (int i = 0; i < N; i++)
                column(p, i, types[i]);
}

void pg_claim_params_add(struct params *p, const struct command_claim *claim,
                         const struct store_label *label)
{
        pg_params_bytea(p, 0, span_of(claim->id.b, sizeof claim->id.b));
        pg_params_bytea(p, 1, attempt_span(&claim->attempt));
        pg_params_bytea(p, 2, span_of(claim->fingerprint.b, sizeof claim->fingerprint.b));
        pg_params_int(p, 3, claim->policy.retry);
        pg_params_int(p, 4, claim->policy.idempotent);
        pg_params_int(p, 5, claim->lease_us);
        pg_params_int(p, 6, claim->request_us);
        pg_params_int(p, 7, claim->retention_us);
        pg_params_int(p, 8, label->mode);
        pg_params_bytea(p, 9, label->scope);
        pg_params_bytea(p, 10, label->operation);
        pg_params_bytea(p, 11, label->key);
        pg_params_bytea(p, 12, label->holder);
}

static void build_insert(const struct batch *b, struct params *p)
{
        pg_claim_params_begin(p, pg_params_array);
        for (size_t i = 0; i < b->n; i++)
                pg_claim_params_add(p, &b->ops[i]->in.claim.claim, &b->ops[i]->in.claim.label);
}

static void answer_inserted(struct pg_store *st, struct store_op *op, const PGresult *res, int r)
{
        int64_t created_us = pg_result_time_us(res, r, 3);
        int64_t now_us = pg_result_time_us(res, r, 4);
        struct store_record *rec = &op->out.claim.rec;
        const struct command_now then = {.lease_us = created_us, .wall_us = created_us};
        /* The statement wrote what the table says about an absent row. */
        struct command_answer answer = command_claim(&rec->row, false, &op->in.claim.claim, then);
        assert(answer.outcome == COMMAND_RUN && rec->row.state == COMMAND_IN_FLIGHT);
        rec->row.token = answer.token = pg_result_int(res, r, 2);
        rec->now = (struct command_now){.lease_us = now_us, .wall_us = now_us};
        answer.lease_left_us = rec->row.lease_until_us - now_us;
        op->out.claim.answer = answer;
        err_clear(&op->err);
        pg_answer(st, op);
}

/* Attempts of a batch (random bytes, each its own hash) by value. */
enum { SLOTS = 2 * LIMIT_BATCH_OPS };

static uint32_t slot_of(const uint8_t *attempt)
{
        uint32_t h;
        memcpy(&h, attempt, sizeof h);
        return h % SLOTS;
}

static void take_insert(struct pg_store *st, struct batch *b, const PGresult *res)
{
        int16_t slot[SLOTS] = {0}; /* row + 1 */
        for (int r = 0; r < PQntuples(res) && r < LIMIT_BATCH_OPS; r++) {
                uint32_t h = slot_of(pg_result_bytes(res, r, 1).p);
                while (slot[h])
                        h = (h + 1) % SLOTS;
                slot[h] = (int16_t)(r + 1);
        }
        for (size_t i = 0; i < b->n; i++) {
                struct store_op *op = b->ops[i];
                const struct command_claim *claim = &op->in.claim.claim;
                int found = -1;
                /* By id and attempt: two callers of this process may share the id (B4). */
                for (uint32_t h = slot_of(claim->attempt.b); slot[h] && found < 0;
                     h = (h + 1) % SLOTS) {
                        int r = slot[h] - 1;
                        if (span_eq(pg_result_bytes(res, r, 1), attempt_span(&claim->attempt)) &&
                            span_eq(pg_result_bytes(res, r, 0),
                                    span_of(claim->id.b, sizeof claim->id.b)))
                                found = r;
                }
                if (found >= 0)
                        answer_inserted(st, op, res, found);
                else
                        pg_queue(st, op, LANE_READ, 0);
        }
}

const struct lane_vt pg_lane_insert = {
        .name = "semel_claim_insert",
        .sql = sql_postgres_claim_insert,
        .ops_max = LIMIT_BATCH_OPS,
        .writes = true,
        .bytes = label_bytes,
        .build = build_insert,
        .take = take_insert,
};

/* -- READ: decide -------------------------------------------------------------------------- */

static void forget_reply(struct store_record *rec)
{
        rec->has_reply = false;
        buf_release(&rec->headers);
        buf_release(&rec->body);
}

void pg_claim_decide(struct pg_store *st, struct store_op *op, bool exists, bool body_left_out)
{
        struct store_record *rec = &op->out.claim.rec;
        if (!exists) { /* released and purged in between: the insert again (B5, H16) */
                pg_queue(st, op, LANE_INSERT, 0);
                return;
        }
        struct command_row decided = rec->row;
        struct command_answer answer =
                command_claim(&decided, true, &op->in.claim.claim, rec->now);
        if (answer.changed) {
                pg_queue(st, op, LANE_TAKE, 0);
                return;
        }
        err_clear(&op->err);
        op->out.claim.answer = answer;
        if (answer.outcome != COMMAND_REPLAY) { /* nobody else's reply is shown to this caller */
                forget_reply(rec);
        } else if (body_left_out) {
                op->stage |= OP_ALONE;
                pg_queue(st, op, LANE_READ, 0);
                return;
        } else if (!rec->has_reply) {
                (void)err_set(&op->err, SEMEL_ERR_CORRUPT,
                              "a row of semel.command is COMPLETED and has no reply: it was "
                              "changed by hand; delete it or resolve it again (H17)");
        }
        pg_answer(st, op);
}

/* -- TAKE ---------------------------------------------------------------------------------- */

union taken {
        struct command_answer claim;
        struct command_write_answer write;
};

/* The decision once more, from what was read: the same, since it is pure.  For a claim, or for a
 * holder's extension. */
static bool decide_again(const struct store_op *op, struct command_row *ret_row, union taken *ret)
{
        const struct store_record *rec = &op->out.claim.rec;
        *ret_row = rec->row;
        if (op->kind == STORE_WRITE) {
                ret->write = command_write(ret_row, true, &op->in.write.write, rec->now);
                return false;
        }
        ret->claim = command_claim(ret_row, true, &op->in.claim.claim, rec->now);
        return ret->claim.outcome == COMMAND_RUN;
}

static void build_take(const struct batch *b, struct params *p)
{
        static const enum pg_type types[] = {
                PG_INT2, PG_INT8,        PG_BYTEA,       PG_BYTEA, PG_BOOL, PG_BOOL,
                PG_BOOL, PG_TIMESTAMPTZ, PG_INT8,        PG_TIMESTAMPTZ,
                PG_TIMESTAMPTZ, PG_INT8, PG_BOOL, PG_BYTEA, PG_BYTEA, PG_BYTEA, PG_BYTEA, PG_INT2};
        enum { N = sizeof types / sizeof *types, GUARD = 6 };
        pg_params_clear(p, GUARD + N);
        pg_guard_begin(p, pg_params_array);
        for (int i = 0; i < N; i++)
                pg_params_array(p, GUARD + i, types[i]);
        for (size_t i = 0; i < b->n; i++) {
                struct command_row row;
                union taken unused;
                static const struct store_label none;
                bool runs = decide_again(b->ops[i], &row, &unused);
                const struct store_label *label = runs ? &b->ops[i]->in.claim.label : &none;
                pg_guard_add(p, &b->ops[i]->out.claim.rec.row);
                pg_params_int(p, 6, row.state);
                pg_params_int(p, 7, row.token);
                pg_params_bytea(p, 8, attempt_span(&row.attempt));
                pg_params_bytea(p, 9, span_of(row.fingerprint.b, sizeof row.fingerprint.b));
                pg_params_int(p, 10, row.policy.retry);
                pg_params_int(p, 11, row.policy.idempotent);
                pg_params_int(p, 12, row.maybe_executed);
                pg_params_time(p, 13, row.lease_until_us);
                pg_params_int(p, 14, row.lease_len_us);
                pg_params_time(p, 15, row.claimed_us);
                pg_params_time(p, 16, row.request_until_us);
                pg_params_int(p, 17, row.retention_us);
                pg_params_int(p, 18, runs);
                pg_params_bytea(p, 19, label->scope);
                pg_params_bytea(p, 20, label->operation);
                pg_params_bytea(p, 21, label->key);
                pg_params_bytea(p, 22, label->holder);
                pg_params_int(p, 23, label->mode);
        }
}

static void answer_taken(struct pg_store *st, struct store_op *op, int64_t now_us)
{
        struct store_record *rec = &op->out.claim.rec;
        struct command_row row;
        union taken taken;
        bool runs = decide_again(op, &row, &taken);
        err_clear(&op->err);
        if (op->kind == STORE_WRITE) {
                taken.write.lease_left_us = row.lease_until_us - now_us;
                op->out.write = taken.write;
                pg_answer(st, op);
                return;
        }
        rec->row = row;
        rec->now = (struct command_now){.lease_us = now_us, .wall_us = now_us};
        forget_reply(rec);
        if (runs)
                taken.claim.lease_left_us = row.lease_until_us - now_us;
        op->out.claim.answer = taken.claim;
        pg_answer(st, op);
}

static void take_take(struct pg_store *st, struct batch *b, const PGresult *res)
{
        bool taken[LIMIT_BATCH_OPS] = {false};
        for (int r = 0; r < PQntuples(res); r++) {
                int64_t n = pg_result_int(res, r, 0); /* from 1 */
                assert(n >= 1 && n <= (int64_t)b->n && !taken[n - 1]);
                taken[n - 1] = true;
                answer_taken(st, b->ops[n - 1], pg_result_time_us(res, r, 1));
        }
        for (size_t i = 0; i < b->n; i++) {
                if (!taken[i]) /* somebody was faster: look again */
                        pg_queue(st, b->ops[i], LANE_READ, 0);
        }
}

const struct lane_vt pg_lane_take = {
        .name = "semel_claim_take",
        .sql = sql_postgres_claim_take,
        .ops_max = LIMIT_BATCH_OPS,
        .distinct = true,
        .writes = true,
        .bytes = label_bytes,
        .build = build_take,
        .take = take_take,
};
