/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_read: rows by id, for whoever needs to look at one: claims that found the key taken (B5),
 * writes that found nothing to write (A2), get, resolve.  Several operations may ask for
 * the same row.
 */
#include "sql_postgres.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

static void build_read(const struct batch *b, struct params *p)
{
        pg_params_clear(p, 2);
        pg_params_array(p, 0, PG_BYTEA);
        pg_params_scalar(p, 1, PG_INT4);
        for (size_t i = 0; i < b->n; i++)
                pg_params_bytea(p, 0, span_of(pg_op_id(b->ops[i])->b, COMMAND_ID_BYTES));
        pg_params_int(p, 1, b->whole_bodies ? INT32_MAX : PG_BODY_BATCHED_BYTES);
}

/* Rows of a result by id. */
enum { SLOTS = 2 * LIMIT_BATCH_OPS };
struct rows {
        int16_t slot[SLOTS]; /* row + 1; 0: empty */
};

static uint32_t slot_of(const uint8_t *id)
{
        uint32_t h;
        memcpy(&h, id, sizeof h);
        return h % SLOTS;
}

static void rows_index(struct rows *rows, const PGresult *res)
{
        memset(rows, 0, sizeof *rows);
        for (int r = 0; r < PQntuples(res) && r < LIMIT_BATCH_OPS; r++) {
                uint32_t h = slot_of(pg_result_bytes(res, r, 0).p);
                while (rows->slot[h])
                        h = (h + 1) % SLOTS;
                rows->slot[h] = (int16_t)(r + 1);
        }
}

/* -1: not there. */
static int rows_find(const struct rows *rows, const PGresult *res, const struct command_id *id)
{
        for (uint32_t h = slot_of(id->b); rows->slot[h]; h = (h + 1) % SLOTS) {
                int row = rows->slot[h] - 1;
                if (span_eq(pg_result_bytes(res, row, 0), span_of(id->b, sizeof id->b)))
                        return row;
        }
        return -1;
}

static void take_get(struct pg_store *st, struct store_op *op, bool exists, bool body_left_out)
{
        if (body_left_out) {
                op->stage |= OP_ALONE;
                pg_queue(st, op, LANE_READ, 0);
                return;
        }
        err_clear(&op->err);
        if (!exists)
                (void)err_set(&op->err, SEMEL_ERR_NOT_FOUND, "no such key");
        pg_answer(st, op);
}

static void take_row(struct pg_store *st, struct store_op *op, const PGresult *res, int row)
{
        struct store_record scratch;
        struct store_record *rec = op->kind == STORE_CLAIM ? &op->out.claim.rec
                                   : op->kind == STORE_GET ? &op->out.get
                                                           : &scratch;
        bool own_rec = rec == &scratch;
        enum row_part part = own_rec ? ROW_LABEL : ROW_LABEL_AND_REPLY;
        bool body_left_out = false;
        bool exists = row >= 0;
        if (own_rec)
                store_record_init(rec);
        if (exists && pg_row_decode(res, row, part, rec, &body_left_out, &op->err) != SEMEL_OK)
                pg_fail(st, op);
        else if (op->kind == STORE_CLAIM)
                pg_claim_decide(st, op, exists, body_left_out);
        else if (op->kind == STORE_WRITE)
                pg_write_decide(st, op, rec, exists);
        else if (op->kind == STORE_RESOLVE)
                pg_resolve_decide(st, op, rec, exists);
        else
                take_get(st, op, exists, body_left_out);
        if (own_rec)
                store_record_release(&scratch);
}

static void take_read(struct pg_store *st, struct batch *b, const PGresult *res)
{
        struct rows rows;
        rows_index(&rows, res);
        for (size_t i = 0; i < b->n; i++)
                take_row(st, b->ops[i], res, rows_find(&rows, res, pg_op_id(b->ops[i])));
}

const struct lane_vt pg_lane_read = {
        .name = "semel_select_rows",
        .sql = sql_postgres_select_rows,
        .ops_max = LIMIT_BATCH_OPS,
        .build = build_read,
        .take = take_read,
};
