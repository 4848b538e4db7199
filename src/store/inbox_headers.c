/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_headers: the headers and the key of a dead event's copy.  Apart from inbox.c, which is in libsemel: that
 * needs no JSON.
 */
#include "store/inbox.h"

#include <stdio.h>
#include <string.h>

#include "core/inbox_plan.h"
#include "json/event_headers.h"

bool inbox_key_fits_outbox(const struct inbox_event *event)
{
        return !event->key_is_null && event->key.n <= LIMIT_EVENT_KEY_BYTES &&
               inbox_is_text(event->key.p, event->key.n);
}

/* A copy with these headers is one that the outbox takes. */
static semel_code encode(const struct inbox_event *event, const char *reason, const struct event_header *own,
                         size_t own_n, bool left_out, struct buf *out, semel_error *err)
{
        char place[LIMIT_EVENT_TOPIC_BYTES + 64];
        struct event_header all[LIMIT_EVENT_HEADERS];
        size_t n = 0, at = out->n;
        (void)snprintf(place, sizeof place, "%.*s/%d@%lld", (int)event->topic.n,
                       (const char *)event->topic.p, (int)event->partition,
                       (long long)event->offset);
        all[n++] = (struct event_header){span_str("dead-event-id"), event->id, event->id.n == 0};
        all[n++] = (struct event_header){span_str("dead-reason"), span_str(reason), false};
        all[n++] = (struct event_header){span_str("dead-from"), span_str(place), false};
        if (left_out)
                all[n++] = (struct event_header){span_str("dead-headers"),
                                                 span_str("left out: too many or too large"), false};
        for (size_t i = 0; i < own_n; i++)
                if (!span_eq(own[i].name, span_str("event-id")) &&
                    !span_eq(own[i].name, span_str("traceparent"))) {
                        if (n == LIMIT_EVENT_HEADERS)
                                return err_set(err, SEMEL_ERR_ARGUMENT, "too many headers");
                        all[n++] = own[i];
                }
        semel_code code = event_headers_encode(all, n, out, err);
        if (code == SEMEL_OK && out->n - at > INBOX_DEAD_HEADERS_BYTES_MAX)
                code = err_set(err, SEMEL_ERR_ARGUMENT, "the headers are too large");
        if (code != SEMEL_OK)
                out->n = at;
        return code;
}

semel_code inbox_dead_headers(const struct inbox_event *event, const char *reason, struct buf *out,
                              semel_error *err)
{
        struct event_header_list list = {0};
        semel_code code = event_headers_decode(event->headers, &list, err);
        if (code == SEMEL_OK)
                code = encode(event, reason, list.v, list.n, false, out, err);
        if (code != SEMEL_OK) /* the letter has them all */
                code = encode(event, reason, NULL, 0, true, out, err);
        event_headers_release(&list);
        return code;
}
