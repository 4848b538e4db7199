/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream: the service side of the engine: connections to one address, and calls over them.
 *
 *     upstream_call_start -> ready -> upstream_head, upstream_body*, upstream_end
 *                                     -> interim* -> head -> body* -> end | failed
 *
 * A call is never sent twice.  Until its first byte was given to the kernel it may move to another
 * connection (a kept one that turns out to be dead), with another `ready`; after it, whatever happens is told, with the
 * number of bytes that may have left.
 *
 * A name may have several addresses: new connections take them in turn, and one that cannot be made goes on with
 * the next, within the time that connecting may take.
 *
 * Kept connections: at most 2 s idle, and less if the upstream's Keep-Alive says so; looked at
 * before use; bytes that nobody asked for close them and never count as an answer.
 */
#ifndef NET_UPSTREAM_H
#define NET_UPSTREAM_H

#include <stdatomic.h>

#include "core/http1_parse.h"
#include "net/address.h"
#include "net/deadline.h"

struct upstream;
struct upstream_conn;
struct upstream_call;

enum upstream_failure {
        UPSTREAM_UNREACHABLE, /* no connection: refused, no such name, timed out; nothing was sent */
        UPSTREAM_BUSY,        /* too many wait for a connection already; nothing was sent */
        UPSTREAM_RESET,       /* the connection broke, or ended before the reply was whole */
        UPSTREAM_GARBAGE,     /* what came is no HTTP reply */
};

struct upstream_handler {
        /* A connection is there: send now, or cancel. */
        void (*ready)(struct upstream_call *call);
        void (*interim)(struct upstream_call *call, const struct http1_head *head);
        void (*head)(struct upstream_call *call, const struct http1_head *head);
        void (*body)(struct upstream_call *call, struct span piece);
        void (*flush)(struct upstream_call *call); /* the end of a batch of events */
        void (*end)(struct upstream_call *call);
        /* `text` is one sentence.  call->sent says how many bytes may have left. */
        void (*failed)(struct upstream_call *call, enum upstream_failure why, const char *text);
        void (*drained)(struct upstream_call *call); /* more of the request may be sent */
};

/* Lives in the caller's memory, which stays until `end`, `failed`, or upstream_call_cancel(). */
struct upstream_call {
        const struct upstream_handler *handler;
        void *app;
        uint64_t sent; /* bytes of the request that may have reached the upstream */
        /* Set in `ready` by a handler that cannot give the request a second time: then the call fails
         * where it would go on with another connection, with nothing sent. */
        bool once;

        /* the pool's own */
        struct upstream *up;
        struct upstream_conn *conn;
        struct upstream_call *prev, *next; /* waiting for a connection */
        bool waiting, turned_away, request_done;
        int tries;
};

struct upstream_config {
        struct address address;
        size_t connections_max;
        size_t waiting_max; /* past it a call fails with UPSTREAM_BUSY */
        int64_t connect_timeout_us;
        /* NULL, or counted here, for other threads to look at. */
        atomic_int_fast64_t *waiting, *held_bytes;
};

/* NULL: no memory. */
struct upstream *upstream_new(struct loop *loop, struct deadline_list *deadlines,
                              const struct upstream_config *config);
/* No call may be under way.  Freed when its connections are closed.  NULL is fine. */
void upstream_free(struct upstream *up);

size_t upstream_connections(const struct upstream *up);
size_t upstream_waiting(const struct upstream *up);

/* Begin a call.  Nothing is called back inside. */
void upstream_call_start(struct upstream *up, struct upstream_call *call,
                         const struct upstream_handler *handler, void *app);

/* Forget the call: its connection is closed if anything was sent.  Nothing is called back. */
void upstream_call_cancel(struct upstream_call *call);

#define UPSTREAM_CHUNKED INT64_C(-1)
#define UPSTREAM_NO_BODY INT64_C(-2) /* and no Content-Length: GET */

/* The request, from inside or after `ready`.
 * length   of the body, or one of the two above.
 * headers  without framing, Connection and hop-by-hop fields.
 * false: it could not be sent; `failed` follows. */
bool upstream_head(struct upstream_call *call, struct span method, struct span target,
                   const struct http_header *headers, size_t n, int64_t length);
bool upstream_body(struct upstream_call *call, struct span piece);
bool upstream_flush(struct upstream_call *call);
bool upstream_end(struct upstream_call *call);
bool upstream_is_slow(const struct upstream_call *call);

/* Hold the reply's body back, or let it come. */
void upstream_pause(struct upstream_call *call);
void upstream_resume(struct upstream_call *call);
bool upstream_is_paused(const struct upstream_call *call);

#endif
