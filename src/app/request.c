/* SPDX-License-Identifier: Apache-2.0
 *
 * request: see request.h.
 */
#include "app/request.h"

#include <assert.h>
#include <stdlib.h>

#include "core/http1.h"
#include "sys/clock.h"

/* -- life ------------------------------------------------------------------------------------ */

static void on_timeout(struct deadline *d);

static struct request *request_new(struct worker *w, struct http_exchange *ex)
{
        struct request *r = request_get(w);
        if (!r)
                return NULL;
        r->w = w;
        r->ex = ex;
        r->number = ++w->next_request_id;
        r->started_us = loop_now_us(w->loop);
        r->started_wall_us = clock_wall_us();
        r->upstream_us = -1;
        r->timeout.fire = on_timeout;
        r->head.max = 2 * LIMIT_HTTP_HEAD_BYTES;
        r->reply_headers.max = LIMIT_REPLY_HEADERS_BYTES;
        r->extra_headers.max = LIMIT_REPLY_HEADERS_BYTES;
        r->next = w->requests;
        if (r->next)
                r->next->prev = r;
        w->requests = r;
        w->request_count++;
        atomic_fetch_add(&w->gw->metrics.requests, 1);
        return r;
}

/* The line of the access log, and the numbers. */
static void account(struct request *r)
{
        struct gateway *gw = r->w->gw;
        int64_t now_us = loop_now_us(r->w->loop);
        atomic_fetch_add_explicit(&gw->metrics.outcomes[r->outcome], 1, memory_order_relaxed);
        metrics_observe(&gw->metrics, HISTOGRAM_TOTAL, now_us - r->started_us);
        if (!gw->log)
                return;
        const uint8_t *query = r->path.n > 0 ? memchr(r->path.p, '?', r->path.n) : NULL;
        const struct access_line line = {
                .wall_us = r->started_wall_us,
                .peer = (const char *)buf_span(&r->head).p,
                .method = r->method,
                .path = span_of(r->path.p, query ? (size_t)(query - r->path.p) : r->path.n),
                .status = r->client_was_lost ? 0 : r->status,
                .outcome = r->outcome,
                .request_id = r->number,
                .worker = r->w->number,
                .key_id = r->key.n > 0 && r->claim.lease_us > 0 ? r->claim.id.b : NULL,
                .route = r->route ? r->route->name : "",
                .total_us = now_us - r->started_us,
                .upstream_us = r->upstream_us,
                .request_bytes = r->body.n,
                .reply_bytes = r->reply_bytes};
        access_log_write(gw->log, &line);
}

static void free_if_over(struct request *r)
{
        if (r->entered > 0 || r->ex || r->op_busy || r->call_busy || r->stage != REQUEST_OVER)
                return;
        struct worker *w = r->w;
        request_unwait(r);
        deadline_clear(&r->timeout);
        account(r);
        *(r->prev ? &r->prev->next : &w->requests) = r->next;
        if (r->next)
                r->next->prev = r->prev;
        w->request_count--;
        atomic_fetch_sub(&w->gw->buffered_bytes, (int_fast64_t)r->budgeted);
        atomic_fetch_sub(&w->gw->metrics.requests, 1);
        reading_put(w, r->reading);
        request_put(w, r);
        worker_request_ended(w);
}

void request_enter(struct request *r)
{
        r->entered++;
}

void request_leave(struct request *r)
{
        r->entered--;
        free_if_over(r);
}

void request_set_outcome(struct request *r, enum outcome outcome)
{
        if (r->outcome_set)
                return;
        r->outcome = outcome;
        r->outcome_set = true;
}

void request_asked(struct request *r)
{
        if (r->call.sent > 0)
                r->upstream_us = loop_now_us(r->w->loop) - r->dispatched_us;
}

