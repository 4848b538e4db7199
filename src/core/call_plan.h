/* SPDX-License-Identifier: Apache-2.0
 *
 * call_plan: what a client does after an attempt: is it over, and may it have happened?
 *
 * Pure.  One table: how the attempt ended -> done, rejected, wait, again, or stop.  It says
 * "rejected" or "nothing happened" only where no attempt can have been executed, or where the final
 * answer of the other side says so; everything else that ends is unknown.
 */
#ifndef CORE_CALL_PLAN_H
#define CORE_CALL_PLAN_H

#include "core/problem.h"

/* How an attempt ended. */
enum call_end_kind {
        CALL_END_REPLY,         /* a whole reply */
        CALL_END_REPLY_CUT,     /* a reply that is too big to keep; its status is known */
        CALL_END_NO_NAME,       /* the host's name was not resolved */
        CALL_END_NO_CONNECTION, /* refused, unreachable */
        CALL_END_NO_TLS,        /* the handshake failed */
        CALL_END_UNTRUSTED,     /* the certificate is not one to trust: the same again next time */
        CALL_END_LOST,          /* the connection ended before the whole reply was there */
        CALL_END_TIMEOUT,
        CALL_END_GARBLED,       /* what came is not HTTP/1.x */
        CALL_END_CANNOT,        /* a setting, or memory: the same again next time */
        CALL_END_CANCELLED,
};
enum { CALL_END_KINDS = CALL_END_CANCELLED + 1 };

/* What a reply says about the effect: `Idempotency-Outcome`. */
enum call_said {
        CALL_SAID_NOTHING,
        CALL_SAID_EXECUTED,
        CALL_SAID_NOT_EXECUTED,
        CALL_SAID_UNKNOWN,
};

/* A semel gateway's own problem reply. */
enum call_problem_kind {
        CALL_PROBLEM_NONE,
        CALL_PROBLEM_KNOWN,         /* `problem` is valid */
        CALL_PROBLEM_RETRYABLE,     /* a type that this version does not know, and its word for it */
        CALL_PROBLEM_NOT_RETRYABLE,
};

struct call_end {
        enum call_end_kind kind;
        bool sent;  /* a byte of the request may have left */
        int status; /* of a reply */
        enum call_said said;
        enum call_problem_kind problem_kind;
        enum problem_kind problem;
        int original_status;     /* beside PROBLEM_REPLY_NOT_KEPT */
        int64_t retry_after_us;  /* -1: not said */
        bool replayed;           /* `Idempotent-Replayed: true` */
};

/* Read what a reply says beside its status.
 * headers  as reply_codec writes them
 * wall_us  now, for a Retry-After that is a date and comes without a Date */
void call_end_read(struct call_end *end, struct span headers, struct span body, int64_t wall_us);

enum call_action {
        CALL_DONE,     /* final: it happened */
        CALL_REJECTED, /* final: it did not happen */
        CALL_AGAIN,
        CALL_WAIT,     /* as again: it is being executed now */
        CALL_STOP,     /* another attempt would not help */
};

struct call_verdict {
        enum call_action action;
        bool maybe;      /* this attempt may have been executed, or another one with its key */
        bool front_door; /* refused before anybody looked at the key: another day it may be let in */
        const char *why; /* for people, about a reply: "still being executed"; "" when the status
                            says it all */
};

/* maybe_before  an earlier attempt may have been executed: then a refusal at the front door (401, a
 *               redirect) says nothing about it, and stops as unknown. */
struct call_verdict call_decide(const struct call_end *end, bool maybe_before);

/* How long to wait before attempt number tries + 1: full jitter, 200 ms doubled up to 5 s, or what
 * the other side asked for; never so long that no attempt fits before the deadline.
 * random   any 64 bits
 * left_us  until the deadline;  attempt_us  the longest attempt
 * -1: no attempt fits any more. */
int64_t call_wait_us(int tries, uint64_t random, int64_t retry_after_us, int64_t left_us,
                     int64_t attempt_us);

/* An HTTP date in any of its three forms (RFC 9110 section 5.6.7), in seconds since 1970. */
bool http_date_parse(struct span text, int64_t *ret_s);

/* May a caller add this header, and is this a method: RFC 9110 tokens, and values without
 * control bytes. */
bool call_header_allowed(struct span name);
bool call_token_ok(struct span text);
bool call_value_ok(struct span text);

#endif
