/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_headers: the headers and the key of a dead event's copy.  Apart from inbox.c, which is in libsemel: that
 * needs no JSON.
 */
#include "store/inbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/inbox_plan.h"
#include "json/event_headers.h"

bool inbox_key_fits_outbox(const struct inbox_event *event)
{
        return !event->key_is_null && event->key.n <= LIMIT_EVENT_KEY_BYTES &&
               inbox_is_text(event->key.p, event->key.n);
}

semel_code inbox_dead_headers(const struct inbox_event *event, const char *reason, struct buf *out,
                              semel_error *err)
{
        struct event_header_list list = {0};
        char place[LIMIT_EVENT_TOPIC_BYTES + 64];
        semel_code code = event_headers_decode(event->headers, &list, err);
        if (code != SEMEL_OK)
                return code;
        struct event_header *all = calloc(list.n + 3, sizeof *all);
        if (!all) {
                event_headers_release(&list);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for headers");
        }
        size_t n = 0;
        (void)snprintf(place, sizeof place, "%.*s/%d@%lld", (int)event->topic.n,
                       (const char *)event->topic.p, (int)event->partition,
                       (long long)event->offset);
        all[n++] = (struct event_header){span_str("dead-event-id"), event->id, event->id.n == 0};
        all[n++] = (struct event_header){span_str("dead-reason"), span_str(reason), false};
        all[n++] = (struct event_header){span_str("dead-from"), span_str(place), false};
        for (size_t i = 0; i < list.n && n < LIMIT_EVENT_HEADERS; i++)
                if (!span_eq(list.v[i].name, span_str("event-id")) &&
                    !span_eq(list.v[i].name, span_str("traceparent")))
                        all[n++] = list.v[i];
        code = event_headers_encode(all, n, out, err);
        free(all);
        event_headers_release(&list);
        return code;
}
