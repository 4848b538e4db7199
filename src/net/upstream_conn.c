/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_conn: see upstream_conn.h.
 */
#include "net/upstream_conn.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
        GATHER_BYTES = 16 * 1024,
        COPY_BYTES_MAX = 2 * 1024,
        HELD_BYTES_MAX = 1024 * 1024, /* read before reading could be stopped */
        TRIES_MAX = 3,                /* dead kept connections in a row, with nothing sent */
};

/* -- ends ----------------------------------------------------------------------------------------- */

static void drop_buffers(struct upstream_conn *conn)
{
        message_buffers_put(conn->bufs);
        conn->bufs = NULL;
}

void upstream_conn_close(struct upstream_conn *conn)
{
        if (conn->state == UP_CLOSED)
                return;
        if (conn->state == UP_CONNECTING)
                upstream_forget_unresolved(conn->up, conn);
        conn->state = UP_CLOSED;
        deadline_clear(&conn->deadline);
        sock_close(&conn->sock);
}

/* The call ends badly.  A call of which no byte was sent, on a connection that was kept, goes on
 * with another one, if it can be given again: nothing can have happened. */
void upstream_conn_failed(struct upstream_conn *conn, enum upstream_failure why, const char *text)
{
        struct upstream_call *call = conn->call;
        bool was_kept = conn->replied;
        conn->call = NULL;
        upstream_conn_close(conn);
        if (!call)
                return;
        call->conn = NULL;
        call->sent = conn->sock.sent;
        if (was_kept && call->sent == 0 && !call->once && call->tries < TRIES_MAX)
                upstream_call_again(call);
        else
                call->handler->failed(call, why, text);
}

void upstream_conn_abandon(struct upstream_conn *conn)
{
        conn->call->sent = conn->sock.sent;
        conn->call = NULL;
        if (conn->state == UP_BUSY)
                upstream_conn_close(conn);
        /* One that connects may serve somebody else. */
}

/* Told from the deadline: not inside a call of the handler. */
static void fail_later(struct upstream_conn *conn)
{
        conn->sock.broken = true;
        deadline_set(conn->up->deadlines, &conn->deadline, 0);
}

/* -- idle ones -------------------------------------------------------------------------------------- */

void upstream_conn_take(struct upstream_conn *conn)
{
        struct upstream *up = conn->up;
        *(conn->prev ? &conn->prev->next : &up->idle) = conn->next;
        if (conn->next)
                conn->next->prev = conn->prev;
        conn->prev = conn->next = NULL;
        deadline_clear(&conn->deadline);
}

bool upstream_conn_is_usable(struct upstream_conn *conn)
{
        return !conn->sock.broken &&
               (upstream_conn_is_watched(conn) || !sock_is_readable(&conn->sock));
}

static void keep(struct upstream_conn *conn)
{
        struct upstream *up = conn->up;
        /* A reply that was paused ends with reading stopped; nobody would see what comes then. */
        if (sock_read_start(&conn->sock) != 0) {
                upstream_conn_close(conn);
                return;
        }
        conn->state = UP_IDLE;
        conn->replied = true;
        conn->kept_turn = loop_turn(up->loop);
        drop_buffers(conn);
        conn->prev = NULL;
        conn->next = up->idle;
        if (conn->next)
                conn->next->prev = conn;
        up->idle = conn;
        deadline_set(up->deadlines, &conn->deadline, loop_now_us(up->loop) + conn->idle_us);
        upstream_dispatch(up);
}

/* -- a call ------------------------------------------------------------------------------------------ */

static void ready(struct upstream_conn *conn)
{
        struct upstream_call *call = conn->call;
        conn->state = UP_BUSY;
        conn->paused = false;
        deadline_clear(&conn->deadline);
        sock_count_from_here(&conn->sock);
        conn->bufs = message_buffers_get(HTTP1_REPLIES);
        if (!conn->bufs || sock_read_start(&conn->sock) != 0) {
                upstream_conn_failed(conn, UPSTREAM_UNREACHABLE, "no memory for a call upstream");
                return;
        }
        call->handler->ready(call);
}

void upstream_conn_serve(struct upstream_conn *conn, struct upstream_call *call)
{
        conn->call = call;
        call->conn = conn;
        if (conn->state == UP_IDLE)
                ready(conn);
        else
                upstream_resolve(conn->up, conn);
}

/* How long the upstream lets a connection idle, less a second (a request that crosses its
 * close would end as unknown). */
