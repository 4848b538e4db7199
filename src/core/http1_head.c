/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_head: see http1_head.h.
 */
#include "core/http1_head.h"

/* -- first lines --------------------------------------------------------------------- */

static bool is_digit(uint8_t c)
{
        return c >= '0' && c <= '9';
}

/* "HTTP/1.1".  Minor versions above 1 are read as 1.1 (RFC 9110, 2.5). */
static enum http1_error parse_version(struct span s, int *ret_version)
{
        if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || !is_digit(s.p[5]) || s.p[6] != '.' ||
            !is_digit(s.p[7]))
                return HTTP1_BAD_LINE;
        if (s.p[5] != '1')
                return HTTP1_BAD_VERSION;
        *ret_version = s.p[7] == '0' ? 10 : 11;
        return HTTP1_OK;
}

/* http://authority/path, whose authority wins over the Host header (RFC 9112, 3.2.2). */
static bool parse_absolute(struct http1_head *head)
{
        static const char *const schemes[] = {"http://", "https://"};
        struct span t = head->target;
        size_t scheme = 0;
        for (size_t i = 0; i < 2; i++) {
                struct span s = span_str(schemes[i]);
                if (t.n > s.n && header_name_eq(span_of(t.p, s.n), s))
                        scheme = s.n;
        }
        if (scheme == 0)
                return false;
        size_t at = scheme;
        while (at < t.n && t.p[at] != '/' && t.p[at] != '?')
                at++;
        head->form = HTTP1_ABSOLUTE;
        head->authority = span_of(t.p + scheme, at - scheme);
        head->path = at == t.n ? span_str("/") : span_of(t.p + at, t.n - at);
        return http1_is_authority(head->authority) && head->path.p[0] == '/';
}

static bool parse_target(struct http1_head *head)
{
        struct span t = head->target;
        if (!http1_is_target(t))
                return false;
        if (span_eq(head->method, span_str("CONNECT"))) {
                head->form = HTTP1_AUTHORITY;
                head->authority = t;
                return http1_is_authority(t);
        }
        if (t.p[0] == '/') {
                head->form = HTTP1_ORIGIN;
                head->path = t;
                return true;
        }
        if (t.n == 1 && t.p[0] == '*') {
                head->form = HTTP1_ASTERISK;
                head->path = t;
                return span_eq(head->method, span_str("OPTIONS"));
        }
        return parse_absolute(head);
}

/* Exactly one space between the parts: whoever skips more of them reads another target. */
enum http1_error http1_request_line(struct http1_head *head, struct span line)
{
        const uint8_t *end = line.p + line.n;
        const uint8_t *sp1 = line.n ? memchr(line.p, ' ', line.n) : NULL;
        if (!sp1)
                return HTTP1_BAD_LINE;
        const uint8_t *sp2 = memchr(sp1 + 1, ' ', (size_t)(end - sp1 - 1));
        if (!sp2)
                return HTTP1_BAD_LINE;
        head->method = span_of(line.p, (size_t)(sp1 - line.p));
        head->target = span_of(sp1 + 1, (size_t)(sp2 - sp1 - 1));
        if (!http1_is_token(head->method) || head->method.n > LIMIT_HTTP_METHOD_BYTES)
                return HTTP1_BAD_LINE;
        enum http1_error error =
                parse_version(span_of(sp2 + 1, (size_t)(end - sp2 - 1)), &head->version);
        if (error != HTTP1_OK)
                return error;
        return parse_target(head) ? HTTP1_OK : HTTP1_BAD_TARGET;
}

/* The space behind the status is required, but so many servers leave it out with an empty reason,
 * and nobody reads the line differently for it, that it may be missing. */
enum http1_error http1_status_line(struct http1_head *head, struct span line)
{
        if (line.n < 12)
                return HTTP1_BAD_LINE;
        enum http1_error error = parse_version(span_of(line.p, 8), &head->version);
        if (error != HTTP1_OK)
                return error;
        const uint8_t *d = line.p + 9;
        if (line.p[8] != ' ' || !is_digit(d[0]) || !is_digit(d[1]) || !is_digit(d[2]))
                return HTTP1_BAD_LINE;
        head->status = (d[0] - '0') * 100 + (d[1] - '0') * 10 + (d[2] - '0');
        if (head->status < 100 || head->status > 599)
                return HTTP1_BAD_LINE;
        if (line.n > 12 && line.p[12] != ' ')
                return HTTP1_BAD_LINE;
        struct span reason = span_str("");
        if (line.n > 13)
                reason = http1_trim(span_of(line.p + 13, line.n - 13));
        if (!http1_is_value(reason))
                return HTTP1_BAD_LINE;
        head->reason = reason;
        return HTTP1_OK;
}

/* -- header lines ---------------------------------------------------------------------- */

/* Digits only: `+5`, `0x5`, `5, 5` and an empty value are read differently elsewhere. */
static bool parse_length(struct span s, uint64_t *ret)
{
        uint64_t v = 0;
        if (s.n == 0 || s.n > 18) /* 18 digits cannot overflow */
                return false;
        for (size_t i = 0; i < s.n; i++) {
                if (!is_digit(s.p[i]))
                        return false;
                v = v * 10 + (uint64_t)(s.p[i] - '0');
        }
        *ret = v;
        return true;
}

/* Remember what this line says about the message.  The first letter sorts most of them out.
 * tab: there is one around the value.  nginx for one takes it for a part of the value, so that
 * `Transfer-Encoding:<tab>chunked` is chunked here and nothing there: not where it frames. */
