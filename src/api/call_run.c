/* SPDX-License-Identifier: Apache-2.0
 *
 * call_run: semel_call_run(): attempts until there is a final reply, or the deadline comes.
 *
 *     claim (with a store) -> attempt -> decide -> wait -> attempt ... -> keep the reply
 *
 * What each end of an attempt means is core/call_plan.h's; here is only the loop.
 */
#include <stdio.h>
#include <sys/eventfd.h>

#include "api/call_object.h"
#include "api/reply_object.h"
#include "sys/clock.h"
#include "sys/random.h"

enum {
        LEASE_MARGIN_MS = 1000,      /* of the lease, when an attempt is over at the latest */
        WAIT_SLICE_US = 2000 * 1000, /* a lease is looked at so often while we wait */
        HEADERS_MAX = LIMIT_CALL_HEADERS + 3,
};

struct call_run {
        struct semel_call *call;
        struct call_request req;
        const char *headers[HEADERS_MAX];
        struct call_reply reply; /* of the attempt under way */
        struct call_hold hold;
        int64_t begun_us, deadline_us;
        int tries;
        bool maybe, sent; /* of any attempt: it may have been executed; a byte may have left */
        char what[CALL_TEXT_BYTES_MAX + 160]; /* about the last attempt */
        struct call_verdict verdict;
        struct call_end end;
};

static void make_request(struct call_run *run)
{
        struct semel_call *call = run->call;
        size_t n = 0;
        run->headers[n++] = call->key_line;
        for (size_t i = 0; i < call->header_count; i++)
                run->headers[n++] = call->headers[i];
        run->headers[n++] = "Expect:"; /* libcurl adds it to big bodies, and a form's type to all */
        if (!call->added_type)
                run->headers[n++] = call->type_line ? call->type_line : "Content-Type:";
        run->req = (struct call_request){.method = call->method,
                                         .url = call->url,
                                         .body = buf_span(&call->body),
                                         .has_body = call->has_body,
                                         .headers = run->headers,
                                         .header_count = n,
                                         .ca_file = call->ca_file,
                                         .proxy = call->proxy,
                                         .cancel_fd = call->cancel_fd};
}

/* The reply that just came is the last one now. */
static void keep_reply(struct call_run *run)
{
        struct semel_reply *last = run->call->last;
        struct buf headers = last->headers, body = last->body;
        last->status = run->reply.status;
        last->tombstone = run->end.kind == CALL_END_REPLY_CUT;
        last->replayed = false;
        last->header_count = run->reply.header_count;
        last->headers = run->reply.headers;
        last->body = run->reply.body;
        run->reply.headers = headers;
        run->reply.body = body;
        if (last->tombstone)
                buf_clear(&last->body);
}

/* One line about the attempt. */
static void describe(struct call_run *run, const char *text)
{
        const char *why = run->verdict.why;
        bool replied = run->end.kind == CALL_END_REPLY || run->end.kind == CALL_END_REPLY_CUT;
        if (!replied)
                (void)snprintf(run->what, sizeof run->what, "%s", text);
        else
                (void)snprintf(run->what, sizeof run->what, "status %d%s%s%s%s%s", run->end.status,
                               run->end.replayed ? " (a replay)" : "", *why ? ": " : "", why,
                               *text ? "; " : "", text);
}

static void attempt(struct call_run *run, int64_t timeout_us)
{
        char text[CALL_TEXT_BYTES_MAX];
        call_attempt(&run->req, timeout_us, &run->reply, &run->end, text);
        run->tries = ++run->call->attempts;
        if (run->end.kind == CALL_END_REPLY || run->end.kind == CALL_END_REPLY_CUT) {
                call_end_read(&run->end, buf_span(&run->reply.headers), buf_span(&run->reply.body),
                              clock_wall_us());
                keep_reply(run);
        }
        run->verdict = call_decide(&run->end, run->maybe);
        describe(run, text);
        run->maybe |= run->verdict.maybe;
        run->sent |= run->end.sent;
}

