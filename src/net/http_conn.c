/* SPDX-License-Identifier: Apache-2.0
 *
 * http_conn: see http_conn.h.  Reading is feed(): a loop over the parser's events, which the
 * handler may answer from inside.  What must not happen inside an event, or inside a call of the
 * handler, is left to the end of feed(), or to the deadline.
 */
#include "net/http_conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum {
        AHEAD_BYTES_MAX = 64 * 1024,  /* of pipelined requests; past it the client waits */
        PAUSED_BYTES_MAX = 4 * 1024,  /* of a paused body; most come along with their head */
        GATHER_BYTES = 16 * 1024,     /* small pieces of a reply are joined up to this */
        COPY_BYTES_MAX = 2 * 1024,    /* a larger piece is sent as it is */
        REST_BYTES_MAX = 256 * 1024,  /* of a body that nobody wants: read and dropped */
};
#define LINGER_US (2 * INT64_C(1000000))

/* -- small steps -------------------------------------------------------------------------------- */

static struct http_conn *conn_of(struct http_exchange *ex)
{
        return (struct http_conn *)((char *)ex - offsetof(struct http_conn, ex));
}

static void drop_buffers(struct http_conn *conn)
{
        message_buffers_put(conn->bufs);
        conn->bufs = NULL;
}

static void deadline_in(struct http_conn *conn, int64_t us)
{
        if (conn->sock.broken)
                us = 0; /* fail_later() stands */
        deadline_set(conn->server->deadlines, &conn->deadline, loop_now_us(conn->server->loop) + us);
}

/* Until some of what waits for the client is taken. */
static void await_taking(struct http_conn *conn)
{
        conn->untaken = sock_untaken(&conn->sock);
        deadline_in(conn, conn->server->config.body_timeout_us);
}

static void close_now(struct http_conn *conn)
{
        conn->state = CONN_CLOSED;
        deadline_clear(&conn->deadline);
        sock_close(&conn->sock);
}

/* The handler forgets the exchange because the client is gone. */
static void gone(struct http_conn *conn)
{
        if (!conn->exchange)
                return;
        conn->exchange = false;
        conn->server->handler.gone(conn->server->handler.arg, &conn->ex);
}

void http_conn_abort(struct http_conn *conn)
{
        if (conn->state == CONN_CLOSED)
                return;
        close_now(conn);
        gone(conn);
}

/* A failure inside a call of the handler: told by the deadline, not from inside. */
static void fail_later(struct http_conn *conn)
{
        conn->sock.broken = true;
        deadline_in(conn, 0);
}

/* Half close, and read until the client has seen it: a reset would take the reply away. */
static void on_shutdown(uv_shutdown_t *req, int status)
{
        (void)req;
        (void)status;
}

static void flush(struct http_conn *conn)
{
        conn->state = CONN_FLUSH;
        sock_read_stop(&conn->sock);
        await_taking(conn);
}

static void linger(struct http_conn *conn)
{
        if (sock_backlog(&conn->sock) > 0 && !conn->sock.broken) {
                conn->close_after = true;
                flush(conn); /* and again when the client has taken it */
                return;
        }
        conn->state = CONN_LINGER;
        conn->rest_left = REST_BYTES_MAX;
        drop_buffers(conn);
        if (conn->peer_done ||
            uv_shutdown(&conn->shutdown, &conn->sock.uv.stream, on_shutdown) != 0 ||
            sock_read_start(&conn->sock) != 0) {
                close_now(conn);
                return;
        }
        deadline_in(conn, LINGER_US);
}

/* -- the end of an exchange ------------------------------------------------------------------------ */

static void feed(struct http_conn *conn, struct span in);

static void idle(struct http_conn *conn)
{
        if (conn->server->draining) {
                linger(conn);
                return;
        }
        conn->state = CONN_IDLE;
        drop_buffers(conn);
        conn->untaken = sock_untaken(&conn->sock);
        deadline_in(conn, conn->server->config.idle_timeout_us);
        if (sock_read_start(&conn->sock) != 0)
                close_now(conn);
}

/* What was read and could not be looked at then; an END may be due without a byte. */
static void feed_ahead(struct http_conn *conn)
{
        struct buf ahead = conn->ahead;
        buf_init(&conn->ahead, ahead.max);
        feed(conn, buf_span(&ahead));
        buf_release(&ahead);
}

