/* SPDX-License-Identifier: Apache-2.0
 *
 * Multipart bodies.  Any bytes: one result however they are cut.  What is whole reads back from its
 * framed form, part by part, and built again with another boundary it frames to the same bytes.
 *
 * The input: where to cut first, the length of the later pieces, the boundary's length, the boundary,
 * then the body.
 */
#include "fuzz.h"

#include "base/buf.h"
#include "core/multipart.h"

static void keep(void *arg, struct span piece)
{
        need(buf_append_span(arg, piece) == BUF_OK);
}

static bool frame(struct span body, struct span boundary, size_t first, size_t step,
                  struct buf *out)
{
        struct multipart mp;
        multipart_init(&mp, boundary, keep, out);
        for (size_t at = 0, n = first; at < body.n; at += n, n = step) {
                n = n < body.n - at ? n : body.n - at;
                (void)multipart_feed(&mp, span_of(body.p + at, n));
        }
        return multipart_end(&mp);
}

static uint64_t take_u64(const struct buf *b, size_t *end)
{
        uint64_t v = 0;
        need(*end >= 8);
        *end -= 8;
        for (size_t i = 0; i < 8; i++)
                v = v << 8 | b->p[*end + i];
        return v;
}

static struct span take_bytes(const struct buf *b, size_t *end, uint64_t n)
{
        need(n <= *end);
        *end -= n;
        return span_of(b->p + *end, n);
}

static void append(struct buf *b, struct span s)
{
        need(buf_append_span(b, s) == BUF_OK);
}

static bool has(struct span s, const char *text)
{
        return memmem(s.p, s.n, text, strlen(text)) != NULL;
}

/* The parts come out of the framed form last first. */
static void build_again(const struct buf *framed)
{
        static const char other[] = "another=boundary";
        struct span head[64], content[64];
        size_t end = framed->n, n = 0;
        uint64_t parts = take_u64(framed, &end);
        if (parts > 64)
                return;
        for (; n < parts; n++) {
                content[n] = take_bytes(framed, &end, take_u64(framed, &end));
                head[n] = take_bytes(framed, &end, take_u64(framed, &end));
                if (has(content[n], other) || has(head[n], other))
                        return;
        }
        need(end == 0);
        struct buf body, again;
        buf_init(&body, 1 << 20);
        buf_init(&again, 1 << 20);
        while (n > 0) {
                n--;
                need(buf_printf(&body, "--%s\r\n", other) == BUF_OK);
                append(&body, head[n]);
                append(&body, span_str("\r\n"));
                append(&body, content[n]);
                append(&body, span_str("\r\n"));
        }
        need(buf_printf(&body, "--%s--", other) == BUF_OK);
        need(frame(buf_span(&body), span_str(other), 5, 7, &again));
        need(span_eq(buf_span(&again), buf_span(framed)));
        buf_release(&body);
        buf_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        struct span boundary, found;
        if (multipart_boundary(span_of(p, n), &found))
                need(found.n > 0 && found.n <= MULTIPART_BOUNDARY_BYTES && found.p > p &&
                     found.p + found.n <= p + n);
        if (n < 4)
                return 0;
        size_t len = p[2] % MULTIPART_BOUNDARY_BYTES + 1u;
        if (n - 3 < len || memchr(p + 3, '\r', len))
                return 0;
        boundary = span_of(p + 3, len);
        struct span body = span_of(p + 3 + len, n - 3 - len);
        struct buf a, b;
        buf_init(&a, 1 << 20);
        buf_init(&b, 1 << 20);
        bool whole = frame(body, boundary, body.n, 1, &a);
        need(whole == frame(body, boundary, p[0] + 1u, p[1] + 1u, &b));
        if (whole) {
                need(span_eq(buf_span(&a), buf_span(&b)));
                build_again(&a);
        }
        buf_release(&a);
        buf_release(&b);
        return 0;
}
