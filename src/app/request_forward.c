/* SPDX-License-Identifier: Apache-2.0
 *
 * request_forward: the upstream is asked, what it answers is classified, and the outcome is
 * written before anybody hears of it.
 */
#include "app/request.h"
#include "sys/clock.h"

enum { PIECE_BYTES = 256 * 1024 };
enum { RECORD_PAUSE_US = 100 * 1000, AGAIN_FIRST_US = 200 * 1000, AGAIN_MAX_US = 2000 * 1000 };
#define RECORD_CALL_US (5 * SECOND)

static void tell(struct request *r);

/* -- the record -------------------------------------------------------------------------------- */

static void record_done(struct store_op *op);

static void record_submit(struct request *r)
{
        deadline_clear(&r->timeout); /* of the call, or of the next try: this is it */
        store_op_release(&r->op);
        store_op_init(&r->op, STORE_WRITE);
        r->op.in.write.write = (struct command_write){.kind = r->write_kind,
                                                      .id = r->claim.id,
                                                      .token = r->token,
                                                      .attempt = r->claim.attempt};
        bool tombstone = r->tell == TELL_STREAM || !r->policy->store_body;
        r->op.in.write.reply = (struct store_reply){
                .status = r->status,
                .flags = tombstone ? STORE_REPLY_TOMBSTONE : 0,
                .headers = buf_span(&r->reply_headers),
                .body = tombstone ? span_of(NULL, 0) : buf_span(&r->reply_body)};
        request_submit(r, RECORD_CALL_US, record_done);
}

/* What would be lost when the lease is over: a reply, and that nothing happened.  That nobody knows comes by
 * itself then. */
static bool must_be_written(const struct request *r)
{
        return r->write_kind == COMMAND_COMPLETE || r->write_kind == COMMAND_RELEASE_NOT_EXECUTED;
}

static const char *not_written(const struct request *r)
{
        return r->write_kind == COMMAND_COMPLETE ? "reply-not-recorded" : "release-not-recorded";
}

void request_record(struct request *r, enum command_write_kind kind, enum request_tell tell_what)
{
        r->stage = REQUEST_RECORD;
        r->write_kind = kind;
        r->tell = tell_what;
        r->record_until_us = loop_now_us(r->w->loop) + RECORD_CALL_US;
        if (must_be_written(r) && r->deadline_us > r->record_until_us)
                r->record_until_us = r->deadline_us;
        record_submit(r);
}

void request_record_again(struct request *r)
{
        record_submit(r);
}

/* What other callers of this key may hear of it from memory. */
static void publish(struct request *r, bool kept)
{
        struct hot *hot = r->w->gw->hot;
        int64_t until_us = loop_now_us(r->w->loop) +
                           (r->claim.retention_us < SECOND ? r->claim.retention_us : SECOND);
        const struct store_reply *rep = &r->op.in.write.reply;
        if (kept && r->write_kind == COMMAND_COMPLETE)
                hot_finished(hot, &r->claim.id, &r->claim.fingerprint, &r->claim.attempt, until_us,
                             rep->status, (rep->flags & STORE_REPLY_TOMBSTONE) != 0, rep->headers,
                             rep->body);
        else
                hot_ended(hot, &r->claim.id, &r->claim.attempt);
}

static void record_done(struct store_op *op)
{
        struct request *r = op->arg;
        struct metrics *m = &r->w->gw->metrics;
        bool written = op->err.code == SEMEL_OK;
        bool lost = written && op->out.write.outcome == COMMAND_LOST;
        request_enter(r);
        r->op_busy = false;
        atomic_fetch_sub(&m->store_queue, 1);
        if (!written && must_be_written(r) && r->stage == REQUEST_RECORD &&
            loop_now_us(r->w->loop) < r->record_until_us) {
                request_timeout_in(r, RECORD_PAUSE_US);
                request_leave(r);
                return;
        }
        if (lost)
                metrics_count(m, COUNTER_LOST);
        if (written && op->out.write.self_resolved)
                metrics_count(m, COUNTER_SELF_RESOLVED);
        if (!written && must_be_written(r)) {
                metrics_count(m, COUNTER_UNRECORDED);
                r->warning = not_written(r);
        }
        if (lost && r->write_kind == COMMAND_COMPLETE)
                r->warning = "claim-lost";
        publish(r, written && !lost);
        r->holding = false;
        if (r->stage == REQUEST_RECORD)
                tell(r);
        request_leave(r);
}

