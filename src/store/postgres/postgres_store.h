/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres_store: the shared store, and a command inside a caller's PostgreSQL transaction.
 */
#ifndef STORE_POSTGRES_STORE_H
#define STORE_POSTGRES_STORE_H

#include "core/event.h"
#include "store/tx.h"

extern const struct store_driver store_postgres_driver;
extern const struct store_tx_vt store_postgres_tx; /* conn is a struct pg_conn * */

/* semel_pg_prepare() */
struct pg_conn;
inbox_open_fn postgres_inbox_open;
/* semel_pg_inbox_first(): consumer, source, id and hash of `event` count. */
semel_code postgres_inbox_first(struct pg_conn *conn, const struct inbox_event *event,
                                bool *ret_first, semel_error *err);
semel_code postgres_store_prepare(struct pg_conn *conn, semel_error *err);

/* semel_pg_outbox_append() */
semel_code postgres_store_append(struct pg_conn *conn, const struct event *ev,
                                 uint8_t ret_id[EVENT_ID_BYTES], semel_error *err);

#endif
