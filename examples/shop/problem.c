/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: see problem.h.
 */
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_BASE "https://semel.dev/problems/"

static const struct {
        const char *name; /* end of the type URI: stable, what a client branches on */
        int status;
        int retryable; /* the same request may succeed later */
        const char *title;
} problems[PROBLEMS] = {
        [PROBLEM_BAD_JSON] = {"bad-json", 400, 0, "The body is not the JSON that is expected"},
        [PROBLEM_VALIDATION] = {"validation", 400, 0, "The request is not valid"},
        [PROBLEM_KEY_MALFORMED] = {"key-malformed", 400, 0, "The Idempotency-Key is malformed"},
        [PROBLEM_CHARGE_REFUSED] = {"charge-refused", 402, 0, "The provider refuses the charge"},
        [PROBLEM_NOT_FOUND] = {"not-found", 404, 0, "There is no such resource"},
        [PROBLEM_METHOD] = {"method-not-allowed", 405, 0, "The resource does not do that"},
        [PROBLEM_IN_FLIGHT] = {"in-flight", 409, 1,
                               "A request with this Idempotency-Key is still running"},
        [PROBLEM_OUTCOME_UNKNOWN] = {"outcome-unknown", 409, 0,
                                     "Nobody can know whether this request was executed"},
        [PROBLEM_REPLY_NOT_KEPT] = {"reply-not-kept", 409, 0,
                                    "This request was executed, but its reply was not kept"},
        [PROBLEM_SELLER_IN_USE] = {"seller-in-use", 409, 0, "The seller still has products"},
        [PROBLEM_ORDER_STATUS] = {"order-not-new", 409, 0, "The order cannot be confirmed"},
        [PROBLEM_TOO_LARGE] = {"body-too-large", 413, 0, "The request body is too large"},
        [PROBLEM_MEDIA_TYPE] = {"media-type", 415, 0, "The body must be application/json"},
        [PROBLEM_KEY_REUSED] = {"key-reused", 422, 0,
                                "This Idempotency-Key was used for another request"},
        [PROBLEM_NO_SUCH_SELLER] = {"no-such-seller", 422, 0, "There is no such seller"},
        [PROBLEM_INTERNAL] = {"internal", 500, 0, "The shop failed"},
        [PROBLEM_STORE_DOWN] = {"store-down", 503, 1, "The database cannot be used now"},
        [PROBLEM_CHARGE_UNKNOWN] = {"charge-unknown", 504, 1,
                                    "The provider has not said whether it charged"},
};

void reply_header(semel_reply *rep, const char *name, const char *value)
{
        semel_reply_add_header(rep, name, strlen(name), value, strlen(value), NULL);
}

void reply_json(semel_reply *rep, int status, const char *content_type, json_t *json)
{
        char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
        size_t n = text ? strlen(text) : 0;
        json_decref(json);
        semel_reply_clear(rep);
        if (text)
                text[n++] = '\n'; /* in place of the NUL: a terminal's prompt stays on its line */
        if (!text || semel_reply_set_body(rep, text, n, NULL) != SEMEL_OK) {
                semel_reply_set_status(rep, 500);
        } else {
                semel_reply_set_status(rep, status);
                reply_header(rep, "Content-Type", content_type);
        }
        free(text);
}

static void fill(semel_reply *rep, enum problem kind, json_t *members, const char *fmt, va_list ap)
        __attribute__((format(printf, 4, 0)));

static void fill(semel_reply *rep, enum problem kind, json_t *members, const char *fmt, va_list ap)
{
        char detail[512], type[64];
        json_t *json;

        vsnprintf(detail, sizeof detail, fmt, ap);
        snprintf(type, sizeof type, TYPE_BASE "%s", problems[kind].name);
        json = json_pack("{s:s, s:s, s:i, s:b, s:s*}", "type", type, "title", problems[kind].title,
                         "status", problems[kind].status, "retryable", problems[kind].retryable,
                         "detail", detail);
        if (json && members)
                json_object_update_missing(json, members);
        json_decref(members);
        reply_json(rep, problems[kind].status, "application/problem+json", json);
}

void problem_fill(semel_reply *rep, enum problem kind, json_t *members, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fill(rep, kind, members, fmt, ap);
        va_end(ap);
}

semel_reply *problem_new(enum problem kind, json_t *members, const char *fmt, ...)
{
        semel_reply *rep = semel_reply_new();
        va_list ap;
        if (!rep) {
                json_decref(members);
                return NULL;
        }
        va_start(ap, fmt);
        fill(rep, kind, members, fmt, ap);
        va_end(ap);
        return rep;
}
