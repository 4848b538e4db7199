/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: every problem reply (RFC 9457) in one table.
 */
#ifndef CORE_PROBLEM_H
#define CORE_PROBLEM_H

#include "base/buf.h"

enum problem_kind {
        PROBLEM_KEY_MISSING,     /* 400 */
        PROBLEM_KEY_MALFORMED,   /* 400 */
        PROBLEM_IN_FLIGHT,       /* 409, retryable, Retry-After */
        PROBLEM_OUTCOME_UNKNOWN, /* 409, not retryable: an operator resolves it */
        PROBLEM_REPLY_NOT_KEPT,  /* 409, not retryable: it ran, its body was not kept */
        PROBLEM_BODY_TOO_LARGE,  /* 413 */
        PROBLEM_KEY_REUSED,      /* 422, names the first operation */
        PROBLEM_UPSTREAM_UNKNOWN, /* 502: the outcome is unknown */
        PROBLEM_UPSTREAM_TIMEOUT, /* 504: the outcome is unknown */
        PROBLEM_UPSTREAM_UNREACHABLE, /* 502, retryable: nothing was sent */
        PROBLEM_STORE_DOWN,      /* 503, retryable, Retry-After */
        PROBLEM_OVERLOADED,      /* 503, retryable, Retry-After: a limit of ours */
        PROBLEM_KINDS
};

struct problem_entry {
        const char *name;  /* last part of the type URI: stable */
        int status;
        bool retryable;
        const char *title;
};

const struct problem_entry *problem_entry(enum problem_kind kind);

/* The type URI: docs link and name in one, "https://semel.dev/problems/in-flight". */
#define PROBLEM_TYPE_BASE "https://semel.dev/problems/"

/* Write the JSON body.
 * detail           one sentence for this case, JSON-escaped here; may be empty
 * extra_status     member "original_status" when > 0 (PROBLEM_REPLY_NOT_KEPT) */
int problem_format(enum problem_kind kind, struct span detail, int extra_status, struct buf *b);

#endif
