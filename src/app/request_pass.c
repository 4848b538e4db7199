/* SPDX-License-Identifier: Apache-2.0
 *
 * request_pass: requests that are not claimed, streamed both ways and never buffered.  Nothing is
 * known of them, so nothing outlives the client.
 */
#include "app/request.h"

static void pass_over(struct request *r)
{
        r->stage = REQUEST_OVER;
        r->ex = NULL;
        deadline_clear(&r->timeout);
}

static void pass_failed(struct request *r, enum problem_kind kind)
{
        r->call_busy = false;
        request_asked(r);
        if (kind == PROBLEM_OVERLOADED)
                r->outcome = OUTCOME_OVERLOADED;
        deadline_clear(&r->timeout);
        if (!r->ex) {
                r->stage = REQUEST_OVER;
        } else if (r->streaming) { /* the head has left: the client sees that it is cut */
                struct http_exchange *ex = r->ex;
                pass_over(r);
                http_exchange_abort(ex);
        } else {
                answer_problem(r, kind, "", problem_entry(kind)->retryable ? 1 : 0);
        }
}

/* -- events of the upstream --------------------------------------------------------------------- */

static void on_ready(struct upstream_call *call)
{
        struct request *r = call->app;
        struct http_header headers[REQUEST_HEADERS_MAX];
        char scratch[REQUEST_SCRATCH_BYTES];
        size_t n = headers_to_upstream(r, headers, scratch, sizeof scratch);
        request_enter(r);
        if (n == 0) {
                upstream_call_cancel(call);
                pass_failed(r, PROBLEM_UPSTREAM_UNREACHABLE);
                request_leave(r);
                return;
        }
        r->dispatched = true;
        r->dispatched_us = loop_now_us(r->w->loop);
        call->once = r->request_length != UPSTREAM_NO_BODY; /* its pieces are not kept */
        if (!upstream_head(call, r->method, r->path, headers, n, r->request_length)) {
                request_leave(r);
                return;
        }
        if (r->body_whole) {
                (void)upstream_end(call);
                request_leave(r);
                return;
        }
        http_exchange_continue(r->ex);
        http_exchange_resume(r->ex); /* what came along with the head is sent with it */
        if (r->call_busy)
                (void)upstream_flush(call);
        request_time_upstream(r);
        request_leave(r);
}

static void on_interim(struct upstream_call *call, const struct http1_head *head)
{
        (void)call;
        (void)head;
}

static void on_head(struct upstream_call *call, const struct http1_head *head)
{
        struct request *r = call->app;
        request_enter(r);
        bool none = head->framing == HTTP1_NONE && !span_eq(r->method, span_str("HEAD"));
        r->reply_length = head->has_length ? (int64_t)head->content_length
                          : none           ? 0
                                           : HTTP_REPLY_STREAM; /* HEAD: it was not said */
        if (headers_from_upstream(r, head) == BUF_OK && answer_upstream_head(r, r->reply_length)) {
                r->streaming = true;
                request_leave(r);
                return;
        }
        upstream_call_cancel(call);
        pass_failed(r, PROBLEM_UPSTREAM_UNKNOWN);
        request_leave(r);
}

static void on_body(struct upstream_call *call, struct span piece)
{
        struct request *r = call->app;
        request_enter(r);
        r->reply_bytes += piece.n;
        if (r->ex && http_reply_body(r->ex, piece) && http_reply_is_slow(r->ex))
                upstream_pause(call);
        request_time_upstream(r);
        request_leave(r);
}

static void on_flush(struct upstream_call *call)
{
        struct request *r = call->app;
        request_enter(r);
        if (r->ex && r->streaming)
                (void)http_reply_flush(r->ex);
        request_leave(r);
}

static void on_end(struct upstream_call *call)
{
        struct request *r = call->app;
        struct http_exchange *ex = r->ex;
        request_enter(r);
        r->call_busy = false;
        r->upstream_us = loop_now_us(r->w->loop) - r->dispatched_us;
        metrics_observe(&r->w->gw->metrics, HISTOGRAM_UPSTREAM, r->upstream_us);
        pass_over(r);
        if (ex)
                http_reply_end(ex);
        request_leave(r);
}

static void on_failed(struct upstream_call *call, enum upstream_failure why, const char *text)
{
        struct request *r = call->app;
        request_enter(r);
        (void)text;
        if (why == UPSTREAM_BUSY)
                pass_failed(r, PROBLEM_OVERLOADED);
        else
                pass_failed(r, call->sent == 0 ? PROBLEM_UPSTREAM_UNREACHABLE
                                               : PROBLEM_UPSTREAM_UNKNOWN);
        request_leave(r);
}

static void on_drained(struct upstream_call *call)
{
        struct request *r = call->app;
        request_enter(r);
        if (r->ex && http_exchange_is_paused(r->ex)) {
                http_exchange_resume(r->ex);
                request_time_upstream(r);
        }
        request_leave(r);
}

static const struct upstream_handler pass_handler = {
        .ready = on_ready,
        .interim = on_interim,
        .head = on_head,
        .body = on_body,
        .flush = on_flush,
        .end = on_end,
        .failed = on_failed,
        .drained = on_drained,
};

/* -- events of the client ------------------------------------------------------------------------- */

void request_pass(struct request *r)
{
        struct gateway *gw = r->w->gw;
        if (atomic_load(&gw->buffered_bytes) > gw->config->buffered_bytes_max) {
                r->outcome = OUTCOME_OVERLOADED;
                answer_problem(r, PROBLEM_OVERLOADED, "", 1);
                return;
        }
        r->stage = REQUEST_PASS;
        r->call_busy = true;
        upstream_call_start(r->w->up, &r->call, &pass_handler, r);
        request_time_upstream(r);
        if (r->request_length != UPSTREAM_NO_BODY)
                http_exchange_pause(r->ex); /* until there is a connection to send it on */
}

void request_pass_body(struct request *r, struct span piece)
{
        if (!r->call_busy)
                return; /* answered early: the rest is dropped */
        if (upstream_body(&r->call, piece) && upstream_flush(&r->call) &&
            upstream_is_slow(&r->call))
                http_exchange_pause(r->ex);
        request_time_upstream(r);
}

void request_pass_end(struct request *r)
{
        if (!r->call_busy || !r->dispatched)
                return;
        (void)upstream_end(&r->call);
        request_time_upstream(r);
}

void request_pass_gone(struct request *r)
{
        if (r->call_busy)
                upstream_call_cancel(&r->call);
        r->call_busy = false;
        pass_over(r);
}

void request_pass_drained(struct request *r)
{
        if (!r->call_busy || !upstream_is_paused(&r->call))
                return;
        upstream_resume(&r->call);
        request_time_upstream(r);
}

void request_pass_timeout(struct request *r)
{
        upstream_call_cancel(&r->call);
        pass_failed(r, r->call.sent == 0 ? PROBLEM_UPSTREAM_UNREACHABLE : PROBLEM_UPSTREAM_TIMEOUT);
}
