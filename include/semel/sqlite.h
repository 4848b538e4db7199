/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/sqlite.h: SQLite as a store, and a command inside the caller's own transaction.
 * Link libsemel-sqlite.
 */
#ifndef SEMEL_SQLITE_H
#define SEMEL_SQLITE_H

#include <semel/event.h>
#include <semel/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* SQLite's handle, named here so that this header does not need sqlite3.h. */
struct sqlite3;

/* Make sqlite: known to semel_store_open().  Safe to call more than once. */
SEMEL_API void semel_sqlite_register(void);

/* Make the tables of semel in the caller's own database file (idempotent).
 * Errors: SEMEL_ERR_SCHEMA (newer than this library), SEMEL_ERR_STORE_READ_ONLY,
 * SEMEL_ERR_BUSY, SEMEL_ERR_STORE_FULL. */
SEMEL_API semel_code semel_sqlite_migrate(struct sqlite3 *db, semel_error *err);

/* The command; see semel_pg_fn: the same rules. */
typedef semel_effect (*semel_sqlite_fn)(void *arg, struct sqlite3 *db, semel_reply *reply);

/* Run `fn` once per key inside the transaction that is open on `db`.  Exactly once.
 *
 * db  in a transaction begun with BEGIN IMMEDIATE (a deferred one cannot wait for a writer and
 *     answers SEMEL_ERR_CONFLICT, "retry your transaction"); borrowed.
 * Because a writer holds the whole file, a running duplicate is waited for by BEGIN
 * IMMEDIATE itself: set busy_timeout to what you would give as wait_ms.
 * Outcomes as semel_pg_run(). */
SEMEL_API semel_outcome semel_sqlite_run(struct sqlite3 *db, const semel_command *cmd,
                                         semel_sqlite_fn fn, void *arg, semel_reply **ret_reply,
                                         semel_error *err);

/* Leave an event in the outbox: it is published after the transaction on `db` has committed, and
 * never if it does not.  Other languages INSERT into semel_outbox (docs/outbox.md).
 *
 * db            in a transaction (SEMEL_ERR_TX_STATE without one); borrowed.
 * ret_event_id  SEMEL_EVENT_ID_BYTES for the event's id, or NULL.
 * Errors: SEMEL_ERR_ARGUMENT (its id is there already), SEMEL_ERR_SCHEMA, SEMEL_ERR_BUSY,
 * SEMEL_ERR_CONFLICT, SEMEL_ERR_STORE_FULL, ...: roll back, or go on without the event. */
SEMEL_API semel_code semel_sqlite_outbox_append(struct sqlite3 *db, const semel_event *ev,
                                                char *ret_event_id, semel_error *err);

/* Is this event new to this consumer?  See semel_pg_inbox_first(): the same rules.
 * db  in a transaction begun with BEGIN IMMEDIATE, in whose main file are semel's tables
 *     (semel_sqlite_migrate). */
SEMEL_API semel_code semel_sqlite_inbox_first(struct sqlite3 *db, const char *consumer,
                                              const char *source, const char *event_id,
                                              const unsigned char *payload_hash, bool *ret_first,
                                              semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
