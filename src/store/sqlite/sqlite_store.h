/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_store: the embedded store, and a command or an event inside a caller's SQLite transaction.
 */
#ifndef STORE_SQLITE_STORE_H
#define STORE_SQLITE_STORE_H

#include "core/event.h"
#include "store/tx.h"

extern const struct store_driver store_sqlite_driver;
extern const struct store_tx_vt store_sqlite_tx; /* conn is a struct sqlite3 * */

struct sqlite3;
inbox_open_fn sqlite_inbox_open;
/* semel_sqlite_inbox_first(): consumer, source, id and hash of `event` count. */
semel_code sqlite_inbox_first(struct sqlite3 *db, const struct inbox_event *event, bool *ret_first,
                              semel_error *err);
semel_code sqlite_store_migrate_db(struct sqlite3 *db, semel_error *err);
/* See semel_sqlite_outbox_append(). */
semel_code sqlite_outbox_append(struct sqlite3 *db, const struct event *ev,
                                char ret_event_id[EVENT_ID_TEXT_BYTES], semel_error *err);

#endif
