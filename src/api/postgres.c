/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres: semel/postgres.h over the driver.
 */
#include <semel/postgres.h>

#include "api/event_object.h"
#include "api/registry.h"
#include "api/tx_run.h"
#include "store/postgres/postgres_store.h"

void semel_postgres_register(void)
{
        semel_internal_driver_register(&store_postgres_driver);
}

semel_code semel_pg_prepare(struct pg_conn *conn, semel_error *err)
{
        return postgres_store_prepare(conn, err);
}

static semel_effect run_fn(const struct tx_call *call, semel_reply *rep)
{
        return ((semel_pg_fn)call->fn)(call->arg, call->conn, rep);
}

semel_outcome semel_pg_run(struct pg_conn *conn, const semel_command *cmd, semel_pg_fn fn,
                           void *arg, semel_reply **ret_reply, semel_error *err)
{
        const struct tx_call call = {
                .run = run_fn, .arg = arg, .conn = conn, .fn = (void (*)(void))fn};
        return tx_run(&store_postgres_tx, cmd, &call, ret_reply, err);
}

semel_code semel_pg_outbox_append(struct pg_conn *conn, const semel_event *ev, char *ret_event_id,
                                  semel_error *err)
{
        uint8_t id[EVENT_ID_BYTES];
        semel_code code = postgres_store_append(conn, event_object_view(ev), id, err);
        if (code == SEMEL_OK && ret_event_id)
                event_id_format(id, ret_event_id);
        return code;
}

semel_code semel_pg_inbox_first(struct pg_conn *conn, const char *consumer, const char *source,
                                const char *event_id, const unsigned char *payload_hash,
                                bool *ret_first, semel_error *err)
{
        struct inbox_event event = {.consumer = span_str(consumer),
                                    .source = span_str(source),
                                    .id = span_str(event_id),
                                    .has_hash = payload_hash != NULL};
        if (payload_hash)
                memcpy(event.hash, payload_hash, sizeof event.hash);
        return postgres_inbox_first(conn, &event, ret_first, err);
}
