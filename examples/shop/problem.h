/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: every error reply of the shop (RFC 9457) in one table.
 */
#ifndef SHOP_PROBLEM_H
#define SHOP_PROBLEM_H

#include <jansson.h>
#include <semel/reply.h>

enum problem {
        PROBLEM_BAD_JSON,
        PROBLEM_VALIDATION,
        PROBLEM_KEY_MALFORMED,
        PROBLEM_NOT_FOUND,
        PROBLEM_METHOD,
        PROBLEM_IN_FLIGHT,
        PROBLEM_OUTCOME_UNKNOWN,
        PROBLEM_REPLY_NOT_KEPT,
        PROBLEM_CHARGE_REFUSED,
        PROBLEM_SELLER_IN_USE,
        PROBLEM_ORDER_STATUS,
        PROBLEM_TOO_LARGE,
        PROBLEM_MEDIA_TYPE,
        PROBLEM_KEY_REUSED,
        PROBLEM_NO_SUCH_SELLER,
        PROBLEM_INTERNAL,
        PROBLEM_STORE_DOWN,
        PROBLEM_CHARGE_UNKNOWN,
        PROBLEMS
};

/* Make `rep` this problem, whatever it was.
 * members  more members of the object (taken), or NULL. */
void problem_fill(semel_reply *rep, enum problem kind, json_t *members, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* A new reply of it.  NULL when memory is out. */
semel_reply *problem_new(enum problem kind, json_t *members, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Append a header with NUL-terminated parts; no memory = no header. */
void reply_header(semel_reply *rep, const char *name, const char *value);

/* Make `rep` this status and JSON document (taken; NULL counts as no memory). */
void reply_json(semel_reply *rep, int status, const char *content_type, json_t *json);

#endif
