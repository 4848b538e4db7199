/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored reply headers.  Any bytes: headers inside the bytes, then an end or "corrupt"; what
 * decodes to the end is exactly what its headers encode to.  And the same bytes as a list of
 * headers: decode(encode(x)) = x.
 */
#include "fuzz.h"

#include "core/reply_codec.h"

static void inside(struct span s, const uint8_t *p, size_t n)
{
        need(s.p >= p && s.n <= n && (size_t)(s.p - p) <= n - s.n);
}

static void decode(const uint8_t *p, size_t n)
{
        struct reply_cursor cur;
        if (!reply_decode_begin(&cur, span_of(p, n)))
                return;
        struct buf again;
        buf_init(&again, n);
        struct span name, value;
        int rc;
        while ((rc = reply_decode_next(&cur, &name, &value)) == 1) {
                inside(name, p, n);
                inside(value, p, n);
                need(reply_encode_header(&again, name, value) == BUF_OK);
        }
        if (rc == 0 && n > 1)
                need(span_eq(buf_span(&again), span_of(p, n)));
        if (rc < 0)
                need(reply_decode_next(&cur, &name, &value) == -1);
        buf_release(&again);
}

/* Headers: a byte for the name's length, a byte for the value's, then both. */
static size_t take(const uint8_t *p, size_t n, struct span *ret_name, struct span *ret_value)
{
        if (n < 2)
                return 0;
        size_t left = n - 2, name = p[0] < left ? p[0] : left;
        size_t value = p[1] < left - name ? p[1] : left - name;
        *ret_name = span_of(p + 2, name);
        *ret_value = span_of(p + 2 + name, value);
        return 2 + name + value;
}

static void encode(const uint8_t *p, size_t n)
{
        struct buf b;
        struct span name, value, got_name, got_value;
        buf_init(&b, 1 << 16);
        for (size_t at = 0, used; (used = take(p + at, n - at, &name, &value)) > 0; at += used)
                if (reply_encode_header(&b, name, value) != BUF_OK)
                        goto out;
        struct reply_cursor cur;
        need(reply_decode_begin(&cur, buf_span(&b)));
        for (size_t at = 0, used; (used = take(p + at, n - at, &name, &value)) > 0; at += used) {
                need(reply_decode_next(&cur, &got_name, &got_value) == 1);
                need(span_eq(name, got_name) && span_eq(value, got_value));
        }
        need(reply_decode_next(&cur, &got_name, &got_value) == 0);
out:
        buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        decode(p, n);
        encode(p, n);
        return 0;
}
