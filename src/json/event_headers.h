/* SPDX-License-Identifier: Apache-2.0
 *
 * event_headers: an event's headers as JSON text, the form in which outbox tables keep them.
 *
 *     {"source": "shop", "trace": null, "sig": {"base64": "AAE="}}
 *     [["a", "1"], ["a", "2"], ["b", {"base64": "AAE="}], ["c", null]]
 *
 * The second form keeps repeats and is what we write ourselves.  Reading is generous, since a row
 * that cannot be read would stand in the way of its key for ever: numbers, true, false and nested
 * values become headers of their JSON text, an object in the list is read as its members, and what
 * is no such JSON at all becomes one header named `headers`, so that nothing is lost unseen.
 */
#ifndef JSON_EVENT_HEADERS_H
#define JSON_EVENT_HEADERS_H

#include "base/buf.h"
#include "base/err.h"
#include "core/event.h"

struct event_header_list {
        struct event_header *v; /* points into the list's own memory */
        size_t n;
};

/* Read.  Empty text: no headers.  Headers beyond LIMIT_EVENT_HEADERS are one header `headers` as
 * well.  Only SEMEL_ERR_NO_MEMORY.  Released by event_headers_release(). */
semel_code event_headers_decode(struct span json, struct event_header_list *ret, semel_error *err);
void event_headers_release(struct event_header_list *list); /* safe twice, and on zeroes */

/* Append them as text.  Values that are no UTF-8 are written as {"base64": ..}; a name has to be
 * UTF-8 (SEMEL_ERR_ARGUMENT).  Nothing is appended for none, nor when it fails.  SEMEL_ERR_TOO_LARGE (`out`
 * takes no more), SEMEL_ERR_NO_MEMORY. */
semel_code event_headers_encode(const struct event_header *v, size_t n, struct buf *out,
                                semel_error *err);

/* The same of headers that somebody else named: each byte of a name that is no text becomes '?'. */
semel_code event_headers_encode_any(const struct event_header *v, size_t n, struct buf *out,
                                    semel_error *err);

#endif
