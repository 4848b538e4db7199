/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/call.h: an HTTP request that is safe to retry: one key and the same bytes in every attempt.
 * Link libsemel-http.
 *
 *     char key[256];
 *     semel_key_join(...)                                   // order-7:charge:req-9
 *     semel_call *call = semel_call_new("POST", "https://pay.example/charges", key, err);
 *     semel_call_set_body(call, json, json_len, "application/json", NULL);
 *     switch (semel_call_run(call, reply, err)) {
 *     case SEMEL_CALL_DONE:     ...                         // 2xx: it happened
 *     case SEMEL_CALL_REJECTED: ...                         // the provider refused: it did not happen
 *     case SEMEL_CALL_UNKNOWN:  ...                         // nobody knows; ask again with the same key
 *     }
 */
#ifndef SEMEL_CALL_H
#define SEMEL_CALL_H

#include <semel/reply.h>
#include <semel/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_call semel_call;

typedef enum semel_call_result {
        SEMEL_CALL_DONE = 0,     /* a final 2xx or 3xx reply: ret_reply has it */
        SEMEL_CALL_REJECTED = 1, /* a final reply that says no (4xx); 422 says that the key was used
                                    for another request: a bug of the caller's */
        SEMEL_CALL_UNKNOWN = 2,  /* the deadline came and no final reply: it may have happened */
        SEMEL_CALL_IN_FLIGHT = 3, /* with a store: another process is at it */
        SEMEL_CALL_ERROR = 4     /* nothing was sent at all: err says why */
} semel_call_result;

/* method, url (http or https) and key are copied; the key is fixed before the first attempt and
 * sent as it is in `Idempotency-Key`.
 * NULL and err: SEMEL_ERR_ARGUMENT, SEMEL_ERR_KEY, SEMEL_ERR_URL, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_call *semel_call_new(const char *method, const char *url, const char *key,
                                     semel_error *err);
SEMEL_API void semel_call_free(semel_call *call);

/* Copied.  At most 64 MiB. */
SEMEL_API semel_code semel_call_set_body(semel_call *call, const void *body, size_t n,
                                         const char *content_type, semel_error *err);
/* At most 64; Idempotency-Key, Host, Content-Length and Transfer-Encoding are refused. */
SEMEL_API semel_code semel_call_add_header(semel_call *call, const char *name, const char *value,
                                           semel_error *err);
/* Everything together (default 60,000 ms), and one attempt (default 10,000 ms). */
SEMEL_API semel_code semel_call_set_deadline_ms(semel_call *call, int64_t deadline_ms,
                                                int64_t attempt_ms, semel_error *err);
/* How many attempts at most; 0, the default: as many as fit into the deadline. */
SEMEL_API semel_code semel_call_set_attempts_max(semel_call *call, int attempts, semel_error *err);
/* Remember key and bytes in a store: a restarted process goes on with them, and two processes with
 * one key do not send at the same time. */
SEMEL_API semel_code semel_call_set_store(semel_call *call, semel_store *st, semel_error *err);

/* What each attempt did, as it happens. */
typedef struct semel_call_attempt {
        int number;           /* from 1 */
        int status;           /* 0: no reply */
        int64_t took_ms;
        int64_t wait_ms;      /* before the next attempt; -1: none follows */
        const char *what;     /* one line for people */
} semel_call_attempt;
SEMEL_API void semel_call_on_attempt(semel_call *call,
                                     void (*fn)(void *arg, const semel_call_attempt *attempt),
                                     void *arg);

/* Send until there is a final reply, or the deadline comes.  Blocks.  Not while another thread runs
 * the same object.
 * reply  filled with the last reply that came, final or not; NULL: not wanted. */
SEMEL_API semel_call_result semel_call_run(semel_call *call, semel_reply *reply, semel_error *err);
SEMEL_API int semel_call_attempts(const semel_call *call);

#ifdef __cplusplus
}
#endif
#endif
