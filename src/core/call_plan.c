/* SPDX-License-Identifier: Apache-2.0
 *
 * call_plan: see call_plan.h.
 */
#include "core/call_plan.h"

#include <assert.h>

#include "core/http1.h"
#include "core/http_header.h"
#include "core/limits.h"
#include "core/reply_codec.h"

enum {
        BACKOFF_BASE_US = 200 * 1000,
        BACKOFF_MAX_US = 5 * 1000 * 1000,
        AFTER_MAX_S = 100 * 1000 * 1000, /* three years: any deadline comes first */
        ATTEMPT_LEAST_US = 50 * 1000, /* less time is no attempt worth the name */
};

/* -- reading a reply --------------------------------------------------------------------------- */

/* Where `want` begins in s; s.n when it is not there. */
static size_t find(struct span s, const char *want)
{
        size_t n = strlen(want);
        for (size_t i = 0; i + n <= s.n; i++)
                if (memcmp(s.p + i, want, n) == 0)
                        return i;
        return s.n;
}

static bool starts(struct span s, const char *want)
{
        return s.n >= strlen(want) && memcmp(s.p, want, strlen(want)) == 0;
}

/* Our own problem replies, as problem_format() writes them.  A quote inside a text is escaped
 * there, so a member's name with its quotes is found only where it is a member. */
static void read_problem(struct call_end *end, struct span body)
{
        static const char begin[] = "{\"type\":\"" PROBLEM_TYPE_BASE;
        static const char original[] = ",\"original_status\":";
        if (!starts(body, begin))
                return;
        struct span name = span_of(body.p + sizeof begin - 1, body.n - (sizeof begin - 1));
        size_t n = find(name, "\"");
        if (n == name.n)
                return;
        name.n = n;
        end->problem_kind = find(body, ",\"retryable\":true") < body.n ? CALL_PROBLEM_RETRYABLE
                                                                      : CALL_PROBLEM_NOT_RETRYABLE;
        for (int k = 0; k < PROBLEM_KINDS; k++) {
                if (!span_eq(name, span_str(problem_entry((enum problem_kind)k)->name)))
                        continue;
                end->problem_kind = CALL_PROBLEM_KNOWN;
                end->problem = (enum problem_kind)k;
        }
        size_t at = find(body, original);
        for (at += sizeof original - 1; at < body.n && end->original_status < 100; at++) {
                if (body.p[at] < '0' || body.p[at] > '9')
                        break;
                end->original_status = end->original_status * 10 + (body.p[at] - '0');
        }
}

static enum call_said read_said(struct span value)
{
        if (header_name_eq(value, span_str("executed")))
                return CALL_SAID_EXECUTED;
        if (header_name_eq(value, span_str("not-executed")))
                return CALL_SAID_NOT_EXECUTED;
        if (header_name_eq(value, span_str("unknown")))
                return CALL_SAID_UNKNOWN;
        return CALL_SAID_NOTHING;
}

/* Seconds, or a date that is compared with the sender's own clock where it says its time. */
static int64_t read_retry_after(struct span value, struct span date, int64_t wall_us)
{
        int64_t s = 0, now_s = 0;
        size_t i = 0;
        for (; i < value.n && value.p[i] >= '0' && value.p[i] <= '9'; i++)
                s = s > AFTER_MAX_S ? s : s * 10 + (value.p[i] - '0');
        if (i > 0 && i == value.n)
                return s * SECOND;
        if (!http_date_parse(value, &s))
                return -1;
        if (!http_date_parse(date, &now_s))
                now_s = wall_us / SECOND;
        return s > now_s ? (s - now_s) * SECOND : 0;
}

void call_end_read(struct call_end *end, struct span headers, struct span body, int64_t wall_us)
{
        struct reply_cursor cur;
        struct span name, value, after = {NULL, 0}, date = {NULL, 0};
        bool problem = false;
        end->said = CALL_SAID_NOTHING;
        end->problem_kind = CALL_PROBLEM_NONE;
        end->original_status = 0;
        end->retry_after_us = -1;
        end->replayed = false;
        if (!reply_decode_begin(&cur, headers))
                return;
        while (reply_decode_next(&cur, &name, &value) == 1) {
                if (header_name_is(name, "Idempotency-Outcome"))
                        end->said = read_said(value);
                else if (header_name_is(name, "Idempotent-Replayed"))
                        end->replayed = header_name_eq(value, span_str("true"));
                else if (header_name_is(name, "Retry-After"))
                        after = value;
                else if (header_name_is(name, "Date"))
                        date = value;
                else if (header_name_is(name, "Content-Type"))
                        problem = starts(value, "application/problem+json");
        }
        if (after.n > 0)
                end->retry_after_us = read_retry_after(after, date, wall_us);
        if (problem)
                read_problem(end, body);
}

/* -- deciding ---------------------------------------------------------------------------------- */

static struct call_verdict verdict(enum call_action action, bool maybe, const char *why)
{
        return (struct call_verdict){.action = action, .maybe = maybe, .why = why};
}