/* -- telling ------------------------------------------------------------------------------------- */

static void stream_end(struct request *r, bool whole)
{
        struct http_exchange *ex = r->ex;
        r->ex = NULL;
        r->stage = REQUEST_OVER;
        deadline_clear(&r->timeout);
        if (!ex)
                return;
        if (whole)
                http_reply_end(ex);
        else
                http_exchange_abort(ex); /* the client sees that it is cut */
}

static bool stream_piece(struct request *r, struct span piece)
{
        r->reply_bytes += piece.n;
        if (!r->ex)
                return true;
        if (!http_reply_body(r->ex, piece))
                return false;
        if (http_reply_is_slow(r->ex) && r->call_busy)
                upstream_pause(&r->call);
        return true;
}

/* The record says that it ran: pass on what comes, as it comes. */
static void stream_begin(struct request *r)
{
        r->stage = REQUEST_STREAM;
        if (r->ex && (!answer_upstream_head(r, r->reply_length) ||
                      !stream_piece(r, buf_span(&r->reply_body)))) {
                if (r->call_busy)
                        upstream_call_cancel(&r->call);
                r->call_busy = false;
                stream_end(r, false);
                return;
        }
        buf_release(&r->reply_body);
        if (r->reply_cut || (r->reply_whole && !r->call_busy)) {
                stream_end(r, r->reply_whole);
                return;
        }
        if (!r->ex || !http_reply_is_slow(r->ex))
                upstream_resume(&r->call);
        request_time_upstream(r);
}

void request_stream_drained(struct request *r)
{
        if (!r->call_busy || !upstream_is_paused(&r->call))
                return;
        upstream_resume(&r->call);
        request_time_upstream(r);
}

static void tell(struct request *r)
{
        switch (r->tell) {
        case TELL_UPSTREAM_REPLY:
                answer_upstream(r);
                break;
        case TELL_PROBLEM:
                answer_problem(r, r->problem, "",
                               problem_entry(r->problem)->retryable ||
                                               r->claim.policy.retry || r->claim.policy.idempotent
                                       ? 1
                                       : 0);
                break;
        case TELL_STREAM:
                stream_begin(r);
                break;
        case TELL_NOTHING:
                r->stage = REQUEST_OVER;
                break;
        }
}

void request_record_over(struct request *r)
{
        if (must_be_written(r))
                r->warning = not_written(r);
        tell(r);
}

/* -- what became of the call ---------------------------------------------------------------------- */

static void conclude(struct request *r, enum command_write_kind kind, enum request_tell tell_what)
{
        if (r->unprotected) { /* nothing was claimed: nothing to write */
                r->tell = tell_what;
                tell(r);
        } else {
                request_record(r, kind, tell_what);
        }
}

/* The call has ended, and its time with it.  While a record is made, the deadline is the record's. */
static void call_over(struct request *r)
{
        r->call_busy = false;
        if (r->stage != REQUEST_RECORD)
                deadline_clear(&r->timeout);
}