void request_submit(struct request *r, int64_t timeout_us, void (*done)(struct store_op *op))
{
        if (!r->w->ls) { /* the worker has ended: the lease ends what was claimed */
                r->stage = REQUEST_OVER;
                return;
        }
        r->op.deadline_us = loop_now_us(r->w->loop) + timeout_us;
        r->op.done = done;
        r->op.arg = r;
        r->op_busy = true;
        atomic_fetch_add(&r->w->gw->metrics.store_queue, 1);
        loop_store_submit(r->w->ls, &r->op);
}

void request_timeout_in(struct request *r, int64_t us)
{
        deadline_set(r->w->deadlines, &r->timeout, loop_now_us(r->w->loop) + us);
}

void request_time_upstream(struct request *r)
{
        bool sends = r->stage == REQUEST_PASS && r->dispatched && !r->body_whole && r->ex &&
                     !http_exchange_is_paused(r->ex);
        if (!r->call_busy)
                return;
        if (sends || upstream_is_paused(&r->call))
                deadline_clear(&r->timeout);
        else
                request_timeout_in(r, r->policy->upstream_timeout_us);
}

static void on_timeout(struct deadline *d)
{
        struct request *r = (struct request *)((char *)d - offsetof(struct request, timeout));
        request_enter(r);
        switch (r->stage) {
        case REQUEST_WAIT:
                request_wait_over(r);
                break;
        case REQUEST_UPSTREAM:
        case REQUEST_STREAM:
                request_upstream_timeout(r);
                break;
        case REQUEST_RECORD:
                request_record_again(r);
                break;
        case REQUEST_PASS:
                request_pass_timeout(r);
                break;
        case REQUEST_READ:
        case REQUEST_CLAIM:
        case REQUEST_OVER:
                break;
        }
        request_leave(r);
}

/* -- the head ----------------------------------------------------------------------------------- */

/* The same bytes in a copy; what points elsewhere is a constant. */
static struct span moved(struct span s, struct span from, const uint8_t *to)
{
        uintptr_t at = s.n > 0 ? (uintptr_t)s.p - (uintptr_t)from.p : 0;
        return at < from.n ? span_of(to + at, s.n) : s;
}

static bool room_for_headers(struct request *r, size_t n)
{
        enum { AT_LEAST = 16 };
        if (n <= r->headers_cap)
                return true;
        size_t cap = n < AT_LEAST ? AT_LEAST : n;
        free(r->headers);
        r->headers = malloc(cap * sizeof *r->headers);
        r->headers_cap = r->headers ? cap : 0;
        return r->headers;
}

/* The head's spans die with the exchange; the request may live longer. */
static bool copy_head(struct request *r, const struct http1_head *head)
{
        const struct span peer = span_of(r->ex->peer, strlen(r->ex->peer) + 1);
        const struct span pieces[2] = {peer, head->raw};
        if (!room_for_headers(r, head->header_count) ||
            buf_append_spans(&r->head, pieces, 2) != BUF_OK)
                return false;
        const uint8_t *to = r->head.p + peer.n;
        r->method = moved(head->method, head->raw, to);
        r->target = moved(head->target, head->raw, to);
        r->path = moved(head->path, head->raw, to);
        r->host = moved(head->authority, head->raw, to);
        for (size_t i = 0; i < head->header_count; i++) {
                r->headers[i].name = moved(head->headers[i].name, head->raw, to);
                r->headers[i].value = moved(head->headers[i].value, head->raw, to);
        }
        r->header_count = head->header_count;
        return true;
}

static void reject(struct request *r, enum problem_kind kind, const char *detail)
{
        request_set_outcome(r, OUTCOME_REJECTED);
        answer_problem(r, kind, detail, 0);
}

