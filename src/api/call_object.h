/* SPDX-License-Identifier: Apache-2.0
 *
 * call_object: what is behind semel_call.
 */
#ifndef API_CALL_OBJECT_H
#define API_CALL_OBJECT_H

#include <semel/call.h>
#include <semel/run.h>

#include "base/err.h"
#include "call/attempt.h"
#include "core/key.h"
#include "core/limits.h"

enum { CALL_SHOWN_BYTES_MAX = LIMIT_OPERATION_BYTES - LIMIT_HTTP_METHOD_BYTES };

struct semel_call {
        char method[LIMIT_HTTP_METHOD_BYTES + 1];
        char *url;
        char shown[CALL_SHOWN_BYTES_MAX]; /* the URL without its secrets */
        struct key key;
        struct buf body;
        bool has_body;
        char *content_type; /* of semel_call_set_body(); NULL: none */
        char *added_type;   /* of semel_call_add_header(), one a line: sent in its place */
        char *headers[LIMIT_CALL_HEADERS]; /* as libcurl wants them */
        size_t header_count;
        char *key_line, *type_line;
        char *ca_file, *proxy;
        int64_t deadline_ms, attempt_ms;
        int attempts_max;
        semel_store *st;
        void (*on_attempt)(void *arg, const semel_call_attempt *attempt);
        void *on_attempt_arg;
        int cancel_fd; /* an eventfd: safe in a signal handler */

        bool maybe; /* a run before, or one of another object, may have had its effect */

        /* of the last run */
        int attempts;
        struct semel_reply *last; /* the last whole reply */
};

/* call_store.c: a call that is remembered. */
struct call_hold {
        semel_claim *claim; /* NULL: no store, or nothing is held */
        int64_t lease_ms;
        bool earlier; /* an earlier process may have sent it */
};

/* Claim the key.  true: send.  false: *ret_result is the answer, and call->last the kept reply. */
bool call_hold_begin(struct semel_call *call, struct call_hold *hold, semel_call_result *ret_result,
                     semel_error *err);

/* Before anything that takes need_ms: is the claim ours for so long?  Renews the lease; a store that
 * is down is asked again until until_us.  Errors: SEMEL_ERR_LOST, or the store's. */
semel_code call_hold_keep(struct semel_call *call, struct call_hold *hold, int64_t need_ms,
                          int64_t until_us, semel_error *err);

/* What became of it; frees the claim.  SEMEL_CALL_DONE and REJECTED keep call->last, unless
 * `forget` says that another try may get another answer.  A store that is down is asked again until
 * until_us, and a second longer. */
semel_code call_hold_end(struct semel_call *call, struct call_hold *hold, semel_call_result result,
                         bool forget, int64_t until_us, semel_error *err);

/* Sleep, at most us.  true: cancelled. */
bool call_sleep(struct semel_call *call, int64_t us);

#endif
