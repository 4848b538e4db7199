/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_parse: bytes in, events out.  Pure: no allocation, no clock, no socket; resumable at every
 * byte: however the bytes are cut into pieces, the events are the same (body pieces joined).
 *
 *     http1_parser_init(&p, HTTP1_REQUESTS, buf, sizeof buf, headers, LIMIT_HTTP_HEADERS);
 *     struct span in = what came from the socket;
 *     for (;;) {
 *             switch (http1_next(&p, &in, &body)) {
 *             case HTTP1_NEED_MORE: return;          // `in` is used up
 *             case HTTP1_HEAD:      begin(&p.head);  // its spans live until http1_restart()
 *             case HTTP1_BODY:      take(body);      // points into `in`: copy or write it now
 *             case HTTP1_END:       done(); http1_restart(&p); // the rest of `in` is the next one
 *             case HTTP1_FAILED:    answer p.error, close
 *             }
 *     }
 *     on end of file: http1_eof(&p)
 *
 * For replies, http1_expect() says before each one what was asked, since a reply to HEAD has no
 * body whatever its head says.  An interim reply is a HEAD event with head.interim, which lives
 * until the next call; the final head follows without END between them.
 *
 * Chunk extensions and trailers are checked, bounded and dropped.
 */
#ifndef CORE_HTTP1_PARSE_H
#define CORE_HTTP1_PARSE_H

#include "core/http1.h"

enum http1_side { HTTP1_REQUESTS, HTTP1_REPLIES };

enum http1_event {
        HTTP1_NEED_MORE,
        HTTP1_HEAD,
        HTTP1_BODY,
        HTTP1_END,
        HTTP1_FAILED, /* and again at every later call: nothing behind an error has a meaning */
        HTTP1_CLOSED, /* http1_eof() only: nothing was under way */
};

struct http1_parser {
        struct http1_head head;
        enum http1_error error;
        uint64_t body_bytes; /* of this message, so far */

        /* the parser's own */
        enum http1_side side;
        int state;
        bool head_request; /* the reply being read answers HEAD */
        bool skipped_line; /* one empty line before a request is forgiven */
        unsigned interim;
        uint64_t left;     /* of the body or chunk */
        size_t chunk_line; /* bytes of the chunk line, or digits of the size */
        size_t extra;      /* bytes of extensions and trailers */
        uint8_t *buf;
        size_t buf_n, buf_max, line;
        struct http_header *headers;
        size_t headers_max;
};

/* `buf` holds one head, `headers` its lines; both are the caller's and stay in use. */
void http1_parser_init(struct http1_parser *p, enum http1_side side, uint8_t *buf, size_t buf_max,
                       struct http_header *headers, size_t headers_max);

/* Replies: the next reply answers a request of this method.  Called before its first byte. */
void http1_expect(struct http1_parser *p, struct span method);

/* Take bytes from the front of *in and return what they mean.  Call again until NEED_MORE. */
enum http1_event http1_next(struct http1_parser *p, struct span *in, struct span *ret_body);

/* The peer closed.  END: a body that runs until then is complete; CLOSED: between messages;
 * FAILED: in the middle of one. */
enum http1_event http1_eof(struct http1_parser *p);

/* After END: be ready for the next message. */
void http1_restart(struct http1_parser *p);

#endif
