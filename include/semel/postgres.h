/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/postgres.h: PostgreSQL as a store, and a command inside the caller's own
 * transaction.  Link libsemel-postgres.
 */
#ifndef SEMEL_POSTGRES_H
#define SEMEL_POSTGRES_H

#include <semel/event.h>
#include <semel/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libpq's PGconn, named here so that this header does not need libpq-fe.h. */
struct pg_conn;

/* Make postgres:// known to semel_store_open().  Safe to call more than once. */
SEMEL_API void semel_postgres_register(void);

/* Prepare the statements of semel_pg_run() on this connection, once after connecting: it then
 * sends them by name, and the server need not parse and plan them each time, which is most of what
 * they cost.  Optional.  Not for a connection through a pooler that gives each transaction
 * another server connection (PgBouncer's transaction mode): names do not travel.  After PQreset() it
 * is as if never called.  DISCARD ALL or DEALLOCATE ALL takes the names away: the next
 * semel_pg_run() answers SEMEL_ERR_CONFLICT, "retry your transaction", and goes on without.
 * conn  borrowed; blocking mode, no transaction.
 * Errors: SEMEL_ERR_TX_STATE, SEMEL_ERR_STORE_DOWN, SEMEL_ERR_SCHEMA, SEMEL_ERR_ACCESS. */
SEMEL_API semel_code semel_pg_prepare(struct pg_conn *conn, semel_error *err);

/* The command.  `conn` is in the caller's transaction; statements on it commit together
 * with the record of the key.  It must neither commit nor roll back the transaction;
 * savepoints of its own are fine.  SEMEL_EFFECT_FAILED rolls its statements back.
 * SEMEL_EFFECT_UNKNOWN makes no sense here and is treated as SEMEL_EFFECT_FAILED. */
typedef semel_effect (*semel_pg_fn)(void *arg, struct pg_conn *conn, semel_reply *reply);

/* Run `fn` once per key inside the transaction that is open on `conn`: record and effect
 * commit together or not at all.  Exactly once.
 *
 * conn  in a transaction (BEGIN sent), READ COMMITTED; borrowed; blocking mode.
 * A running duplicate is waited for at most the command's wait_ms, then SEMEL_IN_FLIGHT.
 * Outcomes: SEMEL_RAN (COMMIT makes it true), SEMEL_REPLAYED, SEMEL_IN_FLIGHT,
 * SEMEL_MISMATCH, SEMEL_FAILED (the key is free, the transaction is usable), SEMEL_UNKNOWN
 * (never here unless the key was left so by an operator), SEMEL_ERROR: SEMEL_ERR_TX_STATE (no transaction, or
 * a failed one), SEMEL_ERR_CONFLICT (40001 and relatives: roll back and retry your transaction),
 * SEMEL_ERR_STORE_DOWN.
 * After a COMMIT whose answer was lost, call it again in a new transaction: it answers
 * SEMEL_REPLAYED if the first one happened.  lock_timeout and statement_timeout of the
 * session are as before when it returns. */
SEMEL_API semel_outcome semel_pg_run(struct pg_conn *conn, const semel_command *cmd,
                                     semel_pg_fn fn, void *arg, semel_reply **ret_reply,
                                     semel_error *err);

/* Leave an event in semel.outbox, in the transaction that is open on `conn`: COMMIT makes both the
 * caller's changes and the event true, and a relay publishes it (`semel relay`).  One statement; needs
 * no semel_pg_prepare(); the connection's client_encoding does not matter.  Events of one key are published in the order of these calls when the
 * writers of the key take turns, as they do when each locks its aggregate first.
 * conn   in a transaction; borrowed; blocking mode
 * ev     borrowed, may be appended again: unless it has an id, each append makes another
 * ret_event_id  SEMEL_EVENT_ID_BYTES bytes, or NULL
 * Errors: SEMEL_ERR_TX_STATE (no transaction, or one that has failed), SEMEL_ERR_ACCESS,
 * SEMEL_ERR_SCHEMA, SEMEL_ERR_CONFLICT, SEMEL_ERR_STORE_DOWN, SEMEL_ERR_NO_MEMORY.  After one that the
 * server said, the transaction has failed: roll back. */
SEMEL_API semel_code semel_pg_outbox_append(struct pg_conn *conn, const semel_event *ev,
                                            char *ret_event_id, semel_error *err);

/* Is this event new to this consumer?  In the transaction that is open on `conn`: the record commits
 * together with what the caller does for the event.  An event that is not new is a success, and
 * *ret_first is false.
 * consumer, source, event_id  1 to 255 bytes of UTF-8 each, whatever the connection's client_encoding is;
 *                             source is usually the topic.
 * payload_hash                32 bytes (SHA-256 of the payload), or NULL.  The same id with another
 *                             hash leaves a row in semel.inbox_alarm.
 * Records stay until `semel inbox prune --consumer NAME`, or until a `semel consume` of that name forgets them.
 * Another transaction that is at the same event is waited for, at most 5 s: SEMEL_ERR_BUSY then, and
 * the transaction is usable.  SEMEL_ERR_CONFLICT: roll back and retry your transaction.
 * SEMEL_ERR_TX_STATE: no transaction is open, or it has failed.  SEMEL_ERR_ARGUMENT. */
SEMEL_API semel_code semel_pg_inbox_first(struct pg_conn *conn, const char *consumer,
                                          const char *source, const char *event_id,
                                          const unsigned char *payload_hash, bool *ret_first,
                                          semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