static void call_failed(struct request *r, enum problem_kind problem)
{
        call_over(r);
        request_asked(r);
        if (r->stage == REQUEST_STREAM) { /* recorded already: it ran, its reply was cut */
                stream_end(r, false);
                return;
        }
        if (r->stage == REQUEST_RECORD) { /* the record of a stream is on its way */
                r->reply_cut = true;
                return;
        }
        if (r->call.sent == 0 && !r->maybe_executed) {
                bool busy = problem == PROBLEM_OVERLOADED;
                request_set_outcome(r, busy ? OUTCOME_OVERLOADED : OUTCOME_REFUSED);
                r->problem = busy ? problem : PROBLEM_UPSTREAM_UNREACHABLE;
                conclude(r, COMMAND_RELEASE_NOT_EXECUTED, TELL_PROBLEM);
        } else {
                request_set_outcome(r, OUTCOME_LEFT_UNKNOWN);
                r->problem = problem == PROBLEM_OVERLOADED ? PROBLEM_UPSTREAM_UNKNOWN : problem;
                conclude(r, COMMAND_MARK_UNKNOWN, TELL_PROBLEM);
        }
}

/* An idempotent upstream is still running the first one: ask again, with the same key. */
static void ask_again(struct request *r)
{
        int64_t now_us = loop_now_us(r->w->loop);
        int64_t pause_us = r->pause_us ? r->pause_us : AGAIN_FIRST_US;
        r->pause_us = pause_us * 2 < AGAIN_MAX_US ? pause_us * 2 : AGAIN_MAX_US;
        r->maybe_executed = true;
        buf_clear(&r->reply_body);
        if (now_us + pause_us >= r->ask_until_us || atomic_load(&r->w->gw->draining) || !r->ex) {
                request_set_outcome(r, OUTCOME_IN_FLIGHT);
                r->problem = PROBLEM_IN_FLIGHT;
                conclude(r, COMMAND_MARK_UNKNOWN, TELL_PROBLEM);
                return;
        }
        r->stage = REQUEST_WAIT;
        request_timeout_in(r, pause_us);
}

static void reply_whole(struct request *r)
{
        switch (r->class) {
        case CLASS_STORED:
                request_set_outcome(r, r->unprotected ? OUTCOME_PASSED : OUTCOME_RAN);
                conclude(r, COMMAND_COMPLETE, TELL_UPSTREAM_REPLY);
                break;
        case CLASS_RELEASED:
                request_set_outcome(r, OUTCOME_REFUSED);
                conclude(r, COMMAND_RELEASE_NOT_EXECUTED, TELL_UPSTREAM_REPLY);
                break;
        case CLASS_UNKNOWN:
                request_set_outcome(r, OUTCOME_LEFT_UNKNOWN);
                r->warning = "outcome-unknown";
                conclude(r, COMMAND_MARK_UNKNOWN, TELL_UPSTREAM_REPLY);
                break;
        case CLASS_WAIT:
                ask_again(r);
                break;
        }
}

/* Too large to keep, endless, or not to be kept: the record comes first, then what comes. */
static void begin_streaming(struct request *r)
{
        upstream_pause(&r->call);
        r->streaming = true;
        switch (r->class) {
        case CLASS_STORED:
                request_set_outcome(r, r->unprotected ? OUTCOME_PASSED : OUTCOME_RAN);
                conclude(r, COMMAND_COMPLETE, TELL_STREAM);
                break;
        case CLASS_RELEASED:
                request_set_outcome(r, OUTCOME_REFUSED);
                conclude(r, COMMAND_RELEASE_NOT_EXECUTED, TELL_STREAM);
                break;
        case CLASS_UNKNOWN:
        case CLASS_WAIT: /* a 409 of that size is no "still running" */
                request_set_outcome(r, OUTCOME_LEFT_UNKNOWN);
                r->warning = "outcome-unknown";
                conclude(r, COMMAND_MARK_UNKNOWN, TELL_STREAM);
                break;
        }
}

/* -- events of the upstream -------------------------------------------------------------------------- */

