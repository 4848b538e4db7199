/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_marker: the value of an exactly-once marker (rule C8): which rows a Kafka transaction holds.
 *
 *     "SMK" 2 | count, 4 bytes | count times: id, 8 bytes; event id, 16; when it was published before, 8
 *                                                                                         (big-endian)
 *
 * Both ids, since after a restored backup the database gives the same ids to other events.  The time,
 * as the row had it (microseconds since 1970; 0: never), since an operator may have a row sent again:
 * the marker of the first time says nothing about the second.  "SMK" 1 is without it.
 */
#ifndef CORE_OUTBOX_MARKER_H
#define CORE_OUTBOX_MARKER_H

#include "core/event.h"

enum { OUTBOX_MARKER_HEAD_BYTES = 8, OUTBOX_MARKER_ROW_BYTES = 8 + EVENT_ID_BYTES + 8 };

static inline size_t outbox_marker_bytes(size_t rows)
{
        return OUTBOX_MARKER_HEAD_BYTES + rows * OUTBOX_MARKER_ROW_BYTES;
}

/* Into outbox_marker_bytes(n) bytes; then each row. */
void outbox_marker_begin(uint8_t *p, size_t n);
void outbox_marker_put(uint8_t *p, size_t i, int64_t id, const uint8_t event_id[EVENT_ID_BYTES],
                       int64_t published_us);

/* false: no marker of ours. */
bool outbox_marker_count(struct span marker, size_t *ret_n);
void outbox_marker_get(struct span marker, size_t i, int64_t *ret_id,
                       uint8_t ret_event_id[EVENT_ID_BYTES], int64_t *ret_published_us);

/* The marker's key, and the transactional id: "semel-" outbox uuid "-" group. */
enum { OUTBOX_MARKER_KEY_BYTES = 6 + EVENT_ID_TEXT_BYTES + 2 };
void outbox_marker_key(const uint8_t outbox[EVENT_ID_BYTES], int group,
                       char ret[OUTBOX_MARKER_KEY_BYTES]);

#endif