static int64_t idle_time_us(const struct http1_head *head)
{
        int said_s = http1_keep_alive_timeout_s(head);
        int64_t us = said_s < 0 ? UPSTREAM_IDLE_US : (said_s - 1) * INT64_C(1000000);
        return us < UPSTREAM_IDLE_US ? us : UPSTREAM_IDLE_US;
}

static void on_reply_end(struct upstream_conn *conn, bool bytes_left)
{
        struct upstream_call *call = conn->call;
        bool reusable = call->request_done && conn->bufs->parser.head.keep_alive && !bytes_left &&
                        !conn->sock.broken && sock_backlog(&conn->sock) == 0 && conn->idle_us > 0 &&
                        !conn->up->freeing;
        call->sent = conn->sock.sent;
        call->conn = NULL;
        conn->call = NULL;
        if (reusable)
                keep(conn);
        else
                upstream_conn_close(conn);
        call->handler->end(call);
}

/* One event of the reply.  false: nothing more can be done now. */
static bool feed_one(struct upstream_conn *conn, struct span *in)
{
        struct http1_parser *p = &conn->bufs->parser;
        struct upstream_call *call = conn->call;
        struct span body;
        switch (http1_next(p, in, &body)) {
        case HTTP1_HEAD:
                if (p->head.interim) {
                        call->handler->interim(call, &p->head);
                        return true;
                }
                conn->idle_us = idle_time_us(&p->head);
                call->handler->head(call, &p->head);
                return true;
        case HTTP1_BODY:
                call->handler->body(call, body);
                return true;
        case HTTP1_END:
                on_reply_end(conn, in->n > 0);
                return false;
        case HTTP1_FAILED:
                upstream_conn_failed(conn, UPSTREAM_GARBAGE, http1_error_entry(p->error)->text);
                return false;
        case HTTP1_NEED_MORE:
        case HTTP1_CLOSED:
                break;
        }
        return false;
}

static void feed(struct upstream_conn *conn, struct span in)
{
        assert(!conn->in_event);
        conn->in_event = true;
        struct upstream_call *call = conn->call;
        while (conn->call == call && conn->state == UP_BUSY && !conn->paused)
                if (!feed_one(conn, &in))
                        break;
        conn->in_event = false;
        if (conn->call != call || conn->state != UP_BUSY)
                return;
        if (conn->paused && in.n > 0) {
                sock_read_stop(&conn->sock);
                if (buf_append_span(&conn->held, in) != BUF_OK) {
                        fail_later(conn);
                        return;
                }
        }
        call->handler->flush(call);
}

static void sock_on_read(struct sock *s, struct span bytes)
{
        struct upstream_conn *conn = (struct upstream_conn *)s;
        if (conn->state == UP_IDLE) { /* nobody asked: a 408, or a desynchronised reply */
                upstream_conn_take(conn);
                upstream_conn_close(conn);
                return;
        }
        if (conn->state != UP_BUSY)
                return;
        if (conn->sock.sent == 0) { /* before our first byte: it answers nothing of ours */
                conn->sock.broken = true;
                upstream_conn_failed(conn, UPSTREAM_GARBAGE,
                                     "the upstream spoke before it was asked");
                return;
        }
        feed(conn, bytes);
}

/* What came and is held back is still to be looked at before the end is. */
static void reply_eof(struct upstream_conn *conn)
{
        switch (http1_eof(&conn->bufs->parser)) {
        case HTTP1_END:
                on_reply_end(conn, true);
                return;
        case HTTP1_CLOSED:
                upstream_conn_failed(conn, UPSTREAM_RESET,
                                     "the upstream closed the connection without an answer");
                return;
        default:
                upstream_conn_failed(conn, UPSTREAM_RESET, "the upstream's reply was cut");
        }
}

static void sock_on_end(struct sock *s, int n)
{
        struct upstream_conn *conn = (struct upstream_conn *)s;
        switch (conn->state) {
        case UP_IDLE:
                upstream_conn_take(conn);
                upstream_conn_close(conn);
                return;
        case UP_BUSY:
                break;
        case UP_CONNECTING:
        case UP_CLOSED:
                return;
        }
        conn->sock.broken = true;
        if (n != 0)
                upstream_conn_failed(conn, UPSTREAM_RESET, "the connection to the upstream broke");
        else if (!conn->paused)
                reply_eof(conn);
        /* else: upstream_resume() finds it */
}

static void sock_on_drained(struct sock *s)
{
        struct upstream_conn *conn = (struct upstream_conn *)s;
        if (conn->state == UP_BUSY && conn->call)
                conn->call->handler->drained(conn->call);
}

