/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server: the client side of the engine: a listener, its connections, and one exchange (a
 * request and its reply) at a time on each.
 *
 * The handler gets a request as events and answers through the functions below, at once or
 * later.  Requests that a client sends ahead (pipelining) wait, in their bytes, until the one
 * before is answered.  A head's spans live until the exchange ends.
 *
 *     head -> body* -> end      the request;   `gone` ends it early: the client went away
 *     http_reply_head -> http_reply_body* -> http_reply_end
 *
 * After `gone`, and after http_reply_end() or http_exchange_abort(), the exchange does not exist any
 * more: the handler forgets it.  Neither happens inside the other.
 *
 * A reply may be given before the request's body is read.  A small rest of the body is then read
 * and dropped; otherwise the connection is closed, and the reply says so: bytes of a body never
 * become a next request.
 */
#ifndef NET_HTTP_SERVER_H
#define NET_HTTP_SERVER_H

#include <stdatomic.h>

#include "core/http1_parse.h"
#include "net/address.h"
#include "net/deadline.h"

struct http_server;

struct http_exchange {
        const struct http1_head *request;
        char peer[64]; /* the client's address, for logs and Forwarded; "unix" */
        void *app;     /* the handler's own */
};

struct http_handler {
        void (*head)(void *arg, struct http_exchange *ex);
        void (*body)(void *arg, struct http_exchange *ex, struct span piece);
        void (*end)(void *arg, struct http_exchange *ex);
        void (*drained)(void *arg, struct http_exchange *ex);
        void (*gone)(void *arg, struct http_exchange *ex);
        /* A message that is no HTTP: answered and closed by the server; for logs and metrics. */
        void (*failed)(void *arg, const char *peer, enum http1_error error);
        void *arg;
};

struct http_server_config {
        struct address listen;
        bool reuse_port;         /* several loops listen on one port */
        size_t connections_max;  /* past it, new ones are closed at once */
        int64_t idle_timeout_us; /* between requests */
        int64_t head_timeout_us; /* for a head, from its first byte */
        int64_t body_timeout_us; /* without a byte of a body read, or of a reply taken */
        /* NULL, or counted here as they come and go, for other threads to look at. */
        atomic_int_fast64_t *connections, *held_bytes;
};

/* Listen.  Errors: SEMEL_ERR_ARGUMENT (an address that cannot be had: says why). */
semel_code http_server_new(struct loop *loop, struct deadline_list *deadlines,
                           const struct http_server_config *config,
                           const struct http_handler *handler, struct http_server **ret_server,
                           semel_error *err);

/* The port that was taken, for port 0. */
uint16_t http_server_port(const struct http_server *server);

size_t http_server_connections(const struct http_server *server);

/* Has some client still to take a part of its reply? */
bool http_server_has_backlog(const struct http_server *server);

/* Stop accepting; idle connections are closed, the others after the exchange that is under
 * way, whose reply says so. */
void http_server_drain(struct http_server *server);

/* Close everything that is left; `gone` comes for the exchanges under way.  Freed when all
 * is closed.  NULL is fine. */
void http_server_free(struct http_server *server);

/* -- an exchange ------------------------------------------------------------------------ */

/* The handler wants the body: tells a client that waits for it (Expect: 100-continue). */
void http_exchange_continue(struct http_exchange *ex);

/* Hold the request's body back, or let it come. */
void http_exchange_pause(struct http_exchange *ex);
void http_exchange_resume(struct http_exchange *ex);
bool http_exchange_is_paused(const struct http_exchange *ex);

/* Close the connection without (the rest of) an answer.  `gone` does not follow. */
void http_exchange_abort(struct http_exchange *ex);

/* How the reply's body is framed. */
#define HTTP_REPLY_STREAM INT64_C(-1) /* length unknown: chunked, or until close for HTTP/1.0 */

/* Begin the reply.  headers: without framing and Connection, which are the server's.
 * length    the body's length, or HTTP_REPLY_STREAM.  For HEAD and 304 it is only said; for 204
 *           it must be 0, and nothing is said.
 * close     the connection ends after this reply.
 * false: what was given is no head (the connection is closed, and `gone` follows). */
bool http_reply_head(struct http_exchange *ex, int status, struct span reason,
                     const struct http_header *headers, size_t n, int64_t length, bool close);

/* A piece of the body.  Small ones are gathered until http_reply_flush() or the end.
 * false: the client is gone, or takes too little (`gone` follows). */
bool http_reply_body(struct http_exchange *ex, struct span piece);

/* Send what was gathered: at the end of each batch of pieces. */
bool http_reply_flush(struct http_exchange *ex);

/* Has the client so much to take that it is better to wait for `drained`? */
bool http_reply_is_slow(const struct http_exchange *ex);

/* The reply is whole.  A body shorter than its length closes the connection. */
void http_reply_end(struct http_exchange *ex);

/* Head, body and end in one.  The exchange is over for the handler: `gone` does not follow. */
void http_reply(struct http_exchange *ex, int status, const struct http_header *headers, size_t n,
                struct span body, bool close);

#endif