/* As much of the body as the upstream takes; the rest at `drained`. */
static void send_body(struct request *r)
{
        while (r->body_sent < r->body.n && !upstream_is_slow(&r->call)) {
                size_t n = r->body.n - r->body_sent;
                if (n > PIECE_BYTES)
                        n = PIECE_BYTES;
                if (!upstream_body(&r->call, span_of(r->body.p + r->body_sent, n)))
                        return; /* `failed` follows */
                r->body_sent += n;
        }
        if (r->body_sent == r->body.n && !r->call.request_done)
                (void)upstream_end(&r->call);
}

static void on_ready(struct upstream_call *call)
{
        struct request *r = call->app;
        struct http_header headers[REQUEST_HEADERS_MAX];
        char scratch[REQUEST_SCRATCH_BYTES];
        int64_t now_us = clock_boot_us(); /* not the turn's: this process may have slept */
        request_enter(r);
        if (!r->ex && !r->maybe_executed)
                request_set_outcome(r, OUTCOME_GONE);
        if (!r->ex || now_us >= r->ask_until_us || (!r->unprotected && now_us >= r->deadline_us)) {
                upstream_call_cancel(call);
                call_failed(r, PROBLEM_UPSTREAM_TIMEOUT); /* nothing was sent */
                request_leave(r);
                return;
        }
        r->dispatched = true;
        r->dispatched_us = now_us;
        size_t n = headers_to_upstream(r, headers, scratch, sizeof scratch);
        if (n == 0) {
                upstream_call_cancel(call);
                call_failed(r, PROBLEM_UPSTREAM_UNKNOWN);
                request_leave(r);
                return;
        }
        r->body_sent = 0;
        if (upstream_head(call, r->method, r->path, headers, n, (int64_t)r->body.n))
                send_body(r);
        request_leave(r);
}

static void on_interim(struct upstream_call *call, const struct http1_head *head)
{
        (void)call;
        (void)head; /* 100 answers no wish of ours; 103 is advice, and may be left out */
}

static bool is_endless(const struct http1_head *head)
{
        const struct http_header *type = header_find(head->headers, head->header_count,
                                                     "Content-Type");
        static const char sse[] = "text/event-stream";
        return type && type->value.n >= sizeof sse - 1 &&
               header_name_eq(span_of(type->value.p, sizeof sse - 1), span_str(sse));
}

/* The service itself asks that nobody keeps this reply (H43). */
static bool is_secret(const struct http1_head *head)
{
        for (size_t i = 0; i < head->header_count; i++) {
                struct span rest = head->headers[i].value, token;
                if (!header_is(&head->headers[i], "Cache-Control"))
                        continue;
                while (header_token_next(&rest, &token))
                        if (header_name_eq(token, span_str("no-store")))
                                return true;
        }
        return false;
}

static void on_head(struct upstream_call *call, const struct http1_head *head)
{
        struct request *r = call->app;
        const struct http_header *said =
                header_find(head->headers, head->header_count, "Idempotency-Outcome");
        request_enter(r);
        if (headers_from_upstream(r, head) != BUF_OK) {
                upstream_call_cancel(call);
                call_failed(r, PROBLEM_UPSTREAM_UNKNOWN);
                request_leave(r);
                return;
        }
        r->class = policy_classify(r->policy, head->status, said ? said->value : span_of(NULL, 0));
        if (r->class == CLASS_RELEASED && r->maybe_executed)
                r->class = CLASS_UNKNOWN; /* this ask was refused; the one before it still runs (A5a) */
        r->reply_length = head->framing == HTTP1_LENGTH ? (int64_t)head->content_length
                          : head->framing == HTTP1_NONE ? 0
                                                        : HTTP_REPLY_STREAM;
        if (r->reply_length > r->policy->reply_body_max || is_endless(head) ||
            (r->class == CLASS_STORED && is_secret(head)))
                begin_streaming(r);
        request_leave(r);
}

