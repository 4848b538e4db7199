/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_parse: see http1_parse.h.  Heads are gathered line by line in the caller's buffer, so a
 * decision is only taken on a whole line; bodies are passed through; chunk lines and trailers are
 * read byte by byte.
 */
#include "core/http1_parse.h"

#include <assert.h>

#include "core/http1_head.h"

enum state {
        FIRST_LINE,
        HEADER_LINES,
        INTERIM,      /* an interim head was given out; the next call forgets it */
        BODY_LENGTH,
        BODY_UNTIL_CLOSE,
        CHUNK_SIZE,
        CHUNK_EXTENSION,
        CHUNK_LINE_LF,
        CHUNK_DATA,
        CHUNK_DATA_CR,
        CHUNK_DATA_LF,
        TRAILER_LINE,  /* at the beginning of a line */
        TRAILER_NAME,
        TRAILER_VALUE,
        TRAILER_LF,
        LAST_LF,
        MESSAGE_OVER, /* END is to be said */
        DONE,         /* END was said */
        FAILED,
};

void http1_parser_init(struct http1_parser *p, enum http1_side side, uint8_t *buf, size_t buf_max,
                       struct http_header *headers, size_t headers_max)
{
        *p = (struct http1_parser){.side = side,
                                   .buf = buf,
                                   .buf_max = buf_max,
                                   .headers = headers,
                                   .headers_max = headers_max};
        p->head.headers = headers;
}

static void forget_head(struct http1_parser *p)
{
        p->head = (struct http1_head){.headers = p->headers};
        p->buf_n = p->line = 0;
        p->state = FIRST_LINE;
}

void http1_restart(struct http1_parser *p)
{
        assert(p->state == DONE);
        forget_head(p);
        p->error = HTTP1_OK;
        p->body_bytes = p->left = 0;
        p->head_request = p->skipped_line = false;
        p->interim = 0;
        p->extra = 0;
}

void http1_expect(struct http1_parser *p, struct span method)
{
        assert(p->side == HTTP1_REPLIES && p->state == FIRST_LINE && p->buf_n == 0);
        p->head_request = span_eq(method, span_str("HEAD"));
}

static enum http1_event fail(struct http1_parser *p, enum http1_error error)
{
        p->state = FAILED;
        p->error = error;
        return HTTP1_FAILED;
}

static void advance(struct span *in, size_t n)
{
        *in = span_of(in->p + n, in->n - n);
}

/* -- head ------------------------------------------------------------------------------- */

static enum http1_event head_over(struct http1_parser *p)
{
        p->head.raw = span_of(p->buf, p->buf_n);
        enum http1_error error = p->side == HTTP1_REQUESTS
                                         ? http1_request_done(&p->head)
                                         : http1_reply_done(&p->head, p->head_request);
        if (error != HTTP1_OK)
                return fail(p, error);
        if (p->head.interim) {
                if (++p->interim > LIMIT_HTTP_INTERIM)
                        return fail(p, HTTP1_INTERIM_FLOOD);
                p->state = INTERIM;
                return HTTP1_HEAD;
        }
        switch (p->head.framing) {
        case HTTP1_NONE:
                p->state = MESSAGE_OVER;
                break;
        case HTTP1_LENGTH:
                p->left = p->head.content_length;
                p->state = p->left > 0 ? BODY_LENGTH : MESSAGE_OVER;
                break;
        case HTTP1_CHUNKED:
                p->left = 0;
                p->chunk_line = 0;
                p->state = CHUNK_SIZE;
                break;
        case HTTP1_UNTIL_CLOSE:
                p->state = BODY_UNTIL_CLOSE;
                break;
        }
        return HTTP1_HEAD;
}

/* One line, without its CR LF.  NEED_MORE: go on with the next. */
static enum http1_event head_line(struct http1_parser *p, struct span line)
{
        enum http1_error error;
        if (p->state == FIRST_LINE) {
                /* Some old clients send CR LF behind a body (RFC 9112, 2.2): one is skipped. */
                if (line.n == 0 && p->side == HTTP1_REQUESTS && !p->skipped_line) {
                        p->skipped_line = true;
                        p->buf_n = p->line = 0;
                        return HTTP1_NEED_MORE;
                }
                p->state = HEADER_LINES;
                error = p->side == HTTP1_REQUESTS ? http1_request_line(&p->head, line)
                                                  : http1_status_line(&p->head, line);
        } else if (line.n == 0) {
                return head_over(p);
        } else {
                error = http1_header_line(&p->head, p->headers_max, line);
        }
        return error == HTTP1_OK ? HTTP1_NEED_MORE : fail(p, error);
}