static bool connect_again(struct upstream_conn *conn);

static void sock_on_closed(struct sock *s)
{
        struct upstream_conn *conn = (struct upstream_conn *)s;
        struct upstream *up = conn->up;
        if (conn->state == UP_CONNECTING && connect_again(conn))
                return;
        drop_buffers(conn);
        buf_release(&conn->out);
        buf_release(&conn->held);
        *(conn->prev_all ? &conn->prev_all->next_all : &up->all) = conn->next_all;
        if (conn->next_all)
                conn->next_all->prev_all = conn->prev_all;
        free(conn);
        up->conn_count--;
        upstream_dispatch(up);
        upstream_free_if_done(up);
}

static const struct sock_vt upstream_sock = {
        .read = sock_on_read,
        .end = sock_on_end,
        .drained = sock_on_drained,
        .closed = sock_on_closed,
};

/* -- connecting ---------------------------------------------------------------------------------------- */

/* An address took no connection.  true: the next one is tried, when this one's socket is closed. */
static bool leave_address(struct upstream_conn *conn)
{
        struct upstream *up = conn->up;
        int64_t now_us = loop_now_us(up->loop);
        if (conn->tried == 0)
                return false; /* the name took too long */
        up->addresses[conn->address].avoided_until_us = now_us + UPSTREAM_AVOID_US;
        up->looked_up_us = 0; /* ask the name again */
        if (!conn->call || now_us >= conn->connect_until_us || upstream_untried(up, conn) == 0)
                return false;
        deadline_clear(&conn->deadline);
        sock_close(&conn->sock);
        return true;
}

static void connect_failed(struct upstream_conn *conn, const char *text)
{
        if (!leave_address(conn))
                upstream_conn_failed(conn, UPSTREAM_UNREACHABLE, text);
}

static void on_deadline(struct deadline *d)
{
        struct upstream_conn *conn =
                (struct upstream_conn *)((char *)d - offsetof(struct upstream_conn, deadline));
        switch (conn->state) {
        case UP_CONNECTING:
                connect_failed(conn, conn->sock.broken
                                             ? "the upstream cannot be reached"
                                             : "connecting to the upstream took too long");
                return;
        case UP_IDLE:
                upstream_conn_take(conn);
                upstream_conn_close(conn);
                return;
        case UP_BUSY: /* fail_later() */
                upstream_conn_failed(conn, UPSTREAM_RESET, "the connection to the upstream broke");
                return;
        case UP_CLOSED:
                return;
        }
}

static void on_connect(uv_connect_t *req, int status)
{
        struct upstream_conn *conn = req->data;
        if (conn->state != UP_CONNECTING || conn->sock.closing)
                return;
        if (status != 0) {
                char text[160];
                (void)snprintf(text, sizeof text, "the upstream cannot be reached: %s",
                               uv_strerror(status));
                connect_failed(conn, text);
                return;
        }
        conn->up->addresses[conn->address].avoided_until_us = 0;
        sock_nodelay(&conn->sock);
        conn->idle_us = UPSTREAM_IDLE_US;
        if (conn->call)
                ready(conn);
        else
                keep(conn); /* its call went away meanwhile */
}

void upstream_conn_connect(struct upstream_conn *conn, const struct sockaddr_storage *addr,
                           int64_t until_us)
{
        int rc = 0;
        conn->connect.data = conn;
        deadline_set(conn->up->deadlines, &conn->deadline, until_us);
        if (conn->up->config.address.is_unix)
                uv_pipe_connect(&conn->connect, &conn->sock.uv.pipe, conn->up->config.address.path,
                                on_connect);
        else
                rc = uv_tcp_connect(&conn->connect, &conn->sock.uv.tcp,
                                    (const struct sockaddr *)addr, on_connect);
        if (rc != 0 && !leave_address(conn))
                fail_later(conn);
}

static int open_sock(struct upstream_conn *conn)
{
        struct upstream *up = conn->up;
        int rc = sock_init(&conn->sock, up->loop, up->config.address.is_unix, &upstream_sock);
        conn->sock.held = up->config.held_bytes;
        return rc;
}

/* To the next address, if somebody still waits for it.  false: nothing is open any more. */
static bool connect_again(struct upstream_conn *conn)
{
        bool opened = conn->call && open_sock(conn) == 0;
        if (opened && upstream_try_next(conn->up, conn))
                return true;
        if (!opened)
                conn->sock.closing = true;
        upstream_conn_failed(conn, UPSTREAM_UNREACHABLE, "the upstream cannot be reached");
        return opened;
}

