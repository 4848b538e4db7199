/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_event: from Kafka's messages to the inbox's events: the id, never made from the offset
 * (rule D1), the headers as JSON, the payload's hash.
 */
#include <string.h>

#include "consume/consume_internal.h"
#include "json/event_headers.h"
#include "json/pointer.h"
#include "sys/sha256.h"

static struct span header(const struct bus_message *m, const char *name)
{
        for (size_t i = 0; i < m->event.header_count; i++) {
                const struct event_header *h = &m->event.headers[i];
                if (span_eq(h->name, span_str(name)) && !h->value_is_null)
                        return h->value;
        }
        return span_of(NULL, 0);
}

/* The id as a span of the message, or copied behind w->text (built->id_copied). */
static void find_id(struct worker *w, const struct bus_message *m, struct inbox_event *e,
                    struct batch_event *built)
{
        const char *pointer = w->c->config.event_id_pointer;
        built->id_copied = false;
        if (pointer) {
                built->id_at = w->text.n;
                if (json_pointer_text(m->event.payload, pointer, &w->text) == 0) {
                        e->id = span_of(NULL, w->text.n - built->id_at);
                        built->id_copied = true;
                }
        } else {
                e->id = header(m, "event-id");
        }
        struct span id = e->id;
        if (built->id_copied)
                id.p = w->text.p + built->id_at;
        built->fault = inbox_id_fault(id.p, id.n);
        if (id.n == 0)
                built->fault = pointer ? "the payload has no event id where --event-id-pointer points"
                                       : "the message has no header event-id";
        if (built->fault) {
                e->id = span_of(NULL, 0);
                built->id_copied = false;
        }
}

semel_code headers_build(struct worker *w, const struct bus_message *m, struct inbox_event *e)
{
        semel_error ignored = {0};
        size_t at = w->text.n;
        if (m->event.header_count == 0)
                return SEMEL_OK;
        semel_code code = event_headers_encode_any(m->event.headers, m->event.header_count, &w->text,
                                                   &ignored);
        e->headers = span_of(w->text.p + at, w->text.n - at);
        return code;
}

static void build(struct worker *w, const struct part *p, const struct bus_message *m,
                  struct inbox_event *e, struct batch_event *built)
{
        const struct consume_config *config = &w->c->config;
        *e = (struct inbox_event){
                .consumer = span_str(w->c->consumer),
                .source = span_str(config->source ? config->source : p->topic),
                .topic = span_str(p->topic),
                .key = m->event.key,
                .payload = m->event.payload,
                .key_is_null = m->event.key_is_null,
                .payload_is_null = m->event.payload_is_null,
                .partition = m->partition,
                .offset = m->offset,
                .has_hash = true, /* of a tombstone: 32 zeroes */
        };
        if (!m->event.payload_is_null)
                e->has_hash = sha256_once(m->event.payload.p, m->event.payload.n, e->hash) == 0;
        find_id(w, m, e, built);
        built->headers_at = w->text.n;
        built->code = SEMEL_OK;
        if (w->c->needs_headers || built->fault)
                built->code = headers_build(w, m, e);
        if (built->code != SEMEL_ERR_TOO_LARGE)
                return;
        built->code = SEMEL_OK;
        if (!built->fault)
                built->fault = "the headers of the event are too large to be kept";
}

size_t batch_build(struct worker *w, const struct part *p, size_t n, const char **ret_fault)
{
        size_t usable = 0;
        *ret_fault = NULL;
        buf_clear(&w->text);
        for (size_t i = 0; i < n; i++) {
                build(w, p, w->messages[i], &w->events[i], &w->built[i]);
                if ((w->built[i].fault || w->built[i].code != SEMEL_OK) && i > 0)
                        break; /* the first of the next step, which has all the room */
                if (w->built[i].code != SEMEL_OK)
                        return 0;
                usable++;
                if (w->built[i].fault) {
                        *ret_fault = w->built[i].fault;
                        usable = 0;
                        break;
                }
        }
        for (size_t i = 0; i < (usable ? usable : 1); i++) {
                struct inbox_event *e = &w->events[i];
                if (w->built[i].id_copied)
                        e->id.p = w->text.p + w->built[i].id_at;
                if (e->headers.n)
                        e->headers.p = w->text.p + w->built[i].headers_at;
        }
        return usable;
}
