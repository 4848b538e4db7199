/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: see problem.h.
 */
#include "core/problem.h"

#include <assert.h>

#include "base/utf8.h"

static const struct problem_entry entries[PROBLEM_KINDS] = {
        [PROBLEM_KEY_MISSING] = {"key-missing", 400, false,
                                 "This operation needs an Idempotency-Key"},
        [PROBLEM_KEY_MALFORMED] = {"key-malformed", 400, false,
                                   "The Idempotency-Key is malformed"},
        [PROBLEM_IN_FLIGHT] = {"in-flight", 409, true,
                               "A request with this Idempotency-Key is still running"},
        [PROBLEM_OUTCOME_UNKNOWN] = {"outcome-unknown", 409, false,
                                     "Nobody can know whether this request was executed"},
        [PROBLEM_REPLY_NOT_KEPT] = {"reply-not-kept", 409, false,
                                    "This request was executed, but its reply was not kept"},
        [PROBLEM_BODY_TOO_LARGE] = {"body-too-large", 413, false,
                                    "The request body is too large"},
        [PROBLEM_KEY_REUSED] = {"key-reused", 422, false,
                                "This Idempotency-Key was used for another request"},
        [PROBLEM_UPSTREAM_UNKNOWN] = {"upstream-unknown", 502, false,
                                      "The upstream failed; the outcome is unknown"},
        [PROBLEM_UPSTREAM_TIMEOUT] = {"upstream-timeout", 504, false,
                                      "The upstream did not answer in time; the outcome is "
                                      "unknown"},
        [PROBLEM_UPSTREAM_UNREACHABLE] = {"upstream-unreachable", 502, true,
                                          "The upstream cannot be reached; nothing was sent"},
        [PROBLEM_STORE_DOWN] = {"store-down", 503, true,
                                "The store of idempotency keys cannot be reached"},
        [PROBLEM_OVERLOADED] = {"overloaded", 503, true,
                                "Too much is under way; nothing was sent"},
};

const struct problem_entry *problem_entry(enum problem_kind kind)
{
        assert((unsigned)kind < PROBLEM_KINDS);
        return &entries[kind];
}

/* A JSON string.  Bytes that are no UTF-8 become U+FFFD: a detail may quote what a client
 * sent, and the reply must be JSON whatever that was (H45). */
static int append_json_string(struct buf *b, struct span s)
{
        int rc = buf_append_byte(b, '"');
        while (rc == BUF_OK && s.n > 0) {
                size_t n = utf8_char(s);
                uint8_t c = s.p[0];
                if (n == 0)
                        rc = buf_append_str(b, "\xef\xbf\xbd");
                else if (c == '"' || c == '\\')
                        rc = buf_printf(b, "\\%c", c);
                else if (c < 0x20 || c == 0x7f)
                        rc = buf_printf(b, "\\u%04x", c);
                else
                        rc = buf_append(b, s.p, n);
                n = n ? n : 1;
                s = span_of(s.p + n, s.n - n);
        }
        return rc == BUF_OK ? buf_append_byte(b, '"') : rc;
}

int problem_format(enum problem_kind kind, struct span detail, int extra_status, struct buf *b)
{
        const struct problem_entry *e = problem_entry(kind);
        size_t before = b->n;
        int rc = buf_printf(b, "{\"type\":\"" PROBLEM_TYPE_BASE "%s\",\"title\":\"%s\","
                               "\"status\":%d,\"retryable\":%s",
                            e->name, e->title, e->status, e->retryable ? "true" : "false");
        if (rc == BUF_OK && detail.n > 0) {
                rc = buf_append_str(b, ",\"detail\":");
                if (rc == BUF_OK)
                        rc = append_json_string(b, detail);
        }
        if (rc == BUF_OK && extra_status > 0)
                rc = buf_printf(b, ",\"original_status\":%d", extra_status);
        if (rc == BUF_OK)
                rc = buf_append_str(b, "}\n");
        if (rc != BUF_OK)
                b->n = before;
        return rc;
}
