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
 *     default:                  ...                         // nothing was done now: err says why
 *     }
 *
 * Each attempt is one connection of its own, so that nothing below sends again unseen; no redirect
 * is followed, no cookie and no proxy of the environment is used, and no signal is touched.
 */
#ifndef SEMEL_CALL_H
#define SEMEL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/reply.h>
#include <semel/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_call semel_call;

typedef enum semel_call_result {
        SEMEL_CALL_DONE = 0,     /* a final 2xx reply, or 300, 302..304: it happened, reply has it */
        SEMEL_CALL_REJECTED = 1, /* a final reply that says no: it did not happen (4xx, and 301, 307
                                    and 308, which send one elsewhere: redirects are never
                                    followed).  422 says that the key was used for another
                                    request: a bug of the caller's.  What is refused at the front
                                    door (401, 403, 407, 421, a redirect) was refused before anybody
                                    looked at the key: that says nothing of earlier objects and
                                    processes, see semel_call_set_sent_before() */
        SEMEL_CALL_UNKNOWN = 2,  /* no final reply, and some attempt may have been executed: call
                                    again with the same key, URL and bytes */
        SEMEL_CALL_IN_FLIGHT = 3, /* with a store: another process is at it; nothing was sent:
                                     semel_error_retry_after_s() says when to try again */
        SEMEL_CALL_ERROR = 4     /* nothing happened: nothing was sent at all, or each attempt was
                                    refused for now (429): err says why.  Of this object's runs,
                                    again, unless a store or the caller knows of earlier ones */
} semel_call_result;

/* method, url (http or https) and key are copied; the key is fixed before the first attempt and
 * sent as it is in `Idempotency-Key`: a bare key as semel_key_join() makes it, or, for a provider
 * that wants it so, in double quotes.
 * NULL and err: SEMEL_ERR_ARGUMENT, SEMEL_ERR_KEY, SEMEL_ERR_URL, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_call *semel_call_new(const char *method, const char *url, const char *key,
                                     semel_error *err);
SEMEL_API void semel_call_free(semel_call *call);

/* Copied.  At most 64 MiB. */
SEMEL_API semel_code semel_call_set_body(semel_call *call, const void *body, size_t n,
                                         const char *content_type, semel_error *err);
/* At most 64.  Refused: Idempotency-Key, Host, Content-Length, and what belongs to a connection
 * (Transfer-Encoding, Connection, Expect, Upgrade, TE, Trailer, Keep-Alive).  A Content-Type given
 * here is the one that is sent. */
SEMEL_API semel_code semel_call_add_header(semel_call *call, const char *name, const char *value,
                                           semel_error *err);
/* Everything together (default 60,000 ms), and one attempt (default 10,000 ms). */
SEMEL_API semel_code semel_call_set_deadline_ms(semel_call *call, int64_t deadline_ms,
                                                int64_t attempt_ms, semel_error *err);
/* How many attempts at most; 0, the default: as many as fit into the deadline. */
SEMEL_API semel_code semel_call_set_attempts_max(semel_call *call, int attempts, semel_error *err);
/* Does the caller know that the key may have been sent before, by another object or a process that
 * has ended, and not what became of it?  Then a refusal at the front door, and a provider that is
 * not reached, are SEMEL_CALL_UNKNOWN: they say nothing about what was sent before.  Runs of this
 * object are remembered by themselves: after SEMEL_CALL_UNKNOWN it is as if this were set, until a
 * final reply says no.  A store (below) remembers other processes too. */
SEMEL_API void semel_call_set_sent_before(semel_call *call, bool sent_before);
/* Remember the call in a store (borrowed): the key (mode `call`) and a digest of method, URL,
 * content type and body.  A restarted process goes on with the same key and bytes, two processes
 * with one key do not send at the same time, and a finished call is answered from the store
 * (semel_reply_replayed()).  The same key with another request: SEMEL_CALL_REJECTED with status 0,
 * and nothing is sent.  UNKNOWN stays open to the same call. */
SEMEL_API semel_code semel_call_set_store(semel_call *call, semel_store *st, semel_error *err);
/* The certificates to trust instead of the system's: a PEM file.  Verification is always on. */
SEMEL_API semel_code semel_call_set_ca_file(semel_call *call, const char *path, semel_error *err);
/* A proxy's URL, or "env" for the proxy variables of the environment.  Default: none is used,
 * whatever the environment says.  A proxy that sends again by itself is out of our sight. */
SEMEL_API semel_code semel_call_set_proxy(semel_call *call, const char *proxy, semel_error *err);

/* What each attempt did, as it happens. */
typedef struct semel_call_attempt {
        int number;           /* from 1 */
        int status;           /* 0: no reply */
        bool sent;            /* a byte of the request may have left */
        int64_t took_ms;
        int64_t wait_ms;      /* before the next attempt; -1: none follows */
        const char *what;     /* one line for people */
} semel_call_attempt;
SEMEL_API void semel_call_on_attempt(semel_call *call,
                                     void (*fn)(void *arg, const semel_call_attempt *attempt),
                                     void *arg);

/* Send until there is a final reply, or the deadline comes.  Blocks.  Not while another thread runs
 * the same object; it may be run again, with the same key and bytes, and then knows that an earlier
 * run may have had its effect.
 * reply  filled with the last reply that came, final or not (status 0: none came); a body over
 *        64 MiB is not kept, and the reply is a tombstone.  NULL: not wanted.
 * err    filled for everything but SEMEL_CALL_DONE: one sentence that says what to do.  With
 *        SEMEL_CALL_DONE it is filled when the reply could not be kept in the store. */
SEMEL_API semel_call_result semel_call_run(semel_call *call, semel_reply *reply, semel_error *err);
/* Attempts of the last run. */
SEMEL_API int semel_call_attempts(const semel_call *call);
/* End a running call now, as if its deadline had come.  From any thread, or a signal handler. */
SEMEL_API void semel_call_cancel(semel_call *call);
/* A stable name of a result, such as "in-flight". */
SEMEL_API const char *semel_call_result_name(semel_call_result result);

#ifdef __cplusplus
}
#endif
#endif