/* Request and reply are through: on to the next one. */
static void next_request(struct http_conn *conn)
{
        if (conn->close_after || conn->peer_done) {
                linger(conn);
                return;
        }
        /* A client that asks on and takes nothing would pile up replies without end. */
        if (sock_backlog(&conn->sock) > SOCK_BACKLOG_HIGH) {
                flush(conn);
                return;
        }
        http1_restart(&conn->bufs->parser);
        conn->replying = conn->request_done = conn->head_only = conn->paused = false;
        conn->continue_sent = false;
        idle(conn);
        if (conn->in_event || conn->state != CONN_IDLE || conn->ahead.n == 0)
                return; /* feed() goes on with what it has */
        feed_ahead(conn);
}

static void reply_done(struct http_conn *conn)
{
        conn->exchange = false;
        conn->replying = false;
        if (conn->request_done) {
                next_request(conn);
                return;
        }
        if (conn->close_after) {
                linger(conn);
                return;
        }
        conn->state = CONN_REST;
        conn->rest_left = REST_BYTES_MAX;
        conn->paused = false;
        deadline_in(conn, LINGER_US);
        if (sock_read_start(&conn->sock) != 0)
                close_now(conn);
        else if (!conn->in_event)
                feed_ahead(conn); /* of the body, from when it was paused: no later request */
}

/* A message that is no HTTP, or came too slowly: say so, and close. */
static void refuse(struct http_conn *conn, int status, const char *text)
{
        struct buf out;
        char body[256];
        const struct span type = span_str("application/problem+json");
        int n = snprintf(body, sizeof body,
                         "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,"
                         "\"detail\":\"%s\",\"retryable\":false}",
                         http1_reason(status), status, text);
        buf_init(&out, 4096);
        http1_write_reply(&conn->writer, &out, 11, status, span_str(http1_reason(status)));
        http1_write_header(&conn->writer, span_str("Content-Type"), type);
        http1_write_header(&conn->writer, span_str("Connection"), span_str("close"));
        http1_write_length(&conn->writer, (uint64_t)n);
        http1_write_body(&conn->writer, span_of(body, (size_t)n));
        bool written = http1_write_end(&conn->writer) == BUF_OK;
        if (written && !conn->replying) {
                const struct span piece = buf_span(&out);
                (void)sock_write(&conn->sock, &piece, 1);
        }
        buf_release(&out);
        conn->state = CONN_CLOSED; /* whatever `gone` does, nothing is read any more */
        gone(conn);
        linger(conn);
}

/* -- reading ------------------------------------------------------------------------------------------ */

/* A request whose beginning was read, and that is not wanted any more: drop its rest. */
static void drop(struct http_conn *conn, size_t n)
{
        if (n > conn->rest_left) {
                linger(conn);
                return;
        }
        conn->rest_left -= n;
}

static void on_head(struct http_conn *conn)
{
        const struct http1_head *head = &conn->bufs->parser.head;
        conn->state = CONN_BODY;
        conn->ex.request = head;
        conn->ex.app = NULL;
        conn->exchange = true;
        conn->close_after = !head->keep_alive;
        conn->head_only = span_eq(head->method, span_str("HEAD"));
        if (conn->server->draining)
                conn->close_after = true;
        deadline_in(conn, conn->server->config.body_timeout_us);
        conn->server->handler.head(conn->server->handler.arg, &conn->ex);
}

static void on_end(struct http_conn *conn)
{
        conn->request_done = true;
        if (conn->state == CONN_REST) {
                next_request(conn);
                return;
        }
        conn->state = CONN_ANSWER;
        if (sock_backlog(&conn->sock) > 0)
                await_taking(conn); /* the reply began before the request's end */
        else if (!conn->sock.broken)
                deadline_clear(&conn->deadline); /* the handler has its own */
        conn->server->handler.end(conn->server->handler.arg, &conn->ex);
}

static void on_failed(struct http_conn *conn)
{
        enum http1_error error = conn->bufs->parser.error;
        const struct http1_error_entry *entry = http1_error_entry(error);
        if (conn->server->handler.failed)
                conn->server->handler.failed(conn->server->handler.arg, conn->ex.peer, error);
        refuse(conn, entry->status ? entry->status : 400, entry->text);
}

/* Keep what cannot be looked at yet. */
static void keep_ahead(struct http_conn *conn, struct span in)
{
        if (in.n > 0 && buf_append_span(&conn->ahead, in) != BUF_OK)
                fail_later(conn);
        if (conn->ahead.n > (conn->paused ? PAUSED_BYTES_MAX : AHEAD_BYTES_MAX))
                sock_read_stop(&conn->sock);
}

