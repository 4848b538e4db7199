/* SPDX-License-Identifier: Apache-2.0
 *
 * event_object: what is behind semel_event.
 */
#ifndef API_EVENT_OBJECT_H
#define API_EVENT_OBJECT_H

#include <semel/event.h>

#include "core/event.h"
#include "core/limits.h"

struct semel_event {
        struct event ev; /* its spans point into the memory below */
        char topic[LIMIT_EVENT_TOPIC_BYTES + 1];
        uint8_t *key, *payload, *traceparent; /* owned copies; NULL: none */
        struct event_header header[LIMIT_EVENT_HEADERS]; /* names and values are owned copies */
        size_t header_bytes;
};

/* The event as the drivers take it; lives as long as `ev` is not changed. */
const struct event *event_object_view(const semel_event *ev);

#endif
