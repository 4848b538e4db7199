/* SPDX-License-Identifier: Apache-2.0
 *
 * Any reply to an outbound call: a decision that never says "rejected" at the front door when an
 * earlier attempt may have been executed, never loses "maybe" without a word from the other side,
 * and a wait that leaves room before the deadline.
 *
 * The input: status (2 bytes), lines "Name: value", an empty line, the body.
 */
#include "fuzz.h"

#include <string.h>

#include "core/call_plan.h"
#include "core/limits.h"
#include "core/reply_codec.h"

static size_t line_end(const uint8_t *p, size_t n)
{
        const uint8_t *end = n ? memchr(p, '\n', n) : NULL;
        return end ? (size_t)(end - p) : n;
}

/* Returns what is left behind the empty line. */
static struct span read_headers(struct span in, struct buf *headers)
{
        while (in.n > 0) {
                size_t n = line_end(in.p, in.n);
                struct span line = span_of(in.p, n);
                in = span_of(in.p + n, in.n - n);
                if (in.n > 0)
                        in = span_of(in.p + 1, in.n - 1);
                if (line.n == 0)
                        break;
                const uint8_t *colon = memchr(line.p, ':', line.n);
                size_t name_n = colon ? (size_t)(colon - line.p) : line.n;
                size_t skip = colon ? name_n + 1 : name_n;
                if (skip < line.n && line.p[skip] == ' ')
                        skip++;
                need(reply_encode_header(headers, span_of(line.p, name_n),
                                         span_of(line.p + skip, line.n - skip)) == BUF_OK);
        }
        return in;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        struct buf headers;
        if (n < 2)
                return 0;
        struct call_end end = {.kind = CALL_END_REPLY, .sent = true,
                               .status = (p[0] << 8 | p[1]) % 1000};
        buf_init(&headers, 2 * n + 64 * 1024);
        struct span body = read_headers(span_of(p + 2, n - 2), &headers);
        call_end_read(&end, buf_span(&headers), body, 784111777 * SECOND);
        need(end.retry_after_us >= -1 && end.original_status >= 0 && end.original_status < 1000);

        for (int before = 0; before < 2; before++) {
                struct call_verdict v = call_decide(&end, before);
                need(v.why);
                need(!(before && v.action == CALL_REJECTED && v.front_door));
                if (v.action == CALL_WAIT)
                        need(v.maybe);
                if (end.status >= 500 && v.action == CALL_AGAIN && !v.maybe)
                        need(end.said == CALL_SAID_NOT_EXECUTED ||
                             end.problem_kind == CALL_PROBLEM_KNOWN);
        }
        int64_t left_us = (int64_t)p[0] * SECOND;
        int64_t wait_us = call_wait_us(1 + p[1], n * 7919, end.retry_after_us, left_us, SECOND);
        need(wait_us == -1 || (wait_us >= 0 && wait_us < left_us));

        int64_t s = -1;
        if (http_date_parse(body, &s))
                need(s >= 0 && s < INT64_C(400) * 366 * 86400 * 100);
        buf_release(&headers);
        return 0;
}