struct upstream_conn *upstream_conn_new(struct upstream *up)
{
        struct upstream_conn *conn = calloc(1, sizeof *conn);
        if (conn)
                conn->up = up;
        if (!conn || open_sock(conn) != 0) {
                free(conn);
                return NULL;
        }
        conn->deadline.fire = on_deadline;
        buf_init(&conn->out, SOCK_BACKLOG_MAX);
        buf_init(&conn->held, HELD_BYTES_MAX);
        conn->next_all = up->all;
        if (conn->next_all)
                conn->next_all->prev_all = conn;
        up->all = conn;
        up->conn_count++;
        conn->connect_until_us = loop_now_us(up->loop) + up->config.connect_timeout_us;
        deadline_set(up->deadlines, &conn->deadline, conn->connect_until_us);
        return conn;
}

/* -- sending ---------------------------------------------------------------------------------------------- */

static bool send_with(struct upstream_conn *conn, struct span piece)
{
        const struct span pieces[2] = {buf_span(&conn->out), piece};
        int rc = sock_write(&conn->sock, pieces, 2);
        buf_clear(&conn->out);
        if (rc != 0)
                fail_later(conn);
        return rc == 0;
}

bool upstream_head(struct upstream_call *call, struct span method, struct span target,
                   const struct http_header *headers, size_t n, int64_t length)
{
        struct upstream_conn *conn = call->conn;
        struct http1_writer *w = &conn->writer;
        http1_expect(&conn->bufs->parser, method);
        buf_clear(&conn->out);
        http1_write_request(w, &conn->out, 11, method, target);
        for (size_t i = 0; i < n; i++)
                http1_write_header(w, headers[i].name, headers[i].value);
        if (length == UPSTREAM_NO_BODY)
                http1_write_no_body(w);
        else if (length == UPSTREAM_CHUNKED)
                http1_write_chunked(w);
        else
                http1_write_length(w, (uint64_t)length);
        if (w->rc == BUF_OK)
                return true;
        fail_later(conn);
        return false;
}

bool upstream_flush(struct upstream_call *call)
{
        if (call->conn->out.n == 0)
                return !call->conn->sock.broken;
        return send_with(call->conn, span_of(NULL, 0));
}

bool upstream_body(struct upstream_call *call, struct span piece)
{
        struct upstream_conn *conn = call->conn;
        struct http1_writer *w = &conn->writer;
        if (piece.n == 0 || conn->sock.broken)
                return !conn->sock.broken; /* amid a piece that failed nothing can be written */
        if (piece.n <= COPY_BYTES_MAX) {
                http1_write_body(w, piece);
                if (w->rc == BUF_OK)
                        return conn->out.n < GATHER_BYTES || upstream_flush(call);
        } else {
                http1_write_body_head(w, piece.n);
                if (w->rc == BUF_OK && send_with(conn, piece)) {
                        http1_write_body_tail(w);
                        return w->rc == BUF_OK;
                }
        }
        fail_later(conn);
        return false;
}

bool upstream_end(struct upstream_call *call)
{
        if (call->conn->sock.broken)
                return false;
        if (http1_write_end(&call->conn->writer) != BUF_OK) {
                fail_later(call->conn);
                return false;
        }
        call->request_done = true;
        return upstream_flush(call);
}

bool upstream_is_slow(const struct upstream_call *call)
{
        return sock_backlog(&call->conn->sock) > SOCK_BACKLOG_HIGH;
}

void upstream_pause(struct upstream_call *call)
{
        struct upstream_conn *conn = call->conn;
        conn->paused = true;
        if (!conn->in_event)
                sock_read_stop(&conn->sock);
}

bool upstream_is_paused(const struct upstream_call *call)
{
        return call->conn && call->conn->paused;
}

void upstream_resume(struct upstream_call *call)
{
        struct upstream_conn *conn = call->conn;
        if (!conn || !conn->paused)
                return;
        conn->paused = false;
        if (conn->in_event)
                return;
        struct buf held = conn->held;
        buf_init(&conn->held, held.max);
        /* Also without a byte: the end of a body may be due.  The call may end in it, and be gone. */
        feed(conn, buf_span(&held));
        buf_release(&held);
        if (conn->call != call || conn->state != UP_BUSY || conn->paused)
                return;
        if (conn->sock.broken)
                reply_eof(conn); /* the end was read while it was paused */
        else if (sock_read_start(&conn->sock) != 0)
                fail_later(conn);
}