/* One event.  false: nothing more can be done with `in` now. */
static bool feed_one(struct http_conn *conn, struct span *in)
{
        struct span body;
        if (conn->state == CONN_IDLE) {
                if (!(conn->bufs || (conn->bufs = message_buffers_get(HTTP1_REQUESTS)))) {
                        close_now(conn);
                        return false;
                }
                conn->state = CONN_HEAD;
                deadline_in(conn, conn->server->config.head_timeout_us);
        }
        switch (http1_next(&conn->bufs->parser, in, &body)) {
        case HTTP1_HEAD:
                on_head(conn);
                return true;
        case HTTP1_BODY:
                if (conn->state == CONN_REST)
                        drop(conn, body.n);
                else
                        conn->server->handler.body(conn->server->handler.arg, &conn->ex, body);
                return true;
        case HTTP1_END:
                on_end(conn);
                return true;
        case HTTP1_FAILED:
                on_failed(conn);
                return false;
        case HTTP1_NEED_MORE:
        case HTTP1_CLOSED:
                break;
        }
        return false;
}

static bool can_read(const struct http_conn *conn)
{
        return !conn->paused && (conn->state == CONN_HEAD || conn->state == CONN_BODY ||
                                 conn->state == CONN_REST);
}

static void feed(struct http_conn *conn, struct span in)
{
        assert(!conn->in_event);
        conn->in_event = true;
        /* An END may be due without a byte: a request without a body. */
        while ((conn->state == CONN_IDLE && in.n > 0) || can_read(conn))
                if (!feed_one(conn, &in))
                        break;
        conn->in_event = false;
        if (conn->state == CONN_ANSWER || (conn->state == CONN_BODY && conn->paused) ||
            (conn->state == CONN_FLUSH && !conn->close_after))
                keep_ahead(conn, in);
}

static void sock_on_read(struct sock *s, struct span bytes)
{
        struct http_conn *conn = (struct http_conn *)s;
        switch (conn->state) {
        case CONN_CLOSED:
                return;
        case CONN_LINGER:
                if (bytes.n > conn->rest_left)
                        close_now(conn);
                else
                        conn->rest_left -= bytes.n;
                return;
        case CONN_ANSWER:
        case CONN_FLUSH:
                keep_ahead(conn, bytes);
                return;
        case CONN_BODY:
                deadline_in(conn, conn->server->config.body_timeout_us);
                break;
        case CONN_IDLE:
        case CONN_HEAD:
        case CONN_REST:
                break;
        }
        feed(conn, bytes);
}

static void sock_on_end(struct sock *s, int n)
{
        struct http_conn *conn = (struct http_conn *)s;
        (void)n;
        conn->peer_done = true;
        http_conn_abort(conn);
}

/* -- time ------------------------------------------------------------------------------------------------ */

/* A client that is slow, but has taken some of its reply, gets as much time again. */
static bool takes(struct http_conn *conn)
{
        if (sock_untaken(&conn->sock) >= conn->untaken)
                return false;
        await_taking(conn);
        return true;
}

static void on_deadline(struct deadline *d)
{
        struct http_conn *conn =
                (struct http_conn *)((char *)d - offsetof(struct http_conn, deadline));
        if (conn->sock.broken) {
                http_conn_abort(conn);
                return;
        }
        switch (conn->state) {
        case CONN_HEAD:
                refuse(conn, 408, "the request's head took too long");
                return;
        case CONN_BODY:
                /* Of a reply that began early, the handler may wait for it to be taken. */
                if (conn->replying && sock_backlog(&conn->sock) > 0) {
                        if (takes(conn))
                                return;
                        break;
                }
                if (conn->paused) { /* it is the handler that waits, not the client */
                        deadline_in(conn, conn->server->config.body_timeout_us);
                        return;
                }
                if (!conn->replying) {
                        refuse(conn, 408, "the request's body stopped coming");
                        return;
                }
                break;
        case CONN_ANSWER: /* armed by a reply that is not taken */
        case CONN_FLUSH:
        case CONN_IDLE:
                if (takes(conn))
                        return;
                break;
        case CONN_REST:
        case CONN_LINGER:
        case CONN_CLOSED:
                break;
        }
        http_conn_abort(conn);
}

static void sock_on_drained(struct sock *s)
{
        struct http_conn *conn = (struct http_conn *)s;
        if (conn->state == CONN_ANSWER && !conn->sock.broken) /* fail_later() stands */
                deadline_clear(&conn->deadline);
        if (conn->state == CONN_FLUSH) {
                if (conn->close_after)
                        linger(conn);
                else
                        next_request(conn);
                return;
        }
        if (conn->exchange)
                conn->server->handler.drained(conn->server->handler.arg, &conn->ex);
}