static bool happened(int status)
{
        return (status >= 200 && status <= 300) || (status >= 302 && status <= 304);
}

/* The request itself was executed, and this was its reply. */
static struct call_verdict executed(int status, const char *why)
{
        return verdict(status >= 400 && status < 500 ? CALL_REJECTED : CALL_DONE, true, why);
}

static struct call_verdict decide_problem(const struct call_end *end)
{
        switch (end->problem) {
        case PROBLEM_IN_FLIGHT:
                return verdict(CALL_WAIT, true, "it is being executed");
        case PROBLEM_OUTCOME_UNKNOWN:
                return verdict(CALL_STOP, true,
                               "the gateway does not know whether it was executed: somebody has to "
                               "look, and resolve the key there");
        case PROBLEM_REPLY_NOT_KEPT:
                return executed(end->original_status,
                                "it was executed, and its reply was not kept");
        case PROBLEM_KEY_REUSED:
                return verdict(CALL_REJECTED, false,
                               "THE KEY WAS USED FOR ANOTHER REQUEST: whoever makes the keys has a "
                               "bug");
        case PROBLEM_UPSTREAM_UNREACHABLE:
        case PROBLEM_STORE_DOWN:
        case PROBLEM_OVERLOADED:
                return verdict(CALL_AGAIN, false, "nothing was forwarded");
        case PROBLEM_UPSTREAM_UNKNOWN:
        case PROBLEM_UPSTREAM_TIMEOUT:
                /* Not retryable for those who would pick a new key.  With the same key the gateway
                 * decides: it asks an upstream that dedupes again, or says "outcome unknown". */
                return verdict(CALL_AGAIN, true, "the gateway has sent it on and got no answer");
        case PROBLEM_KEY_MISSING:
        case PROBLEM_KEY_MALFORMED:
        case PROBLEM_BODY_TOO_LARGE:
        case PROBLEM_KINDS:
                break;
        }
        return verdict(CALL_REJECTED, false, "");
}

static struct call_verdict decide_status(int status)
{
        if (happened(status))
                return verdict(CALL_DONE, true, "");
        switch (status) {
        case 409:
                return verdict(CALL_WAIT, true, "it is being executed");
        case 422:
                return verdict(CALL_REJECTED, false,
                               "THE KEY WAS USED FOR ANOTHER REQUEST, or the request is one that "
                               "cannot be processed; its body says which");
        case 408:
        case 425:
        case 429: /* by their definition the request was refused */
                return verdict(CALL_AGAIN, false, "refused for now");
        case 301:
        case 307:
        case 308: {
                struct call_verdict v =
                        verdict(CALL_REJECTED, false,
                                "redirects are not followed: call the address in Location instead");
                v.front_door = true;
                return v;
        }
        case 401:
        case 403:
        case 407:
        case 421: {
                struct call_verdict v = verdict(CALL_REJECTED, false, "");
                v.front_door = true;
                return v;
        }
        default:
                break;
        }
        if (status >= 400 && status < 500)
                return verdict(CALL_REJECTED, false, "");
        if (status >= 500 && status < 600)
                return verdict(CALL_AGAIN, true, "");
        return verdict(CALL_AGAIN, true, "a status that nobody can know what it means");
}

static struct call_verdict decide_reply(const struct call_end *end)
{
        if (end->problem_kind == CALL_PROBLEM_KNOWN)
                return decide_problem(end);
        struct call_verdict v = decide_status(end->status);
        bool final = v.action == CALL_DONE || v.action == CALL_REJECTED;
        if (end->said == CALL_SAID_EXECUTED)
                return executed(end->status, end->status >= 500 ? "it was executed all the same, the "
                                                                  "other side says"
                                                                : v.why);
        if (end->said == CALL_SAID_NOT_EXECUTED)
                v.maybe = false;
        else if (end->said == CALL_SAID_UNKNOWN && v.action != CALL_DONE)
                v = verdict(v.action == CALL_WAIT ? CALL_WAIT : CALL_AGAIN, true,
                            "the other side does not know whether it was executed");
        else if (end->problem_kind == CALL_PROBLEM_RETRYABLE && v.action == CALL_REJECTED)
                v = verdict(CALL_AGAIN, true, "");
        else if (end->problem_kind == CALL_PROBLEM_NOT_RETRYABLE && !final)
                v.action = CALL_STOP;
        return v;
}

struct call_verdict call_decide(const struct call_end *end, bool maybe_before)
{
        switch (end->kind) {
        case CALL_END_REPLY:
        case CALL_END_REPLY_CUT: {
                struct call_verdict v = decide_reply(end);
                if (v.front_door && maybe_before)
                        v = verdict(CALL_STOP, false,
                                    "refused before anybody looked at the key, so it says nothing "
                                    "about the attempt before");
                return v;
        }
        case CALL_END_NO_NAME:
        case CALL_END_NO_CONNECTION:
        case CALL_END_NO_TLS:
        case CALL_END_LOST:
        case CALL_END_TIMEOUT:
        case CALL_END_GARBLED:
                return verdict(CALL_AGAIN, end->sent, "");
        case CALL_END_UNTRUSTED:
        case CALL_END_CANNOT:
        case CALL_END_CANCELLED:
                break;
        }
        return verdict(CALL_STOP, end->sent, "");
}

