/* SPDX-License-Identifier: Apache-2.0
 *
 * request: one request on its way through the gateway.
 *
 *   without a key          PASS
 *   with one               READ -> CLAIM -> UPSTREAM -> RECORD -> (answered)
 *                                    | ^
 *                                    v |
 *                                   WAIT
 *
 * A request outlives its client: once the first byte went to the upstream, the reply is awaited
 * and recorded, whoever still listens (H68).  It is freed when its client is answered or
 * gone, and neither upstream nor store has it any more.
 *
 * Files: request.c life and entry; request_claim.c the claim, its answers, waiting; request_forward.c
 * the upstream and the record; request_pass.c requests that are not claimed; request_answer.c what
 * clients get; request_headers.c which fields travel; request_spare.c memory used again.
 */
#ifndef APP_REQUEST_H
#define APP_REQUEST_H

#include "app/worker.h"
#include "core/http_fingerprint.h"
#include "core/identity.h"
#include "core/key.h"
#include "core/problem.h"

enum request_stage {
        REQUEST_READ,     /* the body is read and fingerprinted */
        REQUEST_CLAIM,    /* the store is asked */
        REQUEST_WAIT,     /* for a running duplicate, or to ask an idempotent upstream again */
        REQUEST_UPSTREAM, /* the upstream is asked */
        REQUEST_STREAM,   /* a reply too large to keep is passed on; its record is made */
        REQUEST_RECORD,   /* the outcome is written */
        REQUEST_PASS,     /* not claimed */
        REQUEST_OVER,     /* answered, or nobody is left to answer */
};

/* What is to be told when the record is made. */
enum request_tell {
        TELL_UPSTREAM_REPLY, /* the buffered reply of the upstream */
        TELL_PROBLEM,
        TELL_STREAM,         /* begin to stream what comes */
        TELL_NOTHING,
};

enum { REQUEST_HEADERS_MAX = LIMIT_HTTP_HEADERS + 8, REQUEST_SCRATCH_BYTES = LIMIT_HTTP_HEAD_BYTES + 1024 };

/* A fingerprint in the making. */
struct reading {
        struct spare spare;
        struct http_fingerprint fp;
        struct http_fingerprint_options options;
        struct sha256 *hash, *second;
        size_t counted; /* of its own memory, in gw->buffered_bytes */
};

struct request {
        struct spare spare;
        struct worker *w;
        struct request *prev, *next;
        struct http_exchange *ex; /* NULL: answered, or the client is gone */
        enum request_stage stage;
        unsigned entered; /* depth of request_enter() */
        const struct policy *policy;
        const struct route *route;
        uint64_t number;
        int64_t started_us, started_wall_us, claimed_us, dispatched_us, upstream_us;
        enum outcome outcome;
        bool outcome_set, holding, dispatched, body_whole, client_was_lost;

        /* of the request, kept: its head's spans die with the exchange */
        struct buf head;      /* copies that the spans below point into */
        struct span method, target, path, host;
        struct http_header *headers;
        size_t header_count, headers_cap;
        struct buf body;
        size_t budgeted;      /* bytes counted in gw->buffered_bytes */
        struct reading *reading; /* the fingerprint, while the body is read */
        int64_t request_length; /* of a passed request: as it was framed */

        /* the claim */
        struct key key;
        uint8_t principal[HASH_BYTES];
        size_t principal_n;
        char operation[LIMIT_OPERATION_BYTES + 1]; /* "POST /orders" */
        struct command_claim claim;
        int64_t token;
        int64_t deadline_us;  /* until then the claim is trusted: counted from before the submit */
        int64_t wait_until_us; /* Prefer: wait */
        int64_t pause_us;
        bool waiting;         /* counted as a waiter, and in its worker's list of its id */
        struct request *wait_prev, *wait_next;
        bool unprotected;     /* the store is down, and the route fails open */
        struct store_op op;
        bool op_busy;
        struct deadline timeout;

        /* the upstream */
        struct upstream_call call;
        bool call_busy;
        bool maybe_executed;  /* an earlier ask was answered with "still running" */
        size_t body_sent;
        int64_t ask_until_us; /* the upstream has until then, asked once or more */
        int64_t reply_length; /* of the reply's body, or HTTP_REPLY_STREAM */
        int status;
        char reason[64];
        struct buf reply_headers; /* as stored: the reply codec's form */
        struct buf extra_headers; /* for the first client only: Set-Cookie and the like */
        struct buf reply_body;
        bool streaming, reply_whole, reply_cut;
        enum policy_class class;

