/* SPDX-License-Identifier: Apache-2.0
 *
 * call_plan: what a client does after each end of an attempt, as a table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "core/call_plan.h"
#include "core/limits.h"
#include "core/reply_codec.h"

#define PROBLEM "application/problem+json"

struct line {
        int status;
        const char *outcome; /* Idempotency-Outcome */
        enum problem_kind problem; /* PROBLEM_KINDS: none */
        bool before;         /* an earlier attempt may have been executed */
        enum call_action action;
        bool maybe;
};

static const struct line lines[] = {
        {200, NULL, PROBLEM_KINDS, false, CALL_DONE, true},
        {201, NULL, PROBLEM_KINDS, true, CALL_DONE, true},
        {204, NULL, PROBLEM_KINDS, false, CALL_DONE, true},
        {303, NULL, PROBLEM_KINDS, false, CALL_DONE, true},
        {304, NULL, PROBLEM_KINDS, false, CALL_DONE, true},
        /* elsewhere: nothing happened here */
        {301, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {307, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {308, NULL, PROBLEM_KINDS, true, CALL_STOP, false},
        /* said no */
        {400, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {402, NULL, PROBLEM_KINDS, true, CALL_REJECTED, false},
        {404, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {413, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {422, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        /* at the front door: says nothing about the attempt before */
        {401, NULL, PROBLEM_KINDS, false, CALL_REJECTED, false},
        {401, NULL, PROBLEM_KINDS, true, CALL_STOP, false},
        {403, NULL, PROBLEM_KINDS, true, CALL_STOP, false},
        /* refused for now */
        {408, NULL, PROBLEM_KINDS, false, CALL_AGAIN, false},
        {425, NULL, PROBLEM_KINDS, false, CALL_AGAIN, false},
        {429, NULL, PROBLEM_KINDS, false, CALL_AGAIN, false},
        {409, NULL, PROBLEM_KINDS, false, CALL_WAIT, true},
        {500, NULL, PROBLEM_KINDS, false, CALL_AGAIN, true},
        {502, NULL, PROBLEM_KINDS, false, CALL_AGAIN, true},
        {503, NULL, PROBLEM_KINDS, false, CALL_AGAIN, true},
        {599, NULL, PROBLEM_KINDS, false, CALL_AGAIN, true},
        {799, NULL, PROBLEM_KINDS, false, CALL_AGAIN, true},
        /* the other side says it itself */
        {500, "executed", PROBLEM_KINDS, false, CALL_DONE, true},
        {400, "executed", PROBLEM_KINDS, false, CALL_REJECTED, true},
        {500, "not-executed", PROBLEM_KINDS, false, CALL_AGAIN, false},
        {503, "Not-Executed", PROBLEM_KINDS, true, CALL_AGAIN, false},
        {400, "unknown", PROBLEM_KINDS, false, CALL_AGAIN, true},
        {409, "unknown", PROBLEM_KINDS, false, CALL_WAIT, true},
        {201, "unknown", PROBLEM_KINDS, false, CALL_DONE, true},
        {500, "nonsense", PROBLEM_KINDS, false, CALL_AGAIN, true},
        /* a semel gateway's own words */
        {409, "unknown", PROBLEM_IN_FLIGHT, false, CALL_WAIT, true},
        {409, "unknown", PROBLEM_OUTCOME_UNKNOWN, false, CALL_STOP, true},
        {422, NULL, PROBLEM_KEY_REUSED, true, CALL_REJECTED, false},
        {502, NULL, PROBLEM_UPSTREAM_UNKNOWN, false, CALL_AGAIN, true},
        {504, NULL, PROBLEM_UPSTREAM_TIMEOUT, false, CALL_AGAIN, true},
        {502, "not-executed", PROBLEM_UPSTREAM_UNREACHABLE, false, CALL_AGAIN, false},
        {503, "unknown", PROBLEM_STORE_DOWN, false, CALL_AGAIN, false},
        {503, "unknown", PROBLEM_OVERLOADED, false, CALL_AGAIN, false},
        {400, NULL, PROBLEM_KEY_MALFORMED, false, CALL_REJECTED, false},
        {413, NULL, PROBLEM_BODY_TOO_LARGE, false, CALL_REJECTED, false},
};

static void header(struct buf *b, const char *name, const char *value)
{
        assert_int_equal(reply_encode_header(b, span_str(name), span_str(value)), BUF_OK);
}

static void h75_each_reply_has_its_meaning(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
                const struct line *l = &lines[i];
                struct buf headers, body;
                struct call_end end = {.kind = CALL_END_REPLY, .sent = true, .status = l->status};
                buf_init(&headers, 4096);
                buf_init(&body, 4096);
                if (l->outcome)
                        header(&headers, "idempotency-OUTCOME", l->outcome);
                if (l->problem != PROBLEM_KINDS) {
                        header(&headers, "Content-Type", PROBLEM);
                        assert_int_equal(problem_format(l->problem, span_str("why, \"so\""), 0, &body),
                                         BUF_OK);
                }
                call_end_read(&end, buf_span(&headers), buf_span(&body), 0);
                struct call_verdict v = call_decide(&end, l->before);
                if (v.action != l->action || v.maybe != l->maybe)
                        fail_msg("line %zu: %d %s %d is action %d maybe %d, not %d %d", i, l->status,
                                 l->outcome ? l->outcome : "", (int)l->problem, (int)v.action,
                                 v.maybe, (int)l->action, l->maybe);
                assert_non_null(v.why);
                buf_release(&headers);
                buf_release(&body);
        }
}

static void h62_what_left_may_have_been_executed(void **state)
{
        (void)state;
        for (int kind = 0; kind < CALL_END_KINDS; kind++) {
                for (int sent = 0; sent < 2; sent++) {
                        struct call_end end = {.kind = (enum call_end_kind)kind, .sent = sent};
                        struct call_verdict v = call_decide(&end, false);
                        if (kind == CALL_END_REPLY || kind == CALL_END_REPLY_CUT)
                                continue;
                        bool stops = kind == CALL_END_UNTRUSTED || kind == CALL_END_CANNOT ||
                                     kind == CALL_END_CANCELLED;
                        assert_int_equal(v.action, stops ? CALL_STOP : CALL_AGAIN);
                        assert_int_equal(v.maybe, sent);
                }
        }
}

static void h31_a_reply_that_was_not_kept_is_what_it_was(void **state)
{
        (void)state;
        static const struct {
                int original;
                enum call_action action;
        } cases[] = {{201, CALL_DONE}, {404, CALL_REJECTED}, {500, CALL_DONE}, {0, CALL_DONE}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct buf headers, body;
                struct call_end end = {.kind = CALL_END_REPLY, .sent = true, .status = 409};
                buf_init(&headers, 4096);
                buf_init(&body, 4096);
                header(&headers, "Content-Type", PROBLEM);
                assert_int_equal(problem_format(PROBLEM_REPLY_NOT_KEPT,
                                                span_str(",\"original_status\":400"), cases[i].original,
                                                &body),
                                 BUF_OK);
                call_end_read(&end, buf_span(&headers), buf_span(&body), 0);
                assert_int_equal(end.original_status, cases[i].original);
                assert_int_equal(call_decide(&end, true).action, cases[i].action);
                buf_release(&headers);
                buf_release(&body);
        }
}

static void a_problem_of_a_newer_gateway_says_itself_whether_to_retry(void **state)
{
        (void)state;
        static const char again[] = "{\"type\":\"" PROBLEM_TYPE_BASE "new\",\"retryable\":true}";
        static const char never[] = "{\"type\":\"" PROBLEM_TYPE_BASE "new\",\"retryable\":false}";
        static const char other[] = "{\"type\":\"https://other/new\",\"retryable\":true}";
        const struct {
                const char *body;
                int status;
                enum call_action action;
        } cases[] = {{again, 403, CALL_AGAIN},    {never, 503, CALL_STOP}, {never, 400, CALL_REJECTED},
                     {other, 400, CALL_REJECTED}, {other, 503, CALL_AGAIN}};
        struct buf headers;
        buf_init(&headers, 4096);
        header(&headers, "Content-Type", PROBLEM "; charset=utf-8");
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct call_end end = {
                        .kind = CALL_END_REPLY, .sent = true, .status = cases[i].status};
                call_end_read(&end, buf_span(&headers), span_str(cases[i].body), 0);
                assert_int_equal(call_decide(&end, false).action, cases[i].action);
        }
        buf_release(&headers);
}

static int64_t retry_after(const char *value, const char *date)
{
        struct buf headers;
        struct call_end end = {.kind = CALL_END_REPLY, .sent = true, .status = 503};
        buf_init(&headers, 4096);
        header(&headers, "Retry-After", value);
        if (date)
                header(&headers, "Date", date);
        call_end_read(&end, buf_span(&headers), span_of(NULL, 0), 784111777 * SECOND);
        buf_release(&headers);
        return end.retry_after_us;
}

static void retry_after_is_seconds_or_a_date(void **state)
{
        (void)state;
        assert_int_equal(retry_after("0", NULL), 0);
        assert_int_equal(retry_after("120", NULL), 120 * SECOND);
        assert_true(retry_after("999999999999999999999999", NULL) > LIMIT_LEASE_US);
        assert_int_equal(retry_after("-1", NULL), -1);
        assert_int_equal(retry_after("1.5", NULL), -1);
        assert_int_equal(retry_after("", NULL), -1);
        assert_int_equal(retry_after("soon", NULL), -1);
        /* by our clock, and by the sender's own where it says its time */
        assert_int_equal(retry_after("Sun, 06 Nov 1994 08:49:40 GMT", NULL), 3 * SECOND);
        assert_int_equal(retry_after("Sun, 06 Nov 1994 08:49:30 GMT", NULL), 0);
        assert_int_equal(retry_after("Sun, 06 Nov 1994 08:49:40 GMT",
                                     "Sun, 06 Nov 1994 08:49:39 GMT"),
                         SECOND);
}

static void dates_have_three_forms(void **state)
{
        (void)state;
        static const char *const good[] = {"Sun, 06 Nov 1994 08:49:37 GMT",
                                           "Sunday, 06-Nov-94 08:49:37 GMT",
                                           "Sun Nov  6 08:49:37 1994"};
        static const char *const bad[] = {
                "", " ,", "06 Nov 1994", "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:4x:37 GMT",
                "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Nox 1994 08:49:37 GMT", "94 08:49:37 Nov"};
        int64_t s = 0;
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
                assert_true(http_date_parse(span_str(good[i]), &s));
                assert_int_equal(s, 784111777);
        }
        assert_true(http_date_parse(span_str("Tue, 29 Feb 2028 00:00:00 GMT"), &s));
        assert_int_equal(s, 1835395200);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                if (http_date_parse(span_str(bad[i]), &s))
                        fail_msg("\"%s\" is a date: %lld", bad[i], (long long)s);
}

static void waits_double_up_to_five_seconds_with_full_jitter(void **state)
{
        (void)state;
        const int64_t far = 3600 * SECOND;
        static const int64_t most_ms[] = {200, 400, 800, 1600, 3200, 5000, 5000};
        for (int n = 1; n <= 7; n++) {
                int64_t least = INT64_MAX, most = 0;
                for (uint64_t r = 0; r < 6000; r++) {
                        int64_t w = call_wait_us(n, r * 1000, -1, far, 10 * SECOND);
                        least = w < least ? w : least;
                        most = w > most ? w : most;
                }
                assert_int_equal(least, 0);
                assert_in_range(most, (uint64_t)((most_ms[n - 1] - 1) * MS),
                                (uint64_t)(most_ms[n - 1] * MS));
        }
        assert_in_range(call_wait_us(1000000, UINT64_MAX, -1, far, SECOND), 0, 5 * SECOND);
}

static void waits_leave_room_for_the_last_attempt(void **state)
{
        (void)state;
        /* asked for 2 s, and a little more, so that not all come at once */
        assert_int_equal(call_wait_us(1, 0, 2 * SECOND, 60 * SECOND, 10 * SECOND), 2 * SECOND);
        assert_in_range(call_wait_us(1, 12345678, 2 * SECOND, 60 * SECOND, 10 * SECOND), 2 * SECOND,
                        2 * SECOND + 200 * MS);
        /* asked for more than there is */
        assert_int_equal(call_wait_us(1, 0, 3600 * SECOND, 60 * SECOND, 10 * SECOND), 50 * SECOND);
        assert_int_equal(call_wait_us(1, 0, 3600 * SECOND, 6 * SECOND, 10 * SECOND), 3 * SECOND);
        assert_int_equal(call_wait_us(1, 0, -1, 99 * MS, SECOND), -1);
        assert_int_equal(call_wait_us(1, 0, -1, -SECOND, SECOND), -1);
}

static void callers_may_not_add_what_is_the_calls(void **state)
{
        (void)state;
        static const char *const no[] = {"idempotency-key", "HOST", "content-length",
                                         "Transfer-Encoding", "expect", "connection"};
        for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
                assert_false(call_header_allowed(span_str(no[i])));
        assert_true(call_header_allowed(span_str("Authorization")));
        assert_true(call_token_ok(span_str("X-a_b.c~1")));
        assert_false(call_token_ok(span_str("a b")));
        assert_false(call_token_ok(span_str("")));
        assert_false(call_token_ok(span_str("a:")));
        assert_false(call_token_ok(span_of("a\0b", 3)));
        assert_true(call_value_ok(span_str("caf\xc3\xa9\t1")));
        assert_false(call_value_ok(span_str("a\r\nX: y")));
        assert_false(call_value_ok(span_of("a\0", 2)));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(h75_each_reply_has_its_meaning),
                cmocka_unit_test(h62_what_left_may_have_been_executed),
                cmocka_unit_test(h31_a_reply_that_was_not_kept_is_what_it_was),
                cmocka_unit_test(a_problem_of_a_newer_gateway_says_itself_whether_to_retry),
                cmocka_unit_test(retry_after_is_seconds_or_a_date),
                cmocka_unit_test(dates_have_three_forms),
                cmocka_unit_test(waits_double_up_to_five_seconds_with_full_jitter),
                cmocka_unit_test(waits_leave_room_for_the_last_attempt),
                cmocka_unit_test(callers_may_not_add_what_is_the_calls),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
