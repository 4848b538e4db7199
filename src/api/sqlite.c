/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite: semel/sqlite.h over the driver.
 */
#include <semel/sqlite.h>

#include "api/event_object.h"
#include "api/registry.h"
#include "api/tx_run.h"
#include "store/sqlite/sqlite_store.h"

void semel_sqlite_register(void)
{
        semel_internal_driver_register(&store_sqlite_driver);
}

static semel_effect run_fn(const struct tx_call *call, semel_reply *rep)
{
        return ((semel_sqlite_fn)call->fn)(call->arg, call->conn, rep);
}

semel_outcome semel_sqlite_run(struct sqlite3 *db, const semel_command *cmd, semel_sqlite_fn fn,
                           void *arg, semel_reply **ret_reply, semel_error *err)
{
        const struct tx_call call = {
                .run = run_fn, .arg = arg, .conn = db, .fn = (void (*)(void))fn};
        return tx_run(&store_sqlite_tx, cmd, &call, ret_reply, err);
}

semel_code semel_sqlite_migrate(struct sqlite3 *db, semel_error *err)
{
        return sqlite_store_migrate_db(db, err);
}

semel_code semel_sqlite_outbox_append(struct sqlite3 *db, const semel_event *ev, char *ret_event_id,
                                      semel_error *err)
{
        return sqlite_outbox_append(db, event_object_view(ev), ret_event_id, err);
}

semel_code semel_sqlite_inbox_first(struct sqlite3 *db, const char *consumer, const char *source,
                                    const char *event_id, const unsigned char *payload_hash,
                                    bool *ret_first, semel_error *err)
{
        struct inbox_event event = {.consumer = span_str(consumer),
                                    .source = span_str(source),
                                    .id = span_str(event_id),
                                    .has_hash = payload_hash != NULL};
        if (payload_hash)
                memcpy(event.hash, payload_hash, sizeof event.hash);
        return sqlite_inbox_first(db, &event, ret_first, err);
}