static enum http1_event read_head(struct http1_parser *p, struct span *in)
{
        while (in->n > 0) {
                const uint8_t *lf = memchr(in->p, '\n', in->n);
                size_t n = lf ? (size_t)(lf - in->p) + 1 : in->n;
                if (n > p->buf_max - p->buf_n)
                        return fail(p, p->state == FIRST_LINE && p->side == HTTP1_REQUESTS
                                               ? HTTP1_LINE_TOO_LONG
                                               : HTTP1_HEAD_TOO_LARGE);
                memcpy(p->buf + p->buf_n, in->p, n);
                p->buf_n += n;
                advance(in, n);
                if (!lf)
                        break;
                struct span line = span_of(p->buf + p->line, p->buf_n - p->line);
                p->line = p->buf_n;
                if (line.n < 2 || line.p[line.n - 2] != '\r')
                        return fail(p, HTTP1_BAD_LINE_END);
                line.n -= 2;
                enum http1_event event = head_line(p, line);
                if (event != HTTP1_NEED_MORE)
                        return event;
        }
        return HTTP1_NEED_MORE;
}

/* -- body ------------------------------------------------------------------------------- */

static enum http1_event take_body(struct http1_parser *p, struct span *in, struct span *ret_body)
{
        size_t n = in->n;
        if (p->state != BODY_UNTIL_CLOSE && p->left < n)
                n = (size_t)p->left;
        *ret_body = span_of(in->p, n);
        advance(in, n);
        p->body_bytes += n;
        if (p->state == BODY_UNTIL_CLOSE)
                return HTTP1_BODY;
        p->left -= n;
        if (p->left == 0)
                p->state = p->state == BODY_LENGTH ? MESSAGE_OVER : CHUNK_DATA_CR;
        return HTTP1_BODY;
}