        /* the record */
        enum command_write_kind write_kind;
        enum request_tell tell;
        enum problem_kind problem;
        const char *warning; /* the value of a Semel-Warning header, or NULL */
        int64_t record_until_us;
        uint64_t reply_bytes;
};

/* -- request.c ------------------------------------------------------------------------ */

extern const struct http_handler request_handler; /* arg: the worker */

/* Around everything that the outside calls (loop, client, upstream, store): what happens in
 * between may bring the request to its end, and events may come inside events; it is freed by the
 * outermost leave, when nothing holds it any more. */
void request_enter(struct request *r);
void request_leave(struct request *r);
void request_set_outcome(struct request *r, enum outcome outcome);
/* The call upstream ended without a whole reply: for the log, how long it took, if it was asked. */
void request_asked(struct request *r);
/* Submit r->op, whose kind and input are filled in. */
void request_submit(struct request *r, int64_t timeout_us, void (*done)(struct store_op *op));
/* The timeout of the stage the request is in. */
void request_timeout_in(struct request *r, int64_t us);
/* Set the upstream's time anew, after an event of a call that streams: it runs while the upstream is waited
 * for, not while the client is, who has limits of its own. */
void request_time_upstream(struct request *r);
/* Count bytes that will be held; false: the budget of the process is used up. */
bool request_budget(struct request *r, size_t n);
/* Shutdown: nothing waits any longer; at the cut everything ends; what the store has not written
 * then is told all the same, and not awaited. */
void request_drain(struct request *r);
void request_cut(struct request *r);
void request_give_up(struct request *r);

/* -- request_spare.c ---------------------------------------------------------------------- */

/* Cleared, but for the memory of its small buffers.  NULL: no memory. */
struct request *request_get(struct worker *w);
void request_put(struct worker *w, struct request *r);
struct reading *reading_get(struct worker *w); /* NULL: no memory */
void reading_put(struct worker *w, struct reading *rd); /* NULL is fine */
void request_spares_init(struct worker *w);
void request_spares_free(struct worker *w);

/* -- request_claim.c --------------------------------------------------------------------- */

void request_claim(struct request *r);
void request_wait_over(struct request *r); /* look again: a duplicate ended, or time passed */
/* Does it wait for another one that has its key?  Else, in REQUEST_WAIT, it has been sent, claimed or not, and
 * is to be sent again. */
bool request_waits_for_another(const struct request *r);
/* The list of those who wait for this id, and perhaps for others. */
struct request **request_waiting(struct worker *w, const struct command_id *id);
/* Stop being a waiter. */
void request_unwait(struct request *r);

/* -- request_forward.c -------------------------------------------------------------------- */

void request_forward(struct request *r);
void request_upstream_timeout(struct request *r);
void request_stream_drained(struct request *r);
/* Shutdown: what was not sent is released, what was is marked UNKNOWN. */
void request_upstream_cut(struct request *r);
/* Write the end of the claim, then tell. */
void request_record(struct request *r, enum command_write_kind kind, enum request_tell tell);
void request_record_again(struct request *r);
/* Shutdown: tell, whatever became of the record. */
void request_record_over(struct request *r);

/* -- request_pass.c ------------------------------------------------------------------------- */

void request_pass(struct request *r);
void request_pass_body(struct request *r, struct span piece);
void request_pass_end(struct request *r);
void request_pass_gone(struct request *r);
void request_pass_drained(struct request *r);
void request_pass_timeout(struct request *r);

/* -- request_answer.c ------------------------------------------------------------------------- */

/* A problem reply.  `detail` may be empty; retry_after_s 0: none. */
void answer_problem(struct request *r, enum problem_kind kind, const char *detail,
                    int retry_after_s);
/* A problem that the table of core/problem.h does not have: a plain one. */
void answer_refusal(struct request *r, int status, const char *title, const char *detail);
/* A kept reply. */
void answer_replay(struct request *r, int status, bool tombstone, struct span headers,
                   struct span body);
/* The upstream's own reply, buffered whole. */
void answer_upstream(struct request *r);
/* The head of the upstream's reply, its body to follow. */
bool answer_upstream_head(struct request *r, int64_t length);

/* -- request_headers.c ------------------------------------------------------------------------- */

/* The fields that go upstream, into out[REQUEST_HEADERS_MAX]; text that is made is put into
 * scratch.  Returns the count, or 0: they do not fit. */
size_t headers_to_upstream(const struct request *r, struct http_header *out,
                           char *scratch, size_t scratch_size);

/* Sort the fields of the upstream's reply into what is kept and what only the first client
 * gets.  BUF_OK or an error of buf. */
int headers_from_upstream(struct request *r, const struct http1_head *head);

#endif