static enum http1_error note_line(struct http1_head *head, const struct http_header *h, bool tab)
{
        struct span rest = h->value, token;
        switch (h->name.p[0] | 0x20) {
        case 'c':
                if (header_is(h, "Content-Length")) {
                        if (tab)
                                return HTTP1_BAD_VALUE;
                        if (head->has_length)
                                return HTTP1_TWO_LENGTHS;
                        head->has_length = true;
                        return parse_length(h->value, &head->content_length) ? HTTP1_OK
                                                                             : HTTP1_BAD_LENGTH;
                }
                if (!header_is(h, "Connection"))
                        break;
                while (header_token_next(&rest, &token)) {
                        head->seen.close |= header_name_eq(token, span_str("close"));
                        head->seen.keep_alive |= header_name_eq(token, span_str("keep-alive"));
                }
                break;
        case 'e':
                if (header_is(h, "Expect")) {
                        bool known = header_name_eq(h->value, span_str("100-continue"));
                        head->seen.expect |= known;
                        head->seen.other_expect |= !known;
                }
                break;
        case 'h':
                if (header_is(h, "Host")) {
                        if (tab)
                                return HTTP1_BAD_VALUE;
                        head->seen.hosts++;
                        head->seen.host = h->value;
                }
                break;
        case 't':
                if (header_is(h, "Transfer-Encoding")) {
                        if (tab)
                                return HTTP1_BAD_VALUE;
                        head->seen.encodings++;
                        head->seen.chunked = header_name_eq(h->value, span_str("chunked"));
                }
                break;
        case 'u':
                head->upgrade |= header_is(h, "Upgrade");
                break;
        default:
                break;
        }
        return HTTP1_OK;
}

static bool has_tab_around(struct span raw, struct span value)
{
        size_t before = (size_t)(value.p - raw.p), behind = raw.n - before - value.n;
        return (before > 0 && memchr(raw.p, '\t', before)) ||
               (behind > 0 && memchr(value.p + value.n, '\t', behind));
}

enum http1_error http1_header_line(struct http1_head *head, size_t headers_max, struct span line)
{
        if (line.p[0] == ' ' || line.p[0] == '\t')
                return HTTP1_FOLDED;
        const uint8_t *colon = memchr(line.p, ':', line.n);
        if (!colon)
                return HTTP1_BAD_NAME;
        struct span name = span_of(line.p, (size_t)(colon - line.p));
        struct span raw = span_of(colon + 1, line.n - name.n - 1), value = http1_trim(raw);
        if (!http1_is_token(name))
                return HTTP1_BAD_NAME;
        if (!http1_is_value(value))
                return HTTP1_BAD_VALUE;
        if (head->header_count == headers_max)
                return HTTP1_HEAD_TOO_LARGE;
        struct http_header *h = &head->headers[head->header_count++];
        *h = (struct http_header){name, value};
        return note_line(head, h, has_tab_around(raw, value));
}

/* -- what the lines say together ----------------------------------------------------------- */

/* Chunked or not: the one encoding that every hop understands alike. */
static enum http1_error check_encoding(const struct http1_head *head)
{
        if (head->seen.encodings == 0)
                return HTTP1_OK;
        if (head->seen.encodings > 1 || head->version == 10)
                return HTTP1_BAD_ENCODING;
        if (head->has_length)
                return HTTP1_LENGTH_AND_CHUNKED;
        return head->seen.chunked ? HTTP1_OK : HTTP1_UNKNOWN_ENCODING;
}

static bool keeps_alive(const struct http1_head *head)
{
        return !head->seen.close && (head->version == 11 || head->seen.keep_alive);
}

/* One Host in HTTP/1.1, at most one in HTTP/1.0, well-formed in both (RFC 9112, 3.2). */
static enum http1_error check_host(struct http1_head *head)
{
        if (head->seen.hosts == 0)
                return head->version == 11 ? HTTP1_BAD_HOST : HTTP1_OK;
        if (head->seen.hosts > 1 || !http1_is_authority(head->seen.host))
                return HTTP1_BAD_HOST;
        if (head->form == HTTP1_ORIGIN || head->form == HTTP1_ASTERISK)
                head->authority = head->seen.host;
        return HTTP1_OK;
}

enum http1_error http1_request_done(struct http1_head *head)
{
        enum http1_error error = check_encoding(head);
        if (error == HTTP1_OK)
                error = check_host(head);
        if (error != HTTP1_OK)
                return error;
        if (head->seen.other_expect)
                return HTTP1_BAD_EXPECT;
        head->keep_alive = keeps_alive(head);
        head->framing = head->seen.chunked ? HTTP1_CHUNKED
                        : head->has_length ? HTTP1_LENGTH
                                           : HTTP1_NONE;
        /* It means nothing in HTTP/1.0 (RFC 9110, 10.1.1), nor without a body to wait with. */
        head->expect_continue = head->seen.expect && head->version == 11 &&
                                (head->framing == HTTP1_CHUNKED || head->content_length > 0);
        return HTTP1_OK;
}

enum http1_error http1_reply_done(struct http1_head *head, bool head_request)
{
        enum http1_error error = check_encoding(head);
        if (error != HTTP1_OK)
                return error;
        head->keep_alive = keeps_alive(head);
        head->interim = head->status < 200;
        if (head->status == 101)
                return HTTP1_SWITCHED; /* nobody here asks for an upgrade */
        if (head_request || head->interim || head->status == 204 || head->status == 304)
                head->framing = HTTP1_NONE;
        else if (head->seen.chunked)
                head->framing = HTTP1_CHUNKED;
        else if (head->has_length)
                head->framing = HTTP1_LENGTH;
        else
                head->framing = HTTP1_UNTIL_CLOSE;
        if (head->framing == HTTP1_UNTIL_CLOSE)
                head->keep_alive = false;
        return HTTP1_OK;
}
