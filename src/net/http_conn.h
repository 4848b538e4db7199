/* SPDX-License-Identifier: Apache-2.0
 *
 * http_conn: one client connection of an http_server.
 *
 *      IDLE ---> HEAD ---> BODY ---> ANSWER --+--> IDLE (the next request)
 *                            \                |
 *                             +--> REST ------+     reply done, a rest of the body is dropped
 *                                     \
 *                                      LINGER       half closed: so that the client reads the reply
 *                                                   before a reset can take it away
 */
#ifndef NET_HTTP_CONN_H
#define NET_HTTP_CONN_H

#include <sys/un.h>

#include "core/http1_write.h"
#include "net/http_server.h"
#include "net/message_buffers.h"
#include "net/sock.h"

enum conn_state {
        CONN_IDLE, CONN_HEAD, CONN_BODY, CONN_ANSWER, CONN_REST,
        CONN_FLUSH, /* nothing is read until the client has taken what it was sent */
        CONN_LINGER, CONN_CLOSED
};

struct http_conn {
        struct sock sock;
        struct http_server *server;
        struct http_conn *prev, *next;
        enum conn_state state;
        struct http_exchange ex;
        struct message_buffers *bufs; /* while a request is read or answered */
        struct buf ahead; /* bytes behind the request that is being answered */
        struct deadline deadline;
        uv_shutdown_t shutdown;
        struct http1_writer writer;
        struct buf out;     /* a reply's head, and framing of its body */
        uint64_t rest_left; /* REST, LINGER: bytes that may still be dropped */
        bool exchange;      /* the handler knows `ex` */
        bool paused;        /* by the handler */
        bool replying, request_done, close_after, head_only;
        bool in_event;      /* inside feed(): what arrives is continued there */
        bool continue_sent;
        bool peer_done;     /* end of file was read */
        size_t untaken;     /* of the reply, when last looked at */
};

struct http_server {
        struct loop *loop;
        struct deadline_list *deadlines;
        struct http_server_config config;
        struct http_handler handler;
        union {
                uv_handle_t handle;
                uv_stream_t stream;
                uv_tcp_t tcp;
                uv_pipe_t pipe;
        } listener;
        uint16_t port;
        bool listener_open, listener_closed, draining, freeing;
        bool away_busy; /* see turn_away() */
        struct http_conn *conns;
        size_t conn_count;
};

/* A connection to accept into; counted.  NULL: no memory. */
struct http_conn *http_conn_new(struct http_server *server);
void http_conn_start(struct http_conn *conn);
/* Close if idle, else after the exchange. */
void http_conn_drain(struct http_conn *conn);
/* Close now; `gone` for the exchange. */
void http_conn_abort(struct http_conn *conn);

/* From http_conn.c's last moment. */
void http_server_conn_closed(struct http_server *server, struct http_conn *conn);

#endif
