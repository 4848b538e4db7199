/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_row: see pg_row.h.
 */
#include "store/postgres/pg_row.h"

#include <stdlib.h>

/* Columns of list_rows.sql; select_rows.sql goes on with the reply. */
enum column {
        COL_ID,
        COL_STATE,
        COL_TOKEN,
        COL_ATTEMPT,
        COL_FINGERPRINT,
        COL_RETRY,
        COL_IDEMPOTENT,
        COL_MAYBE_EXECUTED,
        COL_LEASE_UNTIL,
        COL_LEASE_US,
        COL_CLAIMED_AT,
        COL_REQUEST_UNTIL,
        COL_RETENTION_US,
        COL_EXPIRE_AT,
        COL_CREATED_AT,
        COL_NOW,
        COL_MODE,
        COL_SCOPE,
        COL_OPERATION,
        COL_KEY,
        COL_HOLDER,
        COL_STATUS,
        COL_FLAGS,
        COL_HEADERS,
        COL_BODY,
        COL_BODY_BYTES,
};

int64_t pg_result_int(const PGresult *res, int row, int column)
{
        const uint8_t *p = (const uint8_t *)PQgetvalue(res, row, column);
        int n = PQgetlength(res, row, column);
        uint64_t v = n > 0 && (p[0] & 0x80) ? ~UINT64_C(0) : 0;
        for (int i = 0; i < n && i < 8; i++)
                v = v << 8 | p[i];
        return (int64_t)v;
}

int64_t pg_result_changed(PGresult *res)
{
        return strtoll(PQcmdTuples(res), NULL, 10);
}

int64_t pg_result_time_us(const PGresult *res, int row, int column)
{
        return PQgetisnull(res, row, column) ? 0 : pg_result_int(res, row, column) + PG_EPOCH_US;
}

struct span pg_result_bytes(const PGresult *res, int row, int column)
{
        return span_of(PQgetvalue(res, row, column), (size_t)PQgetlength(res, row, column));
}

bool pg_result_bool(const PGresult *res, int row, int column)
{
        return !PQgetisnull(res, row, column) && PQgetvalue(res, row, column)[0] != 0;
}

/* Fixed-size bytes; false when the length is another. */
static bool copy_bytes(const PGresult *res, int row, int column, uint8_t *out, size_t n)
{
        struct span s = pg_result_bytes(res, row, column);
        if (s.n != n)
                return false;
        memcpy(out, s.p, n);
        return true;
}

static bool decode_row(const PGresult *res, int row, struct command_row *out)
{
        int64_t state = pg_result_int(res, row, COL_STATE);
        *out = (struct command_row){
                /* What a newer version may have written is nothing that we can know. */
                .state = state >= 0 && state < COMMAND_STATES ? (enum command_state)state
                                                              : COMMAND_UNKNOWN,
                .token = pg_result_int(res, row, COL_TOKEN),
                .policy = {.retry = pg_result_bool(res, row, COL_RETRY),
                           .idempotent = pg_result_bool(res, row, COL_IDEMPOTENT)},
                .maybe_executed = pg_result_bool(res, row, COL_MAYBE_EXECUTED),
                .lease_until_us = pg_result_time_us(res, row, COL_LEASE_UNTIL),
                .lease_len_us = pg_result_int(res, row, COL_LEASE_US),
                .claimed_us = pg_result_time_us(res, row, COL_CLAIMED_AT),
                .request_until_us = pg_result_time_us(res, row, COL_REQUEST_UNTIL),
                .retention_us = pg_result_int(res, row, COL_RETENTION_US),
                .expire_us = pg_result_time_us(res, row, COL_EXPIRE_AT),
                .created_us = pg_result_time_us(res, row, COL_CREATED_AT),
        };
        return copy_bytes(res, row, COL_ID, out->id.b, sizeof out->id.b) &&
               copy_bytes(res, row, COL_ATTEMPT, out->attempt.b, sizeof out->attempt.b) &&
               copy_bytes(res, row, COL_FINGERPRINT, out->fingerprint.b,
                          sizeof out->fingerprint.b);
}

static int decode_label(const PGresult *res, int row, struct store_record *rec)
{
        const struct store_label label = {
                .mode = (enum command_mode)pg_result_int(res, row, COL_MODE),
                .scope = pg_result_bytes(res, row, COL_SCOPE),
                .operation = pg_result_bytes(res, row, COL_OPERATION),
                .key = pg_result_bytes(res, row, COL_KEY),
                .holder = pg_result_bytes(res, row, COL_HOLDER),
        };
        return store_record_set_label(rec, &label);
}

static int decode_reply(const PGresult *res, int row, struct store_record *rec,
                        bool *ret_body_left_out)
{
        rec->has_reply = false;
        if (PQgetisnull(res, row, COL_STATUS))
                return BUF_OK;
        if (PQgetisnull(res, row, COL_BODY) && pg_result_int(res, row, COL_BODY_BYTES) > 0) {
                if (ret_body_left_out)
                        *ret_body_left_out = true;
                return BUF_OK;
        }
        const struct store_reply rep = {
                .status = (int32_t)pg_result_int(res, row, COL_STATUS),
                .flags = (uint32_t)pg_result_int(res, row, COL_FLAGS),
                .headers = pg_result_bytes(res, row, COL_HEADERS),
                .body = pg_result_bytes(res, row, COL_BODY),
        };
        return store_record_set_reply(rec, &rep);
}

static semel_code decode_failed(semel_error *err, int rc)
{
        if (rc == BUF_NO_MEMORY)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a row of the database");
        return err_set(err, SEMEL_ERR_CORRUPT,
                       "a row of semel.command does not decode: it is damaged, or not semel's");
}

semel_code pg_row_decode(const PGresult *res, int row, enum row_part part, struct store_record *rec,
                      bool *ret_body_left_out, semel_error *err)
{
        if (!decode_row(res, row, &rec->row))
                return decode_failed(err, BUF_FULL);
        int64_t now_us = pg_result_time_us(res, row, COL_NOW);
        rec->now = (struct command_now){.lease_us = now_us, .wall_us = now_us};
        int rc = decode_label(res, row, rec);
        if (rc == BUF_OK && part == ROW_LABEL_AND_REPLY)
                rc = decode_reply(res, row, rec, ret_body_left_out);
        return rc == BUF_OK ? SEMEL_OK : decode_failed(err, rc);
}

void pg_guard_begin(struct params *p, void (*begin)(struct params *, int, enum pg_type))
{
        static const enum pg_type types[] = {PG_BYTEA, PG_INT8,        PG_BYTEA,
                                             PG_INT2,  PG_TIMESTAMPTZ, PG_TIMESTAMPTZ};
        for (int i = 0; i < 6; i++)
                begin(p, i, types[i]);
}

void pg_guard_add(struct params *p, const struct command_row *row)
{
        pg_params_bytea(p, 0, span_of(row->id.b, sizeof row->id.b));
        pg_params_int(p, 1, row->token);
        pg_params_bytea(p, 2, span_of(row->attempt.b, sizeof row->attempt.b));
        pg_params_int(p, 3, row->state);
        pg_params_time(p, 4, row->lease_until_us);
        if (row->expire_us == 0)
                pg_params_null(p, 5);
        else
                pg_params_time(p, 5, row->expire_us);
}
