/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_write: one message into a buf.  Whatever it is given, what it writes is one message and
 * frames as it was asked to: names, values, targets and reasons that could end a line or begin
 * another are refused, Content-Length and Transfer-Encoding are the writer's own, and a body of a
 * stated length has exactly that length.
 *
 *     http1_write_reply(&w, &out, 11, 200, span_str("OK"));
 *     http1_write_header(&w, span_str("Content-Type"), span_str("text/plain"));
 *     http1_write_length(&w, 5);                 // or chunked, until_close, no_body, ...
 *     http1_write_body(&w, span_str("hello"));
 *     rc = http1_write_end(&w);
 *
 * The result is sticky: every call after a failure does nothing, and http1_write_end() tells it, so
 * only the last one needs to be looked at.  A head that failed leaves nothing in the buf.  Between
 * the calls the caller may send and clear the buf once the head is written.
 *
 * Who sends body bytes without copying them: http1_write_body_head(n), the n bytes, then
 * http1_write_body_tail().
 */
#ifndef CORE_HTTP1_WRITE_H
#define CORE_HTTP1_WRITE_H

#include "base/buf.h"
#include "core/http1.h"

/* Besides BUF_OK, BUF_FULL, BUF_NO_MEMORY: what was given cannot be part of a message. */
enum { HTTP1_REFUSED = -3 };

struct http1_writer {
        struct buf *out;
        int rc;
        int state;
        int version;
        bool request;
        bool chunked;
        bool counted;  /* `left` bytes of body must still come */
        uint64_t left;
        size_t begun;  /* where the head begins in the buf */
};

/* version: 10 or 11, as in http1_head.  A reason may be empty. */
void http1_write_request(struct http1_writer *w, struct buf *out, int version, struct span method,
                         struct span target);
void http1_write_reply(struct http1_writer *w, struct buf *out, int version, int status,
                       struct span reason);

void http1_write_header(struct http1_writer *w, struct span name, struct span value);

/* The end of the head, one of: */
void http1_write_no_body(struct http1_writer *w);
void http1_write_length(struct http1_writer *w, uint64_t n);      /* n bytes follow */
void http1_write_length_only(struct http1_writer *w, uint64_t n); /* said, but no body: HEAD, 304 */
void http1_write_chunked(struct http1_writer *w);                 /* HTTP/1.1 only */
void http1_write_until_close(struct http1_writer *w);             /* replies only */

/* Any number of times; an empty piece writes nothing (an empty chunk would end the body). */
void http1_write_body(struct http1_writer *w, struct span piece);
void http1_write_body_head(struct http1_writer *w, size_t n);
void http1_write_body_tail(struct http1_writer *w);

/* The end of the message; refused when a counted body is not complete. */
int http1_write_end(struct http1_writer *w);

/* The common reason phrase of a status, or "". */
const char *http1_reason(int status);

#endif