/* -- waiting ----------------------------------------------------------------------------------- */

int64_t call_wait_us(int tries, uint64_t random, int64_t retry_after_us, int64_t left_us,
                     int64_t attempt_us)
{
        assert(tries >= 1);
        if (left_us < 2 * ATTEMPT_LEAST_US)
                return -1;
        int64_t most_us = BACKOFF_BASE_US;
        for (int i = 1; i < tries && most_us < BACKOFF_MAX_US; i++)
                most_us *= 2;
        if (most_us > BACKOFF_MAX_US)
                most_us = BACKOFF_MAX_US;
        /* Whoever was told the same second does not come in the same millisecond. */
        int64_t wait_us = retry_after_us >= 0
                                  ? retry_after_us + (int64_t)(random % (BACKOFF_BASE_US + 1))
                                  : (int64_t)(random % (uint64_t)(most_us + 1));
        /* The last attempt gets its time. */
        int64_t room_us = attempt_us < left_us / 2 ? attempt_us : left_us / 2;
        return wait_us > left_us - room_us ? left_us - room_us : wait_us;
}

/* -- dates ------------------------------------------------------------------------------------- */

static int month_of(struct span word)
{
        static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
        for (int m = 0; m < 12; m++)
                if (header_name_eq(word, span_of(names + (size_t)m * 3, 3)))
                        return m + 1;
        return 0;
}

/* 1 to 4 digits. */
static bool number_of(struct span word, int *ret)
{
        int v = 0;
        if (word.n == 0 || word.n > 4)
                return false;
        for (size_t i = 0; i < word.n; i++) {
                if (word.p[i] < '0' || word.p[i] > '9')
                        return false;
                v = v * 10 + (word.p[i] - '0');
        }
        *ret = v;
        return true;
}

/* 08:49:37 */
static bool time_of(struct span word, int *ret_s)
{
        int h, m, s;
        if (word.n != 8 || word.p[2] != ':' || word.p[5] != ':' ||
            !number_of(span_of(word.p, 2), &h) || !number_of(span_of(word.p + 3, 2), &m) ||
            !number_of(span_of(word.p + 6, 2), &s) || h > 23 || m > 59 || s > 60)
                return false;
        *ret_s = h * 3600 + m * 60 + s;
        return true;
}

/* Days from 1970-01-01 in the Gregorian calendar; years begin in March here, so that the leap day
 * is the last one. */
static int64_t days_of(int year, int month, int day)
{
        int64_t y = month <= 2 ? year - 1 : year;
        int64_t m = month <= 2 ? month + 9 : month - 3;
        return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* The next word between blanks, commas and dashes. */
static bool word_next(struct span *rest, struct span *ret)
{
        size_t n = 0;
        while (rest->n > 0 && strchr(" \t,-", rest->p[0]))
                *rest = span_of(rest->p + 1, rest->n - 1);
        while (n < rest->n && rest->p[n] && !strchr(" \t,-", rest->p[n]))
                n++;
        if (n == 0)
                return false;
        *ret = span_of(rest->p, n);
        *rest = span_of(rest->p + n, rest->n - n);
        return true;
}

bool http_date_parse(struct span text, int64_t *ret_s)
{
        struct span word;
        int day = 0, month = 0, year = -1, seconds = -1, number;
        while (word_next(&text, &word)) {
                if (number_of(word, &number)) {
                        if (word.n <= 2 && day == 0)
                                day = number;
                        else if (word.n == 4)
                                year = number;
                        else if (word.n == 2)
                                year = number + (number < 70 ? 2000 : 1900);
                        else
                                return false;
                } else if (!month && month_of(word)) {
                        month = month_of(word);
                } else if (word.n == 8 && word.p[2] == ':' && !time_of(word, &seconds)) {
                        return false;
                }
        }
        if (text.n > 0 || day < 1 || day > 31 || month == 0 || year < 1970 || seconds < 0)
                return false;
        *ret_s = days_of(year, month, day) * 86400 + seconds;
        return true;
}

/* -- what callers add -------------------------------------------------------------------------- */

bool call_token_ok(struct span text)
{
        return http1_is_token(text);
}

bool call_value_ok(struct span text)
{
        for (size_t i = 0; i < text.n; i++)
                if ((text.p[i] < 0x20 && text.p[i] != '\t') || text.p[i] == 0x7f)
                        return false;
        return true;
}

bool call_header_allowed(struct span name)
{
        static const char *const ours[] = {"Idempotency-Key", "Host", "Content-Length",
                                           "Transfer-Encoding", "Connection", "Expect", "Upgrade",
                                           "TE", "Trailer", "Keep-Alive", "Proxy-Connection"};
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
                if (header_name_is(name, ours[i]))
                        return false;
        return true;
}