/* Two fields with one key are one key; with two, nobody knows which is meant. */
static bool read_key(struct request *r)
{
        const char *detail = NULL;
        for (size_t i = 0; i < r->header_count; i++) {
                struct key key;
                if (!header_is(&r->headers[i], "Idempotency-Key"))
                        continue;
                enum key_result result = key_parse(r->headers[i].value, &key);
                if (result != KEY_OK)
                        detail = key_result_text(result);
                else if (r->key.n > 0 && (key.n != r->key.n ||
                                          memcmp(key.text, r->key.text, key.n) != 0))
                        detail = "two Idempotency-Key fields with different keys";
                else
                        r->key = key;
                if (detail)
                        break;
        }
        if (!detail && r->key.n > 0 &&
            header_is_hop_by_hop(r->headers, r->header_count, span_str("Idempotency-Key")))
                detail = "the field is named in Connection, so it must not be passed on";
        if (!detail)
                return true;
        r->key.n = 0;
        reject(r, PROBLEM_KEY_MALFORMED, detail);
        return false;
}

/* Whose key it is. */
static bool read_principal(struct request *r)
{
        const struct policy *p = r->policy;
        const char *name = p->principal == PRINCIPAL_HEADER ? p->principal_header : "Authorization";
        if (p->principal == PRINCIPAL_NONE)
                return true;
        const struct http_header *h = header_find(r->headers, r->header_count, name);
        if (h && header_count(r->headers, r->header_count, name) > 1) {
                reject(r, PROBLEM_KEY_MALFORMED, "more than one field says whose key it is");
                return false;
        }
        if (h && h->value.n > 0) {
                if (sha256_once(h->value.p, h->value.n, r->principal) != 0)
                        return false;
                r->principal_n = sizeof r->principal;
                return true;
        }
        if (p->anonymous == ANONYMOUS_ALLOW)
                return true;
        reject(r, PROBLEM_KEY_MISSING, "this route does not take keys of anonymous callers");
        return false;
}

bool request_budget(struct request *r, size_t n)
{
        struct gateway *gw = r->w->gw;
        int_fast64_t before = atomic_fetch_add(&gw->buffered_bytes, (int_fast64_t)n);
        r->budgeted += n;
        return before + (int_fast64_t)n <= gw->config->buffered_bytes_max;
}

/* A canonical form may be larger than the body that it is made of. */
static bool budget_reading(struct request *r)
{
        struct reading *rd = r->reading;
        size_t held = http_fingerprint_held(&rd->fp);
        size_t more = held > rd->counted ? held - rd->counted : 0;
        rd->counted += more;
        return more == 0 || request_budget(r, more);
}

static void reading_end(struct request *r)
{
        size_t counted = r->reading->counted;
        atomic_fetch_sub(&r->w->gw->buffered_bytes, (int_fast64_t)counted);
        r->budgeted -= counted;
        reading_put(r->w, r->reading);
        r->reading = NULL;
}

/* A fingerprint, begun with the head. */
static struct reading *reading_begin(const struct request *r)
{
        const struct policy *p = r->policy;
        struct reading *rd = reading_get(r->w);
        if (!rd)
                return NULL;
        rd->counted = 0;
        rd->options = (struct http_fingerprint_options){
                .form = (enum policy_fingerprint)p->fingerprint,
                .host = p->fingerprint_host,
                .query = p->fingerprint_query,
                .json_max = (size_t)p->request_body_max};
        http_fingerprint_begin(&rd->fp, &rd->options, r->ex->request, sha256_sink(rd->hash),
                               p->fingerprint == FINGERPRINT_RAW ? NULL : sha256_sink(rd->second));
        return rd;
}

static void begin_read(struct request *r, const struct http1_head *head)
{
        r->stage = REQUEST_READ;
        r->body.max = (size_t)r->policy->request_body_max;
        r->reply_body.max = (size_t)r->policy->reply_body_max;
        if (head->framing == HTTP1_LENGTH &&
            head->content_length > (uint64_t)r->policy->request_body_max) {
                reject(r, PROBLEM_BODY_TOO_LARGE, "");
                return;
        }
        r->reading = reading_begin(r);
        if (!r->reading) {
                request_set_outcome(r, OUTCOME_OVERLOADED);
                answer_problem(r, PROBLEM_OVERLOADED, "", 1);
                return;
        }
        http_exchange_continue(r->ex);
}