static int hex(uint8_t c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        c |= 0x20;
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Behind the size: CR, or ';' and an extension.  Blanks are not skipped: readers differ. */
static enum http1_error chunk_size_byte(struct http1_parser *p, uint8_t c)
{
        int digit = hex(c);
        if (digit >= 0) {
                if (++p->chunk_line > 15) /* 15 digits cannot overflow */
                        return HTTP1_BAD_CHUNK;
                p->left = p->left << 4 | (uint64_t)digit;
                return HTTP1_OK;
        }
        if (p->chunk_line == 0 || (c != '\r' && c != ';'))
                return HTTP1_BAD_CHUNK;
        p->state = c == '\r' ? CHUNK_LINE_LF : CHUNK_EXTENSION;
        return HTTP1_OK;
}

static bool is_text(uint8_t c)
{
        return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static enum http1_error count_extra(struct http1_parser *p)
{
        return ++p->extra > LIMIT_HTTP_CHUNK_EXTRA_BYTES ? HTTP1_CHUNK_EXTRA : HTTP1_OK;
}

static enum http1_error chunk_extension_byte(struct http1_parser *p, uint8_t c)
{
        if (c == '\r') {
                p->state = CHUNK_LINE_LF;
                return HTTP1_OK;
        }
        if (!is_text(c))
                return HTTP1_BAD_CHUNK;
        if (++p->chunk_line > LIMIT_HTTP_CHUNK_LINE_BYTES)
                return HTTP1_CHUNK_EXTRA;
        return count_extra(p);
}

static enum http1_error trailer_byte(struct http1_parser *p, uint8_t c)
{
        enum http1_error error = count_extra(p);
        if (error != HTTP1_OK)
                return error;
        if (p->state == TRAILER_VALUE) {
                if (c == '\r')
                        p->state = TRAILER_LF;
                else if (!is_text(c))
                        return HTTP1_BAD_TRAILER;
                return HTTP1_OK;
        }
        if (p->state == TRAILER_LINE && c == '\r') {
                p->state = LAST_LF;
                return HTTP1_OK;
        }
        if (p->state == TRAILER_NAME && c == ':') {
                p->state = TRAILER_VALUE;
                return HTTP1_OK;
        }
        if (!http1_is_token(span_of(&c, 1)))
                return HTTP1_BAD_TRAILER;
        p->state = TRAILER_NAME;
        return HTTP1_OK;
}

/* The byte that ends a line, and what begins behind it. */
static enum http1_error line_end(struct http1_parser *p, uint8_t c, uint8_t want,
                                 enum state next, enum http1_error otherwise)
{
        if (c != want)
                return otherwise;
        p->state = (int)next;
        return HTTP1_OK;
}

/* One byte between the data of chunks. */
static enum http1_error chunk_byte(struct http1_parser *p, uint8_t c)
{
        enum http1_error error;
        switch (p->state) {
        case CHUNK_SIZE:
                return chunk_size_byte(p, c);
        case CHUNK_EXTENSION:
                return chunk_extension_byte(p, c);
        case CHUNK_LINE_LF:
                return line_end(p, c, '\n', p->left > 0 ? CHUNK_DATA : TRAILER_LINE,
                                HTTP1_BAD_CHUNK);
        case CHUNK_DATA_CR:
                return line_end(p, c, '\r', CHUNK_DATA_LF, HTTP1_BAD_CHUNK);
        case CHUNK_DATA_LF:
                error = line_end(p, c, '\n', CHUNK_SIZE, HTTP1_BAD_CHUNK);
                p->chunk_line = 0;
                return error;
        case TRAILER_LINE:
        case TRAILER_NAME:
        case TRAILER_VALUE:
                return trailer_byte(p, c);
        case TRAILER_LF:
                return line_end(p, c, '\n', TRAILER_LINE, HTTP1_BAD_TRAILER);
        case LAST_LF:
                return line_end(p, c, '\n', MESSAGE_OVER, HTTP1_BAD_TRAILER);
        default:
                assert(false);
                return HTTP1_BAD_CHUNK;
        }
}

static enum http1_event read_chunked(struct http1_parser *p, struct span *in,
                                     struct span *ret_body)
{
        while (p->state != MESSAGE_OVER && in->n > 0) {
                if (p->state == CHUNK_DATA)
                        return take_body(p, in, ret_body);
                enum http1_error error = chunk_byte(p, in->p[0]);
                advance(in, 1);
                if (error != HTTP1_OK)
                        return fail(p, error);
        }
        return HTTP1_NEED_MORE;
}

/* -- the calls ------------------------------------------------------------------------------ */

enum http1_event http1_next(struct http1_parser *p, struct span *in, struct span *ret_body)
{
        enum http1_event event = HTTP1_NEED_MORE;
        switch (p->state) {
        case FAILED:
                return HTTP1_FAILED;
        case INTERIM:
                if (in->n == 0)
                        return HTTP1_NEED_MORE;
                forget_head(p);
                return read_head(p, in);
        case FIRST_LINE:
        case HEADER_LINES:
                return read_head(p, in);
        case BODY_LENGTH:
        case BODY_UNTIL_CLOSE:
                return in->n > 0 ? take_body(p, in, ret_body) : HTTP1_NEED_MORE;
        case MESSAGE_OVER:
                break;
        case DONE:
                assert(false); /* http1_restart() comes first */
                return fail(p, HTTP1_BAD_LINE);
        default:
                event = read_chunked(p, in, ret_body);
                break;
        }
        if (p->state != MESSAGE_OVER)
                return event;
        p->state = DONE;
        return HTTP1_END;
}

enum http1_event http1_eof(struct http1_parser *p)
{
        switch (p->state) {
        case FAILED:
                return HTTP1_FAILED;
        case BODY_UNTIL_CLOSE:
        case MESSAGE_OVER:
                p->state = DONE;
                return HTTP1_END;
        case DONE:
                return HTTP1_CLOSED;
        case FIRST_LINE:
                if (p->buf_n == 0)
                        return HTTP1_CLOSED;
                return fail(p, HTTP1_TRUNCATED);
        default:
                return fail(p, HTTP1_TRUNCATED);
        }
}
