/* SPDX-License-Identifier: Apache-2.0
 *
 * request_answer: what clients get.
 */
#include <stdio.h>

#include "app/request.h"
#include "core/http1_write.h"
#include "core/reply_codec.h"

enum { ANSWER_HEADERS_MAX = LIMIT_REPLY_HEADERS + LIMIT_HTTP_HEADERS + 8 };

/* The exchange is over for us, whichever way it went. */
static struct http_exchange *let_go(struct request *r)
{
        struct http_exchange *ex = r->ex;
        r->ex = NULL;
        r->stage = REQUEST_OVER;
        return ex;
}

static void answer_json(struct request *r, int status, const struct http_header *more,
                        size_t more_n, struct span body)
{
        struct http_header hs[8];
        size_t n = 0;
        if (!r->ex) {
                r->stage = REQUEST_OVER;
                return;
        }
        hs[n++] = (struct http_header){span_str("Content-Type"),
                                       span_str("application/problem+json")};
        for (size_t i = 0; i < more_n; i++)
                hs[n++] = more[i];
        r->status = status;
        r->reply_bytes = body.n;
        /* A body that is still coming is dropped by the server, or the connection closed. */
        http_reply(let_go(r), status, hs, n, body, false);
}

void answer_problem(struct request *r, enum problem_kind kind, const char *detail,
                    int retry_after_s)
{
        struct buf body;
        struct http_header more[4];
        size_t n = 0;
        char after[16];
        const struct problem_entry *entry = problem_entry(kind);
        buf_init(&body, 16 * 1024);
        (void)problem_format(kind, span_str(detail),
                             kind == PROBLEM_REPLY_NOT_KEPT ? r->status : 0, &body);
        if (retry_after_s > 0) {
                (void)snprintf(after, sizeof after, "%d", retry_after_s);
                more[n++] = (struct http_header){span_str("Retry-After"), span_str(after)};
        }
        /* For a gateway in front of this one: our 409 and 503 say nothing of an effect. */
        if (entry->status == 409 || entry->status == 503)
                more[n++] = (struct http_header){span_str("Idempotency-Outcome"),
                                                 span_str("unknown")};
        if (kind == PROBLEM_UPSTREAM_UNREACHABLE)
                more[n++] = (struct http_header){span_str("Idempotency-Outcome"),
                                                 span_str("not-executed")};
        if (r->warning)
                more[n++] = (struct http_header){span_str("Semel-Warning"), span_str(r->warning)};
        answer_json(r, entry->status, more, n, buf_span(&body));
        buf_release(&body);
}

void answer_refusal(struct request *r, int status, const char *title, const char *detail)
{
        char body[512];
        int n = snprintf(body, sizeof body,
                         "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,"
                         "\"retryable\":false,\"detail\":\"%s\"}\n",
                         title, status, detail);
        answer_json(r, status, NULL, 0, span_of(body, (size_t)n));
}

struct answer {
        struct http_header hs[ANSWER_HEADERS_MAX];
        size_t n;
        struct span reason;
        bool cors;
};

static void answer_add(struct answer *a, const char *name, struct span value)
{
        if (a->n < ANSWER_HEADERS_MAX)
                a->hs[a->n++] = (struct http_header){span_str(name), value};
}

/* Not by assigning a whole struct: its fields are many, and few are used. */
static void answer_init(struct answer *a, struct span reason)
{
        a->n = 0;
        a->reason = reason;
        a->cors = false;
}

/* Fields in their stored form; `:reason` is the status line's. */
static bool answer_decode(struct answer *a, struct span blob)
{
        struct reply_cursor cur;
        struct span name, value;
        int more;
        if (!reply_decode_begin(&cur, blob))
                return false;
        while ((more = reply_decode_next(&cur, &name, &value)) == 1) {
                if (span_eq(name, span_str(":reason"))) {
                        a->reason = http1_trim(value); /* older rows may have it cut at a blank */
                } else if (a->n < ANSWER_HEADERS_MAX) {
                        a->cors |= header_name_eq(name, span_str("Access-Control-Allow-Origin"));
                        a->hs[a->n++] = (struct http_header){name, value};
                }
        }
        return more == 0;
}

/* Send the head, the body and the end. */
static void answer_whole(struct request *r, struct answer *a, int status, struct span body)
{
        if (!r->ex) { /* who left while the store was asked */
                r->stage = REQUEST_OVER;
                return;
        }
        if (!http_reply_head(r->ex, status, a->reason, a->hs, a->n, (int64_t)body.n, false) ||
            !http_reply_body(r->ex, body)) {
                r->stage = REQUEST_OVER; /* `gone` follows, and finds nothing left to do */
                return;
        }
        r->status = status;
        r->reply_bytes = body.n;
        http_reply_end(let_go(r));
}

void answer_replay(struct request *r, int status, bool tombstone, struct span headers,
                   struct span body)
{
        struct answer a;
        answer_init(&a, span_str(http1_reason(status)));
        r->status = status;
        if (!answer_decode(&a, headers)) {
                answer_refusal(r, 500, "The kept reply cannot be read",
                               "The row was damaged, or written by a newer semel.");
                return;
        }
        if (tombstone && status != 204 && status != 304) {
                request_set_outcome(r, OUTCOME_NOT_KEPT);
                answer_problem(r, PROBLEM_REPLY_NOT_KEPT, "", 0);
                return;
        }
        answer_add(&a, "Idempotent-Replayed", span_str("true"));
        if (a.cors) /* a page may read only what it is told of (H28) */
                answer_add(&a, "Access-Control-Expose-Headers", span_str("Idempotent-Replayed"));
        answer_whole(r, &a, status, body);
}

static bool answer_of_upstream(struct request *r, struct answer *a)
{
        answer_init(a, span_str(r->reason));
        if (!answer_decode(a, buf_span(&r->reply_headers)) ||
            !answer_decode(a, buf_span(&r->extra_headers)))
                return false;
        if (r->warning)
                answer_add(a, "Semel-Warning", span_str(r->warning));
        return true;
}

void answer_upstream(struct request *r)
{
        struct answer a;
        if (!r->ex) {
                r->stage = REQUEST_OVER;
                return;
        }
        if (answer_of_upstream(r, &a))
                answer_whole(r, &a, r->status, buf_span(&r->reply_body));
        else
                http_exchange_abort(let_go(r));
}

bool answer_upstream_head(struct request *r, int64_t length)
{
        struct answer a;
        return r->ex && answer_of_upstream(r, &a) &&
               http_reply_head(r->ex, r->status, a.reason, a.hs, a.n, length, false);
}