/* h2c is an offer, not a wish: Java's HttpClient makes it with every first request, and is
 * content with HTTP/1.1. */
static bool upgrade_may_be_ignored(const struct http1_head *head)
{
        for (size_t i = 0; i < head->header_count; i++) {
                struct span rest = head->headers[i].value, token;
                if (!header_is(&head->headers[i], "Upgrade"))
                        continue;
                while (header_token_next(&rest, &token))
                        if (!header_name_eq(token, span_str("h2c")))
                                return false;
        }
        return true;
}

static void route(struct request *r, const struct http1_head *head)
{
        r->policy = gateway_config_match(r->w->gw->config, r->method, r->path, &r->route);
        if (head->form == HTTP1_AUTHORITY) {
                request_set_outcome(r, OUTCOME_REJECTED);
                answer_refusal(r, 501, "Not Implemented", "CONNECT is not served here");
                return;
        }
        if (head->upgrade && !upgrade_may_be_ignored(head)) {
                request_set_outcome(r, OUTCOME_REJECTED);
                answer_refusal(r, 501, "Not Implemented",
                               "Upgrade is not served here: connect to the service itself");
                return;
        }
        bool claimed = (policy_method(r->method) & r->policy->methods) != 0;
        if (claimed && !read_key(r))
                return;
        if (claimed && r->key.n == 0 && r->policy->missing_key == MISSING_REJECT) {
                reject(r, PROBLEM_KEY_MISSING, "");
                return;
        }
        if (!claimed || r->key.n == 0) {
                r->request_length = head->framing == HTTP1_LENGTH ? (int64_t)head->content_length
                                    : head->framing == HTTP1_CHUNKED ? UPSTREAM_CHUNKED
                                                                     : UPSTREAM_NO_BODY;
                request_set_outcome(r, OUTCOME_PASSED);
                request_pass(r);
                return;
        }
        if (read_principal(r))
                begin_read(r, head);
}

/* -- events of the client ------------------------------------------------------------------------- */

static void on_head(void *arg, struct http_exchange *ex)
{
        struct worker *w = arg;
        if (atomic_load(&w->cut)) { /* what time is left is for what was begun before */
                http_exchange_abort(ex);
                return;
        }
        struct request *r = request_new(w, ex);
        if (!r || !copy_head(r, ex->request)) {
                if (r) {
                        r->ex = NULL;
                        r->stage = REQUEST_OVER;
                        free_if_over(r);
                }
                http_exchange_abort(ex); /* no memory even to say so */
                return;
        }
        ex->app = r;
        request_enter(r);
        route(r, ex->request);
        request_leave(r);
}

static void on_body(void *arg, struct http_exchange *ex, struct span piece)
{
        struct request *r = ex->app;
        (void)arg;
        request_enter(r);
        if (r->stage == REQUEST_PASS) {
                request_pass_body(r, piece);
        } else if (!request_budget(r, piece.n)) {
                request_set_outcome(r, OUTCOME_OVERLOADED);
                answer_problem(r, PROBLEM_OVERLOADED, "", 1);
        } else if (buf_append_span(&r->body, piece) != BUF_OK) {
                reject(r, PROBLEM_BODY_TOO_LARGE, "");
        } else {
                http_fingerprint_body(&r->reading->fp, piece);
                if (!budget_reading(r)) {
                        request_set_outcome(r, OUTCOME_OVERLOADED);
                        answer_problem(r, PROBLEM_OVERLOADED, "", 1);
                }
        }
        request_leave(r);
}

static void on_end(void *arg, struct http_exchange *ex)
{
        struct request *r = ex->app;
        (void)arg;
        request_enter(r);
        r->body_whole = true;
        if (r->stage == REQUEST_PASS) {
                request_pass_end(r);
        } else if (r->stage == REQUEST_READ) {
                http_fingerprint_end(&r->reading->fp, &r->claim.fingerprint);
                reading_end(r);
                request_claim(r);
        }
        request_leave(r);
}

