/* SPDX-License-Identifier: Apache-2.0
 *
 * run_child: see run_child.h.
 */
#include "cmd/run_child.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/say.h"
#include "sys/files.h"
#include "sys/process.h"

enum {
        CHUNK_BYTES = 16 * 1024,
        TAIL_BYTES_MAX = 16 * 1024 * 1024, /* more than a pipe may hold (pipe-max-size, 1 MiB) */
};

/* One of the command's two streams. */
struct stream {
        enum run_stream name;
        int from, to;
        bool ended;  /* nothing more comes */
        bool closed; /* nothing can be passed on any more: keep on reading and keeping */
        int why;     /* errno of the write that failed, 0: none */
        size_t at, n; /* chunk[at..n) is not passed on yet */
        uint8_t chunk[CHUNK_BYTES];
};

/* The descriptor that this stream waits for: its reader first, so that a slow one slows the
 * command down instead of filling our memory. */
static struct pollfd stream_wants(const struct stream *s)
{
        if (s->at < s->n)
                return (struct pollfd){.fd = s->to, .events = POLLOUT};
        return (struct pollfd){.fd = s->ended ? -1 : s->from, .events = POLLIN};
}

static void stream_read(struct stream *s, struct run_output *output)
{
        ssize_t n = read(s->from, s->chunk, sizeof s->chunk);
        if (n < 0 && errno == EINTR)
                return;
        if (n <= 0) {
                s->ended = true;
                return;
        }
        run_output_add(output, s->name, span_of(s->chunk, (size_t)n));
        s->at = 0;
        s->n = s->closed ? 0 : (size_t)n;
}

/* A pipe that poll() calls writable takes PIPE_BUF bytes without blocking, and no more.  Both
 * streams may be one pipe: what was said before the other one wrote is not true any more. */
static void stream_write(struct stream *s)
{
        struct pollfd now = {.fd = s->to, .events = POLLOUT};
        if (poll(&now, 1, 0) <= 0)
                return;
        size_t n = s->n - s->at < PIPE_BUF ? s->n - s->at : PIPE_BUF;
        ssize_t written = write(s->to, s->chunk + s->at, n);
        if (written >= 0) {
                s->at += (size_t)written;
        } else if (errno != EINTR && errno != EAGAIN) {
                s->why = errno;
                s->closed = true;
                s->at = s->n = 0;
        }
}

static void stream_step(struct stream *s, const struct pollfd *pfd, struct run_output *output)
{
        if (pfd->fd < 0 || pfd->revents == 0)
                return;
        if (pfd->fd == s->to)
                stream_write(s);
        else
                stream_read(s, output);
}

/* After the command's end: what it had written is in the pipe now.  Background processes
 * that it left may go on writing; that is not its output, and nobody waits for them. */
static void stream_drain(struct stream *s, struct run_output *output, struct buf *tail)
{
        int left = 0;
        (void)buf_append(tail, s->chunk + s->at, s->n - s->at);
        if (s->ended || ioctl(s->from, FIONREAD, &left) != 0)
                return;
        while (left > 0) {
                size_t want = (size_t)left < sizeof s->chunk ? (size_t)left : sizeof s->chunk;
                ssize_t n = read(s->from, s->chunk, want);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return;
                run_output_add(output, s->name, span_of(s->chunk, (size_t)n));
                if (!s->closed)
                        (void)buf_append(tail, s->chunk, (size_t)n);
                left -= (int)n;
        }
}

static void unwritten_add(struct run_unwritten *u, enum run_stream name, int why)
{
        if (why != 0 && why != EPIPE && u->why == 0)
                *u = (struct run_unwritten){why, name};
}

/* Pass a signal on; true when the command has ended. */
static bool take_signals(struct run_child *c, const struct process *p)
{
        bool by_terminal, ended = false;
        int signal;
        while ((signal = signals_next(c->signals, &by_terminal)) != 0) {
                if (signal == SIGCHLD)
                        ended = ended || process_try_wait(p, &c->code);
                else if (!by_terminal && !ended)
                        (void)kill(p->pid, signal);
        }
        return ended;
}

int run_child(struct run_child *c)
{
        struct process p;
        buf_init(&c->tail[0], TAIL_BYTES_MAX);
        buf_init(&c->tail[1], TAIL_BYTES_MAX);
        if (process_start(&p, c->argv, c->env, c->lock_fd, &c->signals->before) != 0)
                return -1;

        struct stream streams[2] = {
                {.name = RUN_STDOUT, .from = p.out_fd, .to = STDOUT_FILENO},
                {.name = RUN_STDERR, .from = p.err_fd, .to = STDERR_FILENO}};
        for (bool ended = false; !ended;) {
                struct pollfd fds[3] = {{.fd = c->signals->fd, .events = POLLIN},
                                        stream_wants(&streams[0]), stream_wants(&streams[1])};
                if (poll(fds, 3, -1) < 0)
                        continue; /* EINTR */
                stream_step(&streams[0], &fds[1], c->output);
                stream_step(&streams[1], &fds[2], c->output);
                if (fds[0].revents)
                        ended = take_signals(c, &p);
        }
        for (int i = 0; i < 2; i++) {
                stream_drain(&streams[i], c->output, &c->tail[i]);
                unwritten_add(&c->unwritten, streams[i].name, streams[i].why);
        }
        process_close(&p);
        return 0;
}

void run_write(struct run_unwritten *u, enum run_stream name, struct span bytes)
{
        int to = name == RUN_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
        if (u->why != 0 && u->name == name)
                return;
        if (fd_write_all(to, bytes.p, bytes.n) != 0)
                unwritten_add(u, name, errno);
}

void run_unwritten_say(const struct run_unwritten *u, const char *then)
{
        say_error("cannot write to %s: %s%s", u->name == RUN_STDOUT ? "stdout" : "stderr",
                  strerrordesc_np(u->why), then);
}

void run_child_flush(struct run_child *c)
{
        run_write(&c->unwritten, RUN_STDOUT, buf_span(&c->tail[0]));
        run_write(&c->unwritten, RUN_STDERR, buf_span(&c->tail[1]));
}

void run_child_release(struct run_child *c)
{
        buf_release(&c->tail[0]);
        buf_release(&c->tail[1]);
}
