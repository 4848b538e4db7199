/* SPDX-License-Identifier: Apache-2.0
 *
 * event_object: see event_object.h and semel/event.h.  Everything is copied and checked when it is
 * set, so that an append can fail only for what the database says.
 */
#include "api/event_object.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/utf8.h"

static_assert((int)SEMEL_EVENT_ID_BYTES == (int)EVENT_ID_TEXT_BYTES, "the public text of an event id");

enum { TRACEPARENT_BYTES_MAX = 255 };

static semel_code no_memory(semel_error *err)
{
        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an event");
}

/* A copy that is not NULL for 0 bytes; NULL: no memory. */
static uint8_t *copy_of(const void *p, size_t n)
{
        uint8_t *copy = malloc(n ? n : 1);
        if (copy && n)
                memcpy(copy, p, n);
        return copy;
}

static bool is_text(struct span s)
{
        return utf8_valid(s) && (s.n == 0 || !memchr(s.p, 0, s.n));
}

semel_event *semel_event_new(const char *topic, semel_error *err)
{
        size_t n = topic ? strlen(topic) : 0;
        if (!topic || !event_topic_is_valid(span_of(topic, n))) {
                (void)err_set(err, SEMEL_ERR_ARGUMENT,
                              "a topic has 1 to %d letters, digits, '.', '_' or '-' and is not "
                              "\".\" or \"..\"; \"%.40s\" is none", LIMIT_EVENT_TOPIC_BYTES,
                              topic ? topic : "");
                return NULL;
        }
        semel_event *ev = calloc(1, sizeof *ev);
        if (!ev) {
                (void)no_memory(err);
                return NULL;
        }
        memcpy(ev->topic, topic, n);
        ev->ev = (struct event){.topic = span_of(ev->topic, n),
                                .key_is_null = true,
                                .payload_is_null = true,
                                .partition = EVENT_NO_PARTITION,
                                .headers = ev->header};
        return ev;
}

void semel_event_free(semel_event *ev)
{
        if (!ev)
                return;
        for (size_t i = 0; i < ev->ev.header_count; i++) {
                free((void *)(uintptr_t)ev->header[i].name.p);
                free((void *)(uintptr_t)ev->header[i].value.p);
        }
        free(ev->key);
        free(ev->payload);
        free(ev->traceparent);
        free(ev);
}

/* Put a copy in the place of an older one. */
static semel_code replace(uint8_t **at, struct span *ret, const void *p, size_t n,
                          semel_error *err)
{
        uint8_t *copy = copy_of(p, n);
        if (!copy)
                return no_memory(err);
        free(*at);
        *at = copy;
        *ret = span_of(copy, n);
        return SEMEL_OK;
}

semel_code semel_event_set_key(semel_event *ev, const char *key, size_t n, semel_error *err)
{
        if (!key)
                return err_set(err, SEMEL_ERR_ARGUMENT, "the event's key is NULL; an event without "
                                                        "a key is one whose key was never set");
        if (n > LIMIT_EVENT_KEY_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the event's key has %zu bytes, at most %d",
                               n, LIMIT_EVENT_KEY_BYTES);
        if (!is_text(span_of(key, n)))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the event's key is not UTF-8 without NUL; encode bytes, for "
                               "example as hexadecimal digits");
        semel_code code = replace(&ev->key, &ev->ev.key, key, n, err);
        if (code == SEMEL_OK)
                ev->ev.key_is_null = false;
        return code;
}

semel_code semel_event_set_payload(semel_event *ev, const void *payload, size_t n,
                                   semel_error *err)
{
        if (n > LIMIT_EVENT_PAYLOAD_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE,
                               "the event's payload has %zu bytes, at most %d", n,
                               LIMIT_EVENT_PAYLOAD_BYTES);
        if (!payload) {
                free(ev->payload);
                ev->payload = NULL;
                ev->ev.payload = span_of(NULL, 0);
                ev->ev.payload_is_null = true;
                return SEMEL_OK;
        }
        semel_code code = replace(&ev->payload, &ev->ev.payload, payload, n, err);
        if (code == SEMEL_OK)
                ev->ev.payload_is_null = false;
        return code;
}

static semel_code check_header(const semel_event *ev, const char *name, const void *value,
                               size_t n, semel_error *err)
{
        size_t name_n = name ? strlen(name) : 0;
        if (name_n == 0 || !is_text(span_of(name, name_n)))
                return err_set(err, SEMEL_ERR_ARGUMENT, "a header's name is UTF-8 and not empty");
        if (strcasecmp(name, "event-id") == 0)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the header event-id is the relay's; use semel_event_set_id()");
        if (!value && n > 0)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a header's value is NULL and %zu bytes long", n);
        if (ev->ev.header_count == LIMIT_EVENT_HEADERS)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "an event has at most %d headers",
                               LIMIT_EVENT_HEADERS);
        if (n > LIMIT_EVENT_HEADERS_BYTES ||
            ev->header_bytes + name_n + n > LIMIT_EVENT_HEADERS_BYTES)
                return err_set(err, SEMEL_ERR_TOO_LARGE,
                               "an event's headers have at most %d bytes together",
                               LIMIT_EVENT_HEADERS_BYTES);
        return SEMEL_OK;
}

semel_code semel_event_add_header(semel_event *ev, const char *name, const void *value, size_t n,
                                  semel_error *err)
{
        semel_code code = check_header(ev, name, value, n, err);
        if (code != SEMEL_OK)
                return code;
        size_t name_n = strlen(name);
        uint8_t *name_copy = copy_of(name, name_n);
        uint8_t *value_copy = value ? copy_of(value, n) : NULL;
        if (!name_copy || (value && !value_copy)) {
                free(name_copy);
                free(value_copy);
                return no_memory(err);
        }
        ev->header[ev->ev.header_count++] = (struct event_header){
                .name = span_of(name_copy, name_n),
                .value = span_of(value_copy, n),
                .value_is_null = !value,
        };
        ev->header_bytes += name_n + n;
        return SEMEL_OK;
}

semel_code semel_event_set_id(semel_event *ev, const char *id, semel_error *err)
{
        if (!id || !event_id_parse(id, strlen(id), ev->ev.id))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "an event's id is 8-4-4-4-12 hexadecimal digits");
        ev->ev.has_id = true;
        return SEMEL_OK;
}

semel_code semel_event_set_partition(semel_event *ev, int32_t partition, semel_error *err)
{
        if (partition < 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "a partition is 0 or more, not %d",
                               (int)partition);
        ev->ev.partition = partition;
        return SEMEL_OK;
}

semel_code semel_event_set_traceparent(semel_event *ev, const char *traceparent, semel_error *err)
{
        size_t n = traceparent ? strlen(traceparent) : 0;
        if (n == 0 || n > TRACEPARENT_BYTES_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "a traceparent has 1 to %d bytes",
                               TRACEPARENT_BYTES_MAX);
        for (size_t i = 0; i < n; i++) {
                if (traceparent[i] < 0x20 || traceparent[i] > 0x7e)
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "a traceparent is printable ASCII");
        }
        return replace(&ev->traceparent, &ev->ev.traceparent, traceparent, n, err);
}

const struct event *event_object_view(const semel_event *ev)
{
        return ev ? &ev->ev : NULL;
}
