/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_append: an event into the outbox, in the transaction that the caller has open.
 */
#include <stdlib.h>

#include "json/event_headers.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_params.h"
#include "store/postgres/pg_tx_statement.h"
#include "store/postgres/postgres_store.h"

/* Headers as JSON: every byte of a value may become four thirds of one, and names are escaped. */
enum { HEADERS_JSON_BYTES_MAX = 8 * LIMIT_EVENT_HEADERS_BYTES };

static semel_code send(PGconn *pg, const struct event *ev, const struct buf *headers,
                       uint8_t ret_id[EVENT_ID_BYTES], semel_error *err)
{
        struct params p;
        PGresult *res = NULL;
        semel_code code = SEMEL_OK;
        pg_params_init(&p);
        pg_params_clear(&p, 7);
        pg_params_maybe(&p, 0, PG_UUID, span_of(ev->id, sizeof ev->id), !ev->has_id);
        /* Bytes: the server would take text for what the caller's connection speaks. */
        pg_params_maybe(&p, 1, PG_BYTEA, ev->topic, false);
        pg_params_maybe(&p, 2, PG_BYTEA, ev->key, ev->key_is_null);
        pg_params_maybe(&p, 3, PG_BYTEA, ev->payload, ev->payload_is_null);
        pg_params_maybe(&p, 4, PG_BYTEA, buf_span(headers), headers->n == 0);
        pg_params_scalar(&p, 5, PG_INT4);
        if (ev->partition == EVENT_NO_PARTITION)
                pg_params_null(&p, 5);
        else
                pg_params_int(&p, 5, ev->partition);
        pg_params_maybe(&p, 6, PG_BYTEA, ev->traceparent, ev->traceparent.n == 0);
        if (pg_params_finish(&p) != BUF_OK) {
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an event");
                goto out;
        }
        res = PQexecParams(pg, sql_postgres_outbox_append, p.n, p.types, p.values, p.lengths,
                           p.formats, 1);
        if (PQresultStatus(res) != PGRES_TUPLES_OK) {
                const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
                if (state && strcmp(state, "23505") == 0)
                        code = err_set(err, SEMEL_ERR_ARGUMENT,
                                       "an event with this id is in the outbox already: leave the "
                                       "id away, and a new one is made");
                else
                        code = PQstatus(pg) == CONNECTION_OK ? pg_error_from_result(err, res)
                                                             : pg_error_from_connection(err, pg);
                goto out;
        }
        memcpy(ret_id, PQgetvalue(res, 0, 0), EVENT_ID_BYTES);
out:
        PQclear(res);
        pg_params_release(&p);
        return code;
}

semel_code postgres_store_append(struct pg_conn *conn, const struct event *ev,
                                 uint8_t ret_id[EVENT_ID_BYTES], semel_error *err)
{
        PGconn *pg = conn;
        struct buf headers;
        if (!ev)
                return err_set(err, SEMEL_ERR_ARGUMENT, "there is no event");
        buf_init(&headers, HEADERS_JSON_BYTES_MAX);
        semel_code code = pg_tx_check(pg, err);
        if (code == SEMEL_OK)
                code = event_headers_encode(ev->headers, ev->header_count, &headers, err);
        if (code == SEMEL_OK)
                code = send(pg, ev, &headers, ret_id, err);
        buf_release(&headers);
        return code;
}