static void tell(const struct call_run *run, int64_t took_us, int64_t wait_us)
{
        const struct semel_call *call = run->call;
        bool replied = run->end.kind == CALL_END_REPLY || run->end.kind == CALL_END_REPLY_CUT;
        if (!call->on_attempt)
                return;
        semel_call_attempt about = {.number = run->tries,
                                    .status = replied ? run->end.status : 0,
                                    .sent = run->end.sent,
                                    .took_ms = took_us / MS,
                                    .wait_ms = wait_us < 0 ? -1 : wait_us / MS,
                                    .what = run->what};
        call->on_attempt(call->on_attempt_arg, &about);
}

/* How long to wait before the next attempt; -1: there is none. */
static int64_t next_wait_us(const struct call_run *run)
{
        const struct semel_call *call = run->call;
        uint64_t random = 0;
        if (run->verdict.action != CALL_AGAIN && run->verdict.action != CALL_WAIT)
                return -1;
        if (call->attempts_max > 0 && run->tries >= call->attempts_max)
                return -1;
        (void)random_bytes(&random, sizeof random); /* none: no jitter, and no harm */
        return call_wait_us(run->tries, random, run->end.retry_after_us,
                            run->deadline_us - clock_boot_us(), call->attempt_ms * MS);
}

/* SEMEL_OK: waited.  Else the claim is no longer ours, or it was cancelled (SEMEL_ERR_PEER_DOWN). */
static semel_code wait_holding(struct call_run *run, int64_t us, semel_error *err)
{
        const int64_t until_us = clock_boot_us() + us;
        for (;;) {
                int64_t left_us = until_us - clock_boot_us();
                if (left_us <= 0)
                        return SEMEL_OK;
                if (call_sleep(run->call, left_us < WAIT_SLICE_US ? left_us : WAIT_SLICE_US))
                        return err_set(err, SEMEL_ERR_PEER_DOWN, "cancelled");
                /* Once: whether the lease is long enough is asked before the attempt. */
                semel_code code =
                        call_hold_keep(run->call, &run->hold, 2 * WAIT_SLICE_US / MS, 0, err);
                if (code == SEMEL_ERR_LOST)
                        return code;
        }
}

/* The longest that an attempt may take now. */
static int64_t attempt_us(const struct call_run *run)
{
        int64_t left_us = run->deadline_us - clock_boot_us();
        return run->call->attempt_ms * MS < left_us ? run->call->attempt_ms * MS : left_us;
}

/* The deadline is over.  SEMEL_OK: the last attempt says what is known. */
static semel_code over(const struct call_run *run, semel_error *err)
{
        return run->tries > 0 ? SEMEL_OK
                              : err_set(err, SEMEL_ERR_BUSY,
                                        "the deadline was over before the first attempt");
}

/* Attempts until one is final or none fits.  SEMEL_OK: run->verdict says how it ended.  Else err
 * says why it stopped between two attempts. */
static semel_code attempts(struct call_run *run, semel_error *err)
{
        struct semel_call *call = run->call;
        for (;;) {
                int64_t most_us = attempt_us(run);
                if (most_us <= 0)
                        return over(run, err);
                if (call_sleep(call, 0))
                        return err_set(err, SEMEL_ERR_PEER_DOWN, "cancelled");
                semel_code code = call_hold_keep(call, &run->hold, most_us / MS + LEASE_MARGIN_MS,
                                                 run->deadline_us, err);
                if (code != SEMEL_OK)
                        return code;
                most_us = attempt_us(run); /* the store has taken its time */
                if (most_us <= 0)
                        return over(run, err);
                int64_t before_us = clock_boot_us();
                attempt(run, most_us);
                int64_t after_us = clock_boot_us(), wait_us = next_wait_us(run);
                tell(run, after_us - before_us, wait_us);
                if (wait_us < 0)
                        return SEMEL_OK;
                code = wait_holding(run, wait_us, err);
                if (code != SEMEL_OK)
                        return code;
        }
}