/* -- life ------------------------------------------------------------------------------------------------- */

static void sock_on_closed(struct sock *s)
{
        struct http_conn *conn = (struct http_conn *)s;
        drop_buffers(conn);
        buf_release(&conn->ahead);
        buf_release(&conn->out);
        http_server_conn_closed(conn->server, conn);
        free(conn);
}

static const struct sock_vt conn_sock = {
        .read = sock_on_read,
        .end = sock_on_end,
        .drained = sock_on_drained,
        .closed = sock_on_closed,
};

struct http_conn *http_conn_new(struct http_server *server)
{
        struct http_conn *conn = calloc(1, sizeof *conn);
        if (!conn || sock_init(&conn->sock, server->loop, server->config.listen.is_unix, &conn_sock)) {
                free(conn);
                return NULL;
        }
        conn->server = server;
        conn->deadline.fire = on_deadline;
        buf_init(&conn->ahead, AHEAD_BYTES_MAX + SOCK_READ_BYTES);
        buf_init(&conn->out, SOCK_BACKLOG_MAX);
        conn->next = server->conns;
        if (conn->next)
                conn->next->prev = conn;
        server->conns = conn;
        server->conn_count++;
        if (server->config.connections)
                atomic_fetch_add(server->config.connections, 1);
        conn->sock.held = server->config.held_bytes;
        return conn;
}

/* The client's address as text. */
static void name_peer(struct http_conn *conn)
{
        struct sockaddr_storage addr;
        int n = sizeof addr;
        (void)snprintf(conn->ex.peer, sizeof conn->ex.peer, "unix");
        if (conn->server->config.listen.is_unix ||
            uv_tcp_getpeername(&conn->sock.uv.tcp, (struct sockaddr *)&addr, &n) != 0)
                return;
        if (addr.ss_family == AF_INET)
                (void)uv_ip4_name((struct sockaddr_in *)&addr, conn->ex.peer, sizeof conn->ex.peer);
        else
                (void)uv_ip6_name((struct sockaddr_in6 *)&addr, conn->ex.peer,
                                  sizeof conn->ex.peer);
        /* An IPv4 client of a listener for both. */
        if (strncmp(conn->ex.peer, "::ffff:", 7) == 0 && strchr(conn->ex.peer, '.'))
                memmove(conn->ex.peer, conn->ex.peer + 7, strlen(conn->ex.peer + 7) + 1);
}

void http_conn_start(struct http_conn *conn)
{
        name_peer(conn);
        idle(conn);
}

void http_conn_drain(struct http_conn *conn)
{
        conn->close_after = true; /* also of one that only waits for its reply to be taken */
        if (conn->state != CONN_IDLE)
                return;
        if (sock_backlog(&conn->sock) > 0)
                linger(conn); /* when the client has taken its reply */
        else
                close_now(conn);
}

/* -- the handler's side -------------------------------------------------------------------------------------- */

void http_exchange_continue(struct http_exchange *ex)
{
        static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
        struct http_conn *conn = conn_of(ex);
        if (!ex->request->expect_continue || conn->continue_sent || conn->replying)
                return;
        conn->continue_sent = true;
        const struct span piece = span_of(line, sizeof line - 1);
        if (sock_write(&conn->sock, &piece, 1) != 0)
                fail_later(conn);
}

void http_exchange_pause(struct http_exchange *ex)
{
        conn_of(ex)->paused = true; /* reading stops when more than a little comes */
}

bool http_exchange_is_paused(const struct http_exchange *ex)
{
        return ((const struct http_conn *)((const char *)ex - offsetof(struct http_conn, ex)))->paused;
}

void http_exchange_resume(struct http_exchange *ex)
{
        struct http_conn *conn = conn_of(ex);
        if (!conn->paused)
                return;
        conn->paused = false;
        if (conn->state == CONN_BODY)
                deadline_in(conn, conn->server->config.body_timeout_us);
        if (sock_read_start(&conn->sock) != 0) {
                fail_later(conn);
                return;
        }
        if (!conn->in_event)
                feed_ahead(conn);
}

void http_exchange_abort(struct http_exchange *ex)
{
        struct http_conn *conn = conn_of(ex);
        conn->exchange = false;
        close_now(conn);
}

