/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: one connected stream, TCP or unix, with a bounded backlog of what the peer has not taken.
 *
 * Reads come in pieces that are valid only during the call.  Writes go to the kernel at once as
 * far as it takes them; the rest is copied and follows.  How many bytes were given to the kernel
 * is counted, and a write that was started counts as sent whole, whatever became of it: what may
 * have reached the peer must not be sent again.
 */
#ifndef NET_SOCK_H
#define NET_SOCK_H

#include <stdatomic.h>

#include "base/buf.h"
#include "net/loop_internal.h"

/* What the peer has not taken; when more than this waits, a write fails and the connection is closed
 * by its owner (so one call may write more than that, the next may not).  Owners stop producing
 * at SOCK_BACKLOG_HIGH and go on at `drained`. */
enum { SOCK_BACKLOG_MAX = 4 * 1024 * 1024, SOCK_BACKLOG_HIGH = 256 * 1024,
       SOCK_READ_BYTES = 64 * 1024 };

struct sock;

struct sock_vt {
        void (*read)(struct sock *s, struct span bytes);
        /* n < 0: a negative errno; 0: the peer has closed its side. */
        void (*end)(struct sock *s, int n);
        void (*drained)(struct sock *s); /* the backlog is empty again */
        void (*closed)(struct sock *s);  /* the last call: free what holds it */
};

struct sock {
        union {
                uv_handle_t handle;
                uv_stream_t stream;
                uv_tcp_t tcp;
                uv_pipe_t pipe;
        } uv;
        const struct sock_vt *vt;
        struct loop *loop;
        uv_write_t write;
        struct buf backlog, flight; /* waiting; being written */
        bool writing, reading, closing, broken;
        atomic_int_fast64_t *held; /* NULL, or where the bytes of all backlogs are counted */
        size_t counted;            /* of this one */
        uint64_t sent; /* bytes that may have reached the peer since sock_count_from_here() */
};

/* Init for a TCP or unix stream; not connected yet.  A negative errno on failure: then there is
 * nothing to close. */
int sock_init(struct sock *s, struct loop *loop, bool is_unix, const struct sock_vt *vt);

int sock_read_start(struct sock *s);
void sock_read_stop(struct sock *s);

/* Write the pieces in order.  0, or a negative errno: the stream is broken, and its owner
 * closes it.  Nothing is called back inside. */
int sock_write(struct sock *s, const struct span *pieces, size_t n);

size_t sock_backlog(const struct sock *s);

/* As sock_backlog(), but it falls with every byte that the kernel takes. */
size_t sock_untaken(const struct sock *s);

static inline void sock_count_from_here(struct sock *s)
{
        s->sent = 0;
}

/* Close at once; what is in the backlog is lost.  `closed` follows.  Twice is fine. */
void sock_close(struct sock *s);

/* Are there bytes to read, or has the peer closed, right now?  For a connection about to be
 * reused. */
bool sock_is_readable(struct sock *s);

void sock_nodelay(struct sock *s);

#endif