/* -- the end ------------------------------------------------------------------------------------ */

/* No final reply. */
static semel_call_result give_up(const struct call_run *run, const semel_error *stopped,
                                 semel_error *err)
{
        double s = (double)(clock_boot_us() - run->begun_us) / (double)SECOND;
        const char *what = stopped->code != SEMEL_OK ? stopped->text : run->what;
        if (run->maybe) {
                (void)err_set(err, SEMEL_ERR_UNKNOWN,
                              "nobody knows whether it happened, after %d attempts in %.1f s "
                              "(%.240s); call again with the same key and the same request",
                              run->tries, s, what);
                return SEMEL_CALL_UNKNOWN;
        }
        if (stopped->code == SEMEL_ERR_LOST) {
                (void)err_set(err, SEMEL_ERR_BUSY,
                              "another process has taken this call over; nothing was sent here");
                return SEMEL_CALL_IN_FLIGHT;
        }
        semel_code code = SEMEL_ERR_PEER_DOWN;
        if (run->tries > 0 && run->end.kind == CALL_END_UNTRUSTED)
                code = SEMEL_ERR_UNSAFE;
        else if (run->tries > 0 && run->end.kind == CALL_END_CANNOT)
                code = SEMEL_ERR_ARGUMENT;
        else if (stopped->code != SEMEL_OK)
                code = stopped->code;
        (void)err_set(err, code, "nothing happened: %s in %d attempts in %.1f s (%.240s)",
                      run->sent ? "it was refused each time" : "nothing was sent", run->tries, s,
                      what);
        return SEMEL_CALL_ERROR;
}

static semel_call_result conclude(struct call_run *run, const semel_error *stopped,
                                  semel_error *err)
{
        semel_call_result result;
        bool forget = false;
        struct semel_error kept = {0};
        if (stopped->code == SEMEL_OK && run->verdict.action == CALL_DONE) {
                result = SEMEL_CALL_DONE;
        } else if (stopped->code == SEMEL_OK && run->verdict.action == CALL_REJECTED) {
                result = SEMEL_CALL_REJECTED;
                forget = run->verdict.front_door; /* 401: with another password it may be let in */
                (void)err_set(err, SEMEL_ERR_REFUSED, "rejected: %s", run->what);
        } else {
                result = give_up(run, stopped, err);
        }
        if (call_hold_end(run->call, &run->hold, result, forget, run->deadline_us, &kept) != SEMEL_OK &&
            result == SEMEL_CALL_DONE)
                (void)err_set(err, kept.code,
                              "it is done, but the store could not keep the reply: a later call "
                              "asks the other side again (%.300s)",
                              kept.text);
        return result;
}

static void swap_replies(struct semel_reply *a, struct semel_reply *b)
{
        struct semel_reply t = *a;
        *a = *b;
        *b = t;
}

semel_call_result semel_call_run(semel_call *call, semel_reply *reply, semel_error *err)
{
        struct call_run run = {.call = call, .begun_us = clock_boot_us()};
        struct semel_error stopped = {0};
        semel_call_result result;
        uint64_t drained;
        err_clear(err);
        run.deadline_us = run.begun_us + call->deadline_ms * MS;
        call->attempts = 0;
        semel_reply_clear(call->last);
        call_reply_init(&run.reply);
        make_request(&run);
        if (call_hold_begin(call, &run.hold, &result, err)) {
                run.maybe = call->maybe || run.hold.earlier;
                if (attempts(&run, &stopped) == SEMEL_OK)
                        err_clear(&stopped); /* the store complained, and it went on */
                result = conclude(&run, &stopped, err);
                /* For the next run: only a final no says that no attempt had an effect. */
                call->maybe = run.maybe && result != SEMEL_CALL_REJECTED;
        }
        call_reply_release(&run.reply);
        (void)eventfd_read(call->cancel_fd, &drained);
        if (reply)
                swap_replies(reply, call->last);
        return result;
}
