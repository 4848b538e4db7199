/* SPDX-License-Identifier: Apache-2.0
 *
 * http1: the words of HTTP/1.1 (RFC 9112) that parser and writer share: a head, its headers, how
 * the body is framed, and what can be wrong with a message.
 *
 * Strict on purpose: whatever two programs on a path could read differently (bare LF, folded
 * lines, two lengths, a length beside chunks) is an error in both directions, for a request that
 * hides in another one would run under somebody else's key.
 */
#ifndef CORE_HTTP1_H
#define CORE_HTTP1_H

#include "base/span.h"
#include "core/http_header.h"
#include "core/limits.h"

enum http1_framing {
        HTTP1_NONE,        /* no body */
        HTTP1_LENGTH,      /* content_length bytes, maybe 0 */
        HTTP1_CHUNKED,
        HTTP1_UNTIL_CLOSE, /* replies only: the body ends with the connection */
};

enum http1_target {
        HTTP1_ORIGIN,    /* /path?query */
        HTTP1_ABSOLUTE,  /* http://authority/path?query */
        HTTP1_AUTHORITY, /* host:port, of CONNECT */
        HTTP1_ASTERISK,  /* *, of OPTIONS */
};

/* A head.  Its spans point into the parser's buffer. */
struct http1_head {
        struct span raw; /* its bytes in that buffer, for who wants to copy all of it */
        int version;     /* 10 or 11 */

        /* requests */
        struct span method;
        struct span target; /* as sent */
        enum http1_target form;
        struct span authority; /* of the target if it has one, else the Host header's value */
        struct span path;      /* path and query, as sent; "/" when an absolute target has none */

        /* replies */
        int status;
        struct span reason;
        bool interim; /* 1xx: another head follows for the same request */

        struct http_header *headers; /* names as sent; values without blanks around, maybe empty */
        size_t header_count;

        enum http1_framing framing; /* of what follows */
        bool has_length;            /* said content_length, whether or not a body follows (HEAD, 304) */
        uint64_t content_length;
        bool keep_alive;      /* the connection may carry another message after this one */
        bool expect_continue; /* the sender waits for 100 (Continue) before its body */
        bool upgrade;         /* asks for another protocol */

        /* what single lines said, until all of them are there */
        struct {
                unsigned hosts, encodings;
                struct span host;
                bool chunked, close, keep_alive, expect, other_expect;
        } seen;
};

enum http1_error {
        HTTP1_OK,
        HTTP1_BAD_LINE,
        HTTP1_BAD_LINE_END,
        HTTP1_BAD_VERSION,
        HTTP1_BAD_TARGET,
        HTTP1_BAD_NAME,
        HTTP1_BAD_VALUE,
        HTTP1_FOLDED,
        HTTP1_BAD_HOST,
        HTTP1_BAD_LENGTH,
        HTTP1_TWO_LENGTHS,
        HTTP1_LENGTH_AND_CHUNKED,
        HTTP1_BAD_ENCODING,
        HTTP1_UNKNOWN_ENCODING,
        HTTP1_BAD_EXPECT,
        HTTP1_LINE_TOO_LONG,
        HTTP1_HEAD_TOO_LARGE,
        HTTP1_BAD_CHUNK,
        HTTP1_CHUNK_EXTRA,
        HTTP1_BAD_TRAILER,
        HTTP1_TRUNCATED,
        HTTP1_INTERIM_FLOOD,
        HTTP1_SWITCHED,
        HTTP1_ERRORS
};

struct http1_error_entry {
        const char *name; /* stable, for logs, metrics and tests */
        int status;       /* what a server answers before it closes; 0: only in replies */
        const char *text; /* one sentence */
};

const struct http1_error_entry *http1_error_entry(enum http1_error error);

/* -- bytes -------------------------------------------------------------------------- */

/* A method or header name: 1 byte or more, all of them token characters. */
bool http1_is_token(struct span s);

static inline bool http1_is_blank(uint8_t c)
{
        return c == ' ' || c == '\t';
}

/* Without the blanks around it. */
static inline struct span http1_trim(struct span s)
{
        while (s.n > 0 && http1_is_blank(s.p[0]))
                s = span_of(s.p + 1, s.n - 1);
        while (s.n > 0 && http1_is_blank(s.p[s.n - 1]))
                s.n--;
        return s;
}

/* A header value: no control byte except tab, no blanks around.  Bytes from 0x80 are fine. */
bool http1_is_value(struct span s);

/* A request target: printable, no blank, no '#'. */
bool http1_is_target(struct span s);

/* host or host:port: a name of letters, digits, '-', '_' and single dots, an IPv4 address, or an IPv6
 * one in brackets. */
bool http1_is_authority(struct span s);

/* Content-Length or Transfer-Encoding. */
bool http1_is_framing(struct span name);

/* Seconds of `Keep-Alive: timeout=N`, at most 3600, or -1. */
int http1_keep_alive_timeout_s(const struct http1_head *head);

#endif