static void on_body(struct upstream_call *call, struct span piece)
{
        struct request *r = call->app;
        request_enter(r);
        if (r->stage == REQUEST_STREAM) {
                if (!stream_piece(r, piece)) {
                        upstream_call_cancel(call);
                        r->call_busy = false;
                        stream_end(r, false);
                } else if (r->ex) { /* without a client it goes on for a while only */
                        request_time_upstream(r);
                }
                request_leave(r);
                return;
        }
        /* The last piece that fits is kept; what does not fit, or is more than this process may hold,
         * turns it into a stream. */
        size_t room = r->reply_body.max - r->reply_body.n;
        if (piece.n <= room && request_budget(r, piece.n) &&
            buf_append_span(&r->reply_body, piece) == BUF_OK) {
                request_leave(r);
                return;
        }
        struct buf more;
        buf_init(&more, r->reply_body.n + piece.n);
        if (buf_append_span(&more, buf_span(&r->reply_body)) != BUF_OK ||
            buf_append_span(&more, piece) != BUF_OK) {
                buf_release(&more);
                upstream_call_cancel(call);
                call_failed(r, PROBLEM_UPSTREAM_UNKNOWN);
                request_leave(r);
                return;
        }
        buf_release(&r->reply_body);
        r->reply_body = more;
        if (!r->streaming)
                begin_streaming(r);
        request_leave(r);
}

static void on_flush(struct upstream_call *call)
{
        struct request *r = call->app;
        request_enter(r);
        if (r->stage == REQUEST_STREAM && r->ex)
                (void)http_reply_flush(r->ex);
        request_leave(r);
}

static void on_end(struct upstream_call *call)
{
        struct request *r = call->app;
        request_enter(r);
        call_over(r);
        r->reply_whole = true;
        r->upstream_us = loop_now_us(r->w->loop) - r->dispatched_us;
        metrics_observe(&r->w->gw->metrics, HISTOGRAM_UPSTREAM, r->upstream_us);
        if (r->stage == REQUEST_STREAM)
                stream_end(r, true);
        else if (r->stage == REQUEST_UPSTREAM)
                reply_whole(r);
        /* REQUEST_RECORD: the record of a stream is on its way, and finds the reply whole */
        request_leave(r);
}

static void on_failed(struct upstream_call *call, enum upstream_failure why, const char *text)
{
        struct request *r = call->app;
        request_enter(r);
        (void)text;
        call_failed(r, why == UPSTREAM_BUSY ? PROBLEM_OVERLOADED : PROBLEM_UPSTREAM_UNKNOWN);
        request_leave(r);
}

static void on_drained(struct upstream_call *call)
{
        struct request *r = call->app;
        request_enter(r);
        if (r->call_busy && !call->request_done)
                send_body(r);
        request_leave(r);
}

static const struct upstream_handler forward_handler = {
        .ready = on_ready,
        .interim = on_interim,
        .head = on_head,
        .body = on_body,
        .flush = on_flush,
        .end = on_end,
        .failed = on_failed,
        .drained = on_drained,
};

void request_upstream_timeout(struct request *r)
{
        upstream_call_cancel(&r->call);
        call_failed(r, PROBLEM_UPSTREAM_TIMEOUT);
}

void request_upstream_cut(struct request *r)
{
        bool asked = r->call_busy;
        if (asked)
                upstream_call_cancel(&r->call);
        else
                r->call.sent = 0; /* between two asks */
        call_failed(r, PROBLEM_UPSTREAM_UNKNOWN);
}

void request_forward(struct request *r)
{
        int64_t now_us = loop_now_us(r->w->loop);
        r->stage = REQUEST_UPSTREAM;
        if (r->ask_until_us == 0)
                r->ask_until_us = now_us + r->policy->upstream_timeout_us;
        r->call_busy = true;
        r->reply_whole = r->reply_cut = false;
        upstream_call_start(r->w->up, &r->call, &forward_handler, r);
        request_timeout_in(r, r->ask_until_us - now_us);
}
