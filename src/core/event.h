/* SPDX-License-Identifier: Apache-2.0
 *
 * event: what an outbox row and a message have in common, as borrowed bytes.
 */
#ifndef CORE_EVENT_H
#define CORE_EVENT_H

#include "base/span.h"

enum { EVENT_ID_BYTES = 16, EVENT_ID_TEXT_BYTES = 37, EVENT_NO_PARTITION = -1 };

struct event_header {
        struct span name, value;
        bool value_is_null;
};

struct event {
        uint8_t id[EVENT_ID_BYTES];
        struct span topic, key, payload, traceparent;
        bool key_is_null;
        bool payload_is_null; /* a tombstone, which is not an empty payload */
        bool has_id;          /* false while appending: the database makes one */
        int32_t partition;    /* EVENT_NO_PARTITION: the key chooses */
        const struct event_header *headers;
        size_t header_count;
};

void event_id_format(const uint8_t id[EVENT_ID_BYTES], char ret[EVENT_ID_TEXT_BYTES]);
/* Lower or upper case, with dashes.  false: not an id. */
bool event_id_parse(const char *text, size_t n, uint8_t ret[EVENT_ID_BYTES]);

/* Kafka's own rule, and so the outbox's: "." and ".." are names of folders on its disk. */
bool event_topic_is_valid(struct span topic);
/* The same of a part of a name, which may be empty. */
bool event_topic_is_part(struct span part);

/* -- slots (rule C1) ---------------------------------------------------------------------------
 *
 * slot = (first two bytes, big-endian, of SHA-256 of the key's UTF-8 bytes) mod EVENT_SLOTS; of
 * the id's decimal digits when there is no key.  The SQL function semel.slot_of() says the same;
 * tests/data/slots.txt has the golden vectors. */
enum { EVENT_SLOTS = 16, EVENT_GROUPS = 4 };
enum { EVENT_ALL_SLOTS = (1 << EVENT_SLOTS) - 1 }; /* bit n: slot n */

static inline int event_slot_of_digest(const uint8_t sha256[32])
{
        return (int)(((unsigned)sha256[0] << 8 | sha256[1]) % EVENT_SLOTS);
}

/* Exactly-once shares the work by groups of slots (rule C8). */
static inline int event_group_of_slot(int slot)
{
        return slot % EVENT_GROUPS;
}

#endif
