/* SPDX-License-Identifier: Apache-2.0
 *
 * http1: see http1.h.
 */
#include "core/http1.h"

#include <assert.h>

static const struct http1_error_entry errors[HTTP1_ERRORS] = {
        [HTTP1_OK] = {"ok", 0, "nothing is wrong"},
        [HTTP1_BAD_LINE] = {"bad-line", 400, "the first line is malformed"},
        [HTTP1_BAD_LINE_END] = {"bad-line-end", 400, "a line does not end in CR LF"},
        [HTTP1_BAD_VERSION] = {"bad-version", 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"},
        [HTTP1_BAD_TARGET] = {"bad-target", 400, "the request target is malformed"},
        [HTTP1_BAD_NAME] = {"bad-name", 400, "a header line has no name, or a malformed one"},
        [HTTP1_BAD_VALUE] = {"bad-value", 400, "a header value holds a control character"},
        [HTTP1_FOLDED] = {"folded", 400, "a header line begins with a blank"},
        [HTTP1_BAD_HOST] = {"bad-host", 400, "the Host header is missing, repeated or malformed"},
        [HTTP1_BAD_LENGTH] = {"bad-length", 400, "the Content-Length is not a number"},
        [HTTP1_TWO_LENGTHS] = {"two-lengths", 400, "there is more than one Content-Length"},
        [HTTP1_LENGTH_AND_CHUNKED] = {"length-and-chunked", 400,
                                      "there is a Content-Length beside a Transfer-Encoding"},
        [HTTP1_BAD_ENCODING] = {"bad-encoding", 400,
                                "the Transfer-Encoding is repeated, or in an HTTP/1.0 message"},
        [HTTP1_UNKNOWN_ENCODING] = {"unknown-encoding", 501,
                                    "the only Transfer-Encoding understood is chunked"},
        [HTTP1_BAD_EXPECT] = {"bad-expect", 417, "the only Expect understood is 100-continue"},
        [HTTP1_LINE_TOO_LONG] = {"line-too-long", 414, "the request line is too long"},
        [HTTP1_HEAD_TOO_LARGE] = {"head-too-large", 431, "the headers are too large or too many"},
        [HTTP1_BAD_CHUNK] = {"bad-chunk", 400, "a chunk is malformed"},
        [HTTP1_CHUNK_EXTRA] = {"chunk-extra", 400,
                               "chunk extensions or trailers are too large"},
        [HTTP1_BAD_TRAILER] = {"bad-trailer", 400, "a trailer line is malformed"},
        [HTTP1_TRUNCATED] = {"truncated", 400, "the connection ended in the middle of a message"},
        [HTTP1_INTERIM_FLOOD] = {"interim-flood", 0, "too many interim replies"},
        [HTTP1_SWITCHED] = {"switched", 0, "the other side switched protocols unasked"},
};

const struct http1_error_entry *http1_error_entry(enum http1_error error)
{
        assert((unsigned)error < HTTP1_ERRORS);
        return &errors[error];
}

/* -- bytes -------------------------------------------------------------------------- */

/* What each byte may be part of. */
enum { TOKEN = 1, VALUE = 2, TARGET = 4, HOST = 8 };

static const uint8_t classes[256] = {
         0,  0,  0,  0,  0,  0,  0,  0,  0,  2,  0,  0,  0,  0,  0,  0,
         0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
         2,  7,  6,  3,  7,  7,  7,  7,  6,  6,  7,  7,  6, 15, 15,  6,
        15, 15, 15, 15, 15, 15, 15, 15, 15, 15,  6,  6,  6,  6,  6,  6,
         6, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
        15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,  6,  6,  6,  7, 15,
         7, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
        15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,  6,  7,  6,  7,  0,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
         6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,
};

static bool all(struct span s, uint8_t class)
{
        for (size_t i = 0; i < s.n; i++)
                if (!(classes[s.p[i]] & class))
                        return false;
        return true;
}

/* Eight bytes at a time as long as none of them is a control character; a tab and what is
 * forbidden are told apart by the table. */
static bool all_value(struct span s)
{
        const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones * 0x80;
        while (s.n >= 8) {
                uint64_t v;
                memcpy(&v, s.p, 8);
                uint64_t del = v ^ ones * 0x7f;
                if ((((v - ones * 0x20) & ~v) | ((del - ones) & ~del)) & tops)
                        break;
                s = span_of(s.p + 8, s.n - 8);
        }
        return all(s, VALUE);
}

static bool is_digit(uint8_t c)
{
        return c >= '0' && c <= '9';
}

bool http1_is_token(struct span s)
{
        return s.n > 0 && all(s, TOKEN);
}

bool http1_is_value(struct span s)
{
        return s.n == 0 ||
               (all_value(s) && !http1_is_blank(s.p[0]) && !http1_is_blank(s.p[s.n - 1]));
}

bool http1_is_target(struct span s)
{
        return s.n > 0 && all(s, TARGET);
}

/* Nothing, or ":" and digits. */
static bool is_port(struct span s)
{
        if (s.n == 0)
                return true;
        if (s.p[0] != ':' || s.n > 6)
                return false;
        for (size_t i = 1; i < s.n; i++)
                if (!is_digit(s.p[i]))
                        return false;
        return true;
}

bool http1_is_authority(struct span s)
{
        if (s.n == 0)
                return false;
        const uint8_t *end;
        size_t host;
        if (s.p[0] == '[') {
                end = memchr(s.p, ']', s.n);
                if (!end || end == s.p + 1)
                        return false;
                for (const uint8_t *c = s.p + 1; c < end; c++)
                        if (!(classes[*c] & HOST) && *c != ':' && *c != '%')
                                return false;
                host = (size_t)(end - s.p) + 1;
        } else {
                end = memchr(s.p, ':', s.n);
                host = end ? (size_t)(end - s.p) : s.n;
                if (host == 0 || !all(span_of(s.p, host), HOST))
                        return false;
                for (size_t i = 0; i < host; i++)
                        if (s.p[i] == '.' && (i == 0 || s.p[i - 1] == '.'))
                                return false;
        }
        return is_port(span_of(s.p + host, s.n - host));
}

bool http1_is_framing(struct span name)
{
        return header_name_eq(name, span_str("Content-Length")) ||
               header_name_eq(name, span_str("Transfer-Encoding"));
}

int http1_keep_alive_timeout_s(const struct http1_head *head)
{
        static const char prefix[] = "timeout=";
        enum { PREFIX = sizeof prefix - 1, MOST = 3600 };
        for (size_t i = 0; i < head->header_count; i++) {
                struct span list = head->headers[i].value, element;
                if (!header_is(&head->headers[i], "Keep-Alive"))
                        continue;
                while (header_token_next(&list, &element)) {
                        if (element.n <= PREFIX ||
                            !header_name_eq(span_of(element.p, PREFIX), span_of(prefix, PREFIX)))
                                continue;
                        int v = 0;
                        for (size_t j = PREFIX; j < element.n; j++) {
                                if (!is_digit(element.p[j]))
                                        return -1;
                                v = v * 10 + (element.p[j] - '0');
                                v = v < MOST ? v : MOST;
                        }
                        return v;
                }
        }
        return -1;
}
