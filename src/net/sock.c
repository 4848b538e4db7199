/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: see sock.h.
 */
#include "net/sock.h"

#include <errno.h>
#include <poll.h>

/* The backlog and the largest piece that any owner writes at once (a kept reply). */
enum { BACKLOG_ABSOLUTE_MAX = 80 * 1024 * 1024 };

/* Where reads go: their bytes are used up inside the call, so one buffer a thread is enough. */
static _Thread_local char read_buf[SOCK_READ_BYTES];

int sock_init(struct sock *s, struct loop *loop, bool is_unix, const struct sock_vt *vt)
{
        *s = (struct sock){.vt = vt, .loop = loop};
        int rc = is_unix ? uv_pipe_init(loop_uv(loop), &s->uv.pipe, 0)
                         : uv_tcp_init(loop_uv(loop), &s->uv.tcp);
        if (rc != 0)
                return rc;
        s->uv.handle.data = s;
        buf_init(&s->backlog, BACKLOG_ABSOLUTE_MAX);
        buf_init(&s->flight, BACKLOG_ABSOLUTE_MAX);
        return 0;
}

static void count_held(struct sock *s, size_t now)
{
        if (!s->held || now == s->counted)
                return;
        atomic_fetch_add_explicit(s->held, (int_fast64_t)now - (int_fast64_t)s->counted,
                                  memory_order_relaxed);
        s->counted = now;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
        (void)handle;
        (void)suggested;
        *buf = uv_buf_init(read_buf, sizeof read_buf);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
        struct sock *s = stream->data;
        if (n > 0)
                s->vt->read(s, span_of(buf->base, (size_t)n));
        else if (n < 0) {
                sock_read_stop(s);
                s->vt->end(s, n == UV_EOF ? 0 : (int)n);
        }
}

int sock_read_start(struct sock *s)
{
        if (s->reading || s->closing)
                return 0;
        int rc = uv_read_start(&s->uv.stream, on_alloc, on_read);
        s->reading = rc == 0;
        return rc;
}

void sock_read_stop(struct sock *s)
{
        if (!s->reading)
                return;
        (void)uv_read_stop(&s->uv.stream);
        s->reading = false;
}

size_t sock_backlog(const struct sock *s)
{
        return s->backlog.n + (s->writing ? s->flight.n : 0);
}

size_t sock_untaken(const struct sock *s)
{
        return s->backlog.n + uv_stream_get_write_queue_size(&s->uv.stream);
}

static void on_written(uv_write_t *write, int status);

/* Send the backlog.  It counts as sent from here. */
static int start_flight(struct sock *s)
{
        struct buf empty = s->flight;
        s->flight = s->backlog;
        s->backlog = empty;
        buf_clear(&s->backlog);
        uv_buf_t out = uv_buf_init((char *)s->flight.p, (unsigned)s->flight.n);
        s->sent += s->flight.n;
        int rc = uv_write(&s->write, &s->uv.stream, &out, 1, on_written);
        s->writing = rc == 0;
        return rc;
}

static void on_written(uv_write_t *write, int status)
{
        struct sock *s = write->handle->data;
        s->writing = false;
        if (s->closing)
                return;
        if (status == 0 && s->backlog.n > 0)
                status = start_flight(s);
        count_held(s, sock_backlog(s));
        if (status != 0) {
                s->broken = true;
                sock_read_stop(s);
                s->vt->end(s, status);
                return;
        }
        if (!s->writing) {
                buf_release(&s->flight); /* idle connections hold no buffers */
                buf_release(&s->backlog);
                s->vt->drained(s);
        }
}

/* Give the kernel what it takes now.  Bytes taken, or a negative errno. */
static long try_now(struct sock *s, const struct span *pieces, size_t n)
{
        enum { PIECES_MAX = 16 };
        uv_buf_t bufs[PIECES_MAX];
        unsigned used = 0;
        for (size_t i = 0; i < n && used < PIECES_MAX; i++)
                if (pieces[i].n > 0) {
                        union {
                                const uint8_t *in;
                                char *out;
                        } cast = {.in = pieces[i].p}; /* uv_buf_t has no const */
                        bufs[used++] = uv_buf_init(cast.out, (unsigned)pieces[i].n);
                }
        if (used == 0)
                return 0;
        int rc = uv_try_write(&s->uv.stream, bufs, used);
        if (rc == UV_EAGAIN)
                return 0;
        if (rc > 0)
                s->sent += (uint64_t)rc;
        return rc;
}

int sock_write(struct sock *s, const struct span *pieces, size_t n)
{
        if (s->closing || s->broken)
                return -EPIPE;
        if (sock_backlog(s) > SOCK_BACKLOG_MAX) {
                s->broken = true;
                return -ENOBUFS;
        }
        long taken = s->writing ? 0 : try_now(s, pieces, n);
        if (taken < 0) {
                s->broken = true;
                return (int)taken;
        }
        size_t skip = (size_t)taken;
        for (size_t i = 0; i < n; i++) {
                size_t here = skip < pieces[i].n ? skip : pieces[i].n;
                skip -= here;
                if (here < pieces[i].n &&
                    buf_append(&s->backlog, pieces[i].p + here, pieces[i].n - here) != BUF_OK) {
                        s->broken = true;
                        return -ENOBUFS;
                }
        }
        int rc = s->writing || s->backlog.n == 0 ? 0 : start_flight(s);
        if (rc != 0)
                s->broken = true;
        count_held(s, sock_backlog(s));
        return rc;
}

static void on_closed(uv_handle_t *handle)
{
        struct sock *s = handle->data;
        count_held(s, 0);
        buf_release(&s->backlog);
        buf_release(&s->flight);
        s->vt->closed(s);
}

void sock_close(struct sock *s)
{
        if (s->closing)
                return;
        s->closing = true;
        uv_close(&s->uv.handle, on_closed);
}

bool sock_is_readable(struct sock *s)
{
        uv_os_fd_t fd;
        if (uv_fileno(&s->uv.handle, &fd) != 0)
                return true;
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
        return poll(&p, 1, 0) != 0;
}

void sock_nodelay(struct sock *s)
{
        if (s->uv.handle.type == UV_TCP)
                (void)uv_tcp_nodelay(&s->uv.tcp, 1);
}
