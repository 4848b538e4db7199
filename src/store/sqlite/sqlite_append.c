/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_append: an event into the outbox, in the transaction that is open on the caller's connection.
 */
#include "store/sqlite/sqlite_store.h"

#include <errno.h>

#include "core/event.h"
#include "core/limits.h"
#include "json/event_headers.h"
#include "sql_sqlite.h"
#include "store/sqlite/sqlite_session.h"
#include "sys/clock.h"
#include "sys/random.h"

/* RFC 9562, version 7, as the column's default: ids that were made together lie together. */
static semel_code make_id(uint8_t ret[EVENT_ID_BYTES], semel_error *err)
{
        uint64_t ms = (uint64_t)clock_wall_us() / 1000;
        if (random_bytes(ret, EVENT_ID_BYTES) != 0)
                return err_set_errno(err, SEMEL_ERR_INTERNAL, errno,
                                     "the kernel gives no random bytes for an event id");
        for (int i = 0; i < 6; i++)
                ret[i] = (uint8_t)(ms >> (40 - 8 * i));
        ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x70);
        ret[8] = (uint8_t)((ret[8] & 0x3f) | 0x80);
        return SEMEL_OK;
}

static void bind_event(sqlite3_stmt *stmt, const struct event *ev, const char *id,
                       const struct buf *headers)
{
        bind_text(stmt, 1, span_str(id));
        bind_text(stmt, 2, ev->topic);
        if (!ev->key_is_null)
                bind_text(stmt, 3, ev->key);
        /* An empty payload is no tombstone. */
        bind_bytes(stmt, 4, ev->payload, ev->payload_is_null);
        if (headers->n > 0)
                bind_text(stmt, 5, buf_span(headers));
        if (ev->traceparent.n > 0)
                bind_text(stmt, 6, ev->traceparent);
        if (ev->partition != EVENT_NO_PARTITION)
                (void)sqlite3_bind_int(stmt, 7, ev->partition);
}

static semel_code insert(sqlite3 *db, const struct event *ev, const char *id,
                         const struct buf *headers, semel_error *err)
{
        const char *name = sqlite3_db_filename(db, "main");
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(db, sql_sqlite_outbox_append, -1, &stmt, NULL);
        if (rc == SQLITE_OK) {
                bind_event(stmt, ev, id, headers);
                rc = sqlite3_step(stmt);
        }
        if (rc != SQLITE_DONE)
                rc = sqlite3_extended_errcode(db);
        semel_code code = SEMEL_OK;
        if (rc == SQLITE_CONSTRAINT_UNIQUE)
                code = err_set(err, SEMEL_ERR_ARGUMENT,
                               "an event with the id %s is in the outbox already: leave the id "
                               "away, and a new one is made",
                               id);
        else if (rc != SQLITE_DONE)
                code = sqlite_error(db, rc, name && *name ? name : "the database in memory", err);
        (void)sqlite3_finalize(stmt);
        return code;
}

semel_code sqlite_outbox_append(struct sqlite3 *db, const struct event *ev,
                                char ret_event_id[EVENT_ID_TEXT_BYTES], semel_error *err)
{
        uint8_t id[EVENT_ID_BYTES];
        char text[EVENT_ID_TEXT_BYTES];
        struct buf headers;
        semel_code code = SEMEL_OK;
        if (!db || !ev)
                return err_set(err, SEMEL_ERR_ARGUMENT, "there is no connection, or no event");
        if (sqlite3_get_autocommit(db))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "no transaction is open on the connection: an event belongs to what "
                               "it tells of, so begin one with BEGIN IMMEDIATE first");
        /* Base64 makes 4 of 3 bytes, and each pair has its brackets. */
        buf_init(&headers, 8 * LIMIT_EVENT_HEADERS_BYTES);
        memcpy(id, ev->id, sizeof id);
        if (!ev->has_id)
                code = make_id(id, err);
        if (code == SEMEL_OK)
                code = event_headers_encode(ev->headers, ev->header_count, &headers, err);
        event_id_format(id, text);
        if (code == SEMEL_OK)
                code = insert(db, ev, text, &headers, err);
        if (code == SEMEL_OK && ret_event_id)
                memcpy(ret_event_id, text, sizeof text);
        buf_release(&headers);
        return code;
}
