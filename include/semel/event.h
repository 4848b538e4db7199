/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/event.h: a message that a transaction leaves in the outbox, for the relay to publish once
 * the transaction has committed.
 *
 *     semel_event *ev = semel_event_new("orders", err);
 *     semel_event_set_key(ev, order_id, strlen(order_id), NULL);
 *     semel_event_set_payload(ev, json, json_len, NULL);
 *     semel_pg_outbox_append(conn, ev, NULL, err);        // semel/postgres.h
 */
#ifndef SEMEL_EVENT_H
#define SEMEL_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_event semel_event;

/* The text of an event id with its NUL: 8-4-4-4-12 hexadecimal digits. */
enum { SEMEL_EVENT_ID_BYTES = 37 };

/* An event for this topic (1..249 of the characters that Kafka allows: letters, digits, '.', '_',
 * '-').  No key, no payload (a tombstone), no headers, an id made when it is appended.
 * NULL and err: SEMEL_ERR_ARGUMENT, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_event *semel_event_new(const char *topic, semel_error *err);
SEMEL_API void semel_event_free(semel_event *ev); /* NULL is fine */

/* The key, usually the aggregate's id: events of one key are published in the order of their ids,
 * which is the order of the commits when the writers of one key take turns (lock the aggregate).
 * UTF-8 without NUL, at most 4,096 bytes, copied.  Errors: SEMEL_ERR_ARGUMENT,
 * SEMEL_ERR_TOO_LARGE, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_code semel_event_set_key(semel_event *ev, const char *key, size_t n,
                                         semel_error *err);

/* The payload, copied; any bytes, at most 64 MiB (the broker's own limit is usually 1 MiB: a row
 * beyond it becomes DEAD and says so).  NULL: a tombstone, which is not the same as 0 bytes. */
SEMEL_API semel_code semel_event_set_payload(semel_event *ev, const void *payload, size_t n,
                                             semel_error *err);

/* Append a header: order and repeats are kept, values are any bytes, NULL is Kafka's null.  At most
 * 64 headers and 64 KiB in all; the name is UTF-8, `event-id` is refused (it is the relay's). */
SEMEL_API semel_code semel_event_add_header(semel_event *ev, const char *name, const void *value,
                                            size_t n, semel_error *err);

/* The id that consumers deduplicate by; without it a random one is made.  `id` as
 * SEMEL_EVENT_ID_BYTES describes it. */
SEMEL_API semel_code semel_event_set_id(semel_event *ev, const char *id, semel_error *err);

/* Publish to this partition instead of the one that the key chooses; 0 or more. */
SEMEL_API semel_code semel_event_set_partition(semel_event *ev, int32_t partition,
                                               semel_error *err);

/* W3C trace context, sent as the header `traceparent`.  At most 255 printable bytes. */
SEMEL_API semel_code semel_event_set_traceparent(semel_event *ev, const char *traceparent,
                                                 semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
