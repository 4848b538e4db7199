/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_write: see http1_write.h.
 */
#include "core/http1_write.h"

#include <assert.h>

enum state { HEAD, BODY, PIECE, OVER };

static void fail(struct http1_writer *w, int rc)
{
        if (w->state == HEAD)
                w->out->n = w->begun;
        w->rc = rc;
}

/* Did that work?  `rc` of a buf function. */
static void check(struct http1_writer *w, int rc)
{
        if (rc != BUF_OK)
                fail(w, rc);
}

static void append(struct http1_writer *w, struct span s)
{
        if (w->rc == BUF_OK)
                check(w, buf_append_span(w->out, s));
}

static void append_str(struct http1_writer *w, const char *s)
{
        append(w, span_str(s));
}

/* -- head ------------------------------------------------------------------------------- */

static void begin(struct http1_writer *w, struct buf *out, int version, bool request)
{
        assert(version == 10 || version == 11);
        *w = (struct http1_writer){.out = out,
                                   .state = HEAD,
                                   .version = version,
                                   .request = request,
                                   .begun = out->n};
}

void http1_write_request(struct http1_writer *w, struct buf *out, int version, struct span method,
                         struct span target)
{
        begin(w, out, version, true);
        if (!http1_is_token(method) || method.n > LIMIT_HTTP_METHOD_BYTES ||
            !http1_is_target(target)) {
                fail(w, HTTP1_REFUSED);
                return;
        }
        const struct span line[] = {method, span_str(" "), target,
                                    span_str(version == 11 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n")};
        check(w, buf_append_spans(out, line, 4));
}

void http1_write_reply(struct http1_writer *w, struct buf *out, int version, int status,
                       struct span reason)
{
        begin(w, out, version, false);
        if (status < 100 || status > 599 || !http1_is_value(reason)) {
                fail(w, HTTP1_REFUSED);
                return;
        }
        const char digits[] = {(char)('0' + status / 100), (char)('0' + status / 10 % 10),
                               (char)('0' + status % 10), ' '};
        const struct span line[] = {span_str(version == 11 ? "HTTP/1.1 " : "HTTP/1.0 "),
                                    span_of(digits, sizeof digits), reason, span_str("\r\n")};
        check(w, buf_append_spans(out, line, 4));
}

void http1_write_header(struct http1_writer *w, struct span name, struct span value)
{
        assert(w->state == HEAD);
        if (w->rc != BUF_OK)
                return;
        if (!http1_is_token(name) || !http1_is_value(value) || http1_is_framing(name)) {
                fail(w, HTTP1_REFUSED);
                return;
        }
        const struct span line[] = {name, span_of(": ", 2), value, span_of("\r\n", 2)};
        check(w, buf_append_spans(w->out, line, 4));
}

static void end_head(struct http1_writer *w)
{
        append_str(w, "\r\n");
        if (w->rc == BUF_OK)
                w->state = BODY;
}

static void write_length(struct http1_writer *w, uint64_t n)
{
        assert(w->state == HEAD);
        append_str(w, "Content-Length: ");
        if (w->rc == BUF_OK)
                check(w, buf_append_uint(w->out, n));
        append_str(w, "\r\n");
        end_head(w);
}

void http1_write_no_body(struct http1_writer *w)
{
        assert(w->state == HEAD);
        w->counted = true;
        end_head(w);
}

void http1_write_length(struct http1_writer *w, uint64_t n)
{
        w->counted = true;
        w->left = n;
        write_length(w, n);
}

void http1_write_length_only(struct http1_writer *w, uint64_t n)
{
        w->counted = true;
        write_length(w, n);
}

void http1_write_chunked(struct http1_writer *w)
{
        assert(w->state == HEAD);
        if (w->rc == BUF_OK && w->version != 11)
                fail(w, HTTP1_REFUSED);
        w->chunked = true;
        append_str(w, "Transfer-Encoding: chunked\r\n");
        end_head(w);
}

void http1_write_until_close(struct http1_writer *w)
{
        assert(w->state == HEAD && !w->request);
        end_head(w);
}

/* -- body ------------------------------------------------------------------------------- */

void http1_write_body_head(struct http1_writer *w, size_t n)
{
        if (w->rc != BUF_OK || n == 0)
                return;
        assert(w->state == BODY);
        if (w->counted && n > w->left) {
                fail(w, HTTP1_REFUSED);
                return;
        }
        if (w->counted)
                w->left -= n;
        if (w->chunked)
                check(w, buf_printf(w->out, "%zx\r\n", n));
        w->state = PIECE;
}

void http1_write_body_tail(struct http1_writer *w)
{
        if (w->rc != BUF_OK || w->state != PIECE)
                return;
        if (w->chunked)
                append_str(w, "\r\n");
        w->state = BODY;
}

void http1_write_body(struct http1_writer *w, struct span piece)
{
        http1_write_body_head(w, piece.n);
        append(w, piece);
        http1_write_body_tail(w);
}

int http1_write_end(struct http1_writer *w)
{
        if (w->rc != BUF_OK)
                return w->rc;
        assert(w->state == BODY);
        if (w->counted && w->left > 0)
                fail(w, HTTP1_REFUSED);
        else if (w->chunked)
                append_str(w, "0\r\n\r\n");
        if (w->rc == BUF_OK)
                w->state = OVER;
        return w->rc;
}

const char *http1_reason(int status)
{
        static const struct {
                int status;
                const char *reason;
        } reasons[] = {
                {100, "Continue"},
                {200, "OK"},
                {201, "Created"},
                {202, "Accepted"},
                {204, "No Content"},
                {206, "Partial Content"},
                {301, "Moved Permanently"},
                {302, "Found"},
                {303, "See Other"},
                {304, "Not Modified"},
                {307, "Temporary Redirect"},
                {308, "Permanent Redirect"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {406, "Not Acceptable"},
                {407, "Proxy Authentication Required"},
                {408, "Request Timeout"},
                {409, "Conflict"},
                {410, "Gone"},
                {411, "Length Required"},
                {412, "Precondition Failed"},
                {413, "Content Too Large"},
                {414, "URI Too Long"},
                {415, "Unsupported Media Type"},
                {417, "Expectation Failed"},
                {421, "Misdirected Request"},
                {422, "Unprocessable Content"},
                {425, "Too Early"},
                {428, "Precondition Required"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {502, "Bad Gateway"},
                {503, "Service Unavailable"},
                {504, "Gateway Timeout"},
                {505, "HTTP Version Not Supported"},
        };
        for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
                if (reasons[i].status == status)
                        return reasons[i].reason;
        return "";
}