static void on_drained(void *arg, struct http_exchange *ex)
{
        struct request *r = ex->app;
        (void)arg;
        request_enter(r);
        if (r->stage == REQUEST_PASS)
                request_pass_drained(r);
        else if (r->stage == REQUEST_STREAM)
                request_stream_drained(r);
        request_leave(r);
}

/* The client is gone.  What was not sent yet is given up; what was is seen to its end. */
static void on_gone(void *arg, struct http_exchange *ex)
{
        struct request *r = ex->app;
        (void)arg;
        request_enter(r);
        r->ex = NULL;
        r->client_was_lost = true;
        switch (r->stage) {
        case REQUEST_READ:
                request_set_outcome(r, OUTCOME_GONE);
                r->stage = REQUEST_OVER;
                break;
        case REQUEST_WAIT:
                if (request_waits_for_another(r)) {
                        request_set_outcome(r, OUTCOME_GONE);
                        r->stage = REQUEST_OVER;
                }
                break;
        case REQUEST_PASS:
                request_pass_gone(r);
                break;
        case REQUEST_STREAM: /* it goes on, so that the upstream is not cut in its work; for a while */
                request_timeout_in(r, r->policy->upstream_timeout_us);
                if (r->call_busy)
                        upstream_resume(&r->call);
                break;
        case REQUEST_CLAIM:    /* its answer releases it */
        case REQUEST_UPSTREAM: /* H68 */
        case REQUEST_RECORD:
        case REQUEST_OVER:
                break;
        }
        request_leave(r);
}

static void on_failed(void *arg, const char *peer, enum http1_error error)
{
        struct worker *w = arg;
        (void)peer;
        (void)error;
        metrics_count(&w->gw->metrics, COUNTER_BAD_MESSAGES);
}

const struct http_handler request_handler = {
        .head = on_head,
        .body = on_body,
        .end = on_end,
        .drained = on_drained,
        .gone = on_gone,
        .failed = on_failed,
};

/* -- shutdown ---------------------------------------------------------------------------------------- */

void request_drain(struct request *r)
{
        request_enter(r);
        if (request_waits_for_another(r))
                request_wait_over(r); /* with an answer, instead of to the deadline */
        request_leave(r);
}

/* The client hears nothing any more. */
static void abandon_client(struct request *r)
{
        struct http_exchange *ex = r->ex;
        r->ex = NULL;
        r->client_was_lost = true;
        if (ex)
                http_exchange_abort(ex);
}

void request_cut(struct request *r)
{
        request_enter(r);
        switch (r->stage) {
        case REQUEST_UPSTREAM:
        case REQUEST_STREAM:
                request_upstream_cut(r);
                break;
        case REQUEST_WAIT:
                if (!request_waits_for_another(r)) {
                        request_upstream_cut(r);
                        break;
                }
                abandon_client(r);
                r->stage = REQUEST_OVER;
                break;
        case REQUEST_RECORD:
                if (r->call_busy)
                        request_upstream_cut(r);
                else if (!r->op_busy)
                        request_record_again(r);
                break;
        case REQUEST_CLAIM: /* its answer releases it */
                abandon_client(r);
                break;
        case REQUEST_PASS:
                if (r->call_busy)
                        upstream_call_cancel(&r->call);
                r->call_busy = false;
                abandon_client(r);
                r->stage = REQUEST_OVER;
                break;
        case REQUEST_READ:
        case REQUEST_OVER:
                abandon_client(r);
                r->stage = REQUEST_OVER;
                break;
        }
        request_leave(r);
}

void request_give_up(struct request *r)
{
        request_enter(r);
        if (r->stage == REQUEST_RECORD)
                request_record_over(r);
        request_leave(r);
}