static bool flush_with(struct http_conn *conn, struct span piece, struct span tail)
{
        const struct span pieces[3] = {buf_span(&conn->out), piece, tail};
        int rc = sock_write(&conn->sock, pieces, 3);
        buf_clear(&conn->out);
        if (rc != 0) {
                fail_later(conn);
                return false;
        }
        if (conn->state == CONN_BODY && !conn->paused)
                conn->untaken = sock_untaken(&conn->sock); /* the body's deadline runs */
        else if (sock_backlog(&conn->sock) > 0)
                await_taking(conn);
        return true;
}

/* How much of the request's body is still to come, as far as one can tell. */
static bool rest_is_long(const struct http_conn *conn)
{
        const struct http1_head *head = conn->ex.request;
        if (conn->request_done || head->framing == HTTP1_NONE)
                return false;
        return head->framing != HTTP1_LENGTH || head->expect_continue ||
               head->content_length - conn->bufs->parser.body_bytes > REST_BYTES_MAX;
}

static void write_framing(struct http_conn *conn, int status, int64_t length)
{
        struct http1_writer *w = &conn->writer;
        bool bodiless = conn->head_only || status == 204 || status == 304;
        bool unsaid = status == 204 || (status == 304 && length == 0);
        if (bodiless && length >= 0 && !unsaid)
                http1_write_length_only(w, (uint64_t)length);
        else if (bodiless)
                http1_write_no_body(w);
        else if (length >= 0)
                http1_write_length(w, (uint64_t)length);
        else if (conn->ex.request->version >= 11)
                http1_write_chunked(w);
        else
                http1_write_until_close(w);
        conn->head_only = bodiless;
}

bool http_reply_head(struct http_exchange *ex, int status, struct span reason,
                     const struct http_header *headers, size_t n, int64_t length, bool close)
{
        struct http_conn *conn = conn_of(ex);
        struct http1_writer *w = &conn->writer;
        if (close || rest_is_long(conn) || conn->server->draining ||
            (length < 0 && ex->request->version < 11 && !conn->head_only))
                conn->close_after = true;
        conn->replying = true;
        buf_clear(&conn->out);
        http1_write_reply(w, &conn->out, 11, status, reason);
        for (size_t i = 0; i < n; i++)
                http1_write_header(w, headers[i].name, headers[i].value);
        if (conn->close_after)
                http1_write_header(w, span_str("Connection"), span_str("close"));
        else if (ex->request->version < 11)
                http1_write_header(w, span_str("Connection"), span_str("keep-alive"));
        write_framing(conn, status, length);
        if (w->rc != BUF_OK) {
                fail_later(conn);
                return false;
        }
        return true;
}

bool http_reply_flush(struct http_exchange *ex)
{
        struct http_conn *conn = conn_of(ex);
        if (conn->out.n == 0)
                return !conn->sock.broken;
        return flush_with(conn, span_of(NULL, 0), span_of(NULL, 0));
}

bool http_reply_body(struct http_exchange *ex, struct span piece)
{
        struct http_conn *conn = conn_of(ex);
        struct http1_writer *w = &conn->writer;
        if (piece.n == 0 || conn->head_only || conn->sock.broken)
                return !conn->sock.broken; /* amid a piece that failed nothing can be written */
        if (piece.n <= COPY_BYTES_MAX) {
                http1_write_body(w, piece);
                if (w->rc == BUF_OK)
                        return conn->out.n < GATHER_BYTES || http_reply_flush(ex);
        } else {
                http1_write_body_head(w, piece.n);
                if (w->rc == BUF_OK && flush_with(conn, piece, span_of(NULL, 0))) {
                        http1_write_body_tail(w);
                        return w->rc == BUF_OK;
                }
        }
        fail_later(conn);
        return false;
}

bool http_reply_is_slow(const struct http_exchange *ex)
{
        const struct http_conn *conn =
                (const struct http_conn *)((const char *)ex - offsetof(struct http_conn, ex));
        return sock_backlog(&conn->sock) > SOCK_BACKLOG_HIGH;
}

void http_reply_end(struct http_exchange *ex)
{
        struct http_conn *conn = conn_of(ex);
        bool whole = !conn->sock.broken &&
                     (conn->head_only || http1_write_end(&conn->writer) == BUF_OK);
        conn->exchange = false;
        if (!whole || !http_reply_flush(ex)) {
                close_now(conn); /* the client sees that it is cut */
                return;
        }
        reply_done(conn);
}

void http_reply(struct http_exchange *ex, int status, const struct http_header *headers, size_t n,
                struct span body, bool close)
{
        if (http_reply_head(ex, status, span_str(http1_reason(status)), headers, n, (int64_t)body.n,
                            close) &&
            http_reply_body(ex, body))
                http_reply_end(ex);
        else
                conn_of(ex)->exchange = false;
}
