/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/consume.h: apply each event of a Kafka topic once.  Link libsemel-kafka and the library of
 * your database (libsemel-postgres or libsemel-sqlite).
 *
 *     static int apply(void *arg, const semel_message *msg, struct pg_conn *pg, struct sqlite3 *db,
 *                      semel_error *why)
 *     {
 *             ... statements on pg (or db): they commit together with the record of the event ...
 *             return 0;
 *     }
 *
 *     semel_postgres_register();
 *     semel_consumer *c = semel_consumer_new("postgres:///billing", "broker:9092", "billing", err);
 *     semel_consumer_add_topic(c, "orders", err);
 *     semel_shutdown *down = semel_shutdown_new(0, 25000, err);
 *     return semel_consume(c, apply, NULL, down, err) == SEMEL_OK ? 0 : 1;
 */
#ifndef SEMEL_CONSUME_H
#define SEMEL_CONSUME_H

#include <stddef.h>
#include <stdint.h>

#include <semel/error.h>
#include <semel/shutdown.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libpq's PGconn and SQLite's handle, named here so that their headers are not needed. */
struct pg_conn;
struct sqlite3;

/* An event, valid while the handler runs. */
typedef struct semel_message semel_message;

/* Its id, as it is recorded; never NULL. */
SEMEL_API const char *semel_message_id(const semel_message *msg);
SEMEL_API const char *semel_message_topic(const semel_message *msg);
/* NULL: none (no key; a tombstone). */
SEMEL_API const void *semel_message_key(const semel_message *msg, size_t *ret_n);
SEMEL_API const void *semel_message_payload(const semel_message *msg, size_t *ret_n);
/* All headers as JSON text: [["name", "value"], ...]. */
SEMEL_API const char *semel_message_headers(const semel_message *msg);
SEMEL_API int32_t semel_message_partition(const semel_message *msg);
SEMEL_API int64_t semel_message_offset(const semel_message *msg);

/* Apply one event inside the transaction that is open on `pg` or `db` (the other is NULL).
 * It must not end the transaction.  0: done, and the transaction may commit.  Anything else: roll it
 * back; the event is tried again, and becomes a dead letter after attempts_max tries.  A reason
 * may be left in `why` (semel_consume_fail).  A statement that failed with 40001, 40P01 or 55P03
 * is not counted as a try, whatever is returned.
 * Up to batch-rows events (20) share a transaction: when one of them fails, or the connection breaks, those
 * before it are rolled back and handled again, so what a handler does elsewhere must be safe to
 * repeat (semel/call.h, with a key made of the event's id).
 * Called from several threads at once, for different partitions. */
typedef int (*semel_consume_fn)(void *arg, const semel_message *msg, struct pg_conn *pg,
                                struct sqlite3 *db, semel_error *why);

/* For handlers: leave this reason in `why`, and -1 to return. */
SEMEL_API int semel_consume_fail(semel_error *why, const char *reason);

typedef struct semel_consumer semel_consumer;

/* db is as semel_store_open() takes it.  The name under which events are recorded is the group.
 * NULL and err: SEMEL_ERR_ARGUMENT, SEMEL_ERR_URL, SEMEL_ERR_NOT_LINKED, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_consumer *semel_consumer_new(const char *db, const char *brokers,
                                             const char *group, semel_error *err);
SEMEL_API void semel_consumer_free(semel_consumer *c); /* NULL is fine */

/* At least one.  At most 64. */
SEMEL_API semel_code semel_consumer_add_topic(semel_consumer *c, const char *topic,
                                              semel_error *err);
/* By the names of `semel consume`'s options, without dashes: "consumer", "source",
 * "event-id-pointer", "attempts-max", "batch-rows", "dead-topic", "inbox-retention", "workers",
 * and "kafka" with a value of the form name=value.
 * Errors: SEMEL_ERR_ARGUMENT, which says what would be right. */
SEMEL_API semel_code semel_consumer_set(semel_consumer *c, const char *name, const char *value,
                                        semel_error *err);
/* One line for people, now and then; from any thread. */
SEMEL_API void semel_consumer_on_line(semel_consumer *c, void (*fn)(void *arg, const char *line),
                                      void *arg);

/* Consume until `down` says that it is time to end: what has begun is finished and its offset is
 * committed.  Blocks; `fn` runs on threads of its own.
 * SEMEL_OK: ended because of `down`, everything that had begun was finished.
 * SEMEL_ERR_BUSY: the deadline of `down` cut something off; it will be redelivered.  A handler that has
 *                 not returned may still be running: end the process.
 * Others: it could not start, or cannot go on: SEMEL_ERR_SCHEMA, SEMEL_ERR_ACCESS, ... */
SEMEL_API semel_code semel_consume(semel_consumer *c, semel_consume_fn fn, void *arg,
                                   semel_shutdown *down, semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
